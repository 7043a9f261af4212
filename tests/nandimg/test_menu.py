"""The fault menu: each fault strikes at its operation, once, and leaves the chip as documented."""

from __future__ import annotations

import errno
import re
from typing import Any

import pytest

from nandimg import PRESETS, Cut, Fault, FaultyNand, Geometry, GeometryError, NandError, PowerCut, dress, memory_image
from nandimg._fault_filters import BitErrors, Failures, HostErrors, Misdirection, Silence, WearOut

GEOMETRY = Geometry(page_bytes=512, pages_per_block=8, blocks=8, oob_bytes=64, lpas=16, nvram_bytes=256)
PAIRED = Geometry(page_bytes=512, pages_per_block=8, blocks=8, oob_bytes=64, lpas=16, paired_pages=2)
ERASED, OK, TORN = 0, 1, 2


def page_of(n: int) -> bytes:
    return bytes([n]) * 512


@pytest.fixture
def chip() -> Any:
    return memory_image(GEOMETRY).chip


def statuses(nand: Any, block: int, pages: int) -> list[int]:
    return [nand.read_page(block, page)[0] for page in range(pages)]


def test_a_failure_comes_once(chip: Any) -> None:
    nand = Failures(chip, (2, 4))
    assert nand.program_page(0, 0, page_of(0), b"") is not None
    assert nand.program_page(0, 1, page_of(1), b"") is None
    assert statuses(nand, 0, 3) == [OK, TORN, ERASED]
    assert nand.erase_block(0) is not None
    assert nand.erase_block(0) is None
    assert nand.erase_block(0) is not None
    assert nand.struck == [(2, 0, 1), (4, 0, -1)]


def test_a_sticky_failure_stays_with_its_block(chip: Any) -> None:
    nand = Failures(chip, (1,), sticky=True)
    assert nand.program_page(3, 0, page_of(0), b"") is None
    assert nand.erase_block(3) is None
    assert nand.program_page(4, 0, page_of(0), b"") is not None
    nand.power_on()
    assert nand.erase_block(3) is None


def test_a_silent_program_is_claimed_and_not_done(chip: Any) -> None:
    nand = Silence(chip, (2, 4))
    for page in range(3):
        assert nand.program_page(0, page, page_of(page), b"") is not None
    assert statuses(nand, 0, 4) == [OK, TORN, OK, ERASED]  # a hole with a page after it
    assert nand.erase_block(0) is not None
    assert statuses(nand, 0, 1) == [OK]  # the block is as it was
    with pytest.raises(NandError):  # and the rules hold
        nand.program_page(0, 0, page_of(0), b"")


def test_a_silent_last_program_leaves_a_hole_below_the_synced_mark(chip: Any) -> None:
    nand = Silence(chip, (2,))
    for page in range(2):
        nand.program_page(0, page, page_of(page), b"")
    nand.synchronise()
    nand.power_on()
    assert statuses(nand, 0, 3) == [OK, TORN, ERASED]
    assert nand.synced_pages(0) == 2


def test_a_reported_failure_is_not_below_the_synced_mark(chip: Any) -> None:
    nand = Failures(chip, (2,))
    for page in range(2):
        nand.program_page(0, page, page_of(page), b"")
    nand.synchronise()
    assert nand.synced_pages(0) == 1


def test_a_misdirected_program_reads_as_whole_elsewhere(chip: Any) -> None:
    nand = Misdirection(chip, (3,), seed=1)
    nand.program_page(0, 0, page_of(1), b"one")
    nand.program_page(1, 0, page_of(2), b"two")
    nand.program_page(1, 1, page_of(3), b"three")
    ((_, _, _, block, page),) = nand.struck
    assert (block, page) in ((0, 0), (1, 0))
    assert nand.read_page(block, page) == (OK, page_of(3), b"three".ljust(64, b"\xff"))
    nand.power_on()
    assert nand.read_page(1, 1)[0] == ERASED


@pytest.mark.parametrize(
    ("bits", "mode", "reads", "after_erase"),
    [
        (8, "fade", [OK, OK], [OK]),
        (9, "fade", [TORN, TORN], [OK]),
        (9, "stuck", [TORN, TORN], [TORN]),
        (9, "pass", [TORN, OK], [OK]),
    ],
)
def test_bit_errors(chip: Any, bits: int, mode: str, reads: list[int], after_erase: list[int]) -> None:
    nand = BitErrors(chip, {1: bits}, mode=mode)
    nand.program_page(0, 0, page_of(1), b"")
    assert [nand.read_page(0, 0)[0] for _ in reads] == reads
    assert nand.read_spare_area(0, 0)[0] == OK  # its own ECC takes four times as much
    assert nand.corrected() == {"fade": 8 * 3 if bits == 8 else 9, "stuck": 9, "pass": 0}[mode]
    nand.erase_block(0)
    nand.program_page(0, 0, page_of(1), b"")
    assert [nand.read_page(0, 0)[0]] == after_erase


