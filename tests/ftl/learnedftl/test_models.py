"""The models and filters of LearnedFTL against a plain model of them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from plain_models import PlainModels

from flashfs.ftl.learnedftl.models import Models
from nandimg import Geometry

NO_PAGE = 2**32 - 1
CHIP = Geometry(page_bytes=4096, pages_per_block=64, blocks=512, channels=4, dies=8, oob_bytes=64, lpas=24_000)


def models(per_page: int, pages: int = 8) -> Models:
    return Models(pages, per_page, CHIP.dies, CHIP.pages_per_block)


def entries(ppas: list[int | None]) -> np.ndarray:
    return np.array([NO_PAGE if ppa is None else ppa for ppa in ppas], np.uint32)


def striped(first: int, n: int) -> list[int | None]:
    """The PPAs of ``n`` consecutive VPPNs."""
    return [CHIP.ppa(vppn) for vppn in range(first, first + n)]


@pytest.mark.parametrize("per_page", [128, 512, 700, 1024])
@pytest.mark.parametrize("seed", range(4))
def test_the_models_are_the_plain_ones(per_page: int, seed: int) -> None:
    """Runs, single writes, trims and training in any order: what a model is sure of is where the LPA is, and it is sure
    of exactly the same LPAs as the plain model."""
    rnd = random.Random(seed * 10_000 + per_page)
    pages = 3
    ours, plain = models(per_page, pages), PlainModels(CHIP, per_page)
    truth: list[int | None] = [None] * (pages * per_page)
    vppn = 0
    for turn in range(400):
        what, lpa = rnd.random(), rnd.randrange(len(truth))
        if what < 0.5:
            n = min(rnd.choice((1, 1, 2, 7, 40, 300, 900)), len(truth) - lpa)
            lpas = list(range(lpa, lpa + n))
            if rnd.random() < 0.3:  # sorted, with gaps
                lpas = sorted(rnd.sample(lpas, (n + 1) // 2))
            start = rnd.randrange(CHIP.pages - n) if rnd.random() < 0.3 else vppn
            vppn = (start + len(lpas)) % (CHIP.pages - 1_000)
            ppas = [CHIP.ppa(start + i) for i in range(len(lpas))]
            for one, ppa in zip(lpas, ppas, strict=True):
                truth[one] = ppa
            ours.write_run(np.array(lpas, np.uint32), np.array(ppas, np.uint32))
            plain.run(lpas, ppas)
        elif what < 0.7:
            truth[lpa] = None
            ours.change(lpa)
            plain.change(lpa)
        else:
            page = lpa // per_page
            now = truth[page * per_page : (page + 1) * per_page]
            ours.train_page(page, entries(now))
            plain.train(page * per_page, now)
        if turn % 20 == 0:
            found = [ours.where(one) for one in range(len(truth))]
            assert all(ppa in (None, truth[one]) for one, ppa in enumerate(found))
            assert found == [plain.where(one) for one in range(len(truth))]
            assert ours.check() == []
    assert ours.taken and ours.runs


@pytest.mark.parametrize("per_page", [128, 512, 1024])
def test_a_page_in_order_is_a_line(per_page: int) -> None:
    """Consecutive VPPNs stripe over the dies, so PPAs leap; the model is exact for all of them."""
    ours, ppas = models(per_page), striped(1_000, per_page)
    ours.train_page(2, entries(ppas))
    assert [ours.where(2 * per_page + i) for i in range(per_page)] == ppas
    assert ours.exact_n == per_page
    assert all(slope == 1 for model in ours.of_page(2) for _, slope, _ in model["pieces"])


def test_every_other_lpa_is_a_line_of_half_the_slope() -> None:
    ours = models(512)
    ppas = [CHIP.ppa(500 + i // 2) if i % 2 == 0 else None for i in range(512)]
    ours.train_page(0, entries(ppas))
    assert [ours.where(i) for i in range(512)] == ppas


def test_a_page_that_lies_elsewhere_spoils_only_its_own_bit() -> None:
    ours, ppas = models(512), striped(64, 512)
    for strayed in (3, 200, 201, 430):
        ppas[strayed] = CHIP.ppa(20_000 + strayed)
    ours.train_page(0, entries(ppas))
    assert [i for i in range(512) if ours.where(i) is None] == [3, 200, 201, 430]


def test_too_few_pages_make_no_model() -> None:
    ours = models(512)
    ours.train_page(0, entries([*striped(0, 30), *[None] * 482]))
    assert ours.exact_n == ours.trained == 0
    ours.train_page(0, entries([*striped(0, 31), *[None] * 481]))
    assert ours.exact_n == 31


def test_a_longer_run_takes_the_models_place_a_shorter_one_does_not() -> None:
    """The paper's L_new > L_old, where the run lies before what the model has, so that it cannot be another piece."""
    ours = models(512)
    ours.write_run(np.arange(300, 400, dtype=np.uint32), entries(striped(0, 100)))
    ours.write_run(np.arange(0, 90, dtype=np.uint32), entries(striped(5_000, 90)))
    assert (ours.runs, ours.exact_n, ours.where(0)) == (1, 100, None)
    ours.write_run(np.arange(0, 101, dtype=np.uint32), entries(striped(5_000, 101)))
    assert (ours.runs, ours.exact_n, ours.where(300)) == (2, 101, None)
    assert ours.where(100) == CHIP.ppa(5_100)


def test_a_model_that_is_exact_for_more_stays() -> None:
    ours, ppas = models(512), striped(0, 512)
    ours.train_page(0, entries(ppas))
    rnd = random.Random(1)
    for lpa in rnd.sample(range(512), 200):
        ours.change(lpa)
        ppas[lpa] = rnd.randrange(CHIP.pages)
    taken = ours.taken
    ours.train_page(0, entries(ppas))
    assert ours.taken == taken
    assert ours.exact_n == 312


def test_what_a_model_takes() -> None:
    """52 bytes a model and 64 a filter, as a controller packs it; 1,024 entries are two models."""
    assert models(1024).sizes() == {"models": (16 * 52, 16 * 56), "filters": (16 * 64, 16 * 64)}
    assert models(128).sizes()["filters"] == (8 * 16, 8 * 64)


def test_what_there_is_not_is_refused() -> None:
    ours = models(512, 2)
    for refused in (
        lambda: ours.where(1_024),
        lambda: ours.train_page(2, entries([None])),
        lambda: ours.train_page(0, entries([None] * 513)),
        lambda: ours.write_run(np.zeros(2, np.uint32), np.zeros(1, np.uint32)),
    ):
        with pytest.raises(ValueError):
            refused()
