"""How an FTL from outside the project is found by the command line; and what a mount reports when it errs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import nandimg
from flashfs import inspect
from flashfs.ftl import SCHEMES
from flashfs.fuse import mounts
from flashfs.poll import readable
from nandimg import PRESETS

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60
PLUGIN = """
from flashfs.ftl import pagemap

class Mine:
    '''Mine. In a dict.'''
    def __init__(self, chip):
        self.at = {}
    def lookup(self, lpa):
        return self.at.get(lpa)
    def bind(self, lpa, ppa):
        self.at[lpa] = ppa
    def unbind(self, lpa):
        del self.at[lpa]

class Forgets(Mine):
    def bind(self, lpa, ppa):
        if lpa != 100:
            super().bind(lpa, ppa)

class Lacks:
    def lookup(self, lpa):
        return None

number = 7
compiled = pagemap.SCHEME
"""
ENTRY_POINTS = """[flashfs.ftl]
mine = mine:Mine
built = mine:compiled
broken = mine:nonesuch
counted = mine:number
pagemap = mine:Mine
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The command in a folder that holds mine.py. It is not on the Python path, as it is not for the console script."""
    (tmp_path / "mine.py").write_text(PLUGIN)

    def command(
        *arguments: object, code: int = 0, lines: int = 1, path: str = str(ROOT)
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "flashfs.cli", *map(str, arguments)], capture_output=True, text=True, cwd=tmp_path,
            timeout=TIMEOUT_S, env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": path, "COLUMNS": "250"},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        if code:
            assert done.stderr.startswith("flashfs: ")
            assert done.stderr.count("\n") == lines, done.stderr
            assert "internal error" not in done.stderr
        return done

    return command


@pytest.fixture
def site(tmp_path: Path) -> str:
    """A Python path on which a package with entry points is installed."""
    info = tmp_path / "site" / "mine-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (info.parent / "mine.py").write_text(PLUGIN)
    return f"{ROOT}:{info.parent}"


@pytest.fixture
def image(run: Run, tmp_path: Path) -> Path:
    nandimg.create(tmp_path / "chip", PRESETS["small-64m"].geometry)
    return tmp_path / "chip"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nonesuch", f"no FTL is called 'nonesuch'; there are {', '.join(SCHEMES)}, and package.module:Class"),
        ("nonesuch:X", "FTL nonesuch:X: there is no module nonesuch on the Python path (nor in "),
        ("mine:Nonesuch", "FTL mine:Nonesuch: mine has no Nonesuch"),
        ("mine:", "FTL mine:: use package.module:Class"),
        ("mine:number", "FTL mine:number: number is no class (its type is int)"),
        ("mine:Lacks", "FTL mine:Lacks: the class lacks bind, unbind"),
        ("bad:X", "FTL bad:X: importing bad raised SyntaxError"),
        ("worse:X", "FTL worse:X: importing worse raised ZeroDivisionError: division by zero at worse.py line 2"),
        ("needs:X", "FTL needs:X: needs needs a module nonesuch, and there is none"),
        ("a_package.of.mine:ClassNames", "FTL a_package.of.mine:ClassNames: there is no module a_package"),
    ],
)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_name_that_is_none(spec: str, said: str, every: bool, run: Run, image: Path) -> None:
    """Of each command, or of one by turns: a process of its own each time takes a while."""
    (image.parent / "bad.py").write_text("class X\n")
    (image.parent / "worse.py").write_text("\n1 / 0\n")
    (image.parent / "needs.py").write_text("import nonesuch\n")
    commands = [("ftls", spec), ("crash", "--ftl", spec), ("mount", "--ftl", spec, image, "mnt")]
    for command in commands if every else [commands[len(spec) % 3]]:
        assert said in run(*command, code=2).stderr
    assert inspect.problems(image) == []  # still blank


def test_a_name_that_does_not_fit_the_header(run: Run, image: Path) -> None:
    name = "a_rather_long_module_name"
    (image.parent / f"{name}.py").write_text(PLUGIN)
    assert "the name takes 30 bytes, and the header of an image has 28" in run("ftls", f"{name}:Mine", code=2).stderr


@pytest.mark.slow
def test_entry_points(run: Run, site: str, image: Path) -> None:
    done = run("ftls", "--json", path=site)
    found = {row["name"]: row for row in json.loads(done.stdout)}
    assert list(found) == [*SCHEMES, "mine", "built"]
    assert found["pagemap"]["from"] == "flashfs"  # none takes the name of one of ours
    assert (found["mine"]["from"], found["mine"]["title"], found["mine"]["about"]) == ("mine 1.2", "Mine", "In a dict.")
    assert found["mine"]["replaces"] == ["mapping"]
    assert found["built"]["from"] == "mine 1.2"
    broken, counted = sorted(done.stderr.splitlines())
    assert broken.startswith("flashfs: FTL broken: mine 1.2 (mine:nonesuch) raised AttributeError")
    assert counted == "flashfs: FTL counted: mine 1.2 (mine:number) is a int: it must be a class"
    said_names = run("ftls", "nonesuch", code=2, path=site).stderr
    assert f"'nonesuch'; there are {', '.join(SCHEMES)}, mine, built" in said_names
    for ftl in ("mine", "built"):
        said = run(
            "crash", "--ftl", ftl, "--tier", "sweep,random", "--cuts", 60, "--seed", 1, "--json", path=site
        ).stdout
        assert [row["failures"] for row in json.loads(said)] == [[], []]


# --- mounted


def take_away(path: Path) -> None:
    """Whatever is mounted at ``path``: gone, and its daemon too."""
    if mounts.at(path) is None:
        return
    with suppress(OSError, ValueError):
        pid = json.loads((path / "config.json").read_text())["pid"]
        descriptor = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        readable(descriptor, timeout_s=TIMEOUT_S)
        os.close(descriptor)
    subprocess.run(["fusermount3", "-u", "-z", str(path)], check=False, capture_output=True)


@pytest.fixture
def mountpoint(tmp_path: Path) -> Iterator[Path]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None:
        pytest.skip("needs /dev/fuse and fusermount3")
    path = tmp_path / "mnt"
    path.mkdir()
    yield path
    take_away(path)


def write_page(mountpoint: Path, lpa: int, flush: bool = True) -> None:
    handle = os.open(mountpoint / "disk", os.O_RDWR)
    try:
        os.pwrite(handle, bytes([lpa]) * 4096, lpa * 4096)
        if flush:
            os.fsync(handle)
    finally:
        os.close(handle)


def read_page(mountpoint: Path, lpa: int) -> bytes:
    handle = os.open(mountpoint / "disk", os.O_RDONLY)
    try:
        return os.pread(handle, 4096, lpa * 4096)
    finally:
        os.close(handle)


@pytest.mark.mount
def test_mounted_dumped_checked(run: Run, image: Path, mountpoint: Path) -> None:
    said = run("mount", "--ftl", "mine:Mine", "-v", image, mountpoint).stdout
    assert f"64 MiB, mine:Mine on {image}" in said
    write_page(mountpoint, 7)
    assert json.loads((mountpoint / "stats.json").read_text())["ftl"] == "mine:Mine"
    run("umount", mountpoint)
    assert "sound" in run("fsck", image, "--trust").stdout
    assert json.loads(run("dump", image, "lpa", 7, "--json", "--trust").stdout)["mapping"]["ppa"] is not None
    assert json.loads(run("dump", image, "scheme", "--json", "--ftl", "mine:Mine").stdout)["map"]["mapped"] == 1
    assert "clean" in run("mount", "--ftl", "mine:Mine", image, mountpoint).stdout
    assert read_page(mountpoint, 7) == bytes([7]) * 4096
    run("umount", mountpoint)
    (image.parent / "mine.py").unlink()
    gone = f"{image}: bound to mine:Mine, which cannot be had: FTL mine:Mine: there is no module mine"
    for command in (("mount", image, mountpoint), ("fsck", image), ("dump", image, "blocks")):
        assert gone in run(*command, "--trust", code=1).stderr
    assert "mine:Mine" in run("dump", image, "header").stdout


@pytest.mark.mount
def test_a_mistake_gives_an_io_error_and_one_line(run: Run, image: Path, mountpoint: Path) -> None:
    """The class is changed under an image that it is bound to, and mended again."""
    run("mount", "--ftl", "mine:Mine", image, mountpoint)
    for lpa in range(8):
        write_page(mountpoint, lpa)
    run("umount", mountpoint)
    right = PLUGIN
    (image.parent / "mine.py").write_text(
        right.replace("class Mine", "class Right").replace("Forgets(Mine)", "Mine(Right)")
    )
    log = image.parent / "log"
    run("mount", "--ftl", "mine:Mine", image, mountpoint, "--log", log)
    write_page(mountpoint, 9)
    with pytest.raises(OSError, match="Input/output error"):
        write_page(mountpoint, 100)
    assert read_page(mountpoint, 9) == bytes([9]) * 4096
    told = [line for line in log.read_text().splitlines() if "ERROR" in line]
    assert len(told) == 1
    assert "mine:Mine.bind(lpa=100, ppa=" in told[0]
    assert "lookup(100) then says None" in told[0]
    with pytest.raises(OSError, match="Input/output error"):
        write_page(mountpoint, 10)
    said = run("umount", mountpoint, code=1, lines=2).stderr
    assert "the last flush failed (Input/output error)" in said
    assert "no checkpoint was written (mine:Mine.bind(lpa=100" in said
    (image.parent / "mine.py").write_text(right)
    assert "recovered" in run("mount", "--ftl", "mine:Mine", image, mountpoint).stdout
    assert [read_page(mountpoint, lpa)[0] for lpa in (*range(8), 9)] == [*range(8), 9]
    run("umount", mountpoint)
    assert "sound" in run("fsck", image, "--trust").stdout
