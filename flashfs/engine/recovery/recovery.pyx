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

A recovery is composed. ``Found`` is what was read; each other part has it as a member. ``CleanStart`` is a mount that
needs no recovery. ``LogReader`` reads the metadata log, ``Scanner`` the pages written since the checkpoint,
``RecordTaker`` the records of LPAs that share pages. ``Resolver`` decides which pages count. ``Follower`` is for a
mapping that is known without a scan. ``BlockStates`` sets the states of the blocks, ``Mender`` repairs. A mapping
whose checkpoints are not whole brings a ``RecoveryBase``.
"""
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport CAUSE_RECOVERY, NONE, STATE_META, runs_out
from flashfs.engine.device.mover cimport GROUPS
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.block_states cimport BlockStates
from flashfs.engine.recovery.clean_start cimport CleanStart
from flashfs.engine.recovery.follow cimport Follower
from flashfs.engine.recovery.found cimport Found
from flashfs.engine.recovery.log_reader cimport LogReader
from flashfs.engine.recovery.mend cimport Mender
from flashfs.engine.recovery.records cimport RecordTaker
from flashfs.engine.recovery.recovery_base cimport RecoveryBase
from flashfs.engine.recovery.resolve cimport Resolver
from flashfs.engine.recovery.scan cimport Scanner

from contextlib import suppress
from dataclasses import dataclass, field

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
    error. ``found``: its ``alarms`` and ``figures`` are there even if ``run`` was broken off."""

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
        self.steps = Steps(ssd, repairs)
        self.found = self.steps.found
        self.parts = {"mapping": ssd.mapping, "validity": ssd.validity}
        self.readonly = readonly
        self.report = Report()

    def table(self):
        """[(part, name, about, function)] of all steps in order."""
        own = {name for name, _ in self.STEPS}
        first = self.steps.asked()
        reads = {(part, name) for part, name, after, _, _ in first if after != "resolve"}
        asked = [*first, *((part, *step) for part, one in self.parts.items() for step in one.recovery_steps())]
        for part, name, after, _, _ in asked:
            if after not in own or name in own:
                raise ValueError(f"{part}: a step {name!r} after {after!r}: it needs a name of its own, and to follow "
                                 f"one of {', '.join(own)}")
        table = []
        for name, about in self.STEPS:
            table.append(("engine", name, about, self.steps.function(name)))
            # What is read before ``resolve`` must be whole.
            table += [(part, step, what, run if (part, step) in reads else guarded(self.found, run))
                      for part, step, after, what, run in asked if after == name]
        return table

    def run(self):
        """Make the device ready; returns the Report. CorruptError for damage that no power cut can cause and that
        cannot be repaired."""
        for part, name, about, run in self.table():
            if self.readonly and name == "commit":
                self.steps.keep_in_memory()
                break                       # this and later steps change the image
            step = Step(name, about, part=part)
            before = self.found.meter()
            step.note = run() or ""
            after = self.found.meter()
            step.spare_reads, step.reads, step.programs = (after[i] - before[i] for i in range(3))
            step.virtual_us = (after[3] - before[3]) / 1000
            step.wall_ms = (after[4] - before[4]) * 1000
            self.report.steps.append(step)
            if self.steps.is_clean():
                self.report.clean = True
                break
        self.report.figures = self.found.figures
        self.report.alarms = self.found.alarms
        return self.report


def guarded(Found found, run):
    """Wrap a step of a part: a ValueError or MapLostError that it raises counts as damage of the mapping in the step
    ``fit``."""
    def step():
        try:
            return run()
        except (ValueError, MapLostError) as error:
            found.doubted = found.doubted or error
            return f"given up: {error}"
    return step


