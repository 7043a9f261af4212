"""One image and what is mounted on it, over any number of the daemon's lives."""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from flashfs.crash.kill.daemon_lives import PATIENCE_S, Life, Lost, Moments, mount
from flashfs.crash.kill.filesystems import MIB, FileSystem
from flashfs.crash.kill.workload import Workload
from flashfs.errors import FlashfsError
from flashfs.ftl import scheme
from flashfs.fuse import daemon, file_systems, loop, mounts
from nandimg import Cut, image

PLANNED_S = 1.0  #: longest wait for a planned cut; then the daemon is killed wherever it is
RECOVERY_KILLED = 0.15  #: share of recoveries that are killed at a random moment
RECOVERY_S = 0.03  #: latest such moment
DYING_S = 1.0  #: longest time from the first error of a dying daemon's mount to its end
COPY_BYTES = 1 << 20
FILL_BYTE = b"\xa5"

libc = ctypes.CDLL(None, use_errno=True)


class Bench:
    """The image, its mounts and its loop device; only what was made here is touched."""

    def __init__(
        self, folder: Path, ftl: str, fs: FileSystem, rnd: random.Random, work: Callable[[Bench], Workload],
        options: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.image = folder / "chip.nand"
        self.crashed = folder / "crashed.nand"  #: as the kill under the writer left it
        self.again = folder / "again.nand"  #: as the last kill in a recovery, or between it and the writer, left it
        self.device, self.root = folder / "device", folder / "files"
        self.folder = folder
        self.log = folder / "daemon.log"
        self.ftl, self.fs, self.rnd, self.options = ftl, fs, rnd, options
        self.moments = Moments(rnd)
        self.life: Life | None = None
        self.loop: Path | None = None
        self.writer: subprocess.Popen[str] | None = None
        self.tries = 0  #: calls of ``settle`` since the last kill under the writer
        self.rounds = self.chosen = self.recoveries_killed = 0
        for made in (self.device, self.root):
            made.mkdir()
        image.create(self.image, fs.geometry)
        self.ballast = rnd.randbytes(fs.ballast * MIB)
        self.work = work(self)

    # --- the rounds

    def begin(self) -> None:
        """Fill the device, make the file system and its ballast, and close everything cleanly."""
        life = self.put_up(None)
        assert life is not None
        with (self.device / "disk").open("r+b", buffering=0) as disk:
            for at in range(0, self.fs.geometry.logical_bytes, MIB):
                disk.write(FILL_BYTE * min(MIB, self.fs.geometry.logical_bytes - at))
            os.fsync(disk.fileno())
        self.attach()
        self.make()
        self.mount_files()
        self.make_ballast()
        self.close(life)

    def make_ballast(self) -> None:
        for i in range(self.fs.ballast):
            (self.root / f"ballast{i}").write_bytes(self.ballast[i * MIB : (i + 1) * MIB])
        self.sync()

    def make(self) -> None:
        """Make the file system."""
        if not self.work.bare:
            file_systems.mkfs(*self.fs.make, str(self.loop), what=f"making {self.fs.name} on {self.loop}")

    def round(self) -> None:
        """Recover and judge what the last kill left, let the writer work, kill."""
        self.tries = 0
        while not self.settle():
            self.take_down()
        self.run_writer()
        self.rounds += 1

    def end(self) -> None:
        """Judge what the last kill left, then check the whole image offline."""
        self.tries = 0
        while not self.settle(last=True):
            self.take_down()
        assert self.life is not None
        self.close(self.life)
        from flashfs import inspect

        problems = inspect.problems(self.image, True, trust=self.ftl)
        if problems:
            raise Lost(f"fsck --data: {problems[0]} ({len(problems)} in all)")

    # --- from a kill to a file system that is judged and durably settled

    def settle(self, last: bool = False) -> bool:
        """Recover, check, judge. False if the daemon died of its planned cut meanwhile: then call it again."""
        copy(self.image, self.again if self.tries else self.crashed)
        self.tries += 1
        if self.rnd.random() < RECOVERY_KILLED:
            self.recover_and_die()
        cut = None if last or not self.work.planned else self.moments.plan()
        try:
            if self.put_up(cut) is None:
                self.recoveries_killed += 1
                return False
            self.attach()
            self.mount_files()
            if last or self.rounds % self.work.checked_every == 0:
                self.check()
            self.work.judge()
            self.sync()
            self.operations()  # raises if the daemon is dead: a sync may return because of its death
            self.work.settled()
            self.work.prepare()
            self.sync()
            self.moments.before = self.operations()
            return True
        except (FlashfsError, OSError, subprocess.SubprocessError):
            if cut is None or self.life is None or not self.life.over(DYING_S):
                raise
            self.recoveries_killed += 1
            return False

    def check(self) -> None:
        """After the journal's replay: the file system's checker must find nothing, and the ballast must be intact."""
        if self.work.bare:
            return
        mounts.umount(self.root)
        command = [*self.fs.check, str(self.loop)]
        done = subprocess.run(command, capture_output=True, text=True, env=mounts.environment())
        if done.returncode != 0:
            said = " ".join((done.stdout + done.stderr).split())[-400:]
            raise Lost(f"{' '.join(self.fs.check)} is not content: {said}")
        self.mount_files()
        for i in range(self.fs.ballast):
            if (self.root / f"ballast{i}").read_bytes() != self.ballast[i * MIB : (i + 1) * MIB]:
                raise Lost(f"ballast{i} is not what was written before the first round")

    def recover_and_die(self) -> None:
        """Run a recovery and kill it at a random moment, unless it ends first."""
        child = os.fork()
        if child == 0:
            try:
                from flashfs.device import Device

                Device.open(self.image, ftl=self.ftl)
            finally:
                os._exit(0)
        time.sleep(self.rnd.uniform(0, RECOVERY_S))
        os.kill(child, signal.SIGKILL)
        self.recoveries_killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

    # --- the writer and its end

    def run_writer(self) -> None:
        life = self.life
        assert life is not None
        self.writer = subprocess.Popen(
            self.work.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=mounts.environment(),
        )  # fmt: skip
        self.wait(life, PATIENCE_S, self.work.began)
        self.wait(life, PLANNED_S if life.cut else self.rnd.uniform(*self.work.life_s))
        # A writer may see errors of a dying daemon shortly before its process has ended.
        by_itself = self.writer.poll() is not None and not life.over(DYING_S if life.cut else 0)
        self.chosen += life.over() and life.cut is not None
        if life.over() and life.cut is None:
            life.bury()
            raise Lost("the daemon was killed, and not by this test")
        life.kill()
        _, said = self.writer.communicate(timeout=PATIENCE_S)
        code, self.writer = self.writer.returncode, None
        self.take_down()
        why = self.work.gave_up(code, said)
        if why is None and by_itself and not self.work.may_end:
            why = f"it ended while the daemon lived: {' '.join(said.split()) or f'exit code {code}'}"
        if why is not None:
            raise Lost(f"the writer gave up: {why}")
        self.work.read_log()

    def wait(self, life: Life, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until ``seconds`` have passed, the daemon or the writer has ended, or ``until()`` is true."""
        end = time.monotonic() + seconds
        assert self.writer is not None
        while self.writer.poll() is None and not until():
            left = end - time.monotonic()
            if left <= 0 or life.over(min(left, 0.003)):
                return

    # --- mounts

    def put_up(self, cut: Cut | None) -> Life | None:
        """Mount the image with a daemon that dies at ``cut``; None if it died in the recovery."""
        options = {"checkpoint_every": self.rnd.choice(("0", "0", "1000", "5000"))}
        options |= {name: str(self.rnd.choice(values)) for name, values in scheme(self.ftl).varied.items()}
        options |= self.options
        sync = self.rnd.choice(("flush", "none", "none"))  # only the daemon is killed: both keep what was flushed
        faults = (f"cut={cut.at}:{cut.shape}",) if cut else ()
        self.life = mount(
            daemon.Request(
                self.image, self.device, self.ftl, options=options, sync=sync, faults=faults, log=self.log
            ),
            cut,
        )  # fmt: skip
        return self.life

    def attach(self) -> None:
        if not self.work.bare:
            self.loop, _ = loop.attach(self.device / "disk")

    def mount_files(self) -> None:
        if not self.work.bare:
            mounts.run("mount", "-t", self.fs.name, str(self.loop), str(self.root), what=f"mounting {self.loop}")

    def sync(self) -> None:
        """Sync this file system (or `disk`), and nothing else of the machine."""
        if self.work.bare:
            with (self.device / "disk").open("r+b", buffering=0) as disk:
                os.fsync(disk.fileno())
            return
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if libc.syncfs(folder) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(self.root))
        finally:
            os.close(folder)

    def operations(self) -> int:
        """Operations of the chip in this life, as a cut counts them; without a fault filter, about as many."""
        stats = json.loads((self.device / "stats.json").read_text())
        return int(stats.get("operations", stats["nand"]["program"] + stats["nand"]["erase"]))

    def writes(self) -> int:
        """Write requests that reached the loop device."""
        assert self.loop is not None
        return int(Path("/sys/block", self.loop.name, "stat").read_text().split()[4])

    def close(self, life: Life) -> None:
        """End cleanly: everything is unmounted, the image checkpointed."""
        if not self.work.bare:
            mounts.umount(self.root)
            assert self.loop is not None
            mounts.detach(self.loop)
        self.loop = self.life = None
        done = daemon.unmount(self.device, PATIENCE_S)
        life.forget()
        if done.warnings:
            raise Lost(f"the daemon's clean end: {done.warnings[0]}")

    def take_down(self) -> None:
        """Remove what a dead daemon left: the file system's mount, the loop device, the daemon's mount."""
        if self.life is not None:
            self.life.bury()
            self.life = None
        if mounts.at(self.root):
            mounts.umount(self.root)
        if self.loop is not None:
            mounts.detach(self.loop)
            self.loop = None
        mounts.clear_corpse(self.device)

    def clean_up(self) -> None:
        """Leave no mount, loop device or process; close the image cleanly if the daemon still lives."""
        with ExitStack() as steps:  # in reverse order, each even if another one raises
            steps.callback(self._bury)
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
                mounts.umount(self.root)
        if mounts.at(self.root):
            mounts.run("umount", "-l", str(self.root), what=f"unmounting {self.root}")

    def _detach(self) -> None:
        if self.loop is not None:
            mounts.detach(self.loop)

    def _unmount_device(self) -> None:
        if mounts.at(self.device) is None:
            return
        if mounts.is_corpse(self.device):
            mounts.release(self.device, lazy=True)
        else:
            daemon.unmount(self.device, PATIENCE_S)

    def _bury(self) -> None:
        if self.life is not None:
            self.life.forget()


def copy(source: Path, target: Path) -> None:
    """Copy a file over another one, which keeps its disk blocks."""
    buffer = memoryview(bytearray(COPY_BYTES))
    target.touch()
    with source.open("rb", buffering=0) as reading, target.open("r+b", buffering=0) as writing:
        while n := reading.readinto(buffer):
            writing.write(buffer[:n])
