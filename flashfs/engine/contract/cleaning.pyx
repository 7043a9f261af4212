# cold
"""Which block is cleaned next, and how do its pages move? The default is Greedy (flashfs.parts.defaults.greedy)."""
from libc.stdint cimport uint32_t


cdef class Cleaning:
    """Which block is cleaned next, and where do its pages go? The engine asks while too few blocks are free."""

    cdef int clean(self) except -1 nogil:
        """Gain free space by cleaning a block; DeviceFullError if none can be gained. After that error the tables agree
        and the device is not stopped: a move that ended counts, and one that did not has left only dead copies.
        May read, program, clean."""
        with gil:
            raise NotImplementedError

    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil:
        """Move the live pages out of this block. Static wear levelling and retirement call it, whatever ``cleans``
        returns. Operations are counted under ``cause``, a CAUSE_ number. DeviceFullError as of ``clean``: then the
        pages are still in the block. May read, program, clean."""
        with gil:
            raise NotImplementedError

    cdef bint cleans(self, int stream) noexcept nogil:
        """Whether blocks of that stream may be cleaned. One that may not is erased once it has no live page."""
        return True
