"""The life of a mount: from an image and a directory to a process that serves it, and back to a checkpoint.

`mount` forks before anything is opened, so that locks, maps and threads belong to the process that uses them. The
parent waits on a pipe until `disk` answers, or until the child says in one line why it never will.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import asked, asking, cuts, host_disk, make_server, mounts, users
from flashfs.fuse.users import one_line
from flashfs.poll import readable

if TYPE_CHECKING:
    import trio

    from flashfs.device import Device
    from flashfs.fuse.tree import About
    from flashfs.fuse.write_log import Tape
    from flashfs.replay.trace_writer import Recording

log = logging.getLogger(__name__)

PR_SET_IO_FLUSHER = 57  # linux/prctl.h
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4  # sys/mman.h


@dataclass(frozen=True)
class Request:
    """What to mount and how. Paths are absolute; ``dram`` in bytes, None for the scheme's own choice."""

    image: Path
    mountpoint: Path
    ftl: str | None = None
    trust: bool = False  # whatever FTL the image names may be imported
    options: dict[str, str] = field(default_factory=dict)
    dram: int | None = None
    sync: str = "flush"
    plp: bool = False
    server: str = "auto"
    realtime: bool = False
    allow_other: bool = False
    log: Path | None = None
    faults: tuple[str, ...] = ()  # the words of --fault: what goes wrong with the chip, and when
    record: Path | None = None  # where a trace of all requests goes
    tape: Path | None = None  # where all that changes the device goes, with contents: instead of a trace


@dataclass(frozen=True)
class Mounted:
    """What a mount says once `disk` answers. ``steps`` are the recovery's, one row each; ``notes`` is for -v."""

    pid: int
    ftl: str
    size: int
    server: str
    transport: str  # io_uring, or read: of /dev/fuse
    clean: bool
    summary: str
    steps: list[dict[str, Any]]
    cleared: list[str]
    notes: list[str]
    alarms: list[str]  # what no power cut can have left in the image
    host_disk: str | None = None  # if there is no room for what will be written


class NotMounted(FlashfsError):
    """The child's error, in the parent: the same line and the same exit code. ``pid`` is the child's, if known."""

    def __init__(self, line: str, exit_code: int, pid: int | None) -> None:
        super().__init__(line)
        self.exit_code = exit_code
        self.pid = pid


class _Parent:
    """The process that waits for the mount, at the other end of a pipe. After ``let_go``, messages are dropped."""

    def __init__(self, writer: int) -> None:
        self._writer: int | None = writer

    def tell(self, **message: Any) -> None:
        if self._writer is not None:
            os.write(self._writer, (json.dumps(message) + "\n").encode())

    def let_go(self) -> None:
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None


# ---- mount ----


def mount(request: Request, waiting: Callable[[], AbstractContextManager[None]] = nullcontext) -> Mounted:
    """Mount in a process of its own and return once `disk` answers; raises what kept it from that.

    ``waiting()`` is entered meanwhile, after the fork, so that it may start threads.
    """
    with prepared(request) as (cleared, let_go):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _become_daemon(request, reader, writer, cleared, let_go)
        os.close(writer)
        os.waitpid(child, 0)
        with waiting():
            return _await_child(request, reader)


def serve(request: Request, ready: Callable[[Mounted], None]) -> None:
    """Mount in this process: calls ``ready`` once `disk` answers, returns when unmounted and checkpointed."""
    with prepared(request) as (cleared, let_go):

        def mounted(found: Mounted) -> None:
            let_go()
            ready(found)

        _serve(request, cleared, mounted)


@contextmanager
def prepared(request: Request) -> Iterator[tuple[list[str], Callable[[], None]]]:
    """Check the request, clear away the corpse of an earlier mount (yields what was done), and check the mountpoint. A
    mountpoint that was made here is removed again if the mount inside fails. No other process mounts there until the
    function that is yielded too is called: call it once this one has."""
    _check(request)
    cleared = mounts.clear_corpse(request.mountpoint)
    made = mounts.check_mountpoint(request.mountpoint)
    try:
        with mounts.turn(request.mountpoint) as let_go:
            yield cleared, let_go
    except BaseException:
        if made:
            with suppress(OSError):  # it is a mountpoint all the same, or not empty
                request.mountpoint.rmdir()
        raise


def _check(request: Request) -> None:
    mounts.check_fuse()
    if request.faults:
        from flashfs.fuse import fault_words

        fault_words.parse(request.faults)  # a word that does not fit is the caller's error, not the daemon's
    if request.record is not None:
        from flashfs.replay import trace_writer

        trace_writer.check(request.record)
    if request.tape is not None:
        from flashfs.fuse import write_log

        write_log.check(request.tape)
    if request.log is not None and not request.log.parent.is_dir():
        raise UsageError(f"--log {request.log}: there is no directory {request.log.parent}")
    mounts.require_other("--log", request.log, request.image)


