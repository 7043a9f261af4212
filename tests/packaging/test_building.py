"""The build, when a module is one that Cython does not take."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_what_cython_does_not_take_is_said_last_and_each_time(tmp_path: Path) -> None:
    """Not a traceback of setuptools after it; and not what Cython kept of a translation that failed."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for package in ("flashfs", "nandimg"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    source = tmp_path / "flashfs/broken.pyx"
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel", "2"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("FLASHFS_ONLY", None)
    for text, good in (("cdef int one(:\n", False), ("one = 1\n", True), ("cdef int one(:\n", False)):
        source.write_text(text)
        os.utime(source, (time := 1 + source.stat().st_mtime, time))
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (done.returncode == 0) == good, done.stderr
        if not good:
            assert "Traceback" not in done.stderr
            last = done.stderr.strip().splitlines()[-2:]
            assert last[0].startswith("flashfs/broken.pyx:1:13: ")
            assert last[1] == "flashfs/broken.pyx: Cython does not take it; its lines above name the place"
