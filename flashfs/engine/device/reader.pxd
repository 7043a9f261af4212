from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.device.buffer cimport WriteBuffer
from flashfs.engine.device.cache cimport DataCache
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport Oob


cdef class Reader:
    cdef Engine ssd
    cdef WriteBuffer buffer
    cdef DataCache cache
    cdef readonly uint64_t extra_reads, retried_reads, unreadable, holes
    cdef uint32_t oob_bytes, page_bytes, pages_per_block
    cdef uint8_t* oobs                     # RUN pages' OOB, as read
    cdef uint8_t* one_oob                  # OOB of a single page, so that the run's stay intact
    cdef uint8_t* asked_oob                # ... of the pages that is_displaced reads
    cdef uint8_t* status
    cdef uint32_t* ppas
    cdef int64_t* ready                    # virtual time at which each place is known
    cdef int64_t read(self, const uint32_t* lpas, uint32_t n, uint8_t* data, int64_t t_ns) except -1 nogil
    cdef bint is_held(self, uint32_t lpa) noexcept nogil
    cdef bint take_held(self, uint32_t lpa, uint8_t* into) noexcept nogil
    cdef int64_t read_flash(self, const uint32_t* lpas, uint32_t n, uint8_t* data, int64_t t_ns) except -1 nogil
    cdef int64_t read_known(self, const uint32_t* lpas, uint32_t n, uint8_t* data) except -1 nogil
    cdef int judge(self, uint32_t lpa, uint32_t ppa, uint8_t status, const Oob* oob) except -1 nogil
    cdef bint is_displaced(self, uint32_t block, uint64_t order) except -1 nogil
    cdef int64_t read_run(self, const uint32_t* lpas, uint32_t ppa, uint32_t n, uint8_t* data,
                          int64_t t_ns) except -1 nogil
    cdef int64_t read_again(self, uint32_t lpa, uint32_t ppa, int found, const uint8_t* oob, uint8_t* data,
                            int64_t t_ns) except -1 nogil
    cdef int64_t read_one(self, uint32_t lpa, uint32_t ppa, uint8_t* data, int64_t t_ns, int* found) except -1 nogil
