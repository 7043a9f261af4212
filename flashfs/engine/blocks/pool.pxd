# The block pool: the state of each block, the free blocks, and constants that all parts share.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from nandimg._nand cimport PAGE_OK, PAGE_TORN, Nand

cdef extern from *:
    """
    #define FLASHFS_NONE 0xFFFFFFFFu
    """
    const uint32_t NONE "FLASHFS_NONE"     # no page; an enumerator would turn into -1 on its way to Python

cdef enum:
    OOB_ENGINE = 20          # bytes of OOB that the engine uses; a scheme's own follow

# State of a block.
cdef enum:
    STATE_FREE = 0
    STATE_PENDING = 1        # dead, but its erase must wait for the next sync
    STATE_OPEN = 2
    STATE_CLOSED = 3
    STATE_META = 4
    STATE_BAD = 5

# Kind of a page. Each kind has one owner, and only the owner knows whether such a page is live.
cdef enum:
    KIND_USER = 1
    KIND_TRANSLATION = 2
    KIND_VALIDITY = 3        # of a validity store in flash
    KIND_CHECKPOINT = 4
    KIND_TRIM = 5
    KIND_MOUNT = 6
    KIND_PAD = 7

cdef enum:
    FLAG_MOVED = 1           # a copy made by cleaning: it keeps its original's sequence number
    FLAG_LAST = 2            # the descriptor that completes a checkpoint; the copy that completes a move of a group
    FLAG_CLEAN = 4           # ... of a checkpoint written by a clean unmount
    FLAG_LOST = 8            # replaces a page that could not be read when it was moved: its LPA gives EIO
    MOVES_SHIFT = 4          # the upper half of the flags: how often it was moved, modulo 16
    MOVES_MASK = 15

# The cause under which a flash operation is counted; CAUSE_NAMES has the names.
cdef enum:
    CAUSE_HOST = 0
    CAUSE_GC = 1
    CAUSE_WEAR = 2
    CAUSE_MAP = 3
    CAUSE_CHECKPOINT = 4
    CAUSE_TRIM = 5
    CAUSE_RECOVERY = 6
    CAUSE_RETIRE = 7
    CAUSE_MOUNT = 8
    CAUSE_PAD = 9
    CAUSE_VALIDITY = 10
    CAUSE_WEAR_SCAN = 11     # OOBs that wear levelling reads to find its victims

cdef enum:
    STREAM_HOST = 0
    STREAM_GC = 1
    STREAM_WEAR = 2
    STREAM_META = 3
    STREAM_MAP = 4           # translation pages, new ones and moved ones
    STREAMS = 5              # number of streams that every device has; parts register more
    STREAMS_MOST = 32


cdef inline bint runs_out(uint64_t number) noexcept nogil:
    """Whether a sequence number is so close to the end of its 48 bits that it must be wrong: at least 2^40 must be
    left."""
    return number >= (<uint64_t> 255 << 40)


cdef inline bint order_runs_out(uint64_t order) noexcept nogil:
    """The same for an order and its 40 bits: at least 2^32 must be left."""
    return order >= (<uint64_t> 255 << 32)


cdef struct Oob:
    uint64_t seq             # 48 bits: the host write (or checkpoint) that made the page
    uint64_t order           # 40 bits: the order of its block (the pool counts opened blocks)
    uint32_t lpa
    uint32_t number          # 11 bits: number_of its page in the block, or 0
    uint8_t kind
    uint8_t flags
    uint8_t stream           # 5 bits
    uint8_t group            # of a copy: number of its move of several blocks since the last checkpoint; else 0

cdef inline uint32_t number_of(uint32_t page) noexcept nogil:
    """The page number that an OOB stores: 11 bits of page + 1. 0 says nothing and fits any page."""
    return (page + 1) & 2047

cdef inline uint32_t placed_word(uint64_t order, uint32_t number, uint8_t stream, uint8_t group) noexcept nogil:
    """The last four bytes: the upper 8 bits of the order, the number's lower 8 and, above the stream, its upper 3."""
    return (<uint32_t> (order >> 32) | (number & 0xFF) << 8 | <uint32_t> stream << 16 | (number >> 8) << 21
            | <uint32_t> group << 24)

