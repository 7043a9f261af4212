"""Programs and erases that fail: the block goes, what was in it stays, and it is remembered for ever."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from schemes import FEW, limited

import nandimg
from flashfs.crash import Case, run_case
from flashfs.crash.campaign import random_program
from flashfs.crash.fault_bench import HurtBench
from flashfs.crash.programs import presets_for
from flashfs.device import ENGINE_OOB, Device, build_ssd
from flashfs.engine.device import byte_requests
from flashfs.errors import DeviceFullError
from flashfs.ftl import SCHEMES, scheme
from nandimg import PRESETS, Cut, FaultyNand
from nandimg._faults import SHAPES

GEOMETRY = PRESETS["tiny-24d"].geometry


class Fails:
    """A device on an image whose chip reports failures at the operations given; ``model`` is what it should hold."""

    def __init__(self, path: Path, ftl: str, failing: tuple[int, ...]) -> None:
        self.path = path
        of = scheme(ftl)
        options = of.resolve({"buffer": 2})
        nandimg.create(path, GEOMETRY)
        self.image = nandimg.open_image(path)
        build_ssd(of, options, self.image.chip)
        fixed = {option.name: options[option.name] for option in of.options if option.fixed}
        self.image.bind(ftl, fixed, ENGINE_OOB + of.scheme_oob)
        self.ssd: Any = build_ssd(of, options, FaultyNand(self.image.chip, (), failing))
        self.model: dict[int, bytes] = {}
        self.ssd.format()

    def churn(self, rnd: random.Random, requests: int) -> None:
        page = GEOMETRY.page_bytes
        for _ in range(requests):
            lpa = rnd.randrange(GEOMETRY.lpas)
            if rnd.random() < 0.1:
                self.ssd.trim_pages(lpa, 1)
                self.model.pop(lpa, None)
            else:
                self.model[lpa] = rnd.randbytes(page)
                byte_requests.write_range(self.ssd, lpa * page, self.model[lpa])
            if rnd.random() < 0.1:
                self.ssd.sync_now()

    def bad(self) -> set[int]:
        return {b for b in range(GEOMETRY.blocks) if self.image.chip.block_health(b)}


def holds(device: Device, model: dict[int, bytes]) -> None:
    page = device.page_bytes
    for lpa in range(GEOMETRY.lpas):
        assert device.read(lpa * page, page) == model.get(lpa, bytes(page)), f"LPA {lpa}"
    assert device.problems() == []


@pytest.mark.parametrize("ftl", FEW)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("clean", [True, False])
def test_grown_bad_blocks_stay_bad_and_data_stays(tmp_path: Path, ftl: str, seed: int, clean: bool) -> None:
    rnd = random.Random(f"{ftl} {seed}")
    fails = Fails(tmp_path / "chip", ftl, tuple(rnd.sample(range(10, 250), 2)))
    fails.churn(rnd, 400)
    fails.ssd.sync_now()
    fails.ssd.idle()
    fails.ssd.sync_now()
    bad = fails.bad()
    assert 1 <= len(bad) <= 2
    if clean:
        fails.ssd.checkpoint(True)
    fails.image.close()
    for mount in range(3):
        with Device.open(tmp_path / "chip") as device:
            assert device.recovery.clean is (clean or mount > 0)
            assert device.smart()["grown_bad"] == len(bad)
            assert device.stats()["pool"]["bad"] == len(bad)
            holds(device, fails.model)
            lpa = rnd.randrange(GEOMETRY.lpas)
            fails.model[lpa] = rnd.randbytes(GEOMETRY.page_bytes)
            device.write(lpa * GEOMETRY.page_bytes, fails.model[lpa])
            assert {b for b in range(GEOMETRY.blocks) if device.nand.block_health(b)} == bad


@pytest.mark.parametrize("ftl", FEW)
def test_factory_bad_blocks_are_never_touched(ftl: str) -> None:
    chip = replace(GEOMETRY, blocks=GEOMETRY.blocks + 12 * SCHEMES[ftl].validity_in_flash)
    image = nandimg.memory_image(chip, factory_bad=(0, 7))
    device = Device.start(image, ftl, {})
    rnd = random.Random(1)
    model = {}
    for _ in range(600):
        lpa = rnd.randrange(GEOMETRY.lpas)
        model[lpa] = rnd.randbytes(GEOMETRY.page_bytes)
        device.write(lpa * GEOMETRY.page_bytes, model[lpa])
    holds(device, model)
    assert device.smart()["factory_bad"] == 2
    assert [device.nand.block_health(b) for b in (0, 7)] == [1, 1]
    assert [device.nand.erase_count(b) for b in (0, 7)] == [0, 0]


@pytest.mark.parametrize("ftl", FEW)
@pytest.mark.parametrize("preset", ["tiny-16", "tiny-24d"])
def test_a_failure_at_each_operation(ftl: str, preset: str) -> None:
    """One after the other, in a program that cleans, trims, checkpoints and remounts."""
    preset = presets_for(ftl, (preset, "tiny-32", "tiny-48"))[0]
    program = random_program(random.Random(f"{ftl} {preset}"), PRESETS[preset].geometry.lpas, 120)
    for at in range(1, 161, 3):
        case = Case(ftl, program, preset, fail=(at,))
        assert run_case(case).failure is None, str(run_case(case).failure)


@pytest.mark.parametrize("ftl", FEW)
def test_a_cut_soon_after_a_failure(ftl: str) -> None:
    """The block is to be retired, and is not yet, when the power goes."""
    rnd = random.Random(f"soon {ftl}")
    for n in range(150):
        preset = presets_for(ftl, (("tiny-16", "tiny-24d")[n % 2], "tiny-32", "tiny-48"))[0]
        program = random_program(rnd, PRESETS[preset].geometry.lpas, 60)
        at = rnd.randrange(5, 80)
        cuts = (Cut(at + rnd.randrange(1, 12), rnd.choice(SHAPES)), Cut(rnd.randrange(1, 9), rnd.choice(SHAPES)))
        case = Case(ftl, program, preset, cuts, fail=(at,))
        assert run_case(case).failure is None, str(run_case(case).failure)


@pytest.mark.parametrize("ftl", FEW)
def test_a_worn_out_device_says_so_and_still_reads(tmp_path: Path, ftl: str) -> None:
    """Block after block goes bad, until a write finds no room: one clear line, and all that was flushed is there."""
    fails, flushed = wear_out(tmp_path / "chip", ftl)
    page = GEOMETRY.page_bytes
    for lpa, data in flushed.items():
        into = bytearray(page)
        byte_requests.read_range(fails.ssd, lpa * page, into)
        assert into == data, f"LPA {lpa}"


@pytest.mark.parametrize("ftl", FEW)
def test_a_worn_out_image_opens_for_reading(tmp_path: Path, ftl: str) -> None:
    fails, flushed = wear_out(tmp_path / "chip", ftl)
    fails.image.close()
    device = Device.open(tmp_path / "chip", readonly=True)
    for lpa, data in flushed.items():
        assert device.read(lpa * device.page_bytes, device.page_bytes) == data, f"LPA {lpa}"
    device.close(clean=False)


@pytest.mark.parametrize("ftl", limited(("pagemap", "lazyftl", "leaftl", "geckoftl")))
def test_a_worn_out_device_flushes_and_trims(ftl: str) -> None:
    """Its host has a way out: what was written is durable, and what is trimmed may be room. (Where trims are entries
    of validity in flash, they may need a block that is not there.)"""
    case = Case.parse(f"ftl={ftl} preset=tiny-112 opt.buffer=0 fault=wear=4 program='w0'")
    bench = HurtBench(case)
    lpas, page = bench.geometry.lpas, bench.geometry.page_bytes
    rnd = random.Random(1)
    bench.ssd.format()
    with pytest.raises(DeviceFullError):
        for n in range(20_000):
            byte_requests.write_range(bench.ssd, (rnd.randrange(lpas) if n >= lpas else n) * page, b"w" * page)
            if n % 16 == 0:
                bench.ssd.sync_now()
    if bench.ssd.placement.refills:  # where any page may go to any block, most of the chip is used by then
        assert lpas > 0.75 * bench.ssd.nand.pages_per_block * bench.ssd.nand.count_health(0)
    bench.ssd.sync_now()
    try:
        bench.ssd.trim_pages(0, lpas // 2)
    except DeviceFullError:
        assert bench.ssd.validity.in_flash
    bench.ssd.sync_now()
    into = bytearray(page)
    byte_requests.read_range(bench.ssd, (lpas - 1) * page, into)
    assert into == b"w" * page
    bench.release()


@pytest.mark.parametrize("ftl", limited(("pagemap", "sftl", "slimftl", "leaftl", "remapssd")))
def test_two_failures_in_a_row_leave_a_recovery_its_room(ftl: str) -> None:
    """Each of them takes a block of the reserve, and a crash closes the blocks that were open."""
    rnd = random.Random(5)
    words = [f"w0+{GEOMETRY.lpas}"] * 3 + [f"w{rnd.randrange(GEOMETRY.lpas)}" for _ in range(60)]
    case = Case.parse(f"ftl={ftl} preset=tiny-24d opt.buffer=0 program='{' '.join(words)}'")
    last = run_case(case).operations[0]
    pairs = [(first, first + 1) for first in rnd.sample(range(last // 3, last), 12)]
    outcomes = [run_case(replace(case, fail=pair)) for pair in pairs]
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    assert not failures, "\n".join(map(str, failures[:5]))


def test_one_failure_ends_no_device_that_has_room() -> None:
    """With 41 pages to spare in 23 blocks, cleaning goes on though each victim has few dead ones."""
    program = (
        "w0+143 w26+24/5 f w77+28/2 i w106+19/2 f w15+19/7 w71+32 i w94+7/7 w93+12/2 w96+7 w128+3/7 w111+5/7 f w57+29 "
        "f w115+18 r w80+37 w21+40/2 w69+30/2 w9+27 f w130+3/5 w116+4/7 w58+5/5 w8+27/5 w12+1/3 w5+28/5 w87+9/2 w15+23 "
        "f w43+16/2 w1+21/7 w63+16/5 w0+4 f r w8+46 w18+23/3"
    )
    bench = HurtBench(Case.parse(f"ftl=pagemap preset=tiny-24d chip.lpas=143 fail=534 program='{program}'"))
    assert bench.play().failure is None
    assert bench.nand.chip.count_health(0) == 23
    assert not bench.worn_out
    bench.release()


def test_the_error_of_an_image_that_has_no_block_left_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nandimg.create(tmp_path / "chip", GEOMETRY)
    Device.open(tmp_path / "chip", ftl="pagemap").close(clean=False)
    recovery = type("Full", (), {"__init__": lambda *_: None, "run": full})
    monkeypatch.setattr("flashfs.device.recovery.Recovery", recovery)
    with pytest.raises(DeviceFullError, match=r"^no free block is left; `flashfs nbd .*chip --read-only` reads"):
        Device.open(tmp_path / "chip")


def full(_: object) -> None:
    raise DeviceFullError("no free block is left")


def wear_out(path: Path, ftl: str) -> tuple[Fails, dict[int, bytes]]:
    """Write until the device is full; returns it and what was flushed and not written since."""
    fails = Fails(path, ftl, tuple(range(20, 2_000, 15)))
    rnd = random.Random(3)
    flushed: dict[int, bytes] = {}
    with pytest.raises(DeviceFullError) as caught:
        for n in range(20_000):
            lpa = rnd.randrange(GEOMETRY.lpas)
            fails.model[lpa] = rnd.randbytes(GEOMETRY.page_bytes)
            flushed.pop(lpa, None)
            byte_requests.write_range(fails.ssd, lpa * GEOMETRY.page_bytes, fails.model[lpa])
            if n % 5 == 0:
                fails.ssd.sync_now()
                flushed = dict(fails.model)
    assert "\n" not in str(caught.value)
    assert len(flushed) > GEOMETRY.lpas // (4 if SCHEMES[ftl].merges else 2)  # merges program more, and more fail
    return fails, flushed


@pytest.mark.parametrize("ftl", FEW)
def test_a_descriptor_whose_program_failed_is_out_of_the_way_of_what_follows(ftl: str) -> None:
    """On a chip with paired pages, written again in another block, it must complete a group there too: else a power
    cut in the mark of the next mount takes the only checkpoint along."""
    chip = presets_for(ftl, ("tiny-20p", "tiny-48p"))[0]
    cases = [
        Case(ftl, "r w3 f", chip, cuts=(Cut(first, "after"), Cut(second, "prefix")), fail=(fail,))
        for fail in range(5, 13) for first in range(10, 16) for second in range(1, 5)
    ]  # fmt: skip
    failures = [outcome.failure for outcome in map(run_case, cases) if outcome.failure]
    assert not failures, "\n".join(map(str, failures[:5]))
