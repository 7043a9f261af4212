# The owner of the pages of one kind.
from libc.stdint cimport uint8_t, uint32_t


cdef enum:                   # Owner.confirm: is this page what its OOB says it is?
    FOREIGN = 0              # no: the map does not know it, so something is damaged
    LIVE = 1
    SUPERSEDED = 2           # it was, and a newer one has replaced it, which validity had not learnt yet: no damage


cdef class Owner:
    cdef readonly int stream               # stream for its moved pages; -1: where placement puts user pages
    cdef readonly uint32_t ids             # its pages have ids below this
    cdef int confirm(self, const uint32_t* ids, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil
    cdef int moved(self, const uint32_t* ids, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil
    cdef int page_lost(self, uint32_t ppa) except -1 nogil
    cdef uint32_t locate(self, uint32_t id) except? 0xFFFFFFFE nogil
    cdef int recovered(self, uint32_t id, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil
