"""What is mounted: whether a test left anything, and a mount namespace for a command, which holds no mount of the tests
that run beside it: a copy of a mount keeps its daemon alive, and their `umount` would say so."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from flashfs.fuse import mounts

#: $0 is the folder whose mounts stay, $@ the command. Mountinfo writes a blank of a path as \040.
ALONE = r"""
while read -r _ _ _ _ at rest; do
    case $rest in *" fuse.flashfs "* | *" /dev/loop"*) ;; *) continue ;; esac
    case $at in "$0"/*) ;; *) umount -l "$(printf %b "$at")" 2>/dev/null ;; esac
done </proc/self/mountinfo
exec "$@"
"""


def anything_mounted(folder: Path) -> bool:
    """Whether a mount is below ``folder``, or an image of it mounted elsewhere, or a loop device has a file of it. The
    tests beside this one mount names that are no UTF-8, and take their loop devices away meanwhile."""
    named = [f"{mount.mountpoint}\n{mount.source}" for mount in mounts.table()]
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            named.append(os.fsdecode(backing.read_bytes()))
    return any(str(folder) in one for one in named)


def apart(folder: Path) -> list[str]:
    """The words before a command that give it a mount namespace of its own: of the devices and their file systems
    mounted just now, it has those in ``folder`` alone."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare (package util-linux), for a mount namespace")
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", ALONE, str(folder)]
