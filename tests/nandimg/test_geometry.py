"""The arithmetic of a chip's shape, and what no chip can be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandimg import PRESETS, Geometry, GeometryError, _vppn

MIB = 2**20


def test_what_follows_from_a_shape() -> None:
    shape = Geometry(page_bytes=4096, pages_per_block=64, blocks=40, channels=2, dies=4, lpas=2048)
    assert shape.pages == 2560
    assert shape.physical_bytes == 10 * MIB
    assert shape.logical_bytes == 8 * MIB
    assert shape.op == pytest.approx(0.25)
    assert shape.superblocks == 10


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("page_bytes", 256), ("page_bytes", 3000), ("page_bytes", 1 << 19), ("pages_per_block", 3),
        ("pages_per_block", (1 << 14) + 1), ("blocks", 7), ("channels", 0), ("dies", 0), ("oob_bytes", 15),
        ("oob_bytes", 2049), ("lpas", 0), ("lpas", 10**9), ("read_ns", -1), ("blocks", 8.0), ("dies", 3),
    ],
)  # fmt: skip
def test_a_shape_that_cannot_be_names_the_field(field: str, value: int) -> None:
    with pytest.raises(GeometryError, match=field) as caught:
        replace(Geometry(), **{field: value})
    assert "use " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_channels_divide_dies_and_dies_divide_blocks() -> None:
    with pytest.raises(GeometryError, match="multiple of channels"):
        Geometry(channels=2, dies=3, blocks=9)
    with pytest.raises(GeometryError, match="multiple of dies"):
        Geometry(channels=1, dies=3, blocks=10, lpas=1)


def test_addresses_fit_32_bits() -> None:
    with pytest.raises(GeometryError, match="32 bits"):
        Geometry(blocks=1 << 26, pages_per_block=256, lpas=1)


@given(
    st.integers(1, 4096),
    st.floats(0.01, 3.0, allow_nan=False),
    st.sampled_from([(1, 1), (2, 4), (8, 8), (3, 6)]),
    st.sampled_from([4, 64, 256]),
)
def test_sized_is_whole_superblocks_and_no_more(pages: int, op: float, parallel: tuple[int, int], per: int) -> None:
    channels, dies = parallel
    shape = Geometry.sized(pages * 4096, op=op, pages_per_block=per, channels=channels, dies=dies)
    assert shape.logical_bytes == pages * 4096
    assert shape.blocks % dies == 0
    assert shape.blocks >= 8
    needed = pages * (1 + op)
    assert shape.pages >= needed - 1e-3
    if shape.superblocks > -(-8 // dies):
        assert shape.pages - per * dies < needed


def test_sized_refuses_what_is_no_size() -> None:
    for size in (0, -4096, 5000):
        with pytest.raises(GeometryError, match="size is"):
            Geometry.sized(size)
    for op in (0.0, -0.1, 101.0):
        with pytest.raises(GeometryError, match="op is"):
            Geometry.sized(4096, op=op)


def test_presets_are_what_their_papers_say() -> None:
    assert all(name == preset.name and preset.about and preset.source for name, preset in PRESETS.items())
    slim = PRESETS["slimftl-16g"].geometry
    assert (slim.page_bytes, slim.pages_per_block, slim.blocks, slim.logical_bytes) == (8192, 256, 9011, 16 << 30)
    assert slim.op == pytest.approx(0.1, abs=0.001)
    gecko = PRESETS["geckoftl-2t"].geometry
    assert (gecko.blocks, gecko.pages_per_block, gecko.physical_bytes) == (2**22, 128, 2**41)
    assert PRESETS["oracle-1g"].geometry.lpas == 222_822
    assert PRESETS["tiny-8"].geometry.blocks == 8


def test_as_dict_makes_it_again() -> None:
    for preset in PRESETS.values():
        assert Geometry(**preset.geometry.as_dict()) == preset.geometry


SHAPES = [
    Geometry(page_bytes=512, pages_per_block=ppb, blocks=dies * rows, channels=channels, dies=dies, lpas=1)
    for ppb, rows, channels, dies in ((4, 8, 1, 1), (4, 4, 2, 4), (6, 3, 1, 5), (16, 2, 8, 64), (7, 9, 3, 12))
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_vppns_are_the_pages_in_another_order(shape: Geometry) -> None:
    """Every page has one, and all are there; the compiled functions say the same."""
    vppns = [shape.vppn(ppa) for ppa in range(shape.pages)]
    assert sorted(vppns) == list(range(shape.pages))
    assert [shape.ppa(vppn) for vppn in vppns] == list(range(shape.pages))
    out = np.zeros(shape.pages, dtype=np.uint32)
    _vppn.vppns(np.arange(shape.pages, dtype=np.uint32), shape.dies, shape.pages_per_block, out)
    assert out.tolist() == vppns
    _vppn.ppas(np.array(vppns, dtype=np.uint32), shape.dies, shape.pages_per_block, out)
    assert out.tolist() == list(range(shape.pages))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_consecutive_vppns_take_channels_then_dies_then_pages(shape: Geometry) -> None:
    """The paper's formula, term by term; a die's number says its channel and its place on it."""
    for ppa in range(shape.pages):
        block, page = divmod(ppa, shape.pages_per_block)
        die = block % shape.dies
        channel, lun = die % shape.channels, die // shape.channels
        luns = shape.dies // shape.channels
        assert shape.vppn(ppa) == (
            channel + lun * shape.channels + page * shape.channels * luns
            + block // shape.dies * shape.channels * luns * shape.pages_per_block
        )  # fmt: skip


def test_vppns_in_arrays_of_two_lengths() -> None:
    with pytest.raises(ValueError, match="3 PPAs, and room for 2 VPPNs"):
        _vppn.vppns(np.zeros(3, dtype=np.uint32), 1, 4, np.zeros(2, dtype=np.uint32))
    with pytest.raises(ValueError, match="3 VPPNs, and room for 2 PPAs"):
        _vppn.ppas(np.zeros(3, dtype=np.uint32), 1, 4, np.zeros(2, dtype=np.uint32))
