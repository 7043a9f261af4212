# distutils: language = c++
# cython: wraparound=True
"""Translation pages found through a B-tree in flash, with only the root in DRAM: u-FTL and IB-FTL need no directory
there (Y.-G. Lee et al., u-FTL, EMSOFT 2008; N. Dayan et al., GeckoFTL, SIGMOD 2016, 5.3).

The keys are the numbers of the translation pages, and each number has its place whether the page exists or not. So the
tree is full, and a node is an array of ``fanout`` pointers, 4 bytes each, without keys. Nodes are pages of the mapping
like the translation pages under them, in the same blocks, cleaned by the same code. Their numbers are below those of
the translation pages, level by level from the root down: a recovery, which settles pages in ascending order, knows
where a node is before it needs a page under it.

A few nodes are cached, as they are in flash. A changed pointer is in ``newer``, a small map in DRAM, until its node is
written: the node with the most changes goes first, and takes all its pointers. That happens between requests and where
a translation page is written back (``housekeep``); never inside a change. A checkpoint takes the root and ``newer``,
and writes no node.
"""
from cython.operator cimport dereference as deref
from cython.operator cimport preincrement as step
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from libcpp.map cimport map as cppmap

from flashfs.parts.paged.entry_pages cimport EntryPages, Gtd
from flashfs.parts.battery.map_battery cimport MapBattery
from flashfs.parts.paged.cpp_map cimport assign
from flashfs.engine.contract.engine cimport IN_TABLE
from flashfs.engine.blocks.pool cimport CAUSE_MAP, KIND_TRANSLATION, NONE, Oob, placed, read_oob
from nandimg._nand cimport PAGE_OK

import numpy

from flashfs.errors import MapLostError


