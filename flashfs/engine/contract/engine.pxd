# The device, as its parts see it.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport BlockPool
from flashfs.engine.blocks.victims cimport VictimIndex
from flashfs.engine.contract.cleaning cimport Cleaning
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.contract.placement cimport Placement
from flashfs.engine.contract.validity cimport Validity
from nandimg._nand cimport Nand


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
    cdef int pad(self, uint32_t block, uint32_t n) except -1 nogil
    cdef int64_t open_this(self, uint32_t block, int stream, int cause) except -2 nogil
    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil
    cdef int relocate_blocks(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except -1 nogil
    cdef int relocate_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil
