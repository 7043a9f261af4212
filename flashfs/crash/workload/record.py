"""Runs the workload once, on a device whose requests are taped."""

from __future__ import annotations

from pathlib import Path

from flashfs.crash.workload import commands, stand
from flashfs.crash.workload.settings import Folder, Settings
from flashfs.errors import FlashfsError
from nandimg import Geometry, image


def record(
    folder: Folder, geometry: Geometry, settings: Settings, workload: str, check: str, setup: str | None = None
) -> None:
    """Make the recording: a file system on a new device, what ``setup`` puts there, unmounted cleanly; and the tape of
    the workload behind that. FlashfsError if a command fails, the checker among them: what was not cut must do."""
    image.create(folder.state, geometry)
    with stand.attached(folder, settings) as device:
        stand.make(device, settings.fs)
        if setup is not None:
            with stand.files(device, folder, settings) as root:
                must_do("--setup", commands.run(setup, root, {}))
    stand.copy(folder.state, folder.base)
    with stand.attached(folder, settings, tape=folder.tape) as device, stand.files(device, folder, settings) as root:
        begin = tape_bytes(folder)
        must_do("--workload", commands.run(workload, root, {"FLASHFS_MARK_FILE": str(folder.device / "mark")}))
        span = (begin, tape_bytes(folder))
        failed = stand.tape_failed(folder)
        if failed:
            raise FlashfsError(f"{folder.tape}: the tape cannot be written: {failed}")
        must_do("--check, before any cut,", check_live(folder, root, check))
    folder.save(settings, workload, span)


def check_live(folder: Folder, root: Path, check: str) -> commands.Ended:
    """The checker, on files that nothing has happened to."""
    from flashfs.crash.workload.states import Tape  # what the marks are

    marks = Tape(folder, (0, tape_bytes(folder))).marks
    return commands.run(check, root, variables(folder, "none", marks))


def variables(folder: Folder, cut: str, marks: list[str]) -> dict[str, str]:
    """What a checker is told; the marks passed, all of them, are in a file as well."""
    folder.marks.write_text("".join(f"{mark}\n" for mark in marks))
    return {
        "FLASHFS_CUT": cut,
        "FLASHFS_MARK": marks[-1] if marks else "",
        "FLASHFS_MARKS": str(folder.marks),
    }


def tape_bytes(folder: Folder) -> int:
    """How long the tape is now. A record that is being written ends behind that."""
    return folder.tape.stat().st_size


def must_do(what: str, ended: commands.Ended) -> None:
    if ended.code != 0:
        raise FlashfsError(": ".join([f"{what} {ended}", *ended.lines[-1:]]))
