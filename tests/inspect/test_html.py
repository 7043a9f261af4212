"""The page of `dump --html`: what it says, in what it is written, and what a real browser makes of it."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from schemes import FEW

import nandimg
from flashfs import cli, inspect
from flashfs.device import Device
from flashfs.engine.views.block_map import Mapped
from flashfs.errors import FlashfsError
from nandimg import PRESETS, Geometry

GEOMETRY = Geometry(
    page_bytes=512, pages_per_block=16, blocks=64, channels=2, dies=4, oob_bytes=64, lpas=700, nvram_bytes=8192
)
KINDS = [("pagemap", True), ("slimftl", True), ("pagemap", False), ("slimftl", False), ("example", True)]
EVIL = "<img src=x onerror=evil()>"
END = "</script><script>evil()</script>"


def make(path: Path, ftl: str = "pagemap", clean: bool = True) -> Path:
    """An image that has been used: overwrites, trims, checkpoints; ``clean`` or as a kill leaves it."""
    nandimg.create(path, GEOMETRY)
    rnd = random.Random(3)
    device = Device.open(path, ftl="examples.minimal:Minimal" if ftl == "example" else ftl)
    for turn in range(1500):
        device.write(rnd.randrange(700) * 512, rnd.randbytes(512))
        if turn % 100 == 0:
            device.trim(rnd.randrange(600) * 512, 5 * 512)
            device.flush()
    device.checkpoint()
    for _ in range(60):
        device.write(rnd.randrange(700) * 512, rnd.randbytes(512))
    device.trim(0, 512 * 8)
    device.flush()
    device.close(clean=clean)
    return path


class Parts(HTMLParser):
    """What a page is made of: tags, the JSON of its maps, scripts, and all of its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data: list[dict[str, Any]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._kind: str | None = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._kind = (dict(attrs).get("type") or "script") if tag == "script" else tag

    def handle_endtag(self, tag: str) -> None:
        self._kind = None

    def handle_data(self, data: str) -> None:
        if self._kind == "application/json":
            self.data.append(json.loads(data))
        elif self._kind == "script":
            self.scripts.append(data)
        elif self._kind != "style":
            self.text += data


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]}-{'clean' if kind[1] else 'crashed'}")
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make(tmp_path / "chip", *request.param)


def values(chart: dict[str, Any], name: str) -> list[Any]:
    """A field of a map, its words put in."""
    field = next(field for field in chart["fields"] if field["name"] == name)
    return [field["words"][value] for value in field["values"]] if "words" in field else field["values"]


def test_the_page_says_what_the_views_say(image: Path) -> None:
    before = hashlib.sha256(image.read_bytes()).digest()
    found, page = inspect.report(image, trust=True), inspect.html(image, trust=True)
    blocks = Parts(page).data[0]
    table = inspect.blocks(image, trust=True)
    assert (blocks["n"], blocks["total"], blocks["each"]) == (64, 64, 1)
    for column, field in (("state", "state"), ("live", "valid"), ("erases", "erases"), ("health", "health")):
        assert values(blocks, field) == [row[column] for row in table]
    assert values(blocks, "programmed") == [row["next_page"] for row in table]
    for kind, order, row in zip(values(blocks, "kind"), values(blocks, "order"), table, strict=True):
        assert kind == (row["kind"] if row["kind"] not in ("", "torn") else "nothing")
        assert order == (row["order"] or 0)
    assert sum(found["pages"].values()) == GEOMETRY.pages
    assert found["pages"]["live"] == sum(row["live"] for row in table)
    said, log = inspect.recovery(image, trust=True), inspect.log(image, trust=True)
    assert found["recovery"]["clean"] == said["clean"]
    assert found["recovery"]["summary"] == said["summary"]
    assert [step["name"] for step in found["recovery"]["steps"]] == [step["name"] for step in said["steps"]]
    assert found["log"]["checkpoints"]["rows"] == log["checkpoints"]
    assert found["log"]["trims"]["rows"] == log["trims"][::-1]
    newest = next(row for row in log["checkpoints"] if row["whole"])
    assert (found["recovery"]["knew"]["checkpoint"], found["recovery"]["knew"]["up to write"]) == (
        newest["checkpoint"], newest["seq"],
    )  # fmt: skip
    assert (found["recovery"]["knew"]["written since"] == 0) == said["clean"]
    assert hashlib.sha256(image.read_bytes()).digest() == before


