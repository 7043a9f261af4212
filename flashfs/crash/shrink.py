"""Shrinks a failing case while it fails in the same way: fewer words, cuts, faults and options."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from flashfs.crash.cases import Case
from flashfs.crash.grammar import Step, parse_program
from flashfs.crash.run import run_case
from flashfs.errors import FlashfsError

#: called with each smaller case that still fails
Tell = Callable[[Case], None]


def kind_of(why: str) -> str:
    """What failures of one kind have in common: the beginning, without its numbers."""
    return re.sub(r"\d+", "N", why)[:36]


def why_of(case: Case) -> str | None:
    """How it fails; None if it does not, or is not a valid case."""
    try:
        failure = run_case(Case.parse(case.line())).failure
    except FlashfsError:  # the FTL no longer fits the chip, or a word is invalid
        return None
    return failure.why if failure else None


def shrink(case: Case, *, seconds: float = 60.0, tell: Tell = lambda smaller: None) -> Case:
    """The smallest case found within ``seconds``; the case itself if it does not fail."""
    why = why_of(case)
    if why is None:
        return case
    kind, until = kind_of(why), time.perf_counter() + seconds
    better = True
    while better:
        better = False
        for smaller in smaller_than(case):
            if time.perf_counter() > until:
                return case
            now = why_of(smaller)
            if now is not None and kind_of(now) == kind:
                case, better = smaller, True
                tell(case)
                break
    return case


def smaller_than(case: Case) -> Iterator[Case]:
    """Cases that lack something, or have less of it; large steps first."""
    yield from with_fewer_words(case)
    yield from with_less_beside(case)
    yield from with_shorter_words(case)
    yield from with_earlier_cuts(case)


def with_fewer_words(case: Case) -> Iterator[Case]:
    """Without a half, a quarter, ... one of its words, from the end on; also with the first cut that much earlier."""
    words = case.program.split()
    size = len(words)
    while size:
        bounds = [*range(len(words), 0, -size), 0]
        for end, begin in pairwise(bounds):
            left, gone = words[:begin] + words[end:], " ".join(words[begin:end])
            if left:
                fewer = replace(case, program=" ".join(left))
                yield fewer
                if case.cuts:
                    yield earlier(fewer, pages_of(gone, case))
        size //= 2


def pages_of(program: str, case: Case) -> int:
    """About how many pages it writes."""
    page = case.geometry.page_bytes
    steps = [step for step in parse_program(program) if step.operation != "t"]
    return sum(-(-size // page) for step in steps for _, size in step.spans(page))


def earlier(case: Case, operations: int) -> Case:
    """The case with its first cut so many operations earlier."""
    first, *others = case.cuts
    return replace(case, cuts=(replace(first, at=max(1, first.at - operations)), *others))


def with_less_beside(case: Case) -> Iterator[Case]:
    """Without one of its options, faults, lives, ..."""
    for field in ("later", "options", "fail", "unsynced", "faults", "chip"):
        of = getattr(case, field)
        yield from (replace(case, **{field: of[:i] + of[i + 1 :]}) for i in range(len(of)))
    for i in range(len(case.cuts)):
        keeps = case.keeps[:i] + case.keeps[i + 1 :] if case.keeps else ()
        yield replace(case, cuts=case.cuts[:i] + case.cuts[i + 1 :], keeps=keeps)
        if case.cuts[i].shape != "before":
            simple = replace(case.cuts[i], shape="before", words=None)
            yield replace(case, cuts=(*case.cuts[:i], simple, *case.cuts[i + 1 :]))
    if case.plp:
        yield replace(case, plp=False)
    if case.dram:
        yield replace(case, dram=0)
    if case.fills:
        yield replace(case, fills=0)


def with_shorter_words(case: Case) -> Iterator[Case]:
    """With a word that asks for half as much, or for one less."""
    words = case.program.split()
    for i, step in enumerate(parse_program(case.program)):
        for n in dict.fromkeys((1, step.n // 2, step.n - 1)):
            if 0 < n < step.n:
                yield replace(case, program=" ".join((*words[:i], shorter(words[i], step, n), *words[i + 1 :])))


def shorter(word: str, step: Step, n: int) -> str:
    """The word with ``n`` as its count."""
    head, _, tail = word.rpartition("+")
    return f"{head}+{n}" + (f"/{step.apart}" if "/" in tail else "")


def with_earlier_cuts(case: Case) -> Iterator[Case]:
    """With one cut some operations earlier."""
    for i, cut in enumerate(case.cuts):
        for at in dict.fromkeys((1, cut.at // 2, cut.at * 3 // 4, cut.at - 4, cut.at - 1)):
            if 0 < at < cut.at:
                yield replace(case, cuts=(*case.cuts[:i], replace(cut, at=at), *case.cuts[i + 1 :]))
