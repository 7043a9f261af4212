"""Traces that `flashfs mount --record` wrote. flashfs.replay.trace_reader reads the file; this module makes lots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from flashfs.replay import trace_reader
from flashfs.replay.request_source import FLUSH, OPERATIONS, READ, REMAP, TRIM, WRITE, Hashes, TraceError, starts
from flashfs.replay.traces._content import Content
from flashfs.replay.traces._format import CUT_STREAM, Choice, Format, Lot, Telling, sound

OPS = {"read": READ, "write": WRITE, "trim": TRIM, "zero": TRIM, "flush": FLUSH, "copy": WRITE, "remap": REMAP,
       "move": REMAP}
OP = np.array([OPS[name] for name in trace_reader.OPERATIONS], np.uint8)
DROPPED = "dropped when the recorder was too slow"


class Recorded(Format):
    """A mount executes ZERO_RANGE as a trim and a copy as a read and a write; they are replayed the same way."""

    name = "flashfs"
    title = "flashfs mount --record"
    aliases = ("recorded",)

    def likeness(self, head: bytes) -> float:
        return float(head.startswith(trace_reader.MAGIC))

    def lots(self, content: Content, choice: Choice, telling: Telling) -> Iterator[Lot]:
        content.head(1)  # sets content.packing
        if content.packing != "plain":
            raise TraceError(f"{content.path}: a recorded trace is packed by itself: unpack the {content.packing}")
        trace = trace_reader.read(content.path)
        line = 1
        for batch in trace:
            lot = copies_apart(batch, line)

            def text(line: int, lot: Lot = lot) -> str:
                at = int(np.searchsorted(lot.line, line))
                return f"{OPERATIONS[lot.op[at]]}, offset {lot.offset[at]}, length {lot.length[at]}"

            yield sound(lot, telling.rejected, text)
            line += len(batch)
        if trace.dropped:
            telling.rejected.add(DROPPED, line, "", trace.dropped)
        if trace.ending is not None:
            telling.rejected.add(CUT_STREAM, line, trace.ending)

    def made_for(self, path: Path) -> tuple[int, int]:
        header = trace_reader.read(path).header
        return header.size, header.page_bytes


def copies_apart(batch: trace_reader.Batch, line: int) -> Lot:
    """A recorder's batch as a Lot, with each copy as a read of its source and a write."""
    copies = batch.op == trace_reader.COPY
    row = np.repeat(np.arange(len(batch)), np.where(copies, 2, 1))
    op, offset = OP[batch.op][row], batch.offset[row].astype(np.int64)
    words = np.diff(batch.hash_first)
    if copies.any():
        # The first of the two rows of a copy is the read; the copy's one word is its offset
        reads = np.flatnonzero(copies) + np.arange(int(copies.sum()))
        op[reads] = READ
        offset[reads] = batch.hashes[batch.hash_first[:-1][copies]].astype(np.int64)
    remaps = batch.op >= trace_reader.REMAP
    source = moved = None
    if remaps.any():
        source = np.zeros(len(batch), np.int64)
        source[remaps] = batch.hashes[batch.hash_first[:-1][remaps]].astype(np.int64)
        source, moved = source[row], (batch.op == trace_reader.MOVE)[row]
    placed = copies | remaps  # their word is an offset, not a hash
    grain = batch.hashes[np.repeat(~placed, words)]
    known = np.where(placed, 0, words)[row]
    return Lot(
        line=row + line,
        time=batch.time_ns[row].astype(np.int64),
        op=op,
        offset=offset,
        length=batch.length[row].astype(np.int64),
        hashes=Hashes(starts(known), grain),
        source=source,
        moved=moved,
    )
