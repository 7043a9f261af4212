"""``flashfs remap``: a range of a device reads what another one does."""

from __future__ import annotations

from typing import Annotated

import typer

from flashfs.cli import options, show, units


def command(
    where: Annotated[
        options.Path,
        typer.Argument(
            parser=options.Path, metavar="MOUNTPOINT|IMAGE", help="A mount, or an image that is not mounted."
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Where on the device, in bytes: 4096, 4k, 1M.")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What TARGET becomes the same as, in bytes.")],
    length: Annotated[str, typer.Argument(metavar="LENGTH", help="How many bytes.")],
    move: Annotated[bool, typer.Option("--move", help="Trim the source afterwards.")] = False,
    ftl: options.Named = None,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Make a range of a device the same as another range.

    The LENGTH bytes at TARGET become the same as those at SOURCE, durably, without copying where the FTL can. An FTL
    that remaps shares whole pages if TARGET and SOURCE begin at the same place of a page; the rest is copied. The
    ranges may overlap.
    """
    from flashfs.fuse import remapping

    to, at = units.offset("TARGET", target), units.offset("SOURCE", source)
    n = units.size("LENGTH", length)
    with show.working(f"remapping {units.shown(n)}"):
        found = remapping.remap(where, to, at, n, move=move, ftl=ftl, trust=trust)
    if as_json:
        show.result(found, as_json=True)
    else:
        how = "moved" if move else "remapped"
        show.line(
            f"{where}: {units.shown(n)} {how} from {source} to {target}: {found['remapped']:,} pages remapped, "
            f"{found['copied']:,} copied by {found['ftl']}"
        )
