"""Run under fail_malloc: every allocation of the compiled modules fails once, under every request and in every mount;
what comes of it is judged as in test_host_errors. Arguments: a variant, and a stride (0: every single one, as in a
mount in any case). Prints a line of JSON for each request."""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
from collections import Counter
from collections.abc import Callable

from test_host_errors import REQUESTS, Rig, go_on, must_be_sound, prepare, remounts, rigged

PRELOADED = ctypes.CDLL(None)


def crashes(rig: Rig) -> None:
    """The power goes; everything since the last flush is recovered."""
    rig.under_way |= rig.may.keys()  # any of it may be lost
    rig.device.close(clean=False)
    rig.mount()


def failing(rig: Rig, request: Callable[[Rig], None], n: int) -> bool:
    """The request with the ``n``-th allocation failing; whether there were so many."""
    prepare(rig)
    rig.write(17, 40)
    rig.trim(50, 9)
    assert PRELOADED.fail_arm(n) > 20, "no compiled module is known"
    asked = 0
    with contextlib.suppress(MemoryError, OSError):
        try:
            request(rig)
        finally:
            asked = int(PRELOADED.fail_disarm())
    return asked >= n


def main(variant: str, stride: int) -> None:
    for request in (*REQUESTS, crashes):
        told: Counter[str] = Counter()
        n, struck = 1, True
        while struck:
            when = f"{variant} {request.__name__} allocation {n}"
            with rigged(variant) as rig:
                struck = failing(rig, request, n)
                stopped = rig.device.ssd.why_stopped() is not None
                if rig.device._image.chip.closed:  # the mount is what failed
                    assert request in (remounts, crashes), when
                elif stopped:
                    rig.judge(f"{when}, stopped")
                go_on(rig)
                must_be_sound(rig, when)
            told["cases"] += struck
            told["stopped"] += stopped
            n += 1 if request in (remounts, crashes) or not stride else 1 + n // stride
        print(json.dumps({"request": request.__name__, **told}), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1], int(sys.argv[2]))
