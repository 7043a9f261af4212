"""SlimFTL on a full device: a candidate makes way for a page that has room nowhere, and its pages go elsewhere."""

from __future__ import annotations

import random

import numpy as np
import pytest

from flashfs.crash import Case, run_case
from flashfs.device import Device
from flashfs.errors import BindError
from nandimg import PRESETS, Cut, Geometry
from nandimg._faults import SHAPES

THESIS = {"candidates": "shifted", "crowded": "thesis", "lanes": 1}
#: nearly all of its virtual blocks are full after a sequential fill, and groups of as many pages have 63 candidates
FULL = PRESETS["tiny-1330"].geometry
GROUP = 10  #: all its candidates are full then: one makes way for the first page that is written again


def filled(geometry: Geometry, options: dict[str, object]) -> Device:
    device = Device.memory(geometry, "slimftl", {"buffer": 0, **options}, backend="meta")
    device.ssd.write_pages(np.arange(geometry.lpas, dtype=np.uint32))
    return device


def hot(device: Device, group: int, pages: int, writes: int) -> float:
    """Programs a page written, when these neighbours alone are."""
    before = device.stats()["nand"]["program"]
    lpas = np.random.default_rng(group).integers(group * pages, (group + 1) * pages, writes).astype(np.uint32)
    for i in range(writes):
        device.ssd.write_pages(lpas[i : i + 1])
    return float((device.stats()["nand"]["program"] - before) / writes)


