# cold
"""What each block holds, as arrays: the pictures that people look at are made of these, not of pages asked one by one.

Nothing here changes a device. ``block_map`` and ``joined`` are what a mount answers with while its host waits: a pass
over the blocks and no more. ``survey`` and ``locations`` are for offline views: they look at every page.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from flashfs.engine.ssd cimport Ssd
from flashfs.engine.pool cimport (
    CAUSE_RECOVERY,
    KIND_PAD,
    KIND_USER,
    NONE,
    STATE_CLOSED,
    STATE_FREE,
    STATE_META,
    STATE_OPEN,
    Oob,
    oob_unpack,
)
from nandimg._nand cimport PAGE_ERASED, PAGE_OK, Nand

import numpy

from flashfs.engine.pool import KIND_NAMES

cdef enum:
    DIGITS = 11              # of a 32-bit number, with the comma behind it

# What ``survey`` counts pages under. Those between the live and the torn ones are whole, and no live user page.
PAGE_CLASSES = ("live", "superseded", *(KIND_NAMES[kind] for kind in range(2, KIND_PAD + 1)), "unknown", "torn",
                "erased")

cdef enum:
    CLASS_LIVE = 0
    CLASS_SUPERSEDED = 1     # kinds 2 to 7 follow: a page's class is its kind
    CLASS_UNKNOWN = 8
    CLASS_TORN = 9
    CLASS_ERASED = 10
    CLASSES = 11


def block_map(Ssd ssd not None):
    """{name: array with an item a block}: ``state`` (index of STATE_NAMES), ``valid`` (live pages), ``erases``,
    ``stream`` (index of the pool's names; their number if the block is of none), ``next_page`` (pages programmed, or
    given up), ``health`` (the chip's word on it: 0 good, 1 factory bad, 2 grown bad). O(blocks), no flash is read."""
    cdef uint32_t block, blocks = ssd.pool.blocks
    state, stream, health = (numpy.empty(blocks, numpy.uint8) for _ in range(3))
    valid, erases, next_page = (numpy.empty(blocks, numpy.uint32) for _ in range(3))
    cdef uint8_t[::1] states = state, streams = stream, healths = health
    cdef uint32_t[::1] valids = valid, wear = erases, nexts = next_page
    with nogil:
        for block in range(blocks):
            states[block] = ssd.pool.state[block]
            valids[block] = ssd.validity.count(block)
            wear[block] = ssd.nand.erases(block)
            healths[block] = <uint8_t> ssd.nand.health(block)
            if (states[block] == STATE_OPEN or states[block] == STATE_CLOSED or states[block] == STATE_META):
                streams[block] = ssd.pool.stream[block]
            else:
                streams[block] = <uint8_t> ssd.pool.streams_n
            nexts[block] = 0 if states[block] == STATE_FREE else ssd.pool.next_page[block]
    return {"state": state, "valid": valid, "erases": erases, "stream": stream, "next_page": next_page,
            "health": health}


def joined(numbers not None):
    """The array's whole numbers in decimal, with commas between: a JSON array without its brackets, as bytes. Some
    twenty times faster than asking Python for each."""
    cdef const uint32_t[::1] of = numpy.ascontiguousarray(numbers, dtype=numpy.uint32)
    cdef Py_ssize_t i, n = of.shape[0]
    cdef uint64_t at = 0
    cdef uint32_t value
    cdef int digits, k
    cdef char[DIGITS] text
    cdef char* out = <char*> malloc(n * DIGITS + 1)
    if out == NULL:
        raise MemoryError
    try:
        with nogil:
            for i in range(n):
                value = of[i]
                digits = 0
                while True:
                    text[digits] = c'0' + value % 10
                    digits += 1
                    value //= 10
                    if value == 0:
                        break
                for k in range(digits):
                    out[at + k] = text[digits - 1 - k]
                out[at + digits] = c','
                at += digits + 1
        return out[:at - 1] if n else b""
    finally:
        free(out)


def survey(Nand nand not None, Ssd ssd=None):
    """What a look at every spare area finds: (arrays with an item a block, pages by class). ``ssd``, if there is one,
    knows which user pages are live; the arrays are ``programmed`` (pages that are not erased), ``torn``, and of the
    first page ``kind`` (0: erased, torn or unreadable), ``stream`` and ``order`` (0 likewise). The second value has
    one count for each of PAGE_CLASSES. Reads pages x blocks spare areas, but two of a block whose ends are erased."""
    cdef uint32_t block, page, blocks = nand.blocks, n = nand.pages_per_block
    cdef uint64_t[CLASSES] counts
    cdef int i
    cdef Oob oob
    programmed, torn = (numpy.zeros(blocks, numpy.uint32) for _ in range(2))
    kind, stream = (numpy.zeros(blocks, numpy.uint8) for _ in range(2))
    order = numpy.zeros(blocks, numpy.uint64)
    cdef uint32_t[::1] programs = programmed, torns = torn
    cdef uint8_t[::1] kinds = kind, streams = stream
    cdef uint64_t[::1] orders = order
    cdef uint8_t* oobs = <uint8_t*> malloc(<uint64_t> n * nand.oob_bytes)
    cdef uint8_t* status = <uint8_t*> malloc(n)
    try:
        if oobs == NULL or status == NULL:
            raise MemoryError
        for i in range(CLASSES):
            counts[i] = 0
        with nogil:
            for block in range(blocks):
                nand.read_spare(block, 0, 1, oobs, status, CAUSE_RECOVERY, 0)
                if status[0] == PAGE_ERASED:   # pages go in order, and an erase that was cut off leaves one end of them
                    nand.read_spare(block, n - 1, 1, oobs, status, CAUSE_RECOVERY, 0)
                    if status[0] == PAGE_ERASED:
                        counts[CLASS_ERASED] += n
                        continue
                nand.read_spare(block, 0, n, oobs, status, CAUSE_RECOVERY, 0)
                for page in range(n):
                    if status[page] == PAGE_ERASED:
                        counts[CLASS_ERASED] += 1
                        continue
                    programs[block] += 1
                    if status[page] != PAGE_OK:
                        torns[block] += 1
                        counts[CLASS_TORN] += 1
                        continue
                    oob_unpack(oobs + <uint64_t> page * nand.oob_bytes, &oob)
                    if page == 0:
                        kinds[block] = oob.kind
                        streams[block] = oob.stream
                        orders[block] = oob.order
                    if oob.kind == KIND_USER:
                        if ssd is not None and ssd.validity.is_live(block * n + page):
                            counts[CLASS_LIVE] += 1
                        else:
                            counts[CLASS_SUPERSEDED] += 1
                    elif oob.kind > KIND_USER and oob.kind <= KIND_PAD:
                        counts[oob.kind] += 1
                    else:
                        counts[CLASS_UNKNOWN] += 1
    finally:
        free(oobs)
        free(status)
    arrays = {"programmed": programmed, "torn": torn, "kind": kind, "stream": stream, "order": order}
    return arrays, {name: counts[i] for i, name in enumerate(PAGE_CLASSES)}


def locations(Ssd ssd not None):
    """Where each LPA is: an array of PPAs, NONE (2^32 - 1) for one that holds nothing. Where a scheme's look-up
    guesses, it reads flash until it is sure."""
    cdef uint32_t lpa, lpas = ssd.lpas
    where = numpy.empty(lpas, numpy.uint32)
    cdef uint32_t[::1] at = where
    with nogil:
        for lpa in range(lpas):
            at[lpa] = ssd.mapping.locate(lpa)
            if at[lpa] >= ssd.nand.blocks * ssd.nand.pages_per_block:
                at[lpa] = NONE
    return where
