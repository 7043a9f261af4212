"""flashfs: an SSD that you can mount. A NAND chip in a sparse file, a flash translation layer chosen by name.

``flashfs.replay(...)`` and ``flashfs.sweep(...)`` replay traces and workloads, and return data frames.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """What takes time to import comes when it is asked for."""
    if name == "replay":
        from importlib import import_module

        return import_module("flashfs.replay")
    if name == "sweep":
        from flashfs.replay.api import sweep

        return sweep
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
