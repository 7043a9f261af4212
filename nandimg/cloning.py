"""Copies an image to an independent chip: everything but the UUID is the same, bit for bit."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import tempfile
import uuid as uuids
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nandimg._chip import checksum
from nandimg.errors import ImageError
from nandimg.header import HEADER_BYTES, Header, read_header
from nandimg.image import CHUNK, _reserve, at_rest, why_not

FICLONE = 0x40049409  #: linux/fs.h
TOLD = 256 << 20  #: bytes between two reports of progress
UUID_AT = 24  #: in the header, SPEC.md section 2
#: errors of a file system that does not support a kind of copy or link, here or between these two files
CANNOT = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EBADF, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Clone:
    """The copy's header, and whether it shares its blocks with the original until one of them is changed."""

    header: Header
    shared: bool


def clone(path: str | Path, copy: str | Path, progress: Callable[[float], None] | None = None) -> Clone:
    """Copy the image ``path`` to the new file ``copy``, which gets a new UUID. Nothing is recovered: a crashed image
    makes a crashed copy. ``progress`` gets the share of the bytes that is copied, now and then. ImageError if ``path``
    is not a whole image or is in use, or if ``copy`` exists.

    ``copy`` appears whole and durable, or not at all: it is made under another name in the same folder. If this process
    dies, only that file may be left (``.NAME.*.clone``; it can be removed).
    """
    path, copy = Path(path), Path(copy)
    with at_rest(path) as source:  # it cannot be mounted meanwhile
        header, counts = read_header(source, path)
        if os.path.lexists(copy):
            raise _exists(copy)
        try:
            target, name = tempfile.mkstemp(".clone", f".{copy.name}.", copy.parent)
        except OSError as error:
            raise ImageError(f"{copy}: {why_not(copy, error)}") from None
        try:
            shared = _copy(source, target, path, copy, progress or (lambda share: None))
            _reserve(target, header, copy)
            new = _with_own_uuid(source, target, counts)
            os.fsync(target)
            _name(Path(name), copy)
        finally:
            os.close(target)
            Path(name).unlink(missing_ok=True)
        return Clone(new, shared)


def _exists(copy: Path) -> ImageError:
    return ImageError(f"{copy}: exists already; use another name")


def _with_own_uuid(source: int, target: int, counts: int) -> Header:
    """Write the source's valid header (copy ``counts``) to both copies in the target, with a new UUID. It is patched as
    bytes, so that it keeps its version and its generation."""
    raw = bytearray(os.pread(source, HEADER_BYTES, counts * HEADER_BYTES))
    raw[UUID_AT : UUID_AT + 16] = uuids.uuid4().bytes
    raw[-4:] = struct.pack("<I", checksum(bytes(raw[:-4])))
    for index in range(2):
        os.pwrite(target, raw, index * HEADER_BYTES)
    return read_header(target, Path("the copy"))[0]


def _name(made: Path, copy: Path) -> None:
    """Give the finished file its name, durably. By a link: a rename would replace a file that was created there since
    the check."""
    try:
        os.link(made, copy)
    except FileExistsError:
        raise _exists(copy) from None
    except OSError as error:
        if error.errno not in CANNOT:
            raise ImageError(f"{copy}: {error.strerror}") from None
        if os.path.lexists(copy):  # a file system without links
            raise _exists(copy) from None
        made.rename(copy)
    folder = os.open(copy.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# ---- bytes from file to file ----


def _copy(source: int, target: int, path: Path, copy: Path, tell: Callable[[float], None]) -> bool:
    """Copy all bytes of ``source``; True if the host's file system shares them between the two files. ``tell`` gets the
    share that is done."""
    try:
        fcntl.ioctl(target, FICLONE, source)
        return True
    except OSError as error:
        if error.errno not in CANNOT:
            raise ImageError(f"{path} to {copy}: {error.strerror}") from None
    try:
        size = os.fstat(source).st_size
        os.ftruncate(target, size)
        parts = data_of(source, size)
        done, total = 0, sum(end - start for start, end in parts)
        for start, end in parts:
            for at in range(start, end, TOLD):
                _copy_range(source, target, at, min(end, at + TOLD))
                done += min(end, at + TOLD) - at
                tell(done / total)
    except OSError as error:
        raise ImageError(f"{path} to {copy}: {error.strerror}") from None
    return False


def data_of(fd: int, size: int) -> list[tuple[int, int]]:
    """(first byte, byte after the last) of each part of a file that is not a hole."""
    out, end = [], 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                break
            raise
        end = min(size, os.lseek(fd, start, os.SEEK_HOLE))
        out.append((start, end))
    return out


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    """Copy in the kernel, if it can between these two files; else through memory."""
    at = start
    while at < end:
        try:
            done = os.copy_file_range(source, target, end - at, at, at)
        except OSError as error:
            if error.errno not in CANNOT:
                raise
            done = 0
        at += done or _copy_piece(source, target, at, min(CHUNK, end - at))


def _copy_piece(source: int, target: int, at: int, length: int) -> int:
    piece = os.pread(source, length, at)
    if not piece:
        raise OSError(errno.EIO, "the image became shorter while it was copied")
    done = 0
    while done < len(piece):
        done += os.pwrite(target, piece[done:], at + done)
    return done
