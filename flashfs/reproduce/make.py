"""Makes a figure: replays its points as a sweep, or computes them, and writes its table, picture and results.

The sweep keys each result by what produced it, so a second run, or another figure with the same points, only reads.
The output depends only on figure, scale, traces and program: wall times of replays are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import flashfs
from flashfs import formulas
from flashfs.errors import FlashfsError, UsageError
from flashfs.formulas import recovery
from flashfs.replay import grid, results, sweep
from flashfs.reproduce import picture, records, verdict
from flashfs.reproduce.figure import FORMULAS, MEASURED, RECORDS, Figure, Point, Table, merged
from flashfs.reproduce.records import Recorded
from flashfs.reproduce.verdict import Line

if TYPE_CHECKING:
    from flashfs.replay.play import Setup
    from flashfs.replay.workers import Workers

KEPT = Path(__file__).with_name("results")  #: the stored results of figures
RECORDINGS = Path(flashfs.__file__).parents[1] / "examples" / "traces"  #: in a source tree
WALL = ("wall_s", "pages_per_s")  #: columns that differ from run to run
DIGITS = 9  #: significant digits of a value
GECKO_PART = 32  #: pages of a block that an entry of geckoftl covers, unless its option ``parts`` is set
#: options that must be the same for all series, unless the figure compares them
EQUAL = ("buffer", "stripe", "wear_spread", "gc_reserve")

Row = dict[str, Any]
Listen: TypeAlias = "Callable[[list[Setup]], sweep.Listener]"


@dataclass(frozen=True)
class Cell:
    """A point of a figure, and the Setup that is replayed for it."""

    series: Point
    x: Point
    setup: Setup

    def said(self) -> dict[str, str]:
        """{setting: value} of everything that is not a replay's default."""
        return _said(self.setup)


@dataclass(frozen=True)
class Computed:
    """A point of a figure of formulas."""

    series: Point
    x: Point
    ftl: str
    chip: formulas.Chip

    def said(self) -> dict[str, str]:
        """{parameter: value} of the device where it differs from the default Chip."""
        default = formulas.Chip()
        return {one.name: str(getattr(self.chip, one.name)) for one in fields(formulas.Chip)
                if getattr(self.chip, one.name) != getattr(default, one.name)}  # fmt: skip


Points: TypeAlias = "Sequence[Cell | Computed | Recorded]"


@dataclass(frozen=True)
class Made:
    """A figure with its numbers."""

    figure: Figure
    scale: str
    lines: list[Line]
    options: dict[str, str]
    complaints: list[str]
    failed: list[str]
    lost: list[Line]
    files: dict[str, str]

    def plain(self) -> dict[str, Any]:
        """The table for JSON; equal results give equal bytes."""
        figure = self.figure
        return {
            "paper": figure.paper, "figure": figure.number, "title": figure.title, "source": figure.source,
            "scale": self.scale, "scaled": figure.says[self.scale], "substitute": figure.substitute,
            "value": figure.value.text, "summary": verdict.summary(self.lines),
            "rows": [_shown(one, figure.substitute) for one in self.lines], "options": self.options,
            "complaints": self.complaints, "failed": self.failed, "lost": [one.key for one in self.lost],
        }  # fmt: skip


