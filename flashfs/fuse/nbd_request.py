"""What to export and how, as it goes from the command line to the plugin in nbdkit's process."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

HOST = "localhost"


@dataclass(frozen=True)
class Request:
    """Paths are absolute; ``dram`` in bytes, None for the scheme's own choice. Either ``socket`` or ``port`` is given.
    ``teller`` is the descriptor of a pipe to the process that starts nbdkit. ``stderr`` is that of its stderr, for
    messages after the start: what nbdkit prints before is part of the error if it does not start."""

    image: Path
    socket: Path | None = None
    port: int | None = None
    ftl: str | None = None
    trust: bool = False
    options: dict[str, str] = field(default_factory=dict)
    dram: int | None = None
    sync: str = "flush"
    plp: bool = False
    realtime: bool = False
    read_only: bool = False
    once: bool = False  # it ends when the last client leaves
    foreground: bool = False
    log: Path | None = None
    stats: Path | None = None
    faults: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()  # folders in which the class of an FTL is searched, too
    teller: int = -1
    stderr: int = -1

    @property
    def uri(self) -> str:
        """What an NBD client is given."""
        if self.socket is not None:
            return f"nbd+unix:///?socket={quote(os.fsencode(self.socket))}"
        return f"nbd://{HOST}:{self.port}"

    def written(self) -> str:
        """As ``read`` takes it."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def read(cls, text: str) -> Request:
        found: dict[str, Any] = json.loads(text)
        for name in ("image", "socket", "log", "stats"):
            found[name] = None if found[name] is None else Path(found[name])
        return cls(**{**found, "faults": tuple(found["faults"]), "searched": tuple(found["searched"])})
