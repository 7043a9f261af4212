"""The reader that was written from SPEC.md, `flashfs dump` and the device itself must tell the same story."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import reader
import reader_maps
import torn

from flashfs import cli, inspect
from flashfs.crash import campaign, tiers
from flashfs.device import Device
from flashfs.engine.device import metalog
from flashfs.engine.device.remaps import remap_pages
from flashfs.errors import FlashfsError
from nandimg import PRESETS, Cut, checksum, create, page_checksum
from nandimg._faults import SHAPES

FTLS = ("pagemap", "fast", "hpftl", "slimftl", "leaftl", "remapssd")  #: whose own bytes SPEC.md describes
OWN_STREAM = {"fast": "sequential", "hpftl": "overflow"}
CHIPS = ("tiny-16", "tiny-24d")
STATUS = ("erased", "whole", "torn")


def fill(device: Device, rnd: random.Random, writes: int, trims: int = 0) -> None:
    """Random requests of a page or a few, flushes in between: enough of them and cleaning sets in. Where a scheme can,
    remaps of a page or a few after each third write."""
    page, pages = device.page_bytes, device.size // device.page_bytes
    for i in range(writes):
        lpa = rnd.randrange(pages)
        n = min(rnd.choice((1, 1, 1, 3)), pages - lpa)
        device.write(lpa * page, b"".join(rnd.randbytes(16) * (page // 16) for _ in range(n)))
        if device.ssd.mapping.remapping is not None and i % 3 == 2:
            n = rnd.choice((1, 2, 5))
            target, source = rnd.randrange(pages - n + 1), rnd.randrange(pages - n + 1)
            remap_pages(device.ssd, target, source, n, rnd.random() < 0.3)
        if trims and i % (writes // trims) == 0:
            device.trim(rnd.randrange(pages) * page, page)
        if i % 17 == 0:
            device.flush()


def scenario(name: str, device: Device, rnd: random.Random) -> bool:
    """Leave the device in the state of that name; returns whether to close it cleanly."""
    if name == "fresh":
        return True
    fill(device, rnd, 12)
    if name == "trimmed":
        fill(device, rnd, 40, trims=8)
        device.trim(0, device.size // 2)
        device.flush()
        return False
    if name in ("cleaned", "cleaned-crashed", "checkpoint-crashed"):
        fill(device, rnd, 700, trims=20)
    if name == "checkpoint-crashed":
        device.checkpoint()
        fill(device, rnd, 25, trims=3)
        device.flush()
    if name == "unflushed":
        device.flush()
        fill(device, rnd, 9)
    return name in ("clean", "cleaned")


def turned(name: str) -> tuple[str, ...]:
    """The chips, the other one first for every other state."""
    return CHIPS[:: -1 if NAMES.index(name) % 2 else 1]


NAMES = ("fresh", "clean", "crashed", "unflushed", "trimmed", "cleaned", "cleaned-crashed", "checkpoint-crashed")


def made(path: Path, ftl: str, chip: str, name: str) -> Path:
    """An image in one of the states."""
    create(path, PRESETS[chip].geometry)
    options = {"wear_spread": "4"} if chip == "tiny-24d" else {}
    if ftl == "leaftl" and chip == "tiny-24d":
        options["table_bytes"] = "1"  # its table in translation pages
    with pytest.MonkeyPatch.context() as patched:
        if NAMES.index(name) % 2:          # in checkpoints of every other state single pages of one fill are in no page
            patched.setattr(metalog, "FILL_LEAST", 1)
        device = Device.open(path, ftl=ftl, options=options)
    clean = scenario(name, device, random.Random(f"{ftl} {chip} {name}"))
    device.close(clean=clean)
    return path


@contextmanager
def readonly(path: Path) -> Iterator[Device]:
    device = Device.open(path, readonly=True)
    try:
        yield device
    finally:
        device.close(clean=False)


def test_checksums() -> None:
    assert reader.crc32c(b"123456789") == 0xE3069283
    rnd = random.Random(1)
    for size in (512, 4096):
        data = rnd.randbytes(size)
        assert reader.crc32c(data) == checksum(data)
        assert reader.page_sum(data) == page_checksum(data)


def header_and_layout(image: Path, spec: reader.Image) -> None:
    dump = inspect.header(image)
    for field in ("version", "generation", "uuid", "backend", "ftl", "oob_used", "geometry", "options", "features",
                  "nvram"):
        assert spec.header[field] == dump[field], field
    for region in ("nvram_at", "spare_at", "data_at", "stride"):
        assert getattr(spec, region) == dump["layout"][region], region
    assert [copy["state"] for copy in dump["copies"]] == ["whole", "whole"]


def blocks(image: Path, spec: reader.Image) -> None:
    live = [0] * spec.blocks
    for ppa in {page.ppa for page in spec.current().values()}:
        live[ppa // spec.pages_per_block] += 1
    rows = inspect.blocks(image)
    assert len(rows) == spec.blocks
    for row in rows:
        block = row["block"]
        first = spec.page(block * spec.pages_per_block)
        assert row["erases"] == spec.erases(block)
        assert row["health"] == ("good", "factory bad", "grown bad")[spec.health(block)]
        assert row["next_page"] == spec.last[block]
        assert row["live"] == live[block]
        if first.status == "whole":
            assert row["order"] == first.order
            assert row["stream"] == ("host", "gc", "wear", "meta", "map")[first.stream]


def every_page(image: Path, spec: reader.Image) -> None:
    chip = inspect.View(image)
    current = {page.ppa for page in spec.current().values()}
    try:
        for ppa in range(spec.pages):
            found = spec.page(ppa)
            status, data, oob = chip.chip.read_page(*divmod(ppa, spec.pages_per_block))
            assert (found.status, found.data, found.oob) == (STATUS[status], data, oob), ppa
            assert chip.live(ppa) == (ppa in current), ppa
    finally:
        chip.close()


def page_view(image: Path, spec: reader.Image) -> None:
    current = {page.ppa for page in spec.current().values()}
    for ppa in random.Random(7).sample(range(spec.pages), 12):
        found, dump = spec.page(ppa), inspect.page(image, ppa)
        assert dump["status"] == found.status
        if found.status == "erased":
            continue
        names = [name for bit, name in ((1, "moved"), (2, "last"), (4, "clean")) if found.flags & bit]
        assert dump["oob"] == {
            "lpa": found.lpa if found.kind == reader.USER else None,
            **({"translation_page": found.lpa} if found.kind == reader.TRANSLATION else {}),
            "seq": found.seq,
            "kind": {1: "user", 2: "translation", 4: "checkpoint", 5: "trim", 6: "mount", 7: "pad"}[found.kind],
            "flags": names,
            "moves": found.flags >> 4,
            **({"group": found.group} if found.group else {}),
            "order": found.order,
            "stream": ("host", "gc", "wear", "meta", "map", OWN_STREAM.get(spec.header["ftl"]))[found.stream],
            "page_number": (found.number - 1) % 2048,
        }
        assert dump["scheme_oob"]["bytes"] == found.own.hex(" ")
        if found.kind == reader.USER:
            assert dump["live"] == (ppa in current)
            if spec.header["ftl"] == "slimftl":
                own = {key: dump["scheme_oob"][key] for key in ("vba", "hid", "shared")}
                assert own == {
                    "vba": int.from_bytes(found.own[:4], "little"), "hid": found.own[4], "shared": bool(found.own[5]),
                }  # fmt: skip
            elif spec.header["ftl"] == "leaftl":
                assert len(found.own) == 8 * spec.header["options"]["gamma"]


def content(image: Path, spec: reader.Image) -> None:
    pages = spec.content()
    hole = bytes(spec.page_bytes)
    with readonly(image) as device:
        assert device.problems() == []
        for lpa in range(spec.lpas):
            assert device.read(lpa * spec.page_bytes, spec.page_bytes) == pages.get(lpa, hole), lpa


def lpa_story(image: Path, spec: reader.Image) -> None:
    current = spec.users()
    everything = [page for ppa in range(spec.pages) if (page := spec.page(ppa)).status != "erased"]
    for lpa in random.Random(8).sample(range(spec.lpas), 10):
        dump = inspect.lpa(image, lpa)
        page = current.get(lpa)
        assert dump["ppa"] == (page.ppa if page else None)
        assert dump["seq"] == (spec.page(page.ppa).seq if page else None)
        copies = [page for page in everything if page.kind == reader.USER and page.lpa == lpa]
        assert {row["ppa"] for row in dump["copies"]} == {page.ppa for page in copies}
        live = [row["ppa"] for row in dump["copies"] if row["state"] == "live"]
        if spec.shares:  # others may have stayed at a page that the LPA has left
            there = {page.ppa for page in current.values()}
            assert sorted(live) == sorted(page.ppa for page in copies if page.ppa in there)
        else:
            assert live == ([page.ppa] if page else [])
        assert all(row["why"] for row in dump["copies"])


def clean_sections(image: Path, spec: reader.Image) -> None:
    """A clean image's own tables say what the live pages say."""
    checkpoint = spec.clean_checkpoint()
    with readonly(image) as device:
        assert (checkpoint is not None) == device.recovery.clean
        if checkpoint is None:
            return
        current = {lpa: page.ppa for lpa, page in spec.users().items()}
        if spec.header["ftl"] in ("pagemap", "remapssd"):
            assert reader_maps.pagemap_ppas(spec, checkpoint.sections) == current
            assert ("pvb" in checkpoint.sections) == (spec.header["ftl"] == "pagemap")
            return
        if spec.header["ftl"] in ("fast", "hpftl"):
            ppas = reader_maps.fast_ppas if spec.header["ftl"] == "fast" else reader_maps.hpftl_ppas
            assert ppas(spec, checkpoint.sections) == current
            return
        if spec.header["ftl"] == "leaftl":
            groups = reader_maps.groups_of_leaftl(spec, checkpoint.sections)
            said = {lpa: reader_maps.leaf_ppa(spec, groups, lpa) for lpa in range(spec.lpas) if lpa in current}
            assert said == current
            assert [lpa for lpa in range(spec.lpas) if reader_maps.leaf_guess(groups, lpa)] == sorted(current)
            return
        for lpa in range(spec.lpas):
            assert reader_maps.slim_ppa(spec, checkpoint, lpa) == current.get(lpa)
            said, entry = device.ssd.mapping.explain(lpa), reader_maps.slim_entry(spec, checkpoint.sections, lpa)
            assert said["hid"] == entry["hid"]
            if entry["hid"]:
                assert [said[key] for key in ("ppid", "vba", "pba")] == [entry[key] for key in ("ppid", "vba", "pba")]
                assert said["shared_from"] == entry["shared"]


