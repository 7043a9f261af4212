"""``flashfs fsck``: check every invariant of an image, offline and read-only."""

from __future__ import annotations

import typer

from flashfs.cli import options, show


def command(image: options.Image, as_json: options.Json = False) -> None:
    """Check IMAGE: map, OOB, validity and counters against each other. Exit code 1 if anything is broken."""
    from flashfs.device import Device

    with show.working(f"checking {image}"):
        device = Device.open(image, readonly=True)
        try:
            problems = device.problems()
        finally:
            device.close(clean=False)
    if as_json:
        show.result({"ok": not problems, "problems": problems}, as_json=True)
    else:
        for problem in problems:
            show.line(problem)
        show.line(f"{image}: {f'{len(problems)} broken' if problems else 'sound'}")
    if problems:
        raise typer.Exit(1)
