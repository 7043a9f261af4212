"""TRIM from a file system, a loop device or `disk` itself: counted, never moved by cleaning, zeros after a kill."""

from __future__ import annotations

import errno
import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mounting import refused
from schemes import rotated
from stand import KEEP, PAGE, ZERO, Stand, extents, fallocate, lacks, punch, run, same

from flashfs import inspect
from flashfs.ftl import SCHEMES
from flashfs.inspect import Spare

pytestmark = pytest.mark.mount
Stands = Callable[..., Stand]
MIB = 1 << 20
SIZES = {"ext4": 64, "xfs": 300, "btrfs": 144}  # MiB: as small as each goes
FTLS = list(SCHEMES)
#: each scheme once, and each file system; of the file systems' first turn `make test` runs one each
PAIRS = [
    pytest.param([*SIZES][i % len(SIZES)], ftl, marks=pytest.mark.slow if i >= len(SIZES) else ())
    for i, ftl in enumerate(FTLS)
]


@pytest.fixture
def files(stand: Stands, need_loop: None, request: pytest.FixtureRequest) -> Callable[..., Stand]:
    """``files(fs, ftl)``: a stand with a loop device, or a skip by name."""

    def start(fs: str, ftl: str, *programs: str) -> Stand:
        if (missing := lacks(fs, *programs)) is not None:
            pytest.skip(missing)
        one = stand(SIZES[fs], ftl)
        one.attach()
        return one

    return start


def fill(path: Path, size: int, seed: int) -> bytes:
    """Random bytes, durably: none of them is mistaken for what was trimmed."""
    data = random.Random(seed).randbytes(size)
    with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
        for at in range(0, size, MIB):
            file.write(data[at : at + MIB])
        os.fsync(file.fileno())
    return data


def pages_of(ranges: list[tuple[int, int]]) -> int:
    return sum(end - first for first, end in ranges) // PAGE


def content(disk: Path, ranges: list[tuple[int, int]]) -> list[bytes]:
    with disk.open("rb", buffering=0) as file:
        return [os.pread(file.fileno(), end - first, first) for first, end in ranges]


# --- through a file system


def fstrim(one: Stand, before: int) -> tuple[int, int]:
    """Bytes that the file system says it has trimmed, and pages that the device has heard of beyond ``before``."""
    said = run("fstrim", "-v", one.root)
    return int(re.findall(r"\((\d+) bytes\)", said)[0]), one.stats()["host"]["trim"] - before


@pytest.mark.parametrize(("fs", "ftl"), PAIRS)
def test_fstrim_survives_a_kill(files: Stands, fs: str, ftl: str) -> None:
    one = files(fs, ftl, "fstrim")
    one.make(fs)
    one.mount_files(fs, "noatime,nodiscard")
    stays = fill(one.root / "stays", 4 * MIB, 1)
    fill(one.root / "goes", 24 * MIB, 2)
    before = extents(one.disk)
    most = 24 * MIB // PAGE * 0.99  # of the file's pages: in the rest a journal may lie now
    (one.root / "goes").unlink()
    run("sync", "-f", one.root)
    for _ in range(20):
        trims, free = one.stats()["host"]["trim"], one.free_bytes()
        trimmed, pages = fstrim(one, trims)
        gone = pages_of(extents(one.disk)) - pages_of(before)
        # xfs frees a deleted file's blocks in the background, and passes over an extent of which a part is on its way
        if fs != "xfs" or (gone >= most and pages * PAGE >= 0.9 * free):
            break
        time.sleep(1)
        run("sync", "-f", one.root)
    assert trimmed >= pages * PAGE >= 24 * MIB
    if fs != "xfs":  # which tells how much it was asked for
        assert trimmed == pages * PAGE
    if fs == "ext4":
        assert pages * PAGE == pytest.approx(free, rel=0.1)
    if fs == "xfs":  # which keeps some of what is free to itself, how much depends on its age, and trims that too
        assert 0.9 * free <= pages * PAGE <= SIZES[fs] * MIB - len(stays)
    assert gone >= most
    one.umount_files()
    one.flush()
    holes, solid = extents(one.disk), extents(one.disk, os.SEEK_DATA)
    data = content(one.disk, solid)
    one.kill()
    one.mount()
    assert extents(one.disk) == holes
    assert not any(any(part) for part in content(one.disk, holes))
    same(b"".join(content(one.disk, solid)), b"".join(data))
    one.attach()
    one.check_files(fs)
    one.mount_files(fs)
    same((one.root / "stays").read_bytes(), stays)
    one.unmount()
    assert inspect.problems(one.image, True) == []


