"""LearnedFTL's line in the registry; the scheme itself is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashfs.engine.views import block_map
from flashfs.errors import BindError
from flashfs.ftl import BYTES, Option, charts
from flashfs.ftl.common import MAP_DIES, STRIPE, spare_for, spread_map, superblocks_for
from flashfs.ftl.demand_paged import (
    CLEANING,
    PREFETCHING,
    SHARE,
    built,
    cache_bytes_for,
    demand_scheme,
    nodes,
    require_room,
)
from flashfs.ftl.learnedftl.groups import Groups
from flashfs.ftl.learnedftl.mapping import LearnedMap
from flashfs.ftl.learnedftl.models import Models
from flashfs.ftl.learnedftl.placement import SLOTS_MOST, GroupSuperblocks, add_streams
from flashfs.parts.battery.map_battery import pages_of
from flashfs.parts.defaults.page_bitmap import PageBitmap
from flashfs.parts.paged.tpftl_map import UNIT_TAKES, units_in
from flashfs.parts.superblocks.superblocks import SuperblockGreedy

NO_PAGE = 2**32 - 1
SLACK = 16  #: VPPNs drawn below and above a line
PLACES = ("groups", "superblocks", "streams")


def _mapping(ssd: Any, options: dict[str, Any], groups: Groups | None) -> LearnedMap:
    """Unless an option sets its size, the cache has as many bytes as dftl's, less those of the models."""
    how, room = options["prefetch"], cache_bytes_for(ssd.lpas, options)

    def made(cache_bytes: int) -> LearnedMap:
        return LearnedMap(
            ssd,
            cache_bytes,
            options["cmt_bytes"] > 0,
            request_level=how in ("both", "request"),
            selective_level=how in ("both", "selective"),
            always=options["train"] == "always", learn_ns=options["learn_ns"],
            runs=options["runs"] == "on",
            groups=groups,
        )

    mapping = made(room)
    if options["cmt_bytes"]:
        return mapping
    mapping.resize(units_in(room - sum(packed for packed, _ in mapping.models.sizes().values())))
    return mapping


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    dies, place = ssd.nand.dies, options["place"]
    fits = place != "streams" and _fits(ssd, options, 2 * dies)
    slots, most = _slots(ssd, options) if fits and place == "groups" else 0, _slots_most(ssd)
    order = add_streams(ssd, slots, most) if most else -1
    if not fits:
        return built(ssd, options, "learnedftl", _mapping(ssd, options, None))
    groups = _groups(ssd, options) if slots else None
    mapping = _mapping(ssd, options, groups)
    require_room(ssd, pages_of(ssd.lpas, ssd.nand.page_bytes), "learnedftl")
    placement = superblocks_for(ssd, options, "learnedftl")
    cleaning = SuperblockGreedy(ssd)
    if groups is not None:
        placement = GroupSuperblocks(ssd, dies, dies, 1)
        placement.join(mapping, cleaning, order, slots)
        ssd.carry(max(groups.group_lpas, groups.superblock_pages))
    spread_map(ssd, options, placement)
    return mapping, PageBitmap(ssd), placement, cleaning


