# SlimFTL's two tables; see mapping.pyx.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.mapping cimport Mapping
from flashfs.ftl.hashing.tables cimport Hasher, PackedTable

cdef enum:
    NO_BLOCK = 0xFFFFFF      # in the 24 bits that a VBT entry has for a physical block

cdef enum:                   # Extent.choice: the VBA, and how it was chosen
    CHOSEN_VBA = 0xFFFFFF    # ... there are fewer virtual blocks than a VBT entry can name blocks
    CHOSEN_HID = 24          # from this bit on; 0: the pages are moved, and keep their HIDs
    CHOSEN_SHARED = 1 << 30  # the HID names another VBA (3.4)


@cython.final
cdef class SlimMapping(Mapping):
    cdef readonly PackedTable primary      # HID 0: the LPA is unmapped
    cdef readonly Hasher hasher
    cdef readonly uint32_t virtual_blocks, entry_bits, ppid_bits, ppid_mask
    cdef readonly uint64_t probes, probe_reads, shared_pages
    cdef readonly uint32_t standing        # virtual blocks that have a block
    cdef uint32_t* vbt                     # ~PBA in the low 24 bits, shared count in the high 8; 0: nothing
    cdef uint32_t leaving                  # the VBA whose pages are being moved to other virtual blocks; or NONE
    cdef uint32_t staying_in               # ... the block for those without room elsewhere, or NONE
    cdef dict found                        # recovery: VBA -> blocks with pages of it
    cdef uint32_t* found_in                # ... the VBA of each block, or NONE
    cdef set found_shared
    cdef bint recovering, from_nothing     # ... without a checkpoint
    cdef set half_erased                   # blocks that lost a live page: their erase had begun
    cdef bint exact                        # no LPA was lost to damage: as many pages are live as LPAs are mapped
    cdef uint32_t block_of(self, uint32_t vba) noexcept nogil
    cdef int set_block(self, uint32_t vba, uint32_t block) noexcept nogil
    cdef uint32_t shared_from(self, uint32_t vba) noexcept nogil
    cdef int count_shared(self, uint32_t vba, int change) noexcept nogil
    cdef int leave(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef uint32_t next_live(self, uint32_t home, uint32_t from_distance,
                            uint32_t ppid) except? 0xFFFFFFFE nogil
    cdef uint32_t let_go(self, uint32_t lpa) except? 0xFFFFFFFE nogil
    cdef blocks_with_pages(self, uint32_t vba)
    cdef int require_range(self) except -1
    cdef int require_standing(self) except -1
    cdef uint32_t vba_standing(self, uint32_t block) noexcept nogil
