# cold
"""What a mapping may bring to a recovery that has no whole checkpoint of it (``RecoveryWishes.recovery_base``): a
reader of its checkpoints, and steps that build what they lack."""
from libc.stdint cimport uint32_t

from flashfs.engine.recovery.found cimport Found
from flashfs.engine.recovery.resolve cimport Resolver
from flashfs.engine.recovery.scan cimport Scanner


cdef class RecoveryBase:
    """All methods have a default that does nothing: that of a mapping whose checkpoints are whole."""

    def join(self, Found found not None, Scanner scanner not None, Resolver resolver not None):
        """The recovery that this object is a part of begins. Before any step."""
        self.found, self.scanner, self.resolver = found, scanner, resolver

    def steps(self):
        """[(part, name, after, about, function)], as ``RecoveryWishes.recovery_steps`` with the part that each step
        belongs to ("mapping" or "validity")."""
        return []

    cdef int take(self, checkpoint) except -1:
        """The newest whole checkpoint was read, and nothing of it is loaded: if it holds no mapping, set where the scan
        begins. CorruptError if it cannot be used; an older one is tried then."""
        return 0

    cdef bint is_collected(self, uint32_t block) noexcept nogil:
        """Whether the block has metadata pages of which some may not count: such blocks must not be marked durable."""
        return False

    def committed(self):
        """The recovery has written its checkpoint."""
