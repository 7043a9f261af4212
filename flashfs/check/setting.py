"""What a check gets, what it may raise, and the chips that it runs on."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from flashfs.crash.tiers import presets_for
from flashfs.device import Device
from flashfs.errors import BindError
from nandimg import PRESETS, Geometry

SCALES = ("quick", "full")
TINY = ("tiny-8", "tiny-16", "tiny-24d", "tiny-20p", "tiny-96", "tiny-96q")
#: for an FTL that keeps so much of its own in flash that it fits fewer than three of those
ROOMIER = ("tiny-48", "tiny-48p")
#: small, but with room: four dies, and enough blocks to spare for streams that are striped over two
ROOMY = Geometry(page_bytes=512, pages_per_block=16, blocks=64, channels=2, dies=4, oob_bytes=64, lpas=440)

#: the same with pages of eight sectors, and fewer of them
LARGE_PAGES = replace(ROOMY, page_bytes=4096, blocks=40, lpas=260)

Counts = dict[str, int]


class Broken(Exception):
    """The FTL fails the check. ``replay`` is a command that reproduces the failure alone, if there is a shorter one
    than the check itself."""

    def __init__(self, why: str, replay: str = "") -> None:
        super().__init__(why)
        self.replay = replay


class Skipped(Exception):
    """The check cannot run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Which FTL, at which scale, with which random seed."""

    spec: str
    scale: str = "quick"
    seed: int = 0

    def some(self, quick: int, full: int) -> int:
        """How many of something at this scale."""
        return full if self.scale == "full" else quick

    def chance(self, *what: object) -> random.Random:
        """Random numbers, the same for every FTL, so that all get the same requests; others for each ``what``."""
        return random.Random(" ".join(map(str, (self.seed, *what))))

    def presets(self, among: tuple[str, ...] = TINY) -> tuple[str, ...]:
        """The tiny chips that the FTL can be bound to; FlashfsError says why if there is none."""
        found = presets_for(self.spec, among)
        if among == TINY and len(found) < 3:
            found += tuple(preset for preset in presets_for(self.spec, (*found, *ROOMIER)) if preset not in found)
        return found

    def fitting(self, base: Geometry) -> Geometry:
        """``base``, with fewer logical pages if the FTL needs more spare flash; BindError if it never has enough."""
        for part in (8, 7, 6, 5, 4, 3, 2):
            geometry = replace(base, lpas=base.lpas * part // 8)
            try:
                Device.memory(geometry, self.spec, backend="meta").close(clean=False)
            except BindError as error:
                refused = error
            else:
                return geometry
        raise refused

    def geometry(self, preset: str) -> Geometry:
        """A preset's chip."""
        return PRESETS[preset].geometry


def need(kept: bool, why: str) -> None:
    """Broken, with ``why``, unless ``kept``."""
    if not kept:
        raise Broken(why)


def same(found: Any, due: Any, what: str) -> None:
    """Broken unless the two figures are equal."""
    if found != due:
        raise Broken(f"{what}: {found}, and it should be {due}")
