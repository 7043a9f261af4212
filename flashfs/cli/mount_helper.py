"""``mount -t fuse.flashfs IMAGE MOUNTPOINT -o ftl=slimftl,...``, and so a line of /etc/fstab.

mount(8) calls ``/sbin/mount.fuse.flashfs IMAGE MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE]``; where there is none,
libfuse's ``/sbin/mount.fuse`` calls ``flashfs IMAGE MOUNTPOINT -o OPTIONS``. umount(8) calls
``/sbin/umount.fuse.flashfs MOUNTPOINT [-nlfvr]``. Exit codes are mount(8)'s.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from flashfs.errors import UsageError

#: of `flashfs mount`, with a value and without; a dash in a name may be an underscore here
VALUED = ("ftl", "opt", "dram", "server", "sync", "log", "fault", "record")
FLAGS = ("trust", "plp", "realtime", "allow-other")
REMOUNT = "remount"  #: changes nothing, and is an error if something else would have to change
#: what fstab and mount(8) add for themselves, or the kernel's default for FUSE covers
NOT_OURS = {
    "rw", "defaults", "auto", "noauto", "nofail", "fail", "_netdev", "user", "users", "nouser", "owner", "group",
    "dev", "nodev", "suid", "nosuid", "exec", "noexec", "async", "sync", "dirsync", "atime", "noatime", "relatime",
    "norelatime", "strictatime", "nostrictatime", "diratime", "nodiratime", "lazytime", "nolazytime", "iversion",
    "noiversion", "silent", "loud", "helper", "uhelper", "comment", "setuid",
}  # fmt: skip
#: flashfs's exit codes, in mount(8)'s
CODES = {0: 0, 1: 32, 2: 1, 130: 8}
WITH_ARGUMENT = {"-o", "-t", "-N", "--options", "--types", "--namespace"}


def is_asked(arguments: Sequence[str], commands: Collection[str]) -> bool:
    """Whether libfuse's mount.fuse calls us: IMAGE MOUNTPOINT -o OPTIONS, and no command."""
    return len(arguments) == 4 and arguments[2] == "-o" and arguments[0] not in commands


def mount(arguments: Sequence[str], run: Callable[[Sequence[str]], int]) -> int:
    """Does what mount(8) asks by ``run``, which takes a command line of flashfs; mount(8)'s exit code is returned.
    UsageError for options that mean nothing here."""
    places, letters, options = split(arguments)
    if len(places) != 2:
        raise UsageError("use: mount.fuse.flashfs IMAGE MOUNTPOINT [-o OPTIONS], as mount(8) calls it")
    words = ["mount", *translated(options, sloppy="s" in letters), "--", *places]
    if "f" in letters:  # only as if
        return 0
    if "v" in letters:
        words.insert(1, "--verbose")
    return said(words, run, aloud="v" in letters)


def unmount(arguments: Sequence[str], run: Callable[[Sequence[str]], int]) -> int:
    """The same for umount(8): returns when the checkpoint is durable, with -l at once."""
    places, letters, _ = split(arguments)
    if len(places) != 1:
        raise UsageError("use: umount.fuse.flashfs MOUNTPOINT, as umount(8) calls it")
    if "l" in letters:
        from flashfs.fuse import mounts  # not for each command: it takes time to import

        mounts.release(mounts.absolute(Path(places[0])), lazy=True)  # the daemon ends with the mount's last user
        return 0
    return said(["umount", "--", *places], run, aloud="v" in letters)


def said(words: Sequence[str], run: Callable[[Sequence[str]], int], *, aloud: bool) -> int:
    """mount(8) says nothing of what went well, unless it is asked."""
    with nullcontext() if aloud else redirect_stdout(Quiet()):
        code = run(words)
    return CODES.get(code, 32)


class Quiet(io.TextIOWrapper):
    """A stdout that nobody reads."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")


def split(arguments: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """What is no option, the letters of those without a value, and the words of all -o."""
    places: list[str] = []
    letters = ""
    options: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word in WITH_ARGUMENT:
            value = next(rest, None)
            if value is None:
                raise UsageError(f"{word}: its value is missing")
            if word in ("-o", "--options"):
                options += words_of(value)
        elif word.startswith("-") and len(word) > 1:
            letters += word[1:]
        else:
            places.append(word)
    return places, letters, options


def words_of(value: str) -> list[str]:
    """Split at commas; one that a value has of its own is in double quotes, as mount(8) wants it, or behind a
    backslash."""
    out, word, quoted = [], "", False
    rest = iter(value)
    for letter in rest:
        if letter == "\\":
            word += next(rest, "\\")
        elif letter == '"':
            quoted = not quoted
        elif letter == "," and not quoted:
            out.append(word)
            word = ""
        else:
            word += letter
    return [one for one in [*out, word] if one]


def translated(options: Sequence[str], *, sloppy: bool) -> list[str]:
    """Mount options as those of `flashfs mount`."""
    out: list[str] = []
    for option in options:
        key, sign, value = option.partition("=")
        name = key.replace("_", "-")
        if name in VALUED and sign:
            out += [f"--{name}", value]
        elif name in (*FLAGS, REMOUNT) and not sign:
            out.append(f"--{name}")
        elif key == "ro":
            raise UsageError("-o ro: an SSD is mounted to be written; use rw here, and ro for the file system on it")
        elif key not in NOT_OURS and not key.startswith(("x-", "X-")) and not sloppy:
            known = ", ".join([*(f"{name}=" for name in VALUED), *(name.replace("-", "_") for name in FLAGS)])
            raise UsageError(f"-o {option}: no option of flashfs; use {known}")
    return out
