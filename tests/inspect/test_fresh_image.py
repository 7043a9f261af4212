"""What is dumped of an image in which nothing was written: most tables are empty then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nandimg
from flashfs import cli
from flashfs.device import Device
from flashfs.ftl import scheme
from flashfs.inspect import views
from nandimg.presets import PRESETS
from tests.schemes import EACH


def dumped(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.run(["dump", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("ftl", EACH)
def test_each_view_in_each_format(tmp_path: Path, capsys: pytest.CaptureFixture[str], ftl: str) -> None:
    image = tmp_path / "image"
    nandimg.create(image, PRESETS["small-64m"].geometry)
    Device.open(image, ftl=ftl).close()
    needs = {name for name, (_, argument) in views.GENERAL.items() if argument}
    for view in views.names(ftl):
        if view in scheme(ftl).numbered:  # there may be no number 0 yet, which is said
            assert cli.run(["dump", str(image), view, "0"]) in (0, 2)
            assert "internal error" not in capsys.readouterr().err
            continue
        numbers = ["0"] if view in needs else []
        assert dumped(capsys, str(image), view, *numbers).strip()
        json.loads(dumped(capsys, str(image), view, *numbers, "--json"))
    dumped(capsys, str(image), "--html", str(tmp_path / "page.html"))


def test_a_blank_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / "image"
    nandimg.create(image, PRESETS["tiny-16"].geometry)
    for view in ("header", "blocks", "log", "scheme", "recovery"):
        assert dumped(capsys, str(image), view).strip()
        json.loads(dumped(capsys, str(image), view, "--json"))


def test_an_empty_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / "image"
    nandimg.create(image, PRESETS["small-64m"].geometry)
    Device.open(image, ftl="fast").close()
    assert dumped(capsys, str(image), "logs") == "logs: none\n"
