"""``flashfs create``: make a blank chip."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flashfs.cli import options, show, units
from flashfs.errors import UsageError

SIZE = "1G"  # what an image holds if nobody says


def command(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="The file to make.")],
    preset: Annotated[str | None, typer.Option(metavar="NAME", help="A chip by name (see flashfs presets).")] = None,
    size: Annotated[str | None, typer.Option(metavar="SIZE", help=f"What the host sees. Default: {SIZE}.")] = None,
    page_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Default: 4k.")] = None,
    pages_per_block: Annotated[int | None, typer.Option(metavar="N", help="Default: 256.")] = None,
    channels: Annotated[int | None, typer.Option(metavar="N", help="Default: 8.")] = None,
    dies: Annotated[int | None, typer.Option(metavar="N", help="Dies on all channels together. Default: 8.")] = None,
    oob: Annotated[int | None, typer.Option(metavar="BYTES", help="Spare area of a page. Default: 128.")] = None,
    op: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Over-provisioning: flash / size - 1. Default: 0.1.")
    ] = None,
    backend: Annotated[
        str, typer.Option(metavar="file|meta", help="file keeps everything; meta keeps no user data, for replays.")
    ] = "file",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: options.Json = False,
) -> None:
    """Make a blank chip in a sparse file. Its tables get their disk blocks now, its pages when they are written."""
    from nandimg import image as images
    from nandimg.geometry import Geometry
    from nandimg.presets import PRESETS

    shape: dict[str, Any] = {
        "page_bytes": None if page_size is None else units.size("--page-size", page_size),
        "pages_per_block": pages_per_block,
        "channels": channels,
        "dies": dies,
        "oob_bytes": oob,
        "op": op,
    }
    shape = {name: value for name, value in shape.items() if value is not None}
    if preset is None:
        geometry = Geometry.sized(units.size("--size", size or SIZE), **shape)
    elif size is not None or shape:
        raise UsageError("--preset is a whole chip: leave the other flags of its geometry out")
    elif preset not in PRESETS:
        raise UsageError(f"--preset {preset}: there is {', '.join(PRESETS)}")
    else:
        geometry = PRESETS[preset].geometry
    header = images.create(image, geometry, backend=backend, force=force)
    if as_json:
        made = {"image": str(image), "uuid": str(header.uuid), "geometry": geometry.as_dict()}
        show.result({**made, "allocated_bytes": header.allocated_bytes}, as_json=True)
        return
    host, flash = units.shown(geometry.logical_bytes), units.shown(geometry.physical_bytes)
    show.line(
        f"{image}: {host} for the host on {flash} of flash,"
        f" {geometry.blocks:,} blocks of {geometry.pages_per_block} pages of {units.shown(geometry.page_bytes)};"
        f" {units.shown(header.allocated_bytes)} of tables allocated"
    )
