"""Whether the power of a mount was cut on request: an extended attribute of the image says so, from the cut until the
next mount. On a file system without extended attributes, nothing is known of it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

NAME = "user.flashfs.cut"


def note(image: Path | int) -> None:
    """Note that the power goes now, as asked for."""
    with suppress(OSError):
        os.setxattr(image, NAME, b"asked for")


def forget(image: Path | int) -> None:
    """Remove the note: the image is mounted again."""
    with suppress(OSError):
        os.removexattr(image, NAME)


def was_asked(image: Path | int) -> bool:
    """Whether the image's last mount ended so."""
    try:
        os.getxattr(image, NAME)
    except OSError:
        return False
    return True
