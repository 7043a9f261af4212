"""The project's FTLs pass the suite that any FTL must pass, and every check in it can fail."""

from __future__ import annotations

import faulthandler
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import bugs
import numpy as np
import plants
import pytest
from schemes import STANDS_FOR

import nandimg
from flashfs import cli
from flashfs.check import CHECKS, Check, Outcome, Setting, Skipped, power, run, suite, upkeep
from flashfs.crash import Case, run_case
from flashfs.device import Device
from flashfs.engine.device import byte_requests
from flashfs.engine.recovery import recovery
from flashfs.errors import UsageError
from flashfs.ftl import SCHEMES, Option, Scheme
from flashfs.ftl.common import streams_for
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_bitmap import PageBitmap
from flashfs.parts.defaults.page_table import PageTable
from flashfs.parts.defaults.streams import Streams
from nandimg import PRESETS, NandError

IDS = [check.id for check in CHECKS]
PAGEMAP = SCHEMES["pagemap"]
OURS = list(SCHEMES)
#: who meets a check in `make test`: each scheme what it answers for itself; the others one scheme for each code path of
#: the engine. Tests of the crash tiers cut the power of each scheme more often than `durability` does,
#: which takes minutes: `make campaign` asks it of each
QUICK = {
    **dict.fromkeys(("names", "content", "accounting", "maps"), tuple(SCHEMES)),
    "dram": ("pagemap", "dftl", "geckoftl", "slimftl", "leaftl"),
    **dict.fromkeys(
        ("rules", "failing", "gc", "wear", "clean", "idempotent", "readonly", "determinism"),
        ("pagemap", "dftl", "geckoftl"),
    ),
    "durability": ("pagemap",),
}
#: what each check must have done at least, in scale quick, to mean anything
DONE = {
    "names": {"options": 5, "views": 4},
    "rules": {"chips": 9, "requests": 1_000, "mounts": 50},
    "content": {"requests": 1_700, "overwrites": 28, "cache_hits": 100},
    "durability": {
        "cuts": 4_500, "sweep": 800, "wide": 40, "random": 500, "every": 1_000, "every_depth_2": 2_000,
        "host_deaths": 150,
    },
    "failing": {"failed_programs": 10, "failed_erases": 1, "retired": 20},
    "gc": {"overwrites": 190, "erases": 2_000, "moved": 2_000},
    "wear": {"writes": 60_000, "moved": 1_000, "spread_most": 4},
    "accounting": {"requests": 3_000, "host_pages": 10_000, "operations": 10_000, "causes": 4},
    "dram": {"structures": 6, "over_1_mb": 1, "measured": 1 << 20},
    "clean": {"mounts": 48, "checkpoint_pages": 100},
    "remaps": {"requests": 480, "remapped": 500, "moved": 30, "kills": 4},
    "maps": {"lpas": 50_000, "holes": 1_000, "mounts": 14},
    "idempotent": {"images": 20, "recoveries": 300, "cuts": 100},
    "readonly": {"mounts": 24, "clean": 8, "crashed": 16},
    "determinism": {"requests": 2_700, "figures": 200},
}  # fmt: skip


def one(spec: str, check: str, **how: Any) -> Outcome:
    outcome, = run([spec], only=[check], **how)
    assert (outcome.ftl, outcome.id) == (spec, check)
    assert outcome.seconds > 0
    return outcome


@pytest.mark.parametrize(
    ("ftl", "check"),
    [
        pytest.param(ftl, check, marks=() if ftl in QUICK.get(check, STANDS_FOR) else pytest.mark.slow)
        for ftl in OURS
        for check in IDS
        if check != "durability" or ftl in QUICK[check]
    ],
)
def test_ours_pass(ftl: str, check: str) -> None:
    outcome = one(ftl, check)
    print(ftl, check, outcome.counts)
    assert outcome.result == "pass", f"{outcome.why}\n    {outcome.replay}"
    for what, least in DONE[check].items():
        if what == "over_1_mb" and Device.memory(PRESETS["small-64m"].geometry, ftl).ssd.mapping.demand:
            continue  # its map is in flash: no table of it is that large
        if what in ("overwrites", "mounts", "images", "clean", "crashed") and check not in ("rules", "content", "maps"):
            least = least * min(4, len(Setting(ftl).presets())) // 4  # so many of the tiny chips have room for it
        assert outcome.counts[what] >= least, what


# --- bugs that the checks must notice: at least one for each


def scheme_with(**what: Any) -> Scheme:
    return replace(PAGEMAP, **{"name": "broken", **what})


