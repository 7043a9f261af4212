"""The native server is compiled against the system's libfuse, or against a newer one that has io_uring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEWER = ROOT / ".libfuse"
SOURCES = ("flashfs/fuse/_late.pyx", "flashfs/fuse/_native.pyx")
#: what a process says that has these modules, and the libraries that came with them
ASKED = """
import importlib.util, json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
found = {}
for name in ("flashfs.fuse._late", "flashfs.fuse._native"):
    place, = folder.glob(name.replace(".", "/") + ".*.so")
    spec = importlib.util.spec_from_file_location(name, place)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
print(json.dumps([module.KNOWS_RINGS, b"libfuse3.so" in pathlib.Path("/proc/self/maps").read_bytes()]))
"""


def version(**env: str) -> tuple[int, ...]:
    said = subprocess.run(
        ["pkg-config", "--modversion", "fuse3"], check=True, capture_output=True, text=True, env={**os.environ, **env}
    ).stdout
    return tuple(int(part) for part in said.split("."))


@pytest.mark.parametrize("prefix", [None, pytest.param(NEWER, marks=pytest.mark.rings)], ids=["system", "newer"])
def test_it_builds_and_says_what_it_knows(prefix: Path | None, tmp_path: Path) -> None:
    if prefix is not None and not (prefix / "lib/libfuse3.a").exists():
        pytest.skip("needs a newer libfuse than the system's (make setup URING=1)")
    env = {"FLASHFS_LIBFUSE": str(prefix or tmp_path / "none"), "FLASHFS_ONLY": " ".join(SOURCES)}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", f"--build-lib={tmp_path / 'lib'}",
               f"--build-temp={tmp_path / 'temp'}"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "warning" not in done.stderr
    asked = subprocess.run(
        [sys.executable, "-c", ASKED, str(tmp_path / "lib")], cwd=ROOT, check=True, capture_output=True, text=True
    )
    path = {} if prefix is None else {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    assert json.loads(asked.stdout) == [version(**path) >= (3, 18), prefix is None]
