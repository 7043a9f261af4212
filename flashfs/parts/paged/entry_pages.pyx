# distutils: language = c++
"""Entries in translation pages: 4 bytes per LPA, a directory of the pages (GTD) in DRAM, and the entries newer than the
pages.

Translation page ``id`` holds the PPAs of ``per_page`` LPAs, from ``id * per_page`` on; NONE is a hole. A page of which
all entries are holes does not exist. A newer entry is in one of two places: in the scheme's cache, as a dirty entry, or
among the *pending* entries, where cleaning, trims and recovery put what no cache holds. A cached entry takes precedence
over a pending one, and that over the page.

Writing a page back takes all of its newer entries, cached or pending: one read and one program for all of them.

With a battery (map_battery.pyx) all of that is kept in NVRAM, continuously. A change of what the mapping names first
reports to the battery how the sum changes.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from flashfs.engine.arrays cimport array_u32
from flashfs.parts.battery.map_battery cimport KEPT, READY, REFUSED, MapBattery
from flashfs.parts.paged.paged_map cimport PageDirectory, PagedMapping
from flashfs.engine.contract.engine cimport IN_TABLE, Engine
from flashfs.parts.paged.pending_entries cimport UNSEEN, PendingEntries
from flashfs.engine.blocks.pool cimport CAUSE_MAP, KIND_USER, NONE, Oob, read_oob
from flashfs.parts.paged.part_pages cimport TranslationPages
from nandimg._nand cimport PAGE_OK

import numpy

from flashfs.parts.battery.map_battery import pages_of


cdef class Gtd(PageDirectory):
    """The directory: 4 bytes per translation page, in DRAM. The one in flash derives from it (map_btree.pyx). It says
    where a *page* is, of LPAs from ``page * per_page`` on; the page's *id*, which is in its OOB, is ``first_id +
    page``."""

    def __cinit__(self, EntryPages mapping not None, uint32_t n, *_, **__):
        self.mapping = mapping
        self.n = n
        self.page_ppas = <uint32_t*> malloc(n * 4)
        if self.page_ppas == NULL:
            raise MemoryError
        memset(self.page_ppas, 0xFF, n * 4)

    def __dealloc__(self):
        free(self.page_ppas)

    cdef uint32_t ppa_of(self, uint32_t id) noexcept nogil:
        return self.page_ppas[id] if id < self.n else NONE

    cdef int set_ppa(self, uint32_t id, uint32_t ppa) noexcept nogil:
        if id < self.n:
            self.page_ppas[id] = ppa
            if self.mapping.keeps():
                self.mapping.saved.put_page(id, ppa)
        return 0

    cdef uint32_t where(self, uint32_t page) except? 0xFFFFFFFE nogil:
        """The newest version of a page, or NONE: it does not exist. May read, which advances the map's clock."""
        return self.page_ppas[page]

    cdef uint32_t known(self, uint32_t page) noexcept nogil:
        """As ``where``, but without a read: NONE if that needs one."""
        return self.page_ppas[page]

    cdef bint absent(self, uint32_t page) noexcept nogil:
        """Whether the page is known, without a read, not to exist."""
        return self.page_ppas[page] == NONE

    cdef int replaced(self, uint32_t old, uint32_t ppa) noexcept nogil:
        """A page moved from ``old`` to ``ppa``; either may be NONE."""
        return 0

    cdef int housekeep(self) except -1 nogil:
        """Writes back what the directory must before more of it changes; may clean."""
        return 0

    cdef int quiet(self, bint on) noexcept nogil:
        """While it is ``on``, lookups do not change the directory's cache."""
        return 0

    cdef uint32_t id_at(self, uint32_t ppa) noexcept nogil:
        """As PageDirectory.id_at, for a directory in DRAM, where id and page number are the same."""
        cdef uint32_t page
        for page in range(self.n):
            if self.page_ppas[page] == ppa:
                return page
        return NONE

    cdef uint32_t count(self) noexcept nogil:
        """How many translation pages exist; looks at all ``n`` places."""
        cdef uint32_t page, n = 0
        for page in range(self.n):
            n += self.page_ppas[page] != NONE
        return n

    def forget(self):
        """Forgets all pages."""
        memset(self.page_ppas, 0xFF, self.n * 4)

    def save(self):
        """{section: bytes} of a checkpoint."""
        return {"gtd": array_u32(self.page_ppas, self.n).tobytes()}

    def load(self, sections, pages):
        """The inverse, on a chip of so many pages; ValueError if a section is impossible."""
        page_ppas = numpy.frombuffer(sections["gtd"], "<u4")
        named = page_ppas[page_ppas != NONE]
        if len(page_ppas) != self.n:
            raise ValueError(f"gtd section of {4 * len(page_ppas)} bytes: {4 * self.n} are needed")
        if len(named) and int(named.max()) >= pages:
            raise ValueError(f"gtd section: a translation page at PPA {int(named.max())}: the chip has {pages} pages")
        if len(numpy.unique(named)) != len(named):
            raise ValueError("gtd section: two translation pages at one PPA")
        array_u32(self.page_ppas, self.n)[:] = page_ppas

    # the battery's: ``halves`` are PPAs of pages, ``pointers`` those that a directory in flash has beside its root

    cdef int save_in(self, MapBattery battery) except -1:
        """Puts all of the directory into the battery."""
        cdef uint32_t page
        for page in range(self.n):
            if self.page_ppas[page] != NONE:
                battery.put_page(page, self.page_ppas[page])
        return 0

    def find_kept(self, halves, pointers):
        """The PPAs of the pages that these name, an array of u32, or text that says why there are none."""
        return halves[halves != NONE]

    def take_kept(self, halves, pointers, named):
        """Sets the directory to these, of ``named`` pages."""
        array_u32(self.page_ppas, self.n)[:] = halves

    def from_versions(self, ids, ppas):
        """{section: bytes} as a checkpoint would have them, from all whole pages: by number, the oldest version first.
        May read."""
        page_ppas = numpy.full(self.n, NONE, numpy.uint32)
        within = ids < self.n
        page_ppas[ids[within]] = ppas[within]  # the newest stays
        return {"gtd": page_ppas.astype("<u4").tobytes()}

    def faults(self):
        """A line for each part of the directory in flash that cannot be read."""
        return []

    def tables(self):
        """{structure: (bytes as a controller packs them, bytes allocated)}."""
        return {"gtd": (4 * self.n, 4 * self.n)}

    def ppas(self):
        """[PPA] of the translation pages that exist, in the order of their numbers."""
        page_ppas = array_u32(self.page_ppas, self.n)
        return page_ppas[page_ppas != NONE].tolist()

    def entries(self):
        """Each translation page that there is: {"page", "first_lpa", "ppa"}."""
        return [{"page": page, "first_lpa": page * self.mapping.per_page, "ppa": self.page_ppas[page]}
                for page in range(self.n) if self.page_ppas[page] != NONE]


