"""What `--record` costs: a request in nanoseconds, and a mount's speed with it against the same mount without.

The first part calls the recorder as a native server does (without the interpreter) and as the one in Python does, while
its thread packs and writes to a file in memory. "warm" data is the same each time; "fresh" comes from a region that no
cache holds.

The second part serves a device from an image in memory to fio, and switches the recording on and off every few
milliseconds, so that whatever else the machine does happens to both. For each kind of slice: requests a second, and
the processor time that the server's thread takes for a request; and of the thread that packs and writes, for a recorded
one. Needs fio.

    bench_record.py [--seconds S] [--ftl NAME] [--no-mount] [--no-save]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import bench_common
import bench_mount
import trio

from flashfs.device import Device
from flashfs.fuse import make_server, pyfuse3_server
from flashfs.replay._record import OPERATIONS
from flashfs.replay.recorded import Header, summary
from flashfs.replay.recording import Recording, open_recording
from nandimg import Geometry, create

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


class Slices:
    """Requests, seconds, and seconds of the server's thread, while the recording is off [0] and on [1]."""

    def __init__(self, device: Device, pages: int) -> None:
        self._device, self._pages = device, pages
        self.requests, self.wall_s, self.server_s = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
        self._last = self._now()

    def _now(self) -> tuple[float, float, float]:
        host = self._device.ssd.host_read + self._device.ssd.host_write
        return host / self._pages, time.perf_counter(), time.thread_time()

    def begin(self) -> None:
        self._last = self._now()

    def end(self, on: bool) -> None:
        now = self._now()
        for into, before, after in zip((self.requests, self.wall_s, self.server_s), self._last, now, strict=True):
            into[on] += after - before

    def figures(self) -> dict[str, float]:
        rate = [n / wall for n, wall in zip(self.requests, self.wall_s, strict=True)]
        each = [1e6 * cpu / n for n, cpu in zip(self.requests, self.server_s, strict=True)]
        return {
            "off_per_s": rate[0], "on_per_s": rate[1], "speed": rate[1] / rate[0],
            "off_server_us": each[0], "on_server_us": each[1], "cost": each[1] / each[0] - 1,
        }  # fmt: skip


async def one_test(
    disk: Path, name: str, device: Device, handlers: Any, recorder: Recording, seconds: int
) -> dict[str, Any]:
    """Run fio, with the recording on in every second slice; the slices at both ends do not count."""
    options = bench_mount.TESTS[name]
    big = "--bs=1m" in options
    slices = Slices(device, (1 << 20 if big else 4096) // device.page_bytes)
    command = [
        "fio", "--name=bench", f"--filename={disk}", "--direct=1", "--ioengine=libaio", "--time_based",
        f"--runtime={seconds}", f"--size={bench_mount.SPAN_MIB}m", "--output-format=json", *options,
    ]  # fmt: skip
    worker = time.pthread_getcpuclockid(recorder.thread_id)
    noted, worked = recorder.noted, time.clock_gettime(worker)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.run_process, command, capture_stdout=True))
        await trio.sleep(1)
        end = time.perf_counter() + seconds - 2
        on = False
        while time.perf_counter() < end:
            on = not on
            handlers._record = recorder.record if on else None
            slices.begin()
            await trio.sleep(0.1 if big else 0.02)
            slices.end(on)
        handlers._record = None
    await trio.sleep(1)  # the thread empties the queue
    noted, worked = recorder.noted - noted, time.clock_gettime(worker) - worked
    return {"test": name, **slices.figures(), "thread_us": 1e6 * worked / noted}


async def mount(folder: Path, ftl: str, seconds: int) -> dict[str, Any]:
    """All tests on one mount."""
    kept: list[pyfuse3_server.Handlers] = []

    class Kept(pyfuse3_server.Handlers):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            kept.append(self)

    pyfuse3_server.Handlers = Kept  # type: ignore[misc]
    image, place = folder / "image", folder / "mnt"
    place.mkdir()
    create(image, Geometry.sized(bench_mount.SIZE_MIB << 20, op=0.15))
    device = Device.open(image, ftl=ftl)
    recorder = open_recording(folder / "mount.trace", device)
    for at in range(0, bench_mount.SPAN_MIB << 20, 1 << 20):
        device.write(at, bytes(1 << 20))
    rows = []
    try:
        async with trio.open_nursery() as nursery:
            server = make_server("pyfuse3", device, place, recorder=recorder)
            await nursery.start(partial(server.run))
            try:
                for name in bench_mount.TESTS:
                    rows.append(await one_test(place / "disk", name, device, kept[0], recorder, seconds))
            finally:
                server.request_stop()
    finally:
        recorder.close()
        device.close()
    trace = folder / "mount.trace"
    return {"tests": rows, "trace": summary(trace), "bytes": trace.stat().st_size}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20, help="of each fio run")
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
            results["mount"] = trio.run(mount, Path(name), given.ftl, given.seconds)
            for row in results["mount"]["tests"]:
                print(
                    f"{row['test']:16}  {row['on_per_s']:8.0f} requests/s recorded, {row['speed']:.3f} of without;"
                    f" server {row['on_server_us']:.2f} us a request, {100 * row['cost']:+.1f} %;"
                    f" thread {row['thread_us']:.2f} us"
                )
            requests = results["mount"]["trace"]["requests"]
            print(f"{results['mount']['bytes'] / requests:.2f} bytes a request in the trace, {requests:,} requests")
    if not given.no_save:
        path = bench_common.save("record", results)
        print(f"raw results: {path.relative_to(bench_common.HERE.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
