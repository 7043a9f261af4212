# distutils: language = c++
"""Which page counts: this part of a recovery settles the place of each LPA, and of each page of another kind.

All pages of an LPA are adjacent, oldest first (flashfs.engine.recovery.found_pages). The newest counts; if it is a
copy, it is noted as a move. When all are settled, unfinished moves are undone. recovery.pyx has the rules.
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
from flashfs.engine.recovery.found cimport EXCLUDED, ORIGIN, REOPENED, UNFINISHED, Found
from flashfs.engine.recovery.records cimport CLAIMED
from flashfs.engine.recovery.scan cimport Scanner
from nandimg._nand cimport PAGE_OK

from flashfs.errors import MapLostError

cdef enum:
    MOVES_MOST = 1 << 29     # bytes of moves in memory
    TRIM_PART = 4096         # LPAs that are unbound at once


@cython.final
cdef class Resolver:
    """Combines the scanned pages with the state of the checkpoint."""

    def __cinit__(self, Found found not None, Scanner scanner not None):
        self.found = found
        self.ssd = found.ssd
        self.scanner = scanner
        self.moves = SpillArray(sizeof(Move), MOVES_MOST)

    def __dealloc__(self):
        free(self.recent)

    cdef scan_and_settle(self):
        """Scan; afterwards the pages of a validity store in flash are known too, so a step of its own may read them."""
        note = self.scanner.scan()
        try:
            self.resolve_validity()
        except MapLostError as error:
            self.found.doubted = self.found.doubted or error
            self.found.is_settled = True    # as far as can be: the step ``fit`` makes validity again
        return note

    cdef int resolve_validity(self) except -1:
        """Drop the checkpoint's validity of blocks that were opened again, and settle the validity store's own pages.
        Once after each load."""
        cdef uint32_t block
        if self.found.is_settled:
            return 0
        with nogil:
            for block in range(self.ssd.nand.blocks):
                if self.found.marks[block] & REOPENED:
                    self.ssd.validity.forget(block)
        self.resolve_kind(KIND_VALIDITY)
        self.found.is_settled = True
        return 0

    cdef int resolve_kind(self, int kind) except -1:
        """Settle the pages of a kind other than user pages."""
        cdef FoundPages entries = self.found.owned[kind]
        if entries is None or entries.count() == 0:
            return 0
        self.owner = <Owner> self.ssd.owner_at[kind]
        self.of_user = False
        with nogil:
            entries.sort(self.owner.ids)
            self.resolve_entries(entries.entry(0), entries.count())
        return 0

    cdef resolve_all(self):
        cdef int kind
        with nogil:
            self.found.entries.sort(self.ssd.lpas)
        while True:
            self.winners = 0
            self.resolve_validity()
            self.ssd.validity.pages_known()
            for kind in range(KINDS):      # before user pages, because locating an LPA reads translation pages
                if kind != KIND_USER and kind != KIND_VALIDITY:
                    self.resolve_kind(kind)
            self.owner = self.ssd.mapping
            self.of_user = True
            self.restamps = self.ssd.mapping.recovery_restamps()
            with nogil:
                self.apply_trims()
                self.resolve_entries(self.found.entries.entry(0), self.found.entries.count())
            erased = self.newly(self.ssd.mapping.recovery_erased(), REOPENED)
            hurt = len(self.found.alarms) > 0
            if not erased and not self.newly(self.ssd.mapping.recovery_conflicts(hurt),
                                             EXCLUDED | (REOPENED if hurt else 0)):
                break
            if self.found.base is not None and self.ssd.mapping.places():
                raise RuntimeError("the recovery begins again, and the checkpoint was read into the mapping's table")
            self.found.load_base()
        self.found.figures["undone_moves"] = self.undone
        self.found.figures["undone_groups"] = self.undone_groups
        return f"{self.winners} pages changed place, {self.undone} moves undone"

    cdef bint newly(self, blocks, uint8_t mark) except -1:
        """Set ``mark`` (one bit or more) on the blocks; returns whether any of them lacked it."""
        cdef uint32_t block
        cdef bint any_new = False
        for block in blocks:
            any_new |= self.found.marks[block] & mark != mark
            self.found.mark(block, mark)
        return any_new

    cdef int resolve_entries(self, Entry* at, uint64_t n) except -1 nogil:
        """Settle ``n`` entries of one owner, an LPA or id at a time, in ascending order."""
        cdef uint64_t i = 0, same
        self.moves.n = 0
        self.found.trim_index.begin()
        while i < n:
            same = 1
            while i + same < n and at[i + same].key == at[i].key:
                same += 1
            self.resolve_versions(at + i, same)
            i += same
        if self.names_all():
            with gil:
                self.recount()
        self.undo()
        if self.names_all():
            with gil:
                self.recount()
        return 0

    cdef int apply_trims(self) except -1 nogil:
        """Unbind what each trim since the checkpoint covers; newer pages are bound afterwards. Old pages in blocks that
        were opened again are not reported dead: a translation page may be live there by now."""
        cdef uint32_t lpa, n, part, i
        cdef uint64_t k
        cdef uint32_t* olds = self.ssd.olds
        for k in range(self.found.trim_index.count()):
            lpa = self.found.trim_index.record(k).lpa
            n = self.found.trim_index.record(k).n
            while n:
                part = min(n, <uint32_t> TRIM_PART)
                self.ssd.mapping.unbind(lpa, part, olds)
                for i in range(part):
                    if olds[i] != NONE and (self.found.is_marked(olds[i], REOPENED)
                                            or self.found.from_pages and not self.found.is_of(olds[i], lpa + i, 0)):
                        olds[i] = NONE
                self.kill_olds(part)
                lpa += part
                n -= part
        return 0

    cdef int kill_olds(self, uint32_t n) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if self.ssd.olds[i] != NONE and not self.ssd.validity.is_live(self.ssd.olds[i]):
                self.ssd.olds[i] = NONE
        return self.ssd.validity.dead(self.ssd.olds, n)

    cdef int resolve_versions(self, const Entry* of, uint64_t n) except -1 nogil:
        """Bind the newest of ``n`` entries, all of one LPA or id, oldest first."""
        cdef const Entry* best
        cdef uint32_t old, before
        while self.found.is_marked(of[n - 1].ppa, EXCLUDED):
            n -= 1
            if n == 0:
                return 0
        if self.of_user and self.names_all():
            return self.resolve_named(of, n)
        if self.of_user and self.ssd.mapping.sharing is not None:
            return self.resolve_shared(of, n)
        best = of + n - 1
        if self.of_user and self.found.trim_index.count() and self.found.trim_index.newest(best.key) > entry_seq(best):
            return 0
        if self.found.from_pages and self.of_user:
            old = self.original_of(best)
        else:
            old = self.owner.locate(best.key)
        if not self.of_user and old == NONE:
            return 0  # an id that the checkpoint does not know
        if old != NONE and self.found.is_marked(old, REOPENED):
            old = NONE  # the checkpoint's page is gone; another LPA's may be there by now
        before = old
        if old != NONE:
            self.ssd.olds[0] = old
            self.kill_olds(1)
            before = self.ssd.olds[0]
            if entry_seq(best) > self.found.checkpoint_seq:
                before = NONE  # an older version: the checkpoint cannot name the original of so new a copy
        before = self.made_of(of, n, before)
        self.owner.recovered(best.key, best.ppa, self.found.stamp_of(best.ppa))
        self.ssd.validity.live_run(best.ppa, 1)
        self.winners += 1
        if entry_flags(best) & FLAG_MOVED and before != NONE:
            self.note_move(best, before)
        return 0

    cdef uint32_t made_of(self, const Entry* of, uint64_t n, uint32_t before) noexcept nogil:
        """The original of the last of ``n`` entries, if it was found; else ``before``. An entry that was moved as often
        is another copy of the same original: a recovery undid that move and was interrupted after moving the page
        again; the later copy counts."""
        cdef const Entry* best = of + n - 1
        cdef uint64_t i = n - 1
        while i and entry_seq(of + i - 1) == entry_seq(best):
            i -= 1
            if entry_flags(of + i) >> MOVES_SHIFT != entry_flags(best) >> MOVES_SHIFT:
                return NONE if self.found.is_marked(of[i].ppa, EXCLUDED) else of[i].ppa
        return before

    cdef uint32_t original_of(self, const Entry* copy) except? 0xFFFFFFFE nogil:
        """In a recovery from pages: the original of a copy, if its move may have been the last one and the mapping
        still names the original; else NONE. For other entries the old place is not looked up."""
        cdef uint32_t old
        if not entry_flags(copy) & FLAG_MOVED or not self.recent[copy.ppa // self.ssd.pages_per_block]:
            return NONE
        old = self.owner.locate(copy.key)
        if old == NONE or old == copy.ppa or self.found.is_marked(old, REOPENED):
            return NONE
        return old if self.found.is_of(old, copy.key, entry_seq(copy)) else NONE

    cdef int drop_superseded(self, uint32_t block) except -1 nogil:
        """Report superseded pages of a block, which a late validity store calls live, as dead, and padding too. The
        owner of a page comes from its spare area or, if the block is half erased, from the checkpoint's map."""
        cdef Oob oob
        cdef uint32_t page, ppa, lpa
        cdef uint64_t seq
        for page in range(self.ssd.pages_per_block if self.ssd.validity.count(block) else 0):
            ppa = block * self.ssd.pages_per_block + page
            if not self.ssd.validity.is_live(ppa):
                continue
            if self.found.spare_read(block, page, &oob) == PAGE_OK:
                if oob.kind != KIND_USER and oob.kind != KIND_PAD:
                    continue
                lpa = oob.lpa if oob.kind == KIND_USER else NONE
                seq = oob.seq
            elif self.ssd.kind_of(block) != KIND_USER:
                continue                    # the part that named it finds out that it is lost
            else:
                lpa = self.ssd.mapping.owner_of(ppa)
                seq = self.found.checkpoint_seq
            if lpa >= self.ssd.lpas or not self.counts(lpa, seq, ppa):
                self.ssd.validity.dead(&ppa, 1)
        return 0

    cdef bint counts(self, uint32_t lpa, uint64_t seq, uint32_t ppa) except -1 nogil:
        """Whether the page with that sequence number is the newest of its LPA, or is shared by others. Found pages
        decide, because they are newer than the checkpoint's mapping; otherwise the mapping does. An original counts as
        its copy does."""
        if self.ssd.mapping.sharing is not None and self.ssd.mapping.sharing.shared_by_others(ppa, lpa):
            return True
        if self.trimmed_seq(lpa) > seq:
            return False
        if self.has_entry(lpa):
            return self.found_seq(lpa) <= seq
        return self.ssd.mapping.locate(lpa) == ppa

    cdef bint has_entry(self, uint32_t lpa) noexcept nogil:
        """Whether a page of that LPA was found."""
        cdef uint64_t i = self.found.entries.first_of(lpa)
        return i < self.found.entries.count() and self.found.entries.entry(i).key == lpa

    cdef uint64_t trimmed_seq(self, uint32_t lpa) except? 0xFFFFFFFFFFFFFFFF nogil:
        """The newest trim of that LPA since the checkpoint. ``TrimIndex.newest`` expects ascending LPAs, hence
        ``begin``."""
        self.found.trim_index.begin()
        return self.found.trim_index.newest(lpa) if self.found.trim_index.count() else 0

    # A mapping whose ``sharing`` has ``names_sharers`` keeps a record, with its own sequence number, of each LPA that
    # was mapped to another LPA's page, and writes a new record with the same number when that page is moved. A record
    # is settled as if the page it names belonged to that LPA, so the newest page or record gives an LPA's place. Which
    # pages are live is known only when all LPAs are settled: it is counted then, and again after moves are undone. If a
    # move was interrupted before all records were rewritten, some LPA is still at the original, which is live, so the
    # move is undone.

    cdef int resolve_named(self, const Entry* of, uint64_t n) except -1 nogil:
        """As ``resolve_versions``, for such a mapping."""
        cdef const Entry* best = of + n - 1
        cdef uint32_t before
        if self.found.trim_index.count() and self.found.trim_index.newest(best.key) > entry_seq(best):
            return 0
        before = self.owner.locate(best.key)
        if (entry_seq(best) <= self.found.checkpoint_seq and not entry_flags(best) & CLAIMED
                and not self.was_there(best, before)):
            return 0
        if before != NONE and (self.is_gone(before) or entry_seq(best) > self.found.checkpoint_seq):
            before = NONE
        before = self.made_of(of, n, before)
        self.owner.recovered(best.key, best.ppa, self.found.stamp_of(best.ppa))
        self.winners += 1
        if entry_flags(best) & FLAG_MOVED and before != NONE and before != best.ppa:
            self.note_move(best, before)
        return 0

    cdef bint was_there(self, const Entry* copy, uint32_t base) except -1 nogil:
        """Whether a page older than the checkpoint was still its LPA's at the checkpoint, which maps the LPA to
        ``base``; the LPA may have left it to others. If the page at ``base`` was erased since, then either the LPA has
        a newer page, or this is the copy."""
        if base == NONE:
            return False
        return base == copy.ppa or self.is_gone(base) or self.found.is_of(base, copy.key, entry_seq(copy))

    cdef bint is_gone(self, uint32_t ppa) except -1 nogil:
        """Whether a page that the checkpoint names is gone: its block was opened again, or an interrupted erase
        destroyed this page and left the block's first. Its LPAs were moved elsewhere by then."""
        cdef Oob oob
        cdef uint32_t block = ppa // self.ssd.pages_per_block
        return (self.found.is_marked(ppa, REOPENED) or self.ssd.nand.synced(block) == 0
                and self.found.spare_read(block, ppa % self.ssd.pages_per_block, &oob) != PAGE_OK)

    cdef bint names_all(self) noexcept nogil:
        """Whether the mapping knows all LPAs at a page, each by its own sequence number."""
        return self.ssd.mapping.sharing is not None and self.ssd.mapping.sharing.names_sharers

    cdef recount(self):
        """For such a mapping: the live pages are those that it names."""
        if self.of_user and self.names_all():
            self.ssd.mapping.sharing.recount()

    cdef int resolve_shared(self, const Entry* of, uint64_t n) except -1 nogil:
        """As ``resolve_versions``, where several LPAs may share a page. A page has a name, LPA and sequence number; its
        copies keep it. The mapping knows whether the LPA has left it, whether others share it, and where it was."""
        cdef uint64_t i = 0, k, newest = 0
        cdef uint32_t before
        cdef bint own
        cdef const Entry* best = NULL
        if self.found.trim_index.count():
            newest = self.found.trim_index.newest(of.key)
        while i < n:
            k = i + 1                      # entries i to k - 1 are versions of one page; the last one counts
            while k < n and entry_seq(of + k) == entry_seq(of + i):
                k += 1
            best = of + k - 1
            own = True
            before = self.ssd.mapping.sharing.recovered_copy(best.key, entry_seq(best), best.ppa, &own)
            if before != NONE:
                self.shared_moved(best, before)
                if self.found.is_marked(before, REOPENED):
                    before = NONE          # another page may be live there by now
            before = self.made_of(of + i, k - i, before)
            if own and k == n and entry_seq(best) > newest:
                before = self.bind_newest(best, before)
            if (entry_flags(best) & FLAG_MOVED and before != NONE and before != best.ppa
                    and self.ssd.validity.is_live(best.ppa)):
                self.note_move(best, before)
            i = k
        return 0

    cdef int shared_moved(self, const Entry* of, uint32_t before) except -1 nogil:
        """Update validity: the LPAs at ``before`` are now at the place where that page was found."""
        if not self.found.is_marked(before, REOPENED) and before != of.ppa:
            self.ssd.olds[0] = before
            self.kill_olds(1)
        if self.ssd.mapping.sharing.shared_by_others(of.ppa, NONE):
            self.ssd.validity.live_run(of.ppa, 1)
        return 0

    cdef uint32_t bind_newest(self, const Entry* best, uint32_t before) except? 0xFFFFFFFE nogil:
        """Bind the LPA to this page of its own. Returns the original if the page is a copy: ``before`` if that is
        known."""
        cdef uint32_t old = self.ssd.mapping.locate(best.key)
        if old != best.ppa:
            self.ssd.mapping.recovered(best.key, best.ppa, self.found.stamp_of(best.ppa))
        self.ssd.validity.live_run(best.ppa, 1)
        self.winners += 1
        if old == NONE or old == best.ppa or self.ssd.mapping.sharing.shared_by_others(old, best.key):
            return before
        # In a block that was opened again, ``old`` may be a page that was found there and loses its last LPA now. If
        # another LPA's page is there, that LPA's entry settles it, before or after this.
        self.ssd.olds[0] = old
        self.kill_olds(1)
        if before == NONE and entry_seq(best) <= self.found.checkpoint_seq and not self.found.is_marked(old, REOPENED):
            before = self.ssd.olds[0]
        return before

    cdef int note_move(self, const Entry* best, uint32_t old) except -1 nogil:
        cdef Move* move = <Move*> self.moves.add()
        move.seq = entry_seq(best)
        move.key = best.key
        move.old = old
        move.new = best.ppa
        move.group = entry_group(best)
        return 0

    cdef int undo(self) except -1 nogil:
        """Undo unfinished moves. A victim that still has live pages was not finished: its copied pages count at their
        old places. So do all pages of the newest move of a group, if that was not finished."""
        cdef Move* move
        cdef uint32_t block, unfinished = 0, group
        cdef bint whole, any_group = False
        cdef uint64_t i
        for i in range(self.moves.n):
            move = <Move*> self.moves.at + i
            self.found.mark(move.old // self.ssd.pages_per_block, ORIGIN)
        for block in range(self.ssd.nand.blocks if self.moves.n else 0):
            if self.found.marks[block] & ORIGIN:
                self.found.unmark(block, ORIGIN | UNFINISHED)
                if self.ssd.validity.late or self.found.from_pages:
                    self.drop_superseded(block)
                if self.ssd.validity.count(block):
                    self.found.mark(block, UNFINISHED)
                    unfinished += 1
        group = self.unfinished_group() if self.of_user else 0
        for i in range(self.moves.n if unfinished or group else 0):
            move = <Move*> self.moves.at + i
            whole = group and move.group == group
            if whole or self.found.is_marked(move.old, UNFINISHED):
                self.undo_one(move)
                any_group |= whole
        self.undone_groups += any_group
        for block in range(self.ssd.nand.blocks if unfinished else 0):
            self.found.unmark(block, UNFINISHED)
        return 0

    cdef uint32_t unfinished_group(self) except? 0xFFFFFFFF nogil:
        """The number of the newest move of a group, if it must be undone; else 0. It is unfinished if its last copy is
        missing, or one of its victims has live pages that were not copied. It is undone only if all originals still
        exist, which must be so in an unfinished move: no victim was released. This check is in addition to the
        numbers."""
        cdef Move* move
        cdef uint64_t i
        cdef uint32_t group = self.found.newest_group
        cdef bint unfinished = group and not self.found.ended[group]
        for i in range(self.moves.n if group else 0):
            move = <Move*> self.moves.at + i
            unfinished |= move.group == group and self.found.is_marked(move.old, UNFINISHED)
        for i in range(self.moves.n if unfinished else 0):
            move = <Move*> self.moves.at + i
            if move.group == group and not self.found.is_marked(move.old, UNFINISHED) and not self.is_there(move):
                return 0
        return group if unfinished else 0

    cdef bint is_there(self, const Move* move) except -1 nogil:
        """Whether the original can still be read."""
        cdef Oob oob
        cdef Oob copy
        cdef uint32_t block = move.old // self.ssd.pages_per_block
        if self.names_all():  # the page may be named after another LPA
            return (self.ssd.nand.health(block) == 0
                    and self.found.spare_read(move.new // self.ssd.pages_per_block, move.new % self.ssd.pages_per_block,
                                              &copy) == PAGE_OK
                    and self.found.spare_read(block, move.old % self.ssd.pages_per_block, &oob) == PAGE_OK
                    and oob.kind == KIND_USER and oob.lpa == copy.lpa and oob.seq == copy.seq)
        return (self.ssd.nand.health(block) == 0
                and self.found.spare_read(block, move.old % self.ssd.pages_per_block, &oob) == PAGE_OK
                and oob.kind == KIND_USER and oob.lpa == move.key and oob.seq == move.seq)

    cdef int undo_one(self, const Move* move) except -1 nogil:
        """Make the original count and its copy dead; unless the original cannot be read: then its block was erased, and
        the host crashed before the records of that erase were on its disk."""
        cdef Oob oob
        cdef bint own = True, shared = False
        cdef const uint8_t* stamp = self.found.stamp_of(move.new)
        if self.found.full_read(move.old, &oob) != PAGE_OK:
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

    cdef uint64_t found_seq(self, uint32_t lpa) except? 0xFFFFFFFFFFFFFFFF nogil:
        """The newest sequence number found in flash for that LPA, 0 if there is no page. Without a scan, that of the
        page that the mapping names; if it cannot be read, it counts as the newest."""
        cdef uint64_t i, newest = 0
        cdef uint32_t ppa
        cdef Oob oob
        if lpa >= self.ssd.lpas:
            return 0
        if self.found.spared:
            ppa = self.ssd.mapping.locate(lpa)
            if ppa == NONE:
                return 0
            if self.found.spare_read(ppa // self.ssd.pages_per_block, ppa % self.ssd.pages_per_block, &oob) != PAGE_OK:
                return <uint64_t> 1 << 48
            return oob.seq
        i = self.found.entries.first_of(lpa)
        while i < self.found.entries.count() and self.found.entries.entry(i).key == lpa:
            if not self.found.is_marked(self.found.entries.entry(i).ppa, EXCLUDED):
                newest = max(newest, entry_seq(self.found.entries.entry(i)))
            i += 1
        return newest
