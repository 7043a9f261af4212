"""The chip in a file: the rules of NAND, the image's tables and data, virtual time, counters.

Everything before the data region (boot area, block table, NVRAM, page records) is mapped shared, so a page program that
has returned survives the death of the process. The data region is written with ``pwrite``, a run of pages at a time,
because a page cache page first touched through a mapping costs five to ten times as much.

An erase is one 8-byte store: it raises the block's erase count, and a page record is valid only while its epoch
matches that count (SPEC.md, "page records").
"""
cimport cython
from libc.errno cimport EINTR, EIO, ENXIO, errno
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset
from posix.unistd cimport close as close_fd
from posix.unistd cimport fdatasync, pread, pwrite

from nandimg._clock cimport Timeline, take_time
from nandimg._nand cimport (
    BLOCK_FACTORY_BAD,
    BLOCK_GOOD,
    BLOCK_GROWN_BAD,
    NO_DATA_CRC,
    NVRAM_PAGE,
    NVRAM_WORD,
    OP_ERASE,
    OP_NVRAM_READ,
    OP_NVRAM_WRITE,
    OP_PROGRAM,
    OP_READ,
    OP_SPARE,
    PAGE_ERASED,
    PAGE_OK,
    PAGE_TORN,
    Nand,
)

import os

from nandimg.errors import NandError

cdef extern from "crc32c.h" nogil:
    void crc32c_setup()
    uint32_t crc32c(uint32_t seed, const void* data, size_t n)
    uint32_t crc32c_page(const void* data, size_t n)
    uint32_t crc32c_after(uint64_t head, const void* data, size_t n)

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void* at, size_t bytes, int advice)
    int MADV_DONTNEED

cdef extern from "<fcntl.h>" nogil:
    int posix_fallocate(int fd, int64_t at, int64_t bytes)

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void*, int) nogil

cdef extern from "huge.h" nogil:
    void want_huge_pages(void* at, size_t bytes)

cdef extern from "guard.h" nogil:
    void guard_install()
    int guarded_copy(void* into, const void* source, size_t n)
    guarded_tables* guard_watch(void* base, size_t bytes, int fd, bint writable)
    void guard_release(guarded_tables* tables)
    int guarded_holds(const uint8_t* pages, size_t page_bytes, uint32_t n, const uint8_t* records, size_t stride,
                      const uint8_t* ahead)

cdef extern from "nvram.h" nogil:
    void nvram_copy(void* into, const void* source, size_t words)
    uint64_t nvram_lines(uint64_t offset, uint64_t n)

cdef extern from "<sys/stat.h>" nogil:
    struct stat_t "stat":
        int64_t st_size
    int fstat(int fd, stat_t* into)

cdef extern from "sys/mman.h" nogil:
    int munlock(const void* addr, size_t length) nogil
    void* mmap(void* addr, size_t length, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t length)
    int PROT_READ, PROT_WRITE, MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
    void* MAP_FAILED

crc32c_setup()

cdef uint8_t[7] seven_zeros = [0, 0, 0, 0, 0, 0, 0]
cdef uint32_t check_of_zeros = crc32c(0, seven_zeros, 7)

cdef enum:
    BOOT_SLOT_BYTES = 2048
    READ_CHUNK = 16          # pages
    PIECE_SHIFT = 16         # sparse tables get disk blocks in pieces of 64 KiB; the data region is aligned to them
    RECORDS_AHEAD = 16       # page records that are prefetched when pages are read out of order
    LOST_ERASES_MOST = 65536  # most erases of one block that a host's death can lose
    COPY_CHUNK = 4096        # bytes
    MEMORY_PAGE = 4096       # bytes
    TAKEN_MOST = 1 << 21     # bytes; the memory of a larger block is not populated at once
    SPARE_MOST = 1 << 20     # bytes of memory kept for blocks without content; above that it goes back to the kernel
    MADV_POPULATE_WRITE = 23  # Linux 5.14 and later; headers may be older

cdef enum:
    UNSUMMED_BELOW = 8       # a record head of fewer bytes has no checksum

cdef uint32_t NO_HOME = 0xFFFFFFFF  # of a block that has no content
cdef uint32_t ERASES_MOST = 0xFFFFFFFE  # nandimg.geometry.ERASE_LIMIT
cdef uint32_t NO_MORE_ERASES = 0xFFFFFFFF  # no epoch can follow it

RULES = (
    "outside the chip",
    "the block is marked bad",
    "the page is not erased; erase its block first",
    "pages of a block are programmed in order",
    "the image was opened read-only",
    "outside the NVRAM",
    "the NVRAM is stored to in words of 8 bytes, at multiples of 8",
)
LOST = "pages of it are gone: it was truncated while it was open, or its disk cannot be read"
OPERATIONS = ("read", "program", "erase", "spare read", "NVRAM access")
cdef enum:
    RULE_RANGE = 0
    RULE_BAD = 1
    RULE_ERASED = 2
    RULE_ORDER = 3
    RULE_READONLY = 4
    RULE_NVRAM = 5
    RULE_WORDS = 6


