# distutils: language = c++
"""Demand-paged mappings: 4-byte entries in translation pages, a directory of those pages (GTD) in DRAM.

Translation page ``id`` holds the PPAs of ``per_page`` LPAs, from ``id * per_page`` on; NONE is a hole. A page of which
all entries are holes does not exist. What is newer than a translation page is in one of two places: in the scheme's
cache, as a dirty entry, or among the *pending* entries, where cleaning, trims and recovery put what no cache holds. A
cached entry counts before a pending one, and that before the page.

Writing a page back takes everything newer that there is of it, cached or pending: one read and one program for all of
them. It happens where the scheme makes room in its cache (``prepare``), behind a move (``moves_end``), and between
requests (``tend``); never inside a change. A checkpoint writes no pages: it takes the directory, and what is newer than
the pages as it is. So what a recovery starts from is exact, and it adds what was programmed and trimmed since.

A scheme brings the cache: what it holds, what leaves it when, and five answers about it.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from flashfs.engine.parts cimport FOREIGN, IN_TABLE, LIVE, Engine, Mapping
from flashfs.engine.pending cimport PendingEntries
from flashfs.engine.pool cimport KIND_TRANSLATION, NONE
from flashfs.engine.translation cimport Directory, TranslationPages, Witness, take_witnesses

import struct

import numpy

from flashfs.errors import MapLostError

cdef enum:
    DRAINED = 16             # pages written back between two requests at most

cdef uint32_t UNSEEN = NONE - 1
DENSE = 1 << 31  #: in a checkpoint's record of a page: a bit an entry says which there are


def entry_pages(lpas, page_bytes):
    """Translation pages of so many LPAs."""
    return -(-lpas // (page_bytes // 4))


def saved_bytes(lpas, page_bytes):
    """The most that a checkpoint holds of an DemandMapping: the directory, and every entry as newer than its page."""
    pages = entry_pages(lpas, page_bytes)
    return 8 + 4 * pages + pages * (8 + page_bytes // 32) + 4 * lpas


cdef class Gtd(Directory):
    """The directory: 4 bytes a translation page, in DRAM."""

    def __cinit__(self, DemandMapping mapping not None, uint32_t n):
        self.mapping = mapping
        self.n = n
        self.homes = <uint32_t*> malloc(n * 4)
        if self.homes == NULL:
            raise MemoryError
        memset(self.homes, 0xFF, n * 4)

    def __dealloc__(self):
        free(self.homes)

    cdef uint32_t home_of(self, uint32_t id) noexcept nogil:
        return self.homes[id] if id < self.n else NONE

    cdef int set_home(self, uint32_t id, uint32_t ppa) noexcept nogil:
        if id < self.n:
            self.homes[id] = ppa
        return 0

    cdef int lost(self, uint32_t ppa) except -1 nogil:
        """The page there cannot be read, and its block is about to be given up: it is made again."""
        cdef uint32_t page
        for page in range(self.n):
            if self.homes[page] == ppa:
                self.mapping.rebuild(page)
        return 0


cdef class DemandMapping(Mapping):
    """What every demand-paged mapping of entries has; a scheme adds its cache."""

    def __cinit__(self, Engine ssd not None, *_):
        cdef uint32_t page_bytes = ssd.nand.page_bytes
        self.ssd = ssd
        self.demand = True
        self.per_page = page_bytes // 4
        self.gtd = Gtd(self, entry_pages(ssd.lpas, page_bytes))
        self.store = TranslationPages(ssd, self.gtd, self.gtd.n)
        self.pending = PendingEntries()
        self.pending_most = 2 * self.per_page
        self.image = <uint32_t*> malloc(page_bytes)
        self.looked = <uint32_t*> malloc(page_bytes)
        self.list_room = max(self.per_page, ssd.nand.pages_per_block)
        self.lists = <uint32_t*> malloc(<uint64_t> self.list_room * 12)
        self.twins = <uint32_t*> malloc(<uint64_t> ssd.nand.pages_per_block * 16)
        if not (self.image and self.looked and self.lists and self.twins):
            raise MemoryError
        self.pending.reserve(self.pending_most + ssd.nand.pages_per_block)
        self.image_of = self.looked_of = NONE
        self.saved_n = -1
        ssd.own(KIND_TRANSLATION, self.store)

    def __dealloc__(self):
        free(self.image)
        free(self.looked)
        free(self.lists)
        free(self.twins)
        free(self.found_lpa)
        free(self.found_ppa)

    # --- what a scheme's cache answers; by default there is none

    cdef bint cached(self, uint32_t lpa, uint32_t* ppa) noexcept nogil:
        """Whether the LPA has an entry in the cache, and what it says. Disturbs nothing."""
        return False

    cdef bint recache(self, uint32_t lpa, uint32_t ppa) noexcept nogil:
        """If the LPA has an entry in the cache, that says ``ppa`` and is dirty from now on; whether it has."""
        return False

    cdef uint32_t dirty_of(self, uint32_t first, uint32_t n, uint32_t* image) noexcept nogil:
        """How many dirty entries there are of ``n`` LPAs from ``first`` on, all of one translation page; they go into
        ``image``, if that is not NULL."""
        return 0

    cdef int cleaned(self, uint32_t page) noexcept nogil:
        """The translation page says what the cache says of its LPAs."""
        return 0

    cdef int uncache(self, uint32_t page) noexcept nogil:
        """Forget the entries of a translation page, dirty or not."""
        return 0

    cdef int uncache_all(self) noexcept nogil:
        """Forget every entry."""
        return 0

    def dirty_entries(self):
        """(LPAs, PPAs) of the cache's dirty entries, arrays of u32, in any order."""
        return numpy.empty(0, numpy.uint32), numpy.empty(0, numpy.uint32)

    # --- pages

    cdef uint32_t page_of(self, uint32_t lpa) noexcept nogil:
        return lpa // self.per_page

    cdef uint32_t entries_of(self, uint32_t page) noexcept nogil:
        """Entries that the page has; the last page may have fewer."""
        return min(self.per_page, self.ssd.lpas - page * self.per_page)

    cdef int fetch(self, uint32_t page) except -1 nogil:
        """The page as it is in flash, in ``image``; the map's clock goes on to when it is there. One that cannot be
        read is made again: its entries are pending then."""
        cdef uint32_t home = self.gtd.homes[page]
        self.image_of = NONE
        if home != NONE and not self.store.read(home, page, <uint8_t*> self.image):
            self.rebuild(page)
            home = NONE
        if home == NONE:
            memset(self.image, 0xFF, self.ssd.nand.page_bytes)
        self.image_of = page
        self.image_home = home
        return 0

    cdef int write_back(self, uint32_t page) except -1 nogil:
        """Write a page when there is time to clean for it first, which may change what is cached and pending."""
        cdef int64_t start = self.ssd.map_ns
        self.ssd.will_change()
        self.store.ensure(1)
        self.ssd.map_ns = start
        return self.write_page(page)

    cdef int write_page(self, uint32_t page) except -1 nogil:
        """One program for all that is newer than the page; the map's clock goes on to its end."""
        cdef uint32_t first = page * self.per_page, n = self.entries_of(page), i, ppa = NONE
        self.fetch(page)
        self.put_pending(page)
        self.entries_written += self.dirty_of(first, n, self.image)
        for i in range(n):
            if self.image[i] != NONE:
                ppa = self.store.program(page, <const uint8_t*> self.image)
                break
        self.set_home(page, ppa)
        self.pending.erase(self.pending.first_from(first), self.pending.first_from(first + n))
        self.cleaned(page)
        self.image_of = NONE
        self.writebacks += 1
        return 0

    cdef int put_pending(self, uint32_t page) except -1 nogil:
        """The page's pending entries, into ``image``: those whose move turned out to be another LPA's do not count."""
        cdef uint32_t first = page * self.per_page, end = first + self.entries_of(page), was
        cdef uint64_t at = self.pending.first_from(first)
        while at < self.pending.n and self.pending.lpa[at] < end:
            was = self.image[self.pending.lpa[at] - first]
            if self.pending.expected[at] != UNSEEN and self.pending.expected[at] != was:
                self.disown(at)
                at = self.pending.first_from(first)
                continue
            self.pending.settle(at)
            self.image[self.pending.lpa[at] - first] = self.pending.ppa[at]
            self.entries_written += 1
            at += 1
        return 0

    cdef int set_home(self, uint32_t page, uint32_t ppa) except -1 nogil:
        """That version counts from now on; NONE: every entry is a hole."""
        cdef uint32_t old = self.gtd.homes[page]
        cdef int before = self.ssd.stopped
        if self.looked_of == page:          # the next version may come to lie where that one lay
            self.looked_of = NONE
        self.ssd.stopped = IN_TABLE
        self.gtd.homes[page] = ppa
        if old != NONE:
            self.store.supersede(old)
        self.ssd.stopped = before
        return 0

    cdef int rebuild(self, uint32_t page) except -1 nogil:
        """A translation page that cannot be read is made again from what the live pages say: its entries are pending
        then, each that nothing newer is known of. While a recovery does not know yet which pages live, MapLostError."""
        cdef uint32_t first = page * self.per_page, n = self.entries_of(page), i, nobody = NONE, kept = 0
        cdef uint32_t* lists
        cdef Witness* seen
        if self.strict:
            with gil:
                raise MapLostError(f"translation page {page}, of LPAs {first} to {first + n - 1}, cannot be read")
        seen = <Witness*> calloc(n, sizeof(Witness))
        lists = <uint32_t*> malloc(<uint64_t> n * 8)
        try:
            if seen == NULL or lists == NULL:
                with gil:
                    raise MemoryError
            take_witnesses(self.ssd, first, n, seen, &nobody)
            for i in range(n):
                if self.pending.find(first + i) >= 0 or (seen[i].next_seq == 0 and nobody == NONE):
                    continue
                lists[kept] = first + i
                lists[n + kept] = seen[i].ppa if seen[i].next_seq else nobody
                kept += 1
            self.pending.merge(lists, lists + n, NULL, kept)
        finally:
            free(seen)
            free(lists)
        for i in range(n):  # what a move expected of the page was true when it was made
            if self.pending.find(first + i) >= 0:
                self.pending.settle(<uint64_t> self.pending.find(first + i))
        self.rebuilds += 1
        self.exact = False                  # what the page named was not counted
        self.set_home(page, NONE)
        return 0

    # --- entries

    cdef uint32_t entry(self, uint32_t lpa, bint* dirty) except? 0xFFFFFFFE nogil:
        """What an LPA that is not cached has as its entry, read where it must be; whether that is newer than its
        page."""
        cdef uint32_t page = self.page_of(lpa)
        cdef int64_t at = self.pending.find(lpa)
        if at >= 0 and self.pending.expected[at] != UNSEEN:
            self.judge(<uint64_t> at)
            at = self.pending.find(lpa)
        if at < 0 and self.gtd.homes[page] != NONE:
            self.fetch(page)
            at = self.pending.find(lpa)     # the page may have been made again
        dirty[0] = at >= 0
        if at >= 0:
            return self.pending.ppa[at]
        return self.image[lpa - page * self.per_page] if self.gtd.homes[page] != NONE else NONE

    cdef int judge(self, uint64_t at) except -1 nogil:
        """A pending entry that cleaning put here: its page was moved because its OOB named the LPA. Does the map name
        the page? Its translation page says."""
        cdef uint32_t lpa = self.pending.lpa[at], page = self.page_of(lpa), said
        self.fetch(page)
        at = <uint64_t> self.pending.find(lpa)
        said = self.image[lpa - page * self.per_page]
        if self.pending.expected[at] == UNSEEN or self.pending.expected[at] == said:
            self.pending.settle(at)
            return 0
        return self.disown(at)

    cdef int disown(self, uint64_t at) except -1 nogil:
        """The page that was moved is not that LPA's, whatever it says. Whoever it belongs to cannot be read: it names
        the copy from now on, which gives EIO."""
        cdef uint32_t old = self.pending.expected[at], new = self.pending.ppa[at], owner, ppa = new
        self.pending.erase(at, at + 1)
        owner = self.owner_of(old)
        if owner == NONE:
            self.ssd.validity.dead(&ppa, 1)
        elif not self.recache(owner, new):
            self.pending.merge(&owner, &new, NULL, 1)
        return 0

    cdef bint newest(self, uint32_t lpa, uint32_t* ppa) except -1 nogil:
        """Whether something in DRAM says where the LPA is, and what."""
        cdef int64_t at
        if self.cached(lpa, ppa):
            return True
        at = self.pending.find(lpa)
        if at >= 0 and self.pending.expected[at] != UNSEEN:
            self.judge(<uint64_t> at)
            at = self.pending.find(lpa)
        if at >= 0:
            ppa[0] = self.pending.ppa[at]
        return at >= 0

    cdef int look(self, uint32_t page) except -1 nogil:
        """The page in ``looked``, for whoever is not the host; it is not read again while it is the newest."""
        cdef uint32_t home = self.gtd.homes[page]
        if self.looked_of == page and self.looked_home == home:
            return 0
        self.looked_of = NONE
        if home != NONE and not self.store.read(home, page, <uint8_t*> self.looked):
            self.rebuild(page)
            home = NONE
        if home == NONE:
            memset(self.looked, 0xFF, self.ssd.nand.page_bytes)
        self.looked_of = page
        self.looked_home = home
        return 0

    # --- the mapping's interface

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """Of LPAs that are prepared, so nothing is read."""
        return self.peek(lpas, n, ppas)

    cdef int peek(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i, page
        for i in range(n):
            if self.newest(lpas[i], ppas + i):
                continue
            page = self.page_of(lpas[i])
            self.look(page)
            if not self.newest(lpas[i], ppas + i):  # the page may have been made again
                ppas[i] = self.looked[lpas[i] - page * self.per_page]
        return 0

    cdef uint32_t unmapped_from(self, uint32_t lpa, uint32_t n) noexcept nogil:
        """Where there is no translation page, nothing pending and nothing cached, nothing is mapped."""
        cdef uint32_t page, end, first = lpa
        while first < lpa + n:
            page = self.page_of(first)
            end = min(lpa + n, page * self.per_page + self.entries_of(page))
            if self.gtd.homes[page] != NONE or self.dirty_of(first, end - first, NULL):
                break
            if self.pending.n and self.pending.first_from(first) != self.pending.first_from(end):
                break
            first = end
        return first - lpa

    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil:
        """Up to the end of a translation page at a time: one read of it, if there is something in it to be known."""
        cdef uint32_t page = self.page_of(lpa)
        n = min(n, page * self.per_page + self.entries_of(page) - lpa)
        self.pending.reserve(n)
        if self.gtd.homes[page] != NONE:
            self.fetch(page)
        return n

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t part
        while n:
            part = min(n, self.page_of(lpa) * self.per_page + self.entries_of(self.page_of(lpa)) - lpa)
            self.unbind_part(lpa, part, olds)
            lpa += part
            olds += part
            n -= part
        return 0

    cdef int unbind_part(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        """LPAs of one translation page. If they are all of it, the page goes with them."""
        cdef uint32_t page = self.page_of(lpa), first = page * self.per_page, i, kept = 0
        if self.gtd.homes[page] != NONE and (self.image_of != page or self.image_home != self.gtd.homes[page]):
            self.fetch(page)
        for i in range(n):
            if not self.newest(lpa + i, olds + i):
                olds[i] = self.image[lpa + i - first] if self.gtd.homes[page] != NONE else NONE
            self.mapped_n -= olds[i] != NONE
        if n == self.entries_of(page):
            self.uncache(page)
            self.pending.erase(self.pending.first_from(lpa), self.pending.first_from(lpa + n))
            self.set_home(page, NONE)
            return 0
        for i in range(n):
            if olds[i] != NONE and not self.recache(lpa + i, NONE):
                self.lists[kept] = lpa + i
                self.lists[self.list_room + kept] = NONE
                kept += 1
        return self.pending.merge(self.lists, self.lists + self.list_room, NULL, kept)

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """What is cached is changed there, the rest is pending until ``moves_end``."""
        cdef uint32_t i, kept = 0
        for i in range(n):
            if not self.recache(lpas[i], news[i]):
                self.lists[kept] = lpas[i]
                self.lists[self.list_room + kept] = news[i]
                self.lists[2 * self.list_room + kept] = olds[i]
                kept += 1
        return self.pending.merge(self.lists, self.lists + self.list_room, self.lists + 2 * self.list_room, kept)

    cdef int moves_end(self) except -1 nogil:
        """Cleaning is through with a block: its entries go to their translation pages, page by page (DFTL, 3.4)."""
        cdef uint64_t at = 0
        while self.pending.moved_n:
            while self.pending.expected[at] == UNSEEN:
                at = (at + 1) % self.pending.n
            self.write_page(self.page_of(self.pending.lpa[at]))
            if at >= self.pending.n:
                at = 0
        self.pending.reserve(self.ssd.nand.pages_per_block)
        return 0

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        """From DRAM, if that can say. Else the translation page decides when the entry goes there (``put_pending``):
        to read it twice for every page that is moved would double what cleaning costs."""
        cdef uint32_t i, ppa = NONE
        self.mark_twins(lpas, n, answers)
        for i in range(n):
            if lpas[i] >= self.ssd.lpas:
                answers[i] = FOREIGN
            elif self.newest(lpas[i], &ppa):
                answers[i] = LIVE if ppa == ppas[i] else FOREIGN
            elif n == 1 or answers[i]:
                self.peek(lpas + i, 1, &ppa)
                answers[i] = LIVE if ppa == ppas[i] else FOREIGN
            else:
                answers[i] = LIVE
        return 0

    cdef int mark_twins(self, const uint32_t* lpas, uint32_t n, uint8_t* twins) noexcept nogil:
        """1 for each of two pages that both say they are of one LPA, 0 for all others."""
        cdef uint32_t i, at, mask = 1
        while mask < 2 * n:
            mask *= 2
        mask -= 1
        memset(self.twins, 0xFF, (mask + 1) * 4)
        memset(twins, 0, n)
        for i in range(n):
            at = (lpas[i] * <uint32_t> 2654435761) & mask
            while self.twins[at] != NONE and lpas[self.twins[at]] != lpas[i]:
                at = (at + 1) & mask
            if self.twins[at] == NONE:
                self.twins[at] = i
            else:
                twins[i] = twins[self.twins[at]] = 1
        return 0

    cdef uint32_t locate(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        cdef uint32_t ppa = NONE
        self.peek(&lpa, 1, &ppa)
        return ppa

    cdef int tend(self) except -1 nogil:
        return self.drain(self.pending_most, DRAINED)

    cdef int drain(self, uint64_t most, uint32_t pages) except -1 nogil:
        """Write back pages of pending entries, those of the highest LPAs first, until ``most`` are left or fewer."""
        while self.pending.n > most and pages:
            self.write_back(self.page_of(self.pending.lpa[self.pending.n - 1]))
            pages -= 1
        return 0

    cdef uint32_t homes_n(self) noexcept nogil:
        cdef uint32_t page, n = 0
        for page in range(self.gtd.n):
            n += self.gtd.homes[page] != NONE
        return n

    cdef int64_t pages_named(self) except -2 nogil:
        return self.mapped_n + self.homes_n() if self.exact else -1

    cdef int checkpoint_begins(self) except -1:
        return self.store.checkpoint_begins()

    cdef int checkpoint_ended(self, bint whole) except -1:
        return self.store.checkpoint_ended(whole)

    # --- recovery: the checkpoint's entries stand until every LPA is settled

    def reset(self):
        memset(self.gtd.homes, 0xFF, self.gtd.n * 4)
        self.pending.clear()
        self.uncache_all()
        self.store.reset()
        self.image_of = self.looked_of = NONE
        self.found_n = 0
        self.saved_n = -1
        self.recovering = self.strict = True

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        cdef uint64_t room = self.found_room
        cdef void* grown
        if self.found_n == room:
            room = max(<uint64_t> 1024, room + room // 2)
            grown = realloc(self.found_lpa, room * 4)
            if grown != NULL:
                self.found_lpa = <uint32_t*> grown
                grown = realloc(self.found_ppa, room * 4)
            if grown == NULL:
                with gil:
                    raise MemoryError
            self.found_ppa = <uint32_t*> grown
            self.found_room = room
        self.found_lpa[self.found_n] = lpa
        self.found_ppa[self.found_n] = ppa
        self.found_n += 1
        return 0

    def recovery_ends(self):
        """What was found is pending: of an LPA that was found twice, the last."""
        cdef const uint32_t[::1] lpas, ppas
        cdef uint64_t at = 0, part, n = self.found_n
        if n:
            lpa = numpy.asarray(<uint32_t[:n]> self.found_lpa)
            ppa = numpy.asarray(<uint32_t[:n]> self.found_ppa)
            if (lpa[1:] <= lpa[:-1]).any():
                order = numpy.argsort(lpa, kind="stable")
                last = numpy.append(lpa[order][1:] != lpa[order][:-1], True)
                lpa, ppa = lpa[order][last], ppa[order][last]
            lpas, ppas = numpy.ascontiguousarray(lpa), numpy.ascontiguousarray(ppa)
            n = lpas.shape[0]
            while at < n:
                part = min(n - at, <uint64_t> 1 << 31)
                self.pending.merge(&lpas[at], &ppas[at], NULL, <uint32_t> part)
                at += part
        free(self.found_lpa)
        free(self.found_ppa)
        self.found_lpa = self.found_ppa = NULL
        self.found_n = self.found_room = 0
        self.recovering = False

    def manages(self):
        self.strict = False

    def opens(self):
        """From here on the LPAs that are mapped are counted: to ask for each would be to read every page."""
        cdef uint32_t block
        self.mapped_n = -<int64_t> len(self.translation_pages())
        for block in range(self.ssd.nand.blocks):
            self.mapped_n += self.ssd.validity.count(block)
        self.mapped_n -= self.ssd.validity.pages_named()
        self.exact = True
        self.strict = self.recovering = False

    def save(self):
        """The directory, and what is newer than the pages; docs/ftl/dftl.md has the bytes."""
        return {
            "gtd": numpy.asarray(<uint32_t[:self.gtd.n]> self.gtd.homes).tobytes(),
            "newer": self.saved_newer(),
            "mapped": struct.pack("<q", self.mapped_n if self.exact else -1),
        }

    def saved_newer(self):
        """For each page of which something is newer: u32 page, u32 n, then n u16 places and n u32 PPAs; or, with DENSE
        set in n, a bit for each entry and n u32 PPAs."""
        out = bytearray()
        lpas, ppas = self.newer()
        if not len(lpas):
            return out
        pages = lpas // self.per_page
        starts = numpy.flatnonzero(numpy.append(True, pages[1:] != pages[:-1]))
        for a, b in zip(starts, [*starts[1:], len(lpas)], strict=True):
            places = lpas[a:b] % self.per_page
            n = int(b - a)
            if 2 * n <= self.per_page // 8:
                out += struct.pack("<II", int(pages[a]), n) + places.astype("<u2").tobytes()
            else:
                bits = numpy.zeros(self.per_page, numpy.uint8)
                bits[places] = 1
                out += struct.pack("<II", int(pages[a]), n | DENSE) + numpy.packbits(bits, bitorder="little").tobytes()
            out += ppas[a:b].astype("<u4").tobytes()
        return out

    def newer(self):
        """(LPAs, PPAs), ascending: what the cache and the pending entries have that the pages do not."""
        n = self.pending.n
        lpas, ppas = (numpy.asarray(array, numpy.uint32) for array in self.dirty_entries())
        if n:
            lpas = numpy.append(numpy.asarray(<uint32_t[:n]> self.pending.lpa), lpas)
            ppas = numpy.append(numpy.asarray(<uint32_t[:n]> self.pending.ppa), ppas)
        order = numpy.argsort(lpas, kind="stable")
        lpas, ppas = lpas[order], ppas[order]
        last = numpy.append(lpas[1:] != lpas[:-1], True) if len(lpas) else numpy.empty(0, bool)
        return lpas[last], ppas[last]

    def load(self, sections):
        """The inverse; ValueError says what cannot be."""
        homes = numpy.frombuffer(sections["gtd"], "<u4")
        pages = self.ssd.nand.blocks * self.ssd.nand.pages_per_block
        named = homes[homes != NONE]
        if len(homes) != self.gtd.n:
            raise ValueError(f"gtd section of {4 * len(homes)} bytes: {4 * self.gtd.n} are needed")
        if len(named) and int(named.max()) >= pages:
            raise ValueError(f"gtd section: a translation page at PPA {int(named.max())}: the chip has {pages} pages")
        if len(numpy.unique(named)) != len(named):
            raise ValueError("gtd section: two translation pages at one PPA")
        self.reset()
        numpy.asarray(<uint32_t[:self.gtd.n]> self.gtd.homes)[:] = homes
        self.load_newer(sections.get("newer", b""))
        self.saved_n, = struct.unpack("<q", sections["mapped"])

    def load_newer(self, saved):
        cdef const uint32_t[::1] lpas, ppas
        at, end, view = 0, -1, memoryview(saved).cast("B")
        while at < len(view):
            if at + 8 > len(view):
                raise ValueError(f"newer section of {len(view)} bytes: it ends within a record")
            page, n = struct.unpack_from("<II", view, at)
            dense, n = n & DENSE, n & ~DENSE
            size = 8 + (self.per_page // 8 if dense else 2 * n) + 4 * n
            if not end < page < self.gtd.n or not 0 < n <= self.per_page or at + size > len(view):
                raise ValueError(f"newer section: page {page} with {n} entries")
            if dense:
                bits = numpy.frombuffer(view[at + 8 : at + 8 + self.per_page // 8], numpy.uint8)
                places = numpy.flatnonzero(numpy.unpackbits(bits, bitorder="little"))
            else:
                places = numpy.frombuffer(view[at + 8 : at + 8 + 2 * n], "<u2").astype(numpy.int64)
            if len(places) != n or (places[1:] <= places[:-1]).any() or int(places[-1]) >= self.entries_of(page):
                raise ValueError(f"newer section: page {page} with {n} entries, and places of others")
            values = numpy.frombuffer(view[at + size - 4 * n : at + size], "<u4")
            known = values[values != NONE]
            if len(known) and int(known.max()) >= self.ssd.nand.blocks * self.ssd.nand.pages_per_block:
                raise ValueError(f"newer section: page {page} names PPA {int(known.max())}, which the chip has not")
            lpas = (places + page * self.per_page).astype(numpy.uint32)
            ppas = numpy.ascontiguousarray(values, numpy.uint32)
            self.pending.merge(&lpas[0], &ppas[0], NULL, n)
            end = page
            at += size

    def verify(self, bint whole=True):
        """Each translation page that the directory names is live. ``whole``: the pages are read, and name each live
        page once. A clean mount reads none: a page is verified when it is read."""
        cdef uint64_t pages = <uint64_t> self.ssd.nand.blocks * self.ssd.nand.pages_per_block, live = 0, mapped
        cdef uint64_t* seen
        cdef uint32_t block
        for home in self.translation_pages() if whole or not self.ssd.validity.in_flash else ():
            if not self.ssd.validity.is_live(home):
                raise ValueError(f"PPA {home}: a translation page that is not live")
        for block in range(self.ssd.nand.blocks):
            live += self.ssd.validity.count(block)
        live -= self.ssd.validity.pages_named()
        if not whole:
            mapped = self.saved_n + len(self.translation_pages())
            if self.saved_n >= 0 and live != mapped:
                raise ValueError(f"{live} pages are live, and {mapped} LPAs and translation pages are mapped")
            return
        seen = <uint64_t*> calloc(pages // 64 + 1, 8)
        if seen == NULL:
            raise MemoryError
        try:
            mapped = self.require_live(seen, pages) + len(self.translation_pages())
        finally:
            free(seen)
        if live != mapped:
            raise ValueError(f"{live} pages are live, and {mapped} LPAs and translation pages are mapped")

    cdef uint64_t require_live(self, uint64_t* seen, uint64_t pages) except? 0xFFFFFFFFFFFFFFFF:
        """How many LPAs are mapped, each to a live page of its own; ValueError names the first that is not. ``seen`` is
        a bit a page, all 0."""
        cdef uint32_t lpa, ppa = NONE
        cdef uint64_t mapped = 0
        for lpa in range(self.ssd.lpas):
            self.peek(&lpa, 1, &ppa)
            if ppa == NONE:
                continue
            if ppa >= pages or seen[ppa >> 6] >> (ppa & 63) & 1 or not self.ssd.validity.is_live(ppa):
                raise ValueError(f"LPA {lpa} is at PPA {ppa}, which is not live or another LPA's")
            seen[ppa >> 6] |= <uint64_t> 1 << (ppa & 63)
            mapped += 1
        return mapped

    def problems_in_flash(self):
        """A line for each translation page that cannot be read."""
        cdef uint32_t page
        problems = []
        for page in range(self.gtd.n):
            if self.gtd.homes[page] != NONE and not self.store.read(self.gtd.homes[page], page,
                                                                    <uint8_t*> self.looked):
                problems.append(f"PPA {self.gtd.homes[page]}: translation page {page} cannot be read")
        self.looked_of = NONE
        return problems

    def translation_pages(self):
        homes = numpy.asarray(<uint32_t[:self.gtd.n]> self.gtd.homes)
        return homes[homes != NONE].tolist() + self.store.kept_ppas()

    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """Page by page: to ask for each LPA by itself would read each page as often as it has entries."""
        cdef uint32_t lpa, at = NONE
        for lpa in range(self.ssd.lpas):
            self.peek(&lpa, 1, &at)
            if at == ppa:
                return lpa
        self.exact = False
        return NONE

    # --- for people

    def tables(self):
        page = self.ssd.nand.page_bytes
        lists = 12 * self.list_room + 16 * self.ssd.nand.pages_per_block
        packed, allocated = self.store.tables()
        return {
            "gtd": (4 * self.gtd.n, 4 * self.gtd.n),
            "pending": self.pending.sizes(),
            "translation_buffers": (2 * page + lists + packed, 2 * page + lists + allocated),
        }

    def figures(self):
        return {
            "translation_pages": len(self.translation_pages()),
            "translation_reads": self.store.reads,
            "translation_programs": self.store.programs,
            "writebacks": self.writebacks,
            "entries_written": self.entries_written,
            "pending": self.pending.n,
            "rebuilds": self.rebuilds,
        }

    def forget_counts(self):
        self.writebacks = self.entries_written = self.rebuilds = 0
        self.store.forget_counts()

    def explain(self, uint32_t lpa):
        """Where the entry of an LPA is, and what it says, as far as DRAM knows it."""
        cdef uint32_t ppa = NONE, page = self.page_of(lpa)
        cdef int64_t at = self.pending.find(lpa)
        home = self.gtd.homes[page]
        out = {"translation_page": page, "entry": lpa % self.per_page, "at": None if home == NONE else home}
        if self.cached(lpa, &ppa):
            where = "cached"
        elif at >= 0:
            where, ppa = "pending", self.pending.ppa[at]
        else:
            where = "in flash" if home != NONE else "no page"
        return {**out, "where": where, "ppa": None if ppa == NONE else ppa}

    def directory(self):
        """Each translation page that there is: {"page", "first_lpa", "ppa"}."""
        return [{"page": page, "first_lpa": page * self.per_page, "ppa": self.gtd.homes[page]}
                for page in range(self.gtd.n) if self.gtd.homes[page] != NONE]

    def check(self):
        """Pending entries ascend, and name pages of this chip; no home is another page's."""
        problems = []
        cdef uint64_t i
        for i in range(1, self.pending.n):
            if self.pending.lpa[i] <= self.pending.lpa[i - 1]:
                problems.append(f"pending entries: LPA {self.pending.lpa[i]} behind {self.pending.lpa[i - 1]}")
        homes = self.translation_pages()
        if len(set(homes)) != len(homes):
            problems.append("GTD: two translation pages at one PPA")
        return problems
