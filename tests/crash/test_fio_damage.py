"""fio's verification is one that fails: on an image damaged by hand between the kill and the mount."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import nandimg
from flashfs import inspect
from flashfs.crash import kill
from flashfs.crash.kill.fio import BLOCK_BYTES, HEADER, MAGIC, is_whole
from flashfs.errors import FlashfsError
from flashfs.inspect import Spare, View
from flashfs.inspect._view import WHOLE
from nandimg import page_checksum


def fio_pages(view: View) -> list[int]:
    """PPAs of the live pages that hold a block of fio's, whole."""
    found = []
    for ppa, status, raw in view.pages():
        if status == WHOLE and Spare.of(raw).kind == 1 and view.live(ppa):
            data = bytes(view.chip.read_page(*view.at(ppa))[1])
            magic, _, length, _, offset, *_ = HEADER.unpack_from(data)
            if (magic, length) == (MAGIC, BLOCK_BYTES) and is_whole(data, offset):
                found.append(ppa)
    return found


def flip(view: View, image: Path) -> None:
    """A bit in each of fio's pages: the chip's checksums see it."""
    with image.open("r+b") as file:
        for ppa in fio_pages(view):
            at = data_at(view, ppa) + 2000
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))


def exchange(view: View, image: Path) -> None:
    """Each of fio's pages holds what the next one should, and its record is sealed anew: no checksum of the chip's is
    wrong, and fio's own is not either, but the block is another's."""
    pages = fio_pages(view)
    layout = view.header.layout
    data = {ppa: bytes(view.chip.read_page(*view.at(ppa))[1]) for ppa in pages}
    with image.open("r+b") as file:
        for ppa, other in zip(pages, pages[1:] + pages[:1], strict=True):
            file.seek(data_at(view, ppa))
            file.write(data[other])
            at = layout.spare_at + ppa * layout.stride
            file.seek(at)
            raw = bytearray(file.read(layout.record_head + layout.oob_used))
            struct.pack_into("<I", raw, 8, page_checksum(data[other]))
            epoch = struct.unpack_from("<I", raw)[0]
            sums = nandimg.checksum(bytes(raw[8:]), nandimg.checksum(struct.pack("<II", ppa, epoch)))
            struct.pack_into("<I", raw, 4, sums)
            file.seek(at)
            file.write(raw)


def data_at(view: View, ppa: int) -> int:
    return int(view.header.layout.data_at + ppa * view.header.geometry.page_bytes)


@pytest.mark.mount
@pytest.mark.parametrize("damage", [None, flip, exchange], ids=["none", "flip", "exchange"])
def test_fio_notices_damage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: Callable[[View, Path], None] | None
) -> None:
    """fio is asked alone, as it is after each kill: our own look at the blocks is left out."""
    try:
        kill.check_machine("ext4", "fio")
    except FlashfsError as error:
        pytest.skip(str(error))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(kill.Moments, "AT_RANDOM", 1.0)  # no cut is planned: the writer writes until it is killed
    monkeypatch.setattr("flashfs.crash.kill.bench.RECOVERY_KILLED", 0.0)
    monkeypatch.setattr(kill.WRITERS["fio"], "judge_blocks", lambda work: None)
    run_writer, pages = kill.Bench.run_writer, []

    def damaged(bench: kill.Bench) -> None:
        run_writer(bench)
        if damage is None or bench.rounds:
            return
        clean = bench.image.with_name("clean.nand")
        shutil.copyfile(bench.image, clean)
        with inspect.opened(clean) as view:
            pages.append(len(fio_pages(view)))
            damage(view, bench.image)

    monkeypatch.setattr(kill.Bench, "run_writer", damaged)
    result = kill.run("pagemap", 3, 2, writer="fio")
    if damage is None:
        assert not result.failures, str(result.failures[0])
        assert result.cuts == 2
        return
    assert pages[0] >= 8
    (failure,) = result.failures
    assert "fio, of " in failure.why, failure.why
    if damage is flip:
        assert "Input/output error" in failure.why
    else:
        assert "verify" in failure.why
