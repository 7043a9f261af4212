# cold
"""Which block next, and how do its pages move? The default is Greedy (flashfs.parts.defaults.defaults)."""
from libc.stdint cimport uint32_t


cdef class Cleaning:
    """Which block next, and where do its pages go?"""

    cdef int clean(self) except -1 nogil:
        """Free space in one block, somehow; DeviceFullError if none can be gained. May read, program, clean."""
        with gil:
            raise NotImplementedError

    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil:
        """Empty this very block: static wear levelling and retirement ask for it, whatever ``cleans`` says.
        May read, program, clean."""
        with gil:
            raise NotImplementedError

    cdef bint cleans(self, int stream) noexcept nogil:
        """Whether blocks of that stream may be cleaned. One that may not is erased when nothing in it lives."""
        return True
