"""Maps in flash over validity stores that are in flash, or late: what GeckoFTL and u-FTL stand on. Both change behind
one request, both program pages of their own, and a move asks the map what a late store does not know yet."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import flash_pvb
import pytest
import test_host_errors
from rig import Rig
from test_flash_bitmap import PAGE, VALIDITY, Load
from test_late_validity import store

from flashfs.crash import campaign, tiers
from flashfs.device import Device
from flashfs.engine.cached_map import CachedMap
from flashfs.engine.cmt import ENTRY_BYTES
from flashfs.engine.defaults import Greedy
from flashfs.engine.demand import saved_bytes
from flashfs.engine.flash_bitmap import FlashBitmap
from flashfs.engine.map_battery import pages_of
from flashfs.errors import BindError, UncorrectableError
from flashfs.ftl import SCHEMES, Scheme
from flashfs.ftl.common import streams_for
from flashfs.ftl.demand_paged import require_room
from flashfs.ftl.leaftl.mapping import LearnedMap
from nandimg import PRESETS, Geometry

CHIP = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=300, dies=2, oob_bytes=64, lpas=3000)
#: power is cut on chips like the smallest, with room for pages of the map and of the bitmap beside the host's
ROOMY = {"tiny-24d": (48, 120), "tiny-20p": (40, 100), "tiny-16k": (40, 100)}
BLOCKS = replace(flash_pvb.BLOCKS, default=8)
TRANSLATION = 2  #: a page's kind
KINDS = ("dftl-flash", "dftl-late")
CUTS = {"sweep": 1_500, "random": 1_200, "faults": 800, "host": 1_200, "wide": 600}
__all__ = ["store"]  # a fixture


def log_of(geometry: Any, options: dict[str, Any]) -> int:
    """Reports that the log has room for. LeaFTL has up to 16 of its own for each page of a block that is moved."""
    return max(options["log"], 18 * geometry.pages_per_block) if "gamma" in options else options["log"]


def scheme_of(kind: str, store: Any) -> Scheme:
    """A scheme called ``kind``: whose map, over which store."""
    mapping_of, _, validity_of = kind.partition("-")
    base = SCHEMES[mapping_of]
    own = () if validity_of == "late" else (flash_pvb.FRAMES, flash_pvb.LOG, BLOCKS, flash_pvb.SPARE)

    def build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
        spares: tuple[int, ...] = ()
        if validity_of == "late":
            validity = store(ssd)
        else:
            log = log_of(ssd.nand, options)
            validity = FlashBitmap(ssd, options["frames"], log=log, blocks_a_page=options["blocks"])
            spares = (validity.pages_in_flash.stream,) if options["spare"] else ()
        if mapping_of == "dftl":
            mapping = CachedMap(ssd, options["cmt_bytes"] // ENTRY_BYTES or 64, options["protected"], True)
            placement = streams_for(ssd, options, kind)
            require_room(ssd, pages_of(ssd.lpas, ssd.nand.page_bytes), kind)
        else:
            mapping = LearnedMap(ssd, options["gamma"], options["compact_every"], options["compact_grown"])
            placement = streams_for(ssd, options, kind, by_block=True, pads=options["pad"] == "block")
            if options["table_bytes"]:
                mapping.limit_groups(options["table_bytes"])
        return mapping, validity, placement, Greedy(ssd, spares=spares)

    def sections(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
        saved = saved_bytes(geometry.lpas, geometry.page_bytes) if mapping_of == "dftl" else base.saved_bytes(geometry)
        if validity_of == "late":
            return {"mapping": saved, "pvb": geometry.blocks * 8 * -(-geometry.pages_per_block // 64)}
        return {"mapping": saved, **FlashBitmap.section_bytes(geometry, log_of(geometry, options), options["blocks"])}

    tight = {} if validity_of == "late" else {"log": (1,), "frames": (1,)}
    return replace(
        base, name=kind, build=build, sections=sections, options=(*base.options, *own), nvram=lambda *_: {},
        tight={**base.tight, **tight}, varied={}, manual="", views={}, charts=lambda device: [], events={},
        derive=lambda *_: {},
    )  # fmt: skip


@pytest.fixture(params=KINDS)
def ftl(request: pytest.FixtureRequest, store: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for preset, (blocks, lpas) in ROOMY.items():
        roomy = replace(PRESETS[preset].geometry, blocks=blocks, lpas=lpas)
        monkeypatch.setitem(PRESETS, preset, replace(PRESETS[preset], geometry=roomy))
    tiers.presets_for.cache_clear()
    if request.param in SCHEMES:
        yield request.param
    else:
        with flash_pvb.registered(scheme_of(request.param, store)) as name:
            yield name
    tiers.presets_for.cache_clear()


def options_of(ftl: str) -> dict[str, str]:
    """Little memory, so that both go to flash all the time."""
    little = {"frames": "2", "log": "1", "blocks": "2"} if ftl.endswith("flash") else {}
    return {"buffer": "0", "cmt_bytes": "400"} | little


def test_contents_and_every_invariant_after_much_cleaning(ftl: str) -> None:
    device = Device.memory(CHIP, ftl, options=options_of(ftl))
    load = Load(device)
    for _ in range(3):
        load.run(4000)
        load.must_hold()
        device.checkpoint()
    programs = device.ssd.operations()[1]["program"]
    assert programs["gc"] > 300
    assert programs["map"] > 100
    assert ftl.endswith("late") or programs["validity"] > 20
    assert device.ssd.alarms is None
    device.close()


def test_a_superseded_page_that_cleaning_meets_alarms_nobody(ftl: str) -> None:
    """It is dropped, not moved; nobody looks whose it is, as of a page that lies about that; no page counts as lost,
    and the map stays exact."""
    if not ftl.endswith("late"):
        pytest.skip("this store is not late")
    device = Device.memory(CHIP, ftl, options=options_of(ftl))
    load = Load(device)
    load.run(12_000)
    assert device.ssd.validity.late_n > 5000
    causes = device.ssd.operations()[1]
    assert causes["read"]["gc"] > causes["program"]["gc"]  # some were dropped
    assert causes["spare_read"]["gc"] == causes["erase"]["gc"]  # an erase reads one back
    assert device.ssd.mover.lost_pages == 0
    assert device.ssd.alarms is None
    assert device.ssd.mapping.figures()["rebuilds"] == 0
    load.must_hold()
    device.close()


@pytest.mark.parametrize("clean", [True, False])
def test_mounts(ftl: str, clean: bool, tmp_path: Path) -> None:
    rig = Rig(tmp_path / "chip", ftl, CHIP, options=options_of(ftl))
    load = Load(rig.device)
    for _ in range(4):
        load.run(1500)
        rig.device.flush()
        rig.device.close(clean=clean)
        assert rig.open() == []
        assert rig.device.recovery.clean == clean
        load.device = rig.device
        load.must_hold()
    rig.device.close()


@pytest.mark.parametrize("kind", [TRANSLATION, VALIDITY])
@pytest.mark.parametrize("crashed", [False, True])
def test_a_page_that_is_gone_is_made_again(ftl: str, crashed: bool, kind: int, tmp_path: Path) -> None:
    """A translation page from the pages that live, a page of the bitmap from the map."""
    if kind == VALIDITY and not ftl.endswith("flash"):
        pytest.skip("this store is in DRAM")
    rig = Rig(tmp_path / "chip", ftl, CHIP, options=options_of(ftl))
    load = Load(rig.device)
    load.run(4000)
    rig.device.checkpoint()
    load.run(200 if crashed else 0)
    rig.device.flush()
    rig.device.close(clean=not crashed)
    newest: dict[int, tuple[int, int]] = {}
    for ppa in rig.find(lambda spare: spare.kind == kind):
        spare = rig.spare(ppa)
        newest[spare.lpa] = max(newest.get(spare.lpa, (0, 0)), (spare.seq, ppa))
    gone = random.Random(1).sample(sorted(ppa for _, ppa in newest.values()), 5)
    rig.rot(*gone)
    rig.open()
    load.device = rig.device
    for lpa, page in load.model.items():
        assert rig.device.read(lpa * PAGE, PAGE) == page
    load.model = {lpa: rig.device.read(lpa * PAGE, PAGE) for lpa in range(CHIP.lpas)}  # a trimmed page may be back
    load.run(3000)
    rig.device.checkpoint()
    for lpa, page in load.model.items():
        assert rig.device.read(lpa * PAGE, PAGE) == page
    assert rig.device.problems() == []
    rig.device.close()


@pytest.mark.parametrize("tier", CUTS)
def test_power_cuts(ftl: str, tier: str) -> None:
    result = campaign.run(ftl, tier, 0, CUTS[tier])
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= CUTS[tier]


@pytest.mark.parametrize("kind", ["leaftl-flash", "leaftl-late"])
def test_leaftl_refuses_them(kind: str, store: Any) -> None:
    with flash_pvb.registered(scheme_of(kind, store)), pytest.raises(BindError, match="in DRAM that is not late would"):
        Device.memory(CHIP, kind)


@pytest.mark.parametrize("request_kind", test_host_errors.REQUESTS, ids=lambda one: one.__name__)
def test_the_disk_fails_at_any_call(ftl: str, request_kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**options_of(ftl), "buffer": "8"}
    monkeypatch.setitem(test_host_errors.VARIANTS, ftl, lambda: test_host_errors.Rig(ftl, options))
    assert test_host_errors.run_all(ftl, request_kind, 6)["cases"] >= 3


@pytest.mark.parametrize("ftl", ["dftl", "dftl-flash", "dftl-late"], indirect=True)
def test_a_page_that_says_nobodys_name_dies_once(ftl: str, tmp_path: Path) -> None:
    """A translation page is gone, and a page that lives does not say whose it is: whatever the LPAs were that no page
    names, they are there now. The first to be written takes it along. When the others are, somebody else's page lies
    there, and must not die of it."""
    chip = replace(CHIP, blocks=60, dies=1, lpas=500)
    rig = Rig(tmp_path / "chip", ftl, chip, options=options_of(ftl))
    load = Load(rig.device)
    strays = range(1, 128, 3)  # of the first translation page
    load.model = {lpa: b"%08d" % lpa * (PAGE // 8) for lpa in range(chip.lpas) if lpa not in strays}
    for lpa, page in load.model.items():
        rig.device.write(lpa * PAGE, page)
    rig.device.close()
    unnamed = rig.find(lambda spare: spare.kind == 1 and spare.lpa == 2)[-1]
    rig.wreck(unnamed)
    rig.rot(rig.find(lambda spare: spare.kind == TRANSLATION and spare.lpa == 0)[-1])
    rig.open()
    load.device = rig.device
    load.model.pop(2)
    with pytest.raises(UncorrectableError):
        rig.device.read(2 * PAGE, PAGE)
    rig.device.write(0, load.model[0])
    rig.device.close()
    assert rig.open() == []  # the next mount knows it, too
    load.device = rig.device
    assert rig.device.ssd.mapping.strays
    for turn in range(4):  # until what lies there is another's
        for lpa in load.model:
            load.model[lpa] = b"%04d%04d" % (lpa, turn) * (PAGE // 8)
            rig.device.write(lpa * PAGE, load.model[lpa])
        rig.device.write(0, load.model[0])
        if turn == 0:
            rig.device.write(PAGE, load.model[0])
            load.model[1] = load.model[0]
    for lpa in [2, *strays[1:]]:
        if lpa % 2:
            rig.device.trim(lpa * PAGE, PAGE)
        else:
            rig.device.write(lpa * PAGE, load.model[0])
        load.model[lpa] = bytes(PAGE) if lpa % 2 else load.model[0]
    rig.device.flush()
    for lpa, page in load.model.items():
        assert rig.device.read(lpa * PAGE, PAGE) == page, lpa
    assert rig.device.problems() == []
    rig.device.close(clean=False)
    rig.open()
    for lpa, page in load.model.items():
        assert rig.device.read(lpa * PAGE, PAGE) == page, lpa
    assert not rig.device.ssd.mapping.strays
    rig.device.close()
