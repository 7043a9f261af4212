"""The data cache: recently read or written pages in DRAM, found by LPA; LRU.

Everything in it is also in flash or in the write buffer, so losing it loses no data. Its size is what the tables leave
of the budget, and changes as they do.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.blocks.pool cimport NONE
from nandimg._nand cimport Nand

cdef extern from "sys/mman.h" nogil:
    void* mmap(void* addr, size_t length, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t length)
    int madvise(void* addr, size_t length, int advice)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE, MADV_DONTNEED
    void* MAP_FAILED

SLOT_BYTES = 20  #: per slot, besides its page: LPA, two links of the order of use, one of its bucket, a bucket
cdef enum:
    HOST_PAGE = 4096


cdef class DataCache:
    """``room`` slots at most; ``limit`` sets how many may be in use. For a chip that keeps no data, the slots hold no
    data either."""

    def __cinit__(self, Nand nand):
        self.nand = nand
        self.page_bytes = nand.page_bytes
        self.newest = self.oldest = self.spare = NONE

    def __dealloc__(self):
        self.release()

    cdef int release(self) noexcept:
        free(self.lpa_of)
        free(self.older)
        free(self.newer)
        free(self.chain)
        free(self.bucket)
        self.lpa_of = self.older = self.newer = self.chain = self.bucket = NULL
        if self.data != NULL:
            munmap(self.data, self.data_bytes)
            self.data = NULL
        return 0

    cdef int reserve(self, uint32_t room) except -1:
        """Allocate ``room`` slots, none of them in use; memory for a page is taken when it is first used."""
        cdef uint32_t buckets = 1, slot
        cdef void* at
        self.release()
        self.room = self.held = self.slots = self.warm = 0
        self.newest = self.oldest = self.spare = NONE
        if room == 0:
            return 0
        while buckets < room // 2 + 1:
            buckets *= 2
        self.mask = buckets - 1
        self.lpa_of = <uint32_t*> malloc(<uint64_t> room * 4)
        self.older = <uint32_t*> malloc(<uint64_t> room * 4)
        self.newer = <uint32_t*> malloc(<uint64_t> room * 4)
        self.chain = <uint32_t*> malloc(<uint64_t> room * 4)
        self.bucket = <uint32_t*> malloc(<uint64_t> buckets * 4)
        if not (self.lpa_of and self.older and self.newer and self.chain and self.bucket):
            raise MemoryError
        memset(self.bucket, 0xFF, <uint64_t> buckets * 4)
        for slot in range(room):
            self.lpa_of[slot] = NONE
            self.older[slot] = slot + 1 if slot + 1 < room else NONE
        self.spare = 0
        if self.nand.keeps_data:
            self.data_bytes = <uint64_t> room * self.page_bytes
            at = mmap(NULL, self.data_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
            if at == MAP_FAILED:
                raise MemoryError
            self.data = <uint8_t*> at
        self.room = room
        return 0

    cdef uint8_t* page(self, uint32_t slot) noexcept nogil:
        """Its data; NULL if the chip keeps none."""
        return self.data + <uint64_t> slot * self.page_bytes if self.data != NULL else NULL

    cdef uint32_t find(self, uint32_t lpa) noexcept nogil:
        """The slot that holds ``lpa``, or NONE."""
        cdef uint32_t slot
        if self.held == 0:
            return NONE
        slot = self.bucket[(lpa * <uint32_t> 2654435761) >> 7 & self.mask]
        while slot != NONE and self.lpa_of[slot] != lpa:
            slot = self.chain[slot]
        return slot

    cdef uint32_t use(self, uint32_t lpa) noexcept nogil:
        """As ``find``, for the host: counts a hit or a miss, and makes the page the most recently used one."""
        cdef uint32_t slot = self.find(lpa)
        if slot == NONE:
            self.misses += 1
            return NONE
        self.hits += 1
        if slot != self.newest:
            self.unlink(slot)
            self.to_front(slot)
        return slot

    cdef uint32_t put(self, uint32_t lpa) noexcept nogil:
        """The slot for ``lpa``, now the most recently used; the caller fills in the page. NONE if no slot may be in
        use."""
        cdef uint32_t at = (lpa * <uint32_t> 2654435761) >> 7 & self.mask
        cdef uint32_t slot = self.find(lpa)
        if slot == NONE:
            if self.slots == 0:
                return NONE
            if self.held >= self.slots:
                self.drop(self.lpa_of[self.oldest])
            slot = self.spare
            self.spare = self.older[slot]
            self.warm -= self.warm > 0
            self.held += 1
            self.lpa_of[slot] = lpa
            self.chain[slot] = self.bucket[at]
            self.bucket[at] = slot
        elif slot == self.newest:
            return slot
        else:
            self.unlink(slot)
        self.to_front(slot)
        return slot

    cdef int put_run(self, const uint32_t* lpas, uint32_t n, const uint8_t* data) noexcept nogil:
        """``n`` pages whose data lie end to end; ``data`` NULL: pages of zeros, or a chip that keeps none."""
        cdef uint32_t i, slot
        for i in range(n):
            slot = self.put(lpas[i])
            if slot == NONE or self.data == NULL:
                continue
            if data == NULL:
                memset(self.page(slot), 0, self.page_bytes)
            else:
                memcpy(self.page(slot), data + <uint64_t> i * self.page_bytes, self.page_bytes)
        return 0

    cdef bint drop(self, uint32_t lpa) noexcept nogil:
        """Forget ``lpa``; returns whether it was held."""
        cdef uint32_t slot = self.find(lpa)
        if slot == NONE:
            return False
        self.unlink(slot)
        self.unchain(slot)
        self.lpa_of[slot] = NONE
        self.older[slot] = self.spare
        self.spare = slot
        self.warm += 1
        self.held -= 1
        return True

    cdef int limit(self, uint32_t slots) noexcept nogil:
        """Hold at most ``slots`` pages from now on. The least recently used ones are dropped, and their memory is
        freed, as is that of pages dropped before if the pages in use and those were more."""
        cdef uint32_t slot
        self.slots = min(slots, self.room)
        while self.held > self.slots:
            self.drop(self.lpa_of[self.oldest])
        if self.held + self.warm <= self.slots:
            return 0
        slot = self.spare                   # the spare slots with memory come first
        while self.warm:
            if self.data != NULL and self.page_bytes % HOST_PAGE == 0:
                madvise(self.page(slot), self.page_bytes, MADV_DONTNEED)
            slot = self.older[slot]
            self.warm -= 1
        return 0

    cdef int to_front(self, uint32_t slot) noexcept nogil:
        self.newer[slot] = NONE
        self.older[slot] = self.newest
        if self.newest != NONE:
            self.newer[self.newest] = slot
        else:
            self.oldest = slot
        self.newest = slot
        return 0

    cdef int unlink(self, uint32_t slot) noexcept nogil:
        cdef uint32_t older = self.older[slot], newer = self.newer[slot]
        if newer == NONE:
            self.newest = older
        else:
            self.older[newer] = older
        if older == NONE:
            self.oldest = newer
        else:
            self.newer[older] = newer
        return 0

    cdef int unchain(self, uint32_t slot) noexcept nogil:
        cdef uint32_t* at = &self.bucket[(self.lpa_of[slot] * <uint32_t> 2654435761) >> 7 & self.mask]
        while at[0] != slot:
            at = &self.chain[at[0]]
        at[0] = self.chain[slot]
        return 0

    def forget_counts(self):
        self.hits = self.misses = 0

    def tables(self):
        """(as a controller packs it, as allocated)."""
        buckets = (self.mask + 1) * 4 if self.room else 0
        pages = self.slots * self.page_bytes if self.data != NULL else 0
        return self.slots * (self.page_bytes + SLOT_BYTES), self.room * 16 + buckets + pages

    def pages(self):
        """The LPAs held, the most recently used first."""
        out = []
        slot = self.newest
        while slot != NONE and len(out) <= self.held:
            out.append(self.lpa_of[slot])
            slot = self.older[slot]
        return out

    def check(self):
        """One line per broken invariant: each held page is found once; the order of use has all of them in both
        directions; the rest are spare."""
        problems = []
        order = self.pages()
        if len(order) != self.held or len(set(order)) != len(order):
            problems.append(f"data cache: {self.held} pages held, {len(order)} in the order of use")
        problems += [f"data cache: LPA {lpa} is in the order of use, but not found" for lpa in order
                     if self.find(lpa) == NONE]
        back, slot = [], self.oldest
        while slot != NONE and len(back) <= self.held:
            back.append(self.lpa_of[slot])
            slot = self.newer[slot]
        if back != order[::-1]:
            problems.append("data cache: the order of use is another one backwards")
        spare, slot = 0, self.spare
        while slot != NONE and spare <= self.room:
            spare, slot = spare + 1, self.older[slot]
        if spare + self.held != self.room:
            problems.append(f"data cache: {self.held} slots in use and {spare} spare ones are not {self.room}")
        if self.warm > spare:
            problems.append(f"data cache: {self.warm} of {spare} spare slots have memory")
        return problems
