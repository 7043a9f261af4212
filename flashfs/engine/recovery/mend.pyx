# cold
# distutils: language = c++
# cython: wraparound=True
"""Repairs by a recovery when pages are missing and mapping, validity and pool are inconsistent."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from flashfs.engine.blocks.pool cimport KIND_USER, NONE, OOB_ENGINE, STATE_BAD, STATE_CLOSED, STATE_OPEN, Oob
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport Found
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

from flashfs.errors import CorruptError, MapLostError

#: a look at all LPAs may have to write pages of the map, and to clean for them: a page that moves meanwhile leaves an
#: LPA behind that named it wrongly. The next look finds that
PASSES = 4


cdef class Mender:
    """Repairs after the pages are found, before the device is ready."""

    def __cinit__(self, Found found not None):
        self.found = found
        self.ssd = found.ssd

    cdef misfit(self, bint whole):
        """What is wrong with the loaded mapping, or None. ``whole``: also read its parts in flash."""
        if self.found.doubted is not None:
            return self.found.doubted
        try:
            self.ssd.mapping.recovery_ends()
            self.ssd.mapping.verify(whole)
            doubt = self.ssd.mapping.doubt(whole)
        except (ValueError, MapLostError) as error:
            return error
        self.ssd.mapping.rebuild_allowed()
        return doubt

    cdef bint forget_homeless(self) except -1:
        """Drop live pages in blocks that are neither open, closed nor bad (metadata or free blocks). After damage the
        map may name pages of such a block, and a store that counts by the map then calls them live. Returns whether
        there were any."""
        cdef uint32_t block
        cdef int state
        found = False
        for block in range(self.ssd.pool.blocks):
            state = self.ssd.pool.state[block]
            if state != STATE_OPEN and state != STATE_CLOSED and state != STATE_BAD and self.ssd.validity.count(block):
                self.ssd.validity.forget(block)
                found = True
        return found

    cdef mend(self, why):
        """Repair the mapping after damage: lost translation pages are rebuilt from the live pages, LPAs that map to no
        live page or to another LPA's become holes, and pages without an LPA die. CorruptError if the result is still
        inconsistent."""
        cdef Ssd ssd = self.ssd
        self.found.alarm(f"the recovered mapping does not fit the pages ({why}): LPAs that name none of them are holes "
                         "now")
        ssd.mapping.rebuild_allowed()
        for kind, at in ssd.owned_pages():
            if not ssd.validity.is_live(<uint32_t> at) or self.is_of_another_kind(<uint32_t> at, kind):
                ssd.lose(kind, <uint32_t> at)
        if not ssd.mapping.is_exact():
            self.ask_pages()
        for _ in range(PASSES):
            self.keep_owned()
            doubt = self.doubt_of_all()
            if not doubt:
                return
        raise CorruptError(f"the recovered mapping cannot be: {doubt}")

    cdef displaced(self):
        """Which page of metadata is another's, or None. Counts may agree all the same: such a page is live, and has an
        owner, but does not die with it."""
        for kind, at in self.ssd.owned_pages():
            if self.is_of_another_kind(<uint32_t> at, kind):
                return f"PPA {at}: a page of another kind than an old checkpoint says"
        return None

    cdef bint is_of_another_kind(self, uint32_t ppa, int kind) except -1:
        """Whether a page that metadata should be at is another's, as the block was opened since an old checkpoint. It
        may live, as that one's; and nobody reads it as metadata while newer entries in DRAM answer for it."""
        cdef Oob oob
        cdef uint32_t block = ppa // self.ssd.pages_per_block
        if self.ssd.kind_of(block) == kind:
            return False
        return self.found.spare_read(block, ppa % self.ssd.pages_per_block, &oob) == PAGE_OK and oob.kind != kind

    cdef doubt_of_all(self):
        """What is wrong with mapping and validity, every page of the map read; or None."""
        try:
            self.ssd.mapping.verify(True)
            return self.ssd.mapping.doubt(True)
        except ValueError as error:
            return error

    cdef int keep_owned(self) except -1:
        """An LPA keeps a live user page that no other LPA has; a live page without an owner dies. If several LPAs map
        to a page, the one that its OOB names keeps it: the own page of the other is lost, and its map entry is old. An
        LPA also keeps a page that was flushed and cannot be read, which a scan took for nobody's: what the LPA held is
        not known, so a read must say that, and no hole."""
        cdef uint32_t lpa, ppa
        cdef Ssd ssd = self.ssd
        cdef uint64_t pages = <uint64_t> ssd.nand.blocks * ssd.pages_per_block
        cdef uint8_t* owned = <uint8_t*> calloc(pages // 8 + 1, 1)
        if owned == NULL:
            raise MemoryError
        disputed = set()
        try:
            lpa = ssd.mapping.next_named(0, ssd.lpas)
            while lpa < ssd.lpas:
                ppa = ssd.mapping.locate(lpa)
                if ppa != NONE and not ssd.validity.is_live(ppa) and self.is_rotten(ppa):
                    ssd.validity.live_run(ppa, 1)
                if (ppa == NONE or not ssd.validity.is_live(ppa)
                        or ssd.kind_of(ppa // ssd.pages_per_block) != KIND_USER):
                    ssd.mapping.unbind(lpa, 1, ssd.olds)
                elif owned[ppa >> 3] >> (ppa & 7) & 1 and ssd.mapping.sharing is None:
                    disputed.add(ppa)
                else:
                    owned[ppa >> 3] |= <uint8_t> (1 << (ppa & 7))
                lpa = ssd.mapping.next_named(lpa + 1, ssd.lpas)
            self.resolve_disputes(disputed)
            for _, ppa in ssd.owned_pages():
                owned[ppa >> 3] |= <uint8_t> (1 << (ppa & 7))
            self.bury(owned)
        finally:
            free(owned)
        return 0

    cdef bint is_rotten(self, uint32_t ppa) except -1:
        """Whether a page of a block of user pages was flushed and cannot be read."""
        cdef uint32_t block = ppa // self.ssd.pages_per_block, page = ppa % self.ssd.pages_per_block
        cdef int state = self.ssd.pool.state[block]
        cdef int status
        cdef Oob oob
        if ((state != STATE_OPEN and state != STATE_CLOSED) or self.ssd.kind_of(block) != KIND_USER
                or page >= self.ssd.nand.synced(block)):
            return False
        status = self.found.spare_read(block, page, &oob)
        return status != PAGE_OK and status != PAGE_ERASED

    cdef resolve_disputes(self, set ppas):
        """Let one LPA keep each of these pages, and unmap the others."""
        cdef uint32_t lpa, ppa
        cdef Ssd ssd = self.ssd
        claims = {}
        for lpa in range(ssd.lpas if ppas else 0):
            ppa = ssd.mapping.locate(lpa)
            if ppa != NONE and ppa in ppas:
                claims.setdefault(ppa, []).append(lpa)
        for at, lpas in claims.items():
            keeps = next((lpa for lpa in lpas if self.found.is_of(at, lpa, 0)), lpas[0])
            for one in lpas:
                if one != keeps:
                    ssd.mapping.unbind(one, 1, ssd.olds)

    cdef int bury(self, const uint8_t* owned) except -1:
        """Report live pages without an owner as dead. ``owned``: one bit per page."""
        cdef uint32_t block
        cdef Ssd ssd = self.ssd
        for block in range(ssd.pool.blocks):
            for page in ssd.validity.live_in(block) if ssd.validity.count(block) else ():
                ssd.olds[0] = block * ssd.pages_per_block + page
                if not owned[ssd.olds[0] >> 3] >> (ssd.olds[0] & 7) & 1:
                    ssd.validity.dead(ssd.olds, 1)
        return 0

    cdef ask_pages(self):
        """Map each LPA to the newest live page whose OOB names it; older ones die. Pages that cannot be read stay with
        their LPAs."""
        cdef uint32_t block, lpa, ppa = NONE
        cdef Oob oob
        cdef Ssd ssd = self.ssd
        newest = {}
        for block in range(ssd.pool.blocks):
            for page in ssd.validity.live_in(block):
                if self.found.spare_read(block, page, &oob) != PAGE_OK or oob.kind != KIND_USER or oob.lpa >= ssd.lpas:
                    continue
                found = (oob.seq, block * ssd.pages_per_block + page, bytes(ssd.read_oobs[OOB_ENGINE:ssd.oob_bytes]))
                lpa = oob.lpa
                ssd.mapping.peek(&lpa, 1, &ppa)
                if ppa == NONE or found < newest.get(lpa, (0,)):
                    ssd.olds[0] = found[1]
                else:
                    ssd.olds[0] = newest[lpa][1] if lpa in newest else NONE
                    newest[lpa] = found
                ssd.validity.dead(ssd.olds, 1)
        for lpa, (_, at, stamp) in newest.items():
            ssd.mapping.recovered(lpa, at, stamp)
        ssd.mapping.recovery_ends()
