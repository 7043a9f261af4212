# A page validity log that is recovered from its pages after a crash; see fenced_log.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.parts.validity.validity_log cimport ValidityLog


cdef class FencedLog(ValidityLog):
    cdef bint unread                       # a recovery has not read the log yet
    cdef int fill_up(self) except -1 nogil
    cdef bint lead_chains(self, uint64_t[::1] dead) except -1
    cdef bint leads_on(self, uint32_t block, uint32_t before) noexcept nogil
    cdef uint32_t hold_against(self, const uint64_t[::1] dead) except? 0xFFFFFFFF
    cdef uint32_t count_bits(self, const uint64_t* words) noexcept nogil
