"""Lives on one image that each end by the death of the process: what they leave does not accumulate, whatever a scheme
keeps in flash, and whatever options another life had."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import nandimg
from flashfs import fit
from flashfs.device import Device
from flashfs.ftl import SCHEMES
from nandimg import Geometry

FENCED = [name for name, one in SCHEMES.items() if any(option.name == "fence" for option in one.options)]
PAGE = 512


def page(lpa: int, version: int) -> bytes:
    return b"%08d%08d" % (lpa, version) * (PAGE // 16)


@pytest.mark.parametrize("ftl", FENCED)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_log_of_trims_leaves_room_on_the_smallest_chip(tmp_path: Path, ftl: str, seed: int) -> None:
    """The chip of `flashfs create --size 1M`. After a fence the log from before it still counts, and a recovery takes
    up all of the log that it finds."""
    path, rnd = tmp_path / "chip", random.Random(seed)
    geometry = fit.sized(1 << 20, {})
    nandimg.create(path, geometry)
    size, most = geometry.page_bytes, 0
    for life in range(16):
        with_trims = Device.open(path, ftl=ftl)
        for lpa in range(geometry.lpas if life == 0 else 0):
            with_trims.write(lpa * size, b"z" * size)
        for _ in range(rnd.choice((100, 200, 600))):
            with_trims.write(rnd.randrange(geometry.lpas) * size, b"x" * size)
            if rnd.random() < 0.1:
                with_trims.trim(rnd.randrange(geometry.lpas) * size, size)
        with_trims.flush()
        most = max(most, with_trims.ssd.pool.census()["meta"])
        with_trims.close(clean=False)
    assert most <= 6  # it was one more with each life


@pytest.mark.parametrize("seed", [2, 6, 9])
def test_a_validity_log_without_fences_has_numbers_for_what_a_recovery_logs_again(tmp_path: Path, seed: int) -> None:
    path, rnd, version, newest = tmp_path / "chip", random.Random(seed), 0, {}
    nandimg.create(path, Geometry.sized(400 * PAGE, op=1.6, page_bytes=PAGE, pages_per_block=32))
    for _ in range(16):
        device = Device.open(path, ftl="ibftl", options={"fence": 0})
        assert device.recovery.alarms == []
        for _ in range(rnd.choice((200, 500, 2000))):
            version, lpa = version + 1, rnd.randrange(400)
            device.write(lpa * PAGE, page(lpa, version))
            newest[lpa] = version
        device.flush()
        device.close(clean=False)
    with Device.open(path) as device:
        for lpa, at in newest.items():
            assert device.read(lpa * PAGE, PAGE) == page(lpa, at)


@pytest.mark.parametrize(("before", "then"), [(2, 64), (64, 2)])
def test_runs_of_another_ratio_are_taken(tmp_path: Path, before: int, then: int) -> None:
    path, rnd = tmp_path / "chip", random.Random(11)
    nandimg.create(path, Geometry.sized(400 * 4096, op=2.9, page_bytes=4096, pages_per_block=8, dies=3))
    device = Device.open(path, ftl="geckoftl", options={"parts": 8, "entries": 8, "ratio": before})
    for ratio in (then, before, then):
        for _ in range(3000):
            device.write(rnd.randrange(400) * 4096, b"x" * 4096)
        device.close()
        device = Device.open(path, options={"ratio": ratio})
        assert device.recovery.clean and device.problems() == []
    device.close()
