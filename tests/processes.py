"""Processes that a test stops for a while."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

TIMEOUT_S = 120


def stop(pid: int) -> None:
    """SIGSTOP; returns once every thread of the process has stopped."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + TIMEOUT_S
    while any(goes_on(task.read_text()) for task in Path(f"/proc/{pid}/task").glob("*/stat")):
        assert time.monotonic() < end, "it goes on"
        time.sleep(0.005)


def goes_on(stat: str) -> bool:
    return stat.rpartition(")")[2].split()[0] not in "Tt"
