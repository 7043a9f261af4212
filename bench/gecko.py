"""What Logarithmic Gecko costs against a bitmap in flash: reads and programs for validity a page written, at steady
state under uniform random updates of one page (GeckoFTL, SIGMOD 2016, section 5).

    python bench gecko [--blocks 8192] [--pages-per-block 128] [--ratio 0.7] [--writes 1000000] [T ...]
    python bench gecko --save                  # the tables of docs/ftl/geckoftl.md, the model's beside it
    python bench gecko --page                  # that page, from what was saved

R is the share of the pages that are logical, delta = 10, the cache has as many entries as the paper's 2^19 at 2^22
blocks. Prints a line of JSON for each device: T of Gecko, then the bitmap in flash under the page map, with one page of
it cached and room in its log for the reports of one block's move.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import numpy as np

from bench import common
from bench.gecko_model import modelled
from flashfs.device import Device
from flashfs.ftl import SCHEMES
from flashfs.ftl.common import streams_for
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_table import PageTable
from flashfs.parts.paged.cmt import ENTRY_BYTES
from flashfs.parts.validity.flash_bitmap import FlashBitmap
from nandimg import Geometry

DELTA = 10
WRITES = 1_000_000
RATIOS = (2, 3, 4, 6, 8, 10)
#: blocks, pages of each, R
SHAPES = ((65_536, 128, 0.7), (16_384, 64, 0.7), (4_096, 256, 0.7), (2_048, 512, 0.7), (4_096, 128, 0.5),
          (4_096, 128, 0.8), (4_096, 128, 0.9))  # fmt: skip
HELD = (1, 5, 10, 25, 50, 100)  #: per cent
MODELLED = (1024, 2048, 4096, 8192)  #: blocks
FENCED = (2048, 4096, 8192, 32_768)  #: blocks
FIVE = ("dftl", "lazyftl", "muftl", "ibftl", "geckoftl")
PAGE = common.HERE.parent / "docs" / "ftl" / "geckoftl.md"
MARKS = ("<!-- python bench gecko --page: -->\n", "<!-- so far -->\n")


def bitmap(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    validity = FlashBitmap(ssd, 1, log=1)
    spares = (validity.pages_in_flash.stream,)
    return PageTable(ssd), validity, streams_for(ssd, options, "bitmap"), Greedy(ssd, spares=spares)


def register() -> None:
    """Register the page map over a bitmap in flash as a scheme of this process."""
    SCHEMES["flash-bitmap"] = replace(
        SCHEMES["pagemap"], name="flash-bitmap", build=bitmap,
        sections=lambda geometry, options, dram: {"map": 4 * geometry.lpas, **FlashBitmap.section_bytes(geometry, 1)},
    )  # fmt: skip


def measure(ftl: str, geometry: Geometry, writes: int, **options: int) -> dict[str, Any]:
    how = {"buffer": "0", "wear_spread": "1000000", **{name: str(value) for name, value in options.items()}}
    device = Device.memory(geometry, ftl, backend="meta", options=how)
    ssd, rng = device.ssd, np.random.default_rng(1)
    for first in range(0, geometry.lpas, 256):
        ssd.write_pages(np.arange(first, min(first + 256, geometry.lpas), dtype=np.uint32))

    def update(n: int) -> None:
        for part in range(0, n, 1 << 16):
            lpas = rng.integers(0, geometry.lpas, min(1 << 16, n - part), dtype=np.uint32)
            for i in range(len(lpas)):
                ssd.write_pages(lpas[i : i + 1])

    update(2 * geometry.blocks * geometry.pages_per_block - geometry.lpas)
    before = ssd.operations()[1]
    update(writes)
    after = ssd.operations()[1]

    def spent(operation: str, cause: str) -> float:
        return (after[operation].get(cause, 0) - before[operation].get(cause, 0)) / writes

    figures = {**ssd.mapping.figures(), **ssd.validity.figures()}
    row = {
        "ftl": ftl, "blocks": geometry.blocks, "pages_per_block": geometry.pages_per_block,
        "R": round(geometry.lpas / (geometry.blocks * geometry.pages_per_block), 3), **options,
        "validity_programs": round(spent("program", "validity"), 5),
        "validity_reads": round(spent("read", "validity"), 5),
        "validity_wa": round(spent("program", "validity") + spent("read", "validity") / DELTA, 5),
        "map_programs": round(spent("program", "map"), 4), "map_reads": round(spent("read", "map"), 4),
        "gc_programs": round(spent("program", "gc"), 4), "erases": round(sum(
            spent("erase", cause) for cause in after["erase"]), 5),
        "waf": round(1 + sum(spent("program", cause) for cause in after["program"] if cause != "host"), 4),
        "escapes": getattr(ssd.cleaning, "escapes", 0),
        "dram": {name: packed for name, (packed, _) in ssd.dram().items()},
        **{name: figures[name] for name in figures if name.startswith("gecko_") or name in ("uip", "pending")},
    }  # fmt: skip
    device.close(clean=False)
    return row


def of_paper(blocks: int, pages_per_block: int = 128, share: float = 0.7) -> Geometry:
    pages = blocks * pages_per_block
    return Geometry(page_bytes=4096, pages_per_block=pages_per_block, blocks=blocks, dies=1, oob_bytes=128,
                    lpas=int(share * pages), read_ns=100_000, program_ns=1_000_000, transfer_ns=0,
                    spare_ns=3_000)  # fmt: skip


def with_cache(geometry: Geometry, entries: int, **options: Any) -> dict[str, Any]:
    """Measured without fences, unless the caller asks for them."""
    slots = max(64, entries)
    return measure("geckoftl", geometry, WRITES, cmt_bytes=slots * ENTRY_BYTES, **{"fence": 0, "ratio": 2, **options})


def ratios() -> list[dict[str, Any]]:
    geometry = of_paper(8192)
    rows = [{"what": f"Gecko, T = {T}", **with_cache(geometry, geometry.pages >> 10, ratio=T)} for T in RATIOS]
    rows.append({"what": "T = 2, with fences", **with_cache(geometry, geometry.pages >> 10, fence=2)})
    rows.append({"what": "bitmap in flash, reports of one move in DRAM", **measure("flash-bitmap", geometry, WRITES)})
    return rows


def shapes() -> list[dict[str, Any]]:
    rows = []
    for blocks, pages_per_block, share in SHAPES:
        geometry = of_paper(blocks, pages_per_block, share)
        what = f"{blocks:,} blocks of {pages_per_block}, R = {share}"
        rows.append({"what": what, **with_cache(geometry, geometry.pages >> 10)})
    return rows


def fenced() -> list[dict[str, Any]]:
    """Pages of Gecko programmed by a host write, a cache of an entry for 8 blocks: by the option ``fence``."""
    rows = []
    for blocks in FENCED:
        found = [with_cache(of_paper(blocks), blocks // 8, protected=0, fence=fence) for fence in range(3)]
        rows.append({"blocks": blocks, "C": blocks // 8, "V": found[0]["gecko_entries_a_page"],
                     "programs": [row["validity_programs"] for row in found],
                     "map": [row["map_programs"] for row in found]})  # fmt: skip
    return rows


def beside_the_model() -> list[dict[str, Any]]:
    """The five FTLs of the paper's figure 13 by gecko_model.py, and flashfs: ``moved`` entries wait in all."""
    rows = []
    for blocks in MODELLED:
        for ftl in FIVE:
            slots = blocks // 8
            options = {"cmt_bytes": slots * ENTRY_BYTES, "protected": 0, "moved": 20, "checkpoint_every": 1_000_000,
                       **({} if ftl == "geckoftl" else {"cleaning": "aside"}),
                       **({"waiting": 0} if ftl == "muftl" else {})}  # fmt: skip
            ours = measure(ftl, of_paper(blocks), WRITES, **options)
            cost = {part: {"programs": ours[f"{name}_programs"], "reads": ours[f"{name}_reads"], "wa": round(
                ours[f"{name}_programs"] + ours[f"{name}_reads"] / DELTA, 5)}
                for part, name in (("map", "map"), ("validity", "validity"))}  # fmt: skip
            rows.append({**modelled(ftl, blocks, 128, 0.7, slots, WRITES), "flashfs": cost})
            if ftl == "geckoftl":
                rows[-1]["no_fences"] = {name: with_cache(of_paper(blocks), slots, protected=0, parts=4)[name]
                                         for name in ("validity_programs", "validity_wa")}  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    return rows


