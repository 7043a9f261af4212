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
            parser=Path,
            metavar="IMAGE|MOUNTPOINT",
            help="An image, also a crashed one, or one that `flashfs nbd` serves; or what is mounted.",
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
    from flashfs import inspect
    from flashfs.inspect import views
    from flashfs.nbd import looking

    what = looking.at(image, trust or ftl or False)
    if html is not None:
        with show.progressing(f"reading {image}") as progress:
            made = what.write_html(html, force, progress)
        report_html(image, html, made, as_json)
        return
    view = view or "header"
    address = views.check(image, view, number, what.ftl())
    with show.progressing(f"reading {image}") as progress:
        found, note = what.dump(view, address, progress)
    if note:
        show.warn(note)
    if view == "blocks" and not as_json:
        found = inspect.folded(found)
    show.result(found, as_json=as_json, title=view if address is None else f"{view} {address}")


def report_html(image: Path, file: Path, made: dict[str, Any], as_json: bool) -> None:
    """One line about the page."""
    if as_json:
        show.result(made, as_json=True)
        return
    note = f"; {made['note']}" if made["note"] else ""
    show.line(f"{file}: {units.shown(made['bytes'])}, {made['blocks']:,} blocks of {image}{note}")
