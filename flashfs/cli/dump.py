"""``flashfs dump``: what is in an image, read-only; a crashed one too, and one that is mounted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flashfs.cli import options, show, units
from flashfs.errors import UsageError


def command(
    image: Annotated[
        Path,
        typer.Argument(
            parser=Path, metavar="IMAGE|MOUNTPOINT", help="An image, also a crashed one; or what is mounted."
        ),
    ],
    view: Annotated[
        str | None,
        typer.Argument(
            metavar="[header|blocks|page PPA|lpa LPA|log|scheme|recovery|map|segments GROUP|...]", show_default="header"
        ),
    ] = None,
    number: Annotated[str | None, typer.Argument(metavar="ADDRESS", show_default=False, hidden=True)] = None,
    html: Annotated[
        Path | None,
        typer.Option(parser=options.file, metavar="FILE", help="Make one HTML page of it all instead, for a browser."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --html: overwrite an existing FILE.")] = False,
    ftl: options.Named = None,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Explain IMAGE, or what a power cut now would leave of the one at MOUNTPOINT: its header, its blocks, a page with
    its OOB, an LPA's whole story, the metadata log, the scheme's own structures (all, or one by its name, such as map);
    or all of it in pictures, as one HTML page."""
    if html is not None and view is not None:
        raise UsageError(f"dump --html shows all of {image}: leave {view} out")
    if html is None and force:
        raise UsageError("dump --force: without --html there is nothing to overwrite")
    mount = mounted(image)
    if mount is not None and (ftl is not None or trust):
        raise UsageError(f"dump {image}: a mount knows its FTL; leave --ftl and --trust to images")
    if html is not None:
        write_html(image, mount, html, force, trust or ftl or False, as_json)
        return
    view = view or "header"
    if number is not None and not number.removeprefix("-").isdecimal():
        raise UsageError(f"dump {view} {number}: a whole number would do")
    address = None if number is None else int(number)
    title = view if address is None else f"{view} {address}"
    from flashfs import inspect
    from flashfs.inspect import views

    views.check(image, view, address)
    with show.progressing(f"reading {image}") as progress:
        if mount is None:
            found, note = views.show(image, view, address, trust=trust or ftl or False, progress=progress), ""
        else:
            found, note = mount.dump(view, address)
    if note:
        show.warn(note)
    if view == "blocks" and not as_json:
        found = inspect.folded(found)
    show.result(found, as_json=as_json, title=title)


def mounted(path: Path) -> Any:
    """The control of what is mounted at ``path``; None for what is no directory: an image, or nothing."""
    from flashfs.fuse import controlling, mounts

    place = mounts.absolute(path)
    return controlling.Control(place) if mounts.is_folder(place) else None


def write_html(image: Path, mount: Any, file: Path, force: bool, trust: bool | str, as_json: bool) -> None:
    """The page, and one line that says so."""
    from flashfs import inspect

    with show.progressing(f"reading {image}") as progress:
        if mount is None:
            made = inspect.write_html(image, file, force=force, trust=trust, progress=progress)
        else:
            made = mount.write_html(file, force, progress)
    if as_json:
        show.result(made, as_json=True)
        return
    note = f"; {made['note']}" if made["note"] else ""
    show.line(f"{file}: {units.shown(made['bytes'])}, {made['blocks']:,} blocks of {image}{note}")
