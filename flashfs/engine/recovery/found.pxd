# What a recovery has found; see found.pyx.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport Oob
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found_pages cimport FoundPages
from flashfs.engine.recovery.spill_array cimport SpillArray
from flashfs.engine.recovery.trim_index cimport TrimIndex

cdef enum:                   # marks of a block
    HEADED = 1               # a page of it gave its stream and order
    SCANNED = 2
    TORN_IN = 4              # a scanned page cannot be read, or one that a record names: it is not filled further
    REOPENED = 8             # what the checkpoint says about it is outdated
    EXCLUDED = 16            # its pages are left out: recovery_conflicts
    ORIGIN = 32              # pages of it were moved elsewhere
    UNFINISHED = 64          # ... and others were not: an unfinished move
    IN_LOG = 128             # it holds the checkpoint, or newer metadata


@cython.final
cdef class Found:
    cdef Ssd ssd
    cdef readonly object figures
    cdef readonly list alarms
    cdef object doubted                    # the first error of a part's step
    # the checkpoint that the recovery is based on
    cdef object base                       # LoadedCheckpoint or None
    cdef object fence                      # its mark of where the scan begins, if the base is a fence
    cdef bint based                        # there is a base
    cdef bint from_pages                   # the base is a fence: mapping and validity are rebuilt from their pages
    cdef bint collecting                   # ... and those pages are being read: all of them count
    cdef bint unknown                      # ... and one of them cannot be read or identified
    cdef bint spared                       # the mapping is complete without a scan: none was done
    cdef bint is_settled                   # validity's own pages are settled since the last load
    cdef readonly bint repairs             # skip a whole checkpoint that does not fit
    cdef uint64_t base_order               # blocks opened later are newer than the base
    cdef uint64_t checkpoint_seq           # the base's sequence number, 0 without a base
    # of each block
    cdef uint8_t* marks                    # the bits above
    cdef uint8_t* streams                  # its stream, from its pages
    cdef uint64_t* orders                  # its order, 0 if not known
    cdef uint32_t* next_page               # if scanned: the first page that is not programmed
    cdef uint32_t* whole                   # ... how many pages from the first on can be read
    cdef int64_t* stamp_at                 # ... index in ``stamps`` of its page 0
    cdef uint32_t shift                    # log2 of pages per block; 0: not a power of two
    # pages and trims
    cdef FoundPages entries                # the found user pages
    cdef list owned                        # ... the found pages of other kinds with an owner, or None
    cdef void* owned_at[8]                 # the same; NULL
    cdef SpillArray stamps                 # the scheme's OOB bytes of every scanned page
    cdef TrimIndex trim_index              # the trims since the checkpoint
    cdef list broken                       # (kind, id, sequence number, PPA) of durable ones whose data cannot be read
    cdef uint8_t[256] ended                # per group of a move: its last copy was found
    # the newest of each number
    cdef uint32_t newest_group
    cdef uint64_t seq, order, newest_id, hint_id
    # what was counted
    cdef uint64_t torn
    cdef uint32_t scanned                  # blocks
    cdef uint32_t headless                 # blocks whose first page was flushed and cannot be read
    cdef bint torn_inside                  # some torn pages have whole ones after them in their block
    # how pages are read
    cdef int64_t latest_ns
    cdef uint8_t* page
    cdef int stand_on(self, base) except -1
    cdef load_checkpoint(self, uint32_t ppa)
    cdef int full_read(self, uint32_t ppa, Oob* oob) except -1 nogil
    cdef int spare_read(self, uint32_t block, uint32_t page, Oob* oob) except -1 nogil
    cdef const uint8_t* stamp_of(self, uint32_t ppa) noexcept nogil
    cdef int mark(self, uint32_t block, uint8_t marks) noexcept nogil
    cdef int unmark(self, uint32_t block, uint8_t marks) noexcept nogil
    cdef bint is_marked(self, uint32_t ppa, uint8_t mark) noexcept nogil
    cdef bint is_of(self, uint32_t ppa, uint32_t lpa, uint64_t seq) except -1 nogil
    cdef load_base(self)
    cdef give_up(self, why)
    cdef int forget_scan(self) except -1
    cdef int missing(self, uint32_t block, uint32_t page) except -1 nogil
