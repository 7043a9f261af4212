# Cleaning of Remap-SSD; see placement.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.parts.defaults.greedy cimport Greedy
from flashfs.engine.device.ssd cimport Ssd
from flashfs.parts.superblocks.superblocks cimport SuperblockGreedy
from flashfs.ftl.remapssd.mapping cimport RemapTable


cdef class EntryRoom:
    cdef Ssd ssd
    cdef RemapTable mapping
    cdef uint8_t* page
    cdef readonly uint64_t shed_n
    cdef bint alone                        # the dies wait for a look-up
    cdef readonly uint32_t ends            # superblocks in which a move may end
    cdef int64_t begin(self, uint32_t superblock, uint32_t block, uint64_t live) except -1 nogil
    cdef uint64_t segments_for(self, uint64_t valid) noexcept nogil
    cdef bint fits(self, uint32_t superblock, uint32_t block, uint64_t live) except -1 nogil
    cdef bint may_evacuate(self, uint32_t block) except -1 nogil
    cdef uint64_t room(self) noexcept nogil
    cdef uint32_t victim(self) except? 0xFFFFFFFE nogil
    cdef int64_t begin_block(self) except -1 nogil
    cdef bint shed(self, uint32_t superblock, uint32_t block, uint64_t* lost) except -1 nogil
    cdef bint shed_lost(self, uint32_t superblock, uint32_t block) except -1 nogil
    cdef bint read_out(self, uint32_t lpa, int64_t* t_ns) except -1 nogil
    cdef int write_out(self, uint32_t lpa, uint8_t flags, int64_t t_ns) except -1 nogil


cdef class RemapGreedy(Greedy):
    cdef readonly EntryRoom entries


cdef class RemapSuperblocks(SuperblockGreedy):
    cdef readonly EntryRoom entries
