# cold
"""Calls of recovery and checkpoints to a mapping, besides those that every mapping has (mapping.pyx): recovery steps of
its own, blocks to leave out, work before flash changes. A plain map needs none of them."""
from flashfs.engine.contract.owner cimport Owner


cdef class RecoveryWishes(Owner):
    """All methods have a default that does nothing."""

    def recovery_steps(self):
        """[(name, after, about, function)]: further recovery steps for this part, each after the engine's step
        ``after``. The function returns a line about what it did; a ValueError or MapLostError that it raises counts as
        damage of the mapping in the step `fit`. Not called if a clean checkpoint makes a recovery unnecessary."""
        return ()

    def known_without_scan(self):
        """None; or a triple, if one of its ``recovery_steps`` found mapping and validity complete as they were at the
        end, without a scan since the checkpoint: (the newest sequence number, one above the newest before the last
        trim, the newest order of a block that it knows). Pages that it does not name are then ignored, and trims are
        not applied again. The order is None unless an earlier recovery was based on the same state and was interrupted:
        then pages that it names may have been moved to blocks opened later."""
        return None

    def recovery_base(self):
        """None; or a flashfs.engine.recovery.recovery_base.RecoveryBase, if checkpoints do not hold the whole mapping:
        what a recovery is based on instead. One object per recovery."""

    def recovery_commits(self):
        """A recovery is about to change flash for the first time. Returns whether something was stored in NVRAM that
        must be durable first."""
        return False

    def recovery_conflicts(self, bint hurt):
        """Blocks whose pages must be left out for the mapping to be consistent; the recovery is then redone without
        them. Possible only after a crash of the host that lost writes, or, if the recovery is ``hurt`` (it has raised
        an alarm), when an old page is its LPA's newest again because a flushed one cannot be read."""
        return ()

    def recovery_erased(self):
        """Blocks that ``locate`` read and found to be erased since the checkpoint (an erased page, or
        ``Nand.lost_erase``); the recovery is redone without what the checkpoint says about them. May read."""
        return ()

    def distrust(self):
        """Pages or trims are missing: use what was found before anything else is lost."""

    def recovery_reopens(self):
        """Whether blocks that were open at a crash stay open (after a check that their next page is blank)."""
        return False

    def recovery_restamps(self):
        """Whether cleaning may stamp a copy differently from its original. A recovery that undoes a move then reads the
        original's stamp, and keeps a copy whose original is gone."""
        return False

    def recovery_ends(self):
        """The pool's states and the results of ``recovered`` are final now."""

    def rebuild_allowed(self):
        """From now on the mapping rebuilds damaged parts of itself from the pages, if it can, instead of raising
        MapLostError."""

    def device_ready(self):
        """Mapping and validity are final and consistent: the device is ready."""

    cdef int checkpoint_begins(self) except -1:
        """A checkpoint is about to save mapping and validity: pages that it does not need are dead from here on.
        May read, program."""
        return 0

    def save_clean(self):
        """{section: buffer} that a clean checkpoint holds in addition to those of ``save``, if there is room: contents
        that save work and are true only while nothing changes."""
        return {}

    def load_clean(self, sections):
        """The inverse of ``save_clean``, with the sections that exist. Called when a clean checkpoint is mounted and
        everything else is loaded; never by a recovery, because changes followed its checkpoint."""

    def places(self):
        """{section: writable buffer of the section's length} that a checkpoint is read into directly, for tables too
        large to copy; ``load`` gets that buffer in its ``sections``. A read that fails leaves it undefined, and
        ``reset`` or a ``load`` follows. Not for a mapping whose recovery may be redone (``recovery_erased``,
        ``recovery_conflicts``): that needs the checkpoint once more."""
        return {}

    cdef int checkpoint_ended(self, bint whole) except -1:
        """The checkpoint is durable if ``whole``; otherwise the last one stays in force, and all pages that it needs
        are live again."""
        return 0

    def doubt(self, bint whole=True):
        """None, or an inconsistency that damaged pages alone may explain, in a mapping that guesses: a recovery then
        checks the owner of every live page. May read."""
        return None
