"""The Python face of a device: create, open, read, write, trim, remap, flush, statistics, checkpoint, close."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import nandimg
from flashfs import budget
from flashfs._core import Ssd
from flashfs.bound import CHECKPOINT_FILLS, FEATURES, PAGE_NUMBERS, check_features, check_trust, stored_options
from flashfs.budget import Cut, fit
from flashfs.engine.blocks.pool import SAVED_BYTES, STATE_NAMES
from flashfs.engine.device import byte_requests
from flashfs.engine.device.buffer import SLOT_HEAD, nvram_bytes, nvram_slots, slots_in_use
from flashfs.engine.device.lifetime_counters import Life
from flashfs.engine.device.metalog import life_of, newest_slot
from flashfs.engine.recovery import recovery
from flashfs.engine.views import block_map
from flashfs.engine.views.cross_check import cross_check
from flashfs.errors import BindError, DeviceFullError, RoomError, UsageError
from flashfs.ftl import Scheme, scheme
from flashfs.ftl.class_names import name_of
from flashfs.ftl.common import FEW_BLOCKS, require_pairs
from flashfs.sizing import op as sizing_op
from flashfs.sizing.defaults import DEFAULT_FTL
from nandimg import Geometry, Image
from nandimg.header import WRITE_BUFFER
from nandimg.presets import PRESETS

ENGINE_OOB = 20  #: bytes of OOB that the engine stamps; a scheme's own follow
MANY_PAGES = 1 << 24  #: above this, a trial device is collected before the real one is built, which takes a moment
SYNC_MODES = ("flush", "none")
SPREAD_SHARE = 8  #: the default ``wear_spread`` is the endurance divided by this
LEAST_SPREAD = 2  #: with less, blocks that are all in use would be emptied in turn

Front = Callable[[nandimg.Chip], nandimg.Nand]  #: wraps a chip; the engine uses the result as its chip


def saved_bytes(of: Scheme, geometry: Geometry, options: dict[str, Any] | None = None, dram: int | None = None) -> int:
    """The largest size of a checkpoint, in bytes: the sections of the scheme's parts, and the block pool."""
    parts = of.checkpoint_sections(geometry, of.resolve({}) if options is None else options, dram)
    return sum(parts.values()) + geometry.blocks * SAVED_BYTES


