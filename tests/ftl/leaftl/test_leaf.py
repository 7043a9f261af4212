"""LeaFTL on a device: where its pages lie, what their OOB names, that one more read is always enough, what is exact."""

from __future__ import annotations

import itertools
import random
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schemes import thinned

import nandimg
from flashfs.crash.cases import Case
from flashfs.crash.forks import Forks
from flashfs.device import ENGINE_OOB, Device, default_buffer
from flashfs.errors import BindError, UncorrectableError
from flashfs.ftl import SCHEMES
from flashfs.ftl.leaftl.recovery import saved_bytes
from nandimg import PRESETS, Fault, Geometry
from nandimg._torn import spoil
from nandimg.faults import dress

PAGE = 512
GEOMETRY = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=64, channels=2, dies=4, oob_bytes=160, lpas=700,
                    nvram_bytes=16384)  # fmt: skip
NONE = 2**32 - 1
GAMMAS = (0, 1, 4, 16)


def spare(device: Device, ppa: int) -> tuple[int, int, bytes]:
    """(status, LPA, the scheme's bytes) of a page."""
    status, raw = device.nand.read_spare_area(*divmod(ppa, device.ssd.nand.pages_per_block))
    return status, struct.unpack_from("<I", raw, 8)[0], raw[ENGINE_OOB:]


def true_map(device: Device) -> dict[int, int]:
    """Where each LPA is, from the live pages' OOBs alone."""
    per_block = device.ssd.nand.pages_per_block
    found = {}
    for block in range(device.ssd.nand.blocks):
        for page in device.ssd.validity.live_in(block):
            lpa = spare(device, block * per_block + page)[1]
            assert lpa not in found
            found[lpa] = block * per_block + page
    return found


def pages_of(lpas: Any) -> np.ndarray[Any, Any]:
    return np.array(lpas, np.uint32)


def reads_of(device: Device) -> int:
    return sum(device.nand.counters()["read"])


def work(device: Device, rnd: random.Random, requests: int) -> None:
    """Stretches with holes, so that lines are bent, and single pages; trims and flushes."""
    lpas = device.ssd.lpas
    for _ in range(requests):
        first, kind = rnd.randrange(lpas), rnd.random()
        run = [lpa for lpa in range(first, min(lpas, first + rnd.choice((1, 3, 40, 150)))) if rnd.random() < 0.7]
        if kind < 0.85 and run:
            device.ssd.write_pages(pages_of(run), bytes(len(run) * PAGE))
        elif kind < 0.92:
            device.ssd.trim_pages(first, min(lpas - first, rnd.choice((1, 5, 60))))
        else:
            device.ssd.sync_now()


def one_more_read_is_enough(device: Device) -> int:
    """Read each LPA by itself, off the buffer: one read, and one more where the prediction is off. How many were."""
    device.ssd.sync_now()
    true, off = true_map(device), 0
    into = bytearray(PAGE)
    for lpa in range(device.ssd.lpas):
        said = device.ssd.mapping.explain(lpa)["ppa"]
        assert (said is None) == (lpa not in true), f"LPA {lpa}"
        before, extra = reads_of(device), device.ssd.reader.extra_reads
        device.ssd.read_pages(pages_of([lpa]), into)
        reads = 0 if said is None else 1 if said == true[lpa] else 2
        assert reads_of(device) - before == reads, f"LPA {lpa} at {true.get(lpa)}, predicted {said}"
        assert device.ssd.reader.extra_reads - extra == max(0, reads - 1)
        assert reads < 2 or abs(said - true[lpa]) <= device.ssd.mapping.gamma
        off += reads == 2
    return off


