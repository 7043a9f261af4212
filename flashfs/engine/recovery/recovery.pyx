# cold
# distutils: language = c++
# cython: wraparound=True
"""Recovery: from the image alone to a consistent device, as a table of named steps.

It only reads until the last step, so it can be interrupted anywhere and repeated with the same result. The last step
writes a checkpoint, which makes the result permanent: what was judged lost stays lost.

Which page counts. Of the versions of an LPA, the one with the highest sequence number counts, unless a later trim
covers it. Two pages with the same number are an original and its copy made by cleaning: the copy counts, unless the
move was not finished, that is, the original's block still has live pages that were not copied. Then all pages of that
block count where they are and the copies are dead, so that an interrupted move costs no space. A move of a group of
blocks is undone as a whole: each copy carries the number of its move, and the last copy has FLAG_LAST.

The found pages are in one array sorted by LPA (flashfs.engine.recovery.found_pages), and other data that grows with
them is in similar arrays: no Python object per page.
"""
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.recovery.found_pages cimport FoundPages
from flashfs.engine.device.mover cimport GROUPS
from flashfs.engine.blocks.pool cimport (
    CAUSE_RECOVERY,
    FLAG_CLEAN,
    FLAG_LAST,
    KIND_CHECKPOINT,
    NONE,
    STATE_BAD,
    STATE_CLOSED,
    STATE_FREE,
    STATE_META,
    STATE_OPEN,
    STREAM_GC,
    STREAM_HOST,
    STREAM_META,
    Oob,
    order_runs_out,
    runs_out,
)
from flashfs.engine.recovery.follow cimport Follower
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
    """What one step did and what it cost. ``part``: the part that it belongs to ("engine", "mapping", ...)."""

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
    """How a mount got its state. ``clean``: from a clean checkpoint, without a scan; ``fresh``: from a new format."""

    clean: bool = False
    fresh: bool = False
    steps: list = field(default_factory=list)
    figures: dict = field(default_factory=dict)
    alarms: list = field(default_factory=list)  # damage that no power cut can cause, one line each

    def summary(self):
        """One line for the user who mounted."""
        reads = sum(step.reads for step in self.steps)
        spares = sum(step.spare_reads for step in self.steps)
        if self.fresh:
            return "fresh: bound and formatted"
        if self.clean:
            return f"clean: read a checkpoint of {reads} pages, scanned nothing"
        return (f"recovered: {spares} spare and {reads} page reads, {self.figures.get('pages_found', 0)} pages written "
                f"since the last checkpoint, {self.figures.get('torn', 0)} torn")


class Recovery:
    """One recovery of one device. ``run`` performs STEPS in order, each followed by the steps that the parts of the FTL
    put after it (``recovery_steps`` in flashfs.engine.contract.recovery_wishes). ``readonly`` omits the last one.
    ``repairs`` skips a checkpoint that is whole but does not fit the device; otherwise such a checkpoint is an
    error."""

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
        """[(part, name, about, function)] of all steps in order."""
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
        """Make the device ready; returns the Report. CorruptError for damage that no power cut can cause and that
        cannot be repaired."""
        for part, name, about, run in self.table():
            if self.readonly and name == "commit":
                self.work.keep_in_memory()
                break                       # this and later steps change the image
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