def level_widths(leaves, fanout):
    """How many pages each level has: the translation pages, then the nodes above them, up to the root's children."""
    widths = [leaves]
    while widths[-1] > fanout:
        widths.append(-(-widths[-1] // fanout))
    return widths


def fanout_for(page_bytes, most=0):
    """Pointers of a node: as many as a page has room for, or ``most`` if that is fewer and not 0."""
    return min(most, page_bytes // 4) if most else page_bytes // 4


def tree_pages(leaves, fanout):
    """Pages of the tree in flash, translation pages and nodes."""
    return sum(level_widths(leaves, fanout))


def tree_kept(leaves, fanout, pages_per_block):
    """A battery's share of it: (entries of the root, places for pointers). Between requests ``fanout`` pointers wait;
    after the move of a block one more for each of its pages, and as many for nodes."""
    widths = level_widths(leaves, fanout)
    return widths[-1], min(sum(widths), fanout + 2 * pages_per_block + 16)


def tree_sections(leaves, fanout):
    """{section: most bytes} of a checkpoint."""
    widths = level_widths(leaves, fanout)
    return {"root": 4 + 4 * widths[-1], "pointers": 8 * sum(widths)}


cdef class MapBtree(Gtd):
    """The directory of ``mapping``, whose ``n`` translation pages are the leaves; ``frames`` nodes are cached, at least
    1 and at most all. ``fanout``: pointers per node, from 2 to a quarter of the bytes per page; this is not checked,
    and 0 does not mean a default here, as it does for ``fanout_for``. MemoryError."""

    def __cinit__(self, EntryPages mapping not None, uint32_t n, uint32_t fanout, uint32_t frames):
        cdef uint32_t i
        widths = level_widths(n, fanout)
        self.fanout = fanout
        self.levels = <uint32_t> len(widths) - 1
        for i in range(<uint32_t> len(widths)):
            self.width[i] = widths[i]
            self.first[i] = sum(widths[i + 1:])
        self.first_id = self.first[0]
        self.newer_most = fanout
        self.frames_n = max(<uint32_t> 1, min(frames, self.first_id))
        self.page_words = mapping.ssd.nand.page_bytes // 4
        self.root = <uint32_t*> malloc(<uint64_t> self.width[self.levels] * 4)
        self.images = <uint32_t*> malloc(<uint64_t> (self.frames_n + 2) * self.page_words * 4)
        self.frame_id = <uint32_t*> malloc((self.frames_n + 1) * 4)
        self.frame_ppa = <uint32_t*> malloc((self.frames_n + 1) * 4)
        self.frame_used = <uint64_t*> calloc(self.frames_n + 1, 8)
        if not (self.root and self.images and self.frame_id and self.frame_ppa and self.frame_used):
            raise MemoryError
        free(self.page_ppas)                # the base's table: here its content is in flash
        self.page_ppas = NULL
        self.forget()

    def __dealloc__(self):
        free(self.root)
        free(self.images)
        free(self.frame_id)
        free(self.frame_ppa)
        free(self.frame_used)

    # --- the shape

    cdef int level_of(self, uint32_t id) noexcept nogil:
        """The level of page ``id``: 0 for a translation page, 1 for a node above those, up to ``levels`` for the root's
        children. The root has no id."""
        cdef int level = 0
        while id < self.first[level]:
            level += 1
        return level

    cdef uint32_t parent(self, uint32_t id) noexcept nogil:
        """The node that has the pointer to a page; NONE: the root has it."""
        cdef uint32_t level = self.level_of(id)
        if level == self.levels:
            return NONE
        return self.first[level + 1] + (id - self.first[level]) // self.fanout

    cdef uint32_t slot(self, uint32_t id) noexcept nogil:
        """The index of a page's pointer in its parent."""
        cdef uint32_t level = self.level_of(id)
        return id - self.first[level] if level == self.levels else (id - self.first[level]) % self.fanout

    cdef uint32_t first_child(self, uint32_t id, uint32_t* n) noexcept nogil:
        """The first page under a node, and how many there are."""
        cdef uint32_t level = self.level_of(id), at = (id - self.first[level]) * self.fanout
        n[0] = min(self.fanout, self.width[level - 1] - at)
        return self.first[level - 1] + at

    # --- lookup

    cdef uint32_t find(self, uint32_t id) except? 0xFFFFFFFE nogil:
        cdef cppmap[uint32_t, uint32_t].iterator at = self.newer.find(id)
        cdef uint32_t above, ppa, frame
        if at != self.newer.end():
            return deref(at).second
        above = self.parent(id)
        if above == NONE:
            return self.root[self.slot(id)]
        ppa = self.find(above)
        if ppa == NONE:                     # it does not exist; or has just been rebuilt, and is all in DRAM
            at = self.newer.find(id)
            return deref(at).second if at != self.newer.end() else NONE
        frame = self.frame_of(above, ppa)
        if frame == NONE:                   # it was rebuilt
            return self.find(id)
        return self.images[<uint64_t> frame * self.page_words + self.slot(id)]

    cdef uint32_t frame_of(self, uint32_t id, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """The frame of a cached node; reads the node if it is not cached. NONE: it cannot be read, and its pointers are
        in ``newer`` now."""
        cdef uint32_t i, frame = 0
        for i in range(self.frames_n + 1):
            if self.frame_id[i] == id and self.frame_ppa[i] == ppa:
                self.node_hits += not self.hushed
                if not self.hushed:
                    self.clock += 1
                    self.frame_used[i] = self.clock
                return i
        if self.hushed:
            frame = self.frames_n
        else:
            for i in range(1, self.frames_n):
                if self.frame_used[i] < self.frame_used[frame]:
                    frame = i
            self.clock += 1
            self.frame_used[frame] = self.clock
        self.frame_id[frame] = NONE
        self.node_reads += 1
        if not self.mapping.store.read(ppa, id, <uint8_t*> (self.images + <uint64_t> frame * self.page_words)):
            with gil:
                self.remake(id)
            return NONE
        self.frame_id[frame] = id
        self.frame_ppa[frame] = ppa
        return frame

    cdef uint32_t where(self, uint32_t page) except? 0xFFFFFFFE nogil:
        return self.find(self.first_id + page)

    cdef uint32_t known(self, uint32_t page) noexcept nogil:
        cdef uint32_t id = self.first_id + page, above, ppa, i
        cdef cppmap[uint32_t, uint32_t].iterator at = self.newer.find(id)
        if at != self.newer.end():
            return deref(at).second
        above = self.parent(id)
        if above == NONE:
            return self.root[self.slot(id)]
        at = self.newer.find(above)
        ppa = deref(at).second if at != self.newer.end() else NONE
        if at == self.newer.end() and self.parent(above) == NONE:
            ppa = self.root[self.slot(above)]
        for i in range(self.frames_n + 1 if ppa != NONE else 0):
            if self.frame_id[i] == above and self.frame_ppa[i] == ppa:
                return self.images[<uint64_t> i * self.page_words + self.slot(id)]
        return NONE

    cdef bint absent(self, uint32_t page) noexcept nogil:
        """If a node does not exist, nothing under it does."""
        cdef uint32_t id = self.first_id + page, ppa = 0
        cdef cppmap[uint32_t, uint32_t].iterator at
        while id != NONE:
            at = self.newer.find(id)
            if at != self.newer.end():
                return deref(at).second == NONE
            if self.parent(id) == NONE:
                ppa = self.root[self.slot(id)]
            id = self.parent(id)
        return ppa == NONE

    cdef int quiet(self, bint on) noexcept nogil:
        self.hushed = on
        return 0

    # --- changes

    cdef int move_to(self, uint32_t id, uint32_t ppa) except -1 nogil:
        """A cached node stays cached under its new PPA: unchanged, or as ``write_node`` changed it. Otherwise a later
        version might get the old PPA, and the stale frame be taken for it."""
        cdef uint32_t i
        for i in range(self.frames_n + 1 if id < self.first_id else 0):
            if self.frame_id[i] == id:
                self.frame_ppa[i] = ppa
                self.frame_id[i] = id if ppa != NONE else NONE
        if self.parent(id) == NONE:
            self.root[self.slot(id)] = ppa
            return self.mapping.saved.put_page(self.slot(id), ppa) if self.mapping.keeps() else 0
        assign(self.newer, id, ppa)
        return self.keep_pointer(id, ppa) if self.mapping.keeps() else 0

    cdef int keep_pointer(self, uint32_t id, uint32_t ppa) except -1 nogil:
        """Puts the pointer into the battery."""
        cdef cppmap[uint32_t, uint32_t].iterator at = self.placed.find(id)
        cdef uint32_t place = deref(at).second if at != self.placed.end() else NONE
        place = self.mapping.saved.put_pointer(place, id, ppa)
        assign(self.placed, id, place)
        return 0

    cdef int drop_pointers(self, uint32_t first, uint32_t n) except -1 nogil:
        """Removes the pointers to these pages from the battery: the node above has them, and the battery has that node.
        """
        cdef uint32_t id
        cdef cppmap[uint32_t, uint32_t].iterator at
        for id in range(first, first + n):
            at = self.placed.find(id)
            if at != self.placed.end():
                if self.mapping.keeps():
                    self.mapping.saved.clear_pointer(deref(at).second)
                self.placed.erase(id)
        return 0

    cdef int replaced(self, uint32_t old, uint32_t ppa) noexcept nogil:
        self.pages_n += (ppa != NONE) - (old != NONE)
        return 0

    cdef int housekeep(self) except -1 nogil:
        cdef int64_t start = self.mapping.ssd.map_ns
        cdef uint64_t writes = self.newer.size()
        if self.newer.size() <= self.newer_most:
            return 0
        self.mapping.ssd.will_change()
        while self.newer.size() > self.newer_most and writes:
            writes -= 1                     # on a chip that is all but full, cleaning for a node moves as many pointers
            self.mapping.store.ensure(1)
            self.mapping.store.make_way()   # what was cleaned for that may have superseded pages too
            self.mapping.ssd.map_ns = start
            self.write_node(self.most_changed())
        return 0

    cdef uint32_t most_changed(self) noexcept nogil:
        """The node with the most pointers in ``newer``."""
        cdef cppmap[uint32_t, uint32_t].iterator at = self.newer.begin()
        cdef uint32_t above, last = NONE, n = 0, best = NONE, most = 0
        while at != self.newer.end():
            above = self.parent(deref(at).first)
            n = n + 1 if above == last else 1
            last = above
            if n > most:
                most = n
                best = above
            step(at)
        return best

    cdef int write_node(self, uint32_t id) except -1 nogil:
        """Writes all newer pointers of a node, in one program; a node without pointers is dropped."""
        cdef uint32_t n = 0, first = self.first_child(id, &n), old = self.find(id), ppa = NONE, i, frame = NONE
        cdef uint32_t* image = self.images + <uint64_t> (self.frames_n + 1) * self.page_words
        cdef cppmap[uint32_t, uint32_t].iterator at
        cdef int before = self.mapping.ssd.stopped
        self.mapping.changes()
        if old != NONE:
            frame = self.frame_of(id, old)
        if frame != NONE:
            memcpy(image, self.images + <uint64_t> frame * self.page_words, self.page_words * 4)
        else:
            old = self.find(id)             # NONE if it was rebuilt
            memset(image, 0xFF, self.page_words * 4)
        at = self.newer.lower_bound(first)
        while at != self.newer.end() and deref(at).first < first + n:
            image[deref(at).first - first] = deref(at).second
            step(at)
        for i in range(n):
            if image[i] != NONE:
                ppa = self.mapping.store.program(id, <const uint8_t*> image)
                self.node_programs += 1
                break
        self.mapping.ssd.stopped = IN_TABLE
        for i in range(first, first + n):
            self.newer.erase(i)
        for i in range(self.frames_n + 1):
            if self.frame_id[i] == id and i != frame:
                self.frame_id[i] = NONE
        if frame != NONE:
            memcpy(self.images + <uint64_t> frame * self.page_words, image, self.page_words * 4)
        self.move_to(id, ppa)
        self.drop_pointers(first, n)
        self.replaced(old, ppa)
        if old != NONE:
            self.mapping.store.supersede(old)
        self.mapping.ssd.stopped = before
        return 0

    # --- damage

    cdef int remake(self, uint32_t id) except -1:
        """Rebuilds a node that cannot be read: the spare areas of the pages under it say where these are. MapLostError
        during a recovery."""
        cdef uint32_t n = 0, first = self.first_child(id, &n), block, page, ppa, old = self.find(id), child
        cdef uint8_t status = 0
        cdef uint8_t[4096] raw
        cdef bint nobody = False
        cdef Oob oob
        ssd = self.mapping.ssd
        self.mapping.doubts()
        why = f"a node of the map's tree, of pages {first} to {first + n - 1}, cannot be read"
        if self.mapping.strict:
            raise MapLostError(why)
        ssd.alarm(f"{why}: it is made again from those pages")
        self.mapping.rebuilds += 1
        self.mapping.exact = False          # nothing says how many pages the lost node named
        newest = {}
        for block in range(ssd.nand.blocks):
            if ssd.validity.count(block) == 0 or ssd.kind_of(block) != KIND_TRANSLATION:
                continue
            for page in ssd.validity.live_in(block):
                ppa = block * ssd.nand.pages_per_block + page
                read_oob(ssd.nand, ppa, raw, &oob, &status, CAUSE_MAP, ssd.now_ns)
                if status != PAGE_OK or oob.kind != KIND_TRANSLATION:
                    nobody |= ppa != old
                elif first <= oob.lpa < first + n and not self.mapping.store.keeps(ppa):
                    newest[oob.lpa] = max(newest.get(oob.lpa, (0, 0)), (oob.seq, ppa))
        for child in range(first, first + n):
            if self.newer.count(child) == 0:
                assign(self.newer, child, <uint32_t> (newest[child][1] if child in newest else NONE))
        self.move_to(id, NONE)
        self.replaced(old, NONE)
        if old != NONE:
            self.mapping.store.supersede(old)
        self.remaking += 1
        try:
            for child in range(first, first + n) if nobody else ():
                if self.find(child) != NONE:
                    continue
                if child >= self.first_id:
                    self.mapping.rebuild(child - self.first_id)
                else:
                    self.remake(child)
            if self.remaking == 1:
                self.pages_n = len(self.ppas())
        finally:
            self.remaking -= 1
        return self.drop_nameless() if nobody and not self.remaking else 0

    cdef int drop_nameless(self) except -1:
        """Lets unreadable pages of the tree die that no node names any more, because the naming node is lost too: as
        many as validity has room for reports."""
        cdef uint32_t block, page, ppa
        cdef uint8_t status = 0
        cdef uint8_t[4096] raw
        ssd = self.mapping.ssd
        self.remaking += 1                  # nodes that ``ppas`` remakes must not come here again
        try:
            named = {*self.ppas(), *self.mapping.store.kept_ppas()}
        finally:
            self.remaking -= 1
        for block in range(ssd.nand.blocks):
            if ssd.validity.count(block) == 0 or ssd.kind_of(block) != KIND_TRANSLATION:
                continue
            for page in ssd.validity.live_in(block):
                ppa = block * ssd.nand.pages_per_block + page
                ssd.nand.read_spare(block, page, 1, raw, &status, CAUSE_MAP, ssd.now_ns)
                if placed(status, raw, page) != PAGE_OK and ppa not in named and ssd.validity.room():
                    self.mapping.store.fresh.erase(ppa)
                    ssd.validity.dead(&ppa, 1)
        return 0

    cdef int lost(self, uint32_t ppa) except -1 nogil:
        """Searches all pages; an unreadable node on the way is rebuilt."""
        cdef uint32_t id
        for id in range(self.first_id + self.n):
            if self.find(id) != ppa:
                continue
            if id >= self.first_id:
                return self.owner.page_gone(id - self.first_id)
            with gil:
                self.remake(id)
            return 0
        return 0

    def faults(self):
        cdef uint32_t id, ppa
        lines = []
        for id in range(self.first_id):
            ppa = self.find(id)
            if ppa != NONE and not self.mapping.store.read(ppa, id, <uint8_t*> (
                    self.images + <uint64_t> (self.frames_n + 1) * self.page_words)):
                lines.append(f"PPA {ppa}: node {id} of the map's tree cannot be read")
        return lines

    # --- checkpoints

    def forget(self):
        cdef uint32_t i
        memset(self.root, 0xFF, <uint64_t> self.width[self.levels] * 4)
        self.newer.clear()
        self.placed.clear()
        self.pages_n = 0
        self.remaking = 0
        self.hushed = False
        for i in range(self.frames_n + 1):
            self.frame_id[i] = NONE
            self.frame_used[i] = 0

    def save(self):
        """``root``: how many pages of the tree there are, and the PPAs of the root's children, u32 each. ``pointers``:
        {u32 page, u32 PPA}, ascending: those that the nodes in flash do not have yet."""
        cdef uint32_t i
        root = [self.pages_n, *(self.root[i] for i in range(self.width[self.levels]))]
        pointers = [word for pair in self.newer for word in (pair.first, pair.second)]
        return {"root": numpy.array(root, "<u4").tobytes(), "pointers": numpy.array(pointers, "<u4").tobytes()}

    def load(self, sections, pages):
        cdef uint32_t i
        root = numpy.frombuffer(sections["root"], "<u4")
        pointers = numpy.frombuffer(sections.get("pointers", b""), "<u4")
        if len(root) != 1 + self.width[self.levels] or len(pointers) % 2:
            raise ValueError(f"root section of {4 * len(root)} bytes: {4 + 4 * self.width[self.levels]} are needed")
        ids, ppas = pointers[::2].astype(numpy.int64), pointers[1::2]
        if (ids[1:] <= ids[:-1]).any() or (len(ids) and int(ids[-1]) >= self.first_id + self.n):
            raise ValueError("pointers section: its pages do not ascend, or there is no such page")
        named = numpy.concatenate([root[1:], ppas])
        named = named[named != NONE]
        if len(named) and int(named.max()) >= pages:
            raise ValueError(f"root section: a page at PPA {int(named.max())}: the chip has {pages} pages")
        if int(root[0]) > self.first_id + self.n:
            raise ValueError(f"root section: {int(root[0])} pages: there can be {self.first_id + self.n}")
        self.pages_n = int(root[0])
        for i in range(self.width[self.levels]):
            self.root[i] = root[1 + i]
        for id, ppa in zip(ids.tolist(), ppas.tolist(), strict=True):
            assign(self.newer, <uint32_t> id, <uint32_t> ppa)

    def from_versions(self, ids, ppas):
        """Reads the nodes: nothing else says which of their pointers lead to older versions."""
        cdef uint32_t id, n = 0, first, i
        cdef uint32_t* image = self.images + <uint64_t> (self.frames_n + 1) * self.page_words
        newest = numpy.full(self.first_id + self.n, NONE, numpy.uint32)
        within = ids < len(newest)
        newest[ids[within]] = ppas[within]
        pointers = {}
        for id in range(self.first_id):
            first = self.first_child(id, &n)
            if newest[id] != NONE and not self.mapping.store.read(<uint32_t> newest[id], id, <uint8_t*> image):
                newest[id] = NONE
                if self.parent(id) != NONE:
                    pointers[id] = NONE
            if newest[id] == NONE:
                memset(image, 0xFF, self.page_words * 4)
            for i in range(n):
                if image[i] != newest[first + i]:
                    pointers[first + i] = newest[first + i]
        root = [(newest != NONE).sum(), *newest[self.first[self.levels]:][:self.width[self.levels]]]
        return {"root": numpy.array(root, "<u4").tobytes(),
                "pointers": numpy.array(sorted(pointers.items()), "<u4").tobytes()}

    # --- the battery

    cdef int save_in(self, MapBattery battery) except -1:
        cdef uint32_t i
        cdef cppmap[uint32_t, uint32_t].iterator at = self.newer.begin()
        for i in range(self.width[self.levels]):
            if self.root[i] != NONE:
                battery.put_page(i, self.root[i])
        self.placed.clear()
        while at != self.newer.end():
            self.keep_pointer(deref(at).first, deref(at).second)
            step(at)
        return 0

    def find_kept(self, halves, pointers):
        """As the base; reads nodes, and leaves the tree set to what was given."""
        chip = self.mapping.ssd.nand.blocks * self.mapping.ssd.nand.pages_per_block
        named = numpy.append(halves, (pointers[pointers != 0] & numpy.uint64(NONE)).astype(numpy.uint32))
        ids = (pointers[pointers != 0] >> numpy.uint64(32)).astype(numpy.int64) - 1
        if (named[named != NONE] >= chip).any() or ((ids < 0) | (ids >= self.first_id + self.n)).any():
            return "a node of the map's tree is where there is no page"
        self.take_kept(halves, pointers, 0)
        try:
            return numpy.array(self.ppas(), numpy.uint32)
        except MapLostError as error:
            return str(error)

    def take_kept(self, halves, pointers, named):
        cdef uint32_t i
        cdef uint64_t word
        self.forget()
        for i in range(self.width[self.levels]):
            self.root[i] = halves[i]
        for word in pointers[pointers != 0].tolist():
            assign(self.newer, <uint32_t> ((word >> 32) - 1), <uint32_t> word)
        self.pages_n = named

    # --- for users

    cdef uint32_t count(self) noexcept nogil:
        return self.pages_n

    def nodes(self):
        """Each node in flash: {"node", "level", "ppa", "first_page", "pointers", "newer"}; reads nodes."""
        cdef uint32_t id, n = 0, first, ppa
        out = []
        for id in range(self.first_id):
            ppa = self.find(id)
            if ppa == NONE:
                continue
            first = self.first_child(id, &n)
            held = [child for child in range(first, first + n) if self.find(<uint32_t> child) != NONE]
            newer = sum(self.newer.count(<uint32_t> child) for child in range(first, first + n))
            out.append({"node": id, "level": self.level_of(id), "ppa": ppa, "first_page": first,
                        "pointers": len(held), "newer": newer})
        return out

    def entries(self):
        """Each translation page that there is: {"page", "first_lpa", "ppa"}; reads nodes."""
        cdef uint32_t page, ppa
        out = []
        self.quiet(True)
        try:
            for page in range(self.n):
                ppa = self.where(page)
                if ppa != NONE:
                    out.append({"page": page, "first_lpa": page * self.mapping.per_page, "ppa": ppa})
        finally:
            self.quiet(False)
        return out

    def ppas(self):
        cdef uint32_t id
        self.quiet(True)
        try:
            ppas = [self.find(id) for id in range(self.first_id + self.n)]
        finally:
            self.quiet(False)
        return [ppa for ppa in ppas if ppa != NONE]

    def tables(self):
        root = 4 * self.width[self.levels]
        waiting = self.newer.size() + self.placed.size()
        frames = (self.frames_n + 2) * self.page_words * 4 + 16 * (self.frames_n + 1)
        return {
            "tree_root": (root, root),
            "tree_nodes": (frames, frames),
            "tree_pointers": (8 * self.newer.size() + 4 * self.placed.size(), 48 * waiting),
        }

    def figures(self):
        return {"tree_levels": self.levels, "tree_node_reads": self.node_reads, "tree_node_hits": self.node_hits,
                "tree_node_programs": self.node_programs, "tree_pointers": self.newer.size()}

    def forget_counts(self):
        self.node_reads = self.node_programs = self.node_hits = 0


def plant_tree(EntryPages mapping not None, uint32_t fanout, uint32_t frames):
    """Makes the mapping find its translation pages through such a tree; call before anything is mapped. Returns how
    many pages the tree may have in flash."""
    pages = tree_pages(mapping.gtd.n, fanout)
    mapping.find_pages_by(MapBtree(mapping, mapping.gtd.n, fanout, frames), pages)
    return pages
