"""The NVRAM: regions by name, stores in words, their clock and causes; what a power cut and a host's death keep."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nandimg
from nandimg import (
    PRESETS,
    Cut,
    FaultyNand,
    Geometry,
    ImageError,
    NandError,
    PowerCut,
    Region,
    memory_image,
    open_image,
)
from nandimg._fault_filters import NvramLoss

GEOMETRY = replace(PRESETS["tiny-8"].geometry, nvram_bytes=1000)
BACKENDS = ("file", "meta")
ASKED = {"cache": 5000, "segments": 8192, "small": 8}


def bound(image: nandimg.Image) -> nandimg.Chip:
    image.bind("some", {}, 24, nvram=ASKED)
    return image.chip


def memory(backend: str = "file", geometry: Geometry = GEOMETRY) -> nandimg.Chip:
    return bound(memory_image(geometry, backend))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("on_disk", [False, True])
def test_regions_lie_one_after_another_each_on_a_page(tmp_path: Path, backend: str, on_disk: bool) -> None:
    if on_disk:
        nandimg.create(tmp_path / "chip", GEOMETRY, backend)
        image = open_image(tmp_path / "chip")
        assert image.chip.region("write-buffer") == (0, 1000)
        bound(image).store_nvram(4096, b"8 bytes.")
        image.close()
        image = open_image(tmp_path / "chip")
    else:
        image = memory_image(GEOMETRY, backend)
        bound(image).store_nvram(4096, b"8 bytes.")
    chip = image.chip
    assert [chip.region(name) for name in ("write-buffer", "cache", "segments", "small", "other")] == [
        (0, 1000), (4096, 5000), (12288, 8192), (20480, 8), None,
    ]  # fmt: skip
    assert chip.geometry.nvram_bytes == 20488
    assert chip.nvram(4096, 9) == b"8 bytes.\0"
    chip.program_page(0, 0, bytes(512), b"x" * 24)
    chip.store_nvram(20480, b"the end.")
    assert chip.read_page(0, 0)[0] == 1  # they do not lie over the page records
    image.close()


def test_a_scheme_may_say_how_large_the_write_buffer_is() -> None:
    image = memory_image(GEOMETRY)
    image.bind("some", {}, 24, nvram={"write-buffer": 0, "segments": 700})
    assert (image.chip.region("write-buffer"), image.chip.region("segments")) == (None, (0, 700))
    assert image.chip.geometry.nvram_bytes == 700


def test_what_is_no_region() -> None:
    for asked, said in (
        ({"Cache": 8}, "NVRAM region 'Cache'"),
        ({"n" * 17: 8}, "up to 16 of"),
        ({"cache": -1}, "NVRAM region cache: -1 bytes"),
        ({"cache": 2**32}, "at most"),
        ({f"r{n}": 8 for n in range(16)}, "17 NVRAM regions: 16 fit"),
    ):
        image = memory_image(GEOMETRY)
        with pytest.raises(ImageError, match=said):
            image.bind("some", {}, 24, nvram=asked)
    assert Region("a.b-c_9", 1).bytes == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_stores_are_words(backend: str) -> None:
    chip = memory(backend)
    data = bytes(range(256)) * 20
    for offset, n in ((4096, 8), (4104, 16), (4096, 5000), (0, 1000 // 8 * 8), (20480, 8)):
        chip.store_nvram(offset, data[:n])
        assert chip.nvram(offset, n) == data[:n]
    assert chip.load_nvram(4097, 3)[0] == data[1:4]  # reads may begin and end anywhere
    for offset, n, said in ((4, 8, "words of 8"), (8, 12, "words of 8"), (20488, 8, "outside"), (20480, 16, "outside"),
                            (2**63, 8, "outside")):  # fmt: skip
        before = chip.nvram(0, 20488)
        with pytest.raises(NandError, match=said):
            chip.store_nvram(offset, data[:n])
        assert chip.nvram(0, 20488) == before
    with pytest.raises(NandError, match="outside"):
        chip.load_nvram(20480, 9)


def test_a_read_only_image_takes_none(tmp_path: Path) -> None:
    nandimg.create(tmp_path / "chip", GEOMETRY)
    image = open_image(tmp_path / "chip", readonly=True)
    with pytest.raises(NandError, match="read-only"):
        image.chip.store_nvram(0, bytes(8))
    image.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_clock_and_the_causes(backend: str) -> None:
    chip = memory(backend, replace(GEOMETRY, nvram_read_ns=50, nvram_write_ns=500))
    assert chip.store_nvram(4096, bytes(8), cause=3, t_ns=1000) == 1500
    assert chip.store_nvram(4096 + 56, bytes(16), cause=3, t_ns=1000) == 2500  # two lines, after the first
    assert chip.store_nvram(4096, bytes(4992), cause=5, t_ns=10_000) == 10_000 + 78 * 500
    assert chip.load_nvram(4096 + 63, 2, cause=3, t_ns=100_000)[1] == 100_100
    assert chip.load_nvram(4096, 64, cause=9, t_ns=0)[1] == 50  # it was idle then
    counted = chip.counters()
    assert (counted["nvram_write"][3], counted["nvram_write"][5]) == (3, 78)
    assert (counted["nvram_read"][3], counted["nvram_read"][9]) == (2, 1)
    assert sum(counted["nvram_write"]) + sum(counted["nvram_read"]) == 84
    chip.reset_counters()
    assert sum(map(sum, chip.counters().values())) == 0
    free = memory(backend)
    assert free.store_nvram(0, bytes(800), t_ns=77) == 77
    assert chip.geometry.as_dict()["nvram_write_ns"] == 500


def test_remapssd_has_its_papers_times() -> None:
    geometry = PRESETS["remapssd-32g"].geometry
    assert (geometry.nvram_read_ns, geometry.nvram_write_ns) == (50, 500)
    assert all(not p.geometry.nvram_write_ns for p in PRESETS.values() if not p.name.startswith("remapssd"))


# --- what is kept

STORES = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 12)), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(STORES, STORES, st.booleans(), st.floats(0, 1), st.sampled_from(("before", "prefix")))
def test_a_power_cut_keeps_any_prefix_of_the_words_since_the_last_flash_operation(
    before: list[tuple[int, int]], after: list[tuple[int, int]], program: bool, share: float, shape: str
) -> None:
    """Then the power goes in a program: if that has not begun, it may have gone earlier."""
    image = memory_image(replace(GEOMETRY, nvram_bytes=800))
    words, undone = [0] * 100, [0] * 100
    total = sum(n for _, n in (after if program else before + after))
    kept = round(total * share)
    operations = sum(n > 1 for _, n in before + after) + program
    nand = FaultyNand(image.chip, [Cut(operations + 1, shape, kept)])
    stamp, left = 0, kept

    def store(at: int, n: int, counts: bool) -> None:
        nonlocal stamp, left
        for k in range(n):
            words[at + k] = stamp = stamp + 1
            if not counts or left > 0 or shape != "before":
                undone[at + k] = stamp
            left -= counts
        nand.store_nvram(8 * at, b"".join(word.to_bytes(8, "little") for word in words[at : at + n]))

    for at, n in before:
        store(at, n, not program)
    if program:
        nand.program_page(0, 0, bytes(512), b"oob")
    for at, n in after:
        store(at, n, True)
    with pytest.raises(PowerCut):
        nand.program_page(1, 0, bytes(512), b"oob")
    raw = image.chip.nvram(0, 800)
    assert [int.from_bytes(raw[k : k + 8], "little") for k in range(0, 800, 8)] == undone


@pytest.mark.parametrize("kept", range(9))
def test_a_store_itself_is_cut_behind_any_word(kept: int) -> None:
    image = memory_image(GEOMETRY)
    nand = FaultyNand(image.chip, [Cut(1, "before", kept)])
    nand.store_nvram(64, b"one word")  # is whole or not done: no operation
    with pytest.raises(PowerCut):
        nand.store_nvram(0, b"\xff" * 56)
    raw = image.chip.nvram(0, 72)
    assert raw == (b"\xff" * 8 * max(0, kept - 1)).ljust(64, b"\0") + (b"one word" if kept else bytes(8))
    with pytest.raises(PowerCut):
        nand.load_nvram(0, 8)


@pytest.mark.parametrize(("shape", "words"), [("before", 0), ("after", 7), ("prefix", 3), ("oob-only", 3)])
def test_a_cut_that_says_nothing_of_words(shape: str, words: int) -> None:
    image = memory_image(GEOMETRY)
    nand = FaultyNand(image.chip, [Cut(1, shape)])
    nand.store_nvram(64, b"one word")
    with pytest.raises(PowerCut):
        nand.store_nvram(0, b"\xff" * 56)
    assert image.chip.nvram(0, 72) == (b"\xff" * 8 * words).ljust(64, b"\0") + b"one word"


def test_a_cut_with_too_few_words() -> None:
    with pytest.raises(ValueError, match="words -1"):
        Cut(1, "before", -1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hosts_death_keeps_any_of_its_pages(backend: str) -> None:
    chip = memory(backend)
    nand = NvramLoss(chip)
    nand.store_nvram(4096, b"durable." * 400)
    assert nand.at_risk() == [1]
    nand.synchronise()
    assert nand.at_risk() == []
    nand.store_nvram(4096, b"volatile" * 600)
    nand.store_nvram(0, b"volatile")
    nand.store_nvram(20480, b"volatile")
    nand.synchronise(durable=False)
    assert nand.at_risk() == [0, 1, 2, 5]
    nand.lose([1, 5])
    assert nand.at_risk() == [0, 2]
    assert chip.nvram(0, 8) == chip.nvram(8192, 8) == b"volatile"
    assert (chip.nvram(4096, 8), chip.nvram(20480, 8)) == (b"durable.", bytes(8))


STORE_FOR_EVER = """
import sys, nandimg
image = nandimg.open_image(sys.argv[1])
offset, n = image.chip.region("cache")
for turn in range(1, 1 << 40):
    image.chip.store_nvram(offset, turn.to_bytes(8, "little") * (n // 8))
    if turn == 1:
        print("ready", flush=True)
"""


def test_a_killed_process_leaves_a_prefix_of_its_words(tmp_path: Path) -> None:
    nandimg.create(tmp_path / "chip", GEOMETRY)
    image = open_image(tmp_path / "chip")
    image.bind("some", {}, 24, nvram={"cache": 1 << 22})
    image.close()
    for n in range(5):
        command = [sys.executable, "-c", STORE_FOR_EVER, str(tmp_path / "chip")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(0.02 + 0.013 * n)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        image = open_image(tmp_path / "chip", readonly=True)
        raw = image.chip.nvram(*image.chip.region("cache") or (0, 0))
        image.close()
        words = [int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw), 8)]
        runs = [(word, sum(1 for _ in run)) for word, run in itertools.groupby(words)]
        assert words[0] > 0
        assert runs == [(words[0], runs[0][1]), (words[0] - 1, len(words) - runs[0][1])][: len(runs)]
