"""Virtual time against an event simulation of another make: a heap of events, and a first-come queue before each die
and channel, in plain Python. What a device does is known beforehand here (reads, and writes without cleaning, each on a
die that is known), so both must come to the same."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from flashfs.device import Device
from flashfs.engine.views import block_map
from flashfs.replay._player import Player
from flashfs.replay.request_source import READ, WRITE
from nandimg import Geometry

PAGE = 4096
REQUESTS = 8_000
READ_US, PROGRAM_US = 50, 500
CHECKPOINT_NEVER = 1 << 30

Work = list[tuple[int, int]]  #: (operation, die), in the order of arrival


def geometry(dies: int, channels: int, transfer_us: int) -> Geometry:
    """Its host sees a fourth of it, so nothing is ever cleaned here."""
    blocks = 64 * -(-16 // dies) * dies
    return Geometry(
        page_bytes=PAGE, pages_per_block=64, blocks=blocks, dies=dies, channels=channels, lpas=16 * blocks,
        read_ns=READ_US * 1000, program_ns=PROGRAM_US * 1000, transfer_ns=transfer_us * 1000,
    )  # fmt: skip


# --- the simulation


@dataclass
class Station:
    """A die or a channel: serves one at a time, and the longest waiting next."""

    waiting: deque[int] = field(default_factory=deque)
    busy: bool = False


class Simulation:
    """``depth`` requests at any time. A read has its die, then the channel; a write the channel, then its die."""

    def __init__(self, shape: Geometry, work: Work, depth: int) -> None:
        self.shape, self.work = shape, work
        self.dies = [Station() for _ in range(shape.dies)]
        self.channels = [Station() for _ in range(shape.channels)]
        self.events: list[tuple[int, int, int, bool]] = []  # (when, tie, request, whether its second step ended)
        self.ties = itertools.count()
        self.began: dict[int, int] = {}
        self.latency = [0] * len(work)
        self.end = 0
        self.coming: Iterator[int] = iter(range(len(work)))
        for _ in range(depth):
            self.arrive(0)
        while self.events:
            when, _, request, over = heapq.heappop(self.events)
            station, _ = self.step(request, over)
            station.busy = False
            if not over:
                self.join(request, True, when)
            self.serve(station, when)
            if over:
                self.latency[request] = when - self.began[request]
                self.end = when
                self.arrive(when)

    def step(self, request: int, second: bool) -> tuple[Station, int]:
        """Where a request's first or second step is done, and for how long."""
        op, die = self.work[request]
        if (op == READ) == second:
            return self.channels[die % self.shape.channels], self.shape.transfer_ns
        return self.dies[die], self.shape.read_ns if op == READ else self.shape.program_ns

    def arrive(self, now: int) -> None:
        request = next(self.coming, None)
        if request is not None:
            self.began[request] = now
            self.join(request, False, now)

    def join(self, request: int, second: bool, now: int) -> None:
        station, _ = self.step(request, second)
        station.waiting.append(2 * request + second)
        self.serve(station, now)

    def serve(self, station: Station, now: int) -> None:
        if station.waiting and not station.busy:
            station.busy = True
            request, second = divmod(station.waiting.popleft(), 2)
            _, takes = self.step(request, bool(second))
            heapq.heappush(self.events, (now + takes, next(self.ties), request, bool(second)))


# --- the device


@dataclass
class Found:
    end: int
    mean: float
    p99: float
    work: Work


def played(shape: Geometry, kinds: Sequence[int], depth: int) -> Found:
    """Reads of random pages, and writes of pages that are written once: after it, each says on which die it is."""
    device = Device.memory(
        shape, "pagemap", {"buffer": 0, "stripe": 1, "checkpoint_every": CHECKPOINT_NEVER}, backend="meta"
    )
    device.ssd.write_pages(np.arange(shape.lpas, dtype=np.uint32))
    rng = np.random.default_rng(5)
    half = shape.lpas // 2
    op = np.array(kinds, np.uint8)
    lpa = np.where(op == READ, rng.integers(half, shape.lpas, len(op)), rng.permutation(half)[: len(op)])
    device.forget_counts()
    player = Player(device.ssd, depth, device.quiet_at())
    player.play(np.zeros(len(op), np.int64), op, (lpa * PAGE).astype(np.uint64), np.full(len(op), PAGE, np.uint64))
    nand = device.stats()["nand"]
    assert (nand["read"], nand["program"], nand["erase"]) == (int((op == READ).sum()), int((op == WRITE).sum()), 0)
    dies = block_map.locations(device.ssd)[lpa] // shape.pages_per_block % shape.dies
    histograms = [player.histograms()[name] for name in ("read", "write")]
    mean = sum(one.sum_ns for one in histograms) / len(op)
    one = max(histograms, key=lambda some: some.n)
    return Found(player.end_ns - player.base_ns, mean, one.quantile(0.99), list(zip(kinds, dies.tolist(), strict=True)))


SHAPES = [  # dies, channels, us a transfer, depth
    (1, 1, 5, 4), (4, 2, 5, 16), (8, 1, 5, 1), (8, 1, 5, 8), (8, 1, 5, 64), (8, 1, 3, 64), (8, 1, 5, 256),
    (8, 2, 5, 64), (32, 4, 5, 64), (32, 4, 5, 256), (32, 4, 5, 1024), (64, 8, 5, 64),
]  # fmt: skip


@pytest.mark.parametrize(("dies", "channels", "transfer_us", "depth"), SHAPES)
@pytest.mark.parametrize("op", [READ, WRITE], ids=["reads", "writes"])
def test_reads_and_writes(op: int, dies: int, channels: int, transfer_us: int, depth: int) -> None:
    """Where no channel is full. Of two that come to a channel at once either may be first, so not to the nanosecond."""
    shape = geometry(dies, channels, transfer_us)
    ours = played(shape, [op] * REQUESTS, depth)
    theirs = Simulation(shape, ours.work, depth)
    assert ours.end == pytest.approx(theirs.end, rel=1e-3)
    assert ours.mean == pytest.approx(np.mean(theirs.latency), rel=1e-3)
    assert ours.p99 == pytest.approx(np.quantile(theirs.latency, 0.99), rel=0.02)


@pytest.mark.parametrize(("dies", "channels", "transfer_us", "depth"), SHAPES)
def test_reads_among_writes(dies: int, channels: int, transfer_us: int, depth: int) -> None:
    shape = geometry(dies, channels, transfer_us)
    kinds = np.where(np.random.default_rng(3).random(REQUESTS) < 0.5, READ, WRITE).tolist()
    ours = played(shape, kinds, depth)
    theirs = Simulation(shape, ours.work, depth)
    assert ours.end == pytest.approx(theirs.end, rel=0.01)
    assert ours.mean == pytest.approx(np.mean(theirs.latency), rel=0.01)


def test_a_full_channel_serves_the_oldest_request() -> None:
    """It is given to requests in the order in which they arrived, not in which their dies are ready: as many a second,
    and no longer on average, but what waited for a slow die does not wait for the channel's whole queue as well."""
    shape = geometry(8, 1, 8)
    ours = played(shape, [READ] * REQUESTS, 64)
    theirs = Simulation(shape, ours.work, 64)
    assert ours.end == pytest.approx(theirs.end, rel=0.005)
    assert ours.mean == pytest.approx(np.mean(theirs.latency), rel=0.005)
    assert ours.p99 < np.quantile(theirs.latency, 0.99)