cdef inline void oob_pack(uint8_t* at, const Oob* oob) noexcept nogil:
    (<uint64_t*> at)[0] = oob.seq | (<uint64_t> oob.kind << 48) | (<uint64_t> oob.flags << 56)
    (<uint32_t*> (at + 8))[0] = oob.lpa
    (<uint32_t*> (at + 12))[0] = <uint32_t> oob.order
    (<uint32_t*> (at + 16))[0] = placed_word(oob.order, oob.number, oob.stream, 0)

cdef inline void oob_unpack(const uint8_t* at, Oob* oob) noexcept nogil:
    cdef uint64_t word = (<const uint64_t*> at)[0]
    cdef uint32_t high = (<const uint32_t*> (at + 16))[0]
    oob.seq = word & ((<uint64_t> 1 << 48) - 1)
    oob.kind = <uint8_t> (word >> 48)
    oob.flags = <uint8_t> (word >> 56)
    oob.lpa = (<const uint32_t*> (at + 8))[0]
    oob.order = (<const uint32_t*> (at + 12))[0] | (<uint64_t> (high & 0xFF) << 32)
    oob.number = (high >> 8 & 0xFF) | (high >> 21 & 7) << 8
    oob.stream = <uint8_t> (high >> 16 & 31)
    oob.group = <uint8_t> (high >> 24)

cdef inline uint32_t oob_lpa(const uint8_t* at) noexcept nogil:
    return (<const uint32_t*> (at + 8))[0]

cdef inline uint64_t oob_order(const uint8_t* at) noexcept nogil:
    return (<const uint32_t*> (at + 12))[0] | (<uint64_t> at[16] << 32)

cdef inline bint fits_number(uint32_t number, uint32_t page) noexcept nogil:
    return number == 0 or number == number_of(page)

cdef inline bint is_meant_for(const uint8_t* at, uint32_t page) noexcept nogil:
    """Whether an OOB fits page ``page`` of a block (one without a number fits any)."""
    return fits_number(at[17] | <uint32_t> (at[18] >> 5) << 8, page)

cdef inline uint8_t placed(uint8_t status, const uint8_t* at, uint32_t page) noexcept nogil:
    """The status of page ``page`` of a block, given its OOB: PAGE_TORN if the page is whole but was programmed for
    another page number. Every reader of an OOB must call this; a page meant for another block is recognised by its
    order."""
    return PAGE_TORN if status == PAGE_OK and not is_meant_for(at, page) else status

