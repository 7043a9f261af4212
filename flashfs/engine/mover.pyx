# distutils: language = c++
"""The mover: it carries the live pages of a block to where placement puts them, whoever asked for it and why.

A move is one transaction: every page is read and copied, then the owners of the pages hear of it, then the old pages
die and the block is released. Broken off or cut at any point before that, it has changed nothing.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.parts cimport FOREIGN, IN_MOVE, LIVE, SUPERSEDED, Engine, Extent, Owner
from flashfs.engine.pool cimport (
    FLAG_LOST,
    KIND_USER,
    NONE,
    OOB_ENGINE,
    Oob,
    oob_kind,
    oob_lpa,
    oob_moved,
    oob_pack,
    oob_unpack,
)
from nandimg._nand cimport PAGE_OK

cdef extern from "<algorithm>" namespace "std" nogil:
    void sort(uint64_t* first, uint64_t* last)

cdef enum:
    RUN = 32                 # pages that one program carries at most


@cython.final
cdef class Mover:
    """Buffers for one block: a controller has them in DRAM, and the ledger counts them."""

    def __cinit__(self, Engine ssd):
        cdef uint32_t pages = ssd.nand.pages_per_block
        self.ssd = ssd
        self.oob_bytes = ssd.nand.oob_bytes
        self.page_bytes = ssd.nand.page_bytes
        self.pages_per_block = pages
        self.read_oobs = <uint8_t*> malloc(<uint64_t> pages * self.oob_bytes)
        self.oobs = <uint8_t*> malloc(<uint64_t> RUN * self.oob_bytes)
        self.status = <uint8_t*> malloc(pages)
        self.kinds = <uint8_t*> malloc(pages)
        self.confirmed = <uint8_t*> malloc(pages)
        self.pages = <uint32_t*> malloc(pages * 4)
        self.lpas = <uint32_t*> malloc(pages * 4)
        self.olds = <uint32_t*> malloc(pages * 4)
        self.news = <uint32_t*> malloc(pages * 4)
        self.gone = <uint32_t*> malloc(pages * 4)
        self.left = <uint32_t*> malloc(pages * 4)
        self.keys = <uint64_t*> malloc(pages * 8)
        self.sorted = <uint64_t*> malloc(pages * 8)
        self.ready = <int64_t*> malloc(pages * 8)
        if not (self.read_oobs and self.oobs and self.status and self.kinds and self.confirmed and self.pages
                and self.lpas and self.olds and self.news and self.gone and self.left and self.keys and self.sorted
                and self.ready):
            raise MemoryError
        if ssd.nand.keeps_data:
            self.data = <uint8_t*> malloc(<uint64_t> pages * self.page_bytes)
            self.gather = <uint8_t*> malloc(<uint64_t> RUN * self.page_bytes)
            if not (self.data and self.gather):
                raise MemoryError

    def __dealloc__(self):
        free(self.read_oobs)
        free(self.oobs)
        free(self.status)
        free(self.kinds)
        free(self.confirmed)
        free(self.pages)
        free(self.lpas)
        free(self.olds)
        free(self.news)
        free(self.gone)
        free(self.left)
        free(self.keys)
        free(self.sorted)
        free(self.ready)
        free(self.data)
        free(self.gather)

    def tables(self):
        """(as a controller packs it, as allocated): a block, a run put in order, and the lists about them. What a chip
        does not keep takes no room in its ledger."""
        pages = (self.pages_per_block + RUN) * self.page_bytes
        held = self.pages_per_block * (47 + self.oob_bytes) + RUN * self.oob_bytes
        return held + (pages if self.ssd.nand.keeps_data else 0), held + (pages if self.data != NULL else 0)

    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil:
        """As Engine.relocate."""
        cdef uint32_t n, i
        cdef int before = self.ssd.stopped
        cdef int64_t end = self.ssd.now_ns
        if self.ssd.validity.in_flash:     # each page's two places, before any of them is known
            self.ssd.validity.prepare(2 * self.ssd.validity.count(block), False)
        self.ssd.map_ns = self.ssd.now_ns
        self.with_data = self.ssd.nand.keeps_data
        self.kind = self.ssd.kind_of(block)
        if self.kind != KIND_USER:
            stream = self.ssd.pool.stream[block]  # such pages stay among themselves
            self.hold_data()
        n = self.collect(block, cause)
        if n and not self.copy_out(n, stream, cause, &end):
            return 0
        self.ssd.stopped = IN_MOVE
        self.ssd.victims.not_candidate(block)  # first: its pages die one by one, and change lists each time
        self.commit_move(n)
        for i in range(self.gone_n):
            (<Owner> self.ssd.owner_at[self.kind]).page_lost(self.gone[i])
        self.let_left_die()
        self.ssd.validity.released(block)
        self.ssd.pool.release(block, end)
        self.ssd.stopped = before
        if self.kind == KIND_USER:
            self.ssd.map_ns = self.ssd.now_ns
            self.ssd.mapping.moves_end()
        return 1

    cdef int hold_data(self) except -1 nogil:
        """A chip that keeps no user data keeps those of translation pages."""
        self.with_data = True
        if self.data == NULL or self.gather == NULL:
            if self.data == NULL:
                self.data = <uint8_t*> malloc(<uint64_t> self.pages_per_block * self.page_bytes)
            self.gather = <uint8_t*> malloc(<uint64_t> RUN * self.page_bytes)
            if self.data == NULL or self.gather == NULL:
                with gil:
                    raise MemoryError
        return 0

    cdef uint32_t collect(self, uint32_t block, int cause) except? 0xFFFFFFFE nogil:
        """Read the live pages of a block into ``data``; sort them by LPA in ``keys`` (LPA << 16 | index). Returns how
        many there are to move: one that cannot be read moves as a page that says so."""
        cdef uint32_t i, k, n = 0
        cdef uint64_t order = 0
        cdef Oob oob
        cdef uint32_t live = self.ssd.validity.pages(block, self.pages)
        self.gone_n = self.left_n = 0
        if live == 0:
            return 0
        self.ssd.nand.read_some(block, self.pages, live, self.data if self.with_data else <uint8_t*> NULL,
                                self.read_oobs, self.status, cause, self.ssd.now_ns, self.ready)
        self.confirm(block, 0, live)
        for i in range(live):
            if self.is_late(block, i, cause) or not (self.is_readable(block, i, order)
                                                     or self.poison(block, i, cause)):
                self.left[self.left_n] = block * self.pages_per_block + self.pages[i]
                self.left_n += 1
            else:
                if order == 0:
                    oob_unpack(self.read_oobs + i * self.oob_bytes, &oob)
                    order = oob.order
                self.keys[n] = (<uint64_t> oob_lpa(self.read_oobs + i * self.oob_bytes) << 16) | i
                n += 1
        self.sort_keys(n)
        for i in range(n):
            k = <uint32_t> (self.keys[i] & 0xFFFF)
            self.lpas[i] = <uint32_t> (self.keys[i] >> 16)
            self.olds[i] = block * self.pages_per_block + self.pages[k]
            self.kinds[i] = oob_kind(self.read_oobs + k * self.oob_bytes)
        return n

    cdef int confirm(self, uint32_t block, uint32_t first, uint32_t n) except -1 nogil:
        """Ask the mapping whether pages ``first`` to ``first + n - 1`` of the live ones are whose they say: one that
        lies about its LPA would take that LPA's place."""
        cdef uint32_t i
        for i in range(first, first + n):
            self.kinds[i] = oob_kind(self.read_oobs + i * self.oob_bytes)
            self.lpas[i] = oob_lpa(self.read_oobs + i * self.oob_bytes)
            self.olds[i] = block * self.pages_per_block + self.pages[i]
        (<Owner> self.ssd.owner_at[self.kind]).confirm(self.lpas + first, self.olds + first, n, self.confirmed + first)
        for i in range(first, first + n):
            if self.kinds[i] != self.kind:
                self.confirmed[i] = FOREIGN
        return 0

    cdef bint is_late(self, uint32_t block, uint32_t i, int cause) except -1 nogil:
        """Whether page ``i`` was superseded, and its owner had not noticed: it needs no move. One that did not come
        back whole is read a second time first."""
        cdef uint64_t at = <uint64_t> i * self.page_bytes
        if self.status[i] != PAGE_OK:
            self.ssd.nand.read(block, self.pages[i], 1, self.data + at if self.with_data else <uint8_t*> NULL,
                               self.read_oobs + i * self.oob_bytes, self.status + i, cause, self.ready[i])
            self.confirm(block, i, 1)
        return self.status[i] == PAGE_OK and self.confirmed[i] == SUPERSEDED

    cdef bint is_readable(self, uint32_t block, uint32_t i, uint64_t order) except -1 nogil:
        """Whether live page ``i`` came back whole and belongs here. All pages of a block say when it was opened; one
        that says otherwise was meant for another place. The first is asked for by LPA."""
        cdef Oob oob
        cdef uint32_t ppa = block * self.pages_per_block + self.pages[i]
        if self.status[i] != PAGE_OK or self.confirmed[i] != LIVE:
            return False
        oob_unpack(self.read_oobs + i * self.oob_bytes, &oob)
        if oob.order == order or oob.kind != KIND_USER:
            return True
        return oob.lpa < self.ssd.lpas and self.ssd.mapping.locate(oob.lpa) == ppa

    cdef bint poison(self, uint32_t block, uint32_t i, int cause) except -1 nogil:
        """Live page ``i`` cannot be read. What moves in its place holds nothing but says whose it was: that LPA gives
        EIO from then on, not an older version, and the block can be used again. False if it was nobody's."""
        cdef uint8_t status = 0
        cdef uint8_t* at = self.read_oobs + i * self.oob_bytes
        cdef uint32_t ppa = block * self.pages_per_block + self.pages[i]
        cdef Oob oob
        self.lost_pages += 1
        if self.kind != KIND_USER:
            self.ssd.checkpoint_due = True
            self.gone[self.gone_n] = ppa  # its owner hears of it when the move is through
            self.gone_n += 1
            return False
        self.ssd.nand.read_spare(block, self.pages[i], 1, at, &status, cause, self.ssd.now_ns)
        oob_unpack(at, &oob)
        if (status != PAGE_OK or oob.kind != KIND_USER or oob.lpa >= self.ssd.lpas
                or self.ssd.mapping.locate(oob.lpa) != ppa):
            # The last checkpoint calls the page live, and no recovery can tell whose it was: it would take the move for
            # unfinished, and undo it with all that was written behind it. The next checkpoint is due now.
            self.ssd.checkpoint_due = True
            memset(at, 0xFF, self.oob_bytes)
            oob.lpa = self.ssd.mapping.owner_of(ppa)
            if oob.lpa == NONE:
                self.lost_pages -= self.ssd.validity.late  # it was superseded, and its block half erased since
                return False
            oob.seq = self.ssd.seq_before(oob.lpa)
            oob.order = 0
            oob.kind = KIND_USER
            oob.flags = 0
            oob.stream = 0
        oob.flags |= FLAG_LOST
        oob_pack(at, &oob)
        if self.with_data:
            memset(self.data + <uint64_t> i * self.page_bytes, 0, self.page_bytes)
        return True

    cdef int sort_keys(self, uint32_t n) noexcept nogil:
        """By LPA, a byte of it at a time: a comparison sort of random keys mispredicts half its branches."""
        cdef uint32_t[257] at
        cdef uint32_t i
        cdef int shift = 16
        cdef uint64_t limit = self.ssd.lpas if self.kind == KIND_USER else NONE
        cdef uint64_t* a = self.keys
        cdef uint64_t* b = self.sorted
        if n < 32:
            sort(a, a + n)
            return 0
        while limit:
            memset(at, 0, sizeof(at))
            for i in range(n):
                at[((a[i] >> shift) & 0xFF) + 1] += 1
            for i in range(256):
                at[i + 1] += at[i]
            for i in range(n):
                b[at[(a[i] >> shift) & 0xFF]] = a[i]
                at[(a[i] >> shift) & 0xFF] += 1
            a, b = b, a
            shift += 8
            limit >>= 8
        if a != self.keys:
            memcpy(self.keys, a, n * 8)
        return 0

    cdef int copy_out(self, uint32_t n, int stream, int cause, int64_t* end) except -1 nogil:
        """Program the collected pages, sequence numbers unchanged; 0 if placement broke the move off. What placement
        gives in one block is one run, though it is programmed in parts."""
        cdef Extent ext
        cdef uint32_t done = 0, in_run, run, ok
        while done < n:
            self.ssd.placement.take(stream, self.lpas + done, n - done, &ext)
            if ext.n == 0:
                return 0
            run = ext.n
            in_run = 0
            while in_run < run:
                ext.n = min(run - in_run, <uint32_t> RUN)
                ok = self.copy_run(done, &ext, in_run, run - in_run - ext.n, stream, cause, end)
                done += ok
                in_run += ok
                if ok < ext.n:
                    self.ssd.program_failed(ext.block)
                    break
                ext.page += ok
        return 1

    cdef uint32_t copy_run(self, uint32_t first, Extent* ext, uint32_t before, uint32_t behind, int stream, int cause,
                           int64_t* end) except? 0xFFFFFFFE nogil:
        """Program the ``ext.n`` pages from number ``first`` on, of a run with so many before and behind them; how many
        were."""
        cdef uint32_t i, k, ok
        cdef int64_t start = self.ssd.now_ns, one
        cdef uint64_t order = self.ssd.pool.order[ext.block]
        for i in range(ext.n):
            k = <uint32_t> (self.keys[first + i] & 0xFFFF)
            if self.kind != KIND_USER:
                memcpy(self.oobs + i * self.oob_bytes, self.read_oobs + k * self.oob_bytes, self.oob_bytes)
            oob_moved(self.oobs + i * self.oob_bytes, self.read_oobs + k * self.oob_bytes, order, <uint8_t> stream)
            start = max(start, self.ready[k])
            if self.with_data:
                memcpy(self.gather + <uint64_t> i * self.page_bytes,
                       self.data + <uint64_t> k * self.page_bytes, self.page_bytes)
        if self.ssd.mapping.scheme_oob and self.kind == KIND_USER:
            self.ssd.mapping.stamp(self.oobs + OOB_ENGINE, self.lpas + first, ext.n, ext.block, ext.page, before,
                                   behind)
        one = self.ssd.nand.program(ext.block, ext.page, ext.n, self.gather if self.with_data else <uint8_t*> NULL,
                                    self.oobs, cause, start, &ok)
        end[0] = max(end[0], one)
        for i in range(ok):
            self.news[first + i] = ext.block * self.pages_per_block + ext.page + i
        if ok:
            self.ssd.pool.advance(ext.block, ok)
            self.ssd.since_checkpoint += ok
            self.ssd.placement.used(ext.block, ok)
        return ok

    cdef int commit_move(self, uint32_t n) except -1 nogil:
        """Tell the owner, then let the old pages die."""
        cdef uint32_t i = 0, run
        if n:
            (<Owner> self.ssd.owner_at[self.kind]).moved(self.lpas, self.olds, self.news, n)
        while i < n:
            run = 1
            while (i + run < n and self.news[i + run] == self.news[i] + run
                   and self.news[i + run] % self.pages_per_block != 0):
                run += 1
            self.ssd.validity.live_run(self.news[i], run)
            i += run
        self.ssd.validity.dead(self.olds, n)
        return 0

    cdef int let_left_die(self) except -1 nogil:
        """What was live and is not moved. The owner of a page that cannot be read may have reported it."""
        cdef uint32_t i
        for i in range(self.left_n):
            if self.kind != KIND_USER and not self.ssd.validity.is_live(self.left[i]):
                self.left[i] = NONE
        return self.ssd.validity.dead(self.left, self.left_n)
