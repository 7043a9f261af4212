"""Makes examples/traces: traces of real programs on ext4 on a flashfs mount, by `mount --record`.

Each recording is of one program on a new file system: the image is made, mounted and formatted, the program runs, and
all is unmounted. A trace has every request with its time, flushes, TRIMs and hashes of contents, from mkfs on, in a few
megabytes. Needs root, fio, db_bench, sqlite3 and pgbench.

    record.py --list
    record.py NAME... | all [--out DIR] [--ftl NAME]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "examples" / "traces"
DEVICE = "1G"
MOST_BYTES = 5 << 20  #: of a trace that may be committed
MINUTES = 20  #: after which a program is stopped


@dataclass(frozen=True)
class Recording:
    """One program: ``run`` gets the folder of the mounted file system."""

    name: str
    about: str
    run: Callable[[Path], None]


def shell(*words: str | Path, cwd: Path | None = None, user: str | None = None) -> None:
    """Run a program. SystemExit with its output if it fails."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=cwd, user=user, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=60 * MINUTES, check=False, env={**os.environ, "LC_ALL": "C", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"record: {' '.join(command)}: exit code {done.returncode}\n{done.stdout[-2000:]}")


def flashfs(*words: str | Path) -> None:
    """Run the command of this tree, whatever is installed."""
    program = "import sys; from flashfs.cli import main; sys.exit(main())"
    shell(sys.executable, "-c", program, *words, cwd=ROOT)


# --- programs


def fio(mnt: Path, *jobs: dict[str, str | int]) -> None:
    """Run jobs in parallel, with direct I/O unless they say otherwise, seeded."""
    common = {"directory": str(mnt), "direct": 1, "ioengine": "psync", "randseed": 1, "thread": 1, "size": "192M"}
    words = []
    for number, job in enumerate(jobs):
        merged = {**common, "name": f"job{number}", **job}
        words += [f"--name={merged.pop('name')}", *(f"--{key}={value}" for key, value in merged.items())]
    shell("fio", *words)


def fio_randread(mnt: Path) -> None:
    fio(mnt, {"rw": "randread", "bs": "4k", "numjobs": 8, "filename": "data", "number_ios": 12_000})


def fio_randw(mnt: Path) -> None:
    fio(mnt, {"rw": "randwrite", "bs": "4k", "filename": "data", "overwrite": 1, "number_ios": 80_000,
              "io_size": "1G", "norandommap": 1})  # fmt: skip


def varmail(mnt: Path) -> None:
    """Mails of 16 KiB, written with an fsync each by 8 threads and read by 8."""
    files: dict[str, str | int] = {"nrfiles": 60, "filesize": "16k", "size": "960k", "bs": "16k", "openfiles": 16,
             "file_service_type": "random", "direct": 0, "invalidate": 0}  # fmt: skip
    fio(mnt, {**files, "name": "deliver", "rw": "randwrite", "fsync": 1, "numjobs": 8, "io_size": "14M"},
        {**files, "name": "read", "rw": "randread", "numjobs": 8, "io_size": "14M", "invalidate": 1})  # fmt: skip


def fileserver(mnt: Path) -> None:
    """Files of some 128 KiB, written whole, appended to and read whole."""
    files: dict[str, str | int] = {"nrfiles": 300, "filesize": "128k", "size": "37500k", "openfiles": 20,
                                   "file_service_type": "random", "direct": 0}  # fmt: skip
    fio(mnt, {**files, "name": "write", "rw": "write", "bs": "128k", "numjobs": 4, "io_size": "90M"},
        {**files, "name": "append", "rw": "randwrite", "bs": "16k", "numjobs": 2, "io_size": "40M"},
        {**files, "name": "read", "rw": "read", "bs": "128k", "numjobs": 4, "io_size": "90M", "invalidate": 1},
        )  # fmt: skip


def db_bench(benchmarks: str, num: int, *more: str) -> Callable[[Path], None]:
    """RocksDB with values of 400 bytes and small files, so that compactions happen within minutes."""

    def run(mnt: Path) -> None:
        shell("db_bench", f"--db={mnt}/db", f"--benchmarks={benchmarks}", f"--num={num}", "--value_size=400",
              "--compression_type=none", "--write_buffer_size=8388608", "--target_file_size_base=8388608",
              "--max_bytes_for_level_base=33554432", "--max_background_jobs=2", "--seed=1", *more)  # fmt: skip

    return run


