"""Starts nbdkit with our plugin in it, waits until a client may come, and ends it.

nbdkit knows the protocol, the plugin the device. It runs with --foreground, in a session of its own unless this process
stays in the foreground too. What it prints before a client may come is read here, and becomes an error's one line.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from flashfs.errors import FlashfsError, UsageError
from flashfs.ftl_search import SEARCHED
from flashfs.fuse import fault_words, mounts
from flashfs.fuse.nbd_request import HOST, Request

SOCKET_BYTES = 107  # of a path, in Linux's sockaddr_un
PLUGIN = "flashfs.nbd._plugin"


@dataclass(frozen=True)
class Served:
    """The plugin's report, once a client may come. ``steps`` are the recovery's, one row each; ``notes`` is for -v."""

    pid: int
    uri: str
    ftl: str
    size: int
    clean: bool
    summary: str
    steps: list[dict[str, Any]]
    notes: list[str]
    alarms: list[str]  # what no power cut can have left in the image
    host_disk: str | None = None  # if there is no room for what will be written


class NotServed(FlashfsError):
    """What the plugin said, with the exit code that belongs to it."""

    def __init__(self, line: str, exit_code: int = 1) -> None:
        super().__init__(line)
        self.exit_code = exit_code


class Server:
    """nbdkit, running. ``served`` is what it said of itself."""

    def __init__(self, process: subprocess.Popen[bytes], words: IO[str], served: Served, request: Request) -> None:
        self.process = process
        self._words = words
        self._request = request
        self.served = served

    def stop(self) -> None:
        """Ask it to end; ``wait`` says how it did."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def let_go(self) -> None:
        """Let it run on without this process. The return code is set so that Popen does not warn of a running child."""
        self._words.close()
        self.process.returncode = 0

    def wait(self) -> None:
        """Returns when the image is checkpointed and nbdkit has ended; raises what kept it from that."""
        with self._words:
            messages = [json.loads(line) for line in self._words]
        code = self.process.wait()
        for message in messages:
            if "error" in message:
                raise NotServed(message["error"], message["exit_code"])
        if not any("ended" in message for message in messages):
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise FlashfsError(
                f"nbdkit ended with {how} before a checkpoint of {self._request.image}: the next opening recovers"
            )


@contextmanager
def signals_passed_on(running: Server) -> Iterator[None]:
    """SIGTERM, SIGINT and SIGHUP end the server, and this process when it has ended."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: running.stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start(request: Request, waiting: Callable[[], AbstractContextManager[None]] = nullcontext) -> Server:
    """Start nbdkit, and return once a client may come; raises what kept it from that."""
    prepare(request)
    reader, writer = os.pipe()
    request = replace(request, searched=tuple(SEARCHED), teller=writer, stderr=os.dup(2))
    with tempfile.TemporaryFile() as said, os.fdopen(reader) as words, waiting():
        try:
            process = subprocess.Popen(
                command(request), env=environment(), pass_fds=[writer, request.stderr], stdin=subprocess.DEVNULL,
                cwd="/", stdout=said, stderr=said, umask=0o077, start_new_session=not request.foreground,
            )  # fmt: skip
        finally:
            os.close(writer)
            os.close(request.stderr)
        try:
            message = json.loads(words.readline() or "{}")
        except BaseException:
            process.terminate()
            raise
        if "served" in message:
            return Server(process, os.fdopen(os.dup(words.fileno())), Served(**message["served"]), request)
        process.wait()
        if request.socket is not None and "error" in message:
            request.socket.unlink(missing_ok=True)
        if "error" in message:
            raise NotServed(message["error"], message["exit_code"])
        said.seek(0)
        raise FlashfsError(why(said.read().decode(errors="replace"), request))


def why(said: str, request: Request) -> str:
    """One line of what nbdkit printed."""
    lines = [line.removeprefix("nbdkit: ").removeprefix("error: ") for line in said.splitlines() if line.strip()]
    line = lines[-1] if lines else "it says nothing"
    if "ddress already in use" in said:
        return f"{where(request)} is taken: use another one"
    return f"nbdkit did not start: {line}"


def where(request: Request) -> str:
    return f"--port {request.port}" if request.socket is None else f"--socket {request.socket}"


def prepare(request: Request) -> None:
    """Everything that can be refused before nbdkit starts; removes the socket of a server that was killed."""
    if shutil.which("nbdkit") is None:
        raise FlashfsError("nbdkit is missing: on Debian, `apt-get install nbdkit` brings it")
    if importlib.util.find_spec(PLUGIN) is None:
        raise FlashfsError(
            "flashfs was built without nbdkit's header: install nbdkit-plugin-dev, then "
            "`python setup.py build_ext --inplace`"
        )
    libpython()
    if request.faults:
        fault_words.parse(request.faults)
    for option, path in (("--log", request.log), ("--stats", request.stats), ("--socket", request.socket)):
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"{option} {path}: there is no directory {path.parent}")
        if path is not None and path.is_dir():
            raise UsageError(f"{option} {path}: a directory; use the name of a file")
    for option, path in (("--log", request.log), ("--stats", request.stats)):
        mounts.require_other(option, path, request.image)
    if request.socket is not None:
        _prepare_socket(request.socket)
    else:
        _prepare_port(request.port or 0)


def _prepare_socket(path: Path) -> None:
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"--socket {path}: {path.parent} cannot be written: use --socket PATH with another folder")
    if len(os.fsencode(path)) > SOCKET_BYTES:
        raise UsageError(f"--socket {path}: Linux takes {SOCKET_BYTES} bytes of a socket's path")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UsageError(f"--socket {path}: this is there, and no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)  # the server that listened was killed
            return
    raise UsageError(f"--socket {path} is taken: a server answers there")


def _prepare_port(port: int) -> None:
    if not 0 < port < 1 << 16:
        raise UsageError(f"--port {port}: use 1 to 65535; 10809 is NBD's own")


def command(request: Request) -> list[str]:
    """nbdkit's command line."""
    plugin = importlib.util.find_spec(PLUGIN)
    assert plugin is not None
    words = ["nbdkit", "--foreground"]
    words += ["--unix", str(request.socket)] if request.socket else ["--ipaddr", HOST, "--port", str(request.port)]
    if request.foreground:
        words.append("--exit-with-parent")
    if request.read_only:
        words.append("--read-only")
    if request.once:
        words += ["--filter", "exitlast"]
    return [*words, str(plugin.origin), f"python={sys.executable}", f"request={request.written()}"]


def environment() -> Mapping[str, str]:
    """The environment that gives nbdkit's process this interpreter and its import path."""
    paths = []
    for path in sys.path:
        with suppress(FileNotFoundError):  # the present folder, and it was deleted
            paths.append(os.path.realpath(path))
    return {**os.environ, "LD_PRELOAD": str(libpython()), "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def libpython() -> Path:
    """This interpreter as a shared library; FlashfsError if there is none."""
    name = sysconfig.get_config_var("INSTSONAME") or ""
    if ".so" not in name:  # Debian's own interpreter is linked without it
        name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    folder = Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib")
    for place in (folder, folder / (sysconfig.get_config_var("MULTIARCH") or ".")):
        if (place / name).exists():
            return place / name
    package = f"libpython{sys.version_info.major}.{sys.version_info.minor}"
    raise FlashfsError(f"nbdkit needs {name}, which is not in {folder}: on Debian, `apt-get install {package}`")
