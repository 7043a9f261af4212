"""Cuts that the recovery of Remap-SSD once did not survive, as campaigns found them and made small."""

from __future__ import annotations

import pytest
from unnumbered import without_page_numbers

from flashfs.crash import Case, run_case
from flashfs.crash.fault_bench import HurtBench
from flashfs.crash.host import HostBench

LINES = {
    # The host's disk lost the block that entries are about; the next one was opened under the same order.
    "entries about a block that was lost": "ftl=remapssd preset=tiny-20p cut=20:after:but.14-21 program='w20:489+196 "
    "w3 w50+4 w31+2 w30+1 w6 p49-4+3 f e33-1+4 w12'",
    "entries about a block that was lost, behind several cuts": "ftl=remapssd preset=tiny-16k cut=64:after:coin.347929 "
    "cut=14:data-only:tables cut=7:prefix-random:data program='e0-40+15 r w38+4 e3-34+19 e37-42+12 c39-1+2 w3+1'",
    # To make room for a write, cleaning wrote out the very LPA, under a newer number than the write had.
    "a page that is shed while its LPA is written": "ftl=remapssd preset=tiny-8 opt.buffer=0 opt.nvram=3072 "
    "cut=22:after program='w1 w2:474+2 w6 e0-3+4 p1-4+4 c4-0+3 w1+4 w5'",
    # The target was at that page, and a newer version of it in the protected write buffer, which played it.
    "a target that is where the source is, but for a version in NVRAM": "ftl=remapssd preset=tiny-8 plp program='w3 f "
    "p3-6+1 w3 p6-3+1'",
    # An erase that was cut short left the block's first page, and not the one where the checkpoint has the LPA.
    "an LPA that has left a block half erased": "ftl=remapssd preset=tiny-16k opt.buffer=4 opt.nvram=3072 "
    "cut=193:oob-only program='w48.6+1 w39 e0-0+8 w55 "
    "m36.5-26.0+146 w36 e1.5-38.1+34 w19 p4-23+10 w36 w20 p0.3-8.6+14 e0-15+8 t7+1 w18 p6-0+16 w20 p11-18+17 "
    "w43+2 p21.4-7.4+130 p6-12+15 w38.5+2 p29-18+12 w21 w48+4/2 m20-10+14 e28-7+20 w0 p1-17+17 w21 e0-3+11'",
    # A program that was meant for another block landed on the first page of one, at which several LPAs were.
    "a block whose first page is another's": "ftl=remapssd preset=tiny-24d opt.hash_us=1 fault=misdirect=54 "
    "fault=enospc=97 cut=4:prefix program='w0+80 p0-6+14'",
    # The same, of an entry that is older than the checkpoint: it is not looked at again. What the checkpoint says of
    # the block is.
    "a block whose first page is another's, at the checkpoint": "ftl=remapssd preset=tiny-20p opt.buffer=2 "
    "opt.stripe=4 opt.atomic=remap opt.verify=on opt.references=10 "
    "opt.rival=flog opt.nvram=2048 fault=misdirect=52 cut=12:before program='w25 w50+3 f w44 e0-17+1 w15 f i e30-31+2 "
    "w14 e5-7+2 t3+4 f f p0-36+1 w15 w41 p0-49+2 w29 w26 i p9-25+1 w14 i p0-10+1 t32+1 w38 w51 w46 e37-35+2 t1+2 "
    "p0-0+2 w24 e44-43+1 w26 w39 p0-20+2 w52+2 m0-54+1 f w14 i w14 t44+4 p24-23+1 w0 w8 w15 w43 w0 w48 p0-4+1 w33 i "
    "w13+3 w5 p33-32+2 r w14 w0 p0-53+2 w27 w0 f i w33 w10 w54+2 p0-27+1 w33 w29 f w14 w0 m29-28+1 r p2-1+1 w55 "
    "m0-51+2 w50 w49 p40-44+1 r e11-29+1 w20 w0 w27 p0-27+2 i w25 p21-42+1 w15 w33 p5-6+1 f w0 i f w45 e0-1+2 w15+4 i "
    "m12-23+1 w17 m35-39+2 t0+2 p1-18+2 f r w0 p0-0+1 i p37-9+2 w14+1 m37-37+2 t14+3 w15 m0-5+2 w0 f t32+1 w0 i "
    "p51-52+1'",
    # A page of several LPAs that cannot be read was moved for one that an entry brought, and its own LPA was not moved.
    "a lost page of several LPAs": "ftl=remapssd preset=tiny-24d fault=flip=56:40 fault=flip=110:40 cut=25:prefix-old "
    "program='w0+80 w0+80 p45-1+4 e13-66+5 w47+6 w25+6 e0-4+5 w69+3 w20+5 w57+4 w34+6 w40+5 w3+5 w24+6 w68+4 w71+2 "
    "w28+2 w66+5 w33+1 w76+1 w38+4 w30+4 w58+4'",
    # The only checkpoint was lost, and trims with it: one page here and there in each block counted again, and none was
    # free. The mount writes and cleans after that.
    "no block is free where the only checkpoint is lost": "ftl=remapssd preset=tiny-16 opt.references=3 "
    "cut=3:prefix-old program='w0+56 w0+56 w0+35 w28+5 t41 w3+3 p2-0+18 w30+4 t33 w45+6 m25-34+7 w0+5 p26-27+14 w12+5 "
    "p30-37+11 w45+2 w46+5 t12 w9+6 w1+4 p3-10+17 w36+4 w42+4 w35+5 w19+4 w18+3 w43+6 xc w0+56 f p3-9+20 w1+9 f r'",
}


