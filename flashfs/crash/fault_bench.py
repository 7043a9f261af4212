"""A bench with more faults than power cuts: the fault menu (nandimg.faults) and pages that are spoilt.

A device must survive some of them without loss, as it survives a power cut: failures that the chip reports, an upper
page that destroys its lower page, blocks that wear out, an image whose disk fails. Others destroy data for good. Then
the rule is: an LPA gives EIO or what it should; an older version only after an alarm; another LPA's page or a torn one
never. And the device must go on. If only pages of the host were damaged, no more LPAs may suffer than pages.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Self

from flashfs.crash._watched import WatchedNand
from flashfs.crash.bench import RACK, Bench, Outcome, Wrong
from flashfs.crash.grammar import CARRIES, Step
from flashfs.crash.oracle import Judge
from flashfs.device import build_ssd
from flashfs.engine.device import byte_requests
from flashfs.engine.recovery import recovery
from flashfs.errors import CorruptError, DeviceFullError, UncorrectableError
from nandimg import NandError, NandFilter, PowerCut, dress
from nandimg._fault_filters import HostErrors, Misdirection, Silence
from nandimg._torn import spoil

#: kinds of pages, and the flag of a descriptor (SPEC.md, section 8)
USER, CHECKPOINT, TRIM, LAST = 1, 4, 5, 2


class HurtJudge(Judge):
    """A judge that also keeps every version that an LPA ever had, and which writes were refused."""

    __slots__ = ("ever", "unsure")

    def __init__(self, pages: int, page_bytes: int) -> None:
        super().__init__(pages, page_bytes)
        self.ever: list[set[int]] = [{0} for _ in range(pages)]
        self.unsure: set[int] = set()  #: LPAs of which the last write or trim was refused: it may have happened

    def fork(self) -> Self:
        other = super().fork()
        other.ever = [versions.copy() for versions in self.ever]
        other.unsure = self.unsure.copy()
        return other

    def _add(self, lpa: int, version: int) -> bytes:
        self.ever[lpa].add(version)
        return super()._add(lpa, version)

    def flushed(self) -> None:
        for lpa in [lpa for lpa in self._open if lpa not in self.unsure]:
            del self._open[lpa]
        self._moved.clear()
        self._wholes.clear()

    def allows(self, lpa: int, found: bytes) -> bool:
        """Whether ``found`` is what the LPA may read as while nothing crashes. After a refused request that is any open
        version; later partial writes build on the one found, but a crash may still bring back another."""
        versions = self._open[lpa] if lpa in self.unsure and lpa in self._open else [self._versions[lpa]]
        for version in versions:
            if found == self.content(lpa, version):
                self._set(lpa, version)
                return True
        return False

    def settle_on(self, lpa: int, found: bytes | None) -> None:
        """Take ``found`` as the page's version, if it is one of them: before the page is copied or remapped."""
        versions = self._open.get(lpa, [])
        for version in reversed(versions):
            if found == self.content(lpa, version):
                versions.append(version)
                self._set(lpa, version)
                return

    def take_older(self, lpa: int, found: bytes) -> bool:
        """Whether ``found`` is some older version; if so, the LPA holds that version from now on."""
        for version in self.ever[lpa]:
            if found == self.content(lpa, version):
                self._open.pop(lpa, None)
                self._set(lpa, version)
                return True
        return False


