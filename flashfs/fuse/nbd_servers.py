"""Which images are served to NBD clients on this machine: read from /proc each time, nothing is stored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nandimg
from flashfs.fuse import asking
from flashfs.fuse.nbd_request import Request
from nandimg.errors import ImageError

PROC = Path("/proc")
WORD = "request="  #: begins what nbdkit is given for the plugin


@dataclass(frozen=True)
class Serving:
    """An nbdkit of `flashfs nbd`: process ``pid`` has ``image``, and clients find it at ``uri``."""

    image: str
    ftl: str | None
    pid: int
    uri: str
    read_only: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def address(pid: int) -> str:
    """Where the nbdkit ``pid`` answers us: a name in Linux's abstract space, so that no file is left."""
    return f"\0flashfs-nbd-{pid}"


def servers(proc: Path = PROC) -> list[Serving]:
    """Those that this process can see, in the order of process numbers."""
    return [serving for _, serving in _requests(proc)]


def of(path: Path) -> Serving | None:
    """The server of the image at ``path``, one that was not stopped if there are several, or the one whose socket that
    is; None if there is none."""
    found = []
    for request, serving in _requests(PROC):
        with suppress(OSError):
            if path.samefile(request.image) or (request.socket is not None and path.samefile(request.socket)):
                found.append(serving)
    return min(found, key=lambda one: asking.is_stopped(one.pid), default=None)


def _requests(proc: Path) -> Iterator[tuple[Request, Serving]]:
    for pid in sorted(int(path.name) for path in proc.iterdir() if path.name.isdecimal()):
        with suppress(OSError, ValueError, KeyError, TypeError):  # it went away meanwhile, or is no server of ours
            words = os.fsdecode((proc / str(pid) / "cmdline").read_bytes()).split("\0")
            if Path(words[0]).name != "nbdkit":
                continue
            (text,) = (word.removeprefix(WORD) for word in words if word.startswith(WORD))
            request = Request.read(text)
            ftl = request.ftl or _bound(request.image)
            yield request, Serving(str(request.image), ftl, pid, request.uri, request.read_only)


def _bound(image: Path) -> str | None:
    try:
        return nandimg.inspect(image).ftl or None
    except (OSError, ImageError):
        return None
