"""A copy of the project whose modules have their mutants compiled in."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from mutants.sites import Site, drawn, find

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MOST = 1 << 18  #: numbers, over all modules
EACH = 2048  #: numbers of one module
#: the modules; their order determines the mutants' numbers
NAMES = """
    flashfs/engine/device/ssd flashfs/engine/device/mover flashfs/engine/device/buffer flashfs/engine/device/cache
    flashfs/engine/device/byte_requests flashfs/engine/device/metalog flashfs/engine/recovery/scan
    flashfs/engine/recovery/found_pages flashfs/engine/recovery/trim_index flashfs/engine/recovery/recovery
    flashfs/parts/paged/part_pages flashfs/ftl/leaftl/table_pages flashfs/ftl/leaftl/segments
    flashfs/ftl/slimftl/mapping flashfs/ftl/leaftl/mapping nandimg/_chip flashfs/engine/recovery/spill_array
    flashfs/parts/paged/demand_map flashfs/parts/paged/pending_entries flashfs/parts/battery/battery
    flashfs/parts/paged/cmt flashfs/parts/paged/cached_map flashfs/parts/paged/paged_map
    flashfs/parts/defaults/map_check flashfs/ftl/leaftl/gmd flashfs/ftl/leaftl/lookup flashfs/ftl/leaftl/recovery
    flashfs/ftl/leaftl/blocks flashfs/ftl/slimftl/placement flashfs/engine/recovery/resolve
    flashfs/engine/recovery/records flashfs/engine/blocks/pool flashfs/parts/defaults/page_table
    flashfs/parts/defaults/page_bitmap flashfs/parts/defaults/streams flashfs/parts/defaults/greedy
    flashfs/parts/from_pages/fences flashfs/parts/from_pages/fenced_map flashfs/parts/from_pages/fenced_log
    flashfs/parts/from_pages/rebuild flashfs/parts/validity/flash_bitmap flashfs/parts/validity/validity_log
    flashfs/parts/validity/flash_validity flashfs/parts/validity/bitmap_battery flashfs/parts/battery/map_battery
    flashfs/parts/paged/map_btree flashfs/parts/paged/entry_pages flashfs/parts/paged/newer_section
    flashfs/parts/paged/two_level_cache flashfs/parts/paged/tpftl_map flashfs/parts/superblocks/superblocks
    flashfs/ftl/geckoftl/mapping flashfs/ftl/geckoftl/store flashfs/ftl/geckoftl/runs flashfs/ftl/geckoftl/gecko
    flashfs/ftl/remapssd/rmm flashfs/ftl/remapssd/mapping flashfs/ftl/remapssd/counts flashfs/ftl/learnedftl/mapping
    flashfs/ftl/hpftl/mapping flashfs/ftl/sftl/mapping flashfs/ftl/leaftl/group flashfs/ftl/fast/mapping
    flashfs/ftl/fast/merges flashfs/engine/device/durable flashfs/engine/device/writer flashfs/engine/device/upkeep
    flashfs/engine/recovery/found flashfs/engine/recovery/log_reader flashfs/engine/recovery/clean_start
    flashfs/engine/recovery/block_states flashfs/engine/recovery/mend flashfs/engine/recovery/follow
"""
MODULES = tuple(f"{name}.pyx" for name in NAMES.split())
COPIED = ("flashfs", "nandimg", "tests", "bench", "tools", "docs", "examples", "pyproject.toml", "README.md", "SPEC.md",
          "CHANGELOG.md")  # fmt: skip
DRAWERS = ("sites.py", "text.py", "schemata.py", "switch.h")  #: the files of this tool that mutants depend on
LIBRARY = "libflashfs_mutants.so"
#: unset variables hold a pattern, so that a dropped assignment does not leave the right value by chance
OPTIONS = ("-O1", "-w", "-shared", "-fPIC", "-fno-strict-aliasing", "-ftrivial-auto-var-init=pattern",
           "-DCYTHON_PROFILE=0", "-DCYTHON_TRACE=0")  # fmt: skip
AROUND = 3  #: lines of context in a diff


@dataclass(frozen=True, slots=True)
class Module:
    """The mutants compiled into one module, by number, and those that a compiler rejected."""

    name: str
    digest: str
    mutants: dict[int, Site]
    rejected: list[Site]

    def as_dict(self) -> dict[str, Any]:
        return {
            "digest": self.digest,
            "mutants": {str(number): site.as_dict() for number, site in self.mutants.items()},
            "rejected": [site.as_dict() for site in self.rejected],
        }

    @classmethod
    def of(cls, name: str, found: dict[str, Any]) -> Module:
        mutants = {int(number): Site(**site) for number, site in found["mutants"].items()}
        return cls(name, found["digest"], mutants, [Site(**site) for site in found["rejected"]])


class NotBuilt(Exception):
    """A compiler refused something that is no mutant's fault."""


def digest_of(name: str, seed: int, count: int) -> str:
    """A hash of all that a module's mutants depend on: its sources, the code that draws them, the seed, the count."""
    hashed = sha256(f"{seed} {count}".encode())
    for path in (ROOT / name, (ROOT / name).with_suffix(".pxd"), *(HERE / part for part in DRAWERS)):
        if path.is_file():
            hashed.update(path.read_bytes())
    return hashed.hexdigest()[:16]


