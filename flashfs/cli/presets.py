"""``flashfs presets``: the chips that have a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import options, show, units
from flashfs.errors import UsageError
from flashfs.plain import meant

if TYPE_CHECKING:
    from nandimg import Preset


def command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show all of this one.")] = None,
    as_json: options.Json = False,
) -> None:
    """List the chips that have a name, for `flashfs create --preset`, or show the geometry of one."""
    from nandimg.presets import PRESETS

    if name is not None:
        if name not in PRESETS:
            raise UsageError(f"no preset is called {name!r}{meant(name, PRESETS)}; there are {', '.join(PRESETS)}")
        show.result(row(PRESETS[name]), as_json=as_json, title=name)
        return
    if as_json:
        show.result([row(one) for one in PRESETS.values()], as_json=True)
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
            for one in PRESETS.values()
        ]
    )


def row(preset: Preset) -> dict[str, Any]:
    """What there is to know of one."""
    geometry = preset.geometry.as_dict()
    return {"name": preset.name, "about": preset.about, "source": preset.source, "geometry": geometry}
