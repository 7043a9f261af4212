# distutils: language = c++
# cython: wraparound=True, boundscheck=True
"""Recovery: from an image alone to a device on which every check holds, as a table of named steps.

It only reads until the last step, so it can be cut anywhere and done again with the same outcome; the last step
writes a checkpoint, which freezes the outcome: what was judged lost stays lost.

Who wins. Of the copies of an LPA the one with the highest sequence number counts, unless a later trim covers it. Two
copies with the same number are an original and what cleaning made of it: the copy counts, unless the move was not
finished, which shows in the original's block still having live pages that were not copied. Then that block's pages
all count where they are and the copies are dead, so that an interrupted move costs no space.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.ssd cimport Ssd
from flashfs.engine.scan cimport Entry, Scanner
from flashfs.engine.pool cimport (
    CAUSE_RECOVERY,
    FLAG_CLEAN,
    FLAG_LAST,
    FLAG_MOVED,
    KIND_CHECKPOINT,
    KIND_TRANSLATION,
    KIND_USER,
    MOVES_MASK,
    MOVES_SHIFT,
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
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

from dataclasses import dataclass, field

import numpy

from flashfs.engine.metalog import LoadedCheckpoint, boot_hints
from flashfs.errors import CorruptError, MapLostError

cdef extern from "<algorithm>" namespace "std" nogil:
    void stable_sort(Entry* first, Entry* last, bint (*less)(const Entry&, const Entry&) noexcept nogil)

cdef bint entry_less(const Entry& a, const Entry& b) noexcept nogil:
    """The newest last. Of two pages with one sequence number, one is a copy of the other: the one that was moved more
    often. The order of their blocks does not tell: cleaning may have had its block open for longer."""
    cdef uint8_t ahead = (b.flags >> MOVES_SHIFT) - (a.flags >> MOVES_SHIFT) & MOVES_MASK
    if a.lpa != b.lpa:
        return a.lpa < b.lpa
    if a.seq != b.seq:
        return a.seq < b.seq
    if (a.flags ^ b.flags) & FLAG_MOVED:
        return not a.flags & FLAG_MOVED
    if ahead:
        return ahead <= MOVES_MASK // 2
    if a.order != b.order:
        return a.order < b.order
    return a.ppa < b.ppa


@dataclass(slots=True)
class Step:
    """What one step did and what it cost."""

    name: str
    about: str
    note: str = ""
    spare_reads: int = 0
    reads: int = 0
    programs: int = 0
    virtual_us: float = 0.0
    wall_ms: float = 0.0


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
    """One recovery of one device; ``run`` performs STEPS in order. ``readonly`` leaves the last one out. ``repairs``
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
        ("commit", "write a checkpoint of what was found"),
    )

    def __init__(self, ssd, readonly=False, repairs=False):
        self.work = Worker(ssd, repairs)
        self.readonly = readonly
        self.report = Report()

    def run(self):
        """Leave the device ready; returns the Report. CorruptError if the image holds what no power cut leaves."""
        for name, about in self.STEPS:
            if self.readonly and name == "commit":
                continue
            step = Step(name, about)
            before = self.work.meter()
            step.note = getattr(self.work, name)() or ""
            after = self.work.meter()
            step.spare_reads, step.reads, step.programs = (after[i] - before[i] for i in range(3))
            step.virtual_us = (after[3] - before[3]) / 1000
            step.wall_ms = (after[4] - before[4]) * 1000
            self.report.steps.append(step)
            if self.work.clean:
                self.report.clean = True
                break
        else:
            if self.readonly:
                self.work.keep_in_memory()
        self.report.figures = self.work.figures
        self.report.alarms = self.work.alarms
        return self.report


