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
            "replaces": list(scheme.replaces),
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
        for scheme in SCHEMES.values()
        if name in (None, scheme.name)
    ]
    if name is not None:
        show.result(found[0], as_json=as_json, title=name)
    elif as_json:
        show.result(found, as_json=True)
    else:
        show.rows([{key: value for key, value in row.items() if key != "options"} for row in found])
