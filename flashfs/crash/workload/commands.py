"""The user's own commands: how they are run, and how much of their output is kept."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flashfs.crash.workload import interrupts
from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import mounts

LINES = 10  #: lines of output that a failure shows
SHOWN_BYTES = 64 << 10
NO_COMMAND = (126, 127)  #: exit codes of a shell that cannot run, or cannot find, a command


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; ``lines`` are the last of what it printed, on either stream."""

    code: int
    lines: list[str]

    def __str__(self) -> str:
        return f"ended by signal {-self.code}" if self.code < 0 else f"ended with {self.code}"


def run(command: str, root: Path, variables: Mapping[str, str]) -> Ended:
    """Run ``command`` in a shell, in the current folder. `{}` stands for ``root``: the mount point, or the device.

    It has its own session; processes that it leaves there are killed, because the file system is unmounted next.
    """
    words = command.replace("{}", shlex.quote(str(root)))
    outer = {name: value for name, value in os.environ.items() if name != "FLASHFS_MARK_FILE"}
    environment = {**outer, "PATH": mounts.search_path(), **variables}
    with tempfile.TemporaryFile() as said:
        process = None
        try:
            with interrupts.held():  # so that a process that was started is also ended
                process = subprocess.Popen(
                    words, shell=True, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment,
                    start_new_session=True,
                )  # fmt: skip
            process.wait()
        finally:
            if process is not None:
                end(process)
        size = said.seek(0, os.SEEK_END)
        said.seek(max(0, size - SHOWN_BYTES))
        return Ended(process.returncode, said.read().decode(errors="replace").splitlines()[-LINES:])


def must_do(what: str, ended: Ended) -> None:
    """Raise if the command failed: FlashfsError, or UsageError if the shell says that there is no such command."""
    if ended.code != 0:
        error = UsageError if ended.code in NO_COMMAND else FlashfsError
        raise error(": ".join([f"{what} {ended}", *ended.lines[-1:]]))


@interrupts.held()
def end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
