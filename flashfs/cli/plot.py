"""``flashfs plot``: pictures of results, fit for a paper."""

from __future__ import annotations

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
        typer.Option("--x", metavar="NAME", help="What the axis shows: source, dram, qd, or the name of an option."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Only results that have this, as source=... or dram=64M; may be repeated."
        ),
    ] = None,
    width: Annotated[
        float | None, typer.Option(min=1.0, max=40.0, metavar="INCHES", help="Default: 3.33, a column, or 7, a page.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the pictures, and draw none.")] = False,
    as_json: options.Json = False,
) -> None:
    """Draw results of replays and sweeps.

    Mapping sizes, write amplification, latencies, hit ratios, cleaning over time. --json also prints the numbers that
    are drawn.
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
    kept = units.pairs("--where", where or [])
    kinds_wanted = what.split(",") if what else plots.available(table, kept)
    name = out or Path(results[0].name or "results").with_suffix(".svg")
    if name.suffix not in plots.SUFFIXES:
        raise UsageError(f"--out {name}: use a name that ends in {', '.join(plots.SUFFIXES)}")
    drawn = []
    for kind in kinds_wanted:
        file = name if len(kinds_wanted) == 1 and out else name.with_stem(f"{name.stem}-{kind.replace(':', '-')}")
        relative = baseline if what or kind not in plots.KINDS or plots.KINDS[kind].relative else None
        try:
            drawn.append(picture(table, kind, file, x if what else None, relative, kept, width))
        except UsageError as error:  # one of all the pictures that there are is no reason not to see the others
            if what:
                raise
            show.warn(str(error))
    if as_json:
        return show.result(drawn, as_json=True)
    for one in drawn:
        show.line(one["file"])
    return None


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
