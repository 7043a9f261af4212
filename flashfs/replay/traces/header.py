"""Tables whose first line names their columns: `timestamp_us,device,offset_bytes,size_bytes,op`.

Names say what a column is, and where they end in a unit, or are one (`sector`, `bytes`), in what it counts. What no
name says is asked: units that are guessed are misread in silence.
"""

from __future__ import annotations

import re
from pathlib import Path

from flashfs.replay.traces._evidence import Reading
from flashfs.replay.traces._text import sample_lines
from flashfs.replay.traces.table import ROLES, WORDS, Spec, Table, fields, separator_of

NAMES = {
    "time": ("time", "timestamp", "ts", "arrival", "arrivaltime", "issuetime", "starttime", "filetime"),
    "dev": ("dev", "device", "disk", "disknumber", "disknum", "diskid", "volume", "volumeid", "deviceid", "lun", "asu"),
    "offset": ("offset", "lba", "lbn", "sector", "address", "addr", "block", "blkno", "startlba", "startsector"),
    "length": (
        "length", "len", "size", "iosize", "requestsize", "sectors", "nsectors", "blocks", "nblocks", "bytes", "nbytes",
        "count",
    ),
    "op": ("op", "operation", "type", "rw", "r/w", "iotype", "opcode", "opname", "command"),
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
FEWEST = 3  #: of the roles named: fewer, and the line is no line of names


def reading(path: Path, head: bytes) -> Reading | None:
    """What the first line says, if it names columns; without a format if it does not say all, and then why and what to
    do."""
    lines = sample_lines(head)
    if len(lines) < 2:
        return None
    separator = separator_of(lines, FEWEST)
    first = lines[0].lstrip(b"# ").lower()
    names = [one.decode("latin-1") for one in fields(first, separator)]
    if any(re.fullmatch(r"-?[\d.]+", one) for one in names):
        return None
    known = dict.fromkeys(role for role, _ in map(_meaning, names) if role is not None)
    if len(known) < FEWEST or not {"offset", "length"} <= set(known):
        return None
    if "op" not in known:
        why = f"its first line names no read or write: use --columns {_written(names, {})} with an op"
        return Reading("", 0.0, why)
    rows = [fields(line, separator) for line in lines[1:]]
    return _judged(names, rows, head)


def _meaning(name: str) -> tuple[str | None, str | int | None]:
    """(the role of a column so called, its unit if the name says it)."""
    bare = name.replace(" ", "_").replace("-", "_")
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


def _judged(names: list[str], rows: list[list[bytes]], head: bytes) -> Reading:
    said: dict[str, str] = {}
    missing = []
    for at, (role, unit) in enumerate(map(_meaning, names)):
        if role is None or role in said:
            continue
        said[role] = role
        if role == "op":
            values = {row[at].decode("latin-1").lower() for row in rows if at < len(row)}
            if not values <= set(WORDS):
                shown = ", ".join(sorted(values)[:4])
                missing.append(f"which of the values {shown} in {names[at]} is a read")
                said[role] = "op:?=read,?=write"
        elif role != "dev":
            said[role] = f"{role}:{'?' if unit is None else unit}"
            if unit is None:
                missing.append(f"the unit of {names[at]}")
    written = _written(names, said)
    flag = f"--columns {written}"
    if missing:
        units = "(units: of time s, ms, us, ns; of offset and length the bytes of one count)"
        why = f"its first line names its columns, but not {', '.join(missing)}: use {flag} {units}"
        return Reading(flag, 0.0, why)
    table = Table(Spec.parse(written))
    return _weighed(table, flag, head)


def _written(names: list[str], said: dict[str, str]) -> str:
    """The text of --columns for these names."""
    left = dict(said) if said else {role: f"{role}:?" for role in ROLES}
    out = [left.pop(role, "-") if role is not None else "-" for role, _ in map(_meaning, names)]
    while out and out[-1] == "-":
        out.pop()
    return ",".join(out)


def _weighed(table: Table, flag: str, head: bytes) -> Reading:
    """A table whose names say all; its numbers may still contradict them."""
    found = table.judge(head)
    if found.score < 0.5:
        return Reading(flag, 0.0, f"its first line names its columns, but {found.why}; {flag} insists")
    return Reading(flag, found.score, f"its first line names its columns, {found.why}", table)
