"""What is mounted on this machine, and what lies over it: asked of the system, nothing is remembered."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flashfs.fuse import asking, homes, mounts


@dataclass(frozen=True)
class Mounted:
    """One flashfs mount. ``directory`` is where `disk` is. ``state``: "up"; "dead", its daemon is gone; "silent", it
    does not answer (it was stopped, if ``pid`` is known); "another user's", who alone is told ``pid`` and ``ftl``.
    ``mountpoints`` are those of ``file_system``, which lies on ``loops``."""

    image: str
    ftl: str | None
    pid: int | None
    state: str
    directory: str
    file_system: str | None
    mountpoints: list[str]
    loops: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def status() -> list[Mounted]:
    """Every flashfs mount that this process can see, oldest first."""
    return [_look(mount) for mount in mounts.table() if mount.fs_type == mounts.FS_TYPE]


def _look(mount: mounts.Mount) -> Mounted:
    path = mount.mountpoint
    loops = mounts.loops_of(path / "disk")
    uppers = [upper for loop in loops for upper in mounts.table() if upper.source == str(loop)]
    state, config = _asked(path, mount.source)
    home = homes.read(path) if path.parent == homes.RUN else None
    return Mounted(
        image=str(home.image) if home else mount.source,
        ftl=config.get("ftl"),
        pid=config.get("pid"),
        state=state,
        directory=str(path),
        file_system=uppers[0].fs_type if uppers else None,
        mountpoints=[str(upper.mountpoint) for upper in uppers],
        loops=[str(loop) for loop in loops],
    )


def _asked(path: Path, image: str) -> tuple[str, dict[str, Any]]:
    """(state, what config.json says)."""
    try:
        return "up", mounts.text(path, "config.json")
    except asking.SilentError:
        return "silent", {"pid": asking.stopped(image)}
    except asking.DeadError:
        return "dead", {}
    except PermissionError:
        return "another user's", {}
    except (OSError, ValueError):  # it went away meanwhile
        return "unknown", {}
