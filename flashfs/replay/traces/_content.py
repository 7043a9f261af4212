"""The content of a trace file, plain or packed as gz, bz2, xz or zst, a piece at a time.

One loop serves all packings, because their decompressors have the same interface and say when a stream is complete; not
all of the libraries' file objects distinguish a stream that ends early from a complete one.
"""

from __future__ import annotations

import bz2
import hashlib
import lzma
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from flashfs.replay.request_source import TraceError

PIECE_BYTES = 1 << 18  #: of the file, read at a time
HEAD_BYTES = 1 << 16  #: of content: the sample from which the format is detected
CHUNK_BYTES = 8 << 20  #: of content: what a parser gets at a time
LINE_BYTES_MAX = 1 << 20  #: a longer line is noise, and only its beginning is kept
LINE_BYTES_KEPT = 256
NOISE = b"\x00"  #: put before the rest of such a line, so that it cannot be read as a request
MARK = b"\xef\xbb\xbf"  #: UTF-8's byte order mark: exporters write it, and `cat` may leave it in the middle of a file
MARKS = re.compile(rb"(?m)^(?:\xef\xbb\xbf)+")

#: packing by its first bytes: name, what makes a decompressor, what it raises for damage
PACKINGS: dict[bytes, tuple[str, Callable[[], Any], type[Exception]]] = {
    b"\x1f\x8b": ("gz", lambda: zlib.decompressobj(wbits=31), zlib.error),
    b"BZh": ("bz2", bz2.BZ2Decompressor, OSError),
    b"\xfd7zXZ\x00": ("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), lzma.LZMAError),
    b"\x28\xb5\x2f\xfd": (
        "zst",
        lambda: zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj(),
        zstandard.ZstdError,
    ),
}


class Content:
    """One pass over the content of ``path``. ``cut_short`` is true after it if a packed stream ends early."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_short = False
        self.packing = "plain"

    def pieces(self) -> Iterator[bytes]:
        """The content in pieces of any size. TraceError if the packed stream is damaged."""
        with self.path.open("rb") as file:
            head = file.read(6)
            file.seek(0)
            for magic, (name, make, damage) in PACKINGS.items():
                if head.startswith(magic):
                    self.packing = name
                    yield from self._unpack(file, name, make, damage)
                    return
            while piece := file.read(PIECE_BYTES):
                yield piece

    def _unpack(self, file: BinaryIO, name: str, make: Callable[[], Any], damage: type[Exception]) -> Iterator[bytes]:
        """Unpack one stream after another: `cat a.gz b.gz` is a gz file, and parallel compressors write many."""
        # zstd does not limit the output of a call, so it is fed less
        piece_bytes = PIECE_BYTES // 16 if name == "zst" else PIECE_BYTES
        one, fed = make(), False
        while piece := file.read(piece_bytes):
            while piece:
                if not fed and not piece.strip(b"\x00"):
                    break  # padding between streams, as tape archives leave it
                try:
                    out = one.decompress(piece)
                except damage as error:
                    why = " ".join(str(error).split())
                    raise TraceError(f"{self.path}: the {name} stream is damaged: {why}") from None
                fed = True
                if out:
                    yield out
                piece = b""
                if one.eof:
                    piece, one, fed = one.unused_data, make(), False
        self.cut_short = fed

    def chunks(self) -> Iterator[bytes]:
        """The content in chunks of about CHUNK_BYTES."""
        held: list[bytes] = []
        have = 0
        for piece in self.pieces():
            held.append(piece)
            have += len(piece)
            if have >= CHUNK_BYTES:
                yield b"".join(held)
                held, have = [], 0
        if have:
            yield b"".join(held)

    def lines(self) -> Iterator[bytes]:
        """The content, a text, in chunks of whole lines without byte order marks, each line ending in a newline, the
        last one too."""
        rest, cr_ends = b"", ends_in_cr(self.head(HEAD_BYTES))
        for chunk in self.chunks():
            if cr_ends:
                chunk = chunk.replace(b"\r", b"\n")
            cut = chunk.rfind(b"\n") + 1
            if cut:
                yield unmarked(shorter(rest + chunk[:cut]))
                rest = chunk[cut:]
            else:
                rest += chunk
            if len(rest) > LINE_BYTES_MAX:
                # The beginning is enough for a complaint; the rest of the line is cut off when its end is found
                rest = rest[:LINE_BYTES_MAX] + NOISE
        if rest:
            yield unmarked(shorter(rest + b"\n"))

    def head(self, n: int) -> bytes:
        """The first ``n`` bytes, or all there is."""
        out = b""
        for piece in self.pieces():
            out += piece
            if len(out) >= n:
                break
        return out[:n]

    def sha256(self) -> str:
        """The hash of the whole content; of a stream that ends early, of what there is."""
        found = hashlib.sha256()
        for piece in self.pieces():
            found.update(piece)
        return found.hexdigest()


def check_file(path: Path) -> None:
    """TraceError for a file that cannot be read repeatedly from its beginning; OSError if it does not exist."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise TraceError(f"{path}: a directory; use a trace file")
    if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a character device"
        raise TraceError(f"{path}: {kind}: a trace is read more than once and has to be a file: write it to one first")


def shorter(chunk: bytes) -> bytes:
    """The chunk with its first line shortened if too long: only that line can span several chunks."""
    end = chunk.index(b"\n")
    if end <= LINE_BYTES_MAX:
        return chunk
    return NOISE + chunk[:LINE_BYTES_KEPT] + chunk[end:]


def ends_in_cr(head: bytes) -> bool:
    """Whether a CR alone ends the lines of a text that begins like this."""
    return b"\r" in head and b"\n" not in head


def unmarked(text: bytes) -> bytes:
    """A text without the byte order marks at the beginning of its lines."""
    return MARKS.sub(b"", text) if MARK in text else text


def text_of(head: bytes) -> bytes:
    """The beginning of a text as ``Content.lines`` has it."""
    return unmarked(head.replace(b"\r", b"\n") if ends_in_cr(head) else head)