def device_of(geometry: Geometry, slots: int, held: int) -> Any:
    options = {"buffer": "0", "wear_spread": "1000000", "fence": "0", "held": str(held),
               "cmt_bytes": str(slots * ENTRY_BYTES)}  # fmt: skip
    return Device.memory(geometry, "geckoftl", backend="meta", options=options)


def lpas_of(kind: str, n: int, lpas: int, rng: Any) -> Any:
    """What is written: anywhere; 99 of 100 in one translation page of 128 entries; skewed."""
    if kind == "hot":
        return np.where(rng.random(n) < 0.99, rng.integers(0, 128, n), rng.integers(0, lpas, n))
    return rng.integers(0, lpas, n) if kind == "uniform" else (rng.zipf(1.2, n) * 2_654_435_761 % lpas)


def waiting() -> list[dict[str, Any]]:
    """All programs a page written, by how many blocks of metadata may wait: as many writes as the device has pages."""
    geometry = Geometry(page_bytes=512, pages_per_block=32, blocks=2048, dies=1, oob_bytes=64, lpas=61_249)
    rows = []
    for held in HELD:
        row: dict[str, Any] = {"held": held}
        for kind in ("uniform", "hot", "zipf"):
            device, rng = device_of(geometry, 256, held), np.random.default_rng(1)
            for lpa in range(geometry.lpas):
                device.ssd.write_pages(np.array([lpa], np.uint32))
            before = device.stats()["nand"]["program"]
            for lpa in lpas_of(kind, geometry.lpas, geometry.lpas, rng).tolist():
                device.ssd.write_pages(np.array([lpa], np.uint32))
            row[kind] = round((device.stats()["nand"]["program"] - before) / geometry.lpas, 3)
            device.close(clean=False)
        rows.append(row)
    return rows


