"""A faulty chip that calls a watcher before each operation; the watcher can perform the operation on copies first.

This is how a campaign forks: instead of running a program again for each cut, it stops before each operation, lets
the operation happen on copies of the chip that lose their power in it, recovers each, and only then goes on.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from nandimg._faults cimport FaultyNand
from nandimg._nand cimport NVRAM_WORD, Nand

cdef enum:
    NOTHING = 0
    PROGRAM = 1
    ERASE = 2
    NVRAM_STORE = 3
    BOOT_WRITE = 4


cdef class WatchedNand(FaultyNand):
    """A FaultyNand with a ``watcher`` (or None). The watcher has two methods: ``before_operation(nand)``, called before
    each operation that counts (the next one is number ``operations + 1``), and ``before_sync(nand)``, called before
    each durable sync. ``before_operation`` may call ``perform_on`` any number of times. ``after_sync(nand)`` is called
    if the watcher has it."""
    cdef public object watcher
    cdef int pending
    cdef uint32_t block, page
    cdef const uint8_t* data
    cdef const uint8_t* oob
    cdef int cause, slot
    cdef int64_t t_ns
    cdef uint64_t offset, n

    def __init__(self, Nand inner not None, cuts=(), failing=(), on_sync=None, watcher=None):
        super().__init__(inner, cuts, failing, on_sync)
        self.watcher = watcher

    def inherit(self, FaultyNand other not None):
        """Copy what ``other`` keeps outside its chip: the unstable erases and the log of NVRAM stores."""
        self.unstable = {block: set(pages) for block, pages in other.unstable.items()}
        self.any_unstable = other.any_unstable

        self.stored = list(other.stored)

    @property
    def pending_words(self):
        """Words that the operation which is about to happen stores in the NVRAM."""
        return self.n // NVRAM_WORD if self.pending == NVRAM_STORE else 0

    @property
    def about_to_erase(self):
        """The block that the operation which is about to happen erases; None if it is no erase."""
        return self.block if self.pending == ERASE else None

    @property
    def still_failing(self):
        """The operation numbers at which the chip will yet report a failure."""
        return frozenset(self.failing)

    cdef int ask(self, int pending) except -1 nogil:
        if self.dead:
            return 0
        with gil:
            if self.watcher is not None:
                self.pending = pending
                try:
                    self.watcher.before_operation(self)
                finally:
                    self.pending = NOTHING
        return 0

    def perform_on(self, FaultyNand other not None):
        """Perform on ``other`` the one operation (of a longer program: the one page) that is about to happen here."""
        cdef uint32_t done
        cdef bint ok
        if self.pending == PROGRAM:
            other.program(self.block, self.page, 1, self.data, self.oob, self.cause, self.t_ns, &done)
        elif self.pending == ERASE:
            other.erase(self.block, self.cause, self.t_ns, &ok)
        elif self.pending == NVRAM_STORE:
            other.nvram_store(self.offset, self.data, self.n, self.cause, self.t_ns)
        elif self.pending == BOOT_WRITE:
            other.boot_write(self.slot, self.data)
        else:
            raise ValueError("no operation is about to happen")

    cdef int64_t program(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data, const uint8_t* oob,
                         int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        cdef uint32_t i, one
        cdef int64_t end = t_ns
        if self.watcher is None:
            return FaultyNand.program(self, block, page, n, data, oob, cause, t_ns, done)
        done[0] = 0
        self.inner.announce(n)
        for i in range(n):
            self.block = block
            self.page = page + i
            self.data = data
            self.oob = oob
            self.cause = cause
            self.t_ns = t_ns
            self.ask(PROGRAM)
            end = FaultyNand.program(self, block, page + i, 1, data, oob, cause, t_ns, &one)
            if one == 0:
                return end
            done[0] += 1
            oob += self.oob_bytes
            if data != NULL:
                data += self.page_bytes
        return end

    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        self.block = block
        self.cause = cause
        self.t_ns = t_ns
        self.ask(ERASE)
        return FaultyNand.erase(self, block, cause, t_ns, ok)

    cdef int64_t nvram_store(self, uint64_t offset, const void* data, uint64_t n, int cause,
                             int64_t t_ns) except -1 nogil:
        if n > NVRAM_WORD:  # one word alone is no operation
            self.offset = offset
            self.data = <const uint8_t*> data
            self.n = n
            self.cause = cause
            self.t_ns = t_ns
            self.ask(NVRAM_STORE)
        return FaultyNand.nvram_store(self, offset, data, n, cause, t_ns)

    cdef int boot_write(self, int slot, const uint8_t* data) except -1 nogil:
        self.slot = slot
        self.data = data
        self.ask(BOOT_WRITE)
        return FaultyNand.boot_write(self, slot, data)

    cdef int sync(self, bint durable) except -1 nogil:
        if durable and not self.dead:
            with gil:
                if self.watcher is not None:
                    self.watcher.before_sync(self)
        FaultyNand.sync(self, durable)
        if durable and not self.dead and self.watcher is not None:
            with gil:
                if hasattr(self.watcher, "after_sync"):
                    self.watcher.after_sync(self)
        return 0
