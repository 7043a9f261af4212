"""The example FTLs are treated like every other: cut, remounted, compared, killed under a file system."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from schemes import bounded

import nandimg
from flashfs.check.setting import Setting
from flashfs.check.suite import CHECKS as ALL_CHECKS
from flashfs.check.suite import Check
from flashfs.check.suite import judge as judge_check
from flashfs.crash import campaign, kill
from flashfs.crash.oracle import Judge
from flashfs.device import Device
from flashfs.errors import FlashfsError
from flashfs.ftl import scheme
from nandimg import Geometry

ROOT = Path(__file__).parents[2]
EXAMPLES = ("examples.minimal:Minimal", "examples.tutorial:PageMap", "examples.hotcold:HotCold")
TIERS = ("sweep", "random", "host")
#: of `flashfs check`; the cuts of `durability` are many, and the tiers below cut too
CHECKS = [pytest.param(one, id=one.id, marks=[pytest.mark.slow] * (one.id == "durability")) for one in ALL_CHECKS]
GEOMETRY = Geometry(page_bytes=512, pages_per_block=16, blocks=64, channels=2, dies=4, oob_bytes=64, lpas=700)
PAGE = GEOMETRY.page_bytes


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    yield


@pytest.mark.parametrize(("tier", "cuts"), bounded({"random": 80, "host": 40}, dict.fromkeys(TIERS, 800)))
@pytest.mark.parametrize("ftl", EXAMPLES)
def test_power_cuts(ftl: str, tier: str, cuts: int) -> None:
    result = campaign.run(ftl, tier, 2025, cuts)
    assert [str(failure) for failure in result.failures] == []
    assert result.cuts >= cuts


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("ftl", [*(pytest.param(one, marks=pytest.mark.slow) for one in EXAMPLES[:2]), EXAMPLES[2]])
def test_passes_flashfs_check(ftl: str, check: Check) -> None:
    """An example is what others begin with."""
    ended = judge_check(check, Setting(ftl))
    assert (ended.result, ended.why) == ("pass", "")


@pytest.mark.slow
@pytest.mark.parametrize("ftl", EXAMPLES)
def test_every_program_of_two_words(ftl: str) -> None:
    result = campaign.run(ftl, "every", 0, 2, jobs=2)
    assert [str(failure) for failure in result.failures] == []


@pytest.mark.parametrize("ftl", EXAMPLES)
def test_over_clean_mounts_and_crashes(ftl: str, tmp_path: Path) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, GEOMETRY)
    rnd, judge, moved = random.Random(1), Judge(GEOMETRY.lpas, PAGE), 0
    for clean in (False, True, False, True):
        device = Device.open(path, ftl=ftl)
        wrong = [judge.crashed(lpa, device.read(lpa * PAGE, PAGE)) for lpa in range(GEOMETRY.lpas)]
        assert [line for line in wrong if line] == []
        assert device.problems() == []
        for _ in range(1_000):
            lpa = rnd.randrange(70) if rnd.random() < 0.8 else rnd.randrange(GEOMETRY.lpas)
            if rnd.random() < 0.9:
                device.write(lpa * PAGE, judge.will_write(lpa))
            else:
                judge.will_trim(lpa)
                device.trim(lpa * PAGE, PAGE)
        device.flush()
        judge.flushed()
        moved += device.stats()["nand"]["by_cause"]["program"].get("gc", 0)
        device.close(clean=clean)
    assert moved > 0


def test_hot_and_cold_apart_costs_less() -> None:
    """It is what the example is for: nine tenths of the writes to a tenth of the pages."""
    waf = {}
    geometry = Geometry.sized(4 << 20, op=0.2, page_bytes=512, pages_per_block=32, oob_bytes=64)
    for ftl in ("pagemap", "examples.hotcold:HotCold"):
        rnd = random.Random(7)
        device = Device.memory(geometry, ftl, {"buffer": 0, "wear_spread": 1000}, backend="meta")
        device.write(0, bytes(device.size))
        for _ in range(4 * geometry.lpas):
            lpa = rnd.randrange(geometry.lpas // 10 if rnd.random() < 0.9 else geometry.lpas)
            device.write(lpa * 512, bytes(512))
        waf[ftl] = device.stats()["waf"]
    assert waf["examples.hotcold:HotCold"] < 0.75 * waf["pagemap"]


def test_they_say_which_parts_are_theirs() -> None:
    assert scheme("examples.minimal:Minimal").replaces == ("mapping",)
    assert scheme("examples.tutorial:PageMap").replaces == ("mapping",)
    assert scheme("examples.hotcold:HotCold").replaces == ("mapping", "placement", "cleaning")


def killable() -> str:
    """Why the kill tier cannot run here; "" if it can."""
    if os.geteuid() != 0:
        return "needs root"
    try:
        kill.check_machine("ext4")
    except FlashfsError as error:
        return str(error)
    return ""


@pytest.mark.mount
@pytest.mark.skipif(bool(killable()), reason=killable())
@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_the_tutorial_survives_kills_under_ext4(rounds: int) -> None:
    result = kill.run("examples.tutorial:PageMap", seed=20, rounds=rounds)
    assert [str(failure) for failure in result.failures] == []
    assert result.cuts == rounds
