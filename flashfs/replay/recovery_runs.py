"""Measures recoveries of one device: a source is played on it, the power is cut at random places, and the device is
mounted again after each cut.

``run`` can be given to workers as a player, like ``play.run``. Its result has the operations of each step of each
recovery as lists (``recovered.STEP.reads_by_cut``), one number per recovery, and the config that made it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import nandimg
from flashfs.device import Device
from flashfs.errors import FlashfsError, UsageError
from flashfs.replay import phases, play
from flashfs.replay._player import Player
from flashfs.replay.open_source import open_source
from flashfs.replay.precondition import Precondition
from flashfs.replay.request_source import Batch, Source

CUTS = 8  #: recoveries of a point: the cost depends on the place of the cut, and eight show by how much
OPERATIONS = ("spare_reads", "reads", "programs")
ALL = "all"  #: the name of the sum over all steps


def run(setup: play.Setup, progress: play.Progress | None = None) -> dict[str, Any]:
    """Play a setup's source and cut the power CUTS times, each time between two requests; requests that had not ended
    by then were not acknowledged. UsageError and TraceError if the setup cannot be played; FlashfsError if the device
    is damaged after the last recovery."""
    if setup.image is not None:
        raise UsageError("image: recoveries are measured on a chip in memory; use geometry and precondition")
    wanted = Precondition.parse(setup.precondition)
    image = nandimg.memory_image(setup.geometry, setup.backend)
    device = _started(image, setup)
    try:
        before = phases.sources(setup.before, device.size, device.page_bytes, setup.trace)
        done = phases.prepare(device, wanted, before, progress)
        device.leave()
        device = _started(image, setup)
        warm = phases.sources(setup.warm, device.size, device.page_bytes, setup.trace)
        done["warm"] = phases.played(device, warm, "--warm", progress)
        source = open_source(
            setup.source, device.size, page_bytes=device.page_bytes, options=setup.trace, format=setup.format
        )
        places = cuts(source)
        config = play.config_of(setup, device, source, play.depth_of(setup, source), wanted)
        steps: dict[str, dict[str, list[int]]] = {}
        requests = 0
        for part in _to_each(source, places):
            player = Player(device.ssd, config["qd"] or 0, device.quiet_at())
            for batch in part:
                player.take(batch)
                requests += len(batch)
                if progress is not None:
                    progress(requests, places[-1])
            scheme = device.stats()["scheme"]
            device = _started(image, setup)  # a cut: the previous device was not shut down
            _note(steps, device)
        if problems := device.problems():
            raise FlashfsError(f"after a recovery: {problems[0]}")
    finally:
        device.close(clean=False)
    return {
        "ftl": device.ftl, "source": source.name, "requests_by_cut": places, "recovered": steps, "scheme": scheme,
        "input": {"requests": requests, "rejected": source.rejected.rows(), "adjusted": source.adjusted.rows()},
        "complaints": source.complaints(), **done, "config": config,
    }  # fmt: skip


def cuts(source: Source) -> list[int]:
    """After how many requests each cut comes, rising; the same for the same source. UsageError unless the source is a
    workload of at least CUTS requests."""
    total = getattr(source, "ops", None)
    if total is None or total < CUTS:
        raise UsageError(f"{source.name}: use a workload of {CUTS} requests at least: its length says where")
    return sorted(random.Random(source.hash()).sample(range(1, total + 1), CUTS))


def _started(image: nandimg.Image, setup: play.Setup) -> Device:
    return Device.start(image, setup.ftl, setup.options, dram=setup.dram, plp=setup.plp)


def _to_each(source: Source, places: list[int]) -> Iterator[Iterator[Batch]]:
    """The requests up to each of ``places``, from the previous place on."""
    batches = source.batches()
    held: list[Batch] = []

    def up_to(left: int) -> Iterator[Batch]:
        while left:
            batch = held.pop() if held else next(batches)
            if len(batch) > left:
                held.append(batch.slice(left, len(batch)))
                batch = batch.slice(0, left)
            left -= len(batch)
            yield batch

    at = 0
    for place in places:
        yield up_to(place - at)
        at = place


def _note(steps: dict[str, dict[str, list[int]]], device: Device) -> None:
    """Add the operations of the recovery of a device that was just mounted."""
    every = dict.fromkeys(OPERATIONS, 0)
    for step in device.recovery.steps:
        for name in OPERATIONS:
            took = getattr(step, name)
            steps.setdefault(step.name, {}).setdefault(f"{name}_by_cut", []).append(took)
            every[name] += took
    for name, took in every.items():
        steps.setdefault(ALL, {}).setdefault(f"{name}_by_cut", []).append(took)