def log(image: Path, spec: reader.Image) -> None:
    """Both find the same newest checkpoint, and the same trims after it."""
    crash = reader.Crash(spec)
    dump = inspect.log(image)
    newest = next(row for row in dump["checkpoints"] if row["whole"])
    assert crash.base is not None
    assert (newest["checkpoint"], newest["ppa"], newest["seq"]) == (crash.base.id, crash.base.ppa, crash.base.seq)
    since = sorted((row["lpa"], row["pages"], row["seq"]) for row in dump["trims"] if not row["in_checkpoint"])
    assert since == sorted(crash.trims)


@pytest.mark.parametrize("damaged", [False, True])
def test_what_leaftl_says_after_damage(tmp_path: Path, damaged: bool) -> None:
    """A translation page that could not be read was rebuilt from the live pages. From then on the checkpoint says that
    they were not counted."""
    path = tmp_path / "image"
    create(path, PRESETS["tiny-16"].geometry)
    with Device.open(path, ftl="leaftl", options={"table_bytes": "1", "buffer": "0"}) as device:
        fill(device, random.Random(3), 60)
    spec = reader.Image(path)
    before = spec.clean_checkpoint()
    assert before is not None
    assert "inexact" not in before.sections
    assert reader_maps.counts_agree(spec, before.sections)
    if damaged:
        for ppa in reader_maps.translation_ppas(spec, before.sections).values():
            spoil(path, ppa)
    with Device.open(path) as device:
        device.read(0, device.size)
        device.write(0, bytes(device.page_bytes))
    spec = reader.Image(path)
    after = spec.clean_checkpoint()
    assert after is not None
    assert ("inexact" in after.sections) == damaged
    assert damaged or reader_maps.counts_agree(spec, after.sections)


