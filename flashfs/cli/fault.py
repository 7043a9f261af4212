"""``flashfs fault``: what goes wrong with a chip, changed while it is in use."""

from __future__ import annotations

from typing import Annotated

import typer

from flashfs.cli import options, show


def command(
    place: options.Served,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="none|WORD...", help="Faults, as fail=10 flip=20:9, or none.", show_default=False),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Set, show or clear the faults of a chip in use.

    The new faults take the place of those that were set, and their operations are counted from now. `none` clears
    them; without a word, they are shown. The mount, or `flashfs nbd` of an IMAGE, must have been started with --fault:
    `--fault later` sets none yet.

    fail=N: flash operation N fails (fail=N+: its block always). silent=N: it is claimed done, and is not. misdirect=N:
    it lands on another page. flip=N:B: its page reads with B wrong bits. wear=E: blocks bear about E erases. eio=N,
    enospc=N: the host's disk fails. cut=N[:SHAPE]: the power goes.
    """
    from flashfs.fuse import control_commands

    control = control_commands.Control(place)
    found = control.fault(words) if words else control.state()
    if as_json:
        show.result({name: found[name] for name in ("faults", "operations")}, as_json=True)
    elif found["faults"] is None:
        show.line(f"{place} has no place for faults: start it with `--fault later`")
    else:
        said = " ".join(found["faults"]) or "no faults"
        show.line(f"{place}: {said}; {found['operations']:,} flash operations since that was set")
