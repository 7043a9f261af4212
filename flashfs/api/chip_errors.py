"""Errors of the chip as FlashfsErrors: what `import flashfs` offers raises no others on purpose.

nandimg knows nothing of flashfs, so its errors are no FlashfsErrors. What is raised here is both: whoever catches
nandimg.ImageError still does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from flashfs.errors import FlashfsError, UsageError
from nandimg.errors import GeometryError, ImageError, InUseError, NandimgError, NoRoomError

P = ParamSpec("P")
T = TypeVar("T")


class ChipError(FlashfsError, NandimgError):
    """What the chip or its image refuses, or why a file is no usable image."""


class ChipImageError(ChipError, ImageError):
    """An ImageError."""


class ChipInUseError(ChipImageError, InUseError):
    """An InUseError, with its attributes."""


class ChipNoRoomError(ChipImageError, NoRoomError):
    """A NoRoomError, with its attributes."""


class ChipGeometryError(ChipError, UsageError, GeometryError):
    """A GeometryError."""


#: which class a NandimgError becomes: the first that fits
BOTH: tuple[tuple[type[NandimgError], type[ChipError]], ...] = (
    (InUseError, ChipInUseError), (NoRoomError, ChipNoRoomError), (ImageError, ChipImageError),
    (GeometryError, ChipGeometryError), (NandimgError, ChipError),
)  # fmt: skip


def translated(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which raises a ChipError where it raised a NandimgError: with the same message and attributes."""

    @wraps(function)
    def calling(*args: P.args, **keywords: P.kwargs) -> T:
        try:
            return function(*args, **keywords)
        except FlashfsError:
            raise
        except NandimgError as error:
            raise _both(error) from error

    return calling


def _both(error: NandimgError) -> ChipError:
    cls = next(cls for of, cls in BOTH if isinstance(error, of))
    made = cls.__new__(cls)
    made.args = error.args
    made.__dict__.update(error.__dict__)
    return made
