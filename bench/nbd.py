"""An image as an NBD disk (`flashfs nbd`) beside qemu-nbd on a raw file, both at Unix sockets, on the same host disk.

nbdcopy of --size in and out again, then fio's engine nbd: 4 KiB random reads and writes at depth 1 and 16 over what was
written. The two take turns, test by test, in another order each round; a ratio is the median over the rounds of the
ratio within a round; compare it if other programs share the machine. nbdcopy in ends with a flush on both. Needs
nbdkit, libnbd-bin, qemu-utils, and a fio with the engine nbd; no root.

    nbd.py [--size 4G] [--rounds N] [--seconds S] [--folder DIR] [--no-save]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import common
from flashfs.cli.units import size
from flashfs.fuse.nbd_request import Request
from flashfs.nbd import server
from nandimg import Geometry, image

OURS, PEER = "flashfs nbd", "qemu-nbd, raw file"
FIO = {
    "read, 4 KiB, depth 1": ("randread", 1),
    "write, 4 KiB, depth 1": ("randwrite", 1),
    "read, 4 KiB, depth 16": ("randread", 16),
    "write, 4 KiB, depth 16": ("randwrite", 16),
}
START_S = 10.0


def serve_raw(folder: Path, size_bytes: int) -> tuple[subprocess.Popen[bytes], str]:
    raw, at = folder / "raw", folder / "raw.sock"
    raw.touch()
    os.truncate(raw, size_bytes)
    words = ["qemu-nbd", "--persistent", "--shared=0", "--discard=unmap", "--format=raw", f"--socket={at}", str(raw)]
    process = subprocess.Popen(words)
    until = time.monotonic() + START_S
    while not at.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return process, f"nbd+unix:///?socket={at}"


def copied(source: str, target: str, size_bytes: int) -> float:
    """Bytes a second."""
    begin = time.perf_counter()
    subprocess.run(["nbdcopy", "--flush", source, target], check=True)
    return size_bytes / (time.perf_counter() - begin)


def fio(uri: str, how: str, depth: int, seconds: float) -> float:
    """Requests a second."""
    said = subprocess.run(
        ["fio", "--name=bench", "--ioengine=nbd", f"--uri={uri}", f"--rw={how}", "--bs=4k", f"--iodepth={depth}",
         "--time_based", f"--runtime={seconds}", "--size=100%", "--randrepeat=1", "--norandommap",
         "--output-format=json"],
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    (job,) = json.loads(said[said.index("{") :])["jobs"]
    return float(job["read" if how == "randread" else "write"]["iops"])


def one_round(uris: dict[str, str], source: Path, size_bytes: int, seconds: float) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    found["nbdcopy in"] = {name: copied(str(source), uri, size_bytes) for name, uri in uris.items()}
    found["nbdcopy out"] = {name: copied(uri, "null:", size_bytes) for name, uri in uris.items()}
    for test, (how, depth) in FIO.items():
        found[test] = {name: fio(uri, how, depth, seconds) for name, uri in uris.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="4G")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where both files lie")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    size_bytes = size("--size", given.size)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        image.create(folder / "chip.nand", Geometry.sized(size_bytes, 0.1))
        source = folder / "source"
        with source.open("wb") as file:
            for _ in range(size_bytes >> 20):
                file.write(os.urandom(1 << 20))
        ours = server.start(Request(folder / "chip.nand", folder / "chip.sock"))
        peer, uri = serve_raw(folder, size_bytes)
        try:
            rounds = []
            for index in range(given.rounds):
                uris = {OURS: ours.served.uri, PEER: uri}
                order = uris if index % 2 == 0 else dict(reversed(uris.items()))
                rounds.append(one_round(order, source, size_bytes, given.seconds))
                print(f"round {index + 1} of {given.rounds}", file=sys.stderr)
        finally:
            peer.terminate()
            peer.wait()
            ours.stop()
            ours.wait()
    rows = summary(rounds)
    for row in rows:
        print(f"{row['test']:24} {row[OURS]:16,.0f} {row[PEER]:16,.0f} {row['ratio']:6.2f}")
    if not given.no_save:
        shown = {"size": size_bytes, "seconds": given.seconds, "load": os.getloadavg(), "rows": rows, "rounds": rounds}
        print(common.save("nbd", shown))


def summary(rounds: list[dict[str, dict[str, float]]]) -> list[dict[str, Any]]:
    """A row for each test: medians, and the median of the ratios."""
    return [
        {
            "test": test,
            **{name: statistics.median(one[test][name] for one in rounds) for name in (OURS, PEER)},
            "ratio": statistics.median(one[test][OURS] / one[test][PEER] for one in rounds),
        }
        for test in rounds[0]
    ]
