# cold
# distutils: language = c++
"""Pages that a recovery of LeaFTL found to be newer than the checkpoint, with their lists of neighbours, so that they
can be learned again in runs. docs/ftl/leaftl.md, "Recovery"."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef extern from "<algorithm>" namespace "std" nogil:
    void sort(Found* first, Found* last, bint (*less)(const Found&, const Found&) noexcept nogil)

cdef bint by_lpa(const Found& a, const Found& b) noexcept nogil:
    return a.lpa < b.lpa if a.lpa != b.lpa else a.number < b.number

cdef bint by_ppa(const Found& a, const Found& b) noexcept nogil:
    return a.ppa < b.ppa


cdef class FoundPages:
    """Call ``add`` for all, then ``settle``, then ``run`` repeatedly."""

    def __cinit__(self, uint32_t gamma, uint32_t pages_per_block):
        self.gamma = gamma
        self.stamp_bytes = 8 * gamma
        self.pages_per_block = pages_per_block

    def __dealloc__(self):
        self.clear()

    cdef int clear(self) noexcept nogil:
        free(self.found)
        free(self.stamps)
        self.found = NULL
        self.stamps = NULL
        self.n = self.room = 0
        return 0

    cdef int add(self, uint32_t lpa, uint32_t ppa, const uint8_t* stamp) except -1 nogil:
        """Add a page. An LPA that is added again goes back to the source of an unfinished move; the stamp is then the
        copy's."""
        cdef Found* at
        if self.n == self.room:
            self.grow()
        at = self.found + self.n
        at.lpa = lpa
        at.ppa = ppa
        at.number = self.n
        at.alone = False
        memcpy(self.stamps + <uint64_t> self.n * self.stamp_bytes, stamp, self.stamp_bytes)
        self.n += 1
        return 0

    cdef int grow(self) except -1 nogil:
        cdef uint32_t room = max(<uint32_t> 1024, 2 * self.room)
        cdef void* found = realloc(self.found, room * sizeof(Found))
        cdef void* stamps
        if found != NULL:
            self.found = <Found*> found
        stamps = realloc(self.stamps, <uint64_t> room * self.stamp_bytes + 1)
        if stamps != NULL:
            self.stamps = <uint8_t*> stamps
        if found == NULL or stamps == NULL:
            with gil:
                raise MemoryError
        self.room = room
        return 0

    cdef int settle(self) noexcept nogil:
        """Of an LPA that was added more than once keep the last place, to be learned alone; then sort all by PPA."""
        cdef uint32_t i, n = 0
        sort(self.found, self.found + self.n, by_lpa)
        for i in range(self.n):
            if n and self.found[n - 1].lpa == self.found[i].lpa:
                n -= 1
                self.found[i].alone = True
            self.found[n] = self.found[i]
            n += 1
        self.n = n
        sort(self.found, self.found + n, by_ppa)
        for i in range(n):
            self.found[i].alone |= self.names_itself(self.found + i)
        return 0

    cdef uint32_t run(self, uint32_t first, uint32_t* lpas, uint32_t* ppas, uint32_t most) noexcept nogil:
        """The pages from number ``first`` on that can be learned together; returns how many, ``most`` at most."""
        cdef uint32_t n = 0
        while n < most and first + n < self.n and (
                n == 0 or self.are_of_one_run(self.found + first + n - 1, self.found + first + n)):
            lpas[n] = self.found[first + n].lpa
            ppas[n] = self.found[first + n].ppa
            n += 1
        return n

    cdef uint32_t entry(self, const Found* page, int64_t away) noexcept nogil:
        """The LPA that a page's list has ``away`` pages from it."""
        cdef uint32_t lpa
        cdef uint8_t* stamp = self.stamps + <uint64_t> page.number * self.stamp_bytes
        memcpy(&lpa, stamp + 4 * (away + self.gamma - (away > 0)), 4)
        return lpa

    cdef bint names_itself(self, const Found* page) noexcept nogil:
        """Whether a neighbour had the same LPA: a guess that met it would take it for the right page."""
        cdef uint32_t i, lpa
        for i in range(2 * self.gamma):
            memcpy(&lpa, self.stamps + <uint64_t> page.number * self.stamp_bytes + 4 * i, 4)
            if lpa == page.lpa:
                return True
        return False

    cdef bint are_of_one_run(self, const Found* a, const Found* b) noexcept nogil:
        """Whether both can be learned together. An exact line has no further condition; for others, the two pages must
        list each other, so that every page between them does too."""
        cdef uint32_t away = b.ppa - a.ppa
        if a.ppa // self.pages_per_block != b.ppa // self.pages_per_block or a.lpa >= b.lpa:
            return False
        if self.gamma == 0:
            return True
        return (not a.alone and not b.alone and away <= self.gamma and self.entry(a, away) == b.lpa
                and self.entry(b, -<int64_t> away) == a.lpa)
