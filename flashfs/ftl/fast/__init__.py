"""FAST in the registry; the scheme itself is compiled."""

from __future__ import annotations

from typing import Any

from flashfs._core import PageBitmap
from flashfs.engine.views import block_map
from flashfs.ftl import Option, Scheme, charts
from flashfs.ftl.common import spare_for
from flashfs.ftl.fast.mapping import FastMapping
from flashfs.ftl.fast.merges import LogBlocks, Merges

CAUSE_HOST = 0
OPEN_BLOCKS = 3  #: a sequential and a random log block, and the one that a merge fills


def _log_blocks(ssd: Any, options: dict[str, Any]) -> int:
    """The most log blocks: the option's, limited to what is spare. RoomError for a chip with too few."""
    spare = spare_for(ssd, options, "fast", open_blocks=OPEN_BLOCKS, reserve_least=2)
    ssd.reserve_for(2)  # one that a merge fills, and one for pages that it could not read
    return max(2, min(options["log_blocks"] or spare, spare - ssd.gc_reserve - 1))


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """The four parts: mapping, validity, placement, cleaning."""
    stream = ssd.pool.add_stream("sequential", CAUSE_HOST, 1)
    most = _log_blocks(ssd, options)
    mapping = FastMapping(ssd, most)
    placement, cleaning = LogBlocks(ssd, mapping, stream, most), Merges(ssd, mapping)
    cleaning.join(placement)
    return mapping, PageBitmap(ssd), placement, cleaning


def _sections(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    """After damage any number of LPAs may be outside data blocks, so ``log`` has room for all."""
    logical_blocks = -(-geometry.lpas // geometry.pages_per_block)
    bits = -(-geometry.lpas // 8)
    log = {"mapped": bits, "logged": bits, "log": 4 * geometry.lpas}
    return {"blocks": 4 * logical_blocks, **log, **PageBitmap.section_bytes(geometry)}


def _saved_bytes(geometry: Any) -> int:
    pvb = PageBitmap.section_bytes(geometry)["pvb"]
    return sum(_sections(geometry, {}, None).values()) - int(pvb)


def _map(device: Any) -> dict[str, Any]:
    """The two maps and the merges since the mount, in figures."""
    fast, place, merges = device.ssd.mapping, device.ssd.placement, device.ssd.cleaning
    return {
        "logical_blocks": fast.logical_blocks,
        "data_blocks": len(fast.data_blocks()),
        "log_blocks": len(place.log_blocks()),
        "log_blocks_most": place.most,
        "mapped": fast.mapped_n,
        "in_log": fast.log.n,
        "switch_merges": merges.switches,
        "partial_merges": merges.partials,
        "full_merges": merges.fulls,
    }


def _data(device: Any) -> list[dict[str, Any]]:
    """Data blocks: the logical block of each, and its live pages."""
    ssd = device.ssd
    return [
        {"block": block, "logical_block": lbn, "live": len(ssd.validity.live_in(block))}
        for block, lbn in sorted(ssd.mapping.data_blocks().items())
    ]


def _log(device: Any) -> list[dict[str, Any]]:
    """Log blocks in the order of reclamation: live pages of each, and of how many logical blocks."""
    ssd = device.ssd
    owners: dict[int, set[int]] = {}
    for lpa, ppa in ssd.mapping.log.pairs():
        owners.setdefault(ppa // ssd.mapping.per_block, set()).add(lpa // ssd.mapping.per_block)
    return [
        {
            "block": block,
            "kind": kind,
            "live": len(ssd.validity.live_in(block)),
            "logical_blocks": len(owners.get(block, ())),
        }
        for block, kind in ssd.placement.log_blocks()
    ]


def _charts(device: Any) -> list[dict[str, Any]]:
    rows = _log(device)
    return [
        charts.facts(_map(device)),
        charts.picture(device, block_map.mapped(device.ssd)),
        charts.bars(
            "Logical blocks in each log block", "log block", "logical blocks",
            [[str(row["block"]), row["logical_blocks"]] for row in rows],
            "To reclaim a log block takes a full merge of each of these. The first is next.",
        ),
    ]  # fmt: skip


SCHEME = Scheme(
    name="fast",
    merges=True,
    title="FAST",
    paper="FAST (ACM TECS 6(3), 2007)",
    about="data blocks mapped by block; writes go to log blocks, mapped by page, that any LPA may use; merges",
    replaces=("mapping", "placement", "cleaning"),
    scheme_oob=0,
    saved_bytes=_saved_bytes,
    sections=_sections,
    build=_build,
    options=(
        Option("log_blocks", 0, "log blocks, the sequential one among them; 0: as many as there are to spare",
               high=1 << 20),
    ),
    views={"map": _map, "data": _data, "logs": _log},
    about_views={
        "map": "the map in figures",
        "data": "the data blocks, and whose they are",
        "logs": "the log blocks, what is reclaimed next first",
    },
    charts=_charts,
    year=2007,
    manual="docs/ftl/fast.md",
    events={
        "switch merges": lambda ssd: ssd.cleaning.switches,
        "partial merges": lambda ssd: ssd.cleaning.partials,
        "full merges": lambda ssd: ssd.cleaning.fulls,
    },
    tight={"log_blocks": (2, 3, 0)},
    varied={"log_blocks": (2, 3, 0)},
)  # fmt: skip
