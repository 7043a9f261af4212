"""Several LPAs at one page: read, rewritten, trimmed, moved, recovered. And runs that are striped over dies."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from planted import Good, use
from rig import PAGE, Rig

from flashfs.device import Device
from flashfs.engine.views.cross_check import cross_check
from flashfs.errors import FtlError
from flashfs.plugin import Chip
from nandimg import Cut, FaultyNand, Geometry, PowerCut

SHAPE = Geometry(page_bytes=PAGE, pages_per_block=8, blocks=24, channels=2, dies=2, oob_bytes=64, lpas=96)
NAME = "shared:Ftl"
BUFFER = {"buffer": "0"}
MIXED = sorted(range(80), key=lambda lpa: lpa % 10)  #: those that are shared lie among those that are overwritten


class Sharing(Good):
    """A page map in which `remap` puts an LPA at another one's page. Who shares a page knows it by its name."""

    def __init__(self, chip: Chip) -> None:
        super().__init__(chip)
        self.shares: dict[int, tuple[int, int]] = {}  # LPA -> the page's name
        self.named: dict[tuple[int, int], int] = {}  # where it lies

    def lookup(self, lpa: int) -> Any:
        return self.named[self.shares[lpa]] if lpa in self.shares else self.at.get(lpa)

    def bind(self, lpa: int, ppa: int) -> None:
        self.shares.pop(lpa, None)
        self.at[lpa] = ppa

    def unbind(self, lpa: int) -> None:
        if self.shares.pop(lpa, None) is None:
            del self.at[lpa]

    def remap(self, lpa: int, source: int) -> None:
        if source not in self.shares:
            ppa = self.at.pop(source)
            self.shares[source] = self.chip.name_of(ppa)
            self.named[self.shares[source]] = ppa
        self.shares[lpa] = self.shares[source]

    def sharers(self, ppa: int) -> Any:
        return [lpa for lpa in (*self.at, *self.shares) if self.lookup(lpa) == ppa]

    def moved(self, old: int, new: int) -> None:
        used = set(self.shares.values())
        self.named = {name: (new if at == old and name in used else at) for name, at in self.named.items()}
        self.at = {lpa: (new if at == old else at) for lpa, at in self.at.items()}

    def copied(self, lpa: int, seq: int, ppa: int) -> Any:
        name = (lpa, seq)
        if name not in self.named:
            return None
        old, self.named[name] = self.named[name], ppa
        return old, self.shares.get(lpa) == name

    @staticmethod
    def save_bytes(lpas: int) -> int:
        return 60 * lpas + 100

    def save(self) -> Any:
        used = set(self.shares.values())
        self.named = {name: ppa for name, ppa in self.named.items() if name in used}
        rows = [list(self.at.items()), list(self.shares.items()), list(self.named.items())]
        return json.dumps(rows).encode()

    def load(self, saved: bytes) -> None:
        at, shares, named = json.loads(saved)
        self.at = dict(at)
        self.shares = {lpa: tuple(name) for lpa, name in shares}
        self.named = {tuple(name): ppa for name, ppa in named}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    use(Sharing, NAME)
    yield


class Shared(Rig):
    """Knows what each LPA has to read."""

    def __init__(self, path: Path, **how: Any) -> None:
        super().__init__(path, NAME, SHAPE, options=BUFFER, trust=True, **how)
        self.expected: dict[int, bytes] = {}

    def put(self, lpa: int, mark: int) -> None:
        self.device.write(lpa * PAGE, bytes([mark]) * PAGE)
        self.expected[lpa] = bytes([mark])

    def drop(self, lpa: int) -> None:
        self.device.trim(lpa * PAGE, PAGE)
        self.expected.pop(lpa, None)

    def share(self, lpa: int, source: int) -> None:
        self.drop(lpa)
        self.device.ssd.mapping.share(lpa, source)
        self.expected[lpa] = self.expected[source]

    def sound(self) -> None:
        for lpa in range(SHAPE.lpas):
            assert self.holds(lpa) == self.expected.get(lpa, b"\0"), lpa
        assert self.device.ssd.check() == []
        assert cross_check(self.device.ssd) == []

    def live(self) -> int:
        return sum(len(self.device.ssd.validity.live_in(block)) for block in range(SHAPE.blocks))

    def churn(self, lpas: range, n: int, seed: int = 1) -> None:
        """Overwrites that keep cleaning busy elsewhere."""
        rnd = random.Random(seed)
        for _ in range(n):
            self.put(rnd.choice(lpas), rnd.randrange(1, 256))


