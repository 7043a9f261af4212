"""Learning the map: error-bounded piecewise linear regression on runs of (LPA, PPA), after LeaFTL (ASPLOS'23, 3.2).

A run is sorted by LPA, and no LPA comes twice. A *piece* stands for consecutive points of it by a line

    PPA = f(x) = ceil(K x) + I      x: offset of the LPA in its group; K: half-precision float >= 0; I: integer mod 2^32

A piece is *accurate* or *approximate*, as K's lowest bit says (0: accurate). Lines are always tested as encoded, in
whole numbers, never before rounding:

- accurate: one point (K = 0, I = PPA), or LPAs of a constant stride n of 1 to 255 on PPAs that rise by one, where K is
  the largest even half not above 1/n and f gives every PPA exactly. Which LPAs it holds follows from its start, its
  length and round(1/K): no list of them is needed.
- approximate: any points for which some odd half K and integer I give |f(x) - PPA| <= gamma at every one of them.
  The table that stores it must list the LPAs that it holds. With gamma 0 there are none.

No piece crosses a group or (if ``pages_per_block`` is given) a block, or reaches 2^20 pages from its first PPA. With
``pages_per_block``, f stays within the PPAs that the run has in that block: a page that is read for a wrong prediction
is then always a programmed one of the same block, whose OOB names its neighbours. On the workload of docs/ftl/leaftl.md
this costs 2 to 5 % more pieces, and nothing at gamma 16.

**FEWEST** takes the longest piece at each point. Both kinds are hereditary (a part of a piece is a piece too), so this
greedy cover has the fewest pieces, and the search for the longest is in effect exhaustive over K and I:

- The lines that pass all points so far form a convex polygon in the plane of (K, I). Each point cuts off what passes
  above or below it: that is the whole feasible range of slopes, not the cone through one anchor.
- A *witness*, an encodable line from its middle, is carried along. As long as it passes the next point, no search is
  needed. When it fails, each integer I of the polygon, from the middle outwards, is tested for its range of K, in exact
  fractions over all points, until one has an odd half in it. If there is none, no encodable line passes.
- The polygon is kept in floating point and slightly too large, so rounding can only cost time.

**SMALLEST** weighs pieces by the bytes they take in a table: 8, and for an approximate one also a byte for each LPA and
a null. A stretch that one approximate piece could cover is divided the cheapest way between both kinds.
"""
from libc.math cimport fabs, frexp, ldexp, rint
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    CORNERS = 32                 # most corners of a polygon; a cut beyond that is skipped: it stays too large
    HALF_INFINITE = 0x7C00
    WINDOW = 256                 # most points that SMALLEST divides at once

cdef double SMALLEST_NORMAL = 0.00006103515625  # 2^-14
cdef double SLACK = 1e-5         # by which the polygon is too large, in pages: above any rounding

cdef struct Polygon:
    double[CORNERS] k
    double[CORNERS] b
    int n

cdef struct Fit:                 # the points that a line is sought for; y is a PPA less the first PPA
    const uint32_t* lpas
    const uint32_t* ppas
    uint32_t n
    uint32_t mask
    uint32_t cut_to              # the polygon knows the points before this one
    int64_t gamma
    int64_t low, high            # what f may predict, less the first PPA
    Polygon[2] areas             # one in use, one for the next cut
    Polygon* area
    uint16_t slope               # the witness
    int64_t intercept
    uint64_t slope_scaled


# --- half precision: every step is exact, without 16-bit floats of the compiler

cdef double half_value(uint16_t half) noexcept nogil:
    """The number that ``half`` encodes."""
    cdef double value = <double> scaled(half) * 5.9604644775390625e-08  # 2^-24
    if half & HALF_INFINITE == HALF_INFINITE:
        value = 0.0 / 0.0 if half & 1023 else 1.0 / 0.0
    return -value if half & 0x8000 else value


cdef inline uint64_t bits_of(double value) noexcept nogil:
    cdef uint64_t bits
    memcpy(&bits, &value, 8)
    return bits


