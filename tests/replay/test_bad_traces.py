"""Errors in a trace are counted, and reported in one line with the first line that has them; nothing vanishes."""

from __future__ import annotations

import io
import lzma
import os
import random
import socket
import struct
import zipfile
from pathlib import Path

import pytest
from trace_files import DATA, PACKERS, REQUESTS, in_ns, rows, whole

from flashfs.errors import FlashfsError, UsageError
from flashfs.replay.open_source import open_source
from flashfs.replay.request_source import TRIM, TraceError
from flashfs.replay.traces import Options, Trace, _content

GOOD = "128166372000000000,host,0,Write,4096,4096,1\n"


def told(trace: Trace) -> list[tuple[str, int, int, str]]:
    """(reason, count, first line, its text) of what was rejected; each is one printable line too."""
    for line in trace.complaints():
        assert line.isprintable() and line.startswith(trace.name)
    return [(row["reason"], row["count"], row["first_line"], row["first"]) for row in trace.rejected.rows()]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("128166372000000000,host,0,Write,-4096,4096,1", "negative offset"),
        ("128166372000000000,host,0,Write,4096,-1,1", "negative length"),
        ("128166372000000000,host,0,Write,4096,0,1", "empty request"),
        ("128166372000000000,host,0,Write,4096,1073741825,1", "longer than 1 GiB"),
        ("128166372000000000,host,0,Write,9223372036854775807,4096,1", "ends beyond 2^63 bytes"),
        ("128166372000000000,host,0,Write,99999999999999999999,4096,1", "offset is beyond 64 bits"),
        ("128166372000000000,host,0,Write,4k,4096,1", "offset is no number"),
        ("soon,host,0,Write,4096,4096,1", "time is no number"),
        (",host,0,Write,4096,4096,1", "time is no number"),
        ("128166372000000000,host,0,Erase,4096,4096,1", "unknown operation"),
        ("128166372000000000,host,0,Write,4096", "too few columns"),
        ("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime", "time is no number"),
        ("128166372000000000,host,0,Wr\x00te,4096,4096,1", "no text"),
    ],
)
def test_a_line_that_is_no_request(line: str, reason: str, tmp_path: Path) -> None:
    trace = Trace(write(tmp_path / "trace", GOOD * 3 + line + "\n" + GOOD + line + "\n"))
    assert len(whole(trace)) == 4
    assert told(trace) == [(reason, 2, 4, line.replace("\x00", "·"))]


def test_too_far_in_sectors(tmp_path: Path) -> None:
    """A product that would wrap to something sensible."""
    lba = (1 << 64) // 512 + 8
    trace = Trace(write(tmp_path / "trace", f"0 0 8 8 0\n0 0 {lba} 8 0\n"), format="mqsim")
    assert len(whole(trace)) == 1
    assert told(trace) == [("ends beyond 2^63 bytes", 1, 2, f"0 0 {lba} 8 0")]


def test_several_reasons_and_lines_of_other_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = GOOD.replace(",4096,4096", ",-1,4096")
    path = write(tmp_path / "trace", GOOD * 50 + "x\n" + GOOD * 50 + bad + "x\n" + bad)
    for chunk_bytes in (1, 100, 1 << 20):
        monkeypatch.setattr(_content, "CHUNK_BYTES", chunk_bytes)
        trace = Trace(path)
        assert len(whole(trace)) == 100
        assert told(trace) == [
            ("too few columns", 2, 51, "x"),
            ("negative offset", 2, 102, bad.strip()),
        ]


def test_time_that_goes_back_is_kept_at_the_time_before(tmp_path: Path) -> None:
    lines = "".join(f"{time} 0 8 8 0\n" for time in (100, 300, 200, 250, 400, 50, 500))
    trace = Trace(write(tmp_path / "trace", lines), format="mqsim")
    assert whole(trace).time_ns.tolist() == [0, 200, 200, 200, 300, 300, 400]
    assert trace.rejected.total == 0
    assert [line.partition(": ")[2] for line in trace.complaints()] == [
        "3 lines adjusted: time goes back; kept at the time before (first: line 3: 'by 100 ns'); --sort puts "
        "requests into the order of their times"
    ]


