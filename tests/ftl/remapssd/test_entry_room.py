"""Room for entries: where shared pages move, and NVRAM is nearly full, cleaning takes no more than there is."""

from __future__ import annotations

import random

import pytest

from flashfs.crash import Case, run_case

WIDE = "chip.dies=64 chip.pages_per_block=16 chip.blocks=1280 chip.lpas=17168"  # too few spare blocks for superblocks


def pressed(lpas: int, words: int, seed: int, most: int, share: int) -> str:
    """All LPAs are written, then single ones, and ``share`` per cent of the words remap ``most`` others."""
    rnd = random.Random(seed)
    program = [f"w{lpa}+{min(256, lpas - lpa)}" for lpa in range(0, lpas, 256)]
    for _ in range(words):
        if rnd.random() * 100 >= share:
            program.append(f"w{rnd.randrange(lpas)}")
            continue
        source, target = rnd.randrange(lpas - most), rnd.randrange(lpas - most)
        program.append(f"p{source}-{target}+{most}")
    return " ".join(program)


@pytest.mark.parametrize("seed", (2, 4))
def test_what_is_written_out_leaves_the_blocks_of_a_checkpoint(seed: int) -> None:
    """A block of a superblock moves alone, so room is made for its own entries, not for those of all 64 blocks."""
    line = (f"ftl=remapssd preset=tiny-288 {WIDE} opt.buffer=0 opt.stripe=1 "
            f"program='{pressed(17168, 2160, seed, 200, 10)}'")  # fmt: skip
    assert run_case(Case.parse(line)).failure is None


@pytest.mark.parametrize("seed", (1, 2))
def test_a_move_into_many_superblocks_finds_a_segment_for_each(seed: int) -> None:
    line = (f"ftl=remapssd preset=tiny-288 {WIDE} opt.buffer=0 opt.stripe=1 opt.nvram=24576 "
            f"program='{pressed(17168, 2300, seed, 64, 3)}'")  # fmt: skip
    assert run_case(Case.parse(line)).failure is None


def test_wear_levelling_waits_for_room() -> None:
    shared = " ".join(f"w{first}+32 p{first}-{first + 32}+32 p{first}-{first + 64}+64 p{first}-{first + 128}+128 "
                      f"p{first}-{first + 256}+224" for first in (0, 512, 1024))  # fmt: skip
    line = ("ftl=remapssd preset=tiny-1600 chip.dies=1 chip.blocks=70 chip.lpas=1600 opt.buffer=0 opt.wear_spread=2 "
            f"opt.stripe=1 program='{shared} f {' '.join(['w1536+64'] * 200)}'")  # fmt: skip
    assert run_case(Case.parse(line)).failure is None


def used_again(words: int) -> list[str]:
    """Segments are taken and given up, one a word, each after a flush."""
    return ["p0-100+1", "t100", "f"] * words


@pytest.mark.parametrize("coin", (3, 7, 11, 15))
def test_a_segment_across_two_pages_of_the_hosts_memory_is_used_again(coin: int) -> None:
    """The host dies, and keeps the page with its new head, but of the other one what was there before: the entries of
    another superblock, the last of them about a move."""
    words = ["w0+64", "f", *used_again(31), "p8-200+3", "m11-203+1", "t200+4", "w203", "f", "r", *used_again(32),
             "w300+16", "f", "p300-400+3", "w500"]  # fmt: skip
    line = ("ftl=remapssd preset=tiny-112 opt.buffer=0 opt.segment=128 opt.nvram=4224 opt.stripe=1 "
            f"opt.checkpoint_every=100000 program='{' '.join(words)}'")  # fmt: skip
    operations = run_case(Case.parse(line)).operations[-1]
    for cut in (operations - 1, operations):
        case = Case.parse(line.replace(" program", f" cut={cut}:before:coin.{coin} program"))
        assert run_case(case).failure is None
