"""``flashfs crash kill``: the daemon is killed under a file system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flashfs.cli import options, units
from flashfs.cli.crash_common import Found, Ftls, Seed, Survived, bar, check_files, drawn, named, note, report

if TYPE_CHECKING:
    from flashfs.crash.campaign import Result


def command(
    ftl: Ftls = None,
    fs: Annotated[str, typer.Option(metavar="ext4,xfs,btrfs", help="File systems.")] = "ext4",
    writer: Annotated[
        str,
        typer.Option(
            metavar="WRITER,...",
            help="What writes to them: files, sqlite, sqlite-delete, sqlite-wal, sqlite-remap, fio.",
        ),
    ] = "files",
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Kills per FTL, file system and writer.")] = 10,
    opt: Annotated[
        list[str] | None,
        typer.Option("--opt", metavar="NAME=VALUE", help="An option of the FTL; may be repeated."),
    ] = None,
    seed: Seed = None,
    survived: Survived = None,
    found: Found = None,
    as_json: options.Json = False,
) -> None:
    """Kill the daemon under a file system.

    An image is mounted, formatted, written to by --writer, and its daemon killed (SIGKILL), again and again. After each
    kill it is mounted again, and all that was acknowledged must be there. Needs root. Exit code 1 if anything was lost.
    """
    from flashfs.crash import kill

    names, fixed = named(ftl), units.pairs("--opt", opt or [])
    benches = kill.benches(fs.split(","), writer.split(","))
    for system, work in benches:
        kill.check_machine(system, work)
    for name in names:
        kill.check_options(name, fixed)
    check_files(survived, found)
    seed = drawn(seed)
    results: list[Result] = []
    for name in names:
        mine: list[Result] = []
        for system, work in benches:
            with bar(f"{name} {system} {work}", rounds) as progress:
                mine.append(kill.run(name, seed, rounds, fs=system, writer=work, options=fixed, progress=progress))
        results += mine
        note(mine, survived, found)
    report(results, as_json)
