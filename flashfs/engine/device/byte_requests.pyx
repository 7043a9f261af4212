"""Requests in bytes, of any alignment, as requests in pages: whole pages as runs, partial pages at the ends by
read-modify-write. Callers must check that a request lies within the device."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from flashfs.engine.contract.extent cimport RUN
from flashfs.engine.device.remaps cimport remap, remap_at_once
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.blocks.pool cimport NONE

from flashfs.engine.device.remaps import not_whole


cdef uint32_t run_at(Ssd ssd, uint64_t offset, uint64_t left, uint32_t* lpas) noexcept nogil:
    """How many whole pages begin at ``offset``, up to RUN, and their LPAs; 0 if ``offset`` is not the start of a
    page."""
    cdef uint32_t i, n, lpa = <uint32_t> (offset // ssd.page_bytes)
    if offset % ssd.page_bytes:
        return 0
    n = <uint32_t> min(left // ssd.page_bytes, <uint64_t> RUN)
    for i in range(n):
        lpas[i] = lpa + i
    return n


cdef uint32_t ragged(Ssd ssd, uint64_t offset, uint64_t left) noexcept nogil:
    """How many bytes a request takes of the page around ``offset``, which it does not take whole."""
    return <uint32_t> min(left, ssd.page_bytes - offset % ssd.page_bytes)


cdef int64_t read_bytes(Ssd ssd, uint64_t offset, uint64_t size, uint8_t* into, int64_t t_ns) except -1 nogil:
    """Read ``size`` bytes from ``offset`` on (``into`` NULL: they are dropped); returns the virtual time at which the
    last one is read."""
    cdef uint32_t n, take, lpa
    cdef uint32_t[RUN] lpas
    cdef int64_t end = t_ns
    while size:
        n = run_at(ssd, offset, size, lpas)
        if n:
            end = max(end, ssd.read(lpas, n, into, t_ns))
            take = n * ssd.page_bytes
        else:
            take = ragged(ssd, offset, size)
            lpa = <uint32_t> (offset // ssd.page_bytes)
            end = max(end, ssd.read(&lpa, 1, ssd.edge, t_ns))
            if into != NULL:
                memcpy(into, ssd.edge + offset % ssd.page_bytes, take)
        if into != NULL:
            into += take
        offset += take
        size -= take
    return end


cdef int64_t write_bytes(Ssd ssd, uint64_t offset, uint64_t size, const uint8_t* data, int64_t t_ns) except -1 nogil:
    """Returns the virtual time of the last acknowledgement. A page written in part is read first; the host's counters
    do not include that read. ``data`` NULL: zeros."""
    cdef uint32_t n, take, lpa
    cdef uint32_t[RUN] lpas
    cdef int64_t end = t_ns
    while size:
        n = run_at(ssd, offset, size, lpas)
        if n:
            end = max(end, ssd.write(lpas, n, data, t_ns))
            take = n * ssd.page_bytes
        else:
            take = ragged(ssd, offset, size)
            lpa = <uint32_t> (offset // ssd.page_bytes)
            end = max(end, ssd.read(&lpa, 1, ssd.edge, t_ns))
            ssd.host_read -= 1
            if data != NULL:
                memcpy(ssd.edge + offset % ssd.page_bytes, data, take)
            else:
                memset(ssd.edge + offset % ssd.page_bytes, 0, take)
            end = max(end, ssd.write(&lpa, 1, ssd.edge, end))
        if data != NULL:
            data += take
        offset += take
        size -= take
    return end


cdef int64_t trim_bytes(Ssd ssd, uint64_t offset, uint64_t size, int64_t t_ns) except -1 nogil:
    """Make the range read zeros: whole pages are trimmed; partial pages are overwritten unless they are unmapped."""
    cdef uint64_t whole
    cdef uint32_t take
    cdef int64_t end = t_ns
    while size:
        whole = 0 if offset % ssd.page_bytes else size // ssd.page_bytes
        if whole:
            end = max(end, ssd.trim(<uint32_t> (offset // ssd.page_bytes), <uint32_t> whole, t_ns))
            whole *= ssd.page_bytes
            offset += whole
            size -= whole
            continue
        take = ragged(ssd, offset, size)
        if ssd.is_mapped(<uint32_t> (offset // ssd.page_bytes)):
            end = max(end, write_bytes(ssd, offset, take, NULL, t_ns))
        offset += take
        size -= take
    return end


cdef int64_t copy_bytes(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, uint8_t* scratch,
                        uint64_t scratch_bytes, int64_t t_ns) except -1 nogil:
    """Copy ``size`` bytes from ``source`` to ``target``; the ranges must not overlap. Works by pages of the target:
    each changes once, wherever the source's pages and holes begin. A page that gets only holes becomes a hole.
    ``scratch`` holds at least one page. A scheme that remaps shares pages where it can."""
    if ssd.mapping.remapping is not None:
        return remap_steps(ssd, source, target, size, False, scratch, scratch_bytes, t_ns)
    return copy_up(ssd, source, target, size, scratch, scratch_bytes, t_ns)


cdef int64_t remap_bytes(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, bint move, uint8_t* scratch,
                         uint64_t scratch_bytes, int64_t t_ns) except -1 nogil:
    """Make the ``size`` bytes at ``target`` read what those at ``source`` did; the ranges may overlap. If both offsets
    are equal modulo the page size, whole pages are remapped and only partial pages are copied; else everything is
    copied. Each page of the target changes once. With ``move``, bytes of the source outside the target read zeros then.
    This changes a page that holds some of both a second time, and begins once the target is durable, so that a crash
    leaves moved data in one of the two places. If commands are atomic, one that cannot be is refused (OSError
    EOPNOTSUPP) with nothing changed."""
    if size == 0 or source == target:
        return t_ns
    if ssd.mapping.remapping is not None and ssd.mapping.remapping.atomic:
        return remap_atomic(ssd, source, target, size, move, t_ns)
    return remap_steps(ssd, source, target, size, move, scratch, scratch_bytes, t_ns)


cdef int64_t remap_steps(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, bint move, uint8_t* scratch,
                         uint64_t scratch_bytes, int64_t t_ns) except -1 nogil:
    """As ``remap_bytes``, in several steps."""
    cdef uint64_t low, high
    cdef uint64_t trimmed = ssd.host_trim
    if size == 0 or source == target:
        return t_ns
    if (move and ssd.mapping.remapping is not None and source % ssd.page_bytes == 0 and target % ssd.page_bytes == 0
            and size % ssd.page_bytes == 0 and max(source, target) - min(source, target) >= size):
        return remap_whole(ssd, source, target, size, True, t_ns)
    if source % ssd.page_bytes == target % ssd.page_bytes:
        t_ns = remap_aligned(ssd, source, target, size, scratch, scratch_bytes, t_ns)
    else:
        t_ns = copy_any(ssd, source, target, size, scratch, scratch_bytes, t_ns)
    if move:  # in a separate step: a page emptied before it is a target would change twice
        low = max(source, target + size) if target < source else source
        high = source + size if target < source else min(source + size, target)
        t_ns = ssd.settle(t_ns)
        t_ns = trim_bytes(ssd, low, high - low, t_ns)
        ssd.host_trim = trimmed
    return t_ns


cdef int64_t remap_atomic(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, bint move,
                          int64_t t_ns) except -1 nogil:
    """As a whole, or not at all. Partial pages and overlapping ranges are refused: they change in several steps."""
    if source % ssd.page_bytes or target % ssd.page_bytes or size % ssd.page_bytes:
        with gil:
            raise not_whole(f"bytes {source} to {source + size} and {target} to {target + size}: whole pages of "
                            f"{ssd.page_bytes} bytes")
    if max(source, target) - min(source, target) < size:
        with gil:
            raise not_whole(f"bytes {source} to {source + size} and {target} to {target + size} overlap")
    return remap_at_once(ssd, <uint32_t> (target // ssd.page_bytes), <uint32_t> (source // ssd.page_bytes),
                         <uint32_t> min(size // ssd.page_bytes, <uint64_t> 0xFFFFFFFF), move, t_ns)


cdef inline int64_t remap_whole(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, bint move,
                                int64_t t_ns) except -1 nogil:
    return remap(ssd, <uint32_t> (target // ssd.page_bytes), <uint32_t> (source // ssd.page_bytes),
                 <uint32_t> (size // ssd.page_bytes), move, t_ns)


cdef int64_t remap_aligned(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, uint8_t* scratch,
                           uint64_t scratch_bytes, int64_t t_ns) except -1 nogil:
    """Both offsets are equal modulo the page size. The end that the other range overlaps comes last."""
    cdef uint64_t head = 0, whole
    if target % ssd.page_bytes:
        head = ragged(ssd, target, size)
    whole = whole_pages(ssd, size - head)
    if target < source:
        t_ns = copy_up(ssd, source, target, head, scratch, scratch_bytes, t_ns)
        t_ns = remap_whole(ssd, source + head, target + head, whole, False, t_ns)
        return copy_up(ssd, source + head + whole, target + head + whole, size - head - whole, scratch, scratch_bytes,
                       t_ns)
    t_ns = copy_up(ssd, source + head + whole, target + head + whole, size - head - whole, scratch, scratch_bytes, t_ns)
    t_ns = remap_whole(ssd, source + head, target + head, whole, False, t_ns)
    return copy_up(ssd, source, target, head, scratch, scratch_bytes, t_ns)


cdef int64_t copy_any(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, uint8_t* scratch,
                      uint64_t scratch_bytes, int64_t t_ns) except -1 nogil:
    """As ``copy_up``, for ranges that may overlap."""
    if target < source or target - source >= size:
        return copy_up(ssd, source, target, size, scratch, scratch_bytes, t_ns)
    return copy_down(ssd, source, target, size, scratch, scratch_bytes, t_ns)


cdef int64_t copy_up(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, uint8_t* scratch,
                     uint64_t scratch_bytes, int64_t t_ns) except -1 nogil:
    """From the first byte to the last: the target may begin before the source and overlap it."""
    cdef uint64_t part
    while size:
        if target % ssd.page_bytes or size < ssd.page_bytes:
            part = ragged(ssd, target, size)
            if seek_mapped(ssd, source, part, True) < part or ssd.is_mapped(<uint32_t> (target // ssd.page_bytes)):
                t_ns = copy_part(ssd, source, target, part, scratch, t_ns)
        else:
            part = whole_pages(ssd, min(size, scratch_bytes))
            part = copy_whole(ssd, source, target, part, scratch, &t_ns)
        source += part
        target += part
        size -= part
    return t_ns


cdef int64_t copy_down(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, uint8_t* scratch,
                       uint64_t scratch_bytes, int64_t t_ns) except -1 nogil:
    """From the last byte to the first: the target begins after the source and overlaps it."""
    cdef uint64_t part, end
    cdef bint hole
    while size:
        end = target + size
        part = end % ssd.page_bytes
        if part or size < ssd.page_bytes:
            part = min(size, part if part else <uint64_t> ssd.page_bytes)
            size -= part
            if (seek_mapped(ssd, source + size, part, True) < part
                    or ssd.is_mapped(<uint32_t> ((target + size) // ssd.page_bytes))):
                t_ns = copy_part(ssd, source + size, target + size, part, scratch, t_ns)
            continue
        part = ssd.page_bytes
        hole = is_hole(ssd, source + size - part)
        while (part + ssd.page_bytes <= min(size, scratch_bytes)
               and is_hole(ssd, source + size - part - ssd.page_bytes) == hole):
            part += ssd.page_bytes
        size -= part
        if hole:
            t_ns = trim_bytes(ssd, target + size, part, t_ns)
        else:
            t_ns = copy_part(ssd, source + size, target + size, part, scratch, t_ns)
    return t_ns


cdef inline bint is_hole(Ssd ssd, uint64_t offset) except -1 nogil:
    """Whether a page's worth of bytes from ``offset`` on is all holes."""
    return seek_mapped(ssd, offset, ssd.page_bytes, True) == ssd.page_bytes