cdef class KeptPages(TranslationPages):
    """Translation pages whose directory is in a battery."""

    cdef int moved(self, const uint32_t* ids, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        (<Gtd> self.directory).mapping.changes()
        return TranslationPages.moved(self, ids, olds, news, n)


cdef class EntryPages(PagedMapping):
    """The base of every demand-paged mapping of entries: demand_map.pyx adds the mapping interface, a scheme its cache.
    """

    def __cinit__(self, Engine ssd not None, *_, **__):
        cdef uint32_t page_bytes = ssd.nand.page_bytes
        self.ssd = ssd
        self.demand = True
        self.per_page = page_bytes // 4
        self.find_pages_by(Gtd(self, pages_of(ssd.lpas, page_bytes)), pages_of(ssd.lpas, page_bytes))
        self.pending = PendingEntries()
        self.image = <uint32_t*> malloc(page_bytes)
        self.looked = <uint32_t*> malloc(page_bytes)
        if not (self.image and self.looked):
            raise MemoryError
        self.wait_for_most(2 * self.per_page, 1)
        self.image_of = self.looked_of = NONE

    def __dealloc__(self):
        free(self.image)
        free(self.looked)

    cdef int wait_for_most(self, uint64_t entries, uint32_t blocks) except -1:
        """Lets so many entries wait between requests, and makes room for those of the pages of ``blocks`` more."""
        self.pending_most = entries
        self.pending_room = entries + <uint64_t> blocks * self.ssd.nand.pages_per_block
        self.pending.shrink(self.pending_room)
        return self.pending.reserve(self.pending_room - min(self.pending_room, self.pending.n))

    cdef int give_room_back(self) except -1 nogil:
        """Frees the extra room that a recovery, or much cleaning at once, took, once its entries are written."""
        if self.pending.room > self.pending_room + self.pending_room // 4 and self.pending.n <= self.pending_most:
            with gil:
                self.pending.shrink(self.pending_room)
        return 0

    cdef int find_pages_by(self, Gtd gtd, uint32_t ids) except -1:
        """Sets the directory to ``gtd``, with ``ids`` numbers of pages, its own included. Call before anything is
        mapped."""
        self.gtd = gtd
        self.own_pages(KeptPages(self.ssd, gtd, ids), gtd)
        self.store.lasting = self.from_pages is not None
        self.store.hold_proofs()
        self.store.of_ppas = True
        return 0

    # --- implemented by a scheme's cache; by default there is none

    cdef bint cached(self, uint32_t lpa, uint32_t* ppa) noexcept nogil:
        """Whether the LPA has an entry in the cache, and what it says. Changes nothing."""
        return False

    cdef bint recache(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """If the LPA has an entry in the cache, sets it to ``ppa`` and makes it dirty; returns whether it has."""
        return False

    cdef uint32_t dirty_of(self, uint32_t first, uint32_t n, uint32_t* image) noexcept nogil:
        """How many dirty entries there are of ``n`` LPAs from ``first`` on, all of one translation page. Stores them in
        ``image``, if that is not NULL."""
        return 0

    cdef int cleaned(self, uint32_t page) except -1 nogil:
        """The translation page was written: its cached entries are clean."""
        return 0

    cdef int uncache(self, uint32_t page) except -1 nogil:
        """Forget the entries of a translation page, dirty or not."""
        return 0

    cdef int uncache_all(self) noexcept nogil:
        """Forget every entry."""
        return 0

    cdef int replaces(self, uint32_t page) except -1 nogil:
        """Newer entries are about to go into ``image``: the last moment to read the old content. Must leave the image
        as it is."""
        return 0

    def save_cache(self):
        """Puts every dirty entry into the battery; returns how many slots the cache has."""
        return 0

    def dirty_entries(self):
        """(LPAs, PPAs) of the cache's dirty entries, arrays of u32, in any order."""
        return numpy.empty(0, numpy.uint32), numpy.empty(0, numpy.uint32)

    # --- pages

    cdef uint32_t page_of(self, uint32_t lpa) noexcept nogil:
        """The number of the translation page that has the entry of an LPA; not its id (see Gtd)."""
        return lpa // self.per_page

    cdef uint32_t entries_of(self, uint32_t page) noexcept nogil:
        """Entries that the page has; the last page may have fewer."""
        return min(self.per_page, self.ssd.lpas - page * self.per_page)

    cdef int fetch(self, uint32_t page) except -1 nogil:
        """Reads the page from flash into ``image``; advances the map's clock. One that cannot be read is rebuilt: its
        entries are pending then, and the image has only holes."""
        cdef uint32_t page_ppa = self.gtd.where(page)
        self.image_of = NONE
        if page_ppa != NONE and not self.store.read(page_ppa, self.gtd.first_id + page, <uint8_t*> self.image):
            self.rebuild(page)
            page_ppa = NONE
        if page_ppa == NONE:
            memset(self.image, 0xFF, self.ssd.nand.page_bytes)
        self.image_of = page
        self.image_ppa = page_ppa
        return 0

    cdef int write_back(self, uint32_t page) except -1 nogil:
        """As ``write_page``, but cleans first if needed, which may change what is cached and pending."""
        cdef int64_t start = self.ssd.map_ns
        self.ssd.will_change()
        self.gtd.housekeep()
        self.store.ensure(1)
        self.ssd.map_ns = start
        return self.write_page(page)

    cdef int write_page(self, uint32_t page) except -1 nogil:
        """Writes all newer entries of the page, in one program; advances the map's clock to its end."""
        cdef uint32_t first = page * self.per_page, n = self.entries_of(page), i, ppa = NONE, old
        self.store.make_way()
        self.image_of = NONE
        while self.image_of != page:
            self.fetch(page)
            self.replaces(page)
            if self.image_of != page:       # ``replaces`` may have read other pages
                self.fetch(page)
            self.put_pending(page)
            if self.ssd.validity.in_flash:  # before the program: rebuilding validity reads all pages
                self.ssd.validity.prepare(2, False)
        self.entries_written += self.dirty_of(first, n, self.image)
        old = self.gtd.where(page)
        if self.same_image(page):
            ppa = old                       # a recovery took entries for newer that flash had already
        else:
            for i in range(n):
                if self.image[i] != NONE or self.from_pages is not None:  # else a recovery takes an older version
                    ppa = self.store.program(self.gtd.first_id + page, <const uint8_t*> self.image)
                    break
            self.replace(page, old, ppa)
        self.drop_pending(self.pending.first_from(first), self.pending.first_from(first + n))
        self.cleaned(page)
        self.image_of = NONE
        self.writebacks += 1
        return 0

    cdef bint same_image(self, uint32_t page) except -1 nogil:
        """Whether ``image``, with all newer entries, equals the page in flash. For a mapping that may have entries that
        are not newer; its ``replaces`` copies the old content."""
        return False

    cdef int put_pending(self, uint32_t page) except -1 nogil:
        """Puts the page's pending entries into ``image``, except those whose moved page turns out to be another LPA's.
        """
        cdef uint32_t first = page * self.per_page, end = first + self.entries_of(page), was
        cdef uint64_t at = self.pending.first_from(first)
        while at < self.pending.n and self.pending.lpa[at] < end:
            was = self.image[self.pending.lpa[at] - first]
            if self.pending.expected[at] != UNSEEN and self.pending.expected[at] != was:
                self.disown(at)
                if self.image_of != page:   # finding the owner may have read other pages
                    self.fetch(page)
                at = self.pending.first_from(first)
                continue
            self.pending.settle(at)
            self.image[self.pending.lpa[at] - first] = self.pending.ppa[at]
            self.entries_written += 1
            at += 1
        return 0

    cdef int set_ppa(self, uint32_t page, uint32_t ppa) except -1 nogil:
        """Makes that version the current one; NONE: every entry is a hole."""
        return self.replace(page, self.gtd.where(page), ppa)

    cdef int replace(self, uint32_t page, uint32_t old, uint32_t ppa) except -1 nogil:
        """As ``set_ppa``, for a page that is at ``old``."""
        cdef int before = self.ssd.stopped
        if self.looked_of == page:          # a later version may get the same PPA
            self.looked_of = NONE
        self.outdated |= self.watched == page
        self.changes()
        self.ssd.stopped = IN_TABLE
        self.gtd.move_to(self.gtd.first_id + page, ppa)
        self.gtd.replaced(old, ppa)
        if old != NONE:
            self.store.supersede(old)
        self.ssd.stopped = before
        return 0

    cdef int lpas_of(self, uint32_t page, uint32_t* first, uint32_t* n) noexcept nogil:
        first[0] = page * self.per_page
        n[0] = self.entries_of(page)
        return 0

    cdef int rebuild(self, uint32_t page) except -1 nogil:
        if not self.strict:
            self.doubts()
            self.strays = True
        return PagedMapping.rebuild(self, page)

    cdef int remade(self, uint32_t page, uint32_t* lpas, uint32_t* ppas, uint32_t n) except -1 nogil:
        """Makes the rebuilt page's entries pending, except where a newer one is pending already."""
        cdef uint32_t i, kept = 0
        cdef uint64_t at
        for i in range(n):
            if self.pending.find(lpas[i]) < 0:
                lpas[kept] = lpas[i]
                ppas[kept] = ppas[i]
                kept += 1
        self.pending.merge(lpas, ppas, NULL, kept)
        at = self.pending.first_from(page * self.per_page)
        while at < self.pending.n and self.page_of(self.pending.lpa[at]) == page:
            self.pending.settle(at)  # the page is lost, so what a move expected of it cannot be checked
            at += 1
        return self.set_ppa(page, NONE)

    cdef bint is_sound(self, uint32_t page) except -1:
        self.looked_of = NONE
        return self.store.read(self.gtd.where(page), self.gtd.first_id + page, <uint8_t*> self.looked)

    def unsound(self):
        cdef uint32_t page
        return [page for page in range(self.gtd.n) if self.gtd.where(page) != NONE and not self.is_sound(page)]

    def problems_in_flash(self):
        return self.gtd.faults() + super().problems_in_flash()

    # --- entries

    cdef uint32_t entry(self, uint32_t lpa, bint* dirty) except? 0xFFFFFFFE nogil:
        """The entry of an LPA that is not cached, read from flash if needed; sets ``dirty`` if it is newer than its
        page."""
        cdef uint32_t page = self.page_of(lpa), ppa = NONE
        cdef int64_t at = self.pending.find(lpa)
        if at >= 0 and self.pending.expected[at] != UNSEEN:
            self.judge(<uint64_t> at)
            at = self.pending.find(lpa)
        if at < 0 and self.gtd.where(page) != NONE:
            self.fetch(page)
            ppa = self.image[lpa - page * self.per_page]
            at = self.pending.find(lpa)     # the page may have been rebuilt
        dirty[0] = at >= 0
        return self.pending.ppa[at] if at >= 0 else ppa

    cdef int judge(self, uint64_t at) except -1 nogil:
        """Settles a pending entry from cleaning. Its page was moved because its OOB named the LPA; the translation page
        says whether the LPA was really there."""
        cdef uint32_t lpa = self.pending.lpa[at]
        self.fetch(self.page_of(lpa))
        self.agrees(<uint64_t> self.pending.find(lpa))
        return 0

    cdef bint agrees(self, uint64_t at) except -1 nogil:
        """Whether a pending entry counts, by its translation page, which is in ``image``; if not it is gone, and the
        image may be another."""
        cdef uint32_t lpa = self.pending.lpa[at]
        if self.pending.expected[at] in (UNSEEN, self.image[lpa - self.page_of(lpa) * self.per_page]):
            self.pending.settle(at)
            return True
        self.disown(at)
        return False

    cdef int disown(self, uint64_t at) except -1 nogil:
        """The moved page is not that LPA's, though its OOB says so. The LPA that the map has at the old place gets the
        copy, and reads of it give EIO. Not if the entry waited until the block was erased and written again: then the
        page at the old place has its owner's LPA in its OOB, and the copy dies. And if the entry's LPA was written
        meanwhile, the copy is dead already."""
        cdef uint32_t old = self.pending.expected[at], new = self.pending.ppa[at], owner, ppa = new
        cdef uint8_t status = 0
        cdef uint8_t[4096] raw
        cdef Oob oob
        self.doubts()
        if self.ssd.validity.late:          # such a store's reports of the page went to the wrong one
            self.strays = True
        if self.cached(self.pending.lpa[at], &ppa) and ppa != new:
            return self.drop_pending(at, at + 1)
        ppa = new
        self.drop_pending(at, at + 1)
        owner = self.owner_of(old)
        if owner != NONE:
            read_oob(self.ssd.nand, old, raw, &oob, &status, CAUSE_MAP, self.ssd.map_ns)
            if status == PAGE_OK and oob.kind == KIND_USER and oob.lpa == owner:
                owner = NONE
        if owner == NONE:
            self.ssd.validity.dead(&ppa, 1)
        elif not self.recache(owner, new):
            self.put_newer(&owner, &new, NULL, 1)
        return 0

    cdef bint newest(self, uint32_t lpa, uint32_t* ppa) except -1 nogil:
        """Whether DRAM has an entry of the LPA; ``ppa`` gets it. May read to settle a pending one."""
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
        """Gets the page into ``looked``, for callers other than host requests; reads it only if a newer version exists.
        """
        cdef uint32_t page_ppa
        self.gtd.quiet(True)
        try:
            page_ppa = self.gtd.where(page)
        finally:
            self.gtd.quiet(False)
        if self.looked_of == page and self.looked_ppa == page_ppa:
            return 0
        self.looked_of = NONE
        if page_ppa != NONE and not self.store.read(page_ppa, self.gtd.first_id + page, <uint8_t*> self.looked):
            self.rebuild(page)
            page_ppa = NONE
        if page_ppa == NONE:
            memset(self.looked, 0xFF, self.ssd.nand.page_bytes)
        self.looked_of = page
        self.looked_ppa = page_ppa
        return 0

    # --- the battery

    def keep_in(self, MapBattery battery not None):
        """From the first change on, ``battery`` keeps mapping and validity. Call before anything is mapped."""
        self.saved = battery
        self.pending = PendingEntries(True)
        self.pending.reserve(self.pending_room)

    cdef bint keeps(self) noexcept nogil:
        return self.saved is not None and self.saved.state == KEPT

    cdef int changes(self) except -1 nogil:
        """Call before a change: from here on the battery keeps it, or is no longer believed. Does nothing on a
        read-only image, where a page that cannot be read is rebuilt in DRAM alone."""
        if self.saved is None or self.saved.state == KEPT or self.ssd.frozen:
            return 0
        if self.saved.state == READY:
            with gil:
                self.begin_keeping()
        if self.saved.state == REFUSED:
            self.saved.disown()
        return 0

    cdef int doubts(self) except -1 nogil:
        """Flash is damaged, so mapping and validity may disagree: the battery's sum proves nothing from now on."""
        return self.saved.refuse(True) if self.saved is not None else 0

    def will_keep(self):
        return self.saved is not None and not self.saved.refuses()

    def begin_keeping(self):
        """Begins to keep; the words belong to the newest checkpoint. Mapping and validity must agree, and that
        checkpoint must be durable."""
        if not self.will_keep():
            return
        if self.saved.state != KEPT:
            self.saved.begin()
            slots = self.save_cache()
            if slots > self.saved.slots:
                self.saved.decline(f"the cache has {slots} slots, and the NVRAM room for {self.saved.slots}")
                return
            self.save_pages()
        self.saved.settle(self.ssd.checkpoint_id())

    cdef int save_pages(self) except -1:
        """Puts the directory and the pending entries into the battery."""
        cdef uint64_t i
        self.gtd.save_in(self.saved)
        for i in range(self.pending.n):
            self.pending.place[i] = NONE
        for i in range(self.pending.n):
            self.save_pending(i)
        return 0

    cdef int save_pending(self, uint64_t at) except -1 nogil:
        """Puts pending entry number ``at`` into the battery and notes its place there, if a battery keeps the mapping.
        If it has no free place, it keeps nothing more, which is no error."""
        if self.keeps():
            self.pending.place[at] = self.saved.put_place(self.pending.place[at], self.pending.lpa[at],
                                                          self.pending.ppa[at])
        return 0

    cdef int put_newer(self, const uint32_t* lpas, const uint32_t* ppas, const uint32_t* expected,
                       uint32_t n) except -1 nogil:
        """As PendingEntries.merge, and puts them into the battery."""
        cdef uint32_t i
        self.pending.merge(lpas, ppas, expected, n)
        for i in range(n if self.keeps() else 0):
            self.save_pending(<uint64_t> self.pending.find(lpas[i]))
        return 0

    cdef int drop_pending(self, uint64_t first, uint64_t end) except -1 nogil:
        """Removes pending entries number ``first`` to ``end - 1``, also from the battery if it keeps the mapping."""
        cdef uint64_t i
        for i in range(first, end if self.keeps() else first):
            self.saved.clear_place(self.pending.place[i])
        return self.pending.erase(first, end)
