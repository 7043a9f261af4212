"""SQLite in WAL mode on `disk` itself, whose checkpoints remap pages from the log to the database instead of copying
them: a VFS for apsw (`pip install apsw`).

    python examples/sqlite_wal.py MOUNTPOINT [ROWS]

puts ROWS values of 16 KiB at random keys, with checkpoints that copy and with checkpoints that remap, and prints the
programmed pages. The database and its log are extents of the disk:

    | headers of the log: the file's 32 bytes, then 24 a frame, 170 a page | page images of the log | database |

SQLite's log has a header of 24 bytes in front of each page image, so that no image begins at a page of the disk. The
VFS keeps the headers apart, and images are whole pages of the disk. A checkpoint reads an image from the log and
writes it to the database: the VFS remembers the last image read, and has the disk remap that page. SQLite reads both
files at their usual offsets, so its own recovery of a log works.

One connection at a time (`locking_mode=EXCLUSIVE`: the index of the log lies in memory), pages of 4 KiB.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import apsw

from flashfs.fuse import commands

PAGE = 4096
FILE_HEADER, FRAME_HEADER = 32, 24
FRAME = FRAME_HEADER + PAGE
HEADERS = 170  #: frame headers a page
NAME = "extents"
NO_LOCKS = apsw.mapping_locking_level["SQLITE_LOCK_NONE"]


class Extents:
    """The disk and the extents on it. ``frames`` is the most that the log holds."""

    def __init__(self, disk: Path, frames: int = 4096, *, remaps: bool = True) -> None:
        self.fd = os.open(disk, os.O_RDWR)
        self.remaps = remaps
        self.frames = frames
        self.images = 1 + -(-frames // HEADERS)  # the first page of the log's images
        self.database = self.images + frames
        self.pages = os.fstat(self.fd).st_size // PAGE - self.database
        self.headers: dict[int, bytearray] = {}  # pages of headers that are not on the disk yet
        self.last: tuple[int, bytes] | None = None  # the frame that was read last, and its image
        self.remapped = self.copied = 0

    def close(self) -> None:
        os.close(self.fd)

    def header_page(self, number: int, *, change: bool = False) -> bytearray:
        """A page of the log's headers, with changes not written yet. With ``change``, the caller may modify it."""
        held = self.headers.get(number)
        if held is None:
            held = bytearray(os.pread(self.fd, PAGE, number * PAGE))
            if change:
                self.headers[number] = held
        return held

    def put_headers(self) -> None:
        for number, held in self.headers.items():
            os.pwrite(self.fd, held, number * PAGE)
        self.headers.clear()

    def database_bytes(self) -> int:
        """The database's size, from its own header."""
        head = os.pread(self.fd, 100, self.database * PAGE)
        return int.from_bytes(head[28:32], "big") * PAGE if head.startswith(b"SQLite format 3\0") else 0

    def log_bytes(self) -> int:
        """The whole extent once the log has begun: SQLite finds the log's end by its checksums."""
        begun = any(self.header_page(0)[:FILE_HEADER])
        return FILE_HEADER + self.frames * FRAME if begun else 0


class Vfs(apsw.VFS):
    """Two files, whatever their names: a database and its log. A rollback journal, which SQLite needs to create a
    database, is kept in memory."""

    def __init__(self, extents: Extents, name: str = NAME) -> None:
        self.extents = extents
        self.journals: dict[str, bytearray] = {}
        super().__init__(name, "")

    def xFullPathname(self, name: str) -> str:
        return name

    def xAccess(self, pathname: str, flags: int) -> bool:
        if pathname.endswith("-wal"):
            return self.extents.log_bytes() > 0
        return pathname in self.journals if pathname.endswith("-journal") else True

    def xDelete(self, filename: str, syncdir: bool) -> None:
        if filename.endswith("-wal"):
            Log(self.extents, filename).xTruncate(0)
        self.journals.pop(filename, None)

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        filename = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        if flags[0] & apsw.SQLITE_OPEN_WAL:
            return Log(self.extents, filename)
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return Database(self.extents, filename)
        return Journal(self.journals.setdefault(filename or "temporary", bytearray()))


