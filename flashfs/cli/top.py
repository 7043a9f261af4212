"""``flashfs top``: a device in use, live."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from flashfs.cli import options, show
from flashfs.errors import UsageError

LONGEST_S = 86_400.0


def command(
    place: options.Served,
    once: Annotated[bool, typer.Option("--once", help="Print one picture, of one interval, and exit.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", show_default=False, help="Time from one look to the next. Default: 1."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; with --interval, one per line and interval.")
    ] = False,
) -> None:
    """Watch a device in use, live.

    Requests, write amplification, cleaning and wear, DRAM, and a block map. q or Ctrl-C ends it. If the output is not
    a terminal, one picture is printed, or with --interval one per interval.
    """
    from flashfs import watch
    from flashfs.fuse import mounts, places

    if interval is not None and not 0.05 <= interval <= LONGEST_S:
        raise UsageError(f"--interval {interval:g}: use 0.05 to {LONGEST_S:.0f} seconds")
    served, asked = places.at(place), mounts.absolute(place)
    console = show.console()
    if console.is_terminal and not (once or as_json):
        watch.live(served, interval or watch.INTERVAL_S, console, asked)
        return
    single = once or interval is None
    try:
        for found, now in watch.shots(served, interval or watch.INTERVAL_S, asked=asked):
            if as_json:
                print(json.dumps(found, default=str, indent=2 if single else None), flush=True)
            else:
                show.picture(watch.Picture(found, now))
            if single:
                return
    except KeyboardInterrupt:
        if single:
            raise
        sys.stdout.flush()  # to be interrupted is how it ends