cdef class Steps:
    """The members of a recovery, and the steps that need more than one of them."""

    def __cinit__(self, Ssd ssd not None, bint repairs=False):
        self.ssd = ssd
        self.found = Found(ssd, repairs)
        self.scanner = Scanner(self.found)
        self.records = RecordTaker(self.found)
        self.resolver = Resolver(self.found, self.scanner)
        self.rebuilder = ssd.mapping.recovery_base() or RecoveryBase()
        self.rebuilder.join(self.found, self.scanner, self.resolver)
        self.log = LogReader(self.found, self.rebuilder)
        self.mender = Mender(self.found)
        self.follower = Follower(self.found)
        self.start = CleanStart(self.found, self.mender)
        self.states = BlockStates(self.found, self.log, self.resolver, self.rebuilder)
        self.back = []

    def function(self, name):
        """The function of one of the engine's steps."""
        return {
            "boot": self.start.boot,
            "headers": self.log.headers,
            "metadata": self.log.metadata,
            "checkpoint": self.log.checkpoint,
            "trims": self.log.trims,
            "scan": self.scan,
            "resolve": self.resolve,
            "nvram": self.nvram,
            "blocks": self.states.blocks,
            "fit": self.fit,
            "commit": self.commit,
        }[name]

    def asked(self):
        """[(part, name, after, about, function)] of the steps that a mapping without whole checkpoints needs, and of
        that which reads the records of one with ``names_sharers``."""
        asked = self.rebuilder.steps()
        if self.resolver.names_all():
            asked.append(("mapping", "claims", "scan", "read what NVRAM says of LPAs that share a page",
                          self.records.claims))
        return asked

    def is_clean(self):
        """Whether a clean checkpoint made a recovery unnecessary."""
        return self.start.done

    def scan(self):
        """No scan if the mapping's state is complete without one (``known_without_scan``)."""
        known = self.ssd.mapping.known_without_scan()
        if known is not None and not self.found.repairs:
            # a recovery that others stood on had no doubts, and has changed flash since
            self.found.spared = not self.follower.doubts_slots(known[1]) or known[2] is not None
            if self.found.spared:
                self.found.seq = max(self.found.seq, <uint64_t> known[0])
                if known[2] is not None:
                    self.follower.follow_moves(known[2])
                self.found.figures["blocks_scanned"] = 0
                return "not needed"
            self.found.load_base()
        return self.resolver.scan_and_settle()

    def resolve(self):
        """Which page of each LPA counts; see resolve.pyx."""
        if self.found.spared:
            return "not needed"
        try:
            return self.resolver.resolve_all()
        except MapLostError as error:
            self.found.give_up(error)
        self.resolver.scan_and_settle()
        return self.resolver.resolve_all()

    def nvram(self):
        """Collect the slots newer than the checkpoint (which empties the buffer) and than the pages in flash."""
        cdef uint64_t newest
        back = {}
        saved = self.follower.slots
        if saved is None:
            saved = self.ssd.buffer.survivors(CAUSE_RECOVERY, above=self.found.checkpoint_seq)
        self.found.trim_index.begin()
        for lpa, seq, page in sorted(saved, key=lambda slot: slot[0]):
            if runs_out(seq):
                raise CorruptError(f"NVRAM: a page of LPA {lpa} with sequence number {seq}")
            self.found.seq = max(self.found.seq, seq)
            if lpa >= self.ssd.lpas or seq <= self.found.checkpoint_seq:
                continue
            newest = max(self.resolver.found_seq(lpa), self.found.trim_index.newest(lpa))
            if seq > newest and seq > back.get(lpa, (0,))[0]:
                back[lpa] = (seq, page)
        self.found.figures["nvram_pages"] = len(back)
        self.back = sorted((seq, lpa, page) for lpa, (seq, page) in back.items())
        return f"{len(back)} pages"

    def fit(self):
        """Check that mapping, validity and pool are consistent, repair them if not, and make the device ready."""
        cdef uint32_t block
        cdef Ssd ssd = self.ssd
        # The steps avoid reading every translation page, unless pages are missing: a translation page may name those.
        hurt = self.mender.forget_homeless() or self.found.torn_inside or len(self.found.alarms) > 0
        doubt = self.mender.misfit(hurt or not self.found.from_pages)
        if hurt:
            doubt = doubt or self.mender.displaced()
            ssd.mapping.distrust()
        if doubt:
            self.mender.mend(doubt)
        if ssd.placement.refills and ssd.pool.free_n <= ssd.meta.checkpoint_blocks:
            self.states.reopen_one()
        ssd.placement.attach()
        ssd.meta.skip_ids(self.found.newest_id)
        ssd.meta.blocks = [block for block in range(ssd.pool.blocks) if ssd.pool.state[block] == STATE_META]
        ssd.meta.block = NONE
        ssd.mover.resume(GROUPS if self.found.spared else self.found.newest_group)  # without a scan: all may be in use
        ssd.resume(self.found.seq, self.found.base.mounts if self.found.base is not None else 0, False,
                   at=self.found.fence if self.found.from_pages else None)
        self.found.release()
        self.resolver.moves.release()
        return "mended" if doubt else ""

    def keep_in_memory(self):
        """Read-only: put the pages that the NVRAM saved into the buffer, which has room for them."""
        for seq, lpa, page in self.back:
            self.ssd.restore(lpa, seq, page, True)

    cdef bint hint_late(self) except -1:
        """Whether power was cut between the checkpoint in force and its hint. Then older hints are invalidated before a
        block of an older clean checkpoint is erased: an interrupted erase may destroy only its mount mark."""
        if self.found.base is None or self.found.base.identity <= self.found.hint_id:
            return False
        self.ssd.meta.point_boot_nowhere(self.found.base.identity)
        return True

    def find_room(self):
        """After damage, old pages in free blocks may count again, until no block is free. Cleaning makes room if it
        can; otherwise the log's blocks are released, because the tables include its contents by now, and cleaning
        starts with them."""
        cdef Ssd ssd = self.ssd
        if self.found.base is not None and not self.found.alarms:
            return
        if self.found.base is not None:
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
        if self.ssd.mapping.recovery_commits() | self.hint_late() or self.resolver.undone:
            self.ssd.sync_image()
        self.find_room()
        for seq, lpa, page in self.back:
            self.ssd.restore(lpa, seq, page, False)
        self.ssd.checkpoint()
        # After two, no scan from pages comes back here. It would take a page after a torn one, of which no sync can
        # have a note, for one that was never flushed: were it spoilt later, its LPA would show an older version.
        if self.ssd.log_overgrown() or (self.found.from_pages and self.found.torn_inside):
            self.ssd.checkpoint()
        self.rebuilder.committed()
        return f"checkpoint {self.ssd.meta.checkpoint_id}"
