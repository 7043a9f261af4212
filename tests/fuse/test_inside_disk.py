"""What people make within `disk`: a partition table, and a file system that needs neither root nor a loop device."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from stand import Stand

from flashfs.fuse import mounts

pytestmark = pytest.mark.mount
TIMEOUT_S = 60


def run(*command: object, text: str | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command], input=text, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def need(tool: str, package: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool} (package {package})")


def test_partitions(need_loop: None, stand: Callable[..., Stand]) -> None:
    """partx adds one to the kernel, which may not know such tables itself."""
    need("sfdisk", "fdisk")
    one = stand(64, "pagemap")
    run("sfdisk", "--quiet", one.disk, text="label: gpt\nsize=20M\nsize=30M\n")
    loop = run("losetup", "--find", "--show", one.disk).strip()
    try:
        run("partx", "--add", "--nr", "1:2", loop)
        name = Path(loop).name
        sizes = [int(Path(f"/sys/block/{name}/{name}p{n}/size").read_text()) for n in (1, 2)]
        assert sizes == [20 << 11, 30 << 11]
    finally:
        subprocess.run(["partx", "--delete", loop], capture_output=True)
        mounts.detach(Path(loop))
    one.unmount()


def test_fuse2fs(need_fuse: None, stand: Callable[..., Stand], tmp_path: Path) -> None:
    need("fuse2fs", "fuse2fs")
    one = stand(64, "dftl")
    files = tmp_path / "files"
    files.mkdir()
    run("mkfs.ext4", "-q", "-F", one.disk)
    process = subprocess.Popen(["fuse2fs", "-f", "-o", "fakeroot", one.disk, files], stderr=subprocess.PIPE)
    try:
        wait_for_mount(files, process)
        (files / "a").write_bytes(os.urandom(1 << 20))
        content = (files / "a").read_bytes()
    finally:
        subprocess.run(["fusermount3", "-u", files], capture_output=True)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=TIMEOUT_S)
        process.kill()
        process.communicate()
    run("e2fsck", "-f", "-n", one.disk)
    assert subprocess.run(["debugfs", "-R", "cat /a", one.disk], capture_output=True).stdout == content
    one.unmount()


def wait_for_mount(path: Path, process: subprocess.Popen[bytes]) -> None:
    while not path.is_mount():
        with suppress(subprocess.TimeoutExpired):
            assert process.wait(0.02) is None, process.communicate()
