"""Traces of other people, and our own, as sources of requests: ``Trace(path)``.

``FORMATS`` is the list of what can be read; a format is a class in a file of its own. The content says which it is.
"""

from __future__ import annotations

from pathlib import Path

from flashfs.errors import UsageError
from flashfs.replay.source import TraceError, shorten
from flashfs.replay.traces._format import Format
from flashfs.replay.traces._trace import Options, Trace
from flashfs.replay.traces.biotracer import Biotracer
from flashfs.replay.traces.blkparse import Blkparse
from flashfs.replay.traces.columns import AsciiPages, DiskSim, MqSim, MqSimBytes
from flashfs.replay.traces.fio import Iolog2, Iolog3
from flashfs.replay.traces.fiu import Fiu
from flashfs.replay.traces.msr import Msr
from flashfs.replay.traces.own import Recorded
from flashfs.replay.traces.spc import Spc
from flashfs.replay.traces.vscsi import Vscsi1, Vscsi2
from flashfs.replay.traces.wiscsee import WiscSee

__all__ = ["FORMATS", "Format", "Options", "Trace", "detect", "format_named"]

FORMATS: tuple[type[Format], ...] = (
    Recorded, Iolog2, Iolog3, Vscsi1, Vscsi2, Msr, Spc, Fiu, Blkparse, WiscSee, Biotracer, DiskSim, AsciiPages, MqSim,
    MqSimBytes,
)  # fmt: skip
ENOUGH = 0.5  #: of the beginning must read as a format before it is believed to be one


def format_named(name: str) -> Format:
    """The format called so; UsageError if there is none."""
    for one in FORMATS:
        if name == one.name or name in one.aliases:
            return one()
    raise UsageError(f"format {name}: {', '.join(one.name for one in FORMATS)} would do")


def detect(path: Path, head: bytes) -> Format:
    """The format that most of ``head``, the beginning of the content, can be read as."""
    if not head:
        raise TraceError(f"{path}: empty")
    best, likeness = max(((one, one.likeness(head)) for one in (kind() for kind in FORMATS)), key=lambda pair: pair[1])
    if likeness < ENOUGH:
        first = shorten(head.split(b"\n", 1)[0])
        raise TraceError(f"{path}: no trace format that is known (it begins {first!r}); --format NAME reads it as one")
    return best
