# cold
"""What a mapping may be able to do beside a map. Each is an object that it has as a member, None unless it brings one:

    member       class            who asks                  for
    sharing      Sharing          reader, mover, recovery   pages that several LPAs are at
    remapping    Remapping        remaps.pyx                pointing an LPA at another's page, without a write
    dedup        Deduplication    Ssd.write                 pages whose content is in flash already
    runs         Runs             Ssd.append, mover         pages that were written together, as a whole
    from_pages   Checkpointer     Ssd.checkpoint            recovery from pages (checkpointer.pyx)
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef class Sharing:
    """Several LPAs may be at one page, whose OOB names one of them, or one that has left it since. The page's name, its
    LPA and sequence number, never changes, however often it is moved. Of a mapping that has this

    - ``bind`` and ``unbind`` put NONE into ``olds`` for a page that others still use: it does not die. That an LPA was
      trimmed all the same, ``unbind`` says by returning more than 0;
    - ``moved`` is told of each page once, with the LPA in its OOB, and re-points all who are at ``olds[i]``;
    - ``pages_named``, ``verify`` and fsck count pages, not LPAs."""

    cdef bint is_page_of(self, uint32_t lpa, uint32_t ppa, uint32_t said) except -1 nogil:
        """Whether the page read at ``ppa``, whose OOB says another LPA, ``said``, is what ``lpa`` reads."""
        with gil:
            raise NotImplementedError

    cdef bint shared_by_others(self, uint32_t ppa, uint32_t lpa) except -1 nogil:
        """Whether any LPA but ``lpa`` is at ``ppa``: cleaning and recovery ask, to know whether the page lives."""
        with gil:
            raise NotImplementedError

    cdef uint32_t recovered_copy(self, uint32_t lpa, uint64_t seq, uint32_t ppa,
                                 bint* own) except? 0xFFFFFFFE nogil:
        """A recovery found the page named ``lpa`` and ``seq`` at ``ppa``, where cleaning put it, and asks before
        anything else about it. All who share it are there from now on; as other pages may lie where they were, a
        mapping has to know them by that name. Returns where they were until now, NONE if it is no page that is known to
        be shared; ``own[0]`` says whether ``lpa`` itself is still at it. May read."""
        with gil:
            raise NotImplementedError


cdef class Remapping:
    """An LPA can be pointed at another's page. Goes with ``sharing``."""

    cdef uint32_t room(self, uint32_t target, uint32_t source, uint32_t n, bint move) except? 0xFFFFFFFF nogil:
        """Of ``n`` LPAs from ``target`` on, each of which will be pointed at the page of the one as far after
        ``source``: how many can be, from the first on, by one ``run``; 0 if the first has to be written. All sources
        are mapped, and in flash. It makes room, so it may clean and sync. May read, program, clean."""
        with gil:
            raise NotImplementedError

    cdef int run(self, uint32_t target, uint32_t source, uint32_t n, uint64_t seq, bint move,
                 uint32_t* olds) except -1 nogil:
        """Point them there: on record, under ``seq``, when this returns. With ``move`` the sources hold nothing then.
        ``olds`` as in ``Mapping.bind``, of the targets. What it stores begins at ``ssd.map_ns``, which is its end
        then. May read, program."""
        with gil:
            raise NotImplementedError


cdef class Deduplication:
    """A page that the host writes may be in flash already. Goes with ``sharing``."""

    cdef int64_t write(self, const uint32_t* lpas, uint32_t n, const uint8_t* data, const uint64_t* words,
                       int64_t t_ns) except -1 nogil:
        """Up to RUN pages that the host writes, past the buffer: some are pointed at pages that are there, the others
        go to ``Ssd.write_past``. ``data`` is their contents; on a chip that keeps none (NULL), equal ``words`` stand
        for equal contents. Returns the virtual time at which they are acknowledged. May read, program, clean."""
        with gil:
            raise NotImplementedError


cdef class Runs:
    """Pages that are written together are passed on as a whole."""

    cdef int ends(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """These pages were written together, by the host or by cleaning, and are bound already, extent by extent: here
        is the whole run in its order, over however many blocks placement striped it. Where cleaning came between two
        extents, the run begins after it."""
        with gil:
            raise NotImplementedError
