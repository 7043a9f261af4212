# distutils: language = c++
"""GeckoFTL's mapping (N. Dayan et al., GeckoFTL, SIGMOD 2016, section 4): DFTL's, with writes that do not look up the
old PPAs of their LPAs.

A write whose entry is not cached reads no translation page. Its entry gets the UIP flag (section 4.1): there may be an
old page of the LPA in flash that is not reported as invalid yet. The old PPA is found when the entry's translation page
is read to be rewritten, and is reported then. Until then validity counts that page as live, so validity is late;
cleaning that meets such a page asks the cache, and leaves the page to die.

A checkpoint says which entries have the flag. After a mount these flags are unsure (Appendix C.3.2): the old page may
have died with its block since the checkpoint, and now hold another LPA. So before it is reported, its OOB is read to
check the LPA, and validity is asked whether it is live.

Every superseded page that still counts as live has an entry with the flag in the cache, or else its translation page
still names it: a page superseded while its entry is cached is reported at once. So cleaning takes a page as live if its
LPA is neither cached nor pending.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from flashfs.parts.paged.cmt cimport AGED
from flashfs.parts.from_pages.fenced_map cimport FencedMap
from flashfs.parts.from_pages.fences cimport Fences
from flashfs.ftl.geckoftl.store cimport GeckoStore
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.owner cimport FOREIGN, LIVE, SUPERSEDED
from flashfs.engine.blocks.pool cimport CAUSE_MAP, KIND_USER, NONE, Oob, read_oob
from nandimg._nand cimport PAGE_OK

import numpy

from flashfs.errors import MapLostError

cdef enum:
    AT_ONCE = 128            # reports that one ``prepare`` makes room for
    BLOCKS_BETWEEN = 4       # whose entries there is room for between two requests


cdef class GeckoFences(Fences):
    """Once the reports are programmed, pages that waited for them die after the next sync."""

    cdef int reports_kept(self) except -1 nogil:
        return self.map.store.ripen()


cdef class GeckoMap(FencedMap):
    """As FencedMap: a crash is recovered by GeckoRec's steps (rebuild.pyx). Entries of moved pages always wait for the
    end of the request: writing them reports pages, and cleaning has no room for that."""

    def __cinit__(self, Engine ssd not None, *_, **__):
        self.said_room = 2 * ssd.nand.pages_per_block
        self.gone = <uint32_t*> malloc(<uint64_t> self.per_page * 4)
        self.said_lpa = <uint32_t*> malloc(<uint64_t> self.said_room * 4)
        self.said_ppa = <uint32_t*> malloc(<uint64_t> self.said_room * 4)
        if not (self.gone and self.said_lpa and self.said_ppa):
            raise MemoryError
        self.resize(self.cmt.slots)

    def __dealloc__(self):
        free(self.gone)
        free(self.said_lpa)
        free(self.said_ppa)

    def resize(self, slots):
        super().resize(slots)
        self.let_moved_wait(self.cmt.slots, self.cmt.slots, BLOCKS_BETWEEN)

    def rebuild_allowed(self):
        """The mapping is final now: Gecko may be rebuilt from it if a page of Gecko cannot be read."""
        super().rebuild_allowed()
        if isinstance(self.ssd.validity, GeckoStore):
            (<GeckoStore> self.ssd.validity).settled = True

    # --- entries

    cdef uint32_t slot_of(self, uint32_t lpa) noexcept nogil:
        """The slot with the LPA's entry, or NONE; a VOID slot does not count."""
        cdef uint32_t slot = self.cmt.find(lpa)
        return NONE if slot != NONE and self.cmt.flags[slot] & VOID else slot

    cdef int set_flags(self, uint32_t slot, uint8_t some, uint8_t no) noexcept nogil:
        cdef uint8_t* flags = self.cmt.flags
        flags[slot] = (flags[slot] | some) & <uint8_t> ~no
        return 0

    cdef int settled(self, uint32_t slot) noexcept nogil:
        """The PPA that the translation page has for that entry is reported, or needs no report: clear the flag."""
        self.uip_n -= self.cmt.flags[slot] & UIP != 0
        self.set_flags(slot, 0, UIP | UNSURE)
        return 0

    cdef int take_owed(self, uint32_t slot) except -1 nogil:
        """A pending entry has become a cached one: move its flag too."""
        if self.owed.erase(self.cmt.lpa[slot]):
            self.set_flags(slot, UIP | UNSURE, 0)
            self.uip_n += 1
        return 0

    cdef int taken_back(self, uint32_t slot) except -1 nogil:
        return self.take_owed(slot)

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """As FencedMap; but for a write, an entry only needs a slot."""
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
        """Fill a VOID slot with the LPA's entry."""
        cdef bint dirty = False
        cdef uint64_t reads = self.store.reads
        self.cmt.ppa[slot] = self.entry(self.cmt.lpa[slot], &dirty)
        self.loads += self.store.reads != reads
        self.set_flags(slot, 0, VOID)
        if not dirty:
            return 0
        self.cmt.mark(slot)
        self.set_flags(slot, AGED, 0)       # it was pending, for an unknown time
        return self.take_owed(slot)

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
        """Old pages that are cached or pending die now; those that a translation page may name are found later."""
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
                    self.take_owed(slot)
                elif self.gtd.page_ppas[self.page_of(lpas[i])] != NONE:
                    self.set_flags(slot, UIP, 0)
                    self.uip_n += 1
            self.cmt.put(slot, ppa + i)
        return self.drop_strays(lpas, 0, n, olds) if self.strays else 0

    def brings_back(self):
        """What a trim unmaps dies at once. Older pages are reported when the translation page is written; until then
        the cache says that the LPA is a hole."""
        return False

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
        """Flags go with their entries, so the caller has called ``identify`` before."""
        cdef uint32_t slot = self.cmt.first_dirty[page]
        while slot != NONE:
            self.settled(slot)
            slot = self.cmt.next_dirty[slot]
        return FencedMap.uncache(self, page)

    cdef int uncache_all(self) noexcept nogil:
        self.uip_n = 0
        self.owed.clear()
        return FencedMap.uncache_all(self)

    # --- pages that were superseded and not reported

    cdef int replaces(self, uint32_t page) except -1 nogil:
        self.identify(page)
        if self.image_of != page:
            self.fetch(page)
        return FencedMap.replaces(self, page)

    cdef int identify(self, uint32_t page) except -1 nogil:
        """``image`` is the page: report the pages that it names for entries with the UIP flag, before another page can
        take its place in ``image``. Room for the reports is made in steps; that may replace ``image``, and then the
        page is read again."""
        cdef uint32_t slot, n, first = page * self.per_page, old
        cdef bint unsure
        cdef int64_t start = self.ssd.map_ns
        while self.uip_n:
            slot = self.cmt.first_dirty[page]
            n = 0
            while slot != NONE and n < AT_ONCE:
                n += self.cmt.flags[slot] & UIP != 0
                slot = self.cmt.next_dirty[slot]
            if n == 0:
                break
            self.ssd.validity.prepare(n, False)
            self.ssd.map_ns = max(start, self.ssd.map_ns)
            if self.image_of != page:
                self.fetch(page)
            slot = self.cmt.first_dirty[page]
            n = 0
            while slot != NONE and n < AT_ONCE:
                if self.cmt.flags[slot] & UIP:
                    unsure = self.cmt.flags[slot] & UNSURE
                    self.settled(slot)
                    if self.image_of != page:   # ``is_before`` may rebuild validity, which reads other pages
                        self.fetch(page)
                    old = self.image[self.cmt.lpa[slot] - first]
                    if old != NONE and old != self.cmt.ppa[slot] and (
                            not (unsure or self.strays) or self.is_before(self.cmt.lpa[slot], old)):
                        self.gone[n] = old
                        n += 1
                slot = self.cmt.next_dirty[slot]
            self.identified += n
            self.ssd.validity.dead(self.gone, n)
        return self.identify_owed(page) if self.owed.size() else 0

    cdef int identify_owed(self, uint32_t page) except -1 nogil:
        """As ``identify``, for pending entries."""
        cdef uint32_t first = page * self.per_page, lpa, old
        cdef uint64_t at = self.pending.first_from(first)
        while at < self.pending.n and self.pending.lpa[at] < first + self.entries_of(page):
            lpa = self.pending.lpa[at]
            if self.owed.count(lpa):
                if not self.recovering:
                    self.ssd.validity.prepare(1, False)
                if self.image_of != page:
                    self.fetch(page)
                old = self.image[lpa - first]
                self.owed.erase(lpa)
                if old != NONE and old != self.pending.ppa[at] and self.is_before(lpa, old):
                    self.identified += 1
                    self.ssd.validity.dead(&old, 1)
            at += 1
        return 0

    cdef bint is_before(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Whether a page that a translation page names is still live and of that LPA: it may have died with its block
        before this mount, and hold another LPA by now."""
        cdef uint8_t status = 0
        cdef uint8_t[4096] raw
        cdef Oob oob
        if not self.ssd.validity.is_live(ppa):
            return False
        read_oob(self.ssd.nand, ppa, raw, &oob, &status, CAUSE_MAP, self.ssd.map_ns)
        return status == PAGE_OK and oob.kind == KIND_USER and oob.lpa == lpa

    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil:
        """The trimmed LPAs may have been written before without a look-up of their old PPAs."""
        if self.from_pages is not None and self.pending.n > self.pending_most:
            self.write_down(self.pending_most, NONE)
        n = FencedMap.prepare_unbind(self, lpa, n)
        if self.gtd.page_ppas[self.page_of(lpa)] != NONE:
            self.identify(self.page_of(lpa))
        return n

    cdef bint release_superseded(self) except -1 nogil:
        cdef uint32_t page
        cdef uint64_t before = self.identified
        for page in range(self.gtd.n if self.uip_n or self.owed.size() else 0):
            if self.gtd.page_ppas[page] != NONE and self.has_uip(page):
                self.fetch(page)
                self.identify(page)
        self.identified_early += self.identified - before
        if self.identified != before:
            return True
        if self.from_pages is None or self.store.kept.size() + self.store.ripe.size() == 0:
            return False
        # Superseded translation pages live until Gecko's buffer is written and a sync follows. Entries of moved pages
        # go to translation pages without reporting anything, so the buffer need not fill by itself.
        with gil:
            if isinstance(self.ssd.validity, GeckoStore):
                (<GeckoStore> self.ssd.validity).write_buffer()
        self.store.let_all_go()
        return True

    cdef bint has_uip(self, uint32_t page) noexcept nogil:
        cdef uint32_t slot = self.cmt.first_dirty[page]
        while slot != NONE:
            if self.cmt.flags[slot] & UIP:
                return True
            slot = self.cmt.next_dirty[slot]
        return self.owed.size() != 0

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        """A recovery trims without ``prepare_unbind``."""
        cdef uint32_t page
        if self.owed.size():
            for page in range(self.page_of(lpa), self.page_of(lpa + n - 1) + 1 if n else 0):
                if self.gtd.page_ppas[page] != NONE:
                    self.fetch(page)
                    self.identify_owed(page)
        return FencedMap.unbind(self, lpa, n, olds)

    # --- cleaning

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        """A page is superseded if the cache or a pending entry has another PPA for its LPA. If neither knows the LPA,
        the page is live and the translation page is not read, unless two pages of a move have the same LPA."""
        cdef uint32_t i, ppa = NONE
        if n > 1:
            self.said_n = 0                 # left by an earlier move that was given up
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

    cdef int superseded_left(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """These superseded pages are about to be erased, so the translation pages' entries for them must not be
        reported."""
        cdef uint32_t i, k, at, slot
        for i in range(n):
            for k in range(min(self.said_n, self.said_room) if ppas[i] != NONE else 0):
                at = (self.said_n - 1 - k) % self.said_room
                if self.said_ppa[at] == ppas[i]:
                    slot = self.cmt.find(self.said_lpa[at])
                    if slot != NONE:
                        self.settled(slot)
                    self.owed.erase(self.said_lpa[at])
                    break
        self.said_n = 0
        return 0

    cdef int page_lost(self, uint32_t ppa) except -1 nogil:
        """A page that cannot be read is no LPA's newest, and its LPA is unknown: any translation page may still name
        it."""
        cdef uint32_t slot, segment
        for slot in range(min(self.said_n, self.said_room)):
            if self.said_ppa[slot] == ppa:  # its spare area was not readable
                self.said_ppa[slot] = NONE
        for segment in range(2):
            slot = self.cmt.oldest[segment]
            while slot != NONE:
                if self.cmt.flags[slot] & UIP:
                    self.set_flags(slot, UNSURE, 0)
                slot = self.cmt.newer[slot]
        return 0

    cdef int moves_end(self) except -1 nogil:
        self.said_n = 0
        return self.make_room_for_moved()

    # --- fences, and what a recovery makes of pages

    cdef int checkpoint_ended(self, bint whole) except -1:
        """If reports were kept, so are the superseded translation pages by which a recovery finds them: they ripen when
        the reports are programmed."""
        cdef unordered_set[uint32_t] needed
        cdef bint waits = self.from_pages is not None and (<Fences> self.from_pages).far
        if waits:
            needed.swap(self.store.kept)
        FencedMap.checkpoint_ended(self, whole)
        if waits:
            self.store.kept.swap(needed)
        return 0

    def made_fences(self):
        return GeckoFences(self.ssd, map=self)

    def let_reports_wait(self, uint32_t aside):
        """Allows the store to keep its reports at a fence; see ``Fences.reach_far``."""
        (<Fences> self.from_pages).reach_far(aside)

    def base_from_pages(self, versions):
        return {**super().base_from_pages(versions), "uip": b""}

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        """Step 7: the PPA in the LPA's translation page is found when that page is written. A clean checkpoint may have
        an entry newer than that page; no translation page ever named its PPA, so it must be reported here: it was
        reported when this page replaced it, but that report may have been lost with the buffer."""
        cdef uint32_t old
        cdef int64_t at
        if self.from_pages is not None:
            at = self.pending.find(lpa)
            old = self.pending.ppa[at] if at >= 0 else NONE
            if old != NONE and old != ppa and self.is_before(lpa, old):
                self.ssd.validity.dead(&old, 1)
            self.owed.insert(lpa)
        return FencedMap.recovered(self, lpa, ppa, scheme_oob)

    def find_reports(self, versions, uint64_t since, in_scan):
        """After the entries of a recovery: find the reports that validity got after sequence number ``since`` and that
        were not programmed; the pages are dead now. ``in_scan(block)``: validity knows all of that block. Returns a
        line about it.

        Step 4 (Appendix C.2.2), after step 6: a PPA that a translation page named, and its next version does not, was
        reported between the two, or before the older one. That page is dead, unless the LPA maps to it again: so the
        recovered mapping is consulted, not the translation page alone."""
        ids, seqs, ppas = versions
        cdef uint64_t i, before = self.identified, pages = 0
        self.found.into(self.pending)
        cdef uint32_t[::1] older = numpy.empty(self.per_page, numpy.uint32)
        cdef uint32_t[::1] newer = numpy.empty(self.per_page, numpy.uint32)
        for i in range(1, len(ids)):
            if ids[i] != ids[i - 1] or seqs[i] <= since:
                continue
            for ppa, into in ((ppas[i - 1], older), (ppas[i], newer)):
                if not self.store.read(<uint32_t> ppa, <uint32_t> ids[i], <uint8_t*> &into[0]):
                    raise MapLostError(self.fault_in(ids[i]))
            pages += 2
            self.look(ids[i])
            self.report_lost(ids[i], &older[0], &newer[0], self.looked, in_scan)
        return f"{pages} pages, {self.identified - before} reports"

    cdef int report_lost(self, uint32_t page, const uint32_t* before, const uint32_t* after,
                         const uint32_t* newest, object in_scan) except -1:
        cdef uint32_t i, first = page * self.per_page, ppa, old, chip = self.ssd.nand.blocks
        cdef int64_t at
        for i in range(self.entries_of(page)):
            old = before[i]
            if old == NONE or old == after[i] or old // self.ssd.nand.pages_per_block >= chip:
                continue
            at = self.pending.find(first + i)
            ppa = self.pending.ppa[at] if at >= 0 else newest[i]
            if (old != ppa and not in_scan(old // self.ssd.nand.pages_per_block) and self.is_before(first + i, old)):
                self.identified += 1
                self.ssd.validity.dead(&old, 1)
        return 0

    cdef int housekeep(self) except -1 nogil:
        """Superseded translation pages die after a sync that follows their reports (``reports_kept``). Write the more
        entries, the further they exceed their room: writing a page may trigger cleaning, which adds entries."""
        cdef uint64_t over = self.pending.n - min(self.pending.n, self.pending_most)
        self.store.let_ripe_go()
        self.give_room_back()
        self.bound_growth()
        return self.write_down(self.pending_most, <uint32_t> (over // 2 + 1))

    # --- the rest of the interface

    def save(self):
        """As FencedMap; ``uip``: which of the newer entries have the UIP flag, a bit each, the lowest first."""
        lpas, _ = self.newer()
        flags = numpy.fromiter((self.owes(lpa) for lpa in lpas.tolist()), bool, len(lpas))
        return {**super().save(), "uip": numpy.packbits(flags, bitorder="little").tobytes()}

    def owes(self, uint32_t lpa):
        """Whether a translation page may name an old page of the LPA that is not reported."""
        cdef uint32_t slot = self.cmt.find(lpa)
        return bool(self.owed.count(lpa) or (slot != NONE and self.cmt.flags[slot] & UIP))

    def load(self, sections):
        super().load(sections)
        cdef uint64_t i
        self.store.keep_all(numpy.frombuffer(sections.get("kept", b""), "<u4").tolist())
        raw = sections["uip"]
        if len(raw) != (self.pending.n + 7) // 8:
            raise ValueError(f"uip section of {len(raw)} bytes: {(self.pending.n + 7) // 8} are needed")
        flags = numpy.unpackbits(numpy.frombuffer(raw, "u1"), count=self.pending.n, bitorder="little")
        for i in range(self.pending.n):
            if flags[i]:
                self.owed.insert(self.pending.lpa[i])

    def tables(self):
        taken = 4 * self.per_page + 8 * self.said_room
        owed = self.owed.size()
        return {**super().tables(), "uip_lists": (taken + 4 * owed, taken + 40 * owed)}

    def figures(self):
        return {**super().figures(), "uip": self.uip_n + self.owed.size(), "identified": self.identified,
                "identified_early": self.identified_early}

    def forget_counts(self):
        self.identified = self.identified_early = 0
        super().forget_counts()

    def check(self):
        """As FencedMap; only dirty entries have the UIP flag, and their count is right."""
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
