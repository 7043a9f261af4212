"""The engine's default placement: append, to a few open blocks of each stream."""
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc

from flashfs.engine.blocks.pool cimport (
    NONE,
    STATE_CLOSED,
    STATE_OPEN,
    STREAM_GC,
    STREAM_HOST,
    STREAM_MAP,
    STREAM_META,
    STREAM_WEAR,
    STREAMS,
    BlockPool,
)
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.contract.placement cimport Placement

cdef class Streams(Placement):
    """Append: each stream keeps up to ``width`` open blocks, each on a die of its own, and hands out ``stripe`` pages
    of one before it turns to the next; of a chip with paired pages, whole groups. A stream of width 1 fills a block at
    a time, and the next one is on the next die. The wear stream has one block, the most worn there is; that of
    translation pages has one too, or more (``spread_map``), and then each page goes to the die on which the fewest
    live: those that are read at once are on many dies. A stream that a part registered has as many as the part asked
    for.

    ``width_host`` and ``width_gc``: open blocks of the host's stream and of cleaning's, 1 at least. ``stripe``: pages,
    1 at least; with a width of 1 it has no effect. ``pads``: a flush fills up the host's open blocks with padding.
    MemoryError if the lists of open blocks cannot be allocated."""

    def __cinit__(self, Engine ssd, uint32_t width_host, uint32_t width_gc, uint32_t stripe, bint pads=False):
        self.ssd = ssd
        self.map_die = -1
        self.width_host = width_host
        self.width_gc = width_gc
        self.stripe = stripe
        self.pads = pads
        self.refills = True
        self.width[STREAM_HOST] = width_host
        self.width[STREAM_GC] = width_gc
        self.width[STREAM_WEAR] = 1
        self.width[STREAM_META] = 0
        self.width[STREAM_MAP] = 1
        self.learn_streams()

    cdef int learn_streams(self) except -1:
        """Allocates room for the open blocks of all streams registered so far: a part may register one after placement
        is built."""
        cdef uint32_t i, n = self.ssd.pool.streams_n
        cdef uint32_t* room
        self.most = max(self.width_host, self.width_gc, self.width[STREAM_MAP])
        for i in range(STREAMS, n):
            self.width[i] = self.ssd.pool.stream_width[i]
            self.most = max(self.most, self.width[i])
        room = <uint32_t*> realloc(self.open_of, n * self.most * sizeof(uint32_t))
        if room == NULL:
            raise MemoryError
        self.open_of = room
        self.streams_n = n
        for i in range(n * self.most):
            self.open_of[i] = NONE
        for i in range(n):
            self.turn[i] = 0
            self.left[i] = self.stripe
        return 0

    def __dealloc__(self):
        free(self.open_of)

    def spread_map(self, uint32_t width):
        """Gives translation pages ``width`` open blocks, each on a die of its own as far as free blocks are there."""
        self.width[STREAM_MAP] = width
        self.learn_streams()

    cdef int make_ready(self, int stream) except -1 nogil:
        """Makes room for the host's next block. Other streams open theirs out of the reserve for cleaning."""
        cdef uint32_t* slot = self.open_of + stream * self.most + self.turn[stream]
        if stream != STREAM_HOST:
            return 0
        if slot[0] != NONE and not self.takes_more(slot[0], stream):
            self.shut(slot)
        return self.ssd.make_room() if slot[0] == NONE else 0

    cdef bint takes_more(self, uint32_t block, int stream) except -1 nogil:
        """Whether the open block takes more: its next page is proved blank."""
        return self.ssd.pool.takes_more(block, self.ssd.pool.stream_cause[stream], self.ssd.now_ns)

    cdef bint is_spread(self, int stream) noexcept nogil:
        """Whether its pages go to the die on which the fewest live."""
        return stream == STREAM_MAP and self.width[STREAM_MAP] > 1

    cdef int turn_to_emptiest(self) except -1 nogil:
        """The turn of translation pages goes to the open block on the die on which the fewest live; or to a slot
        without a block, if ``map_die`` has fewer still, has no open block for them, and has a free one. It stays until
        the die has a thirty-second part more: a look at all slots takes time."""
        cdef uint32_t* slots = self.open_of + STREAM_MAP * self.most
        cdef int64_t* living = self.ssd.pool.map_pages
        cdef int64_t least = 0
        cdef uint32_t width = self.width[STREAM_MAP], dies = self.ssd.pool.dies, i, k, die, open_n = 0
        cdef uint32_t best = NONE, empty = NONE
        i = self.turn[STREAM_MAP]
        if (slots[i] != NONE and living[slots[i] % dies] < self.map_enough
                and self.takes_more(slots[i], STREAM_MAP)):
            return 0
        self.map_die = -1
        for k in range(width):
            i = (self.turn[STREAM_MAP] + 1 + k) % width
            if slots[i] != NONE and not self.takes_more(slots[i], STREAM_MAP):
                self.shut(slots + i)
            if slots[i] == NONE:
                empty = i if empty == NONE else empty
                continue
            open_n += 1
            if best == NONE or living[slots[i] % dies] < least:
                best = i
                least = living[slots[i] % dies]
        if 2 * open_n <= width or empty == NONE:
            self.map_opens = empty != NONE
        for die in range(dies if empty != NONE and (self.map_opens or not self.map_together) else 0):
            if self.ssd.pool.heap_n[die] and ((best == NONE and self.map_die < 0) or living[die] < least):
                self.map_die = <int> die
                least = living[die]
        if best == NONE or (self.map_die >= 0 and self.ssd.affords_more()):
            best = empty
        self.map_enough = least + 1 + max(least, 0) // 32
        self.turn[STREAM_MAP] = best
        return 0

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        cdef uint32_t* slot
        cdef uint32_t block, room
        if self.is_spread(stream):
            self.turn_to_emptiest()
            n = 1
        slot = self.open_of + stream * self.most + self.turn[stream]
        if slot[0] != NONE and not self.takes_more(slot[0], stream):
            self.shut(slot)
        if slot[0] == NONE and not self.is_spread(stream):
            if stream != STREAM_HOST and self.width[stream] > 1 and not self.ssd.affords_more():
                slot = self.open_slot(stream)
                if slot[0] != NONE and not self.takes_more(slot[0], stream):
                    self.shut(slot)
        if slot[0] == NONE:
            block = self.fresh(stream)
            slot = self.open_of + stream * self.most + self.turn[stream]
            slot[0] = block
        block = slot[0]
        room = self.ssd.pool.pages_per_block - self.ssd.pool.next_page[block]
        out.block = block
        out.page = self.ssd.pool.next_page[block]
        out.n = min(n, room)
        if self.width[stream] > 1:
            out.n = min(out.n, self.left[stream])
        return 0

    cdef uint32_t fresh(self, int stream) except? 0xFFFFFFFE nogil:
        """Opens a block for the slot whose turn it is."""
        cdef int die = -1
        if self.is_spread(stream):
            die = self.map_die
        elif self.width[stream] == self.ssd.pool.dies:
            die = <int> self.turn[stream]
        return <uint32_t> self.ssd.open_block(die, stream, stream == STREAM_WEAR, self.ssd.pool.stream_cause[stream])

    cdef uint32_t run_room(self, int stream) noexcept nogil:
        cdef uint32_t block = self.open_of[stream * self.most + self.turn[stream]]
        cdef uint32_t pages = self.ssd.pool.pages_per_block
        if self.is_spread(stream):
            return 1 if block != NONE else pages
        if block != NONE:
            pages -= self.ssd.pool.next_page[block]
        return min(pages, self.left[stream]) if self.width[stream] > 1 else pages

    cdef uint32_t* open_slot(self, int stream) noexcept nogil:
        """Moves the stream's turn to an open block; if there is none, the turn stays."""
        cdef uint32_t i, turn = self.turn[stream]
        for i in range(self.width[stream]):
            if self.open_of[stream * self.most + (turn + i) % self.width[stream]] != NONE:
                self.turn[stream] = (turn + i) % self.width[stream]
                self.left[stream] = self.stripe
                break
        return self.open_of + stream * self.most + self.turn[stream]

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        cdef int stream = self.ssd.pool.stream[block]
        cdef int64_t* living = self.ssd.pool.map_pages
        cdef uint32_t* slot = self.open_of + stream * self.most + self.turn[stream]
        cdef uint32_t group = 2 * self.ssd.nand.paired_pages, begun
        if slot[0] == block and self.ssd.pool.next_page[block] >= self.ssd.pool.pages_per_block:
            self.shut(slot)
        if self.is_spread(stream):
            living[block % self.ssd.pool.dies] += n
            return 0
        begun = self.ssd.pool.next_page[block] % group if group else 0
        if self.left[stream] > n:
            self.left[stream] -= n
        elif begun:                         # each sync pads all groups of paired pages that were begun
            self.left[stream] = group - begun
        else:
            self.left[stream] = self.stripe
            self.turn[stream] = (self.turn[stream] + 1) % self.width[stream]
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        cdef uint32_t i
        for i in range(self.streams_n * self.most):
            if self.open_of[i] == block:
                self.shut(self.open_of + i)
        return 0

    cdef int shut(self, uint32_t* slot) noexcept nogil:
        """Closes the block in ``slot``, which holds NONE then. There must be a block in it."""
        cdef uint32_t block = slot[0]
        slot[0] = NONE
        return self.ssd.close(block)

    cdef int finish(self, int stream) except -1 nogil:
        cdef uint32_t* slot = self.open_of + stream * self.most
        if slot[0] != NONE:
            self.shut(slot)
        return 0

    def attach(self):
        """Open blocks go back to their streams' free slots; one too many is closed."""
        cdef uint32_t block, i, stream
        cdef BlockPool pool = self.ssd.pool
        if self.streams_n != pool.streams_n:
            self.learn_streams()
        for i in range(self.streams_n * self.most):
            self.open_of[i] = NONE
        for block in range(pool.blocks):
            if pool.state[block] != STATE_OPEN:
                if pool.state[block] == STATE_CLOSED:
                    self.ssd.close(block)
                continue
            stream = pool.stream[block]
            for i in range(self.width[stream]):
                if self.open_of[stream * self.most + i] == NONE and pool.next_page[block] < pool.pages_per_block:
                    self.open_of[stream * self.most + i] = block
                    break
            else:
                self.ssd.close(block)
