"""``flashfs dump``: what is in an image, offline and read-only; a crashed one too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flashfs.cli import options, show, units
from flashfs.errors import UsageError
from flashfs.plain import meant

# What can be seen in any image: the function of flashfs.inspect, and what it is given beside the image.
VIEWS: dict[str, tuple[str, str]] = {
    "header": ("header", ""),
    "blocks": ("blocks", ""),
    "page": ("page", "PPA"),
    "lpa": ("lpa", "LPA"),
    "log": ("log", ""),
    "scheme": ("scheme", ""),
    "recovery": ("recovery", ""),
}


def command(
    image: options.Image,
    view: Annotated[
        str | None,
        typer.Argument(
            metavar="[header|blocks|page PPA|lpa LPA|log|scheme|recovery|map|segments GROUP|...]", show_default="header"
        ),
    ] = None,
    address: Annotated[int | None, typer.Argument(metavar="ADDRESS", show_default=False, hidden=True)] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Make one HTML page of it all instead, for a browser.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --html: overwrite an existing FILE.")] = False,
    ftl: options.Named = None,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Explain IMAGE: its header, its blocks, a page with its OOB, an LPA's whole story, the metadata log, the scheme's
    own structures (all, or one by its name, such as map); or all of it in pictures, as one HTML page."""
    from flashfs import inspect
    from flashfs.ftl import SCHEMES

    if html is not None:
        if view is not None:
            raise UsageError(f"dump --html shows all of {image}: leave {view} out")
        write_html(image, html, force, trust or ftl or False, as_json)
        return
    if force:
        raise UsageError("dump --force: without --html there is nothing to overwrite")
    view = view or "header"
    own = dict.fromkeys(name for scheme in SCHEMES.values() for name in scheme.views)
    numbered = {name: unit for scheme in SCHEMES.values() for name, (unit, _) in scheme.numbered.items()}
    if view not in VIEWS and view not in own and view not in numbered:
        there = [*VIEWS, *own, *numbered]
        raise UsageError(f"dump {view}{meant(view, there)}: there is {', '.join(there)}")
    function, unit = VIEWS.get(view, ("scheme", ""))
    if unit and address is None:
        raise UsageError(f"dump {view} needs a number: flashfs dump {image} {view} {unit}")
    if not unit and address is not None and view not in numbered:
        raise UsageError(f"dump {view} takes no number, {address} was given")
    arguments: list[Any] = [address] if unit else [view, address] if view in numbered else [view] if view in own else []
    with show.working(f"reading {image}") as progress:
        known: dict[str, Any] = {} if view == "header" else {"trust": trust or ftl or False}
        if view == "blocks":
            known["progress"] = progress
        found = getattr(inspect, function)(image, *arguments, **known)
    if view == "blocks" and not as_json:
        found = inspect.folded(found)
    show.result(found, as_json=as_json, title=view if address is None else f"{view} {address}")


def write_html(image: Path, file: Path, force: bool, trust: bool | str, as_json: bool) -> None:
    """The page, and one line that says so."""
    from flashfs import inspect

    with show.working(f"reading {image}"):
        made = inspect.write_html(image, file, force=force, trust=trust)
    if as_json:
        show.result(made, as_json=True)
        return
    note = f"; {made['note']}" if made["note"] else ""
    show.line(f"{file}: {units.shown(made['bytes'])}, {made['blocks']:,} blocks of {image}{note}")