def test_a_page_is_one_whole_file(image: Path) -> None:
    """Nothing is fetched, one script runs, each tag is closed, and the chip's facts are there as text."""
    page = inspect.html(image, trust=True)
    parts = Parts(page)
    assert not [tag for tag, given in parts.tags if given.get("src") or tag in ("iframe", "object", "embed", "base")]
    assert [given["href"] for tag, given in parts.tags if tag == "link"] == ["data:,"]
    assert len(parts.scripts) == 1
    policy = next(given["content"] for _, given in parts.tags if given.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for tag in ("table", "section", "figure", "div", "details", "dl", "svg"):
        assert page.count(f"<{tag}") == page.count(f"</{tag}>"), tag
    assert len(re.findall(r'\bid="([^"]*)"', page)) == len(set(re.findall(r'\bid="([^"]*)"', page)))
    for text in ("Valid pages", "Wear", "Recovery", "Metadata log", "64 blocks of 16 pages of 512 B"):
        assert text in parts.text


def test_each_scheme_brings_its_own(tmp_path: Path) -> None:
    ftls = ("pagemap", "slimftl", "example")
    found = {ftl: inspect.report(make(tmp_path / ftl, ftl), trust=True)["scheme"] for ftl in ftls}
    titles = {ftl: [one.get("title") for one in scheme["charts"]] for ftl, scheme in found.items()}
    assert titles["pagemap"] == [None, "Where the LPAs lie", "Runs of the map"]
    assert titles["example"] == titles["pagemap"]
    assert titles["slimftl"] == [
        None, "Where the LPAs lie", "Hash functions in use", "Sharing", "Virtual block table",
    ]  # fmt: skip
    for ftl, scheme in found.items():
        mapped = sum(scheme["charts"][1]["cells"])
        with Device.open(tmp_path / ftl, readonly=True, trust=True) as device:
            assert mapped == sum(device.ssd.mapped(lpa) for lpa in range(700))
    runs = found["pagemap"]["charts"][2]["bars"]
    hids = {row["hid"]: row["lpas"] for row in inspect.scheme(tmp_path / "slimftl", "hids")}
    drawn = {int(label): n for label, n in found["slimftl"]["charts"][2]["bars"]}
    assert {hid: n for hid, n in drawn.items() if n} == {hid: n for hid, n in hids.items() if hid}
    assert sum(n for _, n in runs) > 0
    table = found["slimftl"]["charts"][4]
    lines = inspect.scheme(tmp_path / "slimftl", "vbt")
    assert values(table, "block") == [line["pba"] for line in lines]


def test_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 0-4 in a run that a block's end cuts in two, 5 alone, 6 nowhere, 7-8 together, 9 before its place."""
    from types import SimpleNamespace

    from flashfs.ftl import charts

    nothing = 2**32 - 1
    device = SimpleNamespace(ssd=SimpleNamespace(nand=SimpleNamespace(pages_per_block=4)))
    where = np.array([1, 2, 3, 4, 5, 9, nothing, 12, 13, 11], np.uint32)
    assert charts.runs(device, Mapped.of(where))["bars"] == [["1", 2], ["2 to 3", 3]]
    assert charts.runs(device, Mapped.of(np.full(3, nothing, np.uint32)))["bars"] == []
    monkeypatch.setattr(charts, "AT_ONCE", 2)  # and in pieces
    assert charts.runs(device, Mapped.of(where))["bars"] == [["1", 2], ["2 to 3", 3]]


def test_a_blank_chip(tmp_path: Path) -> None:
    nandimg.create(tmp_path / "chip", PRESETS["tiny-16"].geometry)
    page = inspect.html(tmp_path / "chip")
    assert "blank: bound to no FTL yet" in page
    assert set(values(Parts(page).data[0], "state")) == {"blank"}


def test_an_image_that_no_recovery_understands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "chip")
    monkeypatch.setattr(Device, "recover", lambda self: (_ for _ in ()).throw(FlashfsError("odd")))
    with pytest.raises(FlashfsError, match="odd"):
        inspect.html(path)
    from flashfs.errors import CorruptError

    monkeypatch.setattr(Device, "recover", lambda self: (_ for _ in ()).throw(CorruptError(f"PPA 5: {EVIL}")))
    page = inspect.html(path)
    assert "not recoverable: PPA 5: &lt;img" in page
    assert set(values(Parts(page).data[0], "state")) == {"unknown"}
    assert EVIL not in page


