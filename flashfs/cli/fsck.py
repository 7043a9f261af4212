"""``flashfs fsck``: check every invariant of an image, offline and read-only."""

from __future__ import annotations

from typing import Annotated

import typer

from flashfs.cli import options, show


def command(
    image: options.Image,
    data: Annotated[
        bool, typer.Option("--data", help="Read every live page too, and prove its checksum: slow on a full disk.")
    ] = False,
    ftl: options.Named = None,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Check IMAGE: map, OOB, validity and counters against each other. Exit code 1 if anything is broken, or could not
    be checked because its FTL is not registered, and was not named."""
    from flashfs import inspect

    with show.working(f"checking {image}"):
        problems, unchecked = inspect.check(image, data, trust or ftl or False)
    if as_json:
        whole = {"unchecked": unchecked} if unchecked else {}
        show.result({"ok": not (problems or unchecked), "problems": problems, **whole}, as_json=True)
    else:
        for problem in problems:
            show.line(problem)
        chip = "its chip is sound" if unchecked else "sound"
        show.line(f"{image}: {f'{len(problems)} broken' if problems else chip}")
        if unchecked:
            show.warn(unchecked)
    if problems or unchecked:
        raise typer.Exit(1)
