"""SlimFTL's own: entries of 14 bits, the hasher, pages that share another's virtual block."""

from __future__ import annotations

import hashlib
import random
import struct
from pathlib import Path

import numpy as np
import pytest

import nandimg
from flashfs.device import Device
from flashfs.errors import BindError
from flashfs.ftl.hashing.tables import Hasher, PackedTable, hash_place, prime_factors
from nandimg import PRESETS, Geometry

PAGE = 512
#: 256 neighbours have at most 63 candidates of 4 pages: some must go elsewhere
CROWDED = Geometry(page_bytes=PAGE, pages_per_block=4, blocks=512, oob_bytes=64, lpas=1500)


@pytest.mark.parametrize(("pages_per_block", "bits"), [(256, 14), (128, 13), (4, 8), (5, 9)])
def test_an_entry_is_a_hid_and_a_page_number(pages_per_block: int, bits: int) -> None:
    geometry = Geometry(page_bytes=PAGE, pages_per_block=pages_per_block, blocks=64, oob_bytes=64, lpas=133)
    device = Device.memory(geometry, "slimftl")
    assert device.stats()["scheme"]["entry_bits"] == bits
    assert device.ssd.mapping.tables()["primary_table"][0] == -(-133 * bits // 8)


def test_the_tables_are_as_small_as_they_say() -> None:
    """The thesis' device: 14 bits a page and the VBT, and what is allocated is within 1.25 times of it."""
    geometry = PRESETS["slimftl-16g"].geometry
    device = Device.memory(geometry, "slimftl", backend="meta")
    tables = device.ssd.mapping.tables()
    assert tables["primary_table"][0] == geometry.lpas * 14 // 8
    assert tables["virtual_block_table"][0] == 4 * device.stats()["scheme"]["virtual_blocks"]
    assert all(allocated <= 1.25 * packed for packed, allocated in tables.values())
    table = Device.memory(geometry, "pagemap", backend="meta").ssd.mapping.tables()["page_table"][0]
    assert sum(packed for packed, _ in tables.values()) < 0.45 * table


@pytest.mark.parametrize("blocks", [1, 2, 3, 1000, 9011, 2**24 - 2])
def test_md5_is_md5(blocks: int) -> None:
    rnd = random.Random(blocks)
    for key in [0, 1, 2**32 - 1, *(rnd.randrange(2**64) for _ in range(200))]:
        digest = int.from_bytes(hashlib.md5(struct.pack("<Q", key)).digest(), "little")
        for hid in (1, 2, 31, 62, 63):
            assert hash_place(key, hid, blocks, True) == (digest >> hid) % blocks


def test_either_hash_spreads() -> None:
    """Chi-squared over 100 virtual blocks, well within what chance allows."""
    for md5, distinct in ((False, False), (True, False), (False, True), (True, True)):
        counts = [0] * 100
        for key in range(2_000):
            for hid in range(1, 64, 7):
                counts[hash_place(key, hid, 100, md5, distinct)] += 1
        mean = sum(counts) / 100
        assert sum((n - mean) ** 2 / mean for n in counts) < 200


@pytest.mark.parametrize("places", [1, 2, 3, 4, 30, 58, 63, 64, 97, 1001, 9011, 2**24 - 2])
def test_distinct_candidates_are_distinct(places: int) -> None:
    """63 different places, or all there are; spread as evenly as by chance; ``prime_factors`` is right."""
    rest = places
    for prime in prime_factors(places):
        while rest % prime == 0:
            rest //= prime
    assert rest == 1
    firsts = set()
    for key in range(300):
        candidates = {hash_place(key, hid, places, False, True) for hid in range(1, 64)}
        assert len(candidates) == min(63, places)
        assert max(candidates) < places
        firsts.add(hash_place(key, 1, places, False, True))
    assert len(firsts) >= min(places, 180) * 0.6


@pytest.mark.parametrize("places", [1, 2, 1001, 9011, 2**24 - 2, 2**26 - 5, 2**26, 2**32 - 5])
def test_places_are_a_first_and_steps_from_it(places: int) -> None:
    """However a remainder is come by, and whether the hash is remembered: groups of one cell are asked for in turn."""
    rnd = random.Random(places)
    hasher = Hasher(places, 0, False, True)
    keys = [at + 4096 * row for at in (0, 7, 4095) for row in (0, 1, 1000)] + [rnd.randrange(2**32) for _ in range(50)]
    for key in rnd.choices(keys, k=100):
        first, second = hasher.place(key, 1), hasher.place(key, 2)
        step = (second - first) % places
        for hid in (1, 2, 3, 31, 62, 63):
            expected = (first + (hid - 1) * step) % places
            assert hasher.place(key, hid) == expected == hash_place(key, hid, places, False, True)


@pytest.mark.parametrize("pages_per_block", [1, 2, 5, 128, 256, 1000, 65535])
def test_entries_are_counted_by_words(pages_per_block: int) -> None:
    rnd = random.Random(pages_per_block)
    for lpas in (1, 3, 4, 5, 63, 257, 1000):
        table = PackedTable(lpas, pages_per_block)
        assert table.mapped() == 0
        bits, hids = table.entry_bits, [rnd.choice((0, 1, 2, 32, 63)) for _ in range(lpas)]
        word = sum((hid << (bits - 6) | rnd.randrange(pages_per_block)) << (i * bits) for i, hid in enumerate(hids))
        table.load(word.to_bytes(table.bytes, "little"), pages_per_block)
        assert table.hid_counts() == [hids.count(hid) for hid in range(64)]
        assert table.mapped() == sum(map(bool, hids))


def fill(device: Device, rnd: random.Random, lpas: range, model: dict[int, bytes]) -> None:
    for lpa in lpas:
        model[lpa] = rnd.randbytes(PAGE)
        device.write(lpa * PAGE, model[lpa])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("hash_name", ["mix", "md5"])
def test_shared_virtual_blocks(tmp_path: Path, hash_name: str, clean: bool) -> None:
    nandimg.create(tmp_path / "chip", CROWDED)
    device = Device.open(tmp_path / "chip", ftl="slimftl", options={"buffer": "0", "hash": hash_name})
    rnd = random.Random(1)
    model: dict[int, bytes] = {}
    fill(device, rnd, range(256), model)
    shared = device.stats()["scheme"]["shared_pages"]
    assert shared >= 256 - 63 * 4
    before = device.stats()
    for lpa, data in model.items():
        assert device.read(lpa * PAGE, PAGE) == data
    after = device.stats()
    probes = after["scheme"]["extra_reads"] - before["scheme"]["extra_reads"]
    assert probes > 0
    assert after["nand"]["read"] - before["nand"]["read"] == 256 + probes  # each probe is a read, on the account
    assert device.problems() == []
    for _ in range(600):  # overwritten, trimmed, cleaned: the counts follow
        lpa = rnd.randrange(256)
        if rnd.random() < 0.2:
            device.trim(lpa * PAGE, PAGE)
            model.pop(lpa, None)
        else:
            fill(device, rnd, range(lpa, lpa + 1), model)
    device.flush()
    assert device.problems() == []
    device.close(clean=clean)
    with Device.open(tmp_path / "chip") as device:
        assert device.recovery.clean is clean
        for lpa in range(256):
            assert device.read(lpa * PAGE, PAGE) == model.get(lpa, bytes(PAGE)), f"LPA {lpa}"
        assert device.problems() == []
        device.trim(0, 256 * PAGE)
        assert all(device.ssd.mapping.virtual_block(vba)["shared"] in (0, 255) for vba in range(400))


def test_a_crowded_chip_full_and_overwritten() -> None:
    device = Device.memory(CROWDED, "slimftl", {"buffer": 0})
    rnd = random.Random(2)
    model: dict[int, bytes] = {}
    fill(device, rnd, range(CROWDED.lpas), model)
    for _ in range(6_000):
        lpa = rnd.randrange(CROWDED.lpas)
        fill(device, rnd, range(lpa, lpa + 1), model)
    assert device.stats()["scheme"]["shared_pages"] > 0
    for lpa, data in model.items():
        assert device.read(lpa * PAGE, PAGE) == data
    assert device.problems() == []


def test_what_the_structures_say_of_an_lpa() -> None:
    device = Device.memory(PRESETS["tiny-16"].geometry, "slimftl", {"buffer": 0})
    assert device.ssd.mapping.explain(5)["hid"] == 0
    device.write(5 * PAGE, b"x" * PAGE)
    said = device.ssd.mapping.explain(5)
    assert 1 <= said["hid"] <= 63
    assert said["vba"] == hash_place(0, said["hid"], device.options["virtual_blocks"], False, True)
    assert said["ppa"] == said["pba"] * 8 + said["ppid"]
    assert device.ssd.mapping.virtual_block(said["vba"])["pba"] == said["pba"]


def test_neighbours_share_a_block_as_far_as_shift_says() -> None:
    for shift, together in ((0, False), (3, True), (8, True)):
        device = Device.memory(PRESETS["tiny-16"].geometry, "slimftl", {"buffer": 0, "shift": shift})
        device.write(0, b"x" * 8 * PAGE)
        blocks = {device.ssd.mapping.explain(lpa)["pba"] for lpa in range(8)}
        assert (len(blocks) == 1) is together


def test_too_few_virtual_blocks_are_refused() -> None:
    with pytest.raises(BindError, match="virtual"):
        Device.memory(Geometry(page_bytes=PAGE, pages_per_block=8, blocks=16, oob_bytes=64, lpas=104), "slimftl")


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_virtual_block_table_names_blocks_of_its_chip(more: int) -> None:
    device = Device.memory(CROWDED, "slimftl")
    mapping = device.ssd.mapping
    sections = {name: bytearray(section) for name, section in mapping.save().items()}
    struct.pack_into("<I", sections["virtual"], 0, ~(CROWDED.blocks + more) & 0xFFFFFF)
    if more < 0:
        mapping.load(sections)
        device.close(clean=False)
        return
    with pytest.raises(ValueError, match=f"VBA 0 has block {CROWDED.blocks + more}, which does not exist"):
        mapping.load(sections)
    device.close(clean=False)


def test_a_block_is_moved_with_its_virtual_block_alone() -> None:
    """To move one by itself is refused, and changes nothing: it does not say where its pages may go."""
    device = Device.memory(CROWDED, "slimftl")
    for lpa in range(CROWDED.lpas):
        device.write(lpa * PAGE, lpa.to_bytes(2, "little") * (PAGE // 2))
    device.flush()
    full = list(device.block_map()["valid"]).index(CROWDED.pages_per_block)
    assert not device.ssd.move_blocks(np.array([full], np.uint32))
    assert device.problems() == []
    assert all(device.read(lpa * PAGE, 2) == lpa.to_bytes(2, "little") for lpa in range(CROWDED.lpas))
    device.close(clean=False)
