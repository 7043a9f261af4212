"""The tiers that run in memory. Each is a row of units, numbered from 0; a unit is a function of its number, the FTL,
the seed and the tier's bound alone, so units can run anywhere, in any order, and an interrupted campaign can go on.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from flashfs.crash._watched import WatchedNand
from flashfs.crash.bench import Bench
from flashfs.crash.cases import SPOILS, Case, Later, parse_program
from flashfs.crash.every import Scene, every_case, programs_count, programs_of, scenes, words_for
from flashfs.crash.forks import Forks, Tally
from flashfs.crash.host import Erase, HostBench
from flashfs.crash.programs import (
    CREATED,
    CROWDED,
    LARGE,
    LARGEST,
    MANY_DIES,
    SELDOM,
    STRIPED,
    TINY,
    decayed_program,
    fitting_of,
    large_for,
    presets_for,
    random_options,
    random_program,
    random_setting,
    short_blocks,
    with_room,
)
from flashfs.crash.run import run_case
from flashfs.ftl import scheme
from nandimg import Cut, Fault
from nandimg._faults import SHAPES

__all__ = ["CROWDED", "TIERS", "TINY", "Tally", "Unit", "presets_for", "random_program", "random_setting", "units"]

TAIL = 3  #: words that follow most cuts of a sweep
SCATTERED = 25  #: cases in a unit of tier random
FILLED = {CROWDED: 900, "tiny-96q": 300, "tiny-100d": 700}  #: operations that fill a chip, or nearly
ON_ANOTHER_CHIP = 0.03  #: cases on MANY_DIES, or a chip of another shape, beside each other one: they take longer
AIMED = 4  #: deaths of the host that are aimed at one program's syncs
AFTER_NO_SYNCS = 0.1  #: of the host's deaths: after a mount that did not sync
NEVER = 10**6  #: an operation that no case reaches

# --- sweep


def sweep_base(ftl: str, seed: int, unit: int) -> Case:
    """The program of a unit of tier sweep."""
    presets = presets_for(ftl)
    return random_setting(random.Random(f"sweep {ftl} {seed} {unit}"), ftl, presets[unit % len(presets)])


def _sweep(ftl: str, seed: int, unit: int, bound: int, depth: int) -> Tally:
    return Forks(sweep_base(ftl, seed, unit), TAIL, depth=depth, rare=True).run()


# --- wide

WIDE_CUTS = 10  #: about how many cuts a unit has


def wide_base(ftl: str, seed: int, unit: int) -> Case:
    """The program of a unit of tier wide."""
    presets, rnd = presets_for(ftl, large_for(ftl)), random.Random(f"wide {ftl} {seed} {unit}")
    preset = presets[unit % len(presets)]
    if rnd.random() < 0.2:  # chips as users create them
        kind = rnd.random()
        preset = LARGEST if kind < 0.01 else rnd.choice(SELDOM if kind < 0.1 else CREATED)
        preset = preset if fitting_of(ftl, (preset,))[0] else presets[0]
    return random_setting(rnd, ftl, preset)


def _wide(ftl: str, seed: int, unit: int, bound: int, depth: int) -> Tally:
    """The fill is not cut: it is the same in all units."""
    base = wide_base(ftl, seed, unit)
    whole = run_case(base)
    if whole.failure:
        tally = Tally()
        tally.add(whole, 1)
        return tally
    left = whole.operations[-1] - base.geometry.lpas
    filled = max(1, len(LARGE.get(base.preset, ())))
    return Forks(base, TAIL, first=filled + 1, depth=depth, apart=max(2, left // WIDE_CUTS)).run()


# --- random


def scattered(ftl: str, seed: int, unit: int) -> Iterator[Case]:
    """The cases of a unit of tier random: up to three lives, sometimes 4 to 18; options, operations that fail; and
    some whose first life ends in an erase, which leaves a block erased in part."""
    rnd, beside = random.Random(f"random {ftl} {seed} {unit}"), random.Random(f"dies {ftl} {seed} {unit}")
    tiny, filled_first = presets_for(ftl), presets_for(ftl, (*TINY, CROWDED, *STRIPED))[len(presets_for(ftl)) :]
    asked = asked_for(ftl)
    for _ in range(SCATTERED):
        preset = rnd.choice(filled_first) if filled_first and rnd.random() < 0.12 else rnd.choice(tiny)
        preset = rnd.choice(asked) if asked and rnd.random() < 0.2 else preset
        aged = preset in asked or (preset in tiny and rnd.random() < 0.1)
        many = rnd.random() < 0.05
        base = random_setting(rnd, ftl, preset, aged=aged, trims=many)
        filled = FILLED.get(preset, rnd.randint(0, 4 * base.geometry.lpas) if aged else 0)
        if rnd.random() < 0.15 and has_spare(base):
            base = replace(base, fail=(filled + rnd.randrange(3, 60),))
        if many:
            yield replace(base, cuts=dozen(rnd))
        elif rnd.random() < 0.08:
            yield at_erases(rnd, base)
        else:
            means = ((filled, 30), (0, 6), (0, 6))[: rnd.randint(1, 3)]
            yield replace(base, cuts=tuple(soon(rnd, mean, at) for at, mean in means))
        if beside.random() < ON_ANOTHER_CHIP:
            yield from on_another_chip(beside, ftl)


def on_another_chip(rnd: random.Random, ftl: str) -> Iterator[Case]:
    """A case on a chip of many dies, or of any shape, that is filled twice, cut at any moment of that or after it; none
    if the FTL does not fit there."""
    if fitting_of(ftl, (MANY_DIES,))[0]:
        base = random_setting(rnd, ftl, MANY_DIES)
        first = soon(rnd, 300, rnd.choice((0, base.geometry.lpas, 3 * base.geometry.lpas)))
        yield replace(base, cuts=(first, *(soon(rnd, 12) for _ in range(rnd.randint(0, 2)))))


def has_spare(case: Case) -> bool:
    """Whether its chip can lose a block: not the smallest chip, nor one whose geometry was changed."""
    return case.preset != "tiny-8" and not case.chip


def soon(rnd: random.Random, mean: float, after: int = 0) -> Cut:
    """A cut on average ``mean`` operations after operation ``after``, exponentially distributed."""
    return Cut(after + int(rnd.expovariate(1 / mean)) + 1, rnd.choice(SHAPES))


def dozen(rnd: random.Random) -> tuple[Cut, ...]:
    """4 to 18 lives, all short or all long."""
    mean = rnd.choice((4, 12, 40))
    return tuple(soon(rnd, mean) for _ in range(rnd.randint(4, 18)))


class Erases:
    """Watches one run, and records which of its operations are erases."""

    def __init__(self) -> None:
        self.at: list[int] = []

    def before_operation(self, nand: WatchedNand) -> None:
        if nand.about_to_erase is not None:
            self.at.append(nand.operations + 1)

    def before_sync(self, nand: WatchedNand) -> None:
        """A sync is no erase."""


def at_erases(rnd: random.Random, base: Case) -> Case:
    """The base with a life that ends in one of its erases, and up to four short ones after it: the block stays as it
    was left, or is erased again, before or after the next checkpoint."""
    bench, seen = Bench(base), Erases()
    bench.nand.watcher = seen
    bench.play()
    bench.release()
    first = Cut(rnd.choice(seen.at), rnd.choice(SHAPES)) if seen.at else soon(rnd, 30)
    return replace(base, cuts=(first, *(soon(rnd, rnd.choice((3, 12, 40))) for _ in range(rnd.randint(0, 4)))))


def asked_for(ftl: str) -> tuple[str, ...]:
    """Chips that the FTL asks for because they exercise its structures, and that only tier wide would use otherwise."""
    drawn = (*presets_for(ftl), *TINY, CROWDED, *STRIPED)
    return tuple(preset for preset in scheme(ftl).chips if preset not in drawn)


def _random(ftl: str, seed: int, unit: int, bound: int, depth: int) -> Tally:
    return _run_all(scattered(ftl, seed, unit))


def _run_all(cases: Iterator[Case]) -> Tally:
    tally = Tally()
    for case in cases:
        outcome = run_case(case)
        tally.add(outcome, outcome.cuts_hit)
        tally.pair(case, outcome.met)
    return tally


# --- host


def dying(ftl: str, seed: int, unit: int) -> Iterator[Case]:
    """The cases of a unit of tier host: lives that end with the host's death, at any moment or between two operations
    whose order only a sync guarantees; some end with a sync that fails."""
    rnd, short = random.Random(f"host {ftl} {seed} {unit}"), random.Random(f"short {ftl} {seed} {unit}")
    beside = random.Random(f"host on many dies {ftl} {seed} {unit}")
    unsure = random.Random(f"host after a mount without syncs {ftl} {seed} {unit}")
    presets = presets_for(ftl)
    striped, asked = presets_for(ftl, (*TINY, *STRIPED))[len(presets) :], asked_for(ftl)
    left = SCATTERED
    while left > 0:
        preset = rnd.choice(striped if striped and rnd.random() < 0.2 else presets)
        preset = rnd.choice(asked) if asked and rnd.random() < 0.2 else preset
        base = random_setting(rnd, ftl, preset, host=True, trims=rnd.random() < 0.05)
        if short.random() < 0.1:
            base = short_blocks(base)
        if rnd.random() < 0.1 and has_spare(base):
            base = replace(base, fail=(rnd.randrange(3, 60),))
        cases = [at_random(rnd, base)] if rnd.random() < 0.3 else list(aimed(rnd, base))
        yield from cases[:left]
        left -= len(cases)
        if beside.random() < ON_ANOTHER_CHIP and fitting_of(ftl, (MANY_DIES,))[0]:
            base = random_setting(beside, ftl, MANY_DIES, host=True)
            yield from (at_random(beside, base), *aimed(beside, base))
        if unsure.random() < AFTER_NO_SYNCS:
            yield at_random(unsure, after_no_syncs(unsure, random_setting(unsure, ftl, preset, host=True)))


def after_no_syncs(rnd: random.Random, base: Case) -> Case:
    """The case with a first mount, or two, without syncs; somewhere it comes to a clean end between two flushes."""
    words, first = base.program.split(), rnd.choice((1, 1, 2))
    at = rnd.randrange(len(words) + 1)
    modes = (Later(0, "sync", "none"), Later(first, "sync", "flush"))
    program = " ".join([*words[:at], "f", "r", "f", *words[at:]])
    return replace(base, program=program, later=tuple(sorted((*base.later, *modes), key=lambda one: one.mount)))


def at_random(rnd: random.Random, base: Case) -> Case:
    """Lives of any length. In one case of eight a sync fails somewhere."""
    means = (30, *[12] * rnd.choices((0, 1, 2, 3, rnd.randint(4, 17)), weights=(5, 5, 5, 5, 1))[0])
    lives = [Cut(int(rnd.expovariate(1 / mean)) + 1, _ending(rnd)) for mean in means]
    lives[0] = replace(lives[0], at=lives[0].at + FILLED.get(base.preset, 0))
    unsynced = (rnd.randint(1, 12),) if rnd.random() < 0.125 else ()
    return replace(base, cuts=tuple(lives), keeps=tuple(_keep(rnd) for _ in lives), unsynced=unsynced)


def aimed(rnd: random.Random, base: Case) -> Iterator[Case]:
    """Run the program once to learn between which operations the device syncs, and which of them are erases. Then the
    host dies after the last operation before one of those syncs, right after the sync, or somewhere between it and the
    previous one; or the sync fails; or the host dies at an erase (``at_an_erase``). Erases of blocks that held live
    pages at the last sync, which break a rule, are preferred.
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
    """(a life's last operation and what it keeps, the syncs that fail). Sync ``number`` follows operation ``end``, and
    the sync before it follows operation ``begin``."""
    at = rnd.choices((end, end + 1, rnd.randint(begin + 1, end), NEVER), weights=(45, 12, 33, 10))[0]
    shape = "after" if at == end else _ending(rnd) if at < end else "before"
    keep = _keep(rnd) if at == end + 1 else _keep_since(rnd, min(at, end) - begin)
    return (Cut(at, shape), keep), (number,) if at == NEVER else ()


