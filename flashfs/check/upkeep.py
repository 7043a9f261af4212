"""Checks of what the device does unasked: cleaning, wear levelling; and of its accounts and its DRAM."""

from __future__ import annotations

import ctypes
import gc as python_gc
import json
import sys
from typing import Any

import numpy as np

from flashfs.check.host import Host
from flashfs.check.setting import ROOMY, Broken, Counts, Setting, Skipped, need, same
from flashfs.device import Device
from flashfs.engine.blocks.pool import CAUSE_NAMES
from nandimg import Geometry
from nandimg._fault_filters import Failures

# --- gc


def gc(setting: Setting) -> Counts:
    counts = {"chips": 0, "overwrites": 0, "pages": 0, "erases": 0, "moved": 0}
    for preset in setting.presets():
        geometry = setting.geometry(preset)
        for buffer in ("0", "3"):
            rnd = setting.chance("gc", preset, buffer)
            with Host(setting.spec, geometry, {"buffer": buffer}) as host:
                device = host.open(sync="none")
                rounds = setting.some(24, 300)
                for n in range(rounds):
                    for lpa in _order(n % 4, geometry.lpas, rnd):
                        host.write(lpa * host.page, (host.requests + 1).to_bytes(8, "little") * (host.page // 8))
                    host.flush()
                    host.look(f"{preset}, overwrite {n + 1}")
                host.sound(f"{preset}, full and overwritten {rounds} times")
                _emptied(host, f"{preset}, trimmed whole")
                by_cause = device.stats()["nand"]["by_cause"]["program"]
                counts["chips"] += 1
                counts["overwrites"] += rounds
                counts["pages"] += device.ssd.host_write
                counts["erases"] += device.stats()["nand"]["erase"]
                counts["moved"] += by_cause.get("gc", 0)
                need(device.ssd.pool.erases_n > 0, f"{preset}: nothing was ever erased")
    need(counts["moved"] > 0, "nothing was ever moved: what was cleaned held nothing")
    return counts


def _order(kind: int, lpas: int, rnd: Any) -> list[int]:
    """``lpas`` LPAs: in order, at random, mostly the first eighth, or with a stride."""
    if kind == 0:
        return list(range(lpas))
    if kind == 1:
        return [rnd.randrange(lpas) for _ in range(lpas)]
    if kind == 2:
        return [rnd.randrange(1 + lpas // 8) if rnd.random() < 0.9 else rnd.randrange(lpas) for _ in range(lpas)]
    return [n * 7 % lpas for n in range(lpas)]


def _emptied(host: Host, when: str) -> None:
    """After a trim of everything no page is live, and writing it all again moves no more pages than are written."""
    device, lpas = host.device, host.geometry.lpas
    host.trim(0, host.geometry.logical_bytes)
    host.flush()
    live = sum(len(device.ssd.validity.live_in(block)) for block in range(device.nand.blocks))
    same(live, len(device.ssd.owned_pages()), f"{when}: live pages")  # but for those of metadata
    before = device.stats()["nand"]["by_cause"]["program"].get("gc", 0)
    for lpa in range(lpas):
        host.write(lpa * host.page, b"again..." * (host.page // 8))
    host.flush()
    moved = device.stats()["nand"]["by_cause"]["program"].get("gc", 0) - before
    need(moved <= lpas, f"{when}: {moved} pages moved while {lpas} were written: what is dead is not cleaned first")
    host.look(f"{when} and written again")
    host.sound(f"{when} and written again")


# --- wear

WORN = Geometry(page_bytes=512, pages_per_block=8, blocks=64, dies=2, channels=1, oob_bytes=64, lpas=380)
SLACK = 8  #: erases by which the most worn block may be further ahead than wear_spread: levelling waits for its turn


def wear(setting: Setting) -> Counts:
    counts = {"writes": 0, "erases": 0, "moved": 0, "spread_most": 0}
    geometry = setting.fitting(WORN)
    for spread, how in ((4, "exact"), (16, "exact"), (4, "scan")):
        rnd = setting.chance("wear", spread)
        with Host(setting.spec, geometry, {"wear_spread": str(spread), "wear": how, "buffer": "0"}) as host:
            device = host.open(sync="none")
            host.write(0, b"c" * geometry.logical_bytes)
            hot = max(1, geometry.lpas // 20)
            for n in range(1, setting.some(30_000, 300_000) + 1):
                lpa = rnd.randrange(hot) if rnd.random() < 0.95 else rnd.randrange(hot, geometry.lpas // 4)
                host.write(lpa * host.page, b"x" * host.page)
                if n % 500 == 0:
                    counts["spread_most"] = max(counts["spread_most"], _levelled(device, spread, n))
            erases = device.smart()["erases"]
            need(erases["max"] > spread + SLACK, f"wear_spread {spread}: only {erases['max']} erases: nothing to level")
            moved = device.stats()["nand"]["by_cause"]["program"].get("wear", 0)
            need(moved > 0, f"wear_spread {spread}: no page was moved for it")
            host.look(f"wear_spread {spread}, at the end")
            host.sound(f"wear_spread {spread}, at the end")
            counts["writes"] += n
            counts["erases"] += device.stats()["nand"]["erase"]
            counts["moved"] += moved
    return counts


def _levelled(device: Device, spread: int, n: int) -> int:
    """Erases between the most and the least worn block; Broken if there are more than ``spread`` + SLACK."""
    worn = [device.nand.erase_count(block) for block in range(device.nand.blocks)]
    found = max(worn) - min(worn)
    if found > spread + SLACK:
        least = worn.index(min(worn))
        raise Broken(
            f"wear_spread {spread}: after {n} writes block {worn.index(max(worn))} has {max(worn)} erases and "
            f"block {least} {min(worn)}; {spread + SLACK} more would be the most"
        )
    return found


# --- accounting


def accounting(setting: Setting) -> Counts:
    counts = {"requests": 0, "host_pages": 0, "operations": 0, "causes": 0}
    geometry = setting.fitting(ROOMY)
    for buffer in (0, 8):
        rnd = setting.chance("accounting", buffer)
        with Host(setting.spec, geometry, {"buffer": str(buffer), "wear_spread": "4"}) as host:
            device = host.open(front=lambda chip: Failures(chip))  # none fails: the filter only counts them
            asked = {"read": 0, "write": 0, "trim": 0}
            for n in range(setting.some(1_500, 20_000)):
                _account(host, rnd, asked)
                if n % 100 == 0:
                    _balance(device, asked, f"after {n + 1} requests")
            host.flush()
            _balance(device, asked, "at the end")
            by_cause = device.stats()["nand"]["by_cause"]
            programs = by_cause["program"]["host"]
            if buffer == 0:
                same(programs, asked["write"], "without a write buffer: pages programmed for the host")
            need(programs <= asked["write"], f"{programs} pages programmed for the host, which wrote {asked['write']}")
            if buffer == 0:
                _reads(host)
            counts["requests"] += host.requests
            counts["host_pages"] += sum(asked.values())
            counts["operations"] += sum(sum(row.values()) for row in by_cause.values())
            counts["causes"] = max(counts["causes"], len({cause for row in by_cause.values() for cause in row}))
    return counts


def _account(host: Host, rnd: Any, asked: dict[str, int]) -> None:
    """One request for whole pages, counted in ``asked`` too."""
    offset, length = host.span(rnd, 12)
    pages, kind = length // host.page, rnd.random()
    if kind < 0.6:
        host.write(offset, rnd.randbytes(length))
        asked["write"] += pages
    elif kind < 0.8:
        host.look("a read", offset, length)
        host.requests += 1
        asked["read"] += pages
    elif kind < 0.9:
        host.trim(offset, length)
        asked["trim"] += pages
    else:
        host.flush()


def _balance(device: Device, asked: dict[str, int], when: str) -> None:
    """The figures of the device, of the chip and of a filter between them must agree with each other and ``asked``."""
    stats = device.stats()
    nand, counted = stats["nand"], device.nand.counters()
    for what, n in asked.items():
        same(stats["host"][what], n, f"{when}: host {what}")
    for operation, causes in counted.items():
        same(nand[operation], sum(causes), f"{when}: {operation}, and the chip's counters")
        same(sum(nand["by_cause"][operation].values()), nand[operation], f"{when}: {operation} by cause, in all")
        strange = set(nand["by_cause"][operation]) - set(CAUSE_NAMES)
        need(not strange, f"{when}: {operation} on account of {', '.join(strange)}: no such cause")
    passed = device.nand.operations  # type: ignore[attr-defined]  # it is the filter
    same(nand["program"] + nand["erase"], passed, f"{when}: programs and erases, and what passed the filter")
    worn = sum(device.nand.erase_count(block) for block in range(device.nand.blocks))
    same(nand["erase"], worn, f"{when}: erases, and the erase counts of all blocks")
    waf = round(nand["program"] / asked["write"], 4) if asked["write"] else None
    same(stats["waf"], waf, f"{when}: waf")
    same(sum(stats["pool"].values()), device.nand.blocks, f"{when}: blocks in the pool's states")
    try:
        json.dumps(stats)
    except (TypeError, ValueError) as error:
        raise Broken(f"{when}: stats are not plain figures ({error})") from None


def _reads(host: Host) -> None:
    """Reading everything costs one flash read for each mapped page, and those that the FTL counts in extra_reads."""
    device, lpas = host.device, host.geometry.lpas

    def reads() -> int:
        n: int = device.stats()["nand"]["by_cause"]["read"].get("host", 0)
        return n - device.ssd.reader.extra_reads

    before = reads()
    host.look("a read of everything")
    mapped = sum(device.ssd.mapped(lpa) for lpa in range(lpas))
    same(reads() - before, mapped, "reads of everything, but for extra_reads, and the pages that hold something")


# --- dram

#: 4 GiB with 4 KiB pages: 14 bits per LPA are over a megabyte
LARGE = Geometry(page_bytes=4096, pages_per_block=256, blocks=4864, channels=4, dies=4, oob_bytes=64, lpas=1 << 20)
TABLE = 1 << 20  #: bytes: a larger table must be allocated nearly as tightly as it is packed, by a factor of TIGHT
TIGHT = 1.25
TOUCHED = 1 << 16  #: pages that are written with an FTL in Python: a million take too long for what they show
SLACK_BYTES = 512 << 10  #: what the allocator, the engine's scratch and Python may take beside the tables
SLACK_PART = 0.05
SMALLEST = 16  #: bytes of Python's smallest object


def dram(setting: Setting) -> Counts:
    geometry = setting.fitting(LARGE)
    warm: Any = Device.memory(setting.fitting(ROOMY), setting.spec, backend="meta")
    warm.write(0, b"x" * 512)
    # warm up: imports are done, and what Python and numpy keep after their first use is allocated
    lpas: Any = np.random.default_rng(1).integers(0, warm.ssd.lpas, 4 * warm.ssd.lpas, dtype=np.uint32)
    warm.ssd.write_pages(lpas)
    warm.flush()
    warm = None
    before = _held()
    device = Device.memory(geometry, setting.spec, backend="meta")
    # the size of Python's objects is no figure of a controller: such an FTL states what a controller would hold
    modelled = device.interpreted
    pages = TOUCHED if modelled else geometry.lpas
    for first in range(0, pages, 1 << 14):
        lpas = np.arange(first, min(first + (1 << 14), pages), dtype=np.uint32)
        device.ssd.write_pages(lpas)
    if not modelled:  # a map may be small while all LPAs are in order
        lpas = np.random.default_rng(setting.seed).integers(0, pages, pages // 4, dtype=np.uint32)
        device.ssd.write_pages(lpas)
    lpas = None  # a megabyte that is not the device's
    device.flush()
    after = _held() + device.ssd.mapping.from_kernel()
    counts = _tables(device)
    if modelled:
        return counts | {"measured": 0}
    held = after - before
    said, slack = counts["heap"], SLACK_BYTES + int(SLACK_PART * counts["heap"])
    need(held <= said + slack, f"{held} bytes are allocated, and the structures own up to {said}")
    need(held >= said - slack, f"{held} bytes are allocated, and the structures claim {said}")
    return counts | {"measured": held}


def _tables(device: Device) -> Counts:
    """Each structure's figures; Broken unless they add up."""
    tables, stats, large = device.ssd.dram(), device.stats(), 0
    for name, (packed, allocated) in tables.items():
        need(packed >= 0 and allocated >= 0, f"{name}: {packed} bytes packed, {allocated} allocated")
        if packed > TABLE:
            large += 1
            need(
                allocated <= TIGHT * packed,
                f"{name}: {allocated} bytes allocated for {packed}; {TIGHT} times would be the most",
            )
    said = {name: n for name, n in stats["dram"].items() if name != "total"}
    same(said, {name: packed for name, (packed, _) in tables.items()}, "dram by structure")
    same(stats["dram"]["total"], sum(said.values()), "dram total, and the sum of its structures")
    same(stats["heap"], sum(allocated for _, allocated in tables.values()), "heap, and the sum of its structures")
    return {"structures": len(tables), "over_1_mb": large, "dram": stats["dram"]["total"], "heap": stats["heap"]}


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
        )
    ]


def _held() -> int:
    """Bytes that this process has from malloc, touched or not, plus a lower bound for Python's small objects, which
    have an allocator of their own. The chip in memory is in neither. Skipped if it cannot be measured."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        raise Skipped("what is allocated cannot be measured here: the C library has no mallinfo2") from None
    python_gc.collect()
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd + SMALLEST * sys.getallocatedblocks())