cdef uint16_t half_nearest(double value) noexcept nogil:
    """``value`` rounded to half precision, ties to even, as IEEE 754 has it."""
    cdef uint16_t sign = <uint16_t> (bits_of(value) >> 48 & 0x8000)
    cdef int exponent
    if value != value:
        return 0x7E00
    value = fabs(value)
    if value >= 65520:
        return sign | HALF_INFINITE
    if value < SMALLEST_NORMAL:  # below it, halves are 2^-24 apart; 1024 of those make the first normal number
        return sign | <uint16_t> rint(ldexp(value, 24))
    value = rint(ldexp(frexp(value, &exponent), 11))  # 1024 to 2048, which carries into the exponent
    return sign | <uint16_t> ((exponent + 14) * 1024 + <int> value - 1024)


cdef uint16_t half_floor(double value) noexcept nogil:
    """The largest finite half not above ``value``; 0 for a negative one."""
    cdef uint64_t bits
    if not value > 0:
        return 0
    if value >= 65504:
        return HALF_INFINITE - 1
    if value < SMALLEST_NORMAL:
        return <uint16_t> (value * 16777216)
    bits = bits_of(value)  # a double's fraction, cut to 10 bits, and its exponent, counted from -15
    return <uint16_t> (((bits >> 52) - 1008) << 10 | (bits >> 42 & 1023))


# --- the polygon of lines that pass

cdef inline void corner(Polygon* area, double k, double b) noexcept nogil:
    area.k[area.n] = k
    area.b[area.n] = b
    area.n += 1


cdef void cut(Fit* fit, double* heights, double bound, bint above) noexcept nogil:
    """Keep the part above the bound, or below it; ``heights`` are the corners', and are updated."""
    cdef Polygon* old = fit.area
    cdef Polygon* new = &fit.areas[fit.area == &fit.areas[0]]
    cdef double[CORNERS] kept
    cdef int i, j = old.n - 1, n = 0
    cdef double t
    cdef bint here, there = (heights[j] >= bound) == above
    for i in range(old.n):
        here = (heights[i] >= bound) == above
        if here != there:
            t = (bound - heights[j]) / (heights[i] - heights[j])
            new.k[n] = old.k[j] + t * (old.k[i] - old.k[j])
            new.b[n] = old.b[j] + t * (old.b[i] - old.b[j])
            kept[n] = bound
            n += 1
        if here:
            new.k[n] = old.k[i]
            new.b[n] = old.b[i]
            kept[n] = heights[i]
            n += 1
        j = i
        there = here
    for i in range(n):
        heights[i] = kept[i]
    new.n = n
    fit.area = new


cdef inline void strip(const Fit* fit, uint32_t at, double* low, double* high) noexcept nogil:
    """The bounds of b + k x at point ``at``. If x is 0, b is a whole number, so bounds half a page higher are exact."""
    cdef int64_t y = <int64_t> fit.ppas[at] - fit.ppas[0]
    low[0] = <double> (max(y - fit.gamma, fit.low) - 1) - SLACK
    high[0] = <double> min(y + fit.gamma, fit.high) + SLACK
    if fit.lpas[at] & fit.mask == 0:
        low[0] += 0.5
        high[0] += 0.5


cdef bint narrow(Fit* fit, uint32_t at) noexcept nogil:
    """Cut off the lines that miss point ``at``; returns whether any is left."""
    cdef Polygon* area = fit.area
    cdef double x = fit.lpas[at] & fit.mask
    cdef double[CORNERS] heights
    cdef double low, high, least = 1e300, most = -1e300
    cdef int i, n = area.n
    strip(fit, at, &low, &high)
    for i in range(n):
        heights[i] = area.b[i] + area.k[i] * x
        least = heights[i] if heights[i] < least else least
        most = heights[i] if heights[i] > most else most
    if most < low or least > high:
        return False
    if least < low and n < CORNERS:
        cut(fit, heights, low, True)
    if most > high and fit.area.n < CORNERS:
        cut(fit, heights, high, False)
    return True


