"""Where may these pages be programmed? The default is Streams (flashfs.parts.defaults.defaults)."""
from libc.stdint cimport uint32_t


cdef class Placement:
    """Where may these pages be programmed?"""

    cdef int make_ready(self, int stream) except -1 nogil:
        """Clean what has to be cleaned before the next ``take`` of that stream. May read, program, clean."""
        return 0

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        """A place for the first ``out.n`` (1..n) of these pages: consecutive pages of one block, the block's next
        ones. 0 breaks a move off. What the mapping is to know of how that place was chosen goes into ``out.choice``,
        which is 0 before the call: the engine passes it on to ``stamp`` and ``bind``, and looks at it nowhere."""
        with gil:
            raise NotImplementedError

    cdef uint32_t run_room(self, int stream) noexcept nogil:
        """How many pages of that stream the next ``take`` can have in one block, if that is known: else 0. Whoever has
        more cuts there, so that what lies in one block is one run."""
        return 0

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        """``n`` pages of what ``take`` gave were programmed."""
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        """Offer this block no more: a program failed in it, or padding has filled it."""
        return 0

    cdef int finish(self, int stream) except -1 nogil:
        """Nothing more comes for this stream for a while: give up a half-filled block that is not worth keeping."""
        return 0

    def attach(self):
        """Take up the blocks that the pool says are open: after a format, a load or a recovery."""
