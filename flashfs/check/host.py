"""A host model: a device on an image without a name, and the contents that the device must read."""

from __future__ import annotations

import os
import random
from typing import Any

import nandimg
from flashfs.check.setting import Broken
from flashfs.device import Device
from nandimg import Geometry


def first_difference(found: bytes | bytearray, due: bytes | bytearray) -> int:
    """The offset of the first byte that differs."""
    return next(at for at, (a, b) in enumerate(zip(found, due, strict=True)) if a != b)


class Host:
    """Writes, trims, flushes, mounts and compares. ``model`` is the expected content of the whole device.

    The image is in memory, under a name that only this process has: it can be closed and opened like a file, and
    nothing is left behind however this ends.
    """

    def __init__(self, spec: str, geometry: Geometry, options: dict[str, Any] | None = None) -> None:
        self.spec = spec
        self.geometry = geometry
        self.options = options or {}
        self.page = geometry.page_bytes
        self.model = bytearray(geometry.logical_bytes)
        self.unflushed: set[int] = set()  # LPAs that changed since the last flush that was acknowledged
        self.requests = self.mounts = 0
        self.device: Device = None  # type: ignore[assignment]  # until it is opened
        self.fd = os.memfd_create("flashfs-check", os.MFD_CLOEXEC)
        nandimg.create(self.path, geometry, force=True)

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self.fd}"

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *problem: object) -> None:
        try:
            self.close(clean=False)
        finally:
            os.close(self.fd)

    # --- power and image

    def open(self, **how: Any) -> Device:
        """Mount; a blank image is bound to the FTL first."""
        bound = bool(nandimg.inspect(self.path).ftl)
        self.device = Device.open(self.path, ftl=self.spec, options={} if bound else self.options, **how)
        self.mounts += 1
        return self.device

    def close(self, clean: bool = True) -> None:
        """Unmount; if not ``clean``, as if the process were killed."""
        if self.device is not None:
            self.device.close(clean=clean)
            self.device = None  # type: ignore[assignment]

    def image(self) -> bytes:
        """Every byte of the file."""
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0)

    def put(self, raw: bytes) -> None:
        """Overwrite the file with these bytes, from its start."""
        os.pwrite(self.fd, raw, 0)

    # --- requests

    def write(self, offset: int, data: bytes) -> None:
        self._change(offset, data)
        self.device.write(offset, data)

    def trim(self, offset: int, length: int) -> None:
        self._change(offset, bytes(length))
        self.device.trim(offset, length)

    def copy(self, source: int, target: int, length: int) -> None:
        """Within the disk; the ranges do not overlap."""
        self._change(target, bytes(self.model[source : source + length]))
        self.device.copy(source, target, length)

    def remap(self, target: int, source: int, length: int, *, move: bool = False) -> None:
        """The ranges may overlap. A move empties the part of its source that is not target."""
        data = bytes(self.model[source : source + length])
        if move:
            self._change(source, bytes(length))
            self.requests -= 1
        self._change(target, data)
        self.device.remap(target, source, length, move=move)

    def _change(self, offset: int, data: bytes) -> None:
        """Call before the request: after a power cut in it, a page may already have its new content."""
        self.requests += 1
        self.model[offset : offset + len(data)] = data
        self.unflushed.update(range(offset // self.page, -(-(offset + len(data)) // self.page)))

    def flush(self) -> None:
        self.requests += 1
        self.device.flush()
        self.unflushed.clear()

    def span(self, rnd: random.Random, most: int) -> tuple[int, int]:
        """(offset, length) of 1 to ``most`` whole pages somewhere."""
        n = rnd.randint(1, min(most, self.geometry.lpas))
        return rnd.randrange(self.geometry.lpas - n + 1) * self.page, n * self.page

    def anything(self, rnd: random.Random, most: int = 6) -> None:
        """One random request: mostly writes of whole pages."""
        offset, length = self.span(rnd, most)
        kind = rnd.random()
        if kind < 0.75:
            self.write(offset, rnd.randbytes(length))
        elif kind < 0.87:
            self.trim(offset, length)
        else:
            self.flush()

    # --- looking

    def look(self, when: str, offset: int = 0, length: int | None = None) -> None:
        """Read a range; Broken if it differs from the model."""
        length = self.geometry.logical_bytes - offset if length is None else length
        found, due = self.device.read(offset, length), self.model[offset : offset + length]
        if found != due:
            at = offset + first_difference(found, due)
            raise Broken(f"{when}: byte {at % self.page} of LPA {at // self.page} is not what was written last")

    def sound(self, when: str) -> None:
        """Broken if an invariant that `flashfs fsck` checks does not hold."""
        problems = self.device.problems()
        if problems:
            raise Broken(f"{when}: {problems[0]}")
