# cold
"""The contents of all blocks as arrays, from which tools draw their pictures.

Nothing here changes a device. A mount uses ``block_map`` and ``joined`` while its host waits: they make one pass over
the blocks. ``survey`` and ``locations`` are for offline views: they look at every page.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.blocks.pool cimport (
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
    placed,
)
from nandimg._nand cimport PAGE_ERASED, PAGE_OK, Nand

import numpy

from flashfs.engine.blocks.pool import KIND_NAMES

cdef enum:
    DIGITS = 11              # of a 32-bit number, with a comma

# The classes of pages that ``survey`` counts. Those between "live" and "torn" are whole pages that are not live user
# pages.
PAGE_CLASSES = ("live", "superseded", *(KIND_NAMES[kind] for kind in range(2, KIND_PAD + 1)), "unknown", "torn",
                "erased")

cdef enum:
    CLASS_LIVE = 0
    CLASS_SUPERSEDED = 1     # kinds 2 to 7 follow: a page's class is its kind
    CLASS_UNKNOWN = 8
    CLASS_TORN = 9
    CLASS_ERASED = 10
    CLASSES = 11

cdef enum:
    MAPPED_AT_ONCE = 1 << 20  # LPAs per piece of the result of ``mapped``
    TURN = 4096              # blocks between two reports of progress
    STREAM_AT = 18           # in an OOB
    STREAM_BITS = 31         # the other bits belong to the page number
    RUN_LPAS = 1024          # LPAs looked up one by one before ``next_named`` is called


def block_map(Ssd ssd not None):
    """{name: array with one item per block}: ``state`` (index of STATE_NAMES), ``valid`` (live pages), ``erases``,
    ``stream`` (index of the pool's names; their number for a block without a stream), ``next_page`` (pages programmed
    or given up), ``health`` (from the chip: 0 good, 1 factory bad, 2 grown bad). O(blocks), no flash is read."""
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
    """The array's integers in decimal, with commas between: a JSON array without its brackets, as bytes. About twenty
    times faster than in Python."""
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


def bare(Nand nand not None):
    """The part of ``block_map`` for a chip without a device: ``erases`` and ``health``."""
    cdef uint32_t block
    erases, health = numpy.empty(nand.blocks, numpy.uint32), numpy.empty(nand.blocks, numpy.uint8)
    cdef uint32_t[::1] wear = erases
    cdef uint8_t[::1] healths = health
    nand.require_open()
    for block in range(nand.blocks):
        wear[block] = nand.erases(block)
        healths[block] = <uint8_t> nand.health(block)
    return {"erases": erases, "health": health}


def first_streams(Nand nand not None, const uint8_t[::1] where not None):
    """The stream in the OOB of each block's first page, whole or torn; 255 for an erased page, and for blocks that are
    empty according to ``where`` (`Nand.maybe_written`)."""
    cdef uint32_t block
    cdef uint8_t status
    found = numpy.full(nand.blocks, 0xFF, numpy.uint8)
    cdef uint8_t[::1] out = found
    cdef uint8_t[::1] oob = bytearray(nand.oob_bytes)
    nand.require_open()
    if nand.oob_bytes <= STREAM_AT:       # a chip that was never bound
        return found
    with nogil:
        for block in range(nand.blocks):
            if where[block]:
                nand.read_spare(block, 0, 1, &oob[0], &status, CAUSE_RECOVERY, 0)
                if status != PAGE_ERASED:
                    out[block] = oob[STREAM_AT] & STREAM_BITS
    return found


cdef class Survey:
    """Results of reading every spare area, block by block."""
    cdef Nand nand
    cdef Ssd ssd
    cdef uint8_t[::1] oobs, status, kinds, streams
    cdef uint32_t[::1] programs, torns
    cdef uint64_t[::1] orders
    cdef uint64_t[CLASSES] counts

    cdef int look(self, uint32_t block) except -1 nogil:
        cdef uint32_t page, n = self.nand.pages_per_block
        cdef uint8_t* oobs = &self.oobs[0]
        cdef uint8_t* status = &self.status[0]
        cdef Oob oob
        self.nand.read_spare(block, 0, 1, oobs, status, CAUSE_RECOVERY, 0)
        if status[0] == PAGE_ERASED:   # pages go in order, and an interrupted erase leaves one end of them
            self.nand.read_spare(block, n - 1, 1, oobs, status, CAUSE_RECOVERY, 0)
            if status[0] == PAGE_ERASED:
                self.counts[CLASS_ERASED] += n
                return 0
        self.nand.read_spare(block, 0, n, oobs, status, CAUSE_RECOVERY, 0)
        for page in range(n):
            if status[page] == PAGE_ERASED:
                self.counts[CLASS_ERASED] += 1
                continue
            self.programs[block] += 1
            if placed(status[page], oobs + <uint64_t> page * self.nand.oob_bytes, page) != PAGE_OK:
                self.torns[block] += 1
                self.counts[CLASS_TORN] += 1
                continue
            oob_unpack(oobs + <uint64_t> page * self.nand.oob_bytes, &oob)
            if page == 0:
                self.kinds[block] = oob.kind
                self.streams[block] = oob.stream
                self.orders[block] = oob.order
            self.counts[self.class_of(&oob, block * n + page)] += 1
        return 0

    cdef int class_of(self, const Oob* oob, uint32_t ppa) noexcept nogil:
        """The class of a whole page."""
        if oob.kind == KIND_USER:
            return CLASS_LIVE if self.ssd is not None and self.ssd.validity.is_live(ppa) else CLASS_SUPERSEDED
        return oob.kind if oob.kind > KIND_USER and oob.kind <= KIND_PAD else CLASS_UNKNOWN


def survey(Nand nand not None, Ssd ssd=None, progress=None):
    """Read every spare area: returns ({name: array with one item per block}, counts of pages by class). ``ssd``, if
    given, knows which user pages are live. The arrays are ``programmed`` (pages that are not erased), ``torn``, and
    from the first page ``kind`` (0: erased, torn or unreadable), ``stream`` and ``order`` (0 likewise). The counts
    follow PAGE_CLASSES. Reads all spare areas, but only two of a block whose ends are erased, and none of a block that
    the chip knows to be empty. ``progress`` is called now and then with the share done."""
    cdef uint32_t block, start, blocks = nand.blocks, n = nand.pages_per_block
    cdef int i
    cdef Survey all = Survey()
    cdef const uint8_t[::1] where = nand.maybe_written()
    programmed, torn = (numpy.zeros(blocks, numpy.uint32) for _ in range(2))
    kind, stream = (numpy.zeros(blocks, numpy.uint8) for _ in range(2))
    order = numpy.zeros(blocks, numpy.uint64)
    all.nand, all.ssd = nand, ssd
    all.programs, all.torns, all.kinds, all.streams, all.orders = programmed, torn, kind, stream, order
    all.oobs, all.status = bytearray(max(1, n * nand.oob_bytes)), bytearray(n)
    for start in range(0, blocks, TURN):
        if progress is not None:
            progress(start / blocks)
        with nogil:
            for block in range(start, min(blocks, start + TURN)):
                if where[block]:
                    all.look(block)
                else:
                    all.counts[CLASS_ERASED] += n
    arrays = {"programmed": programmed, "torn": torn, "kind": kind, "stream": stream, "order": order}
    return arrays, {name: all.counts[i] for i, name in enumerate(PAGE_CLASSES)}


def locations(Ssd ssd not None):
    """The place of each LPA: an array of PPAs, NONE (2^32 - 1) for an unmapped LPA. If a scheme's look-up guesses, it
    reads flash to be sure."""
    cdef uint32_t lpa = 0, end, lpas = ssd.lpas
    where = numpy.full(lpas, NONE, numpy.uint32)
    cdef uint32_t[::1] at = where
    with nogil:
        while lpa < lpas:
            lpa = ssd.mapping.next_named(lpa, lpas)
            end = min(lpas - lpa, <uint32_t> RUN_LPAS) + lpa
            while lpa < end:
                at[lpa] = ssd.mapping.locate(lpa)
                if at[lpa] >= ssd.nand.blocks * ssd.nand.pages_per_block:
                    at[lpa] = NONE
                lpa += 1
    return where


class Mapped:
    """The mapped LPAs and their places: ``lpas``, ascending, and ``ppas``, arrays of uint32. ``total``: the number of
    LPAs of the device."""

    __slots__ = ("lpas", "ppas", "total")

    def __init__(self, lpas, ppas, total):
        self.lpas = lpas
        self.ppas = ppas
        self.total = total

    @classmethod
    def of(cls, where):
        """From an array as ``locations`` returns it."""
        lpas = numpy.flatnonzero(where != NONE)
        return cls(lpas.astype(numpy.uint32), where[lpas], len(where))

    def __len__(self):
        return len(self.lpas)

    def window(self, first, n):
        """As ``locations``, for the ``n`` LPAs from ``first`` on, or as many as exist."""
        end = min(self.total, first + n)
        at, behind = numpy.searchsorted(self.lpas, [first, end])
        found = numpy.full(max(0, end - first), NONE, numpy.uint32)
        found[self.lpas[at:behind] - numpy.uint32(first)] = self.ppas[at:behind]
        return found


def mapped(Ssd ssd not None):
    """The result of ``locations`` as a ``Mapped``: memory and time depend on the mapped LPAs, not on the device's
    size."""
    cdef uint32_t lpa = 0, end, ppa, lpas = ssd.lpas, pages = ssd.nand.blocks * ssd.nand.pages_per_block, n = 0
    names, places = [], []
    some, at = (numpy.empty(min(lpas, <uint32_t> MAPPED_AT_ONCE), numpy.uint32) for _ in range(2))
    cdef uint32_t[::1] lpa_of = some, ppa_of = at
    while lpa < lpas:
        with nogil:
            lpa = ssd.mapping.next_named(lpa, lpas)
            end = lpa + min(lpas - lpa, <uint32_t> RUN_LPAS, <uint32_t> lpa_of.shape[0] - n)
            while lpa < end:
                ppa = ssd.mapping.locate(lpa)
                if ppa < pages:
                    lpa_of[n] = lpa
                    ppa_of[n] = ppa
                    n += 1
                lpa += 1
        if n == <uint32_t> lpa_of.shape[0] or lpa == lpas:
            names.append(some[:n].copy())
            places.append(at[:n].copy())
            n = 0
    return Mapped(numpy.concatenate(names), numpy.concatenate(places), lpas)