cdef inline uint64_t whole_pages(Ssd ssd, uint64_t size) noexcept nogil:
    return size - size % ssd.page_bytes


cdef int64_t copy_part(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, uint8_t* scratch,
                       int64_t t_ns) except -1 nogil:
    t_ns = read_bytes(ssd, source, size, scratch, t_ns)
    return write_bytes(ssd, target, size, scratch, t_ns)


cdef uint64_t copy_whole(Ssd ssd, uint64_t source, uint64_t target, uint64_t size, uint8_t* scratch,
                         int64_t* t_ns) except 0 nogil:
    """Copy the first of these whole pages of the target: a run of holes, or the pages before the next hole. Returns how
    many bytes that was, and advances ``t_ns``."""
    cdef uint64_t part = whole_pages(ssd, seek_mapped(ssd, source, size, True))
    if part:
        t_ns[0] = trim_bytes(ssd, target, part, t_ns[0])
        return part
    while part < size and seek_mapped(ssd, source + part, ssd.page_bytes, True) < ssd.page_bytes:
        part += ssd.page_bytes
    t_ns[0] = copy_part(ssd, source, target, part, scratch, t_ns[0])
    return part


cdef uint64_t seek_mapped(Ssd ssd, uint64_t offset, uint64_t size, bint mapped) except? 0xFFFFFFFFFFFFFFFF nogil:
    """Bytes from ``offset`` to the first one whose page is ``mapped`` (or is not); at most ``size``."""
    cdef uint64_t first = offset // ssd.page_bytes, end = (offset + size - 1) // ssd.page_bytes + 1, lpa = first
    cdef uint32_t i, n
    cdef bint here
    cdef uint32_t[RUN] lpas
    cdef uint32_t[RUN] ppas
    if size == 0:
        return 0
    while lpa < end:
        n = <uint32_t> min(end - lpa, <uint64_t> RUN)
        for i in range(n):
            lpas[i] = <uint32_t> (lpa + i)
        ssd.mapping.peek(lpas, n, ppas)
        for i in range(n):
            here = ppas[i] != NONE
            if not here and ssd.buffer.held:
                here = ssd.buffer.find(lpas[i]) != NONE
            if here == mapped:
                lpa += i
                return 0 if lpa == first else min(size, lpa * ssd.page_bytes - offset)
        lpa += n
    return size


