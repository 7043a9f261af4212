"""Remap-SSD's own: who is at a page, what becomes a write, entries in NVRAM through cleaning, mounts and crashes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandimg
from flashfs import inspect
from flashfs.device import Device
from flashfs.engine.device.remaps import remap_pages
from flashfs.errors import BindError, UncorrectableError, UsageError
from flashfs.ftl import scheme
from flashfs.ftl.remapssd.placement import RemapGreedy, RemapSuperblocks
from nandimg import Geometry, create

PAGE = 512
#: superblocks of 64 pages
SMALL = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=128, channels=2, dies=4, oob_bytes=64, lpas=1_000)
FLAT = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=96, channels=1, dies=1, oob_bytes=64, lpas=900)
NOTHING = bytes(PAGE)


class Mirrored:
    """A device, and what each of its LPAs has to hold."""

    def __init__(self, geometry: Geometry = SMALL, path: Path | None = None, **options: Any) -> None:
        self.geometry, self.path, self.turn = geometry, path, 0
        given = {"buffer": 0, "wear_spread": 1 << 20, **options}
        if path is None:
            self.device = Device.memory(geometry, "remapssd", given)
        else:
            create(path, geometry)
            self.device = Device.open(path, ftl="remapssd", options={name: str(value) for name, value in given.items()})
        self.holds = [NOTHING] * geometry.lpas

    def write(self, first: int, n: int = 1) -> None:
        self.turn += 1
        for lpa in range(first, first + n):
            self.holds[lpa] = self.turn.to_bytes(8, "little") * (PAGE // 16) + lpa.to_bytes(8, "little") * (PAGE // 16)
        self.device.write(first * PAGE, b"".join(self.holds[first : first + n]))

    def trim(self, first: int, n: int = 1) -> None:
        self.device.trim(first * PAGE, n * PAGE)
        self.holds[first : first + n] = [NOTHING] * n

    def remap(self, target: int, source: int, n: int = 1, move: bool = False) -> None:
        remap_pages(self.device.ssd, target, source, n, move)
        said = self.holds[source : source + n]
        if move and target != source:
            self.holds[source : source + n] = [NOTHING] * n
        self.holds[target : target + n] = said

    def ppa(self, lpa: int) -> int | None:
        ppa: int | None = self.device.ssd.mapping.explain(lpa)["ppa"]
        return ppa

    @property
    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = self.device.stats()["scheme"]
        return found

    @property
    def shed(self) -> int:
        return int(self.device.ssd.cleaning.entries.shed_n)

    def programs(self) -> int:
        return int(self.device.stats()["nand"]["by_cause"]["program"]["host"])

    def check(self, lost: Sequence[int] = ()) -> None:
        """Each LPA holds what it has to; those that are ``lost`` give EIO."""
        said = tuple(f"LPA {lpa}: lost" for lpa in lost) or ("never",)
        assert [problem for problem in self.device.problems() if not problem.startswith(said)] == []
        wrong, unreadable = [], []
        for lpa, held in enumerate(self.holds):
            try:
                if self.device.read(lpa * PAGE, PAGE) != held:
                    wrong.append(lpa)
            except UncorrectableError:
                unreadable.append(lpa)
        assert (wrong, unreadable) == ([], list(lost))

    def spoil(self, ppas: Iterable[int | None]) -> None:
        """The data of these pages rot in the image."""
        assert self.path is not None
        data_at = nandimg.inspect(self.path).layout.data_at
        with self.path.open("r+b") as file:
            for ppa in ppas:
                assert ppa is not None
                file.seek(data_at + ppa * PAGE + 100)
                byte = file.read(1)[0]
                file.seek(-1, 1)
                file.write(bytes([byte ^ 0x55]))

    def reopen(self, *, clean: bool, plp: bool = False, **options: Any) -> None:
        assert self.path is not None
        self.device.close(clean=clean)
        given = {"buffer": "0", "wear_spread": str(1 << 20), **{name: str(value) for name, value in options.items()}}
        self.device = Device.open(self.path, options=given, plp=plp)
        assert self.device.recovery.clean == clean


# --- what a remap does


@pytest.mark.parametrize("geometry", [SMALL, FLAT], ids=["superblocks", "blocks"])
def test_a_remap_programs_nothing(geometry: Geometry) -> None:
    here = Mirrored(geometry)
    assert isinstance(here.device.ssd.cleaning, RemapSuperblocks if geometry is SMALL else RemapGreedy)
    here.write(0, 20)
    before, seq = here.programs(), here.device.ssd.seq
    here.remap(100, 0, 20)
    assert here.programs() == before
    assert here.device.ssd.seq == seq + 1
    assert [here.ppa(100 + i) for i in range(20)] == [here.ppa(i) for i in range(20)]
    figures = here.figures
    assert (figures["remap_done"], figures["rmm_valid"], figures["rmm_entries"]) == (20, 20, 20)
    assert here.device.stats()["host"] == {"read": 0, "write": 20, "trim": 0, "remap": 20}
    here.check()


def test_a_chain_of_remaps_ends_at_one_page() -> None:
    here = Mirrored()
    here.write(0)
    for lpa in range(1, 10):
        here.remap(lpa, lpa - 1)
    assert {here.ppa(lpa) for lpa in range(10)} == {here.ppa(0)}
    mapping = here.device.ssd.mapping
    assert mapping.counts.count_of(here.ppa(0)) == 10
    assert mapping.sharers(here.ppa(0)) == list(range(10))
    assert mapping.rmm.entries_at(here.ppa(0)) == list(range(1, 10))
    here.write(0)                          # the page's own LPA leaves it, and the others stay
    here.trim(4)
    assert mapping.sharers(here.ppa(1)) == [1, 2, 3, 5, 6, 7, 8, 9]
    assert here.ppa(0) != here.ppa(1)
    here.check()


def test_the_last_who_leaves_a_page_lets_it_die() -> None:
    here = Mirrored()
    here.write(0)
    first = here.ppa(0)
    here.remap(1, 0)
    here.write(0)
    counts = here.device.ssd.mapping.counts
    assert counts.count_of(first) == 1
    here.trim(1)
    assert counts.count_of(first) == 0
    assert here.figures["rmm_valid"] == 0
    here.check()


def test_what_is_onto_itself_does_nothing() -> None:
    here = Mirrored()
    here.write(0, 8)
    seq = here.device.ssd.seq
    here.remap(2, 2, 4)
    here.remap(2, 2, 4, move=True)
    assert here.device.ssd.seq == seq
    assert here.figures["remap_done"] == here.figures["remap_same"] == 0
    here.check()


def test_who_is_there_already_stays() -> None:
    here = Mirrored()
    here.write(0)
    for _ in range(40):
        here.remap(1, 0)
        here.remap(0, 1)
    assert here.figures["remap_done"] == 1
    assert here.figures["remap_same"] == 79
    assert here.device.ssd.mapping.counts.count_of(here.ppa(0)) == 2
    here.check()


@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize(("target", "source"), [(3, 0), (0, 3), (1, 0), (0, 1), (9, 0)])
@pytest.mark.parametrize("atomic", ["remap", "command"])
def test_ranges_that_overlap(target: int, source: int, move: bool, atomic: str) -> None:
    """As memmove: the target reads what the source did before."""
    here = Mirrored(atomic=atomic)
    here.write(0, 30)
    here.trim(4, 2)
    here.remap(target, source, 10, move)
    here.check()
    here.remap(200, 0, 30)
    here.check()


def test_holes_give_holes() -> None:
    here = Mirrored()
    here.write(10, 4)
    here.write(50, 10)
    here.trim(11, 2)
    before = here.device.ssd.mapping.counts.histogram()
    here.remap(50, 8, 8)
    assert here.holds[50:58] == [NOTHING, NOTHING, here.holds[10], NOTHING, NOTHING, here.holds[13], NOTHING, NOTHING]
    assert [here.ppa(lpa) for lpa in (50, 51, 53, 54, 56, 57)] == [None] * 6
    assert here.device.ssd.mapping.counts.histogram()[2] == before[2] + 2
    here.check()


def test_a_source_in_the_write_buffer_is_written_first() -> None:
    here = Mirrored(buffer=16)
    here.write(0, 4)
    assert here.ppa(0) is None
    here.remap(100, 1, 2)
    assert here.ppa(100) == here.ppa(1) is not None
    here.write(200)
    here.remap(300, 200)
    here.write(300)                        # a target in the buffer is superseded by what comes after
    here.remap(300, 0)
    here.write(0)
    here.check()
    here.device.flush()
    here.check()


def test_a_move_leaves_nothing() -> None:
    here = Mirrored()
    here.write(0, 8)
    where = [here.ppa(lpa) for lpa in range(8)]
    here.remap(40, 0, 8, move=True)
    assert [here.ppa(lpa) for lpa in range(8)] == [None] * 8
    assert [here.ppa(lpa) for lpa in range(40, 48)] == where
    assert here.device.ssd.mapping.counts.histogram()[1:3] == [8, 0]
    here.check()
    here.remap(41, 40, 7, move=True)
    here.check()


def test_a_source_that_is_rewritten_leaves_the_target_alone() -> None:
    here = Mirrored()
    here.write(0, 10)
    here.remap(20, 0, 10)
    here.write(0, 10)
    here.trim(22)
    here.remap(30, 20, 10)
    here.write(25)
    here.check()


# --- what becomes a write


@pytest.mark.parametrize("most", [1, 2, 3, 15])
def test_a_counter_that_is_full_makes_a_write(most: int) -> None:
    """A page has so many LPAs and no more; who comes next gets a page of its own, which others may share then."""
    here = Mirrored(references=most)
    here.write(0)
    before = here.programs()
    for lpa in range(1, 40):
        here.remap(lpa, 0)
    assert here.figures["remap_refused_count"] == 39 - (most - 1)
    assert here.programs() - before == 39 - (most - 1)
    assert here.device.ssd.mapping.counts.count_of(here.ppa(0)) == most
    here.check()
    here.trim(1)
    here.remap(100, 0)
    assert (here.ppa(100) == here.ppa(0)) == (most > 1)
    here.check()


def test_nvram_that_is_full_makes_writes() -> None:
    here = Mirrored(segment=64, nvram=2_048)
    here.write(0, 200)
    here.remap(300, 0, 200)
    figures = here.figures
    assert 0 < figures["remap_done"] < 200
    assert figures["remap_refused_full"] > 0
    assert here.programs() == 400 - figures["remap_done"]
    here.check()
    here.trim(300, 200)                    # then there is room again, after a sync
    assert here.figures["rmm_valid"] == 0
    here.remap(500, 0, 10)
    assert here.figures["remap_done"] > figures["remap_done"]
    here.check()


@pytest.mark.parametrize("watermark", [1, 20, 50, 95])
def test_the_watermark(watermark: int) -> None:
    """Beyond so many per cent of valid entries pages are written."""
    here = Mirrored(watermark=watermark, segment=128, nvram=8 * 128 * 12)
    capacity = here.device.ssd.mapping.rmm.capacity()
    here.write(0, 300)
    for lpa in range(300):
        here.remap(400 + lpa, lpa)
        assert here.figures["rmm_valid"] <= capacity * watermark // 100
    assert here.figures["rmm_valid"] == min(300, capacity * watermark // 100)
    here.check()


def test_options_that_do_not_fit() -> None:
    for options in ({"segment": 100}, {"references": 16}, {"atomic": "never"}):
        with pytest.raises(Exception, match=next(iter(options))):
            Device.memory(SMALL, "remapssd", options)
    with pytest.raises(BindError, match="multiple of 8"):
        Device.memory(SMALL, "remapssd", {"segment": 100})
    assert scheme("remapssd").remaps


# --- cleaning


def churn(here: Mirrored, seed: str, turns: int, hot: int | None = None, flush: int = 40) -> None:
    """Writes, remaps and trims at random."""
    rnd, lpas = random.Random(seed), hot or here.geometry.lpas
    for turn in range(turns):
        n = min(lpas // 2, rnd.choice((1, 1, 2, 7, 30)))
        first, other, what = rnd.randrange(lpas - n), rnd.randrange(lpas - n), rnd.random()
        if what < 0.5:
            here.write(first, n)
        elif what < 0.9:
            apart = abs(first - other) >= n
            here.remap(first, other, n, move=apart and rnd.random() < 0.3)
        else:
            here.trim(first, n)
        if turn % flush == flush - 1:
            here.device.flush()


@pytest.mark.parametrize("geometry", [SMALL, FLAT], ids=["superblocks", "blocks"])
@pytest.mark.parametrize("options", [{}, {"segment": 64, "nvram": 4_096}, {"atomic": "command", "segment": 128},
                                     {"references": 2}, {"atomic": "command", "segment": 128, "nvram": 2_048}],
                         ids=str)  # fmt: skip
def test_cleaning_takes_all_who_share_along(geometry: Geometry, options: dict[str, Any]) -> None:
    here = Mirrored(geometry, **options)
    here.write(0, geometry.lpas)
    for part in range(4):
        churn(here, f"{options} {part}", 250)
        here.check()
    assert here.device.stats()["nand"]["by_cause"]["program"]["gc"] > 0
    assert here.figures["rmm_carried"] > 0


def test_a_page_with_many_sharers_moves_with_them() -> None:
    """Fifteen LPAs at each of two pages: superblocks are cleaned until those have moved, and all are at the copies."""
    here = Mirrored()
    here.write(0, 2)
    for i in range(1, 15):
        here.remap(2 * i, 0, 2)
    assert here.device.ssd.mapping.counts.histogram()[15] == 2
    before = {here.ppa(lpa) for lpa in range(2)}
    rnd = random.Random(8)
    for _ in range(20_000):
        here.write(rnd.randrange(30, SMALL.lpas))
        if not before & {here.ppa(lpa) for lpa in range(2)}:
            break
    assert not before & {here.ppa(lpa) for lpa in range(2)}
    for i in range(1, 15):
        assert [here.ppa(2 * i + k) for k in range(2)] == [here.ppa(k) for k in range(2)]
    assert here.device.ssd.mapping.counts.histogram()[15] == 2
    assert here.figures["rmm_carried"] >= 14 * 2
    assert here.figures["rmm_valid"] == 14 * 2
    here.check()


def test_groups_are_written_anew_when_nvram_is_full() -> None:
    """Active NVRAM GC: a group has invalid entries besides valid ones, so it is not freed otherwise."""
    here = Mirrored(segment=128, nvram=128 * 24)
    here.write(0, 40)
    here.remap(100, 0, 5)
    for turn in range(60):
        here.remap(200 + turn % 2 * 5, 10 + turn % 20, 5)
    figures = here.figures
    assert figures["rmm_compacted"] > 0
    assert figures["rmm_syncs"] > 0
    assert figures["remap_refused_full"] == 0
    assert figures["rmm_valid"] == 15
    here.check()


def test_of_two_entries_of_a_group_that_say_the_same_the_newer_is_carried(tmp_path: Path) -> None:
    """Between the two the LPA was trimmed: the older one is older than that."""
    here = Mirrored(path=tmp_path / "image", segment=128, nvram=128 * 24)
    here.write(0, 40)
    here.remap(90, 30, 5)  # the group has a valid entry all the time
    for _ in range(2):
        here.trim(100, 5)
        here.remap(100, 0, 5)
    here.device.flush()
    turn = compacted = 0
    while compacted < 2:
        here.remap(200 + turn % 2 * 5, 10 + turn % 20, 5)
        here.device.flush()
        compacted = here.figures["rmm_compacted"]
        turn += 1
    here.reopen(clean=False)
    here.check()


def test_nvram_calls_no_command_whole_that_came_after_the_last_sync() -> None:
    """A host that dies may lose some of its entries and keep that number."""
    here = Mirrored(segment=128, nvram=128 * 24, atomic="command")
    ssd, said = here.device.ssd, set()
    here.write(0, 640)
    for turn in range(20):
        for source in range(2):            # the first group has no valid entry after the second
            here.remap(800, (2 * turn + source) % 10 * 64, 4)
        here.device.flush()
        durable = ssd.seq
        here.write(800, 4)                 # nor has the second after this
        here.remap(900, turn, 1)           # segments are freed
        said.add(int.from_bytes(ssd.nand.nvram(ssd.nand.region("rmm")[0], 8), "little"))
        assert max(said) <= durable
    assert len(said) > 10
    here.check()


def test_a_superblock_whose_pages_all_die_gives_its_segments_up() -> None:
    here = Mirrored(segment=128)
    free = here.figures["rmm_free"]
    here.write(0, 64)
    here.remap(100, 0, 64)
    assert here.figures["rmm_free"] < free
    here.write(100, 64)
    assert here.figures["rmm_valid"] == here.figures["rmm_entries"] == 0
    here.device.flush()
    here.remap(300, 0)
    assert here.figures["rmm_free"] == free - 1
    here.check()


@pytest.mark.parametrize("geometry", [SMALL, FLAT], ids=["superblocks", "blocks"])
def test_pages_are_shed_where_entries_have_no_room(geometry: Geometry) -> None:
    """With six segments in all, cleaning finds no room at times, and writes pages out for LPAs of their own."""
    here = Mirrored(geometry, segment=64, nvram=400, watermark=100)
    here.write(0, geometry.lpas)
    rnd = random.Random(4)
    for _ in range(6_000):
        if rnd.random() < 0.6:
            here.remap(rnd.randrange(geometry.lpas), rnd.randrange(geometry.lpas))
        else:
            here.write(rnd.randrange(geometry.lpas))
        if here.shed > 5:
            break
    assert here.shed > 5
    here.check()


@pytest.mark.parametrize("geometry", [SMALL, FLAT], ids=["superblocks", "blocks"])
def test_who_shares_a_page_that_cannot_be_read_gets_one_that_says_so(tmp_path: Path, geometry: Geometry) -> None:
    """With no room for the entries and nothing that could be copied, cleaning goes on all the same: the device is not
    full. Each LPA gives EIO, in this mount and the next, until it is written."""
    here = Mirrored(geometry, tmp_path / "image", segment=64, nvram=400, watermark=100)
    here.write(0, geometry.lpas)
    refused, n = here.figures["remap_refused_full"], 0
    while here.figures["remap_refused_full"] == refused:  # the last is written
        here.remap(500 + n, n)
        n += 1
    lost = [*range(n - 1), *range(500, 500 + n - 1)]
    here.device.flush()
    here.spoil([here.ppa(lpa) for lpa in range(n - 1)])
    rnd, before = random.Random(5), here.device.ssd.mover.lost_pages
    others = [lpa for lpa in range(geometry.lpas) if lpa not in lost]
    for _ in range(6_000):
        here.write(rnd.choice(others))
        if here.shed:
            break
    assert here.shed > 0
    assert here.device.ssd.mover.lost_pages > before
    here.check(lost)
    here.reopen(clean=False)
    here.check(lost)
    for lpa in lost:
        here.write(lpa)
    here.check()


# --- mounts


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("options", [{}, {"atomic": "command", "segment": 128}, {"segment": 64, "nvram": 4_096}],
                         ids=str)  # fmt: skip
def test_mounts(tmp_path: Path, clean: bool, options: dict[str, Any]) -> None:
    here = Mirrored(path=tmp_path / "image", **options)
    here.write(0, SMALL.lpas)
    for turn in range(4):
        churn(here, f"mounts {turn}", 200)
        here.device.flush()
        where = [here.ppa(lpa) for lpa in range(SMALL.lpas)]
        said = [here.device.ssd.mapping.explain(lpa) for lpa in range(SMALL.lpas)]
        seq, valid = here.device.ssd.seq, here.figures["rmm_valid"]
        here.reopen(clean=clean)
        assert here.device.ssd.seq >= seq - 1  # a remap with ``move`` leaves out a number
        if clean:
            assert [here.ppa(lpa) for lpa in range(SMALL.lpas)] == where
            assert [here.device.ssd.mapping.explain(lpa) for lpa in range(SMALL.lpas)] == said
            assert here.figures["rmm_valid"] == valid
        here.check()


def test_a_remap_needs_no_flush_to_outlast_the_process(tmp_path: Path) -> None:
    """The entry is in NVRAM at once; the page that it names was flushed."""
    here = Mirrored(path=tmp_path / "image")
    here.write(0, 10)
    here.device.flush()
    here.remap(50, 0, 10)
    here.remap(70, 0, 3, move=True)
    here.reopen(clean=False)
    here.check()
    assert here.ppa(51) == here.ppa(71) is not None


@pytest.mark.parametrize("nvram", [256, 400])
@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize("atomic", ["remap", "command"])
@pytest.mark.parametrize("plp", [False, True])
def test_nvram_full_of_live_entries_outlasts_the_process(
    tmp_path: Path, nvram: int, move: bool, atomic: str, plp: bool
) -> None:
    """Few segments, each full of entries that count: remaps are written, cleaning sheds, and a crash at any time finds
    all that was flushed."""
    geometry = replace(SMALL, nvram_bytes=8 * (PAGE + 16)) if plp else SMALL
    options = {"segment": 64 if atomic == "remap" else 72, "nvram": nvram, "atomic": atomic, "watermark": 100}
    here = Mirrored(geometry, tmp_path / "image", **options)
    here.write(0, SMALL.lpas)
    rnd, shed = random.Random(f"{nvram} {move} {atomic} {plp}"), 0
    for turn in range(3):
        refused = here.figures["remap_refused_full"]
        while here.figures["remap_refused_full"] == refused:
            first, n = rnd.randrange(400), rnd.choice((1, 1, 3))
            here.remap(500 + first, first, n, move)
        assert here.figures["rmm_valid"] > 0
        for _ in range(3_000):
            first = rnd.randrange(400)
            if rnd.random() < 0.5:
                here.remap(500 + first, first, 1, move)
            here.write(rnd.choice((first, 500 + first)))
            if here.shed:
                break
        here.device.flush()
        here.check()
        shed += here.shed
        here.reopen(clean=turn == 1, plp=plp, **({"buffer": 8} if plp else {}))
        here.check()
    assert shed > 0


def test_less_references_and_a_lower_watermark_at_a_later_mount(tmp_path: Path) -> None:
    here = Mirrored(path=tmp_path / "image", segment=128)
    here.write(0, 4)
    for i in range(1, 12):
        here.remap(4 * i, 0, 4)
    here.reopen(clean=True, references=2, watermark=1)
    assert here.device.ssd.mapping.counts.count_of(here.ppa(0)) == 12
    here.remap(100, 0, 4)
    assert here.figures["remap_done"] == 0
    here.check()


# --- what is shown


def test_views() -> None:
    here = Mirrored(segment=128)
    here.write(0, 10)
    here.remap(20, 0, 10)
    here.remap(30, 0, 2)
    here.remap(40, 9, 1, move=True)
    of = scheme("remapssd")
    said = of.views["map"](here.device)
    assert said == {
        "entries": SMALL.lpas, "mapped": 22, "pages": 10, "shared_pages": 10, "lpas_a_page": 2.2,
        "most_references": 3, "remapped": 13, "rmm_entries": 13,
        "rmm_capacity": here.device.ssd.mapping.rmm.capacity(), "segments_free": here.figures["rmm_free"],
        "segments": here.device.ssd.mapping.rmm.segments,
    }  # fmt: skip
    references = of.views["references"](here.device)
    assert [row["references"] for row in references] == list(range(1, 16))
    assert [row["pages"] for row in references][:4] == [0, 8, 2, 0]
    groups = of.views["rmm"](here.device)
    superblock = here.ppa(0) // 64
    assert groups == [{"superblock": superblock, "segments": 2, "entries": 13, "valid": 13, "bytes": 256}]
    segments = of.numbered["segments"][1](here.device, superblock)
    assert segments == of.numbered["segments"][1](here.device, None)
    rows = segments["entries"]
    assert [row["lpa"] for row in rows] == [*range(20, 30), 30, 31, 40]
    assert all(row["valid"] for row in rows)
    assert [row["source"] for row in rows] == [None] * 12 + [9]
    assert {row["ppa"] for row in rows if row["lpa"] in (20, 30)} == {here.ppa(0)}
    sharers = of.numbered["sharers"][1](here.device, here.ppa(0))
    assert sharers == {"ppa": here.ppa(0), "references": 3, "lpas": [0, 20, 30], "by_entries": [20, 30]}
    assert of.numbered["sharers"][1](here.device, None)["references"] == 3
    assert here.device.ssd.mapping.explain(30) == {
        "ppa": here.ppa(0), "remapped": True, "references": 3, "remap_seq": rows[10]["seq"]
    }  # fmt: skip
    assert here.device.ssd.mapping.explain(0)["remapped"] is False
    assert here.device.ssd.mapping.explain(9)["ppa"] is None
    for view, count in (("segments", 32), ("sharers", 128 * 16)):
        for number in (-1, count, 2**64):
            with pytest.raises(UsageError, match=f" {number}: .* 0 to {count - 1}$"):
                of.numbered[view][1](here.device, number)


def test_a_dump_tells_of_lpas_that_were_remapped(tmp_path: Path) -> None:
    """Where they are and why the pages that their OOBs name are not theirs; a slot of the write buffer that is older
    than the remap does not count."""
    path = tmp_path / "image"
    create(path, replace(SMALL, nvram_bytes=8 * (PAGE + 16)))
    device = Device.open(path, ftl="remapssd", plp=True)
    device.write(0, b"a" * PAGE)
    device.write(PAGE, b"b" * PAGE)
    device.flush()
    device.write(5 * PAGE, b"c" * PAGE)    # in NVRAM alone
    remap_pages(device.ssd, 5, 0, 1)
    remap_pages(device.ssd, 6, 1, 1)
    device.write(PAGE, b"d" * PAGE)
    remap_pages(device.ssd, 1, 0, 1)
    device.flush()
    device.close(clean=False)
    here = {lpa: inspect.lpa(path, lpa) for lpa in (0, 1, 5, 6)}
    assert here[0]["ppa"] == here[1]["ppa"] == here[5]["ppa"] != here[6]["ppa"]
    assert all(said["reads"] == f"PPA {said['ppa']}" for said in here.values())
    assert here[5]["mapping"]["remap_seq"] > here[5]["nvram"][0]["seq"]
    assert [row["why"] for row in here[5]["copies"]] == [f"superseded: its LPA was remapped to PPA {here[5]['ppa']}"]
    assert [row["why"] for row in here[1]["copies"]] == ["live, but of others: the LPA has left it"]
    assert inspect.page(path, here[6]["ppa"])["oob"]["lpa"] == 1


def test_dram() -> None:
    """The page table, four bits a page, a bit an LPA, what finds segments; no bitmap of live pages."""
    dram = Mirrored().device.ssd.dram()
    assert dram["page_table"][0] == 4 * SMALL.lpas
    assert dram["rc_table"][0] == 128 * 16 // 2
    assert dram["lr_bitmap"][0] == SMALL.lpas // 8
    assert dram["rmm_groups"][0] > 0
    assert "pvb" not in dram


def test_counters_begin_again() -> None:
    here = Mirrored()
    here.write(0, 10)
    here.remap(20, 0, 10)
    here.device.ssd.mapping.forget_counts()
    assert here.figures["remap_done"] == 0
    assert here.figures["rmm_valid"] == 10


def test_what_the_host_did_is_counted_apart() -> None:
    here = Mirrored(references=1)
    here.write(0, 10)
    here.remap(20, 5, 10)                  # five are holes; the others are written
    assert here.device.stats()["host"] == {"read": 0, "write": 10, "trim": 0, "remap": 10}
    here.check()


def test_runs_of_any_length() -> None:
    """More than is remapped at once, and all of them."""
    here = Mirrored()
    here.write(0, 450)
    here.remap(500, 0, 450)
    here.check()
    assert here.figures["remap_done"] == 450
    here.remap(20, 0, 900)
    here.check()
    lpas = np.unique([here.ppa(lpa) for lpa in range(SMALL.lpas) if here.ppa(lpa) is not None])
    assert len(lpas) == sum(here.device.ssd.mapping.counts.histogram()[1:])


@pytest.mark.parametrize("geometry", [SMALL, FLAT], ids=["superblocks", "blocks"])
def test_an_lpa_that_is_twice_in_a_request(geometry: Geometry) -> None:
    """The page of the first time is dead before it was counted."""
    here = Mirrored(geometry)
    here.device.ssd.write_pages(np.array([5, 6, 5, 5], np.uint32), np.frombuffer(b"".join(
        bytes([n]) * PAGE for n in (1, 2, 3, 4)), np.uint8))  # fmt: skip
    here.holds[5:7] = [bytes([4]) * PAGE, bytes([2]) * PAGE]
    assert sum(here.device.ssd.mapping.counts.histogram()[1:]) == 2
    here.check()
