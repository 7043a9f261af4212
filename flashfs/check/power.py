"""Checks of power cuts and of a failing chip: durability, operations that fail, recoveries done again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from flashfs.check.host import Host
from flashfs.check.setting import ROOMY, Broken, Counts, Setting, need, same
from flashfs.crash import campaign
from flashfs.crash.programs import LARGE
from flashfs.device import Front
from flashfs.errors import FlashfsError
from nandimg import Chip, Cut, FaultyNand, Nand, PowerCut
from nandimg._fault_filters import Failures
from nandimg._faults import BASIC_SHAPES

# --- durability

#: (tier, depth, bound at scale quick, at scale full, name in the counts). The bound is a number of cuts; for tier every
#: it is the length of the programs
CAMPAIGNS = (
    ("sweep", 1, 800, 100_000, "sweep"),
    ("wide", 1, 40, 2_000, "wide"),
    ("random", 1, 500, 10_000, "random"),
    ("every", 1, 1, 2, "every"),
    ("every", 2, 1, 1, "every_depth_2"),
    ("host", 1, 150, 5_000, "host_deaths"),
)


def durability(setting: Setting) -> Counts:
    counts = {"cuts": 0, "cases": 0}
    for tier, depth, quick, full, name in CAMPAIGNS:
        if tier == "wide" and not _fits_large_chips(setting):
            counts[name] = 0  # the FTL needs more spare flash than those chips have
            continue
        result = campaign.run(setting.spec, tier, setting.seed, setting.some(quick, full), depth=depth)
        for failure in result.failures[:1]:
            more = f" ({result.failed} of {result.cases} cases fail)" if result.failed > 1 else ""
            raise Broken(f"{name}: {failure.why}{more}", failure.replay)
        need(result.cuts > 0, f"{name}: nothing was cut")
        counts[name] = result.cuts
        counts["cuts"] += result.cuts
        counts["cases"] += result.cases
    return counts


def _fits_large_chips(setting: Setting) -> bool:
    try:
        return bool(setting.presets(tuple(LARGE)))
    except FlashfsError:
        return False


# --- failing


def failing(setting: Setting) -> Counts:
    counts = {"failed_programs": 0, "failed_erases": 0, "retired": 0, "mounts": 0}
    geometry = setting.fitting(ROOMY)
    runs = setting.some(16, 200)
    for n in range(10 * runs):
        if n >= runs and counts["failed_programs"] and counts["failed_erases"]:
            break
        rnd = setting.chance("failing", n)
        with Host(setting.spec, geometry, {"buffer": str(rnd.choice((0, 2)))}) as host:
            failed: set[int] = set()
            retired: set[int] = set()
            for life in range(3):
                at = rnd.randrange(1, 40) if life == 2 else rnd.randrange(5, 900)  # the last one early: in a recovery
                when = f"run {n}, life {life + 1}"
                nand = _live_with(host, rnd, at, when)
                if (n + life) % 2:  # in the other lives, a kill comes before the device deals with it
                    retired |= _retire(host, list(nand.struck), when)
                    for _ in range(20):
                        host.anything(rnd)
                    host.flush()
                failed |= {block for _, block, _ in nand.struck}
                erases = sum(page < 0 for _, _, page in nand.struck)
                counts["failed_erases"] += erases
                counts["failed_programs"] += len(nand.struck) - erases
                host.close(clean=life == 0 and n % 4 == 1)
            _stay_bad(host, failed, retired, f"run {n}, the last mount")
            counts["retired"] += len(retired)
            counts["mounts"] += host.mounts
    need(counts["failed_programs"] > 0 and counts["failed_erases"] > 0, f"no operation of each kind failed: {counts}")
    return counts


def _live_with(host: Host, rnd: Any, at: int, when: str) -> Failures:
    """Part of a life in which operation ``at`` fails. Returns the filter that makes it fail, which lists what did."""
    nand = cast(Failures, host.open(front=lambda chip: Failures(chip, (at,))).nand)
    host.look(f"{when}, at its beginning")
    for _ in range(250):
        host.anything(rnd)
    host.flush()
    host.look(f"{when}, after a failure")
    host.sound(f"{when}, after a failure")
    return nand


def _retire(host: Host, struck: list[tuple[int, ...]], when: str) -> set[int]:
    """Give the device every occasion to retire the blocks; the chip must then report them bad. Returns them."""
    host.device.ssd.idle()  # a block is retired in idle time, once what is left in it is moved,
    for _ in range(2):  # or, if it belongs to the log, when nothing in it counts any more: a fence later
        host.device.checkpoint()
    host.flush()  # and when what replaces it is durable
    for operation, block, _ in struck:
        health = host.device.nand.block_health(block)
        need(health == 2, f"{when}: operation {operation} on block {block} failed, and the block is not retired")
    return {block for _, block, _ in struck}


def _stay_bad(host: Host, failed: set[int], retired: set[int], when: str) -> None:
    """Retired blocks stay bad, no block is bad in which nothing failed, and all data are there."""
    device = host.open()
    host.look(when)
    host.sound(when)
    bad = {block for block in range(device.nand.blocks) if device.nand.block_health(block)}
    need(retired <= bad, f"{when}: blocks {sorted(retired - bad)} were retired, and are good again")
    need(bad <= failed, f"{when}: blocks {sorted(bad - failed)} are bad, and nothing in them failed")
    same(device.stats()["pool"]["bad"], len(bad), f"{when}: blocks that the pool calls bad")


# --- idempotent


@dataclass(slots=True)
class Found:
    """The result of a recovery: the content, what the mapping says of each LPA, the image."""

    content: bytes
    mapping: list[Any]
    image: bytes


def idempotent(setting: Setting) -> Counts:
    counts = {"images": 0, "recoveries": 0, "cuts": 0}
    for preset in setting.presets():
        for n in range(setting.some(5, 60)):
            rnd = setting.chance("idempotent", preset, n)
            when = f"{preset}, image {n}"
            with Host(setting.spec, setting.geometry(preset)) as host:
                raw = _crashed(host, rnd)
                once, again = _recover(host, raw, when), _recover(host, raw, f"{when}, the second time")
                _must_agree(again, once, f"{when}, the second time")
                need(again.image == once.image, f"{when}, the second time: another image")
                looked = _recover(host, raw, f"{when}, read-only", readonly=True)
                need(looked.content == once.content, f"{when}: read-only, other contents")
                _must_agree(_recover(host, once.image, f"{when}, and once more"), once, f"{when}, and once more")
                counts["images"] += 1
                counts["recoveries"] += 4
                cuts = _cut_everywhere(host, raw, once, when, setting.some(1, len(BASIC_SHAPES)))
                counts["cuts"] += cuts
                counts["recoveries"] += 2 * cuts
    return counts


def _crashed(host: Host, rnd: Any) -> bytes:
    """An image after a power cut in some operation."""
    cut = Cut(rnd.randrange(15, 160), rnd.choice(BASIC_SHAPES))
    with suppress(PowerCut):
        host.open(front=partial(_cutting, cut))
        for _ in range(200):
            host.anything(rnd)
    host.close(clean=False)
    return host.image()


def _recover(host: Host, raw: bytes, when: str, *, readonly: bool = False, front: Front | None = None) -> Found:
    """Recover the image ``raw`` and read it; PowerCut if ``front`` cuts the recovery."""
    host.put(raw)
    try:
        device = host.open(readonly=readonly, front=front)
        host.sound(when)
        content = device.read(0, device.size)
        # a mapping in flash writes and cleans when it is read: only whether an LPA is mapped is the same every time
        says = device.ssd.mapped if device.ssd.mapping.demand else device.ssd.mapping.explain
        mapping = [says(lpa) for lpa in range(host.geometry.lpas)]
    finally:
        host.close(clean=False)
    return Found(content, mapping, host.image())


def _must_agree(found: Found, due: Found, when: str) -> None:
    need(found.content == due.content, f"{when}: other contents")
    for lpa, (one, other) in enumerate(zip(found.mapping, due.mapping, strict=True)):
        same(one, other, f"{when}: what the mapping says of LPA {lpa}")


def _cut_everywhere(host: Host, raw: bytes, due: Found, when: str, shapes: int) -> int:
    """Cut the recovery of ``raw`` at each of its operations, in ``shapes`` shapes; then recover what that left."""
    cuts = 0
    for turn in range(shapes):
        at = 0
        while True:
            at += 1
            cut = Cut(at, BASIC_SHAPES[(at + turn) % len(BASIC_SHAPES)])
            try:
                _recover(host, raw, when, front=partial(_cutting, cut))
            except PowerCut:
                pass
            else:
                break
            found = _recover(host, host.image(), f"{when}, its recovery cut at {at}:{cut.shape}")
            _must_keep(host, found, due, f"{when}, its recovery cut at {at}:{cut.shape}")
            cuts += 1
    return cuts


def _cutting(cut: Cut, chip: Chip) -> Nand:
    return FaultyNand(chip, (cut,))


def _must_keep(host: Host, found: Found, due: Found, when: str) -> None:
    """The same content. Where pages share cells, the program that a cut spoils may have been the upper page of one that
    was not flushed: that page may be lost too."""
    for lpa in range(host.geometry.lpas):
        page = slice(lpa * host.page, (lpa + 1) * host.page)
        if found.content[page] != due.content[page] and not (host.geometry.paired_pages and lpa in host.unflushed):
            raise Broken(f"{when}: LPA {lpa} reads otherwise")