def _become_daemon(
    request: Request, reader: int, writer: int, cleared: list[str], let_go: Callable[[], None]
) -> NoReturn:
    """The child: forks once more, so that the daemon is an orphan and can never get a terminal."""
    code = 1
    parent = _Parent(writer)
    try:
        os.close(reader)
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        parent.tell(pid=os.getpid())
        os.chdir("/")
        _redirect(request.log)

        def ready(mounted: Mounted) -> None:
            let_go()
            parent.tell(mounted=vars(mounted))
            parent.let_go()

        def power_goes(line: str) -> None:
            parent.tell(error=line, exit_code=1)

        try:
            _serve(request, cleared, ready, power_goes)
            code = 0
        except BaseException as error:
            line, code = one_line(error)
            log.error("%s", line)
            with suppress(OSError):  # the parent may be gone
                parent.tell(error=line, exit_code=code)
    finally:
        os._exit(code)


def _redirect(path: Path | None) -> None:
    """Leave the terminal. The log gets what is written to stdout and stderr."""
    null = os.open("/dev/null", os.O_RDWR)
    out = null if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    start_log()


def start_log(path: Path | None = None) -> None:
    """One line an event, on stderr or appended to ``path``."""
    handler = logging.StreamHandler() if path is None else logging.FileHandler(path, errors="backslashreplace")
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, force=True, handlers=[handler]
    )


def _await_child(request: Request, reader: int) -> Mounted:
    pid = None
    try:
        with os.fdopen(reader) as lines:
            for line in lines:
                message = json.loads(line)
                if "mounted" in message:
                    return Mounted(**message["mounted"])
                if "error" in message:
                    raise NotMounted(message["error"], message["exit_code"], pid)
                pid = message["pid"]
    except KeyboardInterrupt:
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        raise
    raise NotMounted(f"the daemon for {request.image} died before it was ready: --foreground shows more", 1, pid)


def _serve(
    request: Request,
    cleared: list[str],
    ready: Callable[[Mounted], None],
    power_goes: Callable[[str], None] = lambda line: None,
) -> None:
    try:
        _open_and_serve(request, cleared, ready, power_goes)
    except BaseException as error:
        _last_words(one_line(error)[0])
        raise
    _last_words("")


def _open_and_serve(
    request: Request, cleared: list[str], ready: Callable[[Mounted], None], power_goes: Callable[[str], None]
) -> None:
    # Here, because only a process that serves needs them: `umount` starts in half the time.
    import trio

    from flashfs.device import Device
    from flashfs.fuse.tree import About

    with host_disk.in_words(request.image):
        written_ns = _written_ns(request.image)
        device = Device.open(
            request.image,
            ftl=request.ftl,
            trust=request.trust,
            options=request.options,
            dram=request.dram,
            sync=request.sync,
            plp=request.plp,
            front=front(request.faults, power_goes, request.image),
        )
    cuts.forget(request.image)
    answered = False

    def answers(mounted: Mounted) -> None:
        nonlocal answered
        answered = True
        ready(mounted)

    try:
        notes = [*keep_out_of_reclaim(), *device.budget_notes()]
        device.stay_pageable()
        with _recorder(request, device) as recorder:
            changed_ns = written_ns if device.recovery.clean else None  # a crash may have undone writes that were read
            about = About(changed_ns, asked.of(request))
            trio.run(_until_unmounted, request, device, recorder, about, cleared, notes, answers)
    finally:
        # A second SIGTERM must not cut the checkpoint short; SIGKILL does.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if answered or not device.give_back():
            device.close(clean=True)  # also if the server failed: that fault was not the device's
    log.info("unmounted %s: checkpoint written", request.mountpoint)


def _written_ns(image: Path) -> int | None:
    """When the image was last written, in ns since the epoch; None if it cannot be asked."""
    try:
        return image.stat().st_mtime_ns
    except OSError:
        return None


@contextmanager
def _recorder(request: Request, device: Device) -> Iterator[Recording | Tape | None]:
    """The recording that was asked for, closed at the end. A mount that fails removes its empty trace, which would
    stop the next mount."""
    if request.tape is not None:
        from flashfs.fuse.write_log import Tape

        with closing(Tape(request.tape, device.size)) as tape:
            yield tape
        return
    if request.record is None:
        yield None
        return
    from flashfs.replay import trace_writer

    recorder = trace_writer.open_recording(request.record, device)
    try:
        yield recorder
    except BaseException:
        if recorder.noted == 0:
            request.record.unlink(missing_ok=True)
        raise
    finally:
        recorder.close()


