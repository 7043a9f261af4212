# What of the device programs the host's pages.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.device.buffer cimport WriteBuffer
from flashfs.engine.device.durable cimport Durable


cdef class Writer(Durable):
    cdef readonly WriteBuffer buffer
    cdef uint32_t in_flight                # pages of the request that took sequence numbers and are being programmed
    cdef uint32_t appended                 # pages of the last ``append`` that are bound
    cdef uint8_t append_flags              # FLAG_ of the pages of the next ``append`` only
    cdef uint32_t* olds
    cdef uint64_t* seqs
    cdef uint32_t* run_ppas                # of a run that is being programmed, for ``Runs.ends``
    cdef int64_t* known                    # virtual time at which each page's place is known
    cdef int drain(self) except -1 nogil
    cdef int drain_in_order(self) except -1 nogil
    cdef int64_t append(self, int stream, int kind, const uint32_t* lpas, const uint64_t* seqs, uint32_t n,
                        const uint8_t* data, int cause, int64_t t_ns, int64_t* ready) except -1 nogil
    cdef uint32_t secure(self, int stream, const uint32_t* lpas, uint32_t n,
                         int64_t* known) except? 0xFFFFFFFF nogil
    cdef uint32_t secure_trim(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil
    cdef uint32_t room_for(self, uint32_t n, uint32_t reports, int stream) except? 0xFFFFFFFF nogil
