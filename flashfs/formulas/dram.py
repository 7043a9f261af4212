"""DRAM by structure: section 2 and appendix B, and figure 13, top."""

from __future__ import annotations

from flashfs.formulas.chip import ADDRESS_BYTES, COUNT_BYTES, Chip

Bytes = dict[str, int]  #: by structure


def _cache(chip: Chip) -> Bytes:
    return {"cache": chip.cache_bytes}


def _directory(chip: Chip) -> Bytes:
    """Where each translation page is (GMD)."""
    return {"gmd": round(ADDRESS_BYTES * chip.table_bytes / chip.page_bytes)}


def _root(chip: Chip) -> Bytes:
    return {"root": chip.root_bytes}


def _bitmap(chip: Chip) -> Bytes:
    return {"pvb": chip.pvb_bytes}


def _counts(chip: Chip) -> Bytes:
    """Live pages of each block (BVC): what chooses a victim where the bitmap is in flash."""
    return {"bvc": COUNT_BYTES * chip.blocks}


def _gecko(chip: Chip) -> Bytes:
    """Appendix B: a key and an address a page of runs, and a page of buffer a level, beside one of input and output."""
    return {
        "run_directories": 2 * ADDRESS_BYTES * chip.gecko_pages,
        "gecko_buffers": chip.page_bytes * (2 + chip.gecko_levels),
    }


def _log(chip: Chip) -> Bytes:
    """Of a page validity log: where each block's chain begins, and when the block was erased (appendix E)."""
    return {"log_heads": ADDRESS_BYTES * chip.blocks, "log_stamps": ADDRESS_BYTES * chip.blocks}


OF = {
    "dftl": (_bitmap, _directory, _cache),
    "lazyftl": (_bitmap, _directory, _cache),
    "muftl": (_counts, _root, _cache),
    "ibftl": (_counts, _root, _log, _cache),
    "geckoftl": (_counts, _directory, _gecko, _cache),
}


def dram(ftl: str, chip: Chip) -> Bytes:
    """{structure: bytes} of a scheme, in the order of the paper's figure."""
    out: Bytes = {}
    for part in OF[ftl]:
        out |= part(chip)
    return out
