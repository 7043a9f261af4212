"""``flashfs sweep``: every combination of what a file lists, replayed once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import options, show
from flashfs.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress

    from flashfs.replay.play import Setup
    from flashfs.replay.sweep import Listener


def command(
    spec: Annotated[
        Path, typer.Argument(metavar="SPEC", help="TOML: the flags of flashfs replay, each with a value or a list.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|FILE",
            help="Where results go: a folder, or a .parquet or .csv with one beside it. Default: SPEC without .toml.",
        ),
    ] = None,
    jobs: options.Jobs = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Replay on the workers of this Dask scheduler, as tcp://host:8786."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Replay every combination of what a file lists.

    Each result is written as it comes. Run the same command again after an interruption, and it continues. A
    combination that fails is reported, and stops no other; the exit code is 1 then.
    """
    from flashfs.replay import sweep
    from flashfs.replay.workers import Cluster, Processes

    if scheduler is not None and jobs is not None:
        raise UsageError("--jobs and --scheduler: use one of them; a cluster decides how many workers it has")
    options.check_exists(spec)
    if out is None and not spec.suffix:
        raise UsageError(f"{spec}: use --out DIR for a SPEC without .toml")
    setups = sweep.load(spec, show.warn)
    where = spec.with_suffix("") if out is None else out
    workers = Cluster(scheduler) if scheduler else Processes(jobs or len(os.sched_getaffinity(0)))
    with bars() as progress:
        report = sweep.run(setups, where, workers, listener(progress, setups))
    joined = sweep.Place.at(where).joined
    for name, error in report.failed:
        show.warn(f"{name}: {error}")
    if as_json:
        failed = [{"point": name, "error": error} for name, error in report.failed]
        replayed = report.total - report.before
        counts = {"points": report.total, "before": report.before, "replayed": replayed - len(failed)}
        show.result({"out": str(joined), **counts, "failed": failed}, as_json=True)
    else:
        show.line(f"{joined}: {summary(report)}")
    if report.failed:
        raise typer.Exit(1)


def summary(report: Any) -> str:
    """How it went, in one line."""
    done = report.total - len(report.failed)
    said = [f"{done:,} of {report.total:,} results"]
    if report.before:
        said.append(f"{report.before:,} of them from before")
    if report.failed:
        said.append(f"{len(report.failed):,} failed")
    return ", ".join(said)


def bars() -> Progress:
    """A bar for the sweep, and one for each point under way, on a terminal."""
    from rich import progress

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False), progress.BarColumn(bar_width=24),
        progress.MofNCompleteColumn(), progress.TimeElapsedColumn(), progress.TimeRemainingColumn(),
        console=show.console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip


def listener(progress: Progress, setups: list[Setup]) -> Listener:
    """Moves the bars."""
    from flashfs.replay import sweep
    from flashfs.text import printable

    names = {id(setup): printable(name) for setup, name in zip(setups, sweep.names(setups), strict=True)}
    tasks: dict[int, Any] = {}

    class Bars(sweep.Listener):
        failed = 0

        def begin(self, total: int, before: int) -> None:
            self.whole = progress.add_task("sweep", total=total, completed=before)

        def playing(self, setup: Setup, done: int, total: int | None) -> None:
            if id(setup) not in tasks:
                tasks[id(setup)] = progress.add_task(names[id(setup)], total=total)
            progress.update(tasks[id(setup)], completed=done, total=total)

        def end(self, setup: Setup, error: str | None) -> None:
            if id(setup) in tasks:
                progress.remove_task(tasks.pop(id(setup)))
            self.failed += error is not None
            said = f"sweep, {self.failed} failed" if self.failed else "sweep"
            progress.update(self.whole, advance=1, description=said)

    return Bars()
