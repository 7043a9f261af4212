# distutils: language = c++
"""LeaFTL's look-up: what the segments predict and, where that is a guess, what the OOBs of pages say.

With gamma 0 a segment's answer is exact. With a larger one it may be off by gamma pages: then the page that was read
names the LPAs of its neighbours in its OOB, and one more read finds the right one (3.5). Code that invalidates a page
must know its exact place: it asks validity first, then the list of neighbours read last, and reads one only if it must.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from flashfs.parts.paged.paged_map cimport PagedMapping
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport CAUSE_MAP, KIND_USER, NONE, OOB_ENGINE, oob_kind, oob_lpa, placed
from flashfs.parts.paged.part_pages cimport TranslationPages
from flashfs.ftl.leaftl.gmd cimport Gmd
from flashfs.ftl.leaftl.group cimport GROUP
from flashfs.ftl.leaftl.blocks cimport ABSENT
from flashfs.ftl.leaftl.segments cimport SegmentTable
from flashfs.ftl.leaftl.table_pages cimport TablePages
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

from flashfs.ftl.leaftl.table_pages import span_of

cdef enum:
    PAIR_MOST = 4            # LPAs: two points farther apart are no pair (docs/ftl/leaftl.md, "Decisions")


def oob_bytes(gamma):
    """Bytes of the scheme's part of a page's OOB: the LPAs of the gamma pages before it and after it, 4 bytes each. The
    paper's 2 gamma + 1 entries have the page's own LPA in the middle; here that is in the engine's part."""
    return 8 * gamma