@pytest.mark.parametrize("name", LINES)
def test_is_survived(name: str) -> None:
    failure = run_case(Case.parse(LINES[name])).failure
    assert failure is None, failure.why


@pytest.mark.parametrize("name", [name for name in LINES if name.startswith("entries about a block that was lost")])
def test_the_next_block_is_opened_under_an_order_that_no_entry_has(name: str) -> None:
    mounts = 0

    def mounted(what: str, _: int) -> None:
        nonlocal mounts
        if what.startswith("mounted"):
            mounts += 1
            found = bench.ssd.mapping.rmm.claims()["stamp"]
            assert not len(found) or found.max() <= bench.ssd.pool.last_order

    bench = HostBench(Case.parse(LINES[name]), tell=mounted)
    outcome = bench.play()
    assert outcome.failure is None, outcome.failure.why
    assert mounts


@pytest.mark.parametrize("name", [name for name, line in LINES.items() if "misdirect" in line])
def test_is_survived_where_pages_have_no_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an image of before, where only the order of blocks tells."""
    without_page_numbers(monkeypatch)
    failure = run_case(Case.parse(LINES[name])).failure
    assert failure is None, str(failure)


def test_an_entry_of_a_first_page_that_was_meant_for_another_block_is_refused() -> None:
    """A move's entry does not say of which order its page's block was. All other pages of that block disagree with the
    first one: the entry's LPA must not get that page, and the device says so."""
    line = (
        "ftl=remapssd preset=tiny-48 opt.buffer=0 opt.checkpoint_every=1 fault=misdirect=45 cut=59:after "
        "program='w0+65 m40-61+1'"
    )
    bench = HurtBench(Case.parse(line))
    outcome = bench.play()
    assert outcome.failure is None, outcome.failure.why
    said = [alarm for alarm in bench.alarms if alarm.endswith("its first page was meant for another block")]
    assert len(said) == 1
    lost = int(said[0].split()[1].rstrip(":")) * bench.geometry.pages_per_block
    assert any(alarm.startswith(f"PPA {lost}: a page that was flushed cannot be read") for alarm in bench.alarms)
