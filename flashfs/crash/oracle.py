"""The judge: for each page, the versions that it may hold after a power cut.

Version 0 is a hole (never written, or trimmed). A write or trim adds a version. After an acknowledged flush only the
newest remains; after a crash, only the one that was found.

A move adds a version to its target and one to its source. If the source is found in its new version, the target must be
too: the moved data is in one of the two places. Of an atomic remap, all pages are found as it left them, or none.

A version is the content of a whole page. One that a request changed in part, or that was copied from elsewhere, is
kept byte for byte: after a crash the whole page has that version or it does not, whatever part the request changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Self


@lru_cache
def _places(page_bytes: int) -> tuple[bytes, bytes]:
    """The low and the high bytes of the indexes of a page's 16-byte pieces."""
    numbers = range(page_bytes // 16)
    return bytes(n & 0xFF for n in numbers), bytes(n >> 8 for n in numbers)


@lru_cache(1 << 13)
def page_of(lpa: int, version: int, page_bytes: int) -> bytes:
    """The content of a version: each 16 bytes have the version, the LPA and their own index. So a torn mix of two pages
    is detected, and so are bytes at the wrong offset in their page."""
    if version == 0:
        return bytes(page_bytes)
    page = bytearray(struct.pack("<QIHH", version, lpa, 0, (lpa * 7 + version * 13) & 0xFFFF) * (page_bytes // 16))
    page[12::16], page[13::16] = _places(page_bytes)
    return bytes(page)


@dataclass(frozen=True, slots=True)
class Moved:
    """Part of a move: a source page whose bytes were emptied, and the target page that has them now. The versions are
    those that each page might have held before: the source before it was emptied, the target before the bytes came."""

    source: int
    source_before: tuple[int, ...]
    target: int
    target_before: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """One page that an atomic remap changed, and the versions that it might have held before; the next one is the
    remap's."""

    lpa: int
    before: tuple[int, ...]


class Judge:
    """Knows what each of ``pages`` pages of ``page_bytes`` may hold.

    ``image`` is the device as it must read while nothing crashes. The versions of a page are listed only while there
    is more than one; for the other pages ``image`` is enough.
    """

    __slots__ = ("_made", "_moved", "_next", "_open", "_versions", "_wholes", "image", "page_bytes")

    def __init__(self, pages: int, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.image = bytearray(pages * page_bytes)
        self._versions = [0] * pages  # the newest of each page
        self._open: dict[int, list[int]] = {}  # all versions of each page that may hold more than one
        self._made: dict[int, bytes] = {}  # the content of versions that are not ``page_of``: partial writes, copies
        self._moved: list[Moved] = []  # since the last flush
        self._wholes: list[list[Whole]] = []  # since the last flush, one list for each atomic remap
        self._next = 1

    def fork(self) -> Self:
        """A copy of this judge, for a fork of the run."""
        other = type(self).__new__(type(self))
        other.page_bytes = self.page_bytes
        other.image = bytearray(self.image)
        other._versions = self._versions.copy()
        other._open = {lpa: versions.copy() for lpa, versions in self._open.items()}
        other._made = self._made.copy()
        other._moved = self._moved.copy()
        other._wholes = self._wholes.copy()
        other._next = self._next
        return other

    def content(self, lpa: int, version: int) -> bytes:
        """The bytes of this version of ``lpa``."""
        made = self._made.get(version)
        return page_of(lpa, version, self.page_bytes) if made is None else made

    def _add(self, lpa: int, version: int) -> bytes:
        self._open.setdefault(lpa, [self._versions[lpa]]).append(version)
        return self._set(lpa, version)

    def _set(self, lpa: int, version: int) -> bytes:
        page = self.content(lpa, version)
        self._versions[lpa] = version
        self.image[lpa * self.page_bytes : (lpa + 1) * self.page_bytes] = page
        return page

    def will_write(self, lpa: int) -> bytes:
        """A write of ``lpa`` begins: from now on a crash may leave it. Returns the page to write."""
        version = self._next
        self._next += 1
        return self._add(lpa, version)

    def will_write_bytes(self, offset: int, size: int) -> bytes:
        """A write of ``size`` bytes at ``offset`` begins. Returns what to write."""
        for lpa, begin, end in self._pieces(offset, size):
            if end - begin == self.page_bytes:
                self.will_write(lpa)
            else:
                self._will_change(lpa, begin, page_of(lpa, self._next, self.page_bytes)[begin:end])
        return bytes(self.image[offset : offset + size])

    def will_trim_bytes(self, offset: int, size: int) -> None:
        """A trim of ``size`` bytes at ``offset`` begins: they read as zeros."""
        for lpa, begin, end in self._pieces(offset, size):
            if end - begin == self.page_bytes:
                self.will_trim(lpa)
            else:
                self._will_change(lpa, begin, bytes(end - begin))

    def will_copy(self, source: int, target: int, size: int) -> None:
        """A copy of ``size`` bytes from ``source`` to ``target`` begins."""
        data = bytes(self.image[source : source + size])
        for lpa, begin, end in self._pieces(target, size):
            at = lpa * self.page_bytes + begin - target
            self._will_change(lpa, begin, data[at : at + end - begin])

    def will_remap(self, source: int, target: int, size: int, move: bool, *, whole: bool = False) -> None:
        """A remap of ``size`` bytes from ``source`` to ``target`` begins; with ``move`` the part of the source outside
        the target reads as zeros afterwards. ``whole``, for ranges that do not overlap: all of it is found, or
        nothing."""
        if source == target or not size:
            return
        low = max(source, target + size) if target < source else source
        high = source + size if target < source else min(source + size, target)
        moved = [
            (lpa, at, self._may_hold(at))
            for lpa, begin, end in (self._pieces(low, high - low) if move else ())
            if any(self.newest(lpa)[begin:end])  # zeros cannot be lost
            for at, _, _ in self._pieces(lpa * self.page_bytes + begin + target - source, end - begin)
        ]
        changed = {lpa: self._may_hold(lpa) for at in (target, source) for lpa, _, _ in self._pieces(at, size)}
        self.will_copy(source, target, size)
        if move:
            # If the ranges overlap, the copy has already changed the source's page, but not the bytes that are emptied.
            self._moved += [Moved(lpa, self._may_hold(lpa), at, before) for lpa, at, before in moved]
            self.will_trim_bytes(low, high - low)
        if whole:
            pages = [Whole(lpa, before) for lpa, before in changed.items()]
            self._wholes.append([page for page in pages if len(self._may_hold(page.lpa)) > len(page.before)])

    def _may_hold(self, lpa: int) -> tuple[int, ...]:
        return tuple(self._open.get(lpa) or [self._versions[lpa]])

    def _pieces(self, offset: int, size: int) -> Iterator[tuple[int, int, int]]:
        """(LPA, first byte, end) of each page's part of a range; the end is exclusive."""
        while size:
            lpa, begin = divmod(offset, self.page_bytes)
            end = min(self.page_bytes, begin + size)
            yield lpa, begin, end
            offset += end - begin
            size -= end - begin

    def _will_change(self, lpa: int, begin: int, data: bytes) -> None:
        """Add a version: the newest page with ``data`` at byte ``begin``."""
        page = self.image[lpa * self.page_bytes : (lpa + 1) * self.page_bytes]
        page[begin : begin + len(data)] = data
        version = self._next
        self._next += 1
        self._made[version] = bytes(page)
        self._add(lpa, version)

    def will_trim(self, lpa: int, n: int = 1) -> None:
        """A trim begins."""
        for page in range(lpa, lpa + n):
            self._add(page, 0)

    def flushed(self) -> None:
        """A flush was acknowledged: the newest versions are the only ones."""
        self._open.clear()
        self._moved.clear()
        self._wholes.clear()

    def settle(self, lpa: int) -> None:
        """This page's newest version is safe (an acknowledged write with power-loss protection)."""
        self._open.pop(lpa, None)

    def newest(self, lpa: int) -> bytes:
        """What a read without a crash must give."""
        return self.content(lpa, self._versions[lpa])

    def crashed(self, lpa: int, found: bytes) -> str | None:
        """Judge one page after a recovery: what is wrong, or None. If right, the version found is the only one left."""
        allowed = self._open.get(lpa) or [self._versions[lpa]]
        for version in reversed(allowed):
            if found == self.content(lpa, version):
                self._open.pop(lpa, None)
                self._set(lpa, version)
                return None
        may = " or ".join("a hole" if v == 0 else f"version {v}" for v in dict.fromkeys(allowed))
        return f"LPA {lpa}: holds {self._name(found)}; it may hold {may}"

    def all_crashed(self, found: bytes | bytearray) -> str | None:
        """Judge the whole device after a recovery: what is wrong with the first bad page, or None."""
        moved, self._moved = self._moved, []
        wholes, self._wholes = self._wholes, []
        if found == self.image:
            self._open.clear()
            return None
        size = self.page_bytes
        wrong = next(filter(None, (self._in_neither(one, found) for one in moved)), None)
        wrong = wrong or next(filter(None, (self._in_part(pages, found) for pages in wholes)), None)
        if wrong:
            return wrong
        for lpa in sorted(self._open):
            wrong = self.crashed(lpa, bytes(found[lpa * size : (lpa + 1) * size]))
            if wrong:
                return wrong
        if found == self.image:
            return None
        lpa = self._first_other(found)
        return self.crashed(lpa, bytes(found[lpa * size : (lpa + 1) * size]))

    def _in_neither(self, moved: Moved, found: bytes | bytearray) -> str | None:
        """What is wrong if the source is found emptied and the target as it was before; else None."""
        source, target = (found[lpa * self.page_bytes :][: self.page_bytes] for lpa in (moved.source, moved.target))
        may, n = self._may_hold(moved.source), len(moved.source_before)
        if may[:n] != moved.source_before:
            return None  # a later write of it has been settled
        others = (*moved.source_before, *may[n + 1 :])
        if any(source == self.content(moved.source, version) for version in others):
            return None  # not emptied yet, or written since: the order of that write is not guaranteed
        now = self._may_hold(moved.target)
        since = now[len(moved.target_before) :] or now[-1:]  # a hole may be both an old version and a new one
        if any(target == self.content(moved.target, version) for version in since):
            return None
        if not any(target == self.content(moved.target, version) for version in moved.target_before):
            return None  # no version at all: ``crashed`` reports the page
        return f"LPA {moved.target}: what was moved there from LPA {moved.source} is in neither of the two places"

    def _in_part(self, pages: list[Whole], found: bytes | bytearray) -> str | None:
        """What is wrong if one page is found as the remap left it and another as it was before; else None."""
        done: list[int] = []
        undone: list[int] = []
        for page in pages:
            holds = found[page.lpa * self.page_bytes :][: self.page_bytes]
            now, n = self._may_hold(page.lpa), len(page.before)
            if now[:n] != page.before:
                continue  # a later write of it has been settled
            is_any = [holds == self.content(page.lpa, version) for version in now]
            was, is_new, was_later = any(is_any[:n]), any(is_any[n : n + 1]), any(is_any[n + 1 :])
            if was + is_new + was_later == 1 and not was_later:  # else changed again since, or ambiguous
                (done if is_new else undone).append(page.lpa)
        if not (done and undone):
            return None
        return f"LPA {done[0]}: is as an atomic remap left it, and LPA {undone[0]} is as it was before that"

    def not_newest(self, found: bytes | bytearray) -> int | None:
        """The first LPA of the device that does not read as its newest version."""
        return None if found == self.image else self._first_other(found)

    def _first_other(self, found: bytes | bytearray) -> int:
        at = next(at for at, (a, b) in enumerate(zip(found, self.image, strict=True)) if a != b)
        return at // self.page_bytes

    def _name(self, found: bytes) -> str:
        if not any(found):
            return "a hole"
        version, lpa = struct.unpack_from("<QI", found)
        if lpa < len(self._versions) and found == page_of(lpa, version, self.page_bytes):
            return f"version {version} of LPA {lpa}"
        return "no page that was ever written (torn or mixed)"
