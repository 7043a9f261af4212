"""``flashfs presets``: the chips that have a name."""

from __future__ import annotations

from flashfs.cli import options, show, units


def command(as_json: options.Json = False) -> None:
    """List the chips that have a name, for `flashfs create --preset`."""
    from nandimg.presets import PRESETS

    if as_json:
        show.result(
            [
                {"name": one.name, "about": one.about, "source": one.source, "geometry": one.geometry.as_dict()}
                for one in PRESETS.values()
            ],
            as_json=True,
        )
        return
    show.rows(
        [
            {
                "name": one.name,
                "host sees": units.shown(one.geometry.logical_bytes),
                "flash": units.shown(one.geometry.physical_bytes),
                "OP": f"{one.geometry.op:.1%}",
                "blocks": one.geometry.blocks,
                "pages": one.geometry.pages_per_block,
                "page": units.shown(one.geometry.page_bytes),
                "OOB": one.geometry.oob_bytes,
                "dies": one.geometry.dies,
                "about": one.about,
                "source": one.source,
            }
            for one in PRESETS.values()
        ]
    )
