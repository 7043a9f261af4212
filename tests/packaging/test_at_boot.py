"""The files for mount(8), systemd, docker and cibuildwheel name things that exist. test_archives.py mounts."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

import flashfs
from flashfs import cli
from flashfs.cli import mount_helper
from flashfs.errors import UsageError

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packaging/flashfs@.service"


def asked(*arguments: str) -> tuple[list[str], int]:
    """The command line of flashfs that a call of the helper becomes, and the helper's exit code."""
    seen: list[str] = []

    def run(words: Sequence[str]) -> int:
        seen.extend(words)
        return 0

    code = mount_helper.mount(arguments, run)
    return seen, code


def test_options_of_mount_become_ours() -> None:
    options = 'rw,ftl=slimftl,noatime,dram=64M,opt=hot=2,opt="a=1,b",allow_other,plp,sync=none,x-systemd.idle,user=a'
    words, code = asked("img", "mnt", "-o", options, "-t", "fuse.flashfs", "-n")
    assert code == 0
    assert words == [
        "mount", "--ftl", "slimftl", "--dram", "64M", "--opt", "hot=2", "--opt", "a=1,b", "--allow-other", "--plp",
        "--sync", "none", "--", "img", "mnt",
    ]  # fmt: skip


def test_every_option_is_one_of_mount() -> None:
    command = cli.program().commands["mount"]  # type: ignore[attr-defined]
    flags = {name: one.is_flag for one in command.params if one.param_type_name == "option" for name in one.opts}
    assert all(flags[f"--{name}"] is False for name in mount_helper.VALUED)
    assert all(flags[f"--{name}"] is True for name in mount_helper.FLAGS)
    others = {"--foreground", "--json", "-v", "--verbose", "--remount"}  # of no use in fstab
    assert flags.keys() - others == {f"--{name}" for name in (*mount_helper.VALUED, *mount_helper.FLAGS)}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("img", "mnt", "-o", "nonsense"), "-o nonsense: no option of flashfs"),
        (("img", "mnt", "-o", "ftl"), "-o ftl: no option of flashfs"),
        (("img", "mnt", "-o", "plp=1"), "-o plp=1: no option of flashfs"),
        (("img", "mnt", "-o", "ro"), "-o ro: an SSD is mounted to be written"),
        (("img", "mnt", "-o"), "-o: its value is missing"),
        (("img",), "IMAGE MOUNTPOINT"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    arguments: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        asked(*arguments)
    monkeypatch.setattr("sys.argv", ["mount.fuse.flashfs", *arguments])
    assert cli.helped(mount_helper.mount) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_sloppy_fake_and_verbose() -> None:
    assert asked("img", "mnt", "-s", "-o", "nonsense") == (["mount", "--", "img", "mnt"], 0)
    assert asked("img", "mnt", "-f") == ([], 0)
    assert asked("img", "mnt", "-vn") == (["mount", "--verbose", "--", "img", "mnt"], 0)


@pytest.mark.parametrize(("ours", "theirs"), [(0, 0), (1, 32), (2, 1), (130, 8), (77, 32)])
def test_exit_codes_are_mounts(ours: int, theirs: int) -> None:
    assert mount_helper.mount(["img", "mnt"], lambda words: ours) == theirs
    assert mount_helper.unmount(["mnt"], lambda words: ours) == theirs


def test_nothing_is_said_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    def run(words: Sequence[str]) -> int:
        print("mounted")
        return 0

    assert mount_helper.mount(["img", "mnt"], run) == 0
    assert capsys.readouterr().out == ""
    assert mount_helper.mount(["img", "mnt", "-v"], run) == 0
    assert capsys.readouterr().out == "mounted\n"


def test_a_call_of_libfuses_helper_is_known_from_commands() -> None:
    commands = cli.names()
    assert {"mount", "recovery-model", "crash", "trace"} <= commands
    assert mount_helper.is_asked(["ssd.img", "mnt", "-o", "rw"], commands)
    assert not mount_helper.is_asked(["mount", "img", "-o", "rw"], commands)
    assert not mount_helper.is_asked(["crash", "replay", "-o", "rw"], commands)
    assert not mount_helper.is_asked(["create", "img", "--size", "1G"], commands)
    assert not mount_helper.is_asked([], commands)


def test_the_unit_calls_what_there_is(tmp_path: Path) -> None:
    text = UNIT.read_text()
    for line in re.findall(r"^Exec\w+=flashfs (.+)$", text, re.M):
        words = line.replace("$OPTIONS", "--ftl slimftl").replace("${IMAGE}", "i").replace("${MOUNTPOINT}", "m").split()
        command = cli.program().commands[words[0]]  # type: ignore[attr-defined]
        assert command.make_context(words[0], words[1:]).params["mountpoint"] == Path("m")
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    stand_in = tmp_path / "flashfs"
    stand_in.touch(mode=0o755)
    unit = tmp_path / "flashfs@ssd.service"
    unit.write_text(text.replace("=flashfs ", f"={stand_in} "))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert "flashfs@" not in done.stderr, done.stderr


def test_containers_have_what_modules_need() -> None:
    """Each library that a module names, under the names of Debian and of manylinux."""
    sources = [*(ROOT / "flashfs").rglob("*.pyx"), *(ROOT / "nandimg").rglob("*.pyx")]
    libraries = {found for path in sources for found in re.findall(r"^# pkg-config: (.+)$", path.read_text(), re.M)}
    headers = {path.name for path in (ROOT / "flashfs").rglob("*.h") if "#include <xxhash.h>" in path.read_text()}
    assert libraries == {"fuse3"}
    assert headers  # xxHash is compiled in, and no library
    docker = (ROOT / "Dockerfile").read_text()
    needed = (ROOT / "tools/system_packages.sh").read_text()
    for package in ("libfuse3-dev", "libxxhash-dev", "gcc", "g++", "pkg-config", "python3-dev", "python3-venv"):
        assert re.search(rf"^need {re.escape(package)} ", needed, re.M), package
        assert package in docker
    assert {"fuse3", "python3"} <= set(docker.partition("FROM debian:12-slim\n")[2].split())
    wheels = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert {"fuse3-devel", "xxhash-devel"} <= set(wheels["linux"]["before-all"].split())
    page = (ROOT / "docs/packaging.md").read_text()
    assert wheels["linux"]["before-all"] in page
    assert wheels["linux"]["repair-wheel-command"].partition(" -w")[0] in page


def test_one_version() -> None:
    assert f"\nversion: {flashfs.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"flashfs-{flashfs.__version__}.tar.gz" in (ROOT / "docs/packaging.md").read_text()
