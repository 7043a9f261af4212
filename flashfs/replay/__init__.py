"""Replays: traces and workloads on every FTL, in virtual time; results, pictures and sweeps of them.

The package is a function too: ``flashfs.replay("zipf:ops=1M", ftl=["pagemap", "slimftl"])`` is a data frame (see
``flashfs.replay.api``).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **keywords: Any) -> polars.DataFrame:
        from flashfs.replay.api import replay  # here: whoever reads one trace needs none of it

        return replay(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        """What help() and a notebook show for ``flashfs.replay``."""
        if name in ("__signature__", "__wrapped__"):
            import inspect

            from flashfs.replay.api import replay

            return inspect.signature(replay) if name == "__signature__" else replay
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _Callable
