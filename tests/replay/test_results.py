"""Results in files: what is written is read again, whole or not at all, and other people's files are refused."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import polars
import pytest
from made_up import result

from flashfs.errors import FlashfsError, UsageError
from flashfs.replay import results


def test_a_row_is_flat() -> None:
    row = results.row(result(options={"shift": 4, "hash": "md5"}))
    assert row["ftl"] == "pagemap"
    assert row["nand.by_cause.program.gc"] == 1000
    assert row["config.geometry.dies"] == 4
    assert (row["config.options.shift"], row["config.options.hash"]) == (4, "md5")
    assert row["latency_us.read"] is None
    assert row["series.host_write"] == list(range(0, 1001, 100))
    assert row["histograms.write.count"] == [0, 900, 100]
    assert json.loads(row["input.rejected"]) == [{"reason": "no number", "count": 1}]
    assert row["input.adjusted"] == "[]"
    assert not any(isinstance(value, dict) for value in row.values())


def test_columns_have_one_type() -> None:
    table = results.frame([{"a": 1, "b": 1, "c": "x", "d": None}, {"a": 2.5, "b": "y", "c": None, "e": True}])
    assert table.schema == {
        "a": polars.Float64, "b": polars.String, "c": polars.String, "d": polars.Null, "e": polars.Boolean,
    }  # fmt: skip
    assert table.rows() == [(1.0, "1", "x", None, None), (2.5, "y", None, None, True)]


def test_a_number_beyond_64_bits_is_text() -> None:
    assert results.frame([{"n": 1 << 70}])["n"].to_list() == [str(1 << 70)]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_what_is_written_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"r{suffix}"
    other = result("slimftl", "zipf:ops=5", waf=1.5, options={"n": 0.1})
    rows = [results.row(result(dram=1 << 20)), results.row(other)]
    rows[0]["key"] = "0123456789012345"  # text, whatever it looks like
    assert results.write(path, rows) == 2
    assert results.read([path]).equals(results.frame(rows))
    assert results.read([path])["key"].to_list() == ["0123456789012345", None]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_rows_are_put_behind_those_that_are_there(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"r{suffix}"
    rows = [
        results.row(result(options={"a": 1})), results.row(result("slimftl", options={"b": "x"}, dram=4096)),
        results.row(result("slimftl", options={"a": 0.5})),
    ]  # fmt: skip
    assert [results.write(path, [row]) for row in rows] == [1, 2, 3]
    table = results.read([path])
    assert table.equals(results.frame(rows))
    assert table["config.options.a"].to_list() == [1, None, 0.5]
    assert table["series.host_write"].to_list() == [row["series.host_write"] for row in rows]
    results.write(path, rows[:1], append=False)
    assert len(results.read([path])) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_files_of_several_kinds_are_one_frame(tmp_path: Path) -> None:
    rows = [results.row(result(seed=n)) for n in range(4)]
    results.write(tmp_path / "a.parquet", rows[:1])
    results.write(tmp_path / "b.csv", rows[1:2])
    (tmp_path / "c.json").write_text(json.dumps([result(seed=2)]))
    (tmp_path / "d.json").write_text(json.dumps(result(seed=3)))
    table = results.read([tmp_path / name for name in ("a.parquet", "b.csv", "c.json", "d.json")])
    assert table.equals(results.frame(rows))


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.parquet"
    results.write(path, [results.row(result())])
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        results.write(path, [results.row(result())])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def write_some(path: Path, first: int) -> None:
    for number in range(first, first + 5):
        results.write(path, [results.row(result(seed=number))])


def test_two_writers_of_one_file_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_some, args=(path, first)) for first in (0, 100)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert sorted(results.read([path])["config.seed"]) == [0, 1, 2, 3, 4, 100, 101, 102, 103, 104]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.parquet", b"PAR1 and then nothing that is one", "no parquet that can be read"),
        ("a.parquet", b"", "no parquet that can be read"),
        ("a.csv", b"", "empty"),
        ("a.csv", b"x,y\n1,2\n", "a row has no ftl"),
        ("a.csv", b"ftl,source\npagemap\n", "line 2: 1 cells, and the first line has 2"),
        ("a.csv", b"ftl,source\n\xff\xfe,1\n", "no csv that can be read"),
        ("a.csv", b"ftl,source,series.x\np,q,[nonsense\n", "no csv that can be read"),
        ("a.csv", b'ftl,source,series.x\np,q,"{""a"": 1}"\n', "series.x: it must be a list of numbers"),
        ("a.json", b"{", "no json that can be read"),
        ("a.json", b"[1]", "it must be a list of objects"),
        ("a.json", b'{"ftl": 3, "source": "x"}', "a row has no ftl"),
        ("a.json", b'{"point": 3}', "no json that can be read"),
        ("a.json", b"[]", "no results in what was given"),
        ("a.txt", b"", "use .parquet, .csv, .json or the folder of a sweep"),
    ],
)
def test_other_peoples_files_are_refused_in_one_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FlashfsError) as caught:
        results.read([tmp_path / name])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_parquet_of_something_else_is_refused(tmp_path: Path) -> None:
    polars.DataFrame({"x": [1]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(results.ResultsError, match=r"a\.parquet: no results of flashfs: a row has no ftl"):
        results.read([tmp_path / "a.parquet"])
    with pytest.raises(results.ResultsError, match="a row has no ftl"):  # and is not written to
        results.write(tmp_path / "a.parquet", [results.row(result())])
    assert polars.read_parquet(tmp_path / "a.parquet").columns == ["x"]


def test_what_is_not_there_is_told_by_name(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.csv", "a.json"):
        with pytest.raises(FileNotFoundError) as caught:
            results.read([tmp_path / name])
        assert caught.value.filename == str(tmp_path / name)
    with pytest.raises(results.ResultsError, match="no sweep in this folder"):
        results.read([tmp_path])


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_a_byte_order_mark_is_no_data(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        results.write(path, [results.row(result())])
    else:
        path.write_text(json.dumps([result()]))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert results.read([path])["ftl"].to_list() == ["pagemap"]


def test_a_name_says_how_to_write() -> None:
    with pytest.raises(UsageError, match=r"--out r\.xlsx: use a name that ends in \.parquet or \.csv"):
        results.write(Path("r.xlsx"), [])


@pytest.mark.parametrize("name", ["a*.parquet", "a?.parquet", "[a].parquet"])
def test_a_name_is_no_pattern(tmp_path: Path, name: str) -> None:
    results.write(tmp_path / name, [results.row(result(seed=1))])
    results.write(tmp_path / "ab.parquet", [results.row(result(seed=2))])
    assert results.read([tmp_path / name])["config.seed"].to_list() == [1]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_names_that_are_no_utf_8_are_kept_as_escapes(tmp_path: Path, suffix: str) -> None:
    """Of a source, of an image, of the file itself and of its folder; what was replayed is not lost."""
    folder = tmp_path / os.fsdecode(b"d\xff")
    folder.mkdir()
    file = folder / os.fsdecode(b"r\xfe" + suffix.encode())
    name = os.fsdecode(b"d\xff/t.csv")
    for _ in range(2):
        results.write(file, [results.row(result(source=name, image=name))])
    kept = results.read([file])
    assert kept["source"].to_list() == kept["config.image"].to_list() == ["d\\udcff/t.csv"] * 2
    assert [path.name for path in folder.iterdir()] == [file.name]
