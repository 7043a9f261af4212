"""Another FTL on the workloads and with the equal settings of the stored comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flashfs.comparison.kept import Row
from flashfs.comparison.works import Work
from flashfs.errors import FlashfsError, UsageError
from flashfs.replay import equal_settings
from flashfs.replay.play import Setup, named

STATE = "fill"  #: blank devices say little: they hardly clean
SAME = ("waf", "iops", "map_bytes")  #: figures that repeat to the bit as long as the program is unchanged


def column(ftl: str, options: Mapping[str, str], rows: Sequence[Row]) -> str:
    """The column name of an FTL: distinct from those of ``rows``, and with its options."""
    name = ftl.rpartition(":")[2]
    if any(row["column"] == name for row in rows):
        name += ", now"
    return ", ".join([name, *(f"{key}={value}" for key, value in options.items())])


def published(rows: Sequence[Row]) -> list[Row]:
    """The stored rows of filled devices, with each FTL in its default variant only."""
    return [row for row in rows if row["state"] == STATE and "," not in row["column"]]


def setup(work: Work, ftl: str, options: Mapping[str, str], rows: Sequence[Row]) -> Setup:
    """The Setup that replays ``work`` on ``ftl``. UsageError for an option that the FTL does not have, FlashfsError if
    ``rows`` have no results for the work."""
    level = next((row["level"] for row in rows if row["source"] == work.name and row["state"] == STATE), None)
    if level is None:
        raise FlashfsError(f"{work.name}: the comparison that is kept has no results of it; make it anew")
    if "," in ftl:
        raise UsageError(f"{ftl}: name one FTL; the others are there")
    [one] = named(replace(work.setup, precondition=STATE, options=dict(options)), ftl)
    return equal_settings.on(one, level)


def changed(mine: Sequence[Row], rows: Sequence[Row], ftl: str) -> list[str]:
    """A line for each work on which the results ``mine`` of a stored FTL differ from its stored ones in SAME."""
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
