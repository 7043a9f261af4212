"""A device in memory for the servers to serve, which counts what reached it and on which each error can be made to
happen."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from typing import Any

import nandimg
from flashfs.device import Device
from nandimg import FaultyNand, Geometry
from nandimg._fault_filters import HostErrors


class Buggy:
    """An FTL with a bug: what it is asked is an error of two lines, once it is ``broken``."""

    broken = False

    def __init__(self, chip: Any) -> None:
        self.ppa_of: dict[int, int] = {}

    def lookup(self, lpa: int) -> int | None:
        if self.broken:
            raise ValueError("an error\nof two lines")
        return self.ppa_of.get(lpa)

    def bind(self, lpa: int, ppa: int) -> None:
        self.ppa_of[lpa] = ppa

    def unbind(self, lpa: int) -> None:
        self.ppa_of.pop(lpa, None)


class MemoryDevice(Device):
    """What `Device.stats` says, and ``calls``: pages read and written by the host, and syncs of the image, since it was
    made ready."""

    syncs = 0
    slow_s = 0.0
    broken_stats = False
    sync_error = 0

    def prepare(self, faults: list[str]) -> None:
        """``slow_flush=0.7``: seconds a sync takes; ``sync=EIO``: each fails with that; ``stats=bug``."""
        words = dict(fault.split("=") for fault in faults if "=" in fault)
        self.slow_s = float(words.get("slow_flush", 0))
        self.broken_stats = "stats" in words
        self.sync_error = getattr(errno, words["sync"]) if "sync" in words else 0
        Buggy.broken = "read" in words
        self.syncs = 0

    def count_sync(self) -> None:
        self.syncs += 1
        time.sleep(self.slow_s)
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))

    def calls(self) -> dict[str, int]:
        return {"read": self.ssd.host_read, "write": self.ssd.host_write, "flush": self.syncs}

    def stats(self) -> dict[str, Any]:
        if self.broken_stats:
            raise ValueError("an error\nof two lines")
        return {**super().stats(), "calls": self.calls()}


def make(size: int, faults: list[str]) -> MemoryDevice:
    """A device of ``size`` bytes without a write buffer, so that each write is a program. ``write=ENOSPC``: programs
    and syncs fail with that, once it is made; ``read=bug``: the FTL has a bug."""
    words = dict(fault.split("=") for fault in faults if "=" in fault)
    code = getattr(errno, words.get("write", "EIO"))
    geometry = Geometry.sized(size, op=0.5, pages_per_block=16)
    if "slow_chip" in words:  # on four dies, reads and programs take that many ms, and transfers nothing to speak of
        slow_ns = int(words["slow_chip"]) * 1_000_000
        geometry = replace(geometry, dies=4, read_ns=slow_ns, program_ns=slow_ns, transfer_ns=1)
    ftl = "memory_device:Buggy" if "read" in words else "pagemap"

    def build(at: tuple[int, ...]) -> tuple[MemoryDevice, int]:
        made: list[MemoryDevice] = []
        fronts: list[HostErrors] = []

        def front(chip: nandimg.Chip) -> nandimg.Nand:
            watched = FaultyNand(chip, on_sync=lambda: made and made[0].count_sync())
            fronts.append(HostErrors(watched, at, code, sticky=True))
            return fronts[0]

        image = nandimg.memory_image(geometry, "file")
        made.append(MemoryDevice.start(image, ftl, {"buffer": 0}, front))  # type: ignore[arg-type]
        return made[0], fronts[0].operations

    device, operations = build(())
    if "write" in words:
        device.close()
        device, _ = build((operations + 1,))
    device.prepare(faults)
    return device
