"""Tables whose first line names their columns: `timestamp_us,device,offset_bytes,size_bytes,op`.

A name says what its column is, and if it ends in a unit, or is one (`sector`, `bytes`), what it counts. What no name
says, the user must say: guessed units would be misread silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from flashfs.replay.traces._evidence import Reading
from flashfs.replay.traces._text import COMMENT, SAMPLE_BYTES_MAX, lines_of, sample_lines
from flashfs.replay.traces.table import NUMBER, WORDS, Spec, Table, fields, separator_of

Meaning = tuple[str | None, str | int | None]  #: (a role of --columns, its unit), None where there is none
EITHER = "t"  #: biosnoop's name for operations, and others' for times

NAMES = {
    "time": ("time", "timestamp", "ts", "arrival", "arrivaltime", "issuetime", "starttime", "filetime"),
    "dev": ("dev", "device", "disk", "disknumber", "disknum", "diskid", "volume", "volumeid", "deviceid", "lun", "asu"),
    "offset": ("offset", "lba", "lbn", "sector", "address", "addr", "block", "blkno", "startlba", "startsector"),
    "length": (
        "length", "len", "size", "iosize", "requestsize", "sectors", "nsectors", "blocks", "nblocks", "bytes", "nbytes",
        "count",
    ),
    "op": ("op", "operation", "type", "rw", "r/w", "iotype", "opcode", "opname", "command"),
    EITHER: (EITHER,),
}  # fmt: skip
ROLE = {name: role for role, names in NAMES.items() for name in names}
TIME_UNITS = {
    "s": "s", "sec": "s", "seconds": "s", "ms": "ms", "msec": "ms", "milliseconds": "ms", "us": "us", "usec": "us",
    "microseconds": "us", "ns": "ns", "nsec": "ns", "nanoseconds": "ns", "100ns": "100ns",
}  # fmt: skip
BYTE_UNITS = {
    "b": 1, "byte": 1, "bytes": 1, "sector": 512, "sectors": 512, "512": 512, "512b": 512, "kb": 1024, "kib": 1024,
    "4k": 4096, "4kb": 4096, "4kib": 4096,
}  # fmt: skip
OWN: dict[str, str | int] = {
    "filetime": "100ns", "sector": 512, "sectors": 512, "startsector": 512, "nsectors": 512, "bytes": 1, "nbytes": 1,
}  # fmt: skip
FEWEST = 3  #: with fewer roles named, a line is not a line of names


def reading(path: Path, head: bytes) -> Reading | None:
    """The Reading of a table whose first line that is not blank, or a comment above it, names columns. If the names do
    not say everything, it has no format, and says why and what to do. None if nothing names columns."""
    lines = sample_lines(head)
    separator = separator_of(lines, FEWEST)
    for line in _first_lines(head):
        names = fields(line.lstrip(b"# ").lower(), separator)
        if any(map(NUMBER.fullmatch, names)) or not {"offset", "length"} <= {_meaning(name)[0] for name in names}:
            continue
        rows = [fields(other, separator) for other in lines if other != line]
        meanings = _meanings(names, rows)
        if rows and len({role for role, _ in meanings if role is not None}) >= FEWEST:
            return _judged(names, meanings, rows, head)
    return None


def _first_lines(head: bytes) -> Iterator[bytes]:
    """The comments at the beginning, and the first other line."""
    for line in lines_of(head):
        if line.strip():
            yield line[:SAMPLE_BYTES_MAX]
            if not line.startswith(COMMENT):
                return


def _meanings(names: list[bytes], rows: list[list[bytes]]) -> list[Meaning]:
    """The meaning of each column by its name; each role occurs once. EITHER is a time if it has only numbers."""
    out: list[Meaning] = []
    for at, name in enumerate(names):
        role, unit = _meaning(name)
        if role == EITHER:
            role = "time" if all(NUMBER.fullmatch(row[at]) for row in rows if at < len(row)) else "op"
        out.append((None, None) if role in [before for before, _ in out] else (role, unit))
    return out


def _meaning(name: bytes) -> Meaning:
    """(the role of a column of this name, its unit if the name says it)."""
    bare = name.decode("latin-1").replace(" ", "_").replace("-", "_")
    inside = re.fullmatch(r"(.*?)_*[(\[](\w+)[)\]]", bare)
    stem, _, unit = (inside[1], "", inside[2]) if inside else bare.rpartition("_")
    for one, said in ((bare.replace("_", ""), ""), (stem.replace("_", ""), unit)):
        role = ROLE.get(one)
        units: dict[str, str | int] = {}
        if role in ("time", "offset", "length"):
            units |= TIME_UNITS if role == "time" else BYTE_UNITS
        if role is not None and (not said or said in units):
            return role, units.get(said, OWN.get(one))
    return None, None


def _judged(names: list[bytes], meanings: list[Meaning], rows: list[list[bytes]], head: bytes) -> Reading:
    columns, missing = [], []
    for at, (role, unit) in enumerate(meanings):
        name = names[at].decode("latin-1")
        if role == "op":
            values = {row[at].decode("latin-1").lower() for row in rows if at < len(row)} - {""}
            if not values <= set(WORDS):
                missing.append(f"which of the values {', '.join(sorted(values)[:4])} in {name} is a read")
                role = "op:?=read,?=write"
        elif role is not None and role != "dev":
            role = f"{role}:{'?' if unit is None else unit}"
            if unit is None:
                missing.append(f"the unit of {name}")
        columns.append(role or "-")
    while columns[-1] == "-":
        columns.pop()
    flag = f"--columns {','.join(columns)}"
    if "op" not in (role for role, _ in meanings):
        return Reading(
            flag, 0.0, f"its first line names no read or write: use {flag}, with op in the place that it has"
        )
    if missing:
        units = "(units: of time s, ms, us, ns; of offset and length the bytes of one count)"
        why = f"its first line names its columns, but not {', '.join(missing)}: use {flag} {units}"
        return Reading(flag, 0.0, why)
    return _weighed(Table(Spec.parse(",".join(columns))), flag, head)


def _weighed(table: Table, flag: str, head: bytes) -> Reading:
    """The Reading of a table whose names say everything; its numbers may still contradict them."""
    found = table.judge(head)
    if found.score < 0.5:
        return Reading(flag, 0.0, f"its first line names its columns, but {found.why}; {flag} insists")
    return Reading(flag, found.score, f"its first line names its columns, {found.why}", table)
