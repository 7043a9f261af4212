"""Selects the results that a picture shows, and names each of them by what distinguishes it from the others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import PurePath
from typing import Any

from flashfs.errors import UsageError
from flashfs.replay import grid
from flashfs.replay.workloads import is_workload
from flashfs.replay.workloads._grammar import size
from flashfs.text import meant, shown
from nandimg import Geometry, NandimgError
from nandimg.presets import PRESETS

Row = Mapping[str, Any]

SEED = "config.seed"  #: differs in repeats of a point, which are shown by their mean, least and most
DRAM = "config.dram"
QD = "config.qd"
#: keys of a sweep that a result does not have: they are computed from its geometry
OP = "config.op"  #: over-provisioning in per cent, to a tenth, as the table of `flashfs replay` prints it
SIZE = "config.size"  #: bytes that the host sees
PRESET = "config.preset"
NO_PHASE = {"canonical": "nothing"}
OPTION = "config.options."
TRACE = "config.trace."
BEFORE = "config.before"  #: the phases, as JSON
WARM = "config.warm"  #: likewise
CHIP = "config.geometry."
#: columns of a chip, the most telling first
SHAPE = (SIZE, CHIP + "dies", CHIP + "channels", CHIP + "page_bytes", CHIP + "pages_per_block", OP, CHIP + "blocks")
#: prefixes to try for a bare name, in this order
PREFIXES = ("", "config.", OPTION, CHIP, TRACE)
NVRAM = CHIP + "nvram_bytes"  #: includes what the scheme asks for
#: keys of a sweep that have another name in a result
CALLED = {
    **{name: CHIP + column for name, column in grid.GEOMETRY_FIELDS.items()},
    **{name: TRACE + column for name, column in grid.TRACE_FIELDS.items()},
    "columns": "config.format",
}  # fmt: skip
UNSAID = "prepared"  #: a key that changes no result
TICK_CHARACTERS = 24  #: of a source below a bar
MOST_NAMED = 12  #: values in a message


def chosen(rows: Sequence[Row], where: Mapping[str, str]) -> list[Row]:
    """The rows that are results and have these values; of several rows of one point, the last. UsageError if none."""
    out = [_plain(row) for row in rows if row.get("error") is None]
    if not out:
        raise UsageError("no result to plot: every row is of a failure")
    for name, value in where.items():
        column = resolve(out, name, "--where")
        there = list(dict.fromkeys(text_of(row, column) for row in out))
        out = [row for row in out if same(row, column, value)]
        if not out:
            more = f", and {len(there) - MOST_NAMED} more" if len(there) > MOST_NAMED else ""
            raise UsageError(
                f"--where {name}={value}: no result has it; use one of {', '.join(there[:MOST_NAMED])}{more}"
            )
    columns = ["ftl", "source", *dimensions(out)]
    return list({tuple(row.get(column) for column in columns): row for row in out}.values())


def failures(rows: Sequence[Row], where: Mapping[str, str]) -> dict[str, int]:
    """{FTL: how many of its replays failed}, of the rows that ``where`` selects."""
    every = [_plain(row) for row in rows]
    failed = [row for row in every if row.get("error") is not None]
    for name, value in where.items():
        column = resolve(every, name, "--where")
        failed = [row for row in failed if same(row, column, value)]
    return dict(Counter(row["ftl"] for row in failed))


def _plain(row: Row) -> Row:
    """A row with the keys that follow from its geometry. A workload's seed and the rest of its name become separate
    dimensions; it has no options of traces."""
    row = {**row, **_of_chip(row)}
    if not is_workload(row["source"]):
        return row
    name, _, keys = row["source"].partition(":")
    rest = [key for key in keys.split(",") if key and not key.startswith("seed=")]
    seed = next((key[5:] for key in keys.split(",") if key.startswith("seed=")), row.get(SEED))
    out = {column: None if column.startswith(TRACE) else value for column, value in row.items()}
    return {**out, "source": ":".join([name, ",".join(rest)]) if rest else name, SEED: seed}


def _of_chip(row: Row) -> dict[str, Any]:
    """The keys of a sweep that follow from the geometry."""
    shape = {name.removeprefix(CHIP): value for name, value in row.items() if name.startswith(CHIP)}
    if any(shape.get(name) is None for name in ("lpas", "blocks", "pages_per_block", "page_bytes")):
        return {}
    op = shape["blocks"] * shape["pages_per_block"] / shape["lpas"] - 1
    return {OP: round(100 * op, 1), SIZE: shape["lpas"] * shape["page_bytes"], PRESET: _preset(shape)}


def _preset(shape: Mapping[str, Any]) -> str | None:
    return next((name for name, known in _presets().items() if known.items() <= shape.items()), None)


@cache
def _presets() -> dict[str, dict[str, int]]:
    """Presets without NVRAM, whose size depends on the scheme."""
    return {
        name: {key: value for key, value in one.geometry.as_dict().items() if CHIP + key != NVRAM}
        for name, one in PRESETS.items()
    }


def resolve(rows: Sequence[Row], name: str, flag: str) -> str:
    """The column that ``name`` stands for: ``dram`` is ``config.dram``, ``shift`` an option of an FTL. UsageError if
    there is none; it names ``flag`` and what these results differ in."""
    for column in (*(prefix + name for prefix in PREFIXES), CALLED.get(name, "")):
        if any(column in row for row in rows):
            return column
    differ = [called(column) for column in ("ftl", "source") if count(rows, [column]) > 1]
    differ += [called(column) for column in varied(rows)]
    keys = [one for one in grid.AXES if one != UNSAID]
    near = meant(name, [*keys, *differ, *(called(column) for column in dimensions(rows))])
    there = f"they differ in {', '.join(dict.fromkeys(differ))}" if differ else f"keys are {', '.join(keys)}"
    raise UsageError(f"{flag} {name}{near}: these results have nothing of that name; {there}")


def called(column: str) -> str:
    """The name that users know: the key of a sweep, or the option."""
    return next((key for key, one in CALLED.items() if one == column), column.rpartition(".")[2])


def varied(rows: Sequence[Row]) -> list[str]:
    """The dimensions in which rows of one FTL on one source differ: what was asked for, not what FTLs cause. One that
    follows from others is left out: the blocks of a chip follow from its over-provisioning."""
    out: list[str] = []
    for column in dimensions(rows):
        known = ["ftl", "source", *out]
        if column not in (SEED, NVRAM) and count(rows, [*known, column]) > count(rows, known):
            out.append(column)
    return out


def same(row: Row, column: str, text: str) -> bool:
    """Whether ``text`` means the row's value: 64M is 67108864, and an over-provisioning of 0.15 is the one that --op
    0.15 gives on such a chip."""
    value = row.get(column)
    if text in (text_of(row, column), str(value)):
        return True
    if value is None:
        return False
    if column == OP:
        return _same_op(row, text)
    if column == PRESET and text in PRESETS:
        shape = {name.removeprefix(CHIP): known for name, known in row.items() if name.startswith(CHIP)}
        return _presets()[text].items() <= shape.items()
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


def _same_op(row: Row, text: str) -> bool:
    """Whether ``text``, a share, or per cent with the sign, is the row's over-provisioning; either the real one, or the
    one asked for, which whole superblocks make slightly larger."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return False
    if round(100 * share, 1) == row[OP]:
        return True
    names = ("page_bytes", "pages_per_block", "dies", "channels")
    shape = {name: row[CHIP + name] for name in names if row.get(CHIP + name) is not None}
    try:
        return Geometry.sized(row[SIZE], share, **shape).blocks == row[CHIP + "blocks"]
    except NandimgError:
        return False


