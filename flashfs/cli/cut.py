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
        typer.Option("--at", metavar="N", help="Cut at the N-th flash operation from now.", show_default=False),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="How --at leaves that operation: before, after, prefix, data-only, oob-only, unstable.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Cut the power of a mount.

    The power goes now, between two flash operations; with --at, at a later operation, if the mount was made with
    --fault (use `--fault later`). What was not flushed is lost. The next mount recovers.
    """
    from flashfs.fuse import controlling

    if at is not None and at < 1:
        raise UsageError(f"--at {at}: use an operation's number, from 1 up")
    if shape is not None and at is None:
        raise UsageError(f"--shape {shape}: without --at no operation is under way")
    control = controlling.Control(mountpoint)
    image = control.image()
    set_already = control.state()["faults"]
    if at is not None and set_already is None:
        raise UsageError(f"--at {at}: {mountpoint} has no place for faults: mount it with `--fault later`")
    if at is not None and set_already:
        words = " ".join([f"cut={at}:{shape or 'before'}", *set_already])
        raise UsageError(
            f"--at {at}: {mountpoint} has faults: `flashfs fault {mountpoint} {words}` sets both, and counts from now"
        )
    if at is None:
        control.cut()
        text = f"{image}: power cut; mounted again, it recovers"
    else:
        control.fault([f"cut={at}:{shape or 'before'}"])
        text = f"{image}: the power goes at flash operation {at} from now"
    if as_json:
        show.result({"image": image, "at": at, "shape": shape}, as_json=True)
    else:
        show.line(text)
