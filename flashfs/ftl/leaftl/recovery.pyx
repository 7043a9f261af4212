# cold
# distutils: language = c++
"""LeaFTL's checkpoint and recovery: the checkpoint's table is kept until every LPA is settled; then newer pages are
learned again, in the runs in which they were programmed (recovered_runs.pyx). docs/ftl/leaftl.md, "Recovery"."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from flashfs.parts.defaults.map_check cimport MapCheck
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport NONE
from flashfs.ftl.leaftl.recovered_runs cimport FoundPages
from flashfs.ftl.leaftl.group cimport BLOCK_MOST, GROUP
from flashfs.ftl.leaftl.lookup cimport PART, LearnedPlaces
from flashfs.ftl.leaftl.blocks cimport ABSENT

from flashfs.ftl.leaftl.table_pages import IN_FLASH


def saved_bytes(lpas):
    """The most that a checkpoint of so many LPAs takes: for each group its length (2 bytes) and its block, which is
    compacted if it is larger than a block that holds no LPA twice can be. A group in a translation page takes less: its
    part in the directory of those."""
    full, rest = divmod(lpas, GROUP)
    return full * (2 + group_most(GROUP)) + (max(2 + group_most(rest), <uint32_t> 74) if rest else 0)


cpdef uint32_t group_most(uint32_t lpas) noexcept nogil:
    """Bytes of a compacted group of so many LPAs, at most: a level, a segment, a CRB byte and a null for each."""
    return min(3 + 11 * lpas, <uint32_t> BLOCK_MOST)


cdef class LearnedRecovery(LearnedPlaces):
    """The table's checkpoint and recovery."""

    def __cinit__(self, Engine ssd not None, uint32_t gamma, *_):
        self.found = FoundPages(gamma, ssd.nand.pages_per_block)

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        return self.found.add(lpa, ppa, scheme_oob)

    cdef int relearn(self) except -1 nogil:
        """Learn the pages newer than the checkpoint, in the order of PPAs, run by run."""
        cdef uint32_t first = 0, n
        self.found.settle()
        while first < self.found.n:
            n = self.found.run(first, self.part_lpas, self.part_ppas, PART)
            self.table.insert_run(self.part_lpas, self.part_ppas, n)
            first += n
        self.found.clear()
        return 0

    def recovery_erased(self):
        """Blocks in which a page of a run reads as erased: either their erase was interrupted by the power cut, or the
        host lost the erase and kept what was programmed after it. All their pages were superseded. Only an approximate
        prediction needs to look there."""
        return self.half_erased

    def recovery_steps(self):
        return (("relearn", "blocks", "learn the pages that are newer than the checkpoint", self.relearn_found),)

    def relearn_found(self):
        n = self.found.n
        self.relearn()
        return f"{n} pages"

    def recovery_ends(self):
        """Learn again what was found; without a budget, also load all translation pages."""
        self.relearn()
        if not self.pages.limit:
            self.pages.load_all()
        self.squeeze()
        super().recovery_ends()
        self.half_erased = set()

    cdef int squeeze(self) except -1 nogil:
        """Compact each group that exceeds its part of a checkpoint."""
        cdef uint32_t group, lpas
        for group in range(self.table.groups):
            lpas = min(<uint32_t> GROUP, self.ssd.lpas - group * GROUP)
            if not self.pages.settled(group) and self.table.group_bytes(group) > group_most(lpas):
                self.table.compact_group(group)
        return 0

    # --- checkpoints

    def reset(self):
        cdef uint32_t group
        for group in range(self.table.groups):
            self.table.drop_group(group)
            self.table.directory[group] = 0
        self.pages.clear()
        self.found.clear()
        super().reset()
        self.half_erased = set()

    def save(self):
        """For each group the length of its block (2 bytes), then the block; or IN_FLASH for a group that the section
        ``gmd`` locates."""
        cdef uint32_t group, n
        cdef uint64_t total = 0
        cdef uint8_t[::1] bytes_of
        cdef uint8_t* at
        self.squeeze()
        for group in range(self.table.groups):
            total += 2 + (0 if self.pages.settled(group) else self.table.group_bytes(group))
        out = bytearray(total)
        bytes_of = out
        at = &bytes_of[0]
        for group in range(self.table.groups):
            if self.pages.settled(group):
                at[0] = at[1] = 255
                at += 2
                continue
            n = self.table.save_group(group, at + 2)
            at[0] = n & 255
            at[1] = <uint8_t> (n >> 8)
            at += 2 + n
        # "inexact" is empty: after damage, several LPAs may map to one page, so live pages do not count mapped LPAs
        return {"groups": out, "gmd": self.pages.gmd.saved(), **({} if self.exact else {"inexact": b""})}

    def load(self, sections):
        """The inverse; ValueError names the first group that is wrong."""
        cdef const uint8_t[::1] saved = sections["groups"]
        cdef uint64_t at = 0, size = saved.shape[0]
        cdef uint32_t group, n, elsewhere = 0
        cdef const char* fault
        self.reset()
        for group in range(self.table.groups):
            n = saved[at] | <uint32_t> saved[at + 1] << 8 if at + 2 <= size else 0
            if n == <uint32_t> IN_FLASH:
                elsewhere += 1
                at += 2
                continue
            if at + 2 > size or n > size - at - 2:
                raise ValueError(f"groups section of {size} bytes: it ends in group {group} of {self.table.groups}")
            fault = self.table.load_group(group, &saved[at] + 2, n)
            if fault != NULL:
                raise ValueError(f"group {group}: {(<bytes> fault).decode()}")
            at += 2 + n
        if at != size:
            raise ValueError(f"groups section of {size} bytes: {at} are needed")
        self.pages.take(sections.get("gmd", b""))
        self.exact = "inexact" not in sections
        for group in range(self.table.groups):
            elsewhere -= self.table.directory[group] == ABSENT
        if elsewhere:
            raise ValueError("groups section: groups that are in flash are not those of the section gmd")

    # --- does it fit the pages?

    def verify(self, bint whole=True):
        """ValueError for a misfit. Guesses must only be pages of this chip; ``doubt`` checks the rest."""
        wrong = self.misfit(whole)
        if wrong and (self.gamma == 0 or not self.in_range):
            raise ValueError(wrong)

    def doubt(self, bint whole=True):
        """What ``verify`` tolerates, or None: a page with a false LPA may have misled overwrites of its neighbours."""
        return self.misfit(whole) if self.gamma else None

    def misfit(self, bint whole):
        """The first thing that is wrong, or None: each mapped page is live, no two LPAs share one, and no other page is
        live except translation pages. A guess must only have a live page in reach. Groups in flash are read if
        ``whole``, but not during a recovery, which may have to find them first; MapLostError if they cannot be read.
        Validity in flash is read likewise; else only its counts are compared."""
        cdef MapCheck agreement = MapCheck(self.ssd)
        cdef uint32_t first = 0, i, n, ppa
        cdef uint64_t others = 0
        cdef bint absent = False, blind
        wrong = None
        blind = self.ssd.validity.in_flash and not whole
        self.in_range = False
        while first < self.ssd.lpas:
            n = min(self.ssd.lpas - first, <uint32_t> PART)
            if (self.recovering or not whole) and self.table.directory[first // GROUP] == ABSENT:  # PART is a group
                absent = True
                first += n
                continue
            if self.table.directory[first // GROUP] == 0:
                first += n                  # nothing of the group is mapped
                continue
            for i in range(n):
                self.part_lpas[i] = first + i
            self.table.find_many(self.part_lpas, n, self.part_ppas, NULL, self.part_about)
            for i in range(n):
                ppa = self.part_ppas[i]
                if ppa == NONE:
                    continue
                if ppa >= agreement.pages:
                    return agreement.fault_of(first + i, ppa)
                if self.part_about[i]:
                    others += 1
                    if wrong is None and not blind and not self.any_live(ppa):
                        wrong = f"LPA {first + i} is near PPA {ppa}, where no page is live"
                elif not (agreement.enter_all(&ppa, 1, 0) if blind else agreement.enter(ppa)):
                    wrong = wrong or agreement.fault_of(first + i, ppa)
            first += n
        self.in_range = True
        others += len(self.translation_pages())
        return wrong or self.misplaced(whole) or agreement.fault_of_all(others, absent)

    cdef bint any_live(self, uint32_t predicted) except -1 nogil:
        """Whether a live page is in reach."""
        cdef uint32_t ppa = predicted
        while ppa != NONE:
            if self.ssd.validity.is_live(ppa):
                return True
            ppa = self.next_probe(predicted, ppa)
        return False
