"""``flashfs cut``: the power of a device in use goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashfs.cli import options, show
from flashfs.errors import UsageError

if TYPE_CHECKING:
    from flashfs.fuse.control_commands import Control


def command(
    place: options.Served,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="N", help="Cut at the N-th flash operation from now.", show_default=False),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="How --at leaves that operation: before, after, prefix, prefix-old, prefix-ff, prefix-random, "
            "data-only, oob-only, unstable.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Cut the power of a device in use.

    The power goes now, between two flash operations; with --at, at a later operation, if the mount, or `flashfs nbd` of
    an IMAGE, was started with --fault (use `--fault later`). What was not flushed is lost. The next mount recovers.
    """
    from flashfs.fuse import control_commands

    if at is not None and at < 1:
        raise UsageError(f"--at {at}: use an operation's number, from 1 up")
    if shape is not None and at is None:
        raise UsageError(f"--shape {shape}: without --at no operation is under way")
    control = control_commands.Control(place)
    image, words = control.image(), [f"cut={at}:{shape or 'before'}"]
    if at is None:
        control.cut()
    else:
        _prepare(control, place, words)
    what = (
        "power cut; mounted again, it recovers" if at is None else f"the power goes at flash operation {at} from now"
    )
    if as_json:
        show.result({"image": image, "at": at, "shape": shape}, as_json=True)
    else:
        show.line(f"{image}: {what}")


def _prepare(control: Control, place: Path, words: list[str]) -> None:
    """Set a cut as the only fault, from now on."""
    set_already = control.state()["faults"]
    if set_already is None:
        raise UsageError(f"cut --at: needs a device started with `--fault later`, and {place} is none")
    if set_already:
        line = " ".join([*words, *set_already])
        raise UsageError(f"cut --at: {place} has faults: `flashfs fault {place} {line}` sets both, and counts from now")
    control.fault(words)
