# cold
"""What a checkpoint holds, and when older log blocks may be released. By default a checkpoint holds all that a mount
needs; a mapping that is recovered from its pages has its own checkpointer (``Mapping.from_pages``)."""
from libc.stdint cimport uint64_t

from flashfs.engine.contract.engine cimport Engine


cdef class Checkpointer:
    """Checkpoints that hold everything: nothing before the newest one is needed."""

    def __cinit__(self, Engine ssd not None, *_, **__):
        self.ssd = ssd
        self.every = <uint64_t> -1

    cdef int begins(self, bint clean) except -1:
        """A checkpoint is about to be written; ``clean``: the host leaves. May read, program, clean."""
        return 0

    cdef int reports_kept(self) except -1 nogil:
        """Validity has programmed all reports that it has so far. After the next sync no recovery looks for them."""
        return 0

    cdef bint finds_reports(self) except -1:
        """Validity asks, while a checkpoint begins, whether it may keep in DRAM the reports that it got since the one
        before: a recovery then finds them."""
        return False

    def sections(self, clean):
        """{section: bytes} of a checkpoint at this moment. The device adds the sections that save work for a ``clean``
        mount."""
        ssd = self.ssd
        return {**ssd.mapping.save(), **ssd.validity.save(), "pool": ssd.pool.save()}

    def to_release(self, old, clean):
        """The blocks to release now that a checkpoint is durable: of ``old``, the log's blocks before it, and of blocks
        kept earlier, those that are not needed any more."""
        return old

    def ends(self):
        """The checkpoint is durable, and the blocks that it replaced are released."""

    def device_ready(self, clean, at):
        """The device is ready, from a ``clean`` checkpoint or after a recovery. ``at``: where a recovery found that the
        scan begins, or None."""

    def kept(self):
        """Blocks of the metadata log that are kept in addition to the last checkpoint's."""
        return ()
