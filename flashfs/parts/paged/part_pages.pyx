# distutils: language = c++
"""Translation pages: parts of a mapping in flash, in blocks of their own that are cleaned like any others.

The owner decides what a page holds; this file has what every owner needs. A page has an id, in its OOB in place of an
LPA, and is at one place at a time. The checkpoint says where each id is, and a recovery starts from there: pages
programmed since are ignored (the mapping is rebuilt from the newer user pages), and pages superseded since still count.
So a page that the last checkpoint needs lives until the next one is durable, and cleaning moves it meanwhile; a newer
one dies as soon as it is superseded.

A recovery may also start from the pages themselves (rebuild.pyx): then the newest version of each counts, and a
superseded one is needed until its successor is durable. Such pages are ``lasting``: the owner says when the successors
of all that were superseded so far have been programmed (``ripen``), and after the next sync these die.
"""
from cython.operator cimport dereference as deref
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset
from libcpp.unordered_set cimport unordered_set

from flashfs.engine.contract.engine cimport IN_TABLE, Engine
from flashfs.engine.contract.owner cimport FOREIGN, LIVE, Owner
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.blocks.pool cimport (
    CAUSE_MAP,
    KIND_TRANSLATION,
    KIND_USER,
    KIND_VALIDITY,
    NONE,
    STATE_FREE,
    STREAM_MAP,
    Oob,
    number_for,
    oob_kind,
    oob_lpa,
    oob_pack,
    placed,
    read_oob,
)
from nandimg._nand cimport PAGE_OK


cdef class Directory:
    """Where each page is. A directory in DRAM implements ``ppa_of`` and ``set_ppa``; one in flash may have to read, and
    may fail, so it implements ``find`` and ``move_to`` instead."""

    cdef uint32_t ppa_of(self, uint32_t id) noexcept nogil:
        """NONE if there is no such page."""
        return NONE

    cdef int set_ppa(self, uint32_t id, uint32_t ppa) noexcept nogil:
        """Sets page ``id`` to ``ppa``; does nothing if there can be no such page."""
        return 0

    cdef uint32_t find(self, uint32_t id) except? 0xFFFFFFFE nogil:
        """As ``ppa_of``, for a valid page number."""
        return self.ppa_of(id)

    cdef int move_to(self, uint32_t id, uint32_t ppa) except -1 nogil:
        """As ``set_ppa``."""
        return self.set_ppa(id, ppa)

    cdef int lost(self, uint32_t ppa) except -1 nogil:
        """The page there cannot be read, and is about to be erased: if it is the newest version, it is rebuilt."""
        return 0


cdef class DramDirectory(Directory):
    """In DRAM, 4 bytes per page, by number."""

    cdef int hold(self, uint32_t n) except -1:
        """Allocates room for ``n`` pages; none exists yet."""
        self.page_ppas = <uint32_t*> malloc(n * 4)
        if self.page_ppas == NULL:
            raise MemoryError
        memset(self.page_ppas, 0xFF, n * 4)
        self.n = n
        return 0

    def __dealloc__(self):
        free(self.page_ppas)

    cdef uint32_t ppa_of(self, uint32_t id) noexcept nogil:
        return self.page_ppas[id] if id < self.n else NONE

    cdef int set_ppa(self, uint32_t id, uint32_t ppa) noexcept nogil:
        if id < self.n:
            self.page_ppas[id] = ppa
        return 0

    cdef uint32_t drop(self, uint32_t ppa) noexcept nogil:
        """Drops the page at ``ppa``; returns its number, or NONE if there was none."""
        cdef uint32_t id
        for id in range(self.n):
            if self.page_ppas[id] == ppa:
                self.page_ppas[id] = NONE
                return id
        return NONE


