# distutils: language = c++
"""Battery-backed state of a validity bitmap in flash (flash_bitmap.pyx): all of it that is not in flash. Its words, in
order, among those of the battery (map_battery.pyx) after the blocks':

    of each page    where it is, PPA + 1 or 0; in the high half the same of the version that the last checkpoint
                    needs, if that is another
    of each frame   (page + 1) << 32 | PPA + 1 of the version in flash that it differs from, 0 for none
    of each frame   a word for each word of its page: the bits in which it differs
    then            reports that wait, at any place: (PPA + 1) << 32 | lives

A frame whose head names another version than the page's word does not count: so writing a page back takes one store,
and the bits of the frame are cleared after it. Moving a page takes two stores, and between them head and word disagree;
words of that moment fail the sum over the live pages, like any others of two moments.

While a checkpoint is written nothing here changes. Its programs supersede pages that the words name, but none of those
is erased before it is durable; then the words are updated before they belong to it.
"""
from libc.stdint cimport uint32_t, uint64_t

from flashfs.parts.paged.entry_pages cimport EntryPages
from flashfs.parts.battery.map_battery cimport KEPT, KeptValidity, MapBattery, Places
from flashfs.engine.blocks.pool cimport NONE

import numpy

FRAMES = 4  #: frames that there is room for


