"""The schemes that stand for others in ``make test`` are made of everything that the engine has."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import pytest
import schemes

import flashfs.ftl
from flashfs.device import Device
from flashfs.ftl import SCHEMES
from nandimg import PRESETS

ROOMS = ("flashfs.engine", "flashfs.parts")


def engine_classes(name: str) -> set[str]:
    """The classes of engine and shelf that a device of this scheme is made of: its parts, what they are derived from,
    and what they hold."""
    ssd = Device.memory(PRESETS["small-64m"].geometry, name).ssd
    parts = [ssd.mapping, ssd.validity, ssd.placement, ssd.cleaning]
    held = [one for one in gc.get_referents(*parts) if is_ours(one)]
    held += [one for one in gc.get_referents(*held) if is_ours(one)]
    bases = {base for one in (*parts, *held) for base in type(one).__mro__}
    return {f"{base.__module__}.{base.__name__}" for base in bases if base.__module__.startswith(ROOMS)}


def is_ours(thing: Any) -> bool:
    return type(thing).__module__.startswith("flashfs.")


def test_kinds_are_made_of_all_that_any_scheme_is_made_of() -> None:
    used = {name: engine_classes(name) for name in schemes.EACH}
    assert all(len(classes) > 10 for classes in used.values())
    missing = set().union(*used.values()) - set().union(*(used[name] for name in schemes.STANDS_FOR))
    assert missing == set()
    without_a_battery = [used[name] for name in schemes.STANDS_FOR if name not in ("dftl", "muftl")]
    assert any("battery" in one for one in set().union(*used.values()) - set().union(*without_a_battery))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_rotation_meets_every_scheme(n: int) -> None:
    assert {name for i in range(len(schemes.EACH)) for name in schemes.turn(i, n)} == set(schemes.EACH)
    for i in range(20):
        row = schemes.rotated(i, n)
        assert [one.values[0] for one in row] == schemes.EACH
        assert sum(not one.marks for one in row) == n
        fast = [one.values[0] for one in schemes.with_one_more(i) if not one.marks]
        assert len(fast) == 2
        assert "pagemap" in fast


@pytest.mark.parametrize("name", schemes.EACH)
def test_a_scheme_says_what_it_is(name: str) -> None:
    """Its traits are those of the device that is built."""
    of = SCHEMES[name]
    validity = Device.memory(PRESETS["small-64m"].geometry, name).ssd.validity
    assert (of.validity_in_flash, of.validity_late) == (validity.in_flash, validity.late)
    folder = Path(flashfs.ftl.__file__).parent / name
    assert of.hashed == any("hashing.tables" in path.read_text() for path in folder.glob("*.py*") if path.is_file())


def test_no_test_makes_an_exception_of_a_scheme_by_its_name() -> None:
    """Those of a scheme's own folder and of its formats may; what an engine's test needs to know is a trait."""
    named = "|".join(SCHEMES)
    pattern = re.compile(rf"""\bftl (?:==|!=|in|not in) \(?"(?:{named})\"""")
    found = [f"{path.name}: {line.strip()}" for room in ("engine", "crash", "fuse", "watch", "nbd")
             for path in (Path(__file__).parent / room).glob("*.py")
             for line in path.read_text().splitlines() if pattern.search(line)]  # fmt: skip
    assert found == []
