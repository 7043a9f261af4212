# distutils: language = c++
"""The write buffer: pages that were acknowledged and wait to be programmed, found by LPA.

It fills slot by slot and is emptied as a whole, in order of arrival, or in LPA order if the scheme asks for that. With
power-loss protection each slot is also kept in the image's NVRAM, and a slot is never overwritten while its page is
needed: a torn NVRAM write then loses only the new version, which was not acknowledged yet.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.blocks.pool cimport NONE
from nandimg._nand cimport Nand

from nandimg.header import WRITE_BUFFER

cdef extern from "<algorithm>" namespace "std" nogil:
    void sort(uint64_t* first, uint64_t* last)

cdef extern from "crc32c.h" nogil:
    void crc32c_setup()
    uint32_t crc32c(uint32_t seed, const void* data, size_t n)

crc32c_setup()

SLOT_HEAD = 16  #: NVRAM slot: u32 checksum, u32 LPA, u64 sequence number, then the page
cdef enum:
    HEAD = 16


def nvram_bytes(slots, page_bytes):
    """Bytes of NVRAM that a buffer of ``slots`` pages needs."""
    return slots * (HEAD + page_bytes)


def nvram_slots(Nand nand not None):
    """Pages of a write buffer that the chip's NVRAM has room for."""
    return (nand.region(WRITE_BUFFER) or (0, 0))[1] // (HEAD + nand.page_bytes)


