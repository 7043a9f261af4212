"""``flashfs crash run``: campaigns of power cuts."""

from __future__ import annotations

import math
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashfs.cli import complete, options
from flashfs.cli.crash_common import Found, Ftls, Seed, Survived, bar, check_files, drawn, named, note, report
from flashfs.errors import UsageError
from flashfs.text import meant

if TYPE_CHECKING:
    from flashfs.crash.campaign import Result, State

LARGE_COSTS = 10  #: times what a cut costs elsewhere, one of tier wide does, or more
LEAST_S = 1.0  #: seconds that a tier has at least, on one FTL
ENDLESS = 10**12  #: cuts, and more than any time is enough for
DEFAULT_TIERS, DEFAULT_CUTS = "sweep,wide,random,host,faults", 10_000


def command(
    ftl: Ftls = None,
    tier: Annotated[
        str,
        typer.Option(
            metavar="TIER,...",
            help="Kinds of cuts: sweep, wide, random, host, faults, every.",
            autocompletion=complete.words("sweep", "wide", "random", "host", "faults", "every"),
        ),
    ] = DEFAULT_TIERS,
    cuts: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N",
            help="At least N cuts per FTL and tier, not of every; of wide, a tenth. Default: 10000.",
        ),
    ] = None,
    length: Annotated[
        int, typer.Option(min=0, max=8, metavar="N", help="Length of the longest program of tier every.")
    ] = 3,
    depth: Annotated[
        int, typer.Option(min=1, max=2, metavar="1|2", help="2: cut every recovery too, in sweep and every.")
    ] = 1,
    seed: Seed = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep what was done in FILE, and continue from there next time.")
    ] = None,
    survived: Survived = None,
    found: Found = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, metavar="S", help="In place of --cuts: stop after S seconds, with FTLs and tiers in random order."
        ),
    ] = None,
    start: Annotated[
        int, typer.Option("--from", min=0, metavar="ID", help="Begin with this unit of work; a failure names its own.")
    ] = 0,
    jobs: options.Jobs = None,
    as_json: options.Json = False,
) -> None:
    """Cut the power of random programs.

    Each failure prints the one line that replays it (`flashfs crash replay`). Exit code 1 if there was one.

    Tiers are kinds of cuts. sweep: random programs on small chips, cut at every operation. wide: long programs on
    larger chips, cut at some. random: several cuts in one case. host: the host dies too, and loses what it had not
    synced. faults: the chip or the host's disk fails. every: all programs of up to --length words, cut everywhere.
    """
    from flashfs.crash import campaign

    names, tiers = named(ftl), tier.split(",")
    for name in tiers:
        if name == "kill":
            raise UsageError("--tier kill: use `flashfs crash kill`")
        if name not in campaign.TIERS:
            raise UsageError(f"--tier {name}{meant(name, campaign.TIERS)}: use {', '.join(campaign.TIERS)}")
    if state is not None and start:
        raise UsageError("--state and --from: both say where to begin; use one of them")
    if seconds is not None and (cuts is not None or state is not None):
        raise UsageError("--seconds: it goes without --cuts and --state")
    kept = campaign.State(state) if state else None
    check_files(survived, found)
    seed = kept.seed if seed is None and kept and kept.seed is not None else drawn(seed)
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
        begin = kept.find(name, one, seed, depth) if kept else campaign.Result(name, one, seed, next=start)
        until = now + max(LEAST_S, (end - now) / (len(turns) - number))
        result = run_tier(begin, bound_of(one, cuts, length, seconds), depth, jobs, kept, until)
        results.append(result)
        note([result], survived, found)
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
