"""Checksums against published vectors and against a slow one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nandimg import checksum, page_checksum


def slow(data: bytes, seed: int = 0) -> int:
    """CRC-32C, a bit at a time."""
    crc = seed ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # these four: RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_vectors(data: bytes, crc: int) -> None:
    assert checksum(data) == crc
    assert slow(data) == crc


@given(st.binary(max_size=400))
def test_any_length_at_any_alignment(data: bytes) -> None:
    assert checksum(data) == slow(data)
    assert checksum(memoryview(b"x" + data)[1:]) == slow(data)


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_it_can_be_continued(first: bytes, second: bytes) -> None:
    assert checksum(second, checksum(first)) == checksum(first + second)


@given(st.lists(st.tuples(st.integers(0, 3 << 20), st.integers(1, 200_000), st.integers(1, 255)), max_size=6),
       st.integers(0, 2**32 - 1), st.integers(0, 7), st.integers(1, 100))  # fmt: skip
def test_a_large_table_of_runs_of_zeros(runs: list[tuple[int, int, int]], seed: int, at: int, short: int) -> None:
    """Runs of zeros of a large table are taken together; its pieces are summed byte by byte."""
    table = bytearray(3 << 20)
    for first, n, byte in runs:
        n = min(n, len(table) - first)
        table[first : first + n] = bytes([byte]) * n
    whole = memoryview(table)[at : len(table) - short]
    piece = seed
    for first in range(0, len(whole), 50_000):
        piece = checksum(whole[first : first + 50_000], piece)
    assert checksum(whole, seed) == piece


def test_a_page_sum_tells_every_bit_and_is_never_0() -> None:
    page = bytearray(range(256)) * 2
    whole = page_checksum(page)
    for bit in range(8 * len(page)):
        page[bit // 8] ^= 1 << bit % 8
        assert page_checksum(page) not in (whole, 0), f"bit {bit}"
        page[bit // 8] ^= 1 << bit % 8
    assert page_checksum(page) == whole
    assert page_checksum(bytes(512)) not in (0, page_checksum(bytes(1024)))


@given(st.binary(min_size=512, max_size=512))
def test_a_page_sum_is_the_sum_of_its_quarters_sums(page: bytes) -> None:
    lanes = [slow(page[at : at + 128]) for at in range(0, 512, 128)]
    assert page_checksum(page) == (slow(struct.pack("<4I", *lanes)) or 0xFFFFFFFF)
