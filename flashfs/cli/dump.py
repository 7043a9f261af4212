"""``flashfs dump``: what is in an image, read-only; a crashed one too, and one that is mounted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flashfs.cli import complete, options, show, units
from flashfs.errors import UsageError

#: what each view shows; those of some FTLs alone are in OWN_VIEWS
VIEWS = {
    "header": "what the image says of itself: FTL, options, geometry",
    "blocks": "the block table: state, stream, erases, live pages",
    "page PPA": "a flash page: its data, its OOB, whether it is live",
    "lpa LPA": "a logical page: where it is, its copies, its trims",
    "log": "checkpoints, trims, boot hints and NVRAM slots",
    "recovery": "how a mount would recover the image, step by step",
    "scheme": "all tables of the FTL, or one of them by its name:",
}
OWN_VIEWS = {
    "map": "the map in figures; every FTL has this one",
    "data": "fast: the data blocks, and whose they are",
    "logs": "fast: the log blocks, what is reclaimed next first",
    "hids": "hpftl, slimftl: how many pages each hash function holds",
    "secondary": "hpftl: the secondary table",
    "vbt": "slimftl: the virtual block table",
    "gmd": "leaftl: where its translation pages are",
    "segments GROUP": "leaftl: levels, segments and CRB of a group",
    "gtd": "maps in flash: where their translation pages are",
    "cmt": "maps in flash: the cache, what leaves next first",
    "newer": "maps in flash: what DRAM has newer than the pages",
    "translation PAGE": "maps in flash: a translation page",
    "nodes": "tpftl, learnedftl: the nodes of the cache",
    "models": "learnedftl: the models, and how exact they are",
    "groups": "learnedftl: which groups are due to be put in order",
    "owners": "learnedftl: which group owns which superblock",
    "tree": "muftl, ibftl: the nodes of the map",
    "pvb": "muftl: the pages of the validity bitmap",
    "pvl": "ibftl: the validity log and its pages",
    "chain BLOCK": "ibftl: the log's entries of a block",
    "runs": "geckoftl: the runs of Logarithmic Gecko",
    "run RUN": "geckoftl: a run, 0 is the newest",
    "gecko BLOCK": "geckoftl: what Gecko says of a block",
    "references": "remapssd: how many pages have how many references",
    "rmm": "remapssd: the remapping metadata in NVRAM",
    "segments SUPERBLOCK": "remapssd: the entries of a superblock",
    "sharers PPA": "remapssd: the LPAs that share a page",
}


def lines_of_views() -> list[str]:
    """Of the help, one line for each view."""
    general = [f"{name:21} {about}" for name, about in VIEWS.items()]
    return [*general, *(f"  {name:19} {about}" for name, about in OWN_VIEWS.items())]


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
    view = view or "header"
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
