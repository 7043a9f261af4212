"""``flashfs cut``: the power of a mount goes."""

from __future__ import annotations

from typing import Annotated

import typer

from flashfs.cli import options, show
from flashfs.errors import UsageError


def command(
    mountpoint: options.Mounted,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="N", help="At the N-th flash operation from now.", show_default=False),
    ] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="SHAPE", help="How --at leaves that operation: before, after, prefix, ...")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Cut the power of what is mounted at MOUNTPOINT: now, between two flash operations, or at one that is to come,
    where the mount was made with --fault (`--fault later` would do). What was not flushed is lost; the next mount
    recovers."""
    from flashfs.fuse import controlling

    if at is not None and at < 1:
        raise UsageError(f"--at {at}: an operation's number from 1 up would do")
    if shape is not None and at is None:
        raise UsageError(f"--shape {shape}: without --at no operation is under way")
    control = controlling.Control(mountpoint)
    image = control.image()
    set_already = control.state()["faults"]
    if at is not None and set_already:
        words = " ".join([f"cut={at}:{shape or 'before'}", *set_already])
        raise UsageError(f"--at {at}: {mountpoint} has faults: `flashfs fault {mountpoint} {words}` counts all anew")
    if at is None:
        control.cut()
        text = f"{image}: power cut; mounted again, it recovers"
    else:
        control.fault([f"cut={at}:{shape or 'before'}"])
        text = f"{image}: the power goes at flash operation {at:,} from now"
    if as_json:
        show.result({"image": image, "at": at, "shape": shape}, as_json=True)
    else:
        show.line(text)
