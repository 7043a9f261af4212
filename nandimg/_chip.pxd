# The chip's C-level interface: what an engine cimports.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    OP_READ = 0
    OP_PROGRAM = 1
    OP_ERASE = 2
    OP_SPARE = 3
    OP_COUNT = 4

cdef enum:
    CAUSES = 16          # causes that the counters tell apart; their names belong to the engine
    NO_DATA_CRC = 0      # data_crc of a page programmed without data: it reads as zeros

# What a page is found to be when it is read.
cdef enum:
    PAGE_ERASED = 0
    PAGE_OK = 1
    PAGE_TORN = 2

# How an interrupted operation leaves its page or block. TEAR_NOTHING and TEAR_WHOLE do for either.
cdef enum:
    TEAR_NOTHING = 0     # power went before it
    TEAR_WHOLE = 1       # it completed, but nobody was told
    TEAR_PREFIX = 2      # program: half the data, a spoilt OOB
    TEAR_DATA_ONLY = 3   # program: the data without its OOB, which reads as erased
    TEAR_OOB_ONLY = 4    # program: the OOB with half its data
    TEAR_HEAD_GONE = 5   # erase: the first half of the pages is gone
    TEAR_TAIL_GONE = 6   # erase: the second half is gone
    TEAR_SPOILT = 7      # erase: no page can be read

cdef enum:
    BLOCK_GOOD = 0
    BLOCK_FACTORY_BAD = 1
    BLOCK_GROWN_BAD = 2


cdef class Nand:
    """What an engine sees of a chip; the chip itself and every fault in front of it have these methods."""
    cdef readonly object geometry
    cdef readonly uint32_t blocks, pages_per_block, page_bytes, oob_bytes, dies, channels
    cdef readonly bint keeps_data
    cdef int64_t program(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data, const uint8_t* oob,
                         int cause, int64_t t_ns, uint32_t* done) except -1 nogil
    cdef int64_t read(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* data, uint8_t* oob, uint8_t* status,
                      int cause, int64_t t_ns) except -1 nogil
    cdef int64_t read_spare(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* oob, uint8_t* status,
                            int cause, int64_t t_ns) except -1 nogil
    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil
    cdef int sync(self, bint durable) except -1 nogil
    cdef uint32_t erases(self, uint32_t block) noexcept nogil
    cdef int health(self, uint32_t block) noexcept nogil
    cdef int retire(self, uint32_t block) except -1 nogil
    cdef int nvram_write(self, uint64_t offset, const uint8_t* data, uint64_t n) except -1 nogil
    cdef int nvram_read(self, uint64_t offset, uint8_t* data, uint64_t n) except -1 nogil
    cdef int boot_write(self, int slot, const uint8_t* data) except -1 nogil
    cdef int boot_read(self, int slot, uint8_t* data) except -1 nogil
    cdef uint64_t count(self, int op, int cause) noexcept nogil


@cython.final
cdef class Chip(Nand):
    cdef readonly object path
    cdef readonly uint32_t stride          # bytes from one page record to the next
    cdef readonly bint readonly
    cdef int fd
    cdef uint32_t record_head              # bytes of a record before its OOB
    cdef uint8_t* base                     # everything before the data region, mapped
    cdef uint64_t base_bytes
    cdef uint8_t* boot
    cdef uint64_t* table                   # block table: one 8-byte entry a block
    cdef uint8_t* nvram
    cdef uint64_t nvram_bytes
    cdef uint8_t* spare
    cdef uint64_t data_at                  # file offset of the data region
    cdef int32_t* next_page                # -1: not known yet
    cdef uint32_t* touched                 # blocks programmed since the last sync
    cdef uint8_t* is_touched
    cdef uint32_t touched_n
    cdef bint doubts                       # pages past their block's synced mark have their data verified
    cdef uint32_t die_mask, channel_mask
    cdef bint die_mask_works
    cdef int64_t read_ns, program_ns, erase_ns, transfer_ns, spare_ns
    cdef int64_t* die_free
    cdef int64_t* channel_free
    cdef uint64_t[OP_COUNT][CAUSES] counts
    cdef release(self)
    cdef uint32_t die_of(self, uint32_t block) noexcept nogil
    cdef uint32_t channel_of(self, uint32_t die) noexcept nogil
    cdef int pread_pages(self, uint32_t ppa, uint32_t n, uint8_t* data) noexcept nogil
    cdef int spoil(self, uint64_t at, const uint8_t* data, uint64_t half) except -1 nogil
    cdef uint8_t* record(self, uint32_t block, uint32_t page) noexcept nogil
    cdef int32_t find_next(self, uint32_t block) noexcept nogil
    cdef uint32_t record_crc(self, uint32_t ppa, const uint8_t* rec) noexcept nogil
    cdef int write_data(self, uint32_t ppa, uint32_t n, const uint8_t* data) except -1 nogil
    cdef int write_record(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob) noexcept nogil
    cdef int write_entry(self, uint32_t block, uint32_t erases, uint32_t synced, int health) noexcept nogil
    cdef uint8_t judge_spare(self, uint32_t block, uint32_t page, bint doubting) noexcept nogil
    cdef int tear_program(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob,
                          int shape) except -1 nogil
    cdef int tear_erase(self, uint32_t block, int shape) except -1 nogil
    cdef bint data_holds(self, uint32_t block, uint32_t page) noexcept nogil
    cdef int64_t breach(self, int op, uint32_t block, uint32_t page, int rule) except -1 nogil
