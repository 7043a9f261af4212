"""`flashfs nbd`: what the command prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from export import TIMEOUT_S, Client, run

from flashfs import cli
from flashfs.cli import nbd
from flashfs.device import Device
from flashfs.fuse import nbd_servers
from flashfs.fuse.nbd_request import Request
from flashfs.nbd import server
from flashfs.poll import readable

SIZE = 80 << 20  #: of `chip`
LITTLE = 64 << 10
MINE = """class Mine:
    def __init__(self, chip):
        self.ppa_of = {}

    def lookup(self, lpa):
        return self.ppa_of.get(lpa)

    def bind(self, lpa, ppa):
        self.ppa_of[lpa] = ppa

    def unbind(self, lpa):
        del self.ppa_of[lpa]
"""


def test_the_command(
    need_nbd: None, chip: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--run: served while a command runs, whose exit code is the command's; --once: until the last client leaves. The
    command finds mkfs where PATH leaves out its folder, as after `su`."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    line = 'mkfs.ext4 -V 2>/dev/null; nbdinfo --size "$uri"; test -S "$unixsocket" && exit 7'
    code = cli.run(["nbd", str(chip), "--ftl", "dftl", "--run", f"set -e; {line}"])
    assert (code, capfd.readouterr().out) == (7, f"{SIZE}\n")
    with Device.open(chip, readonly=True) as device:
        assert device.recovery.clean
    assert cli.run(["nbd", str(chip), "--once", "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert (said["ftl"], said["size"], said["clean"]) == ("dftl", SIZE, True)
    ended = os.pidfd_open(said["pid"])
    run("nbdinfo", said["uri"])
    assert readable(ended, timeout_s=TIMEOUT_S)
    os.close(ended)
    with Device.open(chip, readonly=True) as device:
        assert device.recovery.clean


def test_a_class_in_the_present_folder(need_nbd: None, chip: Path, tmp_path: Path) -> None:
    """As `mount` finds it: the folder is not in the Python path."""
    (tmp_path / "mine.py").write_text(MINE)
    command = [sys.executable, "-P", "-c", "from flashfs.cli import main; main()"]
    for words in (["--ftl", "mine:Mine"], ["--trust"]):
        done = subprocess.run(
            [*command, "nbd", str(chip), *words, "--run", 'nbdinfo --size "$uri"'], cwd=tmp_path, capture_output=True,
            text=True, check=False, env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, f"{SIZE}\n"), done.stderr


def test_names_that_are_no_utf_8(need_nbd: None, chip: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / os.fsdecode(b"d\xff")
    folder.mkdir()
    chip = chip.rename(folder / chip.name)
    line = 'nbdinfo --size "$uri"'
    assert cli.run(["nbd", str(chip), "--socket", str(folder / "s"), "--run", f"{line}; echo $uri"]) == 0
    assert capfd.readouterr().out == f"{SIZE}\nnbd+unix:///?socket={tmp_path}/d%FF/s\n"
    assert cli.run(["nbd", str(chip), "--json"]) == 0
    pid = json.loads(capfd.readouterr().out)["pid"]
    ended = os.pidfd_open(pid)
    try:
        (found,) = [one for one in nbd_servers.servers() if one.pid == pid]
        assert (found.image, found.uri) == (str(chip), f"nbd+unix:///?socket={tmp_path}/d%FF/{chip.name}.sock")
    finally:
        os.kill(pid, signal.SIGTERM)
        assert readable(ended, timeout_s=TIMEOUT_S)
        os.close(ended)


def test_in_a_folder_that_was_deleted(
    need_nbd: None, chip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.syspath_prepend("")  # as a command without a script has it
    assert cli.run(["nbd", str(chip), "--run", 'nbdinfo --size "$uri"']) == 0
    assert capfd.readouterr().out == f"{SIZE}\n"


def test_foreground_ends_by_sigterm(need_nbd: None, chip: Path) -> None:
    """Also with a client that has not left."""
    command = [sys.executable, "-m", "flashfs.cli", "nbd", str(chip), "--foreground"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        uri = process.stdout.readline().partition(": ")[0]
        with Client(uri.partition("?socket=")[2]) as client:
            assert client.write(0, b"\1" * LITTLE) == 0
            process.terminate()
            out, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0 and "checkpoint written" in err, (out, err)
    with Device.open(chip, readonly=True) as device:
        assert device.recovery.clean and device.read(0, 4096) == b"\1" * 4096


def test_its_line_is_printed_once_signals_end_it(monkeypatch: pytest.MonkeyPatch, chip: Path) -> None:
    """A program that waits for the line may send one at once."""
    running = SimpleNamespace(served=None, wait=lambda: None)
    handlers: list[Any] = []
    monkeypatch.setattr(server, "start", lambda *_: running)
    monkeypatch.setattr(nbd, "report", lambda *_, **__: handlers.append(signal.getsignal(signal.SIGTERM)))
    before = signal.getsignal(signal.SIGTERM)
    assert nbd.serve(Request(chip, foreground=True), None, verbose=False, as_json=False) == 0
    assert len(handlers) == 1 and handlers[0] != before == signal.getsignal(signal.SIGTERM)


@pytest.mark.parametrize(
    "words", [["--socket", "a", "--port", "1"], ["--port", "0"], ["--sync", "often"], ["--run", "true", "--once"]]
)
def test_usage(need_nbd: None, chip: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert cli.run(["nbd", str(chip), *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("option", ["--stats", "--log"])
@pytest.mark.parametrize("name", ["chip.nand", "link", "second"])
def test_a_file_to_be_written_that_is_the_image(
    need_nbd: None, chip: Path, capsys: pytest.CaptureFixture[str], option: str, name: str
) -> None:
    """By whatever name."""
    before = chip.read_bytes()
    (chip.parent / "link").symlink_to(chip)
    (chip.parent / "second").hardlink_to(chip)
    assert cli.run(["nbd", str(chip), "--run", "true", option, str(chip.parent / name)]) == 2
    assert "this is the image itself" in capsys.readouterr().err
    assert chip.read_bytes() == before
