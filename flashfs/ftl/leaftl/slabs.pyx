"""Small blocks of memory under 32-bit handles: for tables of millions of blocks of a dozen bytes and more.

The C library's smallest block takes 32 bytes and a pointer to it 8; a learned mapping's block often has 12. Here blocks
of one size class share slabs of 4 KiB (large ones, spans of four). Classes are 4 bytes apart up to 52 and a twelfth
above. A handle takes 4 bytes and addresses up to 16 GiB. The slabs are one mapping that grows in place or moves as a
whole (the kernel moves page tables, not data). A slab that becomes empty serves any class next (of its span); beyond a
few such slabs, their memory goes back to the kernel.

Churn leaves slabs half empty. When ``wasteful`` says that an eighth is wasted, ``evacuate_sparse`` marks such slabs,
and the owner of the handles moves their blocks: handles are in one place, so blocks may move.
"""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

cdef extern from "<sys/mman.h>" nogil:
    void* mremap(void* old, size_t old_bytes, size_t new_bytes, int flags, ...)
    int madvise(void* start, size_t bytes, int advice)
    enum:
        MREMAP_MAYMOVE
        MADV_DONTNEED

cdef enum:
    EVACUATED = 0x80             # flag in ``kind``: being emptied, in no list
    CONTINUED = 0x70
    SMALL_UNITS = 32             # largest slot in a single slab
    IDLE_KEPT = 4                # most idle slabs with memory, and as many spans
    SLABS_FIRST = 64
    SLABS_MOST = 4194304
    TABLE_BYTES = 15             # per slab, beside it: kind, used, fresh, hole, after, before


