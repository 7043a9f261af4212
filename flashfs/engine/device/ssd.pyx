# distutils: language = c++
"""The device engine that all FTLs share: it turns host requests into runs of flash operations.

Order of a write: the page is programmed, then bound, then its old place dies. Order of a move: all live pages of the
victim are copied, then the mapping is updated, then the victim is released; it is erased only after a sync (the host
may crash) and only when it is opened again. So after any power cut, one whole version of a page is in flash.

The device is one object in four layers, each a file: durable.pyx opens blocks, pads and syncs; writer.pyx programs the
host's pages; upkeep.pyx does what comes between requests, checkpoints too; here are the host's requests, and what puts
the parts together.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from flashfs.engine.device.buffer cimport WriteBuffer
from flashfs.engine.device.cache cimport DataCache
from flashfs.engine.device.metalog cimport MetaLog
from flashfs.engine.device.mover cimport Mover
from flashfs.engine.contract.cleaning cimport Cleaning
from flashfs.engine.contract.checkpointer cimport Checkpointer
from flashfs.engine.contract.engine cimport GOING, IN_TRIM
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.contract.extent cimport RUN
from flashfs.engine.contract.placement cimport Placement
from flashfs.engine.contract.validity cimport Validity
from flashfs.engine.blocks.pool cimport (
    CAUSE_GC,
    CAUSE_HOST,
    CAUSE_RECOVERY,
    KIND_TRANSLATION,
    KIND_USER,
    KIND_VALIDITY,
    NONE,
    OOB_ENGINE,
    STATE_CLOSED,
    STATE_META,
    STATE_OPEN,
    STREAM_GC,
    STREAM_HOST,
    BlockPool,
)
from flashfs.engine.device.reader cimport Reader
from flashfs.engine.device.upkeep cimport Upkeep
from flashfs.engine.blocks.victims cimport VictimIndex
from flashfs.engine.device.wear cimport WearLevel
from flashfs.engine.device.wear_scan cimport WearScan
from nandimg._nand cimport CAUSES, Nand

from contextlib import suppress

from flashfs.engine.blocks.pool import CAUSE_NAMES
from flashfs.errors import BindError, DeviceFullError
from nandimg._nand import COUNTED

MOVES = ("gc", "wear", "retire")  #: causes of moves

cdef enum:
    BYPASS = 32              # a request of so many pages bypasses the write buffer, to avoid the copy
    TRIM_CHUNK = 4096
    CHECKPOINT_EVERY_MOST = 1 << 27  # pages: bounds the memory of a recovery, and its time (docs/performance.md)


@cython.final
cdef class Ssd(Upkeep):
    """One device: a chip, four parts, a write buffer and a metadata log.

    ``build(ssd)`` of the scheme returns the parts; see flashfs.ftl. Addresses are LPAs, times are virtual ns. With
    ``wear_reads``, wear levelling finds its blocks by that many spare reads per page programmed.
    """

    def __cinit__(self, Nand nand, uint32_t lpas, scheme_oob=0, *, uint32_t buffer_pages=0, bint plp=False,
                  bint buffer_in_order=False, bint durable=True, uint32_t wear_spread=32, uint32_t wear_reads=0,
                  uint32_t gc_reserve=0, uint64_t checkpoint_every=0):
        cdef uint32_t block_pages = nand.pages_per_block
        self.nand = nand
        self.lpas = lpas
        self.oob_bytes = nand.oob_bytes
        self.page_bytes = nand.page_bytes
        self.pages_per_block = block_pages
        if OOB_ENGINE + scheme_oob > nand.oob_bytes:
            raise BindError(
                f"the scheme needs {OOB_ENGINE + scheme_oob} bytes of OOB per page: this chip has {nand.oob_bytes}")
        self.durable = durable
        self.checkpoint_every = checkpoint_every
        self.gc_need = 1
        self.gc_reserve = gc_reserve or (1 if nand.blocks < 64 else 2)
        self.pool = BlockPool(nand)
        self.victims = VictimIndex(nand.blocks, block_pages)
        self.buffer = WriteBuffer(nand, buffer_pages, plp, RUN if buffer_in_order else 0)
        self.cache = DataCache(nand)
        self.reader = Reader(self, self.buffer, self.cache)
        self.meta = MetaLog(self)
        self.mover = Mover(self)
        self.wear = WearScan(self, wear_spread, wear_reads) if wear_reads else WearLevel(self, wear_spread)
        self._allocate()

    def _allocate(self):
        cdef uint32_t pages = max(self.pages_per_block, RUN)
        self.oobs = <uint8_t*> malloc(RUN * self.oob_bytes)
        self.read_oobs = <uint8_t*> malloc(pages * self.oob_bytes)
        self.olds = <uint32_t*> malloc(TRIM_CHUNK * 4)
        self.seqs = <uint64_t*> malloc(RUN * 8)
        self.known = <int64_t*> malloc(RUN * 8)
        self.run_ppas = <uint32_t*> malloc(RUN * 4)
        self.edge = <uint8_t*> malloc(self.page_bytes)
        if not (self.oobs and self.read_oobs and self.olds and self.seqs and self.known and self.run_ppas
                and self.edge):
            raise MemoryError

    def __dealloc__(self):
        free(self.oobs)
        free(self.read_oobs)
        free(self.olds)
        free(self.seqs)
        free(self.known)
        free(self.run_ppas)
        free(self.edge)
        free(self.carried)

    # --- putting it together

    def install(self, Mapping mapping, Validity validity, Placement placement, Cleaning cleaning):
        """Set the four parts, once. BindError if the mapping cannot work with that validity store."""
        why = mapping.refuses(validity)
        if why is not None:
            raise BindError(why)
        self.mapping = mapping
        self.checkpointer = mapping.from_pages if mapping.from_pages is not None else Checkpointer(self)
        self.own(KIND_USER, mapping)
        self.validity = validity
        self.placement = placement
        self.cleaning = cleaning

    def plan_meta(self, uint64_t saved_bytes):
        """Reserve what a checkpoint of ``saved_bytes`` needs, before the parts are sized by what is left."""
        self.meta.plan(saved_bytes)
        self.meta_floor = self.meta.checkpoint_blocks + self.meta.log_blocks_most
        if not self.checkpoint_every:  # checkpoints then cost under half a per cent of all programs
            self.checkpoint_every = min(CHECKPOINT_EVERY_MOST,
                                        max(256 * self.meta.checkpoint_pages, 2 * self.pages_per_block))

    def carry(self, uint32_t pages):
        self.mover.carry(pages)

    def shrink_reserve(self, uint32_t most):
        """Keep at most ``most`` free blocks for cleaning; returns how many are kept."""
        self.gc_reserve = min(self.gc_reserve, most)
        return self.gc_reserve

    def reserve_for(self, uint32_t width):
        """Cleaning writes to ``width`` blocks at once and may open them all within one victim: reserve enough for
        that."""
        self.gc_need = max(self.gc_need, width)
        self.gc_reserve = max(self.gc_reserve, width)

    def shrink_buffer(self, uint32_t pages):
        """A write buffer of so many pages, before the device is used."""
        if self.ready or self.buffer.held:
            raise ValueError("the write buffer is in use")
        self.buffer = WriteBuffer(self.nand, pages, self.buffer.in_nvram, self.buffer.run_most)
        self.reader.buffer = self.buffer

    def forget_counts(self):
        """Reset the counters of requests; the chip has counters of its own."""
        self.host_read = self.host_write = self.host_trim = self.host_remap = self.syncs = 0
        self.refit_at = 0
        self.reader.forget_counts()
        self.cache.forget_counts()
        self.mapping.forget_counts()
        self.validity.forget_counts()
        self.mover.forget_counts()

    def format(self):
        """Format a blank chip as an empty device, with a first checkpoint."""
        self.pool.format()
        self.placement.attach()
        self.validity.device_ready()
        self.mapping.device_ready()
        self.ready = True
        self.checkpoint()

    # --- host requests

    cdef int64_t write(self, const uint32_t* lpas, uint32_t n, const uint8_t* data, int64_t t_ns) except -1 nogil:
        """Write ``n`` pages, data end to end (<uint8_t*> NULL if the chip keeps none). Returns the virtual time of the
        acknowledgement."""
        cdef uint32_t done = 0, part, i
        cdef int64_t end = t_ns, one
        self.now_ns = t_ns
        if self.stopped:
            self.refuse()
        if not self.nand.keeps_data:
            data = NULL
        while done < n:
            part = min(n - done, <uint32_t> RUN)
            self.chores()
            self.dirty = True
            if self.cache.held:
                for i in range(part):  # the cached pages are outdated, even if the write fails midway
                    self.cache.drop(lpas[done + i])
            if self.mapping.dedup is not None and (data != NULL or self.words != NULL):
                one = self.mapping.dedup.write(
                    lpas + done, part, data, self.words + done if self.words != NULL else <const uint64_t*> NULL, t_ns)
            elif self.buffer.slots and (part < BYPASS or self.buffer.in_nvram or self.buffer.in_order):
                one = self.write_buffered(lpas + done, part, data, t_ns)
            else:
                one = self.write_past(lpas + done, part, data, t_ns)
            if self.cache.slots:
                self.cache.put_run(lpas + done, part, data)
            end = max(end, one)
            self.host_write += part
            done += part
            if data != NULL:
                data += <uint64_t> part * self.page_bytes
        return end

    cdef int64_t write_past(self, const uint32_t* lpas, uint32_t n, const uint8_t* data, int64_t t_ns) except -1 nogil:
        """Write directly to flash and drop older versions from the buffer; if it fails, only those of the pages that
        were bound."""
        cdef uint32_t i
        for i in range(n):
            self.seq += 1
            self.seqs[i] = self.seq
        self.in_flight = n
        self.appended = 0
        try:
            return self.append(STREAM_HOST, KIND_USER, lpas, self.seqs, n, data, CAUSE_HOST, t_ns, NULL)
        finally:
            self.in_flight = 0
            if self.buffer.held:
                for i in range(self.appended):
                    self.buffer.drop(lpas[i])

    cdef int64_t write_buffered(self, const uint32_t* lpas, uint32_t n, const uint8_t* data,
                                int64_t t_ns) except -1 nogil:
        """Write to the buffer; a page is acknowledged when the slot's last program has ended."""
        cdef uint32_t i, slot
        cdef int64_t end = t_ns
        for i in range(n):
            if self.buffer.used == self.buffer.slots:
                self.drain()
            self.seq += 1
            self.mapping.expect(lpas[i])
            slot = self.buffer.add(lpas[i], self.seq)
            if data != NULL and self.buffer.data != NULL:
                memcpy(self.buffer.page(slot), data + <uint64_t> i * self.page_bytes, self.page_bytes)
            elif self.buffer.data != NULL:
                memset(self.buffer.page(slot), 0, self.page_bytes)
            end = max(end, self.buffer.settle(slot, CAUSE_HOST, max(t_ns, self.buffer.ready_ns[slot])))
        return end

    cdef int64_t read(self, const uint32_t* lpas, uint32_t n, uint8_t* data, int64_t t_ns) except -1 nogil:
        """Read ``n`` pages into ``data`` (may be NULL). UncorrectableError names the first LPA that cannot be read.
        Returns the virtual time at which the last page is read."""
        self.now_ns = t_ns
        t_ns = self.reader.read(lpas, n, data, t_ns)
        self.host_read += n
        return t_ns

    cdef bint is_mapped(self, uint32_t lpa) except -1 nogil:
        """Whether the LPA is mapped or in the buffer, so that a read gives more than a hole."""
        cdef uint32_t ppa = NONE
        if self.buffer.held and self.buffer.find(lpa) != NONE:
            return True
        self.map_ns = self.now_ns
        self.mapping.peek(&lpa, 1, &ppa)
        return ppa != NONE

    cdef int64_t trim(self, uint32_t lpa, uint32_t n, int64_t t_ns) except -1 nogil:
        """Trim ``n`` pages: they read zeros from now on, durably after a flush. A page that holds nothing costs
        nothing, and no record is kept of it. Returns the virtual time at which the map's reads for it end."""
        cdef uint32_t part, i
        cdef int64_t end = t_ns
        cdef bint any_lived
        self.now_ns = t_ns
        if self.stopped:
            self.refuse()
        self.host_trim += n
        while n:
            self.chores_if_room()
            self.dirty = True
            part = self.skip_holes(lpa, n)
            lpa += part
            n -= part
            if n == 0:
                break
            self.map_ns = t_ns
            part = self.secure_trim(lpa, min(n, <uint32_t> TRIM_CHUNK))
            # Before any change, because it may fail; after everything that may take a sequence number, because the last
            # record cannot be extended then.
            if self.meta.pending_n == self.meta.pending_room and not self.meta.extends_trim(lpa, self.seq):
                self.log_trims()
            self.stopped = IN_TRIM
            any_lived = False
            if self.buffer.held:
                for i in range(part):  # a page in NVRAM survives a crash, so its trim must be recorded
                    any_lived |= self.buffer.drop(lpa + i) and self.buffer.in_nvram
            if self.cache.held:
                for i in range(part):
                    self.cache.drop(lpa + i)
            any_lived |= self.mapping.unbind(lpa, part, self.olds) > 0
            for i in range(part):
                any_lived |= self.olds[i] != NONE
            if any_lived:
                if not self.meta.extends_trim(lpa, self.seq):
                    self.seq += 1
                self.meta.note_trim(lpa, part, self.seq)
                self.validity.dead(self.olds, part)
            self.stopped = GOING
            end = max(end, self.map_ns)
            lpa += part
            n -= part
        if self.mapping.lent:
            self.take_back()
        return end

    cdef uint32_t skip_holes(self, uint32_t lpa, uint32_t n) noexcept nogil:
        """How many of the LPAs to trim are unmapped, as far as the mapping knows without looking at each: a device of
        terabytes may be discarded in one request."""
        cdef uint32_t slot
        n = self.mapping.unmapped_from(lpa, n)
        if n and self.buffer.held:
            for slot in range(self.buffer.used):
                if self.buffer.lpa_of[slot] != NONE and lpa <= self.buffer.lpa_of[slot] < lpa + n:
                    n = self.buffer.lpa_of[slot] - lpa
        return n

    cdef int flush(self, int64_t t_ns) except -1 nogil:
        """Make everything acknowledged before durable."""
        self.now_ns = t_ns
        if self.stopped:
            self.refuse()
        if not self.dirty:
            if self.inherited:              # from a mount that did not sync, which came to a clean end
                self.sync_image()
                self.inherited = False
            return 0
        self.inherited = False              # the barrier below syncs it too
        self.chores_if_room()
        if not self.buffer.in_nvram:
            self.drain()
            if self.placement.pads:
                self.pad_blocks()
        if self.checkpoint_due:
            with gil:
                with suppress(DeviceFullError):
                    self.checkpoint()
        self.barrier()
        self.dirty = False
        return 0

    cdef int64_t settle(self, int64_t t_ns) except -1 nogil:
        """Within a request: make its first change durable before the second. Otherwise the second could become durable
        first: a trim is logged, or kept in NVRAM, while the page of the first change is still in the write buffer."""
        self.flush(t_ns)
        self.dirty = True
        return t_ns

    def unchanged_since_clean(self):
        """Whether nothing has changed since the clean checkpoint that the device was mounted from."""
        return self.mount_due

    # --- called by recovery

    def resume(self, uint64_t seq, uint64_t mounts, bint clean, uint64_t since_checkpoint=0, at=None):
        """Make the device ready: set the counters as found and whether a ``clean`` checkpoint is in force; ``at`` tells
        the checkpointer where the recovery's scan began."""
        self.seq = seq
        self.mounts = mounts + 1
        self.mount_due = self.inherited = clean
        self.hint_may_be_clean = True
        self.since_checkpoint = since_checkpoint
        self.since_checkpoint_tables = 0
        self.checkpointer.device_ready(clean, at)
        self.validity.device_ready()
        self.mapping.device_ready()
        self.ready = True

    def count_mounts(self, uint64_t mounts):
        """Go on from another number of mounts: that of the image whose data this device takes over."""
        self.mounts = mounts

    def restore(self, uint32_t lpa, uint64_t seq, const uint8_t[::1] page not None, bint in_memory):
        """Restore a page that the NVRAM saved: to flash, under its own sequence number, so that a power cut meanwhile
        leaves it in one of the two places; or, ``in_memory``, to the buffer of a device that must not change."""
        cdef uint32_t slot
        if in_memory:
            slot = self.buffer.add(lpa, seq)
            memcpy(self.buffer.page(slot), &page[0], self.page_bytes)
        else:
            self.append(STREAM_HOST, KIND_USER, &lpa, &seq, 1, &page[0], CAUSE_RECOVERY, self.now_ns, NULL)

    # --- the same for Python

    def write_pages(self, const uint32_t[::1] lpas not None, const uint8_t[::1] data=None, int64_t t_ns=0):
        """Write a batch of pages; returns the virtual time of the last acknowledgement."""
        cdef uint32_t n = lpas.shape[0]
        cdef const uint8_t* at = &data[0] if data is not None and data.shape[0] else <const uint8_t*> NULL
        cdef int64_t end
        if n == 0:
            return t_ns
        with nogil:
            end = self.write(&lpas[0], n, at, t_ns)
        return end

    def read_pages(self, const uint32_t[::1] lpas not None, uint8_t[::1] data=None, int64_t t_ns=0):
        """Read a batch of pages into ``data``; returns the virtual time at which the last one is read."""
        cdef uint32_t n = lpas.shape[0]
        cdef uint8_t* at = &data[0] if data is not None and data.shape[0] else <uint8_t*> NULL
        cdef int64_t end
        if n == 0:
            return t_ns
        with nogil:
            end = self.read(&lpas[0], n, at, t_ns)
        return end

    def trim_pages(self, uint32_t lpa, uint32_t n, int64_t t_ns=0):
        """Trim ``n`` pages from ``lpa`` on; returns the virtual time of the acknowledgement."""
        with nogil:
            t_ns = self.trim(lpa, n, t_ns)
        return t_ns

    def move_blocks(self, const uint32_t[::1] blocks not None):
        """Clean these closed blocks together; False if placement ended the move."""
        cdef bint done
        self.map_ns = self.now_ns
        with nogil:
            self.will_change()
            done = self.relocate_blocks(&blocks[0], blocks.shape[0], STREAM_GC, CAUSE_GC)
        self.dirty = True
        return done

    def move_pages(self, const uint32_t[::1] ppas not None):
        """Move these pages, in ascending order of PPAs, to the stream of cleaning; returns as ``move_blocks``."""
        cdef bint done
        self.map_ns = self.now_ns
        with nogil:
            self.will_change()
            done = self.relocate_pages(&ppas[0], ppas.shape[0], STREAM_GC, CAUSE_GC)
        self.dirty = True
        return done

    def clean_up(self):
        """Clean until blocks may be opened for the host."""
        with nogil:
            self.make_room()

    def sync_now(self, int64_t t_ns=0):
        """Flush."""
        with nogil:
            self.flush(t_ns)

    def idle(self, int64_t t_ns=0):
        """The host is idle: do the housekeeping that is due."""
        self.now_ns = t_ns
        if self.stopped:
            self.refuse()
        with nogil:
            self.chores()

    def mapped(self, uint32_t lpa):
        """Whether a read of ``lpa`` gives more than a hole."""
        return self.is_mapped(lpa)

    def operations(self):
        """{operation: {cause: n}} of the chip, and the totals. Reads and writes of the NVRAM are in lines."""
        by_cause = {}
        totals = {}
        for op, name in enumerate(COUNTED):
            row = {CAUSE_NAMES[c] if c < len(CAUSE_NAMES) else str(c): self.nand.count(op, c) for c in range(CAUSES)}
            by_cause[name] = {cause: n for cause, n in row.items() if n}
            totals[name] = sum(row.values())
        return totals, by_cause

    def purposes(self):
        """{operation: {purpose: n}} of pages read and programmed. ``user``: the host's pages and padding;
        ``translation``: the map's; ``validity``: the validity store's; each including moves by cleaning. ``engine``:
        all others (checkpoints, trims, mounts, recoveries)."""
        _, by_cause = self.operations()
        moved = self.mover.moved()
        out = {}
        for at, name in enumerate(("read", "program")):
            spent = by_cause[name]
            metadata = {kind: counts[at] for kind, counts in moved.items() if kind != KIND_USER}
            carried = sum(spent.get(cause, 0) for cause in MOVES) - sum(metadata.values())
            one = {"user": spent.get("host", 0) + spent.get("pad", 0) + carried,
                   "translation": spent.get("map", 0) + metadata.get(KIND_TRANSLATION, 0),
                   "validity": spent.get("validity", 0) + metadata.get(KIND_VALIDITY, 0)}
            out[name] = {**one, "engine": sum(spent.values()) - sum(one.values())}
        return out

    def dram(self):
        """{structure: (bytes as a controller packs them, bytes allocated)}."""
        tables = dict(self.mapping.tables())
        tables.update(self.validity.tables())
        tables.update(self.victims.tables())
        tables["blocks"] = self.pool.table_bytes()
        tables["write_buffer"] = self.buffer.tables()
        tables["trim_log"] = self.meta.tables()
        tables["gc_buffer"] = self.mover.tables()
        if self.wear.tables() is not None:
            tables["wear"] = self.wear.tables()
        if self.cache.room:
            tables["data_cache"] = self.cache.tables()
        return tables

    def check(self):
        """One line per broken invariant of each structure, and between pool and validity: only open and closed blocks
        hold live pages, and none beyond the programmed ones."""
        problems = self.pool.check() + self.victims.check() + self.validity.check() + self.mapping.check()
        problems += self.buffer.check() + self.cache.check()
        if self.mapping.lent > self.mapping.idle_bytes():
            problems.append(f"the data cache has {self.mapping.lent} bytes of the map's cache, of which "
                            f"{self.mapping.idle_bytes()} are empty")
        for block in range(self.pool.blocks):
            live = self.validity.live_in(block)
            state = self.pool.state[block]
            if live and state != STATE_OPEN and state != STATE_CLOSED:
                problems.append(f"block {block}: {len(live)} live pages but {self.pool.describe(block)['state']}")
            if live and state == STATE_OPEN and max(live) >= self.pool.next_page[block]:
                problems.append(f"block {block}: page {max(live)} is live but not programmed yet")
            if state == STATE_META and block not in self.meta.blocks and block not in self.checkpointer.kept():
                problems.append(f"block {block}: a metadata block that the log does not know")
        return problems
