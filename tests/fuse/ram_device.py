"""A device that is only memory, with the face of ``flashfs.device.Device``: the floor that a mount's speed is compared
to, and a way to make each error happen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class RamDevice:
    """``fail`` maps the name of an operation to the exception that it raises from now on."""

    ftl = "ram"
    page_bytes = 4096

    def __init__(self, size: int) -> None:
        self.path = Path("/nowhere")
        self.size = size
        self.memory = bytearray(size)
        self.view = memoryview(self.memory)
        self.fail: dict[str, Exception] = {}
        self.calls = {"read": 0, "write": 0, "flush": 0, "stats": 0, "close": 0}

    def _enter(self, name: str) -> None:
        self.calls[name] += 1
        if name in self.fail:
            raise self.fail[name]

    def read_into(self, offset: int, into: memoryview) -> memoryview:
        self._enter("read")
        assert 0 <= offset <= offset + len(into) <= self.size
        into[:] = self.view[offset : offset + len(into)]
        return into

    def write(self, offset: int, data: bytes | memoryview) -> int:
        self._enter("write")
        assert 0 <= offset <= offset + len(data) <= self.size
        self.view[offset : offset + len(data)] = data
        return len(data)

    def flush(self) -> None:
        self._enter("flush")

    def close(self, clean: bool = True) -> None:
        self._enter("close")

    def stats(self) -> dict[str, Any]:
        self._enter("stats")
        return {"ftl": self.ftl, "calls": dict(self.calls)}

    def block_map(self) -> dict[str, Any]:
        return {"blocks": 0}

    def smart(self) -> dict[str, Any]:
        return {"bad_blocks": 0}

    def config(self) -> dict[str, Any]:
        return {"ftl": self.ftl, "size": self.size, "opened_by": os.getpid()}

    def budget_notes(self) -> list[str]:
        return []

    def stay_pageable(self) -> None:
        """Nothing is locked here."""
