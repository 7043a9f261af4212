"""Random remaps of pages to others, and no other requests: fills the remapping metadata of a device that remaps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flashfs.errors import UsageError
from flashfs.replay.request_source import GRAIN, REMAP
from flashfs.replay.workloads import _random
from flashfs.replay.workloads._grammar import Parameter, flag, size
from flashfs.replay.workloads._patterns import Span
from flashfs.replay.workloads._programs import Columns, Program, rows
from flashfs.replay.workloads._random import Stream

PIECE = 4096  #: requests that are drawn together


class Remaps(Program):
    name = "remaps"
    sources = True
    about = "remaps of a place to any other, at random; the device has what is remapped"
    parameters = (
        Parameter("iosize", size, GRAIN, "bytes of a request, and of a place"),
        Parameter("move", flag, False, "1: the source holds nothing then"),
    )

    def __init__(self, span: Span) -> None:
        values = span.values
        self._size: int = values["iosize"]
        self._places = span.bytes // self._size
        if self._size % GRAIN or self._places < 2:
            raise UsageError(f"remaps: iosize={self._size} in {span.bytes} bytes: use a multiple of {GRAIN} that has "
                             "room twice")  # fmt: skip
        self._to, self._from = (Stream(values["seed"], column) for column in (_random.PLACE, _random.WITHIN))
        super().__init__(span)
        self.moves = values["move"]

    def requests(self) -> Iterator[Columns]:
        length = np.full(PIECE, self._size, np.int64)
        while True:
            to = self._to.below(self._places, PIECE)
            apart = 1 + self._from.below(self._places - 1, PIECE)
            yield rows(REMAP, to * self._size, length, (to + apart) % self._places * self._size)
