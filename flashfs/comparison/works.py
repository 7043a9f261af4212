"""The work of a comparison: workloads and traces, each with its device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flashfs.replay.open_source import open_source
from flashfs.replay.play import Setup
from flashfs.replay.request_source import TRIM, WRITE
from flashfs.replay.traces import Options
from flashfs.sizing.defaults import side_by_side
from nandimg import Geometry

PAGE = 4096
DEVICE = 1 << 30  #: bytes, for workloads
ROUND = 64 << 20  #: bytes: devices of traces are multiples of it,
LEAST = 256 << 20  #: and no smaller: a block of LeaFTL's buffer must fit a sixteenth of the chip several times
OP = 0.1
DEPTH = 16
MOST = 250_000  #: host pages of a run, roughly
WORKLOADS = (
    "uniform:write=1", "uniform:write=0.5,size=16k", "zipf:write=0.7,theta=0.99", "hotcold:write=1",
    "sequential:write=1,size=64k", "uniform:write=1,size=256k",
)  # fmt: skip
STATES = {"none": "blank", "fill": "filled"}  #: of the device before the run: {precondition: its name}


@dataclass(frozen=True)
class Work:
    """A workload or trace, and its device."""

    name: str
    setup: Setup
    loops: int = 1


def short(text: str) -> str:
    """A short name for a workload: its pattern, and the size of its requests if it gives one."""
    name, _, keys = text.partition(":")
    sizes = [key.removeprefix("size=") for key in keys.split(",") if key.startswith("size=")]
    return " ".join([name, *sizes])


def workloads(only: str = "", most: int = MOST) -> Iterator[Work]:
    """The workloads whose names contain ``only``, each of ``most`` host pages."""
    geometry = shape(DEVICE)
    for text in WORKLOADS:
        if only in text:
            keys = dict(pair.split("=") for pair in text.partition(":")[2].split(","))
            pages = int(keys.get("size", "4k").removesuffix("k")) * 1024 // PAGE
            yield Work(text, Setup(f"{text},ops={most // pages},seed=1", geometry=geometry, qd=DEPTH))


def traces(folder: Path, only: str = "", most: int = MOST) -> Iterator[Work]:
    """The traces of a folder, NAME__FILE each, whose names contain ``only``: packed onto a device that just holds
    them, and looped until as many pages as the device has, ``most`` at most, have been written."""
    for path in sorted(folder.glob("*__*")):
        if only in path.name:
            yield _of_trace(path, most)


def _of_trace(path: Path, most: int) -> Work:
    end = written = 0
    for batch in open_source(str(path), 1 << 60, options=Options(fit="pack")).batches():
        end = max(end, int((batch.offset + batch.length).max()))
        pages = (batch.offset + batch.length - 1) // PAGE + 1 - batch.offset // PAGE
        written += int(pages[batch.op == WRITE].sum()) + int(pages[batch.op == TRIM].sum())
    geometry = shape(max(LEAST, -(-end // ROUND) * ROUND))
    wanted = min(most, geometry.lpas)
    loops = max(1, wanted // written) if 20 * written > wanted else 1
    options = Options(fit="pack", loops=loops, speedup=1000)  # in a closed loop times do not count
    return Work(path.name.partition("__")[0], Setup(str(path), geometry=geometry, trace=options, qd=DEPTH), loops)


def shape(size_bytes: int) -> Geometry:
    """The chip for a device of that size."""
    return Geometry.sized(size_bytes, op=OP, **side_by_side(size_bytes, {}))
