"""A validity store that notices late what died: what the engine may lean on then, and what a recovery has to ask."""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flash_pvb import registered

from flashfs.crash import campaign
from flashfs.device import Device
from flashfs.engine.defaults import Greedy, PageTable
from flashfs.ftl import SCHEMES
from flashfs.ftl.common import streams_for
from nandimg import Geometry

ROOT = Path(__file__).parent.parent.parent
NAME = "late-bitmap"
PAGE = 512
CHIP = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=120, dies=2, oob_bytes=64, lpas=1200)
SETUP = """
from Cython.Build import cythonize
from setuptools import Extension, setup
setup(name="late", ext_modules=cythonize([Extension("late_bitmap", ["late_bitmap.pyx"], include_dirs=[{nand!r}])],
      include_path=[{root!r}], compiler_directives={{"language_level": "3", "boundscheck": False}}))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The class, compiled against the engine's interfaces."""
    where = tmp_path_factory.mktemp("late")
    shutil.copy(Path(__file__).parent / "late_bitmap.pyx", where)
    (where / "setup.py").write_text(SETUP.format(nand=str(ROOT / "nandimg"), root=str(ROOT)))
    done = subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=where, text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    made, = where.glob("late_bitmap.*.so")
    spec = importlib.util.spec_from_file_location("late_bitmap", made)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LateBitmap


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


@pytest.mark.parametrize("tier", ["sweep", "random", "host"])
def test_power_cuts(ftl: str, tier: str) -> None:
    result = campaign.run(ftl, tier, 0, 1_500)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= 1_500
