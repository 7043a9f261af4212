# distutils: language = c++
"""The outer interface of Logarithmic Gecko: checkpoints, access for tests and tools, views. Its runs and their merges
are in runs.pyx."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from flashfs.engine.blocks.pool cimport NONE
from flashfs.ftl.geckoftl.entries cimport ERASED, KEY_BYTES, key_of, slot_of
from flashfs.ftl.geckoftl.runs cimport HEAD_BYTES, RUNS_MOST, GeckoRuns, Run

import bisect
import struct

import numpy

from flashfs.errors import MapLostError
from flashfs.ftl.geckoftl.runs import HEAD


cdef class Gecko(GeckoRuns):
    """GeckoRuns, with checkpoints, recovery, access from Python and views."""

    # --- checkpoints

    def reset(self):
        """Make it empty."""
        cdef uint32_t i
        for i in range(self.runs_n):
            self.free_run(&self.runs[i])
        self.runs_n = 0
        self.buffer.clear()
        self.directory.clear()
        self.store.reset()

    def load(self, runs, buffer):
        """Load Gecko from the sections of a checkpoint into an empty one; ValueError says what is wrong with them.
        GeckoStore.save has the format. A run may be as large as the next older one: the power or the host's disk failed
        between two merges."""
        cdef uint64_t number
        cdef uint32_t n, data_n, i, slot
        cdef const uint8_t[::1] entries = buffer
        cdef uint32_t size = self.layout.entry_bytes, slots = self.ssd.nand.blocks * self.layout.parts
        self.unsettled = False
        at = 0
        while at < len(runs):
            if self.runs_n == min(RUNS_MOST, self.levels_most + 1) or len(runs) - at < 16:
                raise ValueError("gkruns section: more runs than there can be, or half a one")
            number, n, data_n = struct.unpack_from("<QII", runs, at)
            at += 16
            if n == 0 or data_n == 0 or data_n > n or n > self.directory.n or len(runs) - at < 12 * n:
                raise ValueError(f"gkruns section: a run of {n} pages, {data_n} with entries")
            self.take_run(number, n, data_n, [struct.unpack_from("<III", runs, at + 12 * i) for i in range(n)])
            at += 12 * n
        if len(buffer) % size or len(buffer) // size > self.buffer.room:
            raise ValueError(f"gkbuf section of {len(buffer)} bytes: entries have {size}, {self.buffer.room} at most")
        for i in range(<uint32_t> (len(buffer) // size)):
            slot = slot_of(&entries[i * size])
            if slot >= slots or (i and slot <= slot_of(&entries[(i - 1) * size])):
                raise ValueError(f"gkbuf section: entry {i} of slot {slot}, out of order or beyond {slots}")
        if len(buffer):
            memcpy(self.buffer.at, &entries[0], len(buffer))
        self.buffer.n = <uint32_t> (len(buffer) // size)
        self.directory.take_spare()

    def take_run(self, uint64_t number, uint32_t n, uint32_t data_n, pages):
        """Add the next older run; ``pages``: [(slot of the first entry, page number, PPA)]."""
        cdef Run* run = &self.runs[self.runs_n]
        cdef uint32_t i, slot, id, ppa, chip = self.ssd.nand.blocks * self.ssd.nand.pages_per_block
        if self.runs_n:
            if number >= self.runs[self.runs_n - 1].number:
                raise ValueError(f"gkruns section: run {number} after {self.runs[self.runs_n - 1].number}")
            self.unsettled |= self.level_of(data_n) <= self.runs[self.runs_n - 1].level
        run.ids = <uint32_t*> malloc(<uint64_t> n * 4)
        run.firsts = <uint32_t*> malloc(<uint64_t> n * 4)
        run.n = run.data_n = 0
        self.runs_n += 1
        if run.ids == NULL or run.firsts == NULL:
            raise MemoryError
        for i in range(n):
            slot, id, ppa = pages[i]
            if (id >= self.directory.n or self.directory.page_ppas[id] != NONE or ppa >= chip
                    or (i < data_n and (slot >= self.ssd.nand.blocks * self.layout.parts
                                        or (i and slot <= run.firsts[i - 1])))):
                raise ValueError(f"gkruns section: page {i} of run {number}: slot {slot}, number {id}, PPA {ppa}")
            run.ids[i] = id
            run.firsts[i] = slot
            self.directory.page_ppas[id] = ppa
        run.number = number
        run.n = n
        run.data_n = data_n
        run.level = self.level_of(data_n)

    # --- a recovery without a checkpoint (Appendix C.1)

    def runs_in_force(self, versions, last):
        """([numbers], [(number, pages with entries, [(first slot, page number, PPA)])]), the newest run first. The
        first is the newest whole run for which all runs that count beside it are whole too. ``versions``: all whole
        pages in flash, (page numbers, sequence numbers, PPAs); ``last``: for each, whether it may be the last of its
        run."""
        ids, seqs, ppas = versions
        found = sorted(zip(seqs.tolist(), ids.tolist(), ppas.tolist(), last.tolist(), strict=True))
        tails = [i for i in range(len(found)) if found[i][3]]
        for i in reversed(tails):
            run = self.run_that_ends(found, i)
            others = [self.run_of_number(found, tails, number) for number in run[3]] if run is not None else [None]
            if all(others):
                return [one[0] for one in (run, *others)], [one[:3] for one in (run, *others)]
        return [], []

    def run_of_number(self, found, tails, number):
        """As ``run_that_ends``, for the run of that number: its pages were programmed in a row."""
        for i in tails:
            if found[i][0] > number:
                run = self.run_that_ends(found, i)
                if run is not None:
                    return run if run[0] == number else None
        return None

    def run_that_ends(self, found, i):
        """(number, pages with entries, pages, numbers of the runs beside it) of the run whose last page is
        ``found[i]``; None if that page does not end a whole run."""
        head = self.head_of(found[i])
        if head is None or head["total"] == 0 or head["first"] + len(head["items"]) != head["total"]:
            return None
        items, tail, number = head["items"], [found[i][1:3]], head["number"]
        while head["first"]:
            i -= 1
            at = head["index"]
            head = self.head_of(found[i]) if i >= 0 else None
            if head is None or head["number"] != number or head["index"] != at - 1:
                return None
            items = head["items"] + items
            tail.insert(0, found[i][1:3])
        data_n = head["index"] + (head["entries"] != 0)
        pages = self.pages_at([item & NONE for item in items[:data_n]], found, number)
        if pages is None:
            return None
        pages += tail[1:] if head["entries"] else tail
        firsts = [item >> 32 for item in items[:data_n]] + [0] * (len(pages) - data_n)
        beside = [item & (1 << 63) - 1 for item in items[data_n:] if item >> 63]
        return number, data_n, [(slot, *page) for slot, page in zip(firsts, pages, strict=True)], beside

    def pages_at(self, ids, found, number):
        """[(page number, PPA)] of these pages of a run: of each the first version that is newer than the run's
        beginning. None if one is missing."""
        wanted = dict.fromkeys(ids)
        at = bisect.bisect_right(found, (number, NONE + 1))
        for _, id, ppa, _ in found[at : at + self.directory.n]:
            if id in wanted and wanted[id] is None:
                wanted[id] = ppa
        pages = list(wanted.items())
        return None if len(pages) != len(ids) or any(ppa is None for _, ppa in pages) else pages

    def head_of(self, page):
        """The header and items of a page, or None if it is not a page of a run."""
        cdef uint8_t* image = self.images + <uint64_t> (self.levels_most + 1) * self.ssd.nand.page_bytes
        if not self.store.read(<uint32_t> page[2], <uint32_t> page[1], image):
            return None
        raw = <bytes> image[:self.ssd.nand.page_bytes]
        magic, entries, number, index, total, first, n = HEAD.unpack_from(raw)
        at = (HEAD_BYTES + entries * self.layout.entry_bytes + 7) // 8 * 8
        if magic != b"GKRN" or entries > self.per_page or at + 8 * n > len(raw):
            return None
        return {"entries": entries, "number": number, "index": index, "total": total, "first": first,
                "items": list(struct.unpack_from(f"<{n}Q", raw, at))}

    def live_counts(self, ends):
        """Live pages of each block, given the programmed pages of each in ``ends``. All runs are merged in one pass, so
        each page of a run is read once. MapLostError if one cannot be read."""
        cdef uint32_t block, i, page, dead
        cdef bint erased = False
        cdef uint32_t[::1] counts
        count = ends.astype(numpy.uint32)
        counts = count
        for i in range(self.runs_n):
            self.inputs[i].run = <int> i
            self.inputs[i].page = 0
            self.inputs[i].at = self.images + <uint64_t> i * self.ssd.nand.page_bytes
            if not self.load_input(&self.inputs[i]):
                raise MapLostError("a page of Logarithmic Gecko cannot be read")
        while True:
            block = self.next_block(self.runs_n, &erased)
            if block == NONE:
                return count
            if block >= self.ssd.nand.blocks:
                raise MapLostError("a page of Logarithmic Gecko cannot be read")
            dead = 0
            for page in range(counts[block]):
                dead += self.seen[page >> 6] >> (page & 63) & 1
            counts[block] -= dead

    def unreadable(self):
        """A line for each page of a run that cannot be read, or is not the page that the directory expects."""
        cdef uint8_t* image = self.images + <uint64_t> (self.levels_most + 1) * self.ssd.nand.page_bytes
        cdef uint32_t r, i
        problems = []
        for r in range(self.runs_n):
            for i in range(self.runs[r].n):
                if self.read_page(self.runs[r].ids[i], self.runs[r].number, i, image) < 0:
                    problems.append(f"PPA {self.directory.page_ppas[self.runs[r].ids[i]]}: page {i} of run "
                                    f"{self.runs[r].number} of Logarithmic Gecko cannot be read")
        return problems

    # --- the same for Python

    def invalidate(self, pages):
        """Mark [(block, page)] as invalid; the buffer is written as it fills."""
        cdef uint32_t block, page
        for block, page in pages:
            self.buffer.set_invalid(block, page)
            self.flush_full()

    def erase(self, uint32_t block):
        """Report that the block was erased."""
        self.buffer.set_erased(block)
        self.flush_full()

    def flush_full(self):
        if self.buffer.n >= self.per_page and not self.flush():
            raise RuntimeError("a page of a run cannot be read")

    def flush_now(self):
        """Write the buffer as it is."""
        if not self.flush():
            raise RuntimeError("a page of a run cannot be read")

    def invalid_in(self, uint32_t block):
        """Page numbers of the pages of a block that are invalid."""
        cdef uint64_t* words = <uint64_t*> calloc((self.layout.pages_per_block + 63) // 64, 8)
        cdef uint32_t page
        if words == NULL:
            raise MemoryError
        try:
            if not self.query(block, words):
                raise RuntimeError("a page of a run cannot be read")
            return [page for page in range(self.layout.pages_per_block) if words[page >> 6] >> (page & 63) & 1]
        finally:
            free(words)

    # --- for people

    def run_list(self):
        """The runs, the newest first: {"number", "level", "pages", "postamble_pages", "first_blocks", "ppas"};
        ``first_blocks`` has the block of the first entry of each page with entries."""
        cdef uint32_t r, i
        out = []
        for r in range(self.runs_n):
            out.append({
                "number": self.runs[r].number, "level": self.runs[r].level, "pages": self.runs[r].data_n,
                "postamble_pages": self.runs[r].n - self.runs[r].data_n,
                "first_blocks": [self.runs[r].firsts[i] // self.layout.parts for i in range(self.runs[r].data_n)],
                "ppas": [self.directory.page_ppas[self.runs[r].ids[i]] for i in range(self.runs[r].n)],
            })
        return out

    def entries_of(self, uint32_t block):
        """The entries of a block, in the buffer and then in the runs, the newest first: {"where", "part", "erased",
        "invalid"}."""
        cdef uint32_t r, page, slot = block * self.layout.parts
        cdef int n
        cdef uint8_t* image = self.images + <uint64_t> (self.levels_most + 1) * self.ssd.nand.page_bytes
        out = self.entries_in(self.buffer.at, self.buffer.n, block, "buffer")
        for r in range(self.runs_n):
            page = self.page_from(&self.runs[r], slot)
            while page < self.runs[r].data_n and self.runs[r].firsts[page] < slot + self.layout.parts:
                n = self.read_page(self.runs[r].ids[page], self.runs[r].number, page, image)
                if n < 0:
                    out.append({"where": f"run {self.runs[r].number}", "unreadable": True})
                else:
                    out += self.entries_in(image + HEAD_BYTES, <uint32_t> n, block, f"run {self.runs[r].number}")
                page += 1
        return out

    cdef list entries_in(self, const uint8_t* at, uint32_t n, uint32_t block, str where):
        cdef uint32_t i, bit, slot, size = self.layout.entry_bytes
        cdef const uint8_t* entry
        out = []
        for i in range(n):
            entry = at + <uint64_t> i * size
            slot = slot_of(entry)
            if slot // self.layout.parts == block:
                first = slot % self.layout.parts * self.layout.chunk_pages
                out.append({"where": where, "part": slot % self.layout.parts, "erased": bool(key_of(entry) & ERASED),
                            "invalid": [first + bit for bit in range(self.layout.chunk_pages)
                                        if entry[KEY_BYTES + (bit >> 3)] >> (bit & 7) & 1]})
        return out

    def tables(self):
        """The buffers of Appendix B: one page for reports, one for each level, one of output, one for queries; and the
        room that a whole request may need beyond a page of reports."""
        page = self.ssd.nand.page_bytes
        buffers = (self.levels_most + 2) * page + self.buffer.room * self.layout.entry_bytes
        pages = self.live_pages()
        packed, allocated = self.store.tables()
        return {
            "gecko_buffers": (buffers, buffers),
            "run_directories": (8 * pages + packed, 8 * pages + 8 * self.directory.n + allocated),
        }

    def figures(self):
        return {
            "gecko_runs": self.runs_n,
            "gecko_pages": self.live_pages(),
            "gecko_model_pages": self.model_pages,
            "gecko_entries_a_page": self.per_page,
            "gecko_buffered": self.buffer.n,
            "gecko_flushes": self.flushes,
            "gecko_merges": self.merges,
            "gecko_queries": self.queries,
            "gecko_query_reads": self.query_reads,
            "gecko_reads": self.store.reads,
            "gecko_programs": self.store.programs,
        }

    def forget_counts(self):
        self.flushes = self.merges = self.merged_pages = self.queries = self.query_reads = 0
        self.store.forget_counts()

    def check(self):
        """Run sizes rise with age, one run a level; slots ascend; no page number is in two runs."""
        cdef uint32_t r, i
        problems = []
        ids = []
        for r in range(self.runs_n):
            if self.runs[r].level != self.level_of(self.runs[r].data_n):
                problems.append(f"Gecko: run {self.runs[r].number} of {self.runs[r].data_n} pages has level "
                                f"{self.runs[r].level}")
            if r and not self.unsettled and self.runs[r].level <= self.runs[r - 1].level:
                problems.append(f"Gecko: run {self.runs[r].number} is older than "
                                f"{self.runs[r - 1].number}, and no larger")
            for i in range(1, self.runs[r].data_n):
                if self.runs[r].firsts[i] <= self.runs[r].firsts[i - 1]:
                    problems.append(f"Gecko: run {self.runs[r].number}: page {i} begins before page {i - 1}")
            ids += [self.runs[r].ids[i] for i in range(self.runs[r].n)]
        if len(set(ids)) != len(ids) or len(ids) + self.directory.spare_n != self.directory.n:
            problems.append(f"Gecko: {len(ids)} pages in runs, {len(set(ids))} of them apart, {self.directory.spare_n} "
                            f"numbers to be had of {self.directory.n}")
        most = self.pages_most + 2 * self.levels_most  # and the pages of their postambles
        if self.live_pages() + self.store.waiting() > most:
            problems.append(f"Gecko: {self.live_pages()} pages in runs and {self.store.waiting()} superseded ones: "
                            f"{most} were asked for")
        for i in range(1, self.buffer.n):
            if slot_of(self.buffer.at + i * self.layout.entry_bytes) <= slot_of(
                    self.buffer.at + (i - 1) * self.layout.entry_bytes):
                problems.append(f"Gecko: entry {i} of the buffer is out of order")
        return problems
