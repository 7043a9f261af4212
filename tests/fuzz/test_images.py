"""Damaged and forged images: refused in one line, or opened and behaving. tools/fuzz.py does the same at length."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace

import fuzz_mutate
import hypothesis.strategies as st
import pytest
from fuzz_bases import SMALL, bases
from fuzz_images import REFUSALS, Judge
from fuzz_picture import Picture, picture, write
from hypothesis import HealthCheck, given, settings
from schemes import KINDS

import nandimg
from flashfs import inspect
from flashfs.crash.programs import presets_for
from flashfs.device import Device
from flashfs.engine.views import block_map
from flashfs.errors import CorruptError, FlashfsError, UncorrectableError
from nandimg import PRESETS, GeometryError, ImageError

MADE = bases()
NAMES = [name for _, name in MADE.names]
NONE = 2**32 - 1


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(base=st.sampled_from(NAMES), seed=st.integers(0, 2**32))
def test_damaged_images(judge: Judge, base: str, seed: int) -> None:
    """The same ones each time: what is new is looked for at length, by tools/fuzz.py."""
    judge.image(MADE.named(base), Random(seed))


@pytest.mark.parametrize("name", list(fuzz_mutate.ALL))
def test_each_mutation(judge: Judge, name: str) -> None:
    """Every one of them, on every eighth base: none is forgotten because the dice did not fall so."""
    for index, base in enumerate(MADE[::8]):
        judge.image(base, Random(f"{name}/{index}"), only=name)


@pytest.mark.parametrize("number", [349, 34742, 34900, 37206, 67134, 85702, 103086, 104799])
def test_what_a_long_run_found(judge: Judge, number: int) -> None:
    """Inputs of `tools/fuzz.py --seed 2026` that were findings once."""
    rnd = Random(f"2026/image/{number}")
    judge.image(rnd.choice(MADE), rnd, sealed=fuzz_mutate.AT_FIRST)


def test_a_single_mutation_is_made(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge gets the image as it is after the mutation that was asked for."""
    base, seen = MADE.named("pagemap/tiny-16/file/clean"), []
    monkeypatch.setattr("fuzz_images.views", lambda path, *_: seen.append(path.read_bytes() != base.raw))
    for number in range(5):
        judge.image(base, Random(number), only="flip_tables")
    assert seen == [True] * 5


@pytest.mark.parametrize("number", [9070, 15760, 26094, 53851, 60467, 105569])
def test_guesses_that_damage_misled(judge: Judge, number: int) -> None:
    """Pages that lie about their LPA, under a mapping that asks pages for it: some LPA's page dies in place of
    another's. The next mount notices, and asks them all. And forged tables, which no page can excuse, nor that a
    block has more synced pages than pages."""
    rnd = Random(f"L/{number}")
    judge.image(rnd.choice(MADE.of("leaftl")), rnd, sealed=fuzz_mutate.AT_FIRST)