def _groups(ssd: Any, options: dict[str, Any]) -> Groups:
    pages = _group_pages(ssd, options)
    all_pages = pages_of(ssd.lpas, ssd.nand.page_bytes)
    return Groups(
        -(-all_pages // pages), pages * (ssd.nand.page_bytes // 4), ssd.nand.blocks, ssd.nand.dies,
        ssd.nand.pages_per_block, options["group_share"], options["lend_share"], options["group_budget"],
    )


def _slots(ssd: Any, options: dict[str, Any]) -> int:
    """Superblocks open for the host at once; 0: the chip has no room for one beside those for groups that are put in
    order and for other moves, and a free one."""
    dies, slots, asked = ssd.nand.dies, 0, options["open"]
    group = max(dies, -(-_group_pages(ssd, options) * (ssd.nand.page_bytes // 4) // ssd.nand.pages_per_block))
    each = dies if asked else 4 * dies
    while slots < (asked or SLOTS_MOST) and _fits(ssd, options, each * (slots + 1) + dies + group):
        slots += 1
    return slots


def _slots_most(ssd: Any) -> int:
    """The most slots that the chip may have room for, whatever the options: two superblocks are in use beside them, one
    for groups that are put in order and one for other moves."""
    dies, spare = int(ssd.nand.dies), int(ssd.nand.blocks) - -(-int(ssd.lpas) // int(ssd.nand.pages_per_block))
    return min(SLOTS_MOST, max(0, spare // dies - 2)) if dies > 1 else 0


def _group_pages(ssd: Any, options: dict[str, Any]) -> int:
    """Translation pages of a group: so many that the pages of their LPAs fit a superblock, or fewer if the option says
    so; at least one."""
    most = max(1, ssd.nand.dies * ssd.nand.pages_per_block // (ssd.nand.page_bytes // 4))
    return min(most, options["group"] or most)


def _fits(ssd: Any, options: dict[str, Any], blocks: int) -> bool:
    """Whether the chip has superblocks, and room for so many blocks that are open or kept free for a group, beside its
    translation pages and the reserve."""
    pages = -(-2 * pages_of(ssd.lpas, ssd.nand.page_bytes) // ssd.nand.pages_per_block) + 3
    try:
        spare_for(ssd, options, "learnedftl", blocks + pages, max(3, ssd.nand.dies))
    except BindError:
        return False
    return int(ssd.nand.dies) > 1


def _known(device: Any, where: Any) -> Models:
    """The models in use, or those of a clean checkpoint; after a recovery there are none, and the result is what
    training from the map would give."""
    mapping = device.ssd.mapping
    if mapping.models.exact_n:
        return mapping.models
    models = Models(mapping.models.pages, mapping.per_page, device.ssd.nand.dies, device.ssd.nand.pages_per_block)
    for page in np.unique(where.lpas // mapping.per_page).tolist():
        models.train_page(page, where.window(page * mapping.per_page, mapping.per_page))
    return models


def _models(device: Any) -> list[dict[str, Any]]:
    """The models: their LPAs, for how many they are exact, and how many pieces they have. For an image that was not
    unmounted they are trained from the map."""
    models = _known(device, block_map.mapped(device.ssd))
    return [
        {"page": page, "first_lpa": model["first_lpa"], "exact": model["exact"], "pieces": len(model["pieces"])}
        for page in models.pages_trained()
        for model in models.of_page(page)
        if model["pieces"]
    ]


def _group_table(device: Any) -> list[dict[str, Any]]:
    """The groups that are put in order together: the LPAs of each, and how many pages were written since, or moved
    elsewhere."""
    groups = device.ssd.mapping.groups
    if groups is None:
        return []
    return [
        {"group": row["group"], "first_lpa": row["group"] * groups.group_lpas, "changed": row["changed"]}
        for row in groups.groups()
    ]


def _owners(device: Any) -> list[dict[str, Any]]:
    """The superblocks owned by a group, and how many pages of other groups are in each."""
    groups = device.ssd.mapping.groups
    return [] if groups is None else [row for row in groups.table() if row["group"] is not None]


def _pictures(device: Any) -> list[dict[str, Any]]:
    where = block_map.mapped(device.ssd)
    models = _known(device, where)
    found = [model for page in models.pages_trained() for model in models.of_page(page) if model["pieces"]]
    exact = [model["exact"] for model in found]
    out = [charts.counted("LPAs that a model is exact for", "LPAs", "models", exact)]
    if found:
        most = max(found, key=lambda model: (len(model["pieces"]), model["exact"] < models.span, model["exact"]))
        out.append(_drawn(device, models, most, where))
    return out


def _drawn(device: Any, models: Models, model: dict[str, Any], where: Any) -> dict[str, Any]:
    """A model's lines over the pages that they predict, a band for each piece. A dot on its line is a page that the
    model knows."""
    geometry, first = device.ssd.nand.geometry, model["first_lpa"]
    end = min(first + models.span, device.ssd.lpas)
    starts = [lpa for lpa, _, _ in model["pieces"]]
    bands = []
    for (start, slope, vppn), behind in zip(model["pieces"], [*starts[1:], end], strict=True):
        low, last = vppn - SLACK, round(vppn + slope * (behind - 1 - start))
        line = {"x1": start - first, "y1": vppn - low, "x2": behind - 1 - first, "y2": last - low, "kind": "accurate",
                "title": f"LPAs {start} to {behind - 1}: VPPN {vppn}, slope {slope:g}"}  # fmt: skip
        band: dict[str, Any] = {"label": f"VPPN {low}", "y_most": max(last, vppn) - low + SLACK, "lines": [line],
                                "points": []}  # fmt: skip
        for lpa, ppa in enumerate(where.window(start, behind - start).tolist(), start):
            y = geometry.vppn(ppa) - low if ppa != NO_PAGE else -1
            if 0 <= y <= band["y_most"]:
                band["points"].append([lpa - first, y, models.where(lpa) == ppa])
        bands.append(band)
    about = (f"LPAs {first} to {end - 1}: each line is a piece of the model, each dot a page. The model knows "
             f"{model['exact']} of them; what lies elsewhere than its piece is not shown.")  # fmt: skip
    return charts.lines("A model", "LPA of the model", "VPPN", models.span - 1, bands, about)


SCHEME = demand_scheme(
    name="learnedftl",
    title="LearnedFTL",
    paper="S. Wang et al., LearnedFTL: A Learning-based Page-level FTL for Reducing Double Reads in Flash-based SSDs, "
    "HPCA 2024",
    about="TPFTL's cache; models in the directory spare the read of a translation page where a filter says they may",
    replaces=("mapping", "placement", "cleaning"),
    build=_build,
    options=(
        STRIPE,
        MAP_DIES,
        CLEANING,
        Option("cmt_bytes", 0, f"bytes of the cached mapping table, {UNIT_TAKES} per node and chunk of 9 entries; 0: "
               f"what --dram leaves, or with the models as much as dftl has for one LPA in {SHARE}", high=1 << 40,
               unit=BYTES),
        Option("prefetch", "both", "what a miss loads beside its entry, as for tpftl", choices=PREFETCHING),
        Option("place", "groups", "superblocks: pages go to superblocks in the order of VPPNs, which are cleaned as a "
               "whole; groups: and a group's pages are put in order together. What the chip has no room for is left "
               "out. streams: as for tpftl (stripe, cleaning)", choices=PLACES),
        Option("group", 0, "translation pages of a group; 0: as many as a superblock has room for the pages of",
               high=1 << 16),
        Option("group_share", 1, "per cent of a group's pages that have to be without a model for it to be cleaned as "
               "a whole", low=1, high=100),
        Option("group_budget", 300, "pages that may move to put groups in order, per cent of what the host writes",
               high=10_000),
        Option("lend_share", 50, "per cent of a superblock that may be lent to other groups before it is no group's "
               "any more", low=1, high=100),
        Option("open", 0, "superblocks that the host fills at once, each for a group; 0: as many as a quarter of the "
               f"spare blocks, {SLOTS_MOST} at most", high=SLOTS_MOST),
        Option("train", "always", "when models are trained: whenever their translation page is written, or only when "
               "cleaning writes it", choices=("always", "cleaning")),
        Option("learn_ns", 0, "ns of virtual time that training takes for each LPA of a translation page, and sorting "
               "for each page of a group; 0: neither is part of virtual time", high=1_000_000),
        Option("runs", "on", "whether a run that the host writes in order may begin a model", choices=("on", "off")),
    ),
    views={"nodes": nodes, "models": _models, "groups": _group_table, "owners": _owners},
    about_views={
        "nodes": "the nodes of the cache",
        "models": "the models, and how exact they are",
        "groups": "how much of each group is out of order",
        "owners": "which group owns which superblock",
    },
    pictures=_pictures,
    events={"entries prefetched": lambda ssd: ssd.mapping.prefetched,
            "nodes that left": lambda ssd: ssd.mapping.cmt.deaths,
            "reads by a model": lambda ssd: ssd.mapping.reads_modelled,
            "writes by a model": lambda ssd: ssd.mapping.writes_modelled,
            "models trained": lambda ssd: ssd.mapping.models.taken,
            "groups put in order": lambda ssd: ssd.mapping.groups_ordered,
            "models of runs": lambda ssd: ssd.mapping.models.runs,
            "pages that were read and trained": lambda ssd: ssd.mapping.pages_retrained},
    damage_events={"models that were wrong": lambda ssd: ssd.mapping.mispredictions},
    tight={"cmt_bytes": (500, 900, 3_000), "group_share": (1, 20, 50), "lend_share": (5, 50), "open": (1, 2),
           "group_budget": (100, 10_000),
           "group": (0, 1, 2), "map_dies": (1, 3)},
    varied={"cmt_bytes": (0, 600, 3_000), "prefetch": PREFETCHING, "train": ("always", "cleaning"),
            "group_share": (1, 50), "place": PLACES, "open": (0, 1, 2), "group": (0, 1)},
    chips=("tiny-112",),  # five translation pages
    year=2024,
    by_superblock=True,
)  # fmt: skip
