"""Plays requests on a device in virtual time and measures their latencies.

Open loop: a request arrives when its trace says. Closed loop of depth N: N requests are under way at any time, and the
next arrives when the first of them ends. Requests are handed to the device in the order in which they arrive, so time
never goes back for it.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.blocks.pool cimport CAUSE_GC
from flashfs.engine.device.byte_requests cimport read_bytes, remap_bytes, trim_bytes, write_bytes
from nandimg._nand cimport CAUSES, OP_ERASE, OP_PROGRAM

from flashfs.errors import UncorrectableError, UsageError
from flashfs.replay.request_source import MOVED as MOVED_FLAG
from flashfs.replay.request_source import OPERATIONS

cdef extern from *:
    """
    static inline int top_bit(uint64_t x) { return 63 - __builtin_clzll(x); }
    """
    int top_bit(uint64_t x) nogil

cdef enum:                   # as in flashfs.replay.request_source
    READ = 0
    WRITE = 1
    TRIM = 2
    FLUSH = 3
    REMAP = 4
    KINDS = 5

cdef enum:
    FINE = 7                 # bits: buckets are 1/128 of a power of two wide, so a figure is within 0.4 per cent
    BUCKETS = (64 - FINE) << FINE
    PART = 1 << 20           # bytes that one step moves, if data are moved
    GRAIN = 4096             # bytes that a content hash covers
    WORDS = 256              # pages of a write at once, if words stand for their contents


cdef uint64_t MOVED = <uint64_t> 1 << 63   # in a column of sources
assert MOVED == MOVED_FLAG


@cython.final
cdef class Histogram:
    """Latencies in ns, in buckets that widen with them; count, minimum, maximum and sum are exact."""
    cdef uint64_t* count
    cdef readonly uint64_t n
    cdef readonly int64_t least_ns, most_ns
    cdef readonly double sum_ns

    def __cinit__(self):
        self.count = <uint64_t*> calloc(BUCKETS, 8)
        if self.count == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.count)

    cdef int add(self, int64_t ns) noexcept nogil:
        if self.n == 0 or ns < self.least_ns:
            self.least_ns = ns
        if ns > self.most_ns:
            self.most_ns = ns
        self.n += 1
        self.sum_ns += <double> ns
        self.count[bucket_of(ns)] += 1
        return 0

    def note(self, int64_t ns):
        """Add one latency. ValueError if it is negative."""
        if ns < 0:
            raise ValueError(f"a latency of {ns} ns")
        self.add(ns)

    def quantile(self, double share):
        """The latency within which ``share`` of all requests ended: the nearest rank, to half a bucket."""
        cdef uint64_t rank = max(<uint64_t> 1, <uint64_t> (share * self.n + 0.999999)), seen = 0
        cdef uint32_t i
        if self.n == 0:
            return 0
        for i in range(BUCKETS):
            seen += self.count[i]
            if seen >= rank:
                return max(self.least_ns, min(self.most_ns, (first_of(i) + first_of(i + 1) - 1) // 2))
        return self.most_ns

    def buckets(self):
        """([the largest latency of each bucket that holds any], [how many it holds])."""
        cdef uint32_t i
        uppers, counts = [], []
        for i in range(BUCKETS):
            if self.count[i]:
                uppers.append(min(first_of(i + 1) - 1, self.most_ns))
                counts.append(self.count[i])
        return uppers, counts


cdef inline uint32_t bucket_of(uint64_t ns) noexcept nogil:
    cdef int shift
    if ns < 1 << FINE:
        return <uint32_t> ns
    shift = top_bit(ns) - FINE
    return <uint32_t> (((shift + 1) << FINE) + ((ns >> shift) & ((1 << FINE) - 1)))


cdef inline int64_t first_of(uint32_t bucket) noexcept nogil:
    """The smallest latency of a bucket."""
    cdef int shift = <int> (bucket >> FINE) - 1
    if shift < 0:
        return bucket
    if shift >= 63 - FINE:
        return <int64_t> ((<uint64_t> 1 << 63) - 1)
    return <int64_t> ((<uint64_t> (1 << FINE) + (bucket & ((1 << FINE) - 1))) << shift)


@cython.final
cdef class Player:
    """Plays ``qd`` requests at a time, or, if ``qd`` is 0, each at its own time after ``base_ns``. A request beyond the
    device is a UsageError; one whose page cannot be read ends, and the device counts it as ``unreadable``."""
    cdef Ssd ssd
    cdef readonly uint32_t qd
    cdef readonly int64_t base_ns, end_ns
    cdef int64_t* ends                     # of the requests under way: a heap, the first to end on top
    cdef uint8_t* data                     # PART bytes, if the chip keeps data
    cdef uint64_t[KINDS] count
    cdef Histogram read_ns, write_ns, trim_ns, flush_ns, remap_ns
    cdef uint64_t content

    def __cinit__(self, Ssd ssd not None, uint32_t qd=1, int64_t base_ns=0):
        cdef uint32_t i
        self.ssd = ssd
        self.qd = qd
        self.base_ns = self.end_ns = base_ns
        self.ends = <int64_t*> malloc(max(1, qd) * <uint64_t> 8)
        if self.ends == NULL:
            raise MemoryError
        for i in range(qd):
            self.ends[i] = base_ns
        if ssd.nand.keeps_data:
            self.data = <uint8_t*> malloc(PART)
            if self.data == NULL:
                raise MemoryError
        self.read_ns = Histogram()
        self.write_ns = Histogram()
        self.trim_ns = Histogram()
        self.flush_ns = Histogram()
        self.remap_ns = Histogram()

    def __dealloc__(self):
        free(self.ends)
        free(self.data)

    @property
    def pages(self):
        """Pages that the host read, wrote, trimmed and remapped, as the device counts them."""
        return self.ssd.host_read + self.ssd.host_write + self.ssd.host_trim + self.ssd.host_remap

    def requests(self):
        """{operation: n}."""
        return {OPERATIONS[i]: self.count[i] for i in range(KINDS)}

    def histograms(self):
        """{operation: the Histogram of its latencies}."""
        every = (self.read_ns, self.write_ns, self.trim_ns, self.flush_ns, self.remap_ns)
        return dict(zip(OPERATIONS, every, strict=True))

    def take(self, batch):
        """``play`` a flashfs.replay.request_source.Batch."""
        return self.play(batch.time_ns, batch.op, batch.offset, batch.length, *(batch.hashes or (None, None)),
                         source=batch.source)

    def play(self, const int64_t[::1] time_ns not None, const uint8_t[::1] op not None,
             const uint64_t[::1] offset not None, const uint64_t[::1] length not None,
             const int64_t[::1] grain_start=None, const uint64_t[::1] grain=None,
             const uint64_t[::1] source=None):
        """Play these requests after all earlier ones; columns as in flashfs.replay.request_source.Batch. Returns how
        many they are."""
        cdef Py_ssize_t n = op.shape[0], i = 0
        cdef const int64_t* starts = <const int64_t*> NULL
        cdef const uint64_t* grains = <const uint64_t*> NULL
        cdef const uint64_t* sources = <const uint64_t*> NULL
        if n != time_ns.shape[0] or n != offset.shape[0] or n != length.shape[0]:
            raise ValueError("columns of different lengths")
        self.refuse(op, offset, length, source)
        if source is not None and n:
            sources = &source[0]
        if grain_start is not None and grain is not None and grain.shape[0]:
            starts = &grain_start[0]
            grains = &grain[0]
        while i < n:
            try:
                with nogil:
                    while i < n:
                        self.one(self.base_ns + time_ns[i], op[i], offset[i], length[i],
                                 0 if sources == NULL else sources[i],
                                 <const uint64_t*> NULL if starts == NULL else grains + starts[i],
                                 0 if starts == NULL else <uint64_t> (starts[i + 1] - starts[i]))
                        i += 1
            except UncorrectableError:
                i += 1
        return n

    cdef refuse(self, const uint8_t[::1] op, const uint64_t[::1] offset, const uint64_t[::1] length,
                const uint64_t[::1] source):
        """UsageError if a request does not fit this device."""
        cdef uint64_t size = <uint64_t> self.ssd.lpas * self.ssd.page_bytes
        cdef Py_ssize_t i
        if source is not None and source.shape[0] != op.shape[0]:
            raise ValueError("columns of different lengths")
        for i in range(op.shape[0]):
            if op[i] >= KINDS:
                raise UsageError(f"request {i}: operation {op[i]}: use 0 to 4 (read, write, trim, flush, "
                                 "remap)")
            if offset[i] > size or length[i] > size - offset[i]:
                raise UsageError(f"request {i}: offset {offset[i]}, length {length[i]}: the device has {size} bytes")
            if op[i] == REMAP:
                if source is None:
                    raise UsageError(f"request {i}: a remap, and there is no column of sources")
                if source[i] & ~MOVED > size - length[i]:
                    raise UsageError(f"request {i}: a remap from {source[i] & ~MOVED}, length {length[i]}: the device "
                                     f"has {size} bytes")

    cdef int one(self, int64_t arrives, uint8_t op, uint64_t offset, uint64_t length, uint64_t source,
                 const uint64_t* grains, uint64_t grains_n) except -1 nogil:
        """Play one request: the loop decides when it arrives, the device when it ends."""
        cdef int64_t t_ns = self.ends[0] if self.qd else arrives, end = t_ns
        self.count[op] += 1
        if op == READ:
            end = self.read(offset, length, t_ns)
            self.read_ns.add(end - t_ns)
        elif op == WRITE:
            end = self.write(offset, length, grains, grains_n, t_ns)
            self.write_ns.add(end - t_ns)
        elif op == TRIM:
            end = trim_bytes(self.ssd, offset, length, t_ns)
            self.trim_ns.add(end - t_ns)
        elif op == REMAP:  # the scratch must hold a page, and PART bytes do
            end = remap_bytes(self.ssd, source & ~MOVED, offset, length, (source & MOVED) != 0, self.data, PART, t_ns)
            self.remap_ns.add(end - t_ns)
        else:
            self.ssd.flush(t_ns)
            end = max(t_ns, self.ssd.nand.quiet_at())
            self.flush_ns.add(end - t_ns)
        if self.qd:
            self.sift(end)
        self.end_ns = max(self.end_ns, end)
        return 0

    cdef int sift(self, int64_t end) noexcept nogil:
        """Replace the heap's top, which has ended, with a request that ends at ``end``."""
        cdef uint32_t at = 0, below
        while 2 * at + 1 < self.qd:
            below = 2 * at + 1
            if below + 1 < self.qd and self.ends[below + 1] < self.ends[below]:
                below += 1
            if self.ends[below] >= end:
                break
            self.ends[at] = self.ends[below]
            at = below
        self.ends[at] = end
        return 0

    cdef int64_t read(self, uint64_t offset, uint64_t length, int64_t t_ns) except -1 nogil:
        cdef uint64_t part
        cdef int64_t end = t_ns
        if self.data == NULL:
            return read_bytes(self.ssd, offset, length, NULL, t_ns)
        while length:
            part = min(length, PART - offset % self.ssd.page_bytes)
            end = max(end, read_bytes(self.ssd, offset, part, self.data, t_ns))
            offset += part
            length -= part
        return end

    cdef int64_t write(self, uint64_t offset, uint64_t length, const uint64_t* grains, uint64_t grains_n,
                       int64_t t_ns) except -1 nogil:
        """``grains`` say which contents are equal; without them every grain is unique."""
        cdef uint64_t part, first = offset // GRAIN
        cdef int64_t end = t_ns
        if self.data == NULL and self.ssd.mapping.dedup is not None:
            return self.write_words(offset, length, grains, grains_n, t_ns)
        if self.data == NULL:
            return write_bytes(self.ssd, offset, length, NULL, t_ns)
        while length:
            part = min(length, PART - offset % self.ssd.page_bytes)
            self.fill(offset, part, grains, grains_n, first)
            end = max(end, write_bytes(self.ssd, offset, part, self.data, t_ns))
            offset += part
            length -= part
        return end

    cdef int64_t write_words(self, uint64_t offset, uint64_t length, const uint64_t* grains, uint64_t grains_n,
                             int64_t t_ns) except -1 nogil:
        """``write`` on a chip that keeps no data: a word for each whole page says which are equal. A page written in
        part equals no other."""
        cdef uint64_t part, n, i, first = offset // GRAIN
        cdef uint64_t page = self.ssd.page_bytes
        cdef uint64_t[WORDS] words
        cdef uint32_t[WORDS] lpas
        cdef int64_t end = t_ns
        while length:
            if offset % page or length < page:
                part = min(length, page - offset % page)
                end = max(end, write_bytes(self.ssd, offset, part, NULL, t_ns))
            else:
                n = min(length // page, <uint64_t> WORDS)
                part = n * page
                for i in range(n):
                    lpas[i] = <uint32_t> (offset // page + i)
                    words[i] = self.word_of(offset + i * page, page, grains, grains_n, first)
                self.ssd.words = words
                try:
                    end = max(end, self.ssd.write(lpas, <uint32_t> n, NULL, t_ns))
                finally:
                    self.ssd.words = NULL
            offset += part
            length -= part
        return end

    cdef uint64_t word_of(self, uint64_t offset, uint64_t size, const uint64_t* grains, uint64_t grains_n,
                          uint64_t first) noexcept nogil:
        """A word that stands for the contents of a page."""
        cdef uint64_t at = 0, word = 0, grain
        while at < size:
            grain = (offset + at) // GRAIN
            if grain - first < grains_n:
                word = mixed(word + grains[grain - first] + (offset + at) % GRAIN)
            else:
                self.content += 1
                word = mixed(word + self.content + (<uint64_t> 1 << 63))
            at += GRAIN - (offset + at) % GRAIN
        return word

    cdef int fill(self, uint64_t offset, uint64_t size, const uint64_t* grains, uint64_t grains_n,
                  uint64_t first) noexcept nogil:
        """Fill ``data`` for ``size`` bytes at ``offset``: a byte is a function of its grain's number and its place in
        the grain."""
        cdef uint64_t at = 0, take, grain, word, i
        while at < size:
            grain = (offset + at) // GRAIN
            take = min(size - at, GRAIN - (offset + at) % GRAIN)
            if grain - first < grains_n:
                word = grains[grain - first]
            else:
                self.content += 1
                word = self.content
            word = mixed(word)
            for i in range(at, at + take):
                self.data[i] = <uint8_t> (word >> (8 * ((offset + i) & 7))) ^ <uint8_t> ((offset + i) % GRAIN >> 3)
            at += take
        return 0

    def sample(self):
        """(virtual ns since the base, pages that the host wrote, and read, programs, those of cleaning, erases, free
        blocks, hits of the data cache, its look-ups, pages that the host remapped), counts since the counters were set
        to 0."""
        cdef uint64_t programs = 0, erases = 0
        cdef int cause
        for cause in range(CAUSES):
            programs += self.ssd.nand.count(OP_PROGRAM, cause)
            erases += self.ssd.nand.count(OP_ERASE, cause)
        return (self.end_ns - self.base_ns, self.ssd.host_write, self.ssd.host_read, programs,
                self.ssd.nand.count(OP_PROGRAM, CAUSE_GC), erases, self.ssd.pool.free_n, self.ssd.cache.hits,
                self.ssd.cache.hits + self.ssd.cache.misses, self.ssd.host_remap)


cdef inline uint64_t mixed(uint64_t x) noexcept nogil:
    x = (x ^ (x >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t> 0x94D049BB133111EB
    return x ^ (x >> 31)
