"""The judge itself: what each page may hold, and what it says when it holds something else."""

from __future__ import annotations

import pytest

from flashfs.crash import Judge

PAGE = 512


@pytest.fixture
def judge() -> Judge:
    return Judge(4, PAGE)


def test_a_page_says_who_it_is_all_over(judge: Judge) -> None:
    first, second = judge.will_write(2), judge.will_write(2)
    assert len(first) == len(second) == PAGE
    assert all(first[at : at + 16] != second[at : at + 16] for at in range(0, PAGE, 16))
    assert judge.content(0, 0) == bytes(PAGE)


def test_at_first_there_is_a_hole_and_nothing_else(judge: Judge) -> None:
    assert judge.newest(1) == bytes(PAGE)
    assert judge.crashed(1, bytes(PAGE)) is None
    assert judge.crashed(1, judge.content(1, 1)) == "LPA 1: holds version 1 of LPA 1; it may hold a hole"


def test_what_was_not_flushed_may_be_any_version(judge: Judge) -> None:
    versions = [bytes(PAGE), judge.will_write(0), judge.will_write(0)]
    for found in versions:
        again = Judge(4, PAGE)
        again.will_write(0)
        again.will_write(0)
        assert again.crashed(0, found) is None


def test_a_crash_decides_for_ever(judge: Judge) -> None:
    old = judge.will_write(0)
    new = judge.will_write(0)
    assert judge.crashed(0, old) is None
    assert judge.newest(0) == old
    assert judge.crashed(0, new) == "LPA 0: holds version 2 of LPA 0; it may hold version 1"


def test_a_flush_leaves_only_the_newest(judge: Judge) -> None:
    old = judge.will_write(0)
    new = judge.will_write(0)
    judge.flushed()
    assert judge.crashed(0, old) is not None
    assert judge.crashed(0, new) is None
    judge.will_trim(0)
    judge.flushed()
    assert judge.crashed(0, new) == "LPA 0: holds version 2 of LPA 0; it may hold a hole"


def test_a_trim_covers_all_its_pages(judge: Judge) -> None:
    for lpa in range(4):
        judge.will_write(lpa)
    judge.flushed()
    judge.will_trim(1, 2)
    assert [judge.newest(lpa) == bytes(PAGE) for lpa in range(4)] == [False, True, True, False]


def test_settling_is_for_one_page(judge: Judge) -> None:
    judge.will_write(0)
    judge.will_write(1)
    judge.settle(0)
    assert judge.crashed(0, bytes(PAGE)) is not None
    assert judge.crashed(1, bytes(PAGE)) is None


def test_a_page_of_another_lpa_and_a_torn_one_are_told_apart(judge: Judge) -> None:
    other = judge.will_write(3)
    mine = judge.will_write(0)
    assert "holds version 1 of LPA 3" in (judge.crashed(0, other) or "")
    torn = mine[: PAGE // 2] + bytes(PAGE // 2)
    assert "torn or mixed" in (judge.crashed(0, torn) or "")
    assert "torn or mixed" in (judge.crashed(0, b"\xff" * PAGE) or "")


def test_a_move_to_where_it_overlaps_changes_its_source_twice() -> None:
    """By half a page down: page 1 gets the first half of page 2 before its own second half is emptied."""
    judge = Judge(4, PAGE)
    for lpa in (1, 2):
        judge.will_write(lpa)
    judge.flushed()
    before = bytes(judge.image)
    half = PAGE // 2
    judge.will_remap(PAGE + half, PAGE, PAGE, move=True)  # of pages 1.5 to 2.5
    after = bytes(judge.image)
    copied = before[:PAGE] + before[PAGE + half : 2 * PAGE + half] + before[2 * PAGE :]
    assert after == copied[: 2 * PAGE] + bytes(half) + copied[2 * PAGE + half :]
    assert all(judge.fork().all_crashed(found) is None for found in (before, copied, after))
    lost = before[: 2 * PAGE] + after[2 * PAGE :]
    assert judge.fork().all_crashed(lost) == "LPA 1: what was moved there from LPA 2 is in neither of the two places"


def test_a_page_that_a_move_overwrites_and_then_empties_has_what_it_had() -> None:
    """A page down, of pages 1.5 to 3.5: page 2 first gets the first half of page 3, then its own second half goes."""
    judge = Judge(4, PAGE)
    for lpa in (1, 2, 3):
        judge.will_write(lpa)
    judge.flushed()
    before = bytes(judge.image)
    half = PAGE // 2
    judge.will_remap(PAGE + half, half, 2 * PAGE, move=True)
    after = bytes(judge.image)
    overwritten = before[: 2 * PAGE] + before[3 * PAGE : 3 * PAGE + half] + before[2 * PAGE + half :]
    assert judge.fork().all_crashed(overwritten) is None  # the rest of page 2 is where it was: nothing is lost of it
    emptied = before[: 2 * PAGE] + after[2 * PAGE : 3 * PAGE] + before[3 * PAGE :]
    assert judge.fork().all_crashed(emptied) == "LPA 1: what was moved there from LPA 2 is in neither of the two places"
