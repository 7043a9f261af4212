# cold
# distutils: language = c++
"""The bridge: implements the interfaces of the four parts by an FTL written in Python. Compiled schemes are unaffected.

Each part here holds the plug-in and calls it under the GIL. Each answer is checked before it is used: its type, its
range, and whether it agrees with what the engine knows (which pages are live, what their OOBs say). A mistake is an
FtlError of one line that names the FTL, the call, the answer and what it should be. The device then takes no more
changes, so that a wrong map is never saved and the next mount recovers from flash.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from flashfs.engine.device.ssd cimport Ssd
from flashfs.parts.defaults.greedy cimport Greedy
from flashfs.parts.defaults.page_bitmap cimport PageBitmap
from flashfs.parts.defaults.streams cimport Streams
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.blocks.pool cimport (
    CAUSE_GC,
    CAUSE_HOST,
    CAUSE_MAP,
    KIND_USER,
    NONE,
    OOB_ENGINE,
    STATE_CLOSED,
    STATE_OPEN,
    STREAM_GC,
    STREAM_HOST,
    STREAM_WEAR,
    Oob,
    read_oob,
)
from nandimg._nand cimport PAGE_OK

import reprlib
from operator import index
from pathlib import PurePath
from types import MappingProxyType

from flashfs.engine.blocks.pool import STREAM_NAMES
from flashfs.errors import MISTAKES, FlashfsError, FtlError, is_mistake
from nandimg.errors import NandimgError

cdef enum:
    MOST_ASKED = 64          # LPAs that place() gets at a time


def is_whole(value):
    """Whether ``value`` counts as an address: any integer type (with ``__index__``), but not bool."""
    if type(value) is int:
        return True
    return not isinstance(value, bool) and hasattr(value, "__index__")


def where_raised(error):
    """" at FILE line N" of the innermost Python line that ``error`` came through, or ""."""
    at = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(".py"):
            at = f" at {PurePath(trace.tb_frame.f_code.co_filename).name} line {trace.tb_lineno}"
        trace = trace.tb_next
    return at


cdef class Plugin:
    """One FTL of a device: its class, its current object, and the messages for its mistakes.

    A new object is an empty map. So the engine's `reset` makes one, and an FTL needs no method for it.
    """

    def __cinit__(self, Ssd ssd, str name, cls, options):
        self.ssd = ssd
        self.name = name
        self.cls = cls
        self.verify = bool(options["verify"])
        self.placing = -1
        self.pages = ssd.nand.blocks * ssd.nand.pages_per_block
        self.chip = Chip(self, options)
        self.fresh()

    cdef make(self):
        """A new object, which must hold nothing."""
        cdef uint32_t lpa
        try:
            made = self.cls(self.chip)
            for lpa in (0, self.ssd.lpas - 1):
                found = made.lookup(lpa)
                if found is not None:
                    raise self.mistake(f"lookup(lpa={lpa})", f"returned {reprlib.repr(found)} of a new object: "
                                       "an FTL holds nothing before it is asked to; it should be None")
        except BaseException as error:
            raise self.broke("__init__(chip)", error) from error
        return made

    cdef fresh(self):
        """Replaces the current object by a new one."""
        self.ftl = self.make()
        self.ask_lookup = self.ftl.lookup
        self.ask_bind = self.ftl.bind
        self.ask_unbind = self.ftl.unbind
        self.ask_after_miss = getattr(self.ftl, "after_miss", None)

    cdef object mistake(self, call, said):
        """The error to raise for a wrong answer of a call; the device takes no more changes."""
        error = FtlError(f"{self.name}.{call}: {said}")
        self.ssd.fail(error)
        return error

    cdef object broke(self, call, error, bint through=False):
        """The error to raise for a call that raised ``error``. With ``through``, an error that the engine raised inside
        the call (a full device, a power cut) is returned as it is."""
        if isinstance(error, FtlError) or (through and isinstance(error, (FlashfsError, NandimgError))):
            return error
        if not is_mistake(error):          # an interrupt: the call did not finish
            self.ssd.fail(f"{self.name}.{call} was interrupted")
            return error
        text = " ".join(str(error).split())
        return self.mistake(call, f"raised {type(error).__name__}{': ' if text else ''}{text}{where_raised(error)}")

    cdef note(self, error):
        """Keeps a mistake from a place where nothing can be raised: the next change raises it."""
        if self.error is None:
            self.error = error

    cdef int healthy(self) except -1:
        if self.error is not None:
            raise self.error
        return 0

    cdef uint32_t to_ppa(self, value, call) except? 0xFFFFFFFE:
        """The PPA that was returned; NONE for None."""
        if value is None:
            return NONE
        if not is_whole(value) or not 0 <= index(value) < self.pages:
            raise self.mistake(call, f"returned {reprlib.repr(value)}: it should be None, or a PPA "
                               f"from 0 to {self.pages - 1}")
        return <uint32_t> index(value)

    def optional(self, method, call, kind, default):
        """What an optional method without arguments returns; ``default`` if there is none. FtlError if it raises or the
        type is wrong, but the map is not in doubt, so the device goes on."""
        asked = getattr(self.ftl, method, None)
        if asked is None:
            return default
        try:
            said = asked()
        except MISTAKES as error:
            text = " ".join(str(error).split())
            raise FtlError(f"{self.name}.{call}: raised {type(error).__name__}: {text}{where_raised(error)}") from error
        if not isinstance(said, kind):
            raise FtlError(f"{self.name}.{call}: returned {reprlib.repr(said)}: it should be a {kind.__name__}")
        return said

    def dram(self):
        """{structure: bytes} from the FTL's dram(); a page table's, if it has none."""
        said = self.optional("dram", "dram()", dict, {"map": 4 * self.ssd.lpas})
        for name, held in said.items():
            if not isinstance(name, str) or not is_whole(held) or held < 0:
                raise FtlError(f"{self.name}.dram(): {reprlib.repr(name)} holds {reprlib.repr(held)}: it should be a "
                               "name, and a whole number of bytes")
        return {name: int(held) for name, held in said.items()}


cdef class Chip:
    """The device as an FTL in Python sees it: facts that never change, the state of blocks (not before ``__init__`` has
    returned), and, in ``place`` only, new blocks.

    LPAs are 0 .. ``lpas`` - 1; ``ppa = block * pages_per_block + page``. ``oob_bytes``: bytes of a page's OOB for the
    FTL. ``spare_blocks``: the good blocks beyond those that a full disk and the metadata take; the open blocks and the
    reserve for cleaning must fit them. ``options``: the FTL's options (``--opt``), a read-only dict.
    """

    def __cinit__(self, Plugin plugin, options):
        cdef Ssd ssd = plugin.ssd
        self.plugin = plugin
        self.lpas = ssd.lpas
        self.blocks = ssd.nand.blocks
        self.pages_per_block = ssd.nand.pages_per_block
        self.pages = plugin.pages
        self.page_bytes = ssd.nand.page_bytes
        self.oob_bytes = ssd.nand.oob_bytes - OOB_ENGINE
        self.dies = ssd.nand.dies
        self.channels = ssd.nand.channels
        self.options = MappingProxyType(dict(options))
        good = sum(ssd.nand.block_health(block) != 1 for block in range(self.blocks))
        data = (self.lpas + self.pages_per_block) // self.pages_per_block  # every logical page, and a dead one
        self.spare_blocks = <int64_t> (good - data) - ssd.meta.checkpoint_blocks - ssd.meta_floor

    cdef int known(self, block) except -1:
        if self.plugin.ssd.validity is None:
            raise RuntimeError("the chip has no state yet: __init__ can only use its facts")
        if not is_whole(block) or not 0 <= block < self.blocks:
            raise ValueError(f"block {reprlib.repr(block)}: use 0 to {self.blocks - 1}")
        return 0

    def die(self, block):
        """The die on which a block lies."""
        self.known(block)
        return block % self.dies

    def room(self, block):
        """Pages that ``place`` may still fill in this block: 0 if it did not open it, or if it is full or failed."""
        self.known(block)
        cdef PyPlacement placement = self.plugin.placement
        if placement is None or not placement.mine[<uint32_t> block]:
            return 0
        return self.pages_per_block - self.plugin.ssd.pool.next_page[<uint32_t> block]

    def open_block(self, die=None):
        """A fresh block, on ``die`` if that has one. Only ``place`` may call this, and at most ``host_blocks`` and
        ``gc_blocks`` of the FTL may be open. May raise DeviceFullError: do not catch it."""
        if self.plugin.placing < 0:
            raise self.plugin.mistake("open_block()", "only place() may open a block")
        return self.plugin.placement.open(die)

    def close_block(self, block):
        """Closes this block although it has room: from now on it may be cleaned."""
        if self.room(block):
            self.plugin.placement.give_up(block)

    def closed_blocks(self):
        """The blocks that may be cleaned, in ascending order."""
        self.known(0)
        cdef uint32_t block
        return [block for block in range(self.blocks) if self.plugin.ssd.pool.state[block] == STATE_CLOSED]

    def live(self, block):
        """How many pages of a block are live."""
        self.known(block)
        return self.plugin.ssd.validity.count(block)

    def live_pages(self, block):
        """The numbers of a block's live pages, ascending."""
        self.known(block)
        return self.plugin.ssd.validity.live_in(block)

    def name_of(self, ppa):
        """(LPA, sequence number) from the page's OOB. They stay the same when the page is moved. Costs a spare read.
        ValueError if it is not a readable page of the host."""
        cdef Oob oob
        cdef uint8_t status = 0
        cdef Ssd ssd = self.plugin.ssd
        if not is_whole(ppa) or not 0 <= ppa < self.pages:
            raise ValueError(f"PPA {reprlib.repr(ppa)}: use 0 to {self.pages - 1}")
        read_oob(ssd.nand, ppa, ssd.read_oobs, &oob, &status, CAUSE_MAP, ssd.now_ns)
        if status != PAGE_OK or oob.kind != KIND_USER:
            raise ValueError(f"PPA {ppa} holds no page of the host")
        return oob.lpa, oob.seq

    def age(self, block):
        """How many blocks were opened after this one, those for metadata included."""
        self.known(block)
        return self.plugin.ssd.pool.last_order - self.plugin.ssd.pool.order[<uint32_t> block]

    def erases(self, block):
        """How often a block was erased."""
        self.known(block)
        return self.plugin.ssd.nand.erases(block)


