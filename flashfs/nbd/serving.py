"""Which images are served to NBD clients on this machine: asked of the system, nothing is remembered."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nandimg
from flashfs.nbd.request import Request
from nandimg.errors import ImageError

WORD = "request="  #: begins what nbdkit is given for the plugin


@dataclass(frozen=True)
class Serving:
    """An nbdkit of `flashfs nbd`: process ``pid`` has ``image``, and clients find it at ``uri``."""

    image: str
    ftl: str | None
    pid: int
    uri: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def servers(proc: Path = Path("/proc")) -> list[Serving]:
    """Those that this process can see, by process numbers."""
    found = []
    for entry in sorted(int(path.name) for path in proc.iterdir() if path.name.isdecimal()):
        with suppress(OSError, ValueError, KeyError, TypeError):  # it went away meanwhile, or is no server of ours
            words = (proc / str(entry) / "cmdline").read_bytes().decode().split("\0")
            if Path(words[0]).name != "nbdkit":
                continue
            (text,) = (word.removeprefix(WORD) for word in words if word.startswith(WORD))
            request = Request.read(text)
            found.append(Serving(str(request.image), request.ftl or _bound(request.image), entry, request.uri))
    return found


def _bound(image: Path) -> str | None:
    try:
        return nandimg.inspect(image).ftl or None
    except (OSError, ImageError):
        return None
