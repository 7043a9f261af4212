# distutils: language = c++
"""The trims since the checkpoint: finds the newest trim of an LPA, for LPAs in ascending order."""
cimport cython
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.device.metalog cimport TrimRecord
from flashfs.engine.recovery.spill_array cimport SpillArray

cdef extern from "<algorithm>" namespace "std" nogil:
    void sort(TrimRecord* first, TrimRecord* last,
              bint (*less)(const TrimRecord&, const TrimRecord&) noexcept nogil)
    void push_heap(Begun* first, Begun* last, bint (*less)(const Begun&, const Begun&) noexcept nogil)
    void pop_heap(Begun* first, Begun* last, bint (*less)(const Begun&, const Begun&) noexcept nogil)

cdef enum:
    MEMORY_MOST = 1 << 28    # bytes


cdef bint by_seq(const TrimRecord& a, const TrimRecord& b) noexcept nogil:
    if a.seq != b.seq:
        return a.seq < b.seq
    return a.lpa < b.lpa if a.lpa != b.lpa else a.n < b.n

cdef bint by_first(const TrimRecord& a, const TrimRecord& b) noexcept nogil:
    return a.lpa < b.lpa

cdef bint is_before(const Begun& a, const Begun& b) noexcept nogil:
    return a.seq < b.seq


@cython.final
cdef class TrimIndex:
    """``add`` all, ``sort``; then ``begin``, and call ``newest`` for ascending LPAs."""

    def __cinit__(self):
        self.records = SpillArray(sizeof(TrimRecord), MEMORY_MOST)
        self.by_lpa = SpillArray(sizeof(TrimRecord), MEMORY_MOST)
        self.begun = SpillArray(sizeof(Begun), MEMORY_MOST)

    cdef uint64_t count(self) noexcept nogil:
        return self.records.n

    cdef TrimRecord* record(self, uint64_t i) noexcept nogil:
        return <TrimRecord*> self.records.at + i

    cdef int add(self, uint64_t seq, uint32_t lpa, uint32_t n) except -1 nogil:
        cdef TrimRecord* record = <TrimRecord*> self.records.add()
        record.seq = seq
        record.lpa = lpa
        record.n = n
        return 0

    cdef int sort(self) except -1 nogil:
        cdef uint64_t i
        sort(self.record(0), self.record(self.records.n), by_seq)
        self.by_lpa.n = 0
        for i in range(self.records.n):
            (<TrimRecord*> self.by_lpa.add())[0] = self.record(i)[0]
        sort(<TrimRecord*> self.by_lpa.at, <TrimRecord*> self.by_lpa.at + self.by_lpa.n, by_first)
        return 0

    cdef int begin(self) noexcept nogil:
        """Start again with the lowest LPA."""
        self.at = self.begun.n = 0
        return 0

    cdef uint64_t newest(self, uint32_t lpa) except? 0xFFFFFFFFFFFFFFFF nogil:
        """The sequence number of the LPA's newest trim, 0 if there is none."""
        cdef TrimRecord* record
        cdef Begun* one
        while self.at < self.by_lpa.n:
            record = <TrimRecord*> self.by_lpa.at + self.at
            if record.lpa > lpa:
                break
            one = <Begun*> self.begun.add()
            one.seq = record.seq
            one.end = <uint64_t> record.lpa + record.n
            push_heap(self.top(), self.top() + self.begun.n, is_before)
            self.at += 1
        while self.begun.n and self.top().end <= lpa:
            pop_heap(self.top(), self.top() + self.begun.n, is_before)
            self.begun.n -= 1
        return self.top().seq if self.begun.n else 0

    cdef Begun* top(self) noexcept nogil:
        return <Begun*> self.begun.at

    cdef int release(self) noexcept:
        self.records.release()
        self.by_lpa.release()
        return self.begun.release()


def newest_of(records, lpas):
    """The same for Python: the newest trim of each of ``lpas``, which must ascend, given trims [(seq, LPA, pages)]."""
    cdef TrimIndex trims = TrimIndex()
    for seq, lpa, n in records:
        trims.add(seq, lpa, n)
    trims.sort()
    trims.begin()
    return [trims.newest(lpa) for lpa in lpas]
