# Where is LPA x?
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.checkpointer cimport Checkpointer
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.hooks cimport Hooks
from flashfs.engine.contract.extensions cimport Deduplication, Remapping, Runs, Sharing
from flashfs.engine.contract.extent cimport Extent


cdef class Mapping(Hooks):
    cdef readonly Engine ssd
    cdef readonly uint32_t scheme_oob      # bytes of OOB that the scheme stamps on its pages
    cdef readonly Sharing sharing          # extensions, each None unless the mapping has it
    cdef readonly Remapping remapping
    cdef readonly Deduplication dedup
    cdef readonly Runs runs
    cdef readonly Checkpointer from_pages
    cdef readonly uint64_t lent            # bytes of its tables that the data cache has meanwhile; the device sets it
    cdef readonly bint demand              # parts of it are in flash: ``prepare`` reads, and may write and clean
    cdef uint64_t idle_bytes(self) noexcept nogil
    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing, int64_t* ready) except? 0xFFFFFFFF nogil
    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil
    cdef int peek(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil
    cdef uint32_t after_miss(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) except? 0xFFFFFFFE nogil
    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil
    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil
    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil
    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, const Extent* at, uint32_t before,
                   uint32_t behind) except -1 nogil
    cdef bint maps_to(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef int64_t pages_named(self) except -2 nogil
