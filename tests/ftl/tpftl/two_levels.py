"""A small model of TPFTL's cache, written apart from it: nodes of entries, what a miss loads, and what leaves.

It is given requests alone. It is exact while cleaning moves nothing: what it moves makes cached entries dirty.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PLACES = 9  #: entries of a chunk
STEP = 1 << 16  #: of a node's heat, a look-up


@dataclass
class Node:
    heat: int
    order: list[int] = field(default_factory=list)  #: offsets, the one used last first
    dirty: set[int] = field(default_factory=set)
    front: int = 0  #: free places before the first
    fixed: set[int] = field(default_factory=set)  #: used by the request that is served

    def units(self) -> int:
        return 1 + -(-(self.front + len(self.order)) // PLACES)


class TwoLevels:
    """``units`` for nodes and chunks; ``per_page`` entries a page; ``prefetch`` as the option."""

    def __init__(self, units: int, per_page: int, prefetch: str = "both") -> None:
        self.units, self.per_page, self.prefetch = units, per_page, prefetch
        self.nodes: dict[int, Node] = {}
        self.exists: set[int] = set()  #: translation pages in flash
        self.now = self.lookups = self.hits = self.loads = self.evictions = self.prefetched = self.written = 0
        self.balance, self.selective = 0, False

    def request(self, first: int, n: int, write: bool, last: int) -> None:
        """``n`` LPAs from ``first`` on; ``last`` is the device's last LPA."""
        at = first
        while at < first + n:
            for node in self.nodes.values():
                node.fixed = set()
            at = self._prepare(at, first + n, write, last)

    def _prepare(self, at: int, end: int, write: bool, last: int) -> int:
        begun = at
        while at < end and self._bring(at, end, last):
            at += 1
        for lpa in range(begun, at if write else begun):
            self.nodes[lpa // self.per_page].dirty.add(lpa % self.per_page)
        return at

    def _bring(self, lpa: int, end: int, last: int) -> bool:
        page, offset = divmod(lpa, self.per_page)
        self.now += STEP
        node = self.nodes.get(page)
        if node and offset in node.order:
            self.lookups += 1
            self.hits += 1
            node.order.remove(offset)
            node.order.insert(0, offset)
            node.fixed.add(offset)
            node.heat += (self.now - node.heat) // len(node.order)
            return True
        while self._free() < self._takes(page):
            cold = self._coldest()
            if cold is None:
                return False
            if not self._leave(cold):
                self.nodes[cold].dirty = set()
                self.exists.add(cold)
                self.written += 1
        self.lookups += 1
        self.loads += page in self.exists
        self._enter(page, offset, asked=True)
        self._prefetch(page, offset, lpa, end, last)
        return True

    def _prefetch(self, page: int, offset: int, lpa: int, end: int, last: int) -> None:
        here = self.nodes[page].order
        wanted: list[int] = []
        selective = self.selective and self.prefetch in ("both", "selective")
        if self.prefetch in ("both", "request"):
            wanted += [k for k in range(offset + 1, min(self.per_page, offset + end - lpa)) if k not in here]
        entries = min(self.per_page, last + 1 - page * self.per_page)
        before = set(here)
        giving: list[int] = []
        for k in wanted:
            if not self._enter_if(page, k, giving):
                return
        behind = 0
        while selective and behind < offset and offset - behind - 1 in before:
            behind += 1
        for k in range(offset + 1, min(entries, offset + 1 + behind)):
            if k not in self.nodes[page].order and not self._enter_if(page, k, giving):
                return

    def _enter_if(self, page: int, offset: int, giving: list[int]) -> bool:
        while self._free() < self._takes(page):
            if not giving:
                cold = self._coldest()
                if cold is None or cold == page:
                    return False
                giving.append(cold)
            if giving[0] not in self.nodes or not self._leave(giving[0]):
                return False
        self._enter(page, offset, asked=False)
        self.prefetched += 1
        return True

    def _free(self) -> int:
        return self.units - sum(node.units() for node in self.nodes.values())

    def _takes(self, page: int) -> int:
        return 2 if page not in self.nodes else int(self.nodes[page].front == 0)

    def _coldest(self) -> int | None:
        may = [(node.heat, page) for page, node in self.nodes.items() if len(node.order) > len(node.fixed)]
        return min(may)[1] if may else None

    def _leave(self, page: int) -> bool:
        node = self.nodes[page]
        clean = [offset for offset in node.order if offset not in node.dirty and offset not in node.fixed]
        if not clean:
            return False
        node.order.remove(clean[-1])
        self.evictions += 1
        if not node.order:
            del self.nodes[page]
            self._count(-1)
        return True

    def _enter(self, page: int, offset: int, asked: bool) -> None:
        if page not in self.nodes:
            self.nodes[page] = Node(self.now)
            self._count(1)
        node = self.nodes[page]
        node.front = (node.front or PLACES) - 1
        node.order.insert(0, offset)
        node.fixed.add(offset)
        if asked:
            node.heat += (self.now - node.heat) // len(node.order)

    def _count(self, step: int) -> None:
        self.balance += step
        if abs(self.balance) == 3:
            self.selective, self.balance = self.balance < 0, 0
