# Error-bounded piecewise linear regression on runs of (LPA, PPA); see regression.pyx for what a piece promises.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    GAMMA_MOST = 16
    STRIDE_MOST = 255            # the half nearest below 1/n still names n: accurate pieces have no larger stride
    GROUP_MOST = 65536           # LPAs
    SPAN_MOST = 1048576          # pages that a piece may reach from its first PPA, either way
    FEWEST = 0                   # as few pieces as can be
    SMALLEST = 1                 # as few bytes: an approximate piece also costs a CRB byte for each LPA, and one null
    PIECE_BYTES = 8              # size of a packed segment, for SMALLEST
    APPROXIMATE = 1              # in a slope's lowest bit
    SLOPE_BITS = 0x7FFF          # a slope is never negative: a table may use the sign bit

cdef struct Rules:
    uint32_t gamma               # pages; 0: accurate pieces only
    uint32_t group               # LPAs, a power of two: no piece crosses a multiple of it
    uint32_t pages_per_block     # no piece leaves a block, and none predicts a page outside its run; 0: neither
    uint32_t objective           # FEWEST or SMALLEST

cdef struct Piece:
    uint32_t first, n            # the points
    uint32_t start, length       # offset in the group of the first LPA, and from there to the last
    uint32_t intercept           # modulo 2^32
    uint16_t slope               # half precision; APPROXIMATE is its lowest bit

cdef uint16_t half_nearest(double value) noexcept nogil
cdef uint16_t half_floor(double value) noexcept nogil
cdef double half_value(uint16_t half) noexcept nogil
cdef uint32_t learn(const uint32_t* lpas, const uint32_t* ppas, uint32_t n, const Rules* rules,
                    Piece* out) noexcept nogil


cdef inline uint64_t scaled(uint16_t half) noexcept nogil:
    """A finite half, without its sign, times 2^24: a whole number below 2^41."""
    cdef uint32_t exponent = half >> 10 & 31, fraction = half & 1023
    return <uint64_t> (fraction + 1024) << (exponent - 1) if exponent else fraction


cdef inline uint32_t predict(uint16_t slope, uint32_t intercept, uint32_t x) noexcept nogil:
    """ceil(slope * x) + intercept, exactly; ``x`` is an offset in the group."""
    return <uint32_t> ((scaled(slope) * x + 0xFFFFFF) >> 24) + intercept


cdef inline uint32_t stride_of(uint16_t slope) noexcept nogil:
    """LPAs from point to point of an accurate piece: round(1 / slope); 1 for the slope 0 of a single point."""
    cdef uint64_t k = scaled(slope)
    if slope & SLOPE_BITS == 0x3C00 or k == 0:
        return 1
    return <uint32_t> (16777216.0 / <double> k + 0.5)
