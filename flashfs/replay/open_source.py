"""A source of requests from the text that a user gives: a file, or a workload."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flashfs.errors import UsageError
from flashfs.replay.request_source import Source
from flashfs.replay.traces import Options, Trace
from flashfs.replay.workloads import WORKLOADS, Workload, is_workload
from flashfs.text import meant, shown

LARGEST = 32 << 30  #: bytes of a device that is chosen for a trace when none is given


def open_source(
    text: str, device_bytes: int, *, page_bytes: int = 4096, options: Options | None = None, format: str | None = None,
    fitted: bool = True,
) -> Source:  # fmt: skip
    """The file called ``text``, if there is one, else the workload.

    ``device_bytes`` is the size of the device that requests are for; ``fitted=False`` leaves a trace its own addresses.
    ``options`` and ``format`` are for traces. UsageError if there is neither file nor workload, or if a workload is
    given options of traces.
    """
    if is_workload(text) and not Path(text).exists():
        if format is not None or (options is not None and options != Options()):
            raise UsageError(f"{text}: a workload: the options of traces are not for it")
        return Workload(text, device_bytes, page_bytes)
    if not Path(text).exists():
        raise UsageError(_nothing(text))
    return Trace(text, options, format=format, device_bytes=device_bytes if fitted else None)


def _nothing(text: str) -> str:
    """The error message for a text that names no source."""
    if text == "-":
        return "-: standard input: a trace is read more than once and has to be a file: write it to one first"
    near = meant(text.partition(":")[0], WORKLOADS)
    return f"{text}{near}: no such file; workloads are {', '.join(WORKLOADS)}"


def device_for(text: str, options: Options | None = None, format: str | None = None) -> tuple[int, Options, str]:
    """A device for a trace that was given none: (its bytes, how the trace is laid on it, one line that says so).

    Large enough for every address, a power of two of GiB; or, if that would be more than LARGEST, for what the trace
    touches, packed.
    """
    options = options or Options()
    if (size := _room(open_source(text, 1 << 60, options=options, format=format, fitted=False))) <= LARGEST:
        return size, options, f"{text}: on a device of {shown(size)}, which has all its addresses; --size would choose"
    for grain in (options.pack_bytes, 4096):
        options = replace(options, fit="pack", pack_bytes=grain)
        source = open_source(text, 1 << 60, options=options, format=format)
        size = _rounded(max((int((batch.offset + batch.length).max()) for batch in source.batches()), default=0))
        if size <= LARGEST:
            break
    return size, options, (
        f"{text}: its addresses would need a device of more than {shown(LARGEST)}; packed, what it never touches left "
        f"out, on one of {shown(size)}; --size and --fit would choose"
    )


def _room(source: Source) -> int:
    return _rounded(source.span_bytes())


def _rounded(end: int) -> int:
    """The least power of two of GiB that holds ``end`` bytes."""
    size = 1 << 30
    while size < end:
        size *= 2
    return size
