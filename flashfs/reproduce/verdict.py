"""Compares our numbers with the paper's: the rows of the table, and their verdicts.

A verdict claims no more than its mark allows: a printed number is met *as printed*, one read off a plot *as read off*,
and if only the shape is known, the verdict is only that the *shape holds*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import linear_regression

from flashfs.reproduce.figure import EACH, JOINT, LEAST, MEAN, MOST, NUMBERED, OVER_X, Expect, Figure

MET = {"N": "as printed", "A": "as derived", "P": "as read off", "S": "shape holds"}
NOT_MET = {"N": "not as printed", "A": "not as derived", "P": "not as read off", "S": "another shape"}
ALONG, ALL = "along x", "all"

Values = Mapping[tuple[str, str], float | None]  #: by series and x; None: not measured


@dataclass(frozen=True)
class Line:
    """A row of the table. ``met`` is None if nothing was expected, or nothing measured."""

    series: str
    x: str
    paper: float | None
    mark: str
    ours: float | None
    verdict: str
    met: bool | None = None
    rule: str = ""

    @property
    def ratio(self) -> float | None:
        return self.ours / self.paper if self.paper and self.ours is not None else None

    @property
    def key(self) -> str:
        """Identifies the line in stored results."""
        return f"{self.series} | {self.x} | {self.rule}"


def lines(figure: Figure, values: Values, why_not: Mapping[str, str]) -> list[Line]:
    """All rows: first each point with its expectations, then the expectations of several x or series.

    ``why_not``: {series that is not measured: why}.
    """
    out = []
    for one in figure.series:
        mine = [_at(figure, one.name, x.name, values, why_not) for x in figure.xs
                if (one.name, x.name) in values or one.name in why_not]  # fmt: skip
        if one.name in why_not and not any(line.mark for some in mine for line in some):
            out.append(Line(one.name, ALL, None, "", None, why_not[one.name]))  # one row for all x
        else:
            out += [line for some in mine for line in some]
    for expect in figure.expect:
        if expect.rule in NUMBERED and (expect.x in OVER_X or len(expect.series) > 1):
            out += _numbers(figure, expect, values, why_not)
        elif expect.rule == "meet":
            out.append(_meeting(figure, expect, values, why_not))
        elif expect.rule not in NUMBERED:
            out.append(_shape(figure, expect, values, why_not))
    return out


def _at(figure: Figure, series: str, x: str, values: Values, why_not: Mapping[str, str]) -> list[Line]:
    ours = values.get((series, x))
    why = why_not.get(series, "")
    expected = [one for one in figure.expect if one.series == (series,) and one.rule in NUMBERED and one.x in (x, EACH)]
    if not expected:
        return [Line(series, x, None, "", ours, why or ("" if ours is not None else "not measured"))]
    return [_judged(one, x, ours, why) for one in expected]


def _numbers(figure: Figure, expect: Expect, values: Values, why_not: Mapping[str, str]) -> list[Line]:
    """The rows of an expectation about a quotient of series, or about all x of a series together."""
    why = ", ".join(why_not[one] for one in expect.series if one in why_not)
    at = {x.name: _quotient([values.get((one, x.name)) for one in expect.series])
          for x in figure.xs if all((one, x.name) in values for one in expect.series)
          and x.name in (expect.among or (x.name,))}  # fmt: skip
    if expect.x not in OVER_X:
        there = [x for x in (at or {expect.x: None}) if expect.x in (x, EACH)]
        return [_judged(expect, x, at.get(x), why) for x in there]
    ours = _over(expect.x, list(at.values()), figure.value.relative or len(expect.series) > 1)
    return [_judged(expect, expect.x, ours, why)]


def _quotient(row: Sequence[float | None]) -> float | None:
    """The first over the least of the others, or just the first if it is alone; None if one is missing."""
    first, *others = row
    there = [one for one in others if one is not None]
    if first is None or len(there) < len(others):
        return None
    least = min(there, default=1.0)
    return first / least if least else None


def _over(x: str, every: Sequence[float | None], ratios: bool) -> float | None:
    if x == MEAN:
        return _mean(every, ratios)
    there = [one for one in every if one is not None]
    return None if not there or len(there) < len(every) else {MOST: max, LEAST: min}[x](there)


def _judged(expect: Expect, x: str, ours: float | None, why: str) -> Line:
    paper = expect.paper
    assert paper is not None
    if why or ours is None:
        return Line(named(expect), x, paper, expect.mark, None, why or "not measured", None, expect.rule)
    met = {
        "within": abs(ours - paper) <= expect.bound * abs(paper),
        "at_least": ours >= paper,
        "at_most": ours <= paper,
    }[expect.rule]
    return _line(expect, named(expect), x, ours, met)


def named(expect: Expect) -> str:
    """The name of what an expectation is about: a series, or a quotient."""
    first, *others = expect.series
    if len(others) < 2:
        return " / ".join(expect.series)
    return f"{first} / least of {', '.join(others)}"


def _line(expect: Expect, series: str, x: str, ours: float | None, met: bool) -> Line:
    verdict = (MET if met else NOT_MET)[expect.mark]
    said = {"within": f"to {expect.bound:.0%}", "at_least": "at least", "at_most": "at most"}.get(expect.rule, "")
    said = f"{verdict}, {said}" if said else verdict
    return Line(series, x, expect.paper, expect.mark, ours, said, met, expect.rule)


def _shape(figure: Figure, expect: Expect, values: Values, why_not: Mapping[str, str]) -> Line:
    """The row of an expectation about a shape. An order is judged by the series that are measured, at least two."""
    there = [name for name in expect.series if name not in why_not]
    sign = {"order": " <= ", "level": " == "}.get(expect.rule, "")
    name = sign.join(expect.series)
    at = ALONG if expect.x in (EACH, MEAN) else expect.x
    rows = [[values.get((one, x.name)) for x in figure.xs if (one, x.name) in values and at in (ALONG, x.name)
             and x.name in (expect.among or (x.name,))] for one in there]  # fmt: skip
    if len(there) < (2 if expect.rule in JOINT else 1) or any(None in row or not row for row in rows):
        waits = [why_not[one] for one in expect.series if one in why_not]
        return Line(name, at, None, expect.mark, None, ", ".join(waits) or "not measured", None, expect.rule)
    numbers = [[one for one in row if one is not None] for row in rows]
    steps = list(zip(*numbers, strict=False)) if expect.rule in JOINT else numbers
    slack = 1 + expect.bound
    if expect.rule in ("flat", "level"):
        met = all(max(row) <= slack * min(row) for row in steps)
    else:
        up = [_up(row, expect.rule) for row in steps]
        met = all(one <= slack * other for row in up for one, other in pairwise(row))
        if expect.rule == "order":
            met &= all(_is_ahead(pair, slack) for pair in zip(*map(pairwise, up), strict=True))
        else:
            met &= all(_is_ahead([(row[0], row[-1])], slack) for row in up)
    line = _line(expect, f"{name} {expect.rule if expect.rule not in JOINT else ''}".strip(), at, None, met)
    return line if len(there) == len(expect.series) else replace(line, verdict=f"{line.verdict}, of {len(there)}")


def _is_ahead(pairs: Sequence[tuple[float, float]], slack: float) -> bool:
    """Whether the first of two series is below the second, on average, by more than is forgiven at one x; otherwise an
    order would hold without any effect. A series that is 0 everywhere is below one that is not."""
    there = [(one, other) for one, other in pairs if one != other]
    if any(one <= 0 or other <= 0 for one, other in there):
        return sum(other for _, other in there) > slack * sum(one for one, _ in there)
    mean = math.fsum(math.log(other / one) for one, other in there) / len(pairs)
    return mean > 0 and mean >= math.log(slack)


def _meeting(figure: Figure, expect: Expect, values: Values, why_not: Mapping[str, str]) -> Line:
    """The row of ``meet``: how many doublings of x beyond the last one the lines through both series meet. Lines that
    do not converge never meet, which counts as infinitely far."""
    name = " meets ".join(expect.series)
    xs = [x.name for x in figure.xs if all(values.get((one, x.name)) is not None for one in expect.series)]
    if len(xs) < 2:
        waits = [why_not[one] for one in expect.series if one in why_not]
        return Line(name, ALONG, expect.paper, expect.mark, None, ", ".join(waits) or "not measured", None, expect.rule)
    doublings = [math.log2(float(x)) for x in xs]
    (slope, start), (other, begin) = (
        linear_regression(doublings, [values[one, x] or 0.0 for x in xs]) for one in expect.series
    )
    last = max(doublings)
    apart = (begin + other * last) - (start + slope * last)
    ours = apart / (slope - other) if apart * (slope - other) > 0 else math.inf
    assert expect.paper is not None
    line = _line(expect, name, ALONG, ours, ours >= expect.paper)
    if ours == math.inf:
        return replace(line, ours=None, verdict=f"{line.verdict}: doublings of x, they never do")
    return replace(line, verdict=f"{line.verdict}, doublings of x, at least")


def _up(row: Sequence[float], rule: str) -> Sequence[float]:
    return row[::-1] if rule == "falling" else row


def _mean(every: Sequence[float | None], ratios: bool) -> float | None:
    """The geometric mean of ratios to a baseline, else the arithmetic mean; None if one is missing, or a ratio is not
    above 0."""
    there = [one for one in every if one is not None and (one > 0 or not ratios)]
    if not there or len(there) < len(every):
        return None
    if not ratios:
        return math.fsum(there) / len(there)
    return math.exp(math.fsum(map(math.log, there)) / len(there))


def summary(rows: Sequence[Line]) -> str:
    """The verdict on a figure in a few words."""
    judged = [one.met for one in rows if one.met is not None]
    waits = sorted({why for one in rows for why in one.verdict.split(", ") if why.startswith("waits")})
    if not judged:
        return ", ".join(waits) or "shown"
    kept = "reproduced" if all(judged) else "partly" if any(judged) else "not"
    return f"{kept} ({sum(judged)} of {len(judged)})" + (f", {', '.join(waits)}" if waits else "")


def lost(before: Mapping[str, bool | None], now: Sequence[Line]) -> list[Line]:
    """The lines that were met in the stored results and are not met now."""
    return [one for one in now if one.met is False and before.get(one.key)]