def cold() -> list[dict[str, Any]]:
    """One hot translation page and all others cold, each written once, with 400 writes to the hot one's between."""
    geometry = Geometry(page_bytes=512, pages_per_block=16, blocks=700, dies=1, oob_bytes=64, lpas=10_467)
    rows = []
    for held in HELD:
        device, rng, writes = device_of(geometry, 32, held), np.random.default_rng(2), 0
        for lpa in range(geometry.lpas):
            device.ssd.write_pages(np.array([lpa], np.uint32))
        before = device.stats()["nand"]
        for page in range(geometry.lpas // 128):
            for lpa in [page * 128, *rng.integers(0, 128, 400).tolist()]:
                device.ssd.write_pages(np.array([lpa], np.uint32))
                writes += 1
        after = device.stats()["nand"]
        moved = after["by_cause"]["program"].get("gc", 0) - before["by_cause"]["program"].get("gc", 0)
        rows.append({"held": held, "escapes": device.ssd.cleaning.escapes, "moved": moved,
                     "programs": round((after["program"] - before["program"]) / writes, 3)})  # fmt: skip
        device.close(clean=False)
    return rows


TABLES = {"waiting": waiting, "cold": cold, "ratios": ratios, "shapes": shapes, "fences": fenced,
          "model": beside_the_model}  # fmt: skip


def figure(value: float, digits: int = 5) -> str:
    return f"{value:.{digits}f}"


def cost_table(head: str, rows: list[dict[str, Any]]) -> str:
    lines = [f"| {head} | programs | reads | WA |", "| --- | --: | --: | --: |"]
    lines += [f"| {row['what']} | {figure(row['validity_programs'])} | {figure(row['validity_reads'], 4)} | "
              f"{figure(row['validity_wa'], 4)} |" for row in rows]  # fmt: skip
    return "\n".join(lines) + "\n"


def model_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| FTL | blocks, K | map: programs | reads | WA | validity: programs | reads | WA |",
             "| --- | --: | --: | --: | --: | --: | --: | --: |"]  # fmt: skip
    for row in rows:
        cells = [f"{figure(row['flashfs'][part][one], digits)} / {figure(row[part][one], digits)}"
                 for part, digits in (("map", 3), ("validity", 4)) for one in ("programs", "reads", "wa")]  # fmt: skip
        lines.append(f"| `{row['ftl']}` | {row['blocks']:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def fence_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| blocks, K | C / V | no fences | `fence` 1 | `fence` 2 | more than without | more of the map |",
             "| --: | --: | --: | --: | --: | --: | --: |"]  # fmt: skip
    for row in rows:
        more = [", ".join(f"{100 * (one / what[0] - 1):.0f} %" for one in what[1:])
                for what in (row["programs"], row["map"])]  # fmt: skip
        lines.append(f"| {row['blocks']:,} | {row['C'] / row['V']:.1f} | "
                     + " | ".join([*map(figure, row["programs"]), *more]) + " |")  # fmt: skip
    return "\n".join(lines) + "\n"


