"""For tests alone: a placement whose choice names the first LPA of an extent if that is odd, and a mapping that checks
the choice it is given."""
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from flashfs.parts.defaults.page_table cimport PageTable
from flashfs.parts.defaults.streams cimport Streams
from flashfs.engine.contract.extent cimport Extent


cdef uint32_t chosen(uint32_t lpa) noexcept nogil:
    return lpa + 1 if lpa % 2 else 0


cdef class Choosing(Streams):
    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        Streams.take(self, stream, lpas, n, out)
        if lpas[0] % 2:
            out.choice = lpas[0] + 1
        return 0


cdef class Told(PageTable):
    cdef readonly unsigned long bound, stamped, parts, chosen_n  # extents; of those stamped, such as ended a longer one
    cdef readonly unsigned long wrong_n                          # calls with another choice than the extent's

    def __init__(self, *_):
        self.scheme_oob = 4

    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, const Extent* at, uint32_t before,
                   uint32_t behind) except -1 nogil:
        cdef uint32_t i
        cdef const uint32_t* first = lpas - before
        for i in range(at.n):
            memcpy(oob + i * self.ssd.nand.oob_bytes, &at.choice, 4)
        self.stamped += 1
        self.parts += before != 0
        self.chosen_n += at.choice != 0
        self.wrong_n += at.choice != chosen(first[0])
        return 0

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        self.bound += 1
        self.wrong_n += choice != chosen(lpas[0])
        return PageTable.bind(self, lpas, n, ppa, choice, olds)
