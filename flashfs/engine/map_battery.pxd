# What a battery keeps of a demand-paged mapping and of validity; see map_battery.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.engine.battery cimport Battery
from flashfs.engine.defaults cimport PageBitmap
from flashfs.engine.parts cimport Engine


cdef enum:
    WAITING = 0              # a recovery is not through: what is there must stay, it may be needed again
    READY = 1                # nothing is kept yet; the first change begins it
    KEPT = 2                 # every change is kept
    REFUSED = 3              # nothing is kept, and nothing that is there may be believed


cdef inline uint64_t named_by(uint32_t ppa) noexcept nogil:
    """A page's share of the sum over all that are named: hashes, so that no two sets of pages are likely to share a
    sum."""
    cdef uint64_t x = (<uint64_t> ppa + 1) * <uint64_t> 0x9E3779B97F4A7C15
    x = (x ^ x >> 32) * <uint64_t> 0xD6E8FEB86659FD93
    return x ^ x >> 32


cdef class MapBattery:
    cdef Engine ssd
    cdef SavedBitmap bitmap
    cdef readonly Battery words
    cdef readonly object region
    cdef readonly int state
    cdef readonly object why               # it is REFUSED, or None
    cdef readonly uint32_t slots, places   # words for the cache's slots and for pending entries
    cdef uint32_t pages                    # translation pages there can be
    cdef bint off, for_good, stale
    cdef uint64_t names                    # the sum over the user pages that the mapping names
    cdef uint64_t blocks_at, bits_at, ppas_at, slots_at, places_at
    cdef uint32_t cursor                   # where a free place is looked for
    cdef int64_t put(self, uint64_t index, uint64_t value) except -1 nogil
    cdef int refuse(self, bint for_good) except -1 nogil
    cdef int disown(self) except -1 nogil
    cdef int name(self, uint64_t gain) except -1 nogil
    cdef int note_trim(self) except -1 nogil
    cdef int put_page(self, uint32_t page, uint32_t ppa) except -1 nogil
    cdef int put_slot(self, uint32_t slot, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef int clear_slot(self, uint32_t slot) except -1 nogil
    cdef uint32_t put_place(self, uint32_t place, uint32_t lpa, uint32_t ppa) except? 0xFFFFFFFE nogil
    cdef int clear_place(self, uint32_t place) except -1 nogil
    cdef int put_bits(self, uint32_t block, uint32_t word, uint64_t bits) except -1 nogil
    cdef uint64_t sum_of_live(self) noexcept nogil


cdef class SavedBitmap(PageBitmap):
    cdef readonly MapBattery battery
    cdef bint held                         # what dies now is kept alive there until a checkpoint is durable
    cdef int keep(self, uint32_t block, uint32_t word) except -1 nogil
    cdef int hold(self) noexcept nogil
    cdef int let_go(self, const uint32_t* ppas, uint32_t n) except -1 nogil
