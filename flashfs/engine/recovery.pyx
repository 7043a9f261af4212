# distutils: language = c++
# cython: wraparound=True
"""Recovery: from an image alone to a device on which every check holds, as a table of named steps.

It only reads until the last step, so it can be cut anywhere and done again with the same outcome; the last step
writes a checkpoint, which freezes the outcome: what was judged lost stays lost.

Who wins. Of the copies of an LPA the one with the highest sequence number counts, unless a later trim covers it. Two
copies with the same number are an original and what cleaning made of it: the copy counts, unless the move was not
finished, which shows in the original's block still having live pages that were not copied. Then that block's pages
all count where they are and the copies are dead, so that an interrupted move costs no space. A move of a group of
blocks is undone as a whole: its copies say which move made them, and the last of them that it is the last.

The pages found lie in one array in the order of LPAs (flashfs.engine.entries), and everything else that grows with
them in others like it: no object of Python stands for a page.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from flashfs.engine.entries cimport Entries, Entry, entry_flags, entry_group, entry_seq
from flashfs.engine.mover cimport GROUPS
from flashfs.engine.parts cimport KINDS, Owner
from flashfs.engine.pool cimport (
    CAUSE_RECOVERY,
    FLAG_CLEAN,
    FLAG_LAST,
    FLAG_MOVED,
    KIND_CHECKPOINT,
    KIND_USER,
    KIND_VALIDITY,
    NONE,
    OOB_ENGINE,
    STATE_BAD,
    STATE_CLOSED,
    STATE_FREE,
    STATE_META,
    STATE_OPEN,
    STREAM_META,
    Oob,
    runs_out,
)
from flashfs.engine.records cimport Records
from flashfs.engine.scan cimport (
    EXCLUDED,
    HEADED,
    IN_LOG,
    ORIGIN,
    REOPENED,
    SCANNED,
    TORN_IN,
    UNFINISHED,
    Scanner,
)
from flashfs.engine.ssd cimport Ssd
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

from dataclasses import dataclass, field

from flashfs.engine.metalog import LoadedCheckpoint, boot_hints
from flashfs.errors import CorruptError, MapLostError

cdef enum:
    MOVES_MOST = 1 << 29     # bytes of them in memory
    TRIM_PART = 4096         # LPAs that are unbound at once

cdef struct Move:
    uint64_t seq
    uint32_t key, old, new, group


@dataclass(slots=True)
class Step:
    """What one step did and what it cost. ``part`` says whose it is: the engine's, or the mapping's, ..."""

    name: str
    about: str
    note: str = ""
    spare_reads: int = 0
    reads: int = 0
    programs: int = 0
    virtual_us: float = 0.0
    wall_ms: float = 0.0
    part: str = "engine"


@dataclass(slots=True)
class Report:
    """How a mount came by its state. ``clean``: from a clean checkpoint, with nothing scanned;
    ``fresh``: there was nothing yet."""

    clean: bool = False
    fresh: bool = False
    steps: list = field(default_factory=list)
    figures: dict = field(default_factory=dict)
    alarms: list = field(default_factory=list)  # what no power cut can have left, a line each

    def summary(self):
        """One line for whoever mounted."""
        reads = sum(step.reads for step in self.steps)
        spares = sum(step.spare_reads for step in self.steps)
        if self.fresh:
            return "fresh: bound and formatted"
        if self.clean:
            return f"clean: read a checkpoint of {reads} pages, scanned nothing"
        return (f"recovered: {spares} spare and {reads} page reads, {self.figures.get('pages_found', 0)} pages written "
                f"since the last checkpoint, {self.figures.get('torn', 0)} torn")


class Recovery:
    """One recovery of one device; ``run`` performs STEPS in order, and behind each those that the parts of the FTL
    want done then (``recovery_steps`` in flashfs.engine.parts). ``readonly`` leaves the last one out. ``repairs``
    passes over a checkpoint that is whole and does not fit the device, which is refused otherwise."""

    STEPS = (
        ("boot", "follow the boot hint to a clean checkpoint"),
        ("headers", "read the first spare area of every block"),
        ("metadata", "read the spare areas of the metadata blocks"),
        ("checkpoint", "load the newest whole checkpoint"),
        ("trims", "read the trims logged since"),
        ("scan", "read the spare areas of pages programmed since"),
        ("resolve", "let the newest copy of each page win"),
        ("nvram", "put back what the protected write buffer saved"),
        ("blocks", "tell free, open and closed blocks apart"),
        ("fit", "hold mapping and pages against each other"),
        ("commit", "write a checkpoint of what was found"),
    )

    def __init__(self, ssd, readonly=False, repairs=False):
        self.work = Worker(ssd, repairs)
        self.parts = {"mapping": ssd.mapping, "validity": ssd.validity, "placement": ssd.placement}
        self.readonly = readonly
        self.report = Report()

    def table(self):
        """[(whose, name, about, what does it)] of all steps in order."""
        own = {name for name, _ in self.STEPS}
        asked = [(part, *step) for part, one in self.parts.items() for step in one.recovery_steps()]
        for part, name, after, _, _ in asked:
            if after not in own or name in own:
                raise ValueError(f"{part}: a step {name!r} behind {after!r}: it needs a name of its own, and to follow "
                                 f"one of {', '.join(own)}")
        table = []
        for name, about in self.STEPS:
            table.append(("engine", name, about, getattr(self.work, name)))
            table += [(part, step, what, self.work.guarded(run)) for part, step, after, what, run in asked
                      if after == name]
        return table

    def run(self):
        """Leave the device ready; returns the Report. CorruptError if the image holds what no power cut leaves."""
        for part, name, about, run in self.table():
            if self.readonly and name == "commit":
                self.work.keep_in_memory()
                break                       # that, and what would follow it, changes the image
            step = Step(name, about, part=part)
            before = self.work.meter()
            step.note = run() or ""
            after = self.work.meter()
            step.spare_reads, step.reads, step.programs = (after[i] - before[i] for i in range(3))
            step.virtual_us = (after[3] - before[3]) / 1000
            step.wall_ms = (after[4] - before[4]) * 1000
            self.report.steps.append(step)
            if self.work.clean:
                self.report.clean = True
                break
        self.report.figures = self.work.figures
        self.report.alarms = self.work.alarms
        return self.report


@cython.final
cdef class Worker(Scanner):
    """The steps that follow the reading: who wins, and what that makes of the device."""
    cdef readonly bint clean
    cdef uint64_t winners, undone, undone_groups
    cdef Owner owner                       # whose pages are being settled
    cdef bint of_user                      # ... the mapping's, that is
    cdef Records moves                     # of the settling that is under way
    cdef object doubted                    # what a step of a part found that cannot be
    cdef uint32_t shift                    # of a PPA to its block; 0: blocks are no power of two of pages
    cdef list back                         # (seq, LPA, page) that the NVRAM saved
    cdef object slots                      # (LPA, seq, page) of the NVRAM's slots, once they are read
    cdef bint spared                       # the mapping knows all without a scan

    def __cinit__(self, Ssd ssd, bint repairs=False):
        self.moves = Records(sizeof(Move), MOVES_MOST)
        self.back = []
        while 2 << self.shift <= ssd.pages_per_block:
            self.shift += 1
        if 1 << self.shift != ssd.pages_per_block:
            self.shift = 0

    def guarded(self, run):
        """A step of a part. What it finds to be impossible is held against the mapping in the step ``fit``."""
        def step():
            try:
                return run()
            except (ValueError, MapLostError) as error:
                self.doubted = self.doubted or error
                return f"given up: {error}"
        return step

    def boot(self):
        """A clean checkpoint proves itself: the page behind its descriptor is still erased, and whoever mounts it
        programs that page before anything else."""
        cdef Oob oob
        hints = boot_hints([self.ssd.nand.boot_slot(0), self.ssd.nand.boot_slot(1)])
        self.hint_id = hints[0][0] if hints else 0
        if self.repairs:
            return "a repair believes no checkpoint unseen"
        if not hints or hints[0][1] >= self.ssd.nand.blocks * self.ssd.pages_per_block:
            return "no hint"
        # The newest hint or none: an erase that was cut short may have taken the mount mark from an older checkpoint
        # and left its descriptor, but never before a newer hint was written.
        identity, ppa = hints[0]
        status = self.full_read(ppa, &oob)
        if (status != PAGE_OK or oob.kind != KIND_CHECKPOINT or oob.seq != identity
                or oob.flags != (FLAG_LAST | FLAG_CLEAN) or runs_out(oob.order) or not self.untouched_since(ppa)):
            return f"checkpoint {identity} is not clean"
        try:
            self.stand_on(LoadedCheckpoint(self.read_meta, ppa, self.ssd.page_bytes, self.checkpoint_most(),
                                           self.read_meta_run))
        except CorruptError:
            return f"checkpoint {identity} is not whole"
        self.load_base()
        log = self.take_pool(oob.order)
        self.ssd.pool.doubt_open()
        doubt = self.misfit(False)
        if doubt:
            self.stand_on(None)
            return f"checkpoint {identity} is clean, but {doubt}"
        self.ssd.meta.adopt(self.base, log)
        self.ssd.placement.attach()
        self.ssd.resume(self.base.seq, self.base.mounts, True)
        self.clean = True
        self.let_go()
        return f"checkpoint {identity} is clean"

    cdef misfit(self, bint whole):
        """What is wrong with the mapping now that it is loaded as far as it is going to be, or None. ``whole``: what it
        keeps in flash is read as well."""
        if self.doubted is not None:
            return self.doubted
        try:
            self.ssd.mapping.recovery_ends()
            self.ssd.mapping.verify(whole)
            doubt = self.ssd.mapping.doubt(whole)
        except (ValueError, MapLostError) as error:
            return error
        self.ssd.mapping.manages()
        return doubt

    cdef bint untouched_since(self, uint32_t ppa) except -1:
        cdef Oob oob
        if (ppa + 1) % self.ssd.pages_per_block == 0:
            return False
        status = self.full_read(ppa + 1, &oob)
        if status == PAGE_ERASED and self.ssd.nand.synced(ppa // self.ssd.pages_per_block) > (
                (ppa + 1) % self.ssd.pages_per_block):
            self.alarm(f"PPA {ppa + 1}: the mark of a mount was flushed and is not there")
            return False
        return status == PAGE_ERASED

    cdef take_pool(self, uint64_t order):
        """The pool as this checkpoint leaves it, and the blocks of the log; ``order`` is that of its last block, opened
        after the pool was saved."""
        cdef uint32_t block, per_block = self.ssd.pages_per_block
        cdef Ssd ssd = self.ssd
        ssd.pool.last_order = self.base.order + 1
        log = self.base.blocks(per_block)
        for block in log:
            ssd.pool.state[block] = STATE_META
            ssd.pool.stream[block] = STREAM_META
            ssd.pool.blank[block] = 0
            ssd.pool.next_page[block] = per_block
        block = self.base.descriptor_ppa // per_block
        ssd.pool.next_page[block] = self.base.descriptor_ppa % per_block + 1
        ssd.pool.order[block] = order
        ssd.pool.rebuild_free()
        return log

    # --- what the mapping knows without

    def scan(self):
        """Nothing, if the mapping has it all from elsewhere. Else as of the Scanner; then the pages of a validity store
        in flash are known too, if it has any, so a step of its own may read them."""
        known = self.ssd.mapping.known_without_scan()
        if known is not None and not self.repairs:
            self.spared = not self.doubts_slots(known[1])
            if self.spared:
                self.seq = max(self.seq, <uint64_t> known[0])
                self.figures["blocks_scanned"] = 0
                return "not needed"
            self.load_base()
        note = Scanner.scan(self)
        self.settle_validity()
        return note

    cdef bint doubts_slots(self, uint64_t trimmed) except -1:
        """Whether a page in the NVRAM may be older than a trim of which no record was written: the mapping has no page
        of that LPA, and cannot say whether it had one when it was trimmed."""
        cdef uint64_t logged = self.floor
        self.slots = self.ssd.buffer.survivors(CAUSE_RECOVERY)
        if self.cut.count():
            logged = max(logged, self.cut.record(self.cut.count() - 1).seq)
        if trimmed <= logged:
            return False
        for lpa, seq, _ in self.slots:
            if lpa < self.ssd.lpas and self.floor < seq < trimmed and self.ssd.mapping.locate(lpa) == NONE:
                return True
        return False

    # --- who wins

    def resolve(self):
        if self.spared:
            return "not needed"
        try:
            return self.resolve_all()
        except MapLostError as error:
            self.alarm(f"{error}: all pages are read and the newest of each LPA counts, so trimmed pages may be back")
        self.stand_on(None)
        self.forget_scan()
        self.load_base()
        self.scan()
        return self.resolve_all()

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

    cdef int settle_kind(self, int kind) except -1:
        """The pages of a kind that is not the user's."""
        cdef Entries entries = self.owned[kind]
        if entries is None or entries.count() == 0:
            return 0
        self.owner = <Owner> self.ssd.owner_at[kind]
        self.of_user = False
        with nogil:
            entries.sort(self.owner.ids)
            self.settle_all(entries.entry(0), entries.count())
        return 0

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
            with nogil:
                self.apply_trims()
                self.settle_all(self.entries.entry(0), self.entries.count())
            erased = self.newly(self.ssd.mapping.recovery_erased(), REOPENED)
            if not erased and not self.newly(self.ssd.mapping.recovery_conflicts(), EXCLUDED):
                break
            self.load_base()
        self.figures["undone_moves"] = self.undone
        self.figures["undone_groups"] = self.undone_groups
        return f"{self.winners} pages changed place, {self.undone} moves undone"

    cdef bint newly(self, blocks, uint8_t mark) except -1:
        """Whether any of the blocks gets that mark now."""
        cdef uint32_t block
        cdef bint any_new = False
        for block in blocks:
            any_new |= not self.marks[block] & mark
            self.marks[block] |= mark
        return any_new

    cdef int settle_all(self, Entry* at, uint64_t n) except -1 nogil:
        """``n`` entries of pages of one owner, an LPA or id at a time, in ascending order."""
        cdef uint64_t i = 0, same
        self.moves.n = 0
        self.cut.begin()
        while i < n:
            same = 1
            while i + same < n and at[i + same].key == at[i].key:
                same += 1
            self.settle(at + i, same)
            i += same
        return self.undo()

    cdef int apply_trims(self) except -1 nogil:
        """Every trim since the checkpoint unbinds what the checkpoint says; newer pages are bound after. In a block
        that was opened again nothing of that is left, and a translation page may live there by now."""
        cdef uint32_t lpa, n, part, i
        cdef uint64_t k
        cdef uint32_t* olds = self.ssd.olds
        for k in range(self.cut.count()):
            lpa = self.cut.record(k).lpa
            n = self.cut.record(k).n
            while n:
                part = min(n, <uint32_t> TRIM_PART)
                self.ssd.mapping.unbind(lpa, part, olds)
                for i in range(part):
                    if olds[i] != NONE and self.is_marked(olds[i], REOPENED):
                        olds[i] = NONE
                self.kill_olds(part)
                lpa += part
                n -= part
        return 0

    cdef bint is_marked(self, uint32_t ppa, uint8_t mark) noexcept nogil:
        """Whether the page's block is."""
        return self.marks[ppa >> self.shift if self.shift else ppa // self.ssd.pages_per_block] & mark

    cdef int kill_olds(self, uint32_t n) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if self.ssd.olds[i] != NONE and not self.ssd.validity.is_live(self.ssd.olds[i]):
                self.ssd.olds[i] = NONE
        return self.ssd.validity.dead(self.ssd.olds, n)

    cdef int settle(self, const Entry* of, uint64_t n) except -1 nogil:
        """``n`` entries, all of one LPA or id, oldest first: bind the winner."""
        cdef const Entry* best
        cdef uint32_t old, before
        while self.is_marked(of[n - 1].ppa, EXCLUDED):
            n -= 1
            if n == 0:
                return 0
        if self.of_user and self.ssd.mapping.shares_pages:
            return self.settle_shared(of, n)
        best = of + n - 1
        if self.of_user and self.cut.count() and self.cut.newest(best.key) > entry_seq(best):
            return 0
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
            if entry_seq(best) > self.floor:
                before = NONE  # an older version: the original of a copy this new was not in the checkpoint
        if n > 1 and entry_seq(of + n - 2) == entry_seq(best):
            before = of[n - 2].ppa
            if self.is_marked(before, EXCLUDED):
                before = NONE
        self.owner.recovered(best.key, best.ppa, self.stamp_of(best.ppa))
        self.ssd.validity.live_run(best.ppa, 1)
        self.winners += 1
        if entry_flags(best) & FLAG_MOVED and before != NONE:
            self.note_move(best, before)
        return 0

    cdef int drop_superseded(self, uint32_t block) except -1 nogil:
        """Pages of a block that a late validity store calls live, though newer ones took their place, are dead. Whose
        they are their spare areas say; or, where the block is half erased, the map of the checkpoint."""
        cdef Oob oob
        cdef uint32_t page, ppa, lpa
        cdef uint64_t seq
        for page in range(self.ssd.pages_per_block if self.ssd.validity.count(block) else 0):
            ppa = block * self.ssd.pages_per_block + page
            if not self.ssd.validity.is_live(ppa):
                continue
            if self.spare_read(block, page, &oob) == PAGE_OK:
                if oob.kind != KIND_USER:
                    continue
                lpa = oob.lpa
                seq = oob.seq
            else:
                lpa = self.ssd.mapping.owner_of(ppa)
                seq = self.floor
            if lpa >= self.ssd.lpas or not self.counts(lpa, seq, ppa):
                self.ssd.validity.dead(&ppa, 1)
        return 0

    cdef bint counts(self, uint32_t lpa, uint64_t seq, uint32_t ppa) except -1 nogil:
        """Whether the page of that number is the newest of its LPA: of those that were found, which are newer than what
        the mapping knew at the checkpoint, or else by the mapping; or others share it. An original counts as its copy
        does."""
        if self.ssd.mapping.shares_pages and self.ssd.mapping.needs(ppa, lpa):
            return True
        if self.trimmed_seq(lpa) > seq:
            return False
        if self.has_entry(lpa):
            return self.found_seq(lpa) <= seq
        return self.ssd.mapping.locate(lpa) == ppa

    cdef bint has_entry(self, uint32_t lpa) noexcept nogil:
        """Whether a page of that LPA was found."""
        cdef uint64_t i = self.entries.first_of(lpa)
        return i < self.entries.count() and self.entries.entry(i).key == lpa

    cdef uint64_t trimmed_seq(self, uint32_t lpa) except? 0xFFFFFFFFFFFFFFFF nogil:
        """The newest trim of that LPA since the checkpoint. ``Trims.newest`` goes through LPAs in ascending order."""
        self.cut.begin()
        return self.cut.newest(lpa) if self.cut.count() else 0

    cdef int settle_shared(self, const Entry* of, uint64_t n) except -1 nogil:
        """As ``settle``, where several LPAs may be at one page. A page has a name, its LPA and sequence number, which
        its copies keep. Whether the LPA has left it, and whether others are there, the mapping knows; and where it
        lay."""
        cdef uint64_t i = 0, k, newest = 0
        cdef uint32_t before
        cdef bint own
        cdef const Entry* best = NULL
        if self.cut.count():
            newest = self.cut.newest(of.key)
        while i < n:
            k = i + 1                      # entries i to k - 1 are one page; the last of them is where it counts
            while k < n and entry_seq(of + k) == entry_seq(of + i):
                k += 1
            best = of + k - 1
            own = True
            before = self.ssd.mapping.recovered_copy(best.key, entry_seq(best), best.ppa, &own)
            if before != NONE:
                self.shared_moved(best, before)
                if self.is_marked(before, REOPENED):
                    before = NONE          # another page may live there by now
            if k - i > 1 and not self.is_marked(of[k - 2].ppa, EXCLUDED):
                before = of[k - 2].ppa
            if own and k == n and entry_seq(best) > newest:
                before = self.bind_newest(best, before)
            if (entry_flags(best) & FLAG_MOVED and before != NONE and before != best.ppa
                    and self.ssd.validity.is_live(best.ppa)):
                self.note_move(best, before)
            i = k
        return 0

    cdef int shared_moved(self, const Entry* of, uint32_t before) except -1 nogil:
        """Those who were at ``before`` are where that page was found now."""
        if not self.is_marked(before, REOPENED) and before != of.ppa:
            self.ssd.olds[0] = before
            self.kill_olds(1)
        if self.ssd.mapping.needs(of.ppa, NONE):
            self.ssd.validity.live_run(of.ppa, 1)
        return 0

    cdef uint32_t bind_newest(self, const Entry* best, uint32_t before) except? 0xFFFFFFFE nogil:
        """The LPA is at this page of its own. Returns the original, if that is a copy; ``before`` if it is known."""
        cdef uint32_t old = self.ssd.mapping.locate(best.key)
        if old != best.ppa:
            self.ssd.mapping.recovered(best.key, best.ppa, self.stamp_of(best.ppa))
        self.ssd.validity.live_run(best.ppa, 1)
        self.winners += 1
        if old == NONE or old == best.ppa or self.ssd.mapping.needs(old, best.key):
            return before
        # In a block that was opened again this may be a page that was found there, and that the last LPA leaves now. If
        # another LPA's page lies there, it has been found to be that LPA's, or will be.
        self.ssd.olds[0] = old
        self.kill_olds(1)
        if before == NONE and entry_seq(best) <= self.floor and not self.is_marked(old, REOPENED):
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
                if self.ssd.validity.late:
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

    cdef bint is_there(self, const Move* move) except -1 nogil:
        """Whether the page that was copied can be read still."""
        cdef Oob oob
        cdef uint32_t block = move.old // self.ssd.pages_per_block
        return (self.ssd.nand.health(block) == 0
                and self.spare_read(block, move.old % self.ssd.pages_per_block, &oob) == PAGE_OK
                and oob.kind == KIND_USER and oob.lpa == move.key and oob.seq == move.seq)

    cdef int undo_one(self, const Move* move) except -1 nogil:
        """The original counts, and its copy is dead."""
        cdef bint own = True, shared = False
        self.ssd.olds[0] = move.new
        self.ssd.validity.dead(self.ssd.olds, 1)
        if self.of_user and self.ssd.mapping.shares_pages:
            shared = self.ssd.mapping.recovered_copy(move.key, move.seq, move.old, &own) != NONE
        if not shared:
            self.owner.recovered(move.key, move.old, self.stamp_of(move.new))
        self.ssd.validity.live_run(move.old, 1)
        self.undone += 1
        return 0

    # --- what the write buffer saved

    def nvram(self):
        """Slots newer than the checkpoint (which empties the buffer) and than what flash holds."""
        cdef uint64_t newest
        back = {}
        saved = self.ssd.buffer.survivors(CAUSE_RECOVERY) if self.slots is None else self.slots
        self.cut.begin()
        for lpa, seq, page in sorted(saved, key=lambda slot: slot[0]):
            newest = max(self.floor, self.found_seq(lpa), self.cut.newest(lpa))
            if runs_out(seq):
                raise CorruptError(f"NVRAM: a page of LPA {lpa} with sequence number {seq}")
            if lpa < self.ssd.lpas and seq > newest and seq > back.get(lpa, (0,))[0]:
                back[lpa] = (seq, page)
            self.seq = max(self.seq, seq)
        self.figures["nvram_pages"] = len(back)
        self.back = sorted((seq, lpa, page) for lpa, (seq, page) in back.items())
        return f"{len(back)} pages"

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

    # --- what that makes of the blocks

    def blocks(self):
        """From here on the pool is right: what holds no live page is free, and will be erased before it is used."""
        cdef Ssd ssd = self.ssd
        cdef bint reopens = ssd.mapping.recovery_reopens()
        self.mark_log()
        with nogil:
            self.tell_blocks(reopens)
        ssd.pool.last_order = self.order
        ssd.pool.rebuild_free()
        if ssd.validity.late and ssd.pool.free_n <= ssd.meta_floor + ssd.gc_reserve:
            self.free_more()
        return ", ".join(f"{n} {state}" for state, n in ssd.pool.census().items() if n)

    cdef int free_more(self) except -1:
        """Blocks were emptied since the checkpoint of pages that it takes for live, and counted as free ever since. As
        many as the next checkpoint needs are looked at page by page."""
        cdef uint32_t block
        cdef Ssd ssd = self.ssd
        for block in range(ssd.pool.blocks):
            if ssd.pool.free_n > ssd.meta_floor + ssd.gc_reserve:
                break
            if ssd.pool.state[block] == STATE_CLOSED:
                self.drop_superseded(block)
                if ssd.validity.count(block) == 0:
                    ssd.pool.push(block)
        return 0

    def mark_log(self):
        """The blocks of the checkpoint, and those of metadata written after it: their trims count until the next one
        is durable."""
        cdef uint32_t block
        for block in self.base.blocks(self.ssd.pages_per_block) if self.base is not None else ():
            self.marks[block] |= IN_LOG
        for seq, ppa in self.trim_pages:
            if not self.based or seq > self.floor:
                self.marks[<uint32_t> (ppa // self.ssd.pages_per_block)] |= IN_LOG

    cdef int tell_blocks(self, bint reopens) except -1 nogil:
        cdef uint32_t block, next_page, group = max(<uint32_t> 1, 2 * self.ssd.nand.paired_pages)
        cdef Oob oob
        for block in range(self.ssd.pool.blocks):
            self.ssd.pool.blank[block] = 0
            if self.marks[block] & HEADED:
                self.ssd.pool.stream[block] = self.streams[block]
            if self.marks[block] & SCANNED:  # but not for a lower page whose upper one is still to come
                self.ssd.nand.vouch(block, self.whole[block] - self.whole[block] % group)
            if self.ssd.nand.health(block):
                self.ssd.pool.state[block] = STATE_BAD
            elif self.marks[block] & IN_LOG:
                self.ssd.pool.state[block] = STATE_META
                self.ssd.pool.stream[block] = STREAM_META
                self.ssd.pool.next_page[block] = self.ssd.pages_per_block
            elif self.ssd.validity.count(block) == 0:
                self.ssd.pool.state[block] = STATE_FREE
            else:
                self.ssd.pool.state[block] = STATE_CLOSED
                next_page = self.next_page[block] if self.marks[block] & SCANNED else self.ssd.pages_per_block
                self.ssd.pool.next_page[block] = next_page
                # nothing may follow a torn page: only as the last of its block is it known to need a full read
                if (reopens and self.marks[block] & SCANNED and self.marks[block] & HEADED
                        and not self.marks[block] & TORN_IN and next_page < self.ssd.pages_per_block
                        and self.full_read(block * self.ssd.pages_per_block + next_page, &oob) == PAGE_ERASED):
                    self.ssd.pool.state[block] = STATE_OPEN
        return 0

    def fit(self):
        """Mapping, validity and pool agree, or are made to; then the device is ready."""
        cdef uint32_t block
        cdef Ssd ssd = self.ssd
        doubt = self.misfit(True)
        if doubt:
            self.mend(doubt)
        ssd.placement.attach()
        ssd.meta.skip_ids(self.newest_id)
        ssd.meta.blocks = [block for block in range(ssd.pool.blocks) if ssd.pool.state[block] == STATE_META]
        ssd.meta.block = NONE
        ssd.mover.resume(GROUPS if self.spared else self.newest_group)  # without a scan nobody knows which are taken
        ssd.resume(self.seq, self.base.mounts if self.base is not None else 0, False)
        self.let_go()
        return "mended" if doubt else ""

    def let_go(self):
        """Give back what only the recovery needed: a checkpoint is about to be written, and takes memory too."""
        self.entries.release()
        for entries in self.owned:
            if entries is not None:
                (<Entries> entries).release()
        self.stamps.release()
        self.moves.release()
        self.cut.release()
        if self.base is not None:
            self.base.sections = {}

    cdef mend(self, why):
        """What is left of the mapping after damage: translation pages that are gone are made again from the live pages,
        LPAs that name no live page, or another LPA's, hold nothing, and pages that no LPA names are dead. CorruptError
        if even that makes no sense."""
        cdef Ssd ssd = self.ssd
        self.alarm(f"the recovered mapping does not fit the pages ({why}): LPAs that name none of them are holes now")
        ssd.mapping.manages()
        for kind, at in ssd.owned_pages():
            if not ssd.validity.is_live(<uint32_t> at):
                ssd.lose(kind, <uint32_t> at)
        if not ssd.mapping.is_exact():
            self.ask_pages()
        self.keep_owned()
        try:
            ssd.mapping.verify(True)
            doubt = ssd.mapping.doubt(True)
        except ValueError as error:
            doubt = error
        if doubt:
            raise CorruptError(f"the recovered mapping cannot be: {doubt}")

    cdef int keep_owned(self) except -1:
        """An LPA keeps a live page that is no other's, a live page that nobody has dies."""
        cdef uint32_t lpa, ppa, block
        cdef Ssd ssd = self.ssd
        cdef uint64_t pages = <uint64_t> ssd.nand.blocks * ssd.pages_per_block
        cdef uint8_t* owned = <uint8_t*> calloc(pages // 8 + 1, 1)
        if owned == NULL:
            raise MemoryError
        try:
            for lpa in range(ssd.lpas):
                ppa = ssd.mapping.locate(lpa)
                taken = ppa != NONE and owned[ppa >> 3] >> (ppa & 7) & 1 and not ssd.mapping.shares_pages
                if ppa == NONE or taken or not ssd.validity.is_live(ppa):
                    ssd.mapping.unbind(lpa, 1, ssd.olds)
                else:
                    owned[ppa >> 3] |= <uint8_t> (1 << (ppa & 7))
            for _, ppa in ssd.owned_pages():
                owned[ppa >> 3] |= <uint8_t> (1 << (ppa & 7))
            for block in range(ssd.pool.blocks):
                for page in ssd.validity.live_in(block) if ssd.validity.count(block) else ():
                    ssd.olds[0] = block * ssd.pages_per_block + page
                    if not owned[ssd.olds[0] >> 3] >> (ssd.olds[0] & 7) & 1:
                        ssd.validity.dead(ssd.olds, 1)
        finally:
            free(owned)
        return 0

    cdef ask_pages(self):
        """Each LPA is where the newest live page says that is one of it; the older ones die. Pages that cannot be read
        stay with those who have them."""
        cdef uint32_t block, lpa, ppa = NONE
        cdef Oob oob
        cdef Ssd ssd = self.ssd
        newest = {}
        for block in range(ssd.pool.blocks):
            for page in ssd.validity.live_in(block):
                if self.spare_read(block, page, &oob) != PAGE_OK or oob.kind != KIND_USER or oob.lpa >= ssd.lpas:
                    continue
                found = (oob.seq, block * ssd.pages_per_block + page, bytes(ssd.read_oobs[OOB_ENGINE:ssd.oob_bytes]))
                lpa = oob.lpa
                ssd.mapping.peek(&lpa, 1, &ppa)
                if ppa == NONE or found < newest.get(lpa, (0,)):
                    ssd.olds[0] = found[1]
                else:
                    ssd.olds[0] = newest[lpa][1] if lpa in newest else NONE
                    newest[lpa] = found
                ssd.validity.dead(ssd.olds, 1)
        for lpa, (_, at, stamp) in newest.items():
            ssd.mapping.recovered(lpa, at, stamp)
        ssd.mapping.recovery_ends()

    # --- the end

    def keep_in_memory(self):
        """Nothing may be written: what the NVRAM saved stays in the buffer, which was made to hold it."""
        for seq, lpa, page in self.back:
            self.ssd.restore(lpa, seq, page, True)

    def commit(self):
        for seq, lpa, page in self.back:
            self.ssd.restore(lpa, seq, page, False)
        self.ssd.checkpoint()
        return f"checkpoint {self.ssd.meta.checkpoint_id}"