cdef class Slabs:
    """Blocks of up to ``largest`` bytes. Slab 0 is never used, so that no block has the handle 0."""

    def __cinit__(self, uint32_t largest):
        cdef uint32_t units = 1, size
        if not 1 <= largest <= SLAB_BYTES:
            raise ValueError(f"blocks of {largest} bytes: use 1 to {SLAB_BYTES}")
        self.largest = largest
        self.class_of = <uint8_t*> calloc(largest // UNIT + 2, 1)
        self.base = <uint8_t*> mmap(NULL, SLABS_FIRST * SLAB_BYTES, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if self.class_of == NULL or self.base == <uint8_t*> MAP_FAILED:
            self.base = NULL
            raise MemoryError
        size = 1
        while size * UNIT < largest + UNIT:
            while size <= units and size * UNIT < largest + UNIT:
                self.class_of[size] = <uint8_t> self.classes
                size += 1
            self.slot_units[self.classes] = <uint16_t> units
            self.slots[self.classes] = <uint16_t> ((SLAB_UNITS if units <= SMALL_UNITS else SPAN * SLAB_UNITS) // units)
            self.classes += 1
            units += max(1, units // 12)
            if units > SMALL_UNITS:  # few in a span: no tail is left over
                units = SPAN * SLAB_UNITS // (SPAN * SLAB_UNITS // units)
        self.made = 1
        if not self.tables(SLABS_FIRST):
            raise MemoryError

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, <size_t> self.room * SLAB_BYTES if self.room else SLABS_FIRST * SLAB_BYTES)
        free(self.class_of)
        free(self.kind)
        free(self.used)
        free(self.fresh)
        free(self.hole)
        free(self.after)
        free(self.before)

    cdef bint tables(self, uint32_t room) noexcept nogil:
        """Make room for that many slabs in the tables beside them; returns whether there was memory."""
        cdef void* new
        new = realloc(self.kind, room)
        if new == NULL:
            return False
        self.kind = <uint8_t*> new
        new = realloc(self.used, room * 2)
        if new == NULL:
            return False
        self.used = <uint16_t*> new
        new = realloc(self.fresh, room * 2)
        if new == NULL:
            return False
        self.fresh = <uint16_t*> new
        new = realloc(self.hole, room * 2)
        if new == NULL:
            return False
        self.hole = <uint16_t*> new
        new = realloc(self.after, room * 4)
        if new == NULL:
            return False
        self.after = <uint32_t*> new
        new = realloc(self.before, room * 4)
        if new == NULL:
            return False
        self.before = <uint32_t*> new
        memset(self.kind + self.room, 0, room - self.room)
        self.room = room
        return True

    cdef bint grow(self) noexcept nogil:
        """Make room for half as many slabs again; returns whether there was memory."""
        cdef uint32_t room = min(<uint32_t> SLABS_MOST, self.room + self.room // 2), old = self.room
        cdef void* base
        if room == self.room:
            return False
        base = mremap(self.base, <size_t> old * SLAB_BYTES, <size_t> room * SLAB_BYTES, MREMAP_MAYMOVE)
        if base == MAP_FAILED:
            return False
        self.base = <uint8_t*> base
        if self.tables(room):
            return True
        mremap(self.base, <size_t> room * SLAB_BYTES, <size_t> old * SLAB_BYTES, 0)
        return False

    # --- slabs

    cdef void link(self, uint32_t slab, uint32_t which) noexcept nogil:
        """Put a slab at the head of its class's list of slabs with a free slot."""
        self.after[slab] = self.partial[which]
        self.before[slab] = 0
        if self.partial[which]:
            self.before[self.partial[which]] = slab
        self.partial[which] = slab

    cdef void unlink(self, uint32_t slab, uint32_t which) noexcept nogil:
        if self.before[slab]:
            self.after[self.before[slab]] = self.after[slab]
        else:
            self.partial[which] = self.after[slab]
        if self.after[slab]:
            self.before[self.after[slab]] = self.before[slab]

    cdef uint32_t open_slab(self, uint32_t which) noexcept nogil:
        """Open an empty slab for that class, and link it; 0 if there is no memory."""
        cdef bint large = self.slot_units[which] > SMALL_UNITS
        cdef uint32_t slab = self.idle[large], i, n = SPAN if large else 1
        if slab:
            self.idle[large] = self.after[slab]
            self.idle_n[large] -= 1
            self.returned_n[large] -= self.returned_n[large] > 0  # the newest are on top: those whose memory went back
        else:
            if self.made + n > self.room and not self.grow():
                return 0
            slab = self.made
            self.made += n
            for i in range(1, n):
                self.kind[slab + i] = <uint8_t> (CONTINUED + i)
        self.kind[slab] = <uint8_t> (which + 1)
        self.used[slab] = 0
        self.hole[slab] = 0
        self.fresh[slab] = self.slots[which]
        self.link(slab, which)
        return slab

    cdef void close_slab(self, uint32_t slab, uint32_t which) noexcept nogil:
        """Free a slab whose last block was given back."""
        cdef bint large = self.slot_units[which] > SMALL_UNITS
        if not self.kind[slab] & EVACUATED:
            self.unlink(slab, which)
        self.kind[slab] = 0
        self.after[slab] = self.idle[large]
        self.idle[large] = slab
        self.idle_n[large] += 1
        if self.idle_n[large] - self.returned_n[large] > IDLE_KEPT:
            # the kept ones are lower in the list and keep their memory; the kernel zero-fills this one when it is used
            madvise(self.base + <uint64_t> slab * SLAB_BYTES, (SPAN if large else 1) * SLAB_BYTES, MADV_DONTNEED)
            self.returned_n[large] += 1

    # --- blocks

    cdef uint32_t take(self, uint32_t bytes) noexcept nogil:
        """A block of ``bytes``, 1 to ``largest``: its handle, or 0 if there is no memory."""
        cdef uint32_t which = self.class_of[(bytes + UNIT - 1) // UNIT], units = self.slot_units[which], unit
        cdef uint32_t slab = self.partial[which]
        cdef uint8_t* slot
        if slab == 0:
            slab = self.open_slab(which)
            if slab == 0:
                return 0
        if self.hole[slab]:
            unit = self.hole[slab] - 1
            slot = self.base + <uint64_t> slab * SLAB_BYTES + unit * UNIT
            memcpy(&self.hole[slab], slot, 2)
        else:
            self.fresh[slab] -= 1
            unit = self.fresh[slab] * units
        self.used[slab] += 1
        if self.hole[slab] == 0 and self.fresh[slab] == 0:
            self.unlink(slab, which)
        self.taken_bytes += bytes
        return slab * SLAB_UNITS + unit

    cdef int give(self, uint32_t handle, uint32_t bytes) noexcept nogil:
        """Take back a block that was taken with that many bytes."""
        cdef uint32_t which = self.class_of[(bytes + UNIT - 1) // UNIT], slab = self.slab_of(handle)
        cdef uint32_t unit = handle - slab * SLAB_UNITS
        self.taken_bytes -= bytes
        self.used[slab] -= 1
        if not self.kind[slab] & EVACUATED and self.hole[slab] == 0 and self.fresh[slab] == 0:
            self.link(slab, which)
        memcpy(self.base + <uint64_t> handle * UNIT, &self.hole[slab], 2)
        self.hole[slab] = <uint16_t> (unit + 1)
        if self.used[slab] == 0:
            self.close_slab(slab, which)
        return 0

    cdef bint same_slot(self, uint32_t bytes, uint32_t other) noexcept nogil:
        """Whether blocks of both sizes are of one class."""
        return self.class_of[(bytes + UNIT - 1) // UNIT] == self.class_of[(other + UNIT - 1) // UNIT]

    cdef int resize(self, uint32_t bytes, uint32_t other) noexcept nogil:
        """Account a block of ``bytes`` as one of ``other``, in its place: both are of one class."""
        self.taken_bytes = self.taken_bytes - bytes + other
        return 0

    cdef uint32_t evacuate_sparse(self) noexcept nogil:
        """Close slabs that are less than 15 sixteenths full to new blocks; returns how many. The caller must then move
        their blocks: those whose handle ``sparse`` is true for."""
        cdef uint32_t slab, which, marked = 0
        for slab in range(1, self.made):
            if self.kind[slab] == 0 or self.kind[slab] >= CONTINUED:  # EVACUATED is larger
                continue
            which = self.kind[slab] - 1
            if self.partial[which] == slab and self.after[slab] == 0:
                continue  # the only one with room
            if self.used[slab] * 16 < self.slots[which] * 15:
                self.unlink(slab, which)  # it has free slots, so it was in the list
                self.kind[slab] |= EVACUATED
                marked += 1
        return marked

    cdef uint64_t wasted(self) noexcept nogil:
        """Bytes of slabs in use that are in no block."""
        return self.slabs_in_use() * SLAB_BYTES - self.taken_bytes

    cdef uint64_t slabs_in_use(self) noexcept nogil:
        return self.made - 1 - self.idle_n[0] - SPAN * self.idle_n[1]

    cdef uint32_t slab_of(self, uint32_t handle) noexcept nogil:
        """The slab, or the first of the span, that a block is in."""
        cdef uint32_t slab = handle // SLAB_UNITS
        return slab - (self.kind[slab] & 15) if self.kind[slab] & 0xF0 == CONTINUED else slab

    cdef bint wasteful(self) noexcept nogil:
        """Whether evacuating is worth it: an eighth is wasted, and much more than the last evacuation left."""
        cdef uint64_t wasted = self.wasted()
        return (wasted > self.taken_bytes // 8 + 8 * SLAB_BYTES
                and wasted > self.left_wasted + self.taken_bytes // 32 + 8 * SLAB_BYTES)

    cdef int evacuated(self) noexcept nogil:
        """The evacuation is done: what is still wasted is no reason for another."""
        self.left_wasted = self.wasted()
        return 0

    cdef bint sparse(self, uint32_t handle) noexcept nogil:
        return self.kind[self.slab_of(handle)] & EVACUATED != 0

    def allocated(self):
        """Bytes of memory in use: slabs, and the tables beside them."""
        return self.from_kernel() + self.room * TABLE_BYTES + self.largest // UNIT + 2

    def from_kernel(self):
        """Bytes of the slabs, without those given back to the kernel; they are not from malloc."""
        return (self.made - 1 - self.returned_n[0] - SPAN * self.returned_n[1]) * SLAB_BYTES

    def check(self):
        """Each slab's used, free and fresh slots add up; a slab is in its class's list exactly if it has room."""
        cdef uint16_t unit
        problems = []
        listed = set()
        for which in range(self.classes):
            slab = self.partial[which]
            before = 0
            while slab:
                if self.before[slab] != before or self.kind[slab] != which + 1:
                    problems.append(f"slab {slab}: not where the list of class {which} has it")
                listed.add(slab)
                before, slab = slab, self.after[slab]
        for slab in range(1, self.made):
            if self.kind[slab] == 0 or self.kind[slab] & 0xF0 == CONTINUED:
                continue
            which = (self.kind[slab] & ~EVACUATED) - 1
            free_n, unit = self.fresh[slab], self.hole[slab]
            while unit and free_n <= SPAN * SLAB_UNITS:
                free_n += 1
                memcpy(&unit, self.base + <uint64_t> slab * SLAB_BYTES + (<uint32_t> unit - 1) * UNIT, 2)
            if free_n + self.used[slab] != self.slots[which]:
                problems.append(f"slab {slab}: {self.used[slab]} slots in use, {free_n} free")
            if (free_n > 0 and not self.kind[slab] & EVACUATED) != (slab in listed):
                problems.append(f"slab {slab}: {free_n} free slots, {'' if slab in listed else 'not '}in its list")
        return problems
