"""Live pages in blocks that hold none of the host's, which only damage leaves: a recovery drops them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandimg
from flashfs.device import Device
from flashfs.engine.recovery import recovery
from nandimg import Geometry

PAGE, LPAS = 512, 200
GEOMETRY = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=40, dies=1, channels=1, oob_bytes=64, lpas=300)


class CallsMetadataLive(recovery.Recovery):
    """After its step ``blocks``, validity calls a page of the log live, as the map of a damaged device may make it."""

    def __init__(self, ssd: Any, readonly: bool = False, repairs: bool = False) -> None:
        super().__init__(ssd, readonly, repairs)
        self.ssd = ssd

    def table(self) -> list[tuple[Any, ...]]:
        table = super().table()  # type: ignore[misc]
        at = [name for _, name, _, _ in table].index("blocks")
        return [*table[: at + 1], ("tests", "hurt", "call a page of metadata live", self.hurt), *table[at + 1 :]]

    def hurt(self) -> str:
        live = np.frombuffer(bytes(self.ssd.validity.save()["pvb"]), "<u8").copy()  # a word a block
        states = [self.ssd.pool.describe(block)["state"] for block in range(GEOMETRY.blocks)]
        live[states.index("meta")] |= np.uint64(8)
        self.ssd.validity.take_named(live)
        return ""


def test_a_live_page_in_a_block_of_metadata_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, GEOMETRY)
    device = Device.open(path, ftl="pagemap", options={"buffer": "0"})
    for lpa in range(LPAS):
        device.write(lpa * PAGE, lpa.to_bytes(8, "little") * (PAGE // 8))
    device.flush()
    device.close(clean=False)
    monkeypatch.setattr(recovery, "Recovery", CallsMetadataLive)
    with Device.open(path, options={"buffer": "0"}) as device:
        assert device.recovery is not None
        assert device.recovery.alarms == []  # nothing is lost by it
        assert device.problems() == []
        pool, validity = device.ssd.pool, device.ssd.validity
        homes = [block for block in range(GEOMETRY.blocks) if validity.live_in(block)]
        assert {pool.describe(block)["state"] for block in homes} <= {"open", "closed"}
        for lpa in range(LPAS):
            assert device.read(lpa * PAGE, PAGE) == lpa.to_bytes(8, "little") * (PAGE // 8)
