"""The judge: for each page, the versions that it may hold after the power went.

Version 0 is a hole (never written, or trimmed). A write or trim adds a version; an acknowledged flush makes the newest
one the only one; a crash leaves whichever was found, and from then on only that one.
"""

from __future__ import annotations

import struct


class Judge:
    """Knows what each of ``pages`` pages of ``page_bytes`` may hold."""

    def __init__(self, pages: int, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._allowed: list[list[int]] = [[0] for _ in range(pages)]
        self._next = 1

    def content(self, lpa: int, version: int) -> bytes:
        """A page that says which one and which version it is, all over, so that a torn mix of two shows."""
        if version == 0:
            return bytes(self.page_bytes)
        return struct.pack("<QIHH", version, lpa, lpa * 7 & 0xFFFF, version * 13 & 0xFFFF) * (self.page_bytes // 16)

    def will_write(self, lpa: int) -> bytes:
        """A write of ``lpa`` begins: it may be found from now on. Returns the page to write."""
        version = self._next
        self._next += 1
        self._allowed[lpa].append(version)
        return self.content(lpa, version)

    def will_trim(self, lpa: int, n: int = 1) -> None:
        """A trim begins."""
        for page in range(lpa, lpa + n):
            self._allowed[page].append(0)

    def flushed(self) -> None:
        """A flush was acknowledged: the newest versions are the only ones."""
        for versions in self._allowed:
            del versions[:-1]

    def settle(self, lpa: int) -> None:
        """This page's newest version is safe (an acknowledged write with power-loss protection)."""
        del self._allowed[lpa][:-1]

    def newest(self, lpa: int) -> bytes:
        """What a read without a crash must give."""
        return self.content(lpa, self._allowed[lpa][-1])

    def crashed(self, lpa: int, found: bytes) -> str | None:
        """Judge one page after a recovery; None if it is well, and then it is what it is."""
        for version in reversed(self._allowed[lpa]):
            if found == self.content(lpa, version):
                self._allowed[lpa] = [version]
                return None
        may = " or ".join("a hole" if v == 0 else f"version {v}" for v in dict.fromkeys(self._allowed[lpa]))
        return f"LPA {lpa}: holds {self._name(found)}; it may hold {may}"

    def _name(self, found: bytes) -> str:
        if not any(found):
            return "a hole"
        version, lpa = struct.unpack_from("<QI", found)
        if lpa < len(self._allowed) and found == self.content(lpa, version):
            return f"version {version} of LPA {lpa}"
        return "no page that was ever written (torn or mixed)"
