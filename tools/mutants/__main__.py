"""Mutation testing of the compiled modules: which changes do the checks, the crash tiers and the fast tests miss?

    python tools/mutants [--module ssd ...] [--count 48] [--seed 1] [--limit 60] [--jobs 1] [--again] [--json]
    python tools/mutants --mutant 2049     # that one alone, again
    python tools/mutants --list            # the mutants and their verdicts; nothing is run
    python tools/mutants --show 2049       # the diff of that one

``--count`` mutants of each module are drawn by ``--seed`` and compiled into a copy of the project (``--folder``), all
at once, each with a number that chooses it. Each runs the items that reach its line, the cheapest first, until one
fails or ``--limit`` seconds' worth of them have passed. Verdicts are kept in ``--state``, so an interrupted run
resumes. ``tools/mutants/judged.toml`` has the findings of people on survivors.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table

from mutants import runner, suites
from mutants.build import AROUND, MODULES, MOST, ROOT, Module, NotBuilt, build
from mutants.report import figures, is_durable, of_module, survivors
from mutants.sites import Site
from mutants.state import BadJudgement, Judgement, Key, State, judgements
from mutants.text import Text

PATTERN = 165  #: for malloc to fill new and freed memory with, as the compiler fills variables
JUDGED = Path(__file__).resolve().parent / "judged.toml"


def main() -> int:
    given = arguments()
    try:
        judged = judgements(JUDGED)
        names = [full_name(name) for name in given.module] or list(MODULES)
        folder = given.folder.resolve()
        modules = build(folder, names, given.seed, given.count, lambda text: print(text, file=sys.stderr))
    except (NotBuilt, BadJudgement) as error:
        print(error, file=sys.stderr)
        return 2
    if given.show:
        return show(modules, given.show)
    started, code = time.monotonic(), 0
    if not given.list:
        code = meet(modules, folder, given)
    return code or report(modules, State(given.state), judged, given, time.monotonic() - started)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--module", nargs="+", default=[], help="some of them alone: ssd, slimftl, ...")
    parser.add_argument("--mutant", type=int, nargs="+", default=[], help="these alone, once more")
    parser.add_argument("--count", type=at_least_one, default=48, help="mutants of each module (48)")
    parser.add_argument("--seed", type=int, default=1, help="what draws them (1)")
    parser.add_argument("--limit", type=at_least_one, default=60, help="seconds' worth of items that each meets (60)")
    parser.add_argument("--jobs", type=at_least_one, default=1, help="mutants side by side (1)")
    parser.add_argument("--tests", nargs="+", default=list(suites.TESTS), help="what pytest collects from")
    parser.add_argument("--again", action="store_true", help="those that survived meet everything once more")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutants", help="where the copy is (.mutants)")
    parser.add_argument("--state", type=Path, default=ROOT / "mutants.jsonl", help="the verdicts (mutants.jsonl)")
    parser.add_argument("--list", action="store_true", help="say what is known; run nothing")
    parser.add_argument("--show", type=int, metavar="NUMBER", help="print the difference that one mutant makes")
    parser.add_argument("--json", action="store_true", help="print the figures and the survivors as JSON")
    return parser.parse_args()


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: use a number from 1 on")
    return int(text)


def full_name(name: str) -> str:
    for module in MODULES:
        if name in (module, module.removesuffix(".pyx"), short_name(module)):
            return module
    raise NotBuilt(f"{name}: use one of {', '.join(map(short_name, MODULES))}")


def short_name(module: str) -> str:
    """A module's short name; a scheme's mapping has the name of the scheme."""
    path = Path(module)
    return path.parent.name if path.stem == "mapping" else path.stem.removeprefix("_")


def meet(modules: list[Module], folder: Path, given: argparse.Namespace) -> int:
    """Start the process that runs the mutants, and wait for it."""
    task = folder / "task.json"
    task.write_text(json.dumps({
        "state": str(given.state.resolve()), "limit_s": given.limit, "jobs": given.jobs,
        "again": given.again or bool(given.mutant),
        "tests": given.tests, "digests": {module.name: module.digest for module in modules},
        "mutants": {number: site.as_dict() for module in modules for number, site in module.mutants.items()
                    if not given.mutant or number in given.mutant},
    }))  # fmt: skip
    reached = folder / runner.REACHED
    with reached.open("wb") as out:
        out.truncate(MOST)
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{folder / 'tools'}", "FLASHFS_MUTANTS_REACHED": str(reached),
                   "MALLOC_PERTURB_": str(PATTERN)}
    command = [sys.executable, str(folder / "tools" / "mutants" / "runner.py"), str(task)]
    return subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False).returncode


def show(modules: list[Module], number: int) -> int:
    """Print the diff between a mutant and its source."""
    for module in modules:
        site = module.mutants.get(number)
        if site is not None:
            print("\n".join(difference(site)))
            return 0
    print(f"{number}: there is no such mutant; `--list` says which there are", file=sys.stderr)
    return 2


def difference(site: Site) -> list[str]:
    text = Text((ROOT / site.module).read_text())
    lines = text.mutated(site.kind, (site.line, site.column), site.before, site.after)
    return list(difflib.unified_diff(text.lines, lines, site.module, site.module, n=AROUND, lineterm=""))


# --- results


def report(
    modules: list[Module], state: State, judged: dict[Key, Judgement], given: argparse.Namespace, seconds: float
) -> int:
    rows = [of_module(module, state, judged) for module in modules]
    left = survivors(modules, state, judged)
    if given.json:
        print(json.dumps({"seed": given.seed, "limit_s": given.limit, "seconds": round(seconds), "modules": rows,
                          "survivors": left}, indent=1))  # fmt: skip
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table(title=f"mutants, seed {given.seed}, up to {given.limit} s of items each")
    for i, title in enumerate(figures()):
        table.add_column(title, justify="right" if i else "left")
    for row in [*rows, total(rows)]:
        table.add_row(*[str(row[title]) for title in figures()])
    console.print(table)
    for one in left:
        where = "  on a durability path" if one["durable"] else ""
        console.out(f"{one['number']} {one['module']}:{one['line']} {one['function']}{where}", highlight=False)
        console.out(f"    {one['text']}\n    {one['change']}\n    {one['verdict']}{one['judged']}", highlight=False)
    if given.list:
        for module in modules:
            for number, site in module.mutants.items():
                found = state.verdicts.get(site.key)
                known = f"{found.verdict} {found.suite} {found.item}".strip() if found else "not run yet"
                where = f"{number} {site.module}:{site.line} {site.function}{' durable' if is_durable(site) else ''}"
                print(f"{where}: {site.text}: {site.change}: {known}")
    return 0


def total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {title: "all" if title == "module" else sum(row[title] for row in rows) for title in figures()}


if __name__ == "__main__":
    sys.exit(main())
