"""What `--record` costs: nanoseconds a request, and the speed of a mount with it against the same mount without.

The first part calls the recorder as a native server does (without the interpreter) and as the one in Python does, while
its thread packs and writes to a file in memory. "warm" data is the same each time; "fresh" comes from a region that no
cache holds.

The second part mounts two devices, one with `--record`, and lets fio take turns on them in short runs. For each test
the medians, over the turns, of the ratio of requests a second, and of the processor time per request of the server's
process (with its thread that packs and writes). Then the rate at which the trace is read. Needs fio.

    record.py [--rounds N] [--seconds S] [--ftl NAME] [--server NAME]... [--no-mount] [--no-save]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from bench import common, mount, mount_peers
from flashfs.replay._record import OPERATIONS
from flashfs.replay.open_source import open_source
from flashfs.replay.trace_reader import Header, summary
from flashfs.replay.trace_writer import Recording

READ, WRITE = OPERATIONS.index("read"), OPERATIONS.index("write")
TRIES = 9
FRESH_BYTES = 256 << 20


def calls(recorder: Recording) -> Iterator[tuple[str, int, Any]]:
    """(name, count, a function that records so many requests and returns how many were dropped)."""
    for name, length, often in (("4 KiB", 4096, 20_000), ("1 MiB", 1 << 20, 300)):
        data = os.urandom(length)
        yield f"read {name}", 20_000, lambda n, s=length: recorder.note_often(READ, 0, s, None, n)
        yield f"write {name}, warm", often, lambda n, s=length, d=data: recorder.note_often(WRITE, 0, s, d, n)
    fresh = memoryview(bytearray(FRESH_BYTES))
    for at in range(0, FRESH_BYTES, 4096):
        fresh[at] = 1  # so that each page is allocated
    for name, length in (("4 KiB", 4096), ("1 MiB", 1 << 20)):
        pieces = [fresh[at : at + length] for at in range(0, FRESH_BYTES, length)]

        def write(n: int, pieces: list[Any] = pieces, length: int = length) -> int:
            return sum(not recorder.record(WRITE, 0, length, piece) for piece in pieces[:n])

        yield f"write {name}, fresh, Python", min(len(pieces), 20_000), write
    yield "read 4 KiB, Python", 20_000, lambda n: sum(not recorder.record(READ, 0, 4096) for _ in range(n))


def one_request(folder: Path) -> list[dict[str, Any]]:
    """Nanoseconds a request, best and median of TRIES; fails if a request was dropped."""
    path = folder / "note.trace"
    header = Header(1, 1 << 40, 4096, 4096, time.time_ns(), UUID(int=0), "none")
    recorder = Recording(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), path, header)
    rows = []
    for name, often, call in calls(recorder):
        took = []
        for _ in range(TRIES):
            before = time.perf_counter_ns()
            dropped = call(often)
            took.append((time.perf_counter_ns() - before) / often)
            assert dropped == 0
            time.sleep(0.2)  # the thread empties the queue
        rows.append({"request": name, "best_ns": round(min(took)), "median_ns": round(statistics.median(took))})
    recorder.close()
    path.unlink()
    return rows


def mounts(folder: Path, server: str, ftl: str, rounds: int, seconds: float) -> dict[str, Any]:
    """All tests on two mounts, one of which records; they take turns, and a ratio is the median over the turns."""
    with contextlib.ExitStack() as stack:
        trace = folder / f"{server}.trace"
        pair = [
            stack.enter_context(mount_peers.flashfs(folder / f"{server}-without", ftl, server)),
            stack.enter_context(mount_peers.flashfs(folder / f"{server}-with", ftl, server, "--record", trace)),
        ]
        for disk, _ in pair:
            fill = f"--size={mount.SPAN_MIB}m"
            mount_peers.run("fio", "--name=fill", f"--filename={disk}", "--direct=1", "--rw=write", "--bs=1m", fill)
        rows = [one_test(name, pair, rounds, seconds) for name in mount.TESTS]
    return {"server": server, "tests": rows, "trace": summary(trace), "bytes": trace.stat().st_size}


def one_test(name: str, pair: list[mount_peers.Serving], rounds: int, seconds: float) -> dict[str, Any]:
    """Requests a second with recording over those without, and the server's processor time for a request."""
    options = mount.TESTS[name]
    speeds, costs, off, on = [], [], [], []
    for turn in range(rounds):
        found = {}
        for index in (0, 1) if turn % 2 == 0 else (1, 0):
            found[index] = mount.fio(*pair[index], options, seconds)
        speeds.append(found[1]["iops"] / found[0]["iops"])
        costs.append(found[1]["server_us"] / found[0]["server_us"] - 1)
        off.append(found[0]["server_us"])
        on.append(found[1]["server_us"])
    middle = statistics.median
    return {
        "test": name, "speed": middle(speeds), "cost": middle(costs), "off_server_us": middle(off),
        "on_server_us": middle(on), "speeds": speeds, "costs": costs,
    }  # fmt: skip


def reading(path: Path) -> float:
    """Requests a second at which a trace is read."""
    with_hashes, before = 0, time.perf_counter()
    source = open_source(str(path), 1 << 40, fitted=False)
    for batch in source.batches():
        with_hashes += len(batch)
    return with_hashes / (time.perf_counter() - before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1, help="of each fio run")
    parser.add_argument("--ftl", default="pagemap")
    parser.add_argument("--server", action="append", choices=["native", "pyfuse3"], help="may be repeated")
    parser.add_argument("--no-mount", action="store_true", help="only what a request costs")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    results: dict[str, Any] = {"mounts": []}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        results["note"] = one_request(Path(name))
        for row in results["note"]:
            print(f"{row['request']:28}  best {row['best_ns']:8,} ns  median {row['median_ns']:8,} ns")
        for server in [] if given.no_mount else given.server or ["native", "pyfuse3"]:
            found = mounts(Path(name), server, given.ftl, given.rounds, given.seconds)
            found["read_per_s"] = reading(Path(name, f"{server}.trace"))
            results["mounts"].append(found)
            for row in found["tests"]:
                print(
                    f"{server}: {row['test']:22}  speed {row['speed']:.3f} of without; "
                    f"server {row['off_server_us']:.2f} -> {row['on_server_us']:.2f} us ({100 * row['cost']:+.1f} %)"
                )
            requests = found["trace"]["requests"]
            print(f"{found['bytes'] / requests:.2f} bytes a request in the trace, {requests:,} requests,")
            print(f"read again at {found['read_per_s'] / 1e6:.1f} M/s")
    if not given.no_save:
        path = common.save("record", results)
        print(f"raw results: {path.relative_to(common.HERE.parent)}")
    return 0
