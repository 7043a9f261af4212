"""Sizing that several schemes share."""

from __future__ import annotations

from typing import Any

from flashfs.errors import RoomError
from flashfs.ftl import Option
from flashfs.parts.defaults.streams import Streams
from flashfs.parts.superblocks.superblocks import Superblocks

FEW_BLOCKS = 64  #: blocks; on a smaller chip the reserve for cleaning is a large part
BLOCKS_A_STREAM = 16  #: spare blocks for each block that a stream has open
STRIPE = Option("stripe", 4, "pages programmed on one die before a stream turns to the next", low=1, high=1 << 14)

MAP_DIES = Option(
    "map_dies", 0, "blocks that translation pages have open, each on its own die, as far as there are "
    f"{BLOCKS_A_STREAM} spare blocks for each; 0: one on each die, and one in all on a chip with paired pages, where "
    "each sync pads all that were begun. A page goes to the die on which the fewest live",
    high=1 << 12,
)  # fmt: skip


def good_blocks(ssd: Any) -> int:
    """Blocks that were good when the chip was made: one that has gone bad since is no reason to refuse an image."""
    return int(ssd.nand.blocks - ssd.nand.count_health(1))


def spare_blocks(ssd: Any) -> int:
    """Good blocks that are neither for the host's pages, for metadata and the next checkpoint, nor open or reserved."""
    data = -(-(ssd.lpas + 1) // ssd.nand.pages_per_block)
    return int(good_blocks(ssd) - ssd.meta.checkpoint_blocks - ssd.meta_floor - data - ssd.part_blocks
               - ssd.gc_reserve - 2)


def require_pairs(ssd: Any, who: str) -> None:
    """RoomError if a chip of paired pages is too small to be bound to a scheme. Each sync pads the groups of pages that
    were begun, one in each open block, with empty pages: cleaning must gain more than that. It cleans several blocks
    between two syncs, and half a group of dead pages in each block, on average, is enough.

    Checked when an image is bound: an image in use is not refused. On a chip of fewer than FEW_BLOCKS blocks the
    reserve for cleaning is large enough."""
    group = 2 * ssd.nand.paired_pages
    if group == 0 or ssd.nand.blocks < FEW_BLOCKS:
        return
    per_block, map_pages = ssd.nand.pages_per_block, 2 * ssd.translation_ids()
    usable = max(1, per_block - group // 2)
    pages = ssd.lpas + 1 + map_pages + ssd.part_blocks * per_block
    more = -(-pages // usable) - -(-pages // per_block)
    spare = spare_blocks(ssd) - -(-map_pages // per_block)
    if spare < more:
        raise RoomError(f"{who}: a sync fills groups of {group} paired pages, which takes {more} blocks more than "
                        f"{pages} live pages do, and {max(0, spare)} are to spare")  # fmt: skip


def streams_for(ssd: Any, options: dict[str, Any], who: str, *, by_block: bool = False, pads: bool = False) -> Streams:
    """Append streams as wide as the spare blocks allow: an open block on each die if there are plenty, else fewer. With
    ``by_block``, one that fills a block at a time, each on the next die; ``pads`` then leaves no block half filled.

    RoomError if the chip is too small for even one open block per stream: the closed blocks must be able to hold
    every logical page and one dead one, or cleaning could run dry.
    """
    per_block = ssd.nand.pages_per_block
    spare = spare_for(ssd, options, who, 2, 1)
    width = 1 if by_block else max(1, min(ssd.nand.dies, spare // BLOCKS_A_STREAM))
    ssd.reserve_for(width)
    return Streams(ssd, width, width, per_block if by_block else options["stripe"], pads)


def spread_map(ssd: Any, options: dict[str, Any], placement: Streams) -> None:
    """Keep ``map_dies`` blocks open for translation pages, or as many as are spare now that the blocks that those pages
    fill are known."""
    asked = options["map_dies"] or (1 if ssd.nand.paired_pages else ssd.nand.dies)
    width = min(asked, ssd.nand.dies, spare_blocks(ssd) // BLOCKS_A_STREAM)
    if width > 1:
        placement.spread_map(width)


def superblocks_for(ssd: Any, options: dict[str, Any], who: str, stripe: int = 1) -> Superblocks:
    """Streams that fill a superblock each, ``stripe`` pages on a die at a time. RoomError if the chip has no room for a
    superblock open for the host, one for cleaning and one in reserve, beside all pages and the metadata."""
    dies = ssd.nand.dies
    spare_for(ssd, options, who, 2 * dies, dies)
    ssd.reserve_for(dies)
    return Superblocks(ssd, dies, dies, stripe)


def spare_for(ssd: Any, options: dict[str, Any], who: str, open_blocks: int, reserve_least: int) -> int:
    """Good blocks beyond those that all logical pages and the metadata take; RoomError if the open blocks and the
    reserve for cleaning do not fit into them."""
    good = good_blocks(ssd)
    meta = ssd.meta.checkpoint_blocks + ssd.meta_floor
    data = -(-(ssd.lpas + 1) // ssd.nand.pages_per_block) + ssd.part_blocks
    spare = good - meta - data
    reserve = max(reserve_least, options["gc_reserve"] or ssd.shrink_reserve(max(2, spare // 8)))
    if spare < reserve + open_blocks:
        raise RoomError(
            f"{who}: {ssd.lpas} logical pages take {data} blocks, metadata {meta}, "
            f"open and reserved ones {reserve + open_blocks}: {data + meta + reserve + open_blocks} in all, "
            f"and {good} are good"
        )
    return int(spare)
