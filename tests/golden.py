"""Golden counts of a scheme: in ``tests/ftl/<its folder>/golden.json``, by kind of run and scheme."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flashfs.ftl import ROOMS, SCHEMES, scheme

HERE = Path(__file__).parent


def path_of(ftl: str) -> Path:
    return HERE / "ftl" / ROOMS[ftl] / "golden.json"


def read(kind: str, ftl: str) -> Any:
    """What is on record. KeyError or FileNotFoundError if nothing is: the tests of ``kind`` say how to write it."""
    return json.loads(path_of(ftl).read_text())[kind][ftl]


def write(kind: str, counts: Callable[[str], Any], names: list[str]) -> None:
    """Count anew, for the schemes named or for all."""
    for ftl in names or list(SCHEMES):
        found, path = counts(scheme(ftl).name), path_of(ftl)
        whole = json.loads(path.read_text()) if path.exists() else {}
        whole.setdefault(kind, {})[ftl] = found
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(whole, indent=1) + "\n")
        print(f"{ftl}: {path}")
