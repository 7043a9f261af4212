"""Maps in flash over validity stores that are in flash, or late: GeckoFTL and u-FTL use both. One request changes
both, both program pages of their own, and a move asks the map what a late store does not know yet."""

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
from schemes import bounded, thinned
from test_flash_bitmap import PAGE, VALIDITY, Load
from test_late_validity import store

from flashfs.crash import Case, campaign, run_case, tiers
from flashfs.device import Device
from flashfs.errors import BindError, UncorrectableError
from flashfs.ftl import SCHEMES, Scheme
from flashfs.ftl.common import streams_for
from flashfs.ftl.demand_paged import require_room
from flashfs.ftl.leaftl.mapping import SegmentMap
from flashfs.parts.battery.map_battery import pages_of
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.paged.cached_map import CachedMap
from flashfs.parts.paged.cmt import ENTRY_BYTES
from flashfs.parts.paged.demand_map import saved_bytes
from flashfs.parts.validity.flash_bitmap import FlashBitmap
from nandimg import PRESETS, Geometry
from nandimg._torn import spoil

CHIP = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=300, dies=2, oob_bytes=64, lpas=3000)
#: power is cut on chips like the smallest, with room for pages of the map and of the bitmap beside the host's
ROOMY = {"tiny-24d": (48, 120), "tiny-20p": (40, 100), "tiny-16k": (40, 100)}
BLOCKS = replace(flash_pvb.BLOCKS, default=8)
LOG = replace(flash_pvb.LOG, fixed=True)  #: a mount with less would find more reports than it has room for
TRANSLATION = 2  #: a page's kind
KINDS = ("dftl-flash", "dftl-late")
MANY = {"sweep": 1_500, "random": 1_200, "faults": 800, "host": 1_200, "wide": 600}
FEW = {"random": 80, "faults": 60, "host": 30}
__all__ = ["store"]  # a fixture


def log_of(geometry: Any, options: dict[str, Any]) -> int:
    """Reports that the log has room for. LeaFTL has up to 16 of its own for each page of a block that is moved."""
    return max(options["log"], 18 * geometry.pages_per_block) if "gamma" in options else options["log"]


def scheme_of(kind: str, store: Any) -> Scheme:
    """A scheme called ``kind``: whose map, over which store."""
    mapping_of, _, validity_of = kind.partition("-")
    base = SCHEMES[mapping_of]
    own = () if validity_of == "late" else (flash_pvb.FRAMES, LOG, BLOCKS, flash_pvb.SPARE)

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
            mapping = SegmentMap(ssd, options["gamma"], options["compact_every"], options["compact_grown"])
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
    for _ in range(2):
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
    """It is dropped, not moved; its owner is not searched, as that of a page with a wrong LPA is; no page counts as
    lost, and the map stays exact."""
    if not ftl.endswith("late"):
        pytest.skip("this store is not late")
    device = Device.memory(CHIP, ftl, options=options_of(ftl))
    load = Load(device)
    load.run(8_000)
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


@pytest.mark.parametrize(("tier", "cuts"), bounded(FEW, MANY))
def test_power_cuts(ftl: str, tier: str, cuts: int) -> None:
    result = campaign.run(ftl, tier, 0, cuts)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= cuts


@pytest.mark.parametrize("ftl", ["dftl", "dftl-late"], indirect=True)
def test_what_was_trimmed_may_be_back_only_if_an_alarm_says_so(ftl: str, tmp_path: Path) -> None:
    """A translation page that cannot be read is rebuilt from live pages. With a late store, those include trimmed pages
    that it has not learned of: they are back."""
    chip = replace(CHIP, blocks=60, dies=1, lpas=500)
    rig = Rig(tmp_path / "chip", ftl, chip, options=options_of(ftl))
    for lpa in range(200):
        rig.device.write(lpa * PAGE, bytes([lpa]) * PAGE)
    rig.device.close()
    rig.open()
    assert rig.device.read(3 * PAGE, PAGE) == bytes([3]) * PAGE
    rig.device.trim(3 * PAGE, PAGE)
    rig.device.flush()
    for lpa in range(128, 200):  # the trimmed entry goes to its page
        rig.device.read(lpa * PAGE, PAGE)
    assert rig.device.ssd.mapping.explain(3)["where"] == "in flash"
    block, page = divmod(rig.device.ssd.mapping.explain(3)["at"], chip.pages_per_block)
    spoil(rig.device.ssd.nand, block, page)
    back = rig.device.read(3 * PAGE, PAGE) == bytes([3]) * PAGE
    assert back or rig.device.read(3 * PAGE, PAGE) == bytes(PAGE)
    said = [alarm for alarm in rig.device.ssd.alarms if "made again" in alarm]
    assert len(said) == 1
    assert ("trimmed pages may be back" in said[0]) == back == (ftl == "dftl-late")


