"""GeckoFTL: what a write asks, how superseded pages are found out, cleaning that leaves metadata alone, and DRAM."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from schemes import bounded

import nandimg
from flashfs import inspect
from flashfs.crash import Case, campaign, run_case
from flashfs.device import Device
from flashfs.parts.paged.cmt import ENTRY_BYTES
from nandimg import PRESETS, Geometry, create

PAGE = 512
TIERS = ("sweep", "random", "faults", "host")
PER_PAGE = PAGE // 4  #: entries of a translation page
CHIP = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=300, dies=2, oob_bytes=64, lpas=3000)
#: a block whose last live page the NVRAM's newer one supersedes, in the recovery; it is never erased
DEAD_IN_A_RECOVERY = (
    "ftl=geckoftl preset=tiny-48p opt.buffer=1 opt.wear_spread=2 opt.wear=scan opt.checkpoint_every=9 opt.cmt_bytes=0 "
    "opt.protected=0 opt.ratio=2 opt.fence=1 plp dram=42926 cut=26:prefix-random program='R w67:222+157 t8+3 t42+2 R "
    "c98-33+3 w21 w115 w115 r r r w8 w59 w8+2 r f w52 w115 i w115+1 t93:145+1247 w8 w115'"
)
#: a page that a clean checkpoint alone knew, and that cleaning moves when it is dead
KNOWN_TO_A_CHECKPOINT = (
    "ftl=geckoftl preset=tiny-1536 opt.buffer=1 opt.multiway=0 opt.ratio=2 opt.held=1 plp dram=867329 "
    "cut=6924:oob-only:last.1 cut=32:after:coin.547899 program='w0+1536 f w1006 w1153+41/3 i w768 w1152+63/2 r w713 "
    "w1153+63/2 f w577 w1154+41/3 w1027 w1154+41/3 w223 w1153+63/2 w1309 w1153+41/3 w1408 w1152+41/3 r w304 w1154+41/3 "
    "w434 w1154+41/3 w22 w1153+41/3 w1036 w1154+41/3 w400 w1152+41/3 f w1449 w1152+41/3 w249 w1153+41/3 w1283 "
    "w1154+41/3 i w60 w1153+41/3 f w333 w1152+63/2 w880 w1154+41/3 w564 w1152+63/2 r w764 w1154+41/3 w953 w1152+63/2'"
)


def gecko(slots: int = 64, geometry: Geometry = CHIP, **options: int | str) -> Device:
    """A device without a write buffer, whose cache has so many entries."""
    how = {name: str(value) for name, value in {"buffer": 0, "cmt_bytes": slots * ENTRY_BYTES, **options}.items()}
    return Device.memory(geometry, "geckoftl", options=how)


def put(device: Device, lpa: int, mark: int = 0) -> None:
    device.write(lpa * PAGE, b"%08d%08d" % (lpa, mark) * (PAGE // 16))


def holds(device: Device, lpa: int, mark: int) -> bool:
    return bool(device.read(lpa * PAGE, PAGE) == b"%08d%08d" % (lpa, mark) * (PAGE // 16))


def figures(device: Device) -> dict[str, Any]:
    return dict(device.ssd.mapping.figures())


def load(device: Device, requests: int, seed: int = 1) -> dict[int, int]:
    rnd, model = random.Random(seed), dict[int, int]()
    lpas = device.size // PAGE
    for turn in range(requests):
        lpa = rnd.randrange(lpas)
        put(device, lpa, turn)
        model[lpa] = turn
    return model


def test_a_write_that_misses_reads_no_translation_page() -> None:
    device = gecko(slots=64)
    for lpa in range(2 * PER_PAGE):
        put(device, lpa)
    device.checkpoint()
    before = figures(device)
    for lpa in range(60):
        put(device, lpa, 1)
    after = figures(device)
    written = after["writebacks"] - before["writebacks"]
    assert after["translation_reads"] - before["translation_reads"] == written
    assert after["uip"] > 0
    device.close()


def test_what_a_translation_page_named_is_reported_when_it_is_written() -> None:
    device = gecko(slots=64)
    for lpa in range(300):
        put(device, lpa)
    for lpa in range(10):
        put(device, lpa, 1)  # of which the first versions are in flash alone
    assert figures(device)["uip"] == 10
    identified = figures(device)["identified"]
    for lpa in range(1000, 1064):
        put(device, lpa)  # pushes them out
    assert figures(device)["uip"] <= 64 and figures(device)["identified"] >= identified + 10
    live = sum(len(device.ssd.validity.live_in(block)) for block in range(CHIP.blocks))
    device.close()
    assert live > 0


def test_holds_what_was_written() -> None:
    device = gecko(slots=48)
    model = load(device, 20_000)
    assert device.problems() == []
    assert all(holds(device, lpa, mark) for lpa, mark in model.items())
    assert figures(device)["identified"] > 10_000
    assert device.ssd.validity.gecko.merges > 20
    device.close()


def test_live_pages_are_those_mapped_and_those_not_identified_yet() -> None:
    device = gecko(slots=48)
    load(device, 15_000)
    store, mapping = device.ssd.validity, device.ssd.mapping
    named = {ppa for lpa in range(3000) if (ppa := device.ssd.mapping.explain(lpa)["ppa"]) is not None}
    device.ssd.mapping.problems_in_flash()
    live = {block * 16 + page for block in range(CHIP.blocks) for page in store.live_in(block)}
    others = live - set(store.own_ppas()) - set(store.gecko.store.kept_ppas()) - set(mapping.store.kept_ppas())
    assert named <= others
    assert len(others) <= 3000 + figures(device)["uip"]
    device.close()


def test_no_page_bitmap_is_in_dram_or_in_a_checkpoint() -> None:
    device = gecko()
    load(device, 5000)
    assert not [name for name in device.ssd.dram() if "pvb" in name]
    assert "pvb" not in {**device.ssd.mapping.save(), **device.ssd.validity.save()}
    device.close()


@pytest.mark.parametrize(("held", "fence"), [(5, 0), (25, 0), (100, 0), (5, 1), (100, 1)])
def test_one_hot_translation_page_and_all_others_cold_is_never_full(held: int, fence: int) -> None:
    """Each cold page would hold a block of its own for ever: over-provisioning is 7 %. Where few such blocks may wait,
    the way out is taken, and saves what cleaning would have to move for want of room. (Fences write cold pages at once,
    so there is less to be saved.)"""
    geometry = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=700, dies=1, oob_bytes=64, lpas=10_467)
    assert round(geometry.pages / geometry.lpas - 1, 2) == 0.07
    device = gecko(32, geometry, held=held, fence=fence)
    rnd, turn, waited = random.Random(2), 0, 0
    for lpa in range(geometry.lpas):
        put(device, lpa)
    for cold in range(geometry.lpas // PER_PAGE):
        put(device, cold * PER_PAGE, 1)
        for _ in range(400):
            turn += 1
            put(device, rnd.randrange(PER_PAGE), turn)
        waited = max(waited, device.ssd.victims.waiting_n)
    assert device.problems() == []
    programs = device.stats()["nand"]["by_cause"]["program"]
    if held == 100 and not fence:
        assert programs["gc"] > programs["host"] / 2
    elif not fence:
        assert device.ssd.cleaning.escapes > 50
        assert waited <= device.ssd.cleaning.held_most + 5  # those that one cleaning brings along
        assert programs["gc"] < programs["host"] * held / 20
    device.close()


def test_entries_of_moved_pages_gather_before_they_go_to_flash() -> None:
    """A fifth of what is cached may wait, of all 94 translation pages, which take turns: each has its share when it
    is written, and the cache is large enough to need few programs of its own."""
    lpas = 12_000
    device = gecko(6_000, Geometry(page_bytes=PAGE, pages_per_block=16, blocks=950, dies=1, oob_bytes=64, lpas=lpas))
    rnd = random.Random(5)
    for lpa in range(lpas):
        put(device, lpa)
    load(device, lpas)
    before = figures(device)
    for turn in range(lpas):
        put(device, rnd.randrange(lpas), turn)
    after = figures(device)
    written = after["entries_written"] - before["entries_written"]
    assert written > 9 * (after["writebacks"] - before["writebacks"])
    device.close()


@pytest.mark.parametrize(("tier", "cuts"), bounded({"random": 60, "host": 40}, dict.fromkeys(TIERS, 600)))
def test_power_cuts(tier: str, cuts: int) -> None:
    result = campaign.run("geckoftl", tier, 0, cuts)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= cuts


@pytest.mark.parametrize("line", [DEAD_IN_A_RECOVERY, KNOWN_TO_A_CHECKPOINT])
def test_what_a_recovery_finds_dead_stays_dead_behind_the_next(line: str) -> None:
    assert run_case(Case.parse(line)).failure is None


def test_a_fence_leaves_no_page_in_a_free_block_that_was_moved_elsewhere() -> None:
    """A recovery from pages would take it for a live one."""
    device = gecko()
    load(device, 9000)
    pool, chip = device.ssd.pool, device.ssd.nand
    device.checkpoint()
    assert device.stats()["nand"]["erase"] > 100
    free = [block for block in range(CHIP.blocks) if pool.describe(block)["state"] == "free"]
    spares = [inspect.Spare.of(raw) for status, raw in (chip.read_spare_area(block, 0) for block in free) if status]
    assert free
    assert [spare for spare in spares if spare.kind == 1] == []


@pytest.mark.parametrize("clean", [True, False])
def test_flags_outlive_a_mount(tmp_path: Path, clean: bool) -> None:
    """What was superseded before it, and not identified, dies after it: no page is moved for an LPA that left it."""
    path = tmp_path / "image"
    create(path, CHIP)
    how = {"buffer": "0", "cmt_bytes": str(200 * ENTRY_BYTES)}
    device = Device.open(path, ftl="geckoftl", options=how)
    model = load(device, 6000)
    if not clean:  # two of them would write all entries that are dirty
        device.checkpoint()
    assert figures(device)["uip"] > 10
    device.close(clean=clean)
    device = Device.open(path, options=how)
    assert device.recovery.clean == clean
    assert figures(device)["uip"] > 0
    rnd = random.Random(3)
    for turn in range(6000, 14_000):
        lpa = rnd.randrange(1500)
        put(device, lpa, turn)
        model[lpa] = turn
    assert device.problems() == []
    assert all(holds(device, lpa, mark) for lpa, mark in model.items())
    live = sum(len(device.ssd.validity.live_in(block)) for block in range(CHIP.blocks))
    assert live <= len(model) + figures(device)["uip"] + len(device.ssd.owned_pages())
    device.close()


def test_a_page_that_only_a_clean_checkpoint_knew_is_dead_behind_a_crash(tmp_path: Path) -> None:
    """Its entry was dirty at the unmount, so no translation page ever named it; it was superseded after the mount, and
    the report went with the buffer."""
    path = tmp_path / "image"
    create(path, CHIP)
    how = {"buffer": "0", "cmt_bytes": str(200 * ENTRY_BYTES)}
    device = Device.open(path, ftl="geckoftl", options=how)
    for lpa in range(PER_PAGE):
        put(device, lpa)
    device.checkpoint()
    device.checkpoint()
    for mark in (1, 2):
        for lpa in range(20):
            put(device, lpa, mark)
        device.close(clean=mark == 1)
        device = Device.open(path, options=how)
        assert device.recovery.clean == (mark == 1)
    for _ in range(2):  # all entries are in their translation page then
        device.checkpoint()
    assert figures(device)["uip"] == 0
    live = sum(len(device.ssd.validity.live_in(block)) for block in range(CHIP.blocks))
    assert live == PER_PAGE + len(device.ssd.owned_pages())
    assert all(holds(device, lpa, 2 if lpa < 20 else 0) for lpa in range(PER_PAGE))
    assert device.problems() == []
    device.close()


def test_reports_that_waited_for_a_fence_are_found_behind_a_crash(tmp_path: Path) -> None:
    """Pages that were dirty at a fence and superseded before the next, which kept the reports in DRAM: no translation
    page named them, and they are older than the first of the two. Trims from before it must still count, too."""
    path = tmp_path / "image"
    create(path, CHIP)
    how = {"buffer": "0", "cmt_bytes": str(200 * ENTRY_BYTES)}
    device = Device.open(path, ftl="geckoftl", options=how)
    for lpa in range(PER_PAGE):
        put(device, lpa)
    device.checkpoint()
    device.checkpoint()
    for mark in (1, 2):
        for lpa in range(20):
            put(device, lpa, mark)
        if mark == 1:
            for lpa in range(20, 30):
                put(device, lpa, mark)
            device.trim(20 * PAGE, 10 * PAGE)
            device.ssd.validity.gecko.flush_now()  # as it is when it is full: the next fence may keep reports
        device.checkpoint()
        assert device.ssd.mapping.from_pages.far == (mark == 2)
        assert len(device.ssd.mapping.from_pages.kept()) == mark  # blocks of the log
    device.close(clean=False)
    device = Device.open(path, options=how)
    assert not device.recovery.clean
    for _ in range(2):
        device.checkpoint()
    live = sum(len(device.ssd.validity.live_in(block)) for block in range(CHIP.blocks))
    assert live == PER_PAGE - 10 + len(device.ssd.owned_pages())
    assert all(holds(device, lpa, 2 if lpa < 20 else 0) for lpa in range(PER_PAGE) if not 20 <= lpa < 30)
    assert device.read(20 * PAGE, 10 * PAGE) == bytes(10 * PAGE)
    assert device.problems() == []
    device.close()


def test_a_translation_page_lives_on_while_what_it_names_is_not_reported_in_flash(tmp_path: Path) -> None:
    """A fence writes the page anew, and keeps the reports about what its old version named: a recovery finds them by
    comparing the two."""
    path = tmp_path / "image"
    create(path, CHIP)
    how = {"buffer": "0", "cmt_bytes": str(200 * ENTRY_BYTES)}
    device = Device.open(path, ftl="geckoftl", options=how)
    lpas = [*range(PER_PAGE), *range(1024, 1324)]  # the last ones push the first out of the cache
    for lpa in lpas:
        put(device, lpa)
    device.checkpoint()
    device.checkpoint()
    for lpa in range(20):
        put(device, lpa, 1)
    device.checkpoint()
    assert figures(device)["uip"] == 20
    device.checkpoint()
    fences, store = device.ssd.mapping.from_pages, device.ssd.mapping.store
    assert figures(device)["uip"] == 0 and fences.far and len(store.kept_ppas()) == 1
    device.flush()
    assert len(store.kept_ppas()) == 1
    device.checkpoint()
    assert not fences.far and store.kept_ppas() == []
    put(device, 0, 2)
    device.close(clean=False)
    device = Device.open(path, options=how)
    device.checkpoint()
    device.checkpoint()
    live = sum(len(device.ssd.validity.live_in(block)) for block in range(CHIP.blocks))
    assert live == len(lpas) + len(device.ssd.owned_pages())
    device.close()


def test_a_run_that_cannot_be_read_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "image"
    create(path, CHIP)
    how = {"buffer": "0", "entries": "10"}
    device = Device.open(path, ftl="geckoftl", options=how)
    model = load(device, 6000)
    device.close()
    ppa = next(run["ppas"][0] for run in inspect.scheme(path, "runs") if run["pages"] > 2)
    layout = nandimg.inspect(path).layout
    with path.open("r+b") as file:
        file.seek(layout.data_at + ppa * PAGE + 40)
        file.write(b"\xff\x00\xff")
    device = Device.open(path, options=how)
    for turn, lpa in enumerate(range(0, 3000, 2)):
        put(device, lpa, turn)
        model[lpa] = turn
    assert device.ssd.validity.figures()["gecko_rebuilds"] == 1
    assert any("Logarithmic Gecko" in line for line in device.ssd.alarms)
    assert device.problems() == []
    assert all(holds(device, lpa, mark) for lpa, mark in model.items())
    device.close()


def test_a_block_of_gecko_that_a_merge_released_is_not_moved() -> None:
    """Wear levelling picks a block of runs; to prepare the reports the buffer is written, and that merge releases the
    block, of which nothing lives any more."""
    chip = PRESETS["tiny-112"].geometry
    device = gecko(64, chip, wear_spread=2, entries=4, multiway=0, ratio=3, fence=0, moved=0, held=1,
                   cmt_bytes=2000, wear_reads=1)  # fmt: skip
    rnd = random.Random(32)
    for _ in range(4_000):
        what, lpa = rnd.random(), rnd.randrange(chip.lpas)
        if what < 0.8:
            device.write(lpa * PAGE, b"x" * PAGE)
        elif what < 0.85:
            device.trim(lpa * PAGE, min(5, chip.lpas - lpa) * PAGE)
        elif what < 0.97:
            device.read(rnd.randrange(8) * PAGE, PAGE)
        elif what < 0.99:
            device.flush()
        else:
            device.checkpoint()
    assert device.problems() == []
    device.close(clean=False)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_what_lives_is_what_is_mapped_after_many_crashes(tmp_path: Path, seed: int) -> None:
    """Lives of random writes and trims, each ended by a crash: all is there, and in the end validity names no page more
    than the map does."""
    rnd = random.Random(seed)
    lpas = int(CHIP.blocks * 16 * rnd.choice((0.6, 0.7, 0.8)))
    chip, path, model = replace(CHIP, lpas=lpas), tmp_path / "image", dict.fromkeys(range(lpas), 0)
    create(path, chip)
    later = {"buffer": "0", "cmt_bytes": str(rnd.choice((800, 2000, 6000))), "moved": str(rnd.choice((0, 20, 100)))}
    device = Device.open(path, ftl="geckoftl", options={**later, "entries": str(rnd.choice((4, 8, 0)))})
    for lpa in range(lpas):
        put(device, lpa)
    waited = 0
    for life in range(12):
        for turn in range(rnd.randrange(50, 2500)):
            lpa = rnd.randrange(lpas)
            if rnd.random() < 0.03:
                device.trim(lpa * PAGE, PAGE)
                model.pop(lpa, None)
            else:
                model[lpa] = life * 10_000 + turn
                put(device, lpa, model[lpa])
            if rnd.random() < 0.02:
                device.flush()
        device.flush()
        waited += device.ssd.validity.waits
        device.close(clean=rnd.random() < 0.1)
        device = Device.open(path, options=later)
    assert all(holds(device, lpa, mark) for lpa, mark in model.items())
    assert not any(device.read(lpa * PAGE, PAGE).strip(b"\0") for lpa in set(range(lpas)) - set(model))
    for _ in range(3):
        device.checkpoint()
    live = sum(len(device.ssd.validity.live_in(block)) for block in range(chip.blocks))
    assert live == len(model) + len(device.ssd.owned_pages())
    assert waited > 0
    assert device.problems() == []
    device.close()


def test_a_recovery_asks_no_block_page_by_page_while_cleaning_has_what_it_needs(tmp_path: Path) -> None:
    """A large reserve is mostly there for speed. At the cut, blocks that wait for a sync to be erased are two thirds of
    it; they are not free after it."""
    path, rnd = tmp_path / "chip.nand", random.Random(3)
    create(path, replace(CHIP, blocks=400, lpas=5000))
    how = {"buffer": "0", "cmt_bytes": str(512 * ENTRY_BYTES), "gc_reserve": "30"}
    device = Device.open(path, ftl="geckoftl", options=how)
    for lpa in range(5000):
        put(device, lpa)
    while device.ssd.pool.free_n > 10:
        put(device, rnd.randrange(5000), 1)
    assert device.ssd.pool.pending_n > 20
    device.close(clean=False)
    with Device.open(path, options=how) as device:
        assert device.recovery is not None
        blocks = next(step for step in device.recovery.steps if step.name == "blocks")
        assert int(blocks.note.split()[0]) < device.ssd.gc_reserve
        assert (blocks.spare_reads, blocks.reads) == (0, 0)
        assert device.problems() == []
