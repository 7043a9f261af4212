"""A device against a byte array; what a mount reads; what is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from schemes import KINDS

import nandimg
from flashfs.crash.programs import from_checkpoints, presets_for, without_battery
from flashfs.device import Device
from flashfs.errors import BindError, UsageError
from flashfs.ftl import SCHEMES
from nandimg import PRESETS, Geometry, ImageError

GEOMETRY = Geometry(
    page_bytes=512, pages_per_block=16, blocks=64, channels=2, dies=4, oob_bytes=64, lpas=700, nvram_bytes=8192
)
PAGE = GEOMETRY.page_bytes

pytestmark = pytest.mark.parametrize("ftl", KINDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    nandimg.create(tmp_path / "chip", GEOMETRY)
    return tmp_path / "chip"


def churn(device: Device, model: bytearray, rnd: random.Random, requests: int) -> None:
    """Requests of any offset and length, each checked by reading around it."""
    for _ in range(requests):
        length = rnd.choice((0, 1, 7, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 5 * PAGE + 13, 40 * PAGE))
        offset = rnd.randrange(device.size - length + 1)
        if rnd.random() < 0.4:
            offset -= offset % PAGE
        kind = rnd.random()
        if kind < 0.7:
            data = rnd.randbytes(length)
            assert device.write(offset, data) == length
            model[offset : offset + length] = data
        elif kind < 0.85:
            device.trim(offset, length)
            model[offset : offset + length] = bytes(length)
        elif kind < 0.9:
            device.flush()
        first, last = max(0, offset - 700), min(device.size, offset + length + 700)
        assert device.read(first, last - first) == model[first:last]


@pytest.mark.parametrize("seed", range(4))
def test_any_offset_and_length(ftl: str, seed: int) -> None:
    rnd = random.Random(seed)
    device = Device.memory(GEOMETRY, ftl, {"buffer": rnd.choice((0, 1, 5, 64))})
    model = bytearray(device.size)
    churn(device, model, rnd, 1_500)
    assert device.read(0, device.size) == model
    assert device.problems() == []


@pytest.mark.parametrize("clean", [True, False])
def test_the_same_over_mounts(ftl: str, path: Path, clean: bool) -> None:
    rnd = random.Random(7)
    model = bytearray(GEOMETRY.logical_bytes)
    for mount in range(5):
        device = Device.open(path, ftl=ftl if mount == 0 else None)
        assert device.recovery.clean is (clean or mount == 0)
        assert device.read(0, device.size) == model
        churn(device, model, rnd, 150)
        if not clean:
            device.flush()
        device.close(clean=clean)
    with Device.open(path) as device:
        assert device.problems() == []
        assert device.smart()["mounts"] == 5  # the first one made it


def test_a_request_outside_is_refused_and_harmless(ftl: str) -> None:
    device = Device.memory(GEOMETRY, ftl)
    for action in (
        lambda: device.read(device.size, 1), lambda: device.write(device.size - 1, b"ab"), lambda: device.read(-1, 1),
        lambda: device.trim(0, device.size + 1), lambda: device.write(-5, b"x"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=f"the device has {device.size} bytes"):
            action()
    assert device.read(device.size, 0) == b""
    assert device.write(device.size, b"") == 0
    assert device.read(0, device.size) == bytes(device.size)


def test_trim(ftl: str) -> None:
    device = Device.memory(GEOMETRY, ftl, {"buffer": 0})
    device.write(0, b"x" * 8 * PAGE)
    device.trim(PAGE, 2 * PAGE)
    assert device.stats()["host"]["trim"] == 2
    assert device.read(0, 8 * PAGE) == b"x" * PAGE + bytes(2 * PAGE) + b"x" * 5 * PAGE
    programs = device.stats()["nand"]["program"]
    device.trim(PAGE, 2 * PAGE)  # holds nothing any more
    device.trim(100 * PAGE, 100 * PAGE)
    device.flush()
    assert device.stats()["nand"]["program"] <= programs + 1  # one trim page at most
    device.trim(4 * PAGE + 10, PAGE)  # no whole page in it: overwritten
    assert device.read(4 * PAGE, 2 * PAGE) == b"x" * 10 + bytes(PAGE) + b"x" * (PAGE - 10)
    assert device.stats()["host"]["trim"] == 102 + 2
    device.trim(0, device.size)
    assert device.read(0, device.size) == bytes(device.size)
    assert device.problems() == []


def test_trimmed_space_is_space(ftl: str) -> None:
    """What was trimmed is not moved by cleaning: a device that is mostly trimmed has a write amplification near 1."""
    device = Device.memory(GEOMETRY, ftl, {"buffer": 0})
    rnd = random.Random(1)
    for lpa in range(GEOMETRY.lpas):
        device.write(lpa * PAGE, b"x" * PAGE)
    device.trim(200 * PAGE, 500 * PAGE)
    before = device.stats()["nand"]["by_cause"]["program"]
    for _ in range(4_000):
        device.write(rnd.randrange(200) * PAGE, b"y" * PAGE)
    after = device.stats()["nand"]["by_cause"]["program"]
    # a bound on what is dirty, and a log of what died, cost a scheme more than this
    free = ("map", "validity") if "dirty_most" in device.stats()["scheme"] else ()
    most = 2.5 if SCHEMES[ftl].merges else 1.25  # a merge copies a data block, whatever of it was rewritten
    assert sum(n - before.get(cause, 0) for cause, n in after.items() if cause not in free) < most * 4_000


def test_a_clean_mount_scans_nothing(ftl: str, path: Path) -> None:
    with Device.open(path, ftl=ftl) as device:
        device.write(0, b"x" * device.size)
    device = Device.open(path)
    assert device.recovery.clean
    assert device.recovery.summary().startswith("clean: ")
    assert device.stats()["nand"]["spare_read"] == 0
    assert sum(step.spare_reads for step in device.recovery.steps) == 0
    reads = sum(step.reads for step in device.recovery.steps)
    assert reads <= device.ssd.meta.checkpoint_pages + 4  # the checkpoint, its proof
    assert sum(step.programs for step in device.recovery.steps) == 0
    assert device.read(0, device.size) == b"x" * device.size
    device.close()
    with Device.open(path) as device:  # nothing was changed: the same checkpoint does again
        assert device.recovery.clean


@pytest.mark.parametrize("filled", [1, 350, 700])
@pytest.mark.parametrize("since", [0, 5, 60])
def test_a_recovery_reads_one_spare_a_block_and_what_came_since(ftl: str, path: Path, filled: int, since: int) -> None:
    """Whatever the device holds: the counters say so. What a battery kept is not looked for."""
    device = Device.open(path, ftl=ftl, options={"buffer": "0", **from_checkpoints(ftl)})
    device.write(0, b"x" * filled * PAGE)
    device.checkpoint()
    before = device.stats()["nand"]["program"]
    for lpa in range(since):
        device.write(lpa * 7 % 700 * PAGE, b"y" * PAGE)
    device.flush()
    programmed = device.stats()["nand"]["program"] - before
    meta = 2 * device.stats()["pool"]["meta"]  # the checkpoint before it is dead, and not erased before it is needed
    device.close(clean=False)
    device = Device.open(path, options=without_battery(ftl))
    steps = {step.name: step for step in device.recovery.steps}
    assert not device.recovery.clean
    assert steps["headers"].spare_reads == GEOMETRY.blocks
    assert steps["metadata"].spare_reads <= meta * GEOMETRY.pages_per_block
    scanned = device.recovery.figures["blocks_scanned"]
    # a virtual block stays open until it is full
    stay_open = GEOMETRY.blocks if device.ssd.mapping.recovery_reopens() else 0
    assert scanned <= programmed + 2 * GEOMETRY.dies + stay_open
    assert steps["scan"].spare_reads <= programmed + scanned
    assert steps["scan"].reads <= scanned  # the last page of each is read whole
    found = device.recovery.figures["pages_found"]
    assert since <= found <= programmed
    assert device.read(0, PAGE)[:1] == (b"y" if since else b"x")
    device.close()


def test_read_only_changes_nothing(ftl: str, path: Path) -> None:
    device = Device.open(path, ftl=ftl)
    device.write(0, b"x" * 100 * PAGE)
    device.flush()
    device.close(clean=False)
    before = path.read_bytes()
    device = Device.open(path, readonly=True)
    assert device.read(0, 100 * PAGE) == b"x" * 100 * PAGE
    assert device.problems() == []
    for change in (lambda: device.write(0, b"y"), lambda: device.trim(0, PAGE), device.flush, device.checkpoint):
        with pytest.raises(UsageError, match="read-only"):
            change()
    device.close()
    assert path.read_bytes() == before


def test_meta_keeps_everything_but_the_data(ftl: str, tmp_path: Path) -> None:
    nandimg.create(tmp_path / "meta", GEOMETRY, "meta")
    device = Device.open(tmp_path / "meta", ftl=ftl)
    device.write(0, b"x" * 100 * PAGE)
    assert device.read(0, 100 * PAGE) == bytes(100 * PAGE)
    assert device.ssd.mapped(99)
    assert not device.ssd.mapped(100)
    assert device.problems() == []
    assert (tmp_path / "meta").stat().st_blocks * 512 < 100 * PAGE + (1 << 20)


def test_what_cannot_be_bound_is_refused_and_the_image_stays_blank(ftl: str, tmp_path: Path) -> None:
    def attempt(geometry: Geometry, said: str, error: type[Exception] = BindError, **how: Any) -> None:
        path = tmp_path / "chip"
        nandimg.create(path, geometry, force=True)
        with pytest.raises(error, match=said) as caught:
            Device.open(path, ftl=ftl, **how)
        assert "\n" not in str(caught.value)
        assert nandimg.inspect(path).ftl == ""

    attempt(replace(GEOMETRY, oob_bytes=16), f"{ftl} needs [0-9]+ bytes of OOB per page: this chip has 16")
    attempt(replace(GEOMETRY, lpas=GEOMETRY.pages - 20), f"{ftl}: 1004 logical pages")
    attempt(GEOMETRY, "--dram 1000 is 1000 B: .* needs", dram=1000)
    attempt(replace(GEOMETRY, nvram_bytes=0), "--plp needs .* NVRAM", plp=True)
    attempt(GEOMETRY, "option nonesuch", UsageError, options={"nonesuch": "1"})
    attempt(GEOMETRY, "buffer=x: use a whole number", UsageError, options={"buffer": "x"})
    attempt(GEOMETRY, "sync 'never'", UsageError, sync="never")
    attempt(GEOMETRY, "blank", readonly=True)


def test_a_bound_image_stays_what_it_is(ftl: str, path: Path) -> None:
    Device.open(path, ftl=ftl).close()
    other = next(name for name in SCHEMES if name != ftl)
    before = path.read_bytes()
    with pytest.raises(BindError, match=f"bound to {ftl} for life, not {other}"):
        Device.open(path, ftl=other)
    with pytest.raises(UsageError, match="no FTL is called 'nonesuch'; there are"):
        Device.open(path, ftl="nonesuch")
    for option in (one for one in SCHEMES[ftl].options if one.fixed):
        bound = nandimg.inspect(path).options[option.name]
        other_value = next(value for value in (*option.choices, option.low, option.low + 1) if value != bound)
        with pytest.raises(BindError, match=f"{option.name} was fixed at {bound}"):
            Device.open(path, options={option.name: str(other_value)})
    assert path.read_bytes() == before
    Device.open(path, ftl=ftl).close()


def test_two_openers(ftl: str, path: Path) -> None:
    with Device.open(path, ftl=ftl), pytest.raises(ImageError, match="in use"):
        Device.open(path)


def test_the_face_says_what_it_is(ftl: str, path: Path) -> None:
    with Device.open(path, ftl=ftl) as device:
        assert (device.ftl, device.size, device.page_bytes, device.path) == (ftl, GEOMETRY.logical_bytes, PAGE, path)
        config = device.config()
        asked = sum(SCHEMES[ftl].nvram(GEOMETRY, SCHEMES[ftl].resolve({}), None).values())  # beside the host's own
        assert 0 <= config["geometry"]["nvram_bytes"] - GEOMETRY.nvram_bytes - asked < 2 * 64
        assert config["geometry"] | {"nvram_bytes": GEOMETRY.nvram_bytes} == GEOMETRY.as_dict()
        assert config["uuid"] == device.smart()["uuid"] == str(nandimg.inspect(path).uuid)
        device.write(0, b"x" * 3 * PAGE)
        device.read(0, PAGE)
        device.flush()
        stats = device.stats()
        assert stats["host"] == {"read": 1, "write": 3, "trim": 0, "remap": 0}
        assert stats["waf"] == pytest.approx(stats["nand"]["program"] / 3, abs=1e-3)
        assert stats["nand"]["by_cause"]["program"]["host"] == 3
        assert stats["dram"]["total"] == sum(n for name, n in stats["dram"].items() if name != "total")
        assert sum(stats["pool"].values()) == GEOMETRY.blocks


def test_presets_can_be_bound(ftl: str) -> None:
    for name in (*presets_for(ftl, ("tiny-8", "tiny-16", "tiny-24d")), "small-64m"):
        device = Device.memory(PRESETS[name].geometry, ftl)
        device.write(0, b"x" * 512)
        assert device.problems() == []
