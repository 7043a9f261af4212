"""``flashfs trace``: what is in a trace or a workload, and what there is to read and to make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import complete, examples, help, options, show, units
from flashfs.errors import UsageError
from flashfs.text import meant

if TYPE_CHECKING:
    from flashfs.replay.traces import Options

app = typer.Typer(
    help="Show what is in a trace or a workload, and which there are.",
    cls=help.Group,
    epilog=examples.of("trace"),
    no_args_is_help=True,
)

# The same for every command that takes traces.
Source = Annotated[
    str, typer.Argument(metavar="FILE|WORKLOAD", help="A trace, packed or not, or a workload: name[:key=value,...].")
]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Read the trace as this format (see flashfs trace formats).",
        autocompletion=complete.formats,
    ),
]  # fmt: skip
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Read the trace as a table of these: time:s|ms|us|ns, dev, offset:BYTES, length:BYTES, "
        "op:VALUE=OPERATION,..., and - for any other. Example: time:ms,dev,offset:512,length:4096,op:1=read.",
    ),
]
Shift = Annotated[
    str, typer.Option(metavar="SIZE", help="Add this to each offset of a trace; -3584 brings sector 7 to 0.")
]
Fit = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        help="How a trace is put on the device. clip: reject what lies beyond it. wrap: modulo its size. scale: by the "
        "ratio of the two sizes. pack: leave out what is never touched.",
    ),
]
Pack = Annotated[
    str,
    typer.Option(
        metavar="SIZE", help="How much --fit pack keeps or leaves out together: 4k to 1M. 4k gives the footprint."
    ),
]
Speedup = Annotated[
    str,
    typer.Option(
        metavar="FACTOR|auto|u=SHARE",
        help="Divide the times of a trace by FACTOR. u=SHARE: by the factor that keeps the dies (or channels) of a "
        "page map busy for that share of the time. auto: u=0.7.",
    ),
]
Loops = Annotated[int, typer.Option(metavar="N", help="Replay a trace N times, one after the other.")]
First = Annotated[str | None, typer.Option(metavar="N", help="Only the first N requests of a trace (of each loop).")]
Unit = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Only this disk, volume or file of a trace. Default: all of them, one after the other."
    ),
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
        help="The size of the device. Default: 1G for a workload; a trace is not fitted to a device.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The device by name (see flashfs presets).", autocompletion=complete.presets),
]
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
    from flashfs.replay.grid import speedup

    try:
        return speedup(text)
    except ValueError as error:
        raise UsageError(f"--speedup {text}: use {error}, auto or u=0.7") from None


def requests(option: str, text: str) -> int:
    """A number of requests: k, M and G are thousands."""
    from flashfs.replay.workloads import count

    try:
        return count(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: use {error}") from None


def device_size(size: str | None, preset: str | None) -> tuple[int | None, int]:
    """(bytes that the host sees, bytes of a page) of --size or --preset; no bytes if neither was given."""
    from nandimg.presets import PRESETS

    if preset is None:
        return (None if size is None else units.size("--size", size)), 4096
    if size is not None:
        raise UsageError("--preset and --size: use one of them")
    if preset not in PRESETS:
        raise UsageError(f"--preset {preset}{meant(preset, PRESETS)}: no such preset; see flashfs presets")
    geometry = PRESETS[preset].geometry
    return geometry.logical_bytes, geometry.page_bytes


@app.command("info", cls=help.Command, epilog=examples.of("trace info"))
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
    """Show what is in a trace or a workload.

    Requests, footprint, overwrites, sizes, times, alignment, duplicates, what could not be read, and a picture.
    """
    from flashfs.replay.open_source import open_source
    from flashfs.replay.survey import survey
    from flashfs.replay.traces import named_by

    format = named_by(format, columns)
    chosen = trace_options(shift, fit, pack, speedup, loops, first, unit, event, sort)
    if chosen.utilisation is not None:
        raise UsageError(f"--speedup {speedup}: only a replay finds that factor; name one")
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
            **({"units": f"{data['units_total']}, one after the other"} if data["units_total"] > 1 else {}),
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


@app.command("formats", cls=help.Command, epilog=examples.of("trace formats"))
def formats(as_json: options.Json = False) -> None:
    """List the trace formats that can be read."""
    from flashfs.replay.traces import FORMATS

    show.result(
        [
            {"name": one.name, "also": ", ".join(one.aliases), "about": one.title, "unit": one.unit_is}
            for one in FORMATS
        ],
        as_json=as_json,
    )


@app.command("workloads", cls=help.Command, epilog=examples.of("trace workloads"))
def workloads(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show the keys of this one.", autocompletion=complete.workloads),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the workloads, or the keys of one.

    A workload is written NAME[:KEY=VALUE,...].
    """
    from flashfs.replay.workloads import WORKLOADS, Parameter, written

    if name is None:
        own = [
            {"name": one.name, "about": one.about, "own keys": ", ".join(key.name for key in one.parameters)}
            for one in WORKLOADS.values()
        ]
        show.result(own, as_json=as_json)
        return
    if name not in WORKLOADS:
        raise UsageError(f"workload {name}{meant(name, WORKLOADS)}: no such workload; use {', '.join(WORKLOADS)}")

    def row(one: Parameter) -> dict[str, str]:
        return {"key": one.name, "default": written(one.default), "about": one.help}

    keys = (*WORKLOADS[name].parameters, *WORKLOADS[name].shared)
    show.result([row(one) for one in keys], as_json=as_json, title=name)
