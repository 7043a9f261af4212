"""Rare events: a campaign that passes says nothing about an event that none of its runs met.

The events of the engine are here; a scheme lists its own in its registry entry (``Scheme.events``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from flashfs.ftl import Scheme


def _programs(cause: str) -> Callable[[Any], int]:
    """Pages programmed for that cause."""
    return lambda ssd: int(ssd.operations()[1]["program"].get(cause, 0))


FULL_LIST = "lists of trims that were full"
#: each as a function of one life's Ssd
ENGINE: Mapping[str, Callable[[Any], int]] = {
    "pages moved by cleaning": _programs("gc"),
    "pages moved by wear levelling": _programs("wear"),
    "pages moved out of a failed block": _programs("retire"),
    "pages of trims": lambda ssd: ssd.meta.trim_pages_n,
    "reads from the data cache": lambda ssd: ssd.cache.hits,
}


def names(of: Scheme) -> list[str]:
    """Every event that a campaign of this scheme can meet."""
    return [*ENGINE, FULL_LIST, *of.events]


def counts_of(of: Scheme, ssd: Any) -> Counter[str]:
    """How often each event happened in this life so far."""
    return Counter({name: count(ssd) for events in (ENGINE, of.events) for name, count in events.items()})


class Met:
    """Counts events over the lives of one run."""

    __slots__ = ("counts", "of")

    def __init__(self, of: Scheme) -> None:
        self.of = of
        self.counts: Counter[str] = Counter()

    def take(self, ssd: Any) -> None:
        """A life has ended; ``ssd`` is None if it never began."""
        if ssd is None:
            return
        self.counts.update(counts_of(self.of, ssd))

    def trimmed(self, ssd: Any) -> None:
        """A trim is done."""
        self.counts[FULL_LIST] += ssd.meta.pending_n == ssd.meta.pending_room


def never_without_damage(of: Scheme, ssd: Any) -> list[str]:
    """Events that happened although only damage causes them, and nothing but the power failed."""
    return [f"{name}, and no page was damaged" for name, count in of.damage_events.items() if count(ssd)]
