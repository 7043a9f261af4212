"""Figures by module, and those that nothing noticed."""

from __future__ import annotations

from typing import Any

from mutants.build import Module
from mutants.sites import Site
from mutants.state import EQUIVALENT, Judgement, Key, State, Verdict

ALL = "*"
#: what has to be right for a promise about power loss to hold: functions of each module, or all of them
DURABLE: dict[str, tuple[str, ...]] = {
    "flashfs/_core.pyx": (
        "sync_image", "refuse", "write", "write_buffered", "drain", "drain_in_order", "flush", "barrier", "trim",
        "append",        "checkpoint", "program", "retire", "salvage", "pad", "close", "sync", "settle",
    ),
    "flashfs/_mover.pyx": (ALL,),
    "flashfs/_buffer.pyx": ("add", "settle", "drop", "survivors", "_sum", "find", "sort", "gather", "gathered"),
    "flashfs/_metalog.pyx": (ALL,),
    "flashfs/_scan.pyx": (ALL,),
    "flashfs/_recovery.pyx": (ALL,),
    "flashfs/_translation.pyx": (ALL,),
    "flashfs/_table_pages.pyx": (
        "evict_one", "write_back", "save", "load", "take_leaves", "replace", "moved", "recovered",
    ),
    "flashfs/ftl/slimftl.pyx": (
        "bind", "moved", "owner_of", "recovered", "blocks_with_pages", "recovery_conflicts", "recovery_erased",
        "recovery_exact", "recovery_reopens", "recovery_ends", "reset", "load", "save", "stamp", "confirm",
    ),
    "flashfs/ftl/leaftl.pyx": (
        "bind", "moved", "owner_of", "recovered", "reset", "load", "save", "stamp", "confirm", "learn",
    ),
    "nandimg/_chip.pyx": (
        "write_record", "write_entry", "erases", "health", "mark", "synced", "vouch", "find_next", "judge_spare",
        "program", "write_data", "erase", "erases_after", "sync", "retire", "nvram_write", "nvram_read",
        "boot_write", "boot_read", "record_crc", "take_page", "block_table_problem", "entry_check", "spare_is_blank",
    ),
}  # fmt: skip


def is_durable(site: Site) -> bool:
    names = DURABLE.get(site.module, ())
    return ALL in names or site.function.rpartition(".")[2] in names


def figures() -> list[str]:
    return ["module", "made", "check", "crash", "tests", "time-out", "survived", "equivalent", "left", "left durable",
            "not run"]  # fmt: skip


def of_module(module: Module, state: State, judged: dict[Key, Judgement]) -> dict[str, Any]:
    """How many of its mutants were made, caught first by which suite, never ended, survived, are equivalent."""
    row: dict[str, Any] = dict.fromkeys(figures(), 0)
    row["module"], row["made"] = module.name, len(module.mutants)
    for site in module.mutants.values():
        found = known(state, site, module)
        if found is None:
            row["not run"] += 1
        elif found.verdict == "caught":
            row[found.suite] += 1
        elif found.verdict == "time-out":
            row["time-out"] += 1
        else:
            row["survived"] += 1
            same = is_equivalent(judged, site)
            row["equivalent" if same else "left"] += 1
            row["left durable"] += not same and is_durable(site)
    return row


def known(state: State, site: Site, module: Module) -> Verdict | None:
    found = state.verdicts.get(site.key)
    return found if found is not None and found.digest == module.digest else None


def is_equivalent(judged: dict[Key, Judgement], site: Site) -> bool:
    one = judged.get(site.key)
    return one is not None and one.verdict == EQUIVALENT


def survivors(modules: list[Module], state: State, judged: dict[Key, Judgement]) -> list[dict[str, Any]]:
    """Each that nothing noticed: where, what, whether on a durability path, and what was found about it."""
    rows = []
    for module in modules:
        for number, site in module.mutants.items():
            found = known(state, site, module)
            if found is None or found.verdict in ("caught", "time-out"):
                continue
            one = judged.get(site.key)
            rows.append({
                "number": number, "module": site.module, "function": site.function, "line": site.line,
                "text": site.text, "change": site.change, "verdict": found.verdict, "durable": is_durable(site),
                "judged": f": {one.verdict}: {one.why}" if one else "",
            })  # fmt: skip
    return rows
