"""What ``dump`` and the HTML page show of maps and of page validity that lie in flash: the same as the device says."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import nandimg
from flashfs import cli, inspect
from flashfs.device import Device
from flashfs.engine.views import block_map
from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES
from nandimg import Geometry

GEOMETRY = Geometry(page_bytes=512, pages_per_block=16, blocks=512, channels=2, dies=4, oob_bytes=64, lpas=5_500)
OPTIONS = {"geckoftl": {"entries": "12", "parts": "4"}}
PAGED = ("muftl", "dftl", "lazyftl", "sftl", "tpftl", "learnedftl", "ibftl", "geckoftl")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A used image of a scheme, clean or as a kill leaves it; made once."""
    made: dict[tuple[str, bool], Path] = {}

    def image(ftl: str, clean: bool = True) -> Path:
        if (ftl, clean) not in made:
            path = tmp_path_factory.mktemp(ftl) / "chip"
            nandimg.create(path, GEOMETRY)
            device = Device.open(path, ftl=ftl, options=OPTIONS.get(ftl))
            rnd = random.Random(5)
            for turn in range(12_000):
                device.write(rnd.randrange(GEOMETRY.lpas) * 512, rnd.randbytes(512))
                if turn == 11_000:
                    device.checkpoint()
            device.flush()
            device.close(clean=clean)
            made[ftl, clean] = path
        return made[ftl, clean]

    return image


def chart(path: Path, title: str) -> dict[str, Any]:
    scheme = inspect.report(path)["scheme"]
    return next(one for one in scheme["charts"] if one.get("title") == title)


def field(found: dict[str, Any], name: str) -> list[Any]:
    return next(one["values"] for one in found["fields"] if one["name"] == name)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize("ftl", PAGED)
