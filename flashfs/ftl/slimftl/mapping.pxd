# SlimFTL's two tables; see mapping.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.parts cimport Mapping

cdef enum:
    HIDS = 63                # 1..63; 0 says that the LPA was never written
    NO_BLOCK = 0xFFFFFF      # in the 24 bits that a VBT entry has for a physical block

cdef enum:                   # Extent.choice: the VBA, and for pages of the host how it was come by
    CHOSEN_VBA = 0xFFFFFF    # ... there are fewer virtual blocks than a VBT entry can name blocks
    CHOSEN_HID = 24          # from this bit on; 0: the pages are moved, and keep theirs
    CHOSEN_SHARED = 1 << 30  # the HID names another VBA (3.4)


cdef class SlimMapping(Mapping):
    cdef readonly uint32_t virtual_blocks, entry_bits, ppid_bits, shift
    cdef readonly bint md5
    cdef readonly uint64_t probes, probe_reads, shared_pages, table_bytes
    cdef uint8_t* table
    cdef uint32_t* vbt                     # PBA in the low 24 bits, shared count in the high 8
    cdef uint64_t digest_key
    cdef uint64_t[2] digest
    cdef uint64_t candidates_key
    cdef uint32_t[64] candidates           # [1..63]
    cdef dict found                        # recovery: VBA -> blocks with pages of it
    cdef uint32_t* found_in                # ... and of each block the VBA, or NONE
    cdef set found_shared
    cdef bint recovering, from_nothing     # ... without a checkpoint
    cdef set half_erased                   # blocks with a live page that is gone: their erase had begun
    cdef bint exact                        # no LPA was lost to damage: as many pages are live as LPAs are mapped
    cdef uint32_t entry(self, uint32_t lpa) noexcept nogil
    cdef int set_entry(self, uint32_t lpa, uint32_t hid, uint32_t ppid) noexcept nogil
    cdef uint32_t block_of(self, uint32_t vba) noexcept nogil
    cdef int set_block(self, uint32_t vba, uint32_t block) noexcept nogil
    cdef uint32_t shared_from(self, uint32_t vba) noexcept nogil
    cdef int count_shared(self, uint32_t vba, int change) noexcept nogil
    cdef uint32_t vba_of(self, uint32_t lpa, int hid) noexcept nogil
    cdef int find_digest(self, uint64_t key) noexcept nogil
    cdef int find_candidates(self, uint32_t lpa) noexcept nogil
    cdef uint32_t next_live(self, uint32_t home, uint32_t from_distance,
                            uint32_t ppid) except? 0xFFFFFFFE nogil
    cdef uint32_t let_go(self, uint32_t lpa) except? 0xFFFFFFFE nogil
    cdef blocks_with_pages(self, uint32_t vba)
    cdef int require_range(self) except -1
    cdef int require_standing(self) except -1
    cdef uint64_t count_mapped(self) noexcept nogil
    cdef uint32_t vba_standing(self, uint32_t block) noexcept nogil
