from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.ssd cimport Ssd
from flashfs.engine.pool cimport Oob

cdef struct Entry:
    uint64_t seq, order
    uint32_t lpa, ppa, stamp               # stamp: index of the scheme's OOB bytes
    uint8_t flags


cdef class Scanner:
    cdef Ssd ssd
    cdef readonly object figures
    cdef readonly list alarms
    cdef object base                       # LoadedCheckpoint or None
    cdef readonly bint repairs             # a whole checkpoint that does not fit is passed over
    cdef list heads                        # per block: None or (kind, order, stream, scheme bytes)
    cdef list descriptors, trim_pages, records, meta_blocks
    cdef list gaps                         # (block, page) of the metadata log: whole at a sync, and not any more
    cdef dict whole                        # of the blocks that were scanned: pages from the first that can be read
    cdef dict next_page                    # of the blocks that were scanned
    cdef set reopened, torn_in
    cdef Entry* entries
    cdef uint32_t n_entries, room
    cdef bytearray stamps
    cdef uint64_t seq, order, newest_id, hint_id
    cdef int64_t latest_ns
    cdef bytearray page
    cdef object full_read(self, uint32_t ppa, Oob* oob)
    cdef int spare_read(self, uint32_t block, uint32_t page, Oob* oob) except -1
    cdef load_base(self)
    cdef head_of(self, uint32_t block)
    cdef missing_metadata(self)
    cdef scan_block(self, uint32_t block, uint32_t page)
    cdef miss(self, uint32_t block, uint32_t page, uint32_t durable)
    cdef missing(self, uint32_t block, uint32_t page)
    cdef int add_entry(self, const Oob* oob, uint32_t ppa) except -1
