"""Where the points of a sweep are replayed: in this process, in child processes, or by the workers of a Dask cluster.

Each takes points and yields their outcomes in the order in which they finish: a result, or one line that says why there
is none. A point that fails, or crashes its process, does not affect the others.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol

from flashfs.errors import FlashfsError, UsageError, one_line

if TYPE_CHECKING:
    from flashfs.replay.play import Setup

PLAYER = "flashfs.replay.play:run"  #: function that is called with a Setup and a progress function
CONNECT_S = 10
TOLD_S = 0.1  #: seconds between two progress messages of a worker

Progress = Callable[[str, int, int | None], None]  #: (key, requests done, of how many if that is known)
Task = tuple[str, "Setup"]  #: a point and its key


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a point: ``result``, or ``error``, a line that says why there is none."""

    key: str
    result: dict[str, Any] | None
    error: str | None = None


class Workers(Protocol):
    player: str  #: the function that replays a point, named like PLAYER

    def outcomes(self, tasks: Iterable[Task], progress: Progress) -> Generator[Outcome, None, None]:
        """One outcome for each task. Closing the iterator ends the points that are still running."""


def attempt(
    player: str, setup: Setup, progress: Callable[[int, int | None], None] | None = None,
    classes: Mapping[str, bytes] | None = None,
) -> tuple[str, str]:  # fmt: skip
    """Replay a point: ("result", JSON) or ("error", why in one line). ``classes``: FTLs that the sweep was given as
    classes, pickled."""
    module, _, name = player.partition(":")
    try:
        if classes:
            from flashfs.ftl import class_names

            class_names.unpack(classes)
        found = getattr(import_module(module), name)(setup, progress)
        return "result", json.dumps(found)
    except Exception as error:  # any error is this point's alone; the sweep ends with exit code 1
        return "error", one_line(error)[0]


def classes_of(tasks: Iterable[Task]) -> dict[str, bytes]:
    """The classes that are FTLs of these points, packed for other processes."""
    from flashfs.ftl import class_names

    return class_names.packed({getattr(setup, "ftl", "") for _, setup in tasks})


def outcome(key: str, said: tuple[str, str]) -> Outcome:
    kind, text = said
    return Outcome(key, json.loads(text)) if kind == "result" else Outcome(key, None, text)


class Here:
    """Replays one point after the other in this process."""

    def __init__(self, player: str = PLAYER) -> None:
        self.player = player

    def outcomes(self, tasks: Iterable[Task], progress: Progress) -> Generator[Outcome, None, None]:
        for key, setup in tasks:
            yield outcome(key, attempt(self.player, setup, partial(progress, key)))


class Processes:
    """``jobs`` processes on this machine, each a new interpreter: a fork of a process with threads (polars has some)
    may deadlock, and multiprocessing's spawn runs the caller's script again.

    Each is at the other end of a socket. They end when it closes, which it does however this process ends.
    """

    def __init__(self, jobs: int, player: str = PLAYER) -> None:
        self.jobs = jobs
        self.player = player

    def outcomes(self, tasks: Iterable[Task], progress: Progress) -> Generator[Outcome, None, None]:
        waiting = deque(tasks)
        classes = classes_of(waiting)
        busy: dict[Connection, Worker] = {}
        try:
            for _ in range(min(self.jobs, len(waiting))):
                worker = Worker(self.player, classes)
                busy[worker.pipe] = worker.take(*waiting.popleft())
            while busy:
                for pipe in wait(list(busy)):
                    worker = busy[pipe]  # type: ignore[index]
                    found = worker.hear(progress)
                    if found is None:
                        continue
                    del busy[worker.pipe]
                    if waiting:
                        next_one = worker if worker.alive else Worker(self.player, classes)
                        busy[next_one.pipe] = next_one.take(*waiting.popleft())
                    if worker.pipe not in busy:
                        worker.end()
                    yield found
        finally:
            for worker in busy.values():
                worker.end()


