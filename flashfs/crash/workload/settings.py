"""The settings of a recording (the device, the file system), and the folder that keeps it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import file_systems, loop, mounts

#: default size of the device, and the mkfs command: it initialises everything at once, so that no kernel thread writes
#: besides the workload
FILE_SYSTEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ext4": ("128M", ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0")),
    "xfs": ("320M", ("mkfs.xfs", "-q", "-f")),
    "btrfs": ("256M", ("mkfs.btrfs", "-q", "-f")),
}
OWN_SIZE = "256M"  #: default size of a device on which --mkfs makes the file system
FORMAT = 1  #: version of recording.json


@dataclass(frozen=True)
class Settings:
    """The device and the file system on it. ``options``, ``dram`` and ``plp`` are those of every mount. ``fs`` is the
    type for `mount -t`; ``mkfs`` is the user's command that makes it, or None for the one in FILE_SYSTEMS."""

    fs: str = "ext4"
    ftl: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    dram: int | None = None
    plp: bool = False
    mount_options: str | None = None  # mount -o
    mkfs: str | None = None


@dataclass(frozen=True)
class Folder:
    """The folder of a recording and of the states made from it. The first three files are the recording."""

    path: Path

    @property
    def base(self) -> Path:
        """The image with the file system on it, unmounted cleanly, before the workload."""
        return self.path / "base.nand"

    @property
    def tape(self) -> Path:
        return self.path / "tape"

    @property
    def about(self) -> Path:
        return self.path / "recording.json"

    @property
    def state(self) -> Path:
        """The working image: recorded on, or recovered and checked."""
        return self.path / "state.nand"

    @property
    def crashed(self) -> Path:
        """The image as the power cut left it, if there is a single cut."""
        return self.path / "crashed.nand"

    @property
    def marks(self) -> Path:
        """The marks passed, a line each, for the checker."""
        return self.path / "marks"

    @property
    def device(self) -> Path:
        return self.path / "device"

    @property
    def root(self) -> Path:
        return self.path / "files"

    def make(self) -> None:
        """Make the folder; UsageError if it is not empty or cannot be made."""
        try:
            self.path.mkdir(exist_ok=True, mode=0o700)
            if any(self.path.iterdir()):
                raise UsageError(f"--recording {self.path}: not empty; without a COMMAND its recording is used again")
        except (FileNotFoundError, FileExistsError, NotADirectoryError):
            raise UsageError(f"--recording {self.path}: use a folder that is empty or can be made") from None
        self.path.chmod(0o711)  # a workload may change its user

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder; FlashfsError if another run has it."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise FlashfsError(f"--recording {self.path}: another run works with it") from None
        finally:
            os.close(descriptor)

    def tidy(self) -> None:
        """Remove everything but a finished recording, the image of a single cut, and what could not be unmounted."""
        for one in (self.state, self.marks, *(() if self.about.exists() else (self.base, self.tape))):
            one.unlink(missing_ok=True)
        for mountpoint in (self.device, self.root):
            if mountpoint.is_dir() and mounts.at(mountpoint) is None:
                mountpoint.rmdir()

    def has_mounts(self) -> bool:
        """Whether something could not be unmounted."""
        return any(mounts.at(mountpoint) is not None for mountpoint in (self.device, self.root))

    def save(self, settings: Settings, workload: str, span: tuple[int, int]) -> None:
        """Write recording.json. ``span``: the sizes of the tape, in bytes, when the workload began and ended."""
        about = {"format": FORMAT, **asdict(settings), "workload": workload, "begin": span[0], "end": span[1]}
        self.about.write_text(json.dumps(about, indent=2) + "\n")

    def load(self) -> tuple[Settings, tuple[int, int]]:
        """What ``save`` wrote; FlashfsError if there is no recording here."""
        try:
            about: dict[str, Any] = json.loads(self.about.read_text())
            version, _, span = about.pop("format"), about.pop("workload"), (about.pop("begin"), about.pop("end"))
            if version != FORMAT:
                raise FlashfsError(f"--recording {self.path}: of another version; record it again")
            return Settings(**about), span
        except (OSError, ValueError, KeyError, TypeError):
            raise UsageError(f"--recording {self.path}: no recording; a COMMAND makes one there") from None


def default_size(fs: str, mkfs: str | None = None) -> str:
    """The default size of the device; UsageError for an unknown file system without a ``mkfs``."""
    if mkfs is not None:
        return OWN_SIZE
    if fs not in FILE_SYSTEMS:
        raise UsageError(f"--fs {fs}: crash workload knows {', '.join(FILE_SYSTEMS)}; use --mkfs COMMAND for others")
    return FILE_SYSTEMS[fs][0]


def check_machine(settings: Settings) -> None:
    """Raise unless this machine has all that the mode needs; the error names what is missing."""
    default_size(settings.fs, settings.mkfs)
    loop.need_root("crash workload", "`flashfs crash run`, which cuts a chip in memory")
    if settings.mkfs is None:
        file_systems.check_can_make(settings.fs)
    for program, package in (("fusermount3", "fuse3"), ("losetup", "mount"), ("cp", "coreutils")):
        if shutil.which(program, path=mounts.environment()["PATH"]) is None:
            raise FlashfsError(f"crash workload needs {program}: install {package}")
