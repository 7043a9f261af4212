"""The tutorials and README do what they say: each command succeeds, and prints the lines that are shown, to the digit.

What is measured by the wall's clock, or by a kernel that has its own, is in blocks ```console varies: of those only the
shape is compared.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from flashfs.fuse import daemon, loop, mounts

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/tutorials"
BLOCK = re.compile(r"^```(\w+)(?: (varies)| file=(\S+))?\n(.*?)^```$", re.M | re.S)
HOME = "/home/ada"  #: where the reader is
#: UUIDs, numbers, and of a loop device, which is any that is free
NUMBER = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b\d[\d,]*(\.\d+)?\b|(?<=/dev/loop)\d+")
MORE = "..."
BEGIN, END = "@@begin", "@@end"
MOST_S = 300


def shape(line: str) -> str:
    """Every number 0, every gap one space, no rules of tables."""
    return re.sub(r"[\s─]+", " ", NUMBER.sub("0", line)).strip()


def exact(line: str) -> str:
    """Every gap one space, no rules of tables."""
    return re.sub(r"[\s─]+", " ", line).strip()


@dataclass
class Step:
    """What is typed, and what is shown after it; ``varies``: numbers are not the same each time."""

    typed: str
    shown: list[str]
    varies: bool = False


def steps(page: str) -> list[Step]:
    """In order; files are made by what is typed nowhere."""
    out: list[Step] = []
    for language, varies, name, text in BLOCK.findall(page):
        if name:
            out.append(Step(f"cat > {name} <<'END OF FILE'\n{text}END OF FILE", []))
        elif language == "console":
            for line in text.splitlines():
                if line.startswith("$ "):
                    out.append(Step(line[2:], [], bool(varies)))
                elif not line.startswith("# "):  # that says what the next command does
                    out[-1].shown.append(line)
    return out


def agree(shown: list[str], printed: list[str]) -> bool:
    """Whether these lines are those, where MORE is any number of lines."""
    if not shown:
        return not printed
    if shown[0] == MORE:
        return any(agree(shown[1:], printed[at:]) for at in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and agree(shown[1:], printed[1:])


def lines(text: list[str], varies: bool) -> list[str]:
    """As they are compared: those that say something, and MORE."""
    found = (one if one == MORE else (shape if varies else exact)(one) for one in text)
    return [one for one in found if one]


def run(page: Path, where: Path, path: Path = ROOT) -> None:
    """All of a tutorial, in one shell, in that folder."""
    todo = steps(page.read_text())
    assert todo
    script = "".join(f"echo {BEGIN}\n{one.typed}\necho {END} $?\n" for one in todo)
    tools = where.parent / "bin"
    tools.mkdir()
    python = f'exec "{sys.executable}" "$@"'
    made = {"python": python, "flashfs": f'exec "{sys.executable}" -m flashfs.cli "$@"', "sudo": 'exec "$@"'}
    for name, text in made.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}:/usr/sbin:/sbin", "PYTHONPATH": str(path),
        "COLUMNS": "200", "PYTHONSAFEPATH": "1", "HOME": str(where),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", script], cwd=where, env=environment, capture_output=True, text=True, timeout=MOST_S,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    told = done.stdout.replace(str(where), HOME)
    found = re.findall(rf"^{BEGIN}\n(.*?){END} (\d+)$", told, re.M | re.S)
    for step, (printed, code) in zip(todo, found, strict=True):
        assert code == "0", f"{step.typed}\n{printed}{done.stderr[-1000:]}"
        if step.typed.startswith("cat > "):
            continue
        shown, said = lines(step.shown, step.varies), lines(printed.splitlines(), step.varies)
        assert agree(shown, said), f"{step.typed}\n{printed}"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder of the reader's. Whatever is still mounted under it, or from an image in it, is taken away."""
    where = tmp_path / "home"
    where.mkdir()
    yield where
    for mount in reversed(mounts.table()):
        if mount.mountpoint.is_relative_to(where) and mount.source.startswith("/dev/loop"):
            with suppress(Exception):
                loop.down(mount.mountpoint)
    for mount in reversed(mounts.table()):
        if mount.fs_type == mounts.FS_TYPE and Path(mount.source).is_relative_to(where):
            with suppress(Exception):
                daemon.unmount(mount.mountpoint)


