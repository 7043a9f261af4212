"""HPFTL in the registry, and how its tables are sized; the scheme itself is compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flashfs.engine.views import block_map
from flashfs.errors import BindError
from flashfs.ftl import Option, Scheme, charts
from flashfs.ftl.common import BLOCKS_A_STREAM, STRIPE, spare_for
from flashfs.ftl.hashing.pairs import PAIR_BYTES
from flashfs.ftl.hashing.tables import Hasher
from flashfs.ftl.hpftl.mapping import HpftlMapping
from flashfs.ftl.hpftl.placement import HpftlCleaning, HpftlPlacement
from flashfs.parts.defaults.page_bitmap import PageBitmap

CAUSE_HOST = 0
SHARE = 20  #: the secondary table has room for one LPA in so many: a tenth of the bytes of a page map (thesis, 4.1)
BLOCKS_LEAST = 4  #: least blocks' worth of entries: two below the threshold, one for collisions, one for cleaning
SAVED_LEAST = 1 << 14  #: entries that a checkpoint has room for on a small device, or its LPAs if those are fewer


def _capacity(geometry: Any, options: dict[str, Any]) -> int:
    """Entries of the secondary table."""
    least = BLOCKS_LEAST * geometry.pages_per_block
    return int(max(least, options["secondary"] or geometry.lpas // SHARE))


def _check_new(ssd: Any, options: dict[str, Any]) -> None:
    """BindError if the table has room for too few collisions: a large device would be full before all LPAs are
    written."""
    least = ssd.lpas // (2 * SHARE)
    if ssd.mapping.capacity < least:
        raise BindError(f"hpftl: secondary={options['secondary']}: {ssd.lpas:,} logical pages take {least:,} entries "
                        "at least; use 0, which is twice that")  # fmt: skip


def _saved_most(geometry: Any, options: dict[str, Any]) -> int:
    """Entries that a checkpoint has room for: a recovery may bring back entries that had left the table."""
    return min(geometry.lpas, max(4 * _capacity(geometry, options), SAVED_LEAST))


def _sections(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    bits = 6 + (geometry.pages_per_block - 1).bit_length()
    return {
        "primary": (geometry.lpas * bits + 7) // 8,
        "second": PAIR_BYTES * _saved_most(geometry, options),
        **PageBitmap.section_bytes(geometry),
    }


def _saved_bytes(geometry: Any) -> int:
    sections = _sections(geometry, SCHEME.resolve({}), None)
    return sections["primary"] + sections["second"]


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """The four parts. BindError for a chip on which cleaning could run dry."""
    if ssd.nand.pages_per_block < 2:
        raise BindError("hpftl: a block of one page: an entry has no room for the signature; use two pages or more")
    geometry = ssd.nand.geometry
    overflow = ssd.pool.add_stream("overflow", CAUSE_HOST, _width(ssd, options))
    hasher = Hasher(ssd.nand.blocks, 0, options["hash"] == "md5", options["candidates"] == "distinct")
    mapping = HpftlMapping(ssd, hasher, options["hashes"], _capacity(geometry, options), _saved_most(geometry, options))
    cleaning = HpftlCleaning(ssd)
    placement = HpftlPlacement(ssd, _open_most(ssd, options), _width(ssd, options), options["stripe"])
    placement.join(mapping, cleaning, overflow)
    cleaning.join(mapping, placement)
    ssd.reserve_for(max(2, _width(ssd, options)))  # one for cleaning, one to reclaim into
    return mapping, PageBitmap(ssd), placement, cleaning


def _width(ssd: Any, options: dict[str, Any]) -> int:
    """Blocks open at once for cleaning, and for collisions."""
    spare = spare_for(ssd, options, "hpftl", open_blocks=3, reserve_least=2)
    return max(1, min(ssd.nand.dies, spare // (2 * BLOCKS_A_STREAM)))


def _open_most(ssd: Any, options: dict[str, Any]) -> int:
    """Blocks open for the host at once: as many as make an LPA hash to half an open block on average, at most a quarter
    of the spare blocks. Cleaning lacks their room: on a full device fewer are better."""
    spare = spare_for(ssd, options, "hpftl", open_blocks=3, reserve_least=2)
    want = options["open"] or ssd.nand.blocks // (2 * min(options["hashes"], ssd.nand.blocks))
    return max(1, min(want, spare // 4))


def _hids(hpftl: Any) -> Any:
    """How many LPAs have each HID, 0..63; those in the secondary table have HID 0 too."""
    return np.array(hpftl.primary.hid_counts())


def _map(device: Any) -> dict[str, Any]:
    """Both tables in figures."""
    hpftl, cleaning = device.ssd.mapping, device.ssd.cleaning
    lpas = device.ssd.lpas
    first = int(_hids(hpftl)[1:].sum())
    return {
        "entries": lpas,
        "entry_bits": hpftl.primary.entry_bits,
        "ppid_bits": hpftl.primary.ppid_bits,
        "mapped": first + hpftl.second.n,
        "fill": round((first + hpftl.second.n) / lpas, 6),
        "table_bytes": hpftl.primary.bytes,
        "secondary_entries": hpftl.second.n,
        "secondary_capacity": hpftl.capacity,
        "secondary_bytes": PAIR_BYTES * hpftl.capacity,
        "reclaims_from": cleaning.threshold,
        "exceeded": cleaning.exceeded,
        "open_most": device.ssd.placement.width_host,
        "hashes": hpftl.hashes,
        "hash": "md5" if hpftl.hasher.md5 else "mix",
        "candidates": "distinct" if hpftl.hasher.distinct else "shifted",
    }


def _histogram(device: Any) -> list[dict[str, Any]]:
    """HIDs in use; 0 stands for LPAs that are unmapped or in the secondary table."""
    lpas = device.ssd.lpas
    counts = enumerate(_hids(device.ssd.mapping))
    return [{"hid": hid, "lpas": int(n), "share": round(int(n) / lpas, 6)} for hid, n in counts if n]


def _secondary(device: Any) -> list[dict[str, Any]]:
    """The entries of the secondary table."""
    pages = device.ssd.nand.pages_per_block
    return [{"lpa": lpa, "ppa": ppa, "block": ppa // pages} for lpa, ppa in device.ssd.mapping.second.pairs()]


def _charts(device: Any) -> list[dict[str, Any]]:
    where = block_map.mapped(device.ssd)
    hids = _hids(device.ssd.mapping)
    blocks = [line["block"] for line in _secondary(device)]
    shares = [blocks.count(block) for block in sorted(set(blocks))]
    return [
        charts.facts(_map(device)),
        charts.picture(device, where),
        charts.bars(
            "Hash functions in use", "HID", "LPAs", [[str(hid), int(n)] for hid, n in enumerate(hids) if hid and n],
            "How many LPAs were placed by which hash function: the first whose block had room.",
        ),
        charts.counted(
            "Secondary pages", "secondary pages in it", "blocks", shares,
            "Blocks that hold pages which the primary table cannot name: overflow blocks, and those of cleaning.",
        ),
    ]  # fmt: skip


SCHEME = Scheme(
    name="hpftl",
    hashed=True,
    title="HPFTL",
    paper="HPFTL (NAS 2017), as J. Shin, SlimFTL, SNU 2020, describes it",
    about="14 bits per LPA: a hash names the physical block; collisions and moved pages in a small table of pairs",
    replaces=("mapping", "placement", "cleaning"),
    scheme_oob=0,
    saved_bytes=_saved_bytes,
    sections=_sections,
    build=_build,
    options=(
        Option("hashes", 63, "hash functions of an LPA", low=20, high=63, fixed=True),
        Option("hash", "mix", "128-bit hash function", choices=("mix", "md5"), fixed=True),
        Option("candidates", "distinct", "different blocks, or, as the thesis has it, one digest shifted",
               choices=("distinct", "shifted"), fixed=True),
        Option("secondary", 0, "entries of the secondary table; 0: one LPA in 20, four blocks' worth at least",
               high=2**24, fixed=True),
        Option("open", 0, "blocks open for the host at once; 0: an LPA hashes to half of one", high=1 << 20),
        replace(STRIPE, help="pages of cleaning, and of collisions, dealt out to one die before the next"),
    ),
    views={"map": _map, "hids": _histogram, "secondary": _secondary},
    about_views={
        "map": "the map in figures",
        "hids": "how many pages each hash function holds",
        "secondary": "the secondary table",
    },
    charts=_charts,
    year=2017,
    manual="docs/ftl/hpftl.md",
    events={
        "collisions": lambda ssd: ssd.placement.collisions,
        "blocks that were reclaimed into": lambda ssd: ssd.cleaning.reclaims,
        "victims passed over": lambda ssd: ssd.cleaning.passed_over,
    },
    check_new=_check_new,
    tight={"hashes": (20, 30, 63), "open": (1, 2, 0)},
    varied={"open": (1, 2, 0)},
)  # fmt: skip