class HurtBench(Bench):
    """One case with faults. It does not fork."""

    judge: HurtJudge

    def __init__(self, case: Any, tell: Any = None, watcher: Any = None) -> None:
        super().__init__(case, tell, watcher)
        self.judge = HurtJudge(self.geometry.lpas, self.geometry.page_bytes)
        self.damaging = any(fault.damaging for fault in case.faults)
        self.alarms: list[str] = []
        self.lost: set[int] = set()  #: LPAs that gave EIO when they were last read
        self.suffered: set[int] = set()  #: LPAs that ever gave EIO, or showed what they were before
        self.hurt: set[int] = set()  #: ... and were not written or trimmed since: another version may show up later
        self.silent: set[int] = set()  #: LPAs whose loss no recovery can tell: ``untold``
        self.spoilt: list[int] = []  #: the kind of each page that a word of the program has spoilt
        self.worn_out = False  #: no change is possible any more
        self.shut = False  #: not even a mount is possible

    def power_up(self, watcher: Any) -> WatchedNand:
        chip = RACK.take(self.mold)
        front = dress(chip, self.case.faults, self.case.line())
        return WatchedNand(front, self.case.cuts, self.case.fail, watcher=watcher)

    def heard(self, alarms: list[str]) -> None:
        if alarms and not self.damaging:
            super().heard(alarms)
        self.alarms += alarms

    def listen(self) -> None:
        """Collect the alarms that the device raised after its mount."""
        self.alarms += [alarm for alarm in self.ssd.alarms or () if alarm not in self.alarms]

    def play(self, *, forked: bool = False) -> Outcome:
        outcome = super().play(forked=forked)
        if self.shut:  # the device reports the damage instead of mounting: allowed, and nothing is left to judge
            outcome.failure = None
        return outcome

    # --- requests may be refused

    def attempt(self, action: Callable[[], None]) -> bool:
        try:
            return super().attempt(action)
        except NandError as error:
            self.deceived(error)
        except DeviceFullError:
            self.wear_out()
        except OSError as error:  # EIO and ENOSPC, from the image's disk or from a device that stopped
            try:
                self.refused(error)
            except PowerCut:  # reading the pages had to write
                self.survive()
                return False
        return True

    def deceived(self, error: NandError) -> NoReturn:
        """A block was programmed that is not erased. That is the device's fault, unless the chip claimed an erase that
        it had not done and a cut left the first page reading as erased: no FTL can detect that."""
        skipped = {(block, page) for one in self.filters() if isinstance(one, Silence) for _, block, page in one.struck}
        if (error.block, -1) not in skipped or not self.case.cuts:
            raise error
        self.shut = True
        raise Wrong(str(error)) from None

    def refused(self, error: OSError) -> None:
        """A request was refused: its pages may hold the old or the new version. A device that stopped is remounted."""
        hosts = any(fault.kind in ("eio", "enospc") for fault in self.case.faults)
        lost = isinstance(error, UncorrectableError)
        if not (self.carries(error) if lost else hosts):
            raise Wrong(f"a request was refused: {error}")
        self.say(f"refused: {error}")
        if 0 < self.phase <= len(self.steps):
            self.judge.unsure |= self.steps[self.phase - 1].pages(self.geometry.page_bytes)
        if self.ssd.why_stopped() or self.phase == 0 or self.phase > len(self.steps):
            self.mend()
            self.survive()
        else:
            self.look("after a refusal", crashed=False)

    def carries(self, error: OSError) -> bool:
        """Whether the request is a copy or remap, and one of its pages is lost."""
        if not self.damaging or not 0 < self.phase <= len(self.steps):
            return False
        step, page = self.steps[self.phase - 1], self.geometry.page_bytes
        sources = {lpa for at, size in step.spans(page) for lpa in range(at // page, -(-(at + size) // page))}
        lpa = getattr(error, "lpa", None)
        return step.operation in CARRIES and lpa in sources | step.pages(page) and self.read_page(lpa) is None

    def mend(self) -> None:
        """The image's disk works again."""
        for one in self.filters():
            if isinstance(one, HostErrors):
                one.mend()

    def filters(self) -> Iterator[NandFilter]:
        """The filters in front of the chip, outermost first."""
        nand: Any = self.nand
        while isinstance(nand, NandFilter):
            yield nand
            nand = nand.inner

    def may_be_older(self) -> bool:
        """Whether an LPA may read as an older version."""
        self.listen()
        return self.damaging and bool(self.alarms)

    def may_be_back(self) -> bool:
        """Whether an alarm said that trimmed pages may be back, though the power never failed."""
        self.listen()
        return self.damaging and any("trimmed pages may be back" in alarm for alarm in self.alarms)

    def may_be_hole(self) -> bool:
        """Whether an alarm said that LPAs are holes now: the page that named them was lost, and so was their own."""
        self.listen()
        return self.damaging and any("are holes now" in alarm for alarm in self.alarms)

    def untold(self) -> set[int]:
        """LPAs whose page was the only one of its block, and was overwritten by a first page that was meant for another
        block: nothing on the chip shows that."""
        lpas = set()
        for one in (one for one in self.filters() if isinstance(one, Misdirection)):
            harmed = {(block, page): oob for block, page, oob in one.harmed}
            for _, _, page, *place in one.struck:
                oob = harmed.get((place[0], place[1])) if place else None
                if oob and oob[6] == USER and page == place[1] == 0 and self.whole_pages(place[0]) == [0]:
                    lpas.add(int.from_bytes(oob[8:12], "little"))
        return lpas

    def whole_pages(self, block: int) -> list[int]:
        chip = self.nand.chip
        return [page for page in range(self.geometry.pages_per_block) if chip.read_spare_area(block, page)[0] == 1]

    def mount(self, *, mended: bool = False) -> None:
        self.listen()
        self.silent |= self.untold()
        try:
            super().mount()
        except OSError as error:
            if isinstance(error, UncorrectableError):
                raise
            if mended:
                raise Wrong(f"the image cannot be mounted on a disk that works: {error}") from None
            self.say(f"not mounted: {error}")
            self.mend()
            self.power_on()
            self.mount(mended=True)
        except DeviceFullError:
            self.wear_out()
        except NandError as error:
            self.deceived(error)
        except CorruptError as error:
            self.refuses(error)

    def refuses(self, error: CorruptError) -> NoReturn:
        """A mount refuses the image. That is allowed only after a silent or misdirected program, and nothing is left to
        judge then; after spoilt or unreadable pages the device must still mount."""
        if not any(fault.kind in ("silent", "misdirect") for fault in self.case.faults):
            raise error
        self.shut = True
        raise Wrong(f"the image cannot be mounted any more: {error}") from None

    def wear_out(self) -> None:
        """Too few blocks are left to change anything. What was flushed must be there to read."""
        chip = self.nand.chip
        failing = self.case.fail or any(fault.kind in ("wear", "fail") for fault in self.case.faults)
        if not failing and not any(chip.block_health(block) for block in range(chip.blocks)):
            raise Wrong("the device is full, and no block went bad")
        self.say("worn out")
        self.listen()
        self.worn_out = True
        self.nand.power_on()
        self.ssd = build_ssd(self.scheme, self.settings(), self.nand, readonly=True)
        try:
            self.heard(recovery.Recovery(self.ssd, True).run().alarms)
        except CorruptError as error:
            self.refuses(error)
        self.look("worn out", crashed=True)
        self.phase = len(self.steps) + 1

    def finish(self) -> None:
        if not self.worn_out:
            super().finish()

    def step(self, operation: str, lpa: int, n: int) -> None:
        if operation.startswith("x"):
            self.spoil(operation)
            return
        super().step(operation, lpa, n)
        if operation == "r" and self.damaging:
            self.look("after a remount", crashed=True)
        if operation in "wt":
            self.judge.unsure -= set(range(lpa, lpa + n))
            self.lost -= set(range(lpa, lpa + n))
            self.hurt -= set(range(lpa, lpa + n))

    def step_in_parts(self, step: Step) -> None:
        if step.operation in CARRIES:
            for at, size in step.spans(self.geometry.page_bytes):
                for lpa in range(at // self.geometry.page_bytes, -(-(at + size) // self.geometry.page_bytes)):
                    if lpa in self.judge.unsure:
                        self.judge.settle_on(lpa, self.read_page(lpa))
        super().step_in_parts(step)
        self.judge.unsure -= step.pages(self.geometry.page_bytes)
        self.hurt -= step.pages(self.geometry.page_bytes)

    # --- judging

    def bound(self) -> int | None:
        """The most LPAs that the damage so far may cost: the number of damaged pages, if all are pages of the host.
        None: any number, because LPAs share pages, or pages of the map or the log were hit; or because the write buffer
        is in NVRAM, so pages that were never flushed count too and may be lost along with a missing flushed one."""
        if self.case.plp or any(one.name == "plp" for one in self.case.later):
            return None
        if any(step.operation in CARRIES for step in self.steps):
            return None
        if any(fault.mode == "stuck" for fault in self.case.faults):
            return None
        harmed = [oob[6] if oob else None for one in self.filters() for _, _, oob in getattr(one, "harmed", ())]
        kinds = [*self.spoilt, *harmed]
        return len(kinds) if all(kind == USER for kind in kinds) else None

    def costs(self, lpa: int, when: str) -> None:
        """This LPA gave EIO or showed an older version."""
        self.suffered.add(lpa)
        self.hurt.add(lpa)
        bound = self.bound()
        if bound is not None and len(self.suffered) > bound:
            suffered = f"{len(self.suffered)} LPAs suffered from damage to {bound} pages of the host"
            raise Wrong(f"{when}: LPA {lpa}: {suffered}")

    def read_page(self, lpa: int) -> bytes | None:
        """The page's bytes; None for EIO."""
        page = bytearray(self.geometry.page_bytes)
        try:
            byte_requests.read_range(self.ssd, lpa * self.geometry.page_bytes, page)
        except UncorrectableError:
            return None
        return bytes(page)

    def look(self, when: str, *, crashed: bool) -> None:
        """Read and judge every LPA; ``crashed``: after a recovery, when any open version is allowed."""
        for lpa in range(self.geometry.lpas):
            found = self.read_page(lpa)
            if found is None:
                if not self.damaging:
                    raise Wrong(f"{when}: LPA {lpa} cannot be read")
                self.lost.add(lpa)
                self.costs(lpa, when)
            elif crashed:
                wrong = self.judge.crashed(lpa, found)
                told = self.may_be_older() or lpa in self.silent
                if wrong and not (told and self.judge.take_older(lpa, found)):
                    raise Wrong(f"{when}: {wrong}" + ", and no alarm was raised" * self.damaging)
                if wrong:
                    self.costs(lpa, when)
                self.judge.unsure.discard(lpa)
            elif not self.judge.allows(lpa, found):
                told = self.may_be_back() or (not any(found) and self.may_be_hole())
                told |= lpa in self.hurt and self.may_be_older()
                if not (told and self.judge.take_older(lpa, found)):
                    raise Wrong(f"{when}: LPA {lpa} does not read what was written last")
                self.costs(lpa, when)
        self.sound(when)

    def examine(self) -> None:
        if not self.worn_out:
            self.look("after recovery", crashed=True)

    def must_be_newest(self, when: str) -> None:
        self.look(when, crashed=False)

    def sound(self, when: str) -> None:
        """If pages were lost, mapping and flash cannot agree; only the engine's own structures are checked."""
        if not self.damaging:
            super().sound(when)
            return
        problems = self.ssd.pool.check() + self.ssd.validity.check() + self.ssd.buffer.check()
        if problems:
            raise Wrong(f"{when}: {problems[0]}")

    # --- damage that no power cut causes

    def spoil(self, word: str) -> None:
        """Spoil what ``word`` names, if it exists, and cut the power."""
        rnd = random.Random(f"{self.case.line()} {self.phase}")
        if word == "xb":
            for slot in (0, 1):
                self.nand.chip.write_boot_slot(slot, rnd.randbytes(64))
        places = self.places(word)
        some = places if word == "xm" else rnd.sample(places, min(1, len(places)))
        for block, page in some:
            self.say(f"block {block} page {page} is spoilt")
            status, oob = self.nand.chip.read_spare_area(block, page)
            if status == 1:                 # a page that was already unreadable does not count
                self.spoilt.append(oob[6])
            spoil(self.nand.chip, block, page)
        self.damaging = True
        self.survive()

    def places(self, word: str) -> list[tuple[int, int]]:
        """(block, page) of every page that ``word`` may mean."""
        if word == "xm":
            pages = self.places("xp")
            rnd = random.Random(f"{self.case.line()} {self.phase} many")
            return rnd.sample(pages, rnd.randint(0, len(pages))) + self.places("xc") + self.places("xd")
        if word in ("xh", "xp"):
            live = [(block, self.ssd.validity.live_in(block)) for block in range(self.geometry.blocks)]
            return [(block, 0 if word == "xh" else page) for block, pages in live for page in pages]
        if word == "xn":
            pages_per_block = self.geometry.pages_per_block
            return sorted({divmod(ppa, pages_per_block) for _, ppa in self.ssd.owned_pages()})
        kind = {"xc": CHECKPOINT, "xd": CHECKPOINT, "xt": TRIM}.get(word)
        found = []
        for block in self.ssd.meta.blocks:
            for page in range(self.geometry.pages_per_block):
                status, oob = self.nand.chip.read_spare_area(block, page)
                descriptor = bool(oob[7] & LAST)
                if status == 1 and oob[6] == kind and (kind == TRIM or descriptor == (word == "xd")):
                    found.append((block, page))
        return found

