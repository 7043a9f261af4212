"""Edges that no other test comes by: each was found by a change to the engine that nothing else noticed."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from schemes import KINDS

import nandimg
from flashfs import inspect
from flashfs.crash.cases import Case
from flashfs.crash.forks import Forks
from flashfs.crash.programs import from_checkpoints, presets_for
from flashfs.device import Device
from flashfs.engine.device.byte_requests import next_mapped
from flashfs.ftl import SCHEMES
from flashfs.inspect._view import Spare
from nandimg import PRESETS, Geometry

LARGE = Geometry(page_bytes=512, pages_per_block=64, blocks=280, channels=1, dies=2, oob_bytes=64, lpas=14_000)
SMALL = Geometry(page_bytes=512, pages_per_block=16, blocks=64, channels=1, dies=2, oob_bytes=64, lpas=700)
MANY = Geometry(page_bytes=512, pages_per_block=64, blocks=34, channels=1, dies=1, oob_bytes=64, lpas=1_500)
PAGE = 512
ALL = pytest.mark.parametrize("ftl", KINDS)


@ALL
def test_a_trim_of_many_pages_is_done_in_parts_and_is_whole(ftl: str) -> None:
    """More pages than are looked up at once, of a device whose ends stay."""
    with Device.memory(LARGE, ftl, {"buffer": 0}) as device:
        device.write(0, b"x" * device.size)
        device.trim(PAGE, device.size - 2 * PAGE)
        assert device.read(0, PAGE) == device.read(device.size - PAGE, PAGE) == b"x" * PAGE
        assert device.extent(PAGE, mapped=True) == device.size - PAGE
        assert device.problems() == []


@ALL
def test_a_new_device_has_a_checkpoint_before_anything_is_asked_of_it(ftl: str, tmp_path: Path) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, SMALL)
    Device.open(path, ftl=ftl).close(clean=False)
    assert [hint["checkpoint"] for hint in inspect.log(path)["boot_hints"]] == [1]


@ALL
def test_a_checkpoint_between_flushes_fills_the_groups_that_it_makes_durable(ftl: str) -> None:
    """Pages share cells; a checkpoint that is due names unflushed pages, and the next program must not spoil them."""
    options = (("buffer", 0), ("checkpoint_every", 4))
    program = "w0+8 f w20 w21 w22 w0 w23 w1 w24 w2 i w25 w3 w26 w27 w4 i w5"
    tally = Forks(Case(ftl, program, presets_for(ftl, ("tiny-20p", "tiny-48p"))[0], options=options), tail=2).run()
    assert tally.cuts > 100
    assert tally.failures == []


RUN = 256  #: pages that a buffer which is emptied in order hands out at a time
KIND_USER, CHECKPOINT, PAD, LAST, META = 1, 4, 7, 2, 3
COPIED = 32  #: pages that cleaning programs at a time


@pytest.mark.parametrize("backend", ["file", "meta"])
@pytest.mark.parametrize("slots", [16, 20, 64])
@ALL
def test_what_the_write_buffer_takes(ftl: str, slots: int, backend: str) -> None:
    """To the byte: pages, LPA and sequence number and time of each, a hash table at most half full, and for an order by
    LPA what is put side by side."""
    with Device.memory(SMALL, ftl, {"buffer": slots}, backend=backend) as device:
        stats = device.stats()
    in_order, page = SCHEMES[ftl].buffer_in_order, PAGE if backend == "file" else 0
    table = 4 * {16: 32, 20: 64, 64: 128}[slots]
    order = 8 * slots + RUN * (20 + page) if in_order else 0
    assert stats["dram"]["write_buffer"] == slots * (PAGE + 20 + 2 * in_order)
    assert stats["allocated"]["write_buffer"] == slots * (page + 20) + table + order


@pytest.mark.parametrize(("backend", "pages"), [("file", 16 + COPIED), ("meta", 0)])
def test_what_cleaning_takes(backend: str, pages: int) -> None:
    with Device.memory(SMALL, "pagemap", backend=backend) as device:
        stats = device.stats()
    lists = 16 * (51 + 20) + COPIED * 20  # of 20 bytes of OOB that are in use
    assert stats["allocated"]["gc_buffer"] == lists + pages * PAGE
    assert stats["dram"]["gc_buffer"] == lists + pages * PAGE


@ALL
def test_a_write_waits_for_the_program_that_frees_its_slot(ftl: str) -> None:
    """All requests at virtual time 0: those that the buffer has room for are acknowledged at once."""
    slots = 16
    with Device.memory(SMALL, ftl, {"buffer": slots}) as device:
        for lpa in reversed(range(slots)):
            device.write(lpa * PAGE, b"a" * PAGE)
            assert device.end_ns == 0
        device.write(slots * PAGE, b"b" * PAGE)
        assert device.end_ns >= SMALL.program_ns


@pytest.mark.parametrize("backend", ["file", "meta"])
@pytest.mark.parametrize(("room", "buckets"), [(700, 512), (64, 64), (62, 32), (61, 32)])
def test_what_the_data_cache_takes(room: int, buckets: int, backend: str) -> None:
    """To the byte: 16 bytes a slot that there is room for, the buckets, and the pages that are in use."""
    with Device.memory(replace(SMALL, lpas=room), "pagemap", backend=backend) as device:
        device.ssd.set_budget(10**6)
        slots, stats = device.ssd.cache.slots, device.stats()
    assert slots == room
    assert stats["dram"]["data_cache"] == slots * (PAGE + 20)
    assert stats["allocated"]["data_cache"] == 16 * room + 4 * buckets + (slots * PAGE if backend == "file" else 0)


@ALL
def test_more_live_pages_are_moved_than_are_programmed_at_a_time(ftl: str) -> None:
    """Blocks of 64 pages with every other one rewritten: each page is still where its LPA says, and cleaning put pages
    in the order of their LPAs."""
    rnd, pages = random.Random(3), [bytes([lpa % 251] * PAGE) for lpa in range(MANY.lpas)]
    chip = replace(MANY, blocks=MANY.blocks + 4 * SCHEMES[ftl].validity_in_flash)
    with Device.memory(chip, ftl, {"buffer": 0}) as device:
        for part in (range(MANY.lpas), range(0, MANY.lpas, 2), range(0, MANY.lpas, 2)):
            for lpa in rnd.sample(part, len(part)):
                device.write(lpa * PAGE, pages[lpa])
        assert device.stats()["nand"]["by_cause"]["program"]["gc"] > 10 * COPIED
        assert device.read(0, device.size) == b"".join(pages)
        assert device.problems() == []
        runs = moved_runs(device)
    if not SCHEMES[ftl].replaces:  # others put a page where their map wants it
        steps = [later - earlier for run in runs for earlier, later in pairwise(run)]
        assert sum(step < 0 for step in steps) < len(steps) / 20  # where another victim begins


def moved_runs(device: Device) -> list[list[int]]:
    """The LPAs of the copies in each block, in the order of its pages."""
    runs = []
    for block in range(MANY.blocks):
        spares = [Spare.of(device.nand.read_page(block, page)[2]) for page in range(MANY.pages_per_block)]
        runs.append([spare.lpa for spare in spares if spare.kind == KIND_USER and spare.moved])
    return runs


# --- requests in bytes


@ALL
def test_what_a_ragged_write_reads_is_not_the_hosts(ftl: str) -> None:
    with Device.memory(SMALL, ftl) as device:
        device.write(10, b"x" * (2 * PAGE))
        assert device.stats()["host"] == {"read": 0, "write": 3, "trim": 0, "remap": 0}
        device.read(10, PAGE)
        assert device.stats()["host"] == {"read": 2, "write": 3, "trim": 0, "remap": 0}


@pytest.mark.parametrize("mapped", [True, False])
def test_the_last_byte_of_a_range_may_be_the_first_of_a_page(mapped: bool) -> None:
    with Device.memory(SMALL, "pagemap") as device:
        device.write(0 if not mapped else 3 * PAGE, b"x" * (3 * PAGE))
        for offset in (0, 1, PAGE - 1, PAGE):
            found = [next_mapped(device.ssd, offset, 3 * PAGE - offset + more, mapped) for more in (-1, 0, 1, 2)]
            assert found == [3 * PAGE - offset - 1, *[3 * PAGE - offset] * 3]
        assert next_mapped(device.ssd, 0, 1, mapped) == 1
        assert next_mapped(device.ssd, 0, 0, mapped) == 0


# --- what pages say of themselves (SPEC.md, section 5)


def spares(device: Device) -> list[Spare]:
    """The spare areas of all pages that are programmed, by block and page."""
    geometry = device.nand.geometry
    pages = [device.nand.read_spare_area(block, page) for block in range(geometry.blocks)
             for page in range(geometry.pages_per_block)]  # fmt: skip
    return [Spare.of(raw) for status, raw in pages if status == 1]


@ALL
def test_the_pages_of_a_checkpoint_are_numbered_and_its_descriptor_is_not(ftl: str) -> None:
    with Device.memory(SMALL, ftl, from_checkpoints(ftl)) as device:
        for lpa in range(200):
            device.write(lpa * 3 * PAGE, b"x" * PAGE)
        device.checkpoint()
        identity = device.stats()["checkpoints"]
        log = [spare for spare in spares(device) if spare.kind == CHECKPOINT and spare.seq == identity]
    assert len(log) >= 3
    assert [spare.lpa for spare in log] == [*range(len(log) - 1), 0]
    assert [bool(spare.flags & LAST) for spare in log] == [False] * (len(log) - 1) + [True]


@pytest.mark.parametrize("ftl", ["pagemap", "slimftl"])
def test_a_pad_between_data_is_of_no_page(ftl: str) -> None:
    with Device.memory(PRESETS["tiny-20p"].geometry, ftl, {"buffer": 0}) as device:
        device.write(0, b"x" * (3 * device.page_bytes))
        device.flush()
        pads = [spare for spare in spares(device) if spare.kind == PAD and spare.stream != META]
    assert pads
    assert {spare.lpa for spare in pads} == {0xFFFFFFFF}


@pytest.mark.parametrize("more", [-1, 0, 1, 2])
@ALL
def test_as_many_trims_as_a_page_of_them_holds(ftl: str, more: int, tmp_path: Path) -> None:
    """One more goes to the next page; none is cut off at the end of a page."""
    path, records = tmp_path / "chip", (PAGE - 8) // 16
    nandimg.create(path, SMALL)
    device = Device.open(path, ftl=ftl, options={"buffer": "0"})
    device.write(0, b"x" * (200 * PAGE))
    device.checkpoint()
    for lpa in range(0, 2 * (records + more), 2):
        device.trim(lpa * PAGE, PAGE)
    device.flush()
    assert device.stats()["trim_pages"] == 1 + (more > 0)
    device.close(clean=False)
    with Device.open(path) as device:
        holes = [lpa for lpa in range(200) if not any(device.read(lpa * PAGE, PAGE))]
    assert holes == list(range(0, 2 * (records + more), 2))


# --- what a request costs, and what it leaves


@pytest.mark.parametrize(("pages", "programs"), [(31, 0), (32, 32)])
def test_a_long_request_goes_past_the_write_buffer(pages: int, programs: int) -> None:
    with Device.memory(SMALL, "pagemap", {"buffer": 64}) as device:
        device.write(0, b"x" * (pages * PAGE))
        assert device.stats()["nand"]["by_cause"]["program"].get("host", 0) == programs


def test_checkpoints_are_as_far_apart_as_was_asked() -> None:
    with Device.memory(SMALL, "pagemap", {"buffer": 0, "checkpoint_every": 10}) as device:
        assert device.ssd.ready
        before = device.stats()["checkpoints"]
        for lpa in range(101):
            device.write(lpa * PAGE, b"x" * PAGE)
        assert device.stats()["checkpoints"] == before + 10


@ALL
def test_a_flush_of_nothing_is_no_sync(ftl: str) -> None:
    with Device.memory(SMALL, ftl) as device:
        device.write(0, b"x" * PAGE)
        device.flush()
        syncs = device.ssd.syncs
        device.flush()
        assert device.ssd.syncs == syncs
        device.trim(0, PAGE)
        device.flush()
        assert device.ssd.syncs > syncs


def test_pages_written_without_data_are_zeros_in_the_cache_too() -> None:
    with Device.memory(SMALL, "pagemap", {"buffer": 0}) as device:
        device.ssd.set_budget(10**6)
        device.write(0, b"x" * (2 * PAGE))
        device.ssd.write_pages(array("I", [0]))
        reads = device.stats()["nand"]["by_cause"]["read"].get("host", 0)
        assert device.read(0, 2 * PAGE) == bytes(PAGE) + b"x" * PAGE
        assert device.stats()["nand"]["by_cause"]["read"].get("host", 0) == reads


def test_a_budget_without_room_for_a_page_of_cache() -> None:
    with Device.memory(SMALL, "pagemap", {"buffer": 0}) as device:
        device.ssd.set_budget(PAGE)
        assert (device.ssd.cache.room, device.ssd.cache.slots) == (0, 0)
        device.write(0, b"x" * PAGE)
        assert device.read(0, PAGE) == b"x" * PAGE
        assert device.problems() == []
