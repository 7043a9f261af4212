"""The tiers that run in memory. Each is a row of units, numbered from 0; a unit is a function of its number, the FTL,
the seed and the tier's bound alone, so units can run anywhere, in any order, and an interrupted campaign can go on.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from flashfs.crash.cases import SPOILS, Case
from flashfs.crash.forks import Forks, Tally
from flashfs.crash.host import Erase, HostBench
from flashfs.crash.programs import (
    CROWDED,
    LARGE,
    STRIPED,
    TINY,
    large_for,
    presets_for,
    random_program,
    random_setting,
)
from flashfs.crash.run import run_case
from flashfs.ftl import scheme
from nandimg import PRESETS, Cut, Fault
from nandimg._faults import SHAPES

__all__ = ["CROWDED", "TIERS", "TINY", "Tally", "Unit", "presets_for", "random_program", "random_setting", "units"]

TAIL = 3  #: words that follow most cuts of a sweep
SCATTERED = 25  #: cases in a unit of tier random
FILLED = {CROWDED: 900, "tiny-96q": 300, "tiny-100d": 700}  #: operations that it takes to fill a chip, or nearly
AIMED = 4  #: deaths of the host that are aimed at one program's syncs
NEVER = 10**6  #: an operation that no case comes to

# --- sweep


def sweep_base(ftl: str, seed: int, unit: int) -> Case:
    """The program of a unit of tier sweep."""
    presets = presets_for(ftl)
    return random_setting(random.Random(f"sweep {ftl} {seed} {unit}"), ftl, presets[unit % len(presets)])


def _sweep(ftl: str, seed: int, unit: int, bound: int, depth: int) -> Tally:
    return Forks(sweep_base(ftl, seed, unit), TAIL, depth=depth, rare=True).run()


# --- wide

WIDE_CUTS = 10  #: of a unit, about


def wide_base(ftl: str, seed: int, unit: int) -> Case:
    """The program of a unit of tier wide."""
    presets = presets_for(ftl, large_for(ftl))
    return random_setting(random.Random(f"wide {ftl} {seed} {unit}"), ftl, presets[unit % len(presets)])


def _wide(ftl: str, seed: int, unit: int, bound: int, depth: int) -> Tally:
    """The fill is not cut: it is the same in all units."""
    base = wide_base(ftl, seed, unit)
    whole = run_case(base)
    if whole.failure:
        tally = Tally()
        tally.add(whole, 1)
        return tally
    left = whole.operations[-1] - PRESETS[base.preset].geometry.lpas
    filled = max(1, len(LARGE.get(base.preset, ())))
    return Forks(base, TAIL, first=filled + 1, depth=depth, apart=max(2, left // WIDE_CUTS)).run()


# --- random


def scattered(ftl: str, seed: int, unit: int) -> Iterator[Case]:
    """The cases of a unit of tier random: up to three lives, options, operations that fail."""
    rnd = random.Random(f"random {ftl} {seed} {unit}")
    tiny, filled_first = presets_for(ftl), presets_for(ftl, (*TINY, CROWDED, *STRIPED))[len(presets_for(ftl)) :]
    asked = asked_for(ftl)
    for _ in range(SCATTERED):
        preset = rnd.choice(filled_first) if filled_first and rnd.random() < 0.12 else rnd.choice(tiny)
        preset = rnd.choice(asked) if asked and rnd.random() < 0.2 else preset
        aged = preset in asked or (preset in tiny and rnd.random() < 0.1)
        base = random_setting(rnd, ftl, preset, aged=aged)
        filled = FILLED.get(preset, rnd.randint(0, 4 * PRESETS[preset].geometry.lpas) if aged else 0)
        lives = tuple(
            Cut(at + int(rnd.expovariate(1 / mean)) + 1, rnd.choice(SHAPES))
            for at, mean in ((filled, 30), (0, 6), (0, 6))[: rnd.randint(1, 3)]
        )
        fail = (filled + rnd.randrange(3, 60),) if rnd.random() < 0.15 and preset != "tiny-8" else ()
        yield replace(base, cuts=lives, fail=fail)


def asked_for(ftl: str) -> tuple[str, ...]:
    """Chips that the FTL asks for since its structures show on them, and that no tier but wide would take otherwise."""
    drawn = (*presets_for(ftl), *TINY, CROWDED, *STRIPED)
    return tuple(preset for preset in scheme(ftl).chips if preset not in drawn)


def _random(ftl: str, seed: int, unit: int, bound: int, depth: int) -> Tally:
    return _run_all(scattered(ftl, seed, unit))


def _run_all(cases: Iterator[Case]) -> Tally:
    tally = Tally()
    for case in cases:
        outcome = run_case(case)
        tally.add(outcome, outcome.cuts_hit)
    return tally


# --- host


def dying(ftl: str, seed: int, unit: int) -> Iterator[Case]:
    """The cases of a unit of tier host: up to four lives, each ended by the host's death, at any moment or between two
    operations that only a sync keeps in order; and some by a sync that fails."""
    rnd = random.Random(f"host {ftl} {seed} {unit}")
    presets = presets_for(ftl)
    striped, asked = presets_for(ftl, (*TINY, *STRIPED))[len(presets) :], asked_for(ftl)
    left = SCATTERED
    while left > 0:
        preset = rnd.choice(striped if striped and rnd.random() < 0.2 else presets)
        preset = rnd.choice(asked) if asked and rnd.random() < 0.2 else preset
        base = random_setting(rnd, ftl, preset, host=True)
        fail = (rnd.randrange(3, 60),) if rnd.random() < 0.1 and base.preset != "tiny-8" else ()
        base = replace(base, fail=fail)
        cases = [at_random(rnd, base)] if rnd.random() < 0.3 else list(aimed(rnd, base))
        yield from cases[:left]
        left -= len(cases)


def at_random(rnd: random.Random, base: Case) -> Case:
    """Lives of any length. In one of eight a sync fails somewhere."""
    means = (30, 12, 12, 12)[: rnd.randint(1, 4)]
    lives = [Cut(int(rnd.expovariate(1 / mean)) + 1, _ending(rnd)) for mean in means]
    lives[0] = replace(lives[0], at=lives[0].at + FILLED.get(base.preset, 0))
    unsynced = (rnd.randint(1, 12),) if rnd.random() < 0.125 else ()
    return replace(base, cuts=tuple(lives), keeps=tuple(_keep(rnd) for _ in lives), unsynced=unsynced)


def aimed(rnd: random.Random, base: Case) -> Iterator[Case]:
    """The program is run once to learn between which operations the device syncs, and which of them are erases. Then
    the host dies behind the last operation before one of those syncs, right after it, or somewhere between it and the
    one before; or the sync fails; or it dies where an erase reached the disk and nothing did that was before it: of a
    block that was not empty at the last sync, if there is such an erase, which breaks a rule.
    """
    bench = HostBench(base)
    outcome = bench.play()
    windows = [(n, begin, end) for n, (begin, end) in enumerate(bench.windows[0], 1) if end > begin]
    erases = [erase for erase in bench.erased[0] if erase.early] or bench.erased[0]
    bench.release()
    if outcome.failure or not windows:
        yield base
        return
    for _ in range(AIMED):
        unsynced: tuple[int, ...] = ()
        if erases and (erases[0].early or rnd.random() < 0.2):
            first = at_an_erase(rnd, rnd.choice(erases))
        else:
            first, unsynced = at_a_sync(rnd, *rnd.choice(windows))
        lives = [first]
        for _ in range(rnd.choice((0, 0, 1, 2))):
            lives.append((Cut(int(rnd.expovariate(1 / 12)) + 1, _ending(rnd)), _keep(rnd)))
        cuts, keeps = zip(*lives, strict=True)
        yield replace(base, cuts=cuts, keeps=keeps, unsynced=unsynced)


def at_a_sync(rnd: random.Random, number: int, begin: int, end: int) -> tuple[tuple[Cut, str], tuple[int, ...]]:
    """A life's end and what it leaves, and the sync that fails if there is one: sync ``number`` follows operation
    ``end``, and the one before followed ``begin``."""
    at = rnd.choices((end, end + 1, rnd.randint(begin + 1, end), NEVER), weights=(45, 12, 33, 10))[0]
    shape = "after" if at == end else _ending(rnd) if at < end else "before"
    keep = _keep(rnd) if at == end + 1 else _keep_since(rnd, min(at, end) - begin)
    return (Cut(at, shape), keep), (number,) if at == NEVER else ()


def at_an_erase(rnd: random.Random, erase: Erase) -> tuple[Cut, str]:
    """A life's end and what it leaves: of what came since the last sync either the erase is there and nothing that was
    before it, or everything but the erase."""
    before = erase.at - erase.synced - 1
    marks = "+marks" * (rnd.random() < 0.5)
    if rnd.random() < 0.6:
        return Cut(erase.at, "after"), f"last.{before}{marks}"
    return Cut(erase.at + rnd.randint(1, 8), _ending(rnd)), f"but.{before}-{before + 1}{marks}"


def _ending(rnd: random.Random) -> str:
    """Half of the deaths leave the operation whole: the host died, the chip did not lose its power."""
    return "after" if rnd.random() < 0.5 else rnd.choice(SHAPES)


def _keep_since(rnd: random.Random, operations: int) -> str:
    """So many operations since the last sync: their end without their beginning, or all but some in the middle."""
    first = rnd.randrange(operations + 1)
    kind = rnd.choices(("last", "but", "first", "any"), weights=(40, 30, 10, 20))[0]
    if kind == "any":
        return _keep(rnd)
    keep = f"but.{first}-{rnd.randint(first, operations)}" if kind == "but" else f"{kind}.{first}"
    return keep + "+marks" * (rnd.random() < 0.5)


def _keep(rnd: random.Random) -> str:
    keep: str = rnd.choices(
        ("coin", "none", "all", "tables", "data", "first", "last", "but"), weights=(44, 10, 6, 8, 8, 8, 10, 6)
    )[0]
    if keep == "coin":
        keep = f"coin.{rnd.randrange(10**6)}"
    elif keep in ("first", "last"):
        keep = f"{keep}.{rnd.randint(1, 12)}"
    elif keep == "but":
        first = rnd.randint(0, 11)
        keep = f"but.{first}-{rnd.randint(first + 1, 12)}"
    return keep + "+marks" * (keep != "all" and rnd.random() < 0.3)


def _host(ftl: str, seed: int, unit: int, bound: int, depth: int) -> Tally:
    return _run_all(dying(ftl, seed, unit))


# --- faults

FAULT_KINDS = ("fail", "silent", "misdirect", "flip", "wear", "eio", "enospc")


def random_fault(rnd: random.Random) -> Fault:
    """One mishap within the first operations of a small chip."""
    kind = rnd.choice(FAULT_KINDS)
    sticky = kind in ("fail", "eio", "enospc") and rnd.random() < 0.3
    if kind == "wear":
        return Fault(kind, rnd.randint(3, 12))
    if kind == "flip":
        return Fault(kind, rnd.randint(2, 120), False, rnd.choice((4, 12, 40)), rnd.choice(("fade", "stuck", "pass")))
    return Fault(kind, rnd.randint(2, 120), sticky)


def hurt(ftl: str, seed: int, unit: int) -> Iterator[Case]:
    """The cases of a unit of tier faults: the fault menu and spoilt pages, with power cuts between."""
    rnd = random.Random(f"faults {ftl} {seed} {unit}")
    presets = presets_for(ftl, tuple(preset for preset in TINY if preset != "tiny-8"))
    for _ in range(SCATTERED):
        faults = tuple(random_fault(rnd) for _ in range(rnd.choice((0, 1, 1, 1, 2))))
        spoils = [rnd.choice(SPOILS) for _ in range(rnd.choice((0, 0, 1, 2)) if faults else 1)]
        # who changes a part of a page that was damaged builds on what nobody knows: whole pages, then
        damaged = bool(spoils) or any(fault.damaging for fault in faults)
        aged = damaged and rnd.random() < 0.3  # so that what was damaged is moved
        base = random_setting(rnd, ftl, rnd.choice(presets), odd=not damaged, aged=aged)
        words = base.program.split()
        for word in spoils:
            words.insert(rnd.randrange(len(words)), word)
        power = range(rnd.choice((0, 0, 1, 2)))
        lives = tuple(Cut(int(rnd.expovariate(1 / 40)) + 1, rnd.choice(SHAPES)) for _ in power)
        yield replace(base, program=" ".join(words), faults=faults, cuts=lives)


def _faults(ftl: str, seed: int, unit: int, bound: int, depth: int) -> Tally:
    """Counted are the cuts, and of a case without one the fault."""
    tally = Tally()
    for case in hurt(ftl, seed, unit):
        outcome = run_case(case)
        tally.add(outcome, max(1, outcome.cuts_hit))
    return tally


# --- every

EVERY_WORDS = ("w0", "w1", "w2", "t0", "t1", "t2", "f", "i", "r")
#: beside them, of a scheme that remaps: each page from each other one, and what leaves nothing behind
REMAP_WORDS = ("p0-1+1", "p1-0+1", "p0-2+1", "p2-0+1", "p1-2+1", "p2-1+1", "m0-1+1", "m1-0+1")
#: cold pages among hot ones, until the next write has to clean and to move
AGED_8 = "w3 w0 w1 w2 w4 w0 w1 w2 w5 w0 w1 w2 w6 w0 w1 w2 w7 w0 w1 w2 f"
AGED_32 = "w0+150 w0+40 w60+4 w70+4 w80+4 w90+30 w0+12 t20+8 w8+4 w140+8 w30+30 f"
AGED_48 = "w0+150 w0+150 w60+4 w70+4 w80+4 w90+30 w0+12 t20+8 w8+4 w140+8 w30+30 w0+9 w50+20 f"
AGED_16 = "w0+56 w0+4 w8+4 w16+4 w24+4 w32+4 w40+4 w48+4 w0+4 w8+4 f"


@dataclass(frozen=True, slots=True)
class Scene:
    """What a program of tier every finds: a chip, a write buffer, and what was done before."""

    preset: str
    prologue: str
    buffer: int
    plp: bool = False

    def case(self, ftl: str, words: tuple[str, ...]) -> Case:
        program = " ".join((*self.prologue.split(), *words))
        return Case(ftl, program, self.preset, options=(("buffer", self.buffer),), plp=self.plp)


SCENES = (
    Scene("tiny-8", "", 0),
    Scene("tiny-8", "", 2),
    Scene("tiny-8", AGED_8, 0),
    Scene("tiny-8", AGED_8, 2),
    Scene("tiny-8", AGED_8, 2, plp=True),
    Scene("tiny-16", AGED_16, 2),
    Scene("tiny-32", "", 2),
    Scene("tiny-32", AGED_32, 0),
    Scene("tiny-32", AGED_32, 2),
    Scene("tiny-48", "", 2),
    Scene("tiny-48", AGED_48, 0),
    Scene("tiny-48", AGED_48, 2),
)
SMALLEST = ("tiny-8", "tiny-16", "tiny-32", "tiny-48")  #: a larger one only for an FTL that does not fit two before


def words_for(ftl: str) -> tuple[str, ...]:
    return EVERY_WORDS + REMAP_WORDS * scheme(ftl).remaps


def programs(length: int, among: tuple[str, ...] = EVERY_WORDS) -> Iterator[tuple[str, ...]]:
    """All programs of up to ``length`` words, the empty one first, up to the names of the pages: page 1 comes only
    after page 0. A longer ``length`` only adds some at the end."""
    for n in range(length + 1):
        for words in itertools.product(among, repeat=n):
            named = 0
            for word in words:
                named = naming(word, named)
            if named >= 0:
                yield words


def naming(word: str, named: int) -> int:
    """How many pages are named behind a word, if so many were before it; -1 if it names one before its turn."""
    for page in word[1:].partition("+")[0].split("-") if len(word) > 1 else ():
        if named < 0 or int(page) > named:
            return -1
        named = max(named, int(page) + 1)
    return named


def programs_count(length: int, among: tuple[str, ...] = EVERY_WORDS) -> int:
    """How many they are."""
    named = {0: 1}  #: {pages named: programs}
    total = 1
    for _ in range(length):
        longer: Counter[int] = Counter()
        for k, count in named.items():
            for word in among:
                longer[naming(word, k)] += count
        del longer[-1]
        named = dict(longer)
        total += sum(named.values())
    return total


def scenes(ftl: str, depth: int) -> tuple[Scene, ...]:
    """Those that the FTL can be bound to, on the two smallest chips; in depth 2 only the chip that has most of them."""
    found = presets_for(ftl, SMALLEST)[:2]
    fitting = [scene for scene in SCENES if scene.preset in found]
    most = max(found, key=lambda preset: sum(scene.preset == preset for scene in fitting))
    return tuple(scene for scene in fitting if depth == 1 or scene.preset == most)


def every_case(ftl: str, words: tuple[str, ...], scene: Scene, depth: int) -> Tally:
    """One program in one scene, every operation cut. The prologue's are cut once, with the empty program."""
    first = len(scene.prologue.split()) + 1 if words or depth > 1 else 0
    return Forks(scene.case(ftl, words), first=first, depth=depth).run()


