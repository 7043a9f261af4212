"""What commands refuse at once, in one line that names what was given and what to do."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

import flashfs
import nandimg
from flashfs import cli
from flashfs.cli import units
from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.fuse import fault_words
from nandimg.presets import PRESETS

mounting = pytest.mark.skipif(
    not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None,
    reason="needs /dev/fuse and fusermount3",
)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert err.count("\n") <= 1, err
    assert "internal error" not in err
    return code, out, err


@pytest.fixture
def image(tmp_path: Path) -> Path:
    nandimg.create(tmp_path / "image", PRESETS["small-64m"].geometry)
    Device.open(tmp_path / "image", ftl="slimftl").close()
    return tmp_path / "image"


def test_a_table_by_its_name_or_of_its_scheme(capsys: pytest.CaptureFixture[str], image: Path) -> None:
    assert run(capsys, "dump", image, "scheme", "vbt") == run(capsys, "dump", image, "vbt")
    code, _, err = run(capsys, "dump", image, "scheme", "nonesuch")
    assert (code, "slimftl has" in err) == (2, True)


def test_an_image_in_use_is_not_copied(capsys: pytest.CaptureFixture[str], image: Path) -> None:
    with Device.open(image):
        code, _, err = run(capsys, "replay", "uniform:ops=9", "--image", image)
    assert code == 1
    assert f"{image}: in use by" in err


def test_an_image_that_is_too_short_is_named(capsys: pytest.CaptureFixture[str], image: Path) -> None:
    with image.open("r+b") as file:
        file.truncate(1 << 20)
    code, _, err = run(capsys, "replay", "uniform:ops=9", "--image", image)
    assert code == 1
    assert err.startswith(f"flashfs: {image}: ")


def test_a_remap_of_a_blank_image_binds_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nandimg.create(tmp_path / "blank", PRESETS["tiny-16"].geometry)
    code, _, err = run(capsys, "remap", tmp_path / "blank", "0", "4k", "4k")
    assert (code, "blank, there is nothing to remap" in err) == (2, True)
    assert nandimg.inspect(tmp_path / "blank").ftl == ""


def test_another_file_takes_no_results(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "data.csv"
    other.write_text("a,b\n1,2\n")
    code, out, err = run(capsys, "replay", "uniform:ops=9", "--out", other)
    assert (code != 0, out) == (True, "")  # nothing was replayed
    assert "no results of flashfs" in err
    assert other.read_text() == "a,b\n1,2\n"


def test_an_ftl_that_a_figure_lacks_leaves_no_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "reproduce", "slimftl", "map", "--ftl", "nope")[0] == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep", "nofile"], "nofile: no such file"),
        (["mount", "image", "mnt", "--log", "."], "--log .: a directory; use the name of a file"),
        (["nbd", "image", "--run", "true", "--json"], "--run and --json: use one of them"),
        (["create", "x", "--backend", "files"], "--backend files (did you mean file?): use file or meta"),
    ],
)
def test_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_an_offset_may_be_0() -> None:
    with pytest.raises(UsageError, match="TARGET -1: use a whole number of bytes from 0 up, as"):
        units.offset("TARGET", "-1")


def test_operations_are_counted_from_1() -> None:
    with pytest.raises(UsageError, match="with N from 1 up"):
        fault_words.parse(["fail=0"])


def test_the_largest_part_of_what_is_needed_is_a_part(capsys: pytest.CaptureFixture[str]) -> None:
    err = run(capsys, "replay", "uniform:ops=20", "--size", "16M", "--dram", "1")[2]
    needs, part = (int(number) for number in re.findall(r"([0-9]+) (?:bytes here|of them)", err))
    assert 0 < part <= needs


def test_power_loss_protection_needs_a_chip_that_has_nvram(capsys: pytest.CaptureFixture[str]) -> None:
    err = run(capsys, "replay", "uniform:ops=20", "--size", "16M", "--plp")[2]
    assert "make one with --preset" in err
    assert "small-64m" in err


@pytest.mark.mount
@mounting
def test_a_mount_in_place_of_its_image(capsys: pytest.CaptureFixture[str], tmp_path: Path, image: Path) -> None:
    (tmp_path / "mnt").mkdir()
    with flashfs.mount(image, tmp_path / "mnt") as ssd:
        for words in (["fsck", ssd.mountpoint], ["clone", ssd.mountpoint, tmp_path / "copy"]):
            code, _, err = run(capsys, *words)
            assert code == 2
            assert f"is a mount: `flashfs umount {ssd.mountpoint}`, and name its image, {image}" in err
        code, _, err = run(capsys, "dump", image, "lpa", "0")
        assert (code, f"mounted at {ssd.mountpoint}: use `flashfs dump {ssd.mountpoint} lpa 0`" in err) == (2, True)
        assert run(capsys, "dump", ssd.mountpoint, "lpa", "0")[0] == 0


def test_a_picture_is_not_overwritten(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "replay", "uniform:ops=99", "--size", "16M", "--out", "r.csv")[0] == 0
    Path("waf.svg").write_text("mine")
    code, _, err = run(capsys, "plot", "r.csv", "--what", "waf", "--out", "waf.svg")
    assert (code, err) == (2, "flashfs: waf.svg: exists already; use another --out, or --force to overwrite it\n")
    assert Path("waf.svg").read_text() == "mine"
    assert run(capsys, "plot", "r.csv", "--what", "waf", "--out", "waf.svg", "--force")[0] == 0
    assert run(capsys, "plot", "r.csv", "--what", "waf,iops", "--out", "waf.svg")[0] == 0  # other names
    assert run(capsys, "compare", "pagemap", "--out", "waf.svg")[0] == 2
