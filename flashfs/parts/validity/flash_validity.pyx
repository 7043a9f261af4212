# distutils: language = c++
"""The base of validity stores in flash pages, whatever those hold: the pages with their directory, reports that wait in
DRAM, and during a recovery a bitmap of the whole chip in DRAM. flash_bitmap.pyx and validity_log.pyx are such stores.

The store's own pages are in blocks of a stream of their own, and it keeps no bits of them: the directory says which of
them live, as it does for translation pages. Otherwise each program of the store would change it.

*Reports* that wait are a sorted list; the last one of a page counts.

*The bitmap.* A recovery starts from the checkpoint's pages, and enters what it finds, in any order, as often as it has
to start over. The changes are programmed before the recovery's own checkpoint, and then the bitmap is freed;
``Engine.keep_free`` reserves the space.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memmove, memset

from flashfs.engine.contract.engine cimport IN_TABLE, Engine
from flashfs.engine.contract.validity cimport Validity
from flashfs.engine.blocks.pool cimport CAUSE_VALIDITY, KIND_VALIDITY, NONE
from flashfs.parts.paged.part_pages cimport DramDirectory, TranslationPages
from flashfs.engine.blocks.victims cimport gained, lost_one

from flashfs.errors import CorruptError

cdef extern from "<algorithm>" namespace "std" nogil:
    uint64_t* lower_bound(uint64_t* first, uint64_t* last, const uint64_t& value)

STREAM = "validity"


cdef class ValidityDirectory(DramDirectory):
    """Where each page of the store is."""

    def __cinit__(self, FlashValidity store not None, uint32_t n):
        self.store = store
        self.hold(n)
        self.missing = <uint8_t*> calloc(n, 1)
        if self.missing == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.missing)

    cdef int lost(self, uint32_t ppa) except -1 nogil:
        """The page is rebuilt when it is next needed, and programmed before the next checkpoint."""
        cdef uint32_t id = self.drop(ppa)
        if id != NONE:
            self.missing_n += not self.missing[id]
            self.missing[id] = 1
        return 0


cdef class ValidityPages(TranslationPages):
    """The pages of a store."""

    cdef int moved(self, const uint32_t* ids, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        cdef uint32_t i
        (<ValidityDirectory> self.directory).store.page_moves()
        TranslationPages.moved(self, ids, olds, news, n)
        for i in range(n):
            (<ValidityDirectory> self.directory).store.page_moved(ids[i], news[i])
        return 0

    cdef uint32_t locate(self, uint32_t id) except? 0xFFFFFFFE nogil:
        """Only a recovery calls this, before it sets the page to another place."""
        (<ValidityDirectory> self.directory).store.begin_bits()
        return self.directory.ppa_of(id)


cdef class FlashValidity(Validity):
    """The base; call ``set_up`` before anything else."""

    cdef int set_up(self, uint32_t ids, uint32_t log_room, uint32_t touched_n) except -1:
        """For at most ``ids`` pages in flash, room for ``log_room`` waiting reports, and ``touched_n`` parts, each with
        a flag that says whether it must be written to flash."""
        cdef Engine ssd = self.ssd
        self.in_flash = True
        self.pages_per_block = ssd.nand.pages_per_block
        self.page_bytes = ssd.nand.page_bytes
        self.words_a_block = (self.pages_per_block + 63) // 64
        self.directory = ValidityDirectory(self, ids)
        self.pages_in_flash = ValidityPages(
            ssd, self.directory, ids, kind=KIND_VALIDITY, stream=ssd.pool.add_stream(STREAM, CAUSE_VALIDITY),
            cause=CAUSE_VALIDITY)
        ssd.own(KIND_VALIDITY, self.pages_in_flash)
        self.log_room = log_room
        self.touched_n = touched_n
        self.log = <uint64_t*> malloc(<uint64_t> log_room * 8)
        self.touched = <uint8_t*> calloc(touched_n, 1)
        self.forgotten = <uint8_t*> calloc(ssd.nand.blocks, 1)
        if not (self.log and self.touched and self.forgotten):
            raise MemoryError
        self.looked_of = NONE
        return 0

    def __dealloc__(self):
        free(self.log)
        free(self.touched)
        free(self.forgotten)
        free(self.bits)

    # --- implemented by a store

    cdef bint put(self, uint32_t ppa, bint lives) except -1 nogil:
        """A page that is not the store's own lives or dies; returns whether that is a change."""
        with gil:
            raise NotImplementedError

    cdef int touch(self, uint32_t block) noexcept nogil:
        """The bitmap changed in that block."""
        return 0

    cdef int noted(self, uint32_t at, bint fresh) except -1 nogil:
        """The report at that place is new; ``fresh``: its page had none before, else it replaces one."""
        return 0

    cdef int replaced(self, uint32_t id, uint32_t old, uint32_t ppa) except -1 nogil:
        """Page ``id`` is now at ``ppa``; it was at ``old``, which is not superseded yet."""
        return 0

    cdef int page_moves(self) except -1 nogil:
        """The directory is about to change, because cleaning moved pages of the store."""
        return 0

    cdef int page_moved(self, uint32_t id, uint32_t ppa) except -1 nogil:
        """A version of page ``id``, the newest or a superseded one, has moved to ``ppa``."""
        return 0

    cdef int fill(self) except -1 nogil:
        """Fills the bitmap with the checkpoint's state, from flash and the reports, except ``forgotten`` blocks."""
        with gil:
            raise NotImplementedError

    # --- addresses

    cdef uint32_t block_of(self, uint32_t ppa) noexcept nogil:
        return ppa // self.pages_per_block

    cdef uint64_t bit_of(self, uint32_t ppa) noexcept nogil:
        """The page's bit number in the whole bitmap."""
        return <uint64_t> self.block_of(ppa) * self.words_a_block * 64 + ppa % self.pages_per_block

    cdef bint is_own(self, uint32_t block) noexcept nogil:
        """Whether the block is one of the store's own."""
        return self.ssd.pool.stream[block] == self.pages_in_flash.stream

    # --- reports that wait

    cdef uint32_t log_from(self, uint64_t key) noexcept nogil:
        """The index of the first report that is not below ``key``."""
        return <uint32_t> (lower_bound(self.log, self.log + self.log_n, key) - self.log)

    cdef int note(self, uint32_t ppa, bint lives) except -1 nogil:
        """Takes a report; the page's last one counts. Returns 1, or 0 if the same report waits already."""
        cdef uint64_t key = <uint64_t> ppa << 1
        cdef uint32_t at = self.log_from(key)
        if at < self.log_n and self.log[at] >> 1 == ppa:
            if self.log[at] == key | lives:
                return 0
            self.log[at] = key | lives
            self.noted(at, False)
            return 1
        if self.log_n == self.log_room:
            with gil:
                raise RuntimeError(f"the validity log is full: PPA {ppa} was reported, and no room was made for it")
        memmove(self.log + at + 1, self.log + at, (self.log_n - at) * 8)
        self.log[at] = key | lives
        self.log_n += 1
        self.noted(at, True)
        return 1

    cdef uint32_t room(self) noexcept nogil:
        return NONE if self.bits != NULL else self.log_room - self.log_spare - min(
            self.log_n, self.log_room - self.log_spare)

    # --- the validity store's interface

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        cdef uint32_t i, new = 0, block = self.block_of(ppa)
        if self.bits == NULL and self.is_own(block):
            return gained(self.victims, block, n)
        for i in range(n):
            new += self.put(ppa + i, True)
        return gained(self.victims, block, new)

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        cdef uint32_t i, block
        for i in range(n):
            if ppas[i] == NONE:
                continue
            block = self.block_of(ppas[i])
            if (self.bits == NULL and self.is_own(block)) or self.put(ppas[i], False):
                if self.victims.valid[block] == 0:
                    with gil:
                        raise CorruptError(f"PPA {ppas[i]} died, and validity says that nothing lives in its block; "
                                           "`flashfs fsck` says what is wrong")
                lost_one(self.victims, block)
        return 0

    cdef bint is_live(self, uint32_t ppa) except -1 nogil:
        self.bitmap(self.block_of(ppa), self.words)
        return self.words[(ppa % self.pages_per_block) >> 6] >> (ppa % self.pages_per_block & 63) & 1

    cdef int own_bitmap(self, uint32_t block, uint64_t* words) except -1 nogil:
        """Live pages of the store itself: those that the directory names, and superseded ones that the last checkpoint
        needs."""
        cdef uint32_t id, ppa
        memset(words, 0, self.words_a_block * 8)
        for id in range(self.directory.n):
            ppa = self.directory.page_ppas[id]
            if ppa != NONE and self.block_of(ppa) == block:
                words[(ppa % self.pages_per_block) >> 6] |= <uint64_t> 1 << (ppa % self.pages_per_block & 63)
        for ppa in self.pages_in_flash.kept:
            if self.block_of(ppa) == block:
                words[(ppa % self.pages_per_block) >> 6] |= <uint64_t> 1 << (ppa % self.pages_per_block & 63)
        return 0

    cdef int released(self, uint32_t block) except -1 nogil:
        """Clears the count of an own block: a page that could not be read when it was moved is in no list."""
        if self.bits == NULL and self.is_own(block):
            self.victims.set_count(block, 0)
        return 0

    cdef uint64_t pages_named(self) noexcept nogil:
        """Pages that the directory names, and superseded ones that still live: after a recovery from a battery there
        may be some when the mapping begins to count."""
        cdef uint32_t id
        cdef uint64_t n = self.pages_in_flash.kept.size() - self.pages_in_flash.let_go_n
        for id in range(self.directory.n):
            n += self.directory.page_ppas[id] != NONE
        return n

    # --- pages

    cdef int program(self, uint32_t id, const uint8_t* data) except -1 nogil:
        """Programs a new version of a page, and enters it in the directory."""
        cdef uint32_t ppa = self.pages_in_flash.program(id, data), old
        cdef int before = self.ssd.stopped
        self.ssd.stopped = IN_TABLE
        old = self.directory.page_ppas[id]
        self.directory.page_ppas[id] = ppa
        self.replaced(id, old, ppa)
        if self.looked_of == id:            # a later version may get the same PPA
            self.looked_of = NONE
        if old != NONE:
            self.pages_in_flash.supersede(old)
        self.directory.missing_n -= self.directory.missing[id]
        self.directory.missing[id] = 0
        self.ssd.stopped = before
        return 0

    # --- the bitmap of a recovery

    cdef bint put_bit(self, uint32_t ppa, bint lives) except -1 nogil:
        cdef uint64_t bit = self.bit_of(ppa)
        if self.bits[bit >> 6] >> (bit & 63) & 1 == lives:
            return False
        self.bits[bit >> 6] ^= <uint64_t> 1 << (bit & 63)
        self.touch(self.block_of(ppa))
        return True

    cdef int begin_bits(self) except -1 nogil:
        """Allocates the whole bitmap in DRAM, with the bits of the store's own pages."""
        cdef uint32_t id
        cdef uint64_t bit
        if self.bits != NULL:
            return 0
        self.bits = <uint64_t*> calloc(<uint64_t> self.ssd.nand.blocks * self.words_a_block, 8)
        if self.bits == NULL:
            with gil:
                raise MemoryError
        self.filled = False
        memset(self.touched, 0, self.touched_n)
        for id in range(self.directory.n):
            if self.directory.page_ppas[id] != NONE:
                bit = self.bit_of(self.directory.page_ppas[id])
                self.bits[bit >> 6] |= <uint64_t> 1 << (bit & 63)
        return 0

    cdef int forget(self, uint32_t block) except -1 nogil:
        self.begin_bits()
        self.forgotten[block] = 1
        memset(self.bits + <uint64_t> block * self.words_a_block, 0, self.words_a_block * 8)
        self.touch(block)
        return self.victims.set_count(block, 0)

    cdef int pages_known(self) except -1 nogil:
        """Fills the rest of the bitmap, from flash and the log, once."""
        self.begin_bits()
        return 0 if self.filled else self.fill()

    cdef int end_bits(self) noexcept nogil:
        free(self.bits)
        self.bits = NULL
        self.filled = False
        return 0

    def device_ready(self):
        """A clean mount read nothing; after a recovery the bitmap stays in DRAM until its checkpoint."""
        self.recovering = False

    # --- for users

    def page_ppas(self):
        """The PPA of each page of the store, None for one that does not exist."""
        return [None if ppa == NONE else ppa for ppa in self.directory.page_ppas[:self.directory.n]]

    def check(self):
        """Checks that the count of each block is the number of its bits."""
        cdef uint32_t block
        problems = []
        for block in range(self.ssd.nand.blocks):
            live = len(self.live_in(block))
            if live != self.victims.valid[block]:
                problems.append(f"block {block}: BVC {self.victims.valid[block]} but {live} bits in the PVB")
        return problems
