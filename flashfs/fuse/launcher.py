"""``python -m flashfs.fuse.launcher``: mounts for another Python process, which writes the request to stdin (a pickle)
and reads the result from stdout (JSON)."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flashfs.ftl import class_names
from flashfs.ftl_search import SEARCHED
from flashfs.fuse import daemon
from flashfs.fuse.users import one_line


def main() -> None:
    """One mount; the daemon stays when this process ends."""
    request, SEARCHED[:], classes = pickle.load(sys.stdin.buffer)
    try:
        with _nothing_said():
            class_names.unpack(classes)
        said: dict[str, Any] = {"mounted": vars(daemon.mount(request))}
    except BaseException as error:
        line, code = one_line(error)
        said = {"error": line, "exit_code": code}
    print(json.dumps(said))


@contextmanager
def _nothing_said() -> Iterator[None]:
    """Send what a module prints while it is imported to stderr: stdout is for the answer. Leaves no descriptor open,
    since the daemon would inherit it."""
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(answers, 1)
        os.close(answers)


if __name__ == "__main__":
    main()
