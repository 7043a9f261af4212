"""`flashfs compare`: an FTL beside those that are kept; and what is kept: of all FTLs, of this program, on the page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from flashfs import cli
from flashfs.comparison import beside, chart, kept, works
from flashfs.errors import FlashfsError
from flashfs.ftl import SCHEMES
from flashfs.replay import equal_settings
from flashfs.replay.play import Setup, named

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import comparison as tool  # noqa: E402

BROKEN = """
class Broken:
    def __init__(self, chip): self.ppa_of = {}
    def lookup(self, lpa): return self.ppa_of.get(lpa)
    def bind(self, lpa, ppa): 1 / 0
    def unbind(self, lpa): del self.ppa_of[lpa]
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(one) for one in arguments])
    out, err = capsys.readouterr()
    assert "internal error" not in err
    return code, out, err


@pytest.fixture(scope="module")
def rows() -> list[kept.Row]:
    return kept.read()


# --- what is kept


def test_all_ftls_are_kept(rows: list[kept.Row]) -> None:
    found = {(row["source"], row["state"], row["column"]) for row in rows}
    assert found >= {(text, state, ftl) for text in works.WORKLOADS for state in works.STATES for ftl in SCHEMES}
    assert list(dict.fromkeys(row["column"] for row in beside.published(rows))) == list(SCHEMES)


def test_the_page_is_of_what_is_kept() -> None:
    page = tool.DOC.read_text().partition(tool.MARK)[2]
    assert page.strip() == tool.page(tool.saved()).strip()
    assert "(img/comparison.svg)" in tool.DOC.read_text()
    assert tool.CHART.stat().st_size > 10_000


def test_the_page_says_why_it_can_be_below_1() -> None:
    assert "## Write amplification below 1\n" in tool.DOC.read_text()
    assert "comparison.md#write-amplification-below-1" in (ROOT / "docs/replay.md").read_text()


def test_the_chart_shows_every_ftl_on_every_workload(rows: list[kept.Row]) -> None:
    made = chart.figure(rows)
    for panel in made.panels:
        assert panel.groups == list(SCHEMES)
        assert [one.label for one in panel.series] == [works.short(text) for text in works.WORKLOADS]
        assert all(y is not None and y > 0 for one in panel.series for y in one.y)


def test_it_comes_with_the_package() -> None:
    assert '"flashfs.comparison" = ["results/*.json"]' in (ROOT / "pyproject.toml").read_text()
    assert kept.FILE.is_relative_to(ROOT / "flashfs/comparison/results")


@pytest.mark.parametrize("content", ["", "{}", '{"rows": [{"column": 3}]}', '{"rows": 7}'])
def test_a_file_that_is_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kept.json"
    for _ in range(2):
        with pytest.raises(FlashfsError, match=r"kept\.json: not a comparison that was kept; `python tools/comparison"):
            kept.read(path)
        path.write_text(content)


def test_what_is_written_is_read(tmp_path: Path, rows: list[kept.Row]) -> None:
    kept.write(rows[:3], tmp_path / "kept.json")
    assert kept.read(tmp_path / "kept.json") == rows[:3]


# --- the command


def test_one_of_them_comes_to_what_was_kept(
    capsys: pytest.CaptureFixture[str], rows: list[kept.Row], tmp_path: Path
) -> None:
    """To the bit. If the engine changed, `make comparison` makes what is kept anew."""
    picture = tmp_path / "c.svg"
    code, out, err = run(capsys, "compare", "slimftl", "--only", "hotcold", "--out", picture)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == str(picture)
    shown = [line.split()[0] for line in out.split("\n\n")[1].splitlines()[2:]]
    assert shown == ["slimftl,", *SCHEMES]
    line = next(line for line in out.splitlines() if line.strip().startswith("slimftl, now"))
    [old] = [row for row in beside.published(rows) if row["column"] == "slimftl" and "hotcold" in row["source"]]
    assert float(line.split()[-1]) == round(old["waf"], 3)
    assert picture.read_bytes().startswith(b"<?xml")


