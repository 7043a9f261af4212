"""The device's own commands, for whoever has `disk` open under the native server: ioctl(2), as numbers and as calls.

    with open("/mnt/ssd/disk", "r+b", buffering=0) as disk:
        commands.checkpoint(disk.fileno())
"""

from __future__ import annotations

import fcntl
import struct

SPAN = struct.Struct("<QQQ")  # source, target, bytes
_TYPE = 0xF5
_WRITE = 1  # the caller gives a structure
CHECKPOINT = _TYPE << 8 | 1
COPY = _WRITE << 30 | SPAN.size << 16 | _TYPE << 8 | 2


def checkpoint(fd: int) -> None:
    """Write a checkpoint now: a crash from here on is recovered from it. OSError ENOTTY where there is no such command,
    as under pyfuse3."""
    fcntl.ioctl(fd, CHECKPOINT)


def copy(fd: int, source: int, target: int, length: int) -> None:
    """Copy the ``length`` bytes at ``source`` to ``target`` within the device; holes stay holes. OSError
    EINVAL for ranges that overlap or leave the device."""
    fcntl.ioctl(fd, COPY, SPAN.pack(source, target, length))