def test_a_page_outlives_the_lpa_in_its_oob(tmp_path: Path) -> None:
    rig = Shared(tmp_path / "chip")
    for lpa in range(40):
        rig.put(lpa, lpa + 1)
    for lpa in (50, 51, 52):
        rig.share(lpa, 7)
    assert rig.live() == 40
    rig.sound()
    rig.put(7, 99)  # rewritten: its old page is the three others' still
    assert rig.live() == 41
    rig.sound()
    rig.drop(50)
    rig.put(51, 98)
    assert rig.live() == 42
    rig.sound()
    rig.drop(52)  # the last
    assert rig.live() == 41
    rig.sound()
    rig.kill()


def test_a_moved_page_takes_all_along(tmp_path: Path) -> None:
    """Also one that the LPA in its OOB has left; cleaning must not take that for damage."""
    rig = Shared(tmp_path / "chip")
    for lpa in MIXED:
        rig.put(lpa, lpa + 1)
    for lpa in range(80, 90):
        rig.share(lpa, lpa - 80)
    for lpa in range(5):
        rig.put(lpa, 200 + lpa)
    before = {lpa: rig.device.ssd.mapping.plugin.ftl.lookup(lpa) for lpa in range(80, 90)}
    rig.churn(range(20, 80), 600)
    after = {lpa: rig.device.ssd.mapping.plugin.ftl.lookup(lpa) for lpa in range(80, 90)}
    assert all(after[lpa] != before[lpa] for lpa in after)
    rig.sound()
    assert rig.device.ssd.failed is None
    rig.device.close()
    assert rig.open() == []
    rig.sound()
    rig.kill()


def test_a_crash_after_moves(tmp_path: Path) -> None:
    """What was shared at the checkpoint was moved since, often more than once; LPAs came and went."""
    rig = Shared(tmp_path / "chip")
    for lpa in MIXED:
        rig.put(lpa, lpa + 1)
    for lpa in range(80, 95):
        rig.share(lpa, lpa - 80)
    for lpa in range(5):
        rig.put(lpa, 200 + lpa)  # these left the page that names them
    rig.device.ssd.checkpoint()
    ftl = rig.device.ssd.mapping.plugin.ftl
    before = dict(ftl.named)
    rig.churn(range(20, 80), 700)
    assert all(ftl.named[name] != ppa for name, ppa in before.items())
    assert rig.device.ssd.since_checkpoint > 300
    rig.put(85, 150)
    rig.put(6, 151)
    rig.drop(7)
    rig.drop(88)
    rig.put(3, 152)
    rig.drop(83)  # no LPA is at that page any more
    rig.device.flush()
    rig.kill()
    assert rig.open() == []
    rig.sound()
    rig.kill()
    assert rig.open() == []
    rig.sound()
    rig.kill()


@pytest.mark.parametrize("seed", range(2))
def test_power_cuts_among_shared_pages(tmp_path: Path, seed: int) -> None:
    """At every third operation of a device that cleans: each LPA reads what was flushed, or what was written since."""
    rnd = random.Random(seed)
    fronts: list[FaultyNand] = []
    cuts: list[Cut] = []

    def front(chip: Any) -> FaultyNand:
        fronts.append(FaultyNand(chip, tuple(cuts)))
        return fronts[-1]

    met = 0
    for at in range(5 + 7 * seed, 400, 13):
        cuts.clear()
        rig = Shared(tmp_path / f"chip {at}", front=front)
        for lpa in MIXED:
            rig.put(lpa, lpa + 1)
        for lpa in range(80, 95):
            rig.share(lpa, lpa - 80)
        for lpa in range(4):
            rig.put(lpa, 200 + lpa)
        rig.device.close()
        cuts.append(Cut(at, rnd.choice(("before", "after", "prefix", "data-only", "oob-only"))))
        rig.open()
        newer: dict[int, list[bytes]] = {}
        try:
            while True:
                lpa = rnd.choice((*range(20, 80), *range(15), *range(80, 95)))
                was = rig.expected.get(lpa, b"\0")
                newer.setdefault(lpa, [was])
                if rnd.random() < 0.1:
                    newer[lpa].append(b"\0")
                    rig.drop(lpa)
                else:
                    mark = rnd.randrange(1, 256)
                    newer[lpa].append(bytes([mark]))
                    rig.put(lpa, mark)
                if rnd.random() < 0.05:
                    rig.device.flush()
                    newer.clear()
        except PowerCut:
            met += 1
        cuts.clear()
        rig.kill()
        assert rig.open() == []
        for lpa in range(SHAPE.lpas):
            found = rig.holds(lpa)
            assert found in newer.get(lpa, [rig.expected.get(lpa, b"\0")]), (at, lpa)
            rig.expected[lpa] = found
        rig.sound()
        rig.kill()
    assert met > 25


