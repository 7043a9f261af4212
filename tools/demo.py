"""The demo: copy a source tree to ext4 on flashfs, cut the power during the copy, check that no acknowledged file is
lost.

Each command is printed as a user would type it. Needs root for the loop device; cleans up also after a
failure.

    demo.py [--ftl NAME] [--preset NAME] [--files N] [--keep]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from flashfs.fuse import mounts

FILES_LEAST = 3_000  # of the standard library; with fewer, installed packages are added
FILES_MOST = 6_000
BYTES_MOST = 250_000_000
CUT_AT = 0.8  # share of the files that is copied when the power goes
FLASHFS = Path(sys.executable).with_name("flashfs")


def say(text: str) -> None:
    print(f"\n\033[1m# {text}\033[0m" if sys.stdout.isatty() else f"\n# {text}", flush=True)


def shell(*words: str | Path, quiet: bool = False) -> str:
    """Print a command, run it, print its output. SystemExit if it fails."""
    command = [str(word) for word in words]
    print(f"$ {shlex.join([Path(command[0]).name, *command[1:]])}", flush=True)
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if not quiet or done.returncode:
        print(done.stdout, end="", flush=True)
    if done.returncode:
        raise SystemExit(f"demo: {Path(command[0]).name} failed: exit code {done.returncode}")
    return done.stdout


def sources(files_most: int = FILES_MOST, bytes_most: int = BYTES_MOST) -> list[tuple[Path, Path]]:
    """[(file, its path in the copy)]: Python's standard library, and installed packages if that has fewer than
    FILES_LEAST files. At most ``files_most`` files and ``bytes_most`` bytes."""
    out: list[tuple[Path, Path]] = []
    size = 0
    for name in ("stdlib", "purelib"):
        top = Path(sysconfig.get_path(name))
        for path in sorted(top.rglob("*")):
            inside = path.relative_to(top)
            if "__pycache__" in inside.parts or (name == "stdlib" and inside.parts[0] in ("site-packages", "config")):
                continue
            if not path.is_file() or path.is_symlink() or not os.access(path, os.R_OK):
                continue
            size += path.stat().st_size
            if len(out) == files_most or size > bytes_most:
                return out
            out.append((path, Path(name) / inside))
        if len(out) >= FILES_LEAST:
            break
    return out


class Copier(threading.Thread):
    """Copies file by file; a file is acknowledged once its fsync has returned. Stops at the first error."""

    def __init__(self, files: list[tuple[Path, Path]], target: Path) -> None:
        super().__init__()
        self._files = files
        self._target = target
        self.acknowledged: dict[Path, str] = {}  # kept in memory, not on the disk under test
        self.error: OSError | None = None
        self.progress: queue.SimpleQueue[int] = queue.SimpleQueue()

    def run(self) -> None:
        try:
            for source, inside in self._files:
                data = source.read_bytes()
                path = self._target / inside
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb", buffering=0) as handle:
                    handle.write(data)
                    os.fsync(handle.fileno())
                self.acknowledged[inside] = hashlib.sha256(data).hexdigest()
                self.progress.put(len(self.acknowledged))
        except OSError as error:
            self.error = error
        self.progress.put(-1)


def copy_and_cut(files: list[tuple[Path, Path]], mountpoint: Path, pid: int) -> dict[Path, str]:
    """Copy until CUT_AT of the files are acknowledged, then kill the daemon while the copy goes on."""
    copier = Copier(files, mountpoint)
    copier.start()
    start = time.monotonic()
    shown = 0
    while True:
        count = copier.progress.get()
        if count < 0:
            raise SystemExit(f"demo: the copy ended before the power went: {copier.error}")
        if count >= shown + 500:
            shown = count
            print(f"  {count} files acknowledged after {time.monotonic() - start:.1f} s", flush=True)
        if count >= CUT_AT * len(files):
            break
    say("pull its power: SIGKILL, in the middle of the copy")
    print(f"$ kill -9 {pid}", flush=True)
    os.kill(pid, signal.SIGKILL)
    copier.join()
    why = copier.error.strerror if copier.error else "nothing"
    print(f"{len(copier.acknowledged)} of {len(files)} files were acknowledged; then the copy got: {why}", flush=True)
    return copier.acknowledged


def daemon_of(image: Path) -> tuple[int, Path]:
    """(pid, mountpoint) of the flashfs mount of ``image``."""
    for mount in mounts.table():
        if (mount.fs_type, mount.source) == (mounts.FS_TYPE, str(image.resolve())):
            return json.loads((mount.mountpoint / "config.json").read_text())["pid"], mount.mountpoint
    raise SystemExit(f"demo: {image} is not mounted")


def loop_of(mountpoint: Path) -> str:
    return subprocess.run(
        ["findmnt", "-n", "-o", "SOURCE", "--mountpoint", mountpoint], check=True, capture_output=True, text=True
    ).stdout.strip()


def verify(acknowledged: dict[Path, str], mountpoint: Path) -> None:
    lost = [
        inside
        for inside, digest in acknowledged.items()
        if not (mountpoint / inside).is_file()
        or hashlib.sha256((mountpoint / inside).read_bytes()).hexdigest() != digest
    ]
    if lost:
        raise SystemExit(f"demo: {len(lost)} acknowledged files are lost or damaged, {lost[0]} the first")
    print(f"all {len(acknowledged)} acknowledged files are there, each with its SHA-256", flush=True)


def first_lpa(path: Path) -> int | None:
    """The page of the disk in which ``path`` begins: ext4's block and the FTL's page are both 4 KiB. None for a file
    without an extent: an empty one."""
    said = subprocess.run(["filefrag", "-b4096", "-v", path], check=True, capture_output=True, text=True).stdout
    for line in said.splitlines():
        number, *columns = line.split(":")
        if number.strip() == "0" and len(columns) > 2:  # ext, logical, physical, length, expected, flags
            if "unknown_loc" in columns[-1] or "inline" in columns[-1]:
                return None  # not on the disk yet, or in its inode
            return int(columns[1].split("..")[0])
    return None


def last_with_a_page(acknowledged: Iterable[Path], mountpoint: Path) -> tuple[Path, int] | None:
    """(file, the page in which it begins) of the last acknowledged file that has one."""
    for inside in reversed(list(acknowledged)):
        lpa = first_lpa(mountpoint / inside)
        if lpa is not None:
            return inside, lpa
    return None


@contextlib.contextmanager
def place(keep: bool) -> Iterator[Path]:
    """A temporary folder; at the end, what is mounted in it is unmounted, and it is removed unless ``keep``."""
    folder = Path(tempfile.mkdtemp(prefix="flashfs-demo-", dir="/var/tmp"))
    try:
        yield folder
    finally:
        os.chdir("/")
        mountpoint = folder / "mnt"
        subprocess.run([FLASHFS, "down", mountpoint], capture_output=True, check=False)
        if keep and not os.path.ismount(mountpoint):
            print(f"\nkept: {folder}")
        elif not os.path.ismount(mountpoint):
            shutil.rmtree(folder)


def demo(folder: Path, ftl: str, preset: str, files_most: int) -> None:
    os.chdir(folder)
    image, mountpoint = Path("ssd.img"), Path("mnt")
    mountpoint.mkdir()
    files = sources(files_most)
    size = sum(path.stat().st_size for path, _ in files)

    say(f"an SSD in a sparse file; {ftl} runs it; ext4 lies on it")
    shell(FLASHFS, "create", image, "--preset", preset)
    shell(FLASHFS, "up", image, mountpoint, "--fs", "ext4", "--ftl", ftl)
    shell("df", "-h", mountpoint)

    say(f"copy {len(files)} source files ({size / 1e6:.0f} MB) onto it, fsync each, remember the SHA-256 of each")
    pid, _ = daemon_of(image)
    acknowledged = copy_and_cut(files, mountpoint, pid)

    say("power is back: mount again, and see how the FTL recovers from the image alone")
    shell(FLASHFS, "up", image, mountpoint, "--fs", "ext4", "-v")

    say("ext4 has replayed its journal; a full check finds nothing to repair")
    loop = loop_of(mountpoint)
    shell("umount", mountpoint)
    shell("e2fsck", "-fn", loop)

    say("and every acknowledged file is whole")
    shell(FLASHFS, "up", image, mountpoint, "--fs", "ext4")
    verify(acknowledged, mountpoint)
    shown = last_with_a_page(acknowledged, mountpoint)
    _, home = daemon_of(image)
    stats = json.loads((home / "stats.json").read_text())
    print(f"since the power cut: host {stats['host']}, flash programs {stats['nand']['program']}")
    shell(FLASHFS, "down", mountpoint)

    say("what lies in the image: its header")
    shell(FLASHFS, "dump", image, "header")
    if shown:
        say(f"and page {shown[1]}, in which {shown[0].name} begins")
        shell(FLASHFS, "dump", image, "lpa", str(shown[1]))
    shell(FLASHFS, "fsck", image)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ftl", default="slimftl")
    parser.add_argument("--preset", default="demo-1g")
    parser.add_argument("--files", type=int, default=FILES_MOST, help="copy at most so many (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the image")
    given = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("demo: needs root for the loop device")
    os.environ["PATH"] = mounts.search_path()
    os.environ["COLUMNS"] = os.environ.get("COLUMNS", "120")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("demo: interrupted"))
    with place(given.keep) as folder:
        demo(folder, given.ftl, given.preset, given.files)
    print("\ndemo: done; nothing is left behind" if not given.keep else "\ndemo: done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
