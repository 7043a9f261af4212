"""Hpftl: what is its own. Golden counts, power cuts and the checks of `flashfs check` find it by its name."""

from __future__ import annotations

import random

from flashfs.device import Device
from nandimg import Geometry

SMALL = Geometry(page_bytes=512, pages_per_block=16, blocks=64, dies=2, oob_bytes=64, lpas=700)


def test_contents() -> None:
    """Random writes and trims, until blocks have been cleaned: every page reads what was written last."""
    rnd, model = random.Random(1), bytearray(SMALL.lpas * 512)
    with Device.memory(SMALL, "hpftl") as device:
        for i in range(4_000):
            lpa = rnd.randrange(SMALL.lpas)
            page = b"" if rnd.random() < 0.1 else bytes([i & 0xFF]) * 512
            model[lpa * 512 : (lpa + 1) * 512] = page.ljust(512, b"\0")
            if page:
                device.write(lpa * 512, page)
            else:
                device.trim(lpa * 512, 512)
        device.flush()
        assert device.read(0, len(model)) == bytes(model)
        assert device.stats()["nand"]["erase"] > SMALL.blocks
        assert device.problems() == []
