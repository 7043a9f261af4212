"""docs/comparison.md: every FTL on equal ground, on real traces and on workloads, blank and filled. Counts and virtual
time, so the same anywhere.

A trace of the folder is packed, a MiB at a time, onto a device that just holds it, and looped until the device, or
--pages pages, have been written; workloads play as many pages on 1 GiB. Sixteen requests at a time. The page map is
there twice: with whole blocks as its stripe, as the others place pages, and with stripes of four as it is used alone.
Results come a source at a time; with --keep those of sources that are there already are not made again.

    comparison.py --traces DIR [--only TEXT] [--pages N] [--keep] [--no-save]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

import bench_common

from flashfs.ftl import SCHEMES
from flashfs.replay.play import Setup, named, run
from flashfs.replay.source import TRIM, WRITE
from flashfs.replay.sources import open_source
from flashfs.replay.traces import Options
from flashfs.shape import side_by_side
from nandimg import Geometry

PAGE = 4096
ROUND = 64 << 20  #: devices are multiples of it,
LEAST = 256 << 20  #: and no smaller: a block of LeaFTL's buffer must fit a sixteenth of the chip several times
OP = 0.1
DEPTH = 16
SHORT = 4  #: pages: the stripe of the page map alone
MOST = 250_000
DOC = bench_common.HERE.parent / "docs/comparison.md"
MARK = "<!-- tables: tools/comparison.py -->\n"
WORKLOADS = (
    "uniform:write=1", "uniform:write=0.5,size=16k", "zipf:write=0.7,theta=0.99", "hotcold:write=1",
    "sequential:write=1,size=64k", "uniform:write=1,size=256k",
)  # fmt: skip


@dataclass
class Work:
    """Something to play, and the device for it."""

    name: str
    setup: Setup
    loops: int = 1


def traces(folder: Path, only: str, most: int) -> Iterator[Work]:
    for path in sorted(folder.glob("*__*")):
        if only in path.name:
            yield of_trace(path, most)


def of_trace(path: Path, most: int) -> Work:
    end = written = 0
    for batch in open_source(str(path), 1 << 60, options=Options(fit="pack")).batches():
        end = max(end, int((batch.offset + batch.length).max()))
        pages = (batch.offset + batch.length - 1) // PAGE + 1 - batch.offset // PAGE
        written += int(pages[batch.op == WRITE].sum()) + int(pages[batch.op == TRIM].sum())
    geometry = shape(max(LEAST, -(-end // ROUND) * ROUND))
    wanted = min(most, geometry.lpas)
    loops = max(1, wanted // written) if 20 * written > wanted else 1
    options = Options(fit="pack", loops=loops, speedup=1000)  # in a closed loop times do not count
    return Work(path.name.partition("__")[0], Setup(str(path), geometry=geometry, trace=options, qd=DEPTH), loops)


def workloads(only: str, most: int) -> Iterator[Work]:
    geometry = shape(1 << 30)
    for text in WORKLOADS:
        if only in text:
            keys = dict(pair.split("=") for pair in text.partition(":")[2].split(","))
            pages = int(keys.get("size", "4k").removesuffix("k")) * 1024 // PAGE
            yield Work(text, Setup(f"{text},ops={most // pages},seed=1", geometry=geometry, qd=DEPTH))


def shape(size: int) -> Geometry:
    return Geometry.sized(size, op=OP, **side_by_side(size, {}))


def results(work: Work) -> list[dict[str, Any]]:
    """Of each FTL, on a blank device and on a filled one."""
    out = []
    for state in ("none", "fill"):
        setups = named(replace(work.setup, precondition=state), ",".join(SCHEMES))
        page_map = next(setup for setup in setups if setup.ftl == "pagemap")
        # complained of: it is not on the ground of the others
        setups.insert(1, replace(page_map, options={**page_map.options, "stripe": SHORT}))
        for setup in setups:
            made = run(setup)
            own = setup.ftl if setup.options.get("stripe") != SHORT else f"{setup.ftl}, stripe {SHORT}"
            out.append({"source": work.name, "loops": work.loops, "state": state, "column": own, **kept(made)})
    return out


def kept(made: dict[str, Any]) -> dict[str, Any]:
    names = ("ground", "host", "waf", "map_bytes", "iops", "virtual_s", "complaints")
    causes = made["nand"]["by_cause"]
    asked = {op: found for op, found in made["latency_us"].items() if found["n"]}
    latency = {op: [found["mean"], found["p99"], found["p999"]] for op, found in asked.items()}
    return {
        **{name: made[name] for name in names}, "mib": made["config"]["geometry"]["lpas"] * PAGE >> 20,
        "options": made["config"]["options"], "erases": made["nand"]["erase"], "program": causes["program"],
        "read": causes["read"], "latency_us": latency,
    }  # fmt: skip


# --- the page


def page(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(row["column"] for row in rows))
    out = [ground_table(rows)]
    for title, figure in (
        ("Write amplification", waf),
        ("Requests a second of virtual time", lambda row: f"{row['iops']:,.0f}" if row["iops"] else "-"),
        ("Flash reads, for the host and the map, for each page that the host reads or writes", reads),
        ("p99.9 of reads, us", lambda row: tail(row, "read")),
        ("p99.9 of writes, us", lambda row: tail(row, "write")),
        ("Bytes of the map", lambda row: f"{row['map_bytes']:,}"),
    ):
        out.append(f"### {title}\n")
        out.append(table(rows, columns, figure))
    return "\n".join(out)


def waf(row: dict[str, Any]) -> str:
    """Of what is written in earnest: more than the write buffer holds."""
    return f"{row['waf']:.3f}" if row["host"]["write"] > 2 * row["ground"]["buffer"] else "-"


def reads(row: dict[str, Any]) -> str:
    """Pages of a hole or the buffer take none; a write of a part of a page reads the rest."""
    asked = row["host"]["read"] + row["host"]["write"]
    return f"{(row['read'].get('host', 0) + row['read'].get('map', 0)) / asked:.2f}" if asked else "-"


def tail(row: dict[str, Any], operation: str) -> str:
    found = row["latency_us"].get(operation)
    return f"{found[2]:,.0f}" if found else "-"


def table(rows: list[dict[str, Any]], columns: list[str], figure: Any) -> str:
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        cells.setdefault((row["source"], row["state"]), {})[row["column"]] = figure(row)
    lines = [f"| source | device | {' | '.join(columns)} |", f"| --- | --- |{' --: |' * len(columns)}"]
    for (source, state), found in cells.items():
        if any(value != "-" for value in found.values()):
            shown = " | ".join(found.get(column, "-") for column in columns)
            lines.append(f"| {source} | {'blank' if state == 'none' else 'filled'} | {shown} |")
    return "\n".join(lines) + "\n"


def ground_table(rows: list[dict[str, Any]]) -> str:
    """What was equal, for each source; and what was not."""
    names = ("MiB", "loops", "dies, channels", "OP", "buffer, pages", "stripe, pages", "wear spread", "reserve, blocks")
    lines = [f"| source | {' | '.join(names)} |", f"| --- |{' --: |' * len(names)}"]
    for source in dict.fromkeys(row["source"] for row in rows):
        mine = [row for row in rows if row["source"] == source]
        one = mine[0]["ground"]

        def said(name: str, mine: list[dict[str, Any]] = mine) -> str:
            values = {row["ground"][name] for row in mine if f"stripe {SHORT}" not in row["column"]} - {None}
            return " or ".join(f"{value:,}" for value in sorted(values))

        shape = f"{mine[0]['mib']:,} | {mine[0]['loops']} | {one['dies']}, {one['channels']} | {one['op']:.1%}"
        even = " | ".join(said(name) for name in ("buffer", "stripe", "wear_spread", "gc_reserve"))
        lines.append(f"| {source} | {shape} | {even} |")
    told = dict.fromkeys(line for row in rows for line in row["complaints"] if "where the ground" in line)
    nvram = {row["column"]: 0 for row in rows if row["ground"]["nvram"]}
    for row in rows:
        if row["column"] in nvram:
            nvram[row["column"]] = max(nvram[row["column"]], row["ground"]["nvram"])
    left = [line for line in told if "NVRAM" not in line]
    left += [f"{column}: NVRAM of its own, up to {most:,} bytes" for column, most in nvram.items()]
    return "\n".join(lines) + "\n\nDifferences that remain:\n\n" + "".join(f"- {line}\n" for line in left)


def write(rows: list[dict[str, Any]]) -> None:
    head, mark, _ = DOC.read_text().partition(MARK)
    if not mark:
        raise SystemExit(f"{DOC}: no line {MARK.strip()}")
    DOC.write_text(head + mark + "\n" + page(rows))


def saved() -> list[dict[str, Any]]:
    path = bench_common.RESULTS / "comparison.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="the folder of traces")
    parser.add_argument("--only", default="", help="traces and workloads whose names have this")
    parser.add_argument("--pages", type=int, default=MOST, help="host pages written in each run, about")
    parser.add_argument("--keep", action="store_true", help="go on with the results that there are")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    rows = saved() if given.keep else []
    there = {row["source"] for row in rows}
    works: Iterable[Work] = workloads(given.only, given.pages)
    if given.traces is not None:
        works = [*works, *traces(given.traces, given.only, given.pages)]
    for work in works:
        if work.name in there:
            continue
        found = results(work)
        rows += found
        print("\n".join(f"{row['source']}, {row['state']}, {row['column']}: WAF {row['waf']}, {row['iops']} IOPS"
                        for row in found), flush=True)  # fmt: skip
        if not given.no_save:
            bench_common.save("comparison", {"rows": rows})
    if not given.no_save:
        write(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
