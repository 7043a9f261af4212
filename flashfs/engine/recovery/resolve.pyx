# distutils: language = c++
"""Who wins: the part of a recovery that settles where each LPA, and each page of another kind, is.

All pages of an LPA lie side by side, oldest first (flashfs.engine.recovery.found_pages). The newest counts; one that is
a copy is noted as a move. When all are settled, moves that were not finished are undone. recovery.pyx has the rules.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free

from flashfs.engine.recovery.found_pages cimport FoundPages, Entry, entry_flags, entry_group, entry_seq
from flashfs.engine.contract.engine cimport KINDS
from flashfs.engine.contract.owner cimport Owner
from flashfs.engine.blocks.pool cimport (
    FLAG_MOVED,
    KIND_PAD,
    KIND_USER,
    MOVES_SHIFT,
    KIND_VALIDITY,
    NONE,
    OOB_ENGINE,
    Oob,
)
from flashfs.engine.recovery.spill_array cimport SpillArray
from flashfs.engine.recovery.records cimport CLAIMED, RecordTaker
from flashfs.engine.recovery.scan cimport EXCLUDED, ORIGIN, REOPENED, UNFINISHED
from flashfs.engine.device.ssd cimport Ssd
from nandimg._nand cimport PAGE_OK

cdef enum:
    MOVES_MOST = 1 << 29     # bytes of them in memory
    TRIM_PART = 4096         # LPAs that are unbound at once


cdef class Resolver(RecordTaker):
    """What was read is held against what the checkpoint says."""

    def __cinit__(self, Ssd ssd, bint repairs=False):
        self.moves = SpillArray(sizeof(Move), MOVES_MOST)
        while 2 << self.shift <= ssd.pages_per_block:
            self.shift += 1
        if 1 << self.shift != ssd.pages_per_block:
            self.shift = 0

    def __dealloc__(self):
        free(self.recent)

    @cython.final
    cdef int settle_validity(self) except -1:
        """Forget what the checkpoint says of blocks that were opened again, and let the newest copies of the validity
        store's own pages win. Once, behind each load."""
        cdef uint32_t block
        if self.is_settled:
            return 0
        with nogil:
            for block in range(self.ssd.nand.blocks):
                if self.marks[block] & REOPENED:
                    self.ssd.validity.forget(block)
        self.settle_kind(KIND_VALIDITY)
        self.is_settled = True
        return 0

    @cython.final
    cdef int settle_kind(self, int kind) except -1:
        """The pages of a kind that is not the user's."""
        cdef FoundPages entries = self.owned[kind]
        if entries is None or entries.count() == 0:
            return 0
        self.owner = <Owner> self.ssd.owner_at[kind]
        self.of_user = False
        with nogil:
            entries.sort(self.owner.ids)
            self.settle_all(entries.entry(0), entries.count())
        return 0

    @cython.final
    cdef resolve_all(self):
        cdef int kind
        with nogil:
            self.entries.sort(self.ssd.lpas)
        while True:
            self.winners = 0
            self.settle_validity()
            self.ssd.validity.pages_known()
            for kind in range(KINDS):      # before user pages: whoever asks where an LPA was reads translation pages
                if kind != KIND_USER and kind != KIND_VALIDITY:
                    self.settle_kind(kind)
            self.owner = self.ssd.mapping
            self.of_user = True
            self.restamps = self.ssd.mapping.recovery_restamps()
            with nogil:
                self.apply_trims()
                self.settle_all(self.entries.entry(0), self.entries.count())
            erased = self.newly(self.ssd.mapping.recovery_erased(), REOPENED)
            hurt = len(self.alarms) > 0
            if not erased and not self.newly(self.ssd.mapping.recovery_conflicts(hurt),
                                             EXCLUDED | (REOPENED if hurt else 0)):
                break
            if self.base is not None and self.ssd.mapping.places():
                raise RuntimeError("the recovery begins again, and the checkpoint was read into the mapping's table")
            self.load_base()
        self.figures["undone_moves"] = self.undone
        self.figures["undone_groups"] = self.undone_groups
        return f"{self.winners} pages changed place, {self.undone} moves undone"

    @cython.final
    cdef bint newly(self, blocks, uint8_t mark) except -1:
        """Whether any of the blocks gets ``mark``, of one bit or more, now."""
        cdef uint32_t block
        cdef bint any_new = False
        for block in blocks:
            any_new |= self.marks[block] & mark != mark
            self.marks[block] |= mark
        return any_new

    @cython.final
    cdef int settle_all(self, Entry* at, uint64_t n) except -1 nogil:
        """``n`` entries of pages of one owner, an LPA or id at a time, in ascending order."""
        cdef uint64_t i = 0, same
        self.moves.n = 0
        self.trim_index.begin()
        while i < n:
            same = 1
            while i + same < n and at[i + same].key == at[i].key:
                same += 1
            self.settle(at + i, same)
            i += same
        if self.names_all():
            with gil:
                self.recount()
        self.undo()
        if self.names_all():
            with gil:
                self.recount()
        return 0

    @cython.final
    cdef int apply_trims(self) except -1 nogil:
        """Every trim since the checkpoint unbinds what the checkpoint says; newer pages are bound after. In a block
        that was opened again nothing of that is left, and a translation page may live there by now."""
        cdef uint32_t lpa, n, part, i
        cdef uint64_t k
        cdef uint32_t* olds = self.ssd.olds
        for k in range(self.trim_index.count()):
            lpa = self.trim_index.record(k).lpa
            n = self.trim_index.record(k).n
            while n:
                part = min(n, <uint32_t> TRIM_PART)
                self.ssd.mapping.unbind(lpa, part, olds)
                for i in range(part):
                    if olds[i] != NONE and (self.is_marked(olds[i], REOPENED)
                                            or self.from_pages and not self.is_of(olds[i], lpa + i, 0)):
                        olds[i] = NONE
                self.kill_olds(part)
                lpa += part
                n -= part
        return 0

    @cython.final
    cdef bint is_marked(self, uint32_t ppa, uint8_t mark) noexcept nogil:
        """Whether the page's block is."""
        return self.marks[ppa >> self.shift if self.shift else ppa // self.ssd.pages_per_block] & mark

    @cython.final
    cdef int kill_olds(self, uint32_t n) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if self.ssd.olds[i] != NONE and not self.ssd.validity.is_live(self.ssd.olds[i]):
                self.ssd.olds[i] = NONE
        return self.ssd.validity.dead(self.ssd.olds, n)

    @cython.final
    cdef int settle(self, const Entry* of, uint64_t n) except -1 nogil:
        """``n`` entries, all of one LPA or id, oldest first: bind the winner."""
        cdef const Entry* best
        cdef uint32_t old, before
        while self.is_marked(of[n - 1].ppa, EXCLUDED):
            n -= 1
            if n == 0:
                return 0
        if self.of_user and self.names_all():
            return self.settle_named(of, n)
        if self.of_user and self.ssd.mapping.sharing is not None:
            return self.settle_shared(of, n)
        best = of + n - 1
        if self.of_user and self.trim_index.count() and self.trim_index.newest(best.key) > entry_seq(best):
            return 0
        if self.from_pages and self.of_user:
            old = self.original_of(best)
        else:
            old = self.owner.locate(best.key)
        if not self.of_user and old == NONE:
            return 0  # a page that the checkpoint does not know
        if old != NONE and self.is_marked(old, REOPENED):
            old = NONE  # what the checkpoint means is gone; another LPA's page may live there by now
        before = old
        if old != NONE:
            self.ssd.olds[0] = old
            self.kill_olds(1)
            before = self.ssd.olds[0]
            if entry_seq(best) > self.checkpoint_seq:
                before = NONE  # an older version: the original of a copy this new was not in the checkpoint
        before = self.made_of(of, n, before)
        self.owner.recovered(best.key, best.ppa, self.stamp_of(best.ppa))
        self.ssd.validity.live_run(best.ppa, 1)
        self.winners += 1
        if entry_flags(best) & FLAG_MOVED and before != NONE:
            self.note_move(best, before)
        return 0

    @cython.final
    cdef uint32_t made_of(self, const Entry* of, uint64_t n, uint32_t before) noexcept nogil:
        """What the last of ``n`` entries is a copy of, if that was found; else ``before``. One that was moved as often
        is another copy of the same: a recovery undid its move, was cut, and what it had gone on to move anew counts."""
        cdef const Entry* best = of + n - 1
        cdef uint64_t i = n - 1
        while i and entry_seq(of + i - 1) == entry_seq(best):
            i -= 1
            if entry_flags(of + i) >> MOVES_SHIFT != entry_flags(best) >> MOVES_SHIFT:
                return NONE if self.is_marked(of[i].ppa, EXCLUDED) else of[i].ppa
        return before

    @cython.final
    cdef uint32_t original_of(self, const Entry* copy) except? 0xFFFFFFFE nogil:
        """In a recovery from pages: what a copy was made of, if its move may have been the last and the mapping names
        that still; else NONE. Where other LPAs lay before is not asked: their entries say that it is to be found out.
        """
        cdef uint32_t old
        if not entry_flags(copy) & FLAG_MOVED or not self.recent[copy.ppa // self.ssd.pages_per_block]:
            return NONE
        old = self.owner.locate(copy.key)
        if old == NONE or old == copy.ppa or self.is_marked(old, REOPENED):
            return NONE
        return old if self.is_of(old, copy.key, entry_seq(copy)) else NONE

    @cython.final
    cdef bint is_of(self, uint32_t ppa, uint32_t lpa, uint64_t seq) except -1 nogil:
        """Whether the page there is that LPA's, of that sequence number if it is not 0. A translation page that was
        not written since may name one that was erased meanwhile, and is another's."""
        cdef Oob oob
        return (self.spare_read(ppa // self.ssd.pages_per_block, ppa % self.ssd.pages_per_block, &oob) == PAGE_OK
                and oob.kind == KIND_USER and oob.lpa == lpa and (seq == 0 or oob.seq == seq))

    @cython.final
    cdef int drop_superseded(self, uint32_t block) except -1 nogil:
        """Pages of a block that a late validity store calls live, though newer ones took their place, are dead; so are
        those that only fill a block up. Whose they are their spare areas say; or, where the block is half erased, the
        map of the checkpoint."""
        cdef Oob oob
        cdef uint32_t page, ppa, lpa
        cdef uint64_t seq
        for page in range(self.ssd.pages_per_block if self.ssd.validity.count(block) else 0):
            ppa = block * self.ssd.pages_per_block + page
            if not self.ssd.validity.is_live(ppa):
                continue
            if self.spare_read(block, page, &oob) == PAGE_OK:
                if oob.kind != KIND_USER and oob.kind != KIND_PAD:
                    continue
                lpa = oob.lpa if oob.kind == KIND_USER else NONE
                seq = oob.seq
            else:
                lpa = self.ssd.mapping.owner_of(ppa)
                seq = self.checkpoint_seq
            if lpa >= self.ssd.lpas or not self.counts(lpa, seq, ppa):
                self.ssd.validity.dead(&ppa, 1)
        return 0

    @cython.final
    cdef bint counts(self, uint32_t lpa, uint64_t seq, uint32_t ppa) except -1 nogil:
        """Whether the page of that number is the newest of its LPA: of those that were found, which are newer than what
        the mapping knew at the checkpoint, or else by the mapping; or others share it. An original counts as its copy
        does."""
        if self.ssd.mapping.sharing is not None and self.ssd.mapping.sharing.shared_by_others(ppa, lpa):
            return True
        if self.trimmed_seq(lpa) > seq:
            return False
        if self.has_entry(lpa):
            return self.found_seq(lpa) <= seq
        return self.ssd.mapping.locate(lpa) == ppa

    @cython.final
    cdef bint has_entry(self, uint32_t lpa) noexcept nogil:
        """Whether a page of that LPA was found."""
        cdef uint64_t i = self.entries.first_of(lpa)
        return i < self.entries.count() and self.entries.entry(i).key == lpa

    @cython.final
    cdef uint64_t trimmed_seq(self, uint32_t lpa) except? 0xFFFFFFFFFFFFFFFF nogil:
        """The newest trim of that LPA since the checkpoint. ``TrimIndex.newest`` goes through LPAs in rising order."""
        self.trim_index.begin()
        return self.trim_index.newest(lpa) if self.trim_index.count() else 0

    # A mapping whose ``sharing`` ``names_sharers`` has a record, with a sequence number of its own, of each LPA that
    # was pointed at another's page, and makes a new record of the same number when that page is moved. Such a record
    # is settled as if the page it names were one of that LPA; so an LPA is where the newest says, be it page or record.
    # Which pages live is not known before all LPAs are settled: it is counted then, and once more when moves have been
    # undone. A move that was cut before all records had been made anew leaves an LPA at the original, which lives: it
    # is undone.

    @cython.final
    cdef int settle_named(self, const Entry* of, uint64_t n) except -1 nogil:
        """As ``settle``, for such a mapping."""
        cdef const Entry* best = of + n - 1
        cdef uint32_t before
        if self.trim_index.count() and self.trim_index.newest(best.key) > entry_seq(best):
            return 0
        before = self.owner.locate(best.key)
        if (entry_seq(best) <= self.checkpoint_seq and not entry_flags(best) & CLAIMED
                and not self.was_there(best, before)):
            return 0
        if before != NONE and (self.is_gone(before) or entry_seq(best) > self.checkpoint_seq):
            before = NONE
        before = self.made_of(of, n, before)
        self.owner.recovered(best.key, best.ppa, self.stamp_of(best.ppa))
        self.winners += 1
        if entry_flags(best) & FLAG_MOVED and before != NONE and before != best.ppa:
            self.note_move(best, before)
        return 0

    @cython.final
    cdef bint was_there(self, const Entry* copy, uint32_t base) except -1 nogil:
        """Whether the LPA in the OOB of a page that is older than the checkpoint was at it then, when that has the LPA
        at ``base``. It may have left it to others. If what the checkpoint names was erased since, something of the
        LPA is newer, or this is its copy."""
        if base == NONE:
            return False
        return base == copy.ppa or self.is_gone(base) or self.is_of(base, copy.key, entry_seq(copy))

    @cython.final
    cdef bint is_gone(self, uint32_t ppa) except -1 nogil:
        """Whether the block of a page that the checkpoint names was opened again, or an erase was cut that began with
        this page and left the block's first: whoever was there was elsewhere by then."""
        cdef Oob oob
        cdef uint32_t block = ppa // self.ssd.pages_per_block
        return (self.is_marked(ppa, REOPENED) or self.ssd.nand.synced(block) == 0
                and self.spare_read(block, ppa % self.ssd.pages_per_block, &oob) != PAGE_OK)

    @cython.final
    cdef bint names_all(self) noexcept nogil:
        """Whether the mapping knows all who are at a page, each by a number of its own."""
        return self.ssd.mapping.sharing is not None and self.ssd.mapping.sharing.names_sharers

    @cython.final
    cdef recount(self):
        """Which pages live is what such a mapping names."""
        if self.of_user and self.names_all():
            self.ssd.validity.recount()

    @cython.final
    cdef int settle_shared(self, const Entry* of, uint64_t n) except -1 nogil:
        """As ``settle``, where several LPAs may be at one page. A page has a name, its LPA and sequence number, which
        its copies keep. Whether the LPA has left it, and whether others are there, the mapping knows; and where it
        lay."""
        cdef uint64_t i = 0, k, newest = 0
        cdef uint32_t before
        cdef bint own
        cdef const Entry* best = NULL
        if self.trim_index.count():
            newest = self.trim_index.newest(of.key)
        while i < n:
            k = i + 1                      # entries i to k - 1 are one page; the last of them is where it counts
            while k < n and entry_seq(of + k) == entry_seq(of + i):
                k += 1
            best = of + k - 1
            own = True
            before = self.ssd.mapping.sharing.recovered_copy(best.key, entry_seq(best), best.ppa, &own)
            if before != NONE:
                self.shared_moved(best, before)
                if self.is_marked(before, REOPENED):
                    before = NONE          # another page may live there by now
            before = self.made_of(of + i, k - i, before)
            if own and k == n and entry_seq(best) > newest:
                before = self.bind_newest(best, before)
            if (entry_flags(best) & FLAG_MOVED and before != NONE and before != best.ppa
                    and self.ssd.validity.is_live(best.ppa)):
                self.note_move(best, before)
            i = k
        return 0

    @cython.final
    cdef int shared_moved(self, const Entry* of, uint32_t before) except -1 nogil:
        """Those who were at ``before`` are where that page was found now."""
        if not self.is_marked(before, REOPENED) and before != of.ppa:
            self.ssd.olds[0] = before
            self.kill_olds(1)
        if self.ssd.mapping.sharing.shared_by_others(of.ppa, NONE):
            self.ssd.validity.live_run(of.ppa, 1)
        return 0

    @cython.final
    cdef uint32_t bind_newest(self, const Entry* best, uint32_t before) except? 0xFFFFFFFE nogil:
        """The LPA is at this page of its own. Returns the original, if that is a copy; ``before`` if it is known."""
        cdef uint32_t old = self.ssd.mapping.locate(best.key)
        if old != best.ppa:
            self.ssd.mapping.recovered(best.key, best.ppa, self.stamp_of(best.ppa))
        self.ssd.validity.live_run(best.ppa, 1)
        self.winners += 1
        if old == NONE or old == best.ppa or self.ssd.mapping.sharing.shared_by_others(old, best.key):
            return before
        # In a block that was opened again this may be a page that was found there, and that the last LPA leaves now. If
        # another LPA's page lies there, it has been found to be that LPA's, or will be.
        self.ssd.olds[0] = old
        self.kill_olds(1)
        if before == NONE and entry_seq(best) <= self.checkpoint_seq and not self.is_marked(old, REOPENED):
            before = self.ssd.olds[0]
        return before

    @cython.final
    cdef int note_move(self, const Entry* best, uint32_t old) except -1 nogil:
        cdef Move* move = <Move*> self.moves.add()
        move.seq = entry_seq(best)
        move.key = best.key
        move.old = old
        move.new = best.ppa
        move.group = entry_group(best)
        return 0

    @cython.final
    cdef int undo(self) except -1 nogil:
        """A victim that still has live pages of its own was not finished: its copied pages count where they were. So do
        all that the newest move of a group copied, if that was not finished."""
        cdef Move* move
        cdef uint32_t block, unfinished = 0, group
        cdef bint whole, any_group = False
        cdef uint64_t i
        for i in range(self.moves.n):
            move = <Move*> self.moves.at + i
            self.marks[move.old // self.ssd.pages_per_block] |= ORIGIN
        for block in range(self.ssd.nand.blocks if self.moves.n else 0):
            if self.marks[block] & ORIGIN:
                self.marks[block] &= ~(ORIGIN | UNFINISHED)
                if self.ssd.validity.late or self.from_pages:
                    self.drop_superseded(block)
                if self.ssd.validity.count(block):
                    self.marks[block] |= UNFINISHED
                    unfinished += 1
        group = self.unfinished_group() if self.of_user else 0
        for i in range(self.moves.n if unfinished or group else 0):
            move = <Move*> self.moves.at + i
            whole = group and move.group == group
            if whole or self.is_marked(move.old, UNFINISHED):
                self.undo_one(move)
                any_group |= whole
        self.undone_groups += any_group
        for block in range(self.ssd.nand.blocks if unfinished else 0):
            self.marks[block] &= ~UNFINISHED
        return 0

    @cython.final
    cdef uint32_t unfinished_group(self) except? 0xFFFFFFFF nogil:
        """The number of the newest move of a group, if it is to be undone; else 0. It was not finished if its last copy
        is not there, or one of its victims has live pages of its own. And it is undone only if all originals are there
        still, as they must be then: no victim was released. That does not lean on the numbers alone."""
        cdef Move* move
        cdef uint64_t i
        cdef uint32_t group = self.newest_group
        cdef bint unfinished = group and not self.ended[group]
        for i in range(self.moves.n if group else 0):
            move = <Move*> self.moves.at + i
            unfinished |= move.group == group and self.is_marked(move.old, UNFINISHED)
        for i in range(self.moves.n if unfinished else 0):
            move = <Move*> self.moves.at + i
            if move.group == group and not self.is_marked(move.old, UNFINISHED) and not self.is_there(move):
                return 0
        return group if unfinished else 0

    @cython.final
    cdef bint is_there(self, const Move* move) except -1 nogil:
        """Whether the page that was copied can be read still."""
        cdef Oob oob
        cdef Oob copy
        cdef uint32_t block = move.old // self.ssd.pages_per_block
        if self.names_all():  # it may be another LPA's
            return (self.ssd.nand.health(block) == 0
                    and self.spare_read(move.new // self.ssd.pages_per_block, move.new % self.ssd.pages_per_block,
                                        &copy) == PAGE_OK
                    and self.spare_read(block, move.old % self.ssd.pages_per_block, &oob) == PAGE_OK
                    and oob.kind == KIND_USER and oob.lpa == copy.lpa and oob.seq == copy.seq)
        return (self.ssd.nand.health(block) == 0
                and self.spare_read(block, move.old % self.ssd.pages_per_block, &oob) == PAGE_OK
                and oob.kind == KIND_USER and oob.lpa == move.key and oob.seq == move.seq)

    @cython.final
    cdef int undo_one(self, const Move* move) except -1 nogil:
        """The original counts, and its copy is dead; unless the original cannot be read: then the block it is in was
        erased after all, and the host died before the records of that were on its disk."""
        cdef Oob oob
        cdef bint own = True, shared = False
        cdef const uint8_t* stamp = self.stamp_of(move.new)
        if self.full_read(move.old, &oob) != PAGE_OK:
            return 0
        if self.of_user and self.restamps:
            if not self.is_there(move):
                return 0
            stamp = self.ssd.read_oobs + OOB_ENGINE
        if self.of_user and self.names_all():
            self.owner.recovered(move.key, move.old, stamp)
            self.undone += 1
            return 0
        self.ssd.olds[0] = move.new
        self.ssd.validity.dead(self.ssd.olds, 1)
        if self.of_user and self.ssd.mapping.sharing is not None:
            shared = self.ssd.mapping.sharing.recovered_copy(move.key, move.seq, move.old, &own) != NONE
        if not shared:
            self.owner.recovered(move.key, move.old, stamp)
        self.ssd.validity.live_run(move.old, 1)
        self.undone += 1
        return 0

    @cython.final
    cdef uint64_t found_seq(self, uint32_t lpa) except? 0xFFFFFFFFFFFFFFFF nogil:
        """The newest sequence number that was found in flash, 0 if there is no page of that LPA. Where nothing was
        scanned, that of the page the mapping names; if it cannot be read, it counts as the newest."""
        cdef uint64_t i, newest = 0
        cdef uint32_t ppa
        cdef Oob oob
        if lpa >= self.ssd.lpas:
            return 0
        if self.spared:
            ppa = self.ssd.mapping.locate(lpa)
            if ppa == NONE:
                return 0
            if self.spare_read(ppa // self.ssd.pages_per_block, ppa % self.ssd.pages_per_block, &oob) != PAGE_OK:
                return <uint64_t> 1 << 48
            return oob.seq
        i = self.entries.first_of(lpa)
        while i < self.entries.count() and self.entries.entry(i).key == lpa:
            if not self.is_marked(self.entries.entry(i).ppa, EXCLUDED):
                newest = max(newest, entry_seq(self.entries.entry(i)))
            i += 1
        return newest
