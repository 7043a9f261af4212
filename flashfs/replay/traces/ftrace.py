"""ftrace's block events as text: from /sys/kernel/tracing/trace, `trace-cmd report` and `perf script`.

`process-pid [cpu] flags seconds: block_rq_issue: major,minor RWBS bytes (command) sector + sectors ... [process]`. Each
stage of a request is a separate event, as in a blktrace. Kernels add columns, and events of other parts of the kernel
may come between these, so a pattern finds the columns.
"""

from __future__ import annotations

import re
from typing import ClassVar

import polars as pl

from flashfs.replay.traces import _rwbs
from flashfs.replay.traces._format import NOT_A_REQUEST, Choice
from flashfs.replay.traces._text import INT, NANO, TEXT, PatternFormat

#: the event of each stage, as blktrace names them
EVENTS = {
    "Q": "block_bio_queue", "G": "block_getrq", "I": "block_rq_insert", "D": "block_rq_issue", "C": "block_rq_complete",
}  # fmt: skip
NAMES = frozenset(name.encode() for name in EVENTS.values())


class Ftrace(_rwbs.Stages, PatternFormat):
    name = "ftrace"
    title = "ftrace's block events (tracefs, trace-cmd, perf script)"
    columns: ClassVar = {
        "heading": TEXT, "time": NANO, "event": TEXT, "device": TEXT, "rwbs": TEXT, "offset": INT, "length": INT,
    }  # fmt: skip
    needed = ("time", "event", "rwbs", "offset", "length")
    sample = re.compile(
        rb"^(?:(?P<heading>cpus=\d+|version = \d+|CPU \d+ is empty)$|"
        rb".*? (?P<time>\d+\.\d+): +(?:\w+:)?(?P<event>\w+): *"
        rb"(?:(?P<device>\d+,\d+) (?P<rwbs>[A-Z]+) (?:\d+ )?(?:\([^)]*\) )?(?P<offset>\d+) \+ (?P<length>\d+)|))"
    )

    def likeness(self, head: bytes) -> float:
        """The share of lines that are events, times the share of the block events that can be read."""
        lines = self.sample_of(head)
        found = [match for line in lines if (match := self.sample.match(line))]
        ours = [match for match in found if match["event"] in NAMES]
        if not ours:
            return 0.0
        return len(found) / len(lines) * sum(match["rwbs"] is not None for match in ours) / len(ours)

    def op(self, choice: Choice) -> pl.Expr:
        other = pl.col("heading").is_not_null() | (pl.col("event") != EVENTS[choice.event])
        return (
            pl.when(other).then(pl.lit(NOT_A_REQUEST, pl.UInt8))
            .otherwise(_rwbs.operation(pl.col("rwbs"), pl.col("length")))
        )  # fmt: skip
