"""The read path: host reads from the write buffer, the data cache or flash.

Every page that comes from flash has its OOB checked for its LPA: the mapping may guess, and an image may be damaged.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.contract.extent cimport RUN
from flashfs.engine.device.buffer cimport WriteBuffer
from flashfs.engine.device.cache cimport DataCache
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport (
    CAUSE_HOST,
    FLAG_LOST,
    KIND_USER,
    NONE,
    Oob,
    fits_number,
    is_meant_for,
    oob_unpack,
    read_oob,
)
from nandimg._nand cimport PAGE_OK

from flashfs.errors import UncorrectableError

cdef enum:                   # what a read found
    HERE = 0
    OTHER = 1                # another LPA's page, or no user page
    UNREADABLE = 2
    LOST = 3
WHY = ("", "no page that the mapping names holds it", "its page cannot be read",
       "its page could not be read when it was moved")


@cython.final
cdef class Reader:
    def __cinit__(self, Engine ssd, WriteBuffer buffer, DataCache cache):
        self.ssd = ssd
        self.buffer = buffer
        self.cache = cache
        self.oob_bytes = ssd.nand.oob_bytes
        self.page_bytes = ssd.nand.page_bytes
        self.pages_per_block = ssd.nand.pages_per_block
        self.oobs = <uint8_t*> malloc(RUN * self.oob_bytes)
        self.one_oob = <uint8_t*> malloc(self.oob_bytes)
        self.asked_oob = <uint8_t*> malloc(self.oob_bytes)
        self.status = <uint8_t*> malloc(RUN)
        self.ppas = <uint32_t*> malloc(RUN * 4)
        self.ready = <int64_t*> malloc(RUN * 8)
        if not (self.oobs and self.one_oob and self.asked_oob and self.status and self.ppas and self.ready):
            raise MemoryError

    def __dealloc__(self):
        free(self.oobs)
        free(self.one_oob)
        free(self.asked_oob)
        free(self.status)
        free(self.ppas)
        free(self.ready)

    cdef int64_t read(self, const uint32_t* lpas, uint32_t n, uint8_t* data, int64_t t_ns) except -1 nogil:
        """Read ``n`` pages into ``data`` (may be NULL). UncorrectableError names the first LPA that cannot be read.
        Returns the virtual time, in ns, at which the last page is read."""
        cdef uint32_t i = 0, run
        cdef int64_t end = t_ns
        cdef uint8_t* into
        while i < n:
            into = <uint8_t*> NULL if data == NULL else data + <uint64_t> i * self.page_bytes
            if self.take_held(lpas[i], into):
                i += 1
                continue
            run = 1
            while i + run < n and run < RUN and not self.is_held(lpas[i + run]):
                run += 1
            if self.cache.slots:
                self.cache.misses += run - 1    # the first was counted by ``use``
            end = max(end, self.read_flash(lpas + i, run, into, t_ns))
            i += run
        return end

    cdef bint is_held(self, uint32_t lpa) noexcept nogil:
        return ((self.buffer.held and self.buffer.find(lpa) != NONE)
                or (self.cache.held and self.cache.find(lpa) != NONE))

    cdef bint take_held(self, uint32_t lpa, uint8_t* into) noexcept nogil:
        """The page from the cache or the write buffer; False if neither has it. A page in both is the same in both: a
        write drops its pages from the cache first, and puts them back when it is complete."""
        cdef uint32_t slot
        if self.cache.slots:
            slot = self.cache.use(lpa)
            if slot != NONE:
                if into != NULL and self.cache.data != NULL:
                    memcpy(into, self.cache.page(slot), self.page_bytes)
                elif into != NULL:
                    memset(into, 0, self.page_bytes)
                return True
        slot = self.buffer.find(lpa) if self.buffer.held else NONE
        if slot == NONE:
            return False
        if into != NULL and self.buffer.data != NULL:
            memcpy(into, self.buffer.page(slot), self.page_bytes)
        elif into != NULL:
            memset(into, 0, self.page_bytes)
        return True

    cdef int64_t read_flash(self, const uint32_t* lpas, uint32_t n, uint8_t* data, int64_t t_ns) except -1 nogil:
        """Read ``n`` pages, up to RUN, that are not in DRAM. Each is read once its place is known, and before the next
        ``prepare``, which may move pages."""
        cdef uint32_t i = 0, k, part
        cdef int64_t end = t_ns
        while i < n:
            for k in range(n - i):
                self.ready[k] = t_ns
            self.ssd.map_ns = t_ns
            part = self.ssd.mapping.prepare(lpas + i, n - i, False, self.ready)
            if self.ssd.mapping.lent:
                self.ssd.take_back()
            self.ssd.mapping.lookup(lpas + i, part, self.ppas)
            end = max(end, self.read_known(lpas + i, part,
                                           <uint8_t*> NULL if data == NULL else data + <uint64_t> i * self.page_bytes))
            i += part
        return end

    cdef int64_t read_known(self, const uint32_t* lpas, uint32_t n, uint8_t* data) except -1 nogil:
        """Read ``n`` pages at ``ppas``, each from its time in ``ready`` on; unmapped LPAs read zeros."""
        cdef uint32_t i = 0, run, block
        cdef uint32_t* ppas = self.ppas
        cdef int64_t* ready = self.ready
        cdef int64_t end = 0
        cdef uint8_t* into
        while i < n:
            end = max(end, ready[i])
            into = <uint8_t*> NULL if data == NULL else data + <uint64_t> i * self.page_bytes
            if ppas[i] == NONE:
                self.holes += 1
                if into != NULL:
                    memset(into, 0, self.page_bytes)
                i += 1
                continue
            block = ppas[i] // self.pages_per_block
            if block >= self.ssd.nand.blocks:
                self.read_again(lpas[i], NONE, UNREADABLE, NULL, NULL, ready[i])  # the mapping is damaged: no such page
            run = 1
            while (i + run < n and ppas[i + run] == ppas[i] + run and ready[i + run] == ready[i]
                   and (ppas[i] + run) // self.pages_per_block == block):
                run += 1
            end = max(end, self.read_run(lpas + i, ppas[i], run, into, ready[i]))
            if self.cache.slots and (into != NULL or self.cache.data == NULL):  # else there are no data to cache
                self.cache.put_run(lpas + i, run, into)
            i += run
        return end

    cdef int64_t read_run(self, const uint32_t* lpas, uint32_t ppa, uint32_t n, uint8_t* data,
                          int64_t t_ns) except -1 nogil:
        """Read ``n`` consecutive pages of a block and check each for its LPA."""
        cdef uint32_t k, block = ppa // self.pages_per_block, first = ppa - block * self.pages_per_block
        cdef uint64_t order = self.ssd.pool.order[block]
        cdef int what
        cdef int64_t end
        cdef Oob oob
        end = self.ssd.nand.read(block, first, n,
                                 data if self.ssd.nand.keeps_data else <uint8_t*> NULL, self.oobs, self.status,
                                 CAUSE_HOST, t_ns)
        if data != NULL and not self.ssd.nand.keeps_data:
            memset(data, 0, <uint64_t> n * self.page_bytes)
        for k in range(n):
            oob_unpack(self.oobs + k * self.oob_bytes, &oob)
            if (self.status[k] == PAGE_OK and oob.lpa == lpas[k] and oob.kind == KIND_USER
                    and (oob.order == order or order == 0) and not oob.flags & FLAG_LOST
                    and is_meant_for(self.oobs + k * self.oob_bytes, first + k)):
                continue
            what = self.judge(lpas[k], ppa + k, self.status[k], &oob)
            if what == HERE:
                continue
            end = max(end, self.read_again(lpas[k], ppa + k, what, self.oobs + k * self.oob_bytes,
                      <uint8_t*> NULL if data == NULL else data + <uint64_t> k * self.page_bytes, end))
        return end

    cdef int64_t read_again(self, uint32_t lpa, uint32_t ppa, int found, const uint8_t* oob, uint8_t* data,
                            int64_t t_ns) except -1 nogil:
        """``ppa`` (NONE: there is no page) did not give the LPA's page; ``found`` says why, and ``oob`` is what was
        read there. OTHER: follow the scheme's next guesses, one dependent read after another. UNREADABLE: retry once,
        then follow the guesses too, because the unreadable page may be another LPA's."""
        cdef int why
        if found == UNREADABLE and ppa != NONE:
            self.retried_reads += 1
            t_ns = self.read_one(lpa, ppa, data, t_ns, &found)
            oob = self.one_oob
        why = found
        while ppa != NONE and (found == OTHER or found == UNREADABLE):
            ppa = self.ssd.mapping.after_miss(lpa, ppa, oob if found == OTHER else <const uint8_t*> NULL)
            if ppa == NONE:
                break
            self.extra_reads += 1
            t_ns = self.read_one(lpa, ppa, data, t_ns, &found)
            if found == UNREADABLE:
                self.retried_reads += 1
                t_ns = self.read_one(lpa, ppa, data, t_ns, &found)
            oob = self.one_oob
            if found == LOST or why == OTHER:
                why = found
        if found == HERE:
            return t_ns
        self.unreadable += 1
        with gil:
            raise UncorrectableError(lpa, WHY[why])

    cdef int64_t read_one(self, uint32_t lpa, uint32_t ppa, uint8_t* data, int64_t t_ns, int* found) except -1 nogil:
        """Read one page for that LPA; ``found`` gets HERE, OTHER, UNREADABLE or LOST."""
        cdef uint32_t block = ppa // self.pages_per_block
        cdef uint8_t status
        cdef Oob oob
        t_ns = self.ssd.nand.read(block, ppa - block * self.pages_per_block, 1,
                                  data if self.ssd.nand.keeps_data else <uint8_t*> NULL, self.one_oob, &status,
                                  CAUSE_HOST, t_ns)
        oob_unpack(self.one_oob, &oob)
        found[0] = self.judge(lpa, ppa, status, &oob)
        if found[0] == HERE and data != NULL and not self.ssd.nand.keeps_data:
            memset(data, 0, self.page_bytes)
        return t_ns

    cdef int judge(self, uint32_t lpa, uint32_t ppa, uint8_t status, const Oob* oob) except -1 nogil:
        """Classify a page that was read for an LPA: HERE, OTHER, UNREADABLE or LOST."""
        if status != PAGE_OK:
            return UNREADABLE
        if oob.kind != KIND_USER or (oob.lpa != lpa and (
                self.ssd.mapping.sharing is None or not self.ssd.mapping.sharing.is_page_of(lpa, ppa, oob.lpa))):
            return OTHER
        if (oob.order != self.ssd.pool.order[ppa // self.pages_per_block] != 0
                and not self.is_displaced(ppa // self.pages_per_block, oob.order)):
            return OTHER                   # meant for another block; 0: the block's order is not known
        if not fits_number(oob.number, ppa % self.pages_per_block):
            return OTHER                   # meant for another page of the block
        return LOST if oob.flags & FLAG_LOST else HERE

    cdef bint is_displaced(self, uint32_t block, uint64_t order) except -1 nogil:
        """Whether most synced pages of the block have ``order`` in their OOB: then its first page was meant for another
        block, and a recovery without a scan of this block took the order from it. If so, corrects the pool."""
        cdef uint32_t page, agree = 0, differ = 0
        cdef uint8_t status
        cdef Oob oob
        for page in range(self.ssd.nand.synced(block)):
            self.ssd.now_ns = read_oob(self.ssd.nand, block * self.pages_per_block + page, self.asked_oob, &oob,
                                       &status, CAUSE_HOST, self.ssd.now_ns)
            if status == PAGE_OK:
                agree += oob.order == order
                differ += oob.order == self.ssd.pool.order[block]
        if agree <= differ:
            return False
        with gil:
            self.ssd.alarm(f"block {block}: its first page was meant for another block")
        self.ssd.pool.order[block] = order
        return True

    def forget_counts(self):
        self.extra_reads = self.retried_reads = self.unreadable = self.holes = 0
