"""What a battery keeps of a demand-paged mapping: what is newer than its translation pages, where those are, and which
pages live. With it a recovery scans nothing that a checkpoint or a sync has made durable (GeckoFTL's paper, section
5.3, on DFTL: the battery saves the dirty entries, and the PVB).

The words of the region (Battery), one behind the other:

    0            the newest sequence number that was given when the mapping was last changed
    1            the sum over all user pages that the mapping names, of ``named_by``
    2            1 + the newest sequence number before the last trim
    8            of each block: when it was opened, and in bits 48 on its stream
    then         the PVB, as a checkpoint has it
    then         the GTD, two translation pages a word, the first in the low half: PPA + 1, or 0
    then         of each slot of the cache, if its entry is dirty: (LPA + 1) << 32 | PPA, else 0
    then         the same of each pending entry, at any place; a slot that has the LPA too is newer

Battery proves that the words are all of one moment since the last sync. That the moment is not in the middle of a
change is what word 1 is for: mapping and validity change one after the other, and agree only when both are through.
So whoever changes what the mapping names puts the sum to come first, then the entries; validity follows; and the sum
over the pages that live (those of translation pages left out) is word 1 again when the last bit is put. A translation
page that is written needs no sum: at each word of that, the entries are there, or in the page that the GTD names.

What death of the host leaves may be of an earlier moment, and programs since the last sync may be lost, those too that
the words count on. The chip's marks say up to where each block was whole at a sync: live pages beyond are looked at,
one spare area each, and so is the block's first page. If one of them is not there, the words are not believed.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.engine.battery cimport Battery
from flashfs.engine.defaults cimport PageBitmap
from flashfs.engine.parts cimport Engine
from flashfs.engine.pool cimport (
    CAUSE_MAP,
    CAUSE_RECOVERY,
    KIND_TRANSLATION,
    KIND_USER,
    NONE,
    STREAM_MAP,
    STREAM_META,
    Oob,
    oob_unpack,
    runs_out,
)
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

import numpy

from flashfs.engine.battery import nvram_bytes

cdef enum:
    SEQ = 0
    NAMES = 1
    TRIMMED = 2
    FIXED = 8                # words before those of the blocks
    ORDER_BITS = 48

cdef uint64_t UNFINISHED = <uint64_t> 1 << 63  # the stamp of a region that is being filled


def layout(blocks, pages_per_block, pages, slots, places):
    """Word numbers: of the blocks' words, the PVB, the GTD, the slots, the places; and how many words there are."""
    bits = FIXED + blocks
    page_ppas = bits + blocks * -(-pages_per_block // 64)
    first_slot = page_ppas + -(-pages // 2)
    return FIXED, bits, page_ppas, first_slot, first_slot + slots, first_slot + slots + places


def pages_of(lpas, page_bytes):
    """Translation pages of so many LPAs."""
    return -(-lpas // (page_bytes // 4))


def places_for(slots, page_bytes, pages_per_block):
    """Pending entries that there is room for: after a recovery all that were cached, else those of a few translation
    pages and of a block that was moved."""
    return slots + page_bytes + 2 * pages_per_block


def region_bytes(geometry, slots):
    """Bytes of NVRAM for a mapping with so many slots in its cache."""
    places = places_for(slots, geometry.page_bytes, geometry.pages_per_block)
    pages = pages_of(geometry.lpas, geometry.page_bytes)
    return nvram_bytes(layout(geometry.blocks, geometry.pages_per_block, pages, slots, places)[5])


cdef class MapBattery:
    """The NVRAM region ``region`` of the chip, for a cache of up to ``slots`` slots. ``off``: nothing is kept there,
    and what is there may not be believed once anything is changed. ValueError if the region is smaller."""

    def __cinit__(self, Engine ssd not None, region, uint32_t slots, bint off=False):
        self.ssd = ssd
        self.region = region
        self.slots = slots
        self.places = places_for(slots, ssd.nand.page_bytes, ssd.nand.pages_per_block)
        self.pages = pages_of(ssd.lpas, ssd.nand.page_bytes)
        at = layout(ssd.nand.blocks, ssd.nand.pages_per_block, self.pages, self.slots, self.places)
        self.blocks_at, self.bits_at, self.ppas_at, self.slots_at, self.places_at = at[:5]
        self.words = Battery(ssd.nand, region, at[5])
        self.off = off
        self.state = REFUSED if off else WAITING
        self.why = "battery=0" if off else None
        self.stale = off

    @staticmethod
    def slots_for(nand, lpas, region):
        """Slots that a region has room for, as it was laid out; 0 if there is no such region."""
        found = nand.region(region)
        if found is None:
            return 0
        pages = pages_of(lpas, nand.page_bytes)
        none = nvram_bytes(layout(nand.blocks, nand.pages_per_block, pages, 0,
                                  places_for(0, nand.page_bytes, nand.pages_per_block))[5])
        return max(0, found[1] - none) // 16

    # --- from moment to moment

    cdef int64_t put(self, uint64_t index, uint64_t value) except -1 nogil:
        if self.words.get(index) != value:
            self.ssd.map_ns = self.words.put(index, value, CAUSE_MAP, self.ssd.map_ns)
        return 0

    def wait(self):
        """A load or a recovery begins."""
        if not self.off:
            self.state = WAITING
            self.for_good = False
            self.why = None

    def ready(self):
        """The mount was clean: the next change begins to be kept."""
        if not self.off and not self.for_good:
            self.state = READY

    cdef int refuse(self, bint for_good) except -1 nogil:
        """Nothing more is kept; ``for_good``: in this mount, for mapping and validity may not agree any more."""
        self.for_good |= for_good
        if self.state == KEPT or (self.state == READY and for_good):
            self.stale = True
            if self.state == KEPT:
                self.disown()
            self.state = REFUSED
        return 0

    cdef int disown(self) except -1 nogil:
        """What is there is not to be believed: before the first change that is not kept."""
        if self.stale:
            self.words.disown(CAUSE_MAP)
            self.stale = False
        return 0

    cdef int name(self, uint64_t gain) except -1 nogil:
        """The mapping is about to name other pages: before any entry is put. ``gain`` is what the sum gains."""
        self.put(SEQ, self.ssd.seq)
        self.names += gain
        return self.put(NAMES, self.names)

    cdef int note_trim(self) except -1 nogil:
        return self.put(TRIMMED, self.ssd.seq + 1)

    cdef int put_page(self, uint32_t page, uint32_t ppa) except -1 nogil:
        cdef uint64_t index = self.ppas_at + page // 2, shift = 32 * (page & 1)
        self.put(SEQ, self.ssd.seq)
        return self.put(index, (self.words.get(index) & ~(<uint64_t> 0xFFFFFFFF << shift))
                        | <uint64_t> (<uint32_t> (ppa + 1)) << shift)

    cdef int put_slot(self, uint32_t slot, uint32_t lpa, uint32_t ppa) except -1 nogil:
        return self.put(self.slots_at + slot, (<uint64_t> lpa + 1) << 32 | ppa)

    cdef int clear_slot(self, uint32_t slot) except -1 nogil:
        return self.put(self.slots_at + slot, 0)

    cdef uint32_t put_place(self, uint32_t place, uint32_t lpa, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """A pending entry; returns its place, which is given to it if it has none yet. If there is none left, nothing
        more is kept until there are fewer."""
        cdef uint32_t tried = 0
        if place == NONE:
            while tried < self.places and self.words.get(self.places_at + self.cursor):
                self.cursor = self.cursor + 1 if self.cursor + 1 < self.places else 0
                tried += 1
            if tried == self.places:
                with gil:
                    self.why = f"more than {self.places} pending entries"
                self.refuse(False)
                return NONE
            place = self.cursor
        self.put(self.places_at + place, (<uint64_t> lpa + 1) << 32 | ppa)
        return place

    cdef int clear_place(self, uint32_t place) except -1 nogil:
        return 0 if place == NONE else self.put(self.places_at + place, 0)

    cdef int put_bits(self, uint32_t block, uint32_t word, uint64_t bits) except -1 nogil:
        """A word of the PVB, ``word`` of ``block``. When the block was opened is there before its first bit."""
        cdef uint64_t opened = self.ssd.pool.order[block] | <uint64_t> self.ssd.pool.stream[block] << ORDER_BITS
        if bits:
            self.put(self.blocks_at + block, opened)
        return self.put(self.bits_at + <uint64_t> block * self.bitmap.words_a_block + word, bits)

    # --- all at once

    cdef uint64_t sum_of_live(self) noexcept nogil:
        """The sum over the live user pages."""
        cdef uint32_t block, page, per_block = self.ssd.nand.pages_per_block
        cdef uint64_t total = 0
        for block in range(self.ssd.nand.blocks):
            if self.bitmap.count(block) == 0 or self.ssd.pool.stream[block] == STREAM_MAP:
                continue
            for page in range(per_block):
                if self.bitmap.bits[<uint64_t> block * self.bitmap.words_a_block + (page >> 6)] >> (page & 63) & 1:
                    total += named_by(block * per_block + page)
        return total

    def begin(self):
        """All that validity says is kept; entries and directory are to follow, then ``settle``. Mapping and validity
        agree now."""
        cdef uint32_t block, w
        self.words.begin(UNFINISHED, CAUSE_MAP, self.ssd.now_ns)
        self.state = KEPT
        self.why = None
        self.stale = False
        self.cursor = 0
        with nogil:
            self.names = 0
            self.name(self.sum_of_live())
            for block in range(self.ssd.nand.blocks):
                for w in range(self.bitmap.words_a_block):
                    self.put_bits(block, w, self.bitmap.bits[<uint64_t> block * self.bitmap.words_a_block + w])

    def settle(self, uint64_t stamp):
        """What is kept from now on belongs to the checkpoint of that number."""
        if self.state == KEPT:
            self.words.restamp(stamp, CAUSE_MAP, self.ssd.now_ns)

    def refuses(self):
        """Whether nothing is kept in this mount, or no more."""
        return self.off or self.for_good

    def says(self):
        """For people: what it is doing, and why it does not if it does not."""
        said = ("waiting", "ready", "kept", "refused")[self.state]
        return f"{said}: {self.why}" if self.why else said

    def figures(self):
        return {"battery_kept": int(self.state == KEPT), "battery_bytes": nvram_bytes(self.words.words)}

    def decline(self, why):
        """Nothing is kept in this mount."""
        self.why = why
        self.for_good = True
        if self.state != REFUSED:
            self.stale = True
            self.state = REFUSED

    # --- a recovery

    def prove(self, uint64_t stamp):
        """(Why the words cannot be believed, or None; {what is kept}). Reads spare areas of pages that no sync has made
        durable; what is kept: "seq", the newest sequence number there is; "trimmed", word 2; "page_ppas", an array;
        "lpas" and "ppas" of what is newer than the translation pages, ascending; "pvb"; "spares", the pages of
        translation pages that live and are of no id."""
        proved, _ = self.words.proves(stamp, CAUSE_RECOVERY, self.ssd.now_ns)
        if not proved:
            return "it proves nothing", {}
        geometry = self.ssd.nand
        words = numpy.frombuffer(self.words.content(), "<u8")
        blocks = words[self.blocks_at : self.bits_at]
        streams = (blocks >> numpy.uint64(ORDER_BITS)).astype(numpy.uint8)
        bits = words[self.bits_at : self.ppas_at]
        live = numpy.unpackbits(bits.view(numpy.uint8).reshape(geometry.blocks, -1), axis=1, bitorder="little")
        if runs_out(words[SEQ]) or live[:, geometry.pages_per_block :].any():
            return "it says what no device says of itself", {}
        newest = self.look_beyond(words, numpy.ascontiguousarray(live))
        if newest is None:
            return "a page that it counts on is not there", {}
        page_ppas = words[self.ppas_at : self.slots_at].view(numpy.uint32)[: self.pages] - numpy.uint32(1)
        lpas, ppas = self.entries(words)
        block, page = numpy.nonzero(live[:, : geometry.pages_per_block])
        named = (block * geometry.pages_per_block + page).astype(numpy.uint32)
        of_map = streams[block] == STREAM_MAP
        why = self.breach(words, page_ppas, lpas, ppas, named, of_map)
        if why is not None:
            return why, {}
        spares = numpy.setdiff1d(named[of_map], page_ppas)
        return None, {"seq": max(newest, int(words[SEQ])), "trimmed": int(words[TRIMMED]), "page_ppas": page_ppas,
                      "lpas": lpas, "ppas": ppas, "pvb": bits.tobytes(), "spares": spares}

    def entries(self, words):
        """(LPAs, PPAs), ascending: what is newer than the translation pages. Of two of one LPA the slot's counts."""
        kept = numpy.append(words[self.places_at :], words[self.slots_at : self.places_at])
        kept = kept[kept != 0]
        lpas = ((kept >> numpy.uint64(32)) - numpy.uint64(1)).astype(numpy.uint32)
        order = numpy.argsort(lpas, kind="stable")
        lpas, ppas = lpas[order], kept.astype(numpy.uint32)[order]
        last = numpy.append(lpas[1:] != lpas[:-1], True) if len(lpas) else numpy.empty(0, bool)
        return lpas[last], ppas[last]

    def breach(self, words, page_ppas, lpas, ppas, named, of_map):
        """None, or what in the words does not fit: they are of a moment in the middle of a change."""
        cdef const uint32_t[::1] pages = numpy.ascontiguousarray(named[~of_map])
        cdef Py_ssize_t i
        cdef uint64_t total = 0
        for i in range(pages.shape[0]):
            total += named_by(pages[i])
        if total != int(words[NAMES]):
            return "it was in the middle of a change"
        there = page_ppas[page_ppas != NONE]
        if len(numpy.unique(there)) != len(there) or not numpy.isin(there, named[of_map]).all():
            return "a translation page that it names does not live"
        mapped = ppas[ppas != NONE]
        if not numpy.isin(mapped, named[~of_map]).all() or (len(lpas) and int(lpas[-1]) >= self.ssd.lpas):
            return "an entry that it has names no live page"
        return None

    def look_beyond(self, const uint64_t[::1] words, const uint8_t[:, ::1] live):
        """The newest sequence number of the pages that no sync has made durable; None if a live one of them is not
        there, or is not of the block's present life. Blocks that hold nothing are not looked at. The chip hears how far
        pages are whole: up to the last live one, for the program behind that may have been interrupted."""
        cdef uint32_t block, page, per_block = self.ssd.nand.pages_per_block, last, whole
        cdef uint32_t group = max(<uint32_t> 1, 2 * self.ssd.nand.paired_pages)
        cdef uint64_t newest = 0, order
        cdef uint8_t status = 0, kind
        cdef uint8_t[4096] raw
        cdef int64_t end = self.ssd.now_ns
        cdef Oob oob
        for block in range(self.ssd.nand.blocks):
            order = words[self.blocks_at + block] & ((<uint64_t> 1 << ORDER_BITS) - 1)
            kind = KIND_TRANSLATION if words[self.blocks_at + block] >> ORDER_BITS == STREAM_MAP else KIND_USER
            last = 0                       # behind the last live page
            for page in range(per_block):
                if live[block, page]:
                    last = page + 1
            if last and order != self.ssd.pool.order[block]:
                return None                # the block's first page says when it was opened
            if self.ssd.pool.order[block] == 0:
                continue                   # blank
            whole = self.ssd.nand.synced(block)
            for page in range(whole, per_block):
                end = max(end, self.ssd.nand.read_spare(block, page, 1, raw, &status, CAUSE_RECOVERY, self.ssd.now_ns))
                oob_unpack(raw, &oob)
                if live[block, page] and (status != PAGE_OK or oob.order != order or oob.kind != kind):
                    return None
                if status == PAGE_OK and (oob.kind == KIND_USER or oob.kind == KIND_TRANSLATION):
                    if runs_out(oob.seq):
                        return None
                    newest = max(newest, oob.seq)
                whole += status == PAGE_OK and page == whole and page < last
                if (status == PAGE_ERASED and page >= last) or (status == PAGE_OK and oob.stream == STREAM_META):
                    break
            self.ssd.nand.vouch(block, whole - whole % group)  # a lower page waits for its upper one
        self.ssd.now_ns = end
        return newest


cdef class SavedBitmap(PageBitmap):
    """The PVB, and a copy of it in the words of the battery that is attached."""

    def attach(self, MapBattery battery not None):
        """Before anything lives."""
        self.battery = battery
        battery.bitmap = self

    cdef int keep(self, uint32_t block, uint32_t word) except -1 nogil:
        self.battery.put_bits(block, word, self.bits[<uint64_t> block * self.words_a_block + word])
        return 0

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        cdef uint32_t block = self.block_of(ppa), w
        PageBitmap.live_run(self, ppa, n)
        if self.battery.state == KEPT and not self.held and n:
            ppa -= block * self.pages_per_block
            for w in range(ppa >> 6, ((ppa + n - 1) >> 6) + 1):
                self.keep(block, w)
        return 0

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        PageBitmap.dead(self, ppas, n)
        return self.let_go(ppas, n) if not self.held else 0

    cdef int forget(self, uint32_t block) except -1 nogil:
        cdef uint32_t w
        PageBitmap.forget(self, block)
        for w in range(self.words_a_block if self.battery.state == KEPT else 0):
            self.keep(block, w)
        return 0

    cdef int hold(self) noexcept nogil:
        """A checkpoint begins: pages that only the last one stands on die, and are kept alive in the battery until
        the new one is durable (``let_go``)."""
        self.held = True
        return 0

    cdef int let_go(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """What the bitmap says of these pages is kept; NONE entries are skipped."""
        cdef uint32_t i, block, word, last_block = NONE, last_word = 0
        if self.battery.state != KEPT:
            return 0
        for i in range(n):
            if ppas[i] == NONE:
                continue
            block = self.block_of(ppas[i])
            word = (ppas[i] - block * self.pages_per_block) >> 6
            if block == last_block and word == last_word:
                continue
            self.keep(block, word)
            last_block, last_word = block, word
        return 0
