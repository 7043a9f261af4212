"""``flashfs.replay(...)`` and ``flashfs.sweep(...)``: replays from Python, results as data frames.

Keywords are called as the flags of the commands are, and take what those take: ``size="64M"``, ``fit="pack"``. Each may
be a list, and every combination is replayed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from flashfs.errors import FlashfsError, UsageError

if TYPE_CHECKING:
    import polars

    from flashfs.replay.workers import Workers

T = TypeVar("T")
Some: TypeAlias = T | Sequence[T]  #: a value, or several


def replay(
    source: Some[str],
    *,
    ftl: Some[str | type] | None = None,
    opt: Mapping[Any, Any] | None = None,
    preset: Some[str] | None = None,
    size: Some[str | int] | None = None,
    page_size: Some[str | int] | None = None,
    pages_per_block: Some[int] | None = None,
    channels: Some[int] | None = None,
    dies: Some[int] | None = None,
    oob: Some[int] | None = None,
    op: Some[float] | None = None,
    backend: Some[str] | None = None,
    dram: Some[str | int | None] = None,
    qd: Some[int | None] = None,
    image: Some[str] | None = None,
    plp: Some[bool] | None = None,
    precondition: Some[str] | None = None,
    before: Some[str | Sequence[str]] | None = None,
    warm: Some[str | Sequence[str]] | None = None,
    prepared: str | None = None,
    seed: Some[int] | None = None,
    format: Some[str] | None = None,
    columns: Some[str] | None = None,
    shift: Some[str | int] | None = None,
    fit: Some[str] | None = None,
    pack: Some[str | int] | None = None,
    speedup: Some[float | str] | None = None,
    loops: Some[int] | None = None,
    first: Some[str | int] | None = None,
    unit: Some[str] | None = None,
    event: Some[str] | None = None,
    sort: Some[bool] | None = None,
    jobs: int = 1,
    out: str | Path | None = None,
) -> polars.DataFrame:
    """Replay traces and workloads on every FTL named; a row for each, in the order of the arguments.

    ``ftl`` is a name, or a class of your own (docs/python-ftl.md), also one that is only in a notebook.
    ``opt``: options for every FTL that knows them; those for one FTL go into a dict under its name:
    ``{"buffer": 64, "slimftl": {"shift": [0, 8]}}``.
    With ``image``, give ``ftl`` only if the image's FTL is a ``package.module:Class``: naming it here imports it.
    ``before``: a source that is played first and not counted, or ``[["one", "and another"]]`` for two in a row; a list
    of texts is, as everywhere, several values. ``warm``: the same, played after the mount that follows ``before``.
    ``seed``: of the workloads. ``jobs``: more than 1 replays in that many processes. ``out``: also append the rows to
    this .parquet or .csv.
    Raises UsageError for an invalid argument, FlashfsError for the first replay that fails.
    """
    named = {name: value for name, value in locals().items() if name not in ("jobs", "out") and value is not None}
    from flashfs.replay import grid, results, sweep
    from flashfs.replay.play import mostly_lost
    from flashfs.replay.workers import Here, Processes

    if out is not None:
        results.check_name(Path(out))
    told: list[str] = []
    setups = grid.expand(named, tell=told.append)
    for line in told:
        warnings.warn(line, stacklevel=3)  # the caller of the package
    workers: Workers = Here() if jobs == 1 else Processes(jobs)
    rows: dict[str, dict[str, Any]] = {}
    tasks = [(str(number), setup) for number, setup in enumerate(setups)]
    for outcome in workers.outcomes(tasks, lambda key, done, total: None):
        if outcome.result is None:
            name = sweep.names(setups)[int(outcome.key)]
            raise FlashfsError(f"{name}: {outcome.error}")
        if (lost := mostly_lost(outcome.result)) is not None:
            warnings.warn(lost, stacklevel=3)
        rows[outcome.key] = results.row(outcome.result)
    ordered = [rows[key] for key, _ in tasks]
    if out is not None:
        results.write(Path(out), ordered)
    return results.frame(ordered)


def sweep(
    spec: str | Path | Mapping[str, Any], out: str | Path | None = None, *, jobs: int | None = None,
    scheduler: str | None = None,
) -> polars.DataFrame:  # fmt: skip
    """Replay every combination of the values that ``spec``, a TOML file or a table like it, lists. Results of earlier
    runs are read and not replayed. Returns all rows; ``error`` in a row says why that replay failed. The arguments are
    those of ``flashfs sweep``."""
    from flashfs.replay import grid, results, sweep
    from flashfs.replay.workers import Cluster, Processes

    told: list[str] = []
    if isinstance(spec, Mapping):
        setups = grid.expand(spec, tell=told.append)
        if out is None:
            raise UsageError("out: use a folder for the results")
    else:
        setups = sweep.load(Path(spec), told.append)
    for line in told:
        warnings.warn(line, stacklevel=2)
    where = Path(out) if out is not None else Path(str(spec)).with_suffix("")
    workers = Cluster(scheduler) if scheduler else Processes(jobs or len(os.sched_getaffinity(0)))
    return results.frame(sweep.run(setups, where, workers).rows)
