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
    as_json: options.Json = False,
) -> None:
    """Check IMAGE: map, OOB, validity and counters against each other. Exit code 1 if anything is broken."""
    from flashfs import inspect

    with show.working(f"checking {image}"):
        problems = inspect.problems(image, data)
    if as_json:
        show.result({"ok": not problems, "problems": problems}, as_json=True)
    else:
        for problem in problems:
            show.line(problem)
        show.line(f"{image}: {f'{len(problems)} broken' if problems else 'sound'}")
    if problems:
        raise typer.Exit(1)