def copy_tree(into: Path) -> None:
    """Copy the project with its compiled modules; modules in ``into`` with mutants stay."""
    kept = {path.relative_to(into) for path in into.glob("**/*.mutants")}
    ignored = shutil.ignore_patterns("__pycache__", "*.c", "*.cpp", "results")
    for name in COPIED:
        if (ROOT / name).is_dir():
            take = partial(_copy, into=into, kept=kept)
            shutil.copytree(ROOT / name, into / name, dirs_exist_ok=True, ignore=ignored, copy_function=take)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, into / name)


def _copy(source: str, target: str, into: Path, kept: set[Path]) -> None:
    there = Path(target).relative_to(into)
    if there.with_name(f"{there.name}.mutants") in kept:
        return
    with suppress(FileNotFoundError):  # an unchanged file is not rewritten: a process may have the module mapped
        old, new = Path(target).stat(), Path(source).stat()
        if (old.st_mtime_ns, old.st_size) == (new.st_mtime_ns, new.st_size):
            return
    shutil.copy2(source, target)


def build(into: Path, names: list[str], seed: int, count: int, say: Callable[[str], None]) -> list[Module]:
    """Draw and compile ``count`` mutants of each module into the copy at ``into``; modules that are up to date are
    kept."""
    into.mkdir(parents=True, exist_ok=True)
    unfit = [name for name in names if not (ROOT / name).is_file()]
    if unfit:
        raise NotBuilt(f"{unfit[0]}: there is no such module")
    copy_tree(into)
    build_library(into)
    built = []
    for name in names:
        marker = into / f"{shared(name)}.mutants"
        digest = digest_of(name, seed, count)
        if marker.is_file():
            module = Module.of(name, json.loads(marker.read_text()))
            if module.digest == digest:
                built.append(module)
                continue
        say(f"compiling {count} mutants into {name}")
        module = build_module(into, name, digest, drawn(find(name, ROOT / name), seed), count)
        marker.write_text(json.dumps(module.as_dict()))
        built.append(module)
    return built


def build_library(into: Path) -> None:
    if not (into / LIBRARY).is_file():
        most = f"-DFLASHFS_MUTANTS_MOST={MOST}"
        run(["gcc", "-O1", "-shared", "-fPIC", most, str(HERE / "switch.c"), "-o", LIBRARY], into)


def build_module(into: Path, name: str, digest: str, order: list[Site], count: int) -> Module:
    """Compile ``count`` mutants; those that a compiler rejects are replaced by others."""
    first = MODULES.index(name) * EACH + 1 if name in MODULES else 1
    numbers = {site: first + i for i, site in enumerate(order)}
    rejected: list[Site] = []
    while True:
        left = [site for site in order if site not in rejected][:count]
        chosen = {site: numbers[site] for site in left}
        complaints = compile_with(into, name, chosen)
        if complaints is None:
            return Module(name, digest, {number: site for site, number in chosen.items()}, rejected)
        blamed = culprits(name, left, complaints)
        if not blamed:
            raise NotBuilt(f"{name}: {complaints.strip()[-1500:]}")
        rejected += blamed


def compile_with(into: Path, name: str, chosen: dict[Site, int]) -> str | None:
    """None on success, else the compilers' messages."""
    listed = into / "chosen.json"
    listed.write_text(json.dumps([(number, site.as_dict()) for site, number in chosen.items()]))
    plus = "distutils: language = c++" in (into / name).read_text()
    source = Path(name).with_suffix(".cpp" if plus else ".c")
    done = attempt([sys.executable, str(HERE / "schemata.py"), name, str(listed), str(source)], into)
    if done.returncode:
        return done.stdout + done.stderr
    depth = len(Path(name).parts) - 1
    origin = "$ORIGIN" + "/.." * depth
    include = [f"-I{sysconfig.get_paths()['include']}", f"-I{HERE}", "-Inandimg", f"-I{Path(name).parent}"]
    ends = ["-o", shared(name), LIBRARY, f"-Wl,-rpath,{origin}"]
    done = attempt(["g++" if plus else "gcc", *OPTIONS, *include, str(source), *ends], into)
    return done.stdout + done.stderr if done.returncode else None


def culprits(name: str, chosen: list[Site], complaints: str) -> list[Site]:
    """The mutants that errors point at: at the same place; else in the same line, preferably those that write an
    expression twice."""
    places = {(int(line), int(column)) for line, column in re.findall(rf"{re.escape(name)}:(\d+):(\d+): ", complaints)}
    exact = [site for site in chosen if (site.line, site.column) in places]
    lines = {line for line, _ in places}
    near = [site for site in chosen if site.line in lines]
    return exact or [site for site in near if site.kind in ("arithmetic", "comparison", "logic")] or near


def shared(name: str) -> str:
    return str(Path(name).with_suffix(str(sysconfig.get_config_var("EXT_SUFFIX"))))


def attempt(command: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)


def run(command: list[str], where: Path) -> None:
    done = attempt(command, where)
    if done.returncode:
        raise NotBuilt(f"{' '.join(command[:4])}: {done.stderr.strip()[-1500:]}")
