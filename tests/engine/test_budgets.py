"""A budget of DRAM is met by what can be smaller: caches and write buffers whose size was not given."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from schemes import EACH

import nandimg
from flashfs import cli
from flashfs.device import Device, default_buffer
from flashfs.errors import BindError, UsageError
from flashfs.ftl import BYTES, scheme
from flashfs.replay.play import Setup, named, run
from flashfs.text import bytes_of
from nandimg import Geometry

PAGE = 512
GEOMETRY = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=900, channels=2, dies=4, oob_bytes=64, lpas=12_000)


def least_of(ftl: str, options: dict[str, object] | None = None, backend: str = "file") -> int:
    """Bytes that a refusal names."""
    with pytest.raises(BindError) as refused:
        Device.memory(GEOMETRY, ftl, options, dram=1000, backend=backend)
    found = re.fullmatch(rf"--dram 1000 is 1000 B: {ftl} needs (\d+) bytes here at least .*", str(refused.value))
    assert found is not None, refused.value
    return int(found[1])


def default_of(ftl: str) -> int:
    with Device.memory(GEOMETRY, ftl) as device:
        return int(device.stats()["dram"]["total"])


@pytest.mark.parametrize("ftl", EACH)
def test_the_least_that_a_refusal_names_is_enough_and_a_byte_less_is_not(ftl: str, tmp_path: Path) -> None:
    """And what is written with it is there after a crash, with the same budget and with a larger one."""
    least = least_of(ftl)
    assert least < default_of(ftl)
    with pytest.raises(BindError, match=f"needs {least} bytes here at least"):
        Device.memory(GEOMETRY, ftl, dram=least - 1)
    path = tmp_path / "chip"
    nandimg.create(path, GEOMETRY)
    rng = np.random.default_rng(7)
    content: dict[int, int] = {}
    for budget in (least, 2 * least, least):
        device = Device.open(path, ftl=ftl, dram=budget)
        for lpa in rng.integers(GEOMETRY.lpas, size=400).tolist():
            content[lpa] = len(content) % 251 + 1
            device.write(lpa * PAGE, bytes([content[lpa]]) * PAGE)
        device.flush()
        assert device.stats()["dram"]["total"] <= budget
        assert all(device.read(lpa * PAGE, 1)[0] == byte for lpa, byte in content.items())
        assert device.problems() == []
        device.close(clean=False)
    with Device.open(path, dram=least) as device:
        assert all(device.read(lpa * PAGE, 1)[0] == byte for lpa, byte in content.items())


@pytest.mark.parametrize("ftl", EACH)
def test_cache_and_buffer_take_what_the_budget_leaves_and_the_ledger_says_what_was_cut(ftl: str) -> None:
    default, least = default_of(ftl), least_of(ftl)
    with Device.memory(GEOMETRY, ftl, dram=default + 50_000) as device:
        assert device.stats()["dram_cuts"] == {} and device.budget_notes() == []
        buffer = device.ssd.buffer.slots
    for budget in (least + (default - least) // 3, default - 1_000):
        with Device.memory(GEOMETRY, ftl, dram=budget) as device:
            stats = device.stats()
            assert 0.9 * budget < stats["dram"]["total"] <= budget
            assert 1 <= device.ssd.buffer.slots <= buffer
            for structure, cut in stats["dram_cuts"].items():
                assert stats["dram"][structure] <= cut["bytes"] < cut["default"]
                assert f"{structure} " in device.budget_notes()[0]
            assert stats["dram_cuts"], "less than the defaults together, and nothing is smaller"


def test_a_buffer_whose_size_was_given_keeps_it() -> None:
    slots = 20
    least = least_of("pagemap", {"buffer": slots})
    with Device.memory(GEOMETRY, "pagemap", {"buffer": slots}, dram=least) as device:
        assert device.ssd.buffer.slots == slots
    assert least == least_of("pagemap") + (slots - 1) * (PAGE + 20)


def test_a_cache_whose_size_was_given_keeps_it() -> None:
    least = least_of("dftl", {"cmt_bytes": "10k"})
    with Device.memory(GEOMETRY, "dftl", {"cmt_bytes": "10k"}, dram=least) as device:
        stats = device.stats()
        assert stats["dram"]["cmt"] > 9_000 and "cmt" not in stats["dram_cuts"]


@pytest.mark.parametrize("text, value", [("100k", 102_400), ("1.5M", 1_572_864), ("4096", 4096), ("2 KiB", 2048)])
def test_sizes_among_the_options_take_suffixes(text: str, value: int) -> None:
    of = scheme("dftl")
    assert of.resolve({"cmt_bytes": text})["cmt_bytes"] == value


@pytest.mark.parametrize("text", ["100q", "-1", "2T", "0.3", "", "1k k", 2**50])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(UsageError, match=r"option cmt_bytes=.*: use a"):
        scheme("dftl").resolve({"cmt_bytes": text})


@pytest.mark.parametrize("ftl", EACH)
def test_each_option_in_bytes_says_so(ftl: str) -> None:
    """Its help begins with the unit, and then it takes suffixes."""
    for option in scheme(ftl).all_options():
        assert (option.unit == BYTES) == option.help.startswith("bytes of"), option.name


def test_a_comparison_gets_the_buffer_that_the_budget_leaves_each() -> None:
    setups = named(Setup("uniform:ops=10", geometry=GEOMETRY, dram=200_000), "pagemap,leaftl,dftl")
    pages = {setup.options["buffer"] for setup in setups}
    assert len(pages) == 1 and 1 < pages.pop() < default_buffer(scheme("leaftl"), GEOMETRY)
    for setup in setups:
        made = run(setup)
        assert made["dram"]["total"] <= 200_000 and not any("write buffer" in line for line in made["complaints"])


def test_a_comparison_within_too_little_names_the_least_of_the_ftl_that_is_refused() -> None:
    dram = least_of("pagemap", {"gc_reserve": 4}, "meta") - 100
    refused, other = named(Setup("uniform:ops=10", geometry=GEOMETRY, dram=dram), "pagemap,dftl")
    with pytest.raises(BindError, match=f"pagemap needs {dram + 100} bytes here at least"):
        run(refused)
    assert run(other)["dram"]["total"] <= dram


@pytest.mark.parametrize("ftl", EACH)
def test_the_budget_that_a_page_mounts_with_is_enough(ftl: str) -> None:
    """On a device of 4 GiB whose pages keep their data."""
    page = (Path(__file__).parents[2] / scheme(ftl).manual).read_text()
    for size in re.findall(r"^    flashfs mount .*--dram (\S+)", page, re.M):
        budget = bytes_of(size)
        assert budget is not None
        with Device.memory(Geometry.sized(4 << 30), ftl, dram=int(budget)) as device:
            assert device.stats()["dram"]["total"] <= budget


def test_a_replay_says_what_was_made_smaller(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay", "uniform:ops=10", "--ftl", "dftl", "--size", "64M", "--dram"]
    assert cli.run([*words, "200k"]) == 0
    said = r"flashfs: dftl: --dram 200 KiB: cmt .* KiB instead of .*, write_buffer .* KiB instead of 257.2 KiB\n"
    assert re.fullmatch(said, capsys.readouterr().err)
    assert cli.run([*words, "2M"]) == 0
    assert capsys.readouterr().err == ""
