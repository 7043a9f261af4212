"""Results as rows: a parquet or csv file that grows with each replay, and any number of such files as one data frame.

A row is a result with its nested names joined by dots (``latency_us.read.p99``, ``config.geometry.dies``), and holds
everything that produced it. Series, histograms and counts (``scheme.groups_by_levels``) are columns of lists; csv,
which has none, holds them as JSON.
"""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashfs.errors import FlashfsError, UsageError
from flashfs.text import encodable

if TYPE_CHECKING:
    import polars

    Rows = Sequence[Mapping[str, Any]]

FORMATS = (".parquet", ".csv")  #: that are written; .json, as `replay --json` prints it, is read too
POINTS = "points"  #: folder in that of a sweep, with a file for each result
JOINED = "results.parquet"  #: beside it while no sweep is running: all results, in the order of the sweep
NEEDED = ("ftl", "source")  #: columns that every row of results has
#: columns that are text even if a value looks like a number
TEXTS = frozenset(
    {"key", "ftl", "source", "error", "config.ftl", "config.version", "config.code", "config.source_hash"}
)
LISTS = ("series.", "histograms.")  #: prefixes of columns that hold lists of numbers
COUNTS = "_by_"  #: part of a column name that may hold a list of numbers too


class ResultsError(FlashfsError):
    """A file that should hold results and does not."""


def row(result: Mapping[str, Any]) -> dict[str, Any]:
    """One result, flat: ``{"host": {"read": 1}}`` is ``{"host.read": 1}``. Series, histograms and counts stay lists,
    any other list becomes JSON; an empty dict gives no column."""
    out: dict[str, Any] = {}
    _flatten("", result, out)
    return out


