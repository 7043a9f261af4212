# LearnedFTL's mapping; see mapping.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from flashfs.engine.contract.extensions cimport Runs
from flashfs.ftl.learnedftl.groups cimport Groups
from flashfs.ftl.learnedftl.models cimport Models
from flashfs.parts.paged.tpftl_map cimport TpMap


cdef class RunModels(Runs):
    cdef LearnedMap map


cdef class LearnedMap(TpMap):
    cdef readonly Models models
    cdef readonly uint64_t reads_cached, reads_modelled, reads_doubled
    cdef readonly uint64_t writes_modelled  # entries cached for a write without a read of their page
    cdef readonly uint64_t mispredictions  # predicted pages whose OOB had another LPA
    cdef readonly uint64_t lpas_restored   # bits that a clean checkpoint had at the mount
    cdef readonly uint64_t pages_retrained  # translation pages whose models were trained at their first read
    cdef uint32_t* now                     # the entries of a page that models are trained from
    cdef bint moving                       # cleaning has moved pages, and their entries are not complete
    cdef uint32_t learn_ns                 # of virtual time, for each LPA trained and each page sorted
    cdef int train(self, uint32_t page, const uint32_t* ppas, uint32_t n) noexcept nogil
    cdef bint always                       # every write-back trains, not only cleaning's
    cdef bint starts_runs                  # a run's line may replace a model
    cdef readonly Groups groups            # groups of translation pages, or None
    cdef uint32_t* places                  # PPAs of the pages of a group
    cdef bint ordering                     # a group is being put in order
    # wall time of training, and of sorting the places of groups (the mover sorts LPAs): not among the figures, since
    # these values differ from run to run
    cdef readonly int64_t train_ns, sort_ns
    cdef readonly uint64_t groups_looked_at, groups_ordered, group_moves
    cdef int order_group(self, uint32_t n, int stream) except -1 nogil
    cdef uint32_t unknown_of(self, uint32_t group) noexcept nogil
    cdef uint32_t most_unknown(self) noexcept nogil
    cdef uint32_t find_group(self, uint32_t group, uint32_t* unknown) except? 0xFFFFFFFE nogil
    cdef int find_page(self, uint32_t page) except -1 nogil
    cdef bint knows(self, uint32_t lpa, uint32_t* ppa) noexcept nogil
    cdef int count_read(self, uint32_t lpa, uint64_t hits, uint64_t loads) except -1 nogil
    cdef bint bring_known(self, uint32_t lpa, uint32_t ppa) except -1 nogil
    cdef int learn_loaded(self, uint32_t page) except -1 nogil
