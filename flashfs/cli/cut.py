"""``flashfs cut``: the power of a mount goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashfs.cli import options, show
from flashfs.errors import UsageError


def command(
    place: Annotated[
        Path,
        typer.Argument(
            parser=Path, metavar="MOUNTPOINT|IMAGE", help="What is mounted, or an image that `flashfs nbd` serves."
        ),
    ],
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
    if the mount was made with --fault (use `--fault later`). What was not flushed is lost; the next mount recovers. An
    IMAGE that `flashfs nbd` serves loses its power now, as by `kill -9`."""
    from flashfs.nbd import looking

    if at is not None and at < 1:
        raise UsageError(f"--at {at}: an operation's number from 1 up would do")
    if shape is not None and at is None:
        raise UsageError(f"--shape {shape}: without --at no operation is under way")
    served = looking.served(place)
    if served is not None and at is not None:
        raise UsageError(f"--at {at}: an NBD server has that from the start: `flashfs nbd --fault cut={at}`")
    image = served.image if served is not None else _at_mount(place, at, shape)
    if served is not None:
        served.cut()
    what = (
        "power cut; mounted again, it recovers" if at is None else f"the power goes at flash operation {at:,} from now"
    )
    if as_json:
        show.result({"image": image, "at": at, "shape": shape}, as_json=True)
    else:
        show.line(f"{image}: {what}")


def _at_mount(mountpoint: Path, at: int | None, shape: str | None) -> str:
    """Cut it, or prepare that; the image's path."""
    from flashfs.fuse import controlling

    control = controlling.Control(mountpoint)
    image, words = control.image(), [f"cut={at}:{shape or 'before'}"]
    if at is None:
        control.cut()
        return image
    set_already = control.state()["faults"]
    if set_already is None:
        raise UsageError(f"cut --at {at}: needs a mount made with `--fault later`, and {mountpoint} is none")
    if set_already:
        line = " ".join([*words, *set_already])
        raise UsageError(f"--at {at}: {mountpoint} has faults: `flashfs fault {mountpoint} {line}` counts all anew")
    control.fault(words)
    return image
