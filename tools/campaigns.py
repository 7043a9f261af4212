"""docs/campaigns.md: which power cuts and kills each FTL has survived, from the lines of campaigns (`--survived`).

    python tools/campaigns.py                     # from tools/results/survived.jsonl
    python tools/campaigns.py FILE --check        # exit code 1 if the page is out of date

A line has a hash of the sources of the chip, the engine and the FTL (`flashfs.crash.campaign.sources`), by which the
page separates this version's cuts from those of earlier ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from flashfs.crash.campaign import TIERS, sources
from flashfs.ftl import SCHEMES

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "campaigns.md"
HEAD = """# Campaigns

Made by `tools/campaigns.py` from [survived.jsonl](../tools/results/survived.jsonl), to which `make campaign` and
`flashfs crash run --survived` add a line for each FTL and tier that lost nothing. [crash.md](crash.md) says what the
tiers are. A cell is: cuts (of kills: kills), and in parentheses with how many seeds.

"""


def table(lines: list[dict[str, Any]]) -> list[str]:
    """A row for each FTL that has any line, a column for each tier and file system."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        column = f"kill, {line['fs']} {line['writer']}" if line["tier"] == "kill" else line["tier"]
        cells[line["ftl"], column].append(line)
    kinds = {column for _, column in cells}
    columns = [*(tier for tier in TIERS if tier in kinds), *sorted(kinds - set(TIERS))]
    rows = [f"| FTL | {' | '.join(columns)} | in all |", f"| --- |{' --: |' * (len(columns) + 1)}"]
    for ftl in SCHEMES:
        of = [cells.get((ftl, column), []) for column in columns]
        if any(of):
            total = sum(line["cuts"] for cell in of for line in cell)
            rows.append(f"| `{ftl}` | {' | '.join(map(cell_of, of))} | {total:,} |")
    return rows


def cell_of(lines: list[dict[str, Any]]) -> str:
    """Cuts, and the number of seeds in parentheses."""
    if not lines:
        return "-"
    return f"{sum(line['cuts'] for line in lines):,} ({len({line['seed'] for line in lines})})"


def page(lines: list[dict[str, Any]]) -> str:
    """The whole page."""
    now = {ftl: sources(ftl) for ftl in SCHEMES}
    mine = [line for line in lines if line.get("sources") == now.get(line["ftl"], "")]
    others = [line for line in lines if line.get("sources") != now.get(line["ftl"], "")]
    parts = [HEAD]
    for name, some in (("This version", mine), ("Earlier versions", others)):
        if not some and name == "This version":
            parts.append(f"## {name}\n\nNo campaign yet.\n\n")
        if some:
            days = sorted({line["on"] for line in some})
            since = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
            parts.append(f"## {name}\n\n{since}.\n\n" + "\n".join(table(some)) + "\n\n")
    return "".join(parts).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "tools" / "results" / "survived.jsonl")
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    made = page([json.loads(line) for line in given.file.read_text().splitlines()])
    if given.check:
        return int(not PAGE.exists() or PAGE.read_text() != made)
    PAGE.write_text(made)
    print(f"{PAGE.relative_to(ROOT)}: written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
