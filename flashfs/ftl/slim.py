"""SlimFTL's line in the registry; the scheme itself is compiled, in slimftl.pyx."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from flashfs._defaults import PageBitmap
from flashfs.ftl import Option, Scheme, slimftl


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = PageBitmap(ssd)
    mapping, placement, cleaning = slimftl.build(ssd, options)
    return mapping, validity, placement, cleaning


def _saved_bytes(geometry: Any) -> int:
    bits = 6 + (geometry.pages_per_block - 1).bit_length()
    return (geometry.lpas * bits + 7) // 8 + 4 * geometry.blocks


def _describe_oob(raw: bytes) -> dict[str, Any]:
    """The stamp of a page: its block's VBA, the HID of its LPA, and whether that HID names another VBA."""
    vba, hid, shared = struct.unpack_from("<IBB", raw)
    return {"vba": vba, "hid": hid, "shared": bool(shared)}


def _hids(slim: Any, lpas: int) -> Any:
    """How many LPAs have each HID, 0..63, from the bit-packed primary table."""
    table = np.frombuffer(slim.save()["primary"], dtype=np.uint8)
    table = np.concatenate([table, np.zeros(8, dtype=np.uint8)]).astype(np.uint32)
    bit = np.arange(lpas, dtype=np.uint64) * np.uint64(slim.entry_bits) + np.uint64(slim.ppid_bits)
    at = (bit >> np.uint64(3)).astype(np.int64)
    word = table[at] | table[at + 1] << 8
    return np.bincount((word >> (bit & np.uint64(7)).astype(np.uint32)) & 63, minlength=64)


def _map(device: Any) -> dict[str, Any]:
    """Both tables in figures."""
    slim = device.ssd.mapping
    counts = _hids(slim, device.ssd.lpas)
    lines = _vbt(device)
    return {
        "entries": device.ssd.lpas,
        "entry_bits": slim.entry_bits,
        "ppid_bits": slim.ppid_bits,
        "mapped": int(counts[1:].sum()),
        "fill": round(int(counts[1:].sum()) / device.ssd.lpas, 6),
        "table_bytes": slim.table_bytes,
        "virtual_blocks": slim.virtual_blocks,
        "standing": sum(line["pba"] is not None for line in lines),
        "vbt_bytes": 4 * slim.virtual_blocks,
        "shared_from": sum(line["shared"] > 0 for line in lines),
        "shift": slim.shift,
        "hash": "md5" if slim.md5 else "mix",
    }


def _histogram(device: Any) -> list[dict[str, Any]]:
    """HIDs in use, 0 standing for LPAs that hold nothing."""
    lpas = device.ssd.lpas
    counts = enumerate(_hids(device.ssd.mapping, lpas))
    return [{"hid": hid, "lpas": int(n), "share": round(int(n) / lpas, 6)} for hid, n in counts if n]


def _vbt(device: Any) -> list[dict[str, Any]]:
    """The virtual block table, a line each."""
    return [device.ssd.mapping.virtual_block(vba) for vba in range(device.ssd.mapping.virtual_blocks)]


SCHEME = Scheme(
    name="slimftl",
    title="SlimFTL",
    paper="J. Shin, SlimFTL: a Small and Fast Page-level FTL using Hash Functions, SNU 2020",
    about="14 bits per LPA: a hash names the virtual block, a small table the physical one",
    replaces=("mapping", "placement", "cleaning"),
    scheme_oob=slimftl.OOB_BYTES,
    saved_bytes=_saved_bytes,
    build=_build,
    options=(
        Option("shift", 8, "low bits of an LPA that the hasher drops: 2^shift neighbours share candidates", high=8,
               fixed=True),
        Option("hash", "mix", "128-bit hash function", choices=("mix", "md5"), fixed=True),
        Option("virtual_blocks", 0, "virtual blocks; 0: as many as the chip can stand for", high=2**24 - 2, fixed=True),
    ),
    describe_oob=_describe_oob,
    views={"map": _map, "hids": _histogram, "vbt": _vbt},
    derive=lambda ssd, options: {"virtual_blocks": options["virtual_blocks"] or slimftl.virtual_blocks_for(ssd)},
)  # fmt: skip
