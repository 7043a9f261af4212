"""``flashfs replay``: the same work on each FTL, in virtual time, side by side."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import complete, options, shape, show, trace, units
from flashfs.errors import UsageError
from flashfs.sizing.defaults import DEFAULT_FTL
from flashfs.text import meant, printable

if TYPE_CHECKING:
    from flashfs.replay.play import Setup
    from nandimg import Geometry

Sources = Annotated[
    list[str],
    typer.Argument(metavar="TRACE|WORKLOAD...", help="Traces, packed or not, or workloads: name[:key=value,...]."),
]
Ftls = Annotated[
    str,
    typer.Option(
        metavar="NAME,...", help="These FTLs, with commas between them, or all (see flashfs ftls).",
        autocompletion=complete.ftl_list,
    ),
]  # fmt: skip
Opt = Annotated[
    list[str] | None,
    typer.Option(
        "--opt", metavar="[FTL.]NAME=VALUE",
        help="An option of the FTLs that have it, or of one FTL; may be repeated. Several FTLs get the same buffer, "
        "stripe, wear_spread and gc_reserve by default.",
    ),
]  # fmt: skip
Dram = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="The controller's DRAM, as 64M: tables first, and a data cache in the rest. Default: no cache.",
    ),
]
Depth = Annotated[
    int | None,
    typer.Option(
        "--qd", min=0, max=65536, metavar="N",
        help="Closed loop: N requests under way at any time. 0: each at its own time. Default: the times of a trace, "
        "the qd of a workload.",
    ),
]  # fmt: skip
Precondition = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="What is written before. none; fill: everything once; steady[:tolerance=0.02,most=8,...]: then overwrite "
        "until the WAF is steady.",
        autocompletion=complete.words("none", "fill", "steady"),
    ),
]
Before = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SOURCE",
        help="Play this trace or workload first, after --precondition, and do not count it; may be repeated.",
    ),
]
Warm = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SOURCE",
        help="Play this after that, to warm caches, and do not count it; may be repeated.",
    ),
]
Prepared = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Keep images that are prepared so in DIR, and use those that are there."),
]
Fit = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        help="How a trace is put on the device: clip, wrap, scale or pack (see flashfs trace info --help). Default: "
        "clip; pack, if no device was named and the trace needs one of more than 32G.",
    ),
]
BACKEND = "meta"
HOLES = 0.1  # of the pages read: more is reported


def command(
    sources: Sources,
    ftl: Ftls = DEFAULT_FTL,
    opt: Opt = None,
    image: Annotated[
        Path | None, typer.Option(metavar="IMAGE", help="Replay on a copy of this image, with its own FTL.")
    ] = None,
    trust: options.Trust = False,
    preset: shape.Preset = None,
    size: shape.Size = None,
    page_size: shape.PageSize = None,
    pages_per_block: shape.PagesPerBlock = None,
    channels: shape.Channels = None,
    dies: shape.Dies = None,
    oob: shape.Oob = None,
    op: shape.Op = None,
    backend: Annotated[
        str,
        typer.Option(
            metavar="meta|file", help="meta: keep no user data, so that large chips fit. file: keep everything."
        ),
    ] = BACKEND,
    dram: Dram = None,
    plp: options.Plp = False,
    qd: Depth = None,
    precondition: Precondition = None,
    before: Before = None,
    warm: Warm = None,
    prepared: Prepared = None,
    format: trace.Format = None,
    columns: trace.Columns = None,
    shift: trace.Shift = "0",
    fit: Fit = None,
    pack: trace.Pack = "1M",
    speedup: trace.Speedup = "1",
    loops: trace.Loops = 1,
    first: trace.First = None,
    unit: trace.Unit = None,
    event: trace.Event = "D",
    sort: trace.Sort = False,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="The FTL that the others are compared with. Default: the first.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Add a row for each result to this .parquet or .csv."),
    ] = None,
    steps: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Make one HTML page to step through the requests of one SOURCE on one FTL and a small chip: what each "
            "did to every page.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --steps: overwrite an existing FILE.")] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Also the schemes' own figures; with --json: histograms of latency, and what happened over time.",
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Replay traces and workloads on FTLs, in virtual time.

    Prints a table for each source. Only --out, --steps and --prepared write files.
    """
    from flashfs.replay import results as rows
    from flashfs.replay.play import Setup, mostly_lost
    from flashfs.replay.traces import named_by
    from nandimg import inspect

    if out is not None:
        rows.check_target(out)
    shape.check_choice("--backend", backend, ("meta", "file"))
    shaped = any(one is not None for one in (preset, size, page_size, pages_per_block, channels, dies, oob, op))
    if image is not None and (shaped or backend != BACKEND):
        raise UsageError("--image is a whole chip: leave --preset, --backend and the flags of its geometry out")
    if image is not None and prepared is not None:
        raise UsageError("--image and --prepared: use one of them")
    if trust and image is not None:
        ftl = inspect(image).ftl or ftl

    def chip(size: str | None) -> Geometry:
        return shape.geometry_of(
            preset, size, page_size, pages_per_block=pages_per_block, channels=channels, dies=dies, oob_bytes=oob, op=op
        )

    setup = Setup(
        source="", ftl=ftl, options=dict(units.pairs("--opt", opt or [])), geometry=chip(size), backend=backend,
        dram=None if dram is None else units.size("--dram", dram), qd=qd, precondition=precondition, plp=plp,
        trace=trace.trace_options(shift, fit or "clip", pack, speedup, loops, first, unit, event, sort),
        format=named_by(format, columns),
        image=image, prepared=prepared, before=tuple(before or ()),
        warm=tuple(warm or ()),
    )  # fmt: skip
    if force and steps is None:
        raise UsageError("--force: without --steps there is nothing to overwrite")
    if steps is not None:
        step_through(setup, sources, steps, force, as_json)
        return
    free = image is None and preset is None and size is None and fit is None
    results = []
    for one in each(setup, sources, chip if free else None):
        results.append(of_source(one, ftl, as_json, baseline, full))
        if out is not None:  # now: the next source may take an hour, or fail
            rows.write(out, [rows.row(result) for result in results[-1]])
    if as_json:
        show.result([lean(result, full) for some in results for result in some], as_json=True)
    lost = dict.fromkeys(line for some in results for result in some if (line := mostly_lost(result)))
    for line in lost:
        show.warn(line)
    if lost:
        raise typer.Exit(1)


