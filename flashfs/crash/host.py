"""The host dies: of the image's sectors written since its last sync any subset reached the disk, in any order.

The image is a real file (one without a name, so that nothing is left behind), the chip is opened on it as a daemon
would, and the bytes that a sync made durable are remembered. When a life ends, at an operation that a cut leaves in
some shape, each 512-byte sector that has changed since is kept or lost; what is left is opened again. A life may also
end because a sync failed: the device then takes no more changes, and what that sync was to write is on the disk or is
not.
"""

from __future__ import annotations

import errno
import os
import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import nandimg
from flashfs.crash._watched import WatchedNand
from flashfs.crash.bench import Bench, Wrong
from flashfs.engine.views.block_map import block_map

SECTOR = 512
NVRAM_PAGE = 4096  #: what is lost of the NVRAM at a time
#: what recovery says of a page that was dead, erased, written over
REUSED = re.compile("(a|its first) page (that )?was flushed (and )?cannot be read")

Sectors = NDArray[np.uint8]  #: (sectors, SECTOR)


class Erase(NamedTuple):
    """An erase: its operation, operations at the last sync, and whether the block held live pages then. Nothing else
    has made those durable elsewhere, so there should be none such."""

    at: int
    synced: int
    early: bool


class HostBench(Bench):
    """A bench whose chip is a file. It is the watcher of its own chip."""

    def power_up(self, watcher: Any) -> WatchedNand:
        """Make the image and bind it, which is durable when it is done."""
        self.life = self.syncs = 0
        self.erase_lost = False
        self.windows: list[list[tuple[int, int]]] = []  # of each life: operations at the last sync and at the next one
        self.erased: list[list[Erase]] = []  # of each life
        self.file = os.memfd_create("flashfs-host", os.MFD_CLOEXEC)
        nandimg.create(self.path, self.geometry, force=True)
        self.image = nandimg.open_image(self.path)
        self.image.bind("crash", {}, self.oob_bytes, nvram=self.regions)
        return self._watched(self.case.fail)

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self.file}"

    def release(self, *, unused: bool = False) -> None:
        self.image.close()
        os.close(self.file)

    def _watched(self, failing: Any) -> WatchedNand:
        self.durable = self._sectors()
        self.marked = self.durable  # ... and as the chip noted it behind the last sync
        self.since = 0  # operations since the last sync
        self.held: NDArray[np.uint32] | None = None  # live pages of each block at the last sync
        self.marks: dict[int, Sectors] = {}
        self.wants = self.wanted()
        self.windows.append([])
        self.erased.append([])
        return WatchedNand(self.image.chip, self.case.cuts[self.life :], failing, watcher=self)

    def _sectors(self) -> Sectors:
        """The image as it is in the host's memory."""
        raw = os.pread(self.file, os.fstat(self.file).st_size, 0)
        return np.frombuffer(raw, dtype=np.uint8).reshape(-1, SECTOR)

    def _erases(self) -> list[int]:
        return [self.image.chip.erase_count(block) for block in range(self.geometry.blocks)]

    def before_operation(self, nand: WatchedNand) -> None:
        """Remember the image as it was after so many operations, if the way this life ends asks for it."""
        if self.since in self.wants:
            self.marks[self.since] = self._sectors()
        block = nand.about_to_erase
        if block is not None:
            early = self.held is not None and bool(self.held[block])
            self.erased[-1].append(Erase(nand.operations + 1, nand.operations - self.since, early))
        self.since += 1

    def wanted(self) -> tuple[int, ...]:
        """Counts of operations since the last sync at which the image is to be remembered, in this life."""
        kind, _, numbers = self.keep().partition("+")[0].partition(".")
        return tuple(map(int, numbers.split("-"))) if kind in ("first", "last", "but") else ()

    def before_sync(self, nand: WatchedNand) -> None:
        """What is there now survives, unless this sync fails. The marks that the chip leaves in its block table after a
        sync do not."""
        self.syncs += 1
        if self.syncs in self.case.unsynced:
            raise OSError(errno.EIO, "the sync failed, as was planned")
        here = self.windows[-1]
        here.append((here[-1][1] if here else 0, nand.operations))
        self.durable = self.marked = self._sectors()
        self.held = block_map(self.ssd)["valid"]
        self.since = 0
        self.marks = {}

    def after_sync(self, nand: WatchedNand) -> None:
        """The marks as well, if they are to survive."""
        if self.keep().endswith("+marks"):
            self.marked = self._sectors()

    def attempt(self, action: Callable[[], None]) -> bool:
        try:
            return super().attempt(action)
        except OSError as error:
            if error.errno != errno.EIO or self.syncs not in self.case.unsynced:
                raise
        self.must_stand_still()
        self.survive()
        return False

    def must_stand_still(self) -> None:
        """A sync failed, and the next one would not say so again: no flush may be acknowledged any more."""
        self.say("a sync failed")
        try:
            self.ssd.sync_now()
        except OSError:
            return
        raise Wrong("a flush was acknowledged after a sync that had failed")

    def mount(self) -> None:
        try:
            super().mount()
        except OSError as error:
            if error.errno != errno.EIO or self.syncs not in self.case.unsynced:
                raise
            self.say("a sync failed, in the recovery")
            self.power_on()
            self.mount()

    def heard(self, alarms: list[str]) -> None:
        """Two things look like damage, and lose nothing: an erase that the power cut short, and whose beginning the
        host's disk lost; and one that the disk lost as a whole, when it kept what was programmed behind it."""
        if self.erase_lost:
            alarms = [alarm for alarm in alarms if not REUSED.search(alarm)]
        if all(cut.shape in ("before", "after") for cut in self.cuts):
            super().heard(alarms)

    def keep(self) -> str:
        """What this life leaves. Behind the last cut only the crash at the end is left; it keeps nothing unsynced."""
        return self.case.keeps[self.life] if self.life < len(self.case.keeps) else "none"

    def power_on(self) -> None:
        """Lose what is to be lost, and open what is left."""
        left = self.remains(self._sectors())
        failing = self.nand.still_failing
        before = self._erases()
        self.image.close()
        os.pwrite(self.file, left.tobytes(), 0)
        self.image = nandimg.open_image(self.path)
        self.erase_lost |= self._erases() != before
        self.life += 1
        self.nand = self._watched(failing)

    def remains(self, now: Sectors) -> Sectors:
        """What is on the disk when the host is back."""
        word, _, marks = self.keep().partition("+")
        kind, _, number = word.partition(".")
        old = self.marked if marks else self.durable
        if kind == "all":
            return now
        if kind == "first":
            return self.marks.get(int(number), now)
        kept = self.whole_pages(self.kept(kind, number, old, now), old, now)
        return np.where(kept[:, None], now, old)

    def whole_pages(self, kept: NDArray[np.bool_], old: Sectors, now: Sectors) -> NDArray[np.bool_]:
        """Of the NVRAM, which is stored to in memory, whole pages are kept or lost: each with its first sector that
        changed."""
        layout, changed = self.image.header.layout, (old != now).any(axis=1)
        per_page = NVRAM_PAGE // SECTOR
        for page in range(layout.nvram_at // SECTOR, layout.spare_at // SECTOR, per_page):
            here = slice(page, page + per_page)
            kept[here] = kept[page + int(np.argmax(changed[here]))]
        return kept

    def kept(self, kind: str, number: str, old: Sectors, now: Sectors) -> NDArray[np.bool_]:
        """Which of the sectors, each as it is ``now``, are on the disk; of the others it has the ``old``."""
        at = np.arange(len(now))
        if kind == "last":
            kept: NDArray[np.bool_] = (self.marks.get(int(number), now) != now).any(axis=1)
            return kept
        if kind == "but":
            first, end = (self.marks.get(n, now) for n in map(int, number.split("-")))
            lost = (first != end).any(axis=1) & (end == now).all(axis=1)
            return ~lost
        if kind == "coin":
            rnd = random.Random(int(number))
            share = rnd.random()
            changed = np.flatnonzero((old != now).any(axis=1))
            kept = np.zeros(len(now), dtype=bool)
            kept[[sector for sector in changed.tolist() if rnd.random() < share]] = True
            return kept
        data_from = self.image.header.layout.data_at // SECTOR
        return at >= data_from if kind == "data" else at < data_from if kind == "tables" else at < 0

    def protected(self, lpas: range) -> None:
        """The NVRAM outlives the power, not the host: the file that stands for it is durable after a sync only."""
        self.nand.forget_stores()
