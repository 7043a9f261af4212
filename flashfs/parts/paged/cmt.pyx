"""The cached mapping table (CMT) of a demand-paged mapping: entries {LPA, PPA} in a segmented LRU.

A new entry goes to the probationary segment. A hit moves it to the top of the protected one; an entry that drops off
its bottom goes back to the top of the probationary segment, from whose bottom entries leave (A. Gupta et al., DFTL,
ASPLOS 2009, section 3.2, which names segmented LRU and gives no sizes).

The dirty entries of a translation page are on a list of their own: writing the page takes them all. A cache of which
only a share may be dirty also has a queue of the pages with dirty entries: the page whose first one became dirty
earliest is the next to be written.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from flashfs.engine.blocks.pool cimport NONE

cdef enum:
    DIRTY = 1
    PROTECTED = 2
    SLOT_TAKES = 25          # bytes of a slot


@cython.final
cdef class Cmt:
    """``slots`` entries, of which ``protected_share`` per cent at most are in the protected segment; ``per_page`` LPAs
    are of one translation page, and there are ``pages`` of those. ``queued``: the pages that have dirty entries are
    queued."""

    def __cinit__(self, uint32_t slots, uint32_t protected_share, uint32_t pages, uint32_t per_page,
                  bint queued=False):
        self.pages = pages
        self.per_page = per_page
        self.queued = queued
        self.protected_most = <uint32_t> (<uint64_t> slots * protected_share // 100)
        self.allocate(slots)

    def __dealloc__(self):
        free(self.lpa)
        free(self.ppa)
        free(self.older)
        free(self.newer)
        free(self.chain)
        free(self.next_dirty)
        free(self.first_dirty)
        free(self.flags)
        free(self.buckets)
        free(self.page_before)
        free(self.page_behind)

    cdef int allocate(self, uint32_t slots) except -1:
        """Allocates all arrays, for ``slots`` entries (1 at least), and empties the cache. Call once: it frees nothing.
        MemoryError."""
        self.bucket_bits = 0
        while <uint64_t> 2 << self.bucket_bits <= slots:
            self.bucket_bits += 1
        self.lpa = <uint32_t*> malloc(<uint64_t> slots * 4)
        self.ppa = <uint32_t*> malloc(<uint64_t> slots * 4)
        self.older = <uint32_t*> malloc(<uint64_t> slots * 4)
        self.newer = <uint32_t*> malloc(<uint64_t> slots * 4)
        self.chain = <uint32_t*> malloc(<uint64_t> slots * 4)
        self.next_dirty = <uint32_t*> malloc(<uint64_t> slots * 4)
        self.first_dirty = <uint32_t*> malloc(<uint64_t> self.pages * 4)
        self.flags = <uint8_t*> malloc(slots)
        self.buckets = <uint32_t*> malloc(<uint64_t> 4 << self.bucket_bits)
        if not (self.lpa and self.ppa and self.older and self.newer and self.chain and self.next_dirty
                and self.first_dirty and self.flags and self.buckets):
            raise MemoryError
        if self.queued:
            self.page_before = <uint32_t*> malloc(<uint64_t> self.pages * 4)
            self.page_behind = <uint32_t*> malloc(<uint64_t> self.pages * 4)
            if not (self.page_before and self.page_behind):
                raise MemoryError
        self.slots = slots
        self.clear()
        return 0

    cdef int clear(self) noexcept nogil:
        """Forgets every entry."""
        cdef uint32_t slot
        memset(self.buckets, 0xFF, <uint64_t> 4 << self.bucket_bits)
        memset(self.first_dirty, 0xFF, <uint64_t> self.pages * 4)
        self.oldest[0] = self.oldest[1] = self.newest[0] = self.newest[1] = NONE
        self.first_page = self.last_page = NONE
        self.used = self.protected_n = self.dirty_n = 0
        for slot in range(self.slots):
            self.chain[slot] = slot + 1
        self.chain[self.slots - 1] = NONE
        self.free = 0
        return 0

    cdef uint32_t bucket_of(self, uint32_t lpa) noexcept nogil:
        cdef uint64_t key = <uint64_t> lpa * <uint64_t> 0x9E3779B97F4A7C15
        return <uint32_t> (key >> (64 - self.bucket_bits)) if self.bucket_bits else 0

    cdef uint32_t find(self, uint32_t lpa) noexcept nogil:
        """The slot of an LPA, or NONE. Changes nothing."""
        cdef uint32_t slot = self.buckets[self.bucket_of(lpa)]
        while slot != NONE and self.lpa[slot] != lpa:
            slot = self.chain[slot]
        return slot

    # --- the two segments

    cdef int link(self, uint32_t slot, int segment) noexcept nogil:
        """Puts a slot on top of segment 0 (probationary) or 1 (protected); it must be in neither. Its flags and the
        counts are the caller's to change."""
        cdef uint32_t top = self.newest[segment]
        self.older[slot] = top
        self.newer[slot] = NONE
        if top != NONE:
            self.newer[top] = slot
        else:
            self.oldest[segment] = slot
        self.newest[segment] = slot
        return 0

    cdef int unlink(self, uint32_t slot) noexcept nogil:
        """Takes a slot out of the segment that its flag PROTECTED names. Flags and counts stay as they are."""
        cdef int segment = (self.flags[slot] & PROTECTED) != 0
        cdef uint32_t older = self.older[slot], newer = self.newer[slot]
        if older != NONE:
            self.newer[older] = newer
        else:
            self.oldest[segment] = newer
        if newer != NONE:
            self.older[newer] = older
        else:
            self.newest[segment] = older
        return 0

    cdef int touch(self, uint32_t slot) noexcept nogil:
        """A hit: moves the entry to the top of the protected segment."""
        cdef uint32_t low
        self.unlink(slot)
        if self.protected_most == 0:
            return self.link(slot, 0)
        if not self.flags[slot] & PROTECTED:
            self.flags[slot] |= PROTECTED
            self.protected_n += 1
        self.link(slot, 1)
        if self.protected_n > self.protected_most:
            low = self.oldest[1]
            self.unlink(low)
            self.flags[low] &= <uint8_t> ~PROTECTED
            self.protected_n -= 1
            self.link(low, 0)
        return 0

    cdef uint32_t victim(self) noexcept nogil:
        """The entry that leaves next; NONE if none is cached."""
        return self.oldest[0] if self.oldest[0] != NONE else self.oldest[1]

    # --- entries

    cdef uint32_t insert(self, uint32_t lpa, uint32_t ppa, bint dirty) noexcept nogil:
        """A new entry, at the top of the probationary segment. There must be a free slot, and none for this LPA."""
        cdef uint32_t slot = self.free, bucket = self.bucket_of(lpa)
        self.free = self.chain[slot]
        self.lpa[slot] = lpa
        self.ppa[slot] = ppa
        self.flags[slot] = 0
        if dirty:
            self.mark(slot)
        self.chain[slot] = self.buckets[bucket]
        self.buckets[bucket] = slot
        self.link(slot, 0)
        self.used += 1
        return slot

    cdef int remove(self, uint32_t slot) noexcept nogil:
        """It must be clean."""
        cdef uint32_t bucket = self.bucket_of(self.lpa[slot]), at = self.buckets[bucket]
        self.unlink(slot)
        self.protected_n -= (self.flags[slot] & PROTECTED) != 0
        if at == slot:
            self.buckets[bucket] = self.chain[slot]
        else:
            while self.chain[at] != slot:
                at = self.chain[at]
            self.chain[at] = self.chain[slot]
        self.chain[slot] = self.free
        self.free = slot
        self.used -= 1
        return 0

    cdef int put(self, uint32_t slot, uint32_t ppa) noexcept nogil:
        """Changes the entry, which is dirty from now on. It is no longer AGED, but a trim (NONE) keeps the flag, since
        it leaves no page that a scan could find."""
        self.ppa[slot] = ppa
        if ppa != NONE:
            self.flags[slot] &= <uint8_t> ~AGED
        return 0 if self.flags[slot] & DIRTY else self.mark(slot)

    cdef int mark(self, uint32_t slot) noexcept nogil:
        """Makes a clean entry dirty."""
        cdef uint32_t page = self.lpa[slot] // self.per_page
        self.flags[slot] |= DIRTY
        self.dirty_n += 1
        if self.queued and self.first_dirty[page] == NONE:
            self.enqueue(page)
        self.next_dirty[slot] = self.first_dirty[page]
        self.first_dirty[page] = slot
        return 0

    cdef int clean_page(self, uint32_t page) noexcept nogil:
        """The translation page was written: its entries are clean."""
        cdef uint32_t slot = self.first_dirty[page]
        if self.queued and slot != NONE:
            self.dequeue(page)
        while slot != NONE:
            self.flags[slot] &= <uint8_t> ~(DIRTY | AGED)
            self.dirty_n -= 1
            slot = self.next_dirty[slot]
        self.first_dirty[page] = NONE
        return 0

    cdef int forget_page(self, uint32_t page) noexcept nogil:
        """Removes the page's entries, dirty or not."""
        cdef uint32_t lpa, slot
        self.clean_page(page)
        for lpa in range(page * self.per_page, (page + 1) * self.per_page):
            slot = self.find(lpa)
            if slot != NONE:
                self.remove(slot)
        return 0

    cdef bint is_dirty(self, uint32_t slot) noexcept nogil:
        """Whether the slot's entry is newer than its translation page. The slot must hold an entry."""
        return self.flags[slot] & DIRTY

    cdef int enqueue(self, uint32_t page) noexcept nogil:
        """Appends a page to the queue: its first entry becomes dirty."""
        self.page_before[page] = self.last_page
        self.page_behind[page] = NONE
        if self.last_page != NONE:
            self.page_behind[self.last_page] = page
        else:
            self.first_page = page
        self.last_page = page
        return 0

    cdef int dequeue(self, uint32_t page) noexcept nogil:
        """Takes a translation page out of the queue, at any place. It must be in the queue."""
        cdef uint32_t before = self.page_before[page], behind = self.page_behind[page]
        if before != NONE:
            self.page_behind[before] = behind
        else:
            self.first_page = behind
        if behind != NONE:
            self.page_before[behind] = before
        else:
            self.last_page = before
        return 0

    # --- for users and tests

    def sizes(self):
        """(bytes as a controller packs them, as allocated)."""
        taken = self.entries_take() + (12 if self.queued else 4) * self.pages
        return taken, taken

    cdef uint64_t free_bytes(self) noexcept nogil:
        """Bytes of the slots that hold nothing."""
        return <uint64_t> (self.slots - self.used) * SLOT_TAKES

    def entries_take(self):
        """Bytes of that for slots and their hash table: what grows with the number of slots."""
        return self.slots * SLOT_TAKES + (4 << self.bucket_bits)

    def entries(self):
        """Every entry, the one that leaves next first: {"lpa", "ppa" (None: a hole), "dirty", "segment"}."""
        out = []
        cdef uint32_t slot
        for segment, name in enumerate(("probationary", "protected")):
            slot = self.oldest[segment]
            while slot != NONE:
                out.append({
                    "lpa": self.lpa[slot], "ppa": None if self.ppa[slot] == NONE else self.ppa[slot],
                    "dirty": bool(self.is_dirty(slot)), "segment": name,
                })
                slot = self.newer[slot]
        return out

    def queue(self):
        """The translation pages that have dirty entries, the next to be written first; [] if they are not queued."""
        out = []
        cdef uint32_t page = self.first_page
        while page != NONE and len(out) <= self.pages:
            out.append(page)
            page = self.page_behind[page]
        return out

    def check(self):
        """Each entry is in one segment and in its bucket, once; the counts are right."""
        problems = []
        cdef uint32_t slot, bucket, n = 0
        listed = self.entries()
        lpas = {entry["lpa"] for entry in listed}
        if len(listed) != self.used or len(lpas) != self.used:
            problems.append(f"CMT: {self.used} entries counted, {len(listed)} in its segments, of {len(lpas)} LPAs")
        if sum(entry["dirty"] for entry in listed) != self.dirty_n:
            problems.append(f"CMT: {self.dirty_n} dirty entries counted, others there")
        for page in range(self.pages):
            slot = self.first_dirty[page]
            while slot != NONE:
                n += 1
                if not self.is_dirty(slot) or self.lpa[slot] // self.per_page != page:
                    problems.append(f"CMT: LPA {self.lpa[slot]} on the list of translation page {page}")
                slot = self.next_dirty[slot]
        if n != self.dirty_n:
            problems.append(f"CMT: {self.dirty_n} dirty entries counted, {n} on the lists")
        if self.queued:
            with_dirty = {page for page in range(self.pages) if self.first_dirty[page] != NONE}
            if sorted(self.queue()) != sorted(with_dirty):
                problems.append(f"CMT: {len(self.queue())} pages queued, {len(with_dirty)} have dirty entries")
        n = 0
        protected = sum(entry["segment"] == "protected" for entry in listed)
        if protected != self.protected_n or protected > self.protected_most:
            problems.append(f"CMT: {protected} protected entries, {self.protected_n} counted of {self.protected_most}")
        for bucket in range(<uint32_t> 1 << self.bucket_bits):
            slot = self.buckets[bucket]
            while slot != NONE and n <= self.used:
                n += 1
                if self.bucket_of(self.lpa[slot]) != bucket:
                    problems.append(f"CMT: LPA {self.lpa[slot]} is in another's bucket")
                slot = self.chain[slot]
        if n != self.used:
            problems.append(f"CMT: {n} entries in its buckets, {self.used} counted")
        return problems
