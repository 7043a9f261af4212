"""The log-structured mapping table: the paper's example, its algorithms step by step, and the map that it must be."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from leaftl_reference import Group, insert

from flashfs.ftl.leaftl.segments import SegmentTable

NONE = 0xFFFFFFFF


def shown(table: SegmentTable, group: int = 0) -> list[list[tuple[str, list[int], int]]]:
    levels = table.dump(group)["levels"]
    return [[(held["kind"], held["lpas"], held["intercept"]) for held in level] for level in levels]


def ranges(table: SegmentTable) -> list[list[tuple[int, int]]]:
    return [[(held["start"], held["end"]) for held in level] for level in table.dump(0)["levels"]]


# --- Figure 13


def test_figure_13() -> None:
    table = SegmentTable(256, gamma=1)

    def crb() -> list[list[int]]:
        found: list[list[int]] = table.dump(0)["crb"]
        return found

    table.insert(range(64), range(1000, 1064))  # T0
    assert ranges(table) == [[(0, 63)]]
    table.insert(range(200, 256), range(2000, 2056))  # T1
    assert ranges(table) == [[(0, 63), (200, 255)]]
    table.insert(range(16, 32), range(3000, 3016))  # T2
    assert ranges(table) == [[(16, 31), (200, 255)], [(0, 63)]]
    table.insert([75, 78, 82], [4000, 4001, 4002])  # T3
    assert ranges(table) == [[(16, 31), (75, 82), (200, 255)], [(0, 63)]]
    assert crb() == [[75, 78, 82]]
    table.insert([72, 73, 80], [5000, 5001, 5002])  # T4
    assert ranges(table) == [[(16, 31), (72, 80), (200, 255)], [(0, 63), (75, 82)]]
    assert crb() == [[72, 73, 80], [75, 78, 82]]
    assert table.lookup(50) == (1050, 2, False)  # T5
    ppa, levels, approximate = table.lookup(78) or (0, 0, False)  # T6
    assert (levels, approximate) == (2, True)
    assert abs(ppa - 4001) <= 1
    table.insert(range(32, 91), range(6000, 6059))  # T7
    assert ranges(table) == [[(16, 31), (32, 90), (200, 255)], [(0, 63), (75, 82)]]
    assert crb() == [[75, 78, 82]]
    table.compact()  # T8
    assert ranges(table) == [[(0, 15), (16, 31), (32, 90), (200, 255)]]
    assert crb() == []
    assert table.check() == []


def test_figure_9_a_start_that_is_taken_moves_to_its_neighbour() -> None:
    table = SegmentTable(256, gamma=4)
    table.insert([100, 101, 103, 104, 106], range(500, 505))
    table.insert([100, 102, 105], range(600, 603))
    assert table.dump(0)["crb"] == [[100, 102, 105], [101, 103, 104, 106]]
    assert ranges(table) == [[(100, 105)], [(101, 106)]]


def test_an_lpa_0_in_the_crb_is_no_null() -> None:
    table = SegmentTable(256, gamma=4)
    table.insert([0, 2, 3, 6, 7], range(5))
    table.insert([9, 10, 13, 15], range(16, 20))
    assert table.dump(0)["crb"] == [[0, 2, 3, 6, 7], [9, 10, 13, 15]]
    table.insert([2, 6, 9, 10, 14, 15], range(32, 38))
    assert table.dump(0)["crb"] == [[0, 3, 7], [2, 6, 9, 10, 14, 15], [13]]
    for lpa, ppa in {0: 0, 2: 32, 3: 2, 6: 33, 7: 4, 9: 34, 10: 35, 13: 18, 14: 36, 15: 37}.items():
        found = table.lookup(lpa)
        assert found is not None and abs(found[0] - ppa) <= 4
    assert [table.lookup(lpa) for lpa in (1, 4, 5, 8, 11, 12)] == [None] * 6
    assert table.check() == []


def test_a_stale_crb_entry_does_not_pass_over_a_newer_accurate_segment() -> None:
    """A look-up that jumped from the CRB to its segment, as the paper's text suggests, would find the old page here."""
    table = SegmentTable(256, gamma=1)
    table.insert([75, 78, 82], [400, 401, 402])
    table.insert([72, 73, 80], [450, 451, 452])
    table.insert(range(77, 80), [500, 501, 502])
    table.insert([74, 76, 81], [600, 601, 602])
    assert table.dump(0)["crb"] == [[72, 73, 80], [74, 76, 81], [75, 78, 82]]
    assert table.lookup(78) == (501, 2, False)


