"""Edges of recovery and of the metadata log that no other test comes by: each was found by a change to the engine that
nothing else noticed. What a checkpoint claims may be anything, and what a mount says of damage is all that is said."""

from __future__ import annotations

import errno
import os
import random
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rig import (
    CHECKPOINT,
    LAST,
    PAD,
    PAGE,
    TRANSLATION,
    TRIM,
    USER,
    Rig,
    forge,
    sections_bytes,
    table_entry,
    without_a_block,
)  # fmt: skip
from schemes import KINDS

import nandimg
from flashfs.crash.programs import fitting
from flashfs.device import Device
from flashfs.engine.device.metalog import (
    DESCRIPTOR,
    EXTENT,
    INDEX,
    MAGIC_DESCRIPTOR,
    MAGIC_INDEX,
    SECTION,
    LoadedCheckpoint,
    parse_index,
    sealed,
)
from flashfs.errors import CorruptError, DeviceFailedError, UncorrectableError
from flashfs.ftl import SCHEMES
from flashfs.inspect._view import Spare
from nandimg import PRESETS, FaultyNand, Geometry, checksum

NONE = 0xFFFFFFFF
SMALL = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=64, channels=1, dies=2, oob_bytes=64, lpas=700)
ALL = pytest.mark.parametrize("ftl", KINDS)


# --- what a checkpoint claims


class Pages:
    """Metadata pages by PPA, and which of them were asked for."""

    def __init__(self, **pages: bytes) -> None:
        self.pages: dict[int, bytes] = {}
        self.asked: list[int] = []

    def read(self, ppa: int) -> bytes | None:
        self.asked.append(ppa)
        return self.pages.get(ppa)

    def load(self, most: int = 100) -> LoadedCheckpoint:
        return LoadedCheckpoint(self.read, 0, PAGE, most)

    def describe(
        self, total: int, sections: list[tuple[bytes, int, int]], extents: list[tuple[int, int]], previous: int = NONE
    ) -> None:
        """The descriptor, at PPA 0: sections as (name, bytes, checksum), extents as (PPA, pages)."""
        raw = DESCRIPTOR.pack(MAGIC_DESCRIPTOR, 0, 1, 1, 1, total, 0, len(sections), len(extents), previous, 1)
        raw += b"".join(SECTION.pack(*one) for one in sections) + b"".join(EXTENT.pack(*one) for one in extents)
        self.pages[0] = sealed(raw.ljust(PAGE, b"\0"))

    def index(self, ppa: int, extents: list[tuple[int, int]], previous: int = NONE, magic: bytes = MAGIC_INDEX) -> None:
        raw = INDEX.pack(magic, 0, len(extents), previous) + b"".join(EXTENT.pack(*one) for one in extents)
        self.pages[ppa] = sealed(raw.ljust(PAGE, b"\0"))


def test_a_section_whose_checksum_is_wrong_is_refused() -> None:
    """Each page has a valid checksum of its own, which proves nothing for a section that spans pages."""
    data = bytes(range(100))
    made = Pages()
    made.pages[1] = data.ljust(PAGE, b"\0")
    made.describe(100, [(b"pool", 100, checksum(data))], [(1, 1)])
    assert made.load().sections == {"pool": data}
    made.describe(100, [(b"pool", 100, checksum(data) ^ 1)], [(1, 1)])
    with pytest.raises(CorruptError, match="section 'pool' fails its checksum"):
        made.load()


def test_a_section_ends_where_the_stream_ends() -> None:
    """What fills up the last page is no part of it, even if it has the right checksum."""
    data = bytes(range(200)) * 2
    made = Pages()
    made.pages[1] = data.ljust(PAGE, b"\0")
    parts = [(b"a", 200, checksum(data[:200])), (b"b", 300, checksum(made.pages[1][200:500]))]
    made.describe(400, parts, [(1, 1)])
    with pytest.raises(CorruptError, match="section 'b' fails its checksum"):
        made.load()


def test_an_index_that_claims_more_than_a_device_has_is_refused_before_it_is_followed() -> None:
    made = Pages()
    made.index(1, [(10, 1 << 20)])
    made.describe(PAGE << 20, [], [], previous=1)
    with pytest.raises(CorruptError, match=r"1048577 pages in 1 extents: it may have 100 at most"):
        made.load()
    assert made.asked == [0, 1]


