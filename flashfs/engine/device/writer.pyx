# distutils: language = c++
"""Writing to flash: pages are programmed where placement says, and bound; the write buffer is emptied.

Order of a write: room is made for all that it may need, the page is programmed, then bound, then its old place dies."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from flashfs.engine.contract.engine cimport IN_BIND
from flashfs.engine.contract.extent cimport RUN, Extent
from flashfs.engine.device.durable cimport Durable
from flashfs.engine.blocks.pool cimport (
    CAUSE_HOST,
    KIND_USER,
    NONE,
    OOB_ENGINE,
    STREAM_HOST,
    STREAM_META,
    Oob,
    number_for,
    oob_pack,
)

cdef enum:
    REPORTS_OF_A_WRITE = 3   # the most reports to validity per page
    REPORTS_OF_A_TRIM = 2


cdef class Writer(Durable):
    """The device as far as it programs pages of the host."""

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
        if self.mapping.lent:
            self.take_back()
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

    cdef uint64_t seq_before(self, uint32_t lpa) noexcept nogil:
        cdef uint32_t slot = self.buffer.find(lpa) if self.buffer.held else NONE
        if slot != NONE:
            return self.buffer.seq_of[slot] - 1
        return self.seqs[0] - 1 if self.in_flight else self.seq  # later numbers went to pages of other kinds
