"""Names, sizes and numbers as text for people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from fractions import Fraction

POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def printable(text: str) -> str:
    """``text`` with terminal control characters and bytes that are not UTF-8 written as escapes, because names of files
    and names in an image are not trusted."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def encodable(text: str) -> str:
    """``text`` that can be encoded as UTF-8: other bytes of a name are written as escapes, as in ``printable``."""
    return text.encode("utf-8", "backslashreplace").decode()


def bytes_of(text: str) -> Fraction | None:
    """What ``text`` (4096, 4k, 1.5G, 512MiB) is in bytes, k, M, G and T being powers of 1024; None if it is no size."""
    found = re.fullmatch(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    return Fraction(found[1]) * 1024 ** POWERS[found[2]] if found else None


def shown(size_bytes: float) -> str:
    """``size_bytes`` for people: 4 KiB, 1.1 GiB, 17 B."""
    value, power = float(size_bytes), 0
    while value >= 1024 and power < len(UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.0f} {UNITS[power]}" if value == int(value) else f"{value:.1f} {UNITS[power]}"


def shown_down(size_bytes: int) -> str:
    """A limit in a form that can be typed: a whole number (10 or more) of the largest such unit, not above
    ``size_bytes``."""
    power = max((power for power in range(len(UNITS)) if size_bytes >= 10 * 1024**power), default=0)
    return f"{size_bytes // 1024**power} {UNITS[power]}"


def meant(name: object, known: Iterable[str]) -> str:
    """A hint to put after ``name`` in a message: " (did you mean slimftl?)", or "" if no ``known`` name is similar."""
    near = {one.lower(): one for one in known}
    found = get_close_matches(str(name).lower(), near, n=1, cutoff=0.6)
    return f" (did you mean {near[found[0]]}?)" if found else ""