cdef class PyValidity(PageBitmap):
    """The engine's bitmap, and beside it an FTL's own store. Each page that comes to life or dies is reported to that
    store, and its answers are compared with the bitmap, because a wrong store could have live pages erased."""

    def attach(self, Plugin plugin):
        self.plugin = plugin
        return self

    cdef tell(self, hook, uint32_t ppa):
        """Calls live(ppa) or dead(ppa). The engine cannot undo here, so the next change raises a mistake."""
        try:
            getattr(self.plugin.ftl, hook)(ppa)
        except BaseException as error:
            self.plugin.note(self.plugin.broke(f"{hook}(ppa={ppa})", error))

    cdef compare(self, uint32_t ppa, bint live):
        """Checks that the FTL's is_live agrees with the bitmap; a class that is ``late`` may still call a dead page
        live."""
        try:
            said = self.plugin.ftl.is_live(ppa)
            if said is not live and not (said is True and getattr(self.plugin.cls, "late", False) is True):
                self.plugin.note(self.plugin.mistake(f"is_live(ppa={ppa})", f"returned {reprlib.repr(said)}: it "
                                                     f"should be {live}"))
        except BaseException as error:
            self.plugin.note(self.plugin.broke(f"is_live(ppa={ppa})", error))

    cdef int live_run(self, uint32_t ppa, uint32_t n) except -1 nogil:
        cdef uint32_t i
        PageBitmap.live_run(self, ppa, n)
        with gil:
            for i in range(n):
                self.tell("live", ppa + i)
        return 0

    cdef int dead(self, const uint32_t* ppas, uint32_t n) except -1 nogil:
        cdef uint32_t i
        PageBitmap.dead(self, ppas, n)
        with gil:
            for i in range(n):
                if ppas[i] != NONE:
                    self.tell("dead", ppas[i])
        return 0

    cdef uint32_t pages(self, uint32_t block, uint32_t* out) except? 0xFFFFFFFF nogil:
        """The bitmap says which pages cleaning moves; each page is compared with the FTL's store."""
        cdef uint32_t n = PageBitmap.pages(self, block, out), page
        with gil:
            if hasattr(self.plugin.cls, "is_live") and self.ssd.failed is None:
                for page in range(self.pages_per_block):
                    self.compare(block * self.pages_per_block + page,
                                 PageBitmap.is_live(self, block * self.pages_per_block + page))
        return n

    cdef int forget(self, uint32_t block) except -1 nogil:
        cdef uint32_t page
        with gil:
            for page in range(self.pages_per_block):
                if PageBitmap.is_live(self, block * self.pages_per_block + page):
                    self.tell("dead", block * self.pages_per_block + page)
        PageBitmap.forget(self, block)
        return 0

    def load(self, sections):
        """Also reports all live pages to the FTL's store, which is empty: the map's load just made a new object."""
        cdef uint32_t ppa
        PageBitmap.load(self, sections)
        for ppa in range(self.ssd.nand.blocks * self.pages_per_block):
            if PageBitmap.is_live(self, ppa):
                self.tell("live", ppa)
        self.plugin.healthy()

    def tables(self):
        """The FTL's dram() counts its store; the bitmap beside it only serves the checks, so a controller has 0 bytes.
        """
        return {name: (0 if name == "pvb" else packed, held)
                for name, (packed, held) in PageBitmap.tables(self).items()}


