"""What a map may want to hear of between the calls that each map has (mapping.pyx): one that is partly in flash, one
whose look-ups guess, one that is better asked in runs. A plain map needs none of it."""
from libc.stdint cimport int64_t, uint32_t

from flashfs.engine.contract.shown cimport Shown


cdef class Hooks(Shown):
    """All of it has a default: nothing."""

    # --- parts of the map in flash

    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil:
        """The host is about to trim these LPAs; as ``prepare``. May read, program, clean."""
        return n

    cdef int housekeep(self) except -1 nogil:
        """Between requests: what the mapping has to do now and then, such as writing back translation pages. It may
        clean. May read, program, clean."""
        return 0

    cdef int moves_end(self) except -1 nogil:
        """Cleaning is through with a block, and all is consistent: what moves have left to do, such as writing
        translation pages. It may not clean. May read, program."""
        return 0

    cdef int superseded_left(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """Cleaning left these pages to die with their block, because ``confirm`` called them SUPERSEDED; NONE is
        skipped. They will be other LPAs' pages soon."""
        return 0

    cdef bint release_superseded(self) except -1 nogil:
        """Nothing seems to be dead, and cleaning needs space: find out which pages were superseded, where validity is
        late, and let go of those that are only kept until a sync. Whether there were any. May read, program."""
        return False

    def limit_tables(self, int64_t share):
        """``share`` bytes of DRAM are left for tables that can be kept in flash; less than 0: a cache of default size
        has to be that much smaller. BindError if that is too little: less than ``least_share``."""

    def least_share(self):
        """The least that ``limit_tables`` works with; less than 0: by so much a cache of default size may shrink."""
        return 0

    # --- look-ups that guess, and stores that it cannot go with

    def is_exact(self):
        """Whether look-ups hardly ever guess. If they do, nothing looks at a page before it is read: a look counts."""
        return True

    def refuses(self, validity):
        """None, or why this mapping cannot go with that validity store (a Validity)."""
        return None

    # --- hints

    cdef int expect(self, uint32_t lpa) noexcept nogil:
        """A page of the host went into the write buffer, and will be bound before long: its entry may be fetched into
        the processor's cache. A hint, which changes nothing."""
        return 0

    cdef uint32_t unmapped_from(self, uint32_t lpa, uint32_t n) noexcept nogil:
        """How many of ``n`` LPAs from ``lpa`` on are known, without a look at each, not to be mapped."""
        return 0

    cdef uint32_t next_named(self, uint32_t lpa, uint32_t end) noexcept nogil:
        """The first LPA from ``lpa`` on that may be mapped, or ``end``: for a pass over all of them, which may look at
        each where that is quick. A trim asks ``unmapped_from``: each small hole would cut it into pieces here."""
        return lpa + self.unmapped_from(lpa, end - lpa)
