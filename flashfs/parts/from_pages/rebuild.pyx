# cold
# distutils: language = c++
"""Recovery from the pages themselves, for a mapping and a validity store in flash of which there is no checkpoint
(GeckoRec, N. Dayan et al., GeckoFTL, SIGMOD 2016, section 4.3 and Appendix C).

Between clean unmounts such a scheme writes *fences*: checkpoints that say where the scan for newer pages begins, and
nothing that grows with the device. At a fence every entry that was newer than its translation page at the fence before,
and has not changed since, is written to that page; every report of validity is programmed; and blocks that cleaning
emptied are erased. So after a crash

- the newest whole version of each translation page counts, whenever it was programmed;
- an entry that is newer than its page was written since the fence before the last one: that is where the scan of user
  pages begins, and the log of trims is kept as long;
- a metadata page that no sync made durable is passed over: the scan finds what it recorded, and the death of the host
  may have taken pages that it names;
- reports that validity had received but not programmed are about pages that the scan finds, or about pages that a
  translation page named before it was last written. For the latter, the versions of that page are compared.

The old place of an LPA that the scan finds is not looked up. Its entry is marked instead, and compared with its
translation page when that is written (Appendix C.3). So unfinished moves cannot be recognized by what they left, as the
engine does elsewhere: only copies in the blocks that cleaning opened last are looked up.

A translation page that was durable and cannot be read may have been the newest version: whenever flash is damaged, all
translation pages are compared with validity at the end, and what does not fit is checked page by page. If the part of
validity that was in force is missing, all user pages are read, as if there were no checkpoint.

That holds for a validity store in flash that does not need the mapping. A store with ``by_map`` gets its live pages
from the mapping once all entries are known: every translation page is read, and what they and the newer entries name
lives. LazyFTL's bitmap in DRAM is rebuilt so; IB-FTL's log, which is read whole, is compared with it, because the
reports that waited are lost. Nothing else says which pages live then: so if translation pages are damaged all pages are
read, and after any other damage each page that is named is asked which LPA it has.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc

from flashfs.engine.recovery.found_pages cimport FoundPages, Entry, entry_flags, entry_seq
from flashfs.engine.contract.owner cimport Owner
from flashfs.engine.blocks.pool cimport (
    FLAG_LAST,
    FLAG_MOVED,
    KIND_TRANSLATION,
    KIND_USER,
    KIND_VALIDITY,
    NONE,
    STREAM_META,
    Oob,
    order_runs_out,
)
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.recovery.found cimport EXCLUDED, HEADED, REOPENED, SCANNED
from flashfs.engine.recovery.recovery_base cimport RecoveryBase
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

import struct

import numpy

from flashfs.engine.blocks.pool import SAVED_BYTES, STATES
from flashfs.errors import CorruptError, MapLostError
from flashfs.parts.from_pages.scan_mark import unpack_mark
from flashfs.parts.paged.demand_map import MAP_STRAYS


cdef class Rebuilder(RecoveryBase):
    """The steps that build the sections of a checkpoint from pages."""

    def __cinit__(self, Ssd ssd not None):
        self.ssd = ssd

    cdef int take(self, checkpoint) except -1:
        if "fence" not in checkpoint.sections:
            return 0
        try:
            self.found.fence = unpack_mark(bytes(checkpoint.sections["fence"]), self.ssd.pool,
                                           bytes(checkpoint.sections.get("tblocks", b"")))
        except (ValueError, struct.error) as error:
            raise CorruptError(f"checkpoint {checkpoint.identity}: {error}") from None
        self.found.checkpoint_seq = self.found.fence.seq
        self.found.base_order = self.found.fence.order
        self.found.from_pages = True
        return 0

    def steps(self):
        by_map = self.ssd.validity.by_map
        return [
            ("mapping", "translation", "checkpoint", "read the spare areas of translation blocks",
             self.read_translation),
            ("validity", "log" if by_map else "runs", "checkpoint",
             "read the spare areas of validity blocks, and what is in force", self.read_validity),
            ("validity", "counts", "checkpoint", "count the pages of each block that may live", self.count_live),
            ("validity", "named", "resolve", "read all translation pages: what they and newer entries name lives",
             self.name_all) if by_map else
            ("validity", "reports", "resolve", "find what was reported to validity last", self.find_reports),
        ]

    def read_translation(self):
        """Finds the versions of each translation page (GeckoRec, step 2)."""
        if not self.found.from_pages:
            return "not needed"
        self.check_heads()
        self.found.unknown = False
        self.read_kind(KIND_TRANSLATION)
        self.versions, _, passed = self.versions_of(KIND_TRANSLATION)
        self.passed = numpy.unique(passed).tolist()
        if (self.judge_broken() > 0 or self.found.unknown) and self.ssd.validity.by_map:
            return self.read_all("a translation page that was flushed cannot be read")
        return f"{len(self.versions[0])} versions, {len(numpy.unique(self.versions[0]))} pages" + (
            f", {len(passed)} not durable" if len(passed) else "")

    def read_validity(self):
        """Finds the part of validity in flash (step 3), and up to when reports were programmed."""
        if not self.found.from_pages:
            return "not needed"
        if self.ssd.owner_at[KIND_VALIDITY] == NULL:
            return "it is in DRAM"
        self.found.unknown = False
        self.read_kind(KIND_VALIDITY)
        versions, last, passed = self.versions_of(KIND_VALIDITY)
        if self.found.unknown and not self.ssd.validity.by_map:
            return self.read_all("a page of metadata cannot be read")
        try:
            sections, stamp, note = self.ssd.validity.base_from_pages(versions, last)
            if stamp < self.found.fence.stamp:
                raise MapLostError(f"what validity had in force at number {self.found.fence.stamp} is not there")
        except (MapLostError, ValueError) as error:
            return self.read_all(error)
        self.since = max(stamp, <uint64_t> self.found.fence.seq)
        self.found.base.sections.update({**sections, "outdo": bytes([len(passed) > 0])})
        return note + (f", {len(passed)} pages not durable" if len(passed) else "")

    def count_live(self):
        """Counts live pages (step 5); then all sections of a checkpoint are there, and are loaded."""
        if not self.found.from_pages:
            return "not needed"
        base = self.found.base.sections
        ends = self.ends()
        try:
            base.update(self.ssd.validity.counts_from_pages(base, ends))
            strays = MAP_STRAYS if base.get("mapped") == MAP_STRAYS["mapped"] else {}
            base.update({**self.ssd.mapping.base_from_pages(self.versions), **strays,
                         **{name: base[name] for name in ("newer", "uip") if name in base}})
            base["passed"] = numpy.array(self.passed, "<u4").tobytes()
            base["kept"] = b"" if self.ssd.validity.by_map else self.needed_versions().tobytes()
            base["pool"] = self.pool_as_of_fence()
            self.found.load_base()
        except (MapLostError, ValueError, CorruptError) as error:
            return self.read_all(error)
        self.mark_recent()
        return f"{int((ends > 0).sum())} blocks of user pages"

    def find_reports(self):
        """Finds the reports that validity had received but not programmed (step 4), now that all entries are known."""
        if not self.found.from_pages:
            return "not needed"
        return self.ssd.mapping.find_reports(self.versions, self.since, self.is_reopened)

    def name_all(self):
        """Sets the live pages to those that the mapping names, now that all entries are known."""
        if not self.found.from_pages:
            return "not needed"
        try:
            return self.take_names()
        except MapLostError as error:
            note = self.read_all(error)
        self.resolver.scan_and_settle()
        return f"{note}; {self.resolver.resolve_all()}"

    def take_names(self):
        words = (self.ssd.pages_per_block + 63) // 64
        bits = numpy.zeros(self.ssd.nand.blocks * words, numpy.uint64)
        before = self.ssd.mapping.store.reads
        hurt = self.found.torn_inside or len(self.found.alarms) > 0 or self.ssd.mapping.strays
        self.ssd.mapping.counted(0)
        n = self.name_lpas(bits, words, hurt)
        self.ssd.mapping.counted(n)
        for ppa in self.ssd.mapping.translation_pages():
            block, page = divmod(ppa, self.ssd.pages_per_block)
            bits[block * words + page // 64] |= numpy.uint64(1 << page % 64)
        pages = self.ssd.mapping.store.reads - before
        return f"{pages} pages, {n} LPAs" + self.ssd.validity.take_named(bits)

    cdef uint64_t name_lpas(self, uint64_t[::1] bits, uint32_t words, bint hurt) except? 0xFFFFFFFFFFFFFFFF:
        """Sets a bit for each page that an LPA is at; returns how many. An LPA at another's page, which only damage
        leaves (``hurt``), is unbound."""
        cdef uint32_t lpa, after = 0, ppa = NONE, page
        cdef uint64_t at, n = 0, pages = <uint64_t> self.ssd.nand.blocks * self.ssd.pages_per_block
        while True:
            lpa = self.ssd.mapping.next_named(after, self.ssd.lpas)
            if lpa == self.ssd.lpas:
                return n
            after = lpa + 1
            self.ssd.mapping.peek(&lpa, 1, &ppa)
            if ppa == NONE:
                continue
            page = ppa % self.ssd.pages_per_block
            at = <uint64_t> (ppa // self.ssd.pages_per_block) * words + page // 64
            if ppa >= pages or bits[at] >> (page & 63) & 1 or hurt and self.is_of_another(ppa, lpa):
                self.found.alarm("the recovered mapping does not fit the pages: LPAs that name none of them are holes "
                                 "now")
                self.ssd.mapping.unbind(lpa, 1, self.ssd.olds)
                continue
            bits[at] |= <uint64_t> 1 << (page & 63)
            n += 1

    cdef bint is_of_another(self, uint32_t ppa, uint32_t lpa) except -1:
        """Whether a page says that it is not that LPA's. An unreadable page stays mapped, and reads of it give EIO."""
        cdef Oob oob
        cdef int status
        if self.ssd.nand.health(ppa // self.ssd.pages_per_block):
            return False
        status = self.found.spare_read(ppa // self.ssd.pages_per_block, ppa % self.ssd.pages_per_block, &oob)
        return status == PAGE_ERASED or status == PAGE_OK and (oob.kind != KIND_USER or oob.lpa != lpa)

    cdef bint is_collected(self, uint32_t block) noexcept nogil:
        return self.found.from_pages and self.found.marks[block] & HEADED and (
            self.found.streams[block] == (<Owner> self.ssd.owner_at[KIND_TRANSLATION]).stream
            or self.ssd.owner_at[KIND_VALIDITY] != NULL
            and self.found.streams[block] == (<Owner> self.ssd.owner_at[KIND_VALIDITY]).stream)

    def is_reopened(self, uint32_t block):
        """Whether the scan knows all of a block."""
        return bool(self.found.marks[block] & REOPENED)

    def read_all(self, why):
        """Gives up the checkpoint: the scan reads all pages."""
        self.found.give_up(why)
        return f"given up: {why}"

    def committed(self):
        """Notes the pages of metadata that were found as flushed. The fence that ends this recovery counts them as
        such: they are older. Without a note, a block of which the first page is spoilt later looks as if its erase had
        begun, and nobody would miss its pages."""
        cdef uint32_t block
        for block in range(self.ssd.nand.blocks):
            if (self.found.marks[block] & (SCANNED | EXCLUDED) == SCANNED and self.is_collected(block)
                    and self.ssd.pool.order[block] == self.found.orders[block] and self.ssd.validity.count(block)):
                self.ssd.nand.mark_synced(block, self.found.whole[block])

    # --- metadata pages

    cdef int check_heads(self) except -1:
        """Each block has an order of its own. If the first pages of two blocks have the same, one of them was meant for
        another block. So was the first page of a block that had translation pages at the fence, if it says that the
        block was opened before the fence for something else. The block's later pages say which block it is."""
        cdef uint32_t block
        first = {}
        for block in self.found.fence.translation:
            if (self.found.marks[block] & HEADED and self.found.orders[block] <= self.found.base.order
                    and self.found.streams[block] != (<Owner> self.ssd.owner_at[KIND_TRANSLATION]).stream
                    and not self.ask_later_pages(block)):
                self.found.missing(block, 0)
        for block in range(self.ssd.nand.blocks):
            if self.found.marks[block] & HEADED:
                first.setdefault(self.found.orders[block], []).append(block)
        for blocks in first.values():
            for block in blocks if len(blocks) > 1 else ():
                self.ask_later_pages(block)
        for block in range(self.ssd.nand.blocks):
            if self.found.marks[block] & HEADED and self.found.orders[block] > self.found.base_order:
                self.ask_flushed_pages(block)
        return 0

    cdef int ask_flushed_pages(self, uint32_t block) except -1:
        """The block for which a first page was meant may have no first page, as it was not programmed again. Then the
        next page of the block that has it by mistake, if durable, says when this block was opened."""
        cdef uint32_t page, durable = self.ssd.nand.synced(block)
        # If some first page is lost, the first whole page may be the wrong one.
        cdef bint headed = not self.found.headless
        cdef Oob oob
        for page in range(1 if headed else 0, durable):
            if self.found.spare_read(block, page, &oob) == PAGE_OK:
                if not headed:
                    headed = True
                    continue
                if (oob.order != self.found.orders[block] and oob.stream < self.ssd.pool.streams_n
                        and not order_runs_out(oob.order) and self.scanner.is_displaced(block, page, &oob, durable)):
                    self.scanner.disown_first(block, &oob)
                return 0
        return 0

    cdef bint ask_later_pages(self, uint32_t block) except -1:
        """If the first page of a block was meant for another, takes order and stream from a later page. Returns whether
        one has them."""
        cdef uint32_t page
        cdef Oob oob
        for page in range(1, self.ssd.pages_per_block):
            if (self.found.spare_read(block, page, &oob) == PAGE_OK and oob.order != self.found.orders[block]
                    and oob.stream < self.ssd.pool.streams_n and not order_runs_out(oob.order)):
                self.found.alarm(f"block {block}: its first page was meant for another block")
                self.found.orders[block] = self.ssd.pool.order[block] = oob.order
                self.found.streams[block] = oob.stream
                self.found.order = max(self.found.order, oob.order)
                return True
        return False

    cdef int read_kind(self, int kind) except -1:
        """Collects all whole pages of a kind, from the blocks of its stream."""
        cdef uint32_t block
        cdef int stream = (<Owner> self.ssd.owner_at[kind]).stream
        self.found.collecting = True
        try:
            with nogil:
                for block in range(self.ssd.nand.blocks):
                    if self.found.marks[block] & HEADED and self.found.streams[block] == stream:
                        self.scanner.scan_block(block, 0)
        finally:
            self.found.collecting = False
        return 0

    cdef int judge_broken(self) except -1:
        """A translation page that was durable and is spoilt is missing if there is no newer version of it, and no copy:
        after the death of the host, a block erased since may have its old spare areas. Returns how many are missing."""
        cdef int n = 0
        ids, seqs, _ = self.versions
        for kind, number, seq, ppa in self.found.broken:
            if kind == KIND_TRANSLATION and not ((ids == number) & (seqs >= seq)).any():
                self.found.missing(ppa // self.ssd.pages_per_block, ppa % self.ssd.pages_per_block)
                n += 1
        return n

    cdef versions_of(self, int kind):
        """((numbers, sequence numbers, PPAs), whether each may be the last of something, numbers of pages of which a
        version is not durable, and does not count). A version with several copies has the PPA of the newest durable
        one. A page is durable if it is older than the checkpoint, or below its block's mark of the last sync."""
        cdef FoundPages entries = self.found.owned[kind]
        cdef Entry* at
        cdef uint64_t i, n = entries.count(), k = 0, newest = self.found.base.seq
        cdef uint32_t per_block = self.ssd.pages_per_block, place = NONE
        cdef bint proven = False
        cdef list passed = []
        cdef uint32_t[::1] ids, ppas
        cdef uint64_t[::1] seqs
        cdef unsigned char[::1] lasts
        id, ppa = numpy.empty(n, numpy.uint32), numpy.empty(n, numpy.uint32)
        seq, last = numpy.empty(n, numpy.uint64), numpy.empty(n, numpy.uint8)
        ids, ppas, seqs, lasts = id, ppa, seq, last
        if n:
            entries.sort((<Owner> self.ssd.owner_at[kind]).ids)
        for i in range(n):
            at = entries.entry(i)
            if entry_seq(at) <= newest or at.ppa % per_block < self.ssd.nand.synced(at.ppa // per_block):
                proven = True
                place = at.ppa              # a copy that is not durable would not count once the original is erased
            if i + 1 < n and at[1].key == at.key and entry_seq(at + 1) == entry_seq(at):
                continue
            if not proven:
                passed.append(at.key)
                continue
            proven = False
            ids[k] = at.key
            ppas[k] = place
            seqs[k] = entry_seq(at)
            lasts[k] = entry_flags(at) & (FLAG_LAST | FLAG_MOVED) != 0
            k += 1
        entries.clear()
        return (id[:k], seq[:k], ppa[:k]), last[:k], passed

    def needed_versions(self):
        """PPAs of superseded versions that show what was reported since validity last programmed its reports: those
        written since, and the one before them."""
        ids, seqs, ppas = self.versions
        if len(ids) == 0:
            return ppas
        behind = numpy.append(numpy.diff(ids) == 0, False)  # another version of the page follows
        follows = numpy.append(seqs[1:] > self.since, False)
        return ppas[behind & follows]

    # --- blocks

    def is_unreadable(self, uint32_t block):
        """Whether a block had pages at a sync, and no spare area of it can be read now: its pages may still be where
        entries say."""
        return (not self.found.marks[block] & HEADED and self.ssd.nand.synced(block) > 0
                and self.ssd.nand.health(block) == 0)

    def ends(self):
        """Of each block, how many user pages it has from before the scan's beginning."""
        cdef uint32_t block
        cdef set others = self.other_streams()
        ends = numpy.zeros(self.ssd.nand.blocks, numpy.uint32)
        for block in range(self.ssd.nand.blocks):
            if (self.found.marks[block] & HEADED and self.found.orders[block] <= self.found.base_order
                    and self.found.streams[block] not in others):
                ends[block] = self.found.fence.open.get(block, self.ssd.pages_per_block)
            elif self.is_unreadable(block):
                ends[block] = self.ssd.nand.synced(block)
        return ends

    cdef set other_streams(self):
        """The streams of metadata."""
        return {STREAM_META, *((<Owner> self.ssd.owner_at[kind]).stream for kind in (KIND_TRANSLATION, KIND_VALIDITY)
                               if self.ssd.owner_at[<int> kind] != NULL)}

    def pool_as_of_fence(self):
        """The section ``pool``: a block that was open at the scan's beginning is open; one opened since, whose pages
        the fence does not know, is closed."""
        cdef uint32_t block
        cdef set others = self.other_streams()
        out = bytearray()
        for block in range(self.ssd.nand.blocks):
            state, next_page = "free", 0
            if self.found.marks[block] & HEADED and self.found.streams[block] != STREAM_META:
                state, next_page = "closed", self.ssd.pages_per_block
                if self.found.streams[block] in others:
                    next_page = self.found.next_page[block]
                elif self.found.orders[block] <= self.found.base_order and block in self.found.fence.open:
                    state, next_page = "open", self.found.fence.open[block]
            elif self.is_unreadable(block):  # pages programmed after the last sync may be whole
                next_page = self.ssd.nand.synced(block)
                state = "open" if next_page < self.ssd.pages_per_block else "closed"
            retiring = 128 if block in self.found.fence.retiring else 0
            order = self.found.orders[block] if self.found.marks[block] & HEADED else 0
            stream = self.found.streams[block] if self.found.marks[block] & HEADED else 0
            out += struct.pack("<BBH", STATES[state] | retiring, stream, next_page) + order.to_bytes(6, "little")
        assert len(out) == SAVED_BYTES * self.ssd.nand.blocks
        return bytes(out) + self.ssd.pool.saved_names()

    cdef int mark_recent(self) except -1:
        """Marks the blocks whose copies are asked for their source: those opened last, more than one move can fill."""
        cdef uint32_t block
        cdef set others = self.other_streams()
        newest = {}
        for block in range(self.ssd.nand.blocks):
            if self.found.marks[block] & HEADED and self.found.streams[block] not in others:
                newest.setdefault(self.found.streams[block], []).append((self.found.orders[block], block))
        if self.resolver.recent == NULL:
            self.resolver.recent = <uint8_t*> calloc(self.ssd.nand.blocks, 1)
        if self.resolver.recent == NULL:
            raise MemoryError
        for found in newest.values():
            for _, block in sorted(found, reverse=True)[:2 * self.ssd.nand.dies + 2]:
                self.resolver.recent[block] = 1
        return 0