cdef class PyPlacement(Streams):
    """Placement by place() of the user's class. The engine itself places the pages of wear levelling."""

    def __dealloc__(self):
        free(self.mine)

    def attach_to(self, Plugin plugin, uint32_t host_blocks, uint32_t gc_blocks):
        self.plugin = plugin
        self.refills = False                # the user's class opens blocks, and knows of no other
        self.open_most[STREAM_HOST] = host_blocks
        self.open_most[STREAM_GC] = gc_blocks
        self.mine = <uint8_t*> calloc(self.ssd.nand.blocks, 1)
        if self.mine == NULL:
            raise MemoryError
        plugin.placement = self
        return self

    cdef int make_ready(self, int stream) except -1 nogil:
        """Makes room here and not in open_block: cleaning calls place() too, which must not call itself."""
        if stream == STREAM_HOST and self.open_n[STREAM_HOST] < self.open_most[STREAM_HOST]:
            self.ssd.make_room()
        return 0

    cdef int take(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1 nogil:
        if stream == STREAM_WEAR:
            return Streams.take(self, stream, lpas, n, out)
        # A crash wastes the rest of each open block, and the next recovery may need it: if free blocks are scarce, use
        # an open one.
        if (stream == STREAM_GC and 0 < self.open_n[STREAM_GC] < self.open_most[STREAM_GC]
                and not self.ssd.affords_more() and self.open_n[STREAM_GC] and self.go_on(n, out)):
            return 0
        with gil:
            self.plugin.healthy()
            self.place(stream, lpas, min(n, <uint32_t> MOST_ASKED), out)
            while not self.ssd.pool.takes_more(out.block, CAUSE_HOST if stream == STREAM_HOST else CAUSE_GC,
                                               self.ssd.now_ns):
                self.give_up(out.block)     # reports to the FTL that it is closed; then place() is called again
                self.place(stream, lpas, min(n, <uint32_t> MOST_ASKED), out)
        return 0

    cdef bint go_on(self, uint32_t n, Extent* out) except -1 nogil:
        """Takes any block that cleaning has open and that takes more; False if there is none."""
        cdef uint32_t block
        for block in range(self.ssd.nand.blocks):
            if self.mine[block] == STREAM_GC + 1:
                if not self.ssd.pool.takes_more(block, CAUSE_GC, self.ssd.now_ns):
                    with gil:
                        self.give_up(block)
                    continue
                out.block = block
                out.page = self.ssd.pool.next_page[block]
                out.n = min(n, self.ssd.pool.pages_per_block - out.page)
                return True
        return False

    cdef int place(self, int stream, const uint32_t* lpas, uint32_t n, Extent* out) except -1:
        cdef uint32_t i, block, room
        named = [lpas[i] for i in range(n)]
        call = f"place({STREAM_NAMES[stream]!r}, lpas=[{lpas[0]}{', ...' if n > 1 else ''}])"
        self.plugin.placing = stream
        try:
            said = self.plugin.ftl.place(STREAM_NAMES[stream], named)
        except BaseException as error:
            raise self.plugin.broke(call, error, True) from error
        finally:
            self.plugin.placing = -1
        chosen, count = said if isinstance(said, tuple) and len(said) == 2 else (said, n)
        if not is_whole(chosen) or not is_whole(count) or not 0 <= chosen < self.ssd.nand.blocks:
            raise self.plugin.mistake(call, f"returned {reprlib.repr(said)}: it should be a block that "
                                      "chip.open_block() gave, or (block, how many of the LPAs)")
        block = chosen
        if not self.mine[block]:
            state = self.ssd.pool.describe(block)["state"]
            raise self.plugin.mistake(call, f"returned block {block}, which is {state}: it should be one that "
                                      "chip.open_block() gave, and that has room")
        if not 1 <= count <= n:
            raise self.plugin.mistake(call, f"returned block {block} for {reprlib.repr(count)} pages: it should be "
                                      f"1 to {n}")
        room = self.ssd.pool.pages_per_block - self.ssd.pool.next_page[block]
        out.block = block
        out.page = self.ssd.pool.next_page[block]
        out.n = min(<uint32_t> count, room)
        return 0

    cdef uint32_t open(self, die) except? 0xFFFFFFFE:
        """Opens a block for the stream for which place() is running."""
        cdef int stream = self.plugin.placing
        cdef uint32_t block
        if die is not None and (not is_whole(die) or not 0 <= die < self.ssd.nand.dies):
            raise self.plugin.mistake(f"open_block(die={reprlib.repr(die)})",
                                      f"use a die from 0 to {self.ssd.nand.dies - 1}, or None")
        if self.open_n[stream] >= self.open_most[stream]:
            raise self.plugin.mistake(
                "open_block()", f"{self.open_n[stream]} blocks are open for {STREAM_NAMES[stream]} already, and "
                f"{STREAM_NAMES[stream]}_blocks is {self.open_most[stream]}")
        block = <uint32_t> self.ssd.open_block(-1 if die is None else die, stream, False,
                                               CAUSE_HOST if stream == STREAM_HOST else CAUSE_GC)
        self.mine[block] = <uint8_t> (stream + 1)
        self.open_n[stream] += 1
        return block

    cdef int give_up(self, uint32_t block) except -1:
        """Closes the block, and reports that to the FTL."""
        self.open_n[self.mine[block] - 1] -= 1
        self.mine[block] = 0
        self.ssd.close(block)
        told = getattr(self.plugin.ftl, "closed", None)
        if told is not None:
            try:
                told(block)
            except BaseException as error:
                raise self.plugin.broke(f"closed(block={block})", error) from error
        return 0

    cdef int used(self, uint32_t block, uint32_t n) except -1 nogil:
        if not self.mine[block]:
            return Streams.used(self, block, n)
        if self.ssd.pool.next_page[block] >= self.ssd.pool.pages_per_block:
            with gil:
                self.give_up(block)
        return 0

    cdef int failed(self, uint32_t block) except -1 nogil:
        if not self.mine[block]:
            return Streams.failed(self, block)
        with gil:
            self.give_up(block)
        return 0

    def attach(self):
        """Offers open blocks to the FTL's attach(); those that it does not keep are closed. Without that method, all
        are."""
        cdef uint32_t block, i, room = self.ssd.pool.pages_per_block
        offered = {}
        memset(self.mine, 0, self.ssd.nand.blocks)
        self.open_n[0] = self.open_n[1] = 0
        if self.streams_n != self.ssd.pool.streams_n:
            self.learn_streams()
        for i in range(self.streams_n * self.most):
            self.open_of[i] = NONE
        for block in range(self.ssd.pool.blocks):
            if self.ssd.pool.state[block] == STATE_CLOSED:
                self.ssd.close(block)
            elif self.ssd.pool.state[block] == STATE_OPEN:
                if self.ssd.pool.stream[block] <= STREAM_GC and self.ssd.pool.next_page[block] < room:
                    self.mine[block] = self.ssd.pool.stream[block] + 1
                    self.open_n[self.ssd.pool.stream[block]] += 1
                    offered[block] = STREAM_NAMES[self.ssd.pool.stream[block]]
                else:
                    self.ssd.close(block)
        asked = getattr(self.plugin.ftl, "attach", None)
        try:
            kept = set() if asked is None or not offered else set(asked(dict(offered)))
            wrong = [block for block in kept if block not in offered]
        except BaseException as error:
            raise self.plugin.broke(f"attach(blocks={reprlib.repr(offered)})", error) from error
        if wrong:
            raise self.plugin.mistake(f"attach(blocks={reprlib.repr(offered)})",
                                      f"returned {reprlib.repr(wrong[0])} among others: it should be one of these")
        for block in offered:
            if block not in kept or self.open_n[self.mine[block] - 1] > self.open_most[self.mine[block] - 1]:
                self.give_up(block)


cdef class PyCleaning(Greedy):
    """Cleaning by victim() of the user's class: a block, or a list of blocks to be moved together. The engine moves the
    pages."""

    def __dealloc__(self):
        free(self.victims)

    def attach(self, Plugin plugin, uint32_t most):
        """``most``: blocks that victim() may name at once."""
        self.plugin = plugin
        self.most = most
        self.victims = <uint32_t*> malloc(most * sizeof(uint32_t))
        if self.victims == NULL:
            raise MemoryError
        if most > 1:
            self.ssd.carry(most * self.ssd.nand.pages_per_block)
        return self

    cdef int clean(self) except -1 nogil:
        cdef uint32_t n, victim = self.ssd.victims.fewest()
        if victim == NONE or self.ssd.victims.valid[victim] >= self.ssd.nand.pages_per_block:
            return Greedy.clean(self)  # nothing to choose from: it raises the error
        with gil:
            self.plugin.healthy()
            n = self.choose()
        if n == 1:
            return self.ssd.relocate(self.victims[0], STREAM_GC, CAUSE_GC)
        return self.ssd.relocate_blocks(self.victims, n, STREAM_GC, CAUSE_GC)

    cdef uint32_t choose(self) except? 0xFFFFFFFE:
        """Calls victim(), and checks and stores the blocks; returns how many."""
        cdef uint32_t n = 0, live = 0
        try:
            said = self.plugin.ftl.victim()
        except BaseException as error:
            raise self.plugin.broke("victim()", error, True) from error
        named = said if isinstance(said, list) else [said]
        if not 1 <= len(named) <= self.most:
            raise self.plugin.mistake("victim()", f"returned {len(named)} blocks: it should be 1 to {self.most}, as "
                                      "group_blocks says")
        for one in named:
            self.check_victim(one, reprlib.repr(said))
            if one in named[:n]:
                raise self.plugin.mistake("victim()", f"returned block {one} twice")
            self.victims[n] = one
            live += self.ssd.validity.count(self.victims[n])
            n += 1
        if live >= n * self.ssd.nand.pages_per_block:
            raise self.plugin.mistake(
                "victim()", f"returned {f'block {self.victims[0]}' if n == 1 else f'{n} blocks'}, whose pages are all "
                "live: nothing is gained by moving them")
        return n

    cdef int check_victim(self, said, call) except -1:
        if not is_whole(said) or not 0 <= said < self.ssd.nand.blocks:
            raise self.plugin.mistake("victim()", f"returned {call}: it should be one of chip.closed_blocks()")
        if self.ssd.pool.state[<uint32_t> said] != STATE_CLOSED:
            state = self.ssd.pool.describe(said)["state"]
            raise self.plugin.mistake("victim()", f"returned block {said}, which is {state}: it should be one "
                                      "of chip.closed_blocks()")
        return 0
