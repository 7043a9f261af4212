"""Sizes as people write them, and as they read them. k, M, G and T are powers of 1024."""

from __future__ import annotations

from fractions import Fraction

from flashfs.errors import UsageError
from flashfs.text import bytes_of, shown

__all__ = ["offset", "pairs", "shown", "size"]

DIGITS = 30  #: of a text that is no size, so many are shown


def size(option: str, text: str) -> int:
    """``text`` (4096, 4k, 1.5G, 512MiB) in bytes; ``option`` is named if it cannot be read."""
    exact = bytes_of(text) or Fraction(0)
    if exact <= 0 or exact.denominator != 1:
        shortened = f"{text[:DIGITS]}..." if len(text) > DIGITS else text
        are = f"that is {float(exact):.1f} bytes; " if exact >= 1 else ""
        raise UsageError(f"{option} {shortened}: {are}use a whole number of bytes above 0, as 4096, 4k, 512M or 1.5G")
    return int(exact)


def offset(option: str, text: str) -> int:
    """As ``size``, or 0."""
    return 0 if text.strip() == "0" else size(option, text)


def pairs(option: str, texts: list[str]) -> dict[str, str]:
    """``["k=v", ...]`` as a dictionary."""
    out = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"{option} {text}: use NAME=VALUE (see flashfs ftls NAME)")
        out[key] = value
    return out
