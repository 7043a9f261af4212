"""``python -m flashfs.fuse.launcher``: mounts for another Python process, which says on stdin what, and hears on stdout
what came of it, as JSON."""

from __future__ import annotations

import json
import pickle
import sys
from typing import Any

from flashfs import ftl
from flashfs.errors import one_line
from flashfs.ftl import given
from flashfs.fuse import daemon


def main() -> None:
    """One mount; the daemon stays when this process ends."""
    request, ftl.SEARCHED[:], classes = pickle.load(sys.stdin.buffer)
    try:
        given.unpack(classes)
        said: dict[str, Any] = {"mounted": vars(daemon.mount(request))}
    except BaseException as error:
        line, code = one_line(error)
        said = {"error": line, "exit_code": code}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
