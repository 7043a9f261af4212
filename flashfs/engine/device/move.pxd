from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.engine cimport Engine

cdef enum:
    MOVE_RUN = 32            # pages that one program of a move has at most

ctypedef struct Move:
    int stream               # where its pages go
    int cause                # what its operations are counted as
    int kind                 # of its pages
    uint32_t group           # its number among moves of groups; 0: a move of one block or of single pages
    bint one_by_one          # its pages are read when their turn comes; else all are read at once
    bint with_data           # the chip keeps the data of these pages
    uint32_t total           # pages that it programs
    uint32_t gone_n          # pages of kinds other than user pages that cannot be read
    uint32_t left_n          # live pages that need no move: superseded, or without an owner
    int64_t names_ns         # when all OOBs are read, if pages are read one by one
    int64_t end_ns           # when its last program ends


cdef class MoveLists:
    cdef readonly Engine ssd
    cdef uint32_t oob_bytes, page_bytes, pages_per_block
    cdef uint32_t room                     # the most pages of one move
    cdef uint8_t* read_oobs                # the victim's, in page order
    cdef uint8_t* oobs                     # those of the run being programmed
    cdef uint8_t* status
    cdef uint8_t* confirmed
    cdef uint8_t* kinds                    # from here on in LPA order
    cdef uint32_t* pages
    cdef uint32_t* lpas
    cdef uint32_t* olds
    cdef uint32_t* news
    cdef uint32_t* gone                    # PPAs of the ``Move.gone_n`` pages
    cdef uint32_t* left                    # PPAs of the ``Move.left_n`` pages
    cdef uint64_t* keys                    # LPA << 32 | index in page order; of a group LPA << 32 | PPA
    cdef uint64_t* sorted
    cdef int64_t* ready                    # when each page was read, in page order
    cdef uint32_t* victims                 # the blocks of the group that is being moved
    cdef uint8_t* data
    cdef uint8_t* gather
    cdef int hold_data(self, Move* move) except -1 nogil
