# The four parts of an FTL as compiled interfaces; flashfs.parts.defaults.defaults has the engine's own.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport BlockPool, Oob
from flashfs.engine.blocks.victims cimport VictimIndex
from nandimg._nand cimport Nand


cdef struct Extent:
    uint32_t block, page, n
    uint32_t choice          # placement's word to the mapping: what it chose beside the place; 0: nothing


cdef enum:                   # Owner.confirm: is this page what its OOB says it is?
    FOREIGN = 0              # no: the map knows nothing of it, so something is damaged
    LIVE = 1
    SUPERSEDED = 2           # it was, and nobody had noticed yet that a newer one took its place: nothing is wrong

cdef enum:
    KINDS = 8                # page kinds there can be


cdef enum:                   # Engine.stopped: what was being changed, and did not come to its end
    GOING = 0
    IN_SYNC = 1
    IN_BIND = 2
    IN_TRIM = 3
    IN_MOVE = 4
    IN_TABLE = 5
    IN_CHECKPOINT = 6
    FAILED = 7               # Engine.fail said why
    IN_REMAP = 8


cdef uint32_t list_bits(const uint64_t* words, uint32_t n, uint32_t* out) noexcept nogil


cdef class Engine:
    """What a part may ask of the device it is part of; flashfs.engine.device.ssd.Ssd is the device."""
    cdef readonly Nand nand
    cdef readonly BlockPool pool
    cdef readonly VictimIndex victims
    cdef readonly Mapping mapping
    cdef readonly Validity validity
    cdef readonly Placement placement
    cdef readonly Cleaning cleaning
    cdef readonly uint32_t lpas
    cdef readonly uint32_t meta_floor      # free blocks that belong to the next checkpoint and its log
    cdef readonly uint32_t part_blocks     # that pages of kinds other than the user's may fill, if a part said so
    cdef readonly uint32_t gc_reserve      # free blocks above that which only cleaning may open
    cdef readonly int64_t now_ns
    cdef int64_t map_ns                    # when what the mapping reads next may begin; then when it is there
    cdef void* owner_at[8]                 # of each page kind, an Owner; NULL: pages of that kind are never moved
    cdef list owners                       # the same, which keeps them
    cdef readonly uint64_t seq             # the newest sequence number that was given
    cdef readonly uint64_t since_checkpoint  # pages programmed since the last checkpoint
    cdef bint checkpoint_due               # cleaning met what only a checkpoint settles: before the next flush ends
    cdef readonly list alarms              # since the mount; None: nothing was found that no power cut can leave
    cdef readonly object failed            # None, or why the device takes no more changes
    cdef readonly bint frozen              # the image is not to be changed: it was opened to be read
    cdef uint64_t image_syncs              # how often what was programmed has become durable
    cdef int stopped                       # not GOING: a change never came to its end, so every other one is refused
    cdef int lose(self, int kind, uint32_t ppa) except -1
    cdef int kind_of(self, uint32_t block) noexcept nogil
    cdef int close(self, uint32_t block) noexcept nogil
    cdef uint64_t seq_before(self, uint32_t lpa) noexcept nogil
    cdef int will_change(self) except -1 nogil
    cdef int64_t open_block(self, int die, int stream, bint worn, int cause) except -1 nogil
    cdef int make_room(self) except -1 nogil
    cdef bint affords_more(self) except -1 nogil
    cdef int barrier(self) except -1 nogil
    cdef int64_t program(self, const Extent* at, const uint8_t* data, const uint8_t* oobs, int cause, int64_t t_ns,
                         uint32_t* ok) except -1 nogil
    cdef int programmed(self, const Extent* at, uint32_t ok) except -1 nogil
    cdef int64_t open_this(self, uint32_t block, int stream, int cause) except -2 nogil
    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil
    cdef int relocate_blocks(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except -1 nogil
    cdef int relocate_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil


cdef class Owner:
    cdef readonly Engine ssd
    cdef readonly int stream               # that its moved pages go to; -1: where placement puts user pages
    cdef readonly uint32_t ids             # its pages have ids below this
    cdef int confirm(self, const uint32_t* ids, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil
    cdef int moved(self, const uint32_t* ids, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil
    cdef int page_lost(self, uint32_t ppa) except -1 nogil
    cdef uint32_t locate(self, uint32_t id) except? 0xFFFFFFFE nogil
    cdef int recovered(self, uint32_t id, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil
    cdef int found(self, const Oob* oob, uint32_t ppa) except -1 nogil


cdef class Recovered(Owner):
    cdef bint needs(self, uint32_t ppa, uint32_t lpa) except -1 nogil
    cdef uint32_t recovered_copy(self, uint32_t lpa, uint64_t seq, uint32_t ppa, bint* own) except? 0xFFFFFFFE nogil
    cdef int checkpoint_begins(self) except -1
    cdef int checkpoint_ended(self, bint whole) except -1
    cdef int64_t pages_named(self) except -2 nogil


cdef class Explained(Recovered):
    pass


cdef class Mapping(Explained):
    cdef readonly uint32_t scheme_oob      # bytes of OOB that the scheme stamps on its pages
    cdef readonly bint shares_pages        # several LPAs may be at one page: see the class
    cdef readonly bint whole_runs          # ``run_ends`` is to tell it what was written together
    cdef readonly uint32_t own_reports     # reports of its own pages that validity may get for each page it is told of
    cdef readonly bint demand              # parts of it are in flash: ``prepare`` reads, and may write and clean
    cdef readonly bint fenced              # a crash is recovered from its pages: see rebuild.pyx
    cdef readonly uint64_t fence_every     # pages programmed between two checkpoints, at most
    cdef readonly bint remaps              # an LPA can be pointed at another's page: ``remap_run``
    cdef readonly bint atomic              # ... and a command of the host is remapped in one piece, or refused
    cdef readonly bint dedups              # a page that the host writes may be there already: ``sift``
    cdef readonly bint names_sharers       # it knows all who are at a page, each by its own number: see resolve.pyx
    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing, int64_t* ready) except? 0xFFFFFFFF nogil
    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil
    cdef uint32_t unmapped_from(self, uint32_t lpa, uint32_t n) noexcept nogil
    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil
    cdef int expect(self, uint32_t lpa) noexcept nogil
    cdef int peek(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil
    cdef bint accepts(self, uint32_t lpa, uint32_t ppa, uint32_t said) except -1 nogil
    cdef uint32_t after_miss(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) except? 0xFFFFFFFE nogil
    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil
    cdef int run_ends(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil
    cdef int moves_end(self) except -1 nogil
    cdef int dropped(self, const uint32_t* ppas, uint32_t n) except -1 nogil
    cdef bint notice(self) except -1 nogil
    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil
    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil
    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, const Extent* at, uint32_t before,
                   uint32_t behind) except -1 nogil
    cdef int tend(self) except -1 nogil
    cdef int fence_begins(self) except -1
    cdef int reports_kept(self) except -1 nogil
    cdef bint has(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef uint32_t remap_room(self, uint32_t target, uint32_t source, uint32_t n,
                             bint move) except? 0xFFFFFFFF nogil
    cdef bint sift(self, uint32_t lpa, const uint8_t* page, uint64_t word, int64_t* t_ns) except -1 nogil
    cdef bint point_at_same(self, uint32_t lpa, const uint8_t* page, uint64_t seq, int64_t* t_ns,
                            uint32_t* old) except -1 nogil
    cdef int sifted(self) noexcept nogil
    cdef int remap_run(self, uint32_t target, uint32_t source, uint32_t n, uint64_t seq, bint move,
                       uint32_t* olds) except -1 nogil


cdef class Validity:
    cdef readonly Engine ssd
    cdef readonly VictimIndex victims      # the engine's
    cdef readonly bint late                # a page that it calls live may be superseded, unnoticed so far
    cdef readonly bint in_flash            # its queries read; its reports need room
    cdef readonly bint by_map              # behind a recovery from pages, what lives is what the mapping names
    cdef uint64_t* words                   # a block's bitmap
    cdef uint32_t prepare(self, uint32_t n, bint may_clean) except? 0xFFFFFFFF nogil
    cdef uint32_t room(self) noexcept nogil
    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil
    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil
    cdef int opened(self, uint32_t block) except -1 nogil
    cdef int released(self, uint32_t block) except -1 nogil
    cdef bint is_live(self, uint32_t ppa) except -1 nogil
    cdef uint32_t count(self, uint32_t block) noexcept nogil
    cdef int bitmap(self, uint32_t block, uint64_t* words) except -1 nogil
    cdef uint32_t pages(self, uint32_t block, uint32_t* out) except? 0xFFFFFFFF nogil
    cdef int tend(self) except -1 nogil
    cdef uint64_t pages_named(self) noexcept nogil
    cdef int checkpoint_begins(self) except -1
    cdef int checkpoint_ended(self, bint whole) except -1
    cdef int forget(self, uint32_t block) except -1 nogil
    cdef int pages_known(self) except -1 nogil


cdef class Placement:
    cdef readonly Engine ssd
    cdef int make_ready(self, int stream) except -1 nogil
    cdef readonly bint pads                # a flush fills up the host's open blocks
    cdef uint32_t run_room(self, int stream) noexcept nogil
    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil
    cdef int failed(self, uint32_t block) except -1 nogil
    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil
    cdef int finish(self, int stream) except -1 nogil


cdef class Cleaning:
    cdef readonly Engine ssd
    cdef readonly bint open_blocks_rest    # an open block may lie still for long: wear levelling looks at it too
    cdef int clean(self) except -1 nogil
    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil
    cdef bint cleans(self, int stream) noexcept nogil
