"""The stored results of a comparison: a few figures of each replay, a line of JSON each.

The file for the workloads is part of the package. A row has ``source``, ``state`` (the precondition), ``column`` (the
FTL, and its stripe where that differs from the others'), ``level`` (the options that all FTLs of the source were given
alike), ``ground`` (the settings that it ran with), and figures named as in a result (docs/replay.md); of latencies
mean, p99 and p99.9, in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flashfs.comparison.works import PAGE, Work
from flashfs.errors import FlashfsError

FILE = Path(__file__).with_name("results") / "workloads.json"
NAMES = ("ground", "host", "waf", "map_bytes", "iops", "virtual_s", "complaints")  #: stored unchanged

Row = dict[str, Any]


def row(work: Work, state: str, column: str, level: Mapping[str, int] | None, made: Mapping[str, Any]) -> Row:
    """The row stored for the result ``made``."""
    causes = made["nand"]["by_cause"]
    latency = {
        operation: [found["mean"], found["p99"], found["p999"]]
        for operation, found in made["latency_us"].items()
        if found["n"]
    }
    return {
        "source": work.name, "state": state, "column": column, "loops": work.loops, "level": dict(level or {}),
        **{name: made[name] for name in NAMES}, "mib": made["config"]["geometry"]["lpas"] * PAGE >> 20,
        "erases": made["nand"]["erase"], "wear": made["wear"]["erases"], "program": causes["program"],
        "read": causes["read"], "latency_us": latency,
    }  # fmt: skip


def read(path: Path = FILE) -> list[Row]:
    """The rows of a file, in their order. FlashfsError if the file is missing or no stored comparison."""
    try:
        rows = json.loads(path.read_text())["rows"]
        if all(isinstance(one["column"], str) and isinstance(one["ground"], dict) for one in rows):
            return list(rows)
    except (OSError, ValueError, LookupError, TypeError):
        pass
    raise FlashfsError(f"{path}: not a comparison that was kept; `python tools/comparison.py` makes it anew")


def write(rows: Iterable[Row], path: Path = FILE) -> None:
    """Write these rows to ``path``."""
    lines = ",\n".join(json.dumps(one) for one in rows)
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{{"flashfs": "{version("flashfs")}", "rows": [\n{lines}\n]}}\n')
