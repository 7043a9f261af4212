"""Bugs to plant: each is one that somebody could write, and a campaign that does not notice it proves nothing.

A *patch* changes one line of a compiled module, which is then built in a copy of the sources; a *plant* changes what
Python can reach while the process runs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flashfs import _recovery, _scan
from flashfs.crash.bench import Bench
from flashfs.ftl import SCHEMES

ROOT = Path(__file__).parent.parent.parent
BUILD_S = 600  #: a compiler that takes longer has gone wrong

Plant = Callable[[pytest.MonkeyPatch], None]


# --- at run time


def skip_step(name: str) -> Plant:
    """A recovery that leaves one of its steps out."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        steps = tuple(step for step in _recovery.Recovery.STEPS if step[0] != name)
        assert len(steps) == len(_recovery.Recovery.STEPS) - 1
        patch.setattr(_recovery.Recovery, "STEPS", steps)

    return plant


def after_recovery(change: Callable[[Any, Any], None]) -> Plant:
    """A recovery that spoils one thing once it is done: ``change(ssd, report)``."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        class Planted(_recovery.Recovery):  # type: ignore[misc, name-defined]
            def __init__(self, ssd: Any, readonly: bool = False) -> None:
                super().__init__(ssd, readonly)
                self.ssd = ssd

            def run(self) -> Any:
                report = super().run()
                change(self.ssd, report)
                return report

        patch.setattr(_recovery, "Recovery", Planted)

    return plant


def forget_mount_mark(ssd: Any, report: Any) -> None:
    """After a clean mount, nothing is programmed behind the checkpoint to say that it is clean no more."""
    if report.clean:
        ssd.resume(ssd.seq, ssd.mounts, False)


def restart_sequence(ssd: Any, report: Any) -> None:
    """Sequence numbers begin again after a recovery, so new pages look older than old ones."""
    ssd.resume(0, ssd.mounts, report.clean)


def empty_flush(patch: pytest.MonkeyPatch) -> None:
    """A flush that is acknowledged and does nothing."""
    patch.setattr(Bench, "flush", lambda bench: bench.judge.flushed())


def lost_newest_trim(patch: pytest.MonkeyPatch) -> None:
    """The last record of each trim page is overlooked."""
    records = _scan.trim_records
    patch.setattr(_scan, "trim_records", lambda raw: records(raw)[:-1])


def trimmed_pages_come_back(patch: pytest.MonkeyPatch) -> None:
    """A trim that reaches the mapping, but for its last page."""
    step = Bench.step

    def planted(bench: Bench, operation: str, lpa: int, n: int) -> None:
        if operation == "t":
            bench.judge.will_trim(lpa, n)
            if n > 1:
                bench.ssd.trim_pages(lpa, n - 1)
        else:
            step(bench, operation, lpa, n)

    patch.setattr(Bench, "step", planted)


# --- in a compiled module


@dataclass(frozen=True, slots=True)
class Patch:
    """``old`` becomes ``new`` in ``module`` (a path below the root, without .pyx); it must be there exactly once."""

    module: str
    old: str
    new: str

    def build(self, into: Path) -> Path:
        """A copy of the sources under ``into``, patched, with that one module built anew; what goes in PYTHONPATH."""
        for package in ("nandimg", "flashfs"):
            shutil.copytree(ROOT / package, into / package, ignore=shutil.ignore_patterns("__pycache__"))
        setup = (ROOT / "setup.py").read_text()
        only = f"MODULES = [{self.module.replace('/', '.')!r}]"
        setup = re.sub(r"MODULES = \[.*?\]", only, setup, count=1, flags=re.DOTALL)
        (into / "setup.py").write_text(setup.replace('"-O3"', '"-O1"'))  # half the time; bugs need no speed
        source = into / f"{self.module}.pyx"
        text = source.read_text()
        assert text.count(self.old) == 1, f"{self.module}.pyx has {text.count(self.old)} times {self.old!r}"
        source.write_text(text.replace(self.old, self.new))
        for stale in into.glob(f"{self.module}.cpython-*.so"):
            stale.unlink()
        build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        done = subprocess.run(build, cwd=into, env=environment(into), capture_output=True, text=True, timeout=BUILD_S)
        assert done.returncode == 0, done.stderr[-2000:]
        return into


def environment(path: Path) -> dict[str, str]:
    """Ours, but for where modules come from."""
    return {**os.environ, "PYTHONPATH": str(path)}


@dataclass(frozen=True, slots=True)
class Bug:
    """``of`` lists the FTLs that it is in; ``where`` is the part of the device."""

    where: str
    how: Plant | Patch
    of: tuple[str, ...] = tuple(SCHEMES)


BUGS: dict[str, Bug] = {
    "a flush that does nothing": Bug("host interface", empty_flush),
    "a trim that forgets its last page": Bug("host interface", trimmed_pages_come_back),
    "a recovery that reads no trims": Bug("recovery", skip_step("trims")),
    "a recovery that overlooks the newest trim": Bug("recovery", lost_newest_trim),
    "a recovery that scans no pages": Bug("recovery", skip_step("scan")),
    "a recovery that takes no winners": Bug("recovery", skip_step("resolve")),
    "a recovery that takes no checkpoint": Bug("recovery", skip_step("checkpoint")),
    "a recovery that leaves the NVRAM alone": Bug("recovery", skip_step("nvram")),
    "a recovery that does not commit": Bug("recovery", skip_step("commit")),
    "a clean mount that leaves no mark": Bug("metadata log", after_recovery(forget_mount_mark)),
    "sequence numbers that begin again": Bug("core", after_recovery(restart_sequence)),
    "a recovery that does not compare sequence numbers": Bug(
        "recovery",
        Patch("flashfs/_recovery", "    if a.seq != b.seq:\n        return a.seq < b.seq\n", ""),
    ),
    "a recovery that believes a torn last page": Bug(
        "recovery", Patch("flashfs/_scan", "if last != NONE and last == page - 1:", "if False:")
    ),
    "a recovery that lets the original win over its copy": Bug(
        "recovery", Patch("flashfs/_recovery", "return a.order < b.order", "return a.order > b.order")
    ),
    "a block with a torn page that is opened again": Bug(
        "recovery", Patch("flashfs/_recovery", "and block not in self.torn_in\n", "\n"), ("slimftl",)
    ),
    "a flush that leaves the write buffer": Bug(
        "core",
        Patch("flashfs/_core",
              "            self.drain()\n            if self.placement.pads:", "            if self.placement.pads:"),
    ),
    "a barrier that logs no trims": Bug(
        "core",
        Patch("flashfs/_core",
              "        self.meta.log_trims()\n        self.pad_pairs()\n        self.sync_image()\n        self.syncs",
              "        self.pad_pairs()\n        self.sync_image()\n        self.syncs"),
    ),
    "a sync that leaves groups of paired pages half filled": Bug(
        "core",
        Patch("flashfs/_core", "        self.pad_pairs()\n        self.sync_image()\n        self.syncs += 1",
              "        self.sync_image()\n        self.syncs += 1"),
    ),
    "a checkpoint that is not synced before the last one is given up": Bug(
        "core", Patch("flashfs/_core", "self.mounts, clean)\n            self.sync_image()\n",
                      "self.mounts, clean)\n")
    ),
    "a dead block that is free before the next sync": Bug(
        "pool",
        Patch("flashfs/_pool",
              "        self.state[block] = STATE_PENDING\n        self.ready_ns[block] = ready_ns\n"
              "        self.pending[self.pending_n] = block\n        self.pending_n += 1\n        return 0",
              "        self.ready_ns[block] = ready_ns\n        self.push(block)\n        return 0"),
    ),
    "a block that failed and is not marked bad": Bug(
        "pool", Patch("flashfs/_pool", "        self.nand.retire(block)\n        self.state[block] = STATE_BAD",
                      "        self.state[block] = STATE_BAD")
    ),
    "a protected slot that is written over": Bug(
        "write buffer",
        Patch("flashfs/_buffer", "                if not self.in_nvram:\n", "                if True:\n"),
    ),
    "an NVRAM slot whose checksum is not asked": Bug(
        "write buffer",
        Patch("flashfs/_buffer", 'if self._sum(raw[4:]) == int.from_bytes(raw[:4], "little"):', "if any(raw):"),
    ),
    "copies that bear the order of the block they came from": Bug(
        "mover", Patch("flashfs/_mover", "order = self.ssd.pool.order[ext.block]",
                       "order = self.ssd.pool.order[self.olds[0] // self.pages_per_block]")
    ),
    "a stream that opens a block without making room": Bug(
        "placement",
        Patch("flashfs/_defaults", "                self.ssd.make_room()\n            elif",
              "                pass\n            elif"),
        ("pagemap", "leaftl"),
    ),
    "a page table that loads one entry too few": Bug(
        "pagemap", Patch("flashfs/_defaults", "memcpy(self.table, &saved[0], self.ssd.lpas * sizeof(uint32_t))",
                         "memcpy(self.table, &saved[0], (self.ssd.lpas - 1) * sizeof(uint32_t))"), ("pagemap",)
    ),
    "a copy that is stamped with another HID": Bug(
        "slimftl", Patch("flashfs/ftl/slimftl", "oob[4] = <uint8_t> hid",
                         "oob[4] = <uint8_t> (hid % HIDS + 1 if moving else hid)"), ("slimftl",)
    ),
    "a VBT that is not repointed after cleaning": Bug(
        "slimftl", Patch("flashfs/ftl/slimftl", "        self.slim.set_block(vba, fresh)\n        return 0",
                         "        return 0"), ("slimftl",)
    ),
    "a PPID that is not renewed after cleaning": Bug(
        "slimftl", Patch("flashfs/ftl/slimftl", "news[i] % self.ssd.nand.pages_per_block)",
                         "olds[i] % self.ssd.nand.pages_per_block)"), ("slimftl",)
    ),
    "a CRB entry that a newer segment does not take": Bug(
        "leaftl", Patch("flashfs/_group", "    if new.slope & APPROXIMATE:\n        claim(group, members)\n", ""),
        ("leaftl",)
    ),
    "a compaction that leaves the oldest segments on top": Bug(
        "leaftl",
        Patch("flashfs/_group", "    drop_hidden(group)\n    memset(under,",
              "    drop_hidden(group)\n    for i in range(group.n // 2):\n"
              "        x = group.n - 1 - i\n"
              "        group.segments[i], group.segments[x] = group.segments[x], group.segments[i]\n"
              "        group.members[i], group.members[x] = group.members[x], group.members[i]\n"
              "    memset(under,"),
        ("leaftl",)
    ),
    "a list of neighbours that is off by one": Bug(
        "leaftl", Patch("flashfs/ftl/leaftl", "memcpy(oob + 4 * gamma, lpas + i + 1, 4 * right)",
                        "memcpy(oob + 4 * gamma, lpas + i, 4 * right)"), ("leaftl",)
    ),
    "a block older than the checkpoint that is learned again": Bug(
        "leaftl", Patch("flashfs/_scan", "self.scan_block(block, self.ssd.pool.next_page[block])",
                        "self.scan_block(block, 0)"), ("leaftl",)
    ),
    "a translation page that dies though the checkpoint stands on it": Bug(
        "leaftl", Patch("flashfs/_translation", "        self.kept.insert(ppa)\n        return 0",
                        "        self.ssd.validity.dead(&ppa, 1)\n        return 0"), ("leaftl",)
    ),
    "a superseded translation page that is lost when it moves": Bug(
        "leaftl", Patch("flashfs/_translation", "            self.kept.insert(new)\n            return True",
                        "            return True"), ("leaftl",)
    ),
    "a recovery that believes translation pages newer than the checkpoint": Bug(
        "leaftl", Patch("flashfs/_scan", "self.base is not None and oob.seq <= self.base.seq and oob.lpa <",
                        "self.base is not None and oob.lpa <"), ("leaftl",)
    ),
    "a change that leaves its leaf clean": Bug(
        "leaftl", Patch("flashfs/_table_pages", "        leaf.clean = False\n        self.written -= 1",
                        "        self.written -= 1"), ("leaftl",)
    ),
}  # fmt: skip
