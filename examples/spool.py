"""A spool, as a mail server keeps one: a message is written under a temporary name, and renamed when complete.

    python examples/spool.py deliver FOLDER [--messages N] [--forget]
    python examples/spool.py check FOLDER

`deliver` puts messages into FOLDER, each durably before the next, and sets a mark for each that it would acknowledge.
With --forget it leaves out one line, the fsync of the message before the rename. Only a loss of power shows that.
`check` is run after a cut:

    flashfs crash workload 'python examples/spool.py deliver {} --forget' --check 'python examples/spool.py check {}'

docs/crash-workload.md explains it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def content(number: int) -> bytes:
    """Message ``number``; its last line marks the end."""
    line = f"message {number}\n".encode()
    return line * (50 + 97 * (number % 7)) + b"end\n"


def mark(word: str) -> None:
    """Set a mark, if this runs under `flashfs crash workload`."""
    file = os.environ.get("FLASHFS_MARK_FILE")
    if file:
        Path(file).write_text(word)


def deliver(folder: Path, messages: int, forget: bool) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(1, messages + 1):
        temporary = folder / f"tmp-{number}"
        with temporary.open("wb") as file:
            file.write(content(number))
            file.flush()
            if not forget:
                os.fsync(file.fileno())
        temporary.rename(folder / f"message-{number}")
        os.fsync(handle)  # the name is durable; with --forget the content may not be
        mark(str(number))


def check(folder: Path) -> list[str]:
    """A line for each message that was acknowledged and is missing, or is there and incomplete."""
    acknowledged = int(os.environ.get("FLASHFS_MARK") or 0)
    wrong = []
    there = {int(path.name.partition("-")[2]): path for path in folder.glob("message-*")}
    for number in sorted({*there, *range(1, acknowledged + 1)}):
        found = there[number].read_bytes() if number in there else None
        if found is None:
            wrong.append(f"message {number} was acknowledged and is not there")
        elif found != content(number):
            wrong.append(f"message {number} has {len(found)} of {len(content(number))} bytes, or others")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="A spool that survives power cuts, or nearly.")
    parser.add_argument("what", choices=("deliver", "check"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--forget", action="store_true", help="forget the fsync before the rename")
    given = parser.parse_args()
    if given.what == "deliver":
        deliver(given.folder, given.messages, given.forget)
        return 0
    wrong = check(given.folder)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
