"""Maps at equal DRAM: every scheme that keeps its map small, on traces and workloads, at eight sizes of DRAM.

    maps.py [--traces DIR] [--only TEXT] [--ftl NAMES] [--shares 128 32 ...] [--pages N] [--no-save] [--only-page]

With --only, the saved results of other sources stay.

DRAM is what the page map takes apart from its table, plus a share of 8 bytes for each page of the device, from 1/128 to
all of it. Everything else that a scheme keeps comes out of that; at a size that is too small to start, the row only
has the bytes it needs. The device is written first, in order, or *scattered*: in order, and then as many pages at
random. Then about --pages pages are played, eight requests at a time: a trace is cut or looped to that; the recordings
in examples/traces are played whole.

The size of the whole map is measured separately, on a blank device, without a bound on DRAM.

Counts and virtual time, so the same anywhere. Written into docs/maps.md, and raw into bench/results/maps.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

from bench import common
from flashfs.errors import FlashfsError
from flashfs.replay.open_source import open_source
from flashfs.replay.play import Setup, named, run
from flashfs.replay.request_source import READ, WRITE
from flashfs.replay.traces import Options
from nandimg import Geometry

PAGE = 4096
FTLS = ("dftl", "sftl", "tpftl", "leaftl", "learnedftl", "pagemap")
SHARES = (128, 64, 32, 16, 8, 4, 2, 1)
SCATTERED = (32, 8, 2)  #: the shares that a scattered device is played with
SHOWN = (8, 2)  #: in the tables of the page that have a row for each source
TABLE_BYTES = 8  #: an entry of the table of which the shares are taken
PPA_BYTES = 4  #: one of the page map's
PER_PAGE = PAGE // PPA_BYTES  #: entries of a translation page
CACHES = ("dftl", "sftl", "tpftl", "learnedftl")  #: have an option for the cache's size
GRAIN = 64 << 10  #: granularity at which traces are packed
ROUND, LEAST = 256 << 20, 1 << 30  #: of devices
DIES, OP, DEPTH, BUFFER = 4, 0.15, 8, 256
MOST = 150_000
BIG = 1 << 30  #: bytes of a cache without evictions
STATES = ("in order", "scattered")
#: wear levelling off; no battery, as only dftl has one
OPTIONS = {"buffer": BUFFER, "wear_spread": 1_000_000, "dftl.battery": 0}
#: beginnings of the names of the shared traces' files; a missing one is reported and left out
TRACES = (
    "cloudphysics_113k", "desktop_32k", "fio_iolog_8G", "fiu_mail_10k_md5", "iozone_100k", "mobile_installing",
    "ms_dtrs", "msr_hm_1_writes_33k", "msr_rsrch_1", "sqlite_rbj_put_ext4_discard", "tpcc_small",
    "umass_websearch1_50k", "ycsb_ext4_blkparse", "ycsb_ssdtrace_writes",
)  # fmt: skip
WORKLOADS = ("zipf:theta=0.99,write=0.7", "uniform:write=0.5", "sequential:write=0.5,size=64k")
RECORDED = ("dbbench-fillrandom", "dbbench-readrandom", "dbbench-updaterandom", "fileserver-fio")
RECORDINGS = common.HERE.parent / "examples" / "traces"
DOC = common.HERE.parent / "docs" / "maps.md"
BEGIN, END = "<!-- bench/maps.py writes from here -->\n", "<!-- to here -->\n"

Row = dict[str, Any]


@dataclass
class Work:
    """Something to play, and the device for it."""

    name: str
    setup: Setup
    footprint: int  #: pages that it touches; of a workload those of the device
    part: str = "whole"  #: of a trace: how much of it


def workload(text: str, pages: int, size: int = 1 << 30) -> Work:
    keys = dict(pair.split("=") for pair in text.partition(":")[2].split(","))
    ops = pages * PAGE // (int(keys.get("size", "4k").removesuffix("k")) << 10)
    setup = Setup(f"{text},ops={ops},seed=1", geometry=shape(size), qd=DEPTH)
    return Work(text, setup, setup.geometry.lpas)


def trace(path: Path, pages: float) -> Work:
    end = requests = played = first = 0
    touched: set[int] = set()
    for batch in open_source(str(path), 1 << 60, options=Options(fit="pack", pack_bytes=GRAIN)).batches():
        for op, offset, length in zip(batch.op.tolist(), batch.offset.tolist(), batch.length.tolist(), strict=True):
            requests += 1
            first = requests if played < pages else first
            if op in (READ, WRITE):
                end = max(end, offset + length)
                if played < pages:
                    some = range(offset // PAGE, -(-(offset + length) // PAGE))
                    touched.update(some)
                    played += len(some)
    loops = 1 if pages == math.inf else max(1, round(pages / played))
    part = "whole" if first == requests else f"{first:,} of {requests:,} requests"
    options = Options(fit="pack", pack_bytes=GRAIN, first=first, loops=loops, speedup=1000)  # times do not count
    geometry = shape(max(LEAST, -(-end // ROUND) * ROUND))
    setup = Setup(str(path), geometry=geometry, trace=options, qd=DEPTH)
    return Work(path.stem.partition("__")[0], setup, len(touched), part if loops == 1 else f"{part}, {loops} times")


def works(folder: Path | None, only: str, pages: int, tell: Callable[[str], None]) -> Iterator[Work]:
    yield from (workload(text, pages) for text in WORKLOADS if only in text)
    yield from (trace(RECORDINGS / f"{name}.trace", math.inf) for name in RECORDED if only in name)
    for name in (name for name in TRACES if only in name):
        found = sorted(folder.glob(f"{name}*")) if folder is not None else []
        if found:
            yield trace(found[0], pages)
        else:
            tell(f"{name}: left out: not in --traces")


def shape(size: int) -> Geometry:
    return Geometry.sized(size, op=OP, channels=DIES, dies=DIES, oob_bytes=128)


# --- a measurement


def beside(work: Work) -> int:
    """Bytes that the page map takes apart from its table: every scheme has these."""
    (setup,) = named(replace(_probe(work.setup), dram=1, options=_options(["pagemap"])), "pagemap")
    return int(needed(setup)) - PPA_BYTES * setup.geometry.lpas


def _probe(setup: Setup) -> Setup:
    return replace(setup, source="uniform:ops=1", trace=None, precondition=None, before=())


def needed(setup: Setup) -> str:
    """The bytes it needs if its DRAM is too small (or another error's text); empty if it starts."""
    try:
        run(_probe(setup))
    except FlashfsError as error:
        found = re.search(r"needs (\d+) bytes", str(error))
        return found[1] if found else str(error)
    return ""


def fitted(setup: Setup) -> tuple[Setup, str]:
    """(the setup, why it does not start). If its cache does not fit, ``cmt_bytes`` is lowered to what DRAM leaves."""
    assert setup.dram is not None
    why, room = needed(setup), TABLE_BYTES * setup.geometry.lpas
    while why.isdecimal() and setup.ftl in CACHES:
        room = min(room, setup.options.get("cmt_bytes", room)) - max(256, (int(why) - setup.dram) // 2)
        if room <= 0:
            break
        setup = replace(setup, options={**setup.options, "cmt_bytes": room})
        why = needed(setup)
    return setup, why


def _options(ftls: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in OPTIONS.items() if "." not in name or name.partition(".")[0] in ftls}


def at_equal_dram(work: Work, ftls: Sequence[str], shares: Iterable[int], state: str) -> Iterator[Row]:
    fixed, lpas = beside(work), work.setup.geometry.lpas
    before = (f"uniform:ops={lpas},seed=2",) if state == "scattered" else ()
    for share in shares:
        dram = fixed + TABLE_BYTES * lpas // share
        setup = replace(work.setup, precondition="fill", before=before, dram=dram, options=_options(ftls))
        for one in named(setup, ",".join(ftls)):
            row = {"source": work.name, "state": state, "share": share, "ftl": one.ftl, "dram": dram}
            one, why = fitted(one)
            yield {**row, "needs": why} if why else {**row, **figures(run(one))}


def figures(made: Row) -> Row:
    host, scheme, cause = made["host"], made["scheme"], made["purpose"]
    pages = host["read"] + host["write"]
    mean, p99, p999 = latency(made)
    return {
        "map_bytes": made["map_bytes"],
        **hits(made["ftl"], scheme),
        "cached_data": made["cache"]["hit_ratio"],
        "reads_a_page": round(cause["read"]["translation"] / pages, 6),
        "programs_a_write": round(cause["program"]["translation"] / host["write"], 6) if host["write"] else None,
        "waf": made["waf"],
        "mean_us": mean, "p99_us": p99, "p999_us": p999,
        "ground": made["ground"],
        "complaints": [line.removeprefix(f"{made['source']}: ") for line in made["complaints"]],
    }  # fmt: skip


def hits(ftl: str, scheme: Row) -> Row:
    """The shares of the host's look-ups that read nothing: by the cache, and by a model. leaftl counts none: it reads
    groups of segments, once for all pages of a group that are written or moved together."""
    asked = scheme.get("lookups", 0)
    if ftl == "pagemap" or not asked:
        return {"hit": 1.0 if ftl == "pagemap" else None, "modelled": None}
    return {"hit": round(scheme["hits"] / asked, 6),
            "modelled": round((asked - scheme["hits"] - scheme["misses"]) / asked, 6)}  # fmt: skip


def latency(made: Row) -> tuple[float, float, float]:
    """Mean, p99 and p99.9 of reads and writes together, in us; quantiles have the histograms' resolution."""
    counts: dict[int, int] = {}
    for op in ("read", "write"):
        found = made["histograms"][op]
        for upper, n in zip(found["upper_ns"], found["count"], strict=True):
            counts[upper] = counts.get(upper, 0) + n
    both = [made["latency_us"][op] for op in ("read", "write")]
    n = sum(one["n"] for one in both)
    mean = sum(one["n"] * (one["mean"] or 0) for one in both) / n
    return round(mean, 3), *(_quantile(counts, share * n) / 1e3 for share in (0.99, 0.999))


def _quantile(counts: dict[int, int], wanted: float) -> float:
    below = 0
    for upper in sorted(counts):
        below += counts[upper]
        if below >= wanted:
            break
    return upper


def whole(work: Work) -> Row:
    """Bytes of each scheme's map after the source was played on a blank device, in the scheme's own form: entries of 8
    bytes; sftl's condensed pages; leaftl's segments and CRB; learnedftl's models and filters, which exist in addition
    to entries in flash and answer for some of them."""
    ftls = ["dftl", "sftl", "leaftl", "learnedftl"]
    setup = replace(work.setup, options={**_options(ftls), "cmt_bytes": BIG})
    found = {one.ftl: run(one) for one in named(setup, ",".join(ftls))}
    mapped, modelled = (found[ftl]["mapped_pages"] for ftl in ("leaftl", "learnedftl"))
    learned = found["learnedftl"]
    return {
        "source": work.name, "mib": work.setup.geometry.logical_bytes >> 20, "part": work.part,
        "requests": found["leaftl"]["input"]["requests"], "footprint": work.footprint,
        "written": found["leaftl"]["host"]["write"], "mapped": mapped,
        "dftl": TABLE_BYTES * mapped,
        "sftl": found["sftl"]["scheme"]["condensed_bytes"], "sftl_runs": found["sftl"]["scheme"]["runs"],
        "leaftl": found["leaftl"]["scheme"]["paper_bytes"], "segments": found["leaftl"]["scheme"]["segments"],
        "learnedftl": learned["dram"]["models"] + learned["dram"]["filters"],
        "exact": round(learned["scheme"]["lpas_modelled"] / modelled, 6) if modelled else None,
    }  # fmt: skip


# --- the page


def page(found: dict[str, Any]) -> str:
    maps, rows = found["whole"], found["rows"]
    out = [
        *_table(["source", "MiB", "part of the trace", "pages touched", "pages written"], [
            [row["source"], f"{row['mib']:,}", row["part"], f"{row['footprint']:,}", f"{row['written']:,}"]
            for row in maps
        ]),
        "", "### The whole map, in bytes", "", *_whole(maps), "", "### Means over all sources", "", *_means(rows),
        "", "### What holds", "", *_holds(maps, rows),
    ]  # fmt: skip
    made = [row for row in rows if row["source"] not in RECORDED]
    for title, figure, ftls in (
        ("Hit ratio", _hit, [ftl for ftl in FTLS if ftl not in ("leaftl", "pagemap")]),
        ("Translation reads per page of the host's", _reads, FTLS[:-1]),
        ("Latency in us: mean, p99, p99.9", _latency, FTLS),
    ):
        out += ["", f"### {title}", "", *_by_source(made, figure, ftls)]
    out += ["", "### Recorded from a mount", "", *_by_source(
        [row for row in rows if row["source"] in RECORDED],
        lambda row: f"{_reads(row)}; {_latency(row)}", ("dftl", "tpftl", "leaftl", "learnedftl"))]  # fmt: skip
    return "\n".join(out) + "\n"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(names)} |", f"| {' | '.join('---' for _ in names)} |",
            *(f"| {' | '.join(row)} |" for row in rows)]  # fmt: skip


