"""GeckoFTL's line in the registry; the scheme itself is compiled, in the modules beside this file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flashfs.ftl import Option
from flashfs.ftl.common import BLOCKS_A_STREAM, MAP_DIES, STRIPE, spare_blocks, spread_map, streams_for
from flashfs.ftl.demand_paged import (
    CMT_BYTES,
    FENCE,
    HELD,
    MOVED,
    cleaning_for,
    demand_scheme,
    facts,
    newer,
    require_room,
    slots_for,
)
from flashfs.ftl.geckoftl import views
from flashfs.ftl.geckoftl.mapping import GeckoMap
from flashfs.ftl.geckoftl.runs import largest_run
from flashfs.ftl.geckoftl.store import GeckoStore
from flashfs.parts.battery.map_battery import pages_of
from flashfs.parts.paged.demand_map import saved_bytes


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = GeckoStore(
        ssd, True, parts=options["parts"], ratio=options["ratio"], multiway=bool(options["multiway"]),
        entries=options["entries"], fenced=bool(options["fence"]),
    )  # fmt: skip
    mapping = GeckoMap(
        ssd, slots_for(ssd.lpas, options), options["protected"], options["cmt_bytes"] > 0,
        fenced=bool(options["fence"]), moved_share=options["moved"],
    )  # fmt: skip
    if options["fence"] == 2:
        mapping.let_reports_wait(int(spare_blocks(ssd) >= 2 * BLOCKS_A_STREAM))
    placement = streams_for(ssd, options, "geckoftl")
    pages = pages_of(ssd.lpas, ssd.nand.page_bytes)
    require_room(ssd, pages, "geckoftl")
    spread_map(ssd, options, placement)
    runs = largest_run(ssd.nand, options["parts"], options["entries"])
    return mapping, validity, placement, cleaning_for(
        ssd, options, (2 * pages, 4 * runs), mapping.store, validity.gecko.store)


def _sections(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    return {
        "mapping": saved_bytes(geometry.lpas, geometry.page_bytes),
        "uip": -(-geometry.lpas // 8),
        **GeckoStore.section_bytes(geometry, options["parts"], options["entries"]),
    }


def _newer(device: Any) -> list[dict[str, Any]]:
    """As for every demand-paged map; ``uip``: the translation page may name an old page of the LPA that counts as
    live."""
    return [{**entry, "uip": device.ssd.mapping.owes(entry["lpa"])} for entry in newer(device)]


def _map(device: Any) -> dict[str, Any]:
    """The mapping in figures."""
    mapping = device.ssd.mapping
    return {**facts(device), "uip": mapping.uip_n}


SCHEME = demand_scheme(
    name="geckoftl",
    validity_in_flash=True,
    validity_late=True,
    title="GeckoFTL",
    paper="N. Dayan, P. Bonnet, S. Idreos, GeckoFTL: Scalable Flash Translation Techniques For Very Large Flash "
    "Devices, SIGMOD 2016",
    about="page validity in a log-structured merge tree in flash; writes that do not ask where their pages were",
    replaces=("mapping", "validity", "cleaning"),
    sections=_sections,
    build=_build,
    options=(
        STRIPE,
        MAP_DIES,
        CMT_BYTES,
        Option("protected", 0, "per cent of the CMT that is for entries that were hit again; the paper has one LRU "
               "list", high=99),
        replace(MOVED, default=20, help=MOVED.help.replace("0: they are written after each block, as in DFTL's paper",
                                                          "0: those alone")),
        Option("parts", 0, "entries of Logarithmic Gecko a block (S); 0: one for 32 pages", high=1 << 14, fixed=True),
        Option("ratio", 2, "size ratio of its levels (T)", low=2, high=64),
        Option("multiway", 1, "1: a merge takes all runs that it is going to reach; 0: two at a time", high=1),
        Option("entries", 0, "entries per page of a run; 0: as many as fit", high=1 << 16, fixed=True),
        replace(FENCE, default=2, high=2, help=FENCE.help + "; 2: and reports to Gecko may wait from one fence to the "
                "next, where a recovery scans as far again"),
        HELD,
    ),
    describe_validity=views.describe,
    figures=_map,
    views={"newer": _newer, "runs": views.runs},
    numbered={
        "gecko": ("block", views.block), "run": ("run", views.run),
    },
    about_views={
        "runs": "the runs of Logarithmic Gecko",
        "run": "a run, 0 is the newest",
        "gecko": "what Gecko says of a block",
    },
    pictures=views.drawn,
    events={
        "runs of Gecko merged": lambda ssd: ssd.validity.gecko.merges,
        "reports kept at a fence": lambda ssd: ssd.mapping.from_pages is not None and ssd.validity.waits,
        "superseded pages identified": lambda ssd: ssd.mapping.identified,
        "metadata cleaned after all": lambda ssd: ssd.cleaning.escapes,
    },
    damage_events={"Gecko was made again": lambda ssd: ssd.validity.rebuilds},
    tight={"cmt_bytes": (250, 500, 2_000), "entries": (3, 8, 20), "ratio": (2, 3), "held": (1, 5)},
    varied={"cmt_bytes": (0, 300, 1_500), "ratio": (2, 4), "held": (5, 25, 100)},
    chips=("tiny-32", "tiny-96q", "tiny-1536"),
    year=2016,
)  # fmt: skip
