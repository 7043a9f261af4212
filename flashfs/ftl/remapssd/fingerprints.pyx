"""The fingerprint store of in-line deduplication (Remap-SSD, section 5.2): the content of each page of flash.

A fingerprint has 128 bits: of the content, or, on a chip that keeps none, of a word that stands for it. It belongs to a
page of flash, not to an LPA: it stays while any LPA is at that page, moves with the page when cleaning moves that, and
is dropped when the page dies. The store is in DRAM and empty after a mount: earlier pages are not found.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from flashfs.engine.blocks.pool cimport NONE

cdef extern from "fingerprint.h" nogil:
    void flashfs_fingerprint(const void* data, size_t n, uint64_t* out)

cdef enum:
    ABSENT = 0xFFFFFFFE


cdef class Prints:
    """For ``pages`` of flash, chained by fingerprint. The hash unit takes ``hash_ns`` for each page, one after
    another."""

    def __cinit__(self, uint64_t pages, int64_t hash_ns):
        cdef uint64_t buckets = 64
        while buckets < pages:
            buckets *= 2
        self.pages_n = pages
        self.mask = buckets - 1
        self.hash_ns = hash_ns
        self.prints = <uint64_t*> malloc(pages * 16)
        self.next_of = <uint32_t*> malloc(pages * 4)
        self.heads = <uint32_t*> malloc(buckets * 4)
        if not (self.prints and self.next_of and self.heads):
            raise MemoryError
        self.clear()

    def __dealloc__(self):
        free(self.prints)
        free(self.next_of)
        free(self.heads)

    def clear(self):
        """Make it empty."""
        cdef uint64_t i
        memset(self.heads, 0xFF, (self.mask + 1) * 4)
        for i in range(self.pages_n):
            self.next_of[i] = <uint32_t> ABSENT
        self.held = 0
        self.begin()

    cdef int begin(self) noexcept nogil:
        """Begin a request: no page is pending."""
        self.pending_n = self.bound_n = 0
        return 0

    cdef bint add(self, uint32_t lpa, const uint8_t* page, uint32_t page_bytes, uint64_t word,
                  int64_t* t_ns) noexcept nogil:
        """Add a page of the request; its fingerprint is computed from ``t_ns`` on. Returns whether an equal page is in
        flash, or is pending itself."""
        cdef uint64_t* own = self.pending + 2 * self.pending_n
        cdef uint32_t i
        self.free_ns = max(self.free_ns, t_ns[0]) + self.hash_ns
        t_ns[0] = self.free_ns
        if page != NULL:
            flashfs_fingerprint(page, page_bytes, own)
        else:
            flashfs_fingerprint(&word, 8, own)
        self.pending_lpas[self.pending_n] = lpa
        self.pending_n += 1
        if self.find(own) != NONE:
            return True
        for i in range(self.bound_n, self.pending_n - 1):
            if self.pending[2 * i] == own[0] and self.pending[2 * i + 1] == own[1]:
                return True
        return False

    cdef uint32_t find(self, const uint64_t* prints) noexcept nogil:
        """The PPA of a page with that fingerprint, or NONE."""
        cdef uint32_t ppa = self.heads[prints[0] & self.mask]
        while ppa != NONE:
            if self.prints[2 * <uint64_t> ppa] == prints[0] and self.prints[2 * <uint64_t> ppa + 1] == prints[1]:
                return ppa
            ppa = self.next_of[ppa]
        return NONE

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa) noexcept nogil:
        """Pages were programmed; enter those that are pending, which come in their order."""
        cdef uint32_t i
        for i in range(n):
            if self.bound_n < self.pending_n and self.pending_lpas[self.bound_n] == lpas[i]:
                self.insert(ppa + i, self.pending + 2 * self.bound_n)
                self.bound_n += 1
        return 0

    cdef int insert(self, uint32_t ppa, const uint64_t* prints) noexcept nogil:
        cdef uint32_t* head = self.heads + (prints[0] & self.mask)
        self.drop(ppa)
        self.prints[2 * <uint64_t> ppa] = prints[0]
        self.prints[2 * <uint64_t> ppa + 1] = prints[1]
        self.next_of[ppa] = head[0]
        head[0] = ppa
        self.held += 1
        return 0

    cdef int drop(self, uint32_t ppa) noexcept nogil:
        """Remove the page's fingerprint, if it has one."""
        cdef uint32_t* at
        if self.next_of[ppa] == <uint32_t> ABSENT:
            return 0
        at = self.heads + (self.prints[2 * <uint64_t> ppa] & self.mask)
        while at[0] != ppa:
            at = self.next_of + at[0]
        at[0] = self.next_of[ppa]
        self.next_of[ppa] = <uint32_t> ABSENT
        self.held -= 1
        return 0

    cdef int move(self, uint32_t old, uint32_t new) noexcept nogil:
        """Cleaning copied the page: move its fingerprint."""
        cdef uint64_t[2] prints
        if self.next_of[old] == <uint32_t> ABSENT:
            return 0
        prints[0] = self.prints[2 * <uint64_t> old]
        prints[1] = self.prints[2 * <uint64_t> old + 1]
        self.drop(old)
        return self.insert(new, prints)

    def sizes(self):
        """(Bytes as a controller packs them, bytes allocated)."""
        return self.pages_n * 20 + (self.mask + 1) * 4, self.pages_n * 20 + (self.mask + 1) * 4
