"""What is in flash: of an image at rest, of a mount, or of an image that nbdkit serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nandimg
from flashfs import inspect
from flashfs.errors import UsageError
from flashfs.fuse import mounts, nbd_servers
from flashfs.fuse.control_commands import Control
from flashfs.fuse.places import Progress
from flashfs.inspect import views
from nandimg.errors import ImageError, InUseError


class OfImage:
    """An image that is not served. ``trust`` as for flashfs.inspect."""

    def __init__(self, image: Path, trust: bool | str) -> None:
        self._image = image
        self._trust = trust

    def ftl(self) -> str | None:
        """The name of the FTL that it is bound to; "" for none. None if it cannot be read."""
        try:
            return nandimg.inspect(self._image).ftl
        except ImageError:
            return None

    def dies(self) -> int:
        """Of its chip."""
        return int(nandimg.inspect(self._image).geometry.dies)

    def dump(self, view: str, number: int | None = None, progress: Progress | None = None) -> tuple[Any, str]:
        """As Control.dump."""
        try:
            return views.show(self._image, view, number, trust=self._trust, progress=progress), ""
        except InUseError as error:
            mounted = mounts.of_image(mounts.absolute(self._image))
            if mounted is None:
                raise
            words = " ".join([view, *([] if number is None else [str(number)])])
            raise UsageError(f"{error.path}: mounted at {mounted}: use `flashfs dump {mounted} {words}`") from None

    def write_html(self, out: Path, force: bool, progress: Progress | None = None) -> dict[str, Any]:
        """As inspect.write_html."""
        return inspect.write_html(self._image, out, force=force, trust=self._trust, progress=progress)


def at(where: Path, trust: bool | str = False) -> OfImage | Control:
    """What there is to look at: at a mountpoint, an image, or the socket of `flashfs nbd`. UsageError for ``trust``
    with a device that is served, which knows its FTL."""
    if not is_served(where):
        return OfImage(where, trust)
    if trust:
        raise UsageError(f"dump {where}: it is in use, and knows its FTL; leave --ftl and --trust to images at rest")
    return Control(where)


def is_served(where: Path) -> bool:
    """Whether a server answers for it: a folder is a mount, or nothing that can be looked at."""
    place = mounts.absolute(where)
    return mounts.is_folder(place) or nbd_servers.of(place) is not None
