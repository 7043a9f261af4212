"""An array of 64-bit words in battery-backed NVRAM, with checksums that prove it consistent.

A scheme with a battery-backed cache keeps the cache here continuously, because a killed process has no time to save
it. A power cut and the death of the process leave the words as they were. After the death of the host some pages of the
region may have their content of the last sync, so the words may be a mixture that never existed. ``proves`` tells the
two apart: the region's head holds the sum over all words of a hash of the word's number and value, updated with each
word that is stored.

Two sums are kept, used in turn: that of the words as they are, and that of what they are about to be. ``put`` stores
the new sum first, then the word, so whatever prefix of these stores a cut leaves, the words have one of the two sums. A
single sum, stored after the word, would disprove sound words whenever the cut fell between the two.

The proof says that the words are all of one moment since the last durable sync. If the host did not die, that is the
end, or one word before it. After the host's death it may be earlier: keep a word that only rises, such as a sequence
number, and compare it with what flash holds.
"""
from libc.stdint cimport int64_t, uint64_t

from nandimg._nand cimport NVRAM_WORD, Nand

from flashfs.errors import CorruptError

cdef enum:
    STAMP_AT = 0             # the head: whose the region is; then the two sums; zeros up to a line
    SUMS_AT = 8
    HEAD_BYTES = 64
    WORD_BITS = 64

cdef uint64_t[64] ZEROS


def nvram_bytes(uint64_t words):
    """Bytes of NVRAM that a battery of so many words takes, for a Scheme's ``nvram``."""
    return HEAD_BYTES + words * NVRAM_WORD


cdef inline uint64_t hashed(uint64_t index, uint64_t value) noexcept nogil:
    """The hash of one word: those of two pairs of number and value differ in about half of the bits."""
    cdef uint64_t x = value ^ (index + 1) * <uint64_t> 0x9E3779B97F4A7C15
    x = (x ^ x >> 30) * <uint64_t> 0xBF58476D1CE4E5B9
    x = (x ^ x >> 27) * <uint64_t> 0x94D049BB133111EB
    return x ^ x >> 31


