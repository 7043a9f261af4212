"""``flashfs clone``: a copy of a chip that is a chip of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashfs.cli import options, show


def command(
    image: options.Image,
    copy: Annotated[Path, typer.Argument(parser=options.file, metavar="COPY", help="The file to make.")],
    as_json: options.Json = False,
) -> None:
    """Copy an image, also a crashed one, to a new file.

    COPY gets a UUID of its own, so both can be mounted at the same time. The copy of a crashed image is a crashed
    image, which its next mount recovers. Where the host's file system can, both share their blocks until one changes.
    IMAGE must not be mounted. COPY appears whole or not at all.
    """
    import nandimg

    options.check_at_rest(image)
    with show.progressing(f"copying {image}") as progress:
        made = nandimg.clone(image, copy, progress)
    uuid = str(made.header.uuid)
    if as_json:
        found = {"image": str(image), "copy": str(copy), "uuid": uuid, "ftl": made.header.ftl or None}
        show.result({**found, "shared": made.shared}, as_json=True)
        return
    how = "sharing its blocks until one of them changes" if made.shared else "in blocks of its own"
    show.line(f"{copy}: a copy of {image} with UUID {uuid}, {how}")
