# distutils: language = c++
"""LeaFTL: the map as line segments learned from it (ASPLOS'23). The paper replaces the mapping; the engine offers what
places pages so that a few lines describe them (a sorted buffer, a block at a time).

The table answers from segments (segments.pyx); lookup.pyx handles their uncertainty. A page's OOB names only neighbours
of its own *run*, pages that were programmed with it, and a segment predicts only pages of the run that it was learned
from. docs/ftl/leaftl.md gives the reasons, and how recovery (recovery.pyx) uses that.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.contract.owner cimport FOREIGN
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.contract.validity cimport Validity
from flashfs.engine.blocks.pool cimport NONE
from flashfs.engine.device.ssd cimport Ssd
from flashfs.ftl.leaftl.gmd cimport REGION
from flashfs.ftl.leaftl.group cimport BLOCK_MOST, GROUP, LEVELS_MOST
from flashfs.ftl.leaftl.lookup cimport PART
from flashfs.ftl.leaftl.recovery cimport LearnedRecovery
from flashfs.ftl.leaftl.segments cimport expect
from flashfs.ftl.leaftl.blocks cimport ABSENT

from flashfs.errors import BindError, RoomError
from flashfs.ftl.common import spare_blocks
from flashfs.ftl.leaftl import views
from flashfs.ftl.leaftl.table_pages import SHARE_LEAST

cdef extern from "<algorithm>" namespace "std" nogil:
    void sort(uint64_t* first, uint64_t* last)


cdef class SegmentMap(LearnedRecovery):
    """The log-structured mapping table as the map of a device. ``gamma`` in pages."""
    cdef readonly uint64_t compact_every   # host pages between compactions; 0: never
    cdef readonly uint64_t compactions
    cdef uint64_t since_compaction
    cdef uint64_t seen_writes              # the engine's ``host_write`` when last seen; it may restart

    def __cinit__(self, Engine ssd not None, uint32_t gamma, uint64_t compact_every, uint32_t grown):
        self.compact_every = compact_every

    # --- changes

    def refuses(self, Validity validity not None):
        """A lost translation page is rebuilt from the live pages, learned where they lie. A validity store that has not
        noticed all dead pages, or that must not be asked for each page, would not give the lost table."""
        if validity.late or validity.in_flash:
            return ("leaftl: lost pages of its table are made again from the pages that live: use a validity store in "
                    "DRAM that is not late")
        return None

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        """Find what dies, then learn the run."""
        cdef uint32_t i = 0, k, part
        while i < n:
            part = min(n - i, <uint32_t> PART)
            self.places(lpas + i, part, olds + i)
            if not self.exact:
                self.drop_strays(lpas + i, 0, part, olds + i)
            for k in range(part):
                self.part_ppas[k] = ppa + i + k
                self.mapped_n += olds[i + k] == NONE
            if is_rising(lpas + i, part):
                self.table.insert_run(lpas + i, self.part_ppas, part)
            else:
                self.insert_unsorted(lpas + i, part, olds + i)
            i += part
        return 0

    cdef int insert_unsorted(self, const uint32_t* lpas, uint32_t n, uint32_t* olds) except -1 nogil:
        """Learn pages in no LPA order, at ``part_ppas``; of an LPA that comes twice the last counts. They are learned
        exactly: a guess could meet the earlier of two pages of one LPA, which would look right."""
        cdef uint64_t[PART] keys
        cdef uint32_t[PART] ppas
        cdef uint32_t i, lpa, at, kept = 0, gamma = self.table.rules.gamma
        for i in range(n):
            keys[i] = <uint64_t> lpas[i] << 32 | i
        sort(keys, keys + n)
        for i in range(n):
            lpa = <uint32_t> (keys[i] >> 32)
            at = <uint32_t> keys[i]
            if kept and self.part_lpas[kept - 1] == lpa:
                self.mapped_n -= olds[at] == NONE
                olds[at] = ppas[kept - 1]
                kept -= 1
            self.part_lpas[kept] = lpa
            ppas[kept] = self.part_ppas[at]
            kept += 1
        self.table.rules.gamma = 0
        try:
            self.table.insert_run(self.part_lpas, ppas, kept)
        finally:
            self.table.rules.gamma = gamma
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """Cleaning sorted the pages by LPA: what went to one block in a row is a run."""
        cdef uint32_t i = 0, run, pages = self.ssd.nand.pages_per_block
        while i < n:
            run = 1
            while (i + run < n and news[i + run] == news[i] + run and news[i + run] % pages != 0
                   and lpas[i + run] > lpas[i + run - 1]):
                run += 1
            self.table.insert_run(lpas + i, news + i, run)
            i += run
        return 0

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* yes) except -1 nogil:
        """Where the table is approximate, a page in reach is taken as the LPA's if no other claims that LPA. Lists
        decide between two in reach that claim it, and for a page that is asked for alone. If validity is late, they
        decide for each page: a superseded page in reach claims its LPA too."""
        cdef uint32_t i, k, at, predicted = NONE, levels = 0
        cdef bint about = False
        if self.ssd.validity.late:
            return Mapping.confirm(self, lpas, ppas, n, yes)
        for i in range(n):
            yes[i] = FOREIGN
            expect(self.table, lpas, i, n)
            if lpas[i] >= self.ssd.lpas or not self.table.find(lpas[i], &predicted, &levels, &about):
                continue
            yes[i] = self.in_reach(ppas[i], predicted) if about else predicted == ppas[i]
            if not about or not yes[i]:
                continue
            at = NONE
            if n == 1:
                yes[i] = self.locate(lpas[i]) == ppas[i]
            for k in range(i):
                if lpas[i - k - 1] == lpas[i] and yes[i - k - 1]:
                    at = self.locate(lpas[i])
                    yes[i - k - 1] = at == ppas[i - k - 1]
                    yes[i] = at == ppas[i]
                if ppas[i] - ppas[i - k - 1] > 2 * self.gamma:
                    break
        return 0

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t i = 0, k, part, mapped
        cdef int missing = 0
        while i < n:
            part = min(n - i, <uint32_t> PART)
            for k in range(part):
                self.part_lpas[k] = lpa + i + k
            self.places(self.part_lpas, part, olds + i)
            mapped = 0
            for k in range(part):
                missing |= self.part_about[k] == 2
                self.mapped_n -= olds[i + k] != NONE
                if olds[i + k] != NONE or self.part_about[k] == 2:
                    self.part_lpas[mapped] = lpa + i + k
                    mapped += 1
            if mapped:
                self.table.unmap_run(self.part_lpas, mapped)
            if not self.exact:
                missing |= mapped != 0      # whether or not a page dies
                self.drop_strays(NULL, lpa + i, part, olds + i)
            i += part
        return missing

    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, const Extent* at, uint32_t before,
                   uint32_t behind) except -1 nogil:
        """Stamp the LPAs of the gamma pages before and after each page, as far as the run goes; NONE beyond."""
        cdef uint32_t i, left, right, gamma = self.gamma
        if gamma == 0:
            return 0
        for i in range(at.n):
            left = min(gamma, before + i)
            right = min(gamma, at.n - 1 - i + behind)
            memset(oob, 0xFF, 8 * gamma)
            memcpy(oob + 4 * (gamma - left), lpas + i - left, 4 * left)
            memcpy(oob + 4 * gamma, lpas + i + 1, 4 * right)
            oob += self.ssd.nand.oob_bytes
        return 0

    # --- translation pages

    cdef int lpas_of(self, uint32_t id, uint32_t* first, uint32_t* n) noexcept nogil:
        """The LPAs of the translation page that has ``id``."""
        cdef uint32_t group = id // self.pages.gmd.span, at = <uint32_t> self.pages.gmd.place_of(group), end
        first[0] = group - group % REGION + self.pages.gmd.regions[group // REGION].pages[at].first
        end = first[0] + self.pages.gmd.regions[group // REGION].pages[at].n
        first[0] *= GROUP
        n[0] = min(end * GROUP, self.ssd.lpas) - first[0]
        return 0

    cdef int remade(self, uint32_t id, uint32_t* lpas, uint32_t* ppas, uint32_t n) except -1 nogil:
        return self.pages.remade(id, lpas, ppas, n)

    cdef bint is_sound(self, uint32_t id) except -1:
        return self.pages.is_sound(id)

    cdef int page_gone(self, uint32_t id) except -1 nogil:
        """Rebuild a lost translation page; if its groups are in memory, mark them as changed instead."""
        cdef uint32_t group = id // self.pages.gmd.span
        if self.table.directory[group] == ABSENT:
            return self.rebuild(id)
        return self.pages.changes(group)

    cdef uint64_t dirty(self) noexcept nogil:
        """Bytes of groups that are in memory but not in flash."""
        return self.pages.dirty_bytes()

    cdef bint write_next(self) except -1 nogil:
        return self.pages.write_next()

    cdef int housekeep(self) except -1 nogil:
        """Write back changed groups beyond half of the budget, and evict beyond all of it. Compaction counts all writes
        of the host, including those that were overwritten in the buffer."""
        cdef uint64_t written = (<Ssd> self.ssd).host_write
        self.since_compaction += written - self.seen_writes if written >= self.seen_writes else written
        self.seen_writes = written
        if self.compact_every and self.since_compaction >= self.compact_every:
            self.since_compaction = 0
            self.compactions += 1
            self.table.compact_all(False)
        self.pages.most_bytes = max(self.pages.most_bytes, self.table.slabs.taken_bytes)
        if self.pages.limit == 0:
            return 0
        if self.dirty() > self.pages.share() // 2:
            self.write_down(self.pages.share() // 4, self.table.groups)
        return self.pages.shrink(0)

    def least_share(self):
        """SHARE_LEAST translation pages, or less if the largest table, or a limit that was set before, takes less."""
        largest = <uint64_t> self.table.groups * BLOCK_MOST
        limit = min(largest, self.pages.limit) if self.pages.limit else largest
        return min(limit, SHARE_LEAST * <uint64_t> self.pages.capacity)

    def limit_tables(self, int64_t given):
        """Give the groups in memory the ``given`` bytes; no limit if even the largest table fits, and a smaller limit
        that was set before stays. BindError if that is too little."""
        cdef uint64_t least = SHARE_LEAST * self.pages.capacity, share = <uint64_t> max(given, <int64_t> 0)
        if share >= <uint64_t> self.table.groups * BLOCK_MOST or 0 < self.pages.limit <= share:
            return
        if share < least:
            raise BindError(f"leaftl: {share} bytes of DRAM are left for the mapping table: it needs {least}")
        self.limit_groups(share)

    def limit_groups(self, uint64_t most):
        """Keep at most ``most`` bytes of groups in memory between requests, as far as possible; RoomError if the chip
        has no room for the rest. Flash may have two versions of every translation page, and cleaning has one more open
        block."""
        cdef uint32_t per_block = self.ssd.nand.pages_per_block
        need = -(-2 * self.table.groups * self.pages.gmd.span // per_block) + 2
        spare = spare_blocks(self.ssd)
        if spare < need:
            raise RoomError(f"leaftl: a table that is partly in flash may take {need} blocks there, and {spare} are to "
                            "spare", "more DRAM or a larger --op")
        self.pages.limit = most
        self.ssd.reserve_for(2)  # a cleaned block's pages go to one stream or the other

    # --- for people

    def tables(self):
        sizes = self.table.sizes()
        directory = sizes["directory"] + sizes["debts"]
        return {
            "segments": (sizes["modelled"] - directory, sizes["allocated"] - directory),
            "group_directory": (directory, directory),
            "translation_directory": self.pages.sizes(),
        }

    def is_exact(self):
        return self.gamma == 0

    def from_kernel(self):
        return self.table.sizes()["from_kernel"]

    def survey(self):
        return views.survey(self.table)

    def figures(self):
        """As ``survey``, and counts since the device was opened. ``lookups_by_level``: how many ended at each level
        from the top on."""
        return {
            "gamma": self.gamma,
            **self.survey(),
            "learned": self.table.learned,
            "compactions": self.compactions,
            "groups_compacted": self.table.compacted,
            "crowded": self.table.crowded,
            "lookups_by_level": views.trimmed([self.by_level[i] for i in range(1, LEVELS_MOST + 1)]),
            "mispredictions": self.mispredictions,
            "probes": self.probes,
            "settled_by_validity": self.settled_by_live,
            "settled_by_list": self.settled_by_list,
            "settled_by_spare_read": self.settled_by_read,
            **super().figures(),
            "loads": self.pages.loads,
            "evictions": self.pages.evictions,
            "group_bytes_most": self.pages.most_bytes,
        }

    def forget_counts(self):
        self.mispredictions = self.probes = self.compactions = self.table.compacted = 0
        self.settled_by_live = self.settled_by_list = self.settled_by_read = 0
        memset(self.by_level, 0, sizeof(self.by_level))
        self.pages.forget_counts()
        super().forget_counts()

    def explain(self, uint32_t lpa):
        return views.explain(self.table, lpa)

    def group_of(self, group):
        return views.group_of(self.table, group)

    def largest_group(self):
        return views.largest_group(self.table)

    def check(self):
        return self.table.check() + self.pages.check()


cdef bint is_rising(const uint32_t* lpas, uint32_t n) noexcept nogil:
    cdef uint32_t i
    for i in range(1, n):
        if lpas[i] <= lpas[i - 1]:
            return False
    return True
