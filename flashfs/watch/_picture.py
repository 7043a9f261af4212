"""Draws figures and blocks on a terminal: what fits, in as many columns as there is width for.

The panels of a column are in the order of their importance. On a terminal that is too low for all, the last ones become
a line each; the block map takes the lines that are left, and a few in any case. Nothing is shown by colour alone: the
height of a block's bar shows how much of it is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from flashfs.text import printable, shown
from flashfs.watch._blocks import BlockMap
from flashfs.watch._figures import DATA_STATES, REQUESTS
from flashfs.watch._look import Look

HOST_COLUMNS = 44  #: characters that the host's panel takes beside the curves
TWO_COLUMNS = 92  #: characters from which panels stand side by side
MAP_LINES_MOST = 16  #: of the block map where nothing limits the height, as in a file
MAP_LINES_LEAST = 2  #: ... and where the terminal is low
LIST_MOST = 6  #: lines of a list that may have many
HISTORY = 60  #: looks that the little curves go back at most
FILLS = "█▓▒░"  #: of a divided bar, the greatest part first
CURVE = " ▁▂▃▄▅▆▇█"
CAUSE_STYLES = {
    "host": "#4c9be8", "gc": "#e8a33d", "wear": "#b07cd8", "checkpoint": "#5fb48b", "trim": "#d8c25f",
    "retire": "#d8596b",
}  # fmt: skip
OTHER_CAUSES = "#8a8f98"
TITLE = "bold default"
LABEL, WARNING = "#8a8f98", "bold #d8596b"


class Picture:
    """One picture of a mount: ``found`` as `figures` made it, the blocks of ``now``, and earlier figures for the
    curves, oldest first. ``note`` is shown at the upper right."""

    def __init__(
        self, found: dict[str, Any], now: Look, history: Sequence[dict[str, Any]] = (), note: str = ""
    ) -> None:
        self._found = found
        self._history = list(history)[-HISTORY:] or [found]
        self._map = BlockMap(now)
        self._note = note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height
        head, columns = [self._head(width), *self._alarms()], self._columns(width, height is None)
        if height is None:
            yield from (*head, beside(columns), self._map.panel(width, MAP_LINES_MOST))
            return

        def lines(part: RenderableType) -> int:
            each = options.update(width=width // len(columns), height=None)
            return len(console.render_lines(part, each))

        frame = self._map.frame_lines(console, options)
        least = frame + min(self._map.lines(width), MAP_LINES_LEAST)
        left = height - len(head)
        above = [list(taken(column, left - least, lines)) for column in columns]
        yield from head[:height]
        if any(above):
            yield beside(above)
            left -= max(sum(map(lines, column)) for column in above)
        missing = [part for column, whole in zip(above, columns, strict=True) for part in whole[len(column) :]]
        short = self._short(missing)[: max(0, left - least)]
        yield from short
        left -= len(short)
        if left > frame:
            yield self._map.panel(width, left - frame)

    def _short(self, panels: Sequence[Panel]) -> list[Text]:
        """A line for each of these panels."""
        cleaning, wear, dram = self._found["cleaning"], self._found["wear"], self._found["dram"]["total"]
        said = {
            "cleaning and wear": f"{rate(cleaning['programs_per_s'])} GC programs/s, {rate(cleaning['victims_per_s'])} "
            f"victims/s, {count(wear['min'])} to {count(wear['max'])} erases, {self._found['free_blocks']:,} free",
            "DRAM": f"{shown(dram['packed'])} packed, {shown(dram['allocated'])} allocated",
            self._found["ftl"]: ", ".join(
                f"{name} {count(value)}".replace("_", " ") for name, value in self._found["scheme"].items()
            ),
        }
        texts = []
        for one in panels:
            title = str(one.title)
            texts.append(Text(no_wrap=True, overflow="ellipsis"))
            texts[-1].append(f" {title}  ", TITLE).append(printable(said.get(title, "")), LABEL)
        return texts

    def _columns(self, width: int, roomy: bool) -> list[list[Panel]]:
        """What is above the block map: one column, or two."""
        host, writes, cleaning = self._host(width), self._writes(), self._cleaning()
        dram, scheme = self._dram(roomy), self._scheme(roomy)
        if width < TWO_COLUMNS:
            return [[host, writes, cleaning, dram, scheme]]
        return [[host, cleaning, scheme], [writes, dram]]

    # --- the parts

    def _head(self, width: int) -> Text:
        found = self._found
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f" {printable(found['mountpoint'])}", "bold")
        line.append(f"  {printable(found['ftl'])}", "bold #4c9be8")
        line.append(f" on {printable(str(found['image'] or 'memory'))}, {shown(found['size'])}", LABEL)
        line.append(f", {printable(found['server'])}, up {clock(found['uptime_s'])}", LABEL)
        if self._note:
            line.truncate(max(0, width - len(self._note) - 2), overflow="ellipsis", pad=True)
            line.append(f" {self._note}", LABEL)
        return line

    def _alarms(self) -> list[RenderableType]:
        """Only problems: one line each, usually none."""
        health = self._found["health"]
        said = [f"the device takes no more changes: {health['failed']}"] if health["failed"] else []
        said += [health["host_disk"]] if health["host_disk"] else []
        said += [f"{health[name]:,} pages {name}" for name in ("unreadable", "lost") if health[name]]
        said += [str(alarm) for alarm in health["alarms"]][:3]
        return [Text(f" {printable(one)}", WARNING, no_wrap=True, overflow="ellipsis") for one in said]

    def _host(self, width: int) -> Panel:
        found, room = self._found["host"], (width // 2 if width >= TWO_COLUMNS else width) - HOST_COLUMNS
        wide = room >= 12
        table = grid(["left", "right", "right", "right", *(["left"] if wide else [])])
        table.add_row(*(Text(name, LABEL) for name in ("", "IOPS", "MB/s", "request", "recent MB/s")[: 4 + wide]))
        for kind in REQUESTS:
            row, moved, each = found[kind], found[kind].get("bytes_per_s"), found[kind].get("bytes_each")
            curve = [then["host"][kind].get("bytes_per_s") or 0.0 for then in self._history]
            cells = [kind, rate(row["iops"]), "" if kind == "flush" else rate(moved, 1e6)]
            cells.append("" if each is None else shown(round(each)))
            table.add_row(*cells, *([Text(sparkline(curve[-room:]), "#4c9be8")] if wide else []))
        table.add_row("queue", str(self._found["queue"]), *([""] * (2 + wide)))
        return panel("host", table)

    def _writes(self) -> Panel:
        waf, causes = self._found["waf"], self._found["programs_by_cause"]
        line = Text.assemble(
            ("WAF  ", LABEL), (ratio(waf["interval"]), "bold"), (" now    ", LABEL), (ratio(waf["total"]), "bold"),
            (" since the mount", LABEL),
        )  # fmt: skip
        rates = {cause: each for cause, each in causes.items() if each}
        said = Text()
        for index, (cause, each) in enumerate(ranked(rates)):
            said.append(FILLS[min(index, len(FILLS) - 1)] * 2, CAUSE_STYLES.get(cause, OTHER_CAUSES))
            said.append(f" {printable(cause)} {rate(each)}   ")
        if not rates:
            said.append("no page was programmed", LABEL)
        return panel("programs per second, by cause", Group(line, Shares(rates), said))

    def _cleaning(self) -> Panel:
        found, wear, pool = self._found["cleaning"], self._found["wear"], self._found["pool"]
        table = grid(["left", "right", "left", "right"])
        used = sum(pool.get(state, 0) for state in DATA_STATES)
        rows = [
            ("GC programs/s", rate(found["programs_per_s"]), "erases: min", count(wear["min"])),
            ("GC reads/s", rate(found["reads_per_s"]), "mean", count(wear["mean"])),
            ("victims/s", rate(found["victims_per_s"]), "max", count(wear["max"])),
            ("pages/victim", count(found["pages_per_victim"]), "spread", count(wear["spread"])),
            ("erases/s", rate(self._found["flash"]["erase"]), "bad blocks", count(wear["bad_blocks"])),
            ("free blocks", f"{self._found['free_blocks']:,}", "in use", f"{used:,}"),
        ]
        for left, one, right, other in rows:
            table.add_row(Text(left, LABEL), one, Text(f"  {right}", LABEL), other)
        return panel("cleaning and wear", table)

    def _dram(self, roomy: bool) -> Panel:
        """The largest structures; where there is little room, the others in one line."""
        table = grid(["left", "right", "right"])
        table.add_row("", Text("packed", LABEL), Text("allocated", LABEL))
        held = sorted(self._found["dram"].items(), key=lambda item: (item[0] == "total", -item[1]["packed"]))
        most = len(held) if roomy else LIST_MOST
        rows, rest = held[: most - 1], held[most - 1 : -1]
        if rest:
            both = {name: sum(sizes[name] for _, sizes in rest) for name in ("packed", "allocated")}
            rows.append((f"{len(rest)} others", both))
        for name, sizes in [*rows, *held[-1:]] if rest or not roomy else held:
            style = "bold" if name == "total" else ""
            texts = [Text(shown(sizes[which]), style) for which in ("packed", "allocated")]
            table.add_row(Text(printable(name.replace("_", " ")), style or LABEL), *texts)
        return panel("DRAM", table)

    def _scheme(self, roomy: bool) -> Panel:
        table = grid(["left", "right"])
        figures = list(self._found["scheme"].items())
        most = len(figures) if roomy else LIST_MOST
        for name, value in figures[:most]:
            table.add_row(Text(printable(str(name)).replace("_", " "), LABEL), count(value))
        if len(figures) > most:
            table.add_row(Text(f"and {len(figures) - most} more", LABEL), "")
        return panel(self._found["ftl"], table)


# --- how things are put and written


class Shares:
    """A bar of the full width, divided as the parts are."""

    def __init__(self, parts: dict[str, float]) -> None:
        self._parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        total, done, said = sum(self._parts.values()), 0.0, Text(no_wrap=True)
        for index, (cause, part) in enumerate(ranked(self._parts)):
            start = round(done / total * options.max_width)
            done += part
            mark = "#=-" if options.ascii_only else FILLS
            style = CAUSE_STYLES.get(cause, OTHER_CAUSES)
            said.append(mark[min(index, len(mark) - 1)] * (round(done / total * options.max_width) - start), style)
        yield said


def ranked(parts: dict[str, float]) -> list[tuple[str, float]]:
    """The greatest first."""
    return sorted(parts.items(), key=lambda item: (-item[1], item[0]))


def taken(column: Iterable[Panel], room: int, lines: Callable[[RenderableType], int]) -> Iterator[Panel]:
    """The panels of a column, as long as they fit into so many lines."""
    for part in column:
        room -= lines(part)
        if room < 0:
            return
        yield part


def beside(columns: Sequence[Sequence[Panel]]) -> Table:
    """Columns of one width."""
    table = Table.grid(expand=True, padding=0)
    for _ in columns:
        table.add_column(ratio=1)
    table.add_row(*(Group(*column) for column in columns))
    return table


def panel(title: str, inside: RenderableType) -> Panel:
    return Panel(
        Padding(inside, (0, 1)), title=Text(printable(title), TITLE), title_align="left", box=box.ROUNDED,
        border_style="#5a606b", padding=0,
    )  # fmt: skip


def grid(columns: Sequence[Any]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), expand=False)
    for justify in columns:
        table.add_column(justify=justify, no_wrap=True)
    return table


def sparkline(values: Sequence[float]) -> str:
    """The values as a curve of one line, its top the greatest of them."""
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    return "".join(CURVE[-(-int(8 * 1000 * value / top) // 1000)] for value in values)


def rate(value: float | None, unit: float = 1.0) -> str:
    """So many per second; one digit after the point where it matters."""
    if value is None:
        return "-"
    value /= unit
    return f"{value:,.1f}" if 0 < abs(value) < 100 else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def count(value: Any) -> str:
    """One figure of a scheme, of any type."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return printable(str(value))[:40]
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def clock(seconds: float) -> str:
    """Hours, minutes, seconds."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
