"""Replays, pictures and traces for notebooks: short data frames, and pictures that a notebook shows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashfs.errors import UsageError
from flashfs.replay import grid

if TYPE_CHECKING:
    import polars

    from flashfs.replay.plots import Picture

MOVED = "nand.by_cause.program.gc"  #: a column that is there only if something was moved
#: columns of a comparison: (name, the column of a result)
SHORT = (
    ("ftl", "ftl"),
    ("source", "source"),
    ("waf", "waf"),
    ("programs", "nand.program"),
    ("reads", "nand.read"),
    ("erases", "nand.erase"),
    ("moved_pages", MOVED),
    ("map_bytes", "map_bytes"),
    ("dram_bytes", "dram.total"),
    ("hit_ratio", "cache.hit_ratio"),
    ("read_p99_us", "latency_us.read.p99"),
    ("write_p99_us", "latency_us.write.p99"),
    ("iops", "iops"),
)
CONFIG = "config."
#: columns of a result's configuration that follow from the source or the FTL, which have columns of their own
FOLLOWS = ("config.ftl", "config.version", "config.code", "config.source", "config.seed")


def compare(
    source: str | Sequence[str] | polars.DataFrame, ftl: str | type | Sequence[str | type] | None = None, *,
    full: bool = False, **keywords: Any,
) -> polars.DataFrame:  # fmt: skip
    """FTLs side by side on the same work: a row for each, a dozen columns, and one for each setting that has several
    values.

        flashfs.compare("zipf:ops=100k", ["pagemap", "slimftl"], size="64M", precondition="fill")

    Keywords are those of ``flashfs.replay``. ``full`` gives every column, as that does. A data frame that
    ``flashfs.replay`` or ``compare(full=True)`` returned is only shortened: nothing is replayed.
    """
    if hasattr(source, "columns"):
        if ftl is not None or keywords:
            raise UsageError("a table of results is compared as it is: leave ftl and other keywords out")
        table: Any = source
        if not {"ftl", "source"} <= set(table.columns):
            raise UsageError("a table without the columns ftl and source: use what flashfs.replay returned")
    else:
        from flashfs.replay.api import replay

        table = replay(source, ftl=ftl, **keywords)
    return table if full else _short(table)


def _short(table: polars.DataFrame) -> polars.DataFrame:
    """The columns of SHORT, and the settings that differ between rows of one FTL and source. A figure that no row has
    is left out."""
    import polars as pl

    keys = ["ftl", "source"]
    varied = []
    for name in table.columns:
        chosen = name.startswith(CONFIG) and not name.startswith(FOLLOWS)
        if chosen and any(count > 1 for count in table.group_by(keys).agg(pl.col(name).n_unique())[name]):
            varied.append(name)
    if MOVED not in table.columns:
        table = table.with_columns(pl.lit(0).alias(MOVED))
    there = [(name, column) for name, column in SHORT if column in table.columns]
    figures = [pl.col(column).alias(name) for name, column in there if table.schema[column] != pl.Null]
    return table.select(*figures[:2], *(pl.col(name).alias(name.removeprefix(CONFIG)) for name in varied), *figures[2:])


def plot(
    results: polars.DataFrame | str | Path | Sequence[str | Path], what: str | None = None, *, x: str | None = None,
    baseline: str | None = None, where: Mapping[str, str] | None = None, out: str | Path | None = None,
    width: float | None = None,
) -> Picture:  # fmt: skip
    """One picture of results: what ``flashfs.replay`` or ``sweep`` returned, or the files and folders that they wrote.

    ``what`` is a kind (waf, latency, hits, ...; `flashfs plot --list`), a column of numbers, or ``cdf:`` and a column
    of counts; ``x`` what is along the axis (a key of a sweep, or an option), ``baseline`` the FTL whose values are 1,
    ``where`` keeps rows that have these values. A notebook shows what it returns; its ``left_out`` says what is not in
    it. ``out`` (.svg, .pdf, .png) is where to draw it too, ``width`` in inches. UsageError for what is not in the
    results.
    """
    from flashfs.replay import plots
    from flashfs.replay import results as files

    if isinstance(results, str | Path):
        results = [results]
    table: Any = results if hasattr(results, "columns") else files.read(results)
    kept = {name: str(value) for name, value in (where or {}).items()}
    if what is None:
        raise UsageError(f"what: use {', '.join(plots.available(table, kept))}, of these results")
    picture = plots.figure(table, what, x=x, baseline=baseline, where=kept)
    picture.width_inches = width
    if out is not None:
        picture.save(out)
    return picture


def read_trace(
    source: str | Path,
    *,
    size: str | int | None = None,
    page_size: str | int | None = None,
    format: str | None = None,
    columns: str | None = None,
    shift: str | int | None = None,
    fit: str | None = None,
    pack: str | int | None = None,
    speedup: float | str | None = None,
    loops: int | None = None,
    first: str | int | None = None,
    unit: str | None = None,
    event: str | None = None,
    sort: bool | None = None,
) -> polars.DataFrame:
    """The requests of a trace, in any format that `flashfs trace formats` lists, or of a workload: columns ``time_ns``
    (since the first), ``op`` (read, write, trim, flush, remap), ``offset`` and ``length`` in bytes; of a source with
    remaps also ``from_offset`` and ``move``.

    Keywords are the flags of `flashfs trace info`. Lines that cannot be read are a warning. TraceError for a file that
    cannot be read at all.
    """
    from flashfs.replay.open_source import open_source
    from flashfs.replay.traces import named_by
    from flashfs.replay.workloads import is_workload
    from flashfs.sizing.defaults import DEVICE_BYTES

    asked = {"shift": shift, "fit": fit, "pack": pack, "speedup": speedup, "loops": loops, "first": first,
             "unit": unit, "event": event, "sort": sort}  # fmt: skip
    read = grid.read({"size": size, "page_size": page_size})
    given = grid.read(asked)
    options = None if is_workload(str(source)) and not given else grid.trace_options(given)
    if options is not None and options.utilisation is not None:
        raise UsageError(f"speedup = {speedup!r}: only a replay finds that factor; name one")
    found = open_source(
        str(source), read.get("size", DEVICE_BYTES), page_bytes=read.get("page_size", 4096), options=options,
        format=named_by(format, columns), fitted=size is not None,
    )  # fmt: skip
    table = _requests(found)
    for line in found.complaints():
        warnings.warn(line, stacklevel=2)
    return table


def _requests(source: Any) -> polars.DataFrame:
    import numpy as np
    import polars as pl

    from flashfs.replay.request_source import MOVED, OPERATIONS, REMAP, Batch

    batch = Batch.join([Batch.empty(), *source.batches()])
    table = pl.DataFrame({
        "time_ns": batch.time_ns,
        "op": pl.Series(np.array(OPERATIONS)[batch.op], dtype=pl.Enum(OPERATIONS)),
        "offset": batch.offset,
        "length": batch.length,
    })
    if batch.source is None:
        return table
    remaps = pl.Series(batch.op == REMAP)
    return table.with_columns(
        from_offset=pl.when(remaps).then(pl.Series(batch.source & ~MOVED)),
        move=pl.when(remaps).then(pl.Series(batch.source & MOVED != 0)),
    )
