"""A scheme for tests alone: the page table, and its validity in flash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from flashfs.ftl import SCHEMES, Option, Scheme
from flashfs.ftl.common import STRIPE, streams_for
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_table import PageTable
from flashfs.parts.validity.flash_bitmap import FlashBitmap

NAME = "flash-pvb"
FRAMES = Option("frames", 1, "pages of the bitmap in DRAM", low=1, high=256)
LOG = Option("log", 1, "reports that the log has room for, beside a block's move", low=0, high=4096,
             fixed=True)
BLOCKS = Option("blocks", 2, "blocks of whose pages a page of the bitmap has the bits; 0: as many as fit", high=64,
                fixed=True)
SPARE = Option("spare", 0, "1: cleaning keeps away from the bitmap's blocks", high=1)


def build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = FlashBitmap(ssd, options["frames"], log=options["log"], blocks_a_page=options["blocks"])
    mapping = PageTable(ssd)
    spares = (validity.pages_in_flash.stream,) if options["spare"] else ()
    return mapping, validity, streams_for(ssd, options, NAME), Greedy(ssd, spares=spares)


def sections(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    return {"map": 4 * geometry.lpas, **FlashBitmap.section_bytes(geometry, options["log"], options["blocks"])}


FLASH_PVB: Scheme = replace(
    SCHEMES["pagemap"], name=NAME, build=build, sections=sections, options=(STRIPE, FRAMES, LOG, BLOCKS, SPARE),
    tight={"log": (1,), "blocks": (1, 2), "frames": (1,)}, varied={"frames": (1, 2, 4), "spare": (0, 1)}, manual="",
)  # fmt: skip


@contextmanager
def registered(scheme: Scheme = FLASH_PVB) -> Iterator[str]:
    """It can be named like any other, meanwhile."""
    SCHEMES[scheme.name] = scheme
    try:
        yield scheme.name
    finally:
        del SCHEMES[scheme.name]
