"""``flashfs up``: a file system on an image, in one command."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from flashfs.cli import mount, options, show
from flashfs.fuse import file_systems, loop


def command(
    context: typer.Context,
    image: options.Image,
    mountpoint: options.Mountpoint,
    fs: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(file_systems.FILE_SYSTEMS),
            help=f"What a blank image is formatted with. Default: what is there, or {file_systems.DEFAULT}.",
        ),
    ] = None,
    ftl: options.Ftl = None,
    trust: options.Trust = False,
    opt: options.Opt = None,
    dram: options.Dram = None,
    server: options.Server = "auto",
    sync: options.Sync = "flush",
    plp: options.Plp = False,
    realtime: options.Realtime = False,
    log: options.Log = None,
    fault: options.Fault = None,
    record: options.Record = None,
    verbose: options.Verbose = False,
) -> None:
    """Mount an image and a file system on it, in one command.

    The image is mounted, a loop device is made of it, and its file system is mounted at MOUNTPOINT. A blank image gets
    a new file system. An image that is up already gets a second mountpoint, and keeps the options of the first. Needs
    root.
    """
    request = options.request(
        image, mountpoint, ftl=ftl, trust=trust, opt=opt, dram=dram, server=server, sync=sync, plp=plp,
        realtime=realtime, log=log, fault=fault, record=record,
    )  # fmt: skip
    done = loop.up(request, fs, options.given(context))
    for line in done.did:
        show.line(line)
    if done.mounted is not None:
        mount.report(replace(request, mountpoint=done.home), done.mounted, verbose)
    if done.warning:
        show.warn(done.warning)
    show.line(f"{request.mountpoint}: {'new ' if done.made else ''}{done.fs} on {done.loop}")
