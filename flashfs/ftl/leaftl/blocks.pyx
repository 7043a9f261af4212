"""The groups of LeaFTL's table as blocks of memory: allocation, sizes, loading and saving as bytes.

Each group is one packed block (group.pyx has its format), or none if nothing of it is mapped. A directory of 4 bytes a
group has the blocks' handles; the blocks lie in slabs (slabs.pyx). So a group of one segment, the least that sequential
writes need, takes 12 bytes and its 4 in the directory.

Modelled bytes: 8 a segment, the CRBs with their nulls, 1 a level and 3 a group that has a block, 4 a group in the
directory, 1 more if groups are compacted by their debts. The paper counts the first two.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from flashfs.ftl.leaftl.group cimport (
    BLOCK_MOST, CROWDED, GROUP, HEAD, HOLE, LEVELS_MOST, SEGMENT_BYTES, SEGMENTS_MOST, Bits, Scratch, Segment, View,
    block_bytes, compact, compact_plain, crb_bytes, fault_of, members_of, pack_block, unpack_block, view,
)
from flashfs.ftl.leaftl.regression cimport APPROXIMATE, half_value
from flashfs.ftl.leaftl.slabs cimport Slabs, block_at


cdef class GroupBlocks:
    """The groups of ``lpas`` pages; nothing is mapped."""

    def __cinit__(self, uint32_t lpas, *_, **__):
        self.lpas = lpas
        self.groups = (lpas + GROUP - 1) // GROUP
        self.slabs = Slabs(BLOCK_MOST)
        self.directory = <uint32_t*> calloc(max(1, self.groups), 4)
        self.debts = <uint8_t*> calloc(max(1, self.groups), 1)
        self.scratch = <Scratch*> malloc(sizeof(Scratch))
        if not (self.directory and self.debts and self.scratch):
            raise MemoryError

    def __dealloc__(self):
        free(self.directory)
        free(self.debts)
        free(self.scratch)

    cdef uint8_t* block_of(self, uint32_t group) noexcept nogil:
        """The group's block; NULL if nothing of the group is mapped, or it is ABSENT."""
        cdef uint32_t handle = self.directory[group]
        return block_at(self.slabs, handle) if handle != 0 and handle != ABSENT else NULL

    cdef int tally(self, const uint8_t* block, int64_t sign) noexcept nogil:
        cdef uint32_t bytes = crb_bytes(block)
        self.segments += sign * ((block_bytes(block) - HEAD - block[0] - bytes) // SEGMENT_BYTES)
        self.crb_bytes += sign * bytes
        self.levels += sign * block[0]
        self.mapped_groups += sign
        return 0

    cdef int drop_group(self, uint32_t group) noexcept nogil:
        """Free the group's block: nothing of the group is mapped, or it leaves memory."""
        cdef uint8_t* block = self.block_of(group)
        if block != NULL:
            self.tally(block, -1)
            self.slabs.give(self.directory[group], block_bytes(block))
            self.directory[group] = 0
        return 0

    cdef uint8_t* resized(self, uint32_t group, uint32_t bytes) except NULL nogil:
        """A block of ``bytes`` for the group, with the old content as far as both sizes reach. The caller has taken the
        old block out of the tally, and fills in the new one at once."""
        cdef uint32_t old = self.directory[group], old_bytes = 0, new
        if old:
            old_bytes = block_bytes(block_at(self.slabs, old))
            if self.slabs.same_slot(old_bytes, bytes):
                self.slabs.resize(old_bytes, bytes)
                return block_at(self.slabs, old)
        new = self.slabs.take(bytes)
        if new == 0:
            with gil:
                raise MemoryError
        if old:
            memcpy(block_at(self.slabs, new), block_at(self.slabs, old), min(old_bytes, bytes))
            self.slabs.give(old, old_bytes)
        self.directory[group] = new
        return block_at(self.slabs, new)

    cdef int unpack(self, uint32_t group) noexcept nogil:
        cdef uint8_t* block = self.block_of(group)
        if block == NULL:
            self.scratch.levels = self.scratch.n = self.scratch.approximate = 0
        else:
            unpack_block(block, self.scratch)
        return 0

    cdef int pack(self, uint32_t group) except -1 nogil:
        """Pack the scratch into the group's block; a group that grew too large is compacted."""
        cdef uint8_t[BLOCK_MOST] packed, compacted
        cdef View parts
        cdef uint32_t bytes
        if self.scratch.n == 0:
            return self.drop_group(group)
        if self.scratch.n > SEGMENTS_MOST or self.scratch.levels > LEVELS_MOST:
            compact(self.scratch)
            self.crowded += 1
        bytes = pack_block(self.scratch, packed)
        if bytes > CROWDED and self.scratch.levels > 1:
            self.crowded += 1
            view(packed, &parts)
            bytes = compact_plain(&parts, compacted)
            if bytes:
                return self.put(group, compacted, bytes)
            compact(self.scratch)
            bytes = pack_block(self.scratch, packed)
        return self.put(group, packed, bytes)

    cdef int put(self, uint32_t group, const uint8_t* packed, uint32_t bytes) except -1 nogil:
        """Copy a sound block into the group."""
        cdef uint8_t* block
        if self.directory[group]:
            self.tally(self.block_of(group), -1)
        try:
            block = self.resized(group, bytes)
            memcpy(block, packed, bytes)
        finally:
            if self.directory[group]:
                self.tally(self.block_of(group), 1)  # the new one, or the old one if there was no memory
        return 0

    cdef int spread(self) except -1 nogil:
        """Move the blocks out of sparse slabs."""
        cdef uint32_t group, old, new, bytes
        if self.slabs.evacuate_sparse() == 0:
            return self.slabs.evacuated()
        for group in range(self.groups):
            old = self.directory[group]
            if old and old != ABSENT and self.slabs.sparse(old):
                bytes = block_bytes(block_at(self.slabs, old))
                new = self.slabs.take(bytes)
                if new == 0:
                    with gil:
                        raise MemoryError
                memcpy(block_at(self.slabs, new), block_at(self.slabs, old), bytes)
                self.slabs.give(old, bytes)
                self.directory[group] = new
        return self.slabs.evacuated()

    # --- in and out

    cdef uint32_t group_bytes(self, uint32_t group) noexcept nogil:
        """Bytes that ``save_group`` writes; 0 if the group has no block."""
        cdef const uint8_t* block = self.block_of(group)
        return block_bytes(block) if block != NULL else 0

    cdef uint32_t save_group(self, uint32_t group, uint8_t* out) noexcept nogil:
        """Copy the group's block to ``out``; returns its bytes."""
        cdef uint32_t bytes = self.group_bytes(group)
        if bytes:
            memcpy(out, self.block_of(group), bytes)
        return bytes

    cdef const char* load_group(self, uint32_t group, const uint8_t* block, uint32_t n) except? NULL nogil:
        """Replace the group by a block of ``n`` bytes, which is checked. Returns NULL, or what is wrong with it."""
        cdef const char* fault
        cdef uint8_t* own
        if n == 0:
            self.drop_group(group)
            return NULL
        fault = fault_of(block, n)
        if fault != NULL:
            return fault
        self.drop_group(group)
        own = self.resized(group, n)
        memcpy(own, block, n)
        self.tally(own, 1)
        self.debts[group] = max(<uint8_t> 1, self.debts[group])  # how much of it is superseded is unknown
        return NULL

    # --- for Python

    def save(self, group):
        """The group's block as bytes, empty if the group has no block."""
        cdef uint8_t[BLOCK_MOST] block
        cdef uint32_t n = self.save_group(self.known_group(group), block)
        return (<char*> block)[:n]

    def load(self, group, const uint8_t[::1] block not None):
        """Replace the group by that block; ValueError if it is no sound block."""
        cdef const uint8_t* raw = &block[0] if block.shape[0] else NULL
        cdef uint32_t which = self.known_group(group)
        cdef const char* fault
        if block.shape[0] > BLOCK_MOST:
            raise ValueError(f"group {group}: {block.shape[0]} bytes, none has more than {BLOCK_MOST}")
        fault = self.load_group(which, raw, <uint32_t> block.shape[0])
        if fault != NULL:
            raise ValueError(f"group {group}: {(<bytes> fault).decode()}")

    def drop(self, group):
        """Drop the group: nothing of it is mapped."""
        self.drop_group(self.known_group(group))

    def dump(self, group):
        """A group as plain data: {"levels": [[segment, ...], ...], "crb": [[LPA, ...], ...], "bytes": n}, from the top
        level down. A segment is {"kind", "start", "end", "slope", "intercept", "lpas"}; LPAs are offsets in the
        group."""
        cdef uint8_t* block = self.block_of(self.known_group(group))
        cdef View parts
        cdef uint32_t i, at = 0
        if block == NULL:
            return {"levels": [], "crb": [], "bytes": 0}
        self.unpack(group)
        levels = []
        for i in range(self.scratch.levels):
            levels.append([self.shown(j) for j in range(at, at + self.scratch.counts[i])])
            at += self.scratch.counts[i]
        runs = []
        view(block, &parts)
        for i, x in enumerate((<char*> parts.crb)[:parts.crb_n]):
            if i == 0 or x == 0:
                runs.append([])
            if i == 0 or x != 0:
                runs[len(runs) - 1].append(x)
        return {"levels": levels, "crb": runs, "bytes": block_bytes(block)}

    def shown(self, uint32_t i):
        """Segment ``i`` of the group in the scratch, for ``dump``."""
        cdef Segment* segment = &self.scratch.segments[i]
        cdef Bits members
        members_of(segment, &self.scratch.members[i], &members)
        kind = "approximate" if segment.slope & APPROXIMATE else "accurate"
        return {
            "kind": "hole" if segment.slope & HOLE else kind,
            "start": segment.start,
            "end": segment.start + segment.length,
            "slope": half_value(segment.slope),
            "intercept": segment.intercept,
            "lpas": [x for x in range(GROUP) if members.word[x >> 6] >> (x & 63) & 1],
        }

    cdef uint64_t modelled_bytes(self) noexcept nogil:
        """Bytes that a controller that packs as tightly would need: see the top of this file."""
        return (self.segments * SEGMENT_BYTES + self.crb_bytes + self.levels + self.mapped_groups * HEAD
                + <uint64_t> self.groups * (5 if self.grown else 4))

    def sizes(self):
        """Bytes: ``segments`` (8 each), ``crb``, ``levels``, ``heads``, ``directory``, ``debts`` and their sum,
        ``modelled``; ``paper``, the first two; ``allocated``, the memory that the table takes in this process;
        ``from_kernel``, the part of it that is not from malloc."""
        return {
            "segments": self.segments * SEGMENT_BYTES,
            "crb": self.crb_bytes,
            "levels": self.levels,
            "heads": self.mapped_groups * HEAD,
            "directory": self.groups * 4,
            "debts": self.groups if self.grown else 0,
            "modelled": self.modelled_bytes(),
            "paper": self.segments * SEGMENT_BYTES + self.crb_bytes,
            "from_kernel": self.slabs.from_kernel(),
            "allocated": self.slabs.allocated() + self.groups * 5 + sizeof(Scratch),
        }

    def check(self):
        """Each block is sound (see ``group.fault_of``) and lies correctly in its slab; no segment reaches beyond the
        last LPA; the totals are right."""
        problems = self.slabs.check()
        segments = levels = crb = groups = taken = 0
        for group in range(self.groups):
            block = self.save(group)
            if not block:
                continue
            fault = self.fault(block)
            if fault:
                problems.append(f"group {group}: {fault}")
                continue
            groups += 1
            taken += len(block)
            levels += block[0]
            crb += block[1] | block[2] << 8
            segments += (len(block) - HEAD - block[0] - (block[1] | block[2] << 8)) // SEGMENT_BYTES
            if group == self.groups - 1:
                ends = [piece["end"] for level in self.dump(group)["levels"] for piece in level]
                if group * GROUP + max(ends) >= self.lpas:
                    problems.append(f"group {group}: a segment ends at offset {max(ends)}, beyond the last LPA")
        counted = (self.segments, self.levels, self.crb_bytes, self.mapped_groups, self.slabs.taken_bytes)
        if counted != (segments, levels, crb, groups, taken):
            problems.append(f"segments, levels, CRB bytes, groups, bytes counted {counted}, "
                            f"there are {(segments, levels, crb, groups, taken)}")
        return problems

    @staticmethod
    def fault(const uint8_t[::1] block not None):
        """What is wrong with a block of a group, or None."""
        cdef const char* fault = fault_of(&block[0], <uint32_t> block.shape[0]) if block.shape[0] else NULL
        return None if fault == NULL else (<bytes> fault).decode()

    cdef uint32_t known(self, lpa) except? 0xFFFFFFFF:
        if not 0 <= lpa < self.lpas:
            raise IndexError(f"LPA {lpa}: use 0 to {self.lpas - 1}")
        return lpa

    cdef uint32_t known_group(self, group) except? 0xFFFFFFFF:
        if not 0 <= group < self.groups:
            raise IndexError(f"group {group}: use 0 to {self.groups - 1}")
        return group
