"""``flashfs recovery-model``: what a recovery costs on devices that no machine here holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flashfs.cli import options, show, units
from flashfs.errors import UsageError
from flashfs.formulas import FTLS, Chip, recovery

Sizes = Annotated[
    str, typer.Option("--capacity", metavar="SIZE,...", help="Flash, with its over-provisioning, as 1T,4T,16T.")
]
Ftls = Annotated[str, typer.Option("--ftl", metavar="NAME,...", help="These schemes.")]
ALL = ",".join(FTLS)
Share = Annotated[float, typer.Option(metavar="SHARE", help="How much of the flash the host sees.")]


def command(
    capacity: Sizes,
    ftl: Ftls = ALL,
    page_size: Annotated[str, typer.Option(metavar="SIZE", help="Bytes per page.")] = "4k",
    pages_per_block: Annotated[int, typer.Option(metavar="N", help="Pages per block.")] = 128,
    ratio: Share = 0.7,
    cache: Annotated[
        str, typer.Option(metavar="SIZE", help="Size of the cached mapping table, at 8 bytes per entry.")
    ] = "4M",
    dirty: Annotated[
        float, typer.Option(metavar="SHARE", help="How much of the cache may be dirty: lazyftl, ibftl.")
    ] = 0.1,
    log: Annotated[
        float, typer.Option(metavar="TIMES", help="Entries of ibftl's log, in pages beyond the logical ones.")
    ] = 2,
    parts: Annotated[int, typer.Option(metavar="N", help="Entries of Logarithmic Gecko per block.")] = 1,
    read_us: Annotated[float, typer.Option(metavar="US", help="Microseconds to read a page.")] = 100,
    spare_us: Annotated[float, typer.Option(metavar="US", help="Microseconds to read a spare area.")] = 3,
    program_us: Annotated[float, typer.Option(metavar="US", help="Microseconds to program a page.")] = 1000,
    as_json: options.Json = False,
) -> None:
    """Compute what a recovery costs on devices of any capacity.

    Operations and seconds by step and scheme, by the formulas of GeckoFTL's paper, one operation after another. DFTL
    and u-FTL have a battery there, which saves the steps that they lack.
    """
    chips = [
        Chip(
            capacity=units.size("--capacity", one), page_bytes=units.size("--page-size", page_size),
            pages_per_block=pages_per_block, ratio=ratio, cache_bytes=units.size("--cache", cache), dirty=dirty,
            log_share=log, parts=parts, read_ns=_ns("--read-us", read_us), spare_ns=_ns("--spare-us", spare_us),
            program_ns=_ns("--program-us", program_us),
        )
        for one in _names("--capacity", capacity, "1T,4T,16T")
    ]  # fmt: skip
    ftls = _names("--ftl", ftl, ALL)
    found = [_plain(name, chip) for chip in chips for name in ftls]
    if as_json:
        show.result(found, as_json=True)
        return
    for chip in chips:
        title = f"{units.shown(chip.capacity)}: {chip.blocks:,} blocks of {chip.pages_per_block} pages"
        show.rows([row for one in found if one["capacity"] == chip.capacity for row in _rows(one)], title)


def _names(option: str, text: str, example: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise UsageError(f"{option} {text}: name each once, with commas between them, as {example}")
    return names


def _ns(option: str, us: float) -> int:
    """UsageError if it is no time that a chip may take."""
    if not 0 < us < 1e9 or us * 1000 < 1:
        raise UsageError(f"{option} {us:g}: use microseconds, 0.001 or more")
    return round(us * 1000)


def _plain(ftl: str, chip: Chip) -> dict[str, Any]:
    steps = recovery.steps(ftl, chip)
    return {
        "ftl": ftl, "capacity": chip.capacity, "battery": ftl in recovery.BATTERY,
        "steps": [
            {"name": one.name, "about": one.about, "spare_reads": one.spare_reads, "reads": one.reads,
             "programs": one.programs, "seconds": round(one.seconds(chip), 6)}
            for one in steps
        ],
        "operations": sum(one.operations for one in steps), "seconds": round(recovery.seconds(ftl, chip), 6),
        "chip": chip.plain(),
    }  # fmt: skip


def _rows(one: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the table for people: the steps, and what they are together."""
    names = ("spare_reads", "reads", "programs")
    out = [
        {"ftl": one["ftl"], "step": step["name"], **{name: step[name] for name in names}, "seconds": step["seconds"],
         "what": step["about"]}
        for step in one["steps"]
    ]  # fmt: skip
    total = {name: sum(step[name] for step in one["steps"]) for name in names}
    what = "and what its battery saved" if one["battery"] else ""
    return [*out, {"ftl": one["ftl"], "step": "all", **total, "seconds": one["seconds"], "what": what}]
