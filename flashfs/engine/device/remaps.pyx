# distutils: language = c++
"""Remap, move and copy of whole pages: by a mapping that can map several LPAs to one page, or else by a copy.
byte_requests.pyx has the same for bytes."""
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport malloc

from flashfs.engine.contract.extent cimport RUN
from flashfs.engine.contract.engine cimport GOING, IN_REMAP
from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.device.ssd cimport Ssd

from flashfs.errors import AtomicRemapError


cdef int64_t remap(Ssd ssd, uint32_t target, uint32_t source, uint32_t n, bint move, int64_t t_ns) except -1 nogil:
    """Make ``n`` LPAs from ``target`` on read what those from ``source`` on read now, independent of later changes to
    the sources; holes become holes. With ``move``, sources that are not targets are unmapped. The ranges may overlap.
    Durable as a write is: after a flush. If the mapping cannot share pages, or not this one any more, the page is
    copied."""
    cdef uint32_t done = 0, part, at, apart
    cdef bint down = source < target and target - source < n
    cdef int64_t end = t_ns
    if target == source or n == 0:
        return t_ns
    apart = target - source if source < target else source - target
    while done < n:
        part = min(n - done, min(apart, <uint32_t> RUN))
        at = n - done - part if down else done
        end = max(end, remap_part(ssd, target + at, source + at, part, move, t_ns))
        done += part
    ssd.host_remap += n
    return end


cdef int64_t remap_part(Ssd ssd, uint32_t target, uint32_t source, uint32_t n, bint move,
                        int64_t t_ns) except -1 nogil:
    """Remap between two ranges of up to RUN pages that do not overlap, holes and mapped pages in turn."""
    cdef uint32_t i = 0, k, done
    cdef int64_t end = t_ns, one
    while i < n:
        ssd.now_ns = t_ns
        if ssd.stopped:
            ssd.refuse()
        k = 0
        while i + k < n and not ssd.is_mapped(source + i + k):
            k += 1
        if k:
            end = max(end, ssd.trim(target + i, k, t_ns))
            ssd.host_trim -= k
            i += k
            continue
        while i + k < n and ssd.is_mapped(source + i + k):
            k += 1
        done = 0
        if ssd.mapping.remapping is not None:
            end = max(end, remap_mapped(ssd, target + i, source + i, k, move, &done, t_ns))
        if done == 0:
            done = k if ssd.mapping.remapping is None else 1
            one = carry_over(ssd, target + i, source + i, done, t_ns)
            if move:
                one = ssd.trim(source + i, done, ssd.settle(one))
                ssd.host_trim -= done
            end = max(end, one)
        i += done
    return end


cdef int64_t remap_at_once(Ssd ssd, uint32_t target, uint32_t source, uint32_t n, bint move,
                           int64_t t_ns) except -1 nogil:
    """As ``remap``, for ranges that do not overlap, atomically: a crash leaves all of it or nothing. OSError
    EOPNOTSUPP, with nothing changed, if that is not possible."""
    cdef uint32_t i, done = 0
    cdef int64_t end
    if n > RUN:
        with gil:
            raise not_whole(f"{n} pages: {RUN} at most")
    ssd.now_ns = t_ns
    if ssd.stopped:
        ssd.refuse()
    for i in range(n):
        if not ssd.is_mapped(source + i):
            with gil:
                raise not_whole(f"LPA {source + i} holds nothing")
    end = remap_mapped(ssd, target, source, n, move, &done, t_ns)
    if done < n:
        with gil:
            raise not_whole("a page of it has as many LPAs as can be, or NVRAM has no room for the entries")
    ssd.host_remap += n
    return end


def not_whole(why):
    return AtomicRemapError(f"a remap that is atomic: {why}")


cdef int64_t remap_mapped(Ssd ssd, uint32_t target, uint32_t source, uint32_t n, bint move,
                          uint32_t* done, int64_t t_ns) except -1 nogil:
    """Remap ``n`` mapped sources; ``done`` gets how many were remapped, from the first on."""
    cdef uint32_t i
    ssd.chores()
    ssd.dirty = True
    drain_if_held(ssd, source, n)
    if move and ssd.meta.pending_n == ssd.meta.pending_room:
        ssd.log_trims()
    ssd.map_ns = t_ns
    done[0] = n = ssd.mapping.remapping.room(target, source, n, move)
    if n == 0:
        return t_ns
    ssd.stopped = IN_REMAP
    ssd.seq += 1
    ssd.mapping.remapping.run(target, source, n, ssd.seq, move, ssd.olds)
    for i in range(n):
        if ssd.buffer.held:
            ssd.buffer.drop(target + i)
        if ssd.cache.held:
            ssd.cache.drop(target + i)
            if move:
                ssd.cache.drop(source + i)
    ssd.validity.dead(ssd.olds, n)
    if move:                           # the NVRAM entry may go before the source's page is erased: log a trim
        ssd.moved = True
        ssd.meta.note_trim(source, n, ssd.seq)
        ssd.seq += 1                  # no later trim may join that record: the targets have its number too
    ssd.stopped = GOING
    return max(t_ns, ssd.map_ns)


cdef bint drain_if_held(Ssd ssd, uint32_t lpa, uint32_t n) except -1 nogil:
    """Drain the write buffer if it holds one of these LPAs; returns whether it did."""
    cdef uint32_t i
    for i in range(n if ssd.buffer.held else 0):
        if ssd.buffer.find(lpa + i) != NONE:
            ssd.drain()
            return True
    return False


cdef int64_t carry_over(Ssd ssd, uint32_t target, uint32_t source, uint32_t n, int64_t t_ns) except -1 nogil:
    """Copy ``n`` pages, up to RUN, by reads and writes."""
    cdef uint32_t i
    cdef uint32_t[RUN] lpas
    if ssd.carried == NULL and ssd.nand.keeps_data:
        ssd.carried = <uint8_t*> malloc(RUN * ssd.page_bytes)
        if ssd.carried == NULL:
            with gil:
                raise MemoryError
    lpas[0] = source  # n is not 0, which the compiler cannot see
    for i in range(n):
        lpas[i] = source + i
    t_ns = ssd.read(lpas, n, ssd.carried, t_ns)
    ssd.host_read -= n
    for i in range(n):
        lpas[i] = target + i
    t_ns = ssd.write(lpas, n, ssd.carried, t_ns)
    ssd.host_write -= n
    return t_ns


def remap_pages(Ssd ssd not None, uint32_t target, uint32_t source, uint32_t n, bint move=False, int64_t t_ns=0):
    """As ``remap``; returns the virtual time of the acknowledgement."""
    with nogil:
        t_ns = remap(ssd, target, source, n, move, t_ns)
    return t_ns
