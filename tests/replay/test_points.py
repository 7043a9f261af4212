"""What a table of names and values stands for, and the names that results are filed under."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest
from trace_files import DATA

import nandimg
from flashfs.cli.shape import geometry_of
from flashfs.device import Device
from flashfs.errors import FlashfsError, UsageError
from flashfs.replay import grid
from flashfs.replay.results import saved_row
from nandimg.presets import PRESETS

SMALL = {"source": "uniform:ops=10", "preset": "small-64m"}


def test_every_combination() -> None:
    setups = grid.expand(
        {
            "ftl": ["pagemap", "slimftl"], "source": ["uniform:ops=10", "zipf:ops=10"], "dram": ["4M", 1 << 23, "none"],
            "size": "32M", "opt": {"buffer": 8, "slimftl": {"shift": [0, 4]}},
        }
    )  # fmt: skip
    assert len(setups) == 2 * 3 * (1 + 2)
    assert [(s.source, s.dram, s.ftl, s.options.get("shift")) for s in setups[:4]] == [
        ("uniform:ops=10", 4 << 20, "pagemap", None), ("uniform:ops=10", 4 << 20, "slimftl", 0),
        ("uniform:ops=10", 4 << 20, "slimftl", 4), ("uniform:ops=10", 8 << 20, "pagemap", None),
    ]  # fmt: skip
    assert all(s.options["buffer"] == 8 and s.geometry.logical_bytes == 32 << 20 for s in setups)
    assert len(set(grid.keys(setups))) == len(setups)


def test_flags_are_read_as_the_commands_read_them() -> None:
    [setup] = grid.expand(
        {
            "source": "msr.csv", "size": "64M", "page-size": "8k", "pages_per_block": 64, "channels": 2, "dies": 4,
            "op": 0.25, "oob": 64, "qd": "16", "shift": "-3584", "fit": "pack", "pack": "4k", "loops": 2, "first": "1k",
            "speedup": 2, "precondition": "fill",
        },
        folder=DATA,
    )  # fmt: skip
    geometry, trace = setup.geometry, setup.trace
    assert (geometry.page_bytes, geometry.pages_per_block, geometry.channels, geometry.dies) == (8192, 64, 2, 4)
    assert (geometry.logical_bytes, geometry.oob_bytes, round(geometry.op, 2)) == (64 << 20, 64, 0.25)
    assert trace is not None
    assert (trace.shift_bytes, trace.fit, trace.pack_bytes, trace.loops, trace.first) == (-3584, "pack", 4096, 2, 1000)
    assert (setup.source, setup.qd, trace.speedup, setup.precondition) == (str(DATA / "msr.csv"), 16, 2.0, "fill")


def test_a_chip_of_few_words_is_that_of_the_other_commands() -> None:
    [setup] = grid.expand({"source": "uniform:ops=10", "size": "64M", "op": 0.2})
    assert setup.geometry == geometry_of(None, "64M", None, op="0.2")
    [setup] = grid.expand({"source": "uniform:ops=10"})
    assert setup.geometry == geometry_of(None, None, None)


def test_a_trace_gets_a_device_that_is_large_enough() -> None:
    """As from `flashfs replay`, and it is reported once, however many points are on it."""
    told: list[str] = []
    setups = grid.expand({"source": [str(DATA / "msr.csv"), "uniform:ops=9"], "dram": ["8M", "9M"]}, tell=told.append)
    assert [setup.geometry.logical_bytes for setup in setups] == [1 << 30] * 4
    assert [line.partition(": ")[2] for line in told] == [
        "on a device of 1 GiB, which has all its addresses; --size would choose"
    ]
    for more in ({"size": "64M"}, {"fit": "wrap"}):
        grid.expand({"source": str(DATA / "msr.csv"), **more}, tell=told.append)
    assert len(told) == 1


def test_flags_of_the_geometry_leave_the_size_alone(tmp_path: Path) -> None:
    path = tmp_path / "far.csv"
    path.write_text("".join(f"{i},host,0,Write,{(i % 2) * (5 << 30) + i * 4096},4096,1\n" for i in range(100)))
    [plain], [shaped] = (grid.expand({"source": str(path), **more}) for more in ({}, {"dies": 4, "page_size": "8k"}))
    assert plain.geometry.logical_bytes == shaped.geometry.logical_bytes == 8 << 30
    assert (shaped.geometry.dies, shaped.geometry.page_bytes) == (4, 8192)


def test_phases_and_columns_are_keys_like_others(tmp_path: Path) -> None:
    """One phase, several of them, or several values of which each is one or several."""
    def of(value: object) -> list[tuple[str, ...]]:
        return [setup.before for setup in grid.expand({**SMALL, "before": value})]

    assert of("uniform:ops=5") == [("uniform:ops=5",)]
    assert of(["uniform:ops=5", "none"]) == [("uniform:ops=5",), ()]
    assert of([["uniform:ops=5", "zipf:ops=6"], "zipf:ops=6"]) == [("uniform:ops=5", "zipf:ops=6"), ("zipf:ops=6",)]
    (tmp_path / "a.csv").write_text((DATA / "msr.csv").read_text())
    [setup] = grid.expand({**SMALL, "before": "a.csv"}, folder=tmp_path)
    assert setup.before == (str(tmp_path / "a.csv"),)
    (tmp_path / "b.csv").write_text((DATA / "msr.csv").read_text())
    [other] = grid.expand({**SMALL, "before": "b.csv"}, folder=tmp_path)
    assert grid.keys([setup]) == grid.keys([other]) != grid.keys(grid.expand(SMALL))  # content, not name
    (tmp_path / "t.txt").write_text("0;8;1;W\n" * 20)
    [setup] = grid.expand({"source": "t.txt", "columns": "time:ms,offset:512,length:4k,op"}, folder=tmp_path)
    assert setup.format == "columns:time:ms,offset:512,length:4096,op"


def test_an_option_goes_to_those_that_know_it() -> None:
    setups = grid.expand({**SMALL, "ftl": ["pagemap", "slimftl"], "opt": {"shift": [1, 2], "buffer": 8}})
    assert [(s.ftl, s.options["buffer"], s.options.get("shift")) for s in setups] == [
        ("pagemap", 8, None), ("slimftl", 8, 1), ("slimftl", 8, 2),
    ]  # fmt: skip


def test_seeds_are_the_workloads() -> None:
    setups = grid.expand({"source": ["uniform", "zipf:ops=9", str(DATA / "msr.csv")], "seed": [1, 2], "size": "16M"})
    assert [setup.source for setup in setups] == [
        "uniform:seed=1", "uniform:seed=2", "zipf:ops=9,seed=1", "zipf:ops=9,seed=2", str(DATA / "msr.csv"),
    ]  # fmt: skip


def test_an_image_is_a_whole_chip(tmp_path: Path) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, PRESETS["tiny-16"].geometry)
    Device.open(path, ftl="slimftl").close()
    given = {"source": "uniform:ops=10", "image": str(path)}
    [setup] = grid.expand(given)
    assert (setup.ftl, setup.image, setup.geometry) == ("slimftl", path, PRESETS["tiny-16"].geometry)
    before = grid.keys([setup])
    with Device.open(path) as device:
        device.write(0, bytes(512))
    assert grid.keys([setup]) != before
    for name, value in (("ftl", "pagemap"), ("size", "1G"), ("backend", "file")):
        with pytest.raises(UsageError, match=f"{name}: an image "):
            grid.expand({**given, name: value})


def test_options_of_traces_are_not_for_workloads() -> None:
    sources = [str(DATA / "msr.csv"), "uniform:ops=10"]
    setups = grid.expand({"source": sources, "fit": ["clip", "wrap"], "size": "64M"})
    assert [(Path(s.source).name, s.trace.fit if s.trace else None) for s in setups] == [
        ("msr.csv", "clip"), ("msr.csv", "wrap"), ("uniform:ops=10", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "source: use a trace or a workload, or a list of them"),
        ({"source": []}, "source = []: use a value"),
        ({"source": 3}, "source = 3: use a text"),
        ({"source": "nonesuch"}, "nonesuch: no such file; workloads are"),
        ({"source": "uniform:nonesuch=1"}, "uniform:nonesuch=1: 'nonesuch=1': use KEY=VALUE"),
        ({**SMALL, "ftl": "nonesuch"}, "no FTL is called 'nonesuch'"),
        ({**SMALL, "ftl": ["pagemap", "pagemap"]}, "ftl = 'pagemap': it is there twice"),
        ({**SMALL, "dram": "4q"}, "dram = '4q': use a size above 0, as 4k or 1M"),
        ({**SMALL, "dram": True}, "dram = True: use a size above 0, as 4k or 1M"),
        ({**SMALL, "dram": 0}, "dram = 0: use a size above 0"),
        ({**SMALL, "qd": -1}, "qd = -1: "),
        ({**SMALL, "qd": 1.5}, "qd = 1.5: "),
        ({**SMALL, "seed": -1}, "seed = -1: use a whole number from 0 on"),
        ({"source": "uniform:seed=1", "seed": 2}, "seed is there twice"),
        ({**SMALL, "backend": "tape"}, "backend = 'tape': use meta or file"),
        ({**SMALL, "plp": 1}, "plp = 1: use true or false"),
        ({**SMALL, "precondition": "much"}, "--precondition much: use none, fill, steady"),
        ({**SMALL, "speedup": 0}, "speedup = 0: use a number above 0"),
        ({**SMALL, "speedup": "u=x"}, "speedup = 'u=x': use a number above 0"),
        ({"source": str(DATA / "msr.csv"), "speedup": "u=2"}, "speed-up u=2: use a share above 0, 1 at most"),
        ({**SMALL, "before": "nonesuch"}, "nonesuch: no such file; workloads are"),
        ({**SMALL, "before": [[3]]}, "before = [3]: use a text"),
        ({"source": str(DATA / "msr.csv"), "columns": "op"}, "--columns op: no offset in it"),
        ({**SMALL, "nonesuch": 1}, "nonesuch: no such key; use source, ftl, "),
        ({**SMALL, "page-size": 1, "page_size": 2}, "page_size: it is there twice"),
        ({**SMALL, "preset": "nonesuch"}, "preset = 'nonesuch': no such preset; see flashfs presets"),
        ({**SMALL, "size": "1G"}, "preset = 'small-64m': it is a whole chip: leave size out"),
        ({**SMALL, "opt": 3}, "opt = 3: use a table of NAME = VALUE"),
        ({**SMALL, "opt": {"nonesuch": 1}}, "opt.nonesuch: use buffer, "),
        ({**SMALL, "opt": {"pagemap": {"nonesuch": 1}}}, "option nonesuch: pagemap has "),
        ({**SMALL, "opt": {"slimftl": {}}}, "opt.slimftl: options of an FTL that is not in ftl: use pagemap"),
        ({**SMALL, "opt": {"buffer": []}}, "opt.buffer = []: use a value"),
        ({**SMALL, "ftl": "slimftl", "opt": {"shift": 99}}, "option shift=99: use a whole number from 0 to "),
        ({"source": str(DATA / "msr.csv"), "fit": "squeeze"}, "fit squeeze: use clip, wrap, scale, pack"),
        ({"source": str(DATA / "msr.csv"), "format": "nonesuch"}, "format nonesuch: "),
    ],
)  # fmt: skip
def test_what_will_not_do_is_told_in_one_line(given: dict[str, object], said: str) -> None:
    with pytest.raises(FlashfsError) as caught:
        grid.expand(given)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_geometry_that_cannot_be_is_told() -> None:
    with pytest.raises(Exception, match="page_bytes is 3000: use a power of two"):
        grid.expand({"source": "uniform:ops=10", "page_size": 3000})


def key(**given: object) -> str:
    [one] = grid.keys(grid.expand({**SMALL, **given}))
    return one


def test_a_name_is_of_everything_that_makes_a_result() -> None:
    keys = [
        key(), key(ftl="slimftl"), key(opt={"buffer": 8}), key(dram="4M"), key(qd=4), key(seed=2), key(plp=True),
        key(precondition="fill"), key(preset="demo-1g"), key(source="uniform:ops=11"), key(backend="file"),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert key() == key(ftl="pagemap", opt={"buffer": -1})  # the default, said
    assert key() == key(source="uniform:write=1,ops=10") == key(seed=1)
    assert key(seed=2) == key(source="uniform:ops=10,seed=2")
    assert key() == key(precondition="none") == key(prepared="somewhere")


def test_a_trace_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    one, other, packed = (tmp_path / name for name in ("one.csv", "other.csv", "packed.gz"))
    shutil.copy(DATA / "msr.csv", one)
    shutil.copy(DATA / "msr.csv", other)
    packed.write_bytes(gzip.compress(one.read_bytes()))
    assert key(source=str(one)) == key(source=str(other)) == key(source=str(packed))
    before = key(source=str(one))
    lines = one.read_text().splitlines(keepends=True)
    one.write_text("".join(lines[:-1]))
    os.utime(one, ns=(1, 1))
    assert key(source=str(one)) != before
    assert key(source=str(one), fit="wrap") != key(source=str(one))


def test_a_changed_ftl_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (Path(__file__).parents[2] / "examples" / "minimal.py").read_text()
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_ftl_of_a_test.py").write_text(source)
    before = key(ftl="own_ftl_of_a_test:Minimal")
    (tmp_path / "own_ftl_of_a_test.py").write_text(source + "\n# another thought\n")
    assert key(ftl="own_ftl_of_a_test:Minimal") != before


def test_the_program_is_known_by_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what replays, not of what prints it."""
    for folder in ("flashfs/engine/device", "flashfs/ftl", "flashfs/cli", "flashfs/replay/plots", "nandimg"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "flashfs/__init__.py").touch()
    (tmp_path / "nandimg/_chip.pyx").touch()
    monkeypatch.setattr(grid.flashfs, "__file__", str(tmp_path / "flashfs/__init__.py"))

    def code() -> str:
        grid.code.cache_clear()
        return grid.code()

    try:
        assert code() == grid.flashfs.__version__  # an installed one
        (tmp_path / "flashfs/engine/device/ssd.pyx").touch()
        found = [code()]
        for name in ("flashfs/cli/plot.py", "flashfs/replay/plots/_draw.py"):
            (tmp_path / name).write_text("1")
            assert code() == found[0]
        for name in ("flashfs/engine/device/ssd.pyx", "flashfs/ftl/new.py", "nandimg/_chip.pyx"):
            (tmp_path / name).write_text("2")
            found.append(code())
        assert len(set(found)) == 4
    finally:
        grid.code.cache_clear()


def test_a_failed_point_is_a_row_too() -> None:
    [setup] = grid.expand({**SMALL, "dram": "4M"})
    saved = {"key": "k", "code": "c", "point": grid.plain(setup), "error": "too small"}
    row = saved_row(saved)
    assert (row["ftl"], row["source"], row["error"], row["key"]) == ("pagemap", "uniform:ops=10", "too small", "k")
    assert row["config.dram"] == 4 << 20
    assert row["config.geometry.page_bytes"] == 4096


def test_sorting_is_a_key() -> None:
    given = {"source": str(DATA / "msr.csv"), "size": "64M", "sort": [False, True]}
    assert [setup.trace is not None and setup.trace.sort for setup in grid.expand(given)] == [False, True]
    with pytest.raises(UsageError, match="sort = 1: use true or false"):
        grid.expand({**given, "sort": 1})


def test_a_message_names_no_trace_of_ours(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(FlashfsError, match="empty: empty"):
        grid.expand({"source": "empty"}, folder=tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        grid.expand({"source": "gone"}, folder=tmp_path)
