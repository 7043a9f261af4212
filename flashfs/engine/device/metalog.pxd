from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.engine cimport Engine


cdef struct TrimRecord:
    uint32_t lpa, n
    uint64_t seq


cdef class MetaLog:
    cdef readonly Engine ssd
    cdef readonly uint32_t block           # the metadata block being written, or NONE
    cdef readonly list blocks              # all that hold the checkpoint and what follows it, oldest first
    cdef readonly uint64_t checkpoint_id
    cdef readonly uint32_t descriptor_ppa
    cdef readonly uint32_t checkpoint_pages, checkpoint_blocks, log_blocks, log_blocks_most
    cdef public uint32_t fill_least        # pages in a row of one fill that are not programmed; 0: program all
    cdef uint64_t saved_most               # the largest size of a checkpoint's sections, in bytes
    cdef readonly uint32_t pending_n, pending_room
    cdef readonly uint64_t checkpoints_n, trim_pages_n
    cdef TrimRecord* pending
    cdef uint8_t* page
    cdef uint8_t* oob
    cdef uint32_t append(self, int kind, uint32_t lpa, uint64_t seq, int flags, const uint8_t* data,
                         int cause) except? 0xFFFFFFFE nogil
    cdef uint32_t put(self, bytes raw, uint32_t lpa, uint64_t identity, int flags) except? 0xFFFFFFFE
    cdef int take_up(self, uint32_t block) except -1
    cdef uint32_t room(self) noexcept nogil
    cdef int note_trim(self, uint32_t lpa, uint32_t n, uint64_t seq) noexcept nogil
    cdef bint extends_trim(self, uint32_t lpa, uint64_t seq) noexcept nogil
    cdef int log_trims(self) except -1 nogil