def at_an_erase(rnd: random.Random, erase: Erase) -> tuple[Cut, str]:
    """A life's last operation and what it keeps of the operations since the last sync: either the erase and nothing
    before it, or everything but the erase."""
    before = erase.at - erase.synced - 1
    marks = "+marks" * (rnd.random() < 0.5)
    if rnd.random() < 0.6:
        return Cut(erase.at, "after"), f"last.{before}{marks}"
    return Cut(erase.at + rnd.randint(1, 8), _ending(rnd)), f"but.{before}-{before + 1}{marks}"


def _ending(rnd: random.Random) -> str:
    """The shape of a life's last operation. Half of them are whole: the host died, but the chip kept its power."""
    return "after" if rnd.random() < 0.5 else rnd.choice(SHAPES)


def _keep_since(rnd: random.Random, operations: int) -> str:
    """What is kept of so many operations since the last sync: the last ones, the first ones, all but some in the
    middle, or any choice."""
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
#: kinds that are combined, because one may hide the effect of the other
PAIRS = (("misdirect", "flip"), ("silent", "misdirect"), ("silent", "flip"), ("misdirect", "misdirect"),
         ("fail", "misdirect"), ("fail", "fail"), ("wear", "silent"))  # fmt: skip
SOON = 20  #: operations between the two
DECAY = ("xm", "xm", "xm", "xn", "xn")  #: drawn more often where a chip decays
#: chips with some translation pages and little room, for long programs on a chip that decays
DECAYING = ("tiny-112", "tiny-112", "tiny-48", "tiny-96", "tiny-100d")
DECAYED = 0.2  #: of the cases, beside the others


