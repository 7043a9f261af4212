"""Traces in common formats, and flashfs's own, as sources of requests: ``Trace(path)``.

``FORMATS`` lists the formats; each is a class in its own file. The format is detected from the content.
"""

from __future__ import annotations

from pathlib import Path

from flashfs.errors import UsageError
from flashfs.replay.request_source import TraceError, shorten
from flashfs.replay.traces import columns, header
from flashfs.replay.traces._content import text_of
from flashfs.replay.traces._evidence import CERTAIN, Reading, certainty
from flashfs.replay.traces._format import Format
from flashfs.replay.traces._trace import Options, Trace
from flashfs.replay.traces.biosnoop import Biosnoop
from flashfs.replay.traces.biotracer import Biotracer
from flashfs.replay.traces.blkparse import Blkparse
from flashfs.replay.traces.columns import AsciiPages, DiskSim, MqSim, MqSimBytes
from flashfs.replay.traces.fio import Iolog2, Iolog3
from flashfs.replay.traces.fiu import Fiu
from flashfs.replay.traces.ftrace import Ftrace
from flashfs.replay.traces.msr import Msr
from flashfs.replay.traces.own import Recorded
from flashfs.replay.traces.spc import Spc
from flashfs.replay.traces.table import PREFIX, Spec, Table
from flashfs.replay.traces.vscsi import Vscsi1, Vscsi2
from flashfs.replay.traces.wiscsee import WiscSee

__all__ = ["FORMATS", "Format", "Options", "Trace", "detect", "format_named", "named_by"]

FORMATS: tuple[type[Format], ...] = (
    Recorded, Iolog2, Iolog3, Vscsi1, Vscsi2, Msr, Spc, Fiu, Blkparse, Ftrace, Biosnoop, WiscSee, Biotracer, DiskSim,
    AsciiPages, MqSim, MqSimBytes,
)  # fmt: skip
ENOUGH = 0.5  #: least score for a file to be of a format
BOTH = 0.6  #: a second reading with at least this share of the best score makes the format ambiguous


def format_named(name: str) -> Format:
    """The format of this name or alias, or the one that `columns:...` describes; UsageError if there is none."""
    if name.startswith(PREFIX):
        return Table(Spec.parse(name.removeprefix(PREFIX)))
    for one in FORMATS:
        if name == one.name or name in one.aliases:
            return one()
    raise UsageError(f"format {name}: use {', '.join(one.name for one in FORMATS)}")


def named_by(format: str | None, columns: str | None) -> str | None:
    """--format and --columns as a name for ``format_named``; UsageError if both are given."""
    if columns is None:
        return format
    if format is not None:
        raise UsageError("--format and --columns: use one of them")
    return PREFIX + Spec.parse(columns).canonical()


def detect(path: Path, head: bytes) -> tuple[Format, str]:
    """The format of a file whose content begins with ``head``, and a line on how certain that is and why.

    Every format judges how well the sample fits it. TraceError if none fits, or if two readings fit, even ones that
    only --columns can ask for: it then names the flags to choose from.
    """
    if not text_of(head):
        raise TraceError(f"{path}: empty")
    readings = [one.judge(head) for one in (kind() for kind in FORMATS)] + columns.others(head)
    best, second, *_ = sorted(readings, key=lambda one: -one.score)
    named = header.reading(path, head)
    sure = best.score >= CERTAIN and best.format is not None and not best.format.units_in_doubt
    if named is not None and named.format is not None and not sure:
        return named.format, certainty(named, [])
    if named is not None and (best.score < ENOUGH or isinstance(best.format, columns.Columns)):
        raise TraceError(f"{path}: {named.why}")
    if best.score < ENOUGH:
        raise TraceError(f"{path}: {_unknown(readings, head)}")
    if second.score >= BOTH * best.score:
        raise TraceError(
            f"{path}: two ways to read it fit: {best.flag} ({best.why}), and {second.flag} ({second.why}); one of "
            "these flags decides"
        )
    if best.format is None:
        raise TraceError(f"{path}: no format that is known, but {best.flag} would fit ({best.why}); that flag says so")
    return best.format, certainty(best, (one for one in readings if one is not best))


def _unknown(readings: list[Reading], head: bytes) -> str:
    """The message that says why no format fits."""
    alike = [one for one in readings if one.form >= ENOUGH]
    if alike:
        best = max(alike, key=lambda one: one.score)
        return f"nearest to {best.flag}, but {best.why}; that flag insists, and --columns says what other columns are"
    first = shorten(text_of(head).split(b"\n", 1)[0])
    return (
        f"no trace format that is known (it begins {first!r}); --format NAME reads it as one, --columns says what the "
        "columns of a table are"
    )
