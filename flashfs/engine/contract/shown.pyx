# cold
"""Calls of tools, checks and reports to a mapping."""
from flashfs.engine.contract.recovery_wishes cimport RecoveryWishes


cdef class Shown(RecoveryWishes):
    """What a mapping shows to tools, checks and reports. Never on the path of a host request."""

    def translation_pages(self):
        """The PPAs of the live translation pages."""
        return []

    def from_kernel(self):
        """Bytes of its tables that did not come from malloc."""
        return 0

    def figures(self):
        """The scheme's own statistics: {name: value}. A value is an int, a float, None, or a list of numbers, and no
        dict. Validity's statistics are shown in the same object, so names must differ from those."""
        return {}

    def forget_counts(self):
        """Reset the counters of ``figures``."""

    def problems_in_flash(self):
        """One line for each part of the mapping in flash that cannot be read or is wrong. Reads all parts: for `flashfs
        fsck`."""
        return []

    def pages_of_lost(self):
        """PPAs of the pages that stand in for unreadable parts of the mapping in flash, where validity is lost too.
        Which pages are live is not known then, so the newest of each LPA counts, and trimmed data may reappear."""
        return []

    def check(self):
        """One line for each broken invariant of the mapping's own structures."""
        return []
