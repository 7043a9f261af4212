"""``flashfs nbd``: the image as a disk for NBD clients."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from flashfs.cli import mount, options, show, units
from flashfs.errors import UsageError
from flashfs.fuse import mounts
from flashfs.fuse.nbd_request import Request
from flashfs.nbd import server


def command(
    image: options.Image,
    ftl: options.Ftl = None,
    trust: options.Trust = False,
    opt: options.Opt = None,
    dram: options.Dram = None,
    sync: options.Sync = "flush",
    plp: options.Plp = False,
    realtime: options.Realtime = False,
    socket: Annotated[
        Path | None,
        typer.Option(
            parser=options.file,
            metavar="PATH",
            help="The Unix socket to listen at. Default: IMAGE.sock; with --run, one in a temporary folder.",
        ),
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="N", help="Listen at this TCP port of localhost instead.")] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Change nothing in IMAGE; a recovery happens in memory.")
    ] = False,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run in the foreground. Ctrl-C or SIGTERM ends it, with a checkpoint.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Exit when the last client leaves, with a checkpoint.")] = False,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", help="Serve while COMMAND runs in a shell, with $uri, and $unixsocket or $port."
        ),
    ] = None,
    stats: Annotated[
        Path | None,
        typer.Option(
            parser=options.file, metavar="FILE", help="Write what a mount's stats.json says to FILE, at the end."
        ),
    ] = None,
    log: options.Log = None,
    fault: options.Fault = None,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> int:
    """Serve an image to QEMU, libguestfs and other NBD clients.

    nbdkit does it, without root and without a mount.
    """
    if socket is not None and port is not None:
        raise UsageError("--socket and --port: use one of them")
    if run is not None and once:
        raise UsageError("--run and --once: use one of them")
    if run is not None and as_json:
        raise UsageError("--run and --json: use one of them; what is printed is COMMAND's")
    path = options.absolute(image)
    with ExitStack() as folders:
        if run is not None and socket is None and port is None:
            socket = Path(folders.enter_context(TemporaryDirectory(prefix="flashfs-nbd-"))) / "socket"
        request = Request(
            image=path,
            socket=None if port is not None else options.absolute(socket or path.with_name(f"{path.name}.sock")),
            port=port,
            ftl=ftl,
            trust=trust,
            **options.served(opt=opt, dram=dram, sync=sync, log=log, fault=fault),
            plp=plp,
            realtime=realtime,
            read_only=read_only,
            once=once,
            foreground=foreground or run is not None,
            stats=None if stats is None else options.absolute(stats),
        )
        return serve(request, run, verbose=verbose, as_json=as_json)


def serve(request: Request, run: str | None, *, verbose: bool, as_json: bool) -> int:
    """Start nbdkit, and in the foreground wait for its end: the exit code."""
    running = server.start(request, lambda: show.working(f"opening {request.image}"))
    if not request.foreground:
        report(request, running.served, verbose=verbose, as_json=as_json)
        running.let_go()
        return 0
    with server.signals_passed_on(running):  # before it is told where the device is: what hears of it may end it
        if run is None:
            report(request, running.served, verbose=verbose, as_json=as_json)
        code = 0 if run is None else captive(run, request)
        if run is not None:
            running.stop()
        running.wait()
    return code


def captive(line: str, request: Request) -> int:
    """Run ``line`` in a shell, and return its exit code, as a shell has it: 128 and the number of a signal."""
    at = {"unixsocket": str(request.socket)} if request.socket is not None else {"port": str(request.port)}
    environment = {**os.environ, "PATH": mounts.search_path(), "uri": request.uri, **at}
    code = subprocess.run(line, shell=True, env=environment).returncode
    return code if code >= 0 else 128 - code


def report(request: Request, served: server.Served, *, verbose: bool, as_json: bool) -> None:
    """Say what is there now, and how it came back."""
    if as_json:
        show.result(vars(served), as_json=True)
        return
    show.line(f"{served.uri}: {units.shown(served.size)}, {served.ftl} on {request.image}")
    show.line(served.summary)
    for alarm in served.alarms:
        show.warn(f"damage: {alarm}")
    if served.host_disk:
        show.warn(served.host_disk)
    if request.sync == "none":
        show.warn("--sync none: what was flushed survives a crash of nbdkit, not one of this machine")
    if not request.foreground:
        show.line(f"process {served.pid}: `kill {served.pid}` ends it with a checkpoint")
    if verbose:
        if served.steps:
            show.rows(mount.with_sum(served.steps))
        for note in served.notes:
            show.warn(note)
