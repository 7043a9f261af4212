"""``flashfs umount``: end a mount."""

from __future__ import annotations

from typing import Annotated

import typer

from flashfs.cli import options, show
from flashfs.fuse import daemon, mounts


def command(
    mountpoint: Annotated[
        options.Path, typer.Argument(parser=options.Path, metavar="MOUNTPOINT", help="What `flashfs mount` made.")
    ],
) -> None:
    """Unmount MOUNTPOINT; returns when the checkpoint is durable."""
    with show.working(f"unmounting {mountpoint}"):
        done = daemon.unmount(mounts.absolute(mountpoint))
    report(done)


def report(done: daemon.Unmounted) -> None:
    """Say what was done; exit code 1 if something may be lost."""
    for line in done.did:
        show.line(line)
    for line in done.warnings:
        show.warn(line)
    if done.warnings:
        raise typer.Exit(1)
