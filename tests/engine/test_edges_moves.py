"""Edges of moves that no other test comes by: what takes the place of a page that cannot be read, and in what order
pages come to lie. Each was found by a change to the engine that nothing else noticed."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from rig import LOST, PAGE, USER, Rig

from flashfs.device import Device
from flashfs.errors import UncorrectableError
from flashfs.inspect._view import Spare
from nandimg import Chip, FaultyNand, Geometry, memory_image

ROOM = Geometry(page_bytes=PAGE, pages_per_block=64, blocks=24, channels=1, dies=1, oob_bytes=64, lpas=250)


class Doomed(Rig):
    """A device of the page map, of which any program can be made to fail: that retires its block, and what lives there
    is moved before the next request."""

    def __init__(self, path: Path, failing: int, **options: str) -> None:
        self.fronts: list[FaultyNand] = []
        super().__init__(path, "pagemap", ROOM, options={"buffer": "0", **options}, front=lambda chip: self.front(
            chip, failing))  # fmt: skip

    def front(self, chip: Chip, failing: int) -> FaultyNand:
        self.fronts.append(FaultyNand(chip, failing={failing}))
        return self.fronts[-1]

    @property
    def operations(self) -> int:
        return self.fronts[-1].operations

    def spares(self) -> list[Spare]:
        """What all pages that can be read say of themselves, in the order of blocks and pages."""
        nand = self.device.nand
        places = [(block, page) for block in range(nand.blocks) for page in range(nand.pages_per_block)]
        read = [nand.read_spare_area(*place) for place in places]
        return [Spare.of(raw) for status, raw in read if status == 1]

    def live_ppa(self, lpa: int) -> int:
        """Where it is, in the open image."""
        nand = self.device.nand
        for block in range(nand.blocks):
            for page in self.device.ssd.validity.live_in(block):
                if Spare.of(nand.read_spare_area(block, page)[1]).lpa == lpa:
                    return block * nand.pages_per_block + page
        raise AssertionError(f"LPA {lpa} is nowhere")


NEVER = 1 << 40


def test_what_stands_for_an_unreadable_page_is_older_than_what_waits_in_the_buffer(tmp_path: Path) -> None:
    """Nothing says how old the page was; its LPA's next version is not in flash yet, and must win."""
    def run(name: str, failing: int) -> tuple[Doomed, int]:
        rig = Doomed(tmp_path / name, failing, buffer="4")
        rig.write(14)
        rig.device.flush()
        rig.wreck(rig.live_ppa(14))
        before = rig.operations
        rig.device.write(10 * PAGE, b"n" * (5 * PAGE))  # four are programmed, the last stays in the buffer
        return rig, before

    tried, before = run("tried", NEVER)
    tried.kill()
    rig, _ = run("chip", before + 2)
    newest = rig.device.ssd.seq
    rig.device.ssd.idle()
    assert [(one.lpa, one.seq < newest) for one in rig.spares() if one.flags & LOST] == [(14, True)]
    rig.device.flush()
    assert rig.holds(14) == b"n"
    rig.kill()


def test_what_stands_for_an_unreadable_page_is_a_page_of_the_host(tmp_path: Path) -> None:
    """Whatever the page's spare area says now. So the next mount finds it, and its LPA gives EIO there too."""
    def run(name: str, failing: int) -> tuple[Doomed, int]:
        rig = Doomed(tmp_path / name, failing)
        rig.write(14)
        rig.device.flush()
        at = rig.layout.spare_at + rig.live_ppa(14) * rig.layout.stride + rig.layout.record_head + 6
        rig.strike(at, b"\7")
        before = rig.operations
        rig.write(15)
        return rig, before

    tried, before = run("tried", NEVER)
    tried.kill()
    rig, _ = run("chip", before + 1)
    rig.device.ssd.idle()
    assert [(one.lpa, one.kind) for one in rig.spares() if one.flags & LOST] == [(14, USER)]
    rig.kill()
    rig.open()
    with pytest.raises(UncorrectableError):
        rig.holds(14)
    assert rig.holds(15) == b"a"
    rig.kill()