def slots_in_use(Nand nand not None):
    """Numbers of the slots in NVRAM that may hold anything. The chip knows which were never written."""
    cdef uint64_t at = (nand.region(WRITE_BUFFER) or (0, 0))[0], size = HEAD + nand.page_bytes, first, behind = 0
    for begin, n in nand.nvram_runs(at, nvram_slots(nand) * size if nand.keeps_data else 0):
        first = max(behind, (begin - at) // size)
        behind = (begin + n - at + size - 1) // size
        yield from range(first, behind)


cdef class WriteBuffer:
    """``slots`` pages of DRAM (``data`` is NULL if the chip keeps no user data). If ``run_most`` is not 0, it is
    emptied in LPA order, at most ``run_most`` pages at a time."""

    def __cinit__(self, Nand nand, uint32_t slots, bint in_nvram=False, uint32_t run_most=0):
        cdef uint32_t size = 4
        self.nand = nand
        self.slots = slots
        self.in_nvram = in_nvram
        self.nvram_from = (nand.region(WRITE_BUFFER) or (0, 0))[0]
        self.in_order = run_most > 0
        self.run_most = run_most
        self.page_bytes = nand.page_bytes
        while size < 2 * slots:
            size *= 2
        self.mask = size - 1
        self.lpa_of = <uint32_t*> malloc(max(1, slots) * 4)
        self.seq_of = <uint64_t*> calloc(max(1, slots), 8)
        self.ready_ns = <int64_t*> calloc(max(1, slots), 8)
        self.table = <uint32_t*> calloc(size, 4)
        self.data = NULL
        if nand.keeps_data:
            self.data = <uint8_t*> malloc(max(1, slots) * <uint64_t> nand.page_bytes)
        if not (self.lpa_of and self.seq_of and self.ready_ns and self.table and (self.data or not nand.keeps_data)):
            raise MemoryError
        if self.in_order:
            self._make_room()

    def _make_room(self):
        """Allocate the tables and copies for LPA order (a controller's DMA would gather the pages without a copy)."""
        self.turns = <uint64_t*> malloc(max(1, self.slots) * 8)
        self.run_lpas = <uint32_t*> malloc(self.run_most * 4)
        self.run_seqs = <uint64_t*> malloc(self.run_most * 8)
        self.run_ready = <int64_t*> malloc(self.run_most * 8)
        if self.nand.keeps_data:
            self.run_data = <uint8_t*> malloc(self.run_most * <uint64_t> self.page_bytes)
        if not (self.turns and self.run_lpas and self.run_seqs and self.run_ready
                and (self.run_data or not self.nand.keeps_data)):
            raise MemoryError

    def __dealloc__(self):
        free(self.turns)
        free(self.run_lpas)
        free(self.run_seqs)
        free(self.run_ready)
        free(self.run_data)
        free(self.lpa_of)
        free(self.seq_of)
        free(self.ready_ns)
        free(self.table)
        free(self.data)

    cdef uint8_t* page(self, uint32_t slot) noexcept nogil:
        return self.data + <uint64_t> slot * self.page_bytes

    cdef uint32_t find(self, uint32_t lpa) noexcept nogil:
        """The slot that holds ``lpa``, or NONE."""
        cdef uint32_t at = (lpa * <uint32_t> 2654435761) >> 7 & self.mask
        cdef uint32_t slot
        while self.table[at]:
            slot = self.table[at] - 1
            if self.lpa_of[slot] == lpa:
                return slot
            at = (at + 1) & self.mask
        return NONE

    cdef uint32_t add(self, uint32_t lpa, uint64_t seq) noexcept nogil:
        """The slot for a new version of ``lpa``; the caller makes sure that one is left, fills in the page and calls
        ``settle``."""
        cdef uint32_t at = (lpa * <uint32_t> 2654435761) >> 7 & self.mask
        cdef uint32_t slot = self.used
        while self.table[at]:
            if self.lpa_of[self.table[at] - 1] == lpa:
                if not self.in_nvram:
                    slot = self.table[at] - 1
                    self.seq_of[slot] = seq
                    return slot
                self.lpa_of[self.table[at] - 1] = NONE
                self.held -= 1
                break
            at = (at + 1) & self.mask
        self.table[at] = slot + 1
        self.lpa_of[slot] = lpa
        self.seq_of[slot] = seq
        self.used += 1
        self.held += 1
        return slot

    cdef int64_t settle(self, uint32_t slot, int cause, int64_t t_ns) except -1 nogil:
        """The slot's page is complete: with power-loss protection, store it in NVRAM. Returns the virtual time at which
        it is safe."""
        cdef uint8_t[HEAD] head
        cdef uint64_t at
        cdef uint32_t sum
        if not self.in_nvram:
            return t_ns
        at = self.nvram_from + <uint64_t> slot * (HEAD + self.page_bytes)
        memcpy(head + 4, &self.lpa_of[slot], 4)
        memcpy(head + 8, &self.seq_of[slot], 8)
        sum = crc32c(crc32c(0, head + 4, HEAD - 4), self.page(slot), self.page_bytes)
        memcpy(head, &sum, 4)
        t_ns = self.nand.nvram_store(at + HEAD, self.page(slot), self.page_bytes, cause, t_ns)
        return self.nand.nvram_store(at, head, HEAD, cause, t_ns)

    cdef bint drop(self, uint32_t lpa) noexcept nogil:
        """Forget ``lpa``; returns whether it was held. Its table entry stays, so that probing past it still works."""
        cdef uint32_t slot = self.find(lpa)
        if slot == NONE:
            return False
        self.lpa_of[slot] = NONE
        self.held -= 1
        return True

    cdef int let_go(self, uint32_t first, uint32_t n) noexcept nogil:
        """Empty ``n`` slots from ``first`` on, all of which held pages."""
        cdef uint32_t slot
        for slot in range(first, first + n):
            self.lpa_of[slot] = NONE
        self.held -= n
        return 0

    cdef int clear(self) noexcept nogil:
        memset(self.table, 0, (self.mask + 1) * <uint64_t> 4)
        self.used = 0
        self.held = 0
        return 0

    # --- in LPA order

    cdef uint32_t sort(self) noexcept nogil:
        """Sort the held pages by LPA into ``turns``; returns how many there are."""
        cdef uint32_t slot, n = 0
        for slot in range(self.used):
            if self.lpa_of[slot] != NONE:
                self.turns[n] = <uint64_t> self.lpa_of[slot] << 32 | slot
                n += 1
        sort(self.turns, self.turns + n)
        return n

    cdef int gather(self, uint32_t first, uint32_t n) noexcept nogil:
        """Copy ``n`` pages, at most ``run_most``, from number ``first`` of that order on, into ``run_*``."""
        cdef uint32_t i, slot
        for i in range(n):
            slot = <uint32_t> self.turns[first + i]
            self.run_lpas[i] = self.lpa_of[slot]
            self.run_seqs[i] = self.seq_of[slot]
            if self.run_data != NULL:
                memcpy(self.run_data + <uint64_t> i * self.page_bytes, self.page(slot), self.page_bytes)
        return 0

    cdef int gathered(self, uint32_t first, uint32_t n) noexcept nogil:
        """Those pages are bound, and ``run_ready`` has the time of each program: empty their slots."""
        cdef uint32_t i, slot
        for i in range(n):
            slot = <uint32_t> self.turns[first + i]
            self.ready_ns[slot] = self.run_ready[i]
            self.lpa_of[slot] = NONE
        self.held -= n
        return 0

    def survivors(self, int cause=0, int64_t t_ns=0, uint64_t above=0):
        """[(LPA, sequence number, page)] of the whole NVRAM slots with a sequence number ``above`` that. Reads all
        slots that the image has room for, because the buffer that filled them may have been larger than this one."""
        out = []
        size = HEAD + self.page_bytes
        slots = nvram_slots(self.nand) if self.nand.keeps_data else 0
        self.nand.charge_load(self.nvram_from, slots * size, cause, t_ns)
        for slot in slots_in_use(self.nand):
            raw = self.nand.nvram(self.nvram_from + slot * size, size)
            if int.from_bytes(raw[8:16], "little") > above and self._sum(raw[4:]) == int.from_bytes(raw[:4], "little"):
                out.append((int.from_bytes(raw[4:8], "little"), int.from_bytes(raw[8:16], "little"), raw[HEAD:]))
        return out

    def _sum(self, const uint8_t[::1] raw not None):
        return crc32c(0, &raw[0], raw.shape[0])

    def tables(self):
        pages = self.slots * self.page_bytes if self.data != NULL else 0
        order = self.slots * 8 + self.run_most * (20 + (self.page_bytes if self.data != NULL else 0))
        held = pages + self.slots * 20 + (self.mask + 1) * 4 + (order if self.in_order else 0)
        return self.slots * (self.page_bytes + 20 + (2 if self.in_order else 0)), held

    def check(self):
        """One line for each held LPA that is not found in its slot, and for a wrong count."""
        problems = []
        held = [slot for slot in range(self.used) if self.lpa_of[slot] != NONE]
        if len(held) != self.held:
            problems.append(f"write buffer: {self.held} pages held but {len(held)} slots in use")
        problems += [
            f"write buffer: LPA {self.lpa_of[slot]} is not found in slot {slot}"
            for slot in held if self.find(self.lpa_of[slot]) != slot
        ]
        return problems
