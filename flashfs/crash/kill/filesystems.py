"""The file systems of the kill tier: their chips, and the commands that make and check them."""

from __future__ import annotations

from dataclasses import dataclass

from nandimg import Geometry

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class FileSystem:
    """``make`` and ``check`` are commands to which the device is appended; ``check`` changes nothing and ends with 0 if
    the file system is sound. ``ballast`` files of 1 MiB are written once and stay: cold data that cleaning moves."""

    name: str
    package: str
    geometry: Geometry
    ballast: int
    make: tuple[str, ...]
    check: tuple[str, ...]


def chip(mib: int) -> Geometry:
    """A chip that exports so many MiB, with 12.5 % over-provisioning: as little as a real SSD has."""
    return Geometry.sized(mib * MIB, op=0.125, pages_per_block=64, channels=2, dies=4)


#: for a writer that works on `disk` itself
NONE = FileSystem("none", "", chip(64), 0, (), ())

# Each chip is as small as its file system allows, so that cleaning is always under way. The bench writes all of the
# device before it makes the file system, and nothing is discarded, so no page is free.
FILE_SYSTEMS: dict[str, FileSystem] = {
    fs.name: fs
    for fs in (
        FileSystem(
            "ext4", "e2fsprogs", chip(64), 28, ("mkfs.ext4", "-q", "-F", "-E", "nodiscard"), ("e2fsck", "-fn")
        ),
        FileSystem("xfs", "xfsprogs", chip(300), 32, ("mkfs.xfs", "-q", "-f", "-K"), ("xfs_repair", "-n")),
        FileSystem(
            "btrfs", "btrfs-progs", chip(144), 24, ("mkfs.btrfs", "-q", "-f", "--nodiscard"),
            ("btrfs", "check", "--readonly", "--force"),
        ),
    )
}  # fmt: skip