cdef class Battery:
    """``words`` 64-bit words, numbered from 0, in the NVRAM region ``name`` of the chip. CorruptError if the chip has
    no such region, or a smaller one. Nothing is stored before ``begin``; nothing may be read or put before ``begin`` or
    a ``proves`` that said yes."""

    def __cinit__(self, Nand nand not None, name, uint64_t words):
        found = nand.region(name)
        need = nvram_bytes(words)
        if found is None or found[1] < need:
            have = "no such region" if found is None else f"{found[1]} bytes"
            raise CorruptError(f"header: NVRAM region {name}: {words} words need {need} bytes: the image has {have}")
        self.nand = nand
        self.name = name
        self.words = words
        self.head_at = found[0]
        self.body_at = self.head_at + HEAD_BYTES
        self.body = NULL

    def begin(self, uint64_t stamp, int cause=0, int64_t t_ns=0):
        """Sets all words to 0, and the region's owner to ``stamp``. A cut in the middle leaves a region that proves
        nothing, or the old one if nothing was changed yet. Returns the virtual end in ns. ValueError if ``stamp`` is 0.
        """
        cdef uint64_t at = 0, n, total = 0, none = 0
        if stamp == 0:
            raise ValueError("a battery's stamp is 0: use any other number")
        with nogil:
            t_ns = self.nand.nvram_store(self.head_at + STAMP_AT, &none, NVRAM_WORD, cause, t_ns)
            while at < self.words:
                n = min(self.words - at, <uint64_t> 64)
                t_ns = self.nand.nvram_store(self.body_at + at * NVRAM_WORD, ZEROS, n * NVRAM_WORD, cause, t_ns)
                at += n
            for at in range(self.words):
                total += hashed(at, 0)
            t_ns = self.nand.nvram_pair(self.head_at + SUMS_AT, total, self.head_at + SUMS_AT + NVRAM_WORD, total,
                                        cause, t_ns)
            t_ns = self.nand.nvram_store(self.head_at + STAMP_AT, &stamp, NVRAM_WORD, cause, t_ns)
            self.body = <const uint64_t*> self.nand.nvram_at(self.body_at, self.words * NVRAM_WORD)
            self.sum = total
            self.turn = 0
        return t_ns

    def proves(self, uint64_t stamp, int cause=0, int64_t t_ns=0):
        """(Whether the region belongs to ``stamp`` and its words are all of one moment, the virtual end in ns). If so,
        they may be read and put."""
        cdef uint64_t at, total = 0
        cdef uint64_t[3] head
        cdef const uint64_t* body
        self.body = NULL
        body = <const uint64_t*> self.nand.nvram_at(self.body_at, self.words * NVRAM_WORD)
        t_ns = self.nand.nvram_load(self.head_at, head, sizeof(head), cause, t_ns)
        if stamp == 0 or head[0] != stamp:
            return False, t_ns
        with nogil:
            for at in range(self.words):
                total += hashed(at, body[at])
        t_ns = self.nand.charge_load(self.body_at, self.words * NVRAM_WORD, cause, t_ns)
        if total != head[1] and total != head[2]:
            return False, t_ns
        self.turn = 1 if total == head[1] else 0  # the next put replaces the other sum
        self.sum = total
        self.body = body
        return True, t_ns

    @property
    def stamp(self):
        """The stamp that the region belongs to; 0: none."""
        return int.from_bytes(self.nand.nvram(self.head_at + STAMP_AT, NVRAM_WORD), "little")

    def restamp(self, uint64_t stamp, int cause=0, int64_t t_ns=0):
        """Gives the words, unchanged, another stamp: that of a new mount. One store of a word."""
        if self.body == NULL or stamp == 0:
            raise ValueError(f"NVRAM region {self.name}: it must be begun or proved, and its stamp not 0")
        return self.nand.nvram_store(self.head_at + STAMP_AT, &stamp, NVRAM_WORD, cause, t_ns)

    cdef int64_t disown(self, int cause) except -1 nogil:
        """Clears the stamp: nothing is proved until the region is begun again, or restamped. One store of a word."""
        cdef uint64_t none = 0
        return self.nand.nvram_store(self.head_at + STAMP_AT, &none, NVRAM_WORD, cause, 0)

    cdef int breach(self, uint64_t first, uint64_t n) except -1 nogil:
        with gil:
            if self.body == NULL:
                raise ValueError(f"NVRAM region {self.name}: neither begun nor proved")
            raise IndexError(f"NVRAM region {self.name}: {n} words from {first}: it has {self.words}")

    cdef uint64_t get(self, uint64_t index) noexcept nogil:
        """The caller checks ``index`` first."""
        return self.body[index]

    cdef int64_t put(self, uint64_t index, uint64_t value, int cause, int64_t t_ns) except -1 nogil:
        """Store one word. It costs two stores, even if the word does not change."""
        cdef uint64_t sums_at = self.head_at + SUMS_AT + self.turn * NVRAM_WORD
        if self.body == NULL or index >= self.words:
            self.breach(index, 1)
        self.sum += hashed(index, value) - hashed(index, self.body[index])
        self.turn ^= 1
        return self.nand.nvram_pair(sums_at, self.sum, self.body_at + index * NVRAM_WORD, value, cause, t_ns)

    cdef int64_t put_range(self, uint64_t first, const uint64_t* values, uint64_t n, int cause,
                           int64_t t_ns) except -1 nogil:
        """Store ``n`` words, one put after the other; those that do not change cost nothing."""
        cdef uint64_t i
        if self.body == NULL or first > self.words or n > self.words - first:
            self.breach(first, n)
        for i in range(n):
            if self.body[first + i] != values[i]:
                t_ns = self.put(first + i, values[i], cause, t_ns)
        return t_ns

    cdef int64_t put_bits(self, uint64_t first, uint64_t n, bint on, int cause, int64_t t_ns) except -1 nogil:
        """Set or clear ``n`` bits from number ``first`` on: bit ``k % 64`` of word ``k / 64``. A put for each word that
        changes."""
        cdef uint64_t index, within, here, mask, old
        while n:
            index = first // WORD_BITS
            within = first % WORD_BITS
            here = min(n, WORD_BITS - within)
            if self.body == NULL or index >= self.words:
                self.breach(index, 1)
            mask = (<uint64_t> -1 >> (WORD_BITS - here)) << within
            old = self.body[index]
            if (old & mask) != (mask if on else 0):
                t_ns = self.put(index, old | mask if on else old & ~mask, cause, t_ns)
            first += here
            n -= here
        return t_ns

    cdef bint bit(self, uint64_t number) noexcept nogil:
        """The caller checks ``number`` first."""
        return self.body[number // WORD_BITS] >> (number % WORD_BITS) & 1

    # The same for Python.

    def word(self, uint64_t index):
        """One word."""
        if self.body == NULL or index >= self.words:
            self.breach(index, 1)
        return self.body[index]

    def content(self):
        """All words, as bytes."""
        if self.body == NULL:
            self.breach(0, self.words)
        return (<const char*> self.body)[:self.words * NVRAM_WORD]

    def put_word(self, uint64_t index, uint64_t value, int cause=0, int64_t t_ns=0):
        """As ``put``; returns the virtual end in ns."""
        return self.put(index, value, cause, t_ns)

    def put_words(self, uint64_t first, const uint64_t[::1] values not None, int cause=0, int64_t t_ns=0):
        """As ``put_range``; returns the virtual end in ns."""
        return self.put_range(first, &values[0] if values.shape[0] else NULL, values.shape[0], cause, t_ns)

    def put_bit_run(self, uint64_t first, uint64_t n, bint on, int cause=0, int64_t t_ns=0):
        """As ``put_bits``; returns the virtual end in ns."""
        return self.put_bits(first, n, on, cause, t_ns)

    def put_many(self, const uint64_t[::1] indices not None, const uint64_t[::1] values not None, int cause=0):
        """Put each of ``values`` at its index in ``indices``; ValueError if the lengths differ. Returns the virtual end
        in ns."""
        cdef Py_ssize_t i
        cdef int64_t t_ns = 0
        if indices.shape[0] != values.shape[0]:
            raise ValueError(f"{indices.shape[0]} indices and {values.shape[0]} values: use as many of each")
        with nogil:
            for i in range(indices.shape[0]):
                t_ns = self.put(indices[i], values[i], cause, t_ns)
        return t_ns
