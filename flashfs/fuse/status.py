"""The flashfs mounts of this machine, and what is on them: read from the system each time, nothing is stored."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from flashfs.fuse import asking, mounts, up_registry, users

ANSWER_S = 2.0  #: that a daemon has to answer
SLACK_S = 1.0  #: more, for all that is asked in parallel
OTHERS_S = 10.0  #: for what is not visible here: an image of one that lies on a mount which does not answer is left out


@dataclass(frozen=True)
class Mounted:
    """One image that is mounted, or in use otherwise. ``directory`` is where `disk` is; None: not mounted here.

    ``state``: "up"; "dead", its daemon is gone; "does not answer" (``pid`` is given if the kernel reports it); "another
    user's", and only that user gets ``pid`` and ``ftl``; "unknown", it went away meanwhile; "held", not mounted here
    any more but still served, since ``held_by`` keep the mount; "busy", process ``pid`` has it and serves nothing: it
    writes the checkpoint after an unmount, recovers, or checks. ``mountpoints`` are those of ``file_system``, which is
    on ``loops``."""

    image: str
    ftl: str | None
    pid: int | None
    state: str
    directory: str | None
    file_system: str | None = None
    mountpoints: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    held_by: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def status(served: Collection[int] = ()) -> list[Mounted]:
    """Every flashfs mount that this process can see, oldest first; then every other image that is in use, but for those
    of the processes ``served``, which are listed elsewhere."""
    ours = [mount for mount in mounts.table() if mount.fs_type == mounts.FS_TYPE]
    looks = [asking.Question(partial(_look, mount)) for mount in ours]  # at once: several may not answer
    others = [asking.Question(partial(users.server, pid)) for pid in users.lockers()]
    began_s = time.monotonic()

    def ended(question: asking.Question[Any], within_s: float) -> bool:
        return question.ended(max(0.0, began_s + within_s - time.monotonic()))

    found = [look.answer() if ended(look, ANSWER_S + SLACK_S) else _silent(mount)
             for mount, look in zip(ours, looks, strict=True)]  # fmt: skip
    devices, pids = {mount.device for mount in ours}, {one.pid for one in found} | set(served)
    hidden = [server for other in others if ended(other, OTHERS_S) and (server := other.answer()) is not None]
    return found + [_elsewhere(one) for one in hidden if one.pid not in pids and one.device not in devices]


def _silent(mount: mounts.Mount) -> Mounted:
    return Mounted(mount.source, None, asking.daemon_of(mount.source), "does not answer", str(mount.mountpoint))


def _look(mount: mounts.Mount) -> Mounted:
    path = mount.mountpoint
    loops = mounts.loops_of(path / "disk")
    uppers = [upper for loop in loops for upper in mounts.table() if upper.source == str(loop)]
    state, config = _asked(path, mount.source)
    home = up_registry.read(path) if path.parent == up_registry.RUN else None
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
        return "up", mounts.text(path, "config.json", ANSWER_S)
    except asking.SilentError:
        return "does not answer", {"pid": asking.daemon_of(image)}
    except asking.DeadError:
        return "dead", {}
    except PermissionError:
        return "another user's", {}
    except (OSError, ValueError):  # it went away meanwhile
        return "unknown", {}


def _elsewhere(server: users.Server) -> Mounted:
    alive = server.serves and users.is_alive(server.device) is not False
    return Mounted(
        image=str(server.image),
        ftl=server.ftl,
        pid=server.pid,
        state="held" if alive else "busy",
        directory=None,
        held_by=users.holders(server.device, server.image, server.pid) if alive else [],
    )
