"""An image that is damaged between two lives, and what its device should hold."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nandimg
from flashfs import inspect
from flashfs.crash.programs import presets_for, without_battery
from flashfs.device import Device
from flashfs.errors import UncorrectableError
from nandimg import PRESETS

PAGE = 512
USER = 1


def page_of(lpa: int, version: int) -> bytes:
    return struct.pack("<QQ", lpa, version) * (PAGE // 16)


class Rig:
    """An image and what its device should hold: ``model`` is LPA -> content, zeros where it has none."""

    def __init__(self, path: Path, ftl: str, front: Any = None) -> None:
        self.path = path
        self.geometry = PRESETS[presets_for(ftl, ("tiny-16", "tiny-32", "tiny-48"))[0]].geometry
        self.layout: Any = None
        self.model: dict[int, bytes] = {}
        self.version = 0
        nandimg.create(path, self.geometry)
        # slimftl's options are fixed when it is bound; no buffer: what is written is programmed at once
        # nor a battery, which knows what a scan is to find
        self.options = {"buffer": "0", **without_battery(ftl)}
        self.device = Device.open(path, ftl=ftl, options=self.options, front=front)
        self.layout = nandimg.inspect(path).layout

    def write(self, *lpas: int) -> None:
        for lpa in lpas:
            self.version += 1
            self.model[lpa] = page_of(lpa, self.version)
            self.device.write(lpa * PAGE, self.model[lpa])

    def trim(self, lpa: int, n: int = 1) -> None:
        self.device.trim(lpa * PAGE, n * PAGE)
        for at in range(lpa, lpa + n):
            self.model.pop(at, None)

    def remember(self) -> None:
        """All that was written is known to a checkpoint. Twice: a fence leaves to the scan what came since the one
        before it."""
        self.device.checkpoint()
        self.device.checkpoint()

    def kill(self) -> None:
        self.device.close(clean=False)

    def open(self, **how: Any) -> list[str]:
        """Mount; what the mount said."""
        self.device = Device.open(self.path, options=self.options, **how)
        return list(self.device.recovery.alarms)

    # --- damage

    def strike(self, at: int) -> None:
        with self.path.open("r+b") as file:
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 0x55]))

    def wreck(self, *ppas: int) -> None:
        for ppa in ppas:
            self.strike(self.layout.spare_at + ppa * self.layout.stride + self.layout.record_head + 2)

    def rot(self, *ppas: int) -> None:
        for ppa in ppas:
            self.strike(self.layout.data_at + ppa * PAGE + 100)

    def blank(self, ppa: int) -> None:
        """A record that is all ones after its epoch looks erased to a spare read."""
        with self.path.open("r+b") as file:
            file.seek(self.layout.spare_at + ppa * self.layout.stride + 4)
            file.write(b"\xff" * (self.layout.stride - 4))

    # --- a look at the chip

    def spares(self) -> Iterator[tuple[int, inspect.Spare]]:
        """(PPA, OOB) of each whole page, of the closed image."""
        image = nandimg.open_image(self.path, readonly=True)
        try:
            for block in range(self.geometry.blocks):
                for page in range(self.geometry.pages_per_block):
                    status, raw = image.chip.read_spare_area(block, page)
                    if status == 1:
                        yield block * self.geometry.pages_per_block + page, inspect.Spare.of(raw)
        finally:
            image.close()

    def find(self, want: Callable[[inspect.Spare], bool]) -> list[int]:
        """PPAs, those with the highest sequence numbers last."""
        found = [(spare.seq, ppa) for ppa, spare in self.spares() if want(spare)]
        return [ppa for _, ppa in sorted(found)]

    def ppa(self, lpa: int) -> int:
        """Where the newest version lies."""
        return self.find(lambda spare: spare.kind == USER and spare.lpa == lpa)[-1]

    def lpas_in(self, block: int) -> list[int]:
        """LPAs whose newest version is in that block, in the order of its pages."""
        per_block = self.geometry.pages_per_block
        newest: dict[int, tuple[int, int]] = {}
        for ppa, spare in self.spares():
            if spare.kind == USER and spare.lpa in self.model:
                newest[spare.lpa] = max(newest.get(spare.lpa, (0, 0)), (spare.seq, ppa))
        return sorted((lpa for lpa, (_, ppa) in newest.items() if ppa // per_block == block),
                      key=lambda lpa: newest[lpa][1])  # fmt: skip

    # --- what must hold

    def read(self, lpa: int) -> bytes | None:
        """None: EIO."""
        try:
            return self.device.read(lpa * PAGE, PAGE)
        except UncorrectableError as error:
            assert error.errno == 5
            return None

    def holds(self, *lost: int) -> None:
        """Everything but ``lost``, which gives EIO."""
        found = {lpa: self.read(lpa) for lpa in range(self.geometry.lpas)}
        expected = {lpa: self.model.get(lpa, bytes(PAGE)) for lpa in found} | dict.fromkeys(lost)
        assert {lpa for lpa in found if found[lpa] != expected[lpa]} == set()

    def churn(self, among: list[int], n: int = 60) -> None:
        """Make the device clean, whatever it has."""
        rnd = random.Random(n)
        for _ in range(n):
            self.write(rnd.choice(among))
        self.device.flush()
