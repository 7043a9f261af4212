"""The file: its header in two copies, its lock, what is refused and how it is said."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import nandimg
import nandimg.image
from nandimg import PRESETS, Geometry, ImageError, NandError, checksum, inspect, open_image
from nandimg.image import HEADER_BYTES

GEOMETRY = PRESETS["tiny-8"].geometry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    nandimg.create(tmp_path / "chip.nand", GEOMETRY)
    return tmp_path / "chip.nand"


def refused(path: Path, *, readonly: bool = False) -> str:
    """The one line with which an image is refused; it names the file."""
    with pytest.raises(ImageError) as caught:
        open_image(path, readonly=readonly)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{path}: ")
    return line


def patch(path: Path, at: int, data: bytes, copies: tuple[int, ...] = (0, 1), *, seal: bool = True) -> None:
    """Change the header; ``seal`` makes its checksum right again."""
    with path.open("r+b") as file:
        for copy in copies:
            file.seek(copy * HEADER_BYTES)
            raw = bytearray(file.read(HEADER_BYTES))
            raw[at : at + len(data)] = data
            if seal:
                struct.pack_into("<I", raw, HEADER_BYTES - 4, checksum(raw[:-4]))
            file.seek(copy * HEADER_BYTES)
            file.write(raw)


def test_what_a_header_says(path: Path) -> None:
    header = inspect(path)
    assert header.geometry == GEOMETRY
    assert (header.backend, header.version, header.ftl, header.generation) == ("file", 2, "", 1)
    assert header.uuid.version == 4
    assert inspect(path) == header
    assert path.stat().st_size == header.layout.end
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_image_is_sparse(tmp_path: Path) -> None:
    nandimg.create(tmp_path / "big", PRESETS["demo-1g"].geometry)
    stat = (tmp_path / "big").stat()
    assert stat.st_size > 1 << 30
    assert stat.st_blocks * 512 < 64 << 20


@pytest.mark.parametrize("copy", [0, 1])
def test_any_flipped_bit_in_one_copy_is_survived(path: Path, copy: int) -> None:
    good = inspect(path)
    raw = path.read_bytes()[:HEADER_BYTES]
    with path.open("r+b") as file:
        for at in range(HEADER_BYTES):
            file.seek(copy * HEADER_BYTES + at)
            file.write(bytes([raw[at] ^ 1 << at % 8]))
            file.flush()
            assert inspect(path) == good, f"byte {at}"
            file.seek(copy * HEADER_BYTES + at)
            file.write(raw[at : at + 1])
    open_image(path).close()


def test_the_newer_copy_counts(path: Path) -> None:
    patch(path, 16, struct.pack("<Q", 7), copies=(1,))
    assert inspect(path).generation == 7


@pytest.mark.parametrize(
    ("at", "data", "said"),
    [
        (0, b"GARBAGE!", "no flashfs image: it begins with b'GARBAGE!'"),
        (8, struct.pack("<I", 3), "version is 3"),
        (12, struct.pack("<I", 512), "header_bytes is 512"),
        (40, struct.pack("<I", 9), "backend is 9"),
        (72, struct.pack("<I", 4000), "oob_used is 4000"),
        (88, struct.pack("<I", 13), "features is 13"),
        (92, struct.pack("<I", 17), "NVRAM regions is 17"),
        (88, struct.pack("<I", 1), "feature ''"),
        (92, struct.pack("<I", 2), "NVRAM region ''"),
        (96, struct.pack("<Q", 2**31), "nvram_read_ns is 2147483648"),
        (76, struct.pack("<I", 4000), "options"),
        (144, struct.pack("<Q", 3), "page_bytes is 3"),
        (144 + 16, struct.pack("<Q", 2), "blocks is 2"),
        (144 + 48, struct.pack("<Q", 10**6), "lpas is 1000000"),
    ],
)
def test_both_copies_wrong_names_the_field(path: Path, at: int, data: bytes, said: str) -> None:
    patch(path, at, data)
    assert said in refused(path)
    with pytest.raises(ImageError, match=said.split()[0]):
        inspect(path)


@pytest.mark.parametrize(
    ("count_at", "entries", "said"),
    [
        (88, b"\x03a.b", "feature 0: kind is 3"),
        (88, b"\x02A", "feature 'A'"),
        (92, b"other".ljust(16, b"\0") + struct.pack("<Q", 1 << 20), "the NVRAM regions take 1048576 bytes: nvram"),
        (92, b"other".ljust(16, b"\0") + struct.pack("<Q", 0), "NVRAM region other: 0 bytes"),
        (92, (b"other".ljust(16, b"\0") + struct.pack("<Q", 8)) * 2, "two NVRAM regions have one name"),
    ],
)
def test_wrong_tables_in_both_copies(path: Path, count_at: int, entries: bytes, said: str) -> None:
    patch(path, count_at, struct.pack("<I", 2 if "two" in said else 1))
    patch(path, 3320 if count_at == 88 else 3704, entries)
    assert said in refused(path)


def test_opening_for_writing_makes_the_copies_equal(path: Path) -> None:
    patch(path, 16, struct.pack("<Q", 7), copies=(1,))
    patch(path, 3000, b"x", copies=(0,), seal=False)
    before = path.read_bytes()
    open_image(path, readonly=True).close()
    assert path.read_bytes() == before
    image = open_image(path)
    assert image.mended
    image.close()
    raw = path.read_bytes()
    assert raw[:HEADER_BYTES] == before[HEADER_BYTES : 2 * HEADER_BYTES] == raw[HEADER_BYTES : 2 * HEADER_BYTES]
    image = open_image(path)
    assert not image.mended
    image.close()


def test_damage_in_both_copies_is_a_checksum(path: Path) -> None:
    patch(path, 2000, b"x", seal=False)
    assert "checksum does not match" in refused(path)


@pytest.mark.parametrize("size", [0, 1, 100, HEADER_BYTES - 1])
def test_a_file_that_ends_in_its_header(path: Path, size: int) -> None:
    os.truncate(path, size)
    assert ("ends inside the header" if size >= 8 else "no flashfs image: it") in refused(path)


def test_a_file_that_ends_later(path: Path) -> None:
    end = inspect(path).layout.end
    for size in (HEADER_BYTES, 2 * HEADER_BYTES, end - 1):
        os.truncate(path, size)
        assert f"size is {size} bytes: its geometry needs {end}" in refused(path)


def test_what_is_no_image(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"\x7fELF" + bytes(9000))
    assert f"{foreign}: no flashfs image" in refused(foreign)
    assert "no such file" in refused(tmp_path / "missing")
    assert "not a regular file" in refused(tmp_path, readonly=True)


def test_a_damaged_block_table_names_the_block(path: Path) -> None:
    image = open_image(path)
    image.chip.erase_block(5)
    image.close()
    at = image.header.layout.table_at + 5 * 8
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\x07")
    assert "block table: the entry of block 5" in refused(path)


def test_an_existing_file_is_refused_and_left_alone(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(ImageError, match="exists already"):
        nandimg.create(path, GEOMETRY)
    assert path.read_bytes() == before
    old = inspect(path).uuid
    assert nandimg.create(path, GEOMETRY, force=True).uuid != old


def test_a_backend_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="file or meta"):
        nandimg.create(tmp_path / "x", GEOMETRY, "memory")
    assert list(tmp_path.iterdir()) == []


def test_a_second_opener_is_told_who_has_it(path: Path) -> None:
    image = open_image(path)
    assert f"in use by process {os.getpid()}" in refused(path)
    assert "in use" in refused(path, readonly=True)
    code = f"import nandimg; nandimg.open_image({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"in use by process {os.getpid()}" in done.stderr
    with pytest.raises(ImageError, match="in use"):
        nandimg.create(path, GEOMETRY, force=True)
    assert inspect(path) == image.header  # asks for no lock
    image.close()
    open_image(path).close()


def test_readers_share(path: Path) -> None:
    readers = [open_image(path, readonly=True) for _ in range(2)]
    assert "in use" in refused(path)
    for reader in readers:
        reader.close()


def test_the_lock_goes_with_its_process(path: Path) -> None:
    code = f"import os, nandimg; nandimg.open_image({str(path)!r}); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    open_image(path).close()


def test_binding(path: Path) -> None:
    image = open_image(path)
    image.chip.mark_factory_bad(3)
    unique = image.header.uuid
    image.bind("some", {"shift": 8}, 24)
    image.chip.program_page(0, 0, bytes(512), b"x" * 24)
    with pytest.raises(ValueError, match="24 at most"):
        image.chip.program_page(0, 1, bytes(512), b"x" * 25)
    with pytest.raises(ImageError, match="bound to some already"):
        image.bind("other", {}, 24)
    image.close()
    header = inspect(path)
    assert (header.ftl, header.options, header.oob_used, header.generation) == ("some", {"shift": 8}, 24, 2)
    assert header.uuid == unique
    image = open_image(path)
    assert image.chip.read_page(0, 0)[2] == b"x" * 24
    assert image.chip.block_health(3) == 1
    with pytest.raises(NandError, match="bad"):
        image.chip.erase_block(3)
    image.close()


REFUSED = {
    "greedy needs 65 bytes of OOB per page: this chip has 64": ("greedy", {}, 65),
    "3072 fit": ("wordy", {"text": "x" * 4000}, 20),
    "28 fit": ("n" * 29, {}, 20),
}


@pytest.mark.parametrize("said", REFUSED)
def test_binding_refuses_what_does_not_fit(path: Path, said: str) -> None:
    image = open_image(path)
    with pytest.raises(ImageError, match=said):
        image.bind(*REFUSED[said])
    image.close()
    assert inspect(path).ftl == ""


def test_a_refused_binding_leaves_the_image_usable(path: Path) -> None:
    """In a process of its own: it is a chip that was unmapped too early that would be used."""
    code = f"""