def compared(maps: list[Row]) -> list[Row]:
    """Sources that map at least a tenth of the pages they touch."""
    return [row for row in maps if 10 * row["mapped"] >= row["footprint"]]


def _whole(maps: list[Row]) -> list[str]:
    names = ["source", "mapped pages", "dftl", "sftl", "leaftl", "sftl / leaftl", "... as the artifact counts",
             "learnedftl, beside", "of its pages exact"]  # fmt: skip
    rows = []
    for row in compared(maps):
        numbers = [f"{row[name]:,}" for name in ("mapped", "dftl", "sftl", "leaftl")]
        ratios = [f"{of / row['leaftl']:.2f}" for of in (row["sftl"], counted_twice(row))]
        rows.append([row["source"], *numbers, *ratios, f"{row['learnedftl']:,}", f"{row['exact']:.3f}"])
    return _table(names, rows)


def counted_twice(row: Row) -> int:
    """Bytes of sftl's map as LeaFTL's artifact counts them (wiscsim/sftl.py, ``memory``): two bits an entry, not one,
    and 4 bytes a translation page besides."""
    heads, pages = 4 * int(row["sftl_runs"]), (int(row["sftl"]) - 4 * int(row["sftl_runs"])) // (PER_PAGE // 8)
    return heads + pages * (PER_PAGE // 4 + 4)


def part_of(share: int) -> str:
    return f"1/{share}" if share > 1 else "1"


def geometric(values: Iterable[float]) -> float | None:
    some = [math.log(value) for value in values if value > 0]
    return math.exp(sum(some) / len(some)) if some else None


def pairs(rows: list[Row], share: int, state: str, one: str, two: str) -> list[tuple[Row, Row]]:
    """(row of ``one``, row of ``two``) for each source at which both have figures."""
    mine = {(row["ftl"], row["source"]): row for row in rows
            if (row["share"], row["state"]) == (share, state) and "needs" not in row}  # fmt: skip
    return [(mine[one, source], row) for (ftl, source), row in mine.items() if ftl == two and (one, source) in mine]


def _means(rows: list[Row]) -> list[str]:
    """For each other scheme: sftl's mean latency and p99.9 over its own, as geometric means over the sources."""
    names, out = [name for name in FTLS if name != "sftl"], []
    for state in STATES:
        for share in sorted({row["share"] for row in rows if row["state"] == state}, reverse=True):
            line = [state, part_of(share)]
            for ftl in names:
                some = pairs(rows, share, state, ftl, "sftl")
                mean, tail = (geometric(b[key] / a[key] for a, b in some if a[key] and b[key])
                              for key in ("mean_us", "p999_us"))  # fmt: skip
                line.append(f"{mean:.2f}, {tail:.2f} ({len(some)})" if mean and tail else "-")
            out.append(line)
    return _table(["written before", "DRAM", *names], out)


ORDERS = (
    ("hit", "tpftl", "sftl"), ("hit", "sftl", "dftl"), ("hit", "tpftl", "dftl"), ("mean_us", "leaftl", "sftl"),
    ("mean_us", "tpftl", "dftl"), ("mean_us", "learnedftl", "tpftl"),
)  # fmt: skip


def _holds(maps: list[Row], rows: list[Row]) -> list[str]:
    ratios = [row["sftl"] / row["leaftl"] for row in compared(maps)]
    twice = [counted_twice(row) / row["leaftl"] for row in compared(maps)]
    smaller = f"{sum(one > 1 for one in ratios)} of {len(ratios)}"
    out = [
        f"- sftl's map / leaftl's: {geometric(ratios):.2f} on average (paper: 2.9), {max(ratios):.2f} at most (5.3), "
        f"{min(ratios):.2f} at least; leaftl's is smaller on {smaller}. As LeaFTL's artifact counts sftl's, "
        f"{geometric(twice):.2f} on average, {max(twice):.2f} at most."
    ]
    for ftl in FTLS:
        starts = [max(row["share"] for row in mine) for mine in _started(rows, ftl)]
        most, least = part_of(min(starts)), part_of(max(starts))
        out.append(f"- {ftl} starts with {most} of the table on every source"
                   + (f", with {least} on some." if most != least else "."))
    for key, one, two in ORDERS:
        said = []
        for state in STATES:
            some = [pair for share in SHARES for pair in pairs(rows, share, state, one, two)]
            some = [(a, b) for a, b in some if None not in (a[key], b[key])]
            met = sum(a[key] >= b[key] - 0.005 if key == "hit" else a[key] <= 1.01 * b[key] for a, b in some)
            if some:
                said.append(f"at {met} of {len(some)} points {state}")
        more = "hits at least as often as" if key == "hit" else "takes no longer than"
        out.append(f"- {one} {more} {two} {', '.join(said)}.")
    return out


def _started(rows: list[Row], ftl: str) -> list[list[Row]]:
    """For each source, the rows with figures on a device written in order."""
    mine: dict[str, list[Row]] = {}
    for row in rows:
        if row["ftl"] == ftl and row["state"] == STATES[0] and "needs" not in row:
            mine.setdefault(row["source"], []).append(row)
    return list(mine.values())


def _by_source(rows: list[Row], figure: Callable[[Row], str], ftls: Sequence[str]) -> list[str]:
    shown: dict[tuple[str, str, int], dict[str, str]] = {}
    for row in rows:
        if row["share"] in SHOWN:
            key = (row["source"], row["state"], row["share"])
            shown.setdefault(key, {})[row["ftl"]] = "-" if "needs" in row else figure(row)
    return _table(["source", "written before", "DRAM", *ftls],
                  [[source, state, part_of(share), *(one.get(ftl, "") for ftl in ftls)]
                   for (source, state, share), one in shown.items()])  # fmt: skip


def _reads(row: Row) -> str:
    return f"{row['reads_a_page']:.3f}"


def _hit(row: Row) -> str:
    if row["hit"] is None:
        return "-"
    return f"{row['hit']:.3f}" + (f" + {row['modelled']:.3f}" if row["ftl"] == "learnedftl" else "")


def _latency(row: Row) -> str:
    return f"{row['mean_us']:,.0f}, {row['p99_us']:,.0f}, {row['p999_us']:,.0f}"


def written(text: str, found: dict[str, Any]) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, behind = rest.partition(END)
    return f"{before}{BEGIN}\n{page(found)}\n{END}{behind}"


def merged(new: dict[str, Any]) -> dict[str, Any]:
    """The saved results, with those of the (source, scheme) pairs in ``new`` replaced."""
    kept = json.loads((common.RESULTS / "maps.json").read_text())
    made = {(row["source"], row.get("ftl")) for name in ("whole", "rows") for row in new[name]}
    order = [row["source"] for row in kept["whole"]] + [row["source"] for row in new["whole"]]

    def place(row: Row) -> tuple[int, int, int, int]:
        if "ftl" not in row:
            return order.index(row["source"]), 0, 0, 0
        return order.index(row["source"]), STATES.index(row["state"]), -row["share"], FTLS.index(row["ftl"])

    return {name: sorted([row for row in kept[name] if (row["source"], row.get("ftl")) not in made] + new[name],
                         key=place) for name in ("whole", "rows")}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, metavar="DIR")
    parser.add_argument("--only", default="", metavar="TEXT", help="sources whose names have this")
    parser.add_argument("--ftl", default=",".join(FTLS))
    parser.add_argument("--shares", nargs="+", type=int, default=SHARES, metavar="N")
    parser.add_argument("--pages", type=int, default=MOST, metavar="N")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--only-page", action="store_true", help="write the page from what was saved")
    given = parser.parse_args()
    if given.only_page:
        found = json.loads((common.RESULTS / "maps.json").read_text())
    else:
        found = {"whole": [], "rows": []}
        for work in works(given.traces, given.only, given.pages, lambda line: print(line, file=sys.stderr)):
            found["whole"].append(whole(work))
            print(json.dumps(found["whole"][-1]), flush=True)
            for state in STATES:
                shares = given.shares if state == STATES[0] else [one for one in given.shares if one in SCATTERED]
                for row in at_equal_dram(work, given.ftl.split(","), shares, state):
                    print(json.dumps({k: v for k, v in row.items() if k not in ("ground", "complaints")}), flush=True)
                    found["rows"].append(row)
        if given.no_save:
            return 0
        found = merged(found) if given.only or given.ftl != ",".join(FTLS) else found
        common.save("maps", found)
    DOC.write_text(written(DOC.read_text(), found))
    return 0
