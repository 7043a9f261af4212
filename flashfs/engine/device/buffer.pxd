from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from nandimg._nand cimport Nand


cdef class WriteBuffer:
    cdef readonly Nand nand
    cdef readonly uint32_t slots, used, held      # used includes dropped slots; held does not
    cdef readonly bint in_nvram, in_order  # in_order: it is emptied in LPA order
    cdef uint32_t page_bytes, mask
    cdef uint64_t nvram_from               # where its region of the NVRAM begins
    cdef uint32_t* lpa_of                  # NONE: dropped
    cdef uint64_t* seq_of
    cdef int64_t* ready_ns                 # when the program that last emptied the slot ends
    cdef uint32_t* table                   # open addressing, slot + 1
    cdef uint8_t* data
    cdef uint64_t* turns                   # LPA << 32 | slot, in the order of emptying; this and run_* only if in_order
    cdef uint32_t* run_lpas                # the pages that gather copied together
    cdef uint64_t* run_seqs
    cdef int64_t* run_ready
    cdef uint8_t* run_data
    cdef uint32_t run_most
    cdef uint8_t* page(self, uint32_t slot) noexcept nogil
    cdef uint32_t find(self, uint32_t lpa) noexcept nogil
    cdef uint32_t add(self, uint32_t lpa, uint64_t seq) noexcept nogil
    cdef int64_t settle(self, uint32_t slot, int cause, int64_t t_ns) except -1 nogil
    cdef bint drop(self, uint32_t lpa) noexcept nogil
    cdef int let_go(self, uint32_t first, uint32_t n) noexcept nogil
    cdef int clear(self) noexcept nogil
    cdef uint32_t sort(self) noexcept nogil
    cdef int gather(self, uint32_t first, uint32_t n) noexcept nogil
    cdef int gathered(self, uint32_t first, uint32_t n) noexcept nogil