# --- against the algorithms in plain sets, and against the true map


def some_run(rnd: random.Random, lpas: int, most: int) -> list[int]:
    first = rnd.randrange(lpas)
    shape = rnd.random()
    if shape < 0.3:
        return list(range(first, lpas, rnd.choice([1, 1, 2, 3, 7])))[: rnd.randint(1, most)]
    if shape < 0.6:
        return sorted(rnd.sample(range(lpas), min(lpas, most, rnd.choice([1, 1, 1, 2, 3, 8, 40]))))
    end = min(lpas, first + rnd.randint(1, 150))
    return [x for x in range(first, end) if rnd.random() < 0.6][:most] or [first]


@pytest.mark.parametrize("seed", range(60))
def test_each_step_is_the_one_of_the_algorithms(seed: int) -> None:
    rnd = random.Random(seed)
    gamma, pages, lpas = rnd.choice([0, 0, 0, 1, 2, 4, 16]), rnd.choice([16, 64, 256]), rnd.choice([60, 256, 300])
    rules = {"pages_per_block": pages, "objective": rnd.choice(["smallest", "fewest"])}
    table = SegmentTable(lpas, gamma, **rules)
    groups: dict[int, Group] = {}
    for block in range(60):
        run = some_run(rnd, lpas, pages)
        ppas = list(range(block * pages, block * pages + len(run)))
        table.insert(run, ppas)
        insert(groups, run, ppas, gamma, **rules)
        if block % 16 == 9 or rnd.random() < 0.05:
            table.compact()
            for group in groups.values():
                group.compact()
        for number, group in groups.items():
            assert shown(table, number) == group.shown(), f"seed {seed}, run {block}: {run}"
            assert table.dump(number)["crb"] == group.crb()
            for x in range(min(256, lpas - number * 256)):
                assert table.lookup(number * 256 + x) == group.lookup(x)
    assert table.check() == []
    assert table.crowded == 0


def judge(table: SegmentTable, true: dict[int, int], pages: int, story: str) -> None:
    """Every LPA is found where it is, or within gamma of there and in its block; what is not mapped is not found."""
    assert table.check() == [], story
    ppas, levels, approximate = table.lookup_many(np.arange(table.lpas))
    for lpa in range(table.lpas):
        if lpa not in true:
            assert ppas[lpa] == NONE and table.lookup(lpa) is None, f"{story}: LPA {lpa}"
            continue
        assert table.lookup(lpa) == (ppas[lpa], levels[lpa], approximate[lpa]), f"{story}: LPA {lpa}"
        off = abs(int(ppas[lpa]) - true[lpa])
        assert off <= (table.gamma if approximate[lpa] else 0), f"{story}: LPA {lpa} is {off} off"
        assert ppas[lpa] // pages == true[lpa] // pages, f"{story}: LPA {lpa} is in another block"


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_map(seed: int) -> None:
    """Writes, trims, compaction, groups that leave and come back."""
    rnd = random.Random(seed)
    gamma, pages, lpas = rnd.choice([0, 1, 4, 16]), rnd.choice([16, 64, 256]), rnd.choice([60, 256, 300, 1000])
    table = SegmentTable(lpas, gamma, pages_per_block=pages, objective=rnd.choice(["smallest", "fewest"]))
    true: dict[int, int] = {}
    for block in range(90):
        what = rnd.random()
        if what < 0.7:
            run = some_run(rnd, lpas, pages)
            ppas = list(range(block * pages, block * pages + len(run)))
            table.insert(run, ppas)
            true.update(zip(run, ppas, strict=True))
        elif what < 0.88:
            first, share = rnd.randrange(lpas), rnd.choice([1, 1, 0.5])
            gone = [x for x in range(first, min(lpas, first + rnd.choice([1, 1, 3, 20, 300]))) if rnd.random() <= share]
            table.remove(gone)
            for lpa in gone:
                true.pop(lpa, None)
        elif what < 0.93:
            table.compact()
        elif what < 0.97:
            table.compact(rnd.randrange(table.groups))
        else:
            group = rnd.randrange(table.groups)
            saved = table.save(group)
            table.drop(group)
            assert all(table.lookup(lpa) is None for lpa in range(group * 256, min(lpas, group * 256 + 256)))
            table.load(group, saved)
            assert table.save(group) == saved
        judge(table, true, pages, f"seed {seed}, step {block}")


