"""Prints what a command found: as tables for people, or as JSON for programs."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flashfs.text import printable

PICTURE_COLUMNS = 120  # a picture in a pipe has no width of its own
PIPE_COLUMNS = 1000  # a table in a pipe is not folded: programs that read it look for whole lines
LIST_COLUMNS = 100  # a longer list is a table of its own
NAME_COLUMNS = 20  # what is no longer is not folded, as far as a terminal has room for that
TEXT_COLUMNS = 16  # that are left for each column of longer texts
WHOLE = ("/", "flashfs ")  # a path and a command, which are copied, blanks and all
FEW_ROWS = 2  # a table of so few that is too wide becomes a record for each
EDGES = 2  # columns left and right of a table
GAPS = (3, 2)  # between two of its columns: one or the other, as it fits


def console(stderr: bool = False) -> Console:
    """Where to print now; made each time, because tests and daemons replace the streams."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_COLUMNS
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def result(data: Any, *, as_json: bool, title: str = "") -> None:
    """Print ``data``, which a library function made of plain dicts and lists, as JSON or as tables."""
    if as_json:
        print(json.dumps(data, indent=2, default=str))
    else:
        tables(data, title)


def json_rows(data: Iterable[Mapping[str, Any]]) -> None:
    """As ``result`` prints a list of dicts as JSON, but one after the other: for millions of them."""
    begin = "["
    for row in data:
        print(begin, textwrap.indent(json.dumps(row, indent=2, default=str), "  "), sep="\n", end="")
        begin = ","
    print("\n]" if begin == "," else "[]")


def tables(data: Any, title: str = "") -> None:
    """A dict is a table of its fields, a list of dicts a table with a row each; what is nested follows as its own. Of
    what is empty a line says so."""
    if isinstance(data, Mapping | list) and not data:
        line(f"{title}: none" if title else "none")
    elif isinstance(data, Mapping):
        flat, nested = split(data)
        if flat:
            rows([{"field": key, "value": value} for key, value in flat.items()], title, head=False)
            title = ""
        for key, value in nested.items():
            tables(value, f"{title}: {key}" if title else key)
    elif is_rows(data):
        rows(data, title)
    else:
        rows(
            [{"value": value} for value in data] if isinstance(data, Sequence) else [{"value": data}], title, head=False
        )


def split(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what fits in one line, what needs a table of its own). A small dict of numbers becomes dotted fields."""
    flat: dict[str, Any] = {}
    nested: dict[str, Any] = {}
    for key, value in data.items():
        if is_rows(value) or (isinstance(value, list) and len(cell(value)) > LIST_COLUMNS):
            nested[key] = value
        elif isinstance(value, Mapping):
            inner, deeper = split(value)
            flat.update({f"{key}.{name}": item for name, item in inner.items()})
            nested.update({f"{key}.{name}": item for name, item in deeper.items()})
        else:
            flat[key] = value
    return flat, nested


def is_rows(value: Any) -> bool:
    """True for a list of dicts that is not empty."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def rows(data: Sequence[Mapping[str, Any]], title: str = "", *, head: bool = True) -> None:
    """One table; numbers to the right, columns in the order in which they first appear. Where the terminal is too
    narrow for it, several with some of the columns each; or, if there are long texts in it or few rows, a record for
    each row. No word is ever broken, so that what is copied is whole."""
    names = list(dict.fromkeys(name for row in data for name in row))
    columns = [Column.of(data, name, head) for name in names]
    width = console().width
    if columns and gap_of(columns, width):
        draw(columns, title, head)
    elif not head:
        record(columns, title, width)
    elif len(data) <= FEW_ROWS or any(column.is_text for column in columns):
        for i, row in enumerate(data):
            rows([{"field": name.replace("_", " "), "value": row.get(name, "")} for name in names],
                 "" if i else title, head=False)  # fmt: skip
    else:
        for part in parted(columns, width):
            draw(part, title, head, gaps=False)
            title = ""


@dataclass(frozen=True, slots=True)
class Column:
    """Of a table: its name, its cells, and how wide it is, with all of it in one line and at least."""

    name: str
    cells: list[str]
    numbers: bool
    most: int
    least: int

    @classmethod
    def of(cls, data: Sequence[Mapping[str, Any]], name: str, head: bool) -> Column:
        cells = [cell(row.get(name, "")) for row in data]
        shown = escape(printable(name.replace("_", " "))) if head else ""
        longest = max((width_of(text) for text in cells), default=0)
        words = max((width_of(word) for text in (shown, *cells) for word in text.split()), default=0)
        return cls(
            shown, cells, head and all(isinstance(row.get(name, 0), int | float) for row in data),
            most=max(longest, width_of(shown)),
            least=max(words, longest if longest <= NAME_COLUMNS else TEXT_COLUMNS),
        )  # fmt: skip

    @property
    def is_text(self) -> bool:
        """It has what may be folded."""
        return any(width_of(text) > NAME_COLUMNS for text in self.cells)


