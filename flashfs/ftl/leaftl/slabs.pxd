# Small blocks of memory under 32-bit handles, in size classes; see slabs.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    UNIT = 4                     # bytes: a handle is an offset from the base in units
    SLAB_BYTES = 4096
    SLAB_UNITS = 1024
    SPAN = 4                     # slabs that a class of large blocks takes at once
    CLASSES_MOST = 96


cdef class Slabs:
    cdef uint8_t* base                     # moves when it grows: no pointer into it survives take()
    cdef readonly uint32_t largest         # bytes of the largest block
    cdef readonly uint64_t taken_bytes     # of all blocks, as requested
    cdef uint32_t classes
    cdef uint16_t[CLASSES_MOST] slot_units
    cdef uint16_t[CLASSES_MOST] slots      # in a slab of the class, or in a span
    cdef uint32_t[CLASSES_MOST] partial    # first slab of the class that has a free slot; 0: none
    cdef uint8_t* class_of                 # by size in units
    cdef uint32_t room, made               # slabs that the mapping has room for; that were ever used
    cdef uint32_t[2] idle                  # lists of slabs, and of spans, without a block
    cdef uint32_t[2] idle_n
    cdef uint32_t[2] returned_n            # idle ones whose memory the kernel has
    cdef uint64_t left_wasted              # bytes wasted after the last evacuation
    cdef uint8_t* kind                     # per slab: class + 1 (+ EVACUATED), 0 if idle; CONTINUED + place in a span
    cdef uint16_t* used                    # slots in use
    cdef uint16_t* fresh                   # slots that were never used
    cdef uint16_t* hole                    # first free slot in units + 1; the slot has the next one
    cdef uint32_t* after                   # the next slab in its list
    cdef uint32_t* before
    cdef uint32_t take(self, uint32_t bytes) noexcept nogil
    cdef int give(self, uint32_t handle, uint32_t bytes) noexcept nogil
    cdef bint same_slot(self, uint32_t bytes, uint32_t other) noexcept nogil
    cdef uint32_t slab_of(self, uint32_t handle) noexcept nogil
    cdef uint64_t slabs_in_use(self) noexcept nogil
    cdef int resize(self, uint32_t bytes, uint32_t other) noexcept nogil
    cdef bint sparse(self, uint32_t handle) noexcept nogil
    cdef uint64_t wasted(self) noexcept nogil
    cdef bint wasteful(self) noexcept nogil
    cdef int evacuated(self) noexcept nogil
    cdef uint32_t evacuate_sparse(self) noexcept nogil
    cdef bint grow(self) noexcept nogil
    cdef bint tables(self, uint32_t room) noexcept nogil
    cdef uint32_t open_slab(self, uint32_t which) noexcept nogil
    cdef void link(self, uint32_t slab, uint32_t which) noexcept nogil
    cdef void unlink(self, uint32_t slab, uint32_t which) noexcept nogil
    cdef void close_slab(self, uint32_t slab, uint32_t which) noexcept nogil


cdef inline uint8_t* block_at(Slabs slabs, uint32_t handle) noexcept nogil:
    return slabs.base + <uint64_t> handle * UNIT
