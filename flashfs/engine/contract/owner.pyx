# cold
"""The owner of the pages of one kind: user pages (owned by the mapping), translation pages, pages of a validity store,
trims."""
from libc.stdint cimport uint8_t, uint32_t

from flashfs.engine.blocks.pool cimport NONE


cdef class Owner:
    """The owner of the pages of one kind: only it knows whether such a page is live. In place of an LPA, the OOBs of
    its pages hold a number of its own, the *id*; for user pages it is the LPA. A page that a recovery finds and that
    was programmed after the checkpoint is dead, unless its owner uses it in one of its recovery steps."""

    def __cinit__(self, *_, **__):
        self.stream = -1

    cdef int confirm(self, const uint32_t* ids, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        """Whether each page of ``ppas`` is what its OOB says (``ids``): LIVE, SUPERSEDED or FOREIGN. Cleaning asks
        before a move: a page with a wrong OOB would replace another. The arrays have ``n`` entries; an id may be any
        number. May read."""
        with gil:
            raise NotImplementedError

    cdef int moved(self, const uint32_t* ids, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """Cleaning copied each page from ``olds`` to ``news``; the ids ascend. At most a block's pages per call: a move
        of several blocks makes several calls, and the ids ascend across them. An error stops the device. May read."""
        with gil:
            raise NotImplementedError

    cdef int page_lost(self, uint32_t ppa) except -1 nogil:
        """A live page cannot be read, so it cannot be moved, and its block is about to be released. May read."""
        return 0

    cdef uint32_t locate(self, uint32_t id) except? 0xFFFFFFFE nogil:
        """The exact PPA of page ``id``, or NONE. May read."""
        return NONE

    cdef int recovered(self, uint32_t id, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        """Recovery found that page ``id``, which the checkpoint knows, is at ``ppa`` now. ``scheme_oob`` is for the
        mapping; other owners ignore it. May read."""
        return 0

    def live_ppas(self):
        """The PPAs of its live pages; not called for user pages. May read."""
        return []
