# distutils: language = c++
"""The device engine that all FTLs share: it turns host requests into runs of flash operations.

Order of a write: the page is programmed, then bound, then its old place dies. Order of a move: all live pages of the
victim are copied, then the mapping is updated, then the victim is released; it is erased only after a sync (the host
may crash) and only when it is opened again. So after any power cut, one whole version of a page is in flash.
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
from flashfs.engine.contract.engine cimport GOING, IN_BIND, IN_CHECKPOINT, IN_SYNC, IN_TRIM, Engine
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.contract.extent cimport RUN, Extent
from flashfs.engine.contract.placement cimport Placement
from flashfs.engine.contract.validity cimport Validity
from flashfs.engine.blocks.pool cimport (
    CAUSE_GC,
    CAUSE_HOST,
    CAUSE_PAD,
    CAUSE_RECOVERY,
    CAUSE_RETIRE,
    KIND_PAD,
    KIND_TRANSLATION,
    KIND_USER,
    KIND_VALIDITY,
    NONE,
    OOB_ENGINE,
    STATE_BAD,
    STATE_CLOSED,
    STATE_META,
    STATE_OPEN,
    STREAM_GC,
    STREAM_HOST,
    STREAM_META,
    BlockPool,
    Oob,
    number_for,
    oob_pack,
)
from flashfs.engine.device.reader cimport Reader
from flashfs.engine.blocks.victims cimport VictimIndex
from flashfs.engine.device.wear cimport WearLevel
from flashfs.engine.device.wear_scan cimport WearScan
from nandimg._nand cimport CAUSES, Nand

from flashfs.engine.device.cache import SLOT_BYTES
from flashfs.engine.blocks.pool import CAUSE_NAMES
from flashfs.errors import BindError, DeviceFailedError, DeviceFullError
from nandimg._nand import COUNTED

MOVES = ("gc", "wear", "retire")  #: causes of moves

cdef enum:
    BYPASS = 32              # a request of so many pages bypasses the write buffer, to avoid the copy
    TRIM_CHUNK = 4096
    REPORTS_OF_A_WRITE = 3   # the most reports to validity per page
    REPORTS_OF_A_TRIM = 2
    GAINLESS = 32            # blocks cleaned without enough gain before the mapping is asked for superseded pages
    REFIT_PAGES = 4096       # pages written between two adjustments of the data cache to the budget
    CHECKPOINT_EVERY_MOST = 1 << 27  # pages: bounds the memory of a recovery, and its time (docs/performance.md)


@cython.final
cdef class Ssd(Engine):
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

    def set_budget(self, uint64_t dram):
        """Set the DRAM budget in bytes: the data cache gets what the tables leave of it, now and as they change."""
        self.budget = dram
        self.cache.reserve(<uint32_t> min(dram // (self.page_bytes + SLOT_BYTES), self.lpas))
        self.fit_cache()

    def fit_cache(self):
        """Resize the cache to what the tables leave."""
        if not self.budget:
            return
        fixed = sum(packed for name, (packed, _) in self.dram().items() if name != "data_cache")
        self.refit_at = self.host_write + REFIT_PAGES
        self.cache.limit(max(0, self.budget - fixed) // (self.page_bytes + SLOT_BYTES))

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

    # --- stopping after errors

    cdef int sync_image(self) except -1 nogil:
        """Sync the chip. A failed sync may have dropped data, and the next one would not report that again: so it stops
        the device. A sync counts if no trim was pending: only then is all that was done before it durable."""
        cdef int before = self.stopped
        self.stopped = IN_SYNC
        self.nand.sync(self.durable)
        self.stopped = before
        self.image_syncs += self.meta.pending_n == 0
        return 0

    cdef int refuse(self) except -1 nogil:
        """Raise the error for a request to a device that refuses changes."""
        with gil:
            self.fail(self.why_stopped() or "the image was opened read-only")
            raise DeviceFailedError(self.failed)

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
            self.chores()
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
            return 0
        self.chores()
        if not self.buffer.in_nvram:
            self.drain()
            if self.placement.pads:
                self.pad_blocks()
        if self.checkpoint_due:
            with gil:
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

    # --- writing to flash

    cdef int drain(self) except -1 nogil:
        """Program the whole buffer, in order of arrival or of LPAs. A slot holds its page until that is bound, and is
        reused when all are: after an error, unbound pages stay in their slots."""
        cdef uint32_t i = 0, run
        if self.buffer.in_order:
            self.drain_in_order()
            i = self.buffer.used
        while i < self.buffer.used:
            if self.buffer.lpa_of[i] == NONE:
                i += 1
                continue
            run = 1
            while i + run < self.buffer.used and run < RUN and self.buffer.lpa_of[i + run] != NONE:
                run += 1
            self.appended = 0
            try:
                self.append(STREAM_HOST, KIND_USER, self.buffer.lpa_of + i, self.buffer.seq_of + i, run,
                            self.buffer.page(i) if self.buffer.data != NULL else <uint8_t*> NULL, CAUSE_HOST,
                            self.now_ns, self.buffer.ready_ns + i)
            finally:
                self.buffer.let_go(i, self.appended)
            self.map_ns = self.now_ns
            self.mapping.housekeep()
            i += run
        if self.buffer.in_nvram:
            self.barrier()  # from here on, these pages are only in flash, and dropped ones only in the trim log
        self.buffer.clear()
        return 0

    cdef int drain_in_order(self) except -1 nogil:
        """Program as many pages at a time as fit one block: a run split elsewhere is two runs to the mapping."""
        cdef uint32_t i = 0, n = self.buffer.sort(), run, room
        while i < n:
            room = self.placement.run_room(STREAM_HOST)
            run = min(n - i, <uint32_t> RUN)
            if room and self.mapping.runs is None:
                run = min(run, room)
            self.buffer.gather(i, run)
            self.appended = 0
            try:
                self.append(STREAM_HOST, KIND_USER, self.buffer.run_lpas, self.buffer.run_seqs, run,
                            self.buffer.run_data, CAUSE_HOST, self.now_ns, self.buffer.run_ready)
            finally:
                self.buffer.gathered(i, self.appended)
            self.map_ns = self.now_ns
            self.mapping.housekeep()
            i += run
        return 0

    cdef int64_t append(self, int stream, int kind, const uint32_t* lpas, const uint64_t* seqs, uint32_t n,
                        const uint8_t* data, int cause, int64_t t_ns, int64_t* ready) except -1 nogil:
        """Program ``n`` (up to RUN) pages where placement says and bind them; a failed program is tried elsewhere.
        ``ready`` (or NULL) gets the virtual end of each page's program. If it raises, ``appended`` of them were
        bound."""
        cdef Extent ext
        cdef uint32_t done = 0, i, ok, ppa, at_hand = 0, run_from = 0
        cdef uint64_t moves = self.mover.moves
        cdef int before = self.stopped
        cdef int64_t end = t_ns, one
        cdef Oob oob
        for i in range(n):
            self.known[i] = t_ns
        oob.kind = <uint8_t> kind
        oob.flags = self.append_flags
        self.append_flags = 0
        oob.stream = <uint8_t> stream
        while done < n:
            if at_hand <= done:
                self.map_ns = t_ns
                at_hand = done + self.secure(stream, lpas + done, n - done, self.known + done)
            else:
                self.placement.make_ready(stream)
                if self.validity.in_flash and moves != self.mover.moves:  # moves have used some of that room
                    at_hand = done + self.room_for(at_hand - done, REPORTS_OF_A_WRITE, stream)
            ext.choice = 0
            self.placement.take(stream, lpas + done, at_hand - done, &ext)
            if moves != self.mover.moves:  # pages programmed before may have been moved
                moves = self.mover.moves
                run_from = done
            oob.order = self.pool.order[ext.block]
            for i in range(ext.n):
                oob.seq = seqs[done + i]
                oob.lpa = lpas[done + i]
                oob.number = number_for(self.pool, ext.page + i)
                oob_pack(self.oobs + i * self.oob_bytes, &oob)
            if self.mapping.scheme_oob:
                self.mapping.stamp(self.oobs + OOB_ENGINE, lpas + done, &ext, 0, 0)
            one = self.program(&ext, data, self.oobs, cause, t_ns, &ok)
            self.stopped = IN_BIND
            if ok:
                end = max(end, one)
                ppa = ext.block * self.pages_per_block + ext.page
                self.map_ns = t_ns
                self.mapping.bind(lpas + done, ok, ppa, ext.choice, self.olds)
                if self.mapping.runs is not None:
                    for i in range(ok):
                        self.run_ppas[done + i] = ppa + i
                self.validity.live_run(ppa, ok)
                self.validity.dead(self.olds, ok)
                one = max(one, self.map_ns)  # what ``bind`` read
                for i in range(ok):
                    self.known[done + i] = max(self.known[done + i], one)
                    end = max(end, self.known[done + i])
                if ready != NULL:
                    memcpy(ready + done, self.known + done, ok * sizeof(int64_t))
                if data != NULL:
                    data += <uint64_t> ok * self.page_bytes
                done += ok
                self.appended = done
            self.programmed(&ext, ok)
            self.stopped = before
        if self.mapping.runs is not None and done > run_from:
            self.stopped = IN_BIND
            self.mapping.runs.ends(lpas + run_from, self.run_ppas + run_from, done - run_from)
            self.stopped = before
        return end

    cdef uint32_t secure(self, int stream, const uint32_t* lpas, uint32_t n,
                         int64_t* known) except? 0xFFFFFFFF nogil:
        """Before ``n`` pages are programmed: open a block of the stream, prepare the mapping, and make room for reports
        in validity, repeated where one of them may clean and undo another. Returns for how many pages that holds, at
        least 1; ``known`` gets the virtual time, in ns, at which the mapping knows each."""
        cdef uint32_t ready
        self.placement.make_ready(stream)
        ready = self.mapping.prepare(lpas, n, True, known)
        if self.mapping.demand:
            self.placement.make_ready(stream)  # ``prepare`` may have used the open block
        if self.validity.in_flash:
            ready = self.room_for(ready, REPORTS_OF_A_WRITE, stream)
        return ready

    cdef uint32_t secure_trim(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil:
        """The same before ``n`` LPAs are unbound, which programs nothing: returns for how many from ``lpa`` on the
        mapping is prepared and validity has room."""
        while True:
            if self.validity.in_flash:
                n = self.room_for(n, REPORTS_OF_A_TRIM, STREAM_META)
            n = self.mapping.prepare_unbind(lpa, n)
            if self.validity.room() >= REPORTS_OF_A_TRIM * n:
                return n

    cdef uint32_t room_for(self, uint32_t n, uint32_t reports, int stream) except? 0xFFFFFFFF nogil:
        """How many of ``n`` pages can be bound or trimmed with the validity store's room, at ``reports`` reports per
        page. Making room may clean, and cleaning uses room, so repeat until there is enough."""
        cdef uint32_t room = self.validity.room()
        while room < n * reports:
            room = self.validity.prepare(n * reports, True)
            if stream != STREAM_META:
                self.placement.make_ready(stream)
            if room < n * reports:
                n = max(<uint32_t> 1, room // reports)
            room = self.validity.room()
        return n

    cdef int spare_pending(self, int stream) except -1 nogil:
        """Before a block is opened: sync if too few free blocks are left."""
        # A crash of the host loses every move since the last sync, so blocks that those moves freed are no reserve:
        # recovery, and cleaning after it, must find enough blocks that are free already.
        cdef uint32_t floor = 0 if stream == STREAM_META else self.meta_floor
        if stream == STREAM_HOST:
            floor += self.gc_need
        if self.pool.free_n <= floor and self.pool.pending_n:
            self.sync_for(stream)
        return 0

    cdef int log_trims(self) except -1 nogil:
        """Program the pending trims. A trim may be of the source of a host's move: the NVRAM entry of its target is
        made durable first, because a crash of the host could keep the trim and lose the entry."""
        if self.moved:
            self.moved = False
            self.pad_pairs()
            self.sync_image()
        return self.meta.log_trims()

    cdef int sync_for(self, int stream) except -1 nogil:
        """No free block for this stream: a barrier. If the log itself needs the block, pending trims cannot be logged,
        so blocks that died since the first of them stay pending: they may hold newer data than what would reappear if
        the trim were lost."""
        if stream != STREAM_META:
            return self.barrier()
        self.pad_pairs()
        self.sync_moves()
        self.syncs += 1
        self.pool.release_pending(self.pool.before_trims if self.meta.pending_n else self.pool.pending_n)
        return 0

    cdef int64_t open_this(self, uint32_t block, int stream, int cause) except -2 nogil:
        cdef int64_t opened
        self.spare_pending(stream)
        opened = self.pool.allocate_this(block, stream, cause, self.now_ns)
        if opened >= 0:
            self.tell_opened(<uint32_t> opened)
        return opened

    cdef int64_t open_block(self, int die, int stream, bint worn, int cause) except -1 nogil:
        cdef int64_t block
        self.spare_pending(stream)
        block = self.pool.allocate(die, stream, worn, cause, self.now_ns)
        if block < 0:
            self.sync_for(stream)
            block = self.pool.allocate(die, stream, worn, cause, self.now_ns)
        if block < 0:
            with gil:
                raise self.full("no free block is left")
        self.tell_opened(<uint32_t> block)
        return block

    cdef int tell_opened(self, uint32_t block) except -1 nogil:
        """Report the opened block to validity; if that fails, release the block, because no part uses it."""
        cdef bint told = False
        try:
            self.validity.opened(block)
            told = True
        finally:
            if not told:
                self.pool.release(block, self.now_ns)
        return 0

    cdef uint64_t checkpoint_id(self) noexcept:
        return self.meta.checkpoint_id

    cdef bint fills(self) noexcept:
        return self.meta.fill_least != 0

    cdef int barrier(self) except -1 nogil:
        """Make everything done so far durable; dead blocks may be erased then. Pending trims are logged first: if a
        trim is lost, its LPA must not get an older version than the trimmed one."""
        if self.in_barrier:
            with gil:
                raise RuntimeError("a sync began while another was under way")
        self.in_barrier = True
        try:
            self.log_trims()
            self.pad_pairs()
            self.sync_moves()
            self.syncs += 1
            self.pool.release_pending(self.pool.pending_n)
        finally:
            self.in_barrier = False
        return 0

    cdef int sync_moves(self) except -1 nogil:
        """A sync after which moved blocks may be erased. At a sync the chip notes in its block table how far each block
        is whole, and the note is durable with the next sync. If a recovery accepts metadata pages only with that note,
        a copy without it would be lost: so the original waits for a second sync."""
        self.sync_image()
        if self.mover.moved_metadata:
            self.mover.moved_metadata = False
            if self.checkpointer.trusts_notes:
                self.sync_image()
        return 0

    cdef int pad_pairs(self) except -1 nogil:
        """Before a sync, with paired pages: fill every group that was begun. Otherwise a page made durable could be the
        lower page of one programmed later, and a power cut during that program would destroy both."""
        cdef uint32_t group = 2 * self.nand.paired_pages, block, over
        if group == 0:
            return 0
        for block in range(self.pool.blocks):
            over = self.pool.next_page[block] % group
            if over and (self.pool.state[block] == STATE_OPEN or block == self.meta.block):
                self.pad(block, group - over)
        return 0

    cdef int pad_blocks(self) except -1 nogil:
        """Fill up the host's open blocks, for a scheme that leaves none half filled."""
        cdef uint32_t block
        for block in range(self.pool.blocks):
            if (self.pool.state[block] == STATE_OPEN and self.pool.stream[block] == STREAM_HOST
                    and self.pool.next_page[block]):
                self.pad(block, self.pages_per_block - self.pool.next_page[block])
        return 0

    cdef int pad(self, uint32_t block, uint32_t n) except -1 nogil:
        cdef Oob oob
        cdef uint32_t _, ok
        if not self.pool.takes_more(block, CAUSE_PAD, self.now_ns):
            n = 0
        oob.seq = self.seq
        oob.order = self.pool.order[block]
        oob.lpa = NONE
        oob.kind = KIND_PAD
        oob.flags = 0
        oob.stream = self.pool.stream[block]
        memset(self.oobs, 0xFF, self.oob_bytes)
        for _ in range(n):
            oob.number = number_for(self.pool, self.pool.next_page[block])
            oob_pack(self.oobs, &oob)
            self.nand.program(block, self.pool.next_page[block], 1, NULL, self.oobs, CAUSE_PAD, self.now_ns, &ok)
            if not ok:
                self.pool.retire(block)
                break
            self.pool.advance(block, 1)
        if self.pool.next_page[block] == self.pages_per_block and block != self.meta.block:
            self.placement.failed(block)
        return 0

    cdef uint64_t seq_before(self, uint32_t lpa) noexcept nogil:
        cdef uint32_t slot = self.buffer.find(lpa) if self.buffer.held else NONE
        if slot != NONE:
            return self.buffer.seq_of[slot] - 1
        return self.seqs[0] - 1 if self.in_flight else self.seq  # later numbers went to pages of other kinds

    # --- cleaning

    cdef int make_room(self) except -1 nogil:
        cdef uint32_t tries = 0, group = 2 * self.nand.paired_pages
        while (self.pool.free_n + self.pool.pending_n <= self.meta_floor + self.gc_reserve
               or (group and tries and tries < 2 * group and self.cleans_on(group))):
            self.cleaning.clean()
            tries += 1
            if tries % GAINLESS == 0:       # pages that are only kept, or not yet known to be dead, may use up the gain
                self.mapping.release_superseded()
            if tries > 4 * self.pool.blocks + 64 + group * self.pages_per_block:
                with gil:
                    raise self.full("cleaning gains nothing")
        return 0

    cdef bint cleans_on(self, uint32_t group) noexcept nogil:
        """With paired pages, the next sync pads the group that cleaning has begun: up to three pages per victim if each
        had its own sync, which may be more than the gain. Whether to put another victim's pages there first: there are
        free blocks, and a victim with a dead page."""
        cdef uint32_t block, victim
        if self.pool.free_n <= self.meta_floor + 1:
            return False
        victim = self.victims.fewest()
        if victim == NONE or self.victims.valid[victim] >= self.pages_per_block:
            return False
        for block in range(self.pool.blocks):
            if (self.pool.state[block] == STATE_OPEN and self.pool.stream[block] == STREAM_GC
                    and self.pool.next_page[block] % group):
                return True
        return False

    cdef bint affords_more(self) except -1 nogil:
        """A crash closes half-filled blocks. One of them is made up for by its victim, or is dead. If more than one
        came from the blocks of the next checkpoint, each crash would leave fewer, until recovery is impossible."""
        if self.pool.free_n <= self.meta_floor + 1 and self.pool.pending_n:
            self.barrier()
        return self.pool.free_n > self.meta_floor + 1

    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil:
        return self.mover.relocate(block, stream, cause)

    cdef int relocate_blocks(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except -1 nogil:
        return self.mover.relocate_blocks(blocks, n, stream, cause)

    cdef int relocate_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil:
        return self.mover.relocate_pages(ppas, n, stream, cause)

    # --- chores: between requests, never inside one

    cdef int chores(self) except -1 nogil:
        if self.mount_due:
            self.leave_clean()
        if self.pool.retiring_n:
            self.empty_retiring()
        self.wear.level()
        self.map_ns = self.now_ns
        self.mapping.housekeep()
        if self.budget and self.host_write >= self.refit_at:
            with gil:
                self.fit_cache()
        if (self.checkpoint_due or self.since_checkpoint >= self.checkpoint_every
                or self.since_checkpoint - self.since_checkpoint_tables >= self.checkpointer.every
                or self.meta.room() < max(<uint32_t> 2, 2 * self.nand.paired_pages)):
            with gil:
                self.checkpoint()
        return 0

    cdef int will_change(self) except -1 nogil:
        if self.stopped or self.frozen:
            self.refuse()
        if self.mount_due:
            self.leave_clean()
        return 0

    cdef int leave_clean(self) except -1 nogil:
        """Before the first change after a clean mount: make the mount mark durable."""
        with gil:
            self.meta.mark_mounted()
        self.pad_pairs()
        self.sync_image()
        self.mount_due = False  # only now: if the mark failed, the next change must try again
        return 0

    cdef int empty_retiring(self) except -1 nogil:
        """Move live pages out of blocks in which a program failed; the next sync marks the blocks bad."""
        cdef uint32_t block
        for block in range(self.pool.blocks):
            if self.pool.retiring[block] and self.pool.state[block] == STATE_CLOSED:
                self.cleaning.evacuate(block, CAUSE_RETIRE)
        return 0

    def checkpoint(self, bint clean=False):
        """Write a checkpoint: everything that a mount needs. The log before it is dead afterwards."""
        if self.stopped:
            self.refuse()
        if self.mount_due:
            self.leave_clean()
        self.drain()
        self.checkpointer.begins(clean)
        if (self.checkpointer.needs_room or (self.validity.in_flash and not self.affords_more())
                or self.pool.free_n + self.pool.pending_n <= self.meta.checkpoint_blocks):
            self.room_for_checkpoint()
        try:
            self.mapping.checkpoint_begins()
            self.validity.checkpoint_begins()
            self.log_trims()
            self.pad_pairs()
            self.sync_image()  # a checkpoint may only name what survives a crash of the host
            self.require_agreement()
            old = self.meta.write(self.sections(clean), self.seq, self.mounts, clean)
            self.sync_image()
        except BaseException:
            before = self.stopped
            self.stopped = before or IN_CHECKPOINT
            self.mapping.checkpoint_ended(False)
            self.validity.checkpoint_ended(False)
            self.stopped = before
            raise
        self.stopped = IN_CHECKPOINT
        self.mapping.checkpoint_ended(True)
        self.validity.checkpoint_ended(True)
        self.meta.point_boot()
        if clean or self.hint_may_be_clean:
            self.sync_image()  # before a clean checkpoint's block is erased: a cut may take its mount mark first
        self.hint_may_be_clean = self.mount_due = clean
        for block in self.checkpointer.to_release(old, clean):
            self.pool.release(block, self.now_ns)
            self.nand.punch(block)
        self.pool.release_pending(self.pool.pending_n)
        self.checkpointer.ends()
        self.since_checkpoint = self.since_checkpoint_tables = 0
        self.mover.groups = 0
        self.checkpoint_due = False
        self.dirty = False
        self.stopped = GOING

    cdef int room_for_checkpoint(self) except -1:
        """Make room for pages that validity programs, for a fence, and for the checkpoint: recoveries and workloads of
        trims alone clean nowhere else, and the log grows. If no page is dead, the free blocks must suffice: the
        checkpoint releases the log before it."""
        try:
            self.make_room()
        except DeviceFullError:
            pass

    def sections(self, clean):
        """The sections of a checkpoint; a clean one also has those that save its mount work, as far as there is
        room."""
        needed = self.checkpointer.sections(clean)
        return {**needed, **(self.meta.fitting(needed, self.mapping.save_clean()) if clean else {})}

    def log_overgrown(self):
        """Whether the kept log before the last checkpoint is too large. A recovery uses all of it again, plus what it
        wrote itself: if it were only kept, each crash would add a block until there is no room left. Another checkpoint
        begins at a later fence and releases it."""
        return len(self.checkpointer.kept()) > self.meta_floor

    cdef int require_agreement(self) except -1:
        """The cheap checks of a mount, before a checkpoint is written: live pages are only in open and closed blocks,
        and as many as the mapping names. An inconsistent device stops here, and the last checkpoint stays in force: no
        recovery could repair a newer one."""
        cdef uint32_t block, n
        cdef uint64_t live = 0
        cdef int64_t named = self.mapping.pages_named()
        why = None
        for block in range(self.pool.blocks):
            n = self.validity.count(block)
            live += n
            if (n and self.pool.state[block] != STATE_OPEN and self.pool.state[block] != STATE_CLOSED
                    and self.pool.state[block] != STATE_BAD):  # marked bad outside this device: still readable
                why = f"block {block} has {n} live pages and is {self.pool.describe(block)['state']}"
        if named >= 0:
            named += self.validity.pages_named()
        if named >= 0 and (live < <uint64_t> named if self.validity.late else live != <uint64_t> named):
            own = self.validity.pages_named()
            why = f"{live} pages are live, and the map names {named - own}" + (f", validity {own}" if own else "")
        if why is not None:
            self.fail(f"no checkpoint was written, because the device does not agree with itself: {why}")
            raise DeviceFailedError(self.failed)
        return 0

    def unchanged_since_clean(self):
        """Whether nothing has changed since the clean checkpoint that the device was mounted from."""
        return self.mount_due

    # --- called by recovery

    def resume(self, uint64_t seq, uint64_t mounts, bint clean, uint64_t since_checkpoint=0, at=None):
        """Make the device ready: set the counters as found and whether a ``clean`` checkpoint is in force; ``at`` tells
        the checkpointer where the recovery's scan began."""
        self.seq = seq
        self.mounts = mounts + 1
        self.mount_due = clean
        self.hint_may_be_clean = True
        self.since_checkpoint = since_checkpoint
        self.since_checkpoint_tables = 0
        self.checkpointer.device_ready(clean, at)
        self.validity.device_ready()
        self.mapping.device_ready()
        self.ready = True

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
