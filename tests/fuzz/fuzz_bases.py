"""Sound images to be damaged: each scheme on small chips, in every state that an image can be found in."""

from __future__ import annotations

import os
import pickle
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import overload

import nandimg
from flashfs.crash.programs import presets_for
from flashfs.device import Device
from flashfs.ftl import SCHEMES, scheme
from nandimg import PRESETS, Cut, FaultyNand, PowerCut, open_image
from nandimg._faults import SHAPES

#: (scheme, preset, backend): the smallest chips, one whose neighbours crowd, one of two dies, one that keeps no data
SETTINGS = [
    ("pagemap", "tiny-8", "file"),
    ("pagemap", "tiny-16", "file"),
    ("slimftl", "tiny-16", "file"),
    ("slimftl", "tiny-96", "file"),
    ("pagemap", "tiny-24d", "file"),
    ("slimftl", "tiny-24d", "file"),
    ("pagemap", "tiny-16", "meta"),
    ("leaftl", "tiny-16", "file"),
    ("leaftl", "tiny-24d", "file"),
]
SMALL = ("tiny-16", "tiny-32", "tiny-48")  #: of these the first that a scheme fits
_LISTED = {ftl for ftl, _, _ in SETTINGS}
SETTINGS += [(name, presets_for(name, SMALL)[0], "file") for name in SCHEMES if name not in _LISTED]
KEPT: Path | None = None  #: see Bases
CUTS = 5  #: states that a power cut left
OPTIONS = {("leaftl", "tiny-24d"): {"gamma": "4", "buffer": "6"}}  #: beside a buffer of 2 pages


@dataclass(frozen=True, slots=True)
class Base:
    """One sound image: its bytes, and for each LPA every page content that it ever had (a hole is always allowed)."""

    name: str
    raw: bytes = field(repr=False)
    ftl: str
    plp: bool
    written: tuple[frozenset[bytes], ...] = field(repr=False)


