"""The build: a module that Cython does not take, and what one checkout leaves for the next."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import Cython
import pytest

ROOT = Path(__file__).parents[2]


def checkout(at: Path) -> Path:
    """What the build reads, with no module in it."""
    for package in ("flashfs", "nandimg"):
        (at / package).mkdir(parents=True)
        (at / package / "__init__.py").touch()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, at)
    return at


def build(at: Path, cache: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **more}
    environment.pop("FLASHFS_ONLY", None)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel", "2"]
    return subprocess.run(command, cwd=at, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_what_cython_does_not_take_is_said_last_and_each_time(tmp_path: Path) -> None:
    """Not a traceback of setuptools after it; and not what Cython kept of a translation that failed."""
    source = checkout(tmp_path / "checkout") / "flashfs/broken.pyx"
    for text, good in (("cdef int one(:\n", False), ("one = 1\n", True), ("cdef int one(:\n", False)):
        source.write_text(text)
        os.utime(source, (time := 1 + source.stat().st_mtime, time))
        done = build(tmp_path / "checkout", tmp_path / "cache")
        assert (done.returncode == 0) == good, done.stderr
        if not good:
            assert "Traceback" not in done.stderr
            last = done.stderr.strip().splitlines()[-2:]
            assert last[0].startswith("flashfs/broken.pyx:1:13: ")
            assert last[1] == "flashfs/broken.pyx: Cython does not take it; its lines above name the place"


def test_a_second_checkout_translates_nothing_anew(tmp_path: Path) -> None:
    """In another folder, with its own Cython, as each .venv has."""
    cython = Path(Cython.__file__).parent
    kept = []
    for name in ("one", "two"):
        at = checkout(tmp_path / name)
        (at / "site").mkdir()
        (at / "site/Cython").symlink_to(cython)
        (at / "flashfs/module.pyx").write_text("from libc.stdint cimport uint8_t\ncdef uint8_t one = 1\n")
        done = build(at, tmp_path / "cache", PYTHONPATH=str(at / "site"))
        assert done.returncode == 0, done.stderr
        assert list((at / "flashfs").glob("module.*.so"))
        kept.append({path.name for path in tmp_path.glob("cache/flashfs/cython/module*")})
    assert len(kept[0]) == 1
    assert kept[1] == kept[0]