def mapping_of(table: type[Any]) -> Scheme:
    """The page map, but for its table."""
    return scheme_with(
        build=lambda ssd, options: (table(ssd), PageBitmap(ssd), streams_for(ssd, options, "broken"), Greedy(ssd))
    )


class Rogue(PageTable):
    """Programs a page of its own where it must not, and keeps silent about what the chip says."""

    def save(self) -> Any:
        try:
            self.ssd.nand.program_page(0, 1, None, b"")
            self.ssd.nand.program_page(0, 3, None, b"")
        except NandError:
            pass
        return super().save()


class Forgetful(PageTable):
    """Leaves out one LPA of what it saves, if there are thousands."""

    def save(self) -> Any:
        table = bytearray(super().save()["table"])
        if len(table) > 16_000:
            table[4 * 3_210 : 4 * 3_211] = bytes(4)
        return {"table": bytes(table)}


class Strange(PageTable):
    """Reads flash on an account that is not there."""

    def save(self) -> Any:
        self.ssd.nand.read_page(0, 0, 14)
        return super().save()


class Relabelling(PageTable):
    """Blames the factory for blocks that have gone bad since."""

    def save(self) -> Any:
        chip = getattr(self.ssd.nand, "chip", self.ssd.nand)
        for block in range(chip.blocks):
            if chip.block_health(block) == 2:
                chip.mark_factory_bad(block)
        return super().save()


class Half(PageTable):
    """Says that its table takes half of what it does."""

    def tables(self) -> dict[str, tuple[int, int]]:
        return {"page_table": (self.ssd.lpas * 2, self.ssd.lpas * 2)}


class Boastful(PageTable):
    """Says that it has two bits an LPA, in 4 bytes each."""

    def tables(self) -> dict[str, tuple[int, int]]:
        return {"page_table": (self.ssd.lpas * 2, self.ssd.lpas * 4)}


class Negative(PageTable):
    """A structure that gives memory back."""

    def tables(self) -> dict[str, tuple[int, int]]:
        return {**super().tables(), "trick": (-self.ssd.lpas, 0)}


class Hoarding(PageTable):
    """Has a second table that it does not mention."""

    def __init__(self, ssd: Any) -> None:
        self.hidden = np.zeros(ssd.lpas, dtype=np.uint32)


class Heaping(PageTable):
    """Has a Python object for each sixteenth LPA that it does not mention."""

    def __init__(self, ssd: Any) -> None:
        self.hidden = [(lpa,) for lpa in range(0, ssd.lpas, 16)]


class Heedless(Scheme):
    """Does not care what spread of wear was asked for."""

    def resolve(self, given: dict[str, Any]) -> dict[str, Any]:
        return {**Scheme.resolve(self, given), "wear_spread": 1 << 20}


def heedless() -> Scheme:
    return Heedless(**{field.name: getattr(scheme_with(), field.name) for field in fields(Scheme)})


def crowding(ssd: Any, options: dict[str, Any]) -> Any:
    """Many open blocks, whether or not the chip can spare them."""
    return PageTable(ssd), PageBitmap(ssd), Streams(ssd, 12, 12, 1), Greedy(ssd)


STRIPES = itertools.count(1)


def tossing(ssd: Any, options: dict[str, Any]) -> Any:
    """Another stripe each time."""
    streams = streams_for(ssd, {"gc_reserve": 0, "stripe": next(STRIPES)}, "broken")
    return PageTable(ssd), PageBitmap(ssd), streams, Greedy(ssd)


def dying(ssd: Any, options: dict[str, Any]) -> Any:
    faulthandler.disable()  # the traceback would stand among the results of other tests
    os.kill(os.getpid(), signal.SIGSEGV)


def leaving(ssd: Any, options: dict[str, Any]) -> Any:
    os._exit(3)


def raising(ssd: Any, options: dict[str, Any]) -> Any:
    raise ZeroDivisionError("one\nand two")