@pytest.mark.parametrize(("fs", "ftl"), PAIRS)
def test_discard_mount(files: Stands, fs: str, ftl: str) -> None:
    """`-o discard`: deleted files are trimmed without fstrim."""
    one = files(fs, ftl)
    one.make(fs)
    one.mount_files(fs, "discard=sync" if fs == "btrfs" else "discard")
    fill(one.root / "goes", 16 * MIB, 3)
    trims = one.stats()["host"]["trim"]
    (one.root / "goes").unlink()
    run("sync", "-f", one.root)
    one.umount_files()
    assert one.stats()["host"]["trim"] - trims >= 16 * MIB // PAGE
    one.check_files(fs)
    one.unmount()
    assert inspect.problems(one.image) == []


@pytest.mark.parametrize(("fs", "ftl"), PAIRS)
def test_mkfs_discards(files: Stands, fs: str, ftl: str) -> None:
    one = files(fs, ftl)
    with one.disk.open("r+b", buffering=0) as disk:
        for _ in range(20):
            disk.write(b"\xa5" * MIB)
    one.make(fs)
    assert one.stats()["host"]["trim"] >= SIZES[fs] * MIB // PAGE * 0.95
    one.flush()
    assert pages_of(extents(one.disk, os.SEEK_DATA)) < 20 * MIB // PAGE  # of the filling nothing is left
    one.unmount()


