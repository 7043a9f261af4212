# distutils: language = c++
"""Entries that are newer than their translation page and in no cache: moved by cleaning, trimmed, or found by a
recovery. They are sorted by LPA, so all of a translation page lie side by side, and go into it together.
"""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from flashfs.engine.arrays cimport array_u32
from flashfs.engine.blocks.pool cimport NONE

import numpy

cdef extern from "<algorithm>" namespace "std" nogil:
    uint32_t* lower_bound(uint32_t* first, uint32_t* last, const uint32_t& value)


@cython.final
cdef class PendingEntries:
    """Sorted arrays of 12 bytes per entry, of 16 if they have ``placed`` copies in a battery; a search is O(log n), a
    merge of a sorted run O(n)."""

    def __cinit__(self, bint placed=False):
        self.placed = placed

    def __dealloc__(self):
        free(self.place)
        free(self.lpa)
        free(self.ppa)
        free(self.expected)

    cdef int reserve(self, uint64_t more, bint exactly=False) except -1 nogil:
        """Makes room for so many more, so that ``merge`` of them cannot fail; for some beyond, unless ``exactly``.
        MemoryError."""
        cdef uint64_t room = self.room
        cdef void* grown
        if self.n + more <= room:
            return 0
        room = self.n + more if exactly else max(self.n + more, room + room // 2)
        grown = realloc(self.lpa, room * 4)
        if grown != NULL:
            self.lpa = <uint32_t*> grown
            grown = realloc(self.ppa, room * 4)
        if grown != NULL:
            self.ppa = <uint32_t*> grown
            grown = realloc(self.expected, room * 4)
        if grown != NULL:
            self.expected = <uint32_t*> grown
            if self.placed:
                grown = realloc(self.place, room * 4)
        if grown == NULL:
            with gil:
                raise MemoryError
        if self.placed:
            self.place = <uint32_t*> grown
        self.room = room
        return 0

    cdef int shrink(self, uint64_t room) except -1:
        """Reduces the room to ``room`` entries in all, or to as many as there are."""
        cdef PendingEntries fewer
        if max(self.n, room) >= self.room:
            return 0
        fewer = PendingEntries(self.placed)
        fewer.reserve(max(self.n, room))
        memcpy(fewer.lpa, self.lpa, self.n * 4)
        memcpy(fewer.ppa, self.ppa, self.n * 4)
        memcpy(fewer.expected, self.expected, self.n * 4)
        if self.placed:
            memcpy(fewer.place, self.place, self.n * 4)
        self.lpa, fewer.lpa = fewer.lpa, self.lpa
        self.ppa, fewer.ppa = fewer.ppa, self.ppa
        self.expected, fewer.expected = fewer.expected, self.expected
        self.place, fewer.place = fewer.place, self.place
        self.room = fewer.room
        return 0

    cdef uint64_t first_from(self, uint32_t lpa) noexcept nogil:
        """The index of the first entry whose LPA is not below ``lpa``."""
        return <uint64_t> (lower_bound(self.lpa, self.lpa + self.n, lpa) - self.lpa)

    cdef int64_t find(self, uint32_t lpa) noexcept nogil:
        """The index of an LPA's entry, or -1."""
        cdef uint64_t at = self.first_from(lpa) if self.n else 0
        return <int64_t> at if at < self.n and self.lpa[at] == lpa else -1

    cdef int merge(self, const uint32_t* lpas, const uint32_t* ppas, const uint32_t* expected,
                   uint32_t n) except -1 nogil:
        """Adds ``n`` entries of ascending LPAs; each replaces an older one of its LPA, whose ``expected`` stays. If
        ``expected`` is NULL, the entries count whatever their translation page says."""
        cdef uint64_t to, at, end = self.n, same = 0
        cdef uint32_t i
        cdef bint there
        if n == 0:
            return 0
        self.reserve(n)
        for i in range(n):
            same += self.find(lpas[i]) >= 0
        to = end + n - same
        self.n = to
        for i in range(n, 0, -1):          # the last first: the entries after it move up
            at = <uint64_t> (lower_bound(self.lpa, self.lpa + end, lpas[i - 1]) - self.lpa)
            there = at < end and self.lpa[at] == lpas[i - 1]
            self.move_up(at + there, end, to)
            to -= end - at - there + 1
            self.expected[to] = self.expected[at] if there else UNSEEN if expected == NULL else expected[i - 1]
            self.moved_n += not there and expected != NULL
            if self.placed:
                self.place[to] = self.place[at] if there else NONE
            self.lpa[to] = lpas[i - 1]
            self.ppa[to] = ppas[i - 1]
            end = at
        return 0

    cdef int move_up(self, uint64_t first, uint64_t end, uint64_t to) noexcept nogil:
        """Moves entries ``first`` to ``end - 1`` so that they end at ``to``."""
        cdef uint64_t n = end - first
        if n == 0 or end == to:
            return 0
        memmove(self.lpa + to - n, self.lpa + first, n * 4)
        memmove(self.ppa + to - n, self.ppa + first, n * 4)
        memmove(self.expected + to - n, self.expected + first, n * 4)
        if self.placed:
            memmove(self.place + to - n, self.place + first, n * 4)
        return 0

    cdef int settle(self, uint64_t at) noexcept nogil:
        """Makes the entry count whatever its translation page says."""
        self.moved_n -= self.expected[at] != UNSEEN
        self.expected[at] = UNSEEN
        return 0

    cdef int erase(self, uint64_t first, uint64_t end) noexcept nogil:
        """Removes entries ``first`` to ``end - 1``."""
        cdef uint64_t i
        for i in range(first, end):
            self.moved_n -= self.expected[i] != UNSEEN
        memmove(self.lpa + first, self.lpa + end, (self.n - end) * 4)
        memmove(self.ppa + first, self.ppa + end, (self.n - end) * 4)
        memmove(self.expected + first, self.expected + end, (self.n - end) * 4)
        if self.placed:
            memmove(self.place + first, self.place + end, (self.n - end) * 4)
        self.n -= end - first
        return 0

    cdef int clear(self) noexcept nogil:
        self.n = self.moved_n = 0
        return 0

    def sizes(self):
        """(bytes as a controller packs them, as allocated)."""
        taken = (16 if self.placed else 12) * self.room
        return taken, taken

    def entries(self):
        """[(LPA, PPA or None: a hole), ...]"""
        return [(self.lpa[i], None if self.ppa[i] == NONE else self.ppa[i]) for i in range(self.n)]


@cython.final
cdef class Found:
    """(LPA, PPA) of the pages that a recovery finds, in the order found: 8 bytes each."""

    def __dealloc__(self):
        self.release()

    cdef int add(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Appends a page, or NONE for a trimmed LPA. MemoryError: then nothing has changed."""
        cdef uint64_t room = self.room
        cdef void* grown
        if self.n == room:
            room = max(<uint64_t> 1024, room + room // 2)
            grown = realloc(self.lpa, room * 4)
            if grown != NULL:
                self.lpa = <uint32_t*> grown
                grown = realloc(self.ppa, room * 4)
            if grown == NULL:
                with gil:
                    raise MemoryError
            self.ppa = <uint32_t*> grown
            self.room = room
        self.lpa[self.n] = lpa
        self.ppa[self.n] = ppa
        self.n += 1
        return 0

    cdef int release(self) noexcept nogil:
        free(self.lpa)
        free(self.ppa)
        self.lpa = self.ppa = NULL
        self.n = self.room = 0
        return 0

    def into(self, PendingEntries pending not None):
        """Moves all of it to ``pending``, as ``merge`` with ``expected`` NULL; if an LPA was found twice, the last
        counts. MemoryError: then all of it is still here."""
        cdef uint64_t n = self.n
        if n:
            lpas = array_u32(self.lpa, n)
            ppas = array_u32(self.ppa, n)
            if (lpas[1:] <= lpas[: n - 1]).any():
                order = numpy.argsort(lpas, kind="stable")
                last = numpy.append(numpy.diff(lpas[order]) != 0, True)
                lpas, ppas = lpas[order][last], ppas[order][last]
            merge_arrays(pending, lpas, ppas)
        self.release()


def merge_arrays(PendingEntries pending not None, lpa, ppa):
    """As ``PendingEntries.merge`` with ``expected`` NULL, from arrays of u32; the LPAs must ascend."""
    cdef const uint32_t[::1] lpas = numpy.ascontiguousarray(lpa, numpy.uint32)
    cdef const uint32_t[::1] ppas = numpy.ascontiguousarray(ppa, numpy.uint32)
    cdef uint64_t at = 0, part, n = lpas.shape[0]
    while at < n:
        part = min(n - at, <uint64_t> 1 << 31)
        pending.merge(&lpas[at], &ppas[at], NULL, <uint32_t> part)
        at += part
