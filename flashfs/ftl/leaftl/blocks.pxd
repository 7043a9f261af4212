# The groups of LeaFTL's table as blocks of memory; see blocks.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.ftl.leaftl.group cimport Scratch
from flashfs.ftl.leaftl.slabs cimport Slabs

cdef extern from *:
    """
    #define FLASHFS_ABSENT 0xFFFFFFFFu
    """
    const uint32_t ABSENT "FLASHFS_ABSENT"     # in the directory: the group is in flash


cdef class GroupBlocks:
    cdef readonly uint32_t lpas
    cdef readonly uint32_t groups
    cdef readonly uint64_t segments        # in all groups, as the next four
    cdef readonly uint64_t crb_bytes
    cdef readonly uint64_t levels
    cdef readonly uint64_t mapped_groups   # groups that have a block
    cdef readonly uint64_t crowded         # groups that were compacted because they had grown too large
    cdef Slabs slabs
    cdef readonly uint32_t grown           # a group's debt bound, percent of its segments; 0: none
    cdef uint8_t* debts                    # what each group owes: see SegmentTable.owe
    cdef uint32_t* directory               # handle of each group's block, 0 for none, or ABSENT
    cdef Scratch* scratch                  # an unpacked group that is being changed
    cdef uint8_t* block_of(self, uint32_t group) noexcept nogil
    cdef int tally(self, const uint8_t* block, int64_t sign) noexcept nogil
    cdef int drop_group(self, uint32_t group) noexcept nogil
    cdef uint8_t* resized(self, uint32_t group, uint32_t bytes) except NULL nogil
    cdef int unpack(self, uint32_t group) noexcept nogil
    cdef int pack(self, uint32_t group) except -1 nogil
    cdef int put(self, uint32_t group, const uint8_t* packed, uint32_t bytes) except -1 nogil
    cdef int spread(self) except -1 nogil
    cdef uint32_t group_bytes(self, uint32_t group) noexcept nogil
    cdef uint32_t save_group(self, uint32_t group, uint8_t* out) noexcept nogil
    cdef const char* load_group(self, uint32_t group, const uint8_t* block, uint32_t n) except? NULL nogil
    cdef uint64_t modelled_bytes(self) noexcept nogil
    cdef uint32_t known(self, lpa) except? 0xFFFFFFFF
    cdef uint32_t known_group(self, group) except? 0xFFFFFFFF
