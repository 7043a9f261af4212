"""Where may these pages be programmed? The default is Streams (flashfs.parts.defaults.streams)."""
from libc.stdint cimport uint32_t


cdef class Placement:
    """Where may these pages be programmed? Placement names the places, and the engine programs the pages."""

    cdef int make_ready(self, int stream) except -1 nogil:
        """Do the cleaning needed before the next ``take`` of that stream. May read, program, clean."""
        return 0

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        """A place for the first ``out.n`` (1..n) of these pages: the next consecutive pages of one block. 0 ends a
        move. Pages of the host must get a place; before these, the engine has called ``make_ready``. Before moved
        pages, or those of other kinds (``lpas`` has their ids), it need not have: for them ``take`` opens a block of
        the reserve if need be, and must not clean. DeviceFullError if there is no block for the pages. ``out.choice``,
        0 before the call, tells the mapping how that place was chosen: the engine passes it on to ``stamp`` and
        ``bind`` and does not use it. May read, program, clean."""
        with gil:
            raise NotImplementedError

    cdef uint32_t run_room(self, int stream) noexcept nogil:
        """How many pages of that stream the next ``take`` can place in one block, or 0 if that is not known. A caller
        with more pages splits there, so that the pages in one block are one run."""
        return 0

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        """``n`` pages of what ``take`` gave were programmed, 1 at least: the next ones of its extent. The pool counts
        them already (``next_page``). An extent may be programmed in several parts, with a call for each."""
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        """Offer this block no more: a program failed in it, or padding filled it."""
        return 0

    cdef int finish(self, int stream) except -1 nogil:
        """No more pages come for this stream for a while: close a half-filled block that is not worth keeping. Cleaning
        calls it, after static wear levelling has moved a block. A later ``take`` opens another block."""
        return 0

    def attach(self):
        """Use the blocks that the pool calls open: after a format, a load or a recovery."""
