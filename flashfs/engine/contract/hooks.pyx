"""Optional calls to a mapping, besides those that every mapping has (mapping.pyx): for a map that is partly in flash,
whose look-ups guess, or that is faster when asked in runs. A plain map needs none of them."""
from libc.stdint cimport int64_t, uint32_t

from flashfs.engine.contract.shown cimport Shown


cdef class Hooks(Shown):
    """All methods have a default that does nothing."""

    # --- parts of the map in flash

    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil:
        """The host is about to trim these LPAs; as ``prepare``. May read, program, clean."""
        return n

    cdef int housekeep(self) except -1 nogil:
        """Called between requests, for occasional work such as writing back translation pages.
        May read, program, clean."""
        return 0

    cdef int moves_end(self) except -1 nogil:
        """Cleaning has finished a block, and all tables are consistent: do the work that moves left, such as writing
        translation pages. Must not clean. May read, program."""
        return 0

    cdef int superseded_left(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """Cleaning did not move these pages, because ``confirm`` called them SUPERSEDED; NONE is skipped. Their block
        is erased soon."""
        return 0

    cdef bint release_superseded(self) except -1 nogil:
        """Cleaning needs space and finds no dead pages: with late validity, find superseded pages, and release those
        that are only kept until a sync. Returns whether there were any. May read, program."""
        return False

    def limit_tables(self, int64_t share):
        """``share`` bytes of DRAM are left for tables that can be kept in flash; less than 0: a cache of default size
        has to be that much smaller. BindError if that is too little: less than ``least_share``."""

    def least_share(self):
        """The least that ``limit_tables`` works with; less than 0: by so much a cache of default size may shrink."""
        return 0

    # --- look-ups that guess, and validity stores that it cannot be combined with

    def is_exact(self):
        """Whether look-ups rarely guess. If they do guess, callers must not look up a page ahead of its read, because
        each look-up counts."""
        return True

    def refuses(self, validity):
        """None, or why this mapping cannot be combined with that validity store (a Validity)."""
        return None

    # --- hints

    cdef int expect(self, uint32_t lpa) noexcept nogil:
        """A hint that a page of the host entered the write buffer and will be bound soon: the entry may be prefetched
        into the processor's cache. Changes nothing."""
        return 0

    cdef uint32_t unmapped_from(self, uint32_t lpa, uint32_t n) noexcept nogil:
        """How many of ``n`` LPAs from ``lpa`` on are known to be unmapped without looking at each."""
        return 0

    cdef uint32_t next_named(self, uint32_t lpa, uint32_t end) noexcept nogil:
        """The first LPA from ``lpa`` on that may be mapped, or ``end``: for a pass over all LPAs; may look at each
        entry if that is fast. A trim uses ``unmapped_from`` instead, because here each small hole would split it."""
        return lpa + self.unmapped_from(lpa, end - lpa)
