"""A reader of traces made from docs/trace-format.md alone: no line of flashfs, and no numpy."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import zstandard


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def numbers(raw: bytes, width: int) -> list[int]:
    """Entries of byte planes."""
    n = len(raw) // width
    return [int.from_bytes(raw[index::n], "little") for index in range(n)]


def read(path: Path) -> tuple[dict[str, Any], list[tuple[int, int, int, int, list[int]]], int]:
    """(header, (time, operation, offset, length, words) of each request, how many were dropped) of a whole trace."""
    raw = path.read_bytes()
    assert raw[:8] == b"FLASHTRC"
    version, header_bytes = struct.unpack_from("<II", raw, 8)
    assert (version, header_bytes) in ((1, 128), (2, 128))
    assert crc32c(raw[:124]) == struct.unpack_from("<I", raw, 124)[0]
    size, page_bytes, grain, wall_ns = struct.unpack_from("<QIIQ", raw, 16)
    name = raw[56:120].rstrip(b"\0").decode()
    header = {"size": size, "page_bytes": page_bytes, "wall_ns": wall_ns, "uuid": raw[40:56].hex(), "ftl": name}
    at, requests, dropped = 128, [], 0
    while True:
        magic, n, w, unpacked, stored, sum_of_it, first_ns, before, kind = struct.unpack_from("<4sIIIIIQQI", raw, at)
        assert magic == b"CHNK"
        assert crc32c(raw[at : at + 44]) == struct.unpack_from("<I", raw, at + 44)[0]
        contents = raw[at + 48 : at + 48 + stored]
        at += 48 + stored
        dropped += before - len(requests) - dropped
        if kind == 2:
            assert at == len(raw)
            return header, requests, dropped
        assert crc32c(contents) == sum_of_it
        if kind == 1:
            contents = zstandard.decompress(contents)
        assert len(contents) == unpacked == 21 * n + 8 * w
        words = list(struct.unpack(f"<{w}Q", contents[21 * n :]))
        columns = (numbers(contents[: 4 * n], 4), contents[4 * n : 5 * n], numbers(contents[5 * n : 13 * n], 8),
                   numbers(contents[13 * n : 21 * n], 8))  # fmt: skip
        time = first_ns
        for gap, operation, offset, length in zip(*columns, strict=True):
            time += gap
            mine = 0
            if operation == 0x81 and length:
                mine = (offset + length - 1) // grain - offset // grain + 1
            elif 5 <= operation <= (5 if version == 1 else 7):
                mine = 1
            requests.append((time, operation & 0x7F, offset, length, words[:mine]))
            del words[:mine]
        assert words == []
