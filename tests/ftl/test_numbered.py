"""Views of ``flashfs dump`` that take a number say in one line which numbers there are, whatever they are given."""

from __future__ import annotations

from pathlib import Path

import pytest

import nandimg
from flashfs import cli
from flashfs.device import Device
from flashfs.ftl import SCHEMES
from nandimg import Geometry

GEOMETRY = Geometry(page_bytes=512, pages_per_block=16, blocks=96, channels=2, dies=4, oob_bytes=64, lpas=760)
OUTSIDE = (-1, GEOMETRY.pages, 2**32 - 1, 2**64)


@pytest.mark.parametrize("ftl", [name for name, scheme in SCHEMES.items() if scheme.numbered])
def test_a_number_that_is_not_there(ftl: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, GEOMETRY)
    with Device.open(path, ftl=ftl) as device:
        device.write(0, bytes(range(256)) * 2 * 40)
        device.remap(100 * 512, 0, 3 * 512)
    names = [name for name, scheme in SCHEMES.items() if scheme.numbered]
    common = ("lpa", "page") if ftl == names[0] else ()
    for view in (*SCHEMES[ftl].numbered, *common):
        for number in OUTSIDE:
            code = cli.run(["dump", str(path), view, "--", str(number)])
            said = capsys.readouterr().err
            assert code == 2, f"{view} {number}: {said}"
            assert said.count("\n") == 1, said
            assert str(number) in said, said
            assert any(words in said for words in (" 0 to ", " has none yet", "from 0 up")), said
