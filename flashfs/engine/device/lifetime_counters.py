"""What a device did in all its life, as far as its checkpoints know: counters beside the boot hint (SPEC.md, 7).

They cost no flash operation: each checkpoint leaves its hint, and they are in the same record. What a mount does behind
its last checkpoint is not in them once the power was cut.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

#: the mount that wrote it, pages of the host and programs in all, and of that mount, unsafe shutdowns, 1
LIFE = struct.Struct("<IQQQQII")
AT = 20  #: in a boot slot
PRESENT = 1


@dataclass(frozen=True, slots=True)
class Life:
    """Counters of pages; ``mount``, and what was counted of it, say how to go on counting."""

    mount: int = 0
    host_writes: int = 0
    programs: int = 0
    host_writes_of_mount: int = 0
    programs_of_mount: int = 0
    unsafe_shutdowns: int = 0

    @classmethod
    def of(cls, slot: bytes | None) -> Life:
        """That of a whole boot slot; of zeros where there is none, or where an older version wrote it."""
        *counters, present = LIFE.unpack_from(slot, AT) if slot else (0,)
        return cls(*counters) if present == PRESENT else cls()

    def at(self, mount: int, host_writes: int, programs: int, unsafe: bool) -> Life:
        """Now: these are the counters of mount number ``mount``, which found an ``unsafe`` shutdown or not."""
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
        """For a boot slot. A counter that is full, as somebody else's image may have it, stays so."""
        counters = (self.host_writes, self.programs, self.host_writes_of_mount, self.programs_of_mount)
        full = (min(max(0, one), 2**64 - 1) for one in counters)
        return LIFE.pack(self.mount % 2**32, *full, min(self.unsafe_shutdowns, 2**32 - 1), PRESENT)

