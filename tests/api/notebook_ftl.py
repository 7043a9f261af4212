"""A class that tests give as an FTL."""

from __future__ import annotations


class Plain:
    """Plain. A dict, and one option."""

    def __init__(self, chip) -> None:  # type: ignore[no-untyped-def]
        self.at: dict[int, int] = {}

    def lookup(self, lpa: int) -> int | None:
        return self.at.get(lpa)

    def bind(self, lpa: int, ppa: int) -> None:
        self.at[lpa] = ppa

    def unbind(self, lpa: int) -> None:
        del self.at[lpa]
