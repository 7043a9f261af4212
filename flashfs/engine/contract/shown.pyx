# cold
"""What tools, checks and reports ask of a map."""
from flashfs.engine.contract.recovery_wishes cimport RecoveryWishes


cdef class Shown(RecoveryWishes):
    """A map that shows what it is made of: to tools, checks, reports. The host waits for none of this."""

    def translation_pages(self):
        """The PPAs of the translation pages that are live."""
        return []

    def from_kernel(self):
        """Bytes of its tables that did not come from malloc."""
        return 0

    def figures(self):
        """The scheme's own statistics."""
        return {}

    def forget_counts(self):
        """What ``figures`` counts is counted from now on."""

    def problems_in_flash(self):
        """Lines about parts of the mapping in flash that cannot be read, or are not what they should be. Reads them
        all: `flashfs fsck` asks."""
        return []

    def pages_of_lost(self):
        """PPAs: where validity is lost too, the pages that count for parts of the mapping in flash that cannot be read.
        Which live is not known then, so it is the newest of each LPA, and what was trimmed may be back."""
        return []

    def check(self):
        """Invariants of the mapping's own structures, each a line when broken."""
        return []
