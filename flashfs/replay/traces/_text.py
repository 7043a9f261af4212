"""The base of formats with one request per line.

polars reads a chunk of whole lines into typed columns; a field that is not a number becomes null. Every line becomes
one row, so row numbers are line numbers. Only lines with a null in a needed column are checked again, in Python, to say
what is wrong with them. pyarrow is as fast, but rejects a whole chunk for one bad number.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import polars as pl

from flashfs.replay.request_source import FLUSH, READ, TRIM, WRITE
from flashfs.replay.traces import _evidence, _format
from flashfs.replay.traces._content import HEAD_BYTES, Content, text_of
from flashfs.replay.traces._evidence import Reading
from flashfs.replay.traces._format import NOT_A_REQUEST, UNKNOWN_OP, Choice, Format, Lot, Telling, Texts

INT, TEXT = pl.Int64(), pl.String()
NANO = pl.Decimal(38, 9)  #: seconds, read exactly: a double of seconds since 1970 is only exact to 200 ns
MICRO = pl.Decimal(38, 6)  #: milliseconds likewise
FLUSH_BEFORE, FLUSH_AFTER = 1, 2  #: bits: the line of a request asks for a flush before, after it
INT64_MAX = (1 << 63) - 1
NUMBER_BYTES_MAX = 37
UNKNOWN_UNIT = -1
WORTH_A_LOOK = 0.25  #: if less of a sample has the form of a format, its numbers are not judged
SAMPLE_NUMBER_MAX = 1 << 50  #: larger numbers of a sample are noise
SAMPLE_LINES = 4000  #: of the beginning: enough for a meaningful share
SAMPLE_BYTES_MAX = 512  #: of a line: no format has longer ones, and some patterns would be slow on them
BLANKS = bytes.maketrans(b"\t", b" ")
COMMENT = b"#"  #: begins a comment, if the line is not a request
ASCII = bytes(byte if byte < 128 else ord("?") for byte in range(256))  #: noise may not be UTF-8, as polars requires


class TextFormat(Format):
    """A line has ``columns`` with ``separator``s between them; more may follow."""

    separator: ClassVar[str] = " "
    columns: ClassVar[dict[str, Any]]  #: name: type
    needed: ClassVar[tuple[str, ...]]  #: columns that every request has
    sample: ClassVar[re.Pattern[bytes]]  #: matches a line of this format
    header_lines: ClassVar[int] = 0
    end: ClassVar[re.Pattern[bytes] | None] = None  #: matches the beginning of a summary after the trace
    other_lines: ClassVar[str] = "other lines"  #: what to call correct lines that are not requests
    offset_unit: ClassVar[int] = _format.SECTOR
    length_unit: ClassVar[int] = _format.SECTOR
    units_in_doubt: ClassVar[bool] = True

    @abstractmethod
    def op(self, choice: Choice) -> pl.Expr:
        """READ, WRITE, TRIM, FLUSH, or NOT_A_REQUEST, or UNKNOWN_OP; null counts as the last."""

    def expressions(self) -> dict[str, pl.Expr]:
        """Expressions for time (in ticks), offset, length (in their units), unit and hash that are not columns of that
        name."""
        return {}

    def flushes(self, choice: Choice) -> pl.Expr | None:
        """The sum of FLUSH_BEFORE and FLUSH_AFTER for each request; None if lines of this format ask for no flushes."""
        return None

    def likeness(self, head: bytes) -> float:
        lines = self.sample_of(head)
        return sum(self.sample.match(line) is not None for line in lines) / len(lines) if lines else 0.0

    def sample_of(self, head: bytes) -> list[bytes]:
        """The lines of ``head`` that should be requests."""
        return sample_lines(head)[self.header_lines :]

    def judge(self, head: bytes) -> Reading:
        found = super().judge(head)
        if found.score < WORTH_A_LOOK or not self.units_in_doubt:
            return found
        text = b"\n".join(self.sample_of(head)) + b"\n"
        numbers = self.frame(text, ["offset", "length"]).drop_nulls()
        numbers = numbers.filter(pl.all_horizontal(pl.all().is_between(1, SAMPLE_NUMBER_MAX)))
        address, size = numbers["offset"].to_numpy(), numbers["length"].to_numpy()
        if len(address) < _evidence.SURE_LINES:
            return found
        sample = _evidence.Sample(address, size, [None] * len(address))
        score, why = _evidence.weigh(sample, self.offset_unit, self.length_unit)
        return Reading(found.flag, found.score * score, "; ".join(why) or found.why, self, found.form)

    def lots(self, content: Content, choice: Choice, telling: Telling) -> Iterator[Lot]:
        line, over = 1, False
        for whole in content.lines():
            chunk, first = whole, line
            line += whole.count(b"\n")
            while chunk and first <= self.header_lines:
                chunk, first = chunk[chunk.index(b"\n") + 1 :], first + 1
            if over:
                telling.skip("lines of a summary", line - first)
                continue
            ending = self.end.search(chunk) if self.end else None
            if ending is not None:
                over = True
                telling.skip("lines of a summary", chunk.count(b"\n", ending.start()))
                chunk = chunk[: ending.start()]
            if chunk:
                yield self.lot(chunk, first, choice, telling)
        if content.cut_short:
            telling.rejected.add(_format.CUT_STREAM, line, f"after {line - 1:,} lines")

    def lot(self, chunk: bytes, first: int, choice: Choice, telling: Telling) -> Lot:
        """The requests of a chunk whose first line has the number ``first``."""
        found = self.found(chunk, first, choice)
        op = filled(found["op"], UNKNOWN_OP).astype(np.uint8, copy=False)
        other = op == NOT_A_REQUEST
        good = op < NOT_A_REQUEST
        for name in ("time", "offset", "length"):
            if found[name].null_count():
                missing = found[name].is_null().to_numpy()
                good &= ~missing | ((op == FLUSH) & (name != "time"))
        if not (good | other).all():
            self.blame(np.flatnonzero(~(good | other)), Texts(chunk, first), telling)
        telling.skip(self.other_lines, int(other.sum()))
        self.passing(found, op)
        line = np.arange(first, first + len(op), dtype=np.int64)
        if "flushes" in found.columns and (flushes := filled(found["flushes"], 0) * good).any():
            row, op = with_flushes(op, flushes)
            found, line, good = found[row], line[row], good[row]
        unit = None
        if "unit" in found.columns:
            unit = self.units(found["unit"], good, choice, telling)
        return self.finish(found, line, op, unit, good, Texts(chunk, first), telling)

    def found(self, chunk: bytes, first: int, choice: Choice) -> pl.DataFrame:
        """A row for each line of a chunk: ``op``, ``time``, ``offset``, ``length``; ``unit``, ``hash`` and ``flushes``
        if the format has them."""
        own = self.expressions()
        wanted: dict[str, pl.Expr] = {
            "op": self.op(choice),
            **{name: own.get(name, pl.col(name)) for name in ("time", "offset", "length")},
            **{name: own[name] for name in ("unit", "hash") if name in own},
        }
        if (flushes := self.flushes(choice)) is not None:
            wanted["flushes"] = flushes
        used = {name for one in wanted.values() for name in one.meta.root_names()}
        frame = self.frame(chunk, [name for name in self.columns if name in used])
        n = chunk.count(b"\n")
        if frame.height != n:
            raise AssertionError(f"{n} lines from line {first} on were read as {frame.height}")
        return frame.select(**wanted)

    def passing(self, found: pl.DataFrame, op: np.ndarray) -> None:
        """Called for each chunk: a hook for formats whose lines depend on earlier ones."""

    def units(self, unit: pl.Series, good: np.ndarray, choice: Choice, telling: Telling) -> np.ndarray | None:
        """Count requests by unit. Returns the number of each request's unit, or None if all are of unit 0. If one unit
        is chosen, ``good`` becomes false for requests of others."""
        if unit.null_count():  # a request is readable without it
            unit = unit.fill_null(UNKNOWN_UNIT if unit.dtype.is_integer() else str(UNKNOWN_UNIT))
        if choice.unit is not None:
            chosen = [value for value in unit.unique() if self.unit_name(value) == choice.unit]
            mine = unit.is_in(chosen).to_numpy()
            telling.skip("requests of other units", int((good & ~mine).sum()))
            good &= mine
        kept = unit if good.all() else unit.filter(pl.Series(good))
        if not len(kept):
            return None
        if (kept == kept[0]).all():  # the usual case, and much faster
            name = self.unit_name(kept[0])
            telling.units[name] = telling.units.get(name, 0) + len(kept)
            number = list(telling.units).index(name)
            return None if number == 0 else np.full(len(unit), number, np.int64)
        for value in kept.unique(maintain_order=True):
            telling.units.setdefault(self.unit_name(value), 0)
        for value, count in kept.value_counts().iter_rows():
            telling.units[self.unit_name(value)] += count
        numbers = {name: number for number, name in enumerate(telling.units)}
        values = kept.unique().to_list()
        of = [numbers[self.unit_name(value)] for value in values]
        return filled(unit.replace_strict(values, of, default=0, return_dtype=pl.Int64), 0)

    def unit_name(self, value: Any) -> str:
        """The name of a unit, given the value of its expression or UNKNOWN_UNIT."""
        return str(value)

    def finish(
        self, found: pl.DataFrame, line: np.ndarray, op: np.ndarray, unit: np.ndarray | None, good: np.ndarray,
        texts: Texts, telling: Telling,
    ) -> Lot:  # fmt: skip
        """The good requests as a Lot in bytes, without implausible ones."""
        offset, length = filled(found["offset"], 0), filled(found["length"], 0)
        if self.offset_unit > 1 or self.length_unit > 1:
            # A product beyond 64 bits would wrap to a plausible number; clipped, it is rejected as too far
            offset = np.clip(offset, -1, INT64_MAX // self.offset_unit) * self.offset_unit
            length = np.clip(length, -1, INT64_MAX // self.length_unit) * self.length_unit
        lot = Lot(
            line=line,
            time=filled(found["time"], 0),
            op=op,
            offset=offset,
            length=length,
            hash=filled(found["hash"], 0).astype(np.uint64, copy=False) if "hash" in found.columns else None,
            unit=unit,
        )
        lot = _format.sound(lot.take(good), telling.rejected, texts)
        flush = lot.op == FLUSH
        if flush.any():
            lot.offset[flush] = 0
            lot.length[flush] = 0
        return lot

    def frame(self, chunk: bytes, used: list[str]) -> pl.DataFrame:
        """A row for each line with the used columns; null where a field is missing or not of its type."""
        return self.read(self.prepared(chunk), used, self.columns)

    def prepared(self, chunk: bytes) -> bytes:
        """Lines as polars needs them: plain line ends, ASCII, one separator between fields."""
        if b"\r\n" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n")
        if not chunk.isascii():
            chunk = chunk.translate(ASCII)
        return squeezed(chunk) if self.separator == " " else chunk

    def read(self, chunk: bytes, used: list[str], columns: dict[str, Any]) -> pl.DataFrame:
        """As ``frame``, of prepared lines, with these columns."""
        # The first row fixes the number of columns, so it must not be a line of the trace
        names = self.separator.join(columns).encode() + b"\n"
        return pl.read_csv(
            names + chunk, has_header=True, separator=self.separator, quote_char=None, schema=columns,
            columns=used, ignore_errors=True, truncate_ragged_lines=True,
        )  # fmt: skip

    def blame(self, rows: np.ndarray, texts: Texts, telling: Telling) -> None:
        """Record why each of these rows is not a request."""
        for row in rows.tolist():
            text = texts(texts.first + row)
            if not text.strip():
                telling.skip(_format.BLANK_LINES, 1)
            elif text.startswith(COMMENT):
                telling.skip(_format.COMMENTS, 1)
            else:
                telling.rejected.add(self.why_not(text), texts.first + row, text)

    def why_not(self, text: bytes) -> str:
        """What is wrong with a line."""
        text = text.rstrip(b"\r")
        if not text.translate(None, b"\t").isascii() or any(byte < 32 and byte != 9 for byte in text):
            return _format.MANGLED
        fields = self.fields(text)
        names = list(self.columns)
        short = max(names.index(name) for name in self.needed) + 1
        if len(fields) < short:
            return _format.FEW_COLUMNS
        for name, value in zip(names, fields, strict=False):
            if name in self.needed and self.columns[name] != TEXT and not self.is_number(value, self.columns[name]):
                digits = re.fullmatch(rb"[+-]?\d+", value)
                return (_format.TOO_LARGE if digits else _format.NO_NUMBER).format(name)
        return _format.NO_OP

    def fields(self, text: bytes) -> list[bytes]:
        """The fields of a line."""
        return text.split() if self.separator == " " else text.split(self.separator.encode())

    def is_number(self, value: bytes, kind: Any) -> bool:
        """Whether a field is read as a number of that type."""
        return is_number(value, kind)


class PatternFormat(TextFormat):
    """A line is what ``sample`` matches, with a group for each of ``columns``: for lines with a name that may contain
    blanks, or a column that may be empty, before the needed ones. Patterns begin with ``^``, as polars's engine
    searches, and have no look-around, which it does not support."""

    def frame(self, chunk: bytes, used: list[str]) -> pl.DataFrame:
        lines = pl.Series(self.prepared(chunk).decode("ascii").split("\n")[:-1], dtype=pl.String)
        found = lines.str.extract_groups(self.sample.pattern.decode()).struct.unnest()
        return found.select(pl.col(name).cast(self.columns[name], strict=False) for name in used)

    def fields(self, text: bytes) -> list[bytes]:
        found = self.sample.match(text)
        return [found[name] or b"" for name in self.columns] if found else []


def is_number(value: bytes, kind: Any) -> bool:
    """Whether polars reads this as a number of that type."""
    if len(value) > NUMBER_BYTES_MAX:
        return False  # too long for regular expressions and int()
    if kind == INT:
        return re.fullmatch(rb"[+-]?\d+", value) is not None and -INT64_MAX <= int(value) <= INT64_MAX
    return re.fullmatch(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value) is not None


def filled(series: pl.Series, value: int) -> np.ndarray:
    """A series as an array, with ``value`` for null."""
    return (series.fill_null(value) if series.null_count() else series).to_numpy(writable=True)


def with_flushes(op: np.ndarray, flushes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the row of each request, its operation) after adding the flushes before and after requests that ``flushes``
    asks for."""
    before, after = flushes & FLUSH_BEFORE != 0, flushes & FLUSH_AFTER != 0
    row = np.repeat(np.arange(len(op)), 1 + before + after)
    out = op[row]
    at = np.cumsum(1 + before + after)  # where the requests of the next row begin
    out[at[after] - 1] = FLUSH
    out[(at - 1 - after - before)[before]] = FLUSH
    return row, out


