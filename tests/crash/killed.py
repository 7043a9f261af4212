"""A writer of the kill tier that is killed once it has done something: no clock decides how much."""

from __future__ import annotations

import subprocess
import time

from flashfs.crash.kill.workload import Workload

TIMEOUT_S = 120  #: of a machine that does other things


def killed_after(work: Workload, changes: int) -> None:
    """Run the writer until it has acknowledged so many changes, and kill it at whatever it does then."""
    process = subprocess.Popen(work.command(), stderr=subprocess.PIPE)
    end = time.monotonic() + TIMEOUT_S
    try:
        while not work.log.exists() or work.log.read_bytes().count(b'"done"') < changes:
            assert process.poll() is None, f"it ended by itself: {process.communicate()[1]!r}"
            assert time.monotonic() < end, f"not {changes} changes within {TIMEOUT_S} s"
            time.sleep(0.005)
    finally:
        process.kill()
        process.communicate()
