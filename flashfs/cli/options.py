"""The arguments and options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from flashfs.cli import complete, units
from flashfs.errors import UsageError
from flashfs.fuse import mounts
from flashfs.fuse.daemon import Request


def file(text: str) -> Path:
    """A path from the command line. SilentError or DeadError if it is in a mount that does not answer: typer's own type
    would ask for the file, and wait for ever."""
    path = Path(text)
    outer = mounts.around(mounts.absolute(path))
    if outer is not None:
        mounts.ask(outer.mountpoint, lambda: os.statvfs(outer.mountpoint))
    return path


Image = Annotated[
    Path, typer.Argument(parser=file, metavar="IMAGE", help="The chip: a sparse file that `flashfs create` made.")
]
Mountpoint = Annotated[
    Path,
    typer.Argument(
        parser=file, metavar="MOUNTPOINT", help="An empty directory; it is made if it is not there."
    ),
]
# Nothing asks for what is there before a command does: a mount may not answer.
MountedImage = Annotated[
    Path,
    typer.Argument(
        parser=Path, metavar="MOUNTPOINT", help="Where `flashfs mount` mounted an image.",
        autocompletion=complete.mounted,
    ),
]  # fmt: skip
Served = Annotated[
    Path,
    typer.Argument(
        parser=Path, metavar="MOUNTPOINT|IMAGE", autocompletion=complete.either,
        help="Where `flashfs mount` or `flashfs up` mounted an image, or an image that `flashfs nbd` serves.",
    ),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead, for programs.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show each step of the recovery, and what it cost.")]

Ftl = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The FTL that a fresh image is bound to: a name (see flashfs ftls), or package.module:Class. Default: "
        "the image's own, or pagemap.",
        autocompletion=complete.ftls,
    ),
]
Named = Annotated[
    str | None,
    typer.Option(
        "--ftl", metavar="NAME", autocompletion=complete.ftls,
        help="The FTL of IMAGE. If its header names a package.module:Class, that is imported only if it is named here.",
    ),
]  # fmt: skip
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Import the FTL that the header of IMAGE names, also from the present folder."),
]
Opt = Annotated[
    list[str] | None, typer.Option("--opt", metavar="NAME=VALUE", help="An option of the FTL; may be repeated.")
]
Dram = Annotated[str | None, typer.Option(metavar="SIZE", help="The controller's DRAM: a hard limit, for example 64M.")]
Server = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="The server that answers the kernel: auto, native or pyfuse3.",
        autocompletion=complete.words("auto", "native", "pyfuse3"),
    ),
]  # fmt: skip
Sync = Annotated[
    str,
    typer.Option(
        metavar="flush|none", help="flush: a flush reaches the host's disk. none: it reaches the host's memory.",
        autocompletion=complete.words("flush", "none"),
    ),
]  # fmt: skip
Plp = Annotated[bool, typer.Option("--plp", help="Power-loss protection: the write buffer survives a cut.")]
Realtime = Annotated[bool, typer.Option("--realtime", help="Delay each reply by the time that a real chip would take.")]
AllowOther = Annotated[bool, typer.Option("--allow-other", help="Let other users, also root, use the mount.")]
Fault = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="WORD",
        help="Break the chip: cut=N[:SHAPE] cuts the power at flash operation N; fail=N, flip=N:B, ... are those of "
        "`flashfs fault --help`; `later` sets nothing yet. May be repeated.",
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, max=1024, metavar="N", help="Processes. Default: one per core.")
]
Log = Annotated[Path | None, typer.Option(parser=file, metavar="FILE", help="Append the daemon's log to FILE.")]

Record = Annotated[
    Path | None,
    typer.Option(
        parser=file,
        metavar="TRACE",
        help="Record every request for `disk` in a new file TRACE: time, operation, offset, length, and a hash of each "
        "4 KiB that is written.",
    ),
]


def given(context: typer.Context) -> dict[str, Any]:
    """The options and arguments that were typed, by name: not those that have their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name: context.params[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def check_exists(*paths: Path) -> None:
    """UsageError for a name of nothing: a command that reads it was called wrongly."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file")


def check_at_rest(image: Path) -> None:
    """UsageError for a mount where an image is meant that is not mounted."""
    there = mounts.at(mounts.absolute(image))
    if there is not None and there.fs_type == mounts.FS_TYPE:
        raise UsageError(f"{image} is a mount: `flashfs umount {image}`, and name its image, {there.source}")


def absolute(path: Path) -> Path:
    """For a process that changes its folder."""
    return mounts.absolute(path)


def served(
    *, opt: list[str] | None, dram: str | None, sync: str, log: Path | None, fault: list[str] | None
) -> dict[str, Any]:
    """What a daemon is asked for, of any client: a request's fields, of the options as they were typed."""
    if sync not in ("flush", "none"):
        raise UsageError(f"--sync {sync}: use flush or none")
    if log is not None and log.is_dir():
        raise UsageError(f"--log {log}: a directory; use the name of a file")
    return {
        "options": units.pairs("--opt", opt or []),
        "dram": None if dram is None else units.size("--dram", dram),
        "sync": sync,
        "log": None if log is None else absolute(log),
        "faults": tuple(fault or ()),
    }


def request(
    image: Path,
    mountpoint: Path,
    *,
    ftl: str | None,
    opt: list[str] | None,
    dram: str | None,
    server: str,
    sync: str,
    plp: bool,
    realtime: bool,
    log: Path | None,
    fault: list[str] | None = None,
    record: Path | None = None,
    allow_other: bool = False,
    trust: bool = False,
) -> Request:
    """The options as given on the command line, read and made absolute."""
    return Request(
        image=absolute(image),
        mountpoint=mounts.absolute(mountpoint),
        **served(opt=opt, dram=dram, sync=sync, log=log, fault=fault),
        ftl=ftl,
        trust=trust,
        plp=plp,
        realtime=realtime,
        server=server,
        allow_other=allow_other,
        record=None if record is None else absolute(record),
    )
