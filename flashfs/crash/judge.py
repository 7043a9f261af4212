"""The judge: for each page, the versions that it may hold after the power went.

Version 0 is a hole (never written, or trimmed). A write or trim adds a version; an acknowledged flush makes the newest
one the only one; a crash leaves whichever was found, and from then on only that one.
"""

from __future__ import annotations

import struct
from functools import lru_cache


@lru_cache(1 << 15)
def page_of(lpa: int, version: int, page_bytes: int) -> bytes:
    """A page that says which one and which version it is, all over, so that a torn mix of two shows."""
    if version == 0:
        return bytes(page_bytes)
    return struct.pack("<QIHH", version, lpa, lpa * 7 & 0xFFFF, version * 13 & 0xFFFF) * (page_bytes // 16)


class Judge:
    """Knows what each of ``pages`` pages of ``page_bytes`` may hold.

    ``image`` is the device as it must read while nothing crashes. The versions of a page are listed only while there
    is more than one of them; of the others ``image`` says everything.
    """

    __slots__ = ("_next", "_open", "_versions", "image", "page_bytes")

    def __init__(self, pages: int, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.image = bytearray(pages * page_bytes)
        self._versions = [0] * pages  # the newest of each page
        self._open: dict[int, list[int]] = {}  # all of a page that may hold more than one
        self._next = 1

    def fork(self) -> Judge:
        """Another judge who knows the same, for another course of events."""
        other = Judge.__new__(Judge)
        other.page_bytes = self.page_bytes
        other.image = bytearray(self.image)
        other._versions = self._versions.copy()
        other._open = {lpa: versions.copy() for lpa, versions in self._open.items()}
        other._next = self._next
        return other

    def content(self, lpa: int, version: int) -> bytes:
        """The page that this version of ``lpa`` is."""
        return page_of(lpa, version, self.page_bytes)

    def _add(self, lpa: int, version: int) -> bytes:
        self._open.setdefault(lpa, [self._versions[lpa]]).append(version)
        return self._set(lpa, version)

    def _set(self, lpa: int, version: int) -> bytes:
        page = page_of(lpa, version, self.page_bytes)
        self._versions[lpa] = version
        self.image[lpa * self.page_bytes : (lpa + 1) * self.page_bytes] = page
        return page

    def will_write(self, lpa: int) -> bytes:
        """A write of ``lpa`` begins: it may be found from now on. Returns the page to write."""
        version = self._next
        self._next += 1
        return self._add(lpa, version)

    def will_trim(self, lpa: int, n: int = 1) -> None:
        """A trim begins."""
        for page in range(lpa, lpa + n):
            self._add(page, 0)

    def flushed(self) -> None:
        """A flush was acknowledged: the newest versions are the only ones."""
        self._open.clear()

    def settle(self, lpa: int) -> None:
        """This page's newest version is safe (an acknowledged write with power-loss protection)."""
        self._open.pop(lpa, None)

    def newest(self, lpa: int) -> bytes:
        """What a read without a crash must give."""
        return page_of(lpa, self._versions[lpa], self.page_bytes)

    def crashed(self, lpa: int, found: bytes) -> str | None:
        """Judge one page after a recovery; None if it is well, and then it is what it is."""
        allowed = self._open.get(lpa) or [self._versions[lpa]]
        for version in reversed(allowed):
            if found == page_of(lpa, version, self.page_bytes):
                self._open.pop(lpa, None)
                self._set(lpa, version)
                return None
        may = " or ".join("a hole" if v == 0 else f"version {v}" for v in dict.fromkeys(allowed))
        return f"LPA {lpa}: holds {self._name(found)}; it may hold {may}"

    def all_crashed(self, found: bytes | bytearray) -> str | None:
        """Judge the whole device after a recovery; None if every page is well, else what is wrong with the first."""
        if found == self.image:
            self._open.clear()
            return None
        size = self.page_bytes
        for lpa in sorted(self._open):
            wrong = self.crashed(lpa, bytes(found[lpa * size : (lpa + 1) * size]))
            if wrong:
                return wrong
        if found == self.image:
            return None
        lpa = self._first_other(found)
        return self.crashed(lpa, bytes(found[lpa * size : (lpa + 1) * size]))

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
