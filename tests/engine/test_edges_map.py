"""Edges of mappings that no other test comes by: cleaning and damage where a table is in flash, or only about right."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from known_pages import FLAG_LOST, PAGE, all_spares, content, figures, held, lost, places, same, scattered, spoil, wreck
from misplaced import put
from schemes import KINDS

import nandimg
from flashfs import inspect
from flashfs.device import Device, Front
from flashfs.ftl import SCHEMES
from nandimg import Geometry
from nandimg._fault_filters import BitErrors, HostErrors

GROUPS = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=300, dies=1, channels=1, oob_bytes=160, lpas=3900)
REGIONS = Geometry(page_bytes=PAGE, pages_per_block=64, blocks=1300, dies=1, channels=1, oob_bytes=64, lpas=70_000)
ENTRIES = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=160, dies=1, channels=1, oob_bytes=64, lpas=2_000)
SECOND = 65_536  #: the first LPA of the second region of translation pages
TRANSLATION = 2


# --- translation pages that are moved


def in_flash(path: Path, **options: object) -> tuple[Device, dict[int, bytes]]:
    """A device with room for its whole table, of which the most is in flash too."""
    nandimg.create(path, GROUPS)
    given = {"buffer": "0", "table_bytes": "44000", "wear_spread": "2", **options}
    device = Device.open(path, ftl="leaftl", options=given)
    return device, scattered(device, random.Random(2), part=0.98)


def rewrite(device: Device, model: dict[int, bytes], rnd: random.Random, below: int, turn: int) -> None:
    lpa = rnd.randrange(below)
    model[lpa] = content(lpa, turn)
    device.write(lpa * PAGE, model[lpa])


@pytest.mark.parametrize("damage", ["unreadable", "another's"])
def test_a_translation_page_that_cannot_be_moved_is_written_again(tmp_path: Path, damage: str) -> None:
    """Cleaning finds that it cannot be read, or says that it is another page: its groups, which memory holds, are
    changed from then on, nothing names the page that is gone, and the next flush ends in a checkpoint."""
    device, model = in_flash(tmp_path / "chip")
    directory, rnd, gone = device.ssd.mapping.directory, random.Random(5), set[int]()
    spoilt = set(directory.ppas())
    assert len(spoilt) > 4
    read = {ppa: device.nand.read_page(*divmod(ppa, GROUPS.pages_per_block))[1:] for ppa in spoilt}
    for ppa in spoilt:
        if damage == "unreadable":
            spoil(tmp_path / "chip", ppa)
        else:
            put(tmp_path / "chip", ppa, *read.get(ppa + 1, read[min(spoilt)]))
    for turn in range(2, 8_000):  # most groups stay as they are
        homes, lost = set(directory.ppas()), device.smart()["lost"]
        before = device.stats()["checkpoints"]
        rewrite(device, model, rnd, 500, turn)
        gone = (homes & spoilt) - set(directory.ppas())
        if device.smart()["lost"] > lost:
            device.flush()
            assert device.stats()["checkpoints"] > before
            assert all(ppa % 16 in device.ssd.validity.live_in(ppa // 16) for ppa in directory.ppas())
            assert damage == "another's" or device.problems() == []
            if gone:
                break
    assert gone
    same(device, model)
    device.close(clean=False)


@pytest.mark.parametrize("gamma", [0, 4])
def test_a_translation_page_is_moved_as_it_is(tmp_path: Path, gamma: int) -> None:
    """Its bytes after the engine's are ones in the copy too; none of the pages is taken for unreadable."""
    device, model = in_flash(tmp_path / "chip", gamma=str(gamma))
    rnd = random.Random(5)
    for turn in range(2, 1_300):
        rewrite(device, model, rnd, 500, turn)
    moved = [spare for spare in all_spares(device) if spare.kind == TRANSLATION and spare.moved]
    assert len(moved) >= 4
    assert {spare.own for spare in moved} == {b"\xff" * len(moved[0].own)}
    assert device.smart()["lost"] == figures(device)["rebuilds"] == 0
    assert device.problems() == []
    same(device, model)
    device.close(clean=False)


