"""``flashfs mount``: the image as a directory with the block file `disk`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flashfs.cli import options, show, units
from flashfs.fuse import asked, daemon


def command(
    context: typer.Context,
    image: options.Image,
    mountpoint: options.Mountpoint,
    ftl: options.Ftl = None,
    trust: options.Trust = False,
    opt: options.Opt = None,
    dram: options.Dram = None,
    server: options.Server = "auto",
    sync: options.Sync = "flush",
    plp: options.Plp = False,
    realtime: options.Realtime = False,
    allow_other: options.AllowOther = False,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run in the foreground. Ctrl-C or SIGTERM unmounts, with a checkpoint.")
    ] = False,
    log: options.Log = None,
    fault: options.Fault = None,
    record: options.Record = None,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
    remount: Annotated[bool, typer.Option("--remount", hidden=True, help="What `mount -o remount` asks for.")] = False,
) -> None:
    """Show an image as a directory with the block file `disk`.

    MOUNTPOINT has `disk`, which programs, file systems and loop devices use, and stats.json, smart.json, config.json
    and map.json, which say what the device does. A fresh image is bound to an FTL and formatted; a crashed one is
    recovered.
    """
    request = options.request(
        image, mountpoint, ftl=ftl, trust=trust, opt=opt, dram=dram, server=server, sync=sync, plp=plp,
        realtime=realtime, log=log, allow_other=allow_other, fault=fault, record=record,
    )  # fmt: skip

    if remount:  # mount(8) asks for it
        asked.check_mounted(request, options.given(context))
        return

    def ready(mounted: daemon.Mounted) -> None:
        if as_json:
            show.result(vars(mounted), as_json=True)
        else:
            report(request, mounted, verbose)

    if foreground:
        daemon.start_log(request.log)
        daemon.serve(request, ready)
    else:
        ready(daemon.mount(request, lambda: show.working(f"opening {image}")))


def report(request: daemon.Request, mounted: daemon.Mounted, verbose: bool) -> None:
    """Say what is there now, and how it came back."""
    for done in mounted.cleared:
        show.line(done)
    show.line(f"{request.mountpoint}/disk: {units.shown(mounted.size)}, {mounted.ftl} on {request.image}")
    show.line(mounted.summary)
    for alarm in mounted.alarms:
        show.warn(f"damage: {alarm}")
    if mounted.host_disk:
        show.warn(mounted.host_disk)
    if request.record is not None:
        show.line(f"recording every request in {request.record}")
    if request.sync == "none":
        show.warn("--sync none: what was flushed survives a crash of the daemon, not one of this machine")
    if verbose:
        how = "over io_uring" if mounted.transport == "io_uring" else "by read(2) of /dev/fuse"
        show.line(f"server {mounted.server}, requests come {how}")
        if mounted.steps:
            show.rows(with_sum(mounted.steps))
        for note in mounted.notes:
            show.warn(note)


def with_sum(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps of a recovery, and a last row of what they are together."""
    numbers = [name for name, value in steps[0].items() if isinstance(value, int | float)]
    total = {name: round(sum(step[name] for step in steps), 3) for name in numbers}
    return [*steps, {**dict.fromkeys(steps[0], ""), "name": "all", **total}]
