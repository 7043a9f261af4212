"""fio, which numbers its writes and verifies them itself.

What can be checked: fio's tool against power cuts is its *verify state*. When a job ends by an error (here: the
device is gone), it saves how many writes were issued and which completed last. A later run of the same job with
``--verify_only --verify_state_load`` goes through the same writes in the same order and stops at the first one that was
not seen to complete. A completed write is durable only if the job makes it so: with ``--fsync=1`` the last write
completes before its fsync does, and the state would claim one write too many. With ``--sync=1`` (O_SYNC) a write
completes only when it is durable, so the state is exactly what was acknowledged.

Three pitfalls are avoided. fio 3.33 does not distinguish a block that an earlier run wrote from one of this run (its
header has the offset, and the seed in it is not compared), so a lost write would not be detected: each run starts with
a file full of a filler that fio does not accept as its own. The verifying run would lay out a file that is too short
again, over the evidence: the size is checked first. And the verifying run has a depth of one whatever the writing run
had, because it counts the reads that were done, not those issued, and would go too far otherwise.

Blocks that were not acknowledged are judged here: each is the filler, or a whole block of fio's at its own offset.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
from pathlib import Path
from typing import Any

from flashfs.crash.kill.workload import Lost, Workload
from flashfs.fuse import mounts
from nandimg import checksum

BLOCK_BYTES = 4096
FILE_BYTES = 6 << 20
MAGIC = 0xACCA
STATE_ISSUED_AT = 0x28  #: where a verify state has the number of writes issued
HEADER = struct.Struct("<HHIQQIIHHI")  #: magic, type, length, seed, offset, seconds, ns, thread, number, header's CRC
#: how a round writes: buffered, or past the page cache with several writes under way
MANNERS = (("--ioengine=psync", "--direct=0"), ("--ioengine=libaio", "--direct=1", "--iodepth=4"))


class Fio(Workload):
    """One job per round, which overwrites a file's blocks in random order, each durably."""

    packages = (("fio", "fio"),)
    checked_every = 5
    may_end = True  # when all blocks are written
    JOB = "writer"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.file = self.root / "fio"
        self.state = self.folder / f"local-{self.JOB}-0-verify.state"
        self.rnd = random.Random(f"fio {self.seed}")
        self.number = 0  #: of the run, also its random seed; 0: there is nothing to judge
        self.writes_before = 0

    def job(self, *how: str) -> list[str]:
        """A command for the same writes in the same order; ``how`` are the options for what to do with them."""
        return [
            "fio", f"--name={self.JOB}", f"--filename={self.file}", f"--size={FILE_BYTES}", "--rw=randwrite",
            f"--bs={BLOCK_BYTES}", "--verify=crc32c", f"--randseed={self.number}", f"--aux-path={self.folder}",
            "--fallocate=none", "--output-format=terse", *how,
        ]  # fmt: skip

    def command(self) -> list[str]:
        self.number = self.rnd.randrange(1, 1 << 31)
        self.state.unlink(missing_ok=True)
        self.writes_before = self.writes()
        return self.job("--sync=1", "--do_verify=0", "--verify_state_save=1", *self.rnd.choice(MANNERS))

    def began(self) -> bool:
        return self.writes() >= self.writes_before + 8

    def gave_up(self, code: int, said: str) -> str | None:
        """fio ends with 0 if all was written, with 1 after an error of the device; anything else is a failure."""
        return None if code in (0, 1) else super().gave_up(code, said)

    def read_log(self) -> None:
        """The log is the verify state; without one, fio ended before it could save it."""

    def judge(self) -> None:
        """Check every block here, and have fio verify the acknowledged writes."""
        if self.number:
            self.judge_blocks()
            if self.state.exists():
                self.verify()

    def prepare(self) -> None:
        """Write the filler, durably."""
        with self.file.open("r+b" if self.file.exists() else "xb") as file:
            file.write(filler(self.seed) * (FILE_BYTES // BLOCK_BYTES))
            file.flush()
            os.fsync(file.fileno())

    def settled(self) -> None:
        self.number = 0

    def verify(self) -> None:
        how = ("--ioengine=psync", "--verify_only=1", "--verify_state_load=1", "--verify_fatal=1")
        done = subprocess.run(self.job(*how), capture_output=True, text=True, env=mounts.environment())
        if done.returncode != 0:
            raise Lost(f"fio, of {issued(self.state)} writes: {' '.join((done.stderr + done.stdout).split())[:300]}")

    def judge_blocks(self) -> None:
        """Every block must be the filler, or one that fio wrote whole at this offset."""
        data = self.file.read_bytes()
        if len(data) != FILE_BYTES:
            raise Lost(f"fio's file has {len(data)} of {FILE_BYTES} bytes, and was never made shorter")
        blank = filler(self.seed)
        for at in range(0, FILE_BYTES, BLOCK_BYTES):
            block = data[at : at + BLOCK_BYTES]
            if block != blank and not is_whole(block, at):
                raise Lost(f"fio's file, byte {at}: neither what was there nor what fio wrote")


def filler(seed: str) -> bytes:
    """A block that fio did not write."""
    return random.Random(f"filler {seed}").randbytes(BLOCK_BYTES)


def is_whole(block: bytes, offset: int) -> bool:
    """Whether fio wrote this whole block at this offset: checks its header, and the CRC-32C of what follows (which fio
    stores without the final inversion)."""
    magic, _, length, _, where, *_ = HEADER.unpack_from(block)
    (crc,) = struct.unpack_from("<I", block, HEADER.size)
    payload = block[HEADER.size + 4 :]
    return (magic, length, where) == (MAGIC, BLOCK_BYTES, offset) and checksum(payload) ^ 0xFFFF_FFFF == crc


def issued(state: Path) -> int:
    """The number of writes issued that a verify state has."""
    return int(struct.unpack_from("<Q", state.read_bytes(), STATE_ISSUED_AT)[0])
