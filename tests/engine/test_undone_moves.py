"""Moves that a recovery undoes: what it is based on, and what a second recovery makes of the first one's result."""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig import MOVED, USER, Rig

from flashfs.crash import Case
from flashfs.crash.run import run_case
from flashfs.engine.recovery import recovery
from nandimg import Cut, FaultyNand, PowerCut

LPAS = 80


def broken_off(tmp_path: Path) -> Iterator[Rig]:
    """Page maps whose power was cut at one of forty operations, while cleaning moved pages."""
    for at in range(420, 460):
        rig = Rig(tmp_path / f"chip{at}", "pagemap", front=lambda chip, at=at: FaultyNand(chip, [Cut(at, "before")]))
        rnd = random.Random(3)
        with pytest.raises(PowerCut):
            rig.write(*range(LPAS))
            rig.write(*(rnd.randrange(LPAS) for _ in range(1_000)))
        rig.kill()
        del rig.how["front"]
        yield rig


def originals(rig: Rig) -> list[int]:
    """PPAs of pages that were moved, and are still there."""
    moves: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for ppa in rig.find(lambda spare: spare.kind == USER):
        spare = rig.spare(ppa)
        moves[spare.lpa, spare.seq].append((spare.flags >> 4 if spare.flags & MOVED else -1, ppa))
    return [ppa for same in moves.values() for _, ppa in sorted(same)[:-1]]


def test_an_original_that_cannot_be_read_is_no_reason_to_drop_its_copy(tmp_path: Path) -> None:
    """As where the host died after the victim was erased, and what it held is listed still."""
    undone = 0
    for rig in broken_off(tmp_path):
        rig.rot(*originals(rig))
        rig.open()
        undone += rig.figures["undone_moves"]
        for lpa in range(LPAS):
            rig.holds(lpa)
        rig.kill()
    assert undone == 0


def test_what_an_undone_move_copied_is_not_listed_as_flushed(tmp_path: Path) -> None:
    """A block that is free after such a recovery may be erased before its checkpoint is durable. If the host dies then,
    the block's old records may be there without their data, and the next recovery has to see that."""
    undone = 0
    for rig in broken_off(tmp_path):
        rig.open()
        if rig.figures["undone_moves"]:
            undone += 1
            free = {b for b in range(rig.geometry.blocks) if rig.device.ssd.pool.describe(b)["state"] == "free"}
            rig.kill()
            free &= {ppa // rig.geometry.pages_per_block for ppa in rig.find(lambda spare: spare.kind == USER)}
            table = rig.path.read_bytes()[rig.layout.table_at :][: 8 * rig.geometry.blocks]
            marks = [synced for _, synced, _ in struct.iter_unpack("<IHH", table)]
            assert [marks[block] for block in free] == [0] * len(free)
        else:
            rig.kill()
    assert undone


@pytest.fixture
def recoveries(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, int], Any]]:
    """(figures, mapping) of each recovery that a case has, also of those that were cut."""
    seen = []
    run = recovery.Recovery.run

    def watched(self: recovery.Recovery) -> object:
        try:
            return run(self)
        finally:
            seen.append((self.found.figures, self.parts["mapping"]))

    monkeypatch.setattr(recovery.Recovery, "run", watched)
    return seen


def test_a_copy_of_which_the_move_was_undone_is_nobodys_original(recoveries: list[tuple[dict[str, int], Any]]) -> None:
    """The first recovery undoes moves into block 11, moves the same pages to block 8, and is cut. They were not copied
    from block 11, though they are moved as often as those there."""
    line = "ftl=hpftl preset=tiny-96q chip.lpas=330 opt.buffer=-1 plp cut=2779:before cut=11:before "
    outcome = run_case(Case.parse(line + "program='w0+330 w0+330 w0+95'"))
    assert outcome.failure is None
    assert [figures["undone_moves"] for figures, _ in recoveries] == [6, 10, 0]
    first, second = (mapping for _, mapping in recoveries[:2])
    assert [first.explain(lpa)["ppa"] // 4 for lpa in (9, 72)] == [8, 8]
    assert [second.explain(lpa)["ppa"] // 4 for lpa in (9, 72)] == [18, 4]


def test_pages_that_fill_up_a_block_keep_no_victim_alive(recoveries: list[tuple[dict[str, int], Any]]) -> None:
    """All that counted in the victim was copied; pages that only fill it up are not the rest of an unfinished move."""
    outcome = run_case(Case.parse(
        "ftl=lazyftl preset=tiny-20p opt.dirty=2 cut=590:before:coin.311380 program='w26 f w0+2 w12:159+1 w40 c1-30+1 "
        "w7 t20+3/3 w34 w18 w32 w34+4 t12+1 w54 w51 w49+1 r w46+4 w2 w13:310+1 w22:275+318 w21 w25:181+56 w9 r "
        "w21:254+1199 w45 w42 t13:405+71 w12:486+17 w22 w40 w30 r w45+3 w12 w47+4 w45 w53:393+454 t12:202+385 w22+4'"
    ))  # fmt: skip
    assert outcome.failure is None
    assert recoveries[-1][0]["pages_found"] == 17
    assert recoveries[-1][0]["undone_moves"] == 0