def test_no_group_of_a_full_device_is_cleaned_for_every_write() -> None:
    """By the thesis's rule some are. And no look-up takes more than its one read."""
    geometry = Geometry.sized(2**25, op=0.1, pages_per_block=16)
    worst: dict[str, float] = {}
    for rule, options in (("ours", {}), ("thesis's", THESIS)):
        worst[rule] = 0
        for group in range(0, geometry.lpas // 16, 8):
            device = filled(geometry, {"shift": 4, **options})
            worst[rule] = max(worst[rule], hot(device, group, 16, 100))
            device.ssd.read_pages(np.arange(geometry.lpas, dtype=np.uint32))
            assert rule != "ours" or device.stats()["scheme"]["extra_reads"] == 0
            assert device.problems() == []
    assert worst["ours"] < 3
    assert worst["thesis's"] > 8, worst


def test_each_page_is_found_where_it_went() -> None:
    device = Device.memory(FULL, "slimftl", {"buffer": 0, "shift": 2})
    size, rnd = FULL.page_bytes, random.Random(3)
    model = {lpa: rnd.randbytes(size) for lpa in range(FULL.lpas)}
    for lpa, data in model.items():
        device.write(lpa * size, data)
    for _ in range(3_000):
        lpa = rnd.randrange(FULL.lpas if rnd.random() < 0.01 else 4)
        lpa = (lpa + 4 * GROUP) % FULL.lpas
        model[lpa] = rnd.randbytes(size)
        device.write(lpa * size, model[lpa])
    assert device.ssd.placement.made_way
    assert all(device.read(lpa * size, size) == data for lpa, data in model.items())
    assert device.problems() == []


def test_a_guest_of_a_block_that_makes_way_is_counted_off() -> None:
    """One that goes to a candidate of its own is no guest there."""
    device = Device.memory(FULL, "slimftl", {"buffer": 0, "shift": 8})
    size, rnd = FULL.page_bytes, random.Random(4)
    for lpa in range(FULL.lpas):
        device.write(lpa * size, b"x" * size)
    for _ in range(30):  # blocks with room here and there, so that guests have candidates to go to
        first = rnd.randrange(FULL.lpas - 40)
        device.trim(first * size, 40 * size)
        for lpa in range(first, first + 40):
            device.write(lpa * size, b"y" * size)
    assert device.ssd.mapping.shared_pages
    assert device.problems() == []
    device.trim(0, FULL.lpas * size)
    counts = [device.ssd.mapping.virtual_block(vba)["shared"] for vba in range(device.ssd.mapping.virtual_blocks)]
    assert set(counts) <= {0, 255}


def cuts_around() -> tuple[str, int, int]:
    """A program, and the operations of the chip from which on and up to which a candidate makes way in it."""
    program = f"w0+1330 f w{4 * GROUP} w{4 * GROUP + 1} f w{4 * GROUP + 2} w7"
    options = (("buffer", 0), ("shift", 2))
    device = filled(FULL, {"shift": 2})
    device.ssd.write_pages(np.array([4 * GROUP], dtype=np.uint32))
    assert device.ssd.placement.made_way == 1
    before = run_case(Case("slimftl", "w0+1330 f", "tiny-1330", options=options)).operations[-1]
    after = run_case(Case("slimftl", program, "tiny-1330", options=options)).operations[-1]
    return program, before - 2, after


@pytest.mark.parametrize("shape", SHAPES)
def test_cut_wherever_it_is(shape: str) -> None:
    program, first, last = cuts_around()
    assert last - first < 60
    for at in range(first, last + 1):
        case = Case("slimftl", program, "tiny-1330", (Cut(at, shape),), (("buffer", 0), ("shift", 2)))
        failure = run_case(case).failure
        assert failure is None, str(failure)


@pytest.mark.slow
def test_cut_again_in_the_recovery() -> None:
    program, first, last = cuts_around()
    for at in range(first, last + 1, 2):
        for again in (1, 3, 9):
            case = Case("slimftl", program, "tiny-1330", (Cut(at, "after"), Cut(again, "after")),
                        (("buffer", 0), ("shift", 2)))  # fmt: skip
            failure = run_case(case).failure
            assert failure is None, str(failure)


def test_a_program_that_fails_while_one_makes_way() -> None:
    program, first, last = cuts_around()
    for fail in range(first, last):
        line = f"ftl=slimftl preset=tiny-1330 opt.buffer=0 opt.shift=2 fail={fail} program='{program}'"
        failure = run_case(Case.parse(line)).failure
        assert failure is None, str(failure)


@pytest.mark.parametrize(("dies", "lanes"), [(1, 1), (4, 4)])
def test_neighbours_are_dealt_out_to_the_dies(dies: int, lanes: int) -> None:
    geometry = Geometry.sized(2**24, op=0.2, pages_per_block=16, dies=dies, channels=dies)
    device = filled(geometry, {"shift": 4})
    assert device.options["lanes"] == lanes
    said = [device.ssd.mapping.explain(lpa) for lpa in range(geometry.lpas)]
    assert all(one["ppa"] // 16 % dies == one["vba"] % dies for one in said)
    for row in range(0, geometry.lpas - 16 * lanes, 16 * lanes):  # a row of groups: four pages to each die in turn
        dealt = [said[row + i]["pba"] % dies for i in range(0, 16 * lanes, 4)]
        assert len({tuple(dealt[i : i + dies]) for i in range(0, len(dealt), dies)}) == 1
        assert sorted(dealt[:dies]) == list(range(dies))
        assert all(len({said[row + i + k]["pba"] for k in range(4)}) == 1 for i in range(0, 16 * lanes, 4))


def test_what_is_written_in_sequence_is_written_and_read_side_by_side() -> None:
    """In virtual time, 64 KiB by 64 KiB: as fast as the page map on eight dies, where one lane is half as fast."""
    geometry = Geometry.sized(2**26, op=0.2, pages_per_block=16, dies=8, channels=8)
    took: dict[str, tuple[int, int]] = {}
    for name, ftl, options in (("page map", "pagemap", {}), ("lanes", "slimftl", {"shift": 4}),
                               ("one lane", "slimftl", {"shift": 4, "lanes": 1})):  # fmt: skip
        device = Device.memory(geometry, ftl, options, backend="meta")
        written = read = 0
        for first in range(0, geometry.lpas - 15, 16):
            written = device.ssd.write_pages(np.arange(first, first + 16, dtype=np.uint32), None, written)
        device.ssd.sync_now(written)
        read = start = 10 * written
        for first in range(0, geometry.lpas - 15, 16):
            read = device.ssd.read_pages(np.arange(first, first + 16, dtype=np.uint32), None, read)
        took[name] = written, read - start
    for k in range(2):
        assert took["lanes"][k] <= took["page map"][k] / 0.8
        assert took["one lane"][k] > 1.9 * took["page map"][k]


def test_more_lanes_than_virtual_blocks_are_refused() -> None:
    with pytest.raises(BindError, match="lanes=9999"):
        Device.memory(FULL, "slimftl", {"lanes": 9999})
