"""Stepping through a replay: what is shown is what is in flash, and looking changes nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from schemes import KINDS

from flashfs import cli
from flashfs.crash.programs import presets_for
from flashfs.ftl import SCHEMES
from flashfs.replay.play import Setup, run
from flashfs.watch import steps
from nandimg.presets import PRESETS

SETUP = Setup("uniform:ops=60,write=0.8,trim=0.1", options={"buffer": "2"}, precondition="fill")


def setup_of(ftl: str) -> Setup:
    return replace(SETUP, ftl=ftl, geometry=PRESETS[presets_for(ftl, ("tiny-16", "tiny-32", "tiny-48"))[0]].geometry)


def at_end(found: dict[str, Any]) -> dict[int, list[str]]:
    """{PPA: [state, label]} after the last step, of pages that are not erased."""
    pages: dict[int, list[str]] = {}
    for step in found["steps"]:
        for ppa, state, label, _ in step["pages"]:
            pages[ppa] = [state, label]
    return {ppa: page for ppa, page in pages.items() if page[0] != "erased"}


@pytest.mark.parametrize("ftl", KINDS)
def test_what_is_shown_is_what_is_there(ftl: str) -> None:
    """Each LPA that is mapped has one live page at most (a late validity store may keep more), and all operations that
    left a page are recorded."""
    setup = setup_of(ftl)
    found = steps.record(setup)
    result = run(setup)
    pages = at_end(found)
    live = sorted(int(label) for state, label in pages.values() if state == "live")
    assert len(found["steps"]) == 61
    assert set(live) <= set(range(found["lpas"]))
    assert SCHEMES[ftl].validity_late or len(set(live)) == len(live)
    assert len(set(live)) > found["lpas"] // 2
    last = found["steps"][-1]["figures"]
    assert (last["programs"], last["erases"]) == (result["nand"]["program"], result["nand"]["erase"])
    assert last["WAF"] == (None if result["waf"] is None else round(result["waf"], 3))
    changed = [step for step in found["steps"][1:] if step["pages"]]
    assert changed and all(step["did"] for step in changed)


def test_what_a_step_did() -> None:
    """Without a buffer each write programs a page and kills another."""
    setup = replace(setup_of("pagemap"), source="uniform:ops=200", options={"buffer": "0"})
    found = steps.record(setup)
    told = [line for step in found["steps"][1:] for line in step["did"]]
    writes = [step for step in found["steps"] if re.fullmatch(r"write LPA \d+", step["what"])]
    assert len(writes) == 200
    for step in writes:
        lpa = step["what"].split()[-1]
        assert [lpa, "live"] in [[page[2], page[1]] for page in step["pages"]], step
    assert any("a copy that cleaning made" in line for line in told)
    assert any(line.startswith("erased block") for line in told)
    assert any(re.fullmatch(r"PPA \d+ died: LPA \d+", line) for line in told)
    assert all(len(step["did"]) <= steps.LINES_MOST + 1 for step in found["steps"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["uniform:ops=9", "--size", "64M"], "the chip has 19,968 pages"),
        (["uniform:ops=2001", "--preset", "tiny-16"], "more than 2,000 requests: use ops=2000"),
        (["uniform:ops=9", "uniform:ops=8", "--preset", "tiny-16"], "one source on one FTL"),
        (["uniform:ops=9", "--ftl", "pagemap,slimftl", "--preset", "tiny-16"], "one source on one FTL"),
    ],
)
def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    page = tmp_path / "page.html"
    assert cli.run(["replay", *words, "--steps", str(page)]) == 2
    assert said in capsys.readouterr().err
    assert not page.exists()


def test_a_page_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    words = ["replay", "uniform:ops=9", "--preset", "tiny-16", "--steps", str(page)]
    assert cli.run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 9
    assert cli.run(words) == 1
    assert "exists already; use another name, or --force" in capsys.readouterr().err
    assert cli.run([*words, "--force"]) == 0
    assert "9 requests" in capsys.readouterr().out
    assert cli.run(["replay", "uniform:ops=9", "--force"]) == 2


def test_names_from_outside_are_text() -> None:
    found = steps.record(replace(setup_of("pagemap"), source="uniform:ops=3"))
    page = steps.page({**found, "source": "</script><b>x", "ftl": "<i>"})
    assert "</script><b>" not in page
    assert "&lt;i&gt;" in page


CELLS = "JSON.stringify([...document.querySelectorAll('#blocks .cell')].map((one) => [one.className, one.textContent]))"


def test_stepping_in_a_browser(tmp_path: Path, browser: Browser) -> None:
    """Forwards, back, and forwards again is the same; the last picture is what the steps add up to."""
    found = steps.record(setup_of("dftl"))
    (tmp_path / "page.html").write_text(steps.page(found))
    browser.open(tmp_path / "page.html")
    first = browser.see(CELLS)
    browser.press("ArrowRight")
    assert browser.see("document.getElementById('what').textContent") == f"1 of 60: {found['steps'][1]['what']}"
    browser.see("show(60)")
    last = json.loads(browser.see(CELLS))
    shown = {ppa: [name.split()[1], label] for ppa, (name, label) in enumerate(last) if name.split()[1] != "erased"}
    assert shown == at_end(found)
    browser.see("show(0)")
    assert browser.see(CELLS) == first
    assert browser.complaints == []
