"""The flags that describe a chip, the same for every command that makes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import complete, units
from flashfs.errors import UsageError
from flashfs.text import meant

if TYPE_CHECKING:
    from nandimg import Geometry

SIZE = "1G"  # what a chip holds by default

Preset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A chip by name (see flashfs presets).", autocompletion=complete.presets),
]
Size = Annotated[str | None, typer.Option(metavar="SIZE", help=f"What the host sees. Default: {SIZE}.")]
PageSize = Annotated[str | None, typer.Option(metavar="SIZE", help="A power of two. Default: 4k.")]
PagesPerBlock = Annotated[int | None, typer.Option(min=1, metavar="N", help="Default: 256.")]
Channels = Annotated[int | None, typer.Option(min=1, metavar="N", help="Default: as many as dies, 8 at most.")]
Dies = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Dies on all channels together. Default: 8; fewer on a chip of under 512 blocks."
    ),
]
Oob = Annotated[int | None, typer.Option(min=1, metavar="BYTES", help="Bytes of a page's spare area. Default: 128.")]
Op = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE", help="Over-provisioning: flash / size - 1. Default: 0.1, or more if a small chip needs it."
    ),
]


def geometry_of(preset: str | None, size: str | None, page_size: str | None, **shape: Any) -> Geometry:
    """The chip that the flags describe; in ``shape``, what was not given is None."""
    from flashfs.fit import sized
    from nandimg.presets import PRESETS

    given = {name: value for name, value in shape.items() if value is not None}
    if page_size is not None:
        given["page_bytes"] = _page_bytes(page_size)
    if "op" in given:
        given["op"] = units.share("--op", given["op"])
    if preset is None:
        return sized(units.size("--size", SIZE if size is None else size), given)
    if size is not None or given:
        raise UsageError("--preset is a whole chip: leave the other flags of its geometry out")
    if preset not in PRESETS:
        raise UsageError(f"--preset {preset}{meant(preset, PRESETS)}: no such preset; see flashfs presets")
    return PRESETS[preset].geometry


def check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    """UsageError for a word that is none of them."""
    if value not in choices:
        raise UsageError(f"{option} {value}{meant(value, choices)}: use {' or '.join(choices)}")


def _page_bytes(text: str) -> int:
    n = units.size("--page-size", text)
    if n & (n - 1):
        raise UsageError(f"--page-size {text}: use a power of two, as 4k")
    return n
