"""What happened between two looks at a mount, in figures: plain dicts, as ``flashfs top --json`` prints them.

Rates are per second of the server's clock. A figure that cannot be had (no time has passed, the host wrote nothing)
is None.
"""

from __future__ import annotations

from typing import Any

from flashfs.watch._look import Look

REQUESTS = ("read", "write", "trim", "flush")
BYTES = ("read", "write", "trim")
OPERATIONS = ("read", "program", "erase", "spare_read")
LOG_CAUSES = ("checkpoint", "trim", "mount")  #: the causes for which blocks of the metadata log are opened
DATA_STATES = ("open", "closed")


def figures(before: Look | None, now: Look) -> dict[str, Any]:
    """Everything that `top` shows except the block map. Without ``before``, or after a remount, rates are None."""
    if before is not None and not now.follows(before):
        before = None
    seconds = now.at_s - before.at_s if before else 0.0
    stats, erases, bad = now.stats, now.smart["erases"], number(now.stats["pool"], "bad")
    return {
        "mountpoint": str(now.asked or now.place),
        "image": now.config.get("image"),
        "ftl": now.config["ftl"],
        "size": now.config["size"],
        "server": now.config["server"],
        "uptime_s": now.at_s,
        "interval_s": round(seconds, 6),
        "host": _host(before, now, seconds),
        "queue": number(stats["server"], "in_flight"),
        "waf": _waf(before, now),
        "flash": {name: _rate(before, now, seconds, "nand", name) for name in OPERATIONS},
        "programs_by_cause": _causes(before, now, seconds),
        "cleaning": _cleaning(before, now, seconds),
        "wear": {**{name: erases.get(name) for name in ("min", "mean", "max", "spread")}, "bad_blocks": bad},
        "pool": dict(stats["pool"]),
        "free_blocks": number(stats["pool"], "free"),
        "dram": {
            name: {"packed": number(stats["dram"], name), "allocated": number(stats["allocated"], name)}
            for name in stats["dram"]
        },
        "scheme": dict(stats["scheme"]),
        "health": {
            "unreadable": number(stats, "unreadable"), "lost": number(now.smart, "lost"),
            "failed": now.smart.get("failed"), "host_disk": now.smart.get("host_disk"),
            "alarms": now.smart.get("alarms", []),
        },
    }  # fmt: skip


def number(of: dict[str, Any], *path: str) -> int | float:
    """The number at the end of ``path``, 0 where there is none."""
    found: Any = of
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, int | float) else 0


def _change(before: Look, now: Look, *path: str) -> int | float:
    return number(now.stats, *path) - number(before.stats, *path)


def _rate(before: Look | None, now: Look, seconds: float, *path: str) -> float | None:
    if before is None or seconds <= 0:
        return None
    return round(_change(before, now, *path) / seconds, 3)


def _host(before: Look | None, now: Look, seconds: float) -> dict[str, Any]:
    """For each kind of request: how many per second and so far, and the same in bytes."""
    out: dict[str, Any] = {}
    for kind in REQUESTS:
        rate = _rate(before, now, seconds, "server", "requests", kind)
        out[kind] = {"iops": rate, "requests": number(now.stats, "server", "requests", kind)}
        if kind in BYTES:
            out[kind]["bytes_per_s"] = _rate(before, now, seconds, "server", "bytes", kind)
            out[kind]["bytes"] = number(now.stats, "server", "bytes", kind)
            out[kind]["bytes_each"] = _mean_bytes(before, now, kind)
    return out


def _mean_bytes(before: Look | None, now: Look, kind: str) -> float | None:
    if before is None:
        return None
    return _share(_change(before, now, "server", "bytes", kind), _change(before, now, "server", "requests", kind))


def _waf(before: Look | None, now: Look) -> dict[str, Any]:
    """Flash programs by host pages written: since the mount, and since the last look."""
    total = _share(number(now.stats, "nand", "program"), number(now.stats, "host", "write"))
    if before is None:
        return {"total": total, "interval": None}
    return {"total": total, "interval": _share(_change(before, now, "nand", "program"),
                                               _change(before, now, "host", "write"))}  # fmt: skip


def _share(part: float, of: float) -> float | None:
    return round(part / of, 4) if of > 0 else None


def _causes(before: Look | None, now: Look, seconds: float) -> dict[str, float | None]:
    """Programs per second, by cause."""
    found = now.stats["nand"].get("by_cause", {}).get("program", {})
    return {cause: _rate(before, now, seconds, "nand", "by_cause", "program", cause) for cause in found}


def _cleaning(before: Look | None, now: Look, seconds: float) -> dict[str, Any]:
    """GC's programs and reads per second, its victims, and the valid pages that a victim still had."""
    victims, moved = None, None
    if before is not None:
        victims = _victims(before, now)
        moved = _share(_change(before, now, "nand", "by_cause", "read", "gc"), victims)
    return {
        "programs_per_s": _rate(before, now, seconds, "nand", "by_cause", "program", "gc"),
        "reads_per_s": _rate(before, now, seconds, "nand", "by_cause", "read", "gc"),
        "victims": victims,
        "victims_per_s": None if victims is None or seconds <= 0 else round(victims / seconds, 3),
        "pages_per_victim": moved,
    }


def _victims(before: Look, now: Look) -> int:
    """Blocks of data that were emptied, for any cause. There is no counter for that, so it is derived: the blocks in
    use grow by those opened and shrink by those emptied. Blocks opened for the metadata log are counted by their
    erases; one that is opened on a new chip needs no erase, and counts as a victim once."""
    opened = _change(before, now, "blocks_opened")
    log = sum(_change(before, now, "nand", "by_cause", "erase", cause) for cause in LOG_CAUSES)
    more = sum(_change(before, now, "pool", state) for state in DATA_STATES)
    return max(0, int(opened - log - more))
