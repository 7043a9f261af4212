"""The views of ``flashfs dump`` by name, for callers that get it as text: the command line, a mount's `control`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flashfs import inspect
from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES, is_registered, scheme
from flashfs.text import meant

DIGITS = 19  #: more than any number of a page has
# What can be seen in any image: the function of flashfs.inspect, and its argument after the image.
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
    is missing or superfluous. ``progress`` gets the share that is done of the one view that takes long: ``blocks``,
    whose result ``inspect.unfolded`` turns into a row per block again."""
    function, arguments = _call(image, view, number)
    known: dict[str, Any] = {} if view == "header" else {"trust": trust}
    if view == "blocks":
        known["progress"] = progress
    return getattr(inspect, function)(image, *arguments, **known)


def named(view: str, number: str | None) -> tuple[str, str | None]:
    """The view and the number that were asked for: ``scheme`` with the name of a table is that table."""
    return (number, None) if view == "scheme" and number is not None else (view, number)


def check(image: Path, view: str, number: str | None, ftl: str | None) -> int | None:
    """The number that was typed for a view of an image bound to ``ftl`` ("": to none; None: not known). UsageError for
    a view that this FTL does not have, and for a number that is no number, is missing or superfluous."""
    own, numbered = ([], {}) if view in GENERAL else _of_scheme(ftl)
    unit = GENERAL[view][1] if view in GENERAL else numbered.get(view, "")
    if view not in GENERAL and view not in own and view not in numbered:
        there = [*GENERAL, *own, *numbered]
        has = "there is" if ftl is None else f"{ftl or 'a blank image'} has"
        raise UsageError(f"dump {view}{meant(view, there)}: {has} {', '.join(there)}")
    bare = None if number is None else number.replace(",", "")  # as a table shows it: 9,009
    if bare is not None and unit and not (bare.isdecimal() and len(bare) <= DIGITS):
        raise UsageError(f"{unit} {number}: it must be a number from 0 up")
    at: Any = int(bare) if bare is not None and unit else number
    _call(image, view, at)  # one that takes no number has None, or is refused
    return None if at is None else int(at)


def _of_scheme(ftl: str | None) -> tuple[list[str], dict[str, str]]:
    """(its views, {those that take a number: of what}); those of all FTLs, for an FTL that is not registered."""
    if ftl is not None and (not ftl or is_registered(ftl)):
        of = [scheme(ftl)] if ftl else []
    else:
        of = list(SCHEMES.values())
    own = [name for one in of for name in one.views]
    return list(dict.fromkeys(own)), {name: unit for one in of for name, (unit, _) in one.numbered.items()}


def names(ftl: str) -> list[str]:
    """The views of an image that is bound to that FTL; only the general ones for an FTL that is not registered."""
    own, numbered = _of_scheme(ftl) if ftl in SCHEMES else ([], {})
    return [*GENERAL, *own, *numbered]


def _call(image: Path, view: str, number: int | None) -> tuple[str, list[Any]]:
    """(function of flashfs.inspect, its arguments after the image)."""
    own = dict.fromkeys(name for one in SCHEMES.values() for name in one.views)
    numbered = {name: unit for one in SCHEMES.values() for name, (unit, _) in one.numbered.items()}
    if view not in GENERAL and view not in own and view not in numbered:
        there = [*GENERAL, *own, *numbered]
        raise UsageError(f"dump {view}{meant(view, there)}: no such view; use {', '.join(there)}")
    function, unit = GENERAL.get(view, ("scheme", ""))
    if unit and number is None:
        raise UsageError(f"dump {view} needs a number: flashfs dump {image} {view} {unit}")
    if not unit and number is not None and view not in numbered:
        raise UsageError(f"dump {view} takes no number, {number} was given")
    return function, [number] if unit else [view, number] if view in numbered else [view] if view in own else []