def test_so_many_wrong_bits_spoil_the_spare_area_too(chip: Any) -> None:
    nand = BitErrors(chip, {1: 33})
    nand.program_page(0, 0, page_of(1), b"")
    assert nand.read_spare_area(0, 0)[0] == TORN


def test_wear(chip: Any) -> None:
    nand = WearOut(chip, 20, seed=3)
    lives = []
    for block in range(GEOMETRY.blocks):
        n = 0
        while nand.erase_block(block) is not None:
            n += 1
        lives.append(n)
    assert all(15 <= n <= 25 for n in lives)
    assert len(set(lives)) > 2
    assert nand.worn_n == GEOMETRY.blocks


def test_errors_of_the_host_hit_programs_and_syncs(chip: Any) -> None:
    nand = HostErrors(chip, (2,), errno.ENOSPC)
    nand.program_page(0, 0, page_of(0), b"")
    with pytest.raises(OSError, match="space"):
        nand.program_page(0, 1, page_of(1), b"")
    assert statuses(nand, 0, 2) == [OK, ERASED]
    nand.program_page(0, 1, page_of(1), b"")
    sticky = HostErrors(chip, (1,), errno.EIO, sticky=True)
    sticky.erase_block(5)  # no write to the host's file can fail there; the next one does
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            sticky.synchronise()
    sticky.mend()
    sticky.synchronise()


@pytest.mark.parametrize("shape", ["prefix", "data-only", "oob-only", "prefix-old", "prefix-ff", "prefix-random"])
def test_an_interrupted_upper_page_takes_its_lower_page_along(shape: str) -> None:
    for at, lost in ((1, None), (2, None), (3, 0), (4, 1), (7, 4)):
        nand = FaultyNand(memory_image(PAIRED).chip, [Cut(at, shape)])
        with pytest.raises(PowerCut):
            for page in range(8):
                nand.program_page(0, page, page_of(page), b"")
        nand.power_on()
        found = statuses(nand, 0, at - 1)
        assert [page for page in range(at - 1) if found[page] != OK] == ([] if lost is None else [lost])


def test_pairs_must_fit_the_block() -> None:
    assert PRESETS["tiny-20p"].geometry.paired_pages == 2
    with pytest.raises(GeometryError, match="paired_pages is 3"):
        Geometry(pages_per_block=8, blocks=8, lpas=16, paired_pages=3)
    with pytest.raises(GeometryError, match="paired_pages is 4"):
        Geometry(pages_per_block=8, blocks=8, lpas=16, paired_pages=4)


def test_an_unstable_erase_reads_once_and_fails_later(chip: Any) -> None:
    nand = FaultyNand(chip, [Cut(1, "unstable")])
    with pytest.raises(PowerCut):
        nand.erase_block(0)
    nand.power_on()
    assert statuses(nand, 0, 8) == [ERASED] * 8
    for page in range(3):
        nand.program_page(0, page, page_of(page), b"")
    assert nand.read_page(0, 0)[0] == OK
    assert nand.read_page(0, 0)[0] == TORN
    nand.power_on()
    assert statuses(nand, 0, 3) == [TORN] * 3
    nand.erase_block(0)  # a whole erase mends it
    nand.program_page(0, 0, page_of(0), b"")
    nand.power_on()
    assert statuses(nand, 0, 1) == [OK]


WORDS = ("fail=3", "fail=3+", "silent=7", "misdirect=9", "flip=4:12", "flip=4:12:stuck", "flip=4:12:pass", "wear=100",
         "eio=5", "eio=5+", "enospc=6")  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_a_word_says_all_of_a_fault(word: str) -> None:
    assert str(Fault.parse(word)) == word


NONSENSE = ("fail", "fail=0", "fail=x", "silent=3+", "flip=3", "flip=3:x", "flip=3:4:melt", "fire=1", "fail=3:4")


@pytest.mark.parametrize("word", NONSENSE)
def test_a_word_that_is_none(word: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"fault '{word}'")):
        Fault.parse(word)


def test_faults_are_stacked(chip: Any) -> None:
    nand = FaultyNand(dress(chip, [Fault.parse(word) for word in ("silent=2", "fail=3", "flip=1:99")]), [Cut(4)])
    for page in range(2):
        assert nand.program_page(0, page, page_of(page), b"") is not None
    assert nand.program_page(0, 2, page_of(2), b"") is None
    assert statuses(nand, 0, 3) == [TORN, TORN, TORN]
    with pytest.raises(PowerCut):
        nand.erase_block(0)
