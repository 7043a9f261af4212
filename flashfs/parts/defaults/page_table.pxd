# The page table; see page_table.pyx.
cimport cython
from libc.stdint cimport uint32_t

from flashfs.engine.contract.mapping cimport Mapping


cdef class PageTable(Mapping):
    cdef uint32_t* table                   # ~PPA of each LPA; 0: not mapped
    cdef int require_range(self) except -1

    @cython.final
    cdef uint32_t next_mapped(self, uint32_t lpa) noexcept nogil

    @cython.final
    cdef inline uint32_t at(self, uint32_t lpa) noexcept nogil:
        """The PPA of an LPA; NONE: not mapped."""
        return ~self.table[lpa]

    @cython.final
    cdef inline int put(self, uint32_t lpa, uint32_t ppa) noexcept nogil:
        self.table[lpa] = ~ppa
        return 0
