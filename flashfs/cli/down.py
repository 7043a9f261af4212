"""``flashfs down``: undo ``flashfs up``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashfs.cli import complete, options, show, umount
from flashfs.fuse import loop, mounts


def command(
    place: Annotated[
        Path,
        typer.Argument(
            parser=options.file,
            metavar="MOUNTPOINT|IMAGE",
            help="Where `flashfs up` put the file system; or IMAGE, or the directory that `flashfs status` shows.",
            autocompletion=complete.brought_up,
        ),
    ],
) -> None:
    """Undo `flashfs up`.

    The file system at MOUNTPOINT is unmounted, then its loop device and its image. The command returns when the
    checkpoint is durable. An image that is up at another mountpoint too stays up there; of IMAGE, and of the directory
    that `flashfs status` shows, all mountpoints are unmounted.
    """
    with show.working(f"taking {place} down"):
        done = loop.down(mounts.absolute(place))
    umount.report(done)
