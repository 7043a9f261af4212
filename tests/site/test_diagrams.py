"""The diagrams of docs/diagrams.md are there as pictures too, and show what the page does."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import diagrams


def test_the_page_has_them() -> None:
    assert list(diagrams.diagrams()) == ["write", "cleaning", "recovery"]
    assert diagrams.PAGE.read_text().count("```mermaid") == 3


@pytest.mark.parametrize(("name", "source"), diagrams.diagrams().items(), ids=list(diagrams.diagrams()))
def test_each_picture_is_of_what_the_page_says(name: str, source: str) -> None:
    assert f"](img/{diagrams.picture(name).name})" in diagrams.PAGE.read_text()
    text = diagrams.picture(name).read_text()
    assert text.endswith(f"{diagrams.mark(source)}\n"), "run tools/diagrams.py"
    drawn = ElementTree.fromstring(text)
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert not drawn.findall(".//{http://www.w3.org/2000/svg}foreignObject")
    words = " ".join(" ".join(drawn.itertext()).split())
    assert {"write": "those pages are dead", "cleaning": "erased", "recovery": "ready"}[name] in words