def test_rotten_data_behind_the_first_page_of_a_block_move_as_unreadable(tmp_path: Path) -> None:
    """The spare area is whole, says whose the page is, and when its block was opened. Its data would get a sum of their
    own, and be believed."""
    def run(name: str, failing: int) -> tuple[Doomed, int]:
        rig = Doomed(tmp_path / name, failing)
        rig.write(13, 14, 16)
        rig.device.flush()
        rig.rot(rig.live_ppa(14))
        before = rig.operations
        rig.write(15)
        return rig, before

    tried, before = run("tried", NEVER)
    tried.kill()
    rig, _ = run("chip", before + 1)
    rig.device.ssd.idle()
    assert [(one.lpa, one.moved) for one in rig.spares() if one.flags & LOST] == [(14, True)]
    with pytest.raises(UncorrectableError):
        rig.holds(14)
    assert [rig.holds(lpa) for lpa in (13, 15, 16)] == [b"a"] * 3
    rig.kill()


def test_records_from_before_an_erase_are_no_pages() -> None:
    """On a chip whose records have no sum: all that says so is the epoch."""
    geometry = replace(ROOM, lpas=1000)
    with closing(Device.memory(geometry, "pagemap", {"buffer": "0"}, backend="meta")) as device:

        def block_of(lpa: int) -> int:
            return int(device.ssd.mapping.explain(lpa)["ppa"]) // geometry.pages_per_block

        device.write(0, bytes(1000 * PAGE))
        erased, rnd = block_of(500), random.Random(1)
        assert block_of(501) == erased
        device.nand.erase_block(erased)
        others = sorted({*range(1000)} - {500, 501})
        for _ in range(40):
            if block_of(501) != erased:
                break
            for lpa in rnd.sample(others, 500):
                device.write(lpa * PAGE, bytes(PAGE))
        assert block_of(501) != erased
        with pytest.raises(UncorrectableError):
            device.read(501 * PAGE, PAGE)


def test_pages_are_moved_in_the_order_of_their_lpas(tmp_path: Path) -> None:
    """On a device of so few that a byte tells all of them apart, too."""
    def run(name: str, failing: int) -> tuple[Doomed, int]:
        rig = Doomed(tmp_path / name, failing)
        rig.write(*random.Random(3).sample(range(250), 50))
        before = rig.operations
        rig.write(0)
        return rig, before

    tried, before = run("tried", NEVER)
    tried.kill()
    rig, _ = run("chip", before + 1)
    rig.device.ssd.idle()
    moved = [one.lpa for one in rig.spares() if one.moved]
    assert len(moved) >= 49
    assert all(earlier < later for earlier, later in pairwise(moved))
    rig.kill()


@pytest.mark.parametrize(("ftl", "syncs"), [("lazyftl", 2), ("dftl", 1)])
def test_metadata_that_moved_is_erased_after_a_second_sync_where_the_chips_notes_count(ftl: str, syncs: int) -> None:
    """A program fails, and the block is emptied at the next flush. The chip's note of a sync is durable with the next
    one: a recovery that goes by notes would otherwise find neither the original nor a copy that counts."""
    chip = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=64, dies=1, oob_bytes=64, lpas=600)
    found: list[int] = []
    for failing in range(700, 900, 5):
        made: list[int] = []
        device = Device.start(
            memory_image(chip, "file"), ftl, {"buffer": "0", "cmt_bytes": "1856"},
            front=lambda inner, at=failing, into=made: FaultyNand(inner, failing={at}, on_sync=lambda: into.append(1)),
        )  # fmt: skip
        rnd = random.Random(5)
        for _ in range(failing):
            device.write(rnd.randrange(chip.lpas) * PAGE, bytes(PAGE))
            if device.ssd.pool.retiring_n:
                break
        owned, barriers = set(device.ssd.owned_pages()), device.ssd.syncs
        made.clear()
        device.flush()
        if owned - set(device.ssd.owned_pages()) and device.ssd.syncs == barriers + 1:
            found.append(len(made))
        device.close(clean=False)
    assert min(found) == syncs and len(found) > 3
