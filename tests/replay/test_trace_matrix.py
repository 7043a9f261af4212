"""Each reader on each way in which a file may be written: requests and complaints are those of a counter that is here.

The counter knows no line of flashfs: it unpacks, cuts into lines and reads fields with Python's own means. A way that
makes no sense for a format is in ``SENSELESS``, with the reason.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest
import zstandard
from foreign_files import requests
from trace_files import PACKERS, rows, whole

from flashfs.replay.traces import FORMATS, Options, Trace

R, W, T, F = range(4)
N = 40
MS = 1_000_000
EPOCH = 128_166_372_000_000_000  #: a time of MSR's
Request = tuple[int, int, int, int]  #: (nanoseconds, operation, offset, length)
Counted = list[Request]


# --- how files are written, and read again


@dataclass(frozen=True)
class Style:
    """How numbers are written: ``time`` gets a count of units, ``size`` a whole number."""

    time: Callable[[Decimal, int], str] = lambda value, at: f"{value:.6f}"
    size: Callable[[int], str] = str


@dataclass(frozen=True)
class Form:
    """A format: a line of a request (with its number and a style), and what the counter sees in a line. ValueError,
    KeyError or IndexError: it cannot be read."""

    name: str
    line: Callable[[Request, int, Style], str]
    count: Callable[[str], Counted]
    first: str = ""
    asked: str | None = None  #: where too little tells it from others
    operations: tuple[int, ...] = (R, W)
    empty: tuple[str, str] = ("", "")  #: a line of a request with a field empty that is not needed; and one that is
    timed: bool = True
    binary: bool = False


def letters(op: int, names: str) -> str:
    return names.split()[op]


def ms_of(ns: int) -> Decimal:
    return Decimal(ns) / MS


def s_of(ns: int) -> Decimal:
    return Decimal(ns) / (1000 * MS)


def split(line: str, mark: str | None = ",") -> list[str]:
    return [one.strip() for one in line.split(mark)]


def number(text: str) -> int:
    """An offset or a length: decimal, hexadecimal, or with a point and no digits after it."""
    value = Decimal(int(text, 16)) if text[:2] == "0x" else Decimal(text)
    if value != int(value):
        raise ValueError(text)
    return int(value)


def ns(text: str, unit_ns: int) -> int:
    return int(Decimal(text) * unit_ns)


def rwbs(op: int) -> str:
    return letters(op, "RA WSM DS FN")


def op_of(word: str) -> int:
    return {"R": R, "W": W, "D": T, "F": F}[word[0]]


def five(units: tuple[int, int, int]) -> Callable[[str], Counted]:
    """`time device offset size read-or-write`, with nanoseconds of a time, bytes of an offset and of a size."""

    def count(line: str) -> Counted:
        time, _, offset, length, read = line.split()
        return [(ns(time, units[0]), W - int(read) % 2, int(offset) * units[1], int(length) * units[2])]

    return count


def fio(fields: list[str], time_ns: int) -> Counted:
    """Of `file action [offset length]`."""
    if fields[1] in ("add", "open", "close"):
        return []
    op = {"read": R, "write": W, "trim": T, "sync": F, "datasync": F}[fields[1]]
    return [(time_ns, op, *((0, 0) if op == F else (int(fields[2]), int(fields[3]))))]


def blkparse(line: str) -> Counted:
    fields = line.split()
    if fields[5] != "D":
        return []
    op = op_of(fields[6])
    return [(ns(fields[3], 10**9), op, *((0, 0) if op == F else (int(fields[7]) * 512, int(fields[9]) * 512)))]


def ftrace(line: str) -> Counted:
    time, event, rest = line.split("] ", 1)[1].split(": ", 2)
    if event != "block_rq_issue":
        return []
    _, word, _, _, offset, _, length = rest.split()[:7]
    op = op_of(word)
    return [(ns(time.split()[-1], 10**9), op, *((0, 0) if op == F else (int(offset) * 512, int(length) * 512)))]


def biosnoop(line: str) -> Counted:
    if line.startswith("TIME"):
        return []
    word, offset, length = line.split()[-4:-1]
    return [(ns(line.split()[0], 10**9), op_of(word), int(offset) * 512, int(length))] if int(length) else []


def table(line: str) -> Counted:
    """`milliseconds,disk,operation,sector,bytes`, as below."""
    time, _, word, offset, length = split(line)[:5]
    op = {"read": R, "write": W, "trim": T, "flush": F}[word.lower()]
    return [(ns(time, MS), op, *((0, 0) if op == F else (number(offset) * 512, number(length))))]


def table_line(r: Request, i: int, style: Style) -> str:
    return (
        f'{style.time(ms_of(r[0]), i)},"disk 0",{letters(r[1], "Read write TRIM flush")},{style.size(r[2] // 512)},'
        f'{style.size(r[3])},"a, b"'
    )


def msr(line: str) -> Counted:
    f = split(line)
    return [(int(f[0]) * 100, {"Read": R, "Write": W}[f[3]], int(f[4]), int(f[5]))]


def spc(line: str) -> Counted:
    f = split(line)
    return [(ns(f[4], 10**9), {"r": R, "w": W}[f[3].lower()], int(f[1]) * 512, int(f[2]))]


def fiu(line: str) -> Counted:
    f = line.split()
    return [(int(f[0]), {"R": R, "W": W}[f[5]], int(f[3]) * 512, int(f[4]) * 512)]


def biotracer(line: str) -> Counted:
    f = line.split()
    return [(ns(f[4], 10**9), (R, W)[int(f[3]) % 2], int(f[0]) * 512, int(f[1]) * 512)]


def wiscsee(line: str) -> Counted:
    f = line.split()
    return [(ns(f[5], 10**9), {"read": R, "write": W, "discard": T}[f[2]], int(f[3]), int(f[4]))] if f[1] == "D" else []


def vscsi(version: int) -> tuple[Callable[[Request, int, Style], str], Callable[[str], Counted]]:
    """Records, as text of latin-1."""
    layout = ("<IIIHHQQ", "<HHIIIQQQ")[version - 1]

    def line(r: Request, i: int, style: Style) -> str:
        command = {R: 0x28, W: 0x2A, F: 0x35}[r[1]]
        values = (i, r[3], 1, command, version << 8, r[2] // 512, r[0] // 1000)
        if version == 2:
            values = (command, version << 8, i, r[3], 1, r[2] // 512, r[0] // 1000, 1)
        return struct.pack(layout, *values).decode("latin-1")

    def count(record: str) -> Counted:
        f = struct.unpack(layout, record.encode("latin-1"))
        command, length, offset, us = (f[3], f[1], f[5], f[6]) if version == 1 else (f[0], f[3], f[5], f[6])
        op = {0x28: R, 0x2A: W, 0x35: F}[command]
        return [(us * 1000, op, *((0, 0) if op == F else (offset * 512, length)))]

    return line, count


NAMED = "columns:time:ms,dev,op,offset:512,length:1"
FORMS = {
    one.name: one
    for one in (
        Form(
            "msr",
            lambda r, i, style: f"{EPOCH + r[0] // 100},host,0,{letters(r[1], 'Read Write')},{r[2]},{r[3]},17",
            msr, empty=(f"{EPOCH + 10**10},,0,Read,4096,4096,", f"{EPOCH + 10**10},host,0,Read,,4096,17"),
        ),
        Form(
            "spc", lambda r, i, style: f"0,{r[2] // 512},{r[3]},{letters(r[1], 'r W')},{style.time(s_of(r[0]), i)}",
            spc, empty=("0,8,4096,r,0.5,", "0,8,,r,0.5"),
        ),
        Form("fiu", lambda r, i, style: f"{r[0]} 7 job {r[2] // 512} {r[3] // 512} {letters(r[1], 'R W')} 8 0", fiu),
        Form(
            "blkparse",
            lambda r, i, style: "\n".join(
                f"  8,0  {i % 4} {i} {style.time(s_of(r[0]) + late, i)} 300  {stage} {rwbs(r[1])} "
                + ("[job x]" if r[1] == F else f"{r[2] // 512} + {r[3] // 512} [job x]")
                for stage, late in (("Q", Decimal("-0.000001")), ("D", Decimal(0)), ("C", Decimal("0.00001")))
            ),
            blkparse, operations=(R, W, T, F),
        ),
        Form(
            "ftrace",
            lambda r, i, style: "\n".join(
                f" job x-{i} [003] d..1. {style.time(s_of(r[0]), i)}: {event}: 259,0 "
                + (f"{rwbs(r[1])} {r[3]} () {r[2] // 512} + {r[3] // 512}" if r[1] != F else "FF 0 () 0 + 0")
                + " [job]"
                for event in ("block_rq_insert", "block_rq_issue")
            ),
            ftrace, operations=(R, W, T, F),
        ),
        Form(
            "biosnoop",
            lambda r, i, style: f"{style.time(s_of(r[0]), i)} job {i} sda {'RWD'[r[1]]} {r[2] // 512} {r[3]} 0.31",
            biosnoop, first="TIME(s)  COMM  PID  DISK  T  SECTOR  BYTES  LAT(ms)", operations=(R, W, T),
            empty=("0.500000 kworker/1:2 93          R 18446744073709551615 0  0.11", ""),
        ),
        Form(
            "wiscsee",
            lambda r, i, style: (
                f"300 D {letters(r[1], 'read write discard')} {r[2]} {r[3]} {style.time(s_of(r[0]), i)} 0.1 True"
            ),
            wiscsee, operations=(R, W, T),
        ),
        Form(
            "biotracer",
            lambda r, i, style: f"{r[2] // 512}\t{r[3] // 512}\t{r[3]}\t{r[1]}" + f"\t{style.time(s_of(r[0]), i)}" * 4,
            biotracer,
        ),
        Form(
            "disksim", lambda r, i, style: f"{style.time(ms_of(r[0]), i)} 0 {r[2] // 512} {r[3] // 512} {1 - r[1]}",
            five((MS, 512, 512)), asked="disksim",
        ),
        Form(
            "ascii-pages",
            lambda r, i, style: f"{style.time(ms_of(r[0]), i)} 0 {r[2] // 512} {r[3] // 4096} {1 - r[1]}",
            five((MS, 512, 4096)), asked="ascii-pages",
        ),
        Form(
            "mqsim", lambda r, i, style: f"{r[0]} 0 {r[2] // 512} {r[3] // 512} {1 - r[1]}", five((1, 512, 512)),
            asked="mqsim",
        ),
        Form(
            "mqsim-bytes", lambda r, i, style: f"{r[0]} 0 {r[2]} {r[3] // 512} {1 - r[1]}", five((1, 1, 512)),
            asked="mqsim-bytes",
        ),
        Form(
            "fio2",
            lambda r, i, style: (
                f"/f {letters(r[1], 'read write trim sync')}" + (f" {r[2]} {r[3]}" if r[1] != F else "")
            ),
            lambda line: fio(line.split(), 0), first="fio version 2 iolog\n/f add\n/f open", operations=(R, W, T, F),
            timed=False,
        ),
        Form(
            "fio3",
            lambda r, i, style: (
                f"{r[0] // 1000} /f {letters(r[1], 'read write trim datasync')}"
                + (f" {r[2]} {r[3]}" if r[1] != F else "")
            ),
            lambda line: fio(line.split()[1:], int(line.split()[0]) * 1000), first="fio version 3 iolog\n0 /f add",
            operations=(R, W, T, F),
        ),
        Form("vscsi1", *vscsi(1), operations=(R, W, F), binary=True),
        Form("vscsi2", *vscsi(2), operations=(R, W, F), binary=True),
        # any table: named by its first line, and by --columns
        Form(
            "names", table_line, table, first="time (ms),Disk,IOType,sector,size_bytes,file", operations=(R, W, T, F),
            empty=("9999,disk 0,Read,8,4096,", "9999,disk 0,,8,4096,"),
        ),
        Form(
            "columns", table_line, table, asked=NAMED, operations=(R, W, T, F),
            empty=("9999,disk 0,Read,8,4096,", "9999,disk 0,Read,,4096,"),
        ),
    )
}  # fmt: skip


# --- the ways


def text_of(form: Form, style: Style = Style(), order: random.Random | None = None) -> list[str]:
    """The lines (records, of a binary format) of one file."""
    made = [(ms * MS, form.operations[i % len(form.operations)], at, size)
            for i, (ms, _, at, size) in enumerate(requests()[:N])]  # fmt: skip
    if order is not None:
        order.shuffle(made)
    lines = [form.line(r, i, style) for i, r in enumerate(made)]
    if form.binary:
        return lines
    return "\n".join([form.first] * bool(form.first) + lines).split("\n")


def joined(form: Form, lines: list[str], end: str = "\n") -> bytes:
    return "".join(lines).encode("latin-1") if form.binary else "".join(line + end for line in lines).encode()


def scattered(form: Form, more: list[str]) -> bytes:
    """With these lines above what the file begins with (not above a line that has to be the first), between, below."""
    lines = text_of(form)
    at = 1 if form.first.startswith("fio") else 0
    middle = len(lines) // 2
    return joined(form, [*lines[:at], *more, *lines[at:middle], *more, *lines[middle:], *more])


def digits(value: Decimal, at: int) -> str:
    """More digits and fewer, as writers have them."""
    return (f"{value:.3f}", f"{value:.9f}", f"{value:.6f}")[at % 3]


def floats(form: Form) -> bytes:
    """Tables come from programs that write any number as one with a point, and small ones with an exponent."""
    if form.count is table:
        return joined(
            form, text_of(form, Style(lambda value, at: f"{value:e}" if at % 2 else f"{value}.", "{}.0".format))
        )
    return joined(form, text_of(form, Style(digits)))


def with_empty(form: Form) -> bytes:
    lines = text_of(form)
    return joined(form, [*lines, *(line for line in form.empty if line)])


WAYS: dict[str, Callable[[Form], bytes]] = {
    "plain": lambda form: joined(form, text_of(form)),
    "mark": lambda form: b"\xef\xbb\xbf" + joined(form, text_of(form)),
    "marks": lambda form: joined(form, ["\ufeff" + line for line in text_of(form)]),
    "crlf": lambda form: joined(form, text_of(form), "\r\n"),
    "cr": lambda form: joined(form, text_of(form), "\r"),
    "no end": lambda form: joined(form, text_of(form)).rstrip(b"\n"),
    "blank lines": lambda form: scattered(form, ["", "  ", "\t"]),
    "comments": lambda form: scattered(form, ["# made by hand", "#"]),
    "floats": floats,
    "hex": lambda form: joined(form, text_of(form, Style(size=hex))),
    "unsorted": lambda form: joined(form, text_of(form, order=random.Random(5))),
    "empty fields": with_empty,
    **{name: lambda form, name=name: PACKERS[name](joined(form, text_of(form))) for name in ("gz", "bz2", "xz", "zst")},
}

RECORDS = "records have no lines, and fields of a fixed width"
WHOLE = "its times are whole numbers of ticks"
SENSELESS: dict[tuple[str, str], str] = {
    **{
        (name, way): RECORDS
        for name in ("vscsi1", "vscsi2")
        for way in ("mark", "marks", "crlf", "cr", "no end", "blank lines", "comments", "floats", "empty fields")
    },
    **{(name, "floats"): WHOLE for name in ("msr", "fiu", "fio3")},
    **{(name, "floats"): "with a point, its times would be DiskSim's" for name in ("mqsim", "mqsim-bytes")},
    **{(name, way): "it has no times" for name in ("fio2",) for way in ("floats", "unsorted")},
    **{
        (name, "hex"): "its writers write decimal numbers"
        for name in FORMS if name not in ("names", "columns")
    },
    **{
        (name, "empty fields"): "what stands between its fields is blanks: none can be empty"
        for name in ("fiu", "blkparse", "ftrace", "wiscsee", "biotracer", "disksim", "ascii-pages", "mqsim",
                     "mqsim-bytes", "fio2", "fio3")
    },
}  # fmt: skip


# --- the counter


@dataclass
class Count:
    """What is in a file."""

    requests: Counted = field(default_factory=list)
    rejected: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


UNPACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZ": bz2.decompress,
    b"\xfd7": lzma.decompress,
    b"\x28\xb5": lambda packed: zstandard.ZstdDecompressor().decompressobj().decompress(packed),
}


def pieces(form: Form, content: bytes) -> Iterator[str]:
    """Lines, or records."""
    content = UNPACK.get(content[:2], bytes)(content)
    if form.binary:
        size = 32 if form.name == "vscsi1" else 40
        yield from (content[at : at + size].decode("latin-1") for at in range(0, len(content), size))
    else:
        yield from content.decode().replace("\ufeff", "").splitlines()


def counted(form: Form, content: bytes) -> Count:
    out = Count()
    names = form.first.split("\n")[0]
    for piece in pieces(form, content):
        if not form.binary and not piece.strip():
            out.skipped["blank lines"] += 1
        elif not form.binary and piece.startswith("#"):
            out.skipped["comments"] += 1
        elif piece != names:
            try:
                found = form.count(piece)
            except (ArithmeticError, ValueError, KeyError, IndexError):
                out.rejected += 1
            else:
                out.requests += found
    return out


def times(found: Counted, ordered: bool) -> tuple[list[int], int]:
    """(from the first request on, each at least the one before; how many are earlier than one before them)."""
    begin = min(one[0] for one in found) if ordered else found[0][0]
    at = sorted(one[0] - begin for one in found) if ordered else [one[0] - begin for one in found]
    held = [max(at[: i + 1]) for i in range(len(at))]
    return held, sum(was < now for was, now in zip(at, held, strict=True))


# --- and both beside each other


def cells() -> list[tuple[str, str]]:
    return [(name, way) for name in FORMS for way in WAYS if (name, way) not in SENSELESS]


def test_each_reader_and_each_way_is_there_or_has_a_reason() -> None:
    """flashfs's own recordings are binary, packed by themselves, and have tests of their own (test_recorded.py)."""
    assert set(FORMS) == {one.name for one in FORMATS} - {"flashfs"} | {"names", "columns"}
    assert set(SENSELESS) <= {(name, way) for name in FORMS for way in WAYS}
    assert {way for _, way in cells()} == set(WAYS)