def width_of(text: str) -> int:
    """Columns of a text with markup."""
    return Text.from_markup(text).cell_len


def gap_of(columns: Sequence[Column], width: int) -> int:
    """How far from each other the columns of a table are that is not wider than that; 0 if they do not fit at all."""
    least = sum(column.least for column in columns) + EDGES
    return next((gap for gap in GAPS if least + gap * (len(columns) - 1) <= width), 0)


def parted(columns: Sequence[Column], width: int) -> Iterator[Sequence[Column]]:
    """As many columns at a time as fit, the first one with all of them."""
    first, *rest = columns
    while rest:
        n = next((n for n in range(len(rest), 1, -1) if gap_of([first, *rest[:n]], width)), 1)
        yield [first, *rest[:n]]
        rest = rest[n:]


def shared(columns: Sequence[Column], room: int) -> list[int]:
    """The width of each column: what is left of ``room`` goes to those that want least of it first."""
    widths = [column.least for column in columns]
    left = room - sum(widths)
    wanting = sorted(range(len(columns)), key=lambda i: columns[i].most - widths[i])
    for turn, i in enumerate(wanting):
        more = max(0, min(columns[i].most - widths[i], left // (len(columns) - turn)))
        widths[i] += more
        left -= more
    return widths


def draw(columns: Sequence[Column], title: str, head: bool, gaps: bool = True) -> None:
    """One table of these columns, as narrow as its cells allow, and not wider than the terminal; without ``gaps`` no
    row of which the first cell alone says something."""
    on = console()
    gap = gap_of(columns, on.width) or GAPS[-1]
    if title:  # not the table's own, which would be folded to its width, in the middle of a path
        on.print(Text(printable(title), style="table.title"), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, show_header=head, pad_edge=False, padding=(0, 1, 0, gap - 2))
    widths = shared(columns, on.width - EDGES - gap * (len(columns) - 1))
    fits = sum(widths) + EDGES + gap * (len(columns) - 1) <= on.width
    for column, width in zip(columns, widths, strict=True):
        side: Literal["left", "right"] = "right" if column.numbers else "left"
        table.add_column(column.name, justify=side, overflow="fold", width=width if fits else None)
    for line in zip(*(column.cells for column in columns), strict=True):
        if gaps or set(line[1:]) - {"-", ""}:
            table.add_row(*line)
    if sys.stdout.isatty():
        on.print(table)
        return
    with on.capture() as drawn:
        on.print(table)
    for text in drawn.get().splitlines():  # without what fills a line up to the table's width
        text = text.rstrip()
        print(text if text.strip("─ ") else text[:PICTURE_COLUMNS])


def record(columns: Sequence[Column], title: str, width: int) -> None:
    """A line for each name and its value, of which one is too long for a table: it goes on below itself, word by word,
    and what has no blanks, a path or a command goes over the edge in one piece."""
    names, *values = ([Text.from_markup(text).plain for text in column.cells] for column in columns)
    indent = max(map(len, names), default=0) + GAPS[0]
    print(f"\n {printable(title)}" if title else "")
    for name, *cells in zip(names, *values, strict=True):
        text = (" " * GAPS[0]).join(cells)
        room = max(TEXT_COLUMNS, width - indent - EDGES)
        folded = [] if text.startswith(WHOLE) else textwrap.wrap(
            text, room, break_long_words=False, break_on_hyphens=False)  # fmt: skip
        for i, part in enumerate(folded or [text]):
            print(f" {'' if i else name:<{indent}}{part}".rstrip())
    sys.stdout.flush()


def cell(value: Any) -> str:
    """One value in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, bytes):
        return value.hex(" ")
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value) or "none"
    return escape(printable(str(value)))


def picture(drawn: Any) -> None:
    """Something that rich draws, as wide as the terminal."""
    on = console()
    on.print(drawn, width=None if on.is_terminal else PICTURE_COLUMNS)
    sys.stdout.flush()


def line(text: str) -> None:
    """One line for people, which may be copied: only the terminal breaks it, and knows that it is one."""
    print(printable(text))


def prose(text: str) -> None:
    """As ``line``, of words that nobody copies: they are folded to the terminal."""
    for part in textwrap.wrap(printable(text), console().width, break_long_words=False, break_on_hyphens=False):
        print(part)


def warn(text: str) -> None:
    """One line on stderr for something that did not stop the command."""
    print(f"flashfs: {printable(text)}", file=sys.stderr)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show on a terminal that ``text`` is under way, and take it away again."""
    with progressing(text):
        yield


@contextmanager
def progressing(text: str) -> Iterator[Callable[[float], None]]:
    """The same; what is yielded may be told how much of it is done, from 0 to 1."""
    said = escape(printable(text))
    with console(stderr=True).status(said) as status:
        yield lambda share: status.update(f"{said}: {share:.0%}")
