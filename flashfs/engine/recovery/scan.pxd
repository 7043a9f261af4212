# The first half of a recovery; see scan.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.recovery.found_pages cimport FoundPages
from flashfs.engine.blocks.pool cimport Oob
from flashfs.engine.recovery.spill_array cimport SpillArray
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.trim_index cimport TrimIndex

cdef enum:                   # what is known of a block
    HEADED = 1               # a page of it says what it is
    SCANNED = 2
    TORN_IN = 4              # a page that was scanned cannot be read
    REOPENED = 8             # nothing that the checkpoint says of it holds
    EXCLUDED = 16            # its pages are left out, as the mapping asked
    ORIGIN = 32              # pages of it were moved elsewhere
    UNFINISHED = 64          # ... and others were not
    IN_LOG = 128             # it holds the checkpoint, or metadata that is newer


cdef class Scanner:
    cdef Ssd ssd
    cdef readonly object figures
    cdef readonly list alarms
    cdef object base                       # LoadedCheckpoint or None
    cdef bint based                        # there is one
    cdef bint from_pages                   # it is a fence: mapping and validity come from their pages
    cdef bint collecting                   # ... which are being read: they all count
    cdef bint unknown                      # ... and one of them cannot be read, and does not say which it is
    cdef list broken                       # (kind, number, sequence number) of those that say it, and were durable
    cdef uint64_t base_order               # blocks opened later are newer than what it says
    cdef uint64_t checkpoint_seq           # its sequence number, 0 if there is none
    cdef readonly bint repairs             # a whole checkpoint that does not fit is passed over
    cdef list descriptors, trim_pages, meta_blocks
    cdef list gaps                         # (block, page) of the metadata log: whole at a sync, and not any more
    cdef uint8_t* marks                    # of each block, as above
    cdef uint8_t* streams                  # ... by its pages
    cdef uint64_t* orders                  # ... when it was opened, 0 if no page says so
    cdef uint32_t* next_page               # ... the first page that is not programmed, if it was scanned
    cdef uint32_t* whole                   # ... pages from the first that can be read, likewise
    cdef int64_t* stamp_at                 # ... where in ``stamps`` that of its page 0 is, or would be
    cdef FoundPages entries                   # of user pages
    cdef list owned                        # ... of the pages of each other kind that has an owner, or None
    cdef void* owned_at[8]                 # the same; NULL
    cdef SpillArray stamps                    # the scheme's OOB bytes of every page that was scanned
    cdef TrimIndex trim_index              # the trims since the checkpoint
    cdef uint8_t[256] ended                # of each group that cleaning moved: its last copy was found
    cdef uint32_t newest_group
    cdef uint64_t seq, order, newest_id, hint_id
    cdef uint64_t torn
    cdef bint torn_inside                  # ... and some with whole pages behind them in their block
    cdef uint32_t scanned
    cdef int64_t latest_ns
    cdef uint8_t* page
    cdef int stand_on(self, base) except -1
    cdef bint is_settled                   # whether validity's own pages are, for good, in this go
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
    cdef bint is_displaced(self, uint32_t block, uint32_t page, const Oob* says, uint32_t durable) except -1 nogil
    cdef int disown_first(self, uint32_t block, const Oob* says) except -1 nogil
    cdef int as_before(self, uint32_t block) except -1 nogil
    cdef bint take(self, const Oob* oob, uint32_t ppa) except -1 nogil
    cdef int untake(self, const Oob* oob) except -1 nogil
    cdef int forget_scan(self) except -1
    cdef int spoilt(self, const Oob* oob, uint32_t block, uint32_t page) except -1 nogil
    cdef int miss(self, uint32_t block, uint32_t page, uint32_t durable) except -1 nogil
    cdef int missing(self, uint32_t block, uint32_t page) except -1 nogil
