"""A validity store that notices late what died: what the engine may lean on then, and what a recovery has to ask."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from compiled import compiled
from flash_pvb import registered
from schemes import bounded

from flashfs.crash import campaign
from flashfs.device import Device
from flashfs.errors import BindError
from flashfs.ftl import SCHEMES
from flashfs.ftl.common import streams_for
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_table import PageTable
from nandimg import Geometry

NAME = "late-bitmap"
PAGE = 512
CHIP = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=120, dies=2, oob_bytes=64, lpas=1200)
TIERS = ("sweep", "random", "host")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The class, compiled against the engine's interfaces."""
    return compiled("late_bitmap", tmp_path_factory.mktemp("late")).LateBitmap


@pytest.fixture
def ftl(store: Any) -> Iterator[str]:
    def build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
        return PageTable(ssd), store(ssd), streams_for(ssd, options, NAME), Greedy(ssd)

    with registered(replace(SCHEMES["pagemap"], name=NAME, build=build, manual="")) as name:
        yield name


def test_superseded_pages_are_dropped_when_cleaning_meets_them(ftl: str) -> None:
    device, rnd = Device.memory(CHIP, ftl, options={"buffer": "0"}), random.Random(1)
    model: dict[int, bytes] = {}
    for turn in range(8000):
        lpa = rnd.randrange(1200)
        model[lpa] = b"%08d%08d" % (lpa, turn) * (PAGE // 16)
        device.write(lpa * PAGE, model[lpa])
    assert device.ssd.validity.late_n > 5000
    live = sum(len(device.ssd.validity.live_in(block)) for block in range(CHIP.blocks))
    assert len(model) < live <= len(model) + 24
    device.checkpoint()
    assert all(device.read(lpa * PAGE, PAGE) == page for lpa, page in model.items())
    assert device.problems() == []
    device.close()


@pytest.mark.parametrize(("tier", "cuts"), bounded({"random": 30, "host": 20}, dict.fromkeys(TIERS, 1_500)))
def test_power_cuts(ftl: str, tier: str, cuts: int) -> None:
    result = campaign.run(ftl, tier, 0, cuts)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= cuts


def test_a_mapping_that_cannot_do_with_a_late_store_says_so(store: Any) -> None:
    def build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
        mapping, _, placement, cleaning = SCHEMES["slimftl"].build(ssd, options)
        return mapping, store(ssd), placement, cleaning

    slim = replace(SCHEMES["slimftl"], name="slim-late", build=build, manual="")
    with registered(slim) as name, pytest.raises(BindError, match="use a validity store that is not late"):
        Device.memory(CHIP, name)
