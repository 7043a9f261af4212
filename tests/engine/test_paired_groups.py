"""Groups of paired pages: a torn upper page takes the lower one along, so no recovery may go on inside one."""

from __future__ import annotations

from pathlib import Path

import pytest
from schemes import EACH

from flashfs.device import Device
from nandimg import PRESETS, create

CHIP = PRESETS["tiny-48p"].geometry
GROUP = 2 * CHIP.paired_pages


@pytest.mark.parametrize("ftl", EACH)
def test_a_group_that_was_begun_before_a_crash_is_not_gone_on_with(ftl: str, tmp_path: Path) -> None:
    met = 0
    for n in range(1, 2 * GROUP):
        path = tmp_path / f"{n}"
        create(path, CHIP)
        device = Device.open(path, ftl=ftl, options={"buffer": "0"})
        for lpa in range(n):
            device.write(lpa * CHIP.page_bytes, b"a" * CHIP.page_bytes)
        pool = device.ssd.pool
        begun = {block: at["next_page"] for block in range(CHIP.blocks)
                 if (at := pool.describe(block))["state"] == "open" and at["next_page"] % GROUP}  # fmt: skip
        device.close(clean=False)
        device = Device.open(path)
        for lpa in range(n, 2 * n):
            device.write(lpa * CHIP.page_bytes, b"b" * CHIP.page_bytes)
        for block, next_page in begun.items():
            at = device.ssd.pool.describe(block)
            assert at["state"] != "open" or at["next_page"] <= next_page, (n, block, at)
        assert device.read(0, n * CHIP.page_bytes) == b"a" * n * CHIP.page_bytes
        met += len(begun)
        device.close(clean=False)
    assert met > 0
