"""For tests alone: a validity store that learns of deaths late, the engine's bitmap after a queue. A crash loses the
queue, so superseded pages stay live until cleaning meets them."""
from libc.stdint cimport uint32_t

from flashfs.parts.defaults.page_bitmap cimport PageBitmap
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport NONE

cdef enum:
    WAITING = 24


cdef class LateBitmap(PageBitmap):
    cdef uint32_t[24] queue
    cdef uint32_t queued
    cdef bint at_once                      # a recovery, or a block that is given up
    cdef readonly unsigned long late_n     # deaths that waited

    def __init__(self, Engine ssd, *_):
        self.late = True
        ssd.keep_pages(2 * WAITING)            # they look live, and in a crash what waited is forgotten: as many again

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if ppas[i] == NONE or not PageBitmap.is_live(self, ppas[i]):
                continue
            if self.at_once or self.ssd.stopped == 4 or self.ssd.kind_of(ppas[i] // self.pages_per_block) != 1:
                PageBitmap.dead(self, ppas + i, 1)
                continue
            if self.queued == WAITING:
                PageBitmap.dead(self, self.queue, WAITING)
                self.queued = 0
            self.queue[self.queued] = ppas[i]
            self.queued += 1
            self.late_n += 1
        return 0

    cdef int released(self, uint32_t block) except -1 nogil:
        """What waits of a block that is given up means nothing any more."""
        cdef uint32_t i
        for i in range(self.queued):
            if self.queue[i] != NONE and self.queue[i] // self.pages_per_block == block:
                self.queue[i] = NONE
        return 0

    def load(self, sections):
        PageBitmap.load(self, sections)
        self.queued = 0
        self.at_once = True

    def reset(self):
        PageBitmap.reset(self)
        self.queued = 0
        self.at_once = True

    def device_ready(self):
        self.at_once = False
