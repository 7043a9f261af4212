"""Schemes with translation pages under GeckoFTL's cleaning policy, and whose account a flash operation is on."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain

import pytest
from schemes import kinds_of

from flashfs.crash import run_case, tiers
from flashfs.device import Device
from flashfs.engine.blocks.pool import KIND_NAMES
from flashfs.parts.paged.cmt import ENTRY_BYTES
from flashfs.parts.superblocks.metadata_aside_gc import MetadataAsideGc
from nandimg import Geometry

PAGE = 512
CHIP = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=400, dies=2, oob_bytes=64, lpas=3000)
FTLS = ("dftl", "lazyftl", "sftl", "tpftl", "muftl", "ibftl")
DEMAND = (*FTLS, "geckoftl")
METADATA = {kind for kind, name in KIND_NAMES.items() if name in ("translation", "validity")}


def worked(ftl: str, turns: int = 6_000, geometry: Geometry = CHIP, **options: object) -> Device:
    cache = {"cmt_bytes": 200 * ENTRY_BYTES} if ftl in DEMAND else {}
    how = {name: str(one) for name, one in {"buffer": 0, **cache, **options}.items()}
    device = Device.memory(geometry, ftl, how)
    rnd = random.Random(3)
    device.write(0, bytes(geometry.lpas * PAGE))
    for turn in range(turns):
        device.write(rnd.randrange(geometry.lpas) * PAGE, turn.to_bytes(4, "little") * (PAGE // 4))
    return device


@pytest.mark.parametrize("ftl", FTLS)
def test_metadata_are_moved_by_the_one_and_not_by_the_other(ftl: str) -> None:
    greedy, aside = worked(ftl), worked(ftl, cleaning="aside")
    assert METADATA & greedy.ssd.mover.moved().keys()
    assert isinstance(aside.ssd.cleaning, MetadataAsideGc) and not isinstance(greedy.ssd.cleaning, MetadataAsideGc)
    assert not METADATA & aside.ssd.mover.moved().keys() and aside.ssd.cleaning.escapes == 0
    assert aside.ssd.mover.moved()[1][1] > 300  # user pages were
    for device in (greedy, aside):
        assert device.problems() == []
        device.close()


@pytest.mark.parametrize("ftl", FTLS)
def test_a_device_with_little_to_spare_is_never_full(ftl: str) -> None:
    """Pages that are not written again hold blocks of metadata: these are cleaned in the end, one after another."""
    device = worked(ftl, 20_000, Geometry(page_bytes=PAGE, pages_per_block=16, blocks=330, dies=1, oob_bytes=64,
                                          lpas=4000), cleaning="aside")  # fmt: skip
    assert device.problems() == []
    device.close()


@pytest.mark.parametrize("ftl", kinds_of(FTLS))
def test_power_cuts(ftl: str) -> None:
    """Cases of tier random, each under this policy."""
    cuts = cases = 0
    for case in chain.from_iterable(tiers.scattered(ftl, 0, unit) for unit in range(14, 19)):
        others = tuple(pair for pair in case.options if pair[0] != "cleaning")
        outcome = run_case(replace(case, options=(*others, ("cleaning", "aside"))))
        assert outcome.failure is None, outcome.failure
        cuts, cases = cuts + outcome.cuts_hit, cases + 1
    assert cuts >= 150 and cases >= 100


@pytest.mark.parametrize("ftl", ["pagemap", "leaftl", *DEMAND])
def test_every_operation_is_on_somebodys_account(ftl: str) -> None:
    device = worked(ftl)
    device.read(0, 200 * PAGE)
    device.flush()
    stats = device.stats()
    by_cause, moved = stats["nand"]["by_cause"], device.ssd.mover.moved()
    for at, operation in enumerate(("read", "program")):
        purposes = stats["purpose"][operation]
        assert sum(purposes.values()) == stats["nand"][operation] and min(purposes.values()) >= 0
        assert all(read == programmed for kind, (read, programmed) in moved.items() if kind in METADATA)  # none is late
        metadata = sum(counts[at] for kind, counts in moved.items() if kind in METADATA)
        spent = by_cause[operation].get("map", 0) + by_cause[operation].get("validity", 0)
        assert purposes["translation"] + purposes["validity"] == spent + metadata
    own = by_cause["program"]["host"] + by_cause["program"].get("pad", 0)
    assert stats["purpose"]["program"]["user"] == own + moved[1][1]
    assert (stats["purpose"]["program"]["translation"] > 0) == (ftl in DEMAND)
    device.forget_counts()
    assert device.ssd.mover.moved() == {}
    device.close()
