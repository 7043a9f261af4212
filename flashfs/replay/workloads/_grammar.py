"""The text of a workload, ``name[:key=value,...]``, and the common keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flashfs.errors import UsageError
from flashfs.text import meant

SIZE_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}  #: of 1024, for bytes
COUNT_POWERS = {"": 0, "k": 1, "m": 2, "g": 3}  #: of 1000, for requests
NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


class Unreadable(ValueError):
    """An invalid value; the message says what is valid."""


def size(text: str) -> int:
    """Bytes, as ``4k`` or ``1M``; powers of 1024."""
    found = NUMBER.fullmatch(text.strip())
    exact = float(found[1]) * 1024 ** SIZE_POWERS[found[2].lower()] if found else 0.0
    if exact < 1 or exact >= 1 << 63 or exact != int(exact):
        raise Unreadable("a size above 0, as 4k or 1M")
    return int(exact)


def count(text: str) -> int:
    """A number of things above 0; k, M and G are thousands."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)", text.strip(), re.IGNORECASE)
    exact = float(found[1]) * 1000 ** COUNT_POWERS[found[2].lower()] if found else 0.0
    if exact < 1 or exact != int(exact) or exact >= 1 << 48:
        raise Unreadable("a whole number above 0, as 4M")
    return int(exact)


def share(text: str) -> float:
    """A number from 0 to 1."""
    value = number(text)
    if value > 1:
        raise Unreadable("a share from 0 to 1")
    return value


def number(text: str) -> float:
    """A decimal that is not negative."""
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", text.strip()):
        raise Unreadable("a number, 0 or above")
    return float(text)


def seed(text: str) -> int:
    if not re.fullmatch(r"\d{1,19}", text.strip()):
        raise Unreadable("a whole number from 0 on")
    return int(text)


def flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise Unreadable("0 or 1")
    return text == "1"


def word(*choices: str) -> Callable[[str], str]:
    """A parser for one of these words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise Unreadable(" or ".join(choices))
        return text

    return parse


def sizes(text: str) -> tuple[tuple[int, int], ...]:
    """`4k`, or `4k/60:64k/40`: sizes with their weights."""
    out = []
    for part in text.split(":"):
        one, slash, weight = part.partition("/")
        out.append((size(one), count(weight) if slash else 1))
    if len({one for one, _ in out}) < len(out):
        raise Unreadable("each size once")
    return tuple(out)


def stride(text: str) -> int | str:
    """`4`: every fourth place; `16k`: so many bytes, kept as text until the size of a place is known."""
    return int(text) if text.isdigit() else f"{size(text)}B"


def path(text: str) -> str:
    return text


@dataclass(frozen=True)
class Law:
    """Contents drawn by a law: the i-th of ``share`` x the device's 4 KiB has probability C / i^``exponent``."""

    share: float
    exponent: float

    def __str__(self) -> str:
        return f"zipf:N={self.share!r},a={self.exponent!r}"


def contents(text: str) -> int | Law:
    """`65536`, how many contents are popular; or `zipf:N=0.9,a=0.2`."""
    if not text.startswith("zipf"):
        return count(text)
    found = re.fullmatch(r"zipf:N=([\d.]+),a=([\d.]+)", text)
    if not found or not 0 < number(found[1]) <= 1:
        raise Unreadable("zipf:N=SHARE,a=EXPONENT, with a share above 0 and up to 1")
    return Law(number(found[1]), number(found[2]))


@dataclass(frozen=True)
class Parameter:
    """One key. ``default`` is None if it follows from other keys; ``help`` says how."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str


COMMON = (
    Parameter("ops", count, None, "requests, as 4M (millions); default: one for each place of the span"),
    Parameter("skip", count, 0, "requests from the first on that are left out: a phase before has played them"),
    Parameter("write", share, None, "share of writes; default: all that is no trim and no flush. The rest reads"),
    Parameter("trim", share, 0.0, "share of trims"),
    Parameter("flush", share, 0.0, "share of flushes"),
    Parameter("size", sizes, None, "bytes of a request, as 16k, or with weights, as 4k/60:64k/40; default: a page"),
    Parameter("align", size, None, "requests begin at multiples of it: a place; default: the smallest size"),
    Parameter("span", share, 1.0, "share of the device that is used"),
    Parameter("start", share, 0.0, "where that begins, as a share of the device"),
    Parameter("seed", seed, 1, "of all that is random"),
    Parameter("qd", count, 1, "closed loop: so many requests are under way at any time"),
    Parameter("rate", number, 0.0, "open loop instead: requests per second"),
    Parameter("arrival", word("fixed", "poisson"), "fixed", "with rate: at equal distances, or as a Poisson process"),
    Parameter("dup", share, None, "share of written 4 KiB whose content was written before; default: no contents"),
    Parameter("dup_theta", number, 0.2, "how much more popular some contents are (Zipf)"),
    Parameter("contents", contents, 65536, "how many contents are popular; or zipf:N=0.9,a=0.2: each written 4 KiB is "
              "the i-th of N x the device's with a probability of C / i^a"),
)  # fmt: skip
#: keys of patterns only; programs define their operations and sizes themselves
ADDRESSED = frozenset({"write", "trim", "flush", "size", "align"})
SHARED = tuple(one for one in COMMON if one.name not in ADDRESSED)


def parse(text: str, own: dict[str, tuple[Parameter, ...]]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """(name, all parameters, those that were given) of a text. ``own``: {name: its keys}. UsageError if it is
    invalid."""
    name, _, rest = text.partition(":")
    if name not in own:
        raise UsageError(f"workload {name}{meant(name, own)}: use {', '.join(own)}")
    known = {one.name: one for one in own[name]}
    given: dict[str, Any] = {}
    for pair in _pairs(rest):
        key, equals, value = pair.partition("=")
        if not equals or key not in known:
            near = "" if key in known else meant(key, known)
            raise UsageError(f"workload {text}: {pair!r}{near}: use KEY=VALUE, with {', '.join(known)}")
        if key in given:
            raise UsageError(f"workload {text}: {key} is there twice")
        try:
            given[key] = known[key].parse(value)
        except Unreadable as error:
            raise UsageError(f"workload {text}: {pair}: use {error}") from None
    return name, {one.name: given.get(one.name, one.default) for one in known.values()}, given


def _pairs(rest: str) -> list[str]:
    """The parts between commas; ``contents=zipf:N=0.9,a=0.2`` stays one part."""
    out: list[str] = []
    for part in rest.split(",") if rest else ():
        if out and out[-1].startswith("contents=zipf:") and part.partition("=")[0] in ("N", "a"):
            out[-1] += f",{part}"
        else:
            out.append(part)
    return out
