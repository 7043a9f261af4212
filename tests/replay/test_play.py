"""`flashfs replay` as a library: deterministic, complete, and honest about what it was given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schemes import rotated

import nandimg
from flashfs.device import Device
from flashfs.errors import BindError, UsageError
from flashfs.ftl import SCHEMES
from flashfs.replay import play, precondition
from flashfs.replay.play import SAMPLES, Setup, named, run
from flashfs.replay.precondition import Precondition
from flashfs.replay.request_source import TraceError
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


def test_wear_is_of_the_whole_life() -> None:
    fresh, old = (run(setup(options={"buffer": 0}, precondition=what)) for what in ("none", "steady:most=2"))
    for made in (fresh, old):
        erases = made["wear"]["erases"]
        assert erases["spread"] == erases["max"] - erases["min"] and erases["min"] <= erases["mean"] <= erases["max"]
    assert fresh["wear"]["erases"]["mean"] * GEOMETRY.blocks == pytest.approx(fresh["nand"]["erase"], abs=1)
    assert old["wear"]["erases"]["mean"] * GEOMETRY.blocks > 1.5 * old["nand"]["erase"]


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
    assert slow["latency_us"]["read"]["p50"] == 55.0  # no request waits
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


def test_steady_waits_until_cleaning_has_turned_the_chip_over() -> None:
    """With as much over-provisioning as this, a WAF of 1 is steady for long before cleaning begins."""
    roomy = Geometry.sized(32 << 20, op=0.8, pages_per_block=32)
    levelled = {"wear_spread": "1000000"}
    made = run(setup("uniform:ops=16k,write=1", geometry=roomy, precondition="steady", options=levelled))
    done = made["precondition"]
    assert done["steady"]
    assert done["waf"][0] < 1.05  # the trap: three windows of this agree within 2 %
    assert done["erases_a_block"] >= 1
    assert made["waf"] > 1.3
    assert made["waf"] == pytest.approx(sum(done["waf"][-3:]) / 3, rel=0.03)


def everything(device: Device) -> dict[str, Any]:
    """What a device knows of itself: block by block, tables, counters, clocks as far as they matter."""
    blocks = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in device.block_map().items()}
    smart = {key: value for key, value in device.smart().items() if key != "uuid"}
    stats = {key: value for key, value in device.stats().items() if key != "virtual_s"}
    clock = device._image.chip.clock()
    dies = [max(0, ns - device.quiet_at()) for ns in clock["dies"]]
    where = [device.ssd.mapping.explain(lpa) for lpa in range(0, GEOMETRY.lpas, 7)]
    return {"blocks": blocks, "smart": smart, "stats": stats, "dies": dies, "where": where}


@pytest.mark.parametrize("dram", [None, 12 << 20])
@pytest.mark.parametrize("backend", ["meta", "file"])
@pytest.mark.parametrize("ftl", rotated(1))
def test_prepared_or_not_the_results_are_the_same(ftl: str, backend: str, dram: int | None, tmp_path: Path) -> None:
    """To the bit: the device before anything is measured, all that the measurement finds, and the device after it."""
    bare = setup(
        "zipf:ops=12k,write=0.6,size=4k/8:16k/2,trim=0.02,flush=0.01,qd=4", ftl=ftl, backend=backend, dram=dram,
        precondition="steady:most=1", before=("uniform:ops=6k,write=0.7,qd=8", "sequential:ops=3k,write=1"),
    )  # fmt: skip
    states = []
    for one in (bare, replace(bare, prepared=tmp_path / "kept"), replace(bare, prepared=tmp_path / "kept")):
        with play._device(one, Precondition.parse(one.precondition), None) as (device, done):
            device.forget_counts()
            player = play.Player(device.ssd, 4, device.quiet_at())
            before = everything(device)
            for batch in play.open_source(one.source, device.size).batches():
                player.play(batch.time_ns, batch.op, batch.offset, batch.length)
            times = {name: histogram.buckets() for name, histogram in player.histograms().items()}
            states.append([done, before, everything(device), times, player.end_ns - player.base_ns])
    assert states[0] == states[1] == states[2]
    results = [steady(run(one)) for one in (bare, replace(bare, prepared=tmp_path / "kept"))]
    assert json.dumps(results[0]) == json.dumps(results[1])


def test_phases_come_before_and_are_not_counted(tmp_path: Path) -> None:
    trace = tmp_path / "first.csv"
    trace.write_text("".join(f"{i * 10},host,0,Write,{i % 100 * 4096},4096,1\n" for i in range(500)))
    made = run(setup("uniform:ops=100,write=1", before=(str(trace), "sequential:ops=50,write=1"), trace=None))
    assert made["host"]["write"] == made["requests"]["write"] == 100
    assert [(one["requests"], one["host"]["write"]) for one in made["before"]] == [(500, 500), (50, 50)]
    assert made["precondition"] is None
    assert [one["hash"] for one in made["config"]["before"]] == [
        play.open_source(one, GEOMETRY.logical_bytes).hash() for one in (str(trace), "sequential:ops=50,write=1")
    ]
    assert str(trace) not in json.dumps(made["config"]["before"])  # its content counts, not its name
    with pytest.raises(TraceError, match=r"--before .*first.csv: 400 of 500 requests could not be replayed"):
        trace.write_text("".join(f"{i * 10},host,0,Write,{(i % 5 << 40) + i * 4096},4096,1\n" for i in range(500)))
        run(setup("uniform:ops=100,write=1", before=(str(trace),)))


def test_warm_phases_leave_caches_warm_and_are_not_counted() -> None:
    reads = "uniform:ops=2k,write=0,seed=5"
    written = ("uniform:ops=300,write=1",)
    one = setup(reads, ftl="dftl", options={"cmt_bytes": "16384"}, precondition="fill", before=written)
    cold, warm = run(one), run(replace(one, warm=(reads, "uniform:ops=3k,write=0,seed=6")))
    assert cold["warm"] == [] and [each["requests"] for each in warm["warm"]] == [2000, 3000]
    assert warm["host"]["read"] == cold["host"]["read"] == 2000 and warm["host"]["write"] == 0
    assert cold["scheme"]["hit_ratio"] + 0.05 < warm["scheme"]["hit_ratio"]
    assert warm["config"]["warm"][0]["hash"] == play.open_source(reads, GEOMETRY.logical_bytes).hash()
    assert len(warm["config"]["warm"]) == 2 and cold["config"]["warm"] == []


@pytest.mark.parametrize("change", [
    {"before": ("uniform:ops=50,write=1",)}, {"before": ()}, {"dram": 30 << 20}, {"precondition": "none"},
    {"before": ("uniform:ops=60,write=1", "uniform:ops=50,write=1")}, {"ftl": "slimftl"}, {"options": {"buffer": "3"}},
])  # fmt: skip
def test_a_prepared_image_is_of_all_that_made_it(change: dict[str, Any], tmp_path: Path) -> None:
    one = setup("uniform:ops=10,write=1", precondition="fill", before=("uniform:ops=60,write=1",), prepared=tmp_path)
    run(one)
    run(replace(one, **change))
    run(replace(one, source="uniform:ops=20,write=1"))  # what is measured has no part in it
    assert len(list(tmp_path.glob("*.nand"))) == 2


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
    from flashfs.replay.open_source import open_source

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
    both = named(setup(options={"stripe": "2", "gamma": "4"}), "pagemap,leaftl")
    own = [{name: one.options[name] for name in ("stripe", "gamma") if name in one.options} for one in both]
    assert own == [{"stripe": "2"}, {"gamma": "4"}]
    with pytest.raises(UsageError, match="option nonesuch"):
        named(setup(options={"nonesuch": "1"}), "pagemap,leaftl")
    assert [one.ftl for one in named(setup(), "ALL")] == list(SCHEMES)
    for bad in ("", "pagemap,pagemap", ",", "all,dftl"):
        with pytest.raises(UsageError, match="each once"):
            named(setup(), bad)
    with pytest.raises(UsageError, match="no FTL is called"):
        named(setup(), "pagemap,nonesuch")


def test_a_recorded_trace_gives_the_hosts_counts(tmp_path: Path) -> None:
    """What a device was asked while it was recorded, it is asked again: the same host pages, on any FTL."""
    from flashfs.replay._record import OPERATIONS
    from flashfs.replay.trace_writer import open_recording

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
