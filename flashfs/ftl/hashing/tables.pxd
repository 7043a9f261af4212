# The packed table and the hasher of the page maps by hashing; see tables.pyx.
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    HIDS = 63                # 1..63; the scheme defines what 0 means
    HID_BITS = 6
    KNOWN = 4096             # groups whose hash is remembered

cdef struct KnownHash:
    uint64_t group
    uint32_t first, step


@cython.final
cdef class PackedTable:
    cdef readonly uint64_t lpas, bytes
    cdef readonly uint32_t entry_bits, ppid_bits
    cdef uint32_t ppid_mask
    cdef uint8_t* packed

    cdef inline uint32_t entry(self, uint32_t lpa) noexcept nogil:
        """HID << ppid_bits | PPID."""
        cdef uint64_t bit = <uint64_t> lpa * self.entry_bits, word
        memcpy(&word, self.packed + (bit >> 3), 8)
        return <uint32_t> (word >> (bit & 7)) & ((<uint32_t> 1 << self.entry_bits) - 1)

    cdef inline int set_entry(self, uint32_t lpa, uint32_t hid, uint32_t ppid) noexcept nogil:
        cdef uint64_t bit = <uint64_t> lpa * self.entry_bits, word
        cdef uint64_t mask = ((<uint64_t> 1 << self.entry_bits) - 1) << (bit & 7)
        memcpy(&word, self.packed + (bit >> 3), 8)
        word = (word & ~mask) | (<uint64_t> (hid << self.ppid_bits | ppid) << (bit & 7))
        memcpy(self.packed + (bit >> 3), &word, 8)
        return 0

    cdef int clear(self) noexcept nogil
    cdef uint32_t next_used(self, uint32_t lpa, uint32_t end) noexcept nogil
    cdef uint64_t count_mapped(self) noexcept nogil


@cython.final
cdef class Hasher:
    cdef readonly uint32_t places, shift, lanes, stripe
    cdef readonly bint md5, distinct
    cdef uint32_t rows, slots
    cdef uint32_t[16] primes               # the prime factors of ``slots``, then 0
    cdef uint64_t digest_key
    cdef uint64_t[2] digest
    cdef uint32_t first, step              # from that digest, if candidates are distinct
    cdef KnownHash* known                  # cache of hashes, by the group's low bits; a controller has a circuit
    cdef uint64_t inverse                  # of ``slots``, scaled to 64 bits; 0 if products with it are too long
    cdef uint64_t candidates_key
    cdef uint32_t[64] candidates           # [1..63], of the group of the last ``find``
    cdef uint64_t group_of(self, uint32_t lpa) noexcept nogil
    cdef uint32_t place_of(self, uint32_t lpa, int hid) noexcept nogil
    cdef uint32_t slot_of(self, uint64_t group, int hid) noexcept nogil
    cdef int find_digest(self, uint64_t group) noexcept nogil
    cdef int hash_group(self, uint64_t group) noexcept nogil
    cdef int find(self, uint32_t lpa) noexcept nogil
    cdef uint32_t hid_of(self, uint32_t lpa, uint32_t place) noexcept nogil
