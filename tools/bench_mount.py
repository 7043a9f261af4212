"""fio on a mount, against an empty file system in memory under the same server: what an FTL adds to a request.

On `disk` itself and on a loop device over it (direct I/O, 4 KiB sectors): 4 KiB random reads and writes at depth 16,
1 MiB sequential reads and writes. Images lie in memory (/dev/shm), half of each is used, and it is written once
before, so that blocks are reused. All three are mounted at once and take turns, test by test; the ratio is the
median over the rounds of the ratio within a round. What a request costs each server in processor time is the figure to
trust when others share the machine. Needs root and fio.

    bench_mount.py [--rounds N] [--seconds S] [--no-save]
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

import bench_common

SIZE_MIB = 1024
SPAN_MIB = 512
TARGET = 0.8
FTLS = ("pagemap", "slimftl")
TESTS: dict[str, tuple[str, ...]] = {
    "random read": ("--rw=randread", "--bs=4k", "--iodepth=16"),
    "random write": ("--rw=randwrite", "--bs=4k", "--iodepth=16"),
    "sequential read": ("--rw=read", "--bs=1m", "--iodepth=4"),
    "sequential write": ("--rw=write", "--bs=1m", "--iodepth=4"),
}
FLASHFS = [sys.executable, "-m", "flashfs.cli"]


def run(*command: str | Path) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def ram(folder: Path, *flags: str) -> Iterator[tuple[Path, int]]:
    """The file system that does nothing: (`disk`, its server's pid)."""
    server = bench_common.HERE / "ram_pyfuse3.py"
    folder.mkdir()
    command = [sys.executable, server, folder, str(SIZE_MIB), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("ram_pyfuse3.py did not start")
        yield folder / "disk", process.pid
    finally:
        subprocess.run(["fusermount3", "-u", folder], check=False)
        process.wait(30)
        folder.rmdir()


@contextlib.contextmanager
def mounted(ftl: str, folder: Path, images: Path) -> Iterator[tuple[Path, int]]:
    """flashfs, as a user would mount it."""
    image = images / f"{ftl}.img"
    run(*FLASHFS, "create", image, "--size", f"{SIZE_MIB}M", "--op", "0.15")
    folder.mkdir()
    run(*FLASHFS, "mount", "--ftl", ftl, image, folder)
    try:
        yield folder / "disk", json.loads((folder / "config.json").read_text())["pid"]
    finally:
        run(*FLASHFS, "umount", folder)
        folder.rmdir()
        image.unlink()


@contextlib.contextmanager
def looped(disk: Path) -> Iterator[Path]:
    loop = run("losetup", "--find", "--show", "--direct-io=on", "--sector-size", "4096", disk).strip()
    try:
        yield Path(loop)
    finally:
        run("losetup", "--detach", loop)


def processor_s(pid: int) -> float:
    """Seconds that a process has had of the processors, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fio(target: Path, pid: int, options: tuple[str, ...], seconds: int) -> dict[str, float]:
    """IOPS, bytes per second, and what a request costs the server in microseconds of processor time."""
    before = processor_s(pid)
    said = run(
        "fio", "--name=bench", f"--filename={target}", "--direct=1", "--ioengine=libaio", "--time_based",
        f"--runtime={seconds}", f"--size={SPAN_MIB}m", "--randrepeat=1", "--output-format=json", *options,
    )  # fmt: skip
    (job,) = json.loads(said)["jobs"]
    side = job["read"] if job["read"]["io_bytes"] else job["write"]
    return {
        "iops": side["iops"],
        "bytes_per_s": side["bw_bytes"],
        "server_us": (processor_s(pid) - before) * 1e6 / side["total_ios"],
    }


def one_round(targets: dict[str, tuple[Path, int]], seconds: int) -> dict[str, dict[str, dict[str, float]]]:
    """{test: {target: figures}}."""
    return {
        test: {name: fio(path, pid, options, seconds) for name, (path, pid) in targets.items()}
        for test, options in TESTS.items()
    }


def measure(disks: dict[str, tuple[Path, int]], rounds: int, seconds: int) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {"disk": [], "loop": []}
    for disk, _ in disks.values():
        run("fio", "--name=fill", f"--filename={disk}", "--direct=1", "--rw=write", "--bs=1m", f"--size={SPAN_MIB}m")
    for index in range(rounds):
        order = list(disks.items()) if index % 2 == 0 else list(reversed(disks.items()))
        out["disk"].append(one_round(dict(order), seconds))
        with contextlib.ExitStack() as stack:
            loops = {name: (stack.enter_context(looped(disk)), pid) for name, (disk, pid) in order}
            out["loop"].append(one_round(loops, seconds))
        print(f"round {index + 1} of {rounds}", file=sys.stderr)
    return out


def summary(found: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """A row for each place, test and FTL: medians, and the median of the ratios."""
    rows = []
    for where, rounds in found.items():
        for test in TESTS:
            for ftl in FTLS:
                pairs = [(one[test][ftl], one[test]["ram"], one[test]["plain"]) for one in rounds]
                row: dict[str, Any] = {"where": where, "test": test, "ftl": ftl}
                row["ratio"] = statistics.median(mine["iops"] / other["iops"] for mine, other, _ in pairs)
                row["ratio_plain"] = statistics.median(mine["iops"] / other["iops"] for mine, _, other in pairs)
                for index, side in enumerate(("ftl", "ram", "plain")):
                    row[f"{side}_iops"] = statistics.median(pair[index]["iops"] for pair in pairs)
                    row[f"{side}_server_us"] = statistics.median(pair[index]["server_us"] for pair in pairs)
                    row[f"{side}_mb_per_s"] = statistics.median(pair[index]["bytes_per_s"] for pair in pairs) / 1e6
                rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of each fio run")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        images = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        disks = {
            "ram": stack.enter_context(ram(folder / "ram")),
            "plain": stack.enter_context(ram(folder / "plain", "--plain")),
        }
        for ftl in FTLS:
            disks[ftl] = stack.enter_context(mounted(ftl, folder / ftl, images))
        found = measure(disks, given.rounds, given.seconds)
        stats = {ftl: json.loads((folder / ftl / "stats.json").read_text()) for ftl in FTLS}
    rows = summary(found)
    for row in rows:
        unit, scale = ("MB/s", row["ftl_mb_per_s"]) if "sequential" in row["test"] else ("IOPS", row["ftl_iops"])
        print(
            f"{row['where']:4}  {row['test']:16}  {row['ftl']:8}  {scale:9.0f} {unit}  ratio {row['ratio']:.2f}"
            f", to plain pyfuse3 {row['ratio_plain']:.2f}"
            f"  server {row['ftl_server_us']:.1f} us a request, {row['ram_server_us']:.1f} of the empty one"
        )
    for name, key in (("the empty file system", "ratio"), ("an empty one under plain pyfuse3", "ratio_plain")):
        print(f"{sum(row[key] >= TARGET for row in rows)} of {len(rows)} within 20 % of {name}")
    if not given.no_save:
        path = bench_common.save("mount", {"rounds": found, "summary": rows, "stats": stats})
        print(f"raw results: {path.relative_to(bench_common.HERE.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
