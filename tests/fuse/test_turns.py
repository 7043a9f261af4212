"""Who is at the descriptor, and what happens when a task ends there."""

from __future__ import annotations

import os

import trio
import trio.testing

from flashfs.fuse.pyfuse3_poll import Turns


def test_a_task_that_ends_at_the_descriptor_leaves_it_to_another() -> None:
    """As a task of pyfuse3 does whose read finds nothing but the unmount: the next one must hear of it."""
    reader, writer = os.pipe()
    os.write(writer, b"x")
    turns = Turns(reader)
    had: list[str] = []

    async def first() -> None:
        assert await turns.readable()
        had.append("first")
        await trio.testing.wait_all_tasks_blocked()  # until the second waits for its turn

    async def second() -> None:
        while not had:
            await trio.lowlevel.checkpoint()
        assert await turns.readable()
        had.append("second")

    async def both() -> None:
        with trio.fail_after(60), turns.installed():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first)
                nursery.start_soon(second)

    try:
        trio.run(both)
    finally:
        os.close(reader)
        os.close(writer)
    assert had == ["first", "second"]