def step_through(setup: Setup, sources: list[str], file: Path, force: bool, as_json: bool) -> None:
    """The page of --steps, and one line that says so."""
    from dataclasses import replace

    from flashfs.watch import steps

    if len(sources) > 1 or "," in setup.ftl:
        raise UsageError("--steps: one source on one FTL; make a page for each")
    with bar(f"{sources[0][:40]} on {setup.ftl}") as move:
        made = steps.write(replace(setup, source=sources[0]), file, move, force=force)
    if as_json:
        show.result(made, as_json=True)
    else:
        waf = "-" if made["waf"] is None else f"{made['waf']:.3f}"
        show.line(f"{file}: {made['steps']:,} requests, WAF {waf}; open it in a browser")


def each(setup: Setup, sources: list[str], chip: Callable[[str], Geometry] | None) -> Iterator[Setup]:
    """The setup for each source. The options of traces are for the traces among them; without one, they are an error.
    A trace gets a device that is large enough, if nobody said how large: ``chip`` makes one of a size. All sources are
    looked at before the first is played, which may take hours."""
    from dataclasses import replace

    from flashfs.replay.open_source import device_for
    from flashfs.replay.workloads import is_workload

    made = [is_workload(source) and not Path(source).exists() for source in sources]
    bare = setup if all(made) else replace(setup, trace=None, format=None)
    setups = [replace(bare if one else setup, source=source) for source, one in zip(sources, made, strict=True)]
    for one in setups:
        look_at(one)
    for one, workload in zip(setups, made, strict=True):
        if chip is not None and not workload:
            host_bytes, fitted, why = device_for(one.source, setup.trace, setup.format)
            show.warn(why)
            one = replace(one, trace=fitted, geometry=chip(f"{host_bytes}"))
        yield one


