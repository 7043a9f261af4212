# cold
"""Extensions of a mapping. Each is a member object, None unless the mapping has it:

    member       class            who asks                  for
    sharing      Sharing          reader, mover, recovery   pages that several LPAs are at
    remapping    Remapping        remaps.pyx                pointing an LPA at another's page, without a write
    dedup        Deduplication    Ssd.write                 pages whose content is in flash already
    runs         Runs             Ssd.append, mover         pages that were written together, as a whole
    from_pages   Checkpointer     Ssd.checkpoint            recovery from pages (checkpointer.pyx)
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef class Sharing:
    """Several LPAs may share one page, whose OOB names one of them, or an LPA that has left it since. The page's name
    (LPA and sequence number) never changes, however often it is moved. In a mapping that has this

    - ``bind`` and ``unbind`` put NONE into ``olds`` for a page that others still use: it does not die. ``unbind``
      returns more than 0 to report that an LPA was trimmed all the same;
    - ``moved`` gets each page once, with the LPA in its OOB, and re-points all LPAs at ``olds[i]``;
    - ``pages_named``, ``verify`` and fsck count pages, not LPAs."""

    cdef bint is_page_of(self, uint32_t lpa, uint32_t ppa, uint32_t said) except -1 nogil:
        """Whether ``lpa`` maps to the page at ``ppa``, whose OOB names another LPA, ``said``."""
        with gil:
            raise NotImplementedError

    cdef bint shared_by_others(self, uint32_t ppa, uint32_t lpa) except -1 nogil:
        """Whether an LPA other than ``lpa`` maps to ``ppa``: cleaning and recovery ask whether the page is live."""
        with gil:
            raise NotImplementedError

    cdef uint32_t recovered_copy(self, uint32_t lpa, uint64_t seq, uint32_t ppa,
                                 bint* own) except? 0xFFFFFFFE nogil:
        """A recovery found the page named ``lpa`` and ``seq`` at ``ppa``, where cleaning put it, and calls this first:
        re-point all that share it. Other pages may lie at the old place by now, so the mapping must find them by that
        name. Returns the old PPA, or NONE if the page is not known to be shared; ``own[0]`` gets whether ``lpa`` itself
        still maps to it. May read."""
        with gil:
            raise NotImplementedError

    def claims(self):
        """With ``names_sharers``, in a recovery, after the scan: what NVRAM says of LPAs at pages of others, an array
        of ``Claimed`` (recovery/records.pyx). May read."""
        raise NotImplementedError

    def recount(self):
        """With ``names_sharers``, in a recovery: the live pages are those that the mapping names now."""
        raise NotImplementedError


cdef class Remapping:
    """An LPA can be mapped to another LPA's page. Needs ``sharing``."""

    cdef uint32_t room(self, uint32_t target, uint32_t source, uint32_t n, bint move) except? 0xFFFFFFFF nogil:
        """How many of ``n`` LPAs from ``target`` on one ``run`` can map to the pages of the LPAs from ``source`` on,
        counted from the first; 0 if the first must be written instead. All sources are mapped, and in flash. Makes room
        for that, so it may clean and sync. May read, program, clean."""
        with gil:
            raise NotImplementedError

    cdef int run(self, uint32_t target, uint32_t source, uint32_t n, uint64_t seq, bint move,
                 uint32_t* olds) except -1 nogil:
        """Map the targets to the sources' pages; recorded, under ``seq``, when this returns. With ``move`` the sources
        are unmapped. ``olds`` as in ``Mapping.bind``, for the targets. Programs begin at ``ssd.map_ns``, which then is
        their end. May read, program."""
        with gil:
            raise NotImplementedError


cdef class Deduplication:
    """The content of a page that the host writes may be in flash already. Needs ``sharing``."""

    cdef int64_t write(self, const uint32_t* lpas, uint32_t n, const uint8_t* data, const uint64_t* words,
                       int64_t t_ns) except -1 nogil:
        """Write up to RUN pages of the host, bypassing the buffer: some are mapped to pages that exist, the others go
        to ``Ssd.write_past``. ``data`` is their contents; on a chip that keeps no data it is NULL, and equal ``words``
        mean equal contents. Returns the virtual time at which they are acknowledged. May read, program, clean."""
        with gil:
            raise NotImplementedError


cdef class Runs:
    """Pages that were written together are reported to the mapping as a whole."""

    cdef int ends(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """A run has ended: the pages that were written together, by the host or by cleaning, in order, over all blocks
        that placement striped them to. They are bound already, extent by extent. If cleaning came between two extents,
        the run begins after it."""
        with gil:
            raise NotImplementedError
