"""Commands that are atomic: all of one or nothing is there after a crash; what cannot be so is refused, and changes
nothing."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from flashfs.cli import run
from flashfs.crash.bench import Bench
from flashfs.crash.cases import Case
from flashfs.crash.oracle import Judge, page_of
from flashfs.crash.run import run_case
from flashfs.device import Device
from nandimg import PRESETS, Geometry, image

PAGE = 512
CHIP = PRESETS["tiny-1600"].geometry


def device_of(**options: Any) -> Device:
    device = Device.memory(CHIP, "remapssd", {"atomic": "command", "buffer": "0", **options})
    for lpa in range(400):
        device.write(lpa * PAGE, b"%08d" % lpa * (PAGE // 8))
    device.flush()
    return device


def refused(device: Device, target: int, source: int, n: int, *, move: bool = False, unit: int = PAGE) -> str:
    """The reason; the device reads as before, and counts what lives as before."""
    before = device.read(0, device.size)
    with pytest.raises(OSError, match="a remap that is atomic: ") as caught:
        device.remap(target * unit, source * unit, n * unit, move=move)
    assert caught.value.errno == errno.EOPNOTSUPP
    assert device.read(0, device.size) == before
    assert device.problems() == []
    return str(caught.value)


def test_what_is_refused() -> None:
    device = device_of(references="2")
    assert "257 pages: 256 at most" in refused(device, 500, 0, 257)
    assert "overlap" in refused(device, 1, 0, 2)
    assert "overlap" in refused(device, 0, 1, 2, move=True)
    assert "whole pages of 512 bytes" in refused(device, 500, 0, 3, unit=100)
    device.trim(7 * PAGE, PAGE)
    assert "LPA 7 holds nothing" in refused(device, 500, 0, 20)
    device.remap(700 * PAGE, 25 * PAGE, PAGE)
    for _ in range(20):                    # nothing of what was taken ahead is kept
        assert "as many LPAs as can be" in refused(device, 500, 20, 10)
        assert "as many LPAs as can be" in refused(device, 500, 20, 10, move=True)
    device.remap(500 * PAGE, 20 * PAGE, 5 * PAGE)
    assert device.ssd.mapping.counts.count_of(device.ssd.mapping.explain(20)["ppa"]) == 2


def test_nvram_without_room_for_all() -> None:
    device = device_of(nvram="3072", segment="96")
    assert "NVRAM has no room" in refused(device, 600, 0, 256)
    device.remap(600 * PAGE, 0, 20 * PAGE)
    assert device.read(600 * PAGE, 20 * PAGE) == device.read(0, 20 * PAGE)


def test_what_is_not_refused() -> None:
    device = device_of()
    device.remap(500 * PAGE, 0, 256 * PAGE)
    device.remap(900 * PAGE, 300 * PAGE, 50 * PAGE, move=True)
    device.remap(5 * PAGE, 5 * PAGE, 300 * PAGE)
    device.remap(5 * PAGE, 900 * PAGE, 0)
    device.copy(0, 1000 * PAGE + 7, 300 * PAGE)  # promises nothing of the kind
    device.trim(0, PAGE)
    device.copy(0, 700 * PAGE, 290 * PAGE)
    assert device.read(701 * PAGE, PAGE) == b"%08d" % 1 * (PAGE // 8)
    assert device.problems() == []


def test_an_image_says_so(tmp_path: Path) -> None:
    path = tmp_path / "chip"
    image.create(path, Geometry.sized(1 << 20))
    with Device.open(path, ftl="remapssd", options={"atomic": "command"}) as device:
        device.write(0, bytes(range(256)) * 16)
    assert run(["remap", str(path), "8192", "0", "4096"]) == 0
    assert run(["remap", str(path), "0", "65536", "4096"]) == 1


PROGRAM = "w0+60 w200+60 p30-400+1 f p0-200+60 w300"
LINE = "ftl=remapssd preset=tiny-1600 opt.atomic=command opt.buffer=0 opt.nvram=65536 opt.references={references} "


@pytest.mark.parametrize(("references", "left"), [(2, {False}), (15, {False, True})])
def test_power_cuts_between_the_entries(references: int, left: set[bool]) -> None:
    """With two LPAs a page the second remap is refused; with fifteen it is there as a whole or not at all."""
    line = LINE.format(references=references)
    ends: dict[str, int] = {}
    assert run_case(Case.parse(f"{line} program='{PROGRAM}'"), lambda word, at: ends.update({word: at})).failure is None
    at = ends["p0-200+60"] + 1             # what is stored in NVRAM comes before that operation
    found = set()
    for words in range(0, 400, 13):
        case = Case.parse(f"{line} cut={at}:before.{words} program='{PROGRAM}'")
        bench = Bench(case)
        try:
            assert bench.play().failure is None, case.line()
            found.add(bench.judge.newest(200) == page_of(0, 1, PAGE))
        finally:
            bench.release()
    assert found == left


def judge_of(written: int) -> Judge:
    """Of sixteen pages, of which so many were written and flushed."""
    judge = Judge(16, PAGE)
    for lpa in range(written):
        judge.will_write(lpa)
    judge.flushed()
    return judge


def test_the_judge_asks() -> None:
    judge = judge_of(8)
    before = bytes(judge.image)
    judge.will_remap(0, 8 * PAGE, 3 * PAGE, False, whole=True)
    after = bytes(judge.image)
    mixed = after[: 9 * PAGE] + before[9 * PAGE :]
    assert judge.fork().all_crashed(before) is None
    assert judge.fork().all_crashed(after) is None
    said = judge.fork().all_crashed(mixed)
    assert said == "LPA 8: is as an atomic remap left it, and LPA 9 is as it was before that"
    judge.will_write(9)                    # what came since says nothing about it
    assert judge.fork().all_crashed(bytes(judge.image)) is None
    assert judge.fork().all_crashed(after[: 9 * PAGE] + judge.newest(9) + before[10 * PAGE :]) is not None
    judge.flushed()
    loose = judge_of(8)
    loose.will_remap(0, 8 * PAGE, 3 * PAGE, False)
    assert loose.all_crashed(mixed) is None


def test_the_judge_knows_what_is_nobodys_fault() -> None:
    """Of a hole nothing is lost; and what is written to a source later may be there before the move is."""
    judge = judge_of(4)
    before = bytes(judge.image)
    judge.will_remap(8 * PAGE, 0, PAGE, True)
    judge.will_write(8)
    assert judge.all_crashed(before[: 8 * PAGE] + judge.newest(8) + before[9 * PAGE :]) is None
    judge.flushed()
    judge.will_remap(PAGE, 9 * PAGE, PAGE, True)
    moved = judge.fork()
    assert moved.all_crashed(before[:PAGE] + bytes(PAGE) + bytes(judge.image[2 * PAGE : 9 * PAGE]) + before[9 * PAGE :])
    judge.will_write(1)
    held = bytes(judge.image)
    assert judge.all_crashed(held[: 9 * PAGE] + before[9 * PAGE :]) is None