@pytest.mark.parametrize("preset", ["slimftl-16g", "16g"])
@pytest.mark.parametrize("ftl", FEW)
def test_a_large_chip_makes_no_large_page(tmp_path: Path, ftl: str, preset: str) -> None:
    """16 GiB: every block a cell of its own, and the page under 2 MB."""
    geometry = PRESETS[preset].geometry if preset in PRESETS else Geometry.sized(1 << 34)
    path = tmp_path / "chip"
    nandimg.create(path, geometry, backend="meta")
    device = Device.open(path, ftl=ftl, sync="none")
    rnd = np.random.default_rng(1)
    for _ in range(6):
        device.ssd.write_pages(rnd.integers(0, geometry.lpas, 30_000, dtype=np.uint32))
        device.ssd.trim_pages(int(rnd.integers(0, geometry.lpas - 100)), 100)
    device.close()
    page = inspect.html(path).encode()
    assert len(page) < 2_000_000
    blocks = Parts(page.decode()).data[0]
    assert (blocks["n"], blocks["each"]) == (geometry.blocks, 1)


def test_more_blocks_than_cells(tmp_path: Path) -> None:
    geometry = Geometry(page_bytes=512, pages_per_block=4, blocks=70_001, oob_bytes=64, lpas=200_000)
    path = tmp_path / "chip"
    nandimg.create(path, geometry, backend="meta")
    device = Device.open(path, sync="none")
    device.ssd.write_pages(np.arange(40_000, dtype=np.uint32))
    device.close()
    page = inspect.html(path)
    blocks = Parts(page).data[0]
    assert (blocks["n"], blocks["each"], blocks["total"]) == (23_334, 3, 70_001)
    table = inspect.report(path)["summary"]
    assert table["blocks"] == 70_001
    sizes = [3] * 23_333 + [2]
    assert sum(a * b for a, b in zip(values(blocks, "valid"), sizes, strict=True)) == pytest.approx(40_000, rel=0.01)
    assert len(page) < 2_000_000


# --- what is not ours


def test_what_an_image_says_is_only_text(tmp_path: Path, browser: Browser) -> None:
    """The name of the file, the options in its header, and the errors that quote these: the maker of an image chooses
    them."""
    path = tmp_path / EVIL
    nandimg.create(path, PRESETS["tiny-16"].geometry)
    image = nandimg.open_image(path)
    image.bind("pagemap", {END: END, "<b onclick=evil()>": "{{ 7*7 }}", "'\"&": 5}, 20)
    image.close()
    out = tmp_path / "page.html"
    inspect.write_html(path, out)
    page = out.read_text()
    for text in (EVIL, END, "<b onclick", "<script>evil"):
        assert text not in page
    assert page.count("<script") == 2  # its own, and the block map's data
    browser.complaints.clear()
    browser.open(out)
    assert browser.complaints == []
    assert browser.see("document.title") == f"{EVIL} - flashfs"
    assert browser.see("[...document.querySelectorAll('h1')].map(one => one.textContent)") == [EVIL]
    text = browser.see("document.body.textContent")
    assert END in text
    assert "{{ 7*7 }}" in text
    assert browser.see("document.querySelectorAll('img, b[onclick], [onerror]').length") == 0


