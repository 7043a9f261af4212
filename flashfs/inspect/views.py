"""The views of ``flashfs dump`` by name, for callers that ask by words: the command line, and a mount's `control`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flashfs import inspect
from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES
from flashfs.plain import meant
from nandimg import NandimgError
from nandimg import inspect as header_of

# What can be seen in any image: the function of flashfs.inspect, and what it is given beside the image.
GENERAL: dict[str, tuple[str, str]] = {
    "header": ("header", ""),
    "blocks": ("folded_blocks", ""),
    "page": ("page", "PPA"),
    "lpa": ("lpa", "LPA"),
    "log": ("log", ""),
    "scheme": ("scheme", ""),
    "recovery": ("recovery", ""),
}


def show(
    image: Path, view: str, number: int | None = None, *, trust: bool | str = False,
    progress: Callable[[float], None] | None = None,
) -> Any:  # fmt: skip
    """What ``flashfs dump IMAGE VIEW [NUMBER]`` shows. UsageError for a view that no scheme has, and for a number that
    is missing or too much. ``progress`` is told which share is done, of a view that takes long: ``blocks``, of which
    ``inspect.unfolded`` makes a row per block again."""
    function, arguments = _call(image, view, number)
    known: dict[str, Any] = {} if view == "header" else {"trust": trust}
    if view == "blocks":
        known["progress"] = progress
    return getattr(inspect, function)(image, *arguments, **known)


def check(image: Path, view: str, number: int | None) -> None:
    """Raise what ``show`` would for these words, without looking."""
    _call(image, view, number)


def names(ftl: str) -> list[str]:
    """The views of an image that is bound to that FTL; the general ones alone for a name that is none of ours."""
    return [*GENERAL, *SCHEMES[ftl].views, *SCHEMES[ftl].numbered] if ftl in SCHEMES else list(GENERAL)


def _ftl_of(image: Path) -> str:
    """What the image is bound to; "" for a blank one, and for what is no image."""
    try:
        return header_of(image).ftl
    except (OSError, NandimgError):
        return ""


def _call(image: Path, view: str, number: int | None) -> tuple[str, list[Any]]:
    """(function of flashfs.inspect, what it is given behind the image)."""
    own = dict.fromkeys(name for scheme in SCHEMES.values() for name in scheme.views)
    numbered = {name: unit for scheme in SCHEMES.values() for name, (unit, _) in scheme.numbered.items()}
    if view not in GENERAL and view not in own and view not in numbered:
        there = names(_ftl_of(image))
        raise UsageError(f"dump {view}{meant(view, [*there, *own, *numbered])}: no such view; use {', '.join(there)}")
    function, unit = GENERAL.get(view, ("scheme", ""))
    if unit and number is None:
        raise UsageError(f"dump {view} needs a number: flashfs dump {image} {view} {unit}")
    if not unit and number is not None and view not in numbered:
        raise UsageError(f"dump {view} takes no number, {number} was given")
    return function, [number] if unit else [view, number] if view in numbered else [view] if view in own else []
