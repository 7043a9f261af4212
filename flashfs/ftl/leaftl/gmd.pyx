# distutils: language = c++
"""The directory of LeaFTL's translation pages (the paper's GMD, 3.8): the groups and the PPAs of each page.

A translation page is a run of groups that fit it; on chips of small pages, it takes a few pages of flash. Groups differ
in size, from nothing to 2.7 kB, so a page holds from one group to 256. None crosses a *region* of 256 groups, which
keeps the directory in small sorted pieces: 4 bytes and the PPAs for each page. The id of a translation page is the
number of its first group, times the most pages of flash of a translation page.
"""
cimport cython
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove, memset

from flashfs.parts.paged.paged_map cimport PageDirectory
from flashfs.engine.blocks.pool cimport NONE

import struct


cdef class Gmd(PageDirectory):
    """The directory for ``groups`` groups, none of them written; a page takes up to ``span`` pages of flash."""

    def __cinit__(self, uint32_t groups, uint32_t span):
        self.groups = groups
        self.span = span
        self.regions_n = (groups + REGION - 1) // REGION
        self.regions = <Region*> calloc(max(1, self.regions_n), sizeof(Region))
        if self.regions == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.regions != NULL:
            self.release()
        free(self.regions)

    cdef uint32_t groups_of(self, uint32_t region) noexcept nogil:
        return min(<uint32_t> REGION, self.groups - region * REGION)

    @cython.final
    cdef int release(self) noexcept nogil:
        """Free the memory of every region."""
        cdef uint32_t region
        for region in range(self.regions_n):
            free(self.regions[region].pages)
            free(self.regions[region].ppas)
        return 0

    cdef int clear(self) noexcept nogil:
        """Make it empty: no page was ever written."""
        self.release()
        memset(self.regions, 0, self.regions_n * sizeof(Region))
        self.pages_n = 0
        return 0

    cdef int split_up(self, uint32_t region) except -1 nogil:
        """If the region has no page yet, add one with all its groups."""
        cdef TransPage page
        if self.regions[region].n:
            return 0
        page.first = 0
        page.n = <uint16_t> self.groups_of(region)
        page.clean = False
        page.here = page.proved = True
        page.bytes = 0
        return self.insert(self.regions + region, 0, page, NULL)

    cdef int reserve(self, Region* region, uint32_t more) except -1 nogil:
        """Make room for so many pages more."""
        cdef uint32_t room = region.room
        cdef void* grown
        if region.n + more > room:
            room = max(<uint32_t> region.n + more, 2 * room)
            grown = realloc(region.pages, room * sizeof(TransPage))
            if grown != NULL:
                region.pages = <TransPage*> grown
                grown = realloc(region.ppas, room * self.span * 4)
            if grown == NULL:
                with gil:
                    raise MemoryError
            region.ppas = <uint32_t*> grown
            region.room = <uint16_t> room
        return 0

    cdef int insert(self, Region* region, uint32_t at, TransPage page, const uint32_t* ppas) except -1 nogil:
        cdef uint32_t k
        self.reserve(region, 1)
        memmove(region.pages + at + 1, region.pages + at, (region.n - at) * sizeof(TransPage))
        memmove(region.ppas + (at + 1) * self.span, region.ppas + at * self.span, (region.n - at) * self.span * 4)
        region.pages[at] = page
        for k in range(self.span):
            region.ppas[at * self.span + k] = ppas[k] if ppas != NULL else NONE
        region.n += 1
        self.pages_n += 1
        return 0

    cdef int64_t place_of(self, uint32_t group) noexcept nogil:
        """The index in its region of the group's page; -1 if the region was never split up."""
        cdef Region* region = self.regions + group // REGION
        cdef uint32_t low = 0, high = region.n, middle, x = group % REGION
        if region.n == 0:
            return -1
        while high - low > 1:
            middle = (low + high) // 2
            if region.pages[middle].first <= x:
                low = middle
            else:
                high = middle
        return low

    cdef TransPage* replace(self, uint32_t number, uint32_t first, uint32_t n, const uint32_t* ppas) except NULL nogil:
        """``n`` groups from ``first`` (of the region) on, all in changed pages, were written together: replace them by
        one page that is clean and in memory, and return that. The rest of the pages before and after it stays
        changed."""
        cdef Region* region = self.regions + number
        cdef TransPage page, old
        cdef uint32_t at = <uint32_t> self.place_of(number * REGION + first), gone = at, end = first + n, i
        old = region.pages[at]
        self.splits += old.first < first or <uint32_t> old.first + old.n > end
        if old.first < first:
            region.pages[at].n = <uint16_t> (first - old.first)
            at += 1
            gone = at
            if <uint32_t> old.first + old.n > end:  # a rest remains after ``end``
                page = old
                page.first = <uint16_t> end
                page.n = <uint16_t> (old.first + old.n - end)
                self.insert(region, at, page, NULL)
        while gone < region.n and <uint32_t> region.pages[gone].first + region.pages[gone].n <= end:
            gone += 1
        if gone < region.n and region.pages[gone].first < end:
            i = end - region.pages[gone].first
            region.pages[gone].first = <uint16_t> end
            region.pages[gone].n -= <uint16_t> i
        self.merges += gone > at + 1
        memmove(region.pages + at, region.pages + gone, (region.n - gone) * sizeof(TransPage))
        memmove(region.ppas + at * self.span, region.ppas + gone * self.span, (region.n - gone) * self.span * 4)
        region.n -= <uint16_t> (gone - at)
        self.pages_n -= gone - at
        page.first = <uint16_t> first
        page.n = <uint16_t> n
        page.clean = True
        page.here = page.proved = True
        page.bytes = 0
        self.insert(region, at, page, ppas)
        return region.pages + at

    # --- what cleaning and recovery ask

    cdef uint32_t ppa_of(self, uint32_t id) noexcept nogil:
        cdef uint32_t group = id // self.span
        cdef int64_t at
        if group >= self.groups:
            return NONE
        at = self.place_of(group)
        if at < 0 or self.regions[group // REGION].pages[at].first != group % REGION:
            return NONE
        return self.regions[group // REGION].ppas[at * self.span + id % self.span]

    cdef int set_ppa(self, uint32_t id, uint32_t ppa) noexcept nogil:
        cdef uint32_t group = id // self.span
        if self.ppa_of(id) != NONE:
            self.regions[group // REGION].ppas[self.place_of(group) * self.span + id % self.span] = ppa
        return 0

    cdef uint32_t id_at(self, uint32_t ppa) noexcept nogil:
        cdef uint32_t number, i, k
        for number in range(self.regions_n):
            for i in range(self.regions[number].n):
                for k in range(self.span):
                    if self.regions[number].ppas[i * self.span + k] == ppa:
                        return (number * REGION + self.regions[number].pages[i].first) * self.span + k
        return NONE

    cdef uint32_t count(self) noexcept nogil:
        cdef uint32_t number, i, n = 0
        for number in range(self.regions_n):
            for i in range(self.regions[number].n * self.span):
                n += self.regions[number].ppas[i] != NONE
        return n

    def ppas(self):
        cdef uint32_t number, i
        return [self.regions[number].ppas[i] for number in range(self.regions_n)
                for i in range(self.regions[number].n * self.span) if self.regions[number].ppas[i] != NONE]

    # --- checkpoints

    def saved(self):
        """The section ``gmd``: of each clean page its first group, how many groups, and ``span`` PPAs, u32 each."""
        cdef uint32_t number, i, k
        out = bytearray()
        for number in range(self.regions_n):
            for i in range(self.regions[number].n):
                if self.regions[number].pages[i].clean:
                    page = self.regions[number].pages[i]
                    ppas = [self.regions[number].ppas[i * self.span + k] for k in range(self.span)]
                    out += struct.pack(f"<{2 + self.span}I", number * REGION + page.first, page.n, *ppas)
        return out

    def parsed(self, saved, uint64_t chip_pages):
        """The inverse: [(first group, groups, [PPA, ...])]. ValueError says what is wrong."""
        entry = struct.Struct(f"<{2 + self.span}I")
        if len(saved) % entry.size:
            raise ValueError(f"gmd section of {len(saved)} bytes: {entry.size} a translation page are needed")
        found, seen, end = [], set(), 0
        for first, groups, *ppas in entry.iter_unpack(saved):
            used = [ppa for ppa in ppas if ppa != NONE]
            if (first < end or not 1 <= groups <= REGION or first + groups > self.groups
                    or first // REGION != (first + groups - 1) // REGION or ppas[:len(used)] != used
                    or not used or max(used) >= chip_pages or not seen.isdisjoint(used) or len(set(used)) != len(used)):
                raise ValueError(f"gmd section: no translation page has {groups} groups from {first} on at {ppas}")
            seen.update(used)
            found.append((first, groups, ppas))
            end = first + groups
        return found

    # --- for people

    def entries(self):
        """Every translation page in the directory: {"first_group", "groups", "state", "bytes", "ppas"}."""
        cdef uint32_t number, i, k
        out = []
        for number in range(self.regions_n):
            for i in range(self.regions[number].n):
                page = self.regions[number].pages[i]
                ppas = [self.regions[number].ppas[i * self.span + k] for k in range(self.span)]
                out.append({
                    "first_group": number * REGION + page.first, "groups": page.n,
                    "state": ("in memory and flash" if page.here else "in flash") if page.clean else "changed",
                    "bytes": page.bytes, "ppas": [ppa for ppa in ppas if ppa != NONE],
                })
        return out

    def sizes(self):
        """(bytes as a controller packs them, as allocated): 4 a translation page, and 4 for each of its PPAs."""
        room = sum(self.regions[number].room for number in range(self.regions_n))
        return (self.pages_n * (4 + 4 * self.span),
                room * (sizeof(TransPage) + 4 * self.span) + self.regions_n * sizeof(Region))

    def forget_counts(self):
        self.splits = self.merges = 0

    def check(self):
        """Pages follow each other without a gap; a clean one is in flash, and any other is not."""
        cdef uint32_t number, i, end
        problems = []
        for number in range(self.regions_n):
            end = 0
            for i in range(self.regions[number].n):
                page = self.regions[number].pages[i]
                name = f"region {number}: translation page {i}"
                if page.first != end:
                    problems.append(f"{name} begins at group {page.first}, not at {end}")
                end = page.first + page.n
                if (self.regions[number].ppas[i * self.span] != NONE) != page.clean:
                    problems.append(f"{name}, {'' if page.clean else 'not '}clean, against its PPA")
            if self.regions[number].n and end != self.groups_of(number):
                problems.append(f"region {number}: its translation pages end at group {end}")
        return problems
