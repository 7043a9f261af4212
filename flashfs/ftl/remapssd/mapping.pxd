# The page table of Remap-SSD; see mapping.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.parts.defaults.page_table cimport PageTable
from flashfs.engine.contract.extensions cimport Remapping, Sharing
from flashfs.ftl.remapssd.counts cimport ReferenceCounts
from flashfs.ftl.remapssd.fingerprints cimport Prints
from flashfs.ftl.remapssd.rmm cimport Rmm


cdef class RemapTable(PageTable):
    cdef readonly Rmm rmm
    cdef readonly ReferenceCounts counts
    cdef bint doubted                      # pages or trims are missing: check the LPA of each page
    cdef bint attached                     # the device is in use: references and entries are kept up to date
    cdef uint32_t watermark                # per cent of the entries that may be valid
    cdef uint32_t count_limit              # references that a page may have
    cdef uint32_t* new_of                  # of each page of a superblock, the PPA of its copy, or NONE
    cdef uint32_t charged                  # the superblock whose entries this move has read, or NONE
    cdef readonly Prints prints            # None: nothing is deduplicated
    cdef bint notes_prints                 # whether ``bind`` notes them: not for a page that cleaning writes
    cdef readonly uint64_t done, refused_full, refused_count, same, reserved
    cdef bint has_strays(self) except -1
    cdef uint32_t leave(self, uint32_t lpa) noexcept nogil
    cdef bint take_reference(self, uint32_t ppa) noexcept nogil
    cdef int give_back(self, uint32_t target, uint32_t source, uint32_t n) noexcept nogil
    cdef uint64_t entries_most(self) noexcept nogil
    cdef bint is_durable(self, uint32_t ppa) noexcept nogil
    cdef uint64_t segments_needed(self, uint32_t source, uint32_t n) noexcept nogil
    cdef uint32_t carry_entries(self, const uint32_t* olds, const uint32_t* news, uint32_t first,
                                uint32_t n) except? 0xFFFFFFFE nogil


cdef class TableSharing(Sharing):
    cdef RemapTable map


cdef class TableRemapping(Remapping):
    cdef RemapTable map
