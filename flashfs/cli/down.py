"""``flashfs down``: undo ``flashfs up``."""

from __future__ import annotations

from flashfs.cli import options, show, umount
from flashfs.fuse import loop, mounts


def command(mountpoint: options.MountedFs) -> None:
    """Undo `flashfs up`.

    The file system at MOUNTPOINT is unmounted, then its loop device and its image. The command returns when the
    checkpoint is durable. An image that is up at another mountpoint too stays up there.
    """
    with show.working(f"taking {mountpoint} down"):
        done = loop.down(mounts.absolute(mountpoint))
    umount.report(done)
