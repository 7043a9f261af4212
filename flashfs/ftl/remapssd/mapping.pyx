# distutils: language = c++
"""A page table of which several entries may name one page (Remap-SSD, FAST'21).

An LPA is at a page because of a write, recorded in the page's OOB, or of a remap, recorded in an entry in NVRAM
(rmm.pyx); the LR bitmap says which. Both have sequence numbers from one source, so in a recovery the highest wins; an
entry counts only if the page that it names is whole and is the page that was meant.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from flashfs.parts.defaults.page_table cimport PageTable
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.extensions cimport Remapping, Sharing
from flashfs.engine.contract.owner cimport FOREIGN, LIVE
from flashfs.engine.blocks.pool cimport (
    CAUSE_GC,
    CAUSE_MAP,
    CAUSE_RECOVERY,
    KIND_TRANSLATION,
    NONE,
    oob_lpa,
    placed,
)
from flashfs.engine.device.ssd cimport Ssd
from flashfs.ftl.remapssd.counts cimport COUNT_MOST, ReferenceCounts
from flashfs.ftl.remapssd.fingerprints cimport Prints
from flashfs.ftl.remapssd.rmm cimport Claim, Rmm
from nandimg._nand cimport PAGE_OK

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void*, int) nogil

cdef enum:
    AHEAD = 12


cdef class RemapTable(PageTable):
    """``watermark``: per cent of the entries in NVRAM beyond which LPAs are no longer remapped; ``count_limit``: the
    most references of a page, up to 15. ``done`` LPAs were remapped, ``same`` were already there; of the remaps that
    were refused, so that the LPA was written, ``refused_full`` found NVRAM full and ``refused_count`` the page's
    counter."""

    def __cinit__(self, Engine ssd, Rmm rmm=None, uint32_t watermark=95, uint32_t count_limit=COUNT_MOST, *,
                  Prints prints=None, bint remaps=True):
        if rmm is None:
            raise ValueError("a page table that remaps needs NVRAM")
        self.rmm = rmm
        if rmm.owner() is not None:
            ssd.own(KIND_TRANSLATION, rmm.owner())
        self.rmm.table = self.table
        self.counts = ReferenceCounts(ssd)
        self.counts.table = self.table
        self.counts.lpas = ssd.lpas
        self.watermark = watermark
        self.count_limit = min(count_limit, <uint32_t> COUNT_MOST)
        self.sharing = TableSharing(self)
        self.remapping = TableRemapping(self) if remaps else None
        self.charged = NONE
        self.prints = self.counts.prints = prints
        self.notes_prints = prints is not None
        self.new_of = <uint32_t*> malloc(rmm.pages * 4)
        if self.new_of == NULL:
            raise MemoryError
        memset(self.new_of, 0xFF, rmm.pages * 4)

    def __dealloc__(self):
        free(self.new_of)

    # --- references

    cdef uint32_t leave(self, uint32_t lpa) noexcept nogil:
        """Unmap the LPA from its page. Returns that page if no LPA is left there, else NONE."""
        cdef uint32_t ppa = self.at(lpa)
        if ppa == NONE:
            return NONE
        self.rmm.leave(lpa, ppa)
        self.put(lpa, NONE)
        return NONE if self.counts.drop(ppa) else ppa

    cdef bint take_reference(self, uint32_t ppa) noexcept nogil:
        cdef uint32_t n = self.counts.get(ppa)
        if n >= self.count_limit:
            return False
        self.counts.put(ppa, n + 1)
        return True

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        for i in range(min(n, <uint32_t> AHEAD)):
            prefetch(self.table + lpas[i], 1)
        for i in range(n):
            if i + AHEAD < n:
                prefetch(self.table + lpas[i + AHEAD], 1)
                prefetch(self.rmm.lr + (lpas[i + AHEAD] >> 6), 1)
            olds[i] = self.leave(lpas[i])
            self.put(lpas[i], ppa + i)
        if self.notes_prints:
            self.prints.bind(lpas, n, ppa)
        return 0

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t i, shared = 0
        if not self.attached:
            return PageTable.unbind(self, lpa, n, olds)
        for i in range(n):
            if self.at(lpa + i) == NONE:
                olds[i] = NONE
                continue
            olds[i] = self.leave(lpa + i)
            shared += olds[i] == NONE
        return <int> shared

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        cdef uint32_t i, at
        cdef bint entries = False
        for i in range(n):
            self.counts.carry(olds[i], news[i])
            if not self.rmm.is_remapped(lpas[i]) and self.at(lpas[i]) == olds[i]:
                self.put(lpas[i], news[i])
                entries |= self.counts.get(news[i]) > 1
            else:
                entries = True
        at = 0
        while entries and at < n:
            at = self.carry_entries(olds, news, at, n)
        return 0

    cdef uint32_t carry_entries(self, const uint32_t* olds, const uint32_t* news, uint32_t first,
                                uint32_t n) except? 0xFFFFFFFE nogil:
        """Carry the entries of the pages from number ``first`` on that are in its superblock, unless that was done for
        an earlier page. Returns the number of the next page that is in another superblock, ``n`` if there is none."""
        cdef uint32_t i, superblock = <uint32_t> (olds[first] // self.rmm.pages), behind = n
        for i in range(first):
            if olds[i] // self.rmm.pages == superblock:
                break
        else:
            for i in range(first, n):
                if olds[i] // self.rmm.pages == superblock:
                    self.new_of[olds[i] % self.rmm.pages] = news[i]
            if self.charged != superblock:
                self.charged = superblock
                self.rmm.charge_lookup(superblock, CAUSE_GC, self.ssd.now_ns)
            self.ssd.map_ns = self.ssd.now_ns
            self.rmm.carry(superblock, self.new_of, self.table, CAUSE_GC)
            for i in range(first, n):
                if olds[i] // self.rmm.pages == superblock:
                    self.new_of[olds[i] % self.rmm.pages] = NONE
        for i in range(first + 1, n):
            if olds[i] // self.rmm.pages != superblock:
                behind = i
                break
        return behind

    cdef int moves_end(self) except -1 nogil:
        self.charged = NONE
        return 0

    # --- the LPAs at a page

    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """An LPA at the page, preferably one without an entry: entries find the others when the page moves."""
        cdef uint32_t lpa, found = NONE
        for lpa in range(self.ssd.lpas):
            if self.at(lpa) == ppa:
                if not self.rmm.is_remapped(lpa):
                    return lpa
                found = lpa
        return found

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if i + AHEAD < n and lpas[i + AHEAD] < self.ssd.lpas:
                prefetch(self.table + lpas[i + AHEAD], 1)
            answers[i] = LIVE if lpas[i] < self.ssd.lpas and self.maps_to(lpas[i], ppas[i]) else FOREIGN
        return 0

    cdef bint maps_to(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Whether the page is live for the LPA of its OOB. If that LPA has left the page, all LPAs at it must have
        entries; the OOB of a page that was interrupted while being overwritten has a wrong LPA, and its owner has
        none."""
        cdef uint32_t n
        if self.at(lpa) == ppa:
            return True
        n = self.counts.get(ppa)
        return n != 0 and (n == self.rmm.brought(ppa) or not self.attached or self.counts.over_n != 0)

    # --- the primitive

    cdef uint64_t entries_most(self) noexcept nogil:
        """The most valid entries for which LPAs are remapped."""
        return self.rmm.entries_most() * self.watermark // 100

    cdef uint64_t segments_needed(self, uint32_t source, uint32_t n) noexcept nogil:
        """Segments that the entries of so many sources may begin: one each time the superblock changes, and one when a
        segment is full."""
        cdef uint64_t superblock, last = <uint64_t> -1, needed = self.rmm.segments_for(n)
        cdef uint32_t i
        for i in range(n):
            superblock = self.at(source + i) // self.rmm.pages
            needed += superblock != last
            last = superblock
        return needed

    cdef int give_back(self, uint32_t target, uint32_t source, uint32_t n) noexcept nogil:
        """Release references that were taken ahead and are not needed."""
        cdef uint32_t i, ppa
        for i in range(n):
            ppa = self.at(source + i)
            if self.at(target + i) != ppa:
                self.counts.put(ppa, self.counts.get(ppa) - 1)
        return 0

    cdef bint is_durable(self, uint32_t ppa) noexcept nogil:
        cdef uint32_t block = ppa // self.ssd.nand.pages_per_block
        return ppa - block * self.ssd.nand.pages_per_block < self.ssd.nand.synced(block)

    # --- a mount

    cdef int64_t pages_named(self) except -2 nogil:
        return PageTable.pages_named(self) - <int64_t> self.counts.extra() + <int64_t> self.rmm.pages_n()

    def translation_pages(self):
        """The pages of a log in flash."""
        owner = self.rmm.owner()
        return owner.live_ppas() if owner is not None else []

    cdef int housekeep(self) except -1 nogil:
        return self.rmm.housekeep()

    def device_ready(self):
        self.rmm.reset_pages()
        self.counts.recount()
        self.rmm.attach(not self.ssd.frozen)
        if self.prints is not None:
            self.prints.clear()
        if self.doubted or self.has_strays():
            self.drop_strays()
        self.attached = True
        (<Ssd> self.ssd).seq += 1

    cdef int checkpoint_ended(self, bint whole) except -1:
        """No write of the host gets the number after a checkpoint's. So a page that is shed, under the number below
        that of the host's next version, is newer than every earlier checkpoint."""
        if whole:
            (<Ssd> self.ssd).seq += 1
        return 0

    def distrust(self):
        self.doubted = True

    cdef bint has_strays(self) except -1:
        """Whether two LPAs without an entry are at one page: when it moves, only the LPA in its OOB and those of
        entries go with it. An entry is gone then: no checksum covers NVRAM."""
        cdef uint64_t* seen = NULL
        cdef uint32_t lpa, ppa
        cdef bint found = False
        if not self.counts.shared:
            return False
        seen = <uint64_t*> calloc(self.counts.pages_n // 64 + 1, 8)
        if seen == NULL:
            raise MemoryError
        with nogil:
            for lpa in range(self.ssd.lpas):
                if lpa + AHEAD < self.ssd.lpas and self.at(lpa + AHEAD) < self.counts.pages_n:
                    prefetch(seen + (self.at(lpa + AHEAD) >> 6), 1)
                ppa = self.at(lpa)
                if ppa >= self.counts.pages_n or self.rmm.is_remapped(lpa):
                    continue
                if seen[ppa >> 6] >> (ppa & 63) & 1:
                    found = True
                    break
                seen[ppa >> 6] |= <uint64_t> 1 << (ppa & 63)
        free(seen)
        return found

    def drop_strays(self):
        """After damage an LPA may map to a page of another LPA without an entry, because the record that it had left is
        lost. Unmap such LPAs: an LPA that shares that page later would otherwise expose its content. Of those at a page
        that cannot be read the first stays: it alone would be found if the page moved."""
        cdef uint32_t lpa, ppa, n = 0
        cdef set unread = set()
        cdef uint8_t status
        cdef uint8_t[::1] oob = bytearray(self.ssd.nand.oob_bytes)
        for lpa in range(self.ssd.lpas):
            ppa = self.at(lpa)
            if ppa == NONE or self.rmm.is_remapped(lpa):
                continue
            self.ssd.nand.read_spare(ppa // self.ssd.nand.pages_per_block, ppa % self.ssd.nand.pages_per_block, 1,
                                     &oob[0], &status, CAUSE_RECOVERY, self.ssd.now_ns)
            status = placed(status, &oob[0], ppa % self.ssd.nand.pages_per_block)
            if ppa in unread if status != PAGE_OK else oob_lpa(&oob[0]) != lpa:
                self.put(lpa, NONE)
                n += 1
            elif status != PAGE_OK:
                unread.add(ppa)
        self.doubted = False
        if n:
            self.ssd.alarm(f"{n} LPAs are at pages of others, and nothing says since when: they are holes now")
            self.counts.recount()

    def load(self, sections):
        self.attached = False
        self.rmm.reset_pages()
        PageTable.load(self, sections)

    def reset(self):
        self.attached = False
        self.rmm.reset_pages()
        PageTable.reset(self)

    # --- for people

    def tables(self):
        """``move_buffer``: the page that cleaning writes out, that with which a write is compared, and where a
        superblock's pages go."""
        prints = {"fingerprints": self.prints.sizes()} if self.prints is not None else {}
        moves = 4 * self.rmm.pages + self.ssd.nand.page_bytes
        if self.dedup is not None:
            moves += self.ssd.nand.page_bytes + self.ssd.nand.oob_bytes
        return {**PageTable.tables(self), **self.rmm.tables(), **prints, "move_buffer": (moves, moves)}

    def figures(self):
        dedup = self.dedup.figures() if self.dedup is not None else {}
        return {**dedup, **self.rmm.figures(), "remap_done": self.done, "remap_same": self.same,
                "remap_refused_full": self.refused_full, "remap_refused_count": self.refused_count,
                "rmm_valid": self.rmm.valid_n, "rmm_entries": self.rmm.used_n, "rmm_free": self.rmm.free_n,
                "rmm_compacted": self.rmm.compacted_n, "rmm_carried": self.rmm.carried_n,
                "rmm_syncs": self.rmm.forced_syncs, "rmm_reclaimed": self.rmm.reclaimed_n,
                "rmm_largest_group": self.rmm.largest_group * self.rmm.segment_bytes}

    def forget_counts(self):
        if self.dedup is not None:
            self.dedup.forget_counts()
        self.done = self.same = self.refused_full = self.refused_count = 0
        self.rmm.forget_counts()

    def check(self):
        return self.rmm.check() if self.attached else []

    def explain(self, uint32_t lpa):
        said = PageTable.explain(self, lpa)
        if said["ppa"] is not None:
            said["remapped"] = bool(self.rmm.is_remapped(lpa))
            said["references"] = self.counts.get(self.at(lpa))
            if said["remapped"]:           # of several such entries the newest counts
                rows = self.rmm.entries_of(<uint32_t> (self.at(lpa) // self.rmm.pages))
                mine = [row["seq"] for row in rows if row.get("valid") and row["lpa"] == lpa]
                said["remap_seq"] = max(mine, default=0)
        return said

    def references(self):
        """How many pages of LPAs have each number of references."""
        n = self.counts.histogram()
        n[1] -= len(self.translation_pages())
        return n

    def sharers(self, uint32_t ppa):
        """The LPAs that are at that page."""
        cdef uint32_t lpa
        return [lpa for lpa in range(self.ssd.lpas) if self.at(lpa) == ppa]

    def most_shared(self):
        """A page with the most LPAs."""
        cdef uint64_t ppa, best = 0
        for ppa in range(self.counts.pages_n):
            if self.counts.get(<uint32_t> ppa) > self.counts.get(<uint32_t> best):
                best = ppa
        return best


cdef class TableSharing(Sharing):
    """Counters have the number of LPAs at a page, entries the LPAs."""

    def __cinit__(self, RemapTable map not None):
        self.map = map
        self.names_sharers = True

    cdef bint is_page_of(self, uint32_t lpa, uint32_t ppa, uint32_t said) except -1 nogil:
        return self.map.rmm.is_remapped(lpa)

    cdef bint shared_by_others(self, uint32_t ppa, uint32_t lpa) except -1 nogil:
        return self.map.counts.get(ppa) > (lpa < self.map.ssd.lpas and self.map.at(lpa) == ppa)

    def claims(self):
        return self.map.rmm.claims()

    def recount(self):
        self.map.counts.recount()


cdef class TableRemapping(Remapping):
    """An entry in NVRAM for each LPA that is pointed at another's page."""

    def __cinit__(self, RemapTable map not None):
        self.map = map
        self.atomic = map.rmm.entry_bytes == 24

    cdef uint32_t room(self, uint32_t target, uint32_t source, uint32_t n, bint move) except? 0xFFFFFFFF nogil:
        """A move's entry has the source that was unmapped, and so has no room for the order of the page's block
        (rmm.pyx): the page must be durable first. So must all pages of an atomic command: if the host lost one, the
        other entries would remain without it."""
        cdef uint32_t i, ppa, asked = n
        cdef uint64_t most = self.map.entries_most()
        self.map.reserved = 0
        for i in range(n if move or self.atomic else 0):
            if not self.map.is_durable(self.map.at(source + i)):
                self.map.ssd.barrier()
                break
        if self.map.rmm.valid_n >= most:
            n = 0
        n = <uint32_t> min(<uint64_t> n, most - min(most, self.map.rmm.valid_n))
        while n and not self.map.rmm.gain(self.map.rmm.reserve + self.map.segments_needed(source, n)):
            n //= 2
        if n == 0 or (self.atomic and n < asked):
            self.map.refused_full += 1
            return 0
        for i in range(n):
            if i + AHEAD < n:
                prefetch(self.map.counts.nibbles + (self.map.at(source + i + AHEAD) >> 1), 1)
            ppa = self.map.at(source + i)
            if self.map.at(target + i) != ppa and not self.map.take_reference(ppa):
                n = i
                break
            if self.map.counts.over_n:     # a full count is recounted from the table, which lacks these
                n = i + 1
                break
        if self.atomic and n < asked:
            self.map.give_back(target, source, n)
            n = 0
        self.map.refused_count += n == 0
        return n

    cdef int run(self, uint32_t target, uint32_t source, uint32_t n, uint64_t seq, bint move,
                 uint32_t* olds) except -1 nogil:
        cdef bint protected = (<Ssd> self.map.ssd).buffer.in_nvram and (<Ssd> self.map.ssd).buffer.held
        cdef Claim claim
        cdef uint32_t i, ppa
        claim.seq = seq
        claim.first = target
        claim.n = n
        for i in range(n):
            ppa = self.map.at(source + i)
            olds[i] = NONE
            claim.lpa = target + i
            claim.ppa = ppa
            claim.source = source + i if move else NONE
            if self.map.at(target + i) == ppa:
                self.map.same += 1
                # An atomic command has an entry for each LPA. And a version in a protected buffer outlives a crash, so
                # the record that the LPA must not have it must outlive the crash too.
                if self.map.rmm.entry_bytes == 24 or (
                        protected and (<Ssd> self.map.ssd).buffer.find(target + i) != NONE):
                    self.map.rmm.leave(target + i, ppa)
                    self.map.rmm.append(&claim, CAUSE_MAP)
            else:
                olds[i] = self.map.leave(target + i)
                self.map.put(target + i, ppa)
                self.map.rmm.append(&claim, CAUSE_MAP)
                self.map.done += 1
            if move:
                self.map.leave(source + i)     # the target is at the page, so the page does not die
        return 0
