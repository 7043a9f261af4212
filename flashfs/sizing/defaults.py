"""Defaults of a device: its shape, and its FTL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DEFAULT_FTL = "pagemap"
DEVICE_BYTES = 1 << 30  #: that the host sees
DIES = 8
SUPERBLOCKS = 64  #: at least; with fewer, what works in parallel leaves too few blocks to choose from


def side_by_side(host_bytes: int, given: Mapping[str, Any]) -> dict[str, int]:
    """{"dies", "channels"}, those that were not given: as many as the blocks of the chip and what was given allow."""
    out: dict[str, int] = {}
    if "dies" not in given:
        blocks = host_bytes // (given.get("page_bytes", 4096) * given.get("pages_per_block", 256) or 1)
        dies = DIES
        while dies > 1 and blocks < dies * SUPERBLOCKS:
            dies //= 2
        channels = given.get("channels", 1)
        out["dies"] = -(-dies // channels) * channels if channels > 0 else dies
    if "channels" not in given:
        out["channels"] = math.gcd(DIES, out.get("dies", given.get("dies", 1))) or 1
    return out
