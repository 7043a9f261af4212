"""What a mount is told by somebody outside of it: by its `control` (flashfs/fuse/control.py), or by a signal."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flashfs import inspect
from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import asking, mounts
from flashfs.waiting import readable

ANSWER_BYTES = 1 << 20  # of a read
TOLD_S = 0.2  # between two looks at how far a command is
Progress = Callable[[float], None]  # is told which share is done
GONE_S = 30.0  # a process that was killed is gone long before


class RefusedError(FlashfsError):
    """The mount's own words, and the exit code that goes with them."""

    def __init__(self, line: str, exit_code: int) -> None:
        super().__init__(line)
        self.exit_code = exit_code


class Control:
    """One mount: ``mountpoint`` is what `flashfs mount` made, or where `flashfs up` put a file system. UsageError if it
    is neither."""

    def __init__(self, mountpoint: Path) -> None:
        self.folder = mounts.find(mounts.absolute(mountpoint))
        self._file = self.folder / "control"

    def ask(self, *words: str, progress: Progress | None = None) -> dict[str, Any]:
        """Give a command, and return its answer; RefusedError says why it was not done. ``progress`` is told now and
        then which share of it is done, if the mount says so."""
        try:
            fd = mounts.ask(self.folder, lambda: os.open(self._file, os.O_RDWR))
        except PermissionError:
            raise self._not_ours() from None
        except OSError as error:
            raise FlashfsError(f"{self._file}: {error.strerror}; served by another version of flashfs?") from None
        answer = mounts.ask(self.folder, lambda: _told(fd, " ".join(words).encode(), progress), timeout_s=None)
        if "error" in answer:
            raise RefusedError(answer["error"], answer["exit_code"])
        return answer

    def state(self) -> dict[str, Any]:
        """Which faults are set, and how many operations were counted since."""
        return self._text(self._file.name)

    def pid(self) -> int:
        return int(self._config()["pid"])

    def image(self) -> str:
        return str(self._config()["image"])

    def _config(self) -> dict[str, Any]:
        return self._text("config.json")

    def _text(self, name: str) -> dict[str, Any]:
        try:
            return mounts.text(self.folder, name)
        except PermissionError:
            raise self._not_ours() from None

    def _not_ours(self) -> FlashfsError:
        return FlashfsError(f"{self.folder} belongs to another user: that user may ask it")

    # --- what lies in flash

    def ftl(self) -> str:
        return str(self._config()["ftl"])

    def dies(self) -> int:
        """Of the chip."""
        return int(self._config()["geometry"]["dies"])

    def dump(self, view: str, number: int | None = None, progress: Progress | None = None) -> tuple[Any, str]:
        """(what the view shows, what of the device's state no view can show, or ""). How far it is, is not told."""
        answer = self.ask("dump", view, *([str(number)] if number is not None else []))
        return answer["found"], _note(answer)

    def write_html(self, out: Path, force: bool, progress: Progress | None = None) -> dict[str, Any]:
        """As inspect.write_html."""
        inspect.check_html(Path(self.image()), out, force)
        answer = self.ask("html", progress=progress)
        made = inspect.put_html(answer["page"], out, force)
        blocks = self._config()["geometry"]["blocks"]
        return {"file": str(out), "bytes": made, "blocks": blocks, "note": _note(answer)}

    # --- what goes wrong

    def fault(self, words: list[str]) -> dict[str, Any]:
        """From now on these; none of them if ``words`` is ["none"]. Returns ``state``."""
        return self.ask("fault", *words)

    def cut(self) -> str:
        """The power goes, between two flash operations: the daemon kills itself. Returns the image's path once its lock
        is free. What is mounted stays there, dead, until it is mounted again or unmounted."""
        pid, image = self.pid(), self.image()
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            raise UsageError(f"{self.folder}: its daemon, process {pid}, is gone already") from None
        try:
            with suppress(OSError, ValueError, asking.DeadError):  # nobody is left to answer
                self.ask("cut")
            if not readable(descriptor, timeout_s=GONE_S):
                raise FlashfsError(
                    f"{self.folder}: process {pid} was asked to end, and still runs after {GONE_S:.0f} s"
                )
        finally:
            os.close(descriptor)
        return image


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
    """Returns when the command is done; OSError if it was refused. The write of it waits that long in the kernel.
    ``progress`` is told a share every TOLD_S, and 1 once the command is done."""
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
    """Keeps this thread off one processor, and gives that one: over io_uring a processor's requests are done one after
    another, and a question that comes from where the command did would be answered behind it. With one processor there
    is no such place."""
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


def _note(answer: dict[str, Any]) -> str:
    n = answer["buffered"]
    return f"as a power cut now would leave it: {n:,} pages are in the write buffer alone" if n else ""
