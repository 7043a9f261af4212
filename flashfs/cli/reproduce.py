"""``flashfs reproduce``: a paper's figure, made again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashfs.cli import complete, options, show
from flashfs.cli.sweep import bars, listener
from flashfs.errors import UsageError
from flashfs.text import meant

if TYPE_CHECKING:
    from flashfs.reproduce.figure import Figure
    from flashfs.reproduce.make import Made


def command(
    paper: Annotated[
        str | None,
        typer.Argument(metavar="PAPER", help="All figures of this paper, as slimftl.", autocompletion=complete.papers),
    ] = None,
    number: Annotated[str | None, typer.Argument(metavar="FIGURE", help="Only this figure, as 11.")] = None,
    scale: Annotated[
        str, typer.Option(metavar="SCALE", help="small: minutes on two cores; paper: the paper's own set-up.")
    ] = "small",
    ftl: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these FTLs, and those that they are compared with.")
    ] = None,
    traces: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of the traces that some figures ask for by name.")
    ] = None,
    figures: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Further figures, PAPER-FIGURE.toml; repeatable.")
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where tables, pictures and results go, and replays are kept.")
    ] = Path("reproduced"),
    jobs: options.Jobs = None,
    as_json: options.Json = False,
) -> None:
    """Make a paper's figures again, and compare them.

    The paper's numbers, where they are from, ours, and whether they agree. Without PAPER, the figures are listed. Exit
    code 1 if a verdict that held when the figure was last kept does not hold any more.
    """
    from flashfs.replay.workers import Processes
    from flashfs.reproduce import figure as files
    from flashfs.reproduce import make

    if scale not in files.SCALES:
        raise UsageError(f"--scale {scale}: use {' or '.join(files.SCALES)}")
    if traces is not None and not traces.is_dir():
        raise UsageError(f"--traces {traces}: no such folder")
    known = files.find([files.OURS, *(figures or [])])
    if paper is None:
        return listed(known, scale, as_json)
    chosen = [one for one in known.values() if one.paper == paper and number in (None, one.number)]
    if not chosen:
        raise UsageError(unknown(known.values(), paper, number))
    workers = Processes(jobs or len(os.sched_getaffinity(0)))
    made: list[make.Made] = []
    for one in chosen:
        with bars() as progress:
            made.append(make.make(
                one, scale, out, workers, ftls=ftl.split(",") if ftl else None, traces=traces,
                listen=partial(listener, progress), tell=show.warn,
            ))  # fmt: skip
        if not as_json:
            told(made[-1])
    if as_json:
        show.result([{**one.plain(), "files": one.files} for one in made], as_json=True)
    for done in made:
        for line in done.failed:
            show.warn(line)
        for lost in done.lost:
            show.warn(f"{done.figure.name}: {lost.series}, {lost.x}: {lost.verdict}; it held before")
    if any(done.failed or done.lost for done in made):
        raise typer.Exit(1)
    return None


def unknown(known: Iterable[Figure], paper: str, number: str | None) -> str:
    """What to say where no figure is called so."""
    figures = [one.number for one in known if one.paper == paper]
    if not figures:
        papers = sorted({one.paper for one in known})
        return f"{paper}{meant(paper, papers)}: no such paper; use {', '.join(papers)}"
    in_order = sorted(figures, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
    return f"{paper} {number}: no such figure; use {', '.join(in_order)}"


def listed(known: dict[str, Figure], scale: str, as_json: bool) -> None:
    """Which figures there are, and what came out when they were kept."""
    from flashfs.reproduce import make

    rows = []
    for one in known.values():
        kept = make.kept_file(one, scale)
        rows.append({
            "paper": one.paper, "figure": one.number, "what": one.title, "minutes": one.minutes[scale],
            "kept": "-" if kept is None else f"{kept['summary']}, {kept['scale']}",
        })  # fmt: skip
    show.result(rows, as_json=as_json)


def told(made: Made) -> None:
    """A figure for people."""
    from flashfs.reproduce.verdict import summary

    figure = made.figure
    show.line(f"{figure.name}: {figure.title} ({figure.source}), scale {made.scale}: {summary(made.lines)}")
    rows = []
    for one in made.lines:
        paper = "" if one.paper is None else f"{one.paper:g}{' subst.' if figure.substitute else ''}"
        rows.append({
            "series": one.series, "x": one.x, "paper": paper, "mark": one.mark, "ours": _figure(one.ours),
            "ratio": _figure(one.ratio), "verdict": one.verdict,
        })  # fmt: skip
    show.rows(rows)
    for name, text in (("value", figure.value.text), ("scaled", figure.says[made.scale]),
                       ("substitute", figure.substitute), ("note", figure.note)):  # fmt: skip
        if text:
            show.line(f"{name}: {text}")
    for name, text in made.options.items():
        show.line(f"options, {name}: {text}")
    for line in made.complaints:
        show.line(f"mind: {line}")
    show.line(f"files: {', '.join(made.files.values())}")
    print()


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
