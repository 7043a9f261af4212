"""The host itself dies: of the image's writes since its last sync any subset reached the disk, in any order.

The image is a real file. At every durable sync its bytes are remembered; then, at some moment, each 512-byte sector
that has changed since is kept or lost by the toss of a coin, and the result is opened and judged.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import nandimg
from flashfs import _recovery
from flashfs._fsck import cross_check
from flashfs.crash.campaign import random_program
from flashfs.crash.cases import parse_program
from flashfs.crash.judge import Judge
from flashfs.device import Device, build_ssd
from flashfs.ftl import SCHEMES, scheme
from nandimg import PRESETS, FaultyNand

SECTOR = 512


class DyingHost:
    """A device on an image file whose unsynced sectors can be lost."""

    def __init__(self, path: Path, ftl: str, preset: str, buffer: int) -> None:
        self.path = path
        nandimg.create(path, PRESETS[preset].geometry, force=True)
        Device.open(path, ftl=ftl).close()
        self.options = {"buffer": buffer}
        self.durable = b""
        self.open(scheme(ftl))

    def open(self, of) -> None:
        self.image = nandimg.open_image(self.path)
        self.scheme = of
        options = of.resolve({**self.options, **(self.image.header.options or {})})
        self.durable = self.path.read_bytes()
        nand = FaultyNand(self.image.chip, on_sync=self.synced)
        self.ssd = build_ssd(of, options, nand)
        _recovery.Recovery(self.ssd).run()

    def synced(self) -> None:
        self.durable = self.path.read_bytes()

    def die(self, rnd: random.Random) -> None:
        """The file becomes a mix of what was durable and what was only written."""
        now = self.path.read_bytes()
        self.image.close()
        keep = rnd.random()
        mixed = bytearray(self.durable)
        for at in range(0, len(now), SECTOR):
            if now[at : at + SECTOR] != self.durable[at : at + SECTOR] and rnd.random() < keep:
                mixed[at : at + SECTOR] = now[at : at + SECTOR]
        self.path.write_bytes(mixed)
        self.open(self.scheme)


def _live(host: DyingHost, judge: Judge, program: str) -> None:
    page = host.ssd.nand.page_bytes
    for operation, lpa, n in parse_program(program):
        if operation == "w":
            host.ssd.write_range(lpa * page, b"".join(judge.will_write(x) for x in range(lpa, lpa + n)))
        elif operation == "t":
            judge.will_trim(lpa, n)
            host.ssd.trim_pages(lpa, n)
        elif operation == "f":
            host.ssd.sync_now()
            judge.flushed()


def _examine(host: DyingHost, judge: Judge, pages: int) -> None:
    page = host.ssd.nand.page_bytes
    for lpa in range(pages):
        into = bytearray(page)
        host.ssd.read_range(lpa * page, into)
        assert judge.crashed(lpa, bytes(into)) is None
    assert host.ssd.check() + cross_check(host.ssd) == []


@pytest.mark.parametrize("preset", ["tiny-8", "tiny-16", "tiny-24d"])
@pytest.mark.parametrize("ftl", list(SCHEMES))
def test_any_subset_of_unsynced_sectors(ftl: str, preset: str, tmp_path: Path) -> None:
    pages = PRESETS[preset].geometry.lpas
    for seed in range(40):
        rnd = random.Random(f"{ftl} {preset} {seed}")
        host = DyingHost(tmp_path / "host.nand", ftl, preset, rnd.choice((0, 2)))
        judge = Judge(pages, PRESETS[preset].geometry.page_bytes)
        try:
            for _ in range(4):
                program = random_program(rnd, pages, rnd.randint(5, 60))
                _live(host, judge, program)
                host.die(rnd)
                _examine(host, judge, pages)
        except Exception as error:
            raise AssertionError(f"ftl={ftl} preset={preset} seed={seed} program={program!r}: {error}") from error
        finally:
            host.image.close()
