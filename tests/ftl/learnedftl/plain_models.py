"""LearnedFTL's models in plain Python: what flashfs.ftl.learnedftl.models is to do, said once more and slowly."""

from __future__ import annotations

from dataclasses import dataclass, field

from nandimg import Geometry

ONE = 4096
MOST = 32767


def nearest(a: int, b: int) -> int:
    return (2 * a + b) // (2 * b)


@dataclass
class Plain:
    """A model of ``span`` LPAs: ``pieces`` of (first LPA, slope, rise), ``exact`` the LPAs whose bit is set."""

    span: int
    base: int = 0
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    exact: set[int] = field(default_factory=set)

    def said(self, x: int) -> int | None:
        for off, slope, rise in reversed(self.pieces):
            if off <= x:
                return self.base + rise + (slope * (x - off) + ONE // 2) // ONE
        return None

    def train(self, points: list[tuple[int, int]]) -> None:
        if len(points) <= 30 * self.span // 512 or len(self.exact) == len(points):
            return
        n, new = len(points), Plain(self.span)
        count = min(8, n)
        middles = sorted(points[(2 * p + 1) * n // (2 * count)][1] for p in range(count))
        new.base = middles[count // 2]
        for p in range(count):
            new.pieces.append(new.fitted(points[p * n // count : (p + 1) * n // count]))
        new.exact = {x for x, y in points if new.said(x) == y}
        if len(new.exact) > len(self.exact):
            self.base, self.pieces, self.exact = new.base, new.pieces, new.exact

    def fitted(self, points: list[tuple[int, int]]) -> tuple[int, int, int]:
        off, n = points[0][0], len(points)
        tried = [self.least_squares(points)]
        for quarter in (1, 2, 3):
            x, y = points[quarter * n // 4]
            rise = y - (x - off) - self.base
            tried.append((ONE, rise) if abs(rise) <= MOST else None)
        best, piece = 0, tried[0] or (0, 0)
        for line in tried:
            if line is None:
                continue
            slope, rise = line
            found = sum(self.base + rise + (slope * (x - off) + ONE // 2) // ONE == y for x, y in points)
            if found > best:
                best, piece = found, line
        return off, *piece

    def least_squares(self, points: list[tuple[int, int]]) -> tuple[int, int] | None:
        off, first, n = points[0][0], points[0][1], len(points)
        xs, ys = [x - off for x, _ in points], [y - first for _, y in points]
        if max(map(abs, ys)) > 1 << 20:
            return None
        slope = 0
        if n > 1:
            slope = nearest(
                ONE * (n * sum(x * y for x, y in zip(xs, ys, strict=True)) - sum(xs) * sum(ys)),
                n * sum(x * x for x in xs) - sum(xs) ** 2,
            )
        rise = nearest(ONE * sum(ys) - slope * sum(xs), ONE * n) + first - self.base
        return (slope, rise) if abs(slope) <= MOST and abs(rise) <= MOST else None

    def run(self, x: int, y: int, n: int) -> None:
        known = {x + i for i in range(n) if self.said(x + i) == y + i}
        self.exact = self.exact - set(range(x, x + n)) | known
        if len(known) == n or n < 2:
            return
        behind = all(one < x + n for one in self.exact)
        if 0 < len(self.pieces) < 8 and self.pieces[-1][0] < x and abs(y - self.base) <= MOST and behind:
            self.pieces.append((x, ONE, y - self.base))
            self.exact |= set(range(x, x + n))
        elif n > len(self.exact):
            self.base, self.pieces, self.exact = y, [(x, ONE, 0)], set(range(x, x + n))


class PlainModels:
    """All models of a device, by their first LPA."""

    def __init__(self, geometry: Geometry, per_page: int) -> None:
        self.geometry, self.per_page, self.span = geometry, per_page, min(per_page, 512)
        self.models: dict[int, Plain] = {}

    def of(self, lpa: int) -> tuple[Plain, int]:
        x = lpa % self.per_page % self.span
        return self.models.setdefault(lpa - x, Plain(self.span)), x

    def where(self, lpa: int) -> int | None:
        model, x = self.of(lpa)
        return self.geometry.ppa(model.said(x) or 0) if x in model.exact else None

    def change(self, lpa: int) -> None:
        model, x = self.of(lpa)
        model.exact.discard(x)

    def train(self, first: int, ppas: list[int | None]) -> None:
        for at in range(0, len(ppas), self.span):
            model, _ = self.of(first + at)
            model.train([
                (x, self.geometry.vppn(ppa)) for x, ppa in enumerate(ppas[at : at + self.span]) if ppa is not None
            ])  # fmt: skip

    def run(self, lpas: list[int], ppas: list[int]) -> None:
        for lpa in lpas:
            self.change(lpa)
        i = 0
        while i < len(lpas):
            model, x = self.of(lpas[i])
            first, n = self.geometry.vppn(ppas[i]), 1
            while (
                i + n < len(lpas)
                and lpas[i + n] == lpas[i] + n
                and self.of(lpas[i + n])[0] is model
                and self.geometry.vppn(ppas[i + n]) == first + n
            ):
                n += 1
            model.run(x, first, n)
            i += n
