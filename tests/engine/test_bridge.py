"""FTLs in Python: good ones work like any other; a mistake is reported with its call, and costs nothing flushed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import planted
import pytest
import test_golden
from planted import GOOD, NAME, Cleaning, Good, Guessing, Late, Placing, Saving, Stamping, Validating, use
from schemes import thinned

import nandimg
from flashfs.crash import campaign
from flashfs.crash.oracle import Judge
from flashfs.device import Device
from flashfs.errors import BindError, DeviceFailedError, FtlError, UsageError
from flashfs.ftl import scheme
from flashfs.plugin import Chip, Option
from nandimg import Geometry

TIERS = ("sweep", "random", "host")
GEOMETRY = Geometry(
    page_bytes=512, pages_per_block=8, blocks=64, channels=2, dies=4, oob_bytes=64, lpas=360, nvram_bytes=8192
)
PAGE = GEOMETRY.page_bytes
CLOSED = Placing.closed


@pytest.fixture(autouse=True)
def nothing_armed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Good, "armed", False)
    monkeypatch.setitem(planted.sys.modules, "planted", planted.sys.modules["planted"])
    yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    nandimg.create(tmp_path / "chip", GEOMETRY)
    return tmp_path / "chip"


def work(device: Device, judge: Judge, rnd: random.Random, requests: int) -> None:
    """Writes, half of them to a tenth of the pages; trims, reads, flushes. What is read must be the newest."""
    for _ in range(requests):
        lpa = rnd.randrange(36) if rnd.random() < 0.5 else rnd.randrange(GEOMETRY.lpas)
        span = min(rnd.choice((1, 1, 1, 3, 40)), GEOMETRY.lpas - lpa)
        kind = rnd.random()
        if kind < 0.7:
            device.write(lpa * PAGE, b"".join(judge.will_write(x) for x in range(lpa, lpa + span)))
        elif kind < 0.8:
            judge.will_trim(lpa, span)
            device.trim(lpa * PAGE, span * PAGE)
        elif kind < 0.9:
            found = device.read(lpa * PAGE, span * PAGE)
            assert found == b"".join(judge.newest(x) for x in range(lpa, lpa + span))
        else:
            device.flush()
            judge.flushed()


def sound(device: Device, judge: Judge) -> None:
    """Nothing flushed is lost, and every check holds."""
    wrong = [judge.crashed(lpa, device.read(lpa * PAGE, PAGE)) for lpa in range(GEOMETRY.lpas)]
    assert [line for line in wrong if line] == []
    assert device.problems() == []


@pytest.mark.parametrize("verify", ["0", "1"])
@pytest.mark.parametrize("cls", GOOD)
def test_a_good_one_is_a_device_like_any_other(cls: type, verify: str, path: Path) -> None:
    """Over clean mounts and crashes, with failing programs in between."""
    rnd, judge = random.Random(3), Judge(GEOMETRY.lpas, PAGE)
    use(cls)
    for clean in (False, True, False, True, True):
        device = Device.open(path, ftl=NAME, options={"verify": verify, "buffer": rnd.choice(("0", "5"))})
        assert device.recovery.summary()
        sound(device, judge)
        work(device, judge, rnd, 250)
        device.flush()
        judge.flushed()
        device.close(clean=clean)
    with Device.open(path, trust=True) as device:
        assert device.recovery.clean
        sound(device, judge)
        counts = device.stats()["nand"]["by_cause"]
        assert counts["spare_read"].get("recovery", 0) > 0  # `problems` reads them
        assert device.stats()["ftl"] == NAME


TURNS = thinned([(cls, tier, 40) for cls in GOOD for tier in TIERS], 2)
LONG = [pytest.param(cls, tier, 200, marks=pytest.mark.slow) for cls in GOOD for tier in TIERS]


@pytest.mark.parametrize(("cls", "tier", "cuts"), [*TURNS, *LONG])
def test_power_cuts(cls: type, tier: str, cuts: int) -> None:
    result = campaign.run(use(cls, f"cut_{cls.__name__.lower()}:Ftl"), tier, 7, cuts)
    assert [str(failure) for failure in result.failures] == []
    assert result.cuts >= cuts


def test_an_open_block_that_another_program_wrote_to_is_closed(path: Path) -> None:
    """A clean mount reads nothing: whether a block takes more is asked when place() names it. If it does not, the FTL
    hears that it is closed, and is asked again."""
    use(Placing)
    with Device.open(path, ftl=NAME, options={"buffer": "0"}) as device:
        device.write(0, b"a" * (5 * PAGE))
        blocks = {block for block in range(GEOMETRY.blocks) if device.ssd.pool.describe(block)["state"] == "open"}
    with closing(nandimg.open_image(path)) as image:
        chip = image.chip
        for block in blocks:
            free = [page for page in range(8) if chip.read_spare_area(block, page)[0] == 0]
            chip.program_page(block, free[0], bytes(PAGE), bytes(20))
    told: list[int] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Placing, "closed", lambda self, block: told.append(block) or CLOSED(self, block))
        with Device.open(path, trust=True, options={"buffer": "0"}) as device:
            assert device.recovery.clean
            assert device.stats()["nand"]["spare_read"] == 0
            assert told == []
            device.write(2 * PAGE, b"b" * (4 * PAGE))
            assert device.read(0, 7 * PAGE) == b"a" * (2 * PAGE) + b"b" * (4 * PAGE) + bytes(PAGE)
            assert device.problems() == []
    assert set(told) == blocks


def test_replaces_says_which_parts_are_its_own() -> None:
    own = {cls: scheme(use(cls)).replaces for cls in GOOD}
    assert own[Good] == own[Saving] == own[Guessing] == ("mapping",)
    assert own[Validating] == ("mapping", "validity")
    assert own[Placing] == ("mapping", "placement")
    assert own[Cleaning] == ("mapping", "cleaning")


def test_the_same_operations_as_pagemap(tmp_path: Path) -> None:
    """A page map in Python does exactly what the compiled one does, if it is not verified."""
    found = test_golden.counts(use(Good), tmp_path, {"verify": "0"})
    assert found == test_golden.golden.read("engine", "pagemap")


def test_what_verifying_costs(tmp_path: Path) -> None:
    """Spare reads on the map's account, one a page that dies, and nothing else."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    plain, verified = (test_golden.counts(use(Good), tmp_path / name, {"verify": how}) for name, how in ("a0", "b1"))
    for life in plain:
        spares = verified[life]["nand"]["spare_read"].pop("map")
        assert plain[life]["nand"] == verified[life]["nand"]
        host = plain[life]["host"]
        assert 0.3 * host["write"] < spares <= host["write"] + host["trim"]