@pytest.fixture
def fuse() -> None:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None:
        pytest.skip("needs /dev/fuse and fusermount3")


@pytest.fixture
def loops(fuse: None) -> None:
    if os.geteuid() != 0 or not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        pytest.skip("needs root and /dev/loop-control")
    free = subprocess.run(["losetup", "-f"], capture_output=True, text=True, check=False)
    if free.returncode != 0 or not Path(free.stdout.strip()).exists():
        pytest.skip("needs a free loop device, and there is none")


def test_each_has_its_test_and_is_listed() -> None:
    here = {path.stem for path in FOLDER.glob("*.md")} - {"README"}
    assert here == {"first-mount", "first-python-ftl", "first-compiled-ftl", "test-your-database",
                    "reproduce-a-figure", "teach-a-lecture"}  # fmt: skip
    index = (FOLDER / "README.md").read_text()
    assert all(f"({name}.md)" in index for name in here)


@pytest.mark.mount
@pytest.mark.parametrize(
    "name",
    ["first-mount", *(pytest.param(one, marks=pytest.mark.slow) for one in ("first-python-ftl", "teach-a-lecture"))],
)
def test_with_a_mount(name: str, home: Path, fuse: None) -> None:
    run(FOLDER / f"{name}.md", home)


@pytest.mark.slow
@pytest.mark.mount
def test_test_your_database(home: Path, loops: None) -> None:
    run(FOLDER / "test-your-database.md", home)


@pytest.mark.slow
def test_reproduce_a_figure(home: Path) -> None:
    run(FOLDER / "reproduce-a-figure.md", home)


@pytest.mark.slow
@pytest.mark.mount
def test_readme(home: Path, loops: None) -> None:
    run(ROOT / "README.md", home)


#: lines of README that are no step of its console, by their first word: why
NOT_TYPED = {"make": "targets of a checkout: what they do is tested where they are"}


def test_every_command_of_readme_is_a_step() -> None:
    """Nothing of it stands in a block that is not typed, and what it names is there or made by it."""
    page = (ROOT / "README.md").read_text()
    outside = BLOCK.sub("", page)
    programs = {"flashfs", "sudo", "make", "apt", "pip", "mkfs", "losetup", "mount", "kill", "$"}
    loose = [line.split() for line in outside.splitlines() if line.startswith("    ") and line.split()]
    assert {words[0] for words in loose if words[0] in programs} == set(NOT_TYPED)
    assert sum(" dump " in one.typed for one in steps(page)) <= 8
    assert "kill -9" not in page
    for link in re.findall(r"\]\(([^)#:]+)\)", page):
        assert (ROOT / link).exists(), link


def test_first_screen_of_readme() -> None:
    """What it is, a picture, three commands."""
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:24])
    assert "![" in screen
    assert len(steps(screen)) == 3


@pytest.mark.slow
def test_first_compiled_ftl(tmp_path: Path) -> None:
    """In a copy of the checkout, with what is compiled already."""
    checkout = tmp_path / "home"
    for name in ("nandimg", "flashfs", "tests/engine", "tests/replay", "tests/ftl", "docs"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.cpp"))
    for name in ("setup.py", "pyproject.toml", "tests/golden.py", "tests/schemes.py"):
        shutil.copy(ROOT / name, checkout / name)
    run(FOLDER / "first-compiled-ftl.md", checkout, checkout)


def test_what_is_shown_is_held_against_what_is_printed() -> None:
    assert agree(["a 0", MORE, "b"], ["a 0", "x", "y", "b"])
    assert agree([MORE], [])
    assert not agree(["a 0", "b"], ["a 0", "x", "b"])
    assert not agree([], ["x"])
    assert shape("  1,188 spare ── 0.5 us") == "0 spare 0 us"
    assert shape("new ext4 on /dev/loop1") == shape("new ext4 on /dev/loop0")
    assert exact("  1,188 spare ── 0.5 us") == "1,188 spare 0.5 us"
    assert not agree(lines(["WAF  2.41"], False), lines(["WAF 2.42"], False))
    assert agree(lines(["WAF  2.41"], True), lines(["WAF 2.42"], True))
    both = steps("```console\n$ a\n1\n```\n```console varies\n$ b\n2\n```\n")
    assert both == [Step("a", ["1"]), Step("b", ["2"], True)]
