"""The flags that describe a chip, the same for every command that makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import units
from flashfs.errors import UsageError
from flashfs.plain import meant

if TYPE_CHECKING:
    from nandimg import Geometry

SIZE = "1G"  # what a chip holds if nobody says

Preset = Annotated[str | None, typer.Option(metavar="NAME", help="A chip by name (see flashfs presets).")]
Size = Annotated[str | None, typer.Option(metavar="SIZE", help=f"What the host sees. Default: {SIZE}.")]
PageSize = Annotated[str | None, typer.Option(metavar="SIZE", help="Default: 4k.")]
PagesPerBlock = Annotated[int | None, typer.Option(metavar="N", help="Default: 256.")]
Channels = Annotated[int | None, typer.Option(metavar="N", help="Default: as many as dies, 8 at most.")]
Dies = Annotated[
    int | None,
    typer.Option(metavar="N", help="Dies on all channels together. Default: 8; fewer on a chip of under 512 blocks."),
]
Oob = Annotated[int | None, typer.Option(metavar="BYTES", help="Spare area of a page. Default: 128.")]
Op = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", help="Over-provisioning: flash / size - 1. Default: 0.1, or more if a small chip needs it."
    ),
]


def geometry_of(preset: str | None, size: str | None, page_size: str | None, **shape: Any) -> Geometry:
    """The chip that the flags describe; in ``shape``, what was not given is None."""
    from flashfs.chips import sized
    from nandimg.presets import PRESETS

    given = {name: value for name, value in shape.items() if value is not None}
    if page_size is not None:
        given["page_bytes"] = units.size("--page-size", page_size)
    if preset is None:
        host_bytes = units.size("--size", size or SIZE)
        return sized(host_bytes, given)
    if size is not None or given:
        raise UsageError("--preset is a whole chip: leave the other flags of its geometry out")
    if preset not in PRESETS:
        raise UsageError(f"--preset {preset}{meant(preset, PRESETS)}: there is {', '.join(PRESETS)}")
    return PRESETS[preset].geometry
