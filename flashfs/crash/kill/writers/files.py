"""The program that works on a file system while the device under it is killed. It runs as a script, in a process of
its own, and knows nothing of flashfs.

    python files.py ROOT LOG SEED STATE

It changes files under ROOT, one at a time, each change made durable before the next. LOG, which lies elsewhere, gets a
line before each change (what is meant) and one after its fsync has returned (it is acknowledged). STATE is a JSON file
with what is there: ``{"generation": N, "files": {NAME: [GENERATION, SIZE]}}``. It ends at the first error: 0
if the device is gone, 3 with the error on stderr for any other.
"""

from __future__ import annotations

import errno
import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

BLOCK_BYTES = 4096
NAMES = 32
SIZES = (500, 4096, 8192, 20_000, 65_536, 131_072, 524_288)  #: bytes; odd ones have a ragged end
#: what a dead device answers; ENOSPC is ext4's word for bitmaps that it cannot read
GONE = (errno.EIO, errno.EROFS, errno.ENOTCONN, errno.ENXIO, errno.ENODEV, errno.ENOSPC)


def content(seed: str, generation: int, size: int) -> bytes:
    """The bytes of a generation: every one differs from every other in every block."""
    return random.Random(f"{seed} {generation}").randbytes(size)


class Writer:
    """``files`` holds what is acknowledged: name -> [generation, size]."""

    def __init__(self, root: Path, log: int, seed: str, state: dict[str, Any]) -> None:
        self.root = root
        self.log = log
        self.seed = seed
        self.generation: int = state["generation"]
        self.files: dict[str, list[int]] = state["files"]
        self.rnd = random.Random(f"writer {seed} {self.generation}")
        self.folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)

    def say(self, **what: Any) -> None:
        """One line of the log, in one write."""
        os.write(self.log, (json.dumps(what) + "\n").encode())

    def run(self) -> None:
        """Make changes in a row until an OSError."""
        while True:
            self.step()

    def step(self) -> None:
        """One change: logged, made, made durable, acknowledged. In 30 % of the steps, noise without an fsync first."""
        if self.rnd.random() < 0.3:
            self.noise()
        names = [name for name in self.files if name.startswith("f")]
        kind = self.rnd.choices(("create", "overwrite", "replace", "rename", "delete"), weights=(25, 35, 20, 10, 10))[0]
        if not names or (kind == "create" and len(names) == NAMES):
            kind = "overwrite" if names else "create"
        name = self.rnd.choice(names) if names else ""
        free = sorted({f"f{i}" for i in range(NAMES)} - set(names))
        if kind == "create":
            name = self.rnd.choice(free)
        self.generation += 1
        getattr(self, kind)(name)

    def fresh(self, name: str, size: int | None = None) -> tuple[list[int], bytes]:
        """(record, bytes) of a new generation of ``name``."""
        size = self.rnd.choice(SIZES) if size is None else size
        return [self.generation, size], content(self.seed, self.generation, size)

    def put(self, name: str, data: bytes, flags: int) -> None:
        handle = os.open(name, os.O_WRONLY | flags, 0o600, dir_fd=self.folder)
        try:
            for at in range(0, len(data), 1 << 16):
                os.pwrite(handle, data[at : at + (1 << 16)], at)
            os.fsync(handle)
        finally:
            os.close(handle)

    def create(self, name: str) -> None:
        """Create a file, and make its name durable."""
        meant, data = self.fresh(name)
        self.say(kind="create", name=name, meant=meant)
        self.put(name, data, os.O_CREAT | os.O_EXCL)
        os.fsync(self.folder)
        self.done(name, meant)

    def overwrite(self, name: str) -> None:
        """Write new bytes of the same size in place: each block is old or new at any time."""
        meant, data = self.fresh(name, self.files[name][1])
        self.say(kind="overwrite", name=name, meant=meant)
        self.put(name, data, 0)
        self.done(name, meant)

    def replace(self, name: str) -> None:
        """Write a new file under another name and rename it over the old: old or new, never a mix."""
        meant, data = self.fresh(name)
        self.say(kind="replace", name=name, meant=meant)
        self.put("tmp", data, os.O_CREAT | os.O_TRUNC)
        os.rename("tmp", name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        os.fsync(self.folder)
        self.done(name, meant)

    def rename(self, name: str) -> None:
        """Rename to another name, which may exist."""
        to = self.rnd.choice([f"f{i}" for i in range(NAMES) if f"f{i}" != name])
        self.say(kind="rename", name=name, to=to)
        os.rename(name, to, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        os.fsync(self.folder)
        self.done(to, self.files[name], gone=name)

    def delete(self, name: str) -> None:
        """Delete the file, and make that durable."""
        self.say(kind="delete", name=name)
        os.unlink(name, dir_fd=self.folder)
        os.fsync(self.folder)
        self.done(None, None, gone=name)

    def noise(self) -> None:
        """Write a file without an fsync, which may hold anything after a crash."""
        handle = os.open(f"noise{self.rnd.randrange(4)}", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=self.folder)
        try:
            os.pwrite(handle, self.rnd.randbytes(self.rnd.choice(SIZES)), 0)
        finally:
            os.close(handle)

    def done(self, name: str | None, record: list[int] | None, gone: str | None = None) -> None:
        """Record and log that the change is acknowledged."""
        if gone is not None:
            del self.files[gone]
        if name is not None and record is not None:
            self.files[name] = record
        self.say(done=self.generation, name=name, record=record, gone=gone, up=self.is_up())

    def is_up(self) -> bool:
        """Whether the file system still answers after its fsync. After a shutdown, xfs returns 0 for the fsync of a
        folder without writing anything: its log dropped the change, so nothing seems to be left to write. Such an
        acknowledgement is worthless, so the log has this flag."""
        try:
            os.fstat(self.folder)
        except OSError:
            return False
        return True


def log_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; an incomplete last line is left out."""
    for line in path.read_bytes().splitlines():
        with suppress(ValueError):
            yield json.loads(line)


def main(root: str, log: str, seed: str, state: str) -> int:
    """See the module's docstring."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        Writer(Path(root), handle, seed, json.loads(Path(state).read_text())).run()
    except OSError as error:
        if error.errno in GONE:
            return 0
        print(f"writer: {error}", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
