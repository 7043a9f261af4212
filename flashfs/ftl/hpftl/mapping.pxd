# HPFTL's two tables; see mapping.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.contract.mapping cimport Mapping
from flashfs.ftl.hashing.tables cimport Hasher, PackedTable
from flashfs.ftl.hashing.pairs cimport PairTable


cdef class HpftlMapping(Mapping):
    cdef readonly PackedTable primary
    cdef readonly PairTable second
    cdef readonly Hasher hasher
    cdef readonly uint32_t hashes          # HIDs in use: 1 to this
    cdef readonly uint32_t capacity        # most entries of the secondary table
    cdef readonly uint32_t saved_most      # ... that a checkpoint has room for, after a recovery
    cdef uint32_t* second_in               # of each block, pages with a secondary entry
    cdef uint64_t dropped                  # entries that left since the last checkpoint: a recovery may restore them
    cdef uint32_t hid_of(self, uint32_t lpa, uint32_t block) noexcept nogil
    cdef bint is_second(self, uint32_t lpa) noexcept nogil
    cdef uint32_t place(self, uint32_t lpa, uint32_t hid, uint32_t ppa) except? 0xFFFFFFFE nogil
    cdef uint32_t let_go(self, uint32_t lpa) noexcept nogil
    cdef uint32_t first_in(self, uint32_t block) noexcept nogil
    cdef uint64_t count_mapped(self) noexcept nogil
