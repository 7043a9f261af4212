"""An image opened read-only, and what every view needs of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nandimg
from flashfs.device import ENGINE_OOB, Device, saved_bytes
from flashfs.engine.blocks.pool import STREAM_NAMES
from flashfs.engine.views import block_map
from flashfs.errors import CorruptError, FtlError, UntrustedError, UsageError
from flashfs.ftl import Scheme
from flashfs.ftl import scheme as scheme_of

STATUS_NAMES = ("erased", "whole", "torn")
HEALTH_NAMES = ("good", "factory bad", "grown bad")
KIND_USER, KIND_TRANSLATION, KIND_VALIDITY, KIND_CHECKPOINT, KIND_TRIM = 1, 2, 3, 4, 5
KIND_AT = 6  #: in an OOB
FLAG_NAMES = ((1, "moved"), (2, "last"), (4, "clean"), (8, "lost"))
ERASED, WHOLE, TORN = 0, 1, 2
STREAM_META = 3
NO_PAGE = 2**32 - 1
NUMBERS = 2048  #: values of a page's number
HEX_LINES = 4  #: of sixteen bytes, from the start of a page
BLANK = "blank: bound to no FTL yet; `flashfs mount` binds and formats it"


@dataclass(frozen=True, slots=True)
class Spare:
    """The engine's part of a page's OOB, decoded, and the scheme's bytes after it."""

    seq: int
    order: int
    lpa: int
    kind: int
    flags: int
    stream: int
    group: int
    number: int  #: (its page in the block + 1) modulo NUMBERS; 0 says nothing
    own: bytes

    @classmethod
    def of(cls, raw: bytes) -> Spare:
        raw = raw.ljust(ENGINE_OOB, b"\xff")  # a chip that was never bound may have less room
        word, lpa, low, high = struct.unpack_from("<QIII", raw)
        return cls(
            word & (2**48 - 1), low | (high & 0xFF) << 32, lpa, word >> 48 & 0xFF, word >> 56, high >> 16 & 0x1F,
            high >> 24, high >> 8 & 0xFF | (high >> 21 & 7) << 8, raw[ENGINE_OOB:],
        )  # fmt: skip

    def meant_for(self, page: int) -> bool:
        """Whether it was programmed as that page of a block; True if it does not say."""
        return self.number in (0, (page + 1) % NUMBERS)

    @property
    def moved(self) -> bool:
        """A copy that cleaning made."""
        return bool(self.flags & 1)

    @property
    def moves(self) -> int:
        """How often it was moved, modulo 16."""
        return self.flags >> 4


def status_of(status: int, raw: bytes, page: int) -> int:
    """What a page of a block with that OOB counts as: torn, if it was meant for another page of a block."""
    number = raw[17] | raw[18] >> 5 << 8 if status == WHOLE and len(raw) >= ENGINE_OOB else 0
    return status if number in (0, (page + 1) % NUMBERS) else TORN


def is_kind(raw: bytes, kind: int) -> bool:
    """Whether an OOB is of a page of that kind: of a million checkpoint pages, decoding the rest takes seconds."""
    return raw[KIND_AT : KIND_AT + 1] == bytes([kind])


@dataclass(frozen=True, slots=True)
class Copy:
    """A page of some LPA that a scan of the spare areas found."""

    ppa: int
    status: int
    spare: Spare
    live: bool


def known_scheme(name: str) -> Scheme | None:
    """The scheme that an image is bound to; None for a blank one, and for a plug-in that is not installed."""
    try:
        return scheme_of(name) if name else None
    except UsageError:
        return None


