"""Another exported size: what is written stays, by every scheme, and so do wear and the counters of the whole life."""

from __future__ import annotations

import random
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from schemes import KINDS

import nandimg
from flashfs import resizing
from flashfs.cli import run
from flashfs.device import Device
from flashfs.errors import BindError, FlashfsError, UncorrectableError, UsageError
from nandimg import Geometry
from nandimg.errors import ImageError

PAGE = 4096
CHIP = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=400, dies=2, oob_bytes=64, lpas=3000, nvram_bytes=1 << 20)
USED = 2000  # pages; nothing is written above them


def churned(device: Device, model: dict[int, bytes], seed: int, writes: int) -> None:
    rnd = random.Random(seed)
    for _ in range(writes):
        lpa, page = rnd.randrange(USED), rnd.randbytes(16) * (PAGE // 16)
        device.write(lpa * PAGE, page)
        model[lpa] = page


def must_hold(device: Device, model: dict[int, bytes]) -> None:
    assert device.problems() == []
    for lpa in range(device.size // PAGE):
        assert device.read(lpa * PAGE, PAGE) == model.get(lpa, bytes(PAGE)), lpa
    for first, last in ((0, 99), (100, 149)):  # holes stay holes
        assert (device.extent(first * PAGE, mapped=False) <= last * PAGE) == any(
            lpa not in model for lpa in range(first, last + 1)
        )


@pytest.mark.parametrize("ftl", KINDS)
def test_what_is_written_stays(tmp_path: Path, ftl: str) -> None:
    path, model = tmp_path / "image", dict[int, bytes]()
    nandimg.create(path, CHIP)
    with Device.open(path, ftl=ftl) as device:
        churned(device, model, 1, 4000)
        device.trim(100 * PAGE, 50 * PAGE)
        for lpa in range(100, 150):
            model.pop(lpa, None)
    uuid = nandimg.inspect(path).uuid
    for turn, lpas in enumerate((USED, 3600, 2500)):
        with Device.open(path, readonly=True) as device:
            worn = [device.nand.erase_count(block) for block in range(CHIP.blocks)]
            life = device.smart()["life"]
        done = resizing.resize(path, lpas * PAGE)
        assert done.after == lpas * PAGE
        assert done.copied == len(model) * PAGE
        assert nandimg.inspect(path).uuid == uuid
        with Device.open(path) as device:
            assert device.size == lpas * PAGE
            assert device.recovery.clean
            must_hold(device, model)
            assert all(device.nand.erase_count(block) >= worn[block] for block in range(CHIP.blocks))
            now = device.smart()["life"]
            assert now["host_writes"] == life["host_writes"]
            assert now["programs"] >= life["programs"] + len(model)
            assert now["unsafe_shutdowns"] == 0
            churned(device, model, turn + 2, 500)
            for lpa in range(100, 150):  # written again by now, perhaps
                device.trim(lpa * PAGE, PAGE)
                model.pop(lpa, None)
    assert [one.name for one in tmp_path.iterdir()] == ["image"]


def test_bad_blocks_and_modes_stay(tmp_path: Path) -> None:
    path = tmp_path / "image"
    nandimg.create(path, CHIP)
    image = nandimg.open_image(path)
    image.chip.mark_factory_bad(5)
    image.close()
    path.chmod(0o640)
    assert resizing.resize(path, 2000 * PAGE).copied == 0  # a blank one
    with Device.open(path, ftl="pagemap") as device:
        device.write(0, bytes(range(256)) * 16)
        device.flush()
    resizing.resize(path, 2400 * PAGE)
    with Device.open(path) as device:
        assert [block for block in range(CHIP.blocks) if device.nand.block_health(block)] == [5]
        assert device.read(0, PAGE) == bytes(range(256)) * 16
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("grown", [False, True])
def test_what_is_derived_knows_of_bad_blocks(tmp_path: Path, grown: bool) -> None:
    """SlimFTL's virtual blocks: of the good blocks, also if a block has gone bad since they were derived."""
    chip = Geometry(page_bytes=512, pages_per_block=16, blocks=128, lpas=1400)
    path, bad = tmp_path / "chip", 12
    nandimg.create(path, chip)
    with closing(nandimg.open_image(path)) as image:
        for block in () if grown else range(7, 7 + bad):
            image.chip.mark_factory_bad(block)
    with Device.open(path, ftl="slimftl") as device:
        derived = int(device.options["virtual_blocks"])
    if grown:
        with closing(nandimg.open_image(path)) as image:
            for block in range(60, 60 + bad):
                image.chip.retire_block(block)
    resizing.resize(path, 1300 * 512)
    with Device.open(path) as device:
        assert int(device.options["virtual_blocks"]) == derived - (bad if grown else 0)
        for lpa in [*range(1300), *range(0, 1300, 3)]:
            device.write(lpa * 512, lpa.to_bytes(4, "little") * 128)
        device.flush()
        assert device.problems() == []
    with pytest.raises(BindError, match=r"good blocks leave|can export"):
        resizing.resize(path, 1800 * 512)
    with Device.open(path) as device:
        assert device.read(5 * 512, 512) == (5).to_bytes(4, "little") * 128


@pytest.mark.parametrize("plp", [False, True])
def test_a_crashed_image_is_recovered_on_the_way(tmp_path: Path, plp: bool) -> None:
    path, model = tmp_path / "image", dict[int, bytes]()
    nandimg.create(path, CHIP)
    device = Device.open(path, ftl="pagemap", plp=plp)
    churned(device, model, 7, 300)
    if not plp:
        device.flush()
    device.close(clean=False)  # what was in the NVRAM is there, and nowhere else
    resizing.resize(path, 2600 * PAGE)
    with Device.open(path) as device:
        assert device.problems() == []
        assert all(device.read(lpa * PAGE, PAGE) == page for lpa, page in model.items())


def test_what_cannot_be_leaves_the_image_alone(tmp_path: Path) -> None:
    path = tmp_path / "image"
    nandimg.create(path, CHIP)
    with Device.open(path, ftl="dftl") as device:
        device.write(2500 * PAGE, bytes(range(256)) * 16)
    before = path.read_bytes()
    for size, why in (
        (2500 * PAGE, "cut off what is written at byte 10240000"), (PAGE + 1, "a multiple of the page"), (0, "a mul"),
        (CHIP.pages * PAGE, "of which dftl can export 2[0-9] MiB at most"), ((CHIP.pages - 16) * PAGE, "MiB at most"),
    ):  # fmt: skip
        with pytest.raises(FlashfsError, match=why):
            resizing.resize(path, size)
    with Device.open(path), pytest.raises(ImageError, match="in use"):
        resizing.resize(path, 2600 * PAGE)
    assert [one.name for one in tmp_path.iterdir()] == ["image"]
    assert resizing.resize(path, CHIP.logical_bytes).copied == 0
    with pytest.raises(UsageError, match="cut off"):
        resizing.resize(path, 2500 * PAGE)
    with Device.open(path, readonly=True) as device:
        assert device.read(2500 * PAGE, PAGE) == bytes(range(256)) * 16
    assert len(before) == path.stat().st_size


def test_blocks_that_have_gone_bad_hold_nothing(tmp_path: Path) -> None:
    """An image grows no further than its good blocks allow; to that size it can be filled."""
    path = tmp_path / "image"
    nandimg.create(path, CHIP)
    with Device.open(path, ftl="pagemap") as device:
        device.write(0, b"kept" * 1024)
    with closing(nandimg.open_image(path)) as image:
        blank = [block for block in range(CHIP.blocks) if image.chip.read_spare_area(block, 0)[0] == 0]
        for block in blank[-150:]:
            image.chip.retire_block(block)
        image.chip.synchronise()
    with pytest.raises(BindError, match=r"in good blocks, of which pagemap can export (.*) MiB at most") as refused:
        resizing.resize(path, 4500 * PAGE)
    said = re.search(r"export ([\d.]+) MiB", str(refused.value))
    assert said is not None
    lpas = int(float(said[1]) * (1 << 20)) // PAGE
    assert CHIP.lpas < lpas < 250 * CHIP.pages_per_block
    resizing.resize(path, lpas * PAGE)
    with Device.open(path) as device:
        for lpa in range(1, lpas):
            device.write(lpa * PAGE, b"full" * 1024)
        device.flush()
        assert device.read(0, PAGE) == b"kept" * 1024


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "image"
    nandimg.create(path, CHIP)
    assert run(["resize", str(path), "8M"]) == 0
    assert "8 MiB for the host, before 11.7 MiB" in capsys.readouterr().out
    assert run(["resize", str(path), "8M", "--json"]) == 0
    assert '"copied": 0' in capsys.readouterr().out
    assert run(["resize", str(path), "1000000"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_two_resizes_of_one_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds the first one at work; and whatever took the name meanwhile keeps it."""
    path = tmp_path / "chip"
    nandimg.create(path, CHIP)
    with Device.open(path) as device:
        device.write(0, bytes([1]) * PAGE)
    inner = resizing._written_again

    def meanwhile(old: Device, made: Path) -> int:
        with pytest.raises(ImageError, match="in use"):
            resizing.resize(path, 2800 * PAGE)
        with pytest.raises(ImageError, match="in use"):
            Device.open(path, readonly=True)
        return inner(old, made)

    monkeypatch.setattr(resizing, "_written_again", meanwhile)
    assert resizing.resize(path, 2900 * PAGE).after == 2900 * PAGE

    def replaced(old: Device, made: Path) -> int:
        other = tmp_path / "other"
        nandimg.create(other, CHIP)
        other.replace(path)
        return inner(old, made)

    monkeypatch.setattr(resizing, "_written_again", replaced)
    with pytest.raises(UsageError, match="another file has this name"):
        resizing.resize(path, 2800 * PAGE)
    assert nandimg.inspect(path).ftl == ""
    assert [one.name for one in tmp_path.iterdir()] == ["chip"]


def test_the_largest_size_can_be_filled(tmp_path: Path) -> None:
    """What followed from the old size follows from the new one."""
    path = tmp_path / "chip"
    geometry = Geometry.sized(2 << 20, op=0.6, page_bytes=PAGE, pages_per_block=16)
    nandimg.create(path, geometry)
    Device.open(path, ftl="slimftl").close()
    lpas = geometry.lpas
    for more in range(16, geometry.pages - lpas, 16):
        try:
            resizing.resize(path, (geometry.lpas + more) * PAGE)
        except FlashfsError:
            break
        lpas = geometry.lpas + more
    assert lpas > geometry.lpas * 1.1
    with Device.open(path) as device:
        for version in range(3):
            for lpa in range(lpas):
                device.write(lpa * PAGE, bytes([version]) * PAGE)
        device.flush()


@pytest.mark.parametrize("ftl", ["remapssd", "dftl"])
def test_nvram_stays_what_it_is(tmp_path: Path, ftl: str) -> None:
    """A scheme's region is no write buffer of the next chip."""
    path = tmp_path / "image"
    nandimg.create(path, replace(CHIP, nvram_bytes=0))
    with Device.open(path, ftl=ftl) as device:
        device.write(0, bytes(range(256)) * 16)
    regions = {one.name: one.bytes for one in nandimg.inspect(path).regions}
    for lpas in (2800, 2600, CHIP.lpas):
        resizing.resize(path, lpas * PAGE)
        assert list(regions) == [one.name for one in nandimg.inspect(path).regions]
    assert regions == {one.name: one.bytes for one in nandimg.inspect(path).regions}
    with pytest.raises(BindError, match="the image has 0;"):
        Device.open(path, plp=True)


def test_a_device_that_ends_before_a_superblock_could(tmp_path: Path) -> None:
    path = tmp_path / "image"
    nandimg.create(path, Geometry(page_bytes=512, pages_per_block=8, blocks=24, oob_bytes=64, lpas=120))
    with Device.open(path, ftl="pagemap") as device:
        device.write(0, bytes(range(256)) * 2)
    assert resizing.resize(path, 100 * 512).after == 100 * 512
    with Device.open(path) as device:
        assert device.read(0, 512) == bytes(range(256)) * 2


def test_the_life_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "image"
    nandimg.create(path, CHIP)
    for turn in range(5):
        with Device.open(path, ftl="pagemap") as device:
            device.write(0, bytes([turn]) * PAGE)
    device = Device.open(path)
    device.write(PAGE, bytes([7]) * PAGE)
    device.flush()
    device.close(clean=False)
    resizing.resize(path, 2800 * PAGE)
    with Device.open(path) as device:
        assert device.smart()["life"]["unsafe_shutdowns"] == 1
        assert device.ssd.mounts == 6  # after the first: what a mount without a resize would say


def test_a_page_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "image"
    nandimg.create(path, CHIP)
    with Device.open(path, ftl="pagemap") as device:
        device.write(0, bytes(range(256)) * 16)

    def unreadable(*_: object) -> bytes:
        raise UncorrectableError(0, "its page cannot be read")

    monkeypatch.setattr(Device, "read", unreadable)
    before = path.read_bytes()
    with pytest.raises(FlashfsError, match=r"image: LPA 0: its page cannot be read: .*blkdiscard"):
        resizing.resize(path, 3600 * PAGE)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["image"]


def test_a_file_with_two_names_is_not_split(tmp_path: Path) -> None:
    path, other = tmp_path / "image", tmp_path / "other"
    nandimg.create(path, CHIP)
    other.hardlink_to(path)
    with pytest.raises(UsageError, match="2 names"):
        resizing.resize(path, 2500 * PAGE)
    assert path.samefile(other)
    other.unlink()
    assert resizing.resize(path, 2500 * PAGE).after == 2500 * PAGE
