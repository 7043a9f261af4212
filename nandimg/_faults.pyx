"""Faults in front of the chip: to an engine, a FaultyNand looks like a Chip until a fault strikes.

A life is the time between two power-ups. Operations that change the flash (each page of a program, each erase) or the
boot area are counted from 1 in each life, as are stores of more than one word to the NVRAM, and a Cut ends a life at
one of them. A store of one word is atomic and is not counted, but a Cut may undo it.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from nandimg._chip cimport Chip
from nandimg._filter cimport NandFilter
from nandimg._nand cimport (
    NVRAM_WORD,
    TEAR_DATA_ONLY,
    TEAR_HEAD_GONE,
    TEAR_NOTHING,
    TEAR_OOB_ONLY,
    TEAR_PREFIX,
    TEAR_PREFIX_FF,
    TEAR_PREFIX_OLD,
    TEAR_PREFIX_RANDOM,
    TEAR_SPOILT,
    TEAR_TAIL_GONE,
    TEAR_UNSTABLE,
    TEAR_WHOLE,
    Nand,
)
from nandimg._torn cimport fail_program, spoil_page, tear_erase, tear_program

from dataclasses import dataclass

from nandimg.errors import PowerCut

#: names of the shapes in which a cut leaves an operation; below, by index, the TEAR of each for a program and for an
#: erase. A shape that only one of the two has means the most similar one for the other, so any fits any operation.
SHAPES = (
    "before", "after", "prefix", "data-only", "oob-only", "prefix-old", "prefix-ff", "prefix-random", "unstable",
)
#: these already leave a program and an erase in every state that a reader can distinguish
BASIC_SHAPES = SHAPES[:5]
cdef int[9] PROGRAM_TEARS = [TEAR_NOTHING, TEAR_WHOLE, TEAR_PREFIX, TEAR_DATA_ONLY, TEAR_OOB_ONLY, TEAR_PREFIX_OLD,
                             TEAR_PREFIX_FF, TEAR_PREFIX_RANDOM, TEAR_DATA_ONLY]
cdef int[9] ERASE_TEARS = [TEAR_NOTHING, TEAR_WHOLE, TEAR_HEAD_GONE, TEAR_SPOILT, TEAR_TAIL_GONE, TEAR_HEAD_GONE,
                           TEAR_HEAD_GONE, TEAR_HEAD_GONE, TEAR_UNSTABLE]


@dataclass(frozen=True, slots=True)
class Cut:
    """Power goes at operation ``at`` (from 1) of a life, leaving it in ``shape``.

    A program is left not begun (before), done (after), with half its data and a spoilt OOB (prefix: the other half
    inverted; -old: as the cells were; -ff; -random), with its data alone (data-only) or with its OOB and half its data
    (oob-only). An erase is left not begun, done, with the first half of the block erased (prefix), with no page
    readable (data-only), with the second half erased (oob-only), or with all erased, but each page programmed after it
    is lost once it was read (unstable).

    ``words``: of the 8-byte words stored in the NVRAM since the last flash operation began (with those of operation
    ``at``, if it is an NVRAM store) only the first so many are kept. None: all of them; of an NVRAM store at ``at``
    itself none (before), all (after) or the first half. They are all kept if operation ``at`` is a program, an erase or
    a boot write that has begun: it came after them.
    """

    at: int
    shape: str = "before"
    words: int | None = None

    def __post_init__(self):
        """ValueError for a shape that is not one of SHAPES, or for ``words`` below 0. ``at`` is not checked; operation
        0 never comes."""
        if self.shape not in SHAPES:
            raise ValueError(f"cut shape {self.shape!r}: use one of {', '.join(SHAPES)}")
        if self.words is not None and self.words < 0:
            raise ValueError(f"cut words {self.words}: use 0 or more")


cdef class FaultyNand(NandFilter):
    """A chip whose power can be cut and whose operations can fail. ``inner`` is a Chip, or a filter in front of one;
    ValueError if that chip is in memory and keeps no data.

    ``cuts`` is an iterable with one Cut (or None) for each life in turn; later lives have none. ``failing`` is an
    iterable of operation numbers at which the chip reports a failed program or erase, each once, in the first life that
    reaches it. ``on_sync`` is called without arguments after each durable sync: a host that dies is sure to keep what
    the image holds then. ``on_cut`` is called with the operation (int) and the shape (str) when the power goes, before
    PowerCut is raised: a process may end itself there. What the two raise reaches the caller of the operation.
    """

    def __init__(self, Nand inner not None, cuts=(), failing=(), on_sync=None, on_cut=None):
        NandFilter.__init__(self, inner)
        self.on_sync = on_sync
        self.on_cut = on_cut
        self.pending_cuts = list(cuts)
        self.failing = set(failing)
        self.has_failing = bool(self.failing)
        self.unstable = {}
        self.stored = []
        self._next_cut()

    def _next_cut(self):
        cut = self.pending_cuts.pop(0) if self.pending_cuts else None
        self.cut_at = cut.at if cut else 0
        self.cut_shape = SHAPES.index(cut.shape) if cut else 0
        self.cut_words = cut.words if cut and cut.words is not None else -1
        self.logging = self.cut_words >= 0
        self.stored.clear()
        self.operations = 0
        self.dead = False

    def rearm(self, Nand inner not None, cut=None):
        """Replace ``inner``, and count operations from 0 again; the power goes at ``cut`` (None: never). All further
        cuts and failures are dropped. ValueError if ``inner`` is in front of another chip."""
        base = inner if isinstance(inner, Chip) else (<NandFilter?> inner).chip
        if base is not self.chip:
            raise ValueError("rearm: it stands before another chip")
        self.inner = inner
        self.failing.clear()
        self.has_failing = False
        self.pending_cuts = [cut]
        self._next_cut()

    def log_stores(self):
        """Log the NVRAM stores whatever the cut of this life is, so that ``stored_words`` works."""
        self.logging = True

    def forget_stores(self):
        """The NVRAM stores so far were acknowledged as safe: no cut may undo them any more."""
        self.stored.clear()

    @property
    def stored_words(self):
        """Words stored in the NVRAM since the last flash operation began, if they are logged."""
        return sum(len(old) for _, old in self.stored) // NVRAM_WORD

    cdef int begin(self) except -1 nogil:
        """A flash operation begins, or a sync was done: the NVRAM stores before it stay."""
        if self.logging:
            with gil:
                self.stored.clear()
        return 0

    cdef int note_store(self, uint64_t offset, uint64_t n) except -1 nogil:
        if self.logging:
            with gil:
                self.stored.append((offset, self.chip.nvram(offset, n)))
        return 0

    def _take_back(self, uint64_t kept):
        """Undo the logged stores, except for their first ``kept`` words."""
        at = self.stored_words
        for offset, old in reversed(self.stored):
            at -= len(old) // NVRAM_WORD
            lost = max(0, kept - at) * NVRAM_WORD
            if lost < len(old):
                self.chip.store_nvram(offset + lost, old[lost:])
        self.stored.clear()

    def power_on(self):
        """Begin the next life: the chip loses its volatile state, the next cut is armed. Pages programmed after an
        unstable erase are lost."""
        for block, pages in self.unstable.items():
            for page in pages:
                spoil_page(self.chip, block, page)
        NandFilter.power_on(self)
        self._next_cut()

    @property
    def lives_left(self):
        """The number of planned cuts of later lives."""
        return len(self.pending_cuts)

    cdef int cut_now(self) except -1 nogil:
        cdef bint was_dead = self.dead
        self.dead = True
        with gil:
            if not was_dead and self.cut_words >= 0:
                self._take_back(self.cut_words)
            if not was_dead and self.on_cut is not None:
                self.on_cut(self.operations, SHAPES[self.cut_shape])
            raise PowerCut(self.operations, SHAPES[self.cut_shape])

    cdef bint fails_now(self) except -1 nogil:
        if not self.has_failing:
            return False
        with gil:
            if self.operations in self.failing:
                self.failing.discard(self.operations)
                return True
        return False

    cdef int tear(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob, int cause,
                  int64_t t_ns) except -1 nogil:
        """The power goes while this page is programmed. Its lower page shares the cells and is spoilt too."""
        cdef uint32_t one, pair = self.paired_pages
        cdef int shape = PROGRAM_TEARS[self.cut_shape]
        if shape == TEAR_WHOLE:
            self.inner.program(block, page, 1, data, oob, cause, t_ns, &one)
        elif shape != TEAR_NOTHING:
            tear_program(self.chip, block, page, data, oob, shape)
            if pair and (page // pair) & 1:
                spoil_page(self.chip, block, page - pair)
        return 0

    cdef int64_t program(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data, const uint8_t* oob,
                         int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        cdef uint32_t i, one
        cdef int64_t end = t_ns
        done[0] = 0
        if self.dead:
            self.cut_now()
        if self.cut_at == 0 and not self.has_failing and not self.any_unstable:
            self.operations += n
            self.begin()
            return self.inner.program(block, page, n, data, oob, cause, t_ns, done)
        self.inner.announce(n)
        for i in range(n):
            self.operations += 1
            if self.operations == self.cut_at:
                if PROGRAM_TEARS[self.cut_shape] != TEAR_NOTHING:
                    self.begin()
                self.tear(block, page + i, data, oob, cause, t_ns)
                self.cut_now()
            self.begin()
            if self.fails_now():
                fail_program(self.chip, block, page + i, data, oob)
                return end
            end = self.inner.program(block, page + i, 1, data, oob, cause, t_ns, &one)
            if not one:
                return end
            if self.any_unstable:
                self.note_unstable(block, page + i)
            done[0] += 1
            oob += self.oob_bytes
            if data != NULL:
                data += self.page_bytes
        return end

    cdef int note_unstable(self, uint32_t block, uint32_t page) except -1 nogil:
        with gil:
            if block in self.unstable:
                self.unstable[block].add(page)
        return 0

    cdef int spend(self, uint32_t block, uint32_t page, uint32_t n) except -1 nogil:
        """Pages programmed after an unstable erase were read once: spoil them."""
        cdef uint32_t i
        with gil:
            if block in self.unstable:
                for i in range(page, page + n):
                    if i in self.unstable[block]:
                        self.unstable[block].discard(i)
                        spoil_page(self.chip, block, i)
        return 0

    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        cdef int tear
        if self.dead:
            self.cut_now()
        self.operations += 1
        if self.operations == self.cut_at:
            tear = ERASE_TEARS[self.cut_shape]
            if tear != TEAR_NOTHING:
                self.begin()
            if tear == TEAR_WHOLE:
                self.inner.erase(block, cause, t_ns, ok)
            elif tear != TEAR_NOTHING:
                tear_erase(self.chip, block, tear)
            if tear == TEAR_UNSTABLE:
                self.any_unstable = True
                with gil:
                    self.unstable[block] = set()
            self.cut_now()
        self.begin()
        if self.fails_now():
            tear_erase(self.chip, block, TEAR_SPOILT)
            ok[0] = False
            return t_ns
        if self.any_unstable:
            with gil:
                self.unstable.pop(block, None)
        return self.inner.erase(block, cause, t_ns, ok)

    cdef int64_t read(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* data, uint8_t* oob, uint8_t* status,
                      int cause, int64_t t_ns) except -1 nogil:
        cdef int64_t end
        if self.dead:
            self.cut_now()
        end = self.inner.read(block, page, n, data, oob, status, cause, t_ns)
        if self.any_unstable:
            self.spend(block, page, n)
        return end

    cdef int64_t read_some(self, uint32_t block, const uint32_t* pages, uint32_t n, uint8_t* data, uint8_t* oob,
                           uint8_t* status, int cause, int64_t t_ns, int64_t* ready) except -1 nogil:
        cdef int64_t end
        cdef uint32_t i
        if self.dead:
            self.cut_now()
        end = self.inner.read_some(block, pages, n, data, oob, status, cause, t_ns, ready)
        if self.any_unstable:
            for i in range(n):
                self.spend(block, pages[i], 1)
        return end

    cdef int64_t read_spare(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* oob, uint8_t* status,
                            int cause, int64_t t_ns) except -1 nogil:
        if self.dead:
            self.cut_now()
        return self.inner.read_spare(block, page, n, oob, status, cause, t_ns)

    cdef int sync(self, bint durable) except -1 nogil:
        if self.dead:
            self.cut_now()
        self.inner.sync(durable)
        self.begin()
        if durable:
            with gil:
                if self.on_sync is not None:
                    self.on_sync()
        return 0

    cdef int retire(self, uint32_t block) except -1 nogil:
        if self.dead:
            self.cut_now()
        return self.inner.retire(block)

    cdef int64_t nvram_store(self, uint64_t offset, const void* data, uint64_t n, int cause,
                             int64_t t_ns) except -1 nogil:
        """A cut keeps as many words as it says or, by its shape, nothing, all, or the first half of the store."""
        cdef uint64_t kept = n
        if self.dead:
            self.cut_now()
        self.note_store(offset, n)
        if n <= NVRAM_WORD:
            return self.inner.nvram_store(offset, data, n, cause, t_ns)
        self.operations += 1
        if self.operations == self.cut_at:
            if self.cut_words < 0 and self.cut_shape == 0:
                kept = 0
            elif self.cut_words < 0 and self.cut_shape > 1:
                kept = n // NVRAM_WORD // 2 * NVRAM_WORD
            self.inner.nvram_store(offset, data, kept, cause, t_ns)
            self.cut_now()
        return self.inner.nvram_store(offset, data, n, cause, t_ns)

    cdef int64_t nvram_load(self, uint64_t offset, void* data, uint64_t n, int cause, int64_t t_ns) except -1 nogil:
        if self.dead:
            self.cut_now()
        return self.inner.nvram_load(offset, data, n, cause, t_ns)

    cdef int boot_write(self, int slot, const uint8_t* data) except -1 nogil:
        """A cut leaves nothing, all, or the first half of the new bytes in the slot."""
        cdef uint8_t[64] mixed
        cdef int i
        if self.dead:
            self.cut_now()
        self.operations += 1
        if self.operations == self.cut_at:
            if self.cut_shape:
                self.begin()
            if self.cut_shape == 1:
                self.inner.boot_write(slot, data)
            elif self.cut_shape > 1:
                self.inner.boot_read(slot, mixed)
                for i in range(32):
                    mixed[i] = data[i]
                self.inner.boot_write(slot, mixed)
            self.cut_now()
        self.begin()
        return self.inner.boot_write(slot, data)

    cdef int boot_read(self, int slot, uint8_t* data) except -1 nogil:
        if self.dead:
            self.cut_now()
        return self.inner.boot_read(slot, data)
