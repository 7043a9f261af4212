"""The block pool: the state of each block, free blocks by die and wear, and dead blocks that wait for a sync.

A dead block is erased when it is next opened, not when it dies. So an erase interrupted by a power cut hits a block
without live pages, which is erased again before its next use. After a crash no free block is trusted to be blank.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove

from nandimg._nand cimport PAGE_ERASED, PAGE_OK, Nand

STATE_NAMES = ("free", "pending", "open", "closed", "meta", "bad")
KIND_NAMES = {1: "user", 2: "translation", 3: "validity", 4: "checkpoint", 5: "trim", 6: "mount", 7: "pad"}
CAUSE_NAMES = ("host", "gc", "wear", "map", "checkpoint", "trim", "recovery", "retire", "mount", "pad",
               "validity", "wear_scan")
STREAM_NAMES = ("host", "gc", "wear", "meta", "map")  #: the streams of every device
STREAM_CAUSES = (CAUSE_HOST, CAUSE_GC, CAUSE_WEAR, CAUSE_CHECKPOINT, CAUSE_MAP)
STREAM_BYTES = 16  #: length of the name of a stream that a part registered; the names follow the blocks in a checkpoint
STATES = {name: i for i, name in enumerate(STATE_NAMES)}
SAVED_BYTES = 10  #: of a block in a checkpoint: u8 state (+ 128: retiring), u8 stream, u16 next page, u48 order

cdef enum:
    RETIRING = 128


cdef class BlockPool:
    """State of every block. ``allocate`` erases and opens a free block; ``release`` takes back a dead one."""

    def __cinit__(self, Nand nand):
        cdef uint32_t n = nand.blocks
        self.nand = nand
        self.blocks = n
        self.pages_per_block = nand.pages_per_block
        self.dies = nand.dies
        self.numbers = True
        self.heap_room = n // nand.dies
        self.state = <uint8_t*> calloc(n, 1)
        self.stream = <uint8_t*> calloc(n, 1)
        self.blank = <uint8_t*> calloc(n, 1)
        self.retiring = <uint8_t*> calloc(n, 1)
        self.unproved = <uint8_t*> calloc(n, 1)
        self.stale = <uint8_t*> calloc(n, 1)
        self.next_page = <uint32_t*> calloc(n, 4)
        self.order = <uint64_t*> calloc(n, 8)
        self.ready_ns = <int64_t*> calloc(n, 8)
        self.heap = <uint32_t*> calloc(n, 4)
        self.heap_n = <uint32_t*> calloc(nand.dies, 4)
        self.map_pages = <int64_t*> calloc(nand.dies, 8)
        self.pending = <uint32_t*> calloc(n, 4)
        if not (self.state and self.stream and self.blank and self.retiring and self.unproved and self.stale
                and self.next_page and self.order and self.ready_ns and self.heap and self.heap_n and self.pending
                and self.map_pages):
            raise MemoryError
        self.stream_names = STREAM_NAMES
        self.streams_n = STREAMS
        for stream, cause in enumerate(STREAM_CAUSES):
            self.stream_cause[<int> stream] = cause

    def add_stream(self, str name not None, int cause, uint32_t width=1):
        """Register a stream for a part: it keeps ``width`` blocks open at once and counts their erases under ``cause``.
        Returns its number; ValueError for a name in use or too long, or too many streams. A part calls this when it is
        built, always in the same order: OOBs hold the number, and a checkpoint holds the names."""
        if name in self.stream_names or not 0 < len(name.encode()) <= STREAM_BYTES:
            raise ValueError(f"stream {name!r}: use a new name of 1 to {STREAM_BYTES} bytes")
        if self.streams_n == STREAMS_MOST:
            raise ValueError(f"stream {name!r}: {STREAMS_MOST} streams are all there can be")
        self.stream_cause[self.streams_n] = cause
        self.stream_width[self.streams_n] = width
        self.stream_names += (name,)
        self.streams_n += 1
        return self.streams_n - 1

    def __dealloc__(self):
        free(self.state)
        free(self.stream)
        free(self.blank)
        free(self.retiring)
        free(self.unproved)
        free(self.stale)
        free(self.next_page)
        free(self.order)
        free(self.ready_ns)
        free(self.heap)
        free(self.heap_n)
        free(self.map_pages)
        free(self.pending)

    # --- free blocks: one heap a die, least worn on top

    cdef int push(self, uint32_t block) noexcept nogil:
        cdef uint32_t die = block % self.dies
        cdef uint32_t* heap = self.heap + die * self.heap_room
        cdef uint32_t i = self.heap_n[die], up
        cdef uint32_t wear = self.nand.erases(block)
        self.heap_n[die] += 1
        while i:
            up = (i - 1) // 2
            if self.nand.erases(heap[up]) <= wear:
                break
            heap[i] = heap[up]
            i = up
        heap[i] = block
        self.state[block] = STATE_FREE
        self.free_n += 1
        return 0

    cdef uint32_t pop(self, uint32_t die) noexcept nogil:
        cdef uint32_t* heap = self.heap + die * self.heap_room
        cdef uint32_t n, top
        if self.heap_n[die] == 0:
            return NONE
        top = heap[0]
        self.heap_n[die] -= 1
        self.free_n -= 1
        n = self.heap_n[die]
        if n:
            self.sift(heap, n, 0, heap[n])
        return top

    cdef int sift(self, uint32_t* heap, uint32_t n, uint32_t i, uint32_t block) noexcept nogil:
        """Put ``block`` into the hole at ``i`` of a heap of ``n``, or below it."""
        cdef uint32_t down, wear = self.nand.erases(block)
        while True:
            down = 2 * i + 1
            if down >= n:
                break
            if down + 1 < n and self.nand.erases(heap[down + 1]) < self.nand.erases(heap[down]):
                down += 1
            if self.nand.erases(heap[down]) >= wear:
                break
            heap[i] = heap[down]
            i = down
        heap[i] = block
        return 0

    cdef bint pull(self, uint32_t block) noexcept nogil:
        """Take this block out of its die's heap; False if it is not free."""
        cdef uint32_t die = block % self.dies, i = 0, n, up
        cdef uint32_t* heap = self.heap + die * self.heap_room
        if self.state[block] != STATE_FREE:
            return False
        while heap[i] != block:
            i += 1
        self.heap_n[die] -= 1
        self.free_n -= 1
        n = self.heap_n[die]
        if i == n:
            return True
        while i and self.nand.erases(heap[(i - 1) // 2]) > self.nand.erases(heap[n]):
            up = (i - 1) // 2
            heap[i] = heap[up]
            i = up
        self.sift(heap, n, i, heap[n])
        return True

    cdef uint32_t pop_worn(self) noexcept nogil:
        """The most worn free block, for cold data. Linear in the number of free blocks; called rarely."""
        cdef uint32_t die, i, n, best = NONE, best_die = 0, wear = 0
        cdef uint32_t* heap
        for die in range(self.dies):
            heap = self.heap + die * self.heap_room
            for i in range(self.heap_n[die]):
                if best == NONE or self.nand.erases(heap[i]) > wear:
                    best = heap[i]
                    best_die = die
                    wear = self.nand.erases(best)
        if best == NONE:
            return NONE
        heap = self.heap + best_die * self.heap_room
        n = self.heap_n[best_die]
        self.heap_n[best_die] = 0
        self.free_n -= n
        for i in range(n):  # re-heap in place: writes never overtake reads
            if heap[i] != best:
                self.push(heap[i])
        return best

    cdef uint32_t pick(self, int die, bint worn) noexcept nogil:
        """A free block of that die (negative: of each die in turn) if it has one, else of the next die that has one; if
        ``worn``, the most worn of all dies. NONE if there is no free block."""
        cdef uint32_t d, i
        if worn:
            return self.pop_worn()
        if die < 0:
            self.die_turn = (self.die_turn + 1) % self.dies
            die = self.die_turn
        for i in range(self.dies):
            d = (<uint32_t> die + i) % self.dies
            if self.heap_n[d]:
                return self.pop(d)
        return NONE

    cdef int64_t allocate(self, int die, int stream, bint worn, int cause, int64_t t_ns) except -2 nogil:
        """Open a free block, erased. A block whose erase fails, or whose first page is not erased afterwards, is marked
        bad and the next one is tried; -1 if none is left."""
        cdef uint32_t block
        while True:
            block = self.pick(die, worn)
            if block == NONE:
                return -1
            if self.made_blank(block, cause, t_ns):
                self.begin(block, stream)
                return block

    cdef int64_t allocate_this(self, uint32_t block, int stream, int cause, int64_t t_ns) except -2 nogil:
        """As ``allocate``, but only this block: -1 if it is not free or its erase fails."""
        if not self.pull(block) or not self.made_blank(block, cause, t_ns):
            return -1
        self.begin(block, stream)
        return block

    cdef bint prove_next(self, int cause, int64_t t_ns) except -1 nogil:
        """Erase the next free block of each die now; False if one failed. A reserve that failing erases may use up
        between two moves of cleaning is none."""
        cdef uint32_t die, block
        cdef bint whole = True
        for die in range(self.dies):
            if self.heap_n[die] and not self.blank[self.heap[die * self.heap_room]]:
                block = self.pop(die)
                if self.made_blank(block, cause, t_ns):
                    self.blank[block] = 1
                    self.push(block)
                else:
                    whole = False
        return whole

    cdef uint32_t coming(self) noexcept nogil:
        """Blocks that are free, or will be after the next sync: not those that are marked bad then."""
        cdef uint32_t i, n = self.free_n + self.pending_n
        for i in range(self.pending_n if self.retiring_n else 0):
            n -= self.retiring[self.pending[i]]
        return n

    cdef bint made_blank(self, uint32_t block, int cause, int64_t t_ns) except -1 nogil:
        """Erase a block that was taken from its heap, unless it is known to be blank; False if the erase failed."""
        cdef uint32_t wear
        cdef bint ok = False
        if self.blank[block]:
            return True
        try:
            ok = self.erase(block, cause, t_ns)
        finally:
            if not ok and self.state[block] != STATE_BAD:
                self.push(block)  # an exception: the block is still free
        if ok:
            wear = self.nand.erases(block)
            self.erases_most = max(self.erases_most, wear)
            self.erased_most = max(self.erased_most, wear)
        return ok

    cdef int begin(self, uint32_t block, int stream) noexcept nogil:
        """Open a blank block."""
        self.blank[block] = self.unproved[block] = self.stale[block] = 0
        self.last_order += 1
        self.order[block] = self.last_order
        self.state[block] = STATE_META if stream == STREAM_META else STATE_OPEN
        self.stream[block] = <uint8_t> stream
        self.next_page[block] = 0
        return 0

    cdef bint erase(self, uint32_t block, int cause, int64_t t_ns) except -1 nogil:
        """Erase and check the first page; if that fails, mark the block bad and return False."""
        cdef uint8_t status = PAGE_ERASED
        cdef bint ok = True
        cdef int64_t end = self.nand.erase(block, cause, max(t_ns, self.ready_ns[block]), &ok)
        self.erases_n += 1
        if ok:
            self.nand.read_spare(block, 0, 1, NULL, &status, cause, end)
            ok = status == PAGE_ERASED
        if not ok:
            self.set_bad(block)
        return ok

    def erase_stale(self, int cause, int64_t t_ns):
        """Erase the free blocks whose pages were moved elsewhere, so that a later scan of the chip finds no dead pages
        in them."""
        cdef uint32_t block
        for block in range(self.blocks):
            if self.state[block] == STATE_FREE and self.stale[block] and self.pull(block):
                if self.made_blank(block, cause, t_ns):
                    self.blank[block] = 1
                    self.push(block)
                self.stale[block] = 0

    def doubt_open(self):
        """The states come from a checkpoint without a scan: ``takes_more`` checks each open block before it is
        programmed."""
        cdef uint32_t block
        for block in range(self.blocks):
            self.unproved[block] = self.state[block] == STATE_OPEN

    cdef bint takes_more(self, uint32_t block, int cause, int64_t t_ns) except -1 nogil:
        """Whether an open block can be filled further: its next page is erased, and the page before it is not. Checked
        once per mount. If not, the block counts as full and the caller closes it: its pages were programmed or lost
        outside this device."""
        cdef uint8_t[2] status
        cdef uint32_t page = self.next_page[block], before = min(page, 1)
        if not self.unproved[block]:
            return True
        status[0] = PAGE_OK
        status[before] = PAGE_ERASED
        if page < self.pages_per_block:
            self.nand.read_spare(block, page - before, 1 + before, NULL, status, cause, t_ns)
        self.unproved[block] = 0
        if status[before] == PAGE_ERASED and (before == 0 or status[0] != PAGE_ERASED):
            return True
        self.spoilt_n += 1
        self.next_page[block] = self.pages_per_block
        return False

    cdef int advance(self, uint32_t block, uint32_t n) noexcept nogil:
        self.next_page[block] += n
        self.programs_n += n
        return 0

    cdef int close(self, uint32_t block) noexcept nogil:
        self.state[block] = STATE_CLOSED
        return 0

    cdef int release(self, uint32_t block, int64_t ready_ns) noexcept nogil:
        """The block is dead; it becomes free at the next sync, when the pages that replaced its own are durable. A
        block that is pending already is skipped: listing it twice would overflow the list."""
        if self.pending_n and self.is_pending(block):
            return 0
        self.state[block] = STATE_PENDING
        self.ready_ns[block] = ready_ns
        self.pending[self.pending_n] = block
        self.pending_n += 1
        return 0

    cdef bint is_pending(self, uint32_t block) noexcept nogil:
        cdef uint32_t i
        if self.state[block] != STATE_PENDING:
            return False
        for i in range(self.pending_n):
            if self.pending[i] == block:
                return True
        return False

    cdef int release_pending(self, uint32_t n) except -1 nogil:
        """After a sync: free the first ``n`` pending blocks, and mark bad those in which an operation failed."""
        cdef uint32_t i = 0
        try:
            while i < n:
                if self.retiring[self.pending[i]]:
                    self.set_bad(self.pending[i])
                else:
                    self.stale[self.pending[i]] = self.stream[self.pending[i]] != STREAM_META
                    self.push(self.pending[i])
                i += 1
        finally:  # if one could not be marked bad, those before it are free all the same
            memmove(self.pending, self.pending + i, (self.pending_n - i) * sizeof(uint32_t))
            self.pending_n -= i
            self.before_trims -= min(i, self.before_trims)
        return 0

    cdef int retire(self, uint32_t block) noexcept nogil:
        """A program failed in the block: take no more pages, empty it later, then mark it bad."""
        self.next_page[block] = self.pages_per_block
        if not self.retiring[block]:
            self.retiring[block] = 1
            self.retiring_n += 1
        return 0

    cdef int set_bad(self, uint32_t block) except -1 nogil:
        self.nand.retire(block)
        self.state[block] = STATE_BAD
        self.bad_n += 1
        self.failed_n += 1
        if self.retiring[block]:
            self.retiring[block] = 0
            self.retiring_n -= 1
        return 0

    cdef int rebuild_free(self) noexcept nogil:
        """Rebuild heaps and counts from the states: after a format, a load or a recovery."""
        cdef uint32_t block, die
        for die in range(self.dies):
            self.heap_n[die] = 0
        self.free_n = self.pending_n = self.before_trims = self.bad_n = 0
        self.erases_most = 0
        for block in range(self.blocks):
            self.erases_most = max(self.erases_most, self.nand.erases(block))
            if self.nand.health(block):
                self.state[block] = STATE_BAD
                self.bad_n += 1
                if self.retiring[block]:
                    self.retiring[block] = 0
                    self.retiring_n -= 1
            elif self.state[block] == STATE_FREE or self.state[block] == STATE_PENDING:
                if self.retiring[block]:
                    self.release(block, 0)
                else:
                    self.push(block)
        return 0

    # --- whole-pool views; never hot

    def format(self):
        """Every healthy block is free and known to be blank, as on a chip that was never programmed."""
        cdef uint32_t block
        for block in range(self.blocks):
            self.state[block] = STATE_FREE
            self.blank[block] = 1
        self.rebuild_free()

    def save(self):
        """The checkpoint section: SAVED_BYTES per block, then the names of the streams that parts registered."""
        cdef uint32_t block
        out = bytearray(self.blocks * SAVED_BYTES) + self.saved_names()
        cdef uint8_t[::1] view = out
        for block in range(self.blocks):
            view[10 * block] = self.state[block] | (RETIRING if self.retiring[block] else 0)
            view[10 * block + 1] = self.stream[block]
            memcpy(&view[10 * block + 2], &self.next_page[block], 2)
            memcpy(&view[10 * block + 4], &self.order[block], 6)
        return out

    def saved_names(self):
        return b"".join(name.encode().ljust(STREAM_BYTES, b"\0") for name in self.stream_names[STREAMS:])

    def load(self, const uint8_t[::1] saved not None):
        """Load a checkpoint section. Metadata blocks become free: the caller knows which are still in use. No block is
        trusted to be blank: it may have been opened while the checkpoint was being written. ValueError for values that
        no pool saves, because all other parts rely on them."""
        cdef uint32_t block
        names = self.saved_names()
        need = self.blocks * SAVED_BYTES + len(names)
        if saved.shape[0] != need:
            raise ValueError(f"pool section of {saved.shape[0]} bytes: {need} are needed")
        if bytes(saved[self.blocks * SAVED_BYTES:]) != names:
            raise ValueError(f"pool section: streams other than {', '.join(self.stream_names)}")
        self.retiring_n = 0
        for block in range(self.blocks):
            self.state[block] = saved[10 * block] & (RETIRING - 1)
            self.stream[block] = saved[10 * block + 1]
            self.blank[block] = self.unproved[block] = 0
            self.retiring[block] = saved[10 * block] >= RETIRING
            self.retiring_n += self.retiring[block]
            self.next_page[block] = 0
            self.order[block] = 0
            memcpy(&self.next_page[block], &saved[10 * block + 2], 2)
            memcpy(&self.order[block], &saved[10 * block + 4], 6)
            if (self.state[block] > STATE_BAD or self.stream[block] >= self.streams_n
                    or order_runs_out(self.order[block]) or self.next_page[block] > self.pages_per_block):
                raise ValueError(f"block {block}: state {self.state[block]}, stream {self.stream[block]}, order "
                                 f"{self.order[block]}, next page {self.next_page[block]}")
            if self.state[block] == STATE_OPEN and self.stream[block] == STREAM_META:
                raise ValueError(f"block {block}: open, and of the metadata stream")
            if self.state[block] == STATE_META or self.state[block] == STATE_PENDING:
                self.state[block] = STATE_FREE

    def census(self):
        """{state: how many blocks}."""
        counts = dict.fromkeys(STATE_NAMES, 0)
        for block in range(self.blocks):
            counts[STATE_NAMES[self.state[block]]] += 1
        return counts

    def describe(self, uint32_t block):
        """The state of one block, for tools."""
        return {
            "state": STATE_NAMES[self.state[block]],
            "stream": self.stream_names[self.stream[block]] if self.state[block] in (2, 3, 4) else "",
            "order": self.order[block],
            "next_page": self.next_page[block],
            "erases": self.nand.erases(block),
        }

    def table_bytes(self):
        """(bytes as a controller packs them, bytes allocated) of the per-block tables. Packed: state, stream and flags
        in 2 bytes, next page in 2, order in 6, heap in 4."""
        return self.blocks * 14, self.blocks * (4 + 4 + 8 + 8 + 4 + 4)

    def check(self):
        """One line per broken invariant: free blocks are exactly those in the heaps; a heap is ordered by wear; pending
        blocks are exactly those in the list; bad blocks are those that the chip calls bad; no next page is beyond the
        block."""
        problems = []
        seen = set()
        for die in range(self.dies):
            for i in range(self.heap_n[die]):
                block = self.heap[die * self.heap_room + i]
                seen.add(block)
                if self.state[block] != STATE_FREE:
                    problems.append(f"block {block}: in the free heap but {STATE_NAMES[self.state[block]]}")
                if i and self.nand.erases(self.heap[die * self.heap_room + (i - 1) // 2]) > self.nand.erases(block):
                    problems.append(f"block {block}: out of order in the free heap of die {die}")
        pending = {self.pending[i] for i in range(self.pending_n)}
        for block in range(self.blocks):
            state = self.state[block]
            if (state == STATE_FREE) != (block in seen):
                problems.append(f"block {block}: {STATE_NAMES[state]} but {'not ' * (block not in seen)}in the heap")
            if (state == STATE_PENDING) != (block in pending):
                problems.append(f"block {block}: {STATE_NAMES[state]} disagrees with the pending list")
            if (self.nand.health(block) != 0) != (state == STATE_BAD):
                problems.append(f"block {block}: {STATE_NAMES[state]}, the chip says health {self.nand.health(block)}")
            if self.next_page[block] > self.pages_per_block:
                problems.append(f"block {block}: next page {self.next_page[block]} of {self.pages_per_block}")
        return problems
