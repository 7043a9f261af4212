# Adapters from FTLs written in Python to the interfaces of flashfs.engine.contract.
from libc.stdint cimport int64_t, uint8_t, uint32_t

from flashfs.engine.device.ssd cimport Ssd
from flashfs.parts.defaults.greedy cimport Greedy
from flashfs.parts.defaults.page_bitmap cimport PageBitmap
from flashfs.parts.defaults.streams cimport Streams
from flashfs.engine.contract.extent cimport Extent


cdef class Plugin:
    cdef readonly Ssd ssd
    cdef readonly str name
    cdef readonly object cls               # the user's class
    cdef readonly object ftl               # its current object
    cdef readonly Chip chip
    cdef readonly object error             # the first mistake of a call that could not raise it
    cdef readonly bint verify
    cdef object ask_lookup, ask_bind, ask_unbind, ask_after_miss   # the object's bound methods, cached
    cdef PyPlacement placement
    cdef int placing                       # the stream for which place() is running; -1: none
    cdef uint32_t pages
    cdef make(self)
    cdef fresh(self)
    cdef object mistake(self, call, said)
    cdef object broke(self, call, error, bint through=*)
    cdef note(self, error)
    cdef int healthy(self) except -1
    cdef uint32_t to_ppa(self, value, call) except? 0xFFFFFFFE


cdef class Chip:
    cdef Plugin plugin
    cdef readonly uint32_t lpas, blocks, pages_per_block, pages, page_bytes, oob_bytes, dies, channels
    cdef readonly int64_t spare_blocks
    cdef readonly object options
    cdef int known(self, block) except -1


cdef class PyValidity(PageBitmap):
    cdef Plugin plugin
    cdef tell(self, hook, uint32_t ppa)
    cdef compare(self, uint32_t ppa, bint live)


cdef class PyPlacement(Streams):
    cdef Plugin plugin
    cdef uint8_t* mine                     # 1 + the stream for which the plug-in opened a block; 0: not its block
    cdef uint32_t[2] open_n, open_most     # blocks open for the host, and for cleaning
    cdef int place(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1
    cdef bint go_on(self, uint32_t n, Extent* out) except -1 nogil
    cdef uint32_t open(self, die) except? 0xFFFFFFFE
    cdef int give_up(self, uint32_t block) except -1


cdef class PyCleaning(Greedy):
    cdef Plugin plugin
    cdef uint32_t most                     # blocks that victim() may name at once
    cdef uint32_t* victims
    cdef uint32_t choose(self) except? 0xFFFFFFFE
    cdef int check_victim(self, said, call) except -1
