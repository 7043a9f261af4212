"""Remaps: the target reads what the source held, whatever happens to the source later; also if the FTL must copy."""

from __future__ import annotations

import random

from flashfs.check.host import Host
from flashfs.check.setting import ROOMY, Counts, Setting, need
from flashfs.ftl import scheme


def remaps(setting: Setting) -> Counts:
    counts = {"requests": 0, "remapped": 0, "moved": 0, "kills": 0, "programs": 0}
    geometry = setting.fitting(ROOMY)
    for buffer in ("0", "3"):
        rnd = setting.chance("remaps", buffer)
        with Host(setting.spec, geometry, {"buffer": buffer}) as host:
            host.open()
            host.write(0, rnd.randbytes(geometry.logical_bytes * 3 // 4))
            for life in range(setting.some(4, 40)):
                for _ in range(60):
                    counts["moved"] += _request(host, rnd)
                    host.look(f"life {life + 1}, after a request")
                host.flush()
                counts["remapped"] += host.device.ssd.host_remap
                host.close(clean=life % 2 == 0)
                counts["kills"] += life % 2
                host.open()
                host.look(f"life {life + 1}, after its end")
                host.sound(f"life {life + 1}, after its end")
            counts["programs"] += _shared(host, scheme(setting.spec).remaps)
            counts["requests"] += host.requests
    need(counts["remapped"] > 0 and counts["moved"] > 0, "nothing was ever remapped")
    return counts


def _request(host: Host, rnd: random.Random) -> bool:
    """One request: two in five are remaps, of whole pages or not, of ranges that may overlap. Returns whether it was a
    move."""
    if rnd.random() < 0.6:
        host.anything(rnd)
        return False
    page, size = host.page, host.geometry.logical_bytes
    move = rnd.random() < 0.3
    _, length = host.span(rnd, rnd.choice((1, 6, 40)))
    source, target = (rnd.randrange((size - length) // page + 1) * page for _ in range(2))
    if rnd.random() < 0.3:  # ragged ends, which are copied
        length = max(1, length - rnd.randrange(page))
        source += rnd.randrange(min(page, size - source - length + 1))
        target += rnd.choice((source % page, rnd.randrange(page)))
        target = min(target, size - length)
    host.remap(target, source, length, move=move)
    return move


def _shared(host: Host, remaps: bool) -> int:
    """Remap half of the device: an FTL that ``remaps`` programs fewer pages than a copy would. Returns how many."""
    half = host.geometry.lpas // 2
    host.trim(0, host.geometry.logical_bytes)
    host.write(0, bytes(range(1, 128)) * (half // 127 * host.page) + b"x" * (half % 127 * host.page))
    host.flush()
    before = host.device.stats()["nand"]["program"]
    host.remap(half * host.page, 0, half * host.page)
    host.flush()
    programs = int(host.device.stats()["nand"]["program"] - before)
    host.look("after half of the device was remapped to the other")
    need(programs < half or not remaps, f"{half} pages were remapped, and {programs} programmed")
    need(programs >= half or remaps, f"{half} pages were copied, and {programs} programmed")
    return programs
