"""``flashfs crash``: cut the power of every scheme, thousands of times, and judge what is left."""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from flashfs.cli import complete, examples, help, options, show, units
from flashfs.errors import UsageError
from flashfs.plain import meant

if TYPE_CHECKING:
    from flashfs.crash.campaign import Result, State

LARGE_COSTS = 10  #: times what a cut costs elsewhere, one of tier wide does, or more
LEAST_S = 1.0  #: seconds that a tier has at least, on one FTL
ENDLESS = 10**12  #: cuts, and more than any time is enough for
SHOWN = 10  #: failures of one campaign that are printed; --json has more

DEFAULT_TIERS, DEFAULT_CUTS = "sweep,wide,random,host", 10_000
OWN = "A workload of your own"  #: a heading of the help
HELP = """Cut the power thousands of times, and judge what is left.

Each failure prints the one line that replays it (`flashfs crash replay`). Exit code 1 if there was one.

Tiers are kinds of cuts. sweep: random programs on small chips, cut at every operation. wide: long programs on larger
chips, cut at some. random: several cuts in one case. host: the host dies too, and loses what it had not synced. faults:
the chip or the host's disk fails. every: all short programs, cut everywhere. kill: the daemon is killed under a file
system.
"""

app = typer.Typer(help=HELP, cls=help.Group, epilog=examples.of("crash"), invoke_without_command=True)


