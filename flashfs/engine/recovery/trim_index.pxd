# The trims since the checkpoint, for recovery; see trim_index.pyx.
cimport cython
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.device.metalog cimport TrimRecord
from flashfs.engine.recovery.spill_array cimport SpillArray

cdef struct Begun:                         # a trim that begins at the current LPA or before it
    uint64_t seq, end


@cython.final
cdef class TrimIndex:
    cdef SpillArray records                   # by sequence number, once sorted
    cdef SpillArray by_lpa
    cdef uint64_t at                       # index in ``by_lpa`` of the next trim that begins after the current LPA
    cdef SpillArray begun                     # a heap of Begun, the newest on top
    cdef uint64_t count(self) noexcept nogil
    cdef TrimRecord* record(self, uint64_t i) noexcept nogil
    cdef int add(self, uint64_t seq, uint32_t lpa, uint32_t n) except -1 nogil
    cdef int sort(self) except -1 nogil
    cdef int begin(self) noexcept nogil
    cdef uint64_t newest(self, uint32_t lpa) except? 0xFFFFFFFFFFFFFFFF nogil
    cdef Begun* top(self) noexcept nogil
    cdef int release(self) noexcept
