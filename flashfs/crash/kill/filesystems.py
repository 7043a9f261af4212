"""The file systems of the kill tier: on what chip, how they are made, and who says whether one is sound."""

from __future__ import annotations

from dataclasses import dataclass

from nandimg import Geometry

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class FileSystem:
    """``make`` and ``check`` are commands that a device is added to; ``check`` changes nothing and ends with 0 if all
    is well. ``ballast`` files of 1 MiB are written once and stay: cold data that cleaning has to move."""

    name: str
    package: str
    geometry: Geometry
    ballast: int
    make: tuple[str, ...]
    check: tuple[str, ...]


def chip(mib: int) -> Geometry:
    """A chip that exports so many MiB and has an eighth more: as little as a real one has."""
    return Geometry.sized(mib * MIB, op=0.125, pages_per_block=64, channels=2, dies=4)


#: of a writer that works on `disk` itself
NONE = FileSystem("none", "", chip(64), 0, (), ())

# Each is as small as its file system goes, so that cleaning is always under way. All that the chip exports is written
# before the file system is made, and nothing is discarded: no page is ever free of charge.
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
