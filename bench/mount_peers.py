"""What mount.py compares: each a context manager that yields (the block file, the pids that serve it).

Everything lies in memory: images and raw files in a directory of /dev/shm. Missing programs are reported and left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.common import HERE

SIZE_MIB = 1024
FLASHFS = [sys.executable, "-m", "flashfs.cli"]
START_S = 10
RINGS = Path("/sys/module/fuse/parameters/enable_uring")
LIBFUSE = HERE.parent / ".libfuse"
Serving = tuple[Path, list[int]]
Peer = tuple[Callable[..., contextlib.AbstractContextManager[Serving]], tuple[object, ...], str, str]


def run(*command: object) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def process(*command: object, ready: str = "") -> Iterator[int]:
    """A program that serves until it is unmounted; its pid. ``ready``: the line that it prints when it serves."""
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            if ready and child.stdout.readline() != f"{ready}\n":
                raise SystemExit(f"{command[0]} did not start")
            yield child.pid
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(2)
            child.terminate()


def appears(path: Path, size: int) -> None:
    """Wait until ``path`` is a file of ``size`` bytes."""
    end = time.monotonic() + START_S
    while not path.exists() or path.stat().st_size != size:
        if time.monotonic() > end:
            raise SystemExit(f"{path} did not appear")
        time.sleep(0.05)


@contextlib.contextmanager
def unmounting(path: Path) -> Iterator[None]:
    try:
        yield
    finally:
        subprocess.run(["fusermount3", "-u", path], check=False, capture_output=True)


@contextlib.contextmanager
def rings(wanted: bool) -> Iterator[None]:
    """Switch the kernel's offer of FUSE over io_uring on or off for mounts made in this context."""
    before = RINGS.read_text() if RINGS.exists() else None
    if before is not None:
        RINGS.write_text("Y" if wanted else "N")
    try:
        yield
    finally:
        if before is not None:
            RINGS.write_text(before)


@contextlib.contextmanager
def c_limit(folder: Path, over: str = "read") -> Iterator[Serving]:
    """bench/ram_fuse.c: memory served by libfuse alone: the system's libfuse, or the one with io_uring."""
    program = folder.with_suffix(".bin")
    path = {"PKG_CONFIG_PATH": str(LIBFUSE / "lib/pkgconfig")} if over == "io_uring" else {}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True,
                           env={**os.environ, **path}).stdout.split()  # fmt: skip
    run("cc", "-O2", "-o", program, HERE / "ram_fuse.c", *flags)
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        with rings(over == "io_uring"):
            pid = stack.enter_context(process(program, folder, SIZE_MIB, ready="ready"))
            stack.enter_context(unmounting(folder))
            appears(folder / "disk", SIZE_MIB << 20)
        yield folder / "disk", [pid]


@contextlib.contextmanager
def pyfuse3_ram(folder: Path) -> Iterator[Serving]:
    """bench/ram_pyfuse3.py: memory served by pyfuse3, as by any program that uses it."""
    folder.mkdir()
    command = [sys.executable, HERE / "ram_pyfuse3.py", folder, SIZE_MIB, "--plain"]
    with process(*command, ready="ready") as pid, unmounting(folder):
        yield folder / "disk", [pid]


@contextlib.contextmanager
def flashfs(folder: Path, ftl: str, server: str, *options: object, over: str = "read") -> Iterator[Serving]:
    """This project, as a user would mount it, with more ``options`` of `flashfs mount`."""
    image = folder.with_suffix(".img")
    run(*FLASHFS, "create", image, "--size", f"{SIZE_MIB}M", "--op", "0.15")
    folder.mkdir()
    with rings(over == "io_uring"):
        run(*FLASHFS, "mount", "--ftl", ftl, "--server", server, *options, image, folder)
    try:
        config = json.loads((folder / "config.json").read_text())
        if config["transport"] != over:
            raise SystemExit(f"{folder}: {config['transport']} instead of {over}")
        yield folder / "disk", [config["pid"]]
    finally:
        run(*FLASHFS, "umount", folder)


