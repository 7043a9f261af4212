"""A package that can also be called: ``flashfs.replay`` holds modules, and ``flashfs.replay("zipf:ops=1M")``
replays."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(package: str) -> None:
    """A call of ``package`` calls the function of the same name in its module ``api``, which is imported at the first
    call."""
    name = package.rpartition(".")[2]

    class Callable(ModuleType):
        def __call__(self, *arguments: Any, **keywords: Any) -> Any:
            return getattr(import_module(f"{package}.api"), name)(*arguments, **keywords)

        def __getattr__(self, attribute: str) -> Any:
            """The signature that help() and a notebook show."""
            if attribute not in ("__signature__", "__wrapped__"):
                raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
            function = getattr(import_module(f"{package}.api"), name)
            return inspect.signature(function) if attribute == "__signature__" else function

    sys.modules[package].__class__ = Callable
