"""Runs the workload once, on a device whose requests are taped; and has the variables that commands get."""

from __future__ import annotations

from pathlib import Path

from flashfs.crash.workload import commands, mounted_image
from flashfs.crash.workload.settings import Folder, Settings
from flashfs.errors import FlashfsError
from nandimg import Geometry, image

UNCUT = "none"  #: FLASHFS_CUT of a state that was not cut


def record(
    folder: Folder, geometry: Geometry, settings: Settings, workload: str, setup: str | None = None
) -> None:
    """Make the recording: a file system on a new device, with what ``setup`` puts there, unmounted cleanly; then the
    tape of the workload. FlashfsError if a command fails."""
    image.create(folder.state, geometry)
    with mounted_image.attached(folder, settings) as device:
        mounted_image.make(device, settings)
        if setup is not None:
            with mounted_image.files(device, folder, settings) as root:
                commands.must_do("--setup", commands.run(setup, root, places(root, device)))
    mounted_image.copy(folder.state, folder.base)
    with (
        mounted_image.attached(folder, settings, tape=folder.tape) as device,
        mounted_image.files(device, folder, settings) as root,
    ):
        begin = tape_bytes(folder)
        marks = {"FLASHFS_MARK_FILE": str(folder.device / "mark")}
        commands.must_do("the workload", commands.run(workload, root, {**places(root, device), **marks}))
        span = (begin, tape_bytes(folder))
        failed = mounted_image.tape_failed(folder)
        if failed:
            raise FlashfsError(f"{folder.tape}: the tape cannot be written: {failed}")
    folder.save(settings, workload, span)


def places(root: Path, device: Path) -> dict[str, str]:
    """The environment variables of every command."""
    return {"FLASHFS_MOUNT": str(root), "FLASHFS_DEVICE": str(device)}


def variables(folder: Folder, cut: str, marks: list[str]) -> dict[str, str]:
    """The further environment variables of a checker. Also writes all marks passed to the file ``folder.marks``."""
    folder.marks.write_text("".join(f"{mark}\n" for mark in marks))
    return {
        "FLASHFS_CUT": cut,
        "FLASHFS_MARK": marks[-1] if marks else "",
        "FLASHFS_MARKS": str(folder.marks),
    }


def tape_bytes(folder: Folder) -> int:
    """The size of the tape now, in bytes. A record that is being written ends after that."""
    return folder.tape.stat().st_size
