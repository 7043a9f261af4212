"""``flashfs crash``: cut the power of every scheme, thousands of times, and judge what is left."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flashfs.cli import options, show
from flashfs.errors import UsageError

if TYPE_CHECKING:
    from flashfs.crash.campaign import Result

app = typer.Typer(help="Cut the power, judge what is left.", invoke_without_command=True)


@app.callback()
def command(
    context: typer.Context,
    ftl: Annotated[str | None, typer.Option(metavar="A,B,...", help="Which FTLs. Default: all.")] = None,
    tier: Annotated[
        str, typer.Option(metavar="sweep|random|every|kill,...", help="Kinds of campaign; see docs/crash.md.")
    ] = "sweep,random",
    cuts: Annotated[int, typer.Option(min=1, metavar="N", help="Cuts per FTL, in tiers sweep and random.")] = 10_000,
    every: Annotated[bool, typer.Option("--every", help="Tier every: all programs up to --length, no chance.")] = False,
    length: Annotated[int, typer.Option(min=1, max=8, metavar="N", help="Longest program of tier every.")] = 3,
    kill: Annotated[
        bool, typer.Option("--kill", help="Tier kill: kill -9 of the daemon under a file system. Needs root.")
    ] = False,
    fs: Annotated[str, typer.Option(metavar="ext4,xfs,btrfs", help="File systems of tier kill.")] = "ext4",
    writer: Annotated[
        str, typer.Option(metavar="files,sqlite,fio", help="What works on them in tier kill; also sqlite-delete, -wal.")
    ] = "files",
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Kills per FTL, file system and writer.")] = 10,
    seed: Annotated[
        int | None, typer.Option(metavar="S", help="The same seed, the same cuts. Default: a new one.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes. Default: one a core.")] = None,
    as_json: options.Json = False,
) -> None:
    """Run campaigns of power cuts. Each failure prints the one line that replays it; exit code 1 if there was one."""
    if context.invoked_subcommand is not None:
        return
    from flashfs.crash import campaign
    from flashfs.crash import kill as kills
    from flashfs.ftl import SCHEMES, scheme

    names = [scheme(name).name for name in ftl.split(",")] if ftl else list(SCHEMES)
    tiers = ["every"] * every + ["kill"] * kill or tier.split(",")
    for name in tiers:
        if name not in (*campaign.TIERS, "kill"):
            raise UsageError(f"--tier {name}: there is {', '.join(campaign.TIERS)}, kill")
    benches = [(system, work) for system in fs.split(",") for work in kills.writers(writer.split(","))]
    for system, work in benches if "kill" in tiers else ():
        kills.check_machine(system, work)
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    jobs = jobs or len(os.sched_getaffinity(0))
    results: list[Result] = []
    for name in names:
        for one in tiers:
            if one == "kill":
                for system, work in benches:
                    with bar(f"{name} {system} {work}", rounds) as progress:
                        results.append(kills.run(name, seed, rounds, fs=system, writer=work, progress=progress))
                continue
            with bar(f"{name} {one}", None if one == "every" else cuts) as progress:
                bound = length if one == "every" else cuts
                results.append(campaign.run(name, one, seed, bound, jobs=jobs, progress=progress))
    report(results, as_json)


def report(results: list[Result], as_json: bool) -> None:
    """The table, then each failure with its line; exit code 1 if there is one."""
    if as_json:
        show.result([result.as_dict() for result in results], as_json=True)
    else:
        rows: list[dict[str, Any]] = [result.as_dict() for result in results]
        show.rows([{**row, "failures": len(row["failures"]), "seed": str(row["seed"])} for row in rows])
        for result in results:
            for failure in result.failures:
                show.line(str(failure))
    if any(result.failures for result in results):
        raise typer.Exit(1)


@contextmanager
def bar(text: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; yields what moves it. It has no thread of its own: campaigns fork."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=show.console(stderr=True), auto_refresh=False, transient=True, disable=not sys.stderr.isatty()
    ) as progress:
        task = progress.add_task(text, total=total)

        def move(done: int) -> None:
            progress.update(task, completed=done, refresh=True)

        yield move


@app.command("replay")
def replay(
    line: Annotated[str, typer.Argument(metavar="LINE", help="What a failure printed, quoted.")],
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show every step and mount, with the operations so far.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Run the one case that LINE describes, and say how it ended; exit code 1 if it failed."""
    from flashfs.crash import Case, run_case

    def tell(what: str, operations: int) -> None:
        show.line(f"{operations:>8}  {what}")

    case = Case.parse(line)
    outcome = run_case(case, tell) if verbose and not as_json else run_case(case)
    failure = outcome.failure
    if as_json:
        show.result(
            {"cuts": outcome.cuts_hit, "operations": outcome.operations, "failure": failure and failure.why},
            as_json=True,
        )
    else:
        show.line(failure.why if failure else f"survived: {outcome.cuts_hit} cuts, operations {outcome.operations}")
    if failure:
        raise typer.Exit(1)
