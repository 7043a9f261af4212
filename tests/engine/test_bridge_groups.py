"""A group as the unit of cleaning of an FTL in Python: checked as strictly as a block."""

from __future__ import annotations

import random
from typing import Any

import pytest
from planted import Cleaning, use

from flashfs.device import Device
from flashfs.errors import BindError, FtlError
from nandimg import Geometry


class CleansGroups(Cleaning):
    """The closed blocks with the fewest live pages, up to three of them."""

    group_blocks = 3

    def victim(self) -> Any:
        closed = sorted(self.chip.closed_blocks(), key=self.chip.live)
        return closed[:3]


def overwritten(cls: type, n: int = 300) -> Device:
    shape = Geometry(page_bytes=512, pages_per_block=8, blocks=40, channels=1, dies=1, oob_bytes=64, lpas=150)
    device = Device.memory(shape, use(cls, "cleaning:Groups"), {"buffer": 0})
    rnd = random.Random(3)
    for lpa in (*range(150), *(rnd.randrange(40) for _ in range(n))):
        device.write(lpa * 512, bytes([lpa]) * 512)
    return device


def test_victims_that_are_moved_together() -> None:
    with overwritten(CleansGroups) as device:
        assert device.ssd.mover.moves > 5
        assert all(device.read(lpa * 512, 512) == bytes([lpa]) * 512 for lpa in range(150))
        assert device.ssd.check() == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (lambda closed, chip: [], r"returned 0 blocks: it should be 1 to 3, as group_blocks says"),
        (lambda closed, chip: closed[:4], r"returned 4 blocks: it should be 1 to 3"),
        (lambda closed, chip: [closed[0], closed[0]], r"returned block \d+ twice"),
        (lambda closed, chip: [closed[0], 99], r"returned \[\d+, 99\]: it should be one of chip.closed_blocks\(\)"),
        (lambda closed, chip: [closed[0], "x"], r"returned \[\d+, 'x'\]: it should be one of chip.closed_blocks\(\)"),
        (lambda closed, chip: [closed[0], min(set(range(40)) - set(closed))],
         r"returned block \d+, which is \w+: it should be one"),
        (lambda closed, chip: [b for b in closed if chip.live(b) == 8][:2], r"returned 2 blocks, whose pages are all"),
    ],
)  # fmt: skip
def test_victims_that_will_not_do(said: Any, why: str) -> None:
    class Errs(CleansGroups):
        def victim(self) -> Any:
            return said(sorted(self.chip.closed_blocks(), key=self.chip.live), self.chip)

    with pytest.raises(FtlError, match=rf"victim\(\): {why}"):
        overwritten(Errs)


def test_a_group_of_no_blocks() -> None:
    class Errs(CleansGroups):
        group_blocks = 0

    with pytest.raises(BindError, match=r"group_blocks is 0: use a whole number from 1 to 40"):
        overwritten(Errs)
