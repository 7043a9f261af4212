"""The rules of flash, torn pages, wear, bad blocks, counters and the clock."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nandimg
from nandimg import Cut, FaultyNand, Geometry, NandError, PowerCut, create, memory_image, open_image
from nandimg._faults import SHAPES

GEOMETRY = Geometry(page_bytes=512, pages_per_block=4, blocks=8, oob_bytes=64, lpas=16, nvram_bytes=256)
ERASED, OK, TORN = 0, 1, 2


def page_of(n: int) -> bytes:
    return bytes([n]) * 512


@pytest.fixture
def chip() -> Any:
    return memory_image(GEOMETRY).chip


def state(chip: Any) -> Any:
    """All that can be read of a chip."""
    pages = [chip.read_page(b, p) for b in range(chip.blocks) for p in range(chip.pages_per_block)]
    blocks = [(chip.erase_count(b), chip.block_health(b)) for b in range(chip.blocks)]
    return pages, blocks, chip.nvram(0, GEOMETRY.nvram_bytes), chip.boot_slot(0), chip.boot_slot(1)




def test_an_erased_page_reads_ff(chip: Any) -> None:
    assert chip.read_page(3, 2) == (ERASED, b"\xff" * 512, b"\xff" * 64)
    assert chip.read_spare_area(3, 2) == (ERASED, b"\xff" * 64)


def test_what_is_programmed_is_read(chip: Any) -> None:
    chip.program_page(3, 0, page_of(1), b"oob")
    assert chip.read_page(3, 0) == (OK, page_of(1), b"oob".ljust(64, b"\xff"))
    assert chip.read_spare_area(3, 0) == (OK, b"oob".ljust(64, b"\xff"))
    chip.erase_block(3)
    assert chip.read_page(3, 0) == (ERASED, b"\xff" * 512, b"\xff" * 64)


def test_a_page_without_data_reads_zeros(chip: Any) -> None:
    chip.program_page(3, 0, page_of(1), b"")
    chip.erase_block(3)
    chip.program_page(3, 0, None, b"oob")
    assert chip.read_page(3, 0)[:2] == (OK, bytes(512))


BREACHES: dict[str, tuple[Callable[[Any], object], str, int, int]] = {
    "order": (lambda c: c.program_page(2, 3, page_of(0), b""), "program", 2, 3),
    "order in a fresh block": (lambda c: c.program_page(3, 1, page_of(0), b""), "program", 3, 1),
    "not erased": (lambda c: c.program_page(2, 0, page_of(0), b""), "program", 2, 0),
    "not erased, the last": (lambda c: c.program_page(2, 1, page_of(0), b""), "program", 2, 1),
    "program outside": (lambda c: c.program_page(8, 0, page_of(0), b""), "program", 8, 0),
    "program past the block": (lambda c: c.program_page(3, 4, page_of(0), b""), "program", 3, 4),
    "read outside": (lambda c: c.read_page(8, 0), "read", 8, 0),
    "read past the block": (lambda c: c.read_page(0, 4), "read", 0, 4),
    "spare read outside": (lambda c: c.read_spare_area(9, 0), "spare read", 9, 0),
    "erase outside": (lambda c: c.erase_block(8), "erase", 8, 0),
    "program bad": (lambda c: c.program_page(5, 0, page_of(0), b""), "program", 5, 0),
    "erase bad": (lambda c: c.erase_block(5), "erase", 5, 0),
    "NVRAM": (lambda c: c.nvram(200, 100), "NVRAM access", 0, 0),
}


@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize("name", ["retire_block", "erase_count", "block_health", "synced_pages"])
def test_a_block_that_is_not_there_is_refused(chip: Any, name: str, faulty: bool) -> None:
    before = state(chip)
    with pytest.raises(ValueError, match="block 8: the chip has 8, from 0 on"):
        getattr(FaultyNand(chip) if faulty else chip, name)(8)
    assert state(chip) == before


def test_a_cause_that_is_not_counted_is_refused(chip: Any) -> None:
    calls: dict[str, tuple[Any, ...]] = {
        "read_page": (0, 0), "erase_block": (0,), "program_page": (0, 0, None, b""), "read_spare_area": (0, 0)
    }  # fmt: skip
    for name, arguments in calls.items():
        for cause in (-1, 16):
            with pytest.raises(ValueError, match=f"cause {cause}: use 0 to 15"):
                getattr(chip, name)(*arguments, cause)


def test_a_factory_bad_block_that_is_not_there_is_refused() -> None:
    with pytest.raises(nandimg.ImageError, match="block 8: the chip has 8"):
        memory_image(GEOMETRY, factory_bad=(1, 8))


@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_names_operation_address_and_rule_and_changes_nothing(chip: Any, breach: str, faulty: bool) -> None:
    chip.program_page(2, 0, page_of(1), b"one")
    chip.program_page(2, 1, page_of(2), b"two")
    chip.retire_block(5)
    before = state(chip)
    counted = chip.counters()
    action, operation, block, page = BREACHES[breach]
    with pytest.raises(NandError) as caught:
        action(FaultyNand(chip) if faulty else chip)
    error = caught.value
    assert (error.operation, error.block, error.page) == (operation, block, page)
    assert str(error) == f"{operation} of block {block} page {page}: {error.rule}"
    assert chip.counters() == counted
    assert state(chip) == before
    chip.program_page(2, 2, page_of(3), b"goes on")


def test_random_breaches_are_all_seen() -> None:
    """Against a model that knows only: next page of each block, and what is bad."""
    chip = memory_image(GEOMETRY).chip
    rnd = random.Random(1)
    following = [0] * 8
    bad: set[int] = set()
    for _ in range(4_000):
        block, page = rnd.randrange(8), rnd.randrange(4)
        if rnd.random() < 0.3:
            try:
                chip.erase_block(block)
                assert block not in bad
                following[block] = 0
            except NandError:
                assert block in bad
        elif rnd.random() < 0.001:
            chip.retire_block(block)
            bad.add(block)
        else:
            try:
                chip.program_page(block, page, page_of(1), b"")
                assert page == following[block]
                assert block not in bad
                following[block] += 1
            except NandError:
                assert page != following[block] or block in bad


def torn(shape: str, at: int = 2) -> tuple[Any, Any]:
    """(chip, faulty) after a cut at program ``at``, the third page of block 1."""
    chip = memory_image(GEOMETRY).chip
    faulty = FaultyNand(chip, [Cut(at + 1, shape)])
    for page in range(at):
        faulty.program_page(1, page, page_of(page + 1), b"old%d" % page)
    with pytest.raises(PowerCut) as caught:
        faulty.program_page(1, at, page_of(9), b"new" * 20)
    assert (caught.value.operation, caught.value.shape) == (at + 1, shape)
    for dead in (faulty.erase_block, faulty.retire_block, lambda b: faulty.read_page(b, 0)):
        with pytest.raises(PowerCut):
            dead(2)
    faulty.power_on()
    return chip, faulty


@pytest.mark.parametrize(
    ("shape", "status", "spare"),
    [
        ("before", ERASED, ERASED), ("after", OK, OK), ("prefix", TORN, TORN), ("oob-only", TORN, OK),
        ("data-only", TORN, ERASED),
    ],
)  # fmt: skip
def test_torn_programs(shape: str, status: int, spare: int) -> None:
    chip, faulty = torn(shape)
    found, data, _ = chip.read_page(1, 2)
    assert found == status
    assert chip.read_spare_area(1, 2)[0] == spare
    assert (data == page_of(9)) is (shape in ("after", "data-only"))
    assert [chip.read_page(1, page)[:2] for page in (0, 1)] == [(OK, page_of(1)), (OK, page_of(2))]
    if shape == "before":
        faulty.program_page(1, 2, page_of(9), b"")
    else:
        with pytest.raises(NandError, match="not erased"):
            faulty.program_page(1, 2, page_of(9), b"")
        faulty.erase_block(1)
        faulty.program_page(1, 0, page_of(9), b"")


@pytest.mark.parametrize("shape", SHAPES)
def test_torn_erases(shape: str) -> None:
    chip = memory_image(GEOMETRY).chip
    for page in range(4):
        chip.program_page(1, page, page_of(page), b"")
    faulty = FaultyNand(chip, [Cut(1, shape)])
    with pytest.raises(PowerCut):
        faulty.erase_block(1)
    faulty.power_on()
    found = [chip.read_page(1, page)[0] for page in range(4)]
    whole = {"before": [OK] * 4, "after": [ERASED] * 4, "data-only": [TORN] * 4, "unstable": [ERASED] * 4}
    if shape in whole:
        assert found == whole[shape]
    elif shape.startswith("prefix"):
        assert found[2:] == [OK, OK]
        assert OK not in found[:2]
    else:
        assert found[:2] == [OK, OK]
        assert OK not in found[2:]
    assert chip.erase_count(1) == (shape == "after")
    faulty.erase_block(1)
    assert [chip.read_page(1, page)[0] for page in range(4)] == [ERASED] * 4
    faulty.program_page(1, 0, page_of(5), b"")


def test_each_life_has_its_cut() -> None:
    faulty = FaultyNand(memory_image(GEOMETRY).chip, [Cut(2), Cut(1)])
    faulty.erase_block(0)
    for _ in range(2):
        with pytest.raises(PowerCut):
            faulty.erase_block(0)
        faulty.power_on()
    assert faulty.lives_left == 0
    for _ in range(5):
        faulty.erase_block(0)


def test_a_failed_program_and_a_failed_erase() -> None:
    chip = memory_image(GEOMETRY).chip
    faulty = FaultyNand(chip, (), (2, 3))
    assert faulty.program_page(0, 0, page_of(1), b"") is not None
    assert faulty.program_page(0, 1, page_of(2), b"") is None
    assert chip.read_page(0, 0)[0] == OK
    assert chip.read_page(0, 1)[0] == TORN
    assert faulty.erase_block(0) is None
    assert chip.read_page(0, 0)[0] == TORN


def test_a_shape_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="cut shape 'sideways'"):
        Cut(1, "sideways")


@pytest.mark.parametrize("backend", ["file", "meta"])
def test_wear_bad_blocks_and_pages_persist(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, GEOMETRY, backend)
    image = nandimg.open_image(path)
    for _ in range(3):
        image.chip.erase_block(2)
    image.chip.program_page(2, 0, page_of(7) if backend == "file" else None, b"seven")
    image.chip.retire_block(4)
    image.chip.mark_factory_bad(6)
    before = state(image.chip)
    image.close()
    assert image.chip.closed
    image = nandimg.open_image(path)
    assert state(image.chip) == before
    assert [image.chip.erase_count(b) for b in (1, 2)] == [0, 3]
    assert [image.chip.block_health(b) for b in (3, 4, 6)] == [0, 2, 1]
    with pytest.raises(NandError, match="not erased"):
        image.chip.program_page(2, 0, None, b"")
    image.chip.program_page(2, 1, None, b"")
    image.close()


def test_read_only(tmp_path: Path) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, GEOMETRY)
    before = path.read_bytes()
    image = nandimg.open_image(path, readonly=True)
    for change in (
        lambda c: c.program_page(0, 0, page_of(0), b""), lambda c: c.erase_block(0), lambda c: c.retire_block(0)
    ):  # fmt: skip
        with pytest.raises(NandError, match="read-only"):
            change(image.chip)
    image.chip.synchronise()
    assert image.chip.read_page(0, 0)[0] == ERASED
    image.close()
    assert path.read_bytes() == before


def test_counters_by_operation_and_cause(chip: Any) -> None:
    chip.program_page(0, 0, page_of(0), b"", cause=3)
    chip.program_page(0, 1, page_of(0), b"", cause=3)
    chip.read_page(0, 0, cause=15)
    chip.read_spare_area(0, 0, cause=0)
    chip.erase_block(1, cause=4)
    counted = {
        (operation, cause): n
        for operation, row in chip.counters().items()
        for cause, n in enumerate(row)
        if n
    }  # fmt: skip
    assert counted == {("program", 3): 2, ("read", 15): 1, ("spare_read", 0): 1, ("erase", 4): 1}
    chip.reset_counters()
    assert not any(n for row in chip.counters().values() for n in row)


# --- the clock: read 100, program 1000, erase 5000, transfer 10, spare 3

SMALL_FILE = Geometry(page_bytes=512, pages_per_block=8, blocks=8, oob_bytes=64, lpas=32)
TIMED = Geometry(
    page_bytes=512, pages_per_block=8, blocks=16, channels=2, dies=4, oob_bytes=64, lpas=64,
    read_ns=100, program_ns=1000, erase_ns=5000, transfer_ns=10, spare_ns=3,
)  # fmt: skip


@pytest.fixture
def timed() -> Any:
    return memory_image(TIMED).chip


def ends(timed: Any) -> dict[str, list[int]]:
    """From when on each die and each channel is free for good."""
    return {name: timed.clock()[name] for name in ("dies", "channels")}


def test_a_program_is_channel_then_die(timed: Any) -> None:
    assert timed.program_page(0, 0, None, b"", t_ns=50) == 50 + 10 + 1000
    assert ends(timed) == {"dies": [1060, 0, 0, 0], "channels": [60, 0]}


def test_pages_of_one_die_wait_for_each_other_and_transfers_hide(timed: Any) -> None:
    assert timed.program_page(0, 0, None, b"") == 1010
    assert timed.program_page(0, 1, None, b"") == 2010  # its transfer ended at 20
    assert timed.clock()["channels"] == [20, 0]


def test_dies_work_side_by_side_and_share_channels(timed: Any) -> None:
    assert timed.program_page(0, 0, None, b"") == 1010
    assert timed.program_page(1, 0, None, b"") == 1010  # another channel
    assert timed.program_page(2, 0, None, b"") == 1020  # die 2 is on channel 0, after die 0's transfer
    assert timed.program_page(3, 0, None, b"") == 1020
    assert timed.program_page(4, 0, None, b"") == 2010  # die 0 again


def test_an_erase_is_its_dies_business(timed: Any) -> None:
    assert timed.erase_block(5, t_ns=7) == 5007
    assert timed.erase_block(1) == 10007
    assert ends(timed) == {"dies": [0, 10007, 0, 0], "channels": [0, 0]}


def test_reads(timed: Any) -> None:
    timed.erase_block(0)
    timed.read_page(0, 0, t_ns=10)
    assert ends(timed) == {"dies": [5100, 0, 0, 0], "channels": [5110, 0]}
    timed.read_page(2, 0, t_ns=10)  # its die is idle, and so is its channel until the other page is there
    assert ends(timed) == {"dies": [5100, 0, 110, 0], "channels": [5110, 0]}
    timed.read_page(2, 0, t_ns=4990)  # this one would be in the way of the other page: it waits for it
    assert ends(timed) == {"dies": [5100, 0, 5090, 0], "channels": [5110, 0]}
    timed.read_page(2, 0, t_ns=4991)
    assert ends(timed) == {"dies": [5100, 0, 5190, 0], "channels": [5200, 0]}
    timed.read_spare_area(2, 1, t_ns=200)
    assert timed.clock()["dies"] == [5100, 0, 5190, 0]  # in a stretch in which the die had nothing to do
    assert timed.clock()["die_busy"] == [5100, 0, 303, 0] and timed.clock()["channel_busy"] == [40, 0]


def test_clocks_are_forgotten_without_power(timed: Any) -> None:
    timed.erase_block(0)
    timed.reset_volatile()
    assert ends(timed) == {"dies": [0] * 4, "channels": [0] * 2}
    assert timed.erase_count(0) == 1


def test_a_chip_in_memory_gives_back_what_nobody_asks_for_again() -> None:
    """Metadata has content even where user data have none; erased or let go of, it takes no memory any more, and reads
    as zeros."""
    geometry = replace(TIMED, page_bytes=4096, pages_per_block=256, blocks=64, lpas=8)
    chip = memory_image(geometry, "meta").chip
    size = geometry.blocks * 256 * 4096

    def held() -> int:
        """Bytes that the mapping of the chip's content has in memory."""
        found, inside = 0, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if (bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)) is not None:
                inside = int(bounds[2], 16) - int(bounds[1], 16) >= size
            elif inside and line.startswith("Rss:"):
                found += int(line.split()[1]) * 1024
        return found

    empty = held()
    for block in range(8):
        for page in range(256):
            chip.program_page(block, page, bytes([7]) * 4096, b"")
    full = held()
    assert full >= empty + 8 * 256 * 4096
    assert chip.read_page(0, 255)[:2] == (1, bytes([7]) * 4096)
    for block in range(4):
        chip.erase_block(block)
        chip.punch(block + 4)
    assert held() <= full - 6 * 256 * 4096  # the mapping may have neighbours, which come and go
    assert chip.read_page(5, 0)[:2] == (1, bytes(4096))  # its record is there; what it held is not asked for
    chip.program_page(0, 0, None, b"")
    assert chip.read_page(0, 0)[:2] == (1, bytes(4096))


