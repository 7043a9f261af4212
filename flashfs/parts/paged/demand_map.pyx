# distutils: language = c++
"""Demand-paged mappings of entries: the engine's mapping interface, on top of translation pages (entry_pages.pyx).

Pages are written back where the scheme makes room in its cache (``prepare``), after a move (``moves_end``), and between
requests (``housekeep``); never inside a change. With ``moved_share`` entries of moved pages wait instead, as dirty ones
in the cache do: GeckoFTL's paper counts a migration as a write, in every scheme (N. Dayan et al., SIGMOD 2016, 4).

A checkpoint writes no pages: it takes the directory, and the entries that are newer than the pages. So a recovery
starts from an exact state, and adds what was programmed and trimmed since. If a battery has all of that, and proves
itself, there is nothing to add.

A scheme adds the cache: what it holds, when it evicts, and the six methods that entry_pages.pxd lists for it.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from flashfs.engine.arrays cimport array_u32
from flashfs.parts.defaults.map_check cimport MapCheck
from flashfs.parts.paged.entry_pages cimport EntryPages
from flashfs.parts.battery.map_battery cimport WAITING, named_by
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.owner cimport FOREIGN, LIVE, SUPERSEDED
from flashfs.parts.paged.pending_entries cimport UNSEEN, Found
from flashfs.engine.blocks.pool cimport NONE

import struct

import numpy

from flashfs.parts.battery.map_battery import pages_of
from flashfs.parts.paged.newer_section import newer_bytes, pack_newer, unpack_newer
from flashfs.parts.paged.pending_entries import merge_arrays
from flashfs.errors import DeviceFullError

cdef enum:
    DRAINED = 16             # pages written back between two requests at most
    UNASKED = 0xFF           # no answer of ``confirm``

STRAYS = -2                  #: in place of the count of mapped LPAs: it is unknown, and ``EntryPages.strays`` is set
MAP_STRAYS = {"mapped": struct.pack("<q", STRAYS)}


def saved_bytes(lpas, page_bytes):
    """The most that a checkpoint holds of a DemandMapping: the directory, and every entry as newer than its page."""
    pages = pages_of(lpas, page_bytes)
    return 16 + 4 * pages + newer_bytes(lpas, page_bytes)


cdef class DemandMapping(EntryPages):
    """The base of every demand-paged mapping of entries; a scheme adds its cache."""

    def __cinit__(self, Engine ssd not None, *_, **__):
        self.list_room = max(self.per_page, ssd.nand.pages_per_block)
        self.lists = <uint32_t*> malloc(<uint64_t> self.list_room * 12)
        self.twins = <uint32_t*> malloc(<uint64_t> ssd.nand.pages_per_block * 16)
        if not (self.lists and self.twins):
            raise MemoryError
        self.found = Found()
        self.saved_n = -1

    def __dealloc__(self):
        free(self.lists)
        free(self.twins)

    # --- the mapping's interface

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """For prepared LPAs, so nothing is read."""
        return self.peek(lpas, n, ppas)

    cdef int peek(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i, page
        for i in range(n):
            if self.newest(lpas[i], ppas + i):
                continue
            page = self.page_of(lpas[i])
            self.look(page)
            if not self.newest(lpas[i], ppas + i):  # the page may have been rebuilt
                ppas[i] = self.looked[lpas[i] - page * self.per_page]
        return 0

    cdef uint32_t unmapped_from(self, uint32_t lpa, uint32_t n) noexcept nogil:
        """Nothing is mapped where there is no translation page, nothing pending and nothing cached."""
        cdef uint32_t page, end, first = lpa
        while first < lpa + n:
            page = self.page_of(first)
            end = min(lpa + n, page * self.per_page + self.entries_of(page))
            if not self.gtd.absent(page) or self.dirty_of(first, end - first, NULL):
                break
            if self.pending.n and self.pending.first_from(first) != self.pending.first_from(end):
                break
            first = end
        return first - lpa

    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil:
        """Up to the end of a translation page at a time, which is read once, if it exists."""
        cdef uint32_t page = self.page_of(lpa)
        n = min(n, page * self.per_page + self.entries_of(page) - lpa)
        self.pending.reserve(n)
        if self.gtd.where(page) != NONE:
            self.fetch(page)
        return n

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        if self.strays:
            return self.unbind_strays(lpa, n, olds)
        return self.unbind_all(lpa, n, olds)

    cdef int unbind_strays(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        """As ``unbind``. Returns 1 if any of the LPAs was mapped, whether or not a page dies."""
        cdef uint32_t i
        cdef bint any_mapped = False
        self.unbind_all(lpa, n, olds)
        for i in range(n):
            any_mapped |= olds[i] != NONE
        self.drop_strays(NULL, lpa, n, olds)
        return any_mapped

    cdef int unbind_all(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t part
        while n:
            part = min(n, self.page_of(lpa) * self.per_page + self.entries_of(self.page_of(lpa)) - lpa)
            self.unbind_part(lpa, part, olds)
            lpa += part
            olds += part
            n -= part
        return 0

    cdef int unbind_part(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        """Unbinds LPAs of one translation page. If they are all of its LPAs, the page goes too, unless a recovery works
        from pages."""
        cdef uint32_t page = self.page_of(lpa), first = page * self.per_page, i, kept = 0
        cdef uint32_t page_ppa = self.gtd.where(page)
        cdef uint64_t gain = 0
        if page_ppa != NONE and (self.image_of != page or self.image_ppa != page_ppa):
            self.fetch(page)
        for i in range(n):
            if not self.newest(lpa + i, olds + i):
                olds[i] = self.image[lpa + i - first] if page_ppa != NONE else NONE
            self.mapped_n -= olds[i] != NONE
            if olds[i] != NONE:
                gain -= named_by(olds[i])
        self.changes()
        if gain and self.keeps():
            self.saved.note_trim()
            self.saved.name(gain)
        if n == self.entries_of(page) and self.from_pages is None:
            self.uncache(page)
            self.drop_pending(self.pending.first_from(lpa), self.pending.first_from(lpa + n))
            self.set_ppa(page, NONE)
            return 0
        for i in range(n):
            if olds[i] != NONE and not self.recache(lpa + i, NONE):
                self.lists[kept] = lpa + i
                self.lists[self.list_room + kept] = NONE
                kept += 1
        return self.put_newer(self.lists, self.lists + self.list_room, NULL, kept)

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """Cached entries change in the cache, the others are pending until ``moves_end``."""
        cdef uint32_t i, kept = 0
        cdef uint64_t gain = 0
        self.changes()
        if self.keeps():
            for i in range(n):
                gain += named_by(news[i]) - named_by(olds[i])
            self.saved.name(gain)
        for i in range(n):
            if not self.recache(lpas[i], news[i]):
                self.lists[kept] = lpas[i]
                self.lists[self.list_room + kept] = news[i]
                self.lists[2 * self.list_room + kept] = olds[i]
                kept += 1
        return self.put_newer(self.lists, self.lists + self.list_room, self.lists + 2 * self.list_room, kept)

    cdef int moves_end(self) except -1 nogil:
        """Cleaning has finished a block: its entries go to their translation pages, page by page (DFTL, 3.4); or they
        wait, as many as may."""
        cdef uint64_t at = 0
        if self.moved_share:
            while self.pending.n > self.pending_most:
                self.write_page(self.next_page())
            return self.make_room_for_moved()
        while self.pending.moved_n:
            while self.pending.expected[at] == UNSEEN:
                at = (at + 1) % self.pending.n
            self.write_page(self.page_of(self.pending.lpa[at]))
            if at >= self.pending.n:
                at = 0
        self.pending.reserve(self.ssd.nand.pages_per_block)
        return 0

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        """Answers from DRAM if possible. Else it says LIVE, and the translation page decides when the entry goes there
        (``put_pending``): reading it twice for every moved page would double the cost of cleaning. If validity is late,
        pages that no LPA names are common, and moving one costs more than the read that shows it."""
        cdef uint32_t i, ppa = NONE
        if self.ssd.validity.late:
            return self.confirm_late(lpas, ppas, n, answers)
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

    cdef int confirm_late(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n,
                          uint8_t* answers) except -1 nogil:
        """As ``confirm``, by what the map says now; each translation page is read once for all of its LPAs."""
        cdef uint32_t i, k, ppa = NONE
        memset(answers, UNASKED, n)
        for i in range(n):
            if lpas[i] >= self.ssd.lpas:
                answers[i] = FOREIGN
            for k in range(i, n if answers[i] == UNASKED else i):
                if answers[k] == UNASKED and self.page_of(lpas[k]) == self.page_of(lpas[i]):
                    self.peek(lpas + k, 1, &ppa)
                    answers[k] = LIVE if ppa == ppas[k] else SUPERSEDED
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

    cdef int housekeep(self) except -1 nogil:
        self.gtd.housekeep()
        self.give_room_back()
        return self.write_down(self.pending_most, DRAINED)

    cdef int make_room_for_moved(self) except -1 nogil:
        """Instead of writing entries after a move: makes room for those of the next one."""
        return self.pending.reserve(self.ssd.nand.pages_per_block, True)

    cdef int let_moved_wait(self, uint64_t entries, uint64_t most, uint32_t blocks) except -1:
        """Lets entries of moved pages wait: ``moved_share`` per cent of the cache's ``entries``, or those of a block,
        if that is more; ``most`` at most. ``blocks``: as of ``wait_for_most``."""
        return self.wait_for_most(min(most, max(<uint64_t> self.ssd.nand.pages_per_block,
                                                entries * self.moved_share // 100)), blocks)

    cdef uint64_t dirty(self) noexcept nogil:
        """Pending entries. Dirty ones of the cache do not count: they go when the cache needs their room."""
        return self.pending.n

    cdef uint32_t next_page(self) noexcept nogil:
        """Translation pages with pending entries take turns, in descending order: each gets the entries pending since
        its last turn. There must be one."""
        cdef uint64_t at = self.pending.first_from(self.turn)
        cdef uint32_t page = self.page_of(self.pending.lpa[(at if at else self.pending.n) - 1])
        self.turn = page * self.per_page
        return page

    cdef bint write_next(self) except -1 nogil:
        if self.pending.n == 0:
            return False
        self.write_back(self.next_page())
        return True

    cdef int checkpoint_begins(self) except -1:
        if self.saved is not None:
            self.saved.validity.hold()
        if self.pending.moved_n and (self.from_pages is None or self.from_pages.clean):
            self.settle_moved()
        return EntryPages.checkpoint_begins(self)

    cdef int settle_moved(self) except -1:
        """Before a checkpoint that has the newer entries: each translation page with entries of moved pages is read
        once, for no checkpoint says what an entry expects of it."""
        cdef uint64_t at = 0
        cdef uint32_t page
        while self.pending.moved_n:
            while self.pending.expected[at] == UNSEEN:
                at = (at + 1) % self.pending.n
            page = self.page_of(self.pending.lpa[at])
            self.fetch(page)
            while self.image_of == page and at < self.pending.n and self.page_of(self.pending.lpa[at]) == page:
                at += self.agrees(at)
            if at >= self.pending.n:
                at = 0
        return 0

    cdef int checkpoint_ended(self, bint whole) except -1:
        if self.saved is not None:
            self.saved.validity.let_go(self.store.kept_ppas(), whole)
        EntryPages.checkpoint_ended(self, whole)
        if whole and self.saved is not None:
            self.saved.ends()
            self.begin_keeping()
        return 0

    # --- recovery: the checkpoint's entries count until every LPA is settled

    def reset(self):
        self.gtd.forget()
        self.pending.clear()
        self.uncache_all()
        super().reset()
        self.found.release()
        self.image_of = self.looked_of = NONE
        self.saved_n = -1
        self.strays = False
        self.stamp = 0
        self.known = None
        if self.saved is not None:
            self.saved.wait()
            self.saved.named = False
        self.scanned = True

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        return self.found.add(lpa, ppa)

    def recovery_ends(self):
        """Makes the entries that were found pending."""
        self.found.into(self.pending)
        super().recovery_ends()

    def device_ready(self):
        super().device_ready()
        if self.saved is not None and self.saved.state == WAITING:
            self.saved.wait()               # the recovery has settled what it doubted
            if not self.scanned:
                self.saved.ready()

    def save(self):
        """The directory, and the entries newer than the pages; docs/ftl/dftl.md gives the format."""
        return {
            **self.gtd.save(),
            "newer": pack_newer(*self.newer(), self.per_page),
            "mapped": struct.pack("<q", STRAYS if self.strays else self.lpas_named()),
            **({"battery": self.battery_section()} if self.will_keep() else {}),
        }

    def battery_section(self):
        """The stamp of the region that belongs to this checkpoint; and the sum over all user pages that are named, if
        it is known and recomputing it would read pages."""
        stamp = struct.pack("<Q", self.ssd.checkpoint_id() + 1)
        total = self.saved.sum if self.saved.validity.keeps_sum() else None
        return stamp + (struct.pack("<Q", total) if total is not None else b"")

    def newer(self):
        """(LPAs, PPAs), ascending: the entries of the cache and the pending ones that are newer than the pages."""
        n = self.pending.n
        lpas, ppas = (numpy.asarray(array, numpy.uint32) for array in self.dirty_entries())
        if n:
            lpas = numpy.append(array_u32(self.pending.lpa, n), lpas)
            ppas = numpy.append(array_u32(self.pending.ppa, n), ppas)
        order = numpy.argsort(lpas, kind="stable")
        lpas, ppas = lpas[order], ppas[order]
        last = numpy.append(numpy.diff(lpas) != 0, True) if len(lpas) else numpy.empty(0, bool)
        return lpas[last], ppas[last]

    def load(self, sections):
        """The inverse; ValueError if a section is impossible."""
        pages = self.ssd.nand.blocks * self.ssd.nand.pages_per_block
        self.reset()
        self.gtd.load(sections, pages)
        for part in unpack_newer(sections.get("newer", b""), self.per_page, self.ssd.lpas, pages):
            merge_arrays(self.pending, *part)
        for name, most in (("mapped", 8), ("battery", 16)):
            if len(sections.get(name, bytes(8))) not in (8, most):
                raise ValueError(f"{name} section of {len(sections[name])} bytes: {most} are needed")
        self.saved_n, = struct.unpack("<q", sections["mapped"])
        self.exact = self.saved_n >= 0      # after damage, several LPAs may name one page
        self.strays = self.saved_n == STRAYS or (self.saved_n < 0 and not self.ssd.validity.late)
        self.stamp, *total = numpy.frombuffer(sections.get("battery", bytes(8)), "<u8").tolist()
        if total and self.saved is not None:
            self.saved.sum_is(total[0])

    def verify(self, bint whole=True):
        """Checks that each translation page that the directory names is live. ``whole``: also reads the pages, and
        checks that they name each live page once. A clean mount reads none: a page is verified when it is read."""
        cdef MapCheck agreement = MapCheck(self.ssd)
        cdef uint32_t lpa, ppa = NONE
        wrong = self.misplaced(whole)
        self.scanned = whole
        if wrong is None and self.known is not None:
            return                          # it was compared with validity when it was taken from the battery
        if wrong is None and whole:
            lpa = self.unmapped_from(0, self.ssd.lpas)
            while lpa < self.ssd.lpas:
                self.peek(&lpa, 1, &ppa)
                agreement.require(lpa, ppa)
                lpa += 1
                lpa += self.unmapped_from(lpa, self.ssd.lpas - lpa)
            wrong = agreement.fault_of_all(len(self.translation_pages()))
            self.exact = wrong is None
            self.strays = not self.exact
        elif wrong is None and self.saved_n >= 0:
            wrong = agreement.fault_of_all(self.saved_n + self.gtd.count() + len(self.store.kept_ppas()))
        if wrong is not None:
            raise ValueError(wrong)

    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """In LPA order, so that each translation page is read once, not once for each entry."""
        cdef uint32_t lpa = 0, at = NONE
        while lpa < self.ssd.lpas:
            lpa += self.unmapped_from(lpa, self.ssd.lpas - lpa)
            if lpa < self.ssd.lpas:
                self.peek(&lpa, 1, &at)
                if at == ppa:
                    return lpa
                lpa += 1
        if not self.ssd.validity.late:      # else it was superseded
            self.exact = False
            self.doubts()
        return NONE

    # --- from the battery

    def recovery_steps(self):
        steps = ()
        if self.saved is not None and (not self.saved.refuses() or self.saved.stands()):
            steps += (("battery", "trims", "take what the battery kept, if it proves itself", self.take_kept),)
        if self.syncs_first:
            steps += (("sync", "commit", "write the recovered entries to their translation pages", self.write_found),)
        return steps

    def write_found(self):
        """As in LazyFTL, the recovered entries go to their translation pages before the host is served. This is after
        the recovery's checkpoint, which has all of them, so a cut here loses only time."""
        cdef uint32_t page
        entries, pages = len(self.newer()[0]), self.writebacks
        self.ssd.map_ns = self.ssd.now_ns
        try:
            self.write_down(0, NONE)
            for page in range(self.gtd.n):  # what the cache took back
                if self.dirty_of(page * self.per_page, self.entries_of(page), NULL):
                    self.write_back(page)
        except DeviceFullError as error:
            return f"{len(self.newer()[0])} of {entries} entries are left: {error}"
        finally:
            self.ssd.now_ns = max(self.ssd.now_ns, self.ssd.map_ns)
        return f"{entries} entries to {self.writebacks - pages} translation pages"

    def take_kept(self):
        """Takes mapping and validity from the battery, if it belongs to the checkpoint that was loaded."""
        if not self.stamp:
            return "the checkpoint says that there was none"
        before = self.gtd.save()
        self.ssd.map_ns = self.ssd.now_ns
        why, kept = self.saved.prove(self.stamp, self.gtd.find_kept)
        self.ssd.now_ns = max(self.ssd.now_ns, self.ssd.map_ns)
        if why is not None:
            self.gtd.forget()
            self.gtd.load(before, self.ssd.nand.blocks * self.ssd.nand.pages_per_block)
            return f"not believed: {why}"
        exact, strays = self.exact, self.strays  # the battery does not say; what changed since made it not believed
        self.reset()
        self.exact, self.strays = exact, strays
        self.gtd.take_kept(kept["halves"], kept["pointers"], kept["pages"])
        merge_arrays(self.pending, kept["lpas"], kept["ppas"])
        self.store.keep_all(kept["spares"])
        self.saved.validity.take(kept["validity"], kept["bits"])
        self.saved.believed()
        self.known = kept["seq"], kept["trimmed"], kept["order"] if self.saved.stands() else None
        return f"{len(kept['lpas'])} entries, {self.gtd.count()} translation pages"

    def known_without_scan(self):
        return self.known

    def recovery_commits(self):
        if self.known is None:
            return self.saved is not None and self.saved.outdate(self.stamp)
        self.saved.stand()
        return True

    # --- for users

    def tables(self):
        page = self.ssd.nand.page_bytes
        lists = 12 * self.list_room + 16 * self.ssd.nand.pages_per_block
        packed, allocated = self.store.tables()
        return {
            **self.gtd.tables(),
            "pending": self.pending.sizes(),
            "translation_buffers": (2 * page + lists + packed, 2 * page + lists + allocated),
        }

    def figures(self):
        return {
            **super().figures(),
            "writebacks": self.writebacks,
            "entries_written": self.entries_written,
            "pending": self.pending.n,
            **(self.saved.figures() if self.saved is not None else {}),
        }

    def forget_counts(self):
        self.writebacks = self.entries_written = 0
        super().forget_counts()

    def explain(self, uint32_t lpa):
        """Where the entry of an LPA is, and what it says, as far as DRAM knows."""
        cdef uint32_t ppa = NONE, page = self.page_of(lpa)
        cdef int64_t at = self.pending.find(lpa)
        page_ppa = self.gtd.known(page)
        out = {"translation_page": page, "entry": lpa % self.per_page, "at": None if page_ppa == NONE else page_ppa}
        if self.cached(lpa, &ppa):
            where = "cached"
        elif at >= 0:
            where, ppa = "pending", self.pending.ppa[at]
        else:
            where = "in flash" if page_ppa != NONE else "no page"
        return {**out, "where": where, "ppa": None if ppa == NONE else ppa}

    def check(self):
        """Checks that pending entries ascend, that no two translation pages are at one PPA, and that no more superseded
        ones live than there are ids (``require_room``)."""
        problems = []
        cdef uint64_t i
        for i in range(1, self.pending.n):
            if self.pending.lpa[i] <= self.pending.lpa[i - 1]:
                problems.append(f"pending entries: LPA {self.pending.lpa[i]} after {self.pending.lpa[i - 1]}")
        page_ppas = self.translation_pages()
        if len(set(page_ppas)) != len(page_ppas):
            problems.append("GTD: two translation pages at one PPA")
        if self.store.waiting() > self.store.ids and not self.ssd.validity.late:
            problems.append(f"{self.store.waiting()} superseded translation pages live, of {self.store.ids}")
        return problems
