"""The kill tier: the real daemon under a file system on a loop device, killed at random moments.

Each round a writer (flashfs.crash.writer) works on the file system, kill -9 ends the daemon under it, and what the
writer had been told was durable must be there once the image is mounted again. All rounds are on one small image,
which so ages: cleaning is always under way. The seed fixes what is written and when it is killed, as far as a clock
can; the image as a kill left it is kept when something was lost.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashfs.crash import writer
from flashfs.crash.campaign import Result
from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import daemon, loop, mounts
from nandimg import Geometry, image

#: 64 MiB that the host sees, and an eighth more: with the ballast there is always something to clean
GEOMETRY = Geometry.sized(64 << 20, op=0.125, pages_per_block=64, channels=2, dies=4)
CHECKERS = {"ext4": ("e2fsprogs", ("e2fsck", "-fn"))}  #: file system -> package, what checks it without a change
BALLAST = 44  #: files of 1 MiB that are written once and stay: cold data that cleaning has to move
LIFE_S = (0.05, 0.8)  #: how long the daemon lives after the writer's first acknowledgement
RECOVERY_S = 0.05  #: a recovery that is killed too lives so long at most
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class KillFailure:
    """What a round lost, and the command that does it again."""

    why: str
    replay: str

    def __str__(self) -> str:
        return f"{self.why}\n    {self.replay}"


class Lost(FlashfsError):
    """Something that was acknowledged is not there, or the file system is not sound."""


@dataclass(slots=True)
class State:
    """What is acknowledged: name -> [generation, size, sha256]."""

    generation: int
    files: dict[str, list[Any]]


def check_machine(fs: str) -> None:
    """Raise unless this machine has all that the tier needs; the error names what is missing."""
    if fs not in CHECKERS:
        raise UsageError(f"--fs {fs}: the kill tier knows {', '.join(CHECKERS)}")
    loop.need_root("crash --kill")
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.access(device, os.R_OK | os.W_OK):
            raise FlashfsError(f"crash --kill needs {device}, which this machine does not let us open")
    package, (checker, *_) = CHECKERS[fs]
    for program, of in (("fusermount3", "fuse3"), ("losetup", "mount"), (f"mkfs.{fs}", package), (checker, package)):
        if shutil.which(program, path=mounts.environment()["PATH"]) is None:
            raise FlashfsError(f"crash --kill needs {program}: install {of}")


def run(
    ftl: str, seed: int, rounds: int, *, fs: str = "ext4", progress: Callable[[int], None] = lambda done: None
) -> Result:
    """``rounds`` kills of one daemon after the other on one image; ends at the first loss. ``progress`` hears how many
    were survived."""
    check_machine(fs)
    result = Result(ftl, "kill", seed)
    started = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="flashfs-kill-"))
    bench = Bench(folder, ftl, seed, fs)
    try:
        try:
            for n in range(rounds):
                bench.round()
                result.cases = result.cuts = n + 1
                progress(n + 1)
            bench.check()
        finally:
            bench.clean_up()
    except (FlashfsError, OSError, subprocess.SubprocessError) as error:
        replay = f"flashfs crash --kill --fs {fs} --ftl {ftl} --seed {seed} --rounds {rounds}"
        why = f"round {result.cuts + 1}: {daemon.one_line(error)[0]} (the image as it was found: {bench.crashed})"
        result.failures.append(KillFailure(why, replay))
    if not result.failures:
        shutil.rmtree(folder)
    result.seconds = time.perf_counter() - started
    return result


class Bench:
    """The image, its mounts and its loop device, all by the ids that were made here."""

    def __init__(self, folder: Path, ftl: str, seed: int, fs: str) -> None:
        self.image = folder / "chip.nand"
        self.crashed = folder / "crashed.nand"
        self.device, self.root = folder / "device", folder / "files"
        self.log, self.state_file = folder / "log", folder / "state.json"
        self.fs = fs
        self.seed = str(seed)
        self.ftl = ftl
        self.rnd = random.Random(f"kill {ftl} {seed}")
        self.state = State(0, {})
        self.pid = 0
        self.loop: Path | None = None
        self.writer: subprocess.Popen[str] | None = None
        for made in (self.device, self.root):
            made.mkdir()
        image.create(self.image, GEOMETRY)

    # --- a round

    def round(self) -> None:
        """Mount and check what the last kill left, let the writer work, kill."""
        if self.log.exists():
            self.check()
        else:
            self.begin()
        self.state_file.write_text(json.dumps({"generation": self.state.generation, "files": self.state.files}))
        self.log.unlink(missing_ok=True)
        self.writer = subprocess.Popen(
            [sys.executable, writer.__file__, str(self.root), str(self.log), self.seed, str(self.state_file)],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.wait_for_first()
        time.sleep(self.rnd.uniform(*LIFE_S))
        alive = self.writer.poll() is None
        self.kill(self.pid)
        self.pid = 0
        _, said = self.writer.communicate(timeout=PATIENCE_S)
        code, self.writer = self.writer.returncode, None
        self.take_down()
        if not alive or code != 0:
            raise Lost(f"the writer gave up before the kill: {' '.join(said.split()) or f'exit code {code}'}")

    def begin(self) -> None:
        """Make the file system and its ballast."""
        self.put_up()
        for i in range(BALLAST):
            data = writer.content(self.seed, -i, 1 << 20)
            with (self.root / f"ballast{i}").open("wb") as file:
                file.write(data)
            self.state.files[f"ballast{i}"] = [-i, len(data), hashlib.sha256(data).hexdigest()]
        os.sync()

    def wait_for_first(self) -> None:
        """Until a change was acknowledged: before that, there is nothing to lose."""
        end = time.monotonic() + PATIENCE_S
        assert self.writer is not None
        while not (self.log.exists() and b'"done"' in self.log.read_bytes()):
            if self.writer.poll() is not None or time.monotonic() > end:
                return
            time.sleep(0.002)

    def check(self) -> None:
        """After a kill: recover (now and then killed in the midst of it), replay the journal, check, read all."""
        shutil.copyfile(self.image, self.crashed)
        while self.rnd.random() < 0.25:
            self.recover_and_die()
        self.put_up()
        mounts.run("umount", str(self.root), what=f"unmounting {self.root}")
        _, check = CHECKERS[self.fs]
        done = subprocess.run([*check, str(self.loop)], capture_output=True, text=True, env=mounts.environment())
        if done.returncode != 0:
            raise Lost(f"{' '.join(check)} is not content: {' '.join(done.stdout.split())[-400:]}")
        mounts.run("mount", "-t", self.fs, str(self.loop), str(self.root), what=f"mounting {self.loop}")
        self.judge()

    # --- what was acknowledged must be there

    def judge(self) -> None:
        """Every file as acknowledged; the one that was being changed old or new."""
        pending = self.read_log()
        touched = {pending["name"], pending.get("to")} if pending else set()
        found = {entry.name for entry in self.root.iterdir() if entry.is_file()}
        for name, record in self.state.files.items():
            if name not in touched:
                self.must_be(name, record)
        for name in found - set(self.state.files) - touched:
            if not name.startswith(("noise", "tmp")):
                raise Lost(f"{name} is back: its removal was acknowledged")
        if pending:
            self.judge_pending(pending)
        self.state.files = {name: record for name, record in self.state.files.items() if (self.root / name).exists()}
        os.sync()

    def read_log(self) -> dict[str, Any] | None:
        """Take over what was acknowledged; returns the change that was under way."""
        pending = None
        for line in writer.log_lines(self.log) if self.log.exists() else ():
            if "kind" in line:
                pending = line
                continue
            pending = None
            self.state.generation = line["done"]
            if line["gone"]:
                del self.state.files[line["gone"]]
            if line["name"]:
                self.state.files[line["name"]] = line["record"]
        self.state.generation += 1  # the one under way is never made again
        return pending

    def must_be(self, name: str, record: list[Any]) -> None:
        try:
            data = (self.root / name).read_bytes()
        except OSError as error:
            raise Lost(f"{name} (generation {record[0]}, acknowledged): {error.strerror}") from None
        if len(data) != record[1] or hashlib.sha256(data).hexdigest() != record[2]:
            raise Lost(f"{name} (generation {record[0]}, acknowledged) {self.describe(data, record)}")

    def describe(self, data: bytes, record: list[Any]) -> str:
        """How a file differs from what was acknowledged."""
        meant = writer.content(self.seed, record[0], record[1])
        bad = [i for i, (a, b) in enumerate(zip(blocks(data), blocks(meant), strict=False)) if a != b]
        zeros = sum(not any(blocks(data)[i]) for i in bad)
        return f"has {len(data)} of {record[1]} bytes, {len(bad)} blocks differ from {bad[:1]} on, {zeros} are zeros"

    def judge_pending(self, change: dict[str, Any]) -> None:
        """The change that was under way: before or after; made whole again for the next round."""
        name, kind = change["name"], change["kind"]
        old, new = self.state.files.get(name), change.get("meant")
        path = self.root / name
        if kind == "rename":
            there = [n for n in (name, change["to"]) if (self.root / n).exists() and self.is_it(n, old)]
            if len(there) != 1:
                raise Lost(f"{name}, being renamed to {change['to']}: is at {there or 'neither place'}")
            if there == [name]:
                if change["to"] in self.state.files:
                    self.must_be(change["to"], self.state.files[change["to"]])
            else:
                self.state.files[change["to"]] = self.state.files.pop(name)
            return
        if not path.exists():
            if kind in ("overwrite", "replace"):
                raise Lost(f"{name} (generation {old[0] if old else 0}) is gone: it was only being {kind}d")
            return
        if kind == "delete" or (kind in ("overwrite", "replace") and self.is_it(name, old)):
            self.must_be(name, old or [])
        elif self.is_it(name, new):
            self.state.files[name] = new or []
        elif kind == "replace":
            raise Lost(f"{name}, being replaced: neither old nor new")
        else:
            self.judge_blocks(path, old, new or [])
            path.unlink()

    def is_it(self, name: str, record: list[Any] | None) -> bool:
        data = (self.root / name).read_bytes()
        return record is not None and hashlib.sha256(data).hexdigest() == record[2]

    def judge_blocks(self, path: Path, old: list[Any] | None, new: list[Any]) -> None:
        """A file being written in place: each block is the old one (zeros if there was none) or the new one."""
        data = path.read_bytes()
        before = writer.content(self.seed, old[0], old[1]) if old else bytes(new[1])
        after = writer.content(self.seed, new[0], new[1])
        for i, block in enumerate(blocks(data)):
            if block not in (blocks(before)[i], blocks(after)[i], blocks(after)[i][: len(block)]):
                raise Lost(f"{path.name}, being written: block {i} is neither old nor new")

    # --- mounts

    def put_up(self) -> None:
        """flashfs mount, loop device, file system (made if blank)."""
        options = {"checkpoint_every": self.rnd.choice(("0", "0", "1000", "5000"))}
        sync = self.rnd.choice(("flush", "none", "none"))  # who is killed is the daemon: either keeps what was flushed
        request = daemon.Request(self.image, self.device, self.ftl, options=options, sync=sync)
        self.pid = daemon.mount(request).pid
        self.loop, _ = loop.attach(self.device / "disk")
        loop.make_if_blank(self.loop, self.fs)
        mounts.run("mount", "-t", self.fs, str(self.loop), str(self.root), what=f"mounting {self.loop}")

    def recover_and_die(self) -> None:
        """A recovery that is killed as well."""
        child = os.fork()
        if child == 0:
            try:
                from flashfs.device import Device

                Device.open(self.image, ftl=self.ftl)
            finally:
                os._exit(0)
        time.sleep(self.rnd.uniform(0, RECOVERY_S))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def kill(self, pid: int) -> None:
        """SIGKILL, and wait until it is gone."""
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            if not select.select([descriptor], [], [], PATIENCE_S)[0]:
                raise FlashfsError(f"the daemon (pid {pid}) does not die")
        finally:
            os.close(descriptor)

    def take_down(self) -> None:
        """The corpse: its file system, its loop device, its mount."""
        if mounts.at(self.root):
            mounts.run("umount", str(self.root), what=f"unmounting {self.root}")
        if self.loop is not None:
            mounts.detach(self.loop)
            self.loop = None
        mounts.clear_corpse(self.device)

    def clean_up(self) -> None:
        """Whatever happened: nothing of ours is left, and the image is closed cleanly if the daemon still lives."""
        with ExitStack() as steps:  # in reverse order, each whatever the others did
            steps.callback(self._unmount_device)
            steps.callback(self._detach)
            steps.callback(self._unmount_root)
            steps.callback(self._end_writer)

    def _end_writer(self) -> None:
        if self.writer is not None:
            self.writer.kill()
            self.writer.communicate()

    def _unmount_root(self) -> None:
        if mounts.at(self.root):
            with suppress(FlashfsError):
                mounts.run("umount", str(self.root), what=f"unmounting {self.root}")
        if mounts.at(self.root):
            mounts.run("umount", "-l", str(self.root), what=f"unmounting {self.root}")

    def _detach(self) -> None:
        if self.loop is not None:
            mounts.detach(self.loop)

    def _unmount_device(self) -> None:
        if mounts.at(self.device) is None:
            return
        if mounts.is_corpse(self.device):
            mounts.clear_corpse(self.device)
        else:
            daemon.unmount(self.device, PATIENCE_S)


def blocks(data: bytes) -> list[bytes]:
    """In the units in which a page is old or new."""
    return [data[at : at + writer.BLOCK_BYTES] for at in range(0, len(data), writer.BLOCK_BYTES)]
