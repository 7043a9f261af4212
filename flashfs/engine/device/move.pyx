"""One move of pages, and the lists that it works on."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from flashfs.engine.contract.engine cimport Engine


cdef class MoveLists:
    """Buffers for one block, and lists for the most pages of one move. A controller has them in DRAM, so the DRAM
    figures include them."""

    def __cinit__(self, Engine ssd):
        cdef uint32_t pages = ssd.nand.pages_per_block
        self.ssd = ssd
        self.oob_bytes = ssd.nand.oob_bytes
        self.page_bytes = ssd.nand.page_bytes
        self.pages_per_block = pages
        self.room = pages
        self.read_oobs = <uint8_t*> malloc(max(<uint64_t> pages, <uint64_t> MOVE_RUN) * self.oob_bytes)
        self.oobs = <uint8_t*> malloc(<uint64_t> MOVE_RUN * self.oob_bytes)
        self.status = <uint8_t*> malloc(max(pages, <uint32_t> MOVE_RUN))
        self.kinds = <uint8_t*> malloc(pages)
        self.confirmed = <uint8_t*> malloc(pages)
        self.pages = <uint32_t*> malloc(pages * 4)
        self.lpas = <uint32_t*> malloc(pages * 4)
        self.olds = <uint32_t*> malloc(pages * 4)
        self.news = <uint32_t*> malloc(pages * 4)
        self.gone = <uint32_t*> malloc(pages * 4)
        self.left = <uint32_t*> malloc(pages * 4)
        self.keys = <uint64_t*> malloc(pages * 8)
        self.sorted = <uint64_t*> malloc(pages * 8)
        self.ready = <int64_t*> malloc(max(pages, <uint32_t> MOVE_RUN) * 8)
        if not (self.read_oobs and self.oobs and self.status and self.kinds and self.confirmed and self.pages
                and self.lpas and self.olds and self.news and self.gone and self.left and self.keys and self.sorted
                and self.ready):
            raise MemoryError
        if ssd.nand.keeps_data:
            self.data = <uint8_t*> malloc(<uint64_t> pages * self.page_bytes)
            self.gather = <uint8_t*> malloc(<uint64_t> MOVE_RUN * self.page_bytes)
            if not (self.data and self.gather):
                raise MemoryError

    def __dealloc__(self):
        free(self.read_oobs)
        free(self.oobs)
        free(self.status)
        free(self.kinds)
        free(self.confirmed)
        free(self.pages)
        free(self.lpas)
        free(self.olds)
        free(self.news)
        free(self.gone)
        free(self.left)
        free(self.keys)
        free(self.sorted)
        free(self.victims)
        free(self.ready)
        free(self.data)
        free(self.gather)

    def carry(self, uint32_t pages):
        """As Engine.carry."""
        cdef uint64_t n = max(pages, self.room)
        cdef uint64_t blocks = self.ssd.nand.blocks
        free(self.kinds)
        free(self.lpas)
        free(self.olds)
        free(self.news)
        free(self.left)
        free(self.keys)
        free(self.sorted)
        self.kinds = <uint8_t*> malloc(n)
        self.lpas = <uint32_t*> malloc(n * 4)
        self.olds = <uint32_t*> malloc(n * 4)
        self.news = <uint32_t*> malloc(n * 4)
        self.left = <uint32_t*> malloc(n * 4)
        self.keys = <uint64_t*> malloc(n * 8)
        self.sorted = <uint64_t*> malloc(n * 8)
        if self.victims == NULL:
            self.victims = <uint32_t*> malloc(blocks * 4)
        if not (self.kinds and self.lpas and self.olds and self.news and self.left and self.keys and self.sorted
                and self.victims):
            raise MemoryError
        self.room = n

    def spares_kept(self):
        """Spare areas that the lists have room for: a byte of OOB less per page makes them smaller by so many bytes."""
        return self.pages_per_block + MOVE_RUN

    def tables(self):
        """(bytes as a controller packs them, bytes allocated) of a block, a sorted run, and their lists. Data that the
        chip does not keep is not counted."""
        pages = (self.pages_per_block + MOVE_RUN) * self.page_bytes
        held = self.pages_per_block * 51 + self.spares_kept() * self.oob_bytes
        if self.victims != NULL:
            held += (self.room - self.pages_per_block) * 33 + 4 * self.ssd.nand.blocks
        return held + (pages if self.ssd.nand.keeps_data else 0), held + (pages if self.data != NULL else 0)

    cdef int hold_data(self, Move* move) except -1 nogil:
        """Allocate data buffers for this move: a chip that keeps no user data still keeps the data of translation
        pages."""
        move.with_data = True
        if self.data == NULL or self.gather == NULL:
            if self.data == NULL:
                self.data = <uint8_t*> malloc(<uint64_t> self.pages_per_block * self.page_bytes)
            self.gather = <uint8_t*> malloc(<uint64_t> MOVE_RUN * self.page_bytes)
            if self.data == NULL or self.gather == NULL:
                with gil:
                    raise MemoryError
        return 0
