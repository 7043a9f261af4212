# The runs of Logarithmic Gecko; see runs.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.contract.engine cimport Engine
from flashfs.parts.paged.part_pages cimport DramDirectory, TranslationPages
from flashfs.ftl.geckoftl.entries cimport EntryList, Layout

cdef enum:
    HEAD_BYTES = 32          # the header of a page of a run
    RUNS_MOST = 40           # one a level
    UNREAD = 0xFFFFFFFD      # in place of a block: a page cannot be read
    UNANNOUNCED = 128        # entries added without ``prepare``: of opened blocks, of pages that never lived


cdef class GeckoRuns


cdef class RunPages(DramDirectory):
    cdef GeckoRuns gecko
    cdef uint32_t* spare                   # page numbers not in use
    cdef readonly uint32_t spare_n
    cdef readonly uint32_t missing_n       # pages of runs that were lost


cdef struct Run:
    uint64_t number                        # sequence number at its creation: unique, and newer ones are larger
    uint32_t n, data_n, level
    uint32_t* ids                          # page numbers: those with entries, then those of the postamble
    uint32_t* firsts                       # the slot of the first entry of each page with entries


cdef struct Input:                         # of a merge
    const uint8_t* at                      # entries of the page that is being read
    uint32_t i, n, page
    int run                                # -1: the buffer


cdef class GeckoRuns:
    cdef readonly Engine ssd
    cdef readonly Layout layout
    cdef readonly EntryList buffer
    cdef readonly TranslationPages store
    cdef readonly RunPages directory
    cdef readonly uint32_t per_page, ratio, levels_most, model_pages
    cdef readonly uint32_t pages_most     # most pages in force and superseded, before a sync
    cdef readonly bint multiway
    cdef Run[40] runs                      # the newest first: sizes rise with age
    cdef readonly uint32_t runs_n
    cdef readonly bint unsettled           # a run may be as large as the next older: failed merge, new ratio
    cdef Input[40] inputs
    cdef uint8_t* images                   # a page for each input, then one of output, then one for queries
    cdef uint64_t* seen                    # bitmap of the block that a merge is at
    cdef uint8_t* piece                    # an entry that may go to the page of output
    cdef Run made                          # the run that is being written
    cdef uint32_t out_n
    cdef readonly uint64_t flushes, merges, merged_pages, queries, query_reads
    cdef uint32_t level_of(self, uint32_t pages) noexcept nogil
    cdef uint32_t pages_of(self, uint32_t entries) noexcept nogil
    cdef uint32_t live_pages(self) noexcept nogil
    cdef int flush(self) except -1 nogil
    cdef int settle_levels(self) except -1 nogil
    cdef bint needs_more(self, uint32_t pages) noexcept nogil
    cdef int make_way(self) except -1 nogil
    cdef int merge(self, uint32_t take, bint with_buffer) except -1 nogil
    cdef int merge_inputs(self, uint32_t n, const uint64_t* replaced, uint32_t replaced_n) except -1 nogil
    cdef bint load_input(self, Input* input) except -1 nogil
    cdef int advance(self, Input* input) except -1 nogil
    cdef uint32_t next_block(self, uint32_t n, bint* erased) except? 0xFFFFFFFE nogil
    cdef int put_block(self, uint32_t block, bint erased) except -1 nogil
    cdef int begin_made(self, uint32_t pages) except -1 nogil
    cdef int write_out(self) except -1 nogil
    cdef int write_postamble(self, const uint64_t* replaced, uint32_t replaced_n, uint32_t behind) except -1 nogil
    cdef int give_up(self) except -1 nogil
    cdef int install(self, uint32_t take, bint with_buffer) except -1 nogil
    cdef int let_go(self, Run* run) except -1 nogil
    cdef int read_page(self, uint32_t id, uint64_t number, uint32_t index, uint8_t* into) except? -2 nogil
    cdef uint32_t page_from(self, const Run* run, uint32_t slot) noexcept nogil
    cdef int query(self, uint32_t block, uint64_t* words) except -1 nogil
    cdef int forget_runs(self) except -1 nogil
    cdef int free_run(self, Run* run) noexcept nogil
