"""What the chip knows of a block that was never written it knows without its records: by the holes of the file."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flashfs.device import Device
from nandimg import Cut, FaultyNand, Geometry, NandError, PowerCut, create, memory_image, open_image
from nandimg._faults import SHAPES

GEOMETRY = Geometry(page_bytes=4096, pages_per_block=64, blocks=48, oob_bytes=64, lpas=1024)
MIB = 1 << 20


def written_out(path: Path) -> None:
    """The file gets zeros where it has holes: then nothing is known of any block before it is looked at."""
    with path.open("r+b") as file:
        size = path.stat().st_size
        at = 0
        while at < size:
            try:
                data = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                data = size
            file.seek(at)
            file.write(bytes(data - at))
            at = os.lseek(file.fileno(), data, os.SEEK_HOLE) if data < size else size


def resident(path: Path) -> int:
    """Bytes of the file that this process has mapped and in memory."""
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.endswith(str(path)):
            ours = True
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
            ours = False
    return found


def answers(path: Path, seed: int) -> list[Any]:
    """What a chip says to some hundred operations, over several lives of its power."""
    rnd = random.Random(seed)
    out: list[Any] = []
    for life in range(4):
        with closing(open_image(path)) as image:
            nand = FaultyNand(image.chip, (Cut(rnd.randrange(20, 60), rnd.choice(SHAPES)),))
            try:
                for _ in range(80):
                    block, page = rnd.randrange(GEOMETRY.blocks), rnd.randrange(4)
                    what = rnd.choice(["program", "program", "spare", "read", "erase", "sync", "retire"])
                    if what == "retire" and rnd.random() < 0.9:
                        continue
                    out.append((what, block, page, told(nand, what, block, page, rnd)))
            except PowerCut:
                out.append(f"cut in life {life}")
            out += [(image.chip.erase_count(b), image.chip.block_health(b), image.chip.synced_pages(b),
                     image.chip.read_spare_area(b, 0)) for b in range(GEOMETRY.blocks)]  # fmt: skip
    return out


def told(nand: Any, what: str, block: int, page: int, rnd: random.Random) -> Any:
    try:
        if what == "program":
            return nand.program_page(block, page, rnd.randbytes(4096), rnd.randbytes(64))
        if what == "spare":
            return nand.read_spare_area(block, page)
        if what == "read":
            return nand.read_page(block, page)
        if what == "erase":
            return nand.erase_block(block)
        return nand.retire_block(block) if what == "retire" else nand.synchronise()
    except NandError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(6))
def test_it_answers_as_it_would_if_it_looked(tmp_path: Path, seed: int) -> None:
    paths = tmp_path / "holes", tmp_path / "zeros"
    for path in paths:
        create(path, GEOMETRY)
    written_out(paths[1])
    with closing(open_image(paths[0])) as sparse, closing(open_image(paths[1])) as full:
        assert not any(sparse.chip.maybe_written())
        assert all(full.chip.maybe_written())
    assert answers(paths[0], seed) == answers(paths[1], seed)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_erase_of_a_blank_block_that_is_cut_is_looked_at(tmp_path: Path, shape: str) -> None:
    """In the same life: what it left is there, though the block was never written."""
    found = []
    for name in ("holes", "zeros"):
        create(tmp_path / name, GEOMETRY)
        if name == "zeros":
            written_out(tmp_path / name)
        with closing(open_image(tmp_path / name)) as image:
            with pytest.raises(PowerCut):
                FaultyNand(image.chip, (Cut(1, shape),)).erase_block(3)
            pages = [image.chip.read_spare_area(3, page) for page in range(GEOMETRY.pages_per_block)]
            found.append((pages, told(image.chip, "program", 3, 0, random.Random(1))))
    assert found[0] == found[1]


def test_a_recovery_looks_at_no_record_of_a_blank_block(tmp_path: Path) -> None:
    """64 GiB, of which next to nothing is used: each block's header is read and charged, and takes no memory."""
    path = tmp_path / "chip"
    header = create(path, Geometry.sized(64 << 30, op=0.1))
    records = header.layout.data_at - header.layout.spare_at
    device = Device.open(path, ftl="leaftl")
    for at in range(0, 16 << 30, 1 << 30):
        device.write(at, b"x" * 4096)
    device.flush()
    device.close(clean=False)
    with Device.open(path, readonly=True) as device:
        assert not device.recovery.clean
        assert resident(path) < 32 * MIB < records
        assert sum(device.nand.counters()["spare_read"]) >= header.geometry.blocks


def test_the_runs_of_nvram_that_may_hold_something(tmp_path: Path) -> None:
    """In a file those that are no holes, and those that the host's kernel read ahead; in memory all."""
    geometry = Geometry(blocks=16, lpas=1024, nvram_bytes=256 * MIB)
    create(tmp_path / "chip", geometry)
    stored = 100 * MIB, 200 * MIB + 8
    with closing(open_image(tmp_path / "chip")) as image:
        for offset in stored:
            image.chip.store_nvram(offset, b"8 bytes!")
        runs = image.chip.nvram_runs(0, 256 * MIB)
        assert sum(n for _, n in runs) < 64 * MIB
        for offset in stored:
            assert any(at <= offset < offset + 8 <= at + n for at, n in runs)
            assert image.chip.nvram_runs(offset, 8) == [(offset, 8)]
    with closing(memory_image(geometry, "file")) as image:
        assert image.chip.nvram_runs(8, 800) == [(8, 800)]
