"""A mount as an object, which ends with its `with` block."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flashfs.api.chips import budget
from flashfs.errors import FlashfsError, UsageError
from flashfs.ftl import class_names
from flashfs.ftl_search import SEARCHED
from flashfs.fuse import daemon, mounts


class Mount:
    """A device that is mounted. ``disk`` is the block file, ``pid`` the daemon that serves it, ``size`` its bytes,
    ``summary`` one line about the recovery, ``steps`` a row for each of its steps, ``alarms`` damage that no power cut
    can have left in the image."""

    def __init__(self, request: daemon.Request, mounted: daemon.Mounted, made: bool = False) -> None:
        """``made``: `mount` made the mountpoint, and ``unmount`` removes it. Use ``flashfs.mount`` to get a Mount."""
        self.image = request.image
        self.mountpoint = request.mountpoint
        self.disk = request.mountpoint / "disk"
        self.pid = mounted.pid
        self.ftl = mounted.ftl
        self.size = mounted.size
        self.summary = mounted.summary
        self.steps = mounted.steps
        self.alarms = mounted.alarms
        self._made = made
        self._ended = False

    def __repr__(self) -> str:
        return f"<Mount of {self.image} at {self.mountpoint}: {self.ftl}>"

    def stats(self) -> dict[str, Any]:
        """The counters of the device, as `stats.json` has them."""
        return self._read("stats.json")

    def smart(self) -> dict[str, Any]:
        """The health of the chip, as `smart.json` has it."""
        return self._read("smart.json")

    def config(self) -> dict[str, Any]:
        """How the device was made and mounted, as `config.json` has it."""
        return self._read("config.json")

    def _read(self, name: str) -> dict[str, Any]:
        return mounts.text(self.mountpoint, name)

    def unmount(self) -> None:
        """Unmount; returns when the checkpoint is durable. FlashfsError if data may be lost that a clean unmount would
        keep, as after the daemon died; the mount is gone then too. A second call does nothing."""
        if self._ended:
            return
        done = daemon.unmount(self.mountpoint)
        self._ended = True
        if self._made:
            with suppress(OSError):  # not empty: something else was put there
                self.mountpoint.rmdir()
        if done.warnings:
            raise FlashfsError(f"{self.mountpoint}: {'; '.join(done.warnings)}")

    def __enter__(self) -> Mount:
        return self

    def __exit__(self, *problem: object) -> None:
        try:
            self.unmount()
        except FlashfsError as error:
            if problem[0] is None:
                raise
            warnings.warn(str(error), stacklevel=2)  # what ended the block matters more


def mount(
    image: str | Path,
    mountpoint: str | Path | None = None,
    *,
    ftl: str | type | None = None,
    opt: Mapping[str, Any] | None = None,
    dram: str | int | None = None,
    sync: str = "flush",
    plp: bool = False,
    server: str = "auto",
    realtime: bool = False,
    allow_other: bool = False,
    trust: bool = False,
    fault: Sequence[str] = (),
    log: str | Path | None = None,
    record: str | Path | None = None,
) -> Mount:
    """Mount an image, as `flashfs mount` does; a daemon serves it from a process of its own.

        with flashfs.mount("ssd.img", ftl="slimftl") as ssd:
            with open(ssd.disk, "r+b") as disk:
                disk.write(b"hello")

    The end of the block unmounts and leaves a checkpoint. Without a ``mountpoint``, a temporary folder is used.
    ``fault`` are words that break the chip (docs/crash.md), ``record`` a file for a trace of all requests. FlashfsError
    says what kept the device from being mounted.
    """
    if sync not in ("flush", "none"):
        raise UsageError(f"sync = {sync!r}: use flush or none")
    made = mountpoint is None
    where = Path(tempfile.mkdtemp(prefix="flashfs-")) if mountpoint is None else Path(mountpoint)
    try:
        request = daemon.Request(
            image=_real(image), mountpoint=mounts.absolute(where),
            ftl=None if ftl is None else class_names.name_of(ftl, stored=True), trust=trust,
            options={name: str(value) for name, value in (opt or {}).items()}, dram=budget(dram), sync=sync, plp=plp,
            server=server, realtime=realtime, allow_other=allow_other, log=None if log is None else _real(log),
            faults=tuple(fault), record=None if record is None else _real(record),
        )  # fmt: skip
        return Mount(request, _launched(request), made)
    except BaseException:
        if made:
            with suppress(OSError):
                where.rmdir()
        raise


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))


def _launched(request: daemon.Request) -> daemon.Mounted:
    """Start the daemon; returns its report. A new interpreter starts it: a fork of this process, which may have threads
    (a notebook does), might hang."""
    names = [] if request.ftl is None else [request.ftl]
    done = subprocess.run(
        [sys.executable, "-m", "flashfs.fuse.launcher"],
        input=pickle.dumps((request, SEARCHED, class_names.packed(names))), capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
    )  # fmt: skip
    try:
        said = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.decode(errors="replace").split("\n")
        why = next((line for line in reversed(lines) if line.strip()), f"exit code {done.returncode}")
        raise FlashfsError(f"{request.image}: the daemon could not be started: {why}") from None
    if "error" in said:
        raise daemon.NotMounted(said["error"], said["exit_code"], None)
    return daemon.Mounted(**said["mounted"])