def held_table(rows: list[dict[str, Any]], names: dict[str, str]) -> str:
    lines = ["| " + " | ".join(names.values()) + " |", "|" + " --: |" * len(names)]
    lines += ["| " + " | ".join(f"{row[name]:,}" for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the tables of the raw results between its marks."""
    kept = json.loads((common.RESULTS / "gecko.json").read_text())
    for name, table in (("ratios", cost_table("8,192 blocks of 128 pages", kept["ratios"])),
                        ("shapes", cost_table("T = 2", kept["shapes"])),
                        ("fences", fence_table(kept["fences"])),
                        ("model", model_table(kept["model"])),
                        ("held", held_table(kept["waiting"], {"held": "`held`", "uniform": "uniform", "hot": "hot",
                                                              "zipf": "zipf"})),
                        ("cold", held_table(kept["cold"], {"held": "`held`", "escapes": "blocks cleaned after all",
                                                           "moved": "pages moved by cleaning",
                                                           "programs": "all programs per page written"}))):  # fmt: skip
        begin = MARKS[0] if name == "ratios" else f"<!-- python bench gecko --page, {name}: -->\n"
        before, found, rest = text.partition(begin)
        if not found:
            raise SystemExit(f"{PAGE}: {begin.strip()} is missing")
        text = f"{before}{begin}\n{table}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("T", nargs="*", type=int, default=[2])
    parser.add_argument("--blocks", type=int, default=8192)
    parser.add_argument("--pages-per-block", type=int, default=128)
    parser.add_argument("--ratio", type=float, default=0.7)
    parser.add_argument("--writes", type=int, default=WRITES)
    parser.add_argument("--parts", type=int, default=0)
    parser.add_argument("--held", type=int, default=5)
    parser.add_argument("--no-bitmap", action="store_true")
    parser.add_argument("--save", nargs="*", choices=TABLES, metavar="TABLE",
                        help=f"measure these tables of docs/ftl/geckoftl.md, or all: {', '.join(TABLES)}")
    parser.add_argument("--page", action="store_true", help="write the tables into the page, measure nothing")
    asked = parser.parse_args()
    if asked.page:
        PAGE.write_text(page(PAGE.read_text()))
        return
    register()
    if asked.save is not None:
        kept = json.loads((common.RESULTS / "gecko.json").read_text()) if asked.save else {}
        kept.pop("machine", None)
        common.save("gecko", {**kept, **{name: TABLES[name]() for name in asked.save or TABLES}})
        return
    geometry = of_paper(asked.blocks, asked.pages_per_block, asked.ratio)
    slots = max(64, geometry.pages >> 10)
    for ratio in asked.T:
        row = measure("geckoftl", geometry, asked.writes, ratio=ratio, cmt_bytes=slots * ENTRY_BYTES,
                      parts=asked.parts, held=asked.held)  # fmt: skip
        print(json.dumps(row), flush=True)
    if not asked.no_bitmap:
        print(json.dumps(measure("flash-bitmap", geometry, asked.writes)), flush=True)
