"""S-FTL's cache: whole translation pages, condensed (S. Jiang et al., S-FTL, MSST 2011).

A *run* is a sequence of neighbouring entries whose PPAs count up by one, or which are all holes. A cached page is a bit
for each entry (whether it begins a run) and the first PPA, the head, of each run. So a page of E entries in R runs
takes E / 8 + 4 R bytes and its node: after sequential writes this is a thirtieth of the page in flash.

Memory is an arena of units of one size: a node with its bits and room for four heads. Further heads are in a chain of
units. A page with dirty entries has one more unit, with a bit for each entry. Pages are in LRU order.
"""
cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.contract.validity cimport list_bits
from flashfs.engine.blocks.pool cimport NONE

import numpy

cdef extern from *:
    int leading "__builtin_clzll"(unsigned long long) nogil
    int lowest "__builtin_ctzll"(unsigned long long) nogil

cdef enum:
    SUMMED = 31              # words whose ones can be summed in bytes: 8 each, 255 at most

cdef uint64_t PAIRS = 0x5555555555555555u, FOURS = 0x3333333333333333u, BYTES = 0x0F0F0F0F0F0F0F0Fu
cdef uint64_t EACH = 0x0101010101010101u, HALVES = 0x00FF00FF00FF00FFu, EACH_HALF = 0x0001000100010001u


cdef inline bint follows(uint32_t before, uint32_t ppa) noexcept nogil:
    """Whether an entry continues the run of the entry before it."""
    return ppa == before + (before != NONE)


cdef inline uint64_t by_bytes(uint64_t word) noexcept nogil:
    """The number of ones of each byte, in that byte. Not every processor has popcount, and a call takes longer than
    this."""
    word -= (word >> 1) & PAIRS
    word = (word & FOURS) + ((word >> 2) & FOURS)
    return (word + (word >> 4)) & BYTES


cdef inline uint32_t ones(uint64_t word) noexcept nogil:
    return <uint32_t> ((by_bytes(word) * EACH) >> 56)


cdef uint32_t ones_in(const uint64_t* bits, uint32_t words) noexcept nogil:
    """The number of set bits."""
    cdef uint32_t w = 0, end, found = 0
    cdef uint64_t summed
    while w < words:
        summed = 0
        end = min(words, w + SUMMED)
        while w < end:
            summed += by_bytes(bits[w])
            w += 1
        summed = (summed & HALVES) + ((summed >> 8) & HALVES)
        found += <uint32_t> ((summed * EACH_HALF) >> 48)
    return found


def unit_size(per_page):
    """Bytes of a unit for pages of so many entries."""
    return sizeof(Node) + (per_page + 63) // 64 * 8