# --- the same for Python

def read_range(Ssd ssd not None, uint64_t offset, uint8_t[::1] into not None, int64_t t_ns=0):
    """Read bytes at any offset into ``into``; returns the virtual time at which the last one is read."""
    cdef uint8_t* at = &into[0] if into.shape[0] else <uint8_t*> NULL
    cdef uint64_t size = into.shape[0]
    with nogil:
        t_ns = read_bytes(ssd, offset, size, at, t_ns)
    return t_ns


def write_range(Ssd ssd not None, uint64_t offset, const uint8_t[::1] data not None, int64_t t_ns=0):
    """Write bytes at any offset; returns the virtual time of the last acknowledgement."""
    cdef const uint8_t* at = &data[0] if data.shape[0] else <const uint8_t*> NULL
    cdef uint64_t size = data.shape[0]
    with nogil:
        t_ns = write_bytes(ssd, offset, size, at, t_ns)
    return t_ns


def trim_range(Ssd ssd not None, uint64_t offset, uint64_t size, int64_t t_ns=0):
    """Make bytes at any offset read zeros; returns the virtual time of the acknowledgement."""
    with nogil:
        t_ns = trim_bytes(ssd, offset, size, t_ns)
    return t_ns


def copy_range(Ssd ssd not None, uint64_t source, uint64_t target, uint64_t size, int64_t t_ns=0):
    """Copy bytes from ``source`` to ``target``; the ranges must not overlap."""
    cdef uint8_t[::1] scratch = bytearray(RUN * ssd.page_bytes)
    cdef uint64_t room = scratch.shape[0]
    with nogil:
        t_ns = copy_bytes(ssd, source, target, size, &scratch[0], room, t_ns)
    return t_ns


def remap_range(Ssd ssd not None, uint64_t source, uint64_t target, uint64_t size, bint move=False, int64_t t_ns=0):
    """Make bytes at ``target`` read what those at ``source`` did; ``move`` empties the source. The ranges may
    overlap."""
    cdef uint8_t[::1] scratch = bytearray(RUN * ssd.page_bytes)
    cdef uint64_t room = scratch.shape[0]
    with nogil:
        t_ns = remap_bytes(ssd, source, target, size, move, &scratch[0], room, t_ns)
    return t_ns


def next_mapped(Ssd ssd not None, uint64_t offset, uint64_t size, bint mapped):
    """How many of ``size`` bytes from ``offset`` on come before the first whose page is (not) ``mapped``."""
    cdef uint64_t found
    with nogil:
        found = seek_mapped(ssd, offset, size, mapped)
    return found
