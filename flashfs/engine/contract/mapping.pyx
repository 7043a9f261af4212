"""Where is LPA x? The default is PageTable (flashfs.parts.defaults.defaults)."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.contract.explained cimport Explained
from flashfs.engine.contract.owner cimport FOREIGN, LIVE, SUPERSEDED
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.contract.validity cimport Validity


cdef class Mapping(Explained):
    """Where is LPA x? The engine programs a page first and binds it after, so a mapping never points at nothing.

    Whatever a mapping has to read of itself in flash, it reads in ``prepare``, which may also write, and so clean: no
    PPA is in anybody's hands then. What comes behind it, ``lookup`` and ``bind``, is about LPAs that are prepared. A
    read of the map begins at ``ssd.map_ns`` and puts its end there; who begins something sets that clock.

    *Shared pages.* A mapping that ``shares_pages`` may have several LPAs at one page, whose OOB names one of them, or
    one that has left it since. The page's name, its LPA and sequence number, never changes, however often it is moved.
    - ``accepts`` says whether such a page is what an LPA is to read;
    - ``needs`` whether anybody but that LPA is there: so cleaning and recovery know whether the page lives;
    - ``bind`` and ``unbind`` put NONE into ``olds`` for a page that others still use: it does not die. That an LPA was
      trimmed all the same, ``unbind`` says by returning more than 0;
    - ``moved`` is told of each page once, with the LPA in its OOB, and re-points all who are at ``olds[i]``;
    - ``recovered_copy`` is asked in a recovery where such a page lay, before anything else about it;
    - ``pages_named``, ``verify`` and fsck count pages, not LPAs.

    A mapping that keeps parts of itself in flash has translation pages (part_pages.pyx), whose owner a recovery asks
    and tells before the mapping."""

    def __cinit__(self, *_, **__):
        self.fence_every = <uint64_t> -1

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """The host is about to read, or is ``writing``, these LPAs. Returns how many of them, from the first on, are at
        hand until the next ``prepare``, 1 at least: ``lookup`` reads nothing for those, and ``bind`` nothing that may
        write. ``ready`` says when each may begin, and
        then when its place is known: independent reads of the map run side by side, dependent ones one by one."""
        return n

    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil:
        """The host is about to trim these LPAs; as ``prepare``."""
        return n

    cdef uint32_t unmapped_from(self, uint32_t lpa, uint32_t n) noexcept nogil:
        """How many of ``n`` LPAs from ``lpa`` on are known, without a look at each, not to be mapped."""
        return 0

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """PPAs of ``n`` LPAs for the host; NONE for one that is not mapped. A PPA may be a guess: the reader checks the
        OOB."""
        with gil:
            raise NotImplementedError

    cdef int peek(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """As ``lookup``, for whoever is not the host (is it mapped? a dump): it counts nowhere and changes no cache."""
        return self.lookup(lpas, n, ppas)

    cdef bint accepts(self, uint32_t lpa, uint32_t ppa, uint32_t said) except -1 nogil:
        """Whether the page read at ``ppa``, whose OOB says it is LPA ``said``'s, is what ``lpa`` is to read. A page
        that several LPAs share says only one of them."""
        return said == lpa

    cdef uint32_t after_miss(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) except? 0xFFFFFFFE nogil:
        """Where to look when ``ppa`` turned out to hold another LPA; NONE when there is nowhere left. ``oob`` is what
        was read there, the engine's bytes first, or NULL if the page cannot be read."""
        return NONE

    cdef int expect(self, uint32_t lpa) noexcept nogil:
        """A page of the host went into the write buffer, and will be bound before long: its entry may be fetched into
        the processor's cache. A hint, which changes nothing."""
        return 0

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        """The host's pages ``lpas`` lie at ``ppa``, ``ppa + 1``, ... now; ``choice`` is what placement put into the
        extent. ``olds`` gets where exactly each lay before (NONE if nowhere): those pages die."""
        with gil:
            raise NotImplementedError

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if lpas[i] < self.ssd.lpas and self.has(lpas[i], ppas[i]):
                answers[i] = LIVE
            else:                          # where validity is late, a page that nobody names is nothing unusual
                answers[i] = SUPERSEDED if self.ssd.validity.late and lpas[i] < self.ssd.lpas else FOREIGN
        return 0

    cdef int run_ends(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """These pages were written together, by the host or by cleaning, and are bound already, extent by extent: here
        is the whole run in its order, over however many blocks placement striped it. Told to a mapping of
        ``whole_runs``. Where cleaning came between two extents, the run begins behind it."""
        return 0

    cdef int moves_end(self) except -1 nogil:
        """Cleaning is through with a block, and all is consistent: what moves have left to do, such as writing
        translation pages. It may not clean."""
        return 0

    cdef int dropped(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """Cleaning left these pages to die with their block, because ``confirm`` called them SUPERSEDED; NONE is
        skipped. They will be other LPAs' pages soon."""
        return 0

    cdef bint notice(self) except -1 nogil:
        """Nothing seems to be dead, and cleaning needs space: find out which pages were superseded, where validity is
        late, and let go of those that are only kept until a sync. Whether there were any."""
        return False

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        """``n`` LPAs from ``lpa`` on are trimmed; ``olds`` as in ``bind``. Returns more than 0 if there were some that
        were mapped though nobody can say where any more: that they are trimmed has to be on record too."""
        with gil:
            raise NotImplementedError

    cdef uint32_t locate(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """Where exactly ``lpa`` lies, or NONE; a scheme whose lookup guesses reads what it must to be sure. As ``peek``
        it counts nowhere."""
        cdef uint32_t ppa = NONE
        self.peek(&lpa, 1, &ppa)
        return ppa

    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """The LPA that lies at ``ppa``, or NONE: asked when that page cannot be read, so the answer may take a look at
        every LPA."""
        cdef uint32_t lpa
        for lpa in range(self.ssd.lpas):
            if self.locate(lpa) == ppa:
                return lpa
        return NONE

    cdef uint32_t remap_room(self, uint32_t target, uint32_t source, uint32_t n,
                             bint move) except? 0xFFFFFFFF nogil:
        """A mapping that ``remaps``: of ``n`` LPAs from ``target`` on, each of which is to be pointed at the page of
        the one as far behind ``source``, how many can be, from the first on, by one ``remap_run``; 0 if the first has
        to be written. All sources are mapped, and in flash. It makes room, so it may clean and sync."""
        return 0

    cdef int remap_run(self, uint32_t target, uint32_t source, uint32_t n, uint64_t seq, bint move,
                       uint32_t* olds) except -1 nogil:
        """Point them there: on record, under ``seq``, when this returns. With ``move`` the sources hold nothing then.
        ``olds`` as in ``bind``, of the targets. What it stores begins at ``ssd.map_ns``, which is its end then."""
        with gil:
            raise NotImplementedError

    cdef bint sift(self, uint32_t lpa, const uint8_t* page, uint64_t word, int64_t* t_ns) except -1 nogil:
        """A mapping that ``dedups``: the host writes that page, of which ``page`` is the content; or, on a chip that
        keeps none (NULL), equal ``word`` stand for equal contents. Whether such a page is known: in flash, or of those
        sifted before. Takes its time from ``t_ns`` on."""
        return False

    cdef bint point_at_same(self, uint32_t lpa, const uint8_t* page, uint64_t seq, int64_t* t_ns,
                            uint32_t* old) except -1 nogil:
        """The page that ``sift`` was last asked about, and those before it in flash by now: point its LPA at one of
        the same content, under ``seq``. False if there is none, or the LPA cannot be pointed there; it is to be written
        then. ``old`` as in ``bind``. Makes room, so it may clean and sync."""
        return False

    cdef int sifted(self) noexcept nogil:
        """All pages of a request that were sifted are in flash, or will not be."""
        return 0

    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, const Extent* at, uint32_t before,
                   uint32_t behind) except -1 nogil:
        """Fill the scheme's own OOB bytes of the ``at.n`` pages about to be programmed there, the host's or moved ones:
        ``at.choice`` is as placement gave it. ``oob`` points at the first page's, the next page's are ``oob_bytes``
        further. They are part of a run: ``before`` pages of it were programmed right
        in front of them and ``behind`` are to follow in this block, and ``lpas`` reaches as far either way."""
        return 0

    cdef int tend(self) except -1 nogil:
        """Between requests: what the mapping has to do now and then, such as writing back translation pages. It may
        clean."""
        return 0

    cdef int fence_begins(self) except -1:
        """A mapping that is ``fenced``: a fence, or a checkpoint, is about to be written. Every entry that was newer
        than its translation page at the last one, and has not changed since, is written now. It may clean."""
        return 0

    cdef int reports_kept(self) except -1 nogil:
        """A mapping that is ``fenced``: validity has programmed all reports that it got so far. Behind the next sync
        no recovery looks for them."""
        return 0

    def distrust(self):
        """A mapping that is ``fenced``, in a recovery: pages are missing. What was found is to be in translation pages
        as soon as the recovery ends, so that whatever is lost later is missed."""

    def base_from_pages(self, versions):
        """A mapping that is ``fenced``: {section: bytes} of a checkpoint that never was, from ``versions``, all whole
        pages of its kind: (numbers, sequence numbers, PPAs), arrays, by number and the oldest version first."""
        raise NotImplementedError

    def counted(self, n):
        """A mapping that is ``fenced``, in a recovery, behind its entries: ``n`` LPAs are mapped."""

    def find_reports(self, versions, uint64_t since, in_scan):
        """A mapping that is ``fenced``, in a recovery, behind its entries: which pages validity had been told of after
        sequence number ``since`` and not programmed; they are dead now. ``in_scan(block)``: validity knows all of that
        block. A line about it."""
        raise NotImplementedError

    def limit_tables(self, uint64_t share):
        """``share`` bytes of DRAM are left for tables that can be kept in flash; BindError if that is too little."""

    cdef bint has(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Whether the page at ``ppa``, whose OOB names ``lpa``, is that LPA's, or that of others who share it."""
        return self.locate(lpa) == ppa or (self.shares_pages and self.needs(ppa, lpa))

    def refuses(self, Validity validity not None):
        """None, or why this mapping cannot stand on that validity store."""
        return None

    def is_exact(self):
        """Whether look-ups hardly ever guess. If they do, nothing looks at a page before it is read: a look counts."""
        return True

    def explain(self, uint32_t lpa):
        """What the mapping's structures say of one LPA, for ``dump``; has no side effect and reads no flash."""
        cdef uint32_t ppa = NONE
        self.peek(&lpa, 1, &ppa)
        return {"ppa": None if ppa == NONE else ppa}