cdef inline int64_t read_oob(Nand nand, uint32_t ppa, uint8_t* raw, Oob* oob, uint8_t* status, int cause,
                             int64_t t_ns) except -1 nogil:
    """Read the OOB of one page from ``t_ns`` (virtual ns) on: its bytes into ``raw``, its fields into ``oob``, and the
    page's status as ``placed`` has it. Returns when it is read. The operation is counted under ``cause``."""
    cdef uint32_t page = ppa % nand.pages_per_block
    cdef int64_t end = nand.read_spare(ppa // nand.pages_per_block, page, 1, raw, status, cause, t_ns)
    oob_unpack(raw, oob)
    status[0] = placed(status[0], raw, page)
    return end

cdef inline uint8_t oob_kind(const uint8_t* at) noexcept nogil:
    return at[6]

cdef inline void oob_moved(uint8_t* at, const uint8_t* old, uint64_t order, uint32_t number, uint8_t stream,
                           uint8_t group, bint last) noexcept nogil:
    """The OOB that cleaning stamps on a copy: the original's, with its count of moves + 1 and the copy's own order,
    ``number`` and stream. ``group`` is the number of a move of several blocks (else 0); ``last`` marks its last
    page."""
    cdef uint64_t word = (<const uint64_t*> old)[0] & ~(<uint64_t> FLAG_LAST << 56) | (<uint64_t> FLAG_MOVED << 56)
    if last:
        word |= <uint64_t> FLAG_LAST << 56
    (<uint64_t*> at)[0] = word + (<uint64_t> 1 << (56 + MOVES_SHIFT))  # the count wraps beyond 64 bits
    (<uint32_t*> (at + 8))[0] = (<const uint32_t*> (old + 8))[0]
    (<uint32_t*> (at + 12))[0] = <uint32_t> order
    (<uint32_t*> (at + 16))[0] = placed_word(order, number, stream, group)


cdef class BlockPool:
    cdef readonly Nand nand
    cdef readonly uint32_t blocks, pages_per_block, dies
    cdef uint8_t* state
    cdef uint8_t* stream
    cdef uint8_t* blank                # known not to be programmed since its last erase
    cdef uint8_t* stale                # free, but not erased since its pages were moved elsewhere
    cdef uint8_t* unproved             # open according to a checkpoint, not checked yet
    cdef uint8_t* retiring             # an operation on it failed: evacuate, then mark bad
    cdef uint32_t* next_page
    cdef uint64_t* order
    cdef int64_t* ready_ns             # virtual time, in ns, from which it may be erased
    cdef uint32_t* heap                # per die, free blocks by erase count
    cdef uint32_t* heap_n
    cdef uint32_t heap_room
    cdef uint32_t* pending
    cdef readonly uint32_t free_n, pending_n, bad_n, retiring_n
    cdef readonly uint32_t failed_n        # blocks marked bad since the mount
    cdef uint32_t before_trims             # pending blocks that died before the first unlogged trim
    cdef readonly uint32_t spoilt_n    # open blocks whose next page was not erased
    cdef readonly uint64_t last_order, erases_n, programs_n
    cdef public bint numbers               # OOBs hold a page number: not in an image bound before that feature
    cdef uint32_t die_turn
    cdef int64_t* map_pages                # of each die: newest versions of pages of the map, about
    cdef readonly uint32_t erases_most     # of any block
    cdef readonly uint32_t erased_most     # of those erased since the mount
    cdef readonly tuple stream_names
    cdef readonly uint32_t streams_n
    cdef uint8_t[32] stream_cause      # the cause under which each stream opens blocks
    cdef uint32_t[32] stream_width     # blocks kept open at once, for streams that parts registered
    cdef int push(self, uint32_t block) noexcept nogil
    cdef uint32_t pop(self, uint32_t die) noexcept nogil
    cdef uint32_t pop_worn(self) noexcept nogil
    cdef uint32_t pick(self, int die, bint worn) noexcept nogil
    cdef int sift(self, uint32_t* heap, uint32_t n, uint32_t i, uint32_t block) noexcept nogil
    cdef bint pull(self, uint32_t block) noexcept nogil
    cdef bint made_blank(self, uint32_t block, int cause, int64_t t_ns) except -1 nogil
    cdef int begin(self, uint32_t block, int stream) noexcept nogil
    cdef int64_t allocate_this(self, uint32_t block, int stream, int cause, int64_t t_ns) except -2 nogil
    cdef int64_t allocate(self, int die, int stream, bint worn, int cause, int64_t t_ns) except -2 nogil
    cdef bint prove_next(self, int cause, int64_t t_ns) except -1 nogil
    cdef uint32_t coming(self) noexcept nogil
    cdef bint erase(self, uint32_t block, int cause, int64_t t_ns) except -1 nogil
    cdef bint takes_more(self, uint32_t block, int cause, int64_t t_ns) except -1 nogil
    cdef int advance(self, uint32_t block, uint32_t n) noexcept nogil
    cdef int close(self, uint32_t block) noexcept nogil
    cdef int release(self, uint32_t block, int64_t ready_ns) noexcept nogil
    cdef bint is_pending(self, uint32_t block) noexcept nogil
    cdef int release_pending(self, uint32_t n) except -1 nogil
    cdef int set_bad(self, uint32_t block) except -1 nogil
    cdef int retire(self, uint32_t block) noexcept nogil
    cdef int rebuild_free(self) noexcept nogil


cdef inline uint32_t number_for(BlockPool pool, uint32_t page) noexcept nogil:
    """The number for the OOB of a page that is programmed as page ``page`` of a block."""
    return number_of(page) if pool.numbers else 0
