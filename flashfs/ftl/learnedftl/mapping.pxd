# LearnedFTL's mapping; see mapping.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.ftl.learnedftl.models cimport Models
from flashfs.engine.node_map cimport TpMap


cdef class LearnedMap(TpMap):
    cdef readonly Models models
    cdef readonly uint64_t reads_cached, reads_modelled, reads_doubled
    cdef readonly uint64_t writes_modelled  # entries that were cached for a write without a read of their page
    cdef readonly uint64_t mispredictions  # pages that a model was sure of and that said they were another LPA's
    cdef uint32_t* now                     # the entries of a page that models are trained from
    cdef bint moving                       # cleaning has moved pages, and is not through with their entries
    cdef bint always                       # every write-back trains, not only cleaning's
    cdef bint starts_runs                  # a run's line may replace a model
    # groups of translation pages that lie side by side, which are put in order together
    cdef readonly uint32_t group_pages     # translation pages of a group; 0: there are no groups
    cdef readonly uint32_t groups
    cdef readonly uint32_t group_most      # pages of a group that may be without a model
    cdef readonly uint32_t due             # a group of which more seem to be, or NONE
    cdef uint32_t budget                   # pages that may move so for each that the host writes, per cent
    cdef readonly uint64_t credit          # ... what is left of that: pages, times 100
    cdef uint32_t* changed                 # of each group: pages written and moved since it was looked at
    cdef uint32_t* places                  # where the pages of a group are
    cdef bint ordering                     # a group is being put in order
    cdef readonly uint64_t groups_looked_at, groups_ordered, group_moves
    cdef int count_changed(self, const uint32_t* lpas, uint32_t n) noexcept nogil
    cdef bint may_order(self) noexcept nogil
    cdef int order_group(self) except -1 nogil
    cdef uint32_t find_group(self, uint32_t group, uint32_t* unknown) except? 0xFFFFFFFE nogil
    cdef bint knows(self, uint32_t lpa, uint32_t* ppa) noexcept nogil
    cdef int count_read(self, uint32_t lpa, uint64_t hits, uint64_t loads) except -1 nogil
    cdef bint bring_known(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef int learn_loaded(self, uint32_t page) except -1 nogil