def test_a_translation_page_that_could_not_be_moved_is_forgotten(tmp_path: Path) -> None:
    """The next moves have nothing to do with it, though another translation page lies there by then. Its owner is
    not searched: no spare area is read for it."""
    path, rnd = tmp_path / "chip", random.Random(5)
    nandimg.create(path, ENTRIES)
    device = Device.open(path, ftl="dftl", options={"buffer": "0", "cmt_bytes": "464", "wear_spread": "100000"})
    model = scattered(device, rnd, part=0.9)
    device.checkpoint()
    ssd, lost = device.ssd, device.smart()["lost"]
    cold = [ppa for ppa in ssd.mapping.translation_pages()
            if inspect.Spare.of(device.nand.read_spare_area(*divmod(ppa, 16))[1]).lpa * 128 > 1_200]  # fmt: skip
    for ppa in cold:
        spoil(path, ppa)
    for turn in range(2, 2_000):
        asked = device.stats()["nand"]["by_cause"]["spare_read"].get("gc", 0)
        rewrite(device, model, rnd, 1_000, turn)
        if device.smart()["lost"] > lost:
            break
    # one is of the block that cleaning opens
    assert device.stats()["nand"]["by_cause"]["spare_read"].get("gc", 0) == asked + 1
    for ppa in set(cold) & set(ssd.mapping.translation_pages()):
        spoil(path, ppa)
    lost = device.smart()["lost"]
    assert lost
    for turn in range(2_000, 7_000):
        rewrite(device, model, rnd, ENTRIES.lpas, turn)
    assert device.smart()["lost"] == lost
    device.checkpoint()
    assert device.problems() == []
    same(device, model)
    device.close(clean=False)


# --- regions


def test_only_the_second_region_was_ever_written(tmp_path: Path) -> None:
    """The first has no pages, and that is nothing to stumble over: neither when pages of the second are loaded or
    moved, nor when a mount takes them from a checkpoint."""
    path = tmp_path / "chip"
    nandimg.create(path, REGIONS, backend="meta")
    options = {"buffer": "0", "table_bytes": "12000", "wear_spread": "2"}
    device = Device.open(path, ftl="leaftl", options=options)
    rnd = np.random.default_rng(4)
    lpas = (rnd.permutation(REGIONS.lpas - SECOND) + SECOND).astype(np.uint32)
    device.ssd.write_pages(lpas)
    for _ in range(40):
        device.ssd.write_pages(lpas[rnd.integers(0, 400, 64)])
        device.ssd.read_pages(lpas[rnd.integers(0, len(lpas), 8)])
    found = figures(device)
    assert found["loads"] > 20
    assert found["rebuilds"] == 0
    entries = device.ssd.mapping.directory.entries()
    assert entries[0]["first_group"] == 256
    assert all(page["bytes"] <= 3072 for page in entries)
    assert device.problems() == []
    for clean in (True, False):
        device.close(clean=clean)
        device = Device.open(path, options=options)
        assert device.problems() == []
        device.ssd.read_pages(lpas)
    assert figures(device)["rebuilds"] == 0
    device.close()


# --- translation pages that are read and written


