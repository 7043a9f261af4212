"""``flashfs ftls``: the flash translation layers that there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import complete, options, show
from flashfs.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]  #: of the sources, if that is where this file is

if TYPE_CHECKING:
    from flashfs.ftl import Scheme


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Show the options of this one; package.module:Class works too.",
            autocompletion=complete.ftls,
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the FTLs, or show the options of one.

    The list has those of flashfs and those that installed packages bring.
    """
    from flashfs import ftl

    if name is not None:
        one = row(ftl.scheme(name))
        show.result(one if as_json else {**one, "manual": place_of(one["manual"])}, as_json=as_json, title=name)
        return
    found, broken = [row(scheme) for scheme in ftl.SCHEMES.values()], list(ftl.BROKEN.values())
    for other in ftl.installed():
        try:
            found.append(row(ftl.scheme(other)))
        except UsageError as error:  # one that is broken is no reason not to see the others
            broken.append(str(error))
    if as_json:
        show.result(found, as_json=True)
    else:
        own = {line["from"] for line in found} == {"flashfs"}
        names = ("name", "year", "about") if own else ("name", "year", "from", "about")
        show.rows([{name: line[name] for name in names} for line in found])
    for line in broken:
        show.warn(line)


def place_of(manual: str) -> str:
    """Where a person finds that page: a wheel comes without."""
    return manual if not manual or (ROOT / manual).exists() else f"{manual}, in the source archive of flashfs"


def row(scheme: Scheme) -> dict[str, Any]:
    """What there is to know of one, its options in rows of their own."""
    return {
        "name": scheme.name,
        "title": scheme.title,
        "year": str(scheme.year or ""),
        "paper": scheme.paper,
        "about": scheme.about,
        "replaces": list(scheme.replaces),
        "from": scheme.origin,
        "manual": scheme.manual,
        "options": [
            {
                "option": option.name,
                "default": option.default,
                "values": "|".join(option.choices) or f"{option.low}..{option.high}",
                "fixed": option.fixed,
                "help": option.help,
            }
            for option in scheme.all_options()
        ],
    }
