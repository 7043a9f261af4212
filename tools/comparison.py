"""docs/comparison.md: every FTL with equal settings, on workloads and real traces, blank and filled. Counts and virtual
time, so the same on any machine.

Workloads play --pages pages on 1 GiB. A trace of the folder is packed, a MiB at a time, onto a device that just holds
it, and looped until the device, or --pages pages, have been written. Sixteen requests at a time. The page map is there
twice: with whole blocks as its stripe, as the others place pages, and with stripes of four as it is used alone.
Results are saved after each source; --keep skips the sources that have results. Those of the workloads go into the
package (flashfs/comparison/results), where `flashfs compare` finds them, those of traces to
tools/results/comparison.json.

What is played replaces its rows among the saved ones, and all others stay: without --traces those of traces, with
--only those of other sources, with --ftl those of other FTLs.

    comparison.py [--traces DIR] [--only TEXT] [--ftl A,B] [--pages N] [--keep] [--no-save] [--only-page]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin

from flashfs.comparison import chart, kept, works
from flashfs.comparison.kept import Row
from flashfs.comparison.works import STATES, Work
from flashfs.ftl import SCHEMES
from flashfs.replay import plots
from flashfs.replay.play import named, run

BESIDE = 7  #: sources in a table, at most
SHORT = 4  #: pages: the stripe of the page map alone
ROOT = Path(__file__).resolve().parents[1]
DOC = ROOT / "docs/comparison.md"
CHART = ROOT / "docs/img/comparison.svg"
TRACES = ROOT / "tools" / "results" / "comparison.json"
MARK = "<!-- tables: tools/comparison.py -->\n"


def results(work: Work, ftls: Sequence[str]) -> Iterator[Row]:
    """The rows of these FTLs, on a blank device and on a filled one, with the settings that all FTLs share."""
    for state in STATES:
        setups = named(replace(work.setup, precondition=state), ",".join(SCHEMES))
        page_map = next(setup for setup in setups if setup.ftl == "pagemap")
        # its row says so: its settings differ from the others'
        setups.insert(1, replace(page_map, options={**page_map.options, "stripe": SHORT}))
        for setup in [setup for setup in setups if setup.ftl in ftls]:
            alone = setup.options.get("stripe") == SHORT
            column = f"{setup.ftl}, stripe {SHORT}" if alone else setup.ftl
            yield kept.row(work, state, column, setup.ground, run(setup))


def in_order(rows: list[Row]) -> list[Row]:
    """By source in order of appearance, by state and by FTL; of two rows with one key the later."""
    sources = list(dict.fromkeys(row["source"] for row in rows))
    names = list(SCHEMES)
    last = {(row["source"], row["state"], row["column"]): row for row in rows}

    def key(row: Row) -> tuple[int, int, int, str]:
        ftl = row["column"].partition(",")[0]
        return sources.index(row["source"]), list(STATES).index(row["state"]), names.index(ftl), row["column"]

    return sorted(last.values(), key=key)


# --- the page


def page(rows: list[Row]) -> str:
    out = [ground_table(rows)]
    for title, figure, states in (
        ("Write amplification", waf, ("fill", "none")),
        ("Requests per second of virtual time", lambda row: f"{row['iops']:,.0f}" if row["iops"] else "-", ("fill",)),
        ("Flash reads, for the host and the map, per page that the host reads or writes", reads, ("fill",)),
        ("p99.9 of reads, us", lambda row: tail(row, "read"), ("fill",)),
        ("p99.9 of writes, us", lambda row: tail(row, "write"), ("fill",)),
        ("Most erases of a block, and the mean", wear, ("fill",)),
        ("Bytes of the map", lambda row: f"{row['map_bytes']:,}", ("fill",)),
    ):
        for state in states:
            out.append(f"### {title}{', blank device' if state == 'none' else ''}\n")
            out += tables([row for row in rows if row["state"] == state], figure)
    return "\n".join(out)


def waf(row: Row) -> str:
    """WAF, if more than twice the write buffer was written."""
    return f"{row['waf']:.3f}" if row["host"]["write"] > 2 * row["ground"]["buffer"] else "-"


def reads(row: Row) -> str:
    """Flash reads a host page. Holes and buffered pages take none; a partial write of a page reads the rest."""
    asked = row["host"]["read"] + row["host"]["write"]
    return f"{(row['read'].get('host', 0) + row['read'].get('map', 0)) / asked:.2f}" if asked else "-"


def tail(row: Row, operation: str) -> str:
    found = row["latency_us"].get(operation)
    return f"{found[2]:,.0f}" if found else "-"


def wear(row: Row) -> str:
    return f"{row['wear']['max']:,}, {row['wear']['mean']:.1f}"


def tables(rows: list[Row], figure: Callable[[Row], str]) -> Iterator[str]:
    """A row for each FTL and a column for each source, workloads first, in tables of at most BESIDE sources. A source
    without figures is left out."""
    cells = {(row["column"], row["source"]): figure(row) for row in rows}
    columns = list(dict.fromkeys(row["column"] for row in rows))
    sources = [
        source for source in dict.fromkeys(row["source"] for row in rows)
        if any(cells.get((column, source), "-") != "-" for column in columns)
    ]  # fmt: skip
    for some in (*parted([one for one in sources if one in works.WORKLOADS]),
                 *parted([one for one in sources if one not in works.WORKLOADS])):  # fmt: skip
        lines = [f"| FTL | {' | '.join(map(works.short, some))} |", f"| --- |{' --: |' * len(some)}"]
        for column in columns:
            shown = " | ".join(cells.get((column, source), "-") for source in some)
            lines.append(f"| {column} | {shown} |")
        yield "\n".join(lines) + "\n"


def parted(sources: list[str]) -> Iterator[list[str]]:
    """Split into parts of about the same length, at most BESIDE."""
    parts = -(-len(sources) // BESIDE)
    for i in range(parts):
        yield sources[len(sources) * i // parts : len(sources) * (i + 1) // parts]


def ground_table(rows: list[Row]) -> str:
    """The equal settings for each source, and the differences that remain."""
    names = ("MiB", "loops", "dies, channels", "OP", "buffer, pages", "stripe, pages", "wear spread", "reserve, blocks")
    lines = [f"| source | {' | '.join(names)} |", f"| --- |{' --: |' * len(names)}"]
    for source in dict.fromkeys(row["source"] for row in rows):
        mine = [row for row in rows if row["source"] == source]
        one = mine[0]["ground"]

        def said(name: str, mine: list[Row] = mine) -> str:
            values = {row["ground"][name] for row in mine if f"stripe {SHORT}" not in row["column"]} - {None}
            return " or ".join(f"{value:,}" for value in sorted(values))

        shape = f"{mine[0]['mib']:,} | {mine[0]['loops']} | {one['dies']}, {one['channels']} | {one['op']:.1%}"
        even = " | ".join(said(name) for name in ("buffer", "stripe", "wear_spread", "gc_reserve"))
        called = f"{source} (*{works.short(source)}*)" if source in works.WORKLOADS else source
        lines.append(f"| {called} | {shape} | {even} |")
    told = dict.fromkeys(line for row in rows for line in row["complaints"] if "where the ground" in line)
    nvram: dict[str, int] = {}
    for row in rows:
        if row["ground"]["nvram"]:
            nvram[row["column"]] = max(nvram.get(row["column"], 0), row["ground"]["nvram"])
    left = [line for line in told if "NVRAM" not in line]
    left += [f"{column}: NVRAM of its own, up to {most:,} bytes" for column, most in nvram.items()]
    left.append(f"bytes of the map in DRAM, over the page map's: {map_bytes(rows)}")
    return "\n".join(lines) + "\n\nDifferences that remain:\n\n" + "".join(f"- {line}\n" for line in left)


def map_bytes(rows: list[Row]) -> str:
    """How many times the page map's bytes of DRAM each map has, the least and the most of all sources."""
    base = {(row["source"], row["state"]): row["map_bytes"] for row in rows if row["column"] == "pagemap"}
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["column"], []).append(row["map_bytes"] / base[row["source"], row["state"]])
    return ", ".join(f"{column} {min(every):.2f} to {max(every):.2f}" for column, every in found.items()
                     if not min(every) == max(every) == 1)  # fmt: skip


