"""The host dies: of the image's sectors written since its last sync, any subset reached the disk, in any order.

The image is a real file (without a name, so that it vanishes with the process). The chip is opened on it as a daemon
would, and the bytes that a sync made durable are remembered. When a life ends, at an operation that a cut leaves in
some shape, each 512-byte sector that changed since that sync is kept or lost; the result is opened again. A life also
ends when a sync fails: the device then takes no more changes, and what that sync should have written may or may not be
on the disk.
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
NVRAM_PAGE = 4096  #: bytes of the NVRAM that are kept or lost together
#: what recovery says of a page that was dead, erased and programmed again
REUSED = re.compile("(a|its first) page (that )?was flushed (and )?cannot be read")

Sectors = NDArray[np.uint8]  #: (sectors, SECTOR)


class Erase(NamedTuple):
    """An erase: its operation, the operations at the last sync, and whether the block held live pages then (``early``).
    No sync has made the new copies of those pages durable, so an early erase breaks a rule."""

    at: int
    synced: int
    early: bool


class HostBench(Bench):
    """A bench whose chip is a file. It is the watcher of its own chip."""

    def power_up(self, watcher: Any) -> WatchedNand:
        """Make the image and bind it; the binding is durable."""
        self.life = self.syncs = 0
        self.erase_lost = False
        self.promised = True  # no mount without syncs has left what no flush has made durable since
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
        self.marked = self.durable  # ... with what the chip wrote to its block table after the last sync
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
        """Remember the image at this number of operations, if the end of this life needs it."""
        if self.since in self.wants:
            self.marks[self.since] = self._sectors()
        block = nand.about_to_erase
        if block is not None:
            early = self.held is not None and bool(self.held[block])
            self.erased[-1].append(Erase(nand.operations + 1, nand.operations - self.since, early))
        self.since += 1

    def wanted(self) -> tuple[int, ...]:
        """The numbers of operations since the last sync at which this life must remember the image."""
        kind, _, numbers = self.keep().partition("+")[0].partition(".")
        return tuple(map(int, numbers.split("-"))) if kind in ("first", "last", "but") else ()

    def before_sync(self, nand: WatchedNand) -> None:
        """The present image survives, unless this sync fails. What the chip writes to its block table after the sync
        (the marks) is not part of it."""
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
        """Remember the marks too, if this life keeps them."""
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
        """A sync failed, and the next one would not report it again: no flush may be acknowledged after that."""
        self.say("a sync failed")
        try:
            self.ssd.sync_now()
        except OSError:
            return
        raise Wrong("a flush was acknowledged after a sync that had failed")

    def flush(self) -> None:
        super().flush()
        self.promised |= self.now("sync", "flush") != "none"

    def build(self, options: dict[str, Any]) -> Any:
        self.promised &= self.now("sync", "flush") != "none"
        return super().build(options)

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
        """Two cases look like damage but lose nothing, so their alarms are ignored: an erase that the power cut short,
        and whose beginning the host's disk lost; and an erase that the disk lost as a whole although it kept what was
        programmed after it."""
        if self.erase_lost:
            alarms = [alarm for alarm in alarms if not REUSED.search(alarm)]
        if all(cut.shape in ("before", "after") for cut in self.cuts):
            super().heard(alarms)

    def keep(self) -> str:
        """What this life keeps. After the last cut only the crash at the end comes; it keeps nothing unsynced."""
        return self.case.keeps[self.life] if self.life < len(self.case.keeps) else "none"

    def power_on(self) -> None:
        """Replace the image by what is left of it, and open that."""
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
        """The sectors on the disk after the host died. A mount without syncs promises nothing then, until a flush of
        another: the process alone dies in it, and leaves everything."""
        if not self.promised:
            return now
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
        """The NVRAM is a memory mapping, so whole pages of it are kept or lost: each as its first changed sector is."""
        layout, changed = self.image.header.layout, (old != now).any(axis=1)
        per_page = NVRAM_PAGE // SECTOR
        for page in range(layout.nvram_at // SECTOR, layout.spare_at // SECTOR, per_page):
            here = slice(page, page + per_page)
            kept[here] = kept[page + int(np.argmax(changed[here]))]
        return kept

    def kept(self, kind: str, number: str, old: Sectors, now: Sectors) -> NDArray[np.bool_]:
        """Which sectors the disk has as they are ``now``; it has the ``old`` state of the others."""
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
        """The NVRAM survives the power, not the host: its file is durable only after a sync."""
        self.nand.forget_stores()