def test_a_page_that_is_damaged_where_it_says_nothing(tmp_path: Path) -> None:
    """In the zeros after its last group. It is tried twice, counted, and not believed: the page is rebuilt. Each other
    group is asked once whether a live page names an LPA that holds nothing."""
    device, model = in_flash(tmp_path / "chip", table_bytes="24000")
    mapping = device.ssd.mapping
    page = next(one for one in mapping.directory.entries() if one["state"] == "in flash")
    spoil(tmp_path / "chip", page["ppas"][-1], PAGE - 1)
    before, reads = figures(device), mapping.store.reads
    lpa = next(lpa for lpa in model if lpa // 256 == page["first_group"])
    assert device.read(lpa * PAGE, PAGE) == model[lpa]
    after = figures(device)
    assert 1 < after["loads"] - before["loads"] <= 1 + device.ssd.lpas // 256
    assert mapping.store.reads - reads >= len(page["ppas"]) + 1
    assert mapping.store.unreadable == after["rebuilds"] == 1
    device.close(clean=False)


def test_a_translation_page_is_made_again_of_the_newest_pages(tmp_path: Path) -> None:
    """Of two that say they are one LPA's, even if not one sequence number lies between them."""
    path = tmp_path / "chip"
    device, model = in_flash(path, table_bytes="24000")
    where, nand = places(device), device.nand
    seqs = {inspect.Spare.of(nand.read_spare_area(*divmod(ppa, 16))[1]).seq: lpa for lpa, ppa in where.items()}
    page = next(one for one in device.ssd.mapping.directory.entries() if one["state"] == "in flash")
    groups = range(page["first_group"], page["first_group"] + page["groups"])
    older, newer = next((lpa, seqs[seq + 1]) for seq, lpa in sorted(seqs.items())
                        if lpa // 256 in groups and seq + 1 in seqs and where[seqs[seq + 1]] > where[lpa])  # fmt: skip
    raw = bytearray(nand.read_spare_area(*divmod(where[newer], 16))[1])
    raw[8:12] = older.to_bytes(4, "little")
    put(path, where[newer], None, bytes(raw))
    spoil(path, page["ppas"][0])
    assert device.read(older * PAGE, PAGE) == model[newer]
    assert figures(device)["rebuilds"] == 1
    device.close(clean=False)


def test_a_translation_page_that_leads_out_of_the_chip_is_not_believed(tmp_path: Path) -> None:
    """A whole page, of which its last group says so: none of its groups is taken from it."""
    nandimg.create(tmp_path / "chip", GROUPS)
    device = Device.open(tmp_path / "chip", ftl="leaftl", options={"buffer": "0", "table_bytes": "12000"})
    model = scattered(device, random.Random(2), part=0.5)
    where, directory = places(device), device.ssd.mapping.directory
    page = next(one for one in directory.entries() if one["state"] == "in flash" and one["groups"] > 1)
    last = page["first_group"] + page["groups"] - 1
    raw = bytearray().join(device.nand.read_page(*divmod(ppa, 16))[1] for ppa in page["ppas"])
    lpa = next(lpa for lpa in model if lpa // 256 == last and raw.count(where[lpa].to_bytes(4, "little")) == 1)
    at = raw.index(where[lpa].to_bytes(4, "little")) + 3
    raw[at] = 0x7F
    put(tmp_path / "chip", page["ppas"][at // PAGE], bytes(raw[at // PAGE * PAGE :][:PAGE]))
    assert device.read(lpa * PAGE, PAGE) == model[lpa]
    assert figures(device)["rebuilds"] == 1
    assert device.problems() == []
    same(device, model)
    device.close(clean=False)


def programs(device: Device) -> int:
    return sum(device.stats()["nand"]["by_cause"]["program"].values())


def test_translation_pages_count_for_the_next_checkpoint() -> None:
    """As any page that is programmed does."""
    with Device.memory(GROUPS, "leaftl", {"buffer": "0", "table_bytes": "12000"}) as device:
        model, rnd = scattered(device, random.Random(2)), random.Random(3)
        device.checkpoint()
        done, there = programs(device), device.stats()["checkpoints"]
        for turn in range(2, 60):
            rewrite(device, model, rnd, 3000, turn)
        assert figures(device)["translation_programs"] > 100
        assert device.stats()["checkpoints"] == there
        assert device.ssd.since_checkpoint == programs(device) - done


def test_translation_pages_that_come_and_go_take_no_room_for_ever() -> None:
    """What the directory takes of the budget is what it has now: groups have nearly all the rest."""
    with Device.memory(GROUPS, "leaftl", {"buffer": "0", "table_bytes": "20000"}) as device:
        model, rnd = scattered(device, random.Random(2), part=0.9), random.Random(3)
        for turn in range(2, 3_000):
            rewrite(device, model, rnd, GROUPS.lpas, turn)
        device.checkpoint()
        for lpa in range(0, GROUPS.lpas, 100):
            device.read(lpa * PAGE, PAGE)
        pages = device.ssd.mapping.pages
        assert figures(device)["translation_programs"] > 3_000
        assert device.ssd.mapping.tables()["segments"][0] > pages.limit - 4 * 3072


def test_a_checkpoint_that_fails_keeps_what_the_last_one_stands_on(tmp_path: Path) -> None:
    """Superseded pages that it names stay live, and die with the next checkpoint that is whole."""

    def run(name: str, at: tuple[int, ...]) -> tuple[Device, dict[int, bytes], HostErrors]:
        def front(chip: nandimg.Chip) -> nandimg.Nand:
            fronts.append(HostErrors(chip, at))
            return fronts[0]

        fronts: list[HostErrors] = []
        nandimg.create(tmp_path / name, GROUPS)
        options = {"buffer": "0", "table_bytes": "12000"}
        device = Device.open(tmp_path / name, ftl="leaftl", options=options, front=front)
        model, rnd = scattered(device, random.Random(2)), random.Random(3)
        device.checkpoint()
        for turn in range(2, 60):
            rewrite(device, model, rnd, 3000, turn)
        device.flush()
        return device, model, fronts[0]

    tried, _, counted = run("tried", ())
    tried.close(clean=False)
    device, model, _ = run("chip", (counted.operations + 3,))
    store = device.ssd.mapping.store
    kept = set(store.kept_ppas())
    assert len(kept) > 10
    with pytest.raises(OSError, match="error"):
        device.checkpoint()
    assert set(store.kept_ppas()) == kept
    assert device.problems() == []
    device.checkpoint()
    assert store.kept_ppas() == []
    assert set(device.ssd.mapping.translation_pages()) == set(device.ssd.mapping.directory.ppas())
    assert device.problems() == []
    same(device, model)
    device.close()


def test_many_translation_pages_are_written_at_once_on_a_full_chip() -> None:
    """There is cleaning before they need a block: none is taken from what the next checkpoint needs."""
    geometry = Geometry(page_bytes=PAGE, pages_per_block=4, blocks=1_200, dies=1, channels=1, oob_bytes=64, lpas=3900)
    with Device.memory(geometry, "leaftl", {"buffer": "0", "table_bytes": "60000"}) as device:
        model, rnd = scattered(device, random.Random(2), part=1), random.Random(3)
        meta, pool = device.ssd.meta, device.ssd.pool
        for turn in range(2, 3_000):
            rewrite(device, model, rnd, geometry.lpas, turn)
            assert pool.census()["free"] + pool.census()["pending"] >= meta.checkpoint_blocks + meta.log_blocks_most
        assert figures(device)["translation_programs"] > 2_000
        assert device.problems() == []
        same(device, model)


# --- what the learned table is given


def test_a_trim_of_holes_is_not_worth_a_record() -> None:
    with Device.memory(GROUPS, "leaftl", {"buffer": "0"}) as device:
        device.write(0, b"x" * PAGE)
        device.trim(300 * PAGE, 40 * PAGE)
        device.flush()
        assert device.stats()["trim_pages"] == 0
        device.trim(0, 40 * PAGE)
        device.flush()
        assert device.stats()["trim_pages"] == 1


def test_the_table_is_compacted_every_so_many_pages() -> None:
    with Device.memory(GROUPS, "leaftl", {"buffer": "0", "compact_every": "100"}) as device:
        scattered(device, random.Random(2), part=0.3)
        assert figures(device)["compactions"] == int(0.3 * GROUPS.lpas) // 100


# --- pages that are not what they say


def failing_once(chip: nandimg.Chip) -> nandimg.Nand:
    """What the first programs wrote comes back at the second read only; spare areas at the first."""
    return BitErrors(chip, dict.fromkeys(range(1, 2_000), 16), mode="pass")


def in_order(path: Path, ftl: str, front: Front | None = None, **options: object) -> tuple[Device, dict[int, bytes]]:
    """Runs with holes; what is rewritten later leaves the first LPAs to wear levelling alone."""
    nandimg.create(path, GROUPS)
    device = Device.open(path, ftl=ftl, options={"buffer": "64", "wear_spread": "2", **options}, front=front)
    rnd = random.Random(6)
    model = {lpa: content(lpa, 1) for lpa in range(GROUPS.lpas) if rnd.random() < 0.7}
    for lpa, data in model.items():
        device.write(lpa * PAGE, data)
    device.checkpoint()
    return device, model


def until_moved(device: Device, model: dict[int, bytes], block: int) -> None:
    """Rewrite the last third until that block has been cleaned."""
    rnd, late = random.Random(7), [lpa for lpa in model if lpa > 2_600]
    for turn in range(2, 20_000):
        lpa = rnd.choice(late)
        model[lpa] = content(lpa, turn)
        device.write(lpa * PAGE, model[lpa])
        if not device.ssd.validity.live_in(block):
            device.flush()
            return
    raise AssertionError("it was not cleaned")


def approximate_block(device: Device, where: dict[int, int]) -> tuple[int, dict[int, int]]:
    """A full block of the first LPAs whose table is not exact, and who is on its pages."""
    for block in range(device.nand.blocks):
        there = {ppa % 16: lpa for lpa, ppa in where.items() if ppa // 16 == block}
        kinds = {device.ssd.mapping.explain(lpa)["kind"] for lpa in there.values()}
        if len(there) == 16 and max(there.values()) < 2_000 and kinds == {"approximate"}:
            return block, there
    raise AssertionError("no block is")


def test_a_page_that_says_it_is_its_neighbour_is_not_believed(tmp_path: Path) -> None:
    """Three pages further on is the one whose name it bears, and the page before that one bears another's as well."""
    path = tmp_path / "chip"
    device, model = in_order(path, "leaftl", gamma=4)
    block, there = approximate_block(device, places(device))
    put(path, block * 16 + 5, *device.nand.read_page(block, 8)[1:])
    put(path, block * 16 + 7, *device.nand.read_page(*divmod(places(device)[max(model)], 16))[1:])
    until_moved(device, model, block)
    assert lost(device) == {there[5], there[7]}
    held(device, model, {there[5], there[7]})
    device.close(clean=False)
    with Device.open(path) as device:
        held(device, model, {there[5], there[7]})


def test_a_page_that_says_it_is_its_neighbour_at_the_second_try_is_not_believed(tmp_path: Path) -> None:
    """It alone fails once, so it is read and asked about again, by itself."""

    def run(name: str, failing: dict[int, int]) -> tuple[Device, dict[int, bytes], BitErrors]:
        fronts: list[BitErrors] = []

        def front(chip: nandimg.Chip) -> nandimg.Nand:
            fronts.append(BitErrors(chip, failing, mode="pass"))
            return fronts[0]

        device, model = in_order(tmp_path / name, "leaftl", front, gamma=4)
        return device, model, fronts[0]

    tried, _, errors = run("tried", dict.fromkeys(range(1, 6_000), 16))
    block, there = approximate_block(tried, places(tried))
    (operation,) = (at for at, *page in errors.struck if page == [block, 5])
    tried.close(clean=False)
    device, model, _ = run("chip", {operation: 16})
    put(tmp_path / "chip", block * 16 + 5, *device.nand.read_page(block, 8)[1:])
    until_moved(device, model, block)
    assert lost(device) == {there[5]}
    held(device, model, {there[5]})
    device.close(clean=False)


def numbered(oob: bytes, page: int) -> bytes:
    """The OOB of one that was meant for that page of a block."""
    return oob[:17] + bytes([page + 1, oob[18] & 31]) + oob[19:]


def test_a_page_that_is_taken_for_nobodys_does_not_stop_the_device(tmp_path: Path) -> None:
    """Between two that bear other pages' names, and all fail once: the map names one page more than there is now."""
    path = tmp_path / "chip"
    device, model = in_order(path, "leaftl", failing_once, gamma=4)
    block, there = approximate_block(device, places(device))
    for page, there_it_was in ((5, (block, 8)), (7, divmod(places(device)[max(model)], 16))):
        _, data, oob = device.nand.read_page(*there_it_was)
        put(path, block * 16 + page, data, numbered(oob, page))  # else its number tells
    until_moved(device, model, block)
    device.checkpoint()
    assert {there[5], there[7]} <= lost(device)
    held(device, model, {there[5], there[6], there[7]})
    device.close(clean=False)


def test_a_page_of_which_no_neighbour_can_be_read_is_still_its_lpas(tmp_path: Path) -> None:
    """Of those that the table may mean by it, the one that is nowhere else."""
    path = tmp_path / "chip"
    device, model = in_order(path, "leaftl", gamma=4)
    block, there = approximate_block(device, places(device))
    wreck(path, *range(block * 16, block * 16 + 5))
    gone = {there[page] for page in range(5)}
    until_moved(device, model, block)
    assert lost(device) == gone
    held(device, model, gone)
    device.close(clean=False)
    with Device.open(path) as device:
        held(device, model, gone)


@pytest.mark.parametrize("ftl", KINDS)
def test_pages_that_read_at_the_second_try_are_moved(tmp_path: Path, ftl: str) -> None:
    device, model = in_order(tmp_path / "chip", ftl, failing_once)
    block = places(device)[min(model)] // 16
    # within these writes cleaning may not come by a block that a hash chose
    if not (SCHEMES[ftl].hashed and device.ssd.move_blocks(np.array([block], dtype=np.uint32))):
        until_moved(device, model, block)
    assert device.smart()["lost"] == 0
    held(device, model, set())
    device.close()


def test_a_guess_reads_at_the_second_try_too(tmp_path: Path) -> None:
    """A page that is found by way of another one is tried as often as one that is found at once."""
    device, model = in_order(tmp_path / "chip", "leaftl", failing_once, gamma="4")
    held(device, model, set())
    assert device.stats()["unreadable"] == 0
    device.close()


def test_what_stands_for_an_unreadable_page_is_as_old_as_that_was(tmp_path: Path) -> None:
    """Its spare area still says whose it was, and how old."""
    path = tmp_path / "chip"
    device, model = in_order(path, "pagemap")
    ppa = places(device)[min(model)]
    was = inspect.Spare.of(device.nand.read_spare_area(*divmod(ppa, 16))[1])
    spoil(path, ppa)
    until_moved(device, model, ppa // 16)
    assert [(one.lpa, one.seq) for one in all_spares(device) if one.flags & FLAG_LOST] == [(was.lpa, was.seq)]
    held(device, model, {was.lpa})
    device.close(clean=False)
