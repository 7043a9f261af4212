# cold
"""A mount that needs no recovery: its first step follows the boot hint to a checkpoint of a clean unmount."""
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport (
    FLAG_CLEAN,
    FLAG_LAST,
    KIND_CHECKPOINT,
    STATE_META,
    STREAM_META,
    Oob,
    order_runs_out,
)
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport Found
from flashfs.engine.recovery.mend cimport Mender
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

import struct

from flashfs.engine.device.metalog import boot_hints
from flashfs.errors import CorruptError


cdef class CleanStart:
    """``done``: the device is ready, and no further step runs."""

    def __cinit__(self, Found found not None, Mender mender not None):
        self.found = found
        self.ssd = found.ssd
        self.mender = mender

    def boot(self):
        """Load a clean checkpoint, if there is one. Its proof: the page after its descriptor is still erased, because a
        mount programs that page before its first change."""
        cdef Oob oob
        hints = boot_hints([self.ssd.nand.boot_slot(0), self.ssd.nand.boot_slot(1)])
        self.found.hint_id = hints[0][0] if hints else 0
        if self.found.repairs:
            return "a repair believes no checkpoint unseen"
        if not hints or hints[0][1] >= self.ssd.nand.blocks * self.ssd.pages_per_block:
            return "no hint"
        # Only the newest hint: an interrupted erase may have destroyed the mount mark of an older checkpoint and left
        # its descriptor, but never before a newer hint was written.
        identity, ppa = hints[0]
        status = self.found.full_read(ppa, &oob)
        if (status != PAGE_OK or oob.kind != KIND_CHECKPOINT or oob.seq != identity
                or oob.flags != (FLAG_LAST | FLAG_CLEAN) or order_runs_out(oob.order)
                or not self.untouched_since(ppa)):
            return f"checkpoint {identity} is not clean"
        try:
            self.found.load_checkpoint(ppa)
        except CorruptError:
            return f"checkpoint {identity} is not whole"
        self.found.load_base()
        log = self.take_pool(oob.order)
        self.ssd.pool.doubt_open()
        doubt = self.mender.misfit(False) or self.take_clean()
        if doubt:
            self.found.stand_on(None)
            return f"checkpoint {identity} is clean, but {doubt}"
        self.ssd.meta.adopt(self.found.base, log)
        self.ssd.placement.attach()
        self.ssd.resume(self.found.base.seq, self.found.base.mounts, True)
        self.done = True
        self.found.release()
        return f"checkpoint {identity} is clean"

    cdef take_clean(self):
        """Load the sections that only a clean checkpoint has; returns what is wrong with them, or None."""
        try:
            self.ssd.mapping.load_clean(self.found.base.sections)
        except (ValueError, IndexError, struct.error) as error:
            return error
        return None

    cdef bint untouched_since(self, uint32_t ppa) except -1:
        cdef Oob oob
        if (ppa + 1) % self.ssd.pages_per_block == 0:
            return False
        status = self.found.full_read(ppa + 1, &oob)
        if status == PAGE_ERASED and self.ssd.nand.synced(ppa // self.ssd.pages_per_block) > (
                (ppa + 1) % self.ssd.pages_per_block):
            self.found.alarm(f"PPA {ppa + 1}: the mark of a mount was flushed and is not there")
            return False
        return status == PAGE_ERASED

    cdef take_pool(self, uint64_t order):
        """Set the pool to its state after this checkpoint; returns the blocks of the log. ``order`` is that of the
        log's last block, opened after the pool was saved."""
        cdef uint32_t block, per_block = self.ssd.pages_per_block
        cdef Ssd ssd = self.ssd
        ssd.pool.last_order = self.found.base.order + 1
        log = self.found.base.blocks(per_block)
        for block in log:
            ssd.pool.state[block] = STATE_META
            ssd.pool.stream[block] = STREAM_META
            ssd.pool.blank[block] = 0
            ssd.pool.next_page[block] = per_block
        block = self.found.base.descriptor_ppa // per_block
        ssd.pool.next_page[block] = self.found.base.descriptor_ppa % per_block + 1
        ssd.pool.order[block] = order
        ssd.pool.rebuild_free()
        return log
