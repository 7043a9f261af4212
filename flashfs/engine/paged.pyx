# distutils: language = c++
"""Mappings of which parts lie in translation pages, whatever those hold.

What all of them share: the pages and who owns them, the count of mapped LPAs that a checkpoint is held against, writing
back between requests, what a recovery starts from, and what becomes of a page that cannot be read. It is made again
from what the live pages say: validity knows which pages live, their OOBs whose they are. While a recovery is under way
nobody knows that; a page that cannot be read is an error then, and the recovery starts over without a checkpoint.

A scheme brings the directory (which translation page is where) and five answers about its pages. demand.pyx is such a
scheme for entries of 4 bytes; a scheme whose pages hold something else stands on this one.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from flashfs.engine.parts cimport Mapping
from flashfs.engine.pool cimport KIND_TRANSLATION, NONE
from flashfs.engine.translation cimport Directory, TranslationPages, Witness, newest_pages, take_witnesses

from flashfs.errors import MapLostError


cdef class PageDirectory(Directory):
    """Where each translation page of a PagedMapping is."""

    cdef uint32_t id_at(self, uint32_t ppa) noexcept nogil:
        """The page whose newest version is there, or NONE; a look at all of them."""
        return NONE

    cdef uint32_t count(self) noexcept nogil:
        """How many pages there are in flash."""
        return 0

    def ppas(self):
        """Where they are."""
        return []

    cdef int lost(self, uint32_t ppa) except -1 nogil:
        cdef uint32_t id = self.id_at(ppa)
        return self.owner.page_gone(id) if id != NONE else 0


cdef class PagedMapping(Mapping):
    """The base of schemes with translation pages. ``own_pages`` comes before anything else."""

    cdef int own_pages(self, TranslationPages store, PageDirectory directory) except -1:
        """Its translation pages are those of ``store``; ``directory``, also the store's, says where they are."""
        self.directory = directory
        directory.owner = self
        self.store = store
        self.exact = True
        self.ssd.own(KIND_TRANSLATION, store)
        return 0

    # --- what a scheme says of its pages

    cdef int lpas_of(self, uint32_t id, uint32_t* first, uint32_t* n) noexcept nogil:
        """The LPAs that a page is about: ``n`` from ``first`` on."""
        return 0

    cdef int remade(self, uint32_t id, uint32_t* lpas, uint32_t* ppas, uint32_t n) except -1 nogil:
        """A page cannot be read, and the live pages say that these ``n`` of its LPAs, ascending, are there; of the
        others there is no page. From now on the mapping says so, but where it knows something newer, and that page is
        not in the directory any more. The arrays may be written over."""
        with gil:
            raise NotImplementedError

    cdef bint is_sound(self, uint32_t id) except -1:
        """Whether a page that the directory names can be read, and is what it should be."""
        raise NotImplementedError

    cdef uint64_t dirty(self) noexcept nogil:
        """How much is newer than the translation pages, in a measure of the scheme's own."""
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
        """The page cannot be read where it is, and its block is about to be given up."""
        return self.rebuild(id)

    cdef int rebuild(self, uint32_t id) except -1 nogil:
        """A page that cannot be read is made again. MapLostError if that is not to be. If there is a live page that
        does not say whose it is, all LPAs of which no page is found go there, and give EIO: what may be lost must not
        read as if it had never been."""
        cdef uint32_t first = 0, n = 0, i, nobody = NONE, kept = 0
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
            self.exact = False              # what the page named was not counted
            with gil:
                self.ssd.alarm(f"{self.fault_in(id)}: it is made again; LPAs that no live page names are holes now"
                               + (", and trimmed pages may be back" if self.brings_back() else ""))
            take_witnesses(self.ssd, first, n, seen, &nobody)
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

    def brings_back(self):
        """Whether a page that is made again may name trimmed pages: a late store may call them live. Not so if deaths
        are only told late, and a trim's, or what hides it, is known in DRAM until the page has it."""
        return self.ssd.validity.late

    cdef str fault_in(self, uint32_t id):
        """What is wrong with a page that could not be read."""
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
        """LPAs that are mapped; -1 if nobody knows, for some were lost to damage, or it was not all of them that lived
        when the count began (a validity store may be late)."""
        return self.mapped_n if self.exact and not self.ssd.validity.late else -1

    cdef int checkpoint_begins(self) except -1:
        return self.store.checkpoint_begins()

    cdef int checkpoint_ended(self, bint whole) except -1:
        return self.store.checkpoint_ended(whole)

    def reset(self):
        """The base's part of it."""
        self.store.reset()
        self.exact = self.recovering = self.strict = True

    def recovery_ends(self):
        self.recovering = False

    def manages(self):
        self.strict = False

    def opens(self):
        """From here on the LPAs that are mapped are counted: to ask for each would be to read every page."""
        cdef uint32_t block
        self.mapped_n = -<int64_t> (self.directory.count() + len(self.store.kept_ppas()))
        for block in range(self.ssd.nand.blocks):
            self.mapped_n += self.ssd.validity.count(block)
        self.mapped_n -= self.ssd.validity.pages_named()
        self.strict = self.recovering = False

    cdef str misplaced(self, bint whole):
        """None, or which translation page is not live. Unless ``whole``, no validity in flash is read for that."""
        for ppa in self.translation_pages() if whole or not self.ssd.validity.in_flash else ():
            if not self.ssd.validity.is_live(ppa):
                return f"PPA {ppa}: a translation page that is not live"
        return None

    # --- for people

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