@pytest.mark.parametrize("name", FORMS)
def test_requests_are_those_of_the_counter(name: str, tmp_path: Path) -> None:
    """In each way that makes sense for the format; a failure names all ways in which it fails."""
    wrong = []
    for way in (way for other, way in cells() if other == name):
        try:
            agree(name, way, tmp_path / way.replace(" ", "-").replace("/", "-"))
        except Exception as error:
            wrong.append(f"{way}: {type(error).__name__}: {str(error)[:500]}")
    assert wrong == []


def agree(name: str, way: str, path: Path) -> None:
    """The reader and the counter, on the file written in that way."""
    form = FORMS[name]
    path.write_bytes(WAYS[way](form))
    want = counted(form, path.read_bytes())
    assert len(want.requests) >= N
    for sort in (False, True) if form.timed else (False,):
        trace = Trace(path, Options(sort=sort), format=form.asked)
        found = rows(whole(trace))
        held, back = times(want.requests, sort)
        order = sorted(want.requests, key=lambda one: one[0]) if sort else want.requests
        assert [row[1:] for row in found] == [one[1:] for one in order]
        assert [row[0] for row in found] == held
        assert (trace.rejected.total, trace.adjusted.total) == (want.rejected, back)
        assert {key: trace.skipped.get(key, 0) for key in ("blank lines", "comments")} == {
            key: want.skipped[key] for key in ("blank lines", "comments")
        }
    assert (times(want.requests, False)[1] > 0) == (way == "unsorted")
    assert trace.format.name == {"names": NAMED, "columns": NAMED}.get(name, name)
