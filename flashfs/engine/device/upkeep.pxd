# What of the device keeps it in order between requests.
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.device.cache cimport DataCache
from flashfs.engine.device.wear cimport WearLevel
from flashfs.engine.device.writer cimport Writer


cdef class Upkeep(Writer):
    cdef readonly DataCache cache
    cdef readonly WearLevel wear
    cdef readonly uint64_t host_write, mounts
    cdef readonly uint64_t budget          # bytes of DRAM, of which the cache gets what is left; 0: no budget
    cdef uint64_t refit_at                 # host pages written at which the cache is resized: the tables may have grown
    cdef uint64_t checkpoint_every
    cdef bint mount_due, dirty
    cdef bint inherited                    # what a mount without syncs left may not be durable yet
    cdef uint32_t failed_seen              # failed blocks after which the reserve was restored
    cdef bint hint_may_be_clean            # the newest durable boot hint may name a clean checkpoint
    cdef int refuse(self) except -1 nogil
    cdef int chores(self) except -1 nogil
    cdef int chores_if_room(self) except -1 nogil
    cdef int make_room_if_any(self) except -1 nogil
    cdef int leave_clean(self) except -1 nogil
    cdef int empty_retiring(self) except -1 nogil
    cdef int room_for_checkpoint(self) except -1
    cdef int require_agreement(self) except -1
