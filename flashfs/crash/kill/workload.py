"""What a writer and its judge share: the program that works on the file system, and what was acknowledged to it."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from flashfs.crash.kill.daemon_lives import Lost

PYTHON = (sys.executable, "-I", "-S")  #: a writer needs only the standard library, and starts faster this way


class Workload(ABC):
    """A program that makes changes durable one by one, and the judge of what is left of them.

    A round is: ``prepare``, ``command`` runs, the daemon dies, ``read_log``, recovery, ``judge`` on the mounted file
    system, ``settled`` once what was found is durable. The daemon may die during ``judge`` and ``prepare`` too: then
    both start again after the next recovery.
    """

    packages: tuple[tuple[str, str], ...] = ()  #: (program, package) that this writer needs beside Python
    checked_every = 1  #: rounds from one check of the file system and its ballast to the next
    bare = False  #: whether it works on `disk` itself, without a file system
    planned = True  #: whether cuts at flash operations are planned; else kills come when the writer says, or at random
    life_s = (0.02, 0.5)  #: how long the daemon lives once the writer ``began``, if no cut is planned
    may_end = False  #: whether the program ends by itself when it has done its share

    def __init__(self, root: Path, folder: Path, seed: str, writes: Callable[[], int]) -> None:
        """``root`` is the file system's root; ``folder``, on another disk, keeps the log; ``writes`` counts the write
        requests that reached the device."""
        self.root = root
        self.folder = folder
        self.seed = seed
        self.writes = writes
        self.log = folder / "log"
        self.aimed = 0  #: rounds whose kill came where the writer wanted it, for writers that say where

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Create what the program needs on the file system. The caller syncs the file system afterwards."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command of the next run, on a file system that holds what was settled."""

    def began(self) -> bool:
        """True once a change was acknowledged: before that, there is nothing to lose."""
        return self.log.exists() and b'"done"' in self.log.read_bytes()

    def gave_up(self, code: int, said: str) -> str | None:
        """Why the program ended for another reason than a dead device, if it did; ``said`` is its stderr."""
        return None if code == 0 else " ".join(said.split()) or f"exit code {code}"

    @abstractmethod
    def read_log(self) -> None:
        """Read what was acknowledged from the log. Called once, after the program's end."""

    @abstractmethod
    def judge(self) -> None:
        """Raise Lost unless everything acknowledged is there and the change under way is whole or absent."""

    @abstractmethod
    def settled(self) -> None:
        """What the last ``judge`` found is now durable: the next round starts from it."""


__all__ = ["PYTHON", "Lost", "Workload"]
