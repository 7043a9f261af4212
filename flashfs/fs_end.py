"""Where a file system ends on its disk, from its superblock: blkid of older systems does not report it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

SUPER_BYTES = 4096  #: bytes read per superblock
EXT4_AT, EXT4_MAGIC, EXT4_64BIT = 1024, 0xEF53, 0x80
BTRFS_AT, BTRFS_MAGIC = 0x10000, b"_BHRfS_M"
SIZED = {"ext4": "resize2fs", "btrfs": "btrfs filesystem resize"}  #: the command that shrinks it; xfs cannot be shrunk


class End(NamedTuple):
    """A file system's ``name``, and the bytes from the beginning of the disk to its end."""

    name: str
    size: int


def end_of(read: Callable[[int, int], bytes]) -> End | None:
    """The file system on a disk, if it is one that `flashfs up` can make; else None. ``read(offset, n)`` returns bytes
    of the disk, fewer at its end."""
    for look in (_ext4, _xfs, _btrfs):
        found = look(read)
        if found is not None:
            return found
    return None


def _ext4(read: Callable[[int, int], bytes]) -> End | None:
    raw = read(EXT4_AT, SUPER_BYTES)
    if len(raw) < 0x154 or struct.unpack_from("<H", raw, 0x38)[0] != EXT4_MAGIC:
        return None
    blocks, log_bytes, features = (struct.unpack_from("<I", raw, at)[0] for at in (4, 0x18, 0x60))
    if features & EXT4_64BIT:
        blocks |= struct.unpack_from("<I", raw, 0x150)[0] << 32
    return End("ext4", blocks << (10 + min(log_bytes, 6)))


def _xfs(read: Callable[[int, int], bytes]) -> End | None:
    raw = read(0, SUPER_BYTES)
    if len(raw) < 16 or raw[:4] != b"XFSB":
        return None
    block_bytes, blocks = struct.unpack_from(">IQ", raw, 4)
    return End("xfs", blocks * block_bytes)


def _btrfs(read: Callable[[int, int], bytes]) -> End | None:
    raw = read(BTRFS_AT, SUPER_BYTES)
    if len(raw) < 0x78 or raw[0x40:0x48] != BTRFS_MAGIC:
        return None
    return End("btrfs", struct.unpack_from("<Q", raw, 0x70)[0])


def smaller(found: End) -> str:
    """Advice for the user: what to do before the disk can shrink."""
    if found.name in SIZED:
        return f"make that smaller first ({SIZED[found.name]})"
    return "it cannot be made smaller: copy what is in it elsewhere, and make another"
