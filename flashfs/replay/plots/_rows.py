"""Which results a picture is of, and what each of them is called in it: as much as tells it from the others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from flashfs.errors import UsageError
from flashfs.plain import meant, shown
from flashfs.replay.workloads import is_workload
from flashfs.replay.workloads._grammar import size

Row = Mapping[str, Any]

SEED = "config.seed"  #: repeats of a point: shown by their mean, least and most
DRAM = "config.dram"
NO_PHASE = {"canonical": "nothing"}
OPTION = "config.options."
TRACE = "config.trace."
BEFORE = "config.before"  #: the phases, as JSON
WARM = "config.warm"  #: these too
#: what a bare name stands for, in this order
PREFIXES = ("", "config.", "config.options.", "config.geometry.", TRACE)
#: of a geometry: in this order they say most in the fewest words
GEOMETRY = ("lpas", "dies", "channels", "page_bytes", "pages_per_block", "blocks")
CHIP = "config.geometry."
NOT_OF_CHIP = {CHIP + "nvram_bytes"}  #: a scheme adds what it asks for
TICK_CHARACTERS = 24  #: of a source below a bar


def chosen(rows: Sequence[Row], where: Mapping[str, str]) -> list[Row]:
    """The rows that are results, and have these values; of several that are the same point, the last."""
    out = [_plain(row) for row in rows if row.get("error") is None]
    if not out:
        raise UsageError("no result to plot: every row is of a failure")
    for name, value in where.items():
        column = resolve(out, name)
        there = list(dict.fromkeys(text_of(row.get(column)) for row in out))
        out = [row for row in out if same(row.get(column), value)]
        if not out:
            raise UsageError(f"--where {name}={value}: no result has it; use {', '.join(there[:12])}")
    columns = ["ftl", "source", *dimensions(out)]
    return list({tuple(row.get(column) for column in columns): row for row in out}.values())


def _plain(row: Row) -> Row:
    """A workload's seed is one dimension, and what is left of its name another; it has no options of traces."""
    if not is_workload(row["source"]):
        return row
    name, _, keys = row["source"].partition(":")
    rest = [key for key in keys.split(",") if key and not key.startswith("seed=")]
    seed = next((key[5:] for key in keys.split(",") if key.startswith("seed=")), row.get(SEED))
    out = {column: None if column.startswith(TRACE) else value for column, value in row.items()}
    return {**out, "source": ":".join([name, ",".join(rest)]) if rest else name, SEED: seed}


def resolve(rows: Sequence[Row], name: str) -> str:
    """The column that ``name`` stands for: ``dram`` is ``config.dram``, ``shift`` an option of an FTL."""
    for prefix in PREFIXES:
        if any(prefix + name in row for row in rows):
            return prefix + name
    known = dict.fromkeys(["ftl", "source", *(column.rpartition(".")[2] for column in dimensions(rows))])
    raise UsageError(f"{name}{meant(name, known)}: no column of these results; {', '.join(known)} are some")


def same(value: Any, text: str) -> bool:
    """Whether ``text`` says ``value``: 64M is 67108864."""
    if text_of(value) == text:
        return True
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return float(text) == value
    except ValueError:
        pass
    try:
        return size(text) == value
    except ValueError:
        return False


def text_of(value: Any) -> str:
    return "none" if value is None else str(value)


def dimensions(rows: Sequence[Row]) -> list[str]:
    """The columns that say what was replayed, in which results may differ, but for FTL and source."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    front = [DRAM, "config.qd", *(f"config.geometry.{name}" for name in GEOMETRY)]
    for prefix in ("config.geometry.", "config.precondition", BEFORE, WARM, TRACE, OPTION):
        front += [name for name in names if name.startswith(prefix)]
    front += ["config.backend", "config.plp", "config.image", "config.version", "config.code", SEED]
    return [name for name in dict.fromkeys(front) if name in names]


def labels(rows: Sequence[Row], taken: Sequence[str]) -> list[str]:
    """What to call each row: its FTL, and each dimension that, beside ``taken`` and what is said already, still tells
    rows apart. Repeats with other seeds are called the same. Where one source was replayed on several chips, each says
    its own, even if no FTL was on two of them: nothing else in the picture would."""
    said: list[str] = []
    for column in dimensions(rows):
        if column in taken or column == SEED:
            continue
        known = ["ftl", *taken, *said]
        if count(rows, [*known, column]) > count(rows, known):
            said.append(column)
    said += _chips(rows, [*taken, *said])
    said.sort(key=lambda column: not column.startswith(OPTION))  # the FTL's own beside its name
    return [", ".join([row["ftl"], *(word for column in said if (word := words(row, column)))]) for row in rows]


def _chips(rows: Sequence[Row], known: Sequence[str]) -> list[str]:
    """The columns that, beside the ``known`` ones but for the FTL, still tell chips of the same source apart."""
    out: list[str] = []
    columns = [column for column in dimensions(rows) if column.startswith(CHIP) and column not in NOT_OF_CHIP]
    for column in columns:
        beside = ["source", *known, *out]
        if column not in known and count(rows, [*beside, column]) > count(rows, beside):
            out.append(column)
    return out


def count(rows: Sequence[Row], columns: Sequence[str]) -> int:
    return len({tuple(row.get(column) for column in columns) for row in rows})


def words(row: Row, column: str) -> str:
    """One dimension of a row in a label; nothing for an option that its FTL does not have."""
    value = row.get(column)
    name = column.rpartition(".")[2]
    if column == DRAM:
        return "no DRAM limit" if value is None else f"{shown(value)} DRAM"
    if column == "config.qd":
        return "open loop" if value is None else f"qd {value}"
    if value is None:
        return ""
    if column in (BEFORE, WARM):
        phases = json.loads(value) or [NO_PHASE]
        called = " and ".join(one.get("canonical") or one["hash"][:8] for one in phases)
        return f"{'after' if column == BEFORE else 'warmed by'} {called}"
    if column == "config.geometry.lpas":
        return shown(value * row["config.geometry.page_bytes"])
    if column in ("config.geometry.dies", "config.geometry.channels"):
        return f"{value} {name if value != 1 else name[:-1]}"
    if column in ("config.version", "config.code"):
        return str(value)[-16:]
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"


def source_labels(sources: Sequence[str]) -> dict[str, str]:
    """A short name for each source: of a workload its pattern and the keys that tell it from others of that pattern,
    of a trace its file's name up to the first point."""
    short = {source: _short(source, sources) for source in sources}
    uses = Counter(short.values())
    return {source: label if uses[label] == 1 else source for source, label in short.items()}


def _short(source: str, sources: Sequence[str]) -> str:
    if not is_workload(source):
        stem = PurePath(source).name.partition(".")[0]
        return stem if len(stem) <= TICK_CHARACTERS else stem[: TICK_CHARACTERS - 1] + "…"
    name, _, keys = source.partition(":")
    others = [set(other.partition(":")[2].split(",")) for other in sources if other.partition(":")[0] == name]
    common = set.intersection(*others)
    return " ".join([name, *(key for key in keys.split(",") if key and key not in common)])
