"""Where a device that is served can be asked: a mount by the files beside its `disk`, an nbdkit by a socket of its own.

``text`` reads one of the texts that flashfs.fuse.tree names, ``give`` hands over a command of flashfs.fuse.control.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from flashfs.errors import FlashfsError
from flashfs.fuse import asking, mounts, nbd_servers

ANSWER_BYTES = 1 << 20  # of a read
TOLD_S = 0.2  # between two looks at how far a command is
Progress = Callable[[float], None]  # called with the share that is done, 0 to 1


class Place(Protocol):
    """``name`` is its name in messages. ``text`` and ``give`` raise DeadError if the server is gone, SilentError if it
    was stopped, PermissionError if it is another user's."""

    @property
    def name(self) -> str: ...

    def text(self, name: str) -> dict[str, Any]:
        """One of its texts; OSError, and ValueError for what is no JSON."""

    def give(self, command: str, progress: Progress | None) -> dict[str, Any]:
        """The answer to a command, once it is done or refused. ``progress`` gets the share that is done, if known."""


def at(where: Path) -> Place:
    """What ``where`` names: a mountpoint of `flashfs mount` or `flashfs up`, or an image or socket of `flashfs nbd`.
    UsageError if nothing is served there."""
    place = mounts.absolute(where)
    served = None if mounts.is_folder(place) else nbd_servers.of(place)
    return MountPlace(mounts.find(place)) if served is None else NbdPlace(served)


class MountPlace:
    """A mount; ``folder`` is where its `disk` is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        return str(self.folder)

    def text(self, name: str) -> dict[str, Any]:
        return mounts.text(self.folder, name)

    def give(self, command: str, progress: Progress | None) -> dict[str, Any]:
        file = self.folder / "control"
        try:
            fd = mounts.ask(self.folder, lambda: os.open(file, os.O_RDWR))
        except PermissionError:
            raise
        except OSError as error:
            raise FlashfsError(f"{file}: {error.strerror}; served by another version of flashfs?") from None
        return mounts.ask(self.folder, lambda: _told(fd, command.encode(), progress), timeout_s=None)


class NbdPlace:
    """An image that nbdkit serves."""

    def __init__(self, served: nbd_servers.Serving) -> None:
        self.served = served

    @property
    def name(self) -> str:
        return self.served.image

    def text(self, name: str) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            answer = self._asked(f"text {name}").read()
            if not answer:
                raise asking.DeadError(f"{self.name}: process {self.served.pid} ended while it was asked")
            said: dict[str, Any] = json.loads(answer)
            return said

        found = self._ask(read)
        if "error" in found:  # of a server that is closing its image; no text has such a key
            raise FlashfsError(f"{self.name}: {found['error']}")
        return found

    def give(self, command: str, progress: Progress | None) -> dict[str, Any]:
        def follow() -> dict[str, Any]:
            for line in self._asked(f"control {command}"):
                said: dict[str, Any] = json.loads(line)
                if "progress" not in said:
                    break
                if progress is not None:
                    progress(said["progress"])
            else:
                raise asking.DeadError(f"{self.name}: process {self.served.pid} ended while it was asked")
            if progress is not None:
                progress(1.0)
            return said

        return self._ask(follow, timeout_s=None)

    def _ask(self, question: Callable[[], dict[str, Any]], timeout_s: float | None = asking.ANSWER_S) -> dict[str, Any]:
        return asking.ask(Path(self.name), self.name, question, timeout_s, self.served.pid)

    def _asked(self, line: str) -> Any:
        """The answer to ``line``, as a file."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
                end.connect(nbd_servers.address(self.served.pid))
                end.sendall(f"{line}\n".encode())
                return end.makefile("rb")
        except ConnectionRefusedError:
            raise asking.DeadError(f"{self.name}: process {self.served.pid} serves it no more") from None


# --- a mount's file `control`: a command is one write, its answer what is read next


def _told(fd: int, command: bytes, progress: Progress | None) -> dict[str, Any]:
    """The answer to a command, done or not; ``fd`` is closed."""
    try:
        try:
            _give(fd, command, progress)
        except OSError:
            answer = _read(fd)
            if "error" not in answer:
                raise
            return answer
        return _read(fd)
    finally:
        os.close(fd)


def _give(fd: int, command: bytes, progress: Progress | None) -> None:
    """Returns when the command is done; OSError if it was refused. The write waits in the kernel until then.
    ``progress`` gets a share every TOLD_S, and 1 once the command is done."""
    if progress is None:
        os.write(fd, command)
        return
    failed: list[OSError] = []

    def give(processors: set[int]) -> None:
        os.sched_setaffinity(0, processors)
        try:
            os.write(fd, command)
        except OSError as error:
            failed.append(error)

    with _apart() as givers:
        giver = threading.Thread(target=give, args=(givers,), daemon=True)
        giver.start()
        while giver.is_alive():
            giver.join(TOLD_S)
            with suppress(OSError, ValueError):
                if "progress" in (so_far := _read(fd)):
                    progress(so_far["progress"])
    if failed:
        raise failed[0]
    progress(1.0)


@contextmanager
def _apart() -> Iterator[set[int]]:
    """Keeps this thread off one processor, and yields that one: over io_uring the requests of one processor are done in
    a row, so a question from the command's processor would be answered after the command. With one processor there is
    no choice."""
    all_of_them = os.sched_getaffinity(0)
    one = {min(all_of_them)}
    if all_of_them == one:
        yield one
        return
    os.sched_setaffinity(0, all_of_them - one)
    try:
        yield one
    finally:
        os.sched_setaffinity(0, all_of_them)


def _read(fd: int) -> dict[str, Any]:
    parts = []
    at = 0
    while part := os.pread(fd, ANSWER_BYTES, at):
        parts.append(part)
        at += len(part)
    found: dict[str, Any] = json.loads(b"".join(parts))
    return found
