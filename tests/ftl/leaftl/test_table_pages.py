"""LeaFTL's table in translation pages: brought back on demand, written back in time, recovered, and paid for."""

from __future__ import annotations

import os
import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schemes import bounded

from flashfs import inspect
from flashfs.crash import Case, campaign, programs, run_case
from flashfs.crash.forks import Forks
from flashfs.device import Device
from flashfs.errors import BindError
from nandimg import PRESETS, Geometry, Preset, create

LARGE = Geometry(pages_per_block=16, blocks=900, dies=4, channels=2, oob_bytes=160, lpas=9000)
SHAPES = {"pages of 512": replace(LARGE, page_bytes=512), "pages of 4096": LARGE}
SMALL = SHAPES["pages of 512"]
PAGE = SMALL.page_bytes
OPTIONS: dict[str, Any] = {"buffer": "16", "table_bytes": "6000"}


def content(rnd: random.Random, page: int) -> bytes:
    return rnd.randbytes(16) * (page // 16)


def work(device: Device, rnd: random.Random, model: dict[int, bytes], requests: int) -> None:
    """Random requests, each answer compared with the model's."""
    page, lpas = device.page_bytes, device.ssd.lpas
    for _ in range(requests):
        lpa, kind = rnd.randrange(lpas), rnd.random()
        if kind < 0.6:
            n = min(rnd.choice((1, 1, 4, 40)), lpas - lpa)
            for i in range(n):
                model[lpa + i] = content(rnd, page)
            device.write(lpa * page, b"".join(model[lpa + i] for i in range(n)))
        elif kind < 0.7:
            n = min(rnd.choice((1, 8, 300)), lpas - lpa)
            device.trim(lpa * page, n * page)
            for i in range(n):
                model.pop(lpa + i, None)
        elif kind < 0.72:
            device.flush()
        else:
            assert device.read(lpa * page, page) == model.get(lpa, bytes(page)), lpa


def filled(device: Device, rnd: random.Random) -> dict[int, bytes]:
    """Two LPAs of three, in no order: segments of single pages, many times what may be in memory."""
    page = device.page_bytes
    model = {lpa: content(rnd, page) for lpa in rnd.sample(range(device.ssd.lpas), device.ssd.lpas * 2 // 3)}
    for lpa, data in model.items():
        device.write(lpa * page, data)
    device.flush()
    return model


def same(device: Device, model: dict[int, bytes]) -> None:
    page = device.page_bytes
    for lpa in range(device.ssd.lpas):
        assert device.read(lpa * page, page) == model.get(lpa, bytes(page)), lpa


def figures(device: Device) -> dict[str, Any]:
    return dict(device.stats()["scheme"])


@pytest.mark.parametrize("gamma", [0, 4])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_it_answers_as_a_table_in_memory(shape: str, gamma: int) -> None:
    rnd, model = random.Random(f"{shape} {gamma}"), dict[int, bytes]()
    with Device.memory(SHAPES[shape], "leaftl", {**OPTIONS, "gamma": str(gamma)}) as device:
        for _ in range(6):
            work(device, rnd, model, 700)
            assert device.problems() == []
        found = figures(device)
        assert found["translation_programs"] > 300
        assert found["loads"] > 1000
        assert found["evictions"] > 1000
        by_cause = device.stats()["nand"]["by_cause"]
        assert by_cause["program"]["map"] == found["translation_programs"]
        assert by_cause["read"]["map"] == found["translation_reads"]
        same(device, model)


@pytest.mark.parametrize("clean", [True, False])
def test_mounts_with_and_without_a_budget(tmp_path: Path, clean: bool) -> None:
    """What one leaves in translation pages the other finds there; without a budget all of it comes into memory."""
    path, rnd, model = tmp_path / "image", random.Random(clean), dict[int, bytes]()
    create(path, SMALL)
    for turn in range(6):
        options = OPTIONS if turn % 3 != 2 else {"buffer": "16"}
        device = Device.open(path, ftl="leaftl", options=options)
        same(device, model)
        work(device, rnd, model, 500)
        device.flush()
        assert device.problems() == []
        entries = device.ssd.mapping.directory.entries()
        if "table_bytes" in options:
            assert figures(device)["translation_programs"]
            assert any(page["ppas"] for page in entries)
        else:
            assert "in flash" not in {page["state"] for page in entries}
        device.close(clean=clean)
    with Device.open(path, readonly=True, options=OPTIONS) as device:
        assert device.recovery.clean == clean
        assert device.recovery.alarms == []
        same(device, model)


def test_the_budget_holds() -> None:
    """Groups take no more than their share between requests, nor does everything more than --dram."""
    geometry = Geometry.sized(256 << 20, op=0.2, pages_per_block=64, dies=4, channels=2)
    with Device.memory(geometry, "leaftl", {"buffer": "64", "wear_spread": "1000"}, backend="meta") as plain:
        fixed = plain.stats()["dram"]["total"]
    budget = fixed + 150_000
    rnd = np.random.default_rng(1)
    with Device.memory(geometry, "leaftl", {"buffer": "64"}, backend="meta", dram=budget) as device:
        for _ in range(800):
            device.ssd.write_pages(rnd.integers(0, geometry.lpas, 128, dtype=np.uint32))
            assert device.ssd.mapping.tables()["segments"][0] <= device.ssd.mapping.pages.limit
        stats = device.stats()
        assert stats["dram"]["total"] <= budget
        assert stats["scheme"]["group_bytes_most"] < 1.6 * device.ssd.mapping.pages.limit
        assert stats["scheme"]["translation_programs"] > 1000
        assert device.problems() == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_device_of_several_regions(clean: bool, tmp_path: Path) -> None:
    """The directory is cut into regions of 65,536 LPAs: here are three, the last of them not whole."""
    path, rnd = tmp_path / "chip", np.random.default_rng(3)
    geometry = replace(SMALL, pages_per_block=64, blocks=3_200, lpas=150_000)
    create(path, geometry, backend="meta")
    device = Device.open(path, ftl="leaftl", options={"buffer": "64", "table_bytes": "60000"})
    mapped = np.zeros(geometry.lpas, bool)
    for turn in range(500):
        lpas = rnd.integers(0, geometry.lpas, 128, dtype=np.uint32)
        device.ssd.write_pages(lpas)
        mapped[lpas] = True
        if turn % 100 == 99:
            first = int(rnd.integers(0, geometry.lpas - 300))
            device.ssd.trim_pages(first, 300)
            mapped[first : first + 300] = False
    device.flush()
    assert figures(device)["evictions"] > 100
    assert {page["first_group"] // 256 for page in device.ssd.mapping.directory.entries()} == {0, 1, 2}
    device.close(clean=clean)
    with Device.open(path) as device:
        assert device.recovery.clean is clean
        assert device.problems() == []
        assert [device.ssd.mapped(lpa) for lpa in range(geometry.lpas)] == mapped.tolist()


def test_what_is_not_in_memory_costs_a_read_first() -> None:
    with Device.memory(SHAPES["pages of 4096"], "leaftl", {**OPTIONS, "buffer": "0"}) as device:
        device.ssd.write_pages(np.random.default_rng(2).permutation(9000).astype(np.uint32))
        device.flush()
        absent = next(page for page in device.ssd.mapping.directory.entries() if page["state"] == "in flash")
        lpas = np.array([absent["first_group"] * 256 + 7], np.uint32)
        before, quiet = device.stats()["nand"]["by_cause"]["read"], device.quiet_at()
        first = device.ssd.read_pages(lpas, t_ns=quiet) - quiet
        after = device.stats()["nand"]["by_cause"]["read"]
        assert after["map"] - before["map"] == 1
        assert after["host"] - before.get("host", 0) == 1
        quiet = device.quiet_at()
        again = device.ssd.read_pages(lpas, t_ns=quiet) - quiet
        assert device.stats()["nand"]["by_cause"]["read"]["map"] == after["map"]
        assert first == 2 * again


def test_the_least_recently_used_go() -> None:
    """Groups that are looked at again and again stay, while a scan passes through the others."""
    with Device.memory(SHAPES["pages of 4096"], "leaftl", {**OPTIONS, "buffer": "0", "table_bytes": "20000"}) as device:
        device.ssd.write_pages(np.random.default_rng(3).permutation(9000).astype(np.uint32))
        for lpa in range(256, 9000, 40):
            device.ssd.read_pages(np.array([5], np.uint32))
            device.ssd.read_pages(np.array([lpa], np.uint32))
        loads = figures(device)["loads"]
        device.ssd.read_pages(np.array([5], np.uint32))
        assert figures(device)["loads"] == loads


def test_the_figures_of_translation_pages_are_the_chips() -> None:
    device = Device.memory(SMALL, "leaftl", OPTIONS)
    rnd = random.Random(5)
    work(device, rnd, filled(device, rnd), 500)
    by_cause, own = device.stats()["nand"]["by_cause"], figures(device)
    assert own["translation_programs"] == by_cause["program"]["map"] > 0
    assert own["translation_reads"] == by_cause["read"]["map"] > 0
    device.forget_counts()
    for name in ("translation_programs", "translation_reads", "loads", "evictions", "rebuilds"):
        assert figures(device)[name] == 0
    assert device.stats()["unreadable"] == 0


def test_what_a_translation_page_says_of_itself() -> None:
    """Its number, the stream of its block, and nothing in the scheme's bytes; each version has a sequence number."""
    device = Device.memory(SMALL, "leaftl", {**OPTIONS, "gamma": "4"})
    filled(device, random.Random(5))
    found = []
    for block in range(SMALL.blocks):
        for page in range(SMALL.pages_per_block):
            status, raw = device.nand.read_spare_area(block, page)
            spare = inspect.Spare.of(raw)
            if status == 1 and spare.kind == 2:
                found.append(spare)
    assert len(found) > 20
    assert {spare.stream for spare in found} == {4}
    assert {spare.own for spare in found} == {b"\xff" * len(found[0].own)} != {b""}
    originals = [spare.seq for spare in found if not spare.moved]
    assert len(set(originals)) == len(originals)
    assert all(spare.moved == (spare.moves > 0) for spare in found)
    packed, allocated = device.ssd.mapping.store.tables()
    assert (packed % 4, allocated) == (0, 10 * packed) != (0, 0)  # 4 bytes a page, and what a set takes for it


def test_the_checkpoint_s_pages_outlive_their_successors() -> None:
    """Superseded by a newer one, a page that the last checkpoint names stays live until the next one."""
    with Device.memory(SMALL, "leaftl", OPTIONS) as device:
        model = filled(device, random.Random(4))
        device.checkpoint()
        named = set(device.ssd.mapping.directory.ppas())
        assert named
        work(device, random.Random(5), model, 60)
        assert not named <= set(device.ssd.mapping.directory.ppas())
        live = {block * 16 + page for block in range(900) for page in device.ssd.validity.live_in(block)}
        assert set(device.ssd.mapping.translation_pages()) > set(device.ssd.mapping.directory.ppas())
        device.checkpoint()
        assert set(device.ssd.mapping.translation_pages()) == set(device.ssd.mapping.directory.ppas())
        still = {block * 16 + page for block in range(900) for page in device.ssd.validity.live_in(block)}
        gone = named - set(device.ssd.mapping.directory.ppas())
        assert gone & live
        assert not gone & still


def spoil(path: Path, ppa: int) -> None:
    """Flip a byte of a page's data."""
    layout = inspect.header(path)["layout"]
    with path.open("r+b") as file:
        file.seek(layout["data_at"] + ppa * PAGE + 40)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x10]))


def test_a_page_that_goes_bad_under_a_mount_is_made_again(tmp_path: Path) -> None:
    """From what the live pages say of themselves; all of it is charged."""
    path = tmp_path / "image"
    create(path, SMALL)
    device = Device.open(path, ftl="leaftl", options=OPTIONS)
    model = filled(device, random.Random(6))
    page = next(page for page in device.ssd.mapping.directory.entries() if page["state"] == "in flash")
    spoil(path, page["ppas"][0])
    spares = device.stats()["nand"]["by_cause"]["spare_read"].get("map", 0)
    same(device, model)
    assert figures(device)["rebuilds"] == 1
    assert device.stats()["nand"]["by_cause"]["spare_read"]["map"] - spares >= len(model)
    work(device, random.Random(7), model, 300)
    assert device.problems() == []
    device.close()
    with Device.open(path, options=OPTIONS) as device:
        same(device, model)


def test_what_may_be_lost_with_it_does_not_read_as_a_hole(tmp_path: Path) -> None:
    """If a live page does not say whose it is, it may belong to any LPA of which no page is found."""
    path = tmp_path / "image"
    create(path, SMALL)
    with Device.open(path, ftl="leaftl", options=OPTIONS) as device:
        model = filled(device, random.Random(8))
    places = {lpa: inspect.lpa(path, lpa)["ppa"] for lpa in range(0, 9000, 200) if lpa in model}
    device = Device.open(path, options=OPTIONS)
    page = next(page for page in device.ssd.mapping.directory.entries() if page["state"] == "in flash")
    lost = next(lpa for lpa in places if page["first_group"] <= lpa // 256 < page["first_group"] + page["groups"])
    ppa = places[lost]
    layout = inspect.header(path)["layout"]
    with path.open("r+b") as file:
        file.seek(layout["spare_at"] + ppa * layout["stride"] + 14)
        file.write(b"\xa5\x5a")
    spoil(path, page["ppas"][0])
    with pytest.raises(OSError, match=f"LPA {lost}"):
        device.read(lost * PAGE, PAGE)
    device.close(clean=False)


@pytest.mark.parametrize(("clean", "all_of_them"), [(True, False), (False, False), (False, True)])
def test_a_page_that_a_mount_cannot_read(tmp_path: Path, clean: bool, all_of_them: bool) -> None:
    """It is rebuilt from the live pages; or, if those are not known yet because the recovery itself needs it, the
    checkpoint that names it is of no use. An alarm says which. A clean mount reads no such page: the first use
    rebuilds it, and fsck reports it."""
    path, rnd = tmp_path / "image", random.Random(9)
    create(path, SMALL)
    device = Device.open(path, ftl="leaftl", options=OPTIONS)
    model = filled(device, rnd)
    device.checkpoint()
    for lpa in rnd.sample(range(300), 50):
        model[lpa] = content(rnd, PAGE)
        device.write(lpa * PAGE, model[lpa])
    device.flush()
    device.close(clean=clean)
    with Device.open(path, readonly=True) as device:
        mapping = device.ssd.mapping  # what was written since has superseded some, on which the recovery stands
        spoilt = mapping.translation_pages() if all_of_them else mapping.directory.ppas()
    assert spoilt
    for ppa in spoilt:
        spoil(path, ppa)
    with Device.open(path, options=OPTIONS) as device:
        assert any("all pages are read" in alarm for alarm in device.recovery.alarms) == all_of_them
        assert device.recovery.clean is clean
        assert bool(device.recovery.alarms) is not clean
        told = [line for line in device.problems() if line.startswith("the translation page of LPAs")]
        assert bool(told) is clean
        same(device, model)
        assert device.problems() == []


def test_forged_directories_are_refused() -> None:
    with Device.memory(SMALL, "leaftl", OPTIONS) as device:
        filled(device, random.Random(10))
        mapping = device.ssd.mapping
        saved = {name: bytes(part) for name, part in mapping.save().items()}
        entry = struct.Struct("<8I")
        entries = list(entry.iter_unpack(saved["gmd"]))
        assert len(entries) > 2
        first, groups, *ppas = entries[0]
        forged = (
            entries[1:],
            entries[::-1],
            [entries[0], *entries],
            [(first, 0, *ppas), *entries[1:]],
            [(first, 300, *ppas), *entries[1:]],
            [(first, groups, 2**31, *ppas[1:]), *entries[1:]],
            [(first, groups, *entries[1][2:]), *entries[1:]],
            [(first, groups, *[2**32 - 1] * 6), *entries[1:]],
        )
        for rows in forged:
            gmd = b"".join(entry.pack(*row) for row in rows)
            with pytest.raises(ValueError, match=r"gmd|groups"):
                mapping.load({**saved, "gmd": gmd})
        with pytest.raises(ValueError, match="gmd section of"):
            mapping.load({**saved, "gmd": saved["gmd"] + b"\0"})
        mapping.load(saved)
        assert mapping.check() == []


def test_a_budget_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with Device.memory(SMALL, "leaftl", {"buffer": "16"}) as device:
        fixed = device.stats()["dram"]["total"]
    with pytest.raises(BindError, match=rf"leaftl needs {fixed + 24576} bytes here at least"):
        Device.memory(SMALL, "leaftl", {"buffer": "16"}, dram=fixed + 20_000)
    tight = Geometry(page_bytes=512, pages_per_block=16, blocks=64, oob_bytes=64, lpas=830)
    with pytest.raises(BindError, match="are to spare"):
        Device.memory(tight, "leaftl", {"table_bytes": "100"})
    path = tmp_path / "image"
    create(path, tight)
    with pytest.raises(BindError, match="are to spare"):
        Device.open(path, ftl="leaftl", options={"table_bytes": "100"})
    assert inspect.header(path)["ftl"] in (None, "")  # and nothing was bound


def test_dump_explains_translation_pages(tmp_path: Path) -> None:
    path = tmp_path / "image"
    create(path, SMALL)
    with Device.open(path, ftl="leaftl", options=OPTIONS) as device:
        filled(device, random.Random(11))
    rows = inspect.scheme(path, "gmd")
    assert rows
    assert inspect.scheme(path, "map")["translation_pages"] == sum(len(row["ppas"]) for row in rows)
    for row in rows:
        for n, ppa in enumerate(row["ppas"]):
            shown = inspect.page(path, ppa)
            assert shown["live"]
            assert shown["oob"]["kind"] == "translation"
            assert shown["oob"]["stream"] == "map"
            assert shown["oob"]["translation_page"] == 6 * row["first_group"] + n
            if n == 0:
                last = row["first_group"] + row["groups"] - 1
                assert shown["content"]["groups"] == f"{row['first_group']} to {last}"


FEW = {"random": 120, "host": 50, "faults": 50}
MANY = {"sweep": 3_000, "random": 2_000, "host": 1_200, "faults": 1_200}


@pytest.mark.parametrize(("tier", "cuts"), bounded(FEW, MANY))
def test_power_cuts_with_a_table_in_flash(monkeypatch: pytest.MonkeyPatch, tier: str, cuts: int) -> None:
    """As tests/crash has them, but every case keeps its table in translation pages."""
    options = programs.random_options

    def with_pages(rnd: random.Random, ftl: str, plp: bool) -> tuple[tuple[str, Any], ...]:
        return tuple({**dict(options(rnd, ftl, plp)), "table_bytes": rnd.choice((1, 1, 200, 600))}.items())

    monkeypatch.setattr(programs, "random_options", with_pages)
    result = campaign.run("leaftl", tier, 2026, cuts)
    assert not result.failures, "\n".join(map(str, result.failures[:5]))
    assert result.cuts >= cuts


#: what a trim since the checkpoint means may be gone, and a translation page may live in its place by now
TRIMS_OF_WHAT_IS_GONE = (
    "ftl=leaftl preset=tiny-16 opt.buffer=1 opt.table_bytes=1 fail=50 cut=18:before cut=17:prefix-old cut=1:before "
    "program='w13 w2 w13 w15 i w19+2 w25 w1 w16 t19+4 t17+1 w0 w50+3 w16 w11 w16 t1+1 i t27+4 w2 r w16 w7 w13 w30 w41 "
    "w41 w32+3 w41 w54 w33 w1 w33 w54 w47 r w16+3 w18+4 i w48+1 w44 w48+4 w13 w13 w16 w16 t20+2 i w13 i w50 w18+1 f "
    "w41 f f w10+2 w44 w8 w10 w42 i w16+3 w37 w39 t35+2 r f w30 f w41+1 w25+1 w41 t16+2 w45 w45 t32+2 t27+2 r i w1 w44 "
    "f w13 w19 w52 w21 w51+3 t13+3 w11'",
    "ftl=leaftl preset=tiny-16 opt.buffer=1 opt.gamma=11 opt.pad=block opt.table_bytes=1 cut=5:prefix-old program='w9 "
    "w14 f w8+1 w54 w34 r i w20 w15 w16 i w18+2 w1 w18 w39 w28 w49 f i w39 w6 f w7 w53 w26 w39 w34 w17+4 w13 w34 f f "
    "w22+2 i w19 w34 f w1 w39 w20 f w25 w35 t34+4 i r t52+1 w51 r w39 w1 w1+1 w39 t34+4 w16 w1 r w31+1 w1 w1 t39+4 w34 "
    "w53 w24 w4 w1 w32 w34 w3+4 w39 w8 f w45 t39+4 f f w34 w53+2 t32+4 w1 w9 t0+3 w19 w34 t53+1 w10 w47+4 i w51+2'",
)


@pytest.mark.parametrize("line", TRIMS_OF_WHAT_IS_GONE)
def test_a_trim_kills_nothing_that_came_later(line: str) -> None:
    failure = run_case(Case.parse(line)).failure
    assert failure is None, str(failure)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_power_cuts_among_many_translation_pages(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The chips of the tiers hold one translation page; here are four, of a full group each; memory holds one."""
    several = Geometry(page_bytes=512, pages_per_block=8, blocks=190, oob_bytes=64, lpas=1024)
    monkeypatch.setitem(PRESETS, "several", Preset("several", "four groups", "this test", several))
    rnd = random.Random(seed)
    fill = [f"w{lpa}" for lpa in rnd.sample(range(1024), 1024)]
    rest = campaign.random_program(rnd, 1024, 14).split()
    options = (("buffer", rnd.choice((0, 2))), ("table_bytes", 2500), ("gamma", seed % 2 * 3))
    tally = Forks(Case("leaftl", " ".join(fill + rest), "several", options=options), 6, first=len(fill) + 1).run()
    assert not tally.failures, "\n".join(map(str, tally.failures[:3]))
    assert tally.cuts > 200
