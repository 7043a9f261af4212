"""The primary table of a page map by hashing, and its hasher (J. Shin, SNU thesis, 2020, 2.2, 3.2 and 3.3).

An entry has the number of the hash function, out of 63, that chose the LPA's place (HID), and the page within that
place (PPID). The scheme defines what a place is: a physical block or a virtual one.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

cdef extern from "hashes.h" nogil:
    void md5_of_u64(uint64_t message, uint64_t* out)
    void mix_of_u64(uint64_t message, uint64_t* out)
    uint32_t shifted_mod(const uint64_t* digest, int hid, uint32_t n)
    void shifted_mods(const uint64_t* digest, int most, uint32_t n, uint32_t* out)
    void first_and_step(const uint64_t* digest, uint32_t n, const uint32_t* primes, uint32_t* first, uint32_t* step)
    uint32_t short_mod(uint64_t x, uint32_t n, uint64_t inverse)

cdef extern from "huge.h" nogil:
    void zero_memory(void* at, size_t bytes)
    void copy_into_zeros(void* into, const void* of, size_t bytes)

cdef extern from *:
    int popcount "__builtin_popcountll"(uint64_t) nogil


cdef uint64_t zeros_from(const uint8_t* of, uint64_t at, uint64_t end) noexcept nogil:
    """The first nonzero byte from ``at`` on, or one fewer than 64 bytes before it; ``end`` if all are 0."""
    cdef uint64_t[8] words
    cdef uint64_t any_set = 0
    cdef int i
    while at + sizeof(words) <= end:
        memcpy(words, of + at, sizeof(words))
        for i in range(8):
            any_set |= words[i]
        if any_set:
            return at
        at += sizeof(words)
    while at < end and of[at] == 0:
        at += 1
    return min(at, end)


@cython.final
cdef class PackedTable:
    """``lpas`` entries without gaps: 6 bits of HID, and as many bits of PPID as the pages of a block need."""

    def __cinit__(self, uint64_t lpas, uint32_t pages_per_block):
        self.lpas = lpas
        self.ppid_bits = (pages_per_block - 1).bit_length()
        self.ppid_mask = (<uint32_t> 1 << self.ppid_bits) - 1
        self.entry_bits = HID_BITS + self.ppid_bits
        self.bytes = (lpas * self.entry_bits + 7) // 8
        self.packed = <uint8_t*> calloc(self.bytes + 8, 1)  # + 8: an entry is read as part of eight bytes
        if self.packed == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.packed)

    cdef int clear(self) noexcept nogil:
        zero_memory(self.packed, self.bytes + 8)
        return 0

    cdef uint32_t next_used(self, uint32_t lpa, uint32_t end) noexcept nogil:
        """The first LPA from ``lpa`` on whose entry is not 0, or ``end``. After an entry of 0 in a word of zeros it
        skips to the entry with the next nonzero byte."""
        cdef uint64_t bit, word
        while lpa < end:
            bit = <uint64_t> lpa * self.entry_bits
            memcpy(&word, self.packed + (bit >> 3), 8)
            word >>= bit & 7
            if word & ((<uint64_t> 1 << self.entry_bits) - 1):
                return lpa
            if word:
                lpa += 1
            else:
                bit = 8 * zeros_from(self.packed, (bit >> 3) + 8, self.bytes)
                lpa = <uint32_t> min(<uint64_t> end, max(lpa + <uint64_t> 1, bit // self.entry_bits))
        return end

    cdef uint64_t count_mapped(self) noexcept nogil:
        """Entries whose HID is not 0. Counts all entries that lie in a word at once: adding all ones to a HID carries
        out of it unless it is 0."""
        cdef uint32_t at_once = 57 // self.entry_bits if self.ppid_bits else 1, i
        cdef uint64_t fields = 0, carries = 0, n = 0, lpa = 0, bit = 0, word
        for i in range(at_once):
            fields |= (<uint64_t> HIDS << self.ppid_bits) << (i * self.entry_bits)
            carries |= <uint64_t> 1 << ((i + 1) * self.entry_bits)
        while lpa + at_once <= self.lpas:
            memcpy(&word, self.packed + (bit >> 3), 8)
            n += popcount((((word >> (bit & 7)) & fields) + fields) & carries)
            lpa += at_once
            bit += at_once * self.entry_bits
        while lpa < self.lpas:
            n += self.entry(<uint32_t> lpa) >> self.ppid_bits != 0
            lpa += 1
        return n

    def mapped(self):
        """How many LPAs have a HID."""
        return self.count_mapped()

    def hid_counts(self):
        """How many LPAs have each HID, 0 to 63."""
        cdef uint32_t lpa = self.next_used(0, <uint32_t> self.lpas)
        cdef uint64_t[64] counts
        memset(counts, 0, sizeof(counts))
        while lpa < self.lpas:
            counts[self.entry(lpa) >> self.ppid_bits] += 1
            lpa = self.next_used(lpa + 1, <uint32_t> self.lpas)
        counts[0] = self.lpas - sum(counts[hid] for hid in range(1, 64))
        return [counts[hid] for hid in range(64)]

    def save(self):
        """The table's bytes, for a checkpoint."""
        return <const uint8_t[:self.bytes]> self.packed

    def load(self, saved, uint32_t pages_per_block):
        """The inverse of ``save``. ValueError for a table of another size, or a PPID beyond the block."""
        cdef const uint8_t[::1] section = saved
        cdef uint32_t lpa, ppid
        if <uint64_t> section.shape[0] != self.bytes:
            raise ValueError(f"primary table of {section.shape[0]} bytes: {self.bytes} are needed")
        self.clear()
        copy_into_zeros(self.packed, &section[0], self.bytes)
        lpa = self.next_used(0, <uint32_t> self.lpas)
        while lpa < self.lpas:
            ppid = self.entry(lpa) & self.ppid_mask
            if ppid >= pages_per_block:
                raise ValueError(f"LPA {lpa} has PPID {ppid}, beyond its block")
            lpa = self.next_used(lpa + 1, <uint32_t> self.lpas)