def default_buffer(of: Scheme, geometry: Geometry) -> int:
    """Pages of the write buffer: what the scheme wants, 1 at least, and at most 1/16 of the chip's pages. Rounded down
    to whole blocks if it is emptied in LPA order and holds a block."""
    pages = min(max(1, of.buffer_bytes // geometry.page_bytes), max(1, geometry.pages // 16))
    whole = pages - pages % geometry.pages_per_block
    return whole if of.buffer_in_order and whole else pages


def wear_spread(options: dict[str, Any], geometry: Geometry) -> int:
    """Erases by which the most worn block may lead the least worn. Without the option, 1/SPREAD_SHARE of the endurance:
    nothing is copied for wear while the chip is new, and 7/8 of every block's life are used."""
    return max(LEAST_SPREAD, options["wear_spread"] or geometry.endurance // SPREAD_SHARE)


def build_ssd(
    of: Scheme, options: dict[str, Any], nand: nandimg.Nand, *, durable: bool = True, plp: bool = False,
    readonly: bool = False, dram: int | None = None, on_disk: bool | None = None,
) -> Ssd:  # fmt: skip
    """An Ssd of this scheme on that chip, neither formatted nor recovered yet. ``options`` must be complete; ``dram``
    is the budget in bytes, if there is one. ``on_disk``: size it as if the chip were in a file (or not); None: ask the
    chip."""
    geometry = nand.geometry
    buffer_pages = options["buffer"] if options["buffer"] >= 0 else default_buffer(of, geometry)
    if readonly:  # nothing is written: room for the pages that the NVRAM saved
        buffer_pages = max(1, _used_slots(nand))
    elif plp:
        buffer_pages = _protected_pages(nand, max(1, buffer_pages))
    reserve = options["gc_reserve"]
    if not reserve and durable and (nand.on_disk if on_disk is None else on_disk) and geometry.blocks >= 64:
        reserve = max(2, geometry.blocks // 128)  # cleaned blocks are free only after the next sync of the image
    ssd = Ssd(
        nand, geometry.lpas, of.oob_with(options), buffer_pages=buffer_pages, plp=plp and not readonly,
        buffer_in_order=of.buffer_in_order, durable=durable, wear_spread=wear_spread(options, geometry),
        wear_reads=options["wear_reads"] if options["wear"] == "scan" else 0, gc_reserve=reserve,
        checkpoint_every=options["checkpoint_every"],
    )  # fmt: skip
    if readonly:
        ssd.freeze()
    ssd.plan_meta(saved_bytes(of, geometry, options, dram))
    options.update(of.derive(ssd, options))
    ssd.install(*of.build(ssd, options))
    if not options["gc_reserve"] and geometry.blocks >= FEW_BLOCKS:
        ssd.reserve_for(2 * geometry.paired_pages)  # pages of several victims are grouped until a sync fills a group
    return ssd


def _used_slots(nand: nandimg.Nand) -> int:
    """Slots of the NVRAM in which a write buffer has ever saved a page."""
    at, size = (nand.region(WRITE_BUFFER) or (0, 0))[0], nvram_bytes(1, nand.page_bytes)
    return sum(any(nand.nvram(at + slot * size, SLOT_HEAD)) for slot in slots_in_use(nand))


def _protected_pages(nand: nandimg.Nand, wanted: int) -> int:
    """Slots of a write buffer in NVRAM, at most ``wanted``; BindError if not even one fits."""
    room = nvram_slots(nand)
    if room < 1 or not nand.keeps_data:
        have = (nand.region(WRITE_BUFFER) or (0, 0))[1]
        with_nvram = [name for name, one in PRESETS.items() if one.geometry.nvram_bytes and not name.startswith("tiny")]
        raise BindError(f"--plp needs {nvram_bytes(1, nand.page_bytes)} bytes of NVRAM per buffered page: the image "
                        f"has {have}; make one with --preset {' or '.join(with_nvram)}")  # fmt: skip
    return min(wanted, room)


def may_shrink(options: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether a budget of DRAM may make the write buffer smaller: its size was not given, or only as the most."""
    return options["buffer"] < 0 or bool(settings.get("buffer_at_most"))


def _as_bytes(data: Any) -> memoryview:
    """Whatever has its bytes in one row: an array, too."""
    try:
        return memoryview(data).cast("B")
    except TypeError as error:
        why = f"data is {type(data).__name__}: use bytes, or an array that is contiguous ({error})"
        raise UsageError(why) from None


class Device:
    """One open device. Offsets and lengths are bytes, of any alignment; one caller at a time.

    Raises ImageError for a file that is not a usable image, BindError when the scheme cannot run on it, UsageError for
    unknown names and options, UncorrectableError (EIO) for a page that cannot be read.
    """

    def __init__(self, image: Image, nand: nandimg.Nand, of: Scheme, options: dict[str, Any], **settings: Any) -> None:
        """Build the device; use ``open`` or ``memory``, which also format or recover it."""
        self._image = image
        self._scheme = of
        self._settings = settings
        self.options = options
        self.readonly: bool = settings.get("readonly", False)
        self.ssd = build_ssd(of, options, nand, durable=settings.get("sync") != "none", plp=settings.get("plp", False),
                             readonly=self.readonly, dram=settings.get("dram"))
        features = {feature.name for feature in image.header.features}
        self.ssd.pool.numbers = PAGE_NUMBERS.name in features
        if CHECKPOINT_FILLS.name not in features:
            self.ssd.meta.fill_least = 0
        self.nand = nand
        self.page_bytes: int = nand.page_bytes
        self.size: int = nand.geometry.logical_bytes
        self.recovery = recovery.Report()
        self.cuts: list[Cut] = []  #: what is smaller than by default, for the budget of DRAM
        self.now_ns = 0  #: virtual arrival time of the next request, in ns; a caller sets it to let time pass
        self.end_ns = 0  #: virtual end of the last request, in ns

    @classmethod
    def open(
        cls, path: str | Path, *, ftl: str | type | None = None, options: dict[str, Any] | None = None,
        dram: int | None = None, sync: str = "flush", plp: bool = False, readonly: bool = False,
        repair: bool = False, front: Front | None = None, trust: bool = False, held: bool = False,
        alone: bool = False,
    ) -> Device:  # fmt: skip
        """Open an image, recovering whatever state it is in; a blank one is bound to ``ftl`` (pagemap) and formatted.
        ``ftl`` is a name, or the class of an FTL in Python.

        ``dram`` is a budget in bytes. With ``sync="none"`` a flush does not protect against a crash of the host.
        ``readonly`` changes nothing in the file, not even by recovering. ``front`` wraps the chip, as the faults of
        ``--fault`` do. ``repair`` skips a checkpoint that cannot be mounted. ``held``, for ``readonly``: this process
        holds the image's lock already, and changes nothing meanwhile. ``alone``, for ``readonly``: no other process may
        have it open, not even to read.

        A bound image names its FTL. An FTL that is not registered (a ``package.module:Class``) is imported only if
        ``ftl`` names it too, or with ``trust``; otherwise UntrustedError.
        """
        if sync not in SYNC_MODES:
            raise UsageError(f"sync {sync!r}: use {' or '.join(SYNC_MODES)}")
        image = nandimg.open_image(path, readonly=readonly, held=held, alone=alone)
        try:
            return cls.start(image, ftl, options or {}, front, dram=dram, sync=sync, plp=plp, readonly=readonly,
                             repair=repair, trust=trust)
        except BaseException:
            with suppress(OSError):  # the first error is the one to report
                image.give_back()
            image.close()
            raise

    @classmethod
    def memory(
        cls, geometry: Geometry, ftl: str | type = DEFAULT_FTL, options: dict[str, Any] | None = None, *,
        backend: str = "file", plp: bool = False, dram: int | None = None,
    ) -> Device:  # fmt: skip
        """A device in memory, which ends with this process; ``ftl`` is a name, or the class of an FTL in Python."""
        return cls.start(nandimg.memory_image(geometry, backend), ftl, options or {}, plp=plp, dram=dram)

    @classmethod
    def start(
        cls, image: Image, ftl: str | type | None, given: dict[str, Any], front: Front | None = None, **settings: Any
    ) -> Device:
        """Bind if the image is blank, then build, format or recover."""
        if isinstance(ftl, type):
            ftl = name_of(ftl, stored=image.path is not None)
        fresh = not image.header.ftl
        if fresh:
            cls._bind(image, ftl or DEFAULT_FTL, given, settings)
        trusted = fresh or bool(settings.get("trust"))
        of, options = cls._bound(image, ftl, given, trusted, settings.get("readonly", False))
        try:
            device = cls(image, front(image.chip) if front else image.chip, of, options, **settings)
        except RoomError as error:  # it had room when it was bound, and only options have changed since
            why = f"{image.path}: with these options it has no room: {error.why}; use those that it was bound with"
            raise BindError(why) from None
        device.cuts = fit(device.ssd, settings.get("dram"), device.ftl,
                          buffer_given=device.readonly or not may_shrink(options, settings))
        if fresh:
            device.ssd.format()
            device.recovery.clean = device.recovery.fresh = True
        else:
            device.recover()
        if settings.get("dram") is not None:
            device.ssd.set_budget(settings["dram"])
        return device

    @classmethod
    def _bind(cls, image: Image, name: str, given: dict[str, Any], settings: dict[str, Any]) -> None:
        """Bind a blank image; all refusals happen before the image is changed."""
        if settings.get("readonly"):
            raise BindError(f"{image.path}: blank; `flashfs mount` binds it to an FTL and formats it")
        try:
            image.bind(*cls.try_bind(image, name, given, settings))
        except RoomError as error:
            if scheme(name).interpreted:  # user code is not called once per candidate size
                raise
            op = sizing_op.enough(
                image.header.geometry, lambda one: not isinstance(refusal(name, one, given, **settings), RoomError)
            )
            if op is None:
                raise
            raise BindError(f"{error.why}; use a chip made with --op {op:g}") from None

    @staticmethod
    def try_bind(image: Image, name: str, given: dict[str, Any], settings: dict[str, Any]) -> tuple[Any, ...]:
        """What Image.bind stores if that image is bound to ``name``; BindError if it cannot be. The file is not
        changed: a device is built, but not formatted."""
        of = scheme(name)
        options = of.resolve(given)
        need = ENGINE_OOB + of.oob_with(options)
        if need > image.header.geometry.oob_bytes:
            have = image.header.geometry.oob_bytes
            raise BindError(f"{name} needs {need} bytes of OOB per page: this chip has {have}; use --oob {need}")
        features = (*FEATURES, *of.features)
        nvram = of.nvram(image.header.geometry, options, settings.get("dram"))
        image.chip.plan_regions(image.bound(name, {}, need, features, nvram).layout)
        trial = build_ssd(of, options, image.chip, plp=settings.get("plp", False), dram=settings.get("dram"),
                          on_disk=settings.get("on_disk"))
        unused = (image.header.geometry.oob_bytes - need) * trial.mover.spares_kept()  # a bound image has what it needs
        fit(trial, settings.get("dram"), name, buffer_given=not may_shrink(options, settings), unused=unused)
        require_pairs(trial, name)
        of.check_new(trial, options)
        fixed = {option.name: options[option.name] for option in of.options if option.fixed}
        del trial
        if image.header.geometry.pages > MANY_PAGES:
            gc.collect()  # engine and parts refer to each other, and the device that is kept needs as much again
        return name, fixed, need, features, nvram

    @staticmethod
    def _bound(
        image: Image, ftl: str | None, given: dict[str, Any], trusted: bool, readonly: bool
    ) -> tuple[Scheme, dict[str, Any]]:
        """The scheme and the options of a bound image; an option that was fixed at binding cannot be changed."""
        name = image.header.ftl
        if ftl is not None and ftl != name:
            scheme(ftl)  # UsageError for an unknown name
            raise BindError(
                f"{image.path}: bound to {name} for life, not {ftl}: leave that out, or make another image for it"
            )
        if ftl is None and not trusted:
            check_trust(image.path, name)
        try:
            of = scheme(name)
        except UsageError as error:
            raise BindError(f"{image.path}: bound to {name}, which cannot be had: {error}") from None
        check_features(image, of, readonly=readonly)
        stored = stored_options(image, of)
        asked = of.resolve(given)
        for key, value in stored.items():
            if key in given and asked.get(key) != value:
                raise BindError(f"{image.path}: {key} was fixed at {value} when it was bound; a new image can differ")
        return of, of.resolve({**given, **stored})

    def recover(self) -> None:
        """Recover the state from the image. DeviceFullError if too few blocks are left even for that."""
        self._require_open()
        try:
            self.recovery = recovery.Recovery(self.ssd, self.readonly, self._settings.get("repair", False)).run()
        except DeviceFullError as error:
            raise DeviceFullError(f"{error}; `flashfs nbd {self.path} --read-only` reads what is there") from None

    # --- what a host does

    @property
    def path(self) -> Path | None:
        return self._image.path

    @property
    def ftl(self) -> str:
        return self._scheme.name

    @property
    def interpreted(self) -> bool:
        """Whether its FTL is written in Python, so that each request needs the interpreter."""
        return self._scheme.interpreted

    def _require_open(self) -> None:
        if self._image.chip.closed:
            raise UsageError("the device is closed")

    def _span(self, offset: int, length: int) -> None:
        self._require_open()
        if offset < 0 or length < 0 or offset + length > self.size:
            raise UsageError(f"offset {offset}, length {length}: the device has {self.size} bytes")

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset`` on; zeros where nothing was written or it was trimmed."""
        self._span(offset, length)
        return bytes(self.read_into(offset, bytearray(length)))

    def read_into(self, offset: int, into: bytearray) -> bytearray:
        """Fill ``into``."""
        self._span(offset, len(into))
        self.end_ns = byte_requests.read_range(self.ssd, offset, into, self.now_ns)
        return into

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> int:
        """Write ``data`` at ``offset``; durable after the next flush. Returns the number of bytes."""
        if not isinstance(data, bytes):
            data = _as_bytes(data)
        self._span(offset, len(data))
        self._writable()
        self.end_ns = byte_requests.write_range(self.ssd, offset, data, self.now_ns)
        return len(data)

    def trim(self, offset: int, length: int) -> None:
        """The range reads zeros from now on. Whole pages are trimmed; the parts of pages at the ends are
        overwritten."""
        self._span(offset, length)
        self._writable()
        self.end_ns = byte_requests.trim_range(self.ssd, offset, length, self.now_ns)

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy ``length`` bytes from ``source`` to ``target``; UsageError if the ranges overlap."""
        self._span(source, length)
        self._span(target, length)
        self._writable()
        if abs(source - target) < length:
            raise UsageError(f"copy of {length} bytes from {source} to {target}: the ranges overlap")
        self.end_ns = byte_requests.copy_range(self.ssd, source, target, length, self.now_ns)

    def remap(self, target: int, source: int, length: int, *, move: bool = False) -> None:
        """Make ``target`` read what ``source`` reads now; with ``move``, the source is trimmed. The ranges may overlap.
        A scheme that remaps shares whole pages if both offsets are equal modulo the page size; the rest is copied."""
        self._span(source, length)
        self._span(target, length)
        self._writable()
        self.end_ns = byte_requests.remap_range(self.ssd, source, target, length, move, self.now_ns)

    def fileno(self) -> int:
        """The descriptor of the image's file."""
        return self._image.chip_fd()

    def extent(self, offset: int, *, mapped: bool) -> int:
        """The offset of the first byte from ``offset`` on whose page is mapped (or, if not ``mapped``, is not); the
        device's size if there is none."""
        self._span(offset, 0)
        return offset + byte_requests.next_mapped(self.ssd, offset, self.size - offset, mapped)

    def flush(self) -> None:
        """Make everything acknowledged so far durable: it survives any later crash."""
        self._writable()
        self.ssd.sync_now(self.now_ns)
        self.end_ns = max(self.now_ns, self.quiet_at())

    def quiet_at(self) -> int:
        """The virtual time, in ns, at which all dies and channels are idle."""
        self._require_open()
        clock = self._image.chip.clock()
        return int(max(*clock["dies"], *clock["channels"]))

    def busy_ns(self) -> dict[str, list[int]]:
        """{"dies": [busy time of each in ns], "channels": [...]}, since the counters were reset."""
        self._require_open()
        clock = self._image.chip.clock()
        return {"dies": clock["die_busy"], "channels": clock["channel_busy"]}

    def stay_pageable(self) -> None:
        """Let the image's mappings be paged out, even if the process has locked its memory."""
        self._image.chip.stay_pageable()

    def checkpoint(self) -> None:
        self._writable()
        self.ssd.checkpoint()

    def close(self, clean: bool = True) -> None:
        """Close the image. ``clean`` flushes and writes a checkpoint first, so the next mount needs no scan."""
        try:
            if clean and not self.readonly and not self._image.chip.closed:
                self.leave()
        finally:
            self._image.close()

    def give_back(self) -> bool:
        """For a mount that failed: if this open bound the image, make it blank again and close it. Otherwise return
        False and leave it open."""
        if self._image.chip.closed or not self._image.give_back():
            return False
        self._image.close()
        return True

    def leave(self) -> None:
        """Flush and write a clean checkpoint, if anything changed since the last one; the image stays open."""
        if not self.ssd.unchanged_since_clean():
            self.ssd.sync_now()
            self.ssd.checkpoint(clean=True)

    def forget_counts(self) -> None:
        """Reset the counters of ``stats``; virtual time goes on."""
        self._require_open()
        self.ssd.forget_counts()
        self._image.chip.reset_counters()

    def _writable(self) -> None:
        self._require_open()
        if self.readonly:
            raise UsageError(f"{self.path}: opened read-only")
        self.fail_if_lost()

    def fail_if_lost(self) -> None:
        """Refuse changes if a part of the image is gone: nothing that needs it may be acknowledged."""
        if self._image.chip.lost:
            self.ssd.fail(f"{self.path}: {self._image.chip.lost}")

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close(clean=problem[0] is None)

    # --- for people: statistics, health, configuration

    def stats(self) -> dict[str, Any]:
        """Counters since this device was opened. ``blocks_opened`` counts over the chip's whole life: with ``pool`` it
        gives the number of blocks emptied meanwhile. ``operations``, present with injected faults, is the count by
        which faults are placed."""
        self._require_open()
        self.ssd.fit_cache()
        totals, by_cause = self.ssd.operations()
        host = {"read": self.ssd.host_read, "write": self.ssd.host_write, "trim": self.ssd.host_trim,
                "remap": self.ssd.host_remap}  # fmt: skip
        tables = self.ssd.dram()
        dram = {name: packed for name, (packed, _) in tables.items()}
        heap = {name: allocated for name, (_, allocated) in tables.items()}
        states = np.bincount(block_map.block_map(self.ssd)["state"], minlength=len(STATE_NAMES)).tolist()
        clock = self._image.chip.clock()
        return {
            "ftl": self.ftl,
            "host": host,
            "nand": {**totals, "by_cause": by_cause},
            "purpose": self.ssd.purposes(),
            "waf": round(totals["program"] / host["write"], 4) if host["write"] else None,
            "scheme": {**self.ssd.mapping.figures(), **self.ssd.validity.figures(),
                       "extra_reads": self.ssd.reader.extra_reads},
            "dram": {**dram, "total": sum(dram.values())},
            "dram_cuts": {cut.structure: {"default": cut.default, "bytes": cut.bytes} for cut in self.cuts},
            "heap": sum(heap.values()),
            "allocated": {**heap, "total": sum(heap.values())},
            "pool": dict(zip(STATE_NAMES, states, strict=True)),
            "blocks_opened": self.ssd.pool.last_order,
            "checkpoints": self.ssd.meta.checkpoints_n,
            "trim_pages": self.ssd.meta.trim_pages_n,
            "syncs": self.ssd.syncs,
            "unreadable": self.ssd.reader.unreadable,
            "virtual_s": max(clock["dies"], default=0) / 1e9,
            **({"operations": self.nand.operations} if isinstance(self.nand, nandimg.FaultyNand) else {}),
        }

    def budget_notes(self) -> list[str]:
        """One line if the budget of DRAM made something smaller than it is by default, else none."""
        return budget.note(self.ftl, self._settings.get("dram") or 0, self.cuts)

    def smart(self) -> dict[str, Any]:
        """The chip's health: wear, bad blocks and lifetime counters. ``life`` is in pages: what the checkpoints
        recorded plus this mount. ``spare`` is per cent of the original blocks beyond the host's capacity; ``used`` is
        mean erases in per cent of the endurance."""
        self._require_open()
        blocks = block_map.block_map(self.ssd)
        health, wear = blocks["health"], blocks["erases"][blocks["health"] == 0]
        least, most = (int(wear.min()), int(wear.max())) if len(wear) else (0, 0)
        return {
            "uuid": str(self._image.header.uuid),
            "mounts": self.ssd.mounts,
            "blocks": self.nand.blocks,
            "factory_bad": int((health == 1).sum()),
            "grown_bad": int((health == 2).sum()),
            "erases": {
                "min": least,
                "max": most,
                "mean": round(float(wear.mean()), 3) if len(wear) else 0,
                "spread": most - least,
            },
            "life": self._life(),
            "spare": self._spare(int((health == 1).sum()), int((health == 2).sum())),
            "used": round(100 * float(wear.mean()) / self.nand.geometry.endurance, 3) if len(wear) else 100.0,
            "levelling": self.ssd.wear.figures(),
            "unreadable": self.ssd.reader.unreadable,
            "lost": self.ssd.mover.lost_pages,
            "corrected": self.nand.corrected(),
            "alarms": [*self.recovery.alarms, *(self.ssd.alarms or ())],
            "spoilt_blocks": self.ssd.pool.spoilt_n,
            "failed": self.ssd.why_stopped() or self._image.chip.lost,
        }

    def _life(self) -> dict[str, int]:
        """Pages that the host wrote and pages programmed since the chip was made, and the number of power losses
        without an unmount. What followed the last checkpoint before such a loss is not counted."""
        found = life_of(self.ssd)
        if self.readonly:  # a read-only mount keeps nothing of its recovery, so it does not count
            found = Life.of(newest_slot(self.nand))
        written, programs = found.host_writes, found.programs
        return {"host_writes": written, "programs": programs, "unsafe_shutdowns": found.unsafe_shutdowns}

    def _spare(self, factory: int, grown: int) -> float:
        geometry = self.nand.geometry
        made_with = geometry.blocks - factory - -(-geometry.lpas // geometry.pages_per_block)
        return round(max(0.0, 100 * (made_with - grown) / made_with), 1) if made_with > 0 else 0.0

    def block_map(self) -> dict[str, Any]:
        """The state of each block, as arrays indexed by block number. ``state`` and ``stream`` are indices into
        ``states`` and ``streams`` ("none": the block takes no pages); ``valid`` counts live pages; pages below
        ``next_page`` are programmed; ``erases`` is the chip's count."""
        self._require_open()
        blocks = block_map.block_map(self.ssd)
        return {
            "blocks": self.nand.blocks,
            "pages_per_block": self.nand.pages_per_block,
            "dies": self.nand.dies,
            "states": list(STATE_NAMES),
            "streams": [*self.ssd.pool.stream_names, "none"],
            **{name: blocks[name] for name in ("state", "stream", "valid", "next_page", "erases")},
        }

    def config(self) -> dict[str, Any]:
        """How the device was created and opened."""
        header = self._image.header
        return {
            "image": str(self.path) if self.path else None,
            "uuid": str(header.uuid),
            "ftl": self.ftl,
            "options": self.options,
            "backend": header.backend,
            "geometry": header.geometry.as_dict(),
            "size": self.size,
            "sync": self._settings.get("sync", "flush"),
            "plp": bool(self._settings.get("plp", False)),
        }

    def problems(self, progress: Callable[[float], None] | None = None) -> list[str]:
        """One line for each broken invariant between mapping, OOB, validity and pool. ``progress`` gets the share of
        the blocks that is done, now and then."""
        self._require_open()
        return self.ssd.check() + cross_check(self.ssd, progress=progress)


def refusal(name: str, geometry: Geometry, options: dict[str, Any] | None = None, **settings: Any) -> BindError | None:
    """The BindError for binding the FTL to a chip of that geometry in a file, or None if it can be bound. ``settings``
    are those of Device.start."""
    image = nandimg.memory_image(geometry, "meta")
    try:
        Device.try_bind(image, name, options or {}, {**settings, "on_disk": True})
    except BindError as error:
        return error
    finally:
        image.close()
    return None