@pytest.mark.parametrize("ftl", rotated(4))
def test_trimming_lowers_write_amplification(files: Stands, ftl: str) -> None:
    """A database's random writes beside deleted files, on a disk that was full once: with fstrim and without."""
    waf = {}
    for trims in (False, True):
        one = files("ext4", ftl, "fstrim")
        fill(one.disk, SIZES["ext4"] * MIB, 4)
        one.make("ext4", "-E", "nodiscard")
        one.mount_files("ext4", "noatime,nodiscard")
        fill(one.root / "database", 20 * MIB, 5)
        fill(one.root / "goes", 28 * MIB, 6)
        (one.root / "goes").unlink()
        run("sync", "-f", one.root)
        if trims:
            run("fstrim", one.root)
        before, rnd = one.stats(), random.Random(7)
        fd = os.open(one.root / "database", os.O_RDWR)
        for _ in range(20):
            for _ in range(1000):
                os.pwrite(fd, rnd.randbytes(PAGE), rnd.randrange(20 * MIB // PAGE) * PAGE)
            os.fsync(fd)
        os.close(fd)
        after = one.stats()
        host = after["host"]["write"] - before["host"]["write"]
        waf[trims] = (after["nand"]["program"] - before["nand"]["program"]) / host
        one.unmount()
    print(f"write amplification of {ftl}: {waf[False]:.3f}, with fstrim {waf[True]:.3f}")
    # data blocks of deleted files are never merged, with trims or without
    assert waf[True] < (1.02 if SCHEMES[ftl].merges else 0.9) * waf[False]


# --- through a loop device


@pytest.mark.parametrize("ftl", rotated(5))
def test_blkdiscard(files: Stands, ftl: str) -> None:
    """A range, zeroing of a range (-z), and the whole device; each counted to the page."""
    one = files("ext4", ftl, "blkdiscard")
    data = bytearray(fill(one.disk, 64 * MIB, 6))
    assert one.loop is not None
    for options, offset, length in (([], 5 * MIB, 3 * MIB), (["-z"], 20 * MIB + PAGE, 7 * PAGE)):
        before = one.stats()["host"]
        run("blkdiscard", "-f", *options, "-o", offset, "-l", length, one.loop)
        after = one.stats()["host"]
        assert (after["trim"] - before["trim"], after["write"]) == (length // PAGE, before["write"])
        data[offset : offset + length] = bytes(length)
    same(one.disk.read_bytes(), data)
    one.flush()
    one.kill()
    one.mount()
    same(one.disk.read_bytes(), data)
    one.attach()
    before = one.stats()["host"]["trim"]
    run("blkdiscard", "-f", one.loop)
    assert one.stats()["host"]["trim"] - before == 64 * MIB // PAGE
    one.flush()
    assert extents(one.disk) == [(0, 64 * MIB)]
    one.detach()
    one.kill()
    one.mount()
    assert extents(one.disk) == [(0, 64 * MIB)]
    assert not any(one.disk.read_bytes())
    one.unmount()


# --- on `disk` itself


@pytest.mark.parametrize("ftl", rotated(6))
def test_any_alignment(stand: Stands, ftl: str) -> None:
    """Punched or zeroed, of any offset and length: the range reads zeros, its neighbours keep their bytes, and what
    was whole pages is holes."""
    one, rnd = stand(64, ftl), random.Random(7)
    data = bytearray(fill(one.disk, 64 * MIB, 7))
    fd = os.open(one.disk, os.O_RDWR)
    try:
        for turn in range(300):
            length = rnd.choice((1, 511, 512, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 7, 40_000))
            offset = rnd.randrange(len(data) - length)
            fallocate(fd, rnd.choice((KEEP | 0x02, ZERO, ZERO | KEEP)), offset, length)
            data[offset : offset + length] = bytes(length)
            around = slice(max(0, offset - 5000), offset + length + 5000)
            found = os.pread(fd, around.stop - around.start, around.start)
            same(found, data[around], f"turn {turn}: {offset}+{length}")
            first, last = -(-offset // PAGE) * PAGE, (offset + length) // PAGE * PAGE
            if last > first:
                assert os.lseek(fd, first, os.SEEK_HOLE) == first
                assert os.lseek(fd, last - 1, os.SEEK_HOLE) == last - 1
        os.fsync(fd)
    finally:
        os.close(fd)
    one.kill()
    one.mount()
    same(one.disk.read_bytes(), data)
    one.unmount()
    assert inspect.problems(one.image, True) == []


def test_the_tools_of_people(stand: Stands) -> None:
    """`fallocate -p` and `-z`; and beyond the end, where nothing is."""
    one = stand(16, "pagemap")
    data = bytearray(fill(one.disk, 16 * MIB, 8))
    for option, offset in (("-p", PAGE), ("-z", 10 * PAGE)):
        run("fallocate", option, "-o", offset, "-l", 3 * PAGE, one.disk)
        data[offset : offset + 3 * PAGE] = bytes(3 * PAGE)
    same(one.disk.read_bytes(), data)
    with one.disk.open("r+b", buffering=0) as disk:
        punch(disk.fileno(), 16 * MIB - PAGE, 10 * PAGE)  # only what there is
        punch(disk.fileno(), 17 * MIB, PAGE)
        assert refused(lambda: fallocate(disk.fileno(), ZERO, 16 * MIB, PAGE)) == errno.ENOSPC
        assert refused(lambda: fallocate(disk.fileno(), 0x08, 0, PAGE)) == errno.EOPNOTSUPP  # collapse
    data[-PAGE:] = bytes(PAGE)
    same(one.disk.read_bytes(), data)
    assert one.disk.stat().st_size == 16 * MIB
    one.unmount()


@pytest.mark.parametrize("ftl", rotated(7))
def test_not_flushed_is_old_or_zeros(stand: Stands, ftl: str) -> None:
    """Page by page; what was flushed before is zeros."""
    one, rnd = stand(64, ftl), random.Random(9)
    data = fill(one.disk, 64 * MIB, 9)
    pages = rnd.sample(range(64 * MIB // PAGE), 1400)
    flushed, unsure = set(pages[:600]), set(pages[600:])
    fd = os.open(one.disk, os.O_RDWR)
    for page in flushed:
        punch(fd, page * PAGE, PAGE)
    os.fsync(fd)
    for page in unsure:
        punch(fd, page * PAGE, PAGE)
    os.close(fd)
    one.kill()
    one.mount()
    found = one.disk.read_bytes()
    for page in range(64 * MIB // PAGE):
        old, new = (text[page * PAGE : page * PAGE + PAGE] for text in (data, found))
        may = [bytes(PAGE)] if page in flushed else [old, bytes(PAGE)] if page in unsure else [old]
        is_either = new in may
        assert is_either, page
    one.unmount()


@pytest.mark.parametrize("ftl", rotated(8))
def test_cleaning_moves_no_trimmed_page(stand: Stands, ftl: str) -> None:
    """Most pages of most blocks trimmed, the others overwritten until everything was cleaned: no copy of a trimmed page
    was made since, as every page's OOB tells. Without the trim, the same writes make them."""
    moved, copied = {}, {}
    for trims in (True, False):
        one = stand(64, ftl)
        lpas = 64 * MIB // PAGE
        fill(one.disk, 64 * MIB, 10)
        one.unmount()
        early = copies(one.image)
        one.mount()
        kept = [lpa for lpa in range(lpas) if lpa >= lpas * 3 // 4 or lpa % 8 == 0]
        trimmed = set(range(lpas)) - set(kept)
        fd = os.open(one.disk, os.O_RDWR)
        try:
            if trims:
                for first in range(0, lpas * 3 // 4, 8):
                    punch(fd, (first + 1) * PAGE, 7 * PAGE)
                assert one.stats()["host"]["trim"] == len(trimmed)
                os.fsync(fd)
            before, rnd, page = one.programs("gc"), random.Random(11), os.urandom(PAGE)
            for _ in range(40_000 if SCHEMES[ftl].buffer_in_order else 12_000):  # such a buffer is large
                os.pwrite(fd, page, rnd.choice(kept) * PAGE)
        finally:
            os.close(fd)
        copied[trims] = one.programs("gc") - before
        one.unmount()
        moved[trims] = [lpa for lpa, *_ in copies(one.image) - early if lpa in trimmed]
    print(f"pages copied by {ftl}'s cleaning: {copied[False]}, after a trim {copied[True]}")
    assert moved[True] == []
    assert len(moved[False]) > 100
    assert copied[True] < copied[False] / 2


def copies(image: Path) -> set[tuple[int, int, int]]:
    """(LPA, sequence number, PPA) of every copy that cleaning ever made and that is still in flash."""
    with inspect.opened(image) as view:
        spares = ((ppa, Spare.of(raw)) for ppa, _, raw in view.pages())
        return {(spare.lpa, spare.seq, ppa) for ppa, spare in spares if spare.kind == 1 and spare.moved}


def test_twenty_thousand_small_ones(stand: Stands) -> None:
    """Through the kernel, each of a page or two, flushed now and then; all of them outlive a kill."""
    one, rnd = stand(128, "pagemap"), random.Random(12)
    lpas = 128 * MIB // PAGE
    with one.disk.open("r+b", buffering=0) as disk:
        for _ in range(128):
            disk.write(b"\xa5" * MIB)
    starts = list(range(0, lpas, 3))[:10_000]
    rnd.shuffle(starts)
    fd, zeros = os.open(one.disk, os.O_RDWR), set()
    for turn, first in enumerate(starts):
        length = rnd.randint(1, 2)
        for part in range(2):  # the second of two pages again: a trim of what holds nothing
            punch(fd, (first + part * (length - 1)) * PAGE, PAGE * (length - part * (length - 1)))
        zeros |= set(range(first, first + length))
        if turn % 1000 == 999:
            os.fsync(fd)
    os.close(fd)
    stats = one.stats()
    one.kill()
    one.mount()
    found = one.disk.read_bytes()
    for lpa in range(lpas):
        is_right = found[lpa * PAGE : lpa * PAGE + PAGE] == (bytes(PAGE) if lpa in zeros else b"\xa5" * PAGE)
        assert is_right, lpa
    assert stats["trim_pages"] <= 10_000 // 255 + 11 + stats["checkpoints"]
    one.unmount()