def spoil(path: Path, ppa: int) -> None:
    """Flip a byte of a page's data."""
    header = inspect.header(path)
    with path.open("r+b") as file:
        file.seek(header["layout"]["data_at"] + ppa * header["geometry"]["page_bytes"] + 40)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x10]))


@pytest.mark.parametrize("ftl", FTLS)
def test_other_options(tmp_path: Path, ftl: str) -> None:
    """The documented hasher, with MD5 and another shift; lists of neighbours; for pagemap, an image of the meta
    backend."""
    path = tmp_path / "image"
    if ftl == "pagemap":
        create(path, PRESETS["tiny-16"].geometry, backend="meta")
        device = Device.open(path, options={"buffer": "0"})
    else:
        create(path, PRESETS["tiny-24d"].geometry)
        own = {
            "fast": {"log_blocks": "3", "buffer": "2"},
            "hpftl": {"hash": "md5", "candidates": "shifted", "hashes": "20", "buffer": "2"},
            "slimftl": {"hash": "md5", "shift": "1"},
            "leaftl": {"gamma": "4", "buffer": "16"},
            "remapssd": {"segment": "128", "atomic": "command", "buffer": "2"},
        }[ftl]
        device = Device.open(path, ftl=ftl, options=own)
    fill(device, random.Random(3), 300, trims=6)
    device.close()
    spec = reader.Image(path)
    checkpoint = spec.clean_checkpoint()
    assert checkpoint is not None
    current = {lpa: page.ppa for lpa, page in spec.users().items()}
    assert current
    if ftl in ("pagemap", "remapssd"):
        assert reader_maps.pagemap_ppas(spec, checkpoint.sections) == current
    elif ftl == "hpftl":
        assert reader_maps.hpftl_ppas(spec, checkpoint.sections) == current
    elif ftl == "fast":
        assert reader_maps.fast_ppas(spec, checkpoint.sections) == current
    elif ftl == "leaftl":
        groups = reader_maps.groups_of_leaftl(spec, checkpoint.sections)
        assert any(not said[1] for lpa in current if (said := reader_maps.leaf_guess(groups, lpa)))
        assert {lpa: reader_maps.leaf_ppa(spec, groups, lpa) for lpa in current} == current
    else:
        assert {lpa: reader_maps.slim_ppa(spec, checkpoint, lpa) for lpa in current} == current


