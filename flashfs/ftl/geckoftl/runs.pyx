# distutils: language = c++
"""Logarithmic Gecko (N. Dayan et al., GeckoFTL, SIGMOD 2016, section 3): the invalid pages, stored in flash.

Reports go to a buffer of one page. When that is full it is written as a *run*, and runs are merged like those of an
LSM-tree: level i is for runs of ratio^i to ratio^(i+1) - 1 pages, and there is one run a level at most, the newer ones
smaller. A query looks in the buffer and then in each run from the newest on, a page read each, until it meets the erase
flag. The oldest run has no erase flags: there is nothing older for them to hide.

A merge takes all runs at once that it will reach (Appendix A): also that of the next level, if the runs taken so far
may together be as large as that level. With ``multiway`` off it merges two at a time instead.

A page of a run, little-endian; SPEC.md has the table too:

    0   "GKRN"
    4   u32 entries
    8   u64 number of the run: the preamble of section C.1, both creation stamp and unique name
    16  u32 index of this page in the run
    20  u32 items of the postamble in the run's last pages, 0 in a page that has none
    24  u32 index of the first item in this page
    28  u32 items in this page
    32  the entries, ascending; after them, from a multiple of 8 on, the items, u64 each

The postamble is the directory of the run: (first slot << 32 | page number) for each page with entries, then the
numbers of the runs that it replaces, then, with bit 63 set, those of the older runs that count beside it. A run counts
only if it is whole; the newest whole run whose runs beside it are whole too decides which others count. (The paper
takes the newest run of each level: then a run that was merged away would count again if a crash finds its pages.) The
last page of a run has the flag LAST in its OOB.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

from flashfs.engine.contract.engine cimport IN_TABLE, Engine
from flashfs.engine.blocks.pool cimport CAUSE_VALIDITY, FLAG_LAST, KIND_VALIDITY, NONE, STATE_CLOSED
from flashfs.parts.paged.part_pages cimport DramDirectory, TranslationPages
from flashfs.ftl.geckoftl.entries cimport (
    ERASED,
    FLAG_BITS,
    KEY_BYTES,
    EntryList,
    Layout,
    gather,
    key_of,
    or_chunk,
    slot_of,
    take_chunk,
)

import struct

from flashfs.errors import BindError
from flashfs.ftl.geckoftl.entries import parts_for

cdef uint64_t GOES_ON = <uint64_t> 1 << 63  #: in an item of a postamble: a run that counts beside this one

HEAD = struct.Struct("<4sIQIIII")
STREAM = "gecko"
POSTAMBLE = 8 * 12  #: bytes of a page left for the items of a run of one page: the page, and the runs replaced


def entries_a_page(geometry, parts=0, most=0):
    """Entries of a page of a run, V: as many as fit; ``most`` if that is fewer and not 0."""
    parts = parts_for(geometry.pages_per_block, parts)
    chunk = -(-geometry.pages_per_block // parts)
    fit = max(0, geometry.page_bytes - HEAD.size - POSTAMBLE) // (KEY_BYTES + (chunk + 7) // 8)
    return min(most, fit) if most else fit


def largest_run(geometry, parts=0, most=0):
    """Pages of the largest run, which has every entry that there can be: K * S / V."""
    parts = parts_for(geometry.pages_per_block, parts)
    return -(-geometry.blocks * parts // max(1, entries_a_page(geometry, parts, most)))


def page_numbers(geometry, parts=0, most=0):
    """The most pages of all runs together, while one is being written: page numbers are below this."""
    return 8 * largest_run(geometry, parts, most) + 8


def overflow(geometry):
    """Entries that the buffer holds beyond a page: those of a whole request or of a block's move."""
    return max(3 * 256, 4 * geometry.pages_per_block) + 2 * UNANNOUNCED


LEAST_RATIO = 2  # the least value of the option
PAGES_MOST = 4  #: bound on pages in force, superseded and being written, in largest runs (``needs_more``)


