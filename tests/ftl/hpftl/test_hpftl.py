"""HPFTL: what is its own. Golden counts, power cuts and the checks of `flashfs check` find it by its name."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from flashfs import inspect
from flashfs.device import Device
from flashfs.errors import BindError
from flashfs.ftl.hpftl import PAIR_BYTES, SHARE
from nandimg import PRESETS, Geometry, create

SMALL = Geometry(page_bytes=512, pages_per_block=16, blocks=128, dies=2, oob_bytes=64, lpas=1500)
FEW = {"hashes": 20}  #: of 128 blocks: collisions are many


def overwrite(device: Device, n: int, seed: int = 1, trims: float = 0.0) -> bytearray:
    """``n`` random pages written, or trimmed; returns what the device should hold."""
    rnd, pages = random.Random(seed), device.ssd.lpas
    model = bytearray(pages * 512)
    for i in range(n):
        lpa = rnd.randrange(pages)
        if rnd.random() < trims:
            device.trim(lpa * 512, 512)
            model[lpa * 512 : (lpa + 1) * 512] = bytes(512)
        else:
            device.write(lpa * 512, i.to_bytes(4, "little") * 128)
            model[lpa * 512 : (lpa + 1) * 512] = i.to_bytes(4, "little") * 128
    device.flush()
    return model


@pytest.mark.parametrize("options", [{}, FEW, {"hashes": 20, "open": 1}, {"hash": "md5", "candidates": "shifted"}])
def test_contents(options: dict[str, Any]) -> None:
    """Random writes and trims, until blocks have been cleaned: every page reads what was written last."""
    with Device.memory(SMALL, "hpftl", options) as device:
        model = overwrite(device, 8_000, trims=0.1)
        assert device.read(0, len(model)) == bytes(model)
        assert device.stats()["nand"]["erase"] > SMALL.blocks
        assert device.problems() == []


def test_both_tables_and_reclaim_are_used() -> None:
    with Device.memory(SMALL, "hpftl", FEW) as device:
        overwrite(device, 8_000)
        ssd = device.ssd
        assert ssd.placement.collisions > 100
        assert ssd.cleaning.reclaims > 10
        assert ssd.cleaning.reclaimed > 100
        assert 0 < ssd.mapping.second.n < ssd.mapping.capacity


def test_the_secondary_table_stays_within_its_bound() -> None:
    with Device.memory(SMALL, "hpftl", FEW) as device:
        for seed in range(40):
            overwrite(device, 200, seed)
            assert device.ssd.mapping.second.n <= device.ssd.mapping.capacity


def test_an_entry_is_in_one_table() -> None:
    """By the dump: an LPA has a HID that leads to its block, or a secondary entry, and never both."""
    with Device.memory(SMALL, "hpftl", FEW) as device:
        overwrite(device, 4_000, trims=0.2)
        hpftl = device.ssd.mapping
        pairs = dict(hpftl.second.pairs())
        kinds = set()
        for lpa in range(SMALL.lpas):
            said = hpftl.explain(lpa)
            kinds.add((said["hid"] > 0, said["secondary"]))
            if said["hid"]:
                assert lpa not in pairs
                assert said["block"] == hpftl.hasher.place(lpa, said["hid"])
                assert said["ppa"] == said["block"] * SMALL.pages_per_block + said["ppid"]
            else:
                assert said["secondary"] == (lpa in pairs)
                assert said["ppa"] == pairs.get(lpa)
        assert kinds == {(True, False), (False, True), (False, False)}


def test_map_bytes_of_the_thesis() -> None:
    """Its 16 GiB: 0.437 of the page map for the primary table and a tenth for the secondary one, 0.537 in all."""
    chip = PRESETS["slimftl-16g"].geometry
    with Device.memory(chip, "hpftl", backend="meta") as device:
        tables = {name: packed for name, (packed, _) in device.ssd.dram().items()}
        assert tables["primary_table"] == chip.lpas * 14 // 8
        assert tables["secondary_table"] == PAIR_BYTES * (chip.lpas // SHARE)
        share = (tables["primary_table"] + tables["secondary_table"]) / (4 * chip.lpas)
        assert share == pytest.approx(0.5375, abs=1e-4)


def test_a_crash_brings_entries_back(tmp_path: Path) -> None:
    """A device that is not closed: the recovery finds both tables as they were."""
    path = tmp_path / "img"
    create(path, SMALL)
    device = Device.open(path, ftl="hpftl", options=FEW)
    model = overwrite(device, 4_000, trims=0.1)
    before = device.ssd.mapping.second.n
    device.close(clean=False)
    with Device.open(path) as device:
        assert before > 0
        assert device.ssd.mapping.second.n > 0
        assert device.read(0, len(model)) == bytes(model)
        assert device.problems() == []


def test_views(tmp_path: Path) -> None:
    path = tmp_path / "img"
    create(path, SMALL)
    with Device.open(path, ftl="hpftl", options=FEW) as device:
        overwrite(device, 3_000)
        entries = device.ssd.mapping.second.n
    found = inspect.scheme(path)
    assert found["map"]["secondary_entries"] == entries == len(found["secondary"])
    assert sum(row["lpas"] for row in found["hids"]) == SMALL.lpas
    assert found["map"]["mapped"] == entries + sum(row["lpas"] for row in found["hids"] if row["hid"])
    assert all(row["block"] == row["ppa"] // SMALL.pages_per_block for row in found["secondary"])


def test_a_chip_without_spare_blocks_is_refused() -> None:
    tight = Geometry(page_bytes=512, pages_per_block=16, blocks=32, dies=1, oob_bytes=64, lpas=470)
    with pytest.raises(BindError, match="hpftl: 470 logical pages"):
        Device.memory(tight, "hpftl")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s | {"second": bytes(s["second"]) + bytes(4)}, "secondary table of"),
        (lambda s: s | {"second": bytes(s["second"])[8:]}, "are signed"),
        (lambda s: s | {"second": bytes(s["second"])[8:16] + bytes(s["second"])[:8]}, "out of order"),
        (lambda s: s | {"second": bytes(s["second"])[:4] + b"\xff\xff\xff\x7f"}, "out of range"),
        (lambda s: s | {"primary": bytes(s["primary"])[:-1]}, "primary table of"),
    ],
)
def test_a_stranger_s_checkpoint_is_refused(change: Any, said: str) -> None:
    with Device.memory(SMALL, "hpftl", FEW) as device:
        overwrite(device, 3_000)
        hpftl = device.ssd.mapping
        saved = {name: bytes(part) for name, part in hpftl.save().items()}
        with pytest.raises(ValueError, match=said):
            hpftl.load(change(saved))
        hpftl.load(saved)
        assert hpftl.check() == []


def test_a_table_of_too_few_pairs_is_refused() -> None:
    """A chip of many blocks is full with it before all LPAs are written."""
    with pytest.raises(BindError, match="hpftl: secondary=8: 1,330 logical pages take 33 entries at least; use 0"):
        Device.memory(PRESETS["tiny-1330"].geometry, "hpftl", {"secondary": 8})
    Device.memory(PRESETS["tiny-1330"].geometry, "hpftl", {"secondary": 33}).close()
