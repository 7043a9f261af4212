"""The engine's default placement: append, to a few open blocks of each stream."""
from libc.stdint cimport uint32_t
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

cdef enum:
    MAP_STRIPE = 4           # translation pages on one die, at most, where they are spread over dies


cdef class Streams(Placement):
    """Append: each stream keeps up to ``width`` open blocks, each on a die of its own, and hands out ``stripe`` pages
    of one before it turns to the next. A stream of width 1 fills a block at a time, and the next one is on the next
    die. The wear stream has one block, the most worn there is; that of translation pages has one too, or more
    (``spread_map``); a stream that a part registered has as many as the part asked for."""

    def __cinit__(self, Engine ssd, uint32_t width_host, uint32_t width_gc, uint32_t stripe, bint pads=False):
        self.ssd = ssd
        self.width_host = width_host
        self.width_gc = width_gc
        self.stripe = stripe
        self.pads = pads
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
            self.left[i] = self.stripe_of(i)
        return 0

    def __dealloc__(self):
        free(self.open_of)

    def spread_map(self, uint32_t width):
        """Gives translation pages ``width`` open blocks, filled in turn, so that pages read at once are spread over the
        dies."""
        self.width[STREAM_MAP] = width
        self.learn_streams()

    cdef uint32_t stripe_of(self, int stream) noexcept nogil:
        """Pages on one die before the turn goes on. Translation pages are few: a large stripe would put them on few
        dies."""
        return min(self.stripe, <uint32_t> MAP_STRIPE) if stream == STREAM_MAP else self.stripe

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

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        cdef uint32_t* slot = self.open_of + stream * self.most + self.turn[stream]
        cdef uint32_t block, room
        if slot[0] != NONE and not self.takes_more(slot[0], stream):
            self.shut(slot)
        if slot[0] == NONE:
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
        """Opens a block for the slot whose turn it is. Blocks of translation pages are few, so their dies are as far
        apart as possible."""
        cdef int die = -1
        if self.width[stream] == self.ssd.pool.dies or (stream == STREAM_MAP and self.width[stream] > 1):
            die = <int> (self.turn[stream] * self.ssd.pool.dies // self.width[stream])
        return <uint32_t> self.ssd.open_block(die, stream, stream == STREAM_WEAR, self.ssd.pool.stream_cause[stream])

    cdef uint32_t run_room(self, int stream) noexcept nogil:
        cdef uint32_t block = self.open_of[stream * self.most + self.turn[stream]]
        cdef uint32_t pages = self.ssd.pool.pages_per_block
        if block != NONE:
            pages -= self.ssd.pool.next_page[block]
        return min(pages, self.left[stream]) if self.width[stream] > 1 else pages

    cdef uint32_t* open_slot(self, int stream) noexcept nogil:
        """Moves the stream's turn to an open block; if there is none, the turn stays."""
        cdef uint32_t i, turn = self.turn[stream]
        for i in range(self.width[stream]):
            if self.open_of[stream * self.most + (turn + i) % self.width[stream]] != NONE:
                self.turn[stream] = (turn + i) % self.width[stream]
                self.left[stream] = self.stripe_of(stream)
                break
        return self.open_of + stream * self.most + self.turn[stream]

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        cdef int stream = self.ssd.pool.stream[block]
        cdef uint32_t* slot = self.open_of + stream * self.most + self.turn[stream]
        if slot[0] == block and self.ssd.pool.next_page[block] >= self.ssd.pool.pages_per_block:
            self.shut(slot)
        if self.left[stream] > n:
            self.left[stream] -= n
        else:
            self.left[stream] = self.stripe_of(stream)
            self.turn[stream] = (self.turn[stream] + 1) % self.width[stream]
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        cdef uint32_t i
        for i in range(self.streams_n * self.most):
            if self.open_of[i] == block:
                self.shut(self.open_of + i)
        return 0

    cdef int shut(self, uint32_t* slot) noexcept nogil:
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
