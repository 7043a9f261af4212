"""Maps of thousands of entries: a checkpoint must restore the map that was saved, LPA by LPA."""

from __future__ import annotations

import random

from flashfs.check.host import Host
from flashfs.check.setting import Counts, Setting, need
from flashfs.engine.views import block_map
from nandimg import Geometry

#: more LPAs than any table of a thousand entries holds, and a prime: a multiple of no table's size
THOUSANDS = Geometry(page_bytes=512, pages_per_block=32, blocks=192, channels=2, dies=2, oob_bytes=64, lpas=4_999)
ROW = 80  #: trims of single pages in a row: more than one page of the log holds


def maps(setting: Setting) -> Counts:
    counts = {"lpas": 0, "holes": 0, "mounts": 0, "requests": 0}
    geometry = setting.fitting(THOUSANDS)
    for n in range(setting.some(2, 12)):
        rnd = setting.chance("maps", n)
        with Host(setting.spec, geometry) as host:
            host.open()
            host.write(0, rnd.randbytes(geometry.logical_bytes))
            for life in range(3):
                _change(host, rnd)
                counts["holes"] += _same_behind_a_mount(host, f"map {n + 1}, clean mount {life + 1}")
                _change(host, rnd)
                host.flush()
                host.close(clean=False)
                host.open()
                host.look(f"map {n + 1}, kill {life + 1}")
                counts["lpas"] += 2 * geometry.lpas
            host.sound(f"map {n + 1}, at the end")
            counts["mounts"] += host.mounts
            counts["requests"] += host.requests
    need(counts["holes"] > 0, "no LPA was ever trimmed")
    return counts


def _change(host: Host, rnd: random.Random) -> None:
    """Requests of all lengths, the last LPAs among them, and rows of trims."""
    for _ in range(40):
        host.anything(rnd, 60)
    last = host.geometry.lpas - rnd.randint(1, 3)
    host.write(last * host.page, rnd.randbytes((host.geometry.lpas - last) * host.page))
    first = rnd.randrange(host.geometry.lpas - 3 * ROW)
    for lpa in range(first, first + 3 * ROW, 3):
        host.trim(lpa * host.page, host.page)


def _same_behind_a_mount(host: Host, when: str) -> int:
    """Unmount and mount: each LPA reads as before, and is where it was unless cleaning moved it to make room for what
    the unmount writes. Returns the number of holes."""
    host.flush()
    ssd = host.device.ssd
    before, programmed = block_map.locations(ssd), ssd.purposes()["program"]["user"]
    host.close(clean=True)
    copies = ssd.purposes()["program"]["user"] - programmed
    host.open()
    after = block_map.locations(host.device.ssd)
    host.look(when)  # after ``locations``: a mapping that is in flash writes when it is read, and may clean
    moved = (before != after).nonzero()[0]
    need(len(moved) <= copies, f"{when}: LPA {moved[0] if len(moved) else 0} is not where it was, one of {len(moved)}, "
         f"and {copies} pages were copied")
    return int((after == NOWHERE).sum())


NOWHERE = 2**32 - 1  #: of an LPA that holds nothing
