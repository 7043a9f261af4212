"""An image that nbdkit serves, and what clients say of it."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

from flashfs.fuse.nbd_request import Request
from flashfs.nbd import server

TIMEOUT_S = 60.0
READ, WRITE, FLUSH, ZEROES = 0, 1, 3, 6
FUA = 1
ASKS, ANSWERS = 0x25609513, 0x67446698
FIXED_NO_ZEROES = 3


def run(*command: object) -> str:
    """stdout of a command that has to succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


class Export:
    def __init__(self, image: Path, **how: Any) -> None:
        at: dict[str, Any] = {} if "port" in how else {"socket": image.with_suffix(".sock")}
        self.request = Request(image, **{**at, **how})
        self.server = server.start(self.request)
        self.pid = self.server.served.pid
        self.uri = self.server.served.uri
        self.path = image.with_suffix(".sock")

    def info(self) -> dict[str, Any]:
        (found,) = json.loads(run("nbdinfo", "--json", self.uri))["exports"]
        return dict(found)

    def extents(self) -> list[tuple[int, int, bool]]:
        """(offset, length, whether it is mapped)."""
        found = json.loads(run("nbdinfo", "--map", "--json", self.uri))
        return [(one["offset"], one["length"], one["type"] == 0) for one in found]

    def io(self, *commands: str) -> str:
        """qemu-io does these; what it printed. It flushes at the end."""
        said = run("qemu-io", "-f", "raw", *(word for line in commands for word in ("-c", line)), self.uri)
        assert "failed" not in said, said
        return said

    def end(self) -> None:
        """SIGTERM, and wait: the image is checkpointed then."""
        self.server.stop()
        self.server.wait()

    def kill(self) -> None:
        """SIGKILL, and it is gone."""
        self.server.process.kill()
        self.gone()

    def gone(self) -> None:
        """Wait until it has ended by itself."""
        self.server.process.wait(TIMEOUT_S)
        self.server.let_go()

    def take_away(self) -> None:
        """Whatever state it is in."""
        self.kill()


class Client:
    """One connection, of which the test says what goes over it: nothing is flushed that it does not ask for, and it may
    leave answers unread. A context manager that hangs up."""

    def __init__(self, path: Path | str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(TIMEOUT_S)
            self._socket.connect(str(path))
            assert self._take(18).startswith(b"NBDMAGICIHAVEOPT")
            self._socket.sendall(struct.pack(">I8sII", FIXED_NO_ZEROES, b"IHAVEOPT", 1, 0))
            self.size, _ = struct.unpack(">QH", self._take(10))
        except BaseException:
            self.hang_up()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()

    def hang_up(self) -> None:
        self._socket.close()

    def ask(self, kind: int, offset: int = 0, size: int = 0, data: bytes = b"", flags: int = 0) -> None:
        """One request, whose answer is left unread."""
        self._socket.sendall(struct.pack(">IHHQQI", ASKS, flags, kind, 0, offset, size) + data)

    def do(self, kind: int, offset: int = 0, size: int = 0, flags: int = 0) -> int:
        """One request but a read, and its answer: NBD's errno, or 0."""
        self.ask(kind, offset, size, flags=flags)
        return self._answer()

    def write(self, offset: int, data: bytes, flags: int = 0) -> int:
        """As ``do``."""
        self.ask(WRITE, offset, len(data), data, flags)
        return self._answer()

    def await_answer(self) -> None:
        """Returns when one has begun to come, which is left unread."""
        assert self._socket.recv(1, socket.MSG_PEEK)

    def _answer(self) -> int:
        magic, code, _ = struct.unpack(">IIQ", self._take(16))
        assert magic == ANSWERS
        return int(code)

    def _take(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            assert more, "the server hung up"
            found += more
        return found
