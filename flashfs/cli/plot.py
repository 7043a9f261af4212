"""``flashfs plot``: pictures of results, fit for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import options, show, units
from flashfs.errors import UsageError

if TYPE_CHECKING:
    import polars


def command(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULTS...", help="What `flashfs replay --out` or --json wrote, or the folder of a sweep."
        ),
    ] = None,
    what: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,...",
            help="Pictures (see --list); a column of numbers, as latency_us.read.p99; or a column of counts, as "
            "scheme.groups_by_levels, for their distribution. Default: every picture that the results have.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A .svg, .pdf or .png file. The name of each of several pictures gets its kind. Default: RESULTS.svg.",
        ),
    ] = None,
    baseline: Annotated[str | None, typer.Option(metavar="FTL", help="Show multiples of this FTL's values.")] = None,
    x: Annotated[
        str | None,
        typer.Option(
            "--x", metavar="NAME", help="Along the axis: a key of a sweep, as op, dram, ftl or source, or an option."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only results that have this, as op=0.15 or dram=64M; repeatable."),
    ] = None,
    width: Annotated[
        float | None, typer.Option(min=1.0, max=40.0, metavar="INCHES", help="Default: 3.33, a column, or 7, a page.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the pictures, and draw none.")] = False,
    as_json: options.Json = False,
) -> None:
    """Draw results of replays and sweeps.

    Mapping sizes, write amplification, wear, latencies, hit ratios, cleaning over time. Of several pictures those are
    drawn that can be; the others are named on stderr, and the exit code is 1. --json also prints the numbers that are
    drawn.
    """
    from flashfs.replay import plots
    from flashfs.replay import results as files

    if listing:
        kinds = [{"kind": one.name, "shows": one.about} for one in plots.KINDS.values()]
        return show.result(kinds, as_json=as_json)
    if not results:
        raise UsageError("which results? Name a file that `flashfs replay --out` wrote, or the folder of a sweep")
    options.check_exists(*results)
    table = files.read(results)
    kept = units.pairs("--where", where or [], "flashfs plot --help")
    there = plots.available(table, kept, x=x, baseline=baseline)
    name = out or Path(results[0].name or "results").with_suffix(".svg")
    if name.suffix not in plots.SUFFIXES:
        raise UsageError(f"--out {name}: use a name that ends in {', '.join(plots.SUFFIXES)}")
    chosen = what.split(",") if what else there
    several = not what or "," in what or not out
    targets = [name.with_stem(f"{name.stem}-{kind.replace(':', '-')}") if several else name for kind in chosen]
    if not force:
        check_new(targets)
    drawn, failed = [], []
    for kind, file in zip(chosen, targets, strict=True):
        known = None if what else plots.KINDS[kind]  # what was asked for has to be possible, or it is told
        along, relative = (x, baseline) if known is None else (x and known.along, baseline and known.relative)
        try:
            drawn.append(picture(table, kind, file, x if along else None, baseline if relative else None, kept, width))
        except UsageError as error:  # one picture that cannot be is no reason not to see the others
            failed.append(error)
    if len(failed) == 1 and what and "," not in what:
        raise failed[0]
    told(drawn, failed, as_json)
    return None


def check_new(targets: Sequence[Path]) -> None:
    """UsageError, before anything is drawn, if one of these files is there."""
    for one in targets:
        if one.exists():
            raise UsageError(f"{one}: exists already; use another --out, or --force to overwrite it")


def told(drawn: list[dict[str, Any]], failed: list[UsageError], as_json: bool) -> None:
    """What was drawn, what is not in it, and what could not be drawn."""
    if as_json:
        show.result(drawn, as_json=True)
    for one in drawn:
        if not as_json:
            show.line(one["file"])
    without: dict[str, list[str]] = {}
    for one in drawn:
        for line in one["left_out"]:
            without.setdefault(line, []).append(one["file"])
    for line, names in without.items():
        show.warn(f"{'each picture' if len(names) == len(drawn) > 1 else ', '.join(names)}: not in it: {line}")
    for line in dict.fromkeys(str(error) for error in failed):
        show.warn(line)
    if failed:
        raise typer.Exit(1)


def picture(
    table: polars.DataFrame, kind: str, file: Path, x: str | None, baseline: str | None, where: dict[str, str],
    width: float | None,
) -> dict[str, Any]:  # fmt: skip
    """Draw one; what is in it."""
    from flashfs.replay import plots

    figure = plots.figure(table, kind, x=x, baseline=baseline, where=where)
    with show.working(f"drawing {file}"):
        plots.draw(figure, file, width_inches=width)
    return {"file": str(file), **asdict(figure)}