def most_units(per_page):
    """The most units of one page: every entry is a run, and dirty."""
    a_chunk = unit_size(per_page) // 4 - 1
    return 2 + -(-max(0, per_page - INLINE) // a_chunk)


@cython.final
cdef class CondensedPages:
    """An arena of ``units``, for ``pages`` translation pages of ``per_page`` entries each. Pages used by the current
    *batch* are not evicted."""

    def __cinit__(self, uint32_t units, uint32_t pages, uint32_t per_page):
        self.pages = pages
        self.per_page = per_page
        self.words = (per_page + 63) // 64
        self.unit_bytes = unit_size(per_page)
        self.a_chunk = self.unit_bytes // 4 - 1
        self.allocate(units)

    def __dealloc__(self):
        free(self.arena)
        free(self.node_of)
        free(self.heads)

    cdef int allocate(self, uint32_t units) except -1:
        self.arena = <char*> malloc(<uint64_t> units * self.unit_bytes)
        self.node_of = <uint32_t*> malloc(<uint64_t> self.pages * 4)
        self.heads = <uint32_t*> malloc(<uint64_t> self.per_page * 4)
        if not (self.arena and self.node_of and self.heads):
            raise MemoryError
        self.units = units
        self.clear()
        return 0

    cdef int clear(self) noexcept nogil:
        """Empty the cache."""
        cdef uint32_t unit
        memset(self.node_of, 0xFF, <uint64_t> self.pages * 4)
        self.pages_n = self.dirty_n = self.free_n = 0
        self.runs = 0
        self.free = self.oldest = self.newest = NONE
        for unit in range(self.units, 0, -1):
            self.give(unit - 1)
        self.batch = 1
        return 0

    cdef inline Node* node(self, uint32_t unit) noexcept nogil:
        return <Node*> (self.arena + <uint64_t> unit * self.unit_bytes)

    cdef inline uint32_t* words_of(self, uint32_t unit) noexcept nogil:
        """The words of a unit of heads, or of a free one: the first is the next unit."""
        return <uint32_t*> (self.arena + <uint64_t> unit * self.unit_bytes)

    cdef inline uint64_t* bits(self, Node* node) noexcept nogil:
        return <uint64_t*> (<char*> node + sizeof(Node))

    cdef inline uint64_t* dirty_bits(self, const Node* node) noexcept nogil:
        return <uint64_t*> (self.arena + <uint64_t> node.dirty * self.unit_bytes)

    cdef inline uint32_t take(self) noexcept nogil:
        cdef uint32_t unit = self.free
        self.free = self.words_of(unit)[0]
        self.free_n -= 1
        return unit

    cdef inline int give(self, uint32_t unit) noexcept nogil:
        self.words_of(unit)[0] = self.free
        self.free = unit
        self.free_n += 1
        return 0

    # --- the order of use

    cdef int link(self, uint32_t unit) noexcept nogil:
        self.node(unit).older = self.newest
        self.node(unit).newer = NONE
        if self.newest != NONE:
            self.node(self.newest).newer = unit
        else:
            self.oldest = unit
        self.newest = unit
        return 0

    cdef int unlink(self, uint32_t unit) noexcept nogil:
        cdef uint32_t older = self.node(unit).older, newer = self.node(unit).newer
        if older != NONE:
            self.node(older).newer = newer
        else:
            self.oldest = newer
        if newer != NONE:
            self.node(newer).older = older
        else:
            self.newest = older
        return 0

    cdef int use(self, uint32_t unit) noexcept nogil:
        """A look-up found the page: make it the newest; it stays for this batch."""
        self.node(unit).used_in = self.batch
        if unit != self.newest:
            self.unlink(unit)
            self.link(unit)
        return 0

    cdef int next_batch(self) noexcept nogil:
        """Begin a new batch: pages used so far may be evicted."""
        self.batch += 1
        return 0

    cdef uint32_t victim(self) noexcept nogil:
        """The least recently used page; NONE if this batch uses all pages."""
        if self.oldest == NONE or self.node(self.oldest).used_in == self.batch:
            return NONE
        return self.oldest

    # --- heads of runs: the first four are in the node, others in its chain

    cdef uint32_t units_for(self, uint32_t runs) noexcept nogil:
        """Units of a page of so many runs, without the one of its dirty bits."""
        return 1 + (max(runs, <uint32_t> INLINE) - INLINE + self.a_chunk - 1) // self.a_chunk

    cdef uint32_t* head_at(self, Node* node, uint32_t run) noexcept nogil:
        cdef uint32_t unit = node.chunks
        if run < INLINE:
            return node.heads + run
        run -= INLINE
        while run >= self.a_chunk:
            unit = self.words_of(unit)[0]
            run -= self.a_chunk
        return self.words_of(unit) + 1 + run

    cdef int resize(self, Node* node, uint32_t runs) noexcept nogil:
        """Make the page's chain fit so many runs; there must be enough free units."""
        cdef uint32_t* link = &node.chunks
        cdef uint32_t more = self.units_for(runs) - 1, unit
        while more:
            if link[0] == NONE:
                unit = self.take()
                self.words_of(unit)[0] = NONE
                link[0] = unit
            link = self.words_of(link[0])
            more -= 1
        unit = link[0]
        link[0] = NONE
        while unit != NONE:
            more = self.words_of(unit)[0]
            self.give(unit)
            unit = more
        self.runs += runs
        self.runs -= node.runs
        node.runs = runs
        return 0

    cdef int copy_heads(self, Node* node, uint32_t first, uint32_t n, uint32_t* heads, bint back) noexcept nogil:
        """Copy ``n`` heads from run ``first`` on to ``heads`` or, with ``back``, from there."""
        cdef uint32_t part, unit = node.chunks, at
        cdef uint32_t* there
        if n == 0:
            return 0
        if first < INLINE:
            there = node.heads + first
            part = min(n, INLINE - first)
            at = 0
        else:
            at = first - INLINE
            while at >= self.a_chunk:
                unit = self.words_of(unit)[0]
                at -= self.a_chunk
            there = self.words_of(unit) + 1 + at
            part = min(n, self.a_chunk - at)
            unit = self.words_of(unit)[0]
        while True:
            if back:
                memcpy(there, heads, part * 4)
            else:
                memcpy(heads, there, part * 4)
            heads += part
            n -= part
            if n == 0:
                return 0
            there = self.words_of(unit) + 1
            part = min(n, self.a_chunk)
            unit = self.words_of(unit)[0]

    # --- entries

    cdef uint32_t rank(self, const uint64_t* bits, uint32_t offset, uint32_t* start) noexcept nogil:
        """The number of the run that an entry is in; sets where that begins."""
        cdef uint32_t word = offset >> 6, runs = ones_in(bits, word)
        cdef uint64_t upto = bits[word] & (<uint64_t> -1 >> (63 - (offset & 63)))
        runs += ones(upto)
        while upto == 0:
            word -= 1
            upto = bits[word]
        start[0] = 64 * word + 63 - leading(upto)
        return runs - 1

    cdef uint32_t get(self, Node* node, uint32_t offset) noexcept nogil:
        """The PPA of an entry."""
        cdef uint32_t start = 0, run = self.rank(self.bits(node), offset, &start)
        cdef uint32_t head = self.head_at(node, run)[0]
        return NONE if head == NONE else head + (offset - start)

    cdef uint32_t runs_in(self, const uint32_t* image) noexcept nogil:
        """The number of runs of a translation page."""
        cdef uint32_t i, runs = 1
        for i in range(1, self.per_page):
            runs += not follows(image[i - 1], image[i])
        return runs

    cdef uint32_t insert(self, uint32_t page, const uint32_t* image, uint32_t runs) noexcept nogil:
        """Insert a translation page as it is in flash, of so many runs; returns its unit. There must be ``units_for``
        it."""
        cdef uint32_t unit = self.take(), w, i, end, before = 0, run = 0
        cdef uint64_t begun, left
        cdef Node* node = self.node(unit)
        cdef uint64_t* bits = self.bits(node)
        memset(node, 0, self.unit_bytes)
        node.page = page
        node.chunks = node.dirty = NONE
        node.used_in = self.batch
        self.resize(node, runs)
        for w in range(self.words):
            begun = w == 0                  # the first entry begins a run, whatever it is
            end = min(self.per_page, 64 * w + 64)
            for i in range(64 * w, end):
                begun |= <uint64_t> (not follows(before, image[i])) << (i & 63)
                before = image[i]
            bits[w] = left = begun
            while left:
                self.heads[run] = image[64 * w + lowest(left)]
                run += 1
                left &= left - 1
        self.copy_heads(node, 0, runs, self.heads, True)
        self.node_of[page] = unit
        self.pages_n += 1
        self.link(unit)
        return unit

    cdef bint put(self, uint32_t unit, uint32_t offset, uint32_t ppa) noexcept nogil:
        """Change an entry, and mark it as dirty. False, and nothing is changed, if there are not enough free units: the
        change may break a run in three."""
        cdef Node* node = self.node(unit)
        cdef uint64_t* bits = self.bits(node)
        cdef uint32_t start = 0, before = NONE, behind = NONE, run, out, n = 0, need, head
        cdef uint32_t[2] heads
        cdef bint begins, next_begins = True, last = offset + 1 == self.per_page
        run = self.rank(bits, offset, &start)
        begins = start == offset
        head = self.head_at(node, run)[0]
        if not begins:
            before = NONE if head == NONE else head + (offset - 1 - start)
        elif offset:
            before = self.get(node, offset - 1)
        if not last:
            next_begins = bits[(offset + 1) >> 6] >> ((offset + 1) & 63) & 1
            if next_begins:
                behind = self.head_at(node, run + 1)[0]
            else:
                behind = NONE if head == NONE else head + (offset + 1 - start)
        out = begins + (next_begins and not last)
        run += not begins                  # the first head that is removed, or the place of the new one
        begins = offset == 0 or not follows(before, ppa)
        next_begins = last or not follows(ppa, behind)
        if begins:
            heads[n] = ppa
            n += 1
        if next_begins and not last:
            heads[n] = behind
            n += 1
        need = self.units_for(node.runs - out + n) + (node.dirty == NONE)
        if need > self.units_for(node.runs) + self.free_n:
            return False
        self.splice(node, run, out, heads, n)
        bits[offset >> 6] &= ~(<uint64_t> 1 << (offset & 63))
        bits[offset >> 6] |= <uint64_t> begins << (offset & 63)
        if not last:
            bits[(offset + 1) >> 6] &= ~(<uint64_t> 1 << ((offset + 1) & 63))
            bits[(offset + 1) >> 6] |= <uint64_t> next_begins << ((offset + 1) & 63)
        return self.mark(unit, offset)

    cdef int splice(self, Node* node, uint32_t run, uint32_t out, const uint32_t* heads, uint32_t n) noexcept nogil:
        """Replace ``out`` heads from that run on by ``n`` others."""
        cdef uint32_t k, behind = node.runs - run - out
        if out != n:
            self.copy_heads(node, run + out, behind, self.heads, False)
            self.resize(node, node.runs - out + n)
            self.copy_heads(node, run + n, behind, self.heads, True)
        for k in range(n):
            self.head_at(node, run + k)[0] = heads[k]
        return 0

    cdef bint mark(self, uint32_t unit, uint32_t offset) noexcept nogil:
        """Mark an entry as dirty; False if there is no unit for dirty bits."""
        cdef Node* node = self.node(unit)
        cdef uint64_t* dirty
        if node.dirty == NONE:
            if self.free_n == 0:
                return False
            node.dirty = self.take()
            memset(self.dirty_bits(node), 0, self.unit_bytes)
        dirty = self.dirty_bits(node)
        if not dirty[offset >> 6] >> (offset & 63) & 1:
            dirty[offset >> 6] |= <uint64_t> 1 << (offset & 63)
            node.dirty_n += 1
            self.dirty_n += 1
        return True

    cdef bint mark_all(self, uint32_t unit, uint32_t n) noexcept nogil:
        """Mark the first ``n`` entries as dirty."""
        cdef uint32_t offset
        for offset in range(n):
            if not self.mark(unit, offset):
                return False
        return True

    cdef int expand(self, uint32_t unit, uint32_t* image) noexcept nogil:
        """Write the translation page, as it would be in flash, to ``image``."""
        cdef Node* node = self.node(unit)
        cdef uint64_t* bits = self.bits(node)
        cdef uint32_t i, run = 0
        self.copy_heads(node, 0, node.runs, self.heads, False)
        for i in range(self.per_page):
            if bits[i >> 6] >> (i & 63) & 1:
                image[i] = self.heads[run]
                run += 1
            else:
                image[i] = NONE if image[i - 1] == NONE else image[i - 1] + 1
        return 0

    cdef uint32_t list_dirty(self, uint32_t unit, uint32_t* offsets, uint32_t* ppas) noexcept nogil:
        """List the dirty entries, ascending; ``ppas`` may be NULL. Returns how many."""
        cdef Node* node = self.node(unit)
        cdef const uint64_t* bits = self.bits(node)
        cdef uint32_t i, n, word, start = 0, head, counted = 0, runs = 0
        cdef uint64_t upto
        if node.dirty == NONE:
            return 0
        n = list_bits(self.dirty_bits(node), self.words, offsets)
        if ppas == NULL or n == 0:
            return n
        self.copy_heads(node, 0, node.runs, self.heads, False)
        for i in range(n):
            word = offsets[i] >> 6
            while counted < word:           # runs that begin in earlier words, and where the last of them begins
                if bits[counted]:
                    runs += ones(bits[counted])
                    start = 64 * counted + 63 - leading(bits[counted])
                counted += 1
            upto = bits[word] & (<uint64_t> -1 >> (63 - (offsets[i] & 63)))
            head = self.heads[runs + ones(upto) - 1]
            ppas[i] = NONE if head == NONE else head + offsets[i] - (64 * word + 63 - leading(upto) if upto else start)
        return n

    cdef int clean(self, uint32_t unit) noexcept nogil:
        """Mark the page as clean: flash has all its entries."""
        cdef Node* node = self.node(unit)
        if node.dirty != NONE:
            self.give(node.dirty)
            self.dirty_n -= node.dirty_n
            node.dirty = NONE
            node.dirty_n = 0
        return 0

    cdef int drop(self, uint32_t unit) noexcept nogil:
        """Drop a page from the cache, dirty or not."""
        cdef Node* node = self.node(unit)
        self.clean(unit)
        self.resize(node, 0)
        self.unlink(unit)
        self.node_of[node.page] = NONE
        self.pages_n -= 1
        return self.give(unit)

    # --- for people and tests

    def sizes(self):
        """(bytes as a controller packs them, as allocated)."""
        taken = <uint64_t> self.units * self.unit_bytes + 4 * <uint64_t> (self.pages + self.per_page)
        return taken, taken

    cdef uint64_t free_bytes(self) noexcept nogil:
        """Bytes of the units that are free."""
        return <uint64_t> self.free_n * self.unit_bytes

    def condensed_bytes(self):
        """Bytes of the cached pages by the paper's count: a bit an entry, 4 a run."""
        return self.pages_n * (self.per_page // 8) + 4 * self.runs

    def entries(self):
        """Every cached page, the next to be evicted first: {"page", "first_lpa", "runs", "bytes" (in DRAM), "dirty"
        (entries)}."""
        cdef uint32_t unit = self.oldest
        cdef Node* node
        out = []
        while unit != NONE:
            node = self.node(unit)
            units = self.units_for(node.runs) + (node.dirty != NONE)
            out.append({"page": node.page, "first_lpa": node.page * self.per_page, "runs": node.runs,
                        "bytes": units * self.unit_bytes, "dirty": node.dirty_n})
            unit = node.newer
        return out

    def image_of(self, uint32_t page):
        """The entries of a cached page, an array of u32; None if it is not cached."""
        cdef uint32_t[::1] image
        if self.node_of[page] == NONE:
            return None
        found = numpy.empty(self.per_page, numpy.uint32)
        image = found
        self.expand(self.node_of[page], &image[0])
        return found

    def check(self):
        """Each page is where the table has it; each has as many bits as runs, and no run could be longer; the counts
        are right."""
        cdef uint32_t unit = self.oldest, w, marked, begun, units = 0, pages = 0
        cdef uint64_t runs = 0, dirty = 0
        cdef Node* node
        problems = []
        while unit != NONE and pages <= self.pages_n:
            node = self.node(unit)
            begun = marked = 0
            for w in range(self.words):
                begun += ones(self.bits(node)[w])
                if node.dirty != NONE:
                    marked += ones(self.dirty_bits(node)[w])
            image = self.image_of(node.page)
            if self.node_of[node.page] != unit:
                problems.append(f"CMT: translation page {node.page} is not where it should be")
            elif begun != node.runs or self.runs_of(image) != node.runs:
                problems.append(f"CMT: translation page {node.page} counts {node.runs} runs and has others")
            if marked != node.dirty_n:
                problems.append(f"CMT: translation page {node.page} counts {node.dirty_n} dirty entries, has {marked}")
            pages += 1
            runs += node.runs
            dirty += node.dirty_n
            units += self.units_for(node.runs) + (node.dirty != NONE)
            unit = node.newer
        if (pages, runs, dirty) != (self.pages_n, self.runs, self.dirty_n):
            problems.append(f"CMT: {self.pages_n} pages, {self.runs} runs, {self.dirty_n} dirty entries counted: there "
                            f"are {pages}, {runs}, {dirty}")
        if units + self.free_n != self.units:
            problems.append(f"CMT: {units} units taken and {self.free_n} free of {self.units}")
        return problems

    def runs_of(self, const uint32_t[::1] image):
        """Runs of a translation page of ``per_page`` entries."""
        return self.runs_in(&image[0])