@pytest.mark.parametrize(("gamma", "buffer"), thinned([(gamma, n) for gamma in GAMMAS for n in (0, 7, 64)], 2))
def test_one_more_read_is_always_enough(gamma: int, buffer: int) -> None:
    """In open and closed blocks, of pages that the host wrote and that cleaning moved."""
    device = Device.memory(GEOMETRY, "leaftl", {"gamma": gamma, "buffer": buffer})
    rnd, off = random.Random(gamma * 100 + buffer), 0
    for _ in range(12):
        work(device, rnd, 60)
        off += one_more_read_is_enough(device)
        assert device.problems() == []
    assert (off > 50) is (gamma > 0)
    assert device.stats()["nand"]["by_cause"]["program"]["gc"] > 500
    assert device.ssd.mapping.mispredictions == off
    assert device.ssd.mapping.probes == 0


@pytest.mark.parametrize("gamma", [1, 16])
def test_also_behind_failed_programs_and_crashes(tmp_path: Path, gamma: int) -> None:
    """A run that a failed program cut short, and what a recovery learned again: open blocks, runs with gaps."""
    nandimg.create(tmp_path / "chip", replace(GEOMETRY, lpas=450))  # blocks that fail are gone for good
    rnd, off, failed = random.Random(gamma), 0, 0
    device = Device.open(tmp_path / "chip", ftl="leaftl", options={"gamma": str(gamma), "buffer": "24"})
    for life in range(10):
        device.close(clean=False)
        menu = [Fault("fail", rnd.randint(20, 90)), Fault("fail", rnd.randint(100, 200))]
        device = Device.open(tmp_path / "chip", front=partial(dress, faults=menu))
        one_more_read_is_enough(device)
        work(device, rnd, 40)
        off += one_more_read_is_enough(device)
        assert device.problems() == [], f"life {life}"
        failed += device.smart()["grown_bad"] > failed
    assert off > 20
    assert failed > 3
    device.close()


# --- where pages lie


