# distutils: language = c++
# cython: wraparound=True
"""LeaFTL: the map as line segments that were learned from it (ASPLOS'23). What the paper replaces is the mapping; how
pages come to lie so that a few lines describe them (a sorted buffer, a block at a time) is the engine's to offer.

The table answers from segments (segments.pyx). With gamma 0 the answer is exact. With a larger one it may be off
by gamma pages: then the page that was read names the LPAs of its neighbours in its OOB, and one more read finds the
right one. A page names only neighbours of its own *run*, those that were programmed with it, and a segment predicts
only pages of the run that it was learned from. docs/ftl/leaftl.md says why, and what recovery makes of it.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from flashfs.ftl.leaftl.group cimport BLOCK_MOST, GROUP, HOLE, LEVELS_MOST, View, slope_at, view
from flashfs.ftl.leaftl.learn cimport APPROXIMATE
from flashfs.engine.parts cimport FOREIGN, Engine, Mapping
from flashfs.engine.pool cimport CAUSE_MAP, KIND_USER, NONE, OOB_ENGINE, oob_kind, oob_lpa
from flashfs.ftl.leaftl.segments cimport ABSENT, SegmentTable
from flashfs.ftl.leaftl.table_pages cimport TablePages
from flashfs.ftl.leaftl.leaf_found cimport FoundPages
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

from math import ceil

from flashfs.ftl.leaftl.table_pages import IN_FLASH, SHARE_LEAST
from flashfs.errors import BindError
from flashfs.ftl.common import spare_blocks

cdef extern from "<algorithm>" namespace "std" nogil:
    void sort(uint64_t* first, uint64_t* last)

cdef enum:
    PART = 256               # LPAs that are asked for at once
    PAIR_MOST = 4            # LPAs: two that lie farther apart are no pair (docs/ftl/leaftl.md, "Decisions")
    SPARE_MOST = 2048        # bytes of the largest OOB


def oob_bytes(gamma):
    """What a page's OOB holds beside the engine's: the LPAs of the gamma pages before it and behind it, 4 bytes each.
    The paper's 2 gamma + 1 entries have the page's own LPA in the middle; here that is in the engine's part."""
    return 8 * gamma


def saved_bytes(lpas):
    """The most that a checkpoint of so many LPAs takes: for each group its length (2 bytes) and its block, which is
    compacted if it is larger than a block needs to be in which no LPA is held twice. One that is in a translation page
    takes less: its part in the directory of those."""
    full, rest = divmod(lpas, GROUP)
    return full * (2 + group_most(GROUP)) + (max(2 + group_most(rest), <uint32_t> 74) if rest else 0)


cpdef uint32_t group_most(uint32_t lpas) noexcept nogil:
    """Bytes of a compacted group of so many LPAs, at most: a level, a segment, a CRB byte and a null for each."""
    return min(3 + 11 * lpas, <uint32_t> BLOCK_MOST)


