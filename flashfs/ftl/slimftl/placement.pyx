"""SlimFTL's placement and cleaning (J. Shin, 3.2 to 3.5): the hash dictates the virtual block, and what is cleaned is
one of those that the page at hand could go to. So nobody asks for just any block to be cleaned.
"""
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.parts cimport Cleaning, Extent, Placement
from flashfs.engine.pool cimport CAUSE_GC, CAUSE_HOST, CAUSE_WEAR, NONE, STATE_OPEN, STREAM_GC, STREAM_HOST, STREAM_WEAR
from flashfs.ftl.slimftl.mapping cimport CHOSEN_HID, CHOSEN_SHARED, CHOSEN_VBA, HIDS, NO_BLOCK, SlimMapping

from flashfs.errors import BindError, DeviceFullError


cdef class SlimPlacement(Placement):
    """The hash dictates the virtual block; cleaning dictates its successor."""
    cdef SlimMapping slim
    cdef SlimCleaning cleaner
    cdef uint32_t target                   # the block that takes the pages of the one being cleaned
    cdef uint32_t target_vba               # ... which it is to stand for
    cdef bint broken                       # a program in it failed

    def __cinit__(self, SlimMapping slim, SlimCleaning cleaner):
        self.ssd = slim.ssd
        self.slim = slim
        self.cleaner = cleaner
        self.target = self.target_vba = NONE

    cdef uint32_t room(self, uint32_t vba) noexcept nogil:
        """Pages that may still be programmed for this VBA; a VBA without a block has a block's worth."""
        cdef uint32_t block = self.slim.block_of(vba)
        if block == NONE:
            return self.ssd.nand.pages_per_block
        if self.ssd.pool.state[block] != STATE_OPEN:
            return 0
        return self.ssd.nand.pages_per_block - self.ssd.pool.next_page[block]

    cdef uint32_t reclaimable(self, uint32_t vba) noexcept nogil:
        """Pages that cleaning this VBA would make available."""
        return self.ssd.nand.pages_per_block - self.ssd.validity.count(self.slim.block_of(vba))

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        cdef uint32_t vba, run, choice
        if stream != STREAM_HOST:
            out.n = 0 if self.broken else n
            out.block = self.target
            out.page = self.ssd.pool.next_page[self.target]
            out.choice = self.target_vba
            return 0
        choice = self.choose(lpas[0])
        vba = choice & CHOSEN_VBA
        while (self.slim.block_of(vba) != NONE
                and not self.ssd.pool.takes_more(self.slim.block_of(vba), CAUSE_HOST, self.ssd.now_ns)):
            self.ssd.pool.close(self.slim.block_of(vba))
            choice = self.choose(lpas[0])
            vba = choice & CHOSEN_VBA
        out.choice = choice
        if self.slim.block_of(vba) == NONE:
            self.slim.set_block(vba, <uint32_t> self.ssd.open_block(-1, STREAM_HOST, False, CAUSE_HOST))
        run = 1
        while run < n and lpas[run] >> self.slim.shift == lpas[0] >> self.slim.shift:
            run += 1
        out.block = self.slim.block_of(vba)
        out.page = self.ssd.pool.next_page[out.block]
        out.n = min(run, self.ssd.nand.pages_per_block - out.page)
        if choice & CHOSEN_SHARED or self.slim.shared_from(vba):
            out.n = 1  # a run that names an LPA twice could not be told apart by liveness
        return 0

    cdef uint32_t choose(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """The choice for the next version of ``lpa``: a VBA with room, and the HID that leads there."""
        cdef uint32_t hid, vba, gain, best = 0, most = 0
        self.slim.find_candidates(lpa)
        for hid in range(1, HIDS + 1):
            if self.room(self.slim.candidates[hid]):
                return self.slim.candidates[hid] | hid << CHOSEN_HID
        for hid in range(1, HIDS + 1):
            gain = self.reclaimable(self.slim.candidates[hid])
            if gain > most:
                most = gain
                best = hid
        if most:
            vba = self.slim.candidates[best]
            self.cleaner.clean_virtual(vba, CAUSE_GC, False)
            return vba | best << CHOSEN_HID
        return self.share(self.slim.candidates[1]) | 1 << CHOSEN_HID | CHOSEN_SHARED

    cdef uint32_t share(self, uint32_t home) except? 0xFFFFFFFE nogil:
        """Every candidate is full of valid pages: the next virtual block that has room, or can get some (3.4)."""
        cdef uint32_t k, vba
        for k in range(1, self.slim.virtual_blocks):
            vba = (home + k) % self.slim.virtual_blocks
            if self.room(vba) == 0 and self.reclaimable(vba):
                self.cleaner.clean_virtual(vba, CAUSE_GC, False)
            if self.room(vba):
                return vba
        with gil:
            raise DeviceFullError("every virtual block is full of valid pages")

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        if self.ssd.pool.next_page[block] >= self.ssd.nand.pages_per_block:
            self.ssd.pool.close(block)
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        self.ssd.pool.close(block)
        if block == self.target:
            self.broken = True
        return 0


cdef class SlimCleaning(Cleaning):
    """Clean one of the candidates: its valid pages move in order to a free block, which then stands for its VBA."""
    cdef SlimMapping slim
    cdef SlimPlacement place
    cdef readonly uint64_t cleaned

    def __cinit__(self, SlimMapping slim):
        self.ssd = slim.ssd
        self.slim = slim
        self.open_blocks_rest = True

    def attach(self, SlimPlacement place):
        self.place = place

    cdef int clean_virtual(self, uint32_t vba, int cause, bint worn) except -1 nogil:
        cdef uint32_t old = self.slim.block_of(vba), fresh
        cdef int stream = STREAM_WEAR if worn else STREAM_GC
        cdef int done = 0
        self.cleaned += 1
        if self.ssd.validity.count(old) == 0:
            self.ssd.relocate(old, stream, cause)
            self.slim.set_block(vba, NO_BLOCK)
            return 0
        while not done:
            fresh = <uint32_t> self.ssd.open_block(-1, stream, worn, cause)
            self.place.target = fresh
            self.place.broken = False
            self.place.target_vba = vba
            try:
                done = self.ssd.relocate(old, stream, cause)
            finally:
                self.place.target = self.place.target_vba = NONE
                if not done:
                    self.ssd.pool.release(fresh, self.ssd.now_ns)  # nothing of it was ever bound
        self.slim.set_block(vba, fresh)
        return 0

    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil:
        cdef uint32_t vba = self.slim.vba_standing(block)
        if vba == NONE:
            if self.ssd.validity.count(block) == 0:
                self.ssd.relocate(block, STREAM_GC, cause)
            return 0                       # else: what lives there could not be found again elsewhere
        return self.clean_virtual(vba, cause, cause == CAUSE_WEAR)


def virtual_blocks_for(ssd):
    """How many virtual blocks the chip can stand for: its good blocks less two checkpoints, the log, the blocks that
    cleaning turns over, and one and one in 256 kept for blocks that go bad (and for fewer forced syncs)."""
    good = sum(ssd.nand.block_health(block) == 0 for block in range(ssd.nand.blocks))
    kept = 2 * ssd.meta.checkpoint_blocks + ssd.meta.log_blocks_most + ssd.gc_reserve + good // 256 + (good >= 16)
    count = good - kept
    if count <= 0 or count * ssd.nand.pages_per_block <= ssd.lpas:
        raise BindError(
            f"slimftl: {ssd.lpas} logical pages need more than {-(-ssd.lpas // ssd.nand.pages_per_block)} virtual "
            f"blocks; {good} good blocks leave {max(count, 0)}: a larger --op would do")
    return count


def build(ssd, options):
    """(mapping, placement, cleaning) for ``options`` {shift, hash, virtual_blocks}."""
    if ssd.nand.blocks >= NO_BLOCK:
        raise BindError(f"slimftl: {ssd.nand.blocks} blocks; a VBT entry has room for {NO_BLOCK - 1}")
    if options["virtual_blocks"] > ssd.nand.blocks:
        raise BindError(f"slimftl: {options['virtual_blocks']} virtual blocks: the chip has {ssd.nand.blocks} blocks")
    slim = SlimMapping(ssd, options["virtual_blocks"], options["shift"], options["hash"] == "md5")
    cleaning = SlimCleaning(slim)
    placement = SlimPlacement(slim, cleaning)
    cleaning.attach(placement)
    return slim, placement, cleaning
