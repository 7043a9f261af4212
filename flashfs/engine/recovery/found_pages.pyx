# distutils: language = c++
"""The pages that a recovery found, 16 bytes each, sorted by LPA; the newest of an LPA comes last.

They are found block by block and sorted in place: first into buckets of neighbouring LPAs that fit the processor's
cache, then each bucket by a radix sort with a second buffer of its size. So the sort needs only one bucket of extra
memory, and two passes through memory.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.blocks.pool cimport FLAG_MOVED, MOVES_MASK, MOVES_SHIFT

cdef extern from "<algorithm>" namespace "std" nogil:
    void stable_sort(Entry* first, Entry* last, bint (*less)(const Entry&, const Entry&) noexcept nogil)

cdef enum:
    BUCKET = 1 << 15         # intended entries per bucket: 512 KiB
    BUCKET_MOST = 1 << 20    # the most entries of a bucket that is sorted with a second buffer
    BUCKETS_MOST = 1 << 12
    DIGIT = 9                # bits of a digit of the radix sort
    FEW = 32                 # copies of one LPA that are sorted by insertion
    INVERTED = 2             # moves between two copies of which the newer may be in a block that was opened earlier

cdef uint64_t MEMORY_MOST = (<uint64_t> 17 << 27)  # bytes: for 2^27 pages, and those of a request


cdef bint by_key(const Entry& a, const Entry& b) noexcept nogil:
    return a.key < b.key

cdef bint by_seq(const Entry& a, const Entry& b) noexcept nogil:
    return entry_seq(&a) < entry_seq(&b)


cdef bint is_earlier(const Entry* a, const Entry* b, const uint64_t* orders, uint32_t pages_per_block) noexcept nogil:
    """By sequence number, then by the order of the block, then by PPA."""
    cdef uint64_t order_a = orders[a.ppa // pages_per_block], order_b = orders[b.ppa // pages_per_block]
    if entry_seq(a) != entry_seq(b):
        return entry_seq(a) < entry_seq(b)
    if order_a != order_b:
        return order_a < order_b
    return a.ppa < b.ppa

cdef bint is_older(const Entry* a, const Entry* b, const uint64_t* orders, uint32_t pages_per_block) noexcept nogil:
    """Of two pages of one LPA. With equal sequence numbers, one is a copy of the other: the one that was moved once or
    twice more is newer. The order of their blocks does not decide then: cleaning may have opened its block earlier.
    Otherwise it does, for the count begins anew after 16, and a dead page may stay in a free block for many moves."""
    cdef uint8_t ahead = (entry_flags(b) >> MOVES_SHIFT) - (entry_flags(a) >> MOVES_SHIFT) & MOVES_MASK
    if entry_seq(a) == entry_seq(b):
        if (entry_flags(a) ^ entry_flags(b)) & FLAG_MOVED:
            return not entry_flags(a) & FLAG_MOVED
        if 0 < ahead <= INVERTED or ahead > MOVES_MASK - INVERTED:
            return ahead <= INVERTED
    return is_earlier(a, b, orders, pages_per_block)


cdef int insert_each(Entry* first, uint64_t n, const uint64_t* orders, uint32_t pages_per_block,
                     bint (*less)(const Entry*, const Entry*, const uint64_t*, uint32_t) noexcept nogil) noexcept nogil:
    """An insertion sort."""
    cdef uint64_t i, k
    cdef Entry one
    for i in range(1, n):
        one = first[i]
        k = i
        while k and less(&one, first + k - 1, orders, pages_per_block):
            first[k] = first[k - 1]
            k -= 1
        first[k] = one
    return 0


@cython.final
cdef class FoundPages:
    """``add`` all, ``sort`` once, then read them in order. ``orders`` has the order of each block."""

    def __cinit__(self, uint32_t pages_per_block, uint64_t memory_most=MEMORY_MOST):
        self.pages_per_block = pages_per_block
        self.records = SpillArray(sizeof(Entry), memory_most)

    def __dealloc__(self):
        free(self.scratch)

    cdef Entry* entry(self, uint64_t i) noexcept nogil:
        return <Entry*> self.records.at + i

    cdef uint64_t count(self) noexcept nogil:
        return self.records.n

    def number(self):
        return self.records.n

    cdef int add(self, uint64_t word, uint32_t key, uint32_t ppa) except -1 nogil:
        cdef Entry* entry = <Entry*> self.records.add()
        entry.word = word
        entry.key = key
        entry.ppa = ppa
        return 0

    cdef int drop_last(self) noexcept nogil:
        self.records.n -= 1
        return 0

    cdef int clear(self) noexcept nogil:
        self.records.n = 0
        return 0

    cdef int release(self) noexcept:
        free(self.scratch)
        self.scratch = NULL
        self.scratch_n = 0
        return self.records.release()

    cdef uint64_t first_of(self, uint64_t key) noexcept nogil:
        """Index of the first entry with that key or a larger one."""
        cdef uint64_t low = 0, high = self.records.n, middle
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).key < key:
                low = middle + 1
            else:
                high = middle
        return low

    # --- sorting

    cdef int sort(self, uint64_t keys) except -1 nogil:
        """Sort all entries; all keys are below ``keys``. MemoryError if there is no memory for it."""
        cdef uint64_t n = self.records.n, first, end, largest = 0, i, buckets
        cdef int low = 0
        cdef uint64_t* ends
        while (keys >> low) + 1 > BUCKETS_MOST or (low < 31 and n >> 15 < (keys >> low) // 2):
            low += 1
        buckets = (keys >> low) + 1
        ends = <uint64_t*> calloc(2 * buckets + 1, 8)
        if ends == NULL:
            with gil:
                raise MemoryError
        try:
            to_buckets(self.entry(0), n, low, ends, buckets)
            first = 0
            for i in range(buckets):
                if ends[i] - first <= BUCKET_MOST:
                    largest = max(largest, ends[i] - first)
                first = ends[i]
            if largest > self.scratch_n:
                free(self.scratch)
                self.scratch_n = 0
                self.scratch = <Entry*> malloc(largest * sizeof(Entry))
                if self.scratch == NULL:
                    with gil:
                        raise MemoryError
                self.scratch_n = largest
            first = 0
            for i in range(buckets):
                end = ends[i]
                self.sort_bucket(self.entry(first), end - first, low)
                first = end
        finally:
            free(ends)
        return 0

    cdef int sort_bucket(self, Entry* first, uint64_t n, int bits) noexcept nogil:
        """Sort entries whose keys differ only in the lowest ``bits``."""
        cdef uint64_t i = 0, k
        if n > self.scratch_n:
            stable_sort(first, first + n, by_key)  # a few LPAs that were written very often
        else:
            by_digits(first, self.scratch, n, bits)
        while i < n:
            k = i + 1
            while k < n and first[k].key == first[i].key:
                k += 1
            if k - i > 1:
                self.sort_group(first + i, k - i)
            i = k
        return 0

    cdef int sort_group(self, Entry* first, uint64_t n) noexcept nogil:
        """Sort the entries of one key, the newest last. The count of moves wraps, so it identifies the newer of two
        copies only if they are few moves apart: entries are sorted by block order first, which is nearly right."""
        if n > FEW:
            stable_sort(first, first + n, by_seq)
        insert_each(first, n, self.orders, self.pages_per_block, is_earlier)
        return insert_each(first, n, self.orders, self.pages_per_block, is_older)


cdef int to_buckets(Entry* at, uint64_t n, int low, uint64_t* ends, uint64_t buckets) noexcept nogil:
    """Sort the entries by ``key >> low``, in place. ``ends`` (2 x buckets + 1 zeros) gets the end of each bucket."""
    cdef uint64_t i, k, sum = 0
    cdef uint64_t* next = ends + buckets
    cdef Entry one, other
    for i in range(n):
        ends[at[i].key >> low] += 1
    for i in range(buckets):
        next[i] = sum
        sum += ends[i]
        ends[i] = sum
    for i in range(buckets):
        while next[i] < ends[i]:
            one = at[next[i]]
            k = one.key >> low
            while k != i:                  # swap it into its bucket, until one belongs here
                other = at[next[k]]
                at[next[k]] = one
                next[k] += 1
                one = other
                k = one.key >> low
            at[next[i]] = one
            next[i] += 1
    return 0


cdef int by_digits(Entry* at, Entry* other, uint64_t n, int bits) noexcept nogil:
    """A stable radix sort by the lowest ``bits`` of the key."""
    cdef uint32_t[(1 << DIGIT) + 1] starts
    cdef uint64_t i
    cdef uint32_t digit
    cdef int shift = 0
    cdef Entry* a = at
    cdef Entry* b = other
    while shift < bits:
        memset(starts, 0, sizeof(starts))
        for i in range(n):
            starts[((a[i].key >> shift) & ((1 << DIGIT) - 1)) + 1] += 1
        for i in range(1 << DIGIT):
            starts[i + 1] += starts[i]
        for i in range(n):
            digit = (a[i].key >> shift) & ((1 << DIGIT) - 1)
            b[starts[digit]] = a[i]
            starts[digit] += 1
        a, b = b, a
        shift += DIGIT
    if a != at:
        memcpy(at, a, n * sizeof(Entry))
    return 0


def in_order(rows, const uint64_t[::1] orders not None, uint32_t pages_per_block, uint64_t keys,
             uint64_t memory_most=MEMORY_MOST):
    """The same for Python: ``rows`` of (seq, flags, key, PPA), as found; returns them in the order in which a recovery
    processes them. ``orders``: of the blocks. Beyond ``memory_most`` bytes, entries are in a file."""
    cdef FoundPages entries = FoundPages(pages_per_block, memory_most)
    cdef uint64_t i
    cdef Entry* entry
    for seq, flags, key, ppa in rows:
        entries.add(<uint64_t> seq | (<uint64_t> flags << 56), key, ppa)
    entries.orders = &orders[0]
    with nogil:
        entries.sort(keys)
    found = []
    for i in range(entries.count()):
        entry = entries.entry(i)
        found.append((entry_seq(entry), entry_flags(entry), entry.key, entry.ppa))
    return found
