# cold
"""Consistency check of a loaded checkpoint, before anything relies on it."""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

from flashfs.engine.blocks.pool cimport STATE_BAD, STATE_CLOSED, STATE_OPEN
from flashfs.engine.device.ssd cimport Ssd


def admit(Ssd ssd, log, bint known=True):
    """Check mapping, validity and pool of a loaded checkpoint against each other, and against the blocks ``log`` that
    hold the checkpoint itself. It was whole, but another program may have written it. Reads no flash. ValueError names
    the first contradiction. Unless it is ``known`` which pages are live, the mapping is not checked."""
    cdef uint32_t block, n
    cdef uint32_t* pages = <uint32_t*> malloc(ssd.pages_per_block * sizeof(uint32_t))
    if pages == NULL:
        raise MemoryError
    try:
        for block in range(ssd.nand.blocks):
            n = ssd.validity.count(block)
            if n == 0:
                continue
            if (ssd.pool.state[block] != STATE_OPEN and ssd.pool.state[block] != STATE_CLOSED
                    and ssd.pool.state[block] != STATE_BAD):  # marked bad outside this device: still readable
                raise ValueError(f"block {block} holds {n} live pages and is neither open nor closed")
            if ssd.pool.state[block] == STATE_OPEN and ssd.validity.in_flash:
                if n > ssd.pool.next_page[block]:
                    raise ValueError(f"block {block}: {n} pages live, and {ssd.pool.next_page[block]} are programmed")
                continue
            if ssd.pool.state[block] != STATE_OPEN:
                continue
            n = ssd.validity.pages(block, pages)
            if n and pages[n - 1] >= ssd.pool.next_page[block]:
                raise ValueError(f"block {block}: page {pages[n - 1]} is live and not programmed yet")
    finally:
        free(pages)
    for block in log:
        if ssd.validity.count(block) or ssd.pool.state[block] == STATE_OPEN:
            raise ValueError(f"block {block} holds the checkpoint, and the checkpoint says it is in use")
    if known:
        ssd.mapping.verify(False)
