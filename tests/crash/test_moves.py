"""Which of two pages with one sequence number is the copy: the order of their blocks does not tell."""

from __future__ import annotations

import random
from pathlib import Path

import nandimg
from flashfs.crash import Case, run_case
from flashfs.device import Device
from flashfs.inspect import opened
from nandimg import Geometry

PAGE = 512
#: cleaning has its block open since before its victims' blocks were opened; recoveries that took those pages for the
#: copies brought the victims back, until no block was free for the checkpoint of the last
OPEN_FOR_LONG = (
    "ftl=pagemap preset=tiny-24d opt.buffer=4 cut=5:data-only cut=49:data-only cut=186:before program='"
    "w0+80 w0+80 w0+32 w78+2 w76+3 w65+5 w76+1 w53+5 w71+6 w66+6 w77+2 w8+1 w3+3 w38+5 w28+2 w73+4 w45+4 w10+5 "
    "w55+6 w22+5 w27+6 w20+2 w34+3 w58+5 w56+2 w30+3 w65+4 w9+5 w8+5 w44+2 f w33+5 w27+4 w2+5 w61+2 t6 w17+6 w4+5 "
    "w21+5 w33+1 w22+2 w29+5 w3+1 w74+2 w10+5 w79+1 w49+6 w18+5 w36+4 w70+6 w66+5 w25+5 w59+3 w7+5 w56+2 w34+2 "
    "w61+1 w77+2 w12+6 w54+4 w45+4 w22+3 w34+4 w14+5 w37+3 w57+1 w7+2 w64+1 w20+3 w27+5 w65+4 w59+2 w74+5 w78+2 "
    "w12+5'"
)


def test_a_block_that_cleaning_has_open_for_long() -> None:
    failure = run_case(Case.parse(OPEN_FOR_LONG)).failure
    assert failure is None, str(failure)


def test_moves_are_counted(tmp_path: Path) -> None:
    """A page that lies still is moved again and again, and says how often."""
    path, rnd = tmp_path / "image", random.Random(3)
    nandimg.create(path, Geometry(page_bytes=PAGE, pages_per_block=8, blocks=24, dies=2, oob_bytes=64, lpas=80))
    with Device.open(path, options={"buffer": "0"}) as device:
        for lpa in range(80):
            device.write(lpa * PAGE, bytes([lpa]) * PAGE)
        for _ in range(900):
            device.write(rnd.choice([lpa for lpa in range(80) if lpa % 4]) * PAGE, bytes(PAGE))
    with opened(path) as view:
        assert view.device is not None
        live = [block * 8 + page for block in range(24) for page in view.device.ssd.validity.live_in(block)]
        moves = {spare.lpa: spare.moves for spare in (view.spare(ppa)[1] for ppa in live)}
        assert all(view.spare(ppa)[1].moved == (view.spare(ppa)[1].moves > 0) for ppa in live)
    assert max(moves[lpa] for lpa in range(0, 80, 4)) >= 2
