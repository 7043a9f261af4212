"""A million small trims: what they leave in the log, that all of them are durable, and what they cost."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import nandimg
from flashfs import inspect
from flashfs.device import Device
from nandimg import Geometry

PAGE = 512  #: small: a trim page holds 31 records, so that the log fills soon
GEOMETRY = Geometry(
    page_bytes=PAGE, pages_per_block=64, blocks=560, channels=1, dies=2, oob_bytes=64, lpas=30_000, nvram_bytes=4096
)
LOG_BLOCKS = 12  #: a checkpoint of 5, the one that replaces it, and what is logged meanwhile; of 560
EACH_ROUND = 20_000  #: trims of one page or two, alternating: all pages
FLUSHED_EVERY = 5_000


@pytest.mark.parametrize(("ftl", "trims"), [("pagemap", 1_000_000), ("slimftl", 200_000)])
def test_small_trims(ftl: str, trims: int, tmp_path: Path) -> None:
    path, rnd, seconds = tmp_path / "chip", random.Random(1), []
    nandimg.create(path, GEOMETRY)
    device = Device.open(path, ftl=ftl, sync="none")
    data = random.Random(2).randbytes(PAGE) * GEOMETRY.lpas
    small = [(first + i, 1 + i) for first in range(0, GEOMETRY.lpas, 3) for i in range(2)]
    assert len(small) == EACH_ROUND
    for turn in range(trims // EACH_ROUND):
        device.write(0, data)
        device.flush()
        rnd.shuffle(small)
        started = time.process_time()
        for i, (lpa, n) in enumerate(small):
            device.trim(lpa * PAGE, n * PAGE)
            if i % FLUSHED_EVERY == FLUSHED_EVERY - 1:
                device.flush()
        seconds.append(time.process_time() - started)
        # The log is never cleaned: checkpoints alone keep it from filling the chip.
        assert 1 <= device.stats()["pool"]["meta"] <= LOG_BLOCKS, turn
    stats = device.stats()
    assert stats["host"]["trim"] == GEOMETRY.lpas * trims // EACH_ROUND
    assert stats["trim_pages"] >= trims / 31  # each is on record
    assert stats["checkpoints"] > 10
    device.close(clean=False)
    counting = {row["ppa"] for row in inspect.log(path)["trims"] if not row["in_checkpoint"]}
    assert len(counting) <= LOG_BLOCKS * GEOMETRY.pages_per_block
    with Device.open(path) as device:
        assert device.recovery.clean is False
        assert not any(device.read(0, device.size))
        assert device.extent(0, mapped=True) == device.size
        assert device.problems() == []
    half = len(seconds) // 2
    print(f"{ftl}: {sum(seconds):.2f} s, {sum(seconds) / trims * 1e6:.2f} us each; {stats['trim_pages']} trim pages in "
          f"all, {len(counting)} of them counting at the end, {stats['checkpoints']} checkpoints")  # fmt: skip
    assert min(seconds[half:]) < 4 * min(seconds[:half])  # it would be dozens; a machine may be half as fast at times
