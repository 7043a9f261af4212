"""Faults stand in front of the chip: an engine cannot tell a FaultyNand from a Chip until it hurts.

A life is the time between two power-ups. Operations that change the flash (each page of a program, each erase) or
the NVRAM and boot area are counted from 1 in each life, and a Cut ends a life at one of them.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from nandimg._chip cimport Chip
from nandimg._nand cimport (
    TEAR_DATA_ONLY,
    TEAR_HEAD_GONE,
    TEAR_NOTHING,
    TEAR_OOB_ONLY,
    TEAR_PREFIX,
    TEAR_SPOILT,
    TEAR_TAIL_GONE,
    TEAR_WHOLE,
    Nand,
)

from dataclasses import dataclass

from nandimg.errors import PowerCut

#: shape name -> how an interrupted program is left; and the same for an erase. A shape that means nothing to one of
#: the two stands for its nearest relative, so that any shape can be tried at any operation.
SHAPES = ("before", "after", "prefix", "data-only", "oob-only")
cdef int[5] PROGRAM_TEARS = [TEAR_NOTHING, TEAR_WHOLE, TEAR_PREFIX, TEAR_DATA_ONLY, TEAR_OOB_ONLY]
cdef int[5] ERASE_TEARS = [TEAR_NOTHING, TEAR_WHOLE, TEAR_HEAD_GONE, TEAR_SPOILT, TEAR_TAIL_GONE]


@dataclass(frozen=True, slots=True)
class Cut:
    """Power goes at operation ``at`` (from 1) of a life, leaving it in ``shape``: before, after, prefix, data-only or
    oob-only; for an erase the last three mean head gone, all spoilt and tail gone."""

    at: int
    shape: str = "before"

    def __post_init__(self):
        if self.shape not in SHAPES:
            raise ValueError(f"cut shape {self.shape!r}: one of {', '.join(SHAPES)} would do")


cdef class FaultyNand(Nand):
    """A chip whose power can be cut and whose operations can fail.

    ``cuts`` is one Cut (or None) for each life in turn. ``failing`` holds operation numbers at which the chip
    reports a failed program or erase, each once, in whichever life it comes up first. ``on_sync`` is called after
    each durable sync: what the image holds then is what a host that dies is sure to keep.
    """

    def __init__(self, Chip chip, cuts=(), failing=(), on_sync=None):
        self.on_sync = on_sync
        self.chip = chip
        self.geometry = chip.geometry
        self.blocks = chip.blocks
        self.pages_per_block = chip.pages_per_block
        self.page_bytes = chip.page_bytes
        self.oob_bytes = chip.oob_bytes
        self.dies = chip.dies
        self.channels = chip.channels
        self.keeps_data = chip.keeps_data
        self.pending_cuts = list(cuts)
        self.failing = set(failing)
        self.has_failing = bool(self.failing)
        self._next_cut()

    def _next_cut(self):
        cut = self.pending_cuts.pop(0) if self.pending_cuts else None
        self.cut_at = cut.at if cut else 0
        self.cut_shape = SHAPES.index(cut.shape) if cut else 0
        self.operations = 0
        self.dead = False

    def require_open(self):
        self.chip.require_open()

    def power_on(self):
        """Begin the next life: the chip forgets what it only remembered, the next cut is armed."""
        self.chip.reset_volatile()
        self._next_cut()

    @property
    def lives_left(self):
        """Cuts that were planned and have not come up."""
        return len(self.pending_cuts)

    cdef int cut_now(self) except -1 nogil:
        self.dead = True
        with gil:
            raise PowerCut(self.operations, SHAPES[self.cut_shape])

    cdef bint fails_now(self) except -1 nogil:
        if not self.has_failing:
            return False
        with gil:
            if self.operations in self.failing:
                self.failing.discard(self.operations)
                return True
        return False

    cdef int64_t program(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data, const uint8_t* oob,
                         int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        cdef uint32_t i, one
        cdef int64_t end = t_ns
        cdef int tear
        done[0] = 0
        if self.dead:
            self.cut_now()
        if self.cut_at == 0 and not self.has_failing:
            self.operations += n
            return self.chip.program(block, page, n, data, oob, cause, t_ns, done)
        for i in range(n):
            self.operations += 1
            if self.operations == self.cut_at:
                tear = PROGRAM_TEARS[self.cut_shape]
                if tear == TEAR_WHOLE:
                    self.chip.program(block, page + i, 1, data, oob, cause, t_ns, &one)
                elif tear != TEAR_NOTHING:
                    self.chip.tear_program(block, page + i, data, oob, tear)
                self.cut_now()
            if self.fails_now():
                self.chip.tear_program(block, page + i, data, oob, TEAR_PREFIX)
                return end
            end = self.chip.program(block, page + i, 1, data, oob, cause, t_ns, &one)
            done[0] += 1
            oob += self.oob_bytes
            if data != NULL:
                data += self.page_bytes
        return end

    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        cdef int tear
        if self.dead:
            self.cut_now()
        self.operations += 1
        if self.operations == self.cut_at:
            tear = ERASE_TEARS[self.cut_shape]
            if tear == TEAR_WHOLE:
                self.chip.erase(block, cause, t_ns, ok)
            elif tear != TEAR_NOTHING:
                self.chip.tear_erase(block, tear)
            self.cut_now()
        if self.fails_now():
            self.chip.tear_erase(block, TEAR_SPOILT)
            ok[0] = False
            return t_ns
        return self.chip.erase(block, cause, t_ns, ok)

    cdef int64_t read(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* data, uint8_t* oob, uint8_t* status,
                      int cause, int64_t t_ns) except -1 nogil:
        if self.dead:
            self.cut_now()
        return self.chip.read(block, page, n, data, oob, status, cause, t_ns)

    cdef int64_t read_some(self, uint32_t block, const uint32_t* pages, uint32_t n, uint8_t* data, uint8_t* oob,
                           uint8_t* status, int cause, int64_t t_ns, int64_t* ready) except -1 nogil:
        if self.dead:
            self.cut_now()
        return self.chip.read_some(block, pages, n, data, oob, status, cause, t_ns, ready)

    cdef int64_t read_spare(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* oob, uint8_t* status,
                            int cause, int64_t t_ns) except -1 nogil:
        if self.dead:
            self.cut_now()
        return self.chip.read_spare(block, page, n, oob, status, cause, t_ns)

    cdef int sync(self, bint durable) except -1 nogil:
        if self.dead:
            self.cut_now()
        self.chip.sync(durable)
        if durable:
            with gil:
                if self.on_sync is not None:
                    self.on_sync()
        return 0

    cdef uint32_t erases(self, uint32_t block) noexcept nogil:
        return self.chip.erases(block)

    cdef int health(self, uint32_t block) noexcept nogil:
        return self.chip.health(block)

    cdef int retire(self, uint32_t block) except -1 nogil:
        if self.dead:
            self.cut_now()
        return self.chip.retire(block)

    cdef int nvram_write(self, uint64_t offset, const uint8_t* data, uint64_t n) except -1 nogil:
        """A cut leaves nothing, all, or the first half of what was written."""
        cdef uint64_t kept = n
        if self.dead:
            self.cut_now()
        self.operations += 1
        if self.operations == self.cut_at:
            if self.cut_shape == 0:
                kept = 0
            elif self.cut_shape > 1:
                kept = n // 2
            self.chip.nvram_write(offset, data, kept)
            self.cut_now()
        return self.chip.nvram_write(offset, data, n)

    cdef int nvram_read(self, uint64_t offset, uint8_t* data, uint64_t n) except -1 nogil:
        if self.dead:
            self.cut_now()
        return self.chip.nvram_read(offset, data, n)

    cdef int boot_write(self, int slot, const uint8_t* data) except -1 nogil:
        """A cut leaves nothing, all, or the first half of the slot."""
        cdef uint8_t[64] mixed
        cdef int i
        if self.dead:
            self.cut_now()
        self.operations += 1
        if self.operations == self.cut_at:
            if self.cut_shape == 1:
                self.chip.boot_write(slot, data)
            elif self.cut_shape > 1:
                self.chip.boot_read(slot, mixed)
                for i in range(32):
                    mixed[i] = data[i]
                self.chip.boot_write(slot, mixed)
            self.cut_now()
        return self.chip.boot_write(slot, data)

    cdef int boot_read(self, int slot, uint8_t* data) except -1 nogil:
        if self.dead:
            self.cut_now()
        return self.chip.boot_read(slot, data)

    cdef uint64_t count(self, int op, int cause) noexcept nogil:
        return self.chip.count(op, cause)
