"""Gecko entries (N. Dayan et al., GeckoFTL, SIGMOD 2016, section 3): which pages of a block are invalid.

An entry is a key and a piece of a block's bitmap, 1 for invalid. Entry-partitioning (section 3.3) cuts the bitmap of a
block into ``parts`` pieces, each an entry of its own. The key is the piece's *slot*, block * parts + piece, above a
flag: ERASED, the erase flag. The block's first piece carries it for all of them, so an erase is one entry however many
pieces there are.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

from flashfs.errors import BindError

PART_BITS = 32  #: bits of a block's bitmap in an entry by default: as many as the key has (section 3.3)


def parts_for(pages_per_block, parts=0):
    """Entries a block: ``parts``; 0: as many as keep the bitmap of each at the size of its key."""
    return min(parts or max(1, pages_per_block // PART_BITS), pages_per_block)


@cython.final
cdef class Layout:
    """How blocks of so many pages are cut into ``parts``, on a chip of ``blocks``."""

    def __cinit__(self, uint32_t blocks, uint32_t pages_per_block, uint32_t parts):
        self.pages_per_block = pages_per_block
        self.chunk_pages = (pages_per_block + parts - 1) // parts
        self.parts = (pages_per_block + self.chunk_pages - 1) // self.chunk_pages
        self.chunk_bytes = (self.chunk_pages + 7) // 8
        self.entry_bytes = KEY_BYTES + self.chunk_bytes
        if <uint64_t> blocks * self.parts >= <uint64_t> 1 << (32 - FLAG_BITS):
            raise BindError(f"{blocks} blocks in {self.parts} parts each: a key of Logarithmic Gecko has "
                            f"{32 - FLAG_BITS} bits for that")

    cdef uint32_t slot(self, uint32_t block, uint32_t page) noexcept nogil:
        return block * self.parts + page // self.chunk_pages


cdef uint32_t lower(const uint8_t* at, uint32_t n, uint32_t entry_bytes, uint32_t slot) noexcept nogil:
    """The index of the first of ``n`` ascending entries whose slot is at least ``slot``."""
    cdef uint32_t low = 0, high = n, middle
    while low < high:
        middle = (low + high) // 2
        if slot_of(at + <uint64_t> middle * entry_bytes) < slot:
            low = middle + 1
        else:
            high = middle
    return low


cdef bint gather(Layout layout, const uint8_t* at, uint32_t n, uint32_t block, uint64_t* words) noexcept nogil:
    """OR the invalid pages of a block that these ascending entries report into ``words``; returns whether they have its
    erase flag, so that older entries do not count."""
    cdef uint32_t first = block * layout.parts, i, part
    cdef bint erased = False
    cdef const uint8_t* entry
    i = lower(at, n, layout.entry_bytes, first)
    while i < n:
        entry = at + <uint64_t> i * layout.entry_bytes
        if slot_of(entry) >= first + layout.parts:
            break
        part = slot_of(entry) - first
        erased |= key_of(entry) & ERASED
        or_chunk(layout, words, part, entry + KEY_BYTES)
        i += 1
    return erased


cdef int or_chunk(Layout layout, uint64_t* words, uint32_t part, const uint8_t* chunk) noexcept nogil:
    """OR a piece of a bitmap into its place in the whole bitmap; the last piece may be a part of one."""
    cdef uint32_t i, first = part * layout.chunk_pages, n = min(layout.chunk_pages, layout.pages_per_block - first)
    if first & 7:
        for i in range(n):
            if chunk[i >> 3] >> (i & 7) & 1:
                words[(first + i) >> 6] |= <uint64_t> 1 << ((first + i) & 63)
        return 0
    for i in range((n + 7) // 8):
        (<uint8_t*> words)[(first >> 3) + i] |= chunk[i]
    return 0


cdef bint take_chunk(Layout layout, const uint64_t* words, uint32_t part, uint8_t* chunk) noexcept nogil:
    """The inverse: copy a piece out; returns whether any bit in it is set."""
    cdef uint32_t i, first = part * layout.chunk_pages, n = min(layout.chunk_pages, layout.pages_per_block - first)
    cdef bint some = False
    memset(chunk, 0, layout.chunk_bytes)
    if first % 8 == 0:                      # then they are the same bytes: words are little-endian
        memcpy(chunk, <const uint8_t*> words + first // 8, (n + 7) // 8)
        if n % 8:
            chunk[n // 8] &= <uint8_t> ((1 << (n % 8)) - 1)
        for i in range(layout.chunk_bytes):
            some |= chunk[i] != 0
        return some
    for i in range(n):
        if words[(first + i) >> 6] >> ((first + i) & 63) & 1:
            chunk[i >> 3] |= <uint8_t> (1 << (i & 7))
            some = True
    return some


@cython.final
cdef class EntryList:
    """Entries in ascending order, in the format of a page of a run: the buffer of section 3."""

    def __cinit__(self, Layout layout not None, uint32_t room):
        self.layout = layout
        self.room = room
        self.at = <uint8_t*> malloc(<uint64_t> room * layout.entry_bytes)
        if self.at == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.at)

    cdef int clear(self) noexcept nogil:
        self.n = self.last = 0
        return 0

    cdef uint32_t first_from(self, uint32_t slot) noexcept nogil:
        return lower(self.at, self.n, self.layout.entry_bytes, slot)

    cdef uint8_t* open_at(self, uint32_t slot, uint32_t i) except NULL nogil:
        """Insert a blank entry at place ``i``."""
        cdef uint32_t size = self.layout.entry_bytes, key = slot << FLAG_BITS
        cdef uint8_t* entry = self.at + <uint64_t> i * size
        if self.n == self.room:
            with gil:
                raise RuntimeError(f"the buffer of Logarithmic Gecko is full: block {slot // self.layout.parts} was "
                                   "reported, and no room was made for it")
        memmove(entry + size, entry, <uint64_t> (self.n - i) * size)
        memset(entry, 0, size)
        memcpy(entry, &key, 4)
        self.n += 1
        return entry

    cdef bint set_invalid(self, uint32_t block, uint32_t page) except -1 nogil:
        """Algorithm 1; returns whether this is new to the list."""
        cdef uint32_t slot = self.layout.slot(block, page), bit = page % self.layout.chunk_pages
        cdef uint8_t* entry = self.at + <uint64_t> self.last * self.layout.entry_bytes
        if self.last >= self.n or slot_of(entry) != slot:
            self.last = self.first_from(slot)
            entry = self.at + <uint64_t> self.last * self.layout.entry_bytes
            if self.last == self.n or slot_of(entry) != slot:
                entry = self.open_at(slot, self.last)
        if entry[KEY_BYTES + (bit >> 3)] >> (bit & 7) & 1:
            return False
        entry[KEY_BYTES + (bit >> 3)] |= <uint8_t> (1 << (bit & 7))
        return True

    cdef int set_erased(self, uint32_t block) except -1 nogil:
        """Algorithm 2: nothing of the block is invalid, whatever older entries say."""
        cdef uint32_t slot = block * self.layout.parts, key = slot << FLAG_BITS | ERASED
        self.drop(block)
        memcpy(self.open_at(slot, self.first_from(slot)), &key, 4)
        return 0

    cdef int drop(self, uint32_t block) noexcept nogil:
        """Remove the entries of a block."""
        cdef uint32_t size = self.layout.entry_bytes, slot = block * self.layout.parts
        cdef uint32_t first = self.first_from(slot), end = self.first_from(slot + self.layout.parts)
        memmove(self.at + <uint64_t> first * size, self.at + <uint64_t> end * size, <uint64_t> (self.n - end) * size)
        self.n -= end - first
        self.last = 0
        return 0
