"""Figures by module, and the surviving mutants."""

from __future__ import annotations

from typing import Any

from mutants.build import Module
from mutants.sites import Site
from mutants.state import EQUIVALENT, Judgement, Key, State, Verdict

ALL = "*"
COUNTS = (
    "tables",
    "summary",
    "meter",
    "forget_counts",
    "known",
)  #: functions that only report figures
#: the code on which durability across power loss depends: functions of each module, or all of them
DURABLE: dict[str, str] = {
    "flashfs/engine/device/ssd.pyx": "write write_buffered trim flush resume restore sync_now",
    "flashfs/engine/device/durable.pyx": ALL,
    "flashfs/engine/device/writer.pyx": ALL,
    "flashfs/engine/device/upkeep.pyx": ALL,
    "flashfs/engine/device/mover.pyx": ALL,
    "flashfs/engine/device/buffer.pyx": "find add settle drop clear sort gather gathered survivors _sum",
    "flashfs/engine/device/metalog.pyx": ALL,
    "flashfs/engine/recovery/found.pyx": ALL,
    "flashfs/engine/recovery/clean_start.pyx": ALL,
    "flashfs/engine/recovery/log_reader.pyx": ALL,
    "flashfs/engine/recovery/block_states.pyx": ALL,
    "flashfs/engine/recovery/records.pyx": ALL,
    "flashfs/engine/recovery/scan.pyx": ALL,
    "flashfs/engine/recovery/found_pages.pyx": ALL,
    "flashfs/engine/recovery/trim_index.pyx": ALL,
    "flashfs/parts/battery/battery.pyx": ALL,
    "flashfs/parts/paged/demand_map.pyx": ALL,
    "flashfs/parts/paged/entry_pages.pyx": ALL,
    "flashfs/parts/battery/map_battery.pyx": ALL,
    "flashfs/parts/validity/bitmap_battery.pyx": ALL,
    "flashfs/parts/paged/newer_section.pyx": ALL,
    "flashfs/parts/paged/pending_entries.pyx": ALL,
    "flashfs/parts/paged/cached_map.pyx": ALL,
    "flashfs/engine/recovery/mend.pyx": ALL,
    "flashfs/engine/recovery/follow.pyx": ALL,
    "flashfs/engine/recovery/recovery.pyx": ALL,
    "flashfs/engine/recovery/resolve.pyx": ALL,
    "flashfs/parts/paged/part_pages.pyx": ALL,
    "flashfs/parts/paged/paged_map.pyx": ALL,
    "flashfs/parts/defaults/map_check.pyx": ALL,
    "flashfs/ftl/leaftl/gmd.pyx": "replace ppa_of set_ppa id_at saved parsed",
    "flashfs/ftl/leaftl/table_pages.pyx": """need changes settled load parse plausible remade load_all evict write_next
        write_one first_changed written gather take is_sound""",
    "flashfs/ftl/slimftl/mapping.pyx": """set_entry owner_of let_go bind moved confirm unbind stamp recovered
        blocks_with_pages recovery_conflicts recovery_reopens recovery_ends point_vbt reset load""",
    "flashfs/ftl/leaftl/mapping.pyx": "bind insert_unsorted moved confirm unbind stamp lpas_of page_gone tend",
    "flashfs/ftl/leaftl/lookup.pyx": "owner_of claimed places settle only_live listed read_list",
    "flashfs/ftl/leaftl/recovery.pyx": "recovered relearn recovery_ends reset save load misfit",
    "nandimg/_chip.pyx": """record_crc write_record write_entry health mark synced mark_synced find_next judge_spare
        write_data program take_page take_again erase erases_after sync retire nvram_store nvram_pair nvram_load
        boot_write boot_read block_table_problem spare_is_blank entry_check""",
}


def is_durable(site: Site) -> bool:
    names, name = DURABLE.get(site.module, ""), site.function.rpartition(".")[2]
    return name not in COUNTS if names == ALL else name in names.split()


def figures() -> list[str]:
    return ["module", "made", "check", "crash", "tests", "time-out", "survived", "equivalent", "left", "left durable",
            "not run"]  # fmt: skip


def of_module(module: Module, state: State, judged: dict[Key, Judgement]) -> dict[str, Any]:
    """Counts of its mutants: made, caught by each suite, timed out, survived, equivalent."""
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
    """A row for each survivor: its place, its change, whether on a durability path, and its judgement."""
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
