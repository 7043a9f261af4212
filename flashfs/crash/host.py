"""The host dies: of the image's sectors written since its last sync any subset reached the disk, in any order.

The image is a real file (one without a name, so that nothing is left behind), the chip is opened on it as a daemon
would, and the bytes that a sync made durable are remembered. When a life ends, at an operation that a cut leaves in
some shape, each 512-byte sector that has changed since is kept or lost; what is left is opened again.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nandimg
from flashfs.crash._watched import WatchedNand
from flashfs.crash.bench import Bench

SECTOR = 512

Sectors = NDArray[np.uint8]  #: (sectors, SECTOR)


class HostBench(Bench):
    """A bench whose chip is a file. It is the watcher of its own chip."""

    def power_up(self, watcher: Any) -> WatchedNand:
        """Make the image and bind it, which is durable when it is done."""
        self.life = 0
        self.file = os.memfd_create("flashfs-host", os.MFD_CLOEXEC)
        nandimg.create(self.path, self.geometry, force=True)
        self.image = nandimg.open_image(self.path)
        self.image.bind("crash", {}, self.oob_bytes)
        return self._watched(self.case.fail)

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self.file}"

    def release(self) -> None:
        self.image.close()
        os.close(self.file)

    def _watched(self, failing: Any) -> WatchedNand:
        self.durable = self._sectors()
        self.since = 0  # operations since the last sync
        self.mark: Sectors | None = None
        return WatchedNand(self.image.chip, self.case.cuts[self.life :], failing, watcher=self)

    def _sectors(self) -> Sectors:
        """The image as it is in the host's memory."""
        raw = os.pread(self.file, os.fstat(self.file).st_size, 0)
        return np.frombuffer(raw, dtype=np.uint8).reshape(-1, SECTOR)

    def before_operation(self, nand: WatchedNand) -> None:
        """Remember the image as it was after so many operations, if the way this life ends asks for it."""
        kind, _, n = self.keep().partition(".")
        if kind in ("first", "last") and self.since == int(n):
            self.mark = self._sectors()
        self.since += 1

    def before_sync(self, nand: WatchedNand) -> None:
        """What is there now survives. The marks that the chip leaves in its block table after a sync do not."""
        self.durable = self._sectors()
        self.since = 0
        self.mark = None

    def heard(self, alarms: list[str]) -> None:
        """An erase that the power cut short, and whose beginning the host's disk lost, looks like damage."""
        if all(cut.shape in ("before", "after") for cut in self.cuts):
            super().heard(alarms)

    def keep(self) -> str:
        """What this life leaves. Behind the last cut only the crash at the end is left; it keeps nothing unsynced."""
        return self.case.keeps[self.life] if self.life < len(self.case.keeps) else "none"

    def power_on(self) -> None:
        """Lose what is to be lost, and open what is left."""
        left = self.remains(self._sectors())
        failing = self.nand.still_failing
        self.image.close()
        os.pwrite(self.file, left.tobytes(), 0)
        self.image = nandimg.open_image(self.path)
        self.life += 1
        self.nand = self._watched(failing)

    def remains(self, now: Sectors) -> Sectors:
        """What is on the disk when the host is back."""
        kind, _, number = self.keep().partition(".")
        mark = now if self.mark is None else self.mark
        if kind == "all":
            return now
        if kind == "first":
            return mark
        data_from = self.image.header.layout.data_at // SECTOR
        at = np.arange(len(now))
        if kind == "last":
            kept = (mark != now).any(axis=1)
        elif kind == "coin":
            rnd = random.Random(int(number))
            share = rnd.random()
            changed = np.flatnonzero((self.durable != now).any(axis=1))
            kept = np.zeros(len(now), dtype=bool)
            kept[[sector for sector in changed.tolist() if rnd.random() < share]] = True
        else:
            kept = at >= data_from if kind == "data" else at < data_from if kind == "tables" else at < 0
        return np.where(kept[:, None], now, self.durable)

    def protected(self, lpa: int, n: int) -> None:
        """The NVRAM outlives the power, not the host: the file that stands for it is durable after a sync only."""
