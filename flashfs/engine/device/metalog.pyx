# cold
# cython: wraparound=True, boundscheck=True
"""The metadata log: checkpoints, the trims since the last one, and the mark that a clean checkpoint was mounted.

Each checkpoint begins a new block, and all older blocks are dead once it is durable, so the log is never cleaned: a
checkpoint compacts it. SPEC.md ("metadata log") describes the pages.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.blocks.pool cimport (
    CAUSE_CHECKPOINT,
    CAUSE_MOUNT,
    CAUSE_TRIM,
    FLAG_CLEAN,
    FLAG_LAST,
    KIND_CHECKPOINT,
    KIND_MOUNT,
    KIND_PAD,
    KIND_TRIM,
    NONE,
    STREAM_META,
    Oob,
    number_for,
    oob_pack,
    order_runs_out,
    runs_out,
)
from nandimg._nand cimport CAUSES, OP_PROGRAM

cdef extern from "huge.h" nogil:
    void zero_memory(void* at, size_t bytes)

import struct

import numpy

from flashfs.engine.device.lifetime_counters import Life
from flashfs.errors import CorruptError
from nandimg import checksum

DESCRIPTOR = struct.Struct("<4sIQQQQIIIIQ")
"""magic, checksum of all that follows it, id, seq, order, stream bytes, flags, sections, extents, last index PPA,
mounts"""
SECTION = struct.Struct("<8sQI")  #: name, bytes, checksum
SECTION_NAME_BYTES = 8
EXTENT = struct.Struct("<II")  #: first PPA, or the kind of fill; pages
FILL_ONES = NONE
FILL_ZEROS = NONE - 1
FILLS = {FILL_ONES: 0xFF, FILL_ZEROS: 0}
"""In place of an extent's first PPA: the pages are not in flash, and all their bytes have this value."""
LARGE_BYTES = 1 << 20  #: a section of this size is read into memory that takes no room until written
FILL_LEAST = 32  #: pages in a row for which a separate extent pays off
INDEX = struct.Struct("<4sIII")  #: magic, checksum of all that follows it, extents, previous index PPA
BOOT = struct.Struct("<4sIQI")  #: magic, checksum of all that follows it, id, descriptor PPA
TRIM_HEAD = struct.Struct("<4sI")  #: magic, records; each record is u32 LPA, u32 pages, u64 seq
MAGIC_DESCRIPTOR = b"FFCK"
MAGIC_INDEX = b"FFCX"
MAGIC_BOOT = b"FFBT"
MAGIC_TRIM = b"FFTR"


def sealed(raw):
    """The record with its checksum filled in: CRC-32C of everything after the checksum's own field."""
    return raw[:4] + struct.pack("<I", checksum(raw[8:])) + raw[8:]


def is_sealed(raw):
    return struct.unpack_from("<I", raw, 4)[0] == checksum(bytes(raw[8:]))


def parse_descriptor(raw):
    """(id, seq, order, stream bytes, flags, number of sections, of extents, last index PPA, mounts), [(section, bytes,
    checksum)] and [(PPA, pages)] of a descriptor, sealed or not; None if it is not a descriptor or claims more than
    fits a page."""
    if raw[:4] != MAGIC_DESCRIPTOR:
        return None
    head = DESCRIPTOR.unpack_from(raw)[2:]
    n_sections, n_extents = head[5:7]
    at = DESCRIPTOR.size + n_sections * SECTION.size
    if at + n_extents * EXTENT.size > len(raw):
        return None
    table = [SECTION.unpack_from(raw, DESCRIPTOR.size + i * SECTION.size) for i in range(n_sections)]
    return head, table, [EXTENT.unpack_from(raw, at + i * EXTENT.size) for i in range(n_extents)]