def front(faults: tuple[str, ...], power_goes: Callable[[str], None], image: Path) -> Any:
    """The filter between the device and the chip of ``image`` that makes ``faults``; None without faults. A power cut
    kills this process."""
    if not faults:
        return None
    from flashfs.fuse import fault_words

    def die(operation: int, shape: str) -> None:
        line = f"power cut at flash operation {operation} ({shape})"
        log.error("%s", line)
        with suppress(OSError):  # the process that reads it may be gone
            power_goes(line)
        cuts.note(image)
        os.kill(os.getpid(), signal.SIGKILL)  # so that nothing runs after it: no other thread, no exit handler

    return fault_words.parse(faults).front(die)


def _last_words(error: str) -> None:
    """Send the error, or "", to an `umount` that waits: by a datagram, because the daemon is not its child, and it
    cannot get the exit code."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(os.fsencode(error), words_address(os.getpid()))


def words_address(pid: int) -> str:
    """Where the last words of the daemon ``pid`` go: a name in Linux's abstract space, so that no file is left."""
    return f"\0flashfs-umount-{pid}"


async def _until_unmounted(
    request: Request,
    device: Device,
    recorder: Recording | Tape | None,
    about: About,
    cleared: list[str],
    notes: list[str],
    ready: Callable[[Mounted], None],
) -> None:
    import trio

    server = make_server(
        request.server, device, request.mountpoint,
        allow_other=request.allow_other, realtime=request.realtime, recorder=recorder, about=about,
    )  # fmt: skip
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def stop_on_signal() -> None:
                async for number in signals:
                    log.info("%s: unmounting %s", signal.Signals(number).name, request.mountpoint)
                    users = mounts.loops_of(request.mountpoint / "disk", own.device if own is not None else None)
                    if users:
                        log.warning("disk is still used by %s: what it has not written is lost", users[0])
                    server.request_stop()

            async def serve_until_end(*, task_status: trio.TaskStatus[None]) -> None:
                await server.run(task_status=task_status)
                nursery.cancel_scope.cancel()

            own: mounts.Mount | None = None
            nursery.start_soon(stop_on_signal)
            await nursery.start(serve_until_end)
            own = mounts.at(request.mountpoint)
            recovery = device.recovery
            summary = recovery.summary()
            log.info("%s at %s: %s", request.image, request.mountpoint, summary)
            for alarm in recovery.alarms:
                log.warning("%s", alarm)
            mounted = Mounted(
                pid=os.getpid(),
                ftl=device.ftl,
                size=device.size,
                server=server.name,
                transport=server.transport,
                clean=recovery.clean,
                summary=summary,
                steps=[row(step) for step in recovery.steps],
                cleared=cleared,
                notes=notes,
                alarms=recovery.alarms,
                host_disk=host_disk.warning(request.image),
            )
            ready(mounted)


def row(step: Any) -> dict[str, Any]:
    """A step of the recovery as a row of the table that -v shows."""
    names = ("name", "note", "spare_reads", "reads", "programs", "virtual_us", "wall_ms")
    return {name: getattr(step, name) for name in names}


