"""What power cannot have done: images damaged between two lives, and what a mount makes of them.

Three things hold (docs/design/chip.md): as much as can be read is used, an LPA whose page cannot be read gives EIO and
no older version, and the mount reports it. Damage is done to the image's bytes, where SPEC.md says they lie; `wreck`
takes a page's spare area with it, `rot` only its data.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from damaged import PAGE, Rig
from schemes import KINDS

import nandimg
from flashfs.crash.programs import presets_for
from flashfs.engine.device.metalog import BOOT, MAGIC_BOOT, sealed
from flashfs.engine.views.cross_check import cross_check
from flashfs.errors import CorruptError
from nandimg import PRESETS, Fault, dress

CHECKPOINT, TRIM = 4, 5
LAST = 2
pytestmark = pytest.mark.parametrize("ftl", KINDS)


def first_gone(block: int) -> str:
    return f"block {block}: its first page was flushed and cannot be read"


@pytest.fixture
def rig(ftl: str, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "chip", ftl)
    yield made
    made.device.close(clean=False)


def aged(rig: Rig) -> int:
    """A chip of whose blocks one is closed, full of the only versions, and known to a checkpoint: returns it."""
    rig.write(*range(24))
    rig.remember()
    rig.kill()
    per_block = rig.geometry.pages_per_block
    for block in range(rig.geometry.blocks):
        if len(rig.lpas_in(block)) == per_block:
            return block
    raise AssertionError("no block is full")


# --- first pages


def test_the_first_page_of_a_closed_block(rig: Rig) -> None:
    block = aged(rig)
    first = rig.lpas_in(block)[0]
    rig.wreck(block * rig.geometry.pages_per_block)
    assert rig.open() == [first_gone(block)]
    rig.holds(first)
    rig.kill()  # the commit has frozen it
    rig.open()
    rig.holds(first)
    rig.write(first)
    rig.device.flush()
    rig.holds()


def test_the_first_page_of_an_open_block(rig: Rig) -> None:
    """It is written further after the checkpoint; the later pages are found all the same."""
    rig.write(0, 1, 2)
    rig.remember()
    rig.write(3, 1)
    rig.device.flush()
    rig.kill()
    block = rig.ppa(0) // rig.geometry.pages_per_block
    (first,) = [lpa for lpa in (0, 2, 1) if rig.ppa(lpa) == block * rig.geometry.pages_per_block]
    rig.wreck(block * rig.geometry.pages_per_block)
    assert rig.open() == [first_gone(block)]
    rig.holds(first)


def test_the_first_page_of_a_block_that_no_checkpoint_knows(rig: Rig) -> None:
    """Its LPA is not known any more, and that is said."""
    rig.write(*range(8))
    rig.device.flush()
    rig.kill()
    block = rig.ppa(3) // rig.geometry.pages_per_block
    lpas = rig.lpas_in(block)
    rig.wreck(block * rig.geometry.pages_per_block)
    assert any("a page that was flushed cannot be read" in alarm for alarm in rig.open())
    for lpa in set(range(8)) - {lpas[0]}:
        assert rig.read(lpa) == rig.model[lpa]


def test_a_block_of_which_nothing_can_be_read(rig: Rig) -> None:
    block = aged(rig)
    per_block = rig.geometry.pages_per_block
    lpas = rig.lpas_in(block)
    rig.wreck(*range(block * per_block, (block + 1) * per_block))
    assert rig.open() == [first_gone(block)]
    rig.holds(*lpas)
    rig.write(*lpas)
    rig.churn(list(range(16)), 100)
    rig.holds()


def test_a_block_of_which_nothing_can_be_read_and_nothing_counts(rig: Rig) -> None:
    """An erase drops the synced mark first, so this is none: said, and harmless."""
    block = aged(rig)
    per_block = rig.geometry.pages_per_block
    lpas = rig.lpas_in(block)
    assert rig.open() == []
    rig.write(*lpas)
    rig.device.flush()
    rig.kill()
    rig.wreck(*range(block * per_block, (block + 1) * per_block))
    assert rig.open() == [first_gone(block)]
    rig.holds()


@pytest.mark.parametrize("how", ["overwritten", "trimmed"])
def test_a_first_page_in_a_block_that_was_superseded(rig: Rig, how: str) -> None:
    """Nothing in the block counts any more: said, and harmless."""
    block = aged(rig)
    lpas = rig.lpas_in(block)
    assert rig.open() == []
    if how == "trimmed":
        for lpa in lpas:
            rig.trim(lpa)
    else:
        rig.write(*lpas)
    rig.device.flush()
    rig.kill()
    rig.wreck(block * rig.geometry.pages_per_block)
    assert rig.open() == [first_gone(block)]
    rig.holds()


# --- pages in the middle, and at the end


def test_a_flushed_page_behind_the_checkpoint(rig: Rig) -> None:
    rig.write(0, 1, 2)
    rig.device.checkpoint()
    rig.write(8, 9, 10, 11)
    rig.device.flush()
    rig.kill()
    ppas = sorted(rig.ppa(lpa) for lpa in (8, 9, 10, 11))
    rig.wreck(ppas[1])
    (alarm,) = rig.open()
    assert alarm == f"PPA {ppas[1]}: a page that was flushed cannot be read: its LPA may show an older version"
    assert sum(rig.read(lpa) != rig.model[lpa] for lpa in (8, 9, 10, 11)) == 1


def test_the_last_page_of_a_block_keeps_its_lpa(rig: Rig) -> None:
    """Its spare area is there, its data are not, and it was flushed: EIO, not the version before."""
    rig.write(8)
    rig.device.checkpoint()
    rig.write(8)
    rig.device.flush()
    rig.kill()
    rig.rot(rig.ppa(8))
    assert any("cannot be read" in alarm for alarm in rig.open())
    rig.holds(8)


def test_a_page_that_no_checkpoint_and_no_sync_knows(rig: Rig) -> None:
    """Never flushed: gone without a word, and the version before it counts."""
    rig.write(8)
    rig.device.flush()
    before = rig.model[8]
    rig.write(8)
    rig.kill()
    rig.rot(rig.ppa(8))
    assert rig.open() == []
    rig.model[8] = before
    rig.holds()


# --- unreadable pages, moved


@pytest.mark.parametrize("damage", ["rot", "wreck"])
def test_cleaning_moves_an_unreadable_page(rig: Rig, damage: str) -> None:
    """EIO for its LPA alone, over crashes and clean mounts, until it is written or trimmed."""
    block = aged(rig)
    lpas = rig.lpas_in(block)
    lost = lpas[3]
    getattr(rig, damage)(rig.ppa(lost))
    assert rig.open() == []
    rig.holds(lost)
    rig.write(*range(24, rig.geometry.lpas))
    rig.churn([lpa for lpa in range(rig.geometry.lpas) if lpa != lost], 600)
    assert rig.device.smart()["lost"] >= 1
    rig.holds(lost)
    assert any("lost" in line for line in rig.device.problems())
    rig.kill()
    assert rig.open() == []
    rig.holds(lost)
    rig.device.close()
    assert rig.open() == []
    assert rig.device.recovery.clean
    rig.holds(lost)
    if damage == "rot":
        rig.trim(lost)
    else:
        rig.write(lost)
    rig.device.flush()
    rig.kill()
    rig.open()
    rig.holds()
    assert rig.device.problems() == []


# --- checkpoints


def checkpointed_twice(rig: Rig) -> tuple[int, int]:
    """The PPAs of two descriptors, both still there."""
    rig.write(*range(10))
    rig.device.checkpoint()
    rig.write(2, 3)
    rig.device.checkpoint()
    rig.write(4)
    rig.device.flush()
    rig.kill()
    older, newer = rig.find(lambda spare: spare.kind == CHECKPOINT and spare.flags & LAST)[-2:]
    return older, newer


@pytest.mark.parametrize("damage", ["rot", "wreck"])
@pytest.mark.parametrize("part", ["descriptor", "content"])
def test_the_newest_checkpoint(rig: Rig, damage: str, part: str) -> None:
    """The one before stands in for it, and that is said. Nothing was trimmed since, so nothing is lost."""
    _, newer = checkpointed_twice(rig)
    getattr(rig, damage)(newer if part == "descriptor" else newer - 1)
    alarms = rig.open()
    assert any("was complete and is of no use now" in alarm for alarm in alarms)
    rig.holds()
    rig.kill()
    old = newer // rig.geometry.pages_per_block
    assert rig.open() in ([], [first_gone(old)])  # the commit wrote another; the old one's block waits for its erase
    rig.holds()


@pytest.mark.parametrize("readonly", [True, False])
def test_every_checkpoint(rig: Rig, readonly: bool) -> None:
    """All pages are read, the newest of each LPA counts; what was trimmed may be back, and that is said."""
    checkpointed_twice(rig)
    rig.wreck(*rig.find(lambda spare: bool(spare.kind == CHECKPOINT and spare.flags & LAST)))
    (alarm,) = rig.open(readonly=readonly)
    assert "no checkpoint is of use (no descriptor is left)" in alarm
    rig.holds()
    assert rig.device.problems() == []


def test_every_checkpoint_after_much_cleaning(rig: Rig) -> None:
    rig.churn(list(range(30)), 400)
    rig.kill()
    rig.rot(*rig.find(lambda spare: bool(spare.kind == CHECKPOINT and spare.flags & LAST)))
    assert any("no checkpoint is of use (checkpoint descriptor at PPA" in alarm for alarm in rig.open())
    rig.holds()
    assert rig.device.problems() == []
    rig.churn(list(range(30)), 200)
    rig.holds()


def test_a_clean_checkpoint_that_is_not_whole(rig: Rig) -> None:
    """Its descriptor says clean, a page of it is gone: a recovery, with an alarm."""
    rig.write(*range(10))
    rig.device.checkpoint()
    rig.write(1)
    rig.device.close()
    newest = rig.find(lambda spare: bool(spare.kind == CHECKPOINT and spare.flags & LAST))[-1]
    rig.rot(newest - 1)
    assert any("was complete and is of no use now" in alarm for alarm in rig.open())
    assert not rig.device.recovery.clean
    assert rig.device.recovery.steps[0].note.endswith("is not whole")
    rig.holds()


def test_a_checkpoint_of_another_device(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, but its sections do not fit: refused, by name."""
    rig.write(1)
    rig.device.close()
    from flashfs.engine.device import metalog
    from flashfs.engine.recovery import found

    class Less(metalog.LoadedCheckpoint):
        def __init__(self, *how: Any) -> None:
            super().__init__(*how)
            del self.sections["pool"]

    monkeypatch.setattr(found, "LoadedCheckpoint", Less)
    with pytest.raises(CorruptError, match="does not fit this device"):
        rig.open()


