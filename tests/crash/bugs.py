"""Bugs to plant: each is a plausible mistake, and a campaign that does not notice it proves nothing.

A *patch* changes one line of a compiled module, which is then built in a copy of the sources; a *plant* changes what
Python can reach while the process runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from plants import (
    Plant,
    after_recovery,
    empty_flush,
    forget_mount_mark,
    lost_newest_trim,
    restart_sequence,
    skip_step,
    trimmed_pages_come_back,
)

from flashfs.ftl import SCHEMES

ROOT = Path(__file__).parent.parent.parent
BUILD_S = 600  #: a compiler that takes longer has gone wrong


# --- in a compiled module


def unused(_: str, names: list[str]) -> set[str]:
    """What Cython made of the modules in a folder: nine tenths of the bytes. The patched one is written anew."""
    made = {f"{Path(name).stem}{end}" for name in names if name.endswith(".pyx") for end in (".c", ".cpp")}
    return {"__pycache__", *made} & set(names)


@dataclass(frozen=True, slots=True)
class Patch:
    """``old`` becomes ``new`` in ``module``, a path below flashfs/, or below the root if it begins with it or nandimg/:
    without .pyx, or of a module in Python; it must be there exactly once."""

    module: str
    old: str
    new: str

    @property
    def file(self) -> str:
        """From the root on."""
        path = self.module if self.module.startswith(("flashfs/", "nandimg/")) else f"flashfs/{self.module}"
        return path if path.endswith(".py") else f"{path}.pyx"

    def build(self, into: Path) -> Path:
        """A copy of the sources under ``into``, patched, with that one module built anew; what goes in PYTHONPATH."""
        for package in ("nandimg", "flashfs"):
            shutil.copytree(ROOT / package, into / package, ignore=unused)
        setup = (ROOT / "setup.py").read_text()
        (into / "setup.py").write_text(setup.replace('"-O2"', '"-O1"'))  # half the time; bugs need no speed
        source = into / self.file
        text = source.read_text()
        assert text.count(self.old) == 1, f"{self.file} has {text.count(self.old)} times {self.old!r}"
        source.write_text(text.replace(self.old, self.new))
        if source.suffix == ".py":
            return into
        for stale in into.glob(f"{source.relative_to(into).with_suffix('')}.cpython-*.so"):
            stale.unlink()
        build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        alone = {**environment(into), "FLASHFS_ONLY": self.file}
        done = subprocess.run(build, cwd=into, env=alone, capture_output=True, text=True, timeout=BUILD_S)
        assert done.returncode == 0, done.stderr[-2000:]
        return into


def environment(path: Path) -> dict[str, str]:
    """Ours, but for where modules come from."""
    return {**os.environ, "PYTHONPATH": str(path)}


@dataclass(frozen=True, slots=True)
class Bug:
    """``of`` lists the FTLs that it is in; ``where`` is the part of the device. If no scheme has the part yet, ``test``
    is what must fail of it: a test below tests/, of a scheme of its own."""

    where: str
    how: Plant | Patch
    of: tuple[str, ...] = tuple(SCHEMES)
    test: str = ""


def listed(path: Path, part: str = "", of: tuple[str, ...] = tuple(SCHEMES)) -> dict[str, Bug]:
    """The bugs of a TOML file, each in the schemes ``of``, unless it says otherwise. Those of a scheme's own modules,
    the ``part``, name no folder where the module is in the scheme's."""
    found = {}
    for one in tomllib.loads(path.read_text())["bug"]:
        own = part and "/" not in one["module"]
        patch = Patch(f"flashfs/ftl/{part}/{one['module']}" if own else one["module"], one["old"], one["new"])
        test = one.get("test", "")
        found[one["name"]] = Bug(one.get("part", part), patch, () if test else tuple(one.get("of", of)), test)
    return found


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
}  # fmt: skip
for file in sorted(Path(__file__).with_name("planted").glob("*.toml")):
    BUGS |= listed(file)
for file in sorted((ROOT / "tests" / "ftl").glob("*/bugs.toml")):
    BUGS |= listed(file, file.parent.name, (file.parent.name,))
