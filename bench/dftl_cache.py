"""DFTL's cache against closed forms, and what its battery saves a recovery: tables, a picture and raw figures.

    python bench dftl_cache [--trace TRACE...] [--lpas N] [--ops N] [--gib GIB...]

cache      hit ratio, translation reads a page of the host and translation programs a page written, by the entries that
           are cached (1/128 to all of the table's): uniform (expected: the share cached), zipf 0.99 (Che's
           approximation, plain LRU, and the same with half of it protected), requests of 64 pages in order, and traces
batch      entries that go back with one translation program, under uniform writes into a plain LRU
recovery   spare reads, page reads and virtual seconds of a recovery with and without the battery, by size

Devices use the `meta` backend without a write buffer, so a look-up is a page of the host. Each is written in order,
then by the workload until the cache is warm, then measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import common
from bench.dftl import PAGE, requests, run
from flashfs.device import Device
from flashfs.parts.paged.cmt import ENTRY_BYTES
from flashfs.replay.open_source import open_source
from flashfs.replay.plots import Figure, Panel, Series, draw
from flashfs.replay.request_source import WRITE
from nandimg import Geometry, memory_image

ROOT = Path(__file__).parent.parent
FORMS = common.of_tests("ftl/dftl", "closed_forms")
SHARES = (128, 64, 32, 16, 8, 4, 2, 1)
PICTURE = ROOT / "docs" / "img" / "dftl-cache.png"

Lpas = NDArray[np.uint32]


def device_of(lpas: int, slots: int, protected: int, op: float = 0.15) -> Device:
    """A device that was written once, in order."""
    geometry = Geometry.sized(lpas * PAGE, op=op, channels=8, dies=8, oob_bytes=64)
    options = {"buffer": 0, "cmt_bytes": slots * ENTRY_BYTES, "protected": protected, "wear_spread": 1 << 20}
    device = Device.memory(geometry, "dftl", options, backend="meta")
    device.ssd.write_pages(np.arange(lpas, dtype=np.uint32))
    return device


def ask(device: Device, ops: NDArray[np.uint8], lpas: Lpas) -> None:
    """Play single-page operations; consecutive ones of one kind go in one request."""
    ends = np.append(np.flatnonzero(np.diff(ops)) + 1, len(ops)).tolist()
    first = 0
    for end in ends:
        (device.ssd.write_pages if ops[first] == WRITE else device.ssd.read_pages)(lpas[first:end])
        first = end


def asked(text: str, lpas: int) -> tuple[NDArray[np.uint8], Lpas]:
    batches = list(open_source(text, lpas * PAGE).batches())
    ops = np.concatenate([batch.op for batch in batches])
    return ops, (np.concatenate([batch.offset for batch in batches]) // PAGE).astype(np.uint32)


def figures(device: Device, before: dict[str, Any], writes: int) -> dict[str, Any]:
    """Ratios of the counts since ``before``."""
    after: dict[str, Any] = device.ssd.mapping.figures()
    grown = {name: after[name] - before[name] for name, value in before.items() if isinstance(value, int)}
    return {
        "hit_ratio": grown["hits"] / grown["lookups"],
        "reads_a_page": grown["translation_reads"] / grown["lookups"],
        "loads_a_page": grown["loads"] / grown["lookups"],
        "programs_a_write": grown["translation_programs"] / writes if writes else None,
    }


def point(text: str, lpas: int, slots: int, protected: int, ops: int) -> dict[str, Any]:
    """A workload of single pages. The first half, and at least 4 requests for each slot, warms the cache."""
    device = device_of(lpas, slots, protected)
    kinds, places = asked(f"{text},ops={ops + max(ops, 4 * slots)}", lpas)
    ask(device, kinds[:-ops], places[:-ops])
    before = dict(device.ssd.mapping.figures())
    ask(device, kinds[-ops:], places[-ops:])
    return figures(device, before, int((kinds[-ops:] == WRITE).sum()))


def in_order(lpas: int, slots: int, protected: int) -> dict[str, Any]:
    """Requests of 64 pages: all of the device read, then written."""
    device = device_of(lpas, slots, protected)
    before = dict(device.ssd.mapping.figures())
    for call in (device.ssd.read_pages, device.ssd.write_pages):
        for first in range(0, lpas, 64):
            call(np.arange(first, first + 64, dtype=np.uint32))
    return figures(device, before, lpas)


def cache(lpas: int, ops: int, shares: tuple[int, ...] = SHARES) -> list[dict[str, Any]]:
    """One row a workload and size."""
    rows: list[dict[str, Any]] = []
    weights = FORMS.zipf_weights(lpas, 0.99)
    for share in shares:
        slots = lpas // share
        of = {"share": f"1/{share}", "slots": slots}
        for name, text, protected, expected in (
            ("uniform", "uniform:write=0.5", 50, slots / lpas),
            ("zipf, plain LRU", "zipf:theta=0.99,write=0.7", 0, FORMS.lru_hit_ratio(weights, slots)),
            ("zipf, segmented", "zipf:theta=0.99,write=0.7", 50, None),
        ):
            rows.append({"workload": name, **of, **point(text, lpas, slots, protected, ops), "expected": expected})
        rows.append({"workload": "64 pages in order", **of, **in_order(lpas, slots, 50),
                     "expected": float(slots >= lpas)})  # fmt: skip
    return rows


def batch(lpas: int, ops: int, shares: tuple[int, ...] = SHARES) -> list[dict[str, Any]]:
    """Uniform writes into a plain LRU. When an entry is evicted dirty, its translation page was not written since it
    was cached, so all cached entries of that page are younger, and dirty. So D is the number of cached entries, not
    the mean number of dirty ones. The chip has room for all writes: cleaning would write pages back before eviction
    does."""
    rows = []
    for share in shares:
        slots = lpas // share
        if slots == lpas:
            continue  # nothing leaves
        total = ops + max(ops, 4 * slots)
        device = device_of(lpas, slots, 0, 1.5 * total / lpas + 0.5)
        places = asked(f"uniform:write=1,ops={total}", lpas)[1]
        dirty = []
        for i in range(total):  # one by one: LPAs prepared together are not dirty yet when they evict others
            if i == total - ops:
                before = dict(device.ssd.mapping.figures())
            device.ssd.write_pages(places[i : i + 1])
            if i % 1000 == 0:
                dirty.append(device.ssd.mapping.cmt.dirty_n)
        after = device.ssd.mapping.figures()
        pages = -(-lpas // (PAGE // 4))
        entries, programs = (after[name] - before[name] for name in ("evicted_entries", "dirty_evictions"))
        rows.append({"share": f"1/{share}", "slots": slots, "pages": pages,
                     "dirty_mean": float(np.mean(dirty[-(ops // 1000) :])),
                     "programs": programs, "entries_a_program": entries / programs,
                     "expected": FORMS.entries_a_program(slots, pages)})  # fmt: skip
    return rows


def recovery(gib: float, battery: int, since: int, unsynced: int, ftl: str = "dftl") -> dict[str, Any]:
    """A device that was written in order, then ``since`` random pages after its last checkpoint, of which the last
    ``unsynced`` were not flushed; then its power goes."""
    geometry = Geometry.sized(int(gib * 2**30), op=0.15, channels=8, dies=16, oob_bytes=64)
    image = memory_image(geometry, "meta")
    options = {"battery": battery, "buffer": 0, "checkpoint_every": 1 << 30}
    device = Device.start(image, ftl, options)
    for first in range(0, geometry.lpas, 1 << 20):
        device.ssd.write_pages(np.arange(first, min(first + (1 << 20), geometry.lpas), dtype=np.uint32))
    device.checkpoint()
    lpas = np.random.default_rng(7).integers(0, geometry.lpas, since).astype(np.uint32)
    device.ssd.write_pages(lpas[: since - unsynced])
    device.ssd.sync_now()
    device.ssd.write_pages(lpas[since - unsynced :])
    del device
    image.chip.reset_volatile()
    again = Device.start(image, None, options)
    steps = [step for step in again.recovery.steps if step.name != "commit"]
    of = {name: sum(getattr(step, name) for step in steps) for name in ("spare_reads", "reads", "virtual_us")}
    return {"gib": gib, "battery": battery, "since": since, "unsynced": unsynced, **of,
            "steps": {step.name: [step.spare_reads, step.reads, round(step.virtual_us)] for step in steps},
            "kept_bytes": image.header.geometry.nvram_bytes,
            "note": next((step.note for step in steps if step.name == "battery"), "")}  # fmt: skip


def picture(rows: list[dict[str, Any]], batches: list[dict[str, Any]]) -> Figure:
    """Hit ratios and their closed forms, translation operations, entries a program: by the share that is cached."""
    names = ("uniform", "zipf, plain LRU", "zipf, segmented", "64 pages in order")
    of = {name: [row for row in rows if row["workload"] == name] for name in names}

    def curve(label: str, some: list[dict[str, Any]], key: str) -> Series:
        return Series(label, [row[key] for row in some], [1 / int(row["share"][2:]) for row in some])

    hits = [curve(name, of[name], "hit_ratio") for name in names]
    hits += [curve("zipf, Che", of["zipf, plain LRU"], "expected")]
    reads = [curve(name, of[name], "reads_a_page") for name in names]
    programs = [curve(name, of[name], "programs_a_write") for name in names]
    back = [curve("measured", batches, "entries_a_program"), curve("1 + (D-1)/T", batches, "expected")]
    x = "entries cached / all"
    return Figure("dftl", [
        Panel("lines", x, "hit ratio", hits, x_scale="log", y_scale="share"),
        Panel("lines", x, "translation reads a page", reads, x_scale="log"),
        Panel("lines", x, "translation programs a write", programs, x_scale="log"),
        Panel("lines", x, "entries a program", back, x_scale="log", y_scale="log"),
    ], columns=2)  # fmt: skip


def traces(texts: list[str]) -> list[dict[str, Any]]:
    """The same sizes, as shares of the entries that a trace touches; in step with the model of tests/ftl/dftl."""
    rows = []
    for text in texts:
        some, size = requests(text, 10_000_000)
        rows += [{"trace": Path(text).name.partition("__")[0], **run(some, size, share)} for share in SHARES]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", nargs="*", default=[])
    parser.add_argument("--lpas", type=int, default=1 << 16)
    parser.add_argument("--ops", type=int, default=200_000)
    parser.add_argument("--gib", nargs="+", type=float, default=[1, 4, 16])
    args = parser.parse_args()
    found: dict[str, Any] = {"lpas": args.lpas, "cache": cache(args.lpas, args.ops)}
    found["batch"] = batch(args.lpas, args.ops)
    found["traces"] = traces(args.trace)
    draw(picture(found["cache"], found["batch"]), PICTURE)
    found["recovery"] = [recovery(gib, battery, 1 << 20, 1 << 10) for gib in args.gib for battery in (0, 1)]
    common.save("dftl_cache", found)
    show(found)
    return 0


def show(found: dict[str, Any]) -> None:
    """As Markdown."""
    for name, keys in (
        ("cache", ("workload", "share", "hit_ratio", "expected", "reads_a_page", "loads_a_page", "programs_a_write")),
        ("batch", ("share", "slots", "pages", "dirty_mean", "programs", "entries_a_program", "expected")),
        ("traces", ("trace", "share", "lookups", "hit_ratio", "reads_a_lookup", "programs_a_write", "as_the_model")),
        ("recovery", ("gib", "battery", "since", "spare_reads", "reads", "virtual_us", "kept_bytes", "note")),
    ):
        print(f"\n| {' | '.join(keys)} |\n|{' --- |' * len(keys)}")
        for row in found[name]:
            print("| " + " | ".join(f"{row[key]:.4f}" if isinstance(row[key], float) else str(row[key])
                                    for key in keys) + " |")  # fmt: skip
