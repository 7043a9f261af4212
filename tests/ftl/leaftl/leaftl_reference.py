"""LeaFTL's table as its paper tells it (ASPLOS'23, Algorithms 1 and 2), in plain lists and sets, to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashfs.ftl.leaftl.regression_py import fit, predicted, stride

GROUP = 256
HOLE = 0xBC00


@dataclass
class Held:
    """A segment of the reference: what it holds, and its line."""

    lpas: list[int]  # of an accurate one, what follows from its ends and its stride
    slope: int
    intercept: int

    @property
    def kind(self) -> str:
        return "hole" if self.slope == HOLE else "approximate" if self.slope & 1 else "accurate"

    def keep(self, rest: set[int]) -> None:
        """seg_merge: an approximate one holds just the rest, another one all that its stride has between its ends."""
        if self.slope & 1:
            self.lpas = sorted(rest)
        else:
            step = 1 if self.slope in (0, HOLE) else stride(self.slope)
            self.lpas = list(range(min(rest), max(rest) + 1, step)) if rest else []

    def overlaps(self, other: Held) -> bool:
        return self.lpas[0] <= other.lpas[-1] and other.lpas[0] <= self.lpas[-1]


class Group:
    """Levels of segments, the top one first."""

    def __init__(self) -> None:
        self.levels: list[list[Held]] = []

    def tidy(self) -> None:
        kept = [[held for held in level if held.lpas] for level in self.levels]
        self.levels = [sorted(level, key=lambda held: held.lpas) for level in kept if level]

    def update(self, new: Held) -> None:
        taken = set(new.lpas)
        if new.slope & 1:
            for held in (held for level in self.levels for held in level if held.slope & 1):
                held.keep(set(held.lpas) - taken)
            self.tidy()
        top = self.levels[0] if self.levels else []
        if not self.levels:
            self.levels = [top]
        for victim in [held for held in top if held.overlaps(new)]:
            victim.keep(set(victim.lpas) - taken)
            if victim.lpas and victim.overlaps(new):
                top.remove(victim)
                if len(self.levels) == 1 or any(victim.overlaps(held) for held in self.levels[1]):
                    self.levels.insert(1, [])
                self.levels[1].append(victim)
        top.append(new)
        self.tidy()

    def compact(self) -> None:
        """Nothing hidden stays; each segment as high as the newer ones that it overlaps allow."""
        seen: set[int] = set()
        kept = []
        for held in (held for level in self.levels for held in level):
            own = set(held.lpas) - seen
            held.keep(own)
            seen |= own
            if own:
                kept.append((held, own))
        below: set[int] = set()
        for held, own in reversed(kept):
            if held.slope == HOLE:
                held.keep(own & below)
            else:
                below |= set(held.lpas)
        self.levels = []
        for held in (held for held, _ in kept if held.lpas):
            under = [i for i, level in enumerate(self.levels) if any(held.overlaps(other) for other in level)]
            depth = max(under) + 1 if under else 0
            if depth == len(self.levels):
                self.levels.append([])
            self.levels[depth].append(held)
        self.tidy()

    def lookup(self, x: int) -> tuple[int, int, bool] | None:
        """(PPA, levels searched, approximate)"""
        for depth, level in enumerate(self.levels, 1):
            for held in level:
                if x in held.lpas:
                    if held.slope == HOLE:
                        return None
                    return predicted(held.slope, held.intercept, x), depth, bool(held.slope & 1)
        return None

    def crb(self) -> list[list[int]]:
        return sorted(held.lpas for level in self.levels for held in level if held.slope & 1)

    def shown(self) -> list[list[tuple[str, list[int], int]]]:
        return [[(held.kind, held.lpas, held.intercept) for held in level] for level in self.levels]


def insert(groups: dict[int, Group], lpas: list[int], ppas: list[int], gamma: int, **rules: Any) -> None:
    """Learn a run and update with each piece."""
    for piece in fit(lpas, ppas, gamma, **rules):
        own = lpas[piece["first"] : piece["first"] + piece["n"]]
        held = Held([x % GROUP for x in own], int(piece["slope"]), int(piece["intercept"]))
        groups.setdefault(own[0] // GROUP, Group()).update(held)
