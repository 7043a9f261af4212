"""DFTL's own: the cached mapping table against a model of it, what a look-up costs, what eviction and trims write."""

from __future__ import annotations

import errno
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slru import SegmentedLru

from flashfs.crash import Case, run_case
from flashfs.device import Device
from flashfs.engine.views import block_map
from flashfs.errors import BindError
from flashfs.parts.paged.cmt import ENTRY_BYTES as ENTRY
from flashfs.parts.paged.cmt import Cmt
from nandimg import PRESETS, Geometry

PAGE = 512
PER_PAGE = PAGE // 4
#: 24 translation pages; room for cleaning
SMALL = Geometry(page_bytes=PAGE, pages_per_block=32, blocks=128, channels=4, dies=4, oob_bytes=64, lpas=3_000)


def dftl(geometry: Geometry = SMALL, **options: Any) -> Device:
    return Device.memory(geometry, "dftl", {"buffer": 0, "wear_spread": 1 << 20, **options})


def figures(device: Device) -> dict[str, Any]:
    found: dict[str, Any] = device.ssd.mapping.figures()
    return found


def write(device: Device, first: int, n: int = 1) -> None:
    lpas = np.arange(first, first + n, dtype=np.uint32)
    device.ssd.write_pages(lpas, np.frombuffer(b"".join(page_of(lpa) for lpa in range(first, first + n)), np.uint8))


