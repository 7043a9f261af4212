"""``flashfs check``: the conformance suite, for any FTL."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flashfs.cli import complete, options, show
from flashfs.errors import UsageError


def command(
    spec: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FTL...",
            help="FTLs: names (see flashfs ftls), or package.module:Class of your own.",
            autocompletion=complete.ftls,
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="ID,ID,...", help="Only these checks (see --list). Default: all.")
    ] = None,
    scale: Annotated[
        str, typer.Option(metavar="quick|full", help="quick: under a minute per FTL. full: many minutes.")
    ] = "quick",
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="The same seed makes the same requests and cuts.")] = 0,
    jobs: options.Jobs = None,
    listing: Annotated[bool, typer.Option("--list", help="List the checks, and run none.")] = False,
    as_json: options.Json = False,
) -> None:
    """Run the conformance tests on an FTL.

    Each failure prints why, and the command that shows it again. Exit code 1 if there was one.
    """
    from flashfs.check import suite

    checks = suite.chosen(only.split(",") if only else None)
    if listing:
        rows = [{"id": check.id, "title": check.title, "promise": check.promise} for check in checks]
        return show.result(rows, as_json=as_json)
    if not spec:
        raise UsageError("which FTL? Name one, as pagemap, or package.module:Class")
    with Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(),
        console=show.console(stderr=True), auto_refresh=False, transient=True, disable=not sys.stderr.isatty(),
    ) as progress:  # fmt: skip
        task = progress.add_task("checks", total=len(checks) * len(dict.fromkeys(spec)))

        def heard(outcome: suite.Outcome) -> None:
            progress.update(task, advance=1, description=f"{outcome.ftl} {outcome.id}", refresh=True)

        outcomes = suite.run(
            spec, only=[check.id for check in checks], scale=scale, seed=seed,
            jobs=jobs or len(os.sched_getaffinity(0)), heard=heard,
        )  # fmt: skip
    found = [report(name, scale, seed, outcomes) for name in dict.fromkeys(spec)]
    if as_json:
        show.result(found, as_json=True)
    else:
        for one in found:
            table(one)
    if any(outcome.result == "fail" for outcome in outcomes):
        raise typer.Exit(1)
    return None


def report(ftl: str, scale: str, seed: int, outcomes: list[Any]) -> dict[str, Any]:
    """One FTL's results as plain dicts and lists."""
    mine = [outcome for outcome in outcomes if outcome.ftl == ftl]
    tally = {result: sum(outcome.result == result for outcome in mine) for result in ("pass", "fail", "skip")}
    seconds = round(sum(outcome.seconds for outcome in mine), 2)
    checks = [{name: value for name, value in outcome.as_dict().items() if name != "ftl"} for outcome in mine]
    return {"ftl": ftl, "scale": scale, "seed": seed, **tally, "seconds": seconds, "checks": checks}


def table(found: dict[str, Any]) -> None:
    """The checks of one FTL, a line each; then each failure with the line that shows it again."""
    rows = [
        {
            "check": check["id"],
            "title": check["title"],
            "result": check["result"],
            "what was done": ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in check["counts"].items())
            or check["why"],
            "seconds": check["seconds"],
        }
        for check in found["checks"]
    ]
    show.rows(rows, found["ftl"])
    for check in found["checks"]:
        if check["result"] == "fail":
            show.line(f"{found['ftl']} {check['id']}: {check['why']}")
            show.line(f"    {check['replay']}")
    skipped = f", {found['skip']} skipped" if found["skip"] else ""
    show.line(f"{found['ftl']}: {found['pass']} passed, {found['fail']} failed{skipped}")