def no_ragged_ends(patch: pytest.MonkeyPatch) -> None:
    """A trim that forgets the parts of pages at its ends."""
    trim = Device.trim

    def whole(device: Device, offset: int, length: int) -> None:
        page = device.size // device.ssd.lpas
        first, end = -(-offset // page) * page, (offset + length) // page * page
        trim(device, first, max(0, end - first))

    patch.setattr(Device, "trim", whole)


def trim_by_writing(patch: pytest.MonkeyPatch) -> None:
    """A trim that writes zeros: it reads well, and nothing is given back."""
    patch.setattr(Device, "trim", lambda device, offset, length: device.write(offset, bytes(length)) and None)


def unclean(patch: pytest.MonkeyPatch) -> None:
    """An unmount that flushes, and leaves no checkpoint."""

    def close(device: Device, clean: bool = True) -> None:
        if clean and not device._image.chip.closed and not device.readonly:
            device.ssd.sync_now()
        device._image.close()

    patch.setattr(Device, "close", close)


def stats_with(change: Callable[[dict[str, Any]], Any]) -> bugs.Plant:
    """Figures of which one is wrong."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        stats = Device.stats

        def planted(device: Device) -> dict[str, Any]:
            found = stats(device)
            change(found)
            return found

        patch.setattr(Device, "stats", planted)

    return plant


def remaps_upwards(patch: pytest.MonkeyPatch) -> None:
    """A remap that goes from the first byte on, whatever it overwrites of its source."""
    whole = byte_requests.remap_range

    def planted(ssd: Any, source: int, target: int, size: int, move: bool = False, t_ns: int = 0) -> int:
        end, page = t_ns, ssd.nand.page_bytes
        for at in range(0, size, page):
            end = whole(ssd, source + at, target + at, min(page, size - at), move, t_ns)
        return end

    patch.setattr(byte_requests, "remap_range", planted)


def moves_nothing_away(patch: pytest.MonkeyPatch) -> None:
    """A move that leaves its source as it was."""
    whole = byte_requests.remap_range
    patch.setattr(byte_requests, "remap_range", lambda ssd, source, target, size, *_: whole(ssd, source, target, size))


def writing_when_read_only(patch: pytest.MonkeyPatch) -> None:
    """A read-only mount that recovers like any other, and leaves the outcome in the image."""
    opened, whole = nandimg.open_image, recovery.Recovery
    patch.setattr(nandimg, "open_image", lambda path, **how: opened(path))
    patch.setattr(recovery, "Recovery", lambda ssd, readonly=False, repairs=False: whole(ssd))


def changes_in_silence(patch: pytest.MonkeyPatch) -> None:
    """A device that takes a write although it was opened read-only."""
    patch.setattr(Device, "_writable", lambda device: None)


def forget(ssd: Any, report: Any) -> None:
    """A recovery that takes a page away, and next time another."""
    chip = getattr(ssd.nand, "chip", ssd.nand)
    if not chip.readonly:
        ssd.trim_pages(ssd.mounts % ssd.lpas, 1)
        ssd.sync_now()


@dataclass(frozen=True, slots=True)
class Bug:
    """Where it is (a scheme, or what is planted), which check must notice, and with what words."""

    check: str
    what: Scheme | bugs.Plant
    said: str


BUGS = {
    "no title": Bug("names", scheme_with(title=" "), "title"),
    "two lines of about": Bug("names", scheme_with(about="one\ntwo"), "about"),
    "a part that is none": Bug("names", scheme_with(replaces=("engine",)), "replaces: engine"),
    "a default out of bounds": Bug("names", scheme_with(options=(Option("stripe", 0, "x", low=1),)), "stripe=0"),
    "an option without help": Bug("names", scheme_with(options=(Option("stripe", 1, "", low=1),)), "no help"),
    "an option of the engine's": Bug("names", scheme_with(options=(Option("buffer", 1, "x"),)), "option buffer"),
    "saved_bytes too small": Bug("names", scheme_with(saved_bytes=lambda geometry: 100), "saved_bytes: 100"),
    "a view that is no figure": Bug("names", scheme_with(views={"map": lambda device: {1, 2}}), "view map"),
    "another name": Bug("names", scheme_with(name="other"), "name: other"),
    "a breach that was swallowed": Bug("rules", mapping_of(Rogue), "program of block"),
    "ragged ends that stay": Bug("content", no_ragged_ends, "not what was written last"),
    "a remap from the wrong end": Bug("remaps", remaps_upwards, "not what was written last"),
    "a move that is none": Bug("remaps", moves_nothing_away, "not what was written last"),
    "a remap that copies": Bug("remaps", scheme_with(remaps=True), "pages were remapped, and"),
    "a recovery that scans nothing": Bug("durability", plants.skip_step("scan"), "it may hold"),
    "a trim that is overlooked": Bug("durability", plants.lost_newest_trim, "it may hold"),
    "a failing block that is kept": Bug("failing", mapping_of(Relabelling), "is not retired"),
    "pages lost behind a failure": Bug("failing", plants.skip_step("resolve"), "is not what was written last"),
    "trims that free nothing": Bug("gc", trim_by_writing, "live pages"),
    "more open blocks than there is room for": Bug("gc", scheme_with(build=crowding), "DeviceFullError"),
    "no wear levelling": Bug("wear", heedless(), "would be the most"),
    "a cause that is lost": Bug("accounting", stats_with(lambda s: s["nand"]["by_cause"]["program"].pop("gc", 0)),
                                "program by cause"),
    "a program that is not counted": Bug("accounting", stats_with(lambda s: s["nand"].update(program=1)), "program"),
    "a flattering waf": Bug("accounting", stats_with(lambda s: s.update(waf=1.0)), "waf: 1.0"),
    "host pages forgotten": Bug("accounting", stats_with(lambda s: s["host"].update(trim=0)), "host trim"),
    "a read on no account": Bug("accounting", mapping_of(Strange), "no such cause"),
    "a table of half its size": Bug("dram", mapping_of(Half), "the structures own up to"),
    "a table that is not packed": Bug("dram", mapping_of(Boastful), "1.25 times"),
    "a negative structure": Bug("dram", mapping_of(Negative), "trick: -"),
    "a table that is not mentioned": Bug("dram", mapping_of(Hoarding), "the structures own up to"),
    "Python objects that are not mentioned": Bug("dram", mapping_of(Heaping), "the structures own up to"),
    "a total that is no sum": Bug("dram", stats_with(lambda s: s["dram"].update(total=1)), "dram total"),
    "an unmount without a checkpoint": Bug("clean", unclean, "recovered: "),
    "an LPA that is not saved": Bug("maps", mapping_of(Forgetful), ""),
    "a recovery that takes something away": Bug("idempotent", plants.after_recovery(forget), ""),
    "sequence numbers that begin again": Bug("idempotent", plants.after_recovery(plants.restart_sequence),
                                             "sequence number"),
    "a read-only mount that writes": Bug("readonly", writing_when_read_only, "bytes of it have changed"),
    "a read-only mount that takes writes": Bug("readonly", changes_in_silence, "read-only"),
    "chance": Bug("determinism", scheme_with(build=tossing), "the second time"),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_is_noticed(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    spec, what = "broken", BUGS[bug].what
    if isinstance(what, Scheme):
        monkeypatch.setitem(SCHEMES, spec, what)
    else:
        spec = "pagemap"
        what(monkeypatch)
    outcome = one(spec, BUGS[bug].check)
    assert outcome.result == "fail"
    assert BUGS[bug].said in outcome.why
    assert "\n" not in outcome.why
    assert outcome.replay.startswith("flashfs ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "check"),
    [
        ("a block that failed and is not marked bad", "failing"),
        ("a flush that leaves the write buffer", "durability"),
        ("a page table that loads one entry too few", "clean"),
        ("a stream that opens a block without making room", "gc"),
    ],
)
def test_a_compiled_bug_is_noticed(bug: str, check: str, tmp_path: Path) -> None:
    """In a copy of the sources, by the public command."""
    how = bugs.BUGS[bug].how
    assert isinstance(how, bugs.Patch)
    path = how.build(tmp_path / "source")
    command = [sys.executable, "-m", "flashfs.cli", "check", "pagemap", "--only", check, "--json"]
    done = subprocess.run(
        command, cwd=path, env=bugs.environment(path), capture_output=True, text=True, timeout=bugs.BUILD_S
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)[0]["fail"] == 1


def test_every_check_has_a_bug_and_a_least_count() -> None:
    assert {bug.check for bug in BUGS.values()} == set(IDS) == set(DONE)
    assert len(set(IDS)) == len(IDS)


# --- what failures say


def test_a_lost_page_has_the_line_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plants.lost_newest_trim(monkeypatch)
    *command, line = shlex.split(one("pagemap", "durability").replay)
    assert command == ["flashfs", "crash", "replay"]
    assert run_case(Case.parse(line)).failure is not None
    monkeypatch.undo()
    assert run_case(Case.parse(line)).failure is None


def test_another_failure_has_the_check_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, "my own:Odd", scheme_with(title=""))
    replay = one("my own:Odd", "names", seed=3, scale="full").replay
    assert replay == "flashfs check 'my own:Odd' --only names --scale full --seed 3"
    assert cli.run(shlex.split(replay)[1:]) == 1


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (raising, "ZeroDivisionError: one and two"),
        (dying, "its process died of SIGSEGV"),
        (leaving, "its process ended with 3"),
    ],
)
def test_whatever_an_ftl_does_is_a_line(monkeypatch: pytest.MonkeyPatch, build: Any, why: str) -> None:
    monkeypatch.setitem(SCHEMES, "broken", scheme_with(build=build))
    outcomes = run(["broken", "pagemap"], only=["content", "clean"], jobs=2)
    assert [(outcome.ftl, outcome.id) for outcome in outcomes] == [
        ("broken", "content"), ("broken", "clean"), ("pagemap", "content"), ("pagemap", "clean"),
    ]  # fmt: skip
    assert [outcome.result for outcome in outcomes] == ["fail", "fail", "pass", "pass"]
    assert outcomes[0].why == outcomes[1].why == why


def test_a_check_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, "broken", scheme_with(build=lambda ssd, options: time.sleep(600)))
    monkeypatch.setitem(suite.LIMIT_S, "quick", 1)
    outcome = one("broken", "content")
    assert (outcome.result, outcome.why) == ("fail", "it did not end within 1 s")
    assert 1 <= outcome.seconds < 60


def test_nothing_stays_when_it_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    begin = suite._begin

    def noted(check: Check, setting: Setting) -> Any:
        begun.append(begin(check, setting))
        return begun[-1]

    def stop(outcome: Outcome) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(SCHEMES, "broken", scheme_with(build=lambda ssd, options: time.sleep(600)))
    monkeypatch.setattr(suite, "_begin", noted)
    with pytest.raises(KeyboardInterrupt):
        run(["broken", "pagemap"], only=["names"], jobs=2, heard=stop)
    assert len(begun) == 2
    for job in begun:
        with pytest.raises(ValueError, match="closed"):
            job.process.is_alive()


def test_what_cannot_be_measured_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot() -> int:
        raise Skipped("not here")

    monkeypatch.setattr(upkeep, "_held", cannot)
    outcome = one("pagemap", "dram")
    assert (outcome.result, outcome.why, outcome.replay) == ("skip", "not here", "")


def test_the_seed_makes_the_checks() -> None:
    first, again, other = (one("pagemap", "accounting", seed=seed).counts for seed in (0, 0, 1))
    assert first == again != other


def test_the_scale_makes_them_longer() -> None:
    assert Setting("pagemap").some(2, 30) == 2
    assert Setting("pagemap", "full").some(2, 30) == 30
    quick, full = (one("pagemap", "clean", scale=scale).counts["mounts"] for scale in suite.SCALES)
    assert full > 5 * quick
    assert all(deep >= shallow for _, _, shallow, deep, _ in power.CAMPAIGNS)


# --- the command


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["check", *arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "slimftl", "pagemap", "--only", "clean,names", "--jobs", "2", "--json")
    assert (code, err) == (0, "")
    first, second = json.loads(out)
    assert (first["ftl"], second["ftl"]) == ("slimftl", "pagemap")
    assert (first["pass"], first["fail"], first["skip"], first["scale"], first["seed"]) == (2, 0, 0, "quick", 0)
    assert [check["id"] for check in first["checks"]] == ["names", "clean"]
    assert first["checks"][1]["counts"]["mounts"] >= 48
    assert first["checks"][0]["seconds"] > 0
    code, out, err = call(capsys, "pagemap", "--only", "names")
    assert (code, err) == (0, "")
    assert "7 options, 4 views" in out
    assert "pagemap: 1 passed, 0 failed" in out


def test_the_command_of_a_broken_ftl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, "broken", scheme_with(build=raising))
    code, out, err = call(capsys, "broken", "--only", "clean")
    assert (code, err) == (1, "")
    assert "broken clean: ZeroDivisionError: one and two\n    flashfs check broken --only clean\n" in out
    assert "broken: 0 passed, 1 failed" in out
    code, out, _ = call(capsys, "broken", "--only", "clean", "--json")
    assert code == 1
    assert json.loads(out)[0]["checks"][0]["replay"] == "flashfs check broken --only clean"


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--list", "--json")
    assert code == 0
    assert [row["id"] for row in json.loads(out)] == IDS
    assert all(row["title"] and row["promise"] for row in json.loads(out))
    assert "durability" in call(capsys, "--list")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which FTL?"),
        (["nonesuch"], "nonesuch"),
        (["no.such.package:Class"], "no.such.package"),
        (["pagemap", "--only", "nonesuch"], "no check is called 'nonesuch': there is names, rules"),
        (["pagemap", "--scale", "huge"], "scale 'huge': use quick or full"),
        (["pagemap", "--seed", "x"], "--seed"),
    ],
)
def test_bad_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_usage_from_python() -> None:
    with pytest.raises(UsageError, match="nonesuch"):
        run(["pagemap", "nonesuch"])
