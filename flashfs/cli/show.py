"""Prints what a command found: as tables for people, or as one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flashfs.plain import printable

PICTURE_COLUMNS = 120  # a picture in a pipe has no width of its own
PIPE_COLUMNS = 1000  # a table in a pipe is not folded: whoever reads it there looks for whole lines
LIST_COLUMNS = 100  # a longer list is a table of its own
NAME_COLUMNS = 20  # what is no longer is not folded, as far as a terminal has room for that
TEXT_COLUMNS = 16  # that are left for each column of longer texts


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


def tables(data: Any, title: str = "") -> None:
    """A dict is a table of its fields, a list of dicts a table with a row each; what is nested follows as its own."""
    if isinstance(data, Mapping):
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
    """One table; numbers to the right, columns in the order in which they first appear."""
    names = list(dict.fromkeys(name for row in data for name in row))
    title = escape(printable(title))
    table = Table(
        title=title or None, title_justify="left", box=box.SIMPLE_HEAD, show_header=head, pad_edge=False
    )
    cells = [[cell(row.get(name, "")) for name in names] for row in data]
    on = console()
    whole = unfolded([max(len(line[i]) for line in cells) for i in range(len(names))], on.width) if cells else set()
    for i, name in enumerate(names):
        numbers = head and all(isinstance(row.get(name, 0), int | float) for row in data)
        shown = escape(printable(name.replace("_", " ")))
        table.add_column(shown, justify="right" if numbers else "left", overflow="fold", no_wrap=i in whole)
    for line in cells:
        table.add_row(*line)
    if sys.stdout.isatty():
        on.print(table)
        return
    with on.capture() as drawn:
        on.print(table)
    for text in drawn.get().splitlines():  # without what fills a line up to the table's width
        text = text.rstrip()
        print(text if text.strip("─ ") else text[:PICTURE_COLUMNS])


def unfolded(widths: Sequence[int], columns: int) -> set[int]:
    """Which columns of a table, by their longest cells, are not folded: names and numbers, if ``columns`` have room for
    all of them, else the first."""
    short = {i for i, width in enumerate(widths) if width <= NAME_COLUMNS}
    need = sum(widths[i] + 3 for i in short) + (len(widths) - len(short)) * (TEXT_COLUMNS + 3)
    return short if need <= columns else short & {0}


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
        return ", ".join(cell(item) for item in value)
    return escape(printable(str(value)))


def picture(drawn: Any) -> None:
    """Something that rich draws, as wide as the terminal."""
    on = console()
    on.print(drawn, width=None if on.is_terminal else PICTURE_COLUMNS)
    sys.stdout.flush()


def line(text: str) -> None:
    """One line for people."""
    console().print(escape(printable(text)))


def warn(text: str) -> None:
    """One line on stderr for something that did not stop the command."""
    print(f"flashfs: {printable(text)}", file=sys.stderr)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show on a terminal that ``text`` is under way, and take it away again."""
    with console(stderr=True).status(escape(printable(text))):
        yield
