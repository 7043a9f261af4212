"""Named features: who may open an image that has one that is not known, and what is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import nandimg
from flashfs import cli, ftl, inspect
from flashfs.device import FEATURES, Device
from flashfs.errors import BindError
from nandimg import PRESETS, Feature, ImageError
from nandimg.header import FEATURES_MOST

GEOMETRY = PRESETS["tiny-24d"].geometry
NEW = Feature("pagemap.new-thing")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    nandimg.create(tmp_path / "chip", GEOMETRY)
    return tmp_path / "chip"


def with_feature(monkeypatch: pytest.MonkeyPatch, *features: Feature) -> None:
    """The page map writes images with these from now on."""
    monkeypatch.setitem(ftl.SCHEMES, "pagemap", replace(ftl.SCHEMES["pagemap"], features=features))


def bound(path: Path, *features: Feature) -> None:
    """An image with these features and a page."""
    with pytest.MonkeyPatch.context() as patched:
        with_feature(patched, *features)
        with Device.open(path, ftl="pagemap") as device:
            device.write(0, b"x" * 512)


def test_they_are_kept_by_name_and_kind(path: Path) -> None:
    features = (Feature("a.1", "compatible"), Feature("b.2", "read-only-compatible"), Feature("c" * 31))
    bound(path, *reversed(features))
    features = tuple(sorted((*features, *FEATURES), key=lambda one: one.name))
    assert nandimg.inspect(path).features == features
    assert inspect.header(path)["features"] == [{"name": one.name, "kind": one.kind} for one in features]


def test_an_incompatible_one_is_refused_by_name(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bound(path, NEW)
    before = path.read_bytes()
    for readonly in (False, True):
        with pytest.raises(ImageError, match=r"has the feature pagemap\.new-thing, which this program does not know"):
            Device.open(path, readonly=readonly)
    for command in (["fsck"], ["dump", "--json"], ["upgrade"]):
        words = [*command[:1], str(path), *(["map"] if command[0] == "dump" else []), *command[1:]]
        assert cli.run(words) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "feature pagemap.new-thing" in said
    assert cli.run(["dump", str(path)]) == 0  # what the header says can be said
    assert "pagemap.new-thing" in capsys.readouterr().out
    assert path.read_bytes() == before


def test_a_read_only_compatible_one_may_be_read(path: Path) -> None:
    bound(path, replace(NEW, kind="read-only-compatible"))
    with pytest.raises(ImageError, match=r"new-thing, which this program does not know: it may only be read"):
        Device.open(path)
    device = Device.open(path, readonly=True)
    assert device.read(0, 512) == b"x" * 512
    device.close()
    assert inspect.problems(path) == []


def test_a_compatible_one_hinders_nobody(path: Path) -> None:
    bound(path, replace(NEW, kind="compatible"))
    with Device.open(path) as device:
        assert device.read(0, 512) == b"x" * 512
    assert nandimg.inspect(path).features == (*FEATURES, replace(NEW, kind="compatible"))


def test_who_knows_it_opens_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound(path, NEW)
    with_feature(monkeypatch, NEW)
    with Device.open(path) as device:
        assert device.read(0, 512) == b"x" * 512


def test_a_scheme_that_gained_one_says_how_older_images_get_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bound(path)
    with_feature(monkeypatch, NEW)
    with pytest.raises(BindError, match=f"without the feature {NEW.name}; `flashfs upgrade"):
        Device.open(path)
    device = Device.open(path, readonly=True)  # to read it, nothing is needed
    assert device.read(0, 512) == b"x" * 512
    device.close()
    assert cli.run(["upgrade", str(path)]) == 0
    assert f"it has the feature {NEW.name} now" in capsys.readouterr().out
    assert nandimg.inspect(path).features == (*FEATURES, NEW)
    with Device.open(path) as device:
        assert device.read(0, 512) == b"x" * 512


def test_one_of_the_chips_own_is_refused_below_any_engine(path: Path) -> None:
    image = nandimg.open_image(path)
    image.bind("some", {}, 24, features=[Feature("nandimg.new-thing")])
    image.close()
    with pytest.raises(ImageError, match=r"nandimg\.new-thing"):
        nandimg.open_image(path)


def test_what_is_no_feature(path: Path) -> None:
    for name, kind in (("Upper", "compatible"), ("", "compatible"), ("n" * 32, "compatible"), ("a b", "compatible"),
                       ("a", "optional")):  # fmt: skip
        with pytest.raises(ImageError, match="use "):
            Feature(name, kind)
    image = nandimg.open_image(path)
    with pytest.raises(ImageError, match=f"13 features: {FEATURES_MOST} fit"):
        image.bind("some", {}, 24, features=[Feature(f"f.{n}") for n in range(13)])
    image.close()
