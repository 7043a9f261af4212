# distutils: language = c++
"""The remapping metadata (RMM) of Remap-SSD in NVRAM (sections 4.2 to 4.4): an entry for each LPA that was remapped to
a page of another, in a segment of that page's superblock.

A segment, ``segment_bytes`` of the region, is a head followed by entries, which are appended. Words have 64 bits, bit 0
the lowest. An entry is two words (table 2 of the paper), or three where commands are atomic:

    word 0   0       torn bit: 1
             1..21   page within the superblock: PPA - superblock * dies * pages of a block
             22..63  sequence number of the remap, its lowest 42 bits
    word 1   0       torn bit: 1
             1..31   LPA
             32      flag: the remap unmapped its source
             33..63  source, if the flag is set; else the order of the page's block, its lowest 31 bits, or all ones
    word 2   0       torn bit: 1
             1..31   first LPA of the command
             32..62  its LPAs, less one
             63      1

Before the segments are 64 bytes. Their first word is the sequence number up to which commands are whole; it is used
only where commands are atomic.

    head
    word 0   0       torn bit: 1
             1..48   stamp: the order of the block that was opened last when the segment was taken
             49..54  bits 42 to 47 of the sequence numbers of its entries
    word 1   0       torn bit: 1
             1..20   superblock
             21..39  number among the segments of its group with the same stamp
             40..63  the next segment of the group, plus one; 0: it is the last

Points that the paper leaves open. *Which page.* A block may have been erased and rewritten since an entry was made, so
that other pages lie there. A block's order says when it was opened; an entry is about the current page only if that was
not after the stamp of its segment. So an entry about a block that was opened later begins a new segment. *When a
segment may be reused.* What replaced its entries, or made them needless, must be durable first: so not before the next
sync of the image. *Torn heads.* A head is stored after the segment's entries are zeroed, and is the first to be zeroed.

*When a command is whole.* A crash may leave only some of its entries; they count if there is one for each LPA. Later,
invalid entries are dropped. So before a segment with entries up to some sequence number is freed, that number is stored
before the segments, and made durable.

An LPA that the LR bitmap names has exactly one valid entry. Of two entries with the same content for an LPA, the one
with the higher sequence number counts.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport CAUSE_MAP, CAUSE_RECOVERY, NONE, order_runs_out, runs_out
from flashfs.engine.device.ssd cimport Ssd

import numpy

cdef extern from "huge.h" nogil:
    void zero_memory(void* at, size_t bytes)
    size_t zeros_from(const void* at, size_t bytes)

cdef enum:
    FRONT_BYTES = 64         # of the region, before the segments
    HOST_PAGE = 4096         # bytes: of one page of the file, a host that dies leaves the state of one moment
    SEQ_BITS = 42
    PAGE_BITS = 21
    LPA_BITS = 31
    NUMBER_BITS = 19
    SUPERBLOCK_BITS = 20
    ORDER_BITS = 48
    SEGMENTS_MOST = (1 << 24) - 2

cdef uint64_t LPA_MASK = (<uint64_t> 1 << LPA_BITS) - 1
cdef uint64_t[128] ZEROS

REGION = "rmm"
LPAS_MOST = 0x7FFFFFFE  # 31 bits; all ones stand for none
CLAIM = numpy.dtype([("lpa", "<u4"), ("ppa", "<u4"), ("seq", "<u8"), ("source", "<u4"), ("stamp", "<u8"),
                     ("order", "<u4"), ("first", "<u4"), ("n", "<u4"), ("segment", "<u4"), ("slot", "<u4")])


cdef class Rmm:
    """RMM in the region ``rmm`` of the chip's NVRAM; without such a region there is no room for an entry. The mapping
    sets ``table`` (the page table). Before ``attach`` only the bytes in NVRAM are used: a recovery calls ``claims``."""

    def __cinit__(self, Engine ssd not None, uint32_t segment_bytes, uint32_t entry_bytes, uint32_t reserve, *_):
        cdef uint32_t i
        found = ssd.nand.region(REGION)
        if found is None:                  # then nothing is remapped
            found = 0, FRONT_BYTES
        elif found[1] < FRONT_BYTES + 2 * segment_bytes:
            raise ValueError(f"NVRAM region {REGION}: use two segments of {segment_bytes} bytes")
        self.ssd = ssd
        self.front_at = found[0]
        self.at = found[0] + FRONT_BYTES
        self.segment_bytes = segment_bytes
        self.entry_bytes = entry_bytes
        self.slots = segment_bytes // entry_bytes - 1
        self.segments = min(<uint64_t> SEGMENTS_MOST, <uint64_t> ((found[1] - FRONT_BYTES) // segment_bytes))
        self.superblocks = ssd.nand.blocks // ssd.nand.dies
        self.pages = <uint64_t> ssd.nand.dies * ssd.nand.pages_per_block
        if self.superblocks >> SUPERBLOCK_BITS or self.pages >> PAGE_BITS or ssd.lpas > LPAS_MOST:
            raise ValueError("an entry has room for 2^20 superblocks, 2^21 pages of one, and 2^31 - 2 LPAs")
        self.reserve = min(reserve, <uint32_t> (self.segments // 2))
        self.groups = <Group*> calloc(self.superblocks, sizeof(Group))
        self.next_of = <uint32_t*> malloc(self.segments * 4 + 4)
        self.fill = <uint32_t*> calloc(self.segments + 1, 4)
        self.dirty = <uint8_t*> calloc(self.segments + 1, 1)
        self.ring = <uint32_t*> malloc(self.segments * 4 + 4)
        self.retired = <uint32_t*> malloc(self.segments * 4 + 4)
        self.listed = <uint32_t*> malloc(self.segments * 4 + 4)
        self.retired_at = <uint64_t*> malloc(self.segments * 8 + 8)
        self.lr = <uint64_t*> calloc(ssd.lpas // 64 + 1, 8)
        self.brought_to = <uint8_t*> malloc(self.pages)
        self.counted = NONE
        if not (self.brought_to and self.groups and self.next_of and self.fill and self.dirty and self.ring
                and self.listed and self.retired and self.retired_at and self.lr):
            raise MemoryError
        self.forget()
        for i in range(self.segments):
            self.ring[i] = i
        self.free_n = self.segments

    def __dealloc__(self):
        free(self.groups)
        free(self.next_of)
        free(self.fill)
        free(self.dirty)
        free(self.ring)
        free(self.listed)
        free(self.retired)
        free(self.retired_at)
        free(self.lr)
        free(self.brought_to)

    def forget(self):
        """Make it empty: no group has a segment, and no LPA is remapped."""
        cdef uint64_t i
        for i in range(self.superblocks):
            memset(self.groups + i, 0, sizeof(Group))
            self.groups[i].first = self.groups[i].last = NONE
        zero_memory(self.lr, (self.ssd.lpas // 64 + 1) * 8)
        self.counted = NONE
        self.free_n = self.retired_n = self.used_n = self.valid_n = 0
        self.ring_at = self.retired_from = self.gave_up_at = self.proved_at = self.proved_sync = 0
        self.durable_seq = self.retired_since = 0

    # --- the bytes

    cdef const uint8_t* segment_at(self, uint32_t segment) noexcept nogil:
        return <const uint8_t*> self.begin + <uint64_t> segment * self.segment_bytes

    cdef bint head(self, uint32_t segment, uint64_t* stamp, uint64_t* high, uint32_t* superblock, uint32_t* number,
                   uint32_t* behind) noexcept nogil:
        """Read a segment's head; False if the segment is in no group."""
        cdef const uint64_t* words = <const uint64_t*> self.segment_at(segment)
        if not words[0] & words[1] & 1:
            return False
        stamp[0] = words[0] >> 1 & ((<uint64_t> 1 << ORDER_BITS) - 1)
        high[0] = words[0] >> 49 & 63
        superblock[0] = <uint32_t> (words[1] >> 1) & ((1 << SUPERBLOCK_BITS) - 1)
        number[0] = <uint32_t> (words[1] >> 21) & ((1 << NUMBER_BITS) - 1)
        behind[0] = <uint32_t> (words[1] >> 40) - 1
        return superblock[0] < self.superblocks and not order_runs_out(stamp[0])

    cdef bint is_written(self, uint32_t segment, uint32_t slot) noexcept nogil:
        """Whether anything was stored there."""
        cdef const uint64_t* words = <const uint64_t*> (self.segment_at(segment) + (slot + 1) * self.entry_bytes)
        return (words[0] | words[1]) != 0

    cdef bint entry(self, uint32_t segment, uint32_t slot, uint64_t high, uint32_t superblock,
                    Claim* claim) noexcept nogil:
        """Read the entry in that slot of a segment whose head has ``high`` and ``superblock``; False if it is torn or
        missing, or says what no entry says."""
        cdef const uint64_t* words = <const uint64_t*> (self.segment_at(segment) + (slot + 1) * self.entry_bytes)
        if not words[0] & words[1] & 1 or (self.entry_bytes == 24 and not words[2] & 1):
            return False
        claim.ppa = <uint32_t> (superblock * self.pages + (words[0] >> 1 & ((1 << PAGE_BITS) - 1)))
        claim.seq = words[0] >> 22 | high << SEQ_BITS
        claim.lpa = <uint32_t> (words[1] >> 1 & LPA_MASK)
        claim.source = claim.order = <uint32_t> (words[1] >> 33)
        if words[1] >> 32 & 1:
            claim.order = NONE
        else:
            claim.source = NONE
            if claim.order == LPA_MASK:
                claim.order = NONE
        claim.n = 0
        if self.entry_bytes == 24:
            claim.first = <uint32_t> (words[2] >> 1 & LPA_MASK)
            claim.n = <uint32_t> (words[2] >> 32 & LPA_MASK) + 1
        return (claim.lpa < self.ssd.lpas and (words[0] >> 1 & ((1 << PAGE_BITS) - 1)) < self.pages
                and (claim.source == NONE or claim.source < self.ssd.lpas) and not runs_out(claim.seq))

    cdef int take(self, const Claim* claim, int cause) except -1 nogil:
        """Store an entry in its superblock's group. The caller has made sure that segments are free."""
        cdef uint32_t superblock = <uint32_t> (claim.ppa // self.pages)
        cdef Group* group = self.groups + superblock
        cdef uint64_t high = claim.seq >> SEQ_BITS
        cdef uint64_t[3] words
        if (group.last == NONE or self.fill[group.last] == self.slots or group.high != high
                or self.ssd.pool.order[claim.ppa // self.ssd.nand.pages_per_block] > group.stamp):
            self.chain(superblock, high, cause)
        words[0] = 1 | (claim.ppa - superblock * self.pages) << 1 | claim.seq << 22
        words[1] = 1 | <uint64_t> claim.lpa << 1
        if claim.source != NONE:
            words[1] |= <uint64_t> 1 << 32 | <uint64_t> claim.source << 33
        else:
            words[1] |= <uint64_t> self.order_at(claim.ppa) << 33
        words[2] = 1 | <uint64_t> claim.first << 1 | <uint64_t> (claim.n - 1) << 32 | <uint64_t> 1 << 63
        self.ssd.map_ns = self.ssd.nand.nvram_store(
            self.at + <uint64_t> group.last * self.segment_bytes + (self.fill[group.last] + 1) * self.entry_bytes,
            words, self.entry_bytes, cause, self.ssd.map_ns)
        self.changes += 1
        self.fill[group.last] += 1
        group.used += 1
        self.used_n += 1
        return 0

    cdef int append(self, const Claim* claim, int cause) except -1 nogil:
        """As ``take``; marks the entry as valid and its LPA as remapped."""
        self.take(claim, cause)
        self.lr[claim.lpa >> 6] |= <uint64_t> 1 << (claim.lpa & 63)
        self.groups[claim.ppa // self.pages].valid += 1
        self.valid_n += 1
        self.taken_n += 1
        self.logged(claim)
        return 0

    cdef uint32_t chain(self, uint32_t superblock, uint64_t high, int cause) except? 0xFFFFFFFE nogil:
        """Append a fresh segment to that group."""
        cdef Group* group = self.groups + superblock
        cdef uint32_t segment
        cdef uint64_t at
        cdef uint64_t[2] words
        if self.free_n == 0:
            with gil:
                raise RuntimeError(f"NVRAM: no segment is free for an entry of superblock {superblock}")
        segment = self.ring[self.ring_at]
        self.ring_at = (self.ring_at + 1) % self.segments
        self.free_n -= 1
        at = self.at + <uint64_t> segment * self.segment_bytes
        if self.dirty[segment]:
            self.wipe(segment, cause)
        if self.ssd.pool.last_order != group.stamp or group.last == NONE:
            group.number = 0
        words[0] = 1 | self.ssd.pool.last_order << 1 | high << 49
        words[1] = 1 | <uint64_t> superblock << 1 | <uint64_t> group.number << 21
        self.dirty[segment] = 1
        self.ssd.map_ns = self.ssd.nand.nvram_store(at, words, 16, cause, self.ssd.map_ns)
        if group.last != NONE:
            self.next_of[group.last] = segment
            words[1] = (<const uint64_t*> self.segment_at(group.last))[1] & ((<uint64_t> 1 << 40) - 1)
            words[1] |= <uint64_t> (segment + 1) << 40
            self.ssd.map_ns = self.ssd.nand.nvram_store(
                self.at + <uint64_t> group.last * self.segment_bytes + 8, words + 1, 8, cause, self.ssd.map_ns)
        else:
            group.first = segment
        group.last = segment
        group.stamp = self.ssd.pool.last_order
        group.high = high
        group.number = (group.number + 1) & ((1 << NUMBER_BITS) - 1)
        group.segments += 1
        self.largest_group = max(self.largest_group, <uint64_t> group.segments)
        self.next_of[segment] = NONE
        self.fill[segment] = 0
        return segment

    # --- which entries count

    cdef bint is_remapped(self, uint32_t lpa) noexcept nogil:
        """Whether the LPA is at its page because of a remap (LR bitmap)."""
        return self.lr[lpa >> 6] >> (lpa & 63) & 1

    cdef bint holds(self, const Claim* claim, uint64_t stamp) noexcept nogil:
        """Whether an entry of a segment with that stamp is valid: of several for an LPA, the caller must ask for the
        newest first."""
        return self.is_remapped(claim.lpa) and self.matches(claim, stamp)

    cdef uint32_t order_at(self, uint32_t ppa) noexcept nogil:
        """The order of the page's block, as an entry has it."""
        return <uint32_t> (self.ssd.pool.order[ppa // self.ssd.nand.pages_per_block] & LPA_MASK)

    cdef bint matches(self, const Claim* claim, uint64_t stamp) noexcept nogil:
        """As ``holds``, if the LPA is remapped."""
        return (~self.table[claim.lpa] == claim.ppa
                and self.ssd.pool.order[claim.ppa // self.ssd.nand.pages_per_block] <= stamp
                and (claim.order == NONE or claim.order == self.order_at(claim.ppa)))

    cdef uint32_t nth_valid(self, uint32_t superblock, uint32_t block, uint64_t n) noexcept nogil:
        """The LPA of a valid entry of that superblock, or of that block of it alone, after skipping ``n`` of them; or
        NONE. ``block`` NONE: any."""
        cdef uint32_t segment = self.groups[superblock].first, slot, number, behind, of
        cdef uint64_t stamp, high
        cdef Claim claim
        while segment != NONE:
            if self.head(segment, &stamp, &high, &of, &number, &behind):
                for slot in range(self.fill[segment]):
                    if (self.entry(segment, slot, high, superblock, &claim)
                            and (block == NONE or claim.ppa // self.ssd.nand.pages_per_block == block)
                            and self.holds(&claim, stamp)):
                        if n == 0:
                            return claim.lpa
                        n -= 1
            segment = self.next_of[segment]
        return NONE

    cdef uint32_t brought(self, uint32_t ppa) noexcept nogil:
        """How many LPAs valid entries brought to that page. A superblock's pages are counted together, and again when
        entries are added or become invalid."""
        cdef uint32_t superblock = <uint32_t> (ppa // self.pages)
        if self.groups[superblock].valid == 0:
            return 0
        if self.counted != superblock or self.counted_at != self.changes:
            memset(self.brought_to, 0, self.pages)
            self.pass_through(superblock, True)   # an LPA that was counted loses its bit, so it counts once
            self.pass_through(superblock, False)
            self.counted = superblock
            self.counted_at = self.changes
        return self.brought_to[ppa - superblock * self.pages]

    cdef uint64_t valid_of(self, uint32_t superblock, uint32_t block) noexcept nogil:
        """How many LPAs valid entries brought to the superblock, or to that block of it. ``block`` NONE: any."""
        cdef uint64_t n = 0
        cdef uint32_t page
        if block == NONE or self.groups[superblock].valid == 0:
            return self.groups[superblock].valid
        for page in range(self.ssd.nand.pages_per_block):
            n += self.brought(block * self.ssd.nand.pages_per_block + page)
        return n

    cdef int pass_through(self, uint32_t superblock, bint counting) noexcept nogil:
        """Count each LPA at its page, and clear its bit in the LR bitmap; or, not ``counting``, set those bits
        again."""
        cdef uint32_t segment = self.groups[superblock].first, slot, number, behind, of
        cdef uint64_t stamp, high
        cdef Claim claim
        while segment != NONE:
            if self.head(segment, &stamp, &high, &of, &number, &behind):
                for slot in range(self.fill[segment]):
                    if not self.entry(segment, slot, high, superblock, &claim):
                        continue
                    if counting and self.holds(&claim, stamp):
                        self.brought_to[claim.ppa - superblock * self.pages] += 1
                        self.lr[claim.lpa >> 6] &= ~(<uint64_t> 1 << (claim.lpa & 63))
                    elif not counting and self.matches(&claim, stamp):
                        self.lr[claim.lpa >> 6] |= <uint64_t> 1 << (claim.lpa & 63)
            segment = self.next_of[segment]
        return 0

    cdef int leave(self, uint32_t lpa, uint32_t ppa) noexcept nogil:
        """The LPA leaves that page: its entry, if it has one, becomes invalid."""
        cdef Group* group
        if not self.is_remapped(lpa):
            return 0
        self.changes += 1
        self.lr[lpa >> 6] &= ~(<uint64_t> 1 << (lpa & 63))
        group = self.groups + ppa // self.pages
        group.valid -= 1
        self.valid_n -= 1
        if group.valid == 0:
            self.give_up(ppa // self.pages)
        return 0

    # --- segments are given up, and reused

    cdef int give_up(self, uint32_t superblock) noexcept nogil:
        """No entry of the group is valid: retire its segments, which are free after a sync has made the reason
        durable."""
        cdef Group* group = self.groups + superblock
        cdef uint32_t segment = group.first, behind
        while segment != NONE:
            behind = self.next_of[segment]
            self.retire(segment)
            segment = behind
        self.used_n -= group.used
        group.first = group.last = NONE
        group.segments = group.used = group.valid = 0
        return 0

    cdef int retire(self, uint32_t segment) noexcept nogil:
        cdef uint64_t place = (self.retired_from + self.retired_n) % self.segments
        self.retired[place] = segment
        self.retired_at[place] = self.ssd.image_syncs
        if self.retired_since < self.ssd.image_syncs:  # earlier ones were stored before a sync
            self.durable_seq = self.retired_seq
            self.retired_since = self.ssd.image_syncs
        self.retired_seq = (<Ssd> self.ssd).seq
        self.retired_n += 1
        return 0

    cdef int harvest(self) except -1 nogil:
        """Free the segments that were retired before the last sync; those that cross a page are wiped then, and free
        after another one."""
        cdef uint32_t segment
        cdef uint64_t before = self.ssd.image_syncs, place
        cdef uint64_t[2] none
        none[0] = none[1] = 0
        if self.entry_bytes == 24 and self.retired_n:
            if not self.prove_whole():
                return 0
            before = self.proved_at
        while self.retired_n and self.retired_at[self.retired_from] < before:
            segment = self.retired[self.retired_from]
            self.retired_from = (self.retired_from + 1) % self.segments
            self.retired_n -= 1
            if self.dirty[segment] and self.crosses(segment):
                self.wipe(segment, CAUSE_MAP)
                place = (self.retired_from + self.retired_n) % self.segments
                self.retired[place] = segment
                self.retired_at[place] = self.ssd.image_syncs
                self.retired_n += 1
                continue
            if self.dirty[segment]:
                self.ssd.map_ns = self.ssd.nand.nvram_store(self.at + <uint64_t> segment * self.segment_bytes, none, 16,
                                                            CAUSE_MAP, self.ssd.map_ns)
            self.ring[(self.ring_at + self.free_n) % self.segments] = segment
            self.free_n += 1
        return 0

    cdef bint crosses(self, uint32_t segment) noexcept nogil:
        """Whether the segment lies in more than one page of the host's memory. A host that dies may keep some of those
        pages as they were at the last sync: a new head with the entries of another superblock under it. So such a
        segment is zeros, durably, before it gets its head."""
        return (self.at + <uint64_t> segment * self.segment_bytes) % HOST_PAGE + self.segment_bytes > HOST_PAGE

    cdef int wipe(self, uint32_t segment, int cause) except -1 nogil:
        """Set the segment to zeros."""
        cdef uint64_t done = 0, n, at = self.at + <uint64_t> segment * self.segment_bytes
        while done < self.segment_bytes:
            n = min(self.segment_bytes - done, <uint64_t> sizeof(ZEROS))
            self.ssd.map_ns = self.ssd.nand.nvram_store(at + done, ZEROS, n, cause, self.ssd.map_ns)
            done += n
        self.dirty[segment] = 0
        return 0

    cdef bint prove_whole(self) except -1 nogil:
        """Whether it is durable that the commands with entries in the oldest retired segment are whole. If not, their
        highest sequence number is stored, and the next sync makes it durable. Commands since the last sync cannot be
        proved: a host that dies may lose some of their entries, and keep the number."""
        cdef uint64_t seq
        if self.retired_at[self.retired_from] < self.proved_at:
            return self.proved_sync < self.ssd.image_syncs
        if self.retired_at[self.retired_from] < self.ssd.image_syncs:
            seq = self.retired_seq if self.retired_since < self.ssd.image_syncs else self.durable_seq
            self.ssd.map_ns = self.ssd.nand.nvram_store(self.front_at, &seq, 8, CAUSE_MAP, self.ssd.map_ns)
            self.proved_at = self.proved_sync = self.ssd.image_syncs
        return False

    cdef uint64_t segments_for(self, uint64_t claims) noexcept nogil:
        return (claims + self.slots - 1) // self.slots

    cdef bint gain(self, uint64_t wanted) except -1 nogil:
        """Make so many segments free, if possible: by a sync, or by compacting the groups with the most invalid entries
        (active NVRAM GC). Returns whether they are."""
        cdef uint32_t superblock
        self.harvest()
        if not self.takes_more():
            return False
        while self.free_n < wanted:
            if self.free_n + self.retired_n >= wanted:
                self.forced_syncs += 1
                self.ssd.barrier()
                self.harvest()
                continue
            if self.used_n - self.valid_n < self.gave_up_at:
                return False               # little has changed since the last failure
            superblock = self.worst()
            if superblock == NONE:
                if self.retired_n:         # a compaction may then have the segments that it needs
                    self.forced_syncs += 1
                    self.ssd.barrier()
                    self.harvest()
                    continue
                self.gave_up_at = self.used_n - self.valid_n + self.slots
                return False
            self.compact(superblock)
        self.gave_up_at = 0
        return True

    # --- overridden by rivals (rivals.pyx)

    cdef uint64_t entries_most(self) noexcept nogil:
        """The number of entries that there is room for."""
        return self.segments * self.slots

    cdef int logged(self, const Claim* claim) noexcept nogil:
        """Called when a new entry was stored."""
        return 0

    cdef bint takes_more(self) except -1 nogil:
        """Whether there may be room for another request's entries, apart from segments."""
        return True

    cdef int housekeep(self) except -1 nogil:
        """Called between requests."""
        return 0

    cdef bint looks_up(self, uint32_t superblock) noexcept nogil:
        """Whether cleaning of that superblock must look entries up."""
        return self.groups[superblock].segments > 0

    cdef int64_t charge_lookup(self, uint32_t superblock, int cause, int64_t t_ns) except -1 nogil:
        """Charge the time to find the entries of a superblock, by reading its group; returns the virtual end time."""
        return self.charge_group(superblock, cause, t_ns)

    cdef int charge_compaction(self, uint32_t superblock) except -1 nogil:
        """Charge the time to find the entries that a compaction rewrites."""
        self.ssd.map_ns = self.charge_lookup(superblock, CAUSE_MAP, self.ssd.map_ns)
        return 0

    cdef uint32_t pages_n(self) noexcept nogil:
        """Pages of flash with entries."""
        return 0

    def owner(self):
        """The owner of those pages; None if there can be none."""
        return None

    def reset_pages(self):
        """A load or a recovery begins: drop those pages."""

    # --- compaction

    cdef uint32_t worst(self) noexcept nogil:
        """The group with the most invalid entries among those that free a segment and can be rewritten; or NONE."""
        cdef uint32_t i, best = NONE
        cdef Group* group
        for i in range(<uint32_t> self.superblocks):
            group = self.groups + i
            if (group.segments > self.segments_for(group.valid) and self.segments_for(group.valid) <= self.free_n
                    and (best == NONE or group.used - group.valid > self.groups[best].used - self.groups[best].valid)):
                best = i
        return best

    cdef int compact(self, uint32_t superblock) except -1 nogil:
        """Write the group's valid entries to fresh segments."""
        cdef Group* group = self.groups + superblock
        cdef uint32_t old_used = group.used
        cdef uint64_t i, n = self.list_group(superblock)
        cdef uint32_t segment, slot, number, behind, of
        cdef uint64_t stamp, high
        cdef Claim claim
        self.charge_compaction(superblock)
        group.first = group.last = NONE
        group.segments = group.used = 0
        self.used_n -= old_used
        self.compacted_n += 1
        for i in range(n, 0, -1):          # the newest first: it is the one that counts
            segment = self.listed[i - 1]
            if not self.head(segment, &stamp, &high, &of, &number, &behind):
                continue
            for slot in range(self.fill[segment], 0, -1):
                if self.entry(segment, slot - 1, high, superblock, &claim) and self.holds(&claim, stamp):
                    claim.source = NONE     # the trim is logged before the segment that records it is freed
                    self.take(&claim, CAUSE_MAP)
                    self.lr[claim.lpa >> 6] &= ~(<uint64_t> 1 << (claim.lpa & 63))
                    self.carried_n += 1
        for i in range(n):
            self.retire(self.listed[i])
        self.name_all(superblock)
        return 0

    cdef int name_all(self, uint32_t superblock) noexcept nogil:
        """Set the LR bits of all entries of the group."""
        cdef uint32_t segment = self.groups[superblock].first, slot, number, behind, of
        cdef uint64_t stamp, high
        cdef Claim claim
        while segment != NONE:
            self.head(segment, &stamp, &high, &of, &number, &behind)
            for slot in range(self.fill[segment]):
                if self.entry(segment, slot, high, superblock, &claim):
                    self.lr[claim.lpa >> 6] |= <uint64_t> 1 << (claim.lpa & 63)
            segment = self.next_of[segment]
        return 0

    cdef uint64_t list_group(self, uint32_t superblock) noexcept nogil:
        """List the group's segments in ``listed``, the oldest first; returns how many."""
        cdef uint32_t segment = self.groups[superblock].first
        cdef uint64_t n = 0
        while segment != NONE:
            self.listed[n] = segment
            n += 1
            segment = self.next_of[segment]
        return n

    cdef int carry(self, uint32_t superblock, const uint32_t* new_of, uint32_t* table, int cause) except -1 nogil:
        """Pages of that superblock were copied: ``new_of`` has the PPA of the copy by number of the page, NONE for the
        others. Each LPA of an entry for such a page moves to the copy, with a new entry under the same sequence
        number."""
        cdef uint64_t i, n = self.list_group(superblock)
        cdef uint32_t segment, slot, number, behind, of, old
        cdef uint64_t stamp, high
        cdef Claim claim
        for i in range(n, 0, -1):
            segment = self.listed[i - 1]
            if not self.head(segment, &stamp, &high, &of, &number, &behind):
                continue
            for slot in range(self.fill[segment], 0, -1):
                if not self.entry(segment, slot - 1, high, superblock, &claim):
                    continue
                old = claim.ppa
                if new_of[old - superblock * self.pages] == NONE or not self.holds(&claim, stamp):
                    continue
                claim.ppa = new_of[old - superblock * self.pages]
                claim.source = NONE         # as in a compaction
                self.take(&claim, cause)
                self.logged(&claim)
                table[claim.lpa] = ~claim.ppa
                self.groups[superblock].valid -= 1
                self.groups[claim.ppa // self.pages].valid += 1
                self.carried_n += 1
        if self.groups[superblock].valid == 0:
            self.give_up(superblock)
        return 0

    cdef int64_t charge_group(self, uint32_t superblock, int cause, int64_t t_ns) noexcept nogil:
        """Charge the time to read all entries of a group; returns the virtual end time."""
        cdef uint32_t segment = self.groups[superblock].first
        while segment != NONE:
            t_ns = self.ssd.nand.charge_load(self.at + <uint64_t> segment * self.segment_bytes,
                                             (self.fill[segment] + 1) * self.entry_bytes, cause, t_ns)
            segment = self.next_of[segment]
        return t_ns

    # --- a mount

    def stored(self):
        """Whether anything may be stored in each segment, an array of bytes. The chip knows the runs that were never
        written: to read them would take memory of the host for all of the NVRAM."""
        cdef uint64_t first
        found = numpy.zeros(self.segments, numpy.uint8)
        for at, n in self.ssd.nand.nvram_runs(self.at, self.segments * self.segment_bytes):
            first = (at - self.at) // self.segment_bytes
            found[first:(at + n - self.at + self.segment_bytes - 1) // self.segment_bytes] = 1
        return found

    def claims(self):
        """All whole entries in NVRAM, an array of CLAIM, in the order of superblocks, stamps and numbers. Entries of an
        atomic command that is not whole have no page (NONE), but their sequence numbers count as used. So does the
        stamp of each segment, which has a row without LPA and page: a block opened under that order would match entries
        about pages that were lost."""
        cdef uint32_t segment, slot, superblock, number, behind
        cdef uint64_t stamp, high
        cdef Claim claim
        rows = []
        if self.segments == 0:
            return numpy.empty(0, CLAIM)
        self.begin = <uint64_t> self.ssd.nand.nvram_at(self.at, self.segments * self.segment_bytes)
        self.ssd.now_ns = self.ssd.nand.charge_load(self.at, self.segments * self.segment_bytes, CAUSE_RECOVERY,
                                                    self.ssd.now_ns)
        self.torn_n = 0
        stored = self.stored()
        for segment in range(self.segments):
            if not stored[segment] or not self.head(segment, &stamp, &high, &superblock, &number, &behind):
                continue
            rows.append((NONE, NONE, 0, NONE, stamp, NONE, 0, 0, segment, 0, superblock, number))
            for slot in range(self.slots):
                if not self.is_written(segment, slot):
                    break
                if not self.entry(segment, slot, high, superblock, &claim):
                    self.torn_n += 1
                    continue
                rows.append((claim.lpa, claim.ppa, claim.seq, claim.source, stamp, claim.order, claim.first, claim.n,
                             segment, slot, superblock, number))
        rows.sort(key=lambda row: (row[10], row[4], row[11], row[9]))  # a head stays before its first entry
        found = numpy.array([row[:10] for row in rows], CLAIM)
        if self.entry_bytes == 24:
            found["ppa"][~self._whole_commands(found)] = NONE
        return found

    def _whole_commands(self, found):
        """Which entries belong to a command that has, or once had, an entry for every LPA."""
        have = {}
        whole = (<const uint64_t*> self.ssd.nand.nvram_at(self.front_at, 8))[0]
        for row in found:
            have.setdefault((int(row["seq"]), int(row["first"]), int(row["n"])), set()).add(int(row["lpa"]))
        return numpy.array([int(row["seq"]) <= whole
                            or len(have[int(row["seq"]), int(row["first"]), int(row["n"])]) == int(row["n"])
                            for row in found], bool)

    def attach(self, bint store=True):
        """Read the state from NVRAM after a load or a recovery, when the page table is final. ``store``: NVRAM may be
        written from now on."""
        cdef uint32_t segment, slot, superblock, number, behind
        cdef uint64_t stamp, high
        cdef Claim claim
        cdef Group* group
        self.forget()
        if self.segments == 0:
            return
        self.begin = <uint64_t> self.ssd.nand.nvram_at(self.at, self.segments * self.segment_bytes)
        headed = []
        cdef const uint8_t[::1] stored = self.stored()
        for segment in range(self.segments):
            self.next_of[segment] = NONE
            self.fill[segment] = 0
            if stored[segment] and self.head(segment, &stamp, &high, &superblock, &number, &behind):
                headed.append((superblock, stamp, number, segment))
                continue
            self.dirty[segment] = stored[segment] and self.is_dirty(segment)
            if store and self.dirty[segment] and self.crosses(segment):
                self.retire(segment)
                continue
            self.ring[self.free_n] = segment
            self.free_n += 1
        for superblock, stamp, number, segment in sorted(headed):
            self.head(segment, &stamp, &high, &superblock, &number, &behind)
            group = self.groups + superblock
            self.dirty[segment] = 1
            if group.last != NONE:
                self.next_of[group.last] = segment
            else:
                group.first = segment
            group.last = segment
            group.segments += 1
            group.stamp = stamp
            group.high = high
            group.number = (number + 1) & ((1 << NUMBER_BITS) - 1)
            while self.fill[segment] < self.slots and self.is_written(segment, self.fill[segment]):
                slot = self.fill[segment]
                self.fill[segment] += 1
                if (not self.entry(segment, slot, high, superblock, &claim) or not self.matches(&claim, stamp)
                        or self.is_remapped(claim.lpa)):
                    continue
                self.lr[claim.lpa >> 6] |= <uint64_t> 1 << (claim.lpa & 63)
                group.valid += 1
                self.valid_n += 1
            group.used += self.fill[segment]
            self.used_n += self.fill[segment]
            self.largest_group = max(self.largest_group, <uint64_t> group.segments)
        for superblock in range(<uint32_t> self.superblocks):
            if self.groups[superblock].segments and self.groups[superblock].valid == 0 and store:
                self.give_up(superblock)

    cdef bint is_dirty(self, uint32_t segment) noexcept nogil:
        return zeros_from(self.segment_at(segment), self.segment_bytes) < self.segment_bytes

    def forget_counts(self):
        self.reclaimed_n = 0
        self.taken_n = self.compacted_n = self.carried_n = self.forced_syncs = self.largest_group = 0

    # --- for people and checks

    def capacity(self):
        """The number of entries that there is room for."""
        return self.entries_most()

    def figures(self):
        """Counters of a rival."""
        return {}

    def tables(self):
        """{structure: (bytes as a controller packs them, bytes allocated)}: the tables of groups and segments, and the
        LR bitmap."""
        state = self.superblocks * 24 + self.segments * 8 + (self.segments + 7) // 8
        state += self.pages
        held = self.superblocks * sizeof(Group) + self.segments * 33 + self.pages
        return {"rmm_groups": (state, held), "lr_bitmap": ((self.ssd.lpas + 7) // 8, (self.ssd.lpas // 64 + 1) * 8)}

    def groups_of(self):
        """For each superblock with segments: their number, the number of entries, and how many of those are valid."""
        return [{"superblock": i, "segments": self.groups[i].segments, "entries": self.groups[i].used,
                 "valid": self.groups[i].valid, "bytes": self.groups[i].segments * self.segment_bytes}
                for i in range(self.superblocks) if self.groups[i].segments]

    def check(self):
        """The LR bitmap marks exactly the LPAs of valid entries; the counts are right; every segment is free, waiting,
        or in one group."""
        cdef uint32_t lpa, segment, slot, number, behind, of, i
        cdef uint64_t stamp, high, segments = 0, valid = 0
        cdef Claim claim
        problems = []
        proved = set()
        for i in range(<uint32_t> self.superblocks):
            mine = set()
            used = 0
            segment = self.groups[i].first
            while segment != NONE:
                segments += 1
                used += self.fill[segment]
                if not self.head(segment, &stamp, &high, &of, &number, &behind) or of != i:
                    problems.append(f"NVRAM segment {segment}: its head does not say superblock {i}")
                    break
                for slot in range(self.fill[segment]):
                    if self.entry(segment, slot, high, i, &claim) and self.holds(&claim, stamp):
                        mine.add(claim.lpa)
                segment = self.next_of[segment]
            valid += len(mine)
            proved |= mine
            if len(mine) != self.groups[i].valid or used != self.groups[i].used:
                problems.append(f"superblock {i}: {self.groups[i].valid} of {self.groups[i].used} entries counted as "
                                f"valid, {len(mine)} of {used} are")
        cdef const uint64_t[::1] marks = <const uint64_t[:self.ssd.lpas // 64 + 1]> self.lr
        for word in numpy.flatnonzero(marks):
            for lpa in range(64 * word, min(64 * word + 64, self.ssd.lpas)):
                if self.is_remapped(lpa) and lpa not in proved:
                    problems.append(f"LPA {lpa}: it counts as remapped, and no entry says so")
        if valid != self.valid_n:
            problems.append(f"{self.valid_n} entries counted as valid, {valid} are")
        if segments + self.free_n + self.retired_n != self.segments:
            problems.append(f"{segments} segments in groups, {self.free_n} free and {self.retired_n} waiting, of "
                            f"{self.segments}")
        return problems

    def entries_of(self, uint32_t superblock):
        """Every entry in the group of that superblock, the oldest first: LPA, PPA, sequence number, the unmapped source
        or None, segment, slot, and whether it is valid."""
        cdef uint32_t segment, slot, number, behind, of
        cdef uint64_t stamp, high
        cdef Claim claim
        if superblock >= self.superblocks:
            raise ValueError(f"superblock {superblock}: the chip has {self.superblocks}")
        rows = []
        segment = self.groups[superblock].first
        while segment != NONE:
            if self.head(segment, &stamp, &high, &of, &number, &behind):
                for slot in range(self.fill[segment]):
                    whole = self.entry(segment, slot, high, superblock, &claim)
                    row = {"segment": segment, "slot": slot}
                    rows.append({**row, "lpa": claim.lpa, "ppa": claim.ppa, "seq": claim.seq,
                                 "source": None if claim.source == NONE else claim.source,
                                 "valid": bool(self.holds(&claim, stamp))} if whole else {**row, "torn": True})
            segment = self.next_of[segment]
        return rows

    def entries_at(self, uint32_t ppa):
        """The LPAs of valid entries for that page."""
        cdef uint32_t superblock = <uint32_t> (ppa // self.pages), segment, slot, number, behind, of
        cdef uint64_t stamp, high
        cdef Claim claim
        found = set()
        segment = self.groups[superblock].first
        while segment != NONE:
            if self.head(segment, &stamp, &high, &of, &number, &behind):
                for slot in range(self.fill[segment]):
                    if (self.entry(segment, slot, high, superblock, &claim) and claim.ppa == ppa
                            and self.holds(&claim, stamp)):
                        found.add(claim.lpa)
            segment = self.next_of[segment]
        return sorted(found)
