"""Sizes as people write them, and as they read them. k, M, G and T are powers of 1024."""

from __future__ import annotations

import math
from fractions import Fraction

from flashfs.errors import UsageError
from flashfs.text import bytes_of, shown

__all__ = ["offset", "pairs", "share", "shown", "size"]

ABOVE = "above 0"  #: what a size must be
MOST = 1 << 63  #: bytes, and more than any number of them that is stored
DIGITS = 30  #: of a text that is no size, so many are shown


def size(option: str, text: str) -> int:
    """``text`` (4096, 4k, 1.5G, 512MiB) in bytes; ``option`` is named if it cannot be read."""
    exact = bytes_of(text) or Fraction(0)
    shortened = f"{text[:DIGITS]}..." if len(text) > DIGITS else text
    if exact <= 0 or exact.denominator != 1:
        are = f"that is {float(exact):.1f} bytes; " if exact >= 1 else ""
        raise UsageError(f"{option} {shortened}: {are}use a whole number of bytes {ABOVE}, as 4096, 4k, 512M or 1.5G")
    if exact >= MOST:
        raise UsageError(f"{option} {shortened}: use less than 8 EiB")
    return int(exact)


def offset(option: str, text: str) -> int:
    """As ``size``, or 0."""
    if text.strip() == "0":
        return 0
    try:
        return size(option, text)
    except UsageError as error:
        raise UsageError(str(error).replace(f"bytes {ABOVE}", "bytes from 0 up")) from None


def share(option: str, text: str) -> float:
    """``0.1`` or ``10%``; ``option`` is named if it cannot be read, or is no share above 0."""
    try:
        found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise UsageError(f"{option} {text}: use a share above 0, as 0.1 or 10%")
    return found


def pairs(option: str, texts: list[str], see: str = "flashfs ftls NAME") -> dict[str, str]:
    """``["k=v", ...]`` as a dictionary; ``see`` is the command that lists the names."""
    out = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"{option} {text}: use NAME=VALUE (see {see})")
        out[key] = value
    return out
