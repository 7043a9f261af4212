from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from nandimg._filter cimport NandFilter


cdef class FaultyNand(NandFilter):
    cdef readonly uint64_t operations      # since power-on: page programs, erases, NVRAM stores > 1 word, boot writes
    cdef readonly bint dead
    cdef uint64_t cut_at                   # the operation at which the power goes; 0: never
    cdef int cut_shape
    cdef object pending_cuts               # the cuts of later lives
    cdef set failing
    cdef dict unstable                     # block -> pages programmed after an unstable erase (TEAR_UNSTABLE)
    cdef bint any_unstable
    cdef object on_sync
    cdef object on_cut
    cdef bint has_failing
    cdef bint logging                      # whether NVRAM stores since the last flash operation began are logged
    cdef int64_t cut_words                 # how many words of them the cut keeps; -1: all
    cdef list stored                       # that log: [(offset, bytes that were there before)]
    cdef int begin(self) except -1 nogil
    cdef int note_store(self, uint64_t offset, uint64_t n) except -1 nogil
    cdef bint fails_now(self) except -1 nogil
    cdef int cut_now(self) except -1 nogil
    cdef int tear(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob, int cause,
                  int64_t t_ns) except -1 nogil
    cdef int note_unstable(self, uint32_t block, uint32_t page) except -1 nogil
    cdef int spend(self, uint32_t block, uint32_t page, uint32_t n) except -1 nogil
