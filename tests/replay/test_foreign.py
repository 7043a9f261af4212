"""Files of other makes are read right, asked about, or refused: never misread. Also any table with named columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_files import FOLDER, LAYOUTS, content, requests
from trace_files import rows, whole

from flashfs.errors import UsageError
from flashfs.replay.request_source import TraceError
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


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ('0,a,8,1,w,"C:\\x,y.mdf"\n2.5,a,16,2,r,"b"\n', "time:ms,dev,offset:512,length:512,op"),  # after all named
        ('0,8,1,w, "C:\\x, ""y"", z.mdf" ,a\r\n2.5,16,2,r,"b",a\r\n', "time:ms,offset:512,length:512,op,-,dev"),
        ('"a; b";0;8;1;w\n"c";2.5;16;2;r\n', "-,time:ms,offset:512,length:512,op"),
        ('0 "a,b,c,d,e" 8 1 w\n2.5 "f,g,h,i,j" 16 2 r\n', "time:ms,-,offset:512,length:512,op"),
        ('0 "job 1" 8 1 w\n2.5 job2 16 2 r\n', "time:ms,-,offset:512,length:512,op"),
        ('0,5" disk,8,1,w\n2.5,3" disk,16,2,r\n', "time:ms,-,offset:512,length:512,op"),  # these quote nothing
    ],
)
def test_a_separator_within_quotes_is_none(text: str, columns: str, tmp_path: Path) -> None:
    found = table(tmp_path, text, columns)
    assert rows(whole(found)) == [(0, 1, 4096, 512), (2_500_000, 0, 8192, 1024)]
    assert found.rejected.total == 0


def test_a_disk_whose_name_has_a_separator_in_it(tmp_path: Path) -> None:
    text = '0,"a, b",8,w\n1,c,8,w\n2,"a, b",8,w\n'
    found = table(tmp_path, text, "offset:512,dev,length:512,op")
    whole(found)
    assert found.units == {"a, b": 2, "c": 1}
    one = table(tmp_path, text, "offset:512,dev,length:512,op", Options(unit="a, b"))
    assert len(whole(one)) == 2


def test_numbers_of_any_make(tmp_path: Path) -> None:
    """Hexadecimal, and whole numbers that a program wrote as others; anything else is reported."""
    columns = "op,offset,length"
    text = (
        "w,0x0000216000,0x00000200\nr,0X1000,4096\nw,8192.0,4096.\nr,+512,512.000\nw,0x,512\nw,0x10g,512\nw,8192.5,512\n"
        "w,0x7fffffffffffffff,512\nw,0x8000000000000000,512\nw,,512\n"
    )
    found = table(tmp_path, text, columns)
    assert [row[1:] for row in rows(whole(found))] == [
        (1, 2_187_264, 512), (0, 4096, 4096), (1, 8192, 4096), (0, 512, 512),
    ]  # fmt: skip
    assert [(row["reason"], row["count"], row["first_line"]) for row in found.rejected.rows()] == [
        ("offset is no number", 5, 5), ("ends beyond 2^63 bytes", 1, 8),
    ]  # fmt: skip
    only = table(tmp_path, "r,0x0,0x200\nw,0x200,0x200\n", columns)  # the first line names no columns
    assert [row[1:] for row in rows(whole(only))] == [(0, 0, 512), (1, 512, 512)]


def test_a_trace_of_windows_servers(tmp_path: Path) -> None:
    """Lines of several kinds, a heading that is no table, hexadecimal numbers, and names of files with commas."""
    disk = (
        "{}, {}, app.exe (12),  77, 0xfffffa80, {:#012x}, 0x00000200,  300,  1, 0x060043,  290, Normal, O, 0xff, {}\n"
    )
    text = (
        "BeginHeader\n  DiskRead,  TimeStamp,  Process Name ( PID),   ThreadID,   IrpPtr,   ByteOffset,   IOSize\n"
        "EndHeader\n  DiskReadInit,   12,  app.exe (12),   77, 0xfffffa80\n"
        + disk.format("  DiskWrite", 12345, 2_187_264, '"C:\\d\\a,b.mdf"') * 4
        + disk.format("  DiskRead", 12346, 4096, '"C:\\c.mdf"')
    )
    columns = "op:DiskRead=read,DiskWrite=write,DiskFlush=flush,time:us,-,-,-,offset,length,-,dev"
    found = table(tmp_path, text, columns)
    assert rows(whole(found)) == [(0, 1, 2_187_264, 512)] * 4 + [(1000, 0, 4096, 512)]
    assert found.units == {"1": 5}
    assert found.rejected.total + sum(found.skipped.values()) == 4


SNOOP = "TIME(s),COMM,PID,DISK,T,SECTOR,BYTES,LAT(ms)"


@pytest.mark.parametrize(
    ("first", "line", "reading"),
    [
        (SNOOP, "0.5,a b,7,sda,W,8,4096,0.1", "time:s,-,-,dev,op,offset:512,length:1"),
        ("t,op,lba_512,bytes", "0.5,W,8,4096", "time:?,op,offset:512,length:1"),
        ("t,time_s,sector,bytes", "W,0.5,8,4096", "op,time:s,offset:512,length:1"),
        ("time_s,sector,bytes,tag", "0.5,8,4096,W", "time:s,offset:512,length:1"),
        ("time_s,sector,bytes,op", "0.5,8,4096,W\n1,16,4096,", "time:s,offset:512,length:1,op"),
        ("# by hand\n\n#time_s,sector,bytes,op", "0.5,8,4096,W", "time:s,offset:512,length:1,op"),
        ("# by hand 1.0\n\ntime_s,sector,bytes,op", "0.5,8,4096,W", "time:s,offset:512,length:1,op"),
    ],
)
def test_what_names_say(first: str, line: str, reading: str, tmp_path: Path) -> None:
    """Units that are named are not asked for again; a blank operation is no candidate; T is known by its content."""
    path = tmp_path / "trace"
    path.write_text(f"{first}\n{line}\n")
    if "?" not in reading and "op" in reading.split(","):
        trace = Trace(path)
        assert trace.format.name == f"columns:{reading}"
        assert rows(whole(trace)) == [(0, 1, 4096, 4096)]
        return
    with pytest.raises(TraceError) as caught:
        Trace(path)
    assert f"--columns {reading}" in str(caught.value)
    assert "names no read or write: use --columns" in str(caught.value) or "the unit of t:" in str(caught.value)


def test_operations_that_are_blank_here_and_there(tmp_path: Path) -> None:
    """A response that never came leaves its kind blank; R and W are usual words."""
    path = tmp_path / "trace"
    lines = [f"{i}.5,0.1,{'' if i % 9 == 4 else 'RW'[i % 2]},0,{i * 4096},4096\n" for i in range(40)]
    path.write_text("Timestamp,Response,IOType,LUN,Offset,Size\n" + "".join(lines) + "\n")
    with pytest.raises(TraceError) as caught:
        Trace(path)
    assert "--columns time:?,-,op,dev,offset:?,length:? " in str(caught.value)
    assert "is a read" not in str(caught.value)
    trace = Trace(path, format=named_by(None, "time:s,-,op,dev,offset,length"))
    assert len(whole(trace)) == 40 - 4
    assert [(row["reason"], row["count"]) for row in trace.rejected.rows()] == [("unknown operation", 4)]


@pytest.mark.parametrize("first", ["timestamp_us,device", "device,timestamp_us"])
def test_a_mark_before_names_costs_no_column(first: str, tmp_path: Path) -> None:
    name = first.partition(",")[0]
    lines = [(i, 7 + 2 * (i % 2)) if name == "timestamp_us" else (7 + 2 * (i % 2), i) for i in range(4)]
    text = f"{first},op,offset_bytes,size_bytes\n" + "".join(f"{a},{b},W,0,4096\n" for a, b in lines)
    path = tmp_path / "trace"
    path.write_text(text, encoding="utf-8-sig")
    trace = Trace(path)
    assert rows(whole(trace)) == [(i * US, 1, (i % 2) << 20, 4096) for i in range(4)]
    assert trace.units == {"7": 2, "9": 2}
    assert trace.timed
    path.write_text(text.replace("_us", ""), encoding="utf-8-sig")
    with pytest.raises(TraceError, match=r"the unit of timestamp: use --columns (time:[?],dev|dev,time:[?]),op,"):
        Trace(path)


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
    """There and back: one line whose clock was wrong does no harm to later ones."""
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
