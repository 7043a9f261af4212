"""The help: groups, lines that are whole, examples that work as they are typed, and what a shell completes."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashfs import cli
from flashfs.cli import commands, dump, help
from flashfs.cli.examples import EXAMPLES
from flashfs.device import Device
from flashfs.ftl import SCHEMES
from flashfs.inspect import views
from nandimg.presets import PRESETS

PROGRAM: Any = commands.program()
COLUMNS = 80


def all_commands(command: Any = PROGRAM, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """{words that call it: click's object}."""
    below = getattr(command, "commands", {}).items()
    return {path: command} | {key: one for name, sub in below for key, one in all_commands(sub, (*path, name)).items()}


ALL = all_commands()


def help_of(words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    assert cli.run([*words, "--help"]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_lines_are_whole_and_end_with_examples(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = help_of(words, capsys, monkeypatch)
    assert max(map(len, lines)) < COLUMNS
    text = "\n".join(lines)
    assert not re.search(r"…|<\w+>|\{[A-Z]|docs/", text), "cut, a type, a brace, or a file that a wheel lacks"
    ends = text.rpartition("\nExamples:\n")[2].split("\n")
    assert tuple(line.removeprefix("  ") for line in ends) == EXAMPLES[" ".join(words) or "flashfs"]
    assert all(help.said(one) for one in ALL[words].params), "an option without a help"


def test_commands_in_groups(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each, and none is forgotten."""
    lines = help_of((), capsys, monkeypatch)
    assert sorted(name for names in help.GROUPS.values() for name in names) == sorted(commands.names())
    at = 0
    for title, names in help.GROUPS.items():
        at = lines.index(f"{title}:", at)
        for i, name in enumerate(names, 1):
            assert lines[at + i].split() == [name, *help.short(ALL[name,]).split()]
        assert lines[at + len(names) + 1] == ""


def test_each_view_has_a_line() -> None:
    general = {name: unit for name, (_, unit) in views.GENERAL.items()}
    own = {name for scheme in SCHEMES.values() for name in scheme.views}
    numbered = {f"{name} {unit.upper()}" for scheme in SCHEMES.values() for name, (unit, _) in scheme.numbered.items()}
    assert set(dump.VIEWS) == {f"{name} {unit}".strip() for name, unit in general.items()}
    assert {name for name, _ in dump.own_views()} == own | numbered
    for scheme in SCHEMES.values():
        assert set(scheme.about_views) == {*scheme.views, *scheme.numbered}, scheme.name
    assert max(map(len, dump.lines_of_views())) <= 78


def test_a_scheme_that_says_nothing_of_its_views(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(SCHEMES["pagemap"], name="mine", views={"map": len, "own": len}, about_views={"map": "my map"})
    monkeypatch.setitem(SCHEMES, "mine", other)
    said = dump.own_views()
    assert ("own", "mine: a table") in said and ("map", "mine: my map") in said
    (others,) = [about for name, about in said if name == "map" and not about.startswith("mine")]
    assert others.endswith(f" and {len(SCHEMES) - 2} more: the map in figures")


@pytest.mark.parametrize(
    ("have", "said"),
    [(["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c"], "a and 2 more"), (list("abcd"), "every FTL")],
)
def test_whose_a_view_is(have: str, said: str) -> None:
    assert dump.owners(list(have), 4) == said


# --- examples

#: what is in the folder where a command's examples are typed; others need nothing
OF_AN_IMAGE = ("clone", "resize", "remap", "upgrade", "dump", "fsck")
OF_A_MOUNT = ("mount", "umount", "cut", "fault", "top", "smart", "status")  #: tests/fuse/test_help_examples.py
#: read, not run: why
PARSED = {
    "up": "tests/site/test_tutorials.py types it, of README",
    "down": "tests/site/test_tutorials.py types it, of README",
    "nbd": "it needs nbdkit, and a client",
    "crash": "half a minute",
    "crash run": "half a minute",
    "crash kill": "it needs root",
    "crash workload": "it needs root",
    "crash shrink": "no case that fails is at hand",
    "reproduce": "tests/site/test_tutorials.py types it",
}
#: whose examples are typed before, in the same folder
AFTER = {"plot": "replay"}


def typed(line: str) -> tuple[int, str]:
    """(exit code, what else to say) of a line in the present folder."""
    words = shlex.split(line, comments=True)
    if words[0] == "flashfs":
        return cli.run(words[1:]), ""
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in (*OF_A_MOUNT, *PARSED, "flashfs")])
def test_examples_work_as_typed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name in OF_AN_IMAGE:
        assert cli.run(["create", "ssd.img", "--size", "256M"]) == 0
        with Device.open("ssd.img", ftl="slimftl") as device:
            device.write(1 << 20, b"x" * 10_000)
    for line in (*EXAMPLES.get(AFTER.get(name, ""), ()), *EXAMPLES[name]):
        code, said = typed(line)
        assert code == 0, f"{line}: {said}"


@pytest.mark.parametrize("name", PARSED)
def test_examples_can_be_read(name: str) -> None:
    for line in EXAMPLES[name]:
        program, *words = shlex.split(line, comments=True)
        assert program == "flashfs"
        context, command = None, PROGRAM
        while words or context is None:
            context = command.make_context("flashfs", words, parent=context)  # what cannot be read is raised
            words = [*getattr(context, "_protected_args", getattr(context, "protected_args", [])), *context.args]
            if not words:
                break
            command, words = command.commands[words[0]], words[1:]


# --- completion


def completed(words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a bash offers in place of the last of the words."""
    monkeypatch.setenv("_FLASHFS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"flashfs {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    with pytest.raises(SystemExit):
        PROGRAM.main(args=[], prog_name="flashfs")
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("mount --ftl sl", ["slimftl"]),
        ("replay --ftl pagemap,sl", ["pagemap,slimftl"]),
        ("check pagemap sl", ["slimftl"]),
        ("ftls lea", ["leaftl", "learnedftl"]),
        ("create --preset sm", ["small-64m"]),
        ("create --preset tiny-9", ["tiny-96", "tiny-96q"]),
        ("presets demo", ["demo-1g"]),
        ("up --sync f", ["flush"]),
        ("mount --server n", ["native"]),
        ("reproduce sl", ["slimftl"]),
        ("replay --format ms", ["msr"]),
        ("trace workloads zi", ["zipf"]),
        ("replay --precondition st", ["steady"]),
        ("dump none.img lo", ["log"]),
        ("dump none.img vb", []),
    ],
)
def test_values_are_completed(
    words: str, offered: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed(words, capsys, monkeypatch) == offered


def test_chips_for_tests_are_not_offered(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    offered = completed("create --preset ", capsys, monkeypatch)
    assert offered == [name for name in PRESETS if not name.startswith("tiny-")]


def test_the_views_of_the_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "ssd.img"
    cli.run(["create", str(image), "--size", "64M"])
    Device.open(image, ftl="slimftl").close()
    capsys.readouterr()
    assert completed(f"dump {image} ", capsys, monkeypatch) == [*views.GENERAL, "map", "hids", "vbt"]


def test_mountpoints_as_they_are_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path stays relative. What is mounted is asked of the kernel alone: a dead daemon keeps no shell."""
    from flashfs.fuse import mounts

    def mount(place: Path, kind: str, source: str) -> mounts.Mount:
        return mounts.Mount(place, kind, source, "0:99")

    fuse, other = tmp_path / "mnt", Path("/elsewhere/mnt")
    table = [mount(fuse, mounts.FS_TYPE, "/a.img"), mount(other, mounts.FS_TYPE, "/b.img"),
             mount(tmp_path / "files", "ext4", "/dev/loop9"), mount(Path("/"), "ext4", "/dev/vda")]  # fmt: skip
    monkeypatch.setattr(mounts, "table", lambda: table)
    monkeypatch.setattr(mounts, "loops_of", lambda disk: [Path("/dev/loop9")] if disk == fuse / "disk" else [])
    monkeypatch.chdir(tmp_path)
    assert completed("umount ", capsys, monkeypatch) == ["mnt", "/elsewhere/mnt"]
    assert completed("umount m", capsys, monkeypatch) == ["mnt"]
    assert completed("umount /", capsys, monkeypatch) == [str(fuse), "/elsewhere/mnt"]
    assert completed("down ", capsys, monkeypatch) == ["files"]
    assert completed("cut ", capsys, monkeypatch) == ["files", "mnt", "/elsewhere/mnt"]


@pytest.mark.parametrize("words", [[], ["trace"]])
def test_a_name_alone_says_what_there_is(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """And is bad usage: a script that forgot the command goes on otherwise."""
    asked = cli.run(words)
    alone = capsys.readouterr().out
    assert asked == 2
    assert cli.run([*words, "--help"]) == 0
    assert capsys.readouterr().out.split() == alone.split()
