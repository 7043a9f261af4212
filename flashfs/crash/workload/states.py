"""What a power cut leaves of a recording: its requests are given to the device again, and the power goes.

The device is deterministic, so each place on the tape and each flash operation is one state. The contents of its write
buffer are lost, flushed data is kept, and of the rest the device has what it had programmed by then. Another device
might keep any other part of the unflushed data: subsets try random parts.
"""

from __future__ import annotations

import bisect
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from flashfs.crash.workload import mounted_image
from flashfs.crash.workload.settings import Folder, Settings
from flashfs.device import Device
from flashfs.errors import FlashfsError, UsageError
from flashfs.fuse import write_log
from nandimg import Cut, FaultyNand, PowerCut
from nandimg._faults import SHAPES

PLACES = ("flushes", "marks", "end", "operations", "subsets")  #: kinds of cuts; all of a kind, or a number of them
DEFAULT_PLACES = ("flushes", "marks", "end")
SUBSETS = 1 << 16  #: seeds of subsets
BY_PAGES = ("write", "trim", "zero")  #: requests of which each page may be lost on its own
READING = ("copy", "remap", "move")  #: requests whose effect depends on earlier ones


@dataclass(frozen=True, slots=True)
class Place:
    """Where the power goes. ``flush`` and ``mark``: right after the nth one of the workload; ``end``: right after the
    workload; ``operation``: at flash operation n, which is left in that shape; ``subset``: in the nth flush (for n one
    above their number: at the end), when each page not flushed before is kept or lost at random, by ``seed``."""

    kind: str
    n: int = 0
    shape: str = ""
    seed: int = 0

    def __str__(self) -> str:
        if self.kind == "operation":
            return f"{self.n}:{self.shape}"
        if self.kind == "subset":
            return f"subset:{self.n}.{self.seed}"
        return self.kind if self.kind == "end" else f"{self.kind}:{self.n}"

    @classmethod
    def parse(cls, word: str) -> Place:
        """The inverse of ``str``; UsageError if the word is malformed."""
        head, _, tail = word.partition(":")
        if word == "end":
            return cls("end")
        if head in ("flush", "mark") and re.fullmatch("[1-9][0-9]*", tail):
            return cls(head, int(tail))
        if re.fullmatch("[1-9][0-9]*", head) and (tail or "before") in SHAPES:
            return cls("operation", int(head), tail or "before")
        if found := re.fullmatch(r"subset:([1-9][0-9]*)\.([0-9]+)", word):
            return cls("subset", int(found[1]), seed=int(found[2]))
        raise UsageError(f"--at {word}: use {', '.join(PLACES)}, flush:N, mark:N, subset:N.SEED, or a flash operation "
                         "as N or N:SHAPE")  # fmt: skip


class Tape:
    """The requests of a recording, and which of them are the workload's."""

    def __init__(self, folder: Folder, span: tuple[int, int]) -> None:
        self.records = list(write_log.read(folder.tape))
        self.begin, self.end = (bisect.bisect_left(self.records, at, key=lambda record: record.at) for at in span)
        inside = range(self.begin, self.end)
        self.flushes = [i for i in inside if self.records[i].operation == "flush"]
        self.marked = [i for i in inside if self.records[i].operation == "mark"]

    def require_any(self) -> None:
        """FlashfsError if the workload has neither a flush nor a mark at which to cut."""
        if self.flushes or self.marked:
            return
        what = "wrote, but flushed nothing and set no mark" if self.end > self.begin else "did nothing to the device"
        raise FlashfsError(f"the workload {what} before it ended, so there is nothing to cut: let it sync or set a "
                           "mark, or use --at end or --at operations")  # fmt: skip

    @property
    def marks(self) -> list[str]:
        return self.marks_before(self.end)

    def marks_before(self, index: int) -> list[str]:
        """The marks that were set before this record."""
        return [bytes(self.records[i].data).decode(errors="replace") for i in self.marked if i < index]

    def stop(self, place: Place) -> int | None:
        """The number of records that the device gets; None if a flash operation is where the power goes."""
        if place.kind in ("end", "operation"):
            return self.end if place.kind == "end" else None
        found = self.flushes if place.kind in ("flush", "subset") else self.marked
        if place.kind == "subset" and place.n in range(1, len(found) + 2):
            return [*found, self.end][place.n - 1]
        if place.n > len(found):
            raise UsageError(f"--at {place}: the workload has {len(found)} of them")
        return found[place.n - 1] + 1


