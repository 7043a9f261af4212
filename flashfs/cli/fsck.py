"""``flashfs fsck``: check every invariant of an image, offline; read-only, unless it is to be repaired."""

from __future__ import annotations

from typing import Annotated

import typer

from flashfs.cli import options, show


def command(
    image: options.Image,
    data: Annotated[
        bool, typer.Option("--data", help="Also read every live page, and check its checksum: slow on a full disk.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="For an image that cannot be mounted because its newest checkpoint does not fit it: use it without "
            "that checkpoint. What was written is found in flash; trimmed pages may be back.",
        ),
    ] = False,
    ftl: options.Named = None,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Check an image: map, OOB, validity and counters.

    They are compared with each other. Nothing is changed, unless --repair is given. Exit code 1 if anything is broken,
    or could not be checked because the FTL of the image is not registered, and --ftl does not name it.
    """
    from flashfs import inspect

    options.check_at_rest(image)
    repaired = None
    if repair:
        with show.working(f"repairing {image}"):
            repaired = inspect.repair(image, trust or ftl or False)
    with show.progressing(f"checking {image}") as progress:
        problems, unchecked = inspect.check(image, data, trust or ftl or False, progress)
    if as_json:
        found: dict[str, object] = {"ok": not (problems or unchecked), "problems": problems}
        if repair:
            found["repaired"] = repaired
        if unchecked:
            found["unchecked"] = unchecked
        show.result(found, as_json=True)
    else:
        for line in repaired or []:
            show.line(line)
        if repair:
            show.line(f"{image}: {'it can be mounted; nothing to repair' if repaired is None else 'repaired'}")
        for problem in problems:
            show.line(problem)
        chip = "its chip is sound" if unchecked else "sound"
        show.line(f"{image}: {f'{len(problems)} broken' if problems else chip}")
        if unchecked:
            show.warn(unchecked)
    if problems or unchecked:
        raise typer.Exit(1)
