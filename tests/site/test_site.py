"""The docs site is built without a warning, no link of it leads nowhere, and it has what it is for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flashfs

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "inspect")]

import browser  # noqa: E402
import docs_site  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "site"
    nothing = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}  # no network is needed
    done = subprocess.run(
        [sys.executable, "tools/docs_site.py", str(folder)], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, **nothing, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    for page in [*(ROOT / name for name in docs_site.AT_ROOT), *(ROOT / "docs").rglob("*.md")]:
        inside = page.relative_to(ROOT)
        built = inside.with_name("index.html") if page.name == "README.md" else inside.with_suffix(".html")
        assert (site / built).is_file(), inside
    assert (site / "examples/tutorial.py.txt").read_text() == (ROOT / "examples/tutorial.py").read_text()


@pytest.mark.slow
def test_no_block_is_shown_as_text(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert "```" not in re.sub(r"(?s)<(pre|code|script)\b.*?</\1>", "", page.read_text()), page


@pytest.mark.slow
def test_the_reference_has_the_names(site: Path) -> None:
    page = (site / "docs/python-api.html").read_text()
    elsewhere = {name: f"flashfs.{name}.api.{name}" for name in ("check", "crash", "replay")}
    elsewhere["Geometry"] = "nandimg.geometry.Geometry"
    for name in [*flashfs.__all__, "open"]:
        assert f'id="{elsewhere.get(name, f"flashfs.{name}")}"' in page, name
    assert "recovering whatever state it is in" in page
    assert 'id="flashfs.Device.write"' in page


@pytest.mark.slow
def test_the_reference_has_what_is_compiled(site: Path) -> None:
    page = (site / "docs/python-ftl.html").read_text()
    for name in ("open_block", "closed_blocks", "live_pages"):
        assert f'id="flashfs.parts.python.python_ftl.Chip.{name}"' in page
    assert 'id="flashfs.ftl.python.Places.place"' in page


@pytest.mark.slow
def test_nothing_is_fetched_but_what_draws_diagrams(site: Path) -> None:
    for page in site.rglob("*.html"):
        found = docs_site.Links(page.read_text())
        assert not [link for link in found.sources if link.startswith(("http:", "https:", "//"))], page


CUT = """Array.from(document.querySelectorAll(".md-content pre > code, .md-typeset__scrollwrap"))
    .filter(block => block.scrollWidth > block.clientWidth + 1).map(block => block.textContent.slice(0, 80))"""


@pytest.mark.slow
def test_nothing_is_cut_at_1280_pixels(site: Path) -> None:
    """Lines of code, and tables."""
    if browser.installed() is None:
        pytest.skip("needs a browser (package chromium)")
    with browser.Browser() as window:
        window.screen(1280, 900)
        for page in ("index.html", "docs/tutorials/first-mount.html", "docs/packaging.html", "docs/watching.html"):
            window.open(site / page)
            assert window.see(CUT) == [], page


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#here">x</a><a href="#me"></a><img src="c.png"><p id="me">')
    (tmp_path / "b.html").write_text('<a href="a.html">x</a><a href="https://example.org/">y</a>')
    assert docs_site.broken(tmp_path) == [
        "a.html: b.html#here: no such place in that page", "a.html: c.png: no such file",
    ]  # fmt: skip
