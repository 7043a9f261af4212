# cold
"""What a recovery asks that scans nothing, because the mapping is known without a scan: pages of an earlier recovery
that did the same and was interrupted, and whether a page in the NVRAM is newer than what the mapping says."""
from libc.stdint cimport uint32_t, uint64_t

from flashfs.engine.blocks.pool cimport CAUSE_RECOVERY, KIND_USER, NONE, OOB_ENGINE, Oob
from flashfs.engine.recovery.found cimport HEADED, Found
from nandimg._nand cimport PAGE_OK

from contextlib import suppress

from flashfs.errors import MapLostError


cdef class Follower:
    """The part of a recovery that stands on a mapping which is known without a scan."""

    def __cinit__(self, Found found not None):
        self.found = found
        self.ssd = found.ssd

    cdef follow_moves(self, uint64_t order):
        """An earlier recovery without a scan was interrupted, and its moves are in blocks opened after ``order``. Their
        victims may be erased by now, or partly: after a crash of the host an erased block may have its records but not
        its data; and a victim may have been opened again. So if a page cannot be read where the mapping has it, the
        newest whole copy in those blocks counts."""
        cdef uint32_t block, page, lpa
        cdef Oob oob
        copies = {}
        erased = {block for block in range(self.ssd.pool.blocks) if self.ssd.validity.count(block)
                  and (not self.found.marks[block] & HEADED or self.found.orders[block] > order)}
        for block in erased:
            self.all_die(block)
        for block in range(self.ssd.pool.blocks):
            if not self.found.marks[block] & HEADED or self.found.orders[block] <= order:
                continue
            for page in range(self.ssd.pages_per_block):
                if (self.found.spare_read(block, page, &oob) == PAGE_OK and oob.kind == KIND_USER
                        and oob.lpa < self.ssd.lpas):
                    ppa = block * self.ssd.pages_per_block + page
                    copies.setdefault(oob.lpa, []).append((oob.seq, oob.order, ppa))
        for lpa, of in copies.items():
            with suppress(MapLostError):    # a lost entry of the mapping names nothing
                self.follow(lpa, sorted(of, reverse=True), erased)
        self.ssd.mapping.recovery_ends()    # it has taken them: what follows looks there
        for block in erased:
            self.revive(block)

    cdef all_die(self, uint32_t block):
        """All pages of a block die."""
        for page in self.ssd.validity.live_in(block):
            self.ssd.olds[0] = block * self.ssd.pages_per_block + page
            self.ssd.validity.dead(self.ssd.olds, 1)

    cdef revive(self, uint32_t block):
        """The pages of a block live that are where the mapping has their LPAs."""
        cdef uint32_t page, ppa
        cdef Oob oob
        for page in range(self.ssd.pages_per_block):
            ppa = block * self.ssd.pages_per_block + page
            with suppress(MapLostError):
                if (self.found.full_read(ppa, &oob) == PAGE_OK and oob.kind == KIND_USER and oob.lpa < self.ssd.lpas
                        and self.ssd.mapping.locate(oob.lpa) == ppa):
                    self.ssd.validity.live_run(ppa, 1)

    cdef follow(self, uint32_t lpa, list copies, set erased):
        """``copies``: (sequence number, order, PPA) of pages of this LPA, the newest first. Pages in the blocks
        ``erased`` are dead for the moment."""
        cdef Oob oob
        cdef uint32_t old = self.ssd.mapping.locate(lpa), ppa
        if old == NONE or self.found.full_read(old, &oob) == PAGE_OK and oob.kind == KIND_USER and oob.lpa == lpa:
            return
        for _, _, ppa in copies:
            if ppa != old and self.found.full_read(ppa, &oob) == PAGE_OK:
                if old // self.ssd.pages_per_block not in erased:
                    self.ssd.olds[0] = old
                    self.ssd.validity.dead(self.ssd.olds, 1)
                self.ssd.mapping.recovered(lpa, ppa, self.ssd.read_oobs + OOB_ENGINE)
                if ppa // self.ssd.pages_per_block not in erased:
                    self.ssd.validity.live_run(ppa, 1)
                return

    cdef bint doubts_slots(self, uint64_t trimmed) except -1:
        """Whether a page in the NVRAM may be older than a trim on which log and mapping disagree. Either the mapping
        has no page of that LPA and the log may lack the trim's record, so it is unknown whether the LPA was trimmed. Or
        there is a record, but the mapping has a page older than that trim: after a crash of the host, the mapping's
        state is from an earlier time than the log, when the page in the NVRAM was the newest."""
        cdef uint64_t logged = self.found.checkpoint_seq, newest
        cdef uint32_t ppa
        self.slots = self.ssd.buffer.survivors(CAUSE_RECOVERY)
        if self.found.trim_index.count():
            logged = max(logged, self.found.trim_index.record(self.found.trim_index.count() - 1).seq)
        self.found.trim_index.begin()
        for lpa, seq, _ in sorted(self.slots, key=lambda slot: slot[0]):
            if lpa >= self.ssd.lpas or seq <= self.found.checkpoint_seq:
                continue
            try:
                ppa = self.ssd.mapping.locate(lpa)
            except MapLostError:
                return True
            if ppa == NONE:
                if logged < trimmed and seq < trimmed:
                    return True
                continue
            newest = self.found.trim_index.newest(lpa)
            if seq < newest and self.is_from_before(ppa, newest):
                return True
        return False

    cdef bint is_from_before(self, uint32_t ppa, uint64_t seq) except -1:
        """Whether that page can be read and has a sequence number below ``seq``."""
        cdef Oob oob
        return self.found.spare_read(ppa // self.ssd.pages_per_block, ppa % self.ssd.pages_per_block,
                                     &oob) == PAGE_OK and oob.seq < seq
