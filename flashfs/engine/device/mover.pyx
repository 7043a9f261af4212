# distutils: language = c++
"""The mover moves live pages to where placement puts them, for any cause: the pages of a block, of a group of blocks,
or single pages.

A move is one transaction: every page is read and copied, then the owners of the pages are updated, then the old pages
die and the blocks are released. If it ends early or power is cut before that, nothing has changed.

A block is read at once. A group may be a thousand times larger than a buffer: its spare areas are read first, which is
enough to sort by LPA, and each page is read when it is programmed.

Each copy of a group carries the number of its move (``Oob.group``); the last copy has FLAG_LAST. A recovery undoes an
unfinished move as a whole: otherwise the copies of finished victims would take room without any block having been
released.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from flashfs.engine.contract.engine cimport IN_MOVE
from flashfs.engine.contract.owner cimport FOREIGN, LIVE, SUPERSEDED, Owner
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.device.move cimport MOVE_RUN, Move, MoveLists
from flashfs.engine.device.wall_clock cimport wall_ns
from flashfs.engine.blocks.pool cimport (
    FLAG_LOST,
    KIND_USER,
    NONE,
    OOB_ENGINE,
    STATE_CLOSED,
    STATE_FREE,
    STATE_PENDING,
    STREAM_GC,
    Oob,
    number_for,
    oob_kind,
    oob_lpa,
    oob_moved,
    oob_order,
    oob_pack,
    oob_unpack,
    placed,
    read_oob,
)
from nandimg._nand cimport PAGE_OK

cdef extern from "<algorithm>" namespace "std" nogil:
    void sort(uint64_t* first, uint64_t* last)

cdef extern from *:
    int leading_zeros "__builtin_clzll"(unsigned long long) nogil

cdef enum:
    REPORTS = 2              # to validity, per moved page: its old and its new place

cdef uint32_t OF_USER = NONE - 1  # in place of a number of pages


@cython.final
cdef class Mover(MoveLists):
    """Does moves, one at a time; see the module."""

    def resume(self, uint32_t groups):
        """After a recovery: ``groups`` moves of groups were made since the last checkpoint."""
        self.groups = groups

    def moved(self):
        """{kind of page: (read, programmed)} in moves of all causes. Reads of a group's user pages are not included:
        they are the remaining reads under the same causes."""
        return {kind: (self.moved_reads[kind], self.moved_programs[kind]) for kind in range(KINDS)
                if self.moved_reads[kind] or self.moved_programs[kind]}

    def forget_counts(self):
        memset(self.moved_reads, 0, sizeof(self.moved_reads))
        memset(self.moved_programs, 0, sizeof(self.moved_programs))

    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil:
        """As Engine.relocate."""
        cdef uint32_t n, i
        cdef int before = self.ssd.stopped
        cdef uint64_t order = self.ssd.pool.order[block]
        cdef Move move
        if self.ssd.validity.in_flash:     # before any of its PPAs is held
            self.ssd.validity.prepare(REPORTS * self.ssd.validity.count(block), False)
            if self.has_left(block, order):
                return 1
        self.begin(&move, stream, cause)
        move.kind = self.ssd.kind_of(block)
        if move.kind != KIND_USER:
            move.stream = self.ssd.pool.stream[block]  # such pages stay in their own stream
            self.hold_data(&move)
        n = self.collect(&move, block)
        if n == OF_USER:
            with gil:  # a recovery takes the owner of the block from its stream
                self.ssd.alarm(f"block {block}: its first page was meant for another block: the map names others in it")
            self.ssd.pool.stream[block] = STREAM_GC
            return self.relocate(block, STREAM_GC, cause)
        if n and not self.copy_out(&move, n):
            return 0
        self.moved_metadata |= n != 0 and move.kind != KIND_USER
        self.ssd.stopped = IN_MOVE
        self.ssd.victims.not_candidate(block)  # first, or each page that dies would change its list
        self.commit_move(&move, n)
        for i in range(move.gone_n):
            (<Owner> self.ssd.owner_at[move.kind]).page_lost(self.gone[i])
        self.let_left_die(&move)
        self.ssd.validity.released(block)
        self.ssd.pool.release(block, move.end_ns)
        self.ssd.stopped = before
        self.end_move(&move)
        return 1

    cdef int begin(self, Move* move, int stream, int cause) noexcept nogil:
        """Initialise a move of one block's user pages; the caller changes the fields for other moves."""
        memset(move, 0, sizeof(Move))
        move.stream = stream
        move.cause = cause
        move.kind = KIND_USER
        move.with_data = self.ssd.nand.keeps_data
        move.names_ns = move.end_ns = self.ssd.map_ns = self.ssd.now_ns
        return 0

    cdef bint has_left(self, uint32_t block, uint64_t order) noexcept nogil:
        """Whether the block was released, and perhaps opened again, since it had this ``order``: ``prepare`` of a
        validity store in flash may clean, and that may take this block."""
        return (self.ssd.pool.order[block] != order or self.ssd.pool.state[block] == STATE_FREE
                or self.ssd.pool.state[block] == STATE_PENDING)

    cdef int end_move(self, const Move* move) except -1 nogil:
        """After a move, with all tables consistent."""
        self.moves += 1
        if move.kind == KIND_USER:
            self.ssd.map_ns = self.ssd.now_ns
            self.ssd.mapping.moves_end()
        return 0

    # --- groups

    cdef int relocate_blocks(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except -1 nogil:
        """As Engine.relocate_blocks."""
        cdef uint32_t i, many, total = 0
        cdef int before = self.ssd.stopped
        cdef Move move
        many = self.pick_group(blocks, n, stream, cause)
        if many == NONE or many == 0:
            return many == 0
        self.groups += 1
        self.begin(&move, stream, cause)
        move.one_by_one = True
        move.group = self.groups
        for i in range(many):
            total = self.gather_names(&move, self.victims[i], self.ssd.validity.pages(self.victims[i], self.pages),
                                      total)
        total = self.sort_group(&move, total)
        if total and not self.copy_out(&move, total):
            return 0
        self.ssd.stopped = IN_MOVE
        for i in range(many):
            self.ssd.victims.not_candidate(self.victims[i])
        self.commit_move(&move, total)
        self.let_left_die(&move)
        for i in range(many):
            self.ssd.validity.released(self.victims[i])
            self.ssd.pool.release(self.victims[i], move.end_ns)
        self.ssd.stopped = before
        self.end_move(&move)
        return 1

    cdef uint32_t pick_group(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except? 0xFFFFFFFE nogil:
        """Put the blocks that can be moved together into ``victims``, and move the others (of another kind, or empty)
        one by one; move all one by one if a group move is not possible. Returns how many are left to move, with room in
        validity for their reports; NONE if placement ended a move."""
        cdef uint32_t i, many = 0
        cdef uint64_t pages = 0
        for i in range(n):
            if self.fits_group(blocks[i]):
                pages += self.ssd.validity.count(blocks[i])
                many += 1
        if self.groups >= GROUPS - 1:
            self.ssd.checkpoint_due = True
        if many < 2 or pages > self.room or self.groups >= GROUPS or self.victims == NULL:
            for i in range(n):
                if not self.relocate(blocks[i], stream, cause):
                    return NONE
            return 0
        many = 0
        for i in range(n):
            if self.fits_group(blocks[i]):
                self.victims[many] = blocks[i]
                many += 1
            elif not self.relocate(blocks[i], stream, cause):
                return NONE
        if not self.ssd.validity.in_flash:
            return many
        pages *= REPORTS            # before any PPA is held
        pages -= min(pages, <uint64_t> self.ssd.validity.prepare(<uint32_t> pages, False))
        for i in range(many):
            if self.ssd.pool.state[self.victims[i]] != STATE_CLOSED:
                return NONE         # ``prepare`` has cleaned: see has_left
        for i in range(many if pages else 0):
            if not self.relocate(self.victims[i], stream, cause):
                return NONE
        return 0 if pages else many

    cdef bint fits_group(self, uint32_t block) noexcept nogil:
        """Whether the block has pages that can be moved together with those of others."""
        return self.ssd.validity.count(block) != 0 and self.ssd.kind_of(block) == KIND_USER

    cdef int relocate_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil:
        """As Engine.relocate_pages."""
        cdef uint32_t part
        if n > self.room:
            with gil:
                raise ValueError(f"{n} pages to be moved at once: there is room for {self.room}")
        while n:
            part = n
            if self.ssd.validity.in_flash:
                part = max(<uint32_t> 1, min(n, self.ssd.validity.prepare(REPORTS * n, False) // REPORTS))
            if not self.move_pages(ppas, part, stream, cause):
                return 0
            ppas += part
            n -= part
        return 1

    cdef int move_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil:
        """Move as many pages as validity has room for reports of."""
        cdef uint32_t i = 0, block, live, total = 0
        cdef int before = self.ssd.stopped
        cdef Move move
        self.begin(&move, stream, cause)
        move.one_by_one = True
        while i < n:
            block = ppas[i] // self.pages_per_block
            live = 0
            while i < n and ppas[i] // self.pages_per_block == block:
                if self.ssd.validity.is_live(ppas[i]):
                    self.pages[live] = ppas[i] % self.pages_per_block
                    live += 1
                i += 1
            if live and self.ssd.kind_of(block) == KIND_USER:
                total = self.gather_names(&move, block, live, total)
        total = self.sort_group(&move, total)
        if total == 0 and move.left_n == 0:
            return 1
        if not self.copy_out(&move, total):
            return 0
        self.ssd.stopped = IN_MOVE
        self.commit_move(&move, total)
        self.let_left_die(&move)
        self.ssd.stopped = before
        self.end_move(&move)
        return 1

    cdef uint32_t gather_names(self, Move* move, uint32_t block, uint32_t live,
                               uint32_t n) except? 0xFFFFFFFE nogil:
        """Read the spare areas of the block's pages listed in ``pages``, and append LPA and PPA of those to move to the
        first ``n`` of ``keys``; returns the new count. An unreadable page moves as a page with FLAG_LOST. In a group,
        whose blocks must be emptied, superseded pages go to ``left``; in a move of single pages they stay."""
        cdef uint32_t i = 0, run, ppa
        cdef bint whole = move.group != 0
        cdef uint64_t order = 0
        cdef uint8_t* at
        while i < live:
            run = 1
            while i + run < live and self.pages[i + run] == self.pages[i] + run:
                run += 1
            move.names_ns = max(move.names_ns, self.ssd.nand.read_spare(
                block, self.pages[i], run, self.read_oobs + i * self.oob_bytes, self.status + i, move.cause,
                self.ssd.now_ns))
            i += run
        for i in range(live):
            at = self.read_oobs + i * self.oob_bytes
            if self.status[i] != PAGE_OK:  # a page that fails once may read at the second try
                move.names_ns = max(move.names_ns, self.ssd.nand.read_spare(
                    block, self.pages[i], 1, at, self.status + i, move.cause, self.ssd.now_ns))
            self.status[i] = placed(self.status[i], at, self.pages[i])
        self.confirm(move, block, 0, live)
        for i in range(live):
            ppa = block * self.pages_per_block + self.pages[i]
            at = self.read_oobs + i * self.oob_bytes
            if self.status[i] == PAGE_OK and self.confirmed[i] == SUPERSEDED:
                if whole:
                    self.left[move.left_n] = ppa
                    move.left_n += 1
                continue
            if not self.is_readable(block, i, order):
                if not self.poison(move, ppa, at):
                    self.lost_pages += 1
                    self.left[move.left_n] = ppa
                    move.left_n += 1
                    continue
            elif order == 0:
                order = oob_order(at)
            self.keys[n] = (<uint64_t> oob_lpa(at) << 32) | ppa
            n += 1
        return n

    cdef uint32_t sort_group(self, Move* move, uint32_t n) except? 0xFFFFFFFE nogil:
        """Sort ``keys`` by LPA, and ``lpas`` and ``olds`` with them. If several pages name the same LPA, the mapping is
        asked about each: those that are not the LPA's are not moved, and die with their block if that is emptied."""
        cdef uint32_t i, lpa, ppa, kept = 0
        cdef uint8_t answer
        self.sort_keys(move, n)
        for i in range(n):
            lpa = <uint32_t> (self.keys[i] >> 32)
            ppa = <uint32_t> self.keys[i]
            if ((kept and self.lpas[kept - 1] == lpa) or (i + 1 < n and self.keys[i + 1] >> 32 == lpa)):
                self.ssd.mapping.confirm(&lpa, &ppa, 1, &answer)
                if answer != LIVE:
                    if move.group:
                        self.left[move.left_n] = ppa
                        move.left_n += 1
                    continue
            self.keys[kept] = self.keys[i]
            self.lpas[kept] = lpa
            self.olds[kept] = ppa
            kept += 1
        return kept

    cdef int read_again(self, Move* move, uint32_t first, uint32_t n) except -1 nogil:
        """Read pages ``first`` to ``first + n - 1`` of the group, data and OOB, into ``gather`` and ``read_oobs``."""
        cdef uint32_t i = 0, k, run, block, ppa
        cdef int64_t end
        cdef uint8_t* at
        cdef uint8_t* into
        while i < n:
            ppa = self.olds[first + i]
            block = ppa // self.pages_per_block
            run = 1
            while (i + run < n and self.olds[first + i + run] == ppa + run
                   and (ppa + run) // self.pages_per_block == block):
                run += 1
            into = self.gather + <uint64_t> i * self.page_bytes if move.with_data else <uint8_t*> NULL
            end = self.ssd.nand.read(block, ppa % self.pages_per_block, run, into, self.read_oobs + i * self.oob_bytes,
                                     self.status + i, move.cause, move.names_ns)
            for k in range(i, i + run):
                self.ready[k] = end
            i += run
        for i in range(n):
            at = self.read_oobs + i * self.oob_bytes
            ppa = self.olds[first + i]
            into = self.gather + <uint64_t> i * self.page_bytes if move.with_data else <uint8_t*> NULL
            if self.status[i] != PAGE_OK:
                self.ready[i] = self.ssd.nand.read(ppa // self.pages_per_block, ppa % self.pages_per_block, 1, into, at,
                                                   self.status + i, move.cause, self.ready[i])
            self.status[i] = placed(self.status[i], at, ppa % self.pages_per_block)
            if self.status[i] == PAGE_OK and oob_lpa(at) == self.lpas[first + i] and oob_kind(at) == KIND_USER:
                continue
            self.lost_pages += 1
            self.poison(move, ppa, at)  # its LPA is known, or it would not be in the list
            if into != NULL:
                memset(into, 0, self.page_bytes)
        return 0

    # --- one block

    cdef uint32_t collect(self, Move* move, uint32_t block) except? 0xFFFFFFFE nogil:
        """Read the live pages of a block into ``data``; sort them by LPA in ``keys`` (LPA << 32 | index). Returns how
        many there are to move; an unreadable page moves as a page with FLAG_LOST. Returns OF_USER if the block's kind
        is wrong: the mapping names a page in it."""
        cdef uint32_t i, k, ppa, n = 0
        cdef uint64_t order = 0
        cdef Oob oob
        cdef uint8_t* at
        cdef uint32_t live = self.ssd.validity.pages(block, self.pages)
        move.gone_n = move.left_n = 0
        if live == 0:
            return 0
        self.ssd.nand.read_some(block, self.pages, live, self.data if move.with_data else <uint8_t*> NULL,
                                self.read_oobs, self.status, move.cause, self.ssd.now_ns, self.ready)
        self.moved_reads[move.kind] += live
        self.confirm(move, block, 0, live)
        for i in range(live):
            at = self.read_oobs + i * self.oob_bytes
            self.status[i] = placed(self.status[i], at, self.pages[i])
            if (order and self.status[i] == PAGE_OK and self.confirmed[i] == LIVE and oob_order(at) == order):
                self.keys[n] = (<uint64_t> oob_lpa(at) << 32) | i  # true for nearly all pages
                n += 1
                continue
            ppa = block * self.pages_per_block + self.pages[i]
            if self.is_late(move, block, i):
                self.left[move.left_n] = ppa
                move.left_n += 1
                continue
            if not self.is_readable(block, i, order):
                if (move.kind != KIND_USER and self.status[i] == PAGE_OK and self.kinds[i] == KIND_USER
                        and self.lpas[i] < self.ssd.lpas and self.ssd.mapping.maps_to(self.lpas[i], ppa)):
                    return OF_USER
                self.lost_pages += 1
                if not self.poison(move, ppa, self.read_oobs + i * self.oob_bytes):
                    self.left[move.left_n] = ppa
                    move.left_n += 1
                    continue
                if move.with_data:
                    memset(self.data + <uint64_t> i * self.page_bytes, 0, self.page_bytes)
            if order == 0:
                oob_unpack(self.read_oobs + i * self.oob_bytes, &oob)
                order = oob.order
            self.keys[n] = (<uint64_t> oob_lpa(self.read_oobs + i * self.oob_bytes) << 32) | i
            n += 1
        self.sort_keys(move, n)
        for i in range(n):
            k = <uint32_t> self.keys[i]
            self.lpas[i] = <uint32_t> (self.keys[i] >> 32)
            self.olds[i] = block * self.pages_per_block + self.pages[k]
            self.kinds[i] = oob_kind(self.read_oobs + k * self.oob_bytes)
        return n

    cdef int confirm(self, const Move* move, uint32_t block, uint32_t first, uint32_t n) except -1 nogil:
        """Ask the owner whether pages ``first`` to ``first + n - 1`` of the live ones are what their OOBs say: a page
        with a wrong LPA would replace that LPA's page."""
        cdef uint32_t i
        for i in range(first, first + n):
            self.kinds[i] = oob_kind(self.read_oobs + i * self.oob_bytes)
            self.lpas[i] = oob_lpa(self.read_oobs + i * self.oob_bytes)
            self.olds[i] = block * self.pages_per_block + self.pages[i]
        (<Owner> self.ssd.owner_at[move.kind]).confirm(self.lpas + first, self.olds + first, n, self.confirmed + first)
        for i in range(first, first + n):
            if self.kinds[i] != move.kind:
                self.confirmed[i] = FOREIGN
        return 0

    cdef bint is_late(self, const Move* move, uint32_t block, uint32_t i) except -1 nogil:
        """Whether page ``i`` was superseded while validity calls it live: it needs no move. A page that did not read
        whole is read a second time first."""
        cdef uint64_t at = <uint64_t> i * self.page_bytes
        if self.status[i] != PAGE_OK:
            self.ssd.nand.read(block, self.pages[i], 1, self.data + at if move.with_data else <uint8_t*> NULL,
                               self.read_oobs + i * self.oob_bytes, self.status + i, move.cause, self.ready[i])
            self.status[i] = placed(self.status[i], self.read_oobs + i * self.oob_bytes, self.pages[i])
            self.confirm(move, block, i, 1)
        return self.status[i] == PAGE_OK and self.confirmed[i] == SUPERSEDED

    cdef bint is_readable(self, uint32_t block, uint32_t i, uint64_t order) except -1 nogil:
        """Whether live page ``i`` is whole and belongs to this block. All pages of a block have its order in their OOB;
        one with another order was meant for another block. While ``order`` is not known (0), the mapping is asked by
        LPA."""
        cdef Oob oob
        cdef uint32_t ppa = block * self.pages_per_block + self.pages[i]
        if self.status[i] != PAGE_OK or self.confirmed[i] != LIVE:
            return False
        oob_unpack(self.read_oobs + i * self.oob_bytes, &oob)
        if oob.order == order or oob.kind != KIND_USER:
            return True
        return self.is_named(&oob, ppa)

    cdef bint is_named(self, const Oob* oob, uint32_t ppa) except -1 nogil:
        """Whether the user page at ``ppa``, with that OOB, belongs to its LPA or to others that share it. For a page of
        another order, sharers do not count: it was meant for another block."""
        cdef uint64_t order = self.ssd.pool.order[ppa // self.pages_per_block]
        if oob.lpa >= self.ssd.lpas:
            return False
        if self.ssd.mapping.sharing is not None and oob.order != order != 0:
            return self.ssd.mapping.locate(oob.lpa) == ppa
        return self.ssd.mapping.maps_to(oob.lpa, ppa)

    cdef bint poison(self, Move* move, uint32_t ppa, uint8_t* at) except -1 nogil:
        """The live page at ``ppa`` cannot be read; ``at`` is the place of its OOB. A page without data but with its LPA
        and FLAG_LOST moves in its place: that LPA gives EIO from then on, not an older version, and the block can be
        used again. False if there is no such page to move: no LPA has it, or it is not a user page."""
        cdef uint8_t status = 0
        cdef Oob oob
        if move.kind != KIND_USER:
            self.ssd.checkpoint_due = True
            self.gone[move.gone_n] = ppa  # its owner is informed when the move is complete
            move.gone_n += 1
            return False
        read_oob(self.ssd.nand, ppa, at, &oob, &status, move.cause, self.ssd.now_ns)
        if status != PAGE_OK or oob.kind != KIND_USER or not self.is_named(&oob, ppa):
            # The last checkpoint calls the page live, and no recovery can find its owner: it would take the move for
            # unfinished and undo it with everything written after it. So a checkpoint is due now.
            self.ssd.checkpoint_due = True
            memset(at, 0xFF, self.oob_bytes)
            oob.lpa = self.ssd.mapping.owner_of(ppa)
            if oob.lpa == NONE:
                self.lost_pages -= self.ssd.validity.late  # a superseded page, in a block half erased since
                self.ssd.mapping.page_lost(ppa)
                return False
            oob.seq = self.ssd.seq_before(oob.lpa)
            oob.order = oob.number = 0
            oob.kind = KIND_USER
            oob.flags = 0
            oob.stream = 0
        oob.flags |= FLAG_LOST
        oob_pack(at, &oob)
        return True

    cdef int sort_keys(self, const Move* move, uint32_t n) noexcept nogil:
        """Radix sort by LPA: a comparison sort of random keys mispredicts half its branches. At most 8 bits per pass (a
        block has about as many pages as a byte has values), and no more than the number of passes needs."""
        cdef uint32_t[257] at
        cdef uint32_t i, digit
        cdef int shift = 32, done = 0
        cdef int bits = 64 - leading_zeros((self.ssd.lpas if move.kind == KIND_USER else NONE) | 1)
        cdef int passes = (bits + 7) // 8, width = (bits + passes - 1) // passes
        cdef uint32_t values = <uint32_t> 1 << width
        cdef uint64_t* a = self.keys
        cdef uint64_t* b = self.sorted
        cdef int64_t began
        if n < 32:
            sort(a, a + n)
            return 0
        began = wall_ns()
        while done < bits:
            memset(at, 0, (values + 1) * sizeof(uint32_t))
            for i in range(n):
                at[((a[i] >> shift) & (values - 1)) + 1] += 1
            for i in range(values):
                at[i + 1] += at[i]
            for i in range(n):
                digit = (a[i] >> shift) & (values - 1)
                b[at[digit]] = a[i]
                at[digit] += 1
            a, b = b, a
            shift += width
            done += width
        self.keys, self.sorted = a, b
        self.sort_ns += wall_ns() - began
        return 0

    cdef int copy_out(self, Move* move, uint32_t n) except -1 nogil:
        """Program the collected pages, sequence numbers unchanged; 0 if placement ended the move. The pages that
        placement puts in one block are one run, even if programmed in parts."""
        cdef Extent ext
        cdef uint32_t done = 0, in_run, run, ok
        move.total = n
        while done < n:
            ext.choice = 0
            self.ssd.placement.take(move.stream, self.lpas + done, n - done, &ext)
            if ext.n == 0:
                return 0
            run = ext.n
            in_run = 0
            while in_run < run:
                ext.n = min(run - in_run, <uint32_t> MOVE_RUN)
                ok = self.copy_run(move, done, &ext, in_run, run - in_run - ext.n)
                done += ok
                in_run += ok
                self.ssd.programmed(&ext, ok)
                if ok < ext.n:
                    break
                ext.page += ok
        return 1

    cdef uint32_t copy_run(self, Move* move, uint32_t first, Extent* ext, uint32_t before,
                           uint32_t behind) except? 0xFFFFFFFE nogil:
        """Program the ``ext.n`` pages from number ``first`` on, of a run with ``before`` pages before and ``behind``
        pages after them; returns how many were programmed."""
        cdef uint32_t i, k, ok
        cdef int64_t start = self.ssd.now_ns, end
        cdef uint64_t order = self.ssd.pool.order[ext.block]
        if move.one_by_one:
            self.read_again(move, first, ext.n)
        for i in range(ext.n):
            k = i if move.one_by_one else <uint32_t> self.keys[first + i]
            if move.kind != KIND_USER:
                memcpy(self.oobs + i * self.oob_bytes, self.read_oobs + k * self.oob_bytes, self.oob_bytes)
            oob_moved(self.oobs + i * self.oob_bytes, self.read_oobs + k * self.oob_bytes, order,
                      number_for(self.ssd.pool, ext.page + i), <uint8_t> move.stream, <uint8_t> move.group,
                      move.group and first + i + 1 == move.total)
            start = max(start, self.ready[k])
            if move.with_data and not move.one_by_one:
                memcpy(self.gather + <uint64_t> i * self.page_bytes,
                       self.data + <uint64_t> k * self.page_bytes, self.page_bytes)
        if self.ssd.mapping.scheme_oob and move.kind == KIND_USER:
            self.ssd.mapping.stamp(self.oobs + OOB_ENGINE, self.lpas + first, ext, before, behind)
        end = self.ssd.program(ext, self.gather if move.with_data else <uint8_t*> NULL, self.oobs, move.cause, start,
                               &ok)
        move.end_ns = max(move.end_ns, end)
        self.moved_programs[move.kind] += ok
        for i in range(ok):
            self.news[first + i] = ext.block * self.pages_per_block + ext.page + i
        return ok

    cdef int commit_move(self, const Move* move, uint32_t n) except -1 nogil:
        """Update the owner, then report the old pages dead."""
        cdef uint32_t i = 0, run
        while i < n:
            run = min(n - i, self.pages_per_block)
            (<Owner> self.ssd.owner_at[move.kind]).moved(self.lpas + i, self.olds + i, self.news + i, run)
            i += run
        if n and move.kind == KIND_USER and self.ssd.mapping.runs is not None:
            self.ssd.mapping.runs.ends(self.lpas, self.news, n)
        i = 0
        while i < n:
            run = 1
            while (i + run < n and self.news[i + run] == self.news[i] + run
                   and self.news[i + run] % self.pages_per_block != 0):
                run += 1
            self.ssd.validity.live_run(self.news[i], run)
            i += run
        self.ssd.validity.dead(self.olds, n)
        return 0

    cdef int let_left_die(self, const Move* move) except -1 nogil:
        """Report the live pages that were not moved as dead, except those that the owner of a lost page reported
        already."""
        cdef uint32_t i
        for i in range(move.left_n):
            if move.kind != KIND_USER and not self.ssd.validity.is_live(self.left[i]):
                self.left[i] = NONE
        self.ssd.validity.dead(self.left, move.left_n)
        if move.kind == KIND_USER and move.left_n:
            self.ssd.mapping.superseded_left(self.left, move.left_n)
        return 0
