"""Shared by the benchmarks: where raw results go, and the facts about the machine that they are saved with."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


def machine() -> dict[str, Any]:
    """Processor, cores, kernel, Python and the commit. Ratios compare between machines, rates do not."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
    }


def of_tests(folder: str, name: str) -> Any:
    """A module of tests/``folder``, so that a figure is checked against the same model here as there."""
    sys.path.append(str(HERE.parent / "tests" / folder))
    return import_module(name)


def save(name: str, results: dict[str, Any]) -> Path:
    """Write bench/results/``name``.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n")
    return path
