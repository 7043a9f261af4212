"""Reads a figure of a paper from a TOML file, PAPER-FIGURE.toml. docs/reproduce.md lists the keys.

Each series has a point at each x. A point merges the tables ``all``, the scale, the series and the x, in that order.
Their keys are those of a sweep; with ``of = "formulas"`` those of flashfs.formulas, with ``of = "records"`` those of
flashfs.reproduce.records. ``of`` says what is measured at a point (MEASURED). ``expect`` is what the paper says.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from flashfs.errors import UsageError
from flashfs.formulas import Chip
from flashfs.replay.grid import AXES, OPTIONS
from flashfs.replay.workers import PLAYER
from flashfs.reproduce.expression import Expression

OURS = Path(__file__).with_name("figures")
SCALES = ("small", "paper")
MARKS = {
    "N": "printed", "A": "derived from the paper's formulas", "P": "read off a plot", "S": "only the shape is known",
}  # fmt: skip
EACH, MEAN = "*", "mean"  #: an expectation's x: every x by itself; the mean over x
MOST, LEAST = "most", "least"  #: likewise: the largest, the smallest number along x
OVER_X = (MEAN, MOST, LEAST)
RULES = ("within", "at_least", "at_most", "meet", "rising", "falling", "flat", "order", "level")
NUMBERED = RULES[:3]  #: compare a number of ours with the paper's
JOINT = ("order", "level", "meet")  #: rules about several series
#: {value of ``of``: the player that replays a point of a sweep (flashfs.replay.workers.PLAYER)}
MEASURED = {"replays": PLAYER, "recoveries": "flashfs.replay.recovery_runs:run"}
FORMULAS = "formulas"  #: nothing is measured
RECORDS = "records"  #: results that a tool has measured are read
#: {value of ``of``: the keys that a point may have}
KEYS = {
    **{name: frozenset({*AXES, OPTIONS}) for name in MEASURED},
    FORMULAS: frozenset({"ftl", *(one.name for one in fields(Chip))}),
    RECORDS: frozenset({"ftl", "file", "row"}),
}
NAME = re.compile(r"[a-z0-9]+-[a-z0-9]+")

Table = dict[str, Any]


@dataclass(frozen=True)
class Expect:
    """What the paper says about one series, or about several for a rule of JOINT: at one x, at each, along x, or about
    the mean, the most or the least; ``among``: of these x alone.

    A number of several series is a quotient: the first's value over the least of the others', at the same x.

    ``rule``: ``within`` the share ``bound`` of the paper's number; ``at_least`` or ``at_most`` that number; ``rising``,
    ``falling`` or ``flat`` along x, to within the share ``bound``, and the ends of the first two differ by more than
    that; ``order``: the series in this order at each x, or at one, each at most 1 + ``bound`` times the next, and on
    average below it by more than that; ``level``: the largest of them is at most 1 + ``bound`` times the least;
    ``meet``: the straight lines that fit two series best over the logarithm of x meet at least ``paper`` doublings
    beyond the last x.
    """

    series: tuple[str, ...]
    x: str
    mark: str
    rule: str
    bound: float
    paper: float | None
    among: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """A series or an x, with its tables."""

    name: str
    sweep: Table
    scales: dict[str, Table]
    value: Expression | None = None
    trace: str | None = None  #: of an x: a pattern of files in the folder --traces


@dataclass(frozen=True)
class Figure:
    paper: str
    number: str
    file: Path
    title: str
    source: str  #: the paper, and where in it
    y: str
    x: str
    form: str  #: bars or lines
    of: str  #: a name of KEYS
    value: Expression
    baseline: str | None
    compares: tuple[str, ...]  #: settings, such as those of make.EQUAL, in which its series differ on purpose
    substitute: str  #: the workload used in place of the paper's; empty if it is the paper's own
    note: str
    minutes: Mapping[str, float]
    says: Mapping[str, str]  #: by scale: what was scaled by what
    all: Table
    scales: dict[str, Table]
    series: tuple[Point, ...]
    xs: tuple[Point, ...]
    expect: tuple[Expect, ...] = field(default=())
    lost: Mapping[str, str] = field(default_factory=dict)  #: {key of a line that held in an older version: why not now}

    @property
    def name(self) -> str:
        return f"{self.paper}-{self.number}"

    @property
    def ftls(self) -> list[str]:
        return list(dict.fromkeys(str(one.sweep["ftl"]) for one in self.series))


def find(folders: Iterable[Path]) -> dict[str, Figure]:
    """All figures of these folders, by name; those of a later folder replace earlier ones of the same name. UsageError
    if a folder does not exist."""
    out: dict[str, Figure] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--figures {folder}: use a folder with PAPER-FIGURE.toml")
        for path in sorted(folder.glob("*.toml"), key=_as_numbered):
            out[path.stem] = load(path)
    return out


def _as_numbered(path: Path) -> tuple[Any, ...]:
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|\D+", path.stem))


def load(path: Path) -> Figure:
    """The figure in a file. UsageError, in one line, names the file and the invalid key."""
    try:
        return _figure(path, tomllib.loads(path.read_text()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: no TOML: {str(error).splitlines()[0]}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


TEXTS = {
    "title": None, "source": None, "y": None, "x": "", "form": "bars", "of": "replays", "substitute": "", "note": "",
}  # fmt: skip


def _figure(path: Path, given: Table) -> Figure:
    if not NAME.fullmatch(path.stem):
        raise UsageError("use a name as PAPER-FIGURE.toml, of small letters and digits")
    paper, _, number = path.stem.partition("-")
    points = ("series", "at")
    _known(given, (*TEXTS, "value", "baseline", "compares", "all", *SCALES, *points, "expect", "lost"))
    texts = {name: _text(given, name, default) for name, default in TEXTS.items()}
    if texts["form"] not in ("bars", "lines"):
        raise UsageError(f"form = {texts['form']!r}: use bars or lines")
    if texts["of"] not in KEYS:
        raise UsageError(f"of = {texts['of']!r}: use {' or '.join(KEYS)}")
    keys = KEYS[texts["of"]]
    scales = {name: dict(given.get(name, {})) for name in SCALES}
    says = {name: str(table.pop("says", "")) for name, table in scales.items()}
    minutes = {name: float(table.pop("minutes", 0)) for name, table in scales.items()}
    for name, table in (("all", given.get("all", {})), *scales.items()):
        _known(table, keys, name)
    series, xs = (tuple(_point(name, one, keys) for one in _tables(given, name)) for name in points)
    _check_points(series, xs)
    names = [one.name for one in series]
    baseline = given.get("baseline")
    if baseline is not None and baseline not in names:
        raise UsageError(f"baseline = {baseline!r}: use {', '.join(names)}")
    compares = given.get("compares", [])
    if not isinstance(compares, list) or not all(isinstance(one, str) for one in compares):
        raise UsageError(f"compares = {compares!r}: use a list of names")
    figure = Figure(
        paper=paper, number=number, file=path, value=Expression(_text(given, "value", None)), baseline=baseline,
        compares=tuple(compares), minutes=minutes, says=says, all=given.get("all", {}), scales=scales, series=series,
        xs=xs, **texts,
        expect=tuple(_expect(one, names, [x.name for x in xs]) for one in given.get("expect", [])),
        lost={str(key): _text(given["lost"], key, None) for key in given.get("lost", {})},
    )  # fmt: skip
    values = [figure.value, *(one.value for one in (*series, *xs) if one.value is not None)]
    if baseline is None and any(one.relative for one in values):
        raise UsageError("value: base. needs a baseline = SERIES")
    for expect in figure.expect:
        _check_tolerance(figure, expect)
    return figure


def _check_tolerance(figure: Figure, expect: Expect) -> None:
    """UsageError if a quotient of series, or a value relative to the baseline, has a tolerance as large as the effect:
    then 1, no effect at all, would be as printed."""
    series = [one for one in figure.series if one.name in expect.series]
    xs = [one for one in figure.xs if one.name == expect.x] or figure.xs
    values = [x.value or one.value or figure.value for one in series for x in xs]
    if expect.rule != "within" or expect.paper in (None, 1.0):
        return
    assert expect.paper is not None
    effect = abs(expect.paper - 1)
    if (len(series) > 1 or any(one.relative for one in values)) and expect.bound * abs(expect.paper) >= effect:
        raise UsageError(f"expect: within = {expect.bound:g} of {expect.paper:g}: the tolerance is as large as the "
                         f"effect; use less than {effect / abs(expect.paper):.3g}")  # fmt: skip


def _known(table: Table, names: Iterable[str], where: str = "") -> None:
    known = list(names)
    for key in table:
        if key not in known:
            raise UsageError(f"{f'{where}.' if where else ''}{key}: no such key; use {', '.join(sorted(known))}")


def _text(table: Table, name: str, default: str | None) -> str:
    value = table.get(name, default)
    if not isinstance(value, str):
        raise UsageError(f"{name}: it must be a text")
    return value


def _tables(given: Table, name: str) -> list[Table]:
    tables = given.get(name)
    if not isinstance(tables, list) or not tables or not all(isinstance(one, dict) for one in tables):
        raise UsageError(f"{name}: use [[{name}]], once or more")
    return tables


def _point(what: str, given: Table, keys: frozenset[str]) -> Point:
    table = dict(given)
    name = table.pop("name", None)
    if not isinstance(name, str | int | float) or isinstance(name, bool) or name in ("", EACH, *OVER_X):
        raise UsageError(f"{what}: name must be a text or a number, and none of {', '.join((EACH, *OVER_X))}")
    value, trace = table.pop("value", None), table.pop("trace", None)
    scales = {scale: table.pop(scale, {}) for scale in SCALES}
    for part in (table, *scales.values()):
        _known(part, keys, f"{what} {name}")
    return Point(str(name), table, scales, None if value is None else Expression(value), trace)


def _check_points(series: tuple[Point, ...], xs: tuple[Point, ...]) -> None:
    for points in (series, xs):
        names = [one.name for one in points]
        if len(set(names)) < len(names):
            raise UsageError(f"{', '.join(names)}: a name is there twice")
    for one in series:
        if not isinstance(one.sweep.get("ftl"), str):
            raise UsageError(f"series {one.name}: use ftl = NAME")
    for one in xs:
        if one.trace is not None and "source" in one.sweep:
            raise UsageError(f"at {one.name}: source and trace: use one of them")


def _expect(given: Table, series: list[str], xs: list[str]) -> Expect:
    """Parse one ``expect``. It may not claim more than its mark: mark S, where only the shape is known, has no
    number."""
    _known(given, ("series", "x", "among", "mark", "paper", *RULES), "expect")
    mark = given.get("mark")
    if mark not in MARKS:
        raise UsageError(f"expect: mark = {mark!r}: use {', '.join(MARKS)}")
    rules = [name for name in RULES if name in given]
    if len(rules) != 1:
        raise UsageError(f"expect: use one of {', '.join(RULES)}")
    rule = rules[0]
    named = given.get("series", [])
    of = tuple([named] if isinstance(named, str) else named)
    if (
        not of
        or not set(of) <= set(series)
        or (len(of) > 1) < (rule in JOINT)
        or (len(of) > 1 and rule not in (*JOINT, *NUMBERED))
    ):
        raise UsageError(f"expect: series = {named!r}: use one of {', '.join(series)}; several for "
                         f"{', '.join(JOINT)}, and for the number of a quotient")  # fmt: skip
    x = str(given.get("x", EACH))
    if x not in (*xs, EACH, *OVER_X):
        raise UsageError(f"expect: x = {x!r}: use {', '.join((*xs, EACH, *OVER_X))}")
    among = tuple(map(str, given.get("among", ())))
    if among and (x not in (EACH, *OVER_X) or (x == EACH and rule in NUMBERED) or not set(among) <= set(xs)):
        raise UsageError(f"expect: among = {list(among)!r}: use names of x, for a rule along x or a number over x")
    paper, bound = given.get("paper"), given[rule]
    numbered = rule in NUMBERED or rule == "meet"
    if rule == "meet":
        _check_lines(of, xs)
    elif rule not in NUMBERED and x not in (EACH, MEAN) and (rule not in ("order", "level") or x in OVER_X):
        raise UsageError(f"expect: x = {x!r}: {rule} is a rule along x; leave x out")
    if numbered:
        if mark == "S":
            raise UsageError(f"expect: mark S knows the shape only, {rule} a number: use {', '.join(RULES[4:])}")
        if rule != "within":
            paper, bound = bound, 0.0
    elif isinstance(bound, bool):
        bound = 0.0
    if not _is_number(bound) or numbered != _is_number(paper):
        raise UsageError(
            f"expect: {rule} = {given[rule]!r}, paper = {paper!r}: they must be numbers, where they are given"
        )
    return Expect(of, x, mark, rule, float(bound), None if paper is None else float(paper), among)


def _check_lines(series: tuple[str, ...], xs: list[str]) -> None:
    """UsageError unless ``meet`` has two series and at least two x, all numbers above 0."""
    if len(series) != 2:
        raise UsageError(f"expect: meet is of two series, and not of {len(series)}")
    for x in xs:
        try:
            above = float(x) > 0
        except ValueError:
            above = False
        if not above:
            raise UsageError(f"expect: meet: at x = {x!r} there is no logarithm; use numbers above 0")
    if len(xs) < 2:
        raise UsageError("expect: meet: a line takes two x at least")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def merged(*tables: Mapping[str, Any]) -> Table:
    """The tables merged: of a key the last value; nested tables, such as options, are merged key by key."""
    out: Table = {}
    for table in tables:
        for key, value in table.items():
            both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
            out[key] = merged(out[key], value) if both else value
    return out
