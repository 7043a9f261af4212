"""SlimFTL's line in the registry; the scheme itself is compiled, in mapping.pyx."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np

from flashfs.engine.views import block_map
from flashfs.errors import BindError
from flashfs.ftl import Option, Scheme, charts
from flashfs.ftl.common import STRIPE
from flashfs.ftl.slimftl.mapping import OOB_BYTES
from flashfs.ftl.slimftl.placement import build, derive
from flashfs.parts.defaults.page_bitmap import PageBitmap

SHARED_MOST = 255  #: pages of a virtual block that lie in others; the count stops here


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = PageBitmap(ssd)
    mapping, placement, cleaning = build(ssd, options)
    return mapping, validity, placement, cleaning


def _check_new(ssd: Any, options: dict[str, Any]) -> None:
    """BindError if there are too few virtual blocks: the device would be full before all LPAs are written."""
    needed = ssd.lpas // ssd.nand.pages_per_block + 1
    if options["virtual_blocks"] < needed:
        raise BindError(f"slimftl: virtual_blocks={options['virtual_blocks']}: {ssd.lpas:,} logical pages take "
                        f"{needed:,} at least; use 0, which is as many as the chip can stand for")  # fmt: skip


def _saved_bytes(geometry: Any) -> int:
    bits = 6 + (geometry.pages_per_block - 1).bit_length()
    return (geometry.lpas * bits + 7) // 8 + 4 * geometry.blocks


def _describe_oob(raw: bytes) -> dict[str, Any]:
    """The stamp of a page: its block's VBA, the HID of its LPA, and whether that HID names another VBA."""
    vba, hid, shared = struct.unpack_from("<IBB", raw)
    return {"vba": vba, "hid": hid, "shared": bool(shared)}


def _hids(slim: Any) -> Any:
    """The number of LPAs with each HID, 0..63."""
    return np.array(slim.primary.hid_counts())


def _map(device: Any) -> dict[str, Any]:
    """Both tables in figures."""
    slim = device.ssd.mapping
    counts = _hids(slim)
    blocks, shares = slim.blocks_and_shares()
    return {
        "entries": device.ssd.lpas,
        "entry_bits": slim.entry_bits,
        "ppid_bits": slim.ppid_bits,
        "mapped": int(counts[1:].sum()),
        "fill": round(int(counts[1:].sum()) / device.ssd.lpas, 6),
        "table_bytes": slim.primary.bytes,
        "virtual_blocks": slim.virtual_blocks,
        "standing": int((blocks != charts.NO_PAGE).sum()),
        "vbt_bytes": 4 * slim.virtual_blocks,
        "shared_from": int((shares > 0).sum()),
        "shift": slim.hasher.shift,
        "hash": "md5" if slim.hasher.md5 else "mix",
        "candidates": "distinct" if slim.hasher.distinct else "shifted",
        "lanes": slim.hasher.lanes,
    }


def _histogram(device: Any) -> list[dict[str, Any]]:
    """HIDs in use, 0 stands for unmapped LPAs."""
    lpas = device.ssd.lpas
    counts = enumerate(_hids(device.ssd.mapping))
    return [{"hid": hid, "lpas": int(n), "share": round(int(n) / lpas, 6)} for hid, n in counts if n]


def _vbt(device: Any) -> list[dict[str, Any]]:
    """The entries of the virtual block table."""
    return [device.ssd.mapping.virtual_block(vba) for vba in range(device.ssd.mapping.virtual_blocks)]


def _charts(device: Any) -> list[dict[str, Any]]:
    where = block_map.mapped(device.ssd)
    hids = _hids(device.ssd.mapping)
    _, shares = device.ssd.mapping.blocks_and_shares()
    shared = shares[shares > 0].tolist()
    return [
        charts.facts({**_map(device), "shared_pages_now": sum(shared), "hid_mean": _mean_hid(hids)}),
        charts.picture(device, where),
        charts.bars(
            "Hash functions in use", "HID", "LPAs", [[str(hid), int(n)] for hid, n in enumerate(hids) if hid],
            "How many LPAs were placed by which of the 63 hash functions: the first whose virtual block had room.",
        ),
        charts.counted(
            "Sharing", "pages of it in other virtual blocks", "virtual blocks", shared,
            "Virtual blocks with pages that had to be placed elsewhere, every candidate being full; 255: or more.",
        ),
        _vbt_map(device),
    ]  # fmt: skip