def places_of(regions):
    """{name: (offset in the NVRAM, bytes)}: one after another, each starting on a new page."""
    out, at = {}, 0
    for region in regions:
        out[region.name] = (at, region.bytes)
        at = -(-(at + region.bytes) // NVRAM_PAGE) * NVRAM_PAGE
    return out


def checksum(const uint8_t[::1] data not None, uint32_t seed=0):
    """CRC-32C of ``data``, continued from ``seed``."""
    return crc32c(seed, &data[0] if data.shape[0] else NULL, data.shape[0])


def page_checksum(const uint8_t[::1] data not None):
    """The four-lane sum of one page's data (a multiple of 32 bytes); never 0, which marks a page without data."""
    return crc32c_page(&data[0], data.shape[0])


@cython.final
cdef class Chip(Nand):
    """A chip whose state is an image (or anonymous memory if ``path`` is None). nandimg.image makes and opens chips."""

    def __cinit__(self):
        self.fd = -1
        self.base = NULL

    def __init__(self, geometry, layout, int fd, path=None, bint readonly=False, *, bint sparse_tables=False):
        """``layout`` is a nandimg.image.Layout; ``fd`` is owned by the chip from here on. ``sparse_tables``: the page
        records of the file may have no blocks on the host's disk yet; they get them before pages are programmed."""
        self.fd = fd
        self.path = path
        self.readonly = readonly
        self.geometry = geometry
        self.blocks = geometry.blocks
        self.pages_per_block = geometry.pages_per_block
        self.page_bytes = geometry.page_bytes
        self.dies = geometry.dies
        self.channels = geometry.channels
        self.paired_pages = geometry.paired_pages
        self.die_mask = self.dies - 1
        self.channel_mask = self.channels - 1
        self.die_mask_works = not (self.dies & self.die_mask or self.channels & self.channel_mask)
        self.read_ns = geometry.read_ns
        self.program_ns = geometry.program_ns
        self.erase_ns = geometry.erase_ns
        self.transfer_ns = geometry.transfer_ns
        self.spare_ns = geometry.spare_ns
        self.oob_bytes = layout.oob_used
        self.keeps_data = layout.backend == "file"
        self.stride = layout.stride
        self.record_head = layout.record_head
        self.nvram_bytes = geometry.nvram_bytes
        self.regions = places_of(layout.nvram)
        self.nvram_read_ns = geometry.nvram_read_ns
        self.nvram_write_ns = geometry.nvram_write_ns
        self.die_least_ns = min(filter(None, (self.read_ns, self.program_ns, self.erase_ns, self.spare_ns)), default=1)
        self.data_at = layout.data_at
        self.unsummed = layout.record_head < UNSUMMED_BELOW
        self._allocate()
        self._map(layout)
        if sparse_tables and path is not None and not readonly:
            self.held = <uint8_t*> calloc((self.base_bytes >> PIECE_SHIFT) // 8 + 1, 1)
            if self.held == NULL:
                raise MemoryError
        self.doubts = path is not None
        self.reset_volatile()
        self.find_blank()

    def _allocate(self):
        self.next_page = <int32_t*> malloc(self.blocks * sizeof(int32_t))
        self.touched = <uint32_t*> malloc(self.blocks * sizeof(uint32_t))
        self.is_touched = <uint8_t*> calloc(self.blocks, 1)
        self.is_renewed = <uint8_t*> calloc(self.blocks, 1)
        self.is_blank = <uint8_t*> calloc(self.blocks, 1)
        self.homes = <uint32_t*> malloc(self.blocks * sizeof(uint32_t))
        self.spare_homes = <uint32_t*> malloc(self.blocks * sizeof(uint32_t))
        self.die_time = <Timeline*> calloc(self.dies, sizeof(Timeline))
        self.channel_time = <Timeline*> calloc(self.channels, sizeof(Timeline))
        self.one_page = <uint8_t*> malloc(self.page_bytes)
        if not (self.next_page and self.touched and self.is_touched and self.is_renewed and self.is_blank
                and self.homes and self.spare_homes and self.die_time and self.channel_time and self.one_page):
            raise MemoryError
        memset(self.homes, 0xFF, self.blocks * sizeof(uint32_t))

    def _map(self, layout):
        cdef int prot = PROT_READ if self.readonly else PROT_READ | PROT_WRITE
        cdef void* at
        self.base_bytes = layout.data_at
        if self.path is None:
            at = mmap(NULL, self.base_bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        else:
            at = mmap(NULL, self.base_bytes, prot, MAP_SHARED, self.fd, 0)
        if at == MAP_FAILED:
            raise OSError(errno, os.strerror(errno), str(self.path))
        if self.path is None:
            want_huge_pages(at, self.base_bytes)
        self.base = <uint8_t*> at
        if self.path is not None:
            guard_install()  # for each chip: other code (such as faulthandler) may have replaced the signal handler
            self.tables = guard_watch(at, self.base_bytes, self.fd, not self.readonly)
            if self.tables == NULL:
                raise MemoryError
        self.data_bytes = layout.end - layout.data_at
        if self.keeps_data:
            at = mmap(NULL, self.data_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, self.fd, layout.data_at)
            self.data_map = NULL
            if at != MAP_FAILED:
                self.data_map = <const uint8_t*> at
        elif self.unsummed:  # few pages have content, and are written often: system calls would dominate
            at = mmap(NULL, self.data_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
            if at == MAP_FAILED:
                raise OSError(errno, os.strerror(errno), str(self.path))
            self.data_map = <const uint8_t*> at
        self.boot = self.base + <uint64_t> layout.boot_at
        self.table = <uint64_t*> (self.base + <uint64_t> layout.table_at)
        self.nvram_base = self.base + <uint64_t> layout.nvram_at
        self.spare = self.base + <uint64_t> layout.spare_at

    def __dealloc__(self):
        self.release()

    cdef release(self):
        cdef int fd = self.fd
        guard_release(self.tables)
        self.tables = NULL
        if self.base != NULL:
            munmap(self.base, self.base_bytes)
            self.base = NULL
        if self.data_map != NULL:
            munmap(<void*> self.data_map, self.data_bytes)
            self.data_map = NULL
        free(self.next_page)
        free(self.touched)
        free(self.is_touched)
        free(self.is_renewed)
        free(self.is_blank)
        free(self.homes)
        free(self.spare_homes)
        free(self.die_time)
        free(self.channel_time)
        free(self.one_page)
        free(self.held)
        self.held = NULL
        self.next_page = NULL
        self.touched = NULL
        self.is_touched = NULL
        self.is_renewed = NULL
        self.is_blank = NULL
        self.homes = NULL
        self.spare_homes = NULL
        self.die_time = NULL
        self.channel_time = NULL
        self.one_page = NULL
        self.fd = -1
        if fd >= 0 and close_fd(fd) != 0:   # not os.close: the last chips are freed after the modules
            raise OSError(errno, os.strerror(errno), str(self.path))

    def close(self):
        """Unmap and unlock the image. This makes nothing durable: use ``synchronise``."""
        self.release()

    def require_open(self):
        """ValueError, which names the image, if the chip was closed."""
        if self.base == NULL:
            raise ValueError(f"{self.path or 'the chip'}: closed")

    @property
    def closed(self):
        """Whether ``close`` was called: the chip cannot be used any more."""
        return self.base == NULL

    @property
    def lost(self):
        """What happened to the image while it was open, in words; None if no loss was detected so far."""
        return LOST if self.is_lost else None

    @property
    def on_disk(self):
        """Whether the chip is in a file, and not in memory."""
        return self.path is not None

    def fileno(self):
        """The image's file descriptor (of the data alone if the chip is in memory)."""
        return self.fd

    def reset_volatile(self):
        """Reset what a power cut clears: write points, clocks, counters."""
        cdef uint32_t block
        for block in range(self.blocks):
            self.next_page[block] = -1
        memset(self.is_touched, 0, self.blocks)
        self.touched_n = 0
        memset(self.die_time, 0, self.dies * sizeof(Timeline))
        memset(self.channel_time, 0, self.channels * sizeof(Timeline))
        memset(&self.nvram_time, 0, sizeof(Timeline))
        memset(self.counts, 0, sizeof(self.counts))

    def reset_counters(self):
        """Restart the counts of operations and of busy time from 0."""
        cdef uint32_t i
        memset(self.counts, 0, sizeof(self.counts))
        for i in range(self.dies):
            self.die_time[i].busy = 0
        for i in range(self.channels):
            self.channel_time[i].busy = 0
        self.nvram_time.busy = 0

    def copy_from(self, Chip other not None):
        """Copy the contents of ``other``, bit for bit, as if the power had just come on. Both are chips in memory with
        the same layout, else ValueError. Only data that differs is written, so similar chips cost little."""
        cdef uint64_t at, n
        self.require_open()
        other.require_open()
        if (self.path is not None or self.unsummed or self.data_map == NULL or other.data_map == NULL
                or self.data_at != other.data_at or self.data_bytes != other.data_bytes
                or self.stride != other.stride or self.spare - self.base != other.spare - other.base):
            raise ValueError("a chip can only become another one in memory that has its layout and keeps its data")
        memcpy(self.base, other.base, self.base_bytes)
        for at in range(0, self.data_bytes, COPY_CHUNK):
            n = min(<uint64_t> COPY_CHUNK, self.data_bytes - at)
            if memcmp(self.data_map + at, other.data_map + at, n) != 0:
                if pwrite(self.fd, other.data_map + at, n, self.data_at + at) != <ssize_t> n:
                    raise OSError(errno, os.strerror(errno))
        self.reset_volatile()

    def stay_pageable(self):
        """Unlock the image's mappings, so that they can be paged out even if the process locked its memory: they are as
        large as the image, and the file backs them."""
        munlock(self.base, self.base_bytes)
        if self.data_map != NULL:
            munlock(self.data_map, self.data_bytes)

    def data_runs(self, uint64_t start, uint64_t end):
        """[(first byte, byte after the last)] of the file from ``start`` to ``end``, without the holes; None if the
        host's file system cannot say. What was never written is a hole."""
        cdef uint64_t at = start
        found = []
        try:
            while at < end:
                at = os.lseek(self.fd, at, os.SEEK_DATA)
                hole = min(end, <uint64_t> os.lseek(self.fd, at, os.SEEK_HOLE))
                if at < end:
                    found.append((at, hole))
                at = hole
        except OSError as error:
            if error.errno != ENXIO:      # ENXIO: no data after this
                return None
        return found

    def maybe_written(self):
        """As in Nand, from the holes of the file: reading the records instead would use memory for each page of the
        file. If the host's file system reports no holes, every block is 1."""
        self.require_open()
        cdef uint32_t block
        cdef uint64_t start = self.spare - self.base, block_bytes = <uint64_t> self.pages_per_block * self.stride
        runs = None if self.path is None else self.data_runs(start, start + self.blocks * block_bytes)
        if runs is None:
            return Nand.maybe_written(self)
        found = bytearray(self.blocks)
        cdef uint8_t[::1] out = found
        for at, end in runs:
            block = (at - start) // block_bytes
            memset(&out[block], 1, (end - 1 - start) // block_bytes + 1 - block)
        for block in range(self.blocks):
            out[block] |= self.mark(block) != 0   # a hole below the synced mark means that pages are missing
        return found

    def nvram_runs(self, uint64_t offset, uint64_t n):
        """As in Nand, from the holes of the file."""
        self.require_open()
        cdef uint64_t start = self.nvram_base - self.base + offset
        runs = None if self.path is None else self.data_runs(start, start + n)
        if runs is None:
            return Nand.nvram_runs(self, offset, n)
        return [(offset + at - start, end - at) for at, end in runs]

    def find_blank(self):
        """Find the blocks without records, from the holes of the file. Reading records there would use a page of the
        host's memory for each block of an almost empty chip."""
        cdef uint32_t block
        cdef const uint8_t[::1] written
        if self.path is None:
            return
        written = self.maybe_written()
        for block in range(self.blocks):
            self.is_blank[block] = not written[block]

    def block_table_problem(self):
        """The first block whose entry fails its check, or has more erases or synced pages than it can; or None."""
        cdef uint32_t block
        for block in range(self.blocks):
            if (entry_check(self.table[block]) != <uint8_t> (self.table[block] >> 56)
                    or self.erases(block) > ERASES_MOST or self.mark(block) > self.pages_per_block):
                return block
        return None

    def mark_factory_bad(self, uint32_t block):
        """Mark a block bad as a manufacturer does, before the first use."""
        self.require_open()
        self.write_entry(block, self.erases(block), 0, BLOCK_FACTORY_BAD)

    def used_before(self, uint32_t block, uint32_t erases, int health):
        """Set the erase count and the health of a block of a used chip, before its first use here. ValueError if a
        block cannot have them."""
        self.require_open()
        if erases > ERASES_MOST or not BLOCK_GOOD <= health <= BLOCK_GROWN_BAD:
            raise ValueError(f"block {block}: {erases} erases and health {health} are none that a block can have")
        self.write_entry(block, erases, 0, health)

    # --- page records and the block table

    cdef uint32_t die_of(self, uint32_t block) noexcept nogil:
        """block % dies; without a division if dies and channels are powers of two, as in most chips."""
        return block & self.die_mask if self.die_mask_works else block % self.dies

    cdef uint32_t channel_of(self, uint32_t die) noexcept nogil:
        return die & self.channel_mask if self.die_mask_works else die % self.channels

    cdef uint8_t* record(self, uint32_t block, uint32_t page) noexcept nogil:
        return self.spare + (<uint64_t> block * self.pages_per_block + page) * self.stride

    cdef uint32_t record_crc(self, uint32_t ppa, const uint8_t* rec) noexcept nogil:
        """CRC over the PPA (so a misdirected record fails), the epoch, then what follows the checksum itself."""
        cdef uint32_t epoch
        memcpy(&epoch, rec, 4)
        return crc32c_after(ppa | (<uint64_t> epoch << 32), rec + 8, self.record_head - 8 + self.oob_bytes)

    cdef int hold_records(self, uint32_t block, uint32_t page, uint32_t n) except -1 nogil:
        """Allocate disk blocks for the records of these pages (sparse tables only). OSError (ENOSPC) if the disk is
        full, before anything of the pages is programmed: a store to a mapped hole would raise SIGBUS."""
        cdef uint64_t piece, last
        cdef int error
        piece = <uint64_t> (self.record(block, page) - self.base) >> PIECE_SHIFT
        last = <uint64_t> (self.record(block, page + n - 1) + self.stride - 1 - self.base) >> PIECE_SHIFT
        while piece <= last:
            if not self.held[piece >> 3] & <uint8_t> (1 << (piece & 7)):
                error = posix_fallocate(self.fd, piece << PIECE_SHIFT, 1 << PIECE_SHIFT)
                if error == EINTR:
                    continue
                if error:
                    with gil:
                        raise OSError(error, os.strerror(error), str(self.path))
                self.held[piece >> 3] |= <uint8_t> (1 << (piece & 7))
            piece += 1
        return 0

    cdef int write_record(self, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob) noexcept nogil:
        cdef uint8_t* rec = self.record(block, page)
        cdef uint32_t epoch = self.erases(block) + 1
        cdef uint32_t data_crc, crc
        self.is_blank[block] = 0
        copy_oob(rec + self.record_head, oob, self.oob_bytes)
        if self.keeps_data:
            data_crc = NO_DATA_CRC
            if data != NULL:
                data_crc = crc32c_page(data, self.page_bytes)
            memcpy(rec + 8, &data_crc, 4)
        memcpy(rec, &epoch, 4)
        if not self.unsummed:
            crc = self.record_crc(block * self.pages_per_block + page, rec)
            memcpy(rec + 4, &crc, 4)
        return 0

    cdef int write_plain_records(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* oob) noexcept nogil:
        """Write the records of an unsummed chip: an epoch and the OOB."""
        cdef uint8_t* rec = self.record(block, page)
        cdef uint32_t epoch = self.erases(block) + 1, _
        self.is_blank[block] = 0
        for _ in range(n):
            memcpy(rec, &epoch, 4)
            copy_oob(rec + self.record_head, oob, self.oob_bytes)
            prefetch(rec + n * self.stride, 1)  # a record of the next run of n pages of this block
            rec += self.stride
            oob += self.oob_bytes
        return 0

    cdef int write_entry(self, uint32_t block, uint32_t erases, uint32_t synced, int health) noexcept nogil:
        """One aligned 8-byte store, so the death of the process never leaves half an entry."""
        cdef uint64_t entry = erases | (<uint64_t> synced << 32) | (<uint64_t> health << 48)
        self.table[block] = entry | (<uint64_t> entry_check(entry) << 56)
        return 0

    cdef uint32_t erases(self, uint32_t block) noexcept nogil:
        return <uint32_t> self.table[block]

    cdef int health(self, uint32_t block) noexcept nogil:
        return <int> ((self.table[block] >> 48) & 0xFF)

    cdef uint32_t mark(self, uint32_t block) noexcept nogil:
        """The synced mark in the block table."""
        return (self.table[block] >> 32) & 0xFFFF

    cdef uint32_t synced(self, uint32_t block) noexcept nogil:
        """0 if an erase was lost: the pages that were synced before it are not needed any more."""
        return 0 if self.mark(block) and self.lost_erase(block) else self.mark(block)

    cdef bint lost_erase(self, uint32_t block) noexcept nogil:
        """Whether a record is ahead of the block's erase count, or records an interrupted erase: the host died, and its
        disk kept the record but lost the block table's entry for that erase."""
        cdef uint32_t page, epoch, check, now = self.erases(block) + 1, begun = erase_begun(now)
        for page in range(self.pages_per_block if self.doubts and not self.is_blank[block] else 0):
            memcpy(&epoch, self.record(block, page), 4)
            memcpy(&check, self.record(block, page) + 4, 4)
            if epoch > now or check == begun:
                return True
        return False

    cdef int mark_synced(self, uint32_t block, uint32_t pages) except -1 nogil:
        if not self.readonly and self.health(block) == BLOCK_GOOD and pages > self.mark(block):
            self.write_entry(block, self.erases(block), pages, BLOCK_GOOD)
        return 0

    cdef int disclaim(self, uint32_t block) except -1 nogil:
        if not self.readonly and self.health(block) == BLOCK_GOOD and self.mark(block):
            self.write_entry(block, self.erases(block), 0, BLOCK_GOOD)
        return 0

    cdef int32_t find_next(self, uint32_t block) noexcept nogil:
        """The page after the last one that is not erased; at least the synced mark. Pages before it that look erased
        are holes, left by a host that died with records unwritten or by a program that was skipped: they count as
        torn."""
        cdef int32_t page = self.next_page[block]
        cdef uint32_t epoch, now = self.erases(block) + 1
        if page >= 0:
            return page
        page = 0 if self.is_blank[block] else self.pages_per_block
        while page > 0:
            memcpy(&epoch, self.record(block, page - 1), 4)
            if epoch >= now:
                break
            page -= 1
        page = max(page, <int32_t> self.mark(block))
        self.next_page[block] = page
        return page

    cdef uint8_t judge_spare(self, uint32_t block, uint32_t page, bint doubting) noexcept nogil:
        """The status that a spare read finds. In an image that another process wrote, a page past the synced mark may
        have lost its data when the host died: only there a spare read (``doubting``) verifies the data too."""
        cdef uint8_t* rec = self.record(block, page)
        cdef uint32_t epoch, crc, now = self.erases(block) + 1
        if self.is_blank[block]:
            return PAGE_ERASED if <int32_t> page >= self.find_next(block) else PAGE_TORN
        memcpy(&epoch, rec, 4)
        if epoch < now:
            return PAGE_ERASED if <int32_t> page >= self.find_next(block) else PAGE_TORN
        if self.unsummed:
            return PAGE_OK
        memcpy(&crc, rec + 4, 4)
        if epoch > now or crc != self.record_crc(block * self.pages_per_block + page, rec):
            return PAGE_ERASED if doubting and spare_is_blank(rec + 4, self.stride - 4) else PAGE_TORN
        if doubting and self.doubts and page >= self.mark(block) and not self.is_touched[block]:
            return PAGE_OK if self.data_holds(block, page) else PAGE_TORN
        return PAGE_OK

    cdef bint data_holds(self, uint32_t block, uint32_t page) noexcept nogil:
        """Whether the page's data matches its record (read by the emulator: no flash operation)."""
        cdef uint32_t data_crc
        if not self.keeps_data:
            return True
        memcpy(&data_crc, self.record(block, page) + 8, 4)
        if data_crc == NO_DATA_CRC:
            return True
        return (self.pread_pages(block * self.pages_per_block + page, 1, self.one_page) == 0
                and crc32c_page(self.one_page, self.page_bytes) == data_crc)

    # --- data

    cdef int pread_pages(self, uint32_t ppa, uint32_t n, uint8_t* data) noexcept nogil:
        """Read ``n`` pages; 0, or the errno. Reads through the mapping, which saves a system call and the kernel's page
        cache lookups. Without a mapping, what lies beyond the end of the file reads as zeros."""
        cdef uint64_t at = self.data_at + <uint64_t> ppa * self.page_bytes
        cdef uint64_t left = <uint64_t> n * self.page_bytes
        cdef ssize_t got
        if self.unsummed:
            return self.read_home(ppa // self.pages_per_block, ppa % self.pages_per_block, n, data)
        if self.data_map != NULL:
            return guarded_copy(data, self.data_map + (at - self.data_at), left)
        while left:
            got = pread(self.fd, data, left, at)
            if got < 0:
                if errno == EINTR:
                    continue
                return errno
            if got == 0:
                memset(data, 0, left)
                return 0
            data += got
            at += got
            left -= got
        return 0

    cdef int write_data(self, uint32_t ppa, uint32_t n, const uint8_t* data) except -1 nogil:
        cdef uint64_t at = self.data_at + <uint64_t> ppa * self.page_bytes
        cdef uint64_t left = <uint64_t> n * self.page_bytes
        cdef ssize_t put
        if self.unsummed:
            return self.write_home(ppa // self.pages_per_block, ppa % self.pages_per_block, n, data)
        while left:
            put = pwrite(self.fd, data, left, at)
            if put < 0:
                if errno == EINTR:
                    continue
                with gil:
                    raise OSError(errno, os.strerror(errno), str(self.path))
            data += put
            at += put
            left -= put
        return 0

    # --- an image that loses pages while it is open

    cdef int look(self, bint at_size) except -1 nogil:
        """OSError (EIO) if a page of the tables was found gone (guard.h) or, with ``at_size``, if the file is shorter
        than it was. Called before a change, and before one is acknowledged; after it raised, nothing is changed."""
        cdef stat_t file
        if self.tables == NULL:
            return 0
        if self.tables.lost or (at_size and fstat(self.fd, &file) == 0
                                and <uint64_t> file.st_size < self.data_at + self.data_bytes):
            self.is_lost = True
        if self.is_lost:
            with gil:
                raise OSError(EIO, LOST, str(self.path))
        return 0

    # --- operations

    cdef int64_t breach(self, int op, uint32_t block, uint32_t page, int rule) except -1 nogil:
        with gil:
            raise NandError(OPERATIONS[op], block, page, RULES[rule])

    cdef int64_t program(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data, const uint8_t* oob,
                         int cause, int64_t t_ns, uint32_t* done) except -1 nogil:
        cdef uint32_t i, die
        cdef int32_t expected
        cdef int64_t start
        cdef const uint8_t* at = data
        done[0] = 0
        if self.readonly:
            return self.breach(OP_PROGRAM, block, page, RULE_READONLY)
        if block >= self.blocks or n == 0 or page >= self.pages_per_block or n > self.pages_per_block - page:
            return self.breach(OP_PROGRAM, block, page, RULE_RANGE)
        # a write to the last block would extend a truncated file again, and so hide the truncation
        self.look(block == self.blocks - 1)
        if self.health(block) != BLOCK_GOOD:
            return self.breach(OP_PROGRAM, block, page, RULE_BAD)
        expected = self.find_next(block)
        if <int32_t> page != expected:
            return self.breach(OP_PROGRAM, block, page, RULE_ERASED if <int32_t> page < expected else RULE_ORDER)
        if self.held != NULL:
            self.hold_records(block, page, n)
        if data != NULL:
            self.write_data(block * self.pages_per_block + page, n, data)
        elif self.unsummed and self.homes[block] != NO_HOME:
            memset(self.home(block, page), 0, <uint64_t> n * self.page_bytes)
        if self.unsummed:
            self.write_plain_records(block, page, n, oob)
        else:
            for i in range(n):
                self.write_record(block, page + i, at, oob)
                oob += self.oob_bytes
                if at != NULL:
                    at += self.page_bytes
        self.next_page[block] = page + n
        if not self.is_touched[block]:
            self.is_touched[block] = 1
            self.touched[self.touched_n] = block
            self.touched_n += 1
        self.counts[OP_PROGRAM][cause] += n
        done[0] = n
        die = self.die_of(block)
        start = take_time(&self.channel_time[self.channel_of(die)], t_ns, n * self.transfer_ns,
                          self.transfer_ns)
        # The pages cross the channel in a row; the die begins when it has the first, and never waits for a later one.
        start += max(self.transfer_ns, n * self.transfer_ns - (n - 1) * self.program_ns)
        return take_time(&self.die_time[die], start, n * self.program_ns, self.die_least_ns) + n * self.program_ns

    cdef int64_t read(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* data, uint8_t* oob, uint8_t* status,
                      int cause, int64_t t_ns) except -1 nogil:
        cdef uint32_t i
        cdef int error = 0
        if block >= self.blocks or n == 0 or page >= self.pages_per_block or n > self.pages_per_block - page:
            return self.breach(OP_READ, block, page, RULE_RANGE)
        for i in range(n):
            if data != NULL and i % READ_CHUNK == 0:  # a chunk is verified while it is still in the processor's cache
                error = self.pread_pages(block * self.pages_per_block + page + i,
                                         min(n - i, <uint32_t> READ_CHUNK), data)
            status[i] = self.take_page(block, page + i, data, oob)
            if error and data != NULL:
                status[i] = self.take_again(block, page + i, data, oob)
            if oob != NULL:
                oob += self.oob_bytes
            if data != NULL:
                data += self.page_bytes
        return self.count_read(block, n, cause, t_ns)

    cdef int64_t view(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t** data, uint8_t* oob, int cause,
                      int64_t t_ns, uint32_t ahead) except -1 nogil:
        """Read whole, programmed pages without copying them: ``data[0]`` points into the mapping, valid until the next
        program. It is NULL, and nothing was done, if any of them is not such a page: use ``read`` then. ``ahead``: the
        PPA that is read next, for prefetching; one outside the chip for none."""
        cdef const uint8_t* coming = NULL
        cdef uint32_t i
        data[0] = NULL
        if (self.data_map == NULL or self.unsummed or block >= self.blocks or n == 0 or page >= self.pages_per_block
                or n > self.pages_per_block - page):
            return t_ns
        for i in range(n):
            if self.judge_spare(block, page + i, False) != PAGE_OK:
                return t_ns
            copy_oob(oob + i * self.oob_bytes, self.record(block, page + i) + self.record_head, self.oob_bytes)
        data[0] = self.data_map + (<uint64_t> block * self.pages_per_block + page) * self.page_bytes
        if ahead < <uint64_t> self.blocks * self.pages_per_block:
            coming = self.data_map + <uint64_t> ahead * self.page_bytes
        if not guarded_holds(data[0], self.page_bytes, n, self.record(block, page), self.stride, coming):
            data[0] = NULL
            return t_ns
        return self.count_read(block, n, cause, t_ns)

    cdef const uint8_t* peek(self, uint32_t block, uint32_t page, uint8_t* oob, int cause,
                             int64_t* t_ns) except? NULL nogil:
        """Of an unsummed chip: read a whole, programmed page without copying it. It stays where it is until its block
        is erased. NULL, and nothing was done, if there is no such page with content: use ``read`` then. ``t_ns`` goes
        from the beginning of the read to its end."""
        if (not self.unsummed or block >= self.blocks or page >= self.pages_per_block or self.homes[block] == NO_HOME
                or self.judge_spare(block, page, False) != PAGE_OK):
            return NULL
        copy_oob(oob, self.record(block, page) + self.record_head, self.oob_bytes)
        t_ns[0] = self.count_read(block, 1, cause, t_ns[0])
        return self.home(block, page)

    cdef int64_t time_read(self, uint32_t block, uint32_t n, int64_t t_ns) noexcept nogil:
        """When the last of ``n`` pages read has crossed the channel. The pages cross in a row, the last one as soon as
        it is read."""
        cdef uint32_t die = self.die_of(block)
        cdef int64_t start = take_time(&self.die_time[die], t_ns, n * self.read_ns, self.die_least_ns)
        start += max(self.read_ns, n * self.read_ns - (n - 1) * self.transfer_ns)
        start = take_time(&self.channel_time[self.channel_of(die)], start, n * self.transfer_ns, self.transfer_ns)
        return start + n * self.transfer_ns

    cdef int64_t count_read(self, uint32_t block, uint32_t n, int cause, int64_t t_ns) noexcept nogil:
        """Count ``n`` page reads of a block; returns when they end."""
        self.counts[OP_READ][cause] += n
        return self.time_read(block, n, t_ns)

    cdef uint8_t take_page(self, uint32_t block, uint32_t page, uint8_t* data, uint8_t* oob) noexcept nogil:
        """The page's status, its OOB copied out, and its data (already read into ``data``) verified."""
        cdef uint8_t* rec = self.record(block, page)
        cdef uint8_t status = self.judge_spare(block, page, data == NULL)
        cdef uint32_t data_crc
        if oob != NULL:
            if status == PAGE_ERASED:
                memset(oob, 0xFF, self.oob_bytes)
            else:
                copy_oob(oob, rec + self.record_head, self.oob_bytes)
        if data == NULL:
            return status
        if status == PAGE_ERASED:
            memset(data, 0xFF, self.page_bytes)
        elif self.keeps_data and status == PAGE_OK:
            memcpy(&data_crc, rec + 8, 4)
            if data_crc == NO_DATA_CRC:
                memset(data, 0, self.page_bytes)
            elif crc32c_page(data, self.page_bytes) != data_crc:
                return PAGE_TORN
        return status

    cdef bint take_plain(self, const uint8_t* rec, uint32_t now, uint8_t* oob) noexcept nogil:
        """Copy the OOB of a programmed page of an unsummed chip, as ``take_page`` does; False for any other page."""
        cdef uint32_t epoch
        memcpy(&epoch, rec, 4)
        if epoch < now:
            return False
        copy_oob(oob, rec + self.record_head, self.oob_bytes)
        return True

    cdef uint8_t take_again(self, uint32_t block, uint32_t page, uint8_t* data, uint8_t* oob) noexcept nogil:
        """Read one page again after the host failed to read part of a run. Only a page that it cannot read counts as
        unreadable, as if its cells had worn out."""
        cdef uint32_t data_crc
        memcpy(&data_crc, self.record(block, page) + 8, 4)
        if self.pread_pages(block * self.pages_per_block + page, 1, data) and data_crc != NO_DATA_CRC:
            return PAGE_TORN
        return self.take_page(block, page, data, oob)

    cdef int64_t read_some(self, uint32_t block, const uint32_t* pages, uint32_t n, uint8_t* data, uint8_t* oob,
                           uint8_t* status, int cause, int64_t t_ns, int64_t* ready) except -1 nogil:
        cdef uint32_t i = 0, k, run, now
        cdef int64_t end
        cdef int error = 0
        cdef bint plain = self.unsummed and data == NULL
        cdef const uint8_t* first
        if block >= self.blocks or n == 0 or pages[n - 1] >= self.pages_per_block:
            return self.breach(OP_READ, block, pages[n - 1] if n else 0, RULE_RANGE)
        first = self.record(block, 0)
        now = self.erases(block) + 1
        while data != NULL and i < n:
            run = 1
            while i + run < n and pages[i + run] == pages[i] + run:
                run += 1
            error |= self.pread_pages(block * self.pages_per_block + pages[i], run,
                                      data + <uint64_t> i * self.page_bytes)
            i += run
        end = self.count_read(block, n, cause, t_ns)
        for k in range(n):
            if k + RECORDS_AHEAD < n:
                prefetch(first + <uint64_t> pages[k + RECORDS_AHEAD] * self.stride, 0)
            if plain and self.take_plain(first + <uint64_t> pages[k] * self.stride, now, oob):
                status[k] = PAGE_OK
            else:
                status[k] = self.take_page(block, pages[k], data, oob)
            if error and data != NULL:
                status[k] = self.take_again(block, pages[k], data, oob)
            oob += self.oob_bytes
            if data != NULL:
                data += self.page_bytes
            ready[k] = end - (n - 1 - k) * self.transfer_ns
        return end

    cdef int64_t read_spare(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* oob, uint8_t* status,
                            int cause, int64_t t_ns) except -1 nogil:
        cdef uint32_t i, die
        if block >= self.blocks or n == 0 or page >= self.pages_per_block or n > self.pages_per_block - page:
            return self.breach(OP_SPARE, block, page, RULE_RANGE)
        for i in range(n):
            status[i] = self.judge_spare(block, page + i, True)
            if oob != NULL:
                if status[i] == PAGE_ERASED:
                    memset(oob, 0xFF, self.oob_bytes)
                else:
                    memcpy(oob, self.record(block, page + i) + self.record_head, self.oob_bytes)
                oob += self.oob_bytes
        self.counts[OP_SPARE][cause] += n
        die = self.die_of(block)
        return take_time(&self.die_time[die], t_ns, n * self.spare_ns, self.die_least_ns) + n * self.spare_ns

    cdef int64_t erase(self, uint32_t block, int cause, int64_t t_ns, bint* ok) except -1 nogil:
        cdef uint32_t die, erases
        ok[0] = False
        if self.readonly:
            return self.breach(OP_ERASE, block, 0, RULE_READONLY)
        if block >= self.blocks:
            return self.breach(OP_ERASE, block, 0, RULE_RANGE)
        self.look(False)
        if self.health(block) != BLOCK_GOOD:
            return self.breach(OP_ERASE, block, 0, RULE_BAD)
        erases = self.erases_after(block) if self.erases(block) < ERASES_MOST else NO_MORE_ERASES
        if erases == NO_MORE_ERASES:
            return t_ns                        # worn out: the count has no room for another erase
        self.write_entry(block, erases, 0, BLOCK_GOOD)
        self.next_page[block] = 0
        self.give_back(block)
        self.counts[OP_ERASE][cause] += 1
        ok[0] = True
        die = self.die_of(block)
        return take_time(&self.die_time[die], t_ns, self.erase_ns, self.die_least_ns) + self.erase_ns

    # --- content of an unsummed chip: only of blocks that have any, in memory that blocks reuse

    cdef uint8_t* home(self, uint32_t block, uint32_t page) noexcept nogil:
        return <uint8_t*> self.data_map + (
            <uint64_t> self.homes[block] * self.pages_per_block + page) * self.page_bytes

    cdef int read_home(self, uint32_t block, uint32_t page, uint32_t n, uint8_t* data) noexcept nogil:
        if self.homes[block] == NO_HOME:
            memset(data, 0, <uint64_t> n * self.page_bytes)
        else:
            memcpy(data, self.home(block, page), <uint64_t> n * self.page_bytes)
        return 0

    cdef int write_home(self, uint32_t block, uint32_t page, uint32_t n, const uint8_t* data) noexcept nogil:
        """Write content of a block. With the first, earlier pages are zeroed: they have no content, and the memory may
        hold another block's."""
        if self.homes[block] == NO_HOME:
            self.take_memory(block)
            memset(self.home(block, 0), 0, <uint64_t> page * self.page_bytes)
        memcpy(self.home(block, page), data, <uint64_t> n * self.page_bytes)
        return 0

    cdef int take_memory(self, uint32_t block) noexcept nogil:
        """Give the block memory: that of an erased block, or new memory. New memory is populated for the whole block at
        once, because a fault per page would cost more than the writes. On a kernel that cannot, faults populate it."""
        cdef uint64_t bytes = <uint64_t> self.pages_per_block * self.page_bytes
        if self.spare_homes_n:
            self.spare_homes_n -= 1
            self.homes[block] = self.spare_homes[self.spare_homes_n]
            if self.spare_homes_n >= self.empty_homes_n:
                return 0
            self.empty_homes_n -= 1
        else:
            self.homes[block] = self.homes_n
            self.homes_n += 1
        if bytes % MEMORY_PAGE == 0 and bytes <= TAKEN_MOST:
            madvise(self.home(block, 0), bytes, MADV_POPULATE_WRITE)
        return 0

    cdef int give_back(self, uint32_t block) noexcept nogil:
        """Release the memory of a block without content for reuse; above SPARE_MOST, to the kernel. The block reads as
        zeros afterwards."""
        cdef uint64_t bytes = <uint64_t> self.pages_per_block * self.page_bytes
        cdef uint32_t last = self.spare_homes_n
        if self.homes[block] == NO_HOME:
            return 0
        self.spare_homes_n += 1
        if (last - self.empty_homes_n) * bytes < SPARE_MOST or bytes % MEMORY_PAGE:
            self.spare_homes[last] = self.homes[block]
        else:                               # places without memory come first
            madvise(self.home(block, 0), bytes, MADV_DONTNEED)
            self.spare_homes[last] = self.spare_homes[self.empty_homes_n]
            self.spare_homes[self.empty_homes_n] = self.homes[block]
            self.empty_homes_n += 1
        self.homes[block] = NO_HOME
        return 0

    def punch(self, uint32_t block):
        self.require_open()
        self.give_back(block)

    cdef uint32_t erases_after(self, uint32_t block) noexcept nogil:
        """The erase count after one more erase. A host that died may have kept records of an epoch whose erase it lost.
        So the first erase of a block since the image was opened skips past their epochs: else they would become
        valid."""
        cdef uint32_t page, epoch, count = self.erases(block) + 1
        if self.doubts and not self.is_renewed[block]:
            self.is_renewed[block] = 1
            for page in range(0 if self.is_blank[block] else self.pages_per_block):
                memcpy(&epoch, self.record(block, page), 4)
                if epoch > count and epoch - count > LOST_ERASES_MOST:
                    memset(self.record(block, page), 0, 4)  # damage: skipping past it would use up the erase count
                else:
                    count = max(count, epoch)
        return count

    cdef int sync(self, bint durable) except -1 nogil:
        """fdatasync, and only then move each touched block's synced mark: the mark may lag, but never leads. Without
        ``durable`` there is no fdatasync and the marks move too: the host is trusted not to die, and the death of the
        process loses nothing."""
        cdef uint32_t i, block, whole
        if self.readonly:
            return 0
        if durable and self.path is not None and fdatasync(self.fd) != 0:
            with gil:
                raise OSError(errno, os.strerror(errno), str(self.path))
        self.look(True)
        for i in range(self.touched_n):
            block = self.touched[i]
            whole = self.find_next(block)
            if self.is_touched[block] == LAST_FAILED:
                whole -= 1              # its last program failed, and the caller knows that
            self.is_touched[block] = 0
            self.write_entry(block, self.erases(block), whole, self.health(block))
        self.touched_n = 0
        return 0

    cdef int retire(self, uint32_t block) except -1 nogil:
        if self.readonly:
            self.breach(OP_ERASE, block, 0, RULE_READONLY)
        self.look(False)
        if self.health(block) == BLOCK_GOOD:
            self.write_entry(block, self.erases(block), self.pages_per_block, BLOCK_GROWN_BAD)
        return 0

    # --- the NVRAM: mapped like the tables, so that stores survive the process

    cdef int64_t nvram_store(self, uint64_t offset, const void* data, uint64_t n, int cause,
                             int64_t t_ns) except -1 nogil:
        if self.readonly:
            self.breach(4, 0, 0, RULE_READONLY)
        if offset > self.nvram_bytes or n > self.nvram_bytes - offset:
            self.breach(4, 0, 0, RULE_NVRAM)
        if (offset | n) % NVRAM_WORD:
            self.breach(4, 0, 0, RULE_WORDS)
        if n == 0:
            return t_ns
        nvram_copy(self.nvram_base + offset, data, n // NVRAM_WORD)
        self.look(False)
        return self.charge_nvram(OP_NVRAM_WRITE, nvram_lines(offset, n), cause, t_ns)

    cdef int64_t nvram_pair(self, uint64_t first, uint64_t word, uint64_t second, uint64_t other, int cause,
                            int64_t t_ns) except -1 nogil:
        if self.readonly:
            self.breach(4, 0, 0, RULE_READONLY)
        if (first >= self.nvram_bytes or second >= self.nvram_bytes or NVRAM_WORD > self.nvram_bytes - first
                or NVRAM_WORD > self.nvram_bytes - second):
            self.breach(4, 0, 0, RULE_NVRAM)
        if (first | second) % NVRAM_WORD:
            self.breach(4, 0, 0, RULE_WORDS)
        nvram_copy(self.nvram_base + first, &word, 1)
        nvram_copy(self.nvram_base + second, &other, 1)
        self.look(False)
        return self.charge_nvram(OP_NVRAM_WRITE, 2, cause, t_ns)

    cdef int64_t nvram_load(self, uint64_t offset, void* data, uint64_t n, int cause, int64_t t_ns) except -1 nogil:
        memcpy(data, self.nvram_at(offset, n), n)
        return self.charge_load(offset, n, cause, t_ns)

    cdef int64_t charge_load(self, uint64_t offset, uint64_t n, int cause, int64_t t_ns) noexcept nogil:
        return self.charge_nvram(OP_NVRAM_READ, nvram_lines(offset, n), cause, t_ns) if n else t_ns

    cdef int hold(self, int64_t t_ns, int64_t until_ns) noexcept nogil:
        cdef uint32_t die
        for die in range(self.dies):
            self.die_time[die].gaps_n = 0
            if self.die_time[die].tail < until_ns:
                self.die_time[die].busy += until_ns - max(t_ns, self.die_time[die].tail)
                self.die_time[die].tail = until_ns
        return 0

    cdef const uint8_t* nvram_at(self, uint64_t offset, uint64_t n) except? NULL nogil:
        if offset > self.nvram_bytes or n > self.nvram_bytes - offset:
            self.breach(4, 0, 0, RULE_NVRAM)
        return self.nvram_base + offset

    cdef int64_t charge_nvram(self, int op, uint64_t lines, int cause, int64_t t_ns) noexcept nogil:
        cdef int64_t ns = self.nvram_write_ns if op == OP_NVRAM_WRITE else self.nvram_read_ns
        self.counts[op][cause] += lines
        if ns == 0:
            return t_ns
        return take_time(&self.nvram_time, t_ns, <int64_t> lines * ns, 1) + <int64_t> lines * ns

    def region(self, name):
        return self.regions.get(name)

    def plan_regions(self, layout):
        """Make ``region`` answer as on a chip of that layout, so that a scheme can be tried before it is bound."""
        self.regions = places_of(layout.nvram)

    cdef int boot_write(self, int slot, const uint8_t* data) except -1 nogil:
        if self.readonly:
            self.breach(4, 0, 0, RULE_READONLY)
        memcpy(self.boot + (slot & 1) * BOOT_SLOT_BYTES, data, 64)
        return self.look(False)

    cdef int boot_read(self, int slot, uint8_t* data) except -1 nogil:
        memcpy(data, self.boot + (slot & 1) * BOOT_SLOT_BYTES, 64)
        return 0

    cdef uint64_t count(self, int op, int cause) noexcept nogil:
        return self.counts[op][cause]

    cdef int64_t quiet_at(self) noexcept nogil:
        cdef uint32_t i
        cdef int64_t at = 0
        for i in range(self.dies):
            at = max(at, self.die_time[i].tail)
        for i in range(self.channels):
            at = max(at, self.channel_time[i].tail)
        return at

    def clock(self):
        """{"dies": [ns from which each is free], "channels": [...], and "die_busy", "channel_busy": [ns in use]}."""
        self.require_open()
        return {
            "dies": [self.die_time[i].tail for i in range(self.dies)],
            "channels": [self.channel_time[i].tail for i in range(self.channels)],
            "die_busy": [self.die_time[i].busy for i in range(self.dies)],
            "channel_busy": [self.channel_time[i].busy for i in range(self.channels)],
        }


cdef inline void copy_oob(uint8_t* into, const uint8_t* at, uint32_t n) noexcept nogil:
    """As memcpy; inline, because most OOBs have about twenty bytes, too few for the cost of a call."""
    cdef uint32_t i = 0
    if n > 32:
        memcpy(into, at, n)
        return
    while i + 8 <= n:
        memcpy(into + i, at + i, 8)
        i += 8
    if i + 4 <= n:
        memcpy(into + i, at + i, 4)
        i += 4
    while i < n:
        into[i] = at[i]
        i += 1


cdef inline bint spare_is_blank(const uint8_t* at, uint32_t n) noexcept nogil:
    """Whether all bytes are 0xFF. A record like this after its epoch: the data of its page was programmed, the spare
    area was not."""
    cdef uint32_t i
    for i in range(n):
        if at[i] != 0xFF:
            return False
    return True


cdef inline uint8_t entry_check(uint64_t entry) noexcept nogil:
    """The check byte of a block table entry, over its other seven bytes; 0 for an entry of zeros."""
    return <uint8_t> (crc32c(0, &entry, 7) ^ check_of_zeros)