def write(rows: list[Row]) -> None:
    """Write the page and its chart."""
    head, mark, _ = DOC.read_text().partition(MARK)
    if not mark:
        raise SystemExit(f"{DOC}: no line {MARK.strip()}")
    DOC.write_text(head + mark + "\n" + page(rows))
    plots.draw(chart.figure([row for row in rows if row["source"] in works.WORKLOADS]), CHART, width_inches=7)


def save(rows: list[Row]) -> None:
    """Save rows of workloads in the package, rows of traces in tools/results."""
    kept.write([row for row in rows if row["source"] in works.WORKLOADS])
    kept.write([row for row in rows if row["source"] not in works.WORKLOADS], TRACES)


def saved() -> list[Row]:
    return [row for path in (kept.FILE, TRACES) if path.exists() for row in kept.read(path)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="the folder of traces")
    parser.add_argument("--only", default="", help="traces and workloads whose names have this")
    parser.add_argument("--ftl", help="only these FTLs; the rows of the others stay")
    parser.add_argument("--pages", type=int, default=works.MOST, help="host pages written in each run, about")
    parser.add_argument("--keep", action="store_true", help="go on with the results that there are")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--only-page", action="store_true", help="replay nothing, write the page anew")
    given = parser.parse_args()
    ftls = given.ftl.split(",") if given.ftl else list(SCHEMES)
    rows = saved()
    there = {row["source"] for row in rows} if given.keep else set()
    for work in () if given.only_page else all_works(given):
        if work.name in there:
            continue
        for row in results(work, ftls):
            rows.append(row)
            print(f"{row['source']}, {row['state']}, {row['column']}: WAF {row['waf']}, {row['iops']} IOPS", flush=True)
        rows = in_order(rows)
        if not given.no_save:
            save(rows)
    if not given.no_save:
        write(rows)
    return 0


def all_works(given: argparse.Namespace) -> Iterator[Work]:
    yield from works.workloads(given.only, given.pages)
    if given.traces is not None:
        yield from works.traces(given.traces, given.only, given.pages)


if __name__ == "__main__":
    sys.exit(main())