class File:
    """The common part. No other process has the disk open, so locks do nothing."""

    def __init__(self, extents: Extents, name: str) -> None:
        self.extents, self.name = extents, name
        self.lock = NO_LOCKS

    def xClose(self) -> None: ...

    def xLock(self, level: int) -> None:
        self.lock = level

    def xUnlock(self, level: int) -> None:
        self.lock = level

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, ptr: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return PAGE

    def xDeviceCharacteristics(self) -> int:
        """Writes of a page are atomic, also across a crash."""
        return int(apsw.SQLITE_IOCAP_ATOMIC4K | apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE)

    def xSync(self, flags: int) -> None:
        self.extents.put_headers()
        os.fsync(self.extents.fd)


class Database(File):
    """The extent of the database. A write of the image that was last read from the log becomes a remap."""

    def __init__(self, extents: Extents, name: str) -> None:
        super().__init__(extents, name)
        self.size = extents.database_bytes()

    def xFileSize(self) -> int:
        return self.size

    def xTruncate(self, newsize: int) -> None:
        self.size = newsize

    def xRead(self, amount: int, offset: int) -> bytes:
        amount = max(0, min(amount, self.size - offset))
        return os.pread(self.extents.fd, amount, self.extents.database * PAGE + offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        on, last = self.extents, self.extents.last
        if offset + len(data) > on.pages * PAGE:
            raise apsw.FullError("the disk ends here")
        data = bytes(data)
        self.size = max(self.size, offset + len(data))
        if last is None or offset % PAGE or last[1] != data:
            os.pwrite(on.fd, data, on.database * PAGE + offset)
            return
        if on.remaps:
            commands.remap(on.fd, (on.images + last[0]) * PAGE, on.database * PAGE + offset, PAGE)
            on.remapped += 1
        else:
            os.pwrite(on.fd, data, on.database * PAGE + offset)
            on.copied += 1


class Log(File):
    """The log: its headers in their pages, its images in theirs."""

    def xFileSize(self) -> int:
        return self.extents.log_bytes()

    def xTruncate(self, newsize: int) -> None:
        """To 0: the log has not begun. Otherwise nothing: SQLite ignores the rest of the log."""
        if newsize == 0:
            self.extents.headers.clear()
            self.extents.header_page(0, change=True)[:FILE_HEADER] = bytes(FILE_HEADER)
            self.extents.put_headers()

    def pieces(self, offset: int, amount: int) -> Any:
        """(page of headers or None, frame, offset in that page or image, bytes) of each part of a range of the file."""
        while amount:
            if offset < FILE_HEADER:
                page, frame, at, n = 0, -1, offset, FILE_HEADER - offset
            else:
                frame, within = divmod(offset - FILE_HEADER, FRAME)
                if within < FRAME_HEADER:
                    page, at = 1 + frame // HEADERS, frame % HEADERS * FRAME_HEADER + within
                    n = FRAME_HEADER - within
                else:
                    page, at, n = None, within - FRAME_HEADER, FRAME - within
            n = min(n, amount)
            yield page, frame, at, n
            offset, amount = offset + n, amount - n

    def xRead(self, amount: int, offset: int) -> bytes:
        on, out = self.extents, []
        on.last = None
        for page, frame, at, n in self.pieces(offset, max(0, min(amount, self.xFileSize() - offset))):
            if page is not None:
                out.append(bytes(on.header_page(page)[at : at + n]))
                continue
            image = os.pread(on.fd, n, (on.images + frame) * PAGE + at)
            out.append(image)
            if n == PAGE:
                on.last = frame, image
        return b"".join(out)

    def xWrite(self, data: bytes, offset: int) -> None:
        on, done = self.extents, 0
        on.last = None
        if offset + len(data) > FILE_HEADER + on.frames * FRAME:
            raise apsw.FullError(f"the log has room for {on.frames} frames")
        for page, frame, at, n in self.pieces(offset, len(data)):
            part = bytes(data[done : done + n])
            done += n
            if page is not None:
                on.header_page(page, change=True)[at : at + n] = part
                continue
            os.pwrite(on.fd, part, (on.images + frame) * PAGE + at)
            if at + n == PAGE and self._commits(frame):  # so that killing this process loses no commit
                on.put_headers()

    def _commits(self, frame: int) -> bool:
        """Whether this is the last frame of a transaction: its header has the size of the database."""
        at = frame % HEADERS * FRAME_HEADER
        return any(self.extents.header_page(1 + frame // HEADERS)[at + 4 : at + 8])


class Journal(File):
    """A rollback journal in memory."""

    def __init__(self, held: bytearray) -> None:
        self.held = held
        self.lock = NO_LOCKS

    def xFileSize(self) -> int:
        return len(self.held)

    def xTruncate(self, newsize: int) -> None:
        del self.held[newsize:]

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self.held[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self.held.extend(bytes(max(0, offset - len(self.held))))
        self.held[offset : offset + len(data)] = data

    def xSync(self, flags: int) -> None: ...


def connect(name: str = NAME, checkpoint: int = 1000, sync: str = "NORMAL") -> apsw.Connection:
    """Open the database of the VFS ``name``. With ``sync="FULL"`` every commit flushes."""
    database = apsw.Connection("db", vfs=name)
    for pragma in ("locking_mode=EXCLUSIVE", "page_size=4096", "journal_mode=WAL",
                   f"synchronous={sync}", f"wal_autocheckpoint={checkpoint}"):  # fmt: skip
        database.execute(f"PRAGMA {pragma}").fetchall()
    database.execute("CREATE TABLE IF NOT EXISTS pairs (key INTEGER PRIMARY KEY, value BLOB)")
    return database


def programs(mountpoint: Path) -> int:
    """Pages programmed since the mount."""
    return int(json.loads((mountpoint / "stats.json").read_text())["nand"]["program"])


def fill(database: apsw.Connection, rows: int, seed: int = 1, value: int = 16 << 10) -> dict[int, bytes]:
    """Put ``rows`` values at random keys, one transaction each. Returns {key: value} of what is there then."""
    rnd, held = random.Random(seed), {}
    for _ in range(rows):
        key = rnd.randrange(max(1, rows // 2))
        held[key] = rnd.randbytes(16) * (value // 16)
        database.execute("INSERT OR REPLACE INTO pairs VALUES (?, ?)", (key, held[key]))
    return held


def main() -> None:
    if len(sys.argv) not in (2, 3):
        raise SystemExit("usage: sqlite_wal.py MOUNTPOINT [ROWS]")
    mountpoint, rows = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else 2_000
    for remaps in (False, True):
        extents = Extents(mountpoint / "disk", remaps=remaps)
        os.pwrite(extents.fd, bytes(PAGE), 0)
        os.pwrite(extents.fd, bytes(PAGE), extents.database * PAGE)
        vfs = Vfs(extents)
        before = programs(mountpoint)
        database = connect()
        held = fill(database, rows)
        sound = database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        sound = sound and dict(database.execute("SELECT key, value FROM pairs")) == held
        database.close()
        os.fsync(extents.fd)
        took = programs(mountpoint) - before
        print(f"{'remaps' if remaps else 'copies'}: {rows:,} values; checkpoints remapped {extents.remapped:,} pages "
              f"and copied {extents.copied:,}; {took:,} pages programmed; {'sound' if sound else 'BROKEN'}")
        vfs.unregister()
        extents.close()


if __name__ == "__main__":
    main()
