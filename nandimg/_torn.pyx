# cold
"""How operations that go wrong leave the flash: torn programs and erases, spoilt, skipped and misdirected pages.

None of these states can be reached through the chip's own interface, which keeps the rules of flash.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.unistd cimport pwrite

from nandimg._chip cimport LAST_FAILED, Chip, erase_begun
from nandimg._nand cimport (
    TEAR_DATA_ONLY,
    TEAR_HEAD_GONE,
    TEAR_OOB_ONLY,
    TEAR_PREFIX,
    TEAR_PREFIX_FF,
    TEAR_PREFIX_OLD,
    TEAR_PREFIX_RANDOM,
    TEAR_SPOILT,
    TEAR_TAIL_GONE,
    TEAR_UNSTABLE,
    TEAR_WHOLE,
)

cdef enum:
    CHUNK = 256              # bytes; every page is a multiple of twice that
    SPOILT = 0x5A


cdef int tear_program(Chip chip, uint32_t block, uint32_t page, const uint8_t* data, const uint8_t* oob,
                      int shape) except -1 nogil:
    """Leave the page as an interrupted program would, in one of the program's TEAR shapes. The page is not erased any
    more. ``data`` may be NULL: then only the OOB is torn."""
    cdef uint8_t* rec = chip.record(block, page)
    cdef uint32_t epoch = chip.erases(block) + 1
    cdef uint32_t kept = chip.oob_bytes // 2
    if shape == TEAR_OOB_ONLY and data == NULL:
        shape = TEAR_WHOLE
    if chip.held != NULL:
        chip.hold_records(block, page, 1)
    chip.write_record(block, page, data, oob)
    if shape == TEAR_DATA_ONLY:
        memset(rec + 4, 0xFF, chip.stride - 4)
    elif shape != TEAR_OOB_ONLY and shape != TEAR_WHOLE:
        memset(rec + 4, SPOILT, 4)
        memset(rec + chip.record_head + kept, 0xFF, chip.oob_bytes - kept)
    memcpy(rec, &epoch, 4)
    if data != NULL:
        if shape == TEAR_DATA_ONLY or shape == TEAR_WHOLE:
            chip.write_data(block * chip.pages_per_block + page, 1, data)
        else:
            half_data(chip, block * chip.pages_per_block + page, data, shape)
    chip.next_page[block] = page + 1
    return 0


cdef int fail_program(Chip chip, uint32_t block, uint32_t page, const uint8_t* data,
                      const uint8_t* oob) except -1 nogil:
    """Leave the page as after a program that the chip reports as failed."""
    tear_program(chip, block, page, data, oob, TEAR_PREFIX)
    if chip.is_touched[block]:
        chip.is_touched[block] = LAST_FAILED
    return 0


cdef int half_data(Chip chip, uint32_t ppa, const uint8_t* data, int shape) noexcept nogil:
    """Write the first half of the data; the other half is as ``shape`` says. If the OOB is whole, the other half must
    differ from the data, or nothing would be torn: it is then inverted."""
    cdef uint8_t[CHUNK] chunk
    cdef uint64_t half = chip.page_bytes // 2, done = 0, noise = ppa + 0x9E3779B97F4A7C15ULL
    cdef uint64_t at = chip.data_at + <uint64_t> ppa * chip.page_bytes
    cdef uint32_t i
    if pwrite(chip.fd, data, half, at) < 0 or shape == TEAR_PREFIX_OLD:
        return 0
    while done < half:
        for i in range(CHUNK):
            noise ^= noise << 13
            noise ^= noise >> 7
            noise ^= noise << 17
            if shape == TEAR_PREFIX_FF:
                chunk[i] = 0xFF
            else:
                chunk[i] = <uint8_t> noise if shape == TEAR_PREFIX_RANDOM else data[half + done + i] ^ 0xFF
        if pwrite(chip.fd, chunk, CHUNK, at + half + done) < 0:
            return 0
        done += CHUNK
    return 0


cdef int tear_erase(Chip chip, uint32_t block, int shape) except -1 nogil:
    """Leave the block as an interrupted erase would; its erase count stays. From the moment the erase begins none of
    its pages counts as synced: this is recorded in the block table and in each damaged page, because a host that dies
    may keep the page and lose the table."""
    cdef uint32_t page, epoch = chip.erases(block) + 1, begun = erase_begun(epoch)
    cdef uint32_t half = chip.pages_per_block // 2
    if chip.held != NULL:
        chip.hold_records(block, 0, chip.pages_per_block)
    chip.write_entry(block, chip.erases(block), 0, chip.health(block))
    chip.is_blank[block] = 0
    for page in range(chip.pages_per_block):
        if ((shape == TEAR_HEAD_GONE and page < half) or (shape == TEAR_TAIL_GONE and page >= half)
                or shape == TEAR_UNSTABLE):
            memset(chip.record(block, page), 0, chip.stride)
            memcpy(chip.record(block, page) + 4, &begun, 4)
        elif shape == TEAR_SPOILT:
            memcpy(chip.record(block, page), &epoch, 4)
            memcpy(chip.record(block, page) + 4, &begun, 4)
    chip.next_page[block] = -1
    return 0


cdef int spoil_page(Chip chip, uint32_t block, uint32_t page) except -1 nogil:
    """Make data and OOB of a programmed page unreadable. An erased page stays erased."""
    cdef uint8_t* rec = chip.record(block, page)
    cdef uint32_t epoch
    memcpy(&epoch, rec, 4)
    if epoch == chip.erases(block) + 1:
        memset(rec + 4, SPOILT, chip.stride - 4)
    return 0


def spoil(Chip chip not None, uint32_t block, uint32_t page):
    """As ``spoil_page``, for tools and tests."""
    chip.require_open()
    if chip.unsummed:
        raise ValueError("a chip in memory that keeps no data has no checksums, so no damage would show: backend file")
    if block >= chip.blocks or page >= chip.pages_per_block:
        raise ValueError(f"block {block} page {page}: the chip has {chip.blocks} blocks of {chip.pages_per_block}")
    spoil_page(chip, block, page)


cdef int skip_page(Chip chip, uint32_t block, uint32_t page) except -1 nogil:
    """The chip reports a program of the block's next page but skips it: the page stays as the erase left it, and the
    next program goes to the page after it."""
    chip.next_page[block] = page + 1
    if not chip.is_touched[block]:
        chip.is_touched[block] = 1
        chip.touched[chip.touched_n] = block
        chip.touched_n += 1
    return 0


cdef int overwrite_page(Chip chip, uint32_t block, uint32_t page, const uint8_t* data,
                        const uint8_t* oob) except -1 nogil:
    """Put a program that was meant for another page on this one, which is already programmed; it reads as if it
    belonged there."""
    chip.write_record(block, page, data, oob)
    if data != NULL:
        chip.write_data(block * chip.pages_per_block + page, 1, data)
    return 0


def overwrite(Chip chip not None, uint32_t block, uint32_t page, const uint8_t[::1] data not None,
              const uint8_t[::1] oob not None):
    """As ``overwrite_page``, for tools and tests."""
    chip.require_open()
    if block >= chip.blocks or page >= chip.pages_per_block:
        raise ValueError(f"block {block} page {page}: the chip has {chip.blocks} blocks of {chip.pages_per_block}")
    if data.shape[0] != chip.page_bytes or oob.shape[0] != chip.oob_bytes:
        raise ValueError(f"{data.shape[0]} and {oob.shape[0]} bytes: a page has {chip.page_bytes} and {chip.oob_bytes}")
    overwrite_page(chip, block, page, &data[0], &oob[0])