cdef class Worker(Scanner):
    """The steps that follow the reading: who wins, and what that makes of the device."""
    cdef readonly bint clean
    cdef set excluded
    cdef dict trimmed                      # LPA -> newest trim since the checkpoint, of the LPAs that were scanned
    cdef dict winners                      # LPA -> newest sequence number found in flash since the checkpoint
    cdef list back                         # (seq, LPA, page) that the NVRAM saved

    def __cinit__(self, Ssd ssd, bint repairs=False):
        self.excluded = set()
        self.winners = {}
        self.trimmed = {}
        self.back = []

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
        status, _ = self.full_read(ppa, &oob)
        if (status != PAGE_OK or oob.kind != KIND_CHECKPOINT or oob.seq != identity
                or oob.flags != (FLAG_LAST | FLAG_CLEAN) or runs_out(oob.order) or not self.untouched_since(ppa)):
            return f"checkpoint {identity} is not clean"
        try:
            self.base = LoadedCheckpoint(self.read_meta, ppa, self.ssd.page_bytes, self.checkpoint_most())
        except CorruptError:
            return f"checkpoint {identity} is not whole"
        self.load_base()
        log = self.take_pool(oob.order)
        self.ssd.pool.doubt_open()
        doubt = self.misfit()
        if doubt:
            self.base = None
            return f"checkpoint {identity} is clean, but {doubt}"
        self.ssd.meta.adopt(self.base, log)
        self.ssd.placement.attach()
        self.ssd.resume(self.base.seq, self.base.mounts, True)
        self.clean = True
        return f"checkpoint {identity} is clean"

    cdef misfit(self):
        """What is wrong with the mapping now that it is loaded as far as it is going to be, or None."""
        try:
            self.ssd.mapping.recovery_ends()
            self.ssd.mapping.verify()
            doubt = self.ssd.mapping.doubt()
        except (ValueError, MapLostError) as error:
            return error
        self.ssd.mapping.manages()
        return doubt

    cdef bint untouched_since(self, uint32_t ppa) except -1:
        cdef Oob oob
        if (ppa + 1) % self.ssd.pages_per_block == 0:
            return False
        status, _ = self.full_read(ppa + 1, &oob)
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

    def resolve(self):
        try:
            return self.resolve_all()
        except MapLostError as error:
            self.alarm(f"{error}: all pages are read and the newest of each LPA counts, so trimmed pages may be back")
        self.base = None
        self.n_entries = 0
        self.next_page.clear()
        self.whole.clear()
        self.torn_in.clear()
        self.load_base()
        self.scan()
        return self.resolve_all()

    cdef resolve_all(self):
        cdef uint32_t i
        if self.n_entries:
            stable_sort(self.entries, self.entries + self.n_entries, entry_less)
            self.trimmed = self.paint_trims([self.entries[i].lpa for i in range(self.n_entries)])
        while True:
            self.resolve_once()
            erased = set(self.ssd.mapping.recovery_erased()) - self.reopened
            conflicts = set(self.ssd.mapping.recovery_conflicts()) - self.excluded if not erased else set()
            if not erased and not conflicts:
                break
            self.reopened |= erased
            self.excluded |= conflicts
            self.load_base()
        return f"{len(self.winners)} pages changed place, {self.figures['undone_moves']} moves undone"

    cdef resolve_once(self):
        cdef uint32_t block, translations = self.n_entries
        cdef Ssd ssd = self.ssd
        cdef const uint8_t[::1] stamps = bytes(self.stamps) + b"\0"
        self.winners = {}
        for block in self.reopened:
            ssd.validity.forget(block)
        while translations and self.entries[translations - 1].lpa >= ssd.lpas:
            translations -= 1
        self.settle_all(translations, self.n_entries, &stamps[0])  # first: whoever asks where an LPA was reads them
        self.apply_trims()
        self.settle_all(0, translations, &stamps[0])

    cdef settle_all(self, uint32_t first, uint32_t end, const uint8_t* stamps):
        """Entries from ``first`` up to ``end``, an LPA at a time."""
        cdef uint32_t i = first, k
        moves = []
        while i < end:
            k = i
            while k + 1 < end and self.entries[k + 1].lpa == self.entries[i].lpa:
                k += 1
            self.settle(i, k, stamps, moves)
            i = k + 1
        self.undo(moves, stamps)

    cdef apply_trims(self):
        """Every trim since the checkpoint unbinds what the checkpoint says; newer pages are bound after. In a block
        that was opened again nothing of that is left, and a translation page may live there by now."""
        cdef uint32_t lpa, n, part, i
        for _, lpa, n in self.records:
            while n:
                part = min(n, <uint32_t> 4096)
                self.ssd.mapping.unbind(lpa, part, self.ssd.olds)
                for i in range(part):
                    if self.ssd.olds[i] != NONE and self.ssd.olds[i] // self.ssd.pages_per_block in self.reopened:
                        self.ssd.olds[i] = NONE
                self.kill_olds(part)
                lpa += part
                n -= part

    cdef kill_olds(self, uint32_t n):
        cdef uint32_t i
        for i in range(n):
            if self.ssd.olds[i] != NONE and not self.ssd.validity.is_live(self.ssd.olds[i]):
                self.ssd.olds[i] = NONE
        self.ssd.validity.dead(self.ssd.olds, n)

    cdef paint_trims(self, lpas):
        """{LPA: seq of its newest trim since the checkpoint} for those of ``lpas`` that have one: each record is laid
        over the sorted LPAs, later ones over earlier ones."""
        painted = {}
        if self.records and len(lpas):
            order = numpy.unique(numpy.asarray(lpas, dtype=numpy.uint32))
            newest = numpy.zeros(len(order), dtype=numpy.uint64)
            for seq, first, n in self.records:
                a, b = numpy.searchsorted(order, (first, first + n))
                newest[a:b] = seq
            hit = newest.nonzero()[0]
            painted = dict(zip(order[hit].tolist(), newest[hit].tolist(), strict=True))
        return painted

    cdef settle(self, uint32_t i, uint32_t k, const uint8_t* stamps, list moves):
        """Entries i..k are all of one LPA, oldest first: bind the winner."""
        cdef Entry* best
        cdef Ssd ssd = self.ssd
        cdef uint32_t old, before
        cdef uint64_t floor = self.base.seq if self.base is not None else 0
        while (self.entries[k].ppa // ssd.pages_per_block) in self.excluded:
            if k == i:
                return
            k -= 1
        best = self.entries + k
        if self.trimmed and self.trimmed.get(best.lpa, 0) > best.seq:
            return
        old = ssd.mapping.locate(best.lpa)
        if best.lpa >= ssd.lpas and old == NONE:
            return  # a translation page that the checkpoint does not know
        if old != NONE and old // ssd.pages_per_block in self.reopened:
            old = NONE  # what the checkpoint means is gone; another LPA's page may live there by now
        before = old
        if old != NONE:
            ssd.olds[0] = old
            self.kill_olds(1)
            before = ssd.olds[0]
            if best.seq > floor:
                before = NONE  # an older version: the original of a copy this new was not in the checkpoint
        if k > i and self.entries[k - 1].seq == best.seq:
            before = self.entries[k - 1].ppa
            if before // ssd.pages_per_block in self.excluded:
                before = NONE
        ssd.mapping.recovered(best.lpa, best.ppa, stamps + best.stamp)
        ssd.validity.live_run(best.ppa, 1)
        self.winners[best.lpa] = best.seq
        if best.flags & FLAG_MOVED and before != NONE:
            moves.append((best.lpa, before, best.ppa, best.stamp))

    cdef undo(self, list moves, const uint8_t* stamps):
        """A victim that still has live pages of its own was not finished: its copied pages count where they were."""
        cdef uint32_t lpa, old, new, stamp
        cdef Ssd ssd = self.ssd
        unfinished = {old // ssd.pages_per_block for _, old, _, _ in moves}
        unfinished = {block for block in unfinished if ssd.validity.count(block)}
        for lpa, old, new, stamp in moves:
            if old // ssd.pages_per_block in unfinished:
                ssd.olds[0] = new
                ssd.validity.dead(ssd.olds, 1)
                ssd.mapping.recovered(lpa, old, stamps + stamp)
                ssd.validity.live_run(old, 1)
                self.figures["undone_moves"] += 1

    def nvram(self):
        """Slots newer than the checkpoint (which empties the buffer) and than what flash holds."""
        floor = self.base.seq if self.base is not None else 0
        back = {}
        saved = self.ssd.buffer.survivors(CAUSE_RECOVERY)
        trimmed = self.paint_trims([lpa for lpa, _, _ in saved])
        for lpa, seq, page in saved:
            newest = max(floor, self.winners.get(lpa, 0), trimmed.get(lpa, 0))
            if runs_out(seq):
                raise CorruptError(f"NVRAM: a page of LPA {lpa} with sequence number {seq}")
            if lpa < self.ssd.lpas and seq > newest and seq > back.get(lpa, (0,))[0]:
                back[lpa] = (seq, page)
            self.seq = max(self.seq, seq)
        self.figures["nvram_pages"] = len(back)
        self.back = sorted((seq, lpa, page) for lpa, (seq, page) in back.items())
        return f"{len(back)} pages"

    def blocks(self):
        """From here on the pool is right: what holds no live page is free, and will be erased before it is used."""
        cdef uint32_t block
        cdef Ssd ssd = self.ssd
        cdef Oob oob
        reopens = ssd.mapping.recovery_reopens()
        keep = set(self.base.blocks(ssd.pages_per_block)) if self.base is not None else set()
        for block in range(ssd.pool.blocks):
            ssd.pool.blank[block] = 0
            was_open = block in self.next_page and not (self.heads[block] is None)
            if self.heads[block] is not None:
                ssd.pool.stream[block] = self.heads[block][2]
            if block in self.whole:  # but not for a lower page whose upper one is still to come
                ssd.nand.vouch(block, self.whole[block] - self.whole[block] % max(1, 2 * ssd.nand.paired_pages))
            if ssd.nand.health(block):
                ssd.pool.state[block] = STATE_BAD
            elif block in keep or self.is_log(block):
                ssd.pool.state[block] = STATE_META
                ssd.pool.stream[block] = STREAM_META
                ssd.pool.next_page[block] = ssd.pages_per_block
            elif ssd.validity.count(block) == 0:
                ssd.pool.state[block] = STATE_FREE
            else:
                ssd.pool.state[block] = STATE_CLOSED
                ssd.pool.next_page[block] = self.next_page.get(block, ssd.pages_per_block)
                # nothing may follow a torn page: only as the last of its block is it known to need a full read
                if (reopens and was_open and block not in self.torn_in
                        and ssd.pool.next_page[block] < ssd.pages_per_block):
                    status, _ = self.full_read(block * ssd.pages_per_block + ssd.pool.next_page[block], &oob)
                    if status == PAGE_ERASED:
                        ssd.pool.state[block] = STATE_OPEN
        ssd.pool.last_order = self.order
        ssd.pool.rebuild_free()
        doubt = self.misfit()
        if doubt:
            self.mend(doubt)
        ssd.placement.attach()
        ssd.meta.skip_ids(self.newest_id)
        ssd.meta.blocks = [block for block in range(ssd.pool.blocks) if ssd.pool.state[block] == STATE_META]
        ssd.meta.block = NONE
        ssd.resume(self.seq, self.base.mounts if self.base is not None else 0, False)
        census = ssd.pool.census()
        return ", ".join(f"{n} {state}" for state, n in census.items() if n)

    cdef mend(self, why):
        """What is left of the mapping after damage: translation pages that are gone are made again from the live pages,
        LPAs that name no live page, or another LPA's, hold nothing, and pages that no LPA names are dead. CorruptError
        if even that makes no sense."""
        cdef uint32_t lpa, ppa, block
        cdef Ssd ssd = self.ssd
        self.alarm(f"the recovered mapping does not fit the pages ({why}): LPAs that name none of them are holes now")
        ssd.mapping.manages()
        for ppa in ssd.mapping.translation_pages():
            if not ssd.validity.is_live(ppa):
                ssd.lose(KIND_TRANSLATION, ppa)
        if not ssd.mapping.is_exact():
            self.ask_pages()
        owners = {}
        for lpa in range(ssd.lpas):
            ppa = ssd.mapping.locate(lpa)
            if ppa == NONE or ppa in owners or not ssd.validity.is_live(ppa):
                ssd.mapping.unbind(lpa, 1, ssd.olds)
            else:
                owners[ppa] = lpa
        owners.update(dict.fromkeys(ssd.mapping.translation_pages()))
        for block in range(ssd.pool.blocks):
            for page in ssd.validity.live_in(block):
                ssd.olds[0] = block * ssd.pages_per_block + page
                if ssd.olds[0] not in owners:
                    ssd.validity.dead(ssd.olds, 1)
        try:
            ssd.mapping.verify()
            doubt = ssd.mapping.doubt()
        except ValueError as error:
            doubt = error
        if doubt:
            raise CorruptError(f"the recovered mapping cannot be: {doubt}")

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

    cdef bint is_log(self, uint32_t block):
        """Metadata written after the checkpoint that counts: its trims count until the next one is durable."""
        return any(ppa // self.ssd.pages_per_block == block and
                   (self.base is None or seq > self.base.seq) for seq, ppa in self.trim_pages)

    def keep_in_memory(self):
        """Nothing may be written: what the NVRAM saved stays in the buffer, which was made to hold it."""
        for seq, lpa, page in self.back:
            self.ssd.restore(lpa, seq, page, True)

    def commit(self):
        for seq, lpa, page in self.back:
            self.ssd.restore(lpa, seq, page, False)
        self.ssd.checkpoint()
        return f"checkpoint {self.ssd.meta.checkpoint_id}"
