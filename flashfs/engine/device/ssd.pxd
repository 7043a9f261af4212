# The device; schemes and servers cimport it. It is one object, in layers of one file each: Engine, what its parts may
# ask of it; Durable, Writer, Upkeep; and the host's requests.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.device.reader cimport Reader
from flashfs.engine.device.upkeep cimport Upkeep


@cython.final
cdef class Ssd(Upkeep):
    cdef readonly Reader reader
    cdef readonly uint64_t host_read, host_trim, host_remap
    cdef readonly bint ready
    cdef uint8_t* read_oobs                # the OOBs of a block, as read
    cdef uint8_t* edge                     # one page, for partial pages of a request
    cdef const uint64_t* words             # of the next write, a word per page: equal words, equal contents; or NULL
    cdef uint8_t* carried                  # RUN pages for copies, allocated at the first one
    cdef int64_t write(self, const uint32_t* lpas, uint32_t n, const uint8_t* data, int64_t t_ns) except -1 nogil
    cdef int64_t write_past(self, const uint32_t* lpas, uint32_t n, const uint8_t* data, int64_t t_ns) except -1 nogil
    cdef int64_t write_buffered(self, const uint32_t* lpas, uint32_t n, const uint8_t* data,
                                int64_t t_ns) except -1 nogil
    cdef int64_t read(self, const uint32_t* lpas, uint32_t n, uint8_t* data, int64_t t_ns) except -1 nogil
    cdef int64_t trim(self, uint32_t lpa, uint32_t n, int64_t t_ns) except -1 nogil
    cdef uint32_t skip_holes(self, uint32_t lpa, uint32_t n) noexcept nogil
    cdef int flush(self, int64_t t_ns) except -1 nogil
    cdef int64_t settle(self, int64_t t_ns) except -1 nogil
    cdef bint is_mapped(self, uint32_t lpa) except -1 nogil
