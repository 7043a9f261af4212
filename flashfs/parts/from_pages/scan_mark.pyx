# cold
"""Where a recovery from pages begins to scan, and the sections of a fence that hold it."""
from libc.stdint cimport uint8_t

from flashfs.engine.blocks.pool cimport STATE_CLOSED, STATE_OPEN, BlockPool, order_runs_out, runs_out

import struct

HEAD = struct.Struct("<QQQII")


class ScanMark:
    """Where the scan for newer pages begins: a sequence number, the order of the block opened last, validity's stamp in
    force, the blocks that were open with the next page of each, the blocks due to be retired after a failed operation,
    and the blocks of translation pages when it was written (none in a fence of an older version)."""

    def __init__(self, seq=0, order=0, stamp=0, open=None, retiring=(), translation=()):
        self.seq = seq
        self.order = order
        self.stamp = stamp
        self.open = open or {}
        self.retiring = set(retiring)
        self.translation = translation

    def pack(self):
        """The section ``fence``: u64 seq, u64 order, u64 stamp, u32 n, u32 m, then n times u32 block, u32 next page,
        then m times u32 block."""
        return (HEAD.pack(self.seq, self.order, self.stamp, len(self.open), len(self.retiring))
                + b"".join(struct.pack("<II", *one) for one in sorted(self.open.items()))
                + b"".join(struct.pack("<I", block) for block in sorted(self.retiring)))


def unpack_mark(raw, pool, translation=b""):
    """The inverse of ``ScanMark.pack``, and of ``blocks_of`` for ``translation``; ValueError or struct.error if the
    content is not possible on the chip of ``pool``."""
    seq, order, stamp, n, m = HEAD.unpack_from(raw)
    if len(raw) != HEAD.size + 8 * n + 4 * m:
        raise ValueError(f"fence section of {len(raw)} bytes: {HEAD.size + 8 * n + 4 * m} are needed")
    numbers = struct.unpack_from(f"<{2 * n + m}I", raw, HEAD.size)
    mark = ScanMark(seq, order, stamp, dict(zip(numbers[: 2 * n : 2], numbers[1 : 2 * n : 2], strict=True)),
                    numbers[2 * n :], [block for block, in struct.iter_unpack("<I", translation)])
    if (runs_out(seq) or order_runs_out(order) or runs_out(stamp)
            or any(block >= pool.blocks for block in (*mark.retiring, *mark.translation))
            or any(block >= pool.blocks or page > pool.pages_per_block for block, page in mark.open.items())):
        raise ValueError("fence section: blocks, pages or numbers that are none")
    return mark


def blocks_of(BlockPool pool not None, uint8_t stream):
    """The blocks of a stream that are open or closed, as u32: the section ``tblocks``."""
    return b"".join(struct.pack("<I", block) for block in range(pool.blocks) if pool.stream[block] == stream
                    and (pool.state[block] == STATE_OPEN or pool.state[block] == STATE_CLOSED))
