"""What the plugin does with the interpreter, in nbdkit's process: open the device at the start, close it at the end."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from flashfs.device import Device
from flashfs.ftl_search import SEARCHED
from flashfs.fuse import daemon, host_disk
from flashfs.fuse.nbd_request import Request
from flashfs.fuse.tree import encoded
from flashfs.fuse.users import one_line
from flashfs.nbd._plugin import Export
from flashfs.nbd.asked import Asked

PR_SET_PDEATHSIG = 1  # linux/prctl.h

log = logging.getLogger(__name__)

_serving: _Serving | None = None


class _Serving:
    """A device that is open for nbdkit's clients. ``tell`` writes to the process that started nbdkit, which may have
    gone."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.started_s = time.monotonic()
        with host_disk.in_words(request.image):
            self.device = Device.open(
                request.image, ftl=request.ftl, trust=request.trust, options=request.options, dram=request.dram,
                sync=request.sync, plp=request.plp, readonly=request.read_only,
                front=daemon.front(request.faults, lambda line: self.tell(error=line, exit_code=1), request.image),
            )  # fmt: skip
        try:
            notes = [*daemon.keep_out_of_reclaim(), *self.device.budget_notes()]
            self.device.stay_pageable()
            self.export = Export(self.device, realtime=request.realtime)
            self.export.publish()
            Asked(self.device, self.export, self.texts())
            self.outlive_parent()
            self.announce(notes)
        except BaseException:
            self.device.close(clean=False)
            raise

    def texts(self) -> dict[str, Callable[[], dict[str, Any]]]:
        """What a mount has beside its `disk`."""
        names = ("dram", "sync", "plp", "realtime", "read_only", "options")
        served = {
            "mountpoint": None, "uri": self.request.uri, "server": "nbdkit", "pid": os.getpid(),
            "asked": {name: getattr(self.request, name) for name in names},
        }  # fmt: skip
        disk = self.export.host_disk
        return {
            "stats.json": self.stats,
            "smart.json": lambda: {**self.device.smart(), "host_disk": disk.line()},
            "config.json": lambda: {**self.device.config(), **served},
            "map.json": self.device.block_map,
        }

    def outlive_parent(self) -> None:
        """In the foreground nbdkit ends with the process that started it; in the background it outlives that one."""
        if not self.request.foreground:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)

    def announce(self, notes: list[str]) -> None:
        recovery = self.device.recovery
        self.tell(
            served={
                "pid": os.getpid(),
                "uri": self.request.uri,
                "ftl": self.device.ftl,
                "size": self.device.size,
                "clean": recovery.clean,
                "summary": recovery.summary(),
                "steps": [daemon.row(step) for step in recovery.steps],
                "notes": notes,
                "alarms": recovery.alarms,
                "host_disk": None if self.request.read_only else host_disk.warning(self.request.image),
            }
        )
        self.choose_stderr()
        log.info("%s at %s: %s", self.request.image, self.request.uri, recovery.summary())
        for alarm in recovery.alarms:
            log.warning("%s", alarm)

    def choose_stderr(self) -> None:
        """Redirect stderr. So far it went to the starting process; from here on it goes to that process's stderr, or,
        in the background, to the log."""
        if self.request.foreground:
            os.dup2(self.request.stderr, 2)
        else:
            path = self.request.log
            out = os.open("/dev/null" if path is None else path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            for descriptor in (1, 2):
                os.dup2(out, descriptor)
            os.close(out)
        os.close(self.request.stderr)

    def tell(self, **message: object) -> None:
        tell(self.request, **message)

    def end(self) -> None:
        self.export.close()
        try:
            if self.request.stats is not None:
                if not self.request.read_only:
                    self.device.leave()
                self.request.stats.write_bytes(encoded(self.stats()))
        finally:
            self.device.close(clean=True)
        log.info("%s: %s", self.request.image, "let go" if self.request.read_only else "checkpoint written")

    def stats(self) -> dict[str, Any]:
        uptime_s = round(time.monotonic() - self.started_s, 6)
        return {**self.device.stats(), "server": {**self.export.traffic(), "uptime_s": uptime_s}}


def start(text: str) -> int:
    """Called by embed.h once the socket listens, with the request as JSON: 0, or -1 if the device cannot be opened:
    the process that started nbdkit gets the reason."""
    global _serving
    os.environ.pop("LD_PRELOAD", None)
    request = Request.read(text)
    SEARCHED[:] = request.searched
    daemon.start_log(request.log if request.foreground else None)
    try:
        _serving = _Serving(request)
    except BaseException as error:
        line, code = one_line(error)
        tell(request, error=line, exit_code=code)
        return -1
    return 0


def stop(_: str) -> int:
    """Called by embed.h when no client is left: writes the checkpoint."""
    if _serving is None:
        return 0
    request = _serving.request
    try:
        _serving.end()
    except BaseException as error:
        line, code = one_line(error)
        log.error("%s", line)
        tell(request, error=line, exit_code=code)
        return -1
    finally:
        if request.socket is not None:
            request.socket.unlink(missing_ok=True)
    tell(request, ended=True)
    return 0


def tell(request: Request, **message: object) -> None:
    """Send one line of JSON; its reader may be gone."""
    with suppress(OSError):
        os.write(request.teller, (json.dumps(message) + "\n").encode())