cdef class LearnedMap(Mapping):
    """The log-structured mapping table as the map of a device. ``gamma`` in pages."""
    cdef readonly SegmentTable table
    cdef readonly TablePages pages
    cdef readonly uint32_t gamma
    cdef readonly uint64_t compact_every   # host pages between compactions; 0: never
    cdef readonly uint64_t mispredictions, probes, compactions, settled_by_live, settled_by_list, settled_by_read
    cdef uint64_t since_compaction
    cdef uint64_t[LEVELS_MOST + 1] by_level
    cdef uint32_t[PART] part_lpas
    cdef uint32_t[PART] part_ppas
    cdef uint8_t[PART] part_levels
    cdef uint8_t[PART] part_about
    cdef uint32_t named_lpa, named_ppa     # what after_miss said last, until the next look-up
    cdef uint32_t list_at                  # the page whose OOB is in ``spare``; NONE: none that can be relied on
    cdef uint8_t[SPARE_MOST] spare
    cdef int64_t mapped_n                  # LPAs that are mapped, counted as they are bound and unbound
    cdef bint exact                        # none of them was lost to damage
    cdef bint recovering
    cdef bint in_range                     # what ``misfit`` found was at least of this chip
    cdef set half_erased                   # blocks with a page of a run that is gone: their erase had begun
    cdef FoundPages found

    def __cinit__(self, Engine ssd, uint32_t gamma, uint64_t compact_every):
        self.ssd = ssd
        self.gamma = gamma
        self.scheme_oob = oob_bytes(gamma)
        self.compact_every = compact_every
        self.table = SegmentTable(ssd.lpas, gamma, pages_per_block=ssd.nand.pages_per_block, pair_most=PAIR_MOST)
        self.pages = TablePages(ssd, self.table)
        self.table.put_elsewhere(self.pages)
        self.named_lpa = self.named_ppa = self.list_at = NONE
        self.half_erased = set()
        self.found = FoundPages(gamma, ssd.nand.pages_per_block)

    # --- where is an LPA?

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """The groups of the first LPAs are in memory. To bring one in may push others out, so only the first group of a
        batch is brought in. What is written needs its group when it is learned, and brings it in then."""
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
        """The list in the OOB of the page that was read names the right one (3.5). Where that page cannot be read, or
        does not say, another of the run does."""
        cdef uint32_t predicted = NONE, levels = 0, found
        cdef bint about = False
        if self.gamma == 0 or (lpa == self.named_lpa and ppa == self.named_ppa):
            return NONE                    # the place is known, and this was it
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
        """Whether a segment that predicts the one may mean the other."""
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

    # --- where exactly? Whoever invalidates a page must know

    cdef int places(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """Where each of ``n`` LPAs (PART at most) lies for certain, NONE if nowhere. ``part_about`` is 1 where a
        segment is approximate, and 2 where the LPA is mapped and cannot be found."""
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
        """The page that a prediction means. It is live and in reach: if only one is, that is it. Else a list of
        neighbours says, the one that was read last or, by a spare read, that of the predicted page."""
        cdef uint32_t ppa, at = predicted
        if not self.recovering:            # until it is over, neither what lives nor what lies where is sure
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
        """The live page in reach of a prediction, if there is one only."""
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
        """Where the list that was read last has ``lpa``, if the prediction can mean that."""
        cdef uint32_t ppa
        if self.list_at == NONE:
            return NONE
        ppa = self.named(lpa, self.list_at, self.spare)
        if ppa != NONE and self.in_reach(ppa, predicted) and (self.recovering or self.ssd.validity.is_live(ppa)):
            return ppa
        return NONE

    cdef bint read_list(self, uint32_t ppa) except -1 nogil:
        """A spare read, on the map's account; whether it found a page's list."""
        cdef uint8_t status = 0
        cdef uint32_t block = ppa // self.ssd.nand.pages_per_block
        self.settled_by_read += 1
        self.ssd.map_ns = self.ssd.nand.read_spare(block, ppa - block * self.ssd.nand.pages_per_block, 1, self.spare,
                                                   &status, CAUSE_MAP, self.ssd.map_ns)
        self.list_at = ppa if status == PAGE_OK and oob_kind(self.spare) == KIND_USER else NONE
        if status == PAGE_ERASED and self.recovering:
            with gil:
                self.half_erased.add(block)
        return self.list_at != NONE

    cdef uint32_t locate(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        cdef uint32_t ppa = NONE
        self.places(&lpa, 1, &ppa)
        return ppa

    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """That LPA of which the table says so; or, where it says so of several, the one that a neighbour's list names,
        or that is found nowhere else."""
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

    # --- changes

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t* olds) except -1 nogil:
        """Find what dies, then learn the run."""
        cdef uint32_t i = 0, k, part
        while i < n:
            part = min(n - i, <uint32_t> PART)
            self.places(lpas + i, part, olds + i)
            for k in range(part):
                self.part_ppas[k] = ppa + i + k
                self.mapped_n += olds[i + k] == NONE
            if is_rising(lpas + i, part):
                self.table.insert_run(lpas + i, self.part_ppas, part)
            else:
                self.insert_unsorted(lpas + i, part, olds + i)
            i += part
        self.since_compaction += n
        if self.compact_every and self.since_compaction >= self.compact_every:
            self.since_compaction = 0
            self.compactions += 1
            self.table.compact_all()
        return 0

    cdef int insert_unsorted(self, const uint32_t* lpas, uint32_t n, uint32_t* olds) except -1 nogil:
        """Pages that lie in no order of LPAs, at ``part_ppas``: of an LPA that comes twice the last counts. They are
        learned exactly: a guess could meet the earlier of two pages of one LPA, and that would look right."""
        cdef uint64_t[PART] keys
        cdef uint32_t[PART] ppas
        cdef uint32_t i, lpa, at, kept = 0, gamma = self.table.rules.gamma
        for i in range(n):
            keys[i] = <uint64_t> lpas[i] << 32 | i
        sort(keys, keys + n)
        for i in range(n):
            lpa = <uint32_t> (keys[i] >> 32)
            at = <uint32_t> keys[i]
            if kept and self.part_lpas[kept - 1] == lpa:
                self.mapped_n -= olds[at] == NONE
                olds[at] = ppas[kept - 1]
                kept -= 1
            self.part_lpas[kept] = lpa
            ppas[kept] = self.part_ppas[at]
            kept += 1
        self.table.rules.gamma = 0
        try:
            self.table.insert_run(self.part_lpas, ppas, kept)
        finally:
            self.table.rules.gamma = gamma
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """Cleaning sorted them: what went to one block in one go is a run."""
        cdef uint32_t i = 0, run, pages = self.ssd.nand.pages_per_block
        while i < n:
            run = 1
            while (i + run < n and news[i + run] == news[i] + run and news[i + run] % pages != 0
                   and lpas[i + run] > lpas[i + run - 1]):
                run += 1
            self.table.insert_run(lpas + i, news + i, run)
            i += run
        return 0

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* yes) except -1 nogil:
        """Where the table is not exact, a page in reach is believed that alone says it is that LPA's; of two in reach
        that say so, and of one that was asked for by itself, the lists decide."""
        cdef uint32_t i, k, at, predicted = NONE, levels = 0
        cdef bint about = False
        for i in range(n):
            yes[i] = FOREIGN
            if lpas[i] >= self.ssd.lpas or not self.table.find(lpas[i], &predicted, &levels, &about):
                continue
            yes[i] = self.in_reach(ppas[i], predicted) if about else predicted == ppas[i]
            if not about or not yes[i]:
                continue
            at = NONE
            if n == 1:
                yes[i] = self.locate(lpas[i]) == ppas[i]
            for k in range(i):
                if lpas[i - k - 1] == lpas[i] and yes[i - k - 1]:
                    at = self.locate(lpas[i])
                    yes[i - k - 1] = at == ppas[i - k - 1]
                    yes[i] = at == ppas[i]
                if ppas[i] - ppas[i - k - 1] > 2 * self.gamma:
                    break
        return 0

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t i = 0, k, part, mapped
        cdef int missing = 0
        while i < n:
            part = min(n - i, <uint32_t> PART)
            for k in range(part):
                self.part_lpas[k] = lpa + i + k
            self.places(self.part_lpas, part, olds + i)
            mapped = 0
            for k in range(part):
                missing |= self.part_about[k] == 2
                self.mapped_n -= olds[i + k] != NONE
                if olds[i + k] != NONE or self.part_about[k] == 2:
                    self.part_lpas[mapped] = lpa + i + k
                    mapped += 1
            if mapped:
                self.table.unmap_run(self.part_lpas, mapped)
            i += part
        return missing

    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, uint32_t n, uint32_t block, uint32_t page,
                   uint32_t before, uint32_t behind) except -1 nogil:
        """The LPAs of the gamma pages before and behind, as far as the run goes; NONE beyond."""
        cdef uint32_t i, left, right, gamma = self.gamma
        if gamma == 0:
            return 0
        for i in range(n):
            left = min(gamma, before + i)
            right = min(gamma, n - 1 - i + behind)
            memset(oob, 0xFF, 8 * gamma)
            memcpy(oob + 4 * (gamma - left), lpas + i - left, 4 * left)
            memcpy(oob + 4 * gamma, lpas + i + 1, 4 * right)
            oob += self.ssd.nand.oob_bytes
        return 0

    # --- recovery: the checkpoint's table stands until every LPA is settled; then what is newer is learned again

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        return self.found.add(lpa, ppa, scheme_oob)

    cdef int relearn(self) except -1 nogil:
        """What is newer than the checkpoint, in the order of PPAs, run by run."""
        cdef uint32_t first = 0, n
        self.found.settle()
        while first < self.found.n:
            n = self.found.run(first, self.part_lpas, self.part_ppas, PART)
            self.table.insert_run(self.part_lpas, self.part_ppas, n)
            first += n
        self.found.clear()
        return 0

    def recovery_erased(self):
        """A block in which a page of a run reads as erased was being erased when the power went: all in it had been
        superseded. Only a prediction that is no certainty has to look there."""
        return self.half_erased

    def recovery_steps(self):
        return (("relearn", "blocks", "learn the pages that are newer than the checkpoint", self.relearn_found),)

    def relearn_found(self):
        n = self.found.n
        self.relearn()
        return f"{n} pages"

    def recovery_ends(self):
        """Without a budget, all that is in flash comes into memory too."""
        self.relearn()
        if not self.pages.limit:
            self.pages.load_all()
        self.squeeze()
        self.recovering = False
        self.half_erased = set()

    def manages(self):
        self.pages.strict = False

    def opens(self):
        """From here on the LPAs that are mapped are counted; to ask for each takes too long before every checkpoint."""
        cdef uint32_t block
        self.mapped_n = -<int64_t> len(self.translation_pages())
        for block in range(self.ssd.nand.blocks):
            self.mapped_n += self.ssd.validity.count(block)
        self.exact = True

    cdef int64_t pages_named(self) except -2 nogil:
        return self.mapped_n + self.pages.homes_n() if self.exact and not self.pages.rebuilt else -1

    cdef int squeeze(self) except -1 nogil:
        """Every group fits its part of a checkpoint."""
        cdef uint32_t group, lpas
        for group in range(self.table.groups):
            lpas = min(<uint32_t> GROUP, self.ssd.lpas - group * GROUP)
            if not self.pages.settled(group) and self.table.group_bytes(group) > group_most(lpas):
                self.table.compact_group(group)
        return 0

    # --- the rest of the interface

    def reset(self):
        cdef uint32_t group
        for group in range(self.table.groups):
            self.table.drop_group(group)
            self.table.directory[group] = 0
        self.pages.clear()
        self.pages.store.reset()
        self.found.clear()
        self.recovering = self.pages.strict = True
        self.half_erased = set()

    def save(self):
        """For each group the length of its block (2 bytes), then the block; or IN_FLASH, and its leaf is one of the
        section of leaves."""
        cdef uint32_t group, n
        cdef uint64_t total = 0
        cdef uint8_t[::1] bytes_of
        cdef uint8_t* at
        self.squeeze()
        for group in range(self.table.groups):
            total += 2 + (0 if self.pages.settled(group) else self.table.group_bytes(group))
        out = bytearray(total)
        bytes_of = out
        at = &bytes_of[0]
        for group in range(self.table.groups):
            if self.pages.settled(group):
                at[0] = at[1] = 255
                at += 2
                continue
            n = self.table.save_group(group, at + 2)
            at[0] = n & 255
            at[1] = <uint8_t> (n >> 8)
            at += 2 + n
        return {"groups": out, "gmd": self.pages.saved_leaves()}

    def load(self, sections):
        """The inverse; ValueError names the first group that cannot be."""
        cdef const uint8_t[::1] saved = sections["groups"]
        cdef uint64_t at = 0, size = saved.shape[0]
        cdef uint32_t group, n, elsewhere = 0
        cdef const char* fault
        self.reset()
        for group in range(self.table.groups):
            n = saved[at] | <uint32_t> saved[at + 1] << 8 if at + 2 <= size else 0
            if n == <uint32_t> IN_FLASH:
                elsewhere += 1
                at += 2
                continue
            if at + 2 > size or n > size - at - 2:
                raise ValueError(f"groups section of {size} bytes: it ends in group {group} of {self.table.groups}")
            fault = self.table.load_group(group, &saved[at] + 2, n)
            if fault != NULL:
                raise ValueError(f"group {group}: {(<bytes> fault).decode()}")
            at += 2 + n
        if at != size:
            raise ValueError(f"groups section of {size} bytes: {at} are needed")
        self.pages.take_leaves(sections.get("gmd", b""))
        for group in range(self.table.groups):
            elsewhere -= self.table.directory[group] == ABSENT
        if elsewhere:
            raise ValueError("groups section: groups that are in flash are not those of the section gmd")

    def verify(self, bint whole=True):
        """Of guesses only so much: that they are pages of this chip. ``doubt`` says the rest."""
        wrong = self.misfit(whole)
        if wrong and (self.gamma == 0 or not self.in_range):
            raise ValueError(wrong)

    def doubt(self, bint whole=True):
        """A page that lies about its LPA may have misled whoever overwrote its neighbours."""
        return self.misfit(whole) if self.gamma else None

    def misfit(self, bint whole):
        """The first thing that is wrong, or None: each mapped page is live, no two LPAs share one, and no other page is
        live, but for translation pages. Of a guess only so much is asked: that a live page is in reach. Groups that are
        in flash are read if ``whole``, but not while a recovery may have to find them first; MapLostError if they
        cannot be."""
        cdef uint32_t first = 0, i, n, ppa, block
        cdef uint64_t mapped = 0, live = 0
        cdef uint64_t pages = <uint64_t> self.ssd.nand.blocks * self.ssd.nand.pages_per_block
        cdef uint64_t* seen = <uint64_t*> calloc(pages // 64 + 1, 8)
        cdef bint absent = False
        wrong = None
        self.in_range = False
        if seen == NULL:
            raise MemoryError
        try:
            while first < self.ssd.lpas:
                n = min(self.ssd.lpas - first, <uint32_t> PART)
                if (self.recovering or not whole) and self.table.directory[first // GROUP] == ABSENT:  # PART is a group
                    absent = True
                    first += n
                    continue
                for i in range(n):
                    self.part_lpas[i] = first + i
                self.table.find_many(self.part_lpas, n, self.part_ppas, NULL, self.part_about)
                for i in range(n):
                    ppa = self.part_ppas[i]
                    if ppa == NONE:
                        continue
                    mapped += 1
                    if ppa >= pages:
                        return f"LPA {first + i} is at PPA {ppa}: the chip has {pages} pages"
                    if wrong:
                        continue
                    if self.part_about[i]:
                        if not self.any_live(ppa):
                            wrong = f"LPA {first + i} is near PPA {ppa}, where no page is live"
                    elif seen[ppa >> 6] >> (ppa & 63) & 1 or not self.ssd.validity.is_live(ppa):
                        wrong = f"LPA {first + i} is at PPA {ppa}, which is not live or another LPA's"
                    else:
                        seen[ppa >> 6] |= <uint64_t> 1 << (ppa & 63)
                first += n
        finally:
            free(seen)
        for block in range(self.ssd.nand.blocks):
            live += self.ssd.validity.count(block)
        self.in_range = True
        for home in self.translation_pages():
            if not self.ssd.validity.is_live(home):
                wrong = wrong or f"PPA {home}: a translation page that is not live"
            mapped += 1
        if live < mapped if absent else live != mapped:
            wrong = wrong or f"{live} pages are live, and {mapped} LPAs and translation pages are mapped"
        return wrong

    cdef bint any_live(self, uint32_t predicted) except -1 nogil:
        """Whether a live page is in reach."""
        cdef uint32_t ppa = predicted
        while ppa != NONE:
            if self.ssd.validity.is_live(ppa):
                return True
            ppa = self.next_probe(predicted, ppa)
        return False

    def tables(self):
        sizes = self.table.sizes()
        directory = sizes["directory"]
        return {
            "segments": (sizes["modelled"] - directory, sizes["allocated"] - directory),
            "group_directory": (directory, directory),
            "translation_directory": self.pages.sizes(),
        }

    # --- translation pages

    cdef int tend(self) except -1 nogil:
        return self.pages.tend()

    cdef int checkpoint_begins(self) except -1:
        return self.pages.store.checkpoint_begins()

    cdef int checkpoint_ended(self, bint whole) except -1:
        return self.pages.store.checkpoint_ended(whole)

    def limit_tables(self, uint64_t share):
        """The groups in memory get ``share`` bytes; no limit if even the largest table fits that, or a smaller one was
        set already."""
        cdef uint64_t least = SHARE_LEAST * self.pages.capacity
        if share >= <uint64_t> self.table.groups * BLOCK_MOST or 0 < self.pages.limit <= share:
            return
        if share < least:
            raise BindError(f"leaftl: {share} bytes of DRAM are left for the mapping table: {least} would do")
        self.limit_groups(share)

    def limit_groups(self, uint64_t most):
        """No more than ``most`` bytes of groups are in memory between requests, as far as that can be; BindError if the
        chip has no room for the rest. In flash every leaf may be there twice, and cleaning has one more open block."""
        cdef uint32_t per_block = self.ssd.nand.pages_per_block
        need = -(-2 * self.table.groups * self.pages.span // per_block) + 2
        spare = spare_blocks(self.ssd)
        if spare < need:
            raise BindError(f"leaftl: a table that is partly in flash may take {need} blocks there, and {spare} are to "
                            "spare; more DRAM, a larger --op or a smaller --size would do")
        self.pages.limit = most
        self.ssd.reserve_for(2)  # a cleaned block's pages go to one stream or the other

    def translation_pages(self):
        return self.pages.homes() + self.pages.store.kept_ppas()

    def is_exact(self):
        return self.gamma == 0

    def from_kernel(self):
        return self.table.sizes()["from_kernel"]

    def survey(self):
        """What all groups hold, counted now: segments by kind, groups and segments by level, bytes."""
        cdef uint64_t[LEVELS_MOST + 1] groups
        cdef uint64_t[LEVELS_MOST + 1] segments
        cdef uint64_t about = 0, holes = 0
        cdef uint32_t group, level, i, at
        cdef const uint8_t* block
        cdef View parts
        memset(groups, 0, sizeof(groups))
        memset(segments, 0, sizeof(segments))
        with nogil:
            for group in range(self.table.groups):
                block = self.table.block_of(group)
                if block == NULL:
                    continue
                view(block, &parts)
                groups[parts.levels] += 1
                at = 0
                for level in range(parts.levels):
                    segments[level] += <uint32_t> parts.counts[level] + 1
                    for i in range(at, at + parts.counts[level] + 1):
                        about += slope_at(&parts, i) & APPROXIMATE
                        holes += (slope_at(&parts, i) & HOLE) != 0
                    at += <uint32_t> parts.counts[level] + 1
        sizes = self.table.sizes()
        return {
            "segments": self.table.segments,
            "accurate": self.table.segments - about - holes,
            "approximate": about,
            "holes": holes,
            "groups": self.table.mapped_groups,
            "groups_by_levels": trimmed([groups[i] for i in range(LEVELS_MOST + 1)]),
            "segments_by_level": trimmed([segments[i] for i in range(LEVELS_MOST)]),
            "crb_bytes": self.table.crb_bytes,
            "modelled_bytes": sizes["modelled"],
            "paper_bytes": sizes["paper"],
        }

    def figures(self):
        """As ``survey``, and what happened since the device was opened. ``lookups_by_level``: how many ended at each
        level from the top on."""
        return {
            "gamma": self.gamma,
            **self.survey(),
            "learned": self.table.learned,
            "compactions": self.compactions,
            "crowded": self.table.crowded,
            "lookups_by_level": trimmed([self.by_level[i] for i in range(1, LEVELS_MOST + 1)]),
            "mispredictions": self.mispredictions,
            "probes": self.probes,
            "settled_by_validity": self.settled_by_live,
            "settled_by_list": self.settled_by_list,
            "settled_by_spare_read": self.settled_by_read,
            "translation_pages": len(self.translation_pages()),
            "translation_reads": self.pages.store.reads,
            "translation_programs": self.pages.store.programs,
            "loads": self.pages.loads,
            "evictions": self.pages.evictions,
            "rebuilds": self.pages.rebuilds,
            "group_bytes_most": self.pages.most_bytes,
        }

    def forget_counts(self):
        self.mispredictions = self.probes = self.compactions = 0
        self.settled_by_live = self.settled_by_list = self.settled_by_read = 0
        memset(self.by_level, 0, sizeof(self.by_level))
        self.pages.forget_counts()

    def explain(self, uint32_t lpa):
        """The segment that answers for an LPA, and what it says."""
        cdef uint32_t ppa = NONE, levels = 0
        cdef bint about = False
        out = {"group": lpa // GROUP, "offset": lpa % GROUP}
        if self.table.directory[lpa // GROUP] == ABSENT:
            return {**out, "level": "in flash", "ppa": None}
        if not self.table.find(lpa, &ppa, &levels, &about):
            return {**out, "level": None, "ppa": None}
        level = self.table.dump(lpa // GROUP)["levels"][levels - 1]
        segment = next(piece for piece in level if lpa % GROUP in piece["lpas"])
        return {
            **out,
            "level": levels - 1,
            "kind": segment["kind"],
            "segment": f"{segment['start']} to {segment['end']}, {len(segment['lpas'])} LPAs",
            "slope": segment["slope"],
            "intercept": segment["intercept"],
            "ppa": ppa,
        }

    def group_of(self, group):
        """One group for the eye: SegmentTable.dump, each segment with the first and the last PPA that it predicts."""
        held = self.table.dump(group)
        for level in held["levels"]:
            for segment in level:
                for end, x in (("first_ppa", segment["start"]), ("last_ppa", segment["end"])):
                    ppa = ceil(segment["slope"] * x) + segment["intercept"] & NONE
                    segment[end] = None if segment["kind"] == "hole" else ppa
        return held

    def largest_group(self):
        """The group that takes most bytes, 0 if none takes any."""
        cdef uint32_t group, best = 0
        for group in range(self.table.groups):
            if self.table.group_bytes(group) > self.table.group_bytes(best):
                best = group
        return best

    def check(self):
        return self.table.check() + self.pages.check()

    def problems_in_flash(self):
        return self.pages.problems_in_flash()


cdef bint is_rising(const uint32_t* lpas, uint32_t n) noexcept nogil:
    cdef uint32_t i
    for i in range(1, n):
        if lpas[i] <= lpas[i - 1]:
            return False
    return True


def trimmed(list counts):
    """Without the zeros at the end."""
    while counts and counts[len(counts) - 1] == 0:
        counts.pop()
    return counts