cdef bint begin(Fit* fit) noexcept nogil:
    """Begin with the polygon of the first point, up to the slopes that the second allows; returns whether there is
    one."""
    cdef double x = fit.lpas[0] & fit.mask
    cdef double dx = fit.lpas[1] - fit.lpas[0]
    cdef double low, high
    cdef double steepest = (<double> fit.ppas[1] - <double> fit.ppas[0] + 2 * fit.gamma + 3) / dx
    steepest = min(steepest, 65504)
    fit.area = &fit.areas[0]
    fit.area.n = 0
    if steepest <= 0:
        return False
    strip(fit, 0, &low, &high)
    corner(fit.area, 0, low)
    corner(fit.area, 0, high)
    corner(fit.area, steepest, high - steepest * x)
    corner(fit.area, steepest, low - steepest * x)
    fit.cut_to = 1
    return True


# --- the witness

cdef bint slopes_at(Polygon* area, double b, double* low, double* high) noexcept nogil:
    """The range of slopes in which the polygon meets the horizontal line at ``b``."""
    cdef int i, j = area.n - 1
    cdef double k
    low[0] = 1e300
    high[0] = -1e300
    for i in range(area.n):
        if (area.b[i] < b) != (area.b[j] < b):
            k = area.k[i] + (b - area.b[i]) / (area.b[j] - area.b[i]) * (area.k[j] - area.k[i])
            low[0] = min(low[0], k)
            high[0] = max(high[0], k)
        if area.b[i] == b:
            low[0] = min(low[0], area.k[i])
            high[0] = max(high[0], area.k[i])
        j = i
    return low[0] <= high[0]


cdef uint16_t odd_above(int64_t p, int64_t q) noexcept nogil:
    """The smallest odd half > p / q."""
    cdef uint16_t half
    if p < 0:
        return 1
    if p >= 65504 * q:
        return 0x7FFF
    half = half_floor(<double> p / <double> q)
    half -= half > 0
    while <int64_t> scaled(half) * q <= p << 24:
        half += 1
    return half | 1


cdef int odd_below(int64_t p, int64_t q) noexcept nogil:
    """The largest odd half <= p / q; negative if there is none."""
    cdef int half
    if p <= 0:
        return -1
    half = min(half_floor(<double> p / <double> q) + 1, HALF_INFINITE - 1)
    while <int64_t> scaled(<uint16_t> half) * q > p << 24:
        half -= 1
    return half if half & 1 else half - 1


cdef void witness(Fit* fit, uint16_t first, uint16_t last, int64_t intercept) noexcept nogil:
    """Take the odd half in the middle between two odd ones."""
    fit.slope = half_floor((half_value(first) + half_value(last)) / 2) | 1
    fit.slope_scaled = scaled(fit.slope)
    fit.intercept = intercept


cdef bint line_at(Fit* fit, uint32_t n, int64_t intercept) noexcept nogil:
    """Find a witness of that intercept for the first ``n`` points; returns whether there is one. Each point at x allows
    slopes in (low / x, high / x]; these fractions are compared exactly."""
    cdef int64_t low = -1, low_x = 1, high = 65504, high_x = 1, y, x, least, most
    cdef uint16_t first
    cdef int last
    cdef uint32_t i
    for i in range(n):
        y = <int64_t> fit.ppas[i] - fit.ppas[0]
        x = fit.lpas[i] & fit.mask
        least = max(y - fit.gamma, fit.low) - 1 - intercept
        most = min(y + fit.gamma, fit.high) - intercept
        if x == 0:
            if least >= 0 or most < 0:
                return False
            continue
        if least * low_x > low * x:
            low = least
            low_x = x
        if most * high_x < high * x:
            high = most
            high_x = x
    last = odd_below(high, high_x)
    if last < 0:
        return False
    first = odd_above(low, low_x)
    if first > last:
        return False
    witness(fit, first, <uint16_t> last, intercept)
    return True


cdef bint try_intercept(Fit* fit, uint32_t n, int64_t intercept) noexcept nogil:
    """Find a witness of that intercept for the first ``n`` points; returns whether there is one. A slope inside the
    polygon by more than its slack is certain, one outside by as much is impossible; only in between are the points
    tested."""
    cdef double low, high
    cdef uint16_t first
    cdef int last
    if not slopes_at(fit.area, intercept, &low, &high):
        return False
    last = odd_not_above(high - 2 * SLACK)
    first = half_floor(low + 2 * SLACK) + 1 | 1
    if first <= last:
        witness(fit, first, <uint16_t> last, intercept)
        return True
    last = odd_not_above(high + 2 * SLACK)
    if last < 0 or half_value(<uint16_t> last) < low - 2 * SLACK:
        return False
    return line_at(fit, n, intercept)


