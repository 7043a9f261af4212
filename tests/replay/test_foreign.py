"""Files of other makes are read right, asked about, or refused: never misread. And any table, told what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_files import FOLDER, LAYOUTS, content, requests
from trace_files import rows, whole

from flashfs.errors import UsageError
from flashfs.replay.source import TraceError
from flashfs.replay.traces import Options, Trace, named_by

MS, US = 1_000_000, 1000


def wanted(name: str) -> list[tuple[int, int, int, int]]:
    late = LAYOUTS[name].jitter_us
    return [(ms * MS + i % late * US, op, offset, length) for i, (ms, op, offset, length) in enumerate(requests())]


def test_the_files_are_those_of_the_layouts() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == {name: content(name) for name in LAYOUTS}
    assert len(LAYOUTS) >= 10


@pytest.mark.parametrize("name", LAYOUTS)
def test_none_is_misread(name: str) -> None:
    layout = LAYOUTS[name]
    if layout.outcome == "read":
        trace = Trace(FOLDER / name)
        assert rows(whole(trace)) == wanted(name)
        assert trace.certainty.startswith("certain: ")
        assert trace.complaints() == []
        return
    with pytest.raises(TraceError, match=layout.outcome) as caught:
        Trace(FOLDER / name)
    assert "\n" not in str(caught.value)
    trace = Trace(FOLDER / name, format=named_by(None, layout.answer))
    assert rows(whole(trace)) == wanted(name)
    assert trace.complaints() == []
    assert trace.describe()["format"].startswith("columns:")


def table(tmp_path: Path, text: str, columns: str, options: Options | None = None) -> Trace:
    path = tmp_path / "table"
    path.write_text(text)
    return Trace(path, options, format=named_by(None, columns))


def test_columns_between_anything(tmp_path: Path) -> None:
    """Commas, semicolons, tabs with empty fields, blanks, and quotes."""
    want = [(0, 1, 4096, 512), (2_500_000, 0, 8192, 1024)]
    for text in (
        "0,x,8,1,w\n2.5,x,16,2,r\n", "0; x; 8; 1; W\n2.5;x;16 ;2;R\r\n", "0\t\t8\t1\twrite\n2.5\t\t16\t2\tREAD\n",
        "0 x 8 1 w\n  2.5  x 16 2 r more\n", '"0","x","8","1","w"\n"2.5","x","16","2","r"\n',
        "when,who,where,much,what\n0,x,8,1,w\n2.5,x,16,2,r\n",
    ):  # fmt: skip
        found = table(tmp_path, text, "time:ms,-,offset:512,length:512,op")
        assert rows(whole(found)) == want
        assert found.rejected.total == 0
    with pytest.raises(TraceError, match="a quoted field with a separator in it"):
        whole(table(tmp_path, '0,"a,b",8,1,w\n', "time:ms,-,offset:512,length:512,op"))


def test_operations_by_any_name(tmp_path: Path) -> None:
    text = "28,0,4096\n2a,0,4096\n42,0,4096\n35,0,0\n99,0,4096\n"
    found = table(tmp_path, text, "op:28=read,2A=write,42=trim,35=flush,offset,length")
    assert [op for _, op, _, _ in rows(whole(found))] == [0, 1, 2, 3]
    assert [(row["reason"], row["first_line"]) for row in found.rejected.rows()] == [("unknown operation", 5)]
    assert not found.timed
    only = table(tmp_path, "1,0,4096\n0,0,4096\n2,0,4096\n", "op:1=read,offset,length")
    assert [op for _, op, _, _ in rows(whole(only))] == [0, 1]  # 2 is neither
    assert only.rejected.total == 1


def test_units_of_a_table(tmp_path: Path) -> None:
    text = "a,0,4096,w\nb,0,4096,w\na,4096,4096,r\n"
    found = table(tmp_path, text, "dev,offset,length,op")
    assert [offset for _, _, offset, _ in rows(whole(found))] == [0, 1 << 20, 4096]
    assert found.units == {"a": 2, "b": 1}
    assert len(whole(table(tmp_path, text, "dev,offset,length,op", Options(unit="b")))) == 1
    with pytest.raises(UsageError, match="name no units"):
        table(tmp_path, text, "-,offset,length,op", Options(unit="b"))


def test_bad_lines_of_a_table(tmp_path: Path) -> None:
    found = table(tmp_path, "0 8 8 r\nx 8 8 r\n1 8\n2 -8 8 r\n3 8 8 q\n\n4 8 8 w\n", "time:s,offset:4k,length:512,op")
    assert len(whole(found)) == 2
    assert [(row["reason"], row["first_line"]) for row in found.rejected.rows()] == [
        ("time is no number", 2), ("too few columns", 3), ("unknown operation", 5), ("negative offset", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("time:ms,offset,length", "no op in it"), ("time,offset,length,op", "time:s, time:ms"),
        ("time:h,offset,length,op", "time:h: use time:s"), ("offset:0,length,op", "offset:0: use the bytes"),
        ("offset,offset,length,op", "each once"), ("offset,length,op,size", "size: use time:ms"),
        ("offset,length,op:1=erase", "op:1=erase: use VALUE=OPERATION"),
        ("offset,length,op:1", "op:1: use VALUE=OPERATION"),
        ("1=read,offset,length,op", "1=read: use time:ms"), ("", "nothing: use time:ms"),
    ],
)  # fmt: skip
def test_what_columns_refuse(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        named_by(None, text)
    assert "use " in str(caught.value)


def test_one_or_the_other() -> None:
    with pytest.raises(UsageError, match="use one of them"):
        named_by("msr", "offset,length,op")
    same = named_by(None, "time:ms,offset:4k,length:512,op:1=read")
    assert same == named_by(None, "time:ms,offset:4096,length:512,op:0=write,1=read")


def test_a_time_that_jumps_by_years_is_told(tmp_path: Path) -> None:
    """There and back: one line whose clock was wrong does no harm to those behind it."""
    year = 365 * 24 * 3600
    when = (5, 6, 60 * year, 7, 8, 20, 3 * year, 3 * year + 1)
    lines = [f"{second} {4096 * i} 4096 w\n" for i, second in enumerate(when)]
    found = table(tmp_path, "".join(lines), "time:s,offset,length,op")
    seconds = [time / 1e9 for time, _, _, _ in rows(whole(found))]
    assert seconds == [0, 1, 1, 1, 2, 14, 14, 15]
    (told,) = found.adjusted.rows()
    assert (told["reason"], told["count"], told["first_line"]) == (
        "time jumps by more than a year; that step is left out", 3, 3,
    )  # fmt: skip
    assert told["first"] == "by +60.0 years"
