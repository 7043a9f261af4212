"""``flashfs down``: undo ``flashfs up``."""

from __future__ import annotations

from typing import Annotated

import typer

from flashfs.cli import options, show, umount
from flashfs.fuse import loop, mounts


def command(
    place: Annotated[
        options.Path,
        typer.Argument(
            parser=options.file,
            metavar="MOUNTPOINT|IMAGE",
            help="Where `flashfs up` put the file system; or IMAGE, or the directory that `flashfs status` shows.",
        ),
    ],
) -> None:
    """Unmount the file system at MOUNTPOINT, its loop device and its image; returns when the checkpoint is durable. An
    image that is up at another mountpoint too stays up there; of IMAGE, and of the directory that status shows, all
    mountpoints are unmounted."""
    with show.working(f"taking {place} down"):
        done = loop.down(mounts.absolute(place))
    umount.report(done)
