# cold
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

The pages found lie in one array in the order of LPAs (flashfs.engine.recovery.found_pages), and everything else that
grows with them in others like it: no object of Python stands for a page.
"""
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.recovery.found_pages cimport FoundPages
from flashfs.engine.device.mover cimport GROUPS
from flashfs.engine.blocks.pool cimport (
    CAUSE_RECOVERY,
    FLAG_CLEAN,
    FLAG_LAST,
    KIND_CHECKPOINT,
    KIND_USER,
    NONE,
    OOB_ENGINE,
    STATE_BAD,
    STATE_CLOSED,
    STATE_FREE,
    STATE_META,
    STATE_OPEN,
    STREAM_META,
    Oob,
    order_runs_out,
    runs_out,
)
from flashfs.engine.recovery.mend cimport Mender
from flashfs.engine.recovery.scan cimport EXCLUDED, HEADED, IN_LOG, SCANNED, TORN_IN, Scanner
from flashfs.engine.device.ssd cimport Ssd
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

import struct
from contextlib import suppress
from dataclasses import dataclass, field

from flashfs.engine.device.metalog import LoadedCheckpoint, boot_hints
from flashfs.errors import CorruptError, DeviceFullError, MapLostError


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
    """One recovery of one device; ``run`` performs STEPS in order, and after each those that the parts of the FTL want
    done then (``recovery_steps`` in flashfs.engine.contract.recovery_wishes). ``readonly`` leaves the last one out.
    ``repairs`` passes over a checkpoint that is whole and does not fit the device, which is refused otherwise."""

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
        self.work = (ssd.mapping.recovery_worker() or Worker)(ssd, repairs)
        self.parts = {"mapping": ssd.mapping, "validity": ssd.validity}
        self.readonly = readonly
        self.report = Report()

    def table(self):
        """[(whose, name, about, what does it)] of all steps in order."""
        own = {name for name, _ in self.STEPS}
        asked = [(part, *step) for part, one in self.parts.items() for step in one.recovery_steps()]
        for part, name, after, _, _ in asked:
            if after not in own or name in own:
                raise ValueError(f"{part}: a step {name!r} after {after!r}: it needs a name of its own, and to follow "
                                 f"one of {', '.join(own)}")
        table = []
        for name, about in self.STEPS:
            table.append(("engine", name, about, getattr(self.work, name)))
            if name == "checkpoint":
                table += self.work.steps_by_pages()
            elif name == "scan" and self.work.names_sharers():
                table.append(("mapping", "claims", "read what NVRAM says of LPAs that share a page", self.work.claims))
            elif name == "resolve" and self.work.steps_by_pages():
                part, name, what, run = self.work.step_by_entries()
                table.append((part, name, what, self.work.guarded(run)))
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


cdef class Worker(Mender):
    """The steps in their order: what is read, who wins, and what that makes of the device."""

    def __cinit__(self, Ssd ssd, bint repairs=False):
        self.back = []

    def steps_by_pages(self):
        """[(whose, name, about, what does it)]: after the step ``checkpoint``, for a mapping that is rebuilt from its
        pages."""
        return []

    def step_by_entries(self):
        """As ``steps_by_pages``, one step after ``resolve``."""
        raise NotImplementedError

    cdef bint is_collected(self, uint32_t block) noexcept nogil:
        """Whether it has pages of metadata of which some may not count: no caller may mark them durable."""
        return False

    def names_sharers(self):
        return self.names_all()

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
                or oob.flags != (FLAG_LAST | FLAG_CLEAN) or order_runs_out(oob.order)
                or not self.untouched_since(ppa)):
            return f"checkpoint {identity} is not clean"
        try:
            self.stand_on(LoadedCheckpoint(self.read_meta, ppa, self.ssd.page_bytes, self.checkpoint_most(),
                                           self.read_meta_run, self.ssd.mapping.places()))
        except CorruptError:
            return f"checkpoint {identity} is not whole"
        self.load_base()
        log = self.take_pool(oob.order)
        self.ssd.pool.doubt_open()
        doubt = self.misfit(False) or self.take_clean()
        if doubt:
            self.stand_on(None)
            return f"checkpoint {identity} is clean, but {doubt}"
        self.ssd.meta.adopt(self.base, log)
        self.ssd.placement.attach()
        self.ssd.resume(self.base.seq, self.base.mounts, True)
        self.clean = True
        self.let_go()
        return f"checkpoint {identity} is clean"

    cdef take_clean(self):
        """What only a clean checkpoint has, and nothing has changed since; what is wrong with it, or None."""
        try:
            self.ssd.mapping.load_clean(self.base.sections)
        except (ValueError, IndexError, struct.error) as error:
            return error
        return None

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
        self.ssd.mapping.rebuild_allowed()
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
                if known[2] is not None:
                    self.follow_moves(known[2])
                self.figures["blocks_scanned"] = 0
                return "not needed"
            self.load_base()
        note = Scanner.scan(self)
        self.settle_validity()
        return note

    cdef follow_moves(self, uint64_t order):
        """A recovery that stood on what the mapping knows was cut; what it moved lies in blocks that were opened after
        the one of ``order``. The victims may be erased by now, or half of them: where the host died, the records of an
        erased block may be there and its data not. So of a page that cannot be read where the mapping has it, the
        newest whole copy in those blocks counts."""
        cdef uint32_t block, page, lpa
        cdef Oob oob
        copies = {}
        for block in range(self.ssd.pool.blocks):
            if not self.marks[block] & HEADED or self.orders[block] <= order:
                continue
            for page in range(self.ssd.pages_per_block):
                if (self.spare_read(block, page, &oob) == PAGE_OK and oob.kind == KIND_USER
                        and oob.lpa < self.ssd.lpas):
                    ppa = block * self.ssd.pages_per_block + page
                    copies.setdefault(oob.lpa, []).append((oob.seq, oob.order, ppa))
        for lpa, of in copies.items():
            with suppress(MapLostError):    # an entry of the mapping that is lost names nothing
                self.follow(lpa, sorted(of, reverse=True))

    cdef follow(self, uint32_t lpa, list copies):
        """``copies``: (sequence number, order, PPA) of pages of this LPA, the newest first."""
        cdef Oob oob
        cdef uint32_t old = self.ssd.mapping.locate(lpa), ppa
        if old == NONE or self.full_read(old, &oob) == PAGE_OK and oob.kind == KIND_USER and oob.lpa == lpa:
            return
        for _, _, ppa in copies:
            if ppa != old and self.full_read(ppa, &oob) == PAGE_OK:
                self.ssd.olds[0] = old
                self.ssd.validity.dead(self.ssd.olds, 1)
                self.ssd.mapping.recovered(lpa, ppa, self.ssd.read_oobs + OOB_ENGINE)
                self.ssd.validity.live_run(ppa, 1)
                return

    cdef bint doubts_slots(self, uint64_t trimmed) except -1:
        """Whether a page in the NVRAM is, or may be, older than a trim of which log and mapping do not say the same.
        There may be no record of it, for the mapping has no page of that LPA, and cannot say whether it had one when
        it was trimmed. Or there is one, but the mapping has a page that is older still: it stands on words of an
        earlier moment than the log (the host died), when the page in the NVRAM was the newest."""
        cdef uint64_t logged = self.checkpoint_seq, newest
        cdef uint32_t ppa
        self.slots = self.ssd.buffer.survivors(CAUSE_RECOVERY)
        if self.trim_index.count():
            logged = max(logged, self.trim_index.record(self.trim_index.count() - 1).seq)
        self.trim_index.begin()
        for lpa, seq, _ in sorted(self.slots, key=lambda slot: slot[0]):
            if lpa >= self.ssd.lpas or seq <= self.checkpoint_seq:
                continue
            try:
                ppa = self.ssd.mapping.locate(lpa)
            except MapLostError:
                return True
            if ppa == NONE:
                if logged < trimmed and seq < trimmed:
                    return True
                continue
            newest = self.trim_index.newest(lpa)
            if seq < newest and self.is_from_before(ppa, newest):
                return True
        return False

    cdef bint is_from_before(self, uint32_t ppa, uint64_t seq) except -1:
        """Whether that page says that it was written before ``seq``."""
        cdef Oob oob
        return self.spare_read(ppa // self.ssd.pages_per_block, ppa % self.ssd.pages_per_block,
                               &oob) == PAGE_OK and oob.seq < seq

    # --- who wins: resolve.pyx

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

    # --- what the write buffer saved

    def nvram(self):
        """Slots newer than the checkpoint (which empties the buffer) and than what flash holds."""
        cdef uint64_t newest
        back = {}
        saved = self.ssd.buffer.survivors(CAUSE_RECOVERY) if self.slots is None else self.slots
        self.trim_index.begin()
        for lpa, seq, page in sorted(saved, key=lambda slot: slot[0]):
            if runs_out(seq):
                raise CorruptError(f"NVRAM: a page of LPA {lpa} with sequence number {seq}")
            self.seq = max(self.seq, seq)
            if lpa >= self.ssd.lpas or seq <= self.checkpoint_seq:
                continue
            newest = max(self.found_seq(lpa), self.trim_index.newest(lpa))
            if seq > newest and seq > back.get(lpa, (0,))[0]:
                back[lpa] = (seq, page)
        self.figures["nvram_pages"] = len(back)
        self.back = sorted((seq, lpa, page) for lpa, (seq, page) in back.items())
        return f"{len(back)} pages"

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
        # A fence takes a block or two, and cleaning may go on before it.
        if ssd.validity.late and ssd.pool.free_n <= ssd.gc_reserve + (0 if self.from_pages else ssd.meta_floor):
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
                with suppress(MapLostError):  # where the map cannot say that a page is superseded, it counts
                    self.drop_superseded(block)
                if ssd.validity.count(block) == 0:
                    ssd.pool.push(block)
        return 0

    def mark_log(self):
        """The blocks of the checkpoint, and those of metadata written after it: their trims count until the next one
        is durable. A page of the log that was programmed into another stream's block by mistake counts, but the block
        stays that stream's: the checkpoint that ends this recovery says again what the page says."""
        for block in self.base.blocks(self.ssd.pages_per_block) if self.base is not None else ():
            self.mark_in_log(block)
        for seq, ppa in self.trim_pages:
            if not self.based or seq > self.checkpoint_seq:
                self.mark_in_log(ppa // self.ssd.pages_per_block)

    cdef mark_in_log(self, uint32_t block):
        if not self.marks[block] & HEADED or self.streams[block] == STREAM_META:
            self.marks[block] |= IN_LOG

    cdef int tell_blocks(self, bint reopens) except -1 nogil:
        """Copies of moves that were undone lie in blocks that are free now. If this recovery erases one, is cut, and
        the host dies, its old records may be there without their data; so no sync may have counted them, or the next
        recovery would take such a copy for whole where the original has been moved anew."""
        cdef uint32_t block, next_page, group = max(<uint32_t> 1, 2 * self.ssd.nand.paired_pages)
        cdef Oob oob
        for block in range(self.ssd.pool.blocks):
            self.ssd.pool.blank[block] = 0
            if self.marks[block] & HEADED:
                self.ssd.pool.stream[block] = self.streams[block]
            if self.ssd.nand.health(block):
                self.ssd.pool.state[block] = STATE_BAD
            elif self.marks[block] & IN_LOG and (self.streams[block] == STREAM_META
                                                 or self.ssd.validity.count(block) == 0):
                # else a page of the log was programmed there by mistake, and other pages live behind it
                self.ssd.pool.state[block] = STATE_META
                self.ssd.pool.stream[block] = STREAM_META
                self.ssd.pool.next_page[block] = self.ssd.pages_per_block
            elif self.ssd.validity.count(block) == 0:
                self.ssd.pool.state[block] = STATE_FREE
                self.ssd.pool.stale[block] = self.marks[block] & HEADED and self.streams[block] != STREAM_META
            else:
                self.ssd.pool.state[block] = STATE_CLOSED
                next_page = self.next_page[block] if self.marks[block] & SCANNED else self.ssd.pages_per_block
                self.ssd.pool.next_page[block] = next_page
                # Nothing may follow a torn page: only as the last of its block is it known to need a full read. Nor may
                # a group of paired pages be gone on with: a block that was closed inside one was not filled up before
                # the syncs that came then, so a lower page there may be flushed, and a torn upper one would take it.
                if (reopens and next_page % group == 0 and self.marks[block] & SCANNED and self.marks[block] & HEADED
                        and not self.marks[block] & TORN_IN and next_page < self.ssd.pages_per_block
                        and self.full_read(block * self.ssd.pages_per_block + next_page, &oob) == PAGE_ERASED):
                    self.ssd.pool.state[block] = STATE_OPEN
            if self.marks[block] & EXCLUDED:
                continue                    # left out: if this is cut, the next recovery must not take it for flushed
            if self.undone and self.ssd.pool.state[block] == STATE_FREE and not self.is_collected(block):
                self.ssd.nand.disclaim(block)
            elif self.marks[block] & SCANNED and not self.is_collected(block):
                self.ssd.nand.vouch(block, self.whole[block])
            elif self.spared and self.ssd.validity.count(block) and self.ssd.nand.synced(block) == 0:
                self.vouch_unread(block)
        return 0

    cdef int vouch_unread(self, uint32_t block) except -1 nogil:
        """Nothing was scanned, and no sync has counted any page of a block in which pages live: were its first page
        unreadable one day, nothing would tell the block from one whose erase had begun."""
        cdef Oob oob
        cdef uint32_t page = 0
        while page < self.ssd.pages_per_block and self.spare_read(block, page, &oob) == PAGE_OK:
            page += 1
        if page and self.full_read(block * self.ssd.pages_per_block + page - 1, &oob) != PAGE_OK:
            page -= 1                       # its program was interrupted
        return self.ssd.nand.vouch(block, page)

    def fit(self):
        """Mapping, validity and pool agree, or are made to; then the device is ready."""
        cdef uint32_t block
        cdef Ssd ssd = self.ssd
        # To read every translation page is what the steps spare, unless pages are missing: one may name those.
        hurt = self.forget_homeless() or self.torn_inside or len(self.alarms) > 0
        doubt = self.misfit(hurt or not self.from_pages)
        if hurt:
            ssd.mapping.distrust()
        if doubt:
            self.mend(doubt)
        ssd.placement.attach()
        ssd.meta.skip_ids(self.newest_id)
        ssd.meta.blocks = [block for block in range(ssd.pool.blocks) if ssd.pool.state[block] == STATE_META]
        ssd.meta.block = NONE
        ssd.mover.resume(GROUPS if self.spared else self.newest_group)  # without a scan nobody knows which are taken
        ssd.resume(self.seq, self.base.mounts if self.base is not None else 0, False,
                   at=self.fence if self.from_pages else None)
        self.let_go()
        return "mended" if doubt else ""

    def let_go(self):
        """Give back what only the recovery needed: a checkpoint is about to be written, and takes memory too."""
        self.entries.release()
        for entries in self.owned:
            if entries is not None:
                (<FoundPages> entries).release()
        self.stamps.release()
        self.moves.release()
        self.trim_index.release()
        if self.base is not None:
            self.base.sections = {}

    # --- the end

    def keep_in_memory(self):
        """Nothing may be written: what the NVRAM saved stays in the buffer, which was made to hold it."""
        for seq, lpa, page in self.back:
            self.ssd.restore(lpa, seq, page, True)

    cdef bint hint_late(self) except -1:
        """Whether the power was cut between the checkpoint that counts and its hint. Then the older hints are made to
        count no more, before a block is erased that holds an older clean checkpoint: of an erase that is cut short its
        mount mark may be gone, and nothing else."""
        if self.base is None or self.base.identity <= self.hint_id:
            return False
        self.ssd.meta.point_boot_nowhere(self.base.identity)
        return True

    def find_room(self):
        """After damage pages of blocks that were free may count again, one here and one there, until no block is free.
        Cleaning makes room where it can; else the log is given up, for what was logged is in the tables by now, and
        cleaning begins with its blocks."""
        cdef Ssd ssd = self.ssd
        if self.base is not None and not self.alarms:
            return
        if self.base is not None:
            self.clean_if_full()
        if ssd.pool.free_n < ssd.meta.checkpoint_blocks:
            for block in ssd.meta.blocks:
                ssd.pool.release(block, ssd.now_ns)
            ssd.meta.blocks = []
        self.clean_if_full()

    cdef clean_if_full(self):
        if self.ssd.pool.free_n <= self.ssd.meta.checkpoint_blocks:
            with suppress(DeviceFullError):  # no page is dead, on a worn chip: then there may be room for a checkpoint
                self.ssd.clean_up()

    def commit(self):
        if self.ssd.mapping.recovery_commits() | self.hint_late() or self.undone:
            self.ssd.sync_image()
        self.find_room()
        for seq, lpa, page in self.back:
            self.ssd.restore(lpa, seq, page, False)
        self.ssd.checkpoint()
        if self.ssd.log_overgrown():
            self.ssd.checkpoint()
        return f"checkpoint {self.ssd.meta.checkpoint_id}"
