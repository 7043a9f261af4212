"""Questions from other processes to nbdkit's process about its device, at a socket of its own. flashfs/fuse/places.py
sends them.

One question, a line, per connection: ``text NAME``, answered by that text, or ``control COMMAND``, answered by lines of
JSON, of which the last is the answer. Root and the process's own user may ask.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flashfs.errors import FlashfsError, UsageError, one_line
from flashfs.fuse.control import Control
from flashfs.fuse.nbd_servers import address
from flashfs.fuse.tree import encoded

if TYPE_CHECKING:
    from flashfs.device import Device
    from flashfs.nbd._plugin import Export

QUESTION_BYTES = 1 << 16
PATIENCE_S = 20.0  # for a client that asks and does not read


class Asked:
    """Answers until the process ends; ``texts`` are the functions that make the texts, by name."""

    def __init__(self, device: Device, export: Export, texts: dict[str, Callable[[], dict[str, Any]]]) -> None:
        self._export = export
        self._control = Control(device)
        self._texts = {**texts, "control": self._control.state}
        server = _Server(address(os.getpid()), self._answer)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def _answer(self, line: str, tell: Callable[[bytes], None]) -> None:
        kind, _, rest = line.partition(" ")
        try:
            with self._export:  # nothing changes meanwhile
                if kind == "text" and rest in self._texts:
                    answer = encoded(self._texts[rest]())
                elif kind == "control":
                    answer, _ = self._control.obey(rest.encode(), tell)
                else:
                    raise UsageError(f"{line!r} is no question")
        except FlashfsError as error:  # the image is being closed, say
            why, code = one_line(error)
            answer = json.dumps({"error": why, "exit_code": code}).encode() + b"\n"
        tell(answer)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, name: str, answer: Callable[[str, Callable[[bytes], None]], None]) -> None:
        self.answer = answer
        super().__init__(name, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        credentials = request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return struct.unpack("3i", credentials)[1] in (0, os.getuid())


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    timeout = PATIENCE_S

    def handle(self) -> None:
        with suppress(OSError):  # the client has gone
            line = self.rfile.readline(QUESTION_BYTES).decode(errors="replace").rstrip("\n")
            self.server.answer(line, self.request.sendall)
