"""LeaFTL on a device: where its pages lie, what their OOB names, that one more read is always enough, what is exact."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandimg
from flashfs import _recovery
from flashfs._fsck import cross_check
from flashfs.crash.bench import Bench
from flashfs.crash.cases import Case
from flashfs.device import ENGINE_OOB, Device, default_buffer
from flashfs.errors import BindError
from flashfs.ftl import SCHEMES, leaftl
from nandimg import PRESETS, FaultyNand, Geometry, faults

PAGE = 512
GEOMETRY = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=64, channels=2, dies=4, oob_bytes=160, lpas=700,
                    nvram_bytes=16384)  # fmt: skip
NONE = 2**32 - 1
GAMMAS = (0, 1, 4, 16)


def spare(device: Device, ppa: int) -> tuple[int, int, bytes]:
    """(status, LPA, the scheme's bytes) of a page."""
    status, raw = device.nand.read_spare_area(*divmod(ppa, device.ssd.nand.pages_per_block))
    return status, struct.unpack_from("<I", raw, 8)[0], raw[ENGINE_OOB:]


def true_map(device: Device) -> dict[int, int]:
    """Where each LPA is, from the live pages' OOBs alone."""
    per_block = device.ssd.nand.pages_per_block
    found = {}
    for block in range(device.ssd.nand.blocks):
        for page in device.ssd.validity.live_in(block):
            lpa = spare(device, block * per_block + page)[1]
            assert lpa not in found
            found[lpa] = block * per_block + page
    return found


def pages_of(lpas: Any) -> np.ndarray[Any, Any]:
    return np.array(lpas, np.uint32)


def reads_of(device: Device) -> int:
    return sum(device.nand.counters()["read"])


def work(device: Device, rnd: random.Random, requests: int) -> None:
    """Stretches with holes, so that lines are bent, and single pages; trims and flushes."""
    lpas = device.ssd.lpas
    for _ in range(requests):
        first, kind = rnd.randrange(lpas), rnd.random()
        run = [lpa for lpa in range(first, min(lpas, first + rnd.choice((1, 3, 40, 150)))) if rnd.random() < 0.7]
        if kind < 0.85 and run:
            device.ssd.write_pages(pages_of(run), bytes(len(run) * PAGE))
        elif kind < 0.92:
            device.ssd.trim_pages(first, min(lpas - first, rnd.choice((1, 5, 60))))
        else:
            device.ssd.sync_now()


def one_more_read_is_enough(device: Device) -> int:
    """Read each LPA by itself, off the buffer: one read, and one more where the prediction is off. How many were."""
    device.ssd.sync_now()
    true, off = true_map(device), 0
    into = bytearray(PAGE)
    for lpa in range(device.ssd.lpas):
        said = device.ssd.mapping.explain(lpa)["ppa"]
        assert (said is None) == (lpa not in true), f"LPA {lpa}"
        before, extra = reads_of(device), device.ssd.extra_reads
        device.ssd.read_pages(pages_of([lpa]), into)
        reads = 0 if said is None else 1 if said == true[lpa] else 2
        assert reads_of(device) - before == reads, f"LPA {lpa} at {true.get(lpa)}, predicted {said}"
        assert device.ssd.extra_reads - extra == max(0, reads - 1)
        assert reads < 2 or abs(said - true[lpa]) <= device.ssd.mapping.gamma
        off += reads == 2
    return off


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("buffer", [0, 7, 64])
def test_one_more_read_is_always_enough(gamma: int, buffer: int) -> None:
    """In open and closed blocks, of pages that the host wrote and that cleaning moved."""
    device = Device.memory(GEOMETRY, "leaftl", {"gamma": gamma, "buffer": buffer})
    rnd, off = random.Random(gamma * 100 + buffer), 0
    for _ in range(12):
        work(device, rnd, 60)
        off += one_more_read_is_enough(device)
        assert device.problems() == []
    assert (off > 50) is (gamma > 0)
    assert device.stats()["nand"]["by_cause"]["program"]["gc"] > 500
    assert device.ssd.mapping.mispredictions == off
    assert device.ssd.mapping.probes == 0
