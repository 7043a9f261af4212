"""Chips of hundreds of GiB that hold next to nothing: what looks at one, and what recovers it, takes memory by what is
used. Bytes that a process had at most are no matter of the machine's speed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from schemes import limited

import nandimg
from flashfs import inspect
from flashfs.device import Device
from nandimg import Geometry

BLOCKS = 300_000
LARGE = Geometry(blocks=BLOCKS, lpas=61_000_000)  # 250 GB and a quarter more: a byte for each LPA is 58 MiB
LPAS_MIB = 58


def used(path: Path, ftl: str, *, clean: bool) -> Path:
    """An image on which eight pages were written, far apart."""
    nandimg.create(path, LARGE, tables="sparse")
    device = Device.open(path, ftl=ftl)
    for lpa in range(0, LARGE.lpas, LARGE.lpas // 7):
        device.write(lpa * LARGE.page_bytes, b"far apart" * 400)
    device.flush()
    device.close(clean=clean)
    return path


TELL = "import re; print(int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) // 1024)"


def most_mib(program: str) -> int:
    """The most memory, MiB, that a process had which ran this program. (What the kernel says of a child counts the
    memory of its parent, which it had for a moment.)"""
    done = subprocess.run([sys.executable, "-c", f"{program}\n{TELL}"], capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1])


#: MiB of its own that a scheme has there for all LPAs or blocks, whatever is in them
OWN = {"pagemap": 4 * LPAS_MIB, "dftl": 80, "geckoftl": 20, "slimftl": 0, "hpftl": 30, "leaftl": 0, "fast": 40,
       "remapssd": 60}


@pytest.mark.parametrize("ftl", limited(("fast", "leaftl", "remapssd"), OWN))
def test_memory_by_what_is_used(tmp_path: Path, ftl: str) -> None:
    path = used(tmp_path / "chip", ftl, clean=False)
    opened = f"from flashfs.device import Device; Device.open({str(path)!r}).close()"
    drawn = f"from flashfs import cli; assert cli.run(['dump', '--html', {str(path) + '.html'!r}, {str(path)!r}]) == 0"
    taken = {"recovery": most_mib(opened), "clean": most_mib(opened), "html": most_mib(drawn)}
    assert max(taken.values()) < 150 + OWN[ftl], taken


def test_a_check_tells_how_far_it_is(tmp_path: Path) -> None:
    path = used(tmp_path / "chip", "dftl", clean=True)
    for data in (False, True):
        told: list[float] = []
        assert inspect.check(path, data, progress=told.append) == ([], "")
        assert len(told) > 100
        assert told == sorted(told)
        assert 0.9 < told[-1] <= 1
