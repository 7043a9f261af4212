"""What users install: the source archive has all that a checkout has, the wheel what a user needs, and the
command works from where neither is near.

`make test` builds the archive, `make test-all` the wheel out of modules that are compiled already, `make package-test`
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
from dataclasses import dataclass
from pathlib import Path

import pytest
from namespaces import apart

import flashfs
from flashfs.fuse import file_systems

ROOT = Path(__file__).parents[2]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
LONG_S = 3000  # of compiling everything on a busy machine
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


@dataclass(frozen=True)
class Wheel:
    """``fresh``: compiled from the source archive, and to be installed with what it needs."""

    path: Path
    fresh: bool


FROM_NOTHING = pytest.param("from nothing", marks=[pytest.mark.package, pytest.mark.timeout(LONG_S)])


@pytest.fixture(scope="module", params=[pytest.param("compiled already", marks=pytest.mark.slow), FROM_NOTHING])
def wheel(request: pytest.FixtureRequest, checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    out = tmp_path_factory.mktemp("wheel")
    fresh = request.param == "from nothing"
    if not fresh:
        take_compiled(checkout)
    how = [] if fresh else ["--wheel", "--no-isolation"]
    said = run(sys.executable, "-m", "build", *how, "--outdir", out, cwd=checkout, timeout=LONG_S)
    compiled = re.findall(r"^\[\d+/\d+\] ", said, re.M)
    assert bool(compiled) == fresh, said[-2000:]
    return Wheel(next(out.glob("*.whl")), fresh)


def modules() -> list[Path]:
    """The compiled ones, below the root; those that are left out where a library is missing count if they are there."""
    found = [Path("nandimg/_shared").with_suffix(SUFFIX)]  # Cython's, for all others: it has no source
    for source in [*(ROOT / "nandimg").rglob("*.pyx"), *(ROOT / "flashfs").rglob("*.pyx")]:
        place = source.relative_to(ROOT).with_suffix(SUFFIX)
        if (ROOT / place).exists() or "or left out: " not in source.read_text().partition("\n")[0]:
            found.append(place)
    return found


def take_compiled(checkout: Path) -> None:
    """Let the build find what `make setup` compiled."""
    for place in modules():
        target = checkout / BUILT.relative_to(ROOT) / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / place, target)
        newest = max(path.stat().st_mtime for path in (BUILT / place, ROOT / place) if path.exists())
        os.utime(target, (newest, newest))


@pytest.fixture(scope="module")
def installed(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix with the wheel, and the libraries of this interpreter or its own ones."""
    prefix = tmp_path_factory.mktemp("prefix")
    venv.create(prefix, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(prefix / "bin/python"), "--disable-pip-version-check"]
    if wheel.fresh:
        run(*pip, "install", "--quiet", wheel.path, cwd=prefix, timeout=LONG_S)
        run(*pip, "check", cwd=prefix)
    else:
        site = next(prefix.glob("lib/python*/site-packages"))
        (site / "libraries.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")) + "\n")
        run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel.path, cwd=prefix)
    return prefix


def test_the_archive_has_what_the_checkout_has(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        found = {name.partition("/")[2] for name in tar.getnames()}
    wanted = {name for name in committed() if not LEFT_OUT.search(name)}
    assert wanted - found == set()
    made = {name for name in found if re.search(r"\.(c|cpp|so|pyc|o|nand)$", name)} - wanted
    assert made == set()
    assert not [name for name in found if name.startswith((".venv", "build/", "dist/"))]


def test_the_wheel_has_what_users_need(wheel: Wheel) -> None:
    with zipfile.ZipFile(wheel.path) as file:
        found = set(file.namelist())
    data = f"flashfs-{VERSION}.data/data"
    wanted = {f"{data}/share/doc/flashfs/examples/{path.name}" for path in (ROOT / "examples").glob("*.py")}
    wanted |= {str(place) for place in modules()}
    for pattern in ("*.py", "*.pyi", "*.pxd", "*.in", "py.typed", "report.*"):
        wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "flashfs").rglob(pattern)}
    wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "nandimg").rglob("*.h")}
    assert {name for name in wanted - found if "egg-info" not in name} == set()
    assert not [name for name in found if name.endswith((".pyx", ".c", ".cpp")) or name.startswith("tests")]


def test_the_container_has_what_commands_ask_for() -> None:
    """A program that a command names as missing is installed there: mkfs of each file system, nbdkit, fusermount3."""
    _, built, used = (ROOT / "Dockerfile").read_text().split("\nFROM ")
    assert "nbdkit-plugin-dev" in built
    words = used.split()
    packages = {package for package, _ in file_systems.FILE_SYSTEMS.values()} | {"nbdkit", "fuse3", "mount"}
    assert packages <= set(words), packages - set(words)


def test_the_wheel_is_stripped(wheel: Wheel) -> None:
    with zipfile.ZipFile(wheel.path) as file:
        modules = [info for info in file.infolist() if info.filename.endswith(".so")]
        stale = (ROOT / "setup.py").stat().st_mtime
        if not wheel.fresh and min((ROOT / info.filename).stat().st_mtime for info in modules) < stale:
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


#: In a namespace of its own, in which /sbin has the helpers too, if it gets any; whatever happens, nothing stays.
FSTAB = """
set -eu
mount -t overlay sbin -o "lowerdir=$1:$(realpath /sbin)" "$(realpath /sbin)" || { echo "no overlay"; exit 0; }
trap 'umount -i -l "$3" 2>/dev/null || true' EXIT
mount -t fuse.flashfs "$2" "$3" -o ftl=slimftl,noatime,nofail,x-systemd.automount,sync=none,opt=wear_spread=50
findmnt -n -o FSTYPE "$3"
cat "$3/config.json"
if [ -x "$1/umount.fuse.flashfs" ]; then umount "$3"; else flashfs umount "$3" >/dev/null; fi
echo unmounted
"""


@pytest.mark.slow
@pytest.mark.mount
@pytest.mark.parametrize("names", [("mount.fuse.flashfs", "umount.fuse.flashfs"), ()], ids=["ours", "libfuse's"])
def test_mount_8_mounts(installed: Path, tmp_path: Path, mountpoint: Path, names: tuple[str, ...]) -> None:
    """By our helpers, and by libfuse's mount.fuse, which calls flashfs as /bin/sh finds it."""
    words = apart(tmp_path)
    helpers = tmp_path / "helpers"
    helpers.mkdir()
    for name in names or ("flashfs",):
        (helpers / name).symlink_to(installed / "bin" / name)
    image = tmp_path / "ssd.img"
    run(installed / "bin/flashfs", "create", image, "--preset", "small-64m", cwd=tmp_path)
    path = f"PATH={installed / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"
    words += ["env", path, "bash", "-c", FSTAB, "bash", str(helpers), str(image), str(mountpoint)]
    said = run(*words, cwd=tmp_path)
    if said == "no overlay\n":
        pytest.skip("needs overlayfs, which this kernel does not have")
    assert said.startswith("fuse.flashfs\n{")
    config = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert (config["ftl"], config["sync"]) == ("slimftl", "none")
    assert said.endswith("unmounted\n")
    assert "sound" in run(installed / "bin/flashfs", "fsck", image, cwd=tmp_path)
