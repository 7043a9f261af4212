# cold
# cython: wraparound=True
"""Further faults of a chip, each a filter, which can be stacked in any order in front of the chip.

The filters count flash operations from 1 at each power-on (each page of a program, each erase) and strike at the given
numbers, each once, in the first life that reaches it. The damage may be permanent, unlike that of a power cut: a device
cannot always repair it, but must detect it.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from nandimg._filter cimport NandFilter
from nandimg._nand cimport NVRAM_PAGE, PAGE_OK, PAGE_TORN, TEAR_SPOILT, Nand
from nandimg._torn cimport fail_program, overwrite_page, skip_page, tear_erase

import errno
import os
import random


cdef class Mishap(NandFilter):
    """Base class: strikes at the operations of ``at``. A subclass says how, for a program and for an erase."""
    cdef readonly uint64_t operations      # since power-on
    cdef readonly object struck            # [(operation, block, page or -1)] so far
    # [(block, page, OOB)] of pages that cannot be read any more, whether programmed now or before; page -1 and OOB None
    # stand for a block that was not erased
    cdef readonly list harmed
    cdef set at
    cdef bint armed

    def __init__(self, Nand inner not None, at=()):
        NandFilter.__init__(self, inner)
        self.at = set(at)
        self.armed = bool(self.at)
        self.struck = []
        self.harmed = []

    def power_on(self):
        NandFilter.power_on(self)
        self.operations = 0

    cdef bint strikes(self, uint32_t block, int64_t page) except -1 nogil:
        """Whether the fault strikes this operation; it is then recorded."""
        with gil:
            if self.operations not in self.at:
                return False
            self.at.discard(self.operations)
            self.struck.append((self.operations, block, page))
        return True

    cdef int harm(self, uint32_t block, uint32_t page, const uint8_t* oob) except -1 nogil:
        with gil:
            self.harmed.append((block, page, (<const char*> oob)[: self.oob_bytes]))
        return 0

    cdef int64_t strike_program(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob,
                                int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        """One page; ``done[0]`` says whether the chip claims success."""
        return self.inner.program(block, page, 1, data, oob, cause, t_ns, done)

    cdef int64_t strike_erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        return self.inner.erase(block, cause, t_ns, ok)

    cdef int64_t program(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data, const uint8_t* oob,
                         int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        cdef uint32_t i, one
        cdef int64_t end = t_ns
        if not self.armed:
            self.operations += n
            return self.inner.program(block, page, n, data, oob, cause, t_ns, done)
        done[0] = 0
        self.inner.announce(n)
        for i in range(n):
            self.operations += 1
            one = 0
            if self.strikes(block, page + i):
                end = self.strike_program(block, page + i, data, oob, cause, t_ns, &one)
            else:
                end = self.inner.program(block, page + i, 1, data, oob, cause, t_ns, &one)
            if not one:
                return end
            done[0] += 1
            oob += self.oob_bytes
            if data != NULL:
                data += self.page_bytes
        return end

    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        self.operations += 1
        if self.armed and self.strikes(block, -1):
            return self.strike_erase(block, cause, t_ns, ok)
        return self.inner.erase(block, cause, t_ns, ok)


cdef class Failures(Mishap):
    """A program or an erase that the chip reports as failed: its page or its block is spoilt. ``sticky``: from then on
    every program and erase of that block fails too."""
    cdef bint sticky
    cdef set dying

    def __init__(self, Nand inner not None, at=(), bint sticky=False):
        Mishap.__init__(self, inner, at)
        self.sticky = sticky
        self.dying = set()

    cdef bint strikes(self, uint32_t block, int64_t page) except -1 nogil:
        cdef bint now = Mishap.strikes(self, block, page)
        if self.sticky:
            with gil:
                if now:
                    self.dying.add(block)
                now = block in self.dying
        return now

    cdef int64_t strike_program(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob,
                                int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        fail_program(self.chip, block, page, data, oob)
        done[0] = 0
        return t_ns

    cdef int64_t strike_erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        tear_erase(self.chip, block, TEAR_SPOILT)
        ok[0] = False
        return t_ns


cdef class Silence(Mishap):
    """A program or an erase that the chip reports as done but skips: the page stays erased, the block as it was."""

    cdef int64_t strike_program(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob,
                                int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        skip_page(self.chip, block, page)
        self.harm(block, page, oob)
        done[0] = 1
        return t_ns

    cdef int64_t strike_erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        with gil:
            self.harmed.append((block, -1, None))
        ok[0] = True
        return t_ns


cdef class Misdirection(Mishap):
    """A program that lands on another page, already programmed, and reads as whole there; its own page stays erased.
    The seed chooses that page."""
    cdef object rnd

    def __init__(self, Nand inner not None, at=(), seed=0):
        Mishap.__init__(self, inner, at)
        self.rnd = random.Random(f"misdirection {seed}")

    cdef int64_t strike_program(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob,
                                int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        with gil:
            self.land_elsewhere(block, page, data, oob)
        skip_page(self.chip, block, page)
        self.harm(block, page, oob)
        done[0] = 1
        return t_ns

    cdef land_elsewhere(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob):
        place = self.other_page(block, page)
        if place is not None:
            self.struck[-1] = (*self.struck[-1], *place)
            self.harmed.append((*place, self.chip.read_spare_area(*place)[1]))
            overwrite_page(self.chip, place[0], place[1], data, oob)

    def other_page(self, uint32_t block, uint32_t page):
        """A whole page that is not this one, or None if the chip has none."""
        per_block = self.pages_per_block
        start = self.rnd.randrange(self.blocks * per_block)
        for k in range(self.blocks * per_block):
            other, at = divmod((start + k) % (self.blocks * per_block), per_block)
            if (other, at) != (block, page) and self.chip.read_spare_area(other, at)[0] == PAGE_OK:
                return other, at
        return None


cdef class BitErrors(Mishap):
    """The page programmed at operation N reads with ``at[N]`` wrong bits: up to ``ecc_bits`` are corrected and counted,
    more make it unreadable. ``mode``: "fade" until the block is erased, "stuck" also afterwards, "pass" until one read
    has failed. The spare area has its own ECC, which corrects four times as many bits."""
    cdef dict bits                         # (block, page) -> wrong bits
    cdef dict planned                      # operation -> wrong bits
    cdef set stuck
    cdef int ecc_bits
    cdef object mode
    cdef uint64_t corrected_n

    def __init__(self, Nand inner not None, at=(), int ecc_bits=8, mode="fade"):
        self.planned = dict(at)
        Mishap.__init__(self, inner, self.planned)
        self.bits = {}
        self.stuck = set()
        self.ecc_bits = ecc_bits
        if mode not in ("fade", "stuck", "pass"):
            raise ValueError(f"bit errors of mode {mode!r}: use fade, stuck or pass")
        self.mode = mode

    def corrected(self):
        return self.corrected_n + self.inner.corrected()

    cdef int64_t strike_program(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob,
                                int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        with gil:
            self.bits[block, page] = self.planned[self.struck[-1][0]]
            if self.bits[block, page] > self.ecc_bits:
                self.harmed.append((block, page, (<const char*> oob)[: self.oob_bytes]))
            if self.mode == "stuck":
                self.stuck.add((block, page))
        return self.inner.program(block, page, 1, data, oob, cause, t_ns, done)

    cdef freshen(self, uint32_t block):
        for place in [place for place in self.bits if place[0] == block and place not in self.stuck]:
            del self.bits[place]

    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        if self.armed:
            with gil:
                self.freshen(block)
        return Mishap.erase(self, block, cause, t_ns, ok)

    cdef int spoil(self, uint32_t block, uint32_t page, uint8_t* status, bint spare) except -1 nogil:
        """Apply ECC to one page that was read: counts corrected bits, or makes the page unreadable."""
        with gil:
            wrong = self.bits.get((block, page), 0)
            if status[0] != PAGE_OK or not wrong:
                return 0
            if wrong <= (4 if spare else 1) * self.ecc_bits:
                self.corrected_n += wrong
                return 0
            if self.mode == "pass":
                del self.bits[block, page]
        status[0] = PAGE_TORN
        return 0

    cdef int64_t read(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* data, uint8_t* oob, uint8_t* status,
                      int cause, int64_t t_ns) except -1 nogil:
        cdef uint32_t i
        cdef int64_t end = self.inner.read(block, page, n, data, oob, status, cause, t_ns)
        if self.armed:
            for i in range(n):
                self.spoil(block, page + i, status + i, False)
        return end

    cdef int64_t read_some(self, uint32_t block, const uint32_t* pages, uint32_t n, uint8_t* data, uint8_t* oob,
                           uint8_t* status, int cause, int64_t t_ns, int64_t* ready) except -1 nogil:
        cdef uint32_t i
        cdef int64_t end = self.inner.read_some(block, pages, n, data, oob, status, cause, t_ns, ready)
        if self.armed:
            for i in range(n):
                self.spoil(block, pages[i], status + i, False)
        return end

    cdef int64_t read_spare(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* oob, uint8_t* status,
                            int cause, int64_t t_ns) except -1 nogil:
        cdef uint32_t i
        cdef int64_t end = self.inner.read_spare(block, page, n, oob, status, cause, t_ns)
        if self.armed:
            for i in range(n):
                self.spoil(block, page + i, status + i, True)
        return end


cdef class WearOut(NandFilter):
    """An endurance limit: the erase of a block that was erased about ``limit`` times fails. Each block has its own
    limit, up to a quarter more or less, which the seed fixes."""
    cdef list limits
    cdef readonly uint64_t worn_n

    def __init__(self, Nand inner not None, uint32_t limit, seed=0):
        NandFilter.__init__(self, inner)
        rnd = random.Random(f"wear {seed}")
        self.limits = [int(limit * rnd.uniform(0.75, 1.25)) for _ in range(self.blocks)]

    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        cdef bint worn
        with gil:
            worn = self.inner.erases(block) >= self.limits[block]
        if not worn:
            return self.inner.erase(block, cause, t_ns, ok)
        self.worn_n += 1
        tear_erase(self.chip, block, TEAR_SPOILT)
        ok[0] = False
        return t_ns


cdef class HostErrors(Mishap):
    """The image's own disk fails: the first program or sync at or after operation N raises OSError (``code``: EIO,
    ENOSPC), with nothing of that run programmed. ``sticky``: so does every one after it, until ``mend``."""
    cdef int code
    cdef bint sticky, due

    def __init__(self, Nand inner not None, at=(), int code=errno.EIO, bint sticky=False):
        Mishap.__init__(self, inner, at)
        self.code = code
        self.sticky = sticky

    cdef int fail_now(self) except -1 nogil:
        self.due = self.sticky
        with gil:
            self.struck.append((self.operations, -1, -1))
            raise OSError(self.code, os.strerror(self.code))

    cdef int announce(self, uint32_t pages) except -1 nogil:
        """OSError if one of the next ``pages`` operations fails: the whole run fails then."""
        cdef uint32_t i
        if self.armed:
            with gil:
                for i in range(1, pages + 1):
                    if self.operations + i in self.at:
                        self.at.discard(self.operations + i)
                        self.due = True
        if self.due:
            self.operations += pages
            self.fail_now()
        return self.inner.announce(pages)

    cdef int64_t program(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data, const uint8_t* oob,
                         int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        done[0] = 0
        self.announce(n)
        self.operations += n
        return self.inner.program(block, page, n, data, oob, cause, t_ns, done)

    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        self.operations += 1
        if self.armed:
            with gil:
                if self.operations in self.at:  # an erase does no file I/O: the next program or sync fails
                    self.at.discard(self.operations)
                    self.due = True
        return self.inner.erase(block, cause, t_ns, ok)

    cdef int sync(self, bint durable) except -1 nogil:
        if self.due and durable:
            self.fail_now()
        return self.inner.sync(durable)

    def mend(self):
        """The disk works again."""
        self.due = False
        self.at.clear()
        self.armed = False


cdef class HostCalls(NandFilter):
    """The image's own disk fails at one call: of the calls that reach it (a program of any number of pages, a durable
    sync) the ``n``-th from ``arm`` on raises OSError, and nothing of it is done. ``sticky``: so does every one after
    it, until ``mend``. HostErrors counts pages and erases, as a replay line does; this counts calls to the host.
    """
    cdef readonly uint64_t calls           # since ``arm``
    cdef readonly uint64_t struck          # how many of them raised
    cdef readonly uint64_t struck_syncs    # ... that were syncs
    cdef uint64_t due
    cdef int code
    cdef bint sticky

    def arm(self, uint64_t n, int code=errno.EIO, bint sticky=False):
        self.calls = self.struck = self.struck_syncs = 0
        self.due = n
        self.code = code
        self.sticky = sticky

    def mend(self):
        """The disk works again."""
        self.due = 0

    cdef int call(self, bint syncs) except -1 nogil:
        self.calls += 1
        if self.due and (self.calls == self.due or (self.sticky and self.calls > self.due)):
            self.struck += 1
            self.struck_syncs += syncs
            with gil:
                raise OSError(self.code, os.strerror(self.code))
        return 0

    cdef int64_t program(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data, const uint8_t* oob,
                         int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        done[0] = 0
        self.call(False)
        return self.inner.program(block, page, n, data, oob, cause, t_ns, done)

    cdef int sync(self, bint durable) except -1 nogil:
        if durable:
            self.call(True)
        return self.inner.sync(durable)


cdef class NvramLoss(NandFilter):
    """The host dies: for each page (NVRAM_PAGE bytes) of the NVRAM that changed since the last durable sync, its disk
    has the old or the new content. Also for chips in memory, of either backend."""
    cdef bytes durable

    def __init__(self, Nand inner not None):
        self._stand_before(inner)
        self.remember()

    def remember(self):
        """The present content of the NVRAM is durable now."""
        self.durable = self.chip.nvram(0, self.chip.nvram_bytes)

    cdef int sync(self, bint durable) except -1 nogil:
        self.inner.sync(durable)
        if durable:
            with gil:
                self.remember()
        return 0

    def at_risk(self):
        """The numbers of the NVRAM's pages that differ from the last durable sync."""
        now = self.chip.nvram(0, len(self.durable))
        return [at // NVRAM_PAGE for at in range(0, len(now), NVRAM_PAGE)
                if now[at : at + NVRAM_PAGE] != self.durable[at : at + NVRAM_PAGE]]

    def lose(self, pages):
        """Set those pages of the NVRAM back to the last durable sync, as the host's death may."""
        for page in pages:
            old = self.durable[page * NVRAM_PAGE : (page + 1) * NVRAM_PAGE]
            memcpy(self.chip.nvram_base + <uint64_t> page * NVRAM_PAGE, <const char*> old, len(old))
