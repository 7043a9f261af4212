"""``flashfs fault``: what goes wrong with the chip of a mount, changed while it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from flashfs.cli import options, show
from flashfs.errors import UsageError


def command(
    mountpoint: options.Mounted,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[none|WORD...]", help="As mount --fault: fail=10, flip=20:9, ...", show_default=False),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Set the faults of the chip under MOUNTPOINT, counted from now, instead of those that were set; none clears them;
    without a word, show them. The mount must have been made with --fault: `--fault later` sets none yet."""
    from flashfs.fuse import controlling
    from flashfs.nbd import looking

    if looking.served(mountpoint) is not None:
        raise UsageError(f"fault {mountpoint}: an NBD server has its faults from the start: `flashfs nbd --fault WORD`")
    control = controlling.Control(mountpoint)
    found = control.fault(words) if words else control.state()
    if as_json:
        show.result({name: found[name] for name in ("faults", "operations")}, as_json=True)
    elif found["faults"] is None:
        show.line(f"{mountpoint}: no place for faults: a mount with --fault later has one")
    else:
        said = " ".join(found["faults"]) or "no faults"
        show.line(f"{mountpoint}: {said}; {found['operations']:,} flash operations since that was set")
