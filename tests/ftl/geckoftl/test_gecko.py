"""Logarithmic Gecko by itself (flashfs/ftl/geckoftl/runs.pyx), against a plain bitmap, whatever the geometry."""

from __future__ import annotations

import random
from typing import Any

import pytest
from gecko_schemes import BESIDE, registered
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashfs.device import Device
from flashfs.errors import BindError
from flashfs.ftl.geckoftl.runs import entries_a_page, largest_run
from nandimg import Geometry

PLAIN = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def gecko_on(geometry: Geometry, **options: int) -> tuple[Device, Any]:
    """A device of the page map, and the Gecko beside it."""
    with registered(BESIDE) as name:
        device = Device.memory(geometry, name, options={"buffer": "0", **{k: str(v) for k, v in options.items()}})
    return device, device.ssd.validity.gecko


def geometry_of(pages_per_block: int, blocks: int, page_bytes: int = 512) -> Geometry:
    return Geometry(page_bytes=page_bytes, pages_per_block=pages_per_block, blocks=blocks, dies=1, oob_bytes=64,
                    lpas=pages_per_block * blocks // 4)  # fmt: skip


class Plain:
    """The same as a set of pages."""

    def __init__(self, gecko: Any) -> None:
        self.gecko = gecko
        self.invalid: set[tuple[int, int]] = set()

    def invalidate(self, block: int, page: int) -> None:
        self.gecko.invalidate([(block, page)])
        self.invalid.add((block, page))

    def erase(self, block: int) -> None:
        self.gecko.erase(block)
        self.invalid = {one for one in self.invalid if one[0] != block}

    def must_agree(self, blocks: range) -> None:
        for block in blocks:
            assert self.gecko.invalid_in(block) == sorted(page for of, page in self.invalid if of == block), block
        assert self.gecko.check() == []


@PLAIN
@given(
    st.sampled_from([4, 7, 16, 33, 64, 128, 200]), st.integers(24, 90), st.integers(0, 130), st.integers(2, 10),
    st.booleans(), st.integers(0, 2**32),
)  # fmt: skip
def test_says_what_a_bitmap_says(
    pages_per_block: int, blocks: int, parts: int, ratio: int, multiway: bool, seed: int
) -> None:
    geometry = geometry_of(pages_per_block, max(blocks, 1200 // pages_per_block))
    try:
        device, gecko = gecko_on(geometry, parts=parts, ratio=ratio, multiway=int(multiway))
    except BindError:
        return  # the chip has no room for its pages
    plain, rnd = Plain(gecko), random.Random(seed)
    for _ in range(1500):
        block = rnd.randrange(geometry.blocks) if rnd.random() < 0.8 else rnd.randrange(4)
        if rnd.random() < 0.03:
            plain.erase(block)
        else:
            plain.invalidate(block, rnd.randrange(pages_per_block))
        if rnd.random() < 0.002:
            gecko.flush_now()
    plain.must_agree(range(geometry.blocks))
    model = largest_run(geometry, parts)
    most = (1 + 1 / ratio) * 2 * model + gecko.runs_n  # Appendix B: 2 K S / V; and a page of each run that is not full
    assert sum(run["pages"] for run in gecko.run_list()) <= most
    device.close(clean=False)


def test_a_block_is_forgotten_with_its_erase_flag_through_merges() -> None:
    device, gecko = gecko_on(geometry_of(16, 200))
    plain = Plain(gecko)
    for turn in range(40):
        for block in range(0, 200, 3):
            plain.invalidate(block, turn % 16)
        plain.erase(3 * (turn % 60))
        gecko.flush_now()
        plain.must_agree(range(0, 200, 3))
    assert gecko.merges > 20
    device.close(clean=False)


def test_an_erase_takes_one_entry_however_many_parts_there_are() -> None:
    device, gecko = gecko_on(geometry_of(128, 30), parts=8)
    for page in range(128):
        gecko.invalidate([(5, page)])
    assert gecko.buffer.n == 8
    gecko.erase(5)
    assert gecko.buffer.n == 1
    device.close(clean=False)


def test_a_query_reads_a_page_a_run_and_ends_at_the_erase_flag() -> None:
    device, gecko = gecko_on(geometry_of(16, 100))
    for block in range(100):
        gecko.invalidate([(block, 1)])
    gecko.flush_now()
    gecko.invalidate([(7, 2)])
    gecko.flush_now()
    assert gecko.runs_n == 2
    before = gecko.store.reads
    assert gecko.invalid_in(7) == [1, 2]
    assert gecko.store.reads - before == 2
    gecko.erase(7)
    before = gecko.store.reads
    assert gecko.invalid_in(7) == []
    assert gecko.store.reads == before
    device.close(clean=False)


def test_levels_are_powers_of_the_ratio_and_one_run_each() -> None:
    for ratio in (2, 3, 5):
        device, gecko = gecko_on(geometry_of(16, 2000), ratio=ratio)
        rnd = random.Random(ratio)
        for _ in range(9000):
            gecko.invalidate([(rnd.randrange(2000), rnd.randrange(16))])
            assert gecko.check() == []
        levels = [run["level"] for run in gecko.run_list()]
        assert levels == sorted(set(levels))
        assert all(ratio ** run["level"] <= run["pages"] < ratio ** (run["level"] + 1) for run in gecko.run_list())
        device.close(clean=False)


def test_a_merge_of_all_reached_runs_programs_less_than_two_at_a_time() -> None:
    """Appendix A."""
    programs = {}
    for multiway in (0, 1):
        device, gecko = gecko_on(geometry_of(16, 2000), multiway=multiway)
        rnd = random.Random(1)
        for _ in range(20_000):
            gecko.invalidate([(rnd.randrange(2000), rnd.randrange(16))])
        programs[multiway] = gecko.store.programs
        device.close(clean=False)
    assert programs[1] < 0.8 * programs[0]


def test_what_is_read_and_programmed_is_charged_to_validity() -> None:
    device, gecko = gecko_on(geometry_of(16, 400))
    rnd = random.Random(1)
    for _ in range(3000):
        gecko.invalidate([(rnd.randrange(400), rnd.randrange(16))])
    for block in range(400):
        gecko.invalid_in(block)
    _, by_cause = device.ssd.operations()
    assert by_cause["program"]["validity"] == gecko.store.programs > 50
    assert by_cause["read"]["validity"] == gecko.store.reads > 400
    device.close(clean=False)


def test_the_buffer_is_one_page_of_the_paper_s_entries() -> None:
    geometry = Geometry(page_bytes=4096, pages_per_block=128, blocks=64, dies=1, oob_bytes=128, lpas=4000)
    assert entries_a_page(geometry) == (4096 - 32 - 96) // 8 == 496  # the paper's 512, less preamble and postamble
    assert entries_a_page(geometry, 1) == (4096 - 32 - 96) // 20


def test_keys_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BindError, match="holds no entry"):
        gecko_on(geometry_of(8192, 24), parts=1)
