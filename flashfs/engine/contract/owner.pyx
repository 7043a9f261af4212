# cold
"""Who has the pages of one kind: the host's are the mapping's, translation pages, pages of a validity store, trims."""
from libc.stdint cimport uint8_t, uint32_t

from flashfs.engine.blocks.pool cimport NONE


cdef class Owner:
    """Who has the pages of one kind: it alone knows whether such a page is live. What its pages' OOBs say in the place
    of an LPA is a number of its own, the *id*; of user pages it is the LPA. A page that a recovery finds, and that was
    made after the checkpoint, is dead, unless its owner takes it up in a step of its own."""

    def __cinit__(self, *_, **__):
        self.stream = -1

    cdef int confirm(self, const uint32_t* ids, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        """Whether each page of ``ppas`` is what its OOB says it is: LIVE, SUPERSEDED or FOREIGN. Cleaning asks before
        it moves: a page that lies would take another's place."""
        with gil:
            raise NotImplementedError

    cdef int moved(self, const uint32_t* ids, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """Cleaning copied each page from ``olds`` to ``news``; the ids ascend. A block's worth of pages at most: of a
        move of several blocks there are several calls, and the ids ascend from one to the next."""
        with gil:
            raise NotImplementedError

    cdef int page_lost(self, uint32_t ppa) except -1 nogil:
        """A live page that was to be moved cannot be read, and its block is about to be given up."""
        return 0

    cdef uint32_t locate(self, uint32_t id) except? 0xFFFFFFFE nogil:
        """Where exactly page ``id`` lies, or NONE."""
        return NONE

    cdef int recovered(self, uint32_t id, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        """Recovery found that page ``id``, which the checkpoint knows, is at ``ppa``."""
        return 0

    def live_ppas(self):
        """The PPAs of its live pages; not asked of user pages."""
        return []
