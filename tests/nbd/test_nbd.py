"""`flashfs nbd`: what NBD's clients see of an image, and what of it lasts."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from export import FLUSH, FUA, READ, TIMEOUT_S, ZEROES, Client, Export, run
from processes import stop

from flashfs import cli
from flashfs.device import Device
from flashfs.errors import FlashfsError
from flashfs.fuse import nbd_servers, places
from flashfs.fuse.asking import DeadError
from flashfs.fuse.nbd_request import Request
from flashfs.nbd import server
from flashfs.nbd.asked import Asked
from flashfs.poll import readable
from nandimg import Geometry, image

MIB = 1 << 20
SIZE = 80 * MIB
LITTLE = 64 << 10
PATIENCE_S = 60.0  # the server's own is 5 s
LOGGED = {
    "wear": r"write at byte \d+: DeviceFullError: ",
    "enospc": r"(write|flush) at byte \d+: the host's disk \w+ full below ",
}
Serve = Callable[..., Export]


def test_info(export: Serve) -> None:
    info = export().info()
    assert info["export-size"] == SIZE
    for what in ("flush", "fua", "trim", "zero", "fast_zero", "multi_conn", "df"):
        assert info[f"can_{what}"], what
    assert not info["is_read_only"] and not info["is_rotational"]
    assert info["block_size_minimum"] == 1 and info["block_size_preferred"] == 4096


def test_copy_in_and_out(export: Serve, chip: Path, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(8 * MIB)
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(data)
    one = export(ftl="slimftl")
    run("nbdcopy", source, one.uri)
    assert one.extents() == [(0, 8 * MIB, True), (8 * MIB, SIZE - 8 * MIB, False)]
    run("nbdcopy", one.uri, back)
    with back.open("rb") as file:
        assert file.read(8 * MIB) == data and not any(file.read())
    one.end()
    assert not one.request.socket.exists()  # type: ignore[union-attr]
    with Device.open(chip, readonly=True) as device:
        assert device.recovery.clean and device.problems() == []
        assert device.read(0, 8 * MIB) == data


@pytest.mark.parametrize(("ftl", "size"), [("pagemap", "16m"), ("dftl", "16m"), ("examples.minimal:Minimal", "4m")])
def test_fio_verifies(export: Serve, ftl: str, size: str) -> None:
    """Four requests at a time, each read back; the third is an FTL in Python, in nbdkit's threads."""
    if "nbd" not in subprocess.run(["fio", "--enghelp"], capture_output=True, text=True).stdout.split():
        pytest.skip("needs a fio with the engine nbd")
    one = export(ftl=ftl)
    run(
        "fio", "--name=verify", "--ioengine=nbd", f"--uri={one.uri}", "--rw=randwrite", "--bs=4k", f"--size={size}",
        f"--io_size={size}", "--iodepth=4", "--verify=crc32c", "--verify_fatal=1", "--fsync=64", "--randseed=5",
        "--verify_state_save=0",
    )  # fmt: skip
    one.end()


