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
    KINDS = 8                # the most page kinds


cdef enum:                   # Engine.stopped: the change that was begun and did not end
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
    cdef readonly uint32_t meta_floor      # free blocks reserved for the next checkpoint and its log
    cdef readonly uint32_t part_blocks     # blocks for live pages of other kinds than the user's (keep_pages)
    cdef readonly uint32_t gc_reserve      # free blocks above meta_floor that only cleaning may open
    cdef readonly int64_t now_ns
    cdef int64_t map_ns                    # virtual time at which the mapping's next read may begin; then its end
    cdef void* owner_at[8]                 # the Owner of each page kind; NULL: pages of that kind are never moved
    cdef list owners                       # the same, as references
    cdef readonly uint64_t seq             # the newest sequence number in use
    cdef readonly uint64_t since_checkpoint  # pages programmed since the last checkpoint
    cdef uint64_t since_checkpoint_tables  # those of them that are new pages of tables (a map's, validity's)
    cdef bint stands_on_dead               # a recovery does, until its checkpoint: dead blocks are erased last of all
    cdef bint checkpoint_due               # cleaning needs a checkpoint before the next flush ends
    cdef readonly list alarms              # damage found since the mount that no power cut can cause; None: none
    cdef readonly object failed            # None, or why the device refuses changes
    cdef readonly bint frozen              # read-only: the image must not be changed
    cdef uint64_t image_syncs              # syncs of the image after which all done before is durable
    cdef int stopped                       # not GOING: a change did not end, so all others are refused
    cdef int lose(self, int kind, uint32_t ppa) except -1
    cdef int kind_of(self, uint32_t block) noexcept nogil
    cdef int close(self, uint32_t block) noexcept nogil
    cdef uint64_t seq_before(self, uint32_t lpa) noexcept nogil
    cdef int will_change(self) except -1 nogil
    cdef int64_t open_block(self, int die, int stream, bint worn, int cause) except -1 nogil
    cdef int make_room(self) except -1 nogil
    cdef int take_back(self) except -1 nogil
    cdef bint affords_more(self) except -1 nogil
    cdef uint64_t checkpoint_id(self) noexcept
    cdef bint fills(self) noexcept
    cdef int barrier(self) except -1 nogil
    cdef int64_t program(self, const Extent* at, const uint8_t* data, const uint8_t* oobs, int cause, int64_t t_ns,
                         uint32_t* ok) except -1 nogil
    cdef int programmed(self, const Extent* at, uint32_t ok) except -1 nogil
    cdef int pad(self, uint32_t block, uint32_t n) except -1 nogil
    cdef int64_t open_this(self, uint32_t block, int stream, int cause) except -2 nogil
    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil
    cdef int relocate_blocks(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except -1 nogil
    cdef int relocate_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil
