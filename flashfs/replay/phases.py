"""What is played on a device before the measurement: preconditioning, and phases, each a trace or a workload.

After them the device is shut down cleanly and opened again, whether it is kept as an image meanwhile or not. So the
measurement begins with a mount: flash and NVRAM are as the phases left them, every cache is cold, and an image that was
prepared earlier gives the same results, to the bit, as one prepared just now. Phases that warm the caches are played
after that mount, each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flashfs.device import Device
from flashfs.replay.open_source import open_source
from flashfs.replay.precondition import Precondition, Progress, play
from flashfs.replay.request_source import Source, TraceError
from flashfs.replay.traces import Options
from flashfs.replay.workloads import is_workload


def sources(before: Sequence[str], device_bytes: int, page_bytes: int, options: Options | None) -> list[Source]:
    """Each phase, opened. A trace is read and laid on the device with the ``options`` of the measured one (event, sort,
    shift, fit, pack); it is played whole, and once."""
    laid = None
    if options is not None:
        laid = Options(shift_bytes=options.shift_bytes, fit=options.fit, pack_bytes=options.pack_bytes,
                       event=options.event, sort=options.sort)  # fmt: skip
    out = []
    for text in before:
        workload = is_workload(text) and not Path(text).exists()
        out.append(open_source(text, device_bytes, page_bytes=page_bytes, options=None if workload else laid))
    return out


def said(phases: Sequence[Source]) -> list[dict[str, Any]]:
    """Everything that determines the requests of the phases; not the names of their files."""
    out = []
    for source in phases:
        described = source.describe()
        for name in ("trace", "workload", "certainty", "detected"):
            described.pop(name, None)
        out.append({**described, "hash": source.hash()})
    return out


def prepare(
    device: Device, wanted: Precondition, phases: Sequence[Source], progress: Progress | None
) -> dict[str, Any]:
    """Precondition ``device``, then play the phases. Returns what was done: ``precondition``, None if there was none,
    and ``before``, a dict for each phase. TraceError if most of a phase does not lie on the device."""
    done = {"precondition": wanted.run(device, progress), "before": played(device, phases, "--before", progress)}
    device.flush()
    device.forget_counts()
    return done


def played(device: Device, phases: Sequence[Source], flag: str, progress: Progress | None) -> list[dict[str, Any]]:
    """Play the phases that ``flag`` named. Returns what was done in each. TraceError if most of one does not lie on the
    device."""
    out = []
    for source in phases:
        device.forget_counts()
        requests = play(device, source, progress)
        lost = source.rejected.total
        if lost > requests:
            raise TraceError(f"{flag} {source.name}: {lost:,} of {lost + requests:,} requests could not be replayed")
        stats = device.stats()
        counts = {"requests": requests, "rejected": lost, "waf": stats["waf"], "host": stats["host"]}
        out.append({"source": source.name, **counts})
    return out
