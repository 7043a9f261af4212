"""Any table of requests: ``--columns time:ms,dev,offset:512,length:4096,op:1=read`` names what its columns are.

| column | means |
| --- | --- |
| `time:UNIT` | s, ms, us, ns, or 100ns; without it, only the order is known |
| `offset:BYTES`, `length:BYTES` | each count is of so many bytes: 1 (the default), 512, 4k |
| `op:VALUE=OPERATION,...` | which value is a read, write, trim or flush; without it, the usual words and letters |
| `dev` | the disk, volume or file: a unit |
| `-` | nothing of use |

Columns are separated by commas, semicolons, tabs or blanks. Columns after the last one named are ignored.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from flashfs.errors import UsageError
from flashfs.replay.request_source import OPERATIONS
from flashfs.replay.traces._content import HEAD_BYTES, Content
from flashfs.replay.traces._format import BLANK_LINES, COMMENTS, NO_OP, UNKNOWN_OP, Choice, Format, Lot, Telling
from flashfs.replay.traces._text import INT, INT64_MAX, TEXT, TextFormat, lines_of, sample_lines, ticks
from flashfs.replay.workloads._grammar import size

PREFIX = "columns:"  #: of such a format's name; the rest of the name describes it
SCALE = {"s": 9, "ms": 6, "us": 3, "ns": 0, "100ns": 0}  #: decimal places of a time in this unit, down to 1 ns
WORDS = {
    "r": 0, "read": 0, "w": 1, "write": 1, "d": 2, "t": 2, "trim": 2, "discard": 2, "unmap": 2, "f": 3, "flush": 3,
    "sync": 3,
}  # fmt: skip
ROLES = ("time", "dev", "offset", "length", "op")
WOULD_DO = "time:ms,dev,offset:512,length:4096,op:1=read,- as the columns stand"
NUMBER = re.compile(rb"[+-]?(0[xX][0-9a-fA-F]+|\d+\.?\d*([eE][+-]?\d+)?|\.\d+)")
HEX, WHOLE = r"^0[xX]([0-9a-fA-F]+)$", r"^([+-]?\d+)\.0*$"  #: offsets and lengths that are not plain integers
KEPT = b"\x1f"  #: stands for a separator that is within quotes


@dataclass(frozen=True)
class Spec:
    """A parsed description of columns. ``columns`` has a role, or None, for each; ``values`` are lower case."""

    columns: tuple[str | None, ...]
    time: str | None
    offset_bytes: int
    length_bytes: int
    values: dict[str, int]

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Parse the text of --columns. UsageError if it is invalid, saying what to use."""
        columns: list[str | None] = []
        said: dict[str, str] = {}
        named: list[str] = []
        for item in text.split(","):
            role, colon, argument = item.strip().partition(":")
            if not colon and "=" in item and columns and columns[-1] == "op":
                named.append(item)
                continue
            if (role != "-" and role not in ROLES) or role in columns or (role in ("-", "dev") and colon):
                raise UsageError(f"--columns {text}: {item or 'nothing'}: use {WOULD_DO}, each once")
            columns.append(None if role == "-" else role)
            if role == "op":
                named = [argument] if colon else []
            elif colon:
                said[role] = argument
        for role in ("offset", "length", "op"):
            if role not in columns:
                raise UsageError(f"--columns {text}: no {role} in it: use {WOULD_DO}")
        if "time" in columns and said.get("time") not in SCALE:
            units = ", ".join(f"time:{unit}" for unit in SCALE)
            raise UsageError(f"--columns {text}: time:{said.get('time', '')}: use {units}")
        offset, length = (_multiple(text, role, said.get(role, "1")) for role in ("offset", "length"))
        return cls(tuple(columns), said.get("time"), offset, length, _values(text, named))

    def canonical(self) -> str:
        """The text with all defaults filled in: equal texts give equal readings."""
        values = ",".join(f"{value}={OPERATIONS[op]}" for value, op in sorted(self.values.items()))
        written = {
            "time": f"time:{self.time}", "dev": "dev", "offset": f"offset:{self.offset_bytes}",
            "length": f"length:{self.length_bytes}", "op": "op" if self.values == WORDS else f"op:{values}", None: "-",
        }  # fmt: skip
        return ",".join(written[role] for role in self.columns)


def _multiple(text: str, role: str, value: str) -> int:
    try:
        found = size(value)
    except ValueError:
        found = 0
    if not 0 < found <= 1 << 30:
        raise UsageError(f"--columns {text}: {role}:{value}: use the bytes of one count, as 1, 512 or 4k")
    return found


def _values(text: str, named: list[str]) -> dict[str, int]:
    """{value: operation}. If only 0 or only 1 is given, as a read or a write, the other value is the other one."""
    if not named:
        return WORDS
    out: dict[str, int] = {}
    for pair in named:
        value, equals, op = pair.strip().rpartition("=")
        if not equals or not value or op not in OPERATIONS or value.lower() in out:
            raise UsageError(f"--columns {text}: op:{pair}: use VALUE=OPERATION, of {', '.join(OPERATIONS)}")
        out[value.lower()] = OPERATIONS.index(op)
    if len(out) == 1:
        ((one, op_of_it),) = out.items()
        if one in ("0", "1") and op_of_it < 2:
            out["1" if one == "0" else "0"] = 1 - op_of_it
    return out


