# What an engine sees of a chip, and the numbers that both sides use.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    OP_READ = 0
    OP_PROGRAM = 1
    OP_ERASE = 2
    OP_SPARE = 3
    OP_NVRAM_READ = 4    # these two are counted in lines of the NVRAM
    OP_NVRAM_WRITE = 5
    OP_COUNT = 6

cdef enum:
    NVRAM_WORD = 8       # bytes; a store of one word is atomic
    NVRAM_LINE = 64      # bytes; the unit in which accesses are charged
    NVRAM_PAGE = 4096    # bytes; kept or lost as a whole when the host dies

cdef enum:
    CAUSES = 16          # causes that are counted separately; the engine names them
    NO_DATA_CRC = 0      # data_crc of a page programmed without data: it reads as zeros

# The status of a page that was read.
cdef enum:
    PAGE_ERASED = 0
    PAGE_OK = 1
    PAGE_TORN = 2

# How an interrupted operation leaves its page or block. TEAR_NOTHING and TEAR_WHOLE are for programs and erases.
cdef enum:
    TEAR_NOTHING = 0     # power went before it
    TEAR_WHOLE = 1       # it completed, but was not acknowledged
    TEAR_PREFIX = 2      # program: half the data, a spoilt OOB
    TEAR_DATA_ONLY = 3   # program: the data without its OOB, which reads as erased
    TEAR_OOB_ONLY = 4    # program: the OOB with half its data
    TEAR_HEAD_GONE = 5   # erase: the first half of the pages is erased
    TEAR_TAIL_GONE = 6   # erase: the second half is erased
    TEAR_SPOILT = 7      # erase: no page can be read
    TEAR_PREFIX_OLD = 8  # program: half the data over what the file held there before, a spoilt OOB
    TEAR_PREFIX_FF = 9   # program: half the data, then 0xFF, a spoilt OOB
    TEAR_PREFIX_RANDOM = 10  # program: half the data, then noise, a spoilt OOB
    TEAR_UNSTABLE = 11   # erase: every page looks erased, but a page programmed after it is lost once it was read

cdef enum:
    BLOCK_GOOD = 0
    BLOCK_FACTORY_BAD = 1
    BLOCK_GROWN_BAD = 2


cdef class Nand:
    """The chip as an engine sees it; the chip itself and every fault in front of it have these methods."""
    cdef readonly object geometry
    cdef readonly uint32_t blocks, pages_per_block, page_bytes, oob_bytes, dies, channels
    cdef readonly uint32_t paired_pages    # 0; or how far a page's lower page lies before it (Geometry.lower_page)
    cdef readonly bint keeps_data
    cdef int64_t program(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data, const uint8_t* oob,
                         int cause, int64_t t_ns, uint32_t* done) except -1 nogil
    cdef int64_t read(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* data, uint8_t* oob, uint8_t* status,
                      int cause, int64_t t_ns) except -1 nogil
    cdef int64_t read_some(self, uint32_t block, const uint32_t* pages, uint32_t n, uint8_t* data, uint8_t* oob,
                           uint8_t* status, int cause, int64_t t_ns, int64_t* ready) except -1 nogil
    cdef int64_t read_spare(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* oob, uint8_t* status,
                            int cause, int64_t t_ns) except -1 nogil
    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil
    cdef int sync(self, bint durable) except -1 nogil
    cdef uint32_t erases(self, uint32_t block) noexcept nogil
    cdef int health(self, uint32_t block) noexcept nogil
    cdef uint32_t synced(self, uint32_t block) noexcept nogil
    cdef bint lost_erase(self, uint32_t block) noexcept nogil
    cdef int mark_synced(self, uint32_t block, uint32_t pages) except -1 nogil
    cdef int disclaim(self, uint32_t block) except -1 nogil
    cdef int announce(self, uint32_t pages) except -1 nogil
    cdef int retire(self, uint32_t block) except -1 nogil
    cdef int64_t nvram_store(self, uint64_t offset, const void* data, uint64_t n, int cause,
                             int64_t t_ns) except -1 nogil
    cdef int64_t nvram_pair(self, uint64_t first, uint64_t word, uint64_t second, uint64_t other, int cause,
                            int64_t t_ns) except -1 nogil
    cdef int64_t nvram_load(self, uint64_t offset, void* data, uint64_t n, int cause, int64_t t_ns) except -1 nogil
    cdef int64_t charge_load(self, uint64_t offset, uint64_t n, int cause, int64_t t_ns) noexcept nogil
    cdef int hold(self, int64_t t_ns, int64_t until_ns) noexcept nogil
    cdef const uint8_t* nvram_at(self, uint64_t offset, uint64_t n) except? NULL nogil
    cdef int boot_write(self, int slot, const uint8_t* data) except -1 nogil
    cdef int boot_read(self, int slot, uint8_t* data) except -1 nogil
    cdef uint64_t count(self, int op, int cause) noexcept nogil
    cdef int64_t quiet_at(self) noexcept nogil
