"""Long runs on mounts, with real programs: `make soak`.

    soak.py [--only PART,...] [--seconds S] [--operations N] [--requests N]

fsx        tools/fsx.py on `disk`, 20,000 operations for each FTL under each server
workloads  stress-ng --hdd --iomix --verify, RocksDB's db_bench, SQLite in WAL mode, on ext4, xfs and btrfs over a loop
           device, for each FTL; then the file system's own checker (and btrfs scrub) and `fsck --data` of the image
idle       the processor time that an idle daemon takes in a minute
memory     the daemon's anonymous memory before and after ten million requests of 4 KiB, reads and writes, by fio

Needs root. A part that lacks a program ends with an error that names it. tests/fuse runs the short forms.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "fuse")] + ([] if "PYTHONPATH" in os.environ else [str(ROOT)])

from fsx import Fsx  # noqa: E402
from stand import MIB, Stand, lacks, run  # noqa: E402

from flashfs import inspect  # noqa: E402
from flashfs.errors import FlashfsError  # noqa: E402
from flashfs.ftl import SCHEMES  # noqa: E402
from flashfs.fuse import SERVERS  # noqa: E402

SIZES_MIB = {"ext4": 128, "xfs": 304, "btrfs": 256}
IDLE_S = 60.0


class Wrong(FlashfsError):
    """A workload read something else than it wrote."""


# --- workloads: each writes in the folder ``root`` and checks what it wrote


def stress(root: Path, seconds: int) -> str:
    """Files written by many system calls, with patterns that are verified: stress-ng fails at a mistake."""
    run("stress-ng", "--hdd", 1, "--hdd-bytes", "8m", "--iomix", 1, "--iomix-bytes", "8m", "--verify",
        "--timeout", seconds, "--temp-path", root, "--quiet")  # fmt: skip
    return f"stress-ng {seconds} s"


def rocksdb(root: Path, seconds: int) -> str:
    """Keys put with a sync each, all read back at random, every checksum verified; then again from a new process."""
    folder, keys = root / "rocksdb", 200 * seconds
    # fillsync divides the number of keys by 1000, and not that of writes.
    said = run("db_bench", "--benchmarks=fillsync,verifychecksum", f"--db={folder}", f"--num={keys * 1000}",
               f"--writes={keys}", "--value_size=400", "--write_buffer_size=262144", "--seed=1")  # fmt: skip
    again = run("db_bench", "--benchmarks=readrandom,verifychecksum", f"--reads={20 * keys}", "--use_existing_db=1",
                f"--db={folder}", f"--num={keys}", "--value_size=400")  # fmt: skip
    if "VerifyChecksum() failed" in said + again or "orruption" in said + again:
        raise Wrong(f"db_bench: {' '.join((said + again).split())[-300:]}")
    run("ldb", f"--db={folder}", "checkconsistency")
    there = re.search(r"Keys in range: (\d+)", run("ldb", f"--db={folder}", "dump", "--count_only"))
    found = re.search(r"\((\d+) of (\d+) found\)", again)
    # Keys are drawn with replacement, so some 63 % of them are written; random reads must find about that share.
    if not there or not found or int(there[1]) < keys * 0.55 or int(found[1]) < int(found[2]) * 0.5:
        raise Wrong(f"db_bench: {keys} puts, and {there and there[0]}, readrandom {found and found[0]}")
    return f"{keys} synced puts"


def sqlite(root: Path, seconds: int) -> str:
    """Transactions in WAL mode with known payloads; then all rows are checked on a new connection."""
    rnd, model, path = random.Random(1), dict[int, bytes](), root / "database"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE rows (key INTEGER PRIMARY KEY, payload BLOB)")
        for _ in range(60 * seconds):
            db.execute("BEGIN")
            for _ in range(rnd.randint(1, 8)):
                key = rnd.randrange(2_000)
                if rnd.random() < 0.25:
                    db.execute("DELETE FROM rows WHERE key = ?", (key,))
                    model.pop(key, None)
                else:
                    model[key] = rnd.randbytes(rnd.randint(1, 6000))
                    db.execute("REPLACE INTO rows VALUES (?, ?)", (key, model[key]))
            db.execute("COMMIT")
    with closing(sqlite3.connect(path)) as db:
        (told,) = db.execute("PRAGMA integrity_check").fetchone()
        if told != "ok":
            raise Wrong(f"SQLite: {told}")
        if dict(db.execute("SELECT key, payload FROM rows")) != model:
            raise Wrong("SQLite: other rows than were written")
    return f"{60 * seconds} transactions"


PROGRAMS: dict[Callable[[Path, int], str], tuple[str, ...]] = {
    stress: ("stress-ng",),
    rocksdb: ("db_bench", "ldb"),
    sqlite: (),
}


def work(one: Stand, fs: str, seconds: int, kinds: list[Callable[[Path, int], str]]) -> list[str]:
    """The workloads one after another on a new file system; scrubbed (btrfs) and checked at the end. Returns a text for
    each."""
    one.attach()
    one.make(fs)
    one.mount_files(fs, "discard")
    said = []
    for kind in kinds:
        started = time.perf_counter()
        said.append(f"{kind(one.root, seconds)} in {time.perf_counter() - started:.1f} s")
    if fs == "btrfs":
        run("btrfs", "scrub", "start", "-B", one.root)
    one.check_files(fs)
    stats = one.stats()
    host = stats["host"]
    said.append(f"{host['write']} pages written, {host['trim']} trimmed, write amplification {stats['waf']}")
    one.unmount()
    if problems := inspect.problems(one.image, True):
        raise Wrong(f"fsck --data: {problems[0]} ({len(problems)} in all)")
    return said


# --- the daemon itself


def processor_ticks(pid: int) -> int:
    """Clock ticks that a process has used, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def anonymous_kib(pid: int) -> int:
    """KiB of the process's anonymous memory, without the mapping of the image."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


def idle_ticks(one: Stand, seconds: float) -> int:
    """Clock ticks that an idle mount uses in ``seconds``, after some work."""
    with one.disk.open("r+b", buffering=0) as disk:
        disk.write(b"\xa5" * MIB)
        os.fsync(disk.fileno())
    time.sleep(0.5)
    before = processor_ticks(one.pid)
    time.sleep(seconds)
    return processor_ticks(one.pid) - before


def hammer(one: Stand, requests: int) -> None:
    """Random reads and writes of 4 KiB on `disk`, half and half."""
    run("fio", "--name=hammer", f"--filename={one.disk}", "--direct=1", "--ioengine=libaio", "--iodepth=16",
        "--rw=randrw", "--bs=4k", "--size=64m", f"--number_ios={requests}", "--norandommap",
        f"--io_size={requests * 4096}", "--output-format=terse")  # fmt: skip


# --- the parts


@contextmanager
def standing(size_mib: int, ftl: str, server: str = "native") -> Iterator[Stand]:
    with tempfile.TemporaryDirectory(prefix="flashfs-soak-") as folder:
        one = Stand(Path(folder), size_mib, ftl, server)
        try:
            one.mount()
            yield one
        finally:
            one.clean_up()


def soak_fsx(args: argparse.Namespace) -> None:
    for ftl in SCHEMES:
        for server in SERVERS:
            started = time.perf_counter()
            with standing(32, ftl, server) as one:
                done = Fsx(one.disk, args.seed, holes=server == "native").run(args.operations)
                one.unmount()
                if problems := inspect.problems(one.image, True):
                    raise Wrong(f"fsck --data: {problems[0]}")
            kinds = ", ".join(f"{name} {n}" for name, n in sorted(done.items()))
            say(f"fsx {ftl} {server}: {args.operations} operations in {time.perf_counter() - started:.1f} s ({kinds})")


def soak_workloads(args: argparse.Namespace) -> None:
    for fs, size in SIZES_MIB.items():
        if missing := lacks(fs, *(program for programs in PROGRAMS.values() for program in programs)):
            raise Wrong(f"workloads on {fs}: {missing}; tools/system_packages.sh installs it")
        for ftl in SCHEMES:
            with standing(size, ftl) as one:
                say(f"{fs} {ftl}: {'; '.join(work(one, fs, args.seconds, list(PROGRAMS)))}: clean")


def soak_idle(args: argparse.Namespace) -> None:
    for ftl in SCHEMES:
        with standing(64, ftl) as one:
            ticks = idle_ticks(one, IDLE_S)
            one.unmount()
        say(f"idle {ftl}: {ticks} ticks in {IDLE_S:.0f} s")
        if ticks:
            raise Wrong("an idle mount takes processor time")


def soak_memory(args: argparse.Namespace) -> None:
    with standing(128, "pagemap") as one:
        figures = [anonymous_kib(one.pid)]
        for part in (args.requests // 10, args.requests - args.requests // 10):
            started = time.perf_counter()
            hammer(one, part)
            figures.append(anonymous_kib(one.pid))
            say(f"memory: {part} requests in {time.perf_counter() - started:.0f} s; RssAnon {figures[-1]} KiB")
        host = one.stats()["host"]
        one.unmount()
    say(f"memory: {host['read']} pages read, {host['write']} written; RssAnon in KiB mounted, after a tenth, "
        f"after all: {figures}")  # fmt: skip
    if host["read"] + host["write"] < args.requests:
        raise Wrong("fio did less than was asked for")
    if figures[2] > figures[1] + 512:
        raise Wrong("the daemon's memory grows with requests")


PARTS = {"fsx": soak_fsx, "workloads": soak_workloads, "idle": soak_idle, "memory": soak_memory}


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="the mount at length, as an SSD that software lives on")
    parser.add_argument("--only", default=",".join(PARTS), help=f"which of {', '.join(PARTS)}")
    parser.add_argument("--seconds", type=int, default=30, help="about what each workload takes")
    parser.add_argument("--operations", type=int, default=20_000, help="of fsx")
    parser.add_argument("--requests", type=int, default=10_000_000, help="of the memory part")
    parser.add_argument("--seed", type=int, default=1, help="of fsx")
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("soak: needs root, for loop devices")
    for part in args.only.split(","):
        if part not in PARTS:
            raise SystemExit(f"soak: --only {part}: there is {', '.join(PARTS)}")
        try:
            PARTS[part](args)
        except (FlashfsError, AssertionError) as error:
            raise SystemExit(f"soak: {part}: {error}") from None


if __name__ == "__main__":
    main()
