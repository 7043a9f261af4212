"""What a person typed, as a source of requests: a file, or a workload."""

from __future__ import annotations

from pathlib import Path

from flashfs.errors import UsageError
from flashfs.replay.source import Source
from flashfs.replay.traces import Options, Trace
from flashfs.replay.workloads import PATTERNS, Workload, is_workload


def open_source(
    text: str, device_bytes: int, *, page_bytes: int = 4096, options: Options | None = None, format: str | None = None,
    fitted: bool = True,
) -> Source:  # fmt: skip
    """The file called ``text``, if there is one, else the workload.

    ``device_bytes`` is the device that requests are for; ``fitted=False`` leaves a trace the addresses that it has.
    ``options`` and ``format`` are for traces. UsageError if there is neither.
    """
    if is_workload(text) and not Path(text).exists():
        if format is not None or (options is not None and options != Options()):
            raise UsageError(f"{text}: a workload: the options of traces are not for it")
        return Workload(text, device_bytes, page_bytes)
    if not Path(text).exists():
        raise UsageError(f"{text}: no such trace, and no workload: {', '.join(PATTERNS)} are")
    return Trace(text, options, format=format, device_bytes=device_bytes if fitted else None)
