"""The command line: one command in one file, no logic of its own. Whatever goes wrong is one line on stderr.

Exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted. What is here starts before anything else is imported.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def main() -> None:
    """What the console script calls."""
    with _nothing_to_undo():
        _import_numpy()
        commands = import_module("flashfs.cli.commands")
    commands.main()


def mount_main() -> None:
    """What mount(8) calls."""
    with _nothing_to_undo():
        commands = import_module("flashfs.cli.commands")
    commands.mount_main()


def umount_main() -> None:
    """What umount(8) calls."""
    with _nothing_to_undo():
        commands = import_module("flashfs.cli.commands")
    commands.umount_main()


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are printed, never raised."""
    return int(import_module("flashfs.cli.commands").run(arguments))


@contextmanager
def _nothing_to_undo() -> Iterator[None]:
    """Inside, where much is imported, Ctrl-C ends the process without a word. Streams that are closed lead nowhere: the
    number of one would be that of the first file that is opened, and what is printed would go there."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored, as a shell has it for what runs in the background
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before)


def _import_numpy() -> None:
    """Without the threads of its BLAS, which spin while a command starts: none multiplies a matrix. What the command
    starts is told nothing of it."""
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        return
    os.environ[name] = "1"
    import_module("numpy")
    del os.environ[name]


def __getattr__(name: str) -> Any:
    commands = import_module("flashfs.cli.commands")  # a statement would ask here for it
    try:
        return getattr(commands, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