def test_protected_buffer(tmp_path: Path) -> None:
    """With --plp, what was acknowledged before a crash is in the NVRAM's slots."""
    path = tmp_path / "image"
    create(path, PRESETS["tiny-16"].geometry)
    device = Device.open(path, plp=True)
    device.write(5 * 512, b"p" * 512)
    device.write(6 * 512, b"q" * 512)
    device.flush()
    device.close(clean=False)
    saved = {lpa: (seq, page) for lpa, seq, page in reader.Image(path).saved()}
    assert saved[5] == (1, b"p" * 512)
    assert saved[6] == (2, b"q" * 512)
    story = inspect.lpa(path, 5)
    assert story["nvram"] == [{"slot": 0, "lpa": 5, "seq": 1, "counts": True}]
    assert story["reads"].startswith("NVRAM slot 0")
    with readonly(path) as plain:  # whatever the options of the mount
        assert plain.read(5 * 512, 1024) == b"p" * 512 + b"q" * 512


def test_refusals(tmp_path: Path) -> None:
    """A flipped bit, an unknown version, a truncated file; one good copy of the header is enough."""
    path = tmp_path / "image"
    create(path, PRESETS["tiny-8"].geometry)
    good = path.read_bytes()
    path.write_bytes(good[:100] + b"!" + good[101:])
    assert reader.Image(path).header == reader.Image(_again(path, good)).header
    for broken in (
        good[:8] + b"\3" + good[9:4104] + b"\3" + good[4105:],
        good[:100] + b"!" + good[101:4196] + b"!" + good[4197:],
        good[: 16 * 4096],
        good[:12288] + b"\1" + good[12289:],
    ):
        path.write_bytes(broken)
        with pytest.raises(reader.Refused):
            reader.Image(path)


