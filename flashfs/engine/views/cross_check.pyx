# cold
# cython: wraparound=True
"""The invariants between map, OOB and validity, checked page by page, for `flashfs fsck` and tests."""
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from flashfs.engine.blocks.pool cimport CAUSE_RECOVERY, FLAG_LOST, KIND_PAD, KIND_USER, NONE, Oob, read_oob
from flashfs.engine.contract.engine cimport KINDS
from flashfs.engine.contract.owner cimport LIVE, Owner
from flashfs.engine.device.ssd cimport Ssd
from nandimg._nand cimport PAGE_OK

cdef enum:
    TOLD = 1024              # blocks between two reports of progress


def cross_check(Ssd ssd, uint32_t most=100, progress=None):
    """One line per broken invariant (at most ``most``): every live page is whole; a user page names an LPA that exists,
    has a sequence number not above the device's, and is where the mapping has its LPA; other pages are known to their
    owner; and the mapping names as many pages as are live (with a late store: not more). Reads the spare area of every
    live page. ``progress`` gets the share of the blocks that is done, now and then."""
    cdef uint32_t block, i, n, ppa, live = 0, mapped
    cdef uint32_t* pages = <uint32_t*> malloc(ssd.pages_per_block * sizeof(uint32_t))
    cdef uint8_t status = 0
    cdef Oob oob
    # first, because look-ups and validity queries may repair them
    problems = ssd.mapping.problems_in_flash() + ssd.validity.problems_in_flash()
    cdef const uint8_t[::1] named = named_bits(ssd) if ssd.validity.late else bytes(1)
    if pages == NULL:
        raise MemoryError
    try:
        for block in range(ssd.nand.blocks):
            if progress is not None and block % TOLD == 0:
                progress(float(block) / ssd.nand.blocks)
            n = ssd.validity.pages(block, pages)
            live += n
            for i in range(n):
                if len(problems) >= most:
                    return [*problems, "more was not looked for"]
                ppa = block * ssd.pages_per_block + pages[i]
                read_oob(ssd.nand, ppa, ssd.read_oobs, &oob, &status, CAUSE_RECOVERY, 0)
                if (status != PAGE_OK or oob.kind == KIND_PAD) and ssd.validity.late and (
                        not named[ppa >> 3] >> (ppa & 7) & 1):
                    continue                # superseded, or padding: possible with a late store
                if status != PAGE_OK:
                    problems.append(f"PPA {ppa}: live but {'erased' if status == 0 else 'torn'}")
                elif oob.kind != KIND_USER and oob.kind < KINDS and ssd.owner_at[oob.kind] != NULL:
                    (<Owner> ssd.owner_at[oob.kind]).confirm(&oob.lpa, &ppa, 1, &status)
                    if status != LIVE:
                        problems.append(f"PPA {ppa}: live as page {oob.lpa} of kind {oob.kind}, unknown to its owner")
                elif oob.kind != KIND_USER or oob.lpa >= ssd.lpas:
                    problems.append(f"PPA {ppa}: live but kind {oob.kind}, LPA {oob.lpa}")
                elif oob.flags & FLAG_LOST:
                    problems.append(f"LPA {oob.lpa}: lost; its page could not be read when it was moved")
                elif oob.seq > ssd.seq:
                    problems.append(f"PPA {ppa}: sequence number {oob.seq} is ahead of the device's {ssd.seq}")
                else:
                    found = ssd.mapping.locate(oob.lpa)
                    if found != ppa and (not ssd.validity.late or named[ppa >> 3] >> (ppa & 7) & 1) and (
                            not ssd.mapping.maps_to(oob.lpa, ppa)):
                        where = "nowhere" if found == NONE else f"at PPA {found}"
                        problems.append(f"PPA {ppa}: live with LPA {oob.lpa}, which the mapping has {where}")
    finally:
        free(pages)
    mapped = places(ssd) + len(ssd.owned_pages())
    if live < mapped if ssd.validity.late else live != mapped:
        problems.append(f"the mapping holds {mapped} LPAs and translation pages, validity {live} live pages")
    return problems


def named_bits(Ssd ssd):
    """One bit per page of the chip: whether an LPA maps to it."""
    cdef uint32_t lpa = next_of(ssd, 0), ppa
    bits = bytearray(ssd.nand.blocks * ssd.pages_per_block // 8 + 1)
    cdef uint8_t[::1] named = bits
    while lpa < ssd.lpas:
        ppa = ssd.mapping.locate(lpa)
        if ppa != NONE:
            named[ppa >> 3] |= 1 << (ppa & 7)
        lpa = next_of(ssd, lpa + 1)
    return bits


cdef uint32_t next_of(Ssd ssd, uint32_t lpa) noexcept nogil:
    """The first LPA from ``lpa`` on that may be mapped: on a large device most LPAs may be unmapped."""
    return ssd.mapping.next_named(lpa, ssd.lpas)


cdef uint32_t places(Ssd ssd) except? 0xFFFFFFFF:
    """The number of pages that LPAs map to: the number of mapped LPAs, unless several may share one."""
    cdef uint32_t lpa = next_of(ssd, 0), ppa, n = 0
    seen = bytearray(ssd.nand.blocks * ssd.pages_per_block // 8 + 1 if ssd.mapping.sharing is not None else 1)
    cdef uint8_t[::1] bits = seen
    while lpa < ssd.lpas:
        ppa = ssd.mapping.locate(lpa)
        if ppa != NONE and ssd.mapping.sharing is None:
            n += 1
        elif ppa != NONE and not bits[ppa >> 3] >> (ppa & 7) & 1:
            bits[ppa >> 3] |= 1 << (ppa & 7)
            n += 1
        lpa = next_of(ssd, lpa + 1)
    return n
