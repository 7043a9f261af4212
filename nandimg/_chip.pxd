# The chip itself; an engine cimports nandimg._nand.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from nandimg._clock cimport Timeline
from nandimg._nand cimport CAUSES, OP_COUNT, Nand

cdef extern from *:
    struct guarded_tables:   # in guard.h, which only the chip needs
        int lost

cdef enum:
    LAST_FAILED = 2          # is_touched: the block's last program failed, and its page is spoilt

cdef inline uint32_t erase_begun(uint32_t epoch) noexcept nogil:
    """The value that replaces the checksum in the record of a page that an interrupted erase damaged; ``epoch`` is its
    block's epoch then."""
    return epoch ^ <uint32_t> 0xE5A5C3B7


@cython.final
cdef class Chip(Nand):
    cdef readonly object path
    cdef readonly uint32_t stride          # bytes from one page record to the next
    cdef readonly bint readonly
    cdef int fd
    cdef uint32_t record_head              # bytes of a record before its OOB
    cdef uint8_t* base                     # everything before the data region, mapped
    cdef uint64_t base_bytes
    cdef guarded_tables* tables            # reports that a page of the mapping is gone; NULL for a chip in memory
    cdef bint is_lost                      # a page is gone, or the file was truncated: no change is accepted any more
    cdef uint8_t* boot
    cdef uint64_t* table                   # block table: one 8-byte entry per block
    cdef uint8_t* nvram_base
    cdef uint64_t nvram_bytes
    cdef dict regions                      # of the NVRAM: name -> (offset, bytes)
    cdef int64_t nvram_read_ns, nvram_write_ns
    cdef Timeline nvram_time
    cdef uint8_t* spare
    cdef uint64_t data_at                  # file offset of the data region
    cdef const uint8_t* data_map           # the data region, mapped for reading; NULL if that failed
    cdef uint64_t data_bytes
    cdef int32_t* next_page                # -1: not known yet
    cdef uint32_t* touched                 # blocks programmed since the last sync
    cdef uint8_t* is_touched
    cdef uint8_t* is_renewed               # blocks erased since the image was opened
    cdef uint8_t* is_blank                 # blocks whose records are holes of the file: reading them would use memory
    cdef uint32_t touched_n
    cdef uint32_t* homes                   # of an unsummed chip: the place of a block's content, in blocks, or NO_HOME
    cdef uint32_t* spare_homes             # ... free places, whose blocks have no content any more
    cdef uint32_t homes_n, spare_homes_n
    cdef uint32_t empty_homes_n            # the first so many of the free places take no memory
    cdef bint doubts                       # pages past their block's synced mark have their data verified
    cdef uint32_t die_mask, channel_mask
    cdef bint die_mask_works
    cdef readonly bint unsummed            # page records have no checksum: it is in memory and keeps no data
    cdef int64_t read_ns, program_ns, erase_ns, transfer_ns, spare_ns
    cdef int64_t die_least_ns              # the shortest time that an operation keeps a die busy
    cdef Timeline* die_time
    cdef Timeline* channel_time
    cdef uint8_t* one_page                 # data that are read only to be verified
    cdef uint64_t[OP_COUNT][CAUSES] counts
    cdef uint8_t* held                     # for sparse tables: a bit per 64 KiB piece of the file: has disk blocks
    cdef int64_t charge_nvram(self, int op, uint64_t lines, int cause, int64_t t_ns) noexcept nogil
    cdef release(self)
    cdef uint8_t* home(self, uint32_t block, uint32_t page) noexcept nogil
    cdef int read_home(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* data) noexcept nogil
    cdef int write_home(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data) noexcept nogil
    cdef int give_back(self, uint32_t block) noexcept nogil
    cdef int take_memory(self, uint32_t block) noexcept nogil
    cdef uint32_t die_of(self, uint32_t block) noexcept nogil
    cdef uint32_t channel_of(self, uint32_t die) noexcept nogil
    cdef int pread_pages(self, uint32_t ppa, uint32_t n, uint8_t* data) noexcept nogil
    cdef uint8_t* record(self, uint32_t block, uint32_t page) noexcept nogil
    cdef uint32_t mark(self, uint32_t block) noexcept nogil
    cdef int32_t find_next(self, uint32_t block) noexcept nogil
    cdef int64_t view(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t** data, uint8_t* oob, int cause,
                      int64_t t_ns, uint32_t ahead) except -1 nogil
    cdef const uint8_t* peek(self, uint32_t block, uint32_t page, uint8_t* oob, int cause,
                             int64_t* t_ns) except? NULL nogil
    cdef int64_t time_read(self, uint32_t block, uint32_t n, int64_t t_ns) noexcept nogil
    cdef int64_t count_read(self, uint32_t block, uint32_t n, int cause, int64_t t_ns) noexcept nogil
    cdef uint8_t take_page(self, uint32_t block, uint32_t page, uint8_t* data, uint8_t* oob) noexcept nogil
    cdef uint32_t record_crc(self, uint32_t ppa, const uint8_t* rec) noexcept nogil
    cdef uint32_t erases_after(self, uint32_t block) noexcept nogil
    cdef int write_data(self, uint32_t ppa, uint32_t n, const uint8_t* data) except -1 nogil
    cdef int hold_records(self, uint32_t block, uint32_t page, uint32_t n) except -1 nogil
    cdef int write_record(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob) noexcept nogil
    cdef int write_plain_records(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* oob) noexcept nogil
    cdef bint take_plain(self, const uint8_t* rec, uint32_t now, uint8_t* oob) noexcept nogil
    cdef int write_entry(self, uint32_t block, uint32_t erases, uint32_t synced, int health) noexcept nogil
    cdef uint8_t judge_spare(self, uint32_t block, uint32_t page, bint doubting) noexcept nogil
    cdef uint8_t take_again(self, uint32_t block, uint32_t page, uint8_t* data, uint8_t* oob) noexcept nogil
    cdef bint data_holds(self, uint32_t block, uint32_t page) noexcept nogil
    cdef int look(self, bint at_size) except -1 nogil
    cdef int64_t breach(self, int op, uint32_t block, uint32_t page, int rule) except -1 nogil
