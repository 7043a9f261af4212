"""The rivals with one log of all entries: in NVRAM (nlog), and in flash (flog), in pages like any other."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_remapssd import FLAT, PAGE, SMALL, Mirrored, churn

from flashfs import inspect
from flashfs.crash import Case, campaign, run_case
from flashfs.crash.programs import STRIPED, fits
from flashfs.errors import BindError
from flashfs.ftl import scheme
from nandimg import Cut
from nandimg._faults import SHAPES

NVRAM = 8_192  #: bytes: 512 entries, 16 pages of 32


def flog(geometry: Any = SMALL, path: Path | None = None, **options: Any) -> Mirrored:
    return Mirrored(geometry, path, **{"rival": "flog", "nvram": NVRAM, **options})


def log_of(here: Mirrored) -> Any:
    return here.device.ssd.mapping.rmm.flog


def valid(here: Mirrored) -> set[tuple[int, int]]:
    """(LPA, PPA) of the entries that count, as NVRAM has them."""
    rmm = here.device.ssd.mapping.rmm
    return {(row["lpa"], row["ppa"]) for group in rmm.groups_of() for row in rmm.entries_of(group["superblock"])
            if row.get("valid")}  # fmt: skip


def logged(here: Mirrored) -> set[tuple[int, int]]:
    return {(int(row["lpa"]), int(row["ppa"])) for row in log_of(here).entries()}


def is_complete(here: Mirrored) -> bool:
    """Whether the log has every entry that counts; and its pages are there, live, and no more than it should have."""
    log = log_of(here)
    pages = here.device.ssd.mapping.translation_pages()
    assert len(pages) == len(set(pages)) == log.directory.n <= log.directory.most
    assert all(here.device.ssd.validity.live_in(ppa // 16).count(ppa % 16) for ppa in pages)
    return valid(here) <= logged(here)


@pytest.mark.parametrize("geometry", [SMALL, FLAT], ids=["superblocks", "blocks"])
def test_a_page_is_programmed_when_it_is_full(geometry: Any) -> None:
    here = flog(geometry)
    here.write(0, 40)
    here.remap(100, 0, 31)
    here.write(200)                        # requests program what waits
    assert (here.figures["flog_pages"], log_of(here).waiting_n) == (0, 31)
    here.remap(150, 0, 34)
    here.write(200)
    assert (here.figures["flog_pages"], log_of(here).waiting_n) == (2, 1)
    assert here.device.stats()["nand"]["by_cause"]["program"]["map"] == 2
    assert [(int(row["lpa"]), int(row["ppa"])) for row in log_of(here).entries()][:31] == [
        (100 + i, here.ppa(i)) for i in range(31)]  # fmt: skip
    assert is_complete(here)
    here.check()


def test_entries_say_when_and_whether_the_source_went() -> None:
    here = flog()
    here.write(0, 40)
    here.remap(100, 0, 2)
    first = here.device.ssd.seq
    here.remap(110, 5, 1, move=True)
    said = [(int(row["lpa"]), int(row["word"]) & (1 << 48) - 1, int(row["word"]) >> 48) for row in
            log_of(here).entries()]  # fmt: skip
    assert said == [(100, first, 0), (101, first, 0), (110, first + 1, 1)]


@pytest.mark.parametrize("rival", ["flog", "nlog"])
def test_each_cleaning_reads_the_whole_log(rival: str) -> None:
    """Whether or not anything in the superblock was remapped: that is not known before."""
    here = Mirrored(rival=rival, nvram=NVRAM)
    here.write(0, 1000)
    here.remap(500, 0, 200)
    here.write(999)
    where = {here.ppa(lpa) // 64 for lpa in range(200)}
    log = here.device.ssd.mapping.rmm.log_n
    assert log == 200
    before = here.device.stats()["nand"]["by_cause"]
    victim = next(block for block in range(0, 128, 4) if block // 4 not in where and len(
        here.device.ssd.validity.live_in(block)) == 16)  # fmt: skip
    moved = here.device.ssd.cleaning.cleaned_n
    rnd = random.Random(1)
    while here.device.ssd.cleaning.cleaned_n == moved:
        here.write(rnd.choice([lpa for lpa in range(700, 1000) if here.ppa(lpa) // 64 == victim // 4] or [700]))
    after = here.device.stats()["nand"]["by_cause"]
    if rival == "flog":
        reads = here.figures["flog_reads"]
        assert reads > 0 and reads % here.figures["flog_pages"] == 0
    else:
        lines = after["nvram_read"]["gc"] - before.get("nvram_read", {}).get("gc", 0)
        assert lines >= 200 * 16 // 64
    here.check()


@pytest.mark.parametrize("rival", ["flog", "nlog"])
def test_a_full_log_is_written_anew(rival: str) -> None:
    """Invalid entries take its room until then, whichever LPA was unmapped."""
    here = Mirrored(rival=rival, nvram=NVRAM)
    rmm = here.device.ssd.mapping.rmm
    here.write(0, 60)
    for _ in range(7):
        here.remap(100, 0, 60)
        here.write(100, 60)
    here.remap(100, 0, 60)
    assert rmm.log_n == 8 * 60 > rmm.valid_n == 60
    assert here.figures["rmm_reclaimed"] == 0
    here.remap(200, 0, 5)
    assert here.figures["rmm_reclaimed"] == 1
    assert rmm.log_n == rmm.valid_n == 65
    here.write(999)
    if rival == "flog":
        assert here.figures["flog_pages"] == 2
        assert is_complete(here)
    here.check()


@pytest.mark.parametrize("geometry", [SMALL, FLAT], ids=["superblocks", "blocks"])
def test_a_busy_device(geometry: Any) -> None:
    """Pages of the log are moved by cleaning, the log is written anew time and again, and has what counts."""
    here = flog(geometry)
    here.write(0, geometry.lpas)
    for turn in range(12):
        churn(here, f"log {turn}", 300)
        here.device.flush()
        here.write(0)
        assert is_complete(here)
        here.check()
    figures = here.figures
    assert figures["rmm_reclaimed"] > 3
    assert figures["flog_programs"] > 2 * figures["flog_pages"]
    assert figures["flog_reads"] > 0


def test_a_page_of_the_log_moves_with_its_block() -> None:
    here = flog(nvram=1 << 15)
    here.write(0, 200)
    for _ in range(9):
        here.remap(300, 0, 200)
        here.write(300, 200)
    before = here.device.ssd.mapping.translation_pages()
    closed = [block for block in {ppa // 16 for ppa in before}
              if here.device.ssd.pool.describe(block)["state"] == "closed"]  # fmt: skip
    assert closed
    here.device.ssd.move_blocks(np.array(closed, np.uint32))
    after = here.device.ssd.mapping.translation_pages()
    assert len(after) == len(before) and not {ppa // 16 for ppa in after} & set(closed)
    assert is_complete(here)
    here.check()


@pytest.mark.parametrize("clean", [True, False])
def test_behind_a_mount_the_log_is_written_anew(tmp_path: Path, clean: bool) -> None:
    """A recovery goes by NVRAM; of pages of the log none counts."""
    here = flog(path=tmp_path / "image")
    here.write(0, SMALL.lpas)
    for turn in range(3):
        churn(here, f"mounts {turn}", 200)
        here.device.flush()
        where = [here.ppa(lpa) for lpa in range(SMALL.lpas)]
        here.reopen(clean=clean)
        assert here.device.ssd.mapping.translation_pages() == []
        if clean:
            assert [here.ppa(lpa) for lpa in range(SMALL.lpas)] == where
        here.check()
        here.write(0)
        assert is_complete(here)
        assert here.device.ssd.mapping.rmm.log_n >= len(valid(here)) > 64
        here.check()


def test_a_page_of_the_log_that_cannot_be_read(tmp_path: Path) -> None:
    """The next look-up meets it, and the log is written anew."""
    here = flog(path=tmp_path / "image")
    here.write(0, 1000)
    here.remap(500, 0, 200)
    here.write(999)
    page = here.device.ssd.mapping.translation_pages()[2]
    at = inspect.header(tmp_path / "image")["layout"]["data_at"] + page * PAGE
    with (tmp_path / "image").open("r+b") as file:
        file.seek(at)
        file.write(b"x" * PAGE)
    churn(here, "damage", 600)
    here.device.flush()
    assert page not in here.device.ssd.mapping.translation_pages()
    assert is_complete(here)
    here.check()


def test_what_a_page_of_the_log_holds_is_shown(tmp_path: Path) -> None:
    here = flog(path=tmp_path / "image")
    here.write(0, 40)
    here.remap(100, 0, 40)
    here.write(999)
    page = here.device.ssd.mapping.translation_pages()[0]
    here.device.flush()
    ppas = [here.ppa(i) for i in range(32)]
    here.device.close(clean=False)
    said = inspect.page(tmp_path / "image", page)
    rows = said["content"]["entries"]
    assert [(row["lpa"], row["ppa"], row["move"]) for row in rows] == [(100 + i, ppas[i], False) for i in range(32)]


def test_views_count_pages_of_lpas_only() -> None:
    here = flog()
    here.write(0, 100)
    here.remap(200, 0, 100)
    here.write(999)
    assert here.figures["flog_pages"] == 3
    assert scheme("remapssd").views["map"](here.device)["pages"] == 101
    references = scheme("remapssd").views["references"](here.device)
    assert [row["pages"] for row in references][:3] == [1, 100, 0]
    assert here.device.ssd.dram()["flash_log"][0] > 0


def test_the_dies_may_wait_for_look_ups() -> None:
    """Programs and cleanings are the same, and it takes longer."""
    ends, programs = [], []
    for lookups in ("aside", "alone"):
        here = flog(lookups=lookups, nvram=1 << 16)
        here.write(0, SMALL.lpas)
        for turn in range(4):
            churn(here, f"turn {turn}", 300)
        ends.append(max(here.device.nand.clock()["dies"]))
        programs.append(here.device.stats()["nand"]["program"])
    assert programs[0] == programs[1]
    assert ends[1] > ends[0] * 1.02


def test_a_chip_without_room_for_the_log_is_refused() -> None:
    with pytest.raises(BindError, match=r"remapssd: .* logical pages take"):
        flog(replace(SMALL, blocks=80), nvram=1 << 20)


def drawn(rnd: random.Random, presets: tuple[str, ...]) -> Case:
    """A case with that log on which its pages have room too."""
    while True:
        case = campaign.random_setting(rnd, "remapssd", rnd.choice(presets), aged=rnd.random() < 0.5)
        options = {**dict(case.options), "rival": "flog", "nvram": rnd.choice((1_024, 2_048, 3_072))}
        case = replace(case, options=tuple(options.items()), dram=0, later=())
        if fits(case):
            return case


@pytest.mark.parametrize("seed", range(60))
def test_cuts_and_faults(seed: int) -> None:
    """Power goes at some time, twice at times; on every third device something else goes wrong too."""
    rnd = random.Random(f"flog {seed}")
    presets = ("tiny-24d", "tiny-16k", "tiny-20p", *STRIPED)
    case = drawn(rnd, presets)
    cuts = [Cut(int(10 ** rnd.uniform(1, 3.6)), rnd.choice(SHAPES)), Cut(rnd.randint(1, 12), rnd.choice(SHAPES))]
    fail = tuple(sorted(rnd.sample(range(20, 900), 2))) if seed % 3 == 0 else ()
    case = replace(case, cuts=tuple(cuts[: rnd.randint(1, 2)]), fail=fail)
    failure = run_case(case).failure
    assert failure is None, f"{case.line()}: {failure.why}"
