"""`flashfs replay` on the command line: tables, JSON, and one line for what will not do."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nandimg
from flashfs import cli
from flashfs.cli.replay import bar
from flashfs.replay import results

SMALL = ("--size", "32M", "--op", "0.25", "--pages-per-block", "32")
KEYS = {
    "ftl", "host", "nand", "scheme", "waf", "dram", "heap", "latency_us", "iops", "virtual_s", "wall_s", "pages_per_s",
}  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(one) for one in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def objects(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    code, out, err = run(capsys, "replay", *arguments, "--json")
    assert code == 0, err
    return list(json.loads(out))


def test_a_table_for_each_source(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(
        capsys, "replay", "uniform:ops=2k", "zipf:ops=2k,write=0.5", "--ftl", "pagemap,slimftl", *SMALL,
        "--precondition", "fill",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out.count("pagemap") == out.count("slimftl") == 2
    for text in ("uniform:ops=2k", "zipf:ops=2k", "WAF", "mapping", " x)", "read, p99 us", "IOPS"):
        assert text in out


def test_the_table_says_how_worn_the_chip_is(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("uniform:ops=4k", *SMALL, "--precondition", "fill")
    [one] = objects(capsys, *words)
    erases = one["wear"]["erases"]
    assert erases["max"] > erases["mean"] > erases["min"]
    lines = run(capsys, "replay", *words)[1].splitlines()
    shown = dict(line.strip().rsplit("  ", 1) for line in lines if "wear:" in line)
    assert {name.strip(): text.strip() for name, text in shown.items()} == {
        "wear: mean erases": f"{erases['mean']:.3f}", "wear: most erases": f"{erases['max']}",
        "wear: most - least": f"{erases['spread']}",
    }  # fmt: skip


def test_the_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("replay", "uniform:ops=2k", "--ftl", "pagemap,slimftl", *SMALL)
    first, second = (run(capsys, *words, *more)[1].splitlines() for more in ((), ("--baseline", "slimftl")))
    row = next(line for line in first if "mapping" in line)
    other = next(line for line in second if "mapping" in line)
    assert row.index(" x)") > other.index(" x)")
    code, _, err = run(capsys, *words, "--baseline", "nonesuch")
    assert code == 2
    assert "use pagemap, slimftl" in err


def test_json_has_what_programs_look_for(capsys: pytest.CaptureFixture[str]) -> None:
    found = objects(capsys, "uniform:ops=3k,write=0.5", "--ftl", "pagemap,slimftl", "--dram", "16M", *SMALL)
    assert [one["ftl"] for one in found] == ["pagemap", "slimftl"]
    for one in found:
        assert set(one) >= KEYS
        assert "series" not in one
        assert set(one["latency_us"]["read"]) >= {"mean", "p50", "p99", "p999"}
        assert one["dram"]["total"] <= 16 << 20
        assert one["dram"]["data_cache"]
    (full,) = objects(capsys, "uniform:ops=3k", "--full", *SMALL)
    assert full["series"]
    assert full["histograms"]["write"]["count"]


def test_rejected_lines_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "one.csv"
    lines = ["128166372003061629,hm,0,Write,0,4096,11", "128166372003061629,hm,0,Write,-4096,4096,11", "no line at all",
             "128166372003061639,hm,0,Read,0,4096,11", f"128166372003061649,hm,0,Read,{1 << 40},4096,11"]  # fmt: skip
    trace.write_text("\n".join([*lines, lines[0], lines[3]]) + "\n")
    code, _, err = run(capsys, "replay", trace, *SMALL)
    assert code == 0
    assert err.count(" rejected: ") == 3  # a reason each, with its first line
    assert all(f"line {number}" in err for number in (2, 3, 5))
    (made,) = objects(capsys, trace, *SMALL)
    assert made["requests"]["write"] == made["requests"]["read"] == 2
    assert sum(row["count"] for row in made["input"]["rejected"]) == 3


def test_traces_and_workloads_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "one.csv"
    trace.write_text("128166372003061629,hm,0,Write,0,4096,11\n" * 10)
    found = objects(capsys, trace, "uniform:ops=10", "--loops", 3, *SMALL)
    assert [one["requests"]["write"] for one in found] == [30, 10]
    code, _, err = run(capsys, "replay", "uniform:ops=10", "--loops", 3, *SMALL)
    assert code == 2
    assert "options of traces" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nonesuch"], "no such file"), (["uniform:ops=0"], "ops"), (["uniform", "--ftl", "nonesuch"], "no FTL"),
        (["uniform", "--preset", "nonesuch"], "no such preset"),
        (["uniform", "--preset", "tiny-8", "--dies", "2"], "whole chip"),
        (["uniform", "--dram", "0"], "--dram 0"), (["uniform", "--dram", "1k"], "pagemap needs"),
        (["uniform", "--precondition", "x"], "--precondition x"), (["uniform", "--opt", "x=1"], "option x"),
        (["uniform", "--qd", "-1"], "qd"), (["uniform", "--image", "x", "--size", "1G"], "whole chip"),
        (["uniform", "--image", "none"], "none"), (["uniform", "--backend", "tape"], "tape"),
    ],
)  # fmt: skip
def test_one_line_for_what_will_not_do(capsys: pytest.CaptureFixture[str], words: list[str], why: str) -> None:
    code, out, err = run(capsys, "replay", *words)
    assert code in (1, 2)
    assert out == ""
    assert len(err.splitlines()) == 1
    assert why in err


def test_an_image(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    image = tmp_path / "chip.nand"
    nandimg.create(image, nandimg.Geometry.sized(32 << 20, op=0.25, pages_per_block=32))
    (made,) = objects(capsys, "uniform:ops=1k", "--image", image, "--ftl", "slimftl")
    assert made["ftl"] == "slimftl"
    assert not nandimg.inspect(image).ftl  # what is replayed is a copy


def test_a_trace_gets_a_device_that_is_large_enough(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "one.csv"
    near, far = 3 << 30, 900 << 30
    trace.write_text("".join(f"128166372003061629,hm,0,Write,{at},4096,11\n" for at in (0, near)))
    code, out, err = run(capsys, "replay", trace, "--json")
    assert code == 0
    assert "on a device of 4 GiB" in err
    assert json.loads(out)[0]["config"]["geometry"]["lpas"] == 1 << 20
    trace.write_text("".join(f"128166372003061629,hm,0,Write,{at},4096,11\n" for at in (0, far)))
    code, out, err = run(capsys, "replay", trace, "--json")
    assert "packed" in err
    (made,) = json.loads(out)
    assert made["requests"]["write"] == 2
    assert made["config"]["geometry"]["lpas"] == 1 << 18
    assert made["config"]["trace"]["fit"] == "pack"
    (made,) = objects(capsys, trace, "--size", "1G")  # an explicit size takes precedence
    assert made["requests"]["write"] == 1


def test_reads_of_nothing_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("replay", "uniform:ops=500,write=0", *SMALL)
    assert "100% of the pages that it reads hold nothing" in run(capsys, *words)[2]
    assert run(capsys, *words, "--precondition", "fill")[2] == ""


@pytest.mark.parametrize(
    ("name", "content", "code", "why"),
    [
        ("noise.csv", bytes(range(256)) * 20, 1, "noise.csv"),
        ("empty.csv", b"", 1, "empty.csv"),
        ("cut.csv.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03K\xce", 1, "cut.csv.gz"),
        ("back.csv", b"100000000,hm,0,Write,0,4096,1\n50000000,hm,0,Write,0,4096,1\n", 0, "time goes back"),
    ],
)
def test_a_bad_trace_gets_one_clear_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, content: bytes, code: int, why: str
) -> None:
    (tmp_path / name).write_bytes(content)
    found, out, err = run(capsys, "replay", tmp_path / name, "--size", "32M", "--pages-per-block", "32", "--op", "0.25")
    assert found == code
    assert len(err.splitlines()) == 1
    assert why in err
    assert "internal" not in err
    assert bool(out) == (code == 0)


def test_flags_of_the_geometry_leave_the_size_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A trace that reaches to 5 GiB gets 8 GiB, whatever its pages and dies are; and nothing of it is lost."""
    path = tmp_path / "far.csv"
    path.write_text("".join(f"{i},host,0,Write,{(i % 2) * (5 << 30) + i * 4096},4096,1\n" for i in range(100)))
    for flags in (("--page-size", "8k"), ("--dies", "4"), ("--op", "0.3", "--pages-per-block", "128"), ()):
        (found,) = objects(capsys, path, *flags)
        geometry = found["config"]["geometry"]
        assert geometry["lpas"] * geometry["page_bytes"] == 8 << 30
        assert (found["requests"]["write"], found["input"]["rejected"]) == (100, [])
    assert geometry["dies"] == 8
    (found,) = objects(capsys, path, "--dies", "4")
    assert found["config"]["geometry"]["dies"] == 4


