"""``flashfs compare``: an FTL of one's own beside all that are kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import options, show, units
from flashfs.cli.plot import check_new
from flashfs.cli.sweep import bars, listener
from flashfs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashfs.comparison.kept import Row
    from flashfs.comparison.works import Work

#: (what it is called, the figure, digits after the point)
TABLES = (
    ("Write amplification", "waf", 3), ("Requests per second of virtual time", "iops", None),
    ("Bytes of the map", "map_bytes", None),
)  # fmt: skip


def command(
    ftl: Annotated[
        str, typer.Argument(metavar="FTL", help="A name (see flashfs ftls), or package.module:Class of your own.")
    ],
    opt: options.Opt = None,
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Only workloads whose names contain TEXT, as hotcold. Default: all six.",
                          show_default=False)
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a chart of all FTLs, too: a .svg, .pdf or .png.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --out: overwrite an existing FILE.")] = False,
    jobs: options.Jobs = None,
    as_json: options.Json = False,
) -> None:
    """Put an FTL beside those of flashfs.

    It is replayed on the workloads of the kept comparison, and gets what the others had: 1 GiB, filled, the same write
    buffer, stripe, wear levelling and reserve. Their results come with flashfs, so only FTL is replayed: seconds if it
    is compiled, about half a minute in Python.
    """
    from flashfs.comparison import beside, chart, kept, works
    from flashfs.replay import plots

    if out is not None and out.suffix not in plots.SUFFIXES:
        raise UsageError(f"--out {out}: use a name that ends in {', '.join(plots.SUFFIXES)}")
    if out is not None and not force:
        check_new([out])
    chosen = list(works.workloads(only))
    if not chosen:
        raise UsageError(f"--only {only}: no workload has that in its name; they are {', '.join(works.WORKLOADS)}")
    names = {one.name for one in chosen}
    rows = [row for row in kept.read() if row["source"] in names]
    given = units.pairs("--opt", opt or [])
    mine, failed = replayed(chosen, ftl, given, rows, jobs)
    if as_json:
        every = [{**row, "kept": row not in mine} for row in [*mine, *beside.published(rows)]]
        show.result(every, as_json=True)
    else:
        tables([*mine, *beside.published(rows)])
    for line in dict.fromkeys(line for row in mine for line in row["complaints"]):
        show.warn(line)
    for line in [] if given else beside.changed(mine, rows, ftl):
        show.warn(line)
    if out is not None and mine:
        plots.draw(chart.figure(rows, mine), out)
        if not as_json:
            show.line(f"{out}")
    for line in failed:
        show.warn(line)
    if failed:
        raise typer.Exit(1)


def replayed(
    chosen: Sequence[Work], ftl: str, given: dict[str, str], rows: Sequence[Row], jobs: int | None
) -> tuple[list[Row], list[str]]:
    """(what came out, in the order of the works; a line for each that failed)."""
    from flashfs.comparison import beside, kept
    from flashfs.replay.workers import Here, Processes, Workers

    setups = [beside.setup(work, ftl, given, rows) for work in chosen]
    column = beside.column(ftl, given, rows)
    wanted = min(len(setups), jobs or len(os.sched_getaffinity(0)))
    workers: Workers = Here() if wanted == 1 else Processes(wanted)
    made: dict[str, Row] = {}
    failed = []
    with bars() as progress:
        hears = listener(progress, setups)
        hears.begin(len(setups), 0)
        tasks = [(str(i), setup) for i, setup in enumerate(setups)]
        moved = lambda key, done, total: hears.playing(setups[int(key)], done, total)  # noqa: E731
        for outcome in workers.outcomes(tasks, moved):
            work, setup = chosen[int(outcome.key)], setups[int(outcome.key)]
            hears.end(setup, outcome.error)
            if outcome.result is None:
                failed.append(f"{ftl} on {work.name}: {outcome.error}")
            else:
                made[outcome.key] = kept.row(work, beside.STATE, column, setup.ground, outcome.result)
    return [made[key] for key, _ in tasks if key in made], failed


def tables(rows: Sequence[Row]) -> None:
    """One for each figure: an FTL in each row, a workload in each column."""
    from flashfs.comparison.works import short

    columns = dict.fromkeys(row["column"] for row in rows)
    for title, figure, digits in TABLES:
        shown = []
        for column in columns:
            cells: dict[str, Any] = {"FTL": column}
            for row in rows:
                if row["column"] == column:
                    value = row[figure]
                    cells[short(row["source"])] = value if value is None else round(value, digits)
            shown.append(cells)
        show.rows(shown, title=title)