def parse_index(raw):
    """[(PPA, pages)] of an index page, sealed or not; None if it is not an index page or claims more than a page
    holds."""
    if raw[:4] != MAGIC_INDEX:
        return None
    n = INDEX.unpack_from(raw)[2]
    if INDEX.size + n * EXTENT.size > len(raw):
        return None
    return [EXTENT.unpack_from(raw, INDEX.size + i * EXTENT.size) for i in range(n)]


cdef class MetaLog:
    """The metadata stream of one device: one open block at a time."""

    def __cinit__(self, Engine ssd):
        self.ssd = ssd
        self.block = NONE
        self.blocks = []
        self.descriptor_ppa = NONE
        self.fill_least = FILL_LEAST
        self.pending_room = (ssd.nand.page_bytes - 8) // 16
        self.pending = <TrimRecord*> malloc(self.pending_room * sizeof(TrimRecord))
        self.page = <uint8_t*> calloc(ssd.nand.page_bytes, 1)
        self.oob = <uint8_t*> malloc(ssd.nand.oob_bytes)
        if not (self.pending and self.page and self.oob):
            raise MemoryError

    def __dealloc__(self):
        free(self.pending)
        free(self.page)
        free(self.oob)

    def plan(self, uint64_t saved_bytes):
        """Set the size of a checkpoint of ``saved_bytes``: pages, blocks, and the log blocks allowed after it."""
        cdef uint32_t page_bytes = self.ssd.nand.page_bytes
        cdef uint32_t per_block = self.ssd.nand.pages_per_block
        self.saved_most = saved_bytes
        content = (saved_bytes + page_bytes - 1) // page_bytes
        extents = content // per_block + 2
        self.checkpoint_pages = content + 2 + extents * EXTENT.size // page_bytes + 4 * self.ssd.nand.paired_pages
        self.checkpoint_blocks = (self.checkpoint_pages + per_block - 1) // per_block
        self.log_blocks_most = 0 if self.ssd.nand.blocks < 64 else max(1, self.checkpoint_blocks // 4)

    def fitting(self, needed, more):
        """The sections of ``more``, in their order, that fit a checkpoint besides the sections ``needed``."""
        cdef uint64_t taken = sum(len(memoryview(data)) for data in needed.values())
        found = {}
        for name, data in more.items():
            if taken + len(data) <= self.saved_most:
                taken += len(data)
                found[name] = data
        return found

    # --- pages

    cdef uint32_t append(self, int kind, uint32_t lpa, uint64_t seq, int flags, const uint8_t* data,
                         int cause) except? 0xFFFFFFFE nogil:
        """Program one metadata page and return its PPA; after a failed program, the block is retired later and another
        one is used."""
        cdef uint32_t block, page, done = 0
        cdef Oob oob
        while True:
            block = self.block
            if block == NONE or self.ssd.pool.next_page[block] >= self.ssd.nand.pages_per_block:
                block = <uint32_t> self.ssd.open_block(-1, STREAM_META, False, cause)
                with gil:
                    self.take_up(block)
            page = self.ssd.pool.next_page[block]
            oob.seq = seq
            oob.order = self.ssd.pool.order[block]
            oob.lpa = lpa
            oob.kind = <uint8_t> kind
            oob.flags = <uint8_t> flags
            oob.stream = STREAM_META
            oob.number = number_for(self.ssd.pool, page)
            memset(self.oob, 0xFF, self.ssd.nand.oob_bytes)
            oob_pack(self.oob, &oob)
            self.ssd.nand.program(block, page, 1, data, self.oob, cause, self.ssd.now_ns, &done)
            if done:
                self.ssd.pool.advance(block, 1)
                return block * self.ssd.nand.pages_per_block + page
            self.ssd.pool.retire(block)

    cdef int take_up(self, uint32_t block) except -1:
        """Make a block that was just opened part of the log."""
        try:
            self.blocks.append(block)
        except BaseException:
            self.ssd.pool.release(block, self.ssd.now_ns)
            raise
        self.block = block
        if len(self.blocks) > self.checkpoint_blocks:
            self.log_blocks += 1
        return 0

    cdef uint32_t room(self) noexcept nogil:
        """Pages that may still be logged before a checkpoint is due."""
        cdef uint32_t left = 0
        if self.block != NONE:
            left = self.ssd.nand.pages_per_block - self.ssd.pool.next_page[self.block]
        if self.log_blocks < self.log_blocks_most:
            left += (self.log_blocks_most - self.log_blocks) * self.ssd.nand.pages_per_block
        return left

    # --- trims

    cdef bint extends_trim(self, uint32_t lpa, uint64_t seq) noexcept nogil:
        """Whether the newest record ends at ``lpa`` and no sequence number was given since: one record then covers
        both."""
        cdef TrimRecord* last
        if self.pending_n == 0:
            return False
        last = self.pending + self.pending_n - 1
        return last.seq == seq and last.lpa + last.n == lpa

    cdef int note_trim(self, uint32_t lpa, uint32_t n, uint64_t seq) noexcept nogil:
        """Remember a trim until the next flush; the caller logs a full list first."""
        if self.extends_trim(lpa, seq):
            self.pending[self.pending_n - 1].n += n
            return 0
        if self.pending_n == 0:
            self.ssd.pool.before_trims = self.ssd.pool.pending_n
        self.pending[self.pending_n].lpa = lpa
        self.pending[self.pending_n].n = n
        self.pending[self.pending_n].seq = seq
        self.pending_n += 1
        return 0

    cdef int log_trims(self) except -1 nogil:
        """Program the pending records; they are durable after the next sync."""
        cdef uint64_t newest
        if self.pending_n == 0:
            return 0
        newest = self.pending[self.pending_n - 1].seq
        memset(self.page, 0, self.ssd.nand.page_bytes)
        memcpy(self.page, b"FFTR", 4)
        memcpy(self.page + 4, &self.pending_n, 4)
        memcpy(self.page + 8, self.pending, self.pending_n * sizeof(TrimRecord))
        self.append(KIND_TRIM, self.pending_n, newest, 0, self.page, CAUSE_TRIM)
        self.trim_pages_n += 1
        self.pending_n = 0
        return 0

    def mark_mounted(self):
        """Append the mount mark after a clean checkpoint, before anything else is changed: it is not clean any more."""
        memset(self.page, 0, self.ssd.nand.page_bytes)
        self.append(KIND_MOUNT, 0, self.checkpoint_id, 0, self.page, CAUSE_MOUNT)

    # --- checkpoints

    def write(self, sections, uint64_t seq, uint64_t mounts, bint clean):
        """Write a checkpoint of ``sections`` {name: buffer}. It is valid once its descriptor is programmed and synced.
        Returns the blocks of the log before it, which are dead from then on. If it fails before that, the log is
        unchanged and the new pages are dead."""
        before = self.blocks, self.block, self.log_blocks
        self.blocks, self.block, self.log_blocks = [], NONE, 0
        try:
            self._write(sections, seq, mounts, clean)
        except BaseException:
            for block in self.blocks:
                self.ssd.pool.release(block, self.ssd.now_ns)
            self.blocks, self.block, self.log_blocks = before
            raise
        return before[0]

    def _write(self, sections, seq, mounts, clean):
        identity = self.checkpoint_id + 1
        if max(map(len, sections)) > SECTION_NAME_BYTES:
            raise ValueError(f"sections {', '.join(sections)}: a name has at most {SECTION_NAME_BYTES} bytes")
        table = b"".join(
            SECTION.pack(name.encode(), len(memoryview(data)), checksum(data)) for name, data in sections.items()
        )
        extents = self._write_stream(sections.values(), identity)
        previous, extents = self._write_index(extents, len(table), identity)
        self._pad_to_descriptor(identity)
        total = sum(len(memoryview(data)) for data in sections.values())
        raw = DESCRIPTOR.pack(
            MAGIC_DESCRIPTOR, 0, identity, seq, self.ssd.pool.last_order, total,
            FLAG_CLEAN if clean else 0, len(sections), len(extents), previous, mounts,
        )
        raw += table + b"".join(EXTENT.pack(*extent) for extent in extents)
        flags = FLAG_LAST | (FLAG_CLEAN if clean else 0)
        raw = sealed(raw.ljust(self.ssd.nand.page_bytes, b"\0"))
        ppa = self.put(raw, 0, identity, flags)
        while not self._fits_descriptor(ppa):  # a program failed, so it went to the start of another block
            self._pad_to_descriptor(identity)
            ppa = self.put(raw, 0, identity, flags)
        self.descriptor_ppa = ppa
        self.checkpoint_id = identity
        self.checkpoints_n += 1
        self.pending_n = 0  # the saved mapping includes these trims

    def _pad_to_descriptor(self, identity):
        """Pad up to a page that may be the descriptor. ``self.block`` is NONE if the whole stream is fill: then the
        descriptor opens a block."""
        while not self._fits_descriptor(self.ssd.pool.next_page[self.block] if self.block != NONE else 0):
            self.append(KIND_PAD, 0, identity, 0, NULL, CAUSE_CHECKPOINT)

    def _fits_descriptor(self, ppa):
        """Whether that page of a block may be the descriptor. A page must follow it in the block; with paired pages it
        must complete a group, or a torn program of a later page could destroy pages of the checkpoint."""
        group = 2 * self.ssd.nand.paired_pages
        at = ppa % self.ssd.nand.pages_per_block
        return at != self.ssd.nand.pages_per_block - 1 and (not group or (at + 1) % group == 0)

    def point_boot(self):
        """Write the boot hint: where the checkpoint is, and the lifetime counters."""
        self._hint(self.checkpoint_id, self.descriptor_ppa, life_of(self.ssd))

    def point_boot_nowhere(self, identity):
        """For a checkpoint whose hint was lost to a power cut: invalidate older hints. The hint names no page, because
        that checkpoint may be a clean one and the device is about to change. The lifetime counters stay those of the
        newest hint."""
        self._hint(identity, NONE, Life.of(newest_slot(self.ssd.nand)))

    def _hint(self, identity, ppa, life):
        """Never overwrite the newest hint: if that write were interrupted, an older hint would be in force again."""
        raw = sealed((BOOT.pack(MAGIC_BOOT, 0, identity, ppa) + life.pack()).ljust(64, b"\0"))
        slot = int(newest_slot(self.ssd.nand) == self.ssd.nand.boot_slot(0))
        self.ssd.nand.boot_write(slot, <const uint8_t*> <char*> raw)

    cdef uint32_t put(self, bytes raw, uint32_t lpa, uint64_t identity, int flags) except? 0xFFFFFFFE:
        memcpy(self.page, <const char*> raw, len(raw))
        memset(self.page + len(raw), 0, self.ssd.nand.page_bytes - len(raw))
        return self.append(KIND_CHECKPOINT, lpa, identity, flags, self.page, CAUSE_CHECKPOINT)

    def _write_stream(self, buffers, identity):
        """Write the sections end to end, cut into pages; returns their extents. Unused tables consist mostly of pages
        of one byte value: many of those in a row are an extent without pages in flash."""
        cdef const uint8_t[::1] view
        cdef uint32_t page_bytes = self.ssd.nand.page_bytes, index = 0, ppa, fill
        cdef uint64_t at, n, take, filled = 0, number = identity
        extents = []
        for data in buffers:
            view = memoryview(data).cast("B")
            at = 0
            n = view.shape[0]
            while at < n:
                fill = fill_pages(&view[at], n - at, page_bytes) if filled == 0 and self.fill_least else 0
                if fill and fill >= self.fill_least:
                    extents.append((FILL_ONES if view[at] else FILL_ZEROS, fill))
                    index += fill
                    at += <uint64_t> fill * page_bytes
                    continue
                take = min(page_bytes - filled, n - at)
                memcpy(self.page + filled, &view[at], take)
                at += take
                filled += take
                if filled == page_bytes:
                    with nogil:
                        ppa = self.append(KIND_CHECKPOINT, index, number, 0, self.page, CAUSE_CHECKPOINT)
                    self._extend(extents, ppa)
                    index += 1
                    filled = 0
        if filled:
            memset(self.page + filled, 0, page_bytes - filled)
            self._extend(extents, self.append(KIND_CHECKPOINT, index, number, 0, self.page, CAUSE_CHECKPOINT))
        return extents

    @staticmethod
    def _extend(extents, ppa):
        """Add the page at ``ppa``."""
        if extents and extents[-1][0] + extents[-1][1] == ppa:
            extents[-1] = (extents[-1][0], extents[-1][1] + 1)
        else:
            extents.append((ppa, 1))

    def _write_index(self, extents, table_bytes, identity):
        """Write index pages for the extents that do not fit the descriptor; returns (last index PPA, the other
        extents)."""
        page_bytes = self.ssd.nand.page_bytes
        fit = (page_bytes - DESCRIPTOR.size - table_bytes) // EXTENT.size
        per_page = (page_bytes - INDEX.size) // EXTENT.size
        previous = NONE
        while len(extents) > fit:
            part, extents = extents[:per_page], extents[per_page:]
            raw = INDEX.pack(MAGIC_INDEX, 0, len(part), previous)
            raw += b"".join(EXTENT.pack(*extent) for extent in part)
            previous = self.put(sealed(raw.ljust(page_bytes, b"\0")), 0, identity, 0)
        return previous, extents

    def adopt(self, found, blocks):
        """After a load: make this checkpoint and these blocks the log; ``found`` is a LoadedCheckpoint."""
        self.checkpoint_id = found.identity
        self.descriptor_ppa = found.descriptor_ppa
        self.blocks = list(blocks)
        self.block = found.descriptor_ppa // self.ssd.nand.pages_per_block
        self.log_blocks = 0
        self.pending_n = 0

    def skip_ids(self, uint64_t newest):
        """A half-written checkpoint used this id: the next one must be newer still."""
        self.checkpoint_id = max(self.checkpoint_id, newest)

    def tables(self):
        n = self.pending_room * sizeof(TrimRecord) + self.ssd.nand.page_bytes
        return n, n


cdef uint32_t fill_pages(const uint8_t* at, uint64_t n, uint32_t page_bytes) noexcept nogil:
    """How many whole pages of the ``n`` bytes at ``at`` are, from the first on, all zeros or all ones."""
    cdef uint32_t pages = 0, i
    cdef uint64_t fill = 0 if at[0] == 0 else ~(<uint64_t> 0)
    cdef uint64_t word
    if at[0] != 0 and at[0] != 0xFF:
        return 0
    while (<uint64_t> pages + 1) * page_bytes <= n:
        for i in range(0, page_bytes, 8):
            memcpy(&word, at + <uint64_t> pages * page_bytes + i, 8)
            if word != fill:
                return pages
        pages += 1
    return pages


class LoadedCheckpoint:
    """A checkpoint read back and verified; ``sections`` maps names to buffers, ``sizes`` to bytes. ``read_page(ppa)``
    gives the data of a metadata page or None; ``read_run(ppa, into)``, optional, fills a buffer from consecutive pages
    and returns how many bytes it got. A checkpoint of more than ``pages_most`` pages is refused before they are read,
    because a descriptor may be wrong. ``places``: {section: buffer}; a section of the buffer's length is read into it.
    CorruptError for anything that does not fit."""

    def __init__(self, read_page, descriptor_ppa, page_bytes, pages_most, read_run=None, places=None):
        self.places = places or {}
        raw = read_page(descriptor_ppa)
        self.descriptor_ppa = descriptor_ppa
        found = parse_descriptor(raw) if raw is not None else None
        if found is None or not is_sealed(raw):
            raise CorruptError(f"checkpoint descriptor at PPA {descriptor_ppa}: not whole")
        head, table, self.extents = found
        self.identity, self.seq, self.order, self.stream_bytes, flags, _, _, previous, self.mounts = head
        self.clean = bool(flags & FLAG_CLEAN)
        if runs_out(self.seq) or order_runs_out(self.order) or runs_out(self.identity):
            raise CorruptError(f"checkpoint descriptor at PPA {descriptor_ppa}: id {self.identity}, sequence number "
                               f"{self.seq}, order {self.order}: they have 48 and 40 bits")
        self.index_ppas = []
        self._check_extents(pages_most)
        while previous != NONE:
            previous = self._read_index(read_page, previous)
            self._check_extents(pages_most)
        self._read_sections(read_run or _by_page(read_page, page_bytes), table, page_bytes)

    def _check_extents(self, pages_most):
        total = sum(n for _, n in self.extents) + len(self.index_ppas)  # fills too: they take memory
        if total > pages_most or not all(n for _, n in self.extents):
            raise CorruptError(f"checkpoint {self.identity}: {total} pages in {len(self.extents)} extents: "
                               f"it may have {pages_most} at most, and no extent may be empty")

    def _read_index(self, read_page, ppa):
        raw = read_page(ppa) if ppa not in self.index_ppas else None
        extents = parse_index(raw) if raw is not None and is_sealed(raw) else None
        if not extents:
            raise CorruptError(f"checkpoint {self.identity}: index page at PPA {ppa} is not whole")
        self.extents = extents + self.extents
        self.index_ppas.append(ppa)
        return INDEX.unpack_from(raw)[3]

    def _read_sections(self, read_run, table, page_bytes):
        """Read each section into a buffer of its own, so that a table of gigabytes is in memory once."""
        if sum(n for _, n in self.extents) != -(-self.stream_bytes // page_bytes):
            raise CorruptError(f"checkpoint {self.identity}: its extents do not hold {self.stream_bytes} bytes")
        stream = _Stream(read_run, self.extents, page_bytes, self.identity)
        self.sections = {}
        self.sizes = {}
        left = self.stream_bytes
        for name, size, expected in table:
            key = name.rstrip(b"\0").decode(errors="replace")
            if size > left or self._take(stream, key, size) != expected:
                raise CorruptError(f"checkpoint {self.identity}: section {key!r} fails its checksum")
            self.sizes[key] = size
            left -= size
        stream.take(left)

    def _take(self, stream, key, size):
        """Read a section, and keep it; returns its checksum."""
        place = self.places.get(key)
        self.sections[key] = stream.take(size, place if place is not None and len(place) == size else None)
        return checksum(self.sections[key])

    def blocks(self, pages_per_block):
        """The blocks that hold it, in the order of its pages."""
        extents = [(first, n) for first, n in self.extents if first not in FILLS]
        ppas = [ppa for first, n in extents for ppa in range(first, first + n, pages_per_block)]
        ppas += [first + n - 1 for first, n in extents] + self.index_ppas + [self.descriptor_ppa]
        return list(dict.fromkeys(ppa // pages_per_block for ppa in ppas))


class _Stream:
    """The contents of the pages of some extents, as a stream of bytes."""

    def __init__(self, read_run, extents, page_bytes, identity):
        self.read_run = read_run
        self.page_bytes = page_bytes
        self.identity = identity
        self.extents = iter(extents)
        self.ppa = self.pages = 0          # what is left of an extent
        self.rest = b""                    # ... and of its page before

    def take(self, size, place=None):
        """The next ``size`` bytes, in ``place`` if given; the caller knows that there are as many."""
        if place is not None:
            part = place
        elif size < LARGE_BYTES:
            part = bytearray(size)
        else:  # zeros that take no memory until they are written
            part = memoryview(numpy.zeros(size, numpy.uint8))
        view = memoryview(part)
        at = min(size, len(self.rest))
        view[:at] = self.rest[:at]
        self.rest = self.rest[at:]
        while at < size:
            if self.pages == 0:
                self.ppa, self.pages = next(self.extents)
            n = min(self.pages, (size - at) // self.page_bytes)
            if n:
                self._fill(view[at : at + n * self.page_bytes])
                at += n * self.page_bytes
            else:
                page = memoryview(bytearray(self.page_bytes))
                self._fill(page)
                view[at:] = page[: size - at]
                self.rest = page[size - at :]
                at = size
        return part

    def _fill(self, into):
        """Fill ``into`` with the next pages of an extent, from flash, or with its fill byte."""
        if self.ppa in FILLS:
            set_bytes(into, FILLS[self.ppa])
            self.pages -= len(into) // self.page_bytes
            return
        got = self.read_run(self.ppa, into)
        if got < len(into):
            raise CorruptError(f"checkpoint {self.identity}: page at PPA {self.ppa + got // self.page_bytes} is not "
                               "whole")
        self.ppa += len(into) // self.page_bytes
        self.pages -= len(into) // self.page_bytes


cdef set_bytes(uint8_t[::1] into, int byte):
    if byte == 0:
        zero_memory(&into[0], into.shape[0])
    else:
        memset(&into[0], byte, into.shape[0])


def _by_page(read_page, page_bytes):
    """A ``read_run`` made from ``read_page``."""
    def read_run(ppa, into):
        for at in range(0, len(into), page_bytes):
            raw = read_page(ppa + at // page_bytes)
            if raw is None:
                return at
            into[at : at + page_bytes] = raw
        return len(into)
    return read_run


def trim_records(raw):
    """[(LPA, pages, seq)] of a trim page; CorruptError if it is not a trim page."""
    magic, n = TRIM_HEAD.unpack_from(raw)
    if magic != MAGIC_TRIM or n > (len(raw) - TRIM_HEAD.size) // 16:
        raise CorruptError("trim page: its head is not that of a trim page")
    return list(struct.iter_unpack("<IIQ", memoryview(raw)[TRIM_HEAD.size : TRIM_HEAD.size + 16 * n]))


def whole_trims(raw, uint32_t count, uint64_t newest):
    """As trim_records, of a page whose OOB says so many records up to that sequence number; None if it has others."""
    try:
        records = trim_records(raw)
    except CorruptError:
        return None
    seqs = [seq for _, _, seq in records]
    return records if len(seqs) == count and seqs == sorted(seqs) and seqs[-1:] == [newest] else None


def newest_slot(nand):
    """The boot slot with the newest hint, or None."""
    whole = [(hints[0], raw) for raw in (nand.boot_slot(0), nand.boot_slot(1)) if (hints := boot_hints([raw]))]
    return max(whole)[1] if whole else None


def life_of(Engine ssd not None):
    """The lifetime counters now. A mount that found a clean checkpoint is unchanged since, or has programmed its mark.
    If neither holds and the device is not new, the last shutdown was unsafe."""
    slot = newest_slot(ssd.nand)
    cdef uint64_t programs = 0
    cdef int cause
    for cause in range(CAUSES):
        programs += ssd.nand.count(OP_PROGRAM, cause)
    unsafe = slot is not None and not ssd.unchanged_since_clean() and not ssd.nand.count(OP_PROGRAM, CAUSE_MOUNT)
    return Life.of(slot).at(ssd.mounts, ssd.host_write, programs, unsafe)


def boot_hints(slots):
    """[(id, descriptor PPA)] of the boot slots that are whole, newest first. Ids count up by one, so a hint with an id
    of 2^40 or more is ignored: no device gets that far."""
    found = []
    for raw in slots:
        if raw[:4] == MAGIC_BOOT and is_sealed(raw):
            _, _, identity, ppa = BOOT.unpack_from(raw)
            if identity < 1 << 40:
                found.append((identity, ppa))
    return sorted(found, reverse=True)
