"""The users of an image: what a command says that finds it in use, and mounts that live on in other namespaces."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mounting import TIMEOUT_S, flashfs, pid_of
from namespaces import apart

from flashfs.errors import FlashfsError
from flashfs.fuse import daemon as unmounting
from flashfs.fuse import mounts, users
from flashfs.poll import readable
from nandimg import Geometry, image, open_image

pytestmark = pytest.mark.mount


@pytest.fixture(autouse=True)
def looks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """These mounts stay held during the whole search for the holder, so look once a second."""
    monkeypatch.setattr("flashfs.fuse.daemon.LOOK_S", 1.0)


def row(chip: Path) -> dict[str, Any]:
    """What status says of the image."""
    found = json.loads(flashfs("status", "--json").stdout)["mounts"]
    (one,) = [one for one in found if one["image"] == str(chip)]
    return dict(one)


@pytest.fixture
def daemon(chip: Path, mountpoint: Path) -> Iterator[Callable[[], None]]:
    """The image is mounted; what is given waits until its daemon has ended, which it has at the end in any case."""
    flashfs("mount", chip, mountpoint)
    pid = pid_of(mountpoint)
    descriptor = os.pidfd_open(pid)

    def ended() -> None:
        assert readable(descriptor, timeout_s=TIMEOUT_S)

    yield ended
    if not readable(descriptor, timeout_s=0):
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
    os.close(descriptor)


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """``process("sleep", "60")``: ended with the test."""
    made: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **how: Any) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(words, **how))
        return made[-1]

    yield start
    for one in made:
        with one:                           # which closes its pipes, also after a failure
            one.kill()


@pytest.fixture
def other(process: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> Callable[[], subprocess.Popen[bytes]]:
    """``other()``: a process with a mount namespace of its own, until its stdin is closed."""
    words = apart(tmp_path)

    def start() -> subprocess.Popen[bytes]:
        made = process(*words, "sh", "-c", "echo; read -r line", stdin=-1, stdout=-1)
        assert made.stdout is not None
        made.stdout.readline()
        made.stdout.close()
        return made

    return start


def let_go(one: subprocess.Popen[bytes]) -> None:
    assert one.stdin is not None
    one.stdin.close()
    one.wait()


def test_another_mount_namespace(
    chip: Path, mountpoint: Path, daemon: Callable[[], None], other: Callable[[], subprocess.Popen[bytes]]
) -> None:
    pid, holder = pid_of(mountpoint), other()
    said = flashfs("umount", mountpoint, code=1).stderr
    assert f"{mountpoint} is unmounted here, and still held by process {holder.pid} (sh), in another mount" in said
    assert f": its daemon, process {pid}, writes its checkpoint when that is over" in said
    found = row(chip)
    assert (found["state"], found["pid"], found["ftl"], found["directory"]) == ("held", pid, "pagemap", None)
    assert f"process {holder.pid} (" in found["held_by"][0]
    assert f"{chip}: not mounted here any more, and held by process {holder.pid}" in flashfs("status").stdout
    for command in (("fsck", chip), ("mount", chip, mountpoint), ("smart", chip)):
        said = flashfs(*command, code=1).stderr
        assert f"in use by process {pid}, whose mount is not here any more, and held by process {holder.pid}" in said
    let_go(holder)
    daemon()
    assert "sound" in flashfs("fsck", chip).stdout


def test_down_while_another_has_the_file_system(
    chip: Path, need_loop: None, tmp_path: Path, other: Callable[[], subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    flashfs("up", chip, tmp_path / "files")
    holder = other()
    with monkeypatch.context() as patch:
        patch.setattr(mounts, "DETACH_S", 0.1)
        said = flashfs("down", tmp_path / "files", code=1).stderr
    assert f"its file system is held by process {holder.pid} (sh), in another mount namespace" in said
    let_go(holder)
    flashfs("down", chip)


def test_a_file_that_is_open(
    chip: Path, mountpoint: Path, daemon: Callable[[], None], process: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """After `umount -l`."""
    pid = pid_of(mountpoint)
    with (mountpoint / "disk").open("rb") as disk:
        opener = process("sleep", "60", stdin=disk)
    subprocess.run(["fusermount3", "-u", "-z", str(mountpoint)], check=True)
    found = row(chip)
    if [one.device for one in users.servers() if one.image == chip] == [None]:
        pytest.skip("needs a kernel that tells a daemon's connection (fuse_connection in fdinfo)")
    assert (found["state"], found["pid"], found["held_by"]) == (
        "held", pid, [f"process {opener.pid} (sleep), with a file of it open"],
    )  # fmt: skip
    assert f"in use by process {pid}, whose mount is not here" in flashfs("fsck", chip, code=1).stderr
    opener.kill()
    daemon()


def test_a_bind_mount(chip: Path, mountpoint: Path, daemon: Callable[[], None], tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for a bind mount")
    (bind := tmp_path / "bind").mkdir()
    subprocess.run(["mount", "--bind", str(mountpoint), str(bind)], check=True)
    try:
        said = flashfs("umount", mountpoint, code=1).stderr
        assert f"still held by the mount at {bind}" in said
        assert "is checkpointed" in flashfs("umount", bind).stdout
    finally:
        if mounts.at(bind) is not None:
            subprocess.run(["umount", str(bind)], check=False)


def test_what_ends_it(chip: Path, mountpoint: Path, daemon: Callable[[], None], tmp_path: Path) -> None:
    pid = pid_of(mountpoint)
    line = (
        f"flashfs: {chip}: in use by process {pid}, mounted at {mountpoint}: `flashfs umount {mountpoint}` ends that\n"
    )
    for command in (("mount", chip, tmp_path / "other"), ("fsck", chip), ("clone", chip, tmp_path / "copy")):
        assert flashfs(*command, code=1).stderr == line
    flashfs("umount", mountpoint)


def test_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chip = tmp_path / "chip.nand"
    image.create(chip, Geometry.sized(1 << 20, 1.0, pages_per_block=16))
    opened = open_image(chip)
    try:
        said = flashfs("fsck", chip, code=1).stderr
        assert f"{chip}: in use by process {os.getpid()}, " in said
        assert ", which works on it: try again when that has ended" in said
        assert (row(chip)["state"], row(chip)["pid"]) == ("busy", os.getpid())
        monkeypatch.setattr(image, "holder", lambda _: None)
        assert "in use by another process, which the system does not name" in flashfs("fsck", chip, code=1).stderr
    finally:
        opened.close()


@pytest.mark.parametrize(
    ("alive", "said"), [(True, "still held by something that cannot be seen"), (None, "still writes")]
)
def test_an_end_that_does_not_come(monkeypatch: pytest.MonkeyPatch, alive: bool | None, said: str) -> None:
    """For a mount that is still there, and for one of which that cannot be determined."""
    monkeypatch.setattr(users, "is_alive", lambda _: alive)
    monkeypatch.setattr(users, "holders", lambda *_: [])
    monkeypatch.setattr(unmounting, "BLIND_S", -1.0)
    mount = mounts.Mount(Path("/mnt/ssd"), mounts.FS_TYPE, "/ssd.img", "0:7")
    with pytest.raises(FlashfsError, match=f"^/mnt/ssd is unmounted.*{said}"):
        unmounting._await_end(SimpleNamespace(ended=lambda _: False), mount, 7, 0.0)  # type: ignore[arg-type]


def test_who_cannot_be_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert users.by([]) == "something that cannot be seen from here"
    assert users.is_alive(None) is None
    monkeypatch.setattr(users, "CONNECTIONS", tmp_path)
    assert users.is_alive("0:7") is None
    monkeypatch.setattr(Path, "is_mount", lambda _: True)
    (tmp_path / "7").mkdir()
    assert users.is_alive("0:7") is True
    assert users.is_alive("0:8") is False