def test_a_class_that_tells_of_the_wrong_sharers(tmp_path: Path) -> None:
    class Wrong(Sharing):
        def sharers(self, ppa: int) -> Any:
            return [*super().sharers(ppa), 5]

    use(Wrong, NAME)
    rig = Shared(tmp_path / "chip")
    with pytest.raises(FtlError, match=r"sharers\(ppa=\d+\): returned \[.*5\]: lookup has LPA 5 elsewhere"):
        for lpa in range(80):
            rig.put(lpa, 1)
            rig.put(lpa, 2)
    rig.kill()


def test_sharing_with_an_lpa_that_holds_nothing(tmp_path: Path) -> None:
    rig = Shared(tmp_path / "chip")
    rig.put(1, 1)
    for lpa, source in ((1, 1), (2, 3), (96, 1), (2, 96)):
        with pytest.raises(ValueError, match=f"LPA {lpa} is to share the page of {source}"):
            rig.device.ssd.mapping.share(lpa, source)
    rig.share(2, 1)
    rig.sound()
    rig.kill()


# --- runs


WIDE = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=512, channels=4, dies=8, oob_bytes=64, lpas=2000)


class Learning(Good):
    """Keeps each run that it is given."""

    def __init__(self, chip: Chip) -> None:
        super().__init__(chip)
        self.runs: list[tuple[list[int], list[int]]] = []

    def run(self, lpas: list[int], ppas: list[int]) -> None:
        assert [self.at[lpa] for lpa in lpas] == ppas
        self.runs.append((lpas, ppas))


def test_a_run_that_is_striped_over_dies_is_told_whole() -> None:
    """In stripes of four, a run of 200 pages is fifty extents; a learning FTL is given one run, of consecutive VPPNs
    where a stripe is one page."""
    use(Learning, "learning:Ftl")
    for stripe in (4, 1):
        with Device.memory(WIDE, "learning:Ftl", {"buffer": 0, "stripe": stripe}) as device:
            assert device.ssd.placement.width_host == 8
            device.write(100 * PAGE, bytes(200 * PAGE))
            runs = device.ssd.mapping.plugin.ftl.runs
            assert [lpas for lpas, _ in runs] == [list(range(100, 300))]
            ppas = runs[0][1]
            assert len({ppa // 16 for ppa in ppas}) >= 8
            blocks = [ppa // 16 for ppa in ppas[: 8 * stripe]]
            assert blocks == [blocks[i // stripe * stripe] for i in range(8 * stripe)]


def test_what_cleaning_moves_is_a_run_too_and_nothing_stale_is_told() -> None:
    """`run` asserts that the pages are where its arguments say, also when cleaning came in the middle of a request."""
    use(Learning, "learning:Ftl")
    shape = Geometry(page_bytes=PAGE, pages_per_block=8, blocks=96, channels=2, dies=2, oob_bytes=64, lpas=560)
    with Device.memory(shape, "learning:Ftl", {"buffer": 0}) as device:
        rnd = random.Random(2)
        for _ in range(120):
            lpa = rnd.randrange(480)
            device.write(lpa * PAGE, bytes(80 * PAGE))
        ftl = device.ssd.mapping.plugin.ftl
        assert device.ssd.mover.moves > 20
        assert any(len(lpas) > 8 for lpas, _ in ftl.runs)
        assert device.ssd.failed is None
