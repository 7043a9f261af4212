"""A move of pages that is copied: what was moved is durable at the target before the source can be empty."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from schemes import EACH

import nandimg
from flashfs.crash.oracle import Judge
from flashfs.device import Device
from nandimg import Geometry

PAGE, LPAS = 512, 600
GEOMETRY = Geometry.sized(LPAS * PAGE, op=1.2, page_bytes=PAGE, pages_per_block=8, nvram_bytes=1 << 18)


def held(lpa: int) -> bytes:
    return b"%08d" % lpa * (PAGE // 8)


@pytest.mark.parametrize("shift", [0, 100])
@pytest.mark.parametrize("ftl", EACH)
def test_a_move_and_a_crash(tmp_path: Path, ftl: str, shift: int) -> None:
    """Nothing is flushed after it; what is written meanwhile makes the engine sync by itself. With a shift,
    no page of the target is a page of the source."""
    path = tmp_path / "chip"
    for seed in range(3):
        rnd = random.Random(seed)
        nandimg.create(path, GEOMETRY, force=True)
        with Device.open(path, ftl=ftl) as device:
            device.write(0, b"".join(map(held, range(LPAS))))
            device.trim(300 * PAGE, 100 * PAGE)
        device = Device.open(path)
        n, source, target = rnd.choice((1, 4, 16)), rnd.randrange(200), 300 + rnd.randrange(80)
        device.remap(target * PAGE + shift, source * PAGE, n * PAGE, move=True)
        for _ in range(rnd.randrange(0, 8)):
            device.write((400 + rnd.randrange(160)) * PAGE, bytes(40 * PAGE))
            device.trim((400 + rnd.randrange(190)) * PAGE, PAGE)
        device.close(clean=False)
        with Device.open(path) as device:
            for i in range(n):
                there = [device.read(at, PAGE) for at in ((source + i) * PAGE, (target + i) * PAGE + shift)]
                assert held(source + i) in there, (seed, i)


def test_the_judge_asks_for_one_of_the_two() -> None:
    judge = Judge(8, PAGE)
    first, second = judge.will_write(0), judge.will_write(1)
    judge.flushed()
    judge.will_remap(0, 4 * PAGE, 2 * PAGE, True)

    def found(*pages: bytes) -> bytes:
        return b"".join(pages).ljust(8 * PAGE, b"\0")

    hole = bytes(PAGE)
    for well in (
        found(first, second),
        found(first, second, hole, hole, first, second),
        found(hole, hole, hole, hole, first, second),
        found(hole, second, hole, hole, first),
    ):
        assert judge.fork().all_crashed(well) is None
    on = judge.fork()
    on.will_remap(4 * PAGE, 6 * PAGE, 2 * PAGE, True)  # the target, a hole before, is a hole again
    assert on.all_crashed(found(hole, hole, hole, hole, hole, hole, first, second)) is None
    for wrong in (found(hole, second), found(hole, hole, hole, hole, first), found(hole, hole)):
        assert "in neither of the two places" in str(judge.fork().all_crashed(wrong))
