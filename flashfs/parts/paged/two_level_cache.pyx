"""TPFTL's cache: a node for each translation page that has cached entries, and entries in the nodes (Y. Zhou et al.,
TPFTL, EuroSys 2015, section 4).

An entry takes 6 bytes: two for its offset in the translation page, four for its PPA. It has no links: the entries of a
node lie in the order of their last use, in a chain of *chunks* of nine. An entry that is used moves to the front, and
those before it move on by one place. Nodes and chunks are units of 64 bytes of one arena, so that either can take any
free unit. The first chunk of a node has its free places at the front, the last one at the end.

Nodes are in a heap, ordered by heat: the average time of the last use of their entries. An entry's own time is not
kept: one that is used counts as having been as hot as its node.
"""
cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset
from posix.stdlib cimport posix_memalign

from flashfs.engine.blocks.pool cimport NONE

import numpy

cdef enum:
    FRACTION = 16            # fractional bits of a node's heat
    BOUND = 3                # births less deaths of nodes, or the reverse, that switch selective prefetching

assert sizeof(Chunk) == UNIT_BYTES and sizeof(Node) <= UNIT_BYTES

cdef extern from *:
    int lowest "__builtin_ctz"(unsigned int) nogil

cdef uint64_t LANES = 0x0001000100010001u, UPTO = 0x7FFF7FFF7FFF7FFFu


cdef inline uint64_t zeros(uint64_t lanes) noexcept nogil:
    """Sets the highest bit of each of the four 16-bit lanes that is 0, and no other bit."""
    return ~(((lanes & UPTO) + UPTO) | lanes | UPTO)


cdef inline uint32_t gathered(uint64_t highest) noexcept nogil:
    """The highest bits of four lanes, side by side."""
    return <uint32_t> (((highest >> 15) * <uint64_t> 0x0001000200040008u) >> 48) & 0xF


cdef inline uint32_t places_of(const Chunk* chunk, uint32_t offset) noexcept nogil:
    """A bit for each place of the chunk that has the offset, even if the place is free."""
    cdef uint64_t[2] at
    cdef uint64_t first, second, wanted = offset * LANES
    memcpy(at, chunk.at, 16)
    first = zeros(at[0] ^ wanted)
    second = zeros(at[1] ^ wanted)
    if not (first | second):
        return (chunk.at[CHUNK - 1] == offset) << (CHUNK - 1)
    return gathered(first) | gathered(second) << 4 | (chunk.at[CHUNK - 1] == offset) << (CHUNK - 1)


cdef inline int shift_all_down(Chunk* chunk) noexcept nogil:
    """As ``shift_down``, for a full chunk, whose last entry is dropped."""
    cdef uint64_t[4] ppas
    cdef uint64_t[2] at
    memcpy(ppas, chunk.ppa, 32)
    memcpy(&chunk.ppa[1], ppas, 32)
    memcpy(at, chunk.at, 16)
    memcpy(&chunk.at[1], at, 16)
    chunk.dirty = <uint16_t> ((chunk.dirty << 1) & ((1 << CHUNK) - 1))
    return 0


cdef inline int shift_down(Chunk* chunk, uint32_t low, uint32_t place) noexcept nogil:
    """Moves entries ``low`` to ``place - 1`` one place on; ``low`` is free then, and not dirty."""
    cdef uint32_t moved = (((<uint32_t> 1 << place) - 1) >> low) << low
    memmove(&chunk.ppa[low + 1], &chunk.ppa[low], (place - low) * 4)
    memmove(&chunk.at[low + 1], &chunk.at[low], (place - low) * 2)
    chunk.dirty = <uint16_t> ((chunk.dirty & ~(moved | <uint32_t> 1 << place)) | (chunk.dirty & moved) << 1)
    return 0


cdef inline int shift_up(Chunk* chunk, uint32_t place, uint32_t high) noexcept nogil:
    """Moves entries ``place + 1`` to ``high`` one place back; ``high`` is free then, and not dirty."""
    cdef uint32_t moved = (((<uint32_t> 2 << high) - 1) >> (place + 1)) << (place + 1)
    memmove(&chunk.ppa[place], &chunk.ppa[place + 1], (high - place) * 4)
    memmove(&chunk.at[place], &chunk.at[place + 1], (high - place) * 2)
    chunk.dirty = <uint16_t> ((chunk.dirty & ~(moved | <uint32_t> 1 << place)) | (chunk.dirty & moved) >> 1)
    return 0


