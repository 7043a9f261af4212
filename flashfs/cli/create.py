"""``flashfs create``: make a blank chip."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from flashfs.cli import options, shape, show, units

TOLD_BYTES = 1 << 30  #: that a first mount allocates: less is not worth a line


def command(
    image: Annotated[Path, typer.Argument(parser=options.file, metavar="IMAGE", help="The file to make.")],
    preset: shape.Preset = None,
    size: shape.Size = None,
    page_size: shape.PageSize = None,
    pages_per_block: shape.PagesPerBlock = None,
    channels: shape.Channels = None,
    dies: shape.Dies = None,
    oob: shape.Oob = None,
    op: shape.Op = None,
    backend: Annotated[
        str,
        typer.Option(
            metavar="file|meta", help="file: keep everything. meta: keep no user data, for replays of large chips."
        ),
    ] = "file",
    tables: Annotated[
        str,
        typer.Option(
            metavar="reserved|sparse",
            help="reserved: the first mount gives the tables all their disk blocks, so that metadata never meets a full"
            " disk. sparse: they get them page by page; a write that finds the disk full fails, and loses nothing.",
        ),
    ] = "reserved",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: options.Json = False,
) -> None:
    """Make an image: a blank chip in a sparse file.

    The tables of the chip get their disk blocks now and at the first mount, which binds the image to an FTL; its pages
    get theirs when they are written, and with --tables sparse the tables' part by page too.
    """
    from flashfs import fit
    from flashfs.sizing import op as sizing_op
    from nandimg import image as images
    from nandimg.header import TABLES

    geometry = shape.geometry_of(
        preset, size, page_size, pages_per_block=pages_per_block, channels=channels, dies=dies, oob_bytes=oob, op=op
    )
    shape.check_choice("--backend", backend, images.BACKENDS)
    shape.check_choice("--tables", tables, TABLES)
    lacking = fit.lacking(geometry)
    header = images.create(image, geometry, backend=backend, force=force, tables=tables)
    mounts = fit.first_mount_bytes(header)
    least, most = min(mounts.values()), max(mounts.values())
    if as_json:
        made = {"image": str(image), "uuid": str(header.uuid), "geometry": geometry.as_dict()}
        says = {"op": round(geometry.op, 6), "refused_by": lacking, "first_mount_bytes": mounts}
        show.result({**made, "tables": tables, "allocated_bytes": header.allocated_bytes, **says}, as_json=True)
        return
    host, flash = units.shown(geometry.logical_bytes), units.shown(geometry.physical_bytes)
    show.line(
        f"{image}: {host} for the host on {flash} of flash,"
        f" {geometry.blocks:,} blocks of {geometry.pages_per_block} pages of {units.shown(geometry.page_bytes)};"
        f" {units.shown(header.allocated_bytes)} of tables allocated"
    )
    if most >= TOLD_BYTES:
        low, high = units.shown(least), units.shown(most)
        span = f"{low} more" if low == high else f"{low} to {high} more, by FTL"
        show.line(f"its first mount allocates {span}")
    if header.tables == "sparse":
        show.line("its tables are sparse: pages take their part of them from the host's disk when they are written")
    if op is None and preset is None and sizing_op.is_grown(geometry):
        show.line(f"over-provisioning is {geometry.op:.1%}: some FTLs have no room on it with {sizing_op.OP:.0%}")
    if lacking:
        wanted = None if preset is not None else fit.enough_for_all(geometry)
        more = f"; --op {wanted:g} has room for all" if wanted is not None else ""
        show.line(f"cannot be used with {', '.join(lacking)}{more}")
    disk = shutil.disk_usage(image.absolute().parent)
    if least > disk.free:
        show.warn(f"{image}: {units.shown(disk.free)} are free there, and the first mount takes {units.shown(least)}")
