# cold
# distutils: language = c++
"""Records of LPAs that were mapped to other LPAs' pages: which of them a recovery accepts.

A mapping whose ``sharing`` has ``names_sharers`` keeps them in NVRAM. A record counts if its page is whole and still
the one that it meant; resolve.pyx then treats the page as one of that LPA.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport KIND_USER, NONE, STATE_OPEN, Oob, runs_out
from flashfs.engine.recovery.found cimport HEADED, SCANNED, TORN_IN, Found
from nandimg._nand cimport PAGE_OK

import numpy

from flashfs.errors import CorruptError

cdef enum:
    ORDER_BITS = 0x7FFFFFFF  # the bits of a block's order that a record has


cdef packed struct Claimed:  # a record
    uint32_t lpa, ppa
    uint64_t seq
    uint32_t source          # LPA that was unmapped by it (a move), or NONE
    uint64_t stamp           # a block order: the record does not apply to blocks opened later
    uint32_t order           # the low 31 bits of its block's order, which must match; or NONE
    uint32_t[4] other        # private to the mapping


@cython.final
cdef class RecordTaker:
    """Adds the records that refer to whole pages to what was found."""

    def __cinit__(self, Found found not None):
        self.found = found
        self.ssd = found.ssd

    def claims(self):
        """Add the records of a mapping with ``names_sharers`` to the found pages, if they are newer than the
        checkpoint."""
        found = numpy.ascontiguousarray(self.ssd.mapping.sharing.claims())
        cdef const uint8_t[::1] raw = found.view(numpy.uint8)
        cdef uint64_t n = len(found), counted
        if n == 0:
            return "no entries"
        if found.dtype.itemsize != sizeof(Claimed):
            raise ValueError(f"records of {found.dtype.itemsize} bytes: {sizeof(Claimed)} are meant")
        with nogil:
            counted = self.take_claims(&raw[0], n)
        self.found.trim_index.sort()
        n = numpy.count_nonzero(found["lpa"] != NONE)
        return f"{n} entries, {counted} newer than the checkpoint"

    cdef uint64_t take_claims(self, const uint8_t* at, uint64_t n) except? 0xFFFFFFFFFFFFFFFF nogil:
        """A record counts if its page is whole and the one that it meant, that is, its block was not opened since. So
        no new block may get an order that a record's stamp has: a crash of the host may have lost the block that had
        it. Nor may the block be filled further if the page is lost: another page in its place would have its order."""
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
            self.found.seq = max(self.found.seq, one.seq)
            self.found.order = max(self.found.order, one.stamp)
            if one.ppa == NONE:
                continue
            block = one.ppa // self.ssd.pages_per_block
            page = one.ppa % self.ssd.pages_per_block
            if one.seq <= self.found.checkpoint_seq and not self.is_since(one.ppa):
                continue                   # the checkpoint includes it, or a later state
            if not self.found.marks[block] & HEADED or self.ssd.nand.health(block):
                continue
            if self.found.marks[block] & SCANNED and page >= self.found.whole[block]:
                status = self.found.full_read(one.ppa, &oob)
            else:
                status = self.found.spare_read(block, page, &oob)
            if self.found.orders[block] > one.stamp and (status != PAGE_OK or oob.order > one.stamp):
                continue                   # the block was erased since
            order = oob.order if status == PAGE_OK else self.found.orders[block]
            if one.order != NONE and one.order != (order & ORDER_BITS):
                if one.order == (self.found.orders[block] & ORDER_BITS) and page < self.ssd.nand.synced(block):
                    self.found.missing(block, page)  # another page was programmed in its place
                self.found.mark(block, TORN_IN)
                continue                   # ... or a crash of the host lost that one, and an older page is back
            if status != PAGE_OK or oob.kind != KIND_USER or not self.belongs(block, page, oob.order):
                if page < self.ssd.nand.synced(block):
                    self.found.missing(block, page)
                self.found.mark(block, TORN_IN)
                continue
            self.found.entries.add(
                one.seq | (<uint64_t> oob.group << 48) | (<uint64_t> (oob.flags | CLAIMED) << 56), one.lpa, one.ppa)
            if one.source != NONE and one.seq > self.found.checkpoint_seq:
                self.found.trim_index.add(one.seq, one.source, 1)
            counted += 1
        return counted

    cdef bint belongs(self, uint32_t block, uint32_t page, uint64_t order) except -1 nogil:
        """Whether a page with that order was meant for the block. If the block's first page has another order, one of
        the two was meant for another block, and further pages of the block decide. For the first page itself, a further
        page must agree, unless there is none."""
        cdef uint32_t other
        cdef bint alone = order == self.found.orders[block]
        cdef Oob oob
        if alone and page:
            return True
        for other in range(1, min(self.ssd.pages_per_block, <uint32_t> 4)):
            if other == page or self.found.spare_read(block, other, &oob) != PAGE_OK:
                continue
            if oob.order != order:
                alone = False
                continue
            if page:
                self.tell_foreign(block)
            return True
        if not alone and order == self.found.orders[block]:
            self.tell_foreign(block)
        return alone

    cdef int tell_foreign(self, uint32_t block) except -1 nogil:
        with gil:
            self.found.alarm(f"block {block}: its first page was meant for another block")
        return 0

    cdef bint is_since(self, uint32_t ppa) noexcept nogil:
        """Whether that page was programmed after the checkpoint."""
        cdef uint32_t block = ppa // self.ssd.pages_per_block
        if not self.found.based or self.found.orders[block] > self.found.base_order:
            return True
        return (self.ssd.pool.state[block] == STATE_OPEN
                and ppa % self.ssd.pages_per_block >= self.ssd.pool.next_page[block])
