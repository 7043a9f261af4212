# When a die or a channel is busy: until its tail, except in the idle gaps before it that are remembered.
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memmove

cdef enum:
    GAPS = 256               # idle gaps remembered; beyond that the earliest is dropped
    ROOM = 2 * GAPS          # so that dropping a gap need not move the others each time

cdef struct Timeline:
    int64_t tail             # ns from which it is free for good
    int64_t busy             # ns that it was in use
    uint32_t first           # index of the first gap; gaps are contiguous and in order of time
    uint32_t gaps_n
    int64_t[5] apart         # padding, so that the heads of several timelines do not share cache lines
    int64_t[ROOM] gap_from
    int64_t[ROOM] gap_to


cdef inline int close_up(Timeline* line, uint32_t at, uint32_t by) noexcept nogil:
    """Move the gaps from index ``at`` on to index ``by``."""
    cdef size_t n = (line.first + line.gaps_n - at) * sizeof(int64_t)
    memmove(line.gap_from + by, line.gap_from + at, n)
    memmove(line.gap_to + by, line.gap_to + at, n)
    return 0


cdef inline uint32_t insert_gap(Timeline* line, uint32_t at) noexcept nogil:
    """Make room for one more gap in front of index ``at``; returns its index. Drops the earliest if there are GAPS."""
    cdef uint32_t end
    if line.gaps_n == GAPS:
        line.first += 1
        line.gaps_n -= 1
    if line.first + line.gaps_n == ROOM:
        end = line.first
        close_up(line, end, 0)
        line.first = 0
        at -= end
    close_up(line, at, at + 1)
    line.gaps_n += 1
    return at


cdef inline int64_t take_gap(Timeline* line, int64_t ready, int64_t duration, int64_t least) noexcept nogil:
    """Take ``duration`` from the first gap that has room for it from ``ready`` on; returns its begin, -1 if none has.
    What is left of the gap is remembered if it is at least ``least`` long."""
    cdef uint32_t low = line.first, high = line.first + line.gaps_n - 1, at, step = 1
    cdef int64_t start, end
    cdef bint before, behind
    if line.gap_to[high] < ready + duration:
        return -1
    # Find the first gap that ends late enough. It is usually among the last, so the search begins there: a plain binary
    # search would fetch a cache line per step, and there are dozens of dies.
    while high - low >= step and line.gap_to[high - step] >= ready + duration:
        high -= step
        step *= 2
    if high - low >= step:
        low = high - step + 1
    while low < high:
        at = (low + high) // 2
        if line.gap_to[at] < ready + duration:
            low = at + 1
        else:
            high = at
    for at in range(low, line.first + line.gaps_n):
        start = max(line.gap_from[at], ready)
        end = line.gap_to[at]
        if start + duration > end:
            continue
        before = start - line.gap_from[at] >= least
        behind = end - start - duration >= least
        if before and behind:
            if at == line.first and line.gaps_n == GAPS:
                line.gap_from[at] = start + duration      # the earlier of the two is the earliest of all
            else:
                line.gap_to[at] = start
                at = insert_gap(line, at + 1)
                line.gap_from[at] = start + duration
                line.gap_to[at] = end
        elif before:
            line.gap_to[at] = start
        elif behind:
            line.gap_from[at] = start + duration
        else:
            close_up(line, at + 1, at)
            line.gaps_n -= 1
        return start
    return -1


cdef inline int64_t take_time(Timeline* line, int64_t ready, int64_t duration, int64_t least) noexcept nogil:
    """Take ``duration`` from ``ready`` on; returns its begin: at once if the line is idle, in a gap that is long
    enough, or at the tail. Requests are served in the order of the calls, but a later one may use an earlier gap.
    ``least`` is the shortest duration that is ever asked for: no shorter gap is of use."""
    cdef int64_t start
    cdef uint32_t at
    if duration == 0:
        return ready
    line.busy += duration
    if ready >= line.tail:
        if ready - line.tail >= max(least, 1):
            at = insert_gap(line, line.first + line.gaps_n)
            line.gap_from[at] = line.tail
            line.gap_to[at] = ready
        line.tail = ready + duration
        return ready
    if line.gaps_n:
        start = take_gap(line, ready, duration, max(least, 1))
        if start >= 0:
            return start
    start = line.tail
    line.tail += duration
    return start
