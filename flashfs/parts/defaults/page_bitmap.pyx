"""The engine's default validity store: a bit per page, in DRAM."""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.blocks.victims cimport gained, lost_one
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.validity cimport Validity, list_bits

import numpy


cdef extern from "huge.h" nogil:
    void want_huge_pages(void* at, size_t bytes)

cdef extern from *:
    int popcount64 "__builtin_popcountll"(unsigned long long) nogil
    int lowest_bit "__builtin_ctzll"(unsigned long long) nogil
    void prefetch "__builtin_prefetch"(const void*, int) nogil

cdef enum:
    AHEAD = 12               # pages prefetched ahead: the bits of a large chip miss the cache at every random page


cdef class PageBitmap(Validity):
    """PVB: a bit per page, in DRAM."""

    def __cinit__(self, Engine ssd):
        cdef uint32_t n = ssd.nand.blocks
        self.by_map = True
        self.pages_per_block = ssd.nand.pages_per_block
        self.shift = 0 if self.pages_per_block & (self.pages_per_block - 1) else lowest_bit(self.pages_per_block)
        self.words_a_block = (self.pages_per_block + 63) // 64  # a block begins a word, whatever its size
        self.n_words = <uint64_t> self.words_a_block * n
        self.bits = <uint64_t*> calloc(self.n_words, 8)
        want_huge_pages(self.bits, self.n_words * 8)
        if self.bits == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.bits)

    @cython.final
    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil:
        """A shift if the pages per block are a power of two, as on nearly all chips: a division costs ten times that.
        """
        return ppa >> self.shift if self.shift else ppa // self.pages_per_block

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        cdef uint32_t block = self.block_of(ppa)
        cdef uint32_t page = ppa - block * self.pages_per_block
        cdef uint64_t* word = self.bits + <uint64_t> block * self.words_a_block
        cdef uint64_t some
        cdef uint32_t end = page + n, part
        while page < end:
            part = min(end - page, 64 - (page & 63))
            some = (~<uint64_t> 0 >> (64 - part)) << (page & 63)
            n -= popcount64(word[page >> 6] & some)  # the count must match the bits, even on a damaged image
            word[page >> 6] |= some
            page += part
        return gained(self.victims, block, n)

    @cython.final
    cdef int come(self, uint32_t ppa) noexcept nogil:
        """Prefetches what ``dead`` needs for the page."""
        cdef uint32_t block = self.block_of(ppa)
        if ppa != NONE:
            prefetch(self.victims.valid + block, 1)
            prefetch(self.victims.next_of + block, 1)
            prefetch(self.victims.prev_of + block, 1)
            prefetch(self.bits + (<uint64_t> block * self.words_a_block
                                  + ((ppa - block * self.pages_per_block) >> 6)), 1)
        return 0

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        cdef uint32_t i, block, page
        cdef uint64_t* word
        for i in range(min(n, <uint32_t> AHEAD)):
            self.come(ppas[i])
        for i in range(n):
            if i + AHEAD < n:
                self.come(ppas[i + AHEAD])
            if ppas[i] == NONE:
                continue
            block = self.block_of(ppas[i])
            page = ppas[i] - block * self.pages_per_block
            word = self.bits + <uint64_t> block * self.words_a_block + (page >> 6)
            if not word[0] >> (page & 63) & 1:
                continue
            word[0] &= ~(<uint64_t> 1 << (page & 63))
            lost_one(self.victims, block)
        return 0

    cdef bint is_live(self, uint32_t ppa) except -1 nogil:
        cdef uint32_t block = self.block_of(ppa)
        cdef uint32_t page = ppa - block * self.pages_per_block
        return (self.bits[<uint64_t> block * self.words_a_block + (page >> 6)] >> (page & 63)) & 1

    cdef int bitmap(self, uint32_t block, uint64_t* words) except -1 nogil:
        memcpy(words, self.bits + <uint64_t> block * self.words_a_block, self.words_a_block * 8)
        return 0

    cdef uint32_t pages(self, uint32_t block, uint32_t* out) except? 0xFFFFFFFF nogil:
        return list_bits(self.bits + <uint64_t> block * self.words_a_block, self.words_a_block, out)

    @staticmethod
    def section_bytes(geometry):
        """{section: bytes} of a checkpoint."""
        return {"pvb": geometry.blocks * 8 * -(-geometry.pages_per_block // 64)}

    def save(self):
        return {"pvb": <const uint8_t[:self.n_words * 8]> <uint8_t*> self.bits}

    def counts_from_pages(self, sections, ends):
        pages = numpy.arange(64 * self.words_a_block) < numpy.asarray(ends)[:, None]
        return {"pvb": numpy.packbits(pages, axis=1, bitorder="little").tobytes()}

    def take_named(self, bits):
        self.load({"pvb": bits.view(numpy.uint8)})
        return ""

    cdef int forget(self, uint32_t block) except -1 nogil:
        memset(self.bits + <uint64_t> block * self.words_a_block, 0, self.words_a_block * 8)
        return self.victims.set_count(block, 0)

    def reset(self):
        """Nothing is live, nothing is a candidate."""
        memset(self.bits, 0, self.n_words * 8)
        self.victims.clear()

    def load(self, sections):
        cdef const uint8_t[::1] saved = sections["pvb"]
        cdef uint32_t block, odd = self.pages_per_block & 63
        self.reset()
        if <uint64_t> saved.shape[0] != self.n_words * 8:
            raise ValueError(f"pvb section of {saved.shape[0]} bytes: {self.n_words * 8} are needed")
        memcpy(self.bits, &saved[0], self.n_words * 8)
        for block in range(self.ssd.nand.blocks):
            self.victims.set_count(block, self.bits_of(block))
            if odd and self.bits[<uint64_t> (block + 1) * self.words_a_block - 1] >> odd:
                raise ValueError(f"block {block}: live pages beyond its {self.pages_per_block}")

    @cython.final
    cdef uint32_t bits_of(self, uint32_t block) noexcept nogil:
        """The number of live pages of a block, counted from its bits."""
        cdef uint32_t w, n = 0
        for w in range(self.words_a_block):
            n += popcount64(self.bits[<uint64_t> block * self.words_a_block + w])
        return n

    def tables(self):
        cdef uint64_t pages = <uint64_t> self.ssd.nand.blocks * self.pages_per_block
        return {"pvb": ((pages + 7) // 8, self.n_words * 8)}

    def check(self):
        """The count of a block is the number of its bits."""
        cdef uint32_t block
        return [f"block {block}: BVC {self.victims.valid[block]} but {self.bits_of(block)} bits in the PVB"
                for block in range(self.ssd.nand.blocks) if self.bits_of(block) != self.victims.valid[block]]
