"""Results side by side: a row for each figure, a column for each FTL, the others relative to one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flashfs.errors import UsageError
from flashfs.text import meant, shown

Result = dict[str, Any]
Figure = Callable[[Result], float | int | None]


def dig(*path: str) -> Figure:
    """The figure at ``path``; None where there is none."""

    def figure(result: Result) -> Any:
        found: Any = result
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    return figure


def moved(result: Result) -> int:
    """Pages that cleaning programmed."""
    return int(result["nand"]["by_cause"]["program"].get("gc", 0))


def holes(result: Result) -> float:
    """The share of the pages read that hold nothing."""
    return float(result["holes_read"] / result["host"]["read"]) if result["host"]["read"] else 0.0


def per_second(result: Result) -> float | None:
    return None if result["pages_per_s"] is None else result["pages_per_s"] / 1e6


#: (its name, how to get it from a result, how it is written, whether it is compared with the baseline's)
FIGURES: tuple[tuple[str, Figure, str, bool], ...] = (
    ("dies", dig("ground", "dies"), "count", False),
    ("channels", dig("ground", "channels"), "count", False),
    ("over-provisioning", dig("ground", "op"), "share", False),
    ("write buffer, pages", dig("ground", "buffer"), "count", False),
    ("stripe, pages", dig("ground", "stripe"), "count", False),
    ("wear spread, erases", dig("ground", "wear_spread"), "count", False),
    ("reserve, blocks", dig("ground", "gc_reserve"), "count", False),
    ("NVRAM of its own", dig("ground", "nvram"), "bytes", False),
    ("host pages read", dig("host", "read"), "count", False),
    ("host pages written", dig("host", "write"), "count", False),
    ("host pages trimmed", dig("host", "trim"), "count", False),
    ("host pages remapped", dig("host", "remap"), "count", False),
    ("flushes", dig("host", "flush"), "count", False),
    ("WAF", dig("waf"), "ratio", True),
    ("flash programs", dig("nand", "program"), "count", True),
    ("flash reads", dig("nand", "read"), "count", True),
    ("spare reads", dig("nand", "spare_read"), "count", True),
    ("erases", dig("nand", "erase"), "count", True),
    ("moved by cleaning", moved, "count", True),
    ("wear: mean erases", dig("wear", "erases", "mean"), "ratio", True),
    ("wear: most erases", dig("wear", "erases", "max"), "count", True),
    ("wear: most - least", dig("wear", "erases", "spread"), "count", True),
    ("mapping", dig("map_bytes"), "bytes", True),
    ("DRAM in all", dig("dram", "total"), "bytes", True),
    ("cache hits", dig("cache", "hit_ratio"), "share", True),
    ("read, mean us", dig("latency_us", "read", "mean"), "ratio", True),
    ("read, p99 us", dig("latency_us", "read", "p99"), "ratio", True),
    ("read, p99.9 us", dig("latency_us", "read", "p999"), "ratio", True),
    ("write, mean us", dig("latency_us", "write", "mean"), "ratio", True),
    ("write, p99 us", dig("latency_us", "write", "p99"), "ratio", True),
    ("write, p99.9 us", dig("latency_us", "write", "p999"), "ratio", True),
    ("trim, mean us", dig("latency_us", "trim", "mean"), "ratio", False),
    ("remap, mean us", dig("latency_us", "remap", "mean"), "ratio", False),
    ("flush, mean us", dig("latency_us", "flush", "mean"), "ratio", True),
    ("IOPS", dig("iops"), "rate", True),
    ("dies busy", dig("utilisation", "dies", "mean"), "share", True),
    ("channels busy", dig("utilisation", "channels", "mean"), "share", True),
    ("virtual s", dig("virtual_s"), "ratio", True),
    ("unreadable", dig("unreadable"), "count", False),
    ("holes read", dig("holes_read"), "count", False),
    ("M host pages/s here", per_second, "ratio", False),
)


def written(value: float | int | None, how: str) -> str:
    """One figure as text; "-" for None. ``how`` is bytes, share, count, rate or ratio."""
    if value is None:
        return "-"
    if how == "bytes":
        return shown(int(value))
    if how == "share":
        return f"{100 * value:.1f} %"
    if how == "count":
        return f"{value:,}"
    if how == "rate":
        return f"{value:,.0f}"
    return f"{value:,.3f}" if value < 100 else f"{value:,.1f}"


def side_by_side(results: Sequence[Result], baseline: str | None = None) -> list[dict[str, str]]:
    """Rows of one source's results. Figures that are 0 or missing everywhere are left out; those of an FTL other than
    the baseline (the first, unless named) are followed by their ratio to the baseline's."""
    names = [result["ftl"] for result in results]
    base = results[names.index(baseline)] if baseline in names else results[0]
    if baseline is not None and baseline not in names:
        raise UsageError(f"--baseline {baseline}{meant(baseline, names)}: use {', '.join(names)}")
    rows = []
    for name, figure, how, comparable in FIGURES:
        values = [figure(result) for result in results]
        if not any(values):
            continue
        row = {"": name}
        for result, value in zip(results, values, strict=True):
            text = written(value, how)
            reference = figure(base)
            if comparable and result is not base and value is not None and reference:
                text += f" ({value / reference:.2f} x)"
            row[result["ftl"]] = text
        rows.append(row)
    return rows


def own(results: Sequence[Result]) -> list[dict[str, str]]:
    """Rows of the schemes' own figures that are one number or word; those that none of them counted are left out."""
    names = dict.fromkeys(
        name for result in results for name, value in result["scheme"].items() if value and not isinstance(value, list)
    )
    return [
        {"": name.replace("_", " ")} | {result["ftl"]: _said(result["scheme"].get(name)) for result in results}
        for name in names
    ]


def _said(value: Any) -> str:
    if isinstance(value, int | float):
        return written(value, "count" if isinstance(value, int) else "ratio")
    return "-" if value is None else str(value)
