"""Where is LPA x? The default is PageTable (flashfs.parts.defaults.defaults)."""
from libc.stdint cimport int64_t, uint8_t, uint32_t

from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.contract.hooks cimport Hooks
from flashfs.engine.contract.owner cimport FOREIGN, LIVE, SUPERSEDED
from flashfs.engine.contract.extent cimport Extent


cdef class Mapping(Hooks):
    """Where is LPA x? The engine programs a page first and binds it after, so a mapping never points at nothing.

    A mapping reads what it needs of itself in flash in ``prepare``, which may also program, and so clean: no caller
    holds a PPA then. ``lookup`` and ``bind`` follow, of LPAs that are prepared. A read of the map begins at
    ``ssd.map_ns`` and puts its end there; the caller that begins something sets that clock.

    No method touches flash unless its last words say what it may do there: read, program, clean. A method that holds no
    GIL allocates nothing.

    The methods below are all of a plain map. Others have a default that suits it: what tools ask (``Shown``), what a
    recovery asks (``RecoveryWishes``), what comes between (``Hooks``). What a map alone does not do is an *extension*
    (extensions.pyx, checkpointer.pyx): ``sharing``, ``remapping``, ``dedup``, ``runs`` and ``from_pages`` are objects
    that a mapping may have, or None.

    A mapping that keeps parts of itself in flash has translation pages (part_pages.pyx), whose owner a recovery asks
    and tells before the mapping."""

    # --- the host's requests

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """The host is about to read, or is ``writing``, these LPAs. Returns how many of them, from the first on, are at
        hand until the next ``prepare``, 1 at least: ``lookup`` reads nothing for those, and ``bind`` nothing that may
        write. ``ready`` says when each may begin, and then when its place is known: independent reads of the map run
        side by side, dependent ones one by one. May read, program, clean."""
        return n

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """PPAs of ``n`` LPAs for the host; NONE for one that is not mapped. A PPA may be a guess: the reader checks the
        OOB."""
        with gil:
            raise NotImplementedError

    cdef int peek(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """As ``lookup``, for a caller that is not the host (is it mapped? a dump): it counts nowhere, changes no cache.
        May read."""
        return self.lookup(lpas, n, ppas)

    cdef uint32_t after_miss(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) except? 0xFFFFFFFE nogil:
        """Where to look when ``ppa`` turned out to hold another LPA; NONE when there is nowhere left. ``oob`` is what
        was read there, the engine's bytes first, or NULL if the page cannot be read. May read."""
        return NONE

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        """The host's pages ``lpas`` lie at ``ppa``, ``ppa + 1``, ... now; ``choice`` is what placement put into the
        extent. ``olds`` gets where exactly each lay before (NONE if nowhere): those pages die. May read."""
        with gil:
            raise NotImplementedError

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        """``n`` LPAs from ``lpa`` on are trimmed; ``olds`` as in ``bind``. Returns more than 0 if there were some that
        were mapped though it is not known where any more: that they are trimmed must be on record too. May read."""
        with gil:
            raise NotImplementedError

    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, const Extent* at, uint32_t before,
                   uint32_t behind) except -1 nogil:
        """Fill the scheme's own OOB bytes of the ``at.n`` pages about to be programmed there, the host's or moved ones:
        ``at.choice`` is as placement gave it. ``oob`` points at the first page's, the next page's are ``oob_bytes``
        further. They are part of a run: ``before`` pages of it were programmed right in front of them and ``behind``
        follow in this block, and ``lpas`` reaches as far either way."""
        return 0

    # --- cleaning

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        """Whether each page of ``ppas`` is the LPA's that its OOB says: LIVE, SUPERSEDED or FOREIGN. Cleaning asks
        before it moves: a page that lies would take another's place. May read."""
        cdef uint32_t i
        for i in range(n):
            if lpas[i] < self.ssd.lpas and self.maps_to(lpas[i], ppas[i]):
                answers[i] = LIVE
            else:                          # where validity is late, a page that no LPA names is nothing unusual
                answers[i] = SUPERSEDED if self.ssd.validity.late and lpas[i] < self.ssd.lpas else FOREIGN
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """Cleaning copied the page that is ``lpas[i]``'s by its OOB from ``olds[i]`` to ``news[i]``; LPAs ascend. A
        block's worth of pages at most: of a move of several blocks there are several calls, and LPAs ascend from one to
        the next. May read."""
        with gil:
            raise NotImplementedError

    cdef uint32_t locate(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """Where exactly ``lpa`` lies, or NONE; a scheme whose lookup guesses reads what it must to be sure. As ``peek``
        it counts nowhere. May read."""
        cdef uint32_t ppa = NONE
        self.peek(&lpa, 1, &ppa)
        return ppa

    # --- checkpoints and recoveries: without a checkpoint a recovery begins with ``reset``, else with ``load``

    def save(self):
        """{section: buffer} for a checkpoint; names take 8 bytes at most."""
        raise NotImplementedError

    def load(self, sections):
        """The inverse of ``save``; ValueError says what cannot be."""
        raise NotImplementedError

    def reset(self):
        """Nothing is mapped: a recovery that found no checkpoint starts here."""
        raise NotImplementedError

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        """Recovery found that ``lpa`` is at ``ppa`` (NONE: trimmed). ``scheme_oob`` is what was stamped there.
        May read."""
        with gil:
            raise NotImplementedError

    cdef int64_t pages_named(self) except -2 nogil:
        """How many pages are live if the mapping is right: the LPAs that are mapped, and its translation pages. -1 if
        that takes a read of flash. Asked before each checkpoint, so a pass through the table at most."""
        return -1

    def verify(self, bint whole=True):
        """After a load, and again after a recovery: what the tables say, checked against validity. What lies in flash
        is read only if ``whole``: not by a clean mount. ValueError names the first thing that no power cut leaves.
        May read."""

    def tables(self):
        """{structure: (bytes as a controller packs them, bytes allocated)}."""
        raise NotImplementedError

    # --- what follows from those

    cdef bint maps_to(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Whether the page at ``ppa``, whose OOB names ``lpa``, is that LPA's, or that of others who share it.
        May read."""
        return self.locate(lpa) == ppa or (self.sharing is not None and self.sharing.shared_by_others(ppa, lpa))

    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """The LPA that lies at ``ppa``, or NONE: asked when that page cannot be read, so the answer may take a look at
        every LPA. May read."""
        cdef uint32_t lpa
        for lpa in range(self.ssd.lpas):
            if self.locate(lpa) == ppa:
                return lpa
        return NONE

    def explain(self, uint32_t lpa):
        """What the mapping's structures say of one LPA, for ``dump``; has no side effect and reads no flash."""
        cdef uint32_t ppa = NONE
        self.peek(&lpa, 1, &ppa)
        return {"ppa": None if ppa == NONE else ppa}