@cython.final
cdef class Hasher:
    """The places of an LPA, 0 to ``places`` - 1, by HID 1 to 63.

    It drops ``shift`` bits of the LPA, so 2^shift neighbours, a *group*, have the same candidates (3.3). With several
    ``lanes`` those neighbours are dealt out ``stripe`` pages at a time to as many groups. All candidates of a group
    have one residue modulo ``lanes``, and no two of these groups have the same: if place p is on die p modulo
    ``lanes``, sequential writes are spread over the dies.

    The candidates are *distinct*, as far as there are places: of a 128-bit digest of the group, one half gives the
    first place and the other the step to the next. Otherwise they are that digest shifted by HID bits, as in the
    thesis."""

    def __cinit__(self, uint32_t places, uint32_t shift, bint md5, bint distinct, uint32_t lanes=1,
                  uint32_t stripe=1):
        self.places = places
        self.shift = shift
        self.md5 = md5
        self.distinct = distinct
        self.lanes = lanes
        self.stripe = min(stripe, <uint32_t> 1 << shift)
        self.rows = (<uint32_t> 1 << shift) // self.stripe
        self.slots = places // lanes
        if self.slots == 0:
            raise ValueError(f"{places} places for {lanes} lanes")
        for i, prime in enumerate(prime_factors(self.slots)):
            self.primes[i] = prime         # nine at most: the product of the first ten is beyond 32 bits
        self.digest_key = self.candidates_key = <uint64_t> -1
        self.inverse = 1 + <uint64_t> -1 // self.slots if self.slots < 1 << 26 else 0
        self.known = <KnownHash*> malloc(KNOWN * sizeof(KnownHash))
        if self.known == NULL:
            raise MemoryError
        memset(self.known, 0xFF, KNOWN * sizeof(KnownHash))

    def __dealloc__(self):
        free(self.known)

    @property
    def heap_bytes(self):
        """Bytes of the cache of hashes in this process: a controller has no such table."""
        return KNOWN * sizeof(KnownHash)

    cdef uint64_t group_of(self, uint32_t lpa) noexcept nogil:
        """A number that all LPAs of a group share; modulo ``lanes`` it is the group's lane."""
        cdef uint32_t unit
        if self.lanes == 1:
            return lpa >> self.shift
        unit = lpa // self.stripe
        return <uint64_t> (unit // self.lanes // self.rows) * self.lanes + unit % self.lanes

    cdef uint32_t place_of(self, uint32_t lpa, int hid) noexcept nogil:
        cdef uint64_t group = self.group_of(lpa)
        cdef uint32_t slot = self.slot_of(group, hid)
        if self.lanes == 1:
            return slot
        # each row of groups begins at another residue, so a hot offset common to all rows is not on one die
        return slot * self.lanes + <uint32_t> ((group + group // self.lanes) % self.lanes)

    cdef uint32_t slot_of(self, uint64_t group, int hid) noexcept nogil:
        """The place's index among those of its lane."""
        self.find_digest(group)
        if self.distinct:
            return short_mod(self.first + <uint64_t> hid * self.step, self.slots, self.inverse)
        return shifted_mod(self.digest, hid, self.slots)

    cdef int find_digest(self, uint64_t group) noexcept nogil:
        cdef KnownHash* known = self.known + (group & (KNOWN - 1))
        if group == self.digest_key:
            return 0
        self.digest_key = group
        if not self.distinct:
            return self.hash_group(group)
        if known.group != group:
            self.hash_group(group)
            known.group = group
            first_and_step(self.digest, self.slots, self.primes, &known.first, &known.step)
        self.first = known.first
        self.step = known.step
        return 0

    cdef int hash_group(self, uint64_t group) noexcept nogil:
        if self.md5:
            md5_of_u64(group, self.digest)
        else:
            mix_of_u64(group, self.digest)
        return 0

    cdef int find(self, uint32_t lpa) noexcept nogil:
        """Put the LPA's 63 places into ``candidates``."""
        cdef uint64_t group = self.group_of(lpa), at
        cdef uint32_t hid, residue
        if group == self.candidates_key:
            return 0
        self.candidates_key = group
        self.find_digest(group)
        if self.distinct:
            at = self.first
            for hid in range(1, HIDS + 1):
                at += self.step
                at = at - self.slots if at >= self.slots else at
                self.candidates[hid] = <uint32_t> at
        else:
            shifted_mods(self.digest, HIDS, self.slots, self.candidates)
        if self.lanes > 1:
            residue = <uint32_t> ((group + group // self.lanes) % self.lanes)
            for hid in range(1, HIDS + 1):
                self.candidates[hid] = self.candidates[hid] * self.lanes + residue
        return 0

    cdef uint32_t hid_of(self, uint32_t lpa, uint32_t place) noexcept nogil:
        """The first HID whose candidate is ``place``; 0 if there is none."""
        cdef uint32_t hid
        self.find(lpa)
        for hid in range(1, HIDS + 1):
            if self.candidates[hid] == place:
                return hid
        return 0

    def group(self, uint32_t lpa):
        return self.group_of(lpa)

    def place(self, uint32_t lpa, int hid):
        return self.place_of(lpa, hid)


def prime_factors(uint32_t n):
    """The prime factors of n, ascending, each once."""
    found = []
    prime = 2
    while prime * prime <= n:
        if n % prime == 0:
            found.append(prime)
            while n % prime == 0:
                n //= prime
        prime += 1
    return [*found, n] if n > 1 else found


def hash_place(uint64_t key, int hid, uint32_t places, bint md5, bint distinct=False):
    """The hash functions by themselves: a group's place with one lane. For tests and for drawing how they spread."""
    cdef Hasher hasher = Hasher(places, 0, md5, distinct)
    return hasher.slot_of(key, hid)
