"""Images at rest: copy one, show what is in it, check it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nandimg
from flashfs.api.chip_errors import translated
from flashfs.errors import CorruptError


@translated
def clone(image: str | Path, copy: str | Path) -> Path:
    """Copy an image, also a crashed one, to a new file, as `flashfs clone` does, and return its path.

    The copy has a UUID of its own. FlashfsError if the image is in use, or ``copy`` exists.
    """
    nandimg.clone(Path(image), Path(copy))
    return Path(copy)


@translated
def dump(
    image: str | Path,
    view: str = "header",
    number: int | str | None = None,
    *,
    ftl: str | None = None,
    trust: bool = False,
) -> Any:
    """What `flashfs dump --json` prints of an image or a mount, as dicts and lists.

    ``view`` is one of those that `flashfs dump --help` lists, ``number`` its address, as ``dump(image, "lpa", 5)``.
    ``ftl`` names the code of an FTL that is not registered, ``trust`` lets the image name it. UsageError for a view
    that does not exist.
    """
    from flashfs import inspect
    from flashfs.fuse import looking
    from flashfs.inspect import views

    what = looking.at(Path(image), trust or ftl or False)
    view, typed = views.named(view, None if number is None else str(number))
    address = views.check(Path(image), view, typed, what.ftl())
    found, _ = what.dump(view, address)
    return list(inspect.unfolded(found, what.dies())) if view == "blocks" else found


@translated
def fsck(image: str | Path, *, data: bool = False, ftl: str | None = None, trust: bool = False) -> list[str]:
    """The problems of an image, one line each; an empty list if there are none. Changes nothing.

    ``data``: every live page is read, too. CorruptError if the FTL of the image is not registered, and ``ftl`` does not
    name it: not all can be checked without it.
    """
    from flashfs import inspect

    problems, unchecked = inspect.check(Path(image), data, trust or ftl or False)
    if unchecked and not problems:
        raise CorruptError(unchecked)
    return list(problems)
