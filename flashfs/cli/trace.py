"""``flashfs trace``: what is in a trace or a workload, and what there is to read and to make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import options, show, units
from flashfs.errors import UsageError
from flashfs.plain import meant

if TYPE_CHECKING:
    from flashfs.replay.traces import Options

app = typer.Typer(
    help="What is in a trace or a workload (info), which formats can be read, which workloads can be made.",
    no_args_is_help=True,
)

# The same for every command that takes traces.
Source = Annotated[
    str, typer.Argument(metavar="FILE|WORKLOAD", help="A trace, packed or not, or a workload: name[:key=value,...].")
]
Format = Annotated[
    str | None, typer.Option(metavar="NAME", help="Read the trace as this format (see flashfs trace formats).")
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Read the trace as a table of these: time:s|ms|us|ns, dev, offset:BYTES, length:BYTES, "
        "op:VALUE=OPERATION,..., and - for any other; as time:ms,dev,offset:512,length:4096,op:1=read.",
    ),
]
Shift = Annotated[
    str, typer.Option(metavar="SIZE", help="Add this to each offset of a trace; -3584 brings sector 7 to 0.")
]
Fit = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        help="Lay a trace on the device: clip (what lies beyond it is rejected), wrap (modulo), scale (by the ratio of "
        "the two), pack (what is never touched is left out).",
    ),
]
Pack = Annotated[
    str, typer.Option(metavar="SIZE", help="What --fit pack keeps or leaves out together, 4k to 1M; 4k: the footprint.")
]
Speedup = Annotated[
    str,
    typer.Option(
        metavar="FACTOR|auto|u=SHARE",
        help="Divide the times of a trace by it, or by what keeps the page map's dies (or channels) busy that SHARE "
        "of the time; auto: 0.7.",
    ),
]
Loops = Annotated[int, typer.Option(metavar="N", help="Replay a trace N times, one after the other.")]
First = Annotated[str | None, typer.Option(metavar="N", help="Only the first N requests of a trace (of each loop).")]
Unit = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only this disk, volume or file of a trace; else all lie behind each other."),
]
Event = Annotated[
    str, typer.Option(metavar="LETTER", help="The stage of a blktrace or ftrace that counts: Q, G, I, D (issued) or C.")
]
Sort = Annotated[
    bool,
    typer.Option(
        "--sort", help="Put the requests of a trace into the order of their times. Needs some 100 bytes of memory each."
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="The device: what a workload is made for (1G unless told), what a trace is fitted to (else to none).",
    ),
]
Preset = Annotated[str | None, typer.Option(metavar="NAME", help="The device by name (see flashfs presets).")]
PageSize = Annotated[
    str | None, typer.Option("--page-size", metavar="SIZE", help="Count pages of this size. Default: the device's, 4k.")
]


def trace_options(
    shift: str, fit: str, pack: str, speedup: str, loops: int, first: str | None, unit: str | None, event: str,
    sort: bool,
) -> Options:  # fmt: skip
    """The flags above, read."""
    from flashfs.replay.traces import Options

    sign, digits = (-1, shift[1:]) if shift.startswith("-") else (1, shift.removeprefix("+"))
    return Options(
        shift_bytes=0 if digits == "0" else sign * units.size("--shift", digits),
        fit=fit,
        pack_bytes=units.size("--pack", pack),
        **_speed(speedup),
        loops=loops,
        first=None if first is None else requests("--first", first),
        unit=unit,
        event=event,
        sort=sort,
    ).check()


def _speed(text: str) -> dict[str, Any]:
    """Of traces.Options, what --speedup says."""
    from flashfs.replay.points import speedup

    try:
        return speedup(text)
    except ValueError as error:
        raise UsageError(f"--speedup {text}: {error}, auto, or u=0.7 would do") from None


def requests(option: str, text: str) -> int:
    """A number of requests: k, M and G are thousands."""
    from flashfs.replay.workloads import count

    try:
        return count(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error} would do") from None


def device_size(size: str | None, preset: str | None) -> tuple[int | None, int]:
    """(bytes that the host sees, bytes of a page) of --size or --preset; no bytes if neither was given."""
    from nandimg.presets import PRESETS

    if preset is None:
        return (None if size is None else units.size("--size", size)), 4096
    if size is not None:
        raise UsageError("--preset and --size: one of them would do")
    if preset not in PRESETS:
        raise UsageError(f"--preset {preset}{meant(preset, PRESETS)}: {', '.join(PRESETS)} would do")
    geometry = PRESETS[preset].geometry
    return geometry.logical_bytes, geometry.page_bytes


@app.command("info")
def info(
    source: Source,
    format: Format = None,
    columns: Columns = None,
    size: Size = None,
    preset: Preset = None,
    page_size: PageSize = None,
    shift: Shift = "0",
    fit: Fit = "clip",
    pack: Pack = "1M",
    speedup: Speedup = "1",
    loops: Loops = 1,
    first: First = None,
    unit: Unit = None,
    event: Event = "D",
    sort: Sort = False,
    as_json: options.Json = False,
) -> None:
    """Requests, footprint, overwrites, sizes, times, alignment, duplicates, what could not be read, and a picture."""
    from flashfs.replay.sources import open_source
    from flashfs.replay.survey import survey
    from flashfs.replay.traces import named_by

    format = named_by(format, columns)
    chosen = trace_options(shift, fit, pack, speedup, loops, first, unit, event, sort)
    if chosen.utilisation is not None:
        raise UsageError(f"--speedup {speedup}: only a replay finds out; a factor would do")
    device, page = device_size(size, preset)
    page = page if page_size is None else units.size("--page-size", page_size)
    found = open_source(
        source, device or 1 << 30, page_bytes=page, options=chosen, format=format, fitted=device is not None
    )
    with show.working(f"reading {source}"):
        data = survey(found, page, columns=min(PICTURE_COLUMNS, max(16, show.console().width - LABEL_COLUMNS)))
    for line in found.complaints():
        show.warn(line)
    if as_json:
        show.result(data, as_json=True)
    else:
        tables(source, data)


def tables(title: str, data: dict[str, Any]) -> None:
    """For people."""
    made = data["source"]
    kind = f"{made['format']}{' (detected)' if made['detected'] else ''}" if "format" in made else made["canonical"]
    content = data["content"]
    arrival = data["interarrival_us"]
    show.tables(
        {
            "read as" if "format" in made else "workload": kind,
            **({"that is": made["certainty"]} if made.get("detected") else {}),
            "requests": data["requests"],
            "footprint": f"{data['footprint_pages']:,} pages, {units.shown(data['footprint_bytes'])}",
            "within": units.shown(data["span_bytes"]),
            "overwrite factor": data["overwrite_factor"],
            "unaligned to 4 KiB": f"{data['unaligned_requests']:,} ({data['unaligned_share']:.1%})",
            "they begin at sectors": ", ".join(f"{name}: {n:,}" for name, n in data["begin_in_4k"].items()),
            "duration": f"{data['duration_s']:,.3f} s" if data["timed"] else "not timed: the order counts",
            **(
                {"between requests": ", ".join(f"{name} {value:,.1f}" for name, value in arrival.items()) + " us"}
                if arrival and data["timed"]
                else {}
            ),
            **(
                {"duplicates": f"{content['duplicate_share']:.1%} of {content['hashed_4k_written']:,} written 4 KiB"}
                if content
                else {}
            ),
            **({"units": f"{data['units_total']}, behind each other"} if data["units_total"] > 1 else {}),
            **{f"skipped: {what}": n for what, n in data["skipped"].items()},
        },
        title,
    )
    show.rows(data["operations"])
    if data["sizes"]:
        show.rows([{"up to": units.shown(row.pop("up_to_bytes")), **row} for row in data["sizes"]])
    draw(data["picture"])


PICTURE_COLUMNS, LABEL_COLUMNS = 96, 13
COLOURS = {"read": "blue", "write": "red", "both": "magenta", "trim": "green"}


def draw(picture: dict[str, Any]) -> None:
    """Addresses upwards, time to the right."""
    from rich.text import Text

    from flashfs.replay.picture import shades

    grid = shades(picture)
    if not grid:
        return
    console = show.console()
    for number, row in enumerate(grid):
        label = units.shown(picture["bytes"]) if number == 0 else "0" if number == len(grid) - 1 else ""
        line = Text(f" {label:>10} ")
        for shade, kind in row:
            line.append(shade, style=COLOURS.get(kind, ""))
        console.print(line, no_wrap=True, crop=False)
    end = f"{picture['length']:,.3f} s" if picture["axis"] == "time" else f"{picture['length']:,} requests"
    legend = "; " + ", ".join(f"[{colour}]{kind}[/]" for kind, colour in COLOURS.items()) if console.is_terminal else ""
    pad = " " * max(1, len(grid[0]) - 1 - len(end))
    console.print(f" {'':>10} 0{pad}{end}", highlight=False, no_wrap=True, crop=False)
    console.print(f" {'':>10} darker: more bytes, logarithmically{legend}", no_wrap=True, crop=False)


@app.command("formats")
def formats(as_json: options.Json = False) -> None:
    """List the trace formats that can be read; docs/traces.md has their columns."""
    from flashfs.replay.traces import FORMATS

    show.result(
        [
            {"name": one.name, "also": ", ".join(one.aliases), "about": one.title, "unit": one.unit_is}
            for one in FORMATS
        ],
        as_json=as_json,
    )


@app.command("workloads")
def workloads(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show the keys of this one.")] = None,
    as_json: options.Json = False,
) -> None:
    """List the workloads, or the keys of one: name[:key=value,...]."""
    from flashfs.replay.workloads import WORKLOADS, Parameter, written

    if name is None:
        own = [
            {"name": one.name, "about": one.about, "own keys": ", ".join(key.name for key in one.parameters)}
            for one in WORKLOADS.values()
        ]
        show.result(own, as_json=as_json)
        return
    if name not in WORKLOADS:
        raise UsageError(f"workload {name}{meant(name, WORKLOADS)}: {', '.join(WORKLOADS)} would do")

    def row(one: Parameter) -> dict[str, str]:
        return {"key": one.name, "default": written(one.default), "about": one.help}

    keys = (*WORKLOADS[name].parameters, *WORKLOADS[name].shared)
    show.result([row(one) for one in keys], as_json=as_json, title=name)
