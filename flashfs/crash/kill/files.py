"""Files that are created, overwritten, replaced, renamed and deleted, each change followed by its fsync."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from flashfs.crash.kill.workload import PYTHON, Lost, Workload
from flashfs.crash.kill.writers import files as writer

Record = list[int]  #: [generation, size], which determine a file's bytes
content = lru_cache(maxsize=128)(writer.content)


class Files(Workload):
    """``files`` is what was settled, or acknowledged since; ``pending`` is the change under way at the kill."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state = self.folder / "state.json"
        self.generation = 0
        self.files: dict[str, Record] = {}
        self.pending: dict[str, Any] | None = None
        self.found: dict[str, Record] = {}
        self.removed: set[str] = set()  #: by the judge, since the kill

    def command(self) -> list[str]:
        self.log.unlink(missing_ok=True)
        self.state.write_text(json.dumps({"generation": self.generation, "files": self.files}))
        return [*PYTHON, writer.__file__, str(self.root), str(self.log), self.seed, str(self.state)]

    def read_log(self) -> None:
        self.pending = None
        self.removed.clear()
        for line in writer.log_lines(self.log) if self.log.exists() else ():
            if "kind" in line:
                self.pending = line
                continue
            self.generation = line["done"]
            if not line["up"]:  # acknowledged by a file system that was shut down: still under way, and the last change
                break
            self.pending = None
            if line["gone"]:
                del self.files[line["gone"]]
            if line["name"]:
                self.files[line["name"]] = line["record"]
        self.generation += 1  # the generation under way is not reused

    def settled(self) -> None:
        self.files, self.pending = self.found, None

    # --- the judge

    def judge(self) -> None:
        """Every file must be as acknowledged; the one that was being changed, old or new."""
        self.found = dict(self.files)
        pending = self.pending
        touched = {pending["name"], pending.get("to")} if pending else set()
        there = {entry.name for entry in self.root.iterdir() if entry.is_file()}
        for name, record in self.files.items():
            if name not in touched:
                self.must_be(name, record)
        for name in there - set(self.files) - touched:
            if not name.startswith(("noise", "tmp", "ballast")):
                raise Lost(f"{name} is back: its removal was acknowledged")
        if pending:
            self.judge_pending(pending)

    def must_be(self, name: str, record: Record) -> None:
        try:
            data = (self.root / name).read_bytes()
        except FileNotFoundError as error:
            raise Lost(f"{name} (generation {record[0]}, acknowledged): {error.strerror}") from None
        if data != self.meant(record):
            raise Lost(f"{name} (generation {record[0]}, acknowledged) {differs(data, self.meant(record))}")

    def meant(self, record: Record) -> bytes:
        return content(self.seed, *record)

    def is_it(self, name: str, record: Record | None) -> bool:
        return record is not None and (self.root / name).read_bytes() == self.meant(record)

    def judge_pending(self, change: dict[str, Any]) -> None:
        """Judge the change that was under way. A file that is neither old nor new is removed for the next round."""
        name, kind = change["name"], change["kind"]
        old, new = self.files.get(name), change.get("meant")
        path = self.root / name
        if kind == "rename":
            self.judge_renaming(name, change["to"])
        elif not path.exists():
            if kind in ("overwrite", "replace") and name not in self.removed:
                raise Lost(f"{name} (generation {old[0] if old else 0}) is gone: {kind} was under way")
            self.found.pop(name, None)
        elif kind == "delete":
            self.must_be(name, old or [0, 0])
        elif self.is_it(name, new):
            self.found[name] = new or [0, 0]
        elif kind == "create" or not self.is_it(name, old):
            if kind == "replace":
                raise Lost(f"{name}, being replaced: neither old nor new")
            self.judge_blocks(path, old, new or [0, 0])
            path.unlink()
            self.removed.add(name)
            self.found.pop(name, None)

    def judge_renaming(self, name: str, to: str) -> None:
        """The file must be under exactly one of the two names, with the other as before or after the rename."""
        record = self.files[name]
        there = [n for n in (name, to) if (self.root / n).exists() and self.is_it(n, record)]
        if len(there) != 1:
            raise Lost(f"{name}, being renamed to {to}: is at {there or 'neither place'}")
        if there == [to]:
            if (self.root / name).exists():
                raise Lost(f"{name}, renamed to {to}: something is at the old place")
            self.found[to] = self.found.pop(name)
        elif to in self.files:
            self.must_be(to, self.files[to])
        elif (self.root / to).exists():
            raise Lost(f"{name}, not yet renamed to {to}: something is at the new place")

    def judge_blocks(self, path: Path, old: Record | None, new: Record) -> None:
        """A file being written in place: each block is the old one (zeros if there was none) or the new one."""
        data = path.read_bytes()
        after = self.meant(new)
        before = self.meant(old) if old else bytes(len(after))
        if len(data) > len(after) or (old and len(data) != len(before)):
            raise Lost(f"{path.name}, being written: has {len(data)} bytes, and {len(after)} were meant")
        for i, block in enumerate(blocks(data)):
            meant = blocks(after)[i]
            # A new file may end in the middle of what was meant; an old one has its size.
            if block not in (blocks(before)[i], meant, meant[: len(block)], bytes(len(block)) if not old else meant):
                raise Lost(f"{path.name}, being written: block {i} is neither old nor new")


def differs(data: bytes, meant: bytes) -> str:
    """How a file differs from what was acknowledged."""
    bad = [i for i, (a, b) in enumerate(zip(blocks(data), blocks(meant), strict=False)) if a != b]
    zeros = sum(not any(blocks(data)[i]) for i in bad)
    return f"has {len(data)} of {len(meant)} bytes, {len(bad)} blocks differ from {bad[:1]} on, {zeros} are zeros"


@lru_cache(maxsize=4)
def blocks(data: bytes) -> tuple[bytes, ...]:
    """The data in blocks; each block is old or new as a whole."""
    return tuple(data[at : at + writer.BLOCK_BYTES] for at in range(0, len(data), writer.BLOCK_BYTES))