class Replay:
    """Makes the state of any place, as ``folder.state``."""

    def __init__(self, folder: Folder, settings: Settings, tape: Tape) -> None:
        self.folder = folder
        self.settings = settings
        self.tape = tape
        self.operations = (0, 0)  #: the first and the last flash operation that are the workload's, once measured

    def measure(self) -> None:
        """Find out which flash operations are the workload's."""
        before = 0

        def note(index: int, device: Device) -> None:
            nonlocal before
            if index == self.tape.begin:
                before = operations(device)

        device = self._open(None)
        try:
            self._play(device, self.tape.end, note)
            self.operations = (before + 1, operations(device))
        finally:
            device.close(clean=False)

    def make(self, place: Place) -> list[str]:
        """Make the state; returns the marks that were passed. UsageError if the tape has no such place; FlashfsError if
        its flash operation is not reached."""
        stop = self.tape.stop(place)
        device = self._open(Cut(place.n, place.shape) if stop is None else None)
        done = 0

        def note(index: int, _: Device) -> None:
            nonlocal done
            done = index

        try:
            if stop is not None and place.kind == "subset":
                self._play_subset(device, stop, place.seed)
                done = stop
            else:
                self._play(device, self.tape.end if stop is None else stop, note)
                if stop is None:
                    raise FlashfsError(f"--at {place}: operation {place.n} was not reached, though the same requests "
                                       "led to it before: the FTL is not deterministic")  # fmt: skip
        except PowerCut:
            pass
        finally:
            device.close(clean=False)
        return self.tape.marks_before(done)

    def make_uncut(self) -> list[str]:
        """Make the state without a cut: all requests that reached the device, also those of the unmount, and a clean
        close. Returns all marks."""
        device = self._open(None)
        self._play(device, len(self.tape.records), lambda index, device: None)
        device.close()
        return self.tape.marks

    def _open(self, cut: Cut | None) -> Device:
        mounted_image.copy(self.folder.base, self.folder.state)
        settings = self.settings
        return Device.open(
            self.folder.state, ftl=settings.ftl, options=settings.options, dram=settings.dram, plp=settings.plp,
            sync="none", front=lambda chip: FaultyNand(chip, (cut,)),
        )  # fmt: skip

    def _play(self, device: Device, stop: int, note: Callable[[int, Device], None]) -> None:
        """Give the device the first ``stop`` records; ``note`` is called before each, and at the end."""
        for index, record in enumerate(self.tape.records[:stop]):
            note(index, device)
            ask(device, record)
        note(stop, device)

    def _play_subset(self, device: Device, stop: int, seed: int) -> None:
        """Give the device the first ``stop`` records, but only a random part of those after the last flush among them,
        and make that part durable. Each page of a write or a trim, and each other request, is kept with a probability
        that is itself random. A copy or remap that is kept keeps everything before it: otherwise its target would get
        data that it never had."""
        rnd = random.Random(f"subset {seed}")
        share = rnd.random()
        flushes = (i + 1 for i in range(stop - 1, -1, -1) if self.tape.records[i].operation == "flush")
        flushed = next(flushes, 0)
        self._play(device, flushed, lambda index, device: None)
        tail = [part for record in self.tape.records[flushed:stop] for part in parts(record, device.page_bytes)]
        kept = [rnd.random() < share for _ in tail]
        whole = max((i for i, part in enumerate(tail) if kept[i] and part.operation in READING), default=0)
        for i, part in enumerate(tail):
            if kept[i] or i < whole:
                ask(device, part)
        device.flush()


def parts(record: write_log.Taped, page_bytes: int) -> Iterator[write_log.Taped]:
    """Split a write or a trim at page borders, since a page is kept or lost as a whole; other requests stay whole."""
    if record.operation not in BY_PAGES:
        yield record
        return
    at = 0
    while at < record.length:
        length = min(record.length - at, page_bytes - (record.offset + at) % page_bytes)
        yield replace(record, offset=record.offset + at, length=length, data=record.data[at : at + length])
        at += length


def ask(device: Device, record: write_log.Taped) -> None:
    """Give the device one recorded request."""
    if record.operation == "write":
        device.write(record.offset, record.data)
    elif record.operation == "flush":
        device.flush()
    elif record.operation in ("trim", "zero"):
        device.trim(record.offset, record.length)
    elif record.operation == "copy":
        device.copy(record.source, record.offset, record.length)
    elif record.operation in ("remap", "move"):
        device.remap(record.offset, record.source, record.length, move=record.operation == "move")


def operations(device: Device) -> int:
    """Flash operations since the device was opened, as cuts count them."""
    assert isinstance(device.nand, FaultyNand)
    return device.nand.operations


def choose(replay: Replay, words: list[str], cuts: int | None, seed: int) -> list[Place]:
    """The places that ``words`` name, in the order of the tape, operations last. If there are more than ``cuts``, a
    random sample of that size, by the seed. UsageError for a place that the recording does not have, and if there is
    none. ``replay`` must have been measured."""
    rnd = random.Random(f"workload {seed}")
    taped = replay.tape
    first, last = replay.operations
    places: list[Place] = []
    for word in dict.fromkeys(words):
        if word == "flushes":
            places += [Place("flush", n + 1) for n in range(len(taped.flushes))]
        elif word == "marks":
            places += [Place("mark", n + 1) for n in range(len(taped.marked))]
        elif word == "subsets":
            flushes = range(1, len(taped.flushes) + 2)
            ns = [*flushes] if cuts is None else rnd.choices(flushes, k=cuts)
            places += [Place("subset", n, seed=rnd.randrange(SUBSETS)) for n in ns]
        elif word == "operations":
            places += [Place("operation", n, rnd.choice(SHAPES)) for n in range(first, last + 1)]
        else:
            places.append(Place.parse(word))
    for place in places:
        taped.stop(place)
        if place.kind == "subset" and replay.settings.plp:
            raise UsageError(f"--at {place}: with --plp, nothing that was acknowledged is lost")
        if place.kind == "operation" and not first <= place.n <= last:
            there = f"the workload's are operations {first} to {last}" if first <= last else "the workload caused none"
            raise UsageError(f"--at {place}: {there}")
    if not places:
        raise UsageError(f"--at {','.join(words)}: the workload has none of these, so there is nothing to cut")
    if cuts is not None and len(places) > cuts:
        places = rnd.sample(places, cuts)
    return sorted(places, key=lambda place: (taped.stop(place) or len(taped.records), place.kind == "end", place.n))