# --- mistakes


def armed(right: Any, wrong: Any) -> Any:
    """A method that is ``right`` until it is armed."""

    def method(self: Any, *arguments: Any) -> Any:
        return (wrong if Good.armed else right)(self, *arguments)

    return method


def raises(*_: Any) -> Any:
    raise ValueError("no such\nthing")


def gives(value: Any) -> Callable[..., Any]:
    return lambda self, *arguments: value


def off_by_one(self: Any, lpa: int) -> int | None:
    ppa = self.at.get(lpa)
    return ppa if ppa is None else ppa + 1


def of_another(self: Any, lpa: int) -> int | None:
    """Two LPAs that changed places: each answer is a live page."""
    return self.at.get(lpa ^ 1, self.at.get(lpa))


LPA, PPA = r"lpa=\d+", r"ppa=\d+"
CLEANING = r"returned (PPA \d+|None): cleaning found it at PPA \d+"  # the page that it was about to move
BLOCKS = r"attach\(blocks=\{.*\}\)"
RAISED = r"raised ValueError: no such thing at test_bridge\.py line \d+"

#: what is planted, in which class and method, and what must be said of it
MISTAKES: list[tuple[str, type, str, Any, str]] = [
    ("lookup raises", Good, "lookup", raises, rf"lookup\({LPA}\): {RAISED}"),
    ("lookup gives text", Good, "lookup", gives("7"),
     rf"lookup\({LPA}\): returned '7': it should be None, or a PPA from 0 to 511"),
    ("lookup gives a float", Good, "lookup", gives(7.0),
     rf"lookup\({LPA}\): returned 7\.0: it should be None, or a PPA"),
    ("lookup gives a bool", Good, "lookup", gives(True),
     rf"lookup\({LPA}\): returned True: it should be None, or a PPA"),
    ("lookup is beyond the chip", Good, "lookup", gives(512),
     rf"lookup\({LPA}\): returned 512: it should be None, or a PPA"),
    ("lookup is negative", Good, "lookup", gives(-1), rf"lookup\({LPA}\): returned -1: it should be None, or a PPA"),
    ("lookup is off by one", Good, "lookup", off_by_one,
     rf"lookup\({LPA}\): (returned PPA \d+, which (holds|is)|{CLEANING})"),
    ("lookup swaps two", Good, "lookup", of_another,
     r"(lookup|bind|unbind)\(lpa=\d+.*(which holds LPA|then says|cleaning found|never bound)"),
    ("lookup forgets", Good, "lookup", gives(None),
     rf"lookup\({LPA}\): (returned None, but this LPA was bound|{CLEANING})"),
    ("lookup always finds", Good, "lookup", lambda self, lpa: self.at.get(lpa, 3),
     rf"(lookup\({LPA}\): returned PPA 3, but this LPA was never bound, or was unbound since"
     rf"|unbind\({LPA}\): lookup\(\d+\) then says PPA 3; it should be None)"),
    ("bind raises", Good, "bind", raises, rf"bind\({LPA}, {PPA}\): {RAISED}"),
    ("bind is forgotten", Good, "bind", gives(None),
     rf"bind\({LPA}, {PPA}\): lookup\(\d+\) then says (PPA \d+|None); it should be PPA \d+"),
    ("bind is wrong", Good, "bind", lambda self, lpa, ppa: self.at.update({lpa: ppa ^ 1}),
     rf"bind\({LPA}, {PPA}\): lookup\(\d+\) then says PPA \d+; it should be PPA \d+"),
    ("unbind raises", Good, "unbind", raises, rf"unbind\({LPA}\): {RAISED}"),
    ("unbind is forgotten", Good, "unbind", gives(None),
     rf"unbind\({LPA}\): lookup\(\d+\) then says PPA \d+; it should be None"),
    ("stamp raises", Stamping, "stamp", raises, rf"stamp\({LPA}, {PPA}\): {RAISED}"),
    ("stamp is short", Stamping, "stamp", gives(b"1234567"),
     rf"stamp\({LPA}, {PPA}\): returned 7 bytes: it should be 8 bytes"),
    ("stamp is text", Stamping, "stamp", gives("12345678"),
     rf"stamp\({LPA}, {PPA}\): returned '12345678': it should be 8 bytes"),
    ("save raises", Saving, "save", raises, rf"save\(\): {RAISED}"),
    ("save gives text", Saving, "save", gives("x"), r"save\(\): returned 'x': it should be bytes, 2880 at most"),
    ("save gives too much", Saving, "save", gives(bytes(2881)),
     r"save\(\): returned 2881 bytes: it should be bytes, 2880 at most"),
    ("save lies", Saving, "save", lambda self: struct_swapped(self.at),
     r"save\(\): lookup\(\d+\) says PPA \d+, but PPA \d+ of an object that has loaded what it saved"),
    ("save forgets", Saving, "save", gives(b""), r"save\(\): lookup\(\d+\) says PPA \d+, but None of an object"),
    ("after_miss raises", Guessing, "after_miss", raises, rf"after_miss\({LPA}, {PPA}\): {RAISED}"),
    ("after_miss goes in circles", Guessing, "after_miss", lambda self, lpa, ppa: ppa ^ 1,
     rf"after_miss\({LPA}, {PPA}\): returned PPA \d+: the guesses go round in circles"),
    ("after_miss ends early", Guessing, "after_miss", gives(None),
     rf"(lookup\({LPA}\): (neither it nor after_miss names|{CLEANING})|bind\({LPA}, {PPA}\): lookup\(\d+\) then)"),
    ("after_miss gives text", Guessing, "after_miss", gives("x"),
     rf"after_miss\({LPA}, {PPA}\): returned 'x': it should be None, or a PPA"),
    ("live raises", Validating, "live", raises, rf"live\({PPA}\): {RAISED}"),
    ("dead raises", Validating, "dead", raises, rf"dead\({PPA}\): {RAISED}"),
    ("dead is forgotten", Validating, "dead", gives(None), rf"is_live\({PPA}\): returned True: it should be False"),
    ("is_live lies", Validating, "is_live", gives(False), rf"is_live\({PPA}\): returned False: it should be True"),
    ("a late is_live lies", Late, "is_live", gives(False), rf"is_live\({PPA}\): returned False: it should be True"),
    ("is_live gives a number", Validating, "is_live", gives(1),
     rf"is_live\({PPA}\): returned 1: it should be (True|False)"),
    ("place raises", Placing, "place", raises, rf"place\('(host|gc)', lpas=\[\d+.*\]\): {RAISED}"),
    ("place gives nothing", Placing, "place", gives(None),
     r"place\(.*\): returned None: it should be a block that chip"),
    ("place gives text", Placing, "place", gives(("3", 1)),
     r"place\(.*\): returned \('3', 1\): it should be a block that"),
    ("place is beyond the chip", Placing, "place", gives(64), r"place\(.*\): returned 64: it should be a block that"),
    ("place for no page", Placing, "place", lambda self, stream, lpas: (any_open(self), 0),
     r"place\(.*\): returned block \d+ for 0 pages: it should be 1 to \d+"),
    ("place for too many", Placing, "place", lambda self, stream, lpas: (any_open(self), len(lpas) + 1),
     r"place\(.*\): returned block \d+ for \d+ pages: it should be 1 to \d+"),
    ("place into a full block", Placing, "place", lambda self, stream, lpas: self.chip.closed_blocks()[0],
     r"place\(.*lpas=\[\d+.*\): returned block \d+, which is closed: it should be one that chip\.open_block"),
    ("place opens without end", Placing, "place", lambda self, stream, lpas: self.chip.open_block(),
     r"open_block\(\): \d blocks are open for (host|gc) already, and (host|gc)_blocks is \d"),
    ("place opens on no die", Placing, "place", lambda self, stream, lpas: self.chip.open_block(die=4),
     r"open_block\(die=4\): use a die from 0 to 3, or None"),
    ("closed raises", Placing, "closed", raises, rf"closed\(block=\d+\): {RAISED}"),
    ("another opens a block", Placing, "lookup", lambda self, lpa: self.chip.open_block(),
     r"open_block\(\): only place"),
    ("a block that is none", Placing, "place", lambda self, stream, lpas: self.chip.room(64),
     r"place\(.*\): raised ValueError: block 64: use 0 to 63"),
    ("victim raises", Cleaning, "victim", raises, rf"victim\(\): {RAISED}"),
    ("victim is forgotten", Cleaning, "victim", gives(None),
     r"victim\(\): returned None: it should be one of chip\.closed_blocks"),
    ("victim is free", Cleaning, "victim", lambda self: a_block(self, "free"),
     r"victim\(\): returned block \d+, which is (free|pending|open|meta)"),
    ("victim is open", Cleaning, "victim", lambda self: a_block(self, "open"),
     r"victim\(\): returned block \d+, which is"),
    ("victim is beyond the chip", Cleaning, "victim", gives(64), r"victim\(\): returned 64: it should be one of"),
]  # fmt: skip