def test_binary_noise_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = random.Random(1).randbytes(5000)
    path = write(tmp_path / "trace", GOOD.encode() * 200 + noise + b"\n" + GOOD.encode() * 200)
    for chunk_bytes in (64, 1 << 20):
        monkeypatch.setattr(_content, "CHUNK_BYTES", chunk_bytes)
        trace = Trace(path)
        assert len(whole(trace)) == 400
        reason, _, line, _ = told(trace)[0]
        assert (reason, line) == ("no text", 201)
        blank = trace.skipped.get("blank lines", 0)
        assert trace.rejected.total + blank == noise.count(b"\n") + 1


def test_a_line_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of many chunks costs no more memory than its beginning, and line numbers stay right after it."""
    monkeypatch.setattr(_content, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(_content, "PIECE_BYTES", 500)
    monkeypatch.setattr(_content, "LINE_BYTES_MAX", 2000)
    path = write(tmp_path / "trace", GOOD * 30 + "7" * 50_000 + "\n" + GOOD * 30 + "x\n")
    trace = Trace(path)
    assert len(whole(trace)) == 60
    assert [(reason, count, line) for reason, count, line, _ in told(trace)] == [
        ("no text", 1, 31), ("too few columns", 1, 62),
    ]  # fmt: skip


@pytest.mark.parametrize("packing", ["gz", "xz", "zst"])  # bz2 gives nothing before a block of 900 kB is whole
def test_a_packed_stream_that_ends_early(packing: str, tmp_path: Path) -> None:
    rnd = random.Random(1)
    lines = [f"{i} 0 {rnd.randrange(1 << 30)} 8 0\n" for i in range(20_000)]
    packed = PACKERS[packing]("".join(lines).encode())
    trace = Trace(write(tmp_path / "trace", packed[: len(packed) * 3 // 4]), format="mqsim")
    found = whole(trace)
    assert 1000 < len(found) < 20_000
    assert found.time_ns.tolist() == list(range(len(found)))
    reasons = {reason: count for reason, count, _, _ in told(trace)}
    assert reasons.pop("the file ends early") == 1
    assert sum(reasons.values()) <= 1  # the line that was cut


@pytest.mark.parametrize("packing", ["gz", "bz2", "xz", "zst"])
def test_a_packed_stream_that_is_damaged(packing: str, tmp_path: Path) -> None:
    packed = bytearray(PACKERS[packing](b"".join(b"%d 0 %d 8 0\n" % (i, i * 7919 % 10007) for i in range(20_000))))
    packed[len(packed) // 2] ^= 0xFF
    path = write(tmp_path / "trace", bytes(packed))
    with pytest.raises(TraceError, match=rf"the {packing} stream is damaged") as caught:
        Trace(path, format="mqsim").hash()
    assert "\n" not in str(caught.value)


def test_records_of_vscsi_that_are_none(tmp_path: Path) -> None:
    content = (DATA / "v1.vscsi").read_bytes()
    records = [content[at : at + 32] for at in range(0, len(content), 32)]
    unmap = struct.pack("<IIIHHQQ", 1, 24, 1, 0x42, 0x0100, 0, 6_000_000_000)
    odd = struct.pack("<IIIHHQQ", 1, 24, 1, 0x77, 0x0100, 0, 6_000_000_000)
    far = struct.pack("<IIIHHQQ", 1, 4096, 1, 0x2A, 0x0100, 1 << 60, 6_000_000_000)
    path = write(tmp_path / "trace", b"".join([*records[:12], b"\xff" * 32, unmap, odd, far]) + records[0][:20])
    trace = Trace(path)
    assert rows(whole(trace)) == in_ns(REQUESTS)
    assert [(reason, count, line) for reason, count, line, _ in told(trace)] == [
        ("no record of this version", 1, 13),
        ("UNMAP or WRITE SAME, whose range is not in the record", 1, 14),
        ("unknown operation", 1, 15),
        ("ends beyond 2^63 bytes", 1, 16),
        ("cut short", 1, 17),
    ]


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    for content, why in (
        (b"", "empty"),
        (b"\n\n", "no trace format that is known"),
        (b"To be, or not to be\n", "no trace format that is known .it begins 'To be, or not to be'."),
        (random.Random(2).randbytes(100_000), "no trace format that is known"),
    ):
        with pytest.raises(TraceError, match=why) as caught:
            Trace(write(tmp_path / "trace", content))
        assert str(caught.value).isprintable()
    with pytest.raises(TraceError, match="a directory"):
        Trace(tmp_path)
    with pytest.raises(OSError):
        Trace(tmp_path / "nonesuch")


def oracle_general() -> bytes:
    """libCacheSim's records: a time, an object, a size, and the number of the object's next request."""
    return b"".join(struct.pack("<IQIq", i // 3, i % 7, 4096, i + 7 if i < 43 else -1) for i in range(50))


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:  # stored: its lines could be read
        archive.writestr("trace.csv", GOOD * 50)
    return out.getvalue()


@pytest.mark.parametrize("format", [None, "msr", "columns:time:s,offset:512,length:512,op"])
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (struct.pack("<IIQQIIIIIHH", 0x65617407, 1, 0, 0, 4096, 0x20001, 9, 8, 0, 0, 0), "blkparse makes text of it"),
        (struct.pack(">IIQQIIIIIHH", 0x65617408, 1, 0, 0, 4096, 0x20001, 9, 8, 0, 0, 0), "a binary blktrace: blkparse"),
        (zipped(), "a zip: unpack it"),
        (lzma.compress(GOOD.encode(), format=lzma.FORMAT_ALONE), "an .lzma file: unpack it"),
        (b"7z\xbc\xaf\x27\x1c\x00\x04", "a 7z archive: unpack it"),
        (b"PERFILE2" + bytes(96), "a perf.data: `perf script` makes text of it"),
        (oracle_general(), "an oracleGeneral trace of libCacheSim: it has numbers of objects"),
        (GOOD.encode("utf-16"), "UTF-16 text: `iconv -f UTF-16 -t UTF-8`"),
        (GOOD.encode("utf-16-be"), "UTF-16 text"),
        (GOOD.encode("utf-32"), "UTF-32 text: `iconv -f UTF-32 -t UTF-8`"),
        (PACKERS["gz"](GOOD.encode("utf-16")), "UTF-16 text"),
    ],
    ids=lambda value: value[:16] if isinstance(value, str) else "",
)
def test_files_that_are_known_and_not_read(content: bytes, what: str, format: str | None, tmp_path: Path) -> None:
    """They are called by their name, and it is said what makes a trace of them; also if a format insists."""
    path = write(tmp_path / "trace", content)
    with pytest.raises(TraceError, match=what) as caught:
        Trace(path, format=format)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("serial", [93, 0x9D1F, 0x04034B50, 0x65617407, 0xFEFF, 0x31FEFF, 0xBFBBEF, 0x20BFBBEF])
def test_a_record_is_not_taken_for_something_else(serial: int, tmp_path: Path) -> None:
    """Numbers of first records that begin as other files do: .lzma, UTF-16, UTF-32, a byte order mark. A zip and a
    blktrace would need a serial number that is never reached."""
    records = [struct.pack("<IIIHHQQ", serial + i, 4096, 1, 0x2A, 0x0100, 8 * i, i) for i in range(20)]
    path = write(tmp_path / "trace", b"".join(records))
    if serial in (0x04034B50, 0x65617407):
        with pytest.raises(TraceError, match=r"zip|blktrace"):
            Trace(path)
        return
    trace = Trace(path)
    assert trace.format.name == "vscsi1"
    assert len(whole(trace)) == 20


def test_what_is_no_file(tmp_path: Path) -> None:
    """A trace is read again and again, so it is refused before a wait for the other end of a pipe."""
    pipe, door = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(door))
        for path, kind in ((pipe, "a pipe"), (door, "a socket"), (Path("/dev/zero"), "a character device")):
            with pytest.raises(
                TraceError, match=f"{path}: {kind}: a trace is read more than once and has to be a file"
            ):
                Trace(path, format="msr")
    (tmp_path / "link").symlink_to(DATA / "msr.csv")
    assert len(whole(Trace(tmp_path / "link"))) == len(REQUESTS)
    with pytest.raises(UsageError, match="-: standard input: a trace is read more than once and has to be a file"):
        open_source("-", 1 << 30)


NOISY = ["msr", "spc", "fiu", "blkparse", "wiscsee", "biotracer", "disksim", "mqsim", "vscsi2"]


@pytest.mark.parametrize("name", NOISY)
def test_noise_that_is_said_to_be_a_trace(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "trace", random.Random(3).randbytes(200_000))
    with pytest.raises(TraceError, match=r"no request can .*, [\d,]+ lines rejected, the first at line 1") as caught:
        whole(Trace(path, format=name))
    assert str(caught.value).isprintable()


def test_an_iolog_with_another_first_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="not 'fio version 3 iolog'"):
        whole(Trace(write(tmp_path / "trace", "fio version 2 iolog\n"), format="fio3"))


def test_random_damage_is_told_or_refused(tmp_path: Path) -> None:
    """Bytes changed, cut out and put in anywhere: requests that are right, or one line."""
    rnd = random.Random(4)
    for _ in range(150):
        path = rnd.choice(sorted(DATA.iterdir()))
        content = bytearray(path.read_bytes())
        for _ in range(rnd.randrange(1, 6)):
            at = rnd.randrange(len(content))
            kind = rnd.randrange(3)
            if kind == 0:
                content[at] = rnd.randrange(256)
            elif kind == 1:
                del content[at : at + rnd.randrange(1, 40)]
            else:
                content[at:at] = rnd.randbytes(rnd.randrange(1, 40))
            if not content:
                break
        damaged = write(tmp_path / "trace", bytes(content))
        try:
            trace = Trace(damaged)
            found = whole(trace)
        except FlashfsError as error:
            assert str(error).isprintable()
            continue
        told(trace)
        assert (found.op <= 3).all()
        assert ((found.length > 0) | (found.op == 3)).all()
        assert (found.length[found.op != TRIM] <= 1 << 30).all()
        assert (found.offset + found.length < 1 << 63).all()
        assert (found.time_ns[1:] >= found.time_ns[:-1]).all()


def test_beyond_and_before_the_device(tmp_path: Path) -> None:
    path = write(tmp_path / "trace", "0 0 0 8 0\n1 0 2040 8 0\n2 0 2041 8 0\n3 0 4096 8 1\n4 0 8 8 0\n")
    trace = Trace(path, device_bytes=1 << 20, format="mqsim")
    assert [offset // 512 for _, _, offset, _ in rows(whole(trace))] == [0, 2040, 8]
    assert told(trace) == [("beyond the device", 2, 3, "offset 1044992, length 4096")]
    trace = Trace(path, Options(shift_bytes=-8 * 512), device_bytes=1 << 20, format="mqsim")
    assert [offset // 512 for _, _, offset, _ in rows(whole(trace))] == [2032, 2033, 0]
    assert [(reason, line) for reason, _, line, _ in told(trace)] == [
        ("before the device", 1), ("beyond the device", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        Options(fit="squeeze"), Options(pack_bytes=5000), Options(pack_bytes=1 << 21),
        Options(speedup=0), Options(speedup=-1), Options(speedup=float("nan")),
        Options(speedup=float("inf")), Options(loops=0), Options(first=0), Options(event="X"),
    ],
)  # fmt: skip
def test_options_that_cannot_be(options: Options) -> None:
    with pytest.raises(UsageError, match="use "):
        Trace(DATA / "msr.csv", options)


def test_a_device_that_cannot_be() -> None:
    for size in (0, 512, 5000):
        with pytest.raises(UsageError, match="use a multiple of 4096"):
            Trace(DATA / "msr.csv", device_bytes=size)


def test_loops_end_before_virtual_time_does(tmp_path: Path) -> None:
    path = tmp_path / "years.csv"
    year = 365 * 86_400 * 10**7  # ticks of 100 ns
    path.write_text("".join(f"{at},hm,0,Write,0,4096,1\n" for at in (year, 2 * year)))
    few = Trace(str(path), Options(loops=50))
    assert sum(len(batch) for batch in few.batches()) == 100
    many = Trace(str(path), Options(loops=500))
    with pytest.raises(TraceError, match="loops take more than virtual time has"):
        list(many.batches())
    fast = Trace(str(path), Options(loops=500, speedup=100))
    assert sum(len(batch) for batch in fast.batches()) == 1_000
