"""A recovery that believed the battery and was cut, and then a mount without one: the blocks that were freed had pages
whose trims no log has."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from flashfs.device import Device
from nandimg import Cut, FaultyNand, Geometry, PowerCut, image

PAGE = 512
PAGES = 150
CHIP = Geometry.sized(PAGES * PAGE, op=0.8, page_bytes=PAGE, pages_per_block=8, nvram_bytes=1 << 18)
CUTS = range(1, 20)


def content(lpa: int, version: int) -> bytes:
    return b"%08d%08d" % (lpa, version) * (PAGE // 16)


def crashed(path: Path, ftl: str, seed: int) -> dict[int, set[bytes]]:
    """An image of which the last writes and trims were not flushed; what each LPA may hold."""
    rnd = random.Random(seed)
    image.create(path, CHIP, backend="file", force=True)
    device = Device.open(path, ftl=ftl)
    holds: dict[int, bytes] = {}

    def write(lpa: int, n: int, version: int) -> None:
        for at in range(lpa, lpa + n):
            holds[at] = content(at, version)
        device.write(lpa * PAGE, b"".join(holds[at] for at in range(lpa, lpa + n)))

    for version in range(rnd.randrange(200, 900)):
        lpa = rnd.randrange(PAGES)
        write(lpa, min(PAGES - lpa, rnd.choice((1, 1, 2, 8))), version)
    device.flush()
    may = {lpa: {holds.get(lpa, bytes(PAGE))} for lpa in range(PAGES)}
    for version in range(5_000, 5_000 + rnd.choice((10, 30))):
        lpa = rnd.randrange(PAGES)
        n = min(PAGES - lpa, rnd.choice((1, 8, 40)))
        if rnd.random() < 0.6:
            device.trim(lpa * PAGE, n * PAGE)
            for at in range(lpa, lpa + n):
                may[at].add(bytes(PAGE))
        else:
            write(lpa, n, version)
            for at in range(lpa, lpa + n):
                may[at].add(holds[at])
    device.close(clean=False)
    return may


def is_cut(path: Path, at: int) -> bool:
    """Whether a mount with the battery did not come to its end."""
    try:
        Device.open(path, front=lambda chip: FaultyNand(chip, (Cut(at, "after"),))).close(clean=False)
    except PowerCut:
        return True
    return False


@pytest.mark.parametrize("seed", [10, 13, 17])
@pytest.mark.parametrize("ftl", ["dftl", "muftl"])
def test_the_words_count_until_the_recovery_is_durable(tmp_path: Path, ftl: str, seed: int) -> None:
    kept, path = tmp_path / "kept", tmp_path / "image"
    may = crashed(kept, ftl, seed)
    tried = 0
    for at in CUTS:
        shutil.copy(kept, path)
        if not is_cut(path, at):
            break
        tried += 1
        device = Device.open(path, options={"battery": "0"})
        assert device.recovery.alarms == [], at
        wrong = [lpa for lpa in range(PAGES) if device.read(lpa * PAGE, PAGE) not in may[lpa]]
        assert wrong == [], at
        assert device.problems() == []
        reads = {lpa: device.read(lpa * PAGE, PAGE) for lpa in range(PAGES)}
        device.close(clean=False)
        for options in ({"battery": "0"}, {"battery": "1"}):  # its checkpoint counts, and the words no more
            device = Device.open(path, options=options)
            assert {lpa: device.read(lpa * PAGE, PAGE) for lpa in range(PAGES)} == reads
            device.write(0, content(0, at))
            device.flush()
            reads[0] = content(0, at)
            device.close(clean=False)
    assert tried > 3


@pytest.mark.parametrize("ftl", ["dftl", "muftl"])
def test_a_mount_without_the_battery_scans_if_no_recovery_was_cut(tmp_path: Path, ftl: str) -> None:
    path = tmp_path / "image"
    crashed(path, ftl, 1)
    device = Device.open(path, options={"battery": "0"})
    assert all(step.name != "battery" for step in device.recovery.steps)
    device.close()