def _again(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("ftl", FTLS)
def test_torn_images(tmp_path: Path, ftl: str) -> None:
    for seed in range(30):
        torn_image(tmp_path, ftl, seed)


def torn_image(tmp_path: Path, ftl: str, seed: int) -> None:
    """Power goes in the middle of something, twice at times: the reader and the recovery find the same pages."""
    rnd = random.Random(f"torn {ftl} {seed}")
    path = tmp_path / f"image{seed}"
    case = campaign.random_setting(rnd, ftl, rnd.choice(tiers.presets_for(ftl)), odd=False)
    cuts = [Cut(rnd.randint(1, 60), rnd.choice(SHAPES)), Cut(rnd.randint(1, 12), rnd.choice(SHAPES))]
    torn.leave(path, case, cuts[: rnd.randint(1, 2)])
    assert torn.disagreements(path) == [], f"{case.line()} cuts {cuts}"


def dump_json_is_the_view(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`flashfs dump --json` prints what the views return."""

    def dump(*words: Any) -> Any:
        assert cli.run(["dump", str(image), *map(str, words), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert dump("header") == inspect.header(image)
    assert dump("blocks") == inspect.blocks(image)
    assert dump("page", 9) == inspect.page(image, 9)
    assert dump("lpa", 3) == inspect.lpa(image, 3)
    assert dump("map") == inspect.scheme(image, "map")


def test_fsck_sees_damage(tmp_path: Path) -> None:
    """Bits that flip in flushed data are an error to the host and a line of fsck, never an older version."""
    path = tmp_path / "image"
    create(path, PRESETS["tiny-16"].geometry)
    device = Device.open(path)
    for version in (b"a", b"b"):
        device.write(0, version * 512)
        device.flush()
    device.close()
    assert inspect.problems(path, data=True) == []
    spec = reader.Image(path)
    at = spec.data_at + spec.current()[0].ppa * spec.page_bytes
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    raw[10] ^= 0x80
    path.write_bytes(raw)
    assert inspect.problems(path)[:1] == ["header copy 0: damaged"]
    assert "LPA 0 cannot be read" in inspect.problems(path, data=True)[1]
    with readonly(path) as again, pytest.raises(OSError, match="LPA 0"):
        again.read(0, 512)
    story = inspect.lpa(path, 0)
    assert (story["copies"][-1]["status"], story["copies"][-1]["state"]) == ("whole", "live")
    assert inspect.page(path, story["ppa"])["record"]["data_checksum"] == "does not match"


def test_blank_and_foreign(tmp_path: Path) -> None:
    """A blank image says so in every view; numbers beyond the chip are one line."""
    path = tmp_path / "image"
    create(path, PRESETS["tiny-8"].geometry)
    assert inspect.header(path)["state"].startswith("blank")
    assert {row["state"] for row in inspect.blocks(path)} == {"blank"}
    assert inspect.page(path, 5)["status"] == "erased"
    assert "blank" in inspect.lpa(path, 5)["reads"]
    for view in (inspect.scheme, inspect.recovery, inspect.log):
        assert view(path)["note"].startswith("blank")
    assert inspect.problems(path) == []
    for view, number in ((inspect.page, 32), (inspect.page, -1), (inspect.lpa, 8)):
        with pytest.raises(FlashfsError, match="0 to") as error:
            view(path, number)
        assert "\n" not in str(error.value)


def scheme_views(image: Path, spec: reader.Image) -> None:
    """The schemes' own tables, counted by the reader."""
    found = inspect.scheme(image)
    checkpoint = spec.clean_checkpoint()
    assert found["map"]["mapped"] == len(spec.users())
    with pytest.raises(FlashfsError, match="no view nonesuch"):
        inspect.scheme(image, "nonesuch")
    if spec.header["ftl"] != "slimftl" or checkpoint is None:
        return
    entries = [reader_maps.slim_entry(spec, checkpoint.sections, lpa)["hid"] for lpa in range(spec.lpas)]
    assert {row["hid"]: row["lpas"] for row in found["hids"]} == {hid: entries.count(hid) for hid in set(entries)}
    lines = [reader_maps.slim_line(checkpoint.sections, vba) for vba in range(len(found["vbt"]))]
    assert [(row["pba"], row["shared"]) for row in found["vbt"]] == lines


@pytest.mark.parametrize(
    ("ftl", "chip", "name"),
    [
        pytest.param(*one, marks=pytest.mark.slow if i % 3 else ())  # each state and each chip of each scheme
        for i, one in enumerate((ftl, chip, name) for ftl in FTLS for name in NAMES for chip in turned(name))
    ],
)
def test_all_tell_the_same_story(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ftl: str, chip: str, name: str
) -> None:
    """Of one image everything is asked: to make it costs more than any of the questions."""
    image = made(tmp_path / "image", ftl, chip, name)
    before = image.read_bytes()
    spec = reader.Image(image)
    for question in (
        header_and_layout, blocks, every_page, page_view, content, lpa_story, clean_sections, log, scheme_views,
    ):  # fmt: skip
        question(image, spec)
    dump_json_is_the_view(image, capsys)
    assert image.read_bytes() == before