def squeezed(chunk: bytes) -> bytes:
    """The chunk with one blank between fields, and none before the first."""
    if b"\t" in chunk:
        chunk = chunk.translate(BLANKS)
    text = np.frombuffer(chunk, np.uint8)
    blank = text == 32
    drop = np.empty(len(text), bool)
    drop[0] = blank[0]
    np.logical_or(blank[:-1], text[:-1] == 10, out=drop[1:])
    drop[1:] &= blank[1:]
    return text[~drop].tobytes() if drop.any() else chunk


def sample_lines(head: bytes) -> list[bytes]:
    """Whole lines of ``head``, at most SAMPLE_LINES of them, without blank ones, and without comments unless there is
    nothing else."""
    lines = lines_of(head)
    if len(lines) > 1 and len(head) >= HEAD_BYTES:
        lines.pop()  # it may have been cut
    found = [line[:SAMPLE_BYTES_MAX] for line in lines[:SAMPLE_LINES] if line.strip()]
    return [line for line in found if not line.startswith(COMMENT)] or found


def lines_of(head: bytes) -> list[bytes]:
    """All lines of ``head``, without their ends."""
    return text_of(head).replace(b"\r\n", b"\n").split(b"\n")


def letters(column: str, read: tuple[str, ...], write: tuple[str, ...], trim: tuple[str, ...] = ()) -> pl.Expr:
    """The operation from a column of words."""
    word = pl.col(column)
    found = pl.when(word.is_in(read)).then(pl.lit(READ, pl.UInt8)).when(word.is_in(write)).then(pl.lit(WRITE, pl.UInt8))
    if trim:
        found = found.when(word.is_in(trim)).then(pl.lit(TRIM, pl.UInt8))
    return found.otherwise(pl.lit(UNKNOWN_OP, pl.UInt8))


def ticks(column: str) -> pl.Expr:
    """A decimal column as whole numbers of its last decimal place."""
    return pl.col(column).to_physical().cast(pl.Int64, strict=False)
