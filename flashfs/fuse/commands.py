"""The device's own commands, for a program that has `disk` open under the native server: ioctl(2) numbers, and calls.

    with open("/mnt/ssd/disk", "r+b", buffering=0) as disk:
        commands.checkpoint(disk.fileno())
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct

SPAN = struct.Struct("<QQQ")  # source, target, bytes
REMAPPED = struct.Struct("<QQQQ")  # source, target, bytes, flags
MOVE = 1  # a flag: the source holds nothing afterwards
_TYPE = 0xF5
_WRITE = 1  # the caller gives a structure
CHECKPOINT = _TYPE << 8 | 1
COPY = _WRITE << 30 | SPAN.size << 16 | _TYPE << 8 | 2
REMAP = _WRITE << 30 | REMAPPED.size << 16 | _TYPE << 8 | 3


def checkpoint(fd: int) -> None:
    """Write a checkpoint now: a crash from here on is recovered from it. OSError ENOTTY where there is no such command,
    as under pyfuse3."""
    fcntl.ioctl(fd, CHECKPOINT)


def copy(fd: int, source: int, target: int, length: int) -> None:
    """Copy the ``length`` bytes at ``source`` to ``target`` within the device; holes stay holes. OSError
    EINVAL for ranges that overlap or leave the device."""
    fcntl.ioctl(fd, COPY, SPAN.pack(source, target, length))
    _forget(fd, target, length)


def remap(fd: int, source: int, target: int, length: int, move: bool = False) -> None:
    """The ``length`` bytes at ``target`` read what those at ``source`` do now, which hold nothing afterwards if
    ``move``. A device that remaps shares whole pages, if both ranges begin at the same place of a page; all else is
    copied. Ranges may overlap. OSError EINVAL for those that leave the device."""
    fcntl.ioctl(fd, REMAP, REMAPPED.pack(source, target, length, MOVE if move else 0))
    _forget(fd, target, length)
    if move:
        _forget(fd, source, length)


def _forget(fd: int, offset: int, length: int) -> None:
    """Drop the pages that a mapping or sendfile(2) left in the kernel's cache, since the kernel does not know what an
    ioctl changes. It drops whole pages only."""
    first = offset - offset % mmap.PAGESIZE
    if length:
        os.posix_fadvise(fd, first, -(-(offset + length - first) // mmap.PAGESIZE) * mmap.PAGESIZE,
                         os.POSIX_FADV_DONTNEED)  # fmt: skip
