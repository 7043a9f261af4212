# distutils: language = c++
"""The pages that a recovery found, 16 bytes each, put in the order of LPAs; those of one LPA the newest last.

They are found block by block. They are put in order in place: first into buckets of neighbouring LPAs that fit the
processor's cache, then each bucket by a radix sort with a second buffer of its size. So it takes the memory of one
bucket more, and is done in two passes through memory.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.blocks.pool cimport FLAG_MOVED, MOVES_MASK, MOVES_SHIFT

cdef extern from "<algorithm>" namespace "std" nogil:
    void stable_sort(Entry* first, Entry* last, bint (*less)(const Entry&, const Entry&) noexcept nogil)

cdef enum:
    BUCKET = 1 << 15         # entries that a bucket should hold: 512 KiB
    BUCKET_MOST = 1 << 20    # ... and that are sorted with a second buffer
    BUCKETS_MOST = 1 << 12
    DIGIT = 9                # bits of the radix sort's
    FEW = 32                 # copies of one LPA that are sorted by insertion

cdef uint64_t MEMORY_MOST = (<uint64_t> 17 << 27)  # bytes: what 2^27 pages take, and those of a request more


cdef bint by_key(const Entry& a, const Entry& b) noexcept nogil:
    return a.key < b.key

cdef bint by_seq(const Entry& a, const Entry& b) noexcept nogil:
    return entry_seq(&a) < entry_seq(&b)


cdef bint is_earlier(const Entry* a, const Entry* b, const uint64_t* orders, uint32_t pages_per_block) noexcept nogil:
    """By sequence number, then by when the block was opened."""
    cdef uint64_t order_a = orders[a.ppa // pages_per_block], order_b = orders[b.ppa // pages_per_block]
    if entry_seq(a) != entry_seq(b):
        return entry_seq(a) < entry_seq(b)
    if order_a != order_b:
        return order_a < order_b
    return a.ppa < b.ppa

cdef bint is_older(const Entry* a, const Entry* b, const uint64_t* orders, uint32_t pages_per_block) noexcept nogil:
    """Of two pages of one LPA. If they have one sequence number, one is a copy of the other: the one that was moved
    more often. The order of their blocks does not tell: cleaning may have had its block open for longer."""
    cdef uint8_t ahead = (entry_flags(b) >> MOVES_SHIFT) - (entry_flags(a) >> MOVES_SHIFT) & MOVES_MASK
    if entry_seq(a) == entry_seq(b):
        if (entry_flags(a) ^ entry_flags(b)) & FLAG_MOVED:
            return not entry_flags(a) & FLAG_MOVED
        if ahead:
            return ahead <= MOVES_MASK // 2
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
    """``add`` all, ``sort`` once, then go through them. ``orders`` says when each block was opened."""

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
        """The first entry of that key or a larger one."""
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
        """All keys are below ``keys``."""
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
        """Entries whose keys differ in the lowest ``bits`` only."""
        cdef uint64_t i = 0, k
        if n > self.scratch_n:
            stable_sort(first, first + n, by_key)  # a few LPAs that were written again and again
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
        """Those of one key, the newest last. The number of moves runs over, so it tells the newer of two copies only if
        not too many lie between them: they are put in the order of their blocks first, which is nearly right."""
        if n > FEW:
            stable_sort(first, first + n, by_seq)
        insert_each(first, n, self.orders, self.pages_per_block, is_earlier)
        return insert_each(first, n, self.orders, self.pages_per_block, is_older)


cdef int to_buckets(Entry* at, uint64_t n, int low, uint64_t* ends, uint64_t buckets) noexcept nogil:
    """Put the entries in the order of ``key >> low``, in place. ``ends`` (2 x buckets + 1 zeros) gets each bucket's."""
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
            while k != i:                  # carry it home, take up what lies there, and so on until one belongs here
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
    """The same for Python: [(seq, flags, key, PPA)] as they are found, in the order in which a recovery goes through
    them. ``orders`` of the blocks; beyond ``memory_most`` bytes they lie in a file."""
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
