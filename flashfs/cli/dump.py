"""``flashfs dump``: what is in an image, read-only; a crashed one too, and one that is mounted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flashfs.cli import complete, help, options, show, units
from flashfs.errors import UsageError

#: what each view shows that is no FTL's own
VIEWS = {
    "header": "what the image says of itself: FTL, options, geometry",
    "blocks": "the block table: state, stream, erases, live pages",
    "page PPA": "a flash page: its data, its OOB, whether it is live",
    "lpa LPA": "a logical page: where it is, its copies, its trims",
    "log": "checkpoints, trims, boot hints and NVRAM slots",
    "recovery": "how a mount would recover the image, step by step",
    "scheme": "all tables of the FTL; these are one each:",
}


class Help(help.Command):
    """The schemes say what their own views show, and only the help asks them: to load them all takes a moment."""

    def ending(self) -> str:
        return f"{help.section('Views', lines_of_views())}\n\n{super().ending()}"


def lines_of_views() -> list[str]:
    """Of the help, one line for each view."""
    general = [f"{name:21} {about}" for name, about in VIEWS.items()]
    return [*general, *(f"  {name:19} {about}" for name, about in own_views())]


def own_views() -> list[tuple[str, str]]:
    """(view and what is numbered, whose it is and what it shows). A scheme that says nothing of one has a table there.
    """
    from flashfs.ftl import SCHEMES

    whose: dict[tuple[str, str], list[str]] = {}
    for scheme in SCHEMES.values():
        for name in (*scheme.views, *scheme.numbered):
            unit = scheme.numbered[name][0].upper() if name in scheme.numbered else ""
            view = f"{name} {unit}".strip(), scheme.about_views.get(name, "a table")
            whose.setdefault(view, []).append(scheme.name)
    return [(name, f"{owners(have, len(SCHEMES))}: {about}") for (name, about), have in whose.items()]


def owners(have: list[str], of: int) -> str:
    """Two by name, more as the first and how many more."""
    if len(have) == of:
        return "every FTL"
    return ", ".join(have) if len(have) < 3 else f"{have[0]} and {len(have) - 1} more"


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
            metavar="VIEW", show_default="header", help="What to show (see below).", autocompletion=complete.views
        ),
    ] = None,
    number: Annotated[
        str | None, typer.Argument(metavar="NUMBER", show_default=False, help="Of a view that has one: PPA, LPA, ...")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(parser=options.file, metavar="FILE", help="Make one HTML page of it all instead, for a browser."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --html: overwrite an existing FILE.")] = False,
    ftl: options.Named = None,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Show what is in an image, also a crashed one.

    Of a mount: what a power cut at this moment would leave. Nothing is changed. --html shows the whole image in
    pictures, on one page.
    """
    if html is not None and view is not None:
        raise UsageError(f"dump --html shows all of {image}: leave {view} out")
    if html is None and force:
        raise UsageError("dump --force: without --html there is nothing to overwrite")
    from flashfs import inspect
    from flashfs.fuse import looking
    from flashfs.inspect import views

    what = looking.at(image, trust or ftl or False)
    if html is not None:
        with show.progressing(f"reading {image}") as progress:
            made = what.write_html(html, force, progress)
        report_html(image, html, made, as_json)
        return
    view, number = views.named(view or "header", number)
    address = views.check(image, view, number, what.ftl())
    with show.progressing(f"reading {image}") as progress:
        found, note = what.dump(view, address, progress)
    if note:
        show.warn(note)
    if view == "blocks" and as_json:
        show.json_rows(inspect.unfolded(found, what.dies()))
        return
    if not as_json and (view not in views.GENERAL or view == "scheme"):
        found = inspect.folded_tables(found)
    show.result(found, as_json=as_json, title=view if address is None else f"{view} {address}")


def report_html(image: Path, file: Path, made: dict[str, Any], as_json: bool) -> None:
    """One line about the page."""
    if as_json:
        show.result(made, as_json=True)
        return
    note = f"; {made['note']}" if made["note"] else ""
    show.line(f"{file}: {units.shown(made['bytes'])}, {made['blocks']:,} blocks of {image}{note}")
