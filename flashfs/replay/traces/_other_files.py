"""Recognises common files that are not traces by how they begin, and says how to turn each into one.

No trace, text or binary, begins like one of these; if the numbers of a first record could, more is checked.
"""

from __future__ import annotations

import numpy as np

UNPACK = "unpack it"
OBJECTS = "it has numbers of objects, and no reads and writes of addresses: use the trace that it was made from"
BLKTRACE = "a binary blktrace: blkparse makes text of it"
MAGICS = (
    (b"PK\x03\x04", f"a zip: {UNPACK}"),
    (b"7z\xbc\xaf\x27\x1c", f"a 7z archive: {UNPACK}"),
    (b"Rar!\x1a\x07", f"a rar archive: {UNPACK}"),
    (b"\x04\x22\x4d\x18", f"an lz4 file: {UNPACK}"),
    (b"\x89LZO\x00", f"an lzop file: {UNPACK}"),
    (b"LZIP\x01", f"an lzip file: {UNPACK}"),
    (b"\x1f\x9d\x90", f"a .Z file: {UNPACK}"),
    (b"PERFILE2", "a perf.data: `perf script` makes text of it"),
    (b"\x17\x08\x44tracing", "a trace.dat: `trace-cmd report` makes text of it"),
    (b"PAR1", "a parquet file: write it as csv"),
    (b"SQLite format 3\x00", "an SQLite database: write its table as csv"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file: write its table as csv"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel file: write it as csv"),
    *((magic, BLKTRACE) for magic in (b"\x07tae", b"\x08tae", b"eat\x07", b"eat\x08")),
    (b"\xf0\xde\xbc\x9a\x78\x56\x34\x12", f"an lcs trace of libCacheSim: {OBJECTS}"),
)
LZMA = f"an .lzma file: {UNPACK}"
WIDE = "{} text: `iconv -f {} -t UTF-8` makes a text of it that can be read"
SAMPLE_BYTES = 64
ORACLE = np.dtype([("time", "<u4"), ("object", "<u8"), ("bytes", "<u4"), ("next", "<i8")])
FEWEST_RECORDS = 8  #: of oracleGeneral: fewer could match by chance
NEXT_MAX = 1 << 40  #: largest plausible number of a request


def named(head: bytes) -> str | None:
    """What kind of file begins with ``head``, and what to do with it; None if it may be a trace."""
    for magic, what in MAGICS:
        if head.startswith(magic):
            return what
    if _is_lzma(head):
        return LZMA
    if wide := _wide(head):
        return WIDE.format(wide, wide)
    if _is_oracle_general(head):
        return f"an oracleGeneral trace of libCacheSim: {OBJECTS}"
    return None


def _is_lzma(head: bytes) -> bool:
    """Whether a header has the usual properties, a dictionary of a power of two, and a size that is unknown or
    small."""
    dictionary = int.from_bytes(head[1:5], "little")
    size = head[5:13]
    small = len(size) == 8 and size[5:] == bytes(3)
    return head[:1] == b"\x5d" and dictionary.bit_count() == 1 and (small or size == b"\xff" * 8)


def _wide(head: bytes) -> str | None:
    """The name UTF-16 or UTF-32 if the text is encoded so, with or without a byte order mark; else None."""
    for name, unit in (("UTF-32", 4), ("UTF-16", 2)):
        mark = "\ufeff".encode(f"{name}-LE")
        text = head[unit:] if head.startswith((mark, mark[::-1])) else head
        text = text[: min(SAMPLE_BYTES, len(text) // unit * unit)]
        for low in (0, unit - 1):
            zeros = [byte for at, byte in enumerate(text) if at % unit != low]
            letters = text[low::unit].translate(None, b"\t\r\n")
            if letters and not any(zeros) and letters.isascii() and letters.decode("ascii").isprintable():
                return name
    return None


def _is_oracle_general(head: bytes) -> bool:
    """Whether it is records of 24 bytes: times that rise, objects, sizes, and the number of the next request of the
    same object, or -1."""
    n = len(head) // ORACLE.itemsize
    if n < FEWEST_RECORDS:
        return False
    found = np.frombuffer(head, ORACLE, n)
    follows = (found["next"] > np.arange(n)) & (found["next"] < NEXT_MAX)
    last = (found["next"] == -1) | (found["next"] == np.iinfo(np.int64).max)
    return bool((follows | last).all() and (found["time"][1:] >= found["time"][:-1]).all())
