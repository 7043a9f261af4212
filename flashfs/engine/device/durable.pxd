# What of the device opens blocks and makes durable what is in them.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.checkpointer cimport Checkpointer
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.device.metalog cimport MetaLog
from flashfs.engine.device.mover cimport Mover


cdef class Durable(Engine):
    cdef readonly MetaLog meta
    cdef readonly Mover mover
    cdef readonly Checkpointer checkpointer  # the mapping's, or the device's own
    cdef readonly uint64_t syncs
    cdef readonly bint durable             # a sync reaches the host's disk
    cdef bint moved                        # host moves since the last sync: only NVRAM has their targets
    cdef bint in_barrier                   # a barrier is under way: barriers must not nest
    cdef uint32_t gc_need                  # blocks that cleaning may open within one victim
    cdef uint32_t oob_bytes, page_bytes, pages_per_block
    cdef uint8_t* oobs                     # RUN pages' OOB to program
    cdef int sync_image(self) except -1 nogil
    cdef int sync_moves(self) except -1 nogil
    cdef int spare_pending(self, int stream) except -1 nogil
    cdef int log_trims(self) except -1 nogil
    cdef int sync_for(self, int stream) except -1 nogil
    cdef int release(self, uint32_t n) except -1 nogil
    cdef uint32_t users_first(self, uint32_t n) noexcept nogil
    cdef int tell_opened(self, uint32_t block) except -1 nogil
    cdef int pad_pairs(self) except -1 nogil
    cdef int pad_blocks(self) except -1 nogil
    cdef bint last_is_worth_it(self) noexcept nogil
    cdef int clean_until_room(self) except -1 nogil
    cdef bint cleans_on(self, uint32_t group) noexcept nogil
