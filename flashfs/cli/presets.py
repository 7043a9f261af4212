"""``flashfs presets``: the chips that have a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import complete, options, show, units
from flashfs.errors import UsageError
from flashfs.text import meant

if TYPE_CHECKING:
    from nandimg import Preset


def command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show the geometry of this one.", autocompletion=complete.presets),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List the chips for tests too.")] = False,
    as_json: options.Json = False,
) -> None:
    """List the chips that have a name, or show one of them.

    The names are for --preset. Chips for tests (tiny-...) are listed with --all.
    """
    from nandimg.presets import PRESETS

    if name is not None:
        if name not in PRESETS:
            raise UsageError(f"no preset is called {name!r}{meant(name, PRESETS)}; see flashfs presets")
        show.result(row(PRESETS[name]), as_json=as_json, title=name)
        return
    listed = [one for one in PRESETS.values() if everything or not one.for_tests]
    if as_json:
        show.result([row(one) for one in listed], as_json=True)
        return
    show.rows(
        [
            {
                "name": one.name,
                "host sees": units.shown(one.geometry.logical_bytes),
                "flash": units.shown(one.geometry.physical_bytes),
                "OP": f"{one.geometry.op:.1%}",
                "about": one.about,
            }
            for one in listed
        ]
    )


def row(preset: Preset) -> dict[str, Any]:
    """What there is to know of one."""
    geometry = preset.geometry.as_dict()
    return {"name": preset.name, "about": preset.about, "source": preset.source, "geometry": geometry}
