"""Tier every: all programs of a few words, each operation cut, in scenes where few words do much; nothing is random.

A scene is a chip with a history. Some are set by hand. The others are found: for each rare event of the engine and of
the scheme (``flashfs.crash.events``), the shortest history among those tried after which the next word causes the
event: the cache is full of dirty entries, the next page must clean, a group is about to merge, a counter of sharers is
about to overflow. The trials use a fixed seed, so the scenes of a version are always the same.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from flashfs.crash.bench import Bench
from flashfs.crash.cases import Case
from flashfs.crash.events import counts_of
from flashfs.crash.forks import Forks, Tally
from flashfs.crash.grammar import Step, parse_program
from flashfs.crash.programs import presets_for, random_setting
from flashfs.crash.run import run_case
from flashfs.ftl import scheme

EVERY_WORDS = ("w0", "w1", "w2", "t0", "t1", "t2", "f", "i", "r")
#: and for a scheme that remaps: each page from each other one, and moves, which empty their source
REMAP_WORDS = ("p0-1+1", "p1-0+1", "p0-2+1", "p2-0+1", "p1-2+1", "p2-1+1", "m0-1+1", "m1-0+1")
#: cold pages among hot ones, until the next write must clean and move pages
AGED_8 = "w3 w0 w1 w2 w4 w0 w1 w2 w5 w0 w1 w2 w6 w0 w1 w2 w7 w0 w1 w2 f"
AGED_32 = "w0+150 w0+40 w60+4 w70+4 w80+4 w90+30 w0+12 t20+8 w8+4 w140+8 w30+30 f"
AGED_48 = "w0+150 w0+150 w60+4 w70+4 w80+4 w90+30 w0+12 t20+8 w8+4 w140+8 w30+30 w0+9 w50+20 f"
AGED_16 = "w0+56 w0+4 w8+4 w16+4 w24+4 w32+4 w40+4 w48+4 w0+4 w8+4 f"
WORN = "the device is worn out"
TRIALS = 120  #: histories that are tried for all events of a scheme
WORN_EVERY = 9  #: most operations from one failed operation to the next, on a worn chip
WORN_MOST = 40  #: failed blocks at which the search for a worn chip stops


@dataclass(frozen=True, slots=True)
class Scene:
    """The state in which a program of tier every starts: a chip, options, and what was done before. ``own`` are words
    that its programs may have in addition to those of all scenes; ``before`` is the event that one word causes."""

    past: Case
    own: tuple[str, ...] = ()
    before: str = ""

    @property
    def prologue(self) -> int:
        """The number of words before the program."""
        return len(self.past.program.split())

    def case(self, ftl: str, words: tuple[str, ...]) -> Case:
        """The case that continues with these words."""
        return replace(self.past, ftl=ftl, program=" ".join((*self.past.program.split(), *words)))


def _set(preset: str, prologue: str, buffer: int, plp: bool = False) -> Scene:
    return Scene(Case("pagemap", prologue, preset, options=(("buffer", buffer),), plp=plp))


SCENES = (
    _set("tiny-8", "", 0),
    _set("tiny-8", "", 2),
    _set("tiny-8", AGED_8, 0),
    _set("tiny-8", AGED_8, 2),
    _set("tiny-8", AGED_8, 2, plp=True),
    _set("tiny-16", AGED_16, 2),
    _set("tiny-32", "", 2),
    _set("tiny-32", AGED_32, 0),
    _set("tiny-32", AGED_32, 2),
    _set("tiny-48", "", 2),
    _set("tiny-48", AGED_48, 0),
    _set("tiny-48", AGED_48, 2),
)
SMALLEST = ("tiny-8", "tiny-16", "tiny-32", "tiny-48")  #: the first two that an FTL fits are used


def words_for(ftl: str) -> tuple[str, ...]:
    """The words that its programs have in all scenes."""
    return EVERY_WORDS + REMAP_WORDS * scheme(ftl).remaps


def programs(
    length: int, among: tuple[str, ...] = EVERY_WORDS, own: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:  # fmt: skip
    """All programs of up to ``length`` words, the empty one first. Programs that differ only in the numbering of pages
    count once: page 1 comes only after page 0; words of ``own`` may come at any time. A longer ``length`` only adds
    programs at the end."""
    for n in range(length + 1):
        yield from programs_of(n, among, own)


def programs_of(n: int, among: tuple[str, ...], own: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """As ``programs``, but only those of exactly ``n`` words."""
    for words in itertools.product((*among, *own), repeat=n):
        named = 0
        for word in words:
            named = naming(word, named, own)
        if named >= 0:
            yield words


def naming(word: str, named: int, own: tuple[str, ...] = ()) -> int:
    """The number of pages named after a word, with ``named`` before it; -1 if it names a page before its turn."""
    if word in own:
        return named
    for page in word[1:].partition("+")[0].split("-") if len(word) > 1 else ():
        if named < 0 or int(page) > named:
            return -1
        named = max(named, int(page) + 1)
    return named


def programs_count(length: int, among: tuple[str, ...] = EVERY_WORDS, own: tuple[str, ...] = ()) -> int:
    """The number of ``programs``."""
    named = {0: 1}  #: {pages named: programs}
    total = 1
    for _ in range(length):
        longer: Counter[int] = Counter()
        for k, count in named.items():
            for word in (*among, *own):
                longer[naming(word, k, own)] += count
        del longer[-1]
        named = dict(longer)
        total += sum(named.values())
    return total


def scenes(ftl: str, depth: int) -> tuple[Scene, ...]:
    """The scenes that the FTL can be bound to: those set by hand on its two smallest chips, then those that were found.
    In depth 2 only those set by hand, on the chip that has most of them."""
    chips = presets_for(ftl, SMALLEST)[:2]
    fitting = [scene for scene in SCENES if scene.past.preset in chips]
    if depth > 1:
        most = max(chips, key=lambda preset: sum(scene.past.preset == preset for scene in fitting))
        return tuple(scene for scene in fitting if scene.past.preset == most)
    return (*fitting, *found_scenes(ftl))


@lru_cache
def found_scenes(ftl: str) -> tuple[Scene, ...]:
    """A scene right before each rare event that the trials met, and one on a chip that is almost worn out."""
    rnd = random.Random(f"scenes {ftl}")
    chips = presets_for(ftl)
    best: dict[str, tuple[int, Case]] = {}  #: {event: words before it, the run}
    for trial in range(TRIALS):
        base = random_setting(rnd, ftl, rnd.choice(chips), odd=False, aged=trial % 2 > 0, trims=trial % 5 == 0)
        base = replace(base, later=())
        for event, k in firsts(base).items():
            if event not in best or k < best[event][0]:
                best[event] = (k, base)
    same: dict[tuple[Case, tuple[str, ...]], list[str]] = {}
    for event in sorted(best):
        scene = right_before(event, *best[event])
        same.setdefault((scene.past, scene.own), []).append(event)
    return (*(Scene(past, own, "; ".join(events)) for (past, own), events in same.items()), *worn(ftl, chips))


def right_before(event: str, k: int, run: Case) -> Scene:
    """The scene in which one more word causes the event: one of the words of all scenes if one does, else what is left
    of the run's word ``k`` after as much as possible of it is done in the scene's history."""
    words = run.program.split()
    past, word = words[:k], words[k]
    step, = parse_program(word)
    if step.operation in "wt" and step.n > 1 and not step.unit:
        done = bisect_left(range(1, step.n), True, key=lambda n: happens(event, run, [*past, part(step, 0, n)]))
        past, word = [*past, *[part(step, 0, done)] * (done > 0)], part(step, done, step.n)
        few = [part(step, done, min(step.n, done + n)) for n in (1, 2, 4, step.n)]
        own = next((one for one in few if happens(event, run, [*past, one])), "")
        if not own:                        # the word in parts does not cause the event
            past, own = words[:k], words[k]
    else:
        own = word
    common = next((one for one in words_for(run.ftl) if happens(event, run, [*past, one])), None)
    return Scene(replace(run, program=" ".join(past)), () if common else (own,), event)


def part(step: Step, begin: int, end: int) -> str:
    """A word for requests ``begin`` to ``end`` of a row, or for those pages of a range."""
    first = step.lpa + begin * (step.apart or 1)
    return f"{step.operation}{first}+{end - begin}" + f"/{step.apart}" * bool(step.apart)


def happens(event: str, run: Case, words: list[str]) -> bool:
    """Whether the last of the words is the first that causes the event."""
    return firsts(replace(run, program=" ".join(words))).get(event) == len(words) - 1


def firsts(case: Case) -> dict[str, int]:
    """{event: number of words before the one in which it first happens}, in a run without a cut."""
    seen: dict[str, int] = {}
    bench = Bench(case)
    last: list[Any] = [None, Counter()]

    def look(done: str, operations: int) -> None:
        if 0 < bench.phase <= len(bench.steps):
            before = last[1] if last[0] is bench.ssd else Counter()
            last[:] = [bench.ssd, counts_of(bench.scheme, bench.ssd)]
            for event, count in last[1].items():
                if count > before[event]:
                    seen.setdefault(event, bench.phase - 1)

    bench.tell = look
    bench.play()
    bench.release()
    return seen


def worn(ftl: str, chips: tuple[str, ...]) -> tuple[Scene, ...]:
    """A scene on a chip with so many failed blocks that two more would make the device full; none if it never is. One
    of the two spare blocks is for the cut: it leaves a block half full, and the recovery opens another. If the chip can
    lose only one block, that one has failed."""
    rnd = random.Random(f"worn {ftl}")
    program = " f ".join([f"w0+{Case(ftl, '', chips[0]).geometry.lpas}"] * 3)
    kept = case = Case(ftl, program, chips[0], options=(("buffer", 2),))
    for failed in range(WORN_MOST):
        at = (case.fail[-1] if case.fail else 3) + rnd.randint(1, WORN_EVERY)
        more = replace(case, fail=(*case.fail, at))
        outcome = run_case(replace(more, program=f"{program} w0 w1 r w2 t0 i w1 f r w2 w0 r"))
        if outcome.failure:
            return (Scene(kept if failed > 1 else case, before=WORN),) * (failed > 0)
        kept, case = case, more
    return ()


def every_case(ftl: str, words: tuple[str, ...], scene: Scene, depth: int) -> Tally:
    """One program in one scene, every operation cut. The operations of a hand-set scene's prologue are cut only with
    the empty program, at depth 1."""
    first = scene.prologue + 1 if words or depth > 1 or scene.before else 0
    return Forks(scene.case(ftl, words), first=first, depth=depth).run()
