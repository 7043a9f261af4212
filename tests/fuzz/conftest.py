"""The sound images that fuzzers begin with are made once for all processes of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fuzz_bases
import pytest
from fuzz_images import Judge


@pytest.fixture(autouse=True, scope="session")
def shared_bases(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> None:
    """In pytest's folder of this run, which pytest clears away."""
    folder = tmp_path_factory.getbasetemp()
    kept = (folder if worker_id == "master" else folder.parent) / "fuzz-bases"
    kept.mkdir(exist_ok=True)
    fuzz_bases.KEPT = Path(kept)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    one = Judge(tmp_path_factory.mktemp("fuzz") / "image")
    yield one
    one.close()
