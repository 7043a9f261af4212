# Recovery from metadata pages; see rebuild.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.recovery_base cimport RecoveryBase


cdef class Rebuilder(RecoveryBase):
    cdef Ssd ssd
    cdef object versions                   # (numbers, sequence numbers, PPAs) of translation pages
    cdef list passed                       # ... of which a version that is not durable was passed over
    cdef uint64_t since                    # reports of validity up to that sequence number are programmed
    cdef int check_heads(self) except -1
    cdef int ask_flushed_pages(self, uint32_t block) except -1
    cdef bint ask_later_pages(self, uint32_t block) except -1
    cdef int read_kind(self, int kind) except -1
    cdef versions_of(self, int kind)
    cdef int judge_broken(self) except -1
    cdef uint64_t name_lpas(self, uint64_t[::1] bits, uint32_t words, bint hurt) except? 0xFFFFFFFFFFFFFFFF
    cdef bint is_of_another(self, uint32_t ppa, uint32_t lpa) except -1
    cdef set other_streams(self)
    cdef int mark_recent(self) except -1