@contextlib.contextmanager
def qemu(folder: Path) -> Iterator[Serving]:
    """qemu-storage-daemon's FUSE export of a raw file."""
    raw = raw_file(folder)
    disk = folder.with_suffix(".disk")
    disk.touch()
    command = [
        "qemu-storage-daemon", "--blockdev", f"driver=file,node-name=raw,filename={raw}",
        "--export", f"type=fuse,id=disk,node-name=raw,mountpoint={disk},writable=on",
    ]  # fmt: skip
    with process(*command) as pid, unmounting(disk):
        appears(disk, SIZE_MIB << 20)
        yield disk, [pid]
        subprocess.run(["kill", str(pid)], check=True)


@contextlib.contextmanager
def nbdfuse(folder: Path) -> Iterator[Serving]:
    """nbdkit's memory disk, mounted by nbdfuse: two processes and a socket."""
    folder.mkdir()
    socket = folder.with_suffix(".sock")
    with process("nbdkit", "-f", "-U", socket, "memory", f"{SIZE_MIB}M") as server:
        end = time.monotonic() + START_S
        while not socket.exists() and time.monotonic() < end:
            time.sleep(0.05)
        with process("nbdfuse", folder, "--unix", socket) as pid, unmounting(folder):
            appears(folder / "nbd", SIZE_MIB << 20)
            yield folder / "nbd", [pid, server]
        subprocess.run(["kill", str(server)], check=True)


@contextlib.contextmanager
def s3backer(folder: Path) -> Iterator[Serving]:
    """s3backer over a local directory instead of a bucket, all of it in its block cache."""
    folder.mkdir()
    bucket = folder.with_suffix(".bucket")
    bucket.mkdir()
    command = [
        "s3backer", "-f", "--test", f"--size={SIZE_MIB}M", "--blockSize=64k", f"--blockCacheSize={SIZE_MIB * 16}",
        "--filename=disk", "--quiet", bucket, folder,
    ]  # fmt: skip
    with process(*command) as pid, unmounting(folder):
        appears(folder / "disk", SIZE_MIB << 20)
        yield folder / "disk", [pid]


@contextlib.contextmanager
def plain_file(folder: Path) -> Iterator[Serving]:
    """No server at all: a file in memory."""
    yield raw_file(folder), []


def raw_file(folder: Path) -> Path:
    path = folder.with_suffix(".raw")
    with path.open("wb") as file:
        file.truncate(SIZE_MIB << 20)
    return path


#: with `make setup URING=1`, on a kernel that supports it
RING_PEERS: dict[str, Peer] = {
    "C, RAM, io_uring": (partial(c_limit, over="io_uring"), (), "cc", "gcc"),
    "pagemap, io_uring": (partial(flashfs, over="io_uring"), ("pagemap", "native"), "fusermount3", "fuse3"),
    "slimftl, io_uring": (partial(flashfs, over="io_uring"), ("slimftl", "native"), "fusermount3", "fuse3"),
} if LIBFUSE.exists() and RINGS.exists() else {}  # fmt: skip

#: name: (context manager, its arguments, the program that it needs, the Debian packages that have it)
PEERS: dict[str, Peer] = {
    "C, RAM": (c_limit, (), "cc", "gcc"),
    "pagemap, native": (flashfs, ("pagemap", "native"), "fusermount3", "fuse3"),
    "slimftl, native": (flashfs, ("slimftl", "native"), "fusermount3", "fuse3"),
    **RING_PEERS,
    "pagemap, pyfuse3": (flashfs, ("pagemap", "pyfuse3"), "fusermount3", "fuse3"),
    "slimftl, pyfuse3": (flashfs, ("slimftl", "pyfuse3"), "fusermount3", "fuse3"),
    "pyfuse3, RAM": (pyfuse3_ram, (), "fusermount3", "fuse3"),
    "qemu-storage-daemon": (qemu, (), "qemu-storage-daemon", "qemu-system-common"),
    "nbdkit + nbdfuse": (nbdfuse, (), "nbdfuse", "libnbd-bin nbdkit"),
    "s3backer": (s3backer, (), "s3backer", "s3backer"),
    "plain file": (plain_file, (), "losetup", "util-linux"),
}


def available() -> list[str]:
    """The names whose programs are here; says which are left out."""
    here = []
    for name, (_, _, program, package) in PEERS.items():
        if shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin"):
            here.append(name)
        else:
            print(f"left out: {name} (apt-get install {package})", file=sys.stderr)
    return here