def test_a_sealed_page_of_another_kind_is_no_index() -> None:
    made = Pages()
    made.pages[2] = bytes(PAGE)
    made.index(1, [(2, 1)], magic=b"FFTR")
    assert parse_index(made.pages[1]) is None
    made.describe(PAGE, [(b"a", PAGE, checksum(bytes(PAGE)))], [], previous=1)
    with pytest.raises(CorruptError, match="index page at PPA 1 is not whole"):
        made.load()
    made.index(1, [(2, 1)])
    assert made.load().sections == {"a": bytes(PAGE)}


def test_as_many_extents_as_a_descriptor_holds() -> None:
    """One more takes an index page, which holds all that fit it."""
    table = 3 * SECTION.size
    fit = (PAGE - DESCRIPTOR.size - table) // EXTENT.size
    with Device.memory(SMALL, "pagemap") as device:
        programs = device.stats()["nand"]["program"]
        extents = [(2 * n, 1) for n in range(fit + 1)]
        assert device.ssd.meta._write_index(extents[:fit], table, 1) == (NONE, extents[:fit])
        assert device.stats()["nand"]["program"] == programs
        last, rest = device.ssd.meta._write_index(extents, table, 1)
        assert last != NONE
        assert rest == extents[(PAGE - INDEX.size) // EXTENT.size :]
        assert device.stats()["nand"]["program"] == programs + 1


# --- when a checkpoint is due


def plan_of(saved: int, geometry: Geometry) -> tuple[int, int]:
    """Pages that a checkpoint of ``saved`` bytes takes at most, and log blocks that may follow it."""
    content = -(-saved // geometry.page_bytes)
    index = (content // geometry.pages_per_block + 2) * EXTENT.size // geometry.page_bytes
    pages = content + 2 + index + 4 * geometry.paired_pages
    blocks = -(-pages // geometry.pages_per_block)
    return pages, 0 if geometry.blocks < 64 else max(1, blocks // 4)


@pytest.mark.parametrize("blocks", [62, 64])
def test_the_log_may_grow_by_so_much_before_a_checkpoint_is_due(blocks: int) -> None:
    """Trims that are flushed one by one take a page each: what is left of the checkpoint's last block, and on all but
    the smallest chips as many blocks more as the plan has; fewer than two pages are not kept."""
    geometry = replace(SMALL, blocks=blocks, lpas=600)
    with Device.memory(geometry, "pagemap", {"buffer": 0}) as device:
        device.write(0, b"x" * (500 * PAGE))
        device.checkpoint()
        meta, per_block = device.ssd.meta, geometry.pages_per_block
        assert (meta.checkpoint_pages, meta.log_blocks_most) == plan_of(sections_bytes(device.ssd), geometry)
        assert len(meta.blocks) == meta.checkpoint_blocks == 1
        room = per_block - 1 - meta.descriptor_ppa % per_block + meta.log_blocks_most * per_block
        before, trims = meta.checkpoints_n, 0
        while meta.checkpoints_n == before:
            device.trim(2 * trims * PAGE, PAGE)
            device.flush()
            trims += 1
            assert trims < 10 * per_block
        assert trims == room


# --- what a mount makes of damage


@pytest.fixture
def rig(ftl: str, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "chip", ftl)
    yield made
    made.device.close(clean=False)


@ALL
def test_a_page_that_was_flushed_and_looks_erased_is_told_of(rig: Rig) -> None:
    """The scan of its block ends there as if nothing had ever come. A mapping that needs no scan still
    has it in its map: a read reports it."""
    rig.write(0, 1)
    rig.device.checkpoint()
    rig.write(8)
    rig.device.flush()
    rig.kill()
    ppa = rig.ppa(8)
    rig.blank(ppa)
    said = rig.open()
    block, page = divmod(ppa, rig.geometry.pages_per_block)
    if rig.device.ssd.mapping.known_without_scan() is None:
        older = f"PPA {ppa}: a page that was flushed cannot be read: its LPA may show an older version"
        assert said == [older if page else f"block {block}: its first page was flushed and cannot be read"]
    else:
        assert said == []
        with pytest.raises(UncorrectableError):
            rig.device.read(8 * PAGE, PAGE)
    assert rig.figures["torn"] == 0


@ALL
@pytest.mark.parametrize("damage", ["wreck", "rot"])
def test_torn_pages_are_counted(rig: Rig, damage: str) -> None:
    """Those of data, of which the last one's data are looked at too, and those of the metadata log."""
    rig.write(0, 1)
    rig.device.checkpoint()
    rig.write(8)
    rig.device.trim(0, PAGE)
    rig.device.flush()
    rig.write(9)
    rig.kill()
    (log,) = rig.find(lambda spare: spare.kind == TRIM)
    getattr(rig, damage)(rig.ppa(9))
    rig.open(readonly=True)
    assert rig.figures["torn"] == 1
    assert rig.device.recovery.summary().endswith("1 torn")
    rig.kill()
    getattr(rig, damage)(log)
    rig.open(readonly=True)
    assert rig.figures["torn"] == 2


def in_a_block(path: Path, ftl: str) -> Rig:
    """Two pages that are written one after the other lie side by side: not if they are striped page by page."""
    placed = any(option.name == "place" for option in SCHEMES[ftl].options)
    return Rig(path, ftl, options={"buffer": "0", **({"place": "streams"} if placed else {})})


@ALL
def test_pages_behind_those_that_cannot_be_read_count(ftl: str, tmp_path: Path) -> None:
    """Nothing says when such a block was opened, so no page of it can be called another's; and it is not written on."""
    rig, lpa = in_a_block(tmp_path / "chip", ftl), 5  # no first page of a data block: both versions are in a log block
    rig.write(lpa)
    rig.device.checkpoint()
    rig.write(lpa, mark=b"b")
    rig.kill()
    per_block = rig.geometry.pages_per_block
    old, new = rig.find(lambda spare: spare.kind == USER and spare.lpa == lpa)
    assert (new, old % per_block) == (old + 1, 0)
    rig.wreck(old)
    assert rig.open(readonly=True) == [f"block {old // per_block}: its first page was flushed and cannot be read"]
    assert rig.holds(lpa) == b"b"
    assert rig.device.ssd.pool.describe(old // per_block)["state"] == "closed"


@ALL
def test_the_second_page_of_a_block_stands_in_for_the_first(ftl: str, tmp_path: Path) -> None:
    """Though there is no third one."""
    rig = in_a_block(tmp_path / "chip", ftl)
    rig.write(0, 1)
    rig.device.flush()
    rig.kill()
    first, second = rig.find(lambda spare: spare.kind == USER)
    assert second == first + 1
    rig.wreck(first)
    block = first // rig.geometry.pages_per_block
    assert rig.open(readonly=True)[0] == f"block {block}: its first page was flushed and cannot be read"
    assert rig.holds(1) == b"a"


def test_a_block_that_was_open_at_a_crash_stays_open(tmp_path: Path) -> None:
    """Where the scheme has it so: what follows goes into it."""
    rig = Rig(tmp_path / "chip", "slimftl")
    rig.write(0, 1)
    rig.device.flush()
    rig.kill()
    (block,) = {ppa // rig.geometry.pages_per_block for ppa in rig.find(lambda spare: spare.kind == USER)}
    assert rig.open() == []
    assert rig.device.ssd.pool.describe(block)["state"] == "open"
    rig.write(2)
    assert rig.device.ssd.mapping.explain(2)["ppa"] == block * rig.geometry.pages_per_block + 2


# --- the protected write buffer


@ALL
def test_the_first_page_ever_comes_back_from_the_nvram_without_a_checkpoint(ftl: str, tmp_path: Path) -> None:
    """All numbers count if nothing says what was in flash before. What is put back is the recovery's, not the host's:
    at once, under its own number, so that a cut meanwhile finds it in either place."""
    rig = Rig(tmp_path / "chip", ftl, PRESETS["tiny-24d"].geometry, plp=True, options={})
    rig.device.write(3 * PAGE, b"n" * PAGE)
    rig.kill()
    rig.wreck(*rig.find(lambda spare: spare.kind == CHECKPOINT))
    rig.open()
    assert rig.figures["nvram_pages"] == 1
    assert rig.holds(3) == b"n"
    assert rig.device.stats()["nand"]["by_cause"]["program"]["recovery"] == 1
    assert "host" not in rig.device.stats()["nand"]["by_cause"]["program"]
    rig.kill()


@ALL
def test_a_page_in_the_nvram_that_no_device_has_is_passed_over(ftl: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path / "chip", ftl, PRESETS["tiny-24d"].geometry, plp=True, options={})
    rig.device.write(0, b"n" * PAGE)
    rig.kill()
    for slot, lpa in enumerate((rig.geometry.lpas, rig.geometry.lpas - 1), 1):
        saved = struct.pack("<IQ", lpa, 10) + b"m" * PAGE
        rig.strike(rig.layout.nvram_at + slot * (16 + PAGE), struct.pack("<I", checksum(saved)) + saved)
    assert rig.open() == []
    assert rig.figures["nvram_pages"] == 2
    assert rig.holds(0) == b"n"
    assert rig.holds(rig.geometry.lpas - 1) == b"m"
    assert rig.device.problems() == []
    rig.kill()


# --- the image's own disk


@ALL
def test_a_sync_that_failed_stops_the_device(ftl: str, tmp_path: Path) -> None:
    """What it was to write may be gone, and the next sync would not say so again."""
    rig = Rig(tmp_path / "chip", ftl)
    rig.write(1)
    fd = rig.device._image.chip.fileno()
    kept, reader = os.dup(fd), os.pipe()
    try:
        os.dup2(reader[0], fd)  # nothing that can be synced
        with pytest.raises(OSError) as failed:
            rig.device.flush()
        assert failed.value.errno == errno.EINVAL
    finally:
        os.dup2(kept, fd)
        for one in (kept, *reader):
            os.close(one)
    for change in (rig.device.flush, rig.device.checkpoint, lambda: rig.write(2)):
        with pytest.raises(DeviceFailedError, match="a sync of the image failed, and what it was to write may be lost"):
            change()
    rig.kill()
    rig.open()
    assert rig.device.problems() == []
    rig.kill()


# --- the metadata log's blocks


@ALL
def test_the_log_of_a_device_that_is_only_looked_at(ftl: str, tmp_path: Path) -> None:
    """Its blocks are given up, whatever is left in them; after a clean checkpoint they are written further."""
    rig = Rig(tmp_path / "chip", ftl, SMALL)
    rig.write(*range(40))
    rig.device.trim(0, PAGE)
    rig.device.flush()
    rig.kill()
    assert rig.open(readonly=True) == []
    pool = rig.device.ssd.pool
    log = [pool.describe(block) for block in rig.device.ssd.meta.blocks]
    assert log
    assert {(one["state"], one["stream"], one["next_page"]) for one in log} == {("meta", "meta", 16)}
    rig.device.close()
    rig.open()
    rig.device.close()
    descriptor = rig.find(lambda spare: bool(spare.kind == CHECKPOINT and spare.flags & LAST))[-1]
    rig.open()
    assert rig.device.recovery.clean
    assert rig.device.ssd.meta.descriptor_ppa == descriptor
    assert rig.device.ssd.pool.describe(descriptor // 16)["next_page"] == descriptor % 16 + 1
    rig.kill()


@ALL
def test_a_descriptor_whose_program_fails_is_the_same_on_the_next_page(ftl: str) -> None:
    """Where pages are paired it is padded once more, in another block. Each program of a checkpoint fails in turn."""
    geometry, again = replace(PRESETS["tiny-20p"].geometry, blocks=20 if ftl in fitting("tiny-20p") else 24), 0
    for failing in range(1, 40):
        image = nandimg.memory_image(geometry)
        device = Device.start(image, ftl, {"buffer": 0}, lambda chip, at=failing: FaultyNand(chip, failing={at}))
        device.checkpoint()
        spares = [
            (block, Spare.of(raw)) for block in range(geometry.blocks) for page in range(geometry.pages_per_block)
            for status, raw in [device.nand.read_spare_area(block, page)] if status == 1
        ]  # fmt: skip
        log = [(block, spare) for block, spare in spares if spare.kind == CHECKPOINT]
        last = [spare for _, spare in log if spare.flags & LAST]
        assert {spare.lpa for spare in last} == {0}
        assert max(Counter(spare.seq for spare in last).values()) <= 2  # the second try is where it may be
        again += any(
            {spare.kind for at, spare in spares if at == block} == {PAD, CHECKPOINT}
            and [spare.flags & LAST for at, spare in log if at == block] == [LAST]
            for block, _ in log
        )
        device.close()
    assert again


# --- erases that a host lost


@pytest.mark.parametrize(("ahead", "after"), [(0, 40_001), (1, 40_002), (65_536, 105_537), (65_537, 40_001)])
def test_the_first_erase_passes_the_epochs_that_a_dead_host_left(tmp_path: Path, ahead: int, after: int) -> None:
    """However often the block was erased before; one that is too far ahead is damage."""
    path, erases = tmp_path / "chip", 40_000
    nandimg.create(path, SMALL)
    layout = nandimg.inspect(path).layout
    image = nandimg.open_image(path)
    image.chip.program_page(0, 0, b"x" * PAGE, bytes(64))
    image.close()
    with path.open("r+b") as file:
        file.seek(layout.spare_at)
        file.write(struct.pack("<I", erases + 1 + ahead))
        file.seek(layout.table_at)
        file.write(table_entry(erases, 0, 0))
    image = nandimg.open_image(path)
    image.chip.erase_block(0)
    assert image.chip.erase_count(0) == after
    image.close()


# --- a mapping that does not fit the pages


MANY = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=100, dies=2, oob_bytes=160, lpas=1_000)


GUESSES = [("pagemap", {}), ("slimftl", {}), ("leaftl", {}), ("leaftl", {"gamma": "4"})]


@pytest.mark.parametrize(("ftl", "options"), GUESSES)
def test_the_pages_of_a_block_that_is_gone_are_holes(ftl: str, options: dict[str, str], tmp_path: Path) -> None:
    """The others are all there, and what was a hole can be written."""
    rig = Rig(tmp_path / "chip", ftl, MANY, options={"buffer": "0", **options})
    for lpa in range(0, 300, 3):
        rig.write(lpa, mark=bytes([1 + lpa % 250]))
    rig.device.checkpoint()
    rig.kill()
    lost = without_a_block(rig, 90)
    assert 0 < len(lost) < 100
    alarms = rig.open()
    assert any("the recovered mapping does not fit the pages" in alarm for alarm in alarms), alarms
    for lpa in range(300):
        assert rig.holds(lpa) == bytes([0 if lpa % 3 or lpa in lost else 1 + lpa % 250]), lpa
    assert rig.device.problems() == []
    rig.write(*lost, mark=b"w")
    rig.kill()
    assert rig.open() == []
    assert {rig.holds(lpa) for lpa in lost} == {b"w"}
    rig.kill()


@pytest.mark.parametrize(("truth", "liar"), [(20, 200), (200, 206)])
def test_two_pages_that_say_the_same_of_themselves(truth: int, liar: int, tmp_path: Path) -> None:
    """Where a mapping only guesses, each live page is asked; the newest counts, wherever it is, and is found then."""
    rig = Rig(tmp_path / "chip", "leaftl", MANY, options={"buffer": "0", "gamma": "4"})
    for lpa in range(300):
        rig.write(lpa, mark=bytes([1 + lpa % 250]))
    rig.device.checkpoint()
    seq = rig.device.ssd.seq
    rig.kill()
    assert (rig.ppa(liar) > rig.ppa(truth)) == (truth == 200)
    forge(rig, rig.ppa(liar), seq=seq, lpa=truth)
    lost = without_a_block(rig, 90)
    assert not {truth, liar} & set(lost)
    alarms = rig.open()
    assert any("the recovered mapping does not fit the pages" in alarm for alarm in alarms), alarms
    assert rig.holds(truth) == bytes([1 + liar % 250])
    assert rig.holds(liar) == b"\0"
    assert rig.device.problems() == []
    rig.kill()


def test_pages_that_nobody_can_ask_beside_a_block_that_is_gone(tmp_path: Path) -> None:
    """A guess meets nothing there, and the lists of LPAs are gone with the pages: no page stays live without an LPA."""
    rig, rnd = Rig(tmp_path / "chip", "leaftl", MANY, options={"buffer": "64", "gamma": "4"}), random.Random(5)
    lpas = sorted(rnd.sample(range(1000), 300))
    for lpa in lpas:
        rig.write(lpa, mark=bytes([1 + lpa % 250]))
    rig.device.checkpoint()
    rig.kill()
    gone = without_a_block(rig, lpas[90])
    first = rig.ppa(lpas[200]) // 16 * 16
    torn = [lpa for lpa in lpas if first <= rig.ppa(lpa) < first + 16]
    assert not set(gone) & set(torn)
    rig.wreck(*range(first, first + 16))
    alarms = rig.open()
    assert any("the recovered mapping does not fit the pages" in alarm for alarm in alarms), alarms
    for lpa in set(lpas) - {*gone, *torn}:
        assert rig.holds(lpa) == bytes([1 + lpa % 250]), lpa
    assert list(rig.device.ssd.validity.live_in(first // 16)) == []
    assert rig.device.problems() == []
    rig.kill()


TABLE = {"buffer": "0", "table_bytes": "1"}


def written(rig: Rig) -> None:
    for lpa in range(0, 900, 2):
        rig.write(lpa, mark=bytes([1 + lpa % 250]))


def test_a_translation_page_in_a_block_that_is_gone(tmp_path: Path) -> None:
    """The block table calls its block bad: that part of the table is rebuilt from the user pages, all of which are
    there, and the mount reports it."""
    rig = Rig(tmp_path / "chip", "leaftl", MANY, options=TABLE)
    written(rig)
    rig.device.checkpoint()
    homes = rig.device.ssd.mapping.directory.ppas()
    rig.kill()
    rig.call_bad(homes[0] // 16)
    assert any("does not fit the pages" in alarm for alarm in rig.open())
    for lpa in range(900):
        assert rig.holds(lpa) == (bytes(1) if lpa % 2 else bytes([1 + lpa % 250]))
    assert rig.device.problems() == []
    rig.kill()


def test_no_translation_page_is_taken_for_the_page_of_an_lpa(tmp_path: Path) -> None:
    """Where a mapping only guesses, each live page is asked; among them are some whose number is not an LPA."""
    rig = Rig(tmp_path / "chip", "leaftl", MANY, options={**TABLE, "gamma": "4"})
    lpas = [lpa for lpa in range(1000) if lpa % 6 in (0, 1, 3)]
    random.Random(5).shuffle(lpas)
    for lpa in lpas:
        rig.write(lpa, mark=bytes([1 + lpa % 250]))
    rig.device.checkpoint()
    ids = {page["first_group"] * 6 for page in rig.device.ssd.mapping.directory.entries() if page["ppas"]}
    rig.kill()
    assert ids & set(lpas)
    lost = without_a_block(rig, lpas[90])
    alarms = rig.open()
    assert any("the recovered mapping does not fit the pages" in alarm for alarm in alarms), alarms
    for lpa in set(lpas) - set(lost):
        assert rig.holds(lpa) == bytes([1 + lpa % 250]), lpa
    assert rig.device.problems() == []
    rig.kill()


def test_all_pages_are_found_once_where_the_map_is_lost(tmp_path: Path) -> None:
    """The scan begins anew, and what it found before is forgotten."""
    rig = Rig(tmp_path / "chip", "leaftl", MANY, options=TABLE)
    written(rig)
    rig.device.checkpoint()
    for lpa in range(0, 300, 6):
        rig.write(lpa, mark=b"n")
    rig.device.flush()
    spoilt = rig.device.ssd.mapping.translation_pages()
    rig.kill()
    rig.rot(*spoilt)
    pages = len(rig.find(lambda spare: spare.kind == USER))
    assert any("all pages are read" in alarm for alarm in rig.open())
    assert rig.figures["pages_found"] == pages
    for lpa in range(0, 300, 2):
        assert rig.holds(lpa) == (bytes([1 + lpa % 250]) if lpa % 6 else b"n")
    rig.kill()


def test_a_checkpoint_that_could_not_be_written_leaves_alive_what_the_last_one_stands_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "chip", "leaftl", MANY, options=TABLE, sync="none")
    written(rig)
    rig.device.checkpoint()
    for lpa in range(0, 900, 90):
        rig.write(lpa, mark=b"n")
    mapping = rig.device.ssd.mapping
    kept = set(mapping.translation_pages()) - set(mapping.directory.ppas())
    assert kept
    assert rig.device.problems() == []
    fd = rig.device._image.chip.fileno()
    held, reader = os.dup(fd), os.pipe()
    try:
        os.dup2(reader[0], fd)  # nothing that can be written
        with pytest.raises(OSError):
            rig.device.checkpoint()
    finally:
        os.dup2(held, fd)
        for one in (held, *reader):
            os.close(one)
    assert kept <= set(mapping.translation_pages())
    assert all(ppa % 16 in rig.device.ssd.validity.live_in(ppa // 16) for ppa in kept)
    assert rig.device.problems() == []
    rig.kill()


def test_a_translation_page_that_the_checkpoint_does_not_know_counts_for_nothing(tmp_path: Path) -> None:
    """Even the first of all, whose number is one above the last LPA."""
    rig = Rig(tmp_path / "chip", "leaftl", MANY, options=TABLE)
    rig.write(*range(300, 900))
    rig.device.checkpoint()
    seq = rig.device.ssd.seq
    rig.write(400, mark=b"n")
    rig.write(401, mark=b"n")
    rig.device.flush()
    rig.kill()
    forge(rig, rig.ppa(400), seq=seq, kind=TRANSLATION, lpa=0)
    assert rig.open() == []
    assert rig.device.problems() == []
    assert (rig.holds(0), rig.holds(400), rig.holds(401)) == (b"\0", b"a", b"n")
    rig.kill()
