"""The image's own disk fails at any call, under any request: whatever else that costs, the device goes on agreeing with
itself, or stops and is recovered. After each: a clean close, a mount, fsck, and no page that is neither old nor new."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from schemes import KINDS, STANDS_FOR

import nandimg
from flashfs.device import Device
from flashfs.errors import DeviceFailedError
from flashfs.ftl import SCHEMES
from nandimg import Geometry
from nandimg._fault_filters import HostCalls

PAGE = 512
SMALL = Geometry(page_bytes=PAGE, pages_per_block=8, blocks=120, dies=2, oob_bytes=64, lpas=640, nvram_bytes=16 * 528)
HALF = SMALL.lpas // 2


@dataclass
class Rig:
    """A device on an image without a name, its host calls counted, and what each page may hold by now."""

    ftl: str
    options: dict[str, str]
    plp: bool = False
    dram: int | None = None
    turn: int = 0
    now: dict[int, bytes] = field(default_factory=dict)
    may: dict[int, set[bytes]] = field(default_factory=dict)
    under_way: set[int] = field(default_factory=set)  # of requests that have not come back, or not well

    def __post_init__(self) -> None:
        self.fd = os.memfd_create("flashfs-errors", os.MFD_CLOEXEC)
        nandimg.create(self.path, SMALL, force=True)
        self.mount()

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self.fd}"

    def mount(self) -> None:
        def front(chip: nandimg.Chip) -> nandimg.Nand:
            self.host = HostCalls(chip)
            return self.host

        self.device = Device.open(self.path, ftl=self.ftl, options=dict(self.options), plp=self.plp, dram=self.dram,
                                  front=front)  # fmt: skip

    def close(self) -> None:
        os.close(self.fd)

    # --- requests; what they change is old or new until a flush

    def _may(self, lpa: int, page: bytes) -> None:
        self.may.setdefault(lpa, {self.now.get(lpa, bytes(PAGE))}).add(page)
        self.now[lpa] = page
        self.under_way.add(lpa)

    def write(self, lpa: int, n: int = 1) -> None:
        self.turn += 1
        pages = [b"%08d.%07d" % (x, self.turn) * (PAGE // 16) for x in range(lpa, lpa + n)]
        for i, page in enumerate(pages):
            self._may(lpa + i, page)
        self.device.write(lpa * PAGE, b"".join(pages))
        self.under_way.difference_update(range(lpa, lpa + n))

    def trim(self, lpa: int, n: int = 1) -> None:
        for x in range(lpa, lpa + n):
            self._may(x, bytes(PAGE))
        self.device.trim(lpa * PAGE, n * PAGE)
        self.under_way.difference_update(range(lpa, lpa + n))

    def copy(self, target: int, source: int, n: int) -> None:
        for x in range(n):
            self._may(target + x, self.now.get(source + x, bytes(PAGE)))
        self.device.copy(source * PAGE, target * PAGE, n * PAGE)
        self.under_way.difference_update(range(target, target + n))

    def flush(self) -> None:
        self.device.flush()
        self.may.clear()

    # --- what is there

    def judge(self, when: str, running: bool = False) -> None:
        """Every page is what was written last, or one of those that it may be; and that it is from now on. A device
        that is ``running`` still shows the newest, whether it is durable or not, but where a request failed."""
        raw = self.device.read(0, self.device.size)
        for lpa in range(SMALL.lpas):
            page = raw[lpa * PAGE : (lpa + 1) * PAGE]
            known = {self.now.get(lpa, bytes(PAGE))}
            if not running or lpa in self.under_way:
                known |= self.may.get(lpa, set())
            may = sorted(one[:16] for one in known)
            assert page in known, f"{when}: LPA {lpa} holds {page[:16]!r}; it may hold {may}"
            self.now[lpa] = page
        self.under_way.clear()


def prepare(rig: Rig) -> None:
    """Everything written, half of it again and again, so that cleaning is close; all durable."""
    for lpa in range(0, SMALL.lpas, 64):
        rig.write(lpa, 64)
    for turn in range(5):
        for lpa in range(turn, HALF, 3):
            rig.write(lpa, 1)
    rig.flush()


def overwrites(rig: Rig) -> None:
    for lpa in range(0, HALF, 5):
        rig.write(lpa, 2)


def long_writes(rig: Rig) -> None:
    """Past the buffer, which holds older versions of some of the pages."""
    rig.write(40, 3)
    rig.write(8, 100)


def many_trims(rig: Rig) -> None:
    """More than the list of pending ones holds, none of which another one goes on from."""
    for lpa in range(0, 600, 2):
        rig.trim(lpa)


def long_trim(rig: Rig) -> None:
    rig.write(3, 4)
    rig.trim(1, 500)
    rig.flush()


def flushes(rig: Rig) -> None:
    for lpa in range(0, 60, 3):
        rig.write(lpa)
        rig.trim(lpa + 100)
        rig.flush()


def copies(rig: Rig) -> None:
    """Of pages that are in the write buffer, so that a device that remaps them has something to program too."""
    rig.write(301, 3)
    rig.copy(0, 300, 24)
    rig.flush()


def reads(rig: Rig) -> None:
    """Reads all over, after writes that have not been flushed: with a map in flash, reads program pages."""
    for lpa in range(0, 60, 7):
        rig.write(lpa)
    for lpa in range(SMALL.lpas):
        rig.device.read(lpa * 7 % SMALL.lpas * PAGE, PAGE)
    rig.flush()


def checkpoints(rig: Rig) -> None:
    rig.write(9)
    rig.trim(11, 3)
    rig.device.checkpoint()
    rig.may.clear()
    rig.device.checkpoint()


def remounts(rig: Rig) -> None:
    """The first change after a clean mount leaves its mark first."""
    rig.device.close()
    rig.may.clear()
    rig.mount()
    rig.write(5)
    rig.flush()


REQUESTS = (overwrites, long_writes, many_trims, long_trim, flushes, copies, reads, checkpoints, remounts)
VARIANTS: dict[str, Callable[[], Rig]] = {
    "pagemap": lambda: Rig("pagemap", {"buffer": "8"}),
    "pagemap-plp": lambda: Rig("pagemap", {"buffer": "8"}, plp=True),
    "pagemap-unbuffered": lambda: Rig("pagemap", {"buffer": "0", "checkpoint_every": "90"}),
    "slimftl": lambda: Rig("slimftl", {"buffer": "8", "shift": "2"}),
    "slimftl-plp": lambda: Rig("slimftl", {"buffer": "8"}, plp=True),
    "leaftl": lambda: Rig("leaftl", {"buffer": "16"}),
    "leaftl-in-flash": lambda: Rig("leaftl", {"buffer": "8", "gamma": "3", "table_bytes": "1"}),
    "dftl-tight": lambda: Rig("dftl", {"buffer": "8", "cmt_bytes": "300"}),
}
VARIANTS |= {name: partial(Rig, name, {"buffer": "8"}) for name in SCHEMES if name not in VARIANTS}


def sheds(rig: Rig) -> None:
    """Remaps, and writes by the buffer: NVRAM has so little room that cleaning, in the middle of a drain, writes pages
    out for LPAs of their own."""
    rnd = random.Random(3)
    for _ in range(700):
        target, source = rnd.randrange(HALF), rnd.randrange(HALF)
        if target != source and rnd.random() < 0.5:
            rig.copy(target, source, 1)
        else:
            rig.write(target)
    rig.flush()


VARIANTS_THAT_SHED = {"buffer": "8", "segment": "64", "nvram": "400", "watermark": "100"}


def test_pages_that_are_written_out_within_an_append() -> None:
    """A page of the host's whose program fails after that is still in the buffer."""
    VARIANTS["remapssd-crowded"] = partial(Rig, "remapssd", VARIANTS_THAT_SHED)
    try:
        with rigged("remapssd-crowded") as rig:
            prepare(rig)
            sheds(rig)
            assert rig.device.ssd.cleaning.entries.shed_n > 1
            go_on(rig)
        run_all("remapssd-crowded", sheds, 3)
    finally:
        del VARIANTS["remapssd-crowded"]


