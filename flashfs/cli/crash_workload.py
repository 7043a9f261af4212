"""``flashfs crash workload``: the cuts of a workload of the user's own."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashfs.cli import complete, options, shape, units
from flashfs.cli.crash_common import bar, report, tell
from flashfs.errors import UsageError

if TYPE_CHECKING:
    from flashfs.crash.workload import WorkloadResult

#: what a recording has settled
SETTLED = ("--fs", "--mkfs", "--setup", "--mount-options", "--preset", "--size", "--opt", "--dram", "--plp")


def command(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="COMMAND",
            show_default=False,
            help="What runs on the file system, whose power is cut. {} or $FLASHFS_MOUNT is where that is.",
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Looks at the files after each cut, and exits with 0 if they are good. {} or $FLASHFS_MOUNT is where "
            "they are.",
        ),
    ] = None,
    fsck: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Looks at the device after each cut, mounted and unmounted again: 0 is good. {} or $FLASHFS_DEVICE.",
        ),
    ] = None,
    mkfs: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Makes the file system, any that `mount` knows, on {} or $FLASHFS_DEVICE; --fs is its type.",
        ),
    ] = None,
    setup: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Run COMMAND on the new file system first, without cuts."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE,...",
            help="Where the power goes: flushes, marks, end, operations, subsets, flush:N, mark:N, N:SHAPE. Default: "
            "flushes,marks,end; with --cuts: operations.",
        ),
    ] = None,
    recording: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep the recording of COMMAND in FOLDER. Without COMMAND: use the recording there.",
        ),
    ] = None,
    mount_options: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Options of the file system, as for mount -o."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The chip, by name.", autocompletion=complete.presets),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What the host sees. Default: ext4 128M, xfs 320M, btrfs 256M."),
    ] = None,
    opt: Annotated[
        list[str] | None,
        typer.Option(
            "--opt",
            metavar="NAME=VALUE",
            help="An option of the FTL; may be repeated.",
        ),
    ] = None,
    dram: Annotated[str | None, typer.Option(metavar="SIZE", help="The controller's DRAM: a hard limit.")] = None,
    plp: Annotated[bool, typer.Option("--plp", help="The write buffer survives a cut, so fewer bugs show.")] = False,
    ftl: Annotated[
        str | None, typer.Option(metavar="NAME", help="The FTL. Default: pagemap.", autocompletion=complete.ftl_list)
    ] = None,
    fs: Annotated[
        str | None, typer.Option(metavar="ext4|xfs|btrfs", help="The file system. Default: ext4; with --mkfs: auto.")
    ] = None,
    cuts: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Cut at N random flash operations, or N of --at. Default: all of --at."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="S", help="The same seed makes the same cuts. Default: a new one.")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--workload", hidden=True, help="COMMAND, as it was given before it was an argument.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Cut the power of a program of your own.

    COMMAND runs once, on a new file system, and is recorded. Then the power is cut at places of that run: for each the
    device is put back to that moment, recovered and mounted, and --check looks at the files. Needs root. Exit code 1 if
    a check failed.
    """
    given = {
        "--ftl": ftl, "--fs": fs, "--check": check, "--fsck": fsck, "--mkfs": mkfs, "--setup": setup, "--at": at,
        "--mount-options": mount_options, "--preset": preset, "--size": size, "--opt": opt, "--dram": dram,
        "--plp": plp,
    }  # fmt: skip
    workload = workload if before is None else before
    if workload is None and recording is None:
        raise UsageError("crash workload: name a COMMAND to run, or the --recording of one")
    report([run(given, workload, recording, cuts, seed, lambda found: tell([found], as_json))], as_json)


def run(
    given: dict[str, Any], workload: str | None, recording: Path | None, cuts: int | None, seed: int | None,
    report: Callable[[WorkloadResult], None],
) -> WorkloadResult:  # fmt: skip
    """Record and cut. ``given``: each option by its name, None or False or empty if it was not. ``report`` gets what
    was found when a run that has found something is broken off."""
    from flashfs.crash import workload as own

    if not given["--check"] and not given["--fsck"]:
        raise UsageError("crash workload: add --check COMMAND, which says what must be there after a cut; or --fsck")
    if workload is None:
        for name in SETTLED:
            if given[name]:
                raise UsageError(
                    f"{name}: the recording has it already; use it with a COMMAND, of which a new one is made"
                )
    at = given["--at"] or ("operations" if cuts else ",".join(own.DEFAULT_PLACES))
    job = own.Job(
        given["--check"], given["--fsck"], workload, given["--setup"], recording, tuple(at.split(",")), cuts,
        random.SystemRandom().randrange(2**32) if seed is None else seed,
    )  # fmt: skip
    mkfs = given["--mkfs"]
    fs = given["--fs"] or ("ext4" if mkfs is None else "auto")
    settings = own.Settings(
        fs, given["--ftl"], units.pairs("--opt", given["--opt"] or []),
        None if given["--dram"] is None else units.size("--dram", given["--dram"]), given["--plp"],
        given["--mount-options"], mkfs,
    )  # fmt: skip
    geometry = None
    if workload is not None:
        size = given["--size"] or (None if given["--preset"] else own.default_size(fs, mkfs))
        geometry = shape.geometry_of(given["--preset"], size, None)
    found: list[WorkloadResult] = []
    try:
        with bar(f"workload on {fs}", None, "cuts") as move:
            return own.run(job, settings, geometry, lambda done, of: move(done, f"of {of}"), found.append)
    finally:
        for result in found:
            report(result)