def test_a_replay_that_lost_most_of_its_requests_ends_with_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, out = tmp_path / "far.csv", tmp_path / "out.csv"
    path.write_text("".join(f"{i},host,0,Write,{(i % 50 > 0) * (5 << 30) + i * 4096},4096,1\n" for i in range(100)))
    code, table, err = run(capsys, "replay", path, *SMALL, "--out", out)
    assert code == 1
    assert "far.csv: 98 of 100 requests could not be replayed (beyond the device: 98)" in err
    assert "pagemap" in table  # what there is of it is shown and kept
    assert out.exists()
    half = tmp_path / "half.csv"
    half.write_text("".join(f"{i},host,0,Write,{(i % 2 > 0) * (5 << 30) + i * 4096},4096,1\n" for i in range(100)))
    assert run(capsys, "replay", half, *SMALL)[0] == 0


def test_a_table_by_its_columns(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text("".join(f"{i}.5;{i * 8};1;W\n" for i in range(40)))
    code, _, err = run(capsys, "replay", path)
    assert code == 1
    assert "--columns says what the columns of a table are" in err
    assert len(err.splitlines()) == 1
    (found,) = objects(capsys, path, "--columns", "time:ms,offset:512,length:4k,op")
    assert found["host"]["write"] == 40
    assert found["config"]["source"]["format"] == "columns:time:ms,offset:512,length:4096,op"
    code, _, err = run(capsys, "replay", path, "--columns", "op,offset,length", "--format", "msr")
    assert (code, "use one of them" in err) == (2, True)
    code, said, _ = run(capsys, "trace", "info", path, "--columns", "time:ms,offset:512,length:4k,op")
    assert (code, "40" in said) == (0, True)


def test_a_format_that_is_only_likely_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing of these requests follows on another, and their sizes could be pages; named, there is nothing to tell."""
    path = tmp_path / "five.txt"
    path.write_text("".join(f"{i * 1000000} 0 {i * 7919 % 4093 * 8} {i % 5 * 8 + 8} 0\n" for i in range(100)))
    code, _, err = run(capsys, "replay", path)
    assert code == 0
    assert "five.txt: read as mqsim, likely: " in err
    assert "next, --columns time:ns,dev,offset:512,length:4096,op:1=read: as pages, 100% of the sizes" in err
    assert "likely" not in run(capsys, "replay", path, "--format", "mqsim")[2]


def test_phases_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("uniform:ops=500,write=1", *SMALL, "--before", "sequential:ops=9k,write=1", "--before", "uniform:ops=700")
    (found,) = objects(capsys, *words)
    assert [one["requests"] for one in found["before"]] == [9000, 700]
    assert found["host"]["write"] == 500
    code, _, err = run(capsys, "replay", "uniform", *SMALL, "--before", "nonesuch")
    assert (code, "nonesuch: no such file" in err) == (2, True)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_speed_that_keeps_the_dies_busy(share: float, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The page map is as busy as asked, and every FTL gets the same arrivals."""
    path = tmp_path / "slow.csv"
    op = ("Read", "Write")
    lines = [f"{i * 1_000_000},host,0,{op[i % 2]},{i * 7919 % 4096 * 4096},4096,1\n" for i in range(4000)]
    path.write_text("".join(lines))
    words = (path, "--ftl", "pagemap,slimftl", *SMALL, "--precondition", "fill")
    found = objects(capsys, *words, "--speedup", f"u={share}")
    assert max(found[0]["utilisation"][name]["mean"] for name in ("dies", "channels")) == pytest.approx(share, rel=0.05)
    assert found[0]["config"]["trace"]["speedup"] == found[1]["config"]["trace"]["speedup"] > 1
    assert found[0]["config"]["trace"]["utilisation"] == share
    if share == 0.7:
        again = objects(capsys, *words, "--speedup", "auto")
        assert again[0]["latency_us"] == found[0]["latency_us"]
    for more, why in ((("--qd", "4"), "closed loop"), (("--speedup", "fast"), "auto or u=0.7")):
        code, _, err = run(capsys, "replay", *words, "--speedup", f"u={share}", *more)
        assert (code, why in err) == (2, True)


def strange(tmp_path: Path) -> Path:
    """A trace whose name is no UTF-8, in a folder of which the same holds."""
    folder = tmp_path / os.fsdecode(b"d\xff")
    folder.mkdir()
    path = folder / os.fsdecode(b"t\xfe.csv")
    path.write_text("".join(f"{i},host,0,Write,{i * 4096},4096,1\n" for i in range(20)))
    return path


def test_names_that_are_no_utf_8(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, shown = strange(tmp_path), "d\\udcff/t\\udcfe.csv"
    image = path.with_name(os.fsdecode(b"c\xfd.nand"))
    nandimg.create(image, nandimg.Geometry.sized(32 << 20, op=0.25, pages_per_block=32))
    for out in (tmp_path / "r.csv", path.with_name("r.parquet")):
        code, table, err = run(capsys, "replay", path, *SMALL, "--out", out)
        assert (code, err) == (0, "")
        assert shown in table.replace("\n", "")
        code, _, err = run(capsys, "replay", path, "--image", image, "--out", out)
        assert (code, err) == (0, "")
        assert [name.endswith(shown) for name in results.read([out])["source"]] == [True, True]
    (found,) = objects(capsys, path, *SMALL)
    assert found["source"] == str(path)
    code, out, err = run(capsys, "trace", "info", path)
    assert (code, err, shown in out.replace("\n", "")) == (0, "", True)
    code, _, err = run(capsys, "replay", path.with_name("gone"), *SMALL)
    assert (code, "d\\udcff/gone: no such file; workloads are" in err) == (2, True)
    spec = path.with_name("s.toml")
    spec.write_text(f'source = "uniform:ops=9"\nimage = "{"c.nand"}"\n')
    image.rename(path.with_name("c.nand"))
    code, out, err = run(capsys, "sweep", spec, "--jobs", 1)
    assert (code, err) == (0, "")


def test_a_bar_names_what_is_no_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, which takes UTF-8 alone."""
    written = io.BytesIO()
    terminal = io.TextIOWrapper(written, encoding="utf-8")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    with bar(os.fsdecode(b"t\xfe.csv on pagemap")) as move:
        move(1, 2)
    terminal.flush()
    assert rb"t\udcfe.csv on pagemap" in written.getvalue()


def test_all_sources_are_looked_at_before_the_first_is_played(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []
    monkeypatch.setattr("flashfs.replay.play.run", lambda setup, progress: played.append(setup.source))
    noise = tmp_path / "noise"
    noise.write_text("To be, or not to be\n")
    good = "uniform:ops=10"
    for words, why in (
        ((good, "gone.csv"), "gone.csv: no such file"), ((good, "zipf:ops=0"), "zipf:ops=0"),
        ((good, noise), "no trace format that is known"), ((good, good, "--before", "gone"), "gone: no such file"),
        ((good, good, "--warm", noise), "no trace format that is known"),
    ):  # fmt: skip
        code, out, err = run(capsys, "replay", *words, *SMALL)
        assert (code in (1, 2), out, why in err) == (True, "", True)
    assert played == []


def test_what_an_ftl_lacks_is_said_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("lacking")
    module.Ftl = type("Ftl", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lacking", module)
    code, _, err = run(capsys, "replay", "uniform:ops=10", "--ftl", "lacking:Ftl")
    assert (code, err) == (2, "flashfs: FTL lacking:Ftl: the class lacks lookup, bind, unbind\n")


def test_sorted_by_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "back.csv"
    path.write_text("".join(f"{at * 10_000_000},host,0,Write,{at * 4096},4096,1\n" for at in (3, 1, 2, 0)))
    code, _, err = run(capsys, "replay", path, *SMALL)
    assert (code, "time goes back" in err, "--sort" in err) == (0, True, True)
    (found,) = objects(capsys, path, *SMALL, "--sort")
    assert found["input"]["adjusted"] == []
    assert found["config"]["trace"]["sort"] is True
    assert found["virtual_s"] >= 3
    code, out, err = run(capsys, "trace", "info", path, "--sort", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["duration_s"] == 3
    code, _, err = run(capsys, "replay", "uniform:ops=10", "--sort")
    assert (code, "options of traces" in err) == (2, True)


def test_a_pipe_is_refused_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It has no writer, so opening it would wait for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for words in (("trace", "info", pipe), ("replay", pipe), ("replay", "-"), ("trace", "info", "-")):
        code, out, err = run(capsys, *words)
        assert (code in (1, 2), out) == (True, "")
        assert "a trace is read more than once and has to be a file: write it to one first\n" in err
        assert len(err.splitlines()) == 1
