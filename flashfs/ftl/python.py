"""FTLs written in Python: what a class must have and may have, and the Scheme made from it.

docs/python-ftl.md explains it with examples. Plug-ins need to import nothing from here; Option, and the types for their
own checks, are in ``flashfs.plugin``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from flashfs.engine.views import block_map
from flashfs.errors import MISTAKES, BindError, RoomError, UsageError
from flashfs.ftl import Option, Scheme, charts
from flashfs.ftl.class_names import CLASSES, NAME_BYTES
from flashfs.ftl.common import STRIPE, good_blocks, streams_for
from flashfs.ftl_search import SEARCHED
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_bitmap import PageBitmap
from flashfs.parts.defaults.streams import Streams
from flashfs.parts.python.python_ftl import Chip, PyCleaning, PyPlacement, PyValidity, where_raised
from flashfs.parts.python.python_map import build

ORDER_BYTES = 8  #: the bridge's own, ahead of what an FTL saves
VERIFY = Option("verify", 1, "hold every answer of the FTL against what flash says: a spare read per overwrite", high=1)
REBUILD = Option("rebuild", 0, "make the map anew from flash, instead of loading what the FTL saved", high=1)

REQUIRED = ("lookup", "bind", "unbind")
#: (method, method that it needs)
PAIRS = (
    ("sharers", "copied"), ("copied", "sharers"), ("copied", "remap"), ("sharers", "moved"), ("sharers", "save"),
    ("save", "load"), ("load", "save"), ("stamp", "oob_bytes"), ("recovered", "stamp"), ("after_miss", "save"),
    ("live", "dead"), ("dead", "live"), ("is_live", "live"), ("attach", "place"), ("closed", "place"),
    ("late", "live"),
)  # fmt: skip
#: part -> the method whose presence means that the class replaces that part
PARTS = {"validity": "live", "placement": "place", "cleaning": "victim"}


@runtime_checkable
class Ftl(Protocol):
    """What a class must have. Its constructor takes the Chip, and a new object is an empty map."""

    def lookup(self, lpa: int) -> int | None:
        """The PPA of ``lpa``, or None if it is unmapped."""

    def bind(self, lpa: int, ppa: int) -> None:
        """Map ``lpa`` to ``ppa``, wherever it was before. The page is already in flash."""

    def unbind(self, lpa: int) -> None:
        """Unmap ``lpa``, which was bound."""


class Saves(Protocol):
    """For an FTL that can save its map in less than 4 bytes an LPA. ``save_bytes(lpas)`` is a static method: the most
    bytes that ``save`` ever returns (4 * lpas if it is missing). ``load`` is called on a new object."""

    def save(self) -> bytes: ...

    def load(self, saved: bytes) -> None: ...


class Stamps(Protocol):
    """For an FTL that stores ``oob_bytes`` bytes in the OOB of each page, and gets them back at recovery."""

    oob_bytes: int

    def stamp(self, lpa: int, ppa: int) -> bytes: ...

    def recovered(self, lpa: int, ppa: int, oob: bytes) -> None: ...


class Guesses(Protocol):
    """For an FTL whose lookup may be wrong: the next PPA to try when ``ppa`` turned out to hold another LPA; None if
    there is no other. None of lookup is never a guess. Needs save and load."""

    def after_miss(self, lpa: int, ppa: int) -> int | None: ...


class Validates(Protocol):
    """For an FTL with its own store of live pages. Each page that comes to life or dies is reported to it. With
    ``late = True`` it may still call a page live after that has died."""

    def live(self, ppa: int) -> None: ...

    def dead(self, ppa: int) -> None: ...

    def is_live(self, ppa: int) -> bool: ...


class Places(Protocol):
    """For an FTL that decides where pages go. ``host_blocks`` and ``gc_blocks`` (default 1 each) are how many blocks it
    keeps open at once for each stream."""

    host_blocks: int
    gc_blocks: int

    def place(self, stream: str, lpas: list[int]) -> int | tuple[int, int]:
        """The open block for the first of these pages, or (block, how many of them). ``stream`` is "host" or
        "gc". ``chip.room(block)`` is 0 once a block is full; ``chip.open_block()`` gives a fresh one."""

    def closed(self, block: int) -> None:
        """Optional: a block is full, or failed."""

    def attach(self, blocks: dict[int, str]) -> Iterable[int]:
        """Optional: the blocks that were open at a clean unmount, with their streams; returns those that it continues
        to fill."""


class Cleans(Protocol):
    """For an FTL that chooses what to clean: one of ``chip.closed_blocks()`` with a dead page in it; or a list of up to
    ``group_blocks`` of them (default 1), which are moved together, sorted by LPA."""

    group_blocks: int

    def victim(self) -> int | list[int]: ...


class Shares(Protocol):
    """For an FTL that may map several LPAs to one page. The FTL creates the sharing itself (a ``remap``, reported
    through ``mapping.share``); the engine keeps a page that outlives the LPA in its OOB. Needs save and load."""

    def remap(self, lpa: int, source: int) -> None:
        """Map ``lpa``, which was unmapped, to the page of ``source``."""

    def sharers(self, ppa: int) -> list[int]:
        """The LPAs that map to this page now: one, or none, if the page is not shared."""

    def moved(self, old: int, new: int) -> None:
        """Cleaning moved a page: all LPAs at ``old`` are at ``new`` now."""

    def copied(self, lpa: int, seq: int, ppa: int) -> tuple[int, bool] | None:
        """A recovery found the page that is named ``lpa`` and ``seq`` (``chip.name_of``) at ``ppa``: if LPAs share or
        shared it, all of them are there from now on. Returns its old PPA, and whether ``lpa`` itself maps to it; None
        if it was never shared. By now another page may be at its old PPA: only the name identifies it."""


class LearnsRuns(Protocol):
    """For an FTL that learns from runs of pages written together, even if striped over several blocks."""

    def run(self, lpas: list[int], ppas: list[int]) -> None:
        """The whole run of pages that were just bound one by one."""


# --- from a name to a class


def load_class(spec: str) -> type:
    """The class registered under this name, or else the one that ``package.module:Class`` names; UsageError says which
    part of it is wrong."""
    if spec in CLASSES:
        return CLASSES[spec]
    module_name, _, class_name = spec.partition(":")
    for folder in SEARCHED:
        if folder not in sys.path:
            sys.path.append(folder)  # last: a file that lies there never shadows what is installed
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise UsageError(f"FTL {spec}: {module_name} needs a module {error.name}, and there is none") from error
        where = "".join(f" (nor in {folder})" for folder in SEARCHED)
        raise UsageError(f"FTL {spec}: there is no module {error.name} on the Python path{where}") from None
    except MISTAKES as error:
        text = " ".join(str(error).split())
        said = text if isinstance(error, SyntaxError) else f"{text}{where_raised(error)}"
        raise UsageError(f"FTL {spec}: importing {module_name} raised {type(error).__name__}: {said}") from error
    if not class_name:
        raise UsageError(f"FTL {spec}: use package.module:Class")
    for part in class_name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"FTL {spec}: {module_name} has no {class_name}")
        found = getattr(found, part)
    if not isinstance(found, type):
        raise UsageError(f"FTL {spec}: {class_name} is no class (its type is {type(found).__name__})")
    return found


# --- from a class to a scheme


def scheme_of(name: str, cls: type, origin: str = "") -> Scheme:
    """The Scheme of a class under that name; UsageError says what the class lacks."""
    _check_class(name, cls)
    words = " ".join((cls.__doc__ or "").split())
    title, _, about = words.partition(". ")
    oob_bytes = getattr(cls, "oob_bytes", 0) if hasattr(cls, "stamp") else 0
    parts = [part for part, method in PARTS.items() if hasattr(cls, method)]
    options = (*getattr(cls, "options", ()), VERIFY, REBUILD, *(() if "placement" in parts else (STRIPE,)))
    return Scheme(
        name=name,
        title=str(getattr(cls, "title", "") or title.rstrip(".") or cls.__name__),
        paper=str(getattr(cls, "paper", "")),
        about=str(getattr(cls, "about", "") or about),
        replaces=("mapping", *parts),
        scheme_oob=oob_bytes,
        saved_bytes=lambda geometry: save_most(cls, geometry.lpas) + (ORDER_BYTES if hasattr(cls, "save") else 0),
        build=partial(_build, name, cls),
        options=options,
        describe_oob=lambda raw: {"stamp": raw[:oob_bytes].hex()} if oob_bytes else {},
        views={"map": _map},
        about_views={"map": "the map in figures"},
        interpreted=True,
        charts=_charts,
        origin=origin or f"{cls.__module__}:{cls.__qualname__}",
    )


def save_most(cls: type, lpas: int) -> int:
    """The most bytes that ``save`` may return for so many LPAs."""
    ask: Callable[[int], int] | None = getattr(cls, "save_bytes", None)
    return 4 * lpas if ask is None else int(ask(lpas))


def _check_class(name: str, cls: type) -> None:
    if len(name.encode()) > NAME_BYTES:
        raise UsageError(
            f"FTL {name}: the name takes {len(name.encode())} bytes, and the header of an image has {NAME_BYTES}: "
            "use a shorter one, or an entry point of the group flashfs.ftl"
        )
    lacks = [method for method in REQUIRED if not callable(getattr(cls, method, None))]
    if lacks:
        whole = "" if len(lacks) == len(REQUIRED) else "; it needs lookup, bind and unbind"
        raise UsageError(f"FTL {name}: the class lacks {', '.join(lacks)}{whole}")
    for has, needs in PAIRS:
        if hasattr(cls, has) and not hasattr(cls, needs):
            raise UsageError(f"FTL {name}: the class has {has}, so it needs {needs} too")
    for option in getattr(cls, "options", ()):
        if not isinstance(option, Option):
            raise UsageError(f"FTL {name}: options hold {option!r}: use objects of flashfs.plugin.Option")
    if type(getattr(cls, "late", False)) is not bool:
        raise UsageError(f"FTL {name}: late is {cls.late!r}: use True or False")  # type: ignore[attr-defined]
    if hasattr(cls, "stamp"):
        oob_bytes = getattr(cls, "oob_bytes", None)
        if type(oob_bytes) is not int or oob_bytes < 1:
            raise UsageError(f"FTL {name}: oob_bytes is {oob_bytes!r}: use a whole number from 1 on")


def _build(name: str, cls: type, ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    oob_bytes = getattr(cls, "oob_bytes", 0) if hasattr(cls, "stamp") else 0
    plugin, mapping = build(ssd, name, cls, options, oob_bytes, save_most(cls, ssd.lpas))
    validity = PyValidity(ssd).attach(plugin) if hasattr(cls, "live") else PageBitmap(ssd)
    if hasattr(cls, "place"):
        placement: Streams = _placement(ssd, options, name, plugin)
    else:
        placement = streams_for(ssd, options, name)
    cleaning = _cleaning(ssd, name, plugin) if hasattr(cls, "victim") else Greedy(ssd)
    return mapping, validity, placement, cleaning


def _cleaning(ssd: Any, name: str, plugin: Any) -> PyCleaning:
    most = getattr(plugin.ftl, "group_blocks", 1)
    if type(most) is not int or not 1 <= most <= ssd.nand.blocks:
        raise BindError(f"{name}.group_blocks is {most!r}: use a whole number from 1 to {ssd.nand.blocks}")
    return PyCleaning(ssd).attach(plugin, most)


def _placement(ssd: Any, options: dict[str, Any], name: str, plugin: Any) -> PyPlacement:
    """Reserve as many open blocks as the FTL keeps; RoomError if the chip has too few."""
    blocks = {}
    for attribute in ("host_blocks", "gc_blocks"):
        value = getattr(plugin.ftl, attribute, 1)
        if type(value) is not int or not 1 <= value <= ssd.nand.blocks:
            raise BindError(f"{name}.{attribute} is {value!r}: use a whole number from 1 on")
        blocks[attribute] = value
    spare = plugin.chip.spare_blocks
    reserve = options["gc_reserve"] or ssd.shrink_reserve(max(2, spare // 8))
    ssd.reserve_for(blocks["gc_blocks"])
    need = max(reserve, ssd.gc_reserve) + sum(blocks.values())
    if spare < need:
        raise RoomError(
            f"{name}: {ssd.lpas} logical pages and the metadata leave {spare} of {good_blocks(ssd)} good blocks, and "
            f"{need} are needed: {blocks['host_blocks']} + {blocks['gc_blocks']} open ones and a reserve for cleaning"
        )
    return PyPlacement(ssd, 1, 1, 1).attach_to(plugin, blocks["host_blocks"], blocks["gc_blocks"])


def _map(device: Any) -> dict[str, Any]:
    """How full the map is, and the figures of the FTL's class."""
    mapping = device.ssd.mapping
    bound = sum(mapping.explain(lpa)["ppa"] is not None for lpa in range(device.ssd.lpas))
    return {
        "entries": device.ssd.lpas,
        "mapped": bound,
        "fill": round(bound / device.ssd.lpas, 6),
        **{f"{structure}_bytes": held for structure, held in mapping.plugin.dram().items()},
        **mapping.figures(),
    }


def _charts(device: Any) -> list[dict[str, Any]]:
    """The charts of any map, and the class's own figures."""
    where = block_map.mapped(device.ssd)
    mapping = device.ssd.mapping
    own = {f"{structure}_bytes": held for structure, held in mapping.plugin.dram().items()}
    return [charts.facts({**own, **mapping.figures()}), charts.picture(device, where), charts.runs(device, where)]


__all__ = ["Chip", "Cleans", "Ftl", "Guesses", "LearnsRuns", "Option", "Places", "Saves", "Shares", "Stamps",
           "Validates", "scheme_of"]  # fmt: skip
