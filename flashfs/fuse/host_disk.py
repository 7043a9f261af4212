"""Failures of the host's disk below an image, and one line that reports them."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flashfs.errors import FlashfsError
from flashfs.fuse import errno_of as errnos
from flashfs.text import shown
from nandimg.errors import NoRoomError

FULL = (errno.ENOSPC, errno.EDQUOT)
LITTLE_BYTES = 1 << 20  # a disk with less than that free is full, whatever it says


class HostDisk:
    """Counts the requests that failed because the image's file could not be written. Flushed data stay safe: only new
    writes find no room."""

    def __init__(self, image: Path | None) -> None:
        self._image = image
        self._failed = 0
        self._errno = 0
        self._last_s = 0.0

    def note(self, error: BaseException) -> bool:
        """Whether ``error``, which ended a request, is the host's and not the device's own; it is counted then."""
        if not isinstance(error, OSError) or isinstance(error, FlashfsError) or not error.errno:
            return False
        self._failed += 1
        self._errno = error.errno
        self._last_s = time.time()
        return True

    def errno_of(self, operation: str, offset: int, error: BaseException) -> int:
        """The errno that the host sees for ``error``, which ended a request. Logs it, and counts it if the host's."""
        return errnos.errno_of(operation, offset, error, self.line() if self.note(error) else None)

    def line(self) -> str | None:
        """What is wrong, or was since the mount; None if nothing."""
        if not self._failed:
            return None
        last = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._last_s))
        said = f"{self._failed} request{'s' * (self._failed > 1)} failed, the last at {last}"
        if self._errno not in FULL:
            return f"the host's disk fails below {self._image} ({os.strerror(self._errno)}): {said}"
        free = _free_bytes(self._image)
        if free is None:
            return f"the host's disk was full below {self._image}: {said}"
        if free < LITTLE_BYTES or self._errno == errno.EDQUOT:
            return (
                f"the host's disk {_why(self._errno)} below {self._image}: {said}; {shown(free)} are free there: "
                "make room, and writes go on"
            )
        return f"the host's disk was full below {self._image}: {said}; {shown(free)} are free there now"


def _free_bytes(image: Path | None) -> int | None:
    try:
        found = os.statvfs(image or "/nowhere")
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def warning(image: Path) -> str | None:
    """A warning if the host's disk has no room for parts of the image that are not allocated yet; else None."""
    free = _free_bytes(image)
    if free is None or free >= LITTLE_BYTES:
        return None
    held = image.stat()
    if 512 * held.st_blocks >= held.st_size:
        return None
    return f"the host's disk is full below {image}: {shown(free)} are free there, and writes that need more will fail"


@contextmanager
def in_words(image: Path) -> Iterator[None]:
    """Around the opening of an image: recovery takes room on the host's disk. FlashfsError if that is full."""
    try:
        yield
    except NoRoomError as error:
        if error.errno not in FULL:
            raise
        needs = f"whose tables need {shown(error.need_bytes)} there"
        raise _without_room(image, error.errno, needs) from None
    except OSError as error:
        if isinstance(error, FlashfsError) or error.errno not in FULL:
            raise
        raise _without_room(image, error.errno, "and recovery writes there") from None


def _without_room(image: Path, code: int, why: str) -> FlashfsError:
    return FlashfsError(f"the host's disk {_why(code)} below {image}, {why}: make room, and try again")


def _why(code: int | None) -> str:
    return "is full" if code == errno.ENOSPC else "has no more room for its owner"
