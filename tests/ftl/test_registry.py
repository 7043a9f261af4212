"""Schemes are found in folders; what is wrong with one is said in a line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashfs import cli, ftl
from flashfs.errors import UsageError

OURS = list(ftl.SCHEMES.values())

FAMILY = """
from dataclasses import replace
from flashfs.ftl.pagemap import SCHEME as PAGEMAP
SCHEME = tuple(replace(PAGEMAP, name=name, year=year) for name, year in (("younger", 2031), ("older", 1999)))
"""


@pytest.fixture
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where folders of schemes may be made, beside ours."""
    monkeypatch.setattr(ftl, "SCHEMES", {})
    monkeypatch.setattr(ftl, "ROOMS", {})
    monkeypatch.setattr(ftl, "BROKEN", {})
    monkeypatch.setattr(ftl, "__path__", [*ftl.__path__, str(tmp_path)])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def room(rooms: Path, name: str, text: str) -> None:
    (rooms / name).mkdir()
    (rooms / name / "__init__.py").write_text(text)


def test_ours_are_in_the_order_of_their_papers() -> None:
    years = [scheme.year for scheme in ftl.SCHEMES.values()]
    assert years == sorted(years)
    assert next(iter(ftl.SCHEMES)) == "pagemap"
    assert ftl.ROOMS.keys() == ftl.SCHEMES.keys()


def test_a_family_shares_a_folder(rooms: Path) -> None:
    room(rooms, "a_family", FAMILY)
    room(rooms, "only_code", "x = 1\n")
    ftl._discover()
    assert list(ftl.SCHEMES)[:2] == ["pagemap", "older"]
    assert list(ftl.SCHEMES)[-1] == "younger"
    assert ftl.ROOMS["older"] == ftl.ROOMS["younger"] == "a_family"
    assert "only_code" not in ftl.ROOMS.values()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from flashfs.ftl.broken import mapping",
         "flashfs/ftl/broken cannot be imported: .*line 1: ImportError: .*mapping.*`make setup` compiles"),
        ("from flashfs.ftl.broken.mapping import Map", "ModuleNotFoundError: .*broken.mapping.*`make setup` compiles"),
        ("x = 1\ny = 1 / 0", "broken/__init__.py, line 2: ZeroDivisionError: division by zero$"),
        ("x = 1\nif:", "broken/__init__.py, line 2: invalid syntax$"),
        ("import sys\nsys.exit(3)", "broken/__init__.py, line 2: SystemExit: 3$"),
        ("from flashfs.ftl.slimftl import SCHEME\nfrom dataclasses import replace\nSCHEME = replace(SCHEME, year=2999)",
         "flashfs/ftl/broken: flashfs/ftl/slimftl has a scheme called slim"),
    ],
)  # fmt: skip
def test_a_broken_folder_breaks_its_own_scheme(
    rooms: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names its file and line; the other schemes work."""
    ours = [one.name for one in sorted(OURS, key=lambda one: (one.year, one.name))]
    room(rooms, "broken", text)
    ftl._discover()
    assert list(ftl.SCHEMES) == ours
    with pytest.raises(UsageError, match=said) as caught:
        ftl.scheme("broken")
    assert "\n" not in str(caught.value)
    assert ftl.is_registered("broken")  # an image that is bound to it gets the same error
    assert cli.run(["ftls"]) == 0
    assert re.search(said, capsys.readouterr().err.strip())
    assert cli.run(["create", str(rooms / "chip"), "--size", "16M"]) == 0


def test_none_of_ours_is_broken() -> None:
    assert ftl.BROKEN == {}


def test_no_view_hides_one_that_every_image_has() -> None:
    """``flashfs dump IMAGE log`` is the metadata log, whatever a scheme calls its own."""
    from flashfs.inspect.views import GENERAL

    for scheme in ftl.SCHEMES.values():
        names = [*scheme.views, *scheme.numbered]
        assert not set(names) & set(GENERAL), scheme.name
        assert len(names) == len(set(names)), scheme.name
