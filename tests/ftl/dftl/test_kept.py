"""What a battery keeps of a demand-paged mapping: a recovery that scans nothing, and the cases in which it must not be
believed. Of DFTL's, with directory and PVB in DRAM, and of u-FTL's, which has both in flash."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandimg
from flashfs.device import Device
from flashfs.engine.recovery import recovery
from flashfs.errors import UncorrectableError
from flashfs.parts.battery.map_battery import pages_of
from flashfs.parts.paged.cmt import ENTRY_BYTES
from flashfs.parts.paged.map_btree import level_widths
from nandimg import Geometry

PAGE = 512
PER_PAGE = PAGE // 4
GEOMETRY = Geometry(page_bytes=PAGE, pages_per_block=32, blocks=128, channels=4, dies=4, oob_bytes=64, lpas=2_000,
                    nvram_bytes=4 * (PAGE + 16))  # fmt: skip
OPTIONS = {"buffer": 0, "wear_spread": 1 << 20, "cmt_bytes": 64 * ENTRY_BYTES, "checkpoint_every": 1 << 30}
OWN = {"muftl": {"fanout": 3, "nodes": 1, "frames": 1}}  #: little room, so that all of it is written all the time
KEPT = ("dftl", "muftl")
NAMES = 1  #: the battery's word with the sum over all pages that are named


class Disk:
    """An image, the device on it, and what each page must read as."""

    def __init__(self, path: Path, ftl: str = "dftl") -> None:
        self.path, self.ftl, self.version, self.rnd = path, ftl, 0, random.Random(7)
        nandimg.create(path, GEOMETRY)
        self.truth: dict[int, int] = {}
        self.device = Device.open(path, ftl=ftl, options=self.options())

    def options(self, **given: Any) -> dict[str, str]:
        return {name: str(value) for name, value in {**OPTIONS, **OWN.get(self.ftl, {}), **given}.items()}

    def work(self, requests: int, flush: bool = True) -> None:
        """Pages that are written, and some trims; then a flush."""
        for _ in range(requests):
            lpa = self.rnd.randrange(GEOMETRY.lpas)
            if self.rnd.random() < 0.05:
                n = min(self.rnd.choice((1, 30, 2 * PER_PAGE)), GEOMETRY.lpas - lpa)
                self.device.trim(lpa * PAGE, n * PAGE)
                for gone in range(lpa, lpa + n):
                    self.truth.pop(gone, None)
            else:
                self.version += 1
                self.truth[lpa] = self.version
                self.device.write(lpa * PAGE, self.content(lpa))
        if flush:
            self.device.flush()

    def content(self, lpa: int) -> bytes:
        version = self.truth.get(lpa)
        return bytes(PAGE) if version is None else np.array([lpa, version] * (PAGE // 16), "<u8").tobytes()

    def crash(self, **given: Any) -> Any:
        """The process dies, and another one mounts; its report."""
        self.device.close(clean=False)
        self.device = Device.open(self.path, options=self.options(**given))
        assert self.device.recovery.alarms == []
        return self.device.recovery

    def check(self) -> None:
        for lpa in range(GEOMETRY.lpas):
            assert self.device.read(lpa * PAGE, PAGE) == self.content(lpa), lpa
        assert self.device.problems() == []


@pytest.fixture(params=KEPT)
def disk(request: pytest.FixtureRequest) -> Iterator[Disk]:
    with tempfile.TemporaryDirectory(prefix="flashfs-kept-") as folder:
        made = Disk(Path(folder) / "image.nand", request.param)
        made.work(3_000)
        yield made
        made.device.close(clean=False)


def step(report: recovery.Report, name: str) -> recovery.Step:
    return next(one for one in report.steps if one.name == name)


def believed(report: recovery.Report) -> bool:
    """Whether the recovery came from the battery, and scanned nothing."""
    scan = step(report, "scan")
    assert (scan.note == "not needed") == step(report, "battery").note[:1].isdigit()
    assert scan.spare_reads == 0 or scan.note != "not needed"
    return bool(scan.note == "not needed")


def test_a_recovery_scans_nothing_that_a_sync_made_durable(disk: Disk) -> None:
    """One spare area a block and those of the log; of the pages written since the checkpoint, only those since the last
    sync, and a page for each block that is half full. Of a map in flash the nodes are read, to hold what they name
    against what lives, and the pages of the bitmap."""
    for _ in range(5):
        report = disk.crash()
        assert believed(report)
        assert step(report, "battery").spare_reads <= GEOMETRY.blocks
        assert sum(one.reads for one in report.steps if one.name in ("scan", "resolve")) == 0
        assert step(report, "fit").reads == 0 or disk.ftl == "muftl"
        disk.check()
        disk.work(400)
        assert disk.device.stats()["nand"]["by_cause"]["nvram_write"]["map"] > 0


def test_without_a_battery_everything_since_the_checkpoint_is_scanned(disk: Disk) -> None:
    disk.crash()
    disk.work(1_500)
    report = disk.crash(battery=0)
    assert all(one.name != "battery" for one in report.steps)
    assert step(report, "scan").spare_reads > 1_000
    disk.check()


def test_what_was_not_flushed_is_there_after_the_death_of_the_process(disk: Disk) -> None:
    """The buffer holds nothing, so all that was acknowledged was bound, and NVRAM keeps what was stored."""
    disk.work(37, flush=False)
    assert believed(disk.crash())
    disk.check()


def test_a_mount_without_the_battery_makes_it_stale(disk: Disk) -> None:
    """What it kept is older than what flash holds: not to be believed again before the next checkpoint."""
    for clean in (True, False):
        disk.work(200)
        if clean:
            disk.device.close()
            disk.device = Device.open(disk.path, options=disk.options(battery=0))
        else:
            disk.crash(battery=0)
        disk.work(300)
        assert not believed(disk.crash())
        disk.check()
        disk.work(300)
        assert believed(disk.crash())
        disk.check()


def test_a_clean_mount_begins_to_keep_before_its_first_change(disk: Disk) -> None:
    disk.device.close()
    before = disk.path.read_bytes()
    disk.device = Device.open(disk.path, options=disk.options())
    assert disk.device.read(0, PAGE) == disk.content(0)
    assert disk.path.read_bytes() == before
    disk.work(1)
    assert believed(disk.crash())
    disk.check()


@pytest.mark.parametrize("disk", ["dftl"], indirect=True)
@pytest.mark.parametrize("word", ["a bit of the PVB", "a bit of no page", "an entry", "a place of a page", "a sum",
                                  "a block", "a sequence number"])
def test_a_word_that_is_stale_is_not_believed(disk: Disk, word: str) -> None:
    """Though the battery's own sum is right: as a word would be that some line forgot to store, or stored twice."""
    saved: Any = disk.device.ssd.mapping.saved
    kept = np.frombuffer(saved.words.content(), "<u8").copy()
    blocks, bits = 8, 8 + GEOMETRY.blocks
    page_ppas = bits + GEOMETRY.blocks
    slots = page_ppas + (pages_of(GEOMETRY.lpas, PAGE) + 1) // 2
    live = int(np.flatnonzero(kept[bits:page_ppas])[0])
    dead = next(ppa for ppa in range(GEOMETRY.blocks * 32) if not int(kept[bits + ppa // 32]) >> ppa % 32 & 1)
    entry = slots + int(np.flatnonzero(kept[slots:])[0])
    index, value = {
        "a bit of the PVB": (bits + live, int(kept[bits + live]) & int(kept[bits + live]) - 1),
        "a bit of no page": (bits + live, int(kept[bits + live]) | 1 << 63),
        "a sequence number": (0, 1 << 60),
        "an entry": (entry, int(kept[entry]) >> 32 << 32 | dead),
        "a place of a page": (page_ppas, int(kept[page_ppas]) >> 32 << 32 | dead + 1),
        "a sum": (NAMES, int(kept[NAMES]) ^ 1),
        "a block": (blocks + live, int(kept[blocks + live]) - 1),
    }[word]
    saved.words.put_word(index, value)
    report = disk.crash()
    assert not believed(report)
    assert step(report, "battery").note.startswith("not believed")
    disk.check()


@pytest.mark.parametrize("disk", ["muftl"], indirect=True)
@pytest.mark.parametrize("word", ["a page of the bitmap", "a bit of a frame", "a frame's version", "a report",
                                  "a block", "a child of the root", "a pointer", "a pointer beyond the chip",
                                  "an entry", "a sum"])
def test_a_word_of_a_map_in_flash_that_is_stale_is_not_believed(disk: Disk, word: str) -> None:
    """The same where directory and bitmap are in flash: what the words lead to there is held against them."""
    disk.work(60)
    saved: Any = disk.device.ssd.mapping.saved
    kept = np.frombuffer(saved.words.content(), "<u8").copy()
    pages, chip = 2, GEOMETRY.blocks * GEOMETRY.pages_per_block
    where = 8 + GEOMETRY.blocks
    heads = where + pages
    deltas = heads + 4
    reports = deltas + 4 * PAGE // 8
    root = reports + max(PAGE // 5, 2 * GEOMETRY.pages_per_block) + 16
    pointers = root + 1  # two children of the root
    slots = pointers + min(sum(level_widths(-(-GEOMETRY.lpas // PER_PAGE), 3)), 3 + 2 * GEOMETRY.pages_per_block + 16)
    frame_page = (int(kept[heads]) >> 32) - 1
    live = next(block for block in range(64 * frame_page, 64 * frame_page + 64)
                if disk.device.ssd.validity.live_in(block) and disk.device.ssd.pool.describe(block)["stream"] == "host")
    report = reports + int(np.flatnonzero(kept[reports:root])[0])
    pointer = pointers + int(np.flatnonzero(kept[pointers:slots])[0])
    entry = slots + int(np.flatnonzero(kept[slots:])[0])
    dead = next(block for block in range(GEOMETRY.blocks) if not disk.device.ssd.validity.live_in(block)) * 32
    bit = live % 64 * 64 + disk.device.ssd.validity.live_in(live)[0]
    index, value = {
        "a page of the bitmap": (where, int(kept[where]) >> 32 << 32 | dead + 1),
        "a bit of a frame": (deltas + bit // 64, int(kept[deltas + bit // 64]) ^ 1 << bit % 64),
        "a frame's version": (heads, int(kept[heads]) >> 32 << 32 | dead + 1),
        "a report": (report, int(kept[report]) ^ 1),
        "a block": (8 + live, int(kept[8 + live]) - 1),
        "a child of the root": (root, int(kept[root]) >> 32 << 32 | dead + 1),
        "a pointer": (pointer, int(kept[pointer]) >> 32 << 32 | dead),
        "a pointer beyond the chip": (pointer, int(kept[pointer]) >> 32 << 32 | chip),
        "an entry": (entry, int(kept[entry]) >> 32 << 32 | dead),
        "a sum": (NAMES, int(kept[NAMES]) ^ 1),
    }[word]
    saved.words.put_word(index, value)
    report_of = disk.crash()
    assert not believed(report_of)
    assert step(report_of, "battery").note.startswith("not believed")
    disk.check()


@pytest.mark.parametrize(("frames", "says"), [
    (4, "kept"), (5, "refused: the bitmap has 5 frames, and the NVRAM room for 4"),
])  # fmt: skip
def test_more_frames_than_the_nvram_has_room_for_do_without(frames: int, says: str) -> None:
    chip = replace(GEOMETRY, blocks=400)
    with Device.memory(chip, "muftl", {"buffer": 0, "frames": frames}) as device:
        for lpa in range(0, GEOMETRY.lpas, 3):
            device.write(lpa * PAGE, bytes([lpa & 255]) * PAGE)
        device.checkpoint()
        assert device.ssd.mapping.saved.says() == says
        assert device.problems() == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_checkpoint_says_the_sum_so_a_mount_does_not_read_the_bitmap(clean: bool) -> None:
    """What begins to be kept needs the sum over all pages that live."""
    with tempfile.TemporaryDirectory(prefix="flashfs-kept-") as folder:
        disk = Disk(Path(folder) / "image.nand", "muftl")
        disk.work(2_000)
        if clean:
            disk.device.close()
            disk.device = Device.open(disk.path, options=disk.options())
        else:
            disk.crash(battery=0)
            disk.crash()
        before = disk.device.stats()["nand"]["by_cause"]["read"].get("validity", 0)
        disk.work(1)
        assert disk.device.stats()["nand"]["by_cause"]["read"].get("validity", 0) - before <= 2
        assert disk.device.ssd.mapping.saved.says() == "kept"
        assert believed(disk.crash())
        disk.check()
        disk.device.close(clean=False)


def test_a_region_that_proves_nothing_costs_a_scan(disk: Disk) -> None:
    """One page of it is what it was before: the host died."""
    at, _ = disk.device.nand.region(disk.ftl) or (0, 0)
    old = disk.device.nand.nvram(at, 4096)
    disk.work(50)
    assert disk.device.nand.nvram(at, 4096) != old
    disk.device.nand.store_nvram(at, np.frombuffer(old, np.uint8))
    assert not believed(disk.crash())
    disk.check()


def test_a_page_that_the_host_took_along_is_missed(disk: Disk) -> None:
    """The battery names a page that no sync made durable and that is not there: everything is scanned, and the page
    reads as it did before."""
    from nandimg._torn import spoil

    was = disk.truth.get(5)
    disk.version += 1
    disk.device.write(5 * PAGE, np.array([5, disk.version] * (PAGE // 16), "<u8").tobytes())
    spoil(disk.device.nand, *divmod(disk.device.ssd.mapping.explain(5)["ppa"], GEOMETRY.pages_per_block))
    assert not believed(disk.crash())
    assert disk.truth.get(5) == was
    disk.check()


def test_a_durable_page_that_is_gone_is_told_when_it_is_read(disk: Disk) -> None:
    """Recovery does not read it, as no page that a checkpoint covers: its LPA gives EIO, nothing older."""
    from nandimg._torn import spoil

    disk.version += 1
    disk.truth[5] = disk.version
    disk.device.write(5 * PAGE, disk.content(5))
    disk.device.flush()
    spoil(disk.device.nand, *divmod(disk.device.ssd.mapping.explain(5)["ppa"], GEOMETRY.pages_per_block))
    assert believed(disk.crash())
    with pytest.raises(UncorrectableError):
        disk.device.read(5 * PAGE, PAGE)


def test_a_page_that_is_written_twice_in_one_run(disk: Disk) -> None:
    """Its first version dies with the second: what is named is the last."""
    lpas = np.array([9, 9, 8, 9, 8], np.uint32)
    data = [np.array([lpa, 10**9 + i] * (PAGE // 16), "<u8").tobytes() for i, lpa in enumerate(lpas)]
    disk.device.ssd.write_pages(lpas, np.frombuffer(b"".join(data), np.uint8))
    disk.truth[9], disk.truth[8] = 10**9 + 3, 10**9 + 4
    disk.device.flush()
    assert believed(disk.crash())
    disk.check()


def test_a_cache_larger_than_the_nvram_does_without(disk: Disk) -> None:
    """The region was laid out for a smaller one. That is said, and a crash costs a scan."""
    disk.crash(cmt_bytes=400 * ENTRY_BYTES)
    disk.work(300)
    said = disk.device.ssd.mapping.saved.says()
    assert said == "refused: the cache has 400 slots, and the NVRAM room for 64"
    report = disk.crash(cmt_bytes=400 * ENTRY_BYTES)
    assert not believed(report)
    disk.check()


@pytest.mark.parametrize("ftl", KEPT)
def test_more_pending_entries_than_places_end_it_until_the_next_checkpoint(ftl: str) -> None:
    """A recovery without the battery leaves as many as it found."""
    with tempfile.TemporaryDirectory(prefix="flashfs-kept-") as folder:
        disk = Disk(Path(folder) / "image.nand", ftl)
        disk.work(2_500)
        disk.crash(battery=0)
        disk.work(2_500)
        disk.crash(battery=0)
        report = disk.crash()
        assert not believed(report)
        mapping: Any = disk.device.ssd.mapping
        assert (mapping.pending.n > mapping.saved.places) == (mapping.figures()["battery_kept"] == 0)
        disk.work(200)
        disk.device.checkpoint()
        assert mapping.figures()["battery_kept"] == 1
        disk.work(200)
        assert believed(disk.crash())
        disk.check()
        disk.device.close(clean=False)


def test_acknowledged_pages_in_the_nvram_buffer_come_back(disk: Disk) -> None:
    """With --plp what is acknowledged is durable: what the slots have is held against the pages the battery names."""
    disk.device.close()
    for turn in range(6):
        disk.device = Device.open(disk.path, options=disk.options(buffer=4), plp=True)
        assert turn == 0 or not disk.device.recovery.clean
        disk.check()
        for _ in range(40 + turn):
            lpa = disk.rnd.randrange(GEOMETRY.lpas)
            disk.version += 1
            disk.truth[lpa] = disk.version
            disk.device.write(lpa * PAGE, disk.content(lpa))
        disk.device.close(clean=False)
    disk.device = Device.open(disk.path, options=disk.options())
    assert believed(disk.device.recovery)
    disk.check()


def test_the_ledger_has_its_places(disk: Disk) -> None:
    """Four bytes more a pending entry, in DRAM; the region's bytes are reported separately."""
    mapping: Any = disk.device.ssd.mapping
    packed, _ = mapping.tables()["pending"]
    assert packed == 16 * mapping.pending.room
    assert mapping.figures()["battery_bytes"] == disk.device.nand.region(disk.ftl)[1]


@pytest.mark.parametrize("ftl", KEPT)
@pytest.mark.parametrize("bound_with", [None, 60_000])
def test_a_cache_that_dram_makes_larger_is_kept_all_the_same(bound_with: int | None, ftl: str, tmp_path: Path) -> None:
    """The region is laid out for the budget of when the image is bound; with a larger one the cache stays as it was."""
    path = tmp_path / "image.nand"
    nandimg.create(path, GEOMETRY)
    Device.open(path, ftl=ftl, options={"buffer": "0"}, dram=bound_with).close()
    for _ in range(2):
        device = Device.open(path, options={"buffer": "0"}, dram=60_000)
        mapping = device.ssd.mapping
        assert (mapping.cmt.slots > 70) == (bound_with is not None)
        assert mapping.cmt.slots <= mapping.saved.slots
        for lpa in range(500):
            device.write(lpa * PAGE, bytes([lpa & 255]) * PAGE)
        device.flush()
        assert mapping.saved.says() == "kept"
        device.close(clean=False)
    device = Device.open(path, options={"buffer": "0"}, dram=60_000)
    assert believed(device.recovery)
    device.close()


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_saved_slot_that_a_trim_may_have_made_old(disk: Disk, trimmed: bool) -> None:
    """A page is in NVRAM alone, its LPA has none in flash, and something was trimmed after it of which no record was
    written: whether that was this LPA only the pages can say. So they are scanned."""
    disk.crash(battery=1)
    disk.device.trim(0, 20 * PAGE)
    for lpa in range(20):
        disk.truth.pop(lpa, None)
    disk.truth[30] = 1
    disk.device.write(30 * PAGE, disk.content(30))
    disk.device.checkpoint()
    disk.device.close()
    disk.device = Device.open(disk.path, options=disk.options(buffer=2), plp=True)
    disk.truth[7] = 2
    disk.device.write(7 * PAGE, disk.content(7))
    if trimmed:
        disk.device.trim(30 * PAGE, PAGE)  # not flushed: the page may be back
    report = disk.crash()
    assert step(report, "battery").note[0].isdigit()  # it is believed all the same
    assert (step(report, "scan").note == "not needed") is not trimmed
    assert step(report, "nvram").note == "1 pages"
    disk.check()


@pytest.mark.parametrize("ftl", KEPT)
def test_the_smallest_cache_is_kept(tmp_path: Path, ftl: str) -> None:
    """Of fewer bytes than its least slots take, the cache has those, and the region has room for as many."""
    nandimg.create(tmp_path / "chip", GEOMETRY)
    with Device.open(tmp_path / "chip", ftl=ftl, options={"buffer": "0", "cmt_bytes": "1"}) as device:
        device.write(0, bytes(PAGE))
        assert device.ssd.mapping.figures()["battery_kept"] == 1
