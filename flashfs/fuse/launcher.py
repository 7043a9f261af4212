"""``python -m flashfs.fuse.launcher``: mounts for another Python process, which says on stdin what, and hears on stdout
what came of it, as JSON."""

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
    """What a module prints while it is imported goes to stderr: it is no answer. Nothing of this is open afterwards,
    since the daemon would keep it."""
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
