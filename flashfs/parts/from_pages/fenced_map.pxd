# A cache of entries that is recovered from its pages after a crash; see fenced_map.pyx.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.parts.paged.cached_map cimport CachedMap


cdef class FencedMap(CachedMap):
    cdef uint32_t* was                     # the translation page that is being replaced, as it is in flash
    cdef list passed                       # translation pages to write: a recovery passed over a version of theirs
    cdef uint32_t mistaken                 # fences until no clean entry is left that a recovery took for dirty
    cdef bint outdoing                     # a page of ``passed`` is being written, whatever it says
    cdef object aged_lpas, aged_ppas       # pending entries at the last fence
    cdef readonly uint64_t fence_writes    # translation pages written because a fence wanted it
    cdef readonly uint64_t spared_writes   # ... not written, because flash had the same content
    cdef bint has_aged(self, uint32_t page) noexcept nogil
    cdef int age(self) except -1
