"""Battery-backed state of a demand-paged mapping: the entries newer than its translation pages, where those pages are,
and which pages live. With it a recovery scans nothing that a checkpoint or a sync has made durable (GeckoFTL's paper,
section 5.3, on DFTL: the battery saves the dirty entries, and the PVB).

The words of the region (Battery), in order:

    0            the newest sequence number that was given when the mapping was last changed
    1            the sum over all user pages that the mapping names, of ``named_by``
    2            1 + the newest sequence number before the last trim
    3            1: a recovery is based on these words (``stand``)
    8            of each block: when it was opened, and in bits 48 on its stream
    then         validity: the PVB, as a checkpoint has it, or what a store in flash has in DRAM (bitmap_battery.pyx)
    then         the GTD, two translation pages per word, the first in the low half: PPA + 1, or 0; or, of a directory
                 in flash, its root in this form, and after it pointers that no node has yet, at any place:
                 (page + 1) << 32 | PPA
    then         of each slot of the cache, if its entry is dirty: (LPA + 1) << 32 | PPA, else 0
    then         the same of each pending entry, at any place; a slot that has the LPA too is newer

Battery proves that the words are all of one moment since the last sync. Word 1 shows that this moment is not in the
middle of a change: mapping and validity change one after the other, and agree only when both are finished. A change of
what the mapping names puts the new sum first, then the entries, then the bits of validity; when the last bit is put,
the sum over the live pages (without translation pages) equals word 1 again. Writing a translation page needs no sum: at
each word of it, the entries are in the region, or in the page that the GTD names.

After the death of the host the words may be of an earlier moment, and programs since the last sync may be lost, even
those that the words count on. The chip's marks say up to where each block was whole at a sync. The spare area of each
live page beyond is read, and so is the block's first page. If one of them is not there, the words are not believed.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from flashfs.parts.battery.battery cimport Battery
from flashfs.parts.defaults.page_bitmap cimport PageBitmap
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport (
    CAUSE_MAP,
    CAUSE_RECOVERY,
    KIND_TRANSLATION,
    KIND_USER,
    KIND_VALIDITY,
    NONE,
    STREAM_MAP,
    STREAM_META,
    Oob,
    read_oob,
    runs_out,
)
from nandimg._nand cimport NVRAM_WORD, PAGE_ERASED, PAGE_OK

cdef extern from *:
    int leading_zeros "__builtin_clzll"(uint64_t) nogil

import numpy

from flashfs.parts.battery.battery import nvram_bytes

cdef enum:
    SEQ = 0
    NAMES = 1
    TRIMMED = 2
    STANDS = 3
    FIXED = 8                # words before those of the blocks
    ORDER_BITS = 48

cdef uint64_t UNFINISHED = <uint64_t> 1 << 63  # the stamp of a region that is being filled


def layout(blocks, shape, slots, places):
    """First word of: the blocks, validity, the directory, its pointers, the slots, the places; and the number of words
    in all. ``shape``: words of validity, entries of the directory in half a word each, pointers."""
    words, halves, pointers = shape
    bits = FIXED + blocks
    page_ppas = bits + words
    first_pointer = page_ppas + -(-halves // 2)
    first_slot = first_pointer + pointers
    return FIXED, bits, page_ppas, first_pointer, first_slot, first_slot + slots, first_slot + slots + places


def bitmap_shape(geometry, lpas):
    """The shape of a PVB in DRAM, and a GTD there, of a device of so many LPAs."""
    return geometry.blocks * -(-geometry.pages_per_block // 64), pages_of(lpas, geometry.page_bytes), 0


def pages_of(lpas, page_bytes):
    """Translation pages of so many LPAs."""
    return -(-lpas // (page_bytes // 4))


def places_for(slots, page_bytes, pages_per_block):
    """Pending entries that there is room for: all that were cached, as after a recovery, or those of a few translation
    pages and of a moved block."""
    return slots + page_bytes + 2 * pages_per_block


def region_bytes(geometry, slots, shape=None):
    """Bytes of NVRAM for a mapping with so many slots in its cache; by default with PVB and GTD in DRAM."""
    places = places_for(slots, geometry.page_bytes, geometry.pages_per_block)
    return nvram_bytes(layout(geometry.blocks, shape or bitmap_shape(geometry, geometry.lpas), slots, places)[6])


cdef class KeptValidity:
    """What a battery needs of the validity store that it keeps. ``stream``: that of the store's own pages, or -1."""

    stream = -1

    cdef uint64_t sum_of_live(self) except? 0xFFFFFFFFFFFFFFFE:
        """The sum over the live user pages."""
        raise NotImplementedError

    cdef int save_all(self) except -1:
        """Puts every word of the store."""
        raise NotImplementedError

    cdef int hold(self) except -1:
        """A checkpoint begins: pages that only the last checkpoint needs die, and are kept alive in the battery until
        the new one is durable (``let_go``)."""
        self.held = True
        return 0

    cdef int let_go(self, list kept, bint whole) except -1:
        """The checkpoint ends. If ``whole`` it is durable, and the superseded translation pages ``kept`` are dead."""
        raise NotImplementedError

    def keeps_sum(self):
        """Whether a checkpoint holds the sum too, because recomputing it would read pages."""
        return False

    def read(self, words, streams):
        """The PVB that the store's words describe, an array of u64, 64 pages per word, with the store's own pages; None
        if a page that they need is missing in flash. ``streams``: of the blocks."""
        raise NotImplementedError

    def take(self, words, bits):
        """A recovery believes the words: sets the store to what they say."""
        raise NotImplementedError


