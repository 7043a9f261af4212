"""Zero-copy reads: where the pages are in the image's memory mapping, verified like any read.

The pieces are valid until the next change of flash or of the write buffer: a caller that holds views must prevent such
changes. All other cases (a partial page, a data cache, a page that is not the LPA's, a chip with faults) are left to
the reads that copy; nothing is counted here then.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from flashfs.engine.contract.extent cimport RUN
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.blocks.pool cimport CAUSE_HOST, FLAG_LOST, KIND_USER, NONE, Oob, is_meant_for, oob_unpack
from nandimg._chip cimport Chip


cdef enum:
    IN_BUFFER = 0xFFFFFFFE  # instead of a PPA

cdef extern from *:
    """
    #define prefetch(at) __builtin_prefetch(at)
    """
    void prefetch(const void*) nogil


@cython.final
cdef class ZeroCopy:
    """For one device. ``pieces`` are the result of the last ``find``."""

    def __cinit__(self, Ssd ssd not None):
        self.ssd = ssd
        self.chip = ssd.nand if type(ssd.nand) is Chip and ssd.mapping.is_exact() else None
        self.zeros = <uint8_t*> calloc(1, ssd.page_bytes)
        self.pieces = <Piece*> malloc(RUN * sizeof(Piece))
        if self.zeros == NULL or self.pieces == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.zeros)
        free(self.pieces)

    cdef int64_t find(self, uint64_t offset, uint64_t size, int64_t t_ns) except -1 nogil:
        """The pieces of the range, in order, and the virtual time at which the last one is read; ``pieces_n`` is 0 if
        the range must be copied."""
        cdef uint32_t[RUN] lpas
        cdef uint32_t[RUN] ppas
        cdef uint32_t[RUN] slots
        cdef int64_t[RUN] ready
        cdef uint32_t page_bytes = self.ssd.page_bytes, n = <uint32_t> (size // page_bytes), i = 0, run, block
        cdef int64_t end = t_ns
        self.pieces_n = 0
        if (self.chip is None or self.ssd.mapping.demand or offset % page_bytes or size % page_bytes or n > RUN
                or (self.ssd.buffer.held and self.ssd.buffer.data == NULL) or self.ssd.cache.slots):
            return t_ns
        for i in range(n):
            lpas[i] = <uint32_t> (offset // page_bytes + i)
            ready[i] = t_ns
        self.ssd.map_ns = t_ns
        if self.ssd.mapping.prepare(lpas, n, False, ready) < n:
            return t_ns
        self.ssd.mapping.lookup(lpas, n, ppas)
        for i in range(n if self.ssd.buffer.held else 0):
            slots[i] = self.ssd.buffer.find(lpas[i])
            if slots[i] != NONE:
                ppas[i] = IN_BUFFER
        for i in range(n):
            if ppas[i] < IN_BUFFER:
                prefetch(self.chip.record(ppas[i] // self.ssd.pages_per_block, ppas[i] % self.ssd.pages_per_block))
        i = 0
        while i < n:
            run = 1
            if ppas[i] == NONE:
                self.add(self.zeros, page_bytes)
                end = max(end, ready[i])
            elif ppas[i] == IN_BUFFER:
                self.add(self.ssd.buffer.page(slots[i]), page_bytes)
            else:
                block = ppas[i] // self.ssd.pages_per_block
                while (i + run < n and ppas[i + run] == ppas[i] + run and ready[i + run] == ready[i]
                       and (ppas[i] + run) // self.ssd.pages_per_block == block):
                    run += 1
                end = max(end, self.see(lpas + i, ppas[i], run, ready[i], ppas[i + run] if i + run < n else NONE))
                if self.pieces_n == 0:
                    return t_ns
            i += run
        self.ssd.host_read += n
        return end

    cdef int64_t see(self, const uint32_t* lpas, uint32_t ppa, uint32_t n, int64_t t_ns,
                     uint32_t ahead) except -1 nogil:
        """Add one run of pages of a block; all pieces are dropped if a page is not its LPA's. ``ahead``: the page after
        the run."""
        cdef uint32_t k, block = ppa // self.ssd.pages_per_block, page = ppa % self.ssd.pages_per_block
        cdef uint64_t order = self.ssd.pool.order[block]
        cdef const uint8_t* data
        cdef const uint8_t* at
        cdef int64_t end
        cdef Oob oob
        end = self.chip.view(block, page, n, &data, self.ssd.read_oobs, CAUSE_HOST, t_ns,
                             ahead)
        for k in range(n):
            if data == NULL:
                break
            at = self.ssd.read_oobs + k * self.ssd.oob_bytes
            oob_unpack(at, &oob)
            if (oob.lpa != lpas[k] or oob.kind != KIND_USER or oob.flags & FLAG_LOST
                    or oob.order != order != 0 or not is_meant_for(at, page + k)):
                data = NULL
        if data == NULL:
            self.pieces_n = 0
        else:
            self.add(data, <uint64_t> n * self.ssd.page_bytes)
        return end

    cdef int add(self, const uint8_t* data, uint64_t size) noexcept nogil:
        self.pieces[self.pieces_n].data = data
        self.pieces[self.pieces_n].size = size
        self.pieces_n += 1
        return 0
