"""Groups of blocks, moved and undone as one; superblocks as the unit of allocation and of cleaning."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import groups
import numpy as np
import pytest
from rig import PAGE, Rig
from schemes import bounded

import nandimg
from flashfs.check import suite
from flashfs.crash import Case, run_case, tiers
from flashfs.crash.bench import Bench
from flashfs.crash.forks import Forks
from flashfs.crash.programs import aged_program
from flashfs.device import Device
from flashfs.engine.recovery import recovery
from flashfs.engine.views.cross_check import cross_check
from flashfs.errors import BindError
from flashfs.ftl import SCHEMES
from flashfs.inspect._view import Spare
from nandimg import PRESETS, Cut, FaultyNand, Geometry, PowerCut
from nandimg._faults import SHAPES
from nandimg.presets import Preset

DIES = 4
FULL = Geometry(page_bytes=PAGE, pages_per_block=8, blocks=64, channels=2, dies=DIES, oob_bytes=64, lpas=390)
ROOM = Geometry(page_bytes=PAGE, pages_per_block=8, blocks=64, channels=2, dies=DIES, oob_bytes=64, lpas=200)
GC = 1  #: the stream of cleaning
LAST, MOVED = 2, 1  #: flags


@pytest.fixture(autouse=True)
def scheme(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setitem(SCHEMES, groups.NAME, groups.SUPERBLOCKS)
    monkeypatch.setitem(PRESETS, "groups", Preset("groups", "", "", FULL))
    yield groups.NAME
    tiers.presets_for.cache_clear()


def sound(device: Device) -> None:
    assert device.ssd.check() == []
    assert cross_check(device.ssd) == []


def states(device: Device) -> list[str]:
    return [device.ssd.pool.describe(block)["state"] for block in range(device.nand.blocks)]


def closed_superblocks(device: Device) -> list[list[int]]:
    """The whole ones, in the order of their blocks."""
    state = states(device)
    rows = [list(range(at, at + DIES)) for at in range(0, len(state), DIES)]
    return [row for row in rows if all(state[block] == "closed" for block in row)]


def array(numbers: list[int]) -> Any:
    return np.array(numbers, dtype=np.uint32)


def spares(device: Device, blocks: list[int]) -> list[tuple[int, Spare]]:
    """(PPA, what it says) of their live pages."""
    places = [(block, page) for block in blocks for page in device.ssd.validity.live_in(block)]
    per_block = device.nand.pages_per_block
    return [(at[0] * per_block + at[1], Spare.of(device.nand.read_spare_area(*at)[1])) for at in places]


def used_blocks(device: Device) -> int:
    return sum(bool(device.ssd.validity.live_in(block)) for block in range(device.nand.blocks))


# --- one move


def test_a_group_is_carried_sorted_over_all_dies() -> None:
    """Its pages take consecutive VPPNs in the order of their LPAs, say which move made them, and the last that it is
    the last; all victims are released together."""
    with Device.memory(ROOM, groups.NAME, {"buffer": 0}) as device:
        lpas = list(range(64))
        random.Random(1).shuffle(lpas)
        for lpa in lpas:
            device.write(lpa * PAGE, bytes([lpa]) * PAGE)
        for lpa in lpas[::5]:
            device.write(lpa * PAGE, bytes([lpa]) * PAGE)
        victims = closed_superblocks(device)[0]
        before = {spare.lpa for _, spare in spares(device, victims)}
        assert len(before) > 20
        assert device.ssd.move_blocks(array(victims))
        assert {states(device)[block] for block in victims} == {"pending"}
        copies = sorted((ROOM.vppn(ppa), spare) for ppa, spare in spares(
            device, [block for block in range(64) if device.ssd.pool.describe(block)["stream"] == "gc"]))  # fmt: skip
        assert [spare.lpa for _, spare in copies] == sorted(before)
        assert [vppn for vppn, _ in copies] == list(range(copies[0][0], copies[0][0] + len(copies)))
        assert {(spare.group, bool(spare.flags & MOVED)) for _, spare in copies} == {(1, True)}
        assert [bool(spare.flags & LAST) for _, spare in copies] == [False] * (len(copies) - 1) + [True]
        sound(device)
        assert all(device.read(lpa * PAGE, PAGE) == bytes([lpa]) * PAGE for lpa in range(64))


def test_a_page_that_is_moved_again_alone_ends_no_group() -> None:
    with Device.memory(ROOM, groups.NAME, {"buffer": 0}) as device:
        for lpa in range(96):
            device.write(lpa * PAGE, bytes([lpa]) * PAGE)
        device.ssd.move_blocks(array(closed_superblocks(device)[0]))
        rows = closed_superblocks(device)
        moved = next(row for row in rows if device.ssd.pool.describe(row[0])["stream"] == "gc")
        for block in moved:
            device.ssd.move_blocks(array([block]))
        again = [spare for _, spare in spares(device, list(range(64))) if spare.moves == 2]
        assert len(again) == 32
        assert {(spare.group, spare.flags & LAST) for spare in again} == {(0, 0)}
        sound(device)


def test_any_pages_are_carried_and_no_block_is_released() -> None:
    with Device.memory(ROOM, groups.NAME, {"buffer": 0}) as device:
        for lpa in range(64):
            device.write((63 - lpa) * PAGE, bytes([63 - lpa]) * PAGE)
        device.trim(20 * PAGE, PAGE)
        some = sorted(ppa for ppa, spare in spares(device, list(range(64))) if spare.lpa % 3 == 0)
        dead = next(ppa for ppa in range(64) if ppa not in {ppa for ppa, _ in spares(device, list(range(64)))})
        counts = [device.ssd.validity.live_in(block) for block in range(64)]
        assert device.ssd.move_pages(array(sorted([*some, dead])))
        copies = [(ROOM.vppn(ppa), spare) for ppa, spare in spares(device, list(range(64))) if spare.flags & MOVED]
        assert [spare.lpa for _, spare in sorted(copies, key=lambda one: one[0])] == list(range(0, 64, 3))
        assert {(spare.group, spare.flags & LAST) for _, spare in copies} == {(0, 0)}
        for block, live in enumerate(counts):
            left = [page for page in live if block * 8 + page not in some]
            assert not live or device.ssd.validity.live_in(block) == left
        assert "pending" not in states(device)
        sound(device)
        with pytest.raises(ValueError, match="33 pages to be moved at once: there is room for 32"):
            device.ssd.move_pages(array(list(range(33))))


def test_more_groups_than_a_recovery_can_tell_apart(tmp_path: Path) -> None:
    """Beyond them blocks are moved one by one, and a checkpoint is due; after it the numbers begin again."""
    rig = Rig(tmp_path / "chip", groups.NAME, ROOM, options={"buffer": "0", "checkpoint_every": str(1 << 39)})
    rig.write(*range(160))
    seen = set()
    checkpoints = rig.device.ssd.meta.checkpoint_id
    for _ in range(300):
        rows = closed_superblocks(rig.device)
        rig.device.ssd.move_blocks(array(rows[0]))
        seen |= {spare.group for _, spare in spares(rig.device, list(range(64)))}
    assert seen >= set(range(256))
    assert rig.device.ssd.meta.checkpoint_id == checkpoints
    sound(rig.device)
    rig.device.flush()
    assert rig.device.ssd.meta.checkpoint_id == checkpoints + 1
    rig.device.ssd.move_blocks(array(closed_superblocks(rig.device)[0]))
    assert 1 in {spare.group for _, spare in spares(rig.device, list(range(64)))}
    rig.kill()
    assert rig.open() == []
    assert all(rig.holds(lpa) == b"a" for lpa in range(160))
    sound(rig.device)


# --- what a power cut makes of it


class Space(Bench):
    """Counts blocks that hold live pages, before each cut as the device knew it and after the recovery."""

    grown: int = 0
    undone: int = 0

    def in_use(self) -> int:
        return sum(bool(self.ssd.validity.live_in(block)) for block in range(self.nand.blocks))

    def mount(self) -> None:
        before = self.in_use()
        self.met.take(self.ssd)
        self.ssd = self.build(dict(self.options))
        self.undone += recovery.Recovery(self.ssd).run().figures["undone_groups"]
        self.grown = self.in_use() - before


def overwrites(seed: int, n: int) -> str:
    rnd = random.Random(seed)
    return " ".join(["w0+390", *(f"w{8 * rnd.randrange(48)}+3" for _ in range(n))])


@pytest.mark.parametrize("stripe", [3, *(pytest.param(stripe, marks=pytest.mark.slow) for stripe in (1, 8))])
def test_interrupted_moves_of_groups_cost_no_space(stripe: int) -> None:
    """Wherever they are cut, on a device that is as full as can be."""
    options = (("buffer", 0), ("stripe", stripe))
    whole = run_case(Case(groups.NAME, overwrites(stripe, 120), "groups", options=options))
    undone = 0
    for at in range(whole.operations[0] // 2, whole.operations[0], 2):
        bench = Space(Case(groups.NAME, overwrites(stripe, 120), "groups", (Cut(at, "before"),), options))
        try:
            assert bench.play().failure is None
            assert bench.grown <= 0, f"{bench.grown} more blocks hold live pages after a cut at {at}"
            undone += bench.undone
        finally:
            bench.release()
    assert undone > 5


class Cutting(Rig):
    """A device whose power goes at an operation of a group's move; without one, ``begins`` is when that began. The
    victims were filled ``stripe`` pages at a time, and the copies go to the dies page by page."""

    def __init__(self, path: Path, at: int = 0, stripe: int = 1) -> None:
        self.front: Any = None
        self.cut = 0
        how = {"options": {"buffer": "0", "stripe": str(stripe)}, "front": self.put_in_front}
        super().__init__(path, groups.NAME, ROOM, **how)
        self.write(*reversed(range(96)))
        self.write(*range(0, 96, 9), mark=b"b")
        self.device.close()
        self.cut = at
        self.open(options={"buffer": "0", "stripe": "1"})
        self.device.ssd.idle()  # the mark of the mount
        self.victims = closed_superblocks(self.device)[1]
        self.originals = {spare.lpa: ppa for ppa, spare in spares(self.device, self.victims)}
        self.in_use = used_blocks(self.device)
        self.begins = self.front.operations
        if at:
            with pytest.raises(PowerCut):
                self.device.ssd.move_blocks(array(self.victims))
            self.cut = 0
            self.kill()
        else:
            self.device.ssd.move_blocks(array(self.victims))

    def put_in_front(self, chip: Any) -> FaultyNand:
        self.front = FaultyNand(chip, (Cut(self.cut, "before"),) if self.cut else ())
        return self.front

    def all_there(self) -> None:
        for lpa in range(96):
            assert self.holds(lpa) == (b"a" if lpa % 9 else b"b"), lpa
        sound(self.device)


def test_a_group_whose_last_page_is_missing_is_undone_whole(tmp_path: Path) -> None:
    """Whether or not its victims have pages of their own left; and with the last page it is done."""
    tried = Cutting(tmp_path / "tried")
    pages, ends = len(tried.originals), tried.front.operations
    tried.kill()
    erases = ends - tried.begins - pages
    assert 0 <= erases <= DIES
    for at in range(1, ends - tried.begins + 1):
        rig = Cutting(tmp_path / f"chip {at}", tried.begins + at)
        copied = rig.find(lambda spare: bool(spare.flags & MOVED))
        assert rig.open() == []
        assert rig.figures["undone_moves"] == len(copied)
        assert rig.figures["undone_groups"] == bool(copied)
        live = {spare.lpa: ppa for ppa, spare in spares(rig.device, rig.victims)}
        assert live == rig.originals
        rig.all_there()
        rig.kill()
    done = Cutting(tmp_path / "done")
    done.kill()
    assert done.open() == []
    assert done.figures["undone_groups"] == 0
    assert spares(done.device, done.victims) == []
    done.all_there()


def test_an_interrupted_move_of_a_group_costs_no_space(tmp_path: Path) -> None:
    """A victim was through, and its copies lie on every die. If the move were undone block by block, that one would be
    free, and four others would not."""
    tried = Cutting(tmp_path / "tried", stripe=8)
    begins, ends = tried.begins, tried.front.operations
    tried.kill()
    for at in range(1, ends - begins + 1):
        rig = Cutting(tmp_path / f"chip {at}", begins + at, stripe=8)
        rig.open(options={"buffer": "0", "stripe": "1"})
        assert used_blocks(rig.device) == rig.in_use
        rig.all_there()
        rig.kill()


def test_what_cannot_be_read_any_more_is_not_gone_back_to(tmp_path: Path) -> None:
    """The numbers of groups alone are never believed: a victim that lost a page was perhaps erased."""
    tried = Cutting(tmp_path / "tried")
    pages, begins, ends = len(tried.originals), tried.begins, tried.front.operations
    tried.kill()
    through = 0
    for at in range(ends - begins - pages + 2, ends - begins + 1):
        rig = Cutting(tmp_path / f"chip {at}", begins + at)
        copies = {rig.spare(ppa).lpa: ppa for ppa in rig.find(lambda spare: bool(spare.flags & MOVED))}
        blocks = {lpa: ppa // 8 for lpa, ppa in rig.originals.items()}
        left = {blocks[lpa] for lpa in rig.originals if lpa not in copies}
        alone = [lpa for lpa in copies if blocks[lpa] not in left]  # of victims that were copied whole
        if not alone:
            continue
        through += 1
        rig.wreck(rig.originals[alone[0]])
        rig.open()
        assert rig.figures["undone_groups"] == 0
        rig.all_there()
        rig.kill()
    assert through


def campaign(mode: str, seed: int, cases: int, undone: list[int]) -> None:
    """Programs that keep a chip of four dies cleaning, cut in every way that a tier knows."""
    for unit in range(cases):
        rnd = random.Random(f"groups {mode} {seed} {unit}")
        preset = rnd.choice(("groups", "groups", "groups", "tiny-24d", "tiny-96q"))
        options = {"buffer": rnd.choice((0, 2, 4)), "stripe": rnd.choice((1, 2, 8)), "wear_spread": rnd.choice((2, 32))}
        lpas = PRESETS[preset].geometry.lpas
        base = Case(groups.NAME, aged_program(rnd, lpas, 60), preset, options=tuple(options.items()))
        if mode == "sweep":
            tally = Forks(base, 3, first=3, apart=5, rare=True, depth=1 + unit % 2).run()
            assert not tally.failures, str(tally.failures[0])
            continue
        at = run_case(base).operations[0]
        lives = [Cut(int(rnd.uniform(0.4, 1) * at), rnd.choice(SHAPES))]
        lives += [Cut(int(rnd.expovariate(1 / 30)) + 1, rnd.choice(SHAPES)) for _ in range(rnd.randrange(6))]
        fail = (int(rnd.uniform(0.4, 1) * at),) if rnd.random() < 0.3 else ()
        several = [Case(base.ftl, base.program, preset, tuple(lives), base.options, fail)]
        for case in several if mode == "random" else tiers.aimed(rnd, base):
            failure = run_case(case).failure
            assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("mode", "cases"),
    bounded({"random": 30, "host": 20}, {"sweep": 40, "random": 150, "host": 120}),
)
def test_power_cuts_and_deaths_of_the_host(mode: str, cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    undone: list[int] = []
    run = recovery.Recovery.run

    def counted(self: Any) -> Any:
        try:
            return run(self)
        finally:
            undone.append(self.found.figures.get("undone_groups", 0))

    monkeypatch.setattr(recovery.Recovery, "run", counted)
    campaign(mode, 1, cases, undone)
    assert sum(undone) > 5


@pytest.mark.parametrize("check", [check.id for check in suite.CHECKS if check.id != "durability"])
def test_a_scheme_over_superblocks_keeps_what_any_has_to(check: str, scheme: str) -> None:
    outcome = suite.run([scheme], only=[check])[0]
    assert outcome.result == "pass", outcome.why


# --- superblocks


def aged(device: Device, n: int, seed: int = 1) -> None:
    rnd = random.Random(seed)
    lpas = device.ssd.lpas
    for lpa in range(lpas):
        device.write(lpa * PAGE, bytes([lpa & 255]) * PAGE)
    for _ in range(n):
        lpa = rnd.randrange(lpas)
        device.write(lpa * PAGE, bytes([lpa & 255]) * PAGE)


def test_most_superblocks_are_whole() -> None:
    with Device.memory(ROOM, groups.NAME, {"buffer": 8}) as device:
        aged(device, 8_000)
        placement = device.ssd.placement
        assert placement.opened_n > 200
        assert placement.whole_n > 0.8 * placement.opened_n
        sound(device)
        assert all(device.read(lpa * PAGE, PAGE) == bytes([lpa & 255]) * PAGE for lpa in range(200))


def test_a_superblock_goes_without_a_block_that_is_bad() -> None:
    bad = {row * DIES + row % DIES for row in range(16)}
    image = nandimg.memory_image(ROOM, factory_bad=tuple(bad))
    with Device.start(image, groups.NAME, {"buffer": 0}) as device:
        for lpa in range(120):
            device.write(lpa * PAGE, bytes([lpa]) * PAGE)
        rows: dict[int, list[tuple[int, int]]] = {}
        for ppa, spare in spares(device, list(range(64))):
            rows.setdefault(ppa // 8 // DIES, []).append((spare.lpa, ppa // 8 % DIES))
        assert len(rows) == 5
        for row, pages in rows.items():
            dies = [die for die in range(DIES) if row * DIES + die not in bad]
            assert [die for _, die in sorted(pages)] == dies * (len(pages) // 3)
        assert device.ssd.placement.whole_n == device.ssd.placement.opened_n == 5
        aged(device, 2_000)
        sound(device)


def test_a_superblock_goes_on_after_a_clean_unmount(tmp_path: Path) -> None:
    """With the blocks that were open, from the die whose turn it was."""
    rig = Rig(tmp_path / "chip", groups.NAME, ROOM, options={"buffer": "0", "stripe": "3"})
    for lpa in range(40):
        rig.write(lpa)
        if lpa % 7 == 5:
            rig.device.close()
            assert rig.open() == []
            assert rig.device.recovery.clean
    where = {spare.lpa: ppa for ppa, spare in spares(rig.device, list(range(64)))}
    rows = [where[lpa] // 8 // DIES for lpa in range(32)]
    assert set(rows) == {rows[0]}
    assert [where[lpa] // 8 % DIES for lpa in range(24)] == [lpa // 3 % DIES for lpa in range(24)]
    rig.kill()


def test_a_chip_that_is_too_small_for_superblocks() -> None:
    with pytest.raises(BindError, match=r"superblocks: 420 logical pages take .* open and reserved ones 12: "):
        Device.memory(replace(FULL, lpas=420), groups.NAME)
