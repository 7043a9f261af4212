# distutils: language = c++
"""Mappings with parts in translation pages, whatever those hold.

They share the pages and their ownership, the count of mapped LPAs that a checkpoint is compared with, writing back
between requests, the start of a recovery, and the rebuilding of a page that cannot be read. It is rebuilt from the live
pages: validity says which pages live, their OOBs which LPAs they have. During a recovery that is not known yet; an
unreadable page is an error then, and the recovery starts over without a checkpoint.

A scheme adds the directory (which translation page is where) and five methods about its pages. demand_map.pyx does so
for entries of 4 bytes; a scheme whose pages hold something else is based on this one.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libcpp.algorithm cimport sort
from libcpp.vector cimport vector

from flashfs.engine.contract.engine cimport IN_TRIM
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.blocks.pool cimport CAUSE_MAP, KIND_TRANSLATION, KIND_USER, NONE, Oob, read_oob
from flashfs.parts.paged.part_pages cimport Directory, TranslationPages, Witness, newest_pages, take_witnesses

from nandimg._nand cimport PAGE_OK

from flashfs.errors import MapLostError

cdef enum:
    BATCH = 1 << 20              # LPAs sorted at a time in the search for a stray page, ...
    ASKED = 256                  # ... and looked up together


cdef class PageDirectory(Directory):
    """Where each translation page of a PagedMapping is."""

    cdef uint32_t id_at(self, uint32_t ppa) noexcept nogil:
        """The page whose newest version is there, or NONE; searches all of them."""
        return NONE

    cdef uint32_t count(self) noexcept nogil:
        """How many pages there are in flash."""
        return 0

    def ppas(self):
        """PPAs of all translation pages."""
        return []

    cdef int lost(self, uint32_t ppa) except -1 nogil:
        """If the newest version of a page is at ``ppa``, has the mapping rebuild that page (``page_gone``); else does
        nothing. Searches all pages. MapLostError if the mapping is ``strict``. May read."""
        cdef uint32_t id = self.id_at(ppa)
        return self.owner.page_gone(id) if id != NONE else 0


cdef class PagedMapping(Mapping):
    """The base of schemes with translation pages. Call ``own_pages`` before anything else."""

    cdef int own_pages(self, TranslationPages store, PageDirectory directory) except -1:
        """Sets the store of the translation pages, and the directory, which must be the store's, too."""
        self.directory = directory
        directory.owner = self
        self.store = store
        self.exact = True
        self.nobody = NONE
        self.ssd.own(KIND_TRANSLATION, store)
        return 0

    # --- a scheme must implement

    cdef int lpas_of(self, uint32_t id, uint32_t* first, uint32_t* n) noexcept nogil:
        """The LPAs of a page: ``n`` from ``first`` on."""
        return 0

    cdef int remade(self, uint32_t id, uint32_t* lpas, uint32_t* ppas, uint32_t n) except -1 nogil:
        """A page cannot be read. According to the live pages, these ``n`` of its LPAs, ascending, are at ``ppas``; the
        others have no page. The mapping takes that, except where it has newer entries, and drops the page from the
        directory. The arrays may be overwritten."""
        with gil:
            raise NotImplementedError

    cdef bint is_sound(self, uint32_t id) except -1:
        """Whether a page that the directory names can be read, and is what it should be."""
        raise NotImplementedError

    cdef uint64_t dirty(self) noexcept nogil:
        """How much is newer than the translation pages, in a unit of the scheme's choice."""
        return 0

    cdef bint write_next(self) except -1 nogil:
        """Write back one translation page, the one that should go next; False if none is dirty. It may clean."""
        return False

    # --- pages

    cdef int write_down(self, uint64_t least, uint32_t pages) except -1 nogil:
        """Between requests: write back until no more than ``least`` is dirty, ``pages`` translation pages at most."""
        while self.dirty() > least and pages and self.write_next():
            pages -= 1
        return 0

    cdef int page_gone(self, uint32_t id) except -1 nogil:
        """The page cannot be read, and its block is about to be given up."""
        return self.rebuild(id)

    cdef int rebuild(self, uint32_t id) except -1 nogil:
        """Rebuilds a page that cannot be read; MapLostError if ``strict``. If there is an ownerless live page, all LPAs
        without a page go there, and give EIO: data that may be lost must not read as never written. Ownerless is a page
        that does not say whose it is, one of two that name the same LPA, or one that names an LPA that holds nothing.
        """
        cdef uint32_t first = 0, n = 0, i, nobody = NONE, kept = 0, found = 0
        cdef uint32_t* lists
        cdef Witness* seen
        self.lpas_of(id, &first, &n)
        if self.strict:
            with gil:
                raise MapLostError(self.fault_in(id))
        seen = <Witness*> calloc(n, sizeof(Witness))
        lists = <uint32_t*> malloc(<uint64_t> n * 8)
        try:
            if seen == NULL or lists == NULL:
                with gil:
                    raise MemoryError
            self.rebuilds += 1
            self.exact = False              # the count of the page's LPAs is lost
            with gil:
                self.ssd.alarm(f"{self.fault_in(id)}: it is made again; LPAs that no live page names are holes now"
                               + (", and trimmed pages may be back" if self.brings_back() else ""))
            take_witnesses(self.ssd, first, n, seen, &nobody)
            for i in range(n):
                found += seen[i].next_seq != 0
            if found < n and nobody == NONE and not self.ssd.validity.late and self.ssd.stopped != IN_TRIM:
                with gil:
                    nobody = self.stray(first, n)
            if nobody == NONE:
                nobody = self.nobody        # it may be dead by now, but its owner is still not known
            self.nobody = nobody
            for i in range(n):
                if seen[i].next_seq or nobody != NONE:
                    lists[kept] = first + i
                    lists[n + kept] = seen[i].ppa if seen[i].next_seq else nobody
                    kept += 1
            self.remade(id, lists, lists + n, kept)
        finally:
            free(seen)
            free(lists)
        return 0

    cdef int drop_strays(self, const uint32_t* lpas, uint32_t first, uint32_t n, uint32_t* olds) except -1 nogil:
        """``n`` LPAs have left ``olds``: those of ``lpas``, or, if that is NULL, from ``first`` on. After a rebuild
        many LPAs may name one ownerless page (``rebuild``). It dies once, with the first of them; a later page at that
        PPA is not theirs. So an LPA that has strayed gets NONE."""
        cdef uint32_t i, k
        for i in range(n):
            if olds[i] == NONE:
                continue
            if self.strayed(lpas[i] if lpas != NULL else first + i, olds[i]):
                olds[i] = NONE
            for k in range(i + 1, n if olds[i] != NONE else 0):
                if olds[k] == olds[i]:
                    olds[k] = NONE
        return 0

    cdef bint strayed(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Whether the page is dead, or not a user page, or says that it is another LPA's."""
        cdef uint8_t status = 0
        cdef uint8_t[4096] raw
        cdef Oob oob
        cdef uint32_t block = ppa // self.ssd.nand.pages_per_block
        if not self.ssd.validity.is_live(ppa) or self.ssd.kind_of(block) != KIND_USER:
            return True
        self.ssd.map_ns = read_oob(self.ssd.nand, ppa, raw, &oob, &status, CAUSE_MAP, self.ssd.map_ns)
        return status == PAGE_OK and oob.kind == KIND_USER and oob.lpa < self.ssd.lpas and oob.lpa != lpa

    cdef uint32_t stray(self, uint32_t first, uint32_t n) except? 0xFFFFFFFE:
        """A live page that names an LPA that holds nothing according to the other translation pages, or NONE. The
        ``n`` LPAs from ``first`` on cannot be looked up, nor can those of other unreadable pages."""
        cdef uint32_t block, page, ppa, found = NONE
        cdef uint8_t status = 0
        cdef uint8_t[4096] raw
        cdef Oob oob
        cdef vector[uint64_t] named
        for block in range(self.ssd.nand.blocks):
            if self.ssd.validity.count(block) == 0 or self.ssd.kind_of(block) != KIND_USER:
                continue
            for page in range(self.ssd.nand.pages_per_block):
                ppa = block * self.ssd.nand.pages_per_block + page
                if not self.ssd.validity.is_live(ppa):
                    continue
                read_oob(self.ssd.nand, ppa, raw, &oob, &status, CAUSE_MAP, self.ssd.now_ns)
                if status == PAGE_OK and oob.kind == KIND_USER and oob.lpa < self.ssd.lpas and oob.lpa - first >= n:
                    named.push_back(<uint64_t> oob.lpa << 32 | ppa)
            if named.size() >= BATCH:
                found = self.unmapped_of(named)
                named.clear()
            if found != NONE:
                return found
        return self.unmapped_of(named)

    cdef uint32_t unmapped_of(self, vector[uint64_t]& named) except? 0xFFFFFFFE:
        """The PPA of one of these (LPA, PPA) whose LPA holds nothing, or NONE."""
        cdef uint32_t[ASKED] lpas
        cdef uint32_t[ASKED] ppas
        cdef uint64_t at = 0, i, n
        cdef bint before = self.strict
        sort(named.begin(), named.end())
        self.strict = True                  # another unreadable page is skipped, and is not rebuilt here
        try:
            while at < named.size():
                n = min(named.size() - at, <uint64_t> ASKED)
                for i in range(n):
                    lpas[i] = <uint32_t> (named[at + i] >> 32)
                self.asked(lpas, <uint32_t> n, ppas)
                for i in range(n):
                    if ppas[i] == NONE:
                        return <uint32_t> named[at + i]
                at += n
            return NONE
        finally:
            self.strict = before

    cdef int asked(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1:
        """As ``peek``; if some LPAs cannot be looked up, one by one, and those get 0, as if they were mapped."""
        cdef uint32_t i
        try:
            self.peek(lpas, n, ppas)
        except MapLostError:
            for i in range(n):
                ppas[i] = 0
                try:
                    if n > 1:
                        self.peek(lpas + i, 1, ppas + i)
                except MapLostError:
                    pass
        return 0

    def brings_back(self):
        """Whether a rebuilt page may name trimmed pages: a late store may call them live. False in a scheme whose
        deaths are only reported late, if DRAM knows a trim's death, or what hides it, until the page has it."""
        return self.ssd.validity.late

    cdef str fault_in(self, uint32_t id):
        """Text that names a page that could not be read."""
        cdef uint32_t first = 0, n = 0
        self.lpas_of(id, &first, &n)
        return (f"the translation page of LPAs {first} to {first + n - 1} cannot be read, or is not what it should be")

    def unsound(self):
        """Ids of pages that cannot be read, or are not what they should be."""
        cdef uint32_t id
        return [id for id in range(self.store.ids) if self.directory.ppa_of(id) != NONE and not self.is_sound(id)]

    def problems_in_flash(self):
        return [self.fault_in(id) for id in self.unsound()]

    def pages_of_lost(self):
        cdef uint32_t id, first = 0, n = 0
        ranges = []
        for id in [] if self.strict else self.unsound():
            self.lpas_of(id, &first, &n)
            ranges.append((first, n))
        if not ranges:
            return []
        self.ssd.alarm("translation pages cannot be read, nor which pages live: the newest of each of their LPAs "
                       "counts, so trimmed pages may be back")
        return newest_pages(self.ssd, ranges)

    def translation_pages(self):
        return self.directory.ppas() + self.store.kept_ppas()

    # --- checkpoints and recoveries

    cdef int64_t pages_named(self) except -2 nogil:
        return self.mapped_n + self.directory.count() if self.lpas_named() >= 0 else -1

    cdef int64_t lpas_named(self) noexcept nogil:
        """LPAs that are mapped; -1 if unknown: some were lost to damage, or the store is late, so that the live pages
        were more than the mapped ones when the count began."""
        return self.mapped_n if self.exact and not self.ssd.validity.late else -1

    cdef int checkpoint_begins(self) except -1:
        return self.store.checkpoint_begins()

    cdef int checkpoint_ended(self, bint whole) except -1:
        return self.store.checkpoint_ended(whole)

    def reset(self):
        """Resets the base's part of the mapping."""
        self.store.reset()
        self.exact = self.recovering = self.strict = True
        self.nobody = NONE

    def recovery_ends(self):
        self.recovering = False

    def rebuild_allowed(self):
        self.strict = False

    def device_ready(self):
        """Begins the count of mapped LPAs, from the live pages: looking up each LPA would read every page."""
        cdef uint32_t block
        self.mapped_n = -<int64_t> (self.directory.count() + len(self.store.kept_ppas()))
        for block in range(self.ssd.nand.blocks):
            self.mapped_n += self.ssd.validity.count(block)
        self.mapped_n -= self.ssd.validity.pages_named()
        self.store.count_all()
        self.strict = self.recovering = False

    cdef str misplaced(self, bint whole):
        """None, or which translation page is not live. Validity in flash is read for that only if ``whole``."""
        for ppa in self.translation_pages() if whole or not self.ssd.validity.in_flash else ():
            if not self.ssd.validity.is_live(ppa):
                return f"PPA {ppa}: a translation page that is not live"
        return None

    # --- for users

    def figures(self):
        return {
            "translation_pages": self.directory.count(),
            "translation_reads": self.store.reads,
            "translation_programs": self.store.programs,
            "rebuilds": self.rebuilds,
        }

    def forget_counts(self):
        self.rebuilds = 0
        self.store.forget_counts()
