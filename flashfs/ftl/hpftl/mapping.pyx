"""HPFTL: a page map by hashing LPAs to physical blocks (J. Shin, SNU thesis, 2020, chapter 2; HPFTL is of NAS 2017).

The primary table locates an LPA by the number of the hash function, out of 63, that names its block (HID), and the page
within the block (PPID). A page in none of the blocks that its LPA hashes to has a full entry in the secondary table: it
got there because those blocks had no room (a collision) or because cleaning put it there. HID 0 means that the primary
table does not locate the page: with PPID 0 it was never written, with PPID 1 (the thesis's signature) the secondary
table has it.

Entries that left the secondary table may come back in a recovery, when writes of the host are lost or moves undone;
these are entries that left since the last checkpoint. So a checkpoint is due before there are more of them than the
next one has room for.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from flashfs.parts.defaults.map_check cimport MapCheck
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.blocks.pool cimport NONE
from flashfs.ftl.hashing.tables cimport Hasher, PackedTable
from flashfs.ftl.hashing.pairs cimport PairTable

import numpy as np

from flashfs.errors import CorruptError

cdef enum:
    SIGNATURE = 1            # PPID of an entry of HID 0 whose page is in the secondary table
    DUE = 4                  # a checkpoint is due when entries worth 1/DUE of its room may come back


cdef class HpftlMapping(Mapping):
    """The primary table, bit-packed, and the secondary one."""

    def __cinit__(self, Engine ssd, Hasher hasher, uint32_t hashes, uint32_t capacity, uint32_t saved_most):
        self.ssd = ssd
        self.hasher = hasher
        self.hashes = hashes
        self.capacity = capacity
        self.saved_most = saved_most
        self.primary = PackedTable(ssd.lpas, ssd.nand.pages_per_block)
        self.second = PairTable(capacity)
        self.second_in = <uint32_t*> calloc(ssd.nand.blocks, 4)
        if self.second_in == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.second_in)

    # --- where is an LPA?

    cdef uint32_t hid_of(self, uint32_t lpa, uint32_t block) noexcept nogil:
        """The HID by which the LPA hashes to that block; 0 if there is none."""
        cdef uint32_t hid = self.hasher.hid_of(lpa, block)
        return hid if hid <= self.hashes else 0

    cdef bint is_second(self, uint32_t lpa) noexcept nogil:
        """Whether the LPA is in the secondary table."""
        return self.primary.entry(lpa) == SIGNATURE

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i, entry
        for i in range(n):
            entry = self.primary.entry(lpas[i])
            if entry >> self.primary.ppid_bits:
                ppas[i] = (self.hasher.place_of(lpas[i], entry >> self.primary.ppid_bits)
                           * self.ssd.nand.pages_per_block + (entry & self.primary.ppid_mask))
            else:
                ppas[i] = self.second.find(lpas[i]) if entry == SIGNATURE else NONE
        return 0

    # --- what changes

    cdef uint32_t let_go(self, uint32_t lpa) noexcept nogil:
        """Drop the LPA's secondary entry; returns its PPA, NONE if there was none."""
        cdef uint32_t ppa = self.second.drop(lpa)
        if ppa != NONE:
            self.second_in[ppa // self.ssd.nand.pages_per_block] -= 1
            self.dropped += 1
            if self.dropped * DUE >= self.saved_most:
                self.ssd.checkpoint_due = True
        return ppa

    cdef uint32_t place(self, uint32_t lpa, uint32_t hid, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """Map the LPA to ``ppa``, by that HID or, if it is 0, in the secondary table. Returns the old PPA."""
        cdef uint32_t old = NONE
        self.lookup(&lpa, 1, &old)
        if hid == 0:
            self.second.put(lpa, ppa)
            if self.is_second(lpa):
                self.second_in[old // self.ssd.nand.pages_per_block] -= 1
            self.second_in[ppa // self.ssd.nand.pages_per_block] += 1
            self.primary.set_entry(lpa, 0, SIGNATURE)
        else:
            self.let_go(lpa)
            self.primary.set_entry(lpa, hid, ppa % self.ssd.nand.pages_per_block)
        return old

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        """``choice`` is the HID of a run of one page; in a longer run each page has its own HID."""
        cdef uint32_t i, block = ppa // self.ssd.nand.pages_per_block
        for i in range(n):
            olds[i] = self.place(lpas[i], choice if n == 1 else self.hid_of(lpas[i], block), ppa + i)
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """A page that happens to be in a block that its LPA hashes to needs no secondary entry."""
        cdef uint32_t i
        for i in range(n):
            self.place(lpas[i], self.hid_of(lpas[i], news[i] // self.ssd.nand.pages_per_block), news[i])
        return 0

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t i, at
        for i in range(n):
            at = lpa + i
            self.lookup(&at, 1, olds + i)
            self.let_go(at)
            self.primary.set_entry(at, 0, 0)
        return 0

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        if ppa == NONE:
            self.let_go(lpa)
            return self.primary.set_entry(lpa, 0, 0)
        self.place(lpa, self.hid_of(lpa, ppa // self.ssd.nand.pages_per_block), ppa)
        return 0

    cdef uint32_t first_in(self, uint32_t block) noexcept nogil:
        """Live pages of the block that are in the primary table: its cleaning may add as many secondary entries."""
        return self.ssd.validity.count(block) - self.second_in[block]

    # --- checkpoints and recovery

    def recovery_reopens(self):
        """There are many open blocks: a crash would close them all."""
        return True

    def reset(self):
        self.primary.clear()
        self.second.clear()
        self.dropped = 0
        memset(self.second_in, 0, self.ssd.nand.blocks * 4)

    cdef int checkpoint_begins(self) except -1:
        if self.second.n > self.saved_most:
            raise CorruptError(f"{self.second.n} secondary entries: a checkpoint has room for {self.saved_most}")
        return 0

    cdef int checkpoint_ended(self, bint whole) except -1:
        if whole:
            self.dropped = 0
        return 0

    def save(self):
        return {"primary": self.primary.save(), "second": np.array(self.second.pairs(), dtype="<u4").tobytes()}

    def load(self, sections):
        cdef uint32_t lpa, ppa, hid, marked = 0
        cdef uint32_t pages = self.ssd.nand.blocks * self.ssd.nand.pages_per_block
        cdef int64_t before = -1
        saved = bytes(sections["second"])
        if len(saved) % 8 or len(saved) // 8 > self.saved_most:
            raise ValueError(f"secondary table of {len(saved)} bytes: {self.saved_most} entries of 8 at most")
        self.reset()
        self.primary.load(sections["primary"], self.ssd.nand.pages_per_block)
        for lpa, ppa in np.frombuffer(saved, dtype="<u4").reshape(-1, 2).tolist():
            if lpa >= self.ssd.lpas or lpa <= before or ppa >= pages or not self.is_second(lpa):
                raise ValueError(f"secondary entry of LPA {lpa}, PPA {ppa}: out of range, out of order, or not signed")
            before = lpa
            self.second.put(lpa, ppa)
            self.second_in[ppa // self.ssd.nand.pages_per_block] += 1
        lpa = self.primary.next_used(0, self.ssd.lpas)
        while lpa < self.ssd.lpas:
            hid = self.primary.entry(lpa) >> self.primary.ppid_bits
            marked += self.is_second(lpa)
            if hid > self.hashes or (hid == 0 and self.primary.entry(lpa) > SIGNATURE):
                raise ValueError(f"LPA {lpa} has HID {hid}, PPID {self.primary.entry(lpa) & self.primary.ppid_mask}")
            lpa = self.primary.next_used(lpa + 1, self.ssd.lpas)
        if marked != self.second.n:
            raise ValueError(f"{marked} LPAs are signed, and {self.second.n} have a secondary entry")

    def verify(self, bint whole=True):
        """Each mapped LPA maps to a live page, no two to one page, and no other page is live."""
        cdef MapCheck agreement = MapCheck(self.ssd)
        cdef uint32_t lpa = self.primary.next_used(0, self.ssd.lpas), ppa = NONE
        while lpa < self.ssd.lpas:
            self.lookup(&lpa, 1, &ppa)
            agreement.require(lpa, ppa)
            lpa = self.primary.next_used(lpa + 1, self.ssd.lpas)
        wrong = agreement.fault_of_all(0)
        if wrong is not None:
            raise ValueError(wrong)

    cdef uint64_t count_mapped(self) noexcept nogil:
        cdef uint32_t lpa = self.primary.next_used(0, self.ssd.lpas)
        cdef uint64_t n = 0
        while lpa < self.ssd.lpas:
            n += 1
            lpa = self.primary.next_used(lpa + 1, self.ssd.lpas)
        return n

    cdef uint32_t next_named(self, uint32_t lpa, uint32_t end) noexcept nogil:
        return self.primary.next_used(lpa, end)

    cdef int64_t pages_named(self) except -2 nogil:
        return <int64_t> self.count_mapped()

    # --- the rest of the interface

    def tables(self):
        """Includes the count of secondary pages of each block: two bytes in a controller."""
        return {
            "primary_table": (self.primary.bytes, self.primary.bytes + 8 + self.hasher.heap_bytes),
            "secondary_table": (8 * max(self.capacity, self.second.n), self.second.allocated),
            "secondary_counts": (2 * self.ssd.nand.blocks, 4 * self.ssd.nand.blocks),
        }

    def figures(self):
        return {
            "entry_bits": self.primary.entry_bits,
            "secondary_entries": self.second.n,
            "secondary_capacity": self.capacity,
        }

    def explain(self, uint32_t lpa):
        cdef uint32_t entry = self.primary.entry(lpa), ppa = NONE
        cdef uint32_t hid = entry >> self.primary.ppid_bits
        self.lookup(&lpa, 1, &ppa)
        return {
            "hid": hid,
            "ppid": entry & self.primary.ppid_mask if hid else None,
            "secondary": self.is_second(lpa),
            "block": None if ppa == NONE else ppa // self.ssd.nand.pages_per_block,
            "ppa": None if ppa == NONE else ppa,
        }

    def check(self):
        """Exactly the signed LPAs have a secondary entry; a block's count is that of its entries."""
        cdef uint32_t lpa, block
        problems = []
        pairs = dict(self.second.pairs())
        problems += [f"LPA {lpa}: not signed, and it has a secondary entry"
                     for lpa in pairs if not self.is_second(<uint32_t> lpa)]
        lpa = self.primary.next_used(0, self.ssd.lpas)
        while lpa < self.ssd.lpas:
            if self.is_second(lpa) and lpa not in pairs:
                problems.append(f"LPA {lpa}: signed, and it has no secondary entry")
            lpa = self.primary.next_used(lpa + 1, self.ssd.lpas)
        of_block = [0] * self.ssd.nand.blocks
        for ppa in pairs.values():
            of_block[ppa // self.ssd.nand.pages_per_block] += 1
        for block in range(self.ssd.nand.blocks):
            if of_block[block] != self.second_in[block]:
                problems.append(f"block {block}: {self.second_in[block]} secondary entries are counted, it has "
                                f"{of_block[block]}")
        return problems