cdef class MapBattery:
    """The NVRAM region ``region`` of the chip, for a cache of up to ``slots`` slots. ``off``: nothing is kept there,
    and what is there may not be believed once anything is changed; nor before, unless an interrupted recovery was based
    on it. ``shape`` as of ``layout``. ValueError if the region is smaller."""

    def __cinit__(self, Engine ssd not None, region, uint32_t slots, bint off=False, object shape=None):
        self.ssd = ssd
        self.region = region
        self.slots = slots
        self.places = places_for(slots, ssd.nand.page_bytes, ssd.nand.pages_per_block)
        shape = shape or bitmap_shape(ssd.nand, ssd.lpas)
        at = layout(ssd.nand.blocks, shape, self.slots, self.places)
        self.pages = shape[1]
        self.blocks_at, self.bits_at, self.ppas_at, first_pointer, self.slots_at, self.places_at = at[:6]
        self.pointers = Places(first_pointer, shape[2], 0)
        self.pending = Places(self.places_at, self.places, 0)
        self.words = Battery(ssd.nand, region, at[6])
        self.off = off
        self.state = REFUSED if off else WAITING
        self.why = "battery=0" if off else None
        self.stale = off

    @staticmethod
    def slots_for(nand, lpas, region, shape=None):
        """Slots that the region has room for; 0 if there is no such region."""
        found = nand.region(region)
        if found is None:
            return 0
        none = nvram_bytes(layout(nand.blocks, shape or bitmap_shape(nand, lpas), 0,
                                  places_for(0, nand.page_bytes, nand.pages_per_block))[6])
        return max(0, found[1] - none) // 16

    # --- changes

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
        """The mount was clean: keeping begins with the next change."""
        if not self.off and not self.for_good:
            self.state = READY

    cdef int refuse(self, bint for_good) except -1 nogil:
        """Nothing more is kept; if ``for_good``, in all of this mount, because mapping and validity may disagree."""
        self.for_good |= for_good
        self.named = False
        if self.state == KEPT or (self.state == READY and for_good):
            self.stale = True
            if self.state == KEPT:
                self.disown()
            self.state = REFUSED
        return 0

    cdef int disown(self) except -1 nogil:
        """Clears the region's stamp, if ``stale``: call before the first change that is not kept."""
        if self.stale:
            self.words.disown(CAUSE_MAP)
            self.stale = False
        return 0

    cdef int name(self, uint64_t gain) except -1 nogil:
        """The mapping is about to name other pages. Call before any entry is put; ``gain`` is added to the sum."""
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
        """Puts a pending entry, at a free place if ``place`` is NONE; returns its place. If none is free, nothing more
        is kept until there are fewer entries."""
        return self.put_in(&self.pending, place, lpa, ppa, "pending entries")

    cdef int clear_place(self, uint32_t place) except -1 nogil:
        return 0 if place == NONE else self.put(self.places_at + place, 0)

    cdef uint32_t put_pointer(self, uint32_t place, uint32_t id, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """As ``put_place``, for a pointer that no node of a directory in flash has yet."""
        return self.put_in(&self.pointers, place, id, ppa, "pointers of the map's tree")

    cdef int clear_pointer(self, uint32_t place) except -1 nogil:
        return 0 if place == NONE else self.put(self.pointers.at + place, 0)

    cdef uint32_t put_in(self, Places* where, uint32_t place, uint32_t key, uint32_t value,
                         str what) except? 0xFFFFFFFE nogil:
        cdef uint32_t tried = 0
        if place == NONE:
            while tried < where.n and self.words.get(where.at + where.cursor):
                where.cursor = where.cursor + 1 if where.cursor + 1 < where.n else 0
                tried += 1
            if tried == where.n:
                with gil:
                    self.why = f"more than {where.n} {what}"
                self.refuse(False)
                return NONE
            place = where.cursor
        self.put(where.at + place, (<uint64_t> key + 1) << 32 | value)
        return place

    cdef int put_opened(self, uint32_t block) except -1 nogil:
        """Puts when the block was opened, and its stream. Call before a page of it lives."""
        return self.put(self.blocks_at + block,
                        self.ssd.pool.order[block] | <uint64_t> self.ssd.pool.stream[block] << ORDER_BITS)

    cdef int put_validity(self, uint64_t word, uint64_t value) except -1 nogil:
        return self.put(self.bits_at + word, value)

    cdef int clear_validity(self, uint64_t first, uint64_t n) except -1 nogil:
        """Sets ``n`` words to 0; most are 0 already."""
        cdef const uint64_t* words = self.words.body + self.bits_at
        cdef uint64_t word
        for word in range(first, first + n):
            if words[word]:
                self.put(self.bits_at + word, 0)
        return 0

    cdef uint64_t validity_word(self, uint64_t word) noexcept nogil:
        return self.words.get(self.bits_at + word)

    # --- all at once

    def sum_is(self, uint64_t total):
        """Sets the sum over what the mapping names, from a checkpoint or from validity's count."""
        self.names = total
        self.named = True

    @property
    def sum(self):
        """The sum over all user pages that the mapping names; None: it is not known."""
        return self.names if self.state == KEPT or self.named else None

    def begin(self):
        """Begins to keep: puts all of validity. The caller then puts entries and directory, and calls ``settle``.
        Mapping and validity must agree now."""
        cdef uint64_t total = self.names if self.named else self.validity.sum_of_live()
        self.words.begin(UNFINISHED, CAUSE_MAP, self.ssd.now_ns)
        self.state = KEPT
        self.why = None
        self.stale = False
        self.named = False
        self.pending.cursor = self.pointers.cursor = 0
        self.names = 0
        self.name(total)
        self.validity.save_all()

    def settle(self, uint64_t stamp):
        """From now on the words belong to the checkpoint of number ``stamp``."""
        if self.state == KEPT:
            self.words.restamp(stamp, CAUSE_MAP, self.ssd.now_ns)

    def refuses(self):
        """Whether nothing is kept in this mount, or no more."""
        return self.off or self.for_good

    def says(self):
        """The state, and why nothing is kept if so, as text for users."""
        said = ("waiting", "ready", "kept", "refused")[self.state]
        return f"{said}: {self.why}" if self.why else said

    def figures(self):
        return {"battery_kept": int(self.state == KEPT), "battery_bytes": nvram_bytes(self.words.words)}

    def decline(self, why):
        """Nothing is kept in this mount."""
        self.why = why
        self.for_good = True
        self.named = False
        if self.state != REFUSED:
            self.stale = True
            self.state = REFUSED

    # --- a recovery

    def stands(self):
        """Whether a recovery that believed the words has begun to change flash, and no checkpoint is durable since: it
        may have erased pages whose trims no log has. Then the words count in each mount, with the battery or not."""
        raw = self.ssd.nand.nvram(self.words.body_at + STANDS * NVRAM_WORD, NVRAM_WORD)
        return raw != bytes(NVRAM_WORD)

    def stand(self):
        """A recovery believed the words, and is about to change flash. The caller must sync this before it does."""
        self.words.put(STANDS, 1, CAUSE_RECOVERY, self.ssd.now_ns)
        self.ssd.stands_on_dead = True     # the words name pages that the recovery moves or supersedes

    def outdate(self, uint64_t stamp):
        """A recovery that does not use the words, though they are those of its checkpoint, is about to change flash. It
        gives blocks orders that the words already hold, so a later recovery must not believe them. Returns whether the
        words had to be disowned."""
        if stamp == 0 or self.words.stamp != stamp:
            return False
        self.words.disown(CAUSE_RECOVERY)
        return True

    def believed(self):
        """The words count, and stay as they are until the recovery's checkpoint is durable."""
        self.state = WAITING

    def ends(self):
        """The recovery's checkpoint is durable. If the battery is off, the words do not count from now on."""
        self.ssd.stands_on_dead = False
        if self.off and self.state == WAITING:
            self.state = REFUSED
            self.stale = True

    def prove(self, uint64_t stamp, find_pages):
        """(Why the words cannot be believed, or None; {what is kept}). Reads spare areas of pages that no sync has made
        durable. What is kept: "seq", the newest sequence number there is; "trimmed", word 2; "order", the newest that
        the words have of a block; "halves" and "pointers" of the directory, arrays, and "pages", how many pages it
        names; "lpas" and "ppas" of the entries newer than the translation pages, ascending; "validity" and "bits", the
        store's words, and the PVB that they describe; "spares", live pages of the map's stream that the directory does
        not name. ``find_pages`` of halves and pointers returns the PPAs of translation pages, or why there are none."""
        proved, _ = self.words.proves(stamp, CAUSE_RECOVERY, self.ssd.now_ns)
        if not proved:
            return "it proves nothing", {}
        geometry = self.ssd.nand
        words = numpy.frombuffer(self.words.content(), "<u8")
        blocks = words[self.blocks_at : self.bits_at]
        streams = (blocks >> numpy.uint64(ORDER_BITS)).astype(numpy.uint8)
        validity = words[self.bits_at : self.ppas_at]
        bits = self.validity.read(validity, streams)
        if bits is None:
            return "a page of validity that it names is not there", {}
        by_block = numpy.ascontiguousarray(bits).view(numpy.uint64).reshape(geometry.blocks, -1)
        used = numpy.flatnonzero(by_block.any(axis=1))
        live = numpy.unpackbits(by_block[used].view(numpy.uint8), axis=1, bitorder="little")
        if runs_out(words[SEQ]) or live[:, geometry.pages_per_block :].any():
            return "it says what no device says of itself", {}
        newest = self.look_beyond(words, by_block)
        if newest is None:
            return "a page that it counts on is not there", {}
        halves = words[self.ppas_at : self.pointers.at].view(numpy.uint32)[: self.pages] - numpy.uint32(1)
        pointers = words[self.pointers.at : self.slots_at]
        page_ppas = find_pages(halves, pointers)
        if isinstance(page_ppas, str):
            return page_ppas, {}
        lpas, ppas = self.entries(words)
        block, page = numpy.nonzero(live[:, : geometry.pages_per_block])
        block = used[block]
        named = (block * geometry.pages_per_block + page).astype(numpy.uint32)
        of_map = streams[block] == STREAM_MAP
        of_user = streams[block] < STREAM_META
        why = self.breach(words, page_ppas, lpas, ppas, named[of_user], named[of_map])
        if why is not None:
            return why, {}
        spares = numpy.setdiff1d(named[of_map], page_ppas)
        return None, {"seq": max(newest, int(words[SEQ])), "trimmed": int(words[TRIMMED]),
                      "order": int((blocks & numpy.uint64((<uint64_t> 1 << ORDER_BITS) - 1)).max()), "halves": halves,
                      "pointers": pointers, "pages": len(page_ppas), "lpas": lpas, "ppas": ppas, "validity": validity,
                      "bits": bits, "spares": spares}

    def entries(self, words):
        """(LPAs, PPAs), ascending: the entries newer than the translation pages. If an LPA has two, the slot's counts.
        """
        kept = numpy.append(words[self.places_at :], words[self.slots_at : self.places_at])
        kept = kept[kept != 0]
        lpas = ((kept >> numpy.uint64(32)) - numpy.uint64(1)).astype(numpy.uint32)
        order = numpy.argsort(lpas, kind="stable")
        lpas, ppas = lpas[order], kept.astype(numpy.uint32)[order]
        last = numpy.append(numpy.diff(lpas) != 0, True) if len(lpas) else numpy.empty(0, bool)
        return lpas[last], ppas[last]

    def breach(self, words, there, lpas, ppas, of_user, of_map):
        """None, or what in the words does not fit: they are of a moment in the middle of a change. ``there`` are the
        translation pages that are named; ``of_user`` and ``of_map`` the live pages."""
        cdef const uint32_t[::1] pages = numpy.ascontiguousarray(of_user)
        cdef Py_ssize_t i
        cdef uint64_t total = 0
        for i in range(pages.shape[0]):
            total += named_by(pages[i])
        if total != int(words[NAMES]):
            return "it was in the middle of a change"
        if len(numpy.unique(there)) != len(there) or not numpy.isin(there, of_map).all():
            return "a translation page that it names does not live"
        mapped = ppas[ppas != NONE]
        if not numpy.isin(mapped, of_user).all() or (len(lpas) and int(lpas[len(lpas) - 1]) >= self.ssd.lpas):
            return "an entry that it has names no live page"
        return None

    def look_beyond(self, const uint64_t[::1] words, const uint64_t[:, ::1] live):
        """The newest sequence number of the pages that no sync has made durable; None if a live one of them is not
        there, or was programmed before the block was last opened. Blank blocks are skipped; so are those that an
        interrupted recovery emptied, and erased. Reports to the chip how far pages are whole: up to the last live one,
        since the program after it may have been interrupted. ``live`` has a bit for each page, those of a block in a
        row of words."""
        cdef uint32_t block, page, word, per_block = self.ssd.nand.pages_per_block, last, whole
        cdef uint32_t group = max(<uint32_t> 1, 2 * self.ssd.nand.paired_pages)
        cdef uint64_t newest = 0, order, newest_order = 0
        cdef bint lives, stands = self.stands()
        cdef uint8_t status = 0, kind, stream
        cdef int own = self.validity.stream
        cdef uint8_t[4096] raw
        cdef int64_t end = self.ssd.now_ns
        cdef Oob oob
        for block in range(self.ssd.nand.blocks if stands else 0):
            newest_order = max(newest_order, words[self.blocks_at + block] & ((<uint64_t> 1 << ORDER_BITS) - 1))
        for block in range(self.ssd.nand.blocks):
            order = words[self.blocks_at + block] & ((<uint64_t> 1 << ORDER_BITS) - 1)
            stream = <uint8_t> (words[self.blocks_at + block] >> ORDER_BITS)
            kind = KIND_TRANSLATION if stream == STREAM_MAP else KIND_VALIDITY if stream == own else KIND_USER
            last = 0                       # one after the last live page
            for word in range(<uint32_t> live.shape[1]):
                if live[block, word]:
                    last = 64 * word + 64 - leading_zeros(live[block, word])
            if last and order != self.ssd.pool.order[block]:
                if not stands or stream >= STREAM_META:
                    return None
                end = max(end, read_oob(self.ssd.nand, block * per_block, raw, &oob, &status, CAUSE_RECOVERY,
                                        self.ssd.now_ns))
                if status == PAGE_OK and oob.order <= newest_order:
                    return None
                last = 0
            if self.ssd.pool.order[block] == 0:
                continue                   # blank
            whole = self.ssd.nand.synced(block)
            for page in range(whole, per_block):
                end = max(end, read_oob(self.ssd.nand, block * per_block + page, raw, &oob, &status, CAUSE_RECOVERY,
                                        self.ssd.now_ns))
                # The recovery that others stood on had synced all of them: this one is erased, or partly.
                if status != PAGE_OK and stands and stream < STREAM_META:
                    last = 0
                lives = last and live[block, page >> 6] >> (page & 63) & 1
                if lives and (status != PAGE_OK or oob.order != order or oob.kind != kind):
                    return None
                if status == PAGE_OK and oob.kind <= KIND_VALIDITY:
                    if runs_out(oob.seq):
                        return None
                    newest = max(newest, oob.seq)
                whole += status == PAGE_OK and page == whole and page < last
                if (status == PAGE_ERASED and page >= last) or (status == PAGE_OK and oob.stream == STREAM_META):
                    break
            self.ssd.nand.mark_synced(block, whole - whole % group)  # whole groups: a lower page needs its upper one
        self.ssd.now_ns = end
        return newest


cdef class KeptBitmap(KeptValidity):
    """A PVB in DRAM, of which the battery has a copy."""

    cdef uint64_t sum_of_live(self) except? 0xFFFFFFFFFFFFFFFE:
        cdef uint32_t block, page, per_block = self.bitmap.pages_per_block
        cdef uint64_t total = 0
        for block in range(self.bitmap.ssd.nand.blocks):
            if self.bitmap.count(block) == 0 or self.bitmap.ssd.pool.stream[block] == STREAM_MAP:
                continue
            for page in range(per_block):
                if self.bitmap.bits[<uint64_t> block * self.bitmap.words_a_block + (page >> 6)] >> (page & 63) & 1:
                    total += named_by(block * per_block + page)
        return total

    cdef int save_all(self) except -1:
        cdef uint32_t block, w
        for block in range(self.bitmap.ssd.nand.blocks):
            for w in range(self.bitmap.words_a_block):
                self.bitmap.keep(block, w)
        return 0

    cdef int let_go(self, list kept, bint whole) except -1:
        cdef uint32_t ppa
        self.held = False
        for ppa in kept if whole else ():
            self.bitmap.put_again(&ppa, 1)
        return 0

    def read(self, words, streams):
        return words

    def take(self, words, bits):
        self.bitmap.load({"pvb": bits.tobytes()})


cdef class SavedBitmap(PageBitmap):
    """The PVB, and a copy of it in the words of the battery that is attached."""

    def attach(self, MapBattery battery not None):
        """Before anything lives."""
        self.battery = battery
        self.kept = KeptBitmap()
        self.kept.bitmap = self
        battery.validity = self.kept

    cdef int keep(self, uint32_t block, uint32_t word) except -1 nogil:
        """Puts one word of the PVB; before the block's first bit, when the block was opened."""
        cdef uint64_t index = <uint64_t> block * self.words_a_block + word
        if self.bits[index]:
            self.battery.put_opened(block)
        return self.battery.put_validity(index, self.bits[index])

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        cdef uint32_t block = self.block_of(ppa), w
        PageBitmap.live_run(self, ppa, n)
        if self.battery.state == KEPT and not self.kept.held and n:
            ppa -= block * self.pages_per_block
            for w in range(ppa >> 6, ((ppa + n - 1) >> 6) + 1):
                self.keep(block, w)
        return 0

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        PageBitmap.dead(self, ppas, n)
        return self.put_again(ppas, n) if not self.kept.held else 0

    cdef int forget(self, uint32_t block) except -1 nogil:
        cdef uint32_t w
        PageBitmap.forget(self, block)
        for w in range(self.words_a_block if self.battery.state == KEPT else 0):
            self.keep(block, w)
        return 0

    cdef int put_again(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """Keeps what the bitmap says of these pages; NONE entries are skipped."""
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
