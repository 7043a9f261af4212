"""Another FTL on the work and the ground of the comparison that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flashfs.comparison.kept import Row
from flashfs.comparison.works import Work
from flashfs.errors import FlashfsError, UsageError
from flashfs.replay import equal_settings
from flashfs.replay.play import Setup, named

STATE = "fill"  #: blank devices say little: hardly anything is cleaned
SAME = ("waf", "iops", "map_bytes")  #: figures that an FTL has again, to the bit, as long as nothing was changed


def column(ftl: str, options: Mapping[str, str], rows: Sequence[Row]) -> str:
    """What it is called beside the others."""
    name = ftl.rpartition(":")[2]
    if any(row["column"] == name for row in rows):
        name += ", now"
    return ", ".join([name, *(f"{key}={value}" for key, value in options.items())])


def published(rows: Sequence[Row]) -> list[Row]:
    """Of the rows that are kept, those of filled devices, an FTL once each."""
    return [row for row in rows if row["state"] == STATE and "," not in row["column"]]


def setup(work: Work, ftl: str, options: Mapping[str, str], rows: Sequence[Row]) -> Setup:
    """What is replayed for a work. UsageError for an option that the FTL does not have, FlashfsError if the rows have
    nothing of that work."""
    level = next((row["level"] for row in rows if row["source"] == work.name and row["state"] == STATE), None)
    if level is None:
        raise FlashfsError(f"{work.name}: the comparison that is kept has no results of it; make it anew")
    if "," in ftl:
        raise UsageError(f"{ftl}: name one FTL; the others are there")
    [one] = named(replace(work.setup, precondition=STATE, options=dict(options)), ftl)
    return equal_settings.on(one, level)


def changed(mine: Sequence[Row], rows: Sequence[Row], ftl: str) -> list[str]:
    """A line for each work on which an FTL that is kept does not come to what is kept of it."""
    before = {row["source"]: row for row in published(rows) if row["column"] == ftl}
    out = []
    for row in mine:
        old: Row | dict[str, Any] = before.get(row["source"], row)
        for name in SAME:
            if row[name] != old[name]:
                out.append(f"{ftl} on {row['source']}: {name} is {row[name]:,}, and {old[name]:,} was kept; this "
                           "program is not the one that made the kept results")  # fmt: skip
                break
    return out
