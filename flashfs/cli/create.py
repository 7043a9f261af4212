"""``flashfs create``: make a blank chip."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashfs.cli import options, shape, show, units


def command(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="The file to make.")],
    preset: shape.Preset = None,
    size: shape.Size = None,
    page_size: shape.PageSize = None,
    pages_per_block: shape.PagesPerBlock = None,
    channels: shape.Channels = None,
    dies: shape.Dies = None,
    oob: shape.Oob = None,
    op: shape.Op = None,
    backend: Annotated[
        str, typer.Option(metavar="file|meta", help="file keeps everything; meta keeps no user data, for replays.")
    ] = "file",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: options.Json = False,
) -> None:
    """Make a blank chip in a sparse file. Its tables get their disk blocks now, its pages when they are written."""
    from nandimg import image as images

    geometry = shape.geometry_of(
        preset, size, page_size, pages_per_block=pages_per_block, channels=channels, dies=dies, oob_bytes=oob, op=op
    )
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