def _mean_hid(hids: Any) -> float | None:
    """How many hash functions a placement tried on average, as far as can be seen: None while nothing is mapped."""
    mapped = int(hids[1:].sum())
    return round(float((np.arange(64) * hids)[1:].sum() / mapped), 3) if mapped else None


def _vbt_map(device: Any) -> dict[str, Any]:
    """The virtual block table as a map: which block stands for each virtual block, and how valid that is."""
    total = device.ssd.mapping.virtual_blocks
    lines = [device.ssd.mapping.virtual_block(vba) for vba in range(min(total, charts.CELLS_MOST))]
    valid = block_map.block_map(device.ssd)["valid"]
    fields = [
        {"name": "valid", "unit": "pages", "top": device.ssd.nand.pages_per_block,
         "values": [None if line["pba"] is None else int(valid[line["pba"]]) for line in lines]},
        {"name": "block", "values": [line["pba"] for line in lines]},
        {"name": "shared", "unit": "pages elsewhere", "values": [line["shared"] for line in lines]},
    ]  # fmt: skip
    about = "A cell per virtual block, by the valid pages of the block that stands for it."
    views = [{"label": "valid pages", "field": "valid"}, {"label": "shared", "field": "shared"}]
    return charts.cells("Virtual block table", "VBA", fields, views, about, total)


def _stuck(ssd: Any) -> int:
    """Virtual blocks whose count of pages elsewhere has reached SHARED_MOST, and only means "some"."""
    return int((ssd.mapping.blocks_and_shares()[1] == SHARED_MOST).sum())


SCHEME = Scheme(
    name="slimftl",
    hashed=True,
    title="SlimFTL",
    paper="J. Shin, SlimFTL: a Small and Fast Page-level FTL using Hash Functions, SNU 2020",
    about="14 bits per LPA: a hash names the virtual block, a small table the physical one",
    replaces=("mapping", "placement", "cleaning"),
    scheme_oob=OOB_BYTES,
    saved_bytes=_saved_bytes,
    build=_build,
    options=(
        Option("shift", 8, "low bits of an LPA that the hasher drops: 2^shift neighbours share candidates", high=8,
               fixed=True),
        Option("hash", "mix", "128-bit hash function", choices=("mix", "md5"), fixed=True),
        Option("virtual_blocks", 0, "virtual blocks; 0: as many as the chip can stand for", high=2**24 - 2, fixed=True),
        Option("candidates", "distinct", "63 different virtual blocks, or, as the thesis has it, one digest shifted",
               choices=("distinct", "shifted"), fixed=True, before="shifted"),
        Option("crowded", "make-way", "candidates all full, little of them dead: one makes way, or is cleaned as it is",
               choices=("make-way", "thesis"), fixed=True, before="thesis"),
        Option("lanes", 0, "groups that neighbours are dealt out to, a die each; 0: as many as dies; 1: the thesis's",
               high=1 << 14, fixed=True, before=1),
        replace(STRIPE, help="pages dealt out to one lane before the next", fixed=True, before=STRIPE.default),
    ),
    describe_oob=_describe_oob,
    views={"map": _map, "hids": _histogram, "vbt": _vbt},
    about_views={
        "map": "the map in figures",
        "hids": "how many pages each hash function holds",
        "vbt": "the virtual block table",
    },
    charts=_charts,
    year=2020,
    manual="docs/ftl/slimftl.md",
    events={
        "pages placed elsewhere": lambda ssd: ssd.mapping.shared_pages,
        "probes for a page placed elsewhere": lambda ssd: ssd.mapping.probes,
        "counts of pages elsewhere that stick": _stuck,
        "virtual blocks that made way": lambda ssd: ssd.placement.made_way,
    },
    derive=derive,
    check_new=_check_new,
    tight={"shift": (2, 3, 8), "lanes": (0, 2), "crowded": ("make-way", "thesis"),
           "candidates": ("distinct", "shifted")},
)  # fmt: skip
