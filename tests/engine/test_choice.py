"""What placement chose beside the place reaches the mapping with each extent, and is 0 where it chose nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from compiled import compiled
from flash_pvb import registered

from flashfs.device import Device
from flashfs.ftl import SCHEMES
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_bitmap import PageBitmap
from nandimg import Geometry

NAME = "told-choices"
PAGE = 512
CHIP = Geometry(page_bytes=PAGE, pages_per_block=128, blocks=48, dies=2, oob_bytes=64, lpas=4000)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled("choices", tmp_path_factory.mktemp("choices"))


def test_the_mapping_hears_of_each_choice(parts: Any) -> None:
    def build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
        return parts.Told(ssd), PageBitmap(ssd), parts.Choosing(ssd, 2, 1, 4), Greedy(ssd)

    with registered(replace(SCHEMES["pagemap"], name=NAME, build=build, scheme_oob=4, manual="")) as name:
        device, rnd = Device.memory(CHIP, name, options={"buffer": "64"}), random.Random(1)
        told = device.ssd.mapping
        for _ in range(600):
            lpa = rnd.randrange(3900)
            device.write(lpa * PAGE, rnd.randrange(1, 60) * b"x" * PAGE)
        device.flush()
        assert told.wrong_n == 0
        assert told.bound > 600
        assert told.stamped > told.bound + 100, "cleaning has stamped, too"
        assert told.parts > 50, "... runs that it programs in parts among them"
        assert 0.3 * told.stamped < told.chosen_n < 0.7 * told.stamped
        assert device.problems() == []
        device.close()