def strike(rig: Rig, request: Callable[[Rig], None], n: int, code: int, sticky: bool) -> bool:
    """The request with its ``n``-th host call failing; whether there was such a call."""
    prepare(rig)
    rig.host.arm(n, code, sticky)
    host = rig.host
    try:
        request(rig)
    except OSError as error:
        assert error.errno in (code, errno.EIO), error
    if request is remounts and not host.struck:  # the close went through, and the mount has a chip of its own
        return False
    host.mend()
    return host.struck > 0


def go_on(rig: Rig) -> None:
    """The disk works again: what can be read is right, more is done, and the device is closed for good."""
    if rig.device.ssd.why_stopped() is None and not rig.device._image.chip.closed:
        rig.judge("after the error", running=True)
        with contextlib.suppress(DeviceFailedError):
            rig.write(2, 3)
            rig.trim(7)
            rig.flush()
    with contextlib.suppress(DeviceFailedError):
        rig.device.close()


def must_be_sound(rig: Rig, when: str) -> None:
    rig.mount()
    assert rig.device.recovery.alarms == [], f"{when}: {rig.device.recovery.alarms}"
    assert rig.device.problems() == [], when
    rig.judge(when)
    rig.may.clear()
    rig.write(600, 20)
    rig.flush()
    rig.judge(when)
    rig.device.close()