def content(lpa: int, version: int, page_bytes: int) -> bytes:
    """What the host writes: no two pages and no two versions alike."""
    return struct.pack("<QQ", lpa + 1, version + 1) * (page_bytes // 16)


class Maker:
    """One image on its way: what was written to it, and its bytes at any moment."""

    def __init__(self, path: Path, ftl: str, preset: str, backend: str, rnd: Random) -> None:
        self.path, self.ftl, self.preset, self.backend, self.rnd = path, ftl, preset, backend, rnd
        self.geometry = PRESETS[preset].geometry
        self.written: list[set[bytes]] = [set() for _ in range(self.geometry.lpas)]
        self.version = 0
        path.unlink(missing_ok=True)
        nandimg.create(path, self.geometry, backend)

    def take(self, state: str, plp: bool = False) -> Base:
        """The image as it is now."""
        name = f"{self.ftl}/{self.preset}/{self.backend}/{state}"
        return Base(name, self.path.read_bytes(), self.ftl, plp, tuple(frozenset(one) for one in self.written))

    def device(self, plp: bool = False) -> Device:
        own = OPTIONS.get((self.ftl, self.preset), {})
        return Device.open(self.path, ftl=self.ftl, options={"buffer": "2", **own}, plp=plp)

    def write(self, device: Device, lpa: int) -> None:
        data = content(lpa, self.version, device.page_bytes)
        self.version += 1
        self.written[lpa].add(data if self.backend == "file" else bytes(len(data)))
        device.write(lpa * device.page_bytes, data)

    def remap(self, device: Device) -> None:
        """A few pages read what others do, or are moved there."""
        lpas, page = self.geometry.lpas, device.page_bytes
        n = self.rnd.randint(1, 4)
        target, source = self.rnd.randrange(lpas - n + 1), self.rnd.randrange(lpas - n + 1)
        before = [set(one) for one in self.written[source : source + n]]
        for one, more in zip(self.written[target : target + n], before, strict=True):
            one |= more
        device.remap(target * page, source * page, n * page, move=self.rnd.random() < 0.3)

    def churn(self, device: Device, writes: int, trims: int = 0) -> None:
        """Random writes, half of them to a tenth of the LPAs, trims and flushes between them; and remaps, of a scheme
        that has any."""
        lpas = self.geometry.lpas
        for step in range(writes):
            hot = self.rnd.random() < 0.5
            self.write(device, self.rnd.randrange(max(1, lpas // 10) if hot else lpas))
            if trims and step % max(1, writes // trims) == 0:
                first = self.rnd.randrange(lpas)
                device.trim(first * device.page_bytes, min(3, lpas - first) * device.page_bytes)
            if SCHEMES[self.ftl].remaps and self.rnd.random() < 0.3:
                self.remap(device)
            if self.rnd.random() < 0.2:
                device.flush()

    def cut(self, at: int, shape: str) -> None:
        """Power goes at flash operation ``at`` of the next life, in the middle of writing (and so of cleaning)."""
        image = open_image(self.path)
        try:
            of = scheme(self.ftl)
            options = of.resolve({"buffer": 2, **(image.header.options or {})})
            with suppress(PowerCut):
                device = Device(image, FaultyNand(image.chip, [Cut(at, shape)]), of, options)
                device.recover()
                self.churn(device, 10 * self.geometry.pages)
        finally:
            image.close()


def states(backend: str) -> tuple[str, ...]:
    """The states in which a chip is taken, in this order."""
    through = ("blank", "formatted", "clean", "mid-write", "aged", "trims", "clean-aged")
    return (*through, *(f"cut{index}" for index in range(CUTS)), *(("nvram",) if backend == "file" else ()))


def _of_setting(path: Path, ftl: str, preset: str, backend: str, rnd: Random) -> Iterator[Base]:
    maker = Maker(path, ftl, preset, backend, rnd)
    yield maker.take("blank")
    maker.device().close(clean=False)
    yield maker.take("formatted")
    lpas = maker.geometry.lpas
    with maker.device() as device:
        maker.churn(device, lpas)
    yield maker.take("clean")
    device = maker.device()
    maker.churn(device, lpas // 2)
    device.flush()
    maker.churn(device, 2)
    yield maker.take("mid-write")
    maker.churn(device, 3 * lpas)
    yield maker.take("aged")
    device.close(clean=False)
    device = maker.device()
    maker.churn(device, lpas, trims=8)
    device.flush()
    yield maker.take("trims")
    device.close()
    yield maker.take("clean-aged")
    for index in range(CUTS):
        maker.cut(rnd.randrange(3, 200), SHAPES[rnd.randrange(len(SHAPES))])
        yield maker.take(f"cut{index}")
    if backend == "file":
        device = maker.device(plp=True)
        maker.churn(device, lpas, trims=3)
        maker.write(device, 0)
        maker.write(device, 1)
        yield maker.take("nvram", plp=True)
        device.close(clean=False)


class Bases(Sequence[Base]):
    """All of them, each made when it is first asked for: with it, the other states of its chip. The same seed makes the
    same bytes but for UUIDs. Where there is a folder ``KEPT``, processes leave each other there
    what they made."""

    def __init__(self, seed: int = 1) -> None:
        self.seed = seed
        self.names = [
            (index, f"{ftl}/{preset}/{backend}/{state}")
            for index, (ftl, preset, backend) in enumerate(SETTINGS)
            for state in states(backend)
        ]
        self.made: dict[str, Base] = {}

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, at: int) -> Base: ...
    @overload
    def __getitem__(self, at: slice) -> list[Base]: ...
    def __getitem__(self, at: int | slice) -> Base | list[Base]:
        if isinstance(at, slice):
            return [self.named(name) for _, name in self.names[at]]
        return self.named(self.names[at][1])

    def of(self, ftl: str) -> Bases:
        """Those of one scheme."""
        some = Bases(self.seed)
        some.made = self.made
        some.names = [(index, name) for index, name in self.names if name.startswith(f"{ftl}/")]
        return some

    def named(self, name: str) -> Base:
        if name not in self.made:
            index = next(index for index, listed in self.names if listed == name)
            self.made |= {base.name: base for base in self._of_setting(index)}
        return self.made[name]

    def _of_setting(self, index: int) -> list[Base]:
        left = KEPT and KEPT / f"{self.seed}-{index}"
        if left and left.exists():
            return pickle.loads(left.read_bytes())  # type: ignore[no-any-return]  # our own, of this run
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            made = list(_of_setting(Path(folder, "base"), *SETTINGS[index], Random(f"{self.seed}/{index}")))
        if left:
            whole = left.with_suffix(f".{os.getpid()}")
            whole.write_bytes(pickle.dumps(made))
            whole.rename(left)
        return made


def bases(seed: int = 1) -> Bases:
    return Bases(seed)