cdef class RunPages(DramDirectory):
    """The PPA of each page of a run, by page number."""

    def __cinit__(self, GeckoRuns gecko not None, uint32_t n):
        self.gecko = gecko
        self.hold(n)
        self.spare = <uint32_t*> malloc(n * 4)
        if self.spare == NULL:
            raise MemoryError
        self.clear()

    def __dealloc__(self):
        free(self.spare)

    def clear(self):
        """Make it empty."""
        memset(self.page_ppas, 0xFF, self.n * 4)
        self.missing_n = 0
        self.take_spare()

    def take_spare(self):
        """Collect the page numbers not in use."""
        cdef uint32_t id
        self.spare_n = 0
        for id in range(self.n, 0, -1):
            if self.page_ppas[id - 1] == NONE:
                self.spare[self.spare_n] = id - 1
                self.spare_n += 1

    cdef int lost(self, uint32_t ppa) except -1 nogil:
        """All runs are rebuilt before the next checkpoint."""
        self.missing_n += self.drop(ppa) != NONE
        return 0


cdef class GeckoRuns:
    """The runs, and the buffer above them: ``parts`` entries a block (S; 0: as in section 3.3), runs of a level up to
    ``ratio`` times as large as those of the level below (T), ``most`` entries a page (0: as many as fit). Its pages are
    of kind validity, in blocks of a stream of their own."""

    def __cinit__(self, Engine ssd not None, uint32_t parts=0, uint32_t ratio=2, bint multiway=True, uint32_t most=0):
        cdef uint32_t numbers = page_numbers(ssd.nand, parts, most)
        self.ssd = ssd
        self.ratio = LEAST_RATIO
        self.levels_most = self.level_of(numbers) + 2  # a checkpoint may have runs written with another ratio
        self.ratio = ratio
        self.multiway = multiway
        self.per_page = entries_a_page(ssd.nand, parts, most)
        if self.per_page == 0:
            raise BindError(f"Logarithmic Gecko: a page of {ssd.nand.page_bytes} bytes holds no entry; use more parts "
                            f"than {parts}, or larger pages")
        self.layout = Layout(ssd.nand.blocks, ssd.nand.pages_per_block, parts_for(ssd.nand.pages_per_block, parts))
        self.model_pages = largest_run(ssd.nand, parts, most)
        self.pages_most = PAGES_MOST * self.model_pages
        self.buffer = EntryList(self.layout, self.per_page + overflow(ssd.nand))
        self.directory = RunPages(self, numbers)
        self.store = TranslationPages(
            ssd, self.directory, numbers, kind=KIND_VALIDITY, cause=CAUSE_VALIDITY,
            stream=ssd.pool.add_stream(STREAM, CAUSE_VALIDITY))
        self.store.hold_proofs()
        ssd.own(KIND_VALIDITY, self.store)
        self.images = <uint8_t*> malloc(<uint64_t> (self.levels_most + 2) * ssd.nand.page_bytes)
        self.seen = <uint64_t*> calloc((ssd.nand.pages_per_block + 63) // 64 + 1, 8)
        self.piece = <uint8_t*> malloc(self.layout.entry_bytes)
        if not (self.images and self.seen and self.piece):
            raise MemoryError

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.runs_n):
            self.free_run(&self.runs[i])
        self.free_run(&self.made)
        free(self.images)
        free(self.seen)
        free(self.piece)

    cdef uint32_t level_of(self, uint32_t pages) noexcept nogil:
        """The level with ratio^level <= pages < ratio^(level + 1)."""
        cdef uint32_t level = 0
        cdef uint64_t most = self.ratio
        while pages >= most:
            most *= self.ratio
            level += 1
        return level

    cdef uint32_t pages_of(self, uint32_t entries) noexcept nogil:
        return (entries + self.per_page - 1) // self.per_page

    cdef uint32_t live_pages(self) noexcept nogil:
        """Pages of all runs."""
        cdef uint32_t i, n = 0
        for i in range(self.runs_n):
            n += self.runs[i].n
        return n

    # --- writing

    cdef int flush(self) except -1 nogil:
        """Write the buffer as a run, and do the merges that follow. 0 if a page cannot be read."""
        cdef uint32_t take = 0, total = self.pages_of(self.buffer.n)
        if self.buffer.n == 0:
            return 1
        self.flushes += 1
        if not self.settle_levels():
            return 0
        while self.multiway and take < self.runs_n and self.level_of(total) >= self.runs[take].level:
            total += self.runs[take].data_n
            take += 1
        self.unsettled = True
        if not self.merge(take, True):
            return 0
        return self.settle_levels()

    cdef int settle_levels(self) except -1 nogil:
        """Merge a newest run that is as large as the next with it. Returns as ``flush``. Older runs, written with
        another ratio, may be as large as each other until the newer ones have grown so far."""
        cdef uint32_t r
        while self.runs_n > 1 and self.runs[0].level >= self.runs[1].level:
            if not self.merge(2, False):
                return 0
        self.unsettled = False
        for r in range(1, self.runs_n):
            self.unsettled |= self.runs[r].level <= self.runs[r - 1].level
        return 1

    cdef int merge(self, uint32_t take, bint with_buffer) except -1 nogil:
        """Merge the ``take`` newest runs, and the buffer if ``with_buffer``, into one. 0 if a page cannot be read:
        nothing has changed then."""
        cdef uint32_t i, n = 0, total = 0
        cdef uint64_t[40] replaced
        cdef bint done = False
        if with_buffer:
            self.inputs[0].run = -1
            self.inputs[0].at = self.buffer.at
            self.inputs[0].n = self.buffer.n
            self.inputs[0].i = self.inputs[0].page = 0
            n = 1
            total = self.pages_of(self.buffer.n)
        for i in range(take):
            self.inputs[n].run = <int> i
            self.inputs[n].page = 0
            self.inputs[n].at = self.images + <uint64_t> i * self.ssd.nand.page_bytes
            if not self.load_input(&self.inputs[n]):
                return 0
            replaced[i] = self.runs[i].number
            total += self.runs[i].data_n
            n += 1
        if self.needs_more(total):
            self.make_way()
        self.begin_made(total)
        try:
            done = self.merge_inputs(n, replaced, take) != 0
        finally:
            if not done:
                self.give_up()
        if not done:
            return 0
        self.merges += take != 0
        self.merged_pages += self.made.data_n
        return self.install(take, with_buffer)

    cdef bint needs_more(self, uint32_t pages) noexcept nogil:
        """Whether superseded pages must be released before a run of so many pages is written: all together would exceed
        what was requested (``keep_pages``), or the run takes blocks and too few are free. Runs that are merged two at a
        time, or that hold few entries a page, supersede all existing pages within a few flushes."""
        cdef uint32_t blocks = pages // self.ssd.nand.pages_per_block
        return (self.live_pages() + self.store.waiting() + pages > self.pages_most
                or (blocks and self.ssd.pool.free_n <= self.ssd.meta_floor + blocks))

    cdef int make_way(self) except -1 nogil:
        """Superseded pages die after a sync, and blocks without live pages are free after another. Nothing is moved: a
        run may be written in the middle of a move."""
        cdef uint32_t block
        if self.store.lasting and self.store.waiting():
            self.store.let_all_go()
        for block in range(self.ssd.pool.blocks):
            if (self.ssd.pool.state[block] == STATE_CLOSED and self.ssd.pool.stream[block] == self.store.stream
                    and self.ssd.victims.valid[block] == 0):
                self.ssd.victims.not_candidate(block)
                self.ssd.validity.released(block)
                self.ssd.pool.release(block, self.ssd.now_ns)
        return self.ssd.barrier() if self.ssd.pool.pending_n else 0

    cdef int merge_inputs(self, uint32_t n, const uint64_t* replaced, uint32_t replaced_n) except -1 nogil:
        """Merge block by block into the run being made; the last inputs are the ``replaced`` runs. Returns as
        ``merge``."""
        cdef uint32_t block
        cdef bint erased = False
        while True:
            block = self.next_block(n, &erased)
            if block == NONE:
                return self.write_postamble(replaced, replaced_n, replaced_n)
            if block == UNREAD:
                return 0
            self.put_block(block, erased and replaced_n < self.runs_n)  # nothing is older than the oldest run

    cdef uint32_t next_block(self, uint32_t n, bint* erased) except? 0xFFFFFFFE nogil:
        """The next block that any of ``n`` inputs has entries of. ORs these entries into ``seen``, from the newest
        input to the one with the erase flag, and reports whether there is that flag. NONE after the last block; UNREAD
        if a page cannot be read."""
        cdef uint32_t i, block, least = NONE, parts = self.layout.parts
        cdef bint flagged, hidden = False
        cdef Input* input
        cdef const uint8_t* entry
        for i in range(n):
            if self.inputs[i].i < self.inputs[i].n:
                block = slot_of(self.inputs[i].at + <uint64_t> self.inputs[i].i * self.layout.entry_bytes) // parts
                least = min(least, block)
        memset(self.seen, 0, (self.layout.pages_per_block + 63) // 64 * 8)
        for i in range(n if least != NONE else 0):
            input = &self.inputs[i]
            flagged = False
            while input.i < input.n:
                entry = input.at + <uint64_t> input.i * self.layout.entry_bytes
                if slot_of(entry) // parts != least:
                    break
                if not hidden:
                    flagged |= key_of(entry) & ERASED
                    or_chunk(self.layout, self.seen, slot_of(entry) % parts, entry + KEY_BYTES)
                if not self.advance(input):
                    return UNREAD
            hidden |= flagged
        erased[0] = hidden
        return least

    cdef int advance(self, Input* input) except -1 nogil:
        """Go to the next entry; 0 if its page cannot be read."""
        input.i += 1
        if input.i < input.n or input.run < 0 or input.page + 1 >= self.runs[input.run].data_n:
            return 1
        input.page += 1
        return self.load_input(input)

    cdef bint load_input(self, Input* input) except -1 nogil:
        cdef Run* run = &self.runs[input.run]
        cdef int n = self.read_page(run.ids[input.page], run.number, input.page, <uint8_t*> input.at - HEAD_BYTES
                                    if input.page else <uint8_t*> input.at)
        if n < 0:
            return False
        if input.page == 0:
            input.at += HEAD_BYTES
        input.i = 0
        input.n = <uint32_t> n
        return True

    cdef int put_block(self, uint32_t block, bint erased) except -1 nogil:
        """Append the entries of a block whose bitmap is in ``seen``."""
        cdef uint32_t part, key, size = self.layout.entry_bytes
        cdef uint8_t* out = self.images + <uint64_t> self.levels_most * self.ssd.nand.page_bytes + HEAD_BYTES
        for part in range(self.layout.parts):
            if not take_chunk(self.layout, self.seen, part, self.piece + KEY_BYTES) and (part or not erased):
                continue
            if self.out_n == self.per_page:  # not before there is another entry: the postamble goes into the last page
                self.write_out()
            key = (block * self.layout.parts + part) << FLAG_BITS | (ERASED if erased and part == 0 else 0)
            memcpy(self.piece, &key, 4)
            memcpy(out + <uint64_t> self.out_n * size, self.piece, size)
            if self.out_n == 0:
                self.made.firsts[self.made.data_n] = key >> FLAG_BITS
            self.out_n += 1
        return 0

    cdef int begin_made(self, uint32_t pages) except -1 nogil:
        """Begin a run of up to so many pages with entries."""
        cdef uint32_t room = pages + 2 + (pages + 2 * RUNS_MOST) * 8 // (self.ssd.nand.page_bytes - HEAD_BYTES)
        self.made.ids = <uint32_t*> malloc(<uint64_t> room * 4)
        self.made.firsts = <uint32_t*> malloc(<uint64_t> room * 4)
        if self.made.ids == NULL or self.made.firsts == NULL:
            self.free_run(&self.made)
            with gil:
                raise MemoryError
        self.ssd.seq += 1
        self.made.number = self.ssd.seq
        self.made.n = self.made.data_n = self.out_n = 0
        memset(self.images + <uint64_t> self.levels_most * self.ssd.nand.page_bytes, 0, self.ssd.nand.page_bytes)
        return 0

    cdef int write_out(self) except -1 nogil:
        """Program the page of output."""
        cdef uint32_t id, ppa
        cdef uint8_t* out = self.images + <uint64_t> self.levels_most * self.ssd.nand.page_bytes
        if self.directory.spare_n == 0:
            with gil:
                raise RuntimeError(f"Logarithmic Gecko has {self.directory.n} pages, more than there can be")
        memcpy(out, b"GKRN", 4)
        memcpy(out + 4, &self.out_n, 4)
        memcpy(out + 8, &self.made.number, 8)
        memcpy(out + 16, &self.made.n, 4)
        id = self.directory.spare[self.directory.spare_n - 1]
        ppa = self.store.program(id, out)
        self.directory.spare_n -= 1
        self.directory.page_ppas[id] = ppa
        self.made.ids[self.made.n] = id
        self.made.n += 1
        self.made.data_n += self.out_n != 0
        self.out_n = 0
        memset(out, 0, self.ssd.nand.page_bytes)
        return 0

    cdef int write_postamble(self, const uint64_t* replaced, uint32_t replaced_n, uint32_t behind) except -1 nogil:
        """Write the last page with entries, and the postamble: in that page, and in as many more as it needs. Runs from
        index ``behind`` of the list on still count beside the new one."""
        cdef uint8_t* out = self.images + <uint64_t> self.levels_most * self.ssd.nand.page_bytes
        cdef uint32_t last_id = NONE, pages = self.made.data_n + (self.out_n != 0), done = 0, at, room, n, total, i
        cdef uint64_t item
        if pages == 0:
            return 1                        # nothing is invalid, and no older entries are left
        total = pages + replaced_n + self.runs_n - behind
        while done < total:
            at = (HEAD_BYTES + self.out_n * self.layout.entry_bytes + 7) // 8 * 8
            room = (self.ssd.nand.page_bytes - at) // 8
            n = min(total - done, room)
            if self.directory.spare_n:
                last_id = self.directory.spare[self.directory.spare_n - 1]
            for i in range(done, done + n):
                if i < pages:
                    item = <uint64_t> self.made.firsts[i] << 32 | (
                        self.made.ids[i] if i < self.made.data_n else last_id)
                elif i < pages + replaced_n:
                    item = replaced[i - pages]
                else:
                    item = GOES_ON | self.runs[behind + i - pages - replaced_n].number
                memcpy(out + at + (i - done) * 8, &item, 8)
            memcpy(out + 20, &total, 4)
            memcpy(out + 24, &done, 4)
            memcpy(out + 28, &n, 4)
            done += n
            self.store.flags = FLAG_LAST if done == total else 0
            try:
                self.write_out()
            finally:
                self.store.flags = 0
        return 1

    cdef int give_up(self) except -1 nogil:
        """Discard the run that is being written."""
        cdef uint32_t i, ppa
        for i in range(self.made.n):
            ppa = self.directory.page_ppas[self.made.ids[i]]
            self.directory.page_ppas[self.made.ids[i]] = NONE
            self.directory.spare[self.directory.spare_n] = self.made.ids[i]
            self.directory.spare_n += 1
            self.store.supersede(ppa)
        return self.free_run(&self.made)

    cdef int install(self, uint32_t take, bint with_buffer) except -1 nogil:
        """Put the new run in place of the ``take`` newest ones."""
        cdef int before = self.ssd.stopped
        cdef uint32_t i, some = self.made.n != 0
        cdef Run[40] olds
        memcpy(olds, self.runs, take * sizeof(Run))
        self.ssd.stopped = IN_TABLE
        memmove(self.runs + some, self.runs + take, (self.runs_n - take) * sizeof(Run))
        self.runs_n += some - take
        if some:
            self.made.level = self.level_of(self.made.data_n)
            self.runs[0] = self.made
            self.made.ids = self.made.firsts = NULL
            self.made.n = 0
        else:
            self.free_run(&self.made)
        if with_buffer:
            self.buffer.clear()
        for i in range(take):
            self.let_go(&olds[i])
        if self.store.lasting:
            self.store.ripen()
        self.ssd.stopped = before
        return 1

    cdef int let_go(self, Run* run) except -1 nogil:
        """Drop a run: its pages die, or live on if the last checkpoint needs them."""
        cdef uint32_t i, ppa
        for i in range(run.n):
            ppa = self.directory.page_ppas[run.ids[i]]
            self.directory.page_ppas[run.ids[i]] = NONE
            self.directory.spare[self.directory.spare_n] = run.ids[i]
            self.directory.spare_n += 1
            if ppa != NONE:
                self.store.supersede(ppa)
        return self.free_run(run)

    cdef int free_run(self, Run* run) noexcept nogil:
        free(run.ids)
        free(run.firsts)
        run.ids = run.firsts = NULL
        run.n = run.data_n = 0
        return 0

    cdef int forget_runs(self) except -1 nogil:
        """Drop all runs, and empty the buffer."""
        cdef uint32_t i
        for i in range(self.runs_n):
            self.let_go(&self.runs[i])
        self.runs_n = 0
        self.directory.missing_n = 0
        return self.buffer.clear()

    # --- reading

    cdef int read_page(self, uint32_t id, uint64_t number, uint32_t index, uint8_t* into) except? -2 nogil:
        """Read a page of a run; returns its number of entries, or -1 if it cannot be read or is not that page, or its
        entries are not ascending ones of this chip."""
        cdef uint32_t n = 0, at = 0, i, slot
        cdef uint64_t said = 0, least = 0, slots = <uint64_t> self.ssd.nand.blocks * self.layout.parts
        if self.directory.page_ppas[id] == NONE or not self.store.read(self.directory.page_ppas[id], id, into):
            return -1
        memcpy(&n, into + 4, 4)
        memcpy(&said, into + 8, 8)
        memcpy(&at, into + 16, 4)
        if said != number or at != index or n > self.per_page:
            return -1
        for i in range(0 if self.store.is_proved(id) else n):
            slot = slot_of(into + HEAD_BYTES + <uint64_t> i * self.layout.entry_bytes)
            if slot < least or slot >= slots:
                return -1
            least = <uint64_t> slot + 1
        self.store.prove(id)
        return <int> n

    cdef int query(self, uint32_t block, uint64_t* words) except -1 nogil:
        """The pages of a block that are invalid, as bits (a GC query, section 3.1). 0 if a page cannot be read."""
        cdef uint32_t r, page, slot = block * self.layout.parts
        cdef int n
        cdef bint erased
        cdef Run* run
        cdef uint8_t* image = self.images + <uint64_t> (self.levels_most + 1) * self.ssd.nand.page_bytes
        self.queries += 1
        memset(words, 0, (self.layout.pages_per_block + 63) // 64 * 8)
        if gather(self.layout, self.buffer.at, self.buffer.n, block, words):
            return 1
        for r in range(self.runs_n):
            run = &self.runs[r]
            page = self.page_from(run, slot)
            erased = False
            while page < run.data_n and run.firsts[page] < slot + self.layout.parts:
                n = self.read_page(run.ids[page], run.number, page, image)
                self.query_reads += 1
                if n < 0:
                    return 0
                erased |= gather(self.layout, image + HEAD_BYTES, <uint32_t> n, block, words)
                page += 1
            if erased:
                break
        return 1

    cdef uint32_t page_from(self, const Run* run, uint32_t slot) noexcept nogil:
        """The first page of a run that may have entries from ``slot`` on."""
        cdef uint32_t low = 0, high = run.data_n, middle
        while low < high:
            middle = (low + high) // 2
            if run.firsts[middle] <= slot:
                low = middle + 1
            else:
                high = middle
        return low - 1 if low else 0
