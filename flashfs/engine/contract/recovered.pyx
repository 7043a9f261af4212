"""What a recovery asks and tells the owner of a map, and what checkpoints take of it. All but ``recovered``, ``reset``,
``save`` and ``load`` has a default that a plain map keeps."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.contract.owner cimport Owner


cdef class Recovered(Owner):
    """The owner of a map that outlasts the power: what checkpoints take of it, and what a recovery asks and tells it.
    Without a checkpoint a recovery begins with ``reset``, else with ``load``."""

    cdef bint needs(self, uint32_t ppa, uint32_t lpa) except -1 nogil:
        """A recovery asks, of a mapping that ``shares_pages``: whether any LPA but ``lpa``, which has a newer page or
        was trimmed, is at ``ppa`` still."""
        return False

    cdef uint32_t recovered_copy(self, uint32_t lpa, uint64_t seq, uint32_t ppa,
                                 bint* own) except? 0xFFFFFFFE nogil:
        """A recovery asks, of a mapping that ``shares_pages``: the page named ``lpa`` and ``seq`` was found at ``ppa``,
        where cleaning put it. All who share it are there from now on; as other pages may lie where they were, a mapping
        has to know them by that name. Returns where they were until now, NONE if it is no page that is known to be
        shared; ``own[0]`` says whether ``lpa`` itself is still at it."""
        return NONE

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        """Recovery found that ``lpa`` is at ``ppa`` (NONE: trimmed). ``scheme_oob`` is what was stamped there."""
        with gil:
            raise NotImplementedError

    def recovery_steps(self):
        """[(name, after, about, function)]: what else is to be done in a recovery of this part, behind the engine's
        step ``after``. The function returns a line about what it did; what it raises as ValueError or MapLostError is
        held against the mapping in the step `fit`. Not called where a clean checkpoint spares a recovery."""
        return ()

    def known_without_scan(self):
        """None; or, if a step of its ``recovery_steps`` found mapping and validity whole as they were at the end, with
        nothing scanned since the checkpoint: (the newest sequence number there is, one above the newest before the
        last trim). Pages that it does not name count for nothing then, and trims are not applied again."""
        return None

    def recovery_worker(self):
        """The class of what does the steps of a recovery, derived from flashfs.engine.recovery.recovery.Worker, if the
        mapping is rebuilt in another way than from a checkpoint; else None."""

    def recovery_commits(self):
        """A recovery is about to change flash for the first time. Returns whether something was stored in NVRAM that
        must be durable before."""
        return False

    def recovery_conflicts(self):
        """Blocks whose pages must be left out of the recovery for the mapping to make sense; it is then redone
        without them. Only a host that died with writes lost can cause one."""
        return ()

    def recovery_erased(self):
        """Blocks that ``locate`` found to have been erased since the checkpoint when it read them (an erased page among
        them, or ``Nand.lost_erase``); the recovery is redone without what the checkpoint says of them."""
        return ()

    def recovery_reopens(self):
        """Whether blocks that were open at a crash stay open (after proof that their next page is blank)."""
        return False

    def recovery_restamps(self):
        """Whether cleaning may stamp a copy otherwise than its original. A recovery that undoes a move then reads the
        original for its stamp, and lets a copy stand whose original is gone."""
        return False

    def recovery_ends(self):
        """The pool's states are final now, and so is what ``recovered`` said."""

    def manages(self):
        """From now on the mapping has to manage with what there is: what it reads of itself and finds damaged it makes
        anew from the pages, if it can, instead of raising MapLostError."""

    def opens(self):
        """Mapping and validity are final, and agree: the device is ready."""

    def reset(self):
        """Nothing is mapped: a recovery that found no checkpoint starts here."""
        raise NotImplementedError

    cdef int checkpoint_begins(self) except -1:
        """A checkpoint is about to save mapping and validity: what it needs no more is dead from here on."""
        return 0

    def save(self):
        """{section: buffer} for a checkpoint; names take 8 bytes at most."""
        raise NotImplementedError

    def save_clean(self):
        """{section: buffer} that a clean checkpoint has beside those of ``save``, as far as a checkpoint has room for
        them: what spares work, and is true only as long as nothing has changed."""
        return {}

    def load_clean(self, sections):
        """The inverse, with those of ``save_clean`` that are there. Asked when a clean checkpoint is mounted and
        everything else is loaded; never by a recovery, which adds to a checkpoint what came behind it."""

    cdef int checkpoint_ended(self, bint whole) except -1:
        """It is durable; or else the last one counts on, and all that that stands on is live again."""
        return 0

    def load(self, sections):
        """The inverse of ``save``."""
        raise NotImplementedError

    cdef int64_t pages_named(self) except -2 nogil:
        """How many pages are live if the mapping is right: the LPAs that are mapped, and its translation pages. -1 if
        nobody can say without reading flash. Asked before each checkpoint, so a pass through the table at most."""
        return -1

    def verify(self, bint whole=True):
        """After a load, and again after a recovery: what the tables say, checked against validity. What lies in flash
        is read only if ``whole``: not by a clean mount. ValueError names the first thing that no power cut leaves."""

    def doubt(self, bint whole=True):
        """None, or what does not fit though it may come of damaged pages alone, where a mapping guesses: a recovery
        then asks every live page whose it is."""
        return None
