"""The four parts of an FTL as interfaces. The engine's defaults are in flashfs.parts.defaults.defaults.

    part        question it answers                         default
    mapping     where is LPA x?                             PageTable: 4 bytes an LPA
    validity    which pages of block b are live?            PageBitmap: a bit a page, a count a block
    placement   where may these pages be programmed?        Streams: append, open blocks striped over the dies
    cleaning    which block next, how do its pages move?    Greedy: fewest live pages, sorted by LPA

A scheme replaces those that its paper changes. Methods work on runs (arrays), hold no GIL and allocate nothing.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from flashfs.engine.blocks.pool cimport KIND_TRANSLATION, KIND_USER, NONE, Oob

from flashfs.errors import DeviceFullError

cdef extern from *:
    int lowest_bit "__builtin_ctzll"(unsigned long long) nogil

ALARMS_MOST = 50  #: lines kept; a chip that fails altogether would have one a page

#: why a device takes no more changes, by ``Engine.stopped``
UNFINISHED = (
    None,
    "a sync of the image failed, and what it was to write may be lost",
    "pages were programmed, and entering them into the map failed",
    "entering a TRIM into the map failed",
    "pages were moved, and telling the map failed",
    "a table of the map was being changed, and that failed",
    "a checkpoint was written, and taking it up failed",
    "the device failed",
    "pages were being remapped, and that failed",
)


cdef uint32_t list_bits(const uint64_t* words, uint32_t n, uint32_t* out) noexcept nogil:
    """The numbers of the bits that are set, ascending; returns how many."""
    cdef uint32_t w, found = 0
    cdef uint64_t word
    for w in range(n):
        word = words[w]
        while word:
            out[found] = w * 64 + lowest_bit(word)
            word &= word - 1
            found += 1
    return found


cdef class Engine:
    """The device, as far as its parts may lean on it.

    Two structures that have to agree are changed in one go: whatever can fail for a reason that passes (a full disk, a
    block that is to be cleaned first, a record that is to be logged) comes before, and changes neither. Should the
    change itself fail all the same, because memory ran out or flash could not be read, then ``stopped`` still says
    which it was, and no other change begins: nothing more is written, a checkpoint least of all, and the next mount
    recovers from what flash says. Whoever changes sets ``stopped`` before, and puts back after what it found there."""

    def fail(self, why):
        """Something went wrong that further changes could only make worse: refuse them all from now on, saying
        ``why`` (the first reason counts). Nothing is written any more, a checkpoint least of all, so the next mount
        recovers from what flash says."""
        if self.failed is None:
            self.failed = str(why)
        self.stopped = FAILED

    def full(self, what):
        """The error of a device that can take no more: ``what`` was not to be had, and what there is."""
        health = [self.nand.block_health(block) for block in range(self.nand.blocks)]
        live = sum(self.victims.valid[block] for block in range(self.nand.blocks))
        bad = sum(one > 1 for one in health)
        gone = f"; {bad} have gone bad" if bad else ""
        return DeviceFullError(f"{what}: {live:,} pages live in {health.count(0):,} healthy blocks of "
                               f"{self.nand.pages_per_block} pages{gone}")

    def own(self, int kind, Owner owner not None):
        """Pages of that kind are ``owner``'s: cleaning asks it about them and tells it where they went."""
        if self.owners is None:
            self.owners = [None] * KINDS
        self.owners[kind] = owner
        self.owner_at[kind] = <void*> owner

    def owned_pages(self):
        """[(kind, PPA)] of the live pages of every kind but the user's, as their owners know them."""
        return [(kind, ppa) for kind, owner in enumerate(self.owners) if owner is not None and kind != KIND_USER
                for ppa in owner.live_ppas()]

    def keep_free(self, uint32_t blocks):
        """A recovery may have to program so many blocks before its checkpoint: they are kept free like those that the
        checkpoint itself needs. A part asks for them when it is made, before placement is."""
        self.meta_floor += blocks

    def keep_pages(self, uint64_t pages):
        """A part may have so many live pages of its own in flash, in blocks of a stream of its own, one of them open:
        they are not the host's. Asked for as ``keep_free``."""
        self.part_blocks += (pages + self.nand.pages_per_block - 1) // self.nand.pages_per_block + 1

    def translation_ids(self):
        """How many translation pages there may be."""
        return (<Owner> self.owner_at[KIND_TRANSLATION]).ids if self.owner_at[KIND_TRANSLATION] != NULL else 0

    cdef int kind_of(self, uint32_t block) noexcept nogil:
        """What pages a block is for: user pages, unless it is of a stream that another kind's owner has."""
        cdef int kind
        for kind in range(KINDS):
            if (self.owner_at[kind] != NULL
                    and (<Owner> self.owner_at[kind]).stream == self.pool.stream[block]):
                return kind
        return KIND_USER

    cdef int close(self, uint32_t block) noexcept nogil:
        """Placement fills this block no further. It may be cleaned; or, where cleaning keeps away from its stream, be
        erased once nothing in it lives."""
        self.pool.close(block)
        if self.cleaning.cleans(self.pool.stream[block]):
            self.victims.candidate(block)
        else:
            self.victims.candidate_once_dead(block)
        return 0

    cdef int lose(self, int kind, uint32_t ppa) except -1:
        """A page of that kind is gone, and its owner is to manage without."""
        if self.owner_at[kind] != NULL:
            (<Owner> self.owner_at[kind]).page_lost(ppa)
        return 0

    def alarm(self, text):
        """Since the mount somebody found what no power cut can have left: a line for whoever asks."""
        if self.alarms is None:
            self.alarms = []
        if len(self.alarms) < ALARMS_MOST and text not in self.alarms:
            self.alarms.append(text)

    def why_stopped(self):
        """None, or why the device takes no more changes."""
        return self.failed or UNFINISHED[self.stopped]

    cdef uint64_t seq_before(self, uint32_t lpa) noexcept nogil:
        """A sequence number that no version of ``lpa`` in flash exceeds, and each version still to be programmed
        does."""
        return 0

    def freeze(self):
        """The image is opened to be read: nothing may be programmed from now on."""
        self.frozen = True

    cdef int will_change(self) except -1 nogil:
        """Before anything is programmed that no request for a change has announced: a read may do that, where the map
        is in flash. DeviceFailedError if the device takes no changes."""
        with gil:
            raise NotImplementedError

    cdef int64_t open_block(self, int die, int stream, bint worn, int cause) except -1 nogil:
        """A fresh, erased block; forces a sync when only pending ones are left. DeviceFullError if there is none."""
        with gil:
            raise NotImplementedError

    cdef int make_room(self) except -1 nogil:
        """Clean until a block may be opened for the host."""
        with gil:
            raise NotImplementedError

    cdef bint affords_more(self) except -1 nogil:
        """Whether a stream of cleaning may open a block beside one that it has open already."""
        with gil:
            raise NotImplementedError

    # Whoever programs what placement gave does it in one loop: take an extent, fill in its OOBs, ``program``, enter
    # what was programmed into the tables, ``programmed``; until nothing is left. What is entered, and what OOBs say,
    # differs: the host's pages are bound one extent at a time, moved pages all at the end, a translation page by its
    # owner. Two do not go this way: the metadata log, which has its block from nobody's placement and whose pages no
    # checkpoint counts, and padding, which is not tried elsewhere.

    cdef int barrier(self) except -1 nogil:
        """What was programmed and trimmed is durable then."""
        with gil:
            raise NotImplementedError

    cdef int64_t program(self, const Extent* at, const uint8_t* data, const uint8_t* oobs, int cause, int64_t t_ns,
                         uint32_t* ok) except -1 nogil:
        """Program the extent's pages; ``ok[0]`` of them were, and count. Returns when they are there."""
        cdef int64_t end = self.nand.program(at.block, at.page, at.n, data, oobs, cause, t_ns, ok)
        self.pool.advance(at.block, ok[0])
        self.since_checkpoint += ok[0]
        return end

    cdef int programmed(self, const Extent* at, uint32_t ok) except -1 nogil:
        """All tables know of the ``ok`` pages. If they are not all of the extent, the chip reported a failed program:
        the rest of the block is given up, its pages move out soon, and the pages that are left need another place."""
        if ok:
            self.placement.used(at.block, ok)
        if ok < at.n:
            self.pool.retire(at.block)
            self.placement.failed(at.block)
        return 0

    cdef int64_t open_this(self, uint32_t block, int stream, int cause) except -2 nogil:
        """As ``open_block``, but this block or none: -1 if it is not free any more, or has gone bad."""
        with gil:
            raise NotImplementedError

    def carry(self, uint32_t pages):
        """Cleaning is going to move groups of blocks that hold up to so many live pages: room for the lists is made
        once, some 40 bytes a page."""
        raise NotImplementedError

    cdef int relocate(self, uint32_t block, int stream, int cause) except -1 nogil:
        """Move a block's live pages to where placement puts them and release it. The mapping hears of it when all
        are copied. Returns 1; or 0, with nothing changed, if placement broke the move off (an extent of 0 pages)."""
        with gil:
            raise NotImplementedError

    cdef int relocate_blocks(self, const uint32_t* blocks, uint32_t n, int stream, int cause) except -1 nogil:
        """Move the live pages of ``n`` blocks, sorted by LPA throughout, and release the blocks together: one move, as
        ``relocate``, which a power cut undoes as a whole. ``carry`` has made room. Where it cannot be one move (there
        is no room, here or in a validity store in flash, or too many groups were moved since the last checkpoint) the
        blocks are moved one by one; those of another kind's owner always are. Returns 0 if placement broke it off: some
        blocks may be moved then."""
        with gil:
            raise NotImplementedError

    cdef int relocate_pages(self, const uint32_t* ppas, uint32_t n, int stream, int cause) except -1 nogil:
        """Move ``n`` user pages, in ascending order of PPAs, sorted by LPA, and release no block. Those that are not
        live, or do not say whose they are, stay. A crash may undo it, wherever the pages' blocks still hold live ones.
        Where validity in flash has no room for all that is to be reported, they move in several parts, each of them
        sorted. Returns as ``relocate``, if parts before that were moved; ValueError for more pages than ``carry`` made
        room for."""
        with gil:
            raise NotImplementedError


