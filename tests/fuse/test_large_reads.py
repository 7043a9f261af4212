"""Reads of 64 KiB and more, which the kernel copies out of the image and the write buffer themselves."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable

import pytest
from stand import MIB, PAGE, Stand

pytestmark = pytest.mark.mount
SIZE = 16 * MIB
LARGE = (64 << 10, 256 << 10, MIB)


@pytest.mark.parametrize("ftl", ["pagemap", "slimftl", "leaftl"])
def test_pages_of_flash_buffer_and_holes_in_one_read(stand: Callable[..., Stand], ftl: str) -> None:
    """The newest of each page, wherever it is: flushed, not flushed, written in part, trimmed, written again."""
    one, rnd = stand(16, ftl), random.Random(3)
    data = bytearray(rnd.randbytes(SIZE))
    fd = os.open(one.disk, os.O_RDWR)
    try:
        os.pwrite(fd, data, 0)
        os.fsync(fd)
        for step in range(400):
            size = rnd.choice((100, PAGE, PAGE, 3 * PAGE))
            at = rnd.randrange((SIZE - size) // PAGE) * PAGE + (17 if size == 100 else 0)
            data[at : at + size] = rnd.randbytes(size)
            os.pwrite(fd, data[at : at + size], at)
            if step % 9 == 0:
                at = rnd.randrange(SIZE // PAGE - 4) * PAGE
                data[at : at + 4 * PAGE] = bytes(4 * PAGE)
                os.pwrite(fd, bytes(4 * PAGE), at)
            size = rnd.choice(LARGE)
            at = rnd.randrange((SIZE - size) // PAGE) * PAGE
            assert os.pread(fd, size, at) == data[at : at + size]
    finally:
        os.close(fd)


def test_what_is_being_read_is_not_changed_meanwhile(stand: Callable[..., Stand]) -> None:
    """A page is of one version from its first byte to its last, though others write all the time."""
    one, stop, torn = stand(16, "pagemap"), threading.Event(), []
    pages = MIB // 2 // PAGE

    def write(seed: int) -> None:
        rnd, fd = random.Random(seed), os.open(one.disk, os.O_RDWR)
        try:
            while not stop.is_set():
                page = rnd.randrange(pages)
                os.pwrite(fd, bytes([rnd.randrange(256)]) * PAGE, page * PAGE)
        finally:
            os.close(fd)

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    fd = os.open(one.disk, os.O_RDWR)
    try:
        os.pwrite(fd, bytes(MIB), 0)
        for thread in writers:
            thread.start()
        for _ in range(1000):  # not of a MiB: memory that is not aligned makes two requests of that
            said = os.pread(fd, MIB // 2, 0)
            torn += [at for at in range(0, MIB // 2, PAGE) if said[at : at + PAGE] != said[at : at + 1] * PAGE]
    finally:
        stop.set()
        for thread in writers:
            thread.join(30)
        os.close(fd)
    assert torn == []
