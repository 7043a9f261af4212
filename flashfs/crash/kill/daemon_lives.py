"""The daemon's lives: one process each, from its mount to its SIGKILL; and the choice of the moment for that."""

from __future__ import annotations

import ctypes
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from flashfs.errors import FlashfsError
from flashfs.fuse import daemon
from flashfs.poll import readable
from nandimg import Cut
from nandimg._faults import SHAPES

PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h
PATIENCE_S = 60.0


class Lost(FlashfsError):
    """Something acknowledged is not there, the file system is damaged, or the daemon ended by itself."""


@contextmanager
def adopting() -> Iterator[None]:
    """Inside, daemons started here become children of this process when their parents end. This process can then learn
    how they died, and no zombie is left on machines whose first process reaps none."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int()
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise FlashfsError(f"crash kill cannot adopt daemons: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


class Life:
    """One daemon, which serves a mount; ``cut`` is its planned cut, or None."""

    def __init__(self, pid: int, cut: Cut | None) -> None:
        self.pid = pid
        self.cut = cut
        self.reaped = False
        self._descriptor = os.pidfd_open(pid)

    def over(self, timeout_s: float = 0.0) -> bool:
        """True once it is dead."""
        return self.reaped or bool(readable(self._descriptor, timeout_s=timeout_s))

    def kill(self) -> None:
        """Send SIGKILL and wait for the end. Lost if it had ended by itself before."""
        if not self.over():
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        self.bury()

    def bury(self) -> None:
        """Wait for the end; Lost unless it was a SIGKILL: the planned cut's or ours."""
        if not self.reaped:
            must_be_killed(self._reap())

    def forget(self) -> None:
        """Wait for the end, however it comes."""
        if not self.reaped:
            self._reap()

    def _reap(self) -> int:
        if not self.over(PATIENCE_S):
            raise FlashfsError(f"the daemon (pid {self.pid}) does not die")
        os.close(self._descriptor)
        self.reaped = True
        return reap(self.pid)


def reap(pid: int) -> int:
    """How a daemon ended: its exit code, or minus its signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def must_be_killed(ended: int) -> None:
    """Lost unless the daemon ended by SIGKILL."""
    if ended != -signal.SIGKILL:
        how = f"by signal {-ended}" if ended < 0 else f"with exit code {ended}"
        raise Lost(f"the daemon ended by itself {how}")


class Moments:
    """When the next life ends: at a flash operation, or at a moment by the clock.

    About half each, because they find different faults: a chosen operation can be torn in the middle, and can lie in
    the recovery or the journal's replay, which take only a few milliseconds; a random moment falls between any two
    instructions, such as the write of a page's data and that of its record.
    """

    AT_RANDOM, EARLY = 0.45, 0.12  #: of all lives: no cut planned; a cut planned before the writer begins
    REACH = 3.0  #: cuts under the writer come up to 10 ** REACH operations after it began

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.before = 0  #: operations of the last life until its writer began: recovery, replay, checks

    def plan(self) -> Cut | None:
        """The cut of the next life; None: it is killed at a random moment."""
        draw, shape = self.rnd.random(), self.rnd.choice(SHAPES)
        if draw < self.AT_RANDOM:
            return None
        if draw < self.AT_RANDOM + self.EARLY and self.before:
            return Cut(self.rnd.randint(1, self.before), shape)
        # Uniform in the logarithm: each order of magnitude of operations is as likely as any other.
        return Cut(self.before + round(10 ** self.rnd.uniform(0, self.REACH)), shape)


def mount(request: daemon.Request, cut: Cut | None) -> Life | None:
    """Start a daemon for ``request``; None if it died of its cut before it was ready."""
    try:
        return Life(daemon.mount(request).pid, cut)
    except daemon.NotMounted as error:
        if cut is None or error.pid is None:
            raise
        must_be_killed(reap(error.pid))
        return None