def test_what_a_plug_in_says_is_only_text(tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.minimal import Minimal

    monkeypatch.setattr(Minimal, "figures", lambda self: {END: END, "deep": {END: 1}}, raising=False)
    monkeypatch.setattr(Minimal, "title", EVIL, raising=False)
    monkeypatch.setattr(Minimal, "about", END, raising=False)
    path = make(tmp_path / "chip", "example")
    out = tmp_path / "page.html"
    inspect.write_html(path, out, trust=True)
    assert END not in out.read_text()
    browser.complaints.clear()
    browser.open(out)
    assert browser.complaints == []
    assert END in browser.see("document.getElementById('h-scheme').parentElement.textContent")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = Path(str(tmp_path / "chip") + "\udcff\x1b[31m\u202e")
    nandimg.create(path, PRESETS["tiny-16"].geometry)
    page = inspect.html(path)
    assert "chip\\udcff\\x1b[31m\\u202e" in page
    page.encode()


# --- in a browser


@pytest.fixture
def page(image: Path, tmp_path: Path, browser: Browser) -> Path:
    out = tmp_path / "page.html"
    inspect.write_html(image, out, trust=True)
    browser.complaints.clear()
    browser.requests.clear()
    browser.screen(1200, 900)
    return out


def picked(browser: Browser, root: str = "#blocks") -> dict[str, str]:
    """What stands below a map: {name: text}."""
    found: dict[str, str] = browser.see(
        f"Object.fromEntries([...document.querySelectorAll('{root} .picked div')]"
        ".map(one => [one.dataset.field, one.querySelector('dd').textContent]))"
    )
    return found


def place(browser: Browser, cell: int) -> tuple[float, float]:
    """The middle of a cell of the block map, in the window."""
    browser.see("document.querySelector('#blocks canvas').scrollIntoView({block: 'center'})")
    x, y, columns, size = browser.see(
        "(c => { const b = c.getBoundingClientRect(); return [b.left, b.top, +c.dataset.columns, +c.dataset.size] })"
        "(document.querySelector('#blocks canvas'))"
    )
    return x + (cell % columns + 0.5) * size, y + (cell // columns + 0.5) * size


def test_a_browser_draws_it_without_a_word(page: Path, browser: Browser) -> None:
    browser.open(page)
    assert browser.complaints == []
    assert browser.requests[-1:] == [page.as_uri()]
    assert set(browser.requests) <= {page.as_uri(), "about:blank"}
    assert browser.see("+document.querySelector('#blocks canvas').dataset.count") == 64
    assert browser.see("+document.documentElement.dataset.drawn") == browser.see(
        "document.querySelectorAll('.map, .density').length"
    )
    painted = browser.see(
        "[...document.querySelectorAll('.map > canvas, .density > canvas')].map(c => new Set(new Uint32Array("
        "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)"
    )
    assert all(colours > 1 for colours in painted)


def test_a_click_shows_the_block(image: Path, page: Path, browser: Browser) -> None:
    browser.open(page)
    table = inspect.blocks(image, trust=True)
    for block in (0, 1, 17, 40, 63):
        browser.click(*place(browser, block))
        said, row = picked(browser), table[block]
        assert said["block"] == str(block)
        assert said["state"] == row["state"]
        assert said["valid"] == f"{row['live']} of 16"
        assert said["programmed"] == f"{row['next_page']} of 16"
        assert said["erases"] == f"{row['erases']:,}"
        assert said["order"] == f"{row['order'] or 0:,}"
        assert browser.see("document.querySelector('#blocks input').value") == str(block)
    for key, block in (("ArrowLeft", 62), ("ArrowLeft", 61), ("ArrowRight", 62)):
        browser.press(key)
        assert picked(browser)["block"] == str(block)
    assert browser.complaints == []


def test_other_ways_to_a_block(page: Path, browser: Browser) -> None:
    browser.open(page, "#block=33")
    assert picked(browser)["block"] == "33"
    browser.see(
        "(i => { i.value = 5; i.dispatchEvent(new Event('input')) })(document.querySelector('#blocks input'))"
    )
    assert picked(browser)["block"] == "5"
    browser.open(page, "#block=64")  # there is none
    assert picked(browser) == {}
    assert browser.complaints == []


def test_each_way_to_colour_has_its_legend(page: Path, browser: Browser) -> None:
    browser.open(page)
    legends = []
    for view in range(4):
        browser.see(
            f"(s => {{ s.value = {view}; s.dispatchEvent(new Event('change')) }})"
            "(document.querySelector('#blocks select'))"
        )
        legends.append(browser.see("document.querySelector('#blocks .legend').textContent"))
    assert legends[0].startswith("valid pages 0")
    assert "closed" in legends[1]
    assert legends[2].startswith("erases")
    assert legends[3].startswith("age")
    assert browser.complaints == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 1600, *(pytest.param(width, marks=pytest.mark.slow) for width in (390, 768))])