import contextlib, nandimg
image = nandimg.open_image({str(path)!r})
with contextlib.suppress(nandimg.ImageError):
    image.bind("n" * 29, {{}}, 20)
image.bind("some", {{}}, 20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert inspect(path).ftl == "some"


@pytest.mark.parametrize("call", ["erase_count(0)", "erase_block(0)", "boot_slot(0)", "clock()", "mark_factory_bad(3)"])
def test_a_closed_chip_is_no_crash(path: Path, call: str) -> None:
    code = f"import nandimg; image = nandimg.open_image({str(path)!r}); image.close(); image.chip.{call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1, f"ended by signal {-done.returncode}"


def test_memory_images_need_no_file() -> None:
    image = nandimg.memory_image(GEOMETRY, factory_bad=(1, 2))
    assert image.path is None
    assert image.header.uuid == uuid.UUID(int=0)
    image.bind("some", {}, 24)
    assert [image.chip.block_health(b) for b in range(4)] == [0, 1, 1, 0]
    image.close()


def test_a_name_that_moved_on_while_the_lock_was_waited_for(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resize gives the name to another file between the opening of the old one and its lock."""
    other = tmp_path / "other"
    new = nandimg.create(other, GEOMETRY)
    lock = fcntl.flock

    def late(fd: int, kind: int) -> None:
        if other.exists():
            other.replace(path)
        lock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    image = nandimg.open_image(path)
    assert image.header.uuid == new.uuid
    image.close()


def test_a_reader_that_is_to_be_alone(path: Path) -> None:
    with closing(nandimg.open_image(path, readonly=True, alone=True)):
        for readonly in (True, False):
            with pytest.raises(ImageError, match="in use by process"):
                nandimg.open_image(path, readonly=readonly)
    with closing(nandimg.open_image(path, readonly=True)), pytest.raises(ImageError, match="in use"):
        nandimg.open_image(path, readonly=True, alone=True)


def test_what_has_no_room_leaves_the_old_image_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    full = os.statvfs_result((4096, 4096, 1000, 0, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "fstatvfs", lambda fd: full)
    with pytest.raises(ImageError, match="No space left"):
        nandimg.create(path, Geometry(blocks=64_000, lpas=1_000_000), force=True)
    assert path.read_bytes() == before


def test_a_file_that_is_longer_than_its_file_system_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def longer(fd: int, length: int) -> None:
        if length:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr(os, "ftruncate", longer)
    geometry = Geometry(page_bytes=16384, pages_per_block=1024, blocks=1 << 20, oob_bytes=64, lpas=1000)
    with pytest.raises(ImageError, match=r"chip: the image is 16\.\d\d TiB long .* use a smaller chip"):
        nandimg.create(tmp_path / "chip", geometry)
    assert list(tmp_path.iterdir()) == []


def test_a_chip_too_long_for_its_file_system_leaves_the_old_image_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, shorten = path.read_bytes(), os.ftruncate

    def longest(fd: int, length: int) -> None:
        if length > 1 << 30:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        shorten(fd, length)

    monkeypatch.setattr(os, "ftruncate", longest)
    geometry = Geometry(page_bytes=16384, pages_per_block=1024, blocks=1 << 20, oob_bytes=64, lpas=1000)
    with pytest.raises(ImageError, match="use a smaller chip"):
        nandimg.create(path, geometry, force=True)
    assert path.read_bytes() == before


def test_a_file_that_takes_the_name_meanwhile_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mv other.nand chip.nand` between the making of the file and its lock."""
    other, path, lock = tmp_path / "other", tmp_path / "chip", fcntl.flock
    made = nandimg.create(other, GEOMETRY)

    def late(fd: int, kind: int) -> None:
        other.replace(path)
        lock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(ImageError, match="another file has taken its place"):
        nandimg.create(path, GEOMETRY)
    assert inspect(path).uuid == made.uuid


@pytest.mark.parametrize("holes", [True, False])
def test_a_blank_image_has_its_length_at_each_moment_of_a_give_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, holes: bool
) -> None:
    """A process that is killed on its way leaves an image: bound, or blank."""
    was, size = path.read_bytes(), path.stat().st_size
    image = open_image(path)
    image.bind("some", {}, 24)
    lengths, write, sync = set(), os.pwrite, os.fsync

    def seen(fd: int, data: bytes, at: int) -> int:
        lengths.add(os.fstat(fd).st_size)
        return write(fd, data, at)

    def synced(fd: int) -> None:
        lengths.add(os.fstat(fd).st_size)
        sync(fd)

    monkeypatch.setattr(os, "pwrite", seen)
    monkeypatch.setattr(os, "fsync", synced)
    if not holes:
        monkeypatch.setattr(nandimg.image, "PUNCH_HOLE", 0x40000)  # no mode of fallocate
    assert image.give_back()
    assert len(lengths) == 1 and min(lengths) >= size
    assert path.read_bytes().rstrip(b"\0") == was.rstrip(b"\0")


def test_a_header_that_was_written_as_often_as_can_be_is_not_written_again(path: Path) -> None:
    patch(path, 16, struct.pack("<Q", (1 << 63) - 1))
    before = path.read_bytes()
    with closing(open_image(path)) as image:
        with pytest.raises(ImageError, match="cannot be once more"):
            image.bind("some", {}, 24)
        assert not image.header.ftl
    assert path.read_bytes() == before


def test_a_chip_that_cannot_be_opened_says_why(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It closes the file itself: its descriptor may be another file's by then."""
    others: list[int] = []

    def without_memory(header: Any, fd: int, where: Path, readonly: bool = False) -> Any:
        os.close(fd)
        others.append(os.open("/dev/null", os.O_RDONLY))
        assert others[-1] == fd
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(nandimg.image, "_chip", without_memory)
    with pytest.raises(OSError, match=os.strerror(errno.ENOMEM)):
        open_image(path)
    os.fstat(others[0])
    os.close(others[0])


def test_bad_blocks_outlive_a_death_while_a_binding_is_undone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_image(path)) as blank:
        for block in (1, 3):
            blank.chip.mark_factory_bad(block)

    def dies(fd: int, start: int) -> None:
        raise KeyboardInterrupt

    bound = open_image(path)
    bound.bind("pagemap", {}, 0)
    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(nandimg.image, "_empty", dies)
        bound.give_back()
    bound.close()
    with closing(open_image(path)) as found:
        assert [block for block in range(GEOMETRY.blocks) if found.chip.block_health(block)] == [1, 3]