def test_a_drain_is_in_lpa_order_and_block_after_block_on_the_next_die() -> None:
    device = Device.memory(GEOMETRY, "leaftl", {"buffer": 64})
    order = list(range(200))
    random.Random(1).shuffle(order)
    for lpa in order[:150]:
        device.ssd.write_pages(pages_of([lpa]), bytes(PAGE))
    device.ssd.write_pages(pages_of(order[150:]), bytes(50 * PAGE))  # a long request goes through the buffer too
    device.ssd.sync_now()
    where = true_map(device)
    by_age: dict[int, list[int]] = {}
    for lpa, ppa in sorted(where.items(), key=lambda item: item[1]):
        by_age.setdefault(device.ssd.pool.describe(ppa // 16)["order"], []).append(lpa)
    drained = [lpa for _, lpas in sorted(by_age.items()) for lpa in lpas]
    assert drained == sorted(order[:64]) + sorted(order[64:128]) + sorted(order[128:192]) + sorted(order[192:])
    dies = [block % 4 for block in sorted({ppa // 16 for ppa in where.values()},
                                          key=lambda block: device.ssd.pool.describe(block)["order"])]  # fmt: skip
    assert [(b - a) % 4 for a, b in itertools.pairwise(dies)] == [1] * (len(dies) - 1)


def test_the_buffer_is_8_mib_in_whole_blocks_and_a_sixteenth_of_a_small_chip() -> None:
    of = SCHEMES["leaftl"]
    assert default_buffer(of, PRESETS["leaftl-2t"].geometry) == 2048
    assert default_buffer(of, replace(PRESETS["leaftl-2t"].geometry, pages_per_block=384)) == 1920
    assert default_buffer(of, PRESETS["tiny-16"].geometry) == 8
    assert default_buffer(of, PRESETS["small-64m"].geometry) == 1280
    assert default_buffer(SCHEMES["pagemap"], PRESETS["leaftl-2t"].geometry) == 64


def test_a_sequential_group_is_one_segment_a_block() -> None:
    geometry = Geometry(page_bytes=512, pages_per_block=256, blocks=64, oob_bytes=64, lpas=256 * 40)
    device = Device.memory(geometry, "leaftl", backend="meta")
    device.ssd.write_pages(np.arange(256 * 40, dtype=np.uint32))
    device.ssd.sync_now()
    assert device.ssd.mapping.survey()["segments"] == 40
    assert device.ssd.mapping.survey()["paper_bytes"] == 8 * 40


@pytest.mark.parametrize(("pad", "pads"), [("open", 0), ("block", 15)])
def test_a_flush_goes_on_in_an_open_block_or_fills_it(pad: str, pads: int) -> None:
    device = Device.memory(GEOMETRY, "leaftl", {"pad": pad})
    for lpa in range(40):
        device.write(lpa * PAGE, b"x" * PAGE)
        device.flush()
    programs = device.stats()["nand"]["by_cause"]["program"]
    assert programs.get("pad", 0) == 40 * pads
    blocks = {ppa // 16 for ppa in true_map(device).values()}
    assert len(blocks) == (40 if pads else 3)
    assert device.problems() == []
    device.flush()  # nothing new: nothing to fill
    assert device.stats()["nand"]["by_cause"]["program"].get("pad", 0) == 40 * pads


def test_power_loss_protection_pads_nothing() -> None:
    device = Device.memory(GEOMETRY, "leaftl", {"pad": "block"}, plp=True)
    for lpa in range(20):
        device.write(lpa * PAGE, b"x" * PAGE)
        device.flush()
    assert device.stats()["nand"]["by_cause"]["program"].get("host", 0) == 0
    assert "pad" not in device.stats()["nand"]["by_cause"]["program"]


# --- what a page names


@pytest.mark.parametrize("gamma", [1, 4])
def test_a_page_names_the_neighbours_that_were_programmed_with_it(gamma: int) -> None:
    device = Device.memory(GEOMETRY, "leaftl", {"gamma": gamma, "buffer": 64})
    first, second = [3, 5, 6, 9, 20, 21], [1, 2, 7, 30]
    for run in (first, second):
        device.ssd.write_pages(pages_of(run), bytes(len(run) * PAGE))
        device.ssd.sync_now()
    where = true_map(device)
    assert where[first[-1]] + 1 == where[second[0]]  # side by side in one block, and strangers
    for run in (first, second):
        for at, lpa in enumerate(run):
            stamp = SCHEMES["leaftl"].describe_oob(spare(device, where[lpa])[2])
            around = [run[i] if 0 <= i < len(run) else None for i in range(at - gamma, at + gamma + 1)]
            assert stamp == {"before": around[:gamma], "behind": around[gamma + 1 :]}


def test_a_moved_run_is_one_though_it_is_programmed_in_parts() -> None:
    """Cleaning programs 32 pages at a time: a page at the seam names those on the other side."""
    geometry = Geometry(page_bytes=PAGE, pages_per_block=64, blocks=32, oob_bytes=160, lpas=1100)
    device = Device.memory(geometry, "leaftl", {"gamma": 4, "buffer": 64})
    work_on = random.Random(3)
    device.ssd.write_pages(np.arange(1100, dtype=np.uint32), bytes(1100 * PAGE))
    for _ in range(200):
        lpas = pages_of(sorted(work_on.sample(range(1100), 20)))
        device.ssd.write_pages(lpas, bytes(20 * PAGE))
    seams = 0
    for block in range(32):
        moved = [page for page in device.ssd.validity.live_in(block)
                 if device.nand.read_spare_area(block, page)[1][7] & 1]  # fmt: skip
        for page in moved:
            stamp = SCHEMES["leaftl"].describe_oob(spare(device, block * 64 + page)[2])
            if page % 32 == 31 and page + 1 in moved and stamp["behind"][0] is not None:
                assert stamp["behind"][0] == spare(device, block * 64 + page + 1)[1]
                seams += 1
    assert seams > 0
    one_more_read_is_enough(device)


@pytest.mark.parametrize("gamma", [4, 16])
def test_a_chip_with_too_little_oob_is_refused_with_both_numbers(tmp_path: Path, gamma: int) -> None:
    need = ENGINE_OOB + 8 * gamma
    nandimg.create(tmp_path / "chip", replace(GEOMETRY, oob_bytes=need - 1))
    with pytest.raises(BindError, match=f"leaftl needs {need} bytes of OOB per page: this chip has {need - 1}"):
        Device.open(tmp_path / "chip", ftl="leaftl", options={"gamma": str(gamma)})
    assert nandimg.inspect(tmp_path / "chip").ftl == ""
    nandimg.create(tmp_path / "chip", replace(GEOMETRY, oob_bytes=need), force=True)
    Device.open(tmp_path / "chip", ftl="leaftl", options={"gamma": str(gamma)}).close()


# --- what is exact


def test_an_lpa_twice_in_a_request_counts_once() -> None:
    """In no order, without a buffer that would sort it."""
    for gamma in GAMMAS:
        device = Device.memory(GEOMETRY, "leaftl", {"gamma": gamma, "buffer": 0})
        rnd = random.Random(gamma)
        model = bytearray(device.size)
        for turn in range(60):
            lpas = [rnd.randrange(40) for _ in range(rnd.choice((2, 9, 40)))]
            data = b"".join(bytes([turn, n, lpa, 7]) * (PAGE // 4) for n, lpa in enumerate(lpas))
            device.ssd.write_pages(pages_of(lpas), data)
            for n, lpa in enumerate(lpas):
                model[lpa * PAGE : (lpa + 1) * PAGE] = data[n * PAGE : (n + 1) * PAGE]
            assert device.read(0, device.size) == model
            assert device.problems() == []


def test_gamma_0_reads_nothing_to_find_what_dies() -> None:
    device = Device.memory(GEOMETRY, "leaftl", {"gamma": 0, "buffer": 64})
    work(device, random.Random(5), 400)
    stats = device.stats()
    assert "map" not in stats["nand"]["by_cause"]["spare_read"]
    assert stats["scheme"]["settled_by_spare_read"] == stats["scheme"]["approximate"] == 0


def test_what_is_read_to_find_what_dies_is_on_the_account() -> None:
    device = Device.memory(GEOMETRY, "leaftl", {"gamma": 4, "buffer": 64})
    work(device, random.Random(5), 400)
    stats = device.stats()
    scheme = stats["scheme"]
    assert stats["nand"]["by_cause"]["spare_read"]["map"] == scheme["settled_by_spare_read"] > 0
    assert scheme["settled_by_list"] > 0
    assert scheme["settled_by_validity"] > 0
    assert device.problems() == []


# --- the table


def test_compaction_comes_after_so_many_pages_and_changes_no_answer() -> None:
    plain = Device.memory(GEOMETRY, "leaftl", {"buffer": 16, "compact_every": 0, "compact_grown": 0})
    often = Device.memory(GEOMETRY, "leaftl", {"buffer": 16, "compact_every": 100, "compact_grown": 0})
    for device in (plain, often):
        work(device, random.Random(8), 300)
        device.flush()
    assert true_map(plain).keys() == true_map(often).keys()
    assert plain.read(0, plain.size) == often.read(0, often.size)
    assert often.problems() == []
    figures = often.stats()["scheme"]
    assert plain.stats()["scheme"]["compactions"] == 0
    assert figures["compactions"] == pytest.approx(often.stats()["host"]["write"] / 100, abs=2, rel=0.2)
    assert figures["segments"] <= plain.stats()["scheme"]["segments"]
    assert len(figures["groups_by_levels"]) <= len(plain.stats()["scheme"]["groups_by_levels"])


def total(histogram: list[int]) -> int:
    return sum(i * n for i, n in enumerate(histogram))


def test_the_clock_counts_what_the_host_writes() -> None:
    """Not what is programmed: the buffer takes all of it here."""
    device = Device.memory(GEOMETRY, "leaftl", {"buffer": 16, "compact_every": 100})
    for _ in range(1_000):
        device.write(0, bytes(PAGE))
    assert device.stats()["nand"]["by_cause"]["program"].get("host", 0) == 0
    assert device.stats()["scheme"]["compactions"] == 9
    device.ssd.forget_counts()
    for _ in range(100):
        device.write(0, bytes(PAGE))
    assert device.stats()["scheme"]["compactions"] == 1


def test_a_group_is_compacted_by_what_it_owes() -> None:
    never, own = (
        Device.memory(GEOMETRY, "leaftl", {"buffer": 16, "compact_every": 0, "compact_grown": grown})
        for grown in (0, 25)
    )
    for device in (never, own):
        work(device, random.Random(8), 600)
        device.flush()
    assert never.read(0, never.size) == own.read(0, own.size)
    assert own.problems() == []
    assert never.stats()["scheme"]["groups_compacted"] == 0
    assert own.stats()["scheme"]["groups_compacted"] > 0
    assert own.stats()["scheme"]["paper_bytes"] < never.stats()["scheme"]["paper_bytes"]


def test_figures_add_up() -> None:
    device = Device.memory(GEOMETRY, "leaftl", {"buffer": 32, "gamma": 4})
    work(device, random.Random(9), 300)
    device.flush()
    device.ssd.forget_counts()
    device.read(0, device.size)
    scheme = device.stats()["scheme"]
    assert sum(scheme["lookups_by_level"]) == len(true_map(device))
    assert scheme["extra_reads"] == scheme["mispredictions"] > 0
    assert scheme["accurate"] + scheme["approximate"] + scheme["holes"] == scheme["segments"]
    assert sum(scheme["segments_by_level"]) == scheme["segments"]
    assert sum(scheme["groups_by_levels"]) == scheme["groups"] == 3
    assert sum(scheme["groups_by_crb_bytes"]) == 3
    assert total(scheme["groups_by_crb_bytes"]) == scheme["crb_bytes"] > 0
    assert sum(scheme["segments_by_points"]) == scheme["accurate"] + scheme["approximate"]
    held = [
        len(segment["lpas"])
        for group in range(3) for level in device.ssd.mapping.group_of(group)["levels"] for segment in level
        if segment["kind"] != "hole"
    ]  # fmt: skip
    assert scheme["segments_by_points"] == [held.count(n) for n in range(max(held) + 1)]
    shown = SCHEMES["leaftl"].views["map"](device)["segments_by_points"]
    assert sum(shown.values()) == len(held)
    assert shown["4 to 7"] == sum(4 <= n < 8 for n in held) > 0
    dram = device.stats()["dram"]
    assert dram["segments"] + dram["group_directory"] == scheme["modelled_bytes"]


def test_a_checkpoint_never_exceeds_its_room() -> None:
    """Groups that were crowded by single pages are compacted before they are saved."""
    for lpas in (1, 8, 255, 256, 257, 700):
        geometry = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=96, oob_bytes=160, lpas=lpas)
        device = Device.memory(geometry, "leaftl", {"buffer": 0, "gamma": 4, "compact_every": 0})
        rnd = random.Random(lpas)
        for _ in range(1_500):
            run = sorted(rnd.sample(range(lpas), min(lpas, rnd.choice((1, 1, 2, 3)))))
            device.ssd.write_pages(pages_of(run), bytes(len(run) * PAGE))
        assert sum(len(part) for part in device.ssd.mapping.save().values()) <= saved_bytes(lpas)
        assert device.problems() == []


@pytest.mark.parametrize("gamma", [0, 4])
def test_sections_that_cannot_be_are_refused(gamma: int) -> None:
    device = Device.memory(GEOMETRY, "leaftl", {"buffer": 16, "gamma": gamma})
    work(device, random.Random(2), 200)
    device.flush()
    mapping = device.ssd.mapping
    good = bytes(mapping.save()["groups"])
    mapping.load({"groups": good})
    mapping.verify()
    assert bytes(mapping.save()["groups"]) == good
    for bad, said in ((good[:-1], "ends in group"), (good + b"\0", "are needed"), (b"", "ends in group 0")):
        with pytest.raises(ValueError, match=said):
            mapping.load({"groups": bad})
    rnd, refused = random.Random(3), 0
    for _ in range(400):
        forged = bytearray(good)
        forged[rnd.randrange(len(good))] ^= 1 << rnd.randrange(8)
        try:
            mapping.load({"groups": bytes(forged)})
            mapping.verify()
        except ValueError:
            refused += 1
        else:
            refused += mapping.doubt() is not None
    assert refused > 200


# --- recovery


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_crash_learns_again_only_what_is_newer_than_the_checkpoint(tmp_path: Path, gamma: int) -> None:
    nandimg.create(tmp_path / "chip", GEOMETRY)
    device = Device.open(tmp_path / "chip", ftl="leaftl", options={"gamma": str(gamma), "buffer": "32"})
    device.ssd.write_pages(np.arange(600, dtype=np.uint32), bytes(600 * PAGE))
    device.checkpoint()
    run = [lpa for lpa in range(100, 200) if lpa % 7 not in (2, 3)]
    device.ssd.write_pages(pages_of(run), b"n" * PAGE * len(run))
    device.flush()
    before = [device.ssd.mapping.explain(lpa)["ppa"] for lpa in range(700)]
    device.close(clean=False)
    device = Device.open(tmp_path / "chip")
    assert device.ssd.mapping.table.learned < 40  # the rest came with the checkpoint
    assert device.recovery.figures["pages_found"] == len(run)
    assert [device.ssd.mapping.explain(lpa)["ppa"] for lpa in range(700)] == before
    one_more_read_is_enough(device)
    assert device.problems() == []
    device.close()


def test_every_cut_of_a_bent_workload() -> None:
    """Runs with holes and a gamma, each operation cut in each shape: the crash tiers' programs have few of them."""
    program = "w0+9 w11+4 w17+2 w20+9 f w3 w5 w9+3 w14+2 w21 w24 f t4+2 w1 w6 w12+2 w30+8 f w2 w4 w7+3 w16 w19 f"
    cuts = 0
    for gamma in (1, 4, 16):
        for every in (0, 20):
            options = (("buffer", 16), ("gamma", gamma), ("compact_every", every))
            tally = Forks(Case("leaftl", program, "tiny-16", options=options)).run()
            assert not tally.failures, tally.failures[0]
            cuts += tally.cuts
    assert cuts > 1_600


def test_a_damaged_page_hides_no_other_that_is_guessed_to_be_there() -> None:
    """Its neighbours are asked, one read each; its own LPA gives EIO, is known to be there, and can be written."""
    device = Device.memory(replace(GEOMETRY, lpas=600), "leaftl", {"gamma": 4, "buffer": 64})
    rnd = random.Random(6)
    run = [lpa for lpa in range(600) if rnd.random() < 0.7]
    for lpa in run:
        device.write(lpa * PAGE, bytes([lpa % 251 + 1]) * PAGE)
    device.flush()
    true = true_map(device)
    guessed = {lpa: device.ssd.mapping.explain(lpa)["ppa"] for lpa in run}
    meant = [lpa for lpa in run if guessed[lpa] != true[lpa]]
    spoilt = {guessed[lpa] for lpa in rnd.sample(meant, 5)}
    for ppa in spoilt:
        spoil(device.nand, *divmod(ppa, 16))
    hidden = [lpa for lpa in run if guessed[lpa] in spoilt and true[lpa] not in spoilt]
    assert hidden
    for lpa in run:
        if true[lpa] in spoilt:
            with pytest.raises(UncorrectableError):
                device.read(lpa * PAGE, PAGE)
            assert device.ssd.mapped(lpa)
        else:
            assert device.read(lpa * PAGE, PAGE) == bytes([lpa % 251 + 1]) * PAGE
    assert device.ssd.mapping.probes >= len(hidden)
    for lpa in run:
        device.write(lpa * PAGE, bytes([lpa % 241 + 2]) * PAGE)
    device.flush()
    for lpa in run:
        assert device.read(lpa * PAGE, PAGE) == bytes([lpa % 241 + 2]) * PAGE
    assert device.problems() == []
