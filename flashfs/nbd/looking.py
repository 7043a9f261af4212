"""What lies in flash, wherever that is: in an image that lies still, under a mount, or under nbdkit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nandimg
from flashfs import inspect
from flashfs.errors import UsageError
from flashfs.fuse import health, mounts
from flashfs.fuse.controlling import Control
from flashfs.inspect import views
from flashfs.nbd import serving
from nandimg.errors import ImageError

Progress = Callable[[float], None]
STOOD_STILL = (
    "as a power cut now would leave it; nbdkit stood still for a moment, and what its memory alone has is in no view"
)


class OfImage:
    """An image that is not mounted; ``served`` is its nbdkit, if it has one. ``trust`` as for flashfs.inspect."""

    def __init__(self, image: Path, trust: bool | str, served: serving.Serving | None) -> None:
        self._image = image
        self._trust = trust
        self._served = served

    def ftl(self) -> str | None:
        """The name of the FTL that it is bound to; "" for none. None if it cannot be read."""
        try:
            return nandimg.inspect(self._image).ftl
        except ImageError:
            return None

    def dump(self, view: str, number: int | None = None, progress: Progress | None = None) -> tuple[Any, str]:
        """As Control.dump."""
        with still(self._served):
            found = views.show(self._image, view, number, trust=self._trust, progress=progress)
        return found, STOOD_STILL if self._served else ""

    def write_html(self, out: Path, force: bool, progress: Progress | None = None) -> dict[str, Any]:
        """As inspect.write_html."""
        with still(self._served):
            made = inspect.write_html(self._image, out, force=force, trust=self._trust, progress=progress)
        return {**made, "note": STOOD_STILL} if self._served else made


@contextmanager
def still(served: serving.Serving | None) -> Iterator[None]:
    """Inside, an image may be looked at even if it is served."""
    if served is None:
        yield
        return
    with served.still():
        yield


def smart(where: Path, *, ftl: str | None, trust: bool) -> dict[str, Any]:
    """As flashfs.fuse.health.of, of an image that is served too."""
    serves = served(where)
    with still(serves):
        return health.of(where if serves is None else Path(serves.image), ftl=ftl, trust=trust)


def at(where: Path, trust: bool | str = False) -> OfImage | Control:
    """What there is to look at: at a mountpoint, an image, or the socket of `flashfs nbd`. UsageError for ``trust`` in
    a mount, which knows its FTL."""
    place = mounts.absolute(where)
    if not mounts.is_folder(place):
        served = serving.of(place)
        return OfImage(where if served is None else Path(served.image), trust, served)
    if trust:
        raise UsageError(f"dump {where}: a mount knows its FTL; leave --ftl and --trust to images")
    return Control(place)


def served(where: Path) -> serving.Serving | None:
    """The nbdkit of an image, or of a socket; None for all else."""
    place = mounts.absolute(where)
    return None if mounts.is_folder(place) else serving.of(place)