def test_clients_that_leave_while_they_ask_for_the_map(export: Serve) -> None:
    """nbdkit sends each extent of a reply by itself, and ends if a client leaves in between."""
    one = export()
    with Client(one.path) as client:
        for at in range(0, 8 * MIB, 8192):
            assert client.write(at, b"m" * 4096) == 0
    begin = time.monotonic()
    assert len(one.extents()) == 2048
    took_s = time.monotonic() - begin
    for turn in range(20):
        asks = subprocess.Popen(["nbdinfo", "--map", one.uri], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(took_s * turn / 20)
        asks.kill()
        asks.wait()
    assert one.extents()[0] == (0, 4096, True)
    one.end()


def test_a_question_while_the_image_is_being_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer in one line, or none if the process has ended."""

    class Closed:
        def __enter__(self) -> None:
            raise FlashfsError("the image is being closed")

        def __exit__(self, *_: object) -> None:
            pass

    asked = object.__new__(Asked)
    asked._export = Closed()  # type: ignore[assignment]
    said: list[bytes] = []
    asked._answer("text smart.json", said.append)
    assert json.loads(said[0]) == {"error": "the image is being closed", "exit_code": 1}
    place = places.NbdPlace(nbd_servers.Serving("chip.nand", None, os.getpid(), "nbd:"))
    for answer, error, words in ((said[0], FlashfsError, "is being closed"), (b"", DeadError, "ended while it was")):
        monkeypatch.setattr(place, "_asked", lambda line, found=answer: io.BytesIO(found))
        with pytest.raises(error, match=words):
            place.text("smart.json")


def test_extents_beside_trims(export: Serve) -> None:
    """A page that is written and trimmed all the time: each answer has an extent."""
    one = export()
    ends = threading.Event()

    def churn() -> None:
        with Client(one.path) as client:
            while not ends.is_set():
                assert client.write(0, b"c" * 4096) == 0
                assert client.do(ZEROES, 0, 4096) == 0

    beside = threading.Thread(target=churn)
    beside.start()
    try:
        for _ in range(40):
            assert sum(length for _, length, _ in one.extents()) == SIZE
    finally:
        ends.set()
        beside.join()
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


def test_what_was_flushed_outlives_a_kill(export: Serve, chip: Path) -> None:
    """One life each, with no later flush: a flush is of what another connection wrote
    (can_multi_conn); FUA is of its own write, and of its own zeroing, whose ragged ends are writes. All of it fits the
    write buffer, where it would be lost."""
    one = export(ftl="dftl")
    with Client(one.path) as first, Client(one.path) as second:
        assert first.write(0, b"\x11" * LITTLE) == 0
        assert second.do(FLUSH) == 0
        one.kill()
    assert found(chip, 0, LITTLE) == b"\x11" * LITTLE
    one = export()
    with Client(one.path) as client:
        assert client.write(MIB, b"\x22" * LITTLE, FUA) == 0
        one.kill()
    assert found(chip, MIB, LITTLE) == b"\x22" * LITTLE
    one = export()
    with Client(one.path) as client:
        assert client.do(ZEROES, 512, 10240, FUA) == 0
        one.kill()
    assert found(chip, 0, 12288) == b"\x11" * 512 + bytes(10240) + b"\x11" * 1536


def found(chip: Path, offset: int, size: int) -> bytes:
    """What an image has that was not closed; it stays so."""
    with Device.open(chip, readonly=True) as device:
        assert not device.recovery.clean
        return device.read(offset, size)


@pytest.mark.parametrize(("fault", "writes"), [("wear=3", 40), ("enospc=1500", 3)])
@pytest.mark.parametrize("ftl", ["pagemap", "geckoftl", "hpftl"])
def test_the_engine_fails(need_nbd: None, tmp_path: Path, ftl: str, fault: str, writes: int) -> None:
    """The client gets the errno, the log the line, and reading goes on: as under a mount."""
    chip, log = tmp_path / "small.nand", tmp_path / "log"
    image.create(chip, Geometry.sized(4 * MIB, 0.5, pages_per_block=32))
    one = Export(chip, ftl=ftl, faults=(fault,), log=log)
    try:
        commands = [word for _ in range(writes) for word in ("-c", "write 0 4M", "-c", "flush")]
        said = subprocess.run(
            ["qemu-io", "-f", "raw", *commands, one.uri], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=TIMEOUT_S,
        ).stdout  # fmt: skip
        assert "No space left on device" in said and "wrote 4194304/4194304" in said, said
        assert re.search(LOGGED[fault.partition("=")[0]], log.read_text(), re.MULTILINE), log.read_text()
        assert one.info()["export-size"] == 4 * MIB
        assert "read 4194304/4194304" in run("qemu-io", "-r", "-f", "raw", "-c", "read 0 4M", one.uri)
    finally:
        one.take_away()


def test_clients_that_leave(export: Serve) -> None:
    """With answers unread, each of them; and with no thread or descriptor left of them in the server."""
    one = export()
    with Client(one.path) as client:
        assert client.write(0, bytes(20 * MIB)) == 0
    one.info()  # nbdkit has done what comes after its announcement
    before = in_use(one.pid)
    for _ in range(10):
        with Client(one.path) as client:
            for at in range(20):
                client.ask(READ, at * MIB, MIB)
    assert one.info()["export-size"] == SIZE
    assert wait_for(lambda: in_use(one.pid) <= before), (before, in_use(one.pid))
    one.end()


COUNTING = """
import ctypes
from examples.minimal import Minimal

api = ctypes.pythonapi
for function in (api.PyInterpreterState_Get, api.PyInterpreterState_ThreadHead, api.PyThreadState_Next):
    function.restype = ctypes.c_void_p

class Counting(Minimal):
    def bind(self, lpa, ppa):
        state, count = api.PyInterpreterState_ThreadHead(ctypes.c_void_p(api.PyInterpreterState_Get())), 0
        while state:
            state, count = api.PyThreadState_Next(ctypes.c_void_p(state)), count + 1
        with open("FILE", "w") as file:
            file.write(str(count))
        super().bind(lpa, ppa)
"""


def test_threads_leave_no_state(export: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter has one for each connection, as long as that lives, one for the main thread, and one for the
    thread that waits for questions."""
    counted = tmp_path / "counted"
    (tmp_path / "counting.py").write_text(COUNTING.replace("FILE", str(counted)))
    monkeypatch.syspath_prepend(tmp_path)
    one = export(ftl="counting:Counting")
    one.info()  # nbdkit has done what comes after its announcement
    before = in_use(one.pid)
    for _ in range(10):
        with Client(one.path) as client:
            assert client.write(0, bytes(4096), FUA) == 0
    assert wait_for(lambda: in_use(one.pid) <= before)
    with Client(one.path) as client:
        assert client.write(0, bytes(4096), FUA) == 0
    assert counted.read_text() == "3"
    one.end()


def in_use(pid: int) -> int:
    """Threads and descriptors of a process."""
    return sum(1 for kind in ("task", "fd") for _ in Path(f"/proc/{pid}/{kind}").iterdir())


def wait_for(holds: Callable[[], bool]) -> bool:
    """Whether it holds, now or within a time that is ample."""
    until_s = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.05)
    return True