# --- all of them


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit: what a worker is given. ``words`` and ``scene`` are for tier every, which counts them out."""

    tier: str
    ftl: str
    seed: int
    number: int
    bound: int
    depth: int = 1
    words: tuple[str, ...] = ()
    scene: Scene | None = None

    def run(self) -> Tally:
        if self.scene is not None:
            return every_case(self.ftl, self.words, self.scene, self.depth)
        return _RUN[self.tier](self.ftl, self.seed, self.number, self.bound, self.depth)


_RUN: dict[str, Callable[[str, int, int, int, int], Tally]] = {
    "sweep": _sweep, "wide": _wide, "random": _random, "host": _host, "faults": _faults,
}  # fmt: skip

TIERS = ("sweep", "wide", "every", "random", "host", "faults")


def units(tier: str, ftl: str, seed: int, bound: int, depth: int = 1, start: int = 0) -> Iterator[Unit]:
    """From number ``start`` on: without end, but for tier every, where ``bound`` is the programs' length."""
    if tier != "every":
        for number in itertools.count(start):
            yield Unit(tier, ftl, seed, number, bound, depth)
    where = scenes(ftl, depth)
    pairs = itertools.islice(itertools.product(programs(bound, words_for(ftl)), where), start, None)
    for number, (words, scene) in enumerate(pairs, start):
        yield Unit(tier, ftl, seed, number, bound, depth, words, scene)


def units_count(tier: str, ftl: str, bound: int, depth: int = 1) -> int | None:
    """How many there are, if there is an end."""
    return programs_count(bound, words_for(ftl)) * len(scenes(ftl, depth)) if tier == "every" else None