def test_what_is_known_to_be_erased(tmp_path: Path) -> None:
    """Blocks in holes of the file, unless pages of them should be there: those are lost ones, and torn."""
    geometry = Geometry(page_bytes=4096, pages_per_block=64, blocks=200, oob_bytes=64, lpas=6400)
    create(tmp_path / "chip", geometry)
    rnd, touched = random.Random(2), set()
    with closing(open_image(tmp_path / "chip")) as image:
        chip = image.chip
        for block in rnd.sample(range(200), 9):
            touched.add(block)
            for page in range(rnd.choice([1, 3, 64])):
                chip.program_page(block, page, b"d" * 4096, b"oob")
        gone = max(block for block in range(3, 197) if not touched & {*range(block - 3, block + 4)})
        chip.program_page(gone, 0, b"d" * 4096, b"oob")
        chip.synchronise()
        layout = image.header.layout
    block_bytes = 64 * layout.stride
    first = (layout.spare_at + gone * block_bytes) // 4096 * 4096
    end = -(-(layout.spare_at + (gone + 1) * block_bytes) // 4096) * 4096  # their neighbours are not written
    subprocess.run(["fallocate", "-p", "-o", str(first), "-l", str(end - first), str(tmp_path / "chip")], check=True,
                   capture_output=True)  # fmt: skip
    with closing(open_image(tmp_path / "chip", readonly=True)) as image:
        known = image.chip.maybe_written()
        assert known[gone]
        for block in range(200):
            some = any(image.chip.read_spare_area(block, page)[0] for page in range(64))
            assert known[block] or not some
        assert sum(known) < 100
    with closing(memory_image(geometry)) as image:
        assert image.chip.maybe_written() == b"\1" * 200


def test_the_first_erase_passes_records_of_an_erase_that_was_lost(tmp_path: Path) -> None:
    """The host's death lost two erases and kept what was programmed after them: none of that comes back."""
    path = tmp_path / "chip"
    create(path, SMALL_FILE)
    with closing(open_image(path)) as image:
        layout = image.header.layout
        image.chip.program_page(3, 0, bytes(SMALL_FILE.page_bytes), b"old")
        image.chip.synchronise()
        tables = path.read_bytes()[layout.table_at : layout.nvram_at]
        for turn in range(2):
            image.chip.erase_block(3)
            for page in range(4):
                image.chip.program_page(3, page, bytes([turn + 1]) * SMALL_FILE.page_bytes, b"new")
    with path.open("r+b") as file:
        file.seek(layout.table_at)
        file.write(tables)
    with closing(open_image(path)) as image:
        assert image.chip.erase_count(3) == 0
        for _ in range(3):
            image.chip.erase_block(3)
            assert [image.chip.read_spare_area(3, page)[0] for page in range(4)] == [0] * 4


@pytest.mark.parametrize("shape", ["prefix", "data-only", "oob-only", "unstable"])
def test_an_erase_that_was_cut_shows_in_its_pages_where_the_host_lost_the_table(tmp_path: Path, shape: str) -> None:
    """Nothing that was synced is missing then: the block was dead when its erase began."""
    path = tmp_path / "chip"
    create(path, SMALL_FILE)
    with closing(open_image(path)) as image:
        layout, chip = image.header.layout, image.chip
        for page in range(4):
            chip.program_page(3, page, bytes(SMALL_FILE.page_bytes), b"old")
        chip.synchronise()
        assert chip.synced_pages(3) == 4
        tables = path.read_bytes()[layout.table_at : layout.nvram_at]
        with pytest.raises(PowerCut):
            FaultyNand(chip, [Cut(1, shape)]).erase_block(3)
    with path.open("r+b") as file:
        file.seek(layout.table_at)
        file.write(tables)
    with closing(open_image(path)) as image:
        assert image.chip.synced_pages(3) == 0
