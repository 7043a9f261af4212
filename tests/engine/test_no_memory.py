"""Memory runs out at every allocation of the compiled modules, one after the other: see no_memory.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from schemes import limited
from test_host_errors import REQUESTS, VARIANTS

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fail") / "fail_malloc.so"
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", str(made), str(HERE / "fail_malloc.cpp")], check=True)
    return made


def run(preloaded: Path, variant: str, stride: int) -> list[dict[str, object]]:
    paths = os.pathsep.join(map(str, (HERE, HERE.parent, HERE.parent.parent)))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(HERE / "no_memory.py"), variant, str(stride)],
        env={**os.environ, "LD_PRELOAD": str(preloaded), "PYTHONPATH": paths}, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("variant", limited(["pagemap", "dftl", "leaftl-in-flash"], VARIANTS))
def test_allocations_fail(preloaded: Path, variant: str) -> None:
    told = run(preloaded, variant, 6)
    print(variant, told)
    assert len(told) == len(REQUESTS) + 1
    assert sum(int(str(row["cases"])) for row in told) >= 30
    if variant == "leaftl-in-flash":  # the tables of the others have their size from the beginning
        assert sum(int(str(row["stopped"])) for row in told) > 0


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_allocation_fails(preloaded: Path, variant: str) -> None:
    run(preloaded, variant, 0)
