"""`flashfs nbd`: what NBD's clients see of an image, and what of it lasts."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from export import TIMEOUT_S, Export, run

from flashfs import cli
from flashfs.device import Device
from flashfs.errors import FlashfsError
from flashfs.nbd import server
from flashfs.nbd.request import Request
from flashfs.waiting import readable

MIB = 1 << 20
SIZE = 80 * MIB
APART_S = 0.1
Serve = Callable[..., Export]


def test_info(export: Serve) -> None:
    info = export().info()
    assert info["export-size"] == SIZE
    for what in ("flush", "fua", "trim", "zero", "fast_zero", "multi_conn", "df"):
        assert info[f"can_{what}"], what
    assert not info["is_read_only"] and not info["is_rotational"]
    assert info["block_size_minimum"] == 1 and info["block_size_preferred"] == 4096


def test_copy_in_and_out(export: Serve, chip: Path, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(64 * MIB)
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(data)
    one = export(ftl="slimftl")
    run("nbdcopy", source, one.uri)
    assert one.extents() == [(0, 64 * MIB, True), (64 * MIB, 16 * MIB, False)]
    run("nbdcopy", one.uri, back)
    with back.open("rb") as file:
        assert file.read(64 * MIB) == data and not any(file.read())
    one.end()
    assert not one.request.socket.exists()  # type: ignore[union-attr]
    with Device.open(chip, readonly=True) as device:
        assert device.recovery.clean and device.problems() == []
        assert device.read(0, 64 * MIB) == data


@pytest.mark.parametrize("ftl", ["pagemap", "dftl", "examples.minimal:Minimal"])
def test_fio_verifies(export: Serve, ftl: str) -> None:
    """Four requests at a time, each read back; the third is an FTL in Python, in nbdkit's threads."""
    if "nbd" not in subprocess.run(["fio", "--enghelp"], capture_output=True, text=True).stdout.split():
        pytest.skip("needs a fio with the engine nbd")
    one = export(ftl=ftl)
    run(
        "fio", "--name=verify", "--ioengine=nbd", f"--uri={one.uri}", "--rw=randwrite", "--bs=4k", "--size=16m",
        "--io_size=16m", "--iodepth=4", "--verify=crc32c", "--verify_fatal=1", "--fsync=64", "--randseed=5",
    )  # fmt: skip
    one.end()


def test_trim_and_zeroes(export: Serve, tmp_path: Path) -> None:
    """Both give pages back; ragged ends are overwritten, and what is beside them stays."""
    stats = tmp_path / "stats.json"
    one = export(stats=stats)
    one.io("write -P 0xaa 0 8M", "discard 1M 1M", "write -z 3M 1M", "write -z -u 5M 1M")
    assert [hole for *hole, mapped in one.extents() if not mapped] == [
        [1 * MIB, MIB], [3 * MIB, MIB], [5 * MIB, MIB], [8 * MIB, SIZE - 8 * MIB],
    ]  # fmt: skip
    one.io("write -z 512 10240")
    assert one.extents()[:3] == [(0, 4096, True), (4096, 4096, False), (8192, MIB - 8192, True)]
    one.io("read -P 0xaa 0 512", "read -P 0 512 10240", "read -P 0xaa 10752 4k", "read -P 0 1M 1M",
           "read -P 0xaa 2M 1M")  # fmt: skip
    one.end()
    found = json.loads(stats.read_text())
    assert found["host"]["trim"] > 0 and found["server"]["requests"]["trim"] == 4
    assert found["server"]["bytes"]["write"] == 8 * MIB


def test_what_was_flushed_outlives_a_kill(export: Serve) -> None:
    """A flush is of all before it, from whichever connection; FUA of its own write, trim and zeroing."""
    one = export(ftl="dftl")
    first = Client(one.uri)
    second = Client(one.uri)
    try:
        first.do("write -P 0x11 0 1M")
        second.do("flush")  # the other one's: can_multi_conn
        second.do("write -f -P 0x22 1M 64k")
        second.do("write -z -f 0 64k")
        first.do("write -P 0x33 2M 64k")  # neither
        one.kill()
    finally:
        first.end()
        second.end()
    again = export()
    assert not again.server.served.clean
    again.io("read -P 0 0 64k", "read -P 0x11 64k 960k", "read -P 0x22 1M 64k")
    again.end()


