# The device; schemes and servers cimport it.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.device.buffer cimport WriteBuffer
from flashfs.engine.device.cache cimport DataCache
from flashfs.engine.device.metalog cimport MetaLog
from flashfs.engine.device.mover cimport Mover
from flashfs.engine.contract.cleaning cimport Cleaning
from flashfs.engine.contract.checkpointer cimport Checkpointer
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.contract.placement cimport Placement
from flashfs.engine.contract.validity cimport Validity
from flashfs.engine.blocks.pool cimport BlockPool
from flashfs.engine.device.reader cimport Reader
from flashfs.engine.device.wear cimport WearLevel
from nandimg._nand cimport Nand


@cython.final
cdef class Ssd(Engine):
    cdef readonly WriteBuffer buffer
    cdef readonly DataCache cache
    cdef readonly Reader reader
    cdef readonly MetaLog meta
    cdef readonly Mover mover
    cdef readonly uint64_t host_read, host_write, host_trim, host_remap, mounts
    cdef readonly uint64_t syncs
    cdef readonly uint64_t budget          # bytes of DRAM, of which the cache gets what is left; 0: no budget
    cdef uint64_t refit_at                 # host pages written at which the cache is resized: the tables may have grown
    cdef readonly bint durable, ready
    cdef readonly WearLevel wear
    cdef bint mount_due, dirty
    cdef bint hint_may_be_clean  # the newest durable boot hint may name a clean checkpoint
    cdef bint moved                        # host moves since the last sync: only NVRAM has their targets
    cdef bint in_barrier                   # a barrier is under way: barriers must not nest
    cdef uint32_t gc_need, in_flight       # pages of the request that took sequence numbers and are being programmed
    cdef uint32_t appended                 # pages of the last ``append`` that are bound
    cdef uint8_t append_flags              # FLAG_ of the pages of the next ``append`` only
    cdef uint64_t checkpoint_every
    cdef readonly Checkpointer checkpointer  # the mapping's, or the device's own
    cdef uint32_t oob_bytes, page_bytes, pages_per_block
    cdef uint8_t* oobs                     # RUN pages' OOB to program
    cdef uint8_t* read_oobs                # the OOBs of a block, as read
    cdef uint32_t* olds
    cdef uint64_t* seqs
    cdef uint32_t* run_ppas                # of a run that is being programmed, for ``Runs.ends``
    cdef int64_t* known                    # virtual time at which each page's place is known
    cdef uint8_t* edge                     # one page, for partial pages of a request
    cdef const uint64_t* words             # of the next write, a word per page: equal words, equal contents; or NULL
    cdef uint8_t* carried                  # RUN pages for copies, allocated at the first one
    cdef int64_t write(self, const uint32_t* lpas, uint32_t n, const uint8_t* data, int64_t t_ns) except -1 nogil
    cdef int64_t write_past(self, const uint32_t* lpas, uint32_t n, const uint8_t* data, int64_t t_ns) except -1 nogil
    cdef int64_t write_buffered(self, const uint32_t* lpas, uint32_t n, const uint8_t* data,
                                int64_t t_ns) except -1 nogil
    cdef int64_t read(self, const uint32_t* lpas, uint32_t n, uint8_t* data, int64_t t_ns) except -1 nogil
    cdef int64_t trim(self, uint32_t lpa, uint32_t n, int64_t t_ns) except -1 nogil
    cdef uint32_t skip_holes(self, uint32_t lpa, uint32_t n) noexcept nogil
    cdef int flush(self, int64_t t_ns) except -1 nogil
    cdef int64_t settle(self, int64_t t_ns) except -1 nogil
    cdef int drain(self) except -1 nogil
    cdef int drain_in_order(self) except -1 nogil
    cdef int sync_image(self) except -1 nogil
    cdef int sync_moves(self) except -1 nogil
    cdef int spare_pending(self, int stream) except -1 nogil
    cdef int log_trims(self) except -1 nogil
    cdef int sync_for(self, int stream) except -1 nogil
    cdef bint cleans_on(self, uint32_t group) noexcept nogil
    cdef int pad_pairs(self) except -1 nogil
    cdef int pad_blocks(self) except -1 nogil
    cdef int refuse(self) except -1 nogil
    cdef uint32_t secure(self, int stream, const uint32_t* lpas, uint32_t n,
                         int64_t* known) except? 0xFFFFFFFF nogil
    cdef uint32_t secure_trim(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil
    cdef uint32_t room_for(self, uint32_t n, uint32_t reports, int stream) except? 0xFFFFFFFF nogil
    cdef int require_agreement(self) except -1
    cdef int chores(self) except -1 nogil
    cdef int leave_clean(self) except -1 nogil
    cdef int room_for_checkpoint(self) except -1
    cdef int empty_retiring(self) except -1 nogil
    cdef int64_t append(self, int stream, int kind, const uint32_t* lpas, const uint64_t* seqs, uint32_t n,
                        const uint8_t* data, int cause, int64_t t_ns, int64_t* ready) except -1 nogil
    cdef bint is_mapped(self, uint32_t lpa) except -1 nogil
    cdef int tell_opened(self, uint32_t block) except -1 nogil