@pytest.mark.parametrize("gamma", [0, 16])
def test_a_crowded_group_is_compacted_by_itself(gamma: int) -> None:
    """Single pages and pairs, thousands of times in two groups: never more than 8 bytes an LPA, a head and a level."""
    rnd = random.Random(7)
    table = SegmentTable(512, gamma, pages_per_block=64)
    true: dict[int, int] = {}
    for block in range(6_000):
        run = sorted(rnd.sample(range(512), rnd.choice([1, 1, 2, 3])))
        ppas = list(range(block * 64, block * 64 + len(run)))
        table.insert(run, ppas)
        true.update(zip(run, ppas, strict=True))
        assert all(len(table.save(group)) <= 2052 + (512 if gamma else 64) for group in (0, 1))
    judge(table, true, 64, "crowded")
    assert table.crowded > 0


@pytest.mark.parametrize("gamma", [0, 1, 16])
@pytest.mark.parametrize("longest", [4, 12, 60])
def test_a_group_never_owes_more_than_its_share(gamma: int, longest: int) -> None:
    """What a compaction would save is bounded at any time, and so is what it leaves of levels."""
    rnd = random.Random(longest)
    table = SegmentTable(256, gamma, pages_per_block=64, grown=25)
    true: dict[int, int] = {}
    for block in range(1_500):
        first, n = rnd.randrange(256), rnd.randint(1, longest)
        run = [x for x in range(first, min(256, first + n)) if rnd.random() < 0.8] or [first]
        ppas = list(range(block * 64, block * 64 + len(run)))
        table.insert(run, ppas)
        true.update(zip(run, ppas, strict=True))
        least = SegmentTable(256, gamma, pages_per_block=64)
        least.load(0, table.save(0))
        least.compact(0)
        allowed = max(16, table.segments * 25 // 100)
        assert table.segments - least.segments <= allowed
        assert table.crb_bytes - least.crb_bytes <= 2 * allowed
        assert table.levels - least.levels <= allowed
    assert 0 < table.compacted < 1_500
    judge(table, true, 64, "owed")


def test_what_is_written_in_one_go_owes_nothing() -> None:
    """However often: a group of one level has nothing to be superseded."""
    table = SegmentTable(256, grown=25)
    for block in range(1_000):
        table.insert(range(256), range(block * 256, block * 256 + 256))
    assert (table.compacted, table.segments, table.levels) == (0, 1, 1)


def test_many_levels() -> None:
    """Pairs, each within the one before: as many levels as a group can have, and then one more."""
    table = SegmentTable(256)
    true = {}
    for n in range(127):
        table.insert([n, 255 - n], [2 * n, 2 * n + 1])
        true |= {n: 2 * n, 255 - n: 2 * n + 1}
    assert len(table.dump(0)["levels"]) == 127
    judge(table, true, 1 << 20, "pairs")
    for n in range(300):
        x = n % 120
        table.insert([x, x + 130], [1000 + 2 * n, 1001 + 2 * n])
        true |= {x: 1000 + 2 * n, x + 130: 1001 + 2 * n}
        judge(table, true, 1 << 20, f"pairs, {n}")


def test_a_pair_from_afar_stays_two_if_the_table_is_told_so() -> None:
    """Whatever stands around it, in one group and over a border; three points on a line are a segment."""
    rnd = random.Random(4)
    far = SegmentTable(600, pages_per_block=64, pair_most=8)
    far.insert([3, 40, 100, 109, 200, 208, 300, 330, 360], range(9))
    assert [(piece["start"], piece["end"]) for piece in far.dump(0)["levels"][0]] == [
        (3, 3), (40, 40), (100, 100), (109, 109), (200, 208)
    ]  # fmt: skip
    assert [(piece["start"], piece["end"]) for piece in far.dump(1)["levels"][0]] == [(44, 104)]
    table, true = SegmentTable(600, 4, pages_per_block=64, pair_most=8), {}
    for block in range(300):
        run = sorted(rnd.sample(range(600), rnd.choice([1, 2, 3, 9, 40])))
        table.insert(run, range(block * 64, block * 64 + len(run)))
        true |= {lpa: block * 64 + i for i, lpa in enumerate(run)}
        judge(table, true, 64, f"pairs, {block}")


# --- trim


def test_a_trim_at_an_end_or_of_a_whole_segment_leaves_no_hole() -> None:
    table = SegmentTable(256, gamma=4)
    table.insert(range(100), range(100))
    table.insert([150, 151, 153, 156], range(200, 204))
    table.remove([*range(10), 99, 151])
    assert ranges(table) == [[(10, 98), (150, 156)]]
    assert table.dump(0)["crb"] == [[150, 153, 156]]
    table.remove(range(256))
    assert table.save(0) == b""
    assert table.sizes()["segments"] == 0


def test_a_trim_in_the_middle_is_a_hole_until_nothing_is_below_it() -> None:
    table = SegmentTable(256)
    table.insert(range(100), range(100))
    table.remove(range(40, 60))
    assert shown(table)[0] == [("hole", list(range(40, 60)), 0)]
    assert [table.lookup(x) is None for x in (39, 40, 59, 60)] == [False, True, True, False]
    table.remove(range(45, 50))  # again
    assert [len(level) for level in shown(table)] == [1, 1]
    table.compact()
    assert [len(level) for level in shown(table)] == [1, 1]
    table.insert(range(41), range(200, 241))
    table.compact()
    assert ranges(table) == [[(0, 40), (41, 59)], [(60, 99)]] or ranges(table) == [[(0, 40), (60, 99)]]
    table.insert(range(60, 100), range(300, 340))
    table.compact()
    assert ranges(table) == [[(0, 40), (60, 99)]]


def test_a_trim_does_not_bring_back_what_it_uncovers() -> None:
    table = SegmentTable(256, gamma=1)
    table.insert(range(100), range(100))
    table.insert([50, 53, 57], [200, 201, 202])
    table.insert([53, 55], [300, 301])
    table.remove([53, 55])
    assert [table.lookup(x) for x in (53, 55)] == [None, None]
    assert table.lookup(54) == (54, 2, False) or table.lookup(54) == (54, 3, False)
    assert table.check() == []


# --- bytes


def test_a_sequential_group_takes_sixteen_bytes() -> None:
    table = SegmentTable(1 << 16, pages_per_block=256)
    table.insert(range(1 << 16), range(1 << 16))
    sizes = table.sizes()
    assert table.segments == 256
    assert (sizes["modelled"], sizes["paper"]) == (256 * 16, 256 * 8)
    assert all(len(table.save(group)) == 12 for group in range(256))


def test_random_single_pages_take_no_more_than_a_page_table_of_8_bytes() -> None:
    """The worst there is: each page by itself in another block."""
    rnd = random.Random(1)
    table = SegmentTable(1 << 12, pages_per_block=256)
    order = list(range(1 << 12))
    for _ in range(3):
        rnd.shuffle(order)
        for lpa in order:
            table.insert([lpa], [rnd.randrange(1 << 30)])
    assert table.sizes()["paper"] == 8 << 12
    assert table.sizes()["modelled"] == (8 << 12) + 16 * (3 + 1 + 4)
    assert table.levels == 16


def churned(table: SegmentTable, seed: int, runs: int) -> None:
    """Random pages, sequential stretches and trims, so that groups of all sizes come and go."""
    rng = np.random.default_rng(seed)
    ppa = 0
    for _ in range(runs):
        if rng.random() < 0.8:
            run = np.unique(rng.integers(0, table.lpas // 4, 4096))
        else:
            first = int(rng.integers(0, table.lpas - 40_000))
            run = np.arange(first, first + 40_000)
        table.insert(run, np.arange(ppa, ppa + len(run)))
        ppa += 40_960
        if rng.random() < 0.1:
            first = int(rng.integers(0, table.lpas - 300_000))
            table.remove(np.arange(first, first + 300_000))


def test_on_64_gb_memory_is_within_a_quarter_of_the_model_whatever_came_before() -> None:
    """From the emptiest table on; slabs that became sparse are emptied on the way."""
    table = SegmentTable(1 << 24, pages_per_block=256)
    every = np.arange(1 << 24, dtype=np.uint32)
    table.insert(every, every)
    ratios = []
    for seed in range(8):
        sizes = table.sizes()
        ratios.append(sizes["allocated"] / sizes["modelled"])
        churned(table, seed, 20 << min(seed, 3))
    assert max(ratios) <= 1.25, ratios
    assert table.check() == []
    table.compact()
    assert table.sizes()["allocated"] <= 1.25 * table.sizes()["modelled"]
    table.remove(every)
    assert table.sizes()["modelled"] == table.sizes()["directory"]
    assert table.sizes()["allocated"] < (1 << 19) + table.sizes()["directory"]


# --- what comes from flash may be anything


def test_damaged_groups_are_refused_and_never_believed() -> None:
    rnd = random.Random(5)
    table = SegmentTable(256, gamma=4)
    table.insert([0, 2, 3, 6, 7, 11], range(6))
    table.insert(range(20, 90, 3), range(64, 88))
    table.insert([5, 6, 9, 30, 31, 33], range(100, 106))
    table.remove([50])
    good = table.save(0)
    refused = 0
    for _ in range(4_000):
        bad = bytearray(good)
        for _ in range(rnd.choice([1, 1, 2, 5])):
            bad[rnd.randrange(len(bad))] = rnd.choice([0, 1, 255, rnd.randrange(256)])
        if rnd.random() < 0.2:
            bad = bad[: rnd.randrange(len(bad))]
        other = SegmentTable(256, gamma=4)
        try:
            other.load(0, bytes(bad))
        except ValueError:
            refused += 1
        assert other.check() == []
        other.lookup_many(range(256))
        other.insert(range(0, 256, 2), range(128))
        other.compact()
        assert other.check() == []
    assert refused > 2_000


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (bytes([1, 0, 0, 0]), "as long as its head says"),
        (bytes([0, 0, 0]), "as long as its head says"),
        (bytes([1, 0, 0, 0, 200, 100, 0, 0x3C, 0, 0, 0, 0]), "ends beyond the group"),
        (bytes([1, 0, 0, 1, 5, 5, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]), "not sorted, or overlap"),
        (bytes([1, 0, 0, 0, 0, 4, 0, 0x39, 0, 0, 0, 0]), "not the one of its stride"),
        (bytes([1, 0, 0, 0, 0, 5, 0, 0x38, 0, 0, 0, 0]), "not on its stride"),
        (bytes([1, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0]), "slope 0"),
        (bytes([1, 3, 0, 0, 0, 7, 7, 0, 7, 1, 0x38, 0, 0, 0, 0]), "twice"),
        (bytes([1, 2, 0, 0, 4, 7, 3, 4, 1, 0x38, 0, 0, 0, 0]), "start and end with a run"),
        (bytes([1, 2, 0, 0, 4, 7, 4, 3, 0, 0x3C, 0, 0, 0, 0]), "a run of no segment"),
    ],
)
def test_what_is_wrong_with_a_group_is_said(block: bytes, said: str) -> None:
    assert said in (SegmentTable.fault(block) or "")
    with pytest.raises(ValueError, match=said):
        SegmentTable(256).load(0, block)


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.lookup(300),
        lambda table: table.lookup(-1),
        lambda table: table.insert([299, 300], [1, 2]),
        lambda table: table.remove([300]),
        lambda table: table.compact(2),
        lambda table: table.dump(2),
    ],
)
def test_what_there_is_not_is_refused(call: Any) -> None:
    table = SegmentTable(300)
    with pytest.raises(IndexError, match="use "):
        call(table)
