"""FAST's maps (Lee et al., ACM TECS 6(3), 2007): data blocks are mapped by block, log blocks by page.

An LPA's place in its data block is its offset in the logical block, so one entry per logical block locates all of its
pages. Later writes go to log blocks, which any LPA may use ("fully associative"); the log map has a pair for each of
these pages. A page that was written in order to the log block of its own logical block has a pair too, until that block
becomes the data block.

A bit for each LPA says whether it is mapped: a block map alone would still find trimmed LPAs.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from flashfs._core cimport NONE, STATE_CLOSED, Engine, MapCheck, Mapping
from flashfs.ftl.hashing.pairs cimport PairTable

import numpy as np

cdef extern from "huge.h" nogil:
    void zero_memory(void* at, size_t bytes)
    size_t zeros_from(const void* at, size_t bytes)

cdef extern from *:
    int popcount "__builtin_popcountll"(uint64_t) nogil


cdef uint64_t count_bits(const uint8_t[::1] bits) noexcept:
    cdef Py_ssize_t i
    cdef uint64_t n = 0
    for i in range(bits.shape[0]):
        n += popcount(bits[i])
    return n


cdef uint32_t next_bit(const uint8_t* bits, uint32_t at, uint32_t end) noexcept nogil:
    """The first bit from ``at`` on that is set, or ``end``."""
    while at < end and not bits[at >> 3] >> (at & 7) & 1:
        if at & 7 or bits[at >> 3]:
            at += 1
        else:
            at = <uint32_t> min(<uint64_t> end, at + 8 * <uint64_t> zeros_from(bits + (at >> 3), (end - at + 7) // 8))
    return at


cdef class FastMapping(Mapping):
    """``log_blocks``: the most log blocks."""

    def __cinit__(self, Engine ssd, uint32_t log_blocks):
        self.ssd = ssd
        self.per_block = ssd.nand.pages_per_block
        self.logical_blocks = (ssd.lpas + self.per_block - 1) // self.per_block
        self.log_pages = log_blocks * self.per_block
        self.log = PairTable(self.log_pages + self.per_block)  # and those of a block that is being merged
        self.data = <uint32_t*> malloc(self.logical_blocks * 4)
        self.bits = <uint8_t*> calloc(ssd.lpas // 8 + 1, 1)
        if self.data == NULL or self.bits == NULL:
            raise MemoryError
        self.reset()

    def __dealloc__(self):
        free(self.data)
        free(self.bits)

    # --- where is an LPA?

    cdef bint is_mapped(self, uint32_t lpa) noexcept nogil:
        return self.bits[lpa >> 3] >> (lpa & 7) & 1

    cdef uint32_t in_data(self, uint32_t lpa) noexcept nogil:
        """The LPA's PPA in the data block; NONE if its logical block has no data block."""
        cdef uint32_t block = self.data[lpa // self.per_block]
        return NONE if block == NONE else block * self.per_block + lpa % self.per_block

    cdef uint32_t place_of(self, uint32_t lpa) noexcept nogil:
        cdef uint32_t ppa
        if not self.is_mapped(lpa):
            return NONE
        ppa = self.log.find(lpa) if self.log.n else NONE
        return ppa if ppa != NONE else self.in_data(lpa)

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            ppas[i] = self.place_of(lpas[i])
        return 0

    # --- what changes

    cdef int enter(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Map the LPA to ``ppa``; NONE: unmap it."""
        if ppa == NONE or ppa == self.in_data(lpa):
            self.log.drop(lpa)
        else:
            self.log.put(lpa, ppa)
        if self.is_mapped(lpa) != (ppa != NONE):
            self.bits[lpa >> 3] ^= <uint8_t> (1 << (lpa & 7))
            self.mapped_n = self.mapped_n - 1 if ppa == NONE else self.mapped_n + 1
        return 0

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            olds[i] = self.place_of(lpas[i])
            self.enter(lpas[i], ppa + i)
        return 0

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            olds[i] = self.place_of(lpa + i)
            self.enter(lpa + i, NONE)
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """Pages that a merge moved have pairs until it is complete; then ``settle`` drops them together."""
        cdef uint32_t i
        for i in range(n):
            self.enter(lpas[i], news[i])
        return 0

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        return self.enter(lpa, ppa)

    # --- what merges ask

    cdef uint32_t data_block(self, uint32_t lbn) noexcept nogil:
        """The data block of a logical block, if a page of it counts; else NONE. A block of which no page counts may
        have been erased, and be another logical block's."""
        cdef uint32_t lpa
        if self.data[lbn] == NONE:
            return NONE
        for lpa in range(lbn * self.per_block, min((lbn + 1) * self.per_block, self.ssd.lpas)):
            if self.is_mapped(lpa) and self.place_of(lpa) == self.in_data(lpa):
                return self.data[lbn]
        return NONE

    cdef uint32_t list_pages(self, uint32_t lbn, uint32_t first, uint32_t* ppas) noexcept nogil:
        """The PPAs of a logical block's pages from offset ``first`` on, ascending; returns how many."""
        cdef uint32_t lpa, ppa, at, n = 0
        for lpa in range(lbn * self.per_block + first, min((lbn + 1) * self.per_block, self.ssd.lpas)):
            ppa = self.place_of(lpa)
            if ppa == NONE:
                continue
            at = n
            while at and ppas[at - 1] > ppa:
                ppas[at] = ppas[at - 1]
                at -= 1
            ppas[at] = ppa
            n += 1
        return n

    cdef uint32_t list_logical(self, uint32_t block, uint32_t* lbns) noexcept nogil:
        """The logical blocks that have pages in a log block, each once; returns how many."""
        cdef uint64_t at
        cdef uint32_t i, lbn, n = 0
        for at in range(<uint64_t> self.log.mask + 1):
            if self.log.slots[at].key == 0 or self.log.slots[at].ppa // self.per_block != block:
                continue
            lbn = self.log.lpa_in(at) // self.per_block
            for i in range(n):
                if lbns[i] == lbn:
                    break
            else:
                lbns[n] = lbn
                n += 1
        return n

    cdef uint32_t owner(self, uint32_t block) noexcept nogil:
        """The logical block of which this is the data block, with pages that count; NONE if there is none."""
        cdef uint32_t lbn
        for lbn in range(self.logical_blocks):
            if self.data[lbn] == block and self.data_block(lbn) == block:
                return lbn
        return NONE

    cdef int forget(self, uint32_t block) except -1 nogil:
        """The block is no data block from now on: its pages that count get pairs."""
        cdef uint32_t lbn, lpa
        for lbn in range(self.logical_blocks):
            if self.data[lbn] != block:
                continue
            for lpa in range(lbn * self.per_block, min((lbn + 1) * self.per_block, self.ssd.lpas)):
                if self.is_mapped(lpa) and self.log.find(lpa) == NONE:
                    self.log.put(lpa, self.in_data(lpa))
            self.data[lbn] = NONE
        return 0

    cdef int settle(self, uint32_t lbn, uint32_t block) except -1 nogil:
        """Make ``block`` the logical block's data block. A page that stayed elsewhere (because it cannot be read) gets
        a pair."""
        cdef uint32_t lpa, ppa
        for lpa in range(lbn * self.per_block, min((lbn + 1) * self.per_block, self.ssd.lpas)):
            ppa = self.place_of(lpa)
            if ppa == block * self.per_block + lpa % self.per_block:
                self.log.drop(lpa)
            elif ppa != NONE:
                self.log.put(lpa, ppa)
        self.data[lbn] = block
        return 0

    # --- checkpoints and recoveries

    def reset(self):
        memset(self.data, 0xFF, self.logical_blocks * 4)
        zero_memory(self.bits, self.ssd.lpas // 8 + 1)
        self.log.clear()
        self.mapped_n = 0

    def recovery_ends(self):
        """Until here, what was merged since the checkpoint has pairs. A block whose pages are all one logical block's,
        each at its offset, becomes its data block, if no page of the former data block counts any more."""
        cdef uint32_t lbn, block
        for lbn in range(self.logical_blocks):
            if self.data_block(lbn) == NONE:
                self.data[lbn] = NONE
        used = {ppa // self.per_block for _, ppa in self.log.pairs()}
        for block in used:                 # a former data block, in which a page happens to be at its offset
            self.forget(block)
        pages = {}
        for lpa, ppa in self.log.pairs():
            pages.setdefault(ppa // self.per_block, []).append((lpa, ppa))
        for block in sorted(pages, key=lambda block: self.ssd.pool.order[<uint32_t> block], reverse=True):
            lbn = pages[block][0][0] // self.per_block
            in_place = all((lpa // self.per_block, lpa % self.per_block) == (lbn, ppa % self.per_block)
                           for lpa, ppa in pages[block])
            if in_place and self.ssd.pool.state[block] == STATE_CLOSED and self.data_block(lbn) == NONE:
                self.settle(lbn, block)
        if self.log.n < self.log_pages:
            self.log.resize(self.log_pages + self.per_block)

    cdef int64_t pages_named(self) except -2 nogil:
        return <int64_t> self.mapped_n

    def save(self):
        """``log`` has a PPA for each LPA that ``logged`` marks. Data blocks of which no page counts are left out: they
        may belong to another logical block by now."""
        cdef uint32_t lbn
        cdef uint64_t i
        size = (self.ssd.lpas + 7) // 8
        pairs = np.array(self.log.pairs(), dtype="<u4").reshape(-1, 2)
        logged, blocks = np.zeros(size, np.uint8), np.empty(self.logical_blocks, "<u4")
        cdef const uint32_t[::1] lpas = np.ascontiguousarray(pairs[:, 0])
        cdef uint8_t[::1] marks = logged
        cdef uint32_t[::1] data = blocks
        for i in range(<uint64_t> lpas.shape[0]):
            marks[lpas[i] >> 3] |= <uint8_t> (1 << (lpas[i] & 7))
        for lbn in range(self.logical_blocks):
            data[lbn] = self.data_block(lbn)
        return {
            "blocks": blocks.view(np.uint8),
            "mapped": <const uint8_t[:size]> self.bits,
            "logged": logged,
            "log": np.ascontiguousarray(pairs[:, 1]).view(np.uint8),
        }

    def load(self, sections):
        cdef const uint8_t[::1] mapped = sections["mapped"], logged = sections["logged"]
        cdef const uint32_t[::1] data, ppas
        cdef uint32_t lpa, at = 0, lpas = self.ssd.lpas, spare = 8 * ((lpas + 7) // 8) - lpas
        pages = self.ssd.nand.blocks * self.per_block
        if any(len(sections[name]) % 4 for name in ("blocks", "log")):
            raise ValueError("blocks or log section: not whole entries of 4 bytes")
        blocks, log = (np.frombuffer(sections[name], "<u4") for name in ("blocks", "log"))
        if len(blocks) != self.logical_blocks or len(mapped) != (lpas + 7) // 8 or len(logged) != len(mapped):
            raise ValueError(f"map of {len(blocks)} logical blocks and {8 * len(mapped)} LPAs: {self.logical_blocks} "
                             f"and {lpas} are needed")
        if (mapped[len(mapped) - 1] >> (8 - spare) if spare else 0) or (np.asarray(logged) & ~np.asarray(mapped)).any():
            raise ValueError("LPAs are in the log that are not mapped, or there are more of them than the device has")
        found = count_bits(logged)
        if found != len(log) or (log >= pages).any():
            raise ValueError(f"log section of {len(log)} PPAs below {pages}: {found} LPAs are in the log")
        named = blocks[blocks != NONE]
        if (named >= self.ssd.nand.blocks).any() or len(np.unique(named)) != len(named):
            raise ValueError("blocks section: a block that the chip has not, or one for two logical blocks")
        data, ppas = blocks, log
        lpa = next_bit(&mapped[0], 0, lpas)
        while lpa < lpas:
            if not logged[lpa >> 3] >> (lpa & 7) & 1 and data[lpa // self.per_block] == NONE:
                raise ValueError("an LPA is neither in the log nor has its logical block a data block")
            lpa = next_bit(&mapped[0], lpa + 1, lpas)
        self.reset()
        memcpy(self.data, &data[0], self.logical_blocks * 4)
        memcpy(self.bits, &mapped[0], len(mapped))
        self.mapped_n = count_bits(mapped)
        lpa = next_bit(&logged[0], 0, lpas)
        while lpa < lpas:
            self.log.put(lpa, ppas[at])
            at += 1
            lpa = next_bit(&logged[0], lpa + 1, lpas)

    cdef uint32_t next_named(self, uint32_t lpa, uint32_t end) noexcept nogil:
        return next_bit(self.bits, lpa, end)

    def verify(self, bint whole=True):
        """Each mapped page is live, no two LPAs map to one page, and no other page is live."""
        cdef MapCheck agreement = MapCheck(self.ssd)
        cdef uint32_t lpa = self.next_named(0, self.ssd.lpas)
        while lpa < self.ssd.lpas:
            agreement.require(lpa, self.place_of(lpa))
            lpa = self.next_named(lpa + 1, self.ssd.lpas)
        wrong = agreement.fault_of_all(0)
        if wrong is not None:
            raise ValueError(wrong)

    # --- for people

    def tables(self):
        """A controller would hash the log map too, so its empty slots count."""
        return {
            "block_map": (4 * self.logical_blocks, 4 * self.logical_blocks),
            "mapped_bits": ((self.ssd.lpas + 7) // 8, self.ssd.lpas // 8 + 1),
            "log_map": (self.log.allocated, self.log.allocated),
            "log_blocks": (4 * (self.log_pages // self.per_block), 4 * (self.ssd.nand.blocks + 2 * self.per_block)),
        }

    def figures(self):
        return {"logical_blocks": self.logical_blocks, "log_pages": self.log.n, "log_pages_most": self.log_pages}

    def explain(self, uint32_t lpa):
        cdef uint32_t ppa = self.place_of(lpa), home = self.data[lpa // self.per_block]
        where = None if ppa == NONE else "data" if ppa == self.in_data(lpa) else "log"
        return {
            "logical_block": lpa // self.per_block,
            "page": lpa % self.per_block,
            "data_block": None if home == NONE else home,
            "in": where,
            "ppa": None if ppa == NONE else ppa,
        }

    def data_blocks(self):
        """{data block: logical block}, of the data blocks in which a page counts."""
        cdef uint32_t lbn
        return {self.data[lbn]: lbn for lbn in range(self.logical_blocks) if self.data_block(lbn) != NONE}

    def check(self):
        """The count of mapped bits is right; an LPA in the log is mapped, and not at its place in the data block."""
        problems = []
        found = count_bits(<const uint8_t[:self.ssd.lpas // 8 + 1]> self.bits)
        if found != self.mapped_n:
            problems.append(f"{found} LPAs are mapped, and {self.mapped_n} are counted")
        for lpa, ppa in self.log.pairs():
            if not self.is_mapped(lpa) or ppa == self.in_data(lpa):
                problems.append(f"LPA {lpa}: in the log at PPA {ppa}, and it is not mapped, or in its data block")
        return problems