def test_translation_pages(images: Any, ftl: str, clean: bool) -> None:
    """Each LPA is where DRAM says, or else where its translation page says."""
    path = images(ftl, clean)
    per_page = GEOMETRY.page_bytes // 4
    pages = [inspect.scheme(path, "translation", page) for page in range(-(-GEOMETRY.lpas // per_page))]
    with Device.open(path, readonly=True) as device:
        where = block_map.locations(device.ssd).tolist()
    places = {lpa: None if ppa == 2**32 - 1 else ppa for lpa, ppa in enumerate(where)}
    for page in pages:
        for row in page["entries"]:
            said = row["newer"] if row["where"] else row["stored"]
            assert places.pop(row["lpa"]) == said
    assert set(places.values()) <= {None}
    newer = inspect.scheme(path, "newer")
    assert len(newer) == sum(bool(row["where"]) for page in pages for row in page["entries"])
    drawn = chart(path, "Translation pages")
    counts = Counter(row["translation_page"] for row in newer)
    assert field(drawn, "newer") == [counts[page] for page in range(len(pages))]
    assert field(drawn, "ppa") == [page["ppa"] for page in pages]
    with pytest.raises(UsageError, match=f"has pages 0 to {len(pages) - 1}"):
        inspect.scheme(path, "translation", len(pages))


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize("ftl", ["muftl", "ibftl", "geckoftl"])
def test_pages_of_a_validity_store(images: Any, ftl: str, clean: bool) -> None:
    """``dump page``: those that the device uses are live, and it shows what they are."""
    path = images(ftl, clean)
    with Device.open(path, readonly=True) as device:
        live = [ppa for kind, ppa in device.ssd.owned_pages() if kind == 3]
    assert live
    for ppa in live[:: max(1, len(live) // 5)]:
        shown = inspect.page(path, ppa)
        assert shown["live"], shown["why"]
        assert shown["oob"]["kind"] == "validity"
        key = {"muftl": "page_of_bitmap", "ibftl": "page_of_log", "geckoftl": "page_of_run"}[ftl]
        assert shown["content"][key] == shown["oob"]["validity_page"]
        json.dumps(shown)
    dead = next(
        found for ppa in range(GEOMETRY.pages)
        if (found := inspect.page(path, ppa)) and ppa not in live and found.get("oob", {}).get("kind") == "validity"
    ) if ftl == "geckoftl" else None  # fmt: skip
    assert dead is None or (not dead["live"] and dead["why"].startswith("superseded"))


def test_a_bitmap_in_flash(images: Any) -> None:
    path = images("muftl")
    with Device.open(path, readonly=True) as device:
        live = {block: set(device.ssd.validity.live_in(block)) for block in range(GEOMETRY.blocks)}
        waits = device.stats()["scheme"]
        ours = {ppa // GEOMETRY.pages_per_block for kind, ppa in device.ssd.owned_pages() if kind == 3}
    assert waits is not None
    said = 0
    for row in inspect.scheme(path, "pvb"):
        for block in inspect.page(path, row["ppa"])["content"]["blocks"]:
            assert block["block"] not in ours
            assert block["live"] == len(block["pages"])
            said += set(block["pages"]) == live[block["block"]]
    assert said > GEOMETRY.blocks // 2  # the others have reports that wait in DRAM


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
def test_runs_of_gecko(images: Any, clean: bool) -> None:
    """Its pages, decoded here, say of each block what Gecko says."""
    path = images("geckoftl", clean)
    runs = inspect.scheme(path, "runs")
    assert len(runs) >= (2 if clean else 1)
    assert [run["level"] for run in runs] == sorted(run["level"] for run in runs)
    assert [run["age"] for run in runs] == sorted(run["age"] for run in runs)
    found: dict[int, list[Any]] = {}
    flags = 0
    for number, run in enumerate(runs):
        shown = inspect.scheme(path, "run", number)
        assert (shown["number"], len(shown["pages"])) == (run["number"], run["pages"])
        assert [page["ppa"] for page in shown["pages"]] == run["ppas"][: run["pages"]]
        assert sum(page["entries_n"] for page in shown["pages"]) == len(shown["entries"])
        for entry in shown["entries"]:
            flags += entry["erased"]
            found.setdefault(entry["block"], []).append((f"run {run['number']}", entry["part"], entry["invalid"]))
    for block in range(0, GEOMETRY.blocks, 7):
        entries = [one for one in inspect.scheme(path, "gecko", block)["entries"] if one["where"] != "buffer"]
        assert [(one["where"], one["part"], one["invalid"]) for one in entries] == found.get(block, [])
    cells = chart(path, "Pages of Gecko")
    assert cells["n"] == sum(run["pages"] for run in runs)
    assert sum(field(cells, "erase flags")) == flags
    assert field(cells, "level") == [run["level"] for run in runs for _ in range(run["pages"])]
    bands = chart(path, "What Gecko's runs speak of")["bands"]
    assert [len(band["lines"]) for band in bands] == [run["pages"] for run in runs]
    assert sum(len(band["points"]) for band in bands) == flags
    assert bands[-1]["points"] == []  # the oldest run has no flags
    assert chart(path, "Runs of Gecko")["bars"] == [[f"level {run['level']}", run["pages"]] for run in runs]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
def test_chains_of_the_log(images: Any, clean: bool) -> None:
    path = images("ibftl", clean)
    log = inspect.scheme(path, "pvl")
    pages = {page["page"]: page["ppa"] for page in log["pages"]}
    drawn = chart(path, "Pages of the validity log")
    assert field(drawn, "ppa") == list(pages.values())
    counts = field(drawn, "entries that count")
    for index in range(0, len(counts), 9):
        content = inspect.page(path, list(pages.values())[index])["content"]
        assert sum(entry["counts"] for entry in content["entries"]) == counts[index]
    longest = inspect.scheme(path, "chain")
    band = chart(path, "The longest chains")["bands"][0]
    assert band["label"] == f"block {longest['block']}"
    assert len(band["points"]) == sum(entry["position"] is not None for entry in longest["chain"])
    assert len(band["lines"]) == len(band["points"]) - 1


def test_the_metadata_log_of_any_scheme(images: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for ftl in ("ibftl", "geckoftl"):
        assert cli.run(["dump", str(images(ftl)), "log", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["checkpoints"]


@pytest.mark.parametrize("ftl", PAGED)
def test_what_is_mapped(images: Any, ftl: str) -> None:
    """Not what lives: where validity is late, superseded pages may count as live."""
    path = images(ftl)
    with Device.open(path, readonly=True) as device:
        mapped = sum(device.ssd.mapped(lpa) for lpa in range(GEOMETRY.lpas))
    found = inspect.report(path)
    assert found["scheme"]["charts"][0]["facts"]["mapped"] == mapped
    assert found["summary"]["mapped"] == f"{100 * mapped / GEOMETRY.lpas:.1f} %"
    assert set(SCHEMES[ftl].views) >= {"map", "gtd", "cmt", "newer"}