def struct_swapped(at: dict[int, int]) -> bytes:
    """A table in which two LPAs have changed places."""
    first, second, *_ = at
    return Saving.save(_Holder({**at, first: at[second], second: at[first]}))  # type: ignore[arg-type]


class _Holder:
    def __init__(self, at: dict[int, int]) -> None:
        self.at = at


def any_open(ftl: Any) -> int:
    return next(iter(ftl.open.values())) if ftl.open else ftl.chip.open_block()


def a_block(ftl: Any, state: str) -> int:
    """A block that is not closed, whatever else it is."""
    closed = set(ftl.chip.closed_blocks())
    others = [block for block in range(ftl.chip.blocks) if block not in closed]
    return others[0] if state == "free" else others[-1]


@pytest.mark.parametrize(("cls", "method", "wrong", "said"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_told_and_costs_nothing(cls: type, method: str, wrong: Any, said: str, path: Path) -> None:
    rnd, judge = random.Random(11), Judge(GEOMETRY.lpas, PAGE)
    bad = type("Ftl", (cls,), {method: armed(getattr(cls, method), wrong)})
    device = Device.open(path, ftl=use(bad), options={"buffer": "0", "checkpoint_every": "150"})
    work(device, judge, rnd, 300)
    assert device.ssd.failed is None
    Good.armed = True
    with pytest.raises((FtlError, DeviceFailedError), match=f"^{NAME}.{said}") as caught:
        work(device, judge, rnd, 3_000)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == 5
    assert re.match(f"^{NAME}.", str(device.ssd.failed))
    assert device.smart()["failed"] == device.ssd.failed
    for change in (lambda: device.write(0, b"x" * PAGE), device.checkpoint, lambda: device.trim(0, PAGE)):
        with pytest.raises(DeviceFailedError, match="nothing more is changed"):
            change()
    with pytest.raises(DeviceFailedError):
        device.close()  # no checkpoint: a wrong map is never saved
    Good.armed = False
    use(cls)
    with Device.open(path, trust=True) as device:
        sound(device, judge)
        work(device, judge, rnd, 100)
        device.flush()
        judge.flushed()
    with Device.open(path, trust=True) as device:
        assert device.recovery.clean
        sound(device, judge)


def test_a_wrong_map_is_noticed_by_a_read_even_unverified(path: Path) -> None:
    """The engine looks at the OOB of every page that it reads for the host."""
    device = Device.open(path, ftl=use(Good), options={"verify": "0", "buffer": "0"})
    device.write(0, b"a" * PAGE + b"b" * PAGE)
    ftl = device.ssd.mapping.plugin.ftl  # type: ignore[attr-defined]
    ftl.at = {0: ftl.at[1], 1: ftl.at[0]}
    with pytest.raises(FtlError, match=r"planted:Ftl\.lookup\(lpa=0\): returned PPA \d+, which holds LPA 1"):
        device.read(0, PAGE)
    device.close(clean=False)


# --- mistakes at a mount


def crashed_image(path: Path, cls: type, clean: bool) -> Judge:
    judge = Judge(GEOMETRY.lpas, PAGE)
    device = Device.open(path, ftl=use(cls), options={"buffer": "0"})
    work(device, judge, random.Random(5), 300)
    device.checkpoint()
    work(device, judge, random.Random(6), 50)
    device.flush()
    judge.flushed()
    device.close(clean=clean)
    return judge


@pytest.mark.parametrize(
    ("cls", "method", "wrong", "clean", "said"),
    [
        (Good, "__init__", raises, True, rf"__init__\(chip\): {RAISED}"),
        (Good, "__init__", lambda self, chip: setattr(self, "at", {0: 3}), True,
         r"lookup\(lpa=0\): returned 3 of a new"),
        (Good, "bind", raises, True, rf"bind\({LPA}, {PPA}\): {RAISED}"),
        (Good, "bind", raises, False, rf"bind\({LPA}, {PPA}\): {RAISED}"),
        (Good, "bind", gives(None), True, rf"bind\({LPA}, {PPA}\): lookup\(\d+\) then says None"),
        (Saving, "load", raises, True, rf"load\(\d+ bytes\): {RAISED}.*--opt rebuild=1"),
        (Saving, "load", gives(None), True, r"lookup\(\): no LPA is said to be at PPA \d+, which holds LPA \d+"),
        (Saving, "load", lambda self, saved: self.at.update({0: 0, 1: 0}), True, r"lookup\(lpa=\d\): returned PPA 0"),
        (Saving, "load", lambda self, saved: self.at.update({0: "x"}), True, r"lookup\(lpa=0\): returned 'x'"),
        (Stamping, "recovered", raises, False, rf"recovered\({LPA}, {PPA}\): {RAISED}"),
        (Stamping, "recovered", gives(None), False, rf"recovered\({LPA}, {PPA}\): lookup\(\d+\) then says"),
        (Placing, "attach", raises, True, rf"{BLOCKS}: {RAISED}"),
        (Placing, "attach", gives([63]), True, rf"{BLOCKS}: returned 63 among others"),
        (Validating, "live", raises, True, rf"live\({PPA}\): {RAISED}"),
    ],
)  # fmt: skip
def test_a_mistake_at_a_mount_is_a_failed_mount(
    cls: type, method: str, wrong: Any, clean: bool, said: str, path: Path
) -> None:
    judge = crashed_image(path, cls, clean)
    before = path.read_bytes()
    use(type("Ftl", (cls,), {method: wrong}))
    with pytest.raises(FtlError, match=f"^{NAME}.{said}") as caught:
        Device.open(path, trust=True)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    use(cls)
    with Device.open(path, trust=True) as device:
        assert device.recovery.clean is clean
        sound(device, judge)


@pytest.mark.parametrize("clean", [True, False])
def test_a_map_that_cannot_be_loaded_is_made_anew_from_flash(clean: bool, path: Path) -> None:
    """Say, because the plug-in was changed and has another form of save() now."""
    judge = crashed_image(path, Stamping, clean)

    class Changed(Stamping):
        def load(self, saved: bytes) -> None:
            raise ValueError("an old version wrote this")

    use(Changed)
    with pytest.raises(FtlError, match=r"an old version wrote this.*--opt rebuild=1 makes the map anew"):
        Device.open(path, trust=True)
    use(Stamping)
    device = Device.open(path, trust=True, options={"rebuild": "1"})
    sound(device, judge)
    work(device, judge, random.Random(8), 300)
    device.flush()
    judge.flushed()
    device.close(clean=False)
    device = Device.open(path, trust=True, options={"rebuild": "1"})
    sound(device, judge)
    device.close()


def test_a_class_may_learn_to_save_later(path: Path) -> None:
    judge = crashed_image(path, Good, True)
    use(Saving)
    with Device.open(path, trust=True) as device:
        sound(device, judge)


# --- a mistake in an answer for people is reported, and is no reason to stop


@pytest.mark.parametrize(
    ("method", "wrong", "said"),
    [
        ("dram", raises, rf"dram\(\): {RAISED}"),
        ("dram", gives(7), r"dram\(\): returned 7: it should be a dict"),
        ("dram", gives({"map": -1}), r"dram\(\): 'map' holds -1: it should be a name, and a whole number of bytes"),
        ("dram", gives({"map": 1.5}), r"dram\(\): 'map' holds 1\.5"),
        ("dram", gives({3: 1}), r"dram\(\): 3 holds 1"),
        ("figures", raises, rf"figures\(\): {RAISED}"),
        ("figures", gives([1]), r"figures\(\): returned \[1\]: it should be a dict"),
    ],
)
def test_statistics_that_are_none(method: str, wrong: Any, said: str) -> None:
    device = Device.memory(GEOMETRY, use(type("Ftl", (Good,), {method: armed(lambda self: {}, wrong)})))
    Good.armed = True
    with pytest.raises(FtlError, match=f"^{NAME}.{said}"):
        device.stats()
    device.write(0, b"x" * PAGE)
    Good.armed = False
    assert device.stats()["host"]["write"] == 1


def test_what_it_says_of_itself_is_shown() -> None:
    class Talking(Good):
        """Talks. And goes on talking."""

        options = (Option("words", 3, "how many", low=1, high=9),)

        def dram(self) -> dict[str, int]:
            return {"dict": 1000}

        def figures(self) -> dict[str, Any]:
            return {"words": self.chip.options["words"]}

        def explain(self, lpa: int) -> dict[str, Any]:
            return {"said": "nothing"}

        def check(self) -> list[str]:
            return ["it never stops"]

    device = Device.memory(GEOMETRY, use(Talking), {"words": "4"})
    assert device.stats()["dram"]["dict"] == 1000
    assert device.stats()["scheme"]["words"] == 4
    assert device.ssd.mapping.explain(3) == {"said": "nothing", "ppa": None}
    assert device.problems() == ["it never stops"]
    assert (scheme(NAME).title, scheme(NAME).about) == ("Talks", "And goes on talking.")
    with pytest.raises(BindError, match=r"--dram 900 is 900 B: planted:Ftl needs \d+ bytes here at least \(.*KiB\)"):
        Device.memory(GEOMETRY, NAME).start(nandimg.memory_image(GEOMETRY), NAME, {}, dram=900)
    with pytest.raises(UsageError, match=r"option words=0: use a whole number from 1 to 9"):
        Device.memory(GEOMETRY, NAME, {"words": "0"})


def test_the_chip_before_it_is_built() -> None:
    class Hasty(Good):
        def __init__(self, chip: Chip) -> None:
            super().__init__(chip)
            chip.closed_blocks()

    with pytest.raises(FtlError, match=r"__init__\(chip\): raised RuntimeError: the chip has no state yet"):
        Device.memory(GEOMETRY, use(Hasty))


def test_more_open_blocks_than_there_are() -> None:
    with pytest.raises(BindError, match=r"planted:Ftl: 360 logical pages .* 60 \+ 2 open ones and a reserve"):
        Device.memory(GEOMETRY, use(type("Ftl", (Placing,), {"host_blocks": 60})))
    with pytest.raises(BindError, match=r"planted:Ftl\.gc_blocks is 0: use a whole number from 1 on"):
        Device.memory(GEOMETRY, use(type("Ftl", (Placing,), {"gc_blocks": 0})))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lookup": None}, "the class lacks lookup; it needs lookup, bind and unbind"),
        ({"save": lambda self: b""}, "the class has save, so it needs load too"),
        ({"after_miss": lambda self, lpa, ppa: None}, "the class has after_miss, so it needs save too"),
        ({"stamp": lambda self, lpa, ppa: b""}, "the class has stamp, so it needs oob_bytes too"),
        ({"stamp": lambda self, lpa, ppa: b"", "oob_bytes": "4"}, "oob_bytes is '4': use a whole number from 1 on"),
        ({"live": lambda self, ppa: None}, "the class has live, so it needs dead too"),
        ({"late": True}, "the class has late, so it needs live too"),
        ({"late": 1, "live": lambda self, ppa: None, "dead": lambda self, ppa: None},
         "late is 1: use True or False"),
        ({"attach": lambda self, blocks: ()}, "the class has attach, so it needs place too"),
        ({"options": ("x",)}, "options hold 'x': use objects of flashfs.plugin.Option"),
    ],
)
def test_a_class_that_cannot_be_one(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=f"^FTL {NAME}: {re.escape(said)}"):
        scheme(use(type("Ftl", (Good,), changes)))
