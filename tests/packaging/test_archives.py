"""What somebody else installs: the source archive has all that a checkout has, the wheel what a user needs, and the
command works from where neither is near.

`make test` builds the archive, and the wheel out of the modules that are compiled already; `make package-test` builds
both from nothing, in environments of their own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import flashfs

ROOT = Path(__file__).parents[2]
VERSION = flashfs.__version__
#: kept in the repository, and of no use outside of it
LEFT_OUT = re.compile(r"^\.(ci|gitignore)")
BUILT = ROOT / f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"


def run(*words: str | Path, cwd: Path, timeout: int = 120) -> str:
    """stdout of a command that sees nothing of this checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stdout[-2000:]} {done.stderr[-4000:]}"
    return done.stdout


def committed() -> list[str]:
    """The files of the checkout that git has or would take. Skips where there is no git."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no checkout by git: nothing says which files there should be")
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    return [name for name in names if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of this checkout alone, with their times, so that what was compiled counts as up to date."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in committed():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def archive(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive."""
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, cwd=checkout)
    return out / f"flashfs-{VERSION}.tar.gz"


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, of modules that are compiled already."""
    for source in [*(checkout / "nandimg").rglob("*.pyx"), *(checkout / "flashfs").rglob("*.pyx")]:
        place = source.relative_to(checkout).with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
        newest = max(path.stat().st_mtime for path in (BUILT / place, ROOT / place) if path.exists())
        target = checkout / BUILT.relative_to(ROOT) / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / place, target)
        os.utime(target, (newest, newest))
    out = tmp_path_factory.mktemp("wheel")
    said = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, cwd=checkout)
    assert not re.search(r"^\[\d+/\d+\] ", said, re.M), "it compiled what make setup had compiled"
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix with the wheel, and the libraries of this interpreter."""
    prefix = tmp_path_factory.mktemp("prefix")
    venv.create(prefix, with_pip=False)
    site = next(prefix.glob("lib/python*/site-packages"))
    (site / "libraries.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(prefix / "bin/python"), "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=prefix)
    return prefix


def test_the_archive_has_what_the_checkout_has(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        found = {name.partition("/")[2] for name in tar.getnames()}
    wanted = {name for name in committed() if not LEFT_OUT.match(name)}
    assert wanted - found == set()
    made = {name for name in found if re.search(r"\.(c|cpp|so|pyc|o|nand)$", name)} - wanted
    assert made == set()
    assert not [name for name in found if name.startswith((".venv", "build/", "dist/"))]


def test_the_wheel_has_what_users_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        found = set(file.namelist())
    data = f"flashfs-{VERSION}.data/data"
    wanted = {f"{data}/share/doc/flashfs/examples/{path.name}" for path in (ROOT / "examples").glob("*.py")}
    for path in [*(ROOT / "flashfs").rglob("*.pyx"), *(ROOT / "nandimg").rglob("*.pyx")]:
        wanted.add(str(path.relative_to(ROOT).with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))))
    for pattern in ("*.py", "*.pyi", "*.pxd", "*.in", "py.typed", "report.*"):
        wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "flashfs").rglob(pattern)}
    wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "nandimg").rglob("*.h")}
    assert {name for name in wanted - found if "egg-info" not in name} == set()
    assert not [name for name in found if name.endswith((".pyx", ".c", ".cpp")) or name.startswith("tests")]


def test_the_wheel_is_stripped(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        modules = [info for info in file.infolist() if info.filename.endswith(".so")]
        stale = (ROOT / "setup.py").stat().st_mtime
        if min((ROOT / info.filename).stat().st_mtime for info in modules) < stale:
            pytest.skip("modules from before a change of setup.py: make clean setup")
        assert [info.filename for info in modules if b".debug_info" in file.read(info)] == []


def test_the_installed_command(installed: Path, tmp_path: Path) -> None:
    command, python = installed / "bin/flashfs", installed / "bin/python"
    where = run(python, "-c", "import flashfs, nandimg; print(flashfs.__file__, nandimg.__file__)", cwd=tmp_path)
    assert all(word.startswith(str(installed)) for word in where.split())
    assert run(command, "--version", cwd=tmp_path) == f"flashfs {VERSION}\n"
    examples = installed / "share/doc/flashfs"
    for ftl in ("slimftl", "examples.minimal:Minimal"):
        replay = ["replay", "zipf:ops=20k,write=0.7", "--ftl", ftl, "--preset", "small-64m", "--json"]
        (done,) = json.loads(run(command, *replay, cwd=examples))
        assert done["ftl"].split(":")[0] == ftl.split(":")[0]
    run(command, "new-ftl", "mine", "--python", "--folder", tmp_path, cwd=tmp_path)
    run(command, "create", "ssd.img", "--preset", "small-64m", cwd=tmp_path)
    assert "ssd.img" in run(command, "fsck", "ssd.img", cwd=tmp_path)


@pytest.fixture
def mountpoint(tmp_path: Path) -> Iterator[Path]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None:
        pytest.skip("needs /dev/fuse and fusermount3")
    path = tmp_path / "mnt"
    path.mkdir()
    yield path
    if path.is_mount():
        subprocess.run(["fusermount3", "-u", "-z", str(path)], check=False)


@pytest.mark.mount
def test_the_installed_command_mounts(installed: Path, tmp_path: Path, mountpoint: Path) -> None:
    command = installed / "bin/flashfs"
    run(command, "create", "ssd.img", "--preset", "small-64m", cwd=tmp_path)
    run(command, "mount", "--ftl", "slimftl", "ssd.img", mountpoint, cwd=tmp_path)
    with (mountpoint / "disk").open("r+b", buffering=0) as disk:
        disk.write(b"x" * 8192)
        os.fsync(disk.fileno())
    assert "checkpointed" in run(command, "umount", mountpoint, cwd=tmp_path)
    run(command, "mount", "ssd.img", mountpoint, cwd=tmp_path)
    with (mountpoint / "disk").open("rb", buffering=0) as disk:
        assert disk.read(8192) == b"x" * 8192
    run(command, "umount", mountpoint, cwd=tmp_path)
