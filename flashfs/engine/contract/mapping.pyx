"""Where is LPA x? The default is PageTable (flashfs.parts.defaults.page_table)."""
from libc.stdint cimport int64_t, uint8_t, uint32_t

from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.contract.hooks cimport Hooks
from flashfs.engine.contract.owner cimport FOREIGN, LIVE, SUPERSEDED
from flashfs.engine.contract.extent cimport Extent


cdef class Mapping(Hooks):
    """Where is LPA x? The engine programs a page first and binds it after, so a mapping never points at nothing.

    A mapping reads the parts of itself that it needs from flash in ``prepare``, which may also program, and so clean:
    no caller holds a PPA across it. ``lookup`` and ``bind`` follow, for prepared LPAs. A read of the map begins at
    ``ssd.map_ns`` and stores its end there; the caller that begins a request sets that clock.

    No method touches flash unless its docstring ends with what it may do there: read, program, clean. A method that
    holds no GIL allocates nothing.

    A plain map needs only the methods below. The base classes have defaults that suit it: ``Shown`` for tools,
    ``RecoveryWishes`` for recovery, ``Hooks`` for everything else. Further abilities are *extensions* (extensions.pyx,
    checkpointer.pyx): ``sharing``, ``remapping``, ``dedup``, ``runs`` and ``from_pages`` are objects that a mapping may
    have, or None.

    A mapping that keeps parts of itself in flash has translation pages (part_pages.pyx); a recovery calls their owner
    before the mapping."""

    # --- the host's requests

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """The host is about to read, or is ``writing``, these LPAs. Returns how many of them, from the first on and 1
        at least, are prepared until the next ``prepare``: ``lookup`` reads nothing for those, and ``bind`` nothing that
        may write. ``ready`` gives the virtual time at which each may begin, and gets the time at which its place is
        known: independent reads of the map run in parallel, dependent ones in sequence. May read, program, clean."""
        return n

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """PPAs of ``n`` LPAs for the host; NONE for one that is not mapped. A PPA may be a guess: the reader checks the
        OOB."""
        with gil:
            raise NotImplementedError

    cdef int peek(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """As ``lookup``, for callers other than the host's reads (is it mapped? a dump): changes no counter and no
        cache. May read."""
        return self.lookup(lpas, n, ppas)

    cdef uint32_t after_miss(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) except? 0xFFFFFFFE nogil:
        """The next PPA to try after ``ppa`` turned out to hold another LPA; NONE if there is none. ``oob`` is that
        page's OOB, the engine's bytes first, or NULL if the page cannot be read. May read."""
        return NONE

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        """Map the host's pages ``lpas`` to consecutive PPAs from ``ppa`` on; ``choice`` is what placement put into the
        extent. ``olds`` gets the exact PPA of each before (NONE if unmapped): those pages die. May read."""
        with gil:
            raise NotImplementedError

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        """Unmap ``n`` LPAs from ``lpa`` on (a trim); ``olds`` as in ``bind``. Returns more than 0 if some of them were
        mapped to a place that is not known any more: their trim must be recorded too. May read."""
        with gil:
            raise NotImplementedError

    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, const Extent* at, uint32_t before,
                   uint32_t behind) except -1 nogil:
        """Fill in the scheme's own OOB bytes of the ``at.n`` pages about to be programmed there, the host's or moved
        ones; ``at.choice`` is as placement gave it. ``oob`` points at the first page's bytes; the next page's are
        ``oob_bytes`` further. The pages are part of a run in this block: ``before`` pages of it precede them and
        ``behind`` pages follow, and ``lpas`` can be indexed that far in both directions. Called before the program, if
        ``scheme_oob`` is not 0. All ``scheme_oob`` bytes of each page must be set: they hold those of earlier pages. If
        it raises, none of these pages is programmed, and the request or the move ends with that error."""
        return 0

    # --- cleaning

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        """Whether each page of ``ppas`` belongs to the LPA in its OOB (``lpas``): LIVE, SUPERSEDED or FOREIGN. Cleaning
        asks before a move: a page with a wrong OOB would replace another LPA's. May read."""
        cdef uint32_t i
        for i in range(n):
            if lpas[i] < self.ssd.lpas and self.maps_to(lpas[i], ppas[i]):
                answers[i] = LIVE
            else:                          # with late validity, a page that no LPA maps to is normal
                answers[i] = SUPERSEDED if self.ssd.validity.late and lpas[i] < self.ssd.lpas else FOREIGN
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """Cleaning copied the page whose OOB names ``lpas[i]`` from ``olds[i]`` to ``news[i]``; LPAs ascend. At most a
        block's pages per call: a move of several blocks makes several calls, and LPAs ascend across them. May read."""
        with gil:
            raise NotImplementedError

    cdef uint32_t locate(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """The exact PPA of ``lpa``, or NONE; a scheme whose lookup guesses reads flash to be sure. As ``peek`` it
        changes no counter. May read."""
        cdef uint32_t ppa = NONE
        self.peek(&lpa, 1, &ppa)
        return ppa

    # --- checkpoints and recoveries: without a checkpoint a recovery begins with ``reset``, else with ``load``

    def save(self):
        """{section: buffer} for a checkpoint; names take 8 bytes at most. A buffer is one-dimensional, contiguous and
        of u8 (bytes, bytearray, memoryview, array). It must not change before the checkpoint is written."""
        raise NotImplementedError

    def load(self, sections):
        """The inverse of ``save``; ValueError for contents that cannot be right."""
        raise NotImplementedError

    def reset(self):
        """Unmap everything: a recovery that found no checkpoint starts with this."""
        raise NotImplementedError

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        """Recovery found that ``lpa`` is at ``ppa`` (NONE: trimmed). ``scheme_oob`` is what the scheme stamped there.
        May read."""
        with gil:
            raise NotImplementedError

    cdef int64_t pages_named(self) except -2 nogil:
        """How many pages are live if the mapping is right: the LPAs that are mapped, and its translation pages. -1 if
        that needs a read of flash. Called before each checkpoint, so it must cost at most one pass over the table."""
        return -1

    def verify(self, bint whole=True):
        """Check the tables against validity, after a load and again after a recovery. Parts in flash are read only if
        ``whole``, which a clean mount does not ask for. ValueError for the first thing that no power cut can cause.
        May read."""

    def tables(self):
        """{structure: (bytes as a controller packs them, bytes allocated)}."""
        raise NotImplementedError

    # --- derived from those

    cdef uint64_t idle_bytes(self) noexcept nogil:
        """Bytes of its tables in which nothing is at present: a cache that is not full, which can do with less
        meanwhile. The device may lend them to the data cache (``lent``), and takes them back when ``prepare`` has
        begun to use them. ``tables`` gives the packed bytes without ``lent``."""
        return 0

    cdef bint maps_to(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Whether the page at ``ppa``, whose OOB names ``lpa``, belongs to that LPA or to others that share it.
        May read."""
        return self.locate(lpa) == ppa or (self.sharing is not None and self.sharing.shared_by_others(ppa, lpa))

    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """The LPA that maps to ``ppa``, or NONE. Called when that page cannot be read, so it may look at every LPA.
        May read."""
        cdef uint32_t lpa
        for lpa in range(self.ssd.lpas):
            if self.locate(lpa) == ppa:
                return lpa
        return NONE

    def explain(self, uint32_t lpa):
        """What the mapping's structures hold for one LPA, for ``dump``; has no side effect and reads no flash. {name:
        JSON value}; "ppa" is always there: an int, or None if the LPA is unmapped or its place is not known without a
        read. The default asks ``peek``, so a mapping whose ``peek`` may read needs its own."""
        cdef uint32_t ppa = NONE
        self.peek(&lpa, 1, &ppa)
        return {"ppa": None if ppa == NONE else ppa}
