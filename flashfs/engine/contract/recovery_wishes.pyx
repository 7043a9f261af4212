# cold
"""What a recovery and checkpoints ask of a map beside what each map has (mapping.pyx): steps of its own, blocks that
must be left out, what has to be done before flash changes. A plain map wishes nothing."""
from flashfs.engine.contract.owner cimport Owner


cdef class RecoveryWishes(Owner):
    """All of it has a default: nothing."""

    def recovery_steps(self):
        """[(name, after, about, function)]: what else a recovery does of this part, after the engine's
        step ``after``. The function returns a line about what it did; what it raises as ValueError or MapLostError is
        held against the mapping in the step `fit`. Not called where a clean checkpoint spares a recovery."""
        return ()

    def known_without_scan(self):
        """None; or, if a step of its ``recovery_steps`` found mapping and validity whole as they were at the end, with
        nothing scanned since the checkpoint: (the newest sequence number there is, one above the newest before the
        last trim, the newest order of a block that it knows). Pages that it does not name count for nothing then, and
        trims are not applied again. The order is None, but where a recovery stood on the same before and was cut: then
        pages that it names may have been moved to blocks that were opened later."""
        return None

    def recovery_worker(self):
        """The class of what does the steps of a recovery, derived from flashfs.engine.recovery.recovery.Worker, if the
        mapping is rebuilt in another way than from a checkpoint; else None."""

    def recovery_commits(self):
        """A recovery is about to change flash for the first time. Returns whether something was stored in NVRAM that
        must be durable before."""
        return False

    def recovery_conflicts(self, bint hurt):
        """Blocks whose pages must be left out of the recovery for the mapping to make sense; it is then redone
        without them. Only a host that died with writes lost can cause one; or, if the recovery is ``hurt`` (it has
        raised an alarm), an old page that is its LPA's newest again, because a flushed one cannot be read."""
        return ()

    def recovery_erased(self):
        """Blocks that ``locate`` found to have been erased since the checkpoint when it read them (an erased page among
        them, or ``Nand.lost_erase``); the recovery is redone without what the checkpoint says of them. May read."""
        return ()

    def distrust(self):
        """Pages or trims are missing: what was found must be taken up before anything else is lost."""

    def recovery_reopens(self):
        """Whether blocks that were open at a crash stay open (after proof that their next page is blank)."""
        return False

    def recovery_restamps(self):
        """Whether cleaning may stamp a copy otherwise than its original. A recovery that undoes a move then reads the
        original for its stamp, and lets a copy stand whose original is gone."""
        return False

    def recovery_ends(self):
        """The pool's states are final now, and so is what ``recovered`` said."""

    def rebuild_allowed(self):
        """From now on the mapping rebuilds from the pages what it reads of itself and finds damaged, if it can, instead
        of raising MapLostError."""

    def device_ready(self):
        """Mapping and validity are final, and agree: the device is ready."""

    cdef int checkpoint_begins(self) except -1:
        """A checkpoint is about to save mapping and validity: what it needs no more is dead from here on.
        May read, program."""
        return 0

    def save_clean(self):
        """{section: buffer} that a clean checkpoint has beside those of ``save``, as far as a checkpoint has room for
        them: what spares work, and is true only as long as nothing has changed."""
        return {}

    def load_clean(self, sections):
        """The inverse, with those of ``save_clean`` that are there. Asked when a clean checkpoint is mounted and
        everything else is loaded; never by a recovery, which adds to a checkpoint what came after it."""

    def places(self):
        """{section: writable buffer of the section's length} that a checkpoint is read into at once, for a table so
        large that a copy of it counts; ``load`` has that buffer among its ``sections``. A read that fails leaves
        anything in it, and ``reset`` or a ``load`` follows. Not for a mapping for which a recovery begins again
        (``recovery_erased``, ``recovery_conflicts``): it needs the checkpoint once more."""
        return {}

    cdef int checkpoint_ended(self, bint whole) except -1:
        """It is durable; or else the last one counts on, and all that it stands on is live again."""
        return 0

    def doubt(self, bint whole=True):
        """None, or what does not fit though it may come of damaged pages alone, where a mapping guesses: a recovery
        then asks every live page whose it is. May read."""
        return None
