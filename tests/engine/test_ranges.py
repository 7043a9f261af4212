"""Requests in bytes of any alignment, against a model in memory."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from schemes import KINDS

from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES
from nandimg import Geometry

PAGE = 512
PAGES = 64
SIZE = PAGE * PAGES
GEOMETRY = Geometry(
    page_bytes=PAGE, oob_bytes=64, pages_per_block=16, blocks=24, dies=2, channels=1, lpas=PAGES
)  # fmt: skip
OFFSETS = st.integers(0, SIZE) | st.integers(0, PAGES).map(lambda page: page * PAGE)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["write", "trim", "copy", "remap", "move", "read", "flush"]), OFFSETS, OFFSETS, OFFSETS
    ),
    max_size=30,
)


def moved(model: bytearray, target: int, source: int, length: int, empty: bool) -> None:
    """What a remap makes of the bytes of a device."""
    data = model[source : source + length]
    if empty and length:
        model[source : source + length] = bytes(length)
    model[target : target + length] = data


def mapped(device: Device) -> list[bool]:
    return [device.ssd.mapped(lpa) for lpa in range(PAGES)]


@settings(max_examples=150, deadline=None)
@given(operations=OPERATIONS, ftl=st.sampled_from(list(SCHEMES)), buffer=st.sampled_from([0, 4]))
def test_any_request(operations: list[tuple[str, int, int, int]], ftl: str, buffer: int) -> None:
    with Device.memory(GEOMETRY, ftl, {"buffer": buffer}) as device:
        model = bytearray(SIZE)
        for count, (what, offset, other, length) in enumerate(operations):
            length = min(length, SIZE - offset)
            changed = device.ssd.host_write
            first, end = offset // PAGE, -(-(offset + length) // PAGE)
            if what == "write":
                data = bytes([count % 255 + 1]) * length
                device.write(offset, data)
                model[offset : offset + length] = data
            elif what == "trim":
                before = mapped(device)
                device.trim(offset, length)
                model[offset : offset + length] = bytes(length)
                for lpa in range(-(-offset // PAGE), (offset + length) // PAGE):
                    assert not device.ssd.mapped(lpa)
                assert all(was or not now for was, now in zip(before, mapped(device), strict=True))
            elif what == "copy":
                length = min(length, SIZE - other, abs(offset - other))
                device.copy(offset, other, length)
                first, end = other // PAGE, -(-(other + length) // PAGE)
                model[other : other + length] = model[offset : offset + length]
            elif what in ("remap", "move"):
                length = min(length, SIZE - other)
                device.remap(other, offset, length, move=what == "move")
                first, end = other // PAGE, -(-(other + length) // PAGE) + 2 * (what == "move")  # ends of the source
                moved(model, other, offset, length, what == "move")
            elif what == "flush":
                device.flush()
            assert device.ssd.host_write - changed <= max(0, end - first)  # no page twice: a cut between would tear it
            assert device.read(offset, min(length, SIZE - offset)) == model[offset : offset + length]
        assert device.read(0, SIZE) == model
        assert device.problems() == []


def test_a_copy_changes_a_page_once() -> None:
    """Its source begins in a hole and goes on with data: each page of the target is programmed once."""
    with Device.memory(GEOMETRY, "pagemap", {"buffer": 0}) as device:
        device.write(16 * PAGE, b"A" * PAGE)
        device.write(PAGE, b"B" * PAGE)
        before = device.stats()["nand"]["by_cause"]["program"]["host"]
        device.copy(PAGE // 4, 16 * PAGE, PAGE)
        assert device.stats()["nand"]["by_cause"]["program"]["host"] == before + 1
        assert device.read(16 * PAGE, PAGE) == bytes(PAGE - PAGE // 4) + b"B" * (PAGE // 4)
        device.copy(40 * PAGE, 16 * PAGE, 2 * PAGE + 7)  # nothing but hole
        assert not device.ssd.mapped(16)
        assert device.stats()["nand"]["by_cause"]["program"]["host"] == before + 1


@pytest.mark.parametrize("ftl", KINDS)
@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize(("target", "source", "length"), [(3, 1, 9), (1, 3, 9), (20, 4, 8), (4, 4, 8), (0, 1, 63)])
def test_a_remap_of_whole_pages(ftl: str, move: bool, target: int, source: int, length: int) -> None:
    """Holes become holes, ranges may overlap, and what becomes of the source later does not show in the target."""
    with Device.memory(GEOMETRY, ftl) as device:
        model = bytearray(random.Random(length).randbytes(SIZE))
        device.write(0, model)
        for page in (5, 8, 9, 30):
            device.trim(page * PAGE, PAGE)
            model[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
        holes = [not device.ssd.mapped(lpa) for lpa in range(PAGES)]
        device.remap(target * PAGE, source * PAGE, length * PAGE, move=move)
        moved(model, target * PAGE, source * PAGE, length * PAGE, move and target != source)
        assert device.read(0, SIZE) == model
        assert device.stats()["host"]["remap"] == (length if target != source else 0)
        for at in range(length):
            assert device.ssd.mapped(target + at) is not holes[source + at]
        device.write(source * PAGE, b"x" * PAGE)
        model[source * PAGE : (source + 1) * PAGE] = b"x" * PAGE
        assert device.read(0, SIZE) == model
        device.flush()
        assert device.problems() == []


def test_a_remap_that_is_refused() -> None:
    with Device.memory(GEOMETRY) as device:
        for target, source, length in ((0, SIZE - 1, 2), (SIZE, 0, 1), (-1, 0, 1), (0, 0, SIZE + 1)):
            with pytest.raises(UsageError, match=f"the device has {SIZE} bytes"):
                device.remap(target, source, length)
        device.remap(SIZE, 0, 0)


def test_extents() -> None:
    with Device.memory(GEOMETRY, "pagemap", {"buffer": 4}) as device:
        assert (device.extent(0, mapped=True), device.extent(0, mapped=False)) == (SIZE, 0)
        device.write(5 * PAGE + 100, b"x")  # still in the write buffer
        device.write(7 * PAGE, bytes(9 * PAGE))
        assert device.extent(0, mapped=True) == 5 * PAGE
        assert device.extent(5 * PAGE + 200, mapped=True) == 5 * PAGE + 200
        assert device.extent(5 * PAGE + 200, mapped=False) == 6 * PAGE
        assert device.extent(7 * PAGE, mapped=False) == 16 * PAGE
        device.trim(10 * PAGE, PAGE)
        assert device.extent(7 * PAGE, mapped=False) == 10 * PAGE
        assert device.extent(SIZE, mapped=True) == SIZE


def test_a_hole_is_copied_as_a_hole() -> None:
    with Device.memory(GEOMETRY) as device:
        device.write(0, b"a" * PAGE)
        device.write(2 * PAGE, b"c" * PAGE)
        device.write(33 * PAGE, b"x" * PAGE)
        device.copy(0, 32 * PAGE, 3 * PAGE)
        assert [device.ssd.mapped(lpa) for lpa in (32, 33, 34)] == [True, False, True]
        with pytest.raises(UsageError, match="overlap"):
            device.copy(0, PAGE, 2 * PAGE)


def test_a_ragged_trim_of_nothing_writes_nothing() -> None:
    with Device.memory(GEOMETRY) as device:
        device.trim(100, 50)
        device.trim(PAGE - 10, 20)
        assert device.ssd.host_write == 0
