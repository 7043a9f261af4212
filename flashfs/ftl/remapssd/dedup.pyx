# distutils: language = c++
"""In-line deduplication (Remap-SSD, section 5.2): a write of a page that is already in flash becomes a remap.

Pages are found by their fingerprints (fingerprints.pyx), and compared before they are taken as equal.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from flashfs.engine.contract.engine cimport IN_REMAP
from flashfs.engine.contract.extensions cimport Deduplication
from flashfs.engine.blocks.pool cimport CAUSE_HOST, CAUSE_MAP, FLAG_LOST, KIND_USER, NONE, oob_kind, placed
from flashfs.engine.device.ssd cimport Ssd
from flashfs.ftl.remapssd.fingerprints cimport Prints
from flashfs.ftl.remapssd.mapping cimport RemapTable
from flashfs.ftl.remapssd.rmm cimport Claim
from nandimg._nand cimport PAGE_OK


cdef class TableDeduplication(Deduplication):
    """Deduplication for that map, which gets it as ``dedup``. Pages of the same fingerprint are compared if it
    ``verifies``."""

    def __cinit__(self, Ssd ssd not None, RemapTable map not None, Prints prints not None, bint verifies=True):
        self.ssd = ssd
        self.map = map
        self.prints = prints
        self.verifies = verifies
        self.oob = <uint8_t*> malloc(ssd.nand.oob_bytes)
        self.page = <uint8_t*> malloc(ssd.nand.page_bytes)
        if not (self.oob and self.page):
            raise MemoryError
        map.dedup = self

    def __dealloc__(self):
        free(self.oob)
        free(self.page)

    cdef int64_t write(self, const uint32_t* lpas, uint32_t n, const uint8_t* data, const uint64_t* words,
                       int64_t t_ns) except -1 nogil:
        """Remap pages whose content is already in flash, and write those between them as runs. Pages before such a page
        are written first: they may have the same content, and writing them may move the page that was found."""
        cdef uint32_t i, first = 0, old
        cdef int64_t end = t_ns, when = t_ns
        cdef const uint8_t* page = NULL
        cdef int before
        self.prints.begin()                # a failed request may have left something
        for i in range(n):
            if data != NULL:
                page = data + <uint64_t> i * self.ssd.page_bytes
            if not self.prints.add(lpas[i], page, self.ssd.page_bytes, words[i] if words != NULL else 0, &when):
                continue
            if i > first:
                end = max(end, self.write_between(lpas, first, i, data, when))
            first = i
            self.ssd.seq += 1
            before = self.ssd.stopped
            old = NONE
            if self.point_at_same(lpas[i], page, self.ssd.seq, &when, &old):
                self.ssd.stopped = IN_REMAP
                self.ssd.validity.dead(&old, 1)
                self.ssd.stopped = before
                if self.ssd.buffer.held:
                    self.ssd.buffer.drop(lpas[i])
                end = max(end, when)
                first = i + 1
        if n > first:
            end = max(end, self.write_between(lpas, first, n, data, when))
        self.prints.begin()
        return end

    cdef int64_t write_between(self, const uint32_t* lpas, uint32_t first, uint32_t end, const uint8_t* data,
                               int64_t t_ns) except -1 nogil:
        return self.ssd.write_past(lpas + first, end - first, <const uint8_t*> NULL if data == NULL
                                   else data + <uint64_t> first * self.ssd.page_bytes, t_ns)

    cdef bint point_at_same(self, uint32_t lpa, const uint8_t* page, uint64_t seq, int64_t* t_ns,
                            uint32_t* old) except -1 nogil:
        """For the page last added to ``prints``; pages before it are in flash by now. Point its LPA at a page of the
        same content, under ``seq``. False if there is none, or the LPA cannot be pointed there; then it must be
        written. ``old`` as in ``Mapping.bind``. Makes room, so it may clean and sync."""
        cdef uint32_t ppa = self.prints.find(self.prints.pending + 2 * (self.prints.pending_n - 1))
        if ppa == NONE:
            return False
        if self.map.at(lpa) != ppa and not self.has_room(ppa):  # checked first: it may save the comparison
            return False
        if not self.is_same(ppa, page, t_ns):
            return False
        if self.map.at(lpa) != ppa:
            self.point_at(lpa, ppa, seq, t_ns, old)
        self.prints.pending_n -= 1
        self.found += 1
        return True

    cdef int point_at(self, uint32_t lpa, uint32_t ppa, uint64_t seq, int64_t* t_ns, uint32_t* old) except -1 nogil:
        cdef Claim claim
        cdef int before = self.ssd.stopped
        claim.seq = seq
        claim.lpa = claim.first = lpa
        claim.n = 1
        claim.ppa = ppa
        claim.source = NONE
        self.ssd.map_ns = t_ns[0]
        self.ssd.stopped = IN_REMAP
        self.map.take_reference(ppa)
        old[0] = self.map.leave(lpa)
        self.map.put(lpa, ppa)
        self.map.rmm.append(&claim, CAUSE_MAP)
        self.ssd.stopped = before
        t_ns[0] = max(t_ns[0], self.ssd.map_ns)
        return 0

    cdef bint has_room(self, uint32_t ppa) except -1 nogil:
        """Whether one more LPA may be at that page, and NVRAM has room for its entry."""
        if self.map.counts.get(ppa) >= self.map.count_limit:
            self.map.refused_count += 1
            return False
        if self.map.rmm.valid_n >= self.map.entries_most() or not self.map.rmm.gain(self.map.rmm.reserve + 2):
            self.map.refused_full += 1
            return False
        return True

    cdef bint is_same(self, uint32_t ppa, const uint8_t* page, int64_t* t_ns) except -1 nogil:
        """Whether the page at ``ppa`` has that content: it is read and compared, unless verification is off or there is
        no content to compare."""
        cdef uint8_t status
        if page == NULL or not self.verifies:
            return True
        self.reads += 1
        t_ns[0] = self.ssd.nand.read(ppa // self.ssd.nand.pages_per_block, ppa % self.ssd.nand.pages_per_block, 1,
                                     self.page, self.oob, &status, CAUSE_HOST, t_ns[0])
        status = placed(status, self.oob, ppa % self.ssd.nand.pages_per_block)
        if (status == PAGE_OK and oob_kind(self.oob) == KIND_USER and not self.oob[7] & FLAG_LOST
                and memcmp(self.page, page, self.ssd.nand.page_bytes) == 0):
            return True
        self.differed += 1
        self.prints.drop(ppa)
        return False

    # --- for people

    def figures(self):
        """The counters for the statistics."""
        return {"dedup_found": self.found, "dedup_reads": self.reads, "dedup_differed": self.differed,
                "dedup_known": self.prints.held}

    def forget_counts(self):
        """Reset the counters."""
        self.found = self.reads = self.differed = 0