# --- the boot area


@pytest.mark.parametrize("hint", ["none", "beyond", "elsewhere"])
def test_a_boot_hint_that_misleads(rig: Rig, hint: str) -> None:
    """The checkpoint is found without it; a hint is no more than that."""
    rig.write(*range(10))
    rig.device.close()
    newest = rig.find(lambda spare: bool(spare.kind == CHECKPOINT and spare.flags & LAST))[-1]
    with Slots(rig) as slots:
        identity = max(struct.unpack_from("<Q", slot, 8)[0] for slot in slots if slot[:4] == MAGIC_BOOT)
    ppa = {"beyond": rig.geometry.blocks * rig.geometry.pages_per_block, "elsewhere": rig.ppa(3), "none": newest}[hint]
    raw = sealed(BOOT.pack(MAGIC_BOOT, 0, identity, ppa).ljust(64, b"\0")) if hint != "none" else bytes(64)
    write_slots(rig, raw)
    assert rig.open() == []
    assert not rig.device.recovery.clean
    rig.holds()


class Slots:
    """The boot area of the closed image."""

    def __init__(self, rig: Rig) -> None:
        self.image = nandimg.open_image(rig.path, readonly=True)

    def __enter__(self) -> list[bytes]:
        return [self.image.chip.boot_slot(0), self.image.chip.boot_slot(1)]

    def __exit__(self, *problem: object) -> None:
        self.image.close()


