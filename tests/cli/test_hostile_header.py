"""An image is data: no command imports what its header names, unless the same command line says so."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import flashfs
from flashfs import cli, inspect
from flashfs.device import Device
from flashfs.errors import UntrustedError, UsageError
from flashfs.ftl_search import SEARCHED, search_here
from flashfs.fuse import mounts
from flashfs.replay import grid
from nandimg import Geometry, create

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("marker").touch()


class Evil:
    def __init__(self, chip):
        self.ppa_of = {}

    def lookup(self, lpa):
        return self.ppa_of.get(lpa)

    def bind(self, lpa, ppa):
        self.ppa_of[lpa] = ppa

    def unbind(self, lpa):
        del self.ppa_of[lpa]
"""
MAKE = """
import sys
from flashfs.device import Device
device = Device.open("evil.img", ftl="evil:Evil")
device.write(0, b"x" * 100_000)
device.flush()
device.trim(0, 4096)
device.close()
"""
WORKLOAD = "uniform:ops=50,write=1"
DUMPS = ("blocks", "page 0", "lpa 5", "log", "scheme", "recovery", "map", "gmd")
#: of each command that opens an image, its words, whether it does what it can (else it refuses), and its exit code
COMMANDS = [
    ("fsck evil.img", 1),
    ("fsck evil.img --data", 1),
    ("fsck evil.img --json", 1),
    ("dump evil.img", 0),
    *((f"dump evil.img {view}", 0) for view in DUMPS),
    ("dump --html page.html evil.img", 0),
    ("mount evil.img mnt", 1),
    ("mount evil.img mnt --foreground", 1),
    (f"replay {WORKLOAD} --image evil.img", 1),
    ("sweep sweep.toml", 2),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image with data, made by a process that runs ``evil.py`` of its own will."""
    path = tmp_path_factory.mktemp("evil")
    (path / "evil.py").write_text(EVIL)
    create(path / "evil.img", Geometry.sized(8 << 20, op=0.3, pages_per_block=16))
    environment = {**os.environ, "PYTHONPATH": f"{path}:{Path(flashfs.__file__).parent.parent}"}
    subprocess.run([sys.executable, "-c", MAKE], cwd=path, check=True, env=environment)
    return path


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where ``evil.img`` and the ``evil.py`` that its header names lie side by side, as if both had come by mail; the
    present directory, in which commands look for FTLs."""
    for name in ("evil.py", "evil.img"):
        shutil.copy(made / name, tmp_path / name)
    (tmp_path / "sweep.toml").write_text(f'image = "evil.img"\nsource = "{WORKLOAD}"\n')
    (tmp_path / "mnt").mkdir()
    path, searched = list(sys.path), list(SEARCHED)
    monkeypatch.chdir(tmp_path)
    search_here()
    yield tmp_path
    sys.path[:], SEARCHED[:] = path, searched
    forget()
    if mounts.at(tmp_path / "mnt") is not None:  # what was to be refused was mounted
        with suppress(OSError, ValueError):
            os.kill(json.loads((tmp_path / "mnt/config.json").read_text())["pid"], signal.SIGKILL)
        subprocess.run(["fusermount3", "-u", "-z", str(tmp_path / "mnt")], check=False, capture_output=True)


def forget() -> None:
    """What was imported, so that it would be run again."""
    for name in ("evil", "other"):
        sys.modules.pop(name, None)


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


Run = Callable[[str], Done]


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line: in this process, but for those that start others."""

    def one(words: str) -> Done:
        forget()
        if words.partition(" ")[0] not in ("mount", "up"):
            return Done(cli.run(words.split()), *capfd.readouterr())
        done = subprocess.run(
            [sys.executable, "-m", "flashfs.cli", *words.split()], capture_output=True, text=True, timeout=60,
            env={**os.environ, "PYTHONPATH": str(Path(flashfs.__file__).parent.parent)},
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    return one


@pytest.mark.parametrize(("words", "code"), COMMANDS)
def test_no_command_runs_what_an_image_names(folder: Path, run: Run, words: str, code: int) -> None:
    done = run(words)
    assert not (folder / "marker").exists()
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if code == 0 and words != "dump evil.img":
        return
    if code:
        said = done.stderr if "--json" not in words else done.stdout
        assert "evil:Evil" in said and ("--trust" in said or "as ftl" in said), said
        assert done.stderr.count("\n") == (0 if "--json" in words else 1), done.stderr


def test_up_neither(folder: Path, run: Run) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to attach a loop device")
    done = run("up evil.img mnt")
    assert (done.returncode, (folder / "marker").exists()) == (1, False)
    assert "--ftl evil:Evil, or --trust" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert list((folder / "mnt").iterdir()) == []


def test_what_needs_no_ftl_is_still_said(folder: Path, run: Run) -> None:
    done = run("fsck evil.img")
    assert done.stdout == "evil.img: its chip is sound\n"
    assert "were not checked" in done.stderr
    found = json.loads(run("fsck evil.img --json").stdout)
    assert (found["ok"], found["problems"]) == (False, [])
    blocks = json.loads(run("dump evil.img blocks --json").stdout)
    assert {"host", "meta"} <= {block["stream"] for block in blocks}
    log = json.loads(run("dump evil.img log --json").stdout)
    assert "--ftl evil:Evil" in log["note"]
    assert log["checkpoints"][0]["whole"]
    lpa = json.loads(run("dump evil.img lpa 5 --json").stdout)
    assert [copy["status"] for copy in lpa["copies"]] == ["whole"]
    page = json.loads(run(f"dump evil.img page {lpa['copies'][0]['ppa']} --json").stdout)
    assert page["oob"]["lpa"] == 5
    run("dump --html page.html evil.img")
    assert "evil:Evil" in (folder / "page.html").read_text()
    assert not (folder / "marker").exists()


def test_damage_of_the_chip_is_found_all_the_same(folder: Path, run: Run) -> None:
    lpa = json.loads(run("dump evil.img lpa 5 --json").stdout)["copies"][0]
    header = json.loads(run("dump evil.img --json").stdout)
    at = header["layout"]["data_at"] + lpa["ppa"] * header["geometry"]["page_bytes"]
    with (folder / "evil.img").open("r+b") as file:
        file.seek(at)
        file.write(b"spoilt")
    assert run("fsck evil.img").stdout == "evil.img: its chip is sound\n"  # it does not read data
    done = run("fsck evil.img --data")
    assert f"PPA {lpa['ppa']}: a page that was flushed cannot be read" in done.stdout
    assert "1 broken" in done.stdout


@pytest.mark.parametrize("said", ["--ftl evil:Evil", "--trust"])
def test_whoever_says_so_gets_it(folder: Path, run: Run, said: str) -> None:
    for words in ("fsck evil.img", "dump evil.img map", f"replay {WORKLOAD} --image evil.img"):
        done = run(f"{words} {said}")
        assert done.returncode == 0, done.stderr
        assert (folder / "marker").exists()
        (folder / "marker").unlink()
    assert run(f"dump --html page.html evil.img {said}").returncode == 0
    assert (folder / "marker").exists()


def test_another_name_is_no_leave(folder: Path, run: Run) -> None:
    (folder / "other.py").write_text("class Other:\n    def lookup(self): ...\n    bind = unbind = lookup\n")
    for words in ("fsck evil.img", "dump evil.img blocks", "mount evil.img mnt"):
        done = run(f"{words} --ftl other:Other")
        assert done.returncode == 1
        assert "bound to evil:Evil for life, not other:Other" in done.stderr
    assert not (folder / "marker").exists()


def test_a_sweep_may_name_it(folder: Path, run: Run) -> None:
    (folder / "sweep.toml").write_text(f'image = "evil.img"\nftl = "evil:Evil"\nsource = "{WORKLOAD}"\n')
    done = run("sweep sweep.toml")
    assert done.returncode == 0, done.stderr
    assert (folder / "marker").exists()


def test_in_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    path = folder / "evil.img"
    with pytest.raises(UntrustedError, match="evil:Evil"):
        Device.open(path)
    assert inspect.recovery(path)["note"]
    with pytest.raises(UsageError, match="evil:Evil"):
        grid.expand({"source": WORKLOAD, "image": str(path)})
    assert not (folder / "marker").exists()
    with Device.open(path, trust=True) as device:
        assert device.read(4096, 5) == b"xxxxx"
    assert (folder / "marker").exists()
    assert inspect.problems(path, trust="evil:Evil") == []
