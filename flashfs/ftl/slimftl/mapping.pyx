# cython: wraparound=True
"""SlimFTL: a page map of 14 bits an entry, by hashing LPAs to virtual blocks (J. Shin, SNU thesis, 2020).

The primary table locates an LPA by the number of the hash function, out of 63, that chose its block (HID), and the page
within the block (PPID). The hash names a virtual block (VBA); the virtual block table (VBT) maps that to a physical
block, so cleaning can move a block without changing its pages' HIDs. The hasher drops the low bits of an LPA, so
neighbours share a block. Table and hasher: flashfs/ftl/hashing.

The thesis replaces placement (3.2 to 3.4) and cleaning (3.5) too: placement.pyx. Recovery is not in the thesis:
docs/ftl/slimftl.md.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.arrays cimport array_u32
from flashfs.parts.defaults.map_check cimport MapCheck
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.contract.owner cimport FOREIGN, LIVE
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.contract.validity cimport Validity
from flashfs.engine.blocks.pool cimport (
    CAUSE_MAP,
    KIND_USER,
    NONE,
    STATE_BAD,
    STATE_CLOSED,
    STATE_OPEN,
    Oob,
    read_oob,
)
from flashfs.ftl.hashing.tables cimport HIDS, Hasher, PackedTable
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

import numpy

from flashfs.errors import CorruptError

cdef extern from "huge.h" nogil:
    void copy_into_zeros(void* into, const void* of, size_t bytes)

cdef enum:
    SHARED_MOST = 255        # limit of the other 8 bits, the count of this VBA's pages placed elsewhere: sticks here

cdef uint32_t NOWHERE = NONE - 1  # a mapped page whose virtual block has no block: beyond every chip

VBT = "virtual"    #: the section of the table: lines as in DRAM, zeros where nothing is
OLDER_VBT = "vbt"  #: of an image without flashfs.checkpoint-fills: the block itself, 0xFFFFFF for none
OOB_BYTES = 8      #: u32 VBA of the block, u8 HID, u8 1 if the HID names another VBA (shared), u16 zero


@cython.final
cdef class SlimMapping(Mapping):
    """The primary table, bit-packed, and the virtual block table."""

    def __cinit__(self, Engine ssd, Hasher hasher):
        self.ssd = ssd
        self.scheme_oob = OOB_BYTES
        self.hasher = hasher
        self.virtual_blocks = hasher.places
        self.primary = PackedTable(ssd.lpas, ssd.nand.pages_per_block)
        self.ppid_bits = self.primary.ppid_bits
        self.ppid_mask = self.primary.ppid_mask
        self.entry_bits = self.primary.entry_bits
        self.vbt = <uint32_t*> calloc(self.virtual_blocks, 4)  # blank parts take no memory
        self.found_in = <uint32_t*> malloc(ssd.nand.blocks * 4)
        if not (self.vbt and self.found_in):
            raise MemoryError
        self.found = {}
        self.found_shared = set()
        self.leaving = self.staying_in = NONE
        self.reset()
        self.recovering = False

    def refuses(self, Validity validity not None):
        if validity.late:
            return ("slimftl: of two pages of an LPA that both look live it cannot tell which is newer: use a "
                    "validity store that is not late")
        return None

    def __dealloc__(self):
        free(self.vbt)
        free(self.found_in)

    # --- the virtual block table

    cdef uint32_t block_of(self, uint32_t vba) noexcept nogil:
        return NONE if self.vbt[vba] & NO_BLOCK == 0 else ~self.vbt[vba] & NO_BLOCK

    cdef int set_block(self, uint32_t vba, uint32_t block) noexcept nogil:
        cdef uint32_t before = self.vbt[vba] & NO_BLOCK, after = ~block & NO_BLOCK
        self.vbt[vba] = (self.vbt[vba] & ~<uint32_t> NO_BLOCK) | after
        if before == 0 != after:
            self.standing += 1
        elif after == 0 != before:
            self.standing -= 1
        return 0

    cdef uint32_t shared_from(self, uint32_t vba) noexcept nogil:
        return self.vbt[vba] >> 24

    cdef int count_shared(self, uint32_t vba, int change) noexcept nogil:
        """A count that once reached SHARED_MOST stays there, and only means "some"."""
        cdef uint32_t count = self.vbt[vba] >> 24
        if count != SHARED_MOST:
            self.vbt[vba] = (self.vbt[vba] & NO_BLOCK) | ((count + change) << 24)
        return 0

    # --- where is an LPA?

    cdef uint32_t next_live(self, uint32_t home, uint32_t from_distance,
                            uint32_t ppid) except? 0xFFFFFFFE nogil:
        """The first live page ``ppid`` in the virtual blocks from ``home + from_distance`` on; NONE if there is none.
        A page that is not live is skipped without a read: it may hold an older version of this LPA."""
        cdef uint32_t k, block, ppa
        for k in range(from_distance, self.virtual_blocks):
            block = self.block_of((home + k) % self.virtual_blocks)
            if block == NONE:
                continue
            ppa = block * self.ssd.nand.pages_per_block + ppid
            if self.ssd.validity.is_live(ppa):
                return ppa
        return NONE

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i, entry, hid, home, ppid
        for i in range(n):
            entry = self.primary.entry(lpas[i])
            hid = entry >> self.ppid_bits
            if hid == 0:
                ppas[i] = NONE
                continue
            home = self.hasher.place_of(lpas[i], hid)
            ppid = entry & self.ppid_mask
            if self.block_of(home) == NONE and self.shared_from(home) == 0:
                ppas[i] = NOWHERE
            elif self.shared_from(home) == 0:
                ppas[i] = self.block_of(home) * self.ssd.nand.pages_per_block + ppid
            else:
                ppas[i] = self.next_live(home, 0, ppid)
        return 0

    cdef uint32_t after_miss(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) except? 0xFFFFFFFE nogil:
        """Linear probing (3.4): the page of the same number in the next virtual block."""
        cdef uint32_t entry = self.primary.entry(lpa), home, k, block
        home = self.hasher.place_of(lpa, entry >> self.ppid_bits)
        if self.shared_from(home) == 0:
            return NONE                    # the first look-up was no guess
        self.probes += 1
        for k in range(self.virtual_blocks):
            block = self.block_of((home + k) % self.virtual_blocks)
            if block == ppa // self.ssd.nand.pages_per_block:
                return self.next_live(home, k + 1, entry & self.ppid_mask)
        return NONE

    cdef uint32_t locate(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """As ``lookup``, but exact: if pages were shared, OOBs of live pages are read until one has the LPA. If none
        has it and one cannot be read, it is that one: otherwise it would live on when the LPA is written again."""
        cdef uint32_t ppa = NONE, home, block, unread = NONE, unread_n = 0
        cdef uint8_t[2048] raw
        cdef uint8_t status
        cdef Oob oob
        self.lookup(&lpa, 1, &ppa)
        if ppa == NONE or ppa == NOWHERE:
            return NONE
        home = self.hasher.place_of(lpa, self.primary.entry(lpa) >> self.ppid_bits)
        if self.shared_from(home) == 0:
            return ppa
        while ppa != NONE:
            block = ppa // self.ssd.nand.pages_per_block
            self.probe_reads += 1
            self.ssd.map_ns = read_oob(self.ssd.nand, ppa, raw, &oob, &status, CAUSE_MAP, self.ssd.map_ns)
            if status == PAGE_OK and oob.kind == KIND_USER and oob.lpa == lpa:
                return ppa
            if status != PAGE_OK and self.recovering and (status == PAGE_ERASED or self.ssd.nand.lost_erase(block)):
                with gil:
                    self.half_erased.add(block)
            if status != PAGE_OK:
                unread = ppa
                unread_n += 1
            ppa = self.after_miss(lpa, ppa, raw)
        return unread if unread_n == 1 and not self.recovering else NONE

    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """As for any mapping; but a shared page is only found by reading it, and this one cannot be read. So the owner
        is an LPA with its page number that has no other page."""
        cdef uint32_t lpa, found, lost = NONE
        for lpa in range(self.ssd.lpas):
            if (self.primary.entry(lpa) >> self.ppid_bits == 0 or (self.primary.entry(lpa) & self.ppid_mask)
                    != ppa % self.ssd.nand.pages_per_block):
                continue
            found = self.locate(lpa)
            if found == ppa:
                return lpa
            if found == NONE:
                lost = lpa
        if lost == NONE:
            self.exact = False
        return lost

    cdef uint32_t let_go(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """The PPA of ``lpa``; removes it from its home's count of shared pages."""
        cdef uint32_t ppa = self.locate(lpa), home
        if ppa == NONE and self.primary.entry(lpa) >> self.ppid_bits:
            self.exact = False
        if ppa != NONE:
            home = self.hasher.place_of(lpa, self.primary.entry(lpa) >> self.ppid_bits)
            if self.block_of(home) != ppa // self.ssd.nand.pages_per_block and self.shared_from(home):
                self.count_shared(home, -1)
        return ppa

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        cdef uint32_t i, page = ppa % self.ssd.nand.pages_per_block, hid = choice >> CHOSEN_HID & HIDS
        for i in range(n):
            olds[i] = self.let_go(lpas[i])
            self.primary.set_entry(lpas[i], hid, page + i)
            if choice & CHOSEN_SHARED:
                self.count_shared(self.hasher.place_of(lpas[i], hid), 1)
                self.shared_pages += 1
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """HIDs stay, PPIDs are updated; the VBT is changed once, when the block is done (3.5). Pages that leave their
        virtual block get the HID of the one that took them."""
        cdef uint32_t i
        for i in range(n):
            if self.leaving != NONE and news[i] // self.ssd.nand.pages_per_block != self.staying_in:
                self.leave(lpas[i], news[i])
            else:
                self.primary.set_entry(lpas[i], self.primary.entry(lpas[i]) >> self.ppid_bits,
                                       news[i] % self.ssd.nand.pages_per_block)
        return 0

    cdef int leave(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """A page of ``leaving`` is at ``ppa`` now, in another candidate of its LPA. A page shared into ``leaving`` is
        no longer shared."""
        cdef uint32_t hid, block = ppa // self.ssd.nand.pages_per_block
        cdef uint32_t home = self.hasher.place_of(lpa, self.primary.entry(lpa) >> self.ppid_bits)
        self.hasher.find(lpa)
        for hid in range(1, HIDS + 1):
            if self.block_of(self.hasher.candidates[hid]) == block and self.hasher.candidates[hid] != self.leaving:
                if home != self.leaving and self.shared_from(home):
                    self.count_shared(home, -1)
                return self.primary.set_entry(lpa, hid, ppa % self.ssd.nand.pages_per_block)
        with gil:
            raise RuntimeError(f"LPA {lpa}: moved to block {block}, which stands for no candidate of it")

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        """If pages were shared, the PPID alone is compared: there the LPA in the OOB decides in any case. It cannot if
        validity is late: of two pages of one LPA with the same PPID, both called live, nothing tells which is newer. So
        this mapping refuses such a store."""
        cdef uint32_t i, entry, home, block_pages = self.ssd.nand.pages_per_block
        for i in range(n):
            answers[i] = FOREIGN
            if lpas[i] >= self.ssd.lpas:
                continue
            entry = self.primary.entry(lpas[i])
            if entry >> self.ppid_bits == 0 or entry & self.ppid_mask != ppas[i] % block_pages:
                continue
            home = self.hasher.place_of(lpas[i], entry >> self.ppid_bits)
            if self.shared_from(home) or self.block_of(home) == ppas[i] // block_pages:
                answers[i] = LIVE
        return 0

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        cdef int missing = 0
        for i in range(n):
            olds[i] = NONE
            if self.primary.entry(lpa + i) >> self.ppid_bits:
                olds[i] = self.let_go(lpa + i)
                missing |= olds[i] == NONE
                self.primary.set_entry(lpa + i, 0, 0)
        return missing

    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, const Extent* at, uint32_t before,
                   uint32_t behind) except -1 nogil:
        cdef uint32_t i, vba = at.choice & CHOSEN_VBA, hid = at.choice >> CHOSEN_HID & HIDS
        cdef bint moving = hid == 0
        for i in range(at.n):
            if moving:
                hid = self.primary.entry(lpas[i]) >> self.ppid_bits
            memcpy(oob, &vba, 4)
            oob[4] = <uint8_t> hid
            oob[5] = 1 if self.hasher.place_of(lpas[i], hid) != vba else 0
            oob[6] = oob[7] = 0
            oob += self.ssd.nand.oob_bytes
        return 0

    # --- recovery: the VBT stays as the checkpoint has it until every LPA is settled

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        cdef uint32_t vba, hid = scheme_oob[4], block = ppa // self.ssd.nand.pages_per_block
        memcpy(&vba, scheme_oob, 4)
        if (hid == 0 or hid > HIDS or vba >= self.virtual_blocks
                or (self.hasher.place_of(lpa, hid) != vba) != (scheme_oob[5] == 1)):
            with gil:
                raise CorruptError(f"PPA {ppa}: LPA {lpa} is stamped with HID {hid} and VBA {vba}: they do not agree")
        self.primary.set_entry(lpa, hid, ppa % self.ssd.nand.pages_per_block)
        if self.found_in[block] == vba and not scheme_oob[5]:
            return 0
        with gil:
            self.found.setdefault(vba, set()).add(block)
            self.found_in[block] = vba
            if scheme_oob[5] and lpa not in self.found_shared:
                self.found_shared.add(lpa)
                self.count_shared(self.hasher.place_of(lpa, hid), 1)
        return 0

    cdef blocks_with_pages(self, uint32_t vba):
        """Blocks that hold live pages of ``vba``, oldest first. The block in the checkpoint's VBT may belong to another
        virtual block by now."""
        blocks = set(self.found.get(vba, ()))
        base = self.block_of(vba)
        if base != NONE and (self.found_in[base] == vba or self.found_in[base] == NONE):
            blocks.add(base)
        live = [block for block in blocks if self.ssd.validity.count(block)]
        return sorted(live, key=lambda block: self.ssd.pool.describe(block)["order"])

    def recovery_conflicts(self, bint hurt):
        """Blocks to drop where a VBA has several with live pages: a move lost pages with the host, but pages written
        after it were kept. The newer block is dropped: none of its pages was ever flushed. Without a checkpoint the
        older one is dropped: its live pages were trimmed, and the trims are lost. Likewise if a page is missing and the
        newer block was flushed: the older one's live pages had been superseded by the missing page."""
        cdef uint32_t newest
        out = []
        for vba in self.found:
            blocks = self.blocks_with_pages(vba)
            if len(blocks) < 2:
                continue
            newest = blocks[len(blocks) - 1]
            older_go = self.from_nothing or hurt and self.ssd.nand.synced(newest) > 0
            out += blocks[:-1] if older_go else blocks[1:]
        return out

    def recovery_erased(self):
        """Blocks of which a live page reads as erased: either their erase was interrupted by the power cut, or the host
        lost the erase and kept what was programmed after it. All their pages were superseded. Only a scheme that reads
        flash to locate a page can find such a block."""
        return self.half_erased

    def recovery_reopens(self):
        return True

    def recovery_restamps(self):
        """A page of a virtual block that makes way gets another VBA and another HID."""
        return True

    def recovery_steps(self):
        return (("vbt", "blocks", "point each virtual block at the block that holds its pages", self.point_vbt),)

    def recovery_ends(self):
        if self.recovering or self.found:
            self.point_vbt()

    def point_vbt(self):
        """Point each virtual block at the block that still has live pages of it, out of those found."""
        cdef uint32_t vba, block
        fresh = []
        for vba in range(self.virtual_blocks):
            if self.found:
                blocks = self.blocks_with_pages(vba)
                fresh.append(blocks[0] if blocks else NONE)
            else:
                fresh.append(self.block_of(vba))
        standing = set()
        for vba, block in enumerate(fresh):
            if block != NONE and self.ssd.pool.state[block] not in (STATE_OPEN, STATE_CLOSED):
                if self.ssd.validity.count(block):
                    raise CorruptError(f"block {block}: it holds pages of VBA {vba}, and is bad or metadata")
                block = NONE
            if block in standing:
                raise CorruptError(f"block {block}: its pages are stamped with VBA {vba} and with another")
            standing |= {block} - {NONE}
            self.set_block(vba, block)
        self.recovering = False
        self.forget_found()
        return f"{len(standing)} of {self.virtual_blocks} have one"

    def forget_found(self):
        self.found = {}
        memset(self.found_in, 0xFF, self.ssd.nand.blocks * 4)
        self.found_shared = set()

    # --- the rest of the interface

    def reset(self):
        cdef uint32_t vba
        self.primary.clear()
        for vba in range(self.virtual_blocks):
            if self.vbt[vba]:               # what was never written stays without memory
                self.vbt[vba] = 0
        self.standing = 0
        self.recovering = True
        self.from_nothing = True
        self.half_erased = set()
        self.forget_found()

    def save(self):
        if not self.ssd.fills():
            return {"primary": self.primary.save(), OLDER_VBT: (self.lines() ^ numpy.uint32(NO_BLOCK)).tobytes()}
        return {"primary": self.primary.save(), VBT: self.lines().view(numpy.uint8)}

    def lines(self):
        """The VBT as an array of u32."""
        return array_u32(self.vbt, self.virtual_blocks)

    def load(self, sections):
        """``VBT`` as in DRAM, or ``OLDER_VBT``."""
        cdef const uint8_t[::1] lines
        name = VBT if VBT in sections else OLDER_VBT
        vbt = numpy.frombuffer(sections[name], "<u4") if len(sections[name]) % 4 == 0 else ()
        if len(vbt) != self.virtual_blocks:
            raise ValueError(f"VBT of {len(sections[name])} bytes: {self.virtual_blocks * 4} are needed")
        self.reset()
        self.from_nothing = False
        self.primary.load(sections["primary"], self.ssd.nand.pages_per_block)
        if name == OLDER_VBT:
            vbt = vbt ^ numpy.uint32(NO_BLOCK)
        lines = vbt.view(numpy.uint8)
        copy_into_zeros(<uint8_t*> self.vbt, &lines[0], self.virtual_blocks * 4)
        self.standing = numpy.count_nonzero(vbt & numpy.uint32(NO_BLOCK))
        self.require_range()

    cdef int require_range(self) except -1:
        """Check that every block in the VBT exists and stands for one VBA."""
        cdef uint32_t vba, block
        standing = bytearray(self.ssd.nand.blocks)
        cdef uint8_t[::1] seen = standing
        for vba in range(self.virtual_blocks):
            block = self.block_of(vba)
            if block == NONE:
                continue
            if block >= self.ssd.nand.blocks or seen[block]:
                raise ValueError(f"VBA {vba} has block {block}, which does not exist or stands for another VBA")
            seen[block] = 1
        return 0

    cdef int require_standing(self) except -1:
        """Check the state of every block in the VBT: a free block or one of metadata would be freed a second time."""
        cdef uint32_t vba, block
        for vba in range(self.virtual_blocks):
            block = self.block_of(vba)
            if block != NONE and self.ssd.pool.state[block] not in (STATE_OPEN, STATE_CLOSED, STATE_BAD):
                raise ValueError(f"VBA {vba} has block {block}, which is {self.ssd.pool.describe(block)['state']}")
        return 0

    def verify(self, bint whole=True):
        """Each block in the VBT is in use, as the pool has it; each mapped LPA maps to a live page, and no two to one.
        If pages were shared, an LPA's page is known only by reading OOBs, so these decide later. An entry for a dead
        page is an error: once its virtual block is cleaned, it would name another LPA's page, and the next write would
        kill that."""
        cdef MapCheck agreement = MapCheck(self.ssd)
        cdef uint32_t lpa, hid, home, block
        cdef uint64_t shared = 0
        self.require_standing()
        lpa = self.primary.next_used(0, self.ssd.lpas)
        while lpa < self.ssd.lpas:
            hid = self.primary.entry(lpa) >> self.ppid_bits
            home = self.hasher.place_of(lpa, hid) if hid else 0
            block = self.block_of(home)
            if hid and self.shared_from(home):
                shared += 1
            elif hid and block == NONE:
                raise ValueError(f"LPA {lpa} is in VBA {home}, for which no block stands")
            elif hid:
                agreement.require(lpa, block * self.ssd.nand.pages_per_block
                                  + (self.primary.entry(lpa) & self.ppid_mask))
            lpa = self.primary.next_used(lpa + 1, self.ssd.lpas)
        wrong = agreement.fault_of_all(0)
        if wrong is not None and not shared:
            raise ValueError(wrong)

    def device_ready(self):
        """Set ``exact``: if pages were shared, damage may have left an LPA without a page, or a page without an LPA."""
        cdef uint32_t block
        cdef uint64_t live = 0
        for block in range(self.ssd.nand.blocks):
            live += self.ssd.validity.count(block)
        self.exact = live == self.primary.count_mapped()

    cdef uint32_t next_named(self, uint32_t lpa, uint32_t end) noexcept nogil:
        return self.primary.next_used(lpa, end)

    cdef int64_t pages_named(self) except -2 nogil:
        return <int64_t> self.primary.count_mapped() if self.exact else -1

    def tables(self):
        return {
            "primary_table": (self.primary.bytes, self.primary.bytes + 8 + self.hasher.heap_bytes),
            "virtual_block_table": (self.virtual_blocks * 4, self.virtual_blocks * 4),
        }

    def figures(self):
        return {
            "entry_bits": self.entry_bits,
            "virtual_blocks": self.virtual_blocks,
            "shared_pages": self.shared_pages,
            "probes": self.probes,
            "probe_spare_reads": self.probe_reads,
        }

    def forget_counts(self):
        self.probes = self.probe_reads = 0

    def explain(self, uint32_t lpa):
        cdef uint32_t entry = self.primary.entry(lpa), ppa = NONE, hid = entry >> self.ppid_bits
        if hid == 0:
            return {"hid": 0, "ppid": None, "vba": None, "pba": None, "shared_from": None, "ppa": None}
        home = self.hasher.place_of(lpa, hid)
        self.lookup(&lpa, 1, &ppa)
        return {
            "hid": hid,
            "ppid": entry & self.ppid_mask,
            "vba": home,
            "pba": None if self.block_of(home) == NONE else self.block_of(home),
            "shared_from": self.shared_from(home),
            "ppa": None if ppa == NONE or ppa == NOWHERE else ppa,
        }

    def blocks_and_shares(self):
        """The VBT as two arrays: the block that stands for each virtual block, 2^32 - 1 for none, and how many of the
        virtual block's pages are elsewhere."""
        words = self.lines()
        blocks = ~words & numpy.uint32(NO_BLOCK)
        blocks[blocks == NO_BLOCK] = NONE
        return blocks, words >> numpy.uint32(24)

    def virtual_block(self, uint32_t vba):
        """One entry of the VBT."""
        block = self.block_of(vba)
        return {"vba": vba, "pba": None if block == NONE else block, "shared": self.shared_from(vba)}

    def check(self):
        """No block stands for two VBAs; those in the VBT are open or closed; every block with live pages is in the
        VBT."""
        cdef uint32_t vba, block
        problems = []
        owner = {}
        for vba in range(self.virtual_blocks):
            block = self.block_of(vba)
            if block == NONE:
                continue
            if block in owner:
                problems.append(f"block {block}: stands for VBA {owner[block]} and for VBA {vba}")
            owner[block] = vba
            if self.ssd.pool.state[block] not in (STATE_OPEN, STATE_CLOSED):
                problems.append(f"VBA {vba}: block {block} is {self.ssd.pool.describe(block)['state']}")
        for block in range(self.ssd.pool.blocks):
            if self.ssd.validity.count(block) and block not in owner:
                problems.append(f"block {block}: holds live pages but stands for no VBA")
        return problems

    cdef uint32_t vba_standing(self, uint32_t block) noexcept nogil:
        """The VBA that a block stands for: a linear search of the VBT, for wear levelling and retirement only."""
        cdef uint32_t vba
        for vba in range(self.virtual_blocks):
            if ~self.vbt[vba] & NO_BLOCK == block:
                return vba
        return NONE
