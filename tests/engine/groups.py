"""Schemes of the tests alone: a page map whose unit of allocation and of cleaning is the superblock."""

from __future__ import annotations

from typing import Any

from flashfs.ftl import SCHEMES, Option, Scheme
from flashfs.ftl.common import superblocks_for
from flashfs.parts.defaults.page_bitmap import PageBitmap
from flashfs.parts.defaults.page_table import PageTable
from flashfs.parts.superblocks.superblocks import SuperblockGreedy

STRIPE = Option("stripe", 1, "pages on one die before the next die's turn", low=1, high=1 << 14)
NAME = "superblocks"


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    placement = superblocks_for(ssd, options, NAME, options["stripe"])
    return PageTable(ssd), PageBitmap(ssd), placement, SuperblockGreedy(ssd)


SUPERBLOCKS = Scheme(
    name=NAME, title="superblocks", paper="", about="a page map over superblocks", replaces=("placement", "cleaning"),
    scheme_oob=0, saved_bytes=lambda geometry: 4 * geometry.lpas, build=_build, options=(STRIPE,),
    manual="docs/ftl/pagemap.md",
)  # fmt: skip


def register() -> str:
    """From now on, in this process and those that it forks, there is a scheme of that name."""
    SCHEMES[NAME] = SUPERBLOCKS
    return NAME