def sqlite(in_order: bool) -> Callable[[Path], None]:
    """SQLite in WAL mode, a table of values of 16 KiB, synchronous=NORMAL: filled as by db_bench_sqlite3."""

    def run(mnt: Path) -> None:
        dice = Random(1)
        base = sqlite3.connect(mnt / "base.db", isolation_level=None)
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=NORMAL")
        base.execute("CREATE TABLE test (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        for number in range(9_000):
            key = number if in_order else dice.randrange(9_000)
            base.execute("REPLACE INTO test VALUES (?, ?)", (b"%016d" % key, dice.randbytes(16_384 - 32)))
        base.close()

    return run


def pgbench(mnt: Path) -> None:
    """TPC-B by pgbench, four clients."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        raise SystemExit("record: no /usr/lib/postgresql/*/bin: install the package postgresql")
    data = mnt / "pg"
    data.mkdir()
    shutil.chown(data, "nobody")
    with tempfile.TemporaryDirectory(prefix="flashfs-record-pg-") as sockets:
        shutil.chown(sockets, "nobody")
        shell(programs[-1] / "initdb", "-D", data, "-U", "bench", "-A", "trust", cwd=data, user="nobody")
        settings = f"-k {sockets} -c listen_addresses= -c shared_buffers=16MB -c max_wal_size=64MB"
        control = programs[-1] / "pg_ctl"
        shell(control, "-D", data, "-w", "-l", data / "log", "-o", settings, "start", cwd=data, user="nobody")
        try:
            where = ("-h", sockets, "-U", "bench")
            shell("pgbench", *where, "-i", "-q", "-s", "8", "postgres")
            shell("pgbench", *where, "-c", "4", "-t", "2500", "-n", "--random-seed=1", "postgres")
        finally:
            shell(control, "-D", data, "-w", "-m", "fast", "stop", cwd=data, user="nobody")


RECORDINGS = {
    one.name: one
    for one in (
        Recording("fio-randread", "fio: 192 MiB, then 96,000 random reads of 4 KiB by 8 threads", fio_randread),
        Recording("fio-randw", "fio: 192 MiB, then 80,000 random writes of 4 KiB", fio_randw),
        Recording("dbbench-fillrandom", "RocksDB: 500,000 values of 400 bytes, random keys",
                  db_bench("fillrandom", 500_000)),
        Recording("dbbench-fillseq", "RocksDB: 700,000 values of 400 bytes in order", db_bench("fillseq", 700_000)),
        Recording("dbbench-readrandom", "RocksDB: 250,000 values, then 60,000 random reads without the host's cache",
                  db_bench("fillrandom,compact,readrandom", 250_000, "--reads=60000", "--use_direct_reads",
                           "--cache_size=8388608")),
        Recording("dbbench-updaterandom", "RocksDB: 200,000 values, then 150,000 of them read and written",
                  db_bench("fillseq,updaterandom", 200_000, "--use_direct_reads", "--cache_size=8388608")),
        Recording("sqlite-fillrandom", "SQLite with a WAL: 9,000 values of 16 KiB, random keys", sqlite(False)),
        Recording("sqlite-fillseq", "SQLite with a WAL: 9,000 values of 16 KiB in order", sqlite(True)),
        Recording("pgbench-tpcb", "PostgreSQL: TPC-B, scale 8, 10,000 transactions of four clients", pgbench),
        Recording("varmail-fio", "fio: small files with an fsync a write, and readers", varmail),
        Recording("fileserver-fio", "fio: 3,000 files of 128 KiB, written, appended to, read", fileserver),
    )
}  # fmt: skip


# --- the mount


@contextmanager
def mounted(image: Path, mnt: Path, trace: Path, ftl: str) -> Iterator[None]:
    """A new ext4, with the requests to its disk recorded in ``trace``."""
    flashfs("create", image, "--size", DEVICE)
    flashfs("up", image, mnt, "--fs", "ext4", "--ftl", ftl, "--record", trace)
    try:
        yield
    finally:
        flashfs("down", mnt)


def record(one: Recording, out: Path, ftl: str) -> dict[str, object]:
    """Make the trace of one program; returns its name, description, file and bytes."""
    with tempfile.TemporaryDirectory(prefix="flashfs-record-") as folder:
        mnt, trace = Path(folder, "mnt"), Path(folder, "trace")
        mnt.mkdir()
        with mounted(Path(folder, "img"), mnt, trace, ftl):
            Path(folder).chmod(0o755)  # PostgreSQL runs as another user
            one.run(mnt)
        out.mkdir(parents=True, exist_ok=True)
        target = out / f"{one.name}.trace"
        shutil.copyfile(trace, target)
    return {"name": one.name, "about": one.about, "file": str(target), "bytes": target.stat().st_size}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", metavar="NAME", help="what to record, or all")
    arguments.add_argument("--list", action="store_true", help="say what there is")
    arguments.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="default: examples/traces")
    arguments.add_argument("--ftl", default="pagemap", metavar="NAME", help="of the mount; default: pagemap")
    given = arguments.parse_args()
    if given.list or not given.names:
        for one in RECORDINGS.values():
            print(f"{one.name:24}{one.about}")
        return 0
    names = list(RECORDINGS) if given.names == ["all"] else given.names
    if unknown := [name for name in names if name not in RECORDINGS]:
        raise SystemExit(f"record: {', '.join(unknown)}: use {', '.join(RECORDINGS)} or all")
    if os.geteuid():
        raise SystemExit("record: a loop device needs root")
    for name in names:
        made = record(RECORDINGS[name], given.out, given.ftl)
        print(json.dumps(made), flush=True)
        if int(str(made["bytes"])) > MOST_BYTES:
            print(f"record: {name}: more than {MOST_BYTES} bytes: too much to commit", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
