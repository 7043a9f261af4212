"""The flags that describe a chip, the same for every command that makes one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import units
from flashfs.errors import UsageError

if TYPE_CHECKING:
    from nandimg import Geometry

SIZE = "1G"  # what a chip holds if nobody says
DIES = 8  # if nobody says
SUPERBLOCKS = 64  # fewer, and what works side by side leaves too few blocks to choose from

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
    float | None, typer.Option(metavar="SHARE", help="Over-provisioning: flash / size - 1. Default: 0.1.")
]


def geometry_of(preset: str | None, size: str | None, page_size: str | None, **shape: Any) -> Geometry:
    """The chip that the flags describe; in ``shape``, what was not given is None."""
    from nandimg.geometry import Geometry
    from nandimg.presets import PRESETS

    given = {name: value for name, value in shape.items() if value is not None}
    if page_size is not None:
        given["page_bytes"] = units.size("--page-size", page_size)
    if preset is None:
        host_bytes = units.size("--size", size or SIZE)
        return Geometry.sized(host_bytes, **given, **side_by_side(host_bytes, given))
    if size is not None or given:
        raise UsageError("--preset is a whole chip: leave the other flags of its geometry out")
    if preset not in PRESETS:
        raise UsageError(f"--preset {preset}: there is {', '.join(PRESETS)}")
    return PRESETS[preset].geometry


def side_by_side(host_bytes: int, given: dict[str, Any]) -> dict[str, int]:
    """Dies and channels, where they were not given: as many as the chip has blocks for, and what was given allows."""
    out: dict[str, int] = {}
    if "dies" not in given:
        blocks = host_bytes // (given.get("page_bytes", 4096) * given.get("pages_per_block", 256) or 1)
        dies = DIES
        while dies > 1 and blocks < dies * SUPERBLOCKS:
            dies //= 2
        channels = given.get("channels", 1)
        out["dies"] = -(-dies // channels) * channels if channels > 0 else dies
    if "channels" not in given:
        out["channels"] = math.gcd(DIES, out.get("dies", given.get("dies", 1))) or 1
    return out
