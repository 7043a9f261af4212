# cold
# distutils: language = c++
"""Records of LPAs that were pointed at other LPAs' pages: which of them a recovery believes.

A mapping whose ``sharing`` ``names_sharers`` keeps them in NVRAM. One counts if its page is whole and the one that was
meant; resolve.pyx settles it then as if its page were one of that LPA.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport KIND_USER, NONE, STATE_OPEN, Oob, runs_out
from flashfs.engine.recovery.scan cimport HEADED, SCANNED, Scanner
from nandimg._nand cimport PAGE_OK

import numpy

from flashfs.errors import CorruptError

cdef enum:
    ORDER_BITS = 0x7FFFFFFF  # of a block's order, those that a record has


cdef packed struct Claimed:  # a record
    uint32_t lpa, ppa
    uint64_t seq
    uint32_t source          # that holds nothing since, or NONE
    uint64_t stamp           # of blocks opened later it does not speak
    uint32_t order           # nor of a block of another order than this: its low 31 bits, or NONE
    uint32_t[4] other        # the mapping's own


cdef class RecordTaker(Scanner):
    """What was read of pages, and the records that speak of them."""

    def claims(self):
        """The records of a mapping whose ``sharing`` ``names_sharers``, as far as they are newer than the checkpoint,
        join the pages that were found."""
        found = numpy.ascontiguousarray(self.ssd.mapping.claims())
        cdef const uint8_t[::1] raw = found.view(numpy.uint8)
        cdef uint64_t n = len(found), counted
        if n == 0:
            return "no entries"
        if found.dtype.itemsize != sizeof(Claimed):
            raise ValueError(f"records of {found.dtype.itemsize} bytes: {sizeof(Claimed)} are meant")
        with nogil:
            counted = self.take_claims(&raw[0], n)
        self.trim_index.sort()
        n = numpy.count_nonzero(found["lpa"] != NONE)
        return f"{n} entries, {counted} newer than the checkpoint"

    @cython.final
    cdef uint64_t take_claims(self, const uint8_t* at, uint64_t n) except? 0xFFFFFFFFFFFFFFFF nogil:
        """A record counts if its page is whole, and the one that was meant: its block was not opened since. So no block
        is to be opened under an order that a record's stamp has: the host's death may have taken the block that had it.
        """
        cdef const Claimed* one
        cdef uint64_t i, order, counted = 0
        cdef uint32_t block, page
        cdef Oob oob
        cdef int status
        for i in range(n):
            one = <const Claimed*> at + i
            if runs_out(one.seq):
                with gil:
                    raise CorruptError(f"NVRAM: an entry of LPA {one.lpa} with sequence number {one.seq}")
            if runs_out(one.stamp):
                with gil:
                    raise CorruptError(f"NVRAM: a segment with order {one.stamp}")
            self.seq = max(self.seq, one.seq)
            self.order = max(self.order, one.stamp)
            if one.ppa == NONE:
                continue
            block = one.ppa // self.ssd.pages_per_block
            page = one.ppa % self.ssd.pages_per_block
            if one.seq <= self.checkpoint_seq and not self.is_since(one.ppa):
                continue                   # the checkpoint says it, or what came of it
            if not self.marks[block] & HEADED or self.ssd.nand.health(block):
                continue
            if self.marks[block] & SCANNED and page >= self.whole[block]:
                status = self.full_read(one.ppa, &oob)
            else:
                status = self.spare_read(block, page, &oob)
            if self.orders[block] > one.stamp and (status != PAGE_OK or oob.order > one.stamp):
                continue                   # its block was erased since
            order = oob.order if status == PAGE_OK else self.orders[block]
            if one.order != NONE and one.order != (order & ORDER_BITS):
                if one.order == (self.orders[block] & ORDER_BITS) and page < self.ssd.nand.synced(block):
                    self.missing(block, page)  # another page was put in its place
                continue                   # ... or the host's death took that, and what was there before is back
            if status != PAGE_OK or oob.kind != KIND_USER or not self.belongs(block, page, oob.order):
                if page < self.ssd.nand.synced(block):
                    self.missing(block, page)
                continue
            self.entries.add(one.seq | (<uint64_t> oob.group << 48) | (<uint64_t> (oob.flags | CLAIMED) << 56), one.lpa,
                             one.ppa)
            if one.source != NONE and one.seq > self.checkpoint_seq:
                self.trim_index.add(one.seq, one.source, 1)
            counted += 1
        return counted

    @cython.final
    cdef bint belongs(self, uint32_t block, uint32_t page, uint64_t order) except -1 nogil:
        """Whether a page that says that order was meant for the block. If the first page says otherwise, one of the two
        was meant for another: the others of the block say which. The first page itself needs one that agrees, unless
        there is none."""
        cdef uint32_t other
        cdef bint alone = order == self.orders[block]
        cdef Oob oob
        if alone and page:
            return True
        for other in range(1, min(self.ssd.pages_per_block, <uint32_t> 4)):
            if other == page or self.spare_read(block, other, &oob) != PAGE_OK:
                continue
            if oob.order != order:
                alone = False
                continue
            if page:
                self.tell_foreign(block)
            return True
        if not alone and order == self.orders[block]:
            self.tell_foreign(block)
        return alone

    @cython.final
    cdef int tell_foreign(self, uint32_t block) except -1 nogil:
        with gil:
            self.alarm(f"block {block}: its first page was meant for another block")
        return 0

    @cython.final
    cdef bint is_since(self, uint32_t ppa) noexcept nogil:
        """Whether that page was programmed after the checkpoint."""
        cdef uint32_t block = ppa // self.ssd.pages_per_block
        if not self.based or self.orders[block] > self.base_order:
            return True
        return (self.ssd.pool.state[block] == STATE_OPEN
                and ppa % self.ssd.pages_per_block >= self.ssd.pool.next_page[block])
