"""Trace files of other makes than the readers know, made up: the same requests in other units, orders and words.

``python tests/replay/foreign_files.py`` writes them to the folder ``foreign``. A layout says what must come of it:
``read``, or a text of the refusal; and ``answer``, the flag that then reads it, and must give the same requests.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "foreign"
N = 120
READ, WRITE = 0, 1

Request = tuple[int, int, int, int]  #: (milliseconds, READ or WRITE, offset, length)


def requests(seed: int = 13) -> list[Request]:
    """Runs and single requests, of 4 to 64 KiB, on 2 GiB; 1 to 20 ms apart."""
    rng = random.Random(seed)
    out: list[Request] = []
    time, at = 0, 0
    for _ in range(N):
        length = 4096 * rng.choice((1, 1, 2, 3, 4, 5, 8, 16))
        if rng.random() < 0.6 or not out:
            at = 4096 * rng.randrange(1 << 19)
        out.append((time, rng.choice((READ, WRITE)), at, length))
        at += length
        time += rng.randint(1, 20)
    return out


@dataclass(frozen=True)
class Layout:
    """A make of file. ``jitter_us``: its times are so many microseconds later, modulo the number of the request."""

    line: Callable[[Request, int], str]  #: of a request and its number
    outcome: str
    answer: str | None = None
    first: str = ""
    jitter_us: int = 1


def bit(op: int) -> int:
    """1 for a read, as SSDsim has it."""
    return 1 - op


def letter(op: int) -> str:
    return "RW"[op]


NS, US = 1_000_000, 1000
COLUMNS = "--columns"
LAYOUTS: dict[str, Layout] = {
    # five columns of numbers, as SSDsim's, and not
    "bytes_both.txt": Layout(
        lambda r, i: f"{r[0] * NS} 0 {r[2]} {r[3]} {bit(r[1])}",
        "--columns time:ns,dev,offset:1,length:1,op:1=read would fit",
        "time:ns,dev,offset:1,length:1,op:1=read",
    ),
    "bytes_sizes.txt": Layout(
        lambda r, i: f"{r[0] * NS} 0 {r[2] // 512} {r[3]} {bit(r[1])}",
        "--columns time:ns,dev,offset:512,length:1,op:1=read would fit",
        "time:ns,dev,offset:512,length:1,op:1=read",
    ),
    "pages_both.txt": Layout(
        lambda r, i: f"{r[0] * NS} 0 {r[2] // 4096} {r[3] // 4096} {bit(r[1])}",
        "two ways to read it fit: --format mqsim .* and --columns time:ns,dev,offset:4096,length:4096,op:1=read",
        "time:ns,dev,offset:4096,length:4096,op:1=read",
    ),
    "bytes_ms.txt": Layout(
        lambda r, i: f"{r[0]}.000 0 {r[2]} {r[3] // 512} {bit(r[1])}",
        "--columns time:ms,dev,offset:1,length:512,op:1=read would fit",
        "time:ms,dev,offset:1,length:512,op:1=read",
    ),
    "size_first.txt": Layout(
        lambda r, i: f"{r[0] * NS} 0 {r[3] // 512} {r[2] // 512} {bit(r[1])}",
        "fourth column is larger than the third",
        "time:ns,dev,length:512,offset:512,op:1=read",
    ),
    "address_first.txt": Layout(
        lambda r, i: f"{r[0] * NS} {r[2] // 512} {r[3] // 512} 0 {bit(r[1])}",
        "no devices.*fourth column is often 0",
        "time:ns,offset:512,length:512,-,op:1=read",
    ),
    "operation_second.txt": Layout(
        lambda r, i: f"{r[0] * NS} {bit(r[1])} {r[2] // 512} {r[3] // 512} 1",
        "second column looks like read and write",
        "time:ns,op:1=read,offset:512,length:512",
    ),
    "device_last.txt": Layout(
        lambda r, i: f"{r[0] * NS} {r[3] // 512} {r[2] // 512} {bit(r[1])} 7",
        "fifth column is no read or write",
        "time:ns,length:512,offset:512,op:1=read,-",
    ),
    "processes.txt": Layout(
        lambda r, i: f"{r[0] * NS} {300 + i % 5} {r[2] // 512} {r[3] // 512} {bit(r[1])}",
        "process numbers",
        "time:ns,-,offset:512,length:512,op:1=read",
    ),
    "threads.txt": Layout(
        lambda r, i: f"{r[0] * NS} {i % 5} {r[2] // 512} {r[3] // 512} {bit(r[1])}",
        "requests continue where those of another number",
        "time:ns,-,offset:512,length:512,op:1=read",
    ),
    "seconds.txt": Layout(
        lambda r, i: f"{r[0] / 1000:.6f} 0 {r[2] // 512} {r[3] // 512} {bit(r[1])}",
        "in milliseconds there would be .* seconds[?]",
        "time:s,dev,offset:512,length:512,op:1=read",
    ),
    "microseconds.txt": Layout(
        lambda r, i: f"{r[0] * US + i % 7} 0 {r[2] // 512} {r[3] // 512} {bit(r[1])}",
        "in nanoseconds there would be .* ns, us or ms[?]",
        "time:us,dev,offset:512,length:512,op:1=read",
        jitter_us=7,
    ),
    # words and commas
    "cloud.csv": Layout(
        lambda r, i: f"3,{letter(r[1])},{r[2]},{r[3]},{r[0] * US}",
        "no trace format that is known.*--columns says",
        "dev,op,offset:1,length:1,time:us",
    ),
    "cloud_sectors.csv": Layout(
        lambda r, i: f"{r[0] / 1000:.3f},{r[2] // 512},{r[3] // 512},{r[1]},1063",
        "no trace format that is known",
        "time:s,offset:512,length:512,op:1=write,dev",
    ),
    "named.csv": Layout(
        lambda r, i: f"{r[0] * US},0,{r[2]},{r[3]},{'Read' if r[1] == READ else 'Write'}",
        "read",
        first="timestamp_us,device,offset_bytes,size_bytes,op",
    ),
    "named_semicolons.csv": Layout(
        lambda r, i: f"{letter(r[1])}; {r[3] // 512}; {r[2] // 512}; {r[0]}",
        "read",
        first="rw; nsectors; sector; time (ms)",
    ),
    "named_without_units.csv": Layout(
        lambda r, i: f"{r[0] / 1000:.3f},0.0011,{letter(r[1])},5,{r[2]},{r[3]}",
        "its first line names its columns, but not the unit of timestamp, the unit of offset, the unit of size: "
        "use --columns time:[?],-,op,dev,offset:[?],length:[?] ",
        "time:s,-,op,dev,offset,length",
        first="Timestamp,Response,IOType,LUN,Offset,Size",
    ),
    "named_bits.csv": Layout(
        lambda r, i: f"{r[0] / 1000:.3f},{r[2]},{r[3]},{r[1]}",
        "which of the values 0, 1 in rw is a read",
        "time:s,offset,length,op:1=write",
        first="time_s,offset_bytes,size_bytes,rw",
    ),
    "msr_in_sectors.csv": Layout(
        lambda r, i: (
            f"{128166372000000000 + r[0] * 10_000},host,0,{'Read' if r[1] == READ else 'Write'},{r[2] // 512},"
            f"{r[3] // 512},100"
        ),
        "nearest to --format msr, but as bytes",
        "time:100ns,-,dev,op,offset:512,length:512",
    ),
    "spc_in_bytes.csv": Layout(
        lambda r, i: f"0,{r[2]},{r[3]},{letter(r[1])},{r[0] / 1000:.6f}",
        "nearest to --format spc, but as sectors",
        "dev,offset,length,op,time:s",
    ),
    "six.txt": Layout(
        lambda r, i: f"{r[0] * NS} 0 {r[2] // 512} {r[3] // 512} {bit(r[1])} {i % 9}",
        "no trace format that is known",
        "time:ns,dev,offset:512,length:512,op:1=read",
    ),
}


def content(name: str) -> str:
    layout = LAYOUTS[name]
    lines = [layout.line(request, number) for number, request in enumerate(requests())]
    return "\n".join([layout.first] * bool(layout.first) + lines) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in LAYOUTS:
        (FOLDER / name).write_text(content(name))