class Worker:
    """One process, and its current point."""

    def __init__(self, player: str, classes: Mapping[str, bytes]) -> None:
        from flashfs.ftl_search import SEARCHED

        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flashfs.replay.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
            )  # fmt: skip
        self.pipe = Connection(ours.detach())
        self.alive = True
        self.key = ""
        self._tell((player, list(SEARCHED), classes))

    def take(self, key: str, setup: Setup) -> Worker:
        self.key = key
        self._tell(setup)
        return self

    def _tell(self, message: Any) -> None:
        with suppress(OSError):  # it has died: hear() notices that, and says how
            self.pipe.send(message)

    def hear(self, progress: Progress) -> Outcome | None:
        """The outcome of its point; None if the message is only progress."""
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self.alive = False
            return Outcome(self.key, None, f"its process ended before it did: {self._how()}")
        if message[0] == "progress":
            progress(self.key, *message[1:])
            return None
        return outcome(self.key, message)

    def _how(self) -> str:
        code = self.process.wait()
        if code >= 0:
            return f"exit code {code}"
        return f"signal {-code}{' (out of memory?)' if code == -9 else ''}"

    def end(self) -> None:
        """Kill the process: it has no state to save."""
        self.pipe.close()
        self.process.kill()
        self.process.wait()


class Cluster:
    """The workers of a Dask cluster, by the address of its scheduler. They need the same flashfs, and see the same
    traces under the same names."""

    def __init__(self, address: str, player: str = PLAYER) -> None:
        self.address = address
        self.player = player

    def outcomes(self, tasks: Iterable[Task], progress: Progress) -> Generator[Outcome, None, None]:
        distributed = _distributed()
        try:
            _knock(self.address)
            client = distributed.Client(self.address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            line = " ".join(str(error).split())
            raise FlashfsError(f"--scheduler {self.address}: no scheduler answers ({line})") from None
        with client:
            _same_program(client, self.address)
            keys = {}
            tasks = list(tasks)
            classes = classes_of(tasks)
            for key, setup in tasks:  # pure: the same point of two sweeps is replayed once
                future = client.submit(attempt, self.player, setup, None, classes, key=f"flashfs-{key}", retries=0)
                keys[future] = key
            try:
                yield from self._finished(distributed.as_completed(list(keys), loop=client.loop), keys)
            finally:
                with suppress(Exception):  # the scheduler may be gone; any error here matters less than ours
                    client.cancel(list(keys))

    def _finished(self, completed: Any, keys: dict[Any, str]) -> Generator[Outcome, None, None]:
        for future in completed:
            if future.status == "finished":
                yield outcome(keys[future], future.result())
            elif future.status == "cancelled":
                raise FlashfsError(
                    f"--scheduler {self.address}: it went away; run the same command again, and it continues"
                )
            else:
                yield Outcome(keys[future], None, one_line(future.exception())[0])


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise UsageError(
            "--scheduler needs the package distributed: install it with pip install 'flashfs[cluster]'"
        ) from None
    import logging

    for name in ("distributed", "tornado"):  # they log many lines where our error is one
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return distributed


def _knock(address: str) -> None:
    """OSError or ValueError if nothing listens at ``address``. Checked first, because a Client that finds no scheduler
    leaves its event loop running, and the thread that garbage-collects it waits for that."""
    from distributed.comm import get_address_host_port

    socket.create_connection(get_address_host_port(address), CONNECT_S).close()


def _same_program(client: Any, address: str) -> None:
    """FlashfsError if there are no workers, or a worker runs another version of the program."""
    from flashfs.replay.grid import code

    found = client.run(code, on_error="return")
    if not found:
        raise FlashfsError(f"--scheduler {address}: it has no workers")
    for worker, version in sorted(found.items()):
        if isinstance(version, Exception):
            raise FlashfsError(f"--scheduler {address}: worker {worker}: {one_line(version)[0]}")
        if version != code():
            raise FlashfsError(f"--scheduler {address}: worker {worker} has flashfs {version}: use {code()}")
