# cold
"""The chip's interface: what an engine can do with a chip, or with any fault in front of one."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

#: names of the counted operations, by OP_ number
COUNTED = ("read", "program", "erase", "spare_read", "nvram_read", "nvram_write")


cdef class Nand:
    """The chip as an engine sees it.

    Every operation takes the virtual time ``t_ns`` at which it may start and returns the one at which it ends. A
    breach of the rules raises NandError and changes nothing. Operations are counted by ``cause`` (0..15, which is not
    checked). OSError comes from the host of an image in a file (Chip), or from a filter that imitates one (HostErrors,
    HostCalls); PowerCut from a FaultyNand, whose operations all raise it once the power is gone.
    """

    cdef int64_t program(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data, const uint8_t* oob,
                         int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        """Program ``n`` pages of one block in order; ``data`` may be NULL (the pages read as zeros, if the chip keeps
        data). ``oob`` has ``oob_bytes`` per page. ``done[0]`` pages succeeded; if fewer than ``n``, the next one failed
        and is lost. OSError if the host has no room or its disk fails: ``done[0]`` pages are programmed, and no other.
        PowerCut: ``done[0]`` pages were acknowledged, and the Cut says how the next one is left."""
        with gil:
            raise NotImplementedError

    cdef int64_t read(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* data, uint8_t* oob, uint8_t* status,
                      int cause, int64_t t_ns) except -1 nogil:
        """Read ``n`` pages with their OOB; ``data`` and ``oob`` may be NULL. ``status`` gets a PAGE_ value per page; a
        page that the host cannot read is PAGE_TORN, so there is no OSError. PowerCut if the power is gone."""
        with gil:
            raise NotImplementedError

    cdef int64_t read_some(self, uint32_t block, const uint32_t* pages, uint32_t n, uint8_t* data, uint8_t* oob,
                           uint8_t* status, int cause, int64_t t_ns, int64_t* ready) except -1 nogil:
        """Read the pages of a block that ``pages`` lists, ascending; otherwise as ``read``, errors too, but ``oob``
        must not be NULL. ``ready`` gets the virtual time at which each has arrived."""
        with gil:
            raise NotImplementedError

    cdef int64_t read_spare(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* oob, uint8_t* status,
                            int cause, int64_t t_ns) except -1 nogil:
        """Read ``n`` spare areas alone: cheaper, but a page with a whole OOB and torn data looks OK, unless the death
        of a host may have torn it: then the data are verified, too. ``oob`` may be NULL. Errors as of ``read``."""
        with gil:
            raise NotImplementedError

    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        """Erase a block; ``ok[0]`` is false if the chip reports failure (the caller must then retire the block).
        OSError if the image was truncated while it was open, or its tables cannot be read: nothing is erased. PowerCut:
        the Cut says how the block is left."""
        with gil:
            raise NotImplementedError

    cdef int sync(self, bint durable) except -1 nogil:
        """Make everything done so far survive the host's death (``durable``), or only this process's death. OSError if
        the host's disk fails: then no page counts as synced by it. PowerCut if the power is gone."""
        with gil:
            raise NotImplementedError

    cdef uint32_t erases(self, uint32_t block) noexcept nogil:
        """How often the block was erased; takes no time. ``block`` is not checked."""
        return 0

    cdef int health(self, uint32_t block) noexcept nogil:
        """BLOCK_GOOD (0), BLOCK_FACTORY_BAD (1) or BLOCK_GROWN_BAD (2); takes no time. ``block`` is not checked."""
        return BLOCK_GROWN_BAD

    cdef uint32_t synced(self, uint32_t block) noexcept nogil:
        """The number of pages, from the block's first, that were whole at a durable sync since its last erase began:
        neither a power cut nor the host's death can have spoilt them."""
        return 0

    cdef bint lost_erase(self, uint32_t block) noexcept nogil:
        """Whether pages of it were programmed after an erase that the host's disk lost although it kept those pages.
        They cannot be read; the rest of the block is from before that erase. Reads the records of all its pages."""
        return False

    cdef int mark_synced(self, uint32_t block, uint32_t pages) except -1 nogil:
        """Raise ``synced`` to ``pages``: the caller has read them since the last durable sync, and they are whole."""
        return 0

    cdef int disclaim(self, uint32_t block) except -1 nogil:
        """Set ``synced`` to 0: no page of the block is needed any more, so they may be missing from now on."""
        return 0

    cdef int announce(self, uint32_t pages) except -1 nogil:
        """A run of so many page programs follows, one call each: a filter that would refuse the run must do so now."""
        return 0

    cdef int retire(self, uint32_t block) except -1 nogil:
        """Mark a block bad, permanently."""
        with gil:
            raise NotImplementedError

    # The NVRAM. Offsets are from its start; ``region`` gives the place of a region. A store survives a power cut and
    # the death of the process at once, and the death of the host from the next durable sync on.

    cdef int64_t nvram_store(self, uint64_t offset, const void* data, uint64_t n, int cause,
                             int64_t t_ns) except -1 nogil:
        """Store ``n`` bytes, a multiple of 8 at a multiple of 8, word after word: a power cut leaves a prefix of the
        words. Charged by lines of 64 bytes."""
        with gil:
            raise NotImplementedError

    cdef int64_t nvram_pair(self, uint64_t first, uint64_t word, uint64_t second, uint64_t other, int cause,
                            int64_t t_ns) except -1 nogil:
        """Store ``word`` at ``first``, then ``other`` at ``second``: as two stores of one word each."""
        t_ns = self.nvram_store(first, &word, NVRAM_WORD, cause, t_ns)
        return self.nvram_store(second, &other, NVRAM_WORD, cause, t_ns)

    cdef int64_t nvram_load(self, uint64_t offset, void* data, uint64_t n, int cause, int64_t t_ns) except -1 nogil:
        """Read ``n`` bytes, at any offset. Charged by lines of 64 bytes."""
        with gil:
            raise NotImplementedError

    cdef int64_t charge_load(self, uint64_t offset, uint64_t n, int cause, int64_t t_ns) noexcept nogil:
        """Charge for a load of ``n`` bytes that the caller reads in place (``nvram_at``)."""
        return t_ns

    cdef int hold(self, int64_t t_ns, int64_t until_ns) noexcept nogil:
        """Keep all dies from starting before ``until_ns``, because the controller is busy since ``t_ns``. Idle gaps
        before earlier requests cannot be used any more either."""
        return 0

    cdef const uint8_t* nvram_at(self, uint64_t offset, uint64_t n) except? NULL nogil:
        """A pointer to those ``n`` bytes, valid until the chip is closed; ``charge_load`` charges for reading them."""
        with gil:
            raise NotImplementedError

    cdef int boot_write(self, int slot, const uint8_t* data) except -1 nogil:
        """Write the 64 bytes of boot slot 0 or 1: a hint, never to be trusted without proof from the flash."""
        with gil:
            raise NotImplementedError

    cdef int boot_read(self, int slot, uint8_t* data) except -1 nogil:
        """Read the 64 bytes of boot slot 0 or 1 into ``data``; takes no time, and is not counted. PowerCut if the power
        is gone."""
        with gil:
            raise NotImplementedError

    cdef uint64_t count(self, int op, int cause) noexcept nogil:
        """How many operations ``op`` (an OP_ number) were counted for ``cause`` since the chip was opened, the power
        came on or the counters restarted: pages, spare areas, erased blocks, or lines of the NVRAM. Neither number is
        checked."""
        return 0

    cdef int64_t quiet_at(self) noexcept nogil:
        """The virtual time from which on all dies and channels are idle."""
        return 0

    # The same for Python: tests, tools and the offline views; never on a hot path.

    def require_open(self):
        """ValueError if its image is closed."""

    def require_block(self, uint32_t block):
        """ValueError if the chip has no such block, or its image is closed."""
        self.require_open()
        if block >= self.blocks:
            raise ValueError(f"block {block}: the chip has {self.blocks}, from 0 on")

    def require_cause(self, int cause):
        """ValueError if nothing is counted under that number."""
        if not 0 <= cause < CAUSES:
            raise ValueError(f"cause {cause}: use 0 to {CAUSES - 1}")

    def program_page(self, uint32_t block, uint32_t page, data, bytes oob, int cause=0, int64_t t_ns=0):
        """Program one page; returns its virtual end in ns, or None if the chip reported failure. ``data``: a buffer of
        ``page_bytes`` u8; None as NULL in ``program``. ``oob``: at most ``oob_bytes`` bytes; 0xFF follows them.
        ValueError for another length, or if the chip is closed; other errors as of ``program``."""
        self.require_open()
        self.require_cause(cause)
        cdef uint32_t done = 0
        cdef const uint8_t[::1] view
        cdef const uint8_t* at = NULL
        if data is not None:
            view = data
            if view.shape[0] != self.page_bytes:
                raise ValueError(f"data is {view.shape[0]} bytes: it must be a page ({self.page_bytes})")
            at = &view[0]
        if len(oob) > self.oob_bytes:
            raise ValueError(f"oob is {len(oob)} bytes: it must be {self.oob_bytes} at most")
        padded = oob.ljust(self.oob_bytes, b"\xff")
        end = self.program(block, page, 1, at, <const uint8_t*> <char*> padded, cause, t_ns, &done)
        return end if done else None

    def read_page(self, uint32_t block, uint32_t page, int cause=0, int64_t t_ns=0):
        """(status, data, oob) of one page: status is 0 erased, 1 whole, 2 torn. data has ``page_bytes`` bytes and oob
        ``oob_bytes``: all 0xFF if erased, of no meaning if torn. The virtual end is not returned. ValueError if the
        chip is closed; other errors as of ``read``."""
        self.require_open()
        self.require_cause(cause)
        cdef uint8_t status = 0
        data = bytearray(self.page_bytes)
        oob = bytearray(self.oob_bytes)
        cdef uint8_t[::1] d = data
        cdef uint8_t[::1] o = oob
        self.read(block, page, 1, &d[0], &o[0], &status, cause, t_ns)
        return status, bytes(data), bytes(oob)

    def read_spare_area(self, uint32_t block, uint32_t page, int cause=0, int64_t t_ns=0):
        """(status, oob) of one page by a spare read alone; values and errors as of ``read_page``. Neither the data nor
        the virtual end is returned."""
        self.require_open()
        self.require_cause(cause)
        cdef uint8_t status = 0
        oob = bytearray(self.oob_bytes)
        cdef uint8_t[::1] o = oob
        self.read_spare(block, page, 1, &o[0], &status, cause, t_ns)
        return status, bytes(oob)

    def erase_block(self, uint32_t block, int cause=0, int64_t t_ns=0):
        """Erase one block; returns its virtual end in ns, or None if the chip reported failure."""
        self.require_open()
        self.require_cause(cause)
        cdef bint ok = False
        end = self.erase(block, cause, t_ns, &ok)
        return end if ok else None

    def synchronise(self, bint durable=True):
        """As ``sync``: what was done so far survives the host's death, or with ``durable`` False only this process's.
        ValueError if the chip is closed; other errors as of ``sync``."""
        self.require_open()
        self.sync(durable)

    def retire_block(self, uint32_t block):
        """Mark a good block as grown bad, permanently; a bad one stays as it is. ValueError if there is no
        such block or the chip is closed, NandError if it was opened read-only."""
        self.require_block(block)
        self.retire(block)

    def punch(self, uint32_t block):
        """The block's content is not needed any more: a chip in memory may drop it before the erase."""

    def erase_count(self, uint32_t block):
        """How often the block was erased; persistent."""
        self.require_block(block)
        return self.erases(block)

    def block_health(self, uint32_t block):
        """0 good, 1 factory bad, 2 grown bad; persistent."""
        self.require_block(block)
        return self.health(block)

    def count_health(self, int health):
        """The number of blocks with that health."""
        cdef uint32_t block, n = 0
        self.require_open()
        for block in range(self.blocks):
            n += self.health(block) == health
        return n

    def synced_pages(self, uint32_t block):
        """As ``synced``."""
        self.require_block(block)
        return self.synced(block)

    def maybe_written(self):
        """One byte per block: 0 if all of its pages are known to be erased without reading them, else 1."""
        return bytearray(b"\1") * self.blocks

    def nvram_runs(self, uint64_t offset, uint64_t n):
        """[(offset, bytes)] of the runs among those ``n`` bytes of the NVRAM that may hold anything but zeros, in
        order. Not charged: it tells the emulator what it need not read."""
        return [(offset, n)] if n else []

    def corrected(self):
        """Bit errors that ECC has corrected since the chip was opened."""
        return 0

    def boot_slot(self, int slot):
        """The 64 bytes of a boot slot."""
        self.require_open()
        cdef uint8_t[64] raw
        self.boot_read(slot, raw)
        return raw[:64]

    def write_boot_slot(self, int slot, const uint8_t[::1] raw not None):
        """Replace the 64 bytes of a boot slot."""
        self.require_open()
        if raw.shape[0] != 64:
            raise ValueError(f"{raw.shape[0]} bytes: a boot slot takes 64")
        self.boot_write(slot, &raw[0])

    def nvram(self, uint64_t offset, uint64_t n):
        """``n`` bytes of the NVRAM, read without any charge."""
        self.require_open()
        cdef const uint8_t* at = self.nvram_at(offset, n)
        return (<const char*> at)[:n]

    def load_nvram(self, uint64_t offset, uint64_t n, int cause=0, int64_t t_ns=0):
        """(``n`` bytes of the NVRAM, the virtual end in ns)."""
        self.require_open()
        out = bytearray(n)
        cdef uint8_t[::1] view = out
        t_ns = self.nvram_load(offset, &view[0] if n else NULL, n, cause, t_ns)
        return bytes(out), t_ns

    def store_nvram(self, uint64_t offset, const uint8_t[::1] data not None, int cause=0, int64_t t_ns=0):
        """Store whole words in the NVRAM; returns the virtual end in ns."""
        self.require_open()
        return self.nvram_store(offset, &data[0] if data.shape[0] else NULL, data.shape[0], cause, t_ns)

    def region(self, name):
        """(offset, bytes) of the NVRAM region of that name; None if the chip has none."""
        return None

    @property
    def on_disk(self):
        """Whether the chip is in a file, so that a sync waits for the disk."""
        return False

    def counters(self):
        """{operation: [count by cause]} since the chip was opened, the power came on or the counters restarted."""
        self.require_open()
        return {
            name: [self.count(op, cause) for cause in range(CAUSES)]
            for op, name in enumerate(COUNTED)
        }