def test_sigterm_waits_a_while_for_answers_to_be_read(export: Serve, chip: Path) -> None:
    one = export()
    with Client(one.path) as client:
        assert client.write(0, b"\5" * 20 * MIB) == 0
        for at in range(20):
            client.ask(READ, at * MIB, MIB)
        client.await_answer()
        one.server.stop()
        ended = os.pidfd_open(one.pid)
        try:
            assert readable(ended, timeout_s=PATIENCE_S), "it still waits for the client"
        finally:
            os.close(ended)
        one.server.wait()
    with Device.open(chip, readonly=True) as device:
        assert device.recovery.clean and device.read(20 * MIB - 4096, 4096) == b"\5" * 4096


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
    for _ in range(20):
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = probe.getsockname()[1]
            probe.listen()
            with pytest.raises(FlashfsError, match=rf"^--port {port} is taken: use another one$"):
                export(port=port)
        with suppress(FlashfsError):  # another process has taken it meanwhile
            one = export(port=port)
            break
    assert one.info()["export-size"] == SIZE
    one.end()


def test_status_has_what_is_served(export: Serve, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    one = export(ftl="dftl")
    expected = nbd_servers.Serving(str(one.request.image), "dftl", one.pid, one.request.uri)
    assert expected in nbd_servers.servers()
    assert cli.run(["status"]) == 0
    assert f"served by process {one.pid} at {one.request.uri}; `kill {one.pid}` ends that" in capsys.readouterr().out
    assert cli.run(["umount", str(one.request.image)]) == 2
    assert f"`flashfs nbd` serves at {one.request.uri}: `kill {one.pid}` ends that" in capsys.readouterr().err
    one.end()
    assert all(found.pid != one.pid for found in nbd_servers.servers())
    for text in (b"", b"nbdkit", b"nbdkit\0request=no", b"nbdkit\0request={}", b"\xff\0"):  # others' processes
        (tmp_path / "77").mkdir(exist_ok=True)
        (tmp_path / "77/cmdline").write_bytes(text)
        assert nbd_servers.servers(tmp_path) == []


def test_a_look_at_what_is_served(
    export: Serve, chip: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """By the image or the socket, while clients go on."""
    one = export(ftl="dftl")
    with Client(one.path) as client:
        assert client.write(0, b"\x11" * 4096, FUA) == 0
        assert client.write(8192, b"\x11" * 4096) == 0
        for place in (chip, one.path):
            assert cli.run(["dump", str(place), "lpa", "0", "--json"]) == 0
            out, err = capsys.readouterr()
            assert json.loads(out)["ppa"] is not None
            assert "1 pages are in the write buffer alone" in err
        assert cli.run(["dump", str(chip), "--html", str(tmp_path / "page"), "--json"]) == 0
        assert "write buffer alone" in json.loads(capsys.readouterr().out)["note"]
        assert "</html>" in (tmp_path / "page").read_text()
        assert cli.run(["dump", str(chip), "lpa", "0", "--trust"]) == 2
        assert "it is in use, and knows its FTL" in capsys.readouterr().err
        assert cli.run(["smart", str(chip), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["image"], found["ftl"], found["at_least"]) == (str(chip), "dftl", False)
        assert found["life"]["host_writes"] == 2
        assert client.do(FLUSH) == 0
    one.end()


def test_live(export: Serve, chip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`top`, and what a mount has in its texts."""
    one = export(ftl="slimftl")
    with Client(one.path) as client:
        assert client.write(0, b"\x11" * 8192) == 0
        for place in (chip, one.path):
            assert cli.run(["top", str(place), "--json", "--interval", "0.05", "--once"]) == 0
            found = json.loads(capsys.readouterr().out)
            assert (found["ftl"], found["server"], found["mountpoint"]) == ("slimftl", "nbdkit", str(place))
    place = places.at(chip)
    stats = place.text("stats.json")
    assert (stats["server"]["requests"]["write"], stats["server"]["bytes"]["write"]) == (1, 8192)
    assert place.text("map.json")["blocks"] == len(place.text("map.json")["erases"])
    config = place.text("config.json")
    assert (config["pid"], config["uri"], config["asked"]["sync"]) == (one.pid, one.uri, "flush")
    with pytest.raises(FlashfsError, match="no question"):
        place.text("nonsense")
    assert cli.run(["top", str(chip), "--once", "--interval", "0.05"]) == 0
    assert "slimftl" in capsys.readouterr().out
    one.end()
    with pytest.raises(DeadError, match="serves it no more"):
        place.text("stats.json")


def test_many_ask_while_clients_write(export: Serve, chip: Path) -> None:
    one = export(ftl="dftl")
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            place = places.at(chip)
            for _ in range(20):
                assert place.text("stats.json")["server"]["in_flight"] >= 0
                assert place.give("fault", None)["exit_code"] == 2
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    with Client(one.path) as client:
        for thread in threads:
            thread.start()
        for at in range(200):
            assert client.write(at * 4096, b"\x11" * 4096) == 0
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert not failed
    one.end()


def test_somebody_who_asks_nothing_keeps_nobody_waiting(export: Serve, chip: Path) -> None:
    one = export()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.connect(nbd_servers.address(one.pid))
        assert places.at(chip).text("config.json")["pid"] == one.pid
        one.end()


def test_faults_while_it_runs(export: Serve, chip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = export(ftl="pagemap", faults=("later",))
    assert cli.run(["fault", str(chip)]) == 0
    assert "no faults; " in capsys.readouterr().out
    assert cli.run(["fault", str(one.path), "eio=1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["faults"] == ["eio=1"]
    with Client(one.path) as client:
        client.write(0, b"\x11" * 4096)
        assert client.do(FLUSH) == errno.EIO
    assert cli.run(["fault", str(chip), "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err
    assert cli.run(["fault", str(chip), "none"]) == 0
    one.kill()
    again = export(ftl="pagemap", faults=("later",))
    with Client(again.path) as client:
        assert cli.run(["cut", str(chip), "--at", "3"]) == 0
        assert "the power goes at flash operation 3 from now" in capsys.readouterr().out
        with pytest.raises((AssertionError, OSError)):
            for at in range(1000):
                client.write(at * 4096, b"\x11" * 4096, FUA)
    again.gone()


def test_a_cut_of_what_is_served(export: Serve, chip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = export(ftl="pagemap")
    with Client(one.path) as client:
        assert client.write(0, b"\x11" * 4096, FUA) == 0
        assert client.write(0, b"\x22" * 4096) == 0
        for words in (["cut", "--at", "5"], ["fault", "fail=10"]):
            assert cli.run([words[0], str(chip), *words[1:]]) == 2
            assert "--fault later" in capsys.readouterr().err
        assert cli.run(["fault", str(chip)]) == 0
        assert "no place for faults" in capsys.readouterr().out
        assert cli.run(["cut", str(chip)]) == 0
        assert f"{chip}: power cut" in capsys.readouterr().out
        one.gone()
    assert found(chip, 0, 4096) == b"\x11" * 4096


def test_stopped(export: Serve, chip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands report it, and do not wait."""
    one = export()
    stop(one.pid)
    try:
        for words in (["smart", str(chip)], ["fault", str(chip)], ["cut", str(chip)], ["top", str(chip), "--once"]):
            assert cli.run(words) == 1
            assert f"kill -CONT {one.pid}" in capsys.readouterr().err
    finally:
        os.kill(one.pid, signal.SIGCONT)
    one.end()


def test_in_real_time(export: Serve) -> None:
    """Each write with FUA waits for the program of its page."""
    one = export(ftl="pagemap", realtime=True)
    with Client(one.path) as client:
        begin_s, rounds = time.monotonic(), 100
        for at in range(rounds):
            assert client.write(at * 4096, b"\x11" * 4096, FUA) == 0
        took_s = time.monotonic() - begin_s
    assert took_s >= rounds * Geometry.sized(SIZE, 0.3).program_ns / 1e9
    one.end()


def test_refusals(export: Serve, chip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each, and the image and the server that runs are as they were."""
    one = export(ftl="dftl")
    path = one.request.socket
    other = tmp_path / "other.sock"
    assert path is not None
    with pytest.raises(FlashfsError, match=rf"^--socket {path} is taken"):
        server.start(Request(chip, path))
    line = f"{chip}: in use by process {one.pid}, served at {one.uri}: `kill {one.pid}` ends that"
    with pytest.raises(FlashfsError, match=re.escape(line)):
        server.start(Request(chip, other))
    assert not other.exists()
    assert one.info()["export-size"] == SIZE
    one.end()
    with pytest.raises(FlashfsError, match="bound to dftl for life, not slimftl"):
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


@pytest.mark.parametrize(("says", "told"), [("echo 'nbdkit: error: no luck' >&2", "no luck"), ("", "it says nothing")])
def test_what_nbdkit_says_that_does_not_start(
    need_nbd: None, chip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, told: str
) -> None:
    """In the foreground too."""
    (fake := tmp_path / "bin/nbdkit").parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{says}\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(FlashfsError, match=f"^nbdkit did not start: {told}$"):
        server.start(Request(chip, tmp_path / "s", foreground=True))


def test_where_nothing_can_be_written(
    need_nbd: None, chip: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """--run brings a place for its socket."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for a file system that is read-only")
    with Device.open(chip):
        pass
    (folder := tmp_path / "ro").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], check=True)
    try:
        subprocess.run(["cp", "--sparse=always", str(chip), str(folder / "chip")], check=True)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        words = ["nbd", str(folder / "chip"), "--read-only"]
        assert cli.run([*words, "--run", 'nbdinfo --size "$uri"; test -S "$unixsocket"; echo "$unixsocket"']) == 0
        size, path = capfd.readouterr().out.split()
        assert size == str(SIZE) and not Path(path).parent.exists()
        assert cli.run(words) == 2
        assert f"{folder} cannot be written: use --socket PATH" in capfd.readouterr().err
    finally:
        subprocess.run(["umount", str(folder)], check=True)


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
