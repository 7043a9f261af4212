"""What `--record` costs: a request in nanoseconds, and a mount's speed with it against the same mount without.

The first part calls the recorder as a native server does (without the interpreter) and as the one in Python does, while
its thread packs and writes to a file in memory. "warm" data is the same each time; "fresh" comes from a region that no
cache holds. The second part runs fio on two mounts of equal images, one of them recorded, in turns; its ratios are
medians over the rounds of the ratio within a round. Needs root and fio for that part only.

    bench_record.py [--rounds N] [--seconds S] [--ftl NAME] [--no-mount] [--no-save]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import bench_common
import bench_mount

from flashfs.replay._record import OPERATIONS
from flashfs.replay.recorded import Header, summary
from flashfs.replay.recording import Recording

READ, WRITE = OPERATIONS.index("read"), OPERATIONS.index("write")
TRIES = 9
FRESH_BYTES = 256 << 20


def calls(recorder: Recording) -> Iterator[tuple[str, int, Any]]:
    """(name, how often, a function that notes so many requests)."""
    for name, length, often in (("4 KiB", 4096, 20_000), ("1 MiB", 1 << 20, 300)):
        data = os.urandom(length)
        yield f"read {name}", 20_000, lambda n, s=length: recorder.note_often(READ, 0, s, None, n)
        yield f"write {name}, warm", often, lambda n, s=length, d=data: recorder.note_often(WRITE, 0, s, d, n)
    fresh = memoryview(bytearray(FRESH_BYTES))
    for at in range(0, FRESH_BYTES, 4096):
        fresh[at] = 1  # so that each page is there
    for name, length in (("4 KiB", 4096), ("1 MiB", 1 << 20)):
        pieces = [fresh[at : at + length] for at in range(0, FRESH_BYTES, length)]

        def write(n: int, pieces: list[Any] = pieces, length: int = length) -> int:
            return sum(not recorder.record(WRITE, 0, length, piece) for piece in pieces[:n])

        yield f"write {name}, fresh, Python", min(len(pieces), 20_000), write
    yield "read 4 KiB, Python", 20_000, lambda n: sum(not recorder.record(READ, 0, 4096) for _ in range(n))


def one_request(folder: Path) -> list[dict[str, Any]]:
    """Nanoseconds a request, best and median of some tries; and that none was dropped."""
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


@contextlib.contextmanager
def mounted(ftl: str, folder: Path, images: Path, *flags: str | Path) -> Iterator[tuple[Path, int]]:
    """As bench_mount has it, with flags, under the name of ``folder``."""
    image = images / f"{folder.name}.img"
    run = bench_mount.run
    run(*bench_mount.FLASHFS, "create", image, "--size", f"{bench_mount.SIZE_MIB}M", "--op", "0.15")
    folder.mkdir()
    run(*bench_mount.FLASHFS, "mount", "--ftl", ftl, image, folder, *flags)
    try:
        yield folder / "disk", json.loads((folder / "config.json").read_text())["pid"]
    finally:
        run(*bench_mount.FLASHFS, "umount", folder)
        folder.rmdir()
        image.unlink()


def mounts(folder: Path, ftl: str, rounds: int, seconds: int) -> dict[str, Any]:
    trace = folder / "mount.trace"
    found = []
    with contextlib.ExitStack() as stack:
        disks = {
            "plain": stack.enter_context(mounted(ftl, folder / "plain", folder)),
            "recorded": stack.enter_context(mounted(ftl, folder / "recorded", folder, "--record", trace)),
        }
        size = f"--size={bench_mount.SPAN_MIB}m"
        for disk, _ in disks.values():
            bench_mount.run("fio", "--name=fill", f"--filename={disk}", "--direct=1", "--rw=write", "--bs=1m", size)
        for index in range(rounds):
            order = list(disks.items()) if index % 2 == 0 else list(reversed(disks.items()))
            found.append(bench_mount.one_round(dict(order), seconds))
            print(f"round {index + 1} of {rounds}", file=sys.stderr)
        figures = json.loads((folder / "recorded" / "stats.json").read_text())["record"]
    rows = []
    for test in bench_mount.TESTS:
        row: dict[str, Any] = {"test": test}
        for name, key in (("ratio", "iops"), ("cost", "server_us")):
            row[name] = statistics.median(one[test]["recorded"][key] / one[test]["plain"][key] for one in found)
        for side in disks:
            row[f"{side}_iops"] = statistics.median(one[test][side]["iops"] for one in found)
            row[f"{side}_server_us"] = statistics.median(one[test][side]["server_us"] for one in found)
        rows.append(row)
    said = summary(trace)
    return {"rounds": found, "summary": rows, "figures": figures, "trace": said, "bytes": trace.stat().st_size}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2, help="of each fio run")
    parser.add_argument("--ftl", default="pagemap")
    parser.add_argument("--no-mount", action="store_true", help="only what a request costs")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        results["note"] = one_request(Path(name))
        for row in results["note"]:
            print(f"{row['request']:28}  best {row['best_ns']:8,} ns  median {row['median_ns']:8,} ns")
        if not given.no_mount:
            results["mount"] = mounts(Path(name), given.ftl, given.rounds, given.seconds)
            for row in results["mount"]["summary"]:
                print(
                    f"{row['test']:16}  {row['recorded_iops']:9.0f} IOPS, {row['ratio']:.3f} of the mount that is not"
                    f" recorded; {row['recorded_server_us']:.1f} us of processor time a request, {row['cost']:.3f} of its"
                )
            requests = results["mount"]["trace"]["requests"]
            print(f"{results['mount']['bytes'] / requests:.2f} bytes a request in the trace, {requests:,} requests")
    if not given.no_save:
        path = bench_common.save("record", results)
        print(f"raw results: {path.relative_to(bench_common.HERE.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
