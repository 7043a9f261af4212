"""Makes the figures of papers, saves their tables, and writes the verdicts into docs/reproduce.md.

    reproduce.py [PAPER...] [--figure FIGURE]... [--scale paper] [--jobs N] [--out DIR] [--only-page | --judge]

Later runs of `flashfs reproduce` are compared with the saved tables (flashfs/reproduce/results), so look at a changed
verdict before you commit it. A table in which something held before and does not now is not saved, unless the figure
gives the reason ([lost], "SERIES | X | RULE" = "why"). --judge gives the saved tables the verdicts of today's
expectations, without a replay. --only-page writes the page from the saved tables.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from flashfs.replay.workers import Processes  # noqa: E402
from flashfs.reproduce import figure as files  # noqa: E402
from flashfs.reproduce import make, verdict  # noqa: E402

PAGE = ROOT / "docs" / "reproduce.md"
BEGIN, END = "<!-- tools/reproduce.py writes from here -->\n", "<!-- to here -->\n"


def table(figures: dict[str, files.Figure]) -> str:
    """A row for each figure, with what does not hold; then the same for the figures made at the scale of the paper."""
    paper = _rows([(one, kept) for one in figures.values() if (kept := make.kept_file(one, "paper")) is not None])
    small = _rows([(one, make.kept_file(one)) for one in figures.values()])
    return f"{small}\nAt the scale of the paper, as far as that was made (`--scale paper`):\n\n{paper}"


def _rows(kept: list[tuple[files.Figure, dict[str, Any] | None]]) -> str:
    out = ["| figure | what | holds | what does not |", "| --- | --- | --- | --- |"]
    for one, found in kept:
        holds, does_not = ("-", "") if found is None else (found["summary"], "; ".join(differing(found["rows"])))
        out.append(f"| `{one.paper} {one.number}` | {one.title} | {holds} | {does_not} |")
    return "\n".join(out) + "\n"


def differing(rows: list[dict[str, Any]]) -> list[str]:
    """A text for each expectation that is not met."""
    out = []
    for row in rows:
        if row["met"] is False:
            why = row["verdict"] if row["paper"] is None else f"{row['ours']:.3g} for {row['paper']:g} ({row['mark']})"
            out.append(f"{row['series']}, {row['x']}: {why}")
    return out


def with_table(page: str, figures: dict[str, files.Figure]) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, behind = rest.partition(END)
    return f"{before}{BEGIN}\n{table(figures)}\n{END}{behind}"


def judge(figure: files.Figure) -> bool:
    """Judge the saved tables of a figure again; False if something held before and does not now, without a reason."""
    whole = True
    for scale in files.SCALES:
        table = make.judged(figure, scale)
        if table is None:
            continue
        for key in table["lost"]:
            print(f"{figure.name}: {key} held before; give the reason in [lost] of {figure.file.name}", file=sys.stderr)
        whole &= not table["lost"]
        if not table["lost"]:
            (make.KEPT / make.kept_name(figure, scale)).write_text(json.dumps(table, indent=1) + "\n")
    return whole


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("papers", nargs="*", metavar="PAPER", help="default: all")
    arguments.add_argument("--out", type=Path, default=ROOT / "reproduced", metavar="DIR")
    arguments.add_argument("--figure", action="append", metavar="FIGURE", help="only this one, as 11; repeatable")
    arguments.add_argument("--scale", choices=files.SCALES, default="small")
    arguments.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    arguments.add_argument("--only-page", action="store_true")
    arguments.add_argument("--judge", action="store_true")
    given = arguments.parse_args()
    figures = files.find([files.OURS])
    for kind, asked, known in (("paper", given.papers, {one.paper for one in figures.values()}),
                               ("figure", given.figure or [], {one.number for one in figures.values()})):  # fmt: skip
        if unknown := set(asked) - known:
            arguments.error(f"{kind} {sorted(unknown)[0]}: there are {', '.join(sorted(known))}")
    failed = False
    for one in figures.values():
        if given.only_page or one.paper not in (given.papers or [one.paper]):
            continue
        if one.number not in (given.figure or [one.number]) or (given.scale == "paper" and not given.figure):
            continue  # all at the scale of their papers would take weeks
        if given.judge:
            failed |= not judge(one)
            continue
        made = make.make(one, given.scale, given.out, Processes(given.jobs))
        print(f"{one.name}: {verdict.summary(made.lines)}", flush=True)
        for line in (*made.failed, *(f"{one.name}: {lost.key} held before: not saved" for lost in made.lost)):
            print(line, file=sys.stderr)
        failed |= bool(made.failed or made.lost)
        if not made.failed and not made.lost:
            make.KEPT.mkdir(exist_ok=True)
            shutil.copyfile(made.files["table"], make.KEPT / make.kept_name(one, given.scale))
    PAGE.write_text(with_table(PAGE.read_text(), figures))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