def write_slots(rig: Rig, raw: bytes) -> None:
    with Slots(rig) as slots, rig.path.open("r+b") as file:
        content = rig.path.read_bytes()[: rig.layout.table_at]
        for slot in slots:
            if any(slot):
                file.seek(content.index(slot, rig.layout.boot_at))
                file.write(raw)


# --- trims


@pytest.mark.parametrize("damage", ["rot", "wreck"])
def test_a_page_of_trims(rig: Rig, damage: str) -> None:
    rig.write(*range(10))
    rig.device.checkpoint()
    rig.trim(4, 2)
    rig.device.flush()
    rig.kill()
    (page,) = rig.find(lambda spare: spare.kind == TRIM)[-1:]
    getattr(rig, damage)(page)
    (alarm,) = rig.open()
    assert alarm.startswith(f"PPA {page}: a page of ")
    assert alarm.endswith(("what it trimmed may be back", "trims that it held may be undone"))
    for lpa in set(range(10)) - {4, 5}:
        assert rig.read(lpa) == rig.model[lpa]


def test_a_page_of_trims_that_looks_erased(rig: Rig) -> None:
    """It was flushed, so it was there; what follows it in the log is not looked for."""
    rig.write(*range(10))
    rig.device.checkpoint()
    rig.trim(4, 2)
    rig.device.flush()
    rig.kill()
    (page,) = rig.find(lambda spare: spare.kind == TRIM)[-1:]
    rig.blank(page)
    (alarm,) = rig.open()
    assert alarm == f"PPA {page}: a page of the metadata log cannot be read: trims that it held may be undone"
    for lpa in set(range(10)) - {4, 5}:
        assert rig.read(lpa) == rig.model[lpa]


# --- a chip that lies


