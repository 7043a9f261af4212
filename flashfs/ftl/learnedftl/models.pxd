# In-place models of translation pages, and which of their answers are exact; see models.pyx.
from libc.stdint cimport int16_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    PIECES = 8               # lines of a model
    SPAN = 512               # most LPAs of a model
    ONE = 4096               # slope 1: slopes are in VPPNs an LPA, times this


cdef struct Piece:
    uint16_t off                           # its first LPA, relative to the model's first
    int16_t slope
    int16_t rise                           # VPPN at ``off``, less the model's base


cdef struct Model:
    uint32_t base                          # a VPPN that all pieces are near
    uint16_t exact_n                       # number of set bits
    uint8_t pieces                         # number of pieces; 0: no model
    uint8_t tried                          # training was tried, successful or not
    Piece[8] piece                         # ascending by ``off``
    uint64_t[8] exact                      # the bitmap filter: a bit for each LPA


cdef class Models:
    cdef readonly uint32_t pages, per_page  # translation pages, and entries of one
    cdef readonly uint32_t span            # LPAs of a model,
    cdef readonly uint32_t models_a_page   # and models of a translation page
    cdef readonly uint32_t least           # fewest mapped LPAs that a model is trained from
    cdef readonly uint32_t dies, pages_per_block
    cdef readonly uint64_t trained, taken  # models trained; those better than the old ones
    cdef readonly uint64_t runs, extended  # models replaced by a run's line; runs added as a piece
    cdef readonly uint64_t exact_n         # set bits of all models
    cdef Model* models
    cdef uint16_t[512] x                   # the points of a training: LPAs, relative to the model's first,
    cdef int64_t[512] y                    # and their VPPNs
    cdef Model draft
    cdef Model* of(self, uint32_t lpa, uint32_t* x) noexcept nogil
    cdef bint predict(self, uint32_t lpa, uint32_t* ppa) noexcept nogil
    cdef int forget(self, uint32_t lpa) noexcept nogil
    cdef int forget_page(self, uint32_t page) noexcept nogil
    cdef int forget_all(self) noexcept nogil
    cdef int mark(self, uint32_t page, uint64_t* bits) noexcept nogil
    cdef uint64_t known_in(self, uint32_t first, uint32_t end) noexcept nogil
    cdef bint is_untried(self, uint32_t page) noexcept nogil
    cdef int train(self, uint32_t page, const uint32_t* ppas, uint32_t n) noexcept nogil
    cdef int train_one(self, Model* model, const uint32_t* ppas, uint32_t n) noexcept nogil
    cdef int put_base(self, uint32_t n, uint32_t pieces) noexcept nogil
    cdef uint32_t fit(self, uint32_t first, uint32_t end, Piece* piece) noexcept nogil
    cdef bint line(self, uint32_t first, uint32_t end, Piece* piece) noexcept nogil
    cdef uint32_t count(self, uint32_t first, uint32_t end, const Piece* piece) noexcept nogil
    cdef int learn_run(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) noexcept nogil
    cdef int take_run(self, uint32_t lpa, uint32_t vppn, uint32_t n) noexcept nogil
    cdef bint extend(self, Model* model, uint32_t x, uint32_t vppn, uint32_t n) noexcept nogil
    cdef int replace(self, Model* model, uint32_t x, uint32_t vppn, uint32_t n) noexcept nogil
    cdef int set_bit(self, Model* model, uint32_t x) noexcept nogil
    cdef unpack(self, saved, uint32_t lpas, uint32_t chip_pages)
    cdef int pack_one(self, const Model* model, uint8_t* out) noexcept nogil
    cdef int unpack_one(self, Model* model, const uint8_t* saved) except -1
    cdef bint count_bits(self, Model* model, uint32_t n, uint32_t chip_pages) noexcept nogil