@app.callback()
def command(
    context: typer.Context,
    ftl: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="These FTLs. Default: all.", autocompletion=complete.ftl_list)
    ] = None,
    tier: Annotated[
        str,
        typer.Option(
            metavar="TIER,...",
            help="Kinds of cuts: sweep, wide, random, host, faults, every, kill.",
            autocompletion=complete.words("sweep", "wide", "random", "host", "faults", "every", "kill"),
        ),
    ] = DEFAULT_TIERS,
    cuts: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Cuts per FTL and tier, not of every and kill; of wide, a tenth. Default: 10000. "
            "With --workload: at N random flash operations, or at N of --at.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--every", help="Tier every: all programs up to --length.")] = False,
    length: Annotated[
        int, typer.Option(min=0, max=8, metavar="N", help="Length of the longest program of tier every.")
    ] = 3,
    depth: Annotated[
        int, typer.Option(min=1, max=2, metavar="1|2", help="2: cut every recovery too, in sweep and every.")
    ] = 1,
    kill: Annotated[
        bool, typer.Option("--kill", help="Tier kill: kill the daemon under a file system. Needs root.")
    ] = False,
    fs: Annotated[
        str | None,
        typer.Option(
            metavar="ext4,xfs,btrfs", help="File systems of tier kill, or the one of --workload. Default: ext4."
        ),
    ] = None,
    writer: Annotated[
        str,
        typer.Option(
            metavar="WRITER,...",
            help="What writes to them in tier kill: files, sqlite, sqlite-delete, sqlite-wal, sqlite-remap, fio.",
        ),
    ] = "files",
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Kills per FTL, file system and writer.")] = 10,
    seed: Annotated[
        int | None, typer.Option(metavar="S", help="The same seed makes the same cuts. Default: a new one.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep what was done in FILE, and continue from there next time.")
    ] = None,
    survived: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Add a line to FILE for each FTL and tier that lost nothing: seed, number of cuts."
        ),
    ] = None,
    found: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Add a line to FILE for each failure: seed, reason, the command that replays it."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, metavar="S", help="In place of --cuts: stop after S seconds, with FTLs and tiers in random order."
        ),
    ] = None,
    start: Annotated[
        int, typer.Option("--from", min=0, metavar="ID", help="Begin with this unit of work; a failure names its own.")
    ] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes. Default: one per core.")] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            rich_help_panel=OWN,
            help="Run COMMAND on a file system, cut the power, mount again, run --check. Needs root.",
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            rich_help_panel=OWN,
            help="Looks at the files after each cut, and exits with 0 if they are good. {} or $FLASHFS_MOUNT is where "
            "they are.",
        ),
    ] = None,
    fsck: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", rich_help_panel=OWN,
            help="Looks at the device after each cut, mounted and unmounted again: 0 is good. {} or $FLASHFS_DEVICE.",
        ),
    ] = None,
    mkfs: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", rich_help_panel=OWN,
            help="Makes the file system, any that `mount` knows, on {} or $FLASHFS_DEVICE; --fs is its type.",
        ),
    ] = None,
    setup: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", rich_help_panel=OWN, help="Run COMMAND on the new file system first, without cuts."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE,...",
            rich_help_panel=OWN,
            help="Where the power goes: flushes, marks, end, operations, subsets, flush:N, mark:N, N:SHAPE. Default: "
            "flushes,marks,end; with --cuts: operations.",
        ),
    ] = None,
    recording: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=OWN,
            help="Keep the recording of the workload in FOLDER. Without --workload: use the recording there.",
        ),
    ] = None,
    mount_options: Annotated[
        str | None,
        typer.Option(metavar="LIST", rich_help_panel=OWN, help="Options of the file system, as for mount -o."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", rich_help_panel=OWN, help="The chip, by name.", autocompletion=complete.presets),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", rich_help_panel=OWN, help="What the host sees. Default: ext4 128M, xfs 320M, btrfs 256M."
        ),
    ] = None,
    opt: Annotated[
        list[str] | None,
        typer.Option(
            "--opt",
            metavar="NAME=VALUE",
            rich_help_panel=OWN,
            help="An option of the FTL, also of --kill; may be repeated.",
        ),
    ] = None,
    dram: Annotated[
        str | None, typer.Option(metavar="SIZE", rich_help_panel=OWN, help="The controller's DRAM: a hard limit.")
    ] = None,
    plp: Annotated[
        bool, typer.Option("--plp", rich_help_panel=OWN, help="The write buffer survives a cut, so fewer bugs show.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Campaigns of power cuts, or the cuts of a workload."""
    if context.invoked_subcommand is not None:
        return
    own = {"--check": check, "--fsck": fsck, "--mkfs": mkfs, "--setup": setup, "--at": at,
           "--mount-options": mount_options, "--preset": preset,
           "--size": size, "--opt": opt, "--dram": dram, "--plp": plp}  # fmt: skip
    if workload is not None or recording is not None:
        others = (every, kill, tier != DEFAULT_TIERS, state, survived, found, seconds, start)
        if any(others):
            raise UsageError("--workload, --recording: they go without --tier, --every, --kill, --state, --survived, "
                             "--found, --seconds and --from")  # fmt: skip
        from flashfs.cli import crash_workload

        chosen = {"--ftl": ftl, "--fs": fs, **own}
        result = crash_workload.run(
            chosen, workload, recording, cuts, seed, lambda name, n: bar(name, n, "cuts"),
            lambda found: tell([found], as_json),
        )  # fmt: skip
        report([result], as_json)
        return
    tiers = ["every"] * every + ["kill"] * kill or tier.split(",")
    for name, value in own.items():
        if value and (name != "--opt" or "kill" not in tiers):
            to = "--kill, --workload" if name == "--opt" else "--workload"
            raise UsageError(f"{name}: belongs to {to}, or to the --recording of one")
    fs = fs or "ext4"
    from flashfs.crash import campaign
    from flashfs.crash import kill as kills
    from flashfs.ftl import SCHEMES, scheme

    names = ftl.split(",") if ftl else list(SCHEMES)
    for name in names:
        scheme(name)
    for name in tiers:
        if name not in (*campaign.TIERS, "kill"):
            raise UsageError(f"--tier {name}{meant(name, campaign.TIERS)}: use {', '.join(campaign.TIERS)} or kill")
    if state is not None and start:
        raise UsageError("--state and --from: both say where to begin; use one of them")
    benches, fixed = kills.benches(fs.split(","), writer.split(",")), units.pairs("--opt", opt or [])
    for system, work in benches if "kill" in tiers else ():
        kills.check_machine(system, work)
    for name in names if "kill" in tiers else ():
        kills.check_options(name, fixed)
    kept = campaign.State(state) if state else None
    if seconds is not None and (cuts is not None or state is not None or "kill" in tiers):
        raise UsageError("--seconds: it goes without --cuts, --state and tier kill")
    if survived is not None:
        campaign.note_survivors(survived, [])  # a file that cannot be written is said now, not after hours
    if found is not None:
        campaign.note_failures(found, [])
    if seed is None:
        seed = kept.seed if kept and kept.seed is not None else random.SystemRandom().randrange(2**32)
        print(f"seed {seed}", file=sys.stderr)  # also of a campaign that is broken off
    jobs = jobs or len(os.sched_getaffinity(0))
    results: list[Result] = []
    turns = [(name, one) for name in names for one in tiers]
    end = math.inf if seconds is None else time.perf_counter() + seconds
    if seconds is not None:
        random.Random(seed).shuffle(turns)
    for number, (name, one) in enumerate(turns):
        now = time.perf_counter()
        if now > end:
            break
        mine: list[Result] = []
        if one == "kill":
            for system, work in benches:
                with bar(f"{name} {system} {work}", rounds) as progress:
                    mine.append(kills.run(name, seed, rounds, fs=system, writer=work, options=fixed, progress=progress))
        else:
            begin = kept.find(name, one, seed, depth) if kept else campaign.Result(name, one, seed, next=start)
            until = now + max(LEAST_S, (end - now) / (len(turns) - number))
            mine.append(run_tier(begin, bound_of(one, cuts, length, seconds), depth, jobs, kept, until))
        results += mine
        if survived is not None:
            campaign.note_survivors(survived, mine)
        if found is not None:
            campaign.note_failures(found, mine)
    report(results, as_json)


def bound_of(tier: str, cuts: int | None, length: int, seconds: float | None) -> int:
    """Cuts of a tier, or the length of its programs."""
    if tier == "every":
        return length
    many = ENDLESS if seconds is not None else cuts or DEFAULT_CUTS
    return max(1, many // LARGE_COSTS) if tier == "wide" else many


def run_tier(begin: Result, bound: int, depth: int, jobs: int, kept: State | None, until: float) -> Result:
    """One tier on one FTL, from where ``begin`` stands, under a progress bar, until so much of perf_counter()."""
    from flashfs.crash import campaign

    programs = campaign.units_count(begin.tier, begin.ftl, bound, depth)
    before = (begin.cuts, begin.seconds)
    with bar(f"{begin.ftl} {begin.tier}", programs or bound, "programs" if programs else "cuts") as move:

        def progress(result: Result) -> None:
            rate = (result.cuts - before[0]) / max(result.seconds - before[1], 1e-9)
            lost = f"  [red]{result.failed:,} failed[/red]" if result.failed else ""
            total = f"{result.cuts:,} cuts, " if programs else ""
            move(result.next if programs else min(result.cuts, bound), f"{total}{rate:,.0f} cuts/s{lost}")

        return campaign.run(
            begin.ftl, begin.tier, begin.seed, bound, depth=depth, jobs=jobs, start=begin, until=until,
            progress=progress, save=(lambda result: kept.save(result, depth)) if kept else lambda result: None,
        )  # fmt: skip


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


@app.command("replay", cls=help.Command, epilog=examples.of("crash replay"))
def replay(
    line: Annotated[str, typer.Argument(metavar="LINE", help="The line that a failure printed, quoted.")],
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show each step and mount, and the operations so far.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Run the one case that a failure printed.

    Prints how it ended. Exit code 1 if it failed.
    """
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


@app.command("shrink", cls=help.Command, epilog=examples.of("crash shrink"))
def shrink(
    line: Annotated[str, typer.Argument(metavar="LINE", help="The line that a failure printed, quoted.")],
    seconds: Annotated[float, typer.Option(min=1, metavar="S", help="Stop after S seconds.")] = 60.0,
    as_json: options.Json = False,
) -> None:
    """Make a case that fails smaller.

    Words are taken away for as long as it fails in the same way; then its line is printed.
    """
    from flashfs.crash import Case, Failure
    from flashfs.crash.shrink import shrink, why_of

    case = Case.parse(line)
    if why_of(case) is None:
        raise UsageError("crash shrink: this case does not fail; `flashfs crash replay` says how it ends")
    before = len(case.program.split())
    with bar("words", before, "words") as move:
        smaller = shrink(case, seconds=seconds, tell=lambda one: move(before - len(one.program.split())))
    if as_json:
        found = {"line": smaller.line(), "why": why_of(smaller), "words": len(smaller.program.split())}
        show.result({**found, "words_before": before}, as_json=True)
    else:
        show.line(f"{before} words, now {len(smaller.program.split())}: {why_of(smaller)}")
        show.line(Failure(smaller, "").replay)
