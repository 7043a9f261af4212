"""FUSE requests that no kernel makes, against the handlers; and strange system calls against a real mount."""

from __future__ import annotations

import errno
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import hypothesis.strategies as st
import pytest
from fuzz_requests import session
from hypothesis import given, settings
from schemes import FEW

from flashfs.fuse import commands, mounts
from nandimg import PRESETS, create


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_sessions(seed: int) -> None:
    assert session(f"suite/{seed}").total() > 100


@pytest.fixture(params=FEW)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A mount of a small image in a process of its own, taken away again however the test ended."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None:
        pytest.skip("needs /dev/fuse and fusermount3")
    image, place = tmp_path / "image", tmp_path / "mnt"
    create(image, PRESETS["tiny-24d"].geometry)
    place.mkdir()
    flashfs = [sys.executable, "-m", "flashfs.cli"]
    said = subprocess.run(
        [*flashfs, "mount", "--json", "--ftl", request.param, image, place], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    daemon = os.pidfd_open(json.loads(said.stdout)["pid"])
    try:
        yield place / "disk"
        subprocess.run([*flashfs, "umount", place], check=True, capture_output=True)
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(daemon, signal.SIGKILL)
        os.close(daemon)
        if mounts.at(place) is not None:
            subprocess.run(["fusermount3", "-u", "-z", str(place)], check=False)


class Calls:
    """System calls on `disk`, and the bytes that it must hold."""

    def __init__(self, disk: Path, seed: int) -> None:
        self.rnd, self.disk = Random(seed), disk
        self.fd = os.open(disk, os.O_RDWR)
        self.size = disk.stat().st_size
        self.model = bytearray(self.size)

    def span(self) -> tuple[int, int]:
        length = self.rnd.choice((0, 1, 511, 512, 513, 4096, 4097, 9000, self.rnd.randrange(30_000)))
        return self.rnd.randrange(self.size + 600), length

    def pwrite(self) -> None:
        at, n = self.span()
        data = self.rnd.randbytes(n)
        room = max(0, min(n, self.size - at))
        if n and not room:
            refused(lambda: os.pwrite(self.fd, data, at), errno.ENOSPC)
            return
        assert os.pwrite(self.fd, data, at) == room
        self.model[at : at + room] = data[:room]

    def pread(self) -> None:
        at, n = self.span()
        assert os.pread(self.fd, n, at) == self.model[at : at + n]

    def vectors(self) -> None:
        at = self.rnd.randrange(self.size - 3000)
        parts = [self.rnd.randbytes(self.rnd.randrange(1, 900)) for _ in range(3)]
        assert os.pwritev(self.fd, parts, at) == sum(map(len, parts))
        self.model[at : at + sum(map(len, parts))] = b"".join(parts)
        into = [bytearray(100), bytearray(1000)]
        assert os.preadv(self.fd, into, at) == 1100
        assert b"".join(into) == self.model[at : at + 1100]

    def append(self) -> None:
        """The end of an SSD is its end."""
        fd = os.open(self.disk, os.O_WRONLY | os.O_APPEND)
        try:
            refused(lambda: os.write(fd, b"x"), errno.ENOSPC)
        finally:
            os.close(fd)

    def truncate(self) -> None:
        refused(lambda: os.ftruncate(self.fd, self.rnd.choice((self.size + 1, 2**40))), errno.EPERM)
        os.ftruncate(self.fd, self.size)
        size = self.rnd.choice((self.size - 1, self.rnd.randrange(self.size)))
        os.ftruncate(self.fd, size)
        self.model[size:] = bytes(self.size - size)

    def fallocate(self) -> None:
        with suppress(OSError):
            os.posix_fallocate(self.fd, 0, self.size)
        with suppress(OSError):
            os.posix_fallocate(self.fd, self.size, 1)

    def map(self) -> None:
        with mmap.mmap(self.fd, self.size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as view:
            at = self.rnd.randrange(self.size - 100)
            assert view[at : at + 100] == self.model[at : at + 100]

    def remap(self) -> None:
        """By the device's own command, and by copies; beyond the end both are refused or cut."""
        (source, length), target = self.span(), self.rnd.randrange(self.size + 600)
        move = self.rnd.random() < 0.3
        if max(source, target) + length > self.size:
            refused(lambda: commands.remap(self.fd, source, target, length, move), errno.EINVAL)
            return
        commands.remap(self.fd, source, target, length, move)
        moved = self.model[source : source + length]
        if move:
            self.model[source : source + length] = bytes(length)
        self.model[target : target + length] = moved

    def copy(self) -> None:
        (source, length), target = self.span(), self.rnd.randrange(self.size + 600)
        room = max(0, min(length, self.size - source))
        if target >= self.size and length and room:
            refused(lambda: os.copy_file_range(self.fd, self.fd, length, source, target), errno.ENOSPC)
        elif abs(source - target) < room:
            refused(lambda: os.copy_file_range(self.fd, self.fd, length, source, target), errno.EINVAL)
        elif target < self.size:
            done = os.copy_file_range(self.fd, self.fd, length, source, target)
            assert done == max(0, min(room, self.size - target))
            self.model[target : target + done] = self.model[source : source + done]

    def send(self) -> None:
        reader, writer = os.pipe()
        try:
            at = self.rnd.randrange(self.size - 4096)
            n = os.sendfile(writer, self.fd, at, 4096)
            assert os.read(reader, n) == self.model[at : at + n]
        finally:
            os.close(reader)
            os.close(writer)

    def seek(self) -> None:
        os.lseek(self.fd, self.rnd.randrange(self.size), os.SEEK_SET)
        refused(lambda: os.lseek(self.fd, -1, os.SEEK_SET), errno.EINVAL)
        assert os.lseek(self.fd, 0, os.SEEK_END) == self.size

    def names(self) -> None:
        """Nothing here is renamed, removed, linked, made or given away."""
        folder, other = self.disk.parent, self.disk.parent / "other"
        denied = (errno.ENOSYS, errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENOTSUP, errno.ENOTDIR)
        tries: list[Callable[[], object]] = [
            lambda: self.disk.rename(other), self.disk.unlink, lambda: os.link(self.disk, other), folder.rmdir,
            lambda: other.symlink_to("disk"), other.mkdir, other.touch, lambda: self.disk.chmod(0o777),
            lambda: os.mkfifo(other), lambda: os.chown(self.disk, 1, 1), (folder / "disk" / "x").touch,
            lambda: os.setxattr(self.disk, "user.x", b"y"), lambda: os.getxattr(self.disk, "user.x"),
            lambda: (folder / ("n" * 255)).stat(), lambda: os.stat(os.fsencode(folder) + b"/\xff\xfe\n"),  # noqa: PTH116
        ]  # fmt: skip
        refused(self.rnd.choice(tries), *denied, errno.EBUSY)
        texts = ["config.json", "control", "map.json", "smart.json", "stats.json"]
        assert sorted(one.name for one in folder.iterdir()) == sorted(["disk", *texts])

    def sync(self) -> None:
        self.rnd.choice((os.fsync, os.fdatasync))(self.fd)

    def reopen(self) -> None:
        flags = self.rnd.choice((os.O_RDWR, os.O_RDWR | os.O_SYNC, os.O_RDWR | os.O_DIRECT))
        os.close(self.fd)
        self.fd = os.open(self.disk, flags)
        if flags & os.O_DIRECT:  # any alignment here: FUSE asks for none
            os.close(self.fd)
            self.fd = os.open(self.disk, os.O_RDWR)


def refused(call: Callable[[], object], *codes: int) -> None:
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno in codes, caught.value


@pytest.mark.mount
def test_system_calls_on_a_mount(disk: Path) -> None:
    calls = Calls(disk, 7)
    kinds = [calls.pwrite] * 8 + [calls.pread] * 6 + [
        calls.vectors, calls.append, calls.truncate, calls.fallocate, calls.map, calls.send, calls.seek, calls.names,
        calls.names, calls.sync, calls.reopen, calls.remap, calls.copy,
    ]  # fmt: skip
    try:
        for _ in range(1500):
            calls.rnd.choice(kinds)()
        assert os.pread(calls.fd, calls.size + 10, 0) == calls.model
    finally:
        os.close(calls.fd)


@pytest.mark.mount
def test_a_mount_is_private(disk: Path) -> None:
    """No other user, root among them, sees into it, unless --allow-other was given."""
    lines = os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).split("\n")
    info = next(line for line in lines if str(disk.parent) in line)
    assert "allow_other" not in info
    if os.geteuid() != 0:
        pytest.skip("needs root, to ask as somebody else")
    asked = subprocess.run(
        ["cat", str(disk)], user=65534, group=65534, extra_groups=[], capture_output=True, text=True
    )  # fmt: skip
    assert asked.returncode != 0
    assert "Permission denied" in asked.stderr