def page_of(lpa: int) -> bytes:
    return lpa.to_bytes(4, "little") * (PAGE // 4)


def read(device: Device, first: int, n: int = 1, t_ns: int = 0) -> tuple[bytes, int]:
    into = bytearray(n * PAGE)
    end = device.ssd.read_pages(np.arange(first, first + n, dtype=np.uint32), np.frombuffer(into, np.uint8), t_ns)
    return bytes(into), end


@pytest.mark.parametrize("slots", [8, 40, 300, 1_500])
@pytest.mark.parametrize("protected", [0, 50, 80])
def test_the_cache_is_the_models(slots: int, protected: int) -> None:
    """Look-ups, hits and translation reads for misses are those of the model, exactly, through evictions and cleaning:
    single pages, runs longer than a batch, hot ones and cold."""
    rnd = random.Random(f"{slots} {protected}")
    device = dftl(cmt_bytes=slots * ENTRY, protected=protected)
    model = SegmentedLru(slots, slots * protected // 100, PER_PAGE)
    for _ in range(4_000):
        first = int(SMALL.lpas * rnd.random() ** 3)
        n = min(rnd.choice((1, 1, 1, 2, 8, 40)), SMALL.lpas - first)
        writing = rnd.random() < 0.6
        (write if writing else read)(device, first, n)
        for lpa in range(first, first + n):
            model.look_up(lpa, writing)
    found = figures(device)
    assert (found["lookups"], found["hits"], found["loads"]) == (model.lookups, model.hits, model.loads)
    assert device.stats()["nand"]["by_cause"]["program"]["gc"] > 0
    assert device.problems() == []


def test_a_hit_goes_to_the_protected_segment() -> None:
    device = dftl(cmt_bytes=8 * ENTRY)
    for lpa in (0, 1, 2, 0):
        write(device, lpa)
    held = device.ssd.mapping.cmt.entries()
    assert [(entry["lpa"], entry["segment"]) for entry in held] == [
        (1, "probationary"), (2, "probationary"), (0, "protected")]  # fmt: skip


def test_the_cmt_takes_what_it_says() -> None:
    for slots in (8, 1000, 1 << 16):
        packed, allocated = Cmt(slots, 50, 10, 100).sizes()
        assert packed <= ENTRY * slots + 40
        assert allocated <= 1.25 * packed
    device = Device.memory(SMALL, "dftl", {"buffer": 0}, dram=100_000)
    assert sum(packed for packed, _ in device.ssd.dram().values()) <= 100_000
    with pytest.raises(BindError, match="dftl needs"):
        Device.memory(SMALL, "dftl", {"buffer": 0, "cmt_bytes": 8 * ENTRY},
                      dram=sum(packed for packed, _ in dftl(cmt_bytes=8 * ENTRY).ssd.dram().values()) - 1)


def test_one_eviction_takes_all_dirty_entries_of_its_page() -> None:
    """D dirty entries in one translation page: one program for all, and they stay, clean."""
    device = dftl(cmt_bytes=64 * ENTRY)
    write(device, 0, 40)
    for lpa in range(PER_PAGE, PER_PAGE + 25):
        write(device, lpa)
    found = figures(device)
    assert found["dirty_evictions"] == found["translation_programs"] == 1
    assert found["entries_written"] == 40
    assert found["evictions"] == 1
    assert found["cached"] == 64
    assert found["dirty"] == 25


def test_two_misses_side_by_side_cost_one_after_the_other_only_where_they_must() -> None:
    """Two pages whose entries lie in translation pages on two dies: one translation read and one data read, and the
    transfers of both over their channels. In one translation page, the second read of it waits for the first."""
    geometry = Geometry(page_bytes=PAGE, pages_per_block=4, blocks=1024, channels=4, dies=4, oob_bytes=64, lpas=3_000)
    device = dftl(geometry, cmt_bytes=8 * ENTRY, stripe=1)
    for lpa in range(0, SMALL.lpas, PER_PAGE):
        write(device, lpa)
        write(device, lpa + 1)
    for lpa in range(0, 64 * 8, 8):  # every page is written back by now
        write(device, lpa)
    for lpa in range(9, 9 + 32 * 8, 8):  # and the cache holds what need not be written back
        read(device, lpa)
    mapping, ssd = device.ssd.mapping, device.ssd
    homes = {entry["page"]: entry["ppa"] for entry in mapping.directory.entries()}
    where = {lpa: mapping.explain(lpa) for lpa in range(0, SMALL.lpas, PER_PAGE)}
    die = lambda ppa: ppa // geometry.pages_per_block % geometry.dies  # noqa: E731
    located = block_map.locations(ssd)
    pair = next(
        (a, b) for a in where for b in where
        if a < b and a // PER_PAGE in homes and b // PER_PAGE in homes
        and die(homes[a // PER_PAGE]) != die(homes[b // PER_PAGE])
        and len({die(located[a]), die(located[b]), die(homes[a // PER_PAGE]), die(homes[b // PER_PAGE])}) == 4
        and where[a]["where"] == where[b]["where"] == "in flash"
    )  # fmt: skip
    start = device.quiet_at() + 1_000
    ends = []
    into = np.zeros(2 * PAGE, np.uint8)
    ends.append(ssd.read_pages(np.array(pair, np.uint32), into, start))
    one = SMALL.read_ns + SMALL.transfer_ns
    assert ends[0] == start + 2 * one
    assert into.tobytes() == page_of(pair[0]) + page_of(pair[1])


def test_a_look_that_is_not_the_hosts_counts_nowhere() -> None:
    device = dftl(cmt_bytes=16 * ENTRY)
    write(device, 0, 900)
    held, before = device.ssd.mapping.cmt.entries(), figures(device)
    assert device.problems() == []
    assert device.extent(0, mapped=True) == 0
    assert device.extent(0, mapped=False) == 900 * PAGE
    assert device.ssd.mapped(17)
    after = figures(device)
    assert device.ssd.mapping.cmt.entries() == held
    for name in ("lookups", "hits", "evictions", "translation_programs"):
        assert after[name] == before[name]


def test_a_trim_of_whole_pages_costs_by_translation_page() -> None:
    """The entries go with their page: one read for each that exists, none for the others, and no program."""
    device = dftl(cmt_bytes=16 * ENTRY)
    write(device, 0, 8 * PER_PAGE)
    before = figures(device)
    pages = before["translation_pages"]
    device.trim(0, SMALL.lpas * PAGE)
    found = figures(device)
    assert found["translation_reads"] - before["translation_reads"] <= pages
    assert found["translation_programs"] == before["translation_programs"]
    assert device.ssd.mapping.directory.entries() == []
    assert device.ssd.mapping.cmt.used == 0
    assert read(device, 0, 8 * PER_PAGE)[0] == bytes(8 * PER_PAGE * PAGE)
    assert device.problems() == []


def test_a_discard_of_two_tebibytes_is_quick() -> None:
    """Half a million translation pages that there are not: no look at each LPA."""
    geometry = PRESETS["geckoftl-2t"].geometry
    device = Device.memory(geometry, "dftl", {"cmt_bytes": 1 << 20}, backend="meta")
    write_lpas = np.array([5, geometry.lpas - 1], np.uint32)
    device.ssd.write_pages(write_lpas)
    device.trim(0, geometry.logical_bytes)
    assert figures(device)["translation_reads"] <= 2
    assert not device.ssd.mapped(5)
    assert not device.ssd.mapped(geometry.lpas - 1)


def test_what_is_trimmed_in_part_waits_and_is_written_back() -> None:
    device = dftl(cmt_bytes=16 * ENTRY)
    write(device, 0, 20 * PER_PAGE)
    for page in range(20):
        device.trim((page * PER_PAGE + 3) * PAGE, 100 * PAGE)
    assert figures(device)["pending"] > 0
    for _ in range(20):
        device.ssd.idle()
    assert figures(device)["pending"] <= device.ssd.mapping.pending_most
    for page in range(20):
        assert read(device, page * PER_PAGE + 3, 100)[0] == bytes(100 * PAGE)
        assert read(device, page * PER_PAGE + 2)[0] == page_of(page * PER_PAGE + 2)
    assert device.problems() == []


def test_reading_goes_on_when_nothing_can_be_written() -> None:
    """A dirty entry cannot leave the cache: then a read goes past it, and all that was written reads."""
    from nandimg._fault_filters import HostErrors

    held: list[HostErrors] = []

    def front(chip: Any) -> Any:
        held.append(HostErrors(chip, errno.ENOSPC, 1 << 40, True))
        return held[0]

    with tempfile.TemporaryDirectory(prefix="flashfs-dftl-") as folder:
        from nandimg import create

        path = Path(folder) / "image.nand"
        create(path, SMALL)
        with Device.open(path, ftl="dftl", options={"buffer": "0", "cmt_bytes": str(16 * ENTRY)}) as device:
            write(device, 0, 500)
            device.flush()
        with Device.open(path, options={"buffer": "0", "cmt_bytes": str(16 * ENTRY)}, readonly=True) as device:
            for lpa in range(500):
                assert read(device, lpa)[0] == page_of(lpa)
            assert device.stats()["nand"]["program"] == 0


def test_a_read_may_be_the_first_change_after_a_clean_mount() -> None:
    """It writes a translation page, so the mark of a mount is there first: a crash then must not be taken for clean."""
    with tempfile.TemporaryDirectory(prefix="flashfs-dftl-") as folder:
        from nandimg import create

        path = Path(folder) / "image.nand"
        create(path, SMALL)
        options = {"buffer": "0", "cmt_bytes": str(16 * ENTRY)}
        with Device.open(path, ftl="dftl", options=options) as device:
            write(device, 0, 500)
        device = Device.open(path, options=options)
        assert device.recovery.clean
        for lpa in range(499, -1, -1):  # what was dirty when it was unmounted comes first, and must leave again
            assert read(device, lpa)[0] == page_of(lpa)
        assert device.stats()["nand"]["by_cause"]["program"]["map"] > 0
        assert not device.ssd.unchanged_since_clean()
        device.close(clean=False)
        with Device.open(path, options=options) as device:
            assert not device.recovery.clean
            assert device.problems() == []
            for lpa in range(500):
                assert read(device, lpa)[0] == page_of(lpa)


def test_a_translation_page_that_cannot_be_read_is_made_again() -> None:
    from nandimg._torn import spoil

    device = dftl(cmt_bytes=16 * ENTRY)
    write(device, 0, 1_000)
    device.trim(5 * PAGE, PAGE)
    device.flush()
    for entry in device.ssd.mapping.directory.entries()[:3]:
        block, page = divmod(entry["ppa"], SMALL.pages_per_block)
        spoil(device.nand, block, page)
    for lpa in range(1_000):
        assert read(device, lpa)[0] == (bytes(PAGE) if lpa == 5 else page_of(lpa))
    assert figures(device)["rebuilds"] >= 3


def test_dirty_entries_share_their_programs() -> None:
    """Uniform writes into a plain LRU of R entries over T translation pages: from one write-back of a page to the next
    pass R writes and those until the page is hit, so 1 + R/T entries go back at a time."""
    geometry = Geometry(page_bytes=PAGE, pages_per_block=32, blocks=2048, oob_bytes=64, lpas=16_000)
    slots = 1_024
    device = dftl(geometry, cmt_bytes=slots * ENTRY, protected=0)
    rnd = np.random.default_rng(5)
    write_all = np.arange(geometry.lpas, dtype=np.uint32)
    device.ssd.write_pages(write_all, np.zeros(geometry.lpas * PAGE, np.uint8))
    before = None
    for round_ in range(60):
        for lpa in rnd.integers(0, geometry.lpas, 200).astype(np.uint32):
            device.ssd.write_pages(np.array([lpa]), np.zeros(PAGE, np.uint8))
        if round_ == 20:
            before = figures(device)
    assert before is not None
    pages = geometry.lpas // PER_PAGE
    expected = 1 + slots / pages
    after = figures(device)
    written = after["evicted_entries"] - before["evicted_entries"]
    evictions = after["dirty_evictions"] - before["dirty_evictions"]
    assert written / evictions == pytest.approx(expected, rel=0.05)


def test_a_look_sees_a_page_that_came_back_to_where_it_was_looked_at() -> None:
    """A translation page that is written again, and by chance at the place where its last one but many lay, is another
    page: what was read there says nothing any more."""
    geometry = Geometry(page_bytes=PAGE, pages_per_block=4, blocks=32, oob_bytes=64, lpas=40)
    device = dftl(geometry, cmt_bytes=8 * ENTRY)
    rnd, again = random.Random(3), 0
    for lpa in range(20):
        write(device, lpa)
    for turn in range(60):
        assert [device.ssd.mapped(lpa) for lpa in range(20, 40)] == [False] * 20
        looked_at = device.ssd.mapping.directory.entries()
        write(device, 20 + turn % 20)
        for _ in range(3_000):  # no look meanwhile: the directory reads no page
            write(device, rnd.randrange(20))
            where = device.ssd.mapping.explain(20 + turn % 20)["where"]
            if device.ssd.mapping.directory.entries() == looked_at and where == "in flash":
                again += 1
                assert device.ssd.mapped(20 + turn % 20)
                break
        device.trim((20 + turn % 20) * PAGE, PAGE)
        for lpa in range(20):
            read(device, lpa)
    assert again


def test_what_damage_left_is_still_known_to_be_so_after_a_clean_mount() -> None:
    """LPAs of a rebuilt translation page may all name one page: the live pages are no count of them, then or later."""
    line = (
        "ftl=dftl preset=tiny-24d opt.buffer=0 opt.checkpoint_every=9 opt.cmt_bytes=1 fault=misdirect=42 "
        "cut=22:unstable program='w73+4 w37 w61 i r i w69 w55+2 r w22 w32+3 w73 w56+3 w70 t29+4 w54 w24 w62 f w54 "
        "w71 w55 w54 w7 r w55 t32+2 w28 i f w73 r i f t29+1 w10 w18 w32 t39+2 w54 w46 w25 r w32 t76+2 w10 w32 "
        "w44+3 w21+3 w54 w9 w33 w73 i f'"
    )
    outcome = run_case(Case.parse(line))
    assert outcome.failure is None, str(outcome.failure)
    assert outcome.cuts_hit == 1
