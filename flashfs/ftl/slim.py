"""SlimFTL's line in the registry; the scheme itself is compiled, in slimftl.pyx."""

from __future__ import annotations

from typing import Any

from flashfs._parts import PageBitmap
from flashfs.ftl import Option, Scheme, slimftl


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = PageBitmap(ssd)
    mapping, placement, cleaning = slimftl.build(ssd, options)
    return mapping, validity, placement, cleaning


def _saved_bytes(geometry: Any) -> int:
    bits = 6 + (geometry.pages_per_block - 1).bit_length()
    return (geometry.lpas * bits + 7) // 8 + 4 * geometry.blocks


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
    derive=lambda ssd, options: {"virtual_blocks": options["virtual_blocks"] or slimftl.virtual_blocks_for(ssd)},
)  # fmt: skip
