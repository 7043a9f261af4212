# distutils: language = c++
"""LearnedFTL's mapping (S. Wang et al., LearnedFTL, HPCA 2024): TPFTL's cache, and models beside the directory that
locate an LPA without a read of its translation page.

A look-up of the host is answered by the cache, else by the model if its filter has the LPA's bit, else by the
translation page, which costs a second read before that of the data. A bit says that the model gives the map's PPA, so
everything that changes an entry clears its bit: a write, a trim, a move, and damage. Bits are set when all newer
entries of a page go to flash (``cleaned``), when a page without models is read (``learn_loaded``), and for runs that
the host has just written (``run_ends``).

*Groups.* A group is so many neighbouring translation pages that the pages of their LPAs fit a superblock. When it is
cleaned (placement.pyx), its pages move together, sorted by LPA, to consecutive VPPNs, and its models are trained
(``order_group``).

A clean checkpoint has the models, their filters, and the owners of superblocks. A recovery uses none of these and
begins without models: writes since the checkpoint would make bits stale. Pages that are read train models again.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from libcpp.algorithm cimport sort

from flashfs.parts.paged.entry_pages cimport EntryPages
from flashfs.parts.paged.demand_map cimport DemandMapping
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.extensions cimport Runs
from flashfs.engine.blocks.pool cimport CAUSE_GC, NONE, STREAM_WEAR
from flashfs.engine.device.wall_clock cimport wall_ns
from flashfs.parts.paged.tpftl_map cimport TpMap
from flashfs.ftl.learnedftl.groups cimport Groups
from flashfs.ftl.learnedftl.models cimport Models


cdef class RunModels(Runs):
    """Sequential initialisation, from runs of the host. While entries of moved pages wait to be proved, nothing is
    learned from runs; their translation pages are trained when they are written."""

    def __cinit__(self, LearnedMap map not None):
        self.map = map

    cdef int ends(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil:
        if not self.map.moving and not self.map.strays:
            self.map.models.learn_run(lpas, ppas, n)
        return 0


cdef class LearnedMap(TpMap):
    """As TpMap. ``always``: models are trained whenever a translation page is written, not only after cleaning;
    ``runs``: a run that is written in order may begin a model; ``groups``: the groups of translation pages that are
    cleaned together, or None; ``learn_ns``: ns of virtual time that training takes for each LPA, and sorting for each
    page of a group."""

    def __cinit__(self, Engine ssd not None, uint64_t cache_bytes, bint fixed=False, *, bint always=True,
                  bint runs=True, Groups groups=None, uint32_t learn_ns=0, **_):
        self.groups = groups
        self.learn_ns = learn_ns
        if groups is not None:
            self.places = <uint32_t*> malloc(groups.group_lpas * sizeof(uint32_t))
            if self.places == NULL:
                raise MemoryError
        self.always = always
        self.starts_runs = runs
        self.runs = RunModels(self) if runs else None
        self.now = <uint32_t*> malloc(self.per_page * sizeof(uint32_t))
        if self.now == NULL:
            raise MemoryError
        self.models = Models(self.gtd.n, self.per_page, ssd.nand.dies, ssd.nand.pages_per_block)

    def __dealloc__(self):
        free(self.now)
        free(self.places)

    cdef bint knows(self, uint32_t lpa, uint32_t* ppa) noexcept nogil:
        """Whether the model knows the PPA of the LPA. After damage, when a page may be mapped by several LPAs, it knows
        nothing: such entries are judged one by one."""
        return not self.strays and self.models.predict(lpa, ppa)

    # --- what the host asks

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """As TPFTL, but an LPA that its model knows waits for nothing. Making room for later ones may clean, and move
        what a model knew: that is looked up then."""
        cdef uint32_t i, ppa = NONE
        n = TpMap.prepare(self, lpas, n, writing, ready)
        for i in range(0 if writing else n):
            if not self.knows(lpas[i], &ppa) and not self.cached(lpas[i], &ppa):
                self.ssd.map_ns = ready[i]
                self.look(self.page_of(lpas[i]))
                ready[i] = self.ssd.map_ns
        return n

    cdef bint bring(self, const uint32_t* lpas, uint32_t i, uint32_t n, bint writing,
                    int64_t* ready) except -1 nogil:
        cdef uint32_t page = self.page_of(lpas[i]), ppa = NONE
        cdef uint64_t hits = self.hits, loads = self.loads
        if self.knows(lpas[i], &ppa) and not self.cached(lpas[i], &ppa):
            if not writing:
                self.lookups += 1
                self.reads_modelled += 1
                return True
            self.ssd.map_ns = ready[i]
            if self.make_room(page) == 0:
                return False
            ready[i] = self.ssd.map_ns
            if self.knows(lpas[i], &ppa):   # making room may have moved the page
                return self.bring_known(lpas[i], ppa)
        if not TpMap.bring(self, lpas, i, n, writing, ready):
            return False
        self.learn_loaded(page)
        return True if writing else self.count_read(lpas[i], hits, loads)

    cdef bint bring_known(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Cache the entry from the model, for a write: the old PPA is known without a read. There must be room."""
        cdef uint32_t page = self.page_of(lpa)
        self.lookups += 1
        self.writes_modelled += 1
        self.cmt.insert(page, lpa - page * self.per_page, ppa, False, True)
        return True

    cdef int count_read(self, uint32_t lpa, uint64_t hits, uint64_t loads) except -1 nogil:
        """Count a look-up of a page that the host reads; returns 1. One that bypassed the cache, because nothing could
        be written, read a translation page too."""
        cdef uint32_t ppa = NONE
        if self.hits == hits and (self.loads != loads or not self.cached(lpa, &ppa)):
            self.reads_doubled += 1
        else:
            self.reads_cached += 1
        return 1

    cdef int mark_known(self, uint32_t page) noexcept nogil:
        """LPAs that a model knows need no entry in the cache."""
        TpMap.mark_known(self, page)
        return 0 if self.strays else self.models.mark(page, self.marked)

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if not self.cached(lpas[i], ppas + i) and not self.knows(lpas[i], ppas + i):
                self.peek(lpas + i, 1, ppas + i)
        return 0

    cdef uint32_t after_miss(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) except? 0xFFFFFFFE nogil:
        """The page that a model predicted has another LPA in its OOB: drop the model's bit, and look the LPA up in the
        map."""
        cdef uint32_t known = NONE
        if oob == NULL or self.cached(lpa, &known) or not self.knows(lpa, &known) or known != ppa:
            return NONE
        self.models.forget(lpa)
        self.mispredictions += 1
        self.reads_modelled -= 1
        self.reads_doubled += 1
        self.peek(&lpa, 1, &known)
        return known if known != ppa else NONE

    # --- what changes an entry clears its bit

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            self.models.forget(lpas[i])
        return TpMap.bind(self, lpas, n, ppa, choice, olds)

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            self.models.forget(lpa + i)
        return DemandMapping.unbind(self, lpa, n, olds)

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        self.moving = True
        if (self.groups is not None and not self.ordering
                and self.ssd.pool.stream[news[0] // self.groups.pages_per_block] != STREAM_WEAR):
            self.groups.moved(lpas, olds, n)
        return DemandMapping.moved(self, lpas, olds, news, n)

    cdef bint recache(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Called for each entry that a move, a trim or damage changes, before it becomes pending."""
        self.models.forget(lpa)
        return TpMap.recache(self, lpa, ppa)

    cdef int disown(self, uint64_t at) except -1 nogil:
        self.models.forget(self.pending.lpa[at])
        return EntryPages.disown(self, at)

    cdef int rebuild(self, uint32_t page) except -1 nogil:
        self.models.forget_page(page)
        return EntryPages.rebuild(self, page)

    def save_clean(self):
        """After damage models are not trusted, and a checkpoint has none."""
        if self.strays:
            return {}
        return {"models": self.models.save(), **({} if self.groups is None else {"owners": self.groups.save()})}

    def load_clean(self, sections):
        """The options may differ from those at the unmount."""
        if "models" in sections and not self.strays:
            self.models.load(sections["models"], self.ssd.lpas, self.ssd.nand.blocks * self.ssd.nand.pages_per_block)
        if "owners" in sections and self.groups is not None:
            self.groups.load(bytes(sections["owners"]))
        self.lpas_restored = self.models.exact_n

    def reset(self):
        self.models.forget_all()
        self.lpas_restored = 0
        self.moving = False
        if self.groups is not None:
            self.groups.reset()
        super().reset()

    # --- where models are learned

    cdef int cleaned(self, uint32_t page) except -1 nogil:
        """All newer entries have just gone to the page: ``image`` has the map's PPAs of its LPAs."""
        TpMap.cleaned(self, page)
        if (self.always or self.moving) and not self.strays and self.image_of == page:
            self.train(page, self.image, self.entries_of(page))
        return 0

    cdef int train(self, uint32_t page, const uint32_t* ppas, uint32_t n) noexcept nogil:
        """Train the models of a translation page; the map's clock goes on by what that takes."""
        cdef int64_t began = wall_ns()
        self.models.train(page, ppas, n)
        self.train_ns += wall_ns() - began
        self.ssd.map_ns += <int64_t> self.learn_ns * n
        return 0

    cdef int learn_loaded(self, uint32_t page) except -1 nogil:
        """Train the models of a translation page that was just read for the host, unless they were trained since the
        mount. After a recovery the models are empty, and this restores them. Dirty entries of the cache are newer than
        the page; pending ones may still turn out to belong to another LPA, and get no bit."""
        cdef uint32_t first = page * self.per_page, n = self.entries_of(page)
        cdef uint64_t at
        if self.image_of != page or self.image_ppa == NONE or self.strays or not self.models.is_untried(page):
            return 0
        if self.image_ppa != self.gtd.known(page):
            return 0
        memcpy(self.now, self.image, n * sizeof(uint32_t))
        self.dirty_of(first, n, self.now)
        at = self.pending.first_from(first)
        while at < self.pending.n and self.pending.lpa[at] < first + n:
            self.now[self.pending.lpa[at] - first] = NONE
            at += 1
        self.train(page, self.now, n)
        self.pages_retrained += 1
        return 0

    cdef int moves_end(self) except -1 nogil:
        DemandMapping.moves_end(self)
        self.moving = False
        return 0

    # --- groups

    cdef uint32_t unknown_of(self, uint32_t group) noexcept nogil:
        """How many pages of the group no model knows, at most: those written since it was last looked at, where one
        that was written twice counts twice, but no more than have no bit."""
        cdef uint32_t pages = self.groups.group_lpas // self.per_page, first = group * pages
        cdef uint32_t end = min(self.gtd.n, first + pages)
        cdef uint64_t lpas = min(<uint64_t> end * self.per_page, <uint64_t> self.ssd.lpas)
        lpas -= <uint64_t> first * self.per_page + self.models.known_in(first, end)
        return <uint32_t> min(<uint64_t> self.groups.changed[group], lpas)

    cdef uint32_t most_unknown(self) noexcept nogil:
        """The group with the most pages that no model knows; NONE if none has ``least`` of them."""
        cdef uint32_t group, n, most = 0, best = NONE
        for group in range(self.groups.n):
            if self.groups.changed[group] < max(self.groups.least, most + 1):
                continue
            n = self.unknown_of(group)
            if n >= self.groups.least and n > most:
                best, most = group, n
        return best

    cdef uint32_t find_group(self, uint32_t group, uint32_t* unknown) except? 0xFFFFFFFE nogil:
        """Put the PPAs of a group's pages into ``places``, ascending, and train its models; returns how many pages
        there are, and adds to ``unknown`` those that no model knows after training. Reads each of its translation pages
        once. 0 after damage that let several LPAs map to a page: then no entry is certain."""
        cdef uint32_t page, first, i, n = 0, known = NONE
        cdef uint32_t pages = self.groups.group_lpas // self.per_page
        cdef int64_t began
        self.groups_looked_at += 1
        self.ssd.map_ns = self.ssd.now_ns
        for page in range(group * pages, min(self.gtd.n, (group + 1) * pages)):
            first = page * self.per_page
            self.find_page(page)
            if self.strays:
                return 0
            self.train(page, self.now, self.entries_of(page))
            for i in range(self.entries_of(page)):
                if self.now[i] == NONE:
                    continue
                self.places[n] = self.now[i]
                n += 1
                unknown[0] += not self.knows(first + i, &known)
        began = wall_ns()
        sort(self.places, self.places + n)
        self.sort_ns += wall_ns() - began
        if self.learn_ns:                   # what moves is known when all was read, trained and sorted
            self.ssd.now_ns = self.ssd.map_ns + <int64_t> self.learn_ns * n
        return n

    cdef int find_page(self, uint32_t page) except -1 nogil:
        """Put the map's PPAs of all LPAs of the page into ``now``: as ``peek`` of each, but goes through the cache
        once. Reads the translation page only if some entry is in neither the cache nor the pending entries."""
        cdef uint32_t first = page * self.per_page, n = self.entries_of(page), i, lpa
        cdef uint64_t at
        if self.pending.moved_n or self.strays:
            for i in range(n):
                lpa = first + i
                self.peek(&lpa, 1, self.now + i)
            return 0
        self.cmt.list_cached(page, self.marked, NULL)
        at = self.pending.first_from(first)
        while at < self.pending.n and self.pending.lpa[at] < first + n:
            i = self.pending.lpa[at] - first
            self.marked[i >> 6] |= <uint64_t> 1 << (i & 63)
            at += 1
        i = 0
        while i < n and self.is_marked(i):
            i += 1
        if i < n:
            self.look(page)                 # this may rebuild the page, and add pending entries
            memcpy(self.now, self.looked, n * sizeof(uint32_t))
        at = self.pending.first_from(first)
        while at < self.pending.n and self.pending.lpa[at] < first + n:
            self.now[self.pending.lpa[at] - first] = self.pending.ppa[at]
            at += 1
        return self.cmt.list_cached(page, NULL, self.now)

    cdef int order_group(self, uint32_t n, int stream) except -1 nogil:
        """Move a group's pages, listed in ``places``, as one run in the order of their LPAs; entries and models are
        updated after the move. There must be room for the pages."""
        self.ordering = True
        try:
            self.ssd.relocate_pages(self.places, n, stream, CAUSE_GC)
        finally:
            self.ordering = False
        self.groups_ordered += 1
        self.group_moves += n
        return 0

    # --- the ledger, and for people

    def tables(self):
        lists = 4 * self.per_page
        tables = {**self.models.sizes(), "training": (lists, lists), **super().tables()}
        if self.groups is not None:
            lists = self.groups.sizes() + 4 * self.groups.group_lpas
            tables["groups"] = (lists, lists)
        return tables

    def figures(self):
        reads = self.reads_cached + self.reads_modelled + self.reads_doubled
        shares = {
            name: round(float(n) / reads, 6) if reads else None
            for name, n in (("cached", self.reads_cached), ("modelled", self.reads_modelled),
                            ("doubled", self.reads_doubled))
        }
        return {
            **super().figures(),
            "misses": self.lookups - self.hits - self.reads_modelled - self.writes_modelled,
            "reads_cached": self.reads_cached,
            "reads_modelled": self.reads_modelled,
            "reads_doubled": self.reads_doubled,
            **{f"share_{name}": share for name, share in shares.items()},
            "writes_modelled": self.writes_modelled,
            "mispredictions": self.mispredictions,
            "models_trained": self.models.trained,
            "models_taken": self.models.taken,
            "models_of_runs": self.models.runs,
            "models_extended": self.models.extended,
            "lpas_modelled": self.models.exact_n,
            "lpas_restored": self.lpas_restored,
            "pages_retrained": self.pages_retrained,
            "groups": 0 if self.groups is None else self.groups.n,
            "groups_looked_at": self.groups_looked_at,
            "groups_ordered": self.groups_ordered,
            "group_moves": self.group_moves,
            "superblocks_of_groups": 0 if self.groups is None else self.groups.opened,
            "pages_borrowed": 0 if self.groups is None else self.groups.borrowed_n,
            "superblocks_lent": 0 if self.groups is None else self.groups.settled,
        }

    def forget_counts(self):
        self.reads_cached = self.reads_modelled = self.reads_doubled = 0
        self.writes_modelled = self.mispredictions = 0
        self.groups_looked_at = self.groups_ordered = self.group_moves = self.pages_retrained = 0
        if self.groups is not None:
            self.groups.forget_counts()
        self.models.forget_counts()
        super().forget_counts()

    def cache_facts(self):
        return {**super().cache_facts(), "modelled": self.models.exact_n}

    def explain(self, uint32_t lpa):
        cdef uint32_t ppa = NONE
        return {**super().explain(lpa), "modelled": ppa if self.knows(lpa, &ppa) else None}

    def check(self):
        return super().check() + self.models.check()

    def problems_in_flash(self):
        return super().problems_in_flash() + self.stale()

    def stale(self):
        """A line for each LPA whose model predicts another page than the map has. Reads every translation page."""
        cdef uint32_t lpa, said = NONE, ppa = NONE
        problems = []
        for lpa in range(self.ssd.lpas):
            if self.knows(lpa, &said):
                self.peek(&lpa, 1, &ppa)
                if ppa != said:
                    problems.append(f"LPA {lpa}: its model says PPA {said}, the map {ppa}")
        return problems