cdef inline int odd_not_above(double value) noexcept nogil:
    """The largest odd half <= ``value``; negative if there is none."""
    cdef int half = half_floor(value)
    return half if half & 1 else half - 1


cdef bint find_line(Fit* fit, uint32_t n) noexcept nogil:
    """Find a line that passes the first ``n`` points, near the middle of all that do; returns whether there is one."""
    cdef Polygon* area = fit.area
    cdef double least = area.b[0], most = area.b[0], sum = 0
    cdef int64_t middle, away = 0, first, last
    cdef int i
    for i in range(area.n):
        least = min(least, area.b[i])
        most = max(most, area.b[i])
        sum += area.b[i]
    first = <int64_t> least - 1  # a cast truncates towards zero: these bounds are never too narrow
    last = <int64_t> most + 1
    middle = <int64_t> (sum / area.n)
    while middle - away >= first or middle + away <= last:
        if middle + away <= last and try_intercept(fit, n, middle + away):
            return True
        if away > 0 and middle - away >= first and try_intercept(fit, n, middle - away):
            return True
        away += 1
    return False


cdef inline bint passes(const Fit* fit, uint32_t at) noexcept nogil:
    """Whether the witness passes point ``at``."""
    cdef int64_t y = <int64_t> fit.ppas[at] - fit.ppas[0]
    cdef int64_t told = <int64_t> ((fit.slope_scaled * (fit.lpas[at] & fit.mask) + 0xFFFFFF) >> 24) + fit.intercept
    return max(y - fit.gamma, fit.low) <= told <= min(y + fit.gamma, fit.high)


cdef inline bint between(const Fit* fit, uint32_t at) noexcept nogil:
    """Whether point ``at`` lies on the line between its neighbours: any line that passes those passes it too."""
    return (fit.lpas[at + 1] - fit.lpas[at] == fit.lpas[at] - fit.lpas[at - 1]
            and fit.ppas[at + 1] - fit.ppas[at] == fit.ppas[at] - fit.ppas[at - 1])


cdef bint new_witness(Fit* fit, uint32_t at) noexcept nogil:
    """Find a witness for all points up to ``at``; returns whether there is one. The last points cut most, and leave
    little to those before them: so the polygon is cut only now, and backwards."""
    cdef uint32_t i = at
    if at == 1 and not begin(fit):
        return False
    while i >= fit.cut_to:
        if (i == at or not between(fit, i)) and not narrow(fit, i):
            return False
        i -= 1
    fit.cut_to = at + 1
    return find_line(fit, at + 1)


cdef uint32_t longest_line(Fit* fit) noexcept nogil:
    """How many points, from the first on, one approximate piece can hold: 1 if none can. Its line is the witness."""
    cdef uint32_t at
    cdef int64_t y
    for at in range(1, fit.n):
        y = <int64_t> fit.ppas[at] - fit.ppas[0]
        if not -SPAN_MOST < y < SPAN_MOST:
            return at
        if at > 1 and passes(fit, at):
            continue
        if not new_witness(fit, at):
            return at
    return fit.n


# --- pieces

cdef uint16_t[STRIDE_MOST + 1] slope_for  # the slope of an accurate piece by its stride
for _stride in range(1, STRIDE_MOST + 1):
    slope_for[_stride] = half_floor(1.0 / _stride) & ~<uint16_t> APPROXIMATE