cdef class TranslationPages(Owner):
    """The translation pages of one mapping, at most ``ids``; or, with another ``kind``, pages that another part keeps
    in flash by the same rules, in blocks of ``stream``, counted under ``cause``."""

    def __cinit__(self, Engine ssd not None, Directory directory not None, uint32_t ids, *,
                  int kind=KIND_TRANSLATION, int stream=STREAM_MAP, int cause=CAUSE_MAP):
        self.ssd = ssd
        self.directory = directory
        self.ids = ids
        self.kind = kind
        self.stream = stream
        self.cause = cause
        self.reports = kind != KIND_VALIDITY
        self.chip = ssd.nand if type(ssd.nand) is Chip else None
        self.oob = <uint8_t*> malloc(ssd.nand.oob_bytes)
        if self.oob == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.oob)
        free(self.proved)

    cdef int hold_proofs(self) except -1:
        """The owner looks at what it reads, once in a mount. Call before any page is programmed or read."""
        self.proved = <uint8_t*> calloc(self.ids // 8 + 1, 1)
        if self.proved == NULL:
            raise MemoryError
        return 0

    cdef bint is_proved(self, uint32_t id) noexcept nogil:
        """Whether page ``id`` needs no look: it was written in this mount, or found sound."""
        return id < self.ids and self.proved[id >> 3] >> (id & 7) & 1

    cdef int prove(self, uint32_t id) noexcept nogil:
        """Notes that page ``id`` needs no further look until ``reset``. Does nothing without ``hold_proofs``, or for an
        id that there cannot be."""
        if self.proved != NULL and id < self.ids:
            self.proved[id >> 3] |= <uint8_t> (1 << (id & 7))
        return 0

    cdef int ensure(self, uint32_t pages) except -1 nogil:
        """Call before ``pages`` are programmed together: cleans now, not between them. Cleaning may change the mapping.
        """
        cdef uint32_t room
        self.let_ripe_go()
        self.make_way()
        room = self.ssd.placement.run_room(self.stream)
        if room < pages or room == self.ssd.nand.pages_per_block:
            self.ssd.make_room()
        return 0

    cdef uint32_t program(self, uint32_t id, const uint8_t* data) except? 0xFFFFFFFF nogil:
        """Programs a new version of a page; returns its PPA. The caller supersedes the old one. Advances the map's
        clock to the program's end."""
        cdef Extent ext
        cdef Oob oob
        cdef uint32_t ppa, done = 0
        cdef int64_t end
        cdef int before = self.ssd.stopped
        if self.reports and self.ssd.validity.in_flash:
            self.ssd.validity.prepare(2, False)  # the new page, and the one that it supersedes
        self.ssd.seq += 1
        oob.seq = self.ssd.seq
        oob.lpa = id
        oob.kind = <uint8_t> self.kind
        oob.flags = self.flags
        oob.stream = <uint8_t> self.stream
        while True:
            ext.choice = 0
            self.ssd.placement.take(self.stream, &id, 1, &ext)
            oob.order = self.ssd.pool.order[ext.block]
            oob.number = number_for(self.ssd.pool, ext.page)
            memset(self.oob, 0xFF, self.ssd.nand.oob_bytes)
            oob_pack(self.oob, &oob)
            ext.n = 1
            end = self.ssd.program(&ext, data, self.oob, self.cause, self.ssd.map_ns, &done)
            if done:
                break
            self.ssd.programmed(&ext, 0)
        ppa = ext.block * self.ssd.nand.pages_per_block + ext.page
        self.ssd.stopped = IN_TABLE
        self.ssd.validity.live_run(ppa, 1)
        self.ssd.programmed(&ext, 1)
        self.fresh.insert(ppa)
        self.prove(id)
        self.ssd.stopped = before
        self.ssd.map_ns = end
        self.programs += 1
        self.ssd.since_checkpoint_tables += 1
        return ppa

    cdef int leaves(self, uint32_t ppa) noexcept nogil:
        """The page there is no newest version. Placement counts those that are programmed on each die, and puts the
        next one where the fewest are."""
        cdef int64_t* living = self.ssd.pool.map_pages
        if self.stream == STREAM_MAP:
            living[ppa // self.ssd.nand.pages_per_block % self.ssd.nand.dies] -= 1
        return 0

    def count_all(self):
        """After a load or a recovery: count the newest versions on each die."""
        cdef uint32_t block
        memset(self.ssd.pool.map_pages, 0, self.ssd.nand.dies * 8)
        for block in range(self.ssd.nand.blocks):
            if self.ssd.pool.stream[block] == STREAM_MAP and self.ssd.pool.state[block] != STATE_FREE:
                self.ssd.pool.map_pages[block % self.ssd.nand.dies] += self.ssd.victims.valid[block]
        for ppa in self.kept_ppas():
            self.leaves(ppa)

    cdef int program_all(self, uint32_t id, const uint8_t* data, uint32_t n, uint32_t* ppas) except -1 nogil:
        """Programs ``n`` pages from ``id`` on, their data end to end, and sets ``ppas``. If that fails midway, those
        already programmed are superseded."""
        cdef uint32_t done = 0, i
        try:
            while done < n:
                ppas[done] = self.program(id + done, data + <uint64_t> done * self.ssd.nand.page_bytes)
                done += 1
        finally:
            if done < n:
                for i in range(done):
                    self.supersede(ppas[i])
        return 0

    cdef bint read(self, uint32_t ppa, uint32_t id, uint8_t* into) except -1 nogil:
        """Reads page ``id`` at its PPA; advances the map's clock to the end of the read. False if it cannot be read, or
        is not that page."""
        cdef uint8_t status = 0
        cdef uint32_t block = ppa // self.ssd.nand.pages_per_block
        cdef int _
        for _ in range(2):  # a read that fails once may succeed at the second try
            self.ssd.map_ns = self.ssd.nand.read(block, ppa - block * self.ssd.nand.pages_per_block, 1, into, self.oob,
                                                 &status, self.cause, self.ssd.map_ns)
            self.reads += 1
            if status == PAGE_OK:
                break
        return self.is_that(status, ppa, id, into)

    cdef const uint8_t* see(self, uint32_t ppa, uint32_t id, uint8_t* into) except? NULL nogil:
        """As ``read``, but returns where the page is until its block is erased: the memory of a chip that has its
        content there, or ``into``. NULL if it cannot be read, or is not that page."""
        cdef const uint8_t* data = NULL
        cdef uint32_t block = ppa // self.ssd.nand.pages_per_block
        if self.chip is not None:
            data = self.chip.peek(block, ppa - block * self.ssd.nand.pages_per_block, self.oob, self.cause,
                                  &self.ssd.map_ns)
        if data == NULL:
            return into if self.read(ppa, id, into) else NULL
        self.reads += 1
        return data if self.is_that(PAGE_OK, ppa, id, data) else NULL

    cdef bint is_that(self, uint8_t status, uint32_t ppa, uint32_t id, const uint8_t* data) noexcept nogil:
        """Whether what was read at ``ppa``, its OOB in ``oob``, is page ``id``; if not, it is counted."""
        status = placed(status, self.oob, ppa % self.ssd.nand.pages_per_block)
        if (status == PAGE_OK and oob_kind(self.oob) == self.kind and oob_lpa(self.oob) == id
                and (not self.of_ppas or self.is_proved(id)
                     or are_ppas(<const uint32_t*> data, self.ssd.nand.page_bytes // 4,
                                 self.ssd.nand.blocks * self.ssd.nand.pages_per_block))):
            if self.of_ppas:
                self.prove(id)
            return True
        self.unreadable += 1
        return False

    cdef int supersede(self, uint32_t ppa) except -1 nogil:
        """That version is no longer the newest of its page."""
        self.leaves(ppa)
        if self.fresh.erase(ppa) and not self.lasting:
            return self.ssd.validity.dead(&ppa, 1)
        self.kept.insert(ppa)
        return 0

    cdef int ripen(self) except -1 nogil:
        """For ``lasting`` pages: all that were superseded so far die after the next sync."""
        self.let_ripe_go()
        pour(self.kept, self.ripe)
        self.ripe_at = self.ssd.image_syncs
        return 0

    cdef int let_ripe_go(self) except -1 nogil:
        """If there was a sync, the ripe pages die. Only a store in flash that goes ``by_map`` needs room for reports of
        that; a late store recognizes the pages itself."""
        cdef uint32_t ppa
        if self.ripe.size() == 0 or self.ssd.image_syncs == self.ripe_at:
            return 0
        while self.ripe.size():             # one by one: making room for a report may fail
            ppa = deref(self.ripe.begin())
            if self.ssd.validity.by_map and self.ssd.validity.in_flash:
                self.ssd.validity.prepare(1, False)
            self.ssd.validity.dead(&ppa, 1)
            self.ripe.erase(ppa)
        return 0

    cdef int make_way(self) except -1 nogil:
        """Call before composing a page (composing may read other pages): makes room for two versions of each."""
        if self.waiting() >= self.ids and self.lasting and not self.ssd.validity.late:
            self.let_all_go()
        return 0

    cdef int let_all_go(self) except -1 nogil:
        """For ``lasting`` pages under a validity store that goes by the map: syncs, so that the successors of all
        superseded pages are durable, and lets these die."""
        self.ripen()
        self.ssd.barrier()
        return self.let_ripe_go()

    cdef uint64_t waiting(self) noexcept nogil:
        """Superseded pages that live."""
        return self.kept.size() + self.ripe.size()

    cdef bint keeps(self, uint32_t ppa) noexcept nogil:
        """Whether a superseded page lives on there."""
        return self.kept.count(ppa) != 0 or self.ripe.count(ppa) != 0

    cdef bint holds(self, uint32_t id, uint32_t ppa) except -1 nogil:
        """Whether a live version of page ``id`` may be at ``ppa``."""
        return id < self.ids and (self.keeps(ppa) or self.directory.find(id) == ppa)

    cdef int confirm(self, const uint32_t* ids, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            answers[i] = LIVE if self.holds(ids[i], ppas[i]) else FOREIGN
        return 0

    cdef int moved(self, const uint32_t* ids, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """The move of a superseded page does not change the directory."""
        cdef uint32_t i
        for i in range(n):
            if self.kept.erase(olds[i]):
                self.kept.insert(news[i])
                self.leaves(news[i])
                continue
            if self.ripe.erase(olds[i]):
                self.ripe.insert(news[i])
                self.leaves(news[i])
                continue
            if self.fresh.erase(olds[i]):
                self.fresh.insert(news[i])
            self.leaves(olds[i])
            self.directory.move_to(ids[i], news[i])
        return 0

    cdef int page_lost(self, uint32_t ppa) except -1 nogil:
        """The directory's owner first rebuilds and supersedes the page; then it is forgotten here."""
        self.directory.lost(ppa)
        self.fresh.erase(ppa)
        self.kept.erase(ppa)
        self.ripe.erase(ppa)
        return 0

    cdef uint32_t locate(self, uint32_t id) except? 0xFFFFFFFE nogil:
        return self.directory.find(id) if id < self.ids else NONE

    cdef int recovered(self, uint32_t id, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        return self.directory.move_to(id, ppa) if id < self.ids else 0

    def live_ppas(self):
        cdef uint32_t id
        ppas = [self.directory.find(id) for id in range(self.ids)]
        return [ppa for ppa in ppas if ppa != NONE] + self.kept_ppas()

    def kept_ppas(self):
        """PPAs of superseded pages that live."""
        return [ppa for ppa in self.kept] + [ppa for ppa in self.ripe]

    def keep_all(self, ppas):
        """A recovery found superseded pages that the last checkpoint needs."""
        cdef uint32_t ppa
        for ppa in ppas:
            self.kept.insert(ppa)

    cdef uint64_t known(self) noexcept nogil:
        """Number of pages in the sets: programmed or superseded since the last checkpoint."""
        return self.fresh.size() + self.kept.size() + self.ripe.size()

    cdef int reset(self) except -1:
        """A load or a recovery begins."""
        if self.proved != NULL:             # it may take older versions, which nobody looked at
            memset(self.proved, 0, self.ids // 8 + 1)
        return self.forget()

    cdef int forget(self) noexcept nogil:
        """No page was programmed or superseded since the last checkpoint."""
        self.fresh.clear()
        self.kept.clear()
        self.ripe.clear()
        return 0

    cdef int checkpoint_begins(self) except -1:
        """Reports the superseded pages dead, for the next checkpoint's validity. Room for a report is made page by
        page; no page moves meanwhile, so the order of the set is the same here and in ``checkpoint_ended``."""
        cdef uint32_t ppa
        self.let_go_n = 0
        if self.lasting and self.ssd.validity.late:
            return 0
        pour(self.ripe, self.kept)
        for ppa in self.kept:
            if self.reports and self.ssd.validity.in_flash:
                self.ssd.validity.prepare(1, False)
            self.ssd.validity.dead(&ppa, 1)
            self.let_go_n += 1
        return 0

    cdef int checkpoint_ended(self, bint whole) except -1:
        """The checkpoint is durable if ``whole``; else the last one still needs the superseded pages."""
        cdef uint32_t ppa
        if self.lasting and self.ssd.validity.late:
            if whole:
                self.fresh.clear()
                self.ripen()
                self.ripe_at -= 1           # their successors are durable with the checkpoint
                self.let_ripe_go()
            return 0
        if not whole:
            for ppa in self.kept:
                if self.let_go_n == 0:
                    break
                if self.reports and self.ssd.validity.in_flash:
                    self.ssd.validity.prepare(1, False)
                self.ssd.validity.live_run(ppa, 1)
                self.let_go_n -= 1
            return 0
        self.let_go_n = 0
        return self.forget()

    def forget_counts(self):
        self.programs = self.reads = self.unreadable = 0

    def tables(self):
        """(as a controller packs it, as allocated): 4 bytes for each page programmed or superseded since the last
        checkpoint; the sets here take about 40, and ``proved`` a bit a page."""
        n = self.known()
        return 4 * n, 40 * n + (self.ids // 8 + 1 if self.proved != NULL else 0)


cdef bint are_ppas(const uint32_t* words, uint32_t n, uint32_t pages) noexcept nogil:
    """Whether each of them is NONE or a PPA of a chip with so many pages."""
    cdef uint32_t i, high = 0
    for i in range(n):                      # no branch: NONE + 1 is 0, and a PPA sets no top bit of either
        high |= (words[i] + 1) | (pages - (words[i] + 1))
    if high >> 31 == 0:
        return True
    for i in range(n):                      # a chip of more than 2^31 pages, or a page that is wrong
        if words[i] >= pages and words[i] != NONE:
            return False
    return True


cdef int pour(unordered_set[uint32_t]& some, unordered_set[uint32_t]& into) except -1 nogil:
    """Moves all of one set into the other; if memory runs out, the rest stays."""
    cdef uint32_t ppa
    while some.size():
        ppa = deref(some.begin())
        into.insert(ppa)
        some.erase(ppa)
    return 0


cdef int take_witnesses(Engine ssd, uint32_t first, uint32_t n, Witness* seen, uint32_t* nobody) except -1 nogil:
    """Finds the newest live page of each of ``n`` LPAs from ``first`` on, by the spare areas of all live pages; and an
    ownerless page: one that does not say whose it is, or names the same LPA as another live page, so that one of the
    two is where a third LPA's page should be. A late store calls superseded pages live, so two pages of one LPA mean
    nothing there. The caller sets ``seen`` to zeros and ``nobody`` to NONE."""
    cdef uint32_t block, page, ppa
    cdef uint8_t status = 0
    cdef uint8_t[4096] raw
    cdef Oob oob
    cdef uint8_t* named = <uint8_t*> calloc(ssd.lpas // 8 + 1, 1)
    if named == NULL:
        with gil:
            raise MemoryError
    try:
        for block in range(ssd.nand.blocks):
            if ssd.validity.count(block) == 0 or ssd.kind_of(block) != KIND_USER:
                continue
            for page in range(ssd.nand.pages_per_block):
                ppa = block * ssd.nand.pages_per_block + page
                if not ssd.validity.is_live(ppa):
                    continue
                read_oob(ssd.nand, ppa, raw, &oob, &status, CAUSE_MAP, ssd.now_ns)
                if status != PAGE_OK or oob.kind != KIND_USER or oob.lpa >= ssd.lpas:
                    nobody[0] = ppa
                    continue
                if oob.lpa - first < n and seen[oob.lpa - first].next_seq <= oob.seq:
                    seen[oob.lpa - first].next_seq = oob.seq + 1
                    seen[oob.lpa - first].ppa = ppa
                if named[oob.lpa >> 3] & (1 << (oob.lpa & 7)) and not ssd.validity.late:
                    nobody[0] = ppa
                named[oob.lpa >> 3] |= <uint8_t> (1 << (oob.lpa & 7))
    finally:
        free(named)
    return 0


cdef list newest_pages(Engine ssd, list ranges):
    """PPAs of the newest whole page of each LPA in ``ranges``, [(first, number of LPAs)], by the spare areas of all
    pages, live or not, in blocks with live user pages."""
    cdef uint32_t block, page
    cdef uint8_t status = 0
    cdef uint8_t[4096] raw
    cdef Oob oob
    newest = {}
    for block in range(ssd.nand.blocks):
        if ssd.validity.count(block) == 0 or ssd.kind_of(block) != KIND_USER:
            continue
        for page in range(ssd.nand.pages_per_block):
            ppa = block * ssd.nand.pages_per_block + page
            read_oob(ssd.nand, ppa, raw, &oob, &status, CAUSE_MAP, ssd.now_ns)
            if status == PAGE_OK and oob.kind == KIND_USER and any(
                    first <= oob.lpa < first + n for first, n in ranges):
                found = (oob.seq, ppa)
                newest[oob.lpa] = max(newest.get(oob.lpa, found), found)
    return [ppa for _, ppa in newest.values()]
