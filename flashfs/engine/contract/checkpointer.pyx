# cold
"""What a checkpoint holds, and when what is older may go. The device has the one here, whose checkpoints hold all that
a mount needs; a mapping that is recovered from its pages brings its own (``Mapping.from_pages``)."""
from libc.stdint cimport uint64_t

from flashfs.engine.contract.engine cimport Engine


cdef class Checkpointer:
    """Checkpoints that hold everything: nothing before the newest one is needed."""

    def __cinit__(self, Engine ssd not None, *_, **__):
        self.ssd = ssd
        self.every = <uint64_t> -1

    cdef int begins(self) except -1:
        """A checkpoint is about to be written; it may clean. May read, program, clean."""
        return 0

    cdef int reports_kept(self) except -1 nogil:
        """Validity has programmed all reports that it got so far. After the next sync no recovery looks for them."""
        return 0

    def sections(self, clean):
        """{section: bytes} of a checkpoint at this moment, which is what ``ends`` is about. What spares a ``clean``
        mount work the device adds."""
        ssd = self.ssd
        return {**ssd.mapping.save(), **ssd.validity.save(), "pool": ssd.pool.save()}

    def to_release(self, old, clean):
        """A checkpoint is durable: of the log's blocks before it, ``old``, and others that were kept, those that are
        not needed any more."""
        return old

    def ends(self):
        """It is durable, and what it took the place of was given back."""

    def device_ready(self, clean, at):
        """The device is ready, from a ``clean`` checkpoint or another. ``at``: what a recovery found of where the scan
        begins, or None."""

    def kept(self):
        """Blocks of the metadata log that are kept beside the last checkpoint's."""
        return ()
