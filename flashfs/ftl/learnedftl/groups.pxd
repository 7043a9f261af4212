# LearnedFTL's placement; see groups.pyx.
from flashfs.engine.superblocks cimport Superblocks
from flashfs.ftl.learnedftl.mapping cimport LearnedMap


cdef class GroupSuperblocks(Superblocks):
    cdef LearnedMap map
    cdef bint affords_group(self) except -1 nogil
