# Battery-backed state of a demand-paged mapping and of validity; see map_battery.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.parts.battery.battery cimport Battery
from flashfs.parts.defaults.page_bitmap cimport PageBitmap
from flashfs.engine.contract.engine cimport Engine


cdef enum:
    WAITING = 0              # a recovery is not finished: the words must stay, it may need them again
    READY = 1                # nothing is kept yet; the first change begins it
    KEPT = 2                 # every change is kept
    REFUSED = 3              # nothing is kept, and the words may not be believed


cdef inline uint64_t named_by(uint32_t ppa) noexcept nogil:
    """A page's share of the sum over all pages that are named. It is a hash, so two sets of pages hardly ever have the
    same sum."""
    cdef uint64_t x = (<uint64_t> ppa + 1) * <uint64_t> 0x9E3779B97F4A7C15
    x = (x ^ x >> 32) * <uint64_t> 0xD6E8FEB86659FD93
    return x ^ x >> 32


cdef struct Places:                        # words given out one by one to entries or pointers
    uint64_t at
    uint32_t n
    uint32_t cursor                        # where a free one is looked for


cdef class MapBattery


cdef class KeptValidity:
    cdef readonly MapBattery battery
    cdef bint held                         # a checkpoint is being written: what it changes waits until it is durable
    cdef uint64_t sum_of_live(self) except? 0xFFFFFFFFFFFFFFFE
    cdef int save_all(self) except -1
    cdef int hold(self) except -1
    cdef int let_go(self, list kept, bint whole) except -1


cdef class MapBattery:
    cdef Engine ssd
    cdef readonly KeptValidity validity    # the battery's view of the validity store
    cdef readonly Battery words
    cdef readonly object region
    cdef readonly int state
    cdef readonly object why               # why nothing is kept, or None
    cdef readonly uint32_t slots, places   # words for the cache's slots and for pending entries
    cdef uint32_t pages                    # entries of the directory in half a word each
    cdef bint off, for_good, stale
    cdef uint64_t names                    # the sum over the user pages that the mapping names
    cdef public bint named                 # ... and whether it is known
    cdef uint64_t blocks_at, bits_at, ppas_at, slots_at, places_at
    cdef Places pending, pointers          # for pending entries, and for pointers of a directory in flash
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
    cdef uint32_t put_pointer(self, uint32_t place, uint32_t id, uint32_t ppa) except? 0xFFFFFFFE nogil
    cdef int clear_pointer(self, uint32_t place) except -1 nogil
    cdef uint32_t put_in(self, Places* where, uint32_t place, uint32_t key, uint32_t value,
                         str what) except? 0xFFFFFFFE nogil
    cdef int put_opened(self, uint32_t block) except -1 nogil
    cdef int put_validity(self, uint64_t word, uint64_t value) except -1 nogil
    cdef int clear_validity(self, uint64_t first, uint64_t n) except -1 nogil
    cdef uint64_t validity_word(self, uint64_t word) noexcept nogil


cdef class KeptBitmap(KeptValidity):
    cdef SavedBitmap bitmap


cdef class SavedBitmap(PageBitmap):
    cdef readonly MapBattery battery
    cdef KeptBitmap kept
    cdef int keep(self, uint32_t block, uint32_t word) except -1 nogil
    cdef int put_again(self, const uint32_t* ppas, uint32_t n) except -1 nogil
