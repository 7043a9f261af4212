"""Learned pieces keep their word at each of their points, and no cover of their kind has fewer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flashfs.ftl.leaftl import regression_py as fitting
from flashfs.ftl.leaftl.regression_py import fit, float_to_half, float_to_half_floor, half_to_float, predicted, stride

Points = list[tuple[int, int]]

ODD = np.arange(1, 0x7C00, 2, dtype=np.uint16)  #: every slope that an approximate piece can have
SLOPES = ODD.view(np.float16).astype(np.float64)
EVERY_HALF = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


# --- half precision


def test_every_half_is_decoded_as_numpy_does() -> None:
    ours = np.array([half_to_float(int(half)) for half in EVERY_HALF])
    assert np.array_equal(ours, EVERY_HALF.view(np.float16).astype(np.float64), equal_nan=True)
    assert np.array_equal(np.signbit(ours[ours == 0]), [False, True])


def test_every_half_and_what_lies_between_is_encoded_as_numpy_does() -> None:
    finite = EVERY_HALF.view(np.float16).astype(np.float64)
    finite = np.sort(finite[np.isfinite(finite)])
    middles = (finite[1:] + finite[:-1]) / 2  # exact; ties go to even
    values = np.concatenate([finite, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)])
    values = np.concatenate([values, [65519.9, 65520.0, 1e300, -1e300, np.inf, -np.inf, 5e-324, -0.0]])
    with np.errstate(over="ignore"):
        theirs = values.astype(np.float16).view(np.uint16)
    assert [float_to_half(float(value)) for value in values] == theirs.tolist()
    assert half_to_float(float_to_half(float("nan"))) != half_to_float(float_to_half(float("nan")))


def test_floor_is_the_largest_half_not_above() -> None:
    for half in range(0x7C00):
        value = half_to_float(half)
        assert float_to_half_floor(value) == half
        assert float_to_half_floor(float(np.nextafter(value, np.inf))) == half
    assert float_to_half_floor(1e9) == 0x7BFF
    assert float_to_half_floor(-1.0) == float_to_half_floor(float("nan")) == 0


def test_the_slope_of_a_stride_names_it() -> None:
    for n in range(1, 256):
        assert stride(float_to_half_floor(1 / n) & ~1) == n


# --- properties


@st.composite
def runs(draw: st.DrawFn) -> tuple[Points, int]:
    """Sorted by LPA; PPAs in order, with gaps, or anything; and gamma."""
    n = draw(st.integers(1, 40))
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 1, 2, 2, 3, 5, 17, 90]), min_size=n, max_size=n))
    lpas = np.cumsum(gaps) + draw(st.integers(0, 600))
    steps = draw(
        st.one_of(
            st.just([1] * n),
            st.lists(st.sampled_from([1, 1, 1, 1, 2, 3, 9]), min_size=n, max_size=n),
            st.lists(st.integers(-40, 3000), min_size=n, max_size=n),
        )
    )
    ppas = np.maximum(np.cumsum(steps) + draw(st.sampled_from([0, 5, 1000, 1 << 20, 2**32 - 200_000])), 0)
    return [(int(x), int(y)) for x, y in zip(lpas, ppas, strict=True)], draw(st.sampled_from([0, 1, 2, 4, 16]))


def pieces_of(points: Points, gamma: int, **rules: Any) -> NDArray[Any]:
    return fit([x for x, _ in points], [y for _, y in points], gamma, **rules)


def check_pieces(points: Points, gamma: int, group: int, pieces: NDArray[Any]) -> None:
    """All points in order, each within what its piece promises; an accurate one's LPAs follow from the piece alone."""
    assert [int(piece["first"]) for piece in pieces] == list(np.cumsum([0, *pieces["n"][:-1].tolist()]))
    assert pieces["n"].sum() == len(points)
    for piece in pieces:
        own = points[piece["first"] : piece["first"] + piece["n"]]
        slope, start = int(piece["slope"]), own[0][0]
        assert (start % group, own[-1][0] - start) == (piece["start"], piece["length"])
        assert len({x // group for x, _ in own}) == 1
        bound = gamma if slope & 1 else 0
        assert all(abs(predicted(slope, int(piece["intercept"]), x % group) - y) <= bound for x, y in own)
        if not slope & 1:
            assert [x for x, _ in own] == list(range(start, own[-1][0] + 1, stride(slope)))
            assert slope or len(own) == 1


@settings(max_examples=400, deadline=None)
@given(runs(), st.sampled_from(["fewest", "smallest"]), st.sampled_from([16, 256, 4096]))
def test_each_piece_keeps_its_word(run: tuple[Points, int], objective: str, group: int) -> None:
    points, gamma = run
    check_pieces(points, gamma, group, pieces_of(points, gamma, group=group, objective=objective))


@settings(max_examples=300, deadline=None)
@given(runs(), st.sampled_from(["fewest", "smallest"]), st.sampled_from([4, 64, 100]))
def test_in_blocks_a_prediction_stays_among_the_pages_of_the_run(
    run: tuple[Points, int], objective: str, pages: int
) -> None:
    points, gamma = run
    pieces = pieces_of(points, gamma, pages_per_block=pages, objective=objective)
    check_pieces(points, gamma, 256, pieces)
    for parts in by_block(points, pages):
        low, high = min(y for _, y in points[parts]), max(y for _, y in points[parts])
        for piece in pieces:
            own = range(piece["first"], piece["first"] + piece["n"])
            if own[0] in range(parts.start, parts.stop):
                assert own[-1] < parts.stop
                told = [predicted(int(piece["slope"]), int(piece["intercept"]), points[i][0] % 256) for i in own]
                assert low <= min(told) and max(told) <= high


def by_block(points: Points, pages: int) -> Iterator[slice]:
    """Stretches of points in one block."""
    first = 0
    for i in range(1, len(points) + 1):
        if i == len(points) or points[i][1] // pages != points[first][1] // pages:
            yield slice(first, i)
            first = i


def reach_approximate(points: Points, gamma: int, low: int, high: int) -> int:
    """How many of the points, from the first on, some odd half and some integer pass: every half is tried."""
    slopes, least, most = SLOPES, np.full(len(SLOPES), -(1 << 60)), np.full(len(SLOPES), 1 << 60)
    for n, (x, y) in enumerate(points):
        if abs(y - points[0][1]) >= 1 << 20:
            return n
        told = np.ceil(slopes * (x % 256)).astype(np.int64)
        least = np.maximum(least, max(y - gamma, low) - told)
        most = np.minimum(most, min(y + gamma, high) - told)
        alive = least <= most
        if not alive.any():
            return n
        slopes, least, most = slopes[alive], least[alive], most[alive]
    return len(points)


def reach_accurate(points: Points) -> int:
    """How many of the points, from the first on, lie on a constant stride and on PPAs that rise by one."""
    if len(points) == 1 or points[1][1] != points[0][1] + 1 or points[1][0] - points[0][0] > 255:
        return 1
    gap = points[1][0] - points[0][0]
    n = 2
    while n < len(points) and points[n] == (points[n - 1][0] + gap, points[n - 1][1] + 1):
        n += 1
    return n


def fewest(points: Points, gamma: int, pages: int) -> int:
    """The fewest pieces of all covers, by dynamic programming over all pieces that there can be."""
    best = [0] * (len(points) + 1)
    for parts in reversed(list(by_block(points, pages or 1 << 40))):
        block = points[parts]
        low, high = (min(y for _, y in block), max(y for _, y in block)) if pages else (0, 2**32 - 2)
        for first in range(parts.stop - 1, parts.start - 1, -1):
            end = first + 1
            while end < parts.stop and points[end][0] // 256 == points[first][0] // 256:
                end += 1
            reach = reach_accurate(points[first:end])
            if gamma:
                reach = max(reach, reach_approximate(points[first:end], gamma, low, high))
            best[first] = 1 + min(best[first + n] for n in range(1, reach + 1))
    return best[0]


@settings(max_examples=60, deadline=None)
@given(runs(), st.sampled_from([0, 0, 64]))
def test_no_cover_has_fewer_pieces(run: tuple[Points, int], pages: int) -> None:
    points, gamma = run
    assert len(pieces_of(points, gamma, pages_per_block=pages)) == fewest(points, gamma, pages)


def bytes_of(pieces: NDArray[Any]) -> int:
    approximate = pieces[pieces["slope"] & 1 == 1]
    return 8 * len(pieces) + int(approximate["n"].sum()) + len(approximate)


@settings(max_examples=200, deadline=None)
@given(runs())
@example(([(1, 1), (18, 2), (19, 3), (20, 4), (21, 5), (22, 6)], 1))  # a line ends within an accurate piece
def test_smallest_takes_no_more_bytes_than_accurate_pieces_alone(run: tuple[Points, int]) -> None:
    points, gamma = run
    assert bytes_of(pieces_of(points, gamma, objective="smallest")) <= bytes_of(pieces_of(points, 0))


def test_smallest_takes_a_long_sequential_stretch_out_of_an_irregular_one() -> None:
    lpas = [0, 1, 3, 4, 7, 8, 10, *range(20, 120), 121, 124, 125, 127, 131]
    pieces = fit(lpas, range(len(lpas)), 4, objective="smallest")
    assert [(int(piece["n"]), int(piece["slope"]) & 1) for piece in pieces] == [(7, 1), (100, 0), (5, 1)]
    assert len(fit(lpas, range(len(lpas)), 16, objective="fewest")) == 1


# --- counts that an exhaustive search gave


def seventy_percent() -> NDArray[np.uint32]:
    rnd = random.Random(3)
    return np.array([lpa for lpa in range(60_000) if rnd.random() < 0.7], np.uint32)


@pytest.mark.parametrize(
    ("gamma", "free", "within"), [(0, 11_622, 11_622), (1, 1_318, 1_339), (4, 431, 451), (16, 395, 395)]
)
def test_as_few_pieces_as_an_exhaustive_search(gamma: int, free: int, within: int) -> None:
    """Seventy percent of 60,000 LPAs in order, in blocks of 256 pages: ``free`` if a prediction may leave the block,
    ``within`` if not. Both counts come from a search over every odd half and every intercept."""
    lpas = seventy_percent()
    ppas = np.arange(len(lpas), dtype=np.uint32)
    assert len(lpas) == 41_784
    assert sum(len(fit(lpas[i : i + 256], ppas[i : i + 256], gamma)) for i in range(0, len(lpas), 256)) == free
    assert len(fit(lpas, ppas, gamma, pages_per_block=256)) == within


@pytest.mark.parametrize("gamma", [0, 1, 4, 16])
@pytest.mark.parametrize("objective", ["fewest", "smallest"])
def test_a_sequential_group_is_one_piece(gamma: int, objective: str) -> None:
    pieces = fit(range(60_000), range(60_000), gamma, pages_per_block=256, objective=objective)
    assert len(pieces) == 235
    assert set(pieces["slope"].tolist()) == {0x3C00}


# --- what is refused


@pytest.mark.parametrize(
    ("arguments", "rules", "said"),
    [
        (([1, 2], [1]), {}, "2 LPAs and 1 PPAs"),
        (([2, 2], [1, 2]), {}, "LPA 2 after 2"),
        (([1], [2**32 - 1]), {}, "this one stands for none"),
        (([1], [1], 17), {}, "gamma 17: use 0 to 16"),
        (([1], [1]), {"group": 100}, "group 100: use a power of two"),
        (([1], [1]), {"objective": "best"}, "objective 'best': use fewest or smallest"),
    ],
)
def test_what_would_do_is_said(arguments: tuple[Any, ...], rules: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fit(*arguments, **rules)


def test_no_points_no_pieces() -> None:
    assert len(fit([], [])) == 0
    assert fit([], []).dtype == fitting.PIECE