class View:
    """An image opened read-only: its chip, and the device over it if there is one (else ``note`` says why not).

    ``trust`` is the name of an FTL that may be imported because the header says so, or True for any; without it, an
    unregistered FTL is not imported, and the view is ``untrusted``.
    """

    def __init__(self, path: str | Path, trust: bool | str = False, held: bool = False) -> None:
        self.path = Path(path)
        self.known_checkpoints: list[dict[str, Any]] | None = None  #: once they have been looked for
        self.header = nandimg.inspect(self.path)
        self.device: Device | None = None
        self.note = ""
        self.untrusted = False
        self._image: nandimg.Image | None = None
        if self.header.ftl:
            try:
                ftl = trust if isinstance(trust, str) else None
                self.device = Device.open(self.path, ftl=ftl, readonly=True, trust=trust is True, held=held)
            except UntrustedError as error:
                self.untrusted = True
                self.note = str(error)
            except (CorruptError, FtlError) as error:
                self.note = f"not recoverable: {error}"
        else:
            self.note = BLANK
        if self.device is None:
            self._image = nandimg.open_image(self.path, readonly=True, held=held)
            self.chip: nandimg.Nand = self._image.chip
        else:
            self.chip = self.device.nand
        self.per_block = self.header.geometry.pages_per_block
        self.known = None if self.untrusted else known_scheme(self.header.ftl)
        need = saved_bytes(self.known, self.header.geometry) if self.known else 0
        #: no checkpoint of this device takes more pages, its index included
        self.checkpoint_most = 2 * (-(-need // self.header.geometry.page_bytes) + 2)
        if self.untrusted:
            self.checkpoint_most = self.header.geometry.pages

    @cached_property
    def written(self) -> NDArray[Any]:
        """Of each block, whether it may hold anything: the others are erased, and need no read."""
        return np.frombuffer(self.chip.maybe_written(), np.bool_)

    @cached_property
    def first_streams(self) -> NDArray[Any]:
        """Of each block, the stream that its first page names; 255 of an erased one."""
        return block_map.first_streams(self.chip, self.written.view(np.uint8))

    @property
    def stream_names(self) -> tuple[str, ...]:
        """By number: those that every device has, and those that the parts of this one registered."""
        return self.device.ssd.pool.stream_names if self.device else STREAM_NAMES

    def close(self) -> None:
        if self.device:
            self.device.close(clean=False)
        if self._image:
            self._image.close()

    def at(self, ppa: int) -> tuple[int, int]:
        """(block, page) of a PPA."""
        return divmod(ppa, self.per_block)

    def spare(self, ppa: int) -> tuple[int, Spare]:
        """(status, OOB) by a spare read. One that was meant for another page of a block counts as torn."""
        block, page = self.at(ppa)
        status, raw = self.chip.read_spare_area(block, page)
        return status_of(status, raw, page), Spare.of(raw)

    def live(self, ppa: int) -> bool:
        """Whether the device's validity store counts this page as live."""
        block, page = self.at(ppa)
        return self.device is not None and page in self.device.ssd.validity.live_in(block)

    def programmed(self, block: int) -> int:
        """Pages of a block before the first that is erased; those pages are all whole or torn. O(log pages) reads; two
        spare reads of a block whose ends are erased, since the data of a large chip take a while to read."""
        ends = (0, self.per_block - 1) if self.written[block] else ()
        if all(self.chip.read_spare_area(block, page)[0] == ERASED for page in ends):
            return 0
        low, high = 0, self.per_block
        while low < high:
            middle = (low + high) // 2
            if self.chip.read_page(block, middle)[0] == ERASED:
                high = middle
            else:
                low = middle + 1
        return low

    def pages(self, stream: int | None = None) -> Iterator[tuple[int, int, bytes]]:
        """(PPA, status, OOB) of every page that is not erased; only of blocks of ``stream``, if one is given."""
        for block in np.flatnonzero(self.written if stream is None else self.first_streams == stream).tolist():
            for page in range(self.per_block):
                status, raw = self.chip.read_spare_area(block, page)
                if status == ERASED:
                    break
                yield block * self.per_block + page, status_of(status, raw, page), raw

    def copies(self, lpa: int) -> list[Copy]:
        """Every user page whose OOB names that LPA, oldest first."""
        name = struct.pack("<I", lpa)
        found = []
        for ppa, status, raw in self.pages():
            if raw[8:12] == name:
                spare = Spare.of(raw)
                if spare.kind == KIND_USER:
                    found.append(Copy(ppa, status, spare, self.live(ppa)))
        return sorted(found, key=lambda copy: (copy.spare.seq, copy.spare.order, copy.ppa))

    @property
    def shares(self) -> bool:
        """Whether a page may belong to other LPAs than the one that its OOB names."""
        return self.device is not None and self.device.ssd.mapping.sharing is not None

    def current(self, lpa: int) -> Copy | None:
        """The live page of an LPA: where the mapping says, or, if the mapping guesses and is wrong, by a scan."""
        if self.device is None or lpa >= self.header.geometry.lpas:
            return None
        ppa = self.device.ssd.mapping.explain(lpa)["ppa"]
        if ppa is None:
            return None
        status, spare = self.spare(ppa)
        if self.shares or (spare.lpa == lpa and spare.kind == KIND_USER and self.live(ppa)):
            return Copy(ppa, status, spare, True)
        return next((copy for copy in self.copies(lpa) if copy.live), None)

    def own(self, spare: Spare) -> dict[str, Any]:
        """The scheme's own bytes, as the scheme reads them."""
        known = self.known
        if known is None or spare.kind != KIND_USER or len(spare.own) < known.scheme_oob:
            return {}
        return known.describe_oob(spare.own)

    def translation(self, spare: Spare, data: bytes) -> dict[str, Any]:
        """What a translation page says, as its scheme has it."""
        return self.known.describe_translation(spare.lpa, data) if self.known else {}

    def validity(self, spare: Spare, data: bytes) -> dict[str, Any]:
        """What a page of a validity store says, as its scheme has it."""
        return self.known.describe_validity(self.device, spare.lpa, data) if self.known and self.device else {}

    def owned(self, kind: int, ppa: int) -> bool:
        """Whether the owner of pages of that kind, which is not the user's, has this one."""
        return self.device is not None and (kind, ppa) in self.device.ssd.owned_pages()

    def meta_page(self, ppa: int) -> bytes | None:
        """The data of a whole checkpoint page, or None. Checkpoints are loaded with this."""
        if ppa >= self.header.geometry.pages:
            return None
        status, data, raw = self.chip.read_page(*self.at(ppa))
        return data if status == WHOLE and is_kind(raw, KIND_CHECKPOINT) else None


_held: ContextVar[bool] = ContextVar("held", default=False)


@contextmanager
def held() -> Iterator[None]:
    """Inside, locked images can be opened: for the process that has the lock, while it changes nothing. A view shows
    what a power cut at this moment would leave."""
    token = _held.set(True)
    try:
        yield
    finally:
        _held.reset(token)


@contextmanager
def opened(path: str | Path, trust: bool | str = False) -> Iterator[View]:
    """A View, closed at the end."""
    view = View(path, trust, _held.get())
    try:
        yield view
    finally:
        view.close()


def _within(what: str, value: int, limit: int, path: str | Path) -> None:
    if not 0 <= value < limit:
        raise UsageError(f"{what} {value}: {path} has {what}s 0 to {limit - 1}")


def _name(names: tuple[str, ...], index: int) -> str:
    return names[index] if index < len(names) else str(index)
