"""A small model of DFTL's cache, written apart from it: a segmented LRU of entries, and which translation pages exist.

It is given look-ups alone, in their order. What cleaning does to a device changes neither which entries are cached
nor which pages there are: an entry that is not cached has its page already.
"""

from __future__ import annotations

from collections import OrderedDict


class SegmentedLru:
    """``slots`` entries, ``protected`` of them at most for those that were hit; ``per_page`` entries a page."""

    def __init__(self, slots: int, protected: int, per_page: int) -> None:
        self.slots, self.protected_most, self.per_page = slots, protected, per_page
        self.probationary: OrderedDict[int, None] = OrderedDict()  #: LPAs; the next to leave first
        self.protected: OrderedDict[int, None] = OrderedDict()
        self.dirty: dict[int, set[int]] = {}  #: of a translation page: its cached LPAs that it does not agree with
        self.written: set[int] = set()  #: translation pages that exist
        self.lookups = self.hits = self.loads = 0

    def look_up(self, lpa: int, write: bool) -> None:
        self.lookups += 1
        if lpa in self.protected:
            self.hits += 1
            self.protected.move_to_end(lpa)
        elif lpa in self.probationary:
            self.hits += 1
            del self.probationary[lpa]
            self._protect(lpa)
        else:
            if len(self.probationary) + len(self.protected) == self.slots:
                self._evict()
            self.loads += lpa // self.per_page in self.written
            self.probationary[lpa] = None
        if write:
            self.dirty.setdefault(lpa // self.per_page, set()).add(lpa)

    def _protect(self, lpa: int) -> None:
        if not self.protected_most:
            self.probationary[lpa] = None
            return
        self.protected[lpa] = None
        if len(self.protected) > self.protected_most:
            self.probationary[self.protected.popitem(last=False)[0]] = None

    def _evict(self) -> None:
        """What leaves, if it is dirty, takes all dirty ones of its page with it to flash; those stay, and are clean."""
        lpa, _ = (self.probationary or self.protected).popitem(last=False)
        page = lpa // self.per_page
        if lpa in self.dirty.get(page, ()):
            self.written.add(page)
            del self.dirty[page]