cdef class Worker(Follower):
    """The steps in order: what is read, which pages count, and the resulting state of the device."""

    def __cinit__(self, Ssd ssd, bint repairs=False):
        self.back = []

    def steps_by_pages(self):
        """[(part, name, about, function)] of steps after ``checkpoint``, for a mapping that is rebuilt from its
        pages."""
        return []

    def step_by_entries(self):
        """As ``steps_by_pages``, one step after ``resolve``."""
        raise NotImplementedError

    cdef bint is_collected(self, uint32_t block) noexcept nogil:
        """Whether the block has metadata pages of which some may not count: such blocks must not be marked durable."""
        return False

    def names_sharers(self):
        return self.names_all()

    def guarded(self, run):
        """Wrap a step of a part: a ValueError or MapLostError that it raises counts as damage of the mapping in the
        step ``fit``."""
        def step():
            try:
                return run()
            except (ValueError, MapLostError) as error:
                self.doubted = self.doubted or error
                return f"given up: {error}"
        return step

    def boot(self):
        """Load a clean checkpoint, if there is one. Its proof: the page after its descriptor is still erased, because a
        mount programs that page before its first change."""
        cdef Oob oob
        hints = boot_hints([self.ssd.nand.boot_slot(0), self.ssd.nand.boot_slot(1)])
        self.hint_id = hints[0][0] if hints else 0
        if self.repairs:
            return "a repair believes no checkpoint unseen"
        if not hints or hints[0][1] >= self.ssd.nand.blocks * self.ssd.pages_per_block:
            return "no hint"
        # Only the newest hint: an interrupted erase may have destroyed the mount mark of an older checkpoint and left
        # its descriptor, but never before a newer hint was written.
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
        """Load the sections that only a clean checkpoint has; returns what is wrong with them, or None."""
        try:
            self.ssd.mapping.load_clean(self.base.sections)
        except (ValueError, IndexError, struct.error) as error:
            return error
        return None

    cdef misfit(self, bint whole):
        """What is wrong with the loaded mapping, or None. ``whole``: also read its parts in flash."""
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
        """Set the pool to its state after this checkpoint; returns the blocks of the log. ``order`` is that of the
        log's last block, opened after the pool was saved."""
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

    # --- what the mapping knows without a scan

    def scan(self):
        """No scan if the mapping's state is complete without one (``known_without_scan``). Otherwise as Scanner.scan;
        afterwards the pages of a validity store in flash are known too, so a step of its own may read them."""
        known = self.ssd.mapping.known_without_scan()
        if known is not None and not self.repairs:
            # a recovery that others stood on had no doubts, and has changed flash since
            self.spared = not self.doubts_slots(known[1]) or known[2] is not None
            if self.spared:
                self.seq = max(self.seq, <uint64_t> known[0])
                if known[2] is not None:
                    self.follow_moves(known[2])
                self.figures["blocks_scanned"] = 0
                return "not needed"
            self.load_base()
        note = Scanner.scan(self)
        try:
            self.resolve_validity()
        except MapLostError as error:
            self.doubted = self.doubted or error
            self.is_settled = True          # as far as can be: the step ``fit`` makes validity again
        return note

    # --- which page counts: resolve.pyx

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
        """Collect the slots newer than the checkpoint (which empties the buffer) and than the pages in flash."""
        cdef uint64_t newest
        back = {}
        saved = self.slots
        if saved is None:
            saved = self.ssd.buffer.survivors(CAUSE_RECOVERY, above=self.checkpoint_seq)
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

    # --- the resulting states of the blocks

    def blocks(self):
        """Set the final states of the pool: a block without live pages is free, and is erased before use."""
        cdef Ssd ssd = self.ssd
        cdef bint reopens = ssd.mapping.recovery_reopens()
        self.mark_log()
        with nogil:
            self.tell_blocks(reopens)
        ssd.pool.last_order = self.order
        ssd.pool.rebuild_free()
        # A fence needs a block or two, and cleaning may run before it: but of a reserve that is larger than cleaning
        # needs, some may be gone.
        if ssd.validity.late and ssd.pool.free_n <= (
                ssd.gc_need if self.from_pages else ssd.gc_reserve + ssd.meta_floor):
            self.free_more(ssd.meta_floor + (ssd.gc_need if self.from_pages else ssd.gc_reserve))
        return ", ".join(f"{n} {state}" for state, n in ssd.pool.census().items() if n)

    cdef int reopen_one(self) except -1:
        """Failed operations have used up the reserve, and closing what was open at the crash left cleaning no block to
        move pages to: let it fill the block with the most room after its last page, if that is proved blank."""
        cdef uint32_t block, group = max(<uint32_t> 1, 2 * self.ssd.nand.paired_pages)
        found = []
        for block in range(self.ssd.pool.blocks):
            if (self.ssd.pool.state[block] == STATE_CLOSED and self.ssd.pool.next_page[block] % group == 0
                    and self.ssd.pool.stream[block] in (STREAM_HOST, STREAM_GC)):
                found.append((self.ssd.pool.next_page[block], block))
        for _, block in sorted(found):
            if self.takes_more(block):
                self.ssd.pool.state[block] = STATE_OPEN
                self.ssd.pool.stream[block] = STREAM_GC
                break
        return 0

    cdef bint takes_more(self, uint32_t block) except -1 nogil:
        """Whether the next page of a block that was scanned is blank. Nothing may follow a torn page: only the last
        page of a block is known to need a full read."""
        cdef Oob oob
        cdef uint32_t page = self.ssd.pool.next_page[block]
        return (self.marks[block] & SCANNED and self.marks[block] & HEADED and not self.marks[block] & TORN_IN
                and page < self.ssd.pages_per_block
                and self.full_read(block * self.ssd.pages_per_block + page, &oob) == PAGE_ERASED)

    cdef int free_more(self, uint32_t enough) except -1:
        """Since the checkpoint, blocks were emptied (and counted as free) whose pages the checkpoint calls live. Check
        closed blocks page by page, those with the fewest live pages first, until more than ``enough`` are free."""
        cdef uint32_t block
        cdef Ssd ssd = self.ssd
        closed = []
        for block in range(ssd.pool.blocks):
            if ssd.pool.state[block] == STATE_CLOSED:
                closed.append((ssd.validity.count(block), block))
        for _, block in sorted(closed):
            if ssd.pool.free_n > enough:
                break
            with suppress(MapLostError):  # where the map cannot say that a page is superseded, it counts
                self.drop_superseded(block)
            if ssd.validity.count(block) == 0:
                ssd.pool.push(block)
        return 0

    def mark_log(self):
        """The blocks of the checkpoint, and those of metadata written after it: their trims count until the next one is
        durable. A log page that was programmed into another stream's block by mistake counts, but the block stays that
        stream's: the checkpoint that ends this recovery includes the page's contents."""
        for block in self.base.blocks(self.ssd.pages_per_block) if self.base is not None else ():
            self.mark_in_log(block)
        for seq, ppa in self.trim_pages:
            if not self.based or seq > self.checkpoint_seq:
                self.mark_in_log(ppa // self.ssd.pages_per_block)

    cdef mark_in_log(self, uint32_t block):
        if not self.marks[block] & HEADED or self.streams[block] == STREAM_META:
            self.marks[block] |= IN_LOG

    cdef int tell_blocks(self, bint reopens) except -1 nogil:
        """Set the state of each block. Copies of undone moves are in blocks that are free now. If this recovery erases
        one and power is cut or the host crashes, the old records may be there without their data. So their note of a
        sync is removed: otherwise the next recovery could take such a copy for whole although the original was moved
        again."""
        cdef uint32_t block, next_page, group = max(<uint32_t> 1, 2 * self.ssd.nand.paired_pages)
        for block in range(self.ssd.pool.blocks):
            self.ssd.pool.blank[block] = 0
            if self.marks[block] & HEADED:
                self.ssd.pool.stream[block] = self.streams[block]
            if self.ssd.nand.health(block):
                self.ssd.pool.state[block] = STATE_BAD
            elif self.marks[block] & IN_LOG and (self.streams[block] == STREAM_META
                                                 or self.ssd.validity.count(block) == 0):
                # otherwise a log page was programmed there by mistake, and later pages in the block are live
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
                # A begun group of paired pages may not be continued: a block closed inside one was not padded before
                # later syncs, so a lower page may be flushed, and a torn upper page would destroy it.
                if reopens and next_page % group == 0 and self.takes_more(block):
                    self.ssd.pool.state[block] = STATE_OPEN
            if self.marks[block] & EXCLUDED:
                continue                    # left out: if interrupted, the next recovery must not call it flushed
            if self.undone and self.ssd.pool.state[block] == STATE_FREE and not self.is_collected(block):
                self.ssd.nand.disclaim(block)
            elif self.marks[block] & SCANNED and not self.is_collected(block):
                self.ssd.nand.mark_synced(block, self.whole[block])
            elif self.spared and self.ssd.validity.count(block) and self.ssd.nand.synced(block) == 0:
                self.mark_unread(block)
        return 0

    cdef int mark_unread(self, uint32_t block) except -1 nogil:
        """Without a scan: note the whole pages of a block with live pages of which no sync has a note. Otherwise, if
        its first page became unreadable, the block would look like one whose erase had begun."""
        cdef Oob oob
        cdef uint32_t page = 0
        while page < self.ssd.pages_per_block and self.spare_read(block, page, &oob) == PAGE_OK:
            page += 1
        if page and self.full_read(block * self.ssd.pages_per_block + page - 1, &oob) != PAGE_OK:
            page -= 1                       # that program was interrupted
        return self.ssd.nand.mark_synced(block, page)

    def fit(self):
        """Check that mapping, validity and pool are consistent, repair them if not, and make the device ready."""
        cdef uint32_t block
        cdef Ssd ssd = self.ssd
        # The steps avoid reading every translation page, unless pages are missing: a translation page may name those.
        hurt = self.forget_homeless() or self.torn_inside or len(self.alarms) > 0
        doubt = self.misfit(hurt or not self.from_pages)
        if hurt:
            doubt = doubt or self.displaced()
            ssd.mapping.distrust()
        if doubt:
            self.mend(doubt)
        if ssd.placement.refills and ssd.pool.free_n <= ssd.meta.checkpoint_blocks:
            self.reopen_one()
        ssd.placement.attach()
        ssd.meta.skip_ids(self.newest_id)
        ssd.meta.blocks = [block for block in range(ssd.pool.blocks) if ssd.pool.state[block] == STATE_META]
        ssd.meta.block = NONE
        ssd.mover.resume(GROUPS if self.spared else self.newest_group)  # without a scan: all may be in use
        ssd.resume(self.seq, self.base.mounts if self.base is not None else 0, False,
                   at=self.fence if self.from_pages else None)
        self.let_go()
        return "mended" if doubt else ""

    def let_go(self):
        """Free the memory of the recovery: a checkpoint is about to be written, which needs memory too."""
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
        """Read-only: put the pages that the NVRAM saved into the buffer, which has room for them."""
        for seq, lpa, page in self.back:
            self.ssd.restore(lpa, seq, page, True)

    cdef bint hint_late(self) except -1:
        """Whether power was cut between the checkpoint in force and its hint. Then older hints are invalidated before a
        block of an older clean checkpoint is erased: an interrupted erase may destroy only its mount mark."""
        if self.base is None or self.base.identity <= self.hint_id:
            return False
        self.ssd.meta.point_boot_nowhere(self.base.identity)
        return True

    def find_room(self):
        """After damage, old pages in free blocks may count again, until no block is free. Cleaning makes room if it
        can; otherwise the log's blocks are released, because the tables include its contents by now, and cleaning
        starts with them."""
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
            with suppress(DeviceFullError):  # no page is dead, on a worn chip: a checkpoint may still fit
                self.ssd.clean_up()

    def commit(self):
        if self.ssd.mapping.recovery_commits() | self.hint_late() or self.undone:
            self.ssd.sync_image()
        self.find_room()
        for seq, lpa, page in self.back:
            self.ssd.restore(lpa, seq, page, False)
        self.ssd.checkpoint()
        # After two, no scan from pages comes back here. It would take a page after a torn one, of which no sync can
        # have a note, for one that was never flushed: were it spoilt later, its LPA would show an older version.
        if self.ssd.log_overgrown() or (self.from_pages and self.torn_inside):
            self.ssd.checkpoint()
        return f"checkpoint {self.ssd.meta.checkpoint_id}"
