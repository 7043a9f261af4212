"""FAST: what is its own. Golden counts, power cuts and the checks of `flashfs check` find it by its name."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashfs import inspect
from flashfs.device import Device
from flashfs.errors import BindError, CorruptError
from nandimg import PRESETS, Geometry, create

SMALL = Geometry(page_bytes=512, pages_per_block=16, blocks=64, dies=2, oob_bytes=64, lpas=700)
PAGE, BLOCK = 512, 16
NOTHING = {"buffer": "0"}  #: each request goes to flash at once


def fill(device: Device, lpas: range, tag: int = 0) -> None:
    for lpa in lpas:
        device.write(lpa * PAGE, bytes([tag, lpa & 0xFF]) * (PAGE // 2))


def holds(device: Device, lpas: range, tag: int = 0) -> bool:
    return all(device.read(lpa * PAGE, PAGE) == bytes([tag, lpa & 0xFF]) * (PAGE // 2) for lpa in lpas)


def merges(device: Device) -> tuple[int, int, int]:
    """Switch, partial, full."""
    one = device.ssd.cleaning
    return one.switches, one.partials, one.fulls


def programs(device: Device) -> dict[str, int]:
    """By cause."""
    return device.stats()["nand"]["by_cause"]["program"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("options", [{}, {"log_blocks": "2"}, {"log_blocks": "5", "buffer": "0"}])
def test_contents(options: dict[str, str]) -> None:
    """Random and sequential writes and trims, until all kinds of merges were done: every page reads what was written
    last."""
    rnd, model = random.Random(1), bytearray(SMALL.lpas * PAGE)
    with Device.memory(SMALL, "fast", options) as device:
        for _ in range(5_000):
            lpa, n = rnd.randrange(SMALL.lpas), 1
            if rnd.random() < 0.1:
                lpa, n = lpa // BLOCK * BLOCK, rnd.randint(1, BLOCK)
            n = min(n, SMALL.lpas - lpa)
            if rnd.random() < 0.1:
                device.trim(lpa * PAGE, n * PAGE)
                data = bytes(n * PAGE)
            else:
                data = rnd.randbytes(8) * (n * PAGE // 8)
                device.write(lpa * PAGE, data)
            model[lpa * PAGE : (lpa + n) * PAGE] = data
        device.flush()
        assert device.read(0, len(model)) == bytes(model)
        assert min(merges(device)) > 20
        assert device.problems() == []


def test_a_logical_block_in_order_is_switched() -> None:
    """It costs no copy: the log block becomes the data block when the next one is begun."""
    with Device.memory(SMALL, "fast", NOTHING) as device:
        for tag in (1, 2):
            fill(device, range(4 * BLOCK), tag)
        assert merges(device) == (7, 0, 0)  # the eighth is still the sequential log block
        assert set(programs(device)) == {"host", "checkpoint"}
        assert holds(device, range(4 * BLOCK), 2)


def test_the_rest_of_a_logical_block_is_copied_behind() -> None:
    with Device.memory(SMALL, "fast", NOTHING) as device:
        fill(device, range(2 * BLOCK), 1)
        fill(device, range(5), 2)           # merges logical block 1, then begins 0 anew
        fill(device, range(BLOCK, BLOCK + 1), 3)
        assert merges(device) == (2, 1, 0)
        assert device.ssd.mapping.explain(0)["in"] == device.ssd.mapping.explain(5)["in"] == "data"
        assert holds(device, range(5), 2)
        assert holds(device, range(5, BLOCK), 1)


@pytest.mark.parametrize("superseded", [True, False], ids=["superseded", "trimmed"])
def test_a_log_block_with_a_dead_page_is_no_data_block(superseded: bool) -> None:
    """A switch takes a log block of which all pages count. One dead page, and it is a full merge: all of the
    logical block is in place again, and no pair of the log is left for it."""
    with Device.memory(SMALL, "fast", NOTHING) as device:
        fill(device, range(BLOCK), 1)
        if superseded:
            fill(device, range(3, 4), 2)
        else:
            device.trim(3 * PAGE, PAGE)
        fill(device, range(BLOCK, BLOCK + 1), 3)
        assert merges(device) == (0, 0, 1)
        assert device.ssd.mapping.log.n == 1  # the first page of the next one
        assert holds(device, range(3), 1)
        assert holds(device, range(4, BLOCK), 1)
        assert holds(device, range(3, 4), 2) if superseded else device.read(3 * PAGE, PAGE) == bytes(PAGE)


def test_a_hole_is_programmed_with_a_page_that_holds_nothing() -> None:
    with Device.memory(SMALL, "fast", NOTHING | {"log_blocks": "2"}) as device:
        fill(device, range(1, 4), 1)
        fill(device, range(9, 12), 1)
        fill(device, range(BLOCK + 1, 4 * BLOCK), 2)  # the random log block fills up, and is merged
        said = device.ssd.mapping.explain(9)
        assert (said["in"], said["ppa"] % BLOCK) == ("data", 9)
        assert programs(device)["pad"] >= 6
        assert holds(device, range(1, 4), 1)
        assert device.read(5 * PAGE, PAGE) == bytes(PAGE)


def test_a_page_that_a_merge_cannot_read_stays_lost(tmp_path: Path) -> None:
    """The new data block has a page in its place that says so. It is not read as zeros, and a write brings it back."""
    path = tmp_path / "chip"
    create(path, SMALL)
    with Device.open(path, ftl="fast", options=NOTHING) as device:
        fill(device, range(SMALL.lpas))
        device.flush()
        ppa = device.ssd.mapping.explain(5)["ppa"]
        with path.open("r+b") as file:
            file.seek(inspect.header(path)["layout"]["data_at"] + ppa * PAGE)
            file.write(b"\xff" * 64)
        before, rnd = merges(device)[2], random.Random(2)
        while device.ssd.mover.lost_pages == 0:  # until the logical block of LPA 5 is merged
            for lpa in rnd.sample(range(16, SMALL.lpas), 20):
                fill(device, range(lpa, lpa + 1))
            fill(device, range(7, 8))
        assert merges(device)[2] > before
        with pytest.raises(OSError):
            device.read(5 * PAGE, PAGE)
        assert holds(device, range(5))
        assert holds(device, range(6, SMALL.lpas))
        fill(device, range(5, 6))
        assert holds(device, range(SMALL.lpas))
        assert device.problems() == []


def test_log_blocks_are_as_many_as_asked_for() -> None:
    rnd = random.Random(2)
    with Device.memory(SMALL, "fast", {"log_blocks": "4"}) as device:
        fill(device, range(SMALL.lpas))
        for _ in range(3_000):
            device.write(rnd.randrange(SMALL.lpas) * PAGE, bytes(PAGE))
            assert len(device.ssd.placement.log_blocks()) <= 4
        assert device.ssd.mapping.log.n <= 4 * BLOCK


def test_a_trimmed_logical_block_costs_no_merge() -> None:
    with Device.memory(SMALL, "fast", NOTHING) as device:
        fill(device, range(SMALL.lpas))
        device.trim(0, SMALL.lpas * PAGE)
        before = merges(device)[2]
        fill(device, range(1, SMALL.lpas, 2), 1)
        device.trim(0, SMALL.lpas * PAGE)
        assert device.ssd.mapping.data_blocks() == {}
        assert merges(device)[2] - before < 2 * SMALL.lpas // BLOCK
        assert device.problems() == []


def test_log_blocks_go_on_after_a_clean_mount(tmp_path: Path) -> None:
    create(tmp_path / "image", SMALL)
    with Device.open(tmp_path / "image", ftl="fast", options=NOTHING) as device:
        fill(device, range(3 * BLOCK, 3 * BLOCK + 7), 1)
        fill(device, range(5, 9), 1)
    with Device.open(tmp_path / "image", options=NOTHING) as device:
        kinds = dict(map(reversed, device.ssd.placement.log_blocks()))  # type: ignore[arg-type]
        assert set(kinds) == {"random, open", "sequential, of logical block 3"}
        fill(device, range(3 * BLOCK + 7, 4 * BLOCK), 1)
        assert merges(device) == (0, 0, 0)
        fill(device, range(1), 1)
        assert merges(device) == (1, 0, 0)
        assert holds(device, range(3 * BLOCK, 4 * BLOCK), 1)
        assert holds(device, range(5, 9), 1)


def test_what_was_merged_since_a_checkpoint_is_not_in_the_log(tmp_path: Path) -> None:
    create(tmp_path / "image", SMALL)
    device = Device.open(tmp_path / "image", ftl="fast", options={"buffer": "0", "checkpoint_every": "0"})
    fill(device, range(20 * BLOCK), 1)
    fill(device, range(0, 20 * BLOCK, 3), 2)
    device.flush()
    in_log = device.ssd.mapping.log.n
    device.close(clean=False)
    with Device.open(tmp_path / "image") as device:
        assert device.ssd.mapping.log.n <= in_log + 4 * BLOCK  # some are no data blocks yet
        assert len(device.ssd.mapping.data_blocks()) >= 18
        assert device.problems() == []


def damage(where: str) -> Callable[[dict[str, Any]], None]:
    def change(sections: dict[str, Any]) -> None:
        table = bytearray(sections[where])
        if where == "blocks":
            table[4:8] = table[:4]
        elif where == "log":
            table += b"\0\0\0\0"
        elif where == "logged":
            table[-1] |= 0x80               # beyond the last LPA
        else:
            table[:] = bytes(len(table))
        sections[where] = bytes(table)

    return change


@pytest.mark.parametrize(
    ("where", "says"),
    [("blocks", "one for two logical blocks"), ("log", "LPAs are in the log"), ("logged", "in the log"),
     ("mapped", "in the log that are not mapped")],
)  # fmt: skip
def test_a_map_that_cannot_be_is_refused(tmp_path: Path, where: str, says: str) -> None:
    """A checkpoint with right sums and a wrong map: the mount passes over it, or says what is wrong."""
    create(tmp_path / "image", SMALL)
    device = Device.open(tmp_path / "image", ftl="fast", options=NOTHING)
    fill(device, range(3 * BLOCK))
    fill(device, range(3, 9))
    device.flush()
    sections = dict(device.ssd.mapping.save())
    damage(where)(sections)
    with pytest.raises(ValueError, match=says):
        device.ssd.mapping.load(sections)
    device.close(clean=False)


def test_two_lpas_at_a_page_are_found(tmp_path: Path) -> None:
    create(tmp_path / "image", SMALL)
    device = Device.open(tmp_path / "image", ftl="fast", options=NOTHING)
    fill(device, range(3, 9))
    device.flush()
    ssd = device.ssd
    kept = ssd.mapping.save()
    log = np.frombuffer(kept["log"], "<u4").copy()
    log[1] = log[0]
    sections = {**kept, "log": log.tobytes(), **ssd.validity.save(), "pool": ssd.pool.save()}
    ssd.meta.write(sections, ssd.seq, ssd.mounts, True)
    ssd.meta.point_boot()
    device.close(clean=False)
    with pytest.raises(CorruptError, match="another LPA's"):
        Device.open(tmp_path / "image")


def test_views(tmp_path: Path) -> None:
    create(tmp_path / "image", SMALL)
    with Device.open(tmp_path / "image", ftl="fast", options=NOTHING) as device:
        fill(device, range(2 * BLOCK + 7))
        fill(device, range(3, 9))
    said = inspect.scheme(tmp_path / "image", "map")
    assert (said["logical_blocks"], said["in_log"]) == (44, 6 + 7)
    assert [row["logical_block"] for row in inspect.scheme(tmp_path / "image", "data")] == [0, 1]
    assert {row["kind"] for row in inspect.scheme(tmp_path / "image", "logs")} == {
        "random, open", "sequential, of logical block 2"}  # fmt: skip


def test_a_chip_with_too_few_spare_blocks_is_refused(tmp_path: Path) -> None:
    geometry = PRESETS["tiny-16"].geometry
    full = Geometry(**{**geometry.as_dict(), "lpas": (geometry.blocks - 4) * geometry.pages_per_block})
    create(tmp_path / "image", full)
    with pytest.raises(BindError, match="fast: "):
        Device.open(tmp_path / "image", ftl="fast")
