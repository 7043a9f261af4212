"""Invented results, and players that make them: for tests of what becomes of results.

Workers find the players by name, ``made_up:play``. What they do besides is in the environment: MADE_UP_CALLS is a file
to which each call is appended.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from flashfs.errors import BindError

GEOMETRY = {"page_bytes": 4096, "pages_per_block": 64, "lpas": 16384, "blocks": 320, "dies": 4, "channels": 2}


def result(ftl: str = "pagemap", source: str = "uniform:ops=1k", *, waf: float = 2.0, **config: Any) -> dict[str, Any]:
    """One whole result; ``config`` changes what it says of the set-up: ``dram``, ``qd``, ``seed``, ``options``, ..."""
    table = 65_536 if ftl == "pagemap" else 28_672
    dram = {f"{ftl}_table": table, "pvb": 2560, "write_buffer": 262_144, "data_cache": config.get("dram") or 0}
    dram["total"] = sum(dram.values())
    latency = {"n": 1000, "mean": 100.0, "min": 10.0, "max": 4000.0, "p50": 90.0, "p99": 1000.0 * waf}
    moved = [int(i * 100 * (waf - 1)) for i in range(11)]
    return {
        "ftl": ftl,
        "source": source,
        "host": {"read": 0, "write": 1000, "trim": 0, "flush": 0},
        "requests": {"read": 0, "write": 1000, "trim": 0, "flush": 0},
        "nand": {
            "read": 900, "program": int(1000 * waf), "erase": 10, "spare_read": 0,
            "by_cause": {"read": {}, "program": {"host": 1000, "gc": int(1000 * (waf - 1))}},
        },
        "scheme": {"extra_reads": 0},
        "waf": waf,
        "map_bytes": table,
        "dram": dram,
        "heap": 1,
        "allocated": dram,
        "cache": {"slots": 10, "hits": 30, "misses": 70, "hit_ratio": 0.3},
        "latency_us": {"read": None, "write": latency},
        "iops": 10_000 / waf if waf else 0.0,
        "virtual_s": 1.0,
        "wall_s": 0.1,
        "pages_per_s": 1e6,
        "wear": {"erases": {"min": 2, "max": 6, "mean": 2.0 * waf, "spread": 4}},
        "utilisation": {"dies": {"mean": 0.5, "least": 0.4, "most": 0.6}},
        "series": {
            "virtual_s": [i / 10 for i in range(11)], "host_write": [i * 100 for i in range(11)],
            "gc_program": moved, "free_blocks": [320 - i for i in range(11)],
        },
        "histograms": {"write": {"upper_ns": [10_000, 100_000, 1_000_000], "count": [0, 900, 100]}},
        "input": {"requests": 1000, "rejected": [{"reason": "no number", "count": 1}], "adjusted": [], "skipped": {}},
        "precondition": None,
        "config": {
            "version": "0.1.0", "ftl": ftl, "options": {}, "geometry": GEOMETRY, "backend": "meta", "dram": None,
            "qd": 1, "trace": None, "seed": None, "source": {"workload": source}, "source_hash": "0" * 64,
            "precondition": "none", **config,
        },
    }  # fmt: skip


def play(setup: Any, progress: Any = None) -> dict[str, Any]:
    """A result at once. A DRAM of 1 KiB is too small, one of 2 KiB kills the process, one of 3 KiB makes no JSON."""
    if "MADE_UP_CALLS" in os.environ:
        with Path(os.environ["MADE_UP_CALLS"]).open("a") as calls:
            calls.write(f"{setup.ftl} {setup.source} {setup.dram}\n")
    if progress is not None:
        progress(500, 1000)
    if setup.dram == 1024:
        raise BindError(f"--dram 1024: {setup.ftl} needs\nmore")
    if setup.dram == 2048:
        os.kill(os.getpid(), 9)
    out = result(setup.ftl, setup.source, dram=setup.dram, options=setup.options)
    return {**out, "bad": {1, 2}} if setup.dram == 3072 else out


def play_slowly(setup: Any, progress: Any = None) -> dict[str, Any]:
    time.sleep(0.2)
    return play(setup, progress)


def play_for_ever(setup: Any, progress: Any = None) -> dict[str, Any]:
    play(setup)
    while True:
        time.sleep(1)
