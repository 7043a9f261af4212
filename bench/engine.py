"""Host pages per second of the engine against a bare C page map, on the same writes in the same process.

Backend ``meta``, scheme ``pagemap``, uniform random overwrites in batches, with rules, counters and virtual time on.
Both are filled and overwritten until the WAF is stable, then take turns at fresh batches; the ratio is the median over
the turns, because the machine is noisy. Also the WAF on a workload for which the WAF of greedy cleaning is known.

    engine.py [--quick] [--turns N] [--no-save]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

import numpy as np

from bench import common
from flashfs.device import Device
from nandimg.geometry import Geometry
from nandimg.presets import PRESETS

ORACLE = {"first 1M": 2.13, "first 4M": 3.18, "second half of 4M": 3.54}
ORACLE_WITHIN = 0.02
TARGET_RATIO = 0.5
GC_FREE = 3  # free blocks at which the C loop cleans
BATCH = 100_000

DEVICES: dict[str, Geometry] = {
    "oracle-1g": PRESETS["oracle-1g"].geometry,
    "16g": Geometry.sized(16 * 2**30, op=0.1765, channels=8, dies=8),  # the oracle's over-provisioning
}
OPTIONS: dict[str, dict[str, Any]] = {"default": {}, "buffer=0": {"buffer": 0}}


class InC:
    """A page map in C, compiled for this machine and called with the arrays that the engine gets. ``name`` is the
    prefix of its functions."""

    name = ""

    def __init__(self, library: Path, *shape: Any) -> None:
        self._lib = lib = ctypes.CDLL(str(library))
        for verb, result, arguments in (
            ("new", ctypes.c_void_p, None),
            ("programs", ctypes.c_uint64, [ctypes.c_void_p]),
            ("write", None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]),
            ("free", None, [ctypes.c_void_p]),
        ):
            function = getattr(lib, f"{self.name}_{verb}")
            function.restype, function.argtypes = result, arguments
        self._map = self._call("new", *shape)

    def _call(self, verb: str, *arguments: Any) -> Any:
        return getattr(self._lib, f"{self.name}_{verb}")(*arguments)

    def write(self, lpas: np.ndarray) -> None:
        self._call("write", self._map, lpas.ctypes.data, len(lpas))

    def programs(self) -> int:
        return int(self._call("programs", self._map))

    def close(self) -> None:
        self._call("free", self._map)


class Bare(InC):
    """bench/pagemap.c."""

    name = "pagemap"

    def __init__(self, library: Path, geometry: Geometry) -> None:
        super().__init__(library, geometry.lpas, geometry.blocks, geometry.pages_per_block, GC_FREE)


class Rules(InC):
    """bench/pagemap_rules.c: the C page map with the rules, the OOB and the time of a page."""

    name = "rules"

    def __init__(self, library: Path, geometry: Geometry) -> None:
        one = geometry
        times = (ctypes.c_int64 * 4)(one.read_ns, one.program_ns, one.erase_ns, one.transfer_ns)
        gc_free = GC_FREE if one.dies == 1 else 2 * one.dies + GC_FREE  # two streams may open a block a die
        super().__init__(
            library, one.lpas, one.blocks, one.pages_per_block, one.dies, one.channels, gc_free, times
        )  # fmt: skip


class Engine:
    """The device, through its batch interface."""

    def __init__(self, geometry: Geometry, options: dict[str, Any]) -> None:
        self._device = Device.memory(geometry, "pagemap", options, backend="meta")

    def write(self, lpas: np.ndarray) -> None:
        self._device.ssd.write_pages(lpas)

    def programs(self) -> int:
        return int(self._device.stats()["nand"]["program"])

    def close(self) -> None:
        self._device.close(clean=False)


def build(folder: Path, name: str = "pagemap") -> Path:
    """Compile bench/``name``.c to a shared library."""
    library = folder / f"{name}.so"
    source = common.HERE / f"{name}.c"
    subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def turn(side: Bare | Engine, batches: list[np.ndarray]) -> dict[str, float]:
    """One side's rate and WAF. Time is processor time of this thread: both sides run in one thread, and other programs
    share the machine."""
    before, start = side.programs(), time.thread_time()
    for lpas in batches:
        side.write(lpas)
    seconds = time.thread_time() - start
    n = sum(map(len, batches))
    return {"pages_per_s": n / seconds, "waf": (side.programs() - before) / n}


def draw(rng: np.random.Generator, geometry: Geometry, n: int) -> list[np.ndarray]:
    sizes = [BATCH] * (n // BATCH) + ([n % BATCH] if n % BATCH else [])
    return [rng.integers(0, geometry.lpas, size, dtype=np.uint32) for size in sizes]


def rates(library: Path, name: str, options: dict[str, Any], turns: int, overwrites: float) -> dict[str, Any]:
    """Fill, overwrite ``overwrites`` times the logical size, then ``turns`` turns each."""
    geometry = DEVICES[name]
    rng = np.random.default_rng(1)
    bare, engine = Bare(library, geometry), Engine(geometry, options)
    order = np.arange(geometry.lpas, dtype=np.uint32)
    warm = draw(rng, geometry, int(overwrites * geometry.lpas))
    for side in (bare, engine):
        side.write(order)
        for lpas in warm:
            side.write(lpas)
    rows = []
    for _ in range(turns):
        batches = draw(rng, geometry, max(1_000_000, geometry.lpas // 4))
        rows.append({"c": turn(bare, batches), "engine": turn(engine, batches)})
    bare.close()
    engine.close()
    return {
        "geometry": geometry.as_dict(),
        "options": options,
        "turns": rows,
        "ratio": statistics.median(row["engine"]["pages_per_s"] / row["c"]["pages_per_s"] for row in rows),
        **{f"{side}_mpages_per_s": statistics.median(r[side]["pages_per_s"] for r in rows) / 1e6
           for side in ("c", "engine")},
        **{f"{side}_waf": statistics.mean(r[side]["waf"] for r in rows) for side in ("c", "engine")},
    }  # fmt: skip


def oracle(side: Bare | Engine, seed: int = 3) -> dict[str, float]:
    """WAF of parts of 4 M uniform overwrites of an empty device."""
    rng = np.random.default_rng(seed)
    programs = [side.programs()]
    for _ in range(4):
        turn(side, draw(rng, DEVICES["oracle-1g"], 1_000_000))
        programs.append(side.programs())
    side.close()
    return {
        "first 1M": (programs[1] - programs[0]) / 1e6,
        "first 4M": (programs[4] - programs[0]) / 4e6,
        "second half of 4M": (programs[4] - programs[2]) / 2e6,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="oracle-1g only, three turns")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    names = ["oracle-1g"] if given.quick else list(DEVICES)
    out: dict[str, Any] = {"rates": {}, "oracle": {}}
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        geometry = DEVICES["oracle-1g"]
        out["oracle"] = {"expected": ORACLE, "c": oracle(Bare(library, geometry))}
        for label, options in OPTIONS.items():
            found = out["oracle"][label] = oracle(Engine(geometry, options))
            for part, waf in found.items():
                off = waf / ORACLE[part] - 1
                print(f"oracle, {label}, {part}: WAF {waf:.3f}, {ORACLE[part]} expected ({off:+.1%})")
                if abs(off) > ORACLE_WITHIN:
                    missed.append(f"oracle, {label}, {part}")
        for name in names:
            for label, options in OPTIONS.items():
                found = rates(library, name, options, 3 if given.quick else given.turns, 3.0)
                out["rates"][f"{name}, {label}"] = found
                print(
                    f"{name}, {label}: C {found['c_mpages_per_s']:.2f} M pages/s, engine"
                    f" {found['engine_mpages_per_s']:.2f}, ratio {found['ratio']:.3f}"
                    f" (WAF {found['c_waf']:.3f} and {found['engine_waf']:.3f})"
                )
                if found["ratio"] < TARGET_RATIO:
                    missed.append(f"{name}, {label}")
    if not given.no_save:
        print(f"raw results: {common.save('engine', out).relative_to(common.HERE.parent)}")
    print(f"missed: {'; '.join(missed)}" if missed else "every target met")
    return 0