cdef class Owner:
    """Whoever has the pages of one kind: it alone knows whether such a page is live. What its pages' OOBs say in the
    place of an LPA is a number of its own, the *id*; of user pages it is the LPA."""

    def __cinit__(self, *_, **__):
        self.stream = -1

    cdef int confirm(self, const uint32_t* ids, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        """Whether each page of ``ppas`` is what its OOB says it is: LIVE, SUPERSEDED or FOREIGN. Cleaning asks before
        it moves: a page that lies would take another's place."""
        with gil:
            raise NotImplementedError

    cdef int moved(self, const uint32_t* ids, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        """Cleaning copied each page from ``olds`` to ``news``; the ids ascend. A block's worth of pages at most: of a
        move of several blocks there are several calls, and the ids ascend from one to the next."""
        with gil:
            raise NotImplementedError

    cdef int page_lost(self, uint32_t ppa) except -1 nogil:
        """A live page that was to be moved cannot be read, and its block is about to be given up."""
        return 0

    cdef uint32_t locate(self, uint32_t id) except? 0xFFFFFFFE nogil:
        """Where exactly page ``id`` lies, or NONE."""
        return NONE

    cdef int recovered(self, uint32_t id, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        """Recovery found that page ``id``, which the checkpoint knows, is at ``ppa``."""
        return 0

    cdef int found(self, const Oob* oob, uint32_t ppa) except -1 nogil:
        """Recovery found a whole page of this owner that was made after the checkpoint, or while there is none. It is
        dead, unless its owner takes it up in a recovery step of its own; pages come block by block, and of the last one
        of a block only the spare area is known to be whole. A scan may be done twice: then ``reset`` or ``load`` of the
        part comes between."""
        return 0

    def live_ppas(self):
        """The PPAs of its live pages; not asked of user pages."""
        return []


cdef class Recovered(Owner):
    """The owner of a map that outlasts the power: what checkpoints take of it, and what a recovery asks and tells it.
    Without a checkpoint a recovery begins with ``reset``, else with ``load``."""

    cdef bint needs(self, uint32_t ppa, uint32_t lpa) except -1 nogil:
        """A recovery asks, of a mapping that ``shares_pages``: whether any LPA but ``lpa``, which has a newer page or
        was trimmed, is at ``ppa`` still."""
        return False

    cdef uint32_t recovered_copy(self, uint32_t lpa, uint64_t seq, uint32_t ppa,
                                 bint* own) except? 0xFFFFFFFE nogil:
        """A recovery asks, of a mapping that ``shares_pages``: the page named ``lpa`` and ``seq`` was found at ``ppa``,
        where cleaning put it. All who share it are there from now on; as other pages may lie where they were, a mapping
        has to know them by that name. Returns where they were until now, NONE if it is no page that is known to be
        shared; ``own[0]`` says whether ``lpa`` itself is still at it."""
        return NONE

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        """Recovery found that ``lpa`` is at ``ppa`` (NONE: trimmed). ``scheme_oob`` is what was stamped there."""
        with gil:
            raise NotImplementedError

    def recovery_steps(self):
        """[(name, after, about, function)]: what else is to be done in a recovery of this part, behind the engine's
        step ``after``. The function returns a line about what it did; what it raises as ValueError or MapLostError is
        held against the mapping in the step `fit`. Not called where a clean checkpoint spares a recovery."""
        return ()

    def known_without_scan(self):
        """None; or, if a step of its ``recovery_steps`` found mapping and validity whole as they were at the end, with
        nothing scanned since the checkpoint: (the newest sequence number there is, one above the newest before the
        last trim). Pages that it does not name count for nothing then, and trims are not applied again."""
        return None

    def recovery_worker(self):
        """The class of what does the steps of a recovery, derived from flashfs.engine.recovery.recovery.Worker, if the
        mapping is rebuilt in another way than from a checkpoint; else None."""

    def recovery_commits(self):
        """A recovery is about to change flash for the first time. Returns whether something was stored in NVRAM that
        must be durable before."""
        return False

    def recovery_conflicts(self):
        """Blocks whose pages must be left out of the recovery for the mapping to make sense; it is then redone
        without them. Only a host that died with writes lost can cause one."""
        return ()

    def recovery_erased(self):
        """Blocks that ``locate`` found to have been erased since the checkpoint when it read them (an erased page among
        them, or ``Nand.lost_erase``); the recovery is redone without what the checkpoint says of them."""
        return ()

    def recovery_reopens(self):
        """Whether blocks that were open at a crash stay open (after proof that their next page is blank)."""
        return False

    def recovery_restamps(self):
        """Whether cleaning may stamp a copy otherwise than its original. A recovery that undoes a move then reads the
        original for its stamp, and lets a copy stand whose original is gone."""
        return False

    def recovery_ends(self):
        """The pool's states are final now, and so is what ``recovered`` said."""

    def manages(self):
        """From now on the mapping has to manage with what there is: what it reads of itself and finds damaged it makes
        anew from the pages, if it can, instead of raising MapLostError."""

    def opens(self):
        """Mapping and validity are final, and agree: the device is ready."""

    def reset(self):
        """Nothing is mapped: a recovery that found no checkpoint starts here."""
        raise NotImplementedError

    cdef int checkpoint_begins(self) except -1:
        """A checkpoint is about to save mapping and validity: what it needs no more is dead from here on."""
        return 0

    def save(self):
        """{section: buffer} for a checkpoint; names take 8 bytes at most."""
        raise NotImplementedError

    def save_clean(self):
        """{section: buffer} that a clean checkpoint has beside those of ``save``, as far as a checkpoint has room for
        them: what spares work, and is true only as long as nothing has changed."""
        return {}

    def load_clean(self, sections):
        """The inverse, with those of ``save_clean`` that are there. Asked when a clean checkpoint is mounted and
        everything else is loaded; never by a recovery, which adds to a checkpoint what came behind it."""

    cdef int checkpoint_ended(self, bint whole) except -1:
        """It is durable; or else the last one counts on, and all that that stands on is live again."""
        return 0

    def load(self, sections):
        """The inverse of ``save``."""
        raise NotImplementedError

    cdef int64_t pages_named(self) except -2 nogil:
        """How many pages are live if the mapping is right: the LPAs that are mapped, and its translation pages. -1 if
        nobody can say without reading flash. Asked before each checkpoint, so a pass through the table at most."""
        return -1

    def verify(self, bint whole=True):
        """After a load, and again after a recovery: what the tables say, checked against validity. What lies in flash
        is read only if ``whole``: not by a clean mount. ValueError names the first thing that no power cut leaves."""

    def doubt(self, bint whole=True):
        """None, or what does not fit though it may come of damaged pages alone, where a mapping guesses: a recovery
        then asks every live page whose it is."""
        return None


cdef class Explained(Recovered):
    """A map that says what it is made of, to whoever looks at it: tools, checks, reports. The host waits for none of
    this."""

    def translation_pages(self):
        """The PPAs of the translation pages that are live."""
        return []

    def tables(self):
        """{structure: (bytes as a controller packs them, bytes allocated)}."""
        raise NotImplementedError

    def from_kernel(self):
        """Bytes of its tables that did not come from malloc."""
        return 0

    def figures(self):
        """The scheme's own statistics."""
        return {}

    def forget_counts(self):
        """What ``figures`` counts is counted from now on."""

    def problems_in_flash(self):
        """Lines about parts of the mapping in flash that cannot be read, or are not what they should be. Reads them
        all: `flashfs fsck` asks."""
        return []

    def pages_of_lost(self):
        """PPAs: where validity is lost too, the pages that count for parts of the mapping in flash that cannot be read.
        Which live is not known then, so it is the newest of each LPA, and what was trimmed may be back."""
        return []

    def check(self):
        """Invariants of the mapping's own structures, each a line when broken."""
        return []


cdef class Mapping(Explained):
    """Where is LPA x? The engine programs a page first and binds it after, so a mapping never points at nothing.

    Whatever a mapping has to read of itself in flash, it reads in ``prepare``, which may also write, and so clean: no
    PPA is in anybody's hands then. What comes behind it, ``lookup`` and ``bind``, is about LPAs that are prepared. A
    read of the map begins at ``ssd.map_ns`` and puts its end there; who begins something sets that clock.

    *Shared pages.* A mapping that ``shares_pages`` may have several LPAs at one page, whose OOB names one of them, or
    one that has left it since. The page's name, its LPA and sequence number, never changes, however often it is moved.
    - ``accepts`` says whether such a page is what an LPA is to read;
    - ``needs`` whether anybody but that LPA is there: so cleaning and recovery know whether the page lives;
    - ``bind`` and ``unbind`` put NONE into ``olds`` for a page that others still use: it does not die. That an LPA was
      trimmed all the same, ``unbind`` says by returning more than 0;
    - ``moved`` is told of each page once, with the LPA in its OOB, and re-points all who are at ``olds[i]``;
    - ``recovered_copy`` is asked in a recovery where such a page lay, before anything else about it;
    - ``pages_named``, ``verify`` and fsck count pages, not LPAs.

    A mapping that keeps parts of itself in flash has translation pages (part_pages.pyx), whose owner a recovery asks
    and tells before the mapping."""

    def __cinit__(self, *_, **__):
        self.fence_every = <uint64_t> -1

    cdef uint32_t prepare(self, const uint32_t* lpas, uint32_t n, bint writing,
                          int64_t* ready) except? 0xFFFFFFFF nogil:
        """The host is about to read, or is ``writing``, these LPAs. Returns how many of them, from the first on, are at
        hand until the next ``prepare``, 1 at least: ``lookup`` reads nothing for those, and ``bind`` nothing that may
        write. ``ready`` says when each may begin, and
        then when its place is known: independent reads of the map run side by side, dependent ones one by one."""
        return n

    cdef uint32_t prepare_unbind(self, uint32_t lpa, uint32_t n) except? 0xFFFFFFFF nogil:
        """The host is about to trim these LPAs; as ``prepare``."""
        return n

    cdef uint32_t unmapped_from(self, uint32_t lpa, uint32_t n) noexcept nogil:
        """How many of ``n`` LPAs from ``lpa`` on are known, without a look at each, not to be mapped."""
        return 0

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """PPAs of ``n`` LPAs for the host; NONE for one that is not mapped. A PPA may be a guess: the reader checks the
        OOB."""
        with gil:
            raise NotImplementedError

    cdef int peek(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        """As ``lookup``, for whoever is not the host (is it mapped? a dump): it counts nowhere and changes no cache."""
        return self.lookup(lpas, n, ppas)

    cdef bint accepts(self, uint32_t lpa, uint32_t ppa, uint32_t said) except -1 nogil:
        """Whether the page read at ``ppa``, whose OOB says it is LPA ``said``'s, is what ``lpa`` is to read. A page
        that several LPAs share says only one of them."""
        return said == lpa

    cdef uint32_t after_miss(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) except? 0xFFFFFFFE nogil:
        """Where to look when ``ppa`` turned out to hold another LPA; NONE when there is nowhere left. ``oob`` is what
        was read there, the engine's bytes first, or NULL if the page cannot be read."""
        return NONE

    cdef int expect(self, uint32_t lpa) noexcept nogil:
        """A page of the host went into the write buffer, and will be bound before long: its entry may be fetched into
        the processor's cache. A hint, which changes nothing."""
        return 0

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        """The host's pages ``lpas`` lie at ``ppa``, ``ppa + 1``, ... now; ``choice`` is what placement put into the
        extent. ``olds`` gets where exactly each lay before (NONE if nowhere): those pages die."""
        with gil:
            raise NotImplementedError

    cdef int confirm(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n, uint8_t* answers) except -1 nogil:
        cdef uint32_t i
        for i in range(n):
            if lpas[i] < self.ssd.lpas and self.has(lpas[i], ppas[i]):
                answers[i] = LIVE
            else:                          # where validity is late, a page that nobody names is nothing unusual
                answers[i] = SUPERSEDED if self.ssd.validity.late and lpas[i] < self.ssd.lpas else FOREIGN
        return 0

    cdef int run_ends(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """These pages were written together, by the host or by cleaning, and are bound already, extent by extent: here
        is the whole run in its order, over however many blocks placement striped it. Told to a mapping of
        ``whole_runs``. Where cleaning came between two extents, the run begins behind it."""
        return 0

    cdef int moves_end(self) except -1 nogil:
        """Cleaning is through with a block, and all is consistent: what moves have left to do, such as writing
        translation pages. It may not clean."""
        return 0

    cdef int dropped(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """Cleaning left these pages to die with their block, because ``confirm`` called them SUPERSEDED; NONE is
        skipped. They will be other LPAs' pages soon."""
        return 0

    cdef bint notice(self) except -1 nogil:
        """Nothing seems to be dead, and cleaning needs space: find out which pages were superseded, where validity is
        late, and let go of those that are only kept until a sync. Whether there were any."""
        return False

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        """``n`` LPAs from ``lpa`` on are trimmed; ``olds`` as in ``bind``. Returns more than 0 if there were some that
        were mapped though nobody can say where any more: that they are trimmed has to be on record too."""
        with gil:
            raise NotImplementedError

    cdef uint32_t locate(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        """Where exactly ``lpa`` lies, or NONE; a scheme whose lookup guesses reads what it must to be sure. As ``peek``
        it counts nowhere."""
        cdef uint32_t ppa = NONE
        self.peek(&lpa, 1, &ppa)
        return ppa

    cdef uint32_t owner_of(self, uint32_t ppa) except? 0xFFFFFFFE nogil:
        """The LPA that lies at ``ppa``, or NONE: asked when that page cannot be read, so the answer may take a look at
        every LPA."""
        cdef uint32_t lpa
        for lpa in range(self.ssd.lpas):
            if self.locate(lpa) == ppa:
                return lpa
        return NONE

    cdef uint32_t remap_room(self, uint32_t target, uint32_t source, uint32_t n,
                             bint move) except? 0xFFFFFFFF nogil:
        """A mapping that ``remaps``: of ``n`` LPAs from ``target`` on, each of which is to be pointed at the page of
        the one as far behind ``source``, how many can be, from the first on, by one ``remap_run``; 0 if the first has
        to be written. All sources are mapped, and in flash. It makes room, so it may clean and sync."""
        return 0

    cdef int remap_run(self, uint32_t target, uint32_t source, uint32_t n, uint64_t seq, bint move,
                       uint32_t* olds) except -1 nogil:
        """Point them there: on record, under ``seq``, when this returns. With ``move`` the sources hold nothing then.
        ``olds`` as in ``bind``, of the targets. What it stores begins at ``ssd.map_ns``, which is its end then."""
        with gil:
            raise NotImplementedError

    cdef bint sift(self, uint32_t lpa, const uint8_t* page, uint64_t word, int64_t* t_ns) except -1 nogil:
        """A mapping that ``dedups``: the host writes that page, of which ``page`` is the content; or, on a chip that
        keeps none (NULL), equal ``word`` stand for equal contents. Whether such a page is known: in flash, or of those
        sifted before. Takes its time from ``t_ns`` on."""
        return False

    cdef bint point_at_same(self, uint32_t lpa, const uint8_t* page, uint64_t seq, int64_t* t_ns,
                            uint32_t* old) except -1 nogil:
        """The page that ``sift`` was last asked about, and those before it in flash by now: point its LPA at one of
        the same content, under ``seq``. False if there is none, or the LPA cannot be pointed there; it is to be written
        then. ``old`` as in ``bind``. Makes room, so it may clean and sync."""
        return False

    cdef int sifted(self) noexcept nogil:
        """All pages of a request that were sifted are in flash, or will not be."""
        return 0

    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, const Extent* at, uint32_t before,
                   uint32_t behind) except -1 nogil:
        """Fill the scheme's own OOB bytes of the ``at.n`` pages about to be programmed there, the host's or moved ones:
        ``at.choice`` is as placement gave it. ``oob`` points at the first page's, the next page's are ``oob_bytes``
        further. They are part of a run: ``before`` pages of it were programmed right
        in front of them and ``behind`` are to follow in this block, and ``lpas`` reaches as far either way."""
        return 0

    cdef int tend(self) except -1 nogil:
        """Between requests: what the mapping has to do now and then, such as writing back translation pages. It may
        clean."""
        return 0

    cdef int fence_begins(self) except -1:
        """A mapping that is ``fenced``: a fence, or a checkpoint, is about to be written. Every entry that was newer
        than its translation page at the last one, and has not changed since, is written now. It may clean."""
        return 0

    cdef int reports_kept(self) except -1 nogil:
        """A mapping that is ``fenced``: validity has programmed all reports that it got so far. Behind the next sync
        no recovery looks for them."""
        return 0

    def distrust(self):
        """A mapping that is ``fenced``, in a recovery: pages are missing. What was found is to be in translation pages
        as soon as the recovery ends, so that whatever is lost later is missed."""

    def base_from_pages(self, versions):
        """A mapping that is ``fenced``: {section: bytes} of a checkpoint that never was, from ``versions``, all whole
        pages of its kind: (numbers, sequence numbers, PPAs), arrays, by number and the oldest version first."""
        raise NotImplementedError

    def counted(self, n):
        """A mapping that is ``fenced``, in a recovery, behind its entries: ``n`` LPAs are mapped."""

    def find_reports(self, versions, uint64_t since, in_scan):
        """A mapping that is ``fenced``, in a recovery, behind its entries: which pages validity had been told of after
        sequence number ``since`` and not programmed; they are dead now. ``in_scan(block)``: validity knows all of that
        block. A line about it."""
        raise NotImplementedError

    def limit_tables(self, uint64_t share):
        """``share`` bytes of DRAM are left for tables that can be kept in flash; BindError if that is too little."""

    cdef bint has(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """Whether the page at ``ppa``, whose OOB names ``lpa``, is that LPA's, or that of others who share it."""
        return self.locate(lpa) == ppa or (self.shares_pages and self.needs(ppa, lpa))

    def refuses(self, Validity validity not None):
        """None, or why this mapping cannot stand on that validity store."""
        return None

    def is_exact(self):
        """Whether look-ups hardly ever guess. If they do, nothing looks at a page before it is read: a look counts."""
        return True

    def explain(self, uint32_t lpa):
        """What the mapping's structures say of one LPA, for ``dump``; has no side effect and reads no flash."""
        cdef uint32_t ppa = NONE
        self.peek(&lpa, 1, &ppa)
        return {"ppa": None if ppa == NONE else ppa}


cdef class Validity:
    """Which pages are live? Live is a question, and a store may answer it as it likes; the default is sure and in DRAM.

    *In flash.* Queries may read and fail. What reports (``live_run``, ``dead``) have to program or clean, they do not:
    ``prepare`` does, before anything is changed, and makes room for as many reports as are coming. Queries program
    nothing either. So a report that was prepared does not fail, and one that does stops the device like any change
    that came to no end. A store that programs pages of its own has an Owner for their kind, and a stream.

    *Late.* A store may go on calling a page live that is superseded, until it learns better; never the reverse. Then
    ``count`` is an upper bound, pages that cleaning meets are asked for (``Owner.confirm`` answers SUPERSEDED, and they
    are dropped), the engine holds live pages against the map as "no fewer", and a recovery asks the pages of a victim
    themselves before it takes a move for unfinished. A page is to be known dead before cleaning needs its space.

    The counts are the engine's VictimIndex, which a store keeps up with each page."""

    def __cinit__(self, Engine ssd, *_, **__):
        self.ssd = ssd
        self.victims = ssd.victims
        self.words = <uint64_t*> malloc((ssd.nand.pages_per_block + 63) // 64 * 8)
        if self.words == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.words)

    cdef uint32_t prepare(self, uint32_t n, bint may_clean) except? 0xFFFFFFFF nogil:
        """Up to ``n`` pages will be reported before the next call, whatever they are. Makes room for all of them if
        that can be, else for as many as it returns: twice as many as a run or a block has pages, at least. It may
        program; and, if ``may_clean``, clean, which changes mapping and validity. If not, it is called by cleaning."""
        return n

    cdef uint32_t room(self) noexcept nogil:
        """How many reports there is room for, now."""
        return NONE

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        """``n`` pages from ``ppa`` on, all of one block, are live now."""
        with gil:
            raise NotImplementedError

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        """These pages died; NONE entries are skipped."""
        with gil:
            raise NotImplementedError

    cdef int opened(self, uint32_t block) except -1 nogil:
        """The block was erased, and its pages are about to be programmed. It was ``released`` some time ago, if this
        device had it in use at all; nothing is to be programmed here."""
        return 0

    cdef int released(self, uint32_t block) except -1 nogil:
        """The block is given up: no page in it lives, all of them were reported dead. It is erased some time later."""
        return 0

    cdef bint is_live(self, uint32_t ppa) except -1 nogil:
        with gil:
            raise NotImplementedError

    cdef uint32_t count(self, uint32_t block) noexcept nogil:
        """Live pages of the block; at most that many, if the store is late. From DRAM."""
        return self.victims.valid[block]

    cdef int bitmap(self, uint32_t block, uint64_t* words) except -1 nogil:
        """A bit a page of the block, the lowest first; what is beyond the block is 0."""
        with gil:
            raise NotImplementedError

    cdef uint32_t pages(self, uint32_t block, uint32_t* out) except? 0xFFFFFFFF nogil:
        """Page numbers of the block's live pages, ascending; returns how many."""
        if self.victims.valid[block] == 0:
            return 0
        self.bitmap(block, self.words)
        return list_bits(self.words, (self.ssd.nand.pages_per_block + 63) // 64, out)

    cdef int tend(self) except -1 nogil:
        """Between requests, as Mapping.tend."""
        return 0

    cdef uint64_t pages_named(self) noexcept nogil:
        """How many live pages are the store's own."""
        return 0

    cdef int checkpoint_begins(self) except -1:
        """A checkpoint is about to save mapping and validity. What the store has to program for that, it programs now;
        a sync follows. Its ``save`` then says all that it knows, or names pages that do."""
        return 0

    cdef int checkpoint_ended(self, bint whole) except -1:
        """As Mapping.checkpoint_ended."""
        return 0

    def opens(self):
        """As Mapping.opens; the mapping's comes after."""

    def save(self):
        raise NotImplementedError

    def load(self, sections):
        raise NotImplementedError

    def reset(self):
        raise NotImplementedError

    def tables(self):
        raise NotImplementedError

    def figures(self):
        """The store's own statistics."""
        return {}

    def forget_counts(self):
        """What ``figures`` counts is counted from now on."""

    def problems_in_flash(self):
        """As Mapping.problems_in_flash."""
        return []

    def recovery_steps(self):
        """As Mapping.recovery_steps."""
        return ()

    def base_from_pages(self, versions, last):
        """As Mapping.base_from_pages; ``last``: of each version, whether its OOB calls it the last of something, or
        does not say. Returns (sections, sequence number up to which reports are programmed, a line about it)."""
        raise NotImplementedError

    def stamp_in_force(self):
        """A sequence number that says which of the store's structures in flash are in force: what a recovery from pages
        finds must not be older."""
        return 0

    def unfinished(self):
        """{block: pages}: of blocks that are not full, how many of their pages the store has heard of; others may be
        there that never lived."""
        return {}

    def counts_from_pages(self, sections, ends):
        """Behind that, and loaded with it: the section of live pages by block; ``ends``, of each block: pages that it
        has. A store that goes ``by_map`` says that all of those live: which do is told by ``take_named``."""
        raise NotImplementedError

    def take_named(self, bits):
        """A store that goes ``by_map``, in a recovery: these pages live, and no others; its own it knows. ``bits``: as
        many words of 64 bits a block as hold one for each page, an array. A line about it."""
        raise NotImplementedError

    cdef int forget(self, uint32_t block) except -1 nogil:
        """Recovery: the block was erased after the checkpoint that says otherwise, so nothing of that holds."""
        return 0

    cdef int pages_known(self) except -1 nogil:
        """Recovery: the store's own pages are where they say by now, so they can be read; ``forget`` was called for
        all blocks that were erased since the checkpoint. Everything behind this is about pages found since."""
        return 0

    def live_in(self, uint32_t block):
        """Page numbers of the live pages of a block."""
        cdef uint32_t* out = <uint32_t*> malloc(self.ssd.nand.pages_per_block * sizeof(uint32_t))
        if out == NULL:
            raise MemoryError
        try:
            n = self.pages(block, out)
            return [out[i] for i in range(n)]
        finally:
            free(out)

    def check(self):
        return []


cdef class Placement:
    """Where may these pages be programmed?"""

    cdef int make_ready(self, int stream) except -1 nogil:
        """Clean what has to be cleaned before the next ``take`` of that stream."""
        return 0

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        """A place for the first ``out.n`` (1..n) of these pages: consecutive pages of one block, the block's next
        ones. 0 breaks a move off. What the mapping is to know of how that place was chosen goes into ``out.choice``,
        which is 0 before the call: the engine passes it on to ``stamp`` and ``bind``, and looks at it nowhere."""
        with gil:
            raise NotImplementedError

    cdef uint32_t run_room(self, int stream) noexcept nogil:
        """How many pages of that stream the next ``take`` can have in one block, if that is known: else 0. Whoever has
        more cuts there, so that what lies in one block is one run."""
        return 0

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        """``n`` pages of what ``take`` gave were programmed."""
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        """Offer this block no more: a program failed in it, or padding has filled it."""
        return 0

    cdef int finish(self, int stream) except -1 nogil:
        """Nothing more comes for this stream for a while: give up a half-filled block that is not worth keeping."""
        return 0

    def save(self):
        """{section: buffer} for a checkpoint, if it has something to keep."""
        return {}

    def load(self, sections):
        """The inverse."""

    def reset(self):
        """A recovery found no checkpoint."""

    def recovery_steps(self):
        """As Mapping.recovery_steps."""
        return ()

    def attach(self):
        """Take up the blocks that the pool says are open: after a format, a load or a recovery."""


cdef class Cleaning:
    """Which block next, and where do its pages go?"""

    cdef int clean(self) except -1 nogil:
        """Free space in one block, somehow; DeviceFullError if none can be gained."""
        with gil:
            raise NotImplementedError

    cdef int evacuate(self, uint32_t block, int cause) except -1 nogil:
        """Empty this very block: static wear levelling and retirement ask for it, whatever ``cleans`` says."""
        with gil:
            raise NotImplementedError

    cdef bint cleans(self, int stream) noexcept nogil:
        """Whether blocks of that stream may be cleaned. One that may not is erased when nothing in it lives."""
        return True
