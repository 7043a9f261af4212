"""Validity in flash pages (flashfs/parts/validity/flash_bitmap.pyx), put together with the page table into a scheme of
its own: what it keeps in DRAM and in a checkpoint, mounts, cleaning, damage, power cuts, and the image's disk
failing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_host_errors
from flash_pvb import FLASH_PVB, registered
from rig import Rig
from schemes import bounded

import nandimg
from flashfs.crash import campaign
from flashfs.device import Device
from flashfs.engine.blocks.pool import KIND_NAMES
from flashfs.errors import CorruptError
from flashfs.ftl import SCHEMES
from nandimg import Geometry

PAGE = 512
VALIDITY = 3  #: a page's kind
#: a bitmap of 150 pages of two blocks each
CHIP = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=300, dies=2, oob_bytes=64, lpas=3000)
FEW = {"random": 100, "faults": 60, "host": 60}
MANY = dict.fromkeys(("sweep", "random", "faults", "host", "wide"), 1_500)


@pytest.fixture(autouse=True)
def ftl() -> Iterator[str]:
    with registered() as name:
        yield name


class Load:
    """Writes and trims at random, and what every page holds by then."""

    def __init__(self, device: Device, seed: int = 1) -> None:
        self.device, self.rnd = device, random.Random(seed)
        self.model: dict[int, bytes] = {}

    def run(self, requests: int) -> None:
        lpas = self.device.size // PAGE
        for _ in range(requests):
            lpa = self.rnd.randrange(lpas - 4)
            if self.rnd.random() < 0.02:
                self.device.trim(lpa * PAGE, 4 * PAGE)
                for one in range(lpa, lpa + 4):
                    self.model.pop(one, None)
            else:
                page = self.rnd.randbytes(8) * (PAGE // 8)
                self.device.write(lpa * PAGE, page)
                self.model[lpa] = page

    def must_hold(self) -> None:
        for lpa in range(self.device.size // PAGE):
            assert self.device.read(lpa * PAGE, PAGE) == self.model.get(lpa, bytes(PAGE)), lpa
        assert self.device.problems() == []


def in_memory(**options: object) -> Device:
    return Device.memory(CHIP, FLASH_PVB.name, options={"buffer": "0", **{key: str(n) for key, n in options.items()}})


def moves_of_bitmap(device: Device) -> int:
    """Pages of the bitmap that are copies made by cleaning, as flash has them now."""
    found = 0
    for block in range(CHIP.blocks):
        for page in range(CHIP.pages_per_block):
            status, oob = device.nand.read_spare_area(block, page)
            found += status == 1 and oob[6] == VALIDITY and oob[7] & 1
    return found


@pytest.mark.parametrize("frames", [1, 3, 150])
@pytest.mark.parametrize("log", [1, 0])
def test_contents_and_every_invariant_after_much_cleaning(frames: int, log: int) -> None:
    device = in_memory(frames=frames, log=log)
    load = Load(device)
    for _ in range(4):
        load.run(4000)
        load.must_hold()
        device.checkpoint()
    causes = device.ssd.operations()[1]
    figures = device.ssd.validity.figures()
    assert causes["program"]["gc"] > 1000
    assert causes["program"]["validity"] == figures["bitmap_programs"] > (0 if log == 0 else 20)
    assert figures["bitmap_rebuilds"] == 0
    if frames == 150:
        assert causes["read"]["validity"] <= 150 * 5  # each page is read once, and by each of four fscks
    device.close()


def test_what_is_in_dram_and_in_a_checkpoint(tmp_path: Path) -> None:
    """A few frames, the log and 4 bytes a page of the bitmap: no bit of it elsewhere, but while a recovery works."""
    path = tmp_path / "chip"
    nandimg.create(path, CHIP)
    device = Device.open(path, ftl=FLASH_PVB.name, options={"buffer": "0", "frames": "2"})
    load = Load(device)
    load.run(3000)
    tables = device.ssd.validity.tables()
    assert tables["pvb_frames"] == (4 * PAGE + 24, 4 * PAGE + 24)
    saved = device.ssd.validity.save()
    most = type(device.ssd.validity).section_bytes(CHIP, 1, 2)
    assert set(saved) == {"pvbdir", "bvc", "pvblog"}
    assert all(len(part) <= most[name] for name, part in saved.items())
    device.flush()
    device.close(clean=False)
    device = Device.open(path, options={"frames": "2"})
    assert device.ssd.validity.tables()["pvb_frames"] == (4 * PAGE + 24, 4 * PAGE + 24)
    load.device = device
    load.run(10)
    device.flush()
    device.close(clean=False)
    device = Device.open(path, readonly=True)  # its recovery is not committed: the bitmap stays as it was found
    assert device.ssd.validity.tables()["pvb_frames"][0] == 3 * PAGE + 12 + CHIP.blocks * 8
    load.device = device
    load.must_hold()
    device.close()


def test_a_clean_mount_reads_no_page_of_the_bitmap(tmp_path: Path) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, CHIP)
    device = Device.open(path, ftl=FLASH_PVB.name, options={"buffer": "0"})
    load = Load(device)
    load.run(3000)
    device.close()
    device = load.device = Device.open(path)
    assert device.recovery.clean
    assert device.ssd.validity.figures()["bitmap_reads"] == 0
    load.must_hold()
    load.run(2000)
    load.must_hold()
    device.close()


def test_a_recovery_reads_the_bitmap_in_a_step_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, CHIP)
    device = Device.open(path, ftl=FLASH_PVB.name, options={"buffer": "0"})
    load = Load(device)
    load.run(3000)
    device.checkpoint()
    load.run(500)
    device.flush()
    page_ppas = [ppa for ppa in device.ssd.validity.page_ppas() if ppa is not None]
    device.close(clean=False)
    device = load.device = Device.open(path)
    step = next(step for step in device.recovery.steps if step.name == "pvb")
    assert step.part == "validity"
    assert 100 < step.reads <= len(page_ppas) <= 150
    assert device.recovery.alarms == []
    assert device.ssd.validity.figures()["bitmap_programs"] > 0  # what was found went to flash with the commit
    load.must_hold()
    device.close()


def test_cleaning_keeps_away_from_the_bitmap_if_it_is_told_to() -> None:
    moved = {}
    for spare in (0, 1):
        device = in_memory(spare=spare, log=1)
        load = Load(device)
        load.run(12_000)
        load.must_hold()
        moved[spare] = moves_of_bitmap(device)
        stream = device.ssd.validity.pages_in_flash.stream
        assert stream == 5
        assert device.block_map()["streams"][stream] == "validity"
        device.close()
    assert moved[0] > 0
    assert moved[1] == 0


def test_wear_levelling_moves_the_bitmap_all_the_same() -> None:
    device = in_memory(spare=1, wear_spread=2)
    load = Load(device)
    load.run(15_000)
    load.must_hold()
    erases = device.block_map()["erases"]
    assert max(erases) - min(erases) <= 8
    device.close()


# --- damage


@pytest.mark.parametrize("crashed", [False, True])
def test_a_page_of_the_bitmap_that_is_gone_is_made_again(crashed: bool) -> None:
    rig = Rig(Path("/dev/shm") / f"flash-bitmap-{crashed}-{random.getrandbits(64)}", FLASH_PVB.name, CHIP)
    try:
        load = Load(rig.device)
        load.run(4000)
        rig.device.checkpoint()
        if crashed:
            load.run(200)
            rig.device.flush()
            rig.kill()
        else:
            rig.device.close()
        page_ppas = {rig.spare(ppa).lpa: ppa for ppa in rig.find(lambda spare: spare.kind == VALIDITY)}
        live = list(page_ppas.values())[-40:]
        rig.rot(*live)
        alarms = rig.open()
        load.device = rig.device
        assert alarms == []
        for lpa, page in load.model.items():
            assert rig.device.read(lpa * PAGE, PAGE) == page
        load.run(3000)
        assert rig.device.ssd.validity.figures()["bitmap_rebuilds"] > 0
        rig.device.checkpoint()
        load.must_hold()
        rig.device.close()
    finally:
        rig.path.unlink()


def test_fsck_names_a_page_of_the_bitmap_that_is_gone(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "chip", FLASH_PVB.name, CHIP)
    Load(rig.device).run(4000)
    rig.device.close()
    rig.open()
    page_ppas = rig.device.ssd.validity.page_ppas()
    page, page_ppa = next((page, ppa) for page, ppa in enumerate(page_ppas) if ppa is not None)
    rig.device.close()
    rig.rot(page_ppa)
    rig.open()
    said = f"PPA {page_ppa}: page {page} of the validity bitmap cannot be read"
    assert said in rig.device.problems()
    rig.device.close()


# --- streams


def test_a_checkpoint_of_other_streams_is_refused() -> None:
    device = in_memory()
    saved = bytearray(device.ssd.pool.save())
    assert saved[-16:].rstrip(b"\0") == b"validity"
    saved[-16:] = b"gecko".ljust(16, b"\0")
    with pytest.raises(ValueError, match="streams other than host, gc, wear, meta, map, validity"):
        device.ssd.pool.load(saved)
    with pytest.raises(ValueError, match="use a new name of 1 to 16 bytes"):
        device.ssd.pool.add_stream("map", 3)
    device.close()


def test_a_page_of_a_stream_that_nobody_registered(tmp_path: Path) -> None:
    """The image of a scheme with a stream of its own, under a scheme of that name without one."""
    path = tmp_path / "chip"
    nandimg.create(path, CHIP)
    device = Device.open(path, ftl=FLASH_PVB.name, options={"buffer": "0"})
    Load(device).run(3000)
    device.close(clean=False)
    SCHEMES[FLASH_PVB.name] = replace(FLASH_PVB, build=SCHEMES["pagemap"].build)
    with pytest.raises(CorruptError, match="stream 5"):
        Device.open(path)


def test_kinds_have_names() -> None:
    assert KIND_NAMES[VALIDITY] == "validity"


# --- power cuts, host deaths, failing disks


@pytest.mark.parametrize(("tier", "cuts"), bounded(FEW, MANY))
def test_power_cuts(ftl: str, tier: str, cuts: int) -> None:
    result = campaign.run(ftl, tier, 0, cuts)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= cuts


@pytest.mark.slow
def test_every_program_of_one_word_with_every_recovery_cut(ftl: str) -> None:
    result = campaign.run(ftl, "every", 0, 1, depth=2)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= 2_000


@pytest.mark.parametrize("request_kind", test_host_errors.REQUESTS, ids=lambda one: one.__name__)
def test_the_disk_fails_at_any_call(
    ftl: str, request_kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"buffer": "8", "frames": "1", "log": "1", "blocks": "2"}
    monkeypatch.setitem(test_host_errors.VARIANTS, ftl, lambda: test_host_errors.Rig(ftl, options))
    told: Counter[str] = test_host_errors.run_all(ftl, request_kind, 6)
    assert told["cases"] >= 3