class Client:
    """qemu-io that waits for commands, for it flushes when it leaves."""

    def __init__(self, uri: str) -> None:
        self._process = subprocess.Popen(
            ["stdbuf", "-oL", "qemu-io", "-f", "raw", uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def do(self, command: str) -> None:
        """Returns when it is acknowledged: what comes behind it is done after it. Of two lines that come at once
        qemu-io sees one."""
        assert self._process.stdin is not None and self._process.stdout is not None
        for line in (command, "length"):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            time.sleep(APART_S)
        said = ""
        while f"{SIZE // MIB} MiB\n" not in said:
            line = self._process.stdout.readline()
            assert line, said
            said += line
        assert "failed" not in said and "error" not in said.lower(), said

    def end(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=TIMEOUT_S)


def test_read_only_changes_nothing(export: Serve, chip: Path) -> None:
    """Not even an image that has to be recovered."""
    first = export()
    first.io("write -P 0x44 0 1M")
    first.kill()
    before = hashlib.sha256(chip.read_bytes()).digest()
    one = export(read_only=True)
    assert one.info()["is_read_only"]
    assert "read 1048576/1048576" in run("qemu-io", "-r", "-f", "raw", "-c", "read -P 0x44 0 1M", one.uri)
    assert subprocess.run(["qemu-io", "-f", "raw", "-c", "write 0 4k", one.uri], capture_output=True).returncode != 0
    one.end()
    assert hashlib.sha256(chip.read_bytes()).digest() == before


def test_a_tcp_port(export: Serve) -> None:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
        probe.listen()
        with pytest.raises(FlashfsError, match=rf"^--port {port} is taken: another one would do$"):
            export(port=port)
    one = export(port=port)
    assert one.info()["export-size"] == SIZE
    one.end()


def test_refusals(export: Serve, chip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each, and the image and the server that runs are as they were."""
    one = export(ftl="dftl")
    path = one.request.socket
    other = tmp_path / "other.sock"
    assert path is not None
    with pytest.raises(FlashfsError, match=rf"^--socket {path} is taken"):
        server.start(Request(chip, path))
    with pytest.raises(FlashfsError, match=f"in use by process {one.pid}"):
        server.start(Request(chip, other))
    assert not other.exists()
    assert one.info()["export-size"] == SIZE
    one.end()
    with pytest.raises(FlashfsError, match="bound to dftl, not slimftl"):
        server.start(Request(chip, other, ftl="slimftl"))
    with pytest.raises(FlashfsError, match="107 bytes"):
        server.start(Request(chip, tmp_path / ("x" * 107)))
    with pytest.raises(FlashfsError, match="and no socket"):
        server.start(Request(chip, chip))
    with pytest.raises(FlashfsError, match=r"--log .* no directory"):
        server.start(Request(chip, other, log=tmp_path / "none" / "log"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FlashfsError, match="install nbdkit-plugin-dev"):
        server.start(Request(chip, other))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FlashfsError, match="apt-get install nbdkit"):
        server.start(Request(chip, other))


def test_a_power_cut(export: Serve, chip: Path, tmp_path: Path) -> None:
    """--fault works as under a mount: here the power goes before anything is served, and once a client writes."""
    with pytest.raises(FlashfsError, match=r"^power cut at flash operation 1 "):
        export(ftl="pagemap", faults=("cut=1",))
    log = tmp_path / "log"
    one = export(faults=("cut=300",), log=log)
    assert subprocess.run(["qemu-io", "-f", "raw", "-c", "write 0 16M", one.uri], capture_output=True).returncode != 0
    one.gone()
    assert "power cut at flash operation 300" in log.read_text()
    with Device.open(chip) as device:
        assert not device.recovery.clean and device.problems() == []


def test_the_command(need_nbd: None, chip: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """--run: served while a command runs, whose exit code is the command's; --once: until the last client leaves."""
    code = cli.run(["nbd", str(chip), "--ftl", "dftl", "--run", 'nbdinfo --size "$uri"; test -S "$unixsocket"; exit 7'])
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


def test_foreground_ends_by_sigterm(need_nbd: None, chip: Path) -> None:
    """Also with a client that has not left."""
    command = [sys.executable, "-m", "flashfs.cli", "nbd", str(chip), "--foreground"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        uri = process.stdout.readline().partition(": ")[0]
        client = Client(uri)
        client.do("write -P 1 0 64k")
        process.terminate()
        out, err = process.communicate(timeout=TIMEOUT_S)
        client.end()
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0 and "checkpoint written" in err, (out, err)
    with Device.open(chip, readonly=True) as device:
        assert device.recovery.clean and device.read(0, 4096) == b"\1" * 4096


@pytest.mark.parametrize(
    "words", [["--socket", "a", "--port", "1"], ["--port", "0"], ["--sync", "often"], ["--run", "true", "--once"]]
)
def test_usage(need_nbd: None, chip: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert cli.run(["nbd", str(chip), *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_qemu_img_converts(need_nbd: None, export: Serve, tmp_path: Path) -> None:
    """A partition table inside, as a guest makes one: QEMU's tools and a loop device's find it."""
    if shutil.which("sfdisk") is None:
        pytest.skip("needs sfdisk (package fdisk)")
    raw, back = tmp_path / "raw", tmp_path / "back.qcow2"
    raw.touch()
    os.truncate(raw, SIZE)
    subprocess.run(["sfdisk", "--quiet", raw], input="label: gpt\nsize=20M\nsize=30M\n", text=True, check=True)
    one = export()
    run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", raw, one.uri)
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", one.uri, back)
    assert "identical" in run("qemu-img", "compare", "-f", "raw", "-F", "qcow2", raw, back)
    assert run("qemu-img", "info", one.uri).count("80 MiB")