#: the misdirected page is the translation page, and the case reads it at the end
TRIMMED = """ftl=dftl-late preset=tiny-24d opt.buffer=0 opt.wear_spread=2 opt.map_dies=1 opt.cleaning=aside
    opt.battery=0 opt.protected=0 dram=33180 fault=silent=23 fault=misdirect=102 program='f w33 w41 f w79
    t77+3 f t24+2 w99+1 w118 t100+3 r t113+1 r w49+4 f w41 t113+2 f w80 w13+1 i w83 w115 f w8 f w8+2 w57 w48
    w106+1 w37 i w42 w99 f w41 f w34+4 w83+2 w83+3 w95 w96+1 f w83 w68 w83 w43 w99 w96 w99 f i w55 w41 i f
    w92 w84 w99 f r w7 w102 w16 w87 w1 t85+2 w93+4 w99+1 w99 w99 w35 w13 f w91 t99+2 w96 w83 t0+3 f w99 w29
    w38 i t40+1 t79+1 w48 w10 w62'"""


@pytest.mark.parametrize("ftl", ["dftl-late"], indirect=True)
def test_the_case_in_which_a_trimmed_page_was_back(ftl: str) -> None:
    assert run_case(Case.parse(" ".join(TRIMMED.split()))).failure is None


#: one free block is left, and each block that may be cleaned has more live pages than one of validity's that waits
LAST = """ftl=dftl-flash preset=tiny-20p opt.blocks=1 opt.spare=1 dram=87572 fault=enospc=54 program='w99+1 w36+6 w46+5
    w70+1 w64+2 w90+2 w62+3 w79+3 w34+5 w43+6 w6+1 w36+5 w35+3 w91+1 w14+3 w57+1 w3+3 w66+5 w47+3 w36+5 w34+5 w71+1
    w69+2 w87+4 w26+6 t57 w50+3 w88+3 w23+4 w9+6 w86+5 w96+1 w94+5 w78+3 w85+6 w57+6 w65+5 w75+5 w83+2 w32+2 w31+3
    w57+6 w8+6 w33+5 w67+1 w99+1 w39+1 w43+4 w48+5 w44+2 w29+5 w18+2 w31+3 w74+5 w94+5 w87+2 w34+5 w86+4'"""


@pytest.mark.parametrize("ftl", ["dftl-flash"], indirect=True)
def test_a_block_that_waits_is_cleaned_before_the_last_free_one_is_used(ftl: str) -> None:
    assert run_case(Case.parse(" ".join(LAST.split()))).failure is None


@pytest.mark.parametrize("kind", ["leaftl-flash", "leaftl-late"])
def test_leaftl_refuses_them(kind: str, store: Any) -> None:
    with flash_pvb.registered(scheme_of(kind, store)), pytest.raises(BindError, match="a validity store in DRAM"):
        Device.memory(CHIP, kind)


@pytest.mark.parametrize("request_kind", thinned(test_host_errors.REQUESTS, 3), ids=lambda one: one.__name__)
def test_the_disk_fails_at_any_call(ftl: str, request_kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**options_of(ftl), "buffer": "8"}
    monkeypatch.setitem(test_host_errors.VARIANTS, ftl, lambda: test_host_errors.Rig(ftl, options))
    assert test_host_errors.run_all(ftl, request_kind, 6)["cases"] >= 3


@pytest.mark.parametrize("ftl", ["dftl", "dftl-flash", "dftl-late"], indirect=True)
def test_a_page_that_says_nobodys_name_dies_once(ftl: str, tmp_path: Path) -> None:
    """A translation page is gone, and a page that lives does not say whose it is: whatever the LPAs were that no page
    names, they are there now. The first to be written kills it. When the others are written, another LPA's page lies
    there, and must not die."""
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