@cython.final
cdef class TwoLevelCache:
    """``units`` of 64 bytes, for entries of ``pages`` translation pages of ``per_page`` entries each.

    Entries that the current *batch* used cannot leave: they are the first of their nodes."""

    def __cinit__(self, uint32_t units, uint32_t pages, uint32_t per_page):
        self.pages = pages
        self.per_page = per_page
        self.allocate(units)

    def __dealloc__(self):
        free(self.arena)
        free(self.node_of)
        free(self.heap)

    cdef int allocate(self, uint32_t units) except -1:
        """Allocates the arena, of ``units`` units of UNIT_BYTES bytes, the table of nodes and their heap, and empties
        the cache. Call once: it frees nothing. MemoryError."""
        self.heap_room = min(self.pages, units // 2 + 1)
        if posix_memalign(<void**> &self.arena, UNIT_BYTES, <uint64_t> units * UNIT_BYTES):
            self.arena = NULL
        self.node_of = <uint32_t*> malloc(<uint64_t> self.pages * 4)
        self.heap = <uint32_t*> malloc(<uint64_t> self.heap_room * 4)
        if not (self.arena and self.node_of and self.heap):
            raise MemoryError
        self.units = units
        self.clear()
        return 0

    cdef int clear(self) noexcept nogil:
        """Forgets every entry."""
        cdef uint32_t unit
        memset(self.node_of, 0xFF, <uint64_t> self.pages * 4)
        self.nodes_n = self.used = self.dirty_n = 0
        self.free_n = 0
        self.free = NONE
        for unit in range(self.units, 0, -1):
            self.give(unit - 1)
        self.balance = 0
        self.selective = False
        self.clock = self.births = self.deaths = 0
        self.batch = 1
        return 0

    cdef inline Node* node(self, uint32_t unit) noexcept nogil:
        return <Node*> (self.arena + <uint64_t> unit * UNIT_BYTES)

    cdef inline Chunk* chunk(self, uint32_t unit) noexcept nogil:
        return <Chunk*> (self.arena + <uint64_t> unit * UNIT_BYTES)

    cdef inline uint32_t take(self) noexcept nogil:
        """Takes a free unit; returns its number. There must be one. What it holds is undefined."""
        cdef uint32_t unit = self.free
        self.free = self.chunk(unit).next
        self.free_n -= 1
        return unit

    cdef inline int give(self, uint32_t unit) noexcept nogil:
        """Frees a unit; ``take`` returns it next."""
        self.chunk(unit).next = self.free
        self.free = unit
        self.free_n += 1
        return 0

    cdef int count_node(self, int step) noexcept nogil:
        """A node came (1) or went (-1). When three more have gone than came, the workload is taken for sequential, and
        selective prefetching begins; when three more have come, it ends (section 4.3)."""
        if step > 0:
            self.births += 1
        else:
            self.deaths += 1
        self.balance += step
        if self.balance <= -BOUND or self.balance >= BOUND:
            self.selective = self.balance < 0
            self.balance = 0
        return 0

    # --- the heap of nodes

    cdef inline int put_at(self, uint32_t at, uint32_t unit) noexcept nogil:
        """Puts a node, by its unit, at index ``at`` of the heap, and that index into the node. What was there is lost.
        """
        self.heap[at] = unit
        self.node(unit).heap_at = at
        return 0

    cdef inline bint colder(self, uint32_t one, uint32_t two) noexcept nogil:
        """Whether node ``one`` is colder than ``two``; of two equally hot ones, that of the lower LPAs is."""
        cdef Node* first = self.node(one)
        cdef Node* second = self.node(two)
        return first.hot < second.hot or (first.hot == second.hot and first.page < second.page)

    cdef int sift_up(self, uint32_t at) noexcept nogil:
        cdef uint32_t unit = self.heap[at], above
        while at:
            above = (at - 1) // 2
            if not self.colder(unit, self.heap[above]):
                break
            self.put_at(at, self.heap[above])
            at = above
        return self.put_at(at, unit)

    cdef int sift_down(self, uint32_t at) noexcept nogil:
        cdef uint32_t unit = self.heap[at], below
        while True:
            below = 2 * at + 1
            if below >= self.nodes_n:
                break
            if below + 1 < self.nodes_n and self.colder(self.heap[below + 1], self.heap[below]):
                below += 1
            if not self.colder(self.heap[below], unit):
                break
            self.put_at(at, self.heap[below])
            at = below
        return self.put_at(at, unit)

    cdef int leave_heap(self, uint32_t at) noexcept nogil:
        cdef uint32_t last = self.heap[self.nodes_n - 1]
        self.nodes_n -= 1
        if at == self.nodes_n:
            return 0
        self.put_at(at, last)
        self.sift_up(at)
        return self.sift_down(self.node(last).heap_at)

    cdef inline uint32_t used_now(self, const Node* node) noexcept nogil:
        """How many entries of the node this batch has used."""
        return node.used_n if node.used_in == self.batch else 0

    cdef uint32_t coldest(self) noexcept nogil:
        """The coldest node with an entry that may leave; NONE if there is none."""
        cdef uint32_t at, best = NONE
        cdef Node* node
        for at in range(self.nodes_n):
            node = self.node(self.heap[at])
            if node.n > self.used_now(node):
                if at == 0:
                    return self.heap[0]
                if best == NONE or self.colder(self.heap[at], best):
                    best = self.heap[at]
        return best

    # --- entries

    cdef int next_batch(self) noexcept nogil:
        """Begins a batch: entries used before it may leave."""
        self.batch += 1
        return 0

    cdef bint find(self, uint32_t page, uint32_t offset, Spot* spot) noexcept nogil:
        """Whether the entry is cached, and where. Changes nothing."""
        cdef uint32_t unit = self.node_of[page], place, end, left, found, passed = 0
        cdef Node* node
        cdef Chunk* chunk
        if unit == NONE:
            return False
        node = self.node(unit)
        left = node.n
        place = node.skip
        unit = node.head
        while left:
            chunk = self.chunk(unit)
            end = min(<uint32_t> CHUNK, place + left)
            left -= end - place
            found = places_of(chunk, offset) >> place << place & ((<uint32_t> 1 << end) - 1)
            if found:
                spot.chunk = unit
                spot.place = lowest(found)
                spot.index = passed + spot.place - node.skip
                return True
            passed += CHUNK
            place = 0
            unit = chunk.next
        return False

    cdef uint32_t units_for(self, uint32_t page) noexcept nogil:
        """Units that another entry of the page takes: 2, 1 or 0."""
        if self.node_of[page] == NONE:
            return 2
        return self.node(self.node_of[page]).skip == 0

    cdef int warm(self, Node* node) noexcept nogil:
        """One of the node's entries is used now: raises the average by that entry's share."""
        cdef uint64_t now = self.clock << FRACTION
        node.hot += (now - node.hot) // node.n
        return self.sift_down(node.heap_at)

    cdef bint use(self, uint32_t page, uint32_t offset) noexcept nogil:
        """A lookup: whether the entry is cached. If so, it becomes the first of its node, and cannot leave during this
        batch."""
        cdef Spot spot
        cdef Node* node
        self.clock += 1
        if not self.find(page, offset, &spot):
            return False
        node = self.node(self.node_of[page])
        if spot.index >= self.used_now(node):
            node.used_n = self.used_now(node) + 1
            node.used_in = self.batch
        if spot.index:
            self.to_front(node, &spot)
        self.warm(node)
        return True

    cdef int to_front(self, Node* node, const Spot* spot) noexcept nogil:
        """Moves the entry at ``spot`` to the front of its node, with its dirty bit; the entries before it move on by
        one place. ``spot`` is outdated then."""
        cdef uint32_t unit = spot.chunk, place = spot.place, low
        cdef Chunk* chunk = self.chunk(unit)
        cdef Chunk* before
        cdef uint32_t ppa = chunk.ppa[place]
        cdef uint16_t at = chunk.at[place]
        cdef bint dirty = chunk.dirty >> place & 1
        while True:
            low = node.skip if unit == node.head else 0
            if place - low == CHUNK - 1:
                shift_all_down(chunk)
            else:
                shift_down(chunk, low, place)
            if unit == node.head:
                break
            before = self.chunk(chunk.before)
            chunk.ppa[0] = before.ppa[CHUNK - 1]
            chunk.at[0] = before.at[CHUNK - 1]
            chunk.dirty |= before.dirty >> (CHUNK - 1) & 1
            unit = chunk.before
            chunk = before
            place = CHUNK - 1
        chunk.ppa[low] = ppa
        chunk.at[low] = at
        if dirty:
            chunk.dirty |= <uint16_t> (1 << low)
        return 0

    cdef int insert(self, uint32_t page, uint32_t offset, uint32_t ppa, bint dirty, bint asked) noexcept nogil:
        """Adds an entry as the first of its node; it cannot leave during this batch. ``units_for`` units must be free.
        If it was not ``asked`` for (prefetching), its node gets no hotter."""
        cdef uint32_t unit = self.node_of[page], head
        cdef Node* node
        cdef Chunk* chunk
        if unit == NONE:
            unit = self.take()
            node = self.node(unit)
            node.page = page
            node.n = node.dirty_n = node.skip = node.used_n = node.used_in = 0
            node.head = node.tail = NONE
            node.hot = self.clock << FRACTION
            self.node_of[page] = unit
            self.nodes_n += 1
            self.put_at(self.nodes_n - 1, unit)
            self.sift_up(self.nodes_n - 1)
            self.count_node(1)
        node = self.node(unit)
        if node.skip == 0:
            head = self.take()
            chunk = self.chunk(head)
            chunk.dirty = 0
            chunk.before = NONE
            chunk.next = node.head
            if node.head != NONE:
                self.chunk(node.head).before = head
            else:
                node.tail = head
            node.head = head
            node.skip = CHUNK
        node.skip -= 1
        node.n += 1
        node.used_n = self.used_now(node) + 1
        node.used_in = self.batch
        chunk = self.chunk(node.head)
        chunk.ppa[node.skip] = ppa
        chunk.at[node.skip] = <uint16_t> offset
        chunk.dirty &= <uint16_t> ~(1 << node.skip)
        if dirty:
            chunk.dirty |= <uint16_t> (1 << node.skip)
            node.dirty_n += 1
            self.dirty_n += 1
        self.used += 1
        return self.warm(node) if asked else 0

    cdef int put(self, uint32_t page, const Spot* spot, uint32_t ppa) noexcept nogil:
        """Changes the entry, which is dirty from now on."""
        cdef Chunk* chunk = self.chunk(spot.chunk)
        chunk.ppa[spot.place] = ppa
        if not chunk.dirty >> spot.place & 1:
            chunk.dirty |= <uint16_t> (1 << spot.place)
            self.node(self.node_of[page]).dirty_n += 1
            self.dirty_n += 1
        return 0

    cdef bint leaver(self, uint32_t unit, Spot* spot) noexcept nogil:
        """The clean entry of the node that was used longest ago, and not by this batch; False if there is none."""
        cdef Node* node = self.node(unit)
        cdef Chunk* chunk
        cdef uint32_t index = node.n, used = self.used_now(node), place = (node.skip + node.n) % CHUNK
        if node.dirty_n == node.n:
            return False
        unit = node.tail
        while index > used:
            if place == 0:
                place = CHUNK
            chunk = self.chunk(unit)
            while place and index > used:
                place -= 1
                index -= 1
                if not chunk.dirty >> place & 1:
                    spot.chunk = unit
                    spot.place = place
                    spot.index = index
                    return True
            unit = chunk.before
        return False

    cdef int remove(self, uint32_t unit, const Spot* spot) noexcept nogil:
        """Removes that entry of the node; it must be clean. The node goes with its last entry."""
        cdef Node* node = self.node(unit)
        cdef uint32_t at = spot.chunk, place = spot.place, last = (node.skip + node.n - 1) % CHUNK, high
        cdef Chunk* chunk = self.chunk(at)
        cdef Chunk* behind
        while True:
            high = last if at == node.tail else CHUNK - 1
            shift_up(chunk, place, high)
            if at == node.tail:
                break
            behind = self.chunk(chunk.next)
            chunk.ppa[CHUNK - 1] = behind.ppa[0]
            chunk.at[CHUNK - 1] = behind.at[0]
            chunk.dirty |= <uint16_t> ((behind.dirty & 1) << (CHUNK - 1))
            at = chunk.next
            chunk = behind
            place = 0
        node.n -= 1
        self.used -= 1
        if node.n == 0:
            self.give(node.head)
            self.leave_heap(node.heap_at)
            self.node_of[node.page] = NONE
            self.give(unit)
            return self.count_node(-1)
        if last == 0:                      # its last chunk is empty now
            node.tail = self.chunk(at).before
            self.chunk(node.tail).next = NONE
            self.give(at)
        return 0

    cdef int clean_page(self, uint32_t page) noexcept nogil:
        """The translation page was written: its entries are clean."""
        cdef uint32_t unit = self.node_of[page], at
        cdef Node* node
        if unit == NONE or self.node(unit).dirty_n == 0:
            return 0
        node = self.node(unit)
        self.dirty_n -= node.dirty_n
        node.dirty_n = 0
        at = node.head
        while at != NONE:
            self.chunk(at).dirty = 0
            at = self.chunk(at).next
        return 0

    cdef int forget_page(self, uint32_t page) noexcept nogil:
        """Removes the page's entries, dirty or not."""
        cdef uint32_t unit = self.node_of[page], at, behind
        cdef Node* node
        if unit == NONE:
            return 0
        node = self.node(unit)
        self.used -= node.n
        self.dirty_n -= node.dirty_n
        self.leave_heap(node.heap_at)
        self.node_of[page] = NONE
        at = node.head
        self.give(unit)
        while at != NONE:
            behind = self.chunk(at).next
            self.give(at)
            at = behind
        return 0

    cdef uint32_t dirty_of(self, uint32_t page, uint32_t offset, uint32_t n, uint32_t* image) noexcept nogil:
        """How many dirty entries there are of ``n`` from ``offset`` on. Stores them in ``image``, if that is not NULL.
        """
        cdef uint32_t unit = self.node_of[page], left, place, end, found = 0
        cdef Node* node
        cdef Chunk* chunk
        if unit == NONE or self.node(unit).dirty_n == 0:
            return 0
        node = self.node(unit)
        left = node.n
        place = node.skip
        unit = node.head
        while left:
            chunk = self.chunk(unit)
            end = min(<uint32_t> CHUNK, place + left)
            left -= end - place
            for place in range(place, end if chunk.dirty else place):
                if chunk.dirty >> place & 1 and chunk.at[place] - offset < n:
                    found += 1
                    if image != NULL:
                        image[chunk.at[place] - offset] = chunk.ppa[place]
            place = 0
            unit = chunk.next
        return found

    cdef int list_cached(self, uint32_t page, uint64_t* bits, uint32_t* image) noexcept nogil:
        """Lists the cached entries of the page: sets ``bits`` to a bit for each, and stores them at their places in
        ``image``, leaving the other places as they are. Either may be NULL."""
        cdef uint32_t unit = self.node_of[page], left, place, end
        cdef Node* node
        cdef Chunk* chunk
        if bits != NULL:
            memset(bits, 0, (self.per_page + 63) // 64 * 8)
        if unit == NONE:
            return 0
        node = self.node(unit)
        left = node.n
        place = node.skip
        unit = node.head
        while left:
            chunk = self.chunk(unit)
            end = min(<uint32_t> CHUNK, place + left)
            left -= end - place
            for place in range(place, end):
                if bits != NULL:
                    bits[chunk.at[place] >> 6] |= <uint64_t> 1 << (chunk.at[place] & 63)
                if image != NULL:
                    image[chunk.at[place]] = chunk.ppa[place]
            place = 0
            unit = chunk.next
        return 0

    def dirty_entries(self):
        """(LPAs, PPAs) of all dirty entries, arrays of u32."""
        cdef uint32_t at, unit, left, place, end, n = 0
        cdef Node* node
        cdef Chunk* chunk
        cdef uint32_t[::1] lpas, ppas
        lpa = numpy.empty(self.dirty_n, numpy.uint32)
        ppa = numpy.empty(self.dirty_n, numpy.uint32)
        lpas, ppas = lpa, ppa
        for at in range(self.nodes_n):
            node = self.node(self.heap[at])
            left = node.n if node.dirty_n else 0
            place = node.skip
            unit = node.head
            while left:
                chunk = self.chunk(unit)
                end = min(<uint32_t> CHUNK, place + left)
                left -= end - place
                for place in range(place, end):
                    if chunk.dirty >> place & 1:
                        lpas[n] = node.page * self.per_page + chunk.at[place]
                        ppas[n] = chunk.ppa[place]
                        n += 1
                place = 0
                unit = chunk.next
        return lpa, ppa

    # --- for users and tests

    def sizes(self):
        """(bytes as a controller packs them, as allocated)."""
        taken = self.units_take() + 4 * <uint64_t> self.pages
        return taken, taken

    cdef uint64_t free_bytes(self) noexcept nogil:
        """Bytes of the units that are free."""
        return <uint64_t> self.free_n * UNIT_BYTES

    def units_take(self):
        """Bytes of that for units and their heap: what grows with the number of units."""
        return <uint64_t> self.units * UNIT_BYTES + 4 * <uint64_t> self.heap_room

    def nodes(self):
        """Every node, the coldest first: {"page", "entries", "dirty", "heat" (the average number of the lookup that
        last used its entries)}."""
        cdef uint32_t at
        cdef Node* node
        out = []
        for at in range(self.nodes_n):
            node = self.node(self.heap[at])
            out.append({"page": node.page, "entries": node.n, "dirty": node.dirty_n,
                        "heat": round(node.hot / <double> (1 << FRACTION), 3)})
        return sorted(out, key=lambda one: (one["heat"], one["page"]))

    def entries_of(self, uint32_t page):
        """The entries of a page's node, the one used longest ago first: {"lpa", "ppa" (None: a hole), "dirty"}."""
        cdef uint32_t unit = self.node_of[page], i, place
        cdef Node* node
        cdef Chunk* chunk
        out = []
        if unit == NONE:
            return out
        node = self.node(unit)
        unit = node.head
        for i in range(node.n):
            place = (node.skip + i) % CHUNK
            chunk = self.chunk(unit)
            ppa = chunk.ppa[place]
            out.append({"lpa": page * self.per_page + chunk.at[place], "ppa": None if ppa == NONE else ppa,
                        "dirty": bool(chunk.dirty >> place & 1)})
            if place == CHUNK - 1:
                unit = chunk.next
        return out[::-1]

    def entries(self):
        """Every entry, those of the coldest node first: {"lpa", "ppa" (None: a hole), "dirty", "node" (its translation
        page)}."""
        return [{**entry, "node": node["page"]} for node in self.nodes() for entry in self.entries_of(node["page"])]

    def check(self):
        """Checks that each node is in the heap, which is in order; each entry is its page's, once; the counts are
        right."""
        cdef uint32_t at, taken = 0
        cdef Node* node
        problems = []
        used = dirty = 0
        for at in range(self.nodes_n):
            node = self.node(self.heap[at])
            entries = self.entries_of(node.page)
            marked = sum(entry["dirty"] for entry in entries)
            used += node.n
            dirty += marked
            taken += 1 + (node.skip + node.n + CHUNK - 1) // CHUNK
            if node.heap_at != at or self.node_of[node.page] != self.heap[at]:
                problems.append(f"CMT: the node of translation page {node.page} is not where the heap says")
            if at and self.node(self.heap[(at - 1) // 2]).hot > node.hot:
                problems.append(f"CMT: the node of translation page {node.page} is colder than the one above it")
            if not 0 < node.n == len({entry["lpa"] for entry in entries}) or marked != node.dirty_n:
                problems.append(f"CMT: the node of translation page {node.page} counts {node.n} entries, "
                                f"{node.dirty_n} of them dirty, and has others")
            if any(entry["lpa"] >= (node.page + 1) * self.per_page for entry in entries):
                problems.append(f"CMT: the node of translation page {node.page} has an entry of another one")
        if used != self.used or dirty != self.dirty_n:
            problems.append(f"CMT: {self.used} entries counted, {self.dirty_n} dirty: there are {used}, {dirty}")
        if taken + self.free_n != self.units:
            problems.append(f"CMT: {taken} units taken and {self.free_n} free of {self.units}")
        return problems
