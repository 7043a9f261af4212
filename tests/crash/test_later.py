"""Options that are otherwise from some mount on: a case has them, a mount gets them, and chance draws them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from schemes import FEW

from flashfs.crash import Case, run_case, tiers
from flashfs.crash.bench import Bench
from flashfs.crash.programs import edges, fits, fits_at_each_mount, random_later, random_setting
from flashfs.errors import UsageError
from flashfs.ftl import ENGINE_OPTIONS, SCHEMES, Option


def mounts_of(line: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], bool, int]]:
    """(options, plp, dram) of each mount of a case, the first when it was bound."""
    seen: list[tuple[dict[str, Any], bool, int]] = []
    build = Bench.build

    def noted(bench: Bench, options: dict[str, Any]) -> Any:
        seen.append((dict(options), bench.plp, bench.dram))
        return build(bench, options)

    monkeypatch.setattr(Bench, "build", noted)
    outcome = run_case(Case.parse(line))
    assert outcome.failure is None
    return seen


def test_each_mount_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    line = (
        "ftl=dftl preset=tiny-24d opt.buffer=2 plp opt@1.battery=0 opt@2.buffer=4 opt@2.plp=0 opt@3.plp=1 "
        "opt@3.buffer=1 opt@3.battery=1 opt@2.dram=60000 cut=20:before cut=2:after program='w0+9 f w3 w4 r w5 f w6'"
    )
    seen = mounts_of(line, monkeypatch)
    assert len(seen) >= 4
    options = [(of["battery"], of["buffer"], plp, dram) for of, plp, dram in seen[:4]]
    assert options == [(1, 2, True, 0), (0, 2, True, 0), (0, 4, False, 60_000), (1, 1, True, 60_000)]


def test_a_recovery_that_was_cut_counts_as_a_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "ftl=pagemap preset=tiny-16 opt@2.buffer=4 cut=9:before cut=1:before program='w0+9 f w3'"
    assert [of["buffer"] for of, _, _ in mounts_of(line, monkeypatch)[:3]] == [2, 2, 4]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("opt@1.nonesuch=3", "pagemap has no such option that may change"),
        ("opt@1.stripe=0", "a whole number from 1 to"),
        ("opt@1.plp=2", "that is no plp"),
        ("opt@1.sync=maybe", "that is no sync"),
        ("opt@x.buffer=1", "is not understood"),
        ("opt@-1.buffer=1", "is not understood"),
        ("opt@1=1", "is not understood"),
    ],
)
def test_what_is_none(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Case.parse(f"ftl=pagemap preset=tiny-16 {word} program='w0'")


def test_what_was_fixed_stays() -> None:
    with pytest.raises(UsageError, match="fence: geckoftl has no such option that may change"):
        Case.parse("ftl=geckoftl preset=tiny-48 opt@1.fence=0 program='w0'")


def test_a_fork_goes_on_with_the_mounts_of_its_stem() -> None:
    case = Case.parse("ftl=pagemap preset=tiny-16 opt@2.buffer=4 program='w0+9 f r w3 f'")
    bench = Bench(case)

    forks: list[Bench] = []

    class Watch:
        def before_operation(self, nand: Any) -> None:
            if bench.mounts == 1 and not forks and bench.phase == 4:
                forks.append(bench.fork("before", None))

        def before_sync(self, nand: Any) -> None:
            """Nothing."""

    bench.nand.watcher = Watch()
    bench.play()
    fork, = forks
    fork.play(forked=True)
    assert (fork.mounts, fork.settings()["buffer"]) == (3, 4)  # the recovery, and the last look at everything
    fork.release()
    bench.release()


def test_edges() -> None:
    assert Option("a", 3, "", low=1, high=5).edges() == (1, 2, 3, 4, 5)
    assert Option("a", 50, "", high=99).edges() == (0, 1, 50, 99)
    assert Option("a", 0, "", high=1 << 40).edges() == (0, 1)
    assert Option("a", "on", "", choices=("on", "off")).edges() == ("on", "off")
    for name, of in SCHEMES.items():
        for option in (*ENGINE_OPTIONS, *of.options):
            assert all(option.parse(value) == value for value in edges(name, option)), option.name


@pytest.mark.parametrize("ftl", FEW)
def test_every_edge_of_every_option_is_drawn(ftl: str) -> None:
    """Fixed ones too, on the smallest chips, as far as they have room; others also at later mounts."""
    drawn: Counter[tuple[str, str]] = Counter()
    later: Counter[str] = Counter()
    rnd = random.Random(f"edges {ftl}")
    presets = tiers.presets_for(ftl)
    for _ in range(700):
        case = random_setting(rnd, ftl, rnd.choice(presets))
        drawn.update((name, str(value)) for name, value in case.options)
        later.update(one.name for one in case.later)
    for option in SCHEMES[ftl].options:
        room = [value for value in edges(ftl, option)
                if any(fits(Case(ftl, "", preset, options=((option.name, value),))) for preset in presets)]  # fmt: skip
        met = [value for value in room if drawn[option.name, str(value)]]
        assert 2 * len(met) >= len(room), option.name
        assert option.fixed or later[option.name], option.name
    assert {"sync", "plp", "buffer"} <= set(later)


def test_what_a_mount_has_no_room_for_is_not_drawn() -> None:
    rnd = random.Random(1)
    base = Case.parse("ftl=slimftl preset=tiny-16 plp program='w0 r w1'")
    for _ in range(40):
        case = random_later(rnd, base, host=True)
        assert fits_at_each_mount(case)
        assert Case.parse(case.line()).line() == case.line()
        assert all(one.name != "sync" for one in case.later)
