# distutils: language = c++
"""Chores between requests, never inside one: wear, retired blocks, the mapping's housekeeping, the size of the data
cache, checkpoints."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.engine.contract.engine cimport GOING, IN_CHECKPOINT
from flashfs.engine.device.writer cimport Writer
from flashfs.engine.blocks.pool cimport CAUSE_RETIRE, STATE_BAD, STATE_CLOSED, STATE_OPEN

from contextlib import suppress

from flashfs.engine.device.cache import SLOT_BYTES
from flashfs.errors import DeviceFailedError, DeviceFullError

cdef enum:
    REFIT_PAGES = 4096       # pages written between two adjustments of the data cache to the budget
    LEND_LEAST = 64 << 10    # bytes of the map's cache that stay with it: each adjustment takes time


cdef class Upkeep(Writer):
    """The device as far as it keeps itself in order."""

    cdef int refuse(self) except -1 nogil:
        """Raise the error for a request to a device that refuses changes."""
        with gil:
            self.fail(self.why_stopped() or "the image was opened read-only")
            raise DeviceFailedError(self.failed)

    def set_budget(self, uint64_t dram):
        """Set the DRAM budget in bytes: the data cache gets what the tables leave of it, now and as they change. What
        the map's cache has not filled yet it has too, but for an eighth."""
        self.budget = dram
        self.cache.reserve(<uint32_t> min(dram // (self.page_bytes + SLOT_BYTES), self.lpas))
        self.fit_cache()

    def fit_cache(self):
        """Resize the cache to what the tables leave."""
        self.mapping.lent = 0
        if not self.budget:
            return
        idle = self.mapping.idle_bytes()
        self.mapping.lent = idle - max(idle // 8, min(idle, LEND_LEAST))
        fixed = sum(packed for name, (packed, _) in self.dram().items() if name != "data_cache")
        self.refit_at = self.host_write + REFIT_PAGES
        self.cache.limit(max(0, self.budget - fixed) // (self.page_bytes + SLOT_BYTES))

    cdef int take_back(self) except -1 nogil:
        if self.mapping.idle_bytes() < self.mapping.lent:
            with gil:
                self.fit_cache()
        return 0

    cdef int chores(self) except -1 nogil:
        if self.mount_due:
            self.leave_clean()
        if self.pool.retiring_n:
            self.empty_retiring()
        if self.pool.failed_n != self.failed_seen:
            self.failed_seen = self.pool.failed_n
            self.make_room_if_any()
        self.wear.level()
        self.map_ns = self.now_ns
        self.mapping.housekeep()
        if self.mapping.lent:               # trims and moves take room of the map's cache, too
            self.take_back()
        if self.budget and self.host_write >= self.refit_at:
            with gil:
                self.fit_cache()
        if (self.checkpoint_due or self.since_checkpoint >= self.checkpoint_every
                or self.since_checkpoint - self.since_checkpoint_tables >= self.checkpointer.every
                or self.meta.room() < max(<uint32_t> 2, 2 * self.nand.paired_pages)):
            with gil:
                self.checkpoint()
        return 0

    cdef int make_room_if_any(self) except -1 nogil:
        """After failed operations, which use up the reserve: a crash that found none would leave the next recovery no
        block. Without room the device goes on in the blocks that are open."""
        with gil:
            with suppress(DeviceFullError):
                self.make_room()
        return 0

    cdef int chores_if_room(self) except -1 nogil:
        """For requests that program no page of the host. Where no room is left, a flush still makes durable what is
        there, and a trim gives room."""
        if self.pool.bad_n == 0 and self.pool.free_n > self.meta_floor + self.gc_reserve:
            return self.chores()
        with gil:
            with suppress(DeviceFullError):
                self.chores()
        return 0

    cdef int will_change(self) except -1 nogil:
        if self.stopped or self.frozen:
            self.refuse()
        if self.mount_due:
            self.leave_clean()
        return 0

    cdef int leave_clean(self) except -1 nogil:
        """Before the first change after a clean mount: make the mount mark durable."""
        with gil:
            self.meta.mark_mounted()
        self.pad_pairs()
        self.sync_image()
        self.mount_due = False  # only now: if the mark failed, the next change must try again
        return 0

    cdef int empty_retiring(self) except -1 nogil:
        """Move live pages out of blocks in which a program failed; the next sync marks the blocks bad."""
        cdef uint32_t block
        for block in range(self.pool.blocks):
            if self.pool.retiring[block] and self.pool.state[block] == STATE_CLOSED:
                self.cleaning.evacuate(block, CAUSE_RETIRE)
        return 0

    def checkpoint(self, bint clean=False):
        """Write a checkpoint: everything that a mount needs. The log before it is dead afterwards."""
        if self.stopped:
            self.refuse()
        if self.mount_due:
            self.leave_clean()
        self.drain()
        self.checkpointer.begins(clean)
        if (self.checkpointer.needs_room or (self.validity.in_flash and not self.affords_more())
                or self.pool.coming() <= self.meta.checkpoint_blocks):
            self.room_for_checkpoint()
        try:
            self.mapping.checkpoint_begins()
            self.validity.checkpoint_begins()
            self.log_trims()
            self.pad_pairs()
            self.sync_image()  # a checkpoint may only name what survives a crash of the host
            self.require_agreement()
            old = self.meta.write(self.sections(clean), self.seq, self.mounts, clean)
            self.sync_image()
        except BaseException:
            before = self.stopped
            self.stopped = before or IN_CHECKPOINT
            self.mapping.checkpoint_ended(False)
            self.validity.checkpoint_ended(False)
            self.stopped = before
            raise
        self.stopped = IN_CHECKPOINT
        self.mapping.checkpoint_ended(True)
        self.validity.checkpoint_ended(True)
        self.meta.point_boot()
        if clean or self.hint_may_be_clean:
            self.sync_image()  # before a clean checkpoint's block is erased: a cut may take its mount mark first
        self.hint_may_be_clean = self.mount_due = clean
        for block in self.checkpointer.to_release(old, clean):
            self.pool.release(block, self.now_ns)
            self.nand.punch(block)
        self.pool.release_pending(self.pool.pending_n)
        self.checkpointer.ends()
        self.since_checkpoint = self.since_checkpoint_tables = 0
        self.mover.groups = 0
        self.checkpoint_due = False
        self.dirty = False
        self.stopped = GOING

    cdef int room_for_checkpoint(self) except -1:
        """Make room for pages that validity programs, for a fence, and for the checkpoint: recoveries and workloads of
        trims alone clean nowhere else, and the log grows. If no page is dead, the free blocks must suffice: the
        checkpoint releases the log before it."""
        try:
            self.make_room()
        except DeviceFullError:
            pass

    def sections(self, clean):
        """The sections of a checkpoint; a clean one also has those that save its mount work, as far as there is
        room."""
        needed = self.checkpointer.sections(clean)
        return {**needed, **(self.meta.fitting(needed, self.mapping.save_clean()) if clean else {})}

    def log_overgrown(self):
        """Whether the kept log before the last checkpoint is too large. A recovery uses all of it again, plus what it
        wrote itself: if it were only kept, each crash would add a block until there is no room left. Another checkpoint
        begins at a later fence and releases it."""
        return len(self.checkpointer.kept()) > self.meta_floor

    cdef int require_agreement(self) except -1:
        """The cheap checks of a mount, before a checkpoint is written: live pages are only in open and closed blocks,
        and as many as the mapping names. An inconsistent device stops here, and the last checkpoint stays in force: no
        recovery could repair a newer one."""
        cdef uint32_t block, n
        cdef uint64_t live = 0
        cdef int64_t named = self.mapping.pages_named()
        why = None
        for block in range(self.pool.blocks):
            n = self.validity.count(block)
            live += n
            if (n and self.pool.state[block] != STATE_OPEN and self.pool.state[block] != STATE_CLOSED
                    and self.pool.state[block] != STATE_BAD):  # marked bad outside this device: still readable
                why = f"block {block} has {n} live pages and is {self.pool.describe(block)['state']}"
        if named >= 0:
            named += self.validity.pages_named()
        if named >= 0 and (live < <uint64_t> named if self.validity.late else live != <uint64_t> named):
            own = self.validity.pages_named()
            why = f"{live} pages are live, and the map names {named - own}" + (f", validity {own}" if own else "")
        if why is not None:
            self.fail(f"no checkpoint was written, because the device does not agree with itself: {why}")
            raise DeviceFailedError(self.failed)
        return 0
