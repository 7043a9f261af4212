"""``flashfs ftls``: the flash translation layers that there are."""

from __future__ import annotations

from typing import Annotated

import typer

from flashfs.cli import options, show
from flashfs.errors import UsageError


def command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show the options of this one.")] = None,
    as_json: options.Json = False,
) -> None:
    """List the flash translation layers, or the options of one."""
    from flashfs.ftl import SCHEMES

    if name is not None and name not in SCHEMES:
        raise UsageError(f"no FTL called {name}: there is {', '.join(SCHEMES)}")
    found = [
        {
            "name": scheme.name,
            "title": scheme.title,
            "paper": scheme.paper,
            "about": scheme.about,
            "options": [
                {"option": key, "type": kind(option.type), "default": option.default, "help": option.help}
                for key, option in scheme.options.items()
            ],
        }
        for scheme in SCHEMES.values()
        if name in (None, scheme.name)
    ]
    if name is not None:
        show.result(found[0], as_json=as_json)
    elif as_json:
        show.result(found, as_json=True)
    else:
        show.rows([{key: value for key, value in row.items() if key != "options"} for row in found])


def kind(given: object) -> str:
    """The name of an option's type, which may be a type or already a name."""
    return given.__name__ if isinstance(given, type) else str(given)
