"""The plain page map (PFTL): every part is the engine's default. The reference for all other schemes."""

from __future__ import annotations

from typing import Any

from flashfs.engine.views import block_map
from flashfs.ftl import Scheme, charts
from flashfs.ftl.common import STRIPE, streams_for
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_bitmap import PageBitmap
from flashfs.parts.defaults.page_table import PageTable


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    return PageTable(ssd), PageBitmap(ssd), streams_for(ssd, options, "pagemap"), Greedy(ssd)


def _map(device: Any) -> dict[str, Any]:
    """How full the page table is."""
    mapped, lpas = device.ssd.mapping.named(), device.ssd.lpas
    return {
        "entries": lpas,
        "entry_bits": 32,
        "mapped": mapped,
        "fill": round(mapped / lpas, 6),
        "table_bytes": 4 * lpas,
    }


def _charts(device: Any) -> list[dict[str, Any]]:
    where = block_map.mapped(device.ssd)
    return [charts.facts(_map(device)), charts.picture(device, where), charts.runs(device, where)]


SCHEME = Scheme(
    name="pagemap",
    title="page map",
    paper="the textbook's; PFTL in the papers",
    about="one 4-byte PPA per LPA in DRAM; a page may go anywhere",
    replaces=(),
    scheme_oob=0,
    saved_bytes=lambda geometry: 4 * geometry.lpas,
    build=_build,
    options=(STRIPE,),
    views={"map": _map},
    about_views={"map": "the map in figures"},
    charts=_charts,
    manual="docs/ftl/pagemap.md",
)
