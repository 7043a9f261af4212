# distutils: language = c++
"""A cache of entries over translation pages in flash: DFTL's mapping (A. Gupta et al., DFTL, ASPLOS 2009), also used by
other schemes.

The cached mapping table (CMT) with its eviction is the paper's. The pages, their directory, cleaning's updates, trims
and recovery are those of every demand-paged mapping (flashfs.parts.paged.demand_map).

*Dirty bound.* In LazyFTL and IB-FTL at most a share of the cache is dirty, which bounds what a recovery has to find (N.
Dayan et al., GeckoFTL, SIGMOD 2016, 5.3). Before a run is bound, the translation page with the oldest dirty entry is
written, until the run's entries may be dirty too. An entry that cleaning changes is pending instead if it would exceed
the bound; so is one that a recovery found: it is cached clean, and goes to its page with the pending entries.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.parts.paged.cmt cimport ENTRY_BYTES, Cmt
from flashfs.parts.paged.cache_map cimport CacheMap
from flashfs.parts.battery.map_battery cimport named_by
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport NONE

from collections import Counter

import numpy

from flashfs.errors import DeviceFullError

SLOTS_LEAST = 8  #: entries: fewer leave no room for two segments
BATCH_MOST = 256


cdef class CachedMap(CacheMap):
    """``slots`` entries in DRAM, ``protected_share`` per cent of them for those that were hit; ``fixed``: the number
    does not grow with the DRAM. ``dirty_share`` per cent of them may be dirty, one at least. ``moved_share``: so many
    per cent of them as entries of moved pages may wait beside the cache, in 12 bytes each; as many as may be dirty, at
    most. 0: they are written after each block."""

    def __cinit__(self, Engine ssd not None, uint32_t slots, uint32_t protected_share, bint fixed=False, *,
                  uint32_t dirty_share=100, uint32_t moved_share=0, **_):
        self.moved_share = moved_share
        self.protected_share = protected_share
        self.fixed = fixed
        self.dirty_share = dirty_share
        self.bounded = dirty_share < 100
        self.resize(slots)

    def resize(self, slots):
        """A new, empty CMT. No entry of a batch may evict another of it: each takes a place in the probationary
        segment, and pushes a protected one back into it, and both must fit there."""
        slots = max(SLOTS_LEAST, min(slots, self.ssd.lpas))
        self.cmt = Cmt(slots, self.protected_share, self.gtd.n, self.per_page, self.bounded)
        self.batch = max(1, min(BATCH_MOST, (slots - self.cmt.protected_most - 1) // 2))
        self.dirty_most = max(1, slots * self.dirty_share // 100) if self.bounded else slots
        self.dirty_batch = min(self.batch, (self.dirty_most + 1) // 2) if self.bounded else self.batch
        if self.moved_share:
            self.let_moved_wait(slots, self.dirty_most, 1)
        elif self.bounded:
            self.pending_most = min(2 * self.per_page, self.dirty_most)

    # --- the host's requests: all reads, writes and cleaning happen here

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """Caches the entries of the first LPAs; returns of how many. A miss waits for the write-back of the dirty entry
        that it evicts, then for its own translation page; misses do not wait for each other."""
        cdef uint32_t i, slot, ppa
        cdef uint64_t reads
        cdef int64_t start = ready[0]
        cdef bint dirty = False
        n = min(n, self.dirty_batch if writing else self.batch)
        for i in range(n):
            self.lookups += 1
            slot = self.cmt.find(lpas[i])
            if slot != NONE:
                self.hits += 1
                self.cmt.touch(slot)
                continue
            self.ssd.map_ns = ready[i]
            if writing:
                self.make_slot()
            elif self.cmt.used == self.cmt.slots and not self.could_make_slot():
                self.look(self.page_of(lpas[i]))
                ready[i] = self.ssd.map_ns
                continue
            reads = self.store.reads
            ppa = self.entry(lpas[i], &dirty)
            self.loads += self.store.reads != reads
            self.cmt.insert(lpas[i], ppa, dirty and not self.bounded)
            ready[i] = self.ssd.map_ns
        if self.bounded and writing:
            self.ssd.map_ns = start
            self.make_clean(lpas, n)
            for i in range(n):
                ready[i] = max(ready[i], self.ssd.map_ns)
        return n

    cdef int make_clean(self, const uint32_t* lpas, uint32_t n) except -1 nogil:
        """Writes pages back until these cached entries may become dirty within the bound; advances the map's clock.
        Writing may clean, which changes what is dirty."""
        cdef uint32_t i, more
        while True:
            more = 0
            for i in range(n):
                more += not self.cmt.is_dirty(self.cmt.find(lpas[i]))
            if self.cmt.dirty_n + more <= self.dirty_most:
                return 0
            self.write_back(self.cmt.first_page)
            self.bound_writes += 1

    cdef bint could_make_slot(self) except -1 nogil:
        """As ``make_slot``, for a read. False if the image is full or read-only: then the read bypasses the cache, as a
        read must not fail because nothing can be written."""
        if not self.cmt.is_dirty(self.cmt.victim()):
            self.make_slot()
            return True
        if not self.could_write():
            return False
        with gil:
            try:
                self.make_slot()
            except (OSError, DeviceFullError):
                return False
        return True

    cdef uint64_t idle_bytes(self) noexcept nogil:
        return self.cmt.free_bytes()

    cdef int make_slot(self) except -1 nogil:
        """Frees a slot of the CMT; advances the map's clock to when there is one. A dirty entry takes all dirty ones of
        its translation page with it to flash (batch update, 3.4 of the paper); the others stay cached, clean."""
        cdef uint32_t slot
        while self.cmt.used == self.cmt.slots:
            slot = self.cmt.victim()
            if self.cmt.is_dirty(slot):
                self.evict_dirty(self.page_of(self.cmt.lpa[slot]))
                continue
            self.cmt.remove(slot)
            self.evictions += 1
        return 0

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i, slot
        for i in range(n):
            slot = self.cmt.find(lpas[i])
            if slot != NONE:
                ppas[i] = self.cmt.ppa[slot]
            else:
                self.peek(lpas + i, 1, ppas + i)
        return 0

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        cdef uint32_t i, slot
        self.changes()
        for i in range(n):
            slot = self.cmt.find(lpas[i])
            olds[i] = self.cmt.ppa[slot]
            self.cmt.put(slot, ppa + i)
            self.mapped_n += olds[i] == NONE
        if self.keeps():
            self.save_bound(lpas, n, ppa, olds)
        return self.drop_strays(lpas, 0, n, olds) if self.strays else 0

    cdef int save_bound(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, const uint32_t* olds) except -1 nogil:
        """For the battery: the sum of all that is named, then the entries."""
        cdef uint32_t i, slot
        cdef uint64_t gain = 0
        for i in range(n):
            gain += named_by(ppa + i) - (named_by(olds[i]) if olds[i] != NONE else 0)
        self.saved.name(gain)
        for i in range(n):
            slot = self.cmt.find(lpas[i])
            self.saved.put_slot(slot, lpas[i], self.cmt.ppa[slot])
        return 0

    cdef int put(self, uint32_t slot, uint32_t ppa) except -1 nogil:
        """Sets the entry, in the battery too."""
        self.cmt.put(slot, ppa)
        return self.saved.put_slot(slot, self.cmt.lpa[slot], ppa) if self.keeps() else 0

    # --- the cache's answers to the base class

    cdef bint cached(self, uint32_t lpa, uint32_t* ppa) noexcept nogil:
        cdef uint32_t slot = self.cmt.find(lpa)
        if slot == NONE:
            return False
        ppa[0] = self.cmt.ppa[slot]
        return True

    cdef bint recache(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """At the bound, less what a prepared run may need, the entry is updated but stays clean. Then returns False, as
        if it were not cached, so that it is pending too."""
        cdef uint32_t slot = self.cmt.find(lpa)
        if slot == NONE:
            return False
        if (self.bounded and not self.cmt.is_dirty(slot)
                and self.cmt.dirty_n + self.dirty_batch >= self.dirty_most):
            self.cmt.ppa[slot] = ppa
            return False
        self.put(slot, ppa)
        return True

    cdef uint32_t dirty_of(self, uint32_t first, uint32_t n, uint32_t* image) noexcept nogil:
        cdef uint32_t slot = self.cmt.first_dirty[self.page_of(first)], found = 0
        while slot != NONE:
            if self.cmt.lpa[slot] - first < n:
                found += 1
                if image != NULL:
                    image[self.cmt.lpa[slot] - first] = self.cmt.ppa[slot]
            slot = self.cmt.next_dirty[slot]
        return found

    cdef int cleaned(self, uint32_t page) except -1 nogil:
        self.clear_slots(page)
        return self.cmt.clean_page(page)

    cdef int uncache(self, uint32_t page) except -1 nogil:
        self.clear_slots(page)
        return self.cmt.forget_page(page)

    cdef int clear_slots(self, uint32_t page) except -1 nogil:
        """Removes the dirty entries of that page from the battery."""
        cdef uint32_t slot = self.cmt.first_dirty[page] if self.keeps() else NONE
        while slot != NONE:
            self.saved.clear_slot(slot)
            slot = self.cmt.next_dirty[slot]
        return 0

    cdef int uncache_all(self) noexcept nogil:
        return self.cmt.clear()

    def device_ready(self):
        super().device_ready()
        self.take_back()

    cdef int take_back(self) except -1:
        """Moves pending entries to the cache: before the mount they were dirty there, and as pending entries they would
        take DRAM beyond the budget. Not after damage, when entries must go to their pages first, which checks them."""
        cdef uint64_t i, n = self.cmt.slots - self.cmt.used
        cdef uint32_t least = self.dirty_batch if self.bounded else 0
        if self.bounded:
            n = min(n, self.dirty_most - min(self.dirty_most, self.cmt.dirty_n + least))
        n = min(n, self.pending.n) if self.pending.moved_n == 0 and not self.strays else 0
        for i in range(n):
            self.taken_back(self.cmt.insert(self.pending.lpa[i], self.pending.ppa[i], True))
        self.pending.erase(0, n)
        return self.pending.shrink(self.pending_room)

    cdef int taken_back(self, uint32_t slot) except -1 nogil:
        return 0

    def save_cache(self):
        cdef uint32_t slot, page
        if self.cmt.slots <= self.saved.slots:
            for page in range(self.gtd.n):
                slot = self.cmt.first_dirty[page]
                while slot != NONE:
                    self.saved.put_slot(slot, self.cmt.lpa[slot], self.cmt.ppa[slot])
                    slot = self.cmt.next_dirty[slot]
        return self.cmt.slots

    def dirty_entries(self):
        cdef uint32_t slot, n = 0
        cdef uint32_t[::1] lpas, ppas
        lpa = numpy.empty(self.cmt.dirty_n, numpy.uint32)
        ppa = numpy.empty(self.cmt.dirty_n, numpy.uint32)
        lpas, ppas = lpa, ppa
        for segment in range(2):
            slot = self.cmt.oldest[segment]
            while slot != NONE:
                if self.cmt.is_dirty(slot):
                    lpas[n] = self.cmt.lpa[slot]
                    ppas[n] = self.cmt.ppa[slot]
                    n += 1
                slot = self.cmt.newer[slot]
        return lpa, ppa

    # --- the rest of the interface

    def cache_bounds(self):
        return self.cmt.entries_take(), SLOTS_LEAST * ENTRY_BYTES

    def in_use(self):
        return self.cmt.used > 0

    def resize_cache(self, room):
        """As CacheMap's: ``room`` bytes, for slots and the entries that wait beside them. SLOTS_LEAST slots at least,
        one per LPA at most, and with a battery as many as that has room for: more DRAM does not turn it off.
        MemoryError."""
        slots = self.slots_in(room)
        self.resize(min(slots, self.saved.slots) if self.will_keep() else slots)

    def slots_in(self, room):
        """How many slots fit into so many bytes, with the entries that wait beside them."""
        cdef int64_t slots = room // ENTRY_BYTES, share = min(self.moved_share, self.dirty_share)
        if slots * share // 100 <= <int64_t> self.pending_most:
            return slots
        entry = self.pending.sizes()[0] // self.pending.room
        return (room + entry * self.pending_most) * 100 // (100 * ENTRY_BYTES + entry * share)

    def tables(self):
        packed, allocated = self.cmt.sizes()
        return {"cmt": (packed - self.lent, allocated), **super().tables()}

    def figures(self):
        return {
            "entries": self.cmt.slots,
            "cached": self.cmt.used,
            "protected": self.cmt.protected_n,
            "dirty": self.cmt.dirty_n,
            **({"dirty_most": self.dirty_most, "bound_writes": self.bound_writes} if self.bounded else {}),
            **super().figures(),
        }

    def cached_of_pages(self):
        return Counter(entry["lpa"] // self.per_page for entry in self.cmt.entries())

    def cache_facts(self):
        """As CacheMap's: "cached" entries, "dirty" ones, and "dirty_most", how many may be dirty."""
        return {"cached": self.cmt.used, "dirty": self.cmt.dirty_n, "dirty_most": self.dirty_most}

    def forget_counts(self):
        self.bound_writes = 0
        super().forget_counts()

    def check(self):
        problems = super().check() + self.cmt.check()
        if self.cmt.dirty_n > self.dirty_most:
            problems.append(f"CMT: {self.cmt.dirty_n} dirty entries, {self.dirty_most} may be")
        return problems
