"""Equal settings: what a comparison gives all its FTLs, what one alone keeps, and that a difference is reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flashfs import cli
from flashfs.device import Device, default_buffer
from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES
from flashfs.replay import equal_settings, grid, sweep
from flashfs.replay.play import Setup, named, run
from nandimg import Geometry

GEOMETRY = Geometry.sized(256 << 20, op=0.25, pages_per_block=64, channels=2, dies=4)
SMALL = Geometry.sized(8 << 20, op=0.25, pages_per_block=64)
WORK = "uniform:ops=2k,write=0.7"
BLOCK = GEOMETRY.pages_per_block
ALL = ",".join(SCHEMES)


def setup(**options: Any) -> Setup:
    return Setup(WORK, geometry=GEOMETRY, options=options)


def test_all_schemes_stand_on_the_same() -> None:
    """As found on the devices, not as asked for: buffer, wear spread, reserve, and the stripe of those with one."""
    found = [run(one)["ground"] for one in named(setup(), ALL)]
    for name in ("dies", "channels", "op", "buffer", "wear_spread", "gc_reserve"):
        assert len({one[name] for one in found}) == 1, name
    assert {one["stripe"] for one in found} == {BLOCK, None}
    assert found[0]["buffer"] == max(default_buffer(one, GEOMETRY) for one in SCHEMES.values())
    assert found[0]["buffer"] > 64
    assert found[0]["gc_reserve"] == GEOMETRY.dies
    assert found[0]["wear_spread"] == GEOMETRY.endurance // 8


@pytest.mark.parametrize("mib", [128, 192, 256, 512, 1024, 2048])
def test_the_reserve_is_the_same_on_any_size(mib: int) -> None:
    """Unless the chip is too small for that: then it is not asked for."""
    geometry = grid.device({"size": mib << 20})
    setups = named(Setup(WORK, geometry=geometry), ",".join(ftl for ftl in SCHEMES if not SCHEMES[ftl].by_superblock))
    reserves = {Device.memory(geometry, one.ftl, one.options, backend="meta").ssd.gc_reserve for one in setups}
    assert all("gc_reserve" in one.options for one in setups) == (mib > 192)
    assert len(reserves) == 1 or mib <= 192


@pytest.mark.parametrize("mib", [1024, 2048])
def test_who_cleans_superblocks_gives_its_reserve_to_all(mib: int) -> None:
    geometry = grid.device({"size": mib << 20})
    setups = named(Setup(WORK, geometry=geometry), "pagemap,learnedftl")
    reserves = {Device.memory(geometry, one.ftl, one.options, backend="meta").ssd.gc_reserve for one in setups}
    assert reserves == {geometry.dies}


def test_entries_of_moved_pages_wait_in_all_or_in_none() -> None:
    """A map in DRAM has none, so it has no say."""
    for ftls, share in (("pagemap,dftl,ibftl,geckoftl,leaftl", 20), ("dftl,tpftl,geckoftl", 0)):
        made = [run(one) for one in named(setup(**{"dftl.battery": "0"}), ftls)]
        assert {one["ground"]["moved"] for one in made} == {share, None}
        assert not any(one["complaints"] for one in made)
    assert all("moved" not in one.options for one in named(setup(), "pagemap,dftl,tpftl"))
    dftl, _ = named(setup(**{"dftl.moved": "40", "dftl.battery": "0"}), "dftl,geckoftl")
    told = "dftl: room for entries of moved pages of 40 per cent of the cache's, where the ground of the others is 20"
    assert run(dftl)["complaints"] == [told]


def test_stripes_stay_short_if_all_have_one() -> None:
    both = named(setup(), "pagemap,dftl")
    assert [one.options["stripe"] for one in both] == [4, 4]
    assert [one.options["buffer"] for one in both] == [64, 64]


def test_one_alone_keeps_its_own() -> None:
    [one] = named(setup(), "pagemap")
    assert (one.options, one.ground) == ({}, None)
    made = run(one)
    assert (made["ground"]["buffer"], made["ground"]["stripe"]) == (64, 4)
    assert made["complaints"] == []


def test_a_small_chip_is_not_told_what_to_reserve() -> None:
    for one in named(Setup(WORK, geometry=SMALL), "pagemap,leaftl"):
        assert "gc_reserve" not in one.options
        assert run(one)["complaints"] == []


def test_what_all_are_told_is_equal() -> None:
    for one in named(setup(buffer="8", stripe="2", wear_spread="50"), "pagemap,leaftl"):
        made = run(one)
        assert made["complaints"] == []
        assert (made["ground"]["buffer"], made["ground"]["wear_spread"]) == (8, 50)
        assert made["ground"]["stripe"] == (2 if one.ftl == "pagemap" else None)


def test_what_one_is_told_is_a_difference() -> None:
    pagemap, leaftl = named(setup(**{"leaftl.buffer": "64", "pagemap.stripe": "4"}), "pagemap,leaftl")
    assert (pagemap.options["buffer"], leaftl.options["buffer"]) == (2048, "64")
    assert run(pagemap)["complaints"] == ["pagemap: a stripe of 4 pages, where the ground of the others is 64"]
    assert run(leaftl)["complaints"] == ["leaftl: a write buffer of 64 pages, where the ground of the others is 2,048"]
    for wrong in ("leaftl.stripe", "slimftl.buffer", "leaftl.", ".buffer"):
        with pytest.raises(UsageError, match="option"):
            named(setup(**{wrong: "4"}), "pagemap,leaftl")


def test_what_each_wants_is_a_difference() -> None:
    """buffer=-1: its own default, for all, and these differ."""
    pagemap, leaftl = named(setup(buffer="-1"), "pagemap,leaftl")
    told = "pagemap: a write buffer of 64 pages, where the ground of the others is 2,048"
    assert run(pagemap)["complaints"] == [told]
    assert run(leaftl)["complaints"] == []


def test_a_battery_is_a_difference() -> None:
    _, dftl = named(setup(), "pagemap,dftl")
    [told] = run(dftl)["complaints"]
    assert told.startswith("dftl: NVRAM of its own of ")
    _, dftl = named(setup(**{"dftl.battery": "0"}), "pagemap,dftl")
    assert run(dftl)["complaints"] == []


def test_a_sweep_stands_on_the_same() -> None:
    told: list[str] = []
    given = {
        "source": WORK, "ftl": ["pagemap", "leaftl"], "preset": "demo-1g",
        "opt": {"wear_spread": [32, 64], "pagemap": {"buffer": [64, 128]}},
    }  # fmt: skip
    setups = grid.expand(given, tell=told.append)
    assert [(s.ftl, s.options["buffer"], s.options["wear_spread"]) for s in setups] == [
        ("pagemap", 64, 32), ("pagemap", 128, 32), ("pagemap", 64, 64), ("pagemap", 128, 64),
        ("leaftl", 2048, 32), ("leaftl", 2048, 64),
    ]  # fmt: skip
    assert [s.ground["wear_spread"] for s in setups if s.ground] == [32, 32, 64, 64, 32, 64]
    assert told == [
        f"pagemap: a write buffer of {pages} pages, where the ground of the others is 2,048" for pages in (64, 128)
    ]
    assert sweep.names(setups)[-1] == f"leaftl, {WORK}"


def test_a_point_of_a_sweep_over_op_is_named_by_it() -> None:
    setups = grid.expand({"source": WORK, "ftl": "pagemap", "size": "64M", "op": [0.25, 0.5]})
    assert sweep.names(setups) == [f"pagemap, {WORK}, op=0.25 (80 blocks)", f"pagemap, {WORK}, op=0.5 (96 blocks)"]


def test_the_keys_of_a_sweep_are_those_of_its_ground() -> None:
    """One more FTL that changes nothing for the others is no reason to replay them; one that does, is."""
    keys = [grid.keys(grid.expand({"source": WORK, "ftl": ftls, "preset": "demo-1g"}))[:2]
            for ftls in (["pagemap", "slimftl"], ["pagemap", "slimftl", "dftl"], ["pagemap", "slimftl", "leaftl"])]
    assert keys[0] == keys[1]
    assert not set(keys[0]) & set(keys[2])


def test_the_command_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay", WORK, "--preset", "small-64m", "--ftl", "pagemap,leaftl", "--opt", "pagemap.buffer=64"]
    assert cli.run(words) == 0
    out, err = capsys.readouterr()
    assert "pagemap: a write buffer of 64 pages, where the ground of the others is 1,280" in err
    shown = {line[:23].strip(): line[23:].split() for line in out.splitlines() if line.strip()}
    assert shown["write buffer, pages"] == ["64", "1,280"]
    for name in ("dies", "over-provisioning", "stripe, pages", "wear spread, erases", "reserve, blocks"):
        assert name in shown
    assert cli.run([*words, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made[0]["complaints"]
    assert not made[1]["complaints"]
    assert made[0]["ground"]["buffer"] == 64


def test_common_is_what_the_module_says() -> None:
    alike = {"wear_spread": 375, "gc_reserve": 4}
    assert equal_settings.common(["pagemap", "slimftl"], GEOMETRY) == {"buffer": 64, "stripe": 4, **alike}
    assert equal_settings.common(["pagemap", "slimftl", "leaftl"], GEOMETRY)["stripe"] == BLOCK
