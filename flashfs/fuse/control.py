"""The file `control` beside `disk`: commands to a mount while it runs, and the answers.

A command is one write(2). Its answer, JSON, is what is read next by the same descriptor; opened anew, the file says
what is set. An error is EINVAL, so that a shell notices, and the answer has the reason, so that a program can show it.

    dump VIEW [NUMBER]    a view of ``flashfs dump``, of what a power cut at this moment would leave
    html                  the page of ``flashfs dump --html``, the same way; what is read meanwhile says how far it is
    fault WORD...         from now on, what ``--fault`` would have done from the start; counted from here
    fault none            no more of that
    cut                   the power goes, now: there is no answer
"""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from flashfs.errors import UsageError, one_line
from flashfs.fuse import cuts, fault_words
from flashfs.fuse.fault_words import LATER, FaultFront

if TYPE_CHECKING:
    from flashfs.device import Device

log = logging.getLogger(__name__)
Tell = Callable[[bytes], None]
DIGITS_MOST = 20  #: of a number in a command


class Control:
    """Obeys commands for one device. The caller holds the server's lock, so nothing changes meanwhile."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._tell: Tell = lambda so_far: None
        self._commands: dict[str, Callable[[list[str]], Any]] = {
            "dump": self._dump, "html": self._html, "fault": self._fault, "cut": self._cut,
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        """The commands, the faults that are set, and the flash operations since they were. None, of the last two, if
        this mount was not started with `--fault`."""
        front = self._front()
        return {
            "commands": list(self._commands),
            "faults": front.plan.words if front else None,
            "operations": front.operations if front else None,
        }

    def obey(self, command: bytes, tell: Tell) -> tuple[bytes, bool]:
        """(the answer, whether it was done); the answer of one that was not holds ``error``. ``tell`` gets the
        answer for reads that come before the command is done."""
        self._tell = tell
        try:
            name, *words = command.decode(errors="replace").split() or [""]
            if name not in self._commands:
                raise UsageError(f"control {name!r}: use {', '.join(self._commands)}")
            return _encoded(self._commands[name](words)), True
        except Exception as error:
            line, exit_code = one_line(error)
            return _encoded({"error": line, "exit_code": exit_code}), False

    # --- what lies in flash

    def _dump(self, words: list[str]) -> dict[str, Any]:
        from flashfs import inspect
        from flashfs.inspect import views

        if not 1 <= len(words) <= 2 or not all(word.isdecimal() and len(word) <= DIGITS_MOST for word in words[1:]):
            raise UsageError(f"control dump {' '.join(words)}: use dump VIEW or dump VIEW NUMBER")
        with inspect.held():
            found = views.show(self._path(), words[0], int(words[1]) if words[1:] else None, trust=self._device.ftl)
        return {"found": found, **self._not_in_flash()}

    def _html(self, words: list[str]) -> dict[str, Any]:
        from flashfs import inspect

        if words:
            raise UsageError(f"control html takes no words, {' '.join(words)} was given")
        with inspect.held():
            page = inspect.html(
                self._path(), self._device.ftl, lambda share: self._tell(_encoded({"progress": round(share, 3)}))
            )
            return {"page": page, **self._not_in_flash()}

    def _path(self) -> Path:
        if self._device.path is None:
            raise UsageError("control dump: a device in memory has no image to look at")
        path, now = self._device.path, os.fstat(self._device.fileno())
        try:
            same = os.path.samestat(now, path.stat())
        except OSError:
            same = False
        if not same:
            raise UsageError(f"control dump: {path} is gone, or another file by now: the mount's own has no name")
        return path

    def _not_in_flash(self) -> dict[str, int]:
        """Pages that the host wrote and that a power cut would take, or bring back from the NVRAM."""
        return {"buffered": self._device.ssd.buffer.held}

    # --- what goes wrong

    def _cut(self, words: list[str]) -> NoReturn:
        """The caller holds the server's lock, so no flash operation is under way."""
        if words:
            raise UsageError(f"control cut takes no words, {' '.join(words)} was given")
        log.error("power cut, as asked for by control")
        if self._device.path is not None:
            cuts.note(self._device.fileno())
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")

    def _front(self) -> FaultFront | None:
        return self._device.nand if isinstance(self._device.nand, FaultFront) else None

    def _fault(self, words: list[str]) -> dict[str, Any]:
        front = self._front()
        if front is None:
            raise UsageError(f"fault: needs a device started with `--fault {LATER}`")
        if not words:
            raise UsageError("control fault: name the words of --fault, or none")
        if "none" in words and len(words) > 1:
            raise UsageError(f"fault {' '.join(words)}: none clears all faults; use it alone, or leave it out")
        front.change(fault_words.parse([] if words == ["none"] else words))
        return self.state()


def _encoded(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, default=str).encode() + b"\n"