def test_sound_images_are_sound(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge finds nothing where nothing was done: what it says of the others is then about the damage."""
    monkeypatch.setattr("fuzz_images.damaged", lambda base, *_: (base.raw, ["nothing"], True))
    before = judge.tally.outcomes["opens, sound"]
    for base in MADE:
        judge.image(base, Random(base.name))
    assert judge.tally.outcomes["opens, sound"] == before + len(MADE)


def test_the_judge_notices(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of other LPAs, exceptions that are no refusals, and what was flushed and is gone."""
    base = MADE.named("pagemap/tiny-16/file/clean")
    read = Device.read

    def other(device: Device, offset: int, length: int) -> bytes:
        return read(device, (offset + length) % device.size, length)

    def broken(device: Device) -> list[str]:
        raise ValueError("x")

    for name, fake in (("read", other), ("problems", broken), ("flush", lambda device: None)):
        with monkeypatch.context() as patch:
            patch.setattr("fuzz_images.damaged", lambda base, *_: (base.raw, ["nothing"], True))
            patch.setattr(Device, name, fake)
            with pytest.raises(Exception, match=r"nobody wrote|ValueError|does not read what was"):
                for seed in range(20):
                    judge.image(base, Random(seed))


def test_every_header_byte(tmp_path: Path) -> None:
    """In one copy it does not matter; in both it is refused in one line, unless the other copy was not read."""
    base = MADE.named("pagemap/tiny-8/file/clean")
    path = tmp_path / "chip"
    sound = nandimg.header.unpack(base.raw[:4096], "base")
    for at in range(4096):
        for copies in ((0,), (1,), (0, 1)):
            raw = bytearray(base.raw[:8192])
            for copy in copies:
                raw[4096 * copy + at] ^= 1 << at % 8
            path.write_bytes(raw)
            if len(copies) == 1:
                assert nandimg.inspect(path) == sound
            else:
                with pytest.raises(ImageError, match=r"header copy 0|no flashfs image"):
                    nandimg.inspect(path)


def test_every_length(tmp_path: Path) -> None:
    base = MADE.named("pagemap/tiny-8/file/clean")
    path = tmp_path / "chip"
    for length in [*range(0, 16384, 97), *range(16384, len(base.raw), 1021), len(base.raw) - 1]:
        path.write_bytes(base.raw[:length])
        with pytest.raises(ImageError):
            Device.open(path)


def test_a_longer_file_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "chip"
    path.write_bytes(MADE.named("pagemap/tiny-8/file/clean").raw + b"more")
    Device.open(path).close()
    assert path.read_bytes().endswith(b"more")


# --- what was found, one each


def forged(base: str, change: Callable[[Picture], object]) -> Picture:
    p = picture(MADE.named(base).raw)
    change(p)
    return p


def in_section(name: str, at: int, raw: bytes) -> Callable[[Picture], object]:
    """``raw`` at ``at`` of a section of the newest checkpoint, all checksums right."""

    def change(p: Picture) -> None:
        one = p.checkpoints()[-1]
        first, size = p.section_at(one, name)
        assert at + len(raw) <= size
        stream = p.stream(one)
        stream[first + at : first + at + len(raw)] = raw
        p.put_stream(one, stream)

    return change


def alone(p: Picture) -> None:
    """Spoil every older checkpoint that is still there: one of them would stand in."""
    for one in p.checkpoints()[:-1]:
        p.raw[p.data_at(one.ppa)] ^= 255


def in_descriptor(at: int, raw: bytes) -> Callable[[Picture], object]:
    def change(p: Picture) -> None:
        alone(p)
        one = p.checkpoints()[-1]
        page = bytearray(p.data(one.ppa))
        page[at : at + len(raw)] = raw
        p.put_descriptor(one.ppa, bytes(page))

    return change


def in_header(at: int, raw: bytes) -> Callable[[Picture], object]:
    def change(p: Picture) -> None:
        for copy in (0, 1):
            p.raw[4096 * copy + at : 4096 * copy + at + len(raw)] = raw
            p.seal_header(copy)

    return change


def option(text: bytes) -> Callable[[Picture], object]:
    def change(p: Picture) -> None:
        in_header(76, struct.pack("<I", len(text)))(p)
        in_header(248, text)(p)

    return change


def every_head(change: Callable[[Picture, int], None]) -> Callable[[Picture], object]:
    """On each first page of a block that is programmed."""

    def all_of_them(p: Picture) -> None:
        for ppa in p.programmed():
            if ppa % p.per_block == 0:
                change(p, ppa)
                p.seal_record(ppa)

    return all_of_them


def set_oob(at: int, raw: bytes) -> Callable[[Picture, int], None]:
    def change(p: Picture, ppa: int) -> None:
        p.oob(ppa)[at : at + len(raw)] = raw

    return change


def index_circle(p: Picture) -> None:
    alone(p)
    one = p.checkpoints()[-1]
    there = one.ppa + 1
    oob = bytearray(p.oob(one.ppa))
    oob[7] = 0
    p.forge(there, b"", bytes(oob))
    p.put_descriptor(there, struct.pack("<4sIIIII", b"FFCX", 0, 1, there, one.ppa, 1).ljust(p.page_bytes, b"\0"))
    in_descriptor(52, struct.pack("<I", there))(p)


def same_page_over_and_over(p: Picture) -> None:
    """As many extents as fit, all of the same page: a stream many times the chip."""
    one = p.checkpoints()[-1]
    at = 64 + 20 * len(one.sections)
    n = (p.page_bytes - at) // 8
    in_descriptor(32, struct.pack("<Q", n * p.page_bytes))(p)
    in_descriptor(48, struct.pack("<I", n))(p)
    in_descriptor(at, struct.pack("<II", one.pages()[0], 1) * n)(p)


PAGE, SLIM = "pagemap/tiny-16/file/clean", "slimftl/tiny-16/file/clean"
UNCLEAN, SLIM_UNCLEAN = "pagemap/tiny-16/file/aged", "slimftl/tiny-16/file/aged"
LIES = {
    "PPA outside the chip": (PAGE, in_section("table", 0, struct.pack("<I", ~(2**31) & 0xFFFFFFFF))),
    "two LPAs at one PPA": (PAGE, in_section("table", 0, struct.pack("<II", 0xFFFFFFF7, 0xFFFFFFF7))),
    "live bits beyond the block": (PAGE, in_section("pvb", 1, b"\xff")),
    "all pages live": (PAGE, in_section("pvb", 0, b"\xff")),
    "no page live": (PAGE, in_section("pvb", 0, bytes(128))),
    "pool state 255": (PAGE, in_section("pool", 0, b"\xff")),
    "pool stream 255": (PAGE, in_section("pool", 1, b"\xff")),
    "next page 65535": (PAGE, in_section("pool", 2, b"\xff\xff")),
    "pool order of 2^48-1": (PAGE, in_section("pool", 4, b"\xff" * 6)),
    "VBT block outside the chip": (SLIM, in_section("virtual", 0, struct.pack("<I", 1))),
    "VBT: one block, two VBAs": (SLIM, in_section("virtual", 0, struct.pack("<II", 0xFFFFFE, 0xFFFFFE))),
    "read_ns of 2^64-1": (PAGE, in_header(144 + 8 * 8, struct.pack("<Q", 2**64 - 1))),
    "nvram of 2^40": (PAGE, in_header(144 + 8 * 7, struct.pack("<Q", 2**40))),
    "2^26 blocks": (PAGE, in_header(144 + 16, struct.pack("<Q", 2**26))),
    "a name that a terminal obeys": (PAGE, in_header(44, b"\x1b[2J")),
    "brackets a thousand deep": (PAGE, option(b"[" * 3000)),
    "an option that is a list": (SLIM, option(b'{"shift": [1]}')),
    "an option that is infinite": (SLIM, option(b'{"shift": 1e999}')),
    "an option that is never stored": (PAGE, option(b'{"buffer": 1048576}')),
    "sixteen million virtual blocks": (SLIM, option(b'{"virtual_blocks": 16777214}')),
    "stream 31 in the OOB": (UNCLEAN, every_head(set_oob(18, b"\x1f"))),
    "order 2^40-1": (UNCLEAN, every_head(set_oob(12, b"\xff" * 5))),
    "seq 2^48-1": (UNCLEAN, every_head(set_oob(0, b"\xff" * 6))),
    "HID 255": (SLIM_UNCLEAN, every_head(set_oob(24, b"\xff"))),
    "VBA 2^32-1": (SLIM_UNCLEAN, every_head(set_oob(20, b"\xff" * 4))),
    "NVRAM with sequence number 2^64-1": (UNCLEAN, lambda p: p.put_nvram(0, 1, 2**64 - 1, b"x")),
    "2^32-1 erases": (PAGE, lambda p: p.put_entry(0, NONE, 0, 0)),
}


#: about the checkpoint itself: it is not believed, and the pages alone say what is where
NOT_WHOLE = {
    "more sections than a page holds": (PAGE, in_descriptor(44, struct.pack("<I", NONE))),
    "more extents than a page holds": (PAGE, in_descriptor(48, struct.pack("<I", NONE))),
    "stream of 2^60 bytes": (PAGE, in_descriptor(32, struct.pack("<Q", 2**60))),
    "section of 2^63 bytes": (PAGE, in_descriptor(72, struct.pack("<Q", 2**63))),
    "extent of 2^32-1 pages": (PAGE, in_descriptor(64 + 60 + 4, struct.pack("<I", NONE))),
    "sequence number of 64 bits": (PAGE, in_descriptor(16, struct.pack("<Q", 2**64 - 1))),
    "id of 64 bits": (PAGE, in_descriptor(8, struct.pack("<Q", 2**64 - 1))),
    "index pages in a circle": (PAGE, index_circle),
    "one page over and over": (PAGE, same_page_over_and_over),
}


@pytest.mark.parametrize("lie", list(NOT_WHOLE))
def test_a_checkpoint_that_claims_too_much_is_not_whole(tmp_path: Path, lie: str) -> None:
    base, change = NOT_WHOLE[lie]
    path = write(tmp_path / "chip", forged(base, change))
    written = MADE.named(base).written
    with Device.open(path) as device:
        assert any("no checkpoint is of use" in alarm for alarm in device.recovery.alarms)
        for lpa in range(device.ssd.lpas):
            found = device.read(lpa * 512, 512)
            assert found in written[lpa] or (found == bytes(512) and not written[lpa])


@pytest.mark.parametrize("lie", list(LIES))
def test_lies_with_right_checksums_are_refused(tmp_path: Path, lie: str) -> None:
    """Each of these once crashed, hung, filled the memory or was believed; or would have."""
    base, change = LIES[lie]
    path = write(tmp_path / "chip", forged(base, change))
    with pytest.raises(REFUSALS) as caught:
        Device.open(path)
    assert str(caught.value).isprintable()
    for view in (inspect.header, inspect.blocks, inspect.log, inspect.scheme, inspect.recovery, inspect.problems):
        try:
            view(path)
        except REFUSALS as error:
            assert str(error).isprintable()


def test_a_header_that_claims_much_costs_little(tmp_path: Path) -> None:
    """A chip of 2^26 blocks is refused by the size of the file, before anything is allocated for it."""
    path = write(tmp_path / "chip", forged(PAGE, in_header(144 + 16, struct.pack("<Q", 2**26))))
    before = resident()
    with pytest.raises(ImageError, match="truncated"):
        Device.open(path)
    assert resident() - before < 4 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_health_that_no_chip_has(tmp_path: Path) -> None:
    """A health above 2 is bad, and has no name; `dump blocks` stumbled over it."""
    path = write(tmp_path / "chip", forged(PAGE, lambda p: p.put_entry(15, p.erases(15), 0, 77)))
    assert inspect.blocks(path)[15]["health"] == "77"
    with Device.open(path) as device:
        device.write(0, b"x" * 512)
        assert device.problems() is not None


def test_a_page_of_another_kind_is_nobodys_page(tmp_path: Path) -> None:
    """The map names a page that is not the host's, though its OOB holds the right number: it cannot be read."""

    def change(p: Picture) -> None:
        lpa = 3
        at, _ = p.section_at(p.checkpoints()[-1], "table")
        ppa = struct.unpack_from("<I", p.stream(p.checkpoints()[-1]), at + 4 * lpa)[0] ^ 0xFFFFFFFF
        p.oob(ppa)[6] = 4
        p.seal_record(ppa)

    base = MADE.named(PAGE)
    lpa = 3
    if not base.written[lpa]:
        pytest.fail("the base never wrote the LPA that this is about")
    path = write(tmp_path / "chip", forged(PAGE, change))
    with Device.open(path) as device, pytest.raises(UncorrectableError):
        device.read(lpa * 512, 512)


@pytest.mark.parametrize("ftl", KINDS)
def test_a_page_that_cannot_be_read_takes_no_neighbour_with_it(tmp_path: Path, ftl: str) -> None:
    """Cleaning moves the block of a damaged page, or does not; other LPAs keep what they hold, and the damaged one can
    be written again. slimftl once let the next write to it kill the page of another LPA."""
    path = tmp_path / "chip"
    nandimg.create(path, PRESETS[presets_for(ftl, SMALL)[0]].geometry)
    rnd, page = Random(5), 512
    with Device.open(path, ftl=ftl, options={"buffer": "0"}) as device:
        lpas = device.ssd.lpas
        model = {lpa: rnd.randbytes(page) for lpa in range(lpas)}
        for lpa, data in model.items():
            device.write(lpa * page, data)
        place = dict(enumerate(block_map.locations(device.ssd).tolist()))
    lost = rnd.sample(range(lpas), 4)
    p = picture(path.read_bytes())
    for lpa in lost:
        p.raw[p.data_at(place[lpa]) + 17] ^= 255
    write(path, p)
    with Device.open(path) as device:
        for step in range(1500):
            lpa = rnd.randrange(lpas)
            if lpa in lost and step < 1000:
                continue
            model[lpa] = rnd.randbytes(page)
            device.write(lpa * page, model[lpa])
            if lpa in lost:
                lost.remove(lpa)
        check(device, model, lost)
        device.flush()
    with Device.open(path) as device:
        check(device, model, lost)


def test_an_unreadable_page_does_not_hide_those_behind_it(tmp_path: Path) -> None:
    """Where slimftl shares blocks, it probes for a page: one that cannot be read is another LPA's, as likely as not."""
    path = tmp_path / "chip"
    nandimg.create(path, PRESETS["tiny-96"].geometry)
    with Device.open(path, ftl="slimftl", options={"buffer": "0"}) as device:
        lpas, page = device.ssd.lpas, device.page_bytes
        for lpa in range(lpas):
            device.write(lpa * page, bytes([lpa % 255 + 1]) * page)
        shared = [line["vba"] for line in inspect_vbt(device) if line["shared"]]
        first = {line["vba"]: line["pba"] for line in inspect_vbt(device)}[shared[0]]
    p = picture(path.read_bytes())
    spoilt = [first * p.per_block + number for number in range(p.per_block)]
    theirs = {struct.unpack_from("<I", p.oob(ppa), 8)[0] for ppa in spoilt}
    for ppa in spoilt:
        p.raw[p.data_at(ppa) + 1] ^= 255
    write(path, p)
    with Device.open(path) as device:
        for lpa in range(lpas):
            if lpa in theirs:
                with pytest.raises(UncorrectableError):
                    device.read(lpa * page, page)
            else:
                assert device.read(lpa * page, page) == bytes([lpa % 255 + 1]) * page


def inspect_vbt(device: Device) -> list[dict[str, int]]:
    return [device.ssd.mapping.virtual_block(vba) for vba in range(device.ssd.mapping.virtual_blocks)]


def check(device: Device, model: dict[int, bytes], lost: list[int]) -> None:
    for lpa, data in model.items():
        if lpa in lost:
            with pytest.raises(UncorrectableError):
                device.read(lpa * 512, 512)
        else:
            assert device.read(lpa * 512, 512) == data, lpa


@pytest.mark.parametrize("ftl", KINDS)
def test_a_damaged_head_is_not_an_erased_block(tmp_path: Path, ftl: str) -> None:
    """After a crash, a block whose first page is gone was taken for erased; if nothing newer is found of what it held,
    only that page is damaged, and the others count."""
    path = tmp_path / "chip"
    nandimg.create(path, PRESETS["tiny-24d"].geometry)
    device = Device.open(path, ftl=ftl, options={"buffer": "0"})
    page, lpas = device.page_bytes, device.ssd.lpas
    for lpa in range(lpas):
        device.write(lpa * page, bytes([lpa + 1]) * page)
    device.checkpoint()
    place = dict(enumerate(block_map.locations(device.ssd).tolist()))
    heads = {ppa: lpa for lpa, ppa in place.items() if ppa % device.nand.pages_per_block == 0}
    device.close(clean=False)
    ppa, lpa = next(iter(heads.items()))
    p = picture(path.read_bytes())
    p.raw[p.record_at(ppa) + 4] ^= 255
    write(path, p)
    with Device.open(path) as device:
        assert not device.recovery.clean
        for other in range(lpas):
            if other == lpa:
                with pytest.raises(UncorrectableError):
                    device.read(other * page, page)
            else:
                assert device.read(other * page, page) == bytes([other + 1]) * page


def test_wear_beyond_the_count_retires_a_block(tmp_path: Path) -> None:
    """The erase after the last that can be counted would make the block's next epoch 0, which says never programmed."""
    path = write(tmp_path / "chip", forged(PAGE, lambda p: p.put_entry(15, 2**32 - 2, 0, 0)))
    image = nandimg.open_image(path)
    try:
        assert image.chip.erase_block(15) is None
        assert image.chip.erase_count(15) == 2**32 - 2
    finally:
        image.close()


@pytest.mark.parametrize("field", ["read_ns", "program_ns", "erase_ns", "transfer_ns", "spare_ns", "nvram_bytes"])
def test_bounds_of_a_geometry(field: str) -> None:
    with pytest.raises(GeometryError, match=field):
        nandimg.Geometry(**{field: 2**40})


def test_pipes_and_folders_are_no_images(tmp_path: Path) -> None:
    """Once, a pipe without a writer was waited for."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null"), Path("/dev/zero")):
        for refused in (
            nandimg.inspect,
            Device.open,
            lambda path: nandimg.create(path, PRESETS["tiny-8"].geometry, force=True),
        ):
            with pytest.raises((ImageError, FlashfsError)) as caught:
                refused(path)
            assert str(path) in str(caught.value)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o277, 0o777])
def test_an_image_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        nandimg.create(tmp_path / "chip", PRESETS["tiny-8"].geometry)
    finally:
        os.umask(before)
    assert (tmp_path / "chip").stat().st_mode & 0o7777 == 0o600


def test_a_disk_that_is_too_small_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are weighed against what is free before any block is taken."""

    def allocate(*_: object) -> None:
        raise AssertionError("blocks were taken")

    room = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    monkeypatch.setattr(os, "fstatvfs", lambda fd: SimpleNamespace(f_blocks=9, f_bfree=1, f_frsize=room.f_frsize))
    with pytest.raises(ImageError, match="tables need"):
        nandimg.create(tmp_path / "chip", PRESETS["small-64m"].geometry)
    assert list(tmp_path.iterdir()) == []


def test_dump_on_a_chip_of_little_oob(tmp_path: Path) -> None:
    """Sixteen bytes are less than the engine's part of an OOB; a blank chip may have so few."""
    nandimg.create(tmp_path / "chip", nandimg.Geometry(pages_per_block=4, blocks=8, oob_bytes=16, lpas=8))
    assert len(inspect.blocks(tmp_path / "chip")) == 8
    assert inspect.page(tmp_path / "chip", 0)["status"] == "erased"


def test_a_header_that_names_another_scheme(tmp_path: Path) -> None:
    """Its stamps are looked for where none fit; with options that no scheme stores, only the bare chip can be shown."""

    def change(p: Picture) -> None:
        in_header(44, b"slimftl")(p)
        option(b'{"shift": []}')(p)

    p = forged(PAGE, change)
    path = write(tmp_path / "chip", p)
    user = next(ppa for ppa in p.programmed() if p.kind(ppa) == 1)
    assert inspect.page(path, user)["oob"]["kind"] == "user"


def test_a_trim_page_that_is_none_is_shown_as_such(tmp_path: Path) -> None:
    """`dump log` and `dump page` stopped at it."""

    def change(p: Picture) -> None:
        for ppa in p.metadata(5):
            p.put_data(ppa, b"FFTR" + struct.pack("<I", NONE))

    p = forged("pagemap/tiny-16/file/trims", change)
    assert p.metadata(5)
    path = write(tmp_path / "chip", p)
    assert inspect.log(path)["trims"] == []
    assert "trim page" in inspect.page(path, p.metadata(5)[0])["content"]["trims"]
    with pytest.raises(CorruptError, match="trim page"):
        Device.open(path)


def test_a_blanked_header_does_not_blank_the_image(tmp_path: Path) -> None:
    """An image whose header has lost the name of its FTL looks blank, and is full of pages: it is not formatted."""
    path = tmp_path / "image"
    nandimg.create(path, PRESETS["tiny-16"].geometry)
    with Device.open(path, ftl="slimftl") as device:
        device.write(0, b"x" * device.size)
    raw = bytearray(path.read_bytes())
    p = picture(bytes(raw))
    for copy in range(2):
        at = copy * 4096 + raw[copy * 4096 : copy * 4096 + 4096].index(b"slimftl")
        p.raw[at : at + 7] = bytes(7)
        p.seal_header(copy)
    path.write_bytes(bytes(p.raw))
    with pytest.raises(ImageError, match=r"says that it is blank, and there are pages in it; `flashfs create --force"):
        Device.open(path)
    assert path.read_bytes() == bytes(p.raw)


@pytest.mark.parametrize("number", [19, 276, 746, 1867, 2660])
def test_no_forgery_makes_the_engine_breach_the_rules(judge: Judge, number: int) -> None:
    """Inputs of `tools/fuzz.py --seed 77` that were findings: pages where the engine believed the chip to be erased,
    in an image that looked blank or was closed cleanly."""
    rnd = Random(f"77/image/{number}")
    judge.image(rnd.choice(MADE), rnd, sealed=fuzz_mutate.AT_FIRST)
