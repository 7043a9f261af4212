"""File system exercise on `disk` itself: random operations, each checked against a model in memory.

    fsx.py FILE [--operations N] [--seed S] [--no-holes]

FILE is a `disk`, or a file of fixed size on any file system; whatever it holds is overwritten. Operations are reads
and writes (of system calls and of mappings), punched holes and zeroed ranges, copies within the file, seeks for
data, flushes, and closing and opening again; offsets and lengths are aligned to pages, to sectors of 512 bytes or to
nothing. On `disk`, also remaps and moves, by the device's own command. A difference is reported with the command that
repeats it. ``--no-holes`` leaves out what a server without fallocate cannot do.
"""

from __future__ import annotations

import argparse
import errno
import mmap
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "fuse")] + ([] if "PYTHONPATH" in os.environ else [str(ROOT)])

from stand import KEEP, PAGE, ZERO, fallocate, punch  # noqa: E402

from flashfs.fuse import commands  # noqa: E402

LONGEST = 192 << 10
SECTOR = 512
SPAN_MOST = 8 << 20  # bytes at the beginning of the file that are used


class Differs(Exception):
    """What was read differs from the model; the text has the command that repeats it."""


class Fsx:
    """Random operations on the first ``span`` bytes of the file at ``path``."""

    def __init__(self, path: Path, seed: int, *, holes: bool = True, span: int = SPAN_MOST) -> None:
        self.path, self.seed, self.holes = path, seed, holes
        self.rnd = random.Random(seed)
        self.span = min(span, path.stat().st_size)
        self.model = bytearray(self.span)
        self.done: Counter[str] = Counter()
        self.number = 0
        self.fd = os.open(path, os.O_RDWR)
        for at in range(0, self.span, 1 << 20):
            os.pwrite(self.fd, bytes(min(1 << 20, self.span - at)), at)
        self.menu: dict[Callable[[], object], int] = {
            self.read: 20, self.write: 30, self.read_mapped: 8, self.flush: 2, self.reopen: 1,
        }  # fmt: skip
        if holes:
            self.menu |= {self.punch: 12, self.zero: 6, self.copy: 10, self.copy_wrongly: 1, self.find: 6}
        if holes and path.with_name("config.json").exists():
            self.menu |= {self.remap: 10}

    def run(self, operations: int) -> Counter[str]:
        """Do so many, then check the whole span. Returns counts by name; Differs at the first mistake."""
        kinds, weights = list(self.menu), list(self.menu.values())
        try:
            for self.number in range(1, operations + 1):
                kind = self.rnd.choices(kinds, weights)[0]
                kind()
                self.done[kind.__name__] += 1  # type: ignore[attr-defined]
            self.reopen()
            for at in range(0, self.span, LONGEST):
                self.check("the end", at, min(LONGEST, self.span - at))
        finally:
            os.close(self.fd)
        return self.done

    # --- operations

    def place(self, room: int | None = None) -> tuple[int, int]:
        """(offset, length) below ``room``: a third in whole pages, a third in whole sectors, most of them short."""
        room = room or self.span
        length = min(round(2 ** self.rnd.uniform(0, LONGEST.bit_length() - 1)), room)
        offset = self.rnd.randrange(room - length + 1)
        unit = self.rnd.choice((1, SECTOR, PAGE))
        if unit > 1:
            offset -= offset % unit
            length = min(-(-length // unit) * unit, (room - offset) // unit * unit or length)
        return offset, length

    def read(self) -> None:
        self.check("read", *self.place())

    def write(self) -> None:
        offset, length = self.place()
        data = self.rnd.randbytes(length)
        if os.pwrite(self.fd, data, offset) != length:
            raise self.differs(f"write of {length} at {offset} was short")
        self.model[offset : offset + length] = data

    def read_mapped(self) -> None:
        """Through a private mapping, the only kind for a file with direct I/O."""
        offset, length = self.place()
        base = offset - offset % mmap.ALLOCATIONGRANULARITY
        with mmap.mmap(
            self.fd, offset + length - base, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ, offset=base
        ) as view:  # fmt: skip
            self.compare("mapped read", offset, view[offset - base :])

    def punch(self) -> None:
        offset, length = self.place()
        punch(self.fd, offset, length)
        self.model[offset : offset + length] = bytes(length)
        self.check_around("punch", offset, length)

    def zero(self) -> None:
        offset, length = self.place()
        fallocate(self.fd, ZERO | self.rnd.choice((0, KEEP)), offset, length)
        self.model[offset : offset + length] = bytes(length)
        self.check_around("zero", offset, length)

    def copy(self) -> None:
        """copy_file_range, of ranges that do not overlap: one in each half of the file, in either direction."""
        half = self.span // 2
        source, length = self.place(half)
        target = half + self.rnd.randrange(half - length + 1)
        if source % PAGE == 0 and self.rnd.random() < 0.7:
            target -= target % PAGE
        if self.rnd.random() < 0.5:
            source, target = target, source
        done = 0
        while done < length:
            n = os.copy_file_range(self.fd, self.fd, length - done, source + done, target + done)
            if n == 0:
                raise self.differs(f"copy of {length} from {source} to {target} ended after {done}")
            done += n
        self.model[target : target + length] = self.model[source : source + length]
        self.check_around("copy", target, length)

    def copy_wrongly(self) -> None:
        """copy_file_range of overlapping ranges: EINVAL, and nothing changes."""
        offset, length = self.place()
        target = min(offset + length // 2, self.span - length)
        try:
            os.copy_file_range(self.fd, self.fd, length, offset, target)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        else:
            raise self.differs(f"copy of {length} from {offset} to {target} was not refused")
        self.check_around("refused copy", target, length)

    def remap(self) -> None:
        """Remap of ranges that may overlap, often of equal alignment; one in three is a move."""
        source, length = self.place()
        target = self.rnd.randrange(self.span - length + 1)
        if self.rnd.random() < 0.7:
            target += (source - target) % PAGE
            target -= PAGE if target + length > self.span else 0
            target = target if target >= 0 else source
        move = self.rnd.random() < 0.33
        commands.remap(self.fd, source, target, length, move)
        moved = self.model[source : source + length]
        if move:
            self.model[source : source + length] = bytes(length)
        self.model[target : target + length] = moved
        self.check_around("move" if move else "remap", target, length)
        self.check_around("source of a move" if move else "source of a remap", source, length)

    def find(self) -> None:
        """SEEK_DATA skips no data; SEEK_HOLE finds a page of zeros."""
        offset, _ = self.place()
        try:
            data = min(os.lseek(self.fd, offset, os.SEEK_DATA), self.span)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            data = self.span
        if any(self.model[offset:data]):
            raise self.differs(f"SEEK_DATA from {offset} skipped data before {data}")
        hole = os.lseek(self.fd, offset, os.SEEK_HOLE)
        if hole < self.span and any(self.model[hole : (hole // PAGE + 1) * PAGE]):
            raise self.differs(f"SEEK_HOLE from {offset} found {hole}, where there is data")

    def flush(self) -> None:
        self.rnd.choice((os.fsync, os.fdatasync))(self.fd)

    def reopen(self) -> None:
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR)

    # --- judgement

    def check(self, what: str, offset: int, length: int) -> None:
        self.compare(what, offset, os.pread(self.fd, length, offset), length)

    def check_around(self, what: str, offset: int, length: int) -> None:
        """Check the changed range, and what is next to its ends."""
        first = max(0, offset - PAGE - 100)
        self.check(what, first, min(self.span, offset + length + PAGE + 100) - first)

    def compare(self, what: str, offset: int, found: bytes, length: int | None = None) -> None:
        length = len(found) if length is None else length
        wanted = self.model[offset : offset + length]
        if found == wanted:
            return
        if len(found) != length:
            raise self.differs(f"{what} at {offset}: {len(found)} bytes and not {length}")
        at = next(i for i in range(length) if found[i] != wanted[i])
        raise self.differs(f"{what} of {length} at {offset}: byte {offset + at} is {found[at]} and not {wanted[at]}")

    def differs(self, why: str) -> Differs:
        holes = "" if self.holes else " --no-holes"
        again = f"tools/fsx.py {self.path} --seed {self.seed} --operations {self.number}{holes}"
        return Differs(f"operation {self.number}: {why}\n    {again}")


def main() -> None:
    parser = argparse.ArgumentParser(description="random operations on a file, checked against a model")
    parser.add_argument("file", type=Path)
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-holes", action="store_true")
    args = parser.parse_args()
    started = time.perf_counter()
    try:
        done = Fsx(args.file, args.seed, holes=not args.no_holes).run(args.operations)
    except Differs as error:
        raise SystemExit(f"fsx: {error}") from None
    seconds = time.perf_counter() - started
    print(f"{args.file}: {args.operations} operations in {seconds:.1f} s: {dict(done)}")


if __name__ == "__main__":
    main()