def keep_out_of_reclaim() -> list[str]:
    """Best effort: this process serves a disk, so memory reclaim in it must not wait for that disk.

    PR_SET_IO_FLUSHER says so to the kernel; mlockall keeps touched pages in memory. The image's mappings, which may be
    as large as the image, are exempted by ``Device.stay_pageable``. Both may be refused to an ordinary user: returns
    one note then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    refused = []
    if libc.prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0:
        refused.append(f"PR_SET_IO_FLUSHER ({os.strerror(ctypes.get_errno())})")
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0:
        refused.append(f"mlockall ({os.strerror(ctypes.get_errno())})")
    if not refused:
        return []
    return [f"refused: {', '.join(refused)}: a loop device over this mount may stall when memory is very short"]


# ---- umount ----

PATIENCE_S = 60.0  # for a daemon that flushes before it answers
BLIND_S = 10.0  # after which a mount that is still there counts as held by a process that cannot be seen
LOOK_S = 1.0  # between two looks at what keeps a daemon from ending
GLANCE_S = 1.0  # for which another process may have a file of a mount open that is unmounted
CORPSE_S = 5.0  # how long the kernel may take to end the connection of a daemon that was killed


@dataclass(frozen=True)
class Unmounted:
    """What was done. ``warnings`` is not empty if something may have been lost that a clean unmount would keep."""

    did: list[str]
    warnings: list[str]


def unmount(mountpoint: Path, timeout_s: float = 600.0) -> Unmounted:
    """Unmount, and return once the daemon has written its checkpoint and ended."""
    mount = mounts.at(mountpoint)
    cleared = mounts.clear_corpse(mountpoint)
    if mount is not None and cleared:
        return unmounted_dead(cleared, Path(mount.source))
    if mount is None or mount.fs_type != mounts.FS_TYPE:
        hint = " (`flashfs down` undoes `flashfs up`)" if mount and mount.source.startswith("/dev/loop") else ""
        raise UsageError(f"{mountpoint} is no flashfs mount: {mounts.instead(mountpoint, mount)}{hint}")
    try:
        says = mounts.text(mountpoint, "config.json", PATIENCE_S)["pid"]
        pid = asking.as_seen_here(says, mount.source)
    except PermissionError:
        raise FlashfsError(f"{mountpoint} belongs to another user: unmount it as that user") from None
    except (OSError, asking.DeadError) as error:  # it died after the first line, or was dying
        cleared = mounts.clear_corpse(mountpoint, timeout_s=CORPSE_S)  # the kernel ends requests first
        if not cleared:
            raise FlashfsError(f"{mountpoint} does not answer: config.json: {error}") from None
        return unmounted_dead(cleared, Path(mount.source))
    with _Daemon(pid, says) as daemon:
        warnings = mounts.ask(mountpoint, lambda: _flush(mountpoint / "disk"), timeout_s=None)
        _release(mount, pid)
        _await_end(daemon, mount, pid, timeout_s)
        why = daemon.last_words()
    if why:
        warnings.append(f"no checkpoint was written ({why}): the next mount recovers what was flushed")
        return Unmounted([f"unmounted {mountpoint}"], warnings)
    return Unmounted([f"unmounted {mountpoint}: {mount.source} is checkpointed"], warnings)


def _release(mount: mounts.Mount, pid: int) -> None:
    """Unmount; FlashfsError at once if a loop device is on it, and after GLANCE_S if a process that can be named still
    has a file of it open: `flashfs status` reads a file of each mount."""
    seen_s: dict[str, float] = {}

    def is_held(error: mounts.BusyError) -> None:
        if mounts.loops_of(mount.mountpoint / "disk"):
            raise error
        held = users.openers(mount.device, pid, mount.mountpoint)
        now_s = time.monotonic()
        if any(now_s - seen_s.setdefault(one, now_s) >= GLANCE_S for one in held):
            raise FlashfsError(f"{error}: held by {users.by(held)}") from None

    mounts.patiently(lambda: mounts.release(mount.mountpoint), is_held)


def _await_end(daemon: _Daemon, mount: mounts.Mount, pid: int, timeout_s: float) -> None:
    """Returns when the daemon has ended; FlashfsError if it still serves because other processes hold the mount, or
    has not written its checkpoint in time."""
    begin_s = time.monotonic()
    while not daemon.ended(min(LOOK_S, timeout_s)):
        waited_s = time.monotonic() - begin_s
        alive = users.is_alive(mount.device)
        held = users.holders(mount.device, mount.source, pid) if alive is not False else []
        if held or (alive and waited_s > BLIND_S):
            raise FlashfsError(
                f"{mount.mountpoint} is unmounted here, and still held by {users.by(held)}: its daemon, process {pid}, "
                "writes its checkpoint when that is over"
            )
        if waited_s >= timeout_s:
            raise FlashfsError(
                f"{mount.mountpoint} is unmounted, but its daemon, process {pid}, still writes its checkpoint"
            )


def unmounted_dead(cleared: list[str], image: Path) -> Unmounted:
    """The report on a mount of ``image`` whose daemon was gone: without a warning if its power was cut on request."""
    if cuts.was_asked(image):
        return Unmounted([*cleared, "its power was cut, as asked for: the next mount recovers what was flushed"], [])
    return Unmounted(cleared, ["nothing was checkpointed: the next mount recovers what was flushed"])


def _flush(disk: Path) -> list[str]:
    """Flush before the unmount, which cannot report an error. Returns warnings."""
    try:
        handle = os.open(disk, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        return [f"the last flush failed ({error.strerror}): the next mount recovers what was flushed before"]
    return []


class _Daemon:
    """The process that serves a mount, which is not our child. By a pidfd, because process numbers are reused.
    ``says``: what it calls itself, in its own pid namespace."""

    def __init__(self, pid: int, says: int) -> None:
        self._words = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._words.setblocking(False)
        self._listens = True
        try:
            self._words.bind(words_address(says))
        except OSError:  # another `umount` listens
            self._listens = False
        try:
            self._descriptor: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._descriptor = None

    def __enter__(self) -> _Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self._words.close()
        if self._descriptor is not None:
            os.close(self._descriptor)

    def ended(self, timeout_s: float) -> bool:
        """Wait; False if it still runs after ``timeout_s``."""
        if self._descriptor is None:
            return True
        return bool(readable(self._descriptor, timeout_s=timeout_s))

    def last_words(self) -> str:
        """The error that it ended with; "" if it ended well, or if another `umount` listens."""
        if not self._listens:
            return ""
        try:
            return os.fsdecode(self._words.recv(4096))
        except BlockingIOError:
            return "the daemon died first"
