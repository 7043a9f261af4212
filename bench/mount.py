"""fio on a mount, against other programs that serve one block file by FUSE: bench/mount_peers.py has them.

On the block file itself and on a loop device over it (direct I/O, 4 KiB sectors): 4 KiB random reads and writes at
depth 1 and 16, 1 MiB sequential reads and writes, 4 KiB writes with an fsync each. Everything lies in memory
(/dev/shm), half of each disk is used, and that is written three times before: more than the chip holds, so that all
blocks were in use and no write is the first to a page of the image. All are mounted at once and take turns, test by
test, in another order each round; a ratio is the median over the rounds of the ratio within a round. If other programs
share the machine, compare the server's processor time per request. Needs root and fio.

    mount.py [--rounds N] [--seconds S] [--only NAME]... [--no-save]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import common
from bench.mount_peers import PEERS, Serving, available, run

SPAN_MIB = 512
FILLS = 3
TARGET = 0.8
LIMIT = "C, RAM"
RIVALS = ("qemu-storage-daemon", "nbdkit + nbdfuse", "s3backer")
TESTS: dict[str, tuple[str, ...]] = {
    "read, 4 KiB, depth 1": ("--rw=randread", "--bs=4k", "--iodepth=1"),
    "write, 4 KiB, depth 1": ("--rw=randwrite", "--bs=4k", "--iodepth=1"),
    "read, 4 KiB, depth 16": ("--rw=randread", "--bs=4k", "--iodepth=16"),
    "write, 4 KiB, depth 16": ("--rw=randwrite", "--bs=4k", "--iodepth=16"),
    "read, 1 MiB": ("--rw=read", "--bs=1m", "--iodepth=4"),
    "write, 1 MiB": ("--rw=write", "--bs=1m", "--iodepth=4"),
    "write + fsync, 4 KiB": ("--rw=randwrite", "--bs=4k", "--iodepth=1", "--fsync=1"),
}
Found = dict[str, dict[str, dict[str, float]]]  # test: name: figures


@contextlib.contextmanager
def looped(disk: Path) -> Iterator[Path]:
    options = ["--find", "--show", "--sector-size", "4096"]
    try:
        loop = run("losetup", "--direct-io=on", *options, disk).strip()
    except subprocess.CalledProcessError:  # a file system in memory without direct I/O
        loop = run("losetup", *options, disk).strip()
    try:
        yield Path(loop)
    finally:
        run("losetup", "--detach", loop)


def processor_s(pids: list[int]) -> float:
    """Processor seconds used by ``pids``, in user and kernel mode."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def fio(target: Path, pids: list[int], options: tuple[str, ...], seconds: float) -> dict[str, float]:
    """IOPS, bytes per second, and microseconds of the server's processor time per request."""
    before = processor_s(pids)
    said = run(
        "fio", "--name=bench", f"--filename={target}", "--direct=1", "--ioengine=libaio", "--time_based",
        f"--runtime={seconds}", f"--size={SPAN_MIB}m", "--randrepeat=1", "--output-format=json", *options,
    )  # fmt: skip
    (job,) = json.loads(said)["jobs"]
    side = job["read"] if job["read"]["io_bytes"] else job["write"]
    return {
        "iops": side["iops"],
        "bytes_per_s": side["bw_bytes"],
        "server_us": (processor_s(pids) - before) * 1e6 / side["total_ios"],
    }


def one_round(targets: dict[str, Serving], seconds: float) -> Found:
    return {
        test: {name: fio(path, pids, options, seconds) for name, (path, pids) in targets.items()}
        for test, options in TESTS.items()
    }


def measure(disks: dict[str, Serving], rounds: int, seconds: float) -> dict[str, list[Found]]:
    out: dict[str, list[Found]] = {"disk": [], "loop": []}
    for disk, _ in disks.values():
        run(
            "fio", "--name=fill", f"--filename={disk}", "--direct=1", "--rw=write", "--bs=1m", f"--size={SPAN_MIB}m",
            f"--loops={FILLS}",
        )  # fmt: skip
    for index in range(rounds):
        order = list(disks.items()) if index % 2 == 0 else list(reversed(disks.items()))
        out["disk"].append(one_round(dict(order), seconds))
        with contextlib.ExitStack() as stack:
            loops = {name: (stack.enter_context(looped(disk)), pids) for name, (disk, pids) in order}
            out["loop"].append(one_round(loops, seconds))
        print(f"round {index + 1} of {rounds}", file=sys.stderr)
    return out


def summary(found: dict[str, list[Found]], names: list[str]) -> list[dict[str, Any]]:
    """A row for each place, test and name: medians, and the median of the ratios to the limit."""
    rows = []
    for where, rounds in found.items():
        for test in TESTS:
            for name in names:
                ratios = [one[test][name]["iops"] / one[test][LIMIT]["iops"] for one in rounds]
                row: dict[str, Any] = {"where": where, "test": test, "name": name, "ratio": statistics.median(ratios)}
                for figure in ("iops", "bytes_per_s", "server_us"):
                    row[figure] = statistics.median(one[test][name][figure] for one in rounds)
                rows.append(row)
    return rows


def table(rows: list[dict[str, Any]], where: str, names: list[str]) -> Iterator[str]:
    """Markdown: a row for each name, a column for each test: thousands of requests (or MB) a second, and the ratio."""
    yield f"| {where} | " + " | ".join(TESTS) + " |"
    yield "| --- " + "| --: " * len(TESTS) + "|"
    for name in names:
        cells = []
        for test in TESTS:
            (row,) = (row for row in rows if (row["where"], row["test"], row["name"]) == (where, test, name))
            rate = f"{row['bytes_per_s'] / 1e6:,.0f}" if "MiB" in test else f"{row['iops'] / 1e3:.1f}"
            cells.append(f"{rate} ({row['ratio']:.2f})")
        yield f"| {name} | " + " | ".join(cells) + " |"


def verdicts(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The targets, one line each: on the loop device, 0.8 of the limit, and faster than the rivals at 4 KiB."""
    at = {(row["test"], row["name"]): row for row in rows if row["where"] == "loop"}
    for (test, name), row in at.items():
        if not name.endswith(", native") or "fsync" in test or "depth 1," in f"{test},":
            continue
        verdict = "holds" if row["ratio"] >= TARGET else "misses"
        yield f"{name}: {test}: {row['ratio']:.2f} of {LIMIT} ({verdict} {TARGET})"
        if "4 KiB" in test:
            for rival in RIVALS:
                if (test, rival) in at:
                    yield f"{name}: {test}: {row['iops'] / at[test, rival]['iops']:.2f} x {rival}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="of each fio run")
    parser.add_argument("--only", action="append", choices=list(PEERS), help="may be repeated; the limit always runs")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    names = [name for name in available() if not given.only or name in (LIMIT, *given.only)]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        disks = {}
        for index, name in enumerate(names):
            make, arguments, *_ = PEERS[name]
            disks[name] = stack.enter_context(make(folder / str(index), *arguments))
        found = measure(disks, given.rounds, given.seconds)
    rows = summary(found, names)
    lines = [*table(rows, "loop", names), "", *table(rows, "disk", names), "", *verdicts(rows)]
    print("\n".join(lines))
    if not given.no_save:
        path = common.save("mount", {"rounds": found, "summary": rows})
        path.with_suffix(".md").write_text("\n".join(lines) + "\n")
        print(f"raw results: {path.relative_to(common.HERE.parent)}")
    return 0