def text_of(row: Row, column: str) -> str:
    """One value as text for users."""
    value = row.get(column)
    if value is None:
        return "none"
    if column == OP:
        return f"{value:g} %"
    return shown(value) if column in (DRAM, SIZE) else str(value)


def dimensions(rows: Sequence[Row]) -> list[str]:
    """The columns that say what was replayed and in which results may differ, except FTL and source."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    front = [DRAM, QD, *SHAPE]
    for prefix in (CHIP, "config.precondition", BEFORE, WARM, TRACE, OPTION):
        front += [name for name in names if name.startswith(prefix)]
    front += ["config.format", "config.backend", "config.plp", "config.image", PRESET, "config.version", "config.code",
              SEED]  # fmt: skip
    return [name for name in dict.fromkeys(front) if name in names]


def labels(rows: Sequence[Row], taken: Sequence[str]) -> list[str]:
    """A label for each row: its FTL, and each dimension that, given ``taken`` and the earlier ones, still distinguishes
    rows. Repeats with other seeds have the same label. If one source was replayed on several chips, each label names
    its chip, even if no FTL ran on two of them: nothing else in the picture would."""
    said = told_apart(rows, taken)
    said.sort(key=lambda column: not column.startswith(OPTION))  # the FTL's own options next to its name
    first = [] if "ftl" in taken else ["ftl"]
    return [", ".join([*(row[name] for name in first), *(word for column in said if (word := words(row, column)))])
            for row in rows]  # fmt: skip


def told_apart(rows: Sequence[Row], taken: Sequence[str]) -> list[str]:
    """The dimensions that labels must name (see ``labels``)."""
    said: list[str] = []
    for column in dimensions(rows):
        if column in taken or column == SEED:
            continue
        known = ["ftl", *taken, *said]
        if count(rows, [*known, column]) > count(rows, known):
            said.append(column)
    return said + _chips(rows, [*taken, *said])


def crossed(rows: Sequence[Row], taken: Sequence[str]) -> list[str]:
    """The dimensions of ``told_apart`` that vary independently of the FTL: several FTLs were replayed with several
    values."""
    out = []
    for column in told_apart(rows, taken):
        values: dict[str, set[Any]] = {}
        for row in rows:
            values.setdefault(row["ftl"], set()).add(row.get(column))
        if sum(len(some) > 1 for some in values.values()) > 1:
            out.append(column)
    return out


def _chips(rows: Sequence[Row], known: Sequence[str]) -> list[str]:
    """The columns that, given the ``known`` ones without the FTL, still distinguish chips of the same source."""
    out: list[str] = []
    columns = [
        column for column in dimensions(rows) if column in SHAPE or (column.startswith(CHIP) and column != NVRAM)
    ]
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
    if column == QD:
        return "open loop" if value is None else f"qd {value}"
    if value is None:
        return ""
    if column in (BEFORE, WARM):
        phases = json.loads(value) or [NO_PHASE]
        called = " and ".join(one.get("canonical") or one["hash"][:8] for one in phases)
        return f"{'after' if column == BEFORE else 'warmed by'} {called}"
    if column == SIZE:
        return shown(value)
    if column == OP:
        return f"{value:g} % OP"
    if column in (CHIP + "dies", CHIP + "channels"):
        return f"{value} {name if value != 1 else name[:-1]}"
    if column in ("config.version", "config.code"):
        return str(value)[-16:]
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"


def source_labels(sources: Sequence[str]) -> dict[str, str]:
    """A short name for each source: for a workload its pattern and the keys that distinguish it from others of that
    pattern, for a trace its file name up to the first point."""
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
