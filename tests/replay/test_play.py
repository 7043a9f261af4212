"""`flashfs replay` as a library: deterministic, complete, and honest about what it was given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandimg
from flashfs.device import Device
from flashfs.errors import BindError, UsageError
from flashfs.ftl import SCHEMES
from flashfs.replay import precondition
from flashfs.replay.play import SAMPLES, Setup, named, run
from flashfs.replay.precondition import Precondition
from nandimg import Geometry

GEOMETRY = Geometry.sized(32 << 20, op=0.25, pages_per_block=32, channels=2, dies=4)
FTLS = list(SCHEMES)
MIXED = "hotcold:ops=6k,write=0.6,trim=0.05,flush=0.005,size=4k/60:32k/40,seed=3"


def setup(source: str = MIXED, **more: Any) -> Setup:
    return replace(Setup(source=source, geometry=GEOMETRY), **more)


def steady(result: dict[str, Any]) -> dict[str, Any]:
    """All that does not depend on the machine."""
    return {key: value for key, value in result.items() if key not in ("wall_s", "pages_per_s")}


@pytest.mark.parametrize("ftl", FTLS)
def test_the_same_again_to_the_bit(ftl: str) -> None:
    one = setup(ftl=ftl, qd=8, dram=8 << 20, precondition="steady:most=1")
    assert json.dumps(steady(run(one))) == json.dumps(steady(run(one)))


@pytest.mark.parametrize("ftl", FTLS)
def test_without_buffer_and_cache_each_page_is_one_operation(ftl: str) -> None:
    made = run(setup(ftl=ftl, qd=4, precondition="fill", options={"buffer": "0"}))
    nand, host = made["nand"], made["host"]
    assert made["cache"]["slots"] == 0
    assert nand["by_cause"]["program"]["host"] == host["write"]
    assert nand["by_cause"]["read"]["host"] == host["read"] - made["holes_read"] + made["scheme"]["extra_reads"]


@pytest.mark.parametrize("ftl", FTLS)
def test_the_figures_add_up(ftl: str) -> None:
    made = run(setup(ftl=ftl, qd=4, precondition="fill", dram=8 << 20))
    nand, host = made["nand"], made["host"]
    for operation in ("read", "program", "erase", "spare_read"):
        assert nand[operation] == sum(nand["by_cause"][operation].values())
    assert made["waf"] == round(nand["program"] / host["write"], 4)
    assert made["cache"]["slots"] > 0
    assert nand["by_cause"]["program"]["host"] <= host["write"]  # the write buffer may see a page twice
    assert made["cache"]["hits"] + made["cache"]["misses"] >= host["read"]
    assert nand["by_cause"]["read"]["host"] <= made["cache"]["misses"] + made["scheme"]["extra_reads"]
    assert sum(value for key, value in made["dram"].items() if key != "total") == made["dram"]["total"] <= 8 << 20
    assert made["requests"] == {name: one["n"] for name, one in made["latency_us"].items()}
    assert sum(made["requests"].values()) == made["input"]["requests"] == 6_000
    assert made["iops"] == pytest.approx(6_000 / made["virtual_s"], abs=0.001)
    for name, one in made["histograms"].items():
        assert sum(one["count"]) == made["requests"][name]
    for name in ("read", "write"):
        found = made["latency_us"][name]
        assert found["min"] <= found["p50"] <= found["p95"] <= found["p99"] <= found["p999"] <= found["max"]
    series = made["series"]
    assert {len(column) for column in series.values()} == {len(series["program"])}
    assert series["program"][0] == 0
    assert series["program"][-1] == nand["program"]
    assert series["host_write"][-1] == host["write"]
    assert series["virtual_s"] == sorted(series["virtual_s"])


def test_a_long_replay_keeps_a_bounded_series() -> None:
    made = run(setup("uniform:ops=900k,write=0.1,span=0.1"))
    assert 100 < len(made["series"]["program"]) <= SAMPLES + 1
    assert made["series"]["host_read"][-1] == made["host"]["read"]


@pytest.mark.parametrize("ftl", FTLS)
def test_everything_that_made_it_is_there(ftl: str) -> None:
    config = run(setup(ftl=ftl, qd=2, options={"buffer": "16"}))["config"]
    assert config["ftl"] == ftl
    assert config["options"]["buffer"] == 16
    asked = config["geometry"]["nvram_bytes"] > GEOMETRY.nvram_bytes  # by a scheme with a battery
    assert config["geometry"] | {"nvram_bytes": GEOMETRY.nvram_bytes} == GEOMETRY.as_dict()
    assert asked == bool(SCHEMES[ftl].nvram(GEOMETRY, SCHEMES[ftl].resolve({}), None))
    assert config["qd"] == 2
    assert len(config["source_hash"]) == 64
    assert config["source"]["canonical"].startswith("hotcold:")
    assert json.loads(json.dumps(config)) == config


def test_the_oracle() -> None:
    """Uniform overwrites from empty on one die: analysis and other simulators say 2.13 over the first million."""
    made = run(Setup("uniform:ops=1M,write=1", geometry=nandimg.PRESETS["oracle-1g"].geometry))
    assert made["waf"] == pytest.approx(2.13, rel=0.03)


def test_open_and_closed_loop() -> None:
    slow = run(setup("uniform:ops=500,write=0,rate=100", precondition="fill"))
    assert slow["config"]["qd"] is None
    assert slow["virtual_s"] == pytest.approx(5, rel=0.02)
    assert slow["latency_us"]["read"]["p50"] == 55.0  # nobody waits
    closed = run(setup("uniform:ops=500,write=0,rate=100", precondition="fill", qd=4))
    assert closed["config"]["qd"] == 4
    assert closed["virtual_s"] < 0.1
    with pytest.raises(UsageError, match="no times of its own"):
        run(setup("uniform:ops=5", qd=0))


# --- preconditioning


def test_a_steady_device_says_how_it_became_one() -> None:
    made = run(setup("uniform:ops=8k,write=1", precondition="steady:tolerance=0.05,most=12"))
    done = made["precondition"]
    assert done["steady"]
    assert done["filled_pages"] == GEOMETRY.lpas
    last = done["waf"][-precondition.WINDOWS :]
    assert max(last) - min(last) <= 0.1 * sum(last) / len(last)
    assert made["waf"] == pytest.approx(sum(last) / len(last), rel=0.1)
    assert made["host"]["write"] == 8_000  # nothing of it is in the figures


def test_it_may_never_become_steady() -> None:
    done = run(setup("uniform:ops=100", precondition="steady:tolerance=0.0001,most=1"))["precondition"]
    assert not done["steady"]
    assert done["overwritten_devices"] == 1


@pytest.mark.parametrize("ftl", FTLS)
@pytest.mark.parametrize("backend", ["meta", "file"])
def test_a_prepared_image_is_kept_and_used_again(ftl: str, backend: str, tmp_path: Path, monkeypatch: Any) -> None:
    one = setup("uniform:ops=4k,write=0.7", ftl=ftl, backend=backend, precondition="fill", prepared=tmp_path / "kept")
    first = run(one)
    (image,) = (tmp_path / "kept").glob("*.nand")
    content = image.read_bytes()

    def never(*_: Any) -> None:
        raise AssertionError("preconditioned again")

    monkeypatch.setattr(Precondition, "run", never)
    again = run(one)
    assert steady(again) == steady(first)
    assert again["precondition"]["filled_pages"] == GEOMETRY.lpas
    assert image.read_bytes() == content  # what is played does not change it
    assert sorted(path.suffix for path in (tmp_path / "kept").iterdir()) == [".json", ".nand"]
    with pytest.raises(AssertionError, match="again"):
        run(replace(one, options={"buffer": 3}))  # another device


@pytest.mark.parametrize(
    ("text", "why"),
    [("half", "none, fill, steady"), ("steady:tolerance=x", "tolerance=x"), ("steady:tolerance=0", "above 0"),
     ("fill:seed=1", "no keys"), ("steady:nonesuch=1", "tolerance, most"), ("steady:pattern=odd", "pattern=odd")],
)  # fmt: skip
def test_what_precondition_refuses(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        run(setup(precondition=text))


# --- images and backends


@pytest.mark.parametrize("ftl", FTLS)
def test_an_image_is_replayed_on_a_copy(ftl: str, tmp_path: Path) -> None:
    path = tmp_path / "chip.nand"
    nandimg.create(path, GEOMETRY)
    with Device.open(path, ftl=ftl) as device:
        device.write(0, bytes(range(256)) * 4096)
    before = path.read_bytes()
    made = run(setup(image=path))
    assert made["ftl"] == ftl
    assert made["config"]["backend"] == "file"
    assert path.read_bytes() == before
    with pytest.raises(BindError, match=f"bound to {ftl}"):
        other = next(name for name in FTLS if name != ftl)
        Device.open(path, ftl=other)


@pytest.mark.parametrize("ftl", FTLS)
def test_both_backends_count_the_same(ftl: str) -> None:
    meta, file = run(setup(ftl=ftl)), run(setup(ftl=ftl, backend="file"))
    for figure in ("host", "nand", "waf", "latency_us", "virtual_s"):
        assert meta[figure] == file[figure]


def test_equal_hashes_are_equal_contents() -> None:
    """On a chip that keeps data, what a workload calls duplicates are: grains with one hash, bytes that agree."""
    from flashfs.replay._player import Player
    from flashfs.replay.sources import open_source

    device = Device.memory(GEOMETRY, "pagemap", {}, backend="file")
    source = open_source("uniform:ops=400,write=1,dup=0.5,seed=2", device.size)
    player = Player(device.ssd, 1)
    latest: dict[int, int] = {}
    for batch in source.batches():
        assert batch.hashes is not None
        player.play(batch.time_ns, batch.op, batch.offset, batch.length, *batch.hashes)
        for offset, number in zip(batch.offset.tolist(), batch.hashes.grain.tolist(), strict=True):
            latest[offset] = number
    contents: dict[int, set[bytes]] = {}
    for offset, number in latest.items():
        contents.setdefault(number, set()).add(device.read(offset, 4096))
    assert all(len(some) == 1 for some in contents.values())
    assert len(set().union(*contents.values())) == len(contents) < len(latest)


# --- several schemes


def test_an_option_goes_to_those_that_know_it() -> None:
    both = named(setup(options={"stripe": "2", "shift": "4"}), "pagemap,slimftl")
    assert [one.options for one in both] == [{"stripe": "2"}, {"shift": "4"}]
    with pytest.raises(UsageError, match="option nonesuch"):
        named(setup(options={"nonesuch": "1"}), "pagemap,slimftl")
    for bad in ("", "pagemap,pagemap", ","):
        with pytest.raises(UsageError, match="each once"):
            named(setup(), bad)
    with pytest.raises(UsageError, match="no FTL is called"):
        named(setup(), "pagemap,nonesuch")


def test_a_recorded_trace_gives_the_hosts_counts(tmp_path: Path) -> None:
    """What a device was asked while it was recorded, it is asked again: the same host pages, on any FTL."""
    from flashfs.replay._record import OPERATIONS
    from flashfs.replay.recording import open_recording

    read, write, trim, flush = (OPERATIONS.index(name) for name in ("read", "write", "trim", "flush"))
    device = Device.memory(GEOMETRY, "pagemap", {}, backend="file")
    recorder = open_recording(tmp_path / "one.trace", device)
    rng = np.random.default_rng(4)
    for offset, length, kind in zip(
        rng.integers(0, device.size - 70_000, 300).tolist(),
        rng.integers(1, 66_000, 300).tolist(),
        rng.random(300).tolist(),
        strict=True,
    ):
        if kind < 0.5:
            data = rng.bytes(length)
            recorder.record(write, offset, length, data)
            device.write(offset, data)
        elif kind < 0.8:
            recorder.record(read, offset, length)
            device.read(offset, length)
        elif kind < 0.9:
            recorder.record(trim, offset, length)
            device.trim(offset, length)
        else:
            recorder.record(flush, 0, 0)
            device.flush()
    recorder.close()
    want = device.stats()["host"]
    for ftl in FTLS:
        made = run(setup(str(tmp_path / "one.trace"), ftl=ftl, backend="file"))
        assert {name: made["host"][name] for name in want} == want
