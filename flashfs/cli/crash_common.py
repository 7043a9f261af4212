"""What the commands of ``flashfs crash`` have in common: options, a progress bar, the table of what was found."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from flashfs.cli import complete, show

if TYPE_CHECKING:
    from flashfs.crash.campaign import Result

SHOWN = 10  #: failures of one campaign that are printed; --json has more

Ftls = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="These FTLs. Default: all.", autocompletion=complete.ftl_list)
]
Seed = Annotated[int | None, typer.Option(metavar="S", help="The same seed makes the same cuts. Default: a new one.")]
Survived = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Add a line to FILE for each FTL and tier that lost nothing."),
]
Found = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Add a line to FILE for each failure, with the command that replays it."),
]


def named(ftl: str | None) -> list[str]:
    """The FTLs of a comma-separated list, or all; UsageError for one that is not there."""
    from flashfs.ftl import listed, scheme

    names = listed(ftl or "all")
    for name in names:
        scheme(name)
    return names


def check_files(survived: Path | None, found: Path | None) -> None:
    """A file that cannot be written is said now, not after hours."""
    from flashfs.crash import campaign

    if survived is not None:
        campaign.note_survivors(survived, [])
    if found is not None:
        campaign.note_failures(found, [])


def note(results: list[Result], survived: Path | None, found: Path | None) -> None:
    """Add what was done to the files that were named."""
    from flashfs.crash import campaign

    if survived is not None:
        campaign.note_survivors(survived, results)
    if found is not None:
        campaign.note_failures(found, results)


def drawn(seed: int | None) -> int:
    """``seed``, or a new one, which is printed: also of a campaign that is broken off."""
    if seed is None:
        seed = random.SystemRandom().randrange(2**32)
        print(f"seed {seed}", file=sys.stderr)
    return seed


def report(results: list[Result], as_json: bool) -> None:
    """The table, then each failure with its line; exit code 1 if there is one."""
    tell(results, as_json)
    if any(result.failures for result in results):
        raise typer.Exit(1)


def tell(results: list[Result], as_json: bool) -> None:
    """Of ``report``, what is printed."""
    if as_json:
        show.result([result.as_dict() for result in results], as_json=True)
    else:
        outs = [result.as_dict() for result in results]
        names = [name for name in COLUMNS if any(name in out for out in outs)]
        show.rows([row(result, out, names) for result, out in zip(results, outs, strict=True)])
        for result in results:
            for failure in result.failures[:SHOWN]:
                for line in str(failure).splitlines():
                    show.line(line)
            if len(result.failures) > SHOWN or result.failed > len(result.failures):
                more = max(result.failed, len(result.failures)) - min(SHOWN, len(result.failures))
                show.line(f"{result.ftl} {result.tier}: {more:,} further failures")
        for line in unmet(results):
            show.prose(line)


def unmet(results: list[Result]) -> list[str]:
    """A line for each FTL of which some rare event was never met, in any of its tiers in memory. Tier `kill` says
    nothing of them: a daemon that is killed takes its counts along."""
    lines = []
    in_memory = [result for result in results if result.in_memory]
    for name in dict.fromkeys(result.ftl for result in in_memory):
        lists = [result.never_met() for result in in_memory if result.ftl == name]
        missing = [event for event in lists[0] if all(event in one for one in lists)] if lists else []
        if missing:
            lines.append(f"{name}: never met: {', '.join(missing)}")
    return lines


COLUMNS = (
    "ftl", "tier", "fs", "writer", "cuts", "cases", "chosen", "recoveries_killed", "aimed", "flushes", "marks",
    "operations",
)  # fmt: skip  #: as far as a tier has them


#: what a workload's row calls some of them: they are counts of the recording, not of what was tried
OF_WORKLOAD = {"flushes": "its flushes", "marks": "its marks", "operations": "its flash operations"}


def row(result: Result, out: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """One line of the table; ``seconds`` are of the wall clock."""
    rate = result.cuts / result.seconds if result.seconds else 0
    said = OF_WORKLOAD if out["tier"] == "workload" else {}
    return {
        **{said.get(name, name).replace("_", " "): out.get(name, "") for name in names},
        "failures": out.get("failed", len(out["failures"])),
        "seconds": out["seconds"],
        "cuts/s": round(rate) if rate >= 10 else round(rate, 2),
        "seed": str(result.seed),
    }


@contextmanager
def bar(text: str, total: int | None, what: str = "rounds") -> Iterator[Callable[..., None]]:
    """A progress bar on stderr; yields what moves it: (done, further text). It has no thread of its own: campaigns
    fork."""
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn(what),
        TextColumn("{task.fields[more]}"), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(
        *columns, console=show.console(stderr=True), auto_refresh=False, transient=True, disable=not sys.stderr.isatty()
    ) as progress:
        task = progress.add_task(text, total=total, more="")

        def move(done: int, more: str = "") -> None:
            progress.update(task, completed=done, more=more, refresh=True)

        yield move