def lives(tmp_path: Path, ftl: str, fault: Fault, seed: int) -> tuple[Rig, list[str]]:
    """A life on a chip with that fault, killed after a flush; then a mount without it, and its report."""
    rig = Rig(tmp_path / f"chip {fault} {seed}", ftl, front=lambda chip: dress(chip, [fault], seed))
    for turn in range(3):
        rig.write(*range(0, 24, turn + 1))
        rig.trim(turn * 5)
        rig.device.flush()
    rig.device.checkpoint()
    rig.write(*range(7, 12))
    rig.device.flush()
    rig.kill()
    return rig, rig.open()


def test_a_misdirected_page_shows_by_its_order(ftl: str, tmp_path: Path) -> None:
    """In a block that recovery looks through. Whose place it took is not known, and reads as before, or not at all."""
    said = []
    for at in range(10, 26):
        rig = Rig(tmp_path / f"chip {at}", ftl, front=lambda chip, at=at: dress(chip, [Fault("misdirect", at)], at))
        rig.write(*range(24))
        rig.device.flush()
        rig.kill()
        said.append(rig.open())
        stale = [lpa for lpa in range(24) if rig.read(lpa) not in (None, rig.model[lpa])]
        assert said[-1] or not stale, at
        rig.kill()
    assert any("meant for another block" in alarm for alarms in said for alarm in alarms)


@pytest.mark.parametrize("kind", ["silent", "misdirect"])
def test_no_lie_goes_unnoticed(ftl: str, tmp_path: Path, kind: str) -> None:
    """Whatever operation it was: right, EIO, or an alarm."""
    wrong = []
    for at in range(4, 90, 2):
        rig, alarms = lives(tmp_path, ftl, Fault(kind, at), at)
        found = {lpa: rig.read(lpa) for lpa in range(rig.geometry.lpas)}
        stale = [lpa for lpa in found if found[lpa] not in (None, rig.model.get(lpa, bytes(PAGE)))]
        if stale and not alarms:
            wrong.append(f"{kind}={at}: LPAs {stale}")
        rig.kill()
    assert wrong == []


def test_an_erase_that_was_not_done_retires_its_block(ftl: str, tmp_path: Path) -> None:
    retired = 0
    pages = PRESETS[presets_for(ftl, ("tiny-16", "tiny-32", "tiny-48"))[0]].geometry.pages
    for at in range(100 * pages // 128, 160 * pages // 128, 3):
        rig = Rig(tmp_path / f"chip {at}", ftl, front=lambda chip, at=at: dress(chip, [Fault("silent", at)]))
        rig.churn(list(range(20)), 150 * pages // 128)
        bad = rig.device.smart()["grown_bad"]
        if bad:
            retired += 1
            rig.holds()
            rig.kill()
            rig.open()
            rig.holds()
            assert rig.device.smart()["grown_bad"] == bad
        rig.kill()
    assert retired


# --- fsck


def test_fsck_names_what_is_damaged(rig: Rig) -> None:
    block = aged(rig)
    lpas = rig.lpas_in(block)
    rig.wreck(rig.ppa(lpas[1]), rig.ppa(lpas[2]))
    assert rig.open() == []
    torn = [line for line in rig.device.problems() if line.endswith("live but torn")]
    assert len(torn) == 2
    assert cross_check(rig.device.ssd, 1)[1:] == ["more was not looked for"]


def test_fsck_names_pages_in_the_wrong_place(ftl: str, tmp_path: Path) -> None:
    """A page of data that lies where another's was, and one of the metadata log: both, with what is there now. One that
    does not have that place's number counts for torn."""
    said = set()
    for at in range(14, 44):
        rig = Rig(tmp_path / f"chip {at}", ftl, front=lambda chip, at=at: dress(chip, [Fault("misdirect", at)], at))
        rig.write(*range(24))
        rig.device.flush()
        rig.device.checkpoint()
        said |= {re.sub(r"\d+", "N", line) for line in rig.device.problems()}
        rig.kill()
    assert said & {"PPA N: live with LPA N, which the mapping has at PPA N", "PPA N: live but torn"}
    assert any(line.startswith("PPA N: live but kind N, LPA ") for line in said)


@pytest.mark.parametrize("damage", ["wreck", "blank"])
def test_the_mark_of_a_mount_that_was_flushed_and_cannot_be_read(rig: Rig, damage: str) -> None:
    """A clean checkpoint is no longer clean once it was mounted, even if the page that marks this is damaged."""
    rig.write(*range(10))
    rig.device.close()
    clean = rig.find(lambda spare: bool(spare.kind == CHECKPOINT and spare.flags & LAST))[-1]
    assert rig.open() == []
    rig.write(3)
    rig.device.flush()
    rig.kill()
    getattr(rig, damage)(clean + 1)
    rig.open()
    assert not rig.device.recovery.clean
    rig.holds()
