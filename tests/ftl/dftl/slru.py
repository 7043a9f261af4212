"""A small model of DFTL's cache, written apart from it: a segmented LRU of entries, and which translation pages exist.

It is told of look-ups alone, in their order. What cleaning does to a device changes neither which entries are cached
nor which pages there are: an entry that is not cached has its page already.
"""

from __future__ import annotations

from collections import OrderedDict


class SegmentedLru:
    """``slots`` entries, ``protected`` of them at most for those that were hit; ``per_page`` entries a page."""

    def __init__(self, slots: int, protected: int, per_page: int) -> None:
        self.slots, self.protected_most, self.per_page = slots, protected, per_page
        self.probationary: OrderedDict[int, bool] = OrderedDict()  #: LPA: dirty; the next to leave first
        self.protected: OrderedDict[int, bool] = OrderedDict()
        self.written: set[int] = set()  #: translation pages that exist
        self.lookups = self.hits = self.loads = 0

    def look_up(self, lpa: int, write: bool) -> None:
        self.lookups += 1
        if lpa in self.protected:
            self.hits += 1
            self.protected[lpa] |= write
            self.protected.move_to_end(lpa)
        elif lpa in self.probationary:
            self.hits += 1
            self._protect(lpa, self.probationary.pop(lpa) or write)
        else:
            if len(self.probationary) + len(self.protected) == self.slots:
                self._evict()
            self.loads += lpa // self.per_page in self.written
            self.probationary[lpa] = write

    def _protect(self, lpa: int, dirty: bool) -> None:
        if not self.protected_most:
            self.probationary[lpa] = dirty
            return
        self.protected[lpa] = dirty
        if len(self.protected) > self.protected_most:
            low, low_dirty = self.protected.popitem(last=False)
            self.probationary[low] = low_dirty

    def _evict(self) -> None:
        segment = self.probationary or self.protected
        lpa, dirty = segment.popitem(last=False)
        if not dirty:
            return
        page = lpa // self.per_page
        self.written.add(page)
        for held in (self.probationary, self.protected):
            for other in range(page * self.per_page, (page + 1) * self.per_page):
                if other in held:
                    held[other] = False
