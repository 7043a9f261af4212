# distutils: language = c++
"""GeckoFTL's mapping (N. Dayan et al., GeckoFTL, SIGMOD 2016, section 4): DFTL's, and writes that do not ask where their
LPAs were.

A write of which the entry is not cached reads no translation page: its entry gets the UIP flag (section 4.1), for there
may be a page in flash that nobody has called invalid yet. Which one that is shows when the entry's translation page is
read to be written again: what it named is reported then. A page with such an entry lives on as far as validity knows, so
validity is late; cleaning that meets it asks the cache, and leaves it to die.

Every page that lives though it was superseded has its entry in the cache, with the flag, or else its translation page
still names it: what is superseded while its entry is cached is reported at once. So cleaning believes what is neither
cached nor pending.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from flashfs.engine.cached_map cimport CachedMap
from flashfs.engine.parts cimport FOREIGN, LIVE, SUPERSEDED, Engine
from flashfs.engine.pool cimport NONE

cdef enum:
    AT_ONCE = 128            # reports that room is made for at a time


cdef class GeckoMap(CachedMap):
    """As CachedMap; ``slots`` is C, the capacity of the cache."""

    def __cinit__(self, Engine ssd not None, *_, **__):
        self.said_room = 2 * ssd.nand.pages_per_block
        self.gone = <uint32_t*> malloc(<uint64_t> self.per_page * 4)
        self.said_lpa = <uint32_t*> malloc(<uint64_t> self.said_room * 4)
        self.said_ppa = <uint32_t*> malloc(<uint64_t> self.said_room * 4)
        if not (self.gone and self.said_lpa and self.said_ppa):
            raise MemoryError

    def __dealloc__(self):
        free(self.gone)
        free(self.said_lpa)
        free(self.said_ppa)

    # --- entries

    cdef uint32_t slot_of(self, uint32_t lpa) noexcept nogil:
        """The slot with the LPA's entry, or NONE: a place that says nothing is none."""
        cdef uint32_t slot = self.cmt.find(lpa)
        return NONE if slot != NONE and self.cmt.flags[slot] & VOID else slot

    cdef int set_flags(self, uint32_t slot, uint8_t some, uint8_t no) noexcept nogil:
        cdef uint8_t* flags = self.cmt.flags
        flags[slot] = (flags[slot] | some) & <uint8_t> ~no
        return 0

    cdef int settled(self, uint32_t slot) noexcept nogil:
        """What the translation page names of that entry is reported, or nothing."""
        self.uip_n -= self.cmt.flags[slot] & UIP != 0
        self.set_flags(slot, 0, UIP)
        return 0

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """As CachedMap; but to be written, an entry needs a place alone."""
        cdef uint32_t i, slot
        n = min(n, self.batch)
        for i in range(n):
            self.lookups += 1
            slot = self.cmt.find(lpas[i])
            self.ssd.map_ns = ready[i]
            if slot != NONE:
                self.cmt.touch(slot)
                if writing or not self.cmt.flags[slot] & VOID:
                    self.hits += 1
                    continue
                self.fill(slot)
            elif writing:
                self.make_slot()
                self.take_place(lpas[i])
            elif self.cmt.used == self.cmt.slots and not self.could_make_slot():
                self.look(self.page_of(lpas[i]))
            else:
                self.take_place(lpas[i])
                self.fill(self.cmt.find(lpas[i]))
            ready[i] = self.ssd.map_ns
        return n

    cdef int take_place(self, uint32_t lpa) except -1 nogil:
        self.set_flags(self.cmt.insert(lpa, NONE, False), VOID, 0)
        return 0

    cdef int fill(self, uint32_t slot) except -1 nogil:
        """A place gets what the LPA's entry is."""
        cdef bint dirty = False
        cdef uint64_t reads = self.store.reads
        self.cmt.ppa[slot] = self.entry(self.cmt.lpa[slot], &dirty)
        self.loads += self.store.reads != reads
        self.set_flags(slot, 0, VOID)
        return self.cmt.mark(slot) if dirty else 0

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i, slot
        for i in range(n):
            slot = self.slot_of(lpas[i])
            if slot != NONE:
                ppas[i] = self.cmt.ppa[slot]
            else:
                self.peek(lpas + i, 1, ppas + i)
        return 0

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        """What was cached or pending dies now; what a translation page may name of the others is found out later."""
        cdef uint32_t i, slot
        cdef int64_t at
        for i in range(n):
            slot = self.cmt.find(lpas[i])
            olds[i] = self.cmt.ppa[slot]
            if self.cmt.flags[slot] & VOID:
                self.set_flags(slot, 0, VOID)
                at = self.pending.find(lpas[i])
                if at >= 0:
                    olds[i] = self.pending.ppa[at]
                elif self.gtd.page_ppas[self.page_of(lpas[i])] != NONE:
                    self.set_flags(slot, UIP, 0)
                    self.uip_n += 1
            self.cmt.put(slot, ppa + i)
        return 0

    # --- what the base asks of the cache

    cdef bint cached(self, uint32_t lpa, uint32_t* ppa) noexcept nogil:
        cdef uint32_t slot = self.slot_of(lpa)
        if slot == NONE:
            return False
        ppa[0] = self.cmt.ppa[slot]
        return True

    cdef bint recache(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        cdef uint32_t slot = self.slot_of(lpa)
        if slot == NONE:
            return False
        self.cmt.put(slot, ppa)
        return True

    cdef int uncache(self, uint32_t page) except -1 nogil:
        """Flags go with their entries, so ``identify`` came before."""
        cdef uint32_t slot = self.cmt.first_dirty[page]
        while slot != NONE:
            self.settled(slot)
            slot = self.cmt.next_dirty[slot]
        return CachedMap.uncache(self, page)

    cdef int uncache_all(self) noexcept nogil:
        self.uip_n = 0
        return CachedMap.uncache_all(self)

    # --- pages that were superseded and not reported

    cdef int replaces(self, uint32_t page) except -1 nogil:
        return self.identify(page)

    cdef int identify(self, uint32_t page) except -1 nogil:
        """``image`` is the page: what it names of entries with the UIP flag is reported, before another page can take
        its place. Room for that is made as it is needed; the page is read again if that took it away."""
        cdef uint32_t slot, n, first = page * self.per_page, old
        cdef int64_t start = self.ssd.map_ns
        while self.uip_n:
            slot = self.cmt.first_dirty[page]
            n = 0
            while slot != NONE and n < AT_ONCE:
                n += self.cmt.flags[slot] & UIP != 0
                slot = self.cmt.next_dirty[slot]
            if n == 0:
                return 0
            self.ssd.validity.prepare(n, False)
            self.ssd.map_ns = max(start, self.ssd.map_ns)
            if self.image_of != page:
                self.fetch(page)
            slot = self.cmt.first_dirty[page]
            n = 0
            while slot != NONE and n < AT_ONCE:
                if self.cmt.flags[slot] & UIP:
                    self.settled(slot)
                    old = self.image[self.cmt.lpa[slot] - first]
                    if old != NONE and old != self.cmt.ppa[slot]:
                        self.gone[n] = old
                        n += 1
                slot = self.cmt.next_dirty[slot]
            self.identified += n
            self.ssd.validity.dead(self.gone, n)
        return 0

    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil:
        """What is trimmed may have been written before without being asked where it was."""
        n = CachedMap.prepare_unbind(self, lpa, n)
        if self.gtd.page_ppas[self.page_of(lpa)] != NONE:
            self.identify(self.page_of(lpa))
        return n

    cdef bint notice(self) except -1 nogil:
        cdef uint32_t page
        cdef uint64_t before = self.identified
        for page in range(self.gtd.n if self.uip_n else 0):
            if self.gtd.page_ppas[page] != NONE and self.has_uip(page):
                self.fetch(page)
                self.identify(page)
        self.identified_early += self.identified - before
        return self.identified != before

    cdef bint has_uip(self, uint32_t page) noexcept nogil:
        cdef uint32_t slot = self.cmt.first_dirty[page]
        while slot != NONE:
            if self.cmt.flags[slot] & UIP:
                return True
            slot = self.cmt.next_dirty[slot]
        return False

    # --- cleaning

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        """A page of which the cache, or a pending entry, names another is superseded. One that neither knows is what it
        says: the translation page need not be read."""
        cdef uint32_t i, ppa = NONE
        self.mark_twins(lpas, n, answers)
        for i in range(n):
            if lpas[i] >= self.ssd.lpas:
                answers[i] = FOREIGN
                continue
            if not self.newest(lpas[i], &ppa):
                if n > 1 and not answers[i]:
                    answers[i] = LIVE
                    continue
                self.peek(lpas + i, 1, &ppa)
            answers[i] = LIVE if ppa == ppas[i] else SUPERSEDED
            if answers[i] == SUPERSEDED:
                self.said_lpa[self.said_n % self.said_room] = lpas[i]
                self.said_ppa[self.said_n % self.said_room] = ppas[i]
                self.said_n += 1
        return 0

    cdef int dropped(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """These were the pages that translation pages name; soon they will be others'."""
        cdef uint32_t i, k, at, slot
        for i in range(n):
            for k in range(min(self.said_n, self.said_room) if ppas[i] != NONE else 0):
                at = (self.said_n - 1 - k) % self.said_room
                if self.said_ppa[at] == ppas[i]:
                    slot = self.cmt.find(self.said_lpa[at])
                    if slot != NONE:
                        self.settled(slot)
                    break
        return 0

    cdef int moves_end(self) except -1 nogil:
        """A moved page's entry is pending as long as there is room for it, like a dirty one in the cache."""
        self.pending.reserve(4 * self.ssd.nand.pages_per_block)
        return 0

    cdef int tend(self) except -1 nogil:
        """The more there is too much of, the more is written: a page that is written may take cleaning, and that adds
        to it."""
        cdef uint64_t over = self.pending.n - self.pending_most if self.pending.n > self.pending_most else 0
        return self.write_down(self.pending_most, <uint32_t> (over // 8) + 1) if over else 0

    # --- the rest of the interface

    def tables(self):
        taken = 4 * self.per_page + 8 * self.said_room
        return {**super().tables(), "uip_lists": (taken, taken)}

    def figures(self):
        return {**super().figures(), "uip": self.uip_n, "identified": self.identified,
                "identified_early": self.identified_early}

    def forget_counts(self):
        self.identified = self.identified_early = 0
        super().forget_counts()

    def check(self):
        """As CachedMap; the flag is on dirty entries alone, and they are counted."""
        cdef uint32_t slot, segment, n = 0
        problems = super().check()
        for segment in range(2):
            slot = self.cmt.oldest[segment]
            while slot != NONE:
                if self.cmt.flags[slot] & UIP:
                    n += 1
                    if not self.cmt.is_dirty(slot):
                        problems.append(f"CMT: LPA {self.cmt.lpa[slot]} is clean, and has the UIP flag")
                if self.cmt.flags[slot] & VOID and self.cmt.is_dirty(slot):
                    problems.append(f"CMT: LPA {self.cmt.lpa[slot]} is dirty, and says nothing")
                slot = self.cmt.newer[slot]
        if n != self.uip_n:
            problems.append(f"CMT: {n} entries have the UIP flag, {self.uip_n} counted")
        return problems
