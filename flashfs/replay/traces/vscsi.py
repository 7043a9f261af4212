"""vscsi, from under virtual machines: binary records, little endian, in two versions.

| version | bytes | fields |
| --- | --: | --- |
| 1 | 32 | u32 serial, u32 bytes, u32 segments, u16 command, u16 version, u64 LBA of 512 bytes, u64 microseconds |
| 2 | 40 | u16 command, u16 version, u32 serial, u32 bytes, u32 segments, u64 LBA, u64 microseconds, u64 response |

The version is in the high byte of its field. Line numbers are numbers of records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from flashfs.replay.request_source import FLUSH, READ, WRITE
from flashfs.replay.traces import _format
from flashfs.replay.traces._content import Content
from flashfs.replay.traces._format import NOT_A_REQUEST, UNKNOWN_OP, Choice, Format, Lot, Telling

#: SCSI commands
COMMANDS = {
    READ: (0x08, 0x28, 0xA8, 0x88),
    WRITE: (0x0A, 0x2A, 0xAA, 0x8A, 0x2E, 0xAE, 0x8E),  # with WRITE AND VERIFY
    FLUSH: (0x35, 0x91),
    NOT_A_REQUEST: (0x00, 0x12, 0x1A, 0x5A, 0x25, 0x9E, 0xA0, 0x4D, 0x16, 0x17, 0x1B, 0x2F, 0x03, 0x5E, 0x5F),
}
RANGE_ELSEWHERE = (0x42, 0x41, 0x93)  #: UNMAP and WRITE SAME: the record has the length of their data, not of the range
OP = np.full(256, UNKNOWN_OP, np.uint8)
for _op, _commands in COMMANDS.items():
    OP[list(_commands)] = _op
LBA_MAX = (1 << 63) // _format.SECTOR - 1
TIME_MAX = 1 << 62
SAMPLE_RECORDS = 1000
NO_VERSION = "no record of this version"
NO_RANGE = "UNMAP or WRITE SAME, whose range is not in the record"


class Vscsi(Format):
    tick_ns = 1000
    version: ClassVar[int]
    record: ClassVar[np.dtype]

    def likeness(self, head: bytes) -> float:
        n = min(len(head) // self.record.itemsize, SAMPLE_RECORDS)
        if not n:
            return 0.0
        found = np.frombuffer(head, self.record, n)
        return float(np.mean((found["version"] >> 8 == self.version) & (found["command"] < 256)))

    def lots(self, content: Content, choice: Choice, telling: Telling) -> Iterator[Lot]:
        size = self.record.itemsize
        rest, line = b"", 1
        for chunk in content.chunks():
            whole = rest + chunk
            n = len(whole) // size
            rest = whole[n * size :]
            if n:
                yield self._lot(np.frombuffer(whole, self.record, n), line, telling)
            line += n
        if rest:
            why = f"{len(rest)} of {size} bytes"
            telling.rejected.add(_format.CUT_RECORD, line, why)
        if content.cut_short:
            telling.rejected.add(_format.CUT_STREAM, line, f"after {line - 1:,} records")

    def _lot(self, found: np.ndarray, first: int, telling: Telling) -> Lot:
        sane = (found["version"] >> 8 == self.version) & (found["command"] < 256)
        op = OP[found["command"] & 0xFF]
        elsewhere = np.isin(found["command"], RANGE_ELSEWHERE)
        whole = sane & (found["lba"] <= LBA_MAX) & (found["us"] < TIME_MAX)

        def text(line: int) -> str:
            """A record as text, with the names of its fields."""
            one = found[line - first]
            return " ".join(f"{name} {int(one[name]):#x}" for name in ("command", "version", "lba", "bytes", "us"))

        for reason, bad in (
            (NO_VERSION, ~sane),
            (NO_RANGE, sane & elsewhere),
            (_format.NO_OP, sane & (op == UNKNOWN_OP) & ~elsewhere),
            (_format.TOO_FAR, sane & ~whole & (op < NOT_A_REQUEST)),
        ):
            rows = np.flatnonzero(bad)
            if len(rows):
                line = first + int(rows[0])
                telling.rejected.add(reason, line, text(line), len(rows))
        telling.skip("commands that move no data", int((sane & (op == NOT_A_REQUEST)).sum()))
        good = np.flatnonzero(whole & (op < NOT_A_REQUEST))
        kept = found[good]
        flush = op[good] == FLUSH
        lot = Lot(
            line=good + first,
            time=kept["us"].astype(np.int64),
            op=op[good],
            offset=np.where(flush, 0, kept["lba"].astype(np.int64) * _format.SECTOR),
            length=np.where(flush, 0, kept["bytes"].astype(np.int64)),
        )
        return _format.sound(lot, telling.rejected, text)


def fields(*names: tuple[str, str]) -> np.dtype:
    """The dtype of a packed record."""
    return np.dtype(list(names))


class Vscsi1(Vscsi):
    name = "vscsi1"
    title = "vscsi, version 1"
    aliases = ("vscsi",)
    version = 1
    record = fields(
        ("serial", "<u4"), ("bytes", "<u4"), ("segments", "<u4"), ("command", "<u2"), ("version", "<u2"),
        ("lba", "<u8"), ("us", "<u8"),
    )  # fmt: skip


class Vscsi2(Vscsi):
    name = "vscsi2"
    title = "vscsi, version 2"
    version = 2
    record = fields(
        ("command", "<u2"), ("version", "<u2"), ("serial", "<u4"), ("bytes", "<u4"), ("segments", "<u4"),
        ("lba", "<u8"), ("us", "<u8"), ("response", "<u8"),
    )  # fmt: skip
