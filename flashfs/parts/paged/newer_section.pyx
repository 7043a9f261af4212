# cold
"""The section ``newer`` of a checkpoint: entries of a demand-paged mapping that are newer than their translation pages.

For each page with newer entries: u32 page, u32 n, then n u16 places in the page and n u32 PPAs; or, with DENSE set in
n, a bit for each entry of the page and n u32 PPAs, whichever is shorter.
"""
import struct

import numpy

NONE = 2**32 - 1
DENSE = 1 << 31  #: in n: a bit for each entry of the page says which are there


def newer_bytes(lpas, page_bytes):
    """The most bytes that it takes: every entry is newer than its page."""
    pages = -(-lpas // (page_bytes // 4))
    return pages * (8 + page_bytes // 32) + 4 * lpas


def pack_newer(lpas, ppas, per_page):
    """The section, from arrays of u32; the LPAs must ascend."""
    out = bytearray()
    if not len(lpas):
        return out
    pages = lpas // per_page
    starts = numpy.flatnonzero(numpy.append(True, numpy.diff(pages) != 0))
    for a, b in zip(starts, [*starts[1:], len(lpas)], strict=True):
        places = lpas[a:b] % per_page
        n = int(b - a)
        if 2 * n <= per_page // 8:
            out += struct.pack("<II", int(pages[a]), n) + places.astype("<u2").tobytes()
        else:
            bits = numpy.zeros(per_page, numpy.uint8)
            bits[places] = 1
            out += struct.pack("<II", int(pages[a]), n | DENSE) + numpy.packbits(bits, bitorder="little").tobytes()
        out += ppas[a:b].astype("<u4").tobytes()
    return out


def unpack_newer(saved, per_page, lpas, chip_pages):
    """Yields (LPAs, PPAs), arrays of u32, for each translation page in turn, of a device of ``lpas`` LPAs on a chip of
    ``chip_pages`` pages. ValueError if the section is impossible."""
    at, end, view = 0, -1, memoryview(saved).cast("B")
    pages = -(-lpas // per_page)
    while at < len(view):
        if at + 8 > len(view):
            raise ValueError(f"newer section of {len(view)} bytes: it ends within a record")
        page, n = struct.unpack_from("<II", view, at)
        dense, n = n & DENSE, n & ~DENSE
        size = 8 + (per_page // 8 if dense else 2 * n) + 4 * n
        if not end < page < pages or not 0 < n <= per_page or at + size > len(view):
            raise ValueError(f"newer section: page {page} with {n} entries")
        if dense:
            bits = numpy.frombuffer(view[at + 8 : at + 8 + per_page // 8], numpy.uint8)
            places = numpy.flatnonzero(numpy.unpackbits(bits, bitorder="little"))
        else:
            places = numpy.frombuffer(view[at + 8 : at + 8 + 2 * n], "<u2").astype(numpy.int64)
        entries = min(per_page, lpas - page * per_page)
        if len(places) != n or (numpy.diff(places) <= 0).any() or int(places[n - 1]) >= entries:
            raise ValueError(f"newer section: page {page} with {n} entries, and places of others")
        values = numpy.frombuffer(view[at + size - 4 * n : at + size], "<u4")
        known = values[values != NONE]
        if len(known) and int(known.max()) >= chip_pages:
            raise ValueError(f"newer section: page {page} names PPA {int(known.max())}, which the chip has not")
        yield (places + page * per_page).astype(numpy.uint32), values
        end = page
        at += size
