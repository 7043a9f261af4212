"""An FTL in Python that is wrong once, or leaves by an exception that is no Exception."""

from __future__ import annotations

import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import nandimg
from flashfs.device import Device
from flashfs.errors import FlashfsError, FtlError
from nandimg import Geometry

PAGE, LPAS = 512, 150
GEOMETRY = Geometry.sized(LPAS * PAGE, op=0.8, page_bytes=PAGE, pages_per_block=8)


class Honest:
    """A page table that answers ``lie`` at one call of lookup."""

    calls, at, lie = 0, 0, "none"

    def __init__(self, chip: Any) -> None:
        self.ppa_of: dict[int, int] = {}

    def lookup(self, lpa: int) -> int | None:
        Honest.calls += 1
        found = self.ppa_of.get(lpa)
        if Honest.calls != Honest.at:
            return found
        return {"none": None, "next": (found or 0) + 1, "other": self.ppa_of.get(lpa ^ 1)}[Honest.lie]

    def bind(self, lpa: int, ppa: int) -> None:
        self.ppa_of[lpa] = ppa

    def unbind(self, lpa: int) -> None:
        del self.ppa_of[lpa]


def page(lpa: int, version: int) -> bytes:
    return b"%04d%04d" % (lpa, version) * (PAGE // 8)


@pytest.mark.parametrize("lie", ["none", "next", "other"])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_wrong_answer_costs_what_was_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str, seed: int
) -> None:
    """At each call in turn: reported as a mistake or without consequence, and never a page that cleaning poisons."""
    path, told = tmp_path / "chip", 0
    monkeypatch.setattr(Honest, "lie", lie)
    for at in range(1, 2000, 37):
        rnd, newest = random.Random(seed), {}
        nandimg.create(path, GEOMETRY, force=True)
        monkeypatch.setattr(Honest, "at", 0)
        device = Device.open(path, ftl=Honest, options={"buffer": 0}, sync="none")
        for version in range(250):
            lpa = version if version < LPAS else rnd.randrange(LPAS)
            device.write(lpa * PAGE, page(lpa, version))
            newest[lpa] = version
        device.flush()
        monkeypatch.setattr(Honest, "calls", 0)
        monkeypatch.setattr(Honest, "at", at)
        try:
            for version in range(250, 550):
                lpa = rnd.randrange(40)
                newest.pop(lpa, None)
                device.write(lpa * PAGE, page(lpa, version))
        except FlashfsError:
            told += 1
        device.close(clean=False)
        monkeypatch.setattr(Honest, "at", 0)
        device = Device.open(path, ftl=Honest)
        assert device.recovery.alarms == [], at
        for lpa, version in newest.items():
            assert device.read(lpa * PAGE, PAGE) == page(lpa, version), at
        device.close(clean=False)
    assert told > 5


class Leaves(Honest):
    how: Any = SystemExit

    def lookup(self, lpa: int) -> int | None:
        if len(self.ppa_of) == 100:
            raise Leaves.how(3)
        return self.ppa_of.get(lpa)


@pytest.mark.parametrize("how", [SystemExit, GeneratorExit, KeyboardInterrupt])
def test_an_exit_is_a_mistake_of_the_class(monkeypatch: pytest.MonkeyPatch, how: type[BaseException]) -> None:
    monkeypatch.setattr(Leaves, "how", how)
    device = Device.memory(GEOMETRY, Leaves, options={"buffer": 0})
    with pytest.raises(FtlError, match=rf"lookup\(lpa=99\): raised {how.__name__}: 3 at test_strangers.py line \d+"):
        for lpa in range(LPAS):
            device.write(lpa * PAGE, bytes(PAGE))


class Sleeps(Honest):
    inside, gone = threading.Event(), threading.Event()

    def lookup(self, lpa: int) -> int | None:
        while len(self.ppa_of) == 100 and not Sleeps.gone.is_set():
            Sleeps.inside.set()
            time.sleep(0.01)
        return self.ppa_of.get(lpa)


def test_ctrl_c_is_none() -> None:
    """An exception from a signal ends the command, whatever code it interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may ignore it
    device = Device.memory(GEOMETRY, Sleeps, options={"buffer": 0})
    main = threading.main_thread().ident or 0

    def press() -> None:
        Sleeps.inside.wait(60)
        time.sleep(0.1)
        signal.pthread_kill(main, signal.SIGINT)
        Sleeps.gone.wait(60)
        Sleeps.gone.set()  # the loop ends, whatever became of the signal

    pressed = threading.Thread(target=press)
    pressed.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            for lpa in range(LPAS):
                device.write(lpa * PAGE, bytes(PAGE))
    finally:
        Sleeps.gone.set()
        pressed.join()
        signal.signal(signal.SIGINT, before)
