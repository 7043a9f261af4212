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
        Path, typer.Argument(metavar="IMAGE|MOUNTPOINT", help="An image, also a crashed one; or a mount.")
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
        Path | None, typer.Option(metavar="FILE", help="Write one HTML page of everything instead, for a browser.")
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
    mount = mounted(image)
    if mount is not None and (ftl is not None or trust):
        raise UsageError(f"dump {image}: a mount knows its FTL; leave --ftl and --trust to images")
    if html is not None:
        write_html(image, mount, html, force, trust or ftl or False, as_json)
        return
    view = view or "header"
    address = None if number is None else whole(view, number)
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
    if view == "blocks" and as_json:
        dies = inspect.header(image if mount is None else mount.image())["geometry"]["dies"]
        show.json_rows(inspect.unfolded(found, dies))
        return
    if view not in views.GENERAL or view == "scheme":
        found = found if as_json else inspect.folded_tables(found)
    show.result(found, as_json=as_json, title=title)


def whole(view: str, text: str) -> int:
    """A number as it was typed, or as a table shows it: 9,009."""
    digits = text.replace(",", "")
    if not digits.isdecimal():
        raise UsageError(f"dump {view} {text}: use a whole number")
    return int(digits)


def mounted(path: Path) -> Any:
    """The control of what is mounted at ``path``; None for what is no directory: an image, or nothing."""
    from flashfs.fuse import controlling, mounts

    place = mounts.absolute(path)
    if mounts.at(place) is None and not place.is_dir():
        return None
    return controlling.Control(place)


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