def _shown(line: Line, substitute: str) -> dict[str, Any]:
    kept = {name: value for name, value in asdict(line).items() if name not in ("met", "rule")}
    kept |= {"ours": _rounded(line.ours), "ratio": _rounded(line.ratio)}
    return {**kept, "met": line.met, "key": line.key, "substitute": bool(substitute)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def waits(ftl: str) -> str:
    """Why a scheme cannot be replayed yet; empty if it can."""
    from flashfs.ftl import SCHEMES, installed

    return "" if ftl in SCHEMES or ":" in ftl or ftl in installed() else f"waits for {ftl}"


def cells(
    figure: Figure, scale: str, ftls: Sequence[str] | None, traces: Path | None, tell: grid.Tell
) -> tuple[list[Cell], dict[str, str]]:
    """(all points that can be replayed, why those of other series cannot). UsageError names the figure."""
    _check_ftls(figure, ftls)
    out: list[Cell] = []
    why_not: dict[str, str] = {}
    for series in figure.series:
        ftl = str(series.sweep["ftl"])
        if why := waits(ftl):
            why_not[series.name] = why
        if why or (ftls is not None and ftl not in ftls and series.name != figure.baseline):
            continue
        for x in figure.xs:
            found = _sources(x, traces)
            if found is None:
                tell(f"{figure.name}: {x.name} needs --traces DIR with {x.trace}")
                continue
            try:
                out.append(Cell(series, x, _setup(figure, scale, series, x, found, tell)))
            except UsageError as error:
                raise UsageError(f"{figure.name}: {series.name}, {x.name}: {error}") from None
    return out, why_not


def computed(figure: Figure, scale: str, ftls: Sequence[str] | None) -> list[Computed]:
    """All points of a figure of formulas. UsageError names the figure."""
    _check_ftls(figure, ftls)
    out = []
    for series in figure.series:
        for x in figure.xs:
            table = merged(
                figure.all, figure.scales[scale], series.sweep, series.scales[scale], x.sweep, x.scales[scale]
            )
            ftl = str(table.pop("ftl"))
            try:
                if ftl not in formulas.FTLS:
                    raise UsageError(f"ftl = {ftl!r}: use {', '.join(formulas.FTLS)}")
                if ftls is None or ftl in ftls or series.name == figure.baseline:
                    out.append(Computed(series, x, ftl, formulas.Chip(**table)))
            except UsageError as error:
                raise UsageError(f"{figure.name}: {series.name}, {x.name}: {error}") from None
    return out


def _check_ftls(figure: Figure, ftls: Sequence[str] | None) -> None:
    if ftls is not None and (unknown := [name for name in ftls if name not in figure.ftls]):
        raise UsageError(f"--ftl {','.join(unknown)}: {figure.name} has {', '.join(figure.ftls)}")


def _sources(x: Point, traces: Path | None) -> Table | None:
    """The trace of a point as a key of a sweep: from the folder --traces, else from RECORDINGS; None if neither has
    it."""
    if x.trace is None:
        return {}
    found = [path for folder in (traces, RECORDINGS) if folder is not None for path in sorted(folder.glob(x.trace))]
    return {"source": str(found[0])} if found else None


def _setup(figure: Figure, scale: str, series: Point, x: Point, source: Table, tell: grid.Tell) -> Setup:
    table = merged(
        figure.all, figure.scales[scale], series.sweep, series.scales[scale], x.sweep, x.scales[scale], source
    )
    table[grid.OPTIONS] = _options(figure, table)
    made = grid.expand(table, folder=figure.file.parent, tell=tell)
    if len(made) != 1:
        raise UsageError(f"{len(made)} points: use one; lists are for [[series]] and [[at]]")
    return made[0]


def _options(figure: Figure, table: Table) -> Table:
    """The options that this FTL knows, as FTLs of other series may have other ones. UsageError if no FTL knows one."""
    from flashfs.ftl import scheme

    ftl = str(table["ftl"])
    known = {name: {one.name for one in scheme(name).all_options()} for name in figure.ftls if not waits(name)}
    out: Table = {}
    for name, value in table.get(grid.OPTIONS, {}).items():
        if isinstance(value, Mapping):
            if name not in figure.ftls:
                raise UsageError(f"opt.{name}: use {', '.join(figure.ftls)}")
            if name == ftl:
                out |= value
        elif name in known[ftl]:
            out[name] = value
        elif not any(name in names for names in known.values()):
            raise UsageError(f"opt.{name}: none of {', '.join(known)} has it")
    return out


def make(
    figure: Figure, scale: str, out: Path, workers: Workers, *, ftls: Sequence[str] | None = None,
    traces: Path | None = None, listen: Listen | None = None, tell: grid.Tell = lambda line: None,
) -> Made:  # fmt: skip
    """Replay what has no result yet, and write table, picture and results into the folder ``out``. ``listen`` makes the
    sweep's Listener from the points."""
    _check_ftls(figure, ftls)  # before there is a folder
    out.mkdir(parents=True, exist_ok=True)
    every: Points
    why_not: dict[str, str] = {}
    failed: list[str] = []
    complaints: list[str] = []
    if figure.of == FORMULAS:
        every = computed(figure, scale, ftls)
        rows = {at: formulas.row(cell.ftl, cell.chip) for at, cell in enumerate(every)}
    elif figure.of == RECORDS:
        _check_ftls(figure, ftls)
        every, complaints = records.of(figure, scale, ftls, tell)
        rows = {at: one.row for at, one in enumerate(every)}
    else:
        every, why_not = cells(figure, scale, ftls, traces, tell)
        if not every and not why_not:
            raise UsageError(f"{figure.name}: nothing to replay; use --traces DIR")
        rows, failed = _measured(figure.of, every, out, workers, listen)
        complaints = [*unequal(every, figure.compares), *unplayed(every, rows)]
    values = _values(figure, every, rows)
    made = verdict.lines(figure, values, why_not)
    files = {"table": out / f"{figure.name}.json", "results": out / f"{figure.name}.parquet"}
    drawn = picture.of(figure, made, values)
    if drawn is not None:
        files["picture"] = out / f"{figure.name}.svg"
        picture.draw(drawn, files["picture"])
    if rows:
        results.write(files["results"], list(_distinct(every, rows)), append=False)
    else:
        del files["results"]
    done = Made(
        figure, scale, made, options(every), complaints, failed,
        [one for one in verdict.lost(kept(figure, scale), made) if one.key not in figure.lost],
        {name: str(path) for name, path in files.items()},
    )  # fmt: skip
    with results.replacing(files["table"]) as draft:
        draft.write_text(json.dumps(done.plain(), indent=1) + "\n")
    return done


def _measured(
    of: str, every: Sequence[Cell], out: Path, workers: Workers, listen: Listen | None
) -> tuple[dict[int, Row], list[str]]:
    """(the result of each cell that has one, why others have none). Each kind of measurement has its own folder, as one
    setup may be measured in several ways."""
    if not every:
        return {}, []
    setups = [one.setup for one in every]
    folder = out / "sweep"
    if of != "replays":
        folder, workers = out / of, copy(workers)
        workers.player = MEASURED[of]
    report = sweep.run(setups, folder, workers, None if listen is None else listen(setups))
    found = {row["key"]: row for row in report.rows if row.get("error") is None}
    if of == "recoveries":
        found = {key: {**row, **beside_formulas(row)} for key, row in found.items()}
    rows = {at: found[key] for at, key in enumerate(grid.keys(setups)) if key in found}
    return rows, [f"{name}: {error}" for name, error in report.failed]


def beside_formulas(row: Row) -> Row:
    """The figures that flashfs.formulas gives for the device that was recovered, and the duration of each recovery in
    seconds, its operations one after another as in the formulas: ``recovered.seconds_by_cut``. Empty for a scheme
    without formulas."""
    if row["ftl"] not in formulas.FTLS or "scheme.entries" not in row:
        return {}
    shape = {name: row[f"config.geometry.{name}"] for name in ("page_bytes", "pages_per_block", "blocks", "lpas")}
    pages = shape["blocks"] * shape["pages_per_block"]
    entry = formulas.Chip().entry_bytes
    chip = formulas.Chip(
        capacity=pages * shape["page_bytes"], page_bytes=shape["page_bytes"], pages_per_block=shape["pages_per_block"],
        ratio=shape["lpas"] / pages, cache_bytes=entry * row["scheme.entries"],
        parts=row.get("config.options.parts") or max(1, shape["pages_per_block"] // GECKO_PART),
        size_ratio=row.get("config.options.ratio") or 2,
    )  # fmt: skip
    every = zip(*(row[f"recovered.all.{name}_by_cut"] for name in ("spare_reads", "reads", "programs")), strict=True)
    seconds = [recovery.Step("all", "", *took).seconds(chip) for took in every]
    model = formulas.row(row["ftl"], chip)
    return {**{name: value for name, value in model.items() if name not in row}, "recovered.seconds_by_cut": seconds}


def _distinct(every: Points, rows: Mapping[int, Row]) -> list[Row]:
    """A row for each cell, with its series and x, without what differs from run to run."""
    return [
        {"series": every[at].series.name, "at": every[at].x.name, **{k: v for k, v in row.items() if k not in WALL}}
        for at, row in rows.items()
    ]


def _values(figure: Figure, every: Points, rows: Mapping[int, Row]) -> dict[tuple[str, str], float | None]:
    base = {every[at].x.name: row for at, row in rows.items() if every[at].series.name == figure.baseline}
    out: dict[tuple[str, str], float | None] = {}
    for at, cell in enumerate(every):
        value = cell.x.value or cell.series.value or figure.value
        row = rows.get(at)
        found = None if row is None else value(row, base.get(cell.x.name))
        out[cell.series.name, cell.x.name] = _rounded(found)
    return out


# --- notes to the table


def options(every: Points) -> dict[str, str]:
    """{group: its settings} that are not a replay's defaults: first those that all points share, then what each series
    and each x adds, then what a single point adds."""
    groups: dict[str, list[Cell | Computed | Recorded]] = {"all": list(every)} if every else {}
    for cell in every:
        groups.setdefault(cell.series.name, []).append(cell)
    for cell in every:
        groups.setdefault(f"at {cell.x.name}", []).append(cell)
    for cell in every:
        groups.setdefault(f"{cell.series.name} at {cell.x.name}", []).append(cell)
    said = {id(cell): set(cell.said().items()) for cell in every}
    out = {}
    told: dict[int, set[tuple[str, str]]] = {id(cell): set() for cell in every}
    for name, some in groups.items():
        new = set.intersection(*(said[id(cell)] - told[id(cell)] for cell in some))
        for cell in some:
            told[id(cell)] |= new
        if new:
            out[name] = _text(new)
    return out


def _text(pairs: set[tuple[str, str]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(pairs))


def _said(setup: Setup) -> dict[str, str]:
    from flashfs.ftl import scheme

    default = {one.name: one.default for one in scheme(setup.ftl).all_options()}
    chosen = scheme(setup.ftl).resolve(setup.options)
    out = {name: str(value) for name, value in chosen.items() if value != default[name]}
    geometry = setup.geometry
    out |= {"host": str(geometry.logical_bytes), "dies": str(geometry.dies), "page": str(geometry.page_bytes),
            "source": setup.source if setup.trace is None else Path(setup.source).name}  # fmt: skip
    for name in ("dram", "qd", "precondition"):
        if getattr(setup, name) is not None:
            out[name] = str(getattr(setup, name))
    for name in ("before", "warm"):
        if getattr(setup, name):
            out[name] = " and ".join(getattr(setup, name))
    return out


def judged(figure: Figure, scale: str) -> dict[str, Any] | None:
    """The stored table of a figure with the verdicts of today's expectations; None if there is none. Its numbers stay.
    What held in an older version and has a reason in the figure is no longer listed as lost."""
    found = kept_file(figure, scale)
    if found is None:
        return None
    names = {(one.name, x.name) for one in figure.series for x in figure.xs}
    values = {(row["series"], row["x"]): row["ours"] for row in found["rows"] if (row["series"], row["x"]) in names}
    why_not = {one.name: why for one in figure.series if (why := waits(str(one.sweep["ftl"])))}
    made = verdict.lines(figure, values, why_not if figure.of in MEASURED else {})
    lost = {*found["lost"], *(one.key for one in verdict.lost(kept(figure, scale), made))} - set(figure.lost)
    keys = {one.key for one in made if one.met is False}
    return {
        **found, "title": figure.title, "source": figure.source, "substitute": figure.substitute,
        "summary": verdict.summary(made), "rows": [_shown(one, figure.substitute) for one in made],
        "lost": sorted(lost & keys),
    }  # fmt: skip


def unequal(every: Sequence[Cell], compares: Sequence[str] = ()) -> list[str]:
    """A line for each setting in which series of one x differ, except those that the figure compares."""
    from flashfs.ftl import scheme

    out: dict[str, None] = {}
    for x in dict.fromkeys(cell.x.name for cell in every):
        mine = [cell for cell in every if cell.x.name == x]
        grounds = []
        for cell in mine:
            chosen = scheme(cell.setup.ftl).resolve(cell.setup.options)
            ground = {name: str(chosen[name]) for name in EQUAL if name in chosen}
            grounds.append({**ground, "dram": str(cell.setup.dram), "geometry": str(cell.setup.geometry.as_dict())})
        for name in dict.fromkeys(name for ground in grounds for name in ground if name not in compares):
            groups: dict[str, list[str]] = {}
            for cell, ground in zip(mine, grounds, strict=True):
                if name in ground:
                    groups.setdefault(ground[name], []).append(cell.series.name)
            if len(groups) > 1:
                out["; ".join(f"{name} {value}: {', '.join(of)}" for value, of in groups.items())] = None
    return list(out)


def unplayed(every: Sequence[Cell], rows: Mapping[int, Row]) -> list[str]:
    """The replays' complaints about rejected or adjusted requests: a line for each trace and reason."""
    out: dict[str, None] = {}
    for at, row in rows.items():
        for line in json.loads(row.get("complaints") or "[]"):
            source = every[at].setup.source
            out[f"{every[at].x.name}: {str(line).removeprefix(f'{source}: ')}"] = None
    return list(out)


def kept(figure: Figure, scale: str) -> dict[str, bool | None]:
    """{key of a line: whether it was met} in the stored results of a figure; empty if it has none at this scale."""
    found = kept_file(figure, scale)
    if found is None or found.get("scale") != scale:
        return {}
    out: dict[str, bool | None] = {}
    for row in found["rows"]:  # of two lines with one key, both must be met
        out[row["key"]] = row["met"] if out.get(row["key"], True) else False
    return out


def kept_name(figure: Figure, scale: str) -> str:
    return f"{figure.name}.json" if scale == "small" else f"{figure.name}.{scale}.json"


def kept_file(figure: Figure, scale: str = "small") -> dict[str, Any] | None:
    """The stored table of a figure, from ``results`` beside the figure's folder; None if there is none."""
    path = figure.file.parent.with_name("results") / kept_name(figure, scale)
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise FlashfsError(f"{path}: no table that `flashfs reproduce --out` wrote; without it there is none") from None
