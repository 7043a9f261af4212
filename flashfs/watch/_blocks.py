"""The block map on a terminal: one cell per block, or per several blocks where there are more of them than cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from flashfs.watch._look import Look

BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "12345678"  #: where a terminal has ASCII alone
# From few valid pages, which cleaning looks for, to all valid. Distinct also for people who see no red or green.
RAMP = ("#fde725", "#b5de2b", "#6ece58", "#35b779", "#1f9e89", "#26828e", "#3e6f9e", "#5560a8")
OPEN = "bold #ff8c42"
# What is shown of a cell that has no data: (cell, where a terminal has ASCII alone, style), by state.
MARKS = {
    "free": ("·", ".", "#6b7280"), "pending": ("∘", "o", "#9aa0aa"), "meta": ("▒", "m", "#c77dd8"),
    "bad": ("×", "x", "bold #ff4d5e"),
}  # fmt: skip
WORDS = {"meta": "log"}
LABEL = "#8a8f98"
BORDERS = 2  #: lines, and as many columns with the blanks inside
SIDES = 4


class BlockMap:
    """The blocks of one look."""

    def __init__(self, now: Look) -> None:
        self._states: list[str] = [str(state) for state in now.map["states"]]
        self._state = now.blocks["state"]
        self._valid = now.blocks["valid"]
        self._per_block = max(1, now.map["pages_per_block"])
        self._blocks = len(self._state)

    def frame_lines(self, console: Console, options: ConsoleOptions) -> int:
        """Lines that the panel takes beside the map itself."""
        inside = options.update(width=max(1, options.max_width - SIDES), height=None)
        return BORDERS + len(console.render_lines(Legend(self._counts()), inside))

    def lines(self, width: int) -> int:
        """Lines that the map would take with a cell for each block."""
        return -(-self._blocks // max(1, width - SIDES))

    def panel(self, width: int, lines: int) -> Panel:
        """The map in at most ``lines`` lines, its legend below."""
        columns = max(1, width - SIDES)
        each = -(-self._blocks // (columns * max(1, lines)))
        title = f"{self._blocks:,} blocks of {self._per_block} pages"
        title += "" if each == 1 else f", {each:,} in a cell: the mean of those in use"
        inside = Group(Cells(*self._cells(each)), Legend(self._counts()))
        return Panel(
            Padding(inside, (0, 1)), title=Text(title, "bold default"), title_align="left", box=box.ROUNDED,
            border_style="#5a606b", padding=0,
        )  # fmt: skip

    def _counts(self) -> dict[str, int]:
        return {name: int(n) for name, n in zip(self._states, np.bincount(self._state, minlength=len(self._states)),
                                                strict=True)}  # fmt: skip

    def _cells(self, each: int) -> tuple[list[str], NDArray[np.float64]]:
        """(state, share of valid pages) of each cell. Data outweigh the log, which outweighs what holds nothing; a
        bad block among good ones shows in the legend's count alone."""
        starts = np.arange(0, self._blocks, each)

        def of(state: str) -> NDArray[np.int64]:
            is_it = self._state == self._states.index(state) if state in self._states else np.zeros(self._blocks, bool)
            return np.add.reduceat(is_it.astype(np.int64), starts)

        opened, closed, meta, bad, pending = (of(state) for state in ("open", "closed", "meta", "bad", "pending"))
        used = opened + closed
        valid = np.add.reduceat(self._valid.astype(np.float64), starts)
        share = np.minimum(valid / np.maximum(1, used * self._per_block), 1.0)
        names = np.select(
            [opened > 0, closed > 0, meta > 0, bad > 0, pending > 0],
            ["open", "closed", "meta", "bad", "pending"],
            "free",
        )
        return names.tolist(), share


class Cells:
    """The map itself, as many cells in a line as there is room for."""

    def __init__(self, states: list[str], share: NDArray[np.float64]) -> None:
        self._states = states
        self._share = share

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = options.ascii_only
        bars = PLAIN_BARS if plain else BARS
        step = np.minimum((self._share * len(bars)).astype(int), len(bars) - 1)
        for start in range(0, len(self._states), options.max_width):
            line = Text(no_wrap=True)
            for state, height in zip(self._states[start : start + options.max_width],
                                     step[start : start + options.max_width], strict=True):  # fmt: skip
                if state in MARKS:
                    mark, ascii_mark, style = MARKS[state]
                    line.append(ascii_mark if plain else mark, style)
                else:
                    line.append(bars[height], OPEN if state == "open" else RAMP[height])
            yield line


class Legend:
    """What the cells mean, and how many blocks there are of each kind."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        items = [self._scale(options.ascii_only), self._item("open", BARS[5], PLAIN_BARS[5], OPEN, options.ascii_only)]
        items += [self._item(state, *mark, options.ascii_only) for state, mark in MARKS.items()]
        line = Text(no_wrap=True, overflow="crop")
        for item in items:
            if line and line.cell_len + item.cell_len + 3 > options.max_width:
                yield line
                line = Text(no_wrap=True, overflow="crop")
            line.append("   " if line else "").append(item)
        yield line

    def _scale(self, plain: bool) -> Text:
        said = Text("valid 0 ", LABEL)
        for bar, colour in zip(PLAIN_BARS if plain else BARS, RAMP, strict=True):
            said.append(bar, colour)
        return said.append(f" 100 %  {self._counts.get('closed', 0):,} closed", LABEL)

    def _item(self, state: str, mark: str, ascii_mark: str, style: str, plain: bool) -> Text:
        said = Text().append(ascii_mark if plain else mark, style)
        return said.append(f" {self._counts.get(state, 0):,} {WORDS.get(state, state)}", LABEL)
