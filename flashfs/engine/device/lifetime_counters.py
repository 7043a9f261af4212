"""Lifetime counters of a device, as of its last checkpoint, stored with the boot hint (SPEC.md, 7).

They cost no flash operation: each checkpoint writes its hint, and they are in the same record. After a power cut, the
operations since the last checkpoint are missing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

#: mount number, host pages and programs in total, the same of that mount, unsafe shutdowns, PRESENT
LIFE = struct.Struct("<IQQQQII")
AT = 20  #: in a boot slot
PRESENT = 1


@dataclass(frozen=True, slots=True)
class Life:
    """Counters of pages. ``mount`` and the counters of that mount show what the totals include already."""

    mount: int = 0
    host_writes: int = 0
    programs: int = 0
    host_writes_of_mount: int = 0
    programs_of_mount: int = 0
    unsafe_shutdowns: int = 0

    @classmethod
    def of(cls, slot: bytes | None) -> Life:
        """The counters of a whole boot slot; zeros if there is none, or an older version wrote it."""
        *counters, present = LIFE.unpack_from(slot, AT) if slot else (0,)
        return cls(*counters) if present == PRESENT else cls()

    def at(self, mount: int, host_writes: int, programs: int, unsafe: bool) -> Life:
        """The counters now, given those of mount number ``mount``, which found an ``unsafe`` shutdown or not."""
        same = mount == self.mount
        return Life(
            mount,
            self.host_writes + host_writes - (self.host_writes_of_mount if same else 0),
            self.programs + programs - (self.programs_of_mount if same else 0),
            host_writes,
            programs,
            self.unsafe_shutdowns + (unsafe and not same),
        )

    def pack(self) -> bytes:
        """The bytes for a boot slot. A counter at its maximum (possible in a foreign image) stays there."""
        counters = (self.host_writes, self.programs, self.host_writes_of_mount, self.programs_of_mount)
        full = (min(max(0, one), 2**64 - 1) for one in counters)
        return LIFE.pack(self.mount % 2**32, *full, min(self.unsafe_shutdowns, 2**32 - 1), PRESENT)