class Table(TextFormat):
    """Lines with the columns of a ``Spec``."""

    name = PREFIX[:-1]
    title = "any table, as --columns says"
    sample: ClassVar[re.Pattern[bytes]] = re.compile(rb"")

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.above: list[bytes] = []  #: lines before the line of names
        vars(self).update(  # class attributes in other formats, per object here
            name=PREFIX + spec.canonical(),
            columns={role or f"-{at}": self._type(role) for at, role in enumerate(spec.columns)},
            needed=tuple(role for role in spec.columns if role not in (None, "dev")),
            offset_unit=spec.offset_bytes,
            length_unit=spec.length_bytes,
            tick_ns=100 if spec.time == "100ns" else 1,
            unit_is="the column dev" if "dev" in spec.columns else "",
        )

    def _type(self, role: str | None) -> Any:
        if role == "time" and self.spec.time is not None:
            return pl.Decimal(38, SCALE[self.spec.time])
        return INT if role in ("offset", "length") else TEXT

    def fresh(self) -> Format:
        return Table(self.spec)

    def likeness(self, head: bytes) -> float:
        """The share of lines that are valid requests."""
        self.look(head)
        body = self.sample_of(head)
        return sum(self.why_not(line) == "" for line in body) / len(body) if body else 0.0

    def sample_of(self, head: bytes) -> list[bytes]:
        return sample_lines(head)[int(self.header_lines > 0) :]

    def timed(self, head: bytes) -> bool:
        return self.spec.time is not None

    def look(self, head: bytes) -> None:
        """Find the separator, and how many lines there are up to the line of names, if there is one."""
        lines = sample_lines(head)
        separator = separator_of(lines, len(self.spec.columns))
        first = lines[0] if lines else b""
        named = bool(first) and not any(NUMBER.fullmatch(one) for one in fields(first, separator))
        above = itertools.takewhile(lambda line: not line.startswith(first), lines_of(head)) if named else ()
        self.above = list(above)
        vars(self).update(separator=separator, header_lines=len(self.above) + named)

    def lots(self, content: Content, choice: Choice, telling: Telling) -> Iterator[Lot]:
        self.look(content.head(HEAD_BYTES))
        telling.skip("lines of names", int(self.header_lines > 0))
        for line in self.above:
            telling.skip(COMMENTS if line.strip() else BLANK_LINES, 1)
        yield from super().lots(content, choice, telling)

    def op(self, choice: Choice) -> pl.Expr:
        values = list(self.spec.values)
        text = pl.col("op").str.strip_chars().str.to_lowercase()
        return text.replace_strict(
            values, [self.spec.values[one] for one in values], default=UNKNOWN_OP, return_dtype=pl.UInt8
        )

    def expressions(self) -> dict[str, pl.Expr]:
        time = ticks("time") if self.spec.time is not None else pl.lit(0, pl.Int64)
        return {"time": time, **({"unit": pl.col("dev")} if self.unit_is else {})}

    def unit_name(self, value: Any) -> str:
        return str(value).replace(KEPT.decode(), self.separator)

    def prepared(self, chunk: bytes) -> bytes:
        chunk = super().prepared(unquoted(chunk.replace(b"\r\n", b"\n"), self.separator))
        if self.separator == " " or b" " not in chunk:
            return chunk
        mark = re.escape(self.separator.encode())
        return re.sub(rb"(?m)^ +| +$| *(" + mark + rb") *", rb"\1", chunk)

    def frame(self, chunk: bytes, used: list[str]) -> pl.DataFrame:
        chunk = self.prepared(chunk)
        found = self.read(chunk, used, self.columns)
        odd = [name for name in used if name in ("offset", "length") and found[name].null_count()]
        if not odd:
            return found
        texts = self.read(chunk, odd, dict.fromkeys(self.columns, TEXT))
        return found.with_columns(pl.coalesce(found[name], texts.select(whole(name)).to_series()) for name in odd)

    def fields(self, text: bytes) -> list[bytes]:
        return fields(text, self.separator)

    def is_number(self, value: bytes, kind: Any) -> bool:
        if kind == INT and (found := re.match(HEX.encode(), value)):
            return int(found[1], 16) <= INT64_MAX
        if kind == INT and (found := re.match(WHOLE.encode(), value)):
            value = found[1]
        return super().is_number(value, kind)

    def why_not(self, text: bytes) -> str:
        """What is wrong with a line; empty if it is right."""
        why = super().why_not(text)
        found = self.fields(text)
        at = self.spec.columns.index("op")
        right = why == NO_OP and found[at].decode("latin-1").lower() in self.spec.values
        return "" if right else why


def whole(column: str) -> pl.Expr:
    """A number that is written in hexadecimal digits, or with a decimal point and only zeros after it."""
    text = pl.col(column)
    digits = text.str.extract(HEX).str.to_integer(base=16, dtype=INT, strict=False)
    return pl.coalesce(digits, text.str.extract(WHOLE).cast(INT, strict=False))


def unquoted(text: bytes, separator: str) -> bytes:
    """The text without quotes; separators within them become KEPT."""
    if b'"' not in text:
        return text
    mark = rb"[ \t]" if separator == " " else re.escape(separator.encode())
    pattern = rb"(?m)(?:(?<=" + mark + rb')|^)( *)"([^"\n]*(?:""[^"\n]*)*)"(?= *(?:' + mark + rb"|\r?$))"
    held = re.sub(pattern, lambda found: found[1] + re.sub(mark, KEPT, found[2]), text)
    return held.replace(b'"', b"")


def fields(line: bytes, separator: str) -> list[bytes]:
    """The fields of a line, without quotes and blanks around them."""
    line = unquoted(line.rstrip(b"\r"), separator)
    return line.split() if separator == " " else [one.strip() for one in line.split(separator.encode())]


def separator_of(lines: list[bytes], columns: int) -> str:
    """The separator of columns: a semicolon, comma or tab that most lines have often enough, else blanks."""
    lines = [re.sub(rb'"[^"]*"', b"", line) for line in lines]
    for mark in (b";", b",", b"\t"):
        if sum(line.count(mark) >= columns - 1 for line in lines) > len(lines) / 2:
            return mark.decode()
    return " "
