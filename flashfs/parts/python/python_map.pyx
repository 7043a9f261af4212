# cold
# distutils: language = c++
"""The bridge's mapping: lookup, bind and unbind of an FTL in Python, each answer checked against what the engine knows.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from flashfs.parts.defaults.map_check cimport MapCheck
from flashfs.parts.python.python_ftl cimport Plugin
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.contract.extensions cimport Runs, Sharing
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.contract.extent cimport Extent
from flashfs.engine.blocks.pool cimport (
    CAUSE_MAP,
    CAUSE_RECOVERY,
    KIND_USER,
    NONE,
    OOB_ENGINE,
    Oob,
    read_oob,
)
from nandimg._nand cimport PAGE_ERASED, PAGE_OK

import reprlib

from flashfs.errors import MISTAKES, FtlError

cdef enum:
    MOST_MISSES = 4096       # guesses at one LPA after which they are taken for a cycle
    ORDER_BYTES = 8          # before the bytes of save(): the newest block's order, for a rebuild


cdef class PyRuns(Runs):
    """``run(lpas, ppas)`` of the class."""

    def __cinit__(self, PyMapping map not None):
        self.map = map

    cdef int ends(self, const uint32_t* lpas, const uint32_t* ppas, uint32_t n) except -1 nogil:
        cdef uint32_t i
        with gil:
            try:
                self.map.plugin.ftl.run([lpas[i] for i in range(n)], [ppas[i] for i in range(n)])
            except BaseException as error:
                raise self.map.plugin.broke(f"run(lpas=[{lpas[0]}, ...])", error) from error
        return 0


cdef class PySharing(Sharing):
    """``sharers(ppa)`` and ``copied(lpa, seq, ppa)`` of the class."""

    def __cinit__(self, PyMapping map not None):
        self.map = map

    cdef bint is_page_of(self, uint32_t lpa, uint32_t ppa, uint32_t said) except -1 nogil:
        with gil:
            return lpa in self.map.sharers(ppa)

    cdef bint shared_by_others(self, uint32_t ppa, uint32_t lpa) except -1 nogil:
        with gil:
            return any(one != lpa for one in self.map.sharers(ppa))

    cdef uint32_t recovered_copy(self, uint32_t lpa, uint64_t seq, uint32_t ppa,
                                 bint* own) except? 0xFFFFFFFE nogil:
        with gil:
            return self.map.copied(lpa, seq, ppa, own)


cdef class PyMapping(Mapping):
    """Mapping by lookup, bind and unbind of the user's class, and its optional methods."""

    def __cinit__(self, Plugin plugin, uint32_t scheme_oob, uint64_t save_most, bint rebuilds):
        self.ssd = plugin.ssd
        self.plugin = plugin
        self.scheme_oob = scheme_oob
        self.save_most = save_most
        self.rebuilds = rebuilds
        self.guesses = hasattr(plugin.cls, "after_miss")
        self.saves = hasattr(plugin.cls, "save")
        self.sharing = PySharing(self) if hasattr(plugin.cls, "sharers") else None
        self.runs = PyRuns(self) if hasattr(plugin.cls, "run") else None
        self.half_erased = set()
        self.unread = []
        self.bound = <uint8_t*> calloc(self.ssd.lpas // 8 + 1, 1)
        self.raw = <uint8_t*> malloc(self.ssd.nand.oob_bytes)
        if not (self.bound and self.raw):
            raise MemoryError

    def __dealloc__(self):
        free(self.bound)
        free(self.raw)

    # --- the bridge's own knowledge

    cdef bint judged(self):
        """Whether answers can be checked: not during a recovery, and not on a device that has failed."""
        return self.plugin.ssd.ready and self.ssd.failed is None

    cdef bint is_bound(self, uint32_t lpa):
        return (self.bound[lpa >> 3] >> (lpa & 7)) & 1

    cdef int mark(self, uint32_t lpa, bint is_bound):
        if is_bound:
            self.bound[lpa >> 3] |= 1 << (lpa & 7)
        else:
            self.bound[lpa >> 3] &= ~(1 << (lpa & 7))
        return 0

    cdef bint alive(self, uint32_t ppa):
        """Whether the page is live, or was just programmed as part of the run whose LPAs are being bound."""
        return self.ssd.validity.is_live(ppa) or (self.run_at <= ppa and ppa - self.run_at < self.run_n)

    cdef int spare(self, uint32_t ppa, Oob* oob) except -1:
        """Reads the spare area into ``oob``; returns the page's status."""
        cdef uint8_t status = 0
        self.ssd.map_ns = read_oob(self.ssd.nand, ppa, self.raw, oob, &status, CAUSE_MAP, self.ssd.map_ns)
        return status

    cdef str holds(self, uint32_t ppa):
        """What is really at a PPA, as text."""
        cdef Oob oob
        cdef uint8_t status = self.spare(ppa, &oob)
        if status != PAGE_OK:
            return "which is erased" if status == PAGE_ERASED else "which is torn"
        if oob.kind != KIND_USER:
            return "which holds metadata"
        return f"which holds LPA {oob.lpa}"

    cdef int names(self, uint32_t ppa, uint32_t lpa) except -1:
        """By a spare read: 1 if the page at ``ppa`` is the host's and of ``lpa``, 0 if it is another's, 2 if it is
        erased, or unreadable in a block whose erase may be lost, 3 if it is unreadable."""
        cdef Oob oob
        cdef uint8_t status = self.spare(ppa, &oob)
        if status != PAGE_OK:
            erased = status == PAGE_ERASED or self.ssd.nand.lost_erase(ppa // self.ssd.nand.pages_per_block)
            return 2 if erased else 3
        return oob.kind == KIND_USER and oob.lpa == lpa

    # --- queries

    cdef uint32_t where(self, uint32_t lpa) except? 0xFFFFFFFE:
        """What lookup returns, with type and range checked."""
        try:
            found = self.plugin.ask_lookup(lpa)
        except BaseException as error:
            raise self.plugin.broke(f"lookup(lpa={lpa})", error) from error
        if type(found) is int and 0 <= found < self.plugin.pages:  # the usual case
            return found
        return self.plugin.to_ppa(found, f"lookup(lpa={lpa})")

    cdef uint32_t settled(self, uint32_t lpa) except? 0xFFFFFFFE:
        """What lookup returns, checked without reading flash: a bound LPA must be at a live page."""
        cdef uint32_t ppa = self.where(lpa)
        if not self.judged():
            return ppa
        if self.plugin.verify and (ppa != NONE) != self.is_bound(lpa):
            raise self.misbound(lpa, ppa)
        if self.guesses and ppa != NONE:
            while not self.alive(ppa):  # even without verify: else an older copy of this LPA would be taken for it
                ppa = self.next_guess(lpa, ppa)
                if ppa == NONE:
                    raise self.wrong(lpa, "neither it nor after_miss names a live page")
        elif self.plugin.verify and ppa != NONE and not self.alive(ppa):
            raise self.wrong(lpa, f"returned PPA {ppa}, {self.holds(ppa)} and is not live")
        return ppa

    cdef object wrong(self, uint32_t lpa, said):
        """The error to raise for a wrong answer of lookup."""
        return self.plugin.mistake(f"lookup(lpa={lpa})", said)

    cdef object misbound(self, uint32_t lpa, uint32_t ppa):
        return self.wrong(
            lpa, "returned None, but this LPA was bound, and never unbound since" if ppa == NONE
            else f"returned PPA {ppa}, but this LPA was never bound, or was unbound since; it should be None")

    cdef bint maps_to(self, uint32_t lpa, uint32_t ppa) except -1 nogil:
        """A misdirected page names an LPA that is elsewhere, and the page there names that LPA too. If it does not, the
        FTL is wrong, and not this page: cleaning would poison a page that was flushed, and is whole."""
        with gil:
            return self.claims(lpa, ppa)

    cdef bint claims(self, uint32_t lpa, uint32_t ppa) except -1:
        cdef uint32_t at
        if Mapping.maps_to(self, lpa, ppa):
            return True
        if self.sharing is not None or not self.judged() or not self.alive(ppa) or not self.is_bound(lpa):
            return False
        at = self.where(lpa)
        if at == NONE or at == ppa or self.guesses:
            return at == ppa
        if not self.alive(at) or self.names(at, lpa) in (0, 2):
            raise self.wrong(lpa, f"does not say PPA {ppa}, which is live and says that it is this LPA's; PPA {at}, "
                             f"{self.holds(at)}, is not")
        return False

    cdef uint32_t next_guess(self, uint32_t lpa, uint32_t ppa) except? 0xFFFFFFFE:
        """What after_miss returns; guesses that never end are a mistake."""
        cdef uint32_t found
        call = f"after_miss(lpa={lpa}, ppa={ppa})"
        self.misses = self.misses + 1 if self.miss_lpa == lpa else 0
        self.miss_lpa = lpa
        try:
            said = self.plugin.ask_after_miss(lpa, ppa)
        except BaseException as error:
            raise self.plugin.broke(call, error) from error
        found = self.plugin.to_ppa(said, call)
        if found == ppa or self.misses > MOST_MISSES:
            raise self.plugin.mistake(call, f"returned PPA {found}: the guesses go round in circles; None ends them")
        return found

    cdef uint32_t sure(self, uint32_t lpa) except? 0xFFFFFFFE:
        """Where ``lpa`` is for certain; a guess is checked by a spare read."""
        cdef uint32_t ppa = self.settled(lpa), unread = NONE
        cdef int found
        self.misses = 0
        if not self.guesses or ppa == NONE:
            return ppa
        while ppa != NONE:
            if self.alive(ppa):
                found = self.names(ppa, lpa)
                if found == 1:
                    return ppa
                if found == 2 and not self.plugin.ssd.ready:
                    self.half_erased.add(ppa // self.ssd.nand.pages_per_block)
                if found == 3 and unread == NONE:
                    unread = ppa
            ppa = self.next_guess(lpa, ppa)
        if self.judged():
            self.missed(lpa)
        return unread  # an unreadable page may be this LPA's

    cdef uint32_t leaves(self, uint32_t lpa) except? 0xFFFFFFFE:
        """The old place of ``lpa``: that page is about to die, so it must be the right one."""
        cdef uint32_t ppa = self.sure(lpa)
        if ppa == NONE or not self.plugin.ssd.ready:
            return ppa
        if not self.alive(ppa):
            raise self.wrong(lpa, f"returned PPA {ppa}, {self.holds(ppa)} and is not live")
        if self.plugin.verify and not self.guesses and self.sharing is None and self.names(ppa, lpa) == 0:
            raise self.wrong(lpa, f"returned PPA {ppa}, {self.holds(ppa)}")
        return ppa

    cdef int must_find(self, uint32_t lpa, uint32_t ppa, call) except -1:
        """Checks after a call (None: before a move) that lookup leads to ``ppa``, directly or after other guesses."""
        cdef uint32_t found = self.where(lpa), first = found
        self.misses = 0
        while found != ppa and found != NONE and ppa != NONE and self.guesses:
            found = self.next_guess(lpa, found)
        if found != ppa:
            said = "None" if first == NONE else f"PPA {first}"
            if call is None:
                raise self.wrong(lpa, f"returned {said}: cleaning found it at PPA {ppa}")
            raise self.plugin.mistake(call, f"lookup({lpa}) then says {said}; it should "
                                      f"be {'None' if ppa == NONE else f'PPA {ppa}'}")
        return 0

    # --- changes

    cdef int put(self, uint32_t lpa, uint32_t ppa) except -1:
        try:
            self.plugin.ask_bind(lpa, ppa)
        except BaseException as error:
            raise self.plugin.broke(f"bind(lpa={lpa}, ppa={ppa})", error) from error
        if self.plugin.verify:
            self.must_find(lpa, ppa, f"bind(lpa={lpa}, ppa={ppa})")
        self.mark(lpa, True)
        return 0

    cdef int take_back(self, uint32_t lpa) except -1:
        try:
            self.plugin.ask_unbind(lpa)
        except BaseException as error:
            raise self.plugin.broke(f"unbind(lpa={lpa})", error) from error
        if self.plugin.verify:
            self.must_find(lpa, NONE, f"unbind(lpa={lpa})")
        self.mark(lpa, False)
        return 0

    # --- the interface

    cdef int lookup(self, const uint32_t* lpas, uint32_t n, uint32_t* ppas) except -1 nogil:
        cdef uint32_t i
        with gil:
            for i in range(n):
                ppas[i] = self.settled(lpas[i])
            self.misses = 0
        return 0

    cdef uint32_t after_miss(self, uint32_t lpa, uint32_t ppa, const uint8_t* oob) except? 0xFFFFFFFE nogil:
        with gil:
            if self.guesses:
                ppa = self.next_guess(lpa, ppa)
                while ppa != NONE and not self.alive(ppa):
                    ppa = self.next_guess(lpa, ppa)
                if ppa == NONE and self.judged():
                    self.missed(lpa)
                return ppa
            raise self.wrong(lpa, f"returned PPA {ppa}, {self.holds(ppa)}")

    cdef int bind(self, const uint32_t* lpas, uint32_t n, uint32_t ppa, uint32_t choice,
                  uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        with gil:
            self.plugin.healthy()
            self.run_at = ppa
            try:
                for i in range(n):
                    self.run_n = i
                    olds[i] = self.leaves(lpas[i])
                    self.put(lpas[i], ppa + i)
                    if self.sharing is not None and olds[i] != NONE and self.sharers(olds[i]):
                        olds[i] = NONE
            finally:
                self.run_n = 0
        return 0

    cdef int moved(self, const uint32_t* lpas, const uint32_t* olds, const uint32_t* news, uint32_t n) except -1 nogil:
        cdef uint32_t i
        with gil:
            self.plugin.healthy()
            for i in range(n):
                if self.sharing is not None:
                    self.move_shared(olds[i], news[i])
                    continue
                if self.plugin.verify:
                    self.must_find(lpas[i], olds[i], None)
                self.put(lpas[i], news[i])
        return 0

    # --- pages that several LPAs share

    cdef list sharers(self, uint32_t ppa):
        """The LPAs that the FTL says are at that page, with type and range checked."""
        call = f"sharers(ppa={ppa})"
        try:
            said = self.plugin.ftl.sharers(ppa)
        except BaseException as error:
            raise self.plugin.broke(call, error) from error
        if not isinstance(said, list) or any(type(lpa) is not int or not 0 <= lpa < self.ssd.lpas for lpa in said):
            raise self.plugin.mistake(call, f"returned {reprlib.repr(said)}: it should be a list of LPAs")
        if self.plugin.verify:
            for lpa in said:
                if self.where(lpa) != ppa:
                    raise self.plugin.mistake(call, f"returned {reprlib.repr(said)}: lookup has LPA {lpa} elsewhere")
        return said

    cdef uint32_t copied(self, uint32_t lpa, uint64_t seq, uint32_t ppa, bint* own) except? 0xFFFFFFFE:
        """What the FTL's copied() returns for a page that a recovery found, as ``Sharing.recovered_copy``."""
        call = f"copied(lpa={lpa}, seq={seq}, ppa={ppa})"
        try:
            said = self.plugin.ftl.copied(lpa, seq, ppa)
        except BaseException as error:
            raise self.plugin.broke(call, error) from error
        if said is None:
            return NONE
        if not isinstance(said, tuple) or len(said) != 2 or not isinstance(said[1], bool):
            raise self.plugin.mistake(call, f"returned {reprlib.repr(said)}: it should be None, or (PPA, whether the "
                                      "LPA is there)")
        own[0] = said[1]
        return self.plugin.to_ppa(said[0], call)

    cdef int move_shared(self, uint32_t old, uint32_t new) except -1:
        """Moves all LPAs at ``old`` to ``new``."""
        them = self.sharers(old)
        call = f"moved(old={old}, new={new})"
        try:
            self.plugin.ftl.moved(old, new)
        except BaseException as error:
            raise self.plugin.broke(call, error) from error
        for lpa in them if self.plugin.verify else ():
            self.must_find(lpa, new, call)
        return 0

    def share(self, uint32_t lpa, uint32_t source):
        """From now on ``lpa``, which must hold nothing (else ValueError), shares the page of ``source``. This is not
        durable before the next checkpoint, unless the FTL has a log of its own."""
        cdef uint32_t ppa = self.settled(source)
        self.plugin.healthy()
        if lpa >= self.ssd.lpas or source >= self.ssd.lpas or ppa == NONE or self.is_bound(lpa):
            raise ValueError(f"LPA {lpa} is to share the page of {source}: the one must hold nothing, the other a page")
        try:
            self.plugin.ftl.remap(lpa, source)
        except BaseException as error:
            raise self.plugin.broke(f"remap(lpa={lpa}, source={source})", error) from error
        if self.plugin.verify:
            self.must_find(lpa, ppa, f"remap(lpa={lpa}, source={source})")
        self.mark(lpa, True)

    cdef int unbind(self, uint32_t lpa, uint32_t n, uint32_t* olds) except -1 nogil:
        cdef uint32_t i
        cdef int shared = 0
        with gil:
            self.plugin.healthy()
            if self.unread:
                self.drop_unread()
            for i in range(n):
                olds[i] = self.leaves(lpa + i)
                # in a recovery, the page of a guess may be gone by now: the trim counts all the same
                if olds[i] != NONE or (not self.plugin.ssd.ready and self.where(lpa + i) != NONE):
                    self.take_back(lpa + i)
                if self.sharing is not None and olds[i] != NONE and self.sharers(olds[i]):
                    olds[i] = NONE
                    shared += 1
        return shared

    cdef uint32_t locate(self, uint32_t lpa) except? 0xFFFFFFFE nogil:
        with gil:
            if self.unread:
                self.drop_unread()
            return self.sure(lpa)

    cdef int stamp(self, uint8_t* oob, const uint32_t* lpas, const Extent* at, uint32_t before,
                   uint32_t behind) except -1 nogil:
        cdef uint32_t i, ppa
        with gil:
            for i in range(at.n):
                ppa = at.block * self.ssd.nand.pages_per_block + at.page + i
                call = f"stamp(lpa={lpas[i]}, ppa={ppa})"
                try:
                    raw = self.plugin.ftl.stamp(lpas[i], ppa)
                except BaseException as error:
                    raise self.plugin.broke(call, error) from error
                if type(raw) is not bytes or len(raw) != self.scheme_oob:
                    what = f"{len(raw)} bytes" if isinstance(raw, bytes) else reprlib.repr(raw)
                    raise self.plugin.mistake(call, f"returned {what}: it should be {self.scheme_oob} bytes")
                memcpy(oob + i * self.ssd.nand.oob_bytes, <const char*> raw, self.scheme_oob)
        return 0

    # --- recovery

    cdef int recovered(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1 nogil:
        with gil:
            if self.unread:
                self.drop_unread()
            if ppa == NONE:
                if self.where(lpa) != NONE:
                    self.take_back(lpa)
            else:
                self.restored(lpa, ppa, scheme_oob)
        return 0

    cdef int restored(self, uint32_t lpa, uint32_t ppa, const uint8_t* scheme_oob) except -1:
        """Calls recovered() with the page's stamp if the FTL has it, else bind()."""
        asked = getattr(self.plugin.ftl, "recovered", None)
        if asked is None:
            return self.put(lpa, ppa)
        call = f"recovered(lpa={lpa}, ppa={ppa})"
        try:
            asked(lpa, ppa, <bytes> scheme_oob[:self.scheme_oob])
        except BaseException as error:
            raise self.plugin.broke(call, error) from error
        if self.plugin.verify:
            self.must_find(lpa, ppa, call)
        self.mark(lpa, True)
        return 0

    def recovery_erased(self):
        return self.half_erased

    def is_exact(self):
        return not self.guesses

    def recovery_ends(self):
        """Validity is final now, so the whole map can be compared with it before the device is used."""
        self.half_erased = set()
        if self.unread:
            self.drop_unread()
        if self.plugin.verify and not self.guesses:
            self.audit()

    def reset(self):
        self.plugin.fresh()
        self.half_erased = set()
        self.unread = []
        self.unreadable = 0
        memset(self.bound, 0, self.ssd.lpas // 8 + 1)

    def audit(self):
        """Checks every LPA: bound or not as the bridge knows, at a live page, no two at one page, and every live page
        named. Raises FtlError. Returns the map, 4 bytes per LPA."""
        cdef uint32_t lpa, ppa
        cdef MapCheck agreement = MapCheck(self.ssd)
        table = bytearray(4 * self.ssd.lpas)
        cdef uint8_t[::1] out = table
        for lpa in range(self.ssd.lpas):
            ppa = self.where(lpa)
            memcpy(&out[4 * lpa], &ppa, 4)
            if (ppa != NONE) != self.is_bound(lpa):
                raise self.misbound(lpa, ppa)
            if ppa == NONE or self.guesses:
                continue
            if not agreement.enter(ppa):
                if self.ssd.validity.is_live(ppa):
                    raise self.wrong(lpa, f"returned PPA {ppa} for a second LPA, {self.holds(ppa)}")
                raise self.wrong(lpa, f"returned PPA {ppa}, {self.holds(ppa)} and is not live")
        if not self.guesses and agreement.fault_of_all(0) is not None:
            ppa = agreement.unnamed()
            raise self.plugin.mistake("lookup()", f"no LPA is said to be at PPA {ppa}, {self.holds(ppa)}, live")
        return table

    cdef missed(self, uint32_t lpa):
        """The guesses have ended without a hit. Searches flash: if a live page names the LPA, the FTL is wrong; else
        the page is damaged."""
        cdef uint32_t ppa
        for ppa in range(self.plugin.pages):
            if self.ssd.validity.is_live(ppa) and self.names(ppa, lpa) == 1:
                raise self.wrong(lpa, f"neither it nor after_miss names PPA {ppa}, which holds it")

    # --- checkpoints

    def save(self):
        """The FTL's own bytes, checked with ``prove`` under ``verify``; or a plain table, 4 bytes per LPA."""
        cdef uint64_t order = self.ssd.pool.last_order
        self.plugin.healthy()
        table = self.audit() if self.plugin.verify or not self.saves else None
        if not self.saves:
            return {"map": table}
        try:
            raw = self.plugin.ftl.save()
        except BaseException as error:
            raise self.plugin.broke("save()", error) from error
        if not isinstance(raw, (bytes, bytearray)) or <uint64_t> len(raw) > self.save_most:
            what = f"{len(raw)} bytes" if isinstance(raw, (bytes, bytearray)) else reprlib.repr(raw)
            raise self.plugin.mistake("save()", f"returned {what}: it should be bytes, {self.save_most} at most")
        if table is not None:
            self.prove(bytes(raw), table)
        return {"ftl": int(order).to_bytes(ORDER_BYTES, "little") + bytes(raw)}

    def prove(self, raw, const uint8_t[::1] table not None):
        """Checks that a new object that loads ``raw`` has the same map as ``table``."""
        cdef uint32_t lpa, ppa, found
        twin = self.plugin.make()
        try:
            twin.load(raw)
        except BaseException as error:
            raise self.plugin.broke(f"load({len(raw)} bytes)", error) from error
        for lpa in range(self.ssd.lpas):
            memcpy(&ppa, &table[4 * lpa], 4)
            try:
                found = self.plugin.to_ppa(twin.lookup(lpa), f"lookup(lpa={lpa})")
            except BaseException as error:
                raise self.plugin.broke(f"lookup(lpa={lpa})", error) from error
            if found != ppa:
                raise self.plugin.mistake(
                    "save()", f"lookup({lpa}) says {'None' if ppa == NONE else f'PPA {ppa}'}, but "
                    f"{'None' if found == NONE else f'PPA {found}'} of an object that has loaded what it saved")

    def load(self, sections):
        """The inverse; with the option `rebuild`, from the live pages' OOBs instead of the saved bytes."""
        cdef uint32_t lpa, ppa
        cdef const uint8_t[::1] table
        self.reset()
        if "map" in sections:
            table = sections["map"]
            for lpa in range(self.ssd.lpas):
                memcpy(&ppa, &table[4 * lpa], 4)
                if ppa != NONE:
                    self.put(lpa, ppa)
            return
        raw = bytes(sections["ftl"])
        if self.rebuilds:
            self.rebuild(sections, int.from_bytes(raw[:ORDER_BYTES], "little"))
            return
        raw = raw[ORDER_BYTES:]
        try:
            self.plugin.ftl.load(raw)
        except BaseException as error:
            raise FtlError(f"{self.plugin.broke(f'load({len(raw)} bytes)', error)}; "
                           "--opt rebuild=1 makes the map anew from flash") from error
        for lpa in range(self.ssd.lpas):
            self.mark(lpa, self.where(lpa) != NONE)

    cdef rebuild(self, sections, uint64_t order):
        """Restores the map from the OOBs of all pages that were live at the checkpoint; blocks opened since are left to
        the scan."""
        cdef const uint8_t[::1] pvb = sections["pvb"]
        cdef uint32_t block, page, per_block = self.ssd.nand.pages_per_block
        cdef uint32_t stride = (per_block + 63) // 64 * 8
        cdef uint8_t* raw = self.plugin.ssd.read_oobs
        cdef uint8_t status = 0
        cdef Oob oob
        for block in range(self.ssd.nand.blocks):
            for page in range(per_block):
                if not pvb[block * stride + (page >> 3)] >> (page & 7) & 1:
                    continue
                read_oob(self.ssd.nand, block * per_block + page, raw, &oob, &status, CAUSE_RECOVERY, self.ssd.now_ns)
                if status != PAGE_OK:
                    self.unread.append(block * per_block + page)
                elif oob.kind == KIND_USER and oob.lpa < self.ssd.lpas and oob.order <= order:
                    self.restored(oob.lpa, block * per_block + page, raw + OOB_ENGINE)

    cdef int drop_unread(self) except -1:
        """Lets pages die whose owner a rebuild could not read. Nearly always their block was being erased, with all its
        pages superseded; if they stayed live, the recovery would undo the move that superseded them. This is not done
        in `rebuild` because the validity store is loaded after the map."""
        cdef uint32_t ppa
        for ppa in self.unread:
            if self.ssd.validity.is_live(ppa):
                self.ssd.validity.dead(&ppa, 1)
                self.unreadable += 1
        self.unread = []
        return 0

    # --- for users

    def tables(self):
        """The DRAM that the FTL says a controller would need; the memory that Python takes is not measured. The
        bridge's own bit for each LPA only serves the checks, so a controller has 0 bytes for it."""
        said = {name: (held, held) for name, held in self.plugin.dram().items()}
        return {**said, "bridge": (0, self.ssd.lpas // 8 + 1)} if self.plugin.verify else said

    def figures(self):
        own = dict(self.plugin.optional("figures", "figures()", dict, {}))
        return {**own, "rebuild_unreadable": self.unreadable} if self.rebuilds else own

    def forget_counts(self):
        self.plugin.optional("forget_counts", "forget_counts()", object, None)

    def explain(self, uint32_t lpa):
        cdef uint32_t ppa = self.where(lpa)
        asked = getattr(self.plugin.ftl, "explain", None)
        try:
            own = {} if asked is None else dict(asked(lpa))
        except MISTAKES as error:
            raise FtlError(f"{self.plugin.name}.explain(lpa={lpa}): raised {type(error).__name__}: {error}") from error
        return {**own, "ppa": None if ppa == NONE else ppa}

    def check(self):
        problems = [str(line) for line in self.plugin.optional("check", "check()", list, [])]
        if self.plugin.verify and self.ssd.failed is None:
            try:
                self.audit()
            except FtlError as error:
                problems.append(str(error))
        return problems


def build(Ssd ssd, str name, cls, options, uint32_t scheme_oob, uint64_t save_most):
    """(plugin, mapping) of one device; flashfs.ftl.python assembles the other parts."""
    plugin = Plugin(ssd, name, cls, options)
    return plugin, PyMapping(plugin, scheme_oob, save_most, bool(options["rebuild"]))
