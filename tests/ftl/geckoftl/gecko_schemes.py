"""Schemes for tests alone: Logarithmic Gecko beside the page map, which asks it nothing; and as its store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from flashfs.ftl import SCHEMES, Option, Scheme
from flashfs.ftl.common import STRIPE, streams_for
from flashfs.ftl.geckoftl.gecko import Gecko
from flashfs.ftl.geckoftl.store import GeckoStore
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_bitmap import PageBitmap
from flashfs.parts.defaults.page_table import PageTable

PARTS = Option("parts", 0, "entries per block; 0: one for 32 pages", high=1024, fixed=True)
RATIO = Option("ratio", 2, "size ratio of levels", low=2, high=64)
ENTRIES = Option("entries", 0, "entries per page; 0: as many as fit", high=1 << 16, fixed=True)
MULTIWAY = Option("multiway", 1, "1: a merge takes all runs that it is going to reach", high=1)


class Beside(PageBitmap):
    """The page bitmap, and a Gecko that only a test reports to."""

    gecko: Gecko


def build_beside(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = Beside(ssd)
    validity.gecko = Gecko(ssd, options["parts"], options["ratio"], bool(options["multiway"]), options["entries"])
    ssd.keep_pages(6 * validity.gecko.model_pages + 16)
    spares = (validity.gecko.store.stream,)
    return PageTable(ssd), validity, streams_for(ssd, options, "beside"), Greedy(ssd, spares=spares)


def build_table(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = GeckoStore(ssd, parts=options["parts"], ratio=options["ratio"], multiway=bool(options["multiway"]),
                          entries=options["entries"])  # fmt: skip
    spares = (validity.gecko.store.stream,)
    return PageTable(ssd), validity, streams_for(ssd, options, "gecko-table"), Greedy(ssd, spares=spares)


def sections(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    return {"map": 4 * geometry.lpas, **GeckoStore.section_bytes(geometry, options["parts"], options["entries"])}


_OPTIONS: dict[str, Any] = {"options": (STRIPE, PARTS, RATIO, MULTIWAY, ENTRIES), "manual": ""}
BESIDE: Scheme = replace(SCHEMES["pagemap"], name="beside-gecko", build=build_beside, **_OPTIONS)
TABLE: Scheme = replace(
    SCHEMES["pagemap"], name="gecko-table", build=build_table, sections=sections,
    events={"runs merged": lambda ssd: ssd.validity.gecko.merges, "runs": lambda ssd: ssd.validity.gecko.flushes},
    damage_events={"Gecko was made again": lambda ssd: ssd.validity.rebuilds},
    tight={"ratio": (2, 3), "parts": (1, 2, 4), "entries": (3, 8, 20)},
    varied={"ratio": (2, 4), "multiway": (0, 1)}, **_OPTIONS,
)  # fmt: skip


@contextmanager
def registered(scheme: Scheme) -> Iterator[str]:
    """It can be named like any other, meanwhile."""
    SCHEMES[scheme.name] = scheme
    try:
        yield scheme.name
    finally:
        del SCHEMES[scheme.name]