cdef class LearnedPlaces(PagedMapping):
    """The log-structured mapping table, and the checks that make a prediction certain. ``gamma`` in pages, ``grown`` as
    for SegmentTable; ``compact_every`` is used by the mapping."""

    def __cinit__(self, Engine ssd not None, uint32_t gamma, uint64_t compact_every, uint32_t grown):
        cdef Gmd gmd
        self.ssd = ssd
        self.gamma = gamma
        self.scheme_oob = oob_bytes(gamma)
        self.table = SegmentTable(ssd.lpas, gamma, pages_per_block=ssd.nand.pages_per_block, pair_most=PAIR_MOST,
                                  grown=grown)
        gmd = Gmd(self.table.groups, span_of(ssd.nand.page_bytes))
        self.own_pages(TranslationPages(ssd, gmd, self.table.groups * gmd.span), gmd)
        self.pages = TablePages(self, self.table, gmd)
        self.table.put_elsewhere(self.pages)
        self.named_lpa = self.named_ppa = self.list_at = NONE
        self.half_erased = set()

    # --- where is an LPA?

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """Bring the group of the first LPA into memory; returns how many LPAs are ready. Loading a group may evict
        others, so only the first group of a batch is loaded. A write loads its group when it is learned."""
        cdef uint32_t i
        if writing or not self.pages.limit:
            return n
        if self.table.directory[lpas[0] // GROUP] == ABSENT:
            self.pages.need(lpas[0] // GROUP)
        for i in range(n):
            if self.table.directory[lpas[i] // GROUP] == ABSENT:
                return i
            if lpas[i] // GROUP == lpas[0] // GROUP:
                ready[i] = self.ssd.map_ns
        return n

    cdef int peek(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i = 0, end, group, levels = 0
        cdef bint absent, about = False
        cdef uint8_t used
        while i < n:
            group = lpas[i] // GROUP
            end = i
            absent = self.table.directory[group] == ABSENT
            used = self.pages.used[group >> 3]
            if absent:
                self.pages.borrow(group)
            while end < n and lpas[end] // GROUP == group:
                if not self.table.find(lpas[end], ppas + end, &levels, &about):
                    ppas[end] = NONE
                end += 1
            self.pages.used[group >> 3] = used
            if absent:
                self.pages.give_back(group)
            i = end
        return 0

    cdef uint32_t unmapped_from(self, uint32_t lpa, uint32_t n) noexcept nogil:
        """How many LPAs from ``lpa`` on are in groups without a segment."""
        cdef uint32_t first = lpa
        while first < lpa + n and self.table.directory[first // GROUP] == 0:
            first = min(lpa + n, (first // GROUP + 1) * GROUP)
        return first - lpa

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i = 0, k, part
        self.named_lpa = NONE
        while i < n:
            part = min(n - i, <uint32_t> PART)
            self.table.find_many(lpas + i, part, ppas + i, self.part_levels, NULL)
            for k in range(part):
                self.by_level[self.part_levels[k] if ppas[i + k] != NONE else 0] += 1
            i += part
        return 0

    cdef uint32_t after_miss(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) except? 0xFFFFFFFE nogil:
        """The page to try after ``ppa`` was read and is not the LPA's: the one that its OOB's list names (3.5), or if
        that page cannot be read or does not list the LPA, the next one in reach. NONE if there is none."""
        cdef uint32_t predicted = NONE, levels = 0, found
        cdef bint about = False
        if self.gamma == 0 or (lpa == self.named_lpa and ppa == self.named_ppa):
            return NONE                    # the place is certain, so there is no other to try
        if not self.table.find(lpa, &predicted, &levels, &about) or not about:
            return NONE
        if oob != NULL:
            found = self.named(lpa, ppa, oob)
            if found != NONE and found != ppa and self.in_reach(found, predicted):
                self.mispredictions += ppa == predicted
                self.named_lpa = lpa
                self.named_ppa = found
                return found
        self.probes += 1
        return self.next_probe(predicted, ppa)

    cdef uint32_t named(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) noexcept nogil:
        """Where the OOB read at ``ppa`` says that ``lpa`` is, or NONE."""
        cdef uint32_t i, entry
        if oob_kind(oob) == KIND_USER and oob_lpa(oob) == lpa:
            return ppa
        for i in range(2 * self.gamma):
            memcpy(&entry, oob + OOB_ENGINE + 4 * i, 4)
            if entry == lpa:
                return ppa + i - self.gamma + (i >= self.gamma)
        return NONE

    cdef bint in_reach(self, uint32_t ppa, uint32_t predicted) noexcept nogil:
        """Whether a segment that predicts ``predicted`` may mean ``ppa``."""
        cdef uint32_t away = ppa - predicted if ppa > predicted else predicted - ppa
        return away <= self.gamma and ppa // self.ssd.nand.pages_per_block == predicted // self.ssd.nand.pages_per_block

    cdef uint32_t next_probe(self, uint32_t predicted, uint32_t ppa) noexcept nogil:
        """Of the pages that a prediction may mean, the next to be tried after ``ppa``: +1, -1, +2, -2, ..."""
        cdef uint32_t away = ppa - predicted if ppa > predicted else predicted - ppa
        cdef bint below = ppa < predicted
        while True:
            if below or away == 0:
                away += 1
                below = False
            else:
                below = True
            if away > self.gamma:
                return NONE
            ppa = predicted - away if below else predicted + away
            if self.in_reach(ppa, predicted):
                return ppa

    # --- the exact place, which code that invalidates a page must know

    cdef int places(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """The exact PPAs of ``n`` LPAs (PART at most), NONE if unmapped. ``part_about`` is 1 where a segment is
        approximate, and 2 where the LPA is mapped but cannot be found."""
        cdef uint32_t i
        self.table.find_many(lpas, n, ppas, NULL, self.part_about)
        self.list_at = NONE
        if self.gamma:
            for i in range(n):
                if self.part_about[i] and ppas[i] != NONE:
                    ppas[i] = self.settle(lpas[i], ppas[i])
                    if ppas[i] == NONE:
                        self.part_about[i] = 2
        return 0

    cdef uint32_t settle(self, uint32_t lpa, uint32_t predicted) except? 0xFFFFFFFE nogil:
        """The exact page of a prediction. It is live and in reach: if only one page is, it is that. Else a list of
        neighbours decides: the one that was read last or, by a spare read, that of the predicted page."""
        cdef uint32_t ppa, at = predicted
        if not self.recovering:            # during a recovery neither validity nor places are certain
            ppa = self.only_live(predicted)
            if ppa != NONE:
                self.settled_by_live += 1
                return ppa
            ppa = self.listed(lpa, predicted)
            if ppa != NONE:
                self.settled_by_list += 1
                return ppa
        while at != NONE:
            if self.read_list(at):
                ppa = self.listed(lpa, predicted)
                if ppa != NONE:
                    return ppa
            at = self.next_probe(predicted, at)
        return NONE

    cdef uint32_t only_live(self, uint32_t predicted) except? 0xFFFFFFFE nogil:
        """The live page in reach of a prediction, if there is exactly one."""
        cdef uint32_t pages = self.ssd.nand.pages_per_block, first = predicted - predicted % pages
        cdef uint32_t ppa, only = NONE
        cdef uint32_t low = max(first, predicted - self.gamma if predicted > self.gamma else 0)
        for ppa in range(low, min(first + pages, predicted + self.gamma + 1)):
            if self.ssd.validity.is_live(ppa):
                if only != NONE:
                    return NONE
                only = ppa
        return only

    cdef uint32_t listed(self, uint32_t lpa, uint32_t predicted) except? 0xFFFFFFFE nogil:
        """The PPA of ``lpa`` in the list read last, if the prediction can mean that; else NONE."""
        cdef uint32_t ppa
        if self.list_at == NONE:
            return NONE
        ppa = self.named(lpa, self.list_at, self.spare)
        if ppa != NONE and self.in_reach(ppa, predicted) and (self.recovering or self.ssd.validity.is_live(ppa)):
            return ppa
        return NONE

    cdef bint read_list(self, uint32_t ppa) except -1 nogil:
        """Read a page's OOB, with cause MAP; returns whether it has a list."""
        cdef uint8_t status = 0
        cdef uint32_t block = ppa // self.ssd.nand.pages_per_block, page = ppa % self.ssd.nand.pages_per_block
        self.settled_by_read += 1
        self.ssd.map_ns = self.ssd.nand.read_spare(block, page, 1, self.spare, &status, CAUSE_MAP, self.ssd.map_ns)
        status = placed(status, self.spare, page)
        self.list_at = ppa if status == PAGE_OK and oob_kind(self.spare) == KIND_USER else NONE
        if status != PAGE_OK and self.recovering and page < self.ssd.pool.next_page[block] and (
                status == PAGE_ERASED or self.ssd.nand.lost_erase(block)):
            with gil:
                self.half_erased.add(block)
        return self.list_at != NONE

    cdef uint32_t locate(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        cdef uint32_t ppa = NONE
        self.places(&lpa, 1, &ppa)
        return ppa

    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """The LPA that the table maps to ``ppa``. If it may be several, the one that a neighbour's list names, or that
        has no other page."""
        cdef uint32_t lpa, predicted = NONE, levels = 0, claim = self.claimed(ppa), lost = NONE
        cdef bint about = False
        for lpa in range(self.ssd.lpas):
            if not self.table.find(lpa, &predicted, &levels, &about) or not self.in_reach(ppa, predicted):
                continue
            if lpa == claim or (not about and predicted == ppa):
                return lpa
            if about and claim == NONE and lost == NONE and self.locate(lpa) == NONE:
                lost = lpa
        if lost == NONE:
            self.exact = False
        return lost

    cdef uint32_t claimed(self, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """The LPA that a neighbour's list has at ``ppa``, or NONE."""
        cdef uint32_t near = ppa, i, lpa = NONE
        while self.gamma:
            near = self.next_probe(ppa, near)
            if near == NONE:
                break
            if self.read_list(near):
                i = self.gamma - (near - ppa) if near > ppa else self.gamma + (ppa - near) - 1
                memcpy(&lpa, self.spare + OOB_ENGINE + 4 * i, 4)
                if lpa != NONE:
                    break
        return lpa
