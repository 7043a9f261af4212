# The first half of a recovery, which reads flash; see scan.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.recovery.found_pages cimport FoundPages
from flashfs.engine.blocks.pool cimport Oob
from flashfs.engine.recovery.spill_array cimport SpillArray
from flashfs.engine.device.ssd cimport Ssd
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


cdef class Scanner:
    cdef Ssd ssd
    cdef readonly object figures
    cdef readonly list alarms
    cdef object base                       # LoadedCheckpoint or None
    cdef bint based                        # there is a base
    cdef bint from_pages                   # the base is a fence: mapping and validity are rebuilt from their pages
    cdef bint collecting                   # ... and those pages are being read: all of them count
    cdef bint unknown                      # ... and one of them cannot be read or identified
    cdef list broken                       # (kind, id, sequence number, PPA) of durable ones whose data cannot be read
    cdef uint64_t base_order               # blocks opened later are newer than the base
    cdef uint64_t checkpoint_seq           # the base's sequence number, 0 without a base
    cdef readonly bint repairs             # skip a whole checkpoint that does not fit
    cdef list descriptors, trim_pages, meta_blocks
    cdef list gaps                         # (block, page) of the metadata log: whole at a sync, unreadable now
    cdef uint8_t* marks                    # per block, the bits above
    cdef uint8_t* streams                  # ... its stream, from its pages
    cdef uint64_t* orders                  # ... its order, 0 if not known
    cdef uint32_t* next_page               # ... if scanned: the first page that is not programmed
    cdef uint32_t* whole                   # ... if scanned: how many pages from the first on can be read
    cdef int64_t* stamp_at                 # ... index in ``stamps`` of its page 0
    cdef FoundPages entries                   # the found user pages
    cdef list owned                        # ... the found pages of other kinds with an owner, or None
    cdef void* owned_at[8]                 # the same; NULL
    cdef SpillArray stamps                    # the scheme's OOB bytes of every scanned page
    cdef TrimIndex trim_index              # the trims since the checkpoint
    cdef uint8_t[256] ended                # per group of a move: its last copy was found
    cdef uint32_t newest_group
    cdef uint64_t seq, order, newest_id, hint_id
    cdef uint64_t torn
    cdef uint32_t headless                 # blocks whose first page was flushed and cannot be read
    cdef bint torn_inside                  # ... some with whole pages after them in their block
    cdef uint32_t scanned
    cdef int64_t latest_ns
    cdef uint8_t* page
    cdef int stand_on(self, base) except -1
    cdef bint is_settled                   # validity's own pages are settled since the last load
    cdef int full_read(self, uint32_t ppa, Oob* oob) except -1 nogil
    cdef int spare_read(self, uint32_t block, uint32_t page, Oob* oob) except -1 nogil
    cdef const uint8_t* stamp_of(self, uint32_t ppa) noexcept nogil
    cdef load_base(self)
    cdef int take_head(self, uint32_t block) except -1 nogil
    cdef int read_log(self, uint32_t block, uint64_t order) except -1 nogil
    cdef int take_log_page(self, const Oob* oob, uint32_t ppa) except -1 nogil
    cdef int log_gap(self, uint32_t block, uint32_t page) except -1 nogil
    cdef missing_metadata(self)
    cdef int take_fence(self) except -1
    cdef int scan_all(self) except -1 nogil
    cdef int scan_block(self, uint32_t block, uint32_t page) except -1 nogil
    cdef bint is_headed(self, uint64_t order) noexcept nogil
    cdef bint is_displaced(self, uint32_t block, uint32_t page, const Oob* says, uint32_t durable) except -1 nogil
    cdef int disown_first(self, uint32_t block, const Oob* says) except -1 nogil
    cdef int as_before(self, uint32_t block) except -1 nogil
    cdef bint take(self, const Oob* oob, uint32_t ppa) except -1 nogil
    cdef int untake(self, const Oob* oob) except -1 nogil
    cdef int forget_scan(self) except -1
    cdef int spoilt(self, const Oob* oob, uint32_t block, uint32_t page) except -1 nogil
    cdef int miss(self, uint32_t block, uint32_t page, uint32_t durable) except -1 nogil
    cdef int missing(self, uint32_t block, uint32_t page) except -1 nogil
