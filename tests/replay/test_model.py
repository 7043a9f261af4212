"""The model of time: three cases computed by hand, the closed form of a queue, and dies that work side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.replay._player import Histogram, Player
from flashfs.replay.request_source import FLUSH, READ, TRIM, WRITE
from nandimg import Geometry

READ_US, PROGRAM_US, TRANSFER_US = 50, 500, 5
PAGE = 4096


def chip(dies: int, channels: int, transfer_us: int = TRANSFER_US) -> Geometry:
    """Its host sees a fourth of it: there are blocks enough for an open one on each die."""
    return Geometry(
        page_bytes=PAGE, pages_per_block=64, blocks=64 * dies, dies=dies, channels=channels, lpas=16 * 64 * dies,
        read_ns=READ_US * 1000, program_ns=PROGRAM_US * 1000, erase_ns=3_000_000, transfer_ns=transfer_us * 1000,
    )  # fmt: skip


def device(geometry: Geometry, **options: int) -> Device:
    """In memory, without user data; its write buffer holds nothing unless ``options`` say so."""
    return Device.memory(geometry, "pagemap", {"buffer": 0, **options}, backend="meta")


def filled(geometry: Geometry, **options: int) -> Device:
    one = device(geometry, **options)
    play(one, [(WRITE, at * PAGE, PAGE) for at in range(geometry.lpas)], qd=1)
    one.checkpoint()  # so that none comes in the way of what is measured
    one.forget_counts()
    return one


def play(on: Device, requests: list[tuple[int, int, int]], qd: int, times_us: list[int] | None = None) -> Player:
    """``requests`` are (operation, offset, length); they begin when the device is quiet."""
    player = Player(on.ssd, qd, on.quiet_at())
    op, offset, length = (np.array(column) for column in zip(*requests, strict=True))
    times = np.array(times_us or [0] * len(requests), np.int64) * 1000
    player.play(times, op.astype(np.uint8), offset.astype(np.uint64), length.astype(np.uint64))
    return player


def mean_us(player: Player, operation: str) -> float:
    found = player.histograms()[operation]
    return found.sum_ns / found.n / 1000


# --- by hand


def test_one_read() -> None:
    """The die reads for 50 us, the channel moves the page in 5."""
    player = play(filled(chip(1, 1)), [(READ, 0, PAGE)], qd=1)
    assert player.end_ns - player.base_ns == (READ_US + TRANSFER_US) * 1000


def test_four_pages_on_four_dies_of_two_channels() -> None:
    """Stripes of one page: four dies read at once; each channel then moves two pages in a row. Written the
    same way: channel 0 brings die 0 its page by 5 us and die 2 by 10; the last program ends at 510."""
    one = filled(chip(4, 2), stripe=1)
    player = play(one, [(READ, 0, 4 * PAGE)], qd=1)
    assert player.end_ns - player.base_ns == (READ_US + 2 * TRANSFER_US) * 1000
    player = play(one, [(WRITE, 0, 4 * PAGE)], qd=1)
    assert player.end_ns - player.base_ns == (PROGRAM_US + 2 * TRANSFER_US) * 1000


def test_a_part_of_a_page_is_read_before_it_is_written() -> None:
    """Two dependent steps: 55 us for the old page, then 5 of channel and 500 of die; nothing to read in a hole."""
    one = filled(chip(1, 1))
    player = play(one, [(WRITE, 512, 1024)], qd=1)
    assert player.end_ns - player.base_ns == (READ_US + TRANSFER_US + TRANSFER_US + PROGRAM_US) * 1000
    blank = device(chip(1, 1))
    player = play(blank, [(WRITE, 512, 1024)], qd=1)
    assert player.end_ns - player.base_ns == (TRANSFER_US + PROGRAM_US) * 1000


def test_a_read_behind_a_program_on_the_same_die_waits_for_it() -> None:
    one = filled(chip(1, 1))
    player = play(one, [(WRITE, 0, PAGE), (READ, PAGE, PAGE)], qd=0, times_us=[0, 100])
    assert mean_us(player, "write") == TRANSFER_US + PROGRAM_US
    assert mean_us(player, "read") == PROGRAM_US + TRANSFER_US - 100 + READ_US + TRANSFER_US


def test_the_write_buffer_acknowledges_at_once_until_it_is_full() -> None:
    """Eight slots: eight writes take no time. The ninth empties the buffer and has to wait for a slot: for the run of
    eight, which is one operation of 5 + 8 x 500 us."""
    one = filled(chip(1, 1), buffer=8)
    player = play(one, [(WRITE, at * PAGE, PAGE) for at in range(9)], qd=1)
    found = player.histograms()["write"]
    assert (found.n, found.least_ns, found.sum_ns) == (9, 0, found.most_ns)
    assert found.most_ns == (TRANSFER_US + 8 * PROGRAM_US) * 1000


def test_holes_and_trims_take_no_time_and_a_flush_waits_for_the_dies() -> None:
    one = device(chip(1, 1))
    requests = [(READ, 0, PAGE), (WRITE, 0, PAGE), (TRIM, 0, PAGE), (FLUSH, 0, 0)]
    player = play(one, requests, qd=0, times_us=[0, 0, 10, 20])
    assert mean_us(player, "read") == 0
    assert mean_us(player, "trim") == 0
    # After the write the trim's record: another page to transfer and to program.
    assert mean_us(player, "flush") >= TRANSFER_US + 2 * PROGRAM_US - 20


# --- queues


@pytest.mark.parametrize("depth", [1, 2, 4, 16, 64])
def test_latency_follows_the_depth_on_one_die(depth: int) -> None:
    """One server, N customers, service S: each waits for the N - 1 others, so its latency is N x S. The die's 50 us are
    the service; the transfer of 5 overlaps the next read, and is added once."""
    rounds = 32
    one = filled(chip(1, 1))
    requests = [(READ, at % one.nand.geometry.lpas * PAGE, PAGE) for at in range(depth * rounds)]
    player = play(one, requests, qd=depth)
    end_us = (player.end_ns - player.base_ns) / 1000
    if depth == 1:
        assert end_us == len(requests) * (READ_US + TRANSFER_US)
    else:
        assert end_us == len(requests) * READ_US + TRANSFER_US
    found = player.histograms()["read"]
    steady = READ_US + TRANSFER_US if depth == 1 else max(depth * READ_US, READ_US + TRANSFER_US)
    assert found.most_ns / 1000 == pytest.approx(steady, abs=TRANSFER_US)
    if depth > 1:
        assert found.quantile(0.9) / 1000 == pytest.approx(steady, rel=0.01)


def rate(dies: int, channels: int, transfer_us: int, depth: int) -> float:
    """Reads a microsecond, of pages that lie in turn on all dies."""
    one = filled(chip(dies, channels, transfer_us), stripe=1)
    pages = min(one.nand.geometry.lpas, 256 * dies)
    player = play(one, [(READ, at * PAGE, PAGE) for at in range(pages)], qd=depth)
    return pages / ((player.end_ns - player.base_ns) / 1000)


def test_64_dies_are_64_times_one_until_their_channel_is_full() -> None:
    alone = rate(1, 1, transfer_us=0, depth=8)
    assert alone == pytest.approx(1 / READ_US, rel=1e-3)
    assert rate(64, 64, transfer_us=0, depth=64 * 8) / alone == pytest.approx(64, rel=0.02)
    for channels in (1, 2, 4, 8):  # 5 us a page: a channel moves 200,000 pages a second
        full = min(64 / READ_US, channels / TRANSFER_US)
        assert rate(64, channels, TRANSFER_US, depth=64 * 8) == pytest.approx(full, rel=0.02)


def test_random_reads_use_a_channel_while_dies_make_others_wait() -> None:
    """Long queues at some dies must not hold a channel idle for others: with 32 dies on four channels, half of what
    the channels can move, a deep queue keeps the dies of a random pattern busy."""
    one = filled(chip(32, 4), stripe=1)
    rng = np.random.default_rng(5)
    requests = [(READ, int(at) * PAGE, PAGE) for at in rng.integers(0, one.nand.geometry.lpas, 20_000)]
    player = play(one, requests, qd=32 * 8)
    busy_us = len(requests) * READ_US / 32
    assert busy_us / ((player.end_ns - player.base_ns) / 1000) > 0.85


def test_open_loop_latency_counts_from_the_arrival() -> None:
    """Ten reads at once on one die: the first ends after 55 us, each further one 50 later."""
    player = play(filled(chip(1, 1)), [(READ, at * PAGE, PAGE) for at in range(10)], qd=0)
    found = player.histograms()["read"]
    assert (found.least_ns, found.most_ns) == (55_000, 505_000)
    assert found.sum_ns == sum(55_000 + 50_000 * i for i in range(10))


# --- what the figures are made of


def test_histogram() -> None:
    rng = np.random.default_rng(1)
    values = np.sort((10 ** rng.uniform(0, 11, 5_000)).astype(np.int64))
    one = Histogram()
    for value in rng.permutation(values).tolist():
        one.note(value)
    assert (one.n, one.least_ns, one.most_ns) == (len(values), values[0], values[-1])
    for share in (0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = values[max(0, int(np.ceil(share * len(values))) - 1)]
        assert one.quantile(share) == pytest.approx(exact, rel=0.005, abs=1)
    uppers, counts = one.buckets()
    assert sum(counts) == one.n
    assert uppers == sorted(uppers)
    for upper, total in zip(uppers, np.cumsum(counts).tolist(), strict=True):
        assert np.searchsorted(values, upper, "right") == total
    with pytest.raises(ValueError, match="-1 ns"):
        one.note(-1)


@pytest.mark.parametrize(
    ("op", "offset", "length", "why"),
    [(7, 0, PAGE, "operation 7"), (READ, 1 << 40, PAGE, "the device has"), (WRITE, 0, 1 << 63, "the device has")],
)
def test_a_request_for_another_device_is_refused(op: int, offset: int, length: int, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        play(device(chip(1, 1)), [(op, offset, length)], qd=1)


def test_the_columns_must_agree() -> None:
    player = Player(device(chip(1, 1)).ssd)
    short: Any = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="lengths"):
        player.play(short, np.zeros(2, np.uint8), np.zeros(2, np.uint64), np.zeros(2, np.uint64))