cdef uint32_t constant_stride(const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint32_t mask,
                              Piece* piece) noexcept nogil:
    """How many points, from the first on, one accurate piece holds; ``piece`` gets its line."""
    cdef uint32_t stride, i
    cdef uint64_t k
    piece.slope = 0
    piece.intercept = ppas[0]
    if n < 2 or ppas[1] != ppas[0] + 1 or lpas[1] - lpas[0] > STRIDE_MOST:
        return 1
    stride = lpas[1] - lpas[0]
    piece.slope = slope_for[stride]
    k = scaled(piece.slope)
    piece.intercept = ppas[0] - <uint32_t> ((k * (lpas[0] & mask) + 0xFFFFFF) >> 24)
    for i in range(1, n):
        if lpas[i] - lpas[i - 1] != stride or ppas[i] != ppas[0] + i or (
                <uint32_t> ((k * (lpas[i] & mask) + 0xFFFFFF) >> 24) + piece.intercept != ppas[i]):
            break
    else:
        i = n
    if i == 1:  # beyond offset 255 a half may be too coarse even for two points
        piece.slope = 0
        piece.intercept = ppas[0]
    return i


cdef void settle(const Fit* fit, uint32_t first, uint32_t n, Piece* piece) noexcept nogil:
    """Set the piece's line from the witness, for points ``first`` to ``first + n``: of the intercepts that are within
    gamma at each of them, the one that is exact at most points."""
    cdef uint32_t[2 * GAMMA_MOST + 1] hits
    cdef int64_t base = fit.intercept - fit.gamma, least = -1 << 40, most = 1 << 40, y, told, best
    cdef uint32_t i
    memset(hits, 0, sizeof(hits))
    for i in range(first, first + n):
        y = <int64_t> fit.ppas[i] - fit.ppas[0]
        told = <int64_t> ((fit.slope_scaled * (fit.lpas[i] & fit.mask) + 0xFFFFFF) >> 24)
        least = max(least, max(y - fit.gamma, fit.low) - told)
        most = min(most, min(y + fit.gamma, fit.high) - told)
        hits[y - told - base] += 1  # the witness is within gamma, so this is 0 to 2 gamma
    best = least
    for i in range(<uint32_t> (least - base) + 1, <uint32_t> (most - base) + 1):
        if hits[i] > hits[best - base]:
            best = base + i
    piece.slope = fit.slope
    piece.intercept = <uint32_t> (best + fit.ppas[0])


cdef inline void finish(const Fit* fit, uint32_t from_point, uint32_t first, uint32_t n, Piece* piece) noexcept nogil:
    """Set what a piece has of its points, which are ``first`` to ``first + n`` of the fit's."""
    piece.first = from_point + first
    piece.n = n
    piece.start = fit.lpas[first] & fit.mask
    piece.length = fit.lpas[first + n - 1] - fit.lpas[first]


cdef uint32_t steady_until(const Fit* fit, uint32_t at, uint32_t start) noexcept nogil:
    """Where the constant stride that ends with point ``at`` began, given that the one ending at the previous point
    began at ``start``."""
    cdef uint32_t stride
    if at == 0 or fit.ppas[at] != fit.ppas[at - 1] + 1:
        return at
    stride = fit.lpas[at] - fit.lpas[at - 1]
    if stride > STRIDE_MOST:
        return at
    if start + 1 < at and fit.lpas[at - 1] - fit.lpas[at - 2] == stride:
        return start
    return at - 1


cdef uint32_t emit_accurate(const Fit* fit, uint32_t from_point, uint32_t first, uint32_t n, Piece* out,
                            uint32_t* count) noexcept nogil:
    """Accurate pieces for points of a constant stride: one, except where slopes are too coarse in very large groups."""
    cdef uint32_t done = 0, got
    while done < n:
        got = constant_stride(fit.lpas + first + done, fit.ppas + first + done, n - done, fit.mask, &out[count[0]])
        finish(fit, from_point, first + done, got, &out[count[0]])
        count[0] += 1
        done += got
    return n