def test_an_ftl_of_ones_own(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A page map in a dict writes what the page map writes. Batteries and buffers of others are no matter of its."""
    monkeypatch.syspath_prepend(str(ROOT))
    words = ("compare", "examples.minimal:Minimal", "--only", "sequential")
    code, out, err = run(capsys, *words, "--json")
    assert (code, err) == (0, "")
    mine, *others = json.loads(out)
    assert (mine["column"], mine["kept"]) == ("Minimal", False)
    assert [(one["column"], one["kept"]) for one in others] == [(ftl, True) for ftl in SCHEMES]
    pagemap = others[list(SCHEMES).index("pagemap")]
    assert (mine["waf"], mine["erases"], mine["ground"]) == (pagemap["waf"], pagemap["erases"], pagemap["ground"])


def test_an_option_of_it_is_another_ground(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "compare", "pagemap", "--only", "sequential", "--opt", "buffer=64")
    assert code == 0
    assert "pagemap, now, buffer=64" in out
    assert err == "flashfs: pagemap: a write buffer of 64 pages, where the ground of the others is 2,048\n"


def test_one_that_fails_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken_for_compare.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "broken_for_compare:Broken"
    code, out, err = run(capsys, "compare", name, "--only", "sequential", "--out", tmp_path / "c.svg")
    assert code == 1
    assert err.startswith(f"flashfs: {name} on sequential:write=1,size=64k: ")
    assert "ZeroDivisionError" in err
    assert err.count("\n") == 1
    assert "pagemap" in out
    assert not (tmp_path / "c.svg").exists()


@pytest.mark.parametrize(("words", "said"), [
    (["nonesuch"], "no FTL is called 'nonesuch'"),
    (["pagemap,dftl"], "pagemap,dftl: name one FTL; the others are there"),
    (["pagemap", "--only", "nonesuch"], "--only nonesuch: no workload has that in its name; they are uniform:"),
    (["pagemap", "--out", "c.gif"], "--out c.gif: use a name that ends in .svg, .pdf, .png"),
    (["pagemap", "--opt", "bufer=64"], "option bufer (did you mean buffer?)"),
    (["pagemap", "--opt", "buffer"], "--opt buffer: use NAME=VALUE"),
])  # fmt: skip
def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    code, out, err = run(capsys, "compare", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_changed_program_is_told(rows: list[kept.Row]) -> None:
    old = next(row for row in beside.published(rows) if row["column"] == "dftl")
    assert beside.changed([{**old, "column": "dftl, now"}], rows, "dftl") == []
    [line] = beside.changed([{**old, "waf": 1.5}], rows, "dftl")
    assert line.startswith(f"dftl on {old['source']}: waf is 1.5, and {old['waf']} was kept; ")
    assert beside.changed([{**old, "waf": 1.5}], rows, "mine:Mine") == []


def test_the_ground_is_that_of_all(rows: list[kept.Row]) -> None:
    """What the others were given as they were played, an FTL that comes later gets."""
    for work in works.workloads("zipf"):
        at_once = {
            one.ftl: one for one in named(Setup(**{**vars(work.setup), "precondition": "fill"}), ",".join(SCHEMES))
        }
        for ftl, wanted in at_once.items():
            assert beside.setup(work, ftl, {}, rows) == wanted, ftl
    with pytest.raises(FlashfsError, match="gone: the comparison that is kept has no results of it"):
        beside.setup(works.Work("gone", Setup("uniform")), "pagemap", {}, rows)


def test_its_own_nvram_is_no_option_of_the_ground() -> None:
    """remapssd has an option of that name."""
    wanted: dict[str, Any] = {"buffer": 64, "stripe": 4, "nvram": 0}
    assert equal_settings.on(Setup("uniform", "remapssd"), wanted).options == {"buffer": 64, "stripe": 4}
