# cold
"""The base of every fault: a filter in front of a chip that passes everything on."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from nandimg._chip cimport Chip
from nandimg._nand cimport Nand


cdef class NandFilter(Nand):
    """Passes every operation to ``inner``, a Chip or another filter. Subclasses override the operations they affect."""

    def __init__(self, Nand inner not None):
        self._stand_before(inner)
        if self.chip.unsummed:
            raise ValueError("a chip in memory without data has no checksums, so no fault would show: backend file")

    def _stand_before(self, Nand inner not None):
        """``__init__`` without its check: for filters whose faults are detected without checksums too."""
        self.inner = inner
        self.chip = inner if isinstance(inner, Chip) else (<NandFilter?> inner).chip
        self.geometry = inner.geometry
        self.blocks = inner.blocks
        self.pages_per_block = inner.pages_per_block
        self.page_bytes = inner.page_bytes
        self.oob_bytes = inner.oob_bytes
        self.dies = inner.dies
        self.channels = inner.channels
        self.paired_pages = inner.paired_pages
        self.keeps_data = inner.keeps_data

    def require_open(self):
        self.chip.require_open()

    def power_on(self):
        """The power was off and is on again: the chip loses its volatile state."""
        if isinstance(self.inner, NandFilter):
            self.inner.power_on()
        else:
            self.chip.reset_volatile()

    @property
    def on_disk(self):
        return self.chip.on_disk

    def corrected(self):
        return self.inner.corrected()

    cdef int64_t program(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data, const uint8_t* oob,
                         int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        return self.inner.program(block, page, n, data, oob, cause, t_ns, done)

    cdef int64_t read(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* data, uint8_t* oob, uint8_t* status,
                      int cause, int64_t t_ns) except -1 nogil:
        return self.inner.read(block, page, n, data, oob, status, cause, t_ns)

    cdef int64_t read_some(self, uint32_t block, const uint32_t* pages, uint32_t n, uint8_t* data, uint8_t* oob,
                           uint8_t* status, int cause, int64_t t_ns, int64_t* ready) except -1 nogil:
        return self.inner.read_some(block, pages, n, data, oob, status, cause, t_ns, ready)

    cdef int64_t read_spare(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* oob, uint8_t* status,
                            int cause, int64_t t_ns) except -1 nogil:
        return self.inner.read_spare(block, page, n, oob, status, cause, t_ns)

    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        return self.inner.erase(block, cause, t_ns, ok)

    cdef int sync(self, bint durable) except -1 nogil:
        return self.inner.sync(durable)

    cdef uint32_t erases(self, uint32_t block) noexcept nogil:
        return self.inner.erases(block)

    cdef int health(self, uint32_t block) noexcept nogil:
        return self.inner.health(block)

    cdef uint32_t synced(self, uint32_t block) noexcept nogil:
        return self.inner.synced(block)

    cdef bint lost_erase(self, uint32_t block) noexcept nogil:
        return self.inner.lost_erase(block)

    cdef int mark_synced(self, uint32_t block, uint32_t pages) except -1 nogil:
        return self.inner.mark_synced(block, pages)

    cdef int disclaim(self, uint32_t block) except -1 nogil:
        return self.inner.disclaim(block)

    cdef int announce(self, uint32_t pages) except -1 nogil:
        return self.inner.announce(pages)

    cdef int retire(self, uint32_t block) except -1 nogil:
        return self.inner.retire(block)

    cdef int64_t nvram_store(self, uint64_t offset, const void* data, uint64_t n, int cause,
                             int64_t t_ns) except -1 nogil:
        return self.inner.nvram_store(offset, data, n, cause, t_ns)

    cdef int64_t nvram_load(self, uint64_t offset, void* data, uint64_t n, int cause, int64_t t_ns) except -1 nogil:
        return self.inner.nvram_load(offset, data, n, cause, t_ns)

    cdef int64_t charge_load(self, uint64_t offset, uint64_t n, int cause, int64_t t_ns) noexcept nogil:
        return self.inner.charge_load(offset, n, cause, t_ns)

    cdef int hold(self, int64_t t_ns, int64_t until_ns) noexcept nogil:
        return self.inner.hold(t_ns, until_ns)

    cdef const uint8_t* nvram_at(self, uint64_t offset, uint64_t n) except? NULL nogil:
        return self.inner.nvram_at(offset, n)

    def region(self, name):
        return self.inner.region(name)

    cdef int boot_write(self, int slot, const uint8_t* data) except -1 nogil:
        return self.inner.boot_write(slot, data)

    cdef int boot_read(self, int slot, uint8_t* data) except -1 nogil:
        return self.inner.boot_read(slot, data)

    cdef uint64_t count(self, int op, int cause) noexcept nogil:
        return self.inner.count(op, cause)

    cdef int64_t quiet_at(self) noexcept nogil:
        return self.inner.quiet_at()