def random_fault(rnd: random.Random, most: int = 120, kind: str = "") -> Fault:
    """One mishap within the first ``most`` operations."""
    kind = kind or rnd.choice(FAULT_KINDS)
    sticky = kind in ("fail", "eio", "enospc") and rnd.random() < 0.3
    if kind == "wear":
        return Fault(kind, rnd.randint(3, 12))
    if kind == "flip":
        return Fault(kind, rnd.randint(2, most), False, rnd.choice((4, 12, 40)), rnd.choice(("fade", "stuck", "pass")))
    return Fault(kind, rnd.randint(2, most), sticky)


def random_faults(rnd: random.Random, most: int) -> tuple[Fault, ...]:
    """None, one, two independent ones, or a pair of PAIRS, soon after each other."""
    if rnd.random() < 0.75:
        return tuple(random_fault(rnd, most) for _ in range(rnd.choice((0, 1, 1, 1, 2))))
    first, second = (random_fault(rnd, most, kind) for kind in rnd.choice(PAIRS))
    near = first.at + rnd.randint(1, SOON)
    return first, second if "wear" in (first.kind, second.kind) else replace(second, at=near)


def pages_written(case: Case) -> int:
    """About how many pages its program writes, trims and copies, plus 60: a rough number of its operations."""
    page = case.geometry.page_bytes
    return sum(size // page for step in parse_program(case.program) for _, size in step.spans(page)) + 60


def hurt(ftl: str, seed: int, unit: int) -> Iterator[Case]:
    """The cases of a unit of tier faults: the fault menu and spoilt pages, with power cuts between; some on a chip that
    exercises more of the scheme's structures."""
    rnd, beside = random.Random(f"faults {ftl} {seed} {unit}"), random.Random(f"decayed {ftl} {seed} {unit}")
    dies = random.Random(f"faults on many dies {ftl} {seed} {unit}")
    presets = presets_for(ftl, tuple(preset for preset in TINY if preset != "tiny-8"))
    asked = tuple(preset for preset in asked_for(ftl) if preset not in presets)
    larger = (*presets_for(ftl, (CROWDED, *STRIPED)), *asked)
    for _ in range(SCATTERED):
        whole = rnd.random() < 0.5  # at any moment of the run, rather than early
        many = rnd.random() < 0.15  # a chip that decays: older checkpoints are taken, and pages of the map made again
        spoils = rnd.choices(SPOILS, k=rnd.choice((0, 0, 1, 2)))
        if many:
            spoils = rnd.choices(SPOILS + DECAY, k=rnd.randint(2, 6))
        preset = rnd.choice(asked) if asked and rnd.random() < 0.1 else rnd.choice(presets)
        if many and larger and rnd.random() < 0.5:
            preset = rnd.choice(larger)
        faults = () if many and rnd.random() < 0.5 else random_faults(rnd, 120)
        spoils = spoils if faults or spoils else [rnd.choice(SPOILS)]
        # a partial write of a damaged page would build on unknown content: use whole pages then
        damaged = bool(spoils) or any(fault.damaging for fault in faults)
        worn = any(fault.kind == "wear" for fault in faults)
        aged = (damaged or worn) and rnd.random() < (0.7 if many else 0.3)  # so that damaged pages are moved
        trims = not aged and rnd.random() < (0.4 if worn else 0.1)
        base = random_setting(rnd, ftl, preset, odd=not damaged, aged=aged, trims=trims)
        if whole:
            faults = later_on(rnd, faults, pages_written(base))
        words = base.program.split()
        for word in spoils:
            words.insert(rnd.randrange(len(words)), word)
        yield replace(base, program=" ".join(words), faults=faults, cuts=cuts_beside(rnd, faults))
        if beside.random() < DECAYED:
            yield decayed(beside, ftl)
        if dies.random() < ON_ANOTHER_CHIP:
            for case in on_another_chip(dies, ftl):
                yield replace(case, faults=later_on(dies, random_faults(dies, 120), 4 * case.geometry.lpas))


def decayed(rnd: random.Random, ftl: str) -> Case:
    """A long program on a chip that decays all the time, perhaps with one cut."""
    preset = rnd.choice([preset for preset in DECAYING if fitting_of(ftl, (preset,))[0]] or presets_for(ftl))
    plp = rnd.random() < 0.4
    options = random_options(rnd, ftl, plp) if rnd.random() < 0.6 else (("buffer", 0),)
    case = with_room(Case(ftl, "", preset, options=options, plp=plp))
    cuts = (Cut(rnd.randint(20, 1400), rnd.choice(SHAPES)),) if rnd.random() < 0.6 else ()
    return replace(case, program=decayed_program(rnd, case.geometry.lpas), cuts=cuts)


def later_on(rnd: random.Random, faults: tuple[Fault, ...], most: int) -> tuple[Fault, ...]:
    """The faults, all shifted by the same random number of operations, at most ``most``."""
    off = rnd.randint(0, most)
    return tuple(fault if fault.kind == "wear" else replace(fault, at=fault.at + off) for fault in faults)


def cuts_beside(rnd: random.Random, faults: tuple[Fault, ...]) -> tuple[Cut, ...]:
    """No power cut, or one or two; in one of three the first is soon after a fault."""
    lives = [soon(rnd, 40) for _ in range(rnd.choice((0, 0, 1, 2)))]
    at = [fault.at for fault in faults if fault.kind != "wear"]
    if lives and at and rnd.random() < 0.35:
        lives[0] = soon(rnd, 6, rnd.choice(at) - 1)
    return tuple(lives)


def _faults(ftl: str, seed: int, unit: int, bound: int, depth: int) -> Tally:
    """Counts the cuts; a case without a cut counts as one."""
    tally = Tally()
    for case in hurt(ftl, seed, unit):
        outcome = run_case(case)
        tally.add(outcome, max(1, outcome.cuts_hit))
        tally.pair(case, outcome.met)
    return tally


# --- all of them


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit, as a worker gets it. ``words`` and ``scene`` are set for tier every only, which enumerates them."""

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
    """The units from number ``start`` on: without end, except in tier every, where ``bound`` is the most words of a
    program."""
    if tier != "every":
        for number in itertools.count(start):
            yield Unit(tier, ftl, seed, number, bound, depth)
    where = scenes(ftl, depth)
    every = ((words, scene) for n in range(bound + 1) for scene in where
             for words in programs_of(n, words_for(ftl), scene.own))  # fmt: skip
    for number, (words, scene) in itertools.islice(enumerate(every), start, None):
        yield Unit(tier, ftl, seed, number, bound, depth, words, scene)


def units_count(tier: str, ftl: str, bound: int, depth: int = 1) -> int | None:
    """The number of units; None if there is no end."""
    if tier != "every":
        return None
    return sum(programs_count(bound, words_for(ftl), scene.own) for scene in scenes(ftl, depth))
