"""What the battery keeps proves itself.

Guaranteed, and tested here: (1) after a power cut following any 8-byte store, and after the death of the process, the
words are proved, and are those of the last completed put, or of the one before it; (2) after the death
of the host, which leaves each 4 KiB page as it was at some moment since the last durable sync, words that are proved
are those of one moment since that sync, the sync's own included; what never was so at one moment is not proved.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nandimg
from flashfs.errors import CorruptError
from flashfs.parts.battery.battery import Battery, nvram_bytes
from nandimg import PRESETS, Cut, FaultyNand, Nand, PowerCut, memory_image
from nandimg._fault_filters import NvramLoss

WORDS = 1700  # four pages of 4 KiB, with the head
NAME = "cache"
STAMP = 77
GEOMETRY = PRESETS["tiny-8"].geometry
BACKENDS = ("file", "meta")


def chip_of(backend: str = "file") -> nandimg.Chip:
    image = memory_image(GEOMETRY, backend)
    image.bind("some", {}, 24, nvram={NAME: nvram_bytes(WORDS)})
    return image.chip


def begun(nand: Nand) -> Battery:
    battery = Battery(nand, NAME, WORDS)
    battery.begin(STAMP)
    return battery


def proved(nand: Nand, stamp: int = STAMP) -> bytes | None:
    """The words, if they are proved."""
    battery = Battery(nand, NAME, WORDS)
    yes, _ = battery.proves(stamp)
    return battery.content() if yes else None


#: ("put", word, value), ("range", first, values), ("bits", first, n, on)
PUT = st.tuples(st.just("put"), st.integers(0, WORDS - 1), st.integers(0, 3) | st.integers(0, 2**64 - 1))
RANGE = st.tuples(
    st.just("range"), st.integers(0, WORDS - 9), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9)
)
BITS = st.tuples(st.just("bits"), st.integers(0, 64 * WORDS - 200), st.integers(0, 200), st.booleans())
ACTIONS = st.lists(PUT | RANGE | BITS, min_size=1, max_size=12)


def perform(battery: Battery, words: list[int], action: Any) -> list[bytes]:
    """Do it, and to ``words`` the same; the states that it goes through, one a word that is put."""
    wanted: dict[int, int] = {}
    if action[0] == "put":
        battery.put_word(*action[1:])
        words[action[1]] = action[2]
        return [packed(words)]
    if action[0] == "range":
        battery.put_words(action[1], array("Q", action[2]))
        wanted = dict(enumerate(action[2], action[1]))
    else:
        _, first, n, on = action
        battery.put_bit_run(first, n, on)
        for bit in range(first, first + n):
            old = wanted.get(bit // 64, words[bit // 64])
            wanted[bit // 64] = old | 1 << bit % 64 if on else old & ~(1 << bit % 64)
    states = []
    for index, value in wanted.items():
        if words[index] != value:
            words[index] = value
            states.append(packed(words))
    return states


def packed(words: list[int]) -> bytes:
    return struct.pack(f"<{WORDS}Q", *words)


@settings(max_examples=60, deadline=None)
@given(actions=ACTIONS, backend=st.sampled_from(BACKENDS))
def test_what_was_put_is_there_and_proves_itself(actions: list[Any], backend: str) -> None:
    chip = chip_of(backend)
    battery, words = begun(chip), [0] * WORDS
    for action in actions:
        perform(battery, words, action)
        assert battery.content() == packed(words)
        assert proved(chip) == packed(words)
    assert proved(chip, STAMP + 1) is None
    again = Battery(chip, NAME, WORDS)
    assert again.proves(STAMP)[0]
    perform(again, words, ("put", 3, 2**64 - 1))  # it goes on from there
    assert proved(chip) == packed(words)


@settings(max_examples=150, deadline=None)
@given(actions=ACTIONS, share=st.floats(0, 1))
def test_a_power_cut_behind_any_store(actions: list[Any], share: float) -> None:
    chip = chip_of()
    begun(chip)
    states, words = [packed([0] * WORDS)], [0] * WORDS
    model = begun(chip_of())
    for action in actions:
        states += perform(model, words, action)
    kept = round(2 * (len(states) - 1) * share)  # two stores a put
    nand = FaultyNand(chip, [Cut(1, "before", kept)])
    battery = Battery(nand, NAME, WORDS)
    assert battery.proves(STAMP)[0]
    for action in actions:
        perform(battery, [0] * WORDS, action) if action[0] == "put" else again(battery, action)
    with pytest.raises(PowerCut):
        nand.program_page(0, 0, bytes(512), b"oob")
    assert proved(chip) == states[kept // 2]


def again(battery: Battery, action: Any) -> None:
    """A range or a run of bits, without a model."""
    if action[0] == "range":
        battery.put_words(action[1], array("Q", action[2]))
    else:
        battery.put_bit_run(*action[1:])


def test_a_power_cut_while_it_begins() -> None:
    """Nothing is believed but the words of before, before anything was changed, and zeros at the end."""
    chip = chip_of()
    nand = FaultyNand(chip)
    battery = begun(nand)
    operations = nand.operations
    for index in range(WORDS):
        battery.put_word(index, index + 1)
    old, raw = battery.content(), chip.nvram(*chip.region(NAME) or (0, 0))
    stores = WORDS + 4
    at = (chip.region(NAME) or (0, 0))[0]
    for kept in (*range(3), 100, WORDS, *range(WORDS + 1, stores + 1)):
        chip.store_nvram(at, raw)
        cut = FaultyNand(chip, [Cut(operations + 1, "before", kept)])
        Battery(cut, NAME, WORDS).begin(STAMP + 1)
        with pytest.raises(PowerCut):
            cut.program_page(0, 0, bytes(512), b"oob")
        assert proved(chip) == (old if kept == 0 else None), kept
        assert proved(chip, STAMP + 1) == (bytes(8 * WORDS) if kept == stores else None), kept


@settings(max_examples=150, deadline=None)
@given(before=ACTIONS, after=ACTIONS, lost=st.sets(st.integers(0, 20)), backend=st.sampled_from(BACKENDS))
def test_a_host_that_loses_any_of_its_pages(before: list[Any], after: list[Any], lost: set[int], backend: str) -> None:
    chip = chip_of(backend)
    nand = NvramLoss(chip)
    battery, words = begun(nand), [0] * WORDS
    for action in before:
        perform(battery, words, action)
    nand.synchronise()
    since = [packed(words)]
    for action in after:
        since += perform(battery, words, action)
    at_risk = nand.at_risk()
    nand.lose(page for page in at_risk if page in lost)
    at, _ = chip.region(NAME) or (0, 0)
    there, found = chip.nvram(at + 64, 8 * WORDS), proved(chip)
    assert found in (None, there)
    if found is not None:
        assert found in since
    if not set(at_risk) & lost:
        assert found == since[-1]
    if set(at_risk) <= lost:
        assert found == since[0]


@settings(max_examples=150, deadline=None)
@given(actions=ACTIONS, seed=st.integers(0, 2**32), moments=st.integers(1, 3))
def test_a_host_whose_disk_has_each_page_of_another_moment(actions: list[Any], seed: int, moments: int) -> None:
    chip, rnd = chip_of(), random.Random(seed)
    battery, words = begun(chip), [0] * WORDS
    at, n = chip.region(NAME) or (0, 0)
    states, pictures = [packed(words)], [chip.nvram(at, n)]
    for action in actions:
        states += perform(battery, words, action)
        pictures.append(chip.nvram(at, n))
    some = [rnd.choice(pictures) for _ in range(moments)]
    for page in range(0, n, 4096):
        chip.store_nvram(at + page, rnd.choice(some)[page : page + 4096])
    found = proved(chip)
    assert found is None or found in states
    if moments == 1:
        assert found is not None


def test_any_damaged_bit_shows() -> None:
    chip, rnd = chip_of(), random.Random(1)
    battery = begun(chip)
    for index in range(WORDS):
        battery.put_word(index, rnd.choice((0, 1, 2**64 - 1, rnd.getrandbits(64))))
    at, _ = chip.region(NAME) or (0, 0)
    for _ in range(300):
        offset, bit = at + 64 + 8 * rnd.randrange(WORDS), rnd.randrange(64)
        old = int.from_bytes(chip.nvram(offset, 8), "little")
        chip.store_nvram(offset, (old ^ 1 << bit).to_bytes(8, "little"))
        assert proved(chip) is None
        chip.store_nvram(offset, old.to_bytes(8, "little"))
    for _ in range(300):  # two words that were exchanged
        a_b = rnd.sample(range(WORDS), 2)
        first, second = battery.word(a_b[0]), battery.word(a_b[1])
        for index, value in zip(a_b, (second, first), strict=True):
            chip.store_nvram(at + 64 + 8 * index, value.to_bytes(8, "little"))
        assert (proved(chip) is None) == (first != second)
        for index, value in zip(a_b, (first, second), strict=True):
            chip.store_nvram(at + 64 + 8 * index, value.to_bytes(8, "little"))
    assert proved(chip) is not None


def test_a_mount_takes_it_over_with_one_store() -> None:
    chip = chip_of()
    battery = begun(chip)
    battery.put_word(5, 6)
    assert battery.stamp == STAMP
    battery.restamp(STAMP + 1)
    assert proved(chip) is None
    assert proved(chip, STAMP + 1) == packed([0] * 5 + [6] + [0] * (WORDS - 6))


def test_what_is_refused() -> None:
    chip = chip_of()
    with pytest.raises(CorruptError, match="no such region"):
        Battery(chip, "other", 8)
    with pytest.raises(CorruptError, match=f"{WORDS + 1} words need {nvram_bytes(WORDS + 1)} bytes: the image has"):
        Battery(chip, NAME, WORDS + 1)
    battery = Battery(chip, NAME, WORDS)
    assert battery.proves(0) == (False, 0)  # an image of zeros
    for use in (lambda: battery.word(0), lambda: battery.put_word(0, 1), battery.content,
                lambda: battery.put_bit_run(0, 1, True), lambda: battery.put_words(0, array("Q", [1]))):  # fmt: skip
        with pytest.raises(ValueError, match="neither begun nor proved"):
            use()
    with pytest.raises(ValueError, match="stamp is 0"):
        battery.begin(0)
    with pytest.raises(ValueError, match="begun or proved"):
        battery.restamp(1)
    battery.begin(1)
    for use in (lambda: battery.word(WORDS), lambda: battery.put_word(WORDS, 1),
                lambda: battery.put_bit_run(64 * WORDS - 1, 2, True),
                lambda: battery.put_words(WORDS - 1, array("Q", [1, 2]))):  # fmt: skip
        with pytest.raises(IndexError, match=f"it has {WORDS}"):
            use()


def test_its_clock_and_its_causes() -> None:
    image = memory_image(nandimg.Geometry(**GEOMETRY.as_dict() | {"nvram_read_ns": 50, "nvram_write_ns": 500}))
    image.bind("some", {}, 24, nvram={NAME: nvram_bytes(WORDS)})
    battery = begun(image.chip)
    image.chip.reset_counters()
    start = 10**9
    assert battery.put_word(3, 4, cause=3, t_ns=start) == start + 1000  # a line of the head, a line of the words
    assert battery.put_words(0, array("Q", [0, 0, 0, 4]), cause=3, t_ns=start) == start  # nothing changes
    assert image.chip.counters()["nvram_write"][3] == 2
    assert battery.proves(STAMP, cause=6, t_ns=start)[1] > start + 1000
    assert image.chip.counters()["nvram_read"][6] == 1 + -(-8 * WORDS // 64)


PUT_FOR_EVER = """
import sys, nandimg
from flashfs.parts.battery.battery import Battery
image = nandimg.open_image(sys.argv[1])
battery = Battery(image.chip, "cache", 1700)
battery.begin(77)
for turn in range(1, 1 << 40):
    battery.put_word(turn * 7919 % 1700, turn)
    if turn == 1:
        print("ready", flush=True)
"""


def test_a_killed_process(tmp_path: Path) -> None:
    nandimg.create(tmp_path / "chip", GEOMETRY)
    image = nandimg.open_image(tmp_path / "chip")
    image.bind("some", {}, 24, nvram={NAME: nvram_bytes(WORDS)})
    image.close()
    for n in range(4):
        process = subprocess.Popen([sys.executable, "-c", PUT_FOR_EVER, str(tmp_path / "chip")], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(0.02 + 0.017 * n)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        image = nandimg.open_image(tmp_path / "chip", readonly=True)
        found = proved(image.chip)
        image.close()
        assert found is not None
        words = struct.unpack(f"<{WORDS}Q", found)
        last = max(words)
        assert last > 0
        assert sorted(words) == [0] * max(0, WORDS - last) + list(range(max(1, last - WORDS + 1), last + 1))
