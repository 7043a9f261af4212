"""An image that nbdkit serves, and what clients say of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from flashfs.nbd import server
from flashfs.nbd.request import Request

TIMEOUT_S = 60.0


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