@contextlib.contextmanager
def rigged(variant: str) -> Iterator[Rig]:
    rig = VARIANTS[variant]()
    try:
        yield rig
    finally:
        rig.device._image.close()
        rig.close()


def run_all(variant: str, request_kind: Callable[[Rig], None], stride: int) -> Counter[str]:
    """Each call fails in each way; with a ``stride``, only the first few and then ever fewer."""
    told: Counter[str] = Counter()
    for code, sticky in ((errno.ENOSPC, False), (errno.EIO, False), (errno.ENOSPC, True)):
        n, struck = 1, True
        while struck:
            with rigged(variant) as rig:
                struck = strike(rig, request_kind, n, code, sticky)
                stopped = struck and rig.device.ssd.why_stopped() is not None
                assert stopped == (struck and rig.host.struck_syncs > 0)
                go_on(rig)
                must_be_sound(rig, f"{variant} {request_kind.__name__} call {n} {errno.errorcode[code]} {sticky}")
            told["cases"] += struck
            told["stopped"] += stopped
            n += 1 + (n // stride if stride else 0)
    assert told["cases"] >= 3, told
    print(f"{variant} {request_kind.__name__}: {dict(told)}")
    return told


FAST = [*STANDS_FOR, "pagemap-plp", "leaftl-in-flash"]
ALL = [(one, asked) for one in (*FAST, *(name for name in VARIANTS if name not in FAST)) for asked in REQUESTS]


def is_fast(i: int) -> bool:
    """Of two requests one, of each variant others."""
    return ALL[i][0] in FAST and i % 2 == 0


@pytest.mark.parametrize(
    ("variant", "request_kind"),
    [
        pytest.param(one, asked, id=f"{one}-{asked.__name__}", marks=() if is_fast(i) else pytest.mark.slow)
        for i, (one, asked) in enumerate(ALL)
    ],
)
def test_calls_of_every_request_fail(variant: str, request_kind: Callable[[Rig], None]) -> None:
    """A program that fails is the request's error alone. A sync that fails stops the device: the mount recovers."""
    run_all(variant, request_kind, 2)


@pytest.mark.slow
@pytest.mark.parametrize("request_kind", REQUESTS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_call_of_every_request_fails(variant: str, request_kind: Callable[[Rig], None]) -> None:
    run_all(variant, request_kind, 0)


def test_failed_checkpoints_take_no_block() -> None:
    """What was written of one that the host's disk had no room for is given back, time after time."""
    with rigged("pagemap") as rig:
        prepare(rig)
        rig.device.checkpoint()
        free = []
        for _ in range(60):
            rig.write(3)
            rig.host.arm(5, errno.ENOSPC, True)
            with pytest.raises(OSError, match="space"):
                rig.device.checkpoint()
            rig.host.mend()
            rig.flush()
            free.append(rig.device.stats()["pool"]["free"])
        assert min(free[1:]) >= free[0] - 1
        assert rig.device.problems() == []
        go_on(rig)
        must_be_sound(rig, "after 60 failures")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs of its own")
@pytest.mark.parametrize("ftl", KINDS)
def test_discards_on_a_full_disk(tmp_path: Path, ftl: str) -> None:
    """The whole story, on a real file system that is full while the host discards."""
    where = tmp_path / "small"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100M", "flashfs-test", str(where)], check=True)
    try:
        discard_on_full(where, ftl)
    finally:
        subprocess.run(["umount", str(where)], check=True)


def discard_on_full(where: Path, ftl: str) -> None:
    path, page, data = where / "image", 4096, os.urandom(32 << 20)
    nandimg.create(path, Geometry(blocks=142, lpas=32_768))
    with Device.open(path, ftl=ftl) as device:
        device.write(0, data)
        device.flush()
        filler = where / "filler"
        with pytest.raises(OSError, match="space"), filler.open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
        with contextlib.suppress(OSError):
            for lpa in range(0, 800, 2):
                device.trim(lpa * page, page)
        trimmed = {lpa for lpa in range(0, 800, 2) if not any(device.read(lpa * page, page))}
        # of a cache with a bound as many wait in DRAM as may be dirty
        assert len(trimmed) >= min(255, device.stats()["scheme"].get("dirty_most", 255))
        filler.unlink()
        device.write(40 << 20, b"after" * 1000)
        device.flush()
    with Device.open(path) as device:
        assert device.recovery.clean
        assert device.problems() == []
        for lpa in range(800):
            here = data[lpa * page : (lpa + 1) * page] if lpa not in trimmed else bytes(page)
            assert device.read(lpa * page, page) == here, lpa