def look_at(setup: Setup) -> None:
    """Open all that is to be played. UsageError, TraceError or OSError for what cannot be."""
    from flashfs.replay import phases
    from flashfs.replay.open_source import open_source
    from nandimg import inspect
    from nandimg.image import at_rest

    if setup.image is not None:
        with at_rest(setup.image):
            pass
    geometry = setup.geometry if setup.image is None else inspect(setup.image).geometry
    device_bytes, page_bytes = geometry.logical_bytes, geometry.page_bytes
    open_source(setup.source, device_bytes, page_bytes=page_bytes, options=setup.trace, format=setup.format)
    phases.sources(setup.before + setup.warm, device_bytes, page_bytes, setup.trace)


def of_source(setup: Setup, ftls: str, as_json: bool, baseline: str | None, full: bool) -> list[dict[str, Any]]:
    """Every FTL on one source; its table, unless all is for a program, with the schemes' own figures if ``full``."""
    from dataclasses import replace

    from flashfs.replay import table
    from flashfs.replay.play import at_utilisation, named, run

    setups = named(setup, ftls)
    names = [one.ftl for one in setups]
    if baseline is not None and setup.image is None and baseline not in names:
        raise UsageError(f"--baseline {baseline}{meant(baseline, names)}: use {', '.join(names)}")
    with bar(f"{setup.source[:40]}: at which speed") as move:
        speed = at_utilisation(setups[0], move).trace
    if speed != setup.trace and speed is not None:
        show.warn(f"{setup.source}: times divided by {speed.speedup:,.4g}, which keeps the page map as busy as asked")
    results = []
    for one in (replace(one, trace=speed) for one in setups):
        with bar(f"{setup.source[:40]} on {one.ftl if setup.image is None else setup.image}") as move:
            results.append(run(one, move))
    certainty = results[0]["config"]["source"].get("certainty", "")
    if certainty.startswith("likely"):
        show.warn(f"{setup.source}: read as {results[0]['config']['source']['format']}, {certainty}")
    for line in dict.fromkeys(line for result in results for line in (*result["complaints"], *_smaller(result))):
        show.warn(line)
    if not as_json:
        if (share := table.holes(results[0])) > HOLES:
            show.warn(
                f"{setup.source}: {share:.0%} of the pages that it reads hold nothing, which takes no time; "
                "--precondition fill writes them first"
            )
        own = table.own(results)
        show.rows([*table.side_by_side(results, baseline), *(own if full else [])], title=setup.source)
        if own and not full:
            show.line(f"--full adds {len(own)} figures of the schemes' own")
    return results


def lean(result: dict[str, Any], full: bool) -> dict[str, Any]:
    """A result without its long columns, unless they were asked for."""
    return result if full else {key: value for key, value in result.items() if key not in ("series", "histograms")}


@contextmanager
def bar(text: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar on stderr, if that is a terminal."""
    from rich import progress as rich

    columns = (
        rich.TextColumn("{task.description}"), rich.BarColumn(bar_width=24), rich.MofNCompleteColumn(),
        rich.TextColumn("requests"), rich.TimeElapsedColumn(), rich.TimeRemainingColumn(),
    )  # fmt: skip
    console = show.console(stderr=True)
    with rich.Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as on:
        task = on.add_task(show.escape(printable(text)), total=None)
        yield lambda done, total: on.update(task, completed=done, total=total)


def _smaller(result: dict[str, Any]) -> list[str]:
    """What the budget of DRAM made smaller than it is by default."""
    from flashfs import budget

    cuts = [budget.Cut(name, **sizes) for name, sizes in result["dram_cuts"].items()]
    return budget.note(result["ftl"], result["config"]["dram"] or 0, cuts)