def _flatten(prefix: str, value: Any, out: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _flatten(f"{prefix}.{name}" if prefix else str(name), inner, out)
    elif isinstance(value, list | tuple):
        stays = prefix.startswith(LISTS) or (_may_be_counts(prefix) and all(_is_number(item) for item in value))
        out[prefix] = list(value) if stays else json.dumps(value)
    elif value is None or isinstance(value, bool | int | float | str):
        out[prefix] = value
    else:
        out[prefix] = str(value)


def _may_be_counts(name: str) -> bool:
    return COUNTS in name.rpartition(".")[2]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def frame(rows: Rows) -> polars.DataFrame:
    """Rows as a polars DataFrame. A column has one type: if rows disagree, its values become text (or floats, if all
    are numbers). What a row lacks is null."""
    import polars

    names = list(dict.fromkeys(name for one in rows for name in one))
    return polars.DataFrame([_column(name, [one.get(name) for one in rows]) for name in names])


def _column(name: str, values: list[Any]) -> polars.Series:
    import polars as pl

    there = [value for value in values if value is not None]
    if there and all(isinstance(value, list) for value in there):
        whole = all(isinstance(item, int) for value in there for item in value)
        return pl.Series(name, values, pl.List(pl.Int64 if whole else pl.Float64), strict=False)
    if any(isinstance(value, list) for value in there):
        values = [json.dumps(value) if isinstance(value, list) else value for value in values]
    kinds = {type(value) for value in there}
    if not kinds:
        return pl.Series(name, values, pl.String if name in TEXTS else pl.Null)
    if kinds == {bool}:
        return pl.Series(name, values, pl.Boolean)
    fits = all(-(1 << 63) <= value < 1 << 63 for value in there if isinstance(value, int))
    if kinds == {int} and fits:
        return pl.Series(name, values, pl.Int64)
    if kinds <= {int, float} and fits:
        return pl.Series(name, values, pl.Float64, strict=False)
    return pl.Series(name, [None if value is None else encodable(str(value)) for value in values], pl.String)


def write(path: Path, rows: Rows, *, append: bool = True) -> int:
    """Append ``rows`` to ``path`` (.parquet or .csv), or replace its rows if ``append`` is False; returns how many it
    has then. The file is replaced atomically: a reader, or a crash, sees either the old rows or all of the new ones.
    Writers in one folder take turns."""
    check_name(path)
    with _turn(path.parent):
        before = _rows_of(path) if append and path.exists() else []
        table = frame([*before, *rows])
        with replacing(path) as draft:
            if path.suffix == ".csv":
                draft.write_text(_csv(table))
            else:
                with draft.open("wb") as file:  # polars takes no name that is not UTF-8
                    table.write_parquet(file)
    return len(table)


def check_name(path: Path) -> None:
    """Check an output name before hours of replays. UsageError if it has no known format, its directory does not exist
    or it is a directory; FlashfsError if the directory is not writable."""
    if path.suffix not in FORMATS:
        raise UsageError(f"--out {path}: use a name that ends in {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UsageError(f"--out {path}: there is no directory {path.parent}")
    if path.is_dir():
        raise UsageError(f"--out {path}: a directory; use the name of a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise FlashfsError(f"--out {path}: {os.strerror(errno.EACCES)}")


def check_target(path: Path) -> None:
    """As ``check_name``; UsageError too for a file that is there and has no results, to which none can be added."""
    check_name(path)
    if path.exists():
        _rows_of(path)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Lets one process at a time in, per folder. The lock is on the folder itself, so there is no lock file to remove,
    and the kernel releases it however the process ends."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft to write to, which durably becomes ``path`` when the block ends; after an error the draft is removed."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        yield draft
        handle = os.open(draft, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        draft.replace(path)
    except OSError as error:  # name the caller's path, not the draft
        if error.filename != str(draft):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        draft.unlink(missing_ok=True)


def _csv(table: polars.DataFrame) -> str:
    out = io.StringIO()
    to = csv.writer(out, lineterminator="\n")
    to.writerow(table.columns)
    for values in table.iter_rows():
        to.writerow([_cell(value) for value in values])
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | list):
        return json.dumps(value)
    return repr(value) if isinstance(value, float) else str(value)


def read(paths: Iterable[str | Path]) -> polars.DataFrame:
    """All rows of these files (.parquet, .csv, .json, or the folder of a sweep), in their order. ResultsError names the
    file that holds no results, OSError the one that cannot be read."""
    rows = [one for path in paths for one in _rows_of(Path(path))]
    if not rows:
        raise ResultsError("no results in what was given")
    return frame(rows)


def _rows_of(path: Path) -> list[dict[str, Any]]:
    rows = [one for file in _files(path) for one in _read_one(file)]
    for one in rows:
        for name in NEEDED:
            if not isinstance(one.get(name), str):
                raise ResultsError(f"{path}: no results of flashfs: a row has no {name}; use what --out wrote")
    return rows


def _files(path: Path) -> list[Path]:
    """The files that a name stands for: itself, or the results so far of a sweep's folder."""
    if not path.is_dir():
        return [path]
    if (path / JOINED).exists():
        return [path / JOINED]
    found = sorted((path / POINTS).glob("*.json"))
    if not found:
        raise ResultsError(f"{path}: no sweep in this folder; use the files that --out wrote")
    return found


def _read_one(path: Path) -> list[dict[str, Any]]:
    if path.suffix not in (*FORMATS, ".json"):
        raise UsageError(f"{path}: use .parquet, .csv, .json or the folder of a sweep")
    try:
        if path.suffix == ".parquet":
            return _from_parquet(path)
        text = path.read_text("utf-8-sig")  # spreadsheets put a byte order mark in front
        if path.suffix == ".csv":
            return _from_csv(text)
        return _from_json(json.loads(text))
    except (ValueError, csv.Error) as error:  # undecodable bytes are a ValueError too
        raise ResultsError(f"{path}: no {path.suffix[1:]} that can be read ({_first_line(error)})") from None


def _from_parquet(path: Path) -> list[dict[str, Any]]:
    import polars

    with path.open("rb") as file:  # polars would take a path with * or ? for a pattern
        try:
            return list(polars.read_parquet(file).iter_rows(named=True))
        except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
            raise ValueError(_first_line(error)) from None


def _from_csv(text: str) -> list[dict[str, Any]]:
    csv.field_size_limit(1 << 30)  # a histogram may be longer than its default limit, 128 KiB
    lines = list(csv.reader(io.StringIO(text)))
    if not lines:
        raise ValueError("empty")
    names = lines[0]
    out = []
    for number, cells in enumerate(lines[1:], 2):
        if len(cells) != len(names):
            raise ValueError(f"line {number}: {len(cells)} cells, and the first line has {len(names)}")
        out.append({name: _value(name, cell) for name, cell in zip(names, cells, strict=True)})
    return out


def _value(name: str, cell: str) -> Any:
    """The value that was written as ``cell``: a number only if writing it gives the same text."""
    if cell == "":
        return None
    if name in TEXTS:
        return cell
    if cell in ("true", "false"):
        return cell == "true"
    if name.startswith(LISTS) or (_may_be_counts(name) and cell.startswith("[")):
        found = json.loads(cell)
        if not isinstance(found, list) or not all(_is_number(item) for item in found):
            raise ValueError(f"{name}: it must be a list of numbers")
        return found
    for number in (int, float):
        try:
            value = number(cell)
        except ValueError:
            continue
        if _cell(value) == cell:
            return value
    return cell


def saved_row(saved: Mapping[str, Any]) -> dict[str, Any]:
    """A point's file of a sweep as a row: its result, or its setup and the error."""
    if "result" in saved:
        return {**row(saved["result"]), "key": saved["key"], "config.code": saved["code"], "error": None}
    point = dict(saved["point"])
    source = point.pop("source")
    config = {f"config.{name}": value for name, value in row(point).items()}
    return {
        "ftl": point["ftl"], "source": source, **config, "key": saved["key"], "config.code": saved["code"],
        "error": saved["error"],
    }  # fmt: skip


def _from_json(data: Any) -> list[dict[str, Any]]:
    """What `replay --json` printed, or one file of a sweep."""
    results = data if isinstance(data, list) else [data]
    if not all(isinstance(one, dict) for one in results):
        raise ValueError("it must be a list of objects")
    try:
        return [saved_row(one) if "point" in one else row(one) for one in results]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not what a sweep keeps of a point: {error}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
