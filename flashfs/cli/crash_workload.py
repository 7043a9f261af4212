"""The mode of ``flashfs crash`` that runs a workload of the user's own: its options read, and the run."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashfs.cli import shape, units
from flashfs.errors import UsageError

if TYPE_CHECKING:
    from flashfs.crash.workload import WorkloadResult

#: what a recording has settled
SETTLED = ("--fs", "--mkfs", "--setup", "--mount-options", "--preset", "--size", "--opt", "--dram", "--plp")

Bar = Callable[[str, int | None], AbstractContextManager[Callable[..., None]]]


def run(
    given: Mapping[str, Any], workload: str | None, recording: Path | None, cuts: int | None, seed: int | None,
    bar: Bar, report: Callable[[WorkloadResult], None],
) -> WorkloadResult:  # fmt: skip
    """Record and cut. ``given``: each option by its name, None or False or empty if it was not. ``report`` gets what
    was found when a run that has found something is broken off."""
    from flashfs.crash import workload as own

    if not given["--check"] and not given["--fsck"]:
        raise UsageError("--workload: add --check COMMAND, which says what must be there after a cut; or --fsck")
    if workload is None:
        for name in SETTLED:
            if given[name]:
                raise UsageError(
                    f"{name}: the recording has it already; use it with --workload, which makes a new recording"
                )
    at = given["--at"] or ("operations" if cuts else ",".join(own.DEFAULT_PLACES))
    job = own.Job(
        given["--check"], given["--fsck"], workload, given["--setup"], recording, tuple(at.split(",")), cuts,
        random.SystemRandom().randrange(2**32) if seed is None else seed,
    )  # fmt: skip
    mkfs = given["--mkfs"]
    fs = given["--fs"] or ("ext4" if mkfs is None else "auto")
    settings = own.Settings(
        fs, given["--ftl"], units.pairs("--opt", given["--opt"] or []),
        None if given["--dram"] is None else units.size("--dram", given["--dram"]), given["--plp"],
        given["--mount-options"], mkfs,
    )  # fmt: skip
    geometry = None
    if workload is not None:
        size = given["--size"] or (None if given["--preset"] else own.default_size(fs, mkfs))
        geometry = shape.geometry_of(given["--preset"], size, None)
    found: list[WorkloadResult] = []
    try:
        with bar(f"workload on {fs}", None) as move:
            return own.run(job, settings, geometry, lambda done, of: move(done, f"of {of}"), found.append)
    finally:
        for result in found:
            report(result)
