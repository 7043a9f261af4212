"""Entries of Remap-SSD in NVRAM: what SPEC.md says of them, and what flashfs does, are the same."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import reader
import reader_remap
import torn
from test_reader import fill

from flashfs.crash import campaign, tiers
from flashfs.crash.programs import STRIPED, TINY
from flashfs.device import Device
from flashfs.engine.device.remaps import remap_pages
from nandimg import PRESETS, Cut, create
from nandimg._faults import SHAPES

PAGE = 512
OPTIONS: list[dict[str, str]] = [{}, {"segment": "128"}, {"atomic": "command"}, {"segment": "64", "atomic": "command"}]


def opened(path: Path, options: dict[str, str], preset: str = "tiny-24d") -> Device:
    create(path, PRESETS[preset].geometry)
    return Device.open(path, ftl="remapssd", options={"buffer": "0", **options})


def text(lpa: int) -> bytes:
    return b"%16d" % lpa * (PAGE // 16)


def write(device: Device, *lpas: int) -> None:
    for lpa in lpas:
        device.write(lpa * PAGE, text(lpa))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_was_remapped(tmp_path: Path, options: dict[str, str], clean: bool) -> None:
    """Remaps of a page and of several, over others, of holes, with the source emptied; then a source that is written
    again, and a sharer that is trimmed."""
    path = tmp_path / "image"
    device = opened(path, options)
    write(device, *range(8))
    device.flush()
    remap_pages(device.ssd, 20, 0, 4)
    remap_pages(device.ssd, 5, 22, 1)
    remap_pages(device.ssd, 30, 6, 2, move=True)
    remap_pages(device.ssd, 21, 40, 1)      # a hole
    write(device, 0)
    device.trim(23 * PAGE, PAGE)
    device.flush()
    device.close(clean=clean)
    spec = reader.Image(path)
    assert (spec.clean_checkpoint() is not None) == clean
    holds = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 2, 20: 0, 22: 2, 30: 6, 31: 7}
    assert spec.content() == {lpa: text(said) for lpa, said in holds.items()}
    users = spec.users()
    assert users[22].ppa == users[5].ppa == users[2].ppa != users[20].ppa
    assert users[0].ppa != users[20].ppa
    assert torn.disagreements(path) == []


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_entries_are_what_dump_shows(tmp_path: Path, options: dict[str, str]) -> None:
    """LPA, page, sequence number and source of each entry; the newest that the device calls valid says where its LPA
    is."""
    path = tmp_path / "image"
    device = opened(path, options)
    fill(device, random.Random(f"{options}"), 300, trims=6)
    device.flush()
    rmm = device.ssd.mapping.rmm
    rows = [row for group in rmm.groups_of() for row in rmm.entries_of(group["superblock"])]
    device.close(clean=False)
    spec = reader.Image(path)
    mine = {(entry.lpa, entry.ppa, entry.seq, entry.source) for entry in reader_remap.entries(spec)}
    assert {(row["lpa"], row["ppa"], row["seq"], row["source"]) for row in rows} <= mine
    valid = {row["lpa"]: row["ppa"] for row in rows if row["valid"]}
    users = spec.users()
    assert valid
    assert {lpa: users[lpa].ppa for lpa in valid} == valid


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("preset", ["tiny-16", "tiny-24d"])
def test_after_cleaning_without_a_checkpoint(tmp_path: Path, preset: str, options: dict[str, str]) -> None:
    path = tmp_path / "image"
    device = opened(path, {**options, "checkpoint_every": "1000"}, preset)
    fill(device, random.Random(f"{options} {preset}"), 900, trims=6)
    assert device.ssd.mapping.rmm.carried_n
    device.flush()
    device.close(clean=False)
    assert torn.disagreements(path) == []
    spec = reader.Image(path)
    users = spec.users()
    assert any(spec.page(page.ppa).lpa != lpa for lpa, page in users.items())


def test_an_image_of_the_meta_backend(tmp_path: Path) -> None:
    path = tmp_path / "image"
    create(path, PRESETS["tiny-16"].geometry, backend="meta")
    device = Device.open(path, ftl="remapssd", options={"buffer": "0"})
    fill(device, random.Random(9), 200, trims=3)
    device.flush()
    expected = {lpa: said["ppa"] for lpa in range(device.size // PAGE)
                if (said := device.ssd.mapping.explain(lpa))["ppa"] is not None}  # fmt: skip
    device.close(clean=False)
    assert {lpa: page.ppa for lpa, page in reader.Image(path).users().items()} == expected


@pytest.mark.parametrize("seed", range(40))
def test_torn_images(tmp_path: Path, seed: int) -> None:
    """Power goes at some time, twice at times: small segments, little NVRAM, atomic commands, moves of
    superblocks, deduplication."""
    rnd = random.Random(f"remap {seed}")
    path = tmp_path / "image"
    presets = tiers.presets_for("remapssd", (*TINY, *STRIPED))
    case = campaign.random_setting(rnd, "remapssd", rnd.choice(presets), odd=False, aged=rnd.random() < 0.5)
    options: dict[str, Any] = {**dict(case.options), "segment": rnd.choice((64, 128, 1024))}
    options["dedup"] = rnd.choice(("on", "off")) if options.get("rival") != "none" else "off"
    options["atomic"] = rnd.choice(("remap", "command"))
    if rnd.random() < 0.4:
        options["nvram"] = rnd.choice((2048, 4096))
    case = replace(case, options=tuple(options.items()))
    cuts = [Cut(int(10 ** rnd.uniform(1, 3.6)), rnd.choice(SHAPES)), Cut(rnd.randint(1, 12), rnd.choice(SHAPES))]
    torn.leave(path, case, cuts[: rnd.randint(1, 2)])
    assert torn.disagreements(path) == [], f"{case.line()} cuts {cuts}"


def cut_image(path: Path, options: dict[str, str]) -> reader.Image:
    device = opened(path, options)
    write(device, *range(6))
    device.flush()
    remap_pages(device.ssd, 10, 0, 4)
    device.close(clean=False)
    return reader.Image(path)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("word", range(3))
def test_a_torn_entry(tmp_path: Path, options: dict[str, str], word: int) -> None:
    """An entry that misses a torn bit does not count; nor do others of its command, if that is atomic."""
    path = tmp_path / "image"
    spec = cut_image(path, options)
    atomic = "atomic" in options
    size, segment = (24, 16)[not atomic], spec.header["options"]["segment"]
    if word * 8 >= size:
        return
    assert len(reader_remap.entries(spec)) == 4
    region = next(region for region in spec.header["nvram"] if region["name"] == "rmm")
    begin = spec.nvram_at + region["offset"] + reader_remap.FRONT
    raw = bytearray(path.read_bytes())
    headed = [at for at in range(begin, begin + region["bytes"] - segment, segment) if raw[at] & raw[at + 8] & 1]
    last = max(  # the last entry of the last segment that has any
        at for head in headed for at in range(head + size, head + segment - size + 1, size) if any(raw[at : at + size])
    )
    raw[last + 8 * word] &= 0xFE
    path.write_bytes(raw)
    found = reader_remap.entries(reader.Image(path))
    assert sorted(entry.lpa for entry in found) == ([] if atomic else [10, 11, 12])
    assert torn.disagreements(path) == []
    assert set(reader.Image(path).content()) == {*range(6), *(entry.lpa for entry in found)}