def test_no_width_breaks_it(page: Path, browser: Browser, width: int, dark: bool) -> None:
    browser.screen(width, 800, dark=dark, phone=width < 500)
    browser.open(page)
    assert browser.see("document.documentElement.scrollWidth") <= width
    background = browser.see("getComputedStyle(document.body).backgroundColor")
    assert (max(int(part) for part in re.findall(r"\d+", background)[:3]) < 80) == dark
    assert browser.complaints == []


# --- the command


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert err.count("\n") <= 1, err
    assert "internal error" not in err
    return code, out, err


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, out = make(tmp_path / "chip"), tmp_path / "page.html"
    code, said, err = run(capsys, "dump", "--html", out, path)
    assert (code, err) == (0, "")
    assert said.startswith(f"{out}: ")
    assert f"64 blocks of {path}" in said
    made = out.read_text()
    assert made == inspect.html(path)
    assert run(capsys, "dump", "--html", out, path) == (
        1, "", f"flashfs: --html {out}: exists already; use another name, or --force to overwrite it\n",
    )  # fmt: skip
    out.write_text("old")
    found = json.loads(run(capsys, "dump", path, "--html", out, "--force", "--json")[1])
    assert found == {"file": str(out), "bytes": len(made.encode()), "blocks": 64, "note": ""}
    assert out.read_text() == made
    assert sorted(one.name for one in tmp_path.iterdir()) == ["chip", "page.html"]


def test_what_the_command_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, out = make(tmp_path / "chip"), tmp_path / "page.html"
    raw = path.read_bytes()
    (tmp_path / "link").symlink_to("chip")
    (tmp_path / "dangling").symlink_to("nowhere")
    cases: list[tuple[list[object], int, str]] = [
        (["--html", out, tmp_path / "none"], 1, "no such file"),
        (["--html", tmp_path / "no" / "page", path], 1, "there is no directory"),
        (["--html", "/proc/page.html", path], 1, "--html /proc/page.html: "),
        (["--html", tmp_path, path, "--force"], 2, "not a regular file"),
        (["--html", "/dev/null", path, "--force"], 2, "not a regular file"),
        (["--html", path, path, "--force"], 2, "is the image itself"),
        (["--html", tmp_path / "link", path, "--force"], 2, "is the image itself"),
        (["--html", tmp_path / "dangling", path], 2, "not a regular file"),
        (["--html", tmp_path / ("x" * 300), path], 1, "File name too long"),
        (["--html", out, path, "blocks"], 2, "leave blocks out"),
        (["--force", path], 2, "nothing to overwrite"),
    ]
    for arguments, code, text in cases:
        assert (run(capsys, "dump", *arguments)[0], text) == (code, text), arguments
        assert text in run(capsys, "dump", *arguments)[2], arguments
    with Device.open(path):
        assert "in use by" in run(capsys, "dump", "--html", out, path)[2]
    shutil.copy(path, tmp_path / "foreign")
    (tmp_path / "foreign").write_bytes(bytes(100_000))
    assert run(capsys, "dump", "--html", out, tmp_path / "foreign")[0] == 1
    assert not out.exists()
    assert len(path.read_bytes()) == len(raw)
    names = {"chip", "link", "dangling", "foreign"}
    assert {one.name for one in tmp_path.iterdir()} == names
