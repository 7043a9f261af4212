"""Figures and pictures of requests, against counts made the slow way; and `flashfs trace` as a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_files import DATA, FILES, MS, REQUESTS

from flashfs import cli
from flashfs.replay import footprint
from flashfs.replay.footprint import Distinct, PageSets
from flashfs.replay.picture import COLUMNS, ROWS, Grid, Picture, shades
from flashfs.replay.request_source import READ, TRIM, WRITE, Batch
from flashfs.replay.survey import Spread, survey
from flashfs.replay.traces import Options, Trace
from flashfs.replay.workloads import WORKLOADS, Workload

PAGE = 4096


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, list[str]]:
    """(exit code, stdout, lines of stderr)."""
    code = cli.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "internal error" not in err
    assert all(line.startswith("flashfs: ") for line in err.splitlines())
    return code, out, err.splitlines()


def test_sets_of_pages() -> None:
    rng = np.random.default_rng(1)
    sets, plain = PageSets(), [set[int](), set[int]()]
    for _ in range(20):
        for bit in (0, 1):
            first = rng.integers(0, rng.choice([300, 100_000, 1 << 40]), 100)
            count = rng.integers(1, rng.choice([2, 20, 900]), 100)
            sets.add(bit, first, count)
            for at, n in zip(first.tolist(), count.tolist(), strict=True):
                plain[bit].update(range(at, at + n))
        assert [sets.size(0), sets.size(1)] == [len(plain[0]), len(plain[1])]
        assert sets.size(0, 1) == len(plain[0] | plain[1])
    sets.add(0, np.empty(0, np.int64), np.empty(0, np.int64))


def test_distinct_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "MERGED", 1000)
    rng = np.random.default_rng(2)
    found, plain = Distinct(), set[int]()
    for _ in range(20):
        numbers = rng.integers(0, 30_000, 2_000).astype(np.uint64)
        found.add(numbers)
        plain.update(numbers.tolist())
    assert (found.total, found.size()) == (40_000, len(plain))


def test_quantiles_are_within_their_steps() -> None:
    rng = np.random.default_rng(3)
    values = (rng.exponential(1e6, 50_000)).astype(np.int64)
    spread = Spread()
    for part in np.array_split(values, 7):
        spread.add(part)
    spread.add(np.empty(0, np.int64))
    for q in (0.01, 0.5, 0.9, 0.99, 1.0):
        exact = float(np.quantile(values, q, method="inverted_cdf"))
        assert exact <= spread.quantile(q) <= exact * 1.13 + 1
    figures = spread.figures_us()
    assert figures is not None
    assert figures["max"] == values.max() / 1000
    assert figures["mean"] == pytest.approx(values.mean() / 1000)
    assert Spread().figures_us() is None


def test_figures_of_a_small_trace() -> None:
    """Counted by hand from REQUESTS: writes touch pages 0-5, 100-102, 256-271 and 512-517; reads none beside."""
    found = survey(Trace(DATA / "fiu.txt"))
    assert found["requests"] == len(REQUESTS) == 12
    read, write = found["operations"]
    assert (read["requests"], read["bytes"], read["pages"]) == (4, 49152, 12)
    assert (write["requests"], write["bytes"], write["pages"]) == (8, 135168, 33)
    assert found["footprint_pages"] == found["distinct_written_pages"] == 5 + 3 + 16 + 6
    assert found["overwrite_factor"] == 33 / 30
    assert (found["duration_s"], found["interarrival_us"]["max"]) == (0.034, 13_000)
    assert found["interarrival_us"]["mean"] == pytest.approx(34_000 / 11)
    assert (found["unaligned_requests"], found["begin_in_4k"]) == (0, {"0": 12})
    assert {row["up_to_bytes"]: (row["read"], row["write"]) for row in found["sizes"]} == {
        4096: (2, 4), 8192: (1, 0), 16384: (0, 2), 32768: (1, 1), 65536: (0, 1),
    }  # fmt: skip
    assert found["content"]["hashed_4k_written"] == 33
    off = survey(Trace(DATA / "fiu.txt", Options(shift_bytes=512)))
    assert (off["unaligned_requests"], off["begin_in_4k"]) == (12, {"1": 12})
    assert off["operations"][1]["pages"] == 33 + 8


def test_figures_in_other_batches_and_pages() -> None:
    """The same whatever the batches; and a page of 16 KiB holds four."""
    workload = Workload("zipf:ops=20k,write=.5,trim=.1,size=4k/1:64k/1,dup=.4,rate=1000", 5000 * PAGE)
    whole = survey(workload)

    class InSmall(Workload):
        def batches(self, size: int = 1) -> Any:
            return super().batches(997)

    small = survey(InSmall(workload.name, 5000 * PAGE))
    assert whole == small
    sequential = Workload("sequential:ops=1000", 1000 * PAGE)
    assert survey(sequential, 16_384)["footprint_pages"] == 250
    assert survey(sequential, 16_384)["overwrite_factor"] == 4


def test_an_overwrite_factor() -> None:
    assert survey(Workload("sequential:ops=3000", 1000 * PAGE))["overwrite_factor"] == 3
    assert survey(Workload("sequential:ops=3000,write=0", 1000 * PAGE))["overwrite_factor"] is None


def test_a_grid_that_folds() -> None:
    """Whatever came first, the cells are those that a grid of the final size would have."""
    rng = np.random.default_rng(4)
    row, column = rng.integers(0, 1 << 36, 5000), np.sort(rng.integers(0, 1 << 40, 5000))
    weight = rng.integers(1, 100, 5000)
    grid = Grid(4096, 1)
    for part in np.array_split(np.arange(5000), 50):
        grid.add(1, row[part], column[part], weight[part])
    expected = np.zeros((ROWS, COLUMNS))
    np.add.at(expected, (row // grid.row_unit, column // grid.column_unit), weight)
    assert (grid.cells[1] == expected).all()
    assert grid.cells[0].sum() == 0
    assert grid.row_unit * ROWS >= 1 << 35 and grid.row_unit * ROWS / 2 < 1 << 36
    shown = grid.shown(20, 96)
    assert shown.sum() == weight.sum() and shown.shape[1] <= 20 and shown.shape[2] <= 96


def batch(times_ms: list[int], ops: list[int], offsets: list[int]) -> Batch:
    n = len(ops)
    return Batch(
        np.array(times_ms, np.int64) * MS, np.array(ops, np.uint8), np.array(offsets, np.uint64),
        np.full(n, PAGE, np.uint64),
    )  # fmt: skip


def test_a_picture_of_a_diagonal() -> None:
    picture = Picture()
    picture.add(batch(list(range(64)), [WRITE] * 32 + [READ] * 32, [at * PAGE for at in range(64)]))
    drawn = picture.drawn(rows=8, columns=16)
    assert drawn["axis"] == "time"
    rows = shades(drawn)
    assert len(rows) == 8
    for number, row in enumerate(reversed(rows)):
        used = [at for at, (shade, _) in enumerate(row) if shade != " "]
        assert used and max(used) - min(used) <= 3
        assert {kind for _, kind in row if kind} == {"write" if number < 4 else "read"}
    assert shades(Picture().drawn()) == []


def test_the_order_is_shown_where_times_say_nothing() -> None:
    picture = Picture()
    picture.add(batch([0] * 1000, [TRIM] * 1000, [at * PAGE for at in range(1000)]))
    assert picture.drawn()["axis"] == "requests"
    late = Picture()
    late.add(batch([*range(999), 10**9], [WRITE] * 1000, [at * PAGE for at in range(1000)]))
    assert late.drawn()["axis"] == "requests"


@pytest.mark.parametrize("file", FILES)
def test_info_of_each_format(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, more = FILES[file]
    code, out, err = run(capsys, "trace", "info", DATA / file, "--json")
    found = json.loads(out)
    assert (code, err) == (0, [])
    assert found["source"]["format"] == name
    assert found["requests"] == len(REQUESTS) + len(more)
    code, out, err = run(capsys, "trace", "info", DATA / file)
    assert (code, err) == (0, [])
    assert f"{name} (detected)" in out and "2.0 MiB" in out


def test_info_of_a_workload_and_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "trace", "info", "uniform:ops=1k", "--preset", "oracle-1g", "--json")
    found = json.loads(out)
    assert (code, found["source"]["device_bytes"]) == (0, 222_822 * PAGE)
    assert not found["timed"] and found["interarrival_us"] is None
    code, out, _ = run(capsys, "trace", "info", "zipf:ops=1k,dup=0.5", "--size", "16M")
    assert code == 0 and "duplicates" in out and "zipf:align=4096" in out


def test_info_says_what_it_could_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace"
    path.write_text((DATA / "msr.csv").read_text() + "noise\n\x1b[31mred\n1,h,0,Read,-1,4096,1\n")
    code, out, err = run(capsys, "trace", "info", path)
    assert code == 0
    assert [line.partition(f"{path}: ")[2] for line in err] == [
        "1 line rejected: too few columns (first: line 13: 'noise')",
        "1 line rejected: no text (first: line 14: '·[31mred')",
        "1 line rejected: negative offset (first: line 15: '1,h,0,Read,-1,4096,1')",
    ]
    code, out, err = run(capsys, "trace", "info", path, "--json")
    assert [row["first_line"] for row in json.loads(out)["rejected"]] == [13, 14, 15]
    assert len(err) == 3


def test_options_of_info(capsys: pytest.CaptureFixture[str]) -> None:
    path = DATA / "msr.csv"
    arguments = ["--shift", "-4k", "--fit", "wrap", "--size", "1M", "--first", "7", "--loops", "2", "--speedup", "2"]
    code, out, err = run(capsys, "trace", "info", path, *arguments, "--json")
    found = json.loads(out)
    assert code == 0
    made = found["source"]
    assert (made["shift_bytes"], made["fit"], made["device_bytes"], made["first"]) == (-4096, "wrap", 1 << 20, 7)
    assert found["requests"] == 2 * 7
    assert [line.partition(": ")[2].partition(": ")[2] for line in err] == [
        "3 lines rejected: before the device (first: line 1: 'offset -4096, length 4096')"
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonesuch"], ["uniform:ops=x"], [DATA / "msr.csv", "--format", "nonesuch"], [DATA / "msr.csv", "--fit", "x"],
        [DATA / "msr.csv", "--shift", "x"], [DATA / "msr.csv", "--first", "x"], [DATA / "msr.csv", "--loops", "0"],
        [DATA / "msr.csv", "--speedup", "0"], ["uniform:ops=1", "--loops", "2"], ["uniform:ops=1", "--size", "x"],
        ["uniform:ops=1", "--preset", "nonesuch"], ["uniform:ops=1", "--preset", "tiny-8", "--size", "1M"],
    ],
)  # fmt: skip
def test_bad_usage_is_one_line_and_2(arguments: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "trace", "info", *arguments)
    assert (code, out, len(err)) == (2, "", 1)


def test_a_file_that_is_no_trace_is_one_line_and_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in (b"", b"something else\n", bytes(range(256)) * 100):
        (tmp_path / "trace").write_bytes(content)
        code, out, err = run(capsys, "trace", "info", tmp_path / "trace")
        assert (code, out, len(err)) == (1, "", 1)
    code, _, err = run(capsys, "trace", "info", tmp_path)
    assert (code, len(err)) == (1, 1)


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "trace", "formats", "--json")
    assert code == 0 and {"msr", "flashfs", "vscsi2"} <= {row["name"] for row in json.loads(out)}
    code, out, _ = run(capsys, "trace", "workloads", "--json")
    assert code == 0 and [row["name"] for row in json.loads(out)] == list(WORKLOADS)
    code, out, _ = run(capsys, "trace", "workloads", "zipf", "--json")
    theta = {"key": "theta", "default": "0.99", "about": "the exponent; 0 is uniform"}
    assert code == 0 and json.loads(out)[0] == theta
    assert run(capsys, "trace", "workloads", "nonesuch")[0] == 2
