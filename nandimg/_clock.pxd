# When a die or a channel is busy: until its tail, but for the idle stretches before it that are still known.
from libc.stdint cimport int64_t, uint32_t

cdef enum:
    GAPS = 8                 # idle stretches remembered; beyond that the earliest is forgotten

cdef struct Timeline:
    int64_t tail             # ns from which it is free for good
    int64_t busy             # ns that it was given to somebody
    uint32_t gaps_n
    int64_t[GAPS] gap_from   # in order of time
    int64_t[GAPS] gap_to


cdef inline int forget_gap(Timeline* line, uint32_t at) noexcept nogil:
    cdef uint32_t i
    line.gaps_n -= 1
    for i in range(at, line.gaps_n):
        line.gap_from[i] = line.gap_from[i + 1]
        line.gap_to[i] = line.gap_to[i + 1]
    return 0


cdef inline int64_t take_gap(Timeline* line, int64_t ready, int64_t duration) noexcept nogil:
    """When ``duration`` begins in the first idle stretch that has room for it from ``ready`` on; -1 if none has."""
    cdef uint32_t i, k
    cdef int64_t start, end
    for i in range(line.gaps_n):
        start = max(line.gap_from[i], ready)
        if start + duration > line.gap_to[i]:
            continue
        end = line.gap_to[i]
        if start > line.gap_from[i] and start + duration < end:   # two stretches remain
            line.gap_to[i] = start
            if line.gaps_n == GAPS:
                forget_gap(line, 0)
                if i == 0:                                        # it was the earlier of the two
                    i = <uint32_t> -1
                else:
                    i -= 1
            k = line.gaps_n
            while k > i + 1:
                line.gap_from[k] = line.gap_from[k - 1]
                line.gap_to[k] = line.gap_to[k - 1]
                k -= 1
            line.gap_from[i + 1] = start + duration
            line.gap_to[i + 1] = end
            line.gaps_n += 1
        elif start > line.gap_from[i]:
            line.gap_to[i] = start
        elif start + duration < end:
            line.gap_from[i] = start + duration
        else:
            forget_gap(line, i)
        return start
    return -1


cdef inline int64_t take_time(Timeline* line, int64_t ready, int64_t duration) noexcept nogil:
    """When ``duration`` begins that could begin at ``ready``: at once if the line is idle, in an idle stretch that is
    long enough, or at its tail. Who asks first is served first, but never waits while nobody is."""
    cdef int64_t start
    if duration == 0:
        return ready
    line.busy += duration
    if ready >= line.tail:
        if ready > line.tail:
            if line.gaps_n == GAPS:
                forget_gap(line, 0)
            line.gap_from[line.gaps_n] = line.tail
            line.gap_to[line.gaps_n] = ready
            line.gaps_n += 1
        line.tail = ready + duration
        return ready
    if line.gaps_n:
        start = take_gap(line, ready, duration)
        if start >= 0:
            return start
    start = line.tail
    line.tail += duration
    return start