def frames_words(pages, page_bytes, log_room):
    """Words of a bitmap of so many pages, with room for so many reports."""
    return pages + FRAMES * (1 + page_bytes // 8) + log_room


cdef class BitmapBattery(KeptValidity):
    """The words of ``store``, whose ``frames`` are no more than FRAMES, in ``battery``."""

    def __cinit__(self, EntryPages mapping not None, store, MapBattery battery not None):
        self.mapping = mapping
        self.store = store
        self.battery = battery
        self.pages, self.frame_words, log_room = store.sizes()
        self.frames = FRAMES
        self.heads_at = self.pages
        self.deltas_at = self.heads_at + FRAMES
        self.reports = Places(self.deltas_at + FRAMES * self.frame_words, log_room, 0)
        battery.validity = self

    @property
    def stream(self):
        """The stream of the bitmap's own pages."""
        return self.store.pages_in_flash.stream

    cdef bint keeps(self) noexcept nogil:
        return self.battery.state == KEPT and not self.held

    cdef int changes(self) except -1 nogil:
        """As the mapping's ``changes``: call before a change."""
        return self.mapping.changes()

    cdef int doubts(self) except -1 nogil:
        return self.mapping.doubts()

    cdef int put(self, uint64_t word, uint64_t value) except -1 nogil:
        return self.battery.put_validity(word, value)

    # --- changes; each only if it ``keeps``

    cdef int opened(self, uint32_t block) except -1 nogil:
        return self.battery.put_opened(block)

    cdef int put_page(self, uint32_t id, uint32_t ppa, uint32_t kept) except -1 nogil:
        """Page ``id`` is at ``ppa``, and the version that the last checkpoint needs at ``kept``; either is NONE if
        there is none."""
        return self.put(id, <uint64_t> (<uint32_t> (kept + 1)) << 32 | <uint32_t> (ppa + 1))

    cdef uint32_t kept_of(self, uint32_t id) noexcept nogil:
        return <uint32_t> (self.battery.validity_word(id) >> 32) - 1

    cdef int put_head(self, uint32_t frame, uint32_t id, uint32_t ppa) except -1 nogil:
        """Page ``id`` is in the frame; it differs from the version at ``ppa`` in the bits that are flipped."""
        return self.put(self.heads_at + frame, (<uint64_t> id + 1) << 32 | <uint32_t> (ppa + 1))

    cdef int flip(self, uint32_t frame, uint64_t bit) except -1 nogil:
        cdef uint64_t word = self.deltas_at + <uint64_t> frame * self.frame_words + (bit >> 6)
        return self.put(word, self.battery.validity_word(word) ^ <uint64_t> 1 << (bit & 63))

    cdef int clean(self, uint32_t frame, uint32_t id, uint32_t ppa) except -1 nogil:
        """The frame's page equals the version at ``ppa``."""
        self.battery.clear_validity(self.deltas_at + <uint64_t> frame * self.frame_words, self.frame_words)
        return self.put_head(frame, id, ppa)

    cdef uint32_t put_report(self, uint32_t place, uint64_t report) except? 0xFFFFFFFE nogil:
        """Puts a waiting report, PPA << 1 | lives, at a free place if ``place`` is NONE; returns its place."""
        cdef uint32_t tried = 0
        if place == NONE:
            while self.battery.validity_word(self.reports.at + self.reports.cursor) and tried < self.reports.n:
                self.reports.cursor = self.reports.cursor + 1 if self.reports.cursor + 1 < self.reports.n else 0
                tried += 1
            place = self.reports.cursor
        self.put(self.reports.at + place, ((report >> 1) + 1) << 32 | (report & 1))
        return place

    cdef int clear_report(self, uint32_t place) except -1 nogil:
        return 0 if place == NONE else self.put(self.reports.at + place, 0)

    # --- all at once

    cdef uint64_t sum_of_live(self) except? 0xFFFFFFFFFFFFFFFE:
        return self.store.sum_of_live()

    def keeps_sum(self):
        return True

    cdef int save_all(self) except -1:
        """Frames are clean after a checkpoint, and after a mount there is none. No superseded page is needed."""
        cdef uint32_t i, id, ppa, n
        cdef uint64_t report
        store = self.store
        if store.frames_n > self.frames:
            self.battery.decline(f"the bitmap has {store.frames_n} frames, and the NVRAM room for {self.frames}")
            return 0
        for i in store.blocks_in_use():
            self.opened(i)
        for i, ppa in enumerate(store.directory_ppas()):
            self.put_page(i, ppa, NONE)
        for i, (id, ppa, dirty) in enumerate(store.frame_list()):
            if dirty:
                self.battery.why = "a page of the bitmap was changed, and not written by a checkpoint"
                return self.battery.refuse(False)
            if id == NONE:
                self.put(self.heads_at + i, 0)
            else:
                self.clean(i, id, ppa)
        reports = store.reports()
        n = len(reports)
        for i, report in enumerate(reports):
            self.put_report(i, report)
        for i in range(n, self.reports.n):
            self.clear_report(i)
        self.reports.cursor = 0
        store.reports_placed()
        return 0

    cdef int let_go(self, list kept, bint whole) except -1:
        self.held = False
        if self.battery.state == KEPT:
            if whole:
                self.save_all()
            else:
                self.battery.why = "a checkpoint came to nothing"
                self.battery.refuse(False)
        return 0

    # --- a recovery

    def read(self, words, streams):
        heads = words[self.heads_at : self.deltas_at]
        deltas = words[self.deltas_at : self.reports.at].reshape(self.frames, self.frame_words)
        low = (words[: self.pages] & numpy.uint64(0xFFFFFFFF)).astype(numpy.int64) - 1
        frames = {}
        for head, delta in zip(heads.tolist(), deltas, strict=True):
            if 0 < head >> 32 <= self.pages and (head & 0xFFFFFFFF) - 1 == low[(head >> 32) - 1]:
                frames[(head >> 32) - 1] = delta
        return self.store.read_kept(low.tolist(), self.superseded(words), frames, self.reports_of(words),
                                    streams == self.stream)

    def take(self, words, bits):
        heads = words[self.heads_at : self.deltas_at].tolist()
        frames = [(head >> 32) - 1 for head in heads if 0 < head >> 32 <= self.pages]
        low = (words[: self.pages] & numpy.uint64(0xFFFFFFFF)).astype(numpy.int64) - 1
        self.store.take_kept(low.tolist(), self.superseded(words), frames, self.reports_of(words), bits)

    def superseded(self, words):
        """PPAs of superseded versions that the last checkpoint needs."""
        return [high - 1 for high in (words[: self.pages] >> numpy.uint64(32)).tolist() if high]

    def reports_of(self, words):
        """[(PPA, lives)]"""
        return [((word >> 32) - 1, word & 1) for word in words[self.reports.at :].tolist() if word]
