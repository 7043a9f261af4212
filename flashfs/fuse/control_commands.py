"""Commands from another process to a device that is served, through its control: flashfs/fuse/control.py."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from flashfs import inspect
from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import asking, places
from flashfs.fuse.places import Progress
from flashfs.poll import readable

GONE_S = 30.0  # a process that was killed is gone long before


class RefusedError(FlashfsError):
    """The mount's own message, and the exit code that goes with it."""

    def __init__(self, line: str, exit_code: int) -> None:
        super().__init__(line)
        self.exit_code = exit_code


class Control:
    """One device: ``where`` it is mounted, or the image or the socket of `flashfs nbd`. UsageError if it
    is neither."""

    def __init__(self, where: Path) -> None:
        self.place = places.at(where)

    def ask(self, *words: str, progress: Progress | None = None) -> dict[str, Any]:
        """Give a command, and return its answer; RefusedError says why it was not done. ``progress`` gets, now and
        then, the share of it that is done, if the device reports it."""
        try:
            answer = self.place.give(" ".join(words), progress)
        except PermissionError:
            raise self._not_ours() from None
        if "error" in answer:
            raise RefusedError(answer["error"], answer["exit_code"])
        return answer

    def state(self) -> dict[str, Any]:
        """Which faults are set, and how many operations were counted since."""
        return self._text("control")

    def pid(self) -> int:
        """The daemon's."""
        config = self._config()
        return asking.as_seen_here(int(config["pid"]), str(config["image"]))

    def image(self) -> str:
        return str(self._config()["image"])

    def _config(self) -> dict[str, Any]:
        return self._text("config.json")

    def _text(self, name: str) -> dict[str, Any]:
        try:
            return self.place.text(name)
        except PermissionError:
            raise self._not_ours() from None

    def _not_ours(self) -> FlashfsError:
        return FlashfsError(f"{self.place.name} belongs to another user: that user may ask it")

    # --- what lies in flash

    def ftl(self) -> str:
        return str(self._config()["ftl"])

    def dies(self) -> int:
        """Of the chip."""
        return int(self._config()["geometry"]["dies"])

    def dump(self, view: str, number: int | None = None, progress: Progress | None = None) -> tuple[Any, str]:
        """(what the view shows, what of the device's state no view can show, or ""). Does not call ``progress``."""
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
        """Set these faults from now on; none if ``words`` is ["none"]. Returns ``state``."""
        return self.ask("fault", *words)

    def cut(self) -> str:
        """The power goes, between two flash operations: the server kills itself. Returns the image's path once its lock
        is free. What is mounted stays there, dead, until it is mounted again or unmounted."""
        pid, image = self.pid(), self.image()
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            raise UsageError(f"{self.place.name}: its server, process {pid}, is gone already") from None
        try:
            with suppress(OSError, ValueError, asking.DeadError):  # the server is gone before it answers
                self.ask("cut")
            if not readable(descriptor, timeout_s=GONE_S):
                raise FlashfsError(
                    f"{self.place.name}: process {pid} was asked to end, and still runs after {GONE_S:.0f} s"
                )
        finally:
            os.close(descriptor)
        return image


def _note(answer: dict[str, Any]) -> str:
    n = answer["buffered"]
    return f"as a power cut now would leave it: {n:,} pages are in the write buffer alone" if n else ""
