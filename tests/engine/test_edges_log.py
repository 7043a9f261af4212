"""Edges of the metadata log, and of pages whose numbers do not tell which of them is the newer: each was found by a
change to the engine that nothing else noticed."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rig import CHECKPOINT, CLEAN, LAST, MOUNT, MOVED, PAGE, TRIM, USER, Rig, forge
from schemes import KINDS

from flashfs.crash.programs import presets_for, without_battery
from flashfs.device import Device
from flashfs.engine.device.metalog import MAGIC_TRIM, parse_descriptor, trim_records, whole_trims
from flashfs.errors import CorruptError
from flashfs.inspect._view import Spare
from nandimg import PRESETS, Cut, FaultyNand, Geometry, PowerCut, create
from nandimg._faults import SHAPES

ALL = pytest.mark.parametrize("ftl", KINDS)
ONE_DIE = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=64, channels=1, dies=1, oob_bytes=64, lpas=700)


@pytest.fixture
def rig(ftl: str, tmp_path: Path) -> Rig:
    return Rig(tmp_path / "chip", ftl)


# --- what is in the log


def test_a_trim_page_claims_no_more_records_than_it_has_room_for() -> None:
    room = (PAGE - 8) // 16
    for n in (room, room + 1, 1 << 31):
        raw = (MAGIC_TRIM + struct.pack("<I", n)).ljust(PAGE, b"\1")
        if n == room:
            assert len(trim_records(raw)) == room
        else:
            with pytest.raises(CorruptError, match="its head is not that of a trim page"):
                trim_records(raw)


@pytest.mark.parametrize("preset", ["tiny-20p", "tiny-24d"])
@ALL
def test_a_checkpoint_has_one_descriptor_which_says_whether_it_is_clean(ftl: str, preset: str) -> None:
    """Wherever in its block it comes to lie."""
    clean = False
    chip = presets_for(ftl, (preset, f"tiny-48{preset[-1]}"))[0]
    with Device.memory(PRESETS[chip].geometry, ftl, {"buffer": 0}) as device:
        per_block = device.nand.pages_per_block
        for lpa in range(40):
            clean = not clean
            device.write(lpa % 8 * device.page_bytes, b"x" * device.page_bytes)
            device.ssd.checkpoint(clean)
            meta, last = device.ssd.meta, []
            for block in meta.blocks:
                for page in range(per_block):
                    status, raw = device.nand.read_spare_area(block, page)
                    spare = Spare.of(raw)
                    if status == 1 and spare.kind == CHECKPOINT and spare.flags & LAST:
                        last.append((block * per_block + page, spare.seq, spare.flags))
            flags = CLEAN if clean else 0
            assert last == [(meta.descriptor_ppa, meta.checkpoint_id, LAST | flags)]
            found = parse_descriptor(device.nand.read_page(*divmod(meta.descriptor_ppa, per_block))[1])
            assert found is not None
            assert found[0][4] == flags


@ALL
def test_the_mark_of_a_mount_says_nothing_but_the_checkpoint_in_front_of_it(rig: Rig) -> None:
    """Even where the page before it was the descriptor, and the device went on."""
    rig.write(0)
    rig.device.ssd.checkpoint(True)
    rig.write(1)
    meta, per_block = rig.device.ssd.meta, rig.geometry.pages_per_block
    status, data, raw = rig.device.nand.read_page(*divmod(meta.descriptor_ppa + 1, per_block))
    spare = Spare.of(raw)
    assert (status, spare.kind, spare.lpa, spare.seq) == (1, MOUNT, 0, meta.checkpoint_id)
    assert data == bytes(PAGE)
    rig.kill()


@ALL
def test_the_mark_of_a_mount_that_was_flushed_and_is_gone_is_told_of(rig: Rig) -> None:
    """Without it the checkpoint looks as if nothing had happened since."""
    rig.write(0)
    rig.device.close()
    rig.open()
    rig.write(1, mark=b"n")
    rig.device.flush()
    rig.kill()
    (mark,) = rig.find(lambda spare: spare.kind == MOUNT)
    rig.blank(mark)
    alarm = f"PPA {mark}: a page of the metadata log cannot be read: trims that it held may be undone"
    assert rig.open() == [alarm]
    assert not rig.device.recovery.clean
    assert (rig.holds(0), rig.holds(1)) == (b"a", b"n")
    rig.kill()


@ALL
def test_a_page_of_trims_older_than_the_checkpoint_need_not_be_read(rig: Rig) -> None:
    """Be it as new as the checkpoint is, because nothing was written in between."""
    rig.write(0, 1, 2)
    rig.device.flush()
    rig.device.trim(0, PAGE)
    rig.device.flush()
    rig.device.checkpoint()
    rig.device.checkpoint()  # a fence keeps the trims that came since the one before it
    rig.kill()
    (log,) = rig.find(lambda spare: spare.kind == TRIM)
    rig.rot(log)
    assert rig.open() == []
    assert rig.figures["torn"] == 0
    assert (rig.holds(0), rig.holds(1)) == (b"\0", b"a")
    rig.kill()


# --- which of two is the newer


@pytest.mark.parametrize(("earlier", "later", "newer"), [(1, 1, "later"), (2, 1, "earlier"), (1, 2, "later")])
@pytest.mark.parametrize("swapped", [False, True])
def test_two_copies_of_one_page(earlier: int, later: int, newer: str, swapped: bool, tmp_path: Path) -> None:
    """How often each was moved tells which is the newer, and if that does not, when its block was opened; where the
    blocks lie tells nothing. All checkpoints are gone, so that both are found."""
    rig = Rig(tmp_path / "chip", "pagemap", ONE_DIE)
    rig.write(*range(16))
    rig.write(*range(16, 32), mark=b"b")
    rig.write(*range(1, 16), *range(17, 32), mark=b"c")  # nothing else in those blocks counts any more
    rig.device.flush()
    rig.kill()
    blocks = [rig.find(lambda spare, lpa=lpa: spare.kind == USER and spare.lpa == lpa)[0] // 16 for lpa in (0, 16)]
    orders = [rig.spare(16 * block).order for block in blocks]
    assert orders == sorted(orders)
    if swapped:
        for block, order in zip(blocks, reversed(orders), strict=True):
            for page in range(16):
                forge(rig, 16 * block + page, order=order)
        blocks.reverse()
    for block, moves in zip(blocks, (earlier, later), strict=True):
        forge(rig, 16 * block, lpa=0, seq=1, flags=MOVED | moves << 4)
    rig.wreck(*rig.find(lambda spare: spare.kind == CHECKPOINT))
    assert any("all pages are read" in alarm for alarm in rig.open())
    first, second = (b"b", b"a") if swapped else (b"a", b"b")
    assert rig.holds(0) == (first if newer == "earlier" else second)
    assert rig.holds(16) == b"\0"
    assert rig.device.problems() == []
    rig.kill()


@ALL
def test_the_newest_of_all_versions_where_no_checkpoint_is_left(rig: Rig) -> None:
    """Blocks that were cleaned and are not erased yet hold older ones, and what was trimmed, of which nothing is known
    any more."""
    rnd, model = random.Random(4), dict.fromkeys(range(80), b"a")
    rig.write(*range(80))
    for turn in range(500):
        lpa = rnd.randrange(80)
        if turn % 5:
            model[lpa] = bytes([1 + turn % 255])
            rig.write(lpa, mark=model[lpa])
        elif lpa in model:
            del model[lpa]
            rig.device.trim(lpa * PAGE, PAGE)
    rig.device.flush()
    rig.kill()
    rig.wreck(*rig.find(lambda spare: spare.kind in (CHECKPOINT, TRIM)))
    assert any("all pages are read" in alarm for alarm in rig.open())
    assert {lpa: rig.holds(lpa) for lpa in model} == model
    assert rig.device.problems() == []
    rig.kill()


# --- moves that were interrupted


@pytest.mark.parametrize("ftl", ["pagemap", "leaftl", "dftl"])
def test_a_move_that_was_broken_off_is_undone(ftl: str, tmp_path: Path) -> None:
    """Its victim has all its pages again, and the copies are dead: it cost no space."""
    scanned = without_battery(ftl)  # with it, none need be undone
    undone = 0
    for at in range(420, 460):
        front = lambda chip, at=at: FaultyNand(chip, [Cut(at, "before")])  # noqa: E731
        rig = Rig(tmp_path / f"chip{at}", ftl, front=front, options={"buffer": "0", **scanned})
        rnd = random.Random(3)
        with pytest.raises(PowerCut):
            rig.write(*range(80))
            rig.write(*(rnd.randrange(80) for _ in range(1_000)))
        rig.kill()
        del rig.how["front"]
        assert rig.open() == []
        undone += rig.figures["undone_moves"]
        live = sum(len(rig.device.ssd.validity.live_in(block)) for block in range(rig.geometry.blocks))
        assert live == 80 + len(rig.device.ssd.mapping.translation_pages())
        assert rig.device.problems() == []
        rig.kill()
    assert undone > 0


# --- what was in flash


@ALL
def test_pages_that_a_mount_found_are_durable_from_then_on(rig: Rig) -> None:
    """They had not been flushed; if one of them cannot be read later, that is reported."""
    rig.write(0, 1)
    rig.device.checkpoint()
    rig.write(2, 3, 4)
    rig.kill()
    ppas = [rig.ppa(lpa) for lpa in (2, 3, 4)]
    rig.open()
    per_block = rig.geometry.pages_per_block
    for ppa in ppas:
        assert rig.device.nand.synced_pages(ppa // per_block) > ppa % per_block
    rig.kill()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_torn_page_of_trims_on_a_chip_that_keeps_no_data(tmp_path: Path, shape: str) -> None:
    """There are no sums of data, so it reads as whole: what its OOB says of its records tells."""
    geometry = PRESETS["tiny-112"].geometry
    page = geometry.page_bytes
    for cut in range(1, 4):
        path = tmp_path / f"{cut}"
        create(path, geometry, "meta")
        with Device.open(path, ftl="pagemap", options={"buffer": "0"}) as device:
            device.write(0, bytes(60 * page))

        def front(chip: Any, cut: int = cut) -> FaultyNand:
            return FaultyNand(chip, (Cut(cut, shape),))

        device = Device.open(path, front=front, options={"buffer": "0"})
        with suppress(PowerCut):
            for lpa in range(0, 56, 2):
                device.trim(lpa * page, page)
            device.flush()
        device.close(clean=False)
        with Device.open(path) as device:
            assert device.problems() == []
            assert device.ssd.mapped(57)


def test_a_page_of_trims_has_the_records_that_its_oob_says() -> None:
    def made(*seqs: int) -> bytes:
        records = b"".join(struct.pack("<IIQ", 7, 1, seq) for seq in seqs)
        return (struct.pack("<4sI", MAGIC_TRIM, len(seqs)) + records).ljust(PAGE, b"\0")

    assert whole_trims(made(3, 5, 5), 3, 5) == [(7, 1, 3), (7, 1, 5), (7, 1, 5)]
    assert whole_trims(made(3, 5, 5), 2, 5) is None
    assert whole_trims(made(3, 5, 5), 3, 6) is None
    assert whole_trims(made(5, 3, 5), 3, 5) is None
    assert whole_trims(bytes(PAGE), 3, 5) is None
