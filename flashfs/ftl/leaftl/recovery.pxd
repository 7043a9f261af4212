# LeaFTL's checkpoint and recovery; see recovery.pyx.
from libc.stdint cimport uint32_t

from flashfs.ftl.leaftl.recovered_runs cimport FoundPages
from flashfs.ftl.leaftl.lookup cimport LearnedPlaces


cdef class LearnedRecovery(LearnedPlaces):
    cdef bint in_range                     # all PPAs that ``misfit`` found are of this chip
    cdef FoundPages found
    cdef int relearn(self) except -1 nogil
    cdef int squeeze(self) except -1 nogil
    cdef bint any_live(self, uint32_t predicted) except -1 nogil
