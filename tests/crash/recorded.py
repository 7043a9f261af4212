"""A workload that was recorded: a tape and the image from before it."""

from __future__ import annotations

from pathlib import Path

from flashfs.crash.workload.settings import Folder, Settings
from flashfs.crash.workload.states import Replay, Tape
from flashfs.device import Device
from flashfs.fuse import write_log
from flashfs.replay._record import OPERATIONS
from nandimg import Geometry, image

PAGE = 4096
MIB = 1 << 20
READ, WRITE, TRIM, ZERO, FLUSH = range(5)
assert OPERATIONS[WRITE] == "write" and OPERATIONS[FLUSH] == "flush"


def page(n: int) -> bytes:
    return bytes([n]) * PAGE


def recorded(path: Path, settings: Settings) -> tuple[Folder, Replay]:
    """A tape: page 1; then, as the workload: page 2, flush, mark, page 3, mark, page 2 anew, flush, page 4."""
    folder = Folder(path)
    nvram = 64 << 10 if settings.plp else 0
    image.create(folder.base, Geometry.sized(MIB, pages_per_block=16, op=1.0, nvram_bytes=nvram))
    with Device.open(folder.base, ftl=settings.ftl, options=settings.options, plp=settings.plp) as device:
        device.write(0, page(100))
    made = write_log.Tape(folder.tape, MIB)
    made.record(WRITE, PAGE, PAGE, page(1))
    begin = folder.tape.stat().st_size
    made.record(WRITE, 2 * PAGE, PAGE, page(2))
    made.record(FLUSH, 0, 0)
    made.mark(b"first")
    made.record(WRITE, 3 * PAGE, PAGE, page(3))
    made.mark(b"second")
    made.record(WRITE, 2 * PAGE, PAGE, page(20))
    made.record(FLUSH, 0, 0)
    made.record(WRITE, 4 * PAGE, PAGE, page(4))
    span = (begin, folder.tape.stat().st_size)
    made.record(FLUSH, 0, 0)  # after the workload: not part of it
    made.close()
    folder.save(settings, "none", span)
    return folder, Replay(folder, settings, Tape(folder, span))