cdef uint32_t divide(Fit* fit, uint32_t n, uint32_t from_point, Piece* out, uint32_t* count) noexcept nogil:
    """Pieces of the fewest bytes for the first ``n`` points, which one approximate piece could hold; returns how many
    points got a piece. A last accurate piece is left for the next turn, since it may reach further."""
    cdef uint16_t[WINDOW + 1] cost, came
    cdef uint8_t[WINDOW + 1] kind
    cdef uint16_t[WINDOW + 1] ends
    cdef uint32_t j, start = 0, inside = 1 << 14, open_at = 0, bounds = 0, first
    n = min(n, <uint32_t> WINDOW)
    cost[0] = 0
    for j in range(1, n + 1):
        start = steady_until(fit, j - 1, start)
        if cost[j - 1] + <uint32_t> PIECE_BYTES + 1 < inside:
            inside = cost[j - 1] + <uint32_t> PIECE_BYTES + 1
            open_at = j - 1
        inside += 1
        kind[j] = inside < cost[start] + <uint32_t> PIECE_BYTES
        cost[j] = <uint16_t> (inside if kind[j] else cost[start] + <uint32_t> PIECE_BYTES)
        came[j] = <uint16_t> (open_at if kind[j] else start)
    if n < fit.n and kind[n]:
        start = steady_until(fit, n, start)
        if start < n and cost[start] < inside:  # an accurate piece that goes on beyond them saves the next its bytes
            kind[n] = 0
            came[n] = <uint16_t> start
    j = n
    while j > 0:
        ends[bounds] = <uint16_t> j
        bounds += 1
        j = came[j]
    first = 0
    while bounds > 0:
        bounds -= 1
        j = ends[bounds]
        if kind[j]:
            settle(fit, first, j - first, &out[count[0]])
            finish(fit, from_point, first, j - first, &out[count[0]])
            count[0] += 1
        elif bounds == 0 and first > 0 and n < fit.n:
            return first
        else:
            emit_accurate(fit, from_point, first, j - first, out, count)
        first = j
    return first


cdef uint32_t next_pieces(Fit* fit, uint32_t objective, uint32_t from_point, Piece* out,
                          uint32_t* count) noexcept nogil:
    """Emit one or several pieces for the first points; returns how many points they hold."""
    cdef uint32_t steady, n
    steady = constant_stride(fit.lpas, fit.ppas, fit.n, fit.mask, &out[count[0]])
    if fit.gamma > 0 and steady < fit.n and not (objective == SMALLEST and steady >= PIECE_BYTES):
        n = longest_line(fit)
        if n > steady:
            if objective == SMALLEST:
                return divide(fit, n, from_point, out, count)
            settle(fit, 0, n, &out[count[0]])
            steady = n
    finish(fit, from_point, 0, steady, &out[count[0]])
    count[0] += 1
    return steady


cdef uint32_t block_part(const uint32_t* ppas, uint32_t at, uint32_t n, uint32_t pages_per_block,
                         uint32_t* low, uint32_t* high) noexcept nogil:
    """The end of the points from ``at`` on in one block; sets the range of PPAs that a piece may predict."""
    cdef uint32_t first, least, most
    low[0] = 0
    high[0] = 0xFFFFFFFE
    if pages_per_block == 0:
        return n
    first = ppas[at] - ppas[at] % pages_per_block
    least = most = ppas[at]
    while at < n and ppas[at] - first < pages_per_block:  # unsigned: a PPA below the block wraps to a large number
        least = min(least, ppas[at])
        most = max(most, ppas[at])
        at += 1
    low[0] = least
    high[0] = most
    return at


cdef uint32_t learn(const uint32_t* lpas, const uint32_t* ppas, uint32_t n, const Rules* rules,
                    Piece* out) noexcept nogil:
    """Learn pieces for a run sorted by LPA, in its order; returns how many. ``out`` has room for ``n``, which is
    enough."""
    cdef Fit fit
    cdef uint32_t at = 0, block_end = 0, end, count = 0, low = 0, high = 0, group
    fit.mask = rules.group - 1
    fit.gamma = rules.gamma
    while at < n:
        if at >= block_end:
            block_end = block_part(ppas, at, n, rules.pages_per_block, &low, &high)
        group = lpas[at] & ~fit.mask
        end = at + 1
        while end < block_end and lpas[end] & ~fit.mask == group:
            end += 1
        while at < end:
            fit.lpas = lpas + at
            fit.ppas = ppas + at
            fit.n = end - at
            fit.low = <int64_t> low - ppas[at]
            fit.high = <int64_t> high - ppas[at]
            at += next_pieces(&fit, rules.objective, at, out, &count)
    return count
