"""LearnedFTL's own: which reads its models spare, that no model is sure of what is not so, what a mount begins with.
The cache is TPFTL's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandimg
from flashfs.device import Device
from flashfs.ftl import scheme
from flashfs.parts.paged.tpftl_map import UNIT_TAKES
from flashfs.parts.superblocks.superblocks import Superblocks
from nandimg import Geometry

PAGE = 512
PER_PAGE = PAGE // 4
#: 24 translation pages; room for cleaning, and for superblocks of 64 pages
SMALL = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=256, channels=4, dies=4, oob_bytes=64, lpas=3_000)


def learnedftl(units: int = 24, **options: Any) -> Device:
    how = {"buffer": 0, "wear_spread": 1 << 20, "cmt_bytes": units * UNIT_TAKES, **options}
    return Device.memory(SMALL, "learnedftl", how)


def figures(device: Device) -> dict[str, Any]:
    found: dict[str, Any] = device.ssd.mapping.figures()
    return found


def page_of(lpa: int) -> bytes:
    return lpa.to_bytes(4, "little") * (PAGE // 4)


def write(device: Device, first: int, n: int = 1) -> None:
    lpas = np.arange(first, first + n, dtype=np.uint32)
    device.ssd.write_pages(lpas, np.frombuffer(b"".join(page_of(lpa) for lpa in range(first, first + n)), np.uint8))


def read(device: Device, first: int, n: int = 1, t_ns: int = 0) -> tuple[bytes, int]:
    into = bytearray(n * PAGE)
    end = device.ssd.read_pages(np.arange(first, first + n, dtype=np.uint32), np.frombuffer(into, np.uint8), t_ns)
    return bytes(into), end


def reads_since(device: Device, before: dict[str, Any]) -> tuple[int, int, int]:
    after = figures(device)
    cached, modelled, doubled = (after[name] - before[name] for name in ("reads_cached", "reads_modelled",
                                                                         "reads_doubled"))  # fmt: skip
    return cached, modelled, doubled


@pytest.mark.parametrize("place", ["superblocks", "streams"])
@pytest.mark.parametrize("train", ["always", "cleaning"])
@pytest.mark.parametrize("seed", [1, 2])
def test_no_model_is_sure_of_what_is_not_so(place: str, train: str, seed: int) -> None:
    """Through writes in runs and alone, cleaning, trims and write-backs: a bit is set only where the map says what the
    model says, and each page reads as it was written."""
    rnd = random.Random(f"{place} {train} {seed}")
    device, written = learnedftl(place=place, train=train), set()
    assert isinstance(device.ssd.placement, Superblocks) == (place == "superblocks")
    for turn in range(2_000):
        first, n = rnd.randrange(SMALL.lpas - 150), rnd.choice((1, 1, 3, 60, 150))
        what = rnd.random()
        if what < 0.5:
            write(device, first, n)
            written |= set(range(first, first + n))
        elif what < 0.6:
            device.trim(first * PAGE, n * PAGE)
            written -= set(range(first, first + n))
        else:
            expected = b"".join(page_of(lpa) if lpa in written else bytes(PAGE) for lpa in range(first, first + n))
            assert read(device, first, n)[0] == expected
        if turn % 100 == 0:
            assert device.ssd.mapping.stale() == []
            assert device.problems() == []
    found = figures(device)
    assert device.stats()["nand"]["by_cause"]["program"]["gc"] > 0
    assert found["models_taken"] and found["reads_modelled"] and found["reads_doubled"]
    assert found["mispredictions"] == 0
    assert found["lookups"] == found["hits"] + found["misses"] + found["reads_modelled"] + found["writes_modelled"]


def test_what_was_written_in_order_is_read_once() -> None:
    """A line of slope 1 for each model, of runs that the host wrote: no look-up reads a translation page, however
    little is cached."""
    device = learnedftl()
    for first in range(0, SMALL.lpas, 60):
        write(device, first, 60)
    assert figures(device)["lpas_modelled"] > 0.95 * SMALL.lpas
    before, reads = figures(device), device.ssd.mapping.store.reads
    known = [lpa for lpa in range(0, SMALL.lpas, 7) if device.ssd.mapping.models.where(lpa) is not None]
    for lpa in known:
        assert read(device, lpa)[0] == page_of(lpa)
    cached, modelled, doubled = reads_since(device, before)
    assert (cached + modelled, doubled) == (len(known), 0)
    assert modelled > 0.9 * len(known)
    assert device.ssd.mapping.store.reads == reads


def test_a_model_hit_takes_one_read_and_a_double_read_two() -> None:
    device = learnedftl(8)
    write(device, 0, SMALL.lpas)
    one = SMALL.read_ns + SMALL.transfer_ns
    for lpa in range(1_000, 1_400):  # what is dirty in the cache makes room for these
        device.ssd.mapping.models.change(lpa)
        read(device, lpa)
    start = device.quiet_at() + 1_000_000
    assert device.ssd.mapping.explain(5)["where"] == "in flash"
    assert read(device, 5, 1, start)[1] == start + one
    device.ssd.mapping.models.change(5)
    start = device.quiet_at() + 1_000_000
    assert read(device, 5, 1, start)[1] == start + 2 * one


def test_a_write_asks_the_model_where_the_page_was() -> None:
    device = learnedftl(8)
    write(device, 0, SMALL.lpas)
    reads, known = device.ssd.mapping.store.reads, figures(device)["writes_modelled"]
    assert device.ssd.mapping.models.where(5) is not None
    write(device, 5)
    found = figures(device)
    assert found["writes_modelled"] == known + 1
    assert device.ssd.mapping.store.reads - reads <= 1  # of the page that made room
    assert device.ssd.mapping.models.where(5) is None
    assert device.problems() == []


def scattered(path: Path, options: dict[str, str], chip: Geometry = SMALL) -> list[int]:
    """An image on which every page was written in order, and some then alone, closed as the caller likes; those that
    were written alone."""
    nandimg.create(path, chip)
    return random.Random(6).sample(range(chip.lpas), chip.lpas // 10)


def read_all_of(device: Device, lpas: list[int]) -> tuple[int, int, int]:
    before = figures(device)
    for lpa in lpas:
        assert read(device, lpa)[0] == page_of(lpa)
    return reads_since(device, before)


def test_models_outlast_a_clean_unmount(tmp_path: Path) -> None:
    """And with them that reads are single: nothing is trained again first. What changes from then on clears bits as
    ever."""
    path = tmp_path / "img"
    options = {"buffer": "0", "cmt_bytes": str(24 * UNIT_TAKES)}
    alone = scattered(path, options)
    with Device.open(path, ftl="learnedftl", options=options) as device:
        write(device, 0, SMALL.lpas)
        for lpa in alone:
            write(device, lpa)
        known = [device.ssd.mapping.models.where(lpa) for lpa in range(SMALL.lpas)]
        lines = [device.ssd.mapping.models.of_page(page) for page in range(24)]
        exact = figures(device)["lpas_modelled"]
        assert exact > 0.8 * SMALL.lpas
    for _ in range(2):
        with Device.open(path, options=options) as device:
            assert figures(device)["lpas_modelled"] == figures(device)["lpas_restored"] == exact
            assert [device.ssd.mapping.models.where(lpa) for lpa in range(SMALL.lpas)] == known
            assert [device.ssd.mapping.models.of_page(page) for page in range(24)] == lines
            assert device.ssd.mapping.stale() == device.problems() == []
    with Device.open(path, options=options) as device:
        lpas = [lpa for lpa in range(0, SMALL.lpas, 7) if known[lpa] is not None]
        cached, modelled, doubled = read_all_of(device, lpas)
        assert (cached + modelled, doubled) == (len(lpas), 0)
        write(device, lpas[0], 3)
        device.trim(lpas[1] * PAGE, PAGE)
        assert device.ssd.mapping.models.where(lpas[1]) is None
        assert device.ssd.mapping.stale() == device.problems() == []


@pytest.mark.parametrize("checkpoint", [False, True])
def test_behind_a_cut_pages_that_are_read_train_models_again(tmp_path: Path, checkpoint: bool) -> None:
    """A recovery takes no models, though its checkpoint is a clean one and has them: pages were
    written since. A double read of each translation page, and the share of modelled reads is what it was."""
    path = tmp_path / "img"
    options = {"buffer": "0", "cmt_bytes": str(24 * UNIT_TAKES)}
    alone = scattered(path, options)
    with Device.open(path, ftl="learnedftl", options=options) as device:
        write(device, 0, SMALL.lpas)
    device = Device.open(path, options=options)
    for lpa in alone:
        write(device, lpa)
    if checkpoint:
        device.checkpoint()
    once = list(range(0, SMALL.lpas, 7))
    before = read_all_of(device, once)
    device.close(clean=False)
    with Device.open(path, options=options) as device:
        assert not device.recovery.clean
        assert figures(device)["lpas_restored"] == figures(device)["lpas_modelled"] == 0
        for lpa in (*range(0, SMALL.lpas, PER_PAGE), *range(64, SMALL.lpas, PER_PAGE)):
            assert read(device, lpa)[0] == page_of(lpa)
        assert figures(device)["pages_retrained"] >= 10  # the others were written back, and trained then
        after = read_all_of(device, once)
        assert device.ssd.mapping.stale() == device.problems() == []
        assert after[1] > 0.9 * before[1] > 0.5 * len(once)
        exact = figures(device)["lpas_modelled"]
    with Device.open(path, options=options) as device:
        assert figures(device)["lpas_restored"] == exact


def test_groups_outlast_a_clean_unmount(tmp_path: Path) -> None:
    """Whose the superblocks are, what has changed, and which group goes on filling what was open. With groups of
    another size nothing is known of them; with none, or another cache, the models still are."""
    path, rnd = tmp_path / "img", random.Random(8)
    options = {"buffer": "0", "wear_spread": str(1 << 20), "cmt_bytes": str(24 * UNIT_TAKES)}
    nandimg.create(path, GROUPED)

    def told(device: Device) -> tuple[Any, ...]:
        groups = device.ssd.mapping.groups
        return groups.table(), groups.groups(), groups.credit

    with Device.open(path, ftl="learnedftl", options=options) as device:
        write(device, 0, GROUPED.lpas)
        for _ in range(5_000):
            write(device, rnd.randrange(GROUPED.lpas))
        before, exact = told(device), figures(device)["lpas_modelled"]
        assert sum(entry["group"] is not None for entry in before[0]) > 4
        assert sum(entry["changed"] for entry in before[1]) > 100
    with Device.open(path, options=options) as device:
        assert told(device) == before
        for _ in range(5_000):
            write(device, rnd.randrange(GROUPED.lpas))
        assert device.ssd.mapping.stale() == device.problems() == []
    for other in ({"group": "1"}, {"place": "superblocks"}, {"place": "streams"}):
        with Device.open(path, options={**options, **other}) as device:
            exact = exact if "place" in other else figures(device)["lpas_modelled"]
            assert figures(device)["lpas_restored"] == figures(device)["lpas_modelled"] > 0
            if "group" in other:
                assert all(entry["group"] is None for entry in told(device)[0])
            assert read(device, 0, GROUPED.lpas)[0] == b"".join(page_of(lpa) for lpa in range(GROUPED.lpas))
            assert device.ssd.mapping.stale() == device.problems() == []
    device = Device.open(path, options=options)
    write(device, 0)
    device.close(clean=False)
    with Device.open(path, options=options) as device:
        assert all(entry["group"] is None for entry in told(device)[0])


@pytest.mark.parametrize("clean", [True, False])
def test_other_options_at_each_mount(tmp_path: Path, clean: bool) -> None:
    """Where pages go may change from mount to mount, whatever streams the last one had blocks open of."""
    path, rnd = tmp_path / "img", random.Random(9)
    nandimg.create(path, GROUPED)
    options = {"buffer": "0", "wear_spread": str(1 << 20), "cmt_bytes": str(24 * UNIT_TAKES)}
    with Device.open(path, ftl="learnedftl", options=options) as device:
        write(device, 0, GROUPED.lpas)
    others = ({"open": "1"}, {"place": "streams"}, {}, {"place": "superblocks"}, {"group": "1", "open": "4"},
              {"gc_reserve": "9"}, {"place": "streams", "map_dies": "0"}, {"open": "2"})  # fmt: skip
    for other in others * 2:
        device = Device.open(path, options={**options, **other})
        for _ in range(600):
            write(device, rnd.randrange(GROUPED.lpas))
        assert read(device, 0, GROUPED.lpas)[0] == b"".join(page_of(lpa) for lpa in range(GROUPED.lpas))
        assert device.ssd.mapping.stale() == device.problems() == []
        device.close(clean=clean)


def test_models_that_cannot_be_make_a_recovery() -> None:
    """A checkpoint whose models name no page of the chip, or LPAs that there are not, is not mounted as a clean one
    (the tests of recovery have the rest); nor are groups that there are not."""
    device = grouped()
    write(device, 0, GROUPED.lpas)
    mapping = device.ssd.mapping
    sections = mapping.save_clean()
    mapping.load_clean(sections)
    assert mapping.stale() == []
    each = 52 + PER_PAGE // 8
    whole, last = bytearray(sections["models"]), 23 * each
    for at, raw, why in (
        (0, b"\xff\xff\xff\x7f", "a page that is not there"),  # the base
        (4, b"\x80\x00", "begins at 128"),
        (last + 52 + 8, b"\xff", "a page that is not there"),  # LPA 3,008 of 3,000
    ):
        wrong = whole[:]
        wrong[at : at + len(raw)] = raw
        with pytest.raises(ValueError, match=why):
            mapping.load_clean({"models": bytes(wrong)})
        assert figures(device)["lpas_modelled"] == 0
        assert mapping.check() == []
    with pytest.raises(ValueError, match="are needed"):
        mapping.load_clean({"models": bytes(whole[:-1])})
    for owners in (b"", sections["owners"][:-1], sections["owners"][:24] + b"\x0c\0\0\0" + sections["owners"][28:]):
        with pytest.raises(ValueError, match="owners section"):
            mapping.load_clean({"owners": owners})


def test_trained_by_cleaning_alone() -> None:
    device = learnedftl(train="cleaning", runs="off", place="superblocks")
    write(device, 0, SMALL.lpas)
    assert figures(device)["models_trained"] == 0
    rnd = random.Random(3)
    for _ in range(6_000):
        write(device, rnd.randrange(SMALL.lpas))
    assert device.stats()["nand"]["by_cause"]["program"]["gc"] > 0
    assert figures(device)["models_trained"] > 0
    assert device.ssd.mapping.stale() == []


def test_dram_names_models_and_filters() -> None:
    """52 bytes a model and a bit an LPA, packed; pages of 128 entries have a model each."""
    tables = learnedftl().ssd.mapping.tables()
    assert tables["models"][0] == 24 * 52
    assert tables["filters"][0] == 24 * 16


#: a superblock holds the pages of two translation pages: twelve groups; twice the room that they take
GROUPED = Geometry(page_bytes=PAGE, pages_per_block=64, blocks=96, channels=4, dies=4, oob_bytes=64, lpas=3_000)


def grouped(**options: Any) -> Device:
    how = {"buffer": 0, "wear_spread": 1 << 20, "cmt_bytes": 24 * UNIT_TAKES, **options}
    return Device.memory(GROUPED, "learnedftl", how)


def superblocks_of(device: Device, lpas: range | list[int]) -> set[int]:
    """The superblocks that these LPAs are in. They are read: what a look-up finds is in the cache, or a model's."""
    found = set()
    for lpa in lpas:
        assert read(device, lpa)[0] == page_of(lpa)
        known = device.ssd.mapping.explain(lpa)
        ppa = known["modelled"] if known["ppa"] is None else known["ppa"]
        found.add(ppa // (GROUPED.pages_per_block * GROUPED.dies))
    return found


def owners_of(device: Device) -> dict[int, int]:
    """{group: a superblock that is its}."""
    return {entry["group"]: entry["superblock"] for entry in scheme("learnedftl").views["owners"](device)}


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("lend_share", [10, 100])
def test_groups_are_put_in_order(group: int, lend_share: int) -> None:
    """Written at random again and again, most pages are where their models say; and nothing is lost on the way."""
    rnd, device = random.Random(group), grouped(group=group, lend_share=lend_share)
    write(device, 0, GROUPED.lpas)
    for turn in range(12_000):
        write(device, rnd.randrange(GROUPED.lpas))
        if turn % 1_000 == 0:
            assert device.ssd.mapping.stale() == []
            assert device.problems() == []
    found = figures(device)
    assert found["groups"] == (12 if group == 0 else 24)
    assert found["groups_ordered"] > 2 * found["groups"]
    assert found["pages_borrowed"] > 1_000
    assert (found["superblocks_lent"] > 0) == (lend_share < 100)
    assert found["lpas_modelled"] > 0.4 * GROUPED.lpas
    assert read(device, 0, GROUPED.lpas)[0] == b"".join(page_of(lpa) for lpa in range(GROUPED.lpas))
    alone = grouped(place="superblocks")
    write(alone, 0, GROUPED.lpas)
    for _ in range(12_000):
        write(alone, rnd.randrange(GROUPED.lpas))
    assert figures(alone)["groups"] == 0
    assert figures(alone)["lpas_modelled"] < found["lpas_modelled"] / 2


def test_training_and_sorting_may_take_virtual_time() -> None:
    """The same operations, later."""
    found = {}
    for learn_ns in (0, 100, 10_000):
        rnd, device, t_ns = random.Random(5), grouped(learn_ns=learn_ns), 0
        write(device, 0, GROUPED.lpas)
        for _ in range(4_000):
            lpa = rnd.randrange(GROUPED.lpas)
            t_ns = device.ssd.write_pages(np.array([lpa], np.uint32), np.frombuffer(page_of(lpa), np.uint8), t_ns)
        assert device.ssd.mapping.groups_ordered
        found[learn_ns] = device.stats()["nand"], t_ns
    assert found[0][0] == found[100][0] == found[10_000][0]
    assert found[0][1] < found[100][1] < found[10_000][1]


def test_a_group_has_a_superblock_of_its_own_while_there_is_room() -> None:
    """Two groups whose pages are written in turn do not mix; all of them have lines."""
    device = grouped(open=2)
    lpas = 2 * PER_PAGE
    for first in range(0, lpas, 32):
        write(device, first, 32)
        write(device, lpas + first, 32)
    mine, others = superblocks_of(device, range(lpas)), superblocks_of(device, range(lpas, 2 * lpas))
    assert len(mine) == len(others) == 1 and mine != others
    assert figures(device)["pages_borrowed"] == 0
    assert figures(device)["superblocks_of_groups"] == 2
    assert figures(device)["lpas_modelled"] == 2 * lpas


def test_a_third_group_borrows_and_is_put_in_order() -> None:
    """Where two superblocks may be open, a third group writes to one of them. Once it has a quarter of that, the
    superblock is no group's any more; put in order, the group is in one of its own."""
    device = grouped(open=2, group_share=5, lend_share=25)
    lpas = 2 * PER_PAGE
    write(device, 0, 10)
    write(device, lpas, 10)
    owned = owners_of(device)
    assert sorted(owned) == [0, 1]
    rnd = random.Random(5)
    third = rnd.sample(range(2 * lpas, 3 * lpas), 120)
    for lpa in third:
        write(device, lpa)
    found = figures(device)
    assert found["pages_borrowed"] == len(third)
    assert found["superblocks_lent"] == 1
    assert len(owners_of(device)) == 1
    assert superblocks_of(device, third) <= set(owned.values())
    device.ssd.placement.order(2)
    assert superblocks_of(device, third) == {owners_of(device)[2]}
    assert device.ssd.mapping.stale() == []
    assert device.problems() == []


def test_a_group_that_is_in_order_is_only_looked_at() -> None:
    device = grouped(group_share=10)
    for _ in range(4):
        for first in range(0, GROUPED.lpas, 60):
            write(device, first, 60)
    found = figures(device)
    assert found["groups_ordered"] == 0
    assert found["lpas_modelled"] > 0.95 * GROUPED.lpas


def test_homes_and_logs_keep_a_full_device_in_order() -> None:
    """Under writes at random: models know three in five of the pages, and for that no more moves than theory has, a
    group for each superblock to spare. Four of those are in use: the host's, and what moves."""
    device, rnd, writes = grouped(), random.Random(7), 4 * GROUPED.lpas
    write(device, 0, GROUPED.lpas)
    for _ in range(writes):
        write(device, rnd.randrange(GROUPED.lpas))
    groups = figures(device)["groups"]
    spare = GROUPED.blocks // GROUPED.dies - groups - 4
    assert figures(device)["lpas_modelled"] > 0.6 * GROUPED.lpas
    assert device.stats()["nand"]["by_cause"]["program"]["gc"] < 1.1 * groups / spare * writes
    assert device.ssd.mapping.stale() == []
    assert device.problems() == []


def test_the_owners_of_an_image_of_before() -> None:
    """Its section has a byte more for each group, which means nothing now; any other length is none."""
    device, other = grouped(), grouped()
    write(device, 0, GROUPED.lpas)
    groups, again = device.ssd.mapping.groups, other.ssd.mapping.groups
    saved = bytes(groups.save())
    again.load(saved + bytes(groups.n))
    assert (again.table(), again.groups()) == (groups.table(), groups.groups())
    for wrong in (saved[:-1], saved + b"x", saved[:20]):
        with pytest.raises(ValueError, match="owners section"):
            again.load(wrong)


def test_groups_and_owners_as_they_are_shown() -> None:
    device, learned = grouped(), scheme("learnedftl")
    write(device, 0, GROUPED.lpas)
    groups = learned.views["groups"](device)
    each = device.ssd.mapping.groups.group_lpas
    assert [row["first_lpa"] for row in groups] == list(range(0, GROUPED.lpas, each))
    for lpa in random.Random(4).sample(range(each), 20):
        write(device, lpa)
    changed = [row["changed"] for row in learned.views["groups"](device)]
    assert changed == [groups[0]["changed"] + 20, *(row["changed"] for row in groups[1:])]
    owners = learned.views["owners"](device)
    assert 0 < len(owners) <= GROUPED.blocks // GROUPED.dies
    assert {row["group"] for row in owners} <= {row["group"] for row in groups}
    assert all(row["lent"] <= GROUPED.dies * GROUPED.pages_per_block for row in owners)
    assert learned.views["groups"](grouped(place="streams")) == []


def test_what_is_drawn_of_a_model_are_the_pages_that_it_knows() -> None:
    """After a recovery, when no model was trained yet, what the map gives is drawn."""
    device = grouped()
    write(device, 0, GROUPED.lpas)
    for lpa in random.Random(4).sample(range(GROUPED.lpas), 300):
        write(device, lpa)
    learned = scheme("learnedftl")
    for _ in range(2):
        models = learned.views["models"](device)
        assert sum(model["exact"] for model in models) > GROUPED.lpas // 2
        drawn = next(chart for chart in learned.charts(device) if chart.get("title") == "A model")
        met = [(x, y) for band in drawn["bands"] for x, y, known in band["points"] if known]
        assert len(met) == len(set(met)) and any(model["exact"] == len(met) for model in models)
        for band in drawn["bands"]:
            assert all(0 <= y <= band["y_most"] for _, y, _ in band["points"])
            assert all(0 <= line[end] <= band["y_most"] for line in band["lines"] for end in ("y1", "y2"))
        device.ssd.mapping.models.clear()
