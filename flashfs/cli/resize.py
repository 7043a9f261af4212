"""``flashfs resize``: another exported size for an image."""

from __future__ import annotations

from typing import Annotated

import typer

from flashfs.cli import options, show, units


def command(
    image: options.Image,
    size: Annotated[str, typer.Argument(metavar="SIZE", help="The new size, as 200M or 16G.")],
    ftl: options.Named = None,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Change what the host sees of an image.

    A larger SIZE leaves less over-provisioning, a smaller one more. IMAGE must not be mounted. What is written stays:
    it is written once more, to a chip with the same blocks and the same wear, which takes IMAGE's name at the end. A
    SIZE that would cut off data or a file system is refused. Grow the file system afterwards with its own tool
    (resize2fs, xfs_growfs).
    """
    from flashfs import resizing

    n = units.size("SIZE", size)
    with show.working(f"resizing {image}"):
        done = resizing.resize(image, n, ftl=ftl, trust=trust)
    if as_json:
        found = {"before": done.before, "after": done.after, "copied": done.copied, "op": done.op}
        show.result({"image": str(image), **found}, as_json=True)
    elif done.before == done.after:
        show.line(f"{image}: {units.shown(done.after)} for the host already")
    else:
        show.line(
            f"{image}: {units.shown(done.after)} for the host, before {units.shown(done.before)}; over-provisioning "
            f"{100 * done.op:.3g} %; {units.shown(done.copied)} written again"
        )
