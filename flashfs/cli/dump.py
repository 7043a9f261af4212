"""``flashfs dump``: what is in an image, offline and read-only; a crashed one too."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flashfs.cli import options, show
from flashfs.errors import UsageError

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
        str, typer.Argument(metavar="[header|blocks|page PPA|lpa LPA|log|scheme|recovery|map|...]")
    ] = "header",
    address: Annotated[int | None, typer.Argument(metavar="ADDRESS", show_default=False, hidden=True)] = None,
    as_json: options.Json = False,
) -> None:
    """Explain IMAGE: its header, its blocks, a page with its OOB, an LPA's whole story, the metadata log, the scheme's
    own structures (all, or one by its name, such as map)."""
    from flashfs import inspect
    from flashfs.ftl import SCHEMES

    own = dict.fromkeys(name for scheme in SCHEMES.values() for name in scheme.views)
    if view not in VIEWS and view not in own:
        raise UsageError(f"dump {view}: there is {', '.join([*VIEWS, *own])}")
    function, unit = VIEWS.get(view, ("scheme", ""))
    if unit and address is None:
        raise UsageError(f"dump {view} needs a number: flashfs dump {image} {view} {unit}")
    if not unit and address is not None:
        raise UsageError(f"dump {view} takes no number, {address} was given")
    arguments: list[Any] = [address] if unit else [view] if view in own else []
    with show.working(f"reading {image}"):
        found = getattr(inspect, function)(image, *arguments)
    show.result(found, as_json=as_json, title=f"{view} {address}" if unit else view)
